/* SPDX-License-Identifier: GPL-2.0-only */
/* A descriptor's events until they are read: so many, and then the oldest goes and is counted. */
#ifndef KVPOOL_LOGIC_EVENTS_H
#define KVPOOL_LOGIC_EVENTS_H

#include "env.h"

#include <linux/kvpool.h>

struct kvpool_ring {
	struct kvpool_event_record *events;
	u32 room;
	u32 first;
	u32 count;
	u32 lost; /* since the last one that was read */
};

void kvpool_ring_push(struct kvpool_ring *ring, const struct kvpool_event_record *event);
/* The oldest, which says how many went before it; false: there is none. */
bool kvpool_ring_pop(struct kvpool_ring *ring, struct kvpool_event_record *event);
/* One that was taken and did not arrive is lost, with what it stood for. */
void kvpool_ring_lose(struct kvpool_ring *ring, const struct kvpool_event_record *event);

#endif
