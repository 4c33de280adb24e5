// SPDX-License-Identifier: Apache-2.0
// The list of coverage marks and their counts.
#include "marks.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

namespace kvpool::sim {

namespace {
std::vector<std::string_view> &registry() {
  static std::vector<std::string_view> names;
  return names;
}
u64 *g_counts = nullptr;

constexpr std::string_view kProductionMarks[] = {
    "",  // keeps the table from being empty
#include "sim_marks.inc"
};

u32 named_id(std::string_view name) {
  for (std::string_view known : kProductionMarks) {
    if (known == name) return MarkRegistry::add(name);
  }
  std::fprintf(stderr, "kvpool-sim: mark %s is not in the generated list\n",
               std::string(name).c_str());
  std::abort();
}

// Before main, like the marks of the scenarios.
const bool g_listed = [] {
  for (std::string_view name : kProductionMarks) {
    if (!name.empty()) MarkRegistry::add(name);
  }
  return true;
}();
}  // namespace

u32 MarkRegistry::add(std::string_view name) {
  auto &names = registry();
  for (u32 i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  if (names.size() == kMarksMax) {
    std::fprintf(stderr, "kvpool-sim: more than %u coverage marks\n", kMarksMax);
    std::abort();
  }
  names.push_back(name);
  return static_cast<u32>(names.size() - 1);
}

const std::vector<std::string_view> &MarkRegistry::names() {
  return registry();
}

void MarkRegistry::set_counts(u64 *counts) {
  g_counts = counts;
}

void MarkRegistry::hit_named(const char *name) {
  static std::unordered_map<const void *, u32> ids;  // by the address of the literal
  const auto [found, fresh] = ids.try_emplace(name, 0);
  if (fresh) found->second = named_id(name);
  hit(found->second);
}

void MarkRegistry::hit(u32 id) {
  if (g_counts) ++g_counts[id];
}

}  // namespace kvpool::sim
