// SPDX-License-Identifier: Apache-2.0
// A process of the simulated rack as the pool layer sees the world: memory, clock, chance, file
// locks, waiting. One object a simulated process.
#pragma once

#include "pool/env.hpp"
#include "sim_memory.hpp"

namespace kvpool::sim {

// The one rack of this program; mutexes need it and are default-constructed by production code.
Sim &rack();
void set_rack(Sim *sim);

class SimEnv {
public:
  using Memory = SimMemory;

  // Between threads of one process. Waiters wake in any order; may be overtaken.
  class Mutex {
  public:
    void lock() {
      rack().step(20, "lock mutex");
      while (held_ && rack().alive(holder_)) rack().block_for(this, holder_);
      take();
    }
    bool try_lock() {
      rack().step(20, "try mutex");
      if (held_ && rack().alive(holder_)) return false;
      take();
      return true;
    }
    void unlock() {
      held_ = false;
      rack().wake(this, false);
    }

  private:
    void take() {
      held_ = true;
      holder_ = rack().current_process();
    }
    bool held_ = false;
    ProcessId holder_ = 0;
  };

  // Locks are those of one machine: another one that uses the same host id does not see them.
  explicit SimEnv(Sim &sim, u32 machine = 0) : sim_(&sim), memory_(sim), machine_(machine) {}

  SimMemory &memory() noexcept { return memory_; }
  u64 now_ns() noexcept;
  u64 random() noexcept { return sim_->rng().next(); }
  void sleep_ns(u64 ns) noexcept { sim_->sleep_host(ns); }
  void relax(u32 index) noexcept;
  bool try_lock(pool::LockKind kind, u32 index) noexcept {
    return sim_->try_lock(u64{machine_} << 48 | lock_id(kind, index));
  }
  void unlock(pool::LockKind kind, u32 index) noexcept {
    sim_->unlock(u64{machine_} << 48 | lock_id(kind, index));
  }
  bool revoked() noexcept { return revoked_; }
  bool reach(PoolOffset end) noexcept { return memory_.reach(end); }
  bool mutant(pool::Mutant which) const noexcept {
    return sim_->options().mutant == static_cast<u32>(which);
  }
  void mark(const char *name) noexcept {
    MarkRegistry::hit_named(name);
    sim_->marked(name);
  }

  void revoke() { revoked_ = true; }
  static u64 lock_id(pool::LockKind kind, u32 index) {
    return u64{static_cast<u32>(kind)} << 32 | index;
  }

private:
  Sim *sim_;
  SimMemory memory_;
  u32 machine_ = 0;
  bool revoked_ = false;
};

static_assert(pool::PoolEnv<SimEnv>);

}  // namespace kvpool::sim
