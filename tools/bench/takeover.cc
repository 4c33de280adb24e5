// SPDX-License-Identifier: Apache-2.0
// takeover*: a store whose owner is gone. How long until another one serves, and how long a reader
// waits meanwhile (it should not: reads ask nobody).
#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "bench/figures.hpp"
#include "bench/rig.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr u64 kMiB = u64{1} << 20;
constexpr double kHugeShare = 0.9;
constexpr u64 kEntries = 2'000'000;
constexpr u64 kSmallBlock = 4096;

// An owner in a thread of this process: takes over, serves until the end.
class Successor {
public:
  explicit Successor(PoolMember &of)
      : env_(of.context().env()), member_(env_, of.member().geometry()) {
    const u32 standbys = of.member().geometry().standby_count;
    while (slot_ < standbys && !env_.try_lock(pool::LockKind::kStandby, slot_)) ++slot_;
    if (slot_ == standbys) fail(kExitFailed, "take-over", "no standby slot is free");
    const int err = member_.join({.pid = static_cast<u32>(getpid()),
                                  .standby_slot = static_cast<u8>(slot_)});
    if (err) fail_errno("take-over", err, "no member slot is free");
    owner_.emplace(env_, member_, pool::OwnerOptions{});
    owner_->prepare();
  }
  ~Successor() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    owner_.reset();
    member_.leave();
    env_.unlock(pool::LockKind::kStandby, slot_);
  }

  // Alone, the scan has a thread on each processor; else it leaves one to readers.
  void start(bool alone) {
    thread_ = std::thread([this, alone] {
      if (alone) {
        pin_to_none();
      } else {
        pin_to(kOwnerCpu);
      }
      suspected_ns_ = now_ns();
      result_.store(owner_->take_over(slot_));
      active_ns_ = now_ns();
      done_.store(true);
      done_.notify_all();
      pin_to(kOwnerCpu);
      if (result_.load() != 0) return;
      int served = 0;
      while (!stop_.load(std::memory_order_relaxed) && served >= 0) served = owner_->step();
      owner_->stop();
      if (served < 0) ended_.store(served);
    });
  }
  // Until the owner activated itself, or could not; asleep: both processors are the scan's.
  void wait() const { done_.wait(false); }
  bool done() const { return done_.load(); }
  int result() const { return result_.load(); }
  int ended() const { return ended_.load(); }  // -ESTALE, say: its lease was over; 0: it serves
  u64 suspected_ns() const { return suspected_ns_; }
  u64 active_ns() const { return active_ns_; }

private:
  store::ProcessEnv &env_;
  pool::Member<store::ProcessEnv> member_;
  std::optional<pool::Owner<store::ProcessEnv>> owner_;
  u32 slot_ = 0;
  std::thread thread_;
  std::atomic<bool> stop_{false}, done_{false};
  std::atomic<int> result_{0}, ended_{0};
  u64 suspected_ns_ = 0, active_ns_ = 0;  // ordered by done_
};

class TakeOver final : public Group {
public:
  explicit TakeOver(const Effort &)
      : store_({.bytes = kEntries * kSmallBlock * 21 / 20 / (2 * kMiB) * (2 * kMiB) + 768 * kMiB,
                .block_bytes = kSmallBlock,
                .sparse = true}),
        member_(store_.file().address()), ns_(ns_ref(store_)),
        lines_(member_.member().geometry().index_groups_max * media::kGroupLines),
        bare_(BareLoops::kCopySpace * lines_ * kLineBytes, true) {
    fill(member_, ns_, 0, kEntries);
    store_.end_owner();
  }

  Turn turn(std::string_view figure) override {
    Turn ret;
    if (figure == "takeover") {
      ret.value = take_over() / 1e6;
      pin_to_none();
      bare_copy_ms_.push_back(bare_.copy_forward_ns(lines_) / 1e6);
      pin_to(kClientCpu);
      ret.baseline = bare_.acquire_ns(lines_, 1) / 1e6;
    } else {
      ret.baseline = idle_gap_us();
      ret.value = gap_us();
    }
    return ret;
  }

  Json details(std::string_view) override {
    Json ret;
    ret["entries"] = kEntries;
    ret["lines"] = lines_;
    ret["until_active_ms"] = median(active_ms_);
    ret["bare_copy_ms"] = median(bare_copy_ms_);
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  // Nanoseconds from the suspicion to the first request served.
  double take_over() {
    Successor next(member_);
    next.start(true);
    next.wait();
    check(next);
    const u64 deadline = now_ns() + 60'000'000'000;
    int err;
    do {
      err = member_.member().ping(1, 1, true, std::min(deadline, now_ns() + 1'000'000'000));
    } while ((err == -EAGAIN || err == -ETIMEDOUT) && !next.ended() && now_ns() < deadline);
    const u64 served = now_ns();
    if (next.ended()) fail_errno("take-over", next.ended(), "the new owner ended at once");
    if (err) fail_errno("take-over", err, "the new owner does not answer");
    active_ms_.push_back(static_cast<double>(next.active_ns() - next.suspected_ns()) / 1e6);
    return static_cast<double>(served - next.suspected_ns());
  }
  static void check(const Successor &next) {
    if (next.result() != 0) fail_errno("take-over", next.result());
  }

  // Microseconds between two successful reads: all of them, sorted.
  std::vector<double> gaps(const std::function<bool()> &go_on) {
    std::vector<double> ret;
    std::vector<char> data(kSmallBlock);
    u64 last = now_ns();
    while (go_on()) {
      const kvpool_key key = plain_key(random_() % kEntries);
      const int got = kvpool_get(store_.ns(), &key, data.data(), kPayload, deadline_in(60));
      store_.checked_call(got, "get");
      if (got != 1) continue;  // one of the few that found no room
      const u64 now = now_ns();
      ret.push_back(static_cast<double>(now - last) / 1e3);
      last = now;
    }
    std::sort(ret.begin(), ret.end());
    if (ret.empty()) fail(kExitFailed, "reads", "none succeeded");
    return ret;
  }
  double idle_gap_us() {
    const u64 end = now_ns() + 200'000'000;
    const std::vector<double> all = gaps([&] { return now_ns() < end; });
    return all[all.size() * 999 / 1000];
  }
  double gap_us() {
    Successor next(member_);
    next.start(false);  // readers are on other hosts: they do not share processors with the scan
    const std::vector<double> all = gaps([&] { return !next.done(); });
    check(next);
    return all.back();
  }

  static constexpr u64 kPayload = 63 * kLineBytes;
  ApiStore store_;
  PoolMember member_;
  pool::NsRef ns_;
  u64 lines_;  // of the index
  BareLoops bare_;
  std::mt19937_64 random_{13};
  std::vector<double> active_ms_, bare_copy_ms_;
};

}  // namespace

std::unique_ptr<Group> make_takeover(const Effort &e) { return std::make_unique<TakeOver>(e); }

}  // namespace kvpool::tools::bench
