// SPDX-License-Identifier: Apache-2.0
// Take-over (proto 7): claim, settle, scan the base area (owner_scan.ipp), copying it forward into
// the own free area, look once more, activate. Opening a store whose owner is gone is the same
// thing.
#pragma once

namespace kvpool::pool {

inline constexpr u64 kCrowdedShare = 128;    // one put in so many must be crowded
inline constexpr u64 kCrowdedPatience = 16;  // times as many when a larger index did not fit

// From a claim on no answer of the owner counts, so nobody claims who could not go on: nothing to
// build on, more bytes than this process can map, no memory for the mirror (an exception).
template <PoolEnv Env>
int Owner<Env>::look_before_claim(const ClaimView &view, u64 index_groups) {
  Session base;
  if (int err = open_session(env_, claims_, geo_, view, base)) return err;
  index_.prepare(index_groups != 0 ? index_groups : base.index_groups,
                 [this] { renew_while_scanning(); });
  return 0;
}

template <PoolEnv Env>
int Owner<Env>::take_over(u32 standby_slot, u64 index_groups) {
  standby_ = standby_slot;
  ClaimView view = claims_.read();
  if (view.gone) return -ESTALE;
  if (view.unreadable) return -EUCLEAN;
  if (int err = look_before_claim(view, index_groups)) return err;
  const bool low = env_.mutant(Mutant::kEpochFromActive);
  const u32 counter = media::epoch_counter(low ? view.highest_active : view.highest_claimed) + 1;
  if (counter > media::kEpochCounterMax) return -EOVERFLOW;
  epoch_ = media::make_epoch(counter, standby_slot);
  media::ClaimLine mine = view.line[standby_slot];
  mine.claimed = epoch_;
  mine.claimed_incarnation = member_.incarnation();
  mine.claimed_member = static_cast<u16>(member_.slot());
  claims_.write(standby_slot, mine);
  if (!env_.mutant(Mutant::kTakeoverWithoutSettle)) env_.sleep_ns(2ull * geo_.delta_us * 1000);
  view = claims_.read();
  if (view.gone) return -ESTALE;
  const bool rival = view.unreadable || view.highest_claimed > epoch_;
  if (rival && !env_.mutant(Mutant::kIgnoreRival)) return -EAGAIN;
  if (view.highest_active == 0) return -EUCLEAN;

  const bool same = env_.mutant(Mutant::kFillActiveArea);
  const u8 target = mine.active != 0 && (mine.area == 0) != same ? 1 : 0;
  pen_.open(geo_.area_at(standby_slot, target), epoch_);
  int err = scan(view, index_groups);
  if (err == -ENOSPC) {
    crowded_enough_ *= kCrowdedPatience;
    err = scan(view, 0);
  }
  if (err) return err;
  if (!env_.mutant(Mutant::kActivateBeforeDrain)) pen_.drain_strict();

  if (!member_.alive()) return -ESTALE;
  if (!claims_.read().accepts(epoch_)) {
    env_.mark("outbid");
    return -EAGAIN;
  }
  env_.mark("take_over_activates");
  mine.active = epoch_;
  mine.active_incarnation = member_.incarnation();
  mine.active_member = static_cast<u16>(member_.slot());
  mine.area = target;
  mine.index_groups = index_.groups();
  claims_.write(standby_slot, mine);
  crowded_ = 0;
  resize_.reset();
  first_members();
  serving_ = true;
  last_request_ns_ = env_.now_ns();
  return 0;
}

template <PoolEnv Env>
bool Owner<Env>::wants_larger_index() const {
  return serving_ && index_.groups() < geo_.index_groups_max && crowded_ >= crowded_enough_ &&
         crowded_ * kCrowdedShare > version_number_;
}

// Entry numbers change with the size, so readers look everything up again, as they do with any new
// owner; what members hold, doubt and pin comes back with their reports (proto 10, 14).
template <PoolEnv Env>
int Owner<Env>::enlarge_index() {
  serving_ = false;
  return take_over(standby_, std::min(index_.groups() * 2, geo_.index_groups_max));
}

}  // namespace kvpool::pool
