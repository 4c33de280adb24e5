// SPDX-License-Identifier: Apache-2.0
// The verbs (protocol.md 4) as a C++20 concept. Production code runs over X86Memory, the
// simulator's over SimMemory; protocol code is written once, as templates over this concept.
//
// A wave is a batch of line acquisitions that share one pair of fences: begin_wave(),
// flush(line)..., end_wave(), then loads. It costs one serial fabric round trip, which end_wave()
// counts.
#pragma once

#include <concepts>

#include "arch/check.hpp"
#include "arch/types.hpp"

namespace kvpool {

// Counts of what crossed the fabric, for one thread. Plain words: each thread has its own copy and
// a reader of statistics adds them up (relaxed loads of aligned words never tear).
struct Counters {
  u64 lines_acquired = 0;   // flushed in order to be read afresh: control lines
  u64 lines_published = 0;  // whole control lines written
  u64 words_published = 0;  // single words of control lines written
  u64 doorbells = 0;
  u64 lines_streamed = 0;   // payload lines written past the caches
  u64 lines_fetched = 0;    // payload lines flushed and read
  u64 lines_flushed = 0;    // payload lines flushed by themselves, in front of a window
  u64 lines_retired = 0;    // written back and forgotten
  u64 retires = 0;          // calls
  u64 lines_device_retired = 0;  // after a device wrote them
  u64 device_retires = 0;        // calls
  u64 lines_device_acquired = 0;  // before a device reads them
  u64 device_acquires = 0;        // calls
  u64 round_trips = 0;      // serial waves waited for (see wave)
  u64 polls = 0;            // waves that whoever waits counts as one
  u64 message_pairs = 0;    // requests whose answer was waited for
  u64 data_waves = 0;       // payload reads, each one stream of overlapped lines
  u64 drains = 0;
  u64 drains_strict = 0;
  u64 fences = 0;           // between payload windows
  u64 poison_hits = 0;
};

// Each of them, for sums and differences.
inline constexpr u64 Counters::*kCounters[] = {
    &Counters::lines_acquired,        &Counters::lines_published, &Counters::words_published,
    &Counters::doorbells,             &Counters::lines_streamed,  &Counters::lines_fetched,
    &Counters::lines_flushed,         &Counters::lines_retired,   &Counters::retires,
    &Counters::lines_device_retired,  &Counters::device_retires,
    &Counters::lines_device_acquired, &Counters::device_acquires, &Counters::round_trips,
    &Counters::polls,                 &Counters::message_pairs,   &Counters::data_waves,
    &Counters::drains,                &Counters::drains_strict,   &Counters::fences,
    &Counters::poison_hits};
static_assert(sizeof kCounters / sizeof kCounters[0] == sizeof(Counters) / sizeof(u64));

template <class M>
concept PoolMemory = requires(M m, const M cm, PoolOffset off, const PoolOffset *offs, Line &line,
                              const Line &cline, u64 n, u64 &word, void *dst, const void *src,
                              CheckLanes *lanes) {
  // Control lines. A load returns false on poison or a lost device; `line` is then untouched.
  { m.load_line(off, line) } noexcept -> std::same_as<bool>;   // one 64-byte load, or two halves
  { m.load_word(off, word) } noexcept -> std::same_as<bool>;   // aligned 8 bytes, never torn
  { m.publish_line(off, cline) } noexcept -> std::same_as<void>;  // one 64-byte streaming store
  { m.publish_word(off, n) } noexcept -> std::same_as<void>;   // aligned 8 bytes, sole writer
  // Shared doorbell line: store 4 bytes and write the line back (the one line with several
  // writers).
  { m.ring_doorbell(off, u32{}) } noexcept -> std::same_as<void>;

  // Order.
  { m.drain() } noexcept -> std::same_as<void>;  // visible in this host's domain
  // On the medium: `offs` names the last line written on each device.
  { m.drain_strict(offs, n) } noexcept -> std::same_as<void>;

  // Acquire.
  { m.begin_wave() } noexcept -> std::same_as<void>;  // full fence
  { m.flush(off) } noexcept -> std::same_as<void>;    // one line, unordered inside the wave
  { m.end_wave() } noexcept -> std::same_as<void>;    // full fence; counts one round trip
  { m.end_poll() } noexcept -> std::same_as<void>;    // the same for a poll: counted by the waiter
  { m.prefetch(off) } noexcept -> std::same_as<void>;
  // The same for one of many: more of these are on their way at a time, to a farther cache.
  { m.prefetch_far(off) } noexcept -> std::same_as<void>;
  { m.acquire(off, n) } noexcept -> std::same_as<void>;  // a wave over [off, off + n)
  { m.retire(off, n) } noexcept -> std::same_as<void>;   // write back and forget [off, off + n)

  // Devices of this host (GPU, DMA engine), whose root port may let their writes stay in this
  // host's cache, and their reads hit what it holds. The range lies on one pool device.
  // What a device wrote there is on the medium. The caller has waited until the device was done.
  { m.device_retire(off, n) } noexcept -> std::same_as<void>;
  // What a device reads there from now on comes from the medium. The caller starts it afterwards.
  { m.device_acquire(off, n) } noexcept -> std::same_as<void>;

  // Payload: `n` whole lines. `lanes` may be null; else each line is added to the order-free
  // segment check with its index in the segment, starting at `first_line`. Local memory has any
  // alignment.
  { m.stream_lines(off, src, n, lanes, n /*first_line*/) } noexcept -> std::same_as<void>;
  // Copies n lines from `off` and, line by line, flushes n lines from `ahead` (kNoOffset: none).
  // The lines at `off` must have been flushed before the last fence. False on poison.
  { m.fetch_lines(dst, off, n, off /*ahead*/, lanes, n) } noexcept -> std::same_as<bool>;
  { m.flush_lines(off, n) } noexcept -> std::same_as<void>;  // payload, unordered
  { m.fence() } noexcept -> std::same_as<void>;              // full fence between windows

  { m.counters() } noexcept -> std::same_as<Counters &>;  // this thread's
};

// Flushes `lines` lines at each of n places, inside a wave. The way to flush many: a memory that
// has it as a verb stores nothing in between, since a store waits for the flushes in front of it
// (on one machine counting each flush by itself made a look-up a third slower).
template <PoolMemory M>
void flush_groups(M &mem, const PoolOffset *offs, u64 n, u64 lines) noexcept {
  if constexpr (requires { mem.flush_groups(offs, n, lines); }) {
    mem.flush_groups(offs, n, lines);
  } else {
    for (u64 i = 0; i < n; ++i) {
      for (u64 k = 0; k < lines; ++k) mem.flush(offs[i] + k * kLineBytes);
    }
  }
}

// Loads n lines that follow each other; good[i] says whether line i could be read. Verbs of their
// own, here and below, look once at where the lines lie and at how this CPU loads and stores.
template <PoolMemory M>
void load_lines(M &mem, PoolOffset off, u64 n, Line *ret_lines, bool *ret_good) noexcept {
  if constexpr (requires { mem.load_lines(off, n, ret_lines, ret_good); }) {
    mem.load_lines(off, n, ret_lines, ret_good);
  } else {
    for (u64 i = 0; i < n; ++i) ret_good[i] = mem.load_line(off + i * kLineBytes, ret_lines[i]);
  }
}

template <PoolMemory M>
void publish_lines(M &mem, PoolOffset off, const Line *lines, u64 n) noexcept {
  if constexpr (requires { mem.publish_lines(off, lines, n); }) {
    mem.publish_lines(off, lines, n);
  } else {
    for (u64 i = 0; i < n; ++i) mem.publish_line(off + i * kLineBytes, lines[i]);
  }
}

// The same with these last four bytes each: sealed on their way.
template <PoolMemory M>
void publish_sealed_lines(M &mem, PoolOffset off, const Line *lines, const u32 *seals,
                          u64 n) noexcept {
  if constexpr (requires { mem.publish_sealed_lines(off, lines, seals, n); }) {
    mem.publish_sealed_lines(off, lines, seals, n);
  } else {
    for (u64 i = 0; i < n; ++i) {
      mem.publish_line(off + i * kLineBytes, with_seal(lines[i], seals[i]));
    }
  }
}

template <PoolMemory M>
void prefetch_far_lines(M &mem, PoolOffset off, u64 n) noexcept {
  if constexpr (requires { mem.prefetch_far_lines(off, n); }) {
    mem.prefetch_far_lines(off, n);
  } else {
    for (u64 i = 0; i < n; ++i) mem.prefetch_far(off + i * kLineBytes);
  }
}

// Which of kLines lines at `off`, acquired before, begin with `word`: bit i stands for line i, 0
// for one that faults. As a verb of its own, a memory keeps more loads in flight.
template <u32 kLines, PoolMemory M>
u32 match_lines(M &mem, PoolOffset off, u64 word) noexcept {
  if constexpr (requires { mem.template match_lines<kLines>(off, word); }) {
    return mem.template match_lines<kLines>(off, word);
  } else {
    u32 match = 0;
    for (u32 i = 0; i < kLines; ++i) {
      u64 first = ~word;
      if (mem.load_word(off + i * kLineBytes, first)) match |= u32{first == word} << i;
    }
    return match;
  }
}

// Flushes a claim or superblock line inside a wave: with CLFLUSH where the memory tells it apart.
template <PoolMemory M>
void flush_claim(M &mem, PoolOffset off) noexcept {
  if constexpr (requires { mem.flush_claim(off); }) {
    mem.flush_claim(off);
  } else {
    mem.flush(off);
  }
}

}  // namespace kvpool
