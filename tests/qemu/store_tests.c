// SPDX-License-Identifier: Apache-2.0
// Shows: a store lives on partitions of the driver as it does in files, and what the driver takes
// away is never taken for the store. How: the command line tool as it is shipped, its processes
// beside each other, and what they say.
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

static char said[64 << 10]; /* stdout and stderr of the last command */

static pid_t begin(const char *line, int *ret_from) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return -1;
  fflush(stdout);
  const pid_t child = fork();
  if (!child) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execl("/bin/busybox", "sh", "-c", line, NULL);
    _exit(127);
  }
  close(ends[1]);
  *ret_from = ends[0];
  return child;
}

static void collect(int from) {
  size_t length = strlen(said);
  ssize_t got;
  while (length + 1 < sizeof said &&
         (got = read(from, said + length, sizeof said - 1 - length)) > 0)
    length += got;
  said[length] = 0;
  close(from);
}

/* Runs a command; its exit code. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...) {
  char line[1024];
  int from = -1, status = 0;
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  said[0] = 0;
  const pid_t child = begin(line, &from);
  if (child < 0) return -1;
  collect(from);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect_at(int line, int got, int wanted, const char *words, const char *what) {
  const bool held = got == wanted && strstr(said, words);
  ok_at(held, line, "%s", what);
  if (held) return;
  printf("# exit code %d, wanted %d and '%s'\n", got, wanted, words);
  for (char *at = strtok(said, "\n"); at; at = strtok(NULL, "\n")) printf("# %s\n", at);
}
#define expect(got, wanted, words, what) expect_at(__LINE__, (got), (wanted), (words), (what))

/* As JSON, for whoever reads the log to compare with its schema. */
static void json(const char *words) {
  expect(run("kvpool %s --json", words), 0, "\"schema\"", words);
  printf("# json ");
  for (const char *at = said; *at; at++) putchar(*at == '\n' ? ' ' : *at);
  putchar('\n');
}

/* A process that serves, known to serve when this returns. */
static pid_t serve(const char *address) {
  char line[256], *start = said;
  int from = -1;
  snprintf(line, sizeof line, "exec kvpool serve %s --ready-fd 1 2>&1", address);
  const pid_t child = begin(line, &from);
  said[0] = 0;
  for (ssize_t got; child > 0 && !strstr(said, "ready\n") &&
                    (got = read(from, start, said + sizeof said - 1 - start)) > 0;) {
    start += got;
    *start = 0;
  }
  ok(strstr(said, "ready\n"), "serving %s%s", address, strstr(said, "ready\n") ? "" : said);
  return child; /* the pipe stays: it has nothing more to say, and must be able to */
}

static int end(pid_t child, int number) {
  int status = 0;
  kill(child, number);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void blocks(const char *address, int first, int last) {
  for (int i = first; i <= last; i++) {
    run("head -c %d /dev/urandom >/tmp/b%d", 100000 + i * 64, i);
    expect(run("kvpool put k%d /tmp/b%d --pool %s", i, i, address), 0, "", "a block is stored");
  }
}

static void same_blocks(const char *address, int last) {
  for (int i = 1; i <= last; i++) {
    /* The store pads to whole lines. */
    expect(run("kvpool get k%d /tmp/out --pool %s && head -c %d /tmp/out | cmp - /tmp/b%d", i,
               address, 100000 + i * 64, i),
           0, "", "and read by another process, byte for byte");
  }
}

static bool reachers_gone(const char *name) {
  for (int i = 0; i < 100; i++) {
    const struct kvpool_item_partition item = partition(name);
    if (item.id && !item.members && !item.reachers && !item.descriptors) return true;
    pause_ms(100);
  }
  return false;
}

static void life_of_a_store(void) {
  expect(run("kvpool info dev:none"), 1, "kvpool setup partition create", "no such partition");
  expect(run("kvpool info dev:wc"), 1, "write-combining", "a partition of the wrong type");
  expect(run("kvpool info dev:ctl"), 3, "kvpool format dev:ctl", "an empty partition is no store");
  expect(run("kvpool format dev:ctl+more --block-bytes 16KiB"), 0, "", "a store of two partitions");
  expect(run("kvpool info dev:ctl+more"), 0, "/dev/kvpool-more", "is one");
  expect(run("kvpool info dev:ctl"), 1, "name the store's devices", "half of it is none");
  const pid_t owner = serve("dev:ctl+more");
  blocks("dev:ctl+more", 1, 4);
  same_blocks("dev:ctl+more", 4);
  expect(run("kvpool get none /tmp/out --pool dev:ctl+more"), 3, "no such block",
         "what is not there");
  expect(run("kvpool check --payload dev:ctl+more"), 0, "", "every line and block verifies");
  expect(run("kvpool format dev:ctl+more --yes"), 1, "force",
         "a store in use is not formatted over");
  expect(run("kvpool grow dev:ctl+more --size 1GiB"), 1, "fixed", "a partition does not grow");

  const pid_t other = serve("dev:ctl+more");
  end(owner, SIGKILL);
  pause_ms(1500);
  blocks("dev:ctl+more", 5, 5);
  same_blocks("dev:ctl+more", 5);
  ok(end(other, SIGTERM) == 0, "who stood by took over, and ends when told to");
  ok(reachers_gone("ctl") && reachers_gone("more"), "nothing is left of any of them");
}

static bool revoke_process(pid_t process) {
  struct kvpool_item_member members[16];
  struct kvpool_list list = {.kind = KVPOOL_LIST_MEMBERS, .item_bytes = sizeof members[0]};
  list.items = (uintptr_t)members;
  list.count = sizeof members / sizeof members[0];
  bool revoked = false;
  ioctl(control, KVPOOL_LIST, &list);
  for (unsigned i = 0; i < list.ret_count && i < list.count; i++) {
    if (members[i].pid == (uint32_t)process) revoked = !revoke_member(members[i].incarnation);
  }
  return revoked;
}

static bool lives(pid_t child) { return waitpid(child, NULL, WNOHANG) == 0; }

/* Longer than its lease: it finds zeros where the pool was, and joins anew. */
static void stopped_too_long(void) {
  const pid_t owner = serve("dev:ctl+more");
  kill(owner, SIGSTOP);
  pause_ms(11000);
  kill(owner, SIGCONT);
  pause_ms(2000);
  ok(lives(owner), "an owner that slept through its lease goes on");
  blocks("dev:ctl+more", 6, 6);
  same_blocks("dev:ctl+more", 6);
  for (int i = 7; i <= 9; i++) {
    ok(revoke_process(owner), "an administrator revokes it");
    pause_ms(1500);
    ok(lives(owner), "it joins anew");
    blocks("dev:ctl+more", i, i);
    same_blocks("dev:ctl+more", i);
  }
  ok(end(owner, SIGTERM) == 0, "and ends when told to");
  expect(run("kvpool check --payload dev:ctl+more"), 0, "", "nothing was damaged");

}

enum { THREADS = 64, READERS = 3 };

static int by_number(const void *a, const void *b) {
  return *(const pid_t *)a < *(const pid_t *)b ? -1 : 1;
}

/* In the order in which they were started. */
static int threads_of(pid_t process, pid_t tids[THREADS]) {
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "/proc/%d/task", process);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder)) && count < THREADS;) {
    if (entry->d_name[0] != '.') tids[count++] = atoi(entry->d_name);
  }
  if (folder) closedir(folder);
  qsort(tids, count, sizeof tids[0], by_number);
  return count;
}

static void stop(const pid_t *tids, int count) {
  for (int i = 0; i < count; i++) {
    if (!ptrace(PTRACE_INTERRUPT, tids[i], NULL, NULL)) waitpid(tids[i], NULL, __WALL);
  }
}

static void let_run(const pid_t *tids, int count) {
  for (int i = 0; i < count; i++) ptrace(PTRACE_CONT, tids[i], NULL, NULL);
}

/*
 * Readers that are somewhere in a block when it is taken away, read on in the zeros, and are held
 * there while everybody else of the process may do what he likes, such as getting the memory back.
 */
static int revoke_under_readers(pid_t process) {
  pid_t tids[THREADS];
  int revoked = 0;
  const int count = threads_of(process, tids), others = count - READERS;
  const pid_t *readers = tids + others;
  for (int i = 0; i < count; i++) ptrace(PTRACE_SEIZE, tids[i], NULL, NULL);
  for (int round = 0; round < 25; round++) {
    pause_ms(150 + round % 7 * 3);
    stop(tids, count);
    revoked += revoke_process(process);
    let_run(readers, READERS);
    pause_ms(1 + round % 3);
    stop(readers, READERS);
    let_run(tids, others);
    pause_ms(400);
    let_run(readers, READERS);
  }
  stop(tids, count);
  for (int i = 0; i < count; i++) ptrace(PTRACE_DETACH, tids[i], NULL, NULL);
  return revoked;
}

/* Reads that prove nothing themselves, while the memory below them is taken away again and again.
 */
static void storm(void) {
  int from = -1, status = 0, revoked = 0;
  const pid_t child =
      begin("exec kvpool debug storm dev:ctl+more --seconds 30 --block-bytes 8MiB", &from);
  said[0] = 0;
  for (size_t length = 0; !strstr(said, "ready\n");) {
    const ssize_t got = read(from, said + length, sizeof said - 1 - length);
    if (got <= 0) break;
    length += got;
    said[length] = 0;
  }
  revoked = revoke_under_readers(child);
  collect(from);
  waitpid(child, &status, 0);
  const char *rejoins = strstr(said, "\"rejoins\":"), *hits = strstr(said, "\"hits\":");
  const long back = rejoins ? strtol(rejoins + 10, NULL, 10) : 0;
  const long read_right = hits ? strtol(hits + 7, NULL, 10) : 0;
  ok(revoked >= 20 && back >= 10 && read_right > 30,
     "it was revoked %d times, joined anew %ld times, and read %ld blocks", revoked, back,
     read_right);
  expect(WEXITSTATUS(status), 0, "\"wrong\": 0", "and not one word of them was another's");
  expect(run("kvpool check dev:ctl+more"), 0, "", "the store is whole");
}

static void watched(void) {
  int from = -1, status = 0;
  const pid_t watch = begin("exec kvpool stat --watch 1 dev:ctl+more", &from);
  said[0] = 0;
  pause_ms(2500);
  ok(revoke_process(watch), "a command that only looks is revoked");
  collect(from);
  waitpid(watch, &status, 0);
  expect(WEXITSTATUS(status), 1, "took the memory away", "it says so, and calls nothing damaged");
}

static int info_as_nobody(void *arg) {
  (void)arg;
  execl("/bin/kvpool", "kvpool", "info", "dev:ctl+more", NULL);
  return 127;
}

static void rights(void) {
  ok(as_nobody(info_as_nobody, NULL) == 1, "who may not open the nodes is refused");
  chmod("/dev/kvpool-ctl", 0444);
  chmod("/dev/kvpool-more", 0444);
  ok(as_nobody(info_as_nobody, NULL) == 0, "who may read them looks at the store");
  chmod("/dev/kvpool-ctl", 0600);
  chmod("/dev/kvpool-more", 0600);
}

#define TWO_RANGES "--range 0x100000000+384MiB --range 0x118000000+384MiB"

/* What is refused is refused with the way on, and a dry run changes nothing. */
static void claims(void) {
  expect(run("kvpool setup partition list"), 1, "no pool is claimed", "nothing is claimed yet");
  expect(run("kvpool setup release"), 3, "no pool is claimed", "nor released");
  expect(run("kvpool setup claim --range 0x10000000+384MiB --host 1"), 1, "below 4 GiB",
         "a range below 4 GiB");
  expect(run("kvpool setup claim --range 0x100001000+384MiB --host 1 --dry-run"), 1, "2MiB",
         "one that is not aligned, in a dry run");
  expect(run("kvpool setup claim --range 0x8000000000+384MiB --host 1 --dry-run"), 1,
         "not reserved", "one that nobody reserved, in a dry run");
  expect(run("kvpool setup claim --range 0x8000000000+384MiB --host 1"), 1, "not reserved",
         "and in earnest");
  expect(run("kvpool setup claim " TWO_RANGES " --host 1 --dry-run"), 0, "would claim",
         "a dry run");
  expect(run("kvpool setup claim " TWO_RANGES " --host 1"), 1, "--label", "no label is there");
  json("setup claim " TWO_RANGES " --host 1 --hosts 4 --label --dry-run");
  json("setup claim " TWO_RANGES " --host 1 --hosts 4 --label");
  expect(run("kvpool setup claim " TWO_RANGES " --host 1 --dry-run"), 1, "already", "once only");
}

static bool wait_bytes(const char *name, uint64_t bytes) {
  for (int i = 0; i < 200 && partition(name).bytes != bytes; i++) pause_ms(50);
  return partition(name).bytes == bytes;
}

/* The partition "more" has two slices of 64 MiB; the driver's lines lie in the first one. */
static void sizes(void) {
  expect(run("kvpool setup partition grow none --size 64MiB"), 3, "no such partition", "no name");
  expect(run("kvpool setup partition grow more --size 100MiB"), 2, "64 MiB", "not whole units");
  expect(run("kvpool setup partition grow more --size 64GiB"), 1, "no room", "too much");
  expect(run("kvpool setup partition grow more --size 64GiB --dry-run"), 1, "no room", "dry");
  expect(run("kvpool setup partition grow more --size 64MiB --dry-run"), 0, "would grow", "dry");
  json("setup partition grow more --size 256MiB");
  expect(run("kvpool setup partition shrink more --size 64MiB --yes"), 1, "--size 128MiB",
         "slices are whole");
  expect(run("kvpool setup partition shrink more --size 64MiB --dry-run"), 1, "--size 128MiB",
         "dry");
  expect(run("kvpool setup partition shrink more --size 128MiB"), 1, "--yes", "only on a word");
  expect(run("kvpool setup partition shrink more --slice-id 9999 --yes"), 3, "no slice", "no id");
  expect(run("kvpool setup partition shrink more --slice-id 9999 --dry-run"), 3, "no slice", "dry");
  expect(run("kvpool setup partition shrink more --size 384MiB --yes"), 1, "first slice",
         "not the first one");
  expect(run("kvpool setup partition shrink more --size 384MiB --dry-run"), 1, "first slice",
         "dry");
  expect(run("kvpool setup partition shrink more --size 256MiB --dry-run"), 0, "would shrink",
         "dry");
  json("setup partition shrink more --size 256MiB --yes");
  ok(wait_bytes("more", 128 << 20), "it is as small as before");
  expect(run("kvpool setup device watch 7 --pci 00:00.0"), 3, "2 devices", "no such device");
  expect(run("kvpool setup device watch 1 --pci 00:1f.5"), 3, "lspci", "no such function");
  expect(run("kvpool setup device watch 1 --pci 00:00.0 --dry-run"), 0, "would watch", "dry");
  json("setup device watch 1 --pci 0000:00:00.0");
}

static void partitions(void) {
  expect(run("kvpool setup partition create ctl --size 100MiB"), 2, "64 MiB", "not whole units");
  expect(run("kvpool setup partition create ctl --size 100MiB --dry-run"), 2, "64 MiB", "dry");
  expect(run("kvpool setup partition create ctl --size 64GiB"), 1, "no room", "too large");
  expect(run("kvpool setup partition create ctl --size 64GiB --dry-run"), 1, "no room", "dry");
  expect(run("kvpool setup partition create ctl --size 128MiB --dry-run"), 0, "would create",
         "dry");
  expect(run("kvpool setup partition list"), 0, "no partitions", "nothing came of it");
  expect(run("kvpool setup partition create ctl --size 128MiB"), 0, "/dev/kvpool-ctl",
         "a partition");
  expect(run("kvpool setup partition create ctl --size 128MiB"), 1, "of this name", "taken");
  expect(run("kvpool setup partition create more --size 128MiB --slice 64MiB"), 0, "2 slices",
         "another one");
  expect(run("kvpool setup partition create wc --size 64MiB --type wc"), 0, "", "of another type");
  expect(run("kvpool setup partition list"), 0, "active  wc", "they are listed");
  expect(run("kvpool setup host list"), 0, "this host administrator", "hosts are");
  expect(run("kvpool setup device list"), 0, "0x118000000", "and devices");
  json("setup partition list");
  json("setup host list");
  json("setup device list");
  json("setup admin");
  sizes();
  expect(run("kvpool setup host fence 1 --confirmed"), 1, "is this host", "no host fences itself");
  expect(run("kvpool setup host fence 2 --confirmed"), 3, "never claimed", "nor one of no name");
  expect(run("kvpool setup partition destroy none --yes"), 3, "no such partition",
         "what is not there");
  expect(run("kvpool doctor"), 0, "this is host 1 of 4", "the doctor finds the pool");
}

static int list_as_nobody(void *arg) {
  (void)arg;
  execl("/bin/kvpool", "kvpool", "setup", "partition", "list", NULL);
  return 127;
}

static void in_use(void) {
  int status = 0;
  const pid_t owner = serve("dev:ctl+more");
  json("doctor dev:ctl+more");
  json("setup partition list");
  json("info dev:ctl+more");
  json("stat dev:ctl+more");
  expect(run("kvpool doctor dev:ctl+more"), 0, "ctl wb: obtained wb",
         "types obtained, while in use");
  expect(run("kvpool setup release"), 1, "ctl is in use: ", "a pool in use is not released");
  expect(run("kvpool setup partition destroy ctl"), 1, "--yes", "a partition goes on a word only");
  expect(run("kvpool host fence 0 dev:ctl+more --confirmed"), 3, "no member",
         "a host that never was");
  ok(as_nobody(list_as_nobody, NULL) == 1, "an ordinary user administers nothing");
  expect(run("kvpool setup partition destroy ctl --yes"), 0, "destroying ctl", "now it goes");
  for (int i = 0; i < 100 && waitpid(owner, &status, WNOHANG) == 0; i++) pause_ms(100);
  ok(WIFEXITED(status) && WEXITSTATUS(status) == 1, "its owner cannot join anew, and ends");
}

/* The same memory as another host of the pool. */
static void another_host(void) {
  for (int i = 0; i < 3; i++) {
    static const char *const names[] = {"ctl", "more", "wc"};
    if (i)
      expect(run("kvpool setup partition destroy %s --yes", names[i]), 0, "destroying", names[i]);
    ok(wait_gone(names[i]), "is gone");
  }
  expect(run("kvpool setup release"), 0, "released", "the pool is given up");
  expect(run("kvpool setup claim " TWO_RANGES " --host 0 --hosts 4 --label"), 1, "labels of a pool",
         "not labelled over");
  expect(run("kvpool setup claim --range 0x100000000+384MiB --host 0"), 1, "all devices",
         "nor claimed in part");
  expect(run("kvpool setup claim " TWO_RANGES " --host 0"), 0, "as host 0", "but as host 0");
  expect(run("kvpool setup partition create x --size 64MiB"), 1, "host 1 administers",
         "which is no administrator");
  expect(run("kvpool setup admin --dry-run"), 0, "would administer", "dry");
  expect(run("kvpool setup admin"), 0, "administers the pool", "until it takes over");
  expect(run("kvpool setup host fence 1"), 1, "--confirmed", "fencing needs a word");
  expect(run("kvpool setup host fence 1 --confirmed --dry-run"), 0, "would fence", "dry");
  json("setup host fence 1 --confirmed");
  json("setup release --dry-run");
  expect(run("kvpool setup release"), 0, "released", "the end");
}

/* A slice is taken away below an owner that lives on: what it would read there now is nobody's. */
static void taken_away(void) {
  struct kvpool_item_slice items[32];
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof items[0], .count = 32};
  list.items = (uintptr_t)items;
  const pid_t owner = serve("dev:ctl+more");
  uint32_t last = 0, first = 0;
  ok(ioctl(control, KVPOOL_LIST, &list) == 0, "slices are listed");
  for (uint32_t i = 0; i < list.ret_count && i < 32; i++) {
    if (items[i].partition != partition("more").id) continue;
    if (!first) first = items[i].id;
    last = items[i].id;
  }
  ok(last > first && shrink("more", &last, 1, 0, 0) == 0, "one of a store's is taken away");
  int status = 0, ended = 0;
  for (int i = 0; i < 100 && !ended; i++, pause_ms(100)) {
    ended = waitpid(owner, &status, WNOHANG) == owner;
  }
  ok(ended && WIFEXITED(status) && WEXITSTATUS(status) != 0,
     "its owner does not serve what it has not: %d, status %#x", ended, (unsigned)status);
  if (!ended) end(owner, SIGKILL);
  expect(run("kvpool get k1 /tmp/out --pool dev:ctl+more"), 1, "", "nor does anybody");
  expect(run("kvpool setup partition destroy more --yes"), 0, "destroying more", "the rest goes");
  ok(wait_gone("more"), "and is gone");
  expect(run("kvpool setup partition create more --size 128MiB --slice 64MiB"), 0, "2 slices",
         "another one in its place");
  expect(run("kvpool format dev:ctl+more --block-bytes 16KiB --yes"), 0, "", "with a new store");
}

void test_store(void) {
  mkdir("/dev/shm", 01777);
  mount("shm", "/dev/shm", "tmpfs", 0, NULL);
  setenv("PATH", "/bin", 1);
  expect(run("kvpool info dev:ctl"), 1, "modprobe kvpool", "without the driver it says so");
  expect(run("kvpool setup partition list"), 1, "modprobe kvpool", "and so does setup");
  ok(load_driver("") == 0, "the driver");
  open_control();
  expect(run("kvpool info dev:ctl"), 1, "kvpool setup claim", "without a claim it says so");
  claims();
  partitions();
  life_of_a_store();
  stopped_too_long();
  watched();
  storm();
  rights();
  taken_away();
  in_use();
  another_host();
  close_control();
  ok(unload_driver() == 0, "the driver goes");
}
