// SPDX-License-Identifier: Apache-2.0
// Damages a published block on purpose, to show that a replay notices.
#pragma once

#include <string>

#include "client.hpp"
#include "store_view.hpp"
#include "trace/trace.hpp"

namespace kvpool::tools {

// Flips one payload byte of the published block with this key. False when there is none.
bool corrupt_block(StoreView &view, backend::Backend &writable, const u64 key[4], u64 byte);

// Flips bytes in the blocks that a workload reads most often, so that somebody will read one soon.
class Corruptor {
public:
  Corruptor(const std::string &address, const Trace &trace);
  // Damages the next block; its key, or empty when no candidate is published now.
  std::string strike();

private:
  std::string address_;
  std::vector<std::uint64_t> ids_;  // most referenced first
  std::size_t next_ = 0;
  std::unique_ptr<StoreView> view_;
  std::unique_ptr<backend::Backend> writable_;
  Context ctx_;
  Namespace ns_;
};

std::unique_ptr<backend::Backend> open_writable(const std::string &address);

}  // namespace kvpool::tools
