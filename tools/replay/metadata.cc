// SPDX-License-Identifier: Apache-2.0
// Replay without payload: every request goes through a real store's look-ups, reservations and
// publications, and an owner in a process of its own decides; but no block is ever written, so the
// pool can be as large as the whole workload. What comes out is the hit rate that no pool exceeds.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <unordered_set>

#include <fmt/format.h>

#include "bench/rig.hpp"
#include "client.hpp"
#include "media/classes.hpp"
#include "replay/replay.hpp"

namespace kvpool::tools {

namespace {

constexpr u64 kPayloadLines = 63;  // with its check line exactly 4 KiB
constexpr double kSeconds = 60;
constexpr int kFullRetries = 50;

// The index has room for four times the workload, so that no key finds both its groups full.
bench::StoreShape shape_for(u64 distinct) {
  constexpr u64 kStripe = u64{2} << 20;
  bench::StoreShape shape;
  shape.sparse = true;
  shape.block_bytes = 4096;
  shape.bytes = (std::max<u64>(4 * distinct * 4096, u64{128} << 20) / kStripe + 1) * kStripe;
  return shape;
}

class MetadataReplay {
public:
  MetadataReplay(const Trace &trace, u64 distinct)
      : trace_(trace),
        store_(shape_for(distinct)),
        member_(store_.file().address()),
        ns_(bench::ns_ref(store_)) {}

  InfiniteCache run(Progress &progress) {
    u64 done = 0;
    for (const Request &request : trace_.requests) {
      if (stop_requested()) fail(kExitFailed, "replay", "interrupted");
      replay(request);
      progress.show(++done, trace_.requests.size(), "requests");
    }
    return cache_;
  }

private:
  void replay(const Request &request) {
    const auto ids = trace_.ids_of(request);
    if (ids.empty()) return;
    const bool chained = trace_.tokens_per_id != 0;
    keys_.resize(ids.size());
    hits_.assign(ids.size(), kvpool_hit{});
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const IdBytes bytes = id_bytes(ids[i]);
      store_.checked_call(kvpool_key_wrap(store_.ns(), bytes.bytes, sizeof(bytes.bytes), &keys_[i]),
                          "key");
    }
    const int prefix = store_.checked_call(
        kvpool_lookup(store_.ns(), keys_.data(), keys_.size(), chained ? 0 : KVPOOL_LOOKUP_F_ALL,
                      deadline_in(kSeconds), hits_.data()),
        "lookup");
    cache_.block_refs += ids.size();
    std::vector<pool::Publication> missing;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool hit =
          chained ? i < static_cast<std::size_t>(prefix) : hits_[i].state == KVPOOL_STATE_HIT;
      if (hit) {
        ++cache_.block_hits;
        continue;
      }
      pool::Publication publication;
      std::memcpy(publication.key.w, keys_[i].bytes, sizeof(publication.key.w));
      publication.ns = ns_;
      publication.payload_lines = kPayloadLines;
      missing.push_back(publication);
    }
    for (int tries = 0; !missing.empty(); ++tries) {
      if (tries > kFullRetries) fail(kExitFailed, "replay", "the index has no room for a key");
      publish(missing);
    }
  }

  // Leaves in `missing` what found no room. An id may stand twice in one request, or a million
  // times: the pool has room for the distinct ones, so blocks are reserved for a part of them at a
  // time.
  void publish(std::vector<pool::Publication> &missing) {
    constexpr std::size_t kPart = 4096;
    std::vector<pool::Publication> again;
    for (std::size_t done = 0; done < missing.size(); done += kPart) {
      const std::size_t n = std::min(kPart, missing.size() - done);
      publish_part({missing.data() + done, n}, again);
    }
    missing = std::move(again);
  }

  void publish_part(std::span<pool::Publication> part, std::vector<pool::Publication> &ret_again) {
    auto &member = member_.member();
    const std::uint64_t deadline = deadline_in(kSeconds);
    const u64 bytes = media::block_shape(kPayloadLines * kLineBytes, 1).block_bytes();
    std::vector<pool::Block> blocks(part.size());
    const auto count = static_cast<u32>(part.size());
    if (int err = member.reserve(bytes, count, deadline, blocks.data()); err != 0) {
      fail_errno("reserve", err);
    }
    for (u32 i = 0; i < count; ++i) part[i].block = blocks[i];
    if (int err = member.publish(part.data(), count, deadline); err != 0) {
      fail_errno("publish", err);
    }
    for (pool::Publication &one : part) {
      if (one.result == 0) {
        ++cache_.distinct;
        continue;
      }
      member.abort(one.block);  // it stays in hand
      if (one.result == -ENOSPC) {
        ret_again.push_back(one);
      } else if (one.result != -EEXIST) {
        fail_errno("publish", one.result);
      }
    }
  }

  const Trace &trace_;
  bench::ApiStore store_;
  bench::PoolMember member_;
  pool::NsRef ns_;
  std::vector<kvpool_key> keys_;
  std::vector<kvpool_hit> hits_;
  InfiniteCache cache_;
};

}  // namespace

InfiniteCache replay_through_index(const Trace &trace, std::string_view progress_form) {
  const std::unordered_set<std::uint64_t> distinct(trace.ids.begin(), trace.ids.end());
  Progress progress("replay", progress_form);
  return MetadataReplay(trace, distinct.size()).run(progress);
}

}  // namespace kvpool::tools
