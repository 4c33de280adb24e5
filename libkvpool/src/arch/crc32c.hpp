// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, reflected) as the raw instruction computes it: no inversion before or after,
// the caller's seed goes in as it is (a seed is never zero, so that a zeroed line never has a valid
// CRC). Uses the CPU's instruction, which every x86-64 CPU with CLFLUSHOPT has; the library is
// built for it.
#pragma once

#include <nmmintrin.h>

#include <type_traits>

#include "arch/types.hpp"

namespace kvpool {

// Bit by bit: what the instruction must equal, and what constant expressions use.
constexpr u32 crc32c_reference(u32 crc, u8 byte) {
  crc ^= byte;
  for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
  return crc;
}

constexpr u64 crc32c_u64(u64 crc, u64 value) noexcept {
  if (!std::is_constant_evaluated()) return _mm_crc32_u64(crc, value);
  u32 c = static_cast<u32>(crc);
  for (int i = 0; i < 8; ++i) c = crc32c_reference(c, static_cast<u8>(value >> (8 * i)));
  return c;
}

constexpr u32 crc32c_u32(u32 crc, u32 value) noexcept {
  if (!std::is_constant_evaluated()) return _mm_crc32_u32(crc, value);
  for (int i = 0; i < 4; ++i) crc = crc32c_reference(crc, static_cast<u8>(value >> (8 * i)));
  return crc;
}

constexpr u32 crc32c_u8(u32 crc, u8 value) noexcept {
  if (!std::is_constant_evaluated()) return _mm_crc32_u8(crc, value);
  return crc32c_reference(crc, value);
}

// Over the first 60 bytes of a line: where the CRC stands in the last four.
constexpr u32 crc32c_line60(u32 seed, const Line &line) noexcept {
  u64 c = seed;
  for (int i = 0; i < 7; ++i) c = crc32c_u64(c, line.w[i]);
  return crc32c_u32(static_cast<u32>(c), static_cast<u32>(line.w[7]));
}

// Four lines at once, line(i) the i-th: the instruction takes three cycles but starts one a cycle,
// so four chains side by side cost little more than one.
template <class Lines>
[[gnu::always_inline]] inline void crc4_of(const u32 seed[4], Lines &&line, u32 ret_crc[4]) {
  u64 crc[4] = {seed[0], seed[1], seed[2], seed[3]};
#pragma GCC unroll 7
  for (u32 word = 0; word < 7; ++word) {
#pragma GCC unroll 4
    for (u32 i = 0; i < 4; ++i) crc[i] = _mm_crc32_u64(crc[i], line(i).w[word]);
  }
#pragma GCC unroll 4
  for (u32 i = 0; i < 4; ++i) {
    const u32 last = static_cast<u32>(line(i).w[7]);
    ret_crc[i] = _mm_crc32_u32(static_cast<u32>(crc[i]), last);
  }
}
// Lines anywhere, and lines side by side, which one register names.
inline void crc4(const u32 seed[4], const Line *const line[4], u32 ret_crc[4]) noexcept {
  crc4_of(seed, [line](u32 i) -> const Line & { return *line[i]; }, ret_crc);
}
inline void crc4(const u32 seed[4], const Line line[4], u32 ret_crc[4]) noexcept {
  crc4_of(seed, [line](u32 i) -> const Line & { return line[i]; }, ret_crc);
}

// x^n modulo the polynomial, reflected: x^0 is the highest bit.
constexpr u32 crc32c_power_of_x(u32 n) {
  u32 power = 0x80000000u;
  for (; n > 0; --n) power = power >> 1 ^ ((power & 1) != 0 ? 0x82F63B78u : 0);
  return power;
}

// A CRC is linear: what crc32c_line60() makes of two seeds for one line differs by this of the
// seeds' difference. That is the CRC of 60 zero bytes, a product with x^480, of which the CRC
// instruction that reduces it does x^32, and the product of reflected factors x. Each CPU that has
// CLFLUSHOPT has PCLMULQDQ.
[[gnu::always_inline]] inline u32 crc32c_over_60_zeros(u32 seed) noexcept {
  constexpr u32 kFactor = crc32c_power_of_x(480 - 32 - 1);
  __m128i product = _mm_cvtsi32_si128(static_cast<int>(seed));
  const __m128i factor = _mm_cvtsi32_si128(static_cast<int>(kFactor));
  asm("pclmulqdq $0, %1, %0" : "+x"(product) : "x"(factor));
  return static_cast<u32>(_mm_crc32_u64(0, static_cast<u64>(_mm_cvtsi128_si64(product))));
}

// Any number of bytes.
u32 crc32c(u32 seed, const void *data, u64 bytes) noexcept;

}  // namespace kvpool
