// SPDX-License-Identifier: GPL-2.0-only
/*
 * The pool's thread: heartbeat, own lines, and what the other hosts' lines say. An ordered
 * workqueue, so that one thread at a time touches control lines; the rest of the driver asks it
 * by kvpool_call().
 */
#include <linux/slab.h>

#include "internal.h"

struct call {
	struct work_struct work;
	struct completion done;
	struct kvpool *pool;
	int (*function)(struct kvpool *pool, void *arg);
	void *arg;
	int result;
};

static void run_call(struct work_struct *work)
{
	struct call *call = container_of(work, struct call, work);

	call->result = call->function(call->pool, call->arg);
	complete(&call->done);
}

/* Waits for its result: the thread touches memory only, and stops touching it when it fails. */
int kvpool_call(struct kvpool *pool, int (*work)(struct kvpool *pool, void *arg), void *arg)
{
	struct call call = { .pool = pool, .function = work, .arg = arg };

	INIT_WORK_ONSTACK(&call.work, run_call);
	init_completion(&call.done);
	queue_work(pool->thread, &call.work);
	wait_for_completion(&call.done);
	destroy_work_on_stack(&call.work);
	return call.result;
}

void kvpool_kick(struct kvpool *pool)
{
	if (!READ_ONCE(pool->closing))
		mod_delayed_work(pool->thread, &pool->tick, 0);
}

static void revoke_all(struct work_struct *work)
{
	struct kvpool_member *member;

	mutex_lock(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list)
		if (kvpool_pool && kvpool_pool->gone)
			kvpool_member_revoke(member, true);
	mutex_unlock(&kvpool_lock);
}
static DECLARE_WORK(gone_work, revoke_all);

/* Fences itself: nothing of the pool is touched again. */
void kvpool_host_gone(struct kvpool *pool, const char *why)
{
	if (xchg(&pool->gone, true))
		return;
	pr_alert("pool %pUb: host %u fenced itself: %s\n", pool->seal.uuid, pool->host, why);
	kvpool_event_pool(KVPOOL_EVENT_HOST_GONE, pool->host, pool->incarnation);
	queue_work(system_unbound_wq, &gone_work);
}

int kvpool_host_write(struct kvpool *pool, u32 state)
{
	union kvpool_line line = {};

	line.host.magic = cpu_to_le32(KVPOOL_MAGIC_HOST);
	line.host.host = cpu_to_le16(pool->host);
	line.host.state = cpu_to_le16(state);
	line.host.incarnation = cpu_to_le64(pool->incarnation);
	line.host.heartbeat = cpu_to_le64(++pool->heartbeat);
	line.host.boot_nonce = cpu_to_le64(pool->boot_nonce);
	line.host.version = cpu_to_le32(KVPOOL_FORMAT_VERSION);
	line.host.period_ms = cpu_to_le32(kvpool_heartbeat_ms);
	pool->host_line = line;
	return kvpool_area_write(pool, KVPOOL_AREA_HOST_LINE, &line);
}

/* A line that does not read back as written has a second writer: this host's id, or this memory. */
static int check_own_line(struct kvpool *pool)
{
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		struct kvpool_place at =
			kvpool_area_place(&pool->geo, pool->host, copy, KVPOOL_AREA_HOST_LINE);
		union kvpool_line line, wanted = pool->host_line;
		int err = kvpool_medium_read(pool, at, &line, sizeof(line));

		if (READ_ONCE(pool->devices[at.device].gone))
			continue;
		if (err)
			return err;
		kvpool_seal_line(&pool->seal, at, &wanted);
		if (memcmp(&line, &wanted, sizeof(line))) {
			kvpool_host_gone(pool, "its own line was changed by somebody else");
			return -ENODEV;
		}
	}
	return 0;
}

static int write_use_line(struct kvpool *pool, u32 index)
{
	union kvpool_line line;

	kvpool_use_make(pool->use + index * (KVPOOL_USE_UNITS_PER_LINE / 4), pool->host, index,
			pool->incarnation, ++pool->sequence, &line);
	return kvpool_area_write(pool, KVPOOL_AREA_USE_LINES + index * KVPOOL_LINE_BYTES, &line);
}

/* All lines, without a use: the start of an incarnation. */
static int write_use_lines(struct kvpool *pool)
{
	u32 lines = pool->use_bytes / (KVPOOL_USE_UNITS_PER_LINE / 4), i;
	int err = 0;

	memset(pool->use, 0, pool->use_bytes);
	for (i = 0; i < lines && !err; i++)
		err = write_use_line(pool, i);
	return err;
}

/* What this host does with the units of a slice. On the medium when it returns. */
int kvpool_use_write(struct kvpool *pool, const struct kvpool_slice *slice, u32 use)
{
	u32 first = kvpool_unit_number(&pool->geo, slice->device, slice->first_unit), i;
	int err = 0;

	for (i = 0; i < slice->unit_count; i++)
		kvpool_use_set(pool->use, first + i, use);
	for (i = first / KVPOOL_USE_UNITS_PER_LINE;
	     i <= (first + slice->unit_count - 1) / KVPOOL_USE_UNITS_PER_LINE && !err; i++)
		err = write_use_line(pool, i);
	return err;
}

int kvpool_claims_read(struct kvpool *pool, struct kvpool_claim_view *views)
{
	union kvpool_line copies[2];
	u32 host, copy, intact;

	for (host = 0; host < pool->geo.host_count; host++) {
		memset(&views[host], 0, sizeof(views[host]));
		intact = kvpool_area_read(pool, host, KVPOOL_AREA_CLAIM_LINE, KVPOOL_MAGIC_CLAIM,
					  copies);
		for (copy = 0; copy < 2; copy++)
			if (intact & 1u << copy)
				kvpool_claim_merge(&views[host], &copies[copy], host);
	}
	return READ_ONCE(pool->gone) ? -ENODEV : 0;
}

static int read_hosts(struct kvpool *pool)
{
	struct kvpool_host_view view;
	union kvpool_line copies[2];
	u32 host, copy, intact;

	for (host = 0; host < pool->geo.host_count; host++) {
		memset(&view, 0, sizeof(view));
		intact = kvpool_area_read(pool, host, KVPOOL_AREA_HOST_LINE, KVPOOL_MAGIC_HOST,
					  copies);
		for (copy = 0; copy < 2; copy++)
			if (intact & 1u << copy)
				kvpool_host_line_read(&view, &copies[copy], host);
		mutex_lock(&kvpool_lock);
		view.fenced = pool->table->fenced[host];
		pool->hosts[host] = view;
		mutex_unlock(&kvpool_lock);
	}
	return READ_ONCE(pool->gone) ? -ENODEV : 0;
}

/* One copy of the table, checked in full before any of it is used. */
static int read_table_copy(struct kvpool *pool, struct kvpool_place at, u64 epoch,
			   struct kvpool_table *table)
{
	int err = kvpool_medium_read(pool, at, pool->buffer, KVPOOL_LINE_BYTES);
	int bytes;

	if (err)
		return err;
	if (!kvpool_line_intact(&pool->seal, at, pool->buffer, KVPOOL_MAGIC_TABLE))
		return -EUCLEAN;
	bytes = kvpool_table_body_bytes(pool->buffer, &pool->geo);
	if (bytes < 0)
		return bytes;
	/* The first line again, too: it may have been written anew in between. */
	err = kvpool_medium_read(pool, at, pool->buffer, KVPOOL_LINE_BYTES + bytes);
	if (err)
		return err;
	return kvpool_table_decode(pool->buffer, &pool->geo, &pool->seal, at, epoch,
				   pool->unit_scratch, table);
}

int kvpool_table_read(struct kvpool *pool, const struct kvpool_claim_view *view, u32 host,
		      struct kvpool_table *table)
{
	u32 offset = KVPOOL_AREA_TABLE_0 + view->table * KVPOOL_AREA_TABLE_BYTES, copy;
	int err = -EUCLEAN;

	for (copy = 0; copy < 2; copy++) {
		err = read_table_copy(pool, kvpool_area_place(&pool->geo, host, copy, offset),
				      view->active, table);
		if (!err && table->generation != view->generation)
			err = -EUCLEAN;
		if (!err)
			return 0;
	}
	return err;
}

void kvpool_claims_seen(struct kvpool *pool, const struct kvpool_claim_view *views)
{
	int before = kvpool_claims_in_force(pool->claims, pool->geo.host_count);
	int after = kvpool_claims_in_force(views, pool->geo.host_count);
	u64 epoch = before < 0 ? 0 : pool->claims[before].active;

	lockdep_assert_held(&kvpool_lock);
	memcpy(pool->claims, views, sizeof(pool->claims));
	if (after >= 0 && views[after].active != epoch)
		kvpool_event_pool(KVPOOL_EVENT_ADMINISTRATOR, after, views[after].active);
}

/*
 * Reads who administers, and the table in force if it is another one than the loaded. -ENODATA:
 * nobody ever did. -EAGAIN: it changed while it was read.
 */
int kvpool_sync(struct kvpool *pool)
{
	struct kvpool_claim_view *views;
	int host, err, attempt;
	bool outbid = false;

	views = kcalloc(KVPOOL_HOST_COUNT_MAX, sizeof(*views), GFP_KERNEL);
	if (!views)
		return -ENOMEM;
	for (attempt = 0; attempt < 3; attempt++) {
		err = kvpool_claims_read(pool, views);
		if (err)
			break;
		host = kvpool_claims_in_force(views, pool->geo.host_count);
		err = host < 0 ? -ENODATA : 0;
		if (err)
			break;
		if (views[host].active == pool->table->epoch &&
		    views[host].generation == pool->table->generation)
			break;
		err = kvpool_table_read(pool, &views[host], host, pool->next);
		if (!err) {
			kvpool_table_apply(pool);
			break;
		}
	}
	mutex_lock(&kvpool_lock);
	if (err != -ENODEV && err != -ENOMEM)
		kvpool_claims_seen(pool, views);
	if (!err && pool->admin_epoch)
		outbid = kvpool_claims_outbid(views, pool->geo.host_count, pool->admin_epoch);
	if (outbid)
		pool->admin_epoch = 0;
	mutex_unlock(&kvpool_lock);
	if (outbid)
		pr_notice("host %u is no administrator any more\n", pool->host);
	kfree(views);
	return err == -EUCLEAN ? -EAGAIN : err;
}

static struct kvpool_part *find_part(u32 id)
{
	struct kvpool_part *part;

	list_for_each_entry(part, &kvpool_parts, list)
		if (part->id == id)
			return part;
	return NULL;
}

/* Partitions that the table does not have, and whose last use has ended. */
static void drop_parts(struct kvpool *pool)
{
	struct kvpool_part *part, *other;
	LIST_HEAD(removed);

	mutex_lock(&kvpool_lock);
	list_for_each_entry_safe(part, other, &kvpool_parts, list)
		if (!kvpool_table_find_id(pool->table, part->id) && !part->attached &&
		    !part->members && !part->attaching)
			list_move(&part->list, &removed);
	mutex_unlock(&kvpool_lock);
	/* Without the lock: removing a node waits for readers of its attributes. */
	list_for_each_entry_safe(part, other, &removed, list) {
		list_del_init(&part->list);
		kvpool_part_freed(part);
		kvpool_node_remove(part);
		kvpool_part_put(part);
	}
}

/* Which hosts were held up for what is still there; slices keep their order. */
static void carry_held(struct kvpool *pool, const struct kvpool_table *old)
{
	u32 i, k = 0;

	for (i = 0; i < pool->table->slice_count; i++) {
		u32 id = pool->table->slices[i].id;

		while (k < old->slice_count && old->slices[k].id < id)
			k++;
		pool->held[i] = pool->admin_epoch && k >= i && k < old->slice_count &&
				old->slices[k].id == id ? pool->held[k] : 0;
	}
	memset(pool->held + i, 0, (KVPOOL_SLICE_COUNT_MAX - i) * sizeof(pool->held[0]));
}

/* Makes pool->next the table in force, and partitions and nodes what it says. */
void kvpool_table_apply(struct kvpool *pool)
{
	struct kvpool_part *part, *other;
	LIST_HEAD(added);
	u32 i;

	mutex_lock(&kvpool_lock);
	swap(pool->table, pool->next);
	/* Somebody took it for dead: what it uses may be another's from now on. */
	if (pool->table->fenced[pool->host] == pool->incarnation)
		kvpool_host_gone(pool, "an administrator fenced it");
	carry_held(pool, pool->next);
	kvpool_event_pool(KVPOOL_EVENT_TABLE, kvpool_epoch_host(pool->table->epoch),
			  pool->table->generation);
	for (i = 0; i < pool->table->partition_count; i++) {
		struct kvpool_partition_entry *entry = &pool->table->partitions[i];

		part = find_part(entry->id);
		if (!part) {
			part = kvpool_part_new(pool, entry);
			if (IS_ERR(part)) {
				pr_err("partition %s: no memory for it, not offered here\n",
				       entry->name);
				continue;
			}
			list_add_tail(&part->list, &added);
		} else if (kvpool_part_follow(part)) {
			pr_err("partition %s: no memory for its new slices, not offered here\n",
			       entry->name);
		}
		if (entry->state == KVPOOL_PARTITION_DRAINING)
			kvpool_part_drain(part, entry->flags & KVPOOL_PARTITION_F_FORCE);
	}
	list_for_each_entry(part, &kvpool_parts, list)
		if (!kvpool_table_find_id(pool->table, part->id))
			kvpool_part_drain(part, false);
	mutex_unlock(&kvpool_lock);
	/* Without the lock: removing a node waits for readers of its attributes. */
	list_for_each_entry_safe(part, other, &added, list) {
		if (kvpool_node_add(part))
			pr_err("partition %s: no node\n", part->name);
		mutex_lock(&kvpool_lock);
		list_move_tail(&part->list, &kvpool_parts);
		mutex_unlock(&kvpool_lock);
	}
	drop_parts(pool);
}

static void write_ack(struct kvpool *pool)
{
	union kvpool_line line = {};
	struct kvpool_slice *slice;
	struct kvpool_part *part;
	unsigned long id;
	u32 held = 0;

	mutex_lock(&kvpool_lock);
	list_for_each_entry(part, &kvpool_parts, list)
		xa_for_each(&part->slices, id, slice)
			held += slice->draining && slice->announced ? slice->unit_count : 0;
	mutex_unlock(&kvpool_lock);
	line.ack.magic = cpu_to_le32(KVPOOL_MAGIC_ACK);
	line.ack.host = cpu_to_le16(pool->host);
	line.ack.held_units = cpu_to_le16(min(held, 0xffffu));
	line.ack.epoch = cpu_to_le64(pool->table->epoch);
	line.ack.generation = cpu_to_le64(pool->table->generation);
	line.ack.sequence = cpu_to_le64(++pool->sequence);
	kvpool_area_write(pool, KVPOOL_AREA_ACK_LINE, &line);
}

static void tick(struct work_struct *work)
{
	struct kvpool *pool = container_of(to_delayed_work(work), struct kvpool, tick);
	u64 generation = pool->table->generation;

	if (READ_ONCE(pool->closing))
		return;
	if (!READ_ONCE(pool->gone) && !check_own_line(pool)) {
		kvpool_host_write(pool, KVPOOL_HOST_UP);
		kvpool_sync(pool);
		read_hosts(pool);
	}
	kvpool_members_reap(pool);
	kvpool_part_detach_idle(pool);
	drop_parts(pool);
	kvpool_part_attach_grown(pool);
	if (!READ_ONCE(pool->gone)) {
		kvpool_admin_tick(pool);
		if (generation != pool->table->generation)
			write_ack(pool);
	}
	if (!READ_ONCE(pool->closing))
		queue_delayed_work(pool->thread, &pool->tick,
				   msecs_to_jiffies(kvpool_heartbeat_ms));
}

static int start(struct kvpool *pool, void *arg)
{
	int err = kvpool_host_write(pool, KVPOOL_HOST_UP);

	if (!err)
		err = write_use_lines(pool);
	/* On both devices: by one copy another host could take this one for one that has left. */
	if (!err && kvpool_control_lost(&pool->geo, kvpool_gone_devices(pool)))
		err = -ENODEV;
	if (!err)
		err = kvpool_sync(pool);
	if (!err)
		err = read_hosts(pool);
	/* A pool whose table cannot be read has no partitions here until it can. */
	return err == -EAGAIN || err == -ENODATA ? 0 : err;
}

void kvpool_thread_init(struct kvpool *pool)
{
	INIT_DELAYED_WORK(&pool->tick, tick);
	pool->thread = alloc_ordered_workqueue("kvpool", 0);
}

int kvpool_thread_start(struct kvpool *pool)
{
	int err = kvpool_call(pool, start, NULL);

	if (!err)
		queue_delayed_work(pool->thread, &pool->tick,
				   msecs_to_jiffies(kvpool_heartbeat_ms));
	return err;
}

static int leave(struct kvpool *pool, void *arg)
{
	u32 unit;

	kvpool_members_reap(pool);
	kvpool_part_detach_idle(pool);
	if (READ_ONCE(pool->gone))
		return -ENODEV;
	/* What it could not get out of, the next incarnation proves, or a fence. */
	for (unit = 0; unit < kvpool_unit_count(&pool->geo); unit++)
		if (kvpool_use_get(pool->use, unit) != KVPOOL_USE_NONE)
			return kvpool_host_write(pool, KVPOOL_HOST_GONE);
	return kvpool_host_write(pool, KVPOOL_HOST_LEFT);
}

/* The caller made sure that nothing is open, and set `closing`. */
void kvpool_thread_stop(struct kvpool *pool)
{
	cancel_delayed_work_sync(&pool->tick);
	kvpool_call(pool, leave, NULL);
	flush_work(&gone_work);
}

static struct kvpool *leaving; /* kvpool_lock */
static DECLARE_COMPLETION(left);

/* On the pool's thread: says LEFT where that is true, and then nothing any more. */
static void leave_now(struct work_struct *work)
{
	struct kvpool *pool = leaving;
	bool joined;

	mutex_lock(&kvpool_lock);
	joined = !list_empty(&kvpool_members);
	mutex_unlock(&kvpool_lock);
	if (!READ_ONCE(pool->gone) && !joined)
		leave(pool, NULL);
	complete(&left);
}
static DECLARE_WORK(leave_work, leave_now);

/* The host reboots: no user runs any more who could claim or release. */
void kvpool_leave_soon(unsigned long timeout)
{
	struct kvpool *pool;

	mutex_lock(&kvpool_lock);
	pool = kvpool_pool;
	if (pool) {
		WRITE_ONCE(pool->closing, true);
		leaving = pool;
		queue_work(pool->thread, &leave_work);
	}
	mutex_unlock(&kvpool_lock);
	if (pool)
		wait_for_completion_timeout(&left, timeout);
}
