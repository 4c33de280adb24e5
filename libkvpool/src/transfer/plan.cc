// SPDX-License-Identifier: Apache-2.0
// Checks of plans, and the walk over their fragments in the order of the block.
#include "transfer/plan.hpp"

#include <algorithm>
#include <cerrno>

namespace kvpool::transfer {
namespace {

constexpr u64 kSigned63 = u64{1} << 63;

// a + n * stride + bytes, or false if that leaves 63 bits.
bool end_of(u64 a, u64 n, u64 stride, u64 bytes, u64 &ret_end) {
  u64 end = 0;
  if (__builtin_mul_overflow(n, stride, &end) || __builtin_add_overflow(end, a, &end) ||
      __builtin_add_overflow(end, bytes, &end) || end >= kSigned63) {
    return false;
  }
  ret_end = end;
  return true;
}

u64 magnitude(std::int64_t stride) {
  return stride < 0 ? u64{0} - static_cast<u64>(stride) : static_cast<u64>(stride);
}

}  // namespace

Plan::Plan(u64 max_runs) : max_runs_(max_runs) {
  runs_.reserve(max_runs);
  heap_.reserve(max_runs);
}

int Plan::resolve(const Run &run, std::span<const LocalMemory> memories, u64 block_bytes,
                  Direction direction, Resolved &ret_resolved) {
  if (run.memory_index >= memories.size() || run.fragment_bytes == 0) return -EINVAL;
  const LocalMemory &memory = memories[run.memory_index];
  const u64 steps = run.count - 1;
  const u64 stride = magnitude(run.local_stride);
  u64 block_end = 0;
  u64 reach = 0;
  if (!end_of(run.block_offset, steps, run.block_stride, run.fragment_bytes, block_end) ||
      block_end > block_bytes) {
    return -ERANGE;
  }
  if (run.local_offset >= kSigned63 || !end_of(0, steps, stride, 0, reach)) return -ERANGE;
  // The lowest and the highest byte; with a negative stride the first fragment is the highest.
  if (run.local_stride < 0 && reach > run.local_offset) return -ERANGE;
  const u64 highest = run.local_stride < 0 ? run.local_offset : run.local_offset + reach;
  if (highest > memory.bytes || run.fragment_bytes > memory.bytes - highest) return -ERANGE;
  if (steps > 0 && run.block_stride < run.fragment_bytes) return -EINVAL;
  if (steps > 0 && direction == Direction::kRead && stride < run.fragment_bytes) return -EINVAL;
  ret_resolved = {memory.base + run.local_offset,
                  run.block_offset,
                  run.fragment_bytes,
                  run.count,
                  run.local_stride,
                  run.block_stride};
  const bool whole = steps > 0 && run.block_stride == run.fragment_bytes &&
                     run.local_stride == static_cast<std::int64_t>(run.fragment_bytes);
  if (whole) {
    ret_resolved.bytes *= run.count;
    ret_resolved.count = 1;
  }
  if (ret_resolved.count == 1) {
    ret_resolved.block_stride = 0;
    ret_resolved.local_stride = 0;
  }
  return 0;
}

int Plan::prepare(std::span<const Run> runs, std::span<const LocalMemory> memories, u64 block_bytes,
                  Direction direction) {
  runs_.clear();
  heap_.clear();
  end_ = 0;
  interleaved_ = false;
  block_bytes_ = block_bytes;
  if (runs.size() > max_runs_) return -E2BIG;
  if (block_bytes == 0 || block_bytes % kLineBytes != 0) return -EINVAL;
  if (block_bytes > kMaxBlockBytes) return -ERANGE;
  int err = 0;
  for (const Run &run : runs) {
    if (run.count == 0) continue;
    Resolved resolved{};
    err = resolve(run, memories, block_bytes, direction, resolved);
    if (err != 0) break;
    runs_.push_back(resolved);
  }
  if (err == 0) {
    const auto before = [](const Resolved &a, const Resolved &b) { return a.block < b.block; };
    if (!std::is_sorted(runs_.begin(), runs_.end(), before)) {
      std::sort(runs_.begin(), runs_.end(), before);
    }
    merge_neighbours();
    find_interleaving();
    if (interleaved_ && !same_period()) err = check_overlap();
  }
  if (err != 0) {
    runs_.clear();
    end_ = 0;
  }
  walk_from(0);
  return err;
}

// Single fragments that go on where the one before ends, in memory and block, become one.
void Plan::merge_neighbours() {
  if (runs_.empty()) return;
  u64 last = 0;
  for (u64 i = 1; i < runs_.size(); ++i) {
    Resolved &a = runs_[last];
    const Resolved &b = runs_[i];
    const bool adjoin = a.count == 1 && b.count == 1 && a.block + a.bytes == b.block &&
                        a.local + a.bytes == b.local;
    if (adjoin) {
      a.bytes += b.bytes;
    } else {
      runs_[++last] = b;
    }
  }
  runs_.resize(last + 1);
}

void Plan::find_interleaving() {
  interleaved_ = false;
  end_ = 0;
  for (const Resolved &run : runs_) {
    if (run.block < end_) interleaved_ = true;
    end_ = std::max(end_, run.end());
  }
}

// The usual interleaving, K and V side by side in each layer: equal strides, and the first
// fragments follow each other within one stride. Then no two fragments can overlap.
bool Plan::same_period() const {
  const u64 stride = runs_.front().block_stride;
  u64 end = 0;
  for (const Resolved &run : runs_) {
    if (run.block_stride != stride || run.block < end) return false;
    end = run.block + run.bytes;
  }
  return end - runs_.front().block <= stride;
}

int Plan::check_overlap() {
  Fragment f;
  u64 end = 0;
  walk_from(0);
  while (next(f)) {
    if (f.block_offset < end) return -EINVAL;
    end = f.end();
  }
  return 0;
}

// The first fragment of a run that ends behind `from`; count if none does.
u64 Plan::first_index(const Resolved &run, u64 from) {
  if (run.block + run.bytes > from) return 0;
  if (run.count == 1) return 1;
  return std::min(run.count, (from - run.block - run.bytes) / run.block_stride + 1);
}

Fragment Plan::fragment(const Resolved &run, u64 index) {
  return {run.local + static_cast<std::int64_t>(index) * run.local_stride,
          run.block + index * run.block_stride, run.bytes};
}

void Plan::walk_from(u64 from) {
  from_ = from;
  heap_.clear();
  run_ = 0;
  index_ = 0;
  if (interleaved_) return;
  // Runs do not interleave, so their ends are sorted as their starts are.
  const auto run = std::partition_point(runs_.begin(), runs_.end(),
                                        [from](const Resolved &r) { return r.end() <= from; });
  run_ = static_cast<u64>(run - runs_.begin());
  if (run != runs_.end()) index_ = first_index(*run, from);
}

bool Plan::next(Fragment &ret_fragment) {
  if (interleaved_) return next_interleaved(ret_fragment);
  if (run_ == runs_.size()) return false;
  const Resolved &run = runs_[run_];
  ret_fragment = fragment(run, index_);
  if (++index_ == run.count) {
    ++run_;
    index_ = 0;
  }
  return true;
}

void Plan::push(u32 run, u64 index) {
  if (index >= runs_[run].count) return;
  heap_.push_back({runs_[run].block + index * runs_[run].block_stride, run, 0, index});
  std::push_heap(heap_.begin(), heap_.end(),
                 [](const Cursor &a, const Cursor &b) { return a.block > b.block; });
}

bool Plan::next_interleaved(Fragment &ret_fragment) {
  // Whatever starts before the smallest cursor belongs into the heap first.
  while (run_ < runs_.size() && (heap_.empty() || runs_[run_].block <= heap_.front().block)) {
    push(static_cast<u32>(run_), first_index(runs_[run_], from_));
    ++run_;
  }
  if (heap_.empty()) return false;
  const Cursor top = heap_.front();
  std::pop_heap(heap_.begin(), heap_.end(),
                [](const Cursor &a, const Cursor &b) { return a.block > b.block; });
  heap_.pop_back();
  ret_fragment = fragment(runs_[top.run], top.index);
  push(top.run, top.index + 1);
  return true;
}

int check_rows(const RowsPlan &plan, u64 block_count, u64 block_bytes) {
  if (plan.row_bytes == 0 || plan.rows_per_block == 0) return -EINVAL;
  u64 end = 0;
  if (!end_of(plan.block_offset, plan.rows_per_block - 1, plan.row_stride, plan.row_bytes, end) ||
      end > block_bytes) {
    return -ERANGE;
  }
  if (plan.rows.empty()) return 0;
  if (plan.rows.size() > 1 && plan.local_stride < plan.row_bytes) return -EINVAL;
  if (!end_of(plan.local_offset, plan.rows.size() - 1, plan.local_stride, plan.row_bytes, end) ||
      end > plan.local.bytes) {
    return -ERANGE;
  }
  u64 rows = 0;
  if (__builtin_mul_overflow(block_count, plan.rows_per_block, &rows)) rows = ~u64{0};
  bool inside = true;
  // -1 becomes 0; every other negative number becomes huge.
  for (const std::int64_t row : plan.rows) inside &= row == -1 || static_cast<u64>(row) < rows;
  return inside ? 0 : -ERANGE;
}

}  // namespace kvpool::transfer
