// SPDX-License-Identifier: Apache-2.0
// Shows: partitions come and go, with the memory type they were made with, on units that were
// scrubbed. How: create, list, destroy; the bytes of a former tenant looked for in the next one.
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
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
  for (uint64_t at = 0; at < UNIT; at += 64) *found |= word_at(store.data + at);
  store_close(&store);
  return *found != 0;
}

static void a_reader_of_nodes(void) {
  struct stat about;
  ok(stat("/dev/kvpool-pay", &about) == 0 && S_ISCHR(about.st_mode) &&
         (about.st_mode & 0777) == 0600,
     "a node is root's until somebody gives it away");
}

// The attributes there are, beside those of every device: as Documentation/ABI says, and no other.
static bool attribute_is(const char *device, const char *name, const char *wanted) {
  char path[128], value[128] = "";
  snprintf(path, sizeof path, "/sys/class/kvpool/%s/%s", device, name);
  FILE *file = fopen(path, "r");
  if (!file) return false;
  const bool read = fgets(value, sizeof value, file) != NULL;
  fclose(file);
  value[strcspn(value, "\n")] = 0;
  if (read && wanted && strcmp(value, wanted)) printf("# %s: %s\n", path, value);
  return read && (!wanted || !strcmp(value, wanted));
}

static int count_attributes(const char *device) {
  static const char *const common[] = {
      ".", "..", "dev", "power", "subsystem", "uevent", "waiting_for_supplier"};
  char path[128];
  int count = 0;
  snprintf(path, sizeof path, "/sys/class/kvpool/%s", device);
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    bool known = false;
    for (unsigned i = 0; i < sizeof common / sizeof common[0]; i++)
      known = known || !strcmp(entry->d_name, common[i]);
    count += !known;
  }
  if (folder) closedir(folder);
  return count;
}

static void attributes(void) {
  static const char *const pool[] = {"health",      "uuid",          "host",
                                     "incarnation", "administrator", "table_generation",
                                     "lines_read",  "lines_written"};
  static const char *const part[] = {"partition_uuid", "state",   "bytes",    "type_requested",
                                     "type_obtained",  "members", "reachers", "poisoned_pages"};
  for (unsigned i = 0; i < 8; i++) {
    ok(attribute_is("kvpool", pool[i], NULL), "attribute %s of the pool", pool[i]);
    ok(attribute_is("kvpool-pay", part[i], NULL), "attribute %s of a partition", part[i]);
  }
  ok(count_attributes("kvpool") == 8 && count_attributes("kvpool-pay") == 8, "and no other: %d, %d",
     count_attributes("kvpool"), count_attributes("kvpool-pay"));
  ok(attribute_is("kvpool", "health", "good") && attribute_is("kvpool", "host", "1") &&
         attribute_is("kvpool-pay", "state", "idle") &&
         attribute_is("kvpool-pay", "type_requested", "write-combining") &&
         attribute_is("kvpool-pay", "type_obtained", "none") &&
         attribute_is("kvpool-pay", "bytes", "268435456"),
     "they say what is so");
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
  attributes();
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
