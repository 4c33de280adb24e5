// SPDX-License-Identifier: Apache-2.0
// lookup_keys, roundtrips_* and scale_*: what finding and storing small blocks costs, in time, in
// serial round trips, and as the store grows.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>

#include "bench/figures.hpp"
#include "bench/rig.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr u64 kMiB = u64{1} << 20;
constexpr double kHugeShare = 0.9;
constexpr u64 kBatch = 128;
constexpr u64 kSmallBlock = 4096;

// A sparse store of 4 KiB blocks with `entries` of them published.
StoreShape index_of(u64 entries) {
  const u64 bytes = entries * kSmallBlock * 5 / 4 + entries * 640 + 256 * kMiB;
  return {.bytes = bytes / (2 * kMiB) * (2 * kMiB),
          .block_bytes = kSmallBlock,
          .sparse = true};
}

void fill_new(const ApiStore &store, u64 entries) {
  PoolMember filler(store.file().address());
  fill(filler, ns_ref(store), 0, entries);
}

// Random keys of those published, prepared outside the time.
class Keys {
public:
  explicit Keys(u64 seed) : random_(seed) {}
  const std::vector<kvpool_key> &draw(u64 count, u64 entries) {
    keys_.resize(count);
    for (kvpool_key &key : keys_) key = plain_key(random_() % entries);
    return keys_;
  }

private:
  std::mt19937_64 random_;
  std::vector<kvpool_key> keys_;
};

// Nanoseconds a key found, in batches. Of millions of keys a few are missing: both their groups of
// the index were full.
double lookup_ns(const ApiStore &store, const std::vector<kvpool_key> &keys) {
  constexpr u64 kMissingOne = 1000;  // at most one in so many
  std::array<kvpool_hit, kBatch> hits;
  u64 looked = 0, found = 0;
  const u64 start = now_ns();
  for (; looked + kBatch <= keys.size(); looked += kBatch) {
    const int n = kvpool_lookup(store.ns(), &keys[looked], kBatch, KVPOOL_LOOKUP_F_ALL, 0,
                                hits.data());
    store.checked_call(n, "lookup");
    for (const kvpool_hit &hit : hits) found += hit.state == KVPOOL_STATE_HIT;
  }
  const u64 took = now_ns() - start;
  if (found + looked / kMissingOne < looked) {
    fail(kExitFailed, "lookup",
         std::to_string(looked - found) + " of " + std::to_string(looked) + " keys were not found");
  }
  return static_cast<double>(took) / static_cast<double>(found);
}

class Lookup final : public Group {
public:
  explicit Lookup(const Effort &effort)
      : keys_per_turn_(effort.of(512 * 1024)), store_(index_of(kEntries)), bare_(kRegion, true) {
    fill_new(store_, kEntries);
  }

  Turn turn(std::string_view) override {
    const kvpool_stats before = store_.stats();
    const auto &keys = keys_.draw(keys_per_turn_, kEntries);
    Turn ret;
    ret.value = 1e3 / lookup_ns(store_, keys);
    const kvpool_stats after = store_.stats();
    counts_ = Json();
    const double calls = static_cast<double>(keys_per_turn_ / kBatch);
    counts_["lines_acquired_per_call"] =
        static_cast<double>(after.lines_acquired - before.lines_acquired) / calls;
    counts_["round_trips_per_call"] =
        static_cast<double>(after.round_trips - before.round_trips) / calls;
    counts_["entries"] = kEntries;
    counts_["baseline_page_bytes"] = bare_.has_huge_pages() ? 2 << 20 : 4 << 10;
    ret.baseline =
        bare_.random_lines_per_second(4 * kBatch, keys_per_turn_ / kBatch) / 4 / 1e6;
    far_ratios_.push_back(ret.value * 4e6 /
                          bare_.random_lines_per_second(4 * kBatch, keys_per_turn_ / kBatch,
                                                        bare::Ahead::kFar));
    return ret;
  }

  Json details(std::string_view) override {
    Json ret = counts_;
    ret["bare_far_ratio"] = median(far_ratios_);
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kEntries = 2'000'000;
  static constexpr u64 kRegion = kEntries * 3 * kLineBytes;  // as large as the index

  const u64 keys_per_turn_;
  ApiStore store_;
  BareLoops bare_;
  Keys keys_{3};
  Json counts_;
  std::vector<double> far_ratios_;
};

// Counts, not times: the same on every machine.
class RoundTrips final : public Group {
public:
  explicit RoundTrips(const Effort &effort)
      : store_({.bytes = 256 * kMiB, .block_bytes = 64 * 1024, .verify = KVPOOL_VERIFY_ALWAYS}),
        calls_(effort.of(64)), data_(kBytes) {
    for (u64 i = 0; i < kBatch; ++i) {
      keys_.push_back(store_.key(i));
      put(keys_.back());
    }
  }

  Turn turn(std::string_view figure) override {
    std::vector<double> counted, round_trips, data;
    std::array<kvpool_hit, kBatch> hits;
    for (u64 i = 0; i < calls_; ++i) {
      const kvpool_key fresh = store_.key(next_);
      const kvpool_stats before = store_.stats();
      if (figure == "roundtrips_lookup") {
        const int found = kvpool_lookup(store_.ns(), keys_.data(), kBatch, 0, 0, hits.data());
        if (store_.checked_call(found, "lookup") != static_cast<int>(kBatch)) {
          fail(kExitFailed, "lookup", "a published key was not found");
        }
      } else if (figure == "roundtrips_get") {
        const int got = kvpool_get(store_.ns(), &keys_[i % kBatch], data_.data(), kBytes, 0);
        if (store_.checked_call(got, "get") != 1) fail(kExitFailed, "get", "a block is not there");
      } else {
        put(fresh);
        ++next_;
      }
      const kvpool_stats after = store_.stats();
      const bool pairs = figure == "roundtrips_put";
      counted.push_back(static_cast<double>(pairs ? after.message_pairs - before.message_pairs
                                                  : after.round_trips - before.round_trips));
      round_trips.push_back(static_cast<double>(after.round_trips - before.round_trips));
      data.push_back(static_cast<double>(after.data_waves - before.data_waves));
    }
    counts_ = Json();
    counts_["round_trips"] = median(round_trips);
    counts_["data_waves"] = median(data);
    Turn ret;
    // The median call: now and then one also fetches an extent, or meets a renewal of the lease.
    ret.value = median(counted);
    ret.baseline = figure == "roundtrips_get" ? 2 : 1;
    return ret;
  }

  Json details(std::string_view) override { return counts_; }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kBytes = 64 * 1024;

  void put(const kvpool_key &key) {
    const int stored = kvpool_put(store_.ns(), &key, data_.data(), kBytes, 0);
    if (store_.checked_call(stored, "put") != 1) fail(kExitFailed, "put", "a new key was there");
  }

  ApiStore store_;
  const u64 calls_;
  std::vector<char> data_;
  std::vector<kvpool_key> keys_;
  u64 next_ = u64{1} << 32;
  Json counts_;
};

// Two stores that differ in one thing. A turn measures lookup and put on both; the figure is the
// one that grew more in that turn.
class Pair {
public:
  Pair(ApiStore &large, u64 large_entries, ApiStore &small, u64 small_entries, const Effort &effort)
      : sides_{Side(large, large_entries), Side(small, small_entries)}, effort_(effort) {
    for (Side &side : sides_) fill(side.member, side.ns, 0, side.entries);
  }

  Turn turn() {
    double lookup[2], put[2];
    for (int i = 0; i < 2; ++i) {
      Side &side = sides_[i];
      const auto &keys = keys_.draw(effort_.of(128 * 1024), side.entries);
      lookup[i] = lookup_ns(side.store, keys) * kBatch / 1e3;
      put[i] = put_us(side);
    }
    lookups_.push_back(lookup[0] / lookup[1]);
    puts_.push_back(put[0] / put[1]);
    if (lookups_.back() >= puts_.back()) return {lookup[0], lookup[1]};
    return {put[0], put[1]};
  }

  Json details() const {
    Json ret;
    ret["lookup_ratio"] = median(lookups_);
    ret["put_ratio"] = median(puts_);
    ret["lookup_keys"] = kBatch;
    return ret;
  }

private:
  struct Side {
    Side(ApiStore &in, u64 count)
        : store(in), entries(count), member(in.file().address()), ns(ns_ref(in)) {}
    ApiStore &store;
    u64 entries;
    PoolMember member;
    pool::NsRef ns;
    u64 next = u64{1} << 40;
    std::vector<kvpool_key> stored = {};
  };

  // Median microseconds of a put that the owner answers.
  double put_us(Side &side) {
    side.store.remove(side.stored);
    side.stored.clear();
    std::vector<double> took;
    const u64 puts = effort_.of(2000);
    for (u64 i = 0; i < puts; ++i) {
      const u64 n = side.next++;
      const u64 start = now_ns();
      const int err = put_one(side.member, side.ns, n);
      const u64 end = now_ns();
      if (err) continue;  // both its groups are full
      took.push_back(static_cast<double>(end - start) / 1e3);
      side.stored.push_back(plain_key(n));
    }
    if (took.size() < puts / 2) fail(kExitFailed, "put", "the index refuses most of them");
    return median(std::move(took));
  }

  std::array<Side, 2> sides_;
  const Effort effort_;
  Keys keys_{5};
  std::vector<double> lookups_, puts_;
};

class Entries final : public Group {
public:
  explicit Entries(const Effort &effort)
      : large_(index_of(kLarge)), small_(index_of(kSmall)),
        pair_(large_, kLarge, small_, kSmall, effort), bare_(kLarge * kIndexBytes, true) {}
  Turn turn(std::string_view) override {
    const double large = bare_.random_groups_ns(kLarge * kIndexBytes, kBatch, kBareBatches);
    const double small = bare_.random_groups_ns(kSmall * kIndexBytes, kBatch, kBareBatches);
    bare_ratios_.push_back(large / small);
    return pair_.turn();
  }
  Json details(std::string_view) override {
    Json ret = pair_.details();
    ret["bare_lookup_ratio"] = median(bare_ratios_);
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kLarge = 4'000'000;
  static constexpr u64 kSmall = 64'000;
  static constexpr u64 kIndexBytes = 96;  // of index an entry: two lines for three
  static constexpr u64 kBareBatches = 500;
  ApiStore large_, small_;
  Pair pair_;
  BareLoops bare_;
  std::vector<double> bare_ratios_;
};

class Members final : public Group {
public:
  explicit Members(const Effort &effort)
      : large_(kShape), small_(kShape),
        idle_(kOwnerCpu, "members " + std::to_string(kIdle) + " " + large_.file().address()),
        pair_(large_, kEntries, small_, kEntries, effort) {
    await_members();
  }
  Turn turn(std::string_view) override { return pair_.turn(); }
  Json details(std::string_view) override { return pair_.details(); }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kEntries = 16'000;
  static constexpr u32 kIdle = 63;  // on hosts of their own, beside the one that works
  static constexpr StoreShape kShape{.bytes = 512 * kMiB,
                                     .block_bytes = kSmallBlock,
                                     .hosts = 8};

  // The idle ones take their slots one after the other.
  void await_members();

  ApiStore large_, small_;
  Child idle_;
  Pair pair_;
};

void Members::await_members() {
  const u64 deadline = now_ns() + 60'000'000'000;
  PoolMember watcher(large_.file().address());
  const media::Geometry &geo = watcher.member().geometry();
  auto &memory = watcher.context().env().memory();
  for (;;) {
    u32 joined = 0;
    for (u32 slot = 0; slot < geo.member_count(); ++slot) {
      if (geo.host_of(slot) == 0) continue;
      Line line;
      memory.acquire(geo.member_at(slot), kLineBytes);
      if (!memory.load_line(geo.member_at(slot), line)) continue;
      if (!watcher.member().claims().sealer().intact(line, geo.member_at(slot), 0)) continue;
      const auto member = media::from_line<media::MemberLine>(line);
      joined += member.state == static_cast<u8>(media::MemberState::kJoined);
    }
    if (joined >= kIdle) return;
    if (!idle_.running() || now_ns() > deadline) {
      fail(kExitFailed, "64 members", "do not all join in time");
    }
    usleep(20'000);
  }
}

}  // namespace

std::unique_ptr<Group> make_lookup(const Effort &e) { return std::make_unique<Lookup>(e); }
std::unique_ptr<Group> make_roundtrips(const Effort &e) { return std::make_unique<RoundTrips>(e); }
std::unique_ptr<Group> make_entries(const Effort &e) { return std::make_unique<Entries>(e); }
std::unique_ptr<Group> make_members(const Effort &e) { return std::make_unique<Members>(e); }

}  // namespace kvpool::tools::bench
