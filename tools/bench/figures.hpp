// SPDX-License-Identifier: Apache-2.0
// The figures of `kvpool bench`: their table, how one is measured, and what comes out. A figure and
// its baseline take turns, so that what disturbs the machine disturbs both.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "say.hpp"

namespace kvpool::tools::bench {

enum class Better : unsigned char { kHigher, kLower };

// What a goal is compared with.
enum class GoalOf : unsigned char { kRatio, kValue };

// One turn: the figure, then its baseline.
struct Turn {
  double value = 0;
  double baseline = 0;
};

// How much work one turn is: full, or a part of it with --quick.
struct Effort {
  bool quick = false;
  std::uint64_t of(std::uint64_t full) const { return quick ? (full + 3) / 4 : full; }
};

// Sets up once what a group of figures needs, and measures them one turn at a time.
class Group {
public:
  virtual ~Group() = default;
  // Throws Failure where it cannot be measured.
  virtual Turn turn(std::string_view figure) = 0;
  // What else is worth knowing of `figure` once its turns are over.
  virtual Json details(std::string_view figure) = 0;
  // Whether the memory measured on is mapped by 2 MiB pages: nine tenths of it or more.
  virtual bool huge_pages() = 0;
};

struct FigureSpec {
  std::string_view name;
  std::string_view group;
  std::string_view unit;
  Better better;
  GoalOf goal_of;
  double goal;       // on 4 KiB pages
  double goal_huge;  // on 2 MiB pages
  std::string_view what;
  std::string_view against;  // the baseline
  std::unique_ptr<Group> (*make)(const Effort &);
};

std::span<const FigureSpec> figures();

// The figures that `names` (figures or groups; none: all) stand for, in the table's order, each
// once. Throws Failure with the nearest known name.
std::vector<const FigureSpec *> select(const std::vector<std::string> &names);

struct Result {
  const FigureSpec *spec = nullptr;
  double value = 0;     // medians of the turns
  double baseline = 0;
  double ratio = 0;     // median of the turns' ratios
  double spread = 0;    // distance of the ratios' quartiles over their median
  double goal = 0;
  std::size_t runs = 0;
  bool met() const;
};

// From at least one turn. Throws Failure when a number is not finite or not positive.
Result evaluate(const FigureSpec &spec, const std::vector<Turn> &turns, bool huge_pages);

double median(std::vector<double> values);

std::unique_ptr<Group> make_payload(const Effort &effort);     // payload_*
std::unique_ptr<Group> make_block(const Effort &effort);       // block_*
std::unique_ptr<Group> make_rows(const Effort &effort);        // rows_read
std::unique_ptr<Group> make_request(const Effort &effort);     // request_*, owner_*
std::unique_ptr<Group> make_lookup(const Effort &effort);      // lookup_keys
std::unique_ptr<Group> make_roundtrips(const Effort &effort);  // roundtrips_*
std::unique_ptr<Group> make_entries(const Effort &effort);     // scale_entries
std::unique_ptr<Group> make_members(const Effort &effort);     // scale_members
std::unique_ptr<Group> make_takeover(const Effort &effort);    // takeover*
std::unique_ptr<Group> make_idle(const Effort &effort);        // idle_lines

}  // namespace kvpool::tools::bench
