// SPDX-License-Identifier: Apache-2.0
// Loss of one of several devices (proto 14): the owner looks, takes what lay there out of use, and
// moves its area when that was there.
#pragma once

namespace kvpool::pool {

inline constexpr u64 kDevicesNs = 100'000'000;  // between looks at the devices, at most

// Of the members of before nothing can be read. All of them find this claim before they renew their
// leases again, so a lease after it whatever they hold, pin or write is theirs no more.
template <PoolEnv Env>
void Owner<Env>::outlast_leases() {
  if (env_.mutant(Mutant::kControlAtOnce)) return;
  const u64 lease = u64{geo_.lease_ms} * kMs, until = env_.now_ns() + lease;
  for (u64 now = env_.now_ns(); now < until && member_.renew(); now = env_.now_ns()) {
    env_.sleep_ns(std::min(lease / 16, until - now));
  }
}

// A part of the chores. False: the lines of hosts and members are lost, and with them the store.
template <PoolEnv Env>
bool Owner<Env>::watch_devices() {
  if (geo_.device_count == 1) return true;
  const u64 now = env_.now_ns();
  const u64 every = std::min(u64{geo_.lease_ms} * kMs / kLockProbeShare, kDevicesNs);
  if (!look_at_devices_ && now - devices_read_ns_ < every) return true;
  look_at_devices_ = false;
  devices_read_ns_ = now;
  const u32 lost = lost_devices(env_, geo_, space_.regions());
  const u32 newly = lost & ~lost_;
  const u32 back = lost_ & ~lost;
  lost_ = lost;
  // Its copies of the claims are as old as its loss. Once the other copies are lost in turn they
  // would be all there is, so the highest is written again; that is this owner's.
  if (back != 0) claims_.write(standby_, claim_);
  if (newly != 0) env_.mark("device_lost");
  area_lost_ = lost_ != 0 && pool::area_lost(env_, geo_, pen_.area());
  other_area_lost_ = lost_ != 0 && pool::area_lost(env_, geo_, other_area());
  // Whoever moves lines and rings has nothing to build on but the area: it is moved before this
  // owner ends.
  if (lost_ != 0 && lines_lost(env_, geo_)) return area_lost();
  if (newly != 0) lose_extents();
  lost_once_ |= lost_;
  if (space_.out_count() > 0 && (lost_once_ & ~lost_) != 0) take_back_extents();
  return true;
}

// Whether part of the extent lies on a device that cannot be read.
template <PoolEnv Env>
bool Owner<Env>::on_lost_device(u32 extent) const {
  return lost_ != 0 && (space_.devices_of(extent) & lost_) != 0;
}

// Whether the block that starts in this extent reaches into one that is out of use.
template <PoolEnv Env>
bool Owner<Env>::block_out(u32 extent) const {
  if (space_.out_count() == 0) return false;
  const bool run = space_.at(extent).record.flags & media::kMapRunHead;
  const u32 length = run ? space_.run_length(extent) : 1;
  for (u32 x = extent; x < extent + length; ++x) {
    if (space_.at(x).out) return true;
  }
  return false;
}

// Nothing of it is granted or published any more, and what was published there is a miss. Hidden,
// not drained: a put of the same key must not bring it back.
template <PoolEnv Env>
void Owner<Env>::lose_extents() {
  if (!env_.mutant(Mutant::kLostGranted)) {
    for (u32 x = 0; x < space_.count(); ++x) {
      if (!space_.at(x).out && on_lost_device(x)) space_.set_out(x, true);
    }
  }
  if (env_.mutant(Mutant::kLostPublished)) return;
  const auto lost = [this](u32 x) {
    const u32 length = space_.at(x).record.flags & media::kMapRunHead ? space_.run_length(x) : 1;
    for (u32 i = 0; i < length; ++i) {
      if (on_lost_device(x + i)) return true;
    }
    return false;
  };
  for (u32 x = 0; x < space_.count(); ++x) {
    const SpaceMap::Extent &e = space_.at(x);
    if (!e.entry_of || !lost(x)) continue;
    for (u32 b = 0; b < space_.blocks(e.record.size_class); ++b) {
      if (e.entry_of[b] != 0) lose_entry(e.entry_of[b] - 1);
    }
    renew_while_scanning();  // there may be many
  }
}

template <PoolEnv Env>
void Owner<Env>::lose_entry(u32 number) {
  const media::EntryState state = index_.entry(number).entry_state();
  if (index_.linked(number)) {
    ++stats_.lost;
    const bool comes_back = env_.mutant(Mutant::kLostRevived);
    hide(number, comes_back ? media::EntryState::kDraining : media::EntryState::kHidden,
         Decision::kLost);
  } else if (state == media::EntryState::kDraining && !env_.mutant(Mutant::kLostRevived)) {
    index_.set_state(number, media::EntryState::kHidden);
    pen_.write_entry_state(number, index_.entry(number));
  }
}

// The device can be read again: its extents are what the map says, free or tainted. Not while a
// member has one in hand: of what it wrote meanwhile some may be missing. Those wait until it has
// given them back.
template <PoolEnv Env>
void Owner<Env>::take_back_extents() {
  for (u32 x = 0; x < space_.count(); ++x) {
    if (!space_.at(x).out || !space_.owner_held(x) || on_lost_device(x)) continue;
    env_.mark("device_back");
    space_.set_out(x, false);
  }
}

template <PoolEnv Env>
bool Owner<Env>::area_lost() const {
  return area_lost_ && !env_.mutant(Mutant::kLostAreaKept);
}

// Outbid: it decides nothing more. But until its successor is active this mirror and the area are
// all there is of what was decided, and the area may be on a device that goes. Then nobody else can
// go on: this owner outbids in turn (wants_other_area()), and the candidate stops. Where that one
// came to activate nevertheless this owner's area is not the newest any more, and it ends
// (take_over()). A candidate that takes longer than half a lease is not waited for.
template <PoolEnv Env>
bool Owner<Env>::awaits_successor(const ClaimView &view, u64 now) {
  if (geo_.device_count == 1 || view.gone || view.highest_active > epoch_) return false;
  if (!outbid()) outbid_ns_ = now;
  if (!env_.mutant(Mutant::kOutbidForgets) && pool::area_lost(env_, geo_, pen_.area())) {
    look_at_devices_ = true;
    const bool lost = watch_devices() && area_lost();
    if (lost) env_.mark("outbid_owner_knows_alone");
    return lost;
  }
  return now - outbid_ns_ < u64{geo_.lease_ms} * kMs / 2;
}

// The area that a take-over of this owner from itself fills.
template <PoolEnv Env>
PoolOffset Owner<Env>::other_area() const {
  const PoolOffset one = geo_.area_at(standby_, 0);
  return pen_.area() == one ? geo_.area_at(standby_, 1) : one;
}

// What the owner decided stands in its mirror, whole: the area is written from there. Everything
// else is a take-over, with its epoch; members report, since pins are not kept.
template <PoolEnv Env>
int Owner<Env>::move_area() {
  env_.mark("area_moved");
  serving_ = false;
  from_mirror_ = true;
  const int err = take_over(standby_);
  from_mirror_ = false;
  return err;
}

template <PoolEnv Env>
void Owner<Env>::write_mirror(u32 former) {
  forget_resize();
  std::copy_backward(formers_, std::end(formers_) - 1, std::end(formers_));
  formers_[0] = base_version_;
  base_version_ = media::make_version(former, version_number_);
  version_number_ = emptied_version_ = 0;
  pins_.clear();
  run_first_ = run_length_ = 0;
  Line lines[media::kRegionTableLines];
  media::encode_regions(space_.regions(), lines);
  for (u32 i = 0; i < media::kRegionTableLines; ++i) {
    pen_.write_line(geo_.region_line(pen_.area(), i), lines[i]);
  }
  for (u32 id = 0; id < geo_.namespace_lines; ++id) pen_.fill_ns(id, ns_[id]);
  for (u32 x = 0; x < space_.count(); ++x) pen_.write_map(x, space_.at(x).record);
  write_index();
}

}  // namespace kvpool::pool
