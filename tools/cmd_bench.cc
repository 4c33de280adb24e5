// SPDX-License-Identifier: Apache-2.0
// kvpool bench: the figures, each beside its baseline in alternating runs of one process.
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "arch/x86_memory.hpp"
#include "bench/bare.hpp"
#include "bench/figures.hpp"
#include "bench/rig.hpp"
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {
namespace {

using namespace bench;

constexpr std::uint64_t kRuns = 9;
constexpr std::uint64_t kQuickRuns = 3;

std::string first_line_after(const char *path, std::string_view head) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(head)) continue;
    const auto colon = head.empty() ? std::string::npos : line.find(':');
    const std::string rest = colon == std::string::npos ? line : line.substr(colon + 1);
    const auto start = rest.find_first_not_of(" \t");
    return start == std::string::npos ? "" : rest.substr(start);
  }
  return "unknown";
}

double load_average() {
  double load = -1;
  return getloadavg(&load, 1) == 1 ? load : -1;
}

// What the numbers depend on. Pages and details come with the figures.
Json conditions_before(const Effort &effort) {
  X86Choice choice;
  std::string error;
  if (choose_x86({}, choice, error) != 0) fail(kExitFailed, "instructions", error);
  utsname system = {};
  uname(&system);
  Json ret;
  ret["cpu"] = first_line_after("/proc/cpuinfo", "model name");
  ret["cores"] = std::thread::hardware_concurrency();
  ret["isa"] = isa_name(choice.isa);
  ret["flush"] = flush_name(choice.flush);
  ret["memory"] = "DRAM of this machine, named by no file (memfd)";
  ret["memory_bytes"] = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  ret["kernel"] = std::string(system.release);
  ret["huge_pages_setting"] =
      first_line_after("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "");
  ret["load_average_before"] = load_average();
  ret["quick"] = effort.quick;
  return ret;
}

Json json_of(const Result &r) {
  Json ret;
  ret["name"] = r.spec->name;
  ret["value"] = r.value;
  ret["unit"] = r.spec->unit;
  ret["baseline"] = r.baseline;
  ret["ratio"] = r.ratio;
  ret["better"] = r.spec->better == Better::kHigher ? "higher" : "lower";
  ret["goal"] = r.goal;
  ret["runs"] = r.runs;
  ret["spread"] = r.spread;
  return ret;
}

std::string number_text(double number) {
  return fmt::format("{:.{}f}", number, number >= 100 ? 0 : number >= 10 ? 1 : 2);
}

std::string text_of(const std::vector<Result> &results, const Json &conditions) {
  Table table({"figure", ">value", "unit", ">baseline", ">ratio", "goal", ">spread", ""});
  for (const Result &r : results) {
    const char *side = r.spec->better == Better::kHigher ? "at least" : "at most";
    const bool ratio = r.spec->goal_of == GoalOf::kRatio;
    table.row({std::string(r.spec->name), number_text(r.value), std::string(r.spec->unit),
               number_text(r.baseline), fmt::format("{:.3f}", r.ratio),
               fmt::format("{} {} {}", side, r.goal, ratio ? "x" : r.spec->unit),
               fmt::format("{:.1f} %", r.spread * 100), r.met() ? "met" : "missed"});
  }
  return table.text() + fmt::format("{}, {} cores, {}, {}, load {:.1f}\n",
                                    conditions["cpu"].get<std::string>(),
                                    conditions["cores"].get<unsigned>(),
                                    conditions["isa"].get<std::string>(),
                                    conditions["flush"].get<std::string>(),
                                    conditions["load_average_before"].get<double>());
}

int list(bool json) {
  if (json) {
    Json data = Json::array();
    for (const FigureSpec &f : figures()) {
      Json one;
      one["name"] = f.name;
      one["group"] = f.group;
      one["unit"] = f.unit;
      one["what"] = f.what;
      one["baseline"] = f.against;
      one["goal_of"] = f.goal_of == GoalOf::kRatio ? "ratio" : "value";
      data.push_back(std::move(one));
    }
    print_plain_json({{"figures", std::move(data)}});
    return kExitFine;
  }
  Table table({"figure", "group", "what", "baseline"});
  for (const FigureSpec &f : figures()) {
    table.row({std::string(f.name), std::string(f.group), std::string(f.what),
               std::string(f.against)});
  }
  print_text(table.text());
  return kExitFine;
}

class Run {
public:
  explicit Run(const Args &args)
      : effort_{args.has("--quick")},
        runs_(args.number("--runs", effort_.quick ? kQuickRuns : kRuns)),
        progress_("kvpool bench", args.text("--progress", "auto")) {}

  int all(const Args &args) {
    const auto wanted = select(args.all("NAME"));
    conditions_ = conditions_before(effort_);
    Json details = Json::object();
    std::uint64_t done = 0;
    for (const FigureSpec *spec : wanted) {
      progress_.show(done, wanted.size() * runs_, "runs");
      one(*spec, details, done, wanted.size() * runs_);
      done += runs_;
    }
    group_.reset();
    progress_.clear();
    conditions_["load_average_after"] = load_average();
    conditions_["details"] = std::move(details);
    print(args.json());
    return errors_.empty() ? kExitFine : kExitFailed;
  }

private:
  // A figure that cannot be measured is left out and its reason told; the others are measured.
  void one(const FigureSpec &spec, Json &details, std::uint64_t done, std::uint64_t total) {
    try {
      if (!group_ || group_of_ != spec.make) {
        group_.reset();
        group_ = spec.make(effort_);
        group_of_ = spec.make;
      }
      std::vector<Turn> turns;
      (void)group_->turn(spec.name);  // warms up
      while (turns.size() < runs_) {
        if (stop_requested()) fail(kExitFailed, "kvpool bench", "interrupted");
        turns.push_back(group_->turn(spec.name));
        progress_.show(done + turns.size(), total, "runs");
      }
      const bool huge = group_->huge_pages();
      results_.push_back(evaluate(spec, turns, huge));
      Json detail = group_->details(spec.name);
      detail["page_bytes"] = huge ? 2 << 20 : 4 << 10;
      details[std::string(spec.name)] = std::move(detail);
    } catch (const Failure &failure) {
      if (stop_requested()) throw;
      give_up(spec, failure);
    } catch (const std::bad_alloc &) {
      give_up(spec, {kExitFailed, "memory", "not enough on this machine", ""});
    } catch (const std::exception &error) {
      give_up(spec, {kExitFailed, "machine", error.what(), ""});
    }
  }

  void give_up(const FigureSpec &spec, const Failure &failure) {
    group_.reset();
    const std::string why = failure.what.empty() ? failure.why : failure.what + ": " + failure.why;
    Json error;
    error["name"] = spec.name;
    error["why"] = why;
    errors_.push_back(std::move(error));
    progress_.clear();
    say_failure("bench", {failure.code, std::string(spec.name),
                          "not measured: " + why, failure.hint});
  }

  void print(bool json) {
    if (!json) {
      if (!results_.empty()) print_text(text_of(results_, conditions_));
      return;
    }
    conditions_["errors"] = errors_;
    Json object;
    object["conditions"] = conditions_;
    object["figures"] = Json::array();
    for (const Result &result : results_) object["figures"].push_back(json_of(result));
    print_plain_json(object);
  }

  const Effort effort_;
  const std::uint64_t runs_;
  Progress progress_;
  Json conditions_;
  Json errors_ = Json::array();
  std::vector<Result> results_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Group> (*group_of_)(const Effort &) = nullptr;
};

}  // namespace

int cmd_bench(const Args &args) {
  if (args.has("--child")) return run_child(args.text("--child"));
  if (args.has("--list")) return list(args.json());
  stop_on_signals();
  pin_to(kClientCpu);
  return Run(args).all(args);
}

}  // namespace kvpool::tools
