// SPDX-License-Identifier: Apache-2.0
// kvpool replay: what its parts share. The parent (parent.cc) makes the store, starts an owner and
// the members and adds their results up; a member (member.cc) takes requests in order of time from
// a page that all share, so that the workload keeps its order whatever the speed of each.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "histogram.hpp"
#include "options.hpp"
#include "say.hpp"
#include "trace/trace.hpp"

namespace kvpool::tools {

// Shared by parent and members through a memfd. Only this tool's own bookkeeping: nothing of the
// store goes this way.
struct ControlPage {
  std::atomic<std::uint64_t> next;  // request to take, counted over all passes
  std::atomic<std::uint64_t> bytes_moved;
  std::atomic<std::uint64_t> verify_failures;
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint32_t> attached;  // members that have opened the store
};

inline constexpr std::uint32_t kReplayBatch = 16;  // blocks a call

// One kind of call, as a member saw it.
struct OperationResult {
  std::uint64_t calls = 0;
  std::uint64_t blocks = 0;
  std::uint64_t sampled = 0;  // calls whose traffic was counted
  double round_trips = 0;     // sums over the sampled calls: waves and message pairs, in series
  double data_waves = 0;      // payload reads
  double lines_flushed = 0;
  Histogram latency;  // ns
};

struct MemberResult {
  std::uint64_t requests = 0;
  std::uint64_t blocks_put = 0;
  std::uint64_t blocks_exists = 0;
  std::uint64_t blocks_full = 0;
  std::uint64_t blocks_hit = 0;
  std::uint64_t blocks_hit_remote = 0;
  std::uint64_t blocks_missed = 0;
  std::uint64_t blocks_stale = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t verify_failures = 0;
  std::string first_failure;
  OperationResult lookup, get, put;

  void add(const MemberResult &other);
};

Json to_json(const MemberResult &result);
bool from_json(const Json &json, MemberResult &ret);

struct Workload {
  Trace trace;
  std::uint64_t passes = 1;
  std::uint64_t min_bytes = 0;
  std::uint64_t block_bytes = 0;
};

// The trace that the options name, read or generated; Failure when it cannot be.
Workload workload_of(const Args &args);

// The engine's key of a block id.
struct IdBytes {
  std::uint8_t bytes[8];
};
IdBytes id_bytes(std::uint64_t id);

// Replays through the index of a real store whose blocks nobody writes; see metadata.cc.
InfiniteCache replay_through_index(const Trace &trace, std::string_view progress_form);

void write_file(const std::string &path, const Json &json);

int run_member(const Args &args, const Workload &workload);
int run_parent(const Args &args, const Workload &workload);

}  // namespace kvpool::tools
