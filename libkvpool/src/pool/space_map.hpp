// SPDX-License-Identifier: Apache-2.0
// The owner's view of space (proto 8): who holds each extent, which blocks entries refer to, what
// is free. Bookkeeping only; the owner writes map words through its AreaWriter. Single thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "arch/prefetch.hpp"
#include "media/layout.hpp"
#include "pool/block_tables.hpp"
#include "pool/types.hpp"

namespace kvpool::pool {

class SpaceMap {
public:
  static constexpr u32 kNone = ~u32{0};

  struct Extent {
    media::MapRecord record{media::kHolderOwner, 0, media::kClassNone, 0, 0};
    u16 used = 0;          // blocks that an entry refers to, in whatever state
    u8 queued = 0;         // stands in the list of its class
    bool out = false;      // of use: part of it lies on a device that was lost (proto 14)
    u64 counted = 0;       // its share of free_bytes()
    u32 *entry_of = nullptr;  // by block: entry number + 1, or 0; of tables_
  };

  void reset(const media::RegionTable &regions) {
    regions_ = regions;
    for (u32 c = 0; c < media::kSizeClasses; ++c) {
      blocks_[c] = media::blocks_per_extent(c, regions.extent_bytes());
    }
    blocks_[media::kClassRun] = 1;
    extents_ = std::vector<Extent>(regions.extent_count());
    limit_ = regions.extents_in_use();
    tables_.clear();
    free_bits_.assign((extents_.size() + 63) / 64, 0);
    free_count_ = out_count_ = 0;
    free_bytes_ = 0;
    cursor_ = 0;
    queues_.assign(64, {});
    for (auto &list : held_) list.clear();
    for (u32 x = 0; x < count(); ++x) update_free(x);
  }

  const media::RegionTable &regions() const { return regions_; }
  u32 count() const { return static_cast<u32>(extents_.size()); }
  // Extents from here on are granted to nobody: they are retired, or to be.
  u32 limit() const { return limit_; }
  void set_limit(u32 limit) {
    const u32 first = std::min(limit, limit_), end = std::max(limit, limit_);
    limit_ = limit;
    for (u32 x = first; x < end; ++x) update_free(x);
  }
  // Extents of runs that begin below the limit and reach over it are to go as well.
  u32 leaving_from() const {
    u32 first = limit_;
    while (first > 0 && first < count() && (at(first).record.flags & media::kMapRunTail)) --first;
    return first;
  }
  // proto 14: nothing of the extent is granted, until it is taken back into use.
  void set_out(u32 extent, bool out) {
    Extent &e = extents_[extent];
    out_count_ += out - e.out;
    e.out = out;
    update_free(extent);
  }
  u32 out_count() const { return out_count_; }
  u32 devices_of(u32 extent) const {
    return regions_.devices_of(regions_.address(extent, 0), regions_.extent_bytes());
  }
  u32 free_extents() const { return free_count_; }
  const Extent &at(u32 extent) const { return extents_[extent]; }
  const std::vector<u32> &held_by(u32 slot) const { return held_[slot]; }

  u32 blocks(u8 size_class) const { return blocks_[size_class]; }

  // ---- what the medium says; used by the scan and by every later change ----

  void set_record(u32 extent, const media::MapRecord &record) {
    Extent &e = extents_[extent];
    const u8 before = e.record.holder;
    if (e.record.size_class != record.size_class && e.used == 0 && e.entry_of) {
      tables_.give(e.entry_of, blocks(e.record.size_class));
      e.entry_of = nullptr;
    }
    if (before != record.holder || e.record.tag != record.tag) {
      if (before < media::kMaxMembers) std::erase(held_[before], extent);
      if (record.holder < media::kMaxMembers) held_[record.holder].push_back(extent);
    }
    e.record = record;
    update_free(extent);
  }

  // A block, by the extent it starts in and its number there.
  struct Spot {
    u32 extent = kNone;
    u32 index = kNone;
    explicit operator bool() const { return index != kNone; }
  };

  // False when the address is not the start of a block of its extent's class.
  Spot locate(u64 address) const {
    Spot spot;
    spot.extent = regions_.extent_of(address);
    if (spot.extent >= regions_.extents_in_use()) return spot;
    const media::MapRecord &record = extents_[spot.extent].record;
    const u64 byte = address - spot.extent * regions_.extent_bytes();
    if (record.size_class == media::kClassRun) {
      if (byte == 0 && (record.flags & media::kMapRunHead)) spot.index = 0;
      return spot;
    }
    const u32 bytes = static_cast<u32>(media::class_bytes(record.size_class));
    if (bytes == 0 || byte > ~u32{0}) return spot;
    const u32 index = static_cast<u32>(byte) / bytes;
    if (index * bytes == byte && index < blocks(record.size_class)) spot.index = index;
    return spot;
  }

  // An entry refers to a block. False when it has one already.
  bool attach(Spot spot, u32 entry) {
    Extent &e = extents_[spot.extent];
    if (!e.entry_of) e.entry_of = tables_.take(blocks(e.record.size_class));
    if (e.entry_of[spot.index] != 0) return false;
    e.entry_of[spot.index] = entry + 1;
    ++e.used;
    update_free(spot.extent);
    return true;
  }

  // ---- attaching many, from several threads: open_blocks(), attach_shared(), count_blocks() ----

  // Room to note entries in every extent that is cut into blocks.
  void open_blocks() {
    u64 places = 0;
    for (const Extent &e : extents_) {
      if (!e.entry_of) places += BlockTables::rounded(blocks(e.record.size_class));
    }
    tables_.reserve(places);
    for (Extent &e : extents_) {
      const u32 n = blocks(e.record.size_class);
      if (n > 0 && !e.entry_of) e.entry_of = tables_.take(n);
    }
  }
  void prefetch_spot(Spot spot) const {
    if (spot) prefetch_local(&extents_[spot.extent].entry_of[spot.index]);
  }
  // As attach(); blocks in use and what is free are counted later. Two threads that attach entries
  // to one block, which no owner does, may both believe they did: then there are fewer blocks in
  // use than were attached. A locked instruction for each would wait for all stores before it.
  bool attach_shared(Spot spot, u32 entry) {
    Extent &e = extents_[spot.extent];
    std::atomic_ref<u32> slot(e.entry_of[spot.index]);
    if (slot.load(std::memory_order_relaxed) != 0) return false;
    slot.store(entry + 1, std::memory_order_relaxed);
    return true;
  }
  // Returns how many blocks are in use.
  u64 count_blocks() {
    u64 total = 0;
    for (u32 x = 0; x < count(); ++x) {
      Extent &e = extents_[x];
      const u32 n = e.entry_of ? blocks(e.record.size_class) : 0;
      u32 used = 0;
      for (u32 i = 0; i < n; ++i) used += e.entry_of[i] != 0;
      e.used = static_cast<u16>(used);
      total += used;
      update_free(x);
    }
    return total;
  }

  // The entry is cleared: its block is free as soon as the owner holds the extent.
  void detach(Spot spot) {
    if (!spot || !referred(spot)) return;
    Extent &e = extents_[spot.extent];
    e.entry_of[spot.index] = 0;
    --e.used;
    update_free(spot.extent);
  }

  // The entry that refers to a block, where referred().
  u32 entry_at(Spot spot) const { return extents_[spot.extent].entry_of[spot.index] - 1; }
  bool referred(Spot spot) const {
    const Extent &e = extents_[spot.extent];
    return e.entry_of && e.entry_of[spot.index] != 0;
  }

  bool owner_held(u32 extent) const {
    return extents_[extent].record.holder == media::kHolderOwner;
  }
  u32 free_blocks(u32 extent) const {
    const Extent &e = extents_[extent];
    if (extent >= limit_ || e.out || !owner_held(extent)) return 0;
    if (e.record.flags & media::kMapRunTail) return 0;
    return blocks(e.record.size_class) - e.used;
  }
  void free_bits_of(u32 extent, u64 *bits) const {
    const Extent &e = extents_[extent];
    std::fill_n(bits, media::kBlocksPerExtentMax / 64, u64{0});
    for (u32 i = 0; i < blocks(e.record.size_class); ++i) {
      if (!e.entry_of || e.entry_of[i] == 0) bits[i / 64] |= u64{1} << i % 64;
    }
  }

  // ---- choosing ----

  // An owner-held extent of the class that is partly used, the emptiest of a few; kNone.
  u32 pick_partial(u8 size_class, u32 min_free) {
    std::vector<u32> &queue = queues_[size_class];
    constexpr u32 kLooks = 16;
    u32 best = kNone, best_free = 0;
    for (u32 looks = 0; looks < kLooks && looks < queue.size();) {
      const std::size_t i = queue.size() - 1 - looks;
      const u32 extent = queue[i];
      const Extent &e = extents_[extent];
      const u32 free = e.record.size_class == size_class && e.used > 0 ? free_blocks(extent) : 0;
      if (free == 0) {
        extents_[extent].queued = 0;
        queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      if (free > best_free) {
        best_free = free;
        best = extent;
      }
      ++looks;
    }
    return best_free >= min_free ? best : kNone;
  }

  // A free extent, going round so that consecutive grants lie on different devices; kNone.
  u32 pick_free() {
    if (free_count_ == 0) return kNone;
    const std::size_t words = free_bits_.size();
    for (std::size_t n = 0; n <= words; ++n) {
      const std::size_t w = (cursor_ / 64 + n) % words;
      u64 bits = free_bits_[w];
      if (n == 0) bits &= ~u64{0} << cursor_ % 64;
      if (bits == 0) continue;
      const u32 extent = static_cast<u32>(w * 64 + static_cast<u32>(std::countr_zero(bits)));
      cursor_ = extent + 1 < count() ? extent + 1 : 0;
      return extent;
    }
    return kNone;
  }

  // First of `length` consecutive free extents in one region; kNone.
  u32 pick_free_run(u32 length) const {
    u32 run = 0;
    for (u32 x = 0; x < count(); ++x) {
      run = is_free(x) ? run + 1 : 0;
      if (run >= length && regions_.one_region(x + 1 - length, length)) return x + 1 - length;
    }
    return kNone;
  }

  // Extents of the longest run that pick_free_run() would find.
  u32 largest_free_run() const {
    u32 best = 0;
    for (u32 r = 0; r < regions_.count; ++r) {
      const u32 end = std::min(regions_.region[r].end_extent(), count());
      u32 run = 0;
      for (u32 x = regions_.region[r].first_extent; x < end;) {
        const u64 bits = free_bits_[x / 64] >> x % 64;
        const u32 left = std::min(64 - x % 64, end - x);
        const u32 taken = std::min(static_cast<u32>(std::countr_zero(bits)), left);
        if (taken > 0) run = 0;
        u32 free = 0;
        if (taken < left) {
          free = std::min(static_cast<u32>(std::countr_one(bits >> taken)), left - taken);
        }
        run += free;
        best = std::max(best, run);
        x += taken + free;
      }
    }
    return best;
  }

  bool is_free(u32 extent) const { return free_bits_[extent / 64] >> extent % 64 & 1; }

  // Extents of the run that starts here: from the records behind it.
  u32 run_length(u32 head) const {
    u32 n = 1;
    while (head + n < count() && (extents_[head + n].record.flags & media::kMapRunTail)) ++n;
    return n;
  }

  // Bytes free in extents that the owner holds.
  u64 free_bytes() const { return free_bytes_; }

private:
  // Keeps the free bitmap and the queues of partly used extents in step.
  void update_free(u32 extent) {
    Extent &e = extents_[extent];
    const bool tail = e.record.flags & media::kMapRunTail;
    const bool usable = extent < limit_ && !e.out && owner_held(extent);
    const bool now_free = usable && e.used == 0 && !tail;
    u64 &word = free_bits_[extent / 64];
    const u64 bit = u64{1} << extent % 64;
    if (now_free != ((word & bit) != 0)) {
      word ^= bit;
      now_free ? ++free_count_ : --free_count_;
    }
    const u8 size_class = e.record.size_class;
    const u64 counted = now_free ? regions_.extent_bytes()
                                 : free_blocks(extent) * media::class_bytes(size_class);
    free_bytes_ += counted - e.counted;
    e.counted = counted;
    if (size_class < media::kSizeClasses && usable && e.used > 0 && !e.queued &&
        e.used < blocks(size_class)) {
      e.queued = 1;
      queues_[size_class].push_back(extent);
    }
  }

  media::RegionTable regions_{};
  std::vector<Extent> extents_;
  BlockTables tables_;
  std::vector<u64> free_bits_;
  u32 blocks_[media::kClassRun + 1]{};    // of an extent, by class
  u32 free_count_ = 0, out_count_ = 0;
  u32 limit_ = 0;
  u64 free_bytes_ = 0;
  u32 cursor_ = 0;
  std::vector<std::vector<u32>> queues_;  // by class; may hold stale numbers, checked on use
  std::vector<u32> held_[media::kMaxMembers];
};

}  // namespace kvpool::pool
