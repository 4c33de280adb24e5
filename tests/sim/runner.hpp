// SPDX-License-Identifier: Apache-2.0
// Runs seeds in child processes, so that an assertion, a wild access or an endless loop of the code
// under test is a finding of its seed and not the end of the run. Shrinks what failed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scenario.hpp"

namespace kvpool::sim {

struct Failure {
  std::string scenario;
  std::string text;
  RunOptions options;
  std::string replay;  // the one line that shows it again
};

struct ScenarioCount {
  std::string name;
  u64 runs = 0;
  u64 failed = 0;
  u64 steps = 0;
};

struct RunReport {
  u64 seeds = 0;
  u64 steps = 0;
  double seconds = 0;
  bool interrupted = false;
  std::vector<Failure> failures;          // of scenarios that must not fail; the first 32
  u64 violations = 0;                     // all of them
  std::vector<ScenarioCount> scenarios;
  std::vector<ScenarioCount> canaries;
  std::vector<std::pair<std::string, u64>> marks;  // with how often each was hit
};

// SIGPROF after so many seconds of this process's own processor time; 0: not any more. Not by the
// wall: on a busy machine, or stopped, a run takes any time and is none the worse.
void bound_processor_time(unsigned seconds);

struct Plan {
  u64 first_seed = 1;
  u64 seeds = 1000;
  std::string scenario;     // empty: by weight
  RunOptions base;          // without, ops_max, mutant, trace
  u32 canary_runs = 40;     // of each canary, times its weight; 0: none
  u64 stop_after = 0;       // failures; 0: go on to the end
  bool shrink = true;
  std::function<void(u64 done, u64 of, u64 violations)> progress;
};

// Asks the run in progress to end early (from a signal handler).
void request_stop();
bool stop_requested();
// Runs it in a quiet child; empty text: it ended by itself, else what it died of.
std::string run_in_child(const std::function<void()> &body);

RunReport run_plan(const Plan &plan);

// One run in a child of its own; empty text: no violation.
std::string run_once(const Scenario &scenario, const RunOptions &options);
// Switches features off and operations down while the failure stays.
RunOptions shrink(const Scenario &scenario, RunOptions options);
std::string replay_line(const std::string &scenario, const RunOptions &options);

}  // namespace kvpool::sim
