// SPDX-License-Identifier: Apache-2.0
// Lines of local memory that were made word by word a moment ago.
#pragma once

#include <cstring>

#include "arch/types.hpp"

namespace kvpool {

// Copies each word by itself, as it was stored. The compiler would load two at once: a load that is
// wider than the stores under it waits until those, and all before them, have left the processor.
inline void copy_words(const Line &line, void *to) noexcept {
  const volatile u64 *from = line.w;
  for (u32 i = 0; i < kLineBytes / sizeof(u64); ++i) {
    const u64 word = from[i];
    std::memcpy(static_cast<std::byte *>(to) + i * sizeof word, &word, sizeof word);
  }
}

}  // namespace kvpool
