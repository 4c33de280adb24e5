// SPDX-License-Identifier: Apache-2.0
// Owns the model of a validated read (proto 7, 9, 10): lookup, copy, then claims and entry again,
// against eviction without any grace, reuse and re-publication of the same key in the same block,
// an owner outbid by another, and a reader whose cache may lie.
//
// The old owner is a zombie once the candidate claims: it goes on serving and never looks. The
// entry lines of the two areas are their owners' memories too, since every decision is one drained
// line. A cached copy that the reader will acquire before it loads it cannot matter, so prefetches
// are explored only where the copy can be loaded; a mutant that drops an acquire gets them
// everywhere.
#include "engine.hpp"

namespace kvpool::model {
namespace {

class ValidatedRead {
public:
  struct Rules {
    bool validate = true;
    bool compare_version = true;
    bool compare_area = true;
    bool acquire_entry = true;
    bool acquire_claim = true;
    bool acquire_payload = true;
    bool acquire_after_copy = true;
    bool clear_before_grant = true;
    bool accept_grant = true;
    bool keep_doubt = true;
    bool drain_payload = true;
    bool owner_keeps_off = true;
  };

  enum Line { kArea0, kArea1, kClaim, kPayload0, kPayload1, kLines };
  enum Claim : uint8_t { kNoClaim, kClaimed, kActive };  // what the candidate's claim line says
  enum Entry : uint8_t { kFree, kPublished, kDraining, kHeld };
  enum WriterStep : uint8_t {
    kIdle,
    kGranted,
    kFilling,
    kFilled,
    kAsked,
    kAnswered,
    kWaits,
    kResolving
  };
  enum ReaderStep : uint8_t { kStart, kLookup, kCopy, kAcquireCheck, kCheck, kSuccess };

  struct State {
    uint8_t medium[kLines];
    uint8_t cache[kLines];  // the reader's copies, value + 1
    uint8_t window;         // lines acquired and not yet loaded
    uint8_t scanned;
    uint8_t writer, id, asks, filled;
    uint8_t ring;  // a request to the old owner that is still visible to it: its id
    uint8_t reader, area, version, bytes[2], loaded, active_area, valid;
  };

  static constexpr const char *kName = "validated_read";
  static constexpr const char *kCovers =
      "lookup, copy, validation against reuse without grace, a zombie owner and a lying cache";
  static constexpr Mutant<Rules> kMutants[] = {
      {"no-validation", &Rules::validate, "10", "claims and entry are read again after the copy"},
      {"no-version", &Rules::compare_version, "10", "the same version must still be there"},
      {"no-area", &Rules::compare_area, "7", "the area looked up must still be the highest active"},
      {"entry-not-acquired", &Rules::acquire_entry, "10", "the entry is freshly acquired"},
      {"claim-not-acquired", &Rules::acquire_claim, "10", "the claims are freshly acquired"},
      {"payload-not-acquired", &Rules::acquire_payload, "4",
       "the payload is acquired before the copy"},
      {"acquired-before-copy", &Rules::acquire_after_copy, "10",
       "claims and entry are acquired after the copy's last load"},
      {"grant-before-clear", &Rules::clear_before_grant, "10",
       "the entry is cleared strictly before the block is granted"},
      {"grant-not-accepted", &Rules::accept_grant, "7", "a grant counts only after accept()"},
      {"reuse-in-doubt", &Rules::keep_doubt, "9", "a block in doubt is neither written nor reused"},
      {"publish-before-drain", &Rules::drain_payload, "9",
       "the payload is complete before the request"},
      {"owner-scrubs", &Rules::owner_keeps_off, "7", "the owner never writes payload"},
  };
  static constexpr const char *kMarks[] = {"success", "success after a take-over",
                                           "success of a second publication",
                                           "success on a draining entry", "doubt resolved"};

  ValidatedRead(const Rules &rules, Mode mode)
      : rules_(rules), id_max_(mode == Mode::kLong ? 6 : 4) {}

  State initial() const {
    State s{};
    s.medium[kArea0] = entry(kPublished, 1);
    s.medium[kPayload0] = s.medium[kPayload1] = s.id = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    cache_moves(s, emit);
    owner(s, 0, emit);
    if (s.medium[kClaim] == kActive) {
      owner(s, 1, emit);
      resolve(s, emit);
    }
    candidate(s, emit);
    writer(s, emit);
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.reader == kSuccess && (s.bytes[0] != s.version || s.bytes[1] != s.version)) {
      return "a read reported success with bytes of another publication";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool ok = s.reader == kSuccess;
    return ok | (ok && s.area == 1) << 1 | (ok && s.version > 1) << 2 |
           (ok && state_of(s.medium[s.area]) == kDraining) << 3 | (s.writer == kResolving) << 4;
  }

  std::string show(const State &s) const {
    static const char *names[] = {"free", "pub", "drain", "held"};
    return text(
        "area0 %s/%d area1 %s/%d claim%d P %d,%d | W step %d id %d ring %d | R step %d area%d "
        "v%d got %d,%d caches %d %d %d %d %d",
        names[state_of(s.medium[0])], s.medium[0] % 8, names[state_of(s.medium[1])],
        s.medium[1] % 8, s.medium[2], s.medium[3], s.medium[4], s.writer, s.id, s.ring, s.reader,
        s.area, s.version, s.bytes[0], s.bytes[1], s.cache[0], s.cache[1], s.cache[2], s.cache[3],
        s.cache[4]);
  }

private:
  static uint8_t entry(int state, int version) { return static_cast<uint8_t>(state * 8 + version); }
  static int state_of(uint8_t line) { return line / 8; }

  bool acquires(int line) const {
    switch (line) {
      case kClaim:
        return rules_.acquire_claim;
      case kPayload0:
      case kPayload1:
        return rules_.acquire_payload;
      default:
        return rules_.acquire_entry;
    }
  }

  void cache_moves(const State &s, Sink<State> &emit) const {
    for (int line = 0; line < kLines; line++) {
      State n = s;
      if (s.cache[line] != 0) {
        n.cache[line] = 0;
        emit(n, "R's cache evicts");
      } else if ((s.window >> line & 1) != 0 || !acquires(line)) {
        n.cache[line] = static_cast<uint8_t>(s.medium[line] + 1);
        emit(n, "R's cache prefetches");
      }
    }
  }

  void acquire(State &n, int line) const {
    if (acquires(line)) {
      n.cache[line] = 0;
      n.window |= static_cast<uint8_t>(1 << line);
    }
  }

  uint8_t load(State &n, int line) const {
    const uint8_t value = n.cache[line] != 0 ? n.cache[line] - 1 : n.medium[line];
    n.window &= static_cast<uint8_t>(~(1 << line));
    if (acquires(line)) {
      n.cache[line] = 0;  // it will be acquired before the next load
    }
    return value;
  }

  // What either owner may do with its own area at any time.
  void owner(const State &s, int i, Sink<State> &emit) const {
    const int state = state_of(s.medium[i]);
    const int version = s.medium[i] % 8;
    State n = s;
    if (state == kPublished) {
      n.medium[i] = entry(kDraining, version);
      emit(n, i ? "S evicts" : "O evicts");
    } else if (state == kDraining) {
      n.medium[i] = entry(kFree, 0);
      emit(n, i ? "S clears the entry" : "O clears the entry");
    }
    if (s.writer == kIdle && (state == kFree || (state != kHeld && !rules_.clear_before_grant))) {
      n = s;
      if (state == kFree) {
        n.medium[i] = entry(kHeld, 0);
      }
      n.writer = kGranted;
      n.asks = static_cast<uint8_t>(i);
      emit(n, i ? "S grants" : "O grants");
    }
    const bool asked = i == 0 ? s.ring != 0 : s.writer == kAsked && s.asks == 1;
    if (asked && (state == kHeld || (state == kDraining && !rules_.clear_before_grant))) {
      n = s;
      n.medium[i] = entry(kPublished, i == 0 ? s.ring : s.id);
      if (i == 0) {
        n.ring = 0;
      }
      if (s.writer == kAsked && s.asks == i) {
        n.writer = kAnswered;
      }
      emit(n, i ? "S publishes" : "O publishes");
    }
    if (!rules_.owner_keeps_off && (state == kDraining || state == kFree)) {
      for (int line = kPayload0; line <= kPayload1; line++) {
        n = s;
        n.medium[line] = 0;
        emit(n, i ? "S scrubs" : "O scrubs");
      }
    }
  }

  // The candidate's area is looked at by nobody before it is active: scan and copy are one step.
  void candidate(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.medium[kClaim] == kNoClaim) {
      n.medium[kClaim] = kClaimed;
      emit(n, "S claims");
    } else if (s.medium[kClaim] == kClaimed && s.scanned == 0) {
      n.medium[kArea1] = s.medium[kArea0];
      n.scanned = 1;
      emit(n, "S scans and copies");
    } else if (s.medium[kClaim] == kClaimed) {
      n.medium[kClaim] = kActive;
      emit(n, "S activates");
    }
  }

  // The new owner hears what the writer holds: nothing, or a publication in doubt.
  void resolve(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.writer == kIdle && state_of(s.medium[kArea1]) == kHeld) {
      n.medium[kArea1] = entry(kFree, 0);
      emit(n, "W reports that it holds nothing");
    }
    if (s.writer != kResolving) {
      return;
    }
    n.writer = kIdle;
    if (state_of(s.medium[kArea1]) == kHeld) {
      n.medium[kArea1] = entry(kPublished, s.id);
      emit(n, "S resolves: publishes now");
      n = s;
      n.writer = kFilling;
      n.asks = 1;
      n.filled = 3;
      emit(n, "S resolves: not published, in hand");
    } else {
      emit(n, "S resolves: was published");
    }
  }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    const bool outbid = s.asks == 0 && s.medium[kClaim] != kNoClaim;
    switch (s.writer) {
      case kGranted:
        if (outbid && rules_.accept_grant) {
          n.writer = kIdle;
          emit(n, "W does not accept the grant");
        } else {
          refill(s, emit, "W accepts the grant");
        }
        break;
      case kFilling:
        for (int line = 0; line < 2; line++) {
          if (!(s.filled >> line & 1)) {
            n = s;
            n.medium[kPayload0 + line] = s.id;
            n.filled |= static_cast<uint8_t>(1 << line);
            emit(n, "W writes payload");
          }
        }
        if (s.filled == 3 || !rules_.drain_payload) {
          n = s;
          n.writer = kFilled;
          emit(n, "W drained");
        }
        break;
      case kFilled:
        n.writer = kAsked;
        n.asks = s.medium[kClaim] == kActive;
        if (n.asks == 0) {
          n.ring = s.id;
        }
        emit(n, "W asks to publish");
        refill(s, emit, "W aborts and fills again");
        break;
      case kAsked:
        if (s.asks == 0 && s.medium[kClaim] == kActive) {
          n.writer = kWaits;
          emit(n, "W sees another owner: in doubt");
        }
        break;
      case kAnswered:
        if (!outbid) {
          n.writer = kIdle;
          n.filled = 0;
          emit(n, "W accepts: published");
        } else {
          n.writer = kWaits;
          emit(n, "W does not accept: in doubt");
          if (!rules_.keep_doubt) {
            refill(s, emit, "W drops the answer and fills again");
          }
        }
        break;
      case kWaits:
        if (s.medium[kClaim] == kActive) {
          n.writer = kResolving;
          emit(n, "W asks S about its doubt");
        }
        break;
      default:
        break;
    }
    if (!rules_.drain_payload && s.writer >= kFilled && s.filled != 3) {
      for (int line = 0; line < 2; line++) {
        n = s;
        if (!(s.filled >> line & 1)) {
          n.medium[kPayload0 + line] = s.id;
          n.filled |= static_cast<uint8_t>(1 << line);
          emit(n, "W's late payload lands");
        }
      }
    }
  }

  void refill(const State &s, Sink<State> &emit, const char *label) const {
    if (s.id < id_max_) {
      State n = s;
      n.writer = kFilling;
      n.filled = 0;
      n.id++;
      emit(n, label);
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:  // the claims it starts from may be old; any area that ever was active is tried
        for (uint8_t area = 0; area < 2; area++) {
          if (area == 0 || s.medium[kClaim] == kActive) {
            n = s;
            n.area = area;
            acquire(n, area);
            n.reader = kLookup;
            emit(n, "R acquires the entry");
          }
        }
        break;
      case kLookup: {
        const uint8_t line = load(n, s.area);
        if (state_of(line) == kPublished) {
          n.version = line % 8;
          acquire(n, kPayload0);
          acquire(n, kPayload1);
          if (!rules_.acquire_after_copy) {
            acquire(n, kClaim);
            acquire(n, s.area);
          }
          n.reader = kCopy;
        } else {
          restart(n);
        }
        emit(n, "R loads the entry");
        break;
      }
      case kCopy:
        for (int line = 0; line < 2; line++) {
          if (!(s.loaded >> line & 1)) {
            n = s;
            n.bytes[line] = load(n, kPayload0 + line);
            n.loaded |= static_cast<uint8_t>(1 << line);
            if (n.loaded == 3) {
              n.loaded = 0;
              n.reader = rules_.validate ? kAcquireCheck : kSuccess;
            }
            emit(n, "R copies");
          }
        }
        break;
      case kAcquireCheck:
        if (rules_.acquire_after_copy) {
          acquire(n, kClaim);
          acquire(n, s.area);
        }
        n.reader = kCheck;
        emit(n, "R acquires claims and entry");
        break;
      case kCheck:
        check(s, emit);
        break;
      default:
        restart(n);
        emit(n, "R starts again");
        break;
    }
  }

  // Claims and entry, in either order.
  void check(const State &s, Sink<State> &emit) const {
    for (int which = 0; which < 2; which++) {
      if (s.loaded >> which & 1) {
        continue;
      }
      State n = s;
      n.loaded |= static_cast<uint8_t>(1 << which);
      if (which == 0) {
        n.active_area = load(n, kClaim) == kActive;
      } else {
        const uint8_t line = load(n, s.area);
        const bool there = state_of(line) == kPublished || state_of(line) == kDraining;
        n.valid = there && (line % 8 == s.version || !rules_.compare_version);
      }
      if (n.loaded == 3) {
        if (n.valid && (n.active_area == n.area || !rules_.compare_area)) {
          n.reader = kSuccess;
        } else {
          restart(n);
        }
      }
      emit(n, which == 0 ? "R loads the claims" : "R loads the entry again");
    }
  }

  static void restart(State &n) {
    n.reader = n.area = n.version = n.bytes[0] = n.bytes[1] = 0;
    n.loaded = n.active_area = n.valid = 0;
    n.window = 0;
  }

  const Rules rules_;
  const uint8_t id_max_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::ValidatedRead>().main(argc, argv);
}
