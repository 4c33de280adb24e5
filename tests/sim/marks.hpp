// SPDX-License-Identifier: Apache-2.0
// Coverage marks: rare legal paths that a smoke run must have taken. A mark is a type named by its
// text, so it is in the list as soon as its code is compiled, whether or not it was ever reached.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "arch/types.hpp"

namespace kvpool::sim {

inline constexpr u32 kMarksMax = 512;

class MarkRegistry {
public:
  static u32 add(std::string_view name);
  static const std::vector<std::string_view> &names();
  // Where counts go; the runner puts them into memory shared with its children.
  static void set_counts(u64 *counts);
  static void hit(u32 id);
  // A mark of production code, named by its text. One that list_marks.py did not find is a mistake.
  static void hit_named(const char *name);
};

template <std::size_t N>
struct MarkName {
  char text[N];
  constexpr MarkName(const char (&s)[N]) { std::copy_n(s, N, text); }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

template <MarkName Name>
struct Mark {
  static inline const u32 id = MarkRegistry::add(Name.view());
  static void hit() { MarkRegistry::hit(id); }
};

}  // namespace kvpool::sim

#define SIM_MARK(name) ::kvpool::sim::Mark<name>::hit()
