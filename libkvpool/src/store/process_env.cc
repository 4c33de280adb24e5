// SPDX-License-Identifier: Apache-2.0
#include "store/process_env.hpp"

#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "store/quiet_threads.hpp"

namespace kvpool::store {

namespace {

std::vector<DeviceMapping> mappings(const backend::Backend &backend) {
  std::vector<DeviceMapping> out;
  for (const backend::DeviceSpan &d : backend.devices()) out.push_back({d.base, d.bytes});
  return out;
}

u64 random_start() {
  u64 seed = 0;
  if (getrandom(&seed, sizeof seed, 0) != static_cast<ssize_t>(sizeof seed)) {
    // Early in boot only; incarnations then still differ by time and by address.
    seed = monotonic_ns() ^ reinterpret_cast<std::uintptr_t>(&seed) << 20;
  }
  return seed;
}

}  // namespace

ProcessEnv::ProcessEnv(backend::Backend &backend)
    : backend_(backend), memory_(mappings(backend)), random_(random_start()) {}

// Grown memory is mapped behind what was there, in address space kept for it: no pointer changes.
bool ProcessEnv::reach(PoolOffset end) noexcept {
  try {
    return backend_.extend(end.device(), end.byte()).ok();
  } catch (...) {  // no memory for the sentence that says why
    return false;
  }
}

void ProcessEnv::sleep_ns(u64 ns) noexcept {
  constexpr u64 kYieldBelowNs = 1'000;  // no timer is that exact
  if (ns < kYieldBelowNs) {
    sched_yield();
    return;
  }
  const timespec t{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&t, nullptr);
}

u32 ProcessEnv::scan_threads() const noexcept {
  constexpr int kMost = 8;  // more read no faster than one link to the pool can bring
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 1;
  return static_cast<u32>(std::clamp(CPU_COUNT(&mine), 1, kMost));
}

void ProcessEnv::in_parallel(u32 n, const std::function<void(u32)> &f) {
  std::vector<std::exception_ptr> thrown(n);
  const auto run = [&](u32 i) noexcept {
    try {
      f(i);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(n);
  {
    const QuietThreads quiet;
    for (u32 i = 1; i < n; ++i) {
      try {
        threads.emplace_back(run, i);
      } catch (const std::system_error &) {
        run(i);  // no thread to be had: it takes longer
      }
    }
  }
  run(0);
  for (std::thread &thread : threads) thread.join();
  for (const std::exception_ptr &e : thrown) {
    if (e) std::rethrow_exception(e);
  }
}

void ProcessEnv::relax_slowly(u32 index) noexcept {
  constexpr u32 kYieldPolls = 1024;
  constexpr long kBackOffNs = 20'000;
  if (index < kYieldPolls) {
    sched_yield();
    return;
  }
  const timespec t{0, kBackOffNs};
  nanosleep(&t, nullptr);
}

}  // namespace kvpool::store
