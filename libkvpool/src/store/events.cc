// SPDX-License-Identifier: Apache-2.0
#include "store/events.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "arch/prefetch.hpp"

namespace kvpool::store {

namespace {

constexpr u64 kRingMagic = 0x3130544E45564B01ull;

// Words are relaxed atomics, so that a record that is read while it is written is torn but no data
// race.
struct Record {
  std::atomic<u64> sequence;
  std::atomic<u64> word[15];
};
static_assert(sizeof(Record) == 128);

constexpr u32 kPackedWords = 10;
// The ring is larger than a near cache: a record's lines are fetched while others are written.
constexpr u64 kRecordsAhead = 8;

void pack(const Event &e, u32 epoch, u64 *w) {
  w[0] = u64{static_cast<u32>(e.type)} | u64{static_cast<u32>(e.reason)} << 32;
  w[1] = u64{e.ns} | u64{e.member} << 32;
  w[2] = epoch;
  w[3] = e.version;
  w[4] = e.bytes;
  w[5] = e.count;
  for (u32 i = 0; i < 4; ++i) w[6 + i] = e.key.w[i];
}

void unpack(const u64 *w, Event &e) {
  e.type = static_cast<EventType>(static_cast<u32>(w[0]));
  e.reason = static_cast<EventReason>(static_cast<u32>(w[0] >> 32));
  e.ns = static_cast<u32>(w[1]);
  e.member = static_cast<u32>(w[1] >> 32);
  e.epoch = static_cast<u32>(w[2]);
  e.version = w[3];
  e.bytes = w[4];
  e.count = w[5];
  for (u32 i = 0; i < 4; ++i) e.key.w[i] = w[6 + i];
}

}  // namespace

struct EventRing {
  std::atomic<u64> magic;
  std::atomic<u32> epoch;        // of the owner now; 0: the ring is being made anew
  std::atomic<u32> first_epoch;  // with which its sequences began
  std::atomic<u64> next;         // sequence of the next event
  u64 unused[13];
  Record record[kEventsKept];
};

std::string event_ring_name(const u8 uuid[16]) {
  static const char kDigits[] = "0123456789abcdef";
  std::string name = "/kvpool-events-";
  for (u32 i = 0; i < 16; ++i) {
    name += kDigits[uuid[i] >> 4];
    name += kDigits[uuid[i] & 15];
  }
  return name;
}

int EventLog::open(const u8 uuid[16], u32 epoch) {
  close();
  const std::string name = event_ring_name(uuid);
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return -errno;
  int err =
      posix_fallocate(fd, 0, sizeof(EventRing));  // a full file system is an error, not SIGBUS
  void *at = MAP_FAILED;
  if (err == 0) {
    at = mmap(nullptr, sizeof(EventRing), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) err = errno;
  }
  ::close(fd);
  if (err != 0) {
    shm_unlink(name.c_str());
    return -err;
  }
  ring_ = static_cast<EventRing *>(at);
  ring_->epoch.store(0, std::memory_order_release);
  for (Record &r : ring_->record) r.sequence.store(0, std::memory_order_relaxed);
  ring_->next.store(1, std::memory_order_relaxed);
  ring_->magic.store(kRingMagic, std::memory_order_relaxed);
  ring_->first_epoch.store(epoch, std::memory_order_relaxed);
  ring_->epoch.store(epoch, std::memory_order_release);
  epoch_ = epoch;
  next_ = 1;
  Event started;
  started.type = EventType::kOwner;
  write(started);
  return 0;
}

void EventLog::carry_on(u32 epoch) {
  epoch_ = epoch;
  if (ring_ == nullptr) return;
  ring_->epoch.store(epoch, std::memory_order_release);
  Event started;
  started.type = EventType::kOwner;
  write(started);
}

void EventLog::close() {
  if (ring_ != nullptr) munmap(ring_, sizeof(EventRing));
  ring_ = nullptr;
}

void EventLog::remove(const u8 uuid[16]) { shm_unlink(event_ring_name(uuid).c_str()); }

void EventLog::write(const Event &event) {
  if (ring_ == nullptr) return;
  u64 w[kPackedWords];
  pack(event, epoch_, w);
  const Record &later = ring_->record[(next_ + kRecordsAhead) % kEventsKept];
  for (u64 line = 0; line < sizeof later; line += kLineBytes) {
    prefetch_local(reinterpret_cast<const std::byte *>(&later) + line);
  }
  Record &r = ring_->record[next_ % kEventsKept];
  r.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (u32 i = 0; i < kPackedWords; ++i) r.word[i].store(w[i], std::memory_order_relaxed);
  r.sequence.store(next_, std::memory_order_release);
  ring_->next.store(++next_, std::memory_order_release);
}

int EventReader::open(const u8 uuid[16], u64 from) {
  close();
  const int fd = shm_open(event_ring_name(uuid).c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return -errno;
  struct stat st;
  int err = fstat(fd, &st) != 0 ? errno : 0;
  if (err == 0 && st.st_size < static_cast<off_t>(sizeof(EventRing))) err = ENOENT;
  void *at = MAP_FAILED;
  if (err == 0) {
    at = mmap(nullptr, sizeof(EventRing), PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) err = errno;
  }
  ::close(fd);
  if (err != 0) return -err;
  ring_ = static_cast<const EventRing *>(at);
  device_ = st.st_dev;
  inode_ = st.st_ino;
  const u32 epoch = ring_->epoch.load(std::memory_order_acquire);
  first_epoch_ = ring_->first_epoch.load(std::memory_order_relaxed);
  if (ring_->magic.load(std::memory_order_relaxed) != kRingMagic || epoch == 0) {
    close();
    return -ENOENT;
  }
  next_ = from == 0 ? ring_->next.load(std::memory_order_acquire) : from;
  return 0;
}

void EventReader::close() {
  if (ring_ != nullptr) munmap(const_cast<EventRing *>(ring_), sizeof(EventRing));
  ring_ = nullptr;
}

bool EventReader::follow(const u8 uuid[16]) {
  const int fd = shm_open(event_ring_name(uuid).c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  struct stat st;
  const bool other =
      fstat(fd, &st) == 0 && (st.st_dev != device_ || st.st_ino != inode_);
  ::close(fd);
  EventReader next;
  if (!other || next.open(uuid, 1) != 0) return false;
  std::swap(ring_, next.ring_);
  device_ = next.device_;
  inode_ = next.inode_;
  first_epoch_ = next.first_epoch_;
  next_ = next.next_;
  return true;
}

u32 EventReader::epoch() const { return ring_->epoch.load(std::memory_order_acquire); }

// False: overwritten meanwhile.
bool EventReader::copy(u64 sequence, Event &ret_event) const {
  const Record &r = ring_->record[sequence % kEventsKept];
  if (r.sequence.load(std::memory_order_acquire) != sequence) return false;
  u64 w[kPackedWords];
  for (u32 i = 0; i < kPackedWords; ++i) w[i] = r.word[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (r.sequence.load(std::memory_order_relaxed) != sequence) return false;
  unpack(w, ret_event);
  ret_event.sequence = sequence;
  return true;
}

u32 EventReader::take(u32 max, Event *ret_events) {
  u32 n = 0;
  while (n < max) {
    const u32 epoch = ring_->epoch.load(std::memory_order_acquire);
    if (epoch == 0) break;  // being taken over
    const u32 first = ring_->first_epoch.load(std::memory_order_relaxed);
    if (first != first_epoch_) {
      first_epoch_ = first;
      next_ = 1;  // its first event says that another owner serves
    }
    const u64 end = ring_->next.load(std::memory_order_acquire);
    if (next_ >= end) break;
    const u64 oldest = end > kEventsKept ? end - kEventsKept + 1 : 1;
    if (next_ >= oldest && copy(next_, ret_events[n])) {
      ++next_;
      ++n;
      continue;
    }
    // Overwritten: skip to the middle of what is kept, so that the next ones are not lost at once.
    const u64 resume = std::min(end, std::max(next_ + 1, oldest + kEventsKept / 2));
    Event lost;
    lost.type = EventType::kLost;
    lost.epoch = epoch;
    lost.sequence = next_;
    lost.count = resume - next_;
    ret_events[n++] = lost;
    next_ = resume;
  }
  return n;
}

}  // namespace kvpool::store
