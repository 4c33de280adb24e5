// SPDX-License-Identifier: Apache-2.0
// Owns the model of the two copies of a claim line (proto 7): a slot claims and activates by
// writing two copies on two devices, may be killed in the middle of a store, one device may be
// lost, and a client and a later candidate read whatever can be read.
//
// Epoch 1 serves at the start, the slot under test claims epoch 2, a later candidate epoch 3. Only
// the middle slot's line is split in copies; settling is the handshake model's.
#include "engine.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Claims {
public:
  struct Rules {
    bool one_after_another = true;
    bool scan_after_both = true;
    bool serve_after_both = true;
    bool pair_lost_stops = true;
    bool torn_is_unreadable = true;
    bool read_both_copies = true;
  };

  enum Copy : uint8_t { kOld, kClaimed, kActive, kTorn };
  enum SlotStep : uint8_t {
    kIdle,
    kClaim0,
    kClaimBetween,
    kClaim1,
    kClaimBoth,
    kCopied,
    kActivate0,
    kActivateBetween,
    kActivate1,
    kServes,
    kStopped
  };
  enum ClientStep : uint8_t { kWants, kReads, kAccepted, kRefused };
  enum LaterStep : uint8_t { kQuiet, kReading, kScanned, kGivesUp };

  struct State {
    uint8_t copy[2], device_lost;  // 1 + index of a copy that cannot be read any more
    uint8_t slot, killed;
    uint8_t effect[2];  // in the areas of epochs 1 and 2
    uint8_t client, answer_epoch, client_read, client_higher, client_unreadable;
    uint8_t later, later_read, later_active, later_unreadable, later_effect;
  };

  static constexpr const char *kName = "claims";
  static constexpr const char *kCovers =
      "the two copies of a claim line, kills inside a store, loss of a device";
  static constexpr Mutant<Rules> kMutants[] = {
      {"copies-at-once", &Rules::one_after_another, "7",
       "the copies are written one after another"},
      {"scan-after-one", &Rules::scan_after_both, "7",
       "the scan begins after both copies are written"},
      {"serve-after-one", &Rules::serve_after_both, "7",
       "serving begins after both copies are written"},
      {"lost-pair-ignored", &Rules::pair_lost_stops, "7",
       "a pair of unreadable copies counts as a higher claim"},
      {"torn-copy-believed", &Rules::torn_is_unreadable, "4", "a torn line is unreadable, not old"},
      {"one-copy-read", &Rules::read_both_copies, "7", "both copies are always read"},
  };
  static constexpr const char *kMarks[] = {"accepted from epoch 1",
                                           "accepted from epoch 2",
                                           "device lost",
                                           "killed inside a store",
                                           "later candidate scanned epoch 2's area",
                                           "later candidate gave up",
                                           "refused"};

  Claims(const Rules &rules, Mode) : rules_(rules) {}

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    slot(s, emit);
    owners(s, emit);
    client(s, emit);
    later(s, emit);
    if (s.device_lost == 0) {
      for (uint8_t i = 1; i <= 2; i++) {
        State n = s;
        n.device_lost = i;
        emit(n, "a device is lost");
      }
    }
  }

  const char *violation(const State &s) const {
    if (s.copy[0] == kTorn && s.copy[1] == kTorn) {
      return "a kill here leaves no readable copy";
    }
    if (s.client != kAccepted) {
      return nullptr;
    }
    if (s.later == kScanned && s.later_effect == 0) {
      return "the later candidate's scan did not see an accepted effect";
    }
    if (s.slot == kServes && s.later == kQuiet && s.effect[1] == 0) {
      return "an owner that nobody outbids does not know an accepted effect";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool accepted = s.client == kAccepted;
    return (accepted && s.answer_epoch == 1) | (accepted && s.answer_epoch == 2) << 1 |
           (s.device_lost != 0) << 2 |
           (s.killed && (s.copy[0] == kTorn || s.copy[1] == kTorn)) << 3 |
           (s.later == kScanned && s.later_active == 2) << 4 | (s.later == kGivesUp) << 5 |
           (s.client == kRefused) << 6;
  }

  std::string show(const State &s) const {
    static const char *copies[] = {"old", "claimed", "active", "TORN"};
    return text(
        "copies %s %s lost %d | slot step %d killed%d | effects %d %d | client %d epoch %d read %d "
        "higher%d | later %d read %d active %d effect %d",
        copies[s.copy[0]], copies[s.copy[1]], s.device_lost, s.slot, s.killed, s.effect[0],
        s.effect[1], s.client, s.answer_epoch, s.client_read, s.client_higher, s.later,
        s.later_read, s.later_active, s.later_effect);
  }

private:
  bool readable(const State &s, int i) const {
    return s.device_lost != i + 1 && (s.copy[i] != kTorn || !rules_.torn_is_unreadable);
  }

  // A store of one copy is torn until it has landed; a kill may leave it so.
  void slot(const State &s, Sink<State> &emit) const {
    if (s.killed != 0) {
      return;
    }
    State n = s;
    if (s.slot != kIdle && s.slot != kStopped) {
      n.killed = 1;
      emit(n, "the slot's process is killed");
      n = s;
    }
    switch (s.slot) {
      case kIdle:
        begin(n, kClaim0);
        emit(n, "the slot claims: copy 0 under way");
        break;
      case kClaim0:
        n.copy[0] = kClaimed;
        n.slot = kClaimBetween;
        emit(n, "copy 0 landed");
        break;
      case kClaimBetween:
        n.copy[1] = kTorn;
        n.slot = kClaim1;
        emit(n, "copy 1 under way");
        if (!rules_.scan_after_both) {
          copy_forward(s, emit);
        }
        break;
      case kClaim1:
        n.copy[1] = kClaimed;
        n.slot = kClaimBoth;
        emit(n, "copy 1 landed");
        break;
      case kClaimBoth:
        copy_forward(s, emit);
        break;
      case kCopied:
        if (s.later != kQuiet) {
          n.slot = kStopped;
          emit(n, "the slot sees a higher claim and stops");
        } else {
          begin(n, kActivate0);
          emit(n, "the slot activates: copy 0 under way");
        }
        break;
      case kActivate0:
        n.copy[0] = kActive;
        n.slot = rules_.serve_after_both ? kActivateBetween : kServes;
        emit(n, "copy 0 landed");
        break;
      case kActivateBetween:
        n.copy[1] = kTorn;
        n.slot = kActivate1;
        emit(n, "copy 1 under way");
        break;
      case kActivate1:
        n.copy[1] = kActive;
        n.slot = kServes;
        emit(n, "copy 1 landed: the slot serves");
        break;
      case kServes:
        if (s.copy[1] != kActive) {
          n.copy[1] = kActive;
          emit(n, "copy 1 landed, late");
        }
        break;
      default:
        break;
    }
  }

  void begin(State &n, SlotStep step) const {
    n.copy[0] = kTorn;
    n.slot = step;
    if (!rules_.one_after_another) {
      n.copy[1] = kTorn;
    }
  }

  static void copy_forward(const State &s, Sink<State> &emit) {
    State n = s;
    n.effect[1] = s.effect[0];
    n.slot = kCopied;
    emit(n, "the slot scans and copies forward");
  }

  // Epoch 1 never notices anything; epoch 2 answers once it serves.
  void owners(const State &s, Sink<State> &emit) const {
    if (s.client != kWants) {
      return;
    }
    for (uint8_t e = 1; e <= 2; e++) {
      if (e == 1 || (s.slot == kServes && s.killed == 0)) {
        State n = s;
        n.effect[e - 1] = 1;
        n.client = kReads;
        n.answer_epoch = e;
        emit(n, e == 1 ? "epoch 1 writes an effect and answers"
                       : "epoch 2 writes an effect and answers");
      }
    }
  }

  // accept(): both copies of the middle slot and the later candidate's line, in any order.
  void client(const State &s, Sink<State> &emit) const {
    if (s.client != kReads) {
      return;
    }
    for (uint8_t i = 0; i < 3; i++) {
      if (s.client_read >> i & 1) {
        continue;
      }
      State n = s;
      n.client_read |= static_cast<uint8_t>(1 << i);
      if (i == 2) {
        n.client_higher |= s.later != kQuiet;
      } else if (i == 0 || rules_.read_both_copies) {
        const bool claimed = s.copy[i] == kClaimed || s.copy[i] == kActive;
        n.client_unreadable += !readable(s, i);
        n.client_higher |= readable(s, i) && claimed && s.answer_epoch == 1;
      }
      if (n.client_read == 7) {
        const bool pair_lost = n.client_unreadable == 2 && rules_.pair_lost_stops;
        n.client = n.client_higher || pair_lost ? kRefused : kAccepted;
        n.client_read = n.client_higher = n.client_unreadable = 0;
      }
      emit(n, "the client reads a claim line");
    }
  }

  void later(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.later == kQuiet) {
      n.later = kReading;
      n.later_active = 1;
      emit(n, "a later candidate claims epoch 3");
    } else if (s.later == kReading && s.later_read != 3) {
      for (uint8_t i = 0; i < 2; i++) {
        if (s.later_read >> i & 1) {
          continue;
        }
        n = s;
        n.later_read |= static_cast<uint8_t>(1 << i);
        if (i == 0 || rules_.read_both_copies) {
          n.later_unreadable += !readable(s, i);
          n.later_active = readable(s, i) && s.copy[i] == kActive ? 2 : s.later_active;
        }
        emit(n, "the later candidate reads a copy");
      }
    } else if (s.later == kReading) {
      if (s.later_unreadable == 2 && rules_.pair_lost_stops) {
        n.later = kGivesUp;
        emit(n, "the later candidate finds no readable copy");
      } else {
        n.later_effect = s.effect[s.later_active - 1];
        n.later = kScanned;
        emit(n, "the later candidate scans its base");
      }
    }
  }

  const Rules rules_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Claims>().main(argc, argv);
}
