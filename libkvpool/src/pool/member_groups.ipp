// SPDX-License-Identifier: Apache-2.0
// What members of a group owe each other (proto 8): whoever writes shards of another one's blocks
// is counted, says so when that one died or aborted some, and begins with none that is closed.
#pragma once

namespace kvpool::pool {

// Of one that was gone when the owner came, the tag may be all that is known (proto 8).
inline bool is_reserver(u64 incarnation, u64 said) {
  return said == incarnation || said == static_cast<u16>(incarnation | 1);
}

template <PoolEnv Env>
bool Member<Env>::knows_dead(u64 reserver_incarnation) const {
  return std::any_of(dead_peers_.begin(), dead_peers_.end(),
                     [&](u64 dead) { return is_reserver(reserver_incarnation, dead); });
}

// Whether a thread of this process that began before `serial` still writes a shard of a block of
// this member. Mutex held.
template <PoolEnv Env>
bool Member<Env>::writes_for(u64 reserver, u64 serial) const {
  return std::any_of(writers_.begin(), writers_.end(), [&](const ShardWriter &w) {
    return w.serial < serial && is_reserver(w.reserver, reserver);
  });
}

// RECALL, and what the group is to acknowledge (proto 8, 12).
template <PoolEnv Env>
void Member<Env>::serve_notice() {
  const PoolOffset at = geo_.notice_at(slot_, session()->standby);
  auto &mem = env_.memory();
  mem.acquire(at, kLineBytes);
  Line line;
  if (!mem.load_line(at, line) || !claims_.sealer().intact(line, at, 0)) return;
  const auto notice = media::from_line<media::NoticeLine>(line);
  if (notice.epoch != mailbox_.epoch() || notice.incarnation != lease_.incarnation()) return;
  if (notice.sequence != acknowledged_sequence_ && acknowledge(notice)) {
    acknowledged_sequence_ = notice.sequence;
  }
  if (notice.sequence == notice_sequence_) return;
  notice_sequence_ = notice.sequence;
  for (HandExtent &e : hand_.extents()) {
    e.leaving = notice.recall_from != 0 &&
                e.extent + std::max(1u, e.run_extents) > notice.recall_from;
    if (e.leaving) env_.mark("recall_by_number");
  }
  if (notice.recall_extents > 0) {
    env_.mark("recall");
    return_idle(notice.recall_extents);
  }
}

// False: at a later tick, when those that write for the member that the notice names are done; no
// others are waited for, and no new ones come: nobody begins for the dead, nor with what is closed.
template <PoolEnv Env>
bool Member<Env>::acknowledge(const media::NoticeLine &notice) {
  const bool dead = notice.flags & media::kNoticePeerDead;
  if (!dead && !(notice.flags & media::kNoticeAborted)) return true;
  const u64 who = notice.dead_incarnation;
  if (dead) {
    if (std::find(dead_peers_.begin(), dead_peers_.end(), who) == dead_peers_.end()) {
      dead_peers_.push_back(who);
    }
  } else if (aborts_noticed_.incarnation != who || aborts_noticed_.number != notice.aborted) {
    aborts_noticed_ = {who, notice.aborted, next_writer_};
  }
  const u64 before = dead ? ~u64{0} : aborts_noticed_.before;
  if (writes_for(who, before)) {
    env_.mark("acknowledged_later");
    return false;
  }
  media::DeathAckBody body{};
  body.incarnation = who;
  body.slot = notice.dead_slot;
  body.aborted = dead ? 0 : notice.aborted;
  if (!has_room(1)) return false;
  mailbox_.post(media::MessageType::kDeathAck, &body, sizeof body);
  new_request(media::MessageType::kDeathAck);
  mailbox_.ring();
  return true;
}

template <PoolEnv Env>
int Member<Env>::begin_shard_write(u64 reserver_incarnation, u64 deadline, u64 &ret_writer) {
  const auto met = [&] {
    return reserver_incarnation == lease_.incarnation() ||
           std::find(met_reservers_.begin(), met_reservers_.end(), reserver_incarnation) !=
               met_reservers_.end();
  };
  const auto begin = [&] {
    ret_writer = next_writer_++;
    writers_.push_back({reserver_incarnation, ret_writer});
    return 0;
  };
  {
    std::lock_guard guard(mutex_);
    if (knows_dead(reserver_incarnation)) return -ENOTCONN;
    if (met()) return begin();
  }
  if (int err = meet_reserver(reserver_incarnation, deadline)) return err;
  std::lock_guard guard(mutex_);
  if (knows_dead(reserver_incarnation)) return -ENOTCONN;
  if (!met()) met_reservers_.push_back(reserver_incarnation);
  return begin();
}

// proto 8: the blocks of a dead reserver wait for the word of those members that the owner knew at
// its death, and of no others. So nobody writes for a reserver that may have been given up before
// the owner knew this incarnation: the owner has answered it, and the reserver's heartbeat moved
// twice since. One that was given up moves once at most, by a renewal that comes too late.
template <PoolEnv Env>
int Member<Env>::meet_reserver(u64 reserver_incarnation, u64 deadline) {
  const u64 patience = env_.now_ns() + 2ull * geo_.lease_ms * kMs;
  Answer answer;
  const u64 asked_until = std::min(patience, deadline);
  if (int err = call(media::MessageType::kNop, nullptr, 0, asked_until, answer)) return err;
  auto &mem = env_.memory();
  const auto look = [&](u32 slot, media::MemberLine &ret_line) {
    Line line;
    const PoolOffset at = geo_.member_at(slot);
    if (!mem.load_line(at, line) || !claims_.sealer().intact(line, at, 0)) return false;
    ret_line = media::from_line<media::MemberLine>(line);
    return true;
  };
  media::MemberLine line{};
  mem.acquire(geo_.member_at(0), u64{geo_.member_count()} * kLineBytes);
  u32 slot = 0;
  while (slot < geo_.member_count() &&
         !(look(slot, line) && line.incarnation == reserver_incarnation)) {
    ++slot;
  }
  if (slot == geo_.member_count()) return -ENOTCONN;
  u64 counter = line.counter;
  for (u32 moves = 0; moves < 2;) {
    if (!lease_.alive()) return -ESTALE;
    if (env_.now_ns() >= patience) return -ENOTCONN;
    if (env_.now_ns() >= deadline) return -ETIMEDOUT;
    env_.sleep_ns(kMs);
    mem.acquire(geo_.member_at(slot), kLineBytes);
    if (!look(slot, line)) continue;  // caught in the middle of a store
    const bool there = line.incarnation == reserver_incarnation &&
                       line.state == static_cast<u8>(media::MemberState::kJoined);
    if (!there) return -ENOTCONN;
    if (line.counter == counter) continue;
    counter = line.counter;
    ++moves;
  }
  return 0;
}

template <PoolEnv Env>
void Member<Env>::end_shard_write(u64 writer) {
  std::lock_guard guard(mutex_);
  std::erase_if(writers_, [writer](const ShardWriter &w) { return w.serial == writer; });
  settle_aborts();
}

// ---- shards that are open, and blocks that are aborted ------------------------------------------

// The first check line of each shard says whether it may be begun. Between reserve and the first
// store to it the reserver is its writer; drained strictly before anybody has a ticket.
template <PoolEnv Env>
void Member<Env>::open_shard(PoolOffset at, u64 nonce, u32 shard) {
  media::CheckLine line{};
  line.incarnation = lease_.incarnation();
  line.nonce = nonce;
  line.segment = media::kSegmentOpen;
  line.shard = static_cast<u16>(shard);
  Line raw = media::line_of(line);
  claims_.sealer().seal(raw, at, 0);
  env_.memory().publish_line(at, raw);
}

// One that is being written may store its check over this, or have it overwritten: nobody counts
// either. Drained strictly before abort_shared().
// False, and nothing is stored, when the lease of whoever reserved the block is over: by then it
// may be another's, like all that a member held (proto 6).
template <PoolEnv Env>
bool Member<Env>::close_shard(PoolOffset at, u64 reserver) {
  if (!lease_.alive() || lease_.incarnation() != reserver) return false;
  env_.memory().publish_line(at, Line{});
  return true;
}

// Asked by a writer that has begun (begin_shard_write), of a line acquired since: whoever aborts
// the block closes its shards first and then waits for those that had begun.
template <PoolEnv Env>
bool Member<Env>::shard_is_open(PoolOffset at, u64 nonce) {
  Line raw;
  if (env_.mutant(Mutant::kClosedShardWritten)) return true;
  if (!env_.memory().load_line(at, raw) || !claims_.sealer().intact(raw, at, 0)) return false;
  const auto line = media::from_line<media::CheckLine>(raw);
  return line.nonce == nonce && line.segment == media::kSegmentOpen;
}

// proto 8: the block is nobody's until those who write shards of it are done: threads of this
// process, and then, by the owner, the other members of the group.
template <PoolEnv Env>
void Member<Env>::abort_shared(const Block &block, u64 reserver) {
  std::lock_guard guard(mutex_);
  if (!lease_.alive() || lease_.incarnation() != reserver) return;
  aborted_.push_back({block, next_writer_, false});
  settle_aborts();
}

// Mutex held.
template <PoolEnv Env>
void Member<Env>::settle_aborts() {
  if (aborted_.empty()) return;
  const auto written = [&](const Aborted &a) { return writes_for(lease_.incarnation(), a.before); };
  if (options_.group == 0 || env_.mutant(Mutant::kAbortAtOnce)) {
    std::erase_if(aborted_, [&](const Aborted &a) {
      if (written(a) && !env_.mutant(Mutant::kAbortAtOnce)) return false;
      hand_.give_back(a.block);
      return true;
    });
    return;
  }
  if (!abort_round_open_) {
    for (Aborted &a : aborted_) {
      a.asked = !written(a);
      abort_round_open_ |= a.asked;
    }
    if (!abort_round_open_) return;
    if (++abort_round_ == 0) ++abort_round_;
  }
  if (abort_under_way_ || !bound_ || owner_lost_ || !lease_.alive() || !has_room(1)) return;
  const media::AbortBody body{abort_round_};
  mailbox_.post(media::MessageType::kAbort, &body, sizeof body);
  new_request(media::MessageType::kAbort);
  abort_under_way_ = true;
  mailbox_.ring();
}

// The answer to the round that is open is accepted; while it is kBusy it is asked again.
template <PoolEnv Env>
void Member<Env>::settle_round(media::MessageStatus status, u16 mark) {
  abort_under_way_ = false;
  const bool tainted = status == media::MessageStatus::kStale;
  if (status != media::MessageStatus::kOk && !tainted) return;
  if (tainted) env_.mark("aborted_after_a_lease");
  if (!tainted) env_.mark("aborted_block_back");
  abort_round_open_ = false;
  std::erase_if(aborted_, [&](const Aborted &a) {
    if (!a.asked) return false;
    HandExtent *e = hand_.find(a.block.extent);
    if (e && tainted) {
      e->stray_mark = e->stray && e->stray_mark != mark ? 0 : mark;
      e->stray = true;
    }
    hand_.give_back(a.block);
    return true;
  });
}

}  // namespace kvpool::pool
