// SPDX-License-Identifier: Apache-2.0
// Memory for the tables of the owner's space map: for each extent that is cut into blocks, which
// entry refers to each of them. In large pages, since they are read at random; a table that is
// given back serves the next extent with as many blocks. Single thread.
#pragma once

#include <algorithm>
#include <vector>

#include "arch/big_array.hpp"

namespace kvpool::pool {

class BlockTables {
public:
  // Every table is given back, or forgotten by its holder.
  void clear() {
    slabs_.clear();
    used_ = 0;
    free_.clear();
  }
  // Places that a table of n takes: tables do not share lines, unless they are smaller than one.
  static u32 rounded(u32 n) {
    constexpr u32 kLine = kLineBytes / sizeof(u32);
    return n < kLine ? n : (n + kLine - 1) / kLine * kLine;
  }
  // Room for tables of so many places in all, in one piece. Optional. Throws std::bad_alloc.
  void reserve(u64 places) {
    if (places > 0) add_slab(places);
  }

  // A table of n places, all 0. Throws std::bad_alloc.
  u32 *take(u32 n) {
    const u32 room = rounded(n);
    if (std::vector<u32 *> *list = free_list(room); list && !list->empty()) {
      u32 *table = list->back();
      list->pop_back();
      std::fill_n(table, n, 0);
      return table;
    }
    if (slabs_.empty() || used_ + room > slabs_.back().places) {
      add_slab(std::max<u64>(room, kSlabPlaces));
    }
    u32 *table = &slabs_.back().memory[used_];
    used_ += room;
    return table;
  }
  // What take(n) returned.
  void give(u32 *table, u32 n) {
    const u32 room = rounded(n);
    std::vector<u32 *> *list = free_list(room);
    if (!list) list = &free_.emplace_back(FreeList{room, {}}).tables;
    list->push_back(table);
  }

private:
  static constexpr u64 kSlabPlaces = (u64{2} << 20) / sizeof(u32);
  struct Slab {
    BigArray<u32> memory;
    u64 places;
  };
  struct FreeList {
    u32 room;
    std::vector<u32 *> tables;
  };

  void add_slab(u64 places) {
    slabs_.push_back({BigArray<u32>(places), places});
    used_ = 0;
  }
  std::vector<u32 *> *free_list(u32 room) {
    for (FreeList &list : free_) {
      if (list.room == room) return &list.tables;
    }
    return nullptr;
  }

  std::vector<Slab> slabs_;
  u64 used_ = 0;  // places of the last slab
  std::vector<FreeList> free_;  // a few: one a size class
};

}  // namespace kvpool::pool
