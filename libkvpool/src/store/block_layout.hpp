// SPDX-License-Identifier: Apache-2.0
// Where one block's payload and check lines lie, from its address, length and shards (proto 8, 9).
// Owns no memory: callers bring the array of pieces. Trusts nothing it is given: an address or
// length that the regions do not hold is -EUCLEAN.
#pragma once

#include <span>

#include "media/classes.hpp"
#include "media/layout.hpp"
#include "transfer/blocks.hpp"

namespace kvpool::store {

static_assert(transfer::kPieceStripe == media::kStripeBytes);

// Largest block that this library writes or reads: its pieces and checks must fit arrays made at
// open.
inline constexpr u64 kBlockBytesMax = u64{1} << 30;
inline constexpr u64 kPiecesMax = kBlockBytesMax / media::kStripeBytes + 1;
inline constexpr u64 kSegmentsMax = kBlockBytesMax / kSegmentBytes + media::kMaxShards;

class BlockLayout {
public:
  // 0, -EMSGSIZE (larger than kBlockBytesMax), -EUCLEAN. `pieces` has room for kPiecesMax.
  int open(const media::RegionTable &regions, u64 address, u64 payload_bytes, u32 shards,
           std::span<transfer::Piece> pieces) {
    shape_ = media::block_shape(payload_bytes, shards);
    if (!shape_.valid()) return -EUCLEAN;
    if (payload_bytes > kBlockBytesMax) return -EMSGSIZE;
    if (!even(shape_)) return -EUCLEAN;
    if (!regions.holds(address, shape_.block_bytes())) return -EUCLEAN;
    regions_ = &regions;
    address_ = address;
    u32 count = 0;
    const u64 bytes = shape_.payload_lines() * kLineBytes;
    for (u64 done = 0; done < bytes;) {
      const u64 here = media::RegionTable::contiguous_bytes(address + done);
      const u64 part = here < bytes - done ? here : bytes - done;
      pieces[count++] = {regions.data_at(address + done), part};
      done += part;
    }
    pieces_ = pieces.first(count);
    return 0;
  }

  // Whether the block's segments can be told apart by one shard size, as the engine needs.
  static constexpr bool even(const media::BlockShape &shape) {
    return shape.checks_in_strip() || shape.payload_lines() % shape.shards() == 0;
  }

  const media::BlockShape &shape() const { return shape_; }
  std::span<const transfer::Piece> pieces() const { return pieces_; }
  u64 payload_bytes() const { return shape_.payload_lines() * kLineBytes; }

  transfer::Segments segments() const {
    if (shape_.checks_in_strip()) return transfer::Segments::unsharded(payload_bytes());
    return {payload_bytes(), payload_bytes() / shape_.shards()};
  }

  PoolOffset check_line(u64 segment) const {
    if (shape_.checks_in_strip()) {
      const u64 unit = regions_->byte_of(address_) / kSegmentBytes;
      return regions_->strip_line(regions_->extent_of(address_), unit + segment);
    }
    return regions_->data_at(address_ + payload_bytes() + segment * kLineBytes);
  }

  // The segments that [begin, end) touches, as bytes of the block: what must be read to prove them.
  transfer::Range proven_range(u64 begin, u64 end) const {
    if (begin >= end) return {0, 0};
    const transfer::Segments cut = segments();
    return {cut.range_of(cut.index_of(begin)).begin, cut.range_of(cut.index_of(end - 1)).end};
  }

private:
  media::BlockShape shape_;
  const media::RegionTable *regions_ = nullptr;
  u64 address_ = 0;
  std::span<const transfer::Piece> pieces_;
};

}  // namespace kvpool::store
