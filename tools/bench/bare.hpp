// SPDX-License-Identifier: Apache-2.0
// Baselines of `kvpool bench`: the bare loops of arch/bare.hpp over memory of their own, one call a
// run, so that a figure can alternate its own runs with them. Owns that memory and, for the
// ping-pong, the second process; knows no store.
#pragma once

#include <span>
#include <vector>

#include "arch/bare.hpp"

namespace kvpool::tools::bench {

// Shared memory without a name, every page touched.
class Arena {
public:
  // With `huge`, asks for 2 MiB pages; has_huge_pages() says whether they came. Throws
  // std::system_error if there is no memory.
  Arena(u64 bytes, bool huge);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  std::byte *base() const { return base_; }
  u64 bytes() const { return bytes_; }
  bool has_huge_pages() const { return huge_; }

private:
  void collapse(int fd);

  std::byte *base_ = nullptr;
  u64 bytes_ = 0;
  bool huge_ = false;
};

u64 now_ns();

// Keeps this thread on the n-th CPU it may use, counted from 0 and around. False where it may not.
bool pin_to(u32 n);
// This thread may use all CPUs of the process again.
void pin_to_none();

class BareLoops {
public:
  // The pool should be several times the last-level cache, as a store is.
  BareLoops(u64 pool_bytes, bool huge);

  bool has_huge_pages() const { return pool_.has_huge_pages(); }
  const X86Choice &choice() const { return choice_; }

  // GB/s for `times` blocks one behind the other around the pool, from and to one block of local
  // memory.
  double write_gbps(u64 block_bytes, u64 times);
  double read_gbps(u64 block_bytes, u64 times);
  // The same stream with what no put can do without: the block drained strictly, one line to
  // another process on another CPU, which writes a line, drains it strictly and answers with one.
  // 0 where there is no such process. This thread stays on one CPU from then on.
  double put_gbps(u64 block_bytes, u64 times);
  // Lines a second: batches flushed and loaded together, at random places of the whole pool.
  double random_lines_per_second(u64 batch_lines, u64 batches,
                                 bare::Ahead how = bare::Ahead::kAll);
  // Nanoseconds a group of four lines that stand together, at random places of the first `span`
  // bytes, flushed and loaded in batches: what a look-up in an index of that size must cost.
  double random_groups_ns(u64 span, u64 batch_groups, u64 batches);
  // Nanoseconds a row: random rows at multiples of 16 bytes, one after the other.
  double row_by_row_ns(u64 rows, u64 row_bytes);
  // The same in batches of `rows` rows, each followed by `looks` random lines acquired as one wave:
  // what a call that looks at its blocks again cannot do without.
  double row_batch_ns(u64 rows, u64 row_bytes, u64 looks, u64 batches);
  // Million messages a second to another process and back, at most `depth` on the way, with the
  // verbs and seals of rings and nothing else. With `decides` the other side does the memory
  // accesses of a publication for each: a line of a mirror, and a line streamed to a table, at a
  // random place of half the pool each. 0 where there is no such process. This thread stays on one
  // CPU from then on.
  double flood_mps(u64 messages, u64 depth, bool decides);
  // Nanoseconds to acquire and check `lines` lines in a row, as accept() does; median of `times`.
  double acquire_ns(u64 lines, u64 times);
  // Nanoseconds to copy `lines` lines forward as a take-over does, one thread a processor. The pool
  // must hold kCopySpace as many.
  static constexpr u64 kCopySpace = 3;
  double copy_forward_ns(u64 lines);

private:
  std::byte *next_block(u64 bytes);
  u64 random();

  X86Choice choice_;
  Arena pool_;
  Arena local_;
  u64 position_ = 0;
  u64 random_state_ = 1;
  std::vector<u64> places_;
};

// Round trip of two lines between this process and a forked one on another CPU, each round timed.
// Returns the times, sorted; empty if the other process could not be started or stopped answering.
std::vector<u64> ping_pong_ns(u64 rounds, bool huge);

}  // namespace kvpool::tools::bench
