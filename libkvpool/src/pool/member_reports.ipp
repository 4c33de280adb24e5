// SPDX-License-Identifier: Apache-2.0
// A member's report to a new owner (proto 8): BEGIN, EXTENT..., DOUBT..., PIN..., END. It counts at
// END, and only if END is accepted. Many messages are on their way at once, and a report that was
// cut short by its caller's deadline goes on where it stopped, so that it ends however much there
// is to say; another owner, or another incarnation, begins anew.
#pragma once

#include <unordered_map>

namespace kvpool::pool {

template <PoolEnv Env>
int Member<Env>::report(const Session &session, u64 deadline) {
  bound_ = false;
  owner_lost_ = false;
  if (!mailbox_.bound_to(lease_.incarnation(), session.epoch)) {
    mailbox_.bind(slot_, lease_.incarnation(), session);
    report_.sent.clear();
    if (!env_.mutant(Mutant::kReportGoesOnElsewhere)) report_ = {};
  } else {
    env_.mark("report_again");
  }
  if (lease_.flags() != 0) {
    env_.mark("report");
    if (int err = report_on(deadline)) return err;
    if (!claims_.read().accepts(mailbox_.epoch())) return -EAGAIN;
    finish_report();
  }
  report_ = {};
  lease_.set_reported(session.epoch);
  bound_ = true;
  bound_epoch_ = session.epoch;
  notice_sequence_ = acknowledged_sequence_ = 0;
  for (u32 i = 0; i < hand_.extents().size();) {  // used up by doubts that ended well
    const HandExtent &e = hand_.extents()[i];
    if (e.free_count == 0 && e.idle() && give_back_extent(e.extent, 0) == 0) continue;
    ++i;
  }
  return 0;
}

// Posts what fits and takes what has come, until END has its answer. Only while reporting: nothing
// else is on the way. Between two calls extents stay in hand, and doubts what they are, since no
// owner is asked; pins may be given back.
template <PoolEnv Env>
int Member<Env>::report_on(u64 deadline) {
  for (u32 idle = 0;;) {
    if (post_report()) mailbox_.ring();
    const u32 waiting = static_cast<u32>(report_.sent.size());
    if (waiting == 0) return 0;
    const u32 taken =
        mailbox_.take(answers_, std::min(waiting, kTakeAtOnce), media::kResponseSlotLines);
    for (u32 i = 0; i < taken; ++i) {
      hear_report(report_.sent.front(), answers_[i]);
      report_.sent.pop_front();
    }
    if (taken > 0) {
      idle = 0;
      continue;
    }
    if (!lease_.alive()) return -ESTALE;
    if (env_.now_ns() >= deadline) {
      env_.mark("report_cut_short");
      return -EAGAIN;
    }
    if (idle % 64 == 63) {
      const ClaimView view = claims_.read();
      if (view.gone) return -ESTALE;
      if (!view.accepts(mailbox_.epoch())) return -EAGAIN;
    }
    env_.relax(idle++);
  }
}

// As many of the next messages as have room. False: none.
template <PoolEnv Env>
bool Member<Env>::post_report() {
  using media::MessageType;
  Report &r = report_;
  bool any = false;
  const auto post = [&](MessageType type, u64 which, const void *body, u32 bytes) {
    mailbox_.post(type, body, bytes);
    r.sent.push_back({type, which});
    any = true;
  };
  if (r.sent.empty() && !r.begun) {
    r.pins = pins_;
    r.fates.assign(pins_.size(), PinFate::kUnnamed);
    r.resolved.resize(doubts_.size());
    r.begun = true;
    post(MessageType::kReportBegin, 0, nullptr, 0);
  }
  const bool skip_doubts = env_.mutant(Mutant::kReportSkipsDoubt);
  const u64 doubts = skip_doubts ? 0 : doubts_.size();
  const u64 pins = env_.mutant(Mutant::kReportForgetsPins) ? 0 : r.pins.size();
  while (!r.end_posted && mailbox_.has_room(media::kMessageLinesMax)) {
    if (r.extent < hand_.extents().size()) {
      const HandExtent &e = hand_.extents()[r.extent];
      media::ReportExtentBody body{};
      body.extent = e.extent;
      body.size_class = e.size_class;
      for (u32 w = 0; w < std::size(body.hand_bits); ++w) {
        body.hand_bits[w] = e.free_bits[w] | e.reserved_bits[w];
      }
      post(MessageType::kReportExtent, r.extent++, &body, sizeof body);
    } else if (r.doubt < doubts) {
      const Request &doubt = doubts_[r.doubt];
      media::PublishBody body = doubt.body;
      body.flags &= static_cast<u8>(~media::kPublishReturnsExtent);
      if (doubt.answered) {
        body.flags |= media::kPublishAnswered;
        std::memcpy(body.touch, &doubt.version, sizeof body.touch);
      }
      post(MessageType::kReportDoubt, r.doubt++, &body, sizeof body);
    } else if (r.pin < pins) {
      const HeldPin &pin = r.pins[r.pin++];
      const u64 now = env_.now_ns();
      if (pin.expiry_ns <= now) continue;
      media::ReportPinBody body{};
      std::memcpy(body.key, pin.key.w, sizeof body.key);
      body.pin_ttl_ms = (pin.expiry_ns - now) * 100 / 97 / kMs + 1;  // its clock may be fast
      body.version = pin.version;
      body.entry = pin.entry;
      post(MessageType::kReportPin, r.pin - 1, &body, sizeof body);
    } else {
      post(MessageType::kReportEnd, 0, nullptr, 0);
      r.end_posted = true;
    }
  }
  return any;
}

template <PoolEnv Env>
void Member<Env>::hear_report(const ReportPart &part, const Answer &answer) {
  const bool ok = answer.status == media::MessageStatus::kOk;
  switch (part.type) {
    case media::MessageType::kReportExtent:  // the map does not give it to this member any more
      if (!ok) report_.foreign.push_back(hand_.extents()[part.which].extent);
      break;
    case media::MessageType::kReportDoubt: report_.resolved[part.which] = answer; break;
    case media::MessageType::kReportPin: {
      HeldPin &pin = report_.pins[part.which];
      report_.fates[part.which] = ok ? PinFate::kHeld : PinFate::kGone;
      if (!ok) break;
      const auto got = answer.as<media::PinAnswer>();
      pin.id = got.pin;
      pin.entry = got.entry;
      break;
    }
    default: break;
  }
}

// END is accepted: what the owner said of each thing counts.
template <PoolEnv Env>
void Member<Env>::finish_report() {
  Report &r = report_;
  for (u64 i = 0; i < r.doubt; ++i) {
    Request &doubt = doubts_[i];
    doubt.returns_extent = false;
    deliver(doubt, r.resolved[i]);
    settle(doubt);
  }
  doubts_.clear();
  unpins_.clear();  // of what was pinned before; the report did not name it
  settle_pins();
  if (env_.mutant(Mutant::kForeignExtentKept)) r.foreign.clear();
  for (u32 extent : r.foreign) hand_.remove(extent);
}

// What the report named and was given back since is told; what is gone is told to its holder.
template <PoolEnv Env>
void Member<Env>::settle_pins() {
  Report &r = report_;
  const u64 now = env_.now_ns();
  const auto over = [now](const HeldPin &pin) { return pin.expiry_ns <= now; };
  std::unordered_map<u64, u64> place;  // of those held, by handle
  for (u64 i = 0; i < pins_.size(); ++i) place.emplace(pins_[i].handle, i);
  std::vector<u64> gone;
  for (u64 i = 0; i < r.pins.size(); ++i) {
    const HeldPin &pin = r.pins[i];
    const auto held = place.find(pin.handle);
    if (r.fates[i] == PinFate::kHeld && held == place.end()) drop_pin(pin);
    if (held == place.end()) continue;
    if (r.fates[i] == PinFate::kHeld) {
      pins_[held->second] = pin;
    } else if (r.fates[i] == PinFate::kGone) {
      env_.mark("pinned_block_gone");
      lost_pins_.push_back(pin);  // with an entry that went bad, or with former decisions
      gone.push_back(pin.handle);
    }
  }
  std::sort(gone.begin(), gone.end());
  std::erase_if(pins_, [&](const HeldPin &pin) {
    return over(pin) || std::binary_search(gone.begin(), gone.end(), pin.handle);
  });
  std::erase_if(lost_pins_, over);
  lost_pin_count_.store(static_cast<u32>(lost_pins_.size()), std::memory_order_relaxed);
}

}  // namespace kvpool::pool
