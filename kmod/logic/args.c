// SPDX-License-Identifier: GPL-2.0-only
#include "args.h"

#include "geometry.h"
#include "lease.h"

#define COMMAND(word, member, where, who, back, known)                                             \
	{                                                                                          \
		.name = #word, .number = (word) & 0xff,                                            \
		.bytes = sizeof(((union kvpool_args *)0)->member), .nodes = (where),               \
		.right = KVPOOL_RIGHT_##who, .writes = (back), .flags = (known),                   \
	}
#define CONTROL KVPOOL_NODE_CONTROL
#define PARTITION KVPOOL_NODE_PARTITION

const struct kvpool_command kvpool_commands[] = {
	COMMAND(KVPOOL_GET_INFO, info, CONTROL | PARTITION, OPEN, 1, 0),
	COMMAND(KVPOOL_CLAIM, claim, CONTROL, ADMIN, 1,
		KVPOOL_CLAIM_F_LABEL | KVPOOL_CLAIM_F_FORCE),
	COMMAND(KVPOOL_RELEASE, release, CONTROL, ADMIN, 0, 0),
	COMMAND(KVPOOL_ADMIN, admin, CONTROL, ADMIN, 1, 0),
	COMMAND(KVPOOL_PARTITION_CREATE, create, CONTROL, ADMIN, 1, 0),
	COMMAND(KVPOOL_PARTITION_DESTROY, destroy, CONTROL, ADMIN, 0, KVPOOL_DESTROY_F_FORCE),
	COMMAND(KVPOOL_LIST, list, CONTROL | PARTITION, OPEN, 1, 0),
	COMMAND(KVPOOL_HOST_FENCE, fence, CONTROL, ADMIN, 0, KVPOOL_FENCE_F_CONFIRMED),
	COMMAND(KVPOOL_REVOKE, revoke, CONTROL, ADMIN, 0, 0),
	COMMAND(KVPOOL_POISON, poison, CONTROL, ADMIN, 0, 0),
	COMMAND(KVPOOL_PARTITION_GROW, grow, CONTROL, ADMIN, 1, 0),
	COMMAND(KVPOOL_PARTITION_SHRINK, shrink, CONTROL, ADMIN, 1, KVPOOL_SHRINK_F_FORCE),
	COMMAND(KVPOOL_SLICE_QUIET, slice_quiet, CONTROL, ADMIN, 0, KVPOOL_SLICE_QUIET_F_CONFIRMED),
	COMMAND(KVPOOL_DEVICE_WATCH, watch, CONTROL, ADMIN, 0, 0),
	COMMAND(KVPOOL_JOIN, join, PARTITION, OPEN, 1, KVPOOL_JOIN_F_ZERO_PAGE),
	COMMAND(KVPOOL_RENEW, renew, PARTITION, MEMBER, 1, 0),
	COMMAND(KVPOOL_POPULATE, populate, PARTITION, MEMBER, 1, 0),
	COMMAND(KVPOOL_MAPPING, mapping, PARTITION, MEMBER, 1, 0),
	COMMAND(KVPOOL_QUIET, quiet, PARTITION, MEMBER, 0, 0),
};
const u32 kvpool_command_count = sizeof(kvpool_commands) / sizeof(kvpool_commands[0]);

const struct kvpool_command *kvpool_command_find(u32 number, u32 node)
{
	u32 i;

	for (i = 0; i < kvpool_command_count; i++)
		if (kvpool_commands[i].number == number)
			return kvpool_commands[i].nodes & node ? &kvpool_commands[i] : NULL;
	return NULL;
}

static bool name_length_good(u32 length)
{
	return length && length < KVPOOL_NAME_BYTES;
}

static bool claim_good(const struct kvpool_claim *claim)
{
	bool label = claim->flags & KVPOOL_CLAIM_F_LABEL;
	u32 i, set = 0;

	for (i = 0; i < sizeof(claim->uuid); i++)
		set |= claim->uuid[i];
	if (claim->pad || !claim->range_count || claim->range_count > KVPOOL_DEVICE_COUNT_MAX ||
	    claim->host >= KVPOOL_HOST_COUNT_MAX)
		return false;
	if (!label)
		return !(claim->flags & KVPOOL_CLAIM_F_FORCE) && !claim->host_count;
	return set && claim->host < claim->host_count && claim->host_count <= KVPOOL_HOST_COUNT_MAX;
}

static bool list_good(const struct kvpool_list *list)
{
	return !list->pad && list->kind >= KVPOOL_LIST_DEVICES &&
	       list->kind <= KVPOOL_LIST_MEMBERS && list->item_bytes && list->item_bytes <= 4096 &&
	       list->count <= 1u << 20;
}

int kvpool_args_check(const struct kvpool_command *command, const union kvpool_args *args)
{
	bool good = true;

	if (args->flags & ~command->flags)
		return -EINVAL;
	switch (command->number) {
	case KVPOOL_CLAIM & 0xff:
		good = claim_good(&args->claim);
		break;
	case KVPOOL_PARTITION_CREATE & 0xff:
		good = !args->create.pad && args->create.bytes &&
		       args->create.type <= KVPOOL_TYPE_UC_MINUS &&
		       args->create.ddio <= KVPOOL_DDIO_REQUIRE_NONALLOCATING &&
		       name_length_good(args->create.name_len);
		break;
	case KVPOOL_PARTITION_DESTROY & 0xff:
		good = !args->destroy.pad && name_length_good(args->destroy.name_len);
		break;
	case KVPOOL_LIST & 0xff:
		good = list_good(&args->list);
		break;
	case KVPOOL_HOST_FENCE & 0xff:
		good = args->flags == KVPOOL_FENCE_F_CONFIRMED && !args->fence.pad &&
		       args->fence.incarnation && args->fence.host < KVPOOL_HOST_COUNT_MAX;
		break;
	case KVPOOL_REVOKE & 0xff:
		good = args->revoke.incarnation != 0;
		break;
	case KVPOOL_POISON & 0xff:
		good = !args->poison.pad && args->poison.device < KVPOOL_DEVICE_COUNT_MAX &&
		       args->poison.bytes && args->poison.bytes <= KVPOOL_LEAF_BYTES &&
		       args->poison.device_offset <= 1ull << 45;
		break;
	case KVPOOL_PARTITION_GROW & 0xff:
		good = args->grow.bytes && name_length_good(args->grow.name_len);
		break;
	case KVPOOL_PARTITION_SHRINK & 0xff:
		good = !args->shrink.pad && name_length_good(args->shrink.name_len) &&
		       args->shrink.slice_count <= KVPOOL_SHRINK_SLICES_MAX &&
		       !args->shrink.slice_count == !!args->shrink.bytes;
		break;
	case KVPOOL_SLICE_QUIET & 0xff:
		good = args->flags == KVPOOL_SLICE_QUIET_F_CONFIRMED && !args->slice_quiet.pad &&
		       args->slice_quiet.incarnation && args->slice_quiet.slice;
		break;
	case KVPOOL_DEVICE_WATCH & 0xff:
		good = args->watch.device < KVPOOL_DEVICE_COUNT_MAX && args->watch.domain <= 0xffff &&
		       args->watch.bus <= 0xff && args->watch.devfn <= 0xff;
		break;
	case KVPOOL_JOIN & 0xff:
		good = args->join.fd_count <= KVPOOL_JOIN_FDS_MAX &&
		       kvpool_lease_ns(args->join.lease_ms);
		break;
	case KVPOOL_POPULATE & 0xff:
		good = args->populate.bytes &&
		       args->populate.address + args->populate.bytes > args->populate.address &&
		       !((args->populate.address | args->populate.bytes) & 4095);
		break;
	case KVPOOL_QUIET & 0xff:
		good = args->quiet.incarnation != 0;
		break;
	default:
		break;
	}
	return good ? 0 : -EINVAL;
}

int kvpool_ranges_check(const struct kvpool_range *ranges, u32 count, u32 *ret_range,
			u32 *ret_reason)
{
	u32 i, j;

	for (i = 0; i < count; i++) {
		const struct kvpool_range *range = &ranges[i];

		*ret_range = i;
		if (range->start < 4ull << 30) {
			*ret_reason = KVPOOL_REFUSED_BELOW_4G;
			return -EINVAL;
		}
		if ((range->start | range->bytes) & (KVPOOL_LEAF_BYTES - 1)) {
			*ret_reason = KVPOOL_REFUSED_UNALIGNED;
			return -EINVAL;
		}
		if (!range->bytes || range->bytes != ranges[0].bytes ||
		    range->start + range->bytes < range->start || range->bytes > 1ull << 45) {
			*ret_reason = KVPOOL_REFUSED_SIZE;
			return -EINVAL;
		}
		for (j = 0; j < i; j++) {
			if (range->start >= ranges[j].start + ranges[j].bytes ||
			    ranges[j].start >= range->start + range->bytes)
				continue;
			*ret_reason = KVPOOL_REFUSED_OVERLAP;
			return -EINVAL;
		}
	}
	return 0;
}
