// SPDX-License-Identifier: Apache-2.0
// Owns the model of an entry's life after publication (proto 8, 10): DRAINING with its grace and
// its revival, HIDDEN, the clearing of entries and the next grant of their blocks, for one key that
// is put again and again into two blocks through two entry lines.
//
// A reader is quick or slow, chosen when it starts: the grace is longer than a quick read, so a
// quick read that found the key must succeed unless the key was removed; a slow one must only never
// lie.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Eviction {
public:
  struct Rules {
    bool keep_grace = true;
    bool accept_draining = true;
    bool clear_before_grant = true;
    bool drain_clear = true;
    bool hidden_stays = true;
    bool hidden_no_obstacle = true;
    bool revive_same_version = true;
    bool drain_revive = true;
    bool remove_hides_draining = true;
    bool drain_remove = true;
    bool compare_version = true;
  };

  enum Entry : uint8_t { kEmpty, kPublished, kDraining, kHidden };
  enum WriterStep : uint8_t { kIdle, kHolds, kAsks };
  enum ReaderStep : uint8_t { kStart, kLookup, kCopy, kCheck, kSuccess, kFailed, kMiss };
  enum Pending : uint8_t { kNothing, kAnswerPut, kAnswerRemove };

  struct State {
    uint8_t medium[2], mirror[2];  // entry lines and what the owner's DRAM says of them
    uint8_t content[2];            // publication whose bytes a block holds
    uint8_t pending;               // the answer that waits for the drain
    uint8_t writer, hand, next_version;
    uint8_t answered,
        removed;  // the key is there for all; newest version whose removal was answered
    uint8_t reader, quick, looked, slot, version, bytes, must_hit, floor, excused;
  };

  static constexpr const char *kName = "eviction";
  static constexpr const char *kCovers =
      "DRAINING, grace, revival, HIDDEN, clearing and the next grant of the block";
  static constexpr Mutant<Rules> kMutants[] = {
      {"no-grace", &Rules::keep_grace, "10", "a DRAINING entry is cleared only after the grace"},
      {"draining-refused", &Rules::accept_draining, "10",
       "a read that began earlier accepts DRAINING with the same version"},
      {"grant-before-clear", &Rules::clear_before_grant, "8",
       "no block is granted that an entry of whatever state refers to"},
      {"clear-not-drained", &Rules::drain_clear, "10",
       "the cleared entry is drained before the grant"},
      {"hidden-revived", &Rules::hidden_stays, "10", "HIDDEN is never revived"},
      {"hidden-blocks-put", &Rules::hidden_no_obstacle, "10", "HIDDEN does not block a put"},
      {"revived-as-new", &Rules::revive_same_version, "10", "DRAINING is revived with its version"},
      {"revive-not-drained", &Rules::drain_revive, "7", "the revival is drained before its answer"},
      {"removal-skips-draining", &Rules::remove_hides_draining, "10",
       "a removal hides a DRAINING entry too"},
      {"removal-not-drained", &Rules::drain_remove, "7", "a removal is drained before its answer"},
      {"no-version", &Rules::compare_version, "10", "validation compares the version"},
  };
  static constexpr const char *kMarks[] = {"quick success",
                                           "slow success",
                                           "success on DRAINING",
                                           "slow read failed",
                                           "success after a revival or second put",
                                           "put beside HIDDEN"};

  Eviction(const Rules &rules, Mode mode)
      : rules_(rules), version_max_(mode == Mode::kLong ? 6 : 3) {}

  State initial() const {
    State s{};
    s.medium[0] = s.mirror[0] = line(kPublished, 1, 0);
    s.content[0] = 1;
    s.next_version = 2;
    s.answered = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (int slot = 0; slot < 2; slot++) {
      if (s.medium[slot] != s.mirror[slot]) {
        State n = s;
        n.medium[slot] = s.mirror[slot];
        emit(n, "an entry line reaches the medium");
      }
    }
    const bool drained = s.medium[0] == s.mirror[0] && s.medium[1] == s.mirror[1];
    if (s.pending != kNothing) {
      answer(s, drained, emit);
    } else if (drained) {
      owner_changes(s, emit);
      owner_put(s, emit);
    }
    if (s.pending == kNothing && (drained || !rules_.drain_clear)) {
      grant(s, emit);
    }
    if (s.writer == kHolds) {
      State n = s;
      n.writer = kAsks;
      emit(n, "W asks to publish");
    }
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (visible(s.medium[0]) && visible(s.medium[1])) {
      return "two visible entries of one key";
    }
    if (s.reader == kSuccess && s.bytes != s.version % kRenamed) {
      return "a read reported success with bytes of another publication";
    }
    if (s.reader == kSuccess && s.version % kRenamed <= s.floor) {
      return "a read begun after a removal returned what was removed";
    }
    if (s.reader == kMiss && s.must_hit != 0) {
      return "a lookup missed a key that was there all the while";
    }
    if (s.reader == kFailed && s.quick != 0 && s.excused == 0) {
      return "an eviction failed a read that had begun before it";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool ok = s.reader == kSuccess;
    return (ok && s.quick) | (ok && !s.quick) << 1 |
           (ok && state_of(s.medium[s.slot]) == kDraining) << 2 |
           (s.reader == kFailed && !s.quick) << 3 | (ok && s.version > 1) << 4 |
           ((state_of(s.medium[0]) == kHidden && visible(s.medium[1])) ||
            (state_of(s.medium[1]) == kHidden && visible(s.medium[0])))
               << 5;
  }

  std::string show(const State &s) const {
    static const char names[] = {'-', 'P', 'D', 'H'};
    auto one = [](uint8_t l) {
      return text("%c%d@%d", names[state_of(l)], version_of(l), block_of(l));
    };
    return text(
        "medium %s %s mirror %s %s | blocks %d %d | W step %d hand %d | answered %d removed %d "
        "| R step %d quick%d slot%d v%d got%d must_hit%d",
        one(s.medium[0]).c_str(), one(s.medium[1]).c_str(), one(s.mirror[0]).c_str(),
        one(s.mirror[1]).c_str(), s.content[0], s.content[1], s.writer, s.hand, s.answered,
        s.removed, s.reader, s.quick, s.slot, s.version, s.bytes, s.must_hit);
  }

private:
  static constexpr int kRenamed = 16;  // only a mutant gives the same bytes a second version

  static uint8_t line(int state, int version, int block) {
    return static_cast<uint8_t>(state << 6 | version << 1 | block);
  }
  static int state_of(uint8_t l) { return l >> 6; }
  static int version_of(uint8_t l) { return l >> 1 & 31; }
  static int block_of(uint8_t l) { return l & 1; }
  static bool visible(uint8_t l) { return state_of(l) == kPublished; }

  static int find(const State &s, Entry state) {
    for (int slot = 0; slot < 2; slot++) {
      if (state_of(s.mirror[slot]) == state) {
        return slot;
      }
    }
    return -1;
  }

  static void gone(State &n) { n.answered = n.must_hit = 0; }

  void answer(const State &s, bool drained, Sink<State> &emit) const {
    State n = s;
    const bool put = s.pending == kAnswerPut;
    if (!drained && (put ? rules_.drain_revive : rules_.drain_remove)) {
      return;
    }
    n.pending = kNothing;
    if (put) {
      n.answered = 1;
      emit(n, "O answers the put");
    } else {
      n.removed = static_cast<uint8_t>(s.next_version - 1);
      if (s.hand != 0) {
        n.removed--;  // the one in hand is not published yet
      }
      emit(n, "O answers the removal");
    }
  }

  // Evict, remove, clear: each one line, drained before the owner goes on.
  void owner_changes(const State &s, Sink<State> &emit) const {
    for (int slot = 0; slot < 2; slot++) {
      const uint8_t now = s.mirror[slot];
      const int state = state_of(now);
      State n = s;
      if (state == kPublished) {
        gone(n);
        n.mirror[slot] = line(kDraining, version_of(now), block_of(now));
        emit(n, "O evicts");
      }
      if (state == kPublished || (state == kDraining && rules_.remove_hides_draining)) {
        n = s;
        gone(n);
        n.mirror[slot] = line(kHidden, version_of(now), block_of(now));
        n.excused = s.reader != kStart;
        n.pending = kAnswerRemove;
        emit(n, "O removes");
      } else if (state == kDraining) {
        n = s;
        n.pending = kAnswerRemove;
        emit(n, "O removes nothing");
      }
      const bool in_use = s.quick != 0 && s.slot == slot && s.reader >= kCopy && s.reader <= kCheck;
      if (state == kHidden || (state == kDraining && (!in_use || !rules_.keep_grace))) {
        n = s;
        n.mirror[slot] = kEmpty;
        emit(n, "O clears the entry");
      }
    }
  }

  // The writer's request: exists, revive, or a new entry in an empty line.
  void owner_put(const State &s, Sink<State> &emit) const {
    if (s.writer != kAsks) {
      return;
    }
    State n = s;
    n.writer = kHolds;  // EXISTS: the loser keeps its block
    const int draining = find(s, kDraining);
    const int hidden = find(s, kHidden);
    const int revived = draining >= 0 ? draining : !rules_.hidden_stays ? hidden : -1;
    if (find(s, kPublished) >= 0 || (hidden >= 0 && !rules_.hidden_no_obstacle)) {
      n.pending = kAnswerPut;
      emit(n, "O finds the key: EXISTS");
    } else if (revived >= 0) {
      const uint8_t now = s.mirror[revived];
      const int version = version_of(now) ^ (rules_.revive_same_version ? 0 : kRenamed);
      n.mirror[revived] = line(kPublished, version, block_of(now));
      n.pending = kAnswerPut;
      emit(n, "O revives: EXISTS");
    } else if (find(s, kEmpty) >= 0) {
      const int block = s.hand - 1;
      n.mirror[find(s, kEmpty)] = line(kPublished, s.content[block], block);
      n.writer = kIdle;
      n.hand = 0;
      n.pending = kAnswerPut;
      emit(n, "O publishes");
    }
  }

  void grant(const State &s, Sink<State> &emit) const {
    if (s.writer != kIdle || s.next_version > version_max_) {
      return;
    }
    for (int block = 0; block < 2; block++) {
      bool free = true;
      for (int slot = 0; slot < 2; slot++) {
        const int state = state_of(s.mirror[slot]);
        if (state != kEmpty && block_of(s.mirror[slot]) == block) {
          free = free && state == kDraining && !rules_.clear_before_grant;
        }
      }
      if (free) {
        State n = s;
        n.hand = static_cast<uint8_t>(block + 1);
        n.writer = kHolds;
        n.content[block] = n.next_version++;
        emit(n, "O grants a block, W fills it");
      }
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:
        for (uint8_t quick = 0; quick < 2; quick++) {
          n = s;
          n.quick = quick;
          n.must_hit = s.answered;
          n.floor = s.removed;
          n.excused = s.pending == kAnswerRemove;  // a removal is under way
          n.reader = kLookup;
          emit(n, quick ? "R starts, quick" : "R starts, slow");
        }
        break;
      case kLookup:
        for (uint8_t slot = 0; slot < 2; slot++) {
          if (s.looked >> slot & 1) {
            continue;
          }
          n = s;
          n.looked |= static_cast<uint8_t>(1 << slot);
          if (visible(s.medium[slot])) {
            n.slot = slot;
            n.version = static_cast<uint8_t>(version_of(s.medium[slot]));
            n.bytes = static_cast<uint8_t>(block_of(s.medium[slot]));  // where to copy from
            n.reader = kCopy;
          } else if (n.looked == 3) {
            n.reader = kMiss;
          }
          emit(n, "R loads an entry");
        }
        break;
      case kCopy:
        n.bytes = s.content[s.bytes];
        n.reader = kCheck;
        emit(n, "R copies");
        break;
      case kCheck: {
        const uint8_t now = s.medium[s.slot];
        const bool there = visible(now) || (state_of(now) == kDraining && rules_.accept_draining);
        const bool same = version_of(now) == s.version || !rules_.compare_version;
        n.reader = there && same ? kSuccess : kFailed;
        emit(n, "R validates");
        break;
      }
      default:
        n.reader = n.quick = n.looked = n.slot = n.version = n.bytes = n.must_hit = n.floor = 0;
        n.excused = 0;
        emit(n, "R starts again");
        break;
    }
  }

  const Rules rules_;
  const uint8_t version_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Eviction>().main(argc, argv);
}
