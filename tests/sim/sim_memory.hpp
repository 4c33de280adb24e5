// SPDX-License-Identifier: Apache-2.0
// The verbs over the simulated fabric: what production templates are instantiated with. One object
// a process; the thread that calls is the scheduler's current one. Every verb is a point where
// another thread may run, so nothing between two verbs is atomic but what the hardware makes so.
#pragma once

#include "arch/memory.hpp"
#include "sim.hpp"

namespace kvpool::sim {

class SimMemory {
public:
  explicit SimMemory(Sim &sim) : sim_(&sim), mapped_(sim.files()) {}

  // Maps the files as far as they reach now. What is not mapped must not be touched.
  bool reach(PoolOffset end) noexcept;

  bool load_line(PoolOffset off, Line &line) noexcept;
  bool load_word(PoolOffset off, u64 &word) noexcept;
  void publish_line(PoolOffset off, const Line &line) noexcept;
  void publish_word(PoolOffset off, u64 word) noexcept;
  void ring_doorbell(PoolOffset off, u32 value) noexcept;

  void drain() noexcept;
  void drain_strict(const PoolOffset *offs, u64 n) noexcept;

  void begin_wave() noexcept;
  void flush(PoolOffset off) noexcept;
  void end_wave() noexcept;
  void end_poll() noexcept;
  void prefetch(PoolOffset off) noexcept;
  void prefetch_far(PoolOffset off) noexcept { prefetch(off); }
  void acquire(PoolOffset off, u64 bytes) noexcept;
  void retire(PoolOffset off, u64 bytes) noexcept;
  void device_retire(PoolOffset off, u64 bytes) noexcept;
  void device_acquire(PoolOffset off, u64 bytes) noexcept;

  void stream_lines(PoolOffset off, const void *src, u64 n, CheckLanes *lanes,
                    u64 first_line) noexcept;
  bool fetch_lines(void *dst, PoolOffset off, u64 n, PoolOffset ahead, CheckLanes *lanes,
                   u64 first_line) noexcept;
  void flush_lines(PoolOffset off, u64 n) noexcept;
  void fence() noexcept;

  Counters &counters() noexcept { return sim_->counters(); }
  Sim &sim() { return *sim_; }

private:
  u32 thread() const { return sim_->current_world_thread(); }
  void stream_whole(PoolOffset off, const Line &line);
  void touch(PoolOffset off, bool store);

  Sim *sim_;
  std::vector<u64> mapped_;  // bytes of each device; none: all of them
};

static_assert(PoolMemory<SimMemory>);

}  // namespace kvpool::sim
