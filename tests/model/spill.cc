// SPDX-License-Identifier: Apache-2.0
// Owns the model of spill flags over take-overs (proto 7, 10): a key's entry may stand in its
// second group, which lookups visit only where the first group says so. An owner that was outbid
// goes on inserting while its successor scans, in parts and so in any order, and copies forward
// what it found: the entry without the flag, if it looked at the flag first. A key whose flag is
// lost is published and missed for ever.
//
// Each group has one line for the key beside the flag. Lines are atomic, and one that was stored
// may be under way; caches are the lookup model's.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Spill {
public:
  struct Rules {
    bool said_anew = true;
    bool anew_on_medium = true;
    bool anew_before_active = true;
    bool drain_flag = true;
    bool set_flag = true;
    bool accept = true;
    bool compare_active = true;
    bool unreadable_is_set = true;
    bool one_of_a_key = true;
  };

  static constexpr int kOwners = 3;
  static constexpr uint8_t kNeighbour = 1, kKey = 2;  // what a line holds; 0: nothing
  enum OwnerStep : uint8_t { kOut, kClaims, kScans, kServes, kDrainsFlag, kInserts, kDrains };
  enum PutStep : uint8_t { kRests, kAsked, kAnswered, kDoubts };
  enum ReaderStep : uint8_t { kStart, kWave, kSecondWave, kHit, kMiss };

  struct Area {
    uint8_t first, flag, second;
    uint8_t flag_way, second_way;  // stored and not yet on the medium
  };
  struct Owner {
    uint8_t step, scanned;  // scanned: a bit for each line
    uint8_t first, flag, second;  // its mirror
  };
  struct State {
    Area area[kOwners];  // by owner: the epoch is the owner's number
    Owner owner[kOwners];
    uint8_t claimed, active, crashed;  // crashed: a bit for each owner
    uint8_t evictions, poisoned;       // poisoned: the active area's flag cannot be read
    uint8_t put, put_epoch, puts, removed;
    uint8_t accepted, absent;  // accepted: published for certain; absent: removed for certain
    uint8_t must_miss;
    uint8_t reader, loaded, in_area, must_hit, got_first, got_flag, got_active;
  };

  static constexpr const char *kName = "spill";
  static constexpr const char *kCovers =
      "spill flags over take-overs: zombie inserts, scans in any order, copies forward, crashes";
  static constexpr Mutant<Rules> kMutants[] = {
      {"flags-only-copied", &Rules::said_anew, "10",
       "a take-over says anew which groups spill, by the entries it found"},
      {"anew-in-mirror-only", &Rules::anew_on_medium, "10",
       "a flag said anew is written to the new area"},
      {"anew-after-active", &Rules::anew_before_active, "10",
       "flags are said anew before the activation"},
      {"flag-not-drained", &Rules::drain_flag, "10",
       "the spill flag is drained before an insert into the second group"},
      {"flag-not-set", &Rules::set_flag, "10",
       "an insert into the second group sets the spill flag"},
      {"put-not-accepted", &Rules::accept, "7", "a publication counts only after accept()"},
      {"active-not-compared", &Rules::compare_active, "10",
       "another highest `active` starts a lookup again"},
      {"unreadable-flag-ignored", &Rules::unreadable_is_set, "10",
       "a flag that cannot be read counts as set"},
      {"twins-kept", &Rules::one_of_a_key, "10",
       "a take-over that found two entries of one key hides one of them"},
  };
  static constexpr const char *kMarks[] = {
      "hit in the second group", "hit there under a successor", "a scan found no flag",
      "a doubt was resolved",    "crash",                       "flag unreadable",
      "hit in the first group",  "a scan found the key twice"};

  Spill(const Rules &rules, Mode mode) : rules_(rules), owners_(mode == Mode::kLong ? 3 : 2) {}

  State initial() const {
    State s{};
    s.area[0].first = s.owner[0].first = kNeighbour;
    s.owner[0].step = kServes;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t o = 0; o < owners_; o++) {
      landing(s, o, emit);
      if (s.owner[o].step >= kServes) {
        owner(s, o, emit);
        crash(s, o, emit);
      } else {
        candidate(s, o, emit);
      }
    }
    put(s, emit);
    reader(s, emit);
    if (s.poisoned == 0) {
      State n = s;
      n.poisoned = 1;
      emit(n, "the active area's flag becomes unreadable");
    }
  }

  const char *violation(const State &s) const {
    if (s.reader == kMiss && s.must_hit != 0) {
      return "a lookup missed a key that was published all the while";
    }
    if (s.reader == kHit && s.must_miss != 0) {
      return "a lookup hit what was removed before it began";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool second = s.reader == kHit && s.loaded == 15;
    const Owner &last = s.owner[s.claimed];
    return second | (second && s.in_area != 0) << 1 |
           (last.step == kScans && last.scanned == 7 && last.second == kKey && !last.flag) << 2 |
           (s.put == kAnswered && s.put_epoch != 0) << 3 | (s.crashed != 0) << 4 |
           (s.reader == kSecondWave && s.poisoned) << 5 |
           (s.reader == kHit && s.loaded == 7) << 6 |
           (last.step == kScans && last.scanned == 7 && last.first == kKey && last.second == kKey)
               << 7;
  }

  std::string show(const State &s) const {
    std::string out = text("claimed %d active %d ", s.claimed, s.active);
    for (int o = 0; o < owners_; o++) {
      const Area &a = s.area[o];
      out += text("[%d step %d first%d flag%d(%d) second%d(%d) mirror %d%d%d] ", o,
                  s.owner[o].step, a.first, a.flag, a.flag_way, a.second, a.second_way,
                  s.owner[o].first, s.owner[o].flag, s.owner[o].second);
    }
    return out + text("put %d@%d accepted%d | R %d in %d must_hit%d first%d flag%d", s.put,
                      s.put_epoch, s.accepted, s.reader, s.in_area, s.must_hit, s.got_first,
                      s.got_flag);
  }

private:
  void landing(const State &s, uint8_t o, Sink<State> &emit) const {
    if (s.area[o].flag_way != 0) {
      State n = s;
      n.area[o].flag_way = 0;
      n.area[o].flag = 1;
      emit(n, "the flag reaches the medium");
    }
    if (s.area[o].second_way != 0) {
      State n = s;
      n.area[o].second_way = 0;
      n.area[o].second = kKey;
      emit(n, "the second group's entry reaches the medium");
    }
  }

  // The host dies: what was under way has landed or is lost, in any subset.
  void crash(const State &s, uint8_t o, Sink<State> &emit) const {
    if (s.crashed != 0 || o != s.active) {
      return;
    }
    State n = s;
    n.crashed = 1;
    n.owner[o] = Owner{};
    n.area[o].flag_way = n.area[o].second_way = 0;
    emit(n, "the owner's host dies");
  }

  void owner(const State &s, uint8_t o, Sink<State> &emit) const {
    const Owner &me = s.owner[o];
    State n = s;
    switch (me.step) {
      case kServes:
        decide(s, o, emit);
        break;
      case kDrainsFlag:
        if (s.area[o].flag_way == 0 || !rules_.drain_flag) {
          n.owner[o].step = kInserts;
          emit(n, "the owner has drained the flag");
        }
        break;
      case kInserts:
        n.owner[o].second = kKey;
        n.area[o].second_way = 1;
        n.owner[o].step = kDrains;
        emit(n, "the owner inserts in the second group");
        break;
      case kDrains:
        if (s.area[o].second_way == 0) {  // vouches for the last line written
          n.owner[o].step = kServes;
          answer(n, o);
          emit(n, "the owner answers the put");
        }
        break;
      default:
        break;
    }
  }

  // An answer carries its epoch: P takes none of another owner's.
  static void answer(State &n, uint8_t o) {
    if (n.put == kAsked && n.put_epoch == o) {
      n.put = kAnswered;
      n.removed = 0;
    }
  }

  void decide(const State &s, uint8_t o, Sink<State> &emit) const {
    const Owner &me = s.owner[o];
    State n = s;
    const bool here = me.first == kKey || me.second == kKey;
    if (s.put == kAsked && s.put_epoch == o) {
      if (here) {
        answer(n, o);
        emit(n, "the owner has the publication already");
      } else if (me.first == 0) {
        n.owner[o].first = n.area[o].first = kKey;
        answer(n, o);
        emit(n, "the owner inserts in the first group");
      } else if (me.flag != 0 || !rules_.set_flag) {
        n.owner[o].step = kInserts;
        emit(n, "the first group is full and spills already");
      } else {
        n.owner[o].flag = n.area[o].flag_way = 1;
        n.owner[o].step = kDrainsFlag;
        emit(n, "the owner sets the flag");
      }
    }
    if (me.first == kNeighbour && s.evictions < 2) {
      n = s;
      n.owner[o].first = n.area[o].first = 0;
      n.evictions++;
      emit(n, "the owner evicts the neighbour");
    }
    if (me.first == 0 && s.evictions == 1) {
      n = s;
      n.owner[o].first = n.area[o].first = kNeighbour;
      emit(n, "the owner inserts the neighbour");
    }
    if (here) {
      n = s;
      (me.first == kKey ? n.owner[o].first : n.owner[o].second) = 0;
      (me.first == kKey ? n.area[o].first : n.area[o].second) = 0;
      n.accepted = n.must_hit = 0;
      n.removed = 1;
      n.absent = s.put == kRests && s.claimed == o;  // nobody outbids it: the removal is accepted
      emit(n, "the owner removes the key");
    }
  }

  void candidate(const State &s, uint8_t o, Sink<State> &emit) const {
    const Owner &me = s.owner[o];
    State n = s;
    if (me.step == kOut && s.active + 1 == o && s.claimed + 1 == o) {
      n.claimed = o;
      n.owner[o].step = kClaims;
      emit(n, "a candidate claims");
    }
    if (me.step == kClaims) {
      n = s;
      n.owner[o].step = kScans;
      emit(n, "the candidate has settled");
    }
    if (me.step == kScans) {
      scan(s, o, emit);
    }
  }

  void scan(const State &s, uint8_t o, Sink<State> &emit) const {
    const Area &base = s.area[o - 1];
    for (uint8_t line = 0; line < 3; line++) {
      if (s.owner[o].scanned >> line & 1) {
        continue;
      }
      State n = s;
      Owner &me = n.owner[o];
      me.scanned |= static_cast<uint8_t>(1 << line);
      if (line == 0) {
        me.first = base.first;
      } else if (line == 1) {
        me.flag = base.flag;
      } else {
        me.second = base.second;
      }
      emit(n, line == 0   ? "the candidate scans the first group"
              : line == 1 ? "the candidate scans the flag"
                          : "the candidate scans the second group");
    }
    if (s.owner[o].scanned != 7) {
      return;
    }
    State n = s;
    activate(n, o);
    emit(n, "the candidate copies forward and activates");
  }

  void activate(State &n, uint8_t o) const {
    Owner &me = n.owner[o];
    const uint8_t copied = me.flag;
    if (me.first == kKey && me.second == kKey && rules_.one_of_a_key) {
      me.second = 0;
    }
    if (me.second == kKey && rules_.said_anew) {
      me.flag = 1;
    }
    const bool written = rules_.anew_on_medium && rules_.anew_before_active;
    n.area[o] = {me.first, written ? me.flag : copied, me.second, 0, 0};
    if (!rules_.anew_before_active && me.flag != copied) {
      n.area[o].flag_way = 1;
    }
    me.step = kServes;
    me.scanned = 0;
    n.active = o;
    n.poisoned = 0;
  }

  void put(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.put) {
      case kRests:
        if (s.accepted == 0 && s.puts < 2) {
          n.puts++;
          n.absent = n.must_miss = 0;
          n.put = kAsked;
          n.put_epoch = s.active;
          emit(n, "P asks for the publication");
        }
        break;
      case kAnswered:
        if (s.claimed == s.put_epoch || !rules_.accept) {
          n.put = kRests;
          n.put_epoch = 0;
          n.accepted = s.removed == 0;
          emit(n, "P accepts the answer");
        } else {
          n.put = kDoubts;
          emit(n, "P does not accept the answer");
        }
        break;
      default:
        break;
    }
    if ((s.put == kDoubts || s.put == kAsked) && s.active != s.put_epoch) {
      n = s;
      n.put = kAsked;
      n.put_epoch = s.active;
      emit(n, "P reports its doubt to the successor");
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:
        n.must_hit = s.accepted;
        n.must_miss = s.absent;
        begin(n);
        emit(n, "R starts a lookup");
        break;
      case kWave:
        wave(s, emit);
        break;
      case kSecondWave:
        n.loaded = 15;
        n.reader = s.area[s.in_area].second == kKey ? kHit : kMiss;
        n.got_flag = 0;
        emit(n, "R loads the second group");
        break;
      default:
        n.reader = kStart;
        n.loaded = n.must_hit = n.must_miss = 0;
        emit(n, "R starts again");
        break;
    }
  }

  static void begin(State &n) {
    n.reader = kWave;
    n.loaded = n.got_first = n.got_flag = n.got_active = 0;
  }

  void wave(const State &s, Sink<State> &emit) const {
    const Area &area = s.area[s.in_area];
    for (uint8_t line = 0; line < 3; line++) {
      if (s.loaded >> line & 1) {
        continue;
      }
      State n = s;
      n.loaded |= static_cast<uint8_t>(1 << line);
      if (line == 0) {
        n.got_first = area.first == kKey;
      } else if (line == 1) {
        const bool unreadable = s.poisoned != 0 && s.in_area == s.active;
        n.got_flag = unreadable ? rules_.unreadable_is_set : area.flag;
      } else {
        n.got_active = s.active;
      }
      if (n.loaded == 7) {
        finish(n);
      }
      emit(n, line == 0 ? "R loads the first group" : line == 1 ? "R loads the flag"
                                                                : "R loads the claims");
    }
  }

  void finish(State &n) const {
    if (n.got_active != n.in_area && rules_.compare_active) {
      n.in_area = n.got_active;  // a session lasts until another active one is seen
      begin(n);
      return;
    }
    n.reader = n.got_first != 0 ? kHit : n.got_flag != 0 ? kSecondWave : kMiss;
    n.got_first = n.got_flag = n.got_active = 0;
  }

  const Rules rules_;
  const uint8_t owners_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Spill>().main(argc, argv);
}
