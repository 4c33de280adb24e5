// SPDX-License-Identifier: Apache-2.0
// Owns the model of a pool that grows and shrinks while members go on (proto 14): the table of
// regions is part of an area, so another table comes with an owner's take-over from itself; bytes
// are there before a table names them, and are given back when no accepted table has them in use.
// Another candidate may outbid the owner at any step; readers and writers have sessions of before.
//
// One extent at the end of the pool: beyond it, in use, or retired. Each publication there has a
// serial, which its bytes carry; zeros are what was punched, or never written. Reports are exact
// here (the reports and ledger models have them), and a process that touches bytes which are not
// there dies.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class Resize {
public:
  struct Rules {
    bool allocated_first = true;
    bool mapped_first = true;
    bool table_by_epoch = true;
    bool held_not_retired = true;
    bool published_not_retired = true;
    bool base_as_planned = true;
    bool resize_accepted = true;
    bool punched_not_cut = true;
    bool one_asker = true;
    bool second_look = true;
    bool grant_accepted = true;
  };

  static constexpr int kEpochs = 7;
  static constexpr uint8_t kOwner = 0, kWriter = 1;  // holders
  enum Use : uint8_t { kBeyond, kInUse, kRetired };
  enum Step : uint8_t { kOut, kClaimed, kFilled, kServes };
  enum Asker : uint8_t { kRests, kLocked, kAsked, kAnswered, kAccepted };
  enum Writer : uint8_t { kIdle, kWantsGrant, kGranted, kHas, kPublishes, kPublished };
  enum Reader : uint8_t { kStart, kHit, kCopied, kRead };

  struct Area {
    uint8_t use, holder, serial;  // serial: of the entry that stands on the extent, 0: none
  };
  struct Process {
    uint8_t step, epoch, leaving, answers;  // answers: asker + 1, to whom it owes an answer
    uint8_t use, planned;  // the use that its next area will have, and the base it was planned for
  };
  struct State {
    Area area[kEpochs];
    Process owner[2];
    uint8_t claimed, active, rivals;
    uint8_t asker[2], asker_epoch[2], locked;  // 0 grows, 1 shrinks; locked: asker + 1
    uint8_t grows, shrinks;
    uint8_t there, bytes, writes;  // the extent's bytes: whether they are there, what they say
    uint8_t writer, writer_epoch, writer_serial, writer_maps;
    uint8_t reader, reader_epoch, reader_maps, reader_use, hit, copied;
    uint8_t killed, lost;  // somebody touched what is not there; wrote what was given back
  };

  static constexpr const char *kName = "resize";
  static constexpr const char *kCovers =
      "regions added, retired and taken back while others read and write; rivals; bytes punched";
  static constexpr Mutant<Rules> kMutants[] = {
      {"named-before-allocated", &Rules::allocated_first, "14",
       "the bytes are there before an owner is asked to name them"},
      {"believed-before-mapped", &Rules::mapped_first, "14",
       "who opens a session maps what its table has in use before it believes it"},
      {"table-changed-in-place", &Rules::table_by_epoch, "14",
       "another table comes with another area and epoch"},
      {"held-retired", &Rules::held_not_retired, "14", "what a member holds is not retired"},
      {"published-retired", &Rules::published_not_retired, "14",
       "what an entry refers to is not retired"},
      {"base-not-compared", &Rules::base_as_planned, "14",
       "a table is changed only over the very area that the change was planned for"},
      {"resize-not-accepted", &Rules::resize_accepted, "14",
       "bytes are given back only after an accepted answer"},
      {"cut-not-punched", &Rules::punched_not_cut, "14",
       "bytes given back read as zeros: sessions of before may still touch them"},
      {"two-askers", &Rules::one_asker, "14",
       "all who resize hold one lock, until they have given back"},
      {"no-second-look", &Rules::second_look, "10",
       "a copy counts only if entry and active epoch are still the same"},
      {"grant-not-accepted", &Rules::grant_accepted, "7", "a grant counts only after accept()"},
  };
  static constexpr const char *kMarks[] = {
      "read from the new extent", "read after it was taken back", "bytes given back",
      "a resize was outbid",      "copied zeros of a retired extent",
      "asker killed",             "shrinking waited for a holder"};

  Resize(const Rules &rules, Mode mode)
      : rules_(rules), rivals_(mode == Mode::kLong ? 2 : 1), writes_(2) {}

  State initial() const {
    State s{};
    s.claimed = s.active = 1;
    s.owner[0] = {kServes, 1, 0, 0, 0, 0};
    s.writer_epoch = s.reader_epoch = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    for (uint8_t p = 0; p < 2; p++) {
      if (s.owner[p].step == kServes) {
        serve(s, p, emit);
        resize(s, p, emit);
      } else {
        candidate(s, p, emit);
      }
    }
    asker(s, 0, emit);
    asker(s, 1, emit);
    writer(s, emit);
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.killed != 0) {
      return "somebody touched bytes that are not there or not mapped";
    }
    if (s.lost != 0) {
      return "a living member wrote into bytes that were given back";
    }
    if (s.reader == kRead && s.copied != s.hit) {
      return "a read reported success with bytes that were not published";
    }
    const Area &now = s.area[s.active];
    if (s.active == s.claimed && now.serial != 0 && now.use == kInUse && s.writer != kPublishes &&
        now.serial != s.bytes) {
      return "a published block lost its bytes";
    }
    if (s.active == s.claimed && now.serial != 0 && now.use != kInUse) {
      return "an entry refers to an extent that is not in use";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool read = s.reader == kRead;
    return read | (read && s.grows == 2 && s.copied == 2) << 1 |
           (s.shrinks != 0 && s.there == 2) << 2 |
           (s.owner[0].step == kOut && s.active == s.claimed) << 3 |
           (s.reader == kCopied && s.copied == 0 && s.there == 2) << 4 |
           (s.asker[0] == kRests && s.grows && s.area[s.active].use == kBeyond) << 5 |
           (s.owner[0].leaving && s.area[s.owner[0].epoch].holder == kWriter) << 6;
  }

  std::string show(const State &s) const {
    std::string out = text("claimed %d active %d bytes there%d %d ", s.claimed, s.active, s.there,
                           s.bytes);
    for (int e = 1; e < kEpochs; e++) {
      out += text("[%d use %d holder %d serial %d] ", e, s.area[e].use, s.area[e].holder,
                  s.area[e].serial);
    }
    for (int p = 0; p < 2; p++) {
      out += text("%c step %d@%d leaving%d use %d; ", "OS"[p], s.owner[p].step, s.owner[p].epoch,
                  s.owner[p].leaving, s.owner[p].use);
    }
    return out + text("grow %d@%d shrink %d@%d lock %d | W %d@%d maps%d | R %d@%d maps%d hit %d "
                      "copied %d",
                      s.asker[0], s.asker_epoch[0], s.asker[1], s.asker_epoch[1], s.locked,
                      s.writer, s.writer_epoch, s.writer_maps, s.reader, s.reader_epoch,
                      s.reader_maps, s.hit, s.copied);
  }

private:
  int epochs() const { return rivals_ == 1 ? 6 : kEpochs; }

  // ---- owners -----------------------------------------------------------------------------------

  void serve(const State &s, uint8_t p, Sink<State> &emit) const {
    const Process &me = s.owner[p];
    const Area &a = s.area[me.epoch];
    State n = s;
    const bool free = a.use == kInUse && a.holder == kOwner && a.serial == 0;
    if (s.writer == kWantsGrant && s.writer_epoch == me.epoch && free && me.leaving == 0) {
      n.area[me.epoch].holder = kWriter;
      n.writer = kGranted;
      emit(n, "an owner grants the extent");
    }
    if (s.writer == kPublishes && s.writer_epoch == me.epoch) {
      n = s;
      n.writer = kPublished;
      if (a.holder == kWriter && a.serial == 0) {
        n.area[me.epoch].serial = s.writer_serial;
        n.area[me.epoch].holder = kOwner;
      }
      emit(n, "an owner publishes");
    }
    if (a.serial != 0) {
      n = s;
      n.area[me.epoch].serial = 0;
      emit(n, "an owner evicts");
    }
    // a report, or a return: the writer has it not in hand and asks for nothing
    if (a.holder == kWriter && s.writer == kIdle) {
      n = s;
      n.area[me.epoch].holder = kOwner;
      emit(n, "an owner has the extent back");
    }
  }

  // Begins what was asked, and answers once the new table is active.
  void resize(const State &s, uint8_t p, Sink<State> &emit) const {
    const Process &me = s.owner[p];
    const Area &a = s.area[me.epoch];
    State n = s;
    if (me.answers != 0) {
      const uint8_t k = static_cast<uint8_t>(me.answers - 1);
      n.owner[p].answers = 0;
      if (s.asker[k] == kAsked) {
        n.asker[k] = kAnswered;
        n.asker_epoch[k] = me.epoch;
      }
      emit(n, "an owner answers a resize");
      return;
    }
    for (uint8_t k = 0; k < 2; k++) {
      if (s.asker[k] != kAsked || s.asker_epoch[k] != me.epoch) {
        continue;
      }
      const uint8_t use = k == 0 ? kInUse : kRetired;
      const bool done = k == 0 ? a.use == kInUse : a.use != kInUse;
      n = s;
      if (done) {
        n.owner[p].answers = static_cast<uint8_t>(k + 1);
        emit(n, "an owner finds the size as it is asked");
        continue;
      }
      if (k == 1 && me.leaving == 0) {
        n.owner[p].leaving = 1;
        emit(n, "an owner begins to empty the extent");
        continue;
      }
      const bool empty = (a.holder == kOwner || !rules_.held_not_retired) &&
                         (a.serial == 0 || !rules_.published_not_retired);
      if ((k == 1 && !empty) || s.claimed + 1 >= epochs()) {
        continue;
      }
      if (!rules_.table_by_epoch) {
        n.area[me.epoch].use = use;
        n.owner[p].leaving = 0;
        n.owner[p].answers = static_cast<uint8_t>(k + 1);
        emit(n, "an owner changes its table in place");
        continue;
      }
      n.claimed++;
      n.owner[p] = {kClaimed, n.claimed, 0, static_cast<uint8_t>(k + 1), use, me.epoch};
      emit(n, "an owner claims, to change its table");
    }
    if (me.leaving != 0 && s.asker[1] != kAsked) {
      n = s;
      n.owner[p].leaving = 0;
      emit(n, "an owner forgets a resize that nobody asks for");
    }
  }

  void candidate(const State &s, uint8_t p, Sink<State> &emit) const {
    const Process &me = s.owner[p];
    State n = s;
    const bool higher = s.claimed > me.epoch;
    switch (me.step) {
      case kOut:
        if (s.claimed + 1 < epochs() && s.rivals < rivals_ && (p == 1 || rivals_ > 1)) {
          n.claimed++;
          n.rivals++;
          n.owner[p] = {kClaimed, n.claimed, 0, 0, 0, 0};
          emit(n, "a rival claims");
        }
        break;
      case kClaimed:
        if (higher) {
          n.owner[p] = {kOut, 0, 0, 0, 0, 0};
          emit(n, "a candidate stops at a higher claim");
          break;
        }
        n.area[me.epoch] = s.area[s.active];
        if (me.answers != 0 && (s.active == me.planned || !rules_.base_as_planned)) {
          n.area[me.epoch].use = me.use;
          n.area[me.epoch].holder = kOwner;
        } else {
          n.owner[p].answers = 0;  // another owner decided since: it is asked again
        }
        n.owner[p].step = kFilled;
        emit(n, "a candidate fills its area");
        break;
      default:
        n.owner[p].step = kServes;
        n.owner[p].use = n.owner[p].planned = 0;
        n.active = me.epoch > s.active ? me.epoch : s.active;
        emit(n, "a candidate activates");
        break;
    }
  }

  // ---- who resizes ------------------------------------------------------------------------------

  void asker(const State &s, uint8_t k, Sink<State> &emit) const {
    State n = s;
    const uint8_t tries = k == 0 ? s.grows : s.shrinks;
    const bool lock = s.locked == 0 || !rules_.one_asker;
    switch (s.asker[k]) {
      case kRests:
        if (tries < (k == 0 ? 2 : 1) && lock && (k == 0 || s.grows != 0)) {
          n.locked = static_cast<uint8_t>(k + 1);
          n.asker[k] = kLocked;
          (k == 0 ? n.grows : n.shrinks)++;
          emit(n, k == 0 ? "growing begins" : "shrinking begins");
        }
        break;
      case kLocked:
        if (k == 0 && rules_.allocated_first) {
          n.there = 1;
        }
        n.asker[k] = kAsked;
        n.asker_epoch[k] = s.active;
        emit(n, k == 0 ? "the bytes are allocated, the owner is asked" : "the owner is asked");
        break;
      case kAsked:
        if (s.active != s.asker_epoch[k]) {
          n.asker_epoch[k] = s.active;
          emit(n, "another owner is asked");
        }
        break;
      case kAnswered:
        if (s.claimed == s.asker_epoch[k] || !rules_.resize_accepted) {
          n.asker[k] = kAccepted;
          emit(n, "the answer is accepted");
        } else if (s.active != s.asker_epoch[k]) {
          n.asker[k] = kAsked;
          n.asker_epoch[k] = s.active;
          emit(n, "the answer is not accepted, another owner is asked");
        }
        break;
      default:
        if (k == 1) {
          n.there = rules_.punched_not_cut ? 2 : 0;  // 2: there, and punched
          n.bytes = 0;
        } else if (!rules_.allocated_first) {
          n.there = 1;
        }
        finish(n, k);
        emit(n, k == 0 ? "growing is done" : "the bytes are given back");
        break;
    }
    if (s.asker[k] != kRests) {
      n = s;
      finish(n, k);
      emit(n, "an asker is killed");
    }
  }

  static void finish(State &n, uint8_t k) {
    n.asker[k] = n.asker_epoch[k] = 0;
    if (n.locked == k + 1) {
      n.locked = 0;
    }
  }

  // ---- members ----------------------------------------------------------------------------------

  bool touches(const State &s, uint8_t maps) const { return s.there != 0 && maps != 0; }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    // proto 7, 14: a new session maps what its table has in use
    const bool maps = s.writer_maps != 0 || (s.area[s.active].use == kInUse && s.there != 0);
    switch (s.writer) {
      case kIdle:
        if (s.writes < writes_) {
          n.writer = kWantsGrant;
          n.writer_epoch = s.active;
          n.writer_maps = maps && rules_.mapped_first;
          emit(n, "W asks for an extent");
        }
        break;
      case kWantsGrant:
        if (s.active != s.writer_epoch) {
          n.writer = kIdle;
          emit(n, "W asks another owner");
        }
        break;
      case kGranted:
        if (s.claimed == s.writer_epoch || !rules_.grant_accepted) {
          n.writer = kHas;
          emit(n, "W accepts the grant");
        } else {
          n.writer = kIdle;
          emit(n, "W does not accept the grant");
        }
        break;
      case kHas:
        n.killed |= !touches(s, s.writer_maps);
        n.lost = s.there == 2;
        n.bytes = ++n.writes;
        n.writer_serial = n.bytes;
        n.writer = kPublishes;
        n.writer_epoch = s.active;
        emit(n, "W writes and asks for the publication");
        n = s;
        n.writer = kIdle;
        emit(n, "W gives the extent back");
        break;
      case kPublishes:
        if (s.active != s.writer_epoch) {
          n.writer_epoch = s.active;
          emit(n, "W reports its doubt");
        }
        break;
      default:
        if (s.claimed == s.writer_epoch) {
          n.writer = kIdle;
          n.writer_serial = 0;
          emit(n, "W accepts the publication");
        } else if (s.active != s.writer_epoch) {
          n.writer = kPublishes;
          n.writer_epoch = s.active;
          emit(n, "W reports its doubt");
        }
        break;
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart: {
        const Area &a = s.area[s.reader_epoch];
        if (s.reader_epoch != s.active) {
          n.reader_epoch = s.active;
          n.reader_use = s.area[s.active].use;
          n.reader_maps |= static_cast<uint8_t>(rules_.mapped_first && n.reader_use == kInUse &&
                                                s.there != 0);
          emit(n, "R opens a session");
        } else if (a.serial != 0) {
          n.hit = a.serial;
          n.reader = kHit;
          emit(n, "R hits");
        }
        break;
      }
      case kHit:
        n.killed |= !touches(s, s.reader_maps) || s.reader_use != kInUse;
        n.copied = s.bytes;
        n.reader = kCopied;
        emit(n, "R copies");
        break;
      case kCopied: {
        const bool same = s.active == s.reader_epoch && s.area[s.reader_epoch].serial == s.hit;
        if (same || !rules_.second_look) {
          n.reader = kRead;
          emit(n, "R reports success");
        } else {
          reset(n);
          emit(n, "R's second look fails");
        }
        break;
      }
      default:
        reset(n);
        emit(n, "R starts again");
        break;
    }
  }

  static void reset(State &n) { n.reader = n.hit = n.copied = 0; }

  const Rules rules_;
  const uint8_t rivals_, writes_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Resize>().main(argc, argv);
}
