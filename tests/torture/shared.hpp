// SPDX-License-Identifier: Apache-2.0
// One page of bookkeeping that all processes of the torture share and that outlives any of them:
// counters, what was seen of each publication, the tickets of the group that writes in shards, and
// since when each process is inside of a call. Each field says who writes it; nothing here is the
// store's.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

#include "payload.hpp"

namespace kvpool::torture {

inline constexpr std::uint32_t kKeys = 600;         // that members put, get and remove
inline constexpr std::uint32_t kKeptKeys = 16;      // that the parent keeps pinned
inline constexpr std::uint32_t kAllKeys = kKeys + kKeptKeys;
inline constexpr std::uint32_t kSeenSlots = 1u << 20;
inline constexpr std::uint32_t kPartiesMax = 16;    // members and ranks
inline constexpr std::uint32_t kRanksMax = 4;
inline constexpr double kCallSeconds = 5;           // deadline of every call
inline constexpr double kHangSeconds = 5;           // beyond its deadline a call hangs
inline constexpr std::size_t kBytesMax = 1u << 20;

// What rank 0 of the group offers to the others. `offer` is odd while rank 0 writes the rest.
struct Group {
  std::atomic<std::uint64_t> offer;
  std::atomic<std::uint64_t> ticket[8];
  std::atomic<std::uint64_t> nonce;
  std::atomic<std::uint32_t> key;
  std::atomic<std::uint64_t> written[kRanksMax];  // by that rank: its shard of this offer is done
  std::atomic<std::uint64_t> over[kRanksMax];     // by that rank: it touches no earlier offer again
};

// Counters that outlive a killed process, and what was seen of publications.
struct Shared {
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint64_t> reads, puts, removes, pins, sharded, group_puts, full, stale, rejoins;
  std::atomic<std::uint64_t> unserved;  // calls that said that nobody serves, or ran out of time
  std::atomic<std::uint64_t> grown, shrunk, resizes_void;  // attempts that changed nothing
  std::atomic<std::uint64_t> wrong_reads;
  std::atomic<std::uint64_t> refused_reads;  // the store's own check said no
  std::atomic<std::uint64_t> errors;         // calls that failed in a way nothing here explains
  char first_wrong[512];
  std::atomic<std::uint32_t> first_wrong_taken;
  std::atomic<std::uint64_t> inside_since[kPartiesMax];  // 0: not in a call
  Group group;
  std::atomic<std::uint64_t> newest[kAllKeys];  // highest version that any reader saw
  std::atomic<std::uint64_t> seen[kSeenSlots];  // tag of (key, version) above, of its nonce below
};

class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return tools::mix64(state_ += 0x9e3779b97f4a7c15ull); }
  std::uint64_t below(std::uint64_t n) { return next() % n; }

private:
  std::uint64_t state_;
};

inline void note_wrong(Shared &shared, const std::string &what) {
  if (shared.first_wrong_taken.exchange(1) != 0) return;
  std::snprintf(shared.first_wrong, sizeof(shared.first_wrong), "%s", what.c_str());
}

// A key's size is fixed, so that everybody knows how much to read.
inline std::size_t bytes_of(std::uint32_t key) {
  static constexpr std::size_t kSizes[] = {4096, 8128, 20480, 65536, 131072, 199936, kBytesMax};
  return kSizes[key % (key < kKeys ? std::size(kSizes) : 4)];
}

}  // namespace kvpool::torture
