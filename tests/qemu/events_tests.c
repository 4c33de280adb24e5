// SPDX-License-Identifier: Apache-2.0
// Shows: what happens to members, slices, pages, table and administration is told by poll and read,
// to whom it concerns, in order, and what a descriptor was too slow for is counted.
// How: one descriptor for each kind of node while members come, are revoked and go.
#define _GNU_SOURCE
#include "guest.h"

#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { kSeen = 256 };

// What a descriptor has heard so far.
struct ear {
  int fd, count;
  struct kvpool_event_record events[kSeen];
};
static struct ear pool_ear, pay_ear, dev_ear;

static void hear(struct ear *ear) {
  for (;;) {
    const size_t room = kSeen - ear->count < 16 ? kSeen - ear->count : 16;
    const ssize_t got = read(ear->fd, ear->events + ear->count, room * sizeof ear->events[0]);
    if (got <= 0 || room == 0) return;
    ear->count += (int)(got / sizeof ear->events[0]);
  }
}

// The place of the first such event from `from` on, waiting for it up to 5 s; -1.
static int heard(struct ear *ear, int from, uint32_t kind, uint32_t slice, uint64_t value) {
  for (int round = 0; round < 100; round++) {
    hear(ear);
    for (int i = from < 0 ? 0 : from; i < ear->count; i++) {
      const struct kvpool_event_record *event = &ear->events[i];
      if (event->kind == kind && (!slice || event->slice == slice) &&
          (!value || event->value == value))
        return i;
    }
    pause_ms(50);
  }
  return -1;
}

static bool never(const struct ear *ear, uint32_t kind) {
  for (int i = 0; i < ear->count; i++) {
    if (ear->events[i].kind == kind) return false;
  }
  return true;
}

static void open_ears(void) {
  memset(&pool_ear, 0, sizeof pool_ear);
  pay_ear = dev_ear = pool_ear;
  pool_ear.fd = open("/dev/kvpool", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  pay_ear.fd = node("pay", O_RDONLY | O_NONBLOCK);
  dev_ear.fd = node("dev", O_RDONLY | O_NONBLOCK);
  ok(pool_ear.fd >= 0 && pay_ear.fd >= 0 && dev_ear.fd >= 0, "three descriptors that listen");
}

static void close_ears(void) {
  close(pool_ear.fd);
  close(pay_ear.fd);
  close(dev_ear.fd);
}

static void refusals(void) {
  struct kvpool_event_record event;
  struct pollfd poll_of = {.fd = pool_ear.fd, .events = POLLIN};
  hear(&pool_ear);
  ok(read(pool_ear.fd, &event, sizeof event - 1) == -1 && errno == EINVAL, "less than a record");
  ok(read(pool_ear.fd, &event, sizeof event) == -1 && errno == EAGAIN, "nothing to read yet");
  ok(poll(&poll_of, 1, 0) == 0, "and poll says so");
}

static void of_members(void) {
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 600000) && !store_map(&store), "a member");
  ok(!touch_write(store.data, 1), "that maps");
  const uint64_t incarnation = store.join.ret_incarnation;
  ok(revoke_member(incarnation) == 0, "is revoked");
  const int revoked = heard(&pool_ear, 0, KVPOOL_EVENT_MEMBER_REVOKED, 0, incarnation);
  const int fenced = heard(&pool_ear, revoked, KVPOOL_EVENT_MEMBER_FENCED, 0, incarnation);
  ok(revoked >= 0 && fenced > revoked, "heard in this order: %d, %d", revoked, fenced);
  ok(pool_ear.events[fenced].host == 1 && pool_ear.events[fenced].time_ns / 1000000 <= now_ms(),
     "with host and time");
  store_close(&store);
  const int dead = heard(&pool_ear, fenced, KVPOOL_EVENT_MEMBER_DEAD, 0, incarnation);
  ok(dead > fenced, "closed: dead, %d", dead);
  ok(heard(&pay_ear, 0, KVPOOL_EVENT_MEMBER_REVOKED, 0, incarnation) >= 0 &&
         heard(&pay_ear, 0, KVPOOL_EVENT_MEMBER_DEAD, 0, incarnation) >= 0,
     "the payload partition's node tells it, too");
}

static int join_and_go(void *arg) {
  struct store store;
  uint64_t *incarnation = arg;
  if (store_open(&store) || store_join(&store, 0, 60000) || store_map(&store)) return 1;
  *incarnation = store.join.ret_incarnation;
  return touch_write(store.data, 1);
}

static void of_slices(void) {
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 600000), "a member");
  const int from = pool_ear.count;
  ok(grow("pay", UNIT) == 0, "the partition grows");
  const uint32_t id = grown.ret_first_slice;
  const int table = heard(&pool_ear, from, KVPOOL_EVENT_TABLE, 0, info().table_generation);
  const int attached = heard(&pool_ear, from, KVPOOL_EVENT_SLICE_READY, id, 0);
  ok(table >= 0 && attached > table, "a table, then the slice is there: %d, %d", table, attached);
  ok(heard(&pay_ear, 0, KVPOOL_EVENT_SLICE_READY, id, 0) >= 0, "heard by who uses the partition");
  uint8_t *at = mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, store.pay,
                     (off_t)((uint64_t)id << KVPOOL_MAP_ID_SHIFT));
  ok(at != MAP_FAILED && !touch_write(at, 1), "which maps it at once");
  struct kvpool_poison poison = {.device = pool_ear.events[attached].device, .bytes = 64};
  poison.device_offset = pool_ear.events[attached].device_offset + 3 * 4096 + 64;
  ok(ioctl(control, KVPOOL_POISON, &poison) == 0, "a line of it goes bad");
  const int bad = heard(&pay_ear, 0, KVPOOL_EVENT_POISON, id, 0);
  ok(bad >= 0 && pay_ear.events[bad].device == poison.device &&
         pay_ear.events[bad].device_offset == poison.device_offset - 64 &&
         pay_ear.events[bad].bytes == 4096,
     "heard with its place");
  ok(ioctl(control, KVPOOL_POISON, &poison) == 0 && partition("pay").poisoned == 1,
     "said twice it is one page");
  ok(shrink("pay", &id, 1, 0, 0) == 0, "it is taken away");
  const int drains = heard(&pool_ear, from, KVPOOL_EVENT_SLICE_DRAINS, id, 0);
  const int held = heard(&pool_ear, from, KVPOOL_EVENT_SLICE_HELD, id, 1u << 1);
  ok(drains >= 0 && held > drains, "heard, and by whom it is held: %d, %d", drains, held);
  pause_ms(500);
  hear(&pool_ear);
  int helds = 0;
  for (int i = from; i < pool_ear.count; i++)
    helds += pool_ear.events[i].kind == KVPOOL_EVENT_SLICE_HELD;
  ok(helds == 1, "which is said once: %d", helds);
  struct kvpool_slice_quiet quiet = {.flags = KVPOOL_SLICE_QUIET_F_CONFIRMED, .slice = id};
  quiet.incarnation = store.join.ret_incarnation;
  ok(ioctl(control, KVPOOL_SLICE_QUIET, &quiet) == 0, "its member is out");
  ok(heard(&pool_ear, held, KVPOOL_EVENT_SLICE_FREE, id, 0) > held &&
         heard(&pay_ear, 0, KVPOOL_EVENT_SLICE_FREE, id, 0) >= 0,
     "and it is free");
  ok(partition("pay").poisoned == 0, "and its poison forgotten with it");
  munmap(at, UNIT);
  store_close(&store);
}

static void of_others(void) {
  hear(&dev_ear);
  ok(!never(&dev_ear, KVPOOL_EVENT_TABLE), "another partition's node hears of tables");
  ok(never(&dev_ear, KVPOOL_EVENT_MEMBER_REVOKED) && never(&dev_ear, KVPOOL_EVENT_SLICE_DRAINS) &&
         never(&dev_ear, KVPOOL_EVENT_POISON) && never(&dev_ear, KVPOOL_EVENT_SLICE_READY),
     "and of nobody else's members, slices and pages");
  int gaps = 0, lost = 0;
  for (int i = 1; i < pool_ear.count; i++) {
    gaps += pool_ear.events[i].sequence != pool_ear.events[i - 1].sequence + 1;
    lost += pool_ear.events[i].lost != 0;
  }
  ok(gaps == 0 && lost == 0, "the control node missed none of %d", pool_ear.count);
}

static void overflow(void) {
  struct store store;
  hear(&pool_ear);
  const uint64_t last = pool_ear.events[pool_ear.count - 1].sequence;
  const int other_before = dev_ear.count;
  ok(!store_open(&store) && !store_join(&store, 0, 600000), "a member");
  for (int i = 0; i < 50; i++) {
    revoke_member(store.join.ret_incarnation);
    store_join(&store, 0, 600000);
  }
  struct ear late = {.fd = pool_ear.fd};
  hear(&late);
  ok(late.count == 64, "who is late gets the last 64: %d", late.count);
  ok(late.events[0].lost >= 36 && late.events[0].sequence == last + late.events[0].lost + 1,
     "and how many went before: %u", late.events[0].lost);
  ok(late.events[1].lost == 0 && late.events[63].sequence == late.events[0].sequence + 63,
     "once, and the rest without a gap");
  hear(&dev_ear);
  ok(dev_ear.count == other_before || dev_ear.events[other_before].lost == 0,
     "others' events take nothing away from a partition's node");
  revoke_member(store.join.ret_incarnation);
  fails(syscall(SYS_read, pool_ear.fd, 8ul, 64ul), EFAULT, "read to nowhere");
  struct kvpool_event_record event = {0};
  ok(read(pool_ear.fd, &event, sizeof event) == sizeof event && event.lost == 1,
     "loses that event, and says so");
  store_close(&store);
}

static void *wait_for_one(void *arg) {
  struct kvpool_event_record event = {0};
  const int fd = *(int *)arg;
  return read(fd, &event, sizeof event) == sizeof event ? (void *)(uintptr_t)event.kind : NULL;
}

static void waiting(void) {
  struct store store;
  pthread_t thread;
  void *kind = NULL;
  ok(!store_open(&store) && !store_join(&store, 0, 600000), "a member");
  int fd = node("pay", O_RDONLY);
  pthread_create(&thread, NULL, wait_for_one, &fd);
  hear(&pool_ear);
  struct pollfd poll_of = {.fd = pool_ear.fd, .events = POLLIN};
  pause_ms(100);
  revoke_member(store.join.ret_incarnation);
  ok(poll(&poll_of, 1, 5000) == 1 && poll_of.revents == POLLIN, "poll wakes");
  pthread_join(thread, &kind);
  ok((uintptr_t)kind == KVPOOL_EVENT_MEMBER_REVOKED, "and so does read");
  close(fd);
  store_close(&store);
}

static void the_end_of_a_partition(void) {
  ok(create("brief", UNIT, KVPOOL_TYPE_WC) == 0, "a partition");
  struct ear ear = {.fd = node("brief", O_RDONLY | O_NONBLOCK)};
  const uint32_t id = slice_offset(ear.fd, 0) >> KVPOOL_MAP_ID_SHIFT;
  ok(destroy("brief", 0) == 0, "is destroyed");
  ok(heard(&ear, 0, KVPOOL_EVENT_SLICE_DRAINS, id, 0) >= 0 &&
         heard(&ear, 0, KVPOOL_EVENT_SLICE_FREE, id, 0) >= 0,
     "its node tells so");
  struct pollfd poll_of = {.fd = ear.fd, .events = POLLIN};
  struct kvpool_event_record event;
  ok(poll(&poll_of, 1, 5000) == 1 && poll_of.revents == POLLHUP, "and hangs up: %#x",
     poll_of.revents);
  ok(read(ear.fd, &event, sizeof event) == 0, "nothing more is to be read");
  close(ear.fd);
}

// The pool is given up and claimed as another host, which takes the administration over.
static void of_administration(void) {
  bool released = false;
  for (int i = 0; i < 100 && !released; i++, pause_ms(50)) released = release_pool() == 0;
  ok(released && claim_pool(0, 2) == 0, "claimed as another host");
  const int from = pool_ear.count;
  ok(take_admin() == 0, "which takes over");
  const int over = heard(&pool_ear, from, KVPOOL_EVENT_ADMINISTRATOR, 0, info().admin_epoch);
  ok(over >= 0 && pool_ear.events[over].host == 2, "heard, with who it is");
  ok(release_pool() == 0 && claim_pool(0, 1) == 0 && take_admin() == 0, "and back");
}

static void listen(void) {
  refusals();
  of_members();
  of_slices();
  of_others();
  overflow();
  waiting();
  the_end_of_a_partition();
}

void test_events(void) {
  uint64_t *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  open_ears();
  in_process("listen", listen);
  close_ears();
  open_ears();
  ok(in_child(join_and_go, gone) == 0, "a member comes and goes");
  ok(heard(&pool_ear, 0, KVPOOL_EVENT_MEMBER_QUIET, 0, *gone) >= 0,
     "and is quiet when its process is gone");
  close(pay_ear.fd);
  close(dev_ear.fd);
  of_administration();
  close(pool_ear.fd);
}
