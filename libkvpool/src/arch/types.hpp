// SPDX-License-Identifier: Apache-2.0
// The words every layer speaks: fixed-width integers, a 64-byte line, an address in the pool.
#pragma once

#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace kvpool {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Structures on the medium are little-endian; the library runs on x86-64 only (architecture.md).
static_assert(std::endian::native == std::endian::little);

inline constexpr u64 kLineBytes = 64;

// The unit of transfer and write-back (protocol.md 1, A1).
struct alignas(kLineBytes) Line {
  u64 w[8];
  friend bool operator==(const Line &, const Line &) = default;
};
static_assert(sizeof(Line) == kLineBytes);

// The line with other last four bytes, where its CRC stands.
constexpr Line with_seal(const Line &line, u32 seal) {
  Line sealed = line;
  sealed.w[7] = (line.w[7] & 0xFFFFFFFFull) | u64{seal} << 32;
  return sealed;
}

// Where a byte of the pool lies: device in the top 8 bits, byte offset on it below. Never a host
// pointer: only the Memory of arch turns it into one, so that the simulator can do without.
class PoolOffset {
public:
  constexpr PoolOffset() = default;
  constexpr PoolOffset(u32 device, u64 byte) : raw_((u64{device} << kDeviceShift) | byte) {}
  static constexpr PoolOffset from_raw(u64 raw) {
    PoolOffset off;
    off.raw_ = raw;
    return off;
  }
  constexpr u64 raw() const { return raw_; }
  constexpr u32 device() const { return static_cast<u32>(raw_ >> kDeviceShift); }
  constexpr u64 byte() const { return raw_ & kByteMask; }
  constexpr PoolOffset operator+(u64 bytes) const { return from_raw(raw_ + bytes); }
  friend constexpr auto operator<=>(const PoolOffset &, const PoolOffset &) = default;

  static constexpr u32 kDeviceShift = 56;
  static constexpr u64 kByteMask = (u64{1} << kDeviceShift) - 1;

private:
  u64 raw_ = 0;
};

inline constexpr PoolOffset kNoOffset = PoolOffset::from_raw(~u64{0});

}  // namespace kvpool
