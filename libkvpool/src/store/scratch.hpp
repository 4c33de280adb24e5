// SPDX-License-Identifier: Apache-2.0
// Working room of one put or get, made once and used again: the data path allocates nothing. A
// Scratch serves one call at a time; ScratchPool hands them out.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "pool/types.hpp"
#include "store/block_layout.hpp"
#include "store/tickets.hpp"
#include "transfer/plan.hpp"

namespace kvpool::store {

inline constexpr u32 kScratchBlocks = 1024;  // blocks of one batch

struct Scratch {
  // `block_bytes_max`: no block of the store is larger.
  explicit Scratch(u64 block_bytes_max = kBlockBytesMax)
      : pieces(std::max<u64>(block_bytes_max / media::kStripeBytes + 2, kScratchBlocks * 3)),
        checks(block_bytes_max / kSegmentBytes + media::kMaxShards + 1),
        read_checks(checks.size()),
        keys(kScratchBlocks),
        hits(kScratchBlocks),
        wanted(kScratchBlocks),
        open_blocks(kScratchBlocks),
        row_blocks(kScratchBlocks),
        publications(kScratchBlocks),
        tickets(kScratchBlocks),
        valid(std::make_unique<bool[]>(kScratchBlocks)),
        proven(std::make_unique<bool[]>(kScratchBlocks)) {}

  // Remembers the last line written on its device, for the next strict drain.
  void touch(PoolOffset line) {
    touched[line.device()] = line;
    touched_devices |= 1u << line.device();
  }
  u32 take_touched(PoolOffset *ret_lines) {
    u32 n = 0;
    for (u32 d = 0; d < media::kMaxDevices; ++d) {
      if (touched_devices >> d & 1) ret_lines[n++] = touched[d];
    }
    touched_devices = 0;
    return n;
  }
  u32 next_sample() { return sample_count++; }

  transfer::Plan plan;
  std::vector<transfer::Piece> pieces;
  std::vector<u64> checks;       // by segment
  std::vector<u64> read_checks;  // computed while copying, when check lines are needed as well
  std::vector<pool::Key> keys;
  std::vector<pool::Hit> hits;
  std::vector<const pool::Key *> wanted;  // the key that a second look compares; null: none
  std::vector<u32> open_blocks;  // numbers of the blocks that have no verdict yet
  std::vector<std::span<const transfer::Piece>> row_blocks;
  std::vector<pool::Publication> publications;
  std::vector<Ticket> tickets;
  std::unique_ptr<bool[]> valid;
  std::unique_ptr<bool[]> proven;
  PoolOffset touched[media::kMaxDevices]{};
  u32 touched_devices = 0;
  u32 sample_count = 0;
};

}  // namespace kvpool::store
