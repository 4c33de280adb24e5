// SPDX-License-Identifier: Apache-2.0
// Shows: a member loses its mappings with its lease, by revocation and by death, and nobody else
// does; forks and passed descriptors get nothing; what can still reach holds up a hand-over.
// How: members in this process and in children that are stopped, killed, forked and left unreaped.
#define _GNU_SOURCE
#include "guest.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

static void lease(void) {
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 300) && !store_map(&store), "JOIN, 300 ms");
  ok(!touch_write(store.data, 1), "mapped");
  int i = 0;
  for (; i < 6; i++) {
    pause_ms(100);
    if (renew(store.ctl)) break;
  }
  ok(i == 6 && !touch_write(store.data, 2), "renewed past its length");
  pause_ms(700);
  ok(store.state->revoked == 1, "without renewal: revoked");
  fails(renew(store.ctl), ESTALE, "RENEW is too late for good");
  ok(touch_write(store.data, 3) == SIGBUS && fault_code == BUS_ADRERR &&
         fault_address == store.data,
     "and the mapping gives SIGBUS with the address");
  ok(store.state->cpu_fenced == store.join.ret_incarnation, "fenced, says STATE");
  const uint64_t former = store.join.ret_incarnation;
  ok(!store_join(&store, 0, 60000) && store.join.ret_incarnation != former && !store.state->revoked,
     "JOIN again: another incarnation");
  uint64_t word = 0;
  ok(!touch_read(store.data, &word) && word == 2,
     "the old addresses reach the pool again, unharmed");
  fails(ioctl(store.ctl, KVPOOL_QUIET, &(struct kvpool_quiet){.incarnation = 7}), ESRCH,
        "QUIET of a stranger");
  ok(ioctl(store.ctl, KVPOOL_QUIET, &(struct kvpool_quiet){.incarnation = former}) == 0,
     "QUIET of the former incarnation");
  uint8_t *lines = mmap(NULL, LEAF, PROT_READ, MAP_SHARED, store.ctl, slice_offset(store.ctl, 0));
  const struct kvpool_reaper_line *line =
      (const void *)(lines + store.join.ret_host * 4096 + store.join.ret_slot * 64);
  ok(line->incarnation == store.join.ret_incarnation && line->state == KVPOOL_REAPER_LIVE &&
         line->former_incarnation == former && line->former_state == KVPOOL_REAPER_QUIET,
     "the slot's line says so");
  munmap(lines, LEAF);
  store_close(&store);
}

static uint64_t boot_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// Whoever comes first past the deadline, fault or scan: STATE says so before a zero page is served.
static void late_faults(void) {
  struct store store;
  int unsaid = 0, early = 0;
  ok(!store_open(&store) && !store_join(&store, KVPOOL_JOIN_F_ZERO_PAGE, 150) && !store_map(&store),
     "JOIN, 150 ms, with a zero page");
  for (int i = 0; i < 20; i++) {
    if (touch_write(store.data, 1)) break;
    while (boot_ns() < store.state->deadline_ns + 1000000) {
    }
    if (touch_read(store.data + (uint64_t)(i + 3) * LEAF, NULL)) break;
    unsaid += __atomic_load_n(&store.state->revoked, __ATOMIC_ACQUIRE) == 0;
    early += renew(store.ctl) == 0;
    if (store_join(&store, KVPOOL_JOIN_F_ZERO_PAGE, 150)) unsaid += 100;
  }
  ok(unsaid == 0 && early == 0, "faults past the deadline: %d not said, %d renewed after", unsaid,
     early);
  store_close(&store);
}

static int stop_writing;
static uint64_t written;
static void *write_on(void *arg) {
  for (uint64_t i = 1; !__atomic_load_n(&stop_writing, __ATOMIC_RELAXED); i++) {
    __atomic_store_n((uint64_t *)arg, i, __ATOMIC_RELAXED);
    __atomic_store_n(&written, i, __ATOMIC_RELEASE);
  }
  return NULL;
}

static void wait_written(uint64_t more) {
  const uint64_t from = __atomic_load_n(&written, __ATOMIC_ACQUIRE);
  while (__atomic_load_n(&written, __ATOMIC_ACQUIRE) < from + more) sched_yield();
}

// A thread writes on through a revoke: into a page of its own, and into the pool again after JOIN.
static void zero_page(void) {
  struct store store, witness;
  pthread_t thread;
  ok(!store_open(&store) && !store_join(&store, KVPOOL_JOIN_F_ZERO_PAGE, 600000) &&
         !store_map(&store),
     "JOIN with a zero page");
  ok(!store_open(&witness) && !store_join(&witness, 0, 600000) && !store_map(&witness),
     "and a witness");
  ok(!touch_write(witness.data, 1), "which maps");
  stop_writing = 0;
  pthread_create(&thread, NULL, write_on, store.data);
  wait_written(1000);
  ok(revoke_member(store.join.ret_incarnation) == 0, "revoked while it writes");
  ok(store.state->revoked == 1 && store.state->cpu_fenced == store.join.ret_incarnation,
     "says STATE");
  wait_written(1000);
  const uint64_t first = word_at(witness.data);
  wait_written(1000);
  ok(word_at(witness.data) == first, "the writer goes on and the pool stands still");
  ok(word_at(store.data + LEAF + 64) == 0, "what it reads is its own page");
  ok(ask(store.pay, store.data).ret_type == ~0u, "MAPPING does not take that for the pool");
  ok(!store_join(&store, KVPOOL_JOIN_F_ZERO_PAGE, 600000), "JOIN again under way");
  wait_written(1000);
  ok(word_at(witness.data) != first, "and the writer reaches the pool again");
  ok(ask(store.pay, store.data).ret_leaf_bytes == (huge_leaves() ? LEAF : 4096),
     "with leaves as large as before");
  ok(!witness.state->revoked && ask(witness.pay, witness.data).ret_type == KVPOOL_TYPE_WC,
     "the witness kept its leaf all the time");
  __atomic_store_n(&stop_writing, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  store_close(&store);
  store_close(&witness);
}

static int as_child(void *arg) {
  struct store *store = arg;
  int bad = 0;
  if (touch_write(store->data, 9) != SIGSEGV) bad |= 1;
  if (renew(store->ctl) != -1 || errno != EPERM) bad |= 2;
  if (mmap(NULL, LEAF, PROT_READ, MAP_SHARED, store->pay, slice_offset(store->pay, 0)) !=
          MAP_FAILED ||
      errno != EPERM)
    bad |= 4;
  if (store_join(store, 0, 1000) != -1 || errno != EPERM) bad |= 8;
  if (store->state->incarnation == 0) bad |= 16;
  return bad;
}

static void forks(void) {
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 600000) && !store_map(&store),
     "a member that forks");
  ok(!touch_write(store.data, 1), "mapped");
  pause_ms(1500); /* members of before are gone */
  const uint32_t before = partition("pay").reachers;
  const pid_t child = fork();
  if (!child) {
    pause_ms(1000);
    _exit(0);
  }
  pause_ms(100);
  ok(partition("pay").reachers == before + 1, "a forked child is a reacher");
  waitpid(child, NULL, 0);
  pause_ms(1500);
  const uint32_t after = partition("pay").reachers;
  ok(after == before, "and none a second after its end: %u and %u", before, after);
  const int bad = in_child(as_child, &store);
  ok(bad == 0, "it has no mapping, no call, no mmap and no JOIN: %d", bad);
  store_close(&store);
}

static int send_fds(int over, const int *fds, int count) {
  char room[CMSG_SPACE(4 * sizeof(int))] = {0}, byte = 1;
  struct iovec data = {&byte, 1};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = room,
                           .msg_controllen = CMSG_SPACE(count * sizeof(int))};
  struct cmsghdr *part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(count * sizeof(int));
  memcpy(CMSG_DATA(part), fds, count * sizeof(int));
  return sendmsg(over, &message, 0) == 1 ? 0 : -1;
}

static int receive_and_join(void *arg) {
  const int over = *(int *)arg;
  char room[CMSG_SPACE(4 * sizeof(int))], byte;
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct store store = {0};
  int fds[2];
  if (recvmsg(over, &message, 0) != 1) return 1;
  memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  store.ctl = fds[0];
  store.pay = fds[1];
  if (store_join(&store, 0, 600000)) return 2;
  return store_map(&store) || touch_write(store.data, 4) ? 3 : 0;
}

static void passing(void) {
  struct store store;
  int pair[2];
  ok(!store_open(&store) && !socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), "descriptors to pass on");
  const int fds[2] = {store.ctl, store.pay};
  ok(send_fds(pair[0], fds, 2) == 0, "passed before JOIN");
  ok(in_child(receive_and_join, &pair[1]) == 0, "the receiver joins and maps");
  fails(store_join(&store, 0, 1000), EPERM, "the sender cannot join by them any more");
  fails((long)mmap(NULL, LEAF, PROT_READ, MAP_SHARED, store.pay, slice_offset(store.pay, 0)), EPERM,
        "nor map");
  close(pair[0]);
  close(pair[1]);
  store_close(&store);
}

// What a process with the member's memory and another thread group still can do after its death.
static struct store shared_store;
static int *report; /* rounds, last signal, errno of RENEW, done */
static int outlive(void *arg) {
  (void)arg;
  for (int i = 0; i < 60 && !report[1]; i++) {
    report[1] = touch_write(shared_store.data, (uint64_t)i + 2);
    report[2] = renew(shared_store.ctl) ? errno : 0;
    report[0] = i + 1;
    pause_ms(100);
  }
  report[3] = 1;
  pause_ms(1500);
  _exit(0);
}

static int member_with_a_twin(void *arg) {
  (void)arg;
  if (store_join(&shared_store, 0, 1500) || store_map(&shared_store)) return 1;
  if (touch_write(shared_store.data, 1)) return 2;
  char *stack = malloc(65536);
  if (clone(outlive, stack + 65536 - 64, CLONE_VM | SIGCHLD, NULL) < 0) return 3;
  pause_ms(300);
  raise(SIGKILL);
  return 4;
}

static void twins(void) {
  report = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ok(store_open(&shared_store) == 0, "nodes for a process with a twin");
  const int result = in_child(member_with_a_twin, NULL);
  ok(result == 255, "the member is killed: %d", result);
  const int at = report[0];
  close(shared_store.ctl);
  close(shared_store.pay);
  pause_ms(500);
  ok(report[0] > at && report[1] == 0, "its twin with the same memory goes on");
  ok(report[2] == EPERM, "but cannot renew");
  for (int i = 0; i < 50 && !report[3]; i++) pause_ms(100);
  ok(report[1] == SIGBUS, "and is cut off with the lease: %d", report[1]);
  ok(partition("pay").members >= 1, "it is a reacher as long as it lives");
  pause_ms(3500);
  ok(partition("pay").members == 0, "and then none");
}

static int join_and_exec(void *arg) {
  struct store store;
  (void)arg;
  if (store_open(&store) || store_join(&store, 0, 600000) || store_map(&store)) return 1;
  if (touch_write(store.data, 1)) return 2;
  execl("/bin/busybox", "sleep", "2", (char *)NULL);
  return 3;
}

static void execs(void) {
  fflush(stdout);
  const pid_t child = fork();
  if (!child) _exit(join_and_exec(NULL));
  pause_ms(1000);
  struct kvpool_item_partition pay = partition("pay");
  ok(pay.members == 1 && pay.descriptors == 0, "who execs has lost memory and descriptors");
  ok(pay.reachers == 1, "and is still the process that mapped");
  int status = 1;
  waitpid(child, &status, 0);
  ok(status == 0, "it ends: %d", status);
  pause_ms(1800);
  ok(partition("pay").members == 0, "and with it the member");
}

static int ticks;
static void on_tick(int number) {
  (void)number;
  ticks++;
}

// JOIN takes every lock of the mm and gives up at a signal: then nothing has happened.
static void interrupted(void) {
  struct sigaction action = {.sa_handler = on_tick};
  struct itimerval timer = {{0, 2000}, {0, 2000}}, none = {{0, 0}, {0, 0}};
  int joined = 0, interrupted_count = 0, other = 0;
  sigaction(SIGALRM, &action, NULL);
  char *maps = mmap(NULL, 4000 * 4096, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; i < 4000; i += 2) mprotect(maps + i * 4096, 4096, PROT_READ);
  for (int i = 0; i < 20; i++) {
    struct store store;
    if (store_open(&store)) {
      other++;
      continue;
    }
    setitimer(ITIMER_REAL, &timer, NULL);
    const int result = store_join(&store, 0, 600000);
    const int error = errno;
    setitimer(ITIMER_REAL, &none, NULL);
    if (!result) {
      joined++;
    } else if (error == EINTR) {
      interrupted_count++;
      if (store_join(&store, 0, 600000)) other++;
    } else {
      other++;
    }
    close(store.ctl);
    close(store.pay);
  }
  munmap(maps, 4000 * 4096);
  ok(other == 0, "JOIN under a timer: %d joined, %d interrupted and joined after", joined,
     interrupted_count);
}

static int *ready;
static int write_for_ever(void *arg) {
  struct store *store = arg;
  if (store_join(store, 0, 600000) || store_map(store)) return 1;
  __atomic_store_n(ready, 1, __ATOMIC_RELEASE);
  for (uint64_t i = 0;; i++) __atomic_store_n((uint64_t *)store->data, i, __ATOMIC_RELAXED);
}

static pid_t start_writer(struct store *store) {
  __atomic_store_n(ready, 0, __ATOMIC_RELAXED);
  fflush(stdout);
  const pid_t child = fork();
  if (!child) _exit(write_for_ever(store));
  while (!__atomic_load_n(ready, __ATOMIC_ACQUIRE)) sched_yield();
  return child;
}

static void killed(void) {
  struct store store;
  ok(!store_open(&store), "nodes for a child");
  const pid_t child = start_writer(&store);
  ok(partition("pay").members >= 1, "it joined");
  kill(child, SIGKILL);
  pause_ms(300);
  struct kvpool_item_partition pay = partition("pay");
  ok(pay.descriptors >= 1, "killed: its descriptors are still here, in the parent");
  pause_ms(1500);
  close(store.ctl);
  close(store.pay);
  pause_ms(500);
  ok(partition("pay").members == 0,
     "they are closed, the zombie is not reaped: the member is gone");
  waitpid(child, NULL, 0);
}

// The owner of the partition wants it back while a process does not react.
static void stopped(void) {
  struct store store;
  ok(!store_open(&store), "nodes for a child that will be stopped");
  const pid_t child = start_writer(&store);
  close(store.ctl);
  close(store.pay);
  kill(child, SIGSTOP);
  ok(destroy("pay", 0) == 0, "its payload partition is destroyed");
  pause_ms(1000);
  struct kvpool_item_partition pay = partition("pay");
  ok(pay.state == KVPOOL_PARTITION_DRAINING && pay.reachers >= 1,
     "held: the process may have given the addresses to a device");
  struct kvpool_item_slice slices[16];
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof slices[0], .count = 16};
  list.items = (uintptr_t)slices;
  ok(ioctl(control, KVPOOL_LIST, &list) == 0, "slices are listed");
  uint64_t held = 0;
  for (uint32_t i = 0; i < list.ret_count; i++) held |= slices[i].held_hosts;
  ok(held == 1u << 1, "with the host that holds them: %#llx", (unsigned long long)held);
  ok(node("pay", O_RDWR) == -1 && errno == ESTALE, "nobody opens it any more");
  fails(create("pay", UNIT, KVPOOL_TYPE_WC), EEXIST, "nor takes its name");
  ok(destroy("pay", KVPOOL_DESTROY_F_FORCE) == 0, "destroyed by force");
  ok(wait_gone("pay"), "then it is gone");
  int status = 0;
  waitpid(child, &status, 0);
  ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "and so is the process");
  ok(create("pay", 4 * UNIT, KVPOOL_TYPE_WC) == 0, "its units are another's");
}

// Faults, populates, revokes and joins at once: no fault that is not one of these, no stray write.
static int storm_stop;
static struct store storm_store;
static void *storm_writer(void *arg) {
  uint64_t seed = (uintptr_t)arg;
  while (!__atomic_load_n(&storm_stop, __ATOMIC_RELAXED)) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    __atomic_store_n((uint64_t *)(storm_store.data + (seed >> 20) % UNIT / 8 * 8), seed,
                     __ATOMIC_RELAXED);
  }
  return NULL;
}

static void *storm_populate(void *arg) {
  (void)arg;
  while (!__atomic_load_n(&storm_stop, __ATOMIC_RELAXED)) {
    struct kvpool_populate args = {.address = (uintptr_t)storm_store.data, .bytes = UNIT};
    ioctl(storm_store.pay, KVPOOL_POPULATE, &args);
  }
  return NULL;
}

static void storm(void) {
  pthread_t threads[3];
  int rounds = 0, failed = 0;
  ok(!store_open(&storm_store) && !store_join(&storm_store, KVPOOL_JOIN_F_ZERO_PAGE, 600000) &&
         !store_map(&storm_store),
     "a member for the storm");
  storm_stop = 0;
  pthread_create(&threads[0], NULL, storm_writer, (void *)1);
  pthread_create(&threads[1], NULL, storm_writer, (void *)77);
  pthread_create(&threads[2], NULL, storm_populate, NULL);
  for (const uint64_t end = now_ms() + 5000; now_ms() < end; rounds++) {
    failed += revoke_member(storm_store.join.ret_incarnation) != 0;
    failed += store_join(&storm_store, KVPOOL_JOIN_F_ZERO_PAGE, 600000) != 0;
  }
  __atomic_store_n(&storm_stop, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  ok(rounds > 10 && failed == 0, "revoked and joined %d times under load, %d failures", rounds,
     failed);
  ok(!touch_write(storm_store.data, 1) &&
         ask(storm_store.pay, storm_store.data).ret_type == KVPOOL_TYPE_WC,
     "and the mapping is the pool's");
  store_close(&storm_store);
}

void test_members(void) {
  ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  in_process("lease", lease);
  in_process("late_faults", late_faults);
  in_process("zero_page", zero_page);
  in_process("forks", forks);
  passing();
  twins();
  execs();
  in_process("interrupted", interrupted);
  killed();
  stopped();
  in_process("storm", storm);
}

// A process that mapped may have given the addresses to a device, whatever it closed since.
static void lingering(void) {
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 60000) && !store_map(&store), "a last member");
  store_close(&store);
  pause_ms(1500);
  ok(partition("pay").reachers == 1, "it closed everything and is still a reacher");
  fails(release_pool(), EBUSY, "no release while it lives");
  close_control();
  ok(unload_driver() == EAGAIN, "nor unloading");
}

static bool wait_released(void) {
  for (int i = 0; i < 100; i++) {
    if (!release_pool()) return true;
    pause_ms(100);
  }
  return false;
}

void test_unload(void) {
  in_process("lingering", lingering);
  ok(wait_released(), "released when it is gone");
  ok(access("/dev/kvpool-ctl", F_OK) == -1, "no partition's node is left");
  ok(unload_driver() == EAGAIN, "no unloading while the control node is open");
  close_control();
  ok(unload_driver() == 0, "unloaded");
  ok(load_driver("heartbeat_ms=100") == 0, "loaded again");
  open_control();
  ok(claim_pool(0, 0) == 0 && partition("ctl").id && partition("pay").id,
     "another host finds the partitions");
  ok(claim_pool(0, 0) == -1 && errno == EEXIST, "a second claim is refused");
  close_control();
  ok(unload_driver() == 0, "unloading gives the claim up");
}
