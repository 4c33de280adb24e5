// SPDX-License-Identifier: Apache-2.0
// Shows: a partition grows and shrinks under its members: new slices are zero and mapped by who
// joined before, a slice that goes is taken from all, and given on only when nobody can reach it.
// How: members in this process and in children, with and without the slice mapped; the medium.
#define _GNU_SOURCE
#include "guest.h"

#include <pthread.h>
#include <signal.h>

static int quiet(uint64_t incarnation, uint32_t slice) {
  struct kvpool_slice_quiet args = {.flags = KVPOOL_SLICE_QUIET_F_CONFIRMED, .slice = slice};
  args.incarnation = incarnation;
  return ioctl(control, KVPOOL_SLICE_QUIET, &args);
}

// The slice as listed; id 0: in no list any more.
static struct kvpool_item_slice slice(uint32_t id) {
  struct kvpool_item_slice items[32], none = {0};
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof items[0], .count = 32};
  list.items = (uintptr_t)items;
  if (ioctl(control, KVPOOL_LIST, &list)) return none;
  for (uint32_t i = 0; i < list.ret_count && i < 32; i++) {
    if (items[i].id == id) return items[i];
  }
  return none;
}

static bool slice_goes(uint32_t id) {
  for (int i = 0; i < 100 && slice(id).id; i++) pause_ms(50);
  return !slice(id).id;
}

// The host attaches what the partition grew by at its next look at the table.
static uint8_t *map_slice(int fd, uint32_t id) {
  const uint64_t offset = (uint64_t)id << KVPOOL_MAP_ID_SHIFT;
  uint8_t *at = MAP_FAILED;
  for (int i = 0; i < 100; i++) {
    at = mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    if (at != MAP_FAILED || errno != EAGAIN) break;
    pause_ms(20);
  }
  return at;
}

static void refusals(void) {
  const uint64_t free_before = info().free_units;
  const uint32_t first = slice_offset(node("ctl", O_RDWR), 0) >> KVPOOL_MAP_ID_SHIFT;
  const uint32_t none = 4000000;
  fails(grow("nothing", UNIT), ENOENT, "growing what is not there");
  ok(grown.ret_reason == KVPOOL_CHANGE_NO_PARTITION, "and why: %u", grown.ret_reason);
  fails(grow("pay", 4096), EINVAL, "growing by part of a unit");
  ok(grown.ret_reason == KVPOOL_CHANGE_BAD_BYTES, "and why: %u", grown.ret_reason);
  fails(grow("pay", 100 * UNIT), ENOSPC, "growing beyond the pool");
  ok(grown.ret_reason == KVPOOL_CHANGE_NO_ROOM, "and why: %u", grown.ret_reason);
  fails(shrink("nothing", &first, 1, 0, 0), ENOENT, "shrinking what is not there");
  ok(shrunk.ret_reason == KVPOOL_CHANGE_NO_PARTITION, "and why: %u", shrunk.ret_reason);
  fails(shrink("pay", &none, 1, 0, 0), ENOENT, "a slice that there is not");
  ok(shrunk.ret_reason == KVPOOL_CHANGE_NO_SLICE, "and why: %u", shrunk.ret_reason);
  fails(shrink("pay", &first, 1, 0, 0), ENOENT, "another partition's slice");
  fails(shrink("ctl", &first, 1, 0, 0), EBUSY, "the slice of the drivers' lines");
  ok(shrunk.ret_reason == KVPOOL_CHANGE_FIRST_SLICE, "and why: %u", shrunk.ret_reason);
  fails(shrink("pay", NULL, 0, 4 * UNIT, 0), EBUSY, "all of a partition");
  ok(shrunk.ret_reason == KVPOOL_CHANGE_NOTHING_LEFT, "and why: %u", shrunk.ret_reason);
  fails(shrink("pay", NULL, 0, UNIT, 0), EINVAL, "part of a slice");
  ok(shrunk.ret_reason == KVPOOL_CHANGE_NOT_WHOLE && shrunk.ret_bytes == 2 * UNIT,
     "and what would be whole: %llu", (unsigned long long)shrunk.ret_bytes);
  fails(shrink("pay", (const uint32_t *)8, 1, 0, 0), EFAULT, "a list that is nowhere");
  ok(info().free_units == free_before && partition("pay").bytes == 4 * UNIT,
     "nothing has changed after refusals");
}

static int *step; /* of a child: 1 it has mapped; 2 it may go */

struct other {
  uint32_t slice; /* 0: it maps the old ones alone */
  uint64_t flags;
};

// A member of its own. With a slice: stores there until told to go; the pool must not see it after.
static int other_member(void *arg) {
  const struct other *other = arg;
  struct store store;
  if (store_open(&store) || store_join(&store, other->flags, 600000) || store_map(&store)) return 1;
  uint8_t *at = other->slice ? map_slice(store.pay, other->slice) : store.data;
  if (at == MAP_FAILED || touch_write(at + 64, 0x77)) return 2;
  __atomic_store_n(&step[0], 1, __ATOMIC_RELEASE);
  int said = 0;
  while (__atomic_load_n(&step[0], __ATOMIC_ACQUIRE) != 2) {
    // Looked at after the store: what was stored before the loss was said went to the pool.
    const int fault = touch_write(at + 128, 0x99);
    const bool lost = __atomic_load_n(&store.state->lost, __ATOMIC_ACQUIRE) != 0;
    if (fault && !lost) return 3;
    if (lost) said = 1;
    if (lost && other->slice && !(other->flags & KVPOOL_JOIN_F_ZERO_PAGE)) {
      if (touch_write(at, 1) != SIGBUS || fault_code != BUS_ADRERR) return 4;
    }
    if (lost && (other->flags & KVPOOL_JOIN_F_ZERO_PAGE)) {
      if (touch_write(at + 192, 0x5a)) return 5;
    }
    pause_ms(1);
  }
  if (store.state->revoked) return 6;
  return said && renew(store.ctl) == 0 && !touch_write(store.data + LEAF, 2) ? 0 : 7;
}

static pid_t start_other(const struct other *other) {
  __atomic_store_n(&step[0], 0, __ATOMIC_RELAXED);
  fflush(stdout);
  const pid_t child = fork();
  if (!child) _exit(other_member((void *)other));
  for (int i = 0; i < 500 && __atomic_load_n(&step[0], __ATOMIC_ACQUIRE) != 1; i++) pause_ms(10);
  return child;
}

static int end_other(pid_t child) {
  int status = 0;
  __atomic_store_n(&step[0], 2, __ATOMIC_RELEASE);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static uint64_t all_words(const uint8_t *at) {
  uint64_t word = 0;
  for (uint64_t i = 0; i < UNIT; i += 64) word |= word_at(at + i);
  return word;
}

// New slices under a member, and one of them taken away again while it holds a mapping.
static void under_a_member(void) {
  struct store store;
  const uint64_t free_before = info().free_units;
  ok(!store_open(&store) && !store_join(&store, 0, 600000) && !store_map(&store), "a member");
  ok(!touch_write(store.data, 0x11), "with something in the pool");
  const int result = grow("pay", 2 * UNIT);
  ok(result == 0 && grown.ret_slice_count == 2 && grown.ret_first_slice,
     "grown by two units: %u slices from %u", grown.ret_slice_count, grown.ret_first_slice);
  const uint32_t ids[2] = {grown.ret_first_slice, grown.ret_first_slice + 1};
  ok(partition("pay").bytes == 6 * UNIT && partition("pay").slice_count == 4 &&
         info().free_units == free_before - 2,
     "it is listed so");
  uint8_t *one = map_slice(store.pay, ids[0]), *two = map_slice(store.pay, ids[1]);
  ok(one != MAP_FAILED && two != MAP_FAILED, "who joined before maps the new slices");
  ok(all_words(one) == 0, "they are zero");
  ok(!touch_write(one + LEAF, 0x22) && !touch_write(two, 0x33) &&
         ask(store.pay, one + LEAF).ret_type == KVPOOL_TYPE_WC,
     "and written, with the partition's type");
  struct other plain = {0, 0};
  const pid_t child = start_other(&plain);
  ok(step[0] == 1, "another process maps the old ones alone");

  fails(quiet(store.join.ret_incarnation, ids[0]), EBUSY, "QUIET of a slice that stays");
  ok(shrink("pay", &ids[0], 1, 0, 0) == 0 && shrunk.ret_bytes == UNIT, "one is to go");
  ok(store.state->lost == 1 && !store.state->revoked, "STATE says that one is lost, and no more");
  ok(touch_write(one + LEAF, 1) == SIGBUS && fault_code == BUS_ADRERR &&
         fault_address == one + LEAF,
     "it gives SIGBUS with the address");
  uint64_t word = 0;
  ok(!touch_read(store.data, &word) && word == 0x11 && !touch_read(two, &word) && word == 0x33 &&
         renew(store.ctl) == 0,
     "everything else is as it was");
  fails((long)mmap(NULL, UNIT, PROT_READ, MAP_SHARED, store.pay, (uint64_t)ids[0] << 40), ESTALE,
        "nobody maps it any more");
  const struct kvpool_item_slice at = slice(ids[0]);
  pause_ms(500);
  ok(slice(ids[0]).state == KVPOOL_SLICE_DRAINING && slice(ids[0]).held_hosts == 1u << 1,
     "it is held while who mapped it lives: %#llx", (unsigned long long)slice(ids[0]).held_hosts);
  ok(partition("pay").state == KVPOOL_PARTITION_ACTIVE && partition("pay").bytes == 5 * UNIT &&
         partition("pay").slice_count == 3,
     "the partition stays, smaller");
  fails(quiet(store.join.ret_incarnation ^ 2, ids[0]), ESRCH, "QUIET of a stranger");
  fails(quiet(store.join.ret_incarnation, 4000000), ENOENT, "QUIET of no slice");
  ok(quiet(store.join.ret_incarnation, ids[0]) == 0, "the host says that its devices are out");
  ok(slice_goes(ids[0]), "then it goes, while both processes live");
  ok(info().free_units == free_before - 1, "and its unit is free");
  ok(touch_write(one + LEAF, 1) == SIGBUS, "the old mapping reaches nothing");
  ok(end_other(child) == 0, "who did not map it has lost nothing else");

  // The unit again, from the medium: nothing of what was there.
  ok(grow("pay", UNIT) == 0, "grown again");
  ok(slice(grown.ret_first_slice).device_offset == at.device_offset &&
         slice(grown.ret_first_slice).device == at.device && grown.ret_first_slice > ids[1],
     "on the same unit, with another id");
  uint8_t *again = map_slice(store.pay, grown.ret_first_slice);
  ok(again != MAP_FAILED && all_words(again) == 0, "which is zero");
  munmap(again, UNIT);
  munmap(one, UNIT);
  munmap(two, UNIT);
  const uint32_t both[2] = {ids[1], grown.ret_first_slice};
  ok(shrink("pay", both, 2, 0, 0) == 0, "both are to go");
  ok(store.state->lost == 3, "and lost: %llu", (unsigned long long)store.state->lost);
  pause_ms(300);
  ok(slice(ids[1]).id && slice(both[1]).id, "unmapped is not out: a device may know the address");
  store_close(&store);
}

// A private page where it was asked for, said before it is served; nothing of it in the pool.
static void with_a_zero_page(void) {
  ok(slice(0).id == 0 && partition("pay").bytes == 4 * UNIT, "four units, as before");
  ok(grow("pay", UNIT) == 0, "grown by a unit");
  struct other zero = {grown.ret_first_slice, KVPOOL_JOIN_F_ZERO_PAGE};
  const pid_t child = start_other(&zero);
  ok(step[0] == 1, "a member with a zero page stores in it");
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 600000), "and a witness");
  uint8_t *seen = map_slice(store.pay, zero.slice);
  uint64_t word = 0;
  ok(seen != MAP_FAILED && !touch_read(seen + 64, &word) && word == 0x77, "sees its stores");
  ok(shrink("pay", NULL, 0, UNIT, 0) == 0, "the newest unit is to go");
  pause_ms(200);
  ok(touch_read(seen, NULL) == SIGBUS, "the witness asked for none");
  const int result = end_other(child);
  ok(result == 0, "the member went on: %d", result);
  munmap(seen, UNIT);
  store_close(&store);
}

static void by_force(void) {
  ok(grow("pay", 2 * UNIT) == 0, "grown by two units");
  const uint32_t ids[2] = {grown.ret_first_slice, grown.ret_first_slice + 1};
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 600000) && !store_map(&store), "a member");
  ok(!touch_write(store.data, 5), "that does not map the new ones");
  ok(shrink("pay", &ids[1], 1, 0, 0) == 0 && slice_goes(ids[1]),
     "a slice that nobody mapped goes at once");
  struct other other = {ids[0], 0};
  const pid_t child = start_other(&other);
  ok(step[0] == 1, "another process maps the other one");
  ok(shrink("pay", &ids[0], 1, 0, 0) == 0, "it is to go");
  pause_ms(500);
  ok(slice(ids[0]).held_hosts == 1u << 1, "and is held");
  ok(shrink("pay", &ids[0], 1, 0, KVPOOL_SHRINK_F_FORCE) == 0, "by force");
  const int result = end_other(child);
  ok(result == 1000 + SIGKILL, "who mapped it is killed: %d", result);
  ok(slice_goes(ids[0]), "and it goes");
  uint64_t word = 0;
  ok(!store.state->revoked && !touch_read(store.data, &word) && word == 5,
     "who did not has kept everything");
  store_close(&store);
}

// Faults, growth and shrinking at once: what is served is the pool, or nothing.
static int stop;
static uint8_t *place; /* where to write; NULL: it faulted */
static void *write_there(void *arg) {
  long *faults = arg;
  for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++) {
    uint8_t *at = __atomic_load_n(&place, __ATOMIC_ACQUIRE);
    if (at && touch_write(at + (i * 4096 + 8) % UNIT, i)) {
      ++*faults;
      __atomic_store_n(&place, NULL, __ATOMIC_RELEASE);
    }
  }
  return NULL;
}

static void under_load(void) {
  struct store store;
  pthread_t thread;
  long faults = 0;
  int bad = 0, rounds = 0;
  ok(!store_open(&store) && !store_join(&store, 0, 600000) && !store_map(&store), "a member");
  pthread_create(&thread, NULL, write_there, &faults);
  for (; rounds < 6; rounds++) {
    if (grow("pay", UNIT)) bad |= 1;
    const uint32_t id = grown.ret_first_slice;
    uint8_t *at = map_slice(store.pay, id);
    if (at == MAP_FAILED) bad |= 2;
    __atomic_store_n(&place, at, __ATOMIC_RELEASE);
    pause_ms(50);
    if (shrink("pay", &id, 1, 0, 0)) bad |= 4;
    for (int i = 0; i < 200 && __atomic_load_n(&place, __ATOMIC_ACQUIRE); i++) pause_ms(5);
    if (__atomic_load_n(&place, __ATOMIC_ACQUIRE)) bad |= 8;
    if (quiet(store.join.ret_incarnation, id) || !slice_goes(id)) bad |= 16;
    munmap(at, UNIT);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  ok(!bad && faults == rounds && store.state->lost == (uint64_t)rounds,
     "grown and shrunk %d times under stores: %d, %ld faults", rounds, bad, faults);
  store_close(&store);
}

static void wait_shrunk(void) {
  for (int i = 0; i < 100 && partition("pay").reachers; i++) pause_ms(50);
  for (int i = 0; i < 100 && info().free_units != 4; i++) pause_ms(50);
  ok(info().free_units == 4, "every unit is back when its process is gone: %llu",
     (unsigned long long)info().free_units);
}

void test_resize(void) {
  step = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  in_process("refusals", refusals);
  in_process("under_a_member", under_a_member);
  wait_shrunk();
  in_process("with_a_zero_page", with_a_zero_page);
  wait_shrunk();
  in_process("by_force", by_force);
  wait_shrunk();
  in_process("under_load", under_load);
  wait_shrunk();
}
