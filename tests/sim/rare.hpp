// SPDX-License-Identifier: Apache-2.0
// Coverage marks that a thousand seeds do not surely hit, each with the scenario that does and a
// seed from which on it is hunted.
#pragma once

#include <span>
#include <string_view>

#include "runner.hpp"

namespace kvpool::sim {

struct RareMark {
  std::string_view mark;
  const char *scenario;    // null: no scenario makes it, a unit test does
  u64 first_seed;
  const char *unit_test;
};

std::span<const RareMark> rare_marks();
const RareMark *find_rare_mark(std::string_view mark);

// Runs each mark's own scenario, for marks that `report` did not hit, until it is hit or a bound is
// reached. Adds the seeds, violations and marks to the report.
void hunt_rare_marks(const Plan &plan, RunReport &report);

}  // namespace kvpool::sim
