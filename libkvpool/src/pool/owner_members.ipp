// SPDX-License-Identifier: Apache-2.0
// How the owner watches members (proto 6, 8): joins, leaves, deaths, quarantine, recall.
#pragma once

namespace kvpool::pool {

inline constexpr u64 kLockProbeShare =
    8;  // a heartbeat quiet for lease / 8: is its lock still held?
inline constexpr u64 kClockShare = 50;  // clocks' rates differ by less than twice 1 % (A7)

// At activation: who lives, and who owes a report.
template <PoolEnv Env>
void Owner<Env>::first_members() {
  const std::vector<MemberState> before = std::move(members_);
  members_.assign(geo_.member_count(), MemberState{});
  quarantine_.clear();
  aborts_.clear();
  responses_.clear();
  answered_ = false;
  returns_.clear();
  reports_awaited_ = pins_awaited_ = 0;
  last_watch_ns_ = env_.now_ns();
  watch_members();
  know_the_dead(before);
  std::erase_if(pendings_, [&](const Announced &a) {  // by somebody who is gone
    const u32 n = a.entry;
    const media::Entry e = index_.entry(n);
    const u32 slot = static_cast<u32>(e.check_hash & 0xFFFF);
    const bool there = slot < members_.size() && members_[slot].life == Life::kLive &&
                       members_[slot].incarnation == e.version;
    if (!there) {
      env_.mark("pending_of_nobody");
      clear_entry(n);
    }
    return !there;
  });
  pendings_due_ns_ = kNever;
  for (Announced &a : std::exchange(pendings_, {})) begin_pending(a.entry);
  // Holders whose member is not there any more, and extents of a former life or an unreadable
  // record.
  for (u32 slot = 0; slot < members_.size(); ++slot) {
    const MemberState &now = members_[slot];
    const bool live = now.life == Life::kLive;
    if (live && now.incarnation == 0) continue;  // seen to when it is known, or dead
    bool stale = false;  // held by an incarnation that is not there any more
    for (u32 x : space_.held_by(slot)) {
      stale = stale || !live || space_.at(x).record.tag != tag_of(now.incarnation);
    }
    if (!stale || (live && env_.mutant(Mutant::kSlotReuseUnseen))) continue;
    env_.mark("holder_gone");
    // Whoever stands in the slot now proves that the holder is QUIET; else its lock does.
    bool quiet = live || env_.try_lock(LockKind::kMember, slot);
    if (quiet && !live) env_.unlock(LockKind::kMember, slot);
    quarantine_strangers(slot, quiet);
  }
  for (u32 x = 0; x < space_.count(); ++x) {
    if (space_.at(x).record.holder != media::kHolderFormer) continue;
    quarantine(media::kHolderFormer, 0, false, true, 0);
    break;
  }
}

// A verdict is final: after a take-over from itself an owner waits for nobody's report whom it gave
// up before, although the line in the slot is still that one's. The quarantine begins anew.
template <PoolEnv Env>
void Owner<Env>::know_the_dead(const std::vector<MemberState> &before) {
  for (u32 slot = 0; slot < before.size(); ++slot) {
    const MemberState &was = before[slot], &now = members_[slot];
    if (was.life != Life::kDead || was.incarnation == 0) continue;
    if (now.life != Life::kLive || now.incarnation != was.incarnation) continue;
    env_.mark("verdict_carried_over");
    --stats_.members_joined;
    bury(slot, said_quiet(slot, was.incarnation));
  }
}

// Loads a slot's line from the medium. One that was caught in the middle of a store is whole again
// after a few looks; they are worth it for those who live, and for all at activation.
template <PoolEnv Env>
bool Owner<Env>::load_member(u32 slot, Line &ret_line) {
  auto &mem = env_.memory();
  const PoolOffset at = geo_.member_at(slot);
  const bool patient = !serving_ || members_[slot].life == Life::kLive;
  for (int i = 0;; ++i) {
    const bool loaded = mem.load_line(at, ret_line);
    if (loaded && claims_.sealer().intact(ret_line, at, 0)) return true;
    if (!loaded) ret_line = {{1}};  // whatever stands there, it is not blank
    const bool blank = std::count(ret_line.w, ret_line.w + 8, 0) == 8;  // never used
    if (blank || !patient || i == kTornRetries) return false;
    env_.relax(static_cast<u32>(i));
    mem.acquire(at, kLineBytes);
  }
}

// Whether a member stands in a slot whose line cannot be read at activation: then what it holds and
// pins is not known, and its report is awaited.
template <PoolEnv Env>
bool Owner<Env>::stands_unread(u32 slot, const Line &line) {
  if (serving_ || members_[slot].life != Life::kAbsent) return false;
  if (std::count(line.w, line.w + 8, 0) == 8) return false;
  if (!env_.try_lock(LockKind::kMember, slot)) return true;
  env_.unlock(LockKind::kMember, slot);
  return false;
}

// A line that does not verify, of a slot that nobody holds, is blank again: a process of a former
// life of the store stored its last one after the format, or the line went bad. With the slot's
// lock the owner is the line's only writer.
template <PoolEnv Env>
void Owner<Env>::mend_line(u32 slot, const Line &seen) {
  const auto is_blank = [](const Line &line) {
    return std::count(line.w, line.w + 8, 0) == 8;
  };
  if (is_blank(seen) || members_[slot].life == Life::kLive || slot == member_.slot()) return;
  if (!env_.try_lock(LockKind::kMember, slot)) return;
  const PoolOffset at = geo_.member_at(slot);
  auto &mem = env_.memory();
  Line line;
  mem.acquire(at, kLineBytes);
  const bool whole = mem.load_line(at, line) && claims_.sealer().intact(line, at, 0);
  if (!whole) {
    env_.mark("member_line_mended");
    mem.publish_line(at, Line{});
    mem.drain_strict(&at, 1);
  }
  env_.unlock(LockKind::kMember, slot);
}

template <PoolEnv Env>
void Owner<Env>::watch_members() {
  auto &mem = env_.memory();
  const u64 now = env_.now_ns();
  const bool mend =
      serving_ && now - lines_mended_ns_ >= u64{geo_.lease_ms} * kMs / kLockProbeShare;
  if (mend) lines_mended_ns_ = now;
  mem.acquire(geo_.member_at(0), u64{geo_.member_count()} * kLineBytes);
  for (u32 slot = 0; slot < members_.size(); ++slot) {
    Line line;
    MemberState &m = members_[slot];
    if (!load_member(slot, line)) {
      if (stands_unread(slot, line)) {
        media::MemberLine unknown{};  // incarnation 0, until the line can be read
        unknown.flags = media::kMemberHolds | media::kMemberPins;
        meet(slot, unknown);
        --stats_.members_joined;
      } else {
        check_death(slot, now);  // never used, or damaged
        if (mend) mend_line(slot, line);
      }
      continue;
    }
    const auto said = media::from_line<media::MemberLine>(line);
    if (said.state == static_cast<u8>(media::MemberState::kLeft)) {
      // Of the incarnation we know, or of a later one that joined and left between two looks:
      // either proves all earlier ones QUIET.
      if (m.life == Life::kLive) {
        if (m.incarnation != said.incarnation) env_.mark("slot_taken_again");
        ++stats_.members_left;
        bury(slot, true);
      }
      m.given_up = false;
      believe_quiet(slot);
      continue;
    }
    if (m.incarnation != said.incarnation) {
      const bool unread = m.life == Life::kLive && m.incarnation == 0;
      if (unread) {
        excuse(slot);
      } else if (m.life == Life::kLive) {
        env_.mark("slot_taken_again");
        bury(slot, true);  // a newer incarnation proves the earlier ones QUIET
      }
      believe_quiet(slot);
      meet(slot, said);
      if (unread) quarantine_strangers(slot, true);
    } else if (m.life == Life::kLive) {
      if (m.counter != said.counter) {
        m.counter = said.counter;
        m.seen_ns = env_.now_ns();  // after the load: this thread may have stopped before it
      } else {
        check_death(slot, now);
      }
    }
  }
}

template <PoolEnv Env>
void Owner<Env>::meet(u32 slot, const media::MemberLine &line) {
  MemberState fresh;
  fresh.life = Life::kLive;
  fresh.incarnation = line.incarnation;
  fresh.group = line.group;
  fresh.counter = line.counter;
  fresh.seen_ns = env_.now_ns();
  fresh.served_ns = env_.now_ns();
  fresh.ring_at = geo_.request_line(slot, 0);
  fresh.answers_at = geo_.response_line(slot, standby_, 0, 0);
  fresh.reported = line.flags == 0 || line.reported_epoch == epoch_;
  fresh.pins = !fresh.reported && (line.flags & media::kMemberPins);
  if (!fresh.reported) {
    ++reports_awaited_;
    if (fresh.pins) ++pins_awaited_;
  }
  members_[slot] = fresh;
  ++stats_.members_joined;
  // It may have tickets of those of its group who are dead: it has to hear of them as well.
  for (Quarantine &death : quarantine_) {
    const bool asked =
        std::find(death.awaited.begin(), death.awaited.end(), slot) != death.awaited.end();
    if (!asked && same_group(death, fresh)) death.awaited.push_back(slot);
    // While its line could not be read it was asked as if it were of every group.
    if (asked && !same_group(death, fresh)) std::erase(death.awaited, slot);
  }
  for (Aborts &a : aborts_) {
    if (fresh.incarnation != 0 && fresh.group != members_[a.slot].group) {
      std::erase(a.awaited, slot);
    }
  }
  if (!fresh.reported) tell(slot, media::kNoticeReport, 0);
}

// A quiet heartbeat: the lock says whether the process lives; else the lease decides (proto 6).
template <PoolEnv Env>
void Owner<Env>::check_death(u32 slot, u64 now) {
  MemberState &m = members_[slot];
  if (m.life != Life::kLive || slot == member_.slot()) return;
  const u64 quiet_for = now - m.seen_ns;
  const u64 lease = u64{geo_.lease_ms} * kMs;
  if (quiet_for < lease / kLockProbeShare) return;
  if (env_.try_lock(LockKind::kMember, slot)) {
    if (m.incarnation != 0) write_quiet(slot, m.incarnation);
    env_.unlock(LockKind::kMember, slot);
    env_.mark("member_quiet");
    ++stats_.members_dead;
    bury(slot, true);
  } else if (quiet_for > lease) {
    env_.mark("member_lease_over");
    ++stats_.members_dead;
    bury(slot, said_quiet(slot, m.incarnation));
  }
}

template <PoolEnv Env>
void Owner<Env>::write_quiet(u32 slot, u64 incarnation) {
  media::ReaperLine reaper{};
  reaper.incarnation = incarnation;
  reaper.state = static_cast<u8>(media::ReaperState::kQuiet);
  const PoolOffset at = geo_.reaper_at(slot);
  Line line = media::to_line(reaper);
  claims_.sealer().seal(line, at, 0);
  env_.memory().publish_line(at, line);
  env_.memory().drain_strict(&at, 1);
}

// Whether the slot's reaper line says that this incarnation will never store again: whoever got its
// lock, or fenced its host, wrote that (proto 6, 14).
template <PoolEnv Env>
bool Owner<Env>::said_quiet(u32 slot, u64 incarnation) {
  const PoolOffset at = geo_.reaper_at(slot);
  Line line;
  env_.memory().acquire(at, kLineBytes);
  if (incarnation == 0 || !env_.memory().load_line(at, line)) return false;
  if (!claims_.sealer().intact(line, at, 0)) return false;
  const auto reaper = media::from_line<media::ReaperLine>(line);
  return reaper.incarnation == incarnation &&
         reaper.state == static_cast<u8>(media::ReaperState::kQuiet);
}

// No report comes any more from whom the owner knew in this slot.
template <PoolEnv Env>
void Owner<Env>::excuse(u32 slot) {
  MemberState &m = members_[slot];
  if (m.reported) return;
  m.reported = true;
  --reports_awaited_;
  if (m.pins) --pins_awaited_;
}

// The verdict on an incarnation is final. Its blocks return by proof (QUIET) or after 2 L, tainted;
// blocks it reserved for its group also need the group's word.
template <PoolEnv Env>
void Owner<Env>::bury(u32 slot, bool quiet) {
  MemberState &m = members_[slot];
  m.life = Life::kDead;
  excuse(slot);
  std::erase_if(aborts_, [slot](const Aborts &a) { return a.slot == slot; });
  end_pins_of_dead(m);
  for (u32 i = 0; i < pendings_.size() && !env_.mutant(Mutant::kPendingOutlives);) {
    const u32 n = pendings_[i].entry;
    if (index_.entry(n).version != m.incarnation) {
      ++i;
      continue;
    }
    pendings_.erase(pendings_.begin() + i);
    clear_entry(n);
  }
  m.given_up = !quiet && m.incarnation != 0 && !env_.mutant(Mutant::kGivenUpRankForgotten);
  const u64 over = env_.now_ns() + 2ull * geo_.lease_ms * kMs;
  for (Quarantine &other : quarantine_) {
    if (std::erase(other.awaited, slot) == 0 || !m.given_up) continue;
    env_.mark("group_given_up");
    other.late.push_back(media::taint_mark(slot, m.incarnation));
    other.until_ns = std::max(other.until_ns, over);
  }
  for (Aborts &other : aborts_) {
    if (std::erase(other.awaited, slot) == 0) continue;
    if (m.given_up) other.late.push_back(media::taint_mark(slot, m.incarnation));
    other.since_ns = std::max(other.since_ns, m.given_up ? over : quiet_from_now());
  }
  if (m.incarnation == 0) return quarantine_strangers(slot, quiet);
  if (env_.mutant(Mutant::kReclaimBeforeQuiet))
    return quarantine(slot, m.incarnation, true, true, 0);
  quarantine(slot, m.incarnation, quiet, true, m.group);
  if (env_.mutant(Mutant::kQuarantineSkipped)) quarantine_.back().until_ns = 0;
}

// What the map gives to incarnations of the slot that are not there any more. Their group is in the
// slot's line if that is still theirs. Of others only the tag is known: it stands for them.
template <PoolEnv Env>
void Owner<Env>::quarantine_strangers(u32 slot, bool quiet) {
  const MemberState &now = members_[slot];
  media::MemberLine last{};
  Line line;
  env_.memory().acquire(geo_.member_at(slot), kLineBytes);
  if (now.life != Life::kLive && load_member(slot, line)) {
    last = media::from_line<media::MemberLine>(line);
  }
  std::vector<u16> tags;
  for (u32 x : space_.held_by(slot)) {
    const u16 tag = space_.at(x).record.tag;
    if (now.life == Life::kLive && tag == tag_of(now.incarnation)) continue;
    if (std::find(tags.begin(), tags.end(), tag) == tags.end()) tags.push_back(tag);
  }
  for (u16 tag : tags) {
    const bool known = last.incarnation != 0 && tag_of(last.incarnation) == tag;
    quarantine(slot, known ? last.incarnation : tag, quiet, known, last.group);
  }
}

// Where the group of the dead is not known every group is meant. A member that is not known yet may
// belong to any.
template <PoolEnv Env>
bool Owner<Env>::same_group(const Quarantine &death, const MemberState &peer) {
  if (death.group_known && death.group == 0) return false;
  if (peer.incarnation == 0) return true;
  return death.group_known ? peer.group == death.group : peer.group != 0;
}

// A process that is gone stores nothing more, but what it stored before is on the medium only delta
// later: the last of it may have been stored just before its lock was found free, before its slot
// was taken again, or before its host was switched off. By this host's clock, which may be fast.
template <PoolEnv Env>
u64 Owner<Env>::quiet_from_now() const {
  const u64 delta = env_.mutant(Mutant::kQuietAtOnce) ? 0 : u64{geo_.delta_us} * 1000;
  return env_.now_ns() + delta + delta / kClockShare;
}

template <PoolEnv Env>
void Owner<Env>::believe_quiet(u32 slot) {
  for (Quarantine &q : quarantine_) {
    if (q.slot == slot && q.quiet_at_ns == kNever) q.quiet_at_ns = quiet_from_now();
  }
}

// Awaits the word of the group.
template <PoolEnv Env>
void Owner<Env>::quarantine(u32 slot, u64 incarnation, bool quiet, bool group_known, u64 group) {
  const u64 over = env_.now_ns() + 2ull * geo_.lease_ms * kMs;
  const u64 quiet_at = quiet ? quiet_from_now() : kNever;
  Quarantine q{slot, incarnation, over, quiet_at, {}, group_known, group};
  for (u32 s = 0; s < members_.size(); ++s) {
    const MemberState &peer = members_[s];
    if (!same_group(q, peer)) continue;
    if (peer.life == Life::kLive) q.awaited.push_back(s);
    if (peer.life == Life::kDead && peer.given_up && s != slot) {
      q.late.push_back(media::taint_mark(s, peer.incarnation));
    }
  }
  quarantine_.push_back(std::move(q));
  repeat_deaths();
}

// Tells every member the oldest death that it has not acknowledged, and now and then tells it
// again.
template <PoolEnv Env>
void Owner<Env>::repeat_deaths() {
  const u64 now = env_.now_ns();
  const u64 patience = u64{geo_.lease_ms} * kMs / kLockProbeShare;
  for (u32 slot = 0; slot < members_.size(); ++slot) {
    const MemberState &m = members_[slot];
    const Owed owed = m.life == Life::kLive ? unacknowledged(slot) : Owed{};
    if (owed.incarnation == 0) continue;
    if (m.told != owed || now - m.told_ns >= patience) tell(slot, 0, 0);
  }
}

template <PoolEnv Env>
void Owner<Env>::run_quarantines() {
  if (quarantine_.empty() && aborts_.empty()) return;
  repeat_deaths();
  const u64 now = env_.now_ns();
  const bool look = now - reapers_read_ns_ >= u64{geo_.lease_ms} * kMs / kLockProbeShare;
  if (look) reapers_read_ns_ = now;
  for (std::size_t i = 0; i < quarantine_.size();) {
    Quarantine &q = quarantine_[i];
    if (look && q.quiet_at_ns == kNever && q.slot < members_.size() &&
        said_quiet(q.slot, q.incarnation)) {
      q.quiet_at_ns = quiet_from_now();
    }
    const bool quiet = now >= q.quiet_at_ns, by_proof = quiet && q.late.empty();
    if ((!by_proof && now < q.until_ns) || !q.awaited.empty()) {
      ++i;
      continue;
    }
    if (!quiet && q.slot < members_.size()) {
      q.late.push_back(media::taint_mark(q.slot, q.incarnation));
    }
    const u16 mark = q.late.size() == 1 ? q.late[0] : 0;
    const bool tainted = !by_proof && !env_.mutant(Mutant::kReclaimUntainted);
    if (tainted) note_taint(mark);
    reclaim(q.slot, q.incarnation, tainted, mark);
    quarantine_.erase(quarantine_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Incarnation 0: whoever of that slot the map names that is not the living one.
template <PoolEnv Env>
void Owner<Env>::reclaim(u32 slot, u64 incarnation, bool tainted, u16 mark) {
  std::vector<u32> mine;
  if (slot == media::kHolderFormer) {
    for (u32 x = 0; x < space_.count(); ++x) {
      if (space_.at(x).record.holder == media::kHolderFormer) mine.push_back(x);
    }
  } else {
    const MemberState &now = members_[slot];
    for (u32 x : space_.held_by(slot)) {
      const u16 tag = space_.at(x).record.tag;
      const bool living = now.life == Life::kLive && tag == tag_of(now.incarnation);
      if (incarnation == 0 ? !living : tag == tag_of(incarnation) && !living) mine.push_back(x);
    }
  }
  for (u32 x : mine) {
    release(x, tainted, mark);
    ++stats_.extents_reclaimed;
  }
}

// Stores of this member may come to the extents with its mark; whatever was known before of one
// with the same mark is void.
template <PoolEnv Env>
void Owner<Env>::note_taint(u16 mark) {
  if (mark == 0) return;
  std::erase_if(taints_, [mark](const Taint &t) { return t.mark == mark; });
  taints_.push_back({mark});
}

template <PoolEnv Env>
bool Owner<Env>::taint_over(u16 mark) const {
  return std::any_of(taints_.begin(), taints_.end(),
                     [mark](const Taint &t) { return t.mark == mark && t.over; });
}

// A taint goes over to another record of the extent, or of the run, unless it has ended.
template <PoolEnv Env>
void Owner<Env>::add_taint(media::MapRecord &to, const media::MapRecord &of) const {
  if (!(of.flags & media::kMapTainted) || taint_over(of.ns)) return;
  const bool first = !(to.flags & media::kMapTainted);
  to.ns = first || to.ns == of.ns ? of.ns : 0;
  to.flags |= media::kMapTainted;
}

// proto 6: a newer incarnation in the slot, LEFT, a free lock, or a fence of this incarnation.
template <PoolEnv Env>
bool Owner<Env>::tainter_quiet(u16 mark) {
  if (env_.mutant(Mutant::kTaintEndsUnproven)) return true;
  const u32 slot = media::taint_slot(mark);
  if (slot >= members_.size()) return false;
  Line line;
  env_.memory().acquire(geo_.member_at(slot), kLineBytes);
  if (load_member(slot, line)) {
    const auto said = media::from_line<media::MemberLine>(line);
    if (said.state == static_cast<u8>(media::MemberState::kLeft)) return true;
    if (media::taint_mark(slot, said.incarnation) != mark) return true;
    if (said_quiet(slot, said.incarnation)) return true;
  }
  if (members_[slot].life == Life::kLive || slot == member_.slot()) return false;
  if (!env_.try_lock(LockKind::kMember, slot)) return false;
  env_.unlock(LockKind::kMember, slot);
  return true;
}

// proto 8: a taint ends when no more stores can come from the member that was given up by time.
// What members hold stays tainted until it is the owner's again: stores may have come while they
// wrote. Blocks that were published tainted stay so.
template <PoolEnv Env>
void Owner<Env>::watch_taints() {
  const u64 now = env_.now_ns();
  const bool look = now - taints_watched_ns_ >= u64{geo_.lease_ms} * kMs / kLockProbeShare;
  if (look) taints_watched_ns_ = now;
  for (Taint &taint : taints_) {
    if (taint.over) continue;
    if (look && taint.quiet_at_ns == kNever && tainter_quiet(taint.mark)) {
      taint.quiet_at_ns = quiet_from_now();
    }
    if (now < taint.quiet_at_ns) continue;
    taint.over = true;
    env_.mark("taint_ends");
    for (u32 x = 0; x < space_.count(); ++x) {
      media::MapRecord record = space_.at(x).record;
      const bool its = (record.flags & media::kMapTainted) && record.ns == taint.mark;
      if (!its || record.holder != media::kHolderOwner) continue;
      record.flags &= static_cast<u8>(~media::kMapTainted);
      record.ns = 0;
      set_map(x, record);
    }
  }
}

// The oldest death that the member has not acknowledged, or the oldest aborts.
template <PoolEnv Env>
auto Owner<Env>::unacknowledged(u32 slot) const -> Owed {
  const auto awaits = [slot](const std::vector<u32> &awaited) {
    return std::find(awaited.begin(), awaited.end(), slot) != awaited.end();
  };
  for (const Quarantine &q : quarantine_) {
    if (awaits(q.awaited)) return {q.incarnation, q.slot, 0};
  }
  for (const Aborts &a : aborts_) {
    if (awaits(a.awaited)) return {a.incarnation, a.slot, a.number};
  }
  return {};
}

template <PoolEnv Env>
void Owner<Env>::acknowledged(u32 slot, const media::DeathAckBody &body) {
  for (Quarantine &q : quarantine_) {
    const bool its = q.slot == body.slot && q.incarnation == body.incarnation;
    if (its && body.aborted == 0) std::erase(q.awaited, slot);
  }
  for (Aborts &a : aborts_) {
    const bool its = a.slot == body.slot && a.incarnation == body.incarnation;
    if (its && a.number == body.aborted) std::erase(a.awaited, slot);
  }
}

// A member closed shards of blocks that it aborted: whether somebody of its group who began before
// still writes them. Who joins later finds them closed. kBusy: ask again; kStale: one that was
// given up by time may write on, after twice the lease; kOk: nobody.
template <PoolEnv Env>
media::MessageStatus Owner<Env>::aborts(u32 slot, const media::AbortBody &body,
                                        media::AbortAnswer &ret) {
  using media::MessageStatus;
  const MemberState &m = members_[slot];
  if (m.group == 0) return MessageStatus::kOk;
  const auto now = env_.now_ns();
  auto known = std::find_if(aborts_.begin(), aborts_.end(),
                            [slot](const Aborts &a) { return a.slot == slot; });
  if (known == aborts_.end() || known->number != body.number) {
    if (known != aborts_.end()) aborts_.erase(known);
    // A rank whose death was believed just now may have stores on their way for a moment.
    Aborts fresh{slot, m.incarnation, body.number, quiet_from_now(), {}};
    for (u32 s = 0; s < members_.size(); ++s) {
      const MemberState &peer = members_[s];
      if (s == slot || (peer.incarnation != 0 && peer.group != m.group)) continue;
      if (peer.life == Life::kLive) fresh.awaited.push_back(s);
      if (peer.life == Life::kDead && peer.given_up) {
        fresh.late.push_back(media::taint_mark(s, peer.incarnation));
        fresh.since_ns = now + 2ull * geo_.lease_ms * kMs;
      }
    }
    aborts_.push_back(std::move(fresh));
    known = aborts_.end() - 1;
    if (!known->awaited.empty()) repeat_deaths();
  }
  if (!known->awaited.empty() || now < known->since_ns) return MessageStatus::kBusy;
  const auto status = known->late.empty() ? MessageStatus::kOk : MessageStatus::kStale;
  ret.mark = known->late.size() == 1 ? known->late[0] : 0;
  aborts_.erase(known);
  return status;
}

// A member has one notice line: whatever it is told, the line goes on naming the oldest that it has
// not acknowledged.
template <PoolEnv Env>
void Owner<Env>::tell(u32 slot, u8 flags, u32 recall) {
  MemberState &m = members_[slot];
  media::NoticeLine notice{};
  notice.epoch = epoch_;
  notice.sequence = ++m.notice_sequence;
  notice.incarnation = m.incarnation;
  notice.recall_extents = recall;
  notice.flags = flags;
  if (resize_ && !resize_->ready) {
    notice.recall_from = std::max(1u, space_.leaving_from());
  }
  m.told = unacknowledged(slot);
  if (m.told.incarnation != 0) {
    notice.flags |= m.told.aborted == 0 ? media::kNoticePeerDead : media::kNoticeAborted;
    notice.dead_incarnation = m.told.incarnation;
    notice.dead_slot = static_cast<u16>(m.told.slot);
    notice.aborted = m.told.aborted;
    m.told_ns = env_.now_ns();
  }
  const PoolOffset at = geo_.notice_at(slot, standby_);
  Line line = media::to_line(notice);
  claims_.sealer().seal(line, at, 0);
  env_.memory().publish_line(at, line);
  env_.memory().drain();
}

// Asks one other member after the other for idle extents (RECALL).
template <PoolEnv Env>
void Owner<Env>::recall_from_others(u32 asking) {
  for (u32 i = 0; i < members_.size(); ++i) {
    recall_turn_ = (recall_turn_ + 1) % static_cast<u32>(members_.size());
    if (recall_turn_ == asking || space_.held_by(recall_turn_).empty()) continue;
    if (members_[recall_turn_].life != Life::kLive) continue;
    tell(recall_turn_, 0, 1);
    return;
  }
}

}  // namespace kvpool::pool
