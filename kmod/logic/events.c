// SPDX-License-Identifier: GPL-2.0-only
#include "events.h"

static void lose(struct kvpool_ring *ring, u32 more)
{
	ring->lost = more > ~0u - ring->lost ? ~0u : ring->lost + more;
}

void kvpool_ring_push(struct kvpool_ring *ring, const struct kvpool_event_record *event)
{
	if (ring->count == ring->room) {
		ring->first = (ring->first + 1) % ring->room;
		ring->count--;
		lose(ring, 1);
	}
	ring->events[(ring->first + ring->count) % ring->room] = *event;
	ring->count++;
}

bool kvpool_ring_pop(struct kvpool_ring *ring, struct kvpool_event_record *event)
{
	if (!ring->count)
		return false;
	*event = ring->events[ring->first];
	event->lost = ring->lost;
	ring->lost = 0;
	ring->first = (ring->first + 1) % ring->room;
	ring->count--;
	return true;
}

void kvpool_ring_lose(struct kvpool_ring *ring, const struct kvpool_event_record *event)
{
	lose(ring, event->lost);
	lose(ring, 1);
}
