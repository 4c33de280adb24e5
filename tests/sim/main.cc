// SPDX-License-Identifier: Apache-2.0
// kvpool-sim: options, progress, output. Exit code 0 only if nothing was found that must not be,
// and in a mutant run only if every mutant was found.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "enumerate.hpp"
#include "mutants.hpp"
#include "rare.hpp"
#include "scripts.hpp"

namespace kvpool::sim {

const std::vector<Scenario> &scenarios() {
  static const std::vector<Scenario> all = [] {
    std::vector<Scenario> list;
    for (const Scenario &s : classic_scenarios()) list.push_back(s);
    for (const Scenario &s : storm_scenarios()) list.push_back(s);
    for (const Scenario &s : crash_scenarios()) list.push_back(s);
    return list;
  }();
  return all;
}

namespace {

using nlohmann::json;

struct Options {
  u64 seeds = 1000;
  u64 seed = 1;
  u64 ops = ~u64{0};
  bool as_json = false;
  bool mutants = false;
  bool trace = false;
  bool list = false;
  bool long_run = false;
  bool no_shrink = false;
  std::string scenario;
  std::string mutant;
  std::string without;
  std::string kept;
  bool enumerate = false;
  bool all_marks = false;
  std::string script;
  u64 crash_at = 0;
  u64 crash_way = 0;
  u64 bound = 1024;
  u64 every = 1;
};

constexpr u64 kLongSeeds = 1'000'000;
constexpr u64 kMarkSeeds = 1'000;     // from here on every mark must have been hit
constexpr u64 kMutantSeeds = 800;

int usage(const std::string &text) {
  std::fprintf(stderr, "kvpool-sim: %s\nhint: kvpool-sim --list names scenarios and mutants\n",
               text.c_str());
  return 2;
}

bool known_scenario(const std::string &name) {
  for (const Scenario &s : scenarios()) {
    if (name == s.name) return true;
  }
  return false;
}

// Comma separated feature names to a mask; false on an unknown one.
bool parse_without(const std::string &text, u32 &mask) {
  std::string rest = text;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string name = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    u32 f = 0;
    while (f < static_cast<u32>(Feature::kCount) && name != feature_name(static_cast<Feature>(f))) {
      ++f;
    }
    if (f == static_cast<u32>(Feature::kCount)) return false;
    mask |= 1u << f;
  }
  return true;
}

void print_list(bool as_json) {
  json out{
      {"schema", "kvpool.sim.list/1"}, {"scenarios", json::array()}, {"scripts", json::array()},
      {"mutants", json::array()}};
  for (const Scenario &s : scenarios()) {
    out["scenarios"].push_back({{"name", s.name}, {"what", s.what}, {"canary", s.canary}});
    if (!as_json) std::printf("%-26s %s\n", s.name, s.what);
  }
  for (const Script &s : scripts()) {
    out["scripts"].push_back({{"name", s.name}, {"what", s.what}});
    if (!as_json) std::printf("%-26s script, %s\n", s.name, s.what);
  }
  for (const MutantInfo &m : mutants()) {
    out["mutants"].push_back({{"name", m.name}, {"proto", m.proto}, {"rule", m.rule}});
    if (!as_json) std::printf("%-26s mutant, proto %s: %s\n", m.name, m.proto, m.rule);
  }
  if (as_json) std::printf("%s\n", out.dump().c_str());
}

json counts_json(const std::vector<ScenarioCount> &counts) {
  json list = json::array();
  for (const ScenarioCount &c : counts) {
    list.push_back({{"name", c.name}, {"runs", c.runs}, {"failed", c.failed}, {"steps", c.steps}});
  }
  return list;
}

void print_text(const RunReport &report, const json &out) {
  for (const ScenarioCount &c : report.scenarios) {
    std::printf("%-26s %8llu runs %6llu violations %12llu steps\n", c.name.c_str(),
                static_cast<unsigned long long>(c.runs), static_cast<unsigned long long>(c.failed),
                static_cast<unsigned long long>(c.steps));
  }
  for (const ScenarioCount &c : report.canaries) {
    std::printf("%-26s %8llu runs %6llu found\n", c.name.c_str(),
                static_cast<unsigned long long>(c.runs), static_cast<unsigned long long>(c.failed));
  }
  for (const Failure &f : report.failures) {
    std::printf("VIOLATION in %s, seed %llu: %s\n  replay: %s\n", f.scenario.c_str(),
                static_cast<unsigned long long>(f.options.seed), f.text.c_str(), f.replay.c_str());
  }
  for (const auto &mark : out["marks_missing"]) {
    std::printf("mark never hit: %s\n", mark.get<std::string>().c_str());
  }
  std::printf("%llu seeds, %llu violations, %.1f seeds a second\n",
              static_cast<unsigned long long>(report.seeds),
              static_cast<unsigned long long>(report.violations),
              out["seeds_per_second"].get<double>());
}

int run_seeds(const Options &options, const RunOptions &base) {
  Plan plan;
  plan.first_seed = options.seed;
  plan.seeds = options.long_run ? kLongSeeds : options.seeds;
  plan.scenario = options.scenario;
  plan.base = base;
  plan.shrink = !options.no_shrink && !options.trace;
  const bool terminal = isatty(STDERR_FILENO);
  if (terminal) {
    plan.progress = [](u64 done, u64 of, u64 violations) {
      std::fprintf(stderr, "\r%llu of %llu runs, %llu violations ",
                   static_cast<unsigned long long>(done), static_cast<unsigned long long>(of),
                   static_cast<unsigned long long>(violations));
    };
  }
  RunReport report = run_plan(plan);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (options.all_marks) hunt_rare_marks(plan, report);
  json hit = json::object(), missing = json::array(), rare = json::array();
  json failures = json::array();
  for (const auto &[name, count] : report.marks) {
    const RareMark *known = find_rare_mark(name);
    if (count) {
      hit[name] = count;
    } else if (known && (!options.all_marks || !known->scenario)) {
      rare.push_back(name);
    } else {
      missing.push_back(name);
    }
  }
  for (const Failure &f : report.failures) {
    failures.push_back({{"scenario", f.scenario}, {"seed", f.options.seed}, {"text", f.text},
                        {"replay", f.replay}});
  }
  const double rate = report.seconds > 0 ? static_cast<double>(report.seeds) / report.seconds : 0;
  const json out{{"schema", "kvpool.sim/1"}, {"seeds", report.seeds},
                 {"violations", report.violations}, {"seeds_per_second", rate},
                 {"seconds", report.seconds}, {"steps", report.steps},
                 {"first_seed", options.seed}, {"interrupted", report.interrupted},
                 {"marks_hit", hit}, {"marks_missing", missing},
                 {"marks_rare", rare},
                 {"scenarios", counts_json(report.scenarios)},
                 {"canaries", counts_json(report.canaries)}, {"failures", failures}};
  if (options.as_json) {
    std::printf("%s\n", out.dump().c_str());
  } else {
    print_text(report, out);
  }
  if (report.interrupted) {
    std::fprintf(stderr, "kvpool-sim: stopped after %llu of %llu seeds\n",
                 static_cast<unsigned long long>(report.seeds),
                 static_cast<unsigned long long>(plan.seeds));
  }
  const bool marks_due = options.scenario.empty() && report.seeds >= kMarkSeeds && !base.mutant &&
                         !base.without;
  if (report.violations || report.interrupted) return 1;
  return marks_due && !missing.empty() ? 1 : 0;
}

int run_all_mutants(const Options &options) {
  const bool terminal = isatty(STDERR_FILENO);
  const u64 seeds_max = options.long_run ? kMutantSeeds * 10 : kMutantSeeds;
  const auto results = run_mutants(seeds_max, options.mutant, [&](const MutantResult &r) {
    if (options.as_json && !terminal) return;
    std::fprintf(options.as_json ? stderr : stdout, "%-28s %-8s %s after %llu seeds: %s %s\n",
                 r.info->name, r.info->proto, r.killed ? "killed" : "SURVIVED",
                 static_cast<unsigned long long>(r.seeds), r.by.c_str(), r.text.c_str());
  });
  u64 killed = 0;
  json list = json::array();
  for (const MutantResult &r : results) {
    killed += r.killed;
    list.push_back({{"name", r.info->name}, {"proto", r.info->proto}, {"rule", r.info->rule},
                    {"killed", r.killed}, {"by", r.by}, {"text", r.text}, {"seeds", r.seeds},
                    {"seed", r.seed}});
  }
  if (options.as_json) {
    const json out{{"schema", "kvpool.sim.mutants/1"}, {"mutants", results.size()},
                   {"killed", killed}, {"list", list}};
    std::printf("%s\n", out.dump().c_str());
  } else {
    std::printf("%zu mutants, %llu killed\n", results.size(),
                static_cast<unsigned long long>(killed));
  }
  return killed == results.size() ? 0 : 1;
}

json enumerate_json(const EnumerateReport &report, const Options &options) {
  json scripts = json::array(), failures = json::array();
  u64 verbs = 0, points = 0, outcomes = 0, sampled = 0;
  for (const EnumerateCount &c : report.counts) {
    verbs += c.verbs;
    points += c.points;
    outcomes += c.outcomes;
    sampled += c.sampled;
    scripts.push_back({{"script", c.script}, {"seed", c.seed}, {"verbs", c.verbs},
                       {"points", c.points},
                       {"sampled", c.sampled}, {"outcomes", c.outcomes}, {"most", c.lines},
                       {"violations", c.violations}});
  }
  for (const Failure &f : report.failures) {
    failures.push_back({{"scenario", f.scenario}, {"seed", f.options.seed}, {"text", f.text},
                        {"replay", f.replay}});
  }
  return {{"schema", "kvpool.sim.enumerate/1"},
          {"verbs", verbs},
          {"points", points},
          {"outcomes", outcomes},
          {"sampled_points", sampled},
          {"bound", options.bound},
          {"every", options.every},
          {"violations", report.violations},
          {"seconds", report.seconds},
          {"scripts", scripts},
          {"failures", failures}};
}

int run_enumeration(const Options &options) {
  const auto ull = [](u64 value) { return static_cast<unsigned long long>(value); };
  EnumerateOptions how;
  how.script = options.script;
  how.seeds = options.seeds == Options{}.seeds ? how.seeds : options.seeds;
  how.first_seed = options.seed;
  how.bound = options.bound;
  how.every = options.every;
  how.mutant = options.mutant.empty() ? 0 : mutant_by_name(options.mutant);
  const EnumerateReport report = enumerate_crashes(how, [&](const EnumerateCount &c) {
    if (options.as_json) return;
    std::printf(
        "%-16s seed %llu: %6llu verbs, %5llu points (%llu sampled), %7llu power losses, "
        "%llu violations\n",
        c.script.c_str(), ull(c.seed), ull(c.verbs), ull(c.points), ull(c.sampled), ull(c.outcomes),
        ull(c.violations));
  });
  const json out = enumerate_json(report, options);
  if (options.as_json) {
    std::printf("%s\n", out.dump().c_str());
  } else {
    for (const Failure &f : report.failures) {
      std::printf("VIOLATION in %s, seed %llu: %s\n  replay: %s\n", f.scenario.c_str(),
                  ull(f.options.seed), f.text.c_str(), f.replay.c_str());
    }
    std::printf("%llu verbs, %llu points, %llu power losses, %llu violations, %.1f s\n",
                ull(out["verbs"].get<u64>()), ull(out["points"].get<u64>()),
                ull(out["outcomes"].get<u64>()), ull(report.violations), report.seconds);
  }
  return report.violations ? 1 : 0;
}

// Replays the seeds of a file. Every line that is no comment: scenario, seed, what it showed.
int run_kept(const Options &options, const RunOptions &base) {
  std::ifstream file(options.kept);
  if (!file) return usage("cannot read " + options.kept);
  json failures = json::array();
  u64 seeds = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string scenario, what;
    RunOptions run = base;
    if (line.empty() || line[0] == '#') continue;
    if (!(words >> scenario >> run.seed) || !known_scenario(scenario)) {
      return usage("no scenario and seed: " + line);
    }
    std::getline(words >> std::ws, what);
    ++seeds;
    for (const Scenario &s : scenarios()) {
      if (scenario != s.name) continue;
      const std::string text = run_once(s, run);
      if (text.empty()) continue;
      failures.push_back({{"scenario", scenario}, {"seed", run.seed}, {"text", text},
                          {"once", what}, {"replay", replay_line(scenario, run)}});
    }
  }
  const json out{{"schema", "kvpool.sim.kept/1"}, {"seeds", seeds},
                 {"violations", failures.size()}, {"failures", failures}};
  if (options.as_json) {
    std::printf("%s\n", out.dump().c_str());
  } else {
    for (const json &f : failures) {
      std::printf("VIOLATION: %s\n  once: %s\n  replay: %s\n",
                  f["text"].get<std::string>().c_str(), f["once"].get<std::string>().c_str(),
                  f["replay"].get<std::string>().c_str());
    }
    std::printf("%llu kept seeds, %zu violations\n", static_cast<unsigned long long>(seeds),
                failures.size());
  }
  return failures.empty() ? 0 : 1;
}

int run_main(int argc, char **argv) {
  Options options;
  CLI::App app{"Runs kvpool's protocol code on simulated hosts whose caches lie.", "kvpool-sim"};
  app.add_option("--seeds", options.seeds, "Number of seeds, 1,000 unless said otherwise.")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{10'000'000}));
  app.add_option("--seed", options.seed, "First seed.")
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()));
  app.add_option("--scenario", options.scenario, "Only this scenario.");
  app.add_option("--ops", options.ops, "At most this many operations of each actor.");
  app.add_option("--without", options.without, "Features to switch off, comma separated.");
  app.add_option("--mutant", options.mutant, "Leave out one rule of the protocol.");
  app.add_flag("--mutants", options.mutants, "Leave out each rule in turn; all must be found.");
  app.add_flag("--json", options.as_json, "One JSON object.");
  app.add_flag("--trace", options.trace, "Print the events before a violation.");
  app.add_flag("--long", options.long_run, "A million seeds.");
  app.add_flag("--no-shrink", options.no_shrink, "Report failures as they were found.");
  app.add_option("--kept", options.kept, "Replay the seeds of a file.");
  app.add_flag("--all-marks", options.all_marks,
               "Hunt the coverage marks that the seeds did not hit.");
  app.add_flag("--enumerate", options.enumerate,
               "Lose power after every verb of every script, with every outcome.");
  app.add_option("--script", options.script, "Only this script.");
  app.add_option("--crash-at", options.crash_at, "Replay: power is lost after this verb.");
  app.add_option("--crash-way", options.crash_way, "Replay: with this outcome.");
  app.add_option("--bound", options.bound, "Outcomes tried after one verb, 1024 unless said.");
  app.add_option("--every", options.every, "Enumerate every n-th verb only.");
  app.add_flag("--list", options.list, "Name scenarios and mutants.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp &help) {
    return app.exit(help);
  } catch (const CLI::ParseError &error) {
    return usage(error.what());
  }
  if (options.list) {
    print_list(options.as_json);
    return 0;
  }
  RunOptions base;
  base.ops_max = options.ops;
  base.trace = options.trace;
  if (!options.scenario.empty() && !known_scenario(options.scenario)) {
    return usage("no scenario named " + options.scenario);
  }
  if (!parse_without(options.without, base.without)) {
    return usage("unknown feature in --without " + options.without);
  }
  if (!options.mutant.empty()) {
    base.mutant = mutant_by_name(options.mutant);
    if (!base.mutant) return usage("no mutant named " + options.mutant);
  }
  if (!options.script.empty()) {
    base.script = script_by_name(options.script);
    if (!base.script) return usage("no script named " + options.script);
  }
  base.crash_at = options.crash_at;
  base.crash_way = options.crash_way;
  base.crash_bound = options.bound;
  if (options.every == 0 || options.bound == 0) return usage("--every and --bound: at least 1");
  if (options.seeds == 0) return usage("--seeds must be at least 1");
  setvbuf(stdout, nullptr, _IOLBF, 0);
  signal(SIGINT, [](int) { request_stop(); });
  if (!options.kept.empty()) return run_kept(options, base);
  if (options.enumerate) return run_enumeration(options);
  return options.mutants ? run_all_mutants(options) : run_seeds(options, base);
}

}  // namespace
}  // namespace kvpool::sim

int main(int argc, char **argv) {
  return kvpool::sim::run_main(argc, argv);
}
