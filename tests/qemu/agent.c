// SPDX-License-Identifier: Apache-2.0
// Owns what a guest of a rack does: it reads commands from its second serial line and answers each
// with one line. What is done when is decided by rack.py; members are processes of their own.
#define _GNU_SOURCE
#include <inttypes.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <termios.h>

#include "guest.h"

enum { kMembers = 8, kWords = 8 };

struct member {
  pid_t pid;
  FILE *to, *from;
};
static struct member members[kMembers];
static struct store store;

static int split(char *line, char *words[kWords]) {
  int count = 0;
  for (char *word = strtok(line, " \r\n"); word && count < kWords; word = strtok(NULL, " \r\n")) {
    words[count++] = word;
  }
  return count;
}

static uint64_t number(char *const words[], int count, int at) {
  return at < count ? strtoull(words[at], NULL, 0) : 0;
}

static int error_of(int result) { return result ? errno : 0; }

// What a member's process does for one line.
static void member_command(char *words[], int count, FILE *out) {
  const char *verb = count ? words[0] : "";
  const uint64_t first = number(words, count, 1), second = number(words, count, 2);
  uint64_t word = 0;
  if (!strcmp(verb, "join")) {
    if (!store.ctl && store_open(&store)) {
      fprintf(out, "%d open\n", errno);
    } else if (store_join(&store, second ? KVPOOL_JOIN_F_ZERO_PAGE : 0, (uint32_t)first)) {
      fprintf(out, "%d join\n", errno);
    } else if (!store.data && store_map(&store)) {
      fprintf(out, "%d map\n", errno);
    } else {
      fprintf(out, "0 %" PRIx64 "\n", (uint64_t)store.join.ret_incarnation);
    }
  } else if (!strcmp(verb, "write")) {
    fprintf(out, "%d\n", touch_write(store.data + first, second));
  } else if (!strcmp(verb, "read")) {
    const int signal_number = touch_read(store.data + first, &word);
    fprintf(out, "%d %#" PRIx64 "\n", signal_number, word);
  } else if (!strcmp(verb, "lost")) {
    fprintf(out, "0 %" PRIu64 "\n", (uint64_t)store.state->lost);
  } else if (!strcmp(verb, "slice")) {
    // Maps the n-th slice of the payload instead of the first.
    if (store.data) munmap(store.data, UNIT);
    const uint64_t offset = slice_offset(store.pay, (uint32_t)first);
    store.data = mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, store.pay, (off_t)offset);
    fprintf(out, "%d\n", store.data == MAP_FAILED ? errno : 0);
    if (store.data == MAP_FAILED) store.data = NULL;
  } else if (!strcmp(verb, "sum")) {
    for (uint64_t at = 0; at < UNIT; at += 64) word |= word_at(store.data + at);
    fprintf(out, "0 %#" PRIx64 "\n", word);
  } else if (!strcmp(verb, "renew")) {
    fprintf(out, "%d\n", error_of(renew(store.ctl)));
  } else if (!strcmp(verb, "revoked")) {
    fprintf(out, "0 %" PRIu64 "\n", (uint64_t)store.state->revoked);
  } else {
    fprintf(out, "22\n");
  }
  fflush(out);
}

static void member_loop(FILE *in, FILE *out) {
  char line[256], *words[kWords];
  while (fgets(line, sizeof line, in)) {
    const int count = split(line, words);
    if (count && !strcmp(words[0], "quit")) break;
    member_command(words, count, out);
  }
  _exit(0);
}

static int start_member(struct member *member) {
  int to[2], from[2];
  if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) return errno;
  fflush(NULL);
  member->pid = fork();
  if (!member->pid) {
    for (int i = 0; i < kMembers; i++) {
      if (members[i].to) close(fileno(members[i].to));
    }
    close(to[1]);
    close(from[0]);
    member_loop(fdopen(to[0], "r"), fdopen(from[1], "w"));
  }
  close(to[0]);
  close(from[1]);
  member->to = fdopen(to[1], "w");
  member->from = fdopen(from[0], "r");
  return 0;
}

// "member N command...": started by its first command, ended by "quit".
static void to_member(char *words[], int count, FILE *out) {
  struct member *member = &members[number(words, count, 1) % kMembers];
  char answer[256] = "5\n";
  if (!member->pid && start_member(member)) {
    fprintf(out, "%d\n", errno);
    return;
  }
  for (int i = 2; i < count; i++) fprintf(member->to, "%s ", words[i]);
  fprintf(member->to, "\n");
  fflush(member->to);
  if (count > 2 && !strcmp(words[2], "quit")) {
    fclose(member->to);
    fclose(member->from);
    waitpid(member->pid, NULL, 0);
    memset(member, 0, sizeof *member);
    fprintf(out, "0\n");
    return;
  }
  if (!fgets(answer, sizeof answer, member->from)) snprintf(answer, sizeof answer, "5 ended\n");
  fputs(answer, out);
}

static void about_pool(FILE *out) {
  const struct kvpool_info about = info();
  fprintf(out, "0 %u %u %u %#" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
          about.state, about.is_admin, about.admin_host, (uint64_t)about.admin_epoch,
          (uint64_t)about.free_units, (uint64_t)about.table_generation, (uint64_t)about.line_reads,
          (uint64_t)about.line_writes);
}

static void about_host(uint32_t host, FILE *out) {
  struct kvpool_item_host items[HOSTS] = {{0}};
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_HOSTS, .item_bytes = sizeof items[0], .count = HOSTS};
  list.items = (uintptr_t)items;
  if (ioctl(control, KVPOOL_LIST, &list) || host >= HOSTS) {
    fprintf(out, "%d\n", errno);
    return;
  }
  fprintf(out, "0 %u %#" PRIx64 " %u\n", items[host].state, (uint64_t)items[host].incarnation,
          items[host].held_units);
}

// The hosts that hold a draining slice of any partition.
static void about_held(FILE *out) {
  struct kvpool_item_slice items[32] = {{0}};
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof items[0], .count = 32};
  uint64_t held = 0;
  list.items = (uintptr_t)items;
  if (ioctl(control, KVPOOL_LIST, &list)) {
    fprintf(out, "%d\n", errno);
    return;
  }
  for (uint32_t i = 0; i < list.ret_count && i < 32; i++) held |= items[i].held_hosts;
  fprintf(out, "0 %#" PRIx64 "\n", held);
}

// A byte of the medium turned over, from a guest that has not claimed it.
static int poke(uint64_t offset) {
  const int mem = open("/dev/mem", O_RDWR | O_SYNC | O_CLOEXEC);
  const uint64_t address = POOL_START + offset;
  uint8_t *page =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mem, (off_t)(address & ~4095ull));
  close(mem);
  if (page == MAP_FAILED) return errno;
  page[address & 4095] ^= 1;
  munmap(page, 4096);
  return 0;
}

// Creates and destroys until it is killed with its guest.
static int churn(void) {
  const pid_t child = fork();
  if (child) return child < 0 ? errno : 0;
  for (int i = 0;; i++) {
    char name[16];
    snprintf(name, sizeof name, "churn%d", i % 3);
    if (create(name, UNIT, KVPOOL_TYPE_WC) && errno == EEXIST) destroy(name, 0);
  }
}

// A command line of the shell, in the background with `&` at its end; its exit code. What it says
// is shown as a comment: lines that begin with "ok" are ours alone.
static int shell(char *line) {
  static pid_t last; /* in the background */
  char command[320];
  if (last > 0 && waitpid(last, NULL, WNOHANG) == last) last = 0;
  line[strcspn(line, "\n")] = 0;
  const size_t length = strlen(line);
  const bool background = length && line[length - 1] == '&';
  if (background) line[length - 1] = 0;
  snprintf(command, sizeof command, "%s%s", background ? "exec " : "", line);
  printf("# %s\n", line);
  fflush(stdout);
  const pid_t child = fork();
  if (!child) {
    const int said = open(background ? "/tmp/background" : "/tmp/said",
                          O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(said, 1);
    dup2(said, 2);
    execl("/bin/busybox", "sh", "-c", command, NULL);
    _exit(127);
  }
  int status = 0;
  if (background) last = child;
  if (background) return child < 0 ? 255 : 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code && !system("sed 's/^/#   /' /tmp/said")) printf("#   exit code %d\n", code);
  return code;
}

static void answer(char *words[], int count, FILE *out) {
  const char *verb = count ? words[0] : "", *name = count > 1 ? words[1] : "";
  const uint64_t first = number(words, count, 1), second = number(words, count, 2),
                 third = number(words, count, 3);
  if (!strcmp(verb, "claim")) {
    fprintf(out, "%d\n", error_of(claim_pool(first, (uint32_t)second)));
  } else if (!strcmp(verb, "release")) {
    fprintf(out, "%d\n", error_of(release_pool()));
  } else if (!strcmp(verb, "admin")) {
    fprintf(out, "%d\n", error_of(take_admin()));
  } else if (!strcmp(verb, "create")) {
    fprintf(out, "%d\n", error_of(create(name, second * UNIT, (uint32_t)third)));
  } else if (!strcmp(verb, "grow")) {
    fprintf(out, "%d\n", error_of(grow(name, second * UNIT)));
  } else if (!strcmp(verb, "shrink")) {
    fprintf(out, "%d\n", error_of(shrink(name, NULL, 0, second * UNIT, 0)));
  } else if (!strcmp(verb, "destroy")) {
    fprintf(out, "%d\n", error_of(destroy(name, second)));
  } else if (!strcmp(verb, "info")) {
    about_pool(out);
  } else if (!strcmp(verb, "host")) {
    about_host((uint32_t)first, out);
  } else if (!strcmp(verb, "held")) {
    about_held(out);
  } else if (!strcmp(verb, "partition")) {
    const struct kvpool_item_partition item = partition(name);
    fprintf(out, "0 %u %u %u %u %u %u\n", item.id, item.state, item.attached, item.members,
            item.reachers, item.slice_count);
  } else if (!strcmp(verb, "fence")) {
    struct kvpool_host_fence fence = {.flags = KVPOOL_FENCE_F_CONFIRMED, .host = (uint32_t)first};
    fence.incarnation = second;
    fprintf(out, "%d\n", error_of(ioctl(control, KVPOOL_HOST_FENCE, &fence)));
  } else if (!strcmp(verb, "member")) {
    to_member(words, count, out);
  } else if (!strcmp(verb, "gone")) {
    fprintf(out, "%d\n", put_file("/sys/kernel/debug/kvpool/device_gone", name));
  } else if (!strcmp(verb, "poke")) {
    fprintf(out, "%d\n", poke(first));
  } else if (!strcmp(verb, "churn")) {
    fprintf(out, "%d\n", churn());
  } else {
    fprintf(out, "22 no such command\n");
  }
}

int agent(void) {
  char line[256], *words[kWords];
  const int serial = open("/dev/ttyS1", O_RDWR | O_NOCTTY | O_CLOEXEC);
  struct termios mode;
  tcgetattr(serial, &mode);
  cfmakeraw(&mode);
  tcsetattr(serial, TCSANOW, &mode);
  FILE *in = fdopen(serial, "r"), *out = fdopen(dup(serial), "w");
  ok(load_driver("heartbeat_ms=100 inject=1") == 0, "the driver loads");
  open_control();
  mkdir("/dev/shm", 01777);
  mount("shm", "/dev/shm", "tmpfs", 0, NULL);
  setenv("PATH", "/bin", 1);
  fprintf(out, "ready\n");
  fflush(out);
  while (fgets(line, sizeof line, in)) {
    if (!strncmp(line, "sh ", 3)) {
      fprintf(out, "%d\n", shell(line + 3));
      fflush(out);
      continue;
    }
    const int count = split(line, words);
    if (count && !strcmp(words[0], "end")) break;
    answer(words, count, out);
    fflush(out);
  }
  bool released = false;
  for (int i = 0; i < 100 && !released; i++, pause_ms(100)) {
    const int error = error_of(release_pool());
    released = error == 0 || error == ENODEV;
  }
  ok(released, "the pool is released at the end");
  close_control();
  ok(unload_driver() == 0, "and the driver unloaded");
  fprintf(out, "ended\n");
  fflush(out);
  return tap_end();
}
