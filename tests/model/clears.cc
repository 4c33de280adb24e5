// SPDX-License-Identifier: Apache-2.0
// Owns the model of clear and bypass of a namespace over take-overs (proto 7, 8, 10): owners that
// were outbid go on clearing and publishing while a successor scans, lines in any order; clears are
// repeated or given up; handles learn epochs from lines that no accept() vouches for; the line may
// be lost and the namespace opened anew, with an epoch that was there before.
//
// One key, which has another place in each of the namespace's epochs. A decision is one step here;
// drains and caches are the namespaces model's.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Clears {
public:
  struct Rules {
    bool accept_clear = true;
    bool accept_put = true;
    bool copy_epoch = true;
    bool copy_flags = true;
    bool names_epoch = true;
    bool later_epoch_cleared = true;
    bool later_epoch_unpublished = true;
    bool compare_version = true;
    bool compare_active = true;
    bool compare_epoch = true;
    bool put_names_epoch = true;
    bool opened_with_version = true;
  };

  static constexpr int kOwners = 3, kEpochs = 4;
  static constexpr int kLines = kEpochs / 2 + 1;  // that a scan takes: entries two at a time
  enum Life : uint8_t { kOut, kScans, kServes };
  enum Call : uint8_t { kRests, kAsked, kAnswered };
  enum ReaderStep : uint8_t { kStart, kWave, kHit, kMiss };
  static constexpr uint8_t kBypass = 1, kLost = 2;  // flags of the namespace's line

  struct Area {
    uint8_t epoch, flags, cleared;  // cleared: every version up to it
    uint8_t version[kEpochs], id[kEpochs];  // entries, by the epoch in their key
  };
  struct State {
    Area area[kOwners];  // by owner, whose mirror it is too
    uint8_t life[kOwners], scanned, number[kOwners];  // number: of publications, for versions
    uint8_t claimed, active, losses;
    uint8_t handle;  // the epoch that the reader believes
    uint8_t clear, clear_epoch, clear_owner, clears, doomed, given_up;
    uint8_t executed;  // bits: this call by that owner
    uint8_t bypass, bypass_owner, bypassed;
    uint8_t put, put_epoch, put_owner, puts, put_alone;
    uint8_t accepted, dead, must;  // publications by id: bits, bits, one id
    uint8_t reader, loaded, in_area, floor, must_hit, under_bypass, got_active, got_epoch,
        got_flags, got_cleared, got_version, got_id;
  };

  static constexpr const char *kName = "clears";
  static constexpr const char *kCovers =
      "clear and bypass over take-overs: zombie clears, repeats, lost lines, epochs reused";
  static constexpr Mutant<Rules> kMutants[] = {
      {"clear-not-accepted", &Rules::accept_clear, "7",
       "a clear or bypass counts only after accept()"},
      {"put-not-accepted", &Rules::accept_put, "7", "a publication counts only after accept()"},
      {"epoch-not-copied", &Rules::copy_epoch, "8",
       "a take-over carries the namespace's epoch forward"},
      {"flags-not-copied", &Rules::copy_flags, "8", "a take-over carries a bypass forward"},
      {"clear-names-no-epoch", &Rules::names_epoch, "8",
       "a clear names the epoch that it ends: repeated to a successor it takes effect once"},
      {"later-epoch-is-stale", &Rules::later_epoch_cleared, "8",
       "a clear that names an epoch the owner has not come to clears, and goes above it"},
      {"later-epoch-published", &Rules::later_epoch_unpublished, "8",
       "a doubt of an epoch that the owner has not come to is not published"},
      {"version-not-compared", &Rules::compare_version, "8",
       "entries up to the version of the last clear are misses, whatever their epoch"},
      {"opened-without-version", &Rules::opened_with_version, "8",
       "opening a namespace clears what stood there"},
      {"active-not-compared", &Rules::compare_active, "10",
       "another highest `active` starts a lookup again"},
      {"epoch-not-compared", &Rules::compare_epoch, "8",
       "a wave that finds another epoch starts again with its keys"},
      {"put-names-no-epoch", &Rules::put_names_epoch, "8",
       "a publication names its namespace's epoch; one of an earlier epoch is refused"},
  };
  static constexpr const char *kMarks[] = {
      "clear accepted from a successor", "clear found done by a successor",
      "bypass known to a successor",     "hit after a clear and a take-over",
      "doubt of a later epoch",          "line lost and namespace opened anew",
      "clear of a later epoch"};

  Clears(const Rules &rules, Mode mode)
      : rules_(rules), owners_(mode == Mode::kLong ? 3 : 2), losses_(1) {}

  State initial() const {
    State s{};
    s.life[0] = kServes;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t o = 0; o < owners_; o++) {
      if (s.life[o] == kServes) {
        serve_clear(s, o, emit);
        serve_put(s, o, emit);
      } else {
        candidate(s, o, emit);
      }
    }
    clearer(s, emit);
    putter(s, emit);
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.reader == kHit && (s.floor >> s.got_id & 1) != 0) {
      return "a lookup begun after a clear hit what was cleared";
    }
    if (s.reader == kHit && s.under_bypass != 0) {
      return "a lookup begun after a bypass hit";
    }
    if (s.reader == kMiss && s.must_hit != 0) {
      return "a lookup missed a key that was published all the while";
    }
    const Area &last = s.area[s.active];
    if (s.active == s.claimed) {
      if (last.epoch > s.clears + s.losses) {
        return "one clear took effect twice";
      }
      for (int e = 0; e < kEpochs; e++) {
        if ((s.accepted >> last.id[e] & 1) != 0 && e > last.epoch &&
            last.version[e] > last.cleared) {
          return "an accepted publication stands where no lookup looks, and nothing cleared it";
        }
      }
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool later = s.clear == kAnswered && s.clear_owner != 0 && s.claimed == s.clear_owner;
    return (later && (s.executed >> s.clear_owner & 1)) |
           (later && !(s.executed >> s.clear_owner & 1)) << 1 |
           (s.bypassed && s.active && (s.area[s.active].flags & kBypass)) << 2 |
           (s.reader == kHit && s.dead && s.in_area != 0) << 3 |
           (s.put == kAsked && s.put_owner == s.active && s.put_epoch > s.area[s.active].epoch)
               << 4 |
           (s.losses && s.active && s.area[s.active].epoch && s.got_id) << 5 |
           (s.clear == kAsked && s.clear_owner == s.active &&
            s.clear_epoch > s.area[s.active].epoch)
               << 6;
  }

  std::string show(const State &s) const {
    std::string out = text("claimed %d active %d ", s.claimed, s.active);
    for (int o = 0; o < owners_; o++) {
      const Area &a = s.area[o];
      out += text("[%d life %d epoch %d flags %d cleared %d entries %d.%d %d.%d %d.%d] ", o,
                  s.life[o], a.epoch, a.flags, a.cleared, a.version[0], a.id[0], a.version[1],
                  a.id[1], a.version[2], a.id[2]);
    }
    return out + text("handle %d | clear %d(%d)@%d doomed %d | put %d(%d)@%d accepted %d dead %d "
                      "must %d | R %d in %d floor %d must_hit%d id %d",
                      s.handle, s.clear, s.clear_epoch, s.clear_owner, s.doomed, s.put,
                      s.put_epoch, s.put_owner, s.accepted, s.dead, s.must, s.reader, s.in_area,
                      s.floor, s.must_hit, s.got_id);
  }

private:
  static uint8_t bit(int i) { return static_cast<uint8_t>(1 << i); }
  static uint8_t version(int owner, int number) { return static_cast<uint8_t>(owner * 4 + number); }

  // ---- the owners -------------------------------------------------------------------------------

  void serve_clear(const State &s, uint8_t o, Sink<State> &emit) const {
    const Area &a = s.area[o];
    State n = s;
    if (s.clear == kAsked && s.clear_owner == o && (a.flags & kLost) == 0) {
      n.clear = kAnswered;
      const bool other = rules_.later_epoch_cleared ? s.clear_epoch < a.epoch
                                                    : s.clear_epoch != a.epoch;
      if (other && rules_.names_epoch) {
        emit(n, "the owner finds the clear done");
      } else {
        const uint8_t from = s.clear_epoch > a.epoch ? s.clear_epoch : a.epoch;
        if (from + 1 < kEpochs) {
          n.area[o].epoch = static_cast<uint8_t>(from + 1);
          n.area[o].cleared = version(o, s.number[o]);
          n.executed |= bit(o);
          emit(n, "the owner clears the namespace");
        }
      }
    }
    if (s.bypass == kAsked && s.bypass_owner == o && (a.flags & kLost) == 0) {
      n = s;
      n.bypass = kAnswered;
      n.area[o].flags |= kBypass;
      emit(n, "the owner bypasses the namespace");
    }
    if ((a.flags & kLost) != 0) {
      n = s;
      n.area[o].flags = 0;
      n.area[o].epoch = static_cast<uint8_t>(a.epoch + 1);
      n.area[o].cleared = rules_.opened_with_version ? version(o, s.number[o]) : uint8_t{0};
      emit(n, "the namespace is opened anew");
    }
  }

  void serve_put(const State &s, uint8_t o, Sink<State> &emit) const {
    if (s.put != kAsked || s.put_owner != o || s.number[o] == 3) {
      return;
    }
    const Area &a = s.area[o];
    const uint8_t e = rules_.put_names_epoch ? s.put_epoch : a.epoch;
    State n = s;
    if (s.area[o].id[e] == s.puts && a.version[e] != 0) {
      if (e > a.epoch && rules_.later_epoch_unpublished) {
        n.area[o].version[e] = n.area[o].id[e] = 0;
        end_put(n);
        emit(n, "the owner takes back a publication of a later epoch");
      } else {
        n.put = kAnswered;
        emit(n, "the owner has the publication already");
      }
      return;
    }
    const bool open = (a.flags & (kBypass | kLost)) == 0;
    const uint8_t key = s.put_epoch;  // the key was made with it, whatever the request names
    if (!open || e != a.epoch || (a.version[key] > a.cleared && a.version[key] != 0)) {
      end_put(n);
      emit(n, "the owner refuses the publication");
      return;
    }
    n.number[o]++;
    n.area[o].version[key] = version(o, n.number[o]);
    n.area[o].id[key] = s.puts;
    n.put = kAnswered;
    emit(n, "the owner publishes");
  }

  static void end_put(State &n) { n.put = n.put_epoch = n.put_owner = n.put_alone = 0; }

  void candidate(const State &s, uint8_t o, Sink<State> &emit) const {
    State n = s;
    if (s.life[o] == kOut && s.claimed + 1 == o && s.active + 1 == o) {
      n.claimed = o;
      n.life[o] = kScans;
      emit(n, "a candidate claims and settles");
    }
    if (s.life[o] != kScans) {
      return;
    }
    const Area &base = s.area[o - 1];
    for (uint8_t line = 0; line < kLines; line++) {
      if (s.scanned >> line & 1) {
        continue;
      }
      n = s;
      n.scanned |= bit(line);
      Area &mine = n.area[o];
      if (line == kLines - 1) {
        mine.epoch = rules_.copy_epoch ? base.epoch : uint8_t{0};
        mine.cleared = base.cleared;
        mine.flags = rules_.copy_flags ? base.flags : uint8_t{0};
        emit(n, "the candidate scans the namespace's line");
        if (s.losses < losses_) {
          n = s;
          n.scanned |= bit(line);
          n.losses++;
          n.area[o].flags = kLost;
          n.accepted = 0;  // lost with their namespace, as what is in doubt may be
          n.given_up = 1;
          n.bypassed = n.under_bypass = 0;
          begin_ending(n);
          emit(n, "the candidate cannot read the namespace's line");
        }
      } else {
        for (int e = 2 * line; e < 2 * line + 2; e++) {
          mine.version[e] = base.version[e];
          mine.id[e] = base.id[e];
        }
        emit(n, "the candidate scans entries");
      }
    }
    if (s.scanned == bit(kLines) - 1) {
      n = s;
      n.scanned = 0;
      n.life[o] = kServes;
      n.active = o;
      emit(n, "the candidate activates");
    }
  }

  // ---- who clears, who publishes ----------------------------------------------------------------

  static void begin_ending(State &n) {
    n.must = n.must_hit = n.put_alone = 0;
  }

  void clearer(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool bypassing = s.bypass != kRests || s.bypassed != 0;
    if (s.clear == kRests && s.clears < 2 && !bypassing && (s.area[s.active].flags & kLost) == 0) {
      n.clear = kAsked;
      n.clears++;
      n.clear_epoch = s.area[s.active].epoch;
      n.clear_owner = s.active;
      n.doomed = s.accepted;
      n.executed = 0;
      begin_ending(n);
      emit(n, "C reads the line and asks for a clear");
    }
    if (s.clear != kRests) {
      n = s;
      n.given_up = 1;
      n.clear = n.clear_epoch = n.clear_owner = n.doomed = n.executed = 0;
      emit(n, "C gives up");
    }
    const bool believed = s.claimed == s.clear_owner || !rules_.accept_clear;
    if (s.clear == kAnswered && believed) {
      n = s;
      n.dead |= s.doomed;
      n.clear = n.clear_epoch = n.clear_owner = n.doomed = n.executed = 0;
      emit(n, "C accepts: cleared");
    }
    if (s.clear != kRests && s.active != s.clear_owner) {
      n = s;
      n.clear = kAsked;
      n.clear_owner = s.active;
      emit(n, "C asks the successor");
    }
    if (s.bypass == kRests && s.bypassed == 0 && s.clears == 0) {
      n = s;
      n.bypass = kAsked;
      n.bypass_owner = s.active;
      n.given_up = 1;  // nothing has to be found any more
      begin_ending(n);
      emit(n, "C asks for a bypass");
    }
    if (s.bypass == kAnswered && (s.claimed == s.bypass_owner || !rules_.accept_clear)) {
      n = s;
      n.bypass = n.bypass_owner = 0;
      n.bypassed = 1;
      emit(n, "C accepts: bypassed");
    }
    if (s.bypass != kRests && s.active != s.bypass_owner) {
      n = s;
      n.bypass = kAsked;
      n.bypass_owner = s.active;
      emit(n, "C asks the successor for the bypass");
    }
  }

  void putter(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool open = s.area[s.active].flags == 0;
    if (s.put == kRests && s.puts < 2 && s.bypass == kRests && open) {
      n.puts++;
      n.put = kAsked;
      n.put_epoch = s.area[s.active].epoch;
      n.put_owner = s.active;
      n.put_alone = s.clear == kRests && s.given_up == 0;
      emit(n, "P reads the line and asks for a publication");
    }
    if (s.put == kAnswered && (s.claimed == s.put_owner || !rules_.accept_put)) {
      n = s;
      n.accepted |= bit(s.puts);
      n.must = s.put_alone != 0 ? s.puts : s.must;
      end_put(n);
      emit(n, "P accepts");
    }
    if (s.put != kRests && s.active != s.put_owner) {
      n = s;
      n.put = kAsked;
      n.put_owner = s.active;
      emit(n, "P reports its doubt");
    }
  }

  // ---- the reader -------------------------------------------------------------------------------

  static void begin_wave(State &n) {
    n.reader = kWave;
    n.loaded = n.got_active = n.got_epoch = n.got_flags = n.got_cleared = 0;
    n.got_version = n.got_id = 0;
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.reader == kStart) {
      n.floor = s.dead;
      n.must_hit = s.must != 0;
      n.under_bypass = s.bypassed;
      begin_wave(n);
      emit(n, "R starts a lookup");
      return;
    }
    if (s.reader != kWave) {
      begin_wave(n);
      n.reader = kStart;
      n.floor = n.must_hit = n.under_bypass = 0;
      emit(n, "R starts again");
      return;
    }
    const Area &a = s.area[s.in_area];
    for (uint8_t line = 0; line < 3; line++) {
      if (s.loaded >> line & 1) {
        continue;
      }
      n = s;
      n.loaded |= bit(line);
      if (line == 0) {
        n.got_active = s.active;
      } else if (line == 1) {
        n.got_epoch = a.epoch;
        n.got_flags = a.flags;
        n.got_cleared = a.cleared;
      } else {
        n.got_version = a.version[s.handle];
        n.got_id = a.id[s.handle];
      }
      if (n.loaded == 7) {
        finish(n);
      }
      emit(n, line == 0   ? "R loads the claims"
              : line == 1 ? "R loads the namespace's line"
                          : "R loads the entry");
    }
  }

  void finish(State &n) const {
    if (n.got_active != n.in_area && rules_.compare_active) {
      n.in_area = n.got_active;
      begin_wave(n);
      return;
    }
    const bool open = n.got_flags == 0;
    if (open && n.got_epoch != n.handle && rules_.compare_epoch) {
      n.handle = n.got_epoch;
      begin_wave(n);
      return;
    }
    const bool old = n.got_version <= n.got_cleared && rules_.compare_version;
    n.reader = open && n.got_version != 0 && !old ? kHit : kMiss;
    const uint8_t id = n.got_id;
    n.loaded = n.got_active = n.got_epoch = n.got_flags = n.got_cleared = n.got_version = 0;
    n.got_id = n.reader == kHit ? id : uint8_t{0};
  }

  const Rules rules_;
  const uint8_t owners_, losses_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Clears>().main(argc, argv);
}
