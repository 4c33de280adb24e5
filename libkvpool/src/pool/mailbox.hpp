// SPDX-License-Identifier: Apache-2.0
// A member's side of its rings (proto 12): requests out, answers in. Positions restart with each
// epoch and incarnation; an answer stands at its sequence modulo the depth until it is overwritten,
// so nothing is ever sent twice within an epoch. Guarded by the member's mutex.
#pragma once

#include "media/message.hpp"
#include "pool/session.hpp"

namespace kvpool::pool {

struct Answer {
  media::MessageType type{};
  media::MessageStatus status{};
  u8 body[media::kResponseSlotLines * media::kMessageBody]{};

  template <class T>
  T as() const {
    static_assert(sizeof(T) <= sizeof(body));
    T value;
    std::memcpy(&value, body, sizeof value);
    return value;
  }
};

template <PoolEnv Env>
class Mailbox {
public:
  Mailbox(Env &env, const media::Geometry &geo, const media::Sealer &sealer)
      : env_(env), geo_(geo), sealer_(sealer) {}

  // Starts anew with another owner or incarnation.
  void bind(u32 member_slot, u64 incarnation, const Session &session) {
    incarnation_ = incarnation;
    epoch_ = session.epoch;
    standby_ = session.standby;
    next_sequence_ = next_answer_ = 0;
    doorbell_ = static_cast<u32>(incarnation);  // never where the one before left it
    next_line_ = answered_line_ = ring_place_ = 0;
    ring_at_ = geo_.request_line(member_slot, 0);
    answers_at_ = geo_.response_line(member_slot, standby_, 0, 0);
    doorbell_at_ = geo_.doorbell_at(member_slot / geo_.members_per_host) +
                   (member_slot % geo_.members_per_host) * sizeof(u32);
  }

  u32 epoch() const { return epoch_; }
  bool bound_to(u64 incarnation, u32 epoch) const {
    return epoch_ == epoch && incarnation_ == incarnation;
  }
  u32 outstanding() const { return next_sequence_ - next_answer_; }

  // How many messages of `lines` lines fit without overwriting what may be unread.
  u32 room(u32 lines) const {
    const u32 slots = geo_.response_slots - 1u - outstanding();
    return std::min(slots, (geo_.request_lines - (next_line_ - answered_line_)) / lines);
  }
  bool has_room(u32 lines) const { return room(lines) > 0; }
  // The same when nothing is under way.
  u32 depth(u32 lines) const {
    return std::min(geo_.response_slots - 1u, geo_.request_lines / lines);
  }

  // Writes a message into the ring; it is visible to the owner after ring(). Needs has_room().
  u32 post(media::MessageType type, const void *body, u32 body_bytes) {
    const u32 lines = media::message_lines(body_bytes);
    const media::MessageHead head{.epoch = epoch_,
                                  .sequence = next_sequence_,
                                  .incarnation = incarnation_,
                                  .type = static_cast<u8>(type),
                                  .lines = static_cast<u8>(lines),
                                  .status = 0};
    for (u32 i = 0; i < lines; ++i) {
      const PoolOffset at = ring_at_ + ring_place_ * kLineBytes;
      if (++ring_place_ == geo_.request_lines) ring_place_ = 0;
      Line line = media::message_line(head, i, body, body_bytes);
      sealer_.seal(line, at, 0);
      env_.memory().publish_line(at, line);
      ++next_line_;
    }
    line_count_[next_sequence_ % kTracked] = static_cast<u8>(lines);
    return next_sequence_++;
  }

  // What was posted is in front of the owner: drained, then the doorbell.
  void ring() {
    env_.memory().drain();
    env_.memory().ring_doorbell(doorbell_at_, ++doorbell_);
  }

  // Takes up to `count` answers that have arrived, in order, each at most `answer_lines` lines.
  // They do not count before the caller's accept.
  u32 take(Answer *answers, u32 count, u32 answer_lines) {
    count = std::min(count, outstanding());
    if (count == 0) return 0;
    auto &mem = env_.memory();
    // Lines are dear: of many answers only those are read that seem to have come.
    if (count > kTakeProbe) count = arrived(count);
    if (count == 0) return 0;
    PoolOffset at[kTakeMax];
    for (u32 i = 0; i < count; ++i) at[i] = answer_at(next_answer_ + i, 0);
    mem.begin_wave();
    flush_groups(mem, at, count, answer_lines);
    mem.end_poll();
    for (u32 i = 0; i < count; ++i) mem.prefetch(at[i]);
    u32 taken = 0;
    while (taken < count && load_answer(next_answer_ + taken, answers[taken], answer_lines))
      ++taken;
    for (u32 i = 0; i < taken; ++i) {
      answered_line_ += line_count_[next_answer_ % kTracked];
      ++next_answer_;
    }
    return taken;
  }

private:
  static constexpr u32 kTakeMax = 64;    // answers read in one wave
  static constexpr u32 kTakeProbe = 2;   // read without a look at which have come
  static constexpr u32 kTracked = 4096;  // >= response_slots of any geometry (media/layout)

  PoolOffset answer_at(u32 sequence, u32 line) const {
    const u32 slot = sequence & (geo_.response_slots - 1u);
    return answers_at_ + (slot * media::kResponseSlotLines + line) * kLineBytes;
  }

  // How many of the next `count` answers seem to be there, by a wave over a few of them: owners
  // answer in order, many at once. A hint: each that is read proves itself.
  u32 arrived(u32 count) {
    auto &mem = env_.memory();
    PoolOffset at[kTakeMax];
    u32 places[kTakeMax];
    u32 n = 0;
    for (u32 next = 1; next <= count && n < kTakeMax; next *= 2) {
      places[n] = next - 1;
      at[n++] = answer_at(next_answer_ + next - 1, 0);
    }
    if (places[n - 1] != count - 1) {
      places[n] = count - 1;
      at[n] = answer_at(next_answer_ + places[n], 0);
      ++n;
    }
    mem.begin_wave();
    flush_groups(mem, at, n, 1);
    mem.end_poll();
    for (u32 i = 0; i < n; ++i) mem.prefetch(at[i]);
    while (n > 0) {
      u64 word = 0;
      const bool there = mem.load_word(at[n - 1], word);
      const u64 expected = u64{epoch_} | u64{next_answer_ + places[n - 1]} << 32;
      if (there && word == expected) return places[n - 1] + 1;
      --n;
    }
    return 0;
  }

  bool load_answer(u32 sequence, Answer &answer, u32 answer_lines) {
    for (u32 j = 0; j < answer_lines; ++j) {
      Line line;
      const PoolOffset at = answer_at(sequence, j);
      if (!env_.memory().load_line(at, line)) return false;
      const media::MessageHead msg = media::message_head(line);
      if (msg.epoch != epoch_ && !env_.mutant(Mutant::kAnswerIgnoresEpoch)) return false;
      if (msg.sequence != sequence && !env_.mutant(Mutant::kAnswerIgnoresSequence)) return false;
      if (msg.incarnation != incarnation_ || media::message_index(line) != j) {
        return false;
      }
      const bool torn = !sealer_.intact(line, at, 0);
      if (torn && !env_.mutant(Mutant::kTornAnswerAccepted)) return false;
      answer.type = static_cast<media::MessageType>(msg.type);
      answer.status = static_cast<media::MessageStatus>(msg.status);
      std::memcpy(answer.body + j * media::kMessageBody, media::message_body(line),
                  media::kMessageBody);
      if (msg.lines <= j + 1) {
        std::fill(answer.body + (j + 1) * media::kMessageBody,
                  answer.body + answer_lines * media::kMessageBody, u8{0});
        break;
      }
      if (j + 1 == answer_lines) return false;  // the caller expects a shorter answer: a bug
    }
    return true;
  }

  Env &env_;
  const media::Geometry &geo_;
  const media::Sealer &sealer_;
  u64 incarnation_ = 0;
  u32 epoch_ = 0;
  u32 standby_ = 0;
  u32 next_sequence_ = 0, next_answer_ = 0;  // of messages
  u32 next_line_ = 0, answered_line_ = 0;    // of the request ring, not wrapped
  u32 doorbell_ = 0;
  u32 ring_place_ = 0;                       // of the next line in the ring
  PoolOffset ring_at_{}, answers_at_{}, doorbell_at_{};
  u8 line_count_[kTracked]{};
};

}  // namespace kvpool::pool
