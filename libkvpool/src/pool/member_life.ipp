// SPDX-License-Identifier: Apache-2.0
// A member's life: joining, renewing, following owners, reporting to a new one (proto 6, 7, 8).
#pragma once

namespace kvpool::pool {

inline constexpr u64 kMs = 1'000'000;
inline constexpr u32 kAreaRetries = 64;  // areas that change under the reader before it gives up

template <PoolEnv Env>
int Member<Env>::join(const MemberOptions &options) {
  if (joined_) return -EALREADY;
  if (options.host >= geo_.host_count) return -EINVAL;
  options_ = options;
  const u32 first = options.host * geo_.members_per_host;
  bool found = false;
  for (u32 i = 0; i < geo_.members_per_host && !found; ++i) {
    if (!env_.try_lock(LockKind::kMember, first + i)) continue;
    slot_ = first + i;
    found = true;
  }
  if (!found) return -EUSERS;
  if (int err = refresh_session()) {
    env_.unlock(LockKind::kMember, slot_);
    return err;
  }
  const int err = finish_join(0, session()->epoch);
  if (err != 0) env_.unlock(LockKind::kMember, slot_);
  return err;
}

// Writes the new incarnation's line. It owes no report to the owner of `epoch`: it holds nothing.
// -EAGAIN: a claim moves the lines (proto 14).
template <PoolEnv Env>
int Member<Env>::finish_join(u64 incarnation, u32 epoch) {
  const u64 start = env_.now_ns();
  if (lines_elsewhere()) return -EAGAIN;
  while (incarnation == 0 || incarnation == ~u64{0}) incarnation = env_.random();
  media::MemberLine line{};
  line.incarnation = incarnation;
  line.group = options_.group;
  line.reported_epoch = epoch;
  line.state = static_cast<u8>(media::MemberState::kJoined);
  line.host = static_cast<u8>(options_.host);
  line.standby_slot = options_.standby_slot;
  line.rank = options_.rank;
  line.world = options_.world;
  line.pid = options_.pid;
  std::memcpy(line.name, options_.name.data(), std::min<std::size_t>(options_.name.size(), 16));
  lease_.begin(slot_, line, start);
  joined_ = true;
  return 0;
}

template <PoolEnv Env>
int Member<Env>::rejoin() {
  std::lock_guard guard(mutex_);
  if (!joined_) return -EINVAL;
  env_.mark("member_rejoined");
  lease_.kill();
  for (Request &r : outstanding_) {
    if (r.publication) r.publication->result = -ESTALE;
    if (r.done) *r.done = true;
  }
  outstanding_.clear();
  grants_under_way_ = 0;
  answered_ = 0;
  doubts_.clear();
  hand_.clear();
  pins_.clear();
  lost_pins_.clear();
  lost_pin_count_.store(0, std::memory_order_relaxed);
  unpins_.clear();
  touched_count_ = 0;
  met_reservers_.clear();
  aborted_.clear();
  abort_round_open_ = abort_under_way_ = false;
  bound_ = owner_lost_ = false;
  if (int err = refresh_session()) return err;
  return finish_join(0, session()->epoch);
}

template <PoolEnv Env>
void Member<Env>::leave() {
  std::lock_guard guard(mutex_);
  if (!joined_) return;
  pump();
  accept_answered();
  lease_.leave();
  host_.stop();
  env_.unlock(LockKind::kMember, slot_);
  joined_ = bound_ = false;
}

// Reads who owns the store and, when that changed, opens its area. Any thread.
template <PoolEnv Env>
int Member<Env>::refresh_session() {
  std::lock_guard guard(session_mutex_);
  for (u32 attempt = 0; attempt < kAreaRetries; ++attempt) {
    const ClaimView view = claims_.read();
    if (view.gone) return -ESTALE;
    const Session *current = session_.load(std::memory_order_acquire);
    if (current && current->epoch == view.highest_active) return 0;
    auto next = std::make_unique<Session>();
    const int err = open_session(env_, claims_, geo_, view, *next);
    if (err == -EAGAIN) continue;
    if (err) return err;
    session_.store(next.get(), std::memory_order_release);
    sessions_.push_back(std::move(next));
    return 0;
  }
  return -EAGAIN;
}

// Makes sure the mailbox speaks to the active owner and that owner has this member's report.
// Mutex held. 0; -EAGAIN no owner until the deadline; -ESTALE.
template <PoolEnv Env>
int Member<Env>::bind_owner(u64 deadline) {
  if (bound_ && !owner_lost_) return 0;
  for (u32 attempt = 0;; ++attempt) {
    if (!lease_.alive()) return -ESTALE;
    const ClaimView view = claims_.read();
    if (view.gone) return -ESTALE;
    const bool settled = !view.unreadable && view.highest_claimed == view.highest_active;
    if (settled && bound_ && view.highest_active == mailbox_.epoch()) {
      owner_lost_ = false;  // a false alarm
      return 0;
    }
    if (settled) {
      int err = refresh_session();
      if (err == 0 && session()->epoch == view.highest_active) {
        collect_doubts();
        err = report(*session(), deadline);
        if (err == 0) return 0;
      }
      if (err == -ESTALE || err == -EUCLEAN) return err;
    }
    if (env_.now_ns() >= deadline) return -EAGAIN;
    env_.sleep_ns(kMs / 2);
  }
}

// What was asked of the former owner: publications are in doubt, everything else is asked again.
template <PoolEnv Env>
void Member<Env>::collect_doubts() {
  for (Request &r : outstanding_) {
    if (r.type == media::MessageType::kPublish) {
      // Only that owner could have published it, and it said no: there is nothing to doubt.
      if (r.answered && r.status != media::MessageStatus::kOk) {
        settle(r);
      } else {
        doubts_.push_back(r);
      }
    } else if (r.done) {
      *r.done = true;  // the caller sees that there is no answer, and asks again
    }
  }
  outstanding_.clear();
  grants_under_way_ = 0;
  abort_under_way_ = false;
  answered_ = 0;
  for (HandExtent &e : hand_.extents()) e.returning = false;
  touched_count_ = 0;  // entry numbers are those of the former area
}

// proto 14: a lease counts from before the claims were read that say where its line belongs. So who
// moves the lines and waits for a lease after its claim knows that all of before are over.
template <PoolEnv Env>
bool Member<Env>::renew() {
  if (!joined_) return false;
  const u64 before = env_.now_ns();
  if (lines_elsewhere()) {
    env_.mark("lease_not_renewed");
    return lease_.beat();
  }
  return lease_.renew(before);
}

template <PoolEnv Env>
bool Member<Env>::lines_elsewhere() {
  return geo_.control_devices > 1 && !env_.mutant(Mutant::kRenewElsewhere) &&
         claims_.read().elsewhere;
}

template <PoolEnv Env>
int Member<Env>::tick() {
  if (!renew()) return -ESTALE;
  if (!mutex_.try_lock()) return 0;
  std::lock_guard guard(mutex_, std::adopt_lock);
  if (!host_.beat(options_.host, options_.host_identity)) {
    lease_.kill();
    return -ENOTUNIQ;
  }
  const u64 now = env_.now_ns();
  const u64 deadline = now + (options_.slice_ns != 0 ? options_.slice_ns : 50 * kMs);
  const auto over = [now](const HeldPin &pin) { return pin.expiry_ns <= now; };
  std::erase_if(pins_, over);
  if (std::erase_if(lost_pins_, over) > 0) {
    lost_pin_count_.store(static_cast<u32>(lost_pins_.size()), std::memory_order_relaxed);
  }
  if (const int err = check_owner(); err == -ESTALE) {
    lease_.kill();
    return err;
  }
  // Nothing to tell anybody; but a group's members must hear of its dead (proto 8).
  const bool silent = !bound_ && lease_.flags() == 0 && doubts_.empty();
  if (silent && options_.group == 0) return 0;
  if (bind_owner(deadline) != 0) return 0;
  pump();
  accept_answered();
  serve_notice();
  settle_aborts();
  flush_unpins();
  return_leaving();
  if (touched_count_ > 0) flush_touches();
  return 0;
}

// Compares the claims with the owner the mailbox speaks to. Mutex held.
template <PoolEnv Env>
int Member<Env>::check_owner() {
  owner_checked_ns_ = env_.now_ns();
  const ClaimView view = claims_.read();
  if (view.gone) return -ESTALE;
  if (bound_ && !view.accepts(mailbox_.epoch())) owner_lost_ = true;
  if (view.highest_active != session()->epoch) refresh_session();
  return 0;
}

template <PoolEnv Env>
u64 Member<Env>::blocks_in_hand() {
  std::lock_guard guard(mutex_);
  u64 count = 0;
  for (const HandExtent &e : hand_.extents()) count += e.free_count + e.reserved;
  return count;
}

template <PoolEnv Env>
bool Member<Env>::doubts_accounted() {
  std::lock_guard guard(mutex_);
  u64 asked = doubts_.size(), marked = 0;
  for (const Request &r : outstanding_) asked += r.type == media::MessageType::kPublish;
  for (const HandExtent &e : hand_.extents()) marked += e.doubt;
  return marked <= asked;
}

template <PoolEnv Env>
u32 Member<Env>::run_in_hand(u32 extent) {
  std::lock_guard guard(mutex_);
  const HandExtent *e = hand_.find(extent);
  return e == nullptr ? 0 : std::max(1u, e->run_extents);
}

template <PoolEnv Env>
u64 Member<Env>::blocks_in_doubt() {
  std::lock_guard guard(mutex_);
  u64 count = doubts_.size();
  for (const Request &r : outstanding_) count += r.type == media::MessageType::kPublish;
  return count;
}

}  // namespace kvpool::pool
