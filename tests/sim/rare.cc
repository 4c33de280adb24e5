// SPDX-License-Identifier: Apache-2.0
#include "rare.hpp"

#include <algorithm>

namespace kvpool::sim {
namespace {

constexpr u64 kHuntStep = 50;
constexpr u64 kHuntMost = 2'000;  // seeds of one mark

// Seeds move with every change of protocol code; from there on the hunt goes up to the bound.
constexpr RareMark kRareMarks[] = {
    {"index_growth_without_room", "index-growth", 23, nullptr},
    {"doubt_of_hidden", "pool-growth", 5, nullptr},
    {"shrink_forgotten", "pool-growth", 47, nullptr},
    {"gives_way_to_itself", "restarts", 570, nullptr},
    {"report_again", "doubt", 12, nullptr},
    {"doubt_of_unknown_clear", "media", 275, nullptr},
    {"scan_ns_from_spare", "media", 31, nullptr},
    {"get_stale", "store-zombie", 25, nullptr},
    {"pending_of_nobody", "crash", 120, nullptr},
    {"get_corrupt", "store-zombie", 24, nullptr},
    {"check found damage on a tainted block", "store-zombie", 24, nullptr},
    {"acknowledged_later", "groups", 121, nullptr},
    {"claims_reread", "links", 2, nullptr},
    {"outbid_owner_knows_alone", "device", 87, nullptr},
    {"older_area_filled", "device", 7, nullptr},
    {"member_line_mended", "crash", 80, nullptr},
    {"validate_again", "store-small", 5094, nullptr},
    {"versions_used_up", "doubt", 84, nullptr},
    {"claim_jump", nullptr, 0,
     "unit pool_failure: claim_far_above_the_others_is_damage"},
    {"pinned_block_gone", nullptr, 0,
     "unit pool_pins"},
    {"run_release_cut_short", nullptr, 0,
     "kvpool-sim --enumerate: run"},
    {"run_without_entry", nullptr, 0,
     "unit pool_recovery: run_whose_entry_is_lost_is_free"},
    {"run_word_reported", nullptr, 0,
     "unit pool_recovery: unreadable_word_behind_a_run_goes_to_who_reports_it"},
    {"run_word_restored", nullptr, 0,
     "unit pool_recovery: unreadable_word_of_a_published_run_loses_nothing"},
    {"scan_entry_refused", nullptr, 0,
     "unit pool_recovery: take_over_refuses_impossible_values"},
    {"scan_spill_said_anew", nullptr, 0,
     "unit pool_recovery: take_over_says_anew_which_groups_spill"},
    {"scan_twin_hidden", nullptr, 0,
     "unit pool_recovery: take_over_keeps_one_entry_of_a_key"},
};

u64 count_of(const RunReport &report, std::string_view mark) {
  for (const auto &[name, count] : report.marks) {
    if (name == mark) return count;
  }
  return 0;
}

void add(const RunReport &more, RunReport &report) {
  report.seeds += more.seeds;
  report.steps += more.steps;
  report.seconds += more.seconds;
  report.interrupted |= more.interrupted;
  report.violations += more.violations;
  report.failures.insert(report.failures.end(), more.failures.begin(), more.failures.end());
  for (const auto &[name, count] : more.marks) {
    const auto known = std::find_if(report.marks.begin(), report.marks.end(),
                                    [&](const auto &m) { return m.first == name; });
    if (known == report.marks.end()) {
      report.marks.emplace_back(name, count);
    } else {
      known->second += count;
    }
  }
}

}  // namespace

std::span<const RareMark> rare_marks() { return kRareMarks; }

const RareMark *find_rare_mark(std::string_view mark) {
  for (const RareMark &rare : kRareMarks) {
    if (rare.mark == mark) return &rare;
  }
  return nullptr;
}

void hunt_rare_marks(const Plan &plan, RunReport &report) {
  for (const RareMark &rare : kRareMarks) {
    if (rare.scenario == nullptr) continue;
    for (u64 done = 0; done < kHuntMost && !stop_requested();) {
      if (count_of(report, rare.mark) > 0) break;
      Plan hunt = plan;
      hunt.scenario = rare.scenario;
      hunt.first_seed = rare.first_seed + done;
      hunt.seeds = done == 0 ? 1 : kHuntStep;
      done += hunt.seeds;
      hunt.canary_runs = 0;
      hunt.progress = nullptr;
      add(run_plan(hunt), report);
    }
  }
}

}  // namespace kvpool::sim
