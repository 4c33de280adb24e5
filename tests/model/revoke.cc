// SPDX-License-Identifier: Apache-2.0
// Owns the model of a dying member under a driver (proto 6, 9): what of it may still land in its
// block, and the steps after which the driver says QUIET. The member stores past its cache and
// through it, and starts jobs of a device, as long as the block is mapped; a fault maps it again
// unless the member is revoked. A device goes on without a mapping, and its root port sends what it
// writes to the memory device, or leaves it in the host's cache.
//
// The steps: revoked, zapped (mapping gone), fenced (the CPUs that ran it have emptied their
// buffers), devices done, lines flushed, 2 delta, QUIET. Then the block is given to a writer on
// another host. The owner's own wait behind a proof is left out (quiet has it): the driver's word
// stands alone here.
#include "caches.hpp"

#include <algorithm>

namespace kvpool::model {
namespace {

class Revoke {
public:
  struct Rules {
    bool revoked = true, zapped = true, fenced = true, devices_done = true, flushed = true;
    bool settled = true;
    bool revoked_before_zap = true, zap_before_fence = true, zap_before_devices = true;
    bool zap_before_flush = true, devices_before_flush = true, fence_before_settle = true;
    bool flush_before_settle = true;
  };

  enum Host { kHere, kThere };
  enum Line { kBlock };
  enum Step : uint8_t { kRevoked, kZap, kFence, kDevices, kFlush, kSettle, kQuiet };
  enum Writer : uint8_t { kWants, kStores, kDrains, kPublished };
  static constexpr uint8_t kOld = 1, kNew = 2;  // bytes of the block

  struct State {
    Memory<2, 1> mem;
    uint8_t at;      // the driver's next step
    uint8_t done;    // its steps, by bit
    uint8_t mapped, faulted, job, stores;
    uint8_t writer;
    uint8_t refused, late, driven;  // seen: a fault refused, a device without a mapping, a dirty
                                    // line flushed
  };

  static constexpr const char *kName = "revoke";
  static constexpr const char *kCovers =
      "a dying member under a driver: revoked, zap, fence, devices, flush, settling, QUIET";
  static constexpr Mutant<Rules> kMutants[] = {
      {"faults-go-on", &Rules::revoked, "6", "who is revoked gets no mapping by a fault"},
      {"not-zapped", &Rules::zapped, "6", "the mapping is taken away"},
      {"not-fenced", &Rules::fenced, "6",
       "stores that sit in a buffer of a CPU leave it before QUIET"},
      {"devices-not-awaited", &Rules::devices_done, "6",
       "QUIET waits until no device can write any more"},
      {"not-flushed", &Rules::flushed, "6", "what lies dirty in the host's cache is flushed"},
      {"not-settled", &Rules::settled, "6", "what has left the host arrives before QUIET is said"},
      {"zapped-before-revoked", &Rules::revoked_before_zap, "6",
       "revoked comes before the zap, or a fault undoes it"},
      {"fenced-before-zap", &Rules::zap_before_fence, "6", "CPUs are fenced after the zap"},
      {"devices-before-zap", &Rules::zap_before_devices, "6",
       "devices are waited for after the zap: none is started any more"},
      {"flushed-before-zap", &Rules::zap_before_flush, "6", "lines are flushed after the zap"},
      {"flushed-before-devices", &Rules::devices_before_flush, "6",
       "lines are flushed after devices are done: a port may leave theirs in the cache"},
      {"settled-before-fence", &Rules::fence_before_settle, "6", "2 delta begin after the fence"},
      {"settled-before-flush", &Rules::flush_before_settle, "6", "2 delta begin after the flush"},
  };
  static constexpr const char *kMarks[] = {"fault refused", "device lands after the zap",
                                           "dirty line flushed by the driver",
                                           "QUIET said", "published by the next writer"};

  Revoke(const Rules &rules, Mode mode) : stores_(mode == Mode::kLong ? 4 : 2) {
    const auto without = [&](bool kept, Step step) {
      if (!kept) std::erase(order_, step);
    };
    without(rules.revoked, kRevoked);
    without(rules.zapped, kZap);
    without(rules.fenced, kFence);
    without(rules.devices_done, kDevices);
    without(rules.flushed, kFlush);
    without(rules.settled, kSettle);
    // Puts a step directly in front of one that it has to follow.
    const auto too_early = [&](bool kept, Step step, Step first) {
      if (kept) return;
      std::erase(order_, step);
      order_.insert(std::find(order_.begin(), order_.end(), first), step);
    };
    too_early(rules.revoked_before_zap, kZap, kRevoked);
    too_early(rules.zap_before_fence, kFence, kZap);
    too_early(rules.zap_before_devices, kDevices, kZap);
    too_early(rules.zap_before_flush, kFlush, kZap);
    too_early(rules.devices_before_flush, kFlush, kDevices);
    too_early(rules.fence_before_settle, kSettle, kFence);
    too_early(rules.flush_before_settle, kSettle, kFlush);
  }

  State initial() const {
    State s{};
    s.mapped = 1;
    return s;
  }

  void next(const State &s, Sink<State> &emit) const {
    spontaneous(s, &State::mem, 0, emit);
    member(s, emit);
    device(s, emit);
    driver(s, emit);
    writer(s, emit);
  }

  const char *violation(const State &s) const {
    if (s.writer == kPublished && s.mem.medium[kBlock] != kNew) {
      return "a store of the dead member lies over a published block";
    }
    return nullptr;
  }

  bool settled(const State &s) const { return s.writer == kPublished; }

  uint32_t marks(const State &s) const {
    return s.refused | s.late << 1 | s.driven << 2 | (s.done >> kQuiet & 1u) << 3 |
           (s.writer == kPublished) << 4;
  }

  std::string show(const State &s) const {
    return text("medium %d | here: buffer %d fabric %d cache %d dirty %d | mapped %d job %d | "
                "driver at %d did %02x | writer %d",
                s.mem.medium[0], s.mem.buffer[0][0], s.mem.fabric[0][0], s.mem.cache[0][0],
                s.mem.dirty[0][0], s.mapped, s.job, s.at, s.done, s.writer);
  }

private:
  static bool did(const State &s, Step step) { return s.done >> step & 1; }

  void member(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.mapped != 0 && s.stores < stores_) {
      n.stores++;
      n.mem.stream(kHere, kBlock, kOld);
      emit(n, "the member stores past its cache");
      n = s;
      n.stores++;
      n.mem.store_cached(kHere, kBlock, kOld);
      emit(n, "the member stores through its cache");
      if (s.job == 0) {
        n = s;
        n.stores++;
        n.job = 1;
        emit(n, "the member starts a device");
      }
    }
    if (s.mapped == 0) {
      n = s;
      if (did(s, kRevoked)) {
        n.refused = 1;
        emit(n, "a fault is refused");
      } else {
        n.mapped = 1;
        emit(n, "a fault maps the block again");
      }
    }
  }

  void device(const State &s, Sink<State> &emit) const {
    if (s.job == 0) {
      return;
    }
    State n = s;
    n.job = 0;
    n.late = s.late | (s.mapped == 0);
    n.mem.store_cached(kHere, kBlock, kOld);
    n.mem.buffer[kHere][kBlock] = s.mem.buffer[kHere][kBlock];
    emit(n, "a device's write stays in the host's cache");
    if (s.mem.fabric[kHere][kBlock] == 0) {
      n.mem = s.mem;
      n.mem.cache[kHere][kBlock] = n.mem.dirty[kHere][kBlock] = 0;
      n.mem.fabric[kHere][kBlock] = kOld + 1;
      emit(n, "a device's write is on its way to the medium");
    }
  }

  void driver(const State &s, Sink<State> &emit) const {
    if (s.at == order_.size()) {
      return;
    }
    State n = s;
    const Step step = order_[s.at];
    n.at++;
    n.done = static_cast<uint8_t>(s.done | 1u << step);
    const bool room = s.mem.fabric[kHere][kBlock] == 0;
    switch (step) {
      case kRevoked:
        emit(n, "the driver revokes the member");
        break;
      case kZap:
        n.mapped = 0;
        emit(n, "the driver zaps the mapping");
        break;
      case kFence:
        if (s.mem.buffer[kHere][kBlock] != 0) {
          n.mem.fabric[kHere][kBlock] = s.mem.buffer[kHere][kBlock];
          n.mem.buffer[kHere][kBlock] = 0;
        }
        if (room || s.mem.buffer[kHere][kBlock] == 0) emit(n, "the CPUs are fenced");
        break;
      case kDevices:
        if (s.job == 0) emit(n, "the devices are done");
        break;
      case kFlush:
        n.driven = s.driven | s.mem.dirty[kHere][kBlock];
        n.mem.flush_now(kHere, kBlock);
        if (room || s.mem.dirty[kHere][kBlock] == 0) emit(n, "the driver flushes the lines");
        break;
      case kSettle:
        if (room) emit(n, "2 delta are over");
        break;
      case kQuiet:
        emit(n, "the driver says QUIET");
        break;
    }
  }

  void writer(const State &s, Sink<State> &emit) const {
    State n = s;
    if (s.writer == kWants && did(s, kQuiet)) {
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

  std::vector<Step> order_{kRevoked, kZap, kFence, kDevices, kFlush, kSettle, kQuiet};
  const uint8_t stores_;
};

}  // namespace
}  // namespace kvpool::model

int main(int argc, char **argv) {
  return kvpool::model::Program<kvpool::model::Revoke>().main(argc, argv);
}
