// SPDX-License-Identifier: Apache-2.0
// Plans: what goes where between local memory and a block, as strided runs or as rows. A plan knows
// no layer, token or layout. Owns the checks that make a plan safe to execute (bounds, overlap,
// overflow); the engines trust a prepared plan and nothing else.
//
// A Plan is prepared once and executed by one thread at a time: it holds the cursors of the walk.
#pragma once

#include <span>
#include <vector>

#include "arch/types.hpp"

namespace kvpool::transfer {

// Local memory that runs name by its index.
struct LocalMemory {
  std::byte *base = nullptr;
  u64 bytes = 0;
};

// `count` fragments of `fragment_bytes`: number i lies at local_offset + i * local_stride of its
// memory and at block_offset + i * block_stride of the block. Strides do not matter when count is
// 1.
struct Run {
  u64 memory_index = 0;
  u64 local_offset = 0;
  u64 block_offset = 0;
  u64 fragment_bytes = 0;
  u64 count = 0;
  std::int64_t local_stride = 0;
  u64 block_stride = 0;
};

enum class Direction : u8 { kWrite, kRead };

// One fragment, or what is left of it.
struct Fragment {
  std::byte *local = nullptr;
  u64 block_offset = 0;
  u64 bytes = 0;
  u64 end() const { return block_offset + bytes; }
};

class Plan {
public:
  static constexpr u64 kMaxRunsDefault = 1024;
  static constexpr u64 kMaxBlockBytes = u64{1} << 32;  // 26 bits of lines (format.hpp)

  // Reserves room for `max_runs`; nothing is allocated later.
  explicit Plan(u64 max_runs = kMaxRunsDefault);

  // Takes over and sorts `runs`. 0, or
  //   -E2BIG   more runs than reserved
  //   -EINVAL  no such memory; a fragment of no bytes; fragments overlap in the block, or, when
  //   reading,
  //            those of one run overlap in local memory
  //   -ERANGE  a fragment leaves the block or its memory, or its position overflows
  // After a failure the plan is empty. An empty plan is valid: it writes zeros and reads nothing.
  int prepare(std::span<const Run> runs, std::span<const LocalMemory> memories, u64 block_bytes,
              Direction direction);

  u64 block_bytes() const { return block_bytes_; }
  u64 run_count() const { return runs_.size(); }
  // From the first byte of the block that the plan touches to behind the last; 0 and 0 if none.
  u64 begin() const { return runs_.empty() ? 0 : runs_.front().block; }
  u64 end() const { return end_; }

  // The walk over fragments in the order of the block, from the first that ends behind `from`.
  void walk_from(u64 from);
  // False at the end; else the next fragment, whole even if it starts before `from`.
  bool next(Fragment &ret_fragment);

private:
  struct Resolved {
    std::byte *local;
    u64 block;
    u64 bytes;
    u64 count;
    std::int64_t local_stride;
    u64 block_stride;
    u64 end() const { return block + (count - 1) * block_stride + bytes; }
  };
  // Where a run's next fragment lies; the smallest is on top of the heap.
  struct Cursor {
    u64 block;
    u32 run;
    u32 unused;
    u64 index;
  };
  static int resolve(const Run &run, std::span<const LocalMemory> memories, u64 block_bytes,
                     Direction direction, Resolved &ret_resolved);
  void merge_neighbours();
  void find_interleaving();
  bool same_period() const;
  int check_overlap();
  static u64 first_index(const Resolved &run, u64 from);
  static Fragment fragment(const Resolved &run, u64 index);
  bool next_interleaved(Fragment &ret_fragment);
  void push(u32 run, u64 index);

  u64 max_runs_;
  std::vector<Resolved> runs_;  // sorted by block offset
  std::vector<Cursor> heap_;
  bool interleaved_ = false;
  u64 block_bytes_ = 0;
  u64 end_ = 0;
  u64 run_ = 0;    // of the walk: the current run, or the next one to enter the heap
  u64 index_ = 0;  // its next fragment, when runs do not interleave
  u64 from_ = 0;
};

// Rows of equal size out of an array of blocks: row r lies in block r / rows_per_block at
// block_offset + (r % rows_per_block) * row_stride. Row number i of the list goes to local + i *
// local_stride; an index of -1 is a hole, whose place is left as it is.
struct RowsPlan {
  std::span<const std::int64_t> rows;
  u64 row_bytes = 0;
  u64 row_stride = 0;
  u64 rows_per_block = 0;
  u64 block_offset = 0;
  LocalMemory local;
  u64 local_offset = 0;
  u64 local_stride = 0;
};

// 0, or -EINVAL (sizes or strides make no sense), -ERANGE (a row that no block has, or a place
// outside local memory or the block). Checks every index, so that an engine may trust them all.
int check_rows(const RowsPlan &plan, u64 block_count, u64 block_bytes);

}  // namespace kvpool::transfer
