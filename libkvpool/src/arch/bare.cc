// SPDX-License-Identifier: Apache-2.0
// Bare loops. Each is written over a set of instructions known when it is compiled, so that nothing
// but the instructions is in the loop.
#include "arch/bare.hpp"

#include <algorithm>

#include "arch/crc32c.hpp"

namespace kvpool::bare {
namespace {

using namespace x86;

template <Isa kIsa, FlushInsn kFlush>
struct Insn {
  [[gnu::always_inline]] static void flush(const std::byte *p) {
    if constexpr (kFlush == FlushInsn::kClflushopt) {
      clflushopt(p);
    } else {
      clflush(p);
    }
  }
  [[gnu::always_inline]] static void store(std::byte *to, const std::byte *from) {
    if constexpr (kIsa == Isa::kMovdir64b) {
      (void)store_line_movdir64b(to, from);
    } else if constexpr (kIsa == Isa::kAvx512) {
      (void)store_line_zmm(to, from);
    } else if constexpr (kIsa == Isa::kAvx2) {
      (void)store_line_ymm(to, from);
    } else {
      (void)store_line_xmm(to, from);
    }
  }
};

template <Isa kVector>
struct Load {
  [[gnu::always_inline]] static void line(std::byte *to, const std::byte *from) {
    Line &out = *reinterpret_cast<Line *>(to);
    if constexpr (kVector == Isa::kAvx512) {
      (void)load_line_zmm(from, out);
    } else if constexpr (kVector == Isa::kAvx2) {
      (void)load_line_ymm(from, out);
    } else {
      (void)load_line_xmm(from, out);
    }
  }
};

// Calls f with the types for `choice`: f.template operator()<Insn, Load>().
template <Isa kIsa, Isa kVector, class F>
auto with_flush(const X86Choice &choice, F &&f) {
  if (choice.flush == FlushInsn::kClflushopt) {
    return f.template operator()<Insn<kIsa, FlushInsn::kClflushopt>, Load<kVector>>();
  }
  return f.template operator()<Insn<kIsa, FlushInsn::kClflush>, Load<kVector>>();
}

template <class F>
auto with(const X86Choice &choice, F &&f) {
  if (choice.isa == Isa::kMovdir64b) {
    if (choice.vector == Isa::kAvx512) return with_flush<Isa::kMovdir64b, Isa::kAvx512>(choice, f);
    if (choice.vector == Isa::kAvx2) return with_flush<Isa::kMovdir64b, Isa::kAvx2>(choice, f);
    return with_flush<Isa::kMovdir64b, Isa::kSse2>(choice, f);
  }
  if (choice.isa == Isa::kAvx512) return with_flush<Isa::kAvx512, Isa::kAvx512>(choice, f);
  if (choice.isa == Isa::kAvx2) return with_flush<Isa::kAvx2, Isa::kAvx2>(choice, f);
  return with_flush<Isa::kSse2, Isa::kSse2>(choice, f);
}

template <class I>
void flush_row(const std::byte *row, u64 bytes) {
  const auto first = reinterpret_cast<u64>(row) & ~(kLineBytes - 1);
  const auto end = reinterpret_cast<u64>(row) + bytes;
  for (u64 line = first; line < end; line += kLineBytes) {
    I::flush(reinterpret_cast<const std::byte *>(line));
  }
}

const PayloadOps &row_copy(const X86Choice &choice) {
  return choice.vector == Isa::kAvx512 ? kAvx512Ops[0][0]
         : choice.vector == Isa::kAvx2 ? kAvx2Ops[0][0]
                                       : kSse2Ops[0][0];
}

constexpr u32 kSeed = 0x6B76706Fu;

}  // namespace

void stream(const X86Choice &choice, std::byte *to, const std::byte *from, u64 lines) {
  with(choice, [&]<class I, class L>() {
    for (u64 i = 0; i < lines; ++i) I::store(to + i * kLineBytes, from + i * kLineBytes);
  });
  sfence();
}

void read_ahead(const X86Choice &choice, std::byte *to, const std::byte *from, u64 lines,
                u64 window_bytes) {
  const u64 window = window_bytes / kLineBytes;
  with(choice, [&]<class I, class L>() {
    mfence();
    for (u64 i = 0; i < std::min(window, lines); ++i) I::flush(from + i * kLineBytes);
    mfence();
    for (u64 first = 0; first < lines; first += window) {
      const u64 end = std::min(first + window, lines);
      const u64 ahead = std::min(end + window, lines) - end;
      u64 i = first;
      for (; i < std::min(first + ahead, end); ++i) {
        L::line(to + i * kLineBytes, from + i * kLineBytes);
        I::flush(from + i * kLineBytes + window_bytes);
      }
      for (; i < end; ++i) L::line(to + i * kLineBytes, from + i * kLineBytes);
      if (end < lines) mfence();
    }
  });
}

void read_plain(const X86Choice &choice, std::byte *to, const std::byte *from, u64 lines,
                u64 window_bytes) {
  const u64 window = window_bytes / kLineBytes;
  with(choice, [&]<class I, class L>() {
    mfence();
    for (u64 first = 0; first < lines; first += window) {
      const u64 end = std::min(first + window, lines);
      for (u64 i = first; i < end; ++i) I::flush(from + i * kLineBytes);
      mfence();
      for (u64 i = first; i < end; ++i) L::line(to + i * kLineBytes, from + i * kLineBytes);
    }
  });
}

u64 random_lines(const X86Choice &choice, const std::byte *base, std::span<const u64> lines,
                 Ahead how) {
  constexpr u64 kFarLines = 128;
  return with(choice, [&]<class I, class L>() {
    mfence();
    for (const u64 line : lines) I::flush(base + line * kLineBytes);
    mfence();
    if (how == Ahead::kAll) {
      for (const u64 line : lines) x86::prefetch(base + line * kLineBytes);
    }
    const u64 far = how == Ahead::kFar ? lines.size() : 0;  // how many are asked for far
    for (u64 i = 0; i < std::min(kFarLines, far); ++i) prefetch_far(base + lines[i] * kLineBytes);
    u64 sum = 0;
    for (u64 i = 0; i < lines.size(); ++i) {
      if (i + kFarLines < far) prefetch_far(base + lines[i + kFarLines] * kLineBytes);
      u64 word = 0;
      (void)load_word(base + lines[i] * kLineBytes, word);
      sum += word;
    }
    return sum;
  });
}

void row_by_row(const X86Choice &choice, std::byte *to, const std::byte *base,
                std::span<const u64> offsets, u64 row_bytes) {
  const PayloadOps &ops = row_copy(choice);
  with(choice, [&]<class I, class L>() {
    for (u64 i = 0; i < offsets.size(); ++i) {
      mfence();
      flush_row<I>(base + offsets[i], row_bytes);
      mfence();
      (void)ops.fetch_bytes(to + i * row_bytes, base + offsets[i], row_bytes);
    }
  });
}

void rows_batched(const X86Choice &choice, std::byte *to, const std::byte *base,
                  std::span<const u64> offsets, u64 row_bytes) {
  mfence();
  with(choice, [&]<class I, class L>() {
    for (const u64 offset : offsets) flush_row<I>(base + offset, row_bytes);
  });
  mfence();
  rows_cached(choice, to, base, offsets, row_bytes);
}

void rows_cached(const X86Choice &choice, std::byte *to, const std::byte *base,
                 std::span<const u64> offsets, u64 row_bytes) {
  constexpr u64 kAhead = 26;  // rows on their way while one is copied
  const PayloadOps &ops = row_copy(choice);
  for (u64 i = 0; i < offsets.size(); ++i) {
    if (i + kAhead < offsets.size()) {
      const std::byte *row = base + offsets[i + kAhead];
      for (u64 at = 0; at < row_bytes + kLineBytes - 1; at += kLineBytes) prefetch_far(row + at);
    }
    (void)ops.fetch_bytes(to + i * row_bytes, base + offsets[i], row_bytes);
  }
}

namespace {
Line numbered(u64 number) {
  Line ret{{number, 0, 0, 0, 0, 0, 0, 0}};
  ret.w[7] = u64{crc32c_line60(kSeed, ret)} << 32;
  return ret;
}
bool has_number(const Line &line, u64 number) {
  return line.w[0] == number && crc32c_line60(kSeed, line) == line.w[7] >> 32;
}
}  // namespace

void post(const X86Choice &choice, std::byte *line, u64 number) {
  const Line out = numbered(number);
  with(choice,
       [&]<class I, class L>() { I::store(line, reinterpret_cast<const std::byte *>(&out)); });
  sfence();
}

bool await(const X86Choice &choice, const std::byte *line, u64 number, u64 polls_max) {
  return with(choice, [&]<class I, class L>() {
    Line in{};
    for (u64 polls = 0; polls < polls_max; ++polls) {
      mfence();
      I::flush(line);
      mfence();
      L::line(reinterpret_cast<std::byte *>(&in), line);
      if (has_number(in, number)) return true;
    }
    return false;
  });
}

void post_many(const X86Choice &choice, std::byte *ring, u64 mask, u64 first, u64 n) {
  with(choice, [&]<class I, class L>() {
    for (u64 i = first; i < first + n; ++i) {
      const Line out = numbered(i + 1);
      I::store(ring + (i & mask) * kLineBytes, reinterpret_cast<const std::byte *>(&out));
    }
  });
  sfence();
}

u64 arrived(const X86Choice &choice, const std::byte *ring, u64 mask, u64 next, u64 most) {
  return with(choice, [&]<class I, class L>() {
    mfence();
    for (u64 i = 0; i < most; ++i) I::flush(ring + ((next + i) & mask) * kLineBytes);
    mfence();
    for (u64 i = 0; i < most; ++i) x86::prefetch(ring + ((next + i) & mask) * kLineBytes);
    u64 ret = 0;
    for (; ret < most; ++ret) {
      Line in{};
      L::line(reinterpret_cast<std::byte *>(&in), ring + ((next + ret) & mask) * kLineBytes);
      if (!has_number(in, next + ret + 1)) break;
    }
    return ret;
  });
}

void decide(const X86Choice &choice, std::byte *table, std::byte *mirror,
            std::span<const u64> places) {
  if (places.empty()) return;
  with(choice, [&]<class I, class L>() {
    for (const u64 place : places) x86::prefetch(mirror + place * kLineBytes);
    for (const u64 place : places) {
      Line &copy = *reinterpret_cast<Line *>(mirror + place * kLineBytes);
      copy = numbered(copy.w[0] + 1);
      I::store(table + place * kLineBytes, reinterpret_cast<const std::byte *>(&copy));
    }
  });
  (void)acquire_lines(choice, table + places.back() * kLineBytes, 1);
}

u32 acquire_lines(const X86Choice &choice, const std::byte *lines, u64 n) {
  return with(choice, [&]<class I, class L>() {
    mfence();
    for (u64 i = 0; i < n; ++i) I::flush(lines + i * kLineBytes);
    mfence();
    for (u64 i = 0; i < n; ++i) x86::prefetch(lines + i * kLineBytes);
    u32 sum = 0;
    for (u64 i = 0; i < n; ++i) {
      Line in;
      L::line(reinterpret_cast<std::byte *>(&in), lines + i * kLineBytes);
      sum += crc32c_line60(kSeed + static_cast<u32>(i), in);
    }
    return sum;
  });
}

void copy_forward(const X86Choice &choice, std::byte *to, std::byte *mirror, const std::byte *from,
                  u64 lines) {
  constexpr u64 kWindow = 1024, kGroup = 4;
  with(choice, [&]<class I, class L>() {
    const auto flush = [&](u64 first) {
      for (u64 i = first; i < std::min(first + kWindow, lines); ++i)
        I::flush(from + i * kLineBytes);
    };
    u32 wrong = 0;
    mfence();
    flush(0);
    for (u64 first = 0; first < lines; first += kWindow) {
      mfence();
      flush(first + kWindow);
      for (u64 g = first; g < std::min(first + kWindow, lines); g += kGroup) {
        Line in[kGroup];
        const Line *const four[kGroup] = {&in[0], &in[1], &in[2], &in[3]};
        const u32 read_with[kGroup] = {kSeed, kSeed, kSeed, kSeed};
        const u32 written_with[kGroup] = {kSeed + 1, kSeed + 2, kSeed + 3, kSeed + 4};
        u32 crc[kGroup];
        for (u64 i = 0; i < kGroup; ++i) {
          L::line(reinterpret_cast<std::byte *>(&in[i]), from + (g + i) * kLineBytes);
        }
        crc4(read_with, four, crc);
        for (u64 i = 0; i < kGroup; ++i) wrong += crc[i] != in[i].w[7] >> 32;
        in[0].w[6] += wrong != 0;
        crc4(written_with, four, crc);
        for (u64 i = 0; i < kGroup; ++i) {
          in[i].w[7] = u64{crc[i]} << 32 | static_cast<u32>(in[i].w[7]);
          I::store(to + (g + i) * kLineBytes, reinterpret_cast<const std::byte *>(&in[i]));
        }
        for (u64 i = 0; i < 2; ++i) {
          I::store(mirror + (g / 2 + i) * kLineBytes, reinterpret_cast<const std::byte *>(&in[i]));
        }
      }
    }
  });
  sfence();
}

}  // namespace kvpool::bare
