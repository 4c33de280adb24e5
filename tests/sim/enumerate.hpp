// SPDX-License-Identifier: Apache-2.0
// Crash enumeration: every small script is played once to see the verbs of its host and what was
// under way at each of them, and then once for each verb and each outcome of a power loss there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runner.hpp"

namespace kvpool::sim {

struct EnumerateOptions {
  std::string script;      // empty: all
  u64 seeds = 3;           // interleavings of each script (scripts.hpp)
  u64 first_seed = 1;
  u64 bound = 1024;        // outcomes tried after one verb; of more than these as many are drawn
  u64 every = 1;           // verbs: each, or every n-th
  u32 mutant = 0;
  bool stop_at_first = false;
};

struct EnumerateCount {
  std::string script;
  u64 seed = 0;
  u64 verbs = 0;        // of the script
  u64 points = 0;       // verbs after which power was lost: those since the last of which
                        // something was stored, by anybody
  u64 sampled = 0;      // of these, those with more outcomes than the bound
  u64 outcomes = 0;     // runs in which power was lost
  u64 lines = 0;        // most outcomes of one verb that were counted, not drawn
  u64 violations = 0;
};

struct EnumerateReport {
  std::vector<EnumerateCount> counts;
  std::vector<Failure> failures;  // the first of each script and seed
  u64 violations = 0;
  double seconds = 0;
};

EnumerateReport enumerate_crashes(const EnumerateOptions &options,
                                  const std::function<void(const EnumerateCount &)> &each);
// 0 when there is none of that name, else its number from 1.
u32 script_by_name(const std::string &name);

}  // namespace kvpool::sim
