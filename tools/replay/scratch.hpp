// SPDX-License-Identifier: Apache-2.0
// A store of our own for as long as a command runs, and its owner as a process of its own.
#pragma once

#include <cstdint>
#include <string>

#include "replay/children.hpp"
#include "say.hpp"

namespace kvpool::tools {

struct ScratchOptions {
  std::string address;  // an existing store instead: nothing is made or removed
  std::string where = "mem:";
  std::uint64_t bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint32_t members = 16;
  std::uint32_t members_spread = 0;  // of these, those that open address_of_member()
};

// Formatted on construction, removed on destruction. Where shared memory is too small it is a file,
// which is said on stderr.
class Scratch {
public:
  explicit Scratch(const ScratchOptions &options);
  ~Scratch();
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;

  const std::string &address() const { return address_; }
  // Address for member process `number` from 0, so that no host has more than it has room for.
  std::string address_of_member(std::uint64_t number) const;

private:
  void choose_place(const std::string &where, std::uint64_t bytes);

  std::string address_;
  std::string folder_;
  std::uint32_t members_beside_ = 0;
  bool ours_ = false;
};

// kvpool serve as a child. Its closing counts say how much it evicted.
class OwnerProcess {
public:
  // Returns when the store is served; Failure when it is not within a minute.
  explicit OwnerProcess(const std::string &address, bool huge = false);
  ~OwnerProcess();
  OwnerProcess(const OwnerProcess &) = delete;
  OwnerProcess &operator=(const OwnerProcess &) = delete;

  bool running();
  // Ends it and returns what it says about its time; null when it did not end well.
  Json stop();

private:
  Child child_;
};

std::uint64_t free_bytes(const std::string &folder);

}  // namespace kvpool::tools
