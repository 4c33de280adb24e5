// SPDX-License-Identifier: Apache-2.0
// A scenario sets up a rack, runs it and checks it; each seed gives another run of it. A canary is
// a scenario with a known mistake: the simulator has to find it, which shows that it can.
#pragma once

#include <span>

#include "sim.hpp"

namespace kvpool::sim {

struct Scenario {
  const char *name;
  const char *what;
  void (*run)(Sim &sim);
  u32 weight = 1;       // share of the smoke run's seeds, 0: only when named; of a canary's runs
  bool canary = false;  // at least a tenth of its runs must fail
};

std::span<const Scenario> classic_scenarios();
std::span<const Scenario> storm_scenarios();
std::span<const Scenario> crash_scenarios();
// All of them, in the order of the list.
const std::vector<Scenario> &scenarios();

}  // namespace kvpool::sim
