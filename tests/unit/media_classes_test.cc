// SPDX-License-Identifier: Apache-2.0
// Shows: size classes waste little, and a block's shape tiles it exactly, with one writer a check
// line.
// How: facts of the table; rapidcheck over payload lengths and shard counts, against plain sums.
#include <criterion/criterion.h>
#include <rapidcheck.h>

#include "media/classes.hpp"
#include "media/layout.hpp"

using namespace kvpool;
using namespace kvpool::media;

namespace {

constexpr u64 kKiB = 1024, kMiB = kKiB * 1024;

// One place of unbounded size: addresses are bytes on one device.
RegionTable one_device(u32 extent_stripes, u32 extents) {
  RegionTable table{};
  table.count = 1;
  table.extent_stripes = extent_stripes;
  table.region[0].extent_count = extents;
  table.region[0].place_count = 1;
  table.region[0].data_page[0] = 1 << 20;
  table.region[0].strip_page[0] = 1;
  return table;
}

// Half of them whole numbers of 64 KiB, whose checks stand in the strip.
u64 payload_from(u64 raw, u64 below) {
  if (raw % 2 == 0) return raw / 2 % below + 1;
  return (raw / 2 % (below / kSegmentBytes) + 1) * kSegmentBytes;
}

}  // namespace

Test(media_classes, table) {
  for (u32 c = 0; c < kSizeClasses; ++c) {
    cr_expect(class_bytes(c) % kBlockAlign == 0);
    if (c > 0) {
      cr_expect(class_bytes(c) > class_bytes(c - 1));
      cr_expect(class_bytes(c) * 4 <= class_bytes(c - 1) * 5, "class %u more than a quarter up", c);
    }
  }
  cr_expect(class_bytes(kClassRun) == 0 && class_bytes(kClassNone) == 0);
  cr_expect(class_bytes(0) == 4 * kKiB && class_bytes(kSizeClasses - 1) == 64 * kMiB);
}

Test(media_classes, smallest_that_fits) {
  for (u32 stripes : {1u, 2u, 5u, 32u}) {
    const u64 extent = stripes * kStripeBytes;
    for (u64 bytes = 256; bytes <= 70 * kMiB; bytes += bytes < kMiB ? 256 : 65536) {
      const int c = class_for(bytes, extent);
      cr_assert(c >= 0);
      if (c == kClassRun) {
        for (u32 other = 0; other < kSizeClasses; ++other) {
          cr_assert(class_bytes(other) < bytes || blocks_per_extent(other, extent) == 0);
        }
        continue;
      }
      cr_assert(class_bytes(static_cast<u32>(c)) >= bytes);
      cr_assert(blocks_per_extent(static_cast<u32>(c), extent) >= 1);
      cr_assert(blocks_per_extent(static_cast<u32>(c), extent) <= kBlocksPerExtentMax);
      cr_assert(c == 0 || class_bytes(static_cast<u32>(c) - 1) < bytes ||
                blocks_per_extent(static_cast<u32>(c) - 1, extent) == 0);
    }
  }
  cr_expect(class_for(0, kStripeBytes) == -EINVAL);
  cr_expect(class_for(2 * kMiB + 1, kStripeBytes) == kClassRun);
  cr_expect(class_for(4 * kKiB, kStripeBytes) == 0);
  // 1,024 blocks of 4 KiB would not fit a grant's bitmap.
  cr_expect(class_bytes(static_cast<u32>(class_for(4 * kKiB, 2 * kStripeBytes))) == 8 * kKiB);
  cr_expect(run_extents(2 * kMiB + 1, kStripeBytes) == 2 && run_extents(4 * kMiB, 2 * kMiB) == 2);
}

Test(media_classes, power_of_two_payloads_waste_nothing) {
  for (u64 payload = 64 * kKiB; payload <= 2 * kMiB; payload *= 2) {
    for (u32 shards : {1u, 2u, 3u, 5u, 8u}) {
      if (payload / kSegmentBytes < shards) continue;
      const BlockShape shape = block_shape(payload, shards);
      cr_expect(shape.checks_in_strip() && shape.block_bytes() == payload);
      const auto c = static_cast<u32>(class_for(payload, kStripeBytes));
      cr_expect(blocks_per_extent(c, kStripeBytes) * payload == kStripeBytes);
    }
  }
  // Small ones: the class of a power of two plus 256 holds them with their check line.
  for (u64 payload = 4 * kKiB; payload < 64 * kKiB; payload *= 2) {
    const BlockShape shape = block_shape(payload, 1);
    const auto c = static_cast<u32>(class_for(shape.block_bytes(), kStripeBytes));
    cr_expect(!shape.checks_in_strip() && class_bytes(c) == payload + 256);
  }
}

Test(media_classes, refuses_impossible_blocks) {
  cr_expect(!block_shape(0, 1).valid());
  cr_expect(!block_shape(4096, 0).valid());
  cr_expect(!block_shape(4096, 65).valid());
  cr_expect(!block_shape(64, 2).valid(), "two shards of one line");
  cr_expect(!block_shape((kPayloadLinesMax + 1) * kLineBytes, 1).valid());
  cr_expect(block_shape(kPayloadLinesMax * kLineBytes, 64).valid());
  cr_expect(block_shape(1, 1).payload_lines() == 1);
}

Test(media_classes, shape_tiles_the_payload) {
  const bool ok = rc::check("shards and segments tile the payload", [](u64 raw, u8 raw_shards) {
    const u64 payload = payload_from(raw, 3 * kMiB);
    const u32 shards = raw_shards % kMaxShards + 1;
    const BlockShape shape = block_shape(payload, shards);
    RC_PRE(shape.valid());
    u64 line = 0, segment = 0;
    for (u32 i = 0; i < shards; ++i) {
      const LineRange range = shape.shard_range(i);
      RC_ASSERT(range.first_line == line);
      RC_ASSERT(range.line_count > 0u);
      RC_ASSERT(shape.first_segment(i) == segment);
      u64 within = line;
      for (u64 s = 0; s < shape.shard_segments(i); ++s, ++segment) {
        const LineRange part = shape.segment_range(segment);
        RC_ASSERT(shape.shard_of(segment) == i);
        RC_ASSERT(part.first_line == within);
        RC_ASSERT(part.line_count > 0u);
        RC_ASSERT(part.line_count <= kSegmentLines);
        within = part.end_line();
      }
      RC_ASSERT(within == range.end_line());
      line = range.end_line();
    }
    RC_ASSERT(line == shape.payload_lines());
    RC_ASSERT(segment == shape.segments());
    RC_ASSERT(shape.block_bytes() % kBlockAlign == 0u);
    RC_ASSERT(shape.block_bytes() >= (shape.payload_lines() + shape.trailer_lines()) * kLineBytes);
    RC_ASSERT(block_shape(shape.payload_lines() * kLineBytes, shards).segments() ==
              shape.segments());
  });
  cr_expect(ok);
}

// Blocks beside each other in one extent, of the smallest class that holds them: no check line is
// that of two segments, and none lies outside its block or the strip.
Test(media_classes, check_lines_are_nobody_elses) {
  const bool ok = rc::check("check lines are disjoint", [](u64 raw, u8 raw_shards, u8 more) {
    const u64 payload = payload_from(raw, 2 * kMiB);
    const BlockShape shape = block_shape(payload, raw_shards % kMaxShards + 1);
    RC_PRE(shape.valid());
    const RegionTable table = one_device(1 + more % 4, 64);
    const int c = class_for(shape.block_bytes(), table.extent_bytes());
    RC_PRE(c != kClassRun);
    const u64 bytes = class_bytes(static_cast<u32>(c));
    const u32 n = blocks_per_extent(static_cast<u32>(c), table.extent_bytes());
    PoolOffset last = PoolOffset(0, 0);
    for (u32 b = 0; b < std::min(n, 40u); ++b) {
      const u64 address = table.address(3, b * bytes);
      for (u64 s = 0; s < shape.segments(); ++s) {
        const PoolOffset at = check_line_at(table, shape, address, s);
        RC_ASSERT(at > last);  // ascending: so no two are equal
        last = at;
        if (shape.checks_in_strip()) {
          RC_ASSERT(at >= table.strip_line(3, 0));
          RC_ASSERT(at < table.strip_line(4, 0));
        } else {
          RC_ASSERT(at.byte() >= table.data_at(address).byte() + payload);
          RC_ASSERT(at.byte() + kLineBytes <= table.data_at(address).byte() + bytes);
        }
      }
    }
  });
  cr_expect(ok);
}

Test(media_classes, runs_have_their_checks_in_their_own_extents) {
  const RegionTable table = one_device(1, 64);
  const BlockShape shape = block_shape(5 * kMiB, 1);
  cr_assert(shape.checks_in_strip() && shape.segments() == 80);
  for (u64 s = 0; s < 80; ++s) {
    const PoolOffset at = check_line_at(table, shape, table.address(7, 0), s);
    cr_expect(at == table.strip_line(7 + static_cast<u32>(s / 32), s % 32));
  }
}
