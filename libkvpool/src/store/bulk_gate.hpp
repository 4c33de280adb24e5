// SPDX-License-Identifier: Apache-2.0
// Caps the bytes of blocks that one member has on their way at a time, in each direction (proto
// 12): its requests, and other members' lines on the same link, queue behind them. A copy waits
// before it begins, for copies of this process alone, which end by themselves. Any thread.
#pragma once

#include <atomic>
#include <utility>

#include "arch/types.hpp"

namespace kvpool::store {

class BulkGate {
public:
  enum Direction { kRead, kWrite };

  // Below this a copy is over sooner than it is worth to count it: 10 us at 25 GB/s. It is counted
  // by locked instructions, which wait for the streaming stores of the block before.
  static constexpr u64 kBulkBytes = 256 << 10;
  // A millisecond of a link of 32 GB/s (CXL 2.0, 8 lanes).
  static constexpr u64 kDefaultLimit = u64{32} << 20;
  static constexpr u64 kPollNs = 20'000;

  // A copy that may go on; ends with this object. False: `go_on` said no before it was its turn.
  class Turn {
  public:
    Turn() = default;
    Turn(std::atomic<u64> *bytes, u64 count, bool granted)
        : bytes_(bytes), count_(count), granted_(granted) {}
    Turn(Turn &&other) noexcept
        : bytes_(std::exchange(other.bytes_, nullptr)), count_(other.count_),
          granted_(other.granted_) {}
    Turn &operator=(Turn &&) = delete;
    ~Turn() {
      if (bytes_) bytes_->fetch_sub(count_, std::memory_order_relaxed);
    }
    explicit operator bool() const { return granted_; }

  private:
    std::atomic<u64> *bytes_ = nullptr;
    u64 count_ = 0;
    bool granted_ = true;
  };

  void set_limit(u64 bytes) { limit_ = bytes == 0 ? kDefaultLimit : bytes; }
  u64 waits() const { return waits_.load(std::memory_order_relaxed); }
  u64 most() const { return most_.load(std::memory_order_relaxed); }

  // No copy begins while `limit` bytes are on their way, so there are never more than that and the
  // largest block. A block larger than the limit waits no longer than others do.
  template <class Env, class GoOn>
  Turn enter(Env &env, Direction direction, u64 bytes, GoOn &&go_on) {
    if (bytes < kBulkBytes) return {};
    std::atomic<u64> &on_way = on_way_[direction].bytes;
    if (!try_enter(on_way, bytes)) {
      waits_.fetch_add(1, std::memory_order_relaxed);
      do {
        if (!go_on()) return {nullptr, 0, false};
        env.sleep_ns(kPollNs);
      } while (!try_enter(on_way, bytes));
    }
    return {&on_way, bytes, true};
  }

private:
  bool try_enter(std::atomic<u64> &on_way, u64 bytes) {
    u64 now = on_way.load(std::memory_order_relaxed);
    do {
      if (now >= limit_) return false;
    } while (!on_way.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    u64 most = most_.load(std::memory_order_relaxed);
    while (now + bytes > most &&
           !most_.compare_exchange_weak(most, now + bytes, std::memory_order_relaxed)) {
    }
    return true;
  }

  struct alignas(kLineBytes) OnWay {
    std::atomic<u64> bytes{0};
  };
  OnWay on_way_[2];
  u64 limit_ = kDefaultLimit;
  std::atomic<u64> waits_{0};
  std::atomic<u64> most_{0};  // that were on their way at once
};

}  // namespace kvpool::store
