// SPDX-License-Identifier: Apache-2.0
// The driver's control node as commands use it: opened with a sentence when it cannot be, lists as
// vectors.
#pragma once

#include <linux/kvpool.h>
#include <linux/kvpool_format.h>

#include <string>
#include <vector>

#include "arch/types.hpp"

namespace kvpool::tools {

class ControlNode {
public:
  // Failure: the driver is not loaded, or this user may not open the node.
  ControlNode();
  ~ControlNode();
  ControlNode(const ControlNode &) = delete;
  ControlNode &operator=(const ControlNode &) = delete;

  // 0 or -errno.
  int call(unsigned long command, void *args) const;
  kvpool_info info() const;
  // The same; Failure unless a pool is claimed and this host has not fenced itself.
  kvpool_info claimed() const;
  template <class Item>
  std::vector<Item> list(u32 kind) const {
    std::vector<Item> items(64);
    for (;;) {
      const u32 there = list_into(kind, items.data(), sizeof(Item), static_cast<u32>(items.size()));
      const bool all = there <= items.size();
      items.resize(there);
      if (all) return items;
    }
  }

private:
  u32 list_into(u32 kind, void *items, u32 item_bytes, u32 count) const;
  int fd_ = -1;
};

// Words for the numbers of the interface.
const char *type_word(u32 type);
const char *host_state_word(u32 state);
std::string partition_name(const kvpool_item_partition &item);

}  // namespace kvpool::tools
