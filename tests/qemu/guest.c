// SPDX-License-Identifier: Apache-2.0
// Owns what the guest's tests share; see guest.h.
#define _GNU_SOURCE
#include "guest.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>

// Shared with the children that run suites, so that all count in one place.
static struct counts { int passed, failed; } * counts;
int control = -1;
const uint8_t pool_uuid[16] = {0x6b, 0x76, 1, 2, 3, 4, 0x45, 6, 0x87, 8, 9, 10, 11, 12, 13, 14};

void ok_at(bool held, int line, const char *format, ...) {
  const int error = errno;
  va_list args;
  va_start(args, format);
  printf("%s %d - ", held ? "ok" : "not ok", counts->passed + counts->failed + 1);
  vprintf(format, args);
  if (!held) printf(" [line %d, errno %d: %s]", line, error, strerror(error));
  printf("\n");
  fflush(stdout);
  va_end(args);
  held ? counts->passed++ : counts->failed++;
}

int tap_end(void) {
  printf("1..%d\n%d passed, %d failed\n", counts->passed + counts->failed, counts->passed,
         counts->failed);
  return counts->failed != 0;
}

bool huge_leaves(void) {
  struct utsname name;
  int major = 0, minor = 0;
  uname(&name);
  sscanf(name.release, "%d.%d", &major, &minor);
  return major > 6 || (major == 6 && minor >= 12);
}

int load_driver(const char *arguments) {
  const int fd = open("/kvpool.ko", O_RDONLY | O_CLOEXEC);
  const long result = syscall(SYS_finit_module, fd, arguments, 0);
  const int error = errno;
  close(fd);
  return result ? error : 0;
}

int unload_driver(void) { return syscall(SYS_delete_module, "kvpool", O_NONBLOCK) ? errno : 0; }

int put_file(const char *path, const char *text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = write(fd, text, strlen(text)) < 0 ? errno : 0;
  close(fd);
  return error;
}

void open_control(void) { control = open("/dev/kvpool", O_RDWR | O_CLOEXEC); }

void close_control(void) {
  close(control);
  control = -1;
}

struct kvpool_claim claim_args(uint64_t flags, struct kvpool_range *ranges, uint32_t count) {
  struct kvpool_claim claim = {.flags = flags};
  claim.ranges = (uintptr_t)ranges;
  claim.range_count = count;
  if (flags & KVPOOL_CLAIM_F_LABEL) {
    claim.host_count = HOSTS;
    memcpy(claim.uuid, pool_uuid, sizeof pool_uuid);
  }
  return claim;
}

void two_devices(struct kvpool_range ranges[DEVICE_COUNT]) {
  for (int i = 0; i < DEVICE_COUNT; i++) {
    ranges[i].start = POOL_START + i * DEVICE_BYTES;
    ranges[i].bytes = DEVICE_BYTES;
  }
}

int claim_pool(uint64_t flags, uint32_t host) {
  struct kvpool_range ranges[DEVICE_COUNT];
  two_devices(ranges);
  struct kvpool_claim claim = claim_args(flags, ranges, DEVICE_COUNT);
  claim.host = host;
  const int result = ioctl(control, KVPOOL_CLAIM, &claim);
  if (result) {
    printf("# claim: errno %d, reason %u, range %u, offset %#llx\n", errno, claim.ret_reason,
           claim.ret_bad_range, (unsigned long long)claim.ret_bad_offset);
  }
  return result;
}

int release_pool(void) {
  struct kvpool_release release = {0};
  return ioctl(control, KVPOOL_RELEASE, &release);
}

int take_admin(void) {
  struct kvpool_admin admin = {0};
  return ioctl(control, KVPOOL_ADMIN, &admin);
}

int create(const char *name, uint64_t bytes, uint32_t type) {
  struct kvpool_partition_create create = {.bytes = bytes, .type = type};
  create.name = (uintptr_t)name;
  create.name_len = strlen(name);
  return ioctl(control, KVPOOL_PARTITION_CREATE, &create);
}

int destroy(const char *name, uint64_t flags) {
  struct kvpool_partition_destroy destroy = {.flags = flags};
  destroy.name = (uintptr_t)name;
  destroy.name_len = strlen(name);
  return ioctl(control, KVPOOL_PARTITION_DESTROY, &destroy);
}

struct kvpool_partition_grow grown;
struct kvpool_partition_shrink shrunk;

int grow(const char *name, uint64_t bytes) {
  memset(&grown, 0, sizeof grown);
  grown.bytes = bytes;
  grown.name = (uintptr_t)name;
  grown.name_len = strlen(name);
  return ioctl(control, KVPOOL_PARTITION_GROW, &grown);
}

int shrink(const char *name, const uint32_t *ids, uint32_t count, uint64_t bytes, uint64_t flags) {
  memset(&shrunk, 0, sizeof shrunk);
  shrunk.flags = flags;
  shrunk.name = (uintptr_t)name;
  shrunk.name_len = strlen(name);
  shrunk.slices = (uintptr_t)ids;
  shrunk.slice_count = count;
  shrunk.bytes = bytes;
  return ioctl(control, KVPOOL_PARTITION_SHRINK, &shrunk);
}

struct kvpool_info info(void) {
  struct kvpool_info info = {0};
  ioctl(control, KVPOOL_GET_INFO, &info);
  return info;
}

static int list(int fd, uint32_t kind, void *items, uint32_t item_bytes, uint32_t count) {
  struct kvpool_list list = {.kind = kind, .item_bytes = item_bytes, .count = count};
  list.items = (uintptr_t)items;
  if (ioctl(fd, KVPOOL_LIST, &list)) return -1;
  return list.ret_count < count ? (int)list.ret_count : (int)count;
}

struct kvpool_item_partition partition(const char *name) {
  struct kvpool_item_partition items[16], none = {0};
  const int count = list(control, KVPOOL_LIST_PARTITIONS, items, sizeof items[0], 16);
  for (int i = 0; i < count; i++) {
    if (!strcmp((const char *)items[i].name, name)) return items[i];
  }
  return none;
}

bool wait_gone(const char *name) {
  for (int i = 0; i < 200; i++) {
    if (!partition(name).id) return true;
    pause_ms(50);
  }
  return false;
}

int node(const char *name, int flags) {
  char path[64];
  snprintf(path, sizeof path, "/dev/kvpool-%s", name);
  return open(path, flags | O_CLOEXEC);
}

uint64_t slice_offset(int fd, uint32_t index) {
  struct kvpool_item_slice items[16];
  const int count = list(fd, KVPOOL_LIST_SLICES, items, sizeof items[0], 16);
  return count > (int)index ? items[index].map_offset : 0;
}

struct kvpool_item_member member_of(int fd, uint64_t incarnation) {
  struct kvpool_item_member items[16], none = {0};
  const int count = list(fd, KVPOOL_LIST_MEMBERS, items, sizeof items[0], 16);
  for (int i = 0; i < count; i++) {
    if (items[i].incarnation == incarnation) return items[i];
  }
  return none;
}

static sigjmp_buf escape;
int fault_code;
void *fault_address;

static void on_fault(int number, siginfo_t *about, void *context) {
  (void)context;
  fault_code = about->si_code;
  fault_address = about->si_addr;
  siglongjmp(escape, number);
}

static void catch_faults(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGBUS, &action, NULL);
  sigaction(SIGSEGV, &action, NULL);
}

int touch_read(const void *at, uint64_t *ret_word) {
  catch_faults();
  const int number = sigsetjmp(escape, 1);
  if (number) return number;
  const uint64_t word = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
  if (ret_word) *ret_word = word;
  return 0;
}

int touch_write(void *at, uint64_t word) {
  catch_faults();
  const int number = sigsetjmp(escape, 1);
  if (number) return number;
  __atomic_store_n((uint64_t *)at, word, __ATOMIC_RELAXED);
  return 0;
}

uint64_t word_at(const void *at) { return __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED); }

void pause_ms(unsigned ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
  while (nanosleep(&left, &left) && errno == EINTR) {
  }
}

uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

int in_child(int (*function)(void *), void *arg) {
  int status = 0;
  fflush(stdout);
  const pid_t child = fork();
  if (!child) _exit(function(arg));
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

struct nobody {
  int (*function)(void *);
  void *arg;
};

static int drop_and_run(void *arg) {
  struct nobody *nobody = arg;
  if (setgid(65534) || setuid(65534)) return 254;
  return nobody->function(nobody->arg);
}

int as_nobody(int (*function)(void *), void *arg) {
  struct nobody nobody = {function, arg};
  return in_child(drop_and_run, &nobody);
}

static int call_suite(void *arg) {
  ((void (*)(void))arg)();
  return 0;
}

void in_process(const char *name, void (*suite)(void)) {
  const int result = in_child(call_suite, (void *)suite);
  if (result) ok(false, "%s ended with %d", name, result);
}

int store_open(struct store *store) {
  memset(store, 0, sizeof *store);
  store->ctl = node("ctl", O_RDWR);
  store->pay = node("pay", O_RDWR);
  return store->ctl < 0 || store->pay < 0 ? -1 : 0;
}

int store_join(struct store *store, uint64_t flags, uint32_t lease_ms) {
  int fds[1] = {store->pay};
  memset(&store->join, 0, sizeof store->join);
  store->join.flags = flags;
  store->join.fds = (uintptr_t)fds;
  store->join.fd_count = 1;
  store->join.lease_ms = lease_ms;
  return ioctl(store->ctl, KVPOOL_JOIN, &store->join);
}

int store_map(struct store *store) {
  store->meta = mmap(NULL, UNIT - LEAF, PROT_READ | PROT_WRITE, MAP_SHARED, store->ctl,
                     slice_offset(store->ctl, 0) + LEAF);
  store->data =
      mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, store->pay, slice_offset(store->pay, 0));
  store->state = mmap(NULL, 4096, PROT_READ, MAP_SHARED, store->ctl, KVPOOL_MAP_STATE);
  return store->meta == MAP_FAILED || store->data == MAP_FAILED || store->state == MAP_FAILED;
}

void store_close(struct store *store) {
  if (store->meta && store->meta != MAP_FAILED) munmap(store->meta, UNIT - LEAF);
  if (store->data && store->data != MAP_FAILED) munmap(store->data, UNIT);
  if (store->state && store->state != MAP_FAILED) munmap((void *)store->state, 4096);
  close(store->ctl);
  close(store->pay);
}

struct kvpool_mapping ask(int fd, const void *at) {
  struct kvpool_mapping mapping = {.address = (uintptr_t)at};
  if (ioctl(fd, KVPOOL_MAPPING, &mapping)) mapping.ret_type = 99;
  return mapping;
}

int renew(int fd) {
  struct kvpool_renew renew = {0};
  return ioctl(fd, KVPOOL_RENEW, &renew);
}

int revoke_member(uint64_t incarnation) {
  struct kvpool_revoke revoke = {.incarnation = incarnation};
  return ioctl(control, KVPOOL_REVOKE, &revoke);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (argc > 1 && !strcmp(argv[1], "agent")) return agent();
  if (argc > 1 && !strcmp(argv[1], "store")) {
    test_store();
    return tap_end();
  }
  test_load();
  test_claim();
  test_labels();
  test_ioctls();
  test_partitions();
  in_process("mapping", test_mapping);
  test_members();
  test_resize();
  test_events();
  test_unload();
  test_remove();
  return tap_end();
}
