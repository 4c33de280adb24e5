// SPDX-License-Identifier: Apache-2.0
// Shows: events arrive in order, replay as far as kept, and a slow reader is told what it lost.
// How: a writer and readers over one ring, within one thread and with a writer that overruns a
// reader.
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "store/events.hpp"

using namespace kvpool;
using namespace kvpool::store;

namespace {

struct Uuid {
  u8 b[16] = {};
  Uuid() {
    const u64 id = static_cast<u64>(getpid());
    std::memcpy(b, &id, 8);
    b[15] = 0x5A;
  }
  ~Uuid() { shm_unlink(event_ring_name(b).c_str()); }
};

Event stored(u64 n) {
  Event e;
  e.type = EventType::kStored;
  e.version = n;
  e.bytes = n * 64;
  e.ns = 3;
  e.member = 9;
  e.key = {{n, n + 1, n + 2, n + 3}};
  return e;
}

}  // namespace

Test(events, order_content_and_replay) {
  Uuid uuid;
  EventLog log;
  EventReader live, replay;
  Event got[16];
  cr_expect_eq(live.open(uuid.b, 0), -ENOENT);
  cr_assert_eq(log.open(uuid.b, 0x20), 0);
  cr_assert_eq(live.open(uuid.b, 0), 0);
  cr_expect_eq(live.take(16, got), 0, "only what comes was asked for");
  for (u64 n = 1; n <= 5; ++n) log.write(stored(n));
  cr_assert_eq(live.take(3, got), 3);
  cr_assert_eq(live.take(16, got + 3), 2);
  for (u64 n = 1; n <= 5; ++n) {
    const Event &e = got[n - 1];
    cr_expect(e.type == EventType::kStored && e.version == n && e.bytes == n * 64);
    cr_expect(e.ns == 3 && e.member == 9 && e.epoch == 0x20 && e.key.w[3] == n + 3);
    cr_expect_eq(e.sequence, n + 1, "the first event is the owner's own");
  }
  cr_assert_eq(replay.open(uuid.b, 1), 0);
  cr_assert_eq(replay.take(16, got), 6);
  cr_expect(got[0].type == EventType::kOwner && got[0].sequence == 1);
}

// Guards: an owner that ends takes its ring away, and who had it open never heard the next one.
Test(events, reader_follows_to_another_ring) {
  Uuid uuid;
  EventReader reader;
  Event got[8];
  {
    EventLog first;
    first.open(uuid.b, 0x20);
    cr_assert_eq(reader.open(uuid.b, 0), 0);
    cr_expect_not(reader.follow(uuid.b), "it is the same ring");
    first.write(stored(1));
    cr_assert_eq(reader.take(8, got), 1);
  }
  EventLog::remove(uuid.b);
  cr_expect_not(reader.follow(uuid.b), "there is none");
  cr_expect_eq(reader.take(8, got), 0);
  EventLog second;
  cr_assert_eq(second.open(uuid.b, 0x31), 0);
  second.write(stored(7));
  cr_expect_eq(reader.take(8, got), 0);
  cr_assert(reader.follow(uuid.b));
  cr_assert_eq(reader.take(8, got), 2);
  cr_expect(got[0].type == EventType::kOwner && got[0].epoch == 0x31);
  cr_expect(got[1].version == 7 && got[1].sequence == 2);
  cr_expect_not(reader.follow(uuid.b));
}

Test(events, another_owner_starts_anew) {
  Uuid uuid;
  EventLog first, second;
  EventReader reader;
  Event got[8];
  first.open(uuid.b, 0x20);
  reader.open(uuid.b, 0);
  first.write(stored(1));
  cr_assert_eq(reader.take(8, got), 1);
  cr_assert_eq(second.open(uuid.b, 0x31), 0);
  second.write(stored(7));
  cr_assert_eq(reader.take(8, got), 2);
  cr_expect(got[0].type == EventType::kOwner && got[0].epoch == 0x31);
  cr_expect(got[1].version == 7 && got[1].sequence == 2);
}

Test(events, slow_reader_is_told_what_it_lost) {
  Uuid uuid;
  EventLog log;
  EventReader reader;
  log.open(uuid.b, 0x20);
  reader.open(uuid.b, 0);
  const u64 total = 3 * kEventsKept;
  for (u64 n = 1; n <= total; ++n) log.write(stored(n));
  u64 lost = 0, seen = 0, last = 0;
  Event got[64];
  while (const u32 n = reader.take(64, got)) {
    for (u32 i = 0; i < n; ++i) {
      if (got[i].type == EventType::kLost) {
        lost += got[i].count;
      } else {
        ++seen;
        cr_assert_gt(got[i].version, last);
        last = got[i].version;
      }
    }
  }
  cr_expect_gt(lost, 0);
  cr_expect_eq(lost + seen, total);
  cr_expect_eq(last, total);
}

Test(events, concurrent_writer_never_shows_a_torn_event, .timeout = 60) {
  Uuid uuid;
  EventLog log;
  EventReader reader;
  log.open(uuid.b, 0x20);
  reader.open(uuid.b, 0);
  constexpr u64 kTotal = 300000;
  std::thread writer([&] {
    for (u64 n = 1; n <= kTotal; ++n) log.write(stored(n));
  });
  u64 accounted = 0;
  Event got[32];
  while (accounted < kTotal) {
    const u32 n = reader.take(32, got);
    for (u32 i = 0; i < n; ++i) {
      const Event &e = got[i];
      if (e.type == EventType::kLost) {
        accounted += e.count;
        continue;
      }
      ++accounted;
      cr_assert(e.bytes == e.version * 64 && e.key.w[0] == e.version &&
                e.key.w[3] == e.version + 3, "torn event %llu",
                static_cast<unsigned long long>(e.version));
    }
  }
  writer.join();
  cr_expect_eq(accounted, kTotal);
}

// Shows: an owner that takes the store over from itself goes on in the same ring: readers stay, and
// hear of the new epoch.
Test(events, another_epoch_of_the_same_owner) {
  Uuid uuid;
  EventLog log;
  EventReader live;
  Event got[4];
  cr_assert_eq(log.open(uuid.b, 0x20), 0);
  cr_assert_eq(live.open(uuid.b, 0), 0);
  log.write(stored(1));
  log.carry_on(0x30);
  log.write(stored(2));
  cr_expect_eq(live.epoch(), 0x30);
  cr_assert_eq(live.take(4, got), 3);
  cr_expect(got[0].epoch == 0x20 && got[1].epoch == 0x30 && got[2].epoch == 0x30);
  cr_expect_eq(static_cast<int>(got[1].type), static_cast<int>(EventType::kOwner));
  cr_expect(got[1].sequence == got[0].sequence + 1 && got[2].sequence == got[1].sequence + 1);
}
