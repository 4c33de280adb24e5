// SPDX-License-Identifier: Apache-2.0
// How payload becomes a block: the table of size classes that extents are cut into, and the shape
// of a block (its shards, its segments, where their check lines stand). Both follow from payload
// length and shard count alone, so that a reader derives them from an index entry.
#pragma once

#include <array>
#include <cerrno>

#include "arch/check.hpp"
#include "media/format.hpp"

namespace kvpool::media {

// ---- size classes -------------------------------------------------------------------------------

inline constexpr u64 kSmallestClassBytes = 4096;
inline constexpr u64 kLargestClassBytes = u64{64} << 20;
inline constexpr u32 kSizeClasses = 61;
static_assert(kSizeClasses <= kClassNone);

// Powers of two and steps of a quarter between them from 4 KiB to 64 MiB; and a power of two plus
// 256 bytes for the small ones, whose check line stands behind the payload. Ascending.
constexpr std::array<u32, kSizeClasses> make_class_table() {
  std::array<u32, kSizeClasses> table{};
  u32 n = 0;
  for (u32 power = 12; power < 26; ++power) {
    const u32 base = u32{1} << power;
    table[n++] = base;
    if (power <= 15) table[n++] = base + 256;
    for (u32 quarter = 1; quarter < 4; ++quarter) table[n++] = base + base / 4 * quarter;
  }
  table[n++] = u32{1} << 26;
  return table;
}
inline constexpr std::array<u32, kSizeClasses> kClassTable = make_class_table();
static_assert(kClassTable.front() == kSmallestClassBytes);
static_assert(kClassTable.back() == kLargestClassBytes);

// 0 for a run and for an extent in no class.
constexpr u64 class_bytes(u32 size_class) {
  return size_class < kSizeClasses ? kClassTable[size_class] : 0;
}

// 0: extents of this size are never cut into this class.
constexpr u32 blocks_per_extent(u32 size_class, u64 extent_bytes) {
  const u64 bytes = class_bytes(size_class);
  if (bytes == 0) return 0;
  const u64 count = extent_bytes / bytes;
  return count <= kBlocksPerExtentMax ? static_cast<u32>(count) : 0;
}

// The smallest class that holds the block; kClassRun for a block that takes whole extents; -EINVAL
// for an empty block.
constexpr int class_for(u64 block_bytes, u64 extent_bytes) {
  if (block_bytes == 0 || extent_bytes == 0) return -EINVAL;
  for (u32 c = 0; c < kSizeClasses; ++c) {
    if (kClassTable[c] >= block_bytes && blocks_per_extent(c, extent_bytes) > 0) {
      return static_cast<int>(c);
    }
  }
  return kClassRun;
}

constexpr u64 run_extents(u64 block_bytes, u64 extent_bytes) {
  return (block_bytes + extent_bytes - 1) / extent_bytes;
}

// ---- block shape --------------------------------------------------------------------------------

struct LineRange {
  u64 first_line;  // from the start of the block
  u64 line_count;
  constexpr u64 end_line() const { return first_line + line_count; }
  friend bool operator==(const LineRange &, const LineRange &) = default;
};

// Shards are cut at multiples of 64 KiB where the strip serves, that is where the payload is a
// whole number of 64 KiB units and no shard is empty: then each segment has a check line of its own
// in the strip. Any other payload is cut evenly by lines and carries its check lines behind it. A
// segment never spans two shards, since a shard has one writer (proto 9).
class BlockShape {
public:
  constexpr BlockShape() = default;
  constexpr BlockShape(u64 payload_lines, u32 shards) : lines_(payload_lines), shards_(shards) {
    in_strip_ = lines_ % kSegmentLines == 0 && lines_ / kSegmentLines >= shards_;
    if (in_strip_) {
      segments_ = lines_ / kSegmentLines;
    } else {
      for (u32 i = 0; i < shards_; ++i) segments_ += segments_of(shard_range(i).line_count);
    }
  }

  constexpr bool valid() const { return shards_ != 0; }
  constexpr u64 payload_lines() const { return lines_; }
  constexpr u32 shards() const { return shards_; }
  constexpr u64 segments() const { return segments_; }
  constexpr bool checks_in_strip() const { return in_strip_; }
  // What the block takes from its extent, before rounding up to a class.
  constexpr u64 block_bytes() const {
    const u64 bytes = (lines_ + trailer_lines()) * kLineBytes;
    return (bytes + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
  }
  constexpr u64 trailer_lines() const { return in_strip_ ? 0 : segments_; }

  constexpr LineRange shard_range(u32 shard) const {
    const u64 unit = in_strip_ ? kSegmentLines : 1;
    const u64 units = lines_ / unit;
    const u64 first = units * shard / shards_;
    const u64 end = units * (u64{shard} + 1) / shards_;
    return {first * unit, (end - first) * unit};
  }

  // Segments of a shard are numbered on from those of the shards before it.
  constexpr u64 first_segment(u32 shard) const {
    if (in_strip_) return shard_range(shard).first_line / kSegmentLines;
    u64 n = 0;
    for (u32 i = 0; i < shard; ++i) n += segments_of(shard_range(i).line_count);
    return n;
  }
  constexpr u64 shard_segments(u32 shard) const {
    return segments_of(shard_range(shard).line_count);
  }
  constexpr u32 shard_of(u64 segment) const {
    u32 shard = 0;
    while (shard + 1 < shards_ && first_segment(shard + 1) <= segment) ++shard;
    return shard;
  }
  constexpr LineRange segment_range(u64 segment) const {
    if (in_strip_) return {segment * kSegmentLines, kSegmentLines};
    const u32 shard = shard_of(segment);
    const LineRange range = shard_range(shard);
    const u64 first = range.first_line + (segment - first_segment(shard)) * kSegmentLines;
    const u64 left = range.end_line() - first;
    return {first, left < kSegmentLines ? left : kSegmentLines};
  }

private:
  static constexpr u64 segments_of(u64 lines) {
    return (lines + kSegmentLines - 1) / kSegmentLines;
  }

  u64 lines_ = 0;
  u64 segments_ = 0;
  u32 shards_ = 0;
  bool in_strip_ = false;
};

// Not valid(): no payload, more than an entry's length can say, or more shards than lines.
constexpr BlockShape block_shape(u64 payload_bytes, u32 shards) {
  if (payload_bytes == 0 || payload_bytes > kPayloadLinesMax * kLineBytes) return {};
  const u64 lines = (payload_bytes + kLineBytes - 1) / kLineBytes;
  if (shards == 0 || shards > kMaxShards || shards > lines) return {};
  return BlockShape(lines, shards);
}
constexpr BlockShape block_shape(const Entry &entry) {
  return block_shape(entry.payload_lines() * kLineBytes, entry.shards());
}

}  // namespace kvpool::media
