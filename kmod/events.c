// SPDX-License-Identifier: GPL-2.0-only
/*
 * Events by read and poll: each open file of a node has a ring of its own, so that nobody who
 * does not read, and no other tenant, takes an event away from it. The control node hears of
 * everything, a partition's of what concerns it and of the pool. Raised under any lock but this
 * file's own; copied to users under none.
 */
#include <linux/gfp.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

static DEFINE_SPINLOCK(ring_lock);
static LIST_HEAD(listeners); /* ring_lock */
static u64 sequence; /* ring_lock */

int kvpool_events_open(struct kvpool_open *open)
{
	struct kvpool_event_record *events = (void *)__get_free_page(GFP_KERNEL_ACCOUNT);

	if (!events)
		return -ENOMEM;
	open->ring.events = events;
	open->ring.room = PAGE_SIZE / sizeof(*events);
	init_waitqueue_head(&open->heard);
	spin_lock(&ring_lock);
	list_add_tail(&open->listening, &listeners);
	spin_unlock(&ring_lock);
	return 0;
}

void kvpool_events_close(struct kvpool_open *open)
{
	spin_lock(&ring_lock);
	list_del(&open->listening);
	spin_unlock(&ring_lock);
	free_page((unsigned long)open->ring.events);
}

static bool concerns(const struct kvpool_open *open, const struct kvpool_event_record *event,
		     struct kvpool_part *const *parts, u32 count)
{
	u32 i;

	if (!open->part || !event->partition)
		return true;
	for (i = 0; i < count; i++)
		if (parts[i] == open->part)
			return true;
	return !count && open->part->id == event->partition;
}

static void raise(struct kvpool_event_record *event, struct kvpool_part *const *parts, u32 count)
{
	struct kvpool_open *open;

	event->time_ns = ktime_get_boottime_ns();
	spin_lock(&ring_lock);
	event->sequence = ++sequence;
	list_for_each_entry(open, &listeners, listening) {
		if (!concerns(open, event, parts, count))
			continue;
		kvpool_ring_push(&open->ring, event);
		wake_up_interruptible_poll(&open->heard, EPOLLIN);
	}
	spin_unlock(&ring_lock);
}

/* Of the pool: all hear it. */
void kvpool_event_pool(u32 kind, u32 host, u64 value)
{
	struct kvpool_event_record event = { .kind = kind, .host = host, .value = value };

	raise(&event, NULL, 0);
}

/* Of a member: heard on the nodes of all partitions that it joined. */
void kvpool_event_member(const struct kvpool_member *member, u32 kind)
{
	struct kvpool_event_record event = {
		.kind = kind,
		.partition = member->parts[0]->id,
		.host = member->parts[0]->pool->host,
		.value = member->incarnation,
	};

	raise(&event, member->parts, member->part_count);
}

/* Of a slice, or of a page in it. */
void kvpool_event_place(u32 kind, const struct kvpool *pool, u32 partition, u32 slice,
			struct kvpool_place at, u64 bytes, u64 value)
{
	struct kvpool_event_record event = {
		.kind = kind,
		.partition = partition,
		.slice = slice,
		.device = at.device,
		.host = pool->host,
		.value = value,
		.device_offset = at.offset,
		.bytes = bytes,
	};

	raise(&event, NULL, 0);
}

void kvpool_event_slice(u32 kind, const struct kvpool_part *part, const struct kvpool_slice *slice)
{
	struct kvpool_place at = { slice->device, slice->device_offset };

	kvpool_event_place(kind, part->pool, part->id, slice->id, at, slice->bytes, 0);
}

/* Nothing comes any more for descriptors of this partition. */
void kvpool_events_end(const struct kvpool_part *part)
{
	struct kvpool_open *open;

	spin_lock(&ring_lock);
	list_for_each_entry(open, &listeners, listening) {
		if (open->part != part)
			continue;
		open->ended = true;
		wake_up_interruptible_poll(&open->heard, EPOLLIN | EPOLLHUP);
	}
	spin_unlock(&ring_lock);
}

static bool take(struct kvpool_open *open, struct kvpool_event_record *event)
{
	bool taken;

	spin_lock(&ring_lock);
	taken = kvpool_ring_pop(&open->ring, event);
	spin_unlock(&ring_lock);
	return taken;
}

static bool anything(struct kvpool_open *open)
{
	return READ_ONCE(open->ring.count) || READ_ONCE(open->ended);
}

/* Whole records, as many as there are and fit; 0: the partition is gone, and all is read. */
ssize_t kvpool_read(struct file *file, char __user *to, size_t bytes, loff_t *offset)
{
	struct kvpool_open *open = file->private_data;
	struct kvpool_event_record event;
	size_t done = 0;

	if (bytes < sizeof(event))
		return -EINVAL;
	while (!done) {
		while (bytes - done >= sizeof(event) && take(open, &event)) {
			if (!copy_to_user(to + done, &event, sizeof(event))) {
				done += sizeof(event);
				continue;
			}
			spin_lock(&ring_lock);
			kvpool_ring_lose(&open->ring, &event);
			spin_unlock(&ring_lock);
			return done ? done : -EFAULT;
		}
		if (done || READ_ONCE(open->ended))
			break;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(open->heard, anything(open)))
			return -ERESTARTSYS;
	}
	return done;
}

__poll_t kvpool_poll(struct file *file, struct poll_table_struct *table)
{
	struct kvpool_open *open = file->private_data;
	__poll_t mask = 0;

	poll_wait(file, &open->heard, table);
	if (READ_ONCE(open->ring.count))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(open->ended))
		mask |= EPOLLHUP;
	return mask;
}
