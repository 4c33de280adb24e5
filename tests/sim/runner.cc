// SPDX-License-Identifier: Apache-2.0
// Children, their shared results, shrinking.
#include "runner.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "mutants.hpp"
#include "scripts.hpp"
#include "sim_env.hpp"

namespace kvpool::sim {

namespace {

constexpr u64 kChunk = 250;            // seeds a child; abandoned stacks leak what they held
constexpr unsigned kSecondsMax = 60;   // of one seed, processor time
constexpr u64 kFailuresKept = 32;
constexpr u64 kTextMax = 400;
constexpr double kShrinkSeconds = 20;

struct SharedFailure {
  u64 seed;
  u32 scenario;
  char text[kTextMax];
};

// What a child tells its parent; written by one child at a time.
struct Shared {
  std::atomic<u64> done;        // runs finished, whatever came of them
  std::atomic<u64> current;     // index of the run in progress
  u64 violations;
  u64 kept;
  SharedFailure failure[kFailuresKept];
  u64 runs[64];
  u64 failed[64];
  u64 steps[64];
  u64 marks[kMarksMax];
};

std::atomic<bool> g_stop{false};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Shared *map_shared() {
  void *base = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
  if (base == MAP_FAILED) {
    std::perror("kvpool-sim: shared results");
    std::exit(1);
  }
  return new (base) Shared{};
}

u32 scenario_by_weight(u64 seed) {
  const auto &all = scenarios();
  u64 total = 0;
  for (const Scenario &s : all) total += s.canary ? 0 : s.weight;
  u64 at = Rng(seed).below(total);
  for (u32 i = 0; i < all.size(); ++i) {
    const u64 weight = all[i].canary ? 0 : all[i].weight;
    if (at < weight) return i;
    at -= weight;
  }
  std::abort();
}

struct Job {
  u32 scenario;
  u64 seed;
};

std::vector<Job> make_jobs(const Plan &plan) {
  std::vector<Job> jobs;
  const auto &all = scenarios();
  for (u64 i = 0; i < plan.seeds; ++i) {
    const u64 seed = plan.first_seed + i;
    u32 scenario = 0;
    if (plan.scenario.empty()) {
      scenario = scenario_by_weight(seed);
    } else {
      while (plan.scenario != all[scenario].name) ++scenario;
    }
    jobs.push_back({scenario, seed});
  }
  for (u32 s = 0; plan.scenario.empty() && s < all.size(); ++s) {
    if (!all[s].canary) continue;
    for (u32 i = 0; i < plan.canary_runs * all[s].weight; ++i) {
      jobs.push_back({s, plan.first_seed + i});
    }
  }
  return jobs;
}

void note_failure(Shared &shared, const Job &job, const char *text) {
  ++shared.failed[job.scenario];
  if (scenarios()[job.scenario].canary) return;
  ++shared.violations;
  if (shared.kept == kFailuresKept) return;
  SharedFailure &failure = shared.failure[shared.kept];
  failure.seed = job.seed;
  failure.scenario = job.scenario;
  std::snprintf(failure.text, sizeof failure.text, "%s", text);
  ++shared.kept;
}

void run_child(Shared &shared, const Plan &plan, const std::vector<Job> &jobs, u64 first,
               u64 last) {
  MarkRegistry::set_counts(shared.marks);
  Sim sim;
  set_rack(&sim);
  for (u64 i = first; i < last; ++i) {
    const Job &job = jobs[i];
    shared.current = i;
    bound_processor_time(kSecondsMax);
    RunOptions options = plan.base;
    options.seed = job.seed;
    if (options.script) interleave(options, job.seed);
    sim.reset(options);
    scenarios()[job.scenario].run(sim);
    ++shared.runs[job.scenario];
    shared.steps[job.scenario] += sim.steps();
    if (sim.failed()) {
      if (options.trace && !scenarios()[job.scenario].canary) sim.print_trace();
      note_failure(shared, job, sim.violation().c_str());
    }
    shared.done = i + 1;
    if (plan.stop_after && shared.violations >= plan.stop_after) break;
  }
  bound_processor_time(0);
}

std::string death_text(int status) {
  if (WIFEXITED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (signal == SIGPROF) return "did not end: no verb for a minute";
  return std::string("died of signal ") + strsignal(signal);
}

// A child of its own group of runs; its stderr is kept unless `quiet`.
pid_t start_child(bool quiet, const std::function<void()> &body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("kvpool-sim: fork");
    std::exit(1);
  }
  if (child > 0) return child;
  signal(SIGINT, SIG_DFL);
  if (quiet && !std::freopen("/dev/null", "w", stderr)) _exit(3);
  body();
  std::fflush(nullptr);
  _exit(0);
}

int wait_for(pid_t child, const std::function<void()> &tick) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (g_stop) kill(child, SIGKILL);
    if (tick) tick();
    usleep(2'000);
  }
  return status;
}

// Exits quickly when the child does, and still draws progress.
void run_jobs(Shared &shared, const Plan &plan, const std::vector<Job> &jobs) {
  u64 next = 0;
  u64 last_tick = 0;
  while (next < jobs.size() && !g_stop) {
    const u64 last = std::min<u64>(next + kChunk, jobs.size());
    const pid_t child = start_child(plan.base.trace ? false : plan.stop_after != 0, [&] {
      run_child(shared, plan, jobs, next, last);
    });
    const int status = wait_for(child, [&] {
      const u64 done = shared.done;
      if (!plan.progress || done == last_tick) return;
      last_tick = done;
      plan.progress(done, jobs.size(), shared.violations);
    });
    if (g_stop) return;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      if (plan.stop_after && shared.violations >= plan.stop_after) return;
      next = last;
      continue;
    }
    const u64 bad = shared.current;
    ++shared.runs[jobs[bad].scenario];
    note_failure(shared, jobs[bad], death_text(status).c_str());
    shared.done = bad + 1;
    if (plan.stop_after && shared.violations >= plan.stop_after) return;
    next = bad + 1;
  }
}

void fill_counts(RunReport &report, const Shared &shared, const Plan &plan) {
  const auto &all = scenarios();
  for (u32 i = 0; i < all.size(); ++i) {
    if (shared.runs[i] == 0) continue;
    auto &list = all[i].canary ? report.canaries : report.scenarios;
    list.push_back({all[i].name, shared.runs[i], shared.failed[i], shared.steps[i]});
    report.steps += shared.steps[i];
    if (!all[i].canary) report.seeds += shared.runs[i];
    const bool sampled = all[i].canary && plan.scenario.empty() && !g_stop;
    if (!sampled || shared.failed[i] * 10 >= shared.runs[i]) continue;
    ++report.violations;
    report.failures.push_back({all[i].name,
                               "a canary was not found: the simulator has lost its teeth",
                               plan.base, replay_line(all[i].name, plan.base)});
  }
}

}  // namespace

void bound_processor_time(unsigned seconds) {
  const itimerval bound{{0, 0}, {static_cast<time_t>(seconds), 0}};
  setitimer(ITIMER_PROF, &bound, nullptr);
}

void request_stop() {
  g_stop = true;
}

bool stop_requested() {
  return g_stop;
}

std::string run_in_child(const std::function<void()> &body) {
  const int status = wait_for(start_child(true, body), nullptr);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : death_text(status);
}

std::string replay_line(const std::string &scenario, const RunOptions &options) {
  std::string line = "kvpool-sim --scenario " + scenario + " --seeds 1 --seed " +
                     std::to_string(options.seed);
  std::string without;
  for (u32 f = 0; f < static_cast<u32>(Feature::kCount); ++f) {
    if (!((options.without >> f) & 1)) continue;
    without += (without.empty() ? "" : ",");
    without += feature_name(static_cast<Feature>(f));
  }
  if (!without.empty()) line += " --without " + without;
  if (options.ops_max != ~u64{0}) line += " --ops " + std::to_string(options.ops_max);
  if (options.mutant) line += " --mutant " + mutant_name(options.mutant);
  return line + " --trace";
}

std::string run_once(const Scenario &scenario, const RunOptions &options) {
  Shared *shared = map_shared();
  const pid_t child = start_child(true, [&] {
    MarkRegistry::set_counts(shared->marks);
    bound_processor_time(kSecondsMax);
    Sim sim;
    set_rack(&sim);
    sim.reset(options);
    scenario.run(sim);
    std::snprintf(shared->failure[0].text, kTextMax, "%s", sim.violation().c_str());
  });
  const int status = wait_for(child, nullptr);
  std::string text = shared->failure[0].text;
  if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0)) text = death_text(status);
  munmap(shared, sizeof *shared);
  return text;
}

RunOptions shrink(const Scenario &scenario, RunOptions options) {
  const auto start = std::chrono::steady_clock::now();
  for (u32 f = 0; f < static_cast<u32>(Feature::kCount); ++f) {
    if (g_stop || seconds_since(start) > kShrinkSeconds) return options;
    RunOptions fewer = options;
    fewer.without |= 1u << f;
    if (!run_once(scenario, fewer).empty()) options = fewer;
  }
  for (u64 ops = 1; ops <= 256; ops *= 2) {
    if (g_stop || seconds_since(start) > kShrinkSeconds) return options;
    RunOptions fewer = options;
    fewer.ops_max = ops;
    if (!run_once(scenario, fewer).empty()) return fewer;
  }
  return options;
}

RunReport run_plan(const Plan &plan) {
  Shared *shared = map_shared();
  const std::vector<Job> jobs = make_jobs(plan);
  const auto start = std::chrono::steady_clock::now();
  run_jobs(*shared, plan, jobs);
  RunReport report;
  report.seconds = seconds_since(start);
  report.interrupted = g_stop;
  report.violations = shared->violations;
  for (u64 i = 0; i < shared->kept; ++i) {
    const SharedFailure &f = shared->failure[i];
    RunOptions options = plan.base;
    options.seed = f.seed;
    if (plan.shrink && i < 3) options = shrink(scenarios()[f.scenario], options);
    const std::string name = scenarios()[f.scenario].name;
    report.failures.push_back({name, f.text, options, replay_line(name, options)});
  }
  fill_counts(report, *shared, plan);
  const auto &names = MarkRegistry::names();
  for (u32 i = 0; i < names.size(); ++i) {
    report.marks.emplace_back(std::string(names[i]), shared->marks[i]);
  }
  munmap(shared, sizeof *shared);
  return report;
}

}  // namespace kvpool::sim
