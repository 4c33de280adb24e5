// SPDX-License-Identifier: Apache-2.0
// request_* and owner_*: messages between this process and an owner on another CPU, beside two
// lines that go back and forth between as many processes.
#include <optional>

#include "bench/figures.hpp"
#include "bench/rig.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr u64 kMiB = u64{1} << 20;
constexpr double kHugeShare = 0.9;

class Requests final : public Group {
public:
  explicit Requests(const Effort &effort) : effort_(effort) {}

  Turn turn(std::string_view figure) override {
    if (!store_) {
      // Half a million blocks. What a turn publishes is removed before the next, outside the time.
      store_.emplace(StoreShape{.bytes = 2048 * kMiB, .block_bytes = 4096, .sparse = true});
      member_.emplace(store_->file().address());
      ns_ = ns_ref(*store_);
      pin_to(kClientCpu);
      (void)rate(false);  // the owner's ring window grows, pages are touched
    }
    const Counters before = member_->counters();
    Turn ret;
    u64 calls = 0;
    if (figure == "owner_publications") {
      calls = effort_.of(80'000);
      const u64 took = fill(*member_, ns_, published_, published_ + calls);
      remove(published_, published_ + calls);
      published_ += calls;
      ret.value = static_cast<double>(calls) * 1e3 / static_cast<double>(took);
      counts(before, calls);
      ret.baseline = rate(false);
      bare_floods_.push_back(bare().flood_mps(calls, kDepth, true));
    } else if (figure == "owner_requests") {
      calls = kRateRequests;
      ret.value = rate(true);
      counts(before, calls);
      ret.baseline = 1e3 / ping_pong();
      bare_floods_.push_back(bare().flood_mps(calls, kDepth, false));
    } else {
      ret.value = round_trip(figure == "request_accept_rtt") / 1e3;
      counts(before, effort_.of(kRounds));
      ret.baseline = ping_pong() / 1e3;
    }
    return ret;
  }

  Json details(std::string_view) override {
    Json ret = counts_;
    if (!bare_floods_.empty()) ret["bare_flood_mps"] = median(bare_floods_);
    bare_floods_.clear();
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kRateRequests = 400'000;
  static constexpr u64 kRounds = 16'384;
  static constexpr u32 kChunk = 16;
  static constexpr u32 kDepth = 127;
  static constexpr u64 kArenaBytes = 512 * kMiB;

  // Nanoseconds of one empty request, nothing else under way: median of means of 16.
  double round_trip(bool accept) {
    std::vector<double> took;
    for (u64 done = 0; done < effort_.of(kRounds); done += kChunk) {
      const u64 start = now_ns();
      ping(kChunk, 1, accept);
      took.push_back(static_cast<double>(now_ns() - start) / kChunk);
    }
    return median(std::move(took));
  }
  // Million requests a second.
  double rate(bool whole) {
    const u64 requests = whole ? kRateRequests : kRateRequests / 4;
    const u64 start = now_ns();
    ping(static_cast<u32>(requests), kDepth, false);
    return static_cast<double>(requests) * 1e3 / static_cast<double>(now_ns() - start);
  }
  void ping(u32 count, u32 depth, bool accept) {
    const int err = member_->member().ping(count, depth, accept, now_ns() + 60'000'000'000);
    if (err) fail_errno("an empty request", err, "the owner does not answer");
  }
  void remove(u64 from, u64 to) {
    std::vector<kvpool_key> keys;
    for (u64 n = from; n < to; ++n) keys.push_back(plain_key(n));
    store_->remove(keys);
  }
  BareLoops &bare() {
    if (!bare_) bare_.emplace(kArenaBytes, true);
    return *bare_;
  }
  double ping_pong() {
    const std::vector<u64> took = ping_pong_ns(effort_.of(kRounds), true);
    if (took.empty()) fail(kExitFailed, "ping-pong", "the second process does not answer");
    return static_cast<double>(took[took.size() / 2]);
  }
  void counts(const Counters &before, u64 calls) {
    const Counters now = member_->counters();
    const auto each = [&](u64 a, u64 b) {
      return static_cast<double>(b - a) / static_cast<double>(calls);
    };
    counts_ = Json();
    counts_["client_lines_acquired_per_call"] = each(before.lines_acquired, now.lines_acquired);
    counts_["client_lines_published_per_call"] = each(before.lines_published, now.lines_published);
    counts_["client_words_published_per_call"] = each(before.words_published, now.words_published);
  }

  const Effort effort_;
  std::optional<ApiStore> store_;
  std::optional<PoolMember> member_;
  pool::NsRef ns_;
  u64 published_ = 0;
  std::optional<BareLoops> bare_;
  std::vector<double> bare_floods_;  // by turn: million messages a second without an owner
  Json counts_;
};

}  // namespace

std::unique_ptr<Group> make_request(const Effort &e) { return std::make_unique<Requests>(e); }

}  // namespace kvpool::tools::bench
