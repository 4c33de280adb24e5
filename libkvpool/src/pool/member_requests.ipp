// SPDX-License-Identifier: Apache-2.0
// A member's requests (proto 8, 9, 11, 12). An answer is applied at once but counts only when
// accepted: publications stay in doubt until then, everything else waits for it.
#pragma once

namespace kvpool::pool {

inline constexpr u32 kGiveWayTries = 32;           // milliseconds for an owner to take extents back
inline constexpr u32 kAcceptBatch = 32;            // answered publications that share one accept
inline constexpr u64 kOwnerCheckNs = 2'000'000;    // how often a waiter looks at the claims
inline constexpr u64 kAnswerSliceNs = 50'000'000;  // between looks whether a call was given up
inline constexpr u64 kBindSliceNs = 20'000'000;    // for which one caller keeps others from a bind
inline constexpr u64 kGrantAheadNs = 2'000'000;    // who asked within this will ask again
inline constexpr u64 kBusyFirstNs = 50'000;        // waits between tries while graces run
inline constexpr u64 kBusyLongestNs = 2'000'000;

template <PoolEnv Env>
int Member<Env>::status_errno(media::MessageStatus status) {
  switch (status) {
    case media::MessageStatus::kOk: return 0;
    case media::MessageStatus::kExists: return -EEXIST;
    case media::MessageStatus::kFull: return -ENOSPC;
    case media::MessageStatus::kBusy: return -EBUSY;
    case media::MessageStatus::kStale: return -ESTALE;
    case media::MessageStatus::kAbsent: return -ENOENT;
    case media::MessageStatus::kRefused: return -EINVAL;
    case media::MessageStatus::kBypassed: return -EPERM;
    case media::MessageStatus::kQuota: return -EDQUOT;
  }
  return -EPROTO;
}

// Takes answers that have arrived. Mutex held. True when there were any.
template <PoolEnv Env>
bool Member<Env>::pump() {
  const u32 waiting = static_cast<u32>(outstanding_.size()) - answered_;
  if (!bound_ || waiting == 0) return false;
  const u32 count = std::min(waiting, kTakeAtOnce);
  const u32 lines = grants_under_way_ > 0 ? media::kResponseSlotLines : 1;
  const u32 taken = mailbox_.take(answers_, count, lines);
  if (taken == 0) return false;
  ++env_.memory().counters().message_pairs;
  bool accept = false;
  for (u32 i = 0; i < taken; ++i) {
    Request &r = outstanding_[answered_ + i];
    deliver(r, answers_[i]);
    const bool waits = r.type == media::MessageType::kDeathAck ||
                       r.type == media::MessageType::kAbort;
    if (r.answer || waits) accept = true;
  }
  answered_ += taken;
  // Publications alone can wait for a later accept; they stay in doubt meanwhile.
  if (accept || answered_ >= kAcceptBatch) accept_answered();
  return true;
}

template <PoolEnv Env>
void Member<Env>::deliver(Request &r, const Answer &answer) {
  r.answered = true;
  r.status = answer.status;
  if (r.type == media::MessageType::kGrant) r.granted = answer.as<media::GrantAnswer>();
  if (r.type == media::MessageType::kAbort) r.abort_mark = answer.as<media::AbortAnswer>().mark;
  if (r.type == media::MessageType::kPin) {
    const auto pinned = answer.as<media::PinAnswer>();
    r.pin.id = pinned.pin;
    r.pin.entry = pinned.entry;
    r.pin.version = pinned.version;
  }
  if (r.answer) *r.answer = answer;
  const auto got = answer.as<media::PublishAnswer>();
  if (r.type == media::MessageType::kPublish) r.version = got.version;
  if (!r.publication) return;
  r.publication->result = status_errno(answer.status);
  r.publication->version = got.version;
  r.publication->entry = static_cast<u32>(got.entry);
  if (r.done) *r.done = true;
  r.publication = nullptr;
  r.done = nullptr;
}

// proto 7: once per batch of answers, after the last was read. Mutex held. False: none counts.
template <PoolEnv Env>
bool Member<Env>::accept_answered() {
  if (answered_ == 0) return true;
  if (!env_.mutant(Mutant::kAcceptWithoutClaims)) {
    if (!claims_.read().accepts(mailbox_.epoch()) || !lease_.alive()) {
      env_.mark("answer_not_accepted");
      owner_lost_ = true;
      return false;
    }
  }
  for (; answered_ > 0; --answered_) {
    Request &r = outstanding_.front();
    settle(r);
    if (r.done) *r.done = true;
    grants_under_way_ -= r.type == media::MessageType::kGrant;
    outstanding_.pop_front();
  }
  return true;
}

// The answer is accepted: an extent is in hand, or a publication's doubt is over.
template <PoolEnv Env>
void Member<Env>::settle(Request &r) {
  if (r.type == media::MessageType::kGrant && r.status == media::MessageStatus::kOk) {
    HandExtent e;
    e.extent = r.granted.extent;
    e.size_class = r.grant.size_class;
    e.run_extents = r.grant.size_class == media::kClassRun ? r.grant.run_extents : 0;
    e.tainted = r.granted.flags & media::kGrantTainted;
    e.block_count = r.granted.block_count;
    std::memcpy(e.free_bits, r.granted.free_bits, sizeof e.free_bits);
    for (u64 bits : e.free_bits) e.free_count += static_cast<u32>(std::popcount(bits));
    hand_.add(e);
    granted_ns_ = env_.now_ns();
  }
  // Held from the accept on, so that no report comes between and leaves it out.
  if (r.type == media::MessageType::kPin && r.status == media::MessageStatus::kOk) {
    if (r.answer) {
      pins_.push_back(r.pin);
    } else {
      drop_pin(r.pin);  // whoever asked gave up meanwhile, or asked again
    }
  }
  if (r.type == media::MessageType::kAbort) settle_round(r.status, r.abort_mark);
  if (r.type != media::MessageType::kPublish) return;
  const bool published = r.status == media::MessageStatus::kOk;
  if (r.status == media::MessageStatus::kBusy) lose(r.block);
  hand_.leave_doubt(r.block, published, r.returns_extent);
}

// Waits for a flag that pump() sets. 0, -ETIMEDOUT, -ESTALE, -EAGAIN when the owner is lost.
template <PoolEnv Env>
int Member<Env>::wait_for(const bool &done, u64 deadline) {
  for (u32 i = 0;; ++i) {
    {
      std::lock_guard guard(mutex_);
      if (done) return 0;
      if (!pump() && answered_ == outstanding_.size() && answered_ > 0) accept_answered();
      if (done) return 0;
      if (owner_lost_) return -EAGAIN;
      const u64 now = env_.now_ns();
      if (now - owner_checked_ns_ > kOwnerCheckNs) {
        if (!lease_.alive() || check_owner() == -ESTALE) return -ESTALE;
      }
      if (now >= deadline) return -ETIMEDOUT;
    }
    env_.relax(i);
  }
}

// Others wait for the mutex while one caller binds: not until that one's deadline.
template <PoolEnv Env>
int Member<Env>::bind_slice(u64 deadline) {
  const u64 slice = options_.slice_ns != 0 ? options_.slice_ns : kBindSliceNs;
  return bind_owner(std::min(deadline, env_.now_ns() + slice));
}

// What is under way fills the rings: takes answers, and looks at the owner now and then. Mutex
// held. 0, or -ESTALE; there may be room now, or the owner may turn out to be lost.
template <PoolEnv Env>
int Member<Env>::make_room() {
  if (!pump() && answered_ > 0) accept_answered();
  if (env_.now_ns() - owner_checked_ns_ <= kOwnerCheckNs) return 0;
  return !lease_.alive() || check_owner() == -ESTALE ? -ESTALE : 0;
}

// proto 8: the line says what the request may make true before the request is visible; under the
// mutex, so that it is the line of the incarnation that asks.
template <PoolEnv Env>
void Member<Env>::announce(media::MessageType type) {
  if (type == media::MessageType::kGrant && !env_.mutant(Mutant::kHoldsNotAnnounced)) {
    lease_.set_flags(media::kMemberHolds);
  }
  if (type == media::MessageType::kPin && !env_.mutant(Mutant::kPinsNotAnnounced)) {
    lease_.set_flags(media::kMemberPins);
  }
}

// One request whose answer the caller needs, asked again of each new owner until the deadline.
template <PoolEnv Env>
int Member<Env>::call(media::MessageType type, const void *body, u32 bytes, u64 deadline,
                      Answer &ret_answer, const HeldPin *pin) {
  for (;;) {
    bool done = false;
    Answer answer;
    {
      std::unique_lock guard(mutex_);
      announce(type);
      if (int err = bind_slice(deadline)) {
        if (err != -EAGAIN || env_.now_ns() >= deadline) return err;
        guard.unlock();
        env_.sleep_ns(kMs / 2);
        continue;
      }
      if (!has_room(media::message_lines(bytes))) {
        if (int err = make_room()) return err;
        guard.unlock();
        if (env_.now_ns() >= deadline) return -ETIMEDOUT;
        env_.relax(0);
        continue;
      }
      mailbox_.post(type, body, bytes);
      Request &r = new_request(type);
      r.answer = &answer;
      r.done = &done;
      if (type == media::MessageType::kGrant) std::memcpy(&r.grant, body, sizeof r.grant);
      if (pin) r.pin = *pin;
      mailbox_.ring();
    }
    const int err = wait_for(done, deadline);
    std::lock_guard guard(mutex_);
    bool still_there = false;
    for (Request &r : outstanding_) {
      if (r.done != &done) continue;
      still_there = true;
      r.answer = nullptr;
      r.done = nullptr;
    }
    if (err == 0 && static_cast<u8>(answer.status) != 0) {
      ret_answer = answer;
      return 0;
    }
    if (err != 0 && err != -EAGAIN) return err;
    if (still_there && env_.now_ns() >= deadline) return -ETIMEDOUT;
  }
}

template <PoolEnv Env>
int Member<Env>::grant(u8 size_class, u32 run, u16 ns, u64 deadline, bool wait_while_busy) {
  media::GrantBody body{};
  body.ns = ns;
  body.size_class = size_class;
  body.want = 1;
  body.run_extents = run;
  for (u64 wait = kBusyFirstNs;; wait = std::min(wait * 2, kBusyLongestNs)) {
    Answer answer;
    if (int err = call(media::MessageType::kGrant, &body, sizeof body, deadline, answer)) {
      return err;
    }
    if (answer.status == media::MessageStatus::kOk) return 0;  // settle() took it in hand
    if (answer.status != media::MessageStatus::kBusy) return status_errno(answer.status);
    if (!wait_while_busy) return -EBUSY;
    if (env_.now_ns() + wait >= deadline) return -ETIMEDOUT;
    env_.sleep_ns(wait);
  }
}

// A member that keeps writing and has used up its extents will want the next block at once: the
// grant that it will wait for then is asked for now, and comes while it writes. Mutex held.
template <PoolEnv Env>
void Member<Env>::grant_ahead(u8 size_class) {
  if (size_class == media::kClassRun || !ahead_done_ || !bound_ || owner_lost_) return;
  if (hand_.has_free(size_class) || !has_room(1)) return;
  if (env_.now_ns() - granted_ns_ > kGrantAheadNs) return;
  env_.mark("grant_ahead");
  media::GrantBody body{};
  body.size_class = size_class;
  body.want = 1;
  announce(media::MessageType::kGrant);
  mailbox_.post(media::MessageType::kGrant, &body, sizeof body);
  Request &r = new_request(media::MessageType::kGrant);
  r.grant = body;
  r.done = &ahead_done_;
  ahead_done_ = false;
  ahead_class_ = size_class;
  mailbox_.ring();
}

// Never waits while it has something: what members hold while they wait can stop them all.
template <PoolEnv Env>
int Member<Env>::reserve_some(u64 block_bytes, u32 count, u64 deadline, Block *ret_blocks,
                              int *ret_why_fewer, u16 ns) {
  const int size_class = media::class_for(block_bytes, geo_.extent_bytes());
  if (size_class < 0) return size_class;
  const u8 cls = static_cast<u8>(size_class);
  const u32 run = cls == media::kClassRun
                      ? static_cast<u32>(media::run_extents(block_bytes, geo_.extent_bytes()))
                      : 0;
  u32 got = 0, patience = 0;
  bool waited = false;
  for (;;) {
    bool coming = false, back = false;
    {
      std::lock_guard guard(mutex_);
      if (!lease_.alive()) return -ESTALE;
      if (answered_ >= kAcceptBatch) accept_answered();
      while (got < count && hand_.take(cls, run, geo_.extent_bytes(), ret_blocks[got])) ++got;
      if (got == count) grant_ahead(cls);
      coming = !ahead_done_ && ahead_class_ == cls && !waited;
      back = !aborted_.empty();
    }
    if (got == count) return static_cast<int>(got);
    if (coming && wait_for(ahead_done_, deadline) == 0) {
      waited = true;  // others may have been quicker: the next extent is one's own
      continue;
    }
    const int err = grant(cls, run, ns, deadline, /*wait_while_busy=*/got == 0 && !back);
    if (err == 0) continue;
    if (got == 0 && err == -ENOSPC && give_way(patience, deadline)) continue;
    if (got == 0 && back && (err == -EBUSY || err == -ENOSPC)) {
      if (!await_aborts(deadline)) return err == -EBUSY ? -ETIMEDOUT : err;
      continue;
    }
    if (got == 0) return err;
    if (ret_why_fewer) *ret_why_fewer = err;
    return static_cast<int>(got);
  }
}

// proto 8: a store may be full of what its members have and do not use, and nobody asks the one for
// it that asks: extents of other sizes that stand idle go back, and the owner is asked again when
// it had time to take them. False: there were none. Mutex not held.
template <PoolEnv Env>
bool Member<Env>::give_way(u32 &patience, u64 deadline) {
  {
    std::lock_guard guard(mutex_);
    const std::size_t held = hand_.extents().size();
    return_idle(static_cast<u32>(held));
    if (hand_.extents().size() < held) {
      env_.mark("gives_way_to_itself");
      patience = kGiveWayTries;
    }
  }
  if (patience == 0 || env_.now_ns() + kMs >= deadline) return false;
  --patience;
  env_.sleep_ns(kMs);
  return true;
}

// A block that was aborted may come back soon, or has. Mutex not held. False: the deadline is over.
template <PoolEnv Env>
bool Member<Env>::await_aborts(u64 deadline) {
  if (env_.now_ns() + kBusyLongestNs / 2 >= deadline) return false;
  env_.sleep_ns(kBusyLongestNs / 2);
  std::lock_guard guard(mutex_);
  if (!bound_ || owner_lost_) return true;
  if (!pump() && answered_ > 0) accept_answered();
  settle_aborts();
  return true;
}

template <PoolEnv Env>
int Member<Env>::reserve(u64 block_bytes, u32 count, u64 deadline, Block *ret_blocks) {
  for (;;) {
    int why = 0;
    const int got = reserve_some(block_bytes, count, deadline, ret_blocks, &why);
    if (got < 0) return got;
    if (static_cast<u32>(got) == count) return 0;
    // Not enough at once: back into the hand, where a RECALL can take it, and another try.
    for (int i = 0; i < got; ++i) abort(ret_blocks[i]);
    if (why != -EBUSY) return why;
    if (env_.now_ns() >= deadline) return -ETIMEDOUT;
    env_.mark("reserve_again");
    {
      std::lock_guard guard(mutex_);
      if (bound_ && !owner_lost_) serve_notice();
    }
    env_.sleep_ns(kBusyFirstNs + env_.random() % kBusyLongestNs);
  }
}

template <PoolEnv Env>
void Member<Env>::abort(const Block &block) {
  std::lock_guard guard(mutex_);
  hand_.give_back(block);
}

// proto 14: the block's device cannot be read: no block of its extent is taken any more, and it
// goes back, which makes the owner look at its devices. Mutex held.
template <PoolEnv Env>
void Member<Env>::lose(const Block &block) {
  HandExtent *e = hand_.find(block.extent);
  if (!e) return;
  env_.mark("extent_lost");
  e->lost = true;
}

template <PoolEnv Env>
void Member<Env>::abort_lost(const Block &block) {
  std::lock_guard guard(mutex_);
  lose(block);
  hand_.give_back(block);
  return_leaving();
}

// Posts one publication. Mutex held, owner bound, room there.
template <PoolEnv Env>
void Member<Env>::post_publication(Publication &p) {
  Request &r = new_request(media::MessageType::kPublish);
  media::PublishBody &body = r.body;
  std::memcpy(body.key, p.key.w, sizeof body.key);
  body.check_hash = p.check_hash;
  body.parent = p.parent;
  body.length = media::pack_length(p.payload_lines, p.shards);
  const u64 locator = p.block.address / media::kLocatorUnit;
  body.locator_low = static_cast<u32>(locator);
  body.locator_high = static_cast<u8>(locator >> 32);
  body.ns = p.ns.id;
  body.ns_epoch = p.ns.epoch;
  for (u32 &touch : body.touch) touch = touched_count_ > 0 ? touched_[--touched_count_] : 0;
  r.returns_extent = hand_.enter_doubt(p.block);
  if (r.returns_extent) body.flags |= media::kPublishReturnsExtent;
  r.block = p.block;
  r.publication = &p;
  p.posted = true;
  mailbox_.post(r.type, &body, sizeof body);
  if (env_.mutant(Mutant::kReuseInDoubt)) {
    hand_.leave_doubt(p.block, false, false);
    r.block.extent = ~0u;
  }
}

// Many publications go out in halves of what fits: while the owner decides one half, the other is
// on its way. One by one, as room appears, each would cost it a wave and a drain.
template <PoolEnv Env>
u32 Member<Env>::post_some(Publication *publications, u32 count) {
  const u32 lines = media::message_lines(sizeof(media::PublishBody));
  const u32 half = std::max(1u, mailbox_.depth(lines) / 2);
  u32 room = std::min(mailbox_.room(lines), static_cast<u32>(outstanding_.room()));
  const bool idle = answered_ == outstanding_.size();  // nothing will come that makes more room
  if (room < std::min(count, half) && !idle) return 0;
  room = std::min(room, count);
  for (u32 i = 0; i < room; ++i) post_publication(publications[i]);
  return room;
}

template <PoolEnv Env>
int Member<Env>::publish(Publication *publications, u32 count, u64 deadline,
                         const std::atomic<bool> *cancelled) {
  const auto given_up = [&] { return cancelled && cancelled->load(std::memory_order_relaxed); };
  u32 posted = 0;
  bool done = false;
  int result = 0;
  for (u32 i = 0; i < count; ++i) {
    publications[i].result = -EINPROGRESS;
    publications[i].posted = false;
  }
  while (posted < count && result == 0) {
    std::unique_lock guard(mutex_);
    if (!lease_.alive() || given_up()) {
      result = given_up() ? -ECANCELED : -ESTALE;
      break;
    }
    result = bind_slice(deadline);
    if (result == -EAGAIN && env_.now_ns() < deadline) {
      result = 0;
      guard.unlock();
      env_.sleep_ns(kMs / 2);
      continue;
    }
    if (result != 0) break;
    const u32 sent = post_some(publications + posted, count - posted);
    posted += sent;
    if (posted == count) outstanding_.back().done = &done;
    if (sent > 0) mailbox_.ring();
    if (sent > 0 && answered_ > 0) accept_answered();  // while the owner is at it
    if (posted == count) break;
    if (!pump() && answered_ > 0) accept_answered();
    if (env_.now_ns() >= deadline) result = -ETIMEDOUT;
    guard.unlock();
    env_.relax(0);
  }
  while (result == 0 && !done) {
    // A slice for the answer of an owner that lives, even to who gave up already.
    const u64 slice = cancelled ? env_.now_ns() + kAnswerSliceNs : deadline;
    result = wait_for(done, std::min(slice, deadline));
    if (result == -ETIMEDOUT && env_.now_ns() < deadline) {
      result = given_up() ? -ECANCELED : 0;
      continue;
    }
    if (result != -EAGAIN) break;
    if (given_up()) {
      result = -ECANCELED;
      break;
    }
    {
      std::lock_guard guard(mutex_);
      result = bind_slice(deadline);  // the new owner resolves what is in doubt
    }
    if (result != -EAGAIN || env_.now_ns() >= deadline) continue;
    result = 0;
    env_.sleep_ns(kMs / 2);
  }
  std::lock_guard guard(mutex_);
  for (auto *queue : {&outstanding_, &doubts_}) {
    for (Request &r : *queue) {
      if (r.publication >= publications && r.publication < publications + count) {
        r.publication = nullptr;
        r.done = nullptr;
      }
    }
  }
  for (u32 i = posted; i < count; ++i) publications[i].result = result ? result : -EAGAIN;
  return result;
}

template <PoolEnv Env>
int Member<Env>::pending(NsRef ns, const Key &key, u32 duration_ms) {
  std::lock_guard guard(mutex_);
  if (!bound_) {
    if (int err = bind_owner(env_.now_ns())) return err;
  }
  media::PendingBody body{};
  std::memcpy(body.key, key.w, sizeof body.key);
  body.duration_ms = duration_ms;
  body.ns = ns.id;
  if (!has_room(1)) return -EAGAIN;
  mailbox_.post(media::MessageType::kPending, &body, sizeof body);
  new_request(media::MessageType::kPending);
  mailbox_.ring();
  pump();
  return 0;
}

template <PoolEnv Env>
void Member<Env>::flush_touches() {
  if (bound_ && !owner_lost_ && has_room(1) && touched_count_ > 0) {
    media::TouchBody body{};
    std::copy_n(touched_, touched_count_, body.entry);
    mailbox_.post(media::MessageType::kTouch, &body, sizeof body);
    new_request(media::MessageType::kTouch);
    mailbox_.ring();
  }
  touched_count_ = 0;
  pump();
}

template <PoolEnv Env>
int Member<Env>::remove(const Key &key, u64 version, u64 deadline, bool damaged) {
  media::RemoveBody body{};
  std::memcpy(body.key, key.w, sizeof body.key);
  body.version = version;
  Answer answer;
  const auto type = damaged ? media::MessageType::kRemoveDamaged : media::MessageType::kRemove;
  if (int err = call(type, &body, sizeof body, deadline, answer)) return err;
  return status_errno(answer.status);
}

template <PoolEnv Env>
int Member<Env>::pin(const Hit &hit, const Key &key, u32 ttl_ms, u64 deadline, Pin &ret_pin) {
  media::PinBody body{};
  std::memcpy(body.key, key.w, sizeof body.key);
  body.ttl_ms = ttl_ms;
  HeldPin held;
  held.handle = env_.random() | 1;  // pins of different owners never share a name
  held.expiry_ns = env_.now_ns() + u64{ttl_ms} * (kMs / 100) * 97;
  held.key = key;
  Answer answer;
  if (int err = call(media::MessageType::kPin, &body, sizeof body, deadline, answer, &held))
    return err;
  if (answer.status != media::MessageStatus::kOk) return status_errno(answer.status);
  std::lock_guard guard(mutex_);
  const auto now_held = std::find_if(pins_.begin(), pins_.end(),
                                     [&](const HeldPin &p) { return p.handle == held.handle; });
  if (now_held == pins_.end()) return -ESTALE;  // an owner said that its block is gone
  if (now_held->version != hit.version) {
    drop_pin(*now_held);  // the key names another block by now
    pins_.erase(now_held);
    flush_unpins();
    return -ESTALE;
  }
  ret_pin.id = held.handle;
  ret_pin.hit = hit;
  ret_pin.expiry_ns = held.expiry_ns;
  return 0;
}

template <PoolEnv Env>
void Member<Env>::unpin(const Pin &pin) {
  std::lock_guard guard(mutex_);
  for (const HeldPin &held : pins_) {
    if (held.handle == pin.id) drop_pin(held);
  }
  const auto named = [&](const HeldPin &held) { return held.handle == pin.id; };
  std::erase_if(pins_, named);
  std::erase_if(lost_pins_, named);
  lost_pin_count_.store(static_cast<u32>(lost_pins_.size()), std::memory_order_relaxed);
  flush_unpins();
}

template <PoolEnv Env>
bool Member<Env>::pin_lost(const Pin &pin) {
  if (lost_pin_count_.load(std::memory_order_relaxed) == 0) return false;
  std::lock_guard guard(mutex_);
  return std::any_of(lost_pins_.begin(), lost_pins_.end(),
                     [&](const HeldPin &held) { return held.handle == pin.id; });
}

// The owner that this member speaks to is to hear of it. Another owner hears of the pins that are
// held, and of no others, so what waits here is forgotten with each report. Mutex held.
template <PoolEnv Env>
void Member<Env>::drop_pin(const HeldPin &pin) {
  unpins_.push_back({pin.id, pin.entry});
}

template <PoolEnv Env>
void Member<Env>::flush_unpins() {
  if (unpins_.empty()) return;
  while (!unpins_.empty() && bound_ && !owner_lost_ && has_room(1)) {
    mailbox_.post(media::MessageType::kUnpin, &unpins_.back(), sizeof unpins_.back());
    new_request(media::MessageType::kUnpin);
    unpins_.pop_back();
    if (unpins_.empty() || !has_room(1)) mailbox_.ring();
  }
}

template <PoolEnv Env>
int Member<Env>::ns_open(const media::NsOpenBody &body, u64 deadline,
                         media::NsAnswer &ret_answer) {
  Answer answer;
  if (int err = call(media::MessageType::kNsOpen, &body, sizeof body, deadline, answer)) return err;
  if (answer.status != media::MessageStatus::kOk) return status_errno(answer.status);
  ret_answer = answer.as<media::NsAnswer>();
  return 0;
}

template <PoolEnv Env>
int Member<Env>::ns_control(const media::NsControlBody &body, u64 deadline,
                            media::NsAnswer &ret_answer) {
  Answer answer;
  if (int err = call(media::MessageType::kNsControl, &body, sizeof body, deadline, answer)) {
    return err;
  }
  if (answer.status != media::MessageStatus::kOk) return status_errno(answer.status);
  ret_answer = answer.as<media::NsAnswer>();
  return 0;
}

// Gives one extent of the hand back. Mutex held; nothing of it reserved or in doubt.
template <PoolEnv Env>
int Member<Env>::give_back_extent(u32 extent, u32 flags) {
  if (!bound_ || owner_lost_ || !has_room(1)) return -EAGAIN;
  if (const HandExtent *e = hand_.find(extent); e && e->stray) {
    flags |= media::kReturnTainted | u32{e->stray_mark} << media::kReturnMarkShift;
  }
  media::ReturnBody body{extent, flags};
  mailbox_.post(media::MessageType::kReturn, &body, sizeof body);
  new_request(media::MessageType::kReturn);
  mailbox_.ring();
  hand_.remove(extent);  // whatever the answer: it is not used again
  return 0;
}

// Of those that would stay; the others go by return_leaving(), which says why. Mutex held.
template <PoolEnv Env>
void Member<Env>::return_idle(u32 at_most) {
  std::vector<u32> idle;
  for (const HandExtent &e : hand_.extents()) {
    if (e.idle() && e.stays() && idle.size() < at_most) idle.push_back(e.extent);
  }
  for (u32 extent : idle) give_back_extent(extent, 0);
}

// What was recalled and has become idle. Mutex held.
template <PoolEnv Env>
void Member<Env>::return_leaving() {
  for (u32 i = 0; i < hand_.extents().size();) {
    const HandExtent &e = hand_.extents()[i];
    if (!(e.leaving || e.lost || e.stray) || !e.idle() || e.returning) {
      ++i;
      continue;
    }
    if (give_back_extent(e.extent, e.lost ? media::kReturnUnreadable : 0) != 0) ++i;
  }
}

template <PoolEnv Env>
int Member<Env>::resize(u64 pool_bytes, u32 extents, u64 deadline,
                        media::ResizeAnswer &ret_answer) {
  const media::ResizeBody body{pool_bytes, extents, 0};
  Answer answer;
  if (int err = call(media::MessageType::kResize, &body, sizeof body, deadline, answer)) return err;
  ret_answer = answer.as<media::ResizeAnswer>();
  return status_errno(answer.status);
}

// `count` empty requests, at most `depth` on the way.
template <PoolEnv Env>
int Member<Env>::ping(u32 count, u32 depth, bool accept, u64 deadline) {
  std::lock_guard guard(mutex_);
  if (int err = bind_owner(deadline)) return err;
  if (!outstanding_.empty()) {
    while (pump()) {
    }
    if (!accept_answered() || !outstanding_.empty()) return -EAGAIN;
  }
  depth = std::min<u32>(depth, geo_.response_slots - 1u);
  const u32 half = std::max(1u, depth / 2);
  Answer answers[kTakeAtOnce];
  u32 posted = 0, answered = 0;
  for (u32 spins = 0; answered < count;) {
    if (posted < count && posted - answered + half <= depth) {
      for (u32 i = 0; i < half && posted < count; ++i, ++posted) {
        mailbox_.post(media::MessageType::kNop, nullptr, 0);
      }
      mailbox_.ring();
    }
    const u32 taken = mailbox_.take(answers, std::min(half, kTakeAtOnce), 1);
    answered += taken;
    if (taken > 0) {
      ++env_.memory().counters().message_pairs;
      if (accept && !claims_.read().accepts(mailbox_.epoch())) return -EAGAIN;
      spins = 0;
    } else {
      env_.relax(spins++);
      if (spins % 1024 == 0 && env_.now_ns() >= deadline) return -ETIMEDOUT;
    }
  }
  return 0;
}

}  // namespace kvpool::pool
