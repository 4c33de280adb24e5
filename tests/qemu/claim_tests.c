// SPDX-License-Identifier: Apache-2.0
// Shows: a pool is claimed only from memory that is meant for it, with the labels it should have;
// every refusal names range and reason. How: claims of every wrong range; labels changed in the
// memory itself while nothing is claimed.
#define _GNU_SOURCE
#include "guest.h"

static uint32_t reason, bad_range;
static uint64_t bad_offset;

static int try_claim(uint64_t flags, struct kvpool_range *ranges, uint32_t count) {
  struct kvpool_claim claim = claim_args(flags, ranges, count);
  const int result = ioctl(control, KVPOOL_CLAIM, &claim);
  reason = claim.ret_reason;
  bad_range = claim.ret_bad_range;
  bad_offset = claim.ret_bad_offset;
  return result;
}

static void refused(uint64_t start, uint64_t bytes, int error, uint32_t why, const char *what) {
  struct kvpool_range range = {start, bytes};
  fails(try_claim(KVPOOL_CLAIM_F_LABEL, &range, 1), error, "claim refused: %s", what);
  ok(reason == why, "and the reason is %u: %u", why, reason);
}

// Where the kernel's own memory begins, and a window of a PCI bridge, from /proc/iomem.
static uint64_t iomem(const char *name) {
  char line[256];
  unsigned long long start = 0, end = 0;
  FILE *file = fopen("/proc/iomem", "r");
  while (fgets(line, sizeof line, file)) {
    if (strstr(line, name) && sscanf(line, " %llx-%llx", &start, &end) == 2 && start >= 1ull << 32)
      break;
    start = 0;
  }
  fclose(file);
  return start;
}

void test_load(void) {
  ok(load_driver("heartbeat_ms=100") == 0, "the driver loads");
  ok(access("/dev/kvpool", F_OK) == 0, "the control node is there");
  struct kvpool_info about;
  open_control();
  ok(control >= 0, "and opens");
  about = info();
  ok(about.state == KVPOOL_CLAIM_NONE && about.abi_version == KVPOOL_ABI_VERSION,
     "nothing is claimed by itself");
  ok(!!(about.features & KVPOOL_FEATURE_LEAF_2M) == huge_leaves(),
     "2 MiB leaves as the kernel has");
  fails(release_pool(), ENODEV, "release without a claim");
  fails(take_admin(), ENODEV, "take-over without a claim");
  fails(create("a", UNIT, KVPOOL_TYPE_WB), ENODEV, "create without a claim");
}

void test_claim(void) {
  struct kvpool_range two[DEVICE_COUNT];
  two_devices(two);
  refused(3ull << 30, 256 * MIB, EINVAL, KVPOOL_REFUSED_BELOW_4G, "below 4 GiB");
  refused(POOL_START + 4096, 256 * MIB, EINVAL, KVPOOL_REFUSED_UNALIGNED, "start not aligned");
  refused(POOL_START, 256 * MIB + 4096, EINVAL, KVPOOL_REFUSED_UNALIGNED, "length not aligned");
  refused(POOL_START, 0, EINVAL, KVPOOL_REFUSED_SIZE, "empty");
  refused(~0ull - 2 * MIB + 1, 4 * MIB, EINVAL, KVPOOL_REFUSED_SIZE, "past the end of everything");
  refused(POOL_START + DEVICE_BYTES, DEVICE_BYTES + 64 * MIB, EBUSY, KVPOOL_REFUSED_BUSY,
          "reaching out of the reserved range");
  refused(1ull << 50, 256 * MIB, EBUSY, KVPOOL_REFUSED_BUSY, "where no memory can be");
  refused(POOL_START + 2 * DEVICE_BYTES + 64 * MIB, 128 * MIB, EPERM, KVPOOL_REFUSED_NOT_RESERVED,
          "where nothing is");
  refused(POOL_START, 2 * MIB, EINVAL, KVPOOL_REFUSED_SIZE, "too small for labels and areas");
  const uint64_t window = iomem("PCI Bus");
  if (window) {
    refused(window, 256 * MIB, EBUSY, KVPOOL_REFUSED_PCI, "window of a PCI bridge");
  } else {
    ok(true, "no PCI window above 4 GiB in this guest: %d", 0);
    ok(true, "so none is claimed");
  }
  two[1].start = two[0].start + 64 * MIB;
  fails(try_claim(KVPOOL_CLAIM_F_LABEL, two, 2), EINVAL, "claim refused: ranges overlap");
  ok(reason == KVPOOL_REFUSED_OVERLAP && bad_range == 1, "and the second one is named");
  two_devices(two);
  two[1].bytes -= 64 * MIB;
  fails(try_claim(KVPOOL_CLAIM_F_LABEL, two, 2), EINVAL, "claim refused: devices of two sizes");
  ok(reason == KVPOOL_REFUSED_SIZE, "and the reason is the size");

  two_devices(two);
  fails(try_claim(0, two, 2), ENOMEDIUM, "claim refused: no labels");
  ok(reason == KVPOOL_REFUSED_NO_LABEL && bad_range == 0, "and the first range is named");
  ok(info().state == KVPOOL_CLAIM_NONE, "nothing is claimed after refusals");
  ok(claim_pool(KVPOOL_CLAIM_F_LABEL, 0) == 0, "labelled and claimed");
  struct kvpool_info about = info();
  ok(about.state == KVPOOL_CLAIM_CLAIMED && about.device_count == 2 && about.host_count == HOSTS &&
         about.unit_bytes == UNIT && about.pool_bytes == 2 * DEVICE_BYTES && about.incarnation,
     "INFO tells of the pool");
  ok(about.is_admin && about.admin_host == 0 && about.admin_epoch, "who labels administers");
  ok(about.free_units == 10, "ten units are free: %llu", (unsigned long long)about.free_units);
  fails(claim_pool(0, 0), EEXIST, "a second claim");
  const int mem = open("/dev/mem", O_RDONLY);
  ok(mmap(NULL, 4096, PROT_READ, MAP_SHARED, mem, POOL_START) == MAP_FAILED,
     "/dev/mem cannot map a claimed range");
  close(mem);
}

// A line of the medium, through /dev/mem while nothing is claimed. A claim, even one that is
// refused, takes such mappings away, so each access makes its own.
static uint8_t *open_line(uint64_t address, uint8_t **ret_page) {
  const int mem = open("/dev/mem", O_RDWR | O_SYNC);
  *ret_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mem, address & ~4095ull);
  close(mem);
  return *ret_page == MAP_FAILED ? NULL : *ret_page + (address & 4095);
}

static bool read_line(uint64_t address, uint8_t line[64]) {
  uint8_t *page, *at = open_line(address, &page);
  if (!at) return false;
  memcpy(line, at, 64);
  munmap(page, 4096);
  return true;
}

static void write_line(uint64_t address, const uint8_t line[64]) {
  uint8_t *page, *at = open_line(address, &page);
  if (!at) return;
  memcpy(at, line, 64);
  munmap(page, 4096);
}

void test_labels(void) {
  struct kvpool_range two[DEVICE_COUNT], swapped[DEVICE_COUNT];
  two_devices(two);
  ok(release_pool() == 0, "released");
  ok(info().state == KVPOOL_CLAIM_NONE, "and nothing is claimed");

  fails(try_claim(KVPOOL_CLAIM_F_LABEL, two, 2), EEXIST, "labelled again only by force");
  ok(reason == KVPOOL_REFUSED_LABELLED, "and the reason is the labels");
  fails(try_claim(0, two, 1), ENODEV, "a device is missing");
  ok(reason == KVPOOL_REFUSED_MISSING, "and that is the reason");
  struct kvpool_claim other = claim_args(0, two, 2);
  other.uuid[3] = 9;
  fails(ioctl(control, KVPOOL_CLAIM, &other), EXDEV, "another pool was meant");
  ok(other.ret_reason == KVPOOL_REFUSED_FOREIGN, "and the labels are foreign");

  const uint64_t at = POOL_START + DEVICE_BYTES + 64 * 777, second = POOL_START + DEVICE_BYTES;
  uint8_t keep[64], line[64];
  ok(read_line(at, keep), "the medium can be changed from outside");
  memcpy(line, keep, 64);
  line[0] ^= 1;
  write_line(at, line);
  fails(try_claim(0, two, 2), EXDEV, "a label line is damaged");
  ok(reason == KVPOOL_REFUSED_NO_LABEL && bad_range == 1 && bad_offset == 64 * 777,
     "and the line is named: range %u offset %#llx", bad_range, (unsigned long long)bad_offset);
  read_line(at + 64, line);
  write_line(at, line);
  fails(try_claim(0, two, 2), EXDEV, "a line lies elsewhere than it says");
  ok(reason == KVPOOL_REFUSED_INTERLEAVE && bad_offset == 64 * 777, "another interleave is named");
  write_line(at, keep);

  read_line(second, keep);
  read_line(POOL_START, line);
  write_line(second, line);
  fails(try_claim(0, two, 2), ENOTUNIQ, "a device twice");
  ok(reason == KVPOOL_REFUSED_DUPLICATE && bad_range == 1, "and that is the reason");
  memset(line, 0xff, 64);
  write_line(second, line);
  fails(try_claim(0, two, 2), EIO, "a device that reads all ones");
  ok(reason == KVPOOL_REFUSED_UNREADABLE && bad_range == 1, "is not readable");
  write_line(second, keep);

  swapped[0] = two[1];
  swapped[1] = two[0];
  ok(try_claim(0, swapped, 2) == 0, "ranges in another order are sorted by their labels");
  struct kvpool_item_device devices[2] = {{0}};
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_DEVICES, .item_bytes = sizeof devices[0], .count = 2};
  list.items = (uintptr_t)devices;
  ok(ioctl(control, KVPOOL_LIST, &list) == 0 && list.ret_count == 2 &&
         devices[0].start == POOL_START && devices[1].start == POOL_START + DEVICE_BYTES,
     "device 0 is the one labelled so");
  ok(!info().is_admin, "a new incarnation is no administrator by itself");
  fails(create("a", UNIT, KVPOOL_TYPE_WB), EAGAIN, "and cannot create");
  ok(take_admin() == 0 && info().is_admin, "it takes over");
  ok(release_pool() == 0, "released again");
  fails(claim_pool(0, HOSTS), EINVAL, "a host id that the pool does not have");
  ok(claim_pool(0, 1) == 0, "claimed as another host");
  ok(take_admin() == 0, "which takes over from the first");
}
