// SPDX-License-Identifier: Apache-2.0
// A hint that a line of local memory will be read soon. As a statement of its own because gcc 12
// takes a function that holds nothing but __builtin_prefetch for one without effect, and drops the
// calls of it.
#pragma once

namespace kvpool {

[[gnu::always_inline]] inline void prefetch_local(const void *p) noexcept {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char *>(p)));
}

}  // namespace kvpool
