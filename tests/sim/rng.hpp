// SPDX-License-Identifier: Apache-2.0
// The one source of chance of a simulated run: a 64-bit seed determines everything that happens.
#pragma once

#include "arch/types.hpp"

namespace kvpool::sim {

// splitmix64: one multiplication chain a draw, any seed is good, streams can be forked.
class Rng {
public:
  Rng() = default;
  explicit Rng(u64 seed) : state_(seed) {}

  u64 next() {
    state_ += 0x9E3779B97F4A7C15ull;
    u64 z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // Uniform in [0, n); n may be 0, which gives 0.
  u64 below(u64 n) { return static_cast<u64>((static_cast<unsigned __int128>(next()) * n) >> 64); }
  u64 between(u64 low, u64 high) { return low + below(high - low + 1); }
  bool chance(u32 permille) { return below(1000) < permille; }
  Rng fork() { return Rng(next()); }

private:
  u64 state_ = 0;
};

}  // namespace kvpool::sim
