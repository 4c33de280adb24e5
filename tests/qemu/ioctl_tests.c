// SPDX-License-Identifier: Apache-2.0
// Shows: every ioctl keeps to its node, its right, its size and its flags. How: one table of
// commands, written down here independently of the driver's, each called in every wrong way.
#define _GNU_SOURCE
#include "guest.h"

struct command {
  const char *name;
  unsigned long word;
  bool control, partition; /* nodes */
  bool admin, member;      /* rights */
};

#define CONTROL true, false
#define PARTITION false, true
#define BOTH true, true
static const struct command commands[] = {
    {"GET_INFO", KVPOOL_GET_INFO, BOTH, false, false},
    {"CLAIM", KVPOOL_CLAIM, CONTROL, true, false},
    {"RELEASE", KVPOOL_RELEASE, CONTROL, true, false},
    {"ADMIN", KVPOOL_ADMIN, CONTROL, true, false},
    {"PARTITION_CREATE", KVPOOL_PARTITION_CREATE, CONTROL, true, false},
    {"PARTITION_DESTROY", KVPOOL_PARTITION_DESTROY, CONTROL, true, false},
    {"LIST", KVPOOL_LIST, BOTH, false, false},
    {"HOST_FENCE", KVPOOL_HOST_FENCE, CONTROL, true, false},
    {"REVOKE", KVPOOL_REVOKE, CONTROL, true, false},
    {"POISON", KVPOOL_POISON, CONTROL, true, false},
    {"PARTITION_GROW", KVPOOL_PARTITION_GROW, CONTROL, true, false},
    {"PARTITION_SHRINK", KVPOOL_PARTITION_SHRINK, CONTROL, true, false},
    {"SLICE_QUIET", KVPOOL_SLICE_QUIET, CONTROL, true, false},
    {"DEVICE_WATCH", KVPOOL_DEVICE_WATCH, CONTROL, true, false},
    {"JOIN", KVPOOL_JOIN, PARTITION, false, false},
    {"RENEW", KVPOOL_RENEW, PARTITION, false, true},
    {"POPULATE", KVPOOL_POPULATE, PARTITION, false, true},
    {"MAPPING", KVPOOL_MAPPING, PARTITION, false, true},
    {"QUIET", KVPOOL_QUIET, PARTITION, false, true},
};
enum { kCount = sizeof commands / sizeof commands[0] };

static unsigned long with_size(unsigned long word, unsigned size) {
  return _IOC(_IOC_DIR(word), _IOC_TYPE(word), _IOC_NR(word), size);
}

static uint8_t buffer[4096] __attribute__((aligned(8)));

/* errno of the call with these bytes, 0 if it succeeds. */
static int call(int fd, unsigned long word) { return ioctl(fd, word, buffer) == -1 ? errno : 0; }

static void sizes_and_flags(int fd, const struct command *command) {
  const unsigned size = _IOC_SIZE(command->word);
  memset(buffer, 0, sizeof buffer);
  ok(call(fd, with_size(command->word, 0)) == EINVAL, "%s without a size", command->name);
  ok(call(fd, with_size(command->word, 7)) == EINVAL, "%s without room for flags", command->name);
  memset(buffer, 0, sizeof buffer);
  buffer[7] = 0x80;
  ok(call(fd, command->word) == (command->member ? ENXIO : EINVAL) ||
         call(fd, command->word) == EINVAL,
     "%s with an unknown flag", command->name);
  memset(buffer, 0, sizeof buffer);
  buffer[size + 8] = 1;
  ok(call(fd, with_size(command->word, size + 16)) == E2BIG, "%s with a byte from the future",
     command->name);
  ok(ioctl(fd, command->word, (void *)8) == -1 && errno == EFAULT, "%s with a wild pointer",
     command->name);
}

/* As a user without rights, with descriptors that root opened. */
static int forged(void *arg) {
  const int *fds = arg;
  int bad = 0;
  for (int i = 0; i < kCount; i++) {
    memset(buffer, 0, sizeof buffer);
    if (commands[i].admin && commands[i].control && call(fds[0], commands[i].word) != EPERM) bad++;
    if (commands[i].member && call(fds[1], commands[i].word) == 0) bad++;
  }
  struct kvpool_list list = {.kind = KVPOOL_LIST_DEVICES, .item_bytes = 8};
  if (ioctl(fds[0], KVPOOL_LIST, &list) != -1 || errno != EPERM) bad++;
  if (open("/dev/kvpool", O_RDWR) != -1 || errno != EACCES) bad++;
  if (open("/dev/kvpool-ctl", O_RDWR) != -1 || errno != EACCES) bad++;
  return bad;
}

void test_ioctls(void) {
  ok(create("ctl", UNIT, KVPOOL_TYPE_WB) == 0, "a control partition");
  int fds[2] = {control, node("ctl", O_RDWR)};
  ok(fds[1] >= 0, "its node opens");
  for (int i = 0; i < kCount; i++) {
    const struct command *command = &commands[i];
    memset(buffer, 0, sizeof buffer);
    if (!command->control) {
      ok(call(control, command->word) == ENOTTY, "%s on the control node", command->name);
    }
    if (!command->partition) {
      ok(call(fds[1], command->word) == ENOTTY, "%s on a partition's node", command->name);
    }
    sizes_and_flags(command->control ? control : fds[1], command);
    if (command->member) {
      const int error = call(fds[1], command->word);
      ok(error == ENXIO || error == EINVAL, "%s before JOIN", command->name);
    }
  }
  ok(call(control, _IO(KVPOOL_IOC_MAGIC, 0x7f)) == ENOTTY, "an unknown number");
  ok(call(control, _IOWR(0xD5, 0, struct kvpool_info)) == ENOTTY, "another driver's command");

  memset(buffer, 0xee, sizeof buffer);
  memset(buffer, 0, 8);
  ok(call(control, with_size(KVPOOL_GET_INFO, 24)) == 0 && buffer[24] == 0xee && buffer[16] == 1,
     "a shorter structure gets its part and no byte more");
  memset(buffer, 0, sizeof buffer);
  ok(call(control, with_size(KVPOOL_GET_INFO, sizeof(struct kvpool_info) + 32)) == 0,
     "a longer one of zeros is taken");

  struct kvpool_claim claim = {.range_count = 65};
  fails(ioctl(control, KVPOOL_CLAIM, &claim), EINVAL, "more ranges than devices can be");
  claim.range_count = 1;
  claim.pad = 1;
  fails(ioctl(control, KVPOOL_CLAIM, &claim), EINVAL, "CLAIM with a reserved field");
  struct kvpool_join join = {.fd_count = KVPOOL_JOIN_FDS_MAX + 1};
  fails(ioctl(fds[1], KVPOOL_JOIN, &join), EINVAL, "JOIN with too many descriptors");
  join.fd_count = 0;
  join.lease_ms = 5;
  fails(ioctl(fds[1], KVPOOL_JOIN, &join), EINVAL, "JOIN with a lease that cannot be kept");
  int32_t wrong[1] = {control};
  join.lease_ms = 0;
  join.fds = (uintptr_t)wrong;
  join.fd_count = 1;
  fails(ioctl(fds[1], KVPOOL_JOIN, &join), EINVAL, "JOIN with the control node");
  wrong[0] = 0;
  fails(ioctl(fds[1], KVPOOL_JOIN, &join), EINVAL, "JOIN with another file");
  wrong[0] = 999;
  fails(ioctl(fds[1], KVPOOL_JOIN, &join), EBADF, "JOIN with no descriptor");
  join.fds = 8;
  fails(ioctl(fds[1], KVPOOL_JOIN, &join), EFAULT, "JOIN with a wild list");
  struct kvpool_host_fence fence = {.host = 2, .incarnation = 1};
  fails(ioctl(control, KVPOOL_HOST_FENCE, &fence), EINVAL, "a fence that nobody confirmed");
  fence.flags = KVPOOL_FENCE_F_CONFIRMED;
  fence.host = info().host;
  fails(ioctl(control, KVPOOL_HOST_FENCE, &fence), EINVAL, "a fence around itself");
  fence.host = 2;
  fails(ioctl(control, KVPOOL_HOST_FENCE, &fence), ESTALE, "a fence of another incarnation");
  fails(revoke_member(12345), ESRCH, "REVOKE of nobody");
  ok(as_nobody(forged, fds) == 0, "without rights: nothing that needs them, and no node opens");
  close(fds[1]);
}
