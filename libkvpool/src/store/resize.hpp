// SPDX-License-Identifier: Apache-2.0
// Growing and shrinking a store in use (proto 14), as whoever asks for it sees it: the bytes are
// reserved before the owner is asked, and given back only after its answer counts.
#pragma once

#include <functional>

#include "media/layout.hpp"

namespace kvpool::store {

// Of extents that are to go: those not empty yet, and what they wait for.
struct ResizeProgress {
  u32 leaving = 0;
  u32 held = 0;    // by members, or in quarantine
  u32 pinned = 0;  // a pinned block is in them
};

struct ResizeOptions {
  u64 pool_bytes = 0;
  bool shrink = false;       // which way is meant: the other one is refused
  bool dry_run = false;
  u64 patience_ns = 5'000'000'000;  // without a word of any owner
  std::function<bool(const ResizeProgress &)> go_on;  // asked now and then; false: give up
};

struct ResizeReport {
  bool shrinks = false;
  u64 bytes_before = 0, bytes_after = 0;  // of the pool
  u64 data_before = 0, data_after = 0;    // for blocks
  u32 extents_before = 0, extents_after = 0;
  u64 reserved_bytes = 0;    // that files grew by
  u64 given_back_bytes = 0;  // of storage
  u64 device_bytes[media::kMaxDevices] = {};  // that each device needs then
};

}  // namespace kvpool::store
