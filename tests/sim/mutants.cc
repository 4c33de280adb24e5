// SPDX-License-Identifier: Apache-2.0
// Which scenario hunts which mutant.
#include "mutants.hpp"

#include "runner.hpp"

namespace kvpool::sim {

namespace {

constexpr MutantInfo kNoMutant{pool::Mutant::kNone, "none", "", "", ""};
constexpr std::array<MutantInfo, 0> kMutants{};

std::vector<std::string> split(const char *text) {
  std::vector<std::string> parts;
  std::string part;
  for (const char *c = text; *c; ++c) {
    if (*c == ',') {
      parts.push_back(part);
      part.clear();
    } else if (*c != ' ') {
      part += *c;
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

std::span<const MutantInfo> mutants() {
  return kMutants;
}

std::string mutant_name(u32 id) {
  for (const MutantInfo &info : kMutants) {
    if (static_cast<u32>(info.id) == id) return info.name;
  }
  return kNoMutant.name;
}

u32 mutant_by_name(const std::string &name) {
  for (const MutantInfo &info : kMutants) {
    if (name == info.name) return static_cast<u32>(info.id);
  }
  return 0;
}

std::vector<MutantResult> run_mutants(u64 seeds_max, const std::string &only,
                                      const std::function<void(const MutantResult &)> &each) {
  std::vector<MutantResult> results;
  for (const MutantInfo &info : kMutants) {
    if (!only.empty() && only != info.name) continue;
    MutantResult result;
    result.info = &info;
    for (const std::string &hunter : split(info.hunters)) {
      Plan plan;
      plan.scenario = hunter;
      plan.seeds = seeds_max;
      plan.canary_runs = 0;
      plan.stop_after = 1;
      plan.shrink = false;
      plan.base.mutant = static_cast<u32>(info.id);
      const RunReport report = run_plan(plan);
      result.seeds += report.seeds;
      if (report.failures.empty()) continue;
      result.killed = true;
      result.by = hunter;
      result.text = report.failures[0].text;
      result.seed = report.failures[0].options.seed;
      break;
    }
    if (each) each(result);
    results.push_back(result);
  }
  return results;
}

}  // namespace kvpool::sim
