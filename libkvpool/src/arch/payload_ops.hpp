// SPDX-License-Identifier: Apache-2.0
// The payload loops as one table of functions, filled once for each instruction set (x86_sse2.cc,
// x86_avx2.cc, x86_avx512.cc) and chosen when a memory is made: one indirect call for many lines.
#pragma once

#include "arch/check.hpp"

namespace kvpool::x86 {

struct PayloadOps {
  // Streams n lines to `to` (a line address) and adds them to `lanes` unless null. False on a
  // fault; lines behind it were not written.
  bool (*stream)(std::byte *to, const std::byte *from, u64 n, CheckLanes *lanes,
                 u64 first_line) noexcept;
  // Copies n lines to local memory, flushes as many from `ahead` unless null. False on a fault.
  bool (*fetch)(std::byte *to, const std::byte *from, u64 n, const std::byte *ahead,
                CheckLanes *lanes, u64 first_line) noexcept;
  // Copies bytes of any alignment and length from lines acquired before. False on a fault.
  bool (*fetch_bytes)(std::byte *to, const std::byte *from, u64 bytes) noexcept;
  // The same for n rows of equal length, to places `stride` apart; a null row is left out.
  bool (*fetch_rows)(std::byte *to, u64 stride, const std::byte *const *rows, u64 n,
                     u64 bytes) noexcept;
  // Adds n lines of local memory to `lanes`.
  void (*add)(CheckLanes &lanes, const std::byte *lines, u64 n, u64 first_line) noexcept;
};

// By vector width. The first index says whether lines are written with MOVDIR64B, the second
// whether they are flushed with CLFLUSHOPT (else CLFLUSH).
extern const PayloadOps kSse2Ops[2][2];
extern const PayloadOps kAvx2Ops[2][2];
extern const PayloadOps kAvx512Ops[2][2];

}  // namespace kvpool::x86
