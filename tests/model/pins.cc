// SPDX-License-Identifier: Apache-2.0
// Owns the model of pins and tickets (proto 8, 11): a holder that uses pinned bytes in place, a
// ticket user on another host, an owner that evicts, and a successor whose ledger comes back by
// report.
//
// Time is whole ticks; each clock may be wrong by one tick while a pin lasts, and the margin is
// scaled to that. The old owner is a zombie once the successor claims. Entry lines are their
// owners' memory.
#include "engine.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Pins {
public:
  struct Rules {
    bool check_after_use = true;
    bool expiry_from_sending = true;
    bool margin = true;
    bool accept_pin = true;
    bool accept_grant = true;
    bool wait_for_reports = true;
    bool ledger_by_report = true;
    bool flag_before_request = true;
    bool pinned_keeps_entry = true;
    bool ticket_checks_entry = true;
    bool lapsed_never_uses = true;
  };

  static constexpr int kDuration = 4;
  static constexpr int kMargin = 2;
  enum Entry : uint8_t { kNone, kPublished, kHidden };
  enum Claim : uint8_t { kNoClaim, kClaimed, kScanned, kActive };
  enum HolderStep : uint8_t { kIdle, kAsked, kAnswered, kPinned, kLoaded, kCounted, kGone };
  enum TicketStep : uint8_t { kNoTicket, kTicket, kTicketLoaded, kTicketCounted };
  enum GrantStep : uint8_t { kNoGrant, kGranted, kWritten };

  struct State {
    uint8_t entry[2], ledger[2];  // per owner: the entry line, ticks its pin still lasts
    uint8_t claim;                // the successor's
    uint8_t must_report;          // the successor saw PINS in the holder's line
    uint8_t reported, flag;
    uint8_t content;  // 1: the pinned publication, 2: another
    uint8_t holder, asked, left, loaded;
    uint8_t holder_late, owner_early;  // each clock may err once per pin
    uint8_t ticket, ticket_loaded;
    uint8_t grant, granted_by;
    uint8_t asks;
  };

  static constexpr const char *kName = "pins";
  static constexpr const char *kCovers = "pins, expiry, ledger by report, tickets on another host";
  static constexpr Mutant<Rules> kMutants[] = {
      {"checked-before-use", &Rules::check_after_use, "11", "the expiry is checked after the use"},
      {"expiry-from-answer", &Rules::expiry_from_sending, "11",
       "the expiry counts from sending the request"},
      {"no-margin", &Rules::margin, "11",
       "the holder gives up earlier than the owner, by the margin"},
      {"pin-not-accepted", &Rules::accept_pin, "7", "a pin counts only after accept()"},
      {"grant-not-accepted", &Rules::accept_grant, "7", "a grant counts only after accept()"},
      {"evicts-before-reports", &Rules::wait_for_reports, "8",
       "nothing is evicted until all members with PINS have reported or lost their lease"},
      {"pins-not-reported", &Rules::ledger_by_report, "8", "a report names the pins"},
      {"flag-late", &Rules::flag_before_request, "8",
       "PINS is drained before the first request that could make it true"},
      {"removal-frees", &Rules::pinned_keeps_entry, "11",
       "removal of a pinned block only hides it: it keeps its entry"},
      {"ticket-trusts-duration", &Rules::ticket_checks_entry, "11",
       "on another host each use ends with the entry check"},
      {"lapsed-holder-uses", &Rules::lapsed_never_uses, "6",
       "a lapsed member touches no block again"},
  };
  static constexpr const char *kMarks[] = {"counted",
                                           "counted while hidden",
                                           "counted under the successor",
                                           "block written again",
                                           "ticket counted",
                                           "pin reported"};

  Pins(const Rules &rules, Mode mode) : rules_(rules), asks_max_(mode == Mode::kLong ? 4 : 2) {}

  State initial() const {
    State s{};
    s.entry[0] = kPublished;
    s.content = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    tick(s, emit);
    owner(s, 0, emit);
    if (s.claim == kActive) {
      owner(s, 1, emit);
      report(s, emit);
    }
    successor(s, emit);
    holder(s, emit);
    ticket(s, emit);
    writer(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.holder == kCounted && s.loaded != 1) {
      return "pinned bytes changed under their holder";
    }
    if (s.ticket == kTicketCounted && s.ticket_loaded != 1) {
      return "a ticket's user on another host took bytes of another publication";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool counted = s.holder == kCounted;
    return counted | (counted && s.entry[s.claim == kActive] == kHidden) << 1 |
           (counted && s.claim == kActive) << 2 | (s.content == 2) << 3 |
           (s.ticket == kTicketCounted) << 4 | (s.reported && s.ledger[1]) << 5;
  }

  std::string show(const State &s) const {
    return text(
        "O entry %d ledger %d | S claim %d entry %d ledger %d must%d reported%d | bytes %d | "
        "holder %d asked %d left %d loaded %d flag%d | ticket %d | grant %d by %d",
        s.entry[0], s.ledger[0], s.claim, s.entry[1], s.ledger[1], s.must_report, s.reported,
        s.content, s.holder, s.asked, s.left, s.loaded, s.flag, s.ticket, s.grant, s.granted_by);
  }

private:
  static uint8_t minus(uint8_t value, int by) {
    return static_cast<uint8_t>(std::max(0, value - by));
  }

  void tick(const State &s, Sink<State> &emit) const {
    if (s.left == 0 && s.ledger[0] == 0 && s.ledger[1] == 0) {
      return;  // nobody's clock runs
    }
    for (int late = 0; late <= (s.left != 0 && !s.holder_late); late++) {
      for (int early = 0; early <= !s.owner_early; early++) {
        State n = s;
        n.left = minus(s.left, late ? 0 : 1);
        n.holder_late |= static_cast<uint8_t>(late);
        n.owner_early |= static_cast<uint8_t>(early);
        for (int i = 0; i < 2; i++) {
          n.ledger[i] = minus(s.ledger[i], early ? 2 : 1);
        }
        emit(n, "tick");
      }
    }
  }

  void owner(const State &s, int i, Sink<State> &emit) const {
    State n = s;
    const bool pinned = s.ledger[i] != 0;
    const bool waits = i == 1 && s.must_report != 0 && s.reported == 0 && rules_.wait_for_reports;
    if (s.holder == kAsked && s.asked == i && s.entry[i] == kPublished && !(i == 1 && waits)) {
      n.ledger[i] = kDuration;
      n.holder = kAnswered;
      emit(n, i ? "S pins and answers" : "O pins and answers");
    }
    n = s;
    if (s.entry[i] == kPublished) {
      n.entry[i] = kHidden;
      emit(n, i ? "S hides the entry" : "O hides the entry");
    }
    const bool may_clear = (!pinned || !rules_.pinned_keeps_entry) && !waits;
    if (s.entry[i] == kHidden && may_clear && s.grant == kNoGrant) {
      n = s;
      n.entry[i] = kNone;
      n.grant = kGranted;
      n.granted_by = static_cast<uint8_t>(i);
      emit(n, i ? "S clears the entry and grants" : "O clears the entry and grants");
    }
  }

  void writer(const State &s, Sink<State> &emit) const {
    if (s.grant != kGranted) {
      return;
    }
    State n = s;
    const bool outbid = s.granted_by == 0 && s.claim != kNoClaim;
    if (outbid && rules_.accept_grant) {
      n.grant = kNoGrant;
      emit(n, "W does not accept the grant");
    } else {
      // accept and the first store need not be one step, but nothing can stop W in between
      n.grant = kWritten;
      n.content = 2;
      emit(n, "W accepts and writes the block");
    }
  }

  void successor(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.claim == kNoClaim) {
      n.claim = kClaimed;
      emit(n, "S claims");
    } else if (s.claim == kClaimed) {
      n.entry[1] = s.entry[0];
      n.must_report = s.flag;
      n.claim = kScanned;
      emit(n, "S scans entries and member lines");
    } else if (s.claim == kScanned) {
      n.claim = kActive;
      emit(n, "S activates");
    }
  }

  // What the holder has is known to it: an answer that is not accepted yet will not be.
  void report(const State &s, Sink<State> &emit) const {
    if (s.reported != 0 || s.must_report == 0) {
      return;
    }
    State n = s;
    n.reported = 1;
    if (s.holder == kGone) {
      emit(n, "the holder's lease is lost");
      return;
    }
    if (s.holder == kAnswered) {
      n.holder = kIdle;
      n.left = 0;
    }
    if (s.holder >= kPinned && rules_.ledger_by_report) {
      n.ledger[1] = kDuration;  // never shorter than what is left of it
    }
    emit(n, "the holder reports");
  }

  void holder(const State &s, Sink<State> &emit) const {
    State n = s;
    const uint8_t fresh = kDuration - (rules_.margin ? kMargin : 0);
    if (s.holder != kGone && s.holder != kIdle) {
      n.holder = kGone;
      if (!rules_.lapsed_never_uses && s.holder == kPinned) {
        n.holder = kPinned;
        n.reported = 1;  // the observer goes by the lease; the holder does not
      }
      emit(n, "the holder's lease lapses");
      n = s;
    }
    switch (s.holder) {
      case kIdle:
        if (s.asks < asks_max_) {
          n.asks++;
          n.asked = s.claim == kActive;
          n.flag |= rules_.flag_before_request;
          n.left = fresh;
          n.holder_late = n.owner_early = 0;
          n.holder = kAsked;
          emit(n, "the holder asks for a pin");
        }
        break;
      case kAsked:
        if (s.left == 0 || (s.asked == 0 && s.claim == kActive)) {
          n.holder = kIdle;
          n.left = 0;
          emit(n, "the holder gives the request up");
        }
        break;
      case kAnswered:
        if (!rules_.expiry_from_sending) {
          n.left = fresh;
        }
        if (s.asked == 0 && s.claim != kNoClaim && rules_.accept_pin) {
          n.holder = kIdle;
          n.left = 0;
          emit(n, "the holder does not accept the pin");
        } else {
          n.holder = kPinned;
          n.ticket = kTicket;
          emit(n, "the holder accepts the pin");
        }
        break;
      case kPinned:
        if (s.flag == 0) {
          n.flag = 1;
          emit(n, "the holder sets PINS, late");
          n = s;
        }
        if (rules_.check_after_use) {
          n.loaded = s.content;
          n.holder = kLoaded;
          emit(n, "the holder uses the bytes");
        } else if (s.left > 0) {
          n.holder = kLoaded;
          emit(n, "the holder looks at its expiry");
        }
        break;
      case kLoaded:
        if (!rules_.check_after_use) {
          n.loaded = s.content;
          n.holder = kCounted;
          emit(n, "the holder uses the bytes");
          break;
        }
        n.holder = s.left > 0 ? kCounted : kIdle;
        if (n.holder == kIdle) {
          n.loaded = n.left = 0;
        }
        emit(n, "the holder looks at its expiry");
        break;
      case kCounted:
        n.holder = kPinned;
        n.loaded = 0;
        emit(n, "the result counts");
        break;
      default:
        break;
    }
  }

  // A ticket that reached a rank on another host: whatever its clock says proves nothing.
  void ticket(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.ticket == kTicket) {
      n.ticket_loaded = s.content;
      n.ticket = kTicketLoaded;
      emit(n, "T uses the bytes");
    } else if (s.ticket == kTicketLoaded) {
      const bool there = s.entry[s.claim == kActive] == kPublished;
      n.ticket = there || !rules_.ticket_checks_entry ? kTicketCounted : kNoTicket;
      if (n.ticket == kNoTicket) {
        n.ticket_loaded = 0;
      }
      emit(n, "T looks at claims and entry");
    } else if (s.ticket == kTicketCounted) {
      n.ticket = kTicket;
      n.ticket_loaded = 0;
      emit(n, "T's result counts");
    }
  }

  const Rules rules_;
  const uint8_t asks_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Pins>().main(argc, argv);
}
