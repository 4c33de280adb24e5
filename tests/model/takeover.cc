// SPDX-License-Identifier: Apache-2.0
// Owns the model of take-over (proto 7): standby slots that claim again and again, claim lines with
// two records, two static areas a slot, crash and restart at any step, one claim pair that may be
// unreadable, and clients that accept answers. Lines are atomic here; caches are the handshake
// model's.
//
// The state of the store is one block: free, or granted to a client. What is checked: it is never
// accepted by two, and an owner that nobody outbids knows who accepted it.
#include "engine.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Takeover {
public:
  struct Rules {
    bool two_records = true;
    bool two_areas = true;
    bool base_kept = true;
    bool base_reread = true;
    bool highest_base = true;
    bool base_from_any_slot = true;
    bool candidate_stops_at_unreadable = true;
    bool client_stops_at_unreadable = true;
    bool accept = true;
    bool accept_all_claims = true;
    bool stop_at_higher = true;
  };

  static constexpr int kSlots = 3;
  enum OwnerStep : uint8_t {
    kIdle,
    kReadClaims,
    kScan,
    kCopy,
    kReread,
    kActivate,
    kServe,
    kAnswer
  };
  enum ClientStep : uint8_t { kWants, kValidates, kHas };

  struct ClaimLine {  // writer: the process that holds the slot
    uint8_t claimed, active, area;
  };
  struct Owner {
    uint8_t step, epoch, next, higher, base, base_area, area, value, client;
  };
  struct Client {
    uint8_t step, epoch, next, higher;
  };
  struct State {
    ClaimLine line[kSlots];
    Owner owner[kSlots];
    Client client[2];
    uint8_t area[2 * kSlots];  // 0: the block is free, c + 1: granted to client c
    uint8_t seed[2 * kSlots];  // epoch whose seed the area's checksums carry
    uint8_t crashes, unreadable;
  };

  static constexpr const char *kName = "takeover";
  static constexpr const char *kCovers =
      "claims, scan, copy forward, activation, re-claims, crashes, unreadable claims, accept";
  static constexpr Mutant<Rules> kMutants[] = {
      {"one-record", &Rules::two_records, "7",
       "claiming changes only `claimed`; `active` is never cleared"},
      {"one-area", &Rules::two_areas, "7",
       "a candidate fills the area its own `active` does not name"},
      {"base-refilled", &Rules::base_kept, "14",
       "the area that a slot's own `active` names is filled only if it is not the base"},
      {"base-not-reread", &Rules::base_reread, "14",
       "a candidate whose base is not the highest `active` any more does not activate"},
      {"first-active", &Rules::highest_base, "7", "the base is the highest `active` in any line"},
      {"own-base-only", &Rules::base_from_any_slot, "7", "the base may be another slot's"},
      {"candidate-skips-unreadable", &Rules::candidate_stops_at_unreadable, "7",
       "an unreadable pair counts as a higher claim: a candidate may not go on"},
      {"client-skips-unreadable", &Rules::client_stops_at_unreadable, "7",
       "an unreadable pair counts as a higher claim: an answer is not accepted"},
      {"no-accept", &Rules::accept, "7", "an answer counts only after accept()"},
      {"accept-active-only", &Rules::accept_all_claims, "7",
       "accept() looks at every claim, active or not"},
      {"candidate-ignores-higher", &Rules::stop_at_higher, "7",
       "a candidate stops at a higher claim"},
  };
  static constexpr const char *kMarks[] = {"grant accepted",         "a later owner serves",
                                           "a re-claim serves",      "a candidate stopped",
                                           "claims were unreadable", "crash"};

  // A device is lost, so slots fill their older areas, and who copies one looks at the base again.
  // That look makes up for four other rules: they are missed only where no device is lost and it is
  // not made. It takes three candidates to miss the look itself.
  Takeover(const Rules &rules, Mode mode)
      : rules_(rules),
        three_(mode == Mode::kLong || !rules.base_reread),
        device_lost_(rules.highest_base && rules.base_from_any_slot && rules.stop_at_higher &&
                     rules.candidate_stops_at_unreadable) {}

  State initial() const {
    State s{};
    s.line[0] = {epoch(1, 0), epoch(1, 0), 0};
    s.seed[0] = epoch(1, 0);
    s.owner[0].step = kServe;
    s.owner[0].epoch = epoch(1, 0);
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (int slot = 0; slot < slots(); slot++) {
      if (s.crashes == 0 && s.owner[slot].step != kIdle) {
        State n = s;
        n.owner[slot] = Owner{};
        n.crashes = 1;
        emit(n, "a process crashes and its slot is taken again");
      }
      if (s.owner[slot].step >= kServe) {
        serve(s, slot, emit);
      } else {
        candidate(s, slot, emit);
      }
    }
    client(s, 0, emit);
    client(s, 1, emit);
  }

  const char *violation(const State &s) const {
    if (s.client[0].step == kHas && s.client[1].step == kHas) {
      return "two clients accepted the same block";
    }
    for (int slot = 0; slot < slots(); slot++) {
      const Owner &o = s.owner[slot];
      if (o.step < kServe || o.epoch < highest_claim(s)) {
        continue;
      }
      for (int c = 0; c < 2; c++) {
        if (s.client[c].step == kHas && s.area[o.area] != c + 1) {
          return "an owner that nobody outbids does not know an accepted grant";
        }
      }
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    uint32_t bits = s.client[0].step == kHas;
    for (int slot = 0; slot < slots(); slot++) {
      const Owner &o = s.owner[slot];
      bits |= (o.step == kServe && slot != 0) << 1;
      bits |= (o.step == kServe && slot == 0 && o.epoch != epoch(1, 0)) << 2;
      bits |= (o.step == kIdle && s.line[slot].claimed > s.line[slot].active && s.crashes == 0)
              << 3;
    }
    return bits | (s.unreadable != 0) << 4 | (s.crashes != 0) << 5;
  }

  std::string show(const State &s) const {
    static const char *names[] = {"idle",   "read",     "scan",  "copy",
                                  "reread", "activate", "SERVE", "ANSWER"};
    std::string out;
    for (int i = 0; i < slots(); i++) {
      out += text("[%d: claimed %d.%d active %d.%d area%d %s %d.%d] ", i, s.line[i].claimed / 4,
                  s.line[i].claimed % 4, s.line[i].active / 4, s.line[i].active % 4, s.line[i].area,
                  names[s.owner[i].step], s.owner[i].epoch / 4, s.owner[i].epoch % 4);
    }
    return out + text("areas %d%d%d%d%d%d clients %d@%d %d@%d", s.area[0], s.area[1], s.area[2],
                      s.area[3], s.area[4], s.area[5], s.client[0].step, s.client[0].epoch,
                      s.client[1].step, s.client[1].epoch);
  }

private:
  static uint8_t epoch(int counter, int slot) { return static_cast<uint8_t>(counter * 4 + slot); }

  int slots() const { return three_ ? 3 : 2; }
  int counter_max() const { return 4; }

  uint8_t highest_claim(const State &s) const {
    uint8_t highest = 0;
    for (int slot = 0; slot < slots(); slot++) {
      highest = std::max(highest, s.line[slot].claimed);
    }
    return highest;
  }

  uint8_t highest_active(const State &s) const {
    uint8_t highest = 0;
    for (int slot = 0; slot < slots(); slot++) {
      highest = std::max(highest, s.line[slot].active);
    }
    return highest;
  }

  static void stop(State &n, int slot) { n.owner[slot] = Owner{}; }

  void candidate(const State &s, int slot, Sink<State> &emit) const {
    const Owner &o = s.owner[slot];
    State n = s;
    switch (o.step) {
      case kIdle:
        claim(s, slot, highest_claim(s) / 4 + 1, emit);
        break;
      case kReadClaims:
        read_claim(n.owner[slot], s.line[o.next], slot);
        finish_reading(n, slot);
        emit(n, "S reads a claim");
        if (s.unreadable == 0 && o.next != slot) {
          n = s;
          n.unreadable = 1;
          n.owner[slot].next++;
          n.owner[slot].higher |= rules_.candidate_stops_at_unreadable;
          finish_reading(n, slot);
          emit(n, "S cannot read a claim pair");
        }
        break;
      case kScan: {
        const ClaimLine &own = s.line[slot];
        // a line with another seed does not verify: what it said is lost
        n.owner[slot].value =
            o.base != 0 && s.seed[o.base_area] == o.base ? s.area[o.base_area] : 0;
        n.owner[slot].area = static_cast<uint8_t>(2 * slot);
        if (rules_.two_areas && own.active != 0 && own.area == 2 * slot) {
          n.owner[slot].area++;
        }
        n.owner[slot].step = kCopy;
        emit(n, "S scans the base");
        // the other area lies on a device that is lost: what was outbid by an activation will do
        const bool is_base = own.active == o.base && rules_.base_kept;
        if (device_lost_ && own.active != 0 && !is_base) {
          n.owner[slot].area = own.area;
          emit(n, "S scans the base, and fills its older area");
        }
        break;
      }
      case kCopy:
        n.area[o.area] = o.value;
        n.seed[o.area] = o.epoch;
        n.owner[slot].value = n.owner[slot].next = 0;
        n.owner[slot].base_area = 0;
        n.owner[slot].step = kReread;
        emit(n, "S copies forward");
        break;
      case kReread:  // once, all lines; a higher claim stops it, and so does another base
        if ((o.epoch < highest_claim(s) && rules_.stop_at_higher) ||
            (o.base != highest_active(s) && rules_.base_reread && device_lost_)) {
          stop(n, slot);
        } else {
          n.owner[slot].base = 0;
          n.owner[slot].step = kActivate;
        }
        emit(n, "S rereads the claims");
        break;
      case kActivate:
        n.line[slot].active = o.epoch;
        n.line[slot].area = o.area;
        n.owner[slot].step = kServe;
        emit(n, "S activates");
        break;
      default:
        break;
    }
  }

  void claim(const State &s, int slot, int counter, Sink<State> &emit) const {
    if (counter > counter_max()) {
      return;
    }
    State n = s;
    n.owner[slot].step = kReadClaims;
    n.owner[slot].epoch = n.line[slot].claimed = epoch(counter, slot);
    if (!rules_.two_records) {
      n.line[slot].active = n.line[slot].area = 0;
    }
    emit(n, "a slot claims");
  }

  void read_claim(Owner &o, const ClaimLine &line, int slot) const {
    if (line.claimed > o.epoch) {
      o.higher = 1;
    }
    const bool better = rules_.highest_base ? line.active > o.base : o.base == 0;
    if (line.active != 0 && better && (rules_.base_from_any_slot || o.next == slot)) {
      o.base = line.active;
      o.base_area = line.area;
    }
    o.next++;
  }

  void finish_reading(State &n, int slot) const {
    Owner &o = n.owner[slot];
    if (o.next < slots()) {
      return;
    }
    if (o.higher != 0 && rules_.stop_at_higher) {
      stop(n, slot);
      return;
    }
    o.step = kScan;
    o.next = o.higher = 0;
  }

  // Effect first (one drained line), then the answer; an outbid owner need not notice, and may.
  void serve(const State &s, int slot, Sink<State> &emit) const {
    const Owner &o = s.owner[slot];
    State n = s;
    if (o.step == kAnswer) {
      n.owner[slot].step = kServe;
      n.owner[slot].client = 0;
      if (s.client[o.client].step == kWants) {
        n.client[o.client] = {static_cast<uint8_t>(rules_.accept ? kValidates : kHas), o.epoch, 0,
                              0};
      }
      emit(n, "an owner answers");
      return;
    }
    if (o.epoch < highest_claim(s)) {
      stop(n, slot);
      emit(n, "an outbid owner steps down");
    }
    for (uint8_t c = 0; c < 2; c++) {
      if (s.client[c].step == kWants && (s.area[o.area] == 0 || s.area[o.area] == c + 1)) {
        n = s;
        n.area[o.area] = static_cast<uint8_t>(c + 1);
        n.seed[o.area] = o.epoch;
        n.owner[slot].client = c;
        n.owner[slot].step = kAnswer;
        emit(n, "an owner writes a grant");
      }
    }
  }

  // accept(): every claim line is read after the answer; any epoch above the answer's refuses it.
  void client(const State &s, int c, Sink<State> &emit) const {
    const Client &now = s.client[c];
    if (now.step != kValidates) {
      return;
    }
    State n = s;
    const ClaimLine &line = s.line[now.next];
    advance(n.client[c], (rules_.accept_all_claims ? line.claimed : line.active) > now.epoch);
    emit(n, "a client reads a claim");
    if (s.unreadable == 0) {
      n = s;
      n.unreadable = 1;
      advance(n.client[c], rules_.client_stops_at_unreadable);
      emit(n, "a client cannot read a claim pair");
    }
  }

  void advance(Client &client, bool higher) const {
    if (higher) {
      client = Client{};
    } else if (++client.next == slots()) {
      client = {kHas, 0, 0, 0};
    }
  }

  const Rules rules_;
  const bool three_, device_lost_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Takeover>().main(argc, argv);
}
