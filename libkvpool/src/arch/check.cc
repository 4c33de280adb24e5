// SPDX-License-Identifier: Apache-2.0
// Plain forms of the payload check and CRC: what the vector forms must equal, and what runs once a
// segment or once a block.
#include "arch/check.hpp"

#include <cstring>

#include "arch/check_keys.hpp"
#include "arch/crc32c.hpp"

namespace kvpool {
namespace {

constexpr u64 low_half(u64 w) { return w & 0xFFFFFFFFu; }
constexpr u64 high_half(u64 w) { return w >> 32; }

// Spreads the last steps of the chain over the whole word.
constexpr u64 finish(u64 h) {
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;
  return h ^ h >> 32;
}

}  // namespace

u64 check_fold(const CheckLanes &lanes, u64 line_count) noexcept {
  u64 h = check_mix(kCheckSeed, line_count);
  for (const u64 v : lanes.p) h = check_mix(h, v);
  for (const u64 v : lanes.q) h = check_mix(h, v);
  for (const u64 v : lanes.d) h = check_mix(h, v);
  return finish(h);
}

void check_add_reference(CheckLanes &lanes, const void *lines, u64 line_count,
                         u64 first_line) noexcept {
  const auto *from = static_cast<const unsigned char *>(lines);
  for (u64 i = 0; i < line_count; ++i, from += kLineBytes) {
    u64 w[8];
    u64 u[8];
    std::memcpy(w, from, sizeof w);
    for (int k = 0; k < 8; ++k) u[k] = w[k] ^ (kCheckBase[k] + (first_line + i) * kCheckStep[k]);
    for (int k = 0; k < 8; ++k) {
      lanes.p[k] += low_half(u[k]) * high_half(u[k]);
      lanes.q[k] += low_half(u[k]) * high_half(u[k ^ 1]);
      lanes.d[k] += w[k];
    }
  }
}

u64 check_table_hash(const u64 *checks, u64 count) noexcept {
  u64 h = check_mix(kCheckSeed, ~count);
  for (u64 i = 0; i < count; ++i) h = check_mix(h, checks[i]);
  return finish(h);
}

u32 crc32c(u32 seed, const void *data, u64 bytes) noexcept {
  const auto *from = static_cast<const unsigned char *>(data);
  u64 c = seed;
  for (; bytes >= 8; bytes -= 8, from += 8) {
    u64 word;
    std::memcpy(&word, from, 8);
    c = crc32c_u64(c, word);
  }
  u32 crc = static_cast<u32>(c);
  for (; bytes > 0; --bytes, ++from) crc = crc32c_u8(crc, *from);
  return crc;
}

}  // namespace kvpool
