// SPDX-License-Identifier: Apache-2.0
// The environment of production: a process on a host (pool/env.hpp). Owns the memory object over
// the mappings of a Backend, which must outlive it.
#pragma once

#include <atomic>
#include <functional>
#include <ctime>
#include <mutex>

#include "arch/x86_memory.hpp"
#include "backend/backend.hpp"
#include "pool/env.hpp"

namespace kvpool::store {

inline u64 monotonic_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

class ProcessEnv {
public:
  using Memory = X86Memory;
  using Mutex = std::mutex;

  // Throws what X86Memory throws.
  explicit ProcessEnv(backend::Backend &backend);

  X86Memory &memory() noexcept { return memory_; }
  u64 now_ns() noexcept { return monotonic_ns(); }

  // SplitMix64 over a counter that starts at the kernel's randomness: any thread, no lock.
  u64 random() noexcept {
    u64 z = random_.fetch_add(0x9E3779B97F4A7C15ull, std::memory_order_relaxed);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  }

  void sleep_ns(u64 ns) noexcept;

  // A scan's work, f(0) to f(n - 1), a thread each. What one throws is thrown here.
  u32 scan_threads() const noexcept;
  void in_parallel(u32 n, const std::function<void(u32)> &f);

  // A wait polls hot at first, since an answer takes about a microsecond; then gives the processor
  // to whoever may be about to answer; then backs off to 20 us (proto 12).
  void relax(u32 index) noexcept {
    if (index < kHotPolls) {
      cpu_relax();
    } else {
      relax_slowly(index);
    }
  }

  // Over a device, the locks of this machine say nothing about member slots of other hosts: a free
  // one is no proof that its process is gone. Files and named memory are one machine's.
  void know_member_locks(u32 first, u32 end) noexcept {
    first_known_ = first;
    end_known_ = end;
  }

  bool try_lock(pool::LockKind kind, u32 index) noexcept {
    if (kind == pool::LockKind::kMember && (index < first_known_ || index >= end_known_)) {
      return false;
    }
    return backend_.locks().try_lock(lock_kind(kind), index) == 0;
  }
  void unlock(pool::LockKind kind, u32 index) noexcept {
    backend_.locks().unlock(lock_kind(kind), index);
  }

  bool revoked() const noexcept { return backend_.revoked(); }
  bool reach(PoolOffset end) noexcept;
  constexpr bool mutant(pool::Mutant) const noexcept { return false; }
  void mark(const char *) noexcept {}

private:
  static constexpr u32 kHotPolls = 128;
  static backend::LockKind lock_kind(pool::LockKind kind) {
    switch (kind) {
      case pool::LockKind::kFormat: return backend::LockKind::kFormat;
      case pool::LockKind::kHost: return backend::LockKind::kHost;
      case pool::LockKind::kMember: return backend::LockKind::kMember;
      default: return backend::LockKind::kStandby;
    }
  }
  static void relax_slowly(u32 index) noexcept;

  backend::Backend &backend_;
  X86Memory memory_;
  std::atomic<u64> random_;
  u32 first_known_ = 0, end_known_ = ~u32{0};
};

static_assert(pool::PoolEnv<ProcessEnv>);

}  // namespace kvpool::store
