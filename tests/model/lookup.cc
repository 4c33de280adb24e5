// SPDX-License-Identifier: Apache-2.0
// Owns the model of an index lookup in two waves (proto 10): a key whose first group may be full
// and whose entry then lies in the second, announced by the first group's spill flag. The owner
// inserts, removes, evicts a neighbour and may crash; the reader's cache lies.
//
// Kept small: each group has one slot, and after a crash the copied area is taken to be the same
// lines (copying forward is the take-over model's matter).
#include "caches.hpp"

namespace kvpool::model {
namespace {

class Lookup {
public:
  struct Rules {
    bool drain_spill = true;
    bool follow_spill = true;
    bool set_spill = true;
    bool look_in_both = true;
    bool entries_stay = true;
    bool acquire_first = true;
    bool acquire_second = true;
    bool drain_entry = true;
  };

  enum Host { kOwner, kReader };
  enum Line { kFirst, kSpill, kSecond };
  // What a slot holds: nothing, the neighbour, or the key in its first or second publication.
  enum Slot : uint8_t { kEmpty, kNeighbour, kKeyV1, kKeyV2 };
  enum OwnerStep : uint8_t {
    kIdle,
    kDrainSpill,
    kInsertSecond,
    kDrainInsert,
    kDrainRemove,
    kMoveClear
  };
  enum ReaderStep : uint8_t { kStart, kFirstWave, kSecondAcquire, kSecondWave, kHit, kMiss };

  struct State {
    Memory<2, 3> mem;
    uint8_t mirror[3];  // the owner's DRAM
    uint8_t owner, target, puts, crashes, evictions;
    uint8_t answered;  // the key is published, answered, and its removal has not begun
    uint8_t removed;   // newest publication whose removal was answered
    uint8_t reader, loaded, first, spill, must_hit, floor, got;
  };

  static constexpr const char *kName = "lookup";
  static constexpr const char *kCovers =
      "two-wave lookup against insert, removal and crash of the owner";
  static constexpr Mutant<Rules> kMutants[] = {
      {"spill-not-drained", &Rules::drain_spill, "10",
       "the spill flag is drained before an insert into the second group"},
      {"spill-not-set", &Rules::set_spill, "10",
       "an insert into the second group sets the spill flag"},
      {"spill-not-followed", &Rules::follow_spill, "10", "a set spill flag sends the lookup on"},
      {"insert-looks-in-one", &Rules::look_in_both, "10",
       "the owner looks in both groups before an insert"},
      {"entries-move", &Rules::entries_stay, "10", "entries never move"},
      {"first-not-acquired", &Rules::acquire_first, "10", "the first wave acquires its lines"},
      {"second-not-acquired", &Rules::acquire_second, "10", "the second wave acquires its lines"},
      {"entry-not-drained", &Rules::drain_entry, "7", "the entry is drained before the answer"},
  };
  static constexpr const char *kMarks[] = {"hit in the first group", "hit in the second group",
                                           "miss", "had to hit", "crash"};

  Lookup(const Rules &rules, Mode mode)
      : rules_(rules), evictions_max_(mode == Mode::kLong ? 3 : 1) {}

  State initial() const {
    State s{};
    s.mem.medium[kFirst] = s.mirror[kFirst] = kNeighbour;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    spontaneous(s, &State::mem, 7u << (kReader * 3), emit);
    owner(s, emit);
    reader(s, emit);
    if (s.crashes == 0) {
      crash(s, emit);
    }
  }

  const char *violation(const State &s) const {
    if (s.reader == kMiss && s.must_hit != 0) {
      return "a lookup missed a key that was published all the while";
    }
    if (s.reader == kHit && s.got <= s.floor) {
      return "a lookup hit a publication that was removed before it began";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool hit = s.reader == kHit;
    return (hit && s.loaded == 3) | (hit && s.loaded == 7) << 1 | (s.reader == kMiss) << 2 |
           (hit && s.must_hit) << 3 | (s.crashes != 0) << 4;
  }

  std::string show(const State &s) const {
    return text(
        "medium first%d spill%d second%d | owner step %d mirror %d%d%d answered %d removed %d "
        "| reader step %d first%d spill%d must_hit%d floor%d",
        s.mem.medium[0], s.mem.medium[1], s.mem.medium[2], s.owner, s.mirror[0], s.mirror[1],
        s.mirror[2], s.answered, s.removed, s.reader, s.first, s.spill, s.must_hit, s.floor);
  }

private:
  static bool is_key(uint8_t slot) { return slot >= kKeyV1; }
  static uint8_t publication(uint8_t slot) { return static_cast<uint8_t>(slot - kNeighbour); }

  static void write(State &n, uint8_t line, uint8_t value) {
    n.mirror[line] = value;
    n.mem.stream(kOwner, line, value);
  }

  // drain_strict reads back the last line written: it vouches for that one.
  static bool drained(const State &s, uint8_t line) {
    return s.mem.buffer[kOwner][line] == 0 && s.mem.fabric[kOwner][line] == 0;
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.owner) {
      case kIdle:
        decide(s, emit);
        break;
      case kDrainSpill:
        if (!rules_.drain_spill || drained(s, kSpill)) {
          n.owner = kInsertSecond;
          emit(n, "O drained the spill flag");
        }
        break;
      case kInsertSecond:
        write(n, kSecond, static_cast<uint8_t>(kNeighbour + s.puts));
        n.target = kSecond;
        n.owner = kDrainInsert;
        emit(n, "O inserts in the second group");
        break;
      case kDrainInsert:
        if (!rules_.drain_entry || drained(s, s.target)) {
          n.owner = kIdle;
          n.answered = 1;
          emit(n, "O answers the put");
        }
        break;
      case kDrainRemove:
        if (drained(s, s.target)) {
          n.owner = kIdle;
          n.removed = s.puts;
          emit(n, "O answers the removal");
        }
        break;
      case kMoveClear:
        if (drained(s, kFirst)) {
          write(n, kSecond, kEmpty);
          n.owner = kIdle;
          emit(n, "O clears the old place");
        }
        break;
      default:
        break;
    }
  }

  void decide(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool in_first = is_key(s.mirror[kFirst]);
    const bool in_second = is_key(s.mirror[kSecond]);
    const bool exists = in_first || (rules_.look_in_both && in_second);
    if (!exists && s.puts < 2) {
      n.puts++;
      if (s.mirror[kFirst] == kEmpty) {
        write(n, kFirst, static_cast<uint8_t>(kNeighbour + n.puts));
        n.target = kFirst;
        n.owner = kDrainInsert;
        emit(n, "O inserts in the first group");
      } else if (s.mirror[kSecond] == kEmpty) {
        if (rules_.set_spill && s.mirror[kSpill] == 0) {
          write(n, kSpill, 1);
        }
        n.owner = kDrainSpill;
        emit(n, "O raises the spill flag");
      }
    }
    if (in_first || in_second) {
      n = s;
      n.target = in_first ? kFirst : kSecond;
      write(n, n.target, kEmpty);
      n.answered = n.must_hit = 0;
      n.owner = kDrainRemove;
      emit(n, "O removes the key");
    }
    if (s.mirror[kFirst] == kNeighbour && s.evictions < evictions_max_) {
      n = s;
      write(n, kFirst, kEmpty);
      n.evictions++;
      emit(n, "O evicts the neighbour");
    }
    if (s.mirror[kFirst] == kEmpty && s.evictions > 0 && s.evictions < evictions_max_) {
      n = s;
      write(n, kFirst, kNeighbour);
      emit(n, "O inserts the neighbour");
    }
    if (!rules_.entries_stay && s.mirror[kFirst] == kEmpty && in_second) {
      n = s;
      write(n, kFirst, s.mirror[kSecond]);
      n.owner = kMoveClear;
      emit(n, "O moves the entry");
    }
  }

  // Buffered stores are lost or have left; what is in the fabric lands during the settle. The next
  // owner knows what its scan finds, and a publication that it finds counts (doubt resolves so).
  void crash(const State &s, Sink<State> &emit) const {
    for (int line = 0; line < 3; line++) {
      if (s.mem.fabric[kOwner][line] != 0) {
        return;
      }
    }
    State n = s;
    n.crashes++;
    for (int line = 0; line < 3; line++) {
      n.mem.buffer[kOwner][line] = 0;
      n.mirror[line] = s.mem.medium[line];
    }
    n.owner = kIdle;
    n.answered = is_key(n.mirror[kFirst]) || is_key(n.mirror[kSecond]);
    if (n.answered == 0) {
      n.must_hit = 0;
    }
    emit(n, "O crashes, the next one scans");
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:
        n.must_hit = s.answered;
        n.floor = s.removed;
        if (rules_.acquire_first) {
          n.mem.flush_now(kReader, kFirst);
          n.mem.flush_now(kReader, kSpill);
        }
        n.reader = kFirstWave;
        emit(n, "R acquires the first group");
        break;
      case kFirstWave:
        for (uint8_t line = kFirst; line <= kSpill; line++) {
          if (s.loaded >> line & 1) {
            continue;
          }
          n = s;
          n.loaded |= static_cast<uint8_t>(1 << line);
          (line == kFirst ? n.first : n.spill) = s.mem.load(kReader, line);
          if (n.loaded == 3) {
            finish_first(n);
          }
          emit(n, line == kFirst ? "R loads the first group" : "R loads the spill flag");
        }
        break;
      case kSecondAcquire:
        if (rules_.acquire_second) {
          n.mem.flush_now(kReader, kSecond);
        }
        n.reader = kSecondWave;
        emit(n, "R acquires the second group");
        break;
      case kSecondWave:
        n.got = s.mem.load(kReader, kSecond);
        n.loaded = 7;
        n.reader = is_key(n.got) ? kHit : kMiss;
        n.got = is_key(n.got) ? publication(n.got) : 0;
        emit(n, "R loads the second group");
        break;
      default:
        n.reader = n.loaded = n.first = n.spill = n.must_hit = n.floor = n.got = 0;
        emit(n, "R starts again");
        break;
    }
  }

  void finish_first(State &n) const {
    if (is_key(n.first)) {
      n.reader = kHit;
      n.got = publication(n.first);
    } else {
      n.reader = n.spill != 0 && rules_.follow_spill ? kSecondAcquire : kMiss;
    }
    n.first = 0;
  }

  const Rules rules_;
  const uint8_t evictions_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Lookup>().main(argc, argv);
}
