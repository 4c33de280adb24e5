// SPDX-License-Identifier: Apache-2.0
// The keys of the payload check (arch/check.hpp). They are the outputs of splitmix64 started at the
// eight ASCII bytes "KVPOOLCK" read as a little-endian word: first the eight BASE words, then the
// eight STEP words, these with both halves made odd. The formula is what Documentation/format.md
// states; it is evaluated by the compiler, so that table and formula cannot part.
#pragma once

#include "arch/types.hpp"

namespace kvpool {

inline constexpr u64 kCheckSeed = 0x4B434C4F4F50564Bull;  // "KVPOOLCK"
inline constexpr u64 kCheckOdd = 0x0000000100000001ull;

// Output number n (from 1) of splitmix64 started at `seed`.
constexpr u64 splitmix64(u64 seed, u64 n) {
  u64 z = seed + n * 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

struct CheckKeys {
  u64 base[8];
  u64 step[8];
};
constexpr CheckKeys make_check_keys() {
  CheckKeys keys{};
  for (u64 k = 0; k < 8; ++k) {
    keys.base[k] = splitmix64(kCheckSeed, 1 + k);
    keys.step[k] = splitmix64(kCheckSeed, 9 + k) | kCheckOdd;
  }
  return keys;
}
inline constexpr CheckKeys kCheckKeys = make_check_keys();
inline constexpr const u64 (&kCheckBase)[8] = kCheckKeys.base;
inline constexpr const u64 (&kCheckStep)[8] = kCheckKeys.step;

}  // namespace kvpool
