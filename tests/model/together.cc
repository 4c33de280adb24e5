// SPDX-License-Identifier: Apache-2.0
// Owns the model in which the parts meet (proto 7 to 10): two standby slots that claim again and
// again and may crash, one block, a writer that fills and publishes it and reports to each new
// owner, and a reader that validates its copy with claims and entry read in any order. Lines are
// atomic here.
//
// Each owner goes on serving until it notices that it is outbid, which it may never do.
#include "engine.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Together {
public:
  struct Rules {
    bool two_records = true;
    bool accept = true;
    bool accept_resolution = true;
    bool keep_doubt = true;
    bool compare_active = true;
    bool compare_version = true;
    bool drain_decision = true;
  };

  enum Entry : uint8_t { kFree, kPublished, kHeld };
  enum OwnerStep : uint8_t { kIdle, kReadClaims, kScan, kCopy, kReread, kActivate, kServe };
  enum WriterStep : uint8_t {
    kRests,
    kAcceptGrant,
    kFilling,
    kFilled,
    kAsked,
    kAcceptPublished,
    kWaits,
    kAcceptResolved
  };
  enum ReaderStep : uint8_t { kStart, kLookup, kCopying, kCheck, kSuccess };

  struct ClaimLine {
    uint8_t claimed, active, area;
  };
  struct Area {
    uint8_t state, version, seed;
  };
  struct Owner {
    uint8_t step, epoch, next, higher, base, base_area, area, state, version, heard;
  };
  struct State {
    ClaimLine line[2];
    Area area[4];
    Owner owner[2];
    uint8_t content, crashes;
    uint8_t writer, id, asked, read, higher, hand_back;
    uint8_t reader, epoch, at, version, bytes, seen, highest, entry;
  };

  static constexpr const char *kName = "together";
  static constexpr const char *kCovers =
      "two slots with re-claims and a crash, one block, doubt, reports, a validated reader";
  static constexpr Mutant<Rules> kMutants[] = {
      {"one-record", &Rules::two_records, "7",
       "claiming changes only `claimed`; `active` is never cleared"},
      {"no-accept", &Rules::accept, "7", "grants and publications count only after accept()"},
      {"resolution-not-accepted", &Rules::accept_resolution, "9",
       "the answer that resolves a doubt is accepted by the same rule"},
      {"reuse-in-doubt", &Rules::keep_doubt, "9", "a block in doubt is neither written nor reused"},
      {"active-not-compared", &Rules::compare_active, "7",
       "a read counts only in the area of the highest `active`"},
      {"version-not-compared", &Rules::compare_version, "10",
       "the same version must still be there"},
      {"answer-before-drain", &Rules::drain_decision, "7",
       "a decision is on the medium before its answer"},
  };
  static constexpr const char *kMarks[] = {"read success",
                                           "success under a later owner",
                                           "success of a second publication",
                                           "doubt resolved: published",
                                           "doubt resolved: in hand",
                                           "crash"};

  Together(const Rules &rules, Mode mode)
      : rules_(rules), counter_max_(mode == Mode::kLong ? 4 : 3), id_max_(3) {}

  State initial() const {
    State s{};
    s.line[0] = {epoch(1, 0), epoch(1, 0), 0};
    s.area[0] = {kPublished, 1, epoch(1, 0)};
    s.owner[0].step = kServe;
    s.owner[0].epoch = epoch(1, 0);
    s.owner[0].state = kPublished;
    s.owner[0].version = s.content = s.id = 1;
    s.owner[0].heard = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (int i = 0; i < 2; i++) {
      if (s.owner[i].step != kIdle && s.crashes == 0) {
        State n = s;
        n.owner[i] = Owner{};
        n.crashes = 1;
        emit(n, "a process crashes and its slot is taken again");
      }
      if (s.owner[i].step == kServe) {
        serve(s, i, emit);
        hear(s, i, emit);
      } else {
        candidate(s, i, emit);
      }
    }
    writer(s, emit);
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.reader == kSuccess && s.bytes != s.version) {
      return "a read reported success with bytes of another publication";
    }
    for (const Owner &o : s.owner) {
      const bool in_hand = s.writer == kFilling || s.writer == kFilled;
      if (o.step == kServe && o.heard && o.epoch >= top_claim(s) && in_hand && o.state != kHeld) {
        return "an owner that nobody outbids does not know that the writer has the block";
      }
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool ok = s.reader == kSuccess;
    const bool resolved = s.writer == kAcceptResolved;
    return ok | (ok && s.epoch != epoch(1, 0)) << 1 | (ok && s.version > 1) << 2 |
           (resolved && !s.hand_back) << 3 | (resolved && s.hand_back) << 4 | (s.crashes != 0) << 5;
  }

  std::string show(const State &s) const {
    static const char entry[] = {'.', 'P', 'H'};
    std::string out;
    for (int i = 0; i < 2; i++) {
      const Owner &o = s.owner[i];
      out += text("[%d: claimed %d active %d area%d, step %d epoch %d %c%d heard%d] ", i,
                  s.line[i].claimed, s.line[i].active, s.line[i].area, o.step, o.epoch,
                  entry[o.state], o.version, o.heard);
    }
    for (const Area &a : s.area) {
      out += text("%c%d/%d ", entry[a.state], a.version, a.seed);
    }
    return out + text("bytes %d | W step %d id %d epoch %d | R step %d epoch %d area%d v%d got %d",
                      s.content, s.writer, s.id, s.asked, s.reader, s.epoch, s.at, s.version,
                      s.bytes);
  }

private:
  static uint8_t epoch(int counter, int slot) { return static_cast<uint8_t>(counter * 2 + slot); }
  static uint8_t top_claim(const State &s) {
    return std::max(s.line[0].claimed, s.line[1].claimed);
  }
  static uint8_t top_active(const State &s) { return std::max(s.line[0].active, s.line[1].active); }

  void candidate(const State &s, int i, Sink<State> &emit) const {
    const Owner &o = s.owner[i];
    State n = s;
    Owner &q = n.owner[i];
    switch (o.step) {
      case kIdle: {
        const int counter = top_claim(s) / 2 + 1;
        if (counter <= counter_max_) {
          q.step = kReadClaims;
          q.epoch = n.line[i].claimed = epoch(counter, i);
          if (!rules_.two_records) {
            n.line[i].active = n.line[i].area = 0;
          }
          emit(n, "a slot claims");
        }
        break;
      }
      case kReadClaims: {
        const ClaimLine &line = s.line[o.next];
        q.higher |= line.claimed > o.epoch;
        if (line.active > o.base && line.active < o.epoch) {
          q.base = line.active;
          q.base_area = line.area;
        }
        q.next++;
        if (q.next == 2) {
          q.step = kScan;
          if (q.higher != 0) {
            q = Owner{};
          }
        }
        emit(n, "a candidate reads a claim");
        break;
      }
      case kScan: {
        const Area &base = s.area[o.base_area];
        const bool readable = o.base != 0 && base.seed == o.base;
        q.state = readable ? base.state : uint8_t{kFree};
        q.version = readable ? base.version : 0;
        q.area = static_cast<uint8_t>(2 * i + (s.line[i].active != 0 && s.line[i].area == 2 * i));
        q.next = q.higher = q.base = q.base_area = 0;
        q.step = kCopy;
        emit(n, "a candidate scans its base");
        break;
      }
      case kCopy:
        n.area[o.area] = {o.state, o.version, o.epoch};
        q.step = kReread;
        emit(n, "a candidate copies forward");
        break;
      case kReread:
        q.step = kActivate;
        if (o.epoch < top_claim(s)) {
          q = Owner{};
        }
        emit(n, "a candidate rereads the claims");
        break;
      default:
        n.line[i].active = o.epoch;
        n.line[i].area = o.area;
        q.step = kServe;
        q.heard = 0;
        emit(n, "a candidate activates");
        break;
    }
  }

  void decide(State &n, int i, Entry state, uint8_t version) const {
    Owner &o = n.owner[i];
    o.state = state;
    o.version = version;
    if (rules_.drain_decision) {
      write_line(n, i);
    }
  }

  static void write_line(State &n, int i) {
    const Owner &o = n.owner[i];
    n.area[o.area] = {o.state, o.version, o.epoch};
  }

  void serve(const State &s, int i, Sink<State> &emit) const {
    const Owner &o = s.owner[i];
    State n = s;
    if (o.epoch < top_claim(s)) {
      n.owner[i] = Owner{};
      emit(n, "an outbid owner steps down");
      n = s;
    }
    const Area &a = s.area[o.area];
    if (a.state != o.state || a.version != o.version) {
      write_line(n, i);
      emit(n, "a decision reaches the medium, late");
      n = s;
    }
    if (o.heard == 0) {
      return;
    }
    if (o.state == kPublished) {
      decide(n, i, kFree, 0);
      emit(n, "an owner evicts");
    } else if (o.state == kFree && s.writer == kRests && s.id < id_max_) {
      decide(n, i, kHeld, 0);
      answer(n, kAcceptGrant, o.epoch);
      emit(n, "an owner grants");
    } else if (o.state == kHeld && s.writer == kAsked && s.asked == o.epoch) {
      decide(n, i, kPublished, s.id);
      answer(n, kAcceptPublished, o.epoch);
      emit(n, "an owner publishes");
    }
  }

  static void answer(State &n, WriterStep step, uint8_t from) {
    n.writer = step;
    n.asked = from;
    n.read = n.higher = 0;
  }

  // The writer's report to the newest active owner: nothing, a block in hand, or a doubt.
  void hear(const State &s, int i, Sink<State> &emit) const {
    const Owner &o = s.owner[i];
    if (o.heard != 0 || o.epoch != top_active(s)) {
      return;
    }
    State n = s;
    n.owner[i].heard = 1;
    if (s.writer == kRests) {
      if (o.state == kHeld) {
        decide(n, i, kFree, 0);
      }
      emit(n, "W reports: nothing");
    } else if (s.writer == kFilling || s.writer == kFilled) {
      decide(n, i, kHeld, 0);
      emit(n, "W reports: in hand");
    } else if (s.writer == kWaits) {
      answer(n, kAcceptResolved, o.epoch);
      n.hand_back = 0;
      if (o.state == kHeld) {
        State m = n;
        m.hand_back = 1;
        emit(m, "W reports its doubt: in hand");
        decide(n, i, kPublished, s.id);
      }
      emit(n, "W reports its doubt: published");
    }
  }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.writer) {
      case kAcceptGrant:
      case kAcceptPublished:
      case kAcceptResolved:
        for (int j = 0; j < 2; j++) {
          if (!(s.read >> j & 1)) {
            n = s;
            n.read |= static_cast<uint8_t>(1 << j);
            n.higher |= s.line[j].claimed > s.asked;
            if (n.read == 3) {
              accepted(n);
            }
            emit(n, "W reads a claim");
          }
        }
        break;
      case kFilling:
        n.content = s.id;
        n.writer = kFilled;
        emit(n, "W fills the block");
        break;
      case kFilled:
        for (const Owner &o : s.owner) {
          if (o.step == kServe && o.heard != 0) {
            n = s;
            n.writer = kAsked;
            n.asked = o.epoch;
            emit(n, "W asks to publish");
          }
        }
        refill(s, emit, "W aborts and fills again");
        break;
      case kAsked:
        if (top_active(s) > s.asked) {
          n.writer = kWaits;
          n.asked = 0;
          emit(n, "W sees a newer owner: in doubt");
        }
        break;
      default:
        break;
    }
    if (!rules_.keep_doubt && s.writer == kWaits) {
      refill(s, emit, "W reuses the block in doubt");
    }
  }

  void accepted(State &n) const {
    const bool needs = n.writer == kAcceptResolved ? rules_.accept_resolution : rules_.accept;
    const bool outbid = n.higher != 0 && needs;
    n.read = n.higher = n.asked = 0;
    if (n.writer == kAcceptGrant) {
      n.writer = outbid ? kRests : kFilling;
      n.id = static_cast<uint8_t>(n.id + (outbid ? 0 : 1));
    } else if (outbid) {
      n.writer = kWaits;
    } else {
      n.writer = n.writer == kAcceptResolved && n.hand_back ? kFilled : kRests;
    }
    n.hand_back = 0;
  }

  void refill(const State &s, Sink<State> &emit, const char *label) const {
    if (s.id < id_max_) {
      State n = s;
      n.writer = kFilling;
      n.id++;
      emit(n, label);
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:  // any active record there is: what it read may be old by the time it is used
        for (const ClaimLine &line : s.line) {
          if (line.active != 0) {
            n = s;
            n.reader = kLookup;
            n.epoch = line.active;
            n.at = line.area;
            emit(n, "R takes an active record");
          }
        }
        break;
      case kLookup: {
        const Area &a = s.area[s.at];
        if (a.state == kPublished && a.seed == s.epoch) {
          n.version = a.version;
          n.reader = kCopying;
        } else {
          restart(n);
        }
        emit(n, "R looks up");
        break;
      }
      case kCopying:
        n.bytes = s.content;
        n.reader = kCheck;
        emit(n, "R copies");
        break;
      case kCheck:
        check(s, emit);
        break;
      default:
        restart(n);
        emit(n, "R starts again");
        break;
    }
  }

  void check(const State &s, Sink<State> &emit) const {
    for (int k = 0; k < 3; k++) {
      if (s.seen >> k & 1) {
        continue;
      }
      State n = s;
      n.seen |= static_cast<uint8_t>(1 << k);
      if (k < 2) {
        n.highest = std::max(s.highest, s.line[k].active);
      } else {
        const Area &a = s.area[s.at];
        const bool same = a.version == s.version || !rules_.compare_version;
        n.entry = a.state == kPublished && same && a.seed == s.epoch;
      }
      if (n.seen == 7) {
        if (n.entry && (n.highest == n.epoch || !rules_.compare_active)) {
          n.reader = kSuccess;
          n.seen = n.highest = n.entry = 0;
        } else {
          restart(n);
        }
      }
      emit(n, k < 2 ? "R reads a claim" : "R reads the entry");
    }
  }

  static void restart(State &n) {
    n.reader = n.epoch = n.at = n.version = n.bytes = n.seen = n.highest = n.entry = 0;
  }

  const Rules rules_;
  const int counter_max_;
  const uint8_t id_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Together>().main(argc, argv);
}
