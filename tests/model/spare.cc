// SPDX-License-Identifier: Apache-2.0
// Owns the model of lines of the namespace table that are stored in pieces (proto 1: A1; 8): more
// than a word of such a line changes at once, so it is written to a spare line first, sealed for
// the place that it is meant for. An owner is killed between any two pieces, or goes on while a
// successor scans, which takes a line that does not verify from the spare line.
//
// Two namespaces, each with a count of its clears. A line is two halves that land in any order;
// checksums are perfect: a line verifies when both halves are of one store for this place.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Spare {
public:
  struct Rules {
    bool spare_first = true;
    bool spare_drained = true;
    bool place_drained = true;
    bool spare_after_place = true;
    bool place_again = true;
    bool sealed_for_place = true;
  };

  static constexpr uint8_t kSpare = 2;
  enum OwnerStep : uint8_t { kServes, kSpares, kPlaces, kDead };
  enum ScanStep : uint8_t { kOut, kBegins, kPlace, kLooksAtSpare, kDone };

  struct Half {
    uint8_t place, value;  // for which namespace, and after how many clears
  };
  struct Line {
    Half half[2];
  };
  struct State {
    Line line[3];            // of both namespaces, and the spare one
    Half way[3];             // what is stored and has not landed yet
    uint8_t under_way[3];    // which halves of it
    uint8_t owner, clears, which, value[2];
    uint8_t accepted[2];
    uint8_t scan, scanned, looks, loaded;
    Line got, got_spare;
    uint8_t found[2], lost;
  };

  static constexpr const char *kName = "spare";
  static constexpr const char *kCovers =
      "lines of the namespace table stored in pieces, the spare line, kills, a scan meanwhile";
  static constexpr Mutant<Rules> kMutants[] = {
      {"no-spare", &Rules::spare_first, "8",
       "a line of the namespace table stands whole in the spare line before it is touched"},
      {"spare-not-drained", &Rules::spare_drained, "8",
       "the spare line is on the medium before the line is touched"},
      {"place-not-drained", &Rules::place_drained, "8",
       "the spare line is written again when what it stood for is on the medium"},
      {"spare-read-first", &Rules::spare_after_place, "8",
       "a scan looks at the spare line after it found a line that does not verify"},
      {"place-read-once", &Rules::place_again, "8",
       "a line whose spare is another's by then is looked at again"},
      {"sealed-for-any", &Rules::sealed_for_place, "4",
       "the spare line is sealed for the place that it is meant for"},
  };
  static constexpr const char *kMarks[] = {"a clear accepted", "killed between two pieces",
                                           "taken from the spare line",
                                           "a line torn by an owner that goes on", "scan done"};

  Spare(const Rules &rules, Mode mode) : rules_(rules), clears_(mode == Mode::kLong ? 5 : 3) {}

  State initial() const {
    State s{};
    s.line[1].half[0] = s.line[1].half[1] = {1, 0};
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    landing(s, emit);
    owner(s, emit);
    scan(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.lost != 0) {
      return "a namespace is lost";
    }
    if (s.scan == kDone && (s.found[0] < s.accepted[0] || s.found[1] < s.accepted[1])) {
      return "a clear that was accepted is undone";
    }
    if (s.scan == kDone && (s.found[0] > s.value[0] || s.found[1] > s.value[1])) {
      return "a namespace has another one's line";
    }
    return nullptr;
  }

  // A line that never verifies again is looked at for ever: in code, a namespace that is lost.
  bool settled(const State &s) const { return s.scan == kDone; }

  uint32_t marks(const State &s) const {
    const bool torn = s.scan == kLooksAtSpare && s.loaded == 0;
    return (s.accepted[0] != 0) |
           (s.owner == kDead && !whole(s.line[s.which], s.which)) << 1 |
           (s.scan == kLooksAtSpare && s.loaded == 2 && verifies(s.got_spare, s.scanned)) << 2 |
           (torn && s.owner != kDead) << 3 | (s.scan == kDone) << 4;
  }

  std::string show(const State &s) const {
    std::string out;
    for (int l = 0; l < 3; l++) {
      out += text("[%d.%d|%d.%d way %d %d.%d] ", s.line[l].half[0].place, s.line[l].half[0].value,
                  s.line[l].half[1].place, s.line[l].half[1].value, s.under_way[l],
                  s.way[l].place, s.way[l].value);
    }
    return out + text("owner %d on %d values %d %d accepted %d %d | scan %d of %d looks %d loaded "
                      "%d found %d %d",
                      s.owner, s.which, s.value[0], s.value[1], s.accepted[0], s.accepted[1],
                      s.scan, s.scanned, s.looks, s.loaded, s.found[0], s.found[1]);
  }

private:
  static bool same(const Half &a, const Half &b) {
    return a.place == b.place && a.value == b.value;
  }
  static bool whole(const Line &line, uint8_t place) {
    return same(line.half[0], line.half[1]) && line.half[0].place == place;
  }
  // The spare line, for a place.
  bool verifies(const Line &spare, uint8_t place) const {
    const bool ours = spare.half[0].place == place || !rules_.sealed_for_place;
    return same(spare.half[0], spare.half[1]) && ours && spare.half[0].value != 0;
  }

  void landing(const State &s, Sink<State> &emit) const {
    for (int l = 0; l < 3; l++) {
      for (uint8_t h = 0; h < 2; h++) {
        if ((s.under_way[l] >> h & 1) == 0) {
          continue;
        }
        State n = s;
        n.line[l].half[h] = s.way[l];
        n.under_way[l] &= static_cast<uint8_t>(~(1 << h));
        if (n.under_way[l] == 0) {
          n.way[l] = Half{};
        }
        emit(n, l == kSpare ? "a half of the spare line lands" : "a half of a line lands");
      }
    }
  }

  static void store(State &n, uint8_t line, const Half &half) {
    n.way[line] = half;
    n.under_way[line] = 3;
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.owner) {
      case kServes:
        for (uint8_t k = 0; k < 2 && s.clears < clears_; k++) {
          // a line is not stored again before its last store has landed: one writer, one line
          const bool ready = (s.under_way[s.which] == 0 || !rules_.place_drained) &&
                             s.under_way[k] == 0 && s.under_way[kSpare] == 0;
          if (!ready) {
            continue;
          }
          n = s;
          n.clears++;
          n.which = k;
          n.value[k]++;
          n.owner = kSpares;
          if (rules_.spare_first) {
            store(n, kSpare, {k, n.value[k]});
          }
          emit(n, "the owner clears a namespace: the spare line");
        }
        break;
      case kSpares:
        if (s.under_way[kSpare] == 0 || !rules_.spare_drained) {
          n.owner = kPlaces;
          store(n, s.which, {s.which, s.value[s.which]});
          emit(n, "the owner stores the line itself");
        }
        break;
      case kPlaces:
        if (s.under_way[s.which] == 0 || !rules_.place_drained) {
          n.owner = kServes;
          if (s.scan == kOut && s.under_way[s.which] == 0) {  // nobody outbids it
            n.accepted[s.which] = s.value[s.which];
          }
          emit(n, "the owner answers");
        }
        break;
      default:
        break;
    }
    if (s.owner != kDead) {
      n = s;
      n.owner = kDead;
      for (int l = 0; l < 3; l++) {
        n.under_way[l] = 0;  // what has not landed is lost; it may land before
        n.way[l] = Half{};
      }
      emit(n, "the owner is killed");
    }
  }

  void scan(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.scan) {
      case kOut:
        n.scan = rules_.spare_after_place ? kPlace : kBegins;
        emit(n, "a candidate claims and settles");
        break;
      case kBegins:  // only a mutant: the spare line before all others
        n.got_spare.half[s.loaded] = s.line[kSpare].half[s.loaded];
        n.loaded++;
        if (n.loaded == 2) {
          n.loaded = 0;
          n.scan = kPlace;
        }
        emit(n, "the candidate loads half of the spare line");
        break;
      case kPlace:
        n.got.half[s.loaded] = s.line[s.scanned].half[s.loaded];
        n.loaded++;
        if (n.loaded == 2) {
          n.loaded = 0;
          n.looks++;
          if (whole(n.got, s.scanned)) {
            take(n, n.got.half[0].value);
          } else {
            torn(n);
          }
        }
        emit(n, "the candidate loads half of a line");
        break;
      case kLooksAtSpare:
        if (s.loaded < 2) {
          n.got_spare.half[s.loaded] = s.line[kSpare].half[s.loaded];
          n.loaded++;
          emit(n, "the candidate loads half of the spare line");
          break;
        }
        n.loaded = 0;
        if (verifies(s.got_spare, s.scanned)) {
          take(n, s.got_spare.half[0].value);
        } else if (rules_.place_again) {
          n.scan = kPlace;
          n.looks = 0;
        } else {
          n.lost = 1;
        }
        n.got_spare = Line{};
        emit(n, "the candidate looks at the spare line");
        break;
      default:
        break;
    }
  }

  void torn(State &n) const {
    n.got = Line{};
    if (rules_.spare_after_place) {
      n.scan = kLooksAtSpare;
      n.looks = 0;
    } else if (verifies(n.got_spare, n.scanned)) {
      take(n, n.got_spare.half[0].value);
    } else {
      n.lost = n.looks == 2;
    }
  }

  void take(State &n, uint8_t value) const {
    n.found[n.scanned] = value;
    n.scanned++;
    n.looks = 0;
    n.got = Line{};
    n.scan = n.scanned == 2 ? kDone : kPlace;
  }

  const Rules rules_;
  const uint8_t clears_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Spare>().main(argc, argv);
}
