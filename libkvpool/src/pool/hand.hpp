// SPDX-License-Identifier: Apache-2.0
// What a member has in hand (proto 8): extents granted to it and which of their blocks it may still
// use. Plain bookkeeping, no memory access. Guarded by the member's mutex.
#pragma once

#include <algorithm>
#include <vector>

#include "media/classes.hpp"
#include "pool/types.hpp"

namespace kvpool::pool {

struct HandExtent {
  u32 extent = 0;
  u32 run_extents = 0;  // 0: cut into blocks
  u8 size_class = media::kClassNone;
  bool tainted = false;
  bool returning = false;  // a publication in doubt gives it back
  bool lost = false;       // on a lost device: the same, for good
  bool stray = false;      // stores of a rank given up may come: the same, to be tainted
  u16 stray_mark = 0;      // whose; 0: of several
  bool leaving = false;    // recalled: no block is taken from it, it goes as soon as it is idle
  u32 block_count = 0;
  u32 free_count = 0;
  u32 reserved = 0;  // blocks being written
  u32 doubt = 0;     // blocks whose publication has no accepted answer yet
  u64 free_bits[media::kBlocksPerExtentMax / 64]{};
  u64 reserved_bits[media::kBlocksPerExtentMax / 64]{};

  bool stays() const { return !returning && !leaving && !lost && !stray; }
  bool usable() const { return free_count > 0 && stays(); }
  bool idle() const { return reserved == 0 && doubt == 0; }
};

class Hand {
public:
  Hand() { extents_.reserve(256); }  // a grant is taken in hand where nothing may fail

  void clear() { extents_.clear(); }
  bool empty() const { return extents_.empty(); }
  std::vector<HandExtent> &extents() { return extents_; }
  const std::vector<HandExtent> &extents() const { return extents_; }

  HandExtent *find(u32 extent) {
    if (last_ < extents_.size() && extents_[last_].extent == extent) return &extents_[last_];
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      if (extents_[i].extent != extent) continue;
      last_ = i;
      return &extents_[i];
    }
    return nullptr;
  }

  HandExtent &add(const HandExtent &extent) {
    extents_.push_back(extent);
    return extents_.back();
  }

  void remove(u32 extent) {
    std::erase_if(extents_, [&](const HandExtent &e) { return e.extent == extent; });
  }

  // Takes a free block of the class (runs: of that length). False: nothing in hand.
  bool take(u8 size_class, u32 run_extents, u64 extent_bytes, Block &ret_block) {
    for (HandExtent &e : extents_) {
      if (e.size_class != size_class || e.run_extents != run_extents) continue;
      if (!e.usable()) continue;
      const u32 index = lowest(e.free_bits);
      e.free_bits[index / 64] &= ~(u64{1} << index % 64);
      e.reserved_bits[index / 64] |= u64{1} << index % 64;
      --e.free_count;
      ++e.reserved;
      const u64 bytes = run_extents ? run_extents * extent_bytes : media::class_bytes(size_class);
      ret_block = {.extent = e.extent,
                   .index = index,
                   .run_extents = run_extents,
                   .size_class = size_class,
                   .tainted = e.tainted,
                   .address = e.extent * extent_bytes + (run_extents ? 0 : index * bytes),
                   .bytes = bytes};
      return true;
    }
    return false;
  }

  bool has_free(u8 size_class) const {
    for (const HandExtent &e : extents_) {
      if (e.size_class == size_class && e.usable()) return true;
    }
    return false;
  }

  // A reserved block is free again.
  void give_back(const Block &block) {
    HandExtent *e = find(block.extent);
    if (!e || !reserved(*e, block.index)) return;
    e->reserved_bits[block.index / 64] &= ~(u64{1} << block.index % 64);
    e->free_bits[block.index / 64] |= u64{1} << block.index % 64;
    --e->reserved;
    ++e->free_count;
  }

  // Its publication is on the way: no longer reserved, in doubt. Returns true when that publication
  // uses the extent up, so that it gives it back as well.
  bool enter_doubt(const Block &block) {
    HandExtent *e = find(block.extent);
    if (!e) return false;
    e->reserved_bits[block.index / 64] &= ~(u64{1} << block.index % 64);
    --e->reserved;
    ++e->doubt;
    e->returning = e->free_count == 0 && e->reserved == 0;
    return e->returning;
  }

  // The doubt ended: published, or (when not) the block is free again unless its extent was given
  // back with it or by a later publication.
  void leave_doubt(const Block &block, bool published, bool extent_returned) {
    HandExtent *e = find(block.extent);
    if (!e) return;
    --e->doubt;
    if (extent_returned) {
      remove(block.extent);
      return;
    }
    if (published || e->returning) return;
    e->free_bits[block.index / 64] |= u64{1} << block.index % 64;
    ++e->free_count;
  }

  static bool reserved(const HandExtent &e, u32 index) {
    return e.reserved_bits[index / 64] >> index % 64 & 1;
  }

private:
  static u32 lowest(const u64 *bits) {
    for (u32 w = 0;; ++w) {
      if (bits[w]) return w * 64 + static_cast<u32>(std::countr_zero(bits[w]));
    }
  }

  std::vector<HandExtent> extents_;
  std::size_t last_ = 0;
};

}  // namespace kvpool::pool
