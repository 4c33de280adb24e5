// SPDX-License-Identifier: Apache-2.0
// Owns the model of one entry line that is stored in pieces (proto 1: A1; 4, 7): a whole line goes
// to the medium in two halves, a kill may fall between them, a reader may load them apart, the link
// may return all ones, and an area that is filled anew still has lines of its former filling.
//
// The first half holds key and locator, the second version, state and checksum. The checksum is
// perfect here: it fits exactly the contents and the seed it was made for.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Lines {
public:
  struct Rules {
    bool state_in_one_word = true;
    bool checksum = true;
    bool seed = true;
    bool seed_not_zero = true;
    bool answer_after_both = true;
  };

  enum Entry : uint8_t { kEmpty, kPublished, kDraining };
  enum OwnerStep : uint8_t { kIdle, kStoring, kKilled };

  // The second half: which publication it belongs to, its state, the seed of its checksum.
  // `first_state` is used only by the mutant that keeps the state apart from the checksum.
  struct Half0 {
    uint8_t id, first_state;
  };
  struct Half1 {
    uint8_t id, state, seed;
  };
  struct State {
    Half0 half0;
    Half1 half1;
    Half0 new0;
    Half1 new1;
    uint8_t owner, left, ids;  // a line store under way: bit per half still to come
    uint8_t published;         // answered publication that must be found, 0: none
    uint8_t inserting, kills;
    uint8_t reader, loaded, link_lost;
    Half0 got0;
    Half1 got1;
    uint8_t lost, decided;  // the decided state of the published entry
  };

  static constexpr const char *kName = "lines";
  static constexpr const char *kCovers =
      "lines stored and loaded in pieces, kills, seeds, all zeros, all ones";
  static constexpr Mutant<Rules> kMutants[] = {
      {"state-apart-from-checksum", &Rules::state_in_one_word, "7",
       "what changes in a published entry lies in one aligned 8-byte word"},
      {"no-checksum", &Rules::checksum, "4", "a line is believed only when its checksum fits"},
      {"no-area-seed", &Rules::seed, "4", "checksums in areas are seeded with the filling epoch"},
      {"zero-seed", &Rules::seed_not_zero, "4",
       "the seed is never zero: a blank line never verifies"},
      {"answer-after-one-half", &Rules::answer_after_both, "7",
       "the whole line is drained before the answer"},
  };
  static constexpr const char *kMarks[] = {
      "read published",       "read draining", "kill between the halves",
      "read across a change", "link lost",     "torn line dropped"};

  Lines(const Rules &rules, Mode mode) : rules_(rules), ids_max_(mode == Mode::kLong ? 6 : 3) {}

  static constexpr uint8_t kSeed = 2;     // of the epoch that fills the area now
  static constexpr uint8_t kOldSeed = 1;  // of an earlier filling
  static constexpr uint8_t kOldId = 14;   // what it left in this line
  static constexpr uint8_t kOnes = 15;    // what a lost link returns

  State initial() const {
    State s{};
    s.half0 = {kOldId, first_state(kPublished)};
    s.half1 = {kOldId, kPublished, kOldSeed};
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    owner(s, emit);
    reader(s, emit);
    State n = s;
    if (s.half0.id == kOldId && s.owner == kIdle) {  // a filling may blank the line or leave it
      n.half0 = Half0{};
      n.half1 = Half1{};
      emit(n, "the filling blanks the line");
    }
  }

  const char *violation(const State &s) const {
    if (s.lost != 0) {
      return "a kill destroyed a published entry";
    }
    if (s.reader == 1 && s.loaded == 3 && valid(s.got0, s.got1)) {
      if (s.got0.id != s.got1.id) {
        return "a reader believed halves of two lines";
      }
      if (s.got0.id == kOldId || s.got0.id == kOnes || s.got0.id == 0) {
        return "a reader believed a line that this filling never wrote";
      }
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool done = s.reader == 1 && s.loaded == 3;
    const bool ok = done && valid(s.got0, s.got1);
    return (ok && s.got1.state == kPublished) | (ok && s.got1.state == kDraining) << 1 |
           (s.owner == kKilled && s.left != 0) << 2 | (done && s.got0.id != s.got1.id) << 3 |
           (done && s.link_lost) << 4 |
           (s.kills && s.owner == kIdle && s.half1.id == 0 && s.ids) << 5;
  }

  std::string show(const State &s) const {
    return text(
        "line (%d.%d | %d state %d seed %d) owner %d left %d published %d | reader %d loaded %d "
        "(%d | %d state %d)",
        s.half0.id, s.half0.first_state, s.half1.id, s.half1.state, s.half1.seed, s.owner, s.left,
        s.published, s.reader, s.loaded, s.got0.id, s.got1.id, s.got1.state);
  }

private:
  uint8_t first_state(Entry state) const {
    return rules_.state_in_one_word ? uint8_t{0} : static_cast<uint8_t>(state);
  }

  bool valid(const Half0 &first, const Half1 &second) const {
    if (first.id == 0 && second.id == 0) {
      return !rules_.seed_not_zero;  // with a zero seed the checksum of zeros is zero
    }
    if (first.id == kOnes || second.id == kOnes) {
      return !rules_.checksum && first.id == second.id;
    }
    if (second.state == kEmpty) {
      return false;
    }
    if (!rules_.checksum) {
      return true;
    }
    const bool fits =
        first.id == second.id && (rules_.state_in_one_word || first.first_state == second.state);
    return fits && (second.seed == kSeed || !rules_.seed);
  }

  // Streams a whole line: both halves are under way and land in either order.
  void store_line(State &n, uint8_t id, Entry state) const {
    n.new0 = {id, first_state(state)};
    n.new1 = {id, static_cast<uint8_t>(state), kSeed};
    n.left = 3;
    n.owner = kStoring;
  }

  static void finish(State &n) {
    n.owner = kIdle;
    n.new0 = Half0{};
    n.new1 = Half1{};
    n.left = n.inserting = 0;
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.owner == kIdle) {
      decide(s, emit);
    } else if (s.owner == kStoring) {
      for (uint8_t half = 1; half < 3; half++) {
        if ((s.left & half) == 0) {
          continue;
        }
        n = s;
        n.left &= static_cast<uint8_t>(~half);
        if (half == 1) {
          n.half0 = s.new0;
        } else {
          n.half1 = s.new1;
        }
        emit(n, half == 1 ? "the first half lands" : "the second half lands");
      }
      if (s.left == 0 || (!rules_.answer_after_both && s.left != 3 && s.inserting)) {
        n = s;
        if (s.inserting) {
          n.published = s.new0.id;
          n.decided = kPublished;
        }
        if (s.left == 0) {
          finish(n);
        } else {
          n.inserting = 0;
        }
        emit(n, "the owner answers");
      }
      n = s;
      if (s.kills == 0) {
        n.kills = 1;
        n.owner = kKilled;
        emit(n, "the owner is killed");
      }
    } else {
      scan(s, emit);
    }
  }

  void decide(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.published == 0 && s.ids < ids_max_) {
      n.ids++;
      n.inserting = 1;
      store_line(n, n.ids, kPublished);
      emit(n, "the owner inserts");
    }
    if (s.published != 0 && s.decided == kPublished) {
      n = s;
      n.decided = kDraining;
      if (rules_.state_in_one_word) {
        n.half1.state = kDraining;  // state and checksum in one word: never torn
      } else {
        store_line(n, s.published, kDraining);
      }
      emit(n, "the owner sets DRAINING");
    }
    if (s.published != 0 && s.decided == kDraining) {
      n = s;
      n.published = n.decided = 0;
      n.half1 = Half1{};  // the word that clears; the first half may keep its old contents
      emit(n, "the owner clears the entry");
    }
  }

  // The next owner believes what verifies. An insert that was not answered may be lost.
  void scan(const State &s, Sink<State> &emit) const {
    State n = s;
    finish(n);
    const bool ok = valid(s.half0, s.half1);
    if (s.published != 0 && (!ok || s.half0.id != s.published)) {
      n.lost = 1;
    }
    if (ok) {
      n.published = s.half0.id;
      n.decided = s.half1.state;
    } else {
      n.published = n.decided = 0;
      n.half0 = Half0{};
      n.half1 = Half1{};
    }
    emit(n, "the next owner scans the line");
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.reader == 0) {
      n.reader = 1;
      emit(n, "R starts to load");
      return;
    }
    if (s.loaded == 3) {
      n.reader = n.loaded = n.link_lost = 0;
      n.got0 = Half0{};
      n.got1 = Half1{};
      emit(n, "R starts again");
      return;
    }
    for (uint8_t half = 1; half < 3; half++) {
      if (s.loaded & half) {
        continue;
      }
      n = s;
      n.loaded |= half;
      if (half == 1) {
        n.got0 = s.half0;
      } else {
        n.got1 = s.half1;
      }
      emit(n, "R loads a half");
    }
    if (s.loaded == 0) {
      n = s;
      n.loaded = 3;
      n.link_lost = 1;
      n.got0 = {kOnes, kOnes};
      n.got1 = {kOnes, kOnes, kOnes};
      emit(n, "R's link is lost: all ones");
    }
  }

  const Rules rules_;
  const uint8_t ids_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Lines>().main(argc, argv);
}
