// SPDX-License-Identifier: Apache-2.0
// Owns the explicit-state engine behind every program of this folder: breadth-first search over
// plain states, shortest counterexamples, a bound on memory, and the command line that all models
// share.
//
// A model is a class with
//   struct Rules   one bool per protocol rule, all true; a mutant sets exactly one to false
//   struct State   plain bytes, no padding; two states are the same when their bytes are
//   kName, kCovers, kMutants[], kMarks[]
//   State initial() const
//   void next(const State &, Sink<State> &) const     every step that some actor may take now
//   const char *violation(const State &) const        nullptr, or what is wrong here
//   uint32_t marks(const State &) const                which of kMarks this state reaches
//   std::string show(const State &) const              one line for a trace
//   bool settled(const State &) const                  optional: from every reachable state some
//   path
//                                                      must lead to a settled one (nothing leaks,
//                                                      no call is stuck for ever)
//
// A clean run must hold and must reach every mark: a model in which nothing happens proves nothing.
// A mutant must end in a counterexample; running out of memory is neither and counts as failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace kvpool::model {

template <class Rules>
struct Mutant {
  const char *name;     // what the command line calls it
  bool Rules::*rule;    // the rule it removes
  const char *section;  // section of the protocol that states the rule
  const char *meaning;  // the rule in words
};

enum class Mode { kShort, kLong };

// Successors of one state, refilled for every state.
template <class State>
class Sink {
public:
  void operator()(const State &state, const char *label) { steps_.push_back({state, label}); }
  void clear() { steps_.clear(); }

  struct Step {
    State state;
    const char *label;
  };
  const std::vector<Step> &steps() const { return steps_; }

private:
  std::vector<Step> steps_;
};

enum class Verdict { kHolds, kViolation, kBound };

struct TraceStep {
  std::string label;
  std::string state;
};

struct Result {
  Verdict verdict = Verdict::kHolds;
  std::string why;
  uint64_t states = 0;
  uint64_t transitions = 0;
  uint32_t depth = 0;  // breadth-first levels explored, or steps of the counterexample
  uint32_t marks = 0;
  double seconds = 0;
  std::vector<TraceStep> trace;
};

// States live in chunks so that growth never copies them and the bound on memory is kept exactly.
template <class State>
class StateStore {
public:
  static constexpr size_t kChunk = 1u << 14;

  const State &at(uint32_t i) const { return chunks_[i / kChunk][i % kChunk]; }
  uint32_t size() const { return size_; }
  size_t bytes() const {
    return chunks_.size() * kChunk * sizeof(State) + table_.size() * sizeof(uint32_t) +
           size_ * (sizeof(uint32_t) + sizeof(uint16_t));
  }

  StateStore() : table_(1u << 16, 0) {}

  // Index of the state; `fresh` says whether it was new.
  uint32_t insert(const State &state, bool *fresh) {
    size_t slot = hash(state) & (table_.size() - 1);
    while (table_[slot] != 0) {
      if (std::memcmp(&at(table_[slot] - 1), &state, sizeof(State)) == 0) {
        *fresh = false;
        return table_[slot] - 1;
      }
      slot = (slot + 1) & (table_.size() - 1);
    }
    if (size_ % kChunk == 0) {
      chunks_.push_back(std::make_unique<State[]>(kChunk));
    }
    chunks_[size_ / kChunk][size_ % kChunk] = state;
    table_[slot] = ++size_;
    if (size_t{size_} * 2 > table_.size()) {
      grow();
    }
    *fresh = true;
    return size_ - 1;
  }

private:
  static uint64_t hash(const State &state) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(&state);
    uint64_t h = 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; i < sizeof(State); i += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + i, sizeof(State) - i < 8 ? sizeof(State) - i : 8);
      h = (h ^ word) * 0xff51afd7ed558ccdull;
      h ^= h >> 32;
    }
    return h;
  }

  void grow() {
    std::vector<uint32_t> table(table_.size() * 2, 0);
    for (uint32_t i = 0; i < size_; i++) {
      size_t slot = hash(at(i)) & (table.size() - 1);
      while (table[slot] != 0) {
        slot = (slot + 1) & (table.size() - 1);
      }
      table[slot] = i + 1;
    }
    table_.swap(table);
  }

  std::vector<std::unique_ptr<State[]>> chunks_;
  std::vector<uint32_t> table_;
  uint32_t size_ = 0;
};

template <class Model>
class Checker {
public:
  using State = typename Model::State;
  static_assert(std::is_trivially_copyable_v<State>);
  static_assert(std::has_unique_object_representations_v<State>, "a state must have no padding");

  Checker(const Model &model, size_t bytes_max) : model_(model), bytes_max_(bytes_max) {}

  Result run() {
    const auto start = std::chrono::steady_clock::now();
    Result result = search();
    const auto stop = std::chrono::steady_clock::now();
    result.states = store_.size();
    result.seconds = std::chrono::duration<double>(stop - start).count();
    return result;
  }

private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr bool kSettles = requires(const Model &m, const State &s) { m.settled(s); };

  Result search() {
    Result result;
    Sink<State> sink;
    add(model_.initial(), kNone, "start");
    uint32_t level_end = 1;
    for (uint32_t i = 0; i < store_.size(); i++) {
      if (i == level_end) {
        level_end = store_.size();
        result.depth++;
      }
      const State state = store_.at(i);
      if (const char *why = model_.violation(state)) {
        return fail(std::move(result), i, why);
      }
      result.marks |= model_.marks(state);
      sink.clear();
      model_.next(state, sink);
      for (const auto &step : sink.steps()) {
        const uint32_t to = add(step.state, i, step.label);
        result.transitions++;
        if constexpr (kSettles) {
          edges_.push_back({i, to});
        }
      }
      if (store_.bytes() + edges_.size() * sizeof(Edge) * 2 > bytes_max_) {
        result.verdict = Verdict::kBound;
        result.why = "the bound on memory was reached before all states were seen";
        return result;
      }
    }
    if constexpr (kSettles) {
      const uint32_t lost = first_lost();
      if (lost != kNone) {
        return fail(std::move(result), lost, "no path from here ever settles");
      }
    }
    return result;
  }

  uint32_t add(const State &state, uint32_t parent, const char *label) {
    bool fresh = false;
    const uint32_t index = store_.insert(state, &fresh);
    if (fresh) {
      parents_.push_back(parent);
      labels_.push_back(label_id(label));
    }
    return index;
  }

  uint16_t label_id(const char *label) {
    for (size_t i = 0; i < names_.size(); i++) {
      if (names_[i] == label) {
        return static_cast<uint16_t>(i);
      }
    }
    names_.push_back(label);
    return static_cast<uint16_t>(names_.size() - 1);
  }

  Result fail(Result result, uint32_t index, const char *why) const {
    result.verdict = Verdict::kViolation;
    result.why = why;
    std::vector<uint32_t> path;
    for (uint32_t i = index; i != kNone; i = parents_[i]) {
      path.push_back(i);
    }
    for (size_t k = path.size(); k-- > 0;) {
      result.trace.push_back({names_[labels_[path[k]]], model_.show(store_.at(path[k]))});
    }
    result.depth = static_cast<uint32_t>(path.size() - 1);
    return result;
  }

  // Backward reachability from the settled states; the first state in breadth-first order that is
  // not reached has the shortest trace.
  uint32_t first_lost() const requires(kSettles) {
    const uint32_t count = store_.size();
    std::vector<uint32_t> begin(count + 1, 0);
    for (const Edge &edge : edges_) {
      begin[edge.to + 1]++;
    }
    for (uint32_t i = 0; i < count; i++) {
      begin[i + 1] += begin[i];
    }
    std::vector<uint32_t> from(edges_.size());
    std::vector<uint32_t> fill(begin.begin(), begin.end() - 1);
    for (const Edge &edge : edges_) {
      from[fill[edge.to]++] = edge.from;
    }
    std::vector<bool> good(count, false);
    std::vector<uint32_t> todo;
    for (uint32_t i = 0; i < count; i++) {
      if (model_.settled(store_.at(i))) {
        good[i] = true;
        todo.push_back(i);
      }
    }
    while (!todo.empty()) {
      const uint32_t i = todo.back();
      todo.pop_back();
      for (uint32_t k = begin[i]; k < begin[i + 1]; k++) {
        if (!good[from[k]]) {
          good[from[k]] = true;
          todo.push_back(from[k]);
        }
      }
    }
    for (uint32_t i = 0; i < count; i++) {
      if (!good[i]) {
        return i;
      }
    }
    return kNone;
  }

  struct Edge {
    uint32_t from;
    uint32_t to;
  };

  const Model &model_;
  const size_t bytes_max_;
  StateStore<State> store_;
  std::vector<uint32_t> parents_;
  std::vector<uint16_t> labels_;
  std::vector<const char *> names_;
  std::vector<Edge> edges_;
};

// The command line of every model program.
template <class Model>
class Program {
public:
  int main(int argc, char **argv) {
    if (!parse(argc, argv)) {
      return 2;
    }
    if (list_) {
      return list();
    }
    if (json_) {
      std::printf("{\"schema\":\"kvpool.model/1\",\"model\":\"%s\",\"mode\":\"%s\",\"runs\":[",
                  Model::kName, mode_ == Mode::kShort ? "short" : "long");
    }
    bool found = only_.empty();
    if (only_.empty() || only_ == "clean") {
      found = true;
      run_clean();
    }
    for (const auto &mutant : Model::kMutants) {
      if (only_.empty() || only_ == mutant.name) {
        found = true;
        run_mutant(mutant);
      }
    }
    if (json_) {
      std::printf("],\"passed\":%u,\"failed\":%u}\n", passed_, failed_);
    }
    if (!found) {
      std::fprintf(stderr, "model_%s: no mutant is called '%s'\n", Model::kName, only_.c_str());
      std::fprintf(stderr, "hint: --list names them\n");
      return 2;
    }
    if (!json_) {
      std::printf("%u passed, %u failed\n", passed_, failed_);
    }
    return failed_ == 0 ? 0 : 1;
  }

private:
  using Rules = typename Model::Rules;

  bool parse(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
      const std::string_view arg = argv[i];
      if (arg == "--short") {
        mode_ = Mode::kShort;
      } else if (arg == "--long") {
        mode_ = Mode::kLong;
      } else if (arg == "--json") {
        json_ = true;
      } else if (arg == "--trace") {
        trace_ = true;
      } else if (arg == "--list") {
        list_ = true;
      } else if (arg == "--mutant" && i + 1 < argc) {
        only_ = argv[++i];
      } else {
        std::fprintf(stderr,
                     "usage: model_%s [--short | --long] [--json] [--trace] [--list] "
                     "[--mutant NAME | --mutant clean]\n",
                     Model::kName);
        return false;
      }
    }
    return true;
  }

  int list() const {
    std::printf("%s: %s\n", Model::kName, Model::kCovers);
    for (const auto &mutant : Model::kMutants) {
      std::printf("  %-28s proto %-6s %s\n", mutant.name, mutant.section, mutant.meaning);
    }
    return 0;
  }

  Result check(const Rules &rules) const {
    const Model model(rules, mode_);
    Checker<Model> checker(model, mode_ == Mode::kShort ? kShortBytes : kLongBytes);
    return checker.run();
  }

  void run_clean() {
    Result result = check(Rules{});
    std::string missing;
    for (size_t i = 0; i < std::size(Model::kMarks); i++) {
      if (!(result.marks >> i & 1)) {
        missing += missing.empty() ? "" : ", ";
        missing += Model::kMarks[i];
      }
    }
    bool ok = result.verdict == Verdict::kHolds;
    if (ok && !missing.empty()) {
      ok = false;
      result.why = "never reached: " + missing;
    }
    report("clean", result, ok, ok ? "holds" : "FAILED");
  }

  void run_mutant(const Mutant<Rules> &mutant) {
    Rules rules;
    rules.*mutant.rule = false;
    const Result result = check(rules);
    const bool ok = result.verdict == Verdict::kViolation;
    report(mutant.name, result, ok, ok ? "killed" : "SURVIVED");
  }

  void report(const char *name, const Result &result, bool ok, const char *verdict) {
    (ok ? passed_ : failed_)++;
    if (json_) {
      std::printf(
          "%s{\"name\":\"%s\",\"ok\":%s,\"verdict\":\"%s\",\"why\":\"%s\","
          "\"states\":%llu,\"transitions\":%llu,\"steps\":%u,\"seconds\":%.3f}",
          passed_ + failed_ > 1 ? "," : "", name, ok ? "true" : "false", verdict,
          result.why.c_str(), static_cast<unsigned long long>(result.states),
          static_cast<unsigned long long>(result.transitions), result.depth, result.seconds);
    } else {
      std::printf("%-10s %-28s %-8s %9llu states %4u steps %6.2f s  %s\n", Model::kName, name,
                  verdict, static_cast<unsigned long long>(result.states), result.depth,
                  result.seconds, result.why.c_str());
      if (trace_) {
        for (size_t i = 0; i < result.trace.size(); i++) {
          std::printf("    %3zu %-36s %s\n", i, result.trace[i].label.c_str(),
                      result.trace[i].state.c_str());
        }
      }
    }
    std::fflush(stdout);
  }

  static constexpr size_t kShortBytes = size_t{1} << 30;
  static constexpr size_t kLongBytes = size_t{8} << 30;

  Mode mode_ = Mode::kShort;
  bool json_ = false;
  bool trace_ = false;
  bool list_ = false;
  std::string only_;
  unsigned passed_ = 0;
  unsigned failed_ = 0;
};

// A printf that returns its text, for show().
template <class... Args>
std::string text(const char *format, Args... args) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

}  // namespace kvpool::model
