// SPDX-License-Identifier: Apache-2.0
// The table of figures, and the numbers made of turns.
#include "bench/figures.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "options.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr auto kHigher = Better::kHigher;
constexpr auto kLower = Better::kLower;
constexpr auto kRatio = GoalOf::kRatio;
constexpr auto kValue = GoalOf::kValue;

constexpr FigureSpec kFigures[] = {
    {"payload_write", "payload", "GB/s", kHigher, kRatio, 0.95, 0.95,
     "a block of 1 MiB through kvpool_put, reads not verified", "bare streaming stores",
     make_payload},
    {"payload_read", "payload", "GB/s", kHigher, kRatio, 0.95, 0.95,
     "a block of 1 MiB through kvpool_get, not verified", "bare loop that flushes ahead",
     make_payload},
    {"payload_write_verify", "payload", "GB/s", kHigher, kRatio, 0.92, 0.92,
     "the same with verify=always", "bare streaming stores", make_payload},
    {"payload_read_verify", "payload", "GB/s", kHigher, kRatio, 0.80, 0.80,
     "the same with verify=always", "bare loop that flushes ahead", make_payload},
    {"block_gather", "block", "GB/s", kHigher, kRatio, 0.95, 0.95,
     "put of a block of 128 fragments of 20 KiB, scattered in local memory",
     "the same bytes from one buffer", make_block},
    {"block_scatter", "block", "GB/s", kHigher, kRatio, 0.95, 0.95,
     "get of such a block", "the same bytes to one buffer", make_block},
    {"rows_read", "rows", "M/s", kHigher, kRatio, 5, 8,
     "random rows of 160 bytes, 1,024 in one plan", "flush, fence, copy, row by row", make_rows},
    {"request_rtt", "request", "us", kLower, kRatio, 1.3, 1.3,
     "an empty request between two processes", "bare ping-pong of two lines", make_request},
    {"request_accept_rtt", "request", "us", kLower, kRatio, 2, 2,
     "the same with accept", "bare ping-pong of two lines", make_request},
    {"owner_requests", "owner", "M/s", kHigher, kValue, 15, 15,
     "empty requests of one owner thread, depth 127", "bare ping-pong, one at a time",
     make_request},
    {"owner_publications", "owner", "M/s", kHigher, kValue, 5, 5,
     "publications of one owner thread, entry and map lines on the medium",
     "empty requests of the same owner", make_request},
    {"lookup_keys", "lookup", "M/s", kHigher, kValue, 12, 12,
     "keys found in batches of 128 among 2 million, by one thread",
     "bare flush and load of four random lines a key", make_lookup},
    {"roundtrips_lookup", "roundtrips", "count", kLower, kValue, 1, 1,
     "serial round trips of a lookup of 128 keys", "what the protocol says", make_roundtrips},
    {"roundtrips_get", "roundtrips", "count", kLower, kValue, 2, 2,
     "serial round trips of a get, its data apart", "what the protocol says", make_roundtrips},
    {"roundtrips_put", "roundtrips", "count", kLower, kValue, 1, 1,
     "message pairs of a put, its data apart", "what the protocol says", make_roundtrips},
    {"scale_entries", "scale", "us", kLower, kRatio, 1.2, 1.2,
     "lookup and put with 4 million entries, the one that grows more", "with 64 thousand",
     make_entries},
    {"scale_members", "scale", "us", kLower, kRatio, 1.2, 1.2,
     "lookup and put with 64 members, the one that grows more", "with 1", make_members},
    {"takeover", "takeover", "ms", kLower, kValue, 100, 100,
     "from the suspicion to the first request served, 2 million entries",
     "the same lines read bare", make_takeover},
    {"takeover_read_gap", "takeover", "us", kLower, kRatio, 10, 10,
     "longest gap between two reads of blocks during a take-over",
     "gap that one in a thousand exceeds in an idle store", make_takeover},
    {"idle_lines", "idle", "k/s", kLower, kValue, 200, 200,
     "lines that an owner reads while nobody asks, a member on each of 16 hosts",
     "random lines read bare", make_idle},
};

double quantile(std::vector<double> &sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

}  // namespace

std::span<const FigureSpec> figures() { return kFigures; }

std::vector<const FigureSpec *> select(const std::vector<std::string> &names) {
  std::vector<std::string_view> known;
  for (const FigureSpec &f : kFigures) {
    known.push_back(f.name);
    if (std::find(known.begin(), known.end(), f.group) == known.end()) known.push_back(f.group);
  }
  for (const std::string &name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string_view nearest = nearest_word(name, known);
    fail(kExitUsage, name, "no such figure or group",
         nearest.empty() ? "kvpool bench --list names them"
                         : fmt::format("did you mean {}?", nearest));
  }
  std::vector<const FigureSpec *> ret;
  for (const FigureSpec &f : kFigures) {
    const auto wanted = [&](const std::string &name) { return name == f.name || name == f.group; };
    if (names.empty() || std::any_of(names.begin(), names.end(), wanted)) ret.push_back(&f);
  }
  return ret;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

bool Result::met() const {
  const double number = spec->goal_of == GoalOf::kRatio ? ratio : value;
  return spec->better == Better::kHigher ? number >= goal : number <= goal;
}

Result evaluate(const FigureSpec &spec, const std::vector<Turn> &turns, bool huge_pages) {
  std::vector<double> values, baselines, ratios;
  for (const Turn &turn : turns) {
    const double ratio = turn.value / turn.baseline;
    if (!(turn.value > 0) || !(turn.baseline > 0) || !std::isfinite(ratio)) {
      fail(kExitFailed, std::string(spec.name), "measured no time at all");
    }
    values.push_back(turn.value);
    baselines.push_back(turn.baseline);
    ratios.push_back(ratio);
  }
  if (ratios.empty()) fail(kExitFailed, std::string(spec.name), "was not measured");
  Result ret;
  ret.spec = &spec;
  ret.value = median(values);
  ret.baseline = median(baselines);
  std::sort(ratios.begin(), ratios.end());
  ret.ratio = quantile(ratios, 0.5);
  ret.spread = (quantile(ratios, 0.75) - quantile(ratios, 0.25)) / ret.ratio;
  ret.goal = huge_pages ? spec.goal_huge : spec.goal;
  ret.runs = ratios.size();
  return ret;
}

}  // namespace kvpool::tools::bench
