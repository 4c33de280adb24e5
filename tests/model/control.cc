// SPDX-License-Identifier: Apache-2.0
// Owns the model of lines and rings that move to another device (proto 14): a member of before,
// whose lease the new owner cannot see, against the claim that moves them, the wait after it, the
// activation, and a block that the member has pinned and the new owner gives away.
//
// Time is whole ticks; drift and margin are those of the model `lease`. Claims are one fact each:
// how their copies come to the medium is the model `claims`. The member, or a later incarnation
// that has a ticket for the pin, looks at nothing but its clock when it uses it, as one does that
// maps the bytes; that it also ends when it finds the activation is not needed here.
#include "engine.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Control {
public:
  struct Rules {
    bool looks = true;
    bool join_looks = true;
    bool looks_after_t0 = true;
    bool believes_claim = true;
    bool waits = true;
    bool waits_after_claim = true;
    bool full_lease = true;
    bool checked_after_use = true;
  };

  static constexpr int kLease = 6;   // L
  static constexpr int kMargin = 2;  // what the factor 0.97 stands for
  static constexpr int kDrift = 6;

  enum Renewal : uint8_t { kRests, kBegun, kLooked };
  enum Mover : uint8_t { kIdle, kWaitsFirst, kClaimed, kActive, kReused, kDied };

  struct State {
    uint8_t expiry;              // ticks left on the member's own clock
    uint8_t renewal, age;        // one under way, and the ticks since its t0
    uint8_t lapsed, joining;     // dead for ever, until another incarnation joins
    uint8_t claimed, active;     // what the medium says
    uint8_t mover, waited;
    uint8_t using_pin, saw_other;  // in the middle of a use; the bytes were another block's
    uint8_t member_slow, mover_fast;
    uint8_t renewed, not_renewed;
    uint8_t wrong;
  };

  static constexpr const char *kName = "control";
  static constexpr const char *kCovers =
      "lines that move to another device: the claim, leases of before, pinned blocks";
  static constexpr Mutant<Rules> kMutants[] = {
      {"renewed-unlooked", &Rules::looks, "14", "a renewal reads the claims"},
      {"joined-unlooked", &Rules::join_looks, "14",
       "so does who joins: it may have a ticket for a pin of before"},
      {"looked-before-t0", &Rules::looks_after_t0, "14",
       "the lease counts from before the claims were read"},
      {"activation-only", &Rules::believes_claim, "14",
       "no lease is renewed once a claim moves the lines, active or not"},
      {"at-once", &Rules::waits, "14", "a lease passes between the claim and the scan"},
      {"waits-before-claim", &Rules::waits_after_claim, "14", "it passes after the claim"},
      {"impatient", &Rules::full_lease, "14", "it is a whole lease"},
      {"checked-before-use", &Rules::checked_after_use, "14",
       "who used a pinned block looks at its lease afterwards"},
  };
  static constexpr const char *kMarks[] = {"renewed", "not renewed", "lapsed", "activated",
                                           "reused while the member lives", "mover died"};

  Control(const Rules &rules, Mode mode)
      : rules_(rules), drift_(mode == Mode::kLong ? kDrift - 1 : kDrift) {}

  State initial() const {
    State s{};
    s.expiry = kLease - kMargin;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    tick(s, emit);
    mover(s, emit);
    renewal(s, emit);
    if (s.lapsed == 0) reader(s, emit);
  }

  const char *violation(const State &s) const {
    return s.wrong != 0 ? "a pinned block was another's while its holder's lease lasted" : nullptr;
  }

  uint32_t marks(const State &s) const {
    return (s.renewed != 0) | (s.not_renewed != 0) << 1 | (s.lapsed != 0) << 2 |
           (s.active != 0) << 3 | (s.mover == kReused && s.lapsed == 0) << 4 |
           (s.mover == kDied) << 5;
  }

  std::string show(const State &s) const {
    return text(
        "expiry %d renewal %d(%d) lapsed%d | claimed%d active%d mover %d(%d) | use%d other%d",
        s.expiry, s.renewal, s.age, s.lapsed, s.claimed, s.active, s.mover, s.waited, s.using_pin,
        s.saw_other);
  }

private:
  void tick(const State &s, Sink<State> &emit) const {
    for (int slow = 0; slow <= (s.member_slow == 0); slow++) {
      for (int fast = 0; fast <= (s.mover_fast == 0); fast++) {
        State n = s;
        n.expiry = static_cast<uint8_t>(std::max(0, s.expiry - (slow ? 0 : 1)));
        n.age = s.renewal != kRests ? static_cast<uint8_t>(std::min(s.age + (slow ? 0 : 1), kLease))
                                    : 0;
        if (s.mover == kClaimed || s.mover == kWaitsFirst) {
          n.waited = static_cast<uint8_t>(std::min(s.waited + (fast ? 2 : 1), kLease));
        }
        n.member_slow = slow ? drift_ : static_cast<uint8_t>(std::max(0, s.member_slow - 1));
        n.mover_fast = fast ? drift_ : static_cast<uint8_t>(std::max(0, s.mover_fast - 1));
        emit(n, slow ? (fast ? "tick, both clocks off" : "tick, member slow")
                     : (fast ? "tick, mover fast" : "tick"));
      }
    }
  }

  // One that dies leaves its claim; the next one claims and waits anew.
  void mover(const State &s, Sink<State> &emit) const {
    const int patience = rules_.full_lease ? kLease : kLease / 2;
    const bool over = s.waited >= patience || !rules_.waits;
    State n = s;
    switch (s.mover) {
      case kDied:
      case kIdle:
        n.waited = 0;
        n.mover = kClaimed;
        n.claimed = 1;
        if (rules_.waits_after_claim) {
          emit(n, "the mover claims");
        } else {
          n.claimed = s.claimed;
          n.mover = kWaitsFirst;
          emit(n, "the mover waits");
        }
        break;
      case kWaitsFirst:
        if (!over) break;
        n.mover = kClaimed;
        n.claimed = 1;
        emit(n, "the mover claims");
        break;
      case kClaimed:
        if (over) {
          n.mover = kActive;
          n.active = 1;
          emit(n, "the mover activates");
        }
        n = s;
        n.mover = kDied;
        n.waited = 0;
        emit(n, "the mover dies");
        break;
      case kActive:
        n.mover = kReused;
        emit(n, "the pinned block is given to another key");
        break;
      default: break;
    }
  }

  bool may_renew(const State &s) const {
    return !rules_.looks || (rules_.believes_claim ? s.claimed == 0 : s.active == 0);
  }

  void renewal(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.renewal) {
      case kRests:
        if (s.lapsed != 0) {
          n.joining = 1;
          n.age = 0;
          n.renewal = rules_.join_looks ? kBegun : kLooked;
          emit(n, "it joins anew: t0");
          break;
        }
        if (s.expiry == 0) {
          n.lapsed = 1;
          n.using_pin = n.saw_other = 0;
          emit(n, "the member finds its lease over");
          break;
        }
        n.age = 0;
        if (rules_.looks_after_t0) {
          n.renewal = kBegun;
          emit(n, "renewal: t0");
        } else if (may_renew(s)) {
          n.renewal = kBegun;
          emit(n, "renewal: the claims are read");
        }
        break;
      case kBegun:
        if (!rules_.looks_after_t0) {
          n.renewal = kLooked;
          n.age = 0;
          emit(n, "renewal: t0");
        } else if (may_renew(s)) {
          n.renewal = kLooked;
          emit(n, "renewal: the claims are read");
        } else {
          n.renewal = n.age = n.joining = 0;
          n.not_renewed = 1;
          emit(n, "renewal: a claim moves the lines");
        }
        break;
      default:
        n.renewal = n.age = n.joining = 0;
        if (s.expiry > 0 || s.joining != 0) {
          n.lapsed = 0;
          n.expiry = static_cast<uint8_t>(std::max(0, kLease - kMargin - s.age));
          n.renewed = 1;
          emit(n, "renewal: stored, new expiry");
        } else {
          n.lapsed = 1;
          n.using_pin = n.saw_other = 0;
          emit(n, "renewal: past the expiry");
        }
    }
  }

  // `using_pin` 1: begun, 2: the bytes were read.
  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.using_pin == 0) {
      if (s.expiry == 0) return;
      n.using_pin = 1;
      emit(n, "a use of the pinned block begins");
    } else if (s.using_pin == 1) {
      n.using_pin = 2;
      n.saw_other = s.mover == kReused;
      emit(n, "its bytes are read");
    } else {
      n.using_pin = n.saw_other = 0;
      const bool counts = s.expiry > 0 || !rules_.checked_after_use;
      n.wrong = counts && s.saw_other != 0;
      emit(n, "the use is over");
    }
  }

  const Rules rules_;
  const uint8_t drift_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Control>().main(argc, argv);
}
