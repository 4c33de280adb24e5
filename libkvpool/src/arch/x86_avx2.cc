// SPDX-License-Identifier: Apache-2.0
// Payload loops for AVX2: 32 bytes at a time. Compiled for AVX2, run only where CPUID names it.
#ifndef __AVX2__
#error "compile this file with -mavx2"
#endif
#include <immintrin.h>

#include "arch/payload_loops.hpp"

namespace kvpool::x86 {
namespace {

struct V {
  using Reg = __m256i;
  static constexpr int kParts = 2;

  using Packed = std::byte[32];

  KVPOOL_INLINE static Reg load_local(const std::byte *p) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(p));
  }
  KVPOOL_INLINE static void store_local(std::byte *p, Reg r) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u *>(p), r);
  }
  KVPOOL_INLINE static Reg load_words(const u64 *p) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i_u *>(p));
  }
  KVPOOL_INLINE static void store_words(u64 *p, Reg r) noexcept {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u *>(p), r);
  }
  KVPOOL_INLINE static bool load_pool(const std::byte *from, Reg &to) noexcept {
    Reg value;
    asm volatile goto("1: vmovdqu %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
             : "=x"(value)
             : "m"(*reinterpret_cast<const Packed *>(from))
             :
             : bad);
    to = value;
    return true;
  bad:
    return false;
  }
  KVPOOL_INLINE static bool stream(std::byte *to, Reg value) noexcept {
    asm volatile goto("1: vmovntdq %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
             :
             : "m"(*reinterpret_cast<Packed *>(to)), "x"(value)
             : "memory"
             : bad);
    return true;
  bad:
    return false;
  }
  KVPOOL_INLINE static Reg add(Reg a, Reg b) noexcept { return _mm256_add_epi64(a, b); }
  KVPOOL_INLINE static Reg xor_(Reg a, Reg b) noexcept { return _mm256_xor_si256(a, b); }
  KVPOOL_INLINE static Reg low_high(Reg u) noexcept {
    return _mm256_mul_epu32(u, _mm256_srli_epi64(u, 32));
  }
  // Doublewords 3 and 1 of each pair of words go where the multiplication reads the low halves.
  KVPOOL_INLINE static Reg low_cross(Reg u) noexcept {
    return _mm256_mul_epu32(u, _mm256_shuffle_epi32(u, 0x1B));
  }
};

}  // namespace

const PayloadOps kAvx2Ops[2][2] = {{kOps<V, false, false>, kOps<V, false, true>},
                                   {kOps<V, true, false>, kOps<V, true, true>}};

}  // namespace kvpool::x86
