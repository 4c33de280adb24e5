// SPDX-License-Identifier: Apache-2.0
// kvpool replay: which of its forms is wanted.
#include <fmt/format.h>

#include "commands.hpp"
#include "replay/replay.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

// No store and no payload: what a cache that never forgets would hit. The upper bound for every
// pool.
int replay_metadata(const Args &args, const Workload &workload) {
  stop_on_signals();
  const InfiniteCache cache = replay_through_index(workload.trace, args.text("--progress", "auto"));
  // A second opinion, without any store: the two differ only if the index lost or invented a block.
  const InfiniteCache plain = infinite_cache(workload.trace);
  if (cache.block_hits != plain.block_hits || cache.distinct != plain.distinct) {
    warn(fmt::format("the index says {} hits of {} blocks, a plain count {} of {}",
                     cache.block_hits, cache.distinct, plain.block_hits, plain.distinct));
  }
  const double rate = cache.block_refs == 0 ? 0
                                            : static_cast<double>(cache.block_hits) /
                                                  static_cast<double>(cache.block_refs);
  if (args.json() || args.has("--json-file")) {
    Json json;
    json["requests"] = workload.trace.requests.size();
    json["block_refs"] = cache.block_refs;
    json["block_hits"] = cache.block_hits;
    json["hit_rate"] = rate;
    json["distinct_blocks"] = cache.distinct;
    json["dialect"] = dialect_name(workload.trace.dialect);
    json["tokens_per_block"] = workload.trace.tokens_per_id;
    json["sorted"] = workload.trace.was_sorted;
    json["bad_lines"] = workload.trace.bad_lines;
    if (args.has("--json-file")) write_file(args.text("--json-file"), json);
    if (args.json()) {
      print_plain_json(json);
      return kExitFine;
    }
  }
  Table table({"", ">"});
  table.row({"requests", count_text(workload.trace.requests.size())});
  table.row({"block references", count_text(cache.block_refs)});
  table.row({"distinct blocks", count_text(cache.distinct)});
  table.row({"block hits", count_text(cache.block_hits)});
  table.row({"hit rate", fmt::format("{:.1f} %", 100 * rate)});
  print_text(table.text());
  return kExitFine;
}

// Options that say nothing beside one another.
void refuse_pairs(const Args &args) {
  struct Pair {
    const char *given, *useless, *why;
  };
  constexpr Pair kPairs[] = {
      {"--pool", "--capacity", "a store that is there has its size"},
      {"--pool", "--scratch", "no new store is made"},
      {"FILE", "--seed", "it is for the workload that is generated without FILE"},
      {"FILE", "--requests", "it is for the workload that is generated without FILE"},
  };
  for (const Pair &pair : kPairs) {
    if (!args.has(pair.given) || !args.has(pair.useless)) continue;
    fail(kExitUsage, pair.useless, fmt::format("says nothing with {}: {}", pair.given, pair.why),
         "leave one of them out");
  }
}

}  // namespace

int cmd_replay(const Args &args) {
  if (!args.has("--member")) refuse_pairs(args);
  const Workload workload = workload_of(args);
  if (workload.trace.bad_lines != 0 && !args.has("--member")) {
    warn(fmt::format("{} lines cannot be read and were skipped; the first: {}",
                     workload.trace.bad_lines, workload.trace.first_bad));
  }
  if (args.has("--member")) return run_member(args, workload);
  if (args.has("--metadata-only")) {
    if (args.has("--corrupt")) {
      fail(kExitUsage, "--corrupt", "there are no bytes to flip with --metadata-only",
           "leave one of them out");
    }
    if (args.text("--capacity", "unlimited") != "unlimited") {
      fail(kExitUsage, "--metadata-only",
           "counts what a cache without limits hits: --capacity unlimited",
           "leave --metadata-only out to replay through a real pool of that size");
    }
    return replay_metadata(args, workload);
  }
  return run_parent(args, workload);
}

}  // namespace kvpool::tools
