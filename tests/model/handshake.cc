// SPDX-License-Identifier: Apache-2.0
// Owns the model of accept() against a take-over on incoherent caches (proto 7, 15): the old owner
// writes an effect and answers it, the client reads the answer and then the claims; a candidate
// claims, settles and scans. Either the client sees the claim, or the scan sees the effect.
//
// Two worlds, chosen by the first step, because the protocol wears belt and braces here. In the
// strict world drain_strict puts a store on the medium and nobody settles; in the settling world
// the drain is only a fence (A8 at its worst) and the candidate waits 2 delta. Each alone must
// suffice.
#include "caches.hpp"

namespace kvpool::model {
namespace {

class Handshake {
public:
  struct Rules {
    bool fence_effect = true;
    bool strict_effect = true;
    bool fence_claim = true;
    bool strict_claim = true;
    bool settle = true;
    bool acquire_claim = true;
    bool acquire_scan = true;
    bool acquire_is_fenced = true;
    bool accept = true;
    bool claim_after_answer = true;
  };

  enum Host { kOwner, kCandidate, kClient };
  enum Line { kEffect, kAnswer, kClaim };
  enum World : uint8_t { kUnchosen, kStrict, kSettling };
  enum OwnerStep : uint8_t { kWrite, kDrainEffect, kReply, kReplied };
  enum CandidateStep : uint8_t {
    kRaise,
    kDrainClaim,
    kFirstDelta,
    kSecondDelta,
    kAcquireArea,
    kScan,
    kScanned
  };
  enum ClientStep : uint8_t {
    kAcquireAnswer,
    kLoadAnswer,
    kAcquireClaim,
    kLoadClaim,
    kAccepted,
    kRefused
  };

  struct State {
    Memory<3, 3> mem;
    uint8_t late[3];  // stores of each host that were in the fabric when the settle began
    uint8_t world, owner, candidate, client, seen_claim, scanned_effect;
  };

  static constexpr const char *kName = "handshake";
  static constexpr const char *kCovers =
      "accept() against claim, settle and scan, on caches, store buffers and a fabric";
  static constexpr Mutant<Rules> kMutants[] = {
      {"no-effect-fence", &Rules::fence_effect, "7", "the effect is fenced before the answer"},
      {"weak-effect-drain", &Rules::strict_effect, "7",
       "without a settle the effect is on the medium before the answer"},
      {"no-claim-fence", &Rules::fence_claim, "7", "the claim is fenced before the scan"},
      {"weak-claim-drain", &Rules::strict_claim, "7",
       "without a settle the claim is on the medium before the scan"},
      {"no-settle", &Rules::settle, "7", "where fences are weak the candidate waits 2 delta"},
      {"no-claim-acquire", &Rules::acquire_claim, "7", "accept() reads the claims from the medium"},
      {"no-scan-acquire", &Rules::acquire_scan, "7", "the scan reads the area from the medium"},
      {"unfenced-acquire", &Rules::acquire_is_fenced, "4",
       "the flush of an acquire has happened before the load"},
      {"no-accept", &Rules::accept, "7", "an answer counts only after accept()"},
      {"claim-before-answer", &Rules::claim_after_answer, "7",
       "the claims are read after the answer was"},
  };
  static constexpr const char *kMarks[] = {
      "accepted before the claim", "refused",      "scan saw effect",
      "scan without effect",       "strict world", "settling world"};

  Handshake(const Rules &rules, Mode) : rules_(rules) {}

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    if (s.world == kUnchosen) {
      for (const World world : {kStrict, kSettling}) {
        State n = s;
        n.world = world;
        emit(n, world == kStrict ? "strict world" : "settling world");
      }
      return;
    }
    constexpr uint32_t kLoads = 1u << (kCandidate * 3 + kEffect) | 1u << (kClient * 3 + kAnswer) |
                                1u << (kClient * 3 + kClaim);
    Sink<State> moves;
    spontaneous(s, &State::mem, kLoads, moves);
    for (const auto &step : moves.steps()) {  // what has landed is late no longer
      State n = step.state;
      for (int host = 0; host < 3; host++) {
        for (int line = 0; line < 3; line++) {
          if (n.mem.fabric[host][line] == 0) {
            n.late[host] &= static_cast<uint8_t>(~(1 << line));
          }
        }
      }
      emit(n, step.label);
    }
    owner(s, emit);
    candidate(s, emit);
    client(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.client == kAccepted && s.candidate == kScanned && s.scanned_effect == 0) {
      return "the client accepted an answer whose effect the scan did not see";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool scanned = s.candidate == kScanned;
    return (s.client == kAccepted && s.candidate == kRaise) | (s.client == kRefused) << 1 |
           (scanned && s.scanned_effect) << 2 | (scanned && !s.scanned_effect) << 3 |
           (scanned && s.world == kStrict) << 4 | (scanned && s.world == kSettling) << 5;
  }

  std::string show(const State &s) const {
    const auto &m = s.mem;
    return text(
        "medium effect%d answer%d claim%d | O %d S %d C %d | fabric O%d%d S%d | C caches "
        "answer%d claim%d S caches effect%d | scan %d",
        m.medium[0], m.medium[1], m.medium[2], s.owner, s.candidate, s.client, m.fabric[0][0],
        m.fabric[0][1], m.fabric[1][2], m.cache[2][1], m.cache[2][2], m.cache[1][0],
        s.scanned_effect);
  }

private:
  bool drained(const State &s, Host host, bool fence, bool strict) const {
    if (!fence) {
      return true;
    }
    return s.world == kStrict && strict ? s.mem.on_medium(host) : s.mem.fenced(host);
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.owner) {
      case kWrite:
        n.mem.stream(kOwner, kEffect, 1);
        n.owner = kDrainEffect;
        emit(n, "O writes the effect");
        break;
      case kDrainEffect:
        if (drained(s, kOwner, rules_.fence_effect, rules_.strict_effect)) {
          n.owner = kReply;
          emit(n, "O drained");
        }
        break;
      case kReply:
        n.mem.stream(kOwner, kAnswer, 1);
        n.owner = kReplied;
        emit(n, "O answers");
        break;
      default:
        break;
    }
  }

  // The 2 delta of the settle are two waits: until the claim has landed, then until everything
  // that was under way at that moment has landed too.
  void candidate(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.candidate) {
      case kRaise:
        n.mem.stream(kCandidate, kClaim, 1);
        n.candidate = kDrainClaim;
        emit(n, "S claims");
        break;
      case kDrainClaim:
        if (drained(s, kCandidate, rules_.fence_claim, rules_.strict_claim)) {
          n.candidate = s.world == kSettling && rules_.settle ? kFirstDelta : kAcquireArea;
          emit(n, "S drained");
        }
        break;
      case kFirstDelta:
        if (s.mem.on_medium(kCandidate)) {
          for (int host = 0; host < 3; host++) {
            for (int line = 0; line < 3; line++) {
              n.late[host] |= static_cast<uint8_t>((s.mem.fabric[host][line] != 0) << line);
            }
          }
          n.candidate = kSecondDelta;
          emit(n, "S waited delta");
        }
        break;
      case kSecondDelta:
        if ((s.late[0] | s.late[1] | s.late[2]) == 0) {
          n.candidate = kAcquireArea;
          emit(n, "S waited 2 delta");
        }
        break;
      case kAcquireArea:
        if (rules_.acquire_scan) {
          acquire(n, kCandidate, kEffect);
        }
        n.candidate = kScan;
        emit(n, "S acquires the area");
        break;
      case kScan:
        n.scanned_effect = s.mem.load(kCandidate, kEffect);
        n.candidate = kScanned;
        emit(n, "S scans");
        break;
      default:
        break;
    }
  }

  void acquire(State &n, Host host, Line line) const {
    if (rules_.acquire_is_fenced) {
      n.mem.flush_now(host, line);
    } else {
      n.mem.flush[host][line] = 1;
    }
  }

  void client(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.client) {
      case kAcquireAnswer:
        acquire(n, kClient, kAnswer);
        if (!rules_.claim_after_answer) {  // one wave for both, and the claim happens to load first
          acquire(n, kClient, kClaim);
          n.seen_claim = n.mem.load(kClient, kClaim);
        }
        n.client = kLoadAnswer;
        emit(n, "C acquires the answer");
        break;
      case kLoadAnswer:
        if (s.mem.load(kClient, kAnswer) == 0) {
          n.client = kAcquireAnswer;
        } else if (!rules_.accept) {
          n.client = kAccepted;
        } else if (!rules_.claim_after_answer) {
          n.client = s.seen_claim == 0 ? kAccepted : kRefused;
        } else {
          n.client = kAcquireClaim;
        }
        emit(n, "C loads the answer");
        break;
      case kAcquireClaim:
        if (rules_.acquire_claim) {
          acquire(n, kClient, kClaim);
        }
        n.client = kLoadClaim;
        emit(n, "C acquires the claims");
        break;
      case kLoadClaim:
        n.client = s.mem.load(kClient, kClaim) == 0 ? kAccepted : kRefused;
        emit(n, "C loads the claims");
        break;
      default:
        break;
    }
  }

  const Rules rules_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Handshake>().main(argc, argv);
}
