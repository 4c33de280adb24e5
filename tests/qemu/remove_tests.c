// SPDX-License-Identifier: Apache-2.0
// Shows: a device that goes takes what was on it and nothing else; who used it is told before he is
// served anything else; nobody gets its units before this host is proven out; the driver can be
// given up and unloaded. How: a pool of three devices, gone by injection and by a PCI function that
// is removed.
#define _GNU_SOURCE
#include "guest.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

enum { kDevices = 3 };
#define SMALL_DEVICE (256 * MIB)
#define DEBUG "/sys/kernel/debug/kvpool/"
#define FUNCTION "/sys/bus/pci/devices/0000:00:1f.2"

static bool says(const char *path, const char *wanted) {
  char value[64] = "";
  FILE *file = fopen(path, "r");
  if (!file) return false;
  if (!fgets(value, sizeof value, file)) value[0] = 0;
  fclose(file);
  value[strcspn(value, "\n")] = 0;
  if (strcmp(value, wanted)) printf("# %s: %s\n", path, value);
  return !strcmp(value, wanted);
}

// How many of a kind the driver has; -1: no such line.
static int alive(const char *name) {
  char line[64];
  int value = -1;
  FILE *file = fopen(DEBUG "live", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (!strncmp(line, name, strlen(name))) value = atoi(line + strlen(name));
  }
  if (file) fclose(file);
  return value;
}

static int claim_three(uint64_t flags, uint32_t host) {
  struct kvpool_range ranges[kDevices];
  for (int i = 0; i < kDevices; i++) {
    ranges[i].start = POOL_START + i * SMALL_DEVICE;
    ranges[i].bytes = SMALL_DEVICE;
  }
  struct kvpool_claim claim = claim_args(flags, ranges, kDevices);
  claim.host = host;
  return ioctl(control, KVPOOL_CLAIM, &claim);
}

static struct kvpool_item_slice slice_on(const char *name, uint32_t device) {
  struct kvpool_item_slice items[32], none = {0};
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof items[0], .count = 32};
  list.items = (uintptr_t)items;
  const uint32_t id = partition(name).id;
  if (ioctl(control, KVPOOL_LIST, &list)) return none;
  for (uint32_t i = 0; i < list.ret_count && i < 32; i++) {
    if (items[i].partition == id && items[i].device == device) return items[i];
  }
  return none;
}

static uint8_t *map_on(int fd, const char *name, uint32_t device) {
  return mmap(NULL, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
              (off_t)slice_on(name, device).map_offset);
}

static bool drains_away(const char *name) {
  for (int i = 0; i < 100 && partition(name).id; i++) pause_ms(50);
  return !partition(name).id;
}

static int watch(uint32_t device, uint32_t bus, uint32_t devfn) {
  struct kvpool_device_watch watch = {.device = device, .bus = bus, .devfn = devfn};
  return ioctl(control, KVPOOL_DEVICE_WATCH, &watch);
}

static void files(void) {
  ok(load_driver("heartbeat_ms=100") == 0, "loaded without injection");
  ok(access(DEBUG "live", R_OK) == 0 && access(DEBUG "device_gone", F_OK) &&
         access(DEBUG "poison", F_OK) && access(DEBUG "fail_drain", F_OK),
     "nothing can be injected then");
  ok(unload_driver() == 0, "unloaded");
  ok(load_driver("heartbeat_ms=100 inject=1") == 0, "loaded with it");
  ok(access(DEBUG "device_gone", W_OK) == 0 && access(DEBUG "poison", W_OK) == 0 &&
         access(DEBUG "fail_drain", W_OK) == 0,
     "now it can");
  open_control();
  ok(put_file(DEBUG "device_gone", "0") == ENODEV, "a device of no pool");
  fails(watch(0, 0, 0xfa), ENODEV, "watching for no pool");
}

// JOIN with one payload partition; the words of all its slices, or a pattern into each page.
struct whole {
  const char *name;
  bool write;
  uint64_t *words;
};

static int whole_partition(void *arg) {
  const struct whole *whole = arg;
  int fds[1] = {node(whole->name, O_RDWR)};
  const int ctl = node("ctl", O_RDWR);
  struct kvpool_join join = {.fd_count = 1, .lease_ms = 60000};
  join.fds = (uintptr_t)fds;
  if (ioctl(ctl, KVPOOL_JOIN, &join)) return 1;
  for (uint32_t device = 0; device < kDevices; device++) {
    const struct kvpool_item_slice slice = slice_on(whole->name, device);
    if (!slice.id) continue;
    uint8_t *at = mmap(NULL, slice.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0],
                       (off_t)slice.map_offset);
    if (at == MAP_FAILED) return 2;
    for (uint64_t i = 0; i < slice.bytes; i += 4096) {
      if (whole->write && touch_write(at + i, 0x5a5a5a5a00000000ull | i)) return 3;
      if (whole->words) *whole->words |= word_at(at + i);
    }
  }
  return 0;
}

static void *let_go(void *arg) {
  (void)arg;
  pause_ms(100);
  put_file(DEBUG "fail_drain", "0");
  return NULL;
}

// Units that get free while others are scrubbed for a new tenant come first in order: they are not
// given to him, since nobody scrubbed them.
static void freed_meanwhile(void) {
  pthread_t thread;
  uint64_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  struct whole stain = {"pay", true, NULL}, look = {"next", false, words};
  ok(claim_three(KVPOOL_CLAIM_F_LABEL | KVPOOL_CLAIM_F_FORCE, 0) == 0, "three devices, labelled");
  ok(create("ctl", UNIT, KVPOOL_TYPE_WB) == 0 && create("pay", 3 * UNIT, KVPOOL_TYPE_WC) == 0,
     "two partitions");
  ok(put_file(DEBUG "fail_drain", "1") == 0 && in_child(whole_partition, &stain) == 0,
     "a tenant leaves something in one, and its host is slow");
  pause_ms(1500);
  ok(destroy("pay", 0) == 0 && partition("pay").id, "which is destroyed, and drains");
  pthread_create(&thread, NULL, let_go, NULL);
  ok(create("next", 5 * UNIT, KVPOOL_TYPE_WC) == 0, "another one is made of all other units");
  ok(!partition("pay").id, "the first was over before");
  pthread_join(thread, NULL);
  const int result = in_child(whole_partition, &look);
  ok(result == 0 && *words == 0, "the next tenant finds nothing: %d, %#llx", result,
     (unsigned long long)*words);
  ok(destroy("next", 0) == 0 && drains_away("next"), "it goes, too");
}

// Units: 3 for data on each device; one for ctl, 2, 2 and 1 for pay, one each for near and far.
static void fill(void) {
  ok(create("pay", 5 * UNIT, KVPOOL_TYPE_WC) == 0 && create("near", UNIT, KVPOOL_TYPE_WC) == 0 &&
         create("far", UNIT, KVPOOL_TYPE_WC) == 0,
     "three more partitions");
  ok(slice_on("ctl", 0).id && slice_on("pay", 2).id && slice_on("near", 1).id &&
         slice_on("far", 2).id && info().free_units == 1,
     "one has a slice on each device, one lies on the last alone, where a unit is free");
}

static void injected(void) {
  struct store store;
  ok(!store_open(&store) && !store_join(&store, 0, 600000), "a member");
  uint8_t *at = map_on(store.pay, "pay", 1);
  ok(!touch_write(at + 4096, 1), "that maps");
  char address[32];
  snprintf(
      address, sizeof address, "%#llx",
      (unsigned long long)(POOL_START + SMALL_DEVICE + slice_on("pay", 1).device_offset + 4096));
  ok(put_file(DEBUG "poison", address) == 0, "an address as a machine check brings it");
  for (int i = 0; i < 100 && !partition("pay").poisoned; i++) pause_ms(10);
  ok(partition("pay").poisoned == 1 && touch_read(at + 4096, NULL) == SIGBUS &&
         fault_code == BUS_MCEERR_AR && !touch_write(at, 1),
     "its page is poisoned, and no other");
  store_close(&store);
}

static int touch_and_go(void *arg) {
  struct store store;
  (void)arg;
  if (store_open(&store) || store_join(&store, 0, 60000)) return 1;
  for (uint32_t device = 0; device < kDevices; device++) {
    uint8_t *at = map_on(store.pay, "pay", device);
    if (at == MAP_FAILED || touch_write(at, 1)) return 2;
  }
  return 0;
}

static void stuck(void) {
  ok(put_file(DEBUG "fail_drain", "1") == 0 && in_child(touch_and_go, NULL) == 0,
     "a host gets stuck");
  pause_ms(1500);
  ok(destroy("pay", 0) == 0, "a partition is destroyed");
  pause_ms(500);
  ok(partition("pay").state == KVPOOL_PARTITION_DRAINING && partition("pay").members == 0 &&
         slice_on("pay", 2).held_hosts == 1,
     "nobody uses it, and still it is held by the host that does not say so");
  ok(put_file(DEBUG "fail_drain", "0") == 0 && drains_away("pay"), "until it does");
  ok(create("pay", 5 * UNIT, KVPOOL_TYPE_WC) == 0, "then it is made anew");
}

static int *step; /* of a child: 1 it has mapped; 2 it may go */

// A member with a zero page: goes on with stores when the device is gone, and knows.
static int zero_member(void *arg) {
  struct store store;
  (void)arg;
  if (store_open(&store) || store_join(&store, KVPOOL_JOIN_F_ZERO_PAGE, 600000)) return 1;
  uint8_t *at = map_on(store.pay, "pay", 2);
  const struct kvpool_state_page *state =
      mmap(NULL, 4096, PROT_READ, MAP_SHARED, store.ctl, KVPOOL_MAP_STATE);
  if (at == MAP_FAILED || touch_write(at, 0x77)) return 2;
  __atomic_store_n(&step[0], 1, __ATOMIC_RELEASE);
  while (__atomic_load_n(&step[0], __ATOMIC_ACQUIRE) != 2) {
    if (touch_write(at + 64, 0x99)) return 3;
    uint64_t word = 1;
    if (touch_read(at, &word)) return 4;
    if (word != 0x77 && !__atomic_load_n(&state->lost, __ATOMIC_ACQUIRE)) return 5;
    pause_ms(1);
  }
  return state->lost && word_at(at) == 0 ? 0 : 6;
}

static void of_a_lost_node(int far) {
  struct pollfd poll_of = {.fd = far, .events = POLLIN};
  struct kvpool_event_record event = {0};
  struct kvpool_info about = {0};
  bool heard = false;
  ok(partition("far").gone == 1 && partition("pay").gone == 0, "a partition on it alone is gone");
  fails(node("far", O_RDWR), ENODEV, "its node opens no more");
  fails(ioctl(far, KVPOOL_RENEW, &(struct kvpool_renew){0}), ENODEV, "nor answers who has it open");
  fails(ioctl(far, KVPOOL_MAPPING, &(struct kvpool_mapping){0}), ENODEV, "to any call");
  fails(ioctl(far, KVPOOL_JOIN, &(struct kvpool_join){0}), ENODEV, "nor to JOIN");
  ok(ioctl(far, KVPOOL_GET_INFO, &about) == 0 && about.state == KVPOOL_CLAIM_GONE, "but: gone");
  ok(says("/sys/class/kvpool/kvpool-far/state", "gone") &&
         says("/sys/class/kvpool/kvpool-pay/state", "attached") &&
         says("/sys/class/kvpool/kvpool/health", "device-gone"),
     "and sysfs says so");
  ok(poll(&poll_of, 1, 1000) == 1 && poll_of.revents & POLLHUP, "it hangs up");
  while (read(far, &event, sizeof event) == sizeof event)
    heard = heard || (event.kind == KVPOOL_EVENT_DEVICE_GONE && event.device == 2);
  ok(heard, "after it has told why");
}

static void of_a_lost_slice(const struct store *store, uint8_t *const at[kDevices]) {
  uint64_t word = 0;
  ok(store->state->lost == 2 && !store->state->revoked,
     "STATE says that two slices are lost: %llu", (unsigned long long)store->state->lost);
  ok(touch_read(at[2], NULL) == SIGBUS && fault_code == BUS_ADRERR && fault_address == at[2],
     "who mapped the device gets SIGBUS with the address");
  ok(!touch_read(at[0], &word) && word == 0x10 && !touch_read(at[1], &word) && word == 0x11 &&
         !touch_write(at[1] + 64, 1) && renew(store->ctl) == 0,
     "the slices on others go on");
  fails((long)map_on(store->pay, "pay", 2), ENODEV, "nobody maps it any more");
  struct kvpool_populate populate = {.address = (uintptr_t)at[2], .bytes = LEAF};
  fails(ioctl(store->pay, KVPOOL_POPULATE, &populate), ENODEV, "nor populates it");
  ok(slice_on("pay", 2).state == KVPOOL_SLICE_GONE &&
         slice_on("pay", 1).state == KVPOOL_SLICE_ACTIVE && info().gone_devices == 1u << 2,
     "it is listed so");
}

static void pulled(void) {
  struct store store;
  uint8_t *at[kDevices];
  ok(store_open(&store) == 0, "nodes");
  const int far = node("far", O_RDWR | O_NONBLOCK);
  int fds[2] = {store.pay, far};
  store.join = (struct kvpool_join){.fd_count = 2, .lease_ms = 600000};
  store.join.fds = (uintptr_t)fds;
  ok(ioctl(store.ctl, KVPOOL_JOIN, &store.join) == 0, "a member of three partitions");
  store.state = mmap(NULL, 4096, PROT_READ, MAP_SHARED, store.ctl, KVPOOL_MAP_STATE);
  int bad = 0;
  for (uint32_t device = 0; device < kDevices; device++) {
    at[device] = map_on(store.pay, "pay", device);
    bad += at[device] == MAP_FAILED || touch_write(at[device], 0x10 + device);
  }
  ok(!bad, "it has something on every device");
  __atomic_store_n(&step[0], 0, __ATOMIC_RELAXED);
  fflush(stdout);
  const pid_t child = fork();
  if (!child) _exit(zero_member(NULL));
  for (int i = 0; i < 500 && step[0] != 1; i++) pause_ms(10);
  ok(step[0] == 1, "and another one, with a zero page");
  ok(put_file(DEBUG "device_gone", "3") == EINVAL, "a device that the pool does not have");
  ok(put_file(DEBUG "device_gone", "2") == 0, "the last device goes");
  of_a_lost_slice(&store, at);
  of_a_lost_node(far);
  ok(info().is_admin && info().state == KVPOOL_CLAIM_CLAIMED && info().free_units == 0,
     "this host administers as before, and has no unit of it to give");
  ok(destroy("near", 0) == 0 && drains_away("near"), "it frees a unit of another device");
  fails(create("two", 2 * UNIT, KVPOOL_TYPE_WC), ENOSPC, "nothing of the lost one is given");
  ok(create("near", UNIT, KVPOOL_TYPE_WC) == 0 && slice_on("near", 1).id, "but the other is");
  ok(destroy("far", 0) == 0, "the lost partition is destroyed");
  pause_ms(500);
  ok(partition("far").state == KVPOOL_PARTITION_DRAINING && slice_on("far", 2).held_hosts == 1,
     "and held: a line of this host could still reach the device if it came back");
  __atomic_store_n(&step[0], 2, __ATOMIC_RELEASE);
  int status = 0;
  waitpid(child, &status, 0);
  ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the member with a zero page went on: %d",
     WEXITSTATUS(status));
  close(far);
  store_close(&store);
}

// A device with host areas, by the removal of the PCI function that it is said to need.
static void unplugged(void) {
  struct store store;
  ok(access(FUNCTION, F_OK) == 0, "there is a PCI function to remove");
  fails(watch(1, 77, 0xfa), ENOENT, "watching a function that there is not");
  fails(watch(kDevices, 0, 0xfa), EINVAL, "for a device that there is not");
  fails(watch(2, 0, 0xfa), ENODEV, "for a device that is gone");
  ok(watch(1, 0, 0xfa) == 0 && watch(1, 0, 0xfa) == 0, "device 1 needs the function, said twice");
  ok(!store_open(&store) && !store_join(&store, 0, 600000), "JOIN with what is left");
  uint8_t *zero = map_on(store.pay, "pay", 0), *one = map_on(store.pay, "pay", 1);
  ok(!touch_write(zero, 0x20) && !touch_write(one, 0x21), "two devices are written");
  fails((long)map_on(store.pay, "pay", 2), ENODEV, "the third is gone");
  const uint64_t written = info().line_writes;
  ok(put_file(FUNCTION "/remove", "1") == 0 && access(FUNCTION, F_OK) != 0,
     "the function is removed");
  ok(info().gone_devices == (1u << 1 | 1u << 2), "and device 1 with it: %#llx",
     (unsigned long long)info().gone_devices);
  uint64_t word = 0;
  ok(touch_read(one, NULL) == SIGBUS && !touch_read(zero, &word) && word == 0x20 &&
         renew(store.ctl) == 0,
     "its slices are, the first device's are not");
  ok(!info().is_admin, "who cannot see every host's lines administers no more");
  fails(take_admin(), ENXIO, "nor takes over");
  fails(create("more", UNIT, KVPOOL_TYPE_WC), EAGAIN, "nor creates");
  pause_ms(500);
  ok(info().state == KVPOOL_CLAIM_CLAIMED && info().line_writes > written,
     "the host goes on with the copy that is left");
  ok(put_file(DEBUG "device_gone", "0") == 0, "the last device with lines goes");
  ok(info().state == KVPOOL_CLAIM_GONE && says("/sys/class/kvpool/kvpool/health", "gone"),
     "and this host with it");
  for (int i = 0; i < 100 && touch_read(zero, NULL) != SIGBUS; i++) pause_ms(10);
  ok(touch_read(zero, NULL) == SIGBUS, "nothing is served any more");
  fails(renew(store.ctl), ENODEV, "nor renewed");
  store_close(&store);
}

static bool release_soon(void) {
  for (int i = 0; i < 100; i++, pause_ms(50)) {
    if (!release_pool()) return true;
  }
  return false;
}

// What a host could not get out of is held when it has given up the pool, until somebody answers.
static void held_after_release(void) {
  ok(claim_three(0, 0) == 0 && take_admin() == 0, "the same host with all devices, anew");
  ok(info().gone_devices == 0 && drains_away("far"),
     "a new incarnation is the proof, and the lost partition's units are free");
  ok(in_child(touch_and_go, NULL) == 0, "a member, on every device");
  ok(watch(2, 0, 0x80) == 0, "one needs a port");
  ok(put_file("/sys/bus/pci/drivers/pcieport/unbind", "0000:00:10.0") == 0 &&
         info().gone_devices == 1u << 2,
     "whose driver is unbound: it is gone");
  ok(release_soon() && claim_three(0, 1) == 0 && take_admin() == 0, "another host takes over");
  ok(destroy("pay", 0) == 0, "and destroys");
  pause_ms(500);
  struct kvpool_item_host hosts[HOSTS] = {{0}};
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_HOSTS, .item_bytes = sizeof hosts[0], .count = HOSTS};
  list.items = (uintptr_t)hosts;
  ok(ioctl(control, KVPOOL_LIST, &list) == 0 && hosts[0].state == KVPOOL_HOST_GONE,
     "the first did not say that it left");
  ok(slice_on("pay", 2).held_hosts == 1 && !slice_on("pay", 0).id && !slice_on("pay", 1).id,
     "it holds what was on the lost device, and nothing else");
  struct kvpool_host_fence fence = {.flags = KVPOOL_FENCE_F_CONFIRMED, .host = 0};
  fence.incarnation = hosts[0].incarnation;
  ok(ioctl(control, KVPOOL_HOST_FENCE, &fence) == 0 && drains_away("pay"),
     "until an operator says that it is off");
}

void test_remove(void) {
  step = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  files();
  freed_meanwhile();
  fill();
  in_process("injected", injected);
  stuck();
  in_process("pulled", pulled);
  in_process("unplugged", unplugged);
  ok(release_soon(), "it can be released");
  held_after_release();
  ok(release_soon(), "released");
  ok(alive("partitions") == 0 && alive("slices") == 0 && alive("members") == 0 &&
         alive("reachers") == 0 && alive("descriptors") == 1,
     "nothing is left but the control node's descriptor: %d %d %d %d %d", alive("partitions"),
     alive("slices"), alive("members"), alive("reachers"), alive("descriptors"));
  close_control();
  ok(unload_driver() == 0, "and unloaded");
}
