// SPDX-License-Identifier: Apache-2.0
// Eviction (proto 8, 10): what goes, the grace it gets, and when its block is free.
#pragma once

namespace kvpool::pool {

inline constexpr u32 kEvictTries = 512;      // unevictable entries passed over at a list's end
inline constexpr u64 kGracesAhead = 3;       // free ahead of what a grace's time takes
inline constexpr u32 kNeighbourShare = 16;  // neighbours this close in age go with an evicted block
inline constexpr u32 kPinBuckets = 64;       // looked at in one go for pins that have expired
inline constexpr u32 kClearedAtOnce = 32;    // blocks of cleared namespaces that go in one round
inline constexpr u32 kExtentSamples = 32;    // extents compared when a whole one must be emptied

// The entry stops being visible. Its block stays out of use until clear_entry().
template <PoolEnv Env>
void Owner<Env>::hide(u32 number, media::EntryState state) {
  hide(number, state,
       state == media::EntryState::kDraining ? Decision::kEvicted : Decision::kRemoved);
}

template <PoolEnv Env>
void Owner<Env>::hide(u32 number, media::EntryState state, Decision why, u32 member) {
  media::Entry &e = index_.entry(number);
  const bool cleared = index_.list_of(number) == kClearedList;
  if (!cleared) ns_bytes_[e.ns] -= entry_bytes(e);
  index_.unlink(number);
  index_.drop_parent(number);
  index_.set_state(number, state);
  pen_.write_entry_state(number, e);
  if (!cleared) tell_sink(why, e, member);
  const u64 grace = env_.mutant(Mutant::kEvictWithoutGrace) ? 0 : u64{geo_.grace_us} * 1000;
  grace_.push_back({env_.now_ns() + grace, number, index_.stamp(number)});
  grace_bytes_ += entry_bytes(e);
  if (env_.mutant(Mutant::kGrantBeforeClear))
    space_.detach(space_.locate(e.locator() * media::kLocatorUnit));
}

template <PoolEnv Env>
void Owner<Env>::tell_sink(Decision what, const media::Entry &entry, u32 member) const {
  tell_sink(what, entry.key, entry.ns, entry.version, entry.payload_lines(), member);
}

template <PoolEnv Env>
void Owner<Env>::tell_sink(Decision what, const u64 *key, u32 ns, u64 version, u64 payload_lines,
                           u32 member) const {
  if (!options_.sink.fn) return;
  DecisionEvent event{what, member, ns, version, payload_lines * kLineBytes, {}};
  std::memcpy(event.key.w, key, sizeof event.key.w);
  options_.sink.fn(options_.sink.arg, event);
}

template <PoolEnv Env>
void Owner<Env>::evict(u32 number) {
  hide(number, media::EntryState::kDraining);
  ++stats_.evicted;
}

template <PoolEnv Env>
u64 Owner<Env>::pinned_until(u32 number) const {
  if (env_.mutant(Mutant::kPinIgnoredByEviction)) return 0;
  const auto found = pins_.find(number);
  u64 until = 0;
  if (found != pins_.end()) {
    for (const PinHold &hold : found->second) until = std::max(until, hold.until_ns);
  }
  return until;
}

// Pins that nobody takes back end by their time: a few of them are looked at, each time others.
template <PoolEnv Env>
void Owner<Env>::forget_pins() {
  const u64 now = env_.now_ns();
  std::vector<u32> over;
  for (u32 i = 0; i < kPinBuckets && i < pins_.bucket_count(); ++i) {
    pin_bucket_ = (pin_bucket_ + 1) % pins_.bucket_count();
    for (auto at = pins_.begin(pin_bucket_); at != pins_.end(pin_bucket_); ++at) {
      std::erase_if(at->second, [&](const PinHold &hold) { return hold.until_ns <= now; });
      if (at->second.empty()) over.push_back(at->first);
    }
  }
  for (u32 entry : over) pins_.erase(entry);
}

template <PoolEnv Env>
template <class Over>
void Owner<Env>::end_pins(Over &&over) {
  for (auto at = pins_.begin(); at != pins_.end();) {
    std::erase_if(at->second, over);
    at = at->second.empty() ? pins_.erase(at) : std::next(at);
  }
}

// proto 11: pins die with the group, since tickets carry them to all its members; of a member
// without a group, with the member. Whoever is given up by time looks at its lease, or at the
// entry, after the use.
template <PoolEnv Env>
void Owner<Env>::end_pins_of_dead(const MemberState &dead) {
  if (pins_.empty() || env_.mutant(Mutant::kPinOutlivesHolder)) return;
  const bool group_lives =
      dead.group != 0 && std::any_of(members_.begin(), members_.end(), [&](const MemberState &m) {
        return m.life == Life::kLive && (m.group == dead.group || m.incarnation == 0);
      });
  if (group_lives) return;
  env_.mark("pins_end_with_group");
  end_pins([&](const PinHold &hold) {
    return hold.incarnation == dead.incarnation || (dead.group != 0 && hold.group == dead.group);
  });
}

// Until those with pins have reported, any block may be pinned.
template <PoolEnv Env>
bool Owner<Env>::pinned(u32 number) const {
  if (pins_awaited_ > 0) return true;
  return !pins_.empty() && pinned_until(number) > env_.now_ns();
}

// Blocks with a live child go after the child (leaf first). A pinned block would keep its room: to
// hide it frees nothing.
template <PoolEnv Env>
bool Owner<Env>::evictable(u32 number) const {
  return !index_.has_children(number) && !pinned(number);
}

// The namespace's oldest block that may go, of some looked at; where all of them have children, the
// oldest that is not pinned; kNoEntry.
template <PoolEnv Env>
u32 Owner<Env>::oldest_evictable(u32 ns) const {
  if (pins_awaited_ > 0) return kNoEntry;
  u32 victim = index_.oldest(ns), parent = kNoEntry;
  for (u32 i = 0; i < kEvictTries && victim != kNoEntry; ++i) {
    if (evictable(victim)) return victim;
    if (parent == kNoEntry && !pinned(victim)) parent = victim;
    victim = index_.newer(victim);
  }
  return parent;
}

// Whether evicting the block makes room: not while a member holds its extent.
template <PoolEnv Env>
bool Owner<Env>::makes_room(u32 number) const {
  const u64 address = index_.entry(number).locator() * media::kLocatorUnit;
  const u32 extent = space_.regions().extent_of(address);
  return extent < space_.limit() && space_.owner_held(extent);
}

// Drains the oldest blocks until about `bytes` are on their way to be free. Cleared namespaces go
// first, then the namespace whose oldest block is the oldest of all.
template <PoolEnv Env>
u64 Owner<Env>::evict_oldest(u64 bytes) {
  u64 freed = 0;
  while (freed < bytes) {
    u32 list = kClearedList;
    if (index_.list_count(kClearedList) == 0) {
      u32 best_age = 0;
      for (u32 ns = 1; ns < index_.lists(); ++ns) {
        if (index_.list_count(ns) == 0) continue;
        const u32 age = index_.clock() - index_.stamp(index_.oldest(ns)) + 1;
        if (age > best_age) {
          best_age = age;
          list = ns;
        }
      }
      if (list == kClearedList) return freed;
    }
    u32 victim = index_.oldest(list), parent = kNoEntry;
    for (u32 i = 0; i < kEvictTries && victim != kNoEntry; ++i) {
      if (makes_room(victim)) {
        if (evictable(victim)) break;
        if (parent == kNoEntry && !pinned(victim)) parent = victim;
      }
      victim = index_.newer(victim);
    }
    if (victim == kNoEntry || !makes_room(victim) || !evictable(victim)) victim = parent;
    if (victim == kNoEntry) return freed;  // only members' extents: they are recalled
    const media::Entry e = index_.entry(victim);
    evict(victim);
    freed += entry_bytes(e);
    freed += evict_neighbours(e, index_.stamp(victim));
  }
  return freed;
}

// Blocks of the same extent that are nearly as old go too, so that extents empty as a whole and a
// grant is worth its message.
template <PoolEnv Env>
u64 Owner<Env>::evict_neighbours(const media::Entry &of, u32 stamp) {
  const u32 extent = space_.regions().extent_of(of.locator() * media::kLocatorUnit);
  const SpaceMap::Extent &e = space_.at(extent);
  if (!e.entry_of || e.record.size_class == media::kClassRun) return 0;
  const u32 span = (index_.clock() - stamp) / kNeighbourShare;
  u64 freed = 0;
  for (u32 i = 0; i < space_.blocks(e.record.size_class); ++i) {
    if (e.entry_of[i] == 0) continue;
    const u32 n = e.entry_of[i] - 1;
    if (!index_.linked(n) || !evictable(n) || index_.stamp(n) - stamp > span) continue;
    freed += entry_bytes(index_.entry(n));
    evict(n);
  }
  return freed;
}

template <PoolEnv Env>
void Owner<Env>::evict_extent(u32 extent) {
  const SpaceMap::Extent &e = space_.at(extent);
  if (!e.entry_of) return;
  for (u32 i = 0; i < space_.blocks(e.record.size_class); ++i) {
    if (e.entry_of[i] == 0) continue;
    const u32 n = e.entry_of[i] - 1;
    if (index_.linked(n)) evict(n);
  }
}

// The extent is the owner's to empty for a run, and no block of it is pinned; ret_newest: the stamp
// of its newest block, 0 when all that there are wait for their grace.
template <PoolEnv Env>
bool Owner<Env>::can_empty(u32 extent, u64 &ret_newest) {
  const SpaceMap::Extent &e = space_.at(extent);
  ret_newest = 0;
  if (!space_.owner_held(extent) || (e.record.flags & media::kMapRunTail)) return false;
  if (e.out) return false;
  if (!e.entry_of) return true;
  const u64 now = pins_.empty() ? 0 : env_.now_ns();
  for (u32 b = 0; b < space_.blocks(e.record.size_class); ++b) {
    if (e.entry_of[b] == 0) continue;
    const u32 n = e.entry_of[b] - 1;
    if (!pins_.empty() && pinned_until(n) > now) return false;
    if (index_.linked(n)) ret_newest = std::max<u64>(ret_newest, index_.stamp(n));
  }
  return true;
}

// Whether a place for a run of this length is free but for graces that go on. Another place is
// emptied when a block of it came back, was pinned, or somebody was granted part of it.
template <PoolEnv Env>
bool Owner<Env>::run_on_its_way(u32 run) {
  if (grace_.empty() || run_length_ < run) return false;
  if (run_first_ + run_length_ > space_.limit()) return false;  // leaves the pool meanwhile
  for (u32 x = run_first_; x < run_first_ + run_length_; ++x) {
    u64 newest = 0;
    if (!can_empty(x, newest) || newest != 0) return false;
  }
  return true;
}

// The stretch of that many extents, of some looked at, whose newest block is the oldest; kNone.
template <PoolEnv Env>
u32 Owner<Env>::pick_to_empty(u32 length) {
  u32 best = SpaceMap::kNone;
  u64 best_stamp = ~u64{0};
  for (u32 i = 0; i < kExtentSamples; ++i) {
    const u32 first =
        static_cast<u32>(media::scale_word(env_.random(), space_.limit() - length + 1));
    u64 newest = 0;
    bool usable = space_.regions().one_region(first, length);
    for (u32 x = first; usable && x < first + length; ++x) {
      u64 stamp = 0;
      usable = can_empty(x, stamp);
      newest = std::max(newest, stamp);
    }
    if (!usable || newest == 0 || newest >= best_stamp) continue;
    best_stamp = newest;
    best = first;
  }
  return best;
}

// A grant found nothing: make room of the right shape. For blocks of a class some extent's worth of
// the oldest; when the free space is all of other classes, and for runs, whole extents.
template <PoolEnv Env>
void Owner<Env>::evict_for(u32 run) {
  if (pins_awaited_ > 0) return;
  const u32 length = std::max(1u, run);
  const u64 room = space_.regions().extent_bytes() * length;
  const bool enough = !grace_.empty() && grace_bytes_ >= room;
  if (run == 0 ? enough : run_on_its_way(run)) return;
  if (space_.limit() < length) return;
  const u32 first = pick_to_empty(length);
  if (first == SpaceMap::kNone) {
    if (!enough) evict_oldest(room);
    return;
  }
  env_.mark("evict_by_extent");
  for (u32 x = first; x < first + length; ++x) evict_extent(x);
  if (run == 0) return;
  run_first_ = first;
  run_length_ = length;
}

// What was granted within about the last grace: an average that forgets at that pace.
template <PoolEnv Env>
void Owner<Env>::forget_grants(u64 elapsed_ns) {
  const u64 grace = std::max<u64>(1, u64{geo_.grace_us} * 1000);
  granted_lately_ -= elapsed_ns >= grace ? granted_lately_ : granted_lately_ / grace * elapsed_ns;
}

// Keeps a little free, so that a put seldom waits for a grace (proto 8): space evicted now can be
// granted a grace from now, so as much must be on its way as is granted meanwhile.
template <PoolEnv Env>
void Owner<Env>::keep_free_ahead() {
  if (pins_awaited_ > 0) return;
  const u64 extent_bytes = space_.regions().extent_bytes();
  u64 active = 0;
  for (u32 slot = 0; slot < members_.size(); ++slot) active += !space_.held_by(slot).empty();
  const u64 pool = space_.limit() * extent_bytes;
  const u64 wanted = std::max({pool / 1000 * options_.free_target_permille,
                               active * 2 * extent_bytes, granted_lately_ * kGracesAhead});
  const u64 have = space_.free_bytes() + grace_bytes_;
  if (have >= wanted) return;
  // A share of what comes and goes: were pins not counted, what is put beside many of them would
  // be evicted as soon as it stands there.
  const u64 target = std::min(wanted, (pool - std::min(pool, pinned_bytes())) / 8);
  if (have < target) evict_oldest(target - have);
}

template <PoolEnv Env>
u64 Owner<Env>::pinned_bytes() const {
  u64 bytes = 0;
  for (const auto &[entry, holds] : pins_) bytes += entry_bytes(index_.entry(entry));
  return bytes;
}

// Nobody finds blocks of cleared and removed namespaces any more: a few at a time go, so that their
// lines and room do not wait until somebody needs them. They were told of with their namespace.
template <PoolEnv Env>
void Owner<Env>::empty_cleared() {
  if (pins_awaited_ > 0) return;
  for (u32 i = 0; i < kClearedAtOnce && index_.list_count(kClearedList) > 0; ++i) {
    hide(index_.oldest(kClearedList), media::EntryState::kDraining);
  }
}

// Clears entries whose grace is over; pinned ones wait for their pins, apart: their space is not
// coming soon.
template <PoolEnv Env>
void Owner<Env>::run_graces() {
  if (pins_awaited_ > 0 && !env_.mutant(Mutant::kGraceBeforePins))
    return;  // what is hidden may be pinned by one who has not reported
  forget_pins();
  const u64 now = env_.now_ns();
  while (!grace_.empty() && grace_.front().due_ns <= now) {
    const Grace g = grace_.front();
    grace_.pop_front();
    grace_bytes_ -= std::min(grace_bytes_, entry_bytes(index_.entry(g.entry)));
    if (!still_hidden(g)) continue;
    if (pinned_until(g.entry) > now) {
      env_.mark("grace_waits_for_pin");
      grace_pinned_.push_back(g);
    } else {
      clear_entry(g.entry);
    }
  }
  std::erase_if(grace_pinned_, [&](const Grace &g) {
    if (!still_hidden(g)) return true;
    if (pinned_until(g.entry) > now) return false;
    clear_entry(g.entry);
    return true;
  });
}

// A revival meanwhile changed the entry's stamp.
template <PoolEnv Env>
bool Owner<Env>::still_hidden(const Grace &g) const {
  const auto state = index_.entry(g.entry).entry_state();
  const bool hidden =
      state == media::EntryState::kDraining || state == media::EntryState::kHidden;
  return hidden && index_.stamp(g.entry) == g.stamp;
}

// An entry's version goes with its line. That there was such a publication must outlive it: a
// member whose accept is still to come may ask the next owner about it, and it must not come back.
// Line 0 of the namespace table, which no namespace has, notes the highest number given so far; it
// is on the medium before the line is emptied.
template <PoolEnv Env>
void Owner<Env>::note_before_emptying(u32 number) {
  const u64 version = index_.entry(number).version;
  if (version >> 40 != epoch_ || version <= emptied_version_) return;
  emptied_version_ = ns_[0].clear_version = media::make_version(epoch_, version_number_);
  pen_.write_ns(0, ns_[0]);
  pen_.drain_strict();
}

// The line is free; so is the block, once this is on the medium (every batch drains before it
// answers, and a grant of the block is an answer).
template <PoolEnv Env>
void Owner<Env>::clear_entry(u32 number) {
  media::Entry &e = index_.entry(number);
  const bool has_block = e.entry_state() != media::EntryState::kPending;
  const u64 address = e.locator() * media::kLocatorUnit;
  const u8 spill = index_.spill_flag(number);
  if (has_block) note_before_emptying(number);
  pins_.erase(number);
  index_.unlink(number);
  index_.forget_children(number);
  e = media::Entry{};
  e.state = static_cast<u8>(static_cast<u8>(media::EntryState::kEmpty) | spill);
  index_.retag(number);
  pen_.write_entry(number, e);
  if (!has_block) return;
  const SpaceMap::Spot spot = space_.locate(address);
  space_.detach(spot);
  const bool head = space_.at(spot.extent).record.flags & media::kMapRunHead;
  if (head && space_.owner_held(spot.extent)) free_run(spot.extent);
}

// A run whose block is gone falls apart into free extents; its head goes last on take-over's terms:
// tails without a head are free, so the head is changed first.
template <PoolEnv Env>
void Owner<Env>::free_run(u32 head) {
  const u32 length = space_.run_length(head);
  pen_.drain_strict();
  for (u32 i = 0; i < length; ++i) {
    media::MapRecord free{media::kHolderOwner, 0, media::kClassNone, 0, 0};
    add_taint(free, space_.at(head + i).record);
    set_map(head + i, free);
  }
}

}  // namespace kvpool::pool
