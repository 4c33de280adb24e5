// SPDX-License-Identifier: Apache-2.0
// Shows: partitions come and go, with the memory type they were made with, on units that were
// scrubbed. How: create, list, destroy; the bytes of a former tenant looked for in the next one.
#define _GNU_SOURCE
#include "guest.h"

#include <sys/stat.h>

static void names(void) {
  static const char *const bad[] = {"A", "-a", "a b", "a/b", "a.b", "\xc3\xa4", "a_b"};
  for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    fails(create(bad[i], UNIT, KVPOOL_TYPE_WB), EINVAL, "a partition called '%s'", bad[i]);
  }
  fails(create("abcdefghijklmnopqrstuvwxyz-123456", UNIT, 0), EINVAL, "a name of 33 letters");
  struct kvpool_partition_create create = {.bytes = UNIT, .name_len = 3};
  create.name = 8;
  fails(ioctl(control, KVPOOL_PARTITION_CREATE, &create), EFAULT, "a name that is nowhere");
}

// Writes a pattern into the partition's data, as a member that leaves again.
static int stain(void *arg) {
  struct store store;
  (void)arg;
  if (store_open(&store) || store_join(&store, 0, 60000) || store_map(&store)) return 1;
  for (uint64_t at = 0; at < UNIT; at += 4096) {
    if (touch_write(store.data + at, 0x5a5a5a5a00000000ull | at)) return 2;
  }
  store_close(&store);
  return 0;
}

static int find_stain(void *arg) {
  struct store store;
  uint64_t *found = arg;
  if (store_open(&store) || store_join(&store, 0, 60000) || store_map(&store)) return 1;
  for (uint64_t at = 0; at < UNIT; at += 8) *found |= word_at(store.data + at);
  store_close(&store);
  return *found != 0;
}

static void a_reader_of_nodes(void) {
  struct stat about;
  ok(stat("/dev/kvpool-pay", &about) == 0 && S_ISCHR(about.st_mode) &&
         (about.st_mode & 0777) == 0600,
     "a node is root's until somebody gives it away");
}

void test_partitions(void) {
  names();
  fails(create("ctl", UNIT, KVPOOL_TYPE_WB), EEXIST, "the same name twice");
  fails(create("big", 100 * UNIT, KVPOOL_TYPE_WC), ENOSPC, "larger than the pool");
  fails(create("odd", UNIT + 4096, KVPOOL_TYPE_WC), EINVAL, "not a multiple of the unit");
  fails(create("odd", UNIT, 3), EINVAL, "a memory type that there is not");
  const uint64_t free_before = info().free_units;
  ok(create("pay", 4 * UNIT, KVPOOL_TYPE_WC) == 0, "a payload partition, write-combining");
  ok(create("dev", UNIT, KVPOOL_TYPE_UC_MINUS) == 0, "one for devices, uncached");
  ok(info().free_units == free_before - 5, "five units less are free");
  a_reader_of_nodes();
  struct kvpool_item_partition pay = partition("pay");
  ok(pay.bytes == 4 * UNIT && pay.type_requested == KVPOOL_TYPE_WC && !pay.attached &&
         pay.state == KVPOOL_PARTITION_ACTIVE,
     "it is listed");
  const int fd = node("pay", O_RDWR);
  struct kvpool_item_slice slices[8];
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof slices[0], .count = 8};
  list.items = (uintptr_t)slices;
  ok(ioctl(fd, KVPOOL_LIST, &list) == 0 && list.ret_count == 2 &&
         slices[0].device != slices[1].device && slices[0].bytes == 2 * UNIT,
     "its slices lie on both devices, and no other partition's are shown");
  fails(ioctl(fd, KVPOOL_JOIN, &(struct kvpool_join){0}), EMEDIUMTYPE, "JOIN on a payload node");
  close(fd);

  ok(in_child(stain, NULL) == 0, "a member fills the payload and leaves");
  fails(release_pool(), EBUSY, "no release while it may still reach it");
  ok(destroy("pay", 0) == 0, "its partition is destroyed");
  fails(destroy("nothing", 0), ENOENT, "destroying what is not there");
  ok(partition("pay").state == KVPOOL_PARTITION_DRAINING || !partition("pay").id, "it drains");
  ok(wait_gone("pay"), "and is gone when nothing can reach it");
  ok(access("/dev/kvpool-pay", F_OK) == -1, "with its node");
  ok(create("pay", 4 * UNIT, KVPOOL_TYPE_WC) == 0, "the same name again, on the same units");
  uint64_t found = 0;
  ok(in_child(find_stain, &found) == 0, "no byte of the former tenant is in it");
}
