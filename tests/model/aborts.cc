// SPDX-License-Identifier: Apache-2.0
// Owns the model of aborted blocks (proto 8): a member reserves a block, two ranks may write its
// shard, one of them joins late; the block is aborted at any time, and the next put streams into it
// once the owner's answer is accepted. Owners change, ranks are given up by time and write on.
//
// The two lists of a rank's threads and of the members of a group are one: a thread of the
// reserver's own process is waited for by the same count. Lines are atomic, drains are steps.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Aborts {
public:
  struct Rules {
    bool closed_first = true;
    bool counted_first = true;
    bool looked = true;
    bool asked = true;
    bool writers_waited = true;
    bool asked_again = true;
    bool late_taints = true;
    bool own_count = true;
  };

  enum Reserver : uint8_t { kReserved, kClosed, kAsked, kReused };
  enum Line : uint8_t { kBlank, kOpen, kDone };
  enum Phase : uint8_t { kIdle, kBegun, kLookedOrCounted, kWriting };

  struct Rank {
    uint8_t phase;     // of its write
    uint8_t counted;   // it acknowledges nothing that this write is older than
    uint8_t open;      // what it saw, when it looks before it counts
    uint8_t there;     // joined
    uint8_t given_up;  // by time: it may be in the middle of a write
    uint8_t awaited;   // by the owner
    uint8_t noticed;   // and knows
    uint8_t before;    // its write was older than that
    uint8_t tries;
  };
  struct State {
    uint8_t line, reserver, tainted, epoch, refused;
    Rank rank[2];
  };

  static constexpr const char *kName = "aborts";
  static constexpr const char *kCovers =
      "a block aborted while two ranks write it, one joins late; take-overs, ranks given up";
  static constexpr Mutant<Rules> kMutants[] = {
      {"asked-before-closed", &Rules::closed_first, "8",
       "shards are closed before the group is asked"},
      {"looked-before-counted", &Rules::counted_first, "8",
       "a writer counts itself before it looks whether the shard is open"},
      {"not-looked", &Rules::looked, "8", "nobody begins to write what was aborted"},
      {"not-asked", &Rules::asked, "8", "an aborted block waits for the word of the group"},
      {"acknowledged-at-once", &Rules::writers_waited, "8",
       "a rank acknowledges when those that wrote as it read the notice are done"},
      {"taken-for-done", &Rules::asked_again, "8", "another owner is asked anew"},
      {"late-untainted", &Rules::late_taints, "8",
       "a rank given up by time leaves the aborted block tainted"},
      {"joined-looks-not", &Rules::own_count, "8",
       "who joins after the group was asked finds the shards closed"},
  };
  static constexpr const char *kMarks[] = {
      "a late writer is refused", "the block waits for a writer", "reused while nobody writes",
      "reused tainted under a write", "asked again by another owner", "done, then aborted"};

  Aborts(const Rules &rules, Mode mode) : rules_(rules), tries_(mode == Mode::kLong ? 3 : 2) {}

  State initial() const {
    State s{};
    s.line = kOpen;
    s.epoch = 1;
    s.rank[0].there = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    reserver(s, emit);
    for (int m = 0; m < 2; m++) rank(s, m, emit);
    if (s.epoch < 3) {
      State n = s;
      n.epoch++;
      for (Rank &r : n.rank) r.awaited = r.noticed = r.before = 0;
      if (s.reserver == kAsked) n.reserver = rules_.asked_again ? kClosed : kReused;
      emit(n, "take-over");
    }
  }

  const char *violation(const State &s) const {
    for (const Rank &r : s.rank) {
      if (r.phase != kWriting || s.reserver != kReused) continue;
      if (!r.given_up) return "a block is given to a put while a rank writes a shard of it";
      if (!s.tainted) return "stores of a rank given up reach a block that nobody verifies";
    }
    return nullptr;
  }

  bool settled(const State &s) const {
    return s.reserver == kReused && s.rank[0].phase == kIdle && s.rank[1].phase == kIdle;
  }

  uint32_t marks(const State &s) const {
    const bool writes = s.rank[0].phase == kWriting || s.rank[1].phase == kWriting;
    return (s.refused && s.reserver == kReused) | (s.reserver == kAsked && writes) << 1 |
           (s.reserver == kReused && !writes) << 2 | (s.reserver == kReused && writes) << 3 |
           (s.epoch == 3 && s.reserver == kAsked) << 4 |
           (s.line == kDone && s.reserver == kAsked) << 5;
  }

  std::string show(const State &s) const {
    std::string out = text("epoch %d line %d reserver %d tainted %d ", s.epoch, s.line, s.reserver,
                           s.tainted);
    for (int m = 0; m < 2; m++) {
      const Rank &r = s.rank[m];
      out += text("[%c phase %d counted %d there %d given up %d awaited %d noticed %d before %d] ",
                  "AB"[m], r.phase, r.counted, r.there, r.given_up, r.awaited, r.noticed, r.before);
    }
    return out;
  }

private:
  void reserver(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reserver) {
      case kReserved:
        n.reserver = kClosed;
        if (rules_.closed_first) n.line = kBlank;
        emit(n, "the reserver closes the shard");
        break;
      case kClosed:
        if (!rules_.asked) {
          n.reserver = kReused;
          emit(n, "the block is reused at once");
          break;
        }
        n.reserver = kAsked;
        for (Rank &r : n.rank) r.awaited = r.there && !r.given_up;
        emit(n, "the owner is asked, and tells the group");
        break;
      case kAsked:
        if (s.rank[0].awaited || s.rank[1].awaited) break;
        n.reserver = kReused;
        if (!rules_.closed_first) n.line = kBlank;
        n.tainted = rules_.late_taints && (s.rank[0].given_up || s.rank[1].given_up);
        emit(n, "the answer is accepted, the block is reused");
        break;
      default: break;
    }
  }

  void rank(const State &s, int m, Sink<State> &emit) const {
    const Rank &now = s.rank[m];
    if (!now.there) {
      State n = s;
      n.rank[m].there = 1;
      emit(n, "a rank joins");
      return;
    }
    write(s, m, emit);
    notice(s, m, emit);
    if (!now.given_up && now.phase != kIdle) {
      State n = s;
      n.rank[m].given_up = 1;
      n.rank[m].awaited = n.rank[m].noticed = n.rank[m].before = 0;
      emit(n, "a rank is given up by time");
    }
  }

  // Counts itself, looks, writes, ends. One that was given up goes on where it stopped.
  void write(const State &s, int m, Sink<State> &emit) const {
    const Rank &now = s.rank[m];
    const bool looks = rules_.looked && (rules_.own_count || m == 0);
    const bool open = s.line == kOpen || !looks;
    State n = s;
    Rank &r = n.rank[m];
    switch (now.phase) {
      case kIdle:
        if (now.tries >= tries_ || now.given_up) break;
        r.phase = kBegun;
        r.tries++;
        emit(n, "a rank begins");
        break;
      case kBegun:
        if (rules_.counted_first) r.counted = 1;
        if (!rules_.counted_first) r.open = open;
        r.phase = kLookedOrCounted;
        emit(n, "it counts itself");
        break;
      case kLookedOrCounted:
        r.counted = 1;
        r.phase = kWriting;
        if (!(rules_.counted_first ? open : now.open)) {
          r.phase = kIdle;
          r.counted = r.before = 0;
          n.refused = 1;
        }
        r.open = 0;
        emit(n, "it looks, and writes if the shard is open");
        break;
      default:
        r.phase = kIdle;
        r.counted = r.before = 0;
        if (s.reserver != kReused) n.line = kDone;  // its check, over whatever stands there
        emit(n, "it is done");
        break;
    }
  }

  void notice(const State &s, int m, Sink<State> &emit) const {
    const Rank &now = s.rank[m];
    if (!now.awaited) return;
    State n = s;
    Rank &r = n.rank[m];
    if (!now.noticed) {
      r.noticed = 1;
      r.before = now.counted && rules_.writers_waited;
      emit(n, "a rank reads the notice");
    } else if (!now.before) {
      r.awaited = r.noticed = 0;
      emit(n, "it acknowledges");
    }
  }

  const Rules rules_;
  const uint8_t tries_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Aborts>().main(argc, argv);
}
