// SPDX-License-Identifier: Apache-2.0
// Which groups of the index may hold a key (proto 10). Keys are hashes, so two words serve.
#pragma once

#include "arch/types.hpp"

namespace kvpool::media {

// Maps a uniform 64-bit word onto [0, groups) by the high half of the product.
constexpr u64 scale_word(u64 word, u64 groups) {
  return static_cast<u64>((static_cast<unsigned __int128>(word) * groups) >> 64);
}

// The first group comes from word 0 of the key, the second from word 1; never the same group.
constexpr u64 first_group(const u64 *key, u64 groups) { return scale_word(key[0], groups); }
constexpr u64 second_group(const u64 *key, u64 groups) {
  const u64 group = scale_word(key[1], groups);
  if (group != first_group(key, groups)) return group;
  return group + 1 == groups ? 0 : group + 1;
}

// The id of a namespace is the place of its line in the table of `lines` lines (a power of two):
// the first free one from where its fingerprint's first word points. Neither line 0, since id 0 is
// none, nor the last one, the spare line, is a namespace's.
constexpr u32 ns_probes(u32 lines) { return lines - 2; }
constexpr u32 ns_probe(u64 fingerprint_word, u32 probe, u32 lines) {
  return 1 + static_cast<u32>((fingerprint_word + probe) % ns_probes(lines));
}

}  // namespace kvpool::media
