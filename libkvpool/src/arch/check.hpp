// SPDX-License-Identifier: Apache-2.0
// The order-free check of a payload segment (at most 64 KiB): sums over its lines that may be added
// in any order, by any thread or lane, and a bijective chain that folds them into 64 bits. Not
// cryptographic. Documentation/format.md fixes every constant, with vectors.
//
// For line i of the segment with words w0..w7:  u_k = w_k ^ (BASE_k + i * STEP_k)
//   p_k += lo(u_k) * hi(u_k);   q_k += lo(u_k) * hi(u_{k^1});   d_k += w_k      (all modulo 2^64)
#pragma once

#include "arch/types.hpp"

namespace kvpool {

struct alignas(kLineBytes) CheckLanes {
  u64 p[8];
  u64 q[8];
  u64 d[8];
};

inline constexpr u64 kSegmentBytes = 64 * 1024;
inline constexpr u64 kSegmentLines = kSegmentBytes / kLineBytes;

// One step of the chain, also used to hash a block's table of checks.
constexpr u64 check_mix(u64 h, u64 v) {
  h ^= v;
  h *= 0x9E3779B97F4A7C15ull;
  h ^= h >> 29;
  return std::rotl(h, 23) + 0x632BE59BD9B4E019ull;
}

// Folds the lanes of one segment. `line_count` binds the length, so that zero lines at the end
// count.
u64 check_fold(const CheckLanes &lanes, u64 line_count) noexcept;

// Plain reference: adds `line_count` lines at `lines` (any alignment), numbered from `first_line`.
void check_add_reference(CheckLanes &lanes, const void *lines, u64 line_count,
                         u64 first_line) noexcept;

// Hash over a block's segment checks in order; stands in the index entry.
u64 check_table_hash(const u64 *checks, u64 count) noexcept;

}  // namespace kvpool
