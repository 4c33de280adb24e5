// SPDX-License-Identifier: Apache-2.0
// idle_lines: what a store costs that nobody uses. The owner is a thread of this process, so that
// its lines and its processor time can be counted; a member waits on each host.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "bench/figures.hpp"
#include "bench/rig.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr u64 kMiB = u64{1} << 20;
constexpr double kHugeShare = 0.9;

// An owner in a thread, counted apart from this process's other members.
class OwnerThread {
public:
  explicit OwnerThread(const std::string &address) {
    OpenAs as;
    as.name = "idle-owner";
    ctx_ = open_store(address, as);
    thread_ = std::thread([this] {
      result_.store(kvpool_serve(ctx_.get(), nullptr));
      done_.store(true);
    });
  }
  ~OwnerThread() {
    kvpool_serve_stop(ctx_.get());
    thread_.join();
  }

  // Blocks until it serves. Throws Failure where it does not.
  void await() const {
    const u64 deadline = deadline_in(60);
    while (stats().owner_takeovers == 0) {
      if (done_.load()) fail_errno("an idle owner", result_.load());
      if (now_ns() > deadline) fail(kExitFailed, "an idle owner", "does not serve in time");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  kvpool_stats stats() const {
    kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
    if (const int err = kvpool_stats_read(ctx_.get(), &stats); err < 0) {
      fail_errno("an idle owner", err, kvpool_strerror_detail(ctx_.get()));
    }
    return stats;
  }

private:
  Context ctx_;
  std::thread thread_;
  std::atomic<bool> done_{false};
  std::atomic<int> result_{0};
};

class Idle final : public Group {
public:
  explicit Idle(const Effort &effort)
      : effort_(effort),
        store_({.bytes = 256 * kMiB,
                .block_bytes = 64 * 1024,
                .hosts = kHosts,
                .members_per_host = 8}),
        members_(kClientCpu,
                 "members " + std::to_string(kHosts - 1) + " " + store_.file().address()),
        bare_(64 * kMiB, true) {
    store_.end_owner();
    pin_to_none();
    owner_.emplace(store_.file().address());
    owner_->await();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // reports, members that find their slot
  }

  Turn turn(std::string_view) override {
    const kvpool_stats before = owner_->stats();
    const double cpu = cpu_seconds();
    const u64 start = now_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(effort_.of(1000)));
    const kvpool_stats after = owner_->stats();
    const double seconds = static_cast<double>(now_ns() - start) / 1e9;
    cpu_shares_.push_back((cpu_seconds() - cpu) / seconds);
    Turn ret;
    ret.value = static_cast<double>(after.lines_acquired - before.lines_acquired) / seconds / 1e3;
    ret.baseline = bare_.random_lines_per_second(kBatch, kBatches) / 1e3;
    return ret;
  }

  Json details(std::string_view) override {
    Json ret;
    ret["hosts"] = kHosts;
    ret["members"] = kHosts;
    // Of this process: the owner, and the lease of a member.
    ret["processor_share"] = median(cpu_shares_);
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u32 kHosts = 16;
  static constexpr u64 kBatch = 64, kBatches = 4096;

  static double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval &t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
  }

  const Effort effort_;
  ApiStore store_;
  Child members_;
  BareLoops bare_;
  std::optional<OwnerThread> owner_;
  std::vector<double> cpu_shares_;
};

}  // namespace

std::unique_ptr<Group> make_idle(const Effort &e) { return std::make_unique<Idle>(e); }

}  // namespace kvpool::tools::bench
