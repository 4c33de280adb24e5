// SPDX-License-Identifier: Apache-2.0
// Owns the model of a member's lease against its observer's verdict (proto 6, 8): renewal, drift of
// both clocks, suspicion, quarantine, taint, QUIET, and a writer that checks its lease before a
// chunk.
//
// Time is whole ticks; drift is one tick in six, far more than the 1 % of A7, and the margin is
// scaled with it. Two worlds, chosen by the first step: in the bounded one a chunk that was started
// is written within kChunk ticks and must never meet a reused block; in the unbounded one a writer
// may stop between check and store for ever (A5), and its store must meet a tainted block or none.
#include "engine.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Lease {
public:
  struct Rules {
    bool renew_in_time = true;
    bool check_after_store = true;
    bool expiry_from_t0 = true;
    bool margin = true;
    bool check_before_chunk = true;
    bool dead_for_ever = true;
    bool quarantine = true;
    bool taint = true;
    bool quiet_is_proof = true;
    bool full_lease = true;
  };

  static constexpr int kLease = 6;   // L
  static constexpr int kMargin = 2;  // what the factor 0.97 stands for
  static constexpr int kQuarantine = 6;
  static constexpr int kChunk = 3;
  static constexpr int kDrift = 6;

  enum World : uint8_t { kUnchosen, kBounded, kUnbounded };
  enum Heartbeat : uint8_t { kRests, kStored, kLanded };

  struct State {
    uint8_t world;
    uint8_t expiry;                    // ticks left on the member's own clock
    uint8_t heartbeat, heartbeat_age;  // a renewal under way and the ticks since its t0
    uint8_t writing, writing_age;
    uint8_t lapsed, exited;  // dead for ever by its own rule; process gone
    uint8_t changed;         // the counter moved and the observer has not looked
    uint8_t observed;        // ticks since the observer saw it move, by its clock
    uint8_t suspected, quarantined, quiet, reused, tainted;
    uint8_t member_slow, observer_fast;  // ticks until that clock may be wrong again
    uint8_t wrong;
  };

  static constexpr const char *kName = "lease";
  static constexpr const char *kCovers = "lease renewal, drift, verdict, quarantine, taint, QUIET";
  static constexpr Mutant<Rules> kMutants[] = {
      {"renewed-late", &Rules::renew_in_time, "6", "an expired lease is never renewed"},
      {"checked-before-only", &Rules::check_after_store, "6",
       "the old expiry is checked again after the store was drained"},
      {"expiry-from-t1", &Rules::expiry_from_t0, "6",
       "the new expiry counts from before the store"},
      {"no-margin", &Rules::margin, "6",
       "the member gives up earlier than the observer, by the margin"},
      {"chunk-not-checked", &Rules::check_before_chunk, "6",
       "a writer checks its expiry before each chunk"},
      {"lapsed-goes-on", &Rules::dead_for_ever, "6",
       "an incarnation that lapsed is dead for ever and joins anew"},
      {"no-quarantine", &Rules::quarantine, "8", "a dead member's blocks wait out the quarantine"},
      {"no-taint", &Rules::taint, "8", "blocks taken back by time alone are tainted"},
      {"quiet-by-guess", &Rules::quiet_is_proof, "6",
       "QUIET is written only when the process is gone"},
      {"impatient-observer", &Rules::full_lease, "6", "an observer waits the whole lease"},
  };
  static constexpr const char *kMarks[] = {"renewed",
                                           "lapsed",
                                           "suspected",
                                           "reused by time",
                                           "reused at once by QUIET",
                                           "late store met a tainted block"};

  Lease(const Rules &rules, Mode mode)
      : rules_(rules), drift_(mode == Mode::kLong ? kDrift - 1 : kDrift) {}

  State initial() const {
    State s{};
    s.expiry = kLease - kMargin;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    if (s.world == kUnchosen) {
      for (const World world : {kBounded, kUnbounded}) {
        State n = s;
        n.world = world;
        emit(n, world == kBounded ? "bounded world" : "unbounded world");
      }
      return;
    }
    tick(s, emit);
    observer(s, emit);
    if (s.exited == 0) {
      heartbeat(s, emit);
      writer(s, emit);
      State n = s;
      n.exited = 1;
      n.heartbeat = n.heartbeat_age = n.writing = n.writing_age = 0;
      emit(n, "the member's process ends");
    }
  }

  const char *violation(const State &s) const {
    return s.wrong == 1 ? "a writer that was given up stored into a reused block" : nullptr;
  }

  uint32_t marks(const State &s) const {
    return (s.expiry == kLease - kMargin && s.observed > 0) | (s.lapsed != 0) << 1 |
           (s.suspected != 0) << 2 | (s.reused && s.tainted) << 3 | (s.reused && !s.tainted) << 4 |
           (s.wrong == 2) << 5;
  }

  std::string show(const State &s) const {
    return text(
        "expiry %d heartbeat %d(%d) writing %d(%d) lapsed%d exited%d | observed %d suspected%d "
        "quarantine %d quiet%d reused%d tainted%d",
        s.expiry, s.heartbeat, s.heartbeat_age, s.writing, s.writing_age, s.lapsed, s.exited,
        s.observed, s.suspected, s.quarantined, s.quiet, s.reused, s.tainted);
  }

private:
  static uint8_t up(uint8_t value, int by, int max) {
    return static_cast<uint8_t>(std::min(value + by, max));
  }

  void tick(const State &s, Sink<State> &emit) const {
    if (s.world == kBounded && s.writing != 0 && s.writing_age >= kChunk) {
      return;  // the chunk ends first
    }
    for (int slow = 0; slow <= (s.member_slow == 0); slow++) {
      for (int fast = 0; fast <= (s.observer_fast == 0); fast++) {
        State n = s;
        n.expiry = static_cast<uint8_t>(std::max(0, s.expiry - (slow ? 0 : 1)));
        n.heartbeat_age = s.heartbeat != kRests ? up(s.heartbeat_age, slow ? 0 : 1, kLease) : 0;
        n.writing_age = s.writing != 0 ? up(s.writing_age, 1, kChunk) : 0;
        if (s.suspected != 0) {
          n.quarantined = up(s.quarantined, fast ? 2 : 1, kQuarantine);
        } else {
          n.observed = up(s.observed, fast ? 2 : 1, kLease);
        }
        n.member_slow = slow ? drift_ : static_cast<uint8_t>(std::max(0, s.member_slow - 1));
        n.observer_fast = fast ? drift_ : static_cast<uint8_t>(std::max(0, s.observer_fast - 1));
        emit(n, slow ? (fast ? "tick, both clocks off" : "tick, member slow")
                     : (fast ? "tick, observer fast" : "tick"));
      }
    }
  }

  void observer(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.changed != 0 && s.suspected == 0) {
      n.changed = n.observed = 0;
      emit(n, "the observer sees the counter move");
    }
    const int patience = rules_.full_lease ? kLease : kLease / 2;
    if (s.changed == 0 && s.suspected == 0 && s.observed >= patience) {
      n = s;
      n.suspected = 1;
      n.observed = 0;
      emit(n, "the observer's verdict: dead");
    }
    if (s.suspected != 0 && s.quiet == 0 && (s.exited != 0 || !rules_.quiet_is_proof)) {
      n = s;
      n.quiet = 1;
      emit(n, "QUIET is written");
    }
    if (s.suspected != 0 && s.reused == 0) {
      n = s;
      n.reused = 1;
      n.tainted = s.quiet == 0 && rules_.taint;
      if (s.quiet != 0) {
        emit(n, "the block is reused, its holder QUIET");
      } else if (s.quarantined >= kQuarantine || !rules_.quarantine) {
        emit(n, "the block is reused after the quarantine");
      }
    }
  }

  void heartbeat(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.lapsed != 0 && rules_.dead_for_ever) {
      return;
    }
    if (s.heartbeat == kRests) {
      if (s.lapsed != 0) {  // only a mutant: the dead incarnation renews as if nothing were
        n.lapsed = 0;
        n.expiry = kLease - kMargin;
        n.changed = 1;
        emit(n, "the dead incarnation goes on");
      } else if (s.expiry > 0 || !rules_.renew_in_time) {
        n.heartbeat = kStored;
        n.heartbeat_age = 0;
        emit(n, "renewal: t0, store");
      } else {
        n.lapsed = 1;
        emit(n, "the member finds its lease expired");
      }
    } else if (s.heartbeat == kStored) {
      n.heartbeat = kLanded;
      n.changed = 1;
      emit(n, "renewal: the counter reaches the medium");
    } else {
      n.heartbeat = kRests;
      n.heartbeat_age = 0;
      if (s.expiry > 0 || !rules_.check_after_store || !rules_.renew_in_time) {
        const int margin = rules_.margin ? kMargin : 0;
        const int age = rules_.expiry_from_t0 ? s.heartbeat_age : 0;
        n.expiry = static_cast<uint8_t>(std::max(0, kLease - margin - age));
        emit(n, "renewal: t1, new expiry");
      } else {
        n.lapsed = 1;
        emit(n, "renewal: t1 past the expiry, dead for ever");
      }
    }
  }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.writing == 0) {
      if ((s.expiry > 0 && s.lapsed == 0) || !rules_.check_before_chunk) {
        n.writing = 1;
        n.writing_age = 0;
        emit(n, "the writer's lease holds: a chunk begins");
      }
      return;
    }
    n.writing = n.writing_age = 0;
    if (s.reused != 0) {
      n.wrong = s.world == kBounded || s.tainted == 0 ? 1 : 2;
    }
    emit(n, "the chunk is stored");
  }

  const Rules rules_;
  const uint8_t drift_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Lease>().main(argc, argv);
}
