// SPDX-License-Identifier: Apache-2.0
// Shows: a plan that would leave its block or memory, overlap, or overflow is refused with the
// documented error; segments are numbered as documented; the walk gives fragments in the order of
// the block.
// How: tables of good and bad runs, rows and ranges.
#include <criterion/criterion.h>

#include <cerrno>
#include <limits>
#include <vector>

#include "transfer/blocks.hpp"
#include "transfer/plan.hpp"

using namespace kvpool;
using namespace kvpool::transfer;

namespace {

constexpr u64 kHuge = ~u64{0};
constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();

struct Case {
  const char *name;
  std::vector<Run> runs;
  u64 block_bytes;
  Direction direction;
  int want;
};

}  // namespace

Test(transfer_plan, runs_are_checked) {
  std::vector<std::byte> a(8192), b(4096);
  const LocalMemory memories[] = {{a.data(), a.size()}, {b.data(), b.size()}};
  constexpr auto kW = Direction::kWrite;
  constexpr auto kR = Direction::kRead;
  // memory, local offset, block offset, fragment bytes, count, local stride, block stride
  const Case cases[] = {
      {"empty plan", {}, 4096, kR, 0},
      {"run of no fragments", {{9, kHuge, kHuge, 0, 0, 1, 1}}, 4096, kR, 0},
      {"whole block", {{0, 0, 0, 4096, 1, 0, 0}}, 4096, kR, 0},
      {"block of no bytes", {}, 0, kR, -EINVAL},
      {"block of half lines", {}, 100, kR, -EINVAL},
      {"block beyond 26 bits of lines", {}, (u64{1} << 32) + 64, kR, -ERANGE},
      {"no such memory", {{2, 0, 0, 64, 1, 0, 0}}, 4096, kR, -EINVAL},
      {"fragment of no bytes", {{0, 0, 0, 0, 1, 0, 0}}, 4096, kR, -EINVAL},
      {"one byte too long for the block", {{0, 0, 1, 4096, 1, 0, 0}}, 4096, kR, -ERANGE},
      {"last fragment leaves the block", {{0, 0, 0, 64, 64, 64, 65}}, 4096, kR, -ERANGE},
      {"one byte too long for memory", {{1, 1, 0, 4096, 1, 0, 0}}, 4096, kR, -ERANGE},
      {"last fragment leaves memory", {{1, 0, 0, 64, 64, 65, 64}}, 4096, kR, -ERANGE},
      {"descends to the first byte", {{1, 4032, 0, 64, 64, -64, 64}}, 4096, kR, 0},
      {"descends below memory", {{1, 4031, 0, 64, 64, -64, 64}}, 4096, kR, -ERANGE},
      {"block offset overflows", {{0, 0, kHuge, 64, 1, 0, 0}}, 4096, kR, -ERANGE},
      {"block end overflows 64 bits", {{0, 0, 64, kHuge, 1, 0, 0}}, 4096, kR, -ERANGE},
      {"block stride overflows", {{0, 0, 0, 64, 3, 64, u64{1} << 63}}, 4096, kR, -ERANGE},
      {"count overflows", {{0, 0, 0, 64, kHuge, 64, 64}}, 4096, kR, -ERANGE},
      {"count beyond 2^32", {{0, 0, 0, 64, u64{1} << 33, 64, 64}}, 4096, kR, -ERANGE},
      {"local offset overflows", {{0, kHuge, 0, 64, 1, 0, 0}}, 4096, kR, -ERANGE},
      {"local stride overflows", {{0, 0, 0, 1, 3, std::int64_t{1} << 62, 1}}, 4096, kW, -ERANGE},
      {"lowest stride", {{0, 0, 0, 1, 3, kLowest, 1}}, 4096, kW, -ERANGE},
      {"strides of a single fragment do not matter",
       {{0, 0, 0, 64, 1, kLowest, kHuge}},
       4096,
       kR,
       0},
      {"fragments of a run overlap in the block", {{0, 0, 0, 64, 2, 64, 63}}, 4096, kR, -EINVAL},
      {"reading to overlapping places", {{0, 0, 0, 64, 2, 63, 64}}, 4096, kR, -EINVAL},
      {"writing one place twice", {{0, 0, 0, 64, 2, 0, 64}}, 4096, kW, 0},
      {"two runs overlap by a byte",
       {{0, 0, 0, 65, 1, 0, 0}, {0, 128, 64, 64, 1, 0, 0}},
       4096,
       kR,
       -EINVAL},
      {"the same run twice", {{0, 0, 0, 64, 1, 0, 0}, {0, 128, 0, 64, 1, 0, 0}}, 4096, kR, -EINVAL},
      {"side by side", {{0, 0, 0, 64, 4, 64, 128}, {0, 512, 64, 64, 4, 64, 128}}, 4096, kR, 0},
      {"side by side, one too wide",
       {{0, 0, 0, 64, 4, 64, 128}, {0, 512, 64, 65, 4, 65, 128}},
       4096,
       kR,
       -EINVAL},
      {"different periods that meet",
       {{0, 0, 0, 16, 8, 16, 96}, {0, 512, 24, 16, 8, 16, 128}},
       4096,
       kR,
       -EINVAL},
      {"different periods that never meet",
       {{0, 0, 0, 8, 8, 8, 96}, {0, 512, 8, 8, 8, 8, 192}},
       4096,
       kR,
       0},
  };
  Plan plan(8);
  for (const Case &c : cases) {
    cr_assert_eq(plan.prepare(c.runs, memories, c.block_bytes, c.direction), c.want, "%s", c.name);
    Fragment f;
    if (c.want != 0) cr_assert_not(plan.next(f), "%s: a refused plan is empty", c.name);
  }
  const std::vector<Run> many(9, Run{0, 0, 0, 64, 1, 0, 0});
  cr_assert_eq(plan.prepare(many, memories, 4096, kR), -E2BIG);
}

Test(transfer_plan, walk_is_in_the_order_of_the_block_from_any_place) {
  std::vector<std::byte> memory(65536);
  const LocalMemory memories[] = {{memory.data(), memory.size()}};
  const Run runs[] = {{0, 9000, 40, 10, 20, 10, 100},   // interleaves with the next
                      {0, 4000, 0, 40, 20, -40, 100},
                      {0, 20000, 3000, 50, 1, 0, 0},
                      {0, 20050, 3050, 50, 1, 0, 0},    // goes on where the one before ends
                      {0, 30000, 2500, 10, 1, 0, 0}};
  Plan plan;
  cr_assert_eq(plan.prepare(runs, memories, 8192, Direction::kRead), 0);
  cr_assert_eq(plan.begin(), 0u);
  cr_assert_eq(plan.end(), 3100u);
  cr_assert_eq(plan.run_count(), 4u, "adjoining fragments became one");
  std::vector<Fragment> all;
  Fragment f;
  plan.walk_from(0);
  u64 end = 0;
  while (plan.next(f)) {
    cr_assert_geq(f.block_offset, end);
    end = f.end();
    all.push_back(f);
  }
  cr_assert_eq(all.size(), 42u);
  cr_assert_eq(all[3].block_offset, 140u);
  cr_assert_eq(all[3].local - memory.data(), 9010);
  cr_assert_eq(all[2].local - memory.data(), 3960);
  cr_assert_eq(all[41].bytes, 100u);
  for (u64 from = 0; from < 3200; from += 7) {
    plan.walk_from(from);
    for (const Fragment &want : all) {
      if (want.end() <= from) continue;
      cr_assert(plan.next(f), "from %lu", from);
      cr_assert_eq(f.block_offset, want.block_offset, "from %lu", from);
      cr_assert_eq(f.local, want.local);
      cr_assert_eq(f.bytes, want.bytes);
    }
    cr_assert_not(plan.next(f));
  }
}

Test(transfer_plan, rows_are_checked) {
  std::vector<std::byte> memory(4096);
  const LocalMemory local{memory.data(), memory.size()};
  const std::int64_t good[] = {0, -1, 31, 5};
  const std::int64_t far[] = {0, 32};
  const std::int64_t negative[] = {0, -2};
  const std::int64_t lowest[] = {kLowest};
  // rows, row bytes, row stride, rows a block, block offset, local, local offset, local stride
  const RowsPlan base{good, 160, 160, 16, 64, local, 0, 160};
  constexpr u64 kBlock = 64 + 16 * 160;
  cr_assert_eq(check_rows(base, 2, kBlock), 0);
  cr_assert_eq(check_rows(base, 2, kBlock - 1), -ERANGE, "the last row leaves the block");
  cr_assert_eq(check_rows(base, 1, kBlock), -ERANGE, "row 31 has no block");
  RowsPlan plan = base;
  plan.rows = far;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE);
  plan.rows = negative;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE, "-1 is the only hole");
  plan.rows = lowest;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE);
  plan.rows = {};
  cr_assert_eq(check_rows(plan, 0, kBlock), 0, "no rows");
  plan = base;
  plan.row_bytes = 0;
  cr_assert_eq(check_rows(plan, 2, kBlock), -EINVAL);
  plan = base;
  plan.rows_per_block = 0;
  cr_assert_eq(check_rows(plan, 2, kBlock), -EINVAL);
  plan = base;
  plan.local_stride = 159;
  cr_assert_eq(check_rows(plan, 2, kBlock), -EINVAL, "rows overlap in local memory");
  plan.local_stride = 1300;
  cr_assert_eq(check_rows(plan, 2, kBlock), 0);
  plan.local_stride = 1313;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE, "the last place leaves local memory");
  plan = base;
  plan.local_stride = kHuge;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE);
  plan = base;
  plan.local_offset = kHuge;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE);
  plan = base;
  plan.row_stride = kHuge;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE);
  plan = base;
  plan.rows_per_block = kHuge;
  cr_assert_eq(check_rows(plan, 2, kBlock), -ERANGE);
}

Test(transfer_plan, segments_are_cut_from_shards) {
  constexpr u64 kSeg = kSegmentBytes;
  const Segments whole = Segments::unsharded(2 * kSeg + 64);
  cr_assert_eq(whole.count(), 3u);
  cr_assert_eq(whole.range_of(2).begin, 2 * kSeg);
  cr_assert_eq(whole.range_of(2).end, 2 * kSeg + 64);
  // Shards of 1.5 segments: two segments each; the last shard has half a segment.
  const Segments cut{2 * kSeg, kSeg + kSeg / 2};
  cr_assert_eq(cut.count(), 3u);
  cr_assert_eq(cut.index_of(kSeg + kSeg / 2), 2u);
  cr_assert_eq(cut.index_of(kSeg + kSeg / 2 - 1), 1u);
  cr_assert_eq(cut.range_of(1).begin, kSeg);
  cr_assert_eq(cut.range_of(1).end, kSeg + kSeg / 2);
  cr_assert_eq(cut.range_of(2).end, 2 * kSeg);
  for (const Segments &s : {whole, cut}) {
    u64 at = 0;
    for (u64 i = 0; i < s.count(); ++i) {
      cr_assert_eq(s.range_of(i).begin, at);
      cr_assert_eq(s.index_of(at), i);
      at = s.range_of(i).end;
      cr_assert_eq(s.index_of(at - 1), i);
    }
    cr_assert_eq(at, s.block_bytes);
  }
}
