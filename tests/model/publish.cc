// SPDX-License-Identifier: Apache-2.0
// Owns the model of one publication on incoherent caches (proto 4, 9): a writer puts a payload of
// two lines on two devices, asks the owner, the owner writes the entry, a reader finds it and loads
// the payload. What is checked: bytes that an entry names are there, and an answered entry is
// found.
#include "caches.hpp"

namespace kvpool::model {
namespace {

class Publish {
public:
  struct Rules {
    bool fence_payload = true;
    bool strict_payload = true;
    bool retire_payload = true;
    bool fence_entry = true;
    bool strict_entry = true;
    bool acquire_entry = true;
    bool acquire_payload = true;
    bool acquire_after_entry = true;
    bool acquire_is_fenced = true;
  };

  enum Host { kWriter, kOwner, kReader };
  enum Line { kPayload0, kPayload1, kRequest, kEntry };
  enum WriterStep : uint8_t { kFill, kRetire, kDrain, kAsk, kAsked };
  enum OwnerStep : uint8_t { kPoll, kLoadRequest, kDecide, kDrainEntry, kAnswered };
  enum ReaderStep : uint8_t { kStart, kLoadEntry, kAcquire, kCopy, kHit, kMiss };

  struct State {
    Memory<3, 4> mem;
    uint8_t writer, filled, cached_way;
    uint8_t owner;
    uint8_t reader, loaded, bytes[2], must_hit;
  };

  static constexpr const char *kName = "publish";
  static constexpr const char *kCovers =
      "payload, request and entry of one publication on caches, store buffers and a fabric";
  static constexpr Mutant<Rules> kMutants[] = {
      {"no-payload-fence", &Rules::fence_payload, "4",
       "streamed payload is fenced before the request"},
      {"weak-payload-drain", &Rules::strict_payload, "4",
       "payload is on the medium, not only fenced, before the request"},
      {"no-retire", &Rules::retire_payload, "9",
       "payload stored through the cache is written back before the request"},
      {"no-entry-fence", &Rules::fence_entry, "7", "the entry is fenced before the answer"},
      {"weak-entry-drain", &Rules::strict_entry, "7",
       "a decision is drained strictly before it is answered"},
      {"no-entry-acquire", &Rules::acquire_entry, "4", "a lookup acquires the entry it loads"},
      {"no-payload-acquire", &Rules::acquire_payload, "4", "a read acquires the payload it loads"},
      {"payload-acquired-early", &Rules::acquire_after_entry, "10",
       "the payload is acquired after the entry was read"},
      {"unfenced-acquire", &Rules::acquire_is_fenced, "4",
       "acquire ends with a full fence: the flush happened before the loads"},
  };
  static constexpr const char *kMarks[] = {"hit", "miss", "hit after the answer", "cached way hit"};

  Publish(const Rules &rules, Mode) : rules_(rules) {}

  State initial() const { return State{}; }

  void next(const State &s, Sink<State> &emit) const {
    constexpr uint32_t kLoads = 1u << (kOwner * 4 + kRequest) | 0xbu << (kReader * 4);
    spontaneous(s, &State::mem, kLoads, emit);
    writer(s, emit);
    owner(s, emit);
    reader(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.reader == kHit && (s.bytes[0] != 1 || s.bytes[1] != 1)) {
      return "an entry was found whose payload is not there";
    }
    if (s.reader == kMiss && s.must_hit != 0) {
      return "a lookup begun after the answer missed the key";
    }
    return nullptr;
  }

  uint32_t marks(const State &s) const {
    const bool hit = s.reader == kHit;
    return hit | (s.reader == kMiss) << 1 | (hit && s.must_hit) << 2 | (hit && s.cached_way) << 3;
  }

  std::string show(const State &s) const {
    const auto &m = s.mem;
    return text("medium P%d%d req%d entry%d | W %d O %d R %d | R caches P%d%d entry%d | R got %d%d",
                m.medium[0], m.medium[1], m.medium[2], m.medium[3], s.writer, s.owner, s.reader,
                m.cache[kReader][0], m.cache[kReader][1], m.cache[kReader][3], s.bytes[0],
                s.bytes[1]);
  }

private:
  // Puts the payload down in any order, past the caches or through them, then asks.
  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.writer) {
      case kFill:
        for (uint8_t line = 0; line < 2; line++) {
          if (s.filled >> line & 1) {
            continue;
          }
          for (uint8_t cached = 0; cached < 2; cached++) {
            if (s.filled != 0 && s.cached_way != cached) {
              continue;  // one way for the whole payload
            }
            n = s;
            n.cached_way = cached;
            n.filled |= static_cast<uint8_t>(1 << line);
            if (cached != 0) {
              n.mem.store_cached(kWriter, line, 1);
            } else {
              n.mem.stream(kWriter, line, 1);
            }
            n.writer = n.filled == 3 ? kRetire : kFill;
            emit(n, cached != 0 ? "W stores payload" : "W streams payload");
          }
        }
        break;
      case kRetire:
        if (s.cached_way != 0 && rules_.retire_payload) {
          n.mem.flush_now(kWriter, kPayload0);
          n.mem.flush_now(kWriter, kPayload1);
        }
        n.writer = kDrain;
        emit(n, "W retires");
        break;
      case kDrain:
        if (!rules_.fence_payload || (s.mem.fenced(kWriter) && !rules_.strict_payload) ||
            s.mem.on_medium(kWriter)) {
          n.writer = kAsk;
          emit(n, "W drained");
        }
        break;
      case kAsk:
        n.mem.stream(kWriter, kRequest, 1);
        n.writer = kAsked;
        emit(n, "W asks to publish");
        break;
      default:
        break;
    }
  }

  void owner(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.owner) {
      case kPoll:
        n.mem.flush_now(kOwner, kRequest);
        n.owner = kLoadRequest;
        emit(n, "O acquires the ring");
        break;
      case kLoadRequest:
        n.owner = s.mem.load(kOwner, kRequest) == 1 ? kDecide : kPoll;
        emit(n, "O loads the ring");
        break;
      case kDecide:
        n.mem.stream(kOwner, kEntry, 1);
        n.owner = kDrainEntry;
        emit(n, "O writes the entry");
        break;
      case kDrainEntry:
        if (!rules_.fence_entry || (s.mem.fenced(kOwner) && !rules_.strict_entry) ||
            s.mem.on_medium(kOwner)) {
          n.owner = kAnswered;
          emit(n, "O answers");
        }
        break;
      default:
        break;
    }
  }

  void acquire(State &n, Line line) const {
    if (rules_.acquire_is_fenced) {
      n.mem.flush_now(kReader, line);
    } else {
      n.mem.flush[kReader][line] = 1;
    }
  }

  void reader(const State &s, Sink<State> &emit) const {
    State n = s;
    switch (s.reader) {
      case kStart:
        n.must_hit = s.owner == kAnswered;
        if (rules_.acquire_entry) {
          acquire(n, kEntry);
        }
        if (!rules_.acquire_after_entry) {
          acquire(n, kPayload0);
          acquire(n, kPayload1);
        }
        n.reader = kLoadEntry;
        emit(n, "R acquires the entry");
        break;
      case kLoadEntry:
        n.reader = s.mem.load(kReader, kEntry) == 1 ? kAcquire : kMiss;
        emit(n, "R loads the entry");
        break;
      case kAcquire:
        if (rules_.acquire_payload && rules_.acquire_after_entry) {
          acquire(n, kPayload0);
          acquire(n, kPayload1);
        }
        n.reader = kCopy;
        emit(n, "R acquires the payload");
        break;
      case kCopy:
        for (uint8_t line = 0; line < 2; line++) {
          if (!(s.loaded >> line & 1)) {
            n = s;
            n.bytes[line] = s.mem.load(kReader, line);
            n.loaded |= static_cast<uint8_t>(1 << line);
            n.reader = n.loaded == 3 ? kHit : kCopy;
            emit(n, "R loads payload");
          }
        }
        break;
      default:
        n.reader = n.loaded = n.bytes[0] = n.bytes[1] = n.must_hit = 0;
        emit(n, "R starts again");
        break;
    }
  }

  const Rules rules_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Publish>().main(argc, argv);
}
