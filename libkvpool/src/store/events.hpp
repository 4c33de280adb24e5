// SPDX-License-Identifier: Apache-2.0
// Events (what the owner decided) for readers in other processes of its host: a ring of records in
// shared memory, one writer, any number of readers that never slow it down. A reader that falls
// behind is told how much it lost. Ordinary coherent memory of one host, so atomics are allowed
// here.
//
// A record is written as: sequence 0, fields, sequence n. A reader copies it between two looks at
// the sequence. Sequences start at 1 with each owner's epoch.
#pragma once

#include <atomic>
#include <string>

#include "arch/types.hpp"
#include "pool/types.hpp"

namespace kvpool::store {

// Numbers are those of enum kvpool_event_type and kvpool_event_reason.
enum class EventType : u32 { kStored = 1, kRemoved = 2, kCleared = 3, kLost = 4, kOwner = 5 };
enum class EventReason : u32 {
  kNone = 0, kEvicted = 1, kRemoved = 2, kReplaced = 3, kCleared = 4, kDamaged = 5, kLost = 6
};

struct Event {
  u64 sequence = 0;
  u32 epoch = 0;
  EventType type = EventType::kStored;
  EventReason reason = EventReason::kNone;
  u32 ns = 0;
  u64 version = 0;
  u64 bytes = 0;
  u64 count = 0;
  u32 member = 0;
  pool::Key key{};
};

inline constexpr u64 kEventsKept = 8192;

struct EventRing;  // as it lies in shared memory

// The ring's name for a store, as shm_open takes it.
std::string event_ring_name(const u8 uuid[16]);

// The owner's side. One thread writes.
class EventLog {
public:
  EventLog() = default;
  ~EventLog() { close(); }
  EventLog(const EventLog &) = delete;
  EventLog &operator=(const EventLog &) = delete;

  // Makes or takes over the ring; starts the epoch at sequence 1 with an owner event. -errno leaves
  // the log closed: the store serves without events.
  int open(const u8 uuid[16], u32 epoch);
  void close();
  // Takes the name away when nobody will serve: readers keep what they have mapped.
  static void remove(const u8 uuid[16]);
  bool is_open() const { return ring_ != nullptr; }
  // The same owner goes on with another epoch: sequences go on, and an event says so.
  void carry_on(u32 epoch);
  void write(const Event &event);

private:
  EventRing *ring_ = nullptr;
  u32 epoch_ = 0;
  u64 next_ = 1;
};

class EventReader {
public:
  EventReader() = default;
  ~EventReader() { close(); }
  EventReader(const EventReader &) = delete;
  EventReader &operator=(const EventReader &) = delete;

  // from: 0 only what comes; else replay from that sequence as far as it is kept. -ENOENT: no ring.
  int open(const u8 uuid[16], u64 from);
  void close();
  u32 epoch() const;  // of the owner that wrote last
  // Goes on with the ring of that name, from its first event, when it is another one than was
  // opened: an owner that ends takes its ring away, and the next one makes its own.
  bool follow(const u8 uuid[16]);

  // What is there now, at most `max`; 0 when nothing is new.
  u32 take(u32 max, Event *ret_events);

private:
  bool copy(u64 sequence, Event &ret_event) const;

  const EventRing *ring_ = nullptr;
  u64 device_ = 0, inode_ = 0;  // of the ring
  u32 first_epoch_ = 0;  // of the ring whose sequences next_ counts
  u64 next_ = 1;
};

}  // namespace kvpool::store
