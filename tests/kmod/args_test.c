// SPDX-License-Identifier: Apache-2.0
// Shows: arguments of ioctls are refused for each field that is wrong, and taken otherwise. How: a
// right set of arguments for every command, with one field changed at a time.
#include "support.h"

#include <criterion/criterion.h>

#include "logic/args.h"

static int check(unsigned long word, const union kvpool_args *args) {
  const struct kvpool_command *command = kvpool_command_find(_IOC_NR(word), 3);
  cr_assert(command != NULL);
  return kvpool_args_check(command, args);
}

Test(args, every_command_stands_once_and_refuses_unknown_flags) {
  for (u32 i = 0; i < kvpool_command_count; i++) {
    const struct kvpool_command *command = &kvpool_commands[i];
    cr_expect_eq(kvpool_command_find(command->number, command->nodes), command);
    cr_expect_eq(kvpool_command_find(command->number, 3 & ~command->nodes), NULL);
    cr_expect(command->bytes % 8 == 0 && command->bytes >= 8);
    cr_expect(!command->writes || command->bytes > 8);
    for (u32 k = 0; k < i; k++) cr_expect_neq(kvpool_commands[k].number, command->number);
    for (u32 bit = 0; bit < 64; bit++) {
      union kvpool_args args = {.flags = 1ull << bit};
      if (args.flags & command->flags) continue;
      cr_expect_eq(kvpool_args_check(command, &args), -EINVAL, "%s bit %u", command->name, bit);
    }
  }
  cr_expect_eq(kvpool_command_find(0x7f, 3), NULL);
}

Test(args, claim) {
  union kvpool_args good = {0}, args;
  good.claim.range_count = 2;
  good.claim.host = 3;
  cr_expect_eq(check(KVPOOL_CLAIM, &good), 0);
#define WRONG(word, change)                             \
  do {                                                  \
    args = good;                                        \
    change;                                             \
    cr_expect_eq(check(word, &args), -EINVAL, #change); \
  } while (0)
  WRONG(KVPOOL_CLAIM, args.claim.range_count = 0);
  WRONG(KVPOOL_CLAIM, args.claim.range_count = 65);
  WRONG(KVPOOL_CLAIM, args.claim.host = 64);
  WRONG(KVPOOL_CLAIM, args.claim.pad = 1);
  WRONG(KVPOOL_CLAIM, args.claim.host_count = 4);
  WRONG(KVPOOL_CLAIM, args.claim.flags = KVPOOL_CLAIM_F_FORCE);
  good.claim.flags = KVPOOL_CLAIM_F_LABEL;
  good.claim.host_count = 4;
  good.claim.uuid[15] = 1;
  cr_expect_eq(check(KVPOOL_CLAIM, &good), 0);
  WRONG(KVPOOL_CLAIM, args.claim.host_count = 0);
  WRONG(KVPOOL_CLAIM, args.claim.host_count = 3);
  WRONG(KVPOOL_CLAIM, args.claim.host_count = 65);
  WRONG(KVPOOL_CLAIM, args.claim.uuid[15] = 0);
}

Test(args, others) {
  union kvpool_args good = {0}, args;
  good.create.bytes = 64 << 20;
  good.create.name_len = 3;
  cr_expect_eq(check(KVPOOL_PARTITION_CREATE, &good), 0);
  WRONG(KVPOOL_PARTITION_CREATE, args.create.bytes = 0);
  WRONG(KVPOOL_PARTITION_CREATE, args.create.name_len = 0);
  WRONG(KVPOOL_PARTITION_CREATE, args.create.name_len = 32);
  WRONG(KVPOOL_PARTITION_CREATE, args.create.type = 3);
  WRONG(KVPOOL_PARTITION_CREATE, args.create.ddio = 2);
  WRONG(KVPOOL_PARTITION_CREATE, args.create.pad = 1);
  memset(&good, 0, sizeof good);
  good.list.kind = KVPOOL_LIST_MEMBERS;
  good.list.item_bytes = 8;
  cr_expect_eq(check(KVPOOL_LIST, &good), 0);
  WRONG(KVPOOL_LIST, args.list.kind = 0);
  WRONG(KVPOOL_LIST, args.list.kind = 6);
  WRONG(KVPOOL_LIST, args.list.item_bytes = 0);
  WRONG(KVPOOL_LIST, args.list.item_bytes = 4097);
  WRONG(KVPOOL_LIST, args.list.count = 0xffffffff);
  WRONG(KVPOOL_LIST, args.list.pad = 1);
  memset(&good, 0, sizeof good);
  good.fence.flags = KVPOOL_FENCE_F_CONFIRMED;
  good.fence.incarnation = 1;
  cr_expect_eq(check(KVPOOL_HOST_FENCE, &good), 0);
  WRONG(KVPOOL_HOST_FENCE, args.fence.flags = 0);
  WRONG(KVPOOL_HOST_FENCE, args.fence.incarnation = 0);
  WRONG(KVPOOL_HOST_FENCE, args.fence.host = 64);
  WRONG(KVPOOL_HOST_FENCE, args.fence.pad = 1);
  memset(&good, 0, sizeof good);
  good.poison.bytes = 64;
  cr_expect_eq(check(KVPOOL_POISON, &good), 0);
  WRONG(KVPOOL_POISON, args.poison.bytes = 0);
  WRONG(KVPOOL_POISON, args.poison.bytes = (2 << 20) + 1);
  WRONG(KVPOOL_POISON, args.poison.device = 64);
  WRONG(KVPOOL_POISON, args.poison.pad = 1);
  WRONG(KVPOOL_POISON, args.poison.device_offset = ~0ull);
  memset(&good, 0, sizeof good);
  good.grow.bytes = 64 << 20;
  good.grow.name_len = 3;
  cr_expect_eq(check(KVPOOL_PARTITION_GROW, &good), 0);
  WRONG(KVPOOL_PARTITION_GROW, args.grow.bytes = 0);
  WRONG(KVPOOL_PARTITION_GROW, args.grow.name_len = 0);
  WRONG(KVPOOL_PARTITION_GROW, args.grow.name_len = 32);
  memset(&good, 0, sizeof good);
  good.shrink.bytes = 64 << 20;
  good.shrink.name_len = 3;
  cr_expect_eq(check(KVPOOL_PARTITION_SHRINK, &good), 0);
  WRONG(KVPOOL_PARTITION_SHRINK, args.shrink.bytes = 0);
  WRONG(KVPOOL_PARTITION_SHRINK, args.shrink.slice_count = 1);
  WRONG(KVPOOL_PARTITION_SHRINK, args.shrink.name_len = 32);
  WRONG(KVPOOL_PARTITION_SHRINK, args.shrink.pad = 1);
  good.shrink.bytes = 0;
  good.shrink.slice_count = KVPOOL_SHRINK_SLICES_MAX;
  good.flags = KVPOOL_SHRINK_F_FORCE;
  cr_expect_eq(check(KVPOOL_PARTITION_SHRINK, &good), 0);
  WRONG(KVPOOL_PARTITION_SHRINK, args.shrink.slice_count++);
  memset(&good, 0, sizeof good);
  good.flags = KVPOOL_SLICE_QUIET_F_CONFIRMED;
  good.slice_quiet.incarnation = 1;
  good.slice_quiet.slice = 2;
  cr_expect_eq(check(KVPOOL_SLICE_QUIET, &good), 0);
  WRONG(KVPOOL_SLICE_QUIET, args.flags = 0);
  WRONG(KVPOOL_SLICE_QUIET, args.slice_quiet.incarnation = 0);
  WRONG(KVPOOL_SLICE_QUIET, args.slice_quiet.slice = 0);
  WRONG(KVPOOL_SLICE_QUIET, args.slice_quiet.pad = 1);
  memset(&good, 0, sizeof good);
  good.watch.device = KVPOOL_DEVICE_COUNT_MAX - 1;
  good.watch.domain = 0xffff;
  good.watch.bus = good.watch.devfn = 0xff;
  cr_expect_eq(check(KVPOOL_DEVICE_WATCH, &good), 0);
  WRONG(KVPOOL_DEVICE_WATCH, args.watch.device++);
  WRONG(KVPOOL_DEVICE_WATCH, args.watch.domain++);
  WRONG(KVPOOL_DEVICE_WATCH, args.watch.bus++);
  WRONG(KVPOOL_DEVICE_WATCH, args.watch.devfn++);
  memset(&good, 0, sizeof good);
  good.join.lease_ms = 100;
  cr_expect_eq(check(KVPOOL_JOIN, &good), 0);
  WRONG(KVPOOL_JOIN, args.join.lease_ms = 99);
  WRONG(KVPOOL_JOIN, args.join.fd_count = 33);
  memset(&good, 0, sizeof good);
  good.populate.address = 4096;
  good.populate.bytes = 8192;
  cr_expect_eq(check(KVPOOL_POPULATE, &good), 0);
  WRONG(KVPOOL_POPULATE, args.populate.bytes = 0);
  WRONG(KVPOOL_POPULATE, args.populate.bytes = 100);
  WRONG(KVPOOL_POPULATE, args.populate.address = 100);
  WRONG(KVPOOL_POPULATE, args.populate.bytes = ~4095ull);
  memset(&good, 0, sizeof good);
  cr_expect_eq(check(KVPOOL_QUIET, &good), -EINVAL);
  cr_expect_eq(check(KVPOOL_REVOKE, &good), -EINVAL);
}

Test(args, ranges) {
  const u64 gib = 1ull << 30;
  struct kvpool_range good[3] = {{4 * gib, gib}, {8 * gib, gib}, {5 * gib, gib}}, ranges[3];
  u32 range = 9, reason = 0;
  cr_expect_eq(kvpool_ranges_check(good, 3, &range, &reason), 0);
#define RANGE(change, why, which)                                                    \
  do {                                                                               \
    memcpy(ranges, good, sizeof ranges);                                             \
    change;                                                                          \
    cr_expect_eq(kvpool_ranges_check(ranges, 3, &range, &reason), -EINVAL, #change); \
    cr_expect_eq(reason, why, #change);                                              \
    cr_expect_eq(range, which, #change);                                             \
  } while (0)
  RANGE(ranges[1].start = 3 * gib, KVPOOL_REFUSED_BELOW_4G, 1);
  RANGE(ranges[2].start += 4096, KVPOOL_REFUSED_UNALIGNED, 2);
  RANGE(ranges[0].bytes += 4096, KVPOOL_REFUSED_UNALIGNED, 0);
  RANGE(ranges[1].bytes = 2 * gib, KVPOOL_REFUSED_SIZE, 1);
  RANGE(ranges[0].bytes = 0, KVPOOL_REFUSED_SIZE, 0);
  RANGE(ranges[2].start = ~0ull << 29, KVPOOL_REFUSED_SIZE, 2);
  RANGE(ranges[2].start = 4 * gib + (512ull << 20), KVPOOL_REFUSED_OVERLAP, 2);
  RANGE(ranges[2].start = 8 * gib, KVPOOL_REFUSED_OVERLAP, 2);
}
