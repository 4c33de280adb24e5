/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The one table of ioctls: node, right, flags, and the checks that need nothing but the
 * arguments.
 */
#ifndef KVPOOL_LOGIC_ARGS_H
#define KVPOOL_LOGIC_ARGS_H

#include "env.h"

#include <linux/kvpool.h>

#define KVPOOL_NODE_CONTROL 1
#define KVPOOL_NODE_PARTITION 2

#define KVPOOL_RIGHT_OPEN 0 /* whoever has the descriptor */
#define KVPOOL_RIGHT_ADMIN 1 /* CAP_SYS_ADMIN in the first user namespace */
#define KVPOOL_RIGHT_MEMBER 2 /* the joined process itself */

struct kvpool_command {
	const char *name;
	u32 number;
	u32 bytes; /* of the structure as this driver knows it */
	u32 nodes;
	u32 right;
	u32 writes; /* the structure is copied back */
	u64 flags; /* known */
};

union kvpool_args {
	__u64 flags;
	struct kvpool_info info;
	struct kvpool_claim claim;
	struct kvpool_release release;
	struct kvpool_admin admin;
	struct kvpool_partition_create create;
	struct kvpool_partition_destroy destroy;
	struct kvpool_list list;
	struct kvpool_host_fence fence;
	struct kvpool_revoke revoke;
	struct kvpool_poison poison;
	struct kvpool_partition_grow grow;
	struct kvpool_partition_shrink shrink;
	struct kvpool_slice_quiet slice_quiet;
	struct kvpool_device_watch watch;
	struct kvpool_join join;
	struct kvpool_renew renew;
	struct kvpool_populate populate;
	struct kvpool_mapping mapping;
	struct kvpool_quiet quiet;
};

extern const struct kvpool_command kvpool_commands[];
extern const u32 kvpool_command_count;

/* NULL: no such command on this node. */
const struct kvpool_command *kvpool_command_find(u32 number, u32 node);
/* Flags, reserved fields, ranges. 0 or -EINVAL. */
int kvpool_args_check(const struct kvpool_command *command, const union kvpool_args *args);
/* Ranges of one claim: aligned, at or above 4 GiB, of one size, apart. */
int kvpool_ranges_check(const struct kvpool_range *ranges, u32 count, u32 *ret_range,
			u32 *ret_reason);

#endif
