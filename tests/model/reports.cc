// SPDX-License-Identifier: Apache-2.0
// Owns the model of reports (proto 8): after a take-over each member that may hold something
// streams BEGIN, EXTENT, END to the new owner, which applies it at END, member by member, and goes
// on granting to those it has heard. Two take-overs, and a member that is replaced in the middle of
// its report.
//
// DOUBT and PIN messages are taken up by the allocation, in-doubt and pins models; a take-over is
// one step and zombies are left out.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Reports {
public:
  struct Rules {
    bool apply_at_own_end = true;
    bool apply_not_before_end = true;
    bool serve_after_end = true;
    bool others_wait = true;
    bool begin_resets = true;
    bool epoch_in_report = true;
    bool holds_before_request = true;
    bool unnamed_returns = true;
    bool all_extents_named = true;
  };

  static constexpr uint8_t kOwner = 2;
  enum Message : uint8_t { kNotBegun, kBegun, kFirstNamed, kSecondNamed };

  struct Member {
    uint8_t hand;           // extents it may write
    uint8_t flag;           // HOLDS in its line on the medium
    uint8_t posted, named;  // epoch of the report in its ring and what it names
    uint8_t replaced;
  };
  struct Heard {                          // what the owner keeps of a member's report
    uint8_t progress, stage, done, late;  // late: a mutant's list, to be applied with all others
  };
  struct State {
    uint8_t epoch, holder[2];
    Member member[2];
    Heard heard[2];
    uint8_t unsaid,
        unsaid_to;  // a grant whose map line is written and whose answer is not: extent + 1
  };

  static constexpr const char *kName = "reports";
  static constexpr const char *kCovers = "BEGIN, EXTENT, END of two members over two take-overs";
  static constexpr Mutant<Rules> kMutants[] = {
      {"applied-when-all-ended", &Rules::apply_at_own_end, "8",
       "a report is applied at its own END, never later"},
      {"applied-before-end", &Rules::apply_not_before_end, "8",
       "a report counts at END, not before"},
      {"served-before-end", &Rules::serve_after_end, "8",
       "until a member has reported the owner serves it nothing else"},
      {"others-granted", &Rules::others_wait, "8", "others' extents are granted to nobody"},
      {"begin-keeps-stage", &Rules::begin_resets, "8",
       "BEGIN forgets what an earlier report named"},
      {"report-of-another-epoch", &Rules::epoch_in_report, "12",
       "a report names its epoch and only that owner counts it"},
      {"holds-late", &Rules::holds_before_request, "8",
       "HOLDS is drained before the first request that could make it true"},
      {"unnamed-kept", &Rules::unnamed_returns, "8",
       "what the map gives a member and its report does not name is the owner's again"},
      {"extent-left-out", &Rules::all_extents_named, "8", "a report names every extent in hand"},
  };
  static constexpr const char *kMarks[] = {
      "report applied", "granted while the other has not reported", "unnamed extent returned",
      "two take-overs", "replaced while reporting"};

  Reports(const Rules &rules, Mode mode) : rules_(rules), epochs_(mode == Mode::kLong ? 5 : 3) {}

  State initial() const {
    State s{};
    s.epoch = 1;
    s.holder[0] = s.holder[1] = kOwner;
    s.heard[0].done = s.heard[1].done = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t m = 0; m < 2; m++) {
      member(s, m, emit);
      if (s.unsaid == 0) {
        read_report(s, m, emit);
        grant(s, m, emit);
      }
    }
    State n = s;
    if (s.unsaid != 0) {
      n.member[s.unsaid_to].hand |= static_cast<uint8_t>(1 << (s.unsaid - 1));
      n.unsaid = n.unsaid_to = 0;
      emit(n, "the owner answers the grant");
    }
    if (s.epoch < epochs_) {
      takeover(s, emit);
    }
  }

  const char *violation(const State &s) const {
    if ((s.member[0].hand & s.member[1].hand) != 0) {
      return "two members have the same extent in hand";
    }
    for (int m = 0; m < 2; m++) {
      for (int x = 0; x < 2; x++) {
        const bool has = (s.member[m].hand >> x & 1) != 0;
        if (has && s.heard[m].done != 0 && s.holder[x] != m) {
          return "the owner took back an extent that a member it serves has in hand";
        }
      }
    }
    return nullptr;
  }

  bool settled(const State &s) const {
    for (int x = 0; x < 2; x++) {
      if (s.holder[x] != kOwner && (s.member[s.holder[x]].hand >> x & 1) == 0) {
        return false;
      }
    }
    return s.heard[0].done && s.heard[1].done && s.unsaid == 0;
  }

  uint32_t marks(const State &s) const {
    const bool later = s.epoch > 1;
    return (later && s.member[0].flag && s.heard[0].done && s.member[0].posted == s.epoch) |
           (later && s.member[0].hand && !s.heard[1].done && s.heard[0].done) << 1 |
           (later && s.member[0].posted == s.epoch && s.heard[0].done && s.member[0].named == 0)
               << 2 |
           (s.epoch == 3) << 3 |
           (s.member[0].replaced && !s.heard[0].done && s.heard[0].progress) << 4;
  }

  std::string show(const State &s) const {
    std::string out = text("epoch %d holders %c%c unsaid %d to %c ", s.epoch, "ABO"[s.holder[0]],
                           "ABO"[s.holder[1]], s.unsaid, "AB"[s.unsaid_to]);
    for (int m = 0; m < 2; m++) {
      out += text("[%c hand %d HOLDS%d report for %d names %d | heard %d stage %d done%d] ",
                  "AB"[m], s.member[m].hand, s.member[m].flag, s.member[m].posted,
                  s.member[m].named, s.heard[m].progress, s.heard[m].stage, s.heard[m].done);
    }
    return out;
  }

private:
  // A member whose line does not say HOLDS has nothing and need not report.
  void takeover(const State &s, Sink<State> &emit) const {
    State n = s;
    n.epoch++;
    n.unsaid = n.unsaid_to = 0;
    for (uint8_t m = 0; m < 2; m++) {
      n.heard[m] = Heard{};
      n.heard[m].done = s.member[m].flag == 0;
      for (int x = 0; x < 2; x++) {
        if (s.member[m].flag == 0 && s.holder[x] == m) {
          n.holder[x] = kOwner;
        }
      }
    }
    emit(n, "take-over");
  }

  void member(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &now = s.member[m];
    State n = s;
    if (now.flag == 0) {
      n.member[m].flag = 1;
      emit(n, "a member writes HOLDS");
    }
    if (now.flag != 0 && now.posted != s.epoch && s.epoch > 1) {
      n = s;
      n.member[m].posted = s.epoch;
      n.member[m].named = rules_.all_extents_named ? now.hand : now.hand & 1;
      n.heard[m].progress = kNotBegun;
      emit(n, "a member posts its report");
    }
    if (now.hand != 0 && s.heard[m].done != 0 && s.unsaid == 0) {
      for (int x = 0; x < 2; x++) {
        if (now.hand >> x & 1) {
          n = s;
          n.member[m].hand &= static_cast<uint8_t>(~(1 << x));
          n.holder[x] = kOwner;
          emit(n, "a member returns an extent");
        }
      }
    }
    if (m == 0 && now.replaced == 0 && s.epoch > 1) {  // the former process is proven QUIET
      n = s;
      n.member[m].hand = n.member[m].posted = n.member[m].named = 0;
      n.member[m].replaced = 1;
      n.heard[m].progress = kNotBegun;
      n.heard[m].done = 0;  // the slot's extents stay its own until its report has ended
      if (s.unsaid != 0 && s.unsaid_to == m) {
        n.unsaid = n.unsaid_to = 0;
      }
      emit(n, "a new incarnation takes A's slot");
    }
  }

  // One message of the stream at a time.
  void read_report(const State &s, uint8_t m, Sink<State> &emit) const {
    const Member &from = s.member[m];
    const bool mine = from.posted == s.epoch || (from.posted != 0 && !rules_.epoch_in_report);
    if (s.heard[m].done != 0 || !mine) {
      return;
    }
    State n = s;
    Heard &heard = n.heard[m];
    heard.progress++;
    switch (heard.progress) {
      case kBegun:
        heard.stage = rules_.begin_resets ? 0 : heard.stage;
        emit(n, "BEGIN");
        break;
      case kFirstNamed:
        heard.stage |= from.named & 1;
        emit(n, "EXTENT 0, if in hand");
        break;
      case kSecondNamed:
        heard.stage |= from.named & 2;
        emit(n, "EXTENT 1, if in hand");
        break;
      default:
        end(n, m);
        emit(n, "END");
        break;
    }
    if (!rules_.apply_not_before_end && heard.progress == kBegun) {
      apply(n, m, heard.stage);
      emit(n, "a report is applied as it comes");
    }
  }

  void apply(State &n, uint8_t m, uint8_t named) const {
    for (int x = 0; x < 2; x++) {
      if (n.holder[x] == m && (named >> x & 1) == 0 && rules_.unnamed_returns) {
        n.holder[x] = kOwner;
      }
    }
  }

  void end(State &n, uint8_t m) const {
    const uint8_t named = n.heard[m].stage;
    n.heard[m] = Heard{};
    n.heard[m].done = 1;
    if (rules_.apply_at_own_end) {
      apply(n, m, named);
      return;
    }
    n.heard[m].late = static_cast<uint8_t>(named + 1);
    if (n.heard[0].done && n.heard[1].done) {
      for (uint8_t i = 0; i < 2; i++) {
        if (n.heard[i].late != 0) {
          apply(n, i, n.heard[i].late - 1);
          n.heard[i].late = 0;
        }
      }
    }
  }

  void grant(const State &s, uint8_t m, Sink<State> &emit) const {
    const bool served = s.heard[m].done != 0 || !rules_.serve_after_end;
    if (!served || (s.member[m].flag == 0 && rules_.holds_before_request)) {
      return;
    }
    for (uint8_t x = 0; x < 2; x++) {
      const bool other = s.holder[x] == 1 - m && s.heard[1 - m].done == 0 && !rules_.others_wait;
      if (s.holder[x] == kOwner || other) {
        State n = s;
        n.holder[x] = m;
        n.unsaid = static_cast<uint8_t>(x + 1);
        n.unsaid_to = m;
        emit(n, "the owner writes the map: granted");
      }
    }
  }

  const Rules rules_;
  const uint8_t epochs_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Reports>().main(argc, argv);
}
