// SPDX-License-Identifier: Apache-2.0
// The list of mutants: each a single rule of the protocol that production templates leave out when
// the simulator says so, and what has to notice.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pool/mutants.hpp"
#include "scenario.hpp"

namespace kvpool::sim {

struct MutantInfo {
  pool::Mutant id;
  const char *name;
  const char *proto;    // section of the protocol whose rule is left out
  const char *rule;     // the rule
  const char *hunters;  // scenarios that look for it, comma separated, the best one first
};

std::span<const MutantInfo> mutants();
std::string mutant_name(u32 id);
// 0 when there is none of that name.
u32 mutant_by_name(const std::string &name);

struct MutantResult {
  const MutantInfo *info = nullptr;
  bool killed = false;
  std::string by;    // scenario and what it saw
  std::string text;
  u64 seeds = 0;     // runs until it was found, or tried in vain
  u64 seed = 0;
};

// Runs each mutant until it is found, at most `seeds_max` seeds of each hunter.
std::vector<MutantResult> run_mutants(u64 seeds_max, const std::string &only,
                                      const std::function<void(const MutantResult &)> &each);

}  // namespace kvpool::sim
