// SPDX-License-Identifier: Apache-2.0
// The loop of crash enumeration, in a child for each script, so that an assertion or a wild access
// of the code under test is a finding.
#include "enumerate.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "mutants.hpp"
#include "scripts.hpp"
#include "sim_env.hpp"

namespace kvpool::sim {

namespace {

constexpr u64 kTextMax = 400;
constexpr u64 kRunsOfAChild = 1'000;   // abandoned stacks leak what they held
constexpr unsigned kSecondsMax = 60;  // of one run, processor time

// What the child tells, all of one script and seed.
struct Progress {
  u64 verbs, points, sampled, outcomes, most, violations;
  u64 at, way;         // of the run in progress
  u64 bad_at, bad_way;  // of the first violation
  bool probing, done;
  char text[kTextMax];
};

struct Turn {
  const EnumerateOptions &options;
  u32 script;  // from 1
  u64 seed;
};

RunOptions run_options(const Turn &turn) {
  RunOptions run;
  interleave(run, turn.seed);
  run.script = turn.script;
  run.mutant = turn.options.mutant;
  run.crash_bound = turn.options.bound;
  return run;
}

bool one_run(Sim &sim, Progress &progress, const Turn &turn) {
  bound_processor_time(kSecondsMax);
  RunOptions run = run_options(turn);
  run.crash_at = progress.at;
  run.crash_way = progress.way;
  sim.reset(run);
  const PlayReport report = play(sim, scripts()[turn.script - 1], false);
  progress.outcomes += report.crashed;
  if (!sim.failed()) return true;
  if (progress.violations++ == 0) {
    progress.bad_at = progress.at;
    progress.bad_way = progress.way;
    std::snprintf(progress.text, sizeof progress.text, "%s", sim.violation().c_str());
  }
  return !turn.options.stop_at_first;
}

// Continues at progress.at and progress.way; true when the turn is over.
void run_turn(Progress &progress, const Turn &turn) {
  Sim sim;
  set_rack(&sim);
  const u64 first_at = progress.at, first_way = progress.way;
  progress.probing = true;
  bound_processor_time(kSecondsMax);
  sim.reset(run_options(turn));
  const PlayReport probe = play(sim, scripts()[turn.script - 1], true);
  if (sim.failed()) {
    ++progress.violations;
    std::snprintf(progress.text, sizeof progress.text, "%s", sim.violation().c_str());
    return;
  }
  progress.probing = false;
  const u64 bound = turn.options.bound;
  progress.verbs = probe.ways.size();
  u64 runs = 0, seen = 0;
  for (u64 at = 1; at <= probe.ways.size(); ++at) {
    const u64 ways = probe.ways[at - 1];
    if (ways == 0 || seen++ % turn.options.every != 0 || at < first_at) continue;
    const bool fresh = at != first_at;
    progress.points += fresh;
    progress.sampled += fresh && ways > bound;
    if (ways <= bound) progress.most = std::max(progress.most, ways);
    for (u64 way = fresh ? 0 : first_way; way < std::min(ways, bound); ++way) {
      progress.at = at;
      progress.way = way;
      if (runs++ == kRunsOfAChild) return;  // another child goes on here
      if (!one_run(sim, progress, turn)) break;
    }
    if (progress.violations && turn.options.stop_at_first) break;
  }
  progress.done = true;
  bound_processor_time(0);
}

std::string enumerate_line(const Turn &turn, u64 at, u64 way) {
  std::string line = std::string("kvpool-sim --scenario crash --script ") +
                     scripts()[turn.script - 1].name + " --seed " + std::to_string(turn.seed) +
                     " --seeds 1";
  if (at != 0) line += " --crash-at " + std::to_string(at) + " --crash-way " + std::to_string(way);
  if (turn.options.bound != RunOptions{}.crash_bound) {
    line += " --bound " + std::to_string(turn.options.bound);
  }
  if (turn.options.mutant) line += " --mutant " + mutant_name(turn.options.mutant);
  return line + " --trace";
}

void whole_turn(Progress &progress, const Turn &turn, EnumerateReport &report,
                const std::function<void(const EnumerateCount &)> &each) {
  progress = Progress{};
  for (;;) {
    std::string death = run_in_child([&] { run_turn(progress, turn); });
    if (death.empty() && (progress.done || progress.probing)) break;
    if (stop_requested()) break;
    if (death.empty()) continue;
    if (progress.violations++ == 0) {
      progress.bad_at = progress.at;
      progress.bad_way = progress.way;
      std::snprintf(progress.text, sizeof progress.text, "%s", death.c_str());
    }
    if (progress.probing || turn.options.stop_at_first) break;
    ++progress.way;
  }
  EnumerateCount count{scripts()[turn.script - 1].name,
                       turn.seed,
                       progress.verbs,
                       progress.points,
                       progress.sampled,
                       progress.outcomes,
                       progress.most,
                       progress.violations};
  report.violations += count.violations;
  if (count.violations) {
    RunOptions run = run_options(turn);
    run.crash_at = progress.bad_at;
    run.crash_way = progress.bad_way;
    report.failures.push_back(
        {count.script, progress.text, run, enumerate_line(turn, run.crash_at, run.crash_way)});
  }
  report.counts.push_back(count);
  if (each) each(count);
}

}  // namespace

u32 script_by_name(const std::string &name) {
  for (u32 i = 0; i < scripts().size(); ++i) {
    if (name == scripts()[i].name) return i + 1;
  }
  return 0;
}

EnumerateReport enumerate_crashes(const EnumerateOptions &options,
                                  const std::function<void(const EnumerateCount &)> &each) {
  EnumerateReport report;
  const auto start = std::chrono::steady_clock::now();
  void *shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    std::perror("kvpool-sim: shared results");
    std::exit(1);
  }
  auto &progress = *new (shared) Progress{};
  for (u32 script = 1; script <= scripts().size(); ++script) {
    if (!options.script.empty() && options.script != scripts()[script - 1].name) continue;
    for (u64 seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
      if (stop_requested()) break;
      whole_turn(progress, {options, script, seed}, report, each);
      if (report.violations && options.stop_at_first) break;
    }
    if (report.violations && options.stop_at_first) break;
  }
  munmap(shared, sizeof(Progress));
  report.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace kvpool::sim
