// SPDX-License-Identifier: Apache-2.0
// Payload loops for every x86-64 CPU: 16 bytes at a time.
#include <emmintrin.h>

#include "arch/payload_loops.hpp"

namespace kvpool::x86 {
namespace {

struct V {
  using Reg = __m128i;
  static constexpr int kParts = 4;

  using Packed = std::byte[16];

  KVPOOL_INLINE static Reg load_local(const std::byte *p) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u *>(p));
  }
  KVPOOL_INLINE static void store_local(std::byte *p, Reg r) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i_u *>(p), r);
  }
  KVPOOL_INLINE static Reg load_words(const u64 *p) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i_u *>(p));
  }
  KVPOOL_INLINE static void store_words(u64 *p, Reg r) noexcept {
    _mm_storeu_si128(reinterpret_cast<__m128i_u *>(p), r);
  }
  KVPOOL_INLINE static bool load_pool(const std::byte *from, Reg &to) noexcept {
    Reg value;
    asm volatile goto("1: movdqu %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
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
    asm volatile goto("1: movntdq %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
             :
             : "m"(*reinterpret_cast<Packed *>(to)), "x"(value)
             : "memory"
             : bad);
    return true;
  bad:
    return false;
  }
  KVPOOL_INLINE static Reg add(Reg a, Reg b) noexcept { return _mm_add_epi64(a, b); }
  KVPOOL_INLINE static Reg xor_(Reg a, Reg b) noexcept { return _mm_xor_si128(a, b); }
  KVPOOL_INLINE static Reg low_high(Reg u) noexcept {
    return _mm_mul_epu32(u, _mm_srli_epi64(u, 32));
  }
  // Doublewords 3 and 1 of each pair of words go where the multiplication reads the low halves.
  KVPOOL_INLINE static Reg low_cross(Reg u) noexcept {
    return _mm_mul_epu32(u, _mm_shuffle_epi32(u, 0x1B));
  }
};

}  // namespace

const PayloadOps kSse2Ops[2][2] = {{kOps<V, false, false>, kOps<V, false, true>},
                                   {kOps<V, true, false>, kOps<V, true, true>}};

}  // namespace kvpool::x86
