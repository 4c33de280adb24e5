// SPDX-License-Identifier: Apache-2.0
// The owner's serving loop (proto 12): rings in waves, decisions drained once a batch, then
// answers.
#pragma once

namespace kvpool::pool {

inline constexpr u32 kWindowMax = 128;          // lines of one ring read in one wave
inline constexpr u32 kWindowMessages = 64;  // and messages: the member's next ones come meanwhile
inline constexpr u32 kWindowProbe = 2;          // while the ring is empty: one publication
inline constexpr u32 kAheadWindow = 16;         // one this large is flushed ahead of its wave
inline constexpr u64 kHotNs = 5'000'000;  // a member that asked within this is polled each wave
inline constexpr u32 kDoorbellEvery = 16;       // waves between looks at the doorbells
inline constexpr u32 kAllRingsEvery = 1024;     // waves between looks at every ring
inline constexpr u64 kAllRingsNs = 20'000'000;  // and at least this often: doorbells are hints
inline constexpr u64 kQuietNs = 50'000;         // after this without a request every wave has bells
inline constexpr u64 kChoresNs = 500'000;
inline constexpr u64 kWatchNs = 20'000'000;     // a member that joins is met within this

template <PoolEnv Env>
int Owner<Env>::step() {
  if (!serving_) return -ESTALE;
  const u64 now = env_.now_ns();
  const u64 renew_every = std::min(u64{geo_.lease_ms} * kMs / 50, kBeatNs);
  if (outbid() || now - last_renew_ns_ >= renew_every) {
    last_renew_ns_ = now;
    const bool trust = env_.mutant(Mutant::kOwnerIgnoresClaims);
    const bool renewed = member_.renew();
    const ClaimView view = renewed ? claims_.read() : ClaimView{};
    if (!renewed || outbid() || (!trust && !view.accepts(epoch_))) {
      if (renewed && awaits_successor(view, now)) return 0;
      env_.mark("owner_steps_down");
      serving_ = false;
      return -ESTALE;
    }
  }
  if (now - last_watch_ns_ >= std::min(renew_every, kWatchNs)) {
    last_watch_ns_ = now;
    watch_members();
  }
  if (now - last_chores_ns_ >= kChoresNs) {
    forget_grants(now - last_chores_ns_);
    last_chores_ns_ = now;
    if (!watch_devices()) {
      serving_ = false;
      return -EIO;
    }
    if (area_lost()) return 0;  // nothing is decided before it is moved
    run_graces();
    end_pendings();
    run_quarantines();
    watch_taints();
    keep_free_ahead();
    empty_cleared();
    empty_leaving();
    finish_batch();
  }
  const bool all = ++step_count_ % kAllRingsEvery == 0 || now - last_all_ns_ >= kAllRingsNs;
  if (all) last_all_ns_ = now;
  const u32 served = poll_members(all);
  if (served > 0) last_request_ns_ = env_.now_ns();
  ++stats_.polls;
  return static_cast<int>(served);
}

template <PoolEnv Env>
u64 Owner<Env>::idle_ns() const {
  return env_.now_ns() - last_request_ns_;
}

// One wave over the ring heads of members that are hot, and now and then of all; doorbells say who
// became hot. Reading the doorbell first and then the ring would cost a serial trip.
template <PoolEnv Env>
u32 Owner<Env>::poll_members(bool all) {
  auto &mem = env_.memory();
  const u64 now = env_.now_ns();
  const bool bells = step_count_ % kDoorbellEvery == 0 || now - last_request_ns_ > kQuietNs;
  u32 polled[media::kMaxMembers];
  u32 count = 0;
  poll_lines_.clear();
  for (u32 slot = 0; slot < members_.size(); ++slot) {
    MemberState &m = members_[slot];
    if (m.life != Life::kLive) continue;
    if (!all && !m.due && now - m.served_ns > kHotNs) continue;
    polled[count++] = slot;
    if (m.ahead) continue;
    for (u32 i = 0; i < m.window; ++i) poll_lines_.push_back(ring_line(m, i));
  }
  if (bells) {
    for (u32 host = 0; host < geo_.host_count; ++host) {
      poll_lines_.push_back(geo_.doorbell_at(host));
    }
  }
  if (count == 0 && !bells) return 0;
  if (!poll_lines_.empty()) {
    mem.begin_wave();
    flush_groups(mem, poll_lines_.data(), poll_lines_.size(), 1);
    mem.end_poll();
  }
  u32 served = 0;
  for (u32 p = 0; p < count; ++p) {
    const u32 slot = polled[p];
    MemberState &m = members_[slot];
    Line lines[kWindowMax];
    if (!std::exchange(m.ahead, false)) {
      for (u32 i = 0; i < m.window; ++i) mem.prefetch(ring_line(m, i));
    }
    u32 loaded = 0;
    while (loaded < m.window && mem.load_line(ring_line(m, loaded), lines[loaded])) ++loaded;
    const u32 got = serve_member(slot, lines, loaded);
    served += got;
    m.due = got > 0;  // what a doorbell announced is looked for until the ring is empty
    if (got > 0) m.served_ns = now;
  }
  if (bells) {
    for (u32 slot = 0; slot < members_.size(); ++slot) {
      if (members_[slot].life != Life::kLive) continue;
      const PoolOffset at = geo_.doorbell_at(geo_.host_of(slot)) +
                            (slot % geo_.members_per_host) * sizeof(u32) / 8 * 8;
      u64 word = 0;
      if (!mem.load_word(at, word)) continue;
      const u32 bell = static_cast<u32>(slot % geo_.members_per_host % 2 ? word >> 32 : word);
      if (bell == doorbell_seen_[slot]) continue;
      doorbell_seen_[slot] = bell;
      members_[slot].due = true;  // its ring is read in the next wave, however late that is
    }
  }
  if (pen_.dirty()) flush_ahead(polled, count);
  if (served > 0 || pen_.dirty()) finish_batch();
  return served;
}

// Rings that are busy will be read again at once. Their next lines are flushed here, where the
// fences of the batch's drain stand between flush and load: the next wave needs no fences of its
// own, and its lines come while the drain is waited for.
template <PoolEnv Env>
void Owner<Env>::flush_ahead(const u32 *slots, u32 count) {
  for (u32 p = 0; p < count; ++p) {
    MemberState &m = members_[slots[p]];
    if (m.life != Life::kLive || m.window < kAheadWindow) continue;
    m.ahead = true;
    for (u32 i = 0; i < m.window; ++i) ahead_lines_.push_back(ring_line(m, i));
  }
  flush_groups(env_.memory(), ahead_lines_.data(), ahead_lines_.size(), 1);
}

static_assert(offsetof(media::PublishBody, key) == 0);

// Publications are random accesses to the mirror. What those further on in the window will touch is
// brought nearer while this one is decided: first their tags, then, as these say, their lines.
template <PoolEnv Env>
class Owner<Env>::Lookahead {
public:
  Lookahead(const Owner &owner, const Line *lines, u32 count)
      : owner_(owner), lines_(lines), count_(count) {}

  void reach(u32 at) {
    for (const u32 end = std::min(count_, at + kTagLines); tags_ < end; ++tags_) {
      u64 key[4];
      if (key_of(tags_, key)) owner_.index_.prefetch_tags(key);
    }
    for (const u32 end = std::min(count_, at + kEntryLines); entries_ < end; ++entries_) {
      u64 key[4];
      if (!key_of(entries_, key)) continue;
      const u32 number = owner_.index_.prefetch_line(key);
      owner_.env_.memory().prefetch(owner_.geo_.entry_line(owner_.pen_.area(), number));
    }
  }

private:
  static constexpr u32 kTagLines = 28, kEntryLines = 16;  // of the ring; a publication has two

  bool key_of(u32 at, u64 *ret_key) const {
    const Line &line = lines_[at];
    const u8 type = media::message_head(line).type;
    if (type != static_cast<u8>(media::MessageType::kPublish) || media::message_index(line) != 0)
      return false;
    std::memcpy(ret_key, media::message_body(line), 4 * sizeof(u64));
    return true;
  }

  const Owner &owner_;
  const Line *lines_;
  u32 count_, tags_ = 0, entries_ = 0;
};

// Serves whole messages that stand at the head of the ring. Returns how many.
template <PoolEnv Env>
u32 Owner<Env>::serve_member(u32 slot, const Line *lines, u32 count) {
  MemberState &m = members_[slot];
  u32 at = 0, served = 0;
  Lookahead ahead(*this, lines, count);
  while (at < count) {
    ahead.reach(at);
    const media::MessageHead head = media::message_head(lines[at]);
    alignas(u64) unsigned char body[media::kMessageLinesMax * media::kMessageBody] = {};
    if (head.epoch != epoch_ && !env_.mutant(Mutant::kIgnoreEpochInRequest)) break;
    if (head.incarnation != m.incarnation && !env_.mutant(Mutant::kIgnoreIncarnation)) break;
    if (head.sequence != m.next_sequence || media::message_index(lines[at]) != 0) break;
    if (head.lines == 0 || head.lines > media::kMessageLinesMax || at + head.lines > count) break;
    bool whole = true;
    for (u32 i = 0; i < head.lines && whole; ++i) {
      const Line &line = lines[at + i];
      const media::MessageHead part = media::message_head(line);
      whole = part.sequence == head.sequence && media::message_index(line) == i &&
              part.epoch == head.epoch && part.incarnation == head.incarnation &&
              (env_.mutant(Mutant::kTornRequestAccepted) ||
               claims_.sealer().intact(line, ring_line(m, i), 0));
      std::memcpy(body + i * media::kMessageBody, media::message_body(line), media::kMessageBody);
    }
    if (!whole) break;
    handle(slot, head, body);
    m.ring_place += head.lines;
    if (m.ring_place >= geo_.request_lines) m.ring_place -= geo_.request_lines;
    ++m.next_sequence;
    at += head.lines;
    ++served;
    if (m.life != Life::kLive) break;
  }
  // Lines are dear: while nothing comes only the head is looked at; after something came, all that
  // may stand behind it.
  m.window = kWindowProbe;
  if (served > 0) {
    const u32 longest = std::min(kWindowMax, at * kWindowMessages / served);
    m.window = std::min(longest, std::max(2 * at, kWindowProbe));
  }
  m.window = std::min<u32>(m.window, geo_.request_lines);
  stats_.requests += served;
  return served;
}

template <PoolEnv Env>
bool Owner<Env>::may_serve(const MemberState &m, media::MessageType type) const {
  if (m.reported || env_.mutant(Mutant::kServeBeforeReport)) return true;
  switch (type) {
    case media::MessageType::kNop:
    case media::MessageType::kReportBegin:
    case media::MessageType::kReportExtent:
    case media::MessageType::kReportDoubt:
    case media::MessageType::kReportPin:
    case media::MessageType::kReportEnd: return true;
    default: return false;
  }
}

// A request's body where it stands: bytes that were copied into an array of unsigned char are the
// objects they represent.
template <class T>
const T &body_as(const unsigned char *body) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(u64));
  static_assert(sizeof(T) <= media::kMessageLinesMax * media::kMessageBody);
  return *std::launder(reinterpret_cast<const T *>(body));
}

template <PoolEnv Env>
void Owner<Env>::handle(u32 slot, const media::MessageHead &head, const unsigned char *body) {
  using media::MessageStatus;
  using media::MessageType;
  const auto type = static_cast<MessageType>(head.type);
  MemberState &m = members_[slot];
  if (!may_serve(m, type)) return answer(slot, type, MessageStatus::kBusy, nullptr, 0);
  switch (type) {
    case MessageType::kPublish:
    case MessageType::kReportDoubt: {
      media::PublishAnswer out{};
      const auto &in = body_as<media::PublishBody>(body);
      const auto status = publish(slot, in, type == MessageType::kReportDoubt, out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kGrant: {
      media::GrantAnswer out{};
      const auto status = grant(slot, body_as<media::GrantBody>(body), out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kPending:
      return answer(slot, type, pending(slot, body_as<media::PendingBody>(body)), nullptr, 0);
    case MessageType::kRemove:
    case MessageType::kRemoveDamaged: {
      const bool damaged = type == MessageType::kRemoveDamaged;
      const auto status = remove(slot, body_as<media::RemoveBody>(body),
                                 damaged ? Decision::kDamaged : Decision::kRemoved);
      return answer(slot, type, status, nullptr, 0);
    }
    case MessageType::kReturn:
      take_return(slot, body_as<media::ReturnBody>(body));
      return answer(slot, type, MessageStatus::kOk, nullptr, 0);
    case MessageType::kPin: {
      media::PinAnswer out{};
      const auto &in = body_as<media::PinBody>(body);
      const auto status = pin(slot, in.key, in.ttl_ms, out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kUnpin:
      unpin(slot, body_as<media::UnpinBody>(body));
      return answer(slot, type, MessageStatus::kOk, nullptr, 0);
    case MessageType::kTouch:
      for (u32 entry : body_as<media::TouchBody>(body).entry) {
        if (entry != 0) index_.touch(entry - 1);
      }
      return answer(slot, type, MessageStatus::kOk, nullptr, 0);
    case MessageType::kNsOpen: {
      media::NsAnswer out{};
      const auto status = ns_open(body_as<media::NsOpenBody>(body), out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kNsControl: {
      media::NsAnswer out{};
      const auto status = ns_control(slot, body_as<media::NsControlBody>(body), out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kReportBegin:
      m.named.clear();
      ++m.report_begun;
      return answer(slot, type, MessageStatus::kOk, nullptr, 0);
    case MessageType::kReportExtent: {
      const bool its = report_extent(slot, body_as<media::ReportExtentBody>(body));
      return answer(slot, type, its ? MessageStatus::kOk : MessageStatus::kAbsent, nullptr, 0);
    }
    case MessageType::kReportPin: {
      media::PinAnswer out{};
      const auto &in = body_as<media::ReportPinBody>(body);
      const auto status = pin_reported(slot, in, out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kReportEnd:
      report_end(slot);
      return answer(slot, type, MessageStatus::kOk, nullptr, 0);
    case MessageType::kDeathAck:
      acknowledged(slot, body_as<media::DeathAckBody>(body));
      return answer(slot, type, MessageStatus::kOk, nullptr, 0);
    case MessageType::kAbort: {
      media::AbortAnswer out{};
      const auto status = aborts(slot, body_as<media::AbortBody>(body), out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kResize: {
      media::ResizeAnswer out{};
      const auto status = resize(body_as<media::ResizeBody>(body), out);
      return answer(slot, type, status, &out, sizeof out);
    }
    case MessageType::kNop:
    case MessageType::kLeave: break;
  }
  answer(slot, type, MessageStatus::kOk, nullptr, 0);
}

// Prepares an answer; finish_batch() writes it once the decisions it tells of are on the medium.
template <PoolEnv Env>
void Owner<Env>::answer(u32 slot, media::MessageType type, media::MessageStatus status,
                        const void *body, u32 bytes) {
  const MemberState &m = members_[slot];
  const media::MessageHead head{.epoch = epoch_,
                                .sequence = m.next_sequence,
                                .incarnation = m.incarnation,
                                .type = static_cast<u8>(type),
                                .lines = static_cast<u8>(media::message_lines(bytes)),
                                .status = static_cast<u8>(status)};
  const u32 place = (m.next_sequence & (geo_.response_slots - 1u)) * media::kResponseSlotLines;
  // Nothing decided in this batch is off the medium: the answer need not wait for the drain.
  const bool at_once = !pen_.dirty() && returns_.empty() && responses_.empty();
  answered_ = true;
  for (u32 i = 0; i < head.lines; ++i) {
    Line line = media::message_line(head, i, body, bytes);
    const PoolOffset at = m.answers_at + (place + i) * kLineBytes;
    claims_.sealer().seal(line, at, 0);
    if (at_once) {
      env_.memory().publish_line(at, line);
    } else {
      responses_.push_back({at, line});
    }
  }
  if (env_.mutant(Mutant::kAnswerBeforeDrain)) {
    for (const Response &r : responses_) env_.memory().publish_line(r.at, r.line);
    env_.memory().drain();
    responses_.clear();
  }
}

// proto 7, 8: entry lines on the medium, then map words of returned extents, then the answers.
template <PoolEnv Env>
void Owner<Env>::finish_batch() {
  pen_.drain_strict();
  for (const PoolOffset line : ahead_lines_) env_.memory().prefetch(line);
  ahead_lines_.clear();
  if (!returns_.empty()) {
    for (const Returned &back : returns_) return_extent(back);
    returns_.clear();
    pen_.drain_strict();
  }
  if (pen_.take_failed()) {  // proto 14: nothing is answered that is on no medium
    look_at_devices_ = true;
    watch_devices();
  }
  if (!answered_ || area_lost()) return;
  answered_ = false;
  for (const Response &r : responses_) env_.memory().publish_line(r.at, r.line);
  env_.memory().drain();
  responses_.clear();
  ++stats_.batches;
}

}  // namespace kvpool::pool
