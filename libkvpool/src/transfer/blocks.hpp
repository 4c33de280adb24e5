// SPDX-License-Identifier: Apache-2.0
// How a block lies in the pool, and how its payload is cut for checks.
#pragma once

#include <span>

#include "arch/check.hpp"
#include "arch/types.hpp"

namespace kvpool::transfer {

// A part of a block without a break: whole lines on one device. A block is a list of pieces in
// order.
struct Piece {
  PoolOffset pool;
  u64 bytes = 0;
};

inline u64 pieces_bytes(std::span<const Piece> pieces) {
  u64 bytes = 0;
  for (const Piece &piece : pieces) bytes += piece.bytes;
  return bytes;
}

// Turns block offsets into pool offsets; cheap when asked in ascending order.
class PieceCursor {
public:
  explicit PieceCursor(std::span<const Piece> pieces) : pieces_(pieces) {}

  // The place of `offset`, and in ret_run how many bytes follow there without a break.
  PoolOffset at(u64 offset, u64 &ret_run) {
    if (offset < start_) {
      piece_ = 0;
      start_ = 0;
    }
    while (offset - start_ >= pieces_[piece_].bytes) start_ += pieces_[piece_++].bytes;
    const u64 inside = offset - start_;
    ret_run = pieces_[piece_].bytes - inside;
    return pieces_[piece_].pool + inside;
  }

private:
  std::span<const Piece> pieces_;
  u64 piece_ = 0;
  u64 start_ = 0;
};

// Blocks cut at stripe edges, as all of a store are: the first and the last piece may be shorter.
inline constexpr u64 kPieceStripe = u64{2} << 20;

inline bool is_striped(std::span<const Piece> pieces) {
  if (pieces.empty() || pieces[0].bytes > kPieceStripe) return false;
  for (u64 i = 1; i < pieces.size(); ++i) {
    const bool last = i + 1 == pieces.size();
    if (last ? pieces[i].bytes > kPieceStripe : pieces[i].bytes != kPieceStripe) return false;
  }
  return true;
}

// PieceCursor::at() for a striped block, without a branch that random offsets would mispredict.
inline PoolOffset place_in_stripes(std::span<const Piece> pieces, u64 offset, u64 &ret_run) {
  const u64 skew = kPieceStripe - pieces[0].bytes;
  const u64 piece = (offset + skew) / kPieceStripe;
  const u64 inside = (offset + skew) % kPieceStripe - (piece == 0 ? skew : 0);
  ret_run = pieces[piece].bytes - inside;
  return pieces[piece].pool + inside;
}

struct Range {
  u64 begin = 0;
  u64 end = 0;
};

// A block of `block_bytes` is cut into shards of `shard_bytes` (the last one may be shorter), each
// of whole lines, and each shard into segments of 64 KiB (again the last one may be shorter).
// Segments are numbered through the block.
struct Segments {
  u64 block_bytes = 0;
  u64 shard_bytes = 0;

  static Segments unsharded(u64 block_bytes) { return {block_bytes, block_bytes}; }

  u64 per_shard() const { return (shard_bytes + kSegmentBytes - 1) / kSegmentBytes; }
  u64 count() const {
    const u64 full = block_bytes / shard_bytes;
    const u64 rest = block_bytes % shard_bytes;
    return full * per_shard() + (rest + kSegmentBytes - 1) / kSegmentBytes;
  }
  u64 index_of(u64 offset) const {
    return offset / shard_bytes * per_shard() + offset % shard_bytes / kSegmentBytes;
  }
  Range range_of(u64 index) const {
    const u64 shard = index / per_shard() * shard_bytes;
    const u64 shard_end = shard + shard_bytes < block_bytes ? shard + shard_bytes : block_bytes;
    const u64 begin = shard + index % per_shard() * kSegmentBytes;
    return {begin, begin + kSegmentBytes < shard_end ? begin + kSegmentBytes : shard_end};
  }
  // Numbers of the segments that lie in `range` whole.
  Range whole_in(Range range) const {
    if (range.begin >= range.end || range.begin >= block_bytes) return {0, 0};
    u64 first = index_of(range.begin);
    if (range_of(first).begin < range.begin) ++first;
    u64 last = range.end >= block_bytes ? count() : index_of(range.end);
    return last > first ? Range{first, last} : Range{0, 0};
  }
};

}  // namespace kvpool::transfer
