// SPDX-License-Identifier: Apache-2.0
// What this process has reserved and pinned: tickets name slots here. Owns the entries between
// reserve and publish or abort, and between pin and unpin. Fixed size, made at open; one mutex
// each.
#pragma once

#include <mutex>
#include <vector>

#include "pool/types.hpp"

namespace kvpool::store {

// A table of slots that are taken, looked up with the generation they were taken with, and freed.
// One that is lent is found by nobody until it is given back, or ended.
template <class T>
class SlotTable {
public:
  explicit SlotTable(u32 slots) : slots_(slots) {
    free_.reserve(slots);
    for (u32 i = slots; i-- > 0;) free_.push_back(i);
  }

  // False when all are taken.
  bool add(u64 generation, const T &value, u32 &ret_slot) {
    std::lock_guard guard(mutex_);
    if (free_.empty()) return false;
    ret_slot = free_.back();
    free_.pop_back();
    slots_[ret_slot] = {generation, true, false, value};
    return true;
  }

  bool find(u32 slot, u64 generation, T &ret_value) {
    std::lock_guard guard(mutex_);
    if (!matches(slot, generation)) return false;
    ret_value = slots_[slot].value;
    return true;
  }

  bool take(u32 slot, u64 generation, T &ret_value) {
    std::lock_guard guard(mutex_);
    if (!matches(slot, generation)) return false;
    ret_value = slots_[slot].value;
    slots_[slot].used = false;
    free_.push_back(slot);
    return true;
  }

  bool lend(u32 slot, u64 generation, T &ret_value) {
    std::lock_guard guard(mutex_);
    if (!matches(slot, generation)) return false;
    ret_value = slots_[slot].value;
    slots_[slot].lent = true;
    return true;
  }
  // Of a slot that was ended meanwhile: nothing.
  void give_back(u32 slot, u64 generation) {
    std::lock_guard guard(mutex_);
    if (slots_[slot].used && slots_[slot].generation == generation) slots_[slot].lent = false;
  }
  void end(u32 slot, u64 generation) {
    std::lock_guard guard(mutex_);
    if (!slots_[slot].used || slots_[slot].generation != generation) return;
    slots_[slot].used = slots_[slot].lent = false;
    free_.push_back(slot);
  }

  void clear() {
    std::lock_guard guard(mutex_);
    for (u32 i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].used) continue;
      slots_[i].used = slots_[i].lent = false;
      free_.push_back(i);
    }
  }

  u32 used() {
    std::lock_guard guard(mutex_);
    return static_cast<u32>(slots_.size() - free_.size());
  }

private:
  struct Slot {
    u64 generation = 0;
    bool used = false;
    bool lent = false;
    T value{};
  };
  bool matches(u32 slot, u64 generation) const {
    return slot < slots_.size() && slots_[slot].used && !slots_[slot].lent &&
           slots_[slot].generation == generation;
  }

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<u32> free_;
};

struct Reservation {
  pool::Key key{};
  pool::NsRef ns{};
  pool::Block block{};
  u64 parent = 0;
  u64 payload_bytes = 0;
  u32 shards = 1;
  u64 nonce = 0;
};

inline constexpr u32 kReservationsMax = 8192;
inline constexpr u32 kPinsMax = 65536;

struct Reservations : SlotTable<Reservation> {
  Reservations() : SlotTable(kReservationsMax) {}
};
struct Pins : SlotTable<pool::Pin> {
  Pins() : SlotTable(kPinsMax) {}
};

}  // namespace kvpool::store
