// SPDX-License-Identifier: Apache-2.0
// The owner's decisions (proto 7 to 11): each changes the mirror and writes one line or word.
#pragma once

namespace kvpool::pool {

inline constexpr u32 kClearsAhead = 1 << 16;  // that an outbid owner can have made

template <PoolEnv Env>
bool Owner<Env>::holds(u32 slot, u32 extent) const {
  if (extent >= space_.count()) return false;
  const media::MapRecord &r = space_.at(extent).record;
  return r.holder == slot && r.tag == tag_of(members_[slot].incarnation);
}

template <PoolEnv Env>
void Owner<Env>::set_map(u32 extent, media::MapRecord record) {
  space_.set_record(extent, record);
  pen_.write_map(extent, record);
}

// What a block of the extent takes from it.
template <PoolEnv Env>
u64 Owner<Env>::room_in(u32 extent) const {
  const u8 size_class = space_.at(extent).record.size_class;
  if (size_class == media::kClassRun) {
    return space_.run_length(extent) * space_.regions().extent_bytes();
  }
  return media::class_bytes(size_class);
}

template <PoolEnv Env>
u64 Owner<Env>::entry_bytes(const media::Entry &entry) const {
  const u32 extent = space_.regions().extent_of(entry.locator() * media::kLocatorUnit);
  return extent < space_.count() ? room_in(extent) : 0;
}

// Whether the block that a publication names can be what it says.
template <PoolEnv Env>
bool Owner<Env>::fits(const media::PublishBody &body, SpaceMap::Spot spot) const {
  const media::BlockShape shape(media::payload_lines_of(body.length),
                                media::shards_of(body.length));
  return shape.valid() && shape.block_bytes() <= room_in(spot.extent);
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::publish(u32 slot, const media::PublishBody &body, bool doubt,
                                         media::PublishAnswer &ret) {
  using media::MessageStatus;
  const u64 address = (u64{body.locator_high} << 32 | body.locator_low) * media::kLocatorUnit;
  const SpaceMap::Spot spot = space_.locate(address);
  const u32 extent = spot.extent;
  const bool blind = env_.mutant(Mutant::kInsertLooksInOne);
  IndexMirror::Found found = index_.find(body.key, blind);
  if (found.visible != kNoEntry) {
    const media::Entry &e = index_.entry(found.visible);
    if (e.entry_state() == media::EntryState::kPublished) {
      ret = {found.visible, e.version};
      // The same publication again: it was decided, by this owner or the one before (I8).
      const bool same = e.locator() * media::kLocatorUnit == address;
      if (same && doubt && of_unknown_clear(body)) {
        take_back(found.visible);
        return MessageStatus::kStale;
      }
      if (same) return MessageStatus::kOk;
    }
  }
  const bool look = doubt && !env_.mutant(Mutant::kDoubtDoneTwice);
  if (look && decided_before(body, spot, ret)) return MessageStatus::kOk;
  if (look && (body.flags & media::kPublishAnswered) && !overtaken(body)) {
    env_.mark("doubt_undone");
    return MessageStatus::kAbsent;
  }
  // The owner before said EXISTS, perhaps, and took the extent back that this publication used up.
  const bool taken = found.visible != kNoEntry &&
                     index_.entry(found.visible).entry_state() == media::EntryState::kPublished;
  if (doubt && taken && !holds(slot, extent)) return MessageStatus::kExists;
  if (!holds(slot, extent)) return MessageStatus::kRefused;
  if ((body.flags & media::kPublishReturnsExtent) && !doubt) returns_.push_back({slot, extent});
  if (block_out(extent)) return MessageStatus::kBusy;  // proto 14: another place, please
  if (!has_ns(body.ns)) return MessageStatus::kStale;
  media::NamespaceLine &ns = ns_[body.ns];
  if (ns.flags & media::kNsBypass) return MessageStatus::kBypassed;
  if (ns.epoch != body.ns_epoch) return MessageStatus::kStale;
  if (!spot || !fits(body, spot) || space_.referred(spot)) return MessageStatus::kRefused;
  for (u32 touch : body.touch) {
    if (touch != 0 && !doubt) index_.touch(touch - 1);
  }
  if (!doubt && let_cleared_go(found.visible, ns)) found = index_.find(body.key, blind);
  if (found.visible != kNoEntry &&
      index_.entry(found.visible).entry_state() == media::EntryState::kPublished) {
    ++stats_.exists;
    index_.touch(found.visible);
    return MessageStatus::kExists;
  }
  if (found.draining != kNoEntry && (is_leaving(found.draining) || cleared(found.draining, ns))) {
    index_.set_state(found.draining, media::EntryState::kHidden);  // its bytes are to go
    pen_.write_entry_state(found.draining, index_.entry(found.draining));
  } else if (found.draining != kNoEntry) {
    const MessageStatus status = revive(found.draining, ret);
    tell_sink(Decision::kStored, index_.entry(found.draining), slot);
    return status;
  }
  if (ns.quota_bytes != 0) {
    const u64 bytes = room_in(extent);
    if (bytes > ns.quota_bytes) return MessageStatus::kQuota;
    while (ns_bytes_[body.ns] + bytes > ns.quota_bytes) {
      const u32 victim = oldest_evictable(body.ns);
      if (victim == kNoEntry) return MessageStatus::kQuota;
      evict(victim);
    }
  }
  const MessageStatus status = insert(slot, body, found, spot, ret);
  return status;
}

// Whether a block of the namespace has no room in its quota, and no eviction there would make some.
template <PoolEnv Env>
bool Owner<Env>::quota_refuses(u32 ns, u64 bytes) const {
  if (!has_ns(ns) || ns_[ns].quota_bytes == 0) return false;
  if (bytes > ns_[ns].quota_bytes) return true;
  return ns_bytes_[ns] + bytes > ns_[ns].quota_bytes && oldest_evictable(ns) == kNoEntry;
}

template <PoolEnv Env>
bool Owner<Env>::cleared(u32 number, const media::NamespaceLine &ns) const {
  return index_.entry(number).version <= ns.clear_version;
}

// What a clear made invisible, and what waits to be emptied, is not there for a put of the key.
template <PoolEnv Env>
bool Owner<Env>::let_cleared_go(u32 number, const media::NamespaceLine &ns) {
  if (number == kNoEntry) return false;
  const bool there = index_.entry(number).entry_state() == media::EntryState::kPublished;
  if (!there || !cleared(number, ns)) return false;
  hide(number, media::EntryState::kHidden);
  return true;
}

// A doubt whose publication took effect and was evicted or removed since: it happened, once, and
// its block is not free before the entry is cleared (I8).
template <PoolEnv Env>
bool Owner<Env>::decided_before(const media::PublishBody &body, const SpaceMap::Spot &spot,
                                media::PublishAnswer &ret) {
  if (!spot || !space_.referred(spot)) return false;
  const u32 number = space_.entry_at(spot);
  const media::Entry &e = index_.entry(number);
  if (std::memcmp(e.key, body.key, sizeof e.key) != 0) return false;
  env_.mark("doubt_of_hidden");
  ret = {number, e.version};
  return true;
}

// A publication that an owner answered with OK, and that is nowhere: either removed or evicted
// since, then it must not come back; or decided after this owner's scan had passed, by one that did
// not know yet. The highest number known of that owner tells them apart: seen in the scan, or noted
// before a line was emptied. Of owners before that one nothing is known: they stay away.
template <PoolEnv Env>
bool Owner<Env>::overtaken(const media::PublishBody &body) const {
  u64 version;
  std::memcpy(&version, body.touch, sizeof version);
  return version >> 40 == base_version_ >> 40 && version > base_version_;
}

// A publication under an epoch that this owner has not come to: its predecessor, outbid already,
// cleared the namespace after the scan had passed its line, and then published. That clear was
// never accepted; no lookup would find the entry, so nobody may be told that it is published.
template <PoolEnv Env>
bool Owner<Env>::of_unknown_clear(const media::PublishBody &body) const {
  if (env_.mutant(Mutant::kUnknownClearPublished)) return false;
  return body.ns < ns_.size() && body.ns_epoch > ns_[body.ns].epoch;
}
template <PoolEnv Env>
void Owner<Env>::take_back(u32 number) {
  const media::Entry &e = index_.entry(number);
  if (index_.list_of(number) != kClearedList) ns_bytes_[e.ns] -= entry_bytes(e);
  index_.drop_parent(number);
  clear_entry(number);
  env_.mark("doubt_of_unknown_clear");
}

// A put of a key during its grace: the old block lives on with its version (proto 10).
template <PoolEnv Env>
media::MessageStatus Owner<Env>::revive(u32 number, media::PublishAnswer &ret) {
  media::Entry &e = index_.entry(number);
  index_.set_state(number, media::EntryState::kPublished);
  pen_.write_entry_state(number, e);
  index_.link(number, e.ns);
  ns_bytes_[e.ns] += entry_bytes(e);
  ++stats_.revived;
  ++stats_.exists;
  env_.mark("revived");
  ret = {number, e.version};
  return media::MessageStatus::kExists;
}

// Where a new entry goes: over a PENDING one of its key, the first group, the second, over
// somebody's PENDING; kNoEntry when both groups are full of blocks.
template <PoolEnv Env>
u32 Owner<Env>::free_line(const IndexMirror::Found &found) {
  if (found.visible != kNoEntry) {
    forget_pending(found.visible);
    return found.visible;
  }
  if (found.free_first != kNoEntry) return found.free_first;
  if (found.free_second != kNoEntry) return found.free_second;
  for (u64 group : {found.group_first, found.group_second}) {
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      const u32 n = static_cast<u32>(group * media::kGroupLines + i);
      if (index_.entry(n).entry_state() != media::EntryState::kPending) continue;
      forget_pending(n);
      ++stats_.displaced_pending;
      return n;
    }
  }
  return kNoEntry;
}

// Both groups are full: the least valuable of their entries drains, so that a later try finds room;
// none while the grace of another of them goes on, which is what that try waits for.
template <PoolEnv Env>
void Owner<Env>::displace(const IndexMirror::Found &found) {
  const u64 now = env_.now_ns();
  u32 victim = kNoEntry;
  for (u64 group : {found.group_first, found.group_second}) {
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      const u32 n = static_cast<u32>(group * media::kGroupLines + i);
      if (!index_.linked(n)) {
        if (pinned_until(n) <= now) return;
        continue;
      }
      if (!evictable(n)) continue;
      if (victim == kNoEntry || index_.stamp(n) < index_.stamp(victim)) victim = n;
    }
  }
  if (victim != kNoEntry) evict(victim);
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::insert(u32 slot, const media::PublishBody &body,
                                        const IndexMirror::Found &found, SpaceMap::Spot spot,
                                        media::PublishAnswer &ret) {
  if (version_number_ >= options_.versions) {  // until wants_new_epoch() is heard
    env_.mark("versions_used_up");
    return media::MessageStatus::kFull;
  }
  const u32 number = free_line(found);
  if (number == kNoEntry) {
    env_.mark("index_groups_full");
    displace(found);
    ++crowded_;
    ++stats_.full;
    return media::MessageStatus::kFull;
  }
  spill_before(found, number);
  const u8 spill = index_.spill_flag(number);
  const bool tainted = space_.at(spot.extent).record.flags & media::kMapTainted;
  if (!env_.mutant(Mutant::kVersionRepeats) || version_number_ == 0) ++version_number_;
  const u64 version = media::make_version(epoch_, version_number_);
  const u8 state = static_cast<u8>(static_cast<u8>(media::EntryState::kPublished) | spill |
                                   (tainted ? media::kEntryTainted : 0));
  // What was just stored to a far line is not read back.
  Line line = media::entry_line(body, version, state);
  pen_.write_entry(number, line);
  index_.put(number, line, body.ns, body.parent);
  space_.attach(spot, number);
  ns_bytes_[body.ns] += room_in(spot.extent);
  ++stats_.publications;
  ret = {number, version};
  tell_sink(Decision::kStored, body.key, body.ns, version, media::payload_lines_of(body.length),
            slot);
  return media::MessageStatus::kOk;
}

// The spill flag of the first group is on the medium before an entry of it stands in the second.
template <PoolEnv Env>
void Owner<Env>::spill_before(const IndexMirror::Found &found, u32 number) {
  if (number / media::kGroupLines == found.group_first) return;
  if (index_.spills(found.group_first)) return;
  const u32 head = static_cast<u32>(found.group_first * media::kGroupLines);
  index_.set_spill(found.group_first);
  ++stats_.spills;
  env_.mark("spill");
  pen_.write_entry_state(head, index_.entry(head));
  if (!env_.mutant(Mutant::kInsertBeforeSpillFlag)) pen_.drain_strict();
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::grant(u32 slot, const media::GrantBody &body,
                                       media::GrantAnswer &ret) {
  using media::MessageStatus;
  const u8 size_class = body.size_class;
  const bool run = size_class == media::kClassRun;
  if (!run && (size_class >= media::kSizeClasses || space_.blocks(size_class) == 0)) {
    return MessageStatus::kRefused;
  }
  if (run && (body.run_extents == 0 || body.run_extents > space_.limit())) {
    return MessageStatus::kRefused;
  }
  // Before room is made for it at others' expense.
  const u64 bytes = run ? body.run_extents * space_.regions().extent_bytes()
                        : media::class_bytes(size_class);
  if (quota_refuses(body.ns, bytes)) {
    return pins_awaited_ > 0 ? MessageStatus::kBusy : MessageStatus::kQuota;
  }
  if (reports_awaited_ > 0) env_.mark("grant_before_all_reported");
  u32 extent = SpaceMap::kNone;
  if (run) {
    extent = space_.pick_free_run(body.run_extents);
  } else {
    const u32 quarter = std::max(1u, space_.blocks(size_class) / 4);
    extent = space_.pick_partial(size_class, quarter);
    if (extent == SpaceMap::kNone) extent = space_.pick_free();
    if (extent == SpaceMap::kNone) extent = space_.pick_partial(size_class, 1);
  }
  if (extent == SpaceMap::kNone) {
    evict_for(run ? body.run_extents : 0);
    recall_from_others(slot);
    const bool hope =
        pins_awaited_ > 0 || !grace_.empty() || !quarantine_.empty() || others_hold(slot);
    ++(hope ? stats_.busy : stats_.full);
    return hope ? MessageStatus::kBusy : MessageStatus::kFull;
  }
  const MemberState &m = members_[slot];
  const media::MapRecord fresh{static_cast<u8>(slot), tag_of(m.incarnation), size_class, 0, 0};
  media::MapRecord record = fresh;
  add_taint(record, space_.at(extent).record);
  if (run) {  // tails first: the head's record decides for the run
    for (u32 i = body.run_extents; i-- > 1;) {
      media::MapRecord tail = fresh;
      tail.flags = media::kMapRunTail;
      add_taint(tail, space_.at(extent + i).record);
      add_taint(record, tail);
      set_map(extent + i, tail);
    }
    record.flags |= media::kMapRunHead;
    env_.mark("run_granted");
    if (body.run_extents > 1) pen_.drain_strict();
  }
  set_map(extent, record);
  ret.extent = extent;
  ret.block_count = static_cast<u16>(space_.blocks(size_class));
  ret.flags = record.flags & media::kMapTainted ? media::kGrantTainted : 0;
  space_.free_bits_of(extent, ret.free_bits);
  if (env_.mutant(Mutant::kGrantIgnoresEntries)) {
    for (u32 i = 0; i < space_.blocks(size_class); ++i) ret.free_bits[i / 64] |= u64{1} << i % 64;
  }
  u64 blocks = 0;
  for (u64 bits : ret.free_bits) blocks += static_cast<u64>(std::popcount(bits));
  granted_lately_ += blocks * room_in(extent);
  ++stats_.grants;
  return MessageStatus::kOk;
}

template <PoolEnv Env>
bool Owner<Env>::others_hold(u32 slot) const {
  for (u32 s = 0; s < members_.size(); ++s) {
    if (s != slot && !space_.held_by(s).empty()) return true;
  }
  return false;
}

template <PoolEnv Env>
void Owner<Env>::take_return(u32 slot, const media::ReturnBody &body) {
  const bool tainted = body.flags & media::kReturnTainted;
  const u16 mark = static_cast<u16>(body.flags >> media::kReturnMarkShift);
  returns_.push_back({slot, body.extent, tainted, mark});
  // In the next round of chores.
  if (body.flags & media::kReturnUnreadable) look_at_devices_ = true;
}

// A member gives an extent back: what no entry refers to is free.
template <PoolEnv Env>
void Owner<Env>::return_extent(const Returned &back) {
  const u32 extent = back.extent;
  if (!holds(back.slot, extent)) return;
  ++stats_.extents_returned;
  if (env_.mutant(Mutant::kReturnWithoutMap)) {
    media::MapRecord record = space_.at(extent).record;
    record.holder = media::kHolderOwner;
    space_.set_record(extent, record);
    return;
  }
  if (back.tainted) note_taint(back.mark);
  release(extent, back.tainted, back.mark);
}

// The owner holds the extent again.
template <PoolEnv Env>
void Owner<Env>::release(u32 extent, bool tainted, u16 mark) {
  const auto owned = [&](const media::MapRecord &was) {
    media::MapRecord now = was;
    now.holder = media::kHolderOwner;
    now.tag = now.ns = 0;
    now.flags &= static_cast<u8>(~media::kMapTainted);
    add_taint(now, was);
    if (tainted) add_taint(now, {.flags = media::kMapTainted, .ns = mark});
    return now;
  };
  const media::MapRecord was = space_.at(extent).record;
  if (was.flags & media::kMapRunTail) return;  // goes with its head
  if (tainted) ++stats_.extents_tainted;
  const media::MapRecord record = owned(was);
  if (record.flags & media::kMapRunHead) {
    const u32 length = space_.run_length(extent);
    const bool used = space_.at(extent).used > 0;
    if (!used) {
      for (u32 i = 0; tainted && i < length; ++i) {  // for free_run()
        space_.set_record(extent + i, owned(space_.at(extent + i).record));
      }
      return free_run(extent);
    }
    for (u32 i = 1; i < length; ++i) set_map(extent + i, owned(space_.at(extent + i).record));
    // While the head is a member's its tails are too, whatever they say: see repair_runs().
    if (length > 1 && !env_.mutant(Mutant::kHeadBeforeTails)) pen_.drain_strict();
  }
  set_map(extent, record);
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::pending(u32 slot, const media::PendingBody &body) {
  using media::MessageStatus;
  const IndexMirror::Found found = index_.find(body.key);
  if (body.duration_ms == 0) {
    if (found.visible == kNoEntry) return MessageStatus::kAbsent;
    if (!announced_by(found.visible, slot)) return MessageStatus::kExists;
    forget_pending(found.visible);
    clear_entry(found.visible);
    return MessageStatus::kOk;
  }
  if (!has_ns(body.ns)) return MessageStatus::kStale;
  if (ns_[body.ns].flags & media::kNsBypass) return MessageStatus::kBypassed;
  const u64 said = u64{slot} | u64{body.duration_ms} << 16;
  if (found.visible != kNoEntry && announced_by(found.visible, slot)) {  // it needs longer
    media::Entry &e = index_.entry(found.visible);
    e.check_hash = said;
    pen_.write_entry(found.visible, e);
    forget_pending(found.visible);
    begin_pending(found.visible);
    return MessageStatus::kOk;
  }
  if (found.visible != kNoEntry || found.draining != kNoEntry) return MessageStatus::kExists;
  u32 number = found.free_first != kNoEntry ? found.free_first : found.free_second;
  if (number == kNoEntry) return MessageStatus::kFull;
  spill_before(found, number);
  media::Entry &e = index_.entry(number);
  const u8 spill = index_.spill_flag(number);
  e = media::Entry{};
  std::memcpy(e.key, body.key, sizeof e.key);
  e.version = members_[slot].incarnation;
  e.check_hash = said;
  e.state = static_cast<u8>(static_cast<u8>(media::EntryState::kPending) | spill);
  e.ns = body.ns;
  index_.retag(number);
  pen_.write_entry(number, e);
  begin_pending(number);
  return MessageStatus::kOk;
}

template <PoolEnv Env>
bool Owner<Env>::announced_by(u32 number, u32 slot) const {
  const media::Entry &e = index_.entry(number);
  return e.entry_state() == media::EntryState::kPending && e.version == members_[slot].incarnation;
}

// From now on, for the duration that the entry says; the medium holds no times.
template <PoolEnv Env>
void Owner<Env>::begin_pending(u32 number) {
  const u64 until = env_.now_ns() + (index_.entry(number).check_hash >> 16) * kMs;
  pendings_.push_back({number, until});
  pendings_due_ns_ = std::min(pendings_due_ns_, until);
}

template <PoolEnv Env>
void Owner<Env>::end_pendings() {
  const u64 now = env_.now_ns();
  if (now < pendings_due_ns_) return;
  pendings_due_ns_ = kNever;
  std::erase_if(pendings_, [&](const Announced &a) {
    const bool over = a.until_ns <= now;
    if (over) {
      env_.mark("pending_ends_by_time");
      clear_entry(a.entry);
    } else {
      pendings_due_ns_ = std::min(pendings_due_ns_, a.until_ns);
    }
    return over;
  });
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::remove(u32 slot, const media::RemoveBody &body, Decision why) {
  using media::MessageStatus;
  const IndexMirror::Found found = index_.find(body.key);
  u32 number = found.visible != kNoEntry ? found.visible : found.draining;
  if (number == kNoEntry) return MessageStatus::kAbsent;
  media::Entry &e = index_.entry(number);
  if (e.entry_state() == media::EntryState::kPending) return MessageStatus::kAbsent;
  if (body.version != 0 && e.version != body.version) return MessageStatus::kStale;
  if (e.entry_state() == media::EntryState::kDraining) {
    index_.set_state(number, media::EntryState::kHidden);
    pen_.write_entry_state(number, e);
  } else {
    const bool comes_back = env_.mutant(Mutant::kReviveHidden);
    hide(number, comes_back ? media::EntryState::kDraining : media::EntryState::kHidden, why, slot);
  }
  ++stats_.removed;
  return MessageStatus::kOk;
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::pin(u32 slot, const u64 *key, u64 ttl_ms,
                                     media::PinAnswer &ret) {
  const u32 number = index_.find(key).visible;
  if (number == kNoEntry || index_.entry(number).entry_state() == media::EntryState::kPending) {
    return media::MessageStatus::kAbsent;
  }
  // Asked with a lookup's record, which may be of before a clear or a bypass.
  const u32 ns = index_.entry(number).ns;
  if (!env_.mutant(Mutant::kPinIgnoresNs)) {
    if (!has_ns(ns) || cleared(number, ns_[ns])) return media::MessageStatus::kAbsent;
    if (ns_[ns].flags & media::kNsBypass) return media::MessageStatus::kBypassed;
  }
  return pin_entry(slot, number, ttl_ms, ret);
}

// A pin protects bytes: the one of a report names its publication, which may be hidden by now while
// another one has the key. Entries never move, but the index may have got another size.
template <PoolEnv Env>
media::MessageStatus Owner<Env>::pin_reported(u32 slot, const media::ReportPinBody &body,
                                              media::PinAnswer &ret) {
  const auto names = [&](u32 n) {
    const media::Entry &e = index_.entry(n);
    const auto state = e.entry_state();
    return e.version == body.version && std::memcmp(e.key, body.key, sizeof e.key) == 0 &&
           state != media::EntryState::kEmpty && state != media::EntryState::kPending;
  };
  if (env_.mutant(Mutant::kPinReportedByKey)) return pin(slot, body.key, body.pin_ttl_ms, ret);
  if (body.entry < index_.count() && names(static_cast<u32>(body.entry))) {
    return pin_entry(slot, static_cast<u32>(body.entry), body.pin_ttl_ms, ret);
  }
  const IndexMirror::Found found = index_.find(body.key);
  for (u64 group : {found.group_first, found.group_second}) {
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      const u32 n = static_cast<u32>(group * media::kGroupLines + i);
      if (names(n)) return pin_entry(slot, n, body.pin_ttl_ms, ret);
    }
  }
  return media::MessageStatus::kAbsent;
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::pin_entry(u32 slot, u32 number, u64 ttl_ms,
                                           media::PinAnswer &ret) {
  const MemberState &m = members_[slot];
  const u64 id = next_pin_++;
  const u64 now = env_.now_ns();
  std::vector<PinHold> &pins = pins_[number];
  std::erase_if(pins, [&](const PinHold &hold) { return hold.until_ns <= now; });
  pins.push_back({id, now + ttl_ms * kMs, m.incarnation, m.group, m.report_begun});
  index_.touch(number);
  ++stats_.pins;
  ret = {id, number, index_.entry(number).version};
  return media::MessageStatus::kOk;
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::ns_open(const media::NsOpenBody &body, media::NsAnswer &ret) {
  using media::MessageStatus;
  u64 word;
  std::memcpy(&word, body.fingerprint, sizeof word);
  const u32 lines = static_cast<u32>(ns_.size());
  u32 free_id = 0;
  for (u32 probe = 0; probe < media::ns_probes(lines); ++probe) {
    const u32 id = media::ns_probe(word, probe, lines);
    const media::NamespaceLine &line = ns_[id];
    if ((line.flags & media::kNsUsed) && std::memcmp(line.fingerprint, body.fingerprint, 16) == 0) {
      ret = {id, line.epoch};
      return MessageStatus::kOk;
    }
    if (!(line.flags & media::kNsUsed) && free_id == 0) free_id = id;
    if (line.flags & media::kNsEmpty) break;
  }
  if (!body.create) return MessageStatus::kAbsent;
  if (free_id == 0) return MessageStatus::kFull;
  media::NamespaceLine line{};
  std::memcpy(line.fingerprint, body.fingerprint, sizeof line.fingerprint);
  std::memcpy(line.name, body.name, sizeof line.name);
  line.quota_bytes = body.quota_bytes;
  line.clear_version = media::make_version(epoch_, version_number_);
  line.epoch = ns_[free_id].epoch + 1;  // keys of a namespace that stood here before are dead
  line.block_lines = body.block_lines;
  line.flags = media::kNsUsed;
  line.weight = body.weight;
  line.verify = body.verify;
  ns_[free_id] = line;
  pen_.write_ns(free_id, line);
  ret = {free_id, line.epoch};
  return MessageStatus::kOk;
}

template <PoolEnv Env>
media::MessageStatus Owner<Env>::ns_control(u32 slot, const media::NsControlBody &body,
                                            media::NsAnswer &ret) {
  using media::MessageStatus;
  if (!has_ns(body.id)) return MessageStatus::kAbsent;
  media::NamespaceLine &line = ns_[body.id];
  // Removed since the caller looked, and its place given to another: not that one is meant.
  const bool meant = std::memcmp(body.fingerprint, line.fingerprint, sizeof body.fingerprint) == 0;
  if (!meant && !env_.mutant(Mutant::kNsControlByPlace)) return MessageStatus::kAbsent;
  switch (static_cast<media::NsOp>(body.op)) {
    case media::NsOp::kBypassOn: line.flags |= media::kNsBypass; break;
    case media::NsOp::kBypassOff: line.flags &= static_cast<u16>(~media::kNsBypass); break;
    case media::NsOp::kClear:
    case media::NsOp::kRemove:
      // Somebody else did it since the caller looked. An epoch ahead of this one was read from a
      // line that an outbid owner wrote after the scan had passed it: that clear never counted.
      if (body.epoch != 0 && body.epoch < line.epoch) return MessageStatus::kStale;
      if (body.epoch > line.epoch) {
        if (env_.mutant(Mutant::kClearAheadIsStale)) return MessageStatus::kStale;
        if (body.epoch - line.epoch > kClearsAhead) return MessageStatus::kRefused;
      }
      if (!env_.mutant(Mutant::kClearKeepsEpoch)) {
        line.epoch = std::max(line.epoch, body.epoch) + 1;
        line.clear_version = media::make_version(epoch_, version_number_);
      }
      stats_.cleared += index_.clear_list(body.id);
      if (options_.sink.fn) {
        options_.sink.fn(options_.sink.arg,
                         {.what = Decision::kCleared, .member = slot, .ns = body.id});
      }
      ns_bytes_[body.id] = 0;
      drop_pendings(body.id);
      if (static_cast<media::NsOp>(body.op) == media::NsOp::kRemove) {
        line.flags = 0;
        std::memset(line.fingerprint, 0, sizeof line.fingerprint);
      }
      break;
    default: return MessageStatus::kRefused;
  }
  pen_.write_ns(body.id, line);
  ret = {body.id, line.epoch};
  return MessageStatus::kOk;
}

// What was announced in a namespace goes with its keys, before its line says so.
template <PoolEnv Env>
void Owner<Env>::drop_pendings(u32 ns) {
  const auto gone = std::erase_if(pendings_, [&](const Announced &a) {
    if (index_.entry(a.entry).ns != ns) return false;
    clear_entry(a.entry);
    return true;
  });
  if (gone > 0) pen_.drain_strict();
}

template <PoolEnv Env>
void Owner<Env>::unpin(u32 slot, const media::UnpinBody &body) {
  const auto found = pins_.find(static_cast<u32>(body.entry));
  if (found == pins_.end()) return;
  const u64 holder = members_[slot].incarnation;
  std::erase_if(found->second, [&](const PinHold &hold) {
    return hold.id == body.pin && hold.incarnation == holder;
  });
  if (found->second.empty()) pins_.erase(found);
}

// A member has the extent in hand. False when it is not the member's: a publication that returned
// it may have been decided and never accepted. One that was taken for a part of a run, since its
// word could not be read, is the member's all the same, tainted.
template <PoolEnv Env>
bool Owner<Env>::report_extent(u32 slot, const media::ReportExtentBody &body) {
  const MemberState &m = members_[slot];
  const u32 x = body.extent;
  const bool run = body.size_class == media::kClassRun;
  const bool sound = run || (body.size_class < media::kSizeClasses &&
                             space_.blocks(body.size_class) > 0);
  const auto tail = [&](u32 y) {
    return y < space_.count() && (space_.at(y).record.flags & media::kMapRunTail);
  };
  const bool guessed = !m.reported && sound && unread(x) && tail(x) &&
                       space_.at(x).record.holder != media::kHolderOwner;
  const bool others = guessed && tail(x + 1) && !unread(x + 1) &&
                      space_.at(x + 1).record.holder != slot;
  if (guessed && !others) {
    env_.mark("run_word_reported");
    media::MapRecord its{static_cast<u8>(slot), tag_of(m.incarnation), body.size_class,
                         media::kMapTainted, 0};
    for (u32 i = 1; tail(x + i); ++i) {
      media::MapRecord behind{media::kHolderFormer, 0, media::kClassNone, 0, 0};
      if (run) behind = {its.holder, its.tag, its.size_class,
                         media::kMapRunTail | media::kMapTainted, 0};
      set_map(x + i, behind);
    }
    if (run) its.flags |= media::kMapRunHead;
    set_map(x, its);
    if (!run) quarantine(media::kHolderFormer, 0, false, true, 0);
  }
  if (!holds(slot, x)) env_.mark("report_foreign_extent");
  members_[slot].named.push_back(x);
  return holds(slot, x);
}

// proto 8: what the map says the member holds and its report did not name is the owner's again now.
template <PoolEnv Env>
void Owner<Env>::report_end(u32 slot) {
  MemberState &m = members_[slot];
  ++stats_.reports;
  if (!env_.mutant(Mutant::kReportAppliedLate)) {
    const std::vector<u32> held = space_.held_by(slot);
    for (u32 extent : held) {
      if (!holds(slot, extent)) continue;
      if (space_.at(extent).record.flags & media::kMapRunTail) continue;
      if (std::find(m.named.begin(), m.named.end(), extent) != m.named.end()) continue;
      env_.mark("report_unnamed");
      returns_.push_back({slot, extent});
    }
  }
  m.named.clear();
  // Pins that an earlier report named, or that were asked for before, and this one did not name:
  // they were given back meanwhile. They are dropped now, and not at BEGIN: what is named again is
  // pinned all the while.
  end_pins([&](const PinHold &hold) {
    return hold.incarnation == m.incarnation && hold.report_begun != m.report_begun;
  });
  if (!m.reported) {
    m.reported = true;
    --reports_awaited_;
    if (m.pins) --pins_awaited_;
    m.pins = false;
  }
}

}  // namespace kvpool::pool
