// SPDX-License-Identifier: Apache-2.0
// The verbs on mapped memory of an x86-64 host: the PoolMemory that production runs on. Owns no
// memory: backend maps the devices and keeps the mappings alive for as long as this object lives.
//
// Control-line verbs inline to their instruction behind one predictable branch on what the CPU has;
// payload goes through a table of loops (payload_ops.hpp). Any thread may call any verb. An offset
// must lie on a device this memory was made with: checking what the medium says is the caller's
// business.
#pragma once

#include <span>
#include <string>

#include "arch/memory.hpp"
#include "arch/payload_ops.hpp"
#include "arch/x86_ops.hpp"

namespace kvpool {

using x86::cpu_relax;

// How a line is written past the caches, and the width of everything else.
enum class Isa : u8 { kAuto, kSse2, kAvx2, kAvx512, kMovdir64b };
enum class FlushInsn : u8 { kAuto, kClflush, kClflushopt };

// What to use; kAuto is the best this CPU has, or what KVPOOL_ISA and KVPOOL_FLUSH in the
// environment name. Forcing one is for tests and comparisons.
struct X86Options {
  Isa isa = Isa::kAuto;
  FlushInsn flush = FlushInsn::kAuto;
};

// What was chosen: never kAuto. `vector` is the width of loads and arithmetic, kSse2 to kAvx512.
struct X86Choice {
  Isa isa = Isa::kSse2;
  Isa vector = Isa::kSse2;
  FlushInsn flush = FlushInsn::kClflush;
};

// Resolves options, environment and CPU. -EINVAL for an unknown name, -ENOTSUP for what this CPU
// cannot execute; `ret_error` then says which and what it can.
int choose_x86(const X86Options &options, X86Choice &ret_choice, std::string &ret_error);

const char *isa_name(Isa isa);
const char *flush_name(FlushInsn flush);

struct DeviceMapping {
  std::byte *base = nullptr;
  u64 bytes = 0;
};

namespace x86 {

// One thread's counters for every memory of the process, by the memory's slot. Memories beyond the
// last slot share it.
inline constexpr u32 kCounterSlots = 64;
struct ThreadCounters {
  Counters by_memory[kCounterSlots];
};
extern constinit thread_local ThreadCounters *tls_counters
    [[gnu::tls_model("initial-exec"), gnu::visibility("hidden")]];
ThreadCounters *register_thread() noexcept;

}  // namespace x86

class X86Memory {
public:
  static constexpr u32 kMaxDevices = 16;

  // Throws std::runtime_error with choose_x86's message if the environment asks for what this CPU
  // does not have, std::invalid_argument for more than kMaxDevices.
  explicit X86Memory(std::span<const DeviceMapping> devices, const X86Options &options = {});
  ~X86Memory();
  X86Memory(const X86Memory &) = delete;
  X86Memory &operator=(const X86Memory &) = delete;

  // ---- control lines ----
  bool load_line(PoolOffset off, Line &line) noexcept {
    const std::byte *p = at(off);
    bool ok;
    if (choice_.vector == Isa::kAvx512) [[likely]] {
      ok = x86::load_line_zmm(p, line);
    } else if (choice_.vector == Isa::kAvx2) {
      ok = x86::load_line_ymm(p, line);
    } else {
      ok = x86::load_line_xmm(p, line);
    }
    return ok || poisoned();
  }
  bool load_word(PoolOffset off, u64 &word) noexcept {
    return x86::load_word(at(off), word) || poisoned();
  }
  void load_lines(PoolOffset off, u64 n, Line *ret_lines, bool *ret_good) noexcept {
    const std::byte *p = at(off);
    u64 lost = 0;
    const auto load = [&](auto &&one) {
      for (u64 i = 0; i < n; ++i) {
        ret_good[i] = one(p + i * kLineBytes, ret_lines[i]);
        if (!ret_good[i]) [[unlikely]] ++lost;
      }
    };
    if (choice_.vector == Isa::kAvx512) [[likely]] {
      load([](const std::byte *from, Line &to) { return x86::load_line_zmm(from, to); });
    } else if (choice_.vector == Isa::kAvx2) {
      load([](const std::byte *from, Line &to) { return x86::load_line_ymm(from, to); });
    } else {
      load([](const std::byte *from, Line &to) { return x86::load_line_xmm(from, to); });
    }
    for (; lost > 0; --lost) poisoned();
  }
  void publish_lines(PoolOffset off, const Line *lines, u64 n) noexcept {
    counters().lines_published += n;
    std::byte *p = at(off);
    u64 lost = 0;
    const auto store = [&](auto &&one) {
      for (u64 i = 0; i < n; ++i) {
        if (!one(p + i * kLineBytes, lines[i])) [[unlikely]] ++lost;
      }
    };
    if (choice_.isa == Isa::kAvx512) [[likely]] {
      store([](std::byte *to, const Line &line) { return x86::store_words_zmm(to, line); });
    } else {
      store([this](std::byte *to, const Line &line) { return store_line(to, line); });
    }
    for (; lost > 0; --lost) poisoned();
  }
  void publish_sealed_lines(PoolOffset off, const Line *lines, const u32 *seals, u64 n) noexcept {
    counters().lines_published += n;
    std::byte *p = at(off);
    u64 lost = 0;
    const auto store = [&](auto &&one) {
      for (u64 i = 0; i < n; ++i) {
        if (!one(p + i * kLineBytes, lines[i], seals[i])) [[unlikely]] ++lost;
      }
    };
    if (choice_.isa == Isa::kAvx512) [[likely]] {
      store([](std::byte *to, const Line &line, u32 seal) {
        return x86::store_sealed_zmm(to, line, seal);
      });
    } else {
      store([this](std::byte *to, const Line &line, u32 seal) {
        return store_line(to, with_seal(line, seal));
      });
    }
    for (; lost > 0; --lost) poisoned();
  }
  void prefetch_far_lines(PoolOffset off, u64 n) noexcept {
    const std::byte *p = at(off);
    for (u64 i = 0; i < n; ++i) x86::prefetch_far(p + i * kLineBytes);
  }
  template <u32 kLines>
  u32 match_lines(PoolOffset off, u64 word) noexcept {
    const std::byte *p = at(off);
    u32 match = 0;
#pragma GCC unroll 8
    for (u32 i = 0; i < kLines; ++i) {
      u64 first = ~word;
      if (!x86::load_word(p + i * kLineBytes, first)) [[unlikely]] poisoned();
      match |= u32{first == word} << i;
    }
    return match;
  }
  void publish_line(PoolOffset off, const Line &line) noexcept {
    ++counters().lines_published;
    if (!store_line(at(off), line)) poisoned();
  }
  void publish_word(PoolOffset off, u64 word) noexcept {
    ++counters().words_published;
    if (!x86::stream_word(at(off), word)) poisoned();
  }
  // Not ordered against later stores: drain() follows where that matters.
  void ring_doorbell(PoolOffset off, u32 value) noexcept {
    ++counters().doorbells;
    std::byte *p = at(off);
    if (!x86::store_u32(p, value)) poisoned();
    flush_insn(p);
  }

  // ---- order ----
  void drain() noexcept {
    x86::sfence();
    ++counters().drains;
  }
  void drain_strict(const PoolOffset *offs, u64 n) noexcept {
    ++counters().drains_strict;
    x86::sfence();
    for (u64 i = 0; i < n; ++i) flush_insn(at(offs[i]));
    x86::mfence();
    u64 word;
    for (u64 i = 0; i < n; ++i) (void)load_word(whole_word(offs[i]), word);
  }
  void fence() noexcept {
    x86::mfence();
    ++counters().fences;
  }

  // ---- acquire ----
  void begin_wave() noexcept { x86::mfence(); }
  void flush(PoolOffset off) noexcept {
    ++counters().lines_acquired;
    flush_insn(at(off));
  }
  void flush_groups(const PoolOffset *offs, u64 n, u64 lines) noexcept {
    counters().lines_acquired += n * lines;
    if (choice_.flush == FlushInsn::kClflushopt) [[likely]] {
      for (u64 i = 0; i < n; ++i) {
        const std::byte *p = at(offs[i]);
        for (u64 k = 0; k < lines; ++k) x86::clflushopt(p + k * kLineBytes);
      }
    } else {
      for (u64 i = 0; i < n; ++i) {
        const std::byte *p = at(offs[i]);
        for (u64 k = 0; k < lines; ++k) x86::clflush(p + k * kLineBytes);
      }
    }
  }
  // A claim line is flushed with CLFLUSH, which no CPU weakens, in the same wave as other lines.
  void flush_claim(PoolOffset off) noexcept {
    ++counters().lines_acquired;
    x86::clflush(at(off));
  }
  void end_wave() noexcept {
    ++counters().round_trips;
    x86::mfence();
  }
  void end_poll() noexcept {
    x86::mfence();
    ++counters().polls;
  }
  void prefetch(PoolOffset off) noexcept { x86::prefetch(at(off)); }
  void prefetch_far(PoolOffset off) noexcept { x86::prefetch_far(at(off)); }
  void acquire(PoolOffset off, u64 bytes) noexcept {
    begin_wave();
    for_lines(off, bytes, [this](PoolOffset line) { flush(line); });
    end_wave();
  }
  void retire(PoolOffset off, u64 bytes) noexcept {
    counters().lines_retired += flush_range(off, bytes);
    x86::mfence();
    ++counters().retires;
  }

  // ---- devices ----
  // A flush drives out what an allocating port left in the cache, the fence waits for it; the load
  // comes back from the memory device behind what this host had sent there (as in drain_strict).
  void device_retire(PoolOffset off, u64 bytes) noexcept {
    if (bytes == 0) return;
    counters().lines_device_retired += flush_range(off, bytes);
    x86::mfence();
    u64 word;
    (void)load_word(whole_word(off + (bytes - 1)), word);
    ++counters().device_retires;
  }
  void device_acquire(PoolOffset off, u64 bytes) noexcept {
    x86::mfence();
    counters().lines_device_acquired += flush_range(off, bytes);
    x86::mfence();
    ++counters().device_acquires;
  }

  // ---- payload ----
  void stream_lines(PoolOffset off, const void *from, u64 n, CheckLanes *lanes,
                    u64 first_line) noexcept {
    counters().lines_streamed += n;
    if (!ops_->stream(at(off), static_cast<const std::byte *>(from), n, lanes, first_line)) {
      poisoned();
    }
  }
  bool fetch_lines(void *to, PoolOffset off, u64 n, PoolOffset ahead, CheckLanes *lanes,
                   u64 first_line) noexcept {
    counters().lines_fetched += n;
    const std::byte *flush_at = ahead == kNoOffset ? nullptr : at(ahead);
    return ops_->fetch(static_cast<std::byte *>(to), at(off), n, flush_at, lanes, first_line) ||
           poisoned();
  }
  // Copies bytes at any place out of lines that were flushed before the last fence; counts the
  // lines it touches.
  bool fetch_bytes(void *to, PoolOffset off, u64 bytes) noexcept {
    const u64 head = off.byte() % kLineBytes;
    counters().lines_fetched += (head + bytes + kLineBytes - 1) / kLineBytes;
    return ops_->fetch_bytes(static_cast<std::byte *>(to), at(off), bytes) || poisoned();
  }
  void flush_lines(PoolOffset off, u64 n) noexcept {
    counters().lines_flushed += n;
    const std::byte *p = at(off);
    for (u64 i = 0; i < n; ++i) flush_insn(p + i * kLineBytes);
  }
  // Rows in three steps: row_place of each, flush_rows of all, and behind a fence fetch_rows, which
  // copies them to places `stride` apart. A null place is left out. Nothing is stored between
  // flushes: stores wait for the flushes in front of them.
  using RowPlace = const std::byte *;
  RowPlace row_place(PoolOffset off) const noexcept { return at(off); }
  void flush_rows(const RowPlace *rows, u64 n, u64 bytes) noexcept {
    counters().lines_fetched += choice_.flush == FlushInsn::kClflushopt
                                    ? flush_rows_by<true>(rows, n, bytes)
                                    : flush_rows_by<false>(rows, n, bytes);
  }
  bool fetch_rows(std::byte *to, u64 stride, const RowPlace *rows, u64 n, u64 bytes) noexcept {
    return ops_->fetch_rows(to, stride, rows, n, bytes) || poisoned();
  }

  // ---- statistics ----
  Counters &counters() noexcept {
    x86::ThreadCounters *mine = x86::tls_counters;
    if (mine == nullptr) [[unlikely]] mine = x86::register_thread();
    return mine->by_memory[slot_];
  }
  // Sum over all threads, those that ended included, since this memory was made.
  Counters total_counters() const noexcept;

  const X86Choice &choice() const noexcept { return choice_; }
  // The loops chosen, for adding local lines to a check without copying them.
  const x86::PayloadOps &payload_ops() const noexcept { return *ops_; }
  u64 device_bytes(u32 device) const noexcept { return devices_[device % kMaxDevices].bytes; }

private:
  std::byte *at(PoolOffset off) const noexcept {
    return devices_[off.device() % kMaxDevices].base + off.byte();
  }
  static PoolOffset whole_word(PoolOffset off) noexcept {
    return PoolOffset::from_raw(off.raw() & ~u64{7});
  }
  template <class F>
  static void for_lines(PoolOffset off, u64 bytes, F &&f) noexcept {
    const u64 first = off.byte() / kLineBytes;
    const u64 end = (off.byte() + bytes + kLineBytes - 1) / kLineBytes;
    for (u64 i = first; i < end; ++i) f(PoolOffset(off.device(), i * kLineBytes));
  }
  // Nothing is counted in between: a store waits for the flushes in front of it.
  u64 flush_range(PoolOffset off, u64 bytes) noexcept {
    u64 lines = 0;
    for_lines(off, bytes, [&](PoolOffset line) {
      flush_insn(at(line));
      ++lines;
    });
    return lines;
  }
  void flush_insn(const std::byte *p) const noexcept {
    if (choice_.flush == FlushInsn::kClflushopt) [[likely]] {
      x86::clflushopt(p);
    } else {
      x86::clflush(p);
    }
  }
  template <bool kFlushOpt>
  static u64 flush_rows_by(const RowPlace *rows, u64 n, u64 bytes) noexcept {
    u64 lines = 0;
    for (u64 i = 0; i < n; ++i) {
      if (rows[i] == nullptr) continue;
      const u64 end = reinterpret_cast<u64>(rows[i]) + bytes;
      for (u64 p = reinterpret_cast<u64>(rows[i]) & ~(kLineBytes - 1); p < end; p += kLineBytes) {
        if constexpr (kFlushOpt) {
          x86::clflushopt(reinterpret_cast<const void *>(p));
        } else {
          x86::clflush(reinterpret_cast<const void *>(p));
        }
        ++lines;
      }
    }
    return lines;
  }
  bool store_line(std::byte *p, const Line &line) const noexcept {
    if (choice_.isa == Isa::kMovdir64b) return x86::store_line_movdir64b(p, &line);
    if (choice_.isa == Isa::kAvx512) return x86::store_words_zmm(p, line);
    if (choice_.isa == Isa::kAvx2) return x86::store_line_ymm(p, &line);
    return x86::store_line_xmm(p, &line);
  }
  // Counts a fault. False, so that `ok || poisoned()` is the result of a load.
  [[gnu::cold, gnu::noinline]] bool poisoned() noexcept;

  X86Choice choice_;
  u32 slot_ = 0;
  const x86::PayloadOps *ops_ = nullptr;
  DeviceMapping devices_[kMaxDevices];
  Counters before_;  // what the slot had counted for memories before this one
};

static_assert(PoolMemory<X86Memory>);

}  // namespace kvpool
