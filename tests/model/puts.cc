// SPDX-License-Identifier: Apache-2.0
// Owns the model of two members that put the same key (proto 9): PENDING entries, shards written by
// several ranks, the loser's EXISTS, and a member that dies on the way.
//
// Owner decisions are one drained line; a block is two shards, each with its own writing rank.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Puts {
public:
  struct Rules {
    bool all_shards_done = true;
    bool pending_is_no_hit = true;
    bool pending_dies_with_member = true;
    bool publication_replaces_pending = true;
    bool pending_never_replaces = true;
    bool loser_keeps_block = true;
    bool one_winner = true;
    bool pending_names_member = true;
  };

  enum Entry : uint8_t { kNone, kPending, kPublished };
  enum PutStep : uint8_t { kIdle, kWriting, kAsked, kDone, kDead };
  enum Block : uint8_t { kFree, kInHand, kUnderEntry };

  struct Put {
    uint8_t step, shards;  // shards written, a bit each
    uint8_t block;         // where the block stands
    uint8_t announced;     // a PENDING message is in its ring
    uint8_t exists;        // it was told EXISTS
  };
  struct State {
    uint8_t entry, entry_of;  // the key's entry and the member it names
    uint8_t second;           // a second published entry, which only a mutant makes: member + 1
    Put put[2];
    uint8_t reader, copied, bytes, from;
    uint8_t evicted;
  };

  static constexpr const char *kName = "puts";
  static constexpr const char *kCovers = "two puts of one key, PENDING, shards, a member that dies";
  static constexpr Mutant<Rules> kMutants[] = {
      {"shards-missing", &Rules::all_shards_done, "9",
       "a block is published only when every shard is done"},
      {"pending-is-hit", &Rules::pending_is_no_hit, "9",
       "a PENDING entry has no locator: it is never a hit"},
      {"pending-outlives", &Rules::pending_dies_with_member, "9",
       "PENDING is removed when its member is dead"},
      {"pending-blocks-put", &Rules::publication_replaces_pending, "9",
       "a complete publication replaces a PENDING entry"},
      {"pending-replaces", &Rules::pending_never_replaces, "9",
       "a PENDING message never replaces a published entry"},
      {"loser-loses-block", &Rules::loser_keeps_block, "9",
       "the loser gets EXISTS and keeps its block"},
      {"two-winners", &Rules::one_winner, "10", "at most one visible entry a key"},
      {"pending-anonymous", &Rules::pending_names_member, "9", "PENDING names its member"},
  };
  static constexpr const char *kMarks[] = {"hit",
                                           "PENDING seen by a reader",
                                           "EXISTS",
                                           "PENDING replaced by another",
                                           "died while PENDING",
                                           "published after a death"};

  Puts(const Rules &rules, Mode) : rules_(rules) {}

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t m = 0; m < 2; m++) {
      member(s, m, emit);
      owner(s, m, emit);
    }
    if (s.entry == kPublished && s.evicted == 0) {  // once, so that a put can be the second one
      State n = s;
      n.put[s.entry_of].block = kFree;
      n.entry = n.entry_of = 0;
      n.evicted = 1;
      emit(n, "the owner evicts the key");
    }
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.reader == 3 && s.bytes != 3) {
      return "a hit returned a block whose shards are not all there";
    }
    if (s.second != 0) {
      return "two visible entries of one key";
    }
    for (const Put &p : s.put) {
      const bool nowhere = s.entry != kPublished && s.evicted == 0;
      if ((p.step == kDone || p.exists) && nowhere) {
        return "a put was answered and the key is published nowhere";
      }
      if (p.step == kDone && p.exists && p.block != kInHand && p.block != kFree) {
        return "the loser's block is lost";
      }
    }
    return nullptr;
  }

  // In the end no PENDING is left and every block is free, published, or in a live member's hand.
  bool settled(const State &s) const {
    for (uint8_t m = 0; m < 2; m++) {
      const Put &p = s.put[m];
      const bool named = s.entry == kPublished && s.entry_of == m;
      if ((p.step != kDone && p.step != kDead) || (p.block == kUnderEntry) != named) {
        return false;
      }
      if (p.step == kDead && p.block == kInHand) {
        return false;
      }
    }
    return s.entry != kPending;
  }

  uint32_t marks(const State &s) const {
    const bool other = s.entry == kPublished && s.put[1 - s.entry_of].announced == 2;
    const bool died = s.put[0].step == kDead || s.put[1].step == kDead;
    return (s.reader == 3) | (s.reader == 2) << 1 | (s.put[0].exists != 0) << 2 | other << 3 |
           (s.entry == kPending && s.put[s.entry_of].step == kDead) << 4 |
           (s.entry == kPublished && died) << 5;
  }

  std::string show(const State &s) const {
    static const char *entry[] = {"none", "PENDING", "PUBLISHED"};
    static const char *steps[] = {"idle", "writing", "asked", "done", "DEAD"};
    static const char *blocks[] = {"free", "in hand", "under its entry"};
    std::string out = text("entry %s of %d, second %d | ", entry[s.entry], s.entry_of, s.second);
    for (const Put &p : s.put) {
      out += text("[%s shards %d block %s announced%d exists%d] ", steps[p.step], p.shards,
                  blocks[p.block], p.announced, p.exists);
    }
    return out + text("R step %d from %d got %d", s.reader, s.from, s.bytes);
  }

private:
  void member(const State &s, uint8_t m, Sink<State> &emit) const {
    const Put &now = s.put[m];
    State n = s;
    if (now.step == kIdle) {
      n.put[m].step = kWriting;
      n.put[m].block = kInHand;
      n.put[m].announced = 1;
      emit(n, "a member reserves and posts PENDING");
    } else if (now.step == kWriting) {
      for (uint8_t shard = 1; shard < 3; shard++) {
        if ((now.shards & shard) == 0) {
          n = s;
          n.put[m].shards |= shard;
          emit(n, "a rank writes its shard");
        }
      }
      if (now.shards == 3 || (!rules_.all_shards_done && now.shards != 0)) {
        n = s;
        n.put[m].step = kAsked;
        emit(n, "a member asks to publish");
      }
    }
    if (m == 0 && (now.step == kWriting || now.step == kAsked)) {
      n = s;
      n.put[m].step = kDead;
      emit(n, "member 0 dies");
    }
  }

  void owner(const State &s, uint8_t m, Sink<State> &emit) const {
    const Put &now = s.put[m];
    State n = s;
    if (now.announced == 1) {  // a message stays in the ring of a dead member too
      n.put[m].announced = 2;
      if (now.step == kDead && rules_.pending_dies_with_member) {
        emit(n, "the owner ignores a dead member's PENDING");
      } else if (s.entry == kNone || (s.entry == kPublished && !rules_.pending_never_replaces)) {
        n.entry = kPending;
        n.entry_of = rules_.pending_names_member ? m : uint8_t{1};
        emit(n, "the owner writes PENDING");
      } else {
        emit(n, "the owner drops PENDING: the key has an entry");
      }
    }
    if (now.step == kAsked && now.announced == 2) {  // a ring is read in order
      publish(s, m, emit);
    }
    if (now.step != kDead) {
      return;
    }
    if (s.entry == kPending && s.entry_of == m && rules_.pending_dies_with_member) {
      n = s;
      n.entry = n.entry_of = 0;
      emit(n, "the owner removes a dead member's PENDING");
    }
    if (now.block == kInHand) {  // QUIET and acknowledged: the allocation model's matter
      n = s;
      n.put[m].block = kFree;
      emit(n, "the owner takes a dead member's block");
    }
  }

  void publish(const State &s, uint8_t m, Sink<State> &emit) const {
    State n = s;
    n.put[m].step = kDone;
    const bool taken = s.entry == kPublished && rules_.one_winner;
    const bool refused =
        s.entry == kPending && s.entry_of != m && !rules_.publication_replaces_pending;
    if (taken || refused) {
      n.put[m].exists = 1;
      n.put[m].block = rules_.loser_keeps_block ? kInHand : kUnderEntry;
      emit(n, "the owner answers EXISTS");
    } else if (s.entry == kPublished) {
      n.second = static_cast<uint8_t>(m + 1);
      emit(n, "the owner publishes once more");
    } else {
      n.entry = kPublished;
      n.entry_of = m;
      n.put[m].block = kUnderEntry;
      emit(n, "the owner publishes");
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case 0:
        if (s.entry == kPublished || (s.entry == kPending && !rules_.pending_is_no_hit)) {
          n.reader = 1;
          n.from = s.entry_of;
        } else if (s.entry == kPending) {
          n.reader = 2;
        }
        emit(n, "R looks up");
        break;
      case 1:  // copy and validation, as one step: reuse is the validated-read model's matter
        n.bytes = s.put[s.from].shards;
        n.reader = s.entry != kNone && s.entry_of == s.from ? 3 : 0;
        emit(n, "R copies and validates");
        break;
      default:
        n.reader = n.bytes = n.from = 0;
        emit(n, "R starts again");
        break;
    }
  }

  const Rules rules_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Puts>().main(argc, argv);
}
