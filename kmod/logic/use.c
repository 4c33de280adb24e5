// SPDX-License-Identifier: GPL-2.0-only
#include "use.h"

void kvpool_use_make(const u8 *bits, u32 host, u32 index, u64 incarnation, u64 sequence,
		     union kvpool_line *line)
{
	memset(line, 0, sizeof(*line));
	line->use.magic = cpu_to_le32(KVPOOL_MAGIC_USE);
	line->use.host = cpu_to_le16(host);
	line->use.index = cpu_to_le16(index);
	line->use.incarnation = cpu_to_le64(incarnation);
	line->use.sequence = cpu_to_le64(sequence);
	memcpy(line->use.bits, bits, sizeof(line->use.bits));
}

void kvpool_use_merge(struct kvpool_use_view *view, const union kvpool_line *copy, u32 host,
		      u32 unit)
{
	u64 incarnation = le64_to_cpu(copy->use.incarnation);
	u32 use;

	if (le16_to_cpu(copy->use.host) != host ||
	    le16_to_cpu(copy->use.index) != unit / KVPOOL_USE_UNITS_PER_LINE)
		return;
	use = kvpool_use_get(copy->use.bits, unit % KVPOOL_USE_UNITS_PER_LINE);
	/* Between the copies of one writing the stronger word counts. */
	if (!view->copies || use > view->use) {
		view->use = use;
		view->incarnation = incarnation;
	}
	view->copies++;
}

bool kvpool_host_is_out(const struct kvpool_host_view *host, const struct kvpool_use_view *use)
{
	if (!host->readable)
		return false;
	if (host->state == KVPOOL_HOST_NEVER || host->state == KVPOOL_HOST_LEFT)
		return true;
	if (host->fenced && host->fenced == host->incarnation)
		return true;
	/* A host that has lost one device with lines writes the other copy alone: which, none knows. */
	if (use->copies < 2)
		return false;
	return use->use == KVPOOL_USE_NONE || use->incarnation != host->incarnation;
}

void kvpool_host_line_read(struct kvpool_host_view *view, const union kvpool_line *copy, u32 host)
{
	u32 state = le16_to_cpu(copy->host.state);
	u64 heartbeat = le64_to_cpu(copy->host.heartbeat);

	if (le16_to_cpu(copy->host.host) != host || state < KVPOOL_HOST_NEVER ||
	    state > KVPOOL_HOST_GONE)
		return;
	/* Heartbeats go on over incarnations, so the higher one is the newer copy. */
	if (view->readable && view->heartbeat >= heartbeat)
		return;
	view->readable = true;
	view->state = state;
	view->incarnation = le64_to_cpu(copy->host.incarnation);
	view->heartbeat = heartbeat;
	view->boot_nonce = le64_to_cpu(copy->host.boot_nonce);
}
