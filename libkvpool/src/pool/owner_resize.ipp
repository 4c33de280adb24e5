// SPDX-License-Identifier: Apache-2.0
// Growing and shrinking of the pool (proto 14): a member asks for a size, again and again; the
// owner empties what is to go and takes the store over from itself with another table of regions.
#pragma once

namespace kvpool::pool {

template <PoolEnv Env>
media::MessageStatus Owner<Env>::resize(const media::ResizeBody &body, media::ResizeAnswer &ret) {
  using media::MessageStatus;
  const media::RegionTable &now = space_.regions();
  const auto size = [&] {
    ret.pool_bytes = media::pool_bytes_in_use(geo_, now);
    ret.extents = now.extents_in_use();
  };
  size();
  if (body.pool_bytes == 0) {
    forget_resize();
    return MessageStatus::kOk;
  }
  media::RegionTable wanted;
  if (media::plan_resize(geo_, now, body.pool_bytes, wanted, nullptr) != 0 ||
      wanted.extents_in_use() != body.extents) {
    return MessageStatus::kRefused;
  }
  if (wanted == now) {
    forget_resize();
    return MessageStatus::kOk;
  }
  if (reports_awaited_ > 0) return MessageStatus::kBusy;
  if (!resize_ || !(resize_->table == wanted)) {
    forget_resize();
    const bool grows = wanted.extents_in_use() > now.extents_in_use();
    // The asker reserved the bytes, and the owner can touch them; else it must not name them.
    if (grows && !reach_regions(env_, geo_, wanted)) return MessageStatus::kRefused;
    resize_ = Resize{.now = epoch_, .table = wanted, .ready = grows};
    if (!grows) {
      env_.mark("shrink_begins");
      if (!env_.mutant(Mutant::kGrantLeaving)) space_.set_limit(wanted.extents_in_use());
      resize_->next = wanted.extents_in_use();
      resize_->leaving_said = now.extents_in_use() - wanted.extents_in_use();
    }
  }
  resize_->asked_ns = env_.now_ns();
  ret.leaving = resize_->leaving_said;
  ret.held = resize_->held_said;
  ret.pinned = resize_->pinned_said;
  return MessageStatus::kBusy;
}

// Nobody asks any more, or for something else: what was to go stays.
template <PoolEnv Env>
void Owner<Env>::forget_resize() {
  if (!resize_) return;
  resize_.reset();
  space_.set_limit(space_.regions().extents_in_use());
}

// Whether the entry's block is in an extent that is to go.
template <PoolEnv Env>
bool Owner<Env>::is_leaving(u32 number) const {
  if (!resize_ || resize_->ready) return false;
  const u64 address = index_.entry(number).locator() * media::kLocatorUnit;
  return space_.regions().extent_of(address) >= space_.leaving_from();
}

// Whether something still stands in the way of retiring the extent; evicts what is in it.
template <PoolEnv Env>
bool Owner<Env>::still_leaving(u32 extent, u64 now) {
  const SpaceMap::Extent &e = space_.at(extent);
  if (!space_.owner_held(extent)) {
    ++resize_->held;
    return !env_.mutant(Mutant::kRetireHeld);
  }
  if (e.record.flags & media::kMapRunTail) return true;  // goes with its head
  if (e.used == 0) return false;
  evict_extent(extent);
  for (u32 b = 0; b < space_.blocks(e.record.size_class); ++b) {
    if (e.entry_of[b] == 0 || pinned_until(e.entry_of[b] - 1) <= now) continue;
    ++resize_->pinned;
    break;
  }
  return !env_.mutant(Mutant::kRetirePublished);
}

// A part of a round over the extents that are to go. Once one of them is empty it stays so: it is
// granted to nobody. A whole round without any other means that all of them are.
template <PoolEnv Env>
void Owner<Env>::empty_leaving() {
  if (!resize_ || resize_->ready || pins_awaited_ > 0 || reports_awaited_ > 0) return;
  Resize &r = *resize_;
  const u64 now = env_.now_ns();
  if (now - r.asked_ns > u64{geo_.lease_ms} * kMs) {
    env_.mark("shrink_forgotten");
    return forget_resize();
  }
  const u32 end = space_.regions().extents_in_use();
  const u32 first = std::min(space_.leaving_from(), r.table.extents_in_use());
  if (r.next < first || r.next >= end) r.next = first;
  for (u32 i = 0; i < options_.leaving_at_once && r.next < end; ++i, ++r.next) {
    r.leaving += still_leaving(r.next, now);
  }
  recall_leaving();
  if (r.next < end) return;
  r.ready = r.leaving == 0;
  r.leaving_said = r.leaving;
  r.held_said = r.held;
  r.pinned_said = r.pinned;
  r.leaving = r.held = r.pinned = 0;
}

// Members give back, as soon as they are idle, what they hold of it, and take no block of it.
template <PoolEnv Env>
void Owner<Env>::recall_leaving() {
  const u64 now = env_.now_ns();
  if (now - resize_->told_ns < u64{geo_.lease_ms} * kMs / kLockProbeShare) return;
  resize_->told_ns = now;
  const u32 first = space_.leaving_from();
  for (u32 slot = 0; slot < members_.size(); ++slot) {
    if (members_[slot].life != Life::kLive) continue;
    const auto &held = space_.held_by(slot);
    if (std::any_of(held.begin(), held.end(), [&](u32 x) { return x >= first; })) tell(slot, 0, 0);
  }
}

// Everything that the others know goes on: addresses of what stays do not change (proto 14).
template <PoolEnv Env>
int Owner<Env>::resize_now() {
  finish_batch();
  serving_ = false;
  const int err = take_over(standby_);
  resize_.reset();
  return err;
}

}  // namespace kvpool::pool
