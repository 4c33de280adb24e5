// SPDX-License-Identifier: Apache-2.0
// Single instructions on pool memory, each as one inline assembler statement, so that they inline
// into code compiled for plain x86-64 and yet use what the running CPU has. Nothing else in the
// tree holds them. Vector forms use zmm16/ymm15 and leave no dirty upper halves behind for SSE code
// to trip over.
//
// Pool memory can fault: poison, a truncated file, a revoked mapping, all arrive as SIGBUS. Every
// access here has an entry in the section kvpool_faults, (address of the instruction, address to go
// on at), so that the handler in x86_fault.cc turns the fault into a result at no cost to the way
// without fault.
#pragma once

#include "arch/types.hpp"

namespace kvpool::x86 {

// `at` and `to` are local labels or %l operands. "?" puts the entry into the function's section
// group, so that it goes when the linker drops a duplicate of an inline function.
#define KVPOOL_FAULT_ENTRY(at, to)                                                              \
  ".pushsection kvpool_faults,\"a?\",@progbits\n\t.balign 4\n\t.long " at " - .\n\t.long " to \
  " - .\n\t.popsection\n\t"

// A part of a line as an assembler operand.
template <u64 kBytes>
using Part = const char (*)[kBytes];
template <u64 kBytes>
[[gnu::always_inline]] inline Part<kBytes> part(const void *line) noexcept {
  return static_cast<Part<kBytes>>(line);
}

// The compiler knows zmm16 only where it may use it.
#ifdef __AVX512F__
#define KVPOOL_CLOBBER_ZMM16 , "xmm16"
#else
#define KVPOOL_CLOBBER_ZMM16
#endif
// In code compiled for AVX the compiler itself keeps the upper halves in order.
#ifdef __AVX__
#define KVPOOL_ZEROUPPER ""
#else
#define KVPOOL_ZEROUPPER "vzeroupper\n\t"
#endif

[[gnu::always_inline]] inline void mfence() noexcept { asm volatile("mfence" ::: "memory"); }
[[gnu::always_inline]] inline void sfence() noexcept { asm volatile("sfence" ::: "memory"); }

// A flush of memory that is gone has nothing to do: go on behind it, the load that follows reports
// it. To the compiler it is a read: stores stay before it, and loads of pool memory, all volatile
// here, stay behind it.
[[gnu::always_inline]] inline void clflushopt(const void *p) noexcept {
  asm volatile("1: clflushopt %0\n2:\n\t" KVPOOL_FAULT_ENTRY("1b", "2b")
               :
               : "m"(*static_cast<const char *>(p)));
}
[[gnu::always_inline]] inline void clflush(const void *p) noexcept {
  asm volatile("1: clflush %0\n2:\n\t" KVPOOL_FAULT_ENTRY("1b", "2b")
               :
               : "m"(*static_cast<const char *>(p)));
}
[[gnu::always_inline]] inline void prefetch(const void *p) noexcept {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char *>(p)));
}

// To the second level: it has room for more misses at a time than the first.
[[gnu::always_inline]] inline void prefetch_far(const void *p) noexcept {
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char *>(p)));
}

// ---- loads: false when the memory faults --------------------------------------------------------

// Volatile, all of them: gcc 12 drops a goto asm whose value nobody uses, and with it the question
// whether the memory can be read.

[[gnu::always_inline]] inline bool load_word(const void *from, u64 &word) noexcept {
  u64 value;
  asm volatile goto("1: movq %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           : "=r"(value)
           : "m"(*static_cast<const u64 *>(from))
           :
           : bad);
  word = value;
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool load_byte(const void *from, std::byte &byte) noexcept {
  u32 value;
  asm volatile goto("1: movzbl %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           : "=r"(value)
           : "m"(*static_cast<const char *>(from))
           :
           : bad);
  byte = static_cast<std::byte>(value);
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool load_line_zmm(const void *from, Line &to) noexcept {
  asm volatile goto(
      "1: vmovdqa64 %1, %%zmm16\n\tvmovdqa64 %%zmm16, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
      : "=m"(to)
      : "m"(*static_cast<const Line *>(from))
      : "memory" KVPOOL_CLOBBER_ZMM16
      : bad);
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool load_line_ymm(const void *from, Line &to) noexcept {
  asm volatile goto("1: vmovdqa %1, %%ymm14\n2: vmovdqa %2, %%ymm15\n\t"
           "vmovdqa %%ymm14, (%3)\n\tvmovdqa %%ymm15, 32(%3)\n\t" KVPOOL_ZEROUPPER
           KVPOOL_FAULT_ENTRY("1b", "%l[bad]") KVPOOL_FAULT_ENTRY("2b", "%l[bad]")
           : "=m"(to)
           : "m"(part<32>(from)[0]), "m"(part<32>(from)[1]), "r"(&to)
           : "memory", "xmm14", "xmm15"
           : bad);
  return true;
bad:
  asm volatile(KVPOOL_ZEROUPPER ::: "memory");
  return false;
}

[[gnu::always_inline]] inline bool load_line_xmm(const void *from, Line &to) noexcept {
  asm volatile goto("1: movdqa %1, %%xmm12\n2: movdqa %2, %%xmm13\n\t"
           "3: movdqa %3, %%xmm14\n4: movdqa %4, %%xmm15\n\t"
           "movdqa %%xmm12, (%5)\n\tmovdqa %%xmm13, 16(%5)\n\t"
           "movdqa %%xmm14, 32(%5)\n\tmovdqa %%xmm15, 48(%5)\n\t"
           KVPOOL_FAULT_ENTRY("1b", "%l[bad]") KVPOOL_FAULT_ENTRY("2b", "%l[bad]")
           KVPOOL_FAULT_ENTRY("3b", "%l[bad]") KVPOOL_FAULT_ENTRY("4b", "%l[bad]")
           : "=m"(to)
           : "m"(part<16>(from)[0]), "m"(part<16>(from)[1]), "m"(part<16>(from)[2]),
             "m"(part<16>(from)[3]), "r"(&to)
           : "memory", "xmm12", "xmm13", "xmm14", "xmm15"
           : bad);
  return true;
bad:
  return false;
}

// ---- stores: false when the memory faults; `from` may have any alignment ------------------------

[[gnu::always_inline]] inline bool store_line_movdir64b(void *to, const void *from) noexcept {
  asm volatile goto("1: movdir64b %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           :
           : "r"(to), "m"(*part<kLineBytes>(from))
           : "memory"
           : bad);
  return true;
bad:
  return false;
}

// A control line made of words a moment ago. Its words are loaded one by one: a wider load over
// several younger stores waits until they and all before them have left the store buffer.
[[gnu::always_inline]] inline bool store_words_zmm(void *to, const Line &from) noexcept {
  asm volatile goto("movq %1, %%xmm12\n\tmovhps %2, %%xmm12\n\t"
                    "movq %3, %%xmm13\n\tmovhps %4, %%xmm13\n\t"
           "movq %5, %%xmm14\n\tmovhps %6, %%xmm14\n\tmovq %7, %%xmm15\n\tmovhps %8, %%xmm15\n\t"
           "vinserti32x4 $0, %%xmm12, %%zmm16, %%zmm16\n\t"
           "vinserti32x4 $1, %%xmm13, %%zmm16, %%zmm16\n\t"
           "vinserti32x4 $2, %%xmm14, %%zmm16, %%zmm16\n\t"
           "vinserti32x4 $3, %%xmm15, %%zmm16, %%zmm16\n"
           "1: vmovntdq %%zmm16, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           :
           : "m"(*static_cast<Line *>(to)), "m"(from.w[0]), "m"(from.w[1]), "m"(from.w[2]),
             "m"(from.w[3]), "m"(from.w[4]), "m"(from.w[5]), "m"(from.w[6]), "m"(from.w[7])
           : "memory", "xmm12", "xmm13", "xmm14", "xmm15" KVPOOL_CLOBBER_ZMM16
           : bad);
  return true;
bad:
  return false;
}

// A line with other last four bytes.
[[gnu::always_inline]] inline bool store_sealed_zmm(void *to, const Line &from, u32 seal) noexcept {
  asm volatile goto("vmovdqu64 %1, %%zmm16\n\tmovdqu %2, %%xmm12\n\tpinsrd $3, %3, %%xmm12\n\t"
           "vinserti32x4 $3, %%xmm12, %%zmm16, %%zmm16\n"
           "1: vmovntdq %%zmm16, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           :
           : "m"(*static_cast<Line *>(to)), "m"(from), "m"(*part<16>(&from.w[6])), "r"(seal)
           : "memory", "xmm12" KVPOOL_CLOBBER_ZMM16
           : bad);
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool store_line_zmm(void *to, const void *from) noexcept {
  asm volatile goto("vmovdqu64 %1, %%zmm16\n1: vmovntdq %%zmm16, %0\n\t" KVPOOL_FAULT_ENTRY(
                        "1b", "%l[bad]")
           :
           : "m"(*static_cast<Line *>(to)), "m"(*part<kLineBytes>(from))
           : "memory" KVPOOL_CLOBBER_ZMM16
           : bad);
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool store_line_ymm(void *to, const void *from) noexcept {
  asm volatile goto("vmovdqu %0, %%ymm14\n\tvmovdqu %1, %%ymm15\n"
           "1: vmovntdq %%ymm14, (%2)\n2: vmovntdq %%ymm15, 32(%2)\n\t" KVPOOL_ZEROUPPER
           KVPOOL_FAULT_ENTRY("1b", "%l[bad]") KVPOOL_FAULT_ENTRY("2b", "%l[bad]")
           :
           : "m"(part<32>(from)[0]), "m"(part<32>(from)[1]), "r"(to)
           : "memory", "xmm14", "xmm15"
           : bad);
  return true;
bad:
  asm volatile(KVPOOL_ZEROUPPER ::: "memory");
  return false;
}

[[gnu::always_inline]] inline bool store_line_xmm(void *to, const void *from) noexcept {
  asm volatile goto("movdqu %0, %%xmm12\n\tmovdqu %1, %%xmm13\n\t"
           "movdqu %2, %%xmm14\n\tmovdqu %3, %%xmm15\n"
           "1: movntdq %%xmm12, (%4)\n2: movntdq %%xmm13, 16(%4)\n"
           "3: movntdq %%xmm14, 32(%4)\n4: movntdq %%xmm15, 48(%4)\n\t"
           KVPOOL_FAULT_ENTRY("1b", "%l[bad]") KVPOOL_FAULT_ENTRY("2b", "%l[bad]")
           KVPOOL_FAULT_ENTRY("3b", "%l[bad]") KVPOOL_FAULT_ENTRY("4b", "%l[bad]")
           :
           : "m"(part<16>(from)[0]), "m"(part<16>(from)[1]), "m"(part<16>(from)[2]),
             "m"(part<16>(from)[3]), "r"(to)
           : "memory", "xmm12", "xmm13", "xmm14", "xmm15"
           : bad);
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool stream_word(void *to, u64 word) noexcept {
  asm volatile goto("1: movnti %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           :
           : "m"(*static_cast<u64 *>(to)), "r"(word)
           : "memory"
           : bad);
  return true;
bad:
  return false;
}

[[gnu::always_inline]] inline bool store_u32(void *to, u32 value) noexcept {
  asm volatile goto("1: movl %1, %0\n\t" KVPOOL_FAULT_ENTRY("1b", "%l[bad]")
           :
           : "m"(*static_cast<u32 *>(to)), "r"(value)
           : "memory"
           : bad);
  return true;
bad:
  return false;
}

// Spin-wait hint.
[[gnu::always_inline]] inline void cpu_relax() noexcept { asm volatile("pause"); }

}  // namespace kvpool::x86
