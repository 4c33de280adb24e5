// SPDX-License-Identifier: Apache-2.0
// Take-over (proto 7): claim, settle, scan the base area (owner_scan.ipp), copying it forward into
// the own free area, look once more, activate. Opening a store whose owner is gone is the same
// thing.
#pragma once

namespace kvpool::pool {

inline constexpr u64 kCrowdedShare = 128;    // one put in so many must be crowded
inline constexpr u64 kCrowdedPatience = 16;  // times as many when a larger index did not fit

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
  mine.claimed_control = geo_.control;
  claims_.write(standby_slot, mine);
  if (!env_.mutant(Mutant::kTakeoverWithoutSettle)) env_.sleep_ns(2ull * geo_.delta_us * 1000);
  if (moves_control()) outlast_leases();
  view = claims_.read();
  if (view.gone) return -ESTALE;
  const bool rival = view.unreadable || view.highest_claimed > epoch_;
  if (rival && !env_.mutant(Mutant::kIgnoreRival)) return -EAGAIN;
  if (view.highest_active == 0) return -EUCLEAN;

  u8 target = 0;
  if (int lost = pick_area(view, target)) return lost;
  const u32 former = pen_.epoch();
  look_at_devices_ = true;
  area_lost_ = other_area_lost_ = false;
  outbid_ns_ = 0;
  if (from_mirror_ && view.highest_active != former) return -EAGAIN;
  pen_.open(geo_.area_at(standby_slot, target), epoch_);
  int err = 0;
  if (from_mirror_) {
    write_mirror(former);
  } else {
    lost_ = lost_once_ = 0;
    err = scan(view, index_groups);
  }
  if (err == -ENOSPC) {
    crowded_enough_ *= kCrowdedPatience;
    err = scan(view, 0);
  }
  if (err) return err;
  note_formers();
  if (!env_.mutant(Mutant::kActivateBeforeDrain)) pen_.drain_strict();
  if (!area_reads_back()) return -EIO;

  if (!member_.alive()) return -ESTALE;
  // proto 14: once another area is the base, the slot of the former one may fill that again. What
  // this scan read of it was whole only if it is the base even now.
  const ClaimView again = claims_.read();
  const bool same_base =
      again.highest_active == view.highest_active || env_.mutant(Mutant::kBaseNotReread);
  if (!again.accepts(epoch_) || !same_base) {
    env_.mark("outbid");
    return -EAGAIN;
  }
  env_.mark("take_over_activates");
  mine.active = epoch_;
  mine.active_incarnation = member_.incarnation();
  mine.active_member = static_cast<u16>(member_.slot());
  mine.active_control = geo_.control;
  mine.area = target;
  mine.index_groups = index_.groups();
  claim_ = mine;
  claims_.write(standby_slot, mine);
  crowded_ = 0;
  resize_.reset();
  first_members();
  serving_ = true;
  last_request_ns_ = env_.now_ns();
  return 0;
}

// The area that the slot's own `active` does not name. Where that lies on a device that is lost,
// the other one will do unless it is the base: what it was activated for was outbid by an
// activation, and nobody builds on it any more (proto 7, 14).
template <PoolEnv Env>
int Owner<Env>::pick_area(const ClaimView &view, u8 &ret_area) {
  const media::ClaimLine &mine = view.line[standby_];
  const bool same = env_.mutant(Mutant::kFillActiveArea);
  ret_area = mine.active != 0 && (mine.area == 0) != same ? 1 : 0;
  const auto lost = [this](u8 area) {
    return pool::area_lost(env_, geo_, geo_.area_at(standby_, area));
  };
  if (!lost(ret_area)) return 0;
  ret_area ^= 1;
  const bool base = mine.active != 0 && mine.active == view.highest_active;
  if ((base && !env_.mutant(Mutant::kBaseRefilled)) || lost(ret_area)) return -EIO;
  env_.mark("older_area_filled");
  return 0;
}

// From a claim on no answer of the owner counts, so nobody claims who could not go on: a device
// lost that it takes (-EIO), nothing to build on, more bytes than this process can map, no memory
// for the mirror (an exception).
template <PoolEnv Env>
int Owner<Env>::look_before_claim(const ClaimView &view, u64 index_groups) {
  if (geo_.device_count > 1 && view.highest_active != 0) {
    const PoolOffset base = geo_.area_at(view.active_slot, view.active.area);
    if (lines_lost(env_, geo_) && !from_mirror_) return -EIO;
    if (!from_mirror_ && pool::area_lost(env_, geo_, base)) return -EIO;
    u8 area = 0;
    if (int err = pick_area(view, area)) return err;
  }
  if (from_mirror_) return 0;
  Session base;
  if (int err = open_session(env_, claims_, geo_, view, base)) return err;
  index_.prepare(index_groups != 0 ? index_groups : base.index_groups,
                 [this] { renew_while_scanning(); });
  return 0;
}

// For owners to come: a member may report to one of them what an owner long before answered.
template <PoolEnv Env>
void Owner<Env>::note_formers() {
  if (env_.mutant(Mutant::kFormersForgotten)) return;
  u64 versions[media::kFormersKept] = {base_version_};
  std::copy(formers_, std::end(formers_) - 1, versions + 1);
  media::write_formers(ns_[0], versions);
  pen_.fill_ns(0, ns_[0]);
}

// What was filled can be read, so that nobody is sent to an area on a device that went meanwhile.
template <PoolEnv Env>
bool Owner<Env>::area_reads_back() {
  Line line;
  bool good = false;
  const PoolOffset at = geo_.region_line(pen_.area(), 0);
  load_window(at, 1, &line, &good);
  return good && claims_.sealer().intact(line, at, epoch_);
}

template <PoolEnv Env>
bool Owner<Env>::wants_larger_index() const {
  return serving_ && !outbid() && !other_area_lost_ && index_.groups() < geo_.index_groups_max &&
         crowded_ >= crowded_enough_ && crowded_ * kCrowdedShare > version_number_;
}

// Entry numbers change with the size, so readers look everything up again, as they do with any new
// owner; what members hold, doubt and pin comes back with their reports (proto 10, 14).
template <PoolEnv Env>
int Owner<Env>::enlarge_index() {
  serving_ = false;
  return take_over(standby_, std::min(index_.groups() * 2, geo_.index_groups_max));
}

}  // namespace kvpool::pool
