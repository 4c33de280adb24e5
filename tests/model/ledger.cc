// SPDX-License-Identifier: Apache-2.0
// Owns the model of reports with HOLDS and PINS over take-overs (proto 8, 11): what a new owner may
// clear, grant and serve before it has heard whom, while reports come member by member, are cut
// short and begun again, and members die; the owner before goes on deciding and is not accepted.
//
// One block in an extent of its own, which goes round: granted, written, published, pinned, hidden,
// cleared, granted again. Each publication of it has a serial, which its bytes carry. Pins have no
// time here (the pins model has); a dead member's lapse and its verdict are one step.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Ledger {
public:
  struct Rules {
    bool pins_awaited = true;
    bool pins_flag_first = true;
    bool holds_flag_first = true;
    bool flags_after_claim = true;
    bool pins_reported = true;
    bool holds_reported = true;
    bool end_replaces = true;
    bool kept_until_end = true;
    bool dead_pins_end = true;
    bool dead_excused = true;
    bool unnamed_returns = true;
    bool accept = true;
    bool hidden_keeps_block = true;
  };

  static constexpr uint8_t kOwner = 2;
  static constexpr uint8_t kHolds = 1, kPins = 2;  // flags of a member's line
  static constexpr uint8_t kSeen = 4;
  enum Entry : uint8_t { kNone, kPublished, kHidden };
  enum Kind : uint8_t { kNothing, kGrant, kPublish, kPin, kUnpin, kReturn };
  enum Report : uint8_t { kNoReport, kBegun, kNamed };

  struct Own {  // an owner's area and what it keeps in memory
    uint8_t epoch, entry, serial, holder;
    uint8_t pins[2], named[2];  // a member's pins, and those that the report under way named
    uint8_t owes[2], stage[2];
  };
  struct Member {
    uint8_t flags, dead, bound;  // bound: the epoch of the owner that has its report
    uint8_t kind, epoch, answered, got;
    uint8_t hand, doubt, pin;  // doubt, pin: the serial
    uint8_t report;
  };
  struct State {
    Own old, now;  // the one before may be a zombie
    Member member[2];
    uint8_t claimed, seen[2];  // seen: flags that a candidate read before it claimed
    uint8_t bytes, writes;     // serial of what stands in the block
    uint8_t deaths;
  };

  static constexpr const char *kName = "ledger";
  static constexpr const char *kCovers =
      "HOLDS and PINS by report, member by member, over take-overs; reports cut short; deaths";
  static constexpr Mutant<Rules> kMutants[] = {
      {"cleared-before-pins", &Rules::pins_awaited, "8",
       "nothing is cleared until all members with PINS have reported or are dead"},
      {"pins-flag-late", &Rules::pins_flag_first, "8",
       "PINS is drained before the first request that could make it true"},
      {"holds-flag-late", &Rules::holds_flag_first, "8",
       "HOLDS is drained before the first request that could make it true"},
      {"flags-before-claim", &Rules::flags_after_claim, "8",
       "who owes a report is read after the claim"},
      {"pins-not-reported", &Rules::pins_reported, "8", "a report names the pins"},
      {"holds-not-reported", &Rules::holds_reported, "8", "a report names what is in hand"},
      {"report-adds-pins", &Rules::end_replaces, "11",
       "pins that a report does not name, and earlier ones did, end with it"},
      {"begin-drops-pins", &Rules::kept_until_end, "11",
       "pins of an earlier report end at the END of the next one, not at its BEGIN"},
      {"dead-keep-pins", &Rules::dead_pins_end, "11", "a dead member's pins end"},
      {"dead-awaited", &Rules::dead_excused, "8", "no report of a dead member is awaited"},
      {"unnamed-kept", &Rules::unnamed_returns, "8",
       "what the map gives a member and its report does not name is the owner's again"},
      {"not-accepted", &Rules::accept, "7", "an answer counts only after accept()"},
      {"hidden-frees", &Rules::hidden_keeps_block, "10",
       "a block is free only when no entry refers to it, in whatever state"},
  };
  static constexpr const char *kMarks[] = {
      "pin held under a successor", "cleared while one owes a report without PINS",
      "doubt resolved by report",   "report begun twice",
      "two take-overs",             "dead excused",
      "granted under a successor"};

  Ledger(const Rules &rules, Mode mode)
      : rules_(rules),
        both_pin_(mode == Mode::kLong),
        epochs_(3),
        writes_(2) {}

  State initial() const {
    State s{};
    s.claimed = 1;
    s.now.epoch = 1;
    s.now.holder = s.old.holder = kOwner;
    s.member[0].bound = s.member[1].bound = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    serve(s, &State::now, emit);
    if (s.old.epoch != 0) {
      serve(s, &State::old, emit);
    }
    candidate(s, emit);
    for (uint8_t m = 0; m < 2; m++) {
      if (s.member[m].dead == 0) {
        member(s, m, emit);
        report(s, m, emit);
      }
    }
  }

  const char *violation(const State &s) const {
    for (int m = 0; m < 2; m++) {
      const Member &me = s.member[m];
      if (me.pin != 0 && me.pin != s.bytes) {
        return "pinned bytes changed under their holder";
      }
      const bool rests = me.kind == kNothing && me.pin == 0 && me.dead == 0;
      if (s.claimed == s.now.epoch && rests && me.bound == s.now.epoch && s.now.pins[m] != 0) {
        return "the owner keeps a pin that nobody has";
      }
    }
    if (s.member[0].hand != 0 && s.member[1].hand != 0) {
      return "two members have the same block in hand";
    }
    if (s.claimed == s.now.epoch && s.now.entry == kPublished && s.now.serial != s.bytes) {
      return "a published entry names bytes of another publication";
    }
    return nullptr;
  }

  bool settled(const State &s) const {
    return s.claimed == s.now.epoch && s.now.holder == kOwner && s.now.entry == kNone &&
           s.now.owes[0] == 0 && s.now.owes[1] == 0;
  }

  uint32_t marks(const State &s) const {
    const Own &now = s.now;
    const bool later = now.epoch > 1;
    return (later && s.member[0].pin && !s.member[0].report && now.pins[0]) |
           (later && now.owes[1] == kHolds && now.entry == kNone && s.bytes != 0) << 1 |
           (later && s.member[0].report == kNamed && s.member[0].doubt &&
            now.serial == s.member[0].doubt)
               << 2 |
           (later && s.member[0].report == kNamed && now.pins[0]) << 3 |
           (now.epoch == 3) << 4 | (later && s.member[1].dead && !now.owes[1]) << 5 |
           (later && s.member[1].hand && s.member[1].bound == now.epoch && !now.owes[0]) << 6;
  }

  std::string show(const State &s) const {
    std::string out = text("claimed %d bytes %d ", s.claimed, s.bytes);
    for (const Own *o : {&s.old, &s.now}) {
      out += text("[epoch %d entry %d.%d holder %c pins %d%d owes %d%d] ", o->epoch, o->entry,
                  o->serial, "ABO"[o->holder], o->pins[0], o->pins[1], o->owes[0], o->owes[1]);
    }
    for (int m = 0; m < 2; m++) {
      const Member &me = s.member[m];
      out += text(
          "[%c flags %d dead%d bound %d asks %d@%d answered%d got %d hand%d doubt %d pin %d "
          "report %d] ",
          "AB"[m], me.flags, me.dead, me.bound, me.kind, me.epoch, me.answered, me.got, me.hand,
          me.doubt, me.pin, me.report);
    }
    return out;
  }

private:
  // ---- owners -----------------------------------------------------------------------------------

  void serve(const State &s, Own State::*which, Sink<State> &emit) const {
    const Own &o = s.*which;
    State n = s;
    if (o.entry == kPublished) {
      (n.*which).entry = kHidden;
      emit(n, "an owner hides the entry");
    }
    const bool awaits = ((o.owes[0] | o.owes[1]) & kPins) != 0 && rules_.pins_awaited;
    const bool pinned = (o.pins[0] | o.pins[1] | o.named[0] | o.named[1]) != 0;
    if (o.entry == kHidden && !pinned && !awaits) {
      n = s;
      (n.*which).entry = (n.*which).serial = kNone;
      emit(n, "an owner clears the entry");
    }
    for (uint8_t m = 0; m < 2; m++) {
      const Member &asks = s.member[m];
      const bool mine = asks.kind != kNothing && asks.answered == 0 && asks.epoch == o.epoch;
      if (mine && o.owes[m] == 0) {
        answer(s, which, m, emit);
      }
      if (asks.dead != 0 && rules_.dead_excused) {
        bury(s, which, m, emit);
      }
    }
  }

  void bury(const State &s, Own State::*which, uint8_t m, Sink<State> &emit) const {
    State n = s;
    Own &o = n.*which;
    o.owes[m] = 0;
    o.pins[m] = rules_.dead_pins_end ? uint8_t{0} : o.pins[m];
    o.named[m] = 0;
    o.holder = o.holder == m ? kOwner : o.holder;
    emit(n, "an owner buries a dead member");
  }

  void answer(const State &s, Own State::*which, uint8_t m, Sink<State> &emit) const {
    State n = s;
    Own &o = n.*which;
    Member &me = n.member[m];
    me.answered = 1;
    me.got = 0;
    switch (me.kind) {
      case kGrant: {
        const bool free = o.entry == kNone || (o.entry == kHidden && !rules_.hidden_keeps_block);
        if (o.holder != kOwner || !free) {
          return;  // it waits
        }
        o.holder = m;
        me.got = 1;
        emit(n, "an owner grants the block");
        break;
      }
      case kPublish:
        me.got = publish(o, m, me.doubt);
        emit(n, "an owner publishes");
        break;
      case kPin:
        if (o.entry == kPublished) {
          o.pins[m] = sum(o.pins[m], 1);
          me.got = o.serial;
        }
        emit(n, "an owner pins");
        break;
      case kReturn:
        o.holder = o.holder == m ? kOwner : o.holder;
        emit(n, "an owner takes a block back");
        break;
      default:
        o.pins[m] = static_cast<uint8_t>(o.pins[m] - (o.pins[m] != 0));
        emit(n, "an owner takes a pin back");
        break;
    }
  }

  // The publication that uses the extent up returns it as well.
  static uint8_t publish(Own &o, uint8_t m, uint8_t serial) {
    if (o.entry != kNone && o.serial == serial) {
      return 1;  // it was decided already
    }
    if (o.holder != m || o.entry != kNone) {
      return 0;
    }
    o.entry = kPublished;
    o.serial = serial;
    o.holder = kOwner;
    return 1;
  }

  void candidate(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool seen = s.seen[0] != 0;  // only a mutant reads members' lines first
    if (s.claimed == s.now.epoch && s.claimed < epochs_ && !seen && !rules_.flags_after_claim) {
      n.seen[0] = s.member[0].flags | kSeen;
      n.seen[1] = s.member[1].flags | kSeen;
      emit(n, "a candidate reads members' lines");
    }
    if (s.claimed == s.now.epoch && s.claimed < epochs_ && (seen || rules_.flags_after_claim)) {
      n = s;
      n.claimed++;
      emit(n, "a candidate claims");
    }
    if (s.claimed != s.now.epoch) {
      n = s;
      n.old = s.now;
      n.now = Own{};
      n.now.epoch = s.claimed;
      n.now.entry = s.now.entry;
      n.now.serial = s.now.serial;
      n.now.holder = s.now.holder;
      for (int m = 0; m < 2; m++) {
        n.now.owes[m] = rules_.flags_after_claim ? s.member[m].flags : s.seen[m] & (kHolds | kPins);
        n.seen[m] = 0;
        n.member[m].report = kNoReport;  // it went to an owner that is none any more
        if (n.now.owes[m] == 0 && n.now.holder == m) {
          n.now.holder = kOwner;
        }
      }
      emit(n, "the candidate scans, reads members' lines and activates");
    }
  }

  // ---- members ----------------------------------------------------------------------------------

  static void ask(Member &me, Kind kind, uint8_t epoch) {
    me.kind = kind;
    me.epoch = epoch;
    me.answered = me.got = 0;
  }
  static void forget(Member &me) { me.kind = me.epoch = me.answered = me.got = 0; }

  void member(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &now = s.member[m];
    State n = s;
    for (uint8_t flag : {kHolds, kPins}) {
      if ((now.flags & flag) == 0 && (flag == kHolds || m == 0 || both_pin_)) {
        n = s;
        n.member[m].flags |= flag;
        emit(n, flag == kHolds ? "a member writes HOLDS" : "a member writes PINS");
      }
    }
    if (now.kind == kNothing && now.report == kNoReport) {
      begin(s, m, emit);
    }
    if (now.answered != 0) {
      accept(s, m, emit);
    }
    if (s.deaths == 0 && s.now.epoch > 1) {
      n = s;
      n.deaths = 1;
      n.member[m] = Member{};
      n.member[m].flags = now.flags;  // its line stays
      n.member[m].dead = 1;
      emit(n, "a member dies");
    }
  }

  void begin(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &now = s.member[m];
    State n = s;
    const bool rests = now.hand == 0 && now.doubt == 0 && now.pin == 0 && now.bound != 0;
    const bool holds = (now.flags & kHolds) != 0 || !rules_.holds_flag_first;
    const bool pins = (now.flags & kPins) != 0 || !rules_.pins_flag_first;
    if (rests && holds && s.writes < writes_) {
      ask(n.member[m], kGrant, now.bound);
      emit(n, "a member asks for a block");
    }
    if (now.hand != 0 && s.writes < writes_) {
      n = s;
      n.bytes = ++n.writes;
      n.member[m].hand = 0;
      n.member[m].doubt = n.bytes;
      ask(n.member[m], kPublish, now.bound);
      emit(n, "a member writes the block and publishes");
    }
    if (now.hand != 0) {
      n = s;
      n.member[m].hand = 0;
      ask(n.member[m], kReturn, now.bound);
      emit(n, "a member gives the block back unwritten");
    }
    if (now.pin == 0 && pins && now.bound != 0 && (m == 0 || both_pin_)) {
      n = s;
      ask(n.member[m], kPin, now.bound);
      emit(n, "a member asks for a pin");
    }
    if (now.pin != 0) {
      n = s;
      n.member[m].pin = 0;
      ask(n.member[m], kUnpin, now.bound);
      emit(n, "a member gives its pin back");
    }
  }

  void accept(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &now = s.member[m];
    State n = s;
    if (s.claimed != now.epoch && rules_.accept) {
      return;  // the report will tell
    }
    Member &me = n.member[m];
    if (now.kind == kGrant) {
      me.hand = now.got;
    } else if (now.kind == kPublish) {
      me.doubt = 0;
    } else if (now.kind == kPin) {
      me.pin = now.got;
    }
    forget(me);
    emit(n, "a member accepts an answer");
  }

  // More than two are as good as two: they last until END.
  static uint8_t sum(uint8_t a, uint8_t b) { return a + b > 2 ? 2 : static_cast<uint8_t>(a + b); }

  // ---- reports ----------------------------------------------------------------------------------

  void report(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &now = s.member[m];
    if (now.bound == s.now.epoch) {
      return;
    }
    State n = s;
    Member &me = n.member[m];
    Own &o = n.now;
    switch (now.report) {
      case kNoReport:
        // what was asked of the owner before and is not accepted will never be; a publication is
        // in doubt
        forget(me);
        if (now.flags == 0) {
          me.bound = s.now.epoch;
          emit(n, "a member that has nothing turns to the successor");
          break;
        }
        me.report = kBegun;
        o.stage[m] = 0;
        // an earlier one may have been cut short, or have ended here without being accepted there
        o.pins[m] = rules_.kept_until_end ? sum(o.pins[m], o.named[m]) : uint8_t{0};
        o.named[m] = 0;
        emit(n, "BEGIN");
        break;
      case kBegun:
        me.report = kNamed;
        o.stage[m] = now.hand != 0 && rules_.holds_reported;
        if (now.doubt != 0) {
          me.got = publish(o, m, now.doubt);
        }
        if (now.pin != 0 && rules_.pins_reported) {
          o.named[m]++;
        }
        emit(n, "EXTENT, DOUBT, PIN");
        break;
      default:
        end(n, m);
        emit(n, "END");
        break;
    }
    if (now.report == kNamed || now.report == kBegun) {
      n = s;
      n.member[m].report = kNoReport;
      n.member[m].got = 0;
      emit(n, "the report is cut short");
    }
  }

  void end(State &n, uint8_t m) const {
    Member &me = n.member[m];
    Own &o = n.now;
    o.owes[m] = 0;
    o.pins[m] = rules_.end_replaces ? o.named[m] : sum(o.pins[m], o.named[m]);
    o.named[m] = 0;
    if (o.holder == m && o.stage[m] == 0 && rules_.unnamed_returns) {
      o.holder = kOwner;
    }
    o.stage[m] = 0;
    me.report = kNoReport;
    me.got = 0;
    if (n.claimed == o.epoch) {
      me.bound = o.epoch;
      me.doubt = 0;
    }
  }

  const Rules rules_;
  const bool both_pin_;
  const uint8_t epochs_, writes_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Ledger>().main(argc, argv);
}
