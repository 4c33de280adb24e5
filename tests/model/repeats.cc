// SPDX-License-Identifier: Apache-2.0
// Owns the model of repeated requests (proto 8, 12): a member asks for an extent, gives it back,
// and asks again; its requests stay visible and are sent again, owners change twice, and the
// member's process may be replaced by a new incarnation. What is checked is I8, once means once:
// the extents that the map gives the member are exactly those it has.
//
// A take-over is one step here and ends the old owner's work: zombies are the in-doubt model's
// matter.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Repeats {
public:
  struct Rules {
    bool epoch_in_request = true;
    bool incarnation_in_request = true;
    bool last_answer_kept = true;
    bool report_first = true;
    bool match_sequence = true;
    bool match_epoch = true;
    bool match_incarnation = true;
  };

  enum Operation : uint8_t { kGet = 1, kRelease = 2 };
  enum MemberStep : uint8_t { kWants, kAsksGet, kHolds, kAsksRelease, kDone };

  struct Message {
    uint8_t sequence, epoch, incarnation, operation, extent;
  };
  struct State {
    uint8_t epoch;
    uint8_t held[2];                     // the map: extent is the member's
    uint8_t last_sequence, last_extent;  // the owner's DRAM: its last answer to this slot
    uint8_t reported;
    Message ring;        // the request line; it stays
    Message work;        // the owner's decision under way; sequence 0: none
    uint8_t effect;      // its effect is on the medium
    Message answer;      // the response line of the owner of answer.epoch; it stays
    Message old_answer;  // the response line that an earlier owner left
    uint8_t member, extent, sequence, sent_epoch, incarnation, rounds;
  };

  static constexpr const char *kName = "repeats";
  static constexpr const char *kCovers = "requests sent again, across owners and incarnations";
  static constexpr Mutant<Rules> kMutants[] = {
      {"no-epoch-in-request", &Rules::epoch_in_request, "12",
       "an owner of another epoch does not execute it"},
      {"no-incarnation-in-request", &Rules::incarnation_in_request, "12",
       "the owner ignores lines of another incarnation"},
      {"answer-forgotten", &Rules::last_answer_kept, "12",
       "within an epoch the owner repeats its last answer"},
      {"no-report", &Rules::report_first, "8",
       "a member reports what it holds before a new owner serves it"},
      {"sequence-not-matched", &Rules::match_sequence, "12",
       "an answer carries the request's sequence"},
      {"epoch-not-matched", &Rules::match_epoch, "12", "an answer carries its epoch"},
      {"incarnation-not-matched", &Rules::match_incarnation, "12",
       "an answer carries the incarnation"},
  };
  static constexpr const char *kMarks[] = {"extent held", "given back", "two take-overs",
                                           "new incarnation holds", "second round done"};

  Repeats(const Rules &rules, Mode mode) : rules_(rules), epochs_(mode == Mode::kLong ? 5 : 3) {}

  State initial() const {
    State s{};
    s.epoch = 1;
    s.reported = 1;
    s.incarnation = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    if (s.epoch < epochs_) {
      State n = s;
      n.epoch++;
      n.last_sequence = n.last_extent = 0;
      n.work = Message{};
      n.effect = n.reported = 0;
      if (s.answer.sequence != 0) {
        n.old_answer = s.answer;
      }
      n.answer = Message{};
      emit(n, "take-over");
    }
    if (s.incarnation == 1) {
      new_incarnation(s, emit);
    }
    if (s.reported == 0) {
      report(s, emit);
    } else {
      owner(s, emit);
    }
    member(s, emit);
  }

  // Only states in which nothing is under way say anything about the map.
  const char *violation(const State &s) const {
    if (s.member == kHolds && s.held[s.extent] == 0 && s.reported != 0 && s.work.sequence == 0) {
      return "the member holds an extent that the map does not give it";
    }
    if (!quiet(s)) {
      return nullptr;
    }
    const int count = s.held[0] + s.held[1];
    if (s.member == kHolds && count != 1) {
      return "the map gives the member an extent it does not know";
    }
    if ((s.member == kWants || s.member == kDone) && count != 0) {
      return "the map gives the member an extent it gave back or never got";
    }
    return nullptr;
  }

  bool settled(const State &s) const { return s.member == kDone && quiet(s); }

  uint32_t marks(const State &s) const {
    return (s.member == kHolds) | (s.member == kDone) << 1 | (s.epoch == 3) << 2 |
           (s.member == kHolds && s.incarnation == 2) << 3 |
           (s.member == kDone && s.rounds == 1) << 4;
  }

  std::string show(const State &s) const {
    static const char *steps[] = {"wants", "asks get", "holds", "asks release", "done"};
    auto one = [](const Message &m) {
      return text("%d(epoch %d inc %d op %d ext %d)", m.sequence, m.epoch, m.incarnation,
                  m.operation, m.extent);
    };
    return text(
        "epoch %d held %d%d last %d reported%d ring %s work %s answer %s old %s | M %s ext %d "
        "seq %d inc %d",
        s.epoch, s.held[0], s.held[1], s.last_sequence, s.reported, one(s.ring).c_str(),
        one(s.work).c_str(), one(s.answer).c_str(), one(s.old_answer).c_str(), steps[s.member],
        s.extent, s.sequence, s.incarnation);
  }

private:
  // The owner has no decision under way and nothing in the ring that it would still execute.
  bool quiet(const State &s) const {
    return s.reported != 0 && s.work.sequence == 0 &&
           !(fresh(s) && s.ring.sequence != s.last_sequence);
  }

  bool fresh(const State &s) const {
    return s.ring.sequence != 0 && (s.ring.epoch == s.epoch || !rules_.epoch_in_request) &&
           (s.ring.incarnation == s.incarnation || !rules_.incarnation_in_request);
  }

  // The former incarnation is proven QUIET; what it held is the owner's again.
  void new_incarnation(const State &s, Sink<State> &emit) const {
    State n = s;
    n.incarnation = 2;
    n.held[0] = n.held[1] = 0;
    n.last_sequence = n.last_extent = 0;
    n.work = Message{};
    n.effect = 0;
    n.member = n.extent = n.sequence = n.sent_epoch = n.rounds = 0;
    emit(n, "a new incarnation takes the slot");
  }

  void report(const State &s, Sink<State> &emit) const {
    State n = s;
    n.reported = 1;
    if (rules_.report_first) {
      const bool has = s.member == kHolds || s.member == kAsksRelease;
      n.held[0] = has && s.extent == 0;
      n.held[1] = has && s.extent == 1;
      emit(n, "the member reports what it holds");
    } else {
      emit(n, "the new owner serves without a report");
    }
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.work.sequence != 0) {
      if (s.effect == 0) {
        n.held[s.work.extent] = s.work.operation == kGet;
        n.effect = 1;
        emit(n, "the effect is drained");
        return;
      }
      n.answer = s.work;
      n.answer.epoch = s.epoch;
      n.work = Message{};
      n.effect = 0;
      n.last_sequence = s.work.sequence;
      n.last_extent = s.work.extent;
      emit(n, "the owner answers");
      return;
    }
    if (!fresh(s)) {
      return;
    }
    if (s.ring.sequence == s.last_sequence && rules_.last_answer_kept) {
      return;  // its answer stands and is repeated
    }
    if (s.ring.operation == kRelease) {
      n.work = s.ring;
      emit(n, "the owner takes up the release");
      return;
    }
    for (uint8_t extent = 0; extent < 2; extent++) {
      if (s.held[extent] == 0) {
        n = s;
        n.work = s.ring;
        n.work.extent = extent;
        emit(n, "the owner takes up the get");
        return;
      }
    }
  }

  void send(State &n, Operation operation) const {
    n.sequence = static_cast<uint8_t>(n.sent_epoch == n.epoch ? n.sequence + 1 : 1);
    n.sent_epoch = n.epoch;
    n.ring = {n.sequence, n.epoch, n.incarnation, operation, n.extent};
  }

  bool answers(const State &s, const Message &m) const {
    return m.sequence != 0 && (m.sequence == s.sequence || !rules_.match_sequence) &&
           ((m.epoch == s.sent_epoch && s.sent_epoch == s.epoch) || !rules_.match_epoch) &&
           (m.incarnation == s.incarnation || !rules_.match_incarnation);
  }

  void member(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.reported == 0) {
      return;  // it says what it holds before it asks for more
    }
    switch (s.member) {
      case kWants:
        n.member = kAsksGet;
        send(n, kGet);
        emit(n, "the member asks for an extent");
        break;
      case kHolds:
        n.member = kAsksRelease;
        send(n, kRelease);
        emit(n, "the member gives it back");
        break;
      case kAsksGet:
      case kAsksRelease:
        if (s.sent_epoch != s.epoch) {
          send(n, s.member == kAsksGet ? kGet : kRelease);
          emit(n, "the member asks the new owner again");
        }
        for (const Message *m : {&s.answer, &s.old_answer}) {
          if (answers(s, *m)) {
            n = s;
            n.member = s.member == kAsksGet ? kHolds : kDone;
            n.extent = s.member == kAsksGet ? m->extent : 0;
            emit(n, "the member takes the answer");
          }
        }
        break;
      case kDone:
        if (s.rounds == 0) {
          n.rounds = 1;
          n.member = kWants;
          emit(n, "the member starts another round");
        }
        break;
      default:
        break;
    }
  }

  const Rules rules_;
  const uint8_t epochs_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Repeats>().main(argc, argv);
}
