// SPDX-License-Identifier: Apache-2.0
// Owns the model of a publication in doubt (proto 8, 9, 12): a writer asks an owner that may be a
// zombie, two candidates take over at any moment, the doubt is reported to whoever is active, and
// only an accepted answer ends it. There is no eviction here: what is published stays.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class InDoubt {
public:
  struct Rules {
    bool doubt_survives_refusal = true;
    bool doubt_survives_deadline = true;
    bool accept_publication = true;
    bool accept_resolution = true;
    bool epoch_in_request = true;
    bool resolve_by_index = true;
    bool doubt_until_answer = true;
  };

  static constexpr int kOwners =
      3;  // owner i serves epoch i + 1; the first one serves at the start
  enum CandidateStep : uint8_t { kIdle, kClaimed, kBased, kCopied, kReread, kActive, kStopped };
  enum WriterStep : uint8_t { kHand, kDoubt, kDone };
  enum Answer : uint8_t { kNone, kPublished, kInHand };

  struct State {
    uint8_t step[kOwners], base[kOwners];
    uint8_t area[kOwners];     // 0: held by the writer, else published with these bytes
    uint8_t request[kOwners];  // publish request that this owner may still execute: its bytes
    uint8_t resolve[kOwners];  // doubt reported to this owner: its bytes
    uint8_t answer[kOwners];
    uint8_t content, writer, asked, resolving;
  };

  static constexpr const char *kName = "in_doubt";
  static constexpr const char *kCovers =
      "a publication in doubt over a zombie owner and two take-overs";
  static constexpr Mutant<Rules> kMutants[] = {
      {"refused-means-free", &Rules::doubt_survives_refusal, "9",
       "an answer that was not accepted leaves the block in doubt"},
      {"deadline-means-free", &Rules::doubt_survives_deadline, "9",
       "a deadline does not end a doubt"},
      {"publication-not-accepted", &Rules::accept_publication, "7",
       "a publication counts only after accept()"},
      {"resolution-not-accepted", &Rules::accept_resolution, "9",
       "the answer that resolves a doubt is accepted by the same rule"},
      {"no-epoch-in-request", &Rules::epoch_in_request, "12",
       "an owner executes only requests that name its epoch"},
      {"resolved-without-looking", &Rules::resolve_by_index, "8",
       "a reported publication is looked up before it is given back"},
      {"written-while-asked", &Rules::doubt_until_answer, "9",
       "a block in doubt is not written while the request is visible"},
  };
  static constexpr const char *kMarks[] = {"published by the first owner", "resolved: published",
                                           "resolved: in hand", "two take-overs",
                                           "a candidate stopped"};

  InDoubt(const Rules &rules, Mode mode)
      : rules_(rules), content_max_(mode == Mode::kLong ? 6 : 4) {}

  State initial() const {
    State s{};
    s.step[0] = kActive;
    s.content = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (int i = 0; i < kOwners; i++) {
      if (s.step[i] == kActive) {
        owner(s, i, emit);
      } else {
        candidate(s, i, emit);
      }
    }
    writer(s, emit);
  }

  const char *violation(const State &s) const {
    const int active = highest(s, kActive);
    if (s.area[active] != 0 && s.area[active] != s.content) {
      return "a published block was written again";
    }
    const bool unchallenged = active == highest(s, kClaimed);
    if (s.writer == kDone && unchallenged && s.area[active] == 0) {
      return "an owner that nobody outbids has lost an accepted publication";
    }
    return nullptr;
  }

  bool settled(const State &s) const { return s.writer != kDoubt; }

  uint32_t marks(const State &s) const {
    const bool done = s.writer == kDone;
    return (done && s.asked == 0) | (done && s.resolving) << 1 |
           (s.writer == kHand && s.resolving) << 2 |
           (s.step[1] == kActive && s.step[2] == kActive) << 3 | (s.step[1] == kStopped) << 4;
  }

  std::string show(const State &s) const {
    static const char *steps[] = {"idle",   "claimed", "based",  "copied",
                                  "reread", "ACTIVE",  "stopped"};
    static const char *writers[] = {"in hand", "IN DOUBT", "done"};
    std::string out;
    for (int i = 0; i < kOwners; i++) {
      out += text("[epoch %d %s area %d request %d doubt %d answer %d] ", i + 1, steps[s.step[i]],
                  s.area[i], s.request[i], s.resolve[i], s.answer[i]);
    }
    return out + text("bytes %d, W %s, asked epoch %d", s.content, writers[s.writer], s.asked + 1);
  }

private:
  // The highest epoch that is active, or that is at least claimed (a claim is never taken back).
  static int highest(const State &s, CandidateStep what) {
    for (int i = kOwners - 1; i > 0; i--) {
      if (s.step[i] == kActive || (what == kClaimed && s.step[i] != kIdle)) {
        return i;
      }
    }
    return 0;
  }

  void candidate(const State &s, int i, Sink<State> &emit) const {
    State n = s;
    const bool outbid = highest(s, kClaimed) > i;
    switch (s.step[i]) {
      case kIdle:
        if (!outbid) {
          n.step[i] = kClaimed;
          emit(n, "a candidate claims");
        }
        break;
      case kClaimed:
        n.step[i] = outbid ? kStopped : kBased;
        n.base[i] = static_cast<uint8_t>(outbid ? 0 : highest(s, kActive));
        emit(n, "a candidate reads the claims");
        break;
      case kBased:
        n.area[i] = s.area[s.base[i]];
        n.step[i] = kCopied;
        n.base[i] = 0;
        emit(n, "a candidate scans and copies");
        break;
      case kCopied:
        n.step[i] = outbid ? kStopped : kReread;
        emit(n, "a candidate rereads the claims");
        break;
      case kReread:
        n.step[i] = kActive;
        emit(n, "a candidate activates");
        break;
      default:
        break;
    }
  }

  // Any active owner goes on, outbid or not: it need not have noticed.
  void owner(const State &s, int i, Sink<State> &emit) const {
    for (int from = 0; from < kOwners; from++) {
      if (s.request[from] != 0 && (from == i || !rules_.epoch_in_request)) {
        publish(s, i, from, emit);
      }
    }
    if (s.resolve[i] == 0) {
      return;
    }
    State n = s;
    n.resolve[i] = 0;
    if (s.area[i] == 0) {
      n.area[i] = s.resolve[i];
      n.answer[i] = kPublished;
      emit(n, "an owner resolves: publishes now");
      n = s;
      n.resolve[i] = 0;
      n.answer[i] = kInHand;
      emit(n, "an owner resolves: in hand");
    } else {
      n.answer[i] = rules_.resolve_by_index ? kPublished : kInHand;
      emit(n, "an owner resolves: was published");
    }
  }

  void publish(const State &s, int i, int from, Sink<State> &emit) const {
    State n = s;
    if (from == i) {
      n.request[from] = 0;
    }
    if (s.area[i] == 0) {
      n.area[i] = s.request[from];
      n.answer[i] = kPublished;
      emit(n, "an owner publishes");
      n.area[i] = 0;
      n.answer[i] = kInHand;
      emit(n, "an owner refuses: FULL");
    } else if (from == i) {
      n.answer[i] = kInHand;
      emit(n, "an owner refuses: EXISTS");
    }
  }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.writer) {
      case kHand:
        if (s.content < content_max_) {
          n.content++;
          emit(n, "W writes the block");
        }
        for (uint8_t i = s.asked; i < kOwners;
             i++) {  // the newest owner it knows may be an old one
          if (s.step[i] == kActive) {
            n = s;
            n.request[i] = s.content;
            n.answer[i] = kNone;
            n.asked = i;
            n.resolving = 0;
            n.writer = kDoubt;
            emit(n, "W asks to publish");
          }
        }
        break;
      case kDoubt:
        doubt(s, emit);
        break;
      default:
        break;
    }
  }

  void doubt(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool outbid = highest(s, kClaimed) > s.asked;
    if (s.answer[s.asked] != kNone) {
      const bool published = s.answer[s.asked] == kPublished;
      const bool needs =
          s.resolving != 0 ? rules_.accept_resolution : rules_.accept_publication || !published;
      n.answer[s.asked] = kNone;
      if (!outbid || !needs) {
        n.writer = published ? kDone : kHand;
        emit(n, "W takes the answer");
      } else {
        n.writer = rules_.doubt_survives_refusal ? kDoubt : kHand;
        emit(n, "W does not accept the answer");
      }
    } else if (!rules_.doubt_survives_deadline) {
      n.writer = kHand;
      emit(n, "W gives up at its deadline");
    }
    const int active = highest(s, kActive);
    if (active > s.asked) {
      n = s;
      n.asked = static_cast<uint8_t>(active);
      n.resolve[active] = s.content;
      n.answer[active] = kNone;
      n.resolving = 1;
      emit(n, "W reports its doubt to the new owner");
    }
    if (!rules_.doubt_until_answer && s.content < content_max_) {
      n = s;
      n.content++;
      emit(n, "W writes the block in doubt");
    }
  }

  const Rules rules_;
  const uint8_t content_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::InDoubt>().main(argc, argv);
}
