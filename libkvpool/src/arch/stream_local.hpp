// SPDX-License-Identifier: Apache-2.0
// A whole line of local memory written past the caches: for tables that are filled once and are
// larger than any cache, where fetching each line first would double the traffic. Other threads see
// it after a drain of this one.
#pragma once

#include <emmintrin.h>

#include "arch/types.hpp"

namespace kvpool {

[[gnu::always_inline]] inline void stream_local(void *to, const Line &line) noexcept {
  auto *at = static_cast<__m128i *>(to);
  const auto *from = reinterpret_cast<const __m128i *>(&line);
  for (int i = 0; i < 4; ++i) _mm_stream_si128(at + i, _mm_load_si128(from + i));
}

}  // namespace kvpool
