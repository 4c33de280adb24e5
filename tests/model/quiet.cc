// SPDX-License-Identifier: Apache-2.0
// Owns the model of QUIET (proto 6, 8): how an owner learns that an incarnation will never store
// again, and when that is true of what it stored already. Proofs: the slot's lock is free, a newer
// incarnation stands in the slot, the line says LEFT; and the holder may give its block back while
// it lives. A store that has left its host may reach the medium up to delta later, over whatever
// the block's next writer on another host published there meanwhile.
//
// The former holder and the owner are processes of one host, the next writer is on another. The
// kernel's own fences lie between a process's last store and the moment its lock is free.
#include "caches.hpp"

namespace kvpool::model {
namespace {

class Quiet {
public:
  struct Rules {
    bool wait_after_lock = true;
    bool wait_from_free = true;
    bool wait_after_incarnation = true;
    bool wait_after_left = true;
    bool fence_before_left = true;
    bool drain_before_return = true;
    bool past_the_cache = true;
    bool rejoin_after_writers = true;
    bool tag_compared = true;
  };

  enum Host { kHere, kThere };
  enum Line { kBlock, kSlot };
  enum Holder : uint8_t { kRuns, kReturning, kReturned, kLeaving, kGone };
  enum Proof : uint8_t { kNone, kByLock, kByIncarnation, kByLeft, kByReturn };
  enum Owner : uint8_t { kWatches, kSuspects, kLooked, kWaits, kGranted };
  enum Writer : uint8_t { kWants, kStores, kDrains, kPublished };
  // What the slot's line says: the former holder, one that left, the one that came next.
  static constexpr uint8_t kFormer = 0, kLeft = 1, kNext = 2;
  static constexpr uint8_t kOld = 1, kNew = 2;  // bytes of the block

  struct State {
    Memory<2, 2> mem;
    uint8_t holder, stores, next;  // next: a new incarnation has the lock of the slot
    uint8_t owner, proof, waited, got;
    uint8_t writer, has_next;  // has_next: the new incarnation holds a block of its own
  };

  static constexpr const char *kName = "quiet";
  static constexpr const char *kCovers =
      "QUIET by a free lock, a newer incarnation, LEFT; stores of the dead still under way";
  static constexpr Mutant<Rules> kMutants[] = {
      {"lock-believed-at-once", &Rules::wait_after_lock, "6",
       "a free lock proves QUIET delta after it was found free"},
      {"waited-before-free", &Rules::wait_from_free, "6",
       "that delta begins when the lock was found free, not when the heartbeat stood still"},
      {"incarnation-believed-at-once", &Rules::wait_after_incarnation, "6",
       "a newer incarnation proves the earlier ones QUIET delta after it was seen"},
      {"left-believed-at-once", &Rules::wait_after_left, "6",
       "LEFT proves QUIET delta after it was seen"},
      {"left-not-fenced", &Rules::fence_before_left, "6",
       "a member fences what it stored before it says LEFT"},
      {"returned-undrained", &Rules::drain_before_return, "8",
       "what was written to a block is on the medium before the block goes back unpublished"},
      {"stored-through-cache", &Rules::past_the_cache, "4",
       "payload is streamed: a line left dirty in a cache is written back whenever"},
      {"rejoined-while-writing", &Rules::rejoin_after_writers, "6",
       "a process joins anew when nobody of it writes under the former incarnation any more"},
      {"tag-not-compared", &Rules::tag_compared, "8",
       "only what the map gives to the proven incarnation comes back"},
  };
  static constexpr const char *kMarks[] = {"proof by the lock", "proof by a newer incarnation",
                                           "proof by LEFT",     "given back alive",
                                           "killed while a store is under way",
                                           "published by the next writer"};

  Quiet(const Rules &rules, Mode mode) : rules_(rules), stores_(mode == Mode::kLong ? 3 : 1) {}

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    spontaneous(s, &State::mem, 1u << (kHere * 2 + kSlot), emit);
    holder(s, emit);
    newcomer(s, emit);
    owner(s, emit);
    writer(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.writer == kPublished && s.mem.medium[kBlock] != kNew) {
      return "a store of the former holder lies over a published block";
    }
    if (s.writer != kWants && s.has_next != 0) {
      return "two living members hold the same block";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool granted = s.owner == kGranted;
    return (granted && s.proof == kByLock) | (granted && s.proof == kByIncarnation) << 1 |
           (granted && s.proof == kByLeft) << 2 | (granted && s.proof == kByReturn) << 3 |
           (s.holder == kGone && !s.mem.on_medium(kHere)) << 4 | (s.writer == kPublished) << 5;
  }

  std::string show(const State &s) const {
    return text(
        "medium block %d slot %d | here: buffer %d %d fabric %d %d cache %d %d | holder %d "
        "next %d(%d) | owner %d proof %d waited%d | writer %d",
        s.mem.medium[0], s.mem.medium[1], s.mem.buffer[0][0], s.mem.buffer[0][1],
        s.mem.fabric[0][0], s.mem.fabric[0][1], s.mem.cache[0][0], s.mem.cache[0][1], s.holder,
        s.next, s.has_next, s.owner, s.proof, s.waited, s.writer);
  }

private:
  static void fence(State &n, Line line) {
    if (n.mem.buffer[kHere][line] != 0) {
      n.mem.fabric[kHere][line] = n.mem.buffer[kHere][line];
      n.mem.buffer[kHere][line] = 0;
    }
  }
  // What was fenced before the wait began has landed.
  static bool delta_over(const State &s) {
    return s.mem.fabric[kHere][kBlock] == 0 && s.mem.fabric[kHere][kSlot] == 0;
  }

  void holder(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool free_to_fence =
        s.mem.fabric[kHere][kBlock] == 0 || s.mem.buffer[kHere][kBlock] == 0;
    if (s.holder == kRuns && s.stores < stores_) {
      n.stores++;
      if (rules_.past_the_cache) {
        n.mem.stream(kHere, kBlock, kOld);
      } else {
        n.mem.store_cached(kHere, kBlock, kOld);
      }
      emit(n, "the holder stores into its block");
    }
    if (s.holder == kRuns) {
      n = s;
      n.holder = kReturning;
      emit(n, "the holder gives up what it was writing");
    }
    if (s.holder == kReturning && (s.mem.on_medium(kHere) || !rules_.drain_before_return)) {
      n = s;
      n.holder = kReturned;
      emit(n, "the holder gives the block back");
    }
    if (s.holder == kRuns && (s.mem.fenced(kHere) || !rules_.fence_before_left)) {
      n = s;
      n.holder = kLeaving;
      n.mem.stream(kHere, kSlot, kLeft);
      emit(n, "the holder says LEFT");
    }
    if (s.holder == kRuns && s.next == 0 &&
        (s.mem.fenced(kHere) || !rules_.rejoin_after_writers)) {
      n = s;
      n.holder = rules_.rejoin_after_writers ? kGone : kRuns;
      n.next = 1;
      n.mem.stream(kHere, kSlot, kNext);
      emit(n, "the holder's process joins anew in its slot");
    }
    const bool lives = s.holder == kRuns || s.holder == kReturning;
    if (lives && free_to_fence) {
      n = s;
      n.holder = kGone;
      fence(n, kBlock);
      emit(n, "the holder is killed");
    }
    if (s.holder == kLeaving && s.mem.fenced(kHere)) {
      n = s;
      n.holder = kGone;
      emit(n, "the holder lets its lock go");
    }
  }

  // Takes the slot of who is gone, and holds a block itself: in the model, the very same one, if
  // somebody grants it that.
  void newcomer(const State &s, Sink<State> &emit) const {
    if (s.holder == kGone && s.next == 0 && s.mem.buffer[kHere][kSlot] == 0) {
      State n = s;
      n.next = 1;
      n.mem.stream(kHere, kSlot, kNext);
      emit(n, "a new incarnation writes the slot's line");
    }
    // the owner may have granted the block to it, once it was proven free
    if (s.next != 0 && s.owner == kGranted && s.writer == kWants && s.has_next == 0) {
      State n = s;
      n.has_next = 1;
      n.owner = kWatches;
      n.proof = kNone;
      n.waited = n.got = 0;
      emit(n, "the block is granted to the new incarnation");
    }
  }

  bool waits(uint8_t proof) const {
    return (proof == kByLock && rules_.wait_after_lock) ||
           (proof == kByIncarnation && rules_.wait_after_incarnation) ||
           (proof == kByLeft && rules_.wait_after_left);
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.owner) {
      case kWatches:
        watch(s, emit);
        break;
      case kSuspects:  // only a mutant waits here, before it knows
        if (s.waited == 0 && delta_over(s)) {
          n.waited = 1;
          emit(n, "delta is over since the heartbeat stood still");
        }
        if (s.waited != 0 && s.holder == kGone && s.next == 0) {
          n.owner = kWaits;
          n.proof = kByLock;
          emit(n, "the owner finds the lock free");
        }
        break;
      case kLooked:
        n.got = s.mem.load(kHere, kSlot);
        n.owner = kWatches;
        if (n.got == kLeft || n.got == kNext) {
          n.owner = kWaits;
          n.proof = n.got == kLeft ? kByLeft : kByIncarnation;
        }
        n.got = 0;
        emit(n, "the owner loads the slot's line");
        break;
      case kWaits:
        if (!waits(s.proof) || s.waited != 0 || delta_over(s)) {
          n.owner = kGranted;
          n.waited = 0;
          emit(n, "the owner believes that the holder is QUIET");
        }
        break;
      default:
        break;
    }
  }

  void watch(const State &s, Sink<State> &emit) const {
    State n = s;
    // The map gives the block to the new incarnation: its own slot's proofs are not about it.
    if (s.has_next != 0 && rules_.tag_compared) {
      return;
    }
    if (s.writer != kWants) {
      return;
    }
    if (s.holder == kReturned) {
      n.owner = kGranted;
      n.proof = kByReturn;
      emit(n, "the owner has the block back");
      return;
    }
    if (s.holder == kGone && s.next == 0) {
      n.owner = kWaits;
      n.proof = kByLock;
      emit(n, "the owner finds the lock free");
    }
    if (!rules_.wait_from_free) {
      n = s;
      n.owner = kSuspects;
      emit(n, "the owner sees the heartbeat stand still");
    }
    n = s;
    n.mem.flush_now(kHere, kSlot);
    n.owner = kLooked;
    emit(n, "the owner acquires the slot's line");
  }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.writer == kWants && s.owner == kGranted) {
      n.writer = kStores;
      emit(n, "W is granted the block");
    } else if (s.writer == kStores) {
      n.mem.stream(kThere, kBlock, kNew);
      n.writer = kDrains;
      emit(n, "W stores into the block");
    } else if (s.writer == kDrains && s.mem.on_medium(kThere)) {
      n.writer = kPublished;
      emit(n, "W has drained and publishes");
    }
  }

  const Rules rules_;
  const uint8_t stores_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Quiet>().main(argc, argv);
}
