/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a host says it uses, and what proves that it is out. Announce first, read the table
 * after; write the table first, read the announcements after: the other order grants a range
 * that is mapped.
 */
#ifndef KVPOOL_LOGIC_USE_H
#define KVPOOL_LOGIC_USE_H

#include "geometry.h"

static inline u32 kvpool_use_get(const u8 *bits, u32 unit)
{
	return bits[unit / 4] >> (unit % 4 * 2) & 3;
}

static inline void kvpool_use_set(u8 *bits, u32 unit, u32 use)
{
	bits[unit / 4] = (bits[unit / 4] & ~(3u << (unit % 4 * 2))) | use << (unit % 4 * 2);
}

void kvpool_use_make(const u8 *bits, u32 host, u32 index, u64 incarnation, u64 sequence,
		     union kvpool_line *line);

/* A host as its lines told of it. Use lines were read first, the host line after them. */
struct kvpool_host_view {
	bool readable;
	u32 state;
	u64 incarnation;
	u64 heartbeat;
	u64 boot_nonce;
	u64 fenced; /* incarnation that the table says is fenced */
};

/* One of up to two copies that verified; false for a copy that says what its writer never says. */
struct kvpool_use_view {
	u32 copies;
	u32 use; /* the strongest of what the copies say for the unit */
	u64 incarnation; /* of the copy that says so */
};

void kvpool_use_merge(struct kvpool_use_view *view, const union kvpool_line *copy, u32 host,
		      u32 unit);
/*
 * Whether this host is proven out of the unit, by a use line and a host line read after the table
 * said DRAINING. Both copies of the use line count, or none. An incarnation that differs is not
 * the one that used it: it is gone, or it announces only now, and withdraws again when it reads
 * the table.
 */
bool kvpool_host_is_out(const struct kvpool_host_view *host, const struct kvpool_use_view *use);

void kvpool_host_line_read(struct kvpool_host_view *view, const union kvpool_line *copy, u32 host);

#endif
