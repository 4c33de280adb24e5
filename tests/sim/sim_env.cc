// SPDX-License-Identifier: Apache-2.0
// Waiting and reading the clock in the simulated rack.
#include "sim_env.hpp"

#include <algorithm>

namespace kvpool::sim {

namespace {
Sim *g_rack = nullptr;
constexpr u32 kSpins = 6;           // polls before a waiter begins to sleep between them
constexpr u64 kRelaxMaxNs = 20'000;  // proto 12: a waiter backs off to 20 us
}  // namespace

Sim &rack() {
  return *g_rack;
}

void set_rack(Sim *sim) {
  g_rack = sim;
}

u64 SimEnv::now_ns() noexcept {
  sim_->step(25, "clock");
  return sim_->clock();
}

void SimEnv::relax(u32 index) noexcept {
  if (index < kSpins) {
    sim_->step(100, "relax", index);
    return;
  }
  sim_->sleep_host(std::min(kRelaxMaxNs, u64{200} << std::min(index - kSpins, 7u)));
}

}  // namespace kvpool::sim
