// SPDX-License-Identifier: Apache-2.0
// The payload loops, written once over a vector type V; included only by the files that are
// compiled for one instruction set. Everything is always_inline or in an anonymous namespace: a
// function that left such a file under a common name could be linked into code that runs on a
// lesser CPU.
//
// V has: Reg, kParts (registers a line), load_local, load_pool (false on a fault), store_local,
// stream (false on a fault), and the arithmetic of the check: zero, load_words, store_words, add,
// xor_, low_high (lo(u) * hi(u)), low_cross (lo(u_k) * hi(u_{k^1})).
#pragma once

#include "arch/payload_ops.hpp"
#include "arch/x86_ops.hpp"
#include "arch/check_keys.hpp"

namespace kvpool::x86 {
namespace {

#define KVPOOL_INLINE [[gnu::always_inline]] inline

// Calls f for each part of a line, written out so that registers stay registers with any compiler.
// The second form stops where f says false.
#define KVPOOL_EACH [&](int i) __attribute__((always_inline))
template <int kParts, class F>
KVPOOL_INLINE void each(F &&f) noexcept {
  f(0);
  if constexpr (kParts >= 2) f(1);
  if constexpr (kParts == 4) f(2), f(3);
}
template <int kParts, class F>
KVPOOL_INLINE bool each_good(F &&f) noexcept {
  if constexpr (kParts == 1) return f(0);
  if constexpr (kParts == 2) return f(0) && f(1);
  if constexpr (kParts == 4) return f(0) && f(1) && f(2) && f(3);
}

// The lanes of the check in registers while a loop runs.
template <class V>
struct Lanes {
  typename V::Reg p[V::kParts], q[V::kParts], d[V::kParts], key[V::kParts], step[V::kParts];

  KVPOOL_INLINE void begin(const CheckLanes &lanes, u64 first_line) noexcept {
    constexpr int kWords = 8 / V::kParts;
    alignas(kLineBytes) u64 first[8];
    for (int k = 0; k < 8; ++k) first[k] = kCheckBase[k] + first_line * kCheckStep[k];
    each<V::kParts>(KVPOOL_EACH {
      p[i] = V::load_words(lanes.p + i * kWords);
      q[i] = V::load_words(lanes.q + i * kWords);
      d[i] = V::load_words(lanes.d + i * kWords);
      key[i] = V::load_words(first + i * kWords);
      step[i] = V::load_words(kCheckStep + i * kWords);
    });
  }
  KVPOOL_INLINE void add(const typename V::Reg (&w)[V::kParts]) noexcept {
    each<V::kParts>(KVPOOL_EACH {
      const typename V::Reg u = V::xor_(w[i], key[i]);
      p[i] = V::add(p[i], V::low_high(u));
      q[i] = V::add(q[i], V::low_cross(u));
      d[i] = V::add(d[i], w[i]);
      key[i] = V::add(key[i], step[i]);
    });
  }
  KVPOOL_INLINE void end(CheckLanes &lanes) const noexcept {
    constexpr int kWords = 8 / V::kParts;
    each<V::kParts>(KVPOOL_EACH {
      V::store_words(lanes.p + i * kWords, p[i]);
      V::store_words(lanes.q + i * kWords, q[i]);
      V::store_words(lanes.d + i * kWords, d[i]);
    });
  }
};

struct NoLanes {
  KVPOOL_INLINE void begin(const CheckLanes &, u64) noexcept {}
  template <class Words>
  KVPOOL_INLINE void add(const Words &) noexcept {}
  KVPOOL_INLINE void end(CheckLanes &) const noexcept {}
};

template <class V>
KVPOOL_INLINE void load_local(typename V::Reg (&w)[V::kParts], const std::byte *from) noexcept {
  constexpr u64 kBytes = kLineBytes / V::kParts;
  each<V::kParts>(KVPOOL_EACH { w[i] = V::load_local(from + i * kBytes); });
}

template <class V>
KVPOOL_INLINE void store_local(std::byte *to, const typename V::Reg (&w)[V::kParts]) noexcept {
  constexpr u64 kBytes = kLineBytes / V::kParts;
  each<V::kParts>(KVPOOL_EACH { V::store_local(to + i * kBytes, w[i]); });
}

template <class V>
KVPOOL_INLINE bool load_pool(typename V::Reg (&w)[V::kParts], const std::byte *from) noexcept {
  constexpr u64 kBytes = kLineBytes / V::kParts;
  return each_good<V::kParts>(KVPOOL_EACH { return V::load_pool(from + i * kBytes, w[i]); });
}

template <class V, class L, bool kMovdir>
KVPOOL_INLINE bool stream_loop(std::byte *to, const std::byte *from, u64 n, CheckLanes &sums,
                               u64 first_line) noexcept {
  constexpr u64 kBytes = kLineBytes / V::kParts;
  L lanes;
  lanes.begin(sums, first_line);
  for (; n > 0; --n, to += kLineBytes, from += kLineBytes) {
    typename V::Reg w[V::kParts];
    load_local<V>(w, from);
    if constexpr (kMovdir) {
      if (!store_line_movdir64b(to, from)) return false;
    } else {
      const bool good =
          each_good<V::kParts>(KVPOOL_EACH { return V::stream(to + i * kBytes, w[i]); });
      if (!good) return false;
    }
    lanes.add(w);
  }
  lanes.end(sums);
  return true;
}

template <class V, bool kMovdir>
bool stream(std::byte *to, const std::byte *from, u64 n, CheckLanes *lanes,
            u64 first_line) noexcept {
  if (lanes != nullptr) return stream_loop<V, Lanes<V>, kMovdir>(to, from, n, *lanes, first_line);
  CheckLanes unused;
  return stream_loop<V, NoLanes, kMovdir>(to, from, n, unused, 0);
}

template <bool kFlushOpt>
KVPOOL_INLINE void flush_line(const std::byte *p) noexcept {
  if constexpr (kFlushOpt) {
    clflushopt(p);
  } else {
    clflush(p);
  }
}

template <class V, class L, bool kAhead, bool kFlushOpt>
KVPOOL_INLINE bool fetch_loop(std::byte *to, const std::byte *from, u64 n, const std::byte *ahead,
                              CheckLanes &sums, u64 first_line) noexcept {
  L lanes;
  lanes.begin(sums, first_line);
  for (u64 i = 0; i < n; ++i, to += kLineBytes, from += kLineBytes) {
    typename V::Reg w[V::kParts];
    if (!load_pool<V>(w, from)) return false;
    if constexpr (kAhead) {
      flush_line<kFlushOpt>(ahead);
      ahead += kLineBytes;
    }
    store_local<V>(to, w);
    lanes.add(w);
  }
  lanes.end(sums);
  return true;
}

template <class V, bool kFlushOpt>
bool fetch(std::byte *to, const std::byte *from, u64 n, const std::byte *ahead, CheckLanes *lanes,
           u64 first_line) noexcept {
  if (lanes != nullptr) {
    if (ahead != nullptr) {
      return fetch_loop<V, Lanes<V>, true, kFlushOpt>(to, from, n, ahead, *lanes, first_line);
    }
    return fetch_loop<V, Lanes<V>, false, kFlushOpt>(to, from, n, ahead, *lanes, first_line);
  }
  CheckLanes unused;
  if (ahead != nullptr) {
    return fetch_loop<V, NoLanes, true, kFlushOpt>(to, from, n, ahead, unused, 0);
  }
  return fetch_loop<V, NoLanes, false, kFlushOpt>(to, from, n, ahead, unused, 0);
}

// Pieces of at most one register, the last one overlapping the one before, so that a row costs few
// and always the same instructions. Nothing outside [from, from + bytes) is read.
template <class V>
KVPOOL_INLINE bool copy_bytes(std::byte *to, const std::byte *from, u64 bytes) noexcept {
  constexpr u64 kBytes = kLineBytes / V::kParts;
  typename V::Reg w;
  if (bytes >= kBytes) [[likely]] {
    const u64 last = bytes - kBytes;
    for (u64 at = 0; at < last; at += kBytes) {
      if (!V::load_pool(from + at, w)) return false;
      V::store_local(to + at, w);
    }
    if (!V::load_pool(from + last, w)) return false;
    V::store_local(to + last, w);
    return true;
  }
  u64 word = 0;
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8) {
    if (!load_word(from, word)) return false;
    __builtin_memcpy(to, &word, 8);
  }
  for (; bytes > 0; --bytes, ++to, ++from) {
    if (!load_byte(from, *to)) return false;
  }
  return true;
}

template <class V>
bool fetch_bytes(std::byte *to, const std::byte *from, u64 bytes) noexcept {
  return copy_bytes<V>(to, from, bytes);
}

// Lines on their way while rows are copied: as many as the second level has room for. Rows then
// come half as fast again as with the misses of the first level alone.
inline constexpr u64 kRowLinesAhead = 80;

KVPOOL_INLINE void ask_for_row(const std::byte *row, u64 bytes) noexcept {
  if (row == nullptr) return;
  const u64 end = reinterpret_cast<u64>(row) + bytes;
  for (u64 p = reinterpret_cast<u64>(row) & ~(kLineBytes - 1); p < end; p += kLineBytes) {
    prefetch_far(reinterpret_cast<const void *>(p));
  }
}

template <class V>
bool fetch_rows(std::byte *to, u64 stride, const std::byte *const *rows, u64 n,
                u64 bytes) noexcept {
  const u64 ahead = kRowLinesAhead / (bytes / kLineBytes + 1);  // 0: rows long enough to run on
  for (u64 i = 0; i < ahead && i < n; ++i) ask_for_row(rows[i], bytes);
  for (u64 i = 0; i < n; ++i, to += stride) {
    if (ahead != 0 && i + ahead < n) ask_for_row(rows[i + ahead], bytes);
    if (rows[i] != nullptr && !copy_bytes<V>(to, rows[i], bytes)) return false;
  }
  return true;
}

template <class V>
void add_lines(CheckLanes &sums, const std::byte *lines, u64 n, u64 first_line) noexcept {
  Lanes<V> lanes;
  lanes.begin(sums, first_line);
  for (u64 i = 0; i < n; ++i, lines += kLineBytes) {
    typename V::Reg w[V::kParts];
    load_local<V>(w, lines);
    lanes.add(w);
  }
  lanes.end(sums);
}

template <class V, bool kMovdir, bool kFlushOpt>
inline constexpr PayloadOps kOps{stream<V, kMovdir>, fetch<V, kFlushOpt>, fetch_bytes<V>,
                                 fetch_rows<V>, add_lines<V>};

}  // namespace
}  // namespace kvpool::x86
