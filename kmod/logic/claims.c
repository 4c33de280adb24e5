// SPDX-License-Identifier: GPL-2.0-only
#include "claims.h"

static bool newer(const struct kvpool_claim_view *a, const struct kvpool_claim_view *b)
{
	if (a->claimed != b->claimed)
		return a->claimed > b->claimed;
	if (a->active != b->active)
		return a->active > b->active;
	return a->sequence > b->sequence;
}

void kvpool_claim_merge(struct kvpool_claim_view *view, const union kvpool_line *copy, u32 host)
{
	struct kvpool_claim_view other = {
		.readable = true,
		.claimed = le64_to_cpu(copy->claim.claimed),
		.active = le64_to_cpu(copy->claim.active),
		.generation = le64_to_cpu(copy->claim.generation),
		.sequence = le64_to_cpu(copy->claim.sequence),
		.table = le16_to_cpu(copy->claim.table),
	};

	/*
	 * A line that verifies and still says what its writer never says is treated as
	 * unreadable.
	 */
	if (le16_to_cpu(copy->claim.host) != host || other.table > 1 ||
	    other.active > other.claimed ||
	    (other.claimed && kvpool_epoch_host(other.claimed) != host) ||
	    (other.active && kvpool_epoch_host(other.active) != host))
		return;
	if (!view->readable || newer(&other, view))
		*view = other;
}

void kvpool_claim_make(const struct kvpool_claim_view *view, u32 host, union kvpool_line *line)
{
	memset(line, 0, sizeof(*line));
	line->claim.magic = cpu_to_le32(KVPOOL_MAGIC_CLAIM);
	line->claim.host = cpu_to_le16(host);
	line->claim.table = cpu_to_le16(view->table);
	line->claim.claimed = cpu_to_le64(view->claimed);
	line->claim.active = cpu_to_le64(view->active);
	line->claim.generation = cpu_to_le64(view->generation);
	line->claim.sequence = cpu_to_le64(view->sequence);
}

int kvpool_claims_in_force(const struct kvpool_claim_view *views, u32 count)
{
	u64 highest = 0;
	int found = -ENOENT;
	u32 host;

	for (host = 0; host < count; host++) {
		if (!views[host].readable || views[host].active <= highest)
			continue;
		highest = views[host].active;
		found = host;
	}
	return found;
}

int kvpool_claims_next(const struct kvpool_claim_view *views, u32 count, u32 host, u64 *ret_epoch)
{
	u64 highest = 0, second = 0, counter;
	u32 i;

	for (i = 0; i < count; i++) {
		if (!views[i].readable)
			return -EIO;
		counter = views[i].claimed >> KVPOOL_EPOCH_HOST_BITS;
		if (counter > highest) {
			second = highest;
			highest = counter;
		} else if (counter > second) {
			second = counter;
		}
	}
	if (highest - second > KVPOOL_EPOCH_JUMP_MAX && count > 1)
		return -EUCLEAN;
	*ret_epoch = (highest + 1) << KVPOOL_EPOCH_HOST_BITS | host;
	return 0;
}

void kvpool_bits_bind(u8 *bits, u32 bytes, u64 *bound, u64 epoch)
{
	if (*bound == epoch)
		return;
	memset(bits, 0, bytes);
	*bound = epoch;
}

bool kvpool_claims_outbid(const struct kvpool_claim_view *views, u32 count, u64 epoch)
{
	u32 host;

	for (host = 0; host < count; host++)
		if (!views[host].readable || views[host].claimed > epoch)
			return true;
	return false;
}
