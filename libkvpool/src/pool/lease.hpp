// SPDX-License-Identifier: Apache-2.0
// A member's own lines (proto 6): its slot's line with the heartbeat, the lease that hangs on it,
// and its host's line when it holds the host's lock. Guarded by a mutex of its own, so that a
// renewal never waits for a request.
#pragma once

#include <atomic>
#include <mutex>

#include "media/layout.hpp"
#include "media/seal.hpp"
#include "pool/env.hpp"

namespace kvpool::pool {

template <PoolEnv Env>
class Lease {
public:
  Lease(Env &env, const media::Geometry &geo, const media::Sealer &sealer)
      : env_(env), geo_(geo), sealer_(sealer) {}

  // First write of a new incarnation, whose lease counts from `start`; the caller holds the slot's
  // lock.
  void begin(u32 slot, const media::MemberLine &line, u64 start) {
    std::lock_guard guard(mutex_);
    slot_ = slot;
    line_ = line;
    line_.incarnation = unlike_the_former(line.incarnation);
    line_.counter = 1;
    write_line();
    drain_strict();
    expiry_ns_ = start + length_ns();
    flags_seen_.store(line_.flags, std::memory_order_relaxed);  // not those of the one before
    dead_ = false;
    joined_ = true;
  }

  // t0 (`before`), store, drain, t1: a renewal that comes too late does not revive (proto 6).
  // False: dead.
  bool renew(u64 before) {
    std::lock_guard guard(mutex_);
    if (!joined_ || dead_) return false;
    ++line_.counter;
    write_line();
    env_.memory().drain();
    const u64 after = env_.now_ns();
    if (after > expiry_ns_ && !env_.mutant(Mutant::kLeaseRenewLate)) {
      env_.mark("lease_renewed_late");
      dead_ = true;
      return false;
    }
    expiry_ns_ = before + length_ns();
    return true;
  }

  // The heartbeat alone: the lease lasts no longer for it. False: dead.
  bool beat() {
    std::lock_guard guard(mutex_);
    if (!joined_ || dead_) return false;
    ++line_.counter;
    write_line();
    env_.memory().drain();
    return alive();
  }

  // Sets flags that must be on the medium before the request that makes them true (proto 8).
  void set_flags(u8 flags) {
    if ((flags_seen_.load(std::memory_order_relaxed) & flags) == flags) return;
    std::lock_guard guard(mutex_);
    line_.flags |= flags;
    write_line();
    drain_strict();
    flags_seen_.store(line_.flags, std::memory_order_relaxed);
  }

  void set_reported(u32 epoch) {
    std::lock_guard guard(mutex_);
    line_.reported_epoch = epoch;
    write_line();
    env_.memory().drain();
  }

  void leave() {
    std::lock_guard guard(mutex_);
    if (!joined_) return;
    if (!dead_) {
      line_.state = static_cast<u8>(media::MemberState::kLeft);
      ++line_.counter;
      write_line();
      drain_strict();
    }
    joined_ = false;
    dead_ = true;
    flags_seen_.store(0, std::memory_order_relaxed);
  }

  void kill() { dead_ = true; }

  // Whether this incarnation may still touch blocks.
  bool alive() {
    if (dead_) return false;
    if (env_.mutant(Mutant::kWriteWithoutLease)) return true;
    return env_.now_ns() <= expiry_ns_.load(std::memory_order_relaxed) && !env_.revoked();
  }

  u64 expiry_ns() const { return expiry_ns_.load(std::memory_order_relaxed); }
  u8 flags() const { return flags_seen_.load(std::memory_order_relaxed); }
  u64 incarnation() const { return line_.incarnation; }

private:
  u64 length_ns() const { return u64{geo_.lease_ms} * 1'000'000 / 100 * 97; }

  // A later life in the slot ends the taint of the one before, which is known by few of its bits.
  u64 unlike_the_former(u64 incarnation) {
    const PoolOffset at = geo_.member_at(slot_);
    Line line;
    env_.memory().acquire(at, kLineBytes);
    if (!env_.memory().load_line(at, line) || !sealer_.intact(line, at, 0)) return incarnation;
    const u64 former = media::from_line<media::MemberLine>(line).incarnation;
    const bool alike =
        media::taint_mark(slot_, incarnation) == media::taint_mark(slot_, former);
    return alike ? incarnation ^ media::kTaintBit : incarnation;
  }

  void write_line() {
    const PoolOffset at = geo_.member_at(slot_);
    Line line = media::to_line(line_);
    sealer_.seal(line, at, 0);
    env_.memory().publish_line(at, line);
  }
  void drain_strict() {
    const PoolOffset at = geo_.member_at(slot_);
    env_.memory().drain_strict(&at, 1);
  }

  Env &env_;
  const media::Geometry &geo_;
  const media::Sealer &sealer_;
  typename Env::Mutex mutex_;
  u32 slot_ = 0;
  media::MemberLine line_{};
  bool joined_ = false;
  std::atomic<bool> dead_{true};
  std::atomic<u64> expiry_ns_{0};
  std::atomic<u8> flags_seen_{0};
};

}  // namespace kvpool::pool
