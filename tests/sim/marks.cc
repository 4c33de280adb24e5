// SPDX-License-Identifier: Apache-2.0
// The list of coverage marks and their counts.
#include "marks.hpp"

#include <cstdio>
#include <cstdlib>

namespace kvpool::sim {

namespace {
std::vector<std::string_view> &registry() {
  static std::vector<std::string_view> names;
  return names;
}
u64 *g_counts = nullptr;
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

void MarkRegistry::hit(u32 id) {
  if (g_counts) ++g_counts[id];
}

}  // namespace kvpool::sim
