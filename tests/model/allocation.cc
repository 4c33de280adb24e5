// SPDX-License-Identifier: Apache-2.0
// Owns the model of space (proto 8): extents of two half-extent blocks or one whole block, granted,
// used, returned, evicted and given another size class; an owner that crashes between its lines; a
// member that dies while a rank of its group may still write through a ticket.
//
// An extent is two halves, kept as a bitmap. The index is reduced to which halves a published entry
// covers. Take-over and report are one step each; their inner order is the reports model's matter.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Allocation {
public:
  struct Rules {
    bool map_before_answer = true;
    bool entry_before_map = true;
    bool class_needs_no_entry = true;
    bool class_needs_owner = true;
    bool grant_free_only = true;
    bool held_stays_held = true;
    bool unnamed_returns = true;
    bool doubt_needs_holder = true;
    bool wait_for_quarantine = true;
    bool wait_for_group = true;
    bool report_names_doubt = true;
  };

  static constexpr int kExtents = 2;
  static constexpr uint8_t kOwner = 2;  // holder of an extent: member 0, member 1 or the owner
  enum Work : uint8_t { kNone, kGrantUnsaid, kEntryWritten, kMapWritten };

  struct State {
    uint8_t holder[kExtents], whole[kExtents], used[kExtents];  // map, class, halves under an entry
    uint8_t hand[2][kExtents];                                  // halves a member may write
    uint8_t doubt[2], doubt_extent[2], doubt_last[2];           // halves of a publication under way
    uint8_t entered[2];                                         // its entry was written
    uint8_t reported[2];
    uint8_t work, work_member, work_extent, work_halves;
    uint8_t crashes, classes;
    uint8_t dead, quiet, acknowledged;  // of member 0; the rank of its group acknowledged
    uint8_t lost;
  };

  static constexpr const char *kName = "allocation";
  static constexpr const char *kCovers =
      "grants, returns, size classes, eviction, crash between lines, death of a member with a "
      "group";
  static constexpr Mutant<Rules> kMutants[] = {
      {"answer-before-map", &Rules::map_before_answer, "7",
       "the map line is drained before the grant is answered"},
      {"map-before-entry", &Rules::entry_before_map, "8",
       "a publication that returns its extent writes the entry first, then the map"},
      {"class-change-under-entries", &Rules::class_needs_no_entry, "8",
       "a class changes only when nothing refers to the extent"},
      {"class-change-while-held", &Rules::class_needs_owner, "8",
       "a class changes only when the owner holds the extent"},
      {"grant-without-bitmap", &Rules::grant_free_only, "8",
       "a partly used extent is granted with its free blocks only"},
      {"others-extents-granted", &Rules::held_stays_held, "8",
       "after a take-over others' extents are granted to nobody"},
      {"unnamed-kept", &Rules::unnamed_returns, "8",
       "what the map gives a member and its report does not name is the owner's again"},
      {"doubt-without-holder", &Rules::doubt_needs_holder, "8",
       "a doubt is published only where its member still holds the extent"},
      {"no-quarantine", &Rules::wait_for_quarantine, "8",
       "a dead member stays holder until its quarantine is over"},
      {"group-not-asked", &Rules::wait_for_group, "8",
       "a dead member's blocks return only when its group has acknowledged"},
      {"doubt-not-reported", &Rules::report_names_doubt, "8", "a report names what is in doubt"},
  };
  static constexpr const char *kMarks[] = {"published",
                                           "whole block published",
                                           "partly used grant",
                                           "crash with a publication under way",
                                           "dead member's extent returned",
                                           "both members hold"};

  Allocation(const Rules &rules, Mode mode)
      : rules_(rules), crashes_max_(mode == Mode::kLong ? 2 : 1) {}

  State initial() const {
    State s{};
    s.holder[0] = s.holder[1] = kOwner;
    s.reported[0] = s.reported[1] = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t m = 0; m < 2; m++) {
      if (m != 0 || s.dead == 0) {
        member(s, m, emit);
        if (s.work == kNone && s.reported[m] == 0) {
          report(s, m, emit);
        }
      }
    }
    if (s.work == kNone) {
      owner(s, emit);
    } else {
      finish(s, emit);
    }
    if (s.crashes < crashes_max_) {
      crash(s, emit);
    }
    death(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.lost != 0) {
      return "a publication was answered that no entry ever held";
    }
    for (int x = 0; x < kExtents; x++) {
      if ((s.hand[0][x] & s.hand[1][x]) != 0) {
        return "two may write the same block";
      }
      for (int m = 0; m < 2; m++) {
        const uint8_t own = s.doubt_extent[m] == x ? s.doubt[m] : 0;
        // another's doubt binds as long as the map says that it holds the extent
        const bool binds = s.doubt_extent[1 - m] == x && s.holder[x] == 1 - m;
        const uint8_t other = binds ? s.doubt[1 - m] : 0;
        if ((s.hand[m][x] & s.used[x]) != 0) {
          return "a published block may be written";
        }
        if ((s.hand[m][x] & (own | other)) != 0) {
          return "a block in doubt may be written";
        }
      }
    }
    return nullptr;
  }

  // Nothing leaks: every extent ends with the owner or with a live member that knows of it.
  bool settled(const State &s) const {
    for (int x = 0; x < kExtents; x++) {
      if (s.holder[x] != kOwner && (s.hand[s.holder[x]][x] == 0 || (s.holder[x] == 0 && s.dead))) {
        return false;
      }
    }
    return s.work == kNone && s.doubt[1] == 0 && (s.doubt[0] == 0 || s.dead) && s.reported[1] &&
           (s.reported[0] || s.dead);
  }

  uint32_t marks(const State &s) const {
    uint32_t bits = (s.used[0] == 1) | (s.used[0] == 3 && s.whole[0]) << 1;
    for (int x = 0; x < kExtents; x++) {
      bits |= (s.used[x] != 0 && s.hand[1][x] != 0) << 2;
      bits |= (s.dead && s.holder[x] == 1 && s.acknowledged) << 4;
    }
    bits |= (s.crashes != 0 && s.doubt[0] != 0 && s.reported[0] == 0) << 3;
    return bits | (s.hand[0][0] && s.hand[1][1]) << 5;
  }

  std::string show(const State &s) const {
    std::string out;
    for (int x = 0; x < kExtents; x++) {
      out += text("[extent %d holder %c%s used %d hands %d %d] ", x, "ABO"[s.holder[x]],
                  s.whole[x] ? " whole" : "", s.used[x], s.hand[0][x], s.hand[1][x]);
    }
    return out + text("doubt %d@%d %d@%d reported %d%d work %d(%c,%d) dead%d quiet%d ack%d",
                      s.doubt[0], s.doubt_extent[0], s.doubt[1], s.doubt_extent[1], s.reported[0],
                      s.reported[1], s.work, "AB"[s.work_member], s.work_extent, s.dead, s.quiet,
                      s.acknowledged);
  }

private:
  static void forget_work(State &n) { n.work = n.work_member = n.work_extent = n.work_halves = 0; }

  // Halves that no entry covers, as the owner reckons them from the extent's class.
  uint8_t free_halves(const State &s, int x) const {
    if (!rules_.grant_free_only) {
      return 3;
    }
    if (s.whole[x] != 0) {
      return (s.used[x] & 1) == 0 ? 3 : 0;
    }
    return static_cast<uint8_t>(~s.used[x] & 3);
  }

  void owner(const State &s, Sink<State> &emit) const {
    for (uint8_t x = 0; x < kExtents; x++) {
      for (uint8_t m = 0; m < 2; m++) {
        grant(s, x, m, emit);
      }
      for (uint8_t half = 1; half < 3; half++) {
        if ((s.used[x] & half) != 0) {
          State n = s;
          n.used[x] &= s.whole[x] ? 0 : static_cast<uint8_t>(~half);
          emit(n, "the owner evicts");
        }
      }
      const bool may = (s.used[x] == 0 || !rules_.class_needs_no_entry) &&
                       (s.holder[x] == kOwner || !rules_.class_needs_owner);
      if (may && s.classes < 2) {
        State n = s;
        n.whole[x] = !s.whole[x];
        n.classes++;
        emit(n, "the owner changes the class");
      }
    }
    for (uint8_t m = 0; m < 2; m++) {
      if (s.doubt[m] != 0 && s.reported[m] != 0 && (m != 0 || s.dead == 0)) {
        publish(s, m, emit);
      }
    }
  }

  // Map line, drained; then the answer.
  void grant(const State &s, uint8_t x, uint8_t m, Sink<State> &emit) const {
    const bool served = s.reported[m] != 0 && (m != 0 || s.dead == 0);
    const bool unreported = s.holder[x] < 2 && s.reported[s.holder[x]] == 0;
    const bool owned = s.holder[x] == kOwner || (unreported && !rules_.held_stays_held);
    if (!served || !owned || free_halves(s, x) == 0 || s.hand[m][1 - x] != 0) {
      return;
    }
    State n = s;
    n.work = kGrantUnsaid;
    n.work_member = m;
    n.work_extent = x;
    if (rules_.map_before_answer) {
      n.holder[x] = m;
      emit(n, "the owner writes the map: granted");
    } else {
      n.hand[m][x] = free_halves(s, x);
      emit(n, "the owner answers a grant");
    }
  }

  // A publication's request is served: the entry line, then the map line if it used the extent up.
  void publish(const State &s, uint8_t m, Sink<State> &emit) const {
    State n = s;
    const uint8_t x = s.doubt_extent[m];
    n.work_member = m;
    n.work_extent = x;
    if (!rules_.entry_before_map && s.doubt_last[m] != 0) {
      n.work = kMapWritten;
      n.work_halves = s.doubt[m];
      n.holder[x] = kOwner;
      emit(n, "the owner writes the map: returned");
    } else {
      n.work = kEntryWritten;
      n.used[x] |= s.doubt[m];
      n.entered[m] = 1;
      emit(n, "the owner writes the entry");
    }
  }

  void finish(const State &s, Sink<State> &emit) const {
    const uint8_t m = s.work_member;
    const uint8_t x = s.work_extent;
    State n = s;
    forget_work(n);
    if (s.work == kGrantUnsaid) {
      if (rules_.map_before_answer) {
        const bool reads = m != 0 || s.quiet == 0;  // a QUIET member takes no answer
        n.hand[m][x] = reads ? free_halves(s, x) : 0;
        emit(n, "the owner answers the grant");
      } else {
        n.holder[x] = m;
        emit(n, "the owner writes the map: granted");
      }
      return;
    }
    if (s.work == kMapWritten) {
      n.used[x] |= s.work_halves;
      n.entered[m] = 1;
    } else if (s.doubt_last[m] != 0) {
      if (s.holder[x] == m) {  // first the map, then (a later step) the answer
        n = s;
        n.holder[x] = kOwner;
        emit(n, "the owner writes the map: returned");
        return;
      }
    }
    end_doubt(n, m);
    emit(n, "the owner answers: published");
  }

  static void end_doubt(State &n, int m) {
    if (n.doubt[m] != 0 && n.entered[m] == 0) {
      n.lost = 1;
    }
    n.doubt[m] = n.doubt_extent[m] = n.doubt_last[m] = n.entered[m] = 0;
  }

  void member(const State &s, uint8_t m, Sink<State> &emit) const {
    for (uint8_t x = 0; x < kExtents; x++) {
      const uint8_t hand = s.hand[m][x];
      if (hand == 0 || s.doubt[m] != 0) {
        continue;
      }
      // publish one block: the whole extent in the whole class, else one half
      for (uint8_t block = s.whole[x] ? 3 : 1; block < 4; block++) {
        if (block == 3 ? s.whole[x] == 0 : (hand & block) == 0) {
          continue;
        }
        State n = s;
        n.doubt[m] = block == 3 ? hand : block;
        n.doubt_extent[m] = x;
        n.hand[m][x] &= static_cast<uint8_t>(~n.doubt[m]);
        n.doubt_last[m] = n.hand[m][x] == 0;
        emit(n, "a member asks to publish");
      }
      if (s.reported[m] != 0 && s.work == kNone) {
        State n = s;
        n.hand[m][x] = 0;
        n.holder[x] = kOwner;
        emit(n, "a member returns an extent");
      }
    }
  }

  // BEGIN to END in one step: what is not named returns, and a doubt is settled by index and map.
  void report(const State &s, uint8_t m, Sink<State> &emit) const {
    State n = s;
    n.reported[m] = 1;
    const uint8_t doubt = rules_.report_names_doubt ? s.doubt[m] : 0;
    for (uint8_t x = 0; x < kExtents; x++) {
      const bool named = s.hand[m][x] != 0 || (doubt != 0 && s.doubt_extent[m] == x);
      if (s.holder[x] == m && !named && rules_.unnamed_returns) {
        n.holder[x] = kOwner;
      }
    }
    if (doubt != 0) {
      const uint8_t x = s.doubt_extent[m];
      const bool there = (s.used[x] & doubt) == doubt;
      if (!there && (s.holder[x] == m || !rules_.doubt_needs_holder)) {
        emit(n, "a report ends; its doubt will be published");
        return;
      }
      if (there && s.doubt_last[m] != 0 && s.holder[x] == m) {
        n.holder[x] = kOwner;  // the publication had used the extent up
      }
      end_doubt(n, m);
      emit(n, "a report ends; its doubt was published");
      return;
    }
    emit(n, "a report ends");
  }

  void crash(const State &s, Sink<State> &emit) const {
    State n = s;
    n.crashes++;
    forget_work(n);
    n.reported[0] = n.reported[1] = 0;
    emit(n, "the owner crashes, another takes over");
  }

  // Member 0 dies. It may still write until it is QUIET, a rank with its tickets until it has
  // acknowledged; then nothing of it is under way.
  void death(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.dead == 0) {
      n.dead = 1;
      emit(n, "member A dies");
      return;
    }
    if (s.quiet == 0) {
      n.quiet = 1;
      quiesce(n);
      emit(n, "A is QUIET");
    }
    if (s.acknowledged == 0) {
      n = s;
      n.acknowledged = 1;
      quiesce(n);
      emit(n, "A's group acknowledges");
    }
    const bool may = (s.quiet != 0 || !rules_.wait_for_quarantine) &&
                     (s.acknowledged != 0 || !rules_.wait_for_group);
    if (may && s.work == kNone) {
      for (uint8_t x = 0; x < kExtents; x++) {
        if (s.holder[x] == 0) {
          n = s;
          n.holder[x] = kOwner;
          emit(n, "the owner takes a dead member's extent");
        }
      }
    }
  }

  static void quiesce(State &n) {
    if (n.quiet != 0 && n.acknowledged != 0) {
      n.hand[0][0] = n.hand[0][1] = 0;
      n.doubt[0] = n.doubt_extent[0] = n.doubt_last[0] = n.entered[0] = 0;
    }
  }

  const Rules rules_;
  const uint8_t crashes_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Allocation>().main(argc, argv);
}
