// SPDX-License-Identifier: Apache-2.0
// Owns the model of clearing and bypassing a namespace (proto 8): its line carries an epoch that
// enters every key, each lookup wave acquires the line together with the groups, and what was
// answered binds every call begun afterwards. Puts that began before the clear may end after it. A
// reader may keep what a lookup found: it looks at the line alone, after its copy. The namespace
// may be removed and its place given to another while a request for it is on its way.
#include "caches.hpp"

namespace kvpool::model {
namespace {

class Namespaces {
public:
  struct Rules {
    bool acquire_line = true;
    bool drain_line = true;
    bool epoch_in_key = true;
    bool compare_epoch = true;
    bool heed_bypass = true;
    bool acquire_group = true;
    bool bind_record = true;
    bool look_acquires = true;
    bool request_fits = true;
  };

  enum Host { kOwner, kReader };
  enum Line { kSpace, kOldGroup, kNewGroup };  // the key has another place in either epoch
  enum OwnerStep : uint8_t { kIdle, kDrain };
  enum ReaderStep : uint8_t { kStart, kWave, kLook, kHit, kMiss };
  static constexpr uint8_t kBypass = 2;  // bits of the namespace line; bit 0 is the epoch
  static constexpr uint8_t kOther = 4;   // removed, and its place is another's by now

  struct State {
    Memory<2, 3> mem;
    uint8_t owner, wants;  // the decision under way: the line that is being written
    uint8_t space;         // the owner's mirror of the namespace line
    uint8_t answered_epoch, answered_bypass, answered_put[2];
    uint8_t published[2];
    uint8_t handle;  // epoch that the reader's handle knows
    uint8_t reader, loaded, line, entry, from_epoch;
    uint8_t floor, bypassed, must_hit;
    uint8_t record;  // epoch, plus one, of a hit that the reader kept
    uint8_t asked;   // a bypass of this namespace: 1 on its way, 2 done, 3 refused
    uint8_t wrong;   // it bypassed another's
  };

  static constexpr const char *kName = "namespaces";
  static constexpr const char *kCovers =
      "clear, bypass and removal of a namespace against lookups, kept records and late puts";
  static constexpr Mutant<Rules> kMutants[] = {
      {"line-not-acquired", &Rules::acquire_line, "8", "each wave acquires the namespace's line"},
      {"line-not-drained", &Rules::drain_line, "7", "the line is drained before the answer"},
      {"epoch-not-in-key", &Rules::epoch_in_key, "8", "the namespace's epoch enters its keys"},
      {"epoch-not-compared", &Rules::compare_epoch, "8",
       "a wave that finds another epoch starts again with its keys"},
      {"bypass-ignored", &Rules::heed_bypass, "8",
       "bypass binds every call begun after its answer"},
      {"group-not-acquired", &Rules::acquire_group, "10", "each wave acquires the groups"},
      {"record-not-bound", &Rules::bind_record, "10",
       "the second look at a kept record compares the namespace's line"},
      {"look-not-acquired", &Rules::look_acquires, "10",
       "the second look acquires the namespace's line"},
      {"request-names-place", &Rules::request_fits, "10",
       "a request to clear, bypass or remove names the namespace, not its place alone"},
  };
  static constexpr const char *kMarks[] = {"hit before the clear", "hit after the clear",
                                           "miss after the clear", "miss by bypass",
                                           "late put of the old epoch", "hit by a record",
                                           "record of before the clear",
                                           "request for a removed namespace"};

  Namespaces(const Rules &rules, Mode) : rules_(rules) {}

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    spontaneous(s, &State::mem, 7u << (kReader * 3), emit);
    owner(s, emit);
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.reader == kHit && s.from_epoch < s.floor) {
      return "a lookup begun after a clear hit what was cleared";
    }
    if (s.reader == kHit && s.bypassed != 0) {
      return "a lookup begun after a bypass hit";
    }
    if (s.wrong != 0) {
      return "a request for a removed namespace bound the one that got its place";
    }
    if (s.reader == kMiss && s.must_hit != 0) {
      return "a lookup missed a key that was there all the while";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool hit = s.reader == kHit;
    const bool miss = s.reader == kMiss;
    return (hit && !s.answered_epoch) | (hit && s.from_epoch == 1) << 1 |
           (miss && s.floor == 1) << 2 | (miss && s.bypassed) << 3 |
           (s.answered_epoch && !s.answered_put[0] && s.published[0]) << 4 |
           (hit && s.record && s.from_epoch == s.record - 1) << 5 |
           (miss && s.record && s.floor > s.record - 1) << 6 | (s.asked == 3) << 7;
  }

  std::string show(const State &s) const {
    return text(
        "medium line %d old %d new %d | owner step %d mirror %d answered epoch %d bypass %d | R "
        "step "
        "%d handle %d line %d entry %d floor %d bypassed%d must_hit%d",
        s.mem.medium[0], s.mem.medium[1], s.mem.medium[2], s.owner, s.space, s.answered_epoch,
        s.answered_bypass, s.reader, s.handle, s.line, s.entry, s.floor, s.bypassed, s.must_hit);
  }

private:
  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.owner == kDrain) {
      const bool line = s.wants == kSpace;
      if (s.mem.on_medium(kOwner) || (line && !rules_.drain_line)) {
        answer(n);
        emit(n, "the owner answers");
      }
      return;
    }
    n.owner = kDrain;
    n.wants = kSpace;
    serve(s, n, emit);
    if (s.asked == 0 && s.space < kBypass) {
      State m = s;
      m.asked = 1;
      emit(m, "somebody sees the namespace and asks to bypass it");
    }
    if (s.space & kOther) {
      return;
    }
    if (s.asked == 1) {
      State m = n;
      m.space = kOther | 1;
      m.must_hit = 0;
      m.mem.stream(kOwner, kSpace, m.space);
      emit(m, "the owner removes the namespace, and another's gets its place");
    }
    if ((s.space & 1) == 0) {
      State m = n;
      m.space |= 1;
      m.must_hit = 0;
      m.mem.stream(kOwner, kSpace, m.space);
      emit(m, "the owner clears the namespace");
    }
    if ((s.space & kBypass) == 0) {
      State m = n;
      m.space |= kBypass;
      m.must_hit = 0;
      m.mem.stream(kOwner, kSpace, m.space);
      emit(m, "the owner bypasses the namespace");
    }
    // a put's key was made with the epoch its call began in: 0 may come late, 1 needs the clear
    for (uint8_t e = 0; e <= s.answered_epoch; e++) {
      if (s.published[e] == 0) {
        n = s;
        n.owner = kDrain;
        n.wants = static_cast<uint8_t>(kOldGroup + e);
        n.published[e] = 1;
        n.mem.stream(kOwner, n.wants, 1);
        emit(n, "the owner publishes a put");
      }
    }
  }

  // `n`: the owner has decided about the line.
  void serve(const State &s, State n, Sink<State> &emit) const {
    if (s.asked != 1) {
      return;
    }
    if ((s.space & kOther) && rules_.request_fits) {
      n = s;
      n.asked = 3;
      emit(n, "the owner refuses a request for a namespace that is not there");
      return;
    }
    n.asked = 2;
    n.wrong = (s.space & kOther) != 0;
    n.space |= kBypass;
    n.must_hit = 0;
    n.mem.stream(kOwner, kSpace, n.space);
    emit(n, "the owner bypasses as it was asked");
  }

  static void answer(State &n) {
    if (n.wants == kSpace) {
      n.answered_epoch = n.space & 1;
      n.answered_bypass = (n.space & (kBypass | kOther)) != 0;
    } else {
      n.answered_put[n.wants - kOldGroup] = 1;
    }
    n.owner = n.wants = 0;
  }

  static uint8_t group(uint8_t epoch) { return static_cast<uint8_t>(kOldGroup + epoch); }

  void begin_wave(State &n) const {
    if (rules_.acquire_line) {
      n.mem.flush_now(kReader, kSpace);
    }
    if (rules_.acquire_group) {
      n.mem.flush_now(kReader, group(n.handle));
      if (!rules_.epoch_in_key) {
        n.mem.flush_now(kReader, kOldGroup);
      }
    }
    n.reader = kWave;
    n.loaded = n.line = n.entry = 0;
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:
        n.floor = s.answered_epoch;
        n.bypassed = s.answered_bypass;
        // found for sure: published under the epoch in force, which no decision is changing
        n.must_hit =
            s.answered_put[s.space & 1] && (s.space & 1) == s.answered_epoch && s.space < kBypass;
        begin_wave(n);
        emit(n, "R starts a wave");
        if (s.record != 0) {
          n = s;
          n.floor = s.answered_epoch;
          n.bypassed = s.answered_bypass;
          n.reader = kLook;
          if (rules_.look_acquires) {
            n.mem.flush_now(kReader, kSpace);
          }
          emit(n, "R has read by its record, and looks again");
        }
        break;
      case kLook:
        n.line = s.mem.load(kReader, kSpace);
        n.from_epoch = static_cast<uint8_t>(s.record - 1);
        n.reader = rules_.bind_record && (n.line >= kBypass || (n.line & 1) > n.from_epoch)
                       ? kMiss
                       : kHit;
        emit(n, "R loads the namespace's line again");
        break;
      case kWave:
        for (uint8_t k = 0; k < 2; k++) {
          if (s.loaded >> k & 1) {
            continue;
          }
          n = s;
          n.loaded |= static_cast<uint8_t>(1 << k);
          if (k == 0) {
            n.line = s.mem.load(kReader, kSpace);
          } else {
            load_entry(n);
          }
          if (n.loaded == 3) {
            finish(n);
          }
          emit(n, k == 0 ? "R loads the namespace's line" : "R loads the group");
        }
        break;
      default:
        if (s.reader == kHit && s.record == 0) {
          n.record = static_cast<uint8_t>(s.from_epoch + 1);
        }
        n.reader = n.loaded = n.line = n.entry = n.from_epoch = 0;
        n.floor = n.bypassed = n.must_hit = 0;
        emit(n, "R starts again");
        break;
    }
  }

  void load_entry(State &n) const {
    n.from_epoch = n.handle;
    n.entry = n.mem.load(kReader, group(n.handle));
    if (n.entry == 0 && !rules_.epoch_in_key) {  // the same key in either epoch: the same place
      n.from_epoch = 0;
      n.entry = n.mem.load(kReader, kOldGroup);
    }
  }

  void finish(State &n) const {
    if ((n.line & 1) != n.handle && rules_.compare_epoch) {
      n.handle = n.line & 1;
      begin_wave(n);
      return;
    }
    const bool bypass = n.line >= kBypass && rules_.heed_bypass;
    n.reader = n.entry != 0 && !bypass ? kHit : kMiss;
    n.loaded = 0;
  }

  const Rules rules_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Namespaces>().main(argc, argv);
}
