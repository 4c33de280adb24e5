// SPDX-License-Identifier: GPL-2.0-only
/*
 * Claiming a pool: its ranges, their labels, this host's area. Nothing is claimed by itself.
 * Every refusal names the range and the reason.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include <asm/cpufeature.h>
#include <asm/memtype.h>

#include "internal.h"
#include "trace.h"

#define LABEL_BATCH 4096u

/* Ranges requested and mapped, by range and not yet by device. */
struct claiming {
	const struct kvpool_range *ranges;
	u32 count;
	struct resource *regions[KVPOOL_DEVICE_COUNT_MAX];
	void *maps[KVPOOL_DEVICE_COUNT_MAX]; /* the labels */
	struct kvpool_label_info infos[KVPOOL_DEVICE_COUNT_MAX];
	u32 order[KVPOOL_DEVICE_COUNT_MAX]; /* device to range */
};

bool kvpool_in_guest(void)
{
	return boot_cpu_has(X86_FEATURE_HYPERVISOR);
}

static int refuse(struct kvpool_claim *args, u32 range, u32 reason, int err)
{
	args->ret_bad_range = range;
	args->ret_reason = reason;
	return err;
}

static int check_cpu(struct kvpool_claim *args)
{
	/* Without ERMS a copy that should survive a machine check is a plain one. */
	if (!boot_cpu_has(X86_FEATURE_ERMS) || !boot_cpu_has(X86_FEATURE_CLFLUSHOPT) ||
	    !pat_enabled())
		return refuse(args, 0, KVPOOL_REFUSED_CPU, -EOPNOTSUPP);
	return 0;
}

static void *map_metadata(phys_addr_t start, u64 bytes)
{
	void *map = (void __force *)ioremap_cache(start, bytes);

	if (!map)
		return ERR_PTR(-ENOMEM);
	/* A request for WB becomes UC- where no MTRR says WB. */
	if (kvpool_map_type(map) == KVPOOL_TYPE_WB)
		return map;
	iounmap((void __iomem __force *)map);
	return ERR_PTR(-EMEDIUMTYPE);
}

static void unmap(void *map)
{
	if (map)
		iounmap((void __iomem __force *)map);
}

static int request_ranges(struct kvpool_claim *args, struct claiming *claiming)
{
	u32 i, reason = 0;
	int err;

	for (i = 0; i < claiming->count; i++) {
		err = kvpool_range_request(&claiming->ranges[i], &claiming->regions[i], &reason);
		if (err)
			return refuse(args, i, reason, err);
		if (claiming->ranges[i].bytes < KVPOOL_LABEL_BYTES)
			return refuse(args, i, KVPOOL_REFUSED_SIZE, -EINVAL);
		claiming->maps[i] = map_metadata(claiming->ranges[i].start, KVPOOL_LABEL_BYTES);
		if (IS_ERR(claiming->maps[i])) {
			err = PTR_ERR(claiming->maps[i]);
			claiming->maps[i] = NULL;
			return refuse(args, i, err == -EMEDIUMTYPE ? KVPOOL_REFUSED_TYPE : 0, err);
		}
	}
	return 0;
}

static void release_ranges(struct claiming *claiming)
{
	u32 i;

	for (i = 0; i < claiming->count; i++) {
		unmap(claiming->maps[i]);
		if (claiming->regions[i])
			kvpool_range_release(&claiming->ranges[i]);
	}
}

static int read_line(void *map, u64 offset, void *to, size_t bytes)
{
	kvpool_caches_retire(map + offset, bytes);
	return copy_mc_to_kernel(to, map + offset, bytes) ? -EIO : 0;
}

/* The first line of every range, then who is who. */
static int read_first_labels(struct kvpool_claim *args, struct claiming *claiming)
{
	union kvpool_line line;
	u32 i, range = 0, reason = 0;
	u8 any[16] = {};
	const u8 *uuid = memcmp(args->uuid, any, sizeof(any)) ? args->uuid : NULL;
	int err;

	for (i = 0; i < claiming->count; i++) {
		err = read_line(claiming->maps[i], 0, &line, sizeof(line));
		if (err)
			return refuse(args, i, KVPOOL_REFUSED_UNREADABLE, err);
		err = kvpool_label_read(&line, claiming->ranges[i].bytes, uuid,
					&claiming->infos[i], &reason);
		if (err)
			return refuse(args, i, reason, err);
	}
	err = kvpool_label_order(claiming->infos, claiming->count, claiming->order, &range,
				 &reason);
	return err ? refuse(args, range, reason, err) : 0;
}

/* All lines: one whose offset is not its own shows another interleave of the devices. */
static int read_all_labels(struct kvpool_claim *args, struct claiming *claiming)
{
	union kvpool_line *lines = kvmalloc(LABEL_BATCH * KVPOOL_LINE_BYTES, GFP_KERNEL);
	u32 i, k, reason = 0;
	u64 offset;
	int err = lines ? 0 : -ENOMEM;

	for (i = 0; i < claiming->count && !err; i++) {
		for (offset = 0; offset < KVPOOL_LABEL_BYTES && !err;
		     offset += LABEL_BATCH * KVPOOL_LINE_BYTES) {
			err = read_line(claiming->maps[i], offset, lines,
					LABEL_BATCH * KVPOOL_LINE_BYTES);
			if (err)
				refuse(args, i, KVPOOL_REFUSED_UNREADABLE, err);
			for (k = 0; k < LABEL_BATCH && !err; k++) {
				args->ret_bad_offset = offset + k * KVPOOL_LINE_BYTES;
				err = kvpool_label_check(&lines[k], args->ret_bad_offset,
							 &claiming->infos[i], &reason);
				if (err)
					refuse(args, i, reason, err);
			}
			cond_resched();
		}
	}
	if (!err)
		args->ret_bad_offset = 0;
	kvfree(lines);
	return err;
}

/* Refuses what looks like a pool, unless forced. */
static int check_unlabelled(struct kvpool_claim *args, struct claiming *claiming)
{
	struct kvpool_label_info info;
	union kvpool_line line;
	u32 i, reason = 0;
	int err;

	for (i = 0; i < claiming->count; i++) {
		err = read_line(claiming->maps[i], 0, &line, sizeof(line));
		if (err)
			return refuse(args, i, KVPOOL_REFUSED_UNREADABLE, err);
		if (args->flags & KVPOOL_CLAIM_F_FORCE)
			continue;
		err = kvpool_label_read(&line, claiming->ranges[i].bytes, NULL, &info, &reason);
		if (err && reason == KVPOOL_REFUSED_UNREADABLE)
			return refuse(args, i, reason, err);
		if (!err || reason != KVPOOL_REFUSED_NO_LABEL)
			return refuse(args, i, KVPOOL_REFUSED_LABELLED, -EEXIST);
	}
	return 0;
}

static int plan_labels(struct kvpool_claim *args, struct claiming *claiming)
{
	struct kvpool_geometry geo;
	u64 life = get_random_u64() | 1;
	u32 i;

	if (kvpool_geometry_init(&geo, claiming->count, claiming->ranges[0].bytes,
				 args->host_count))
		return refuse(args, 0, KVPOOL_REFUSED_SIZE, -EINVAL);
	for (i = 0; i < claiming->count; i++) {
		struct kvpool_label_info *info = &claiming->infos[i];

		memcpy(info->seal.uuid, args->uuid, sizeof(info->seal.uuid));
		info->seal.life = life;
		info->device_bytes = geo.device_bytes;
		info->device = i;
		info->device_count = geo.device_count;
		info->host_count = geo.host_count;
		info->unit_shift = geo.unit_shift;
		claiming->order[i] = i;
	}
	return 0;
}

static int write_labels(struct kvpool *pool, struct claiming *claiming)
{
	union kvpool_line *lines = kvmalloc(LABEL_BATCH * KVPOOL_LINE_BYTES, GFP_KERNEL);
	u32 device, k;
	u64 offset;
	int err = lines ? 0 : -ENOMEM;

	for (device = 0; device < pool->geo.device_count && !err; device++)
		for (offset = 0; offset < KVPOOL_LABEL_BYTES && !err;
		     offset += LABEL_BATCH * KVPOOL_LINE_BYTES) {
			struct kvpool_place at = { device, offset };

			for (k = 0; k < LABEL_BATCH; k++)
				kvpool_label_make(&claiming->infos[claiming->order[device]],
						  offset + k * KVPOOL_LINE_BYTES, &lines[k]);
			err = kvpool_medium_write(pool, at, lines, LABEL_BATCH * KVPOOL_LINE_BYTES);
			cond_resched();
		}
	kvfree(lines);
	return err;
}

/* Host areas in which nobody was yet. */
static int write_areas(struct kvpool *pool)
{
	struct kvpool_claim_view none = { .readable = true };
	u32 host, own = pool->host;
	union kvpool_line line;
	int err = 0;

	for (host = 0; host < pool->geo.host_count && !err; host++) {
		pool->host = host; /* whose area is written; nobody else exists yet */
		memset(&line, 0, sizeof(line));
		line.host.magic = cpu_to_le32(KVPOOL_MAGIC_HOST);
		line.host.host = cpu_to_le16(host);
		line.host.state = cpu_to_le16(KVPOOL_HOST_NEVER);
		line.host.heartbeat = cpu_to_le64(1);
		err = kvpool_area_write(pool, KVPOOL_AREA_HOST_LINE, &line);
		if (err)
			break;
		kvpool_claim_make(&none, host, &line);
		err = kvpool_area_write(pool, KVPOOL_AREA_CLAIM_LINE, &line);
	}
	pool->host = own;
	return err;
}

static void free_pool(struct kvpool *pool)
{
	u32 device;

	cancel_delayed_work_sync(&pool->tick);
	if (pool->thread)
		destroy_workqueue(pool->thread);
	for (device = 0; device < pool->geo.device_count; device++) {
		struct kvpool_range range = { pool->devices[device].start, pool->geo.device_bytes };

		unmap(pool->devices[device].meta);
		if (pool->devices[device].region)
			kvpool_range_release(&range);
	}
	kvfree(pool->table);
	kvfree(pool->next);
	kvfree(pool->buffer);
	kvfree(pool->unit_scratch);
	kvfree(pool->held);
	kvfree(pool->use);
	kvfree(pool->clean);
	kvfree(pool);
}

/* The regions become the pool's, in the order of devices. */
static struct kvpool *new_pool(struct kvpool_claim *args, struct claiming *claiming)
{
	struct kvpool_label_info *info = &claiming->infos[0];
	struct kvpool *pool = kvzalloc(sizeof(*pool), GFP_KERNEL);
	u32 device, units;

	if (!pool)
		return ERR_PTR(-ENOMEM);
	if (kvpool_geometry_init(&pool->geo, info->device_count, info->device_bytes,
				 info->host_count)) {
		kvfree(pool);
		return ERR_PTR(-EINVAL);
	}
	units = kvpool_unit_count(&pool->geo);
	pool->seal = info->seal;
	pool->host = args->host;
	pool->use_bytes = DIV_ROUND_UP(units, KVPOOL_USE_UNITS_PER_LINE) *
			  (KVPOOL_USE_UNITS_PER_LINE / 4);
	pool->table = kvzalloc(sizeof(*pool->table), GFP_KERNEL);
	pool->next = kvzalloc(sizeof(*pool->next), GFP_KERNEL);
	pool->buffer = kvzalloc(KVPOOL_AREA_TABLE_BYTES, GFP_KERNEL);
	pool->unit_scratch = kvzalloc((units + 7) / 8, GFP_KERNEL);
	pool->held = kvcalloc(KVPOOL_SLICE_COUNT_MAX, sizeof(*pool->held), GFP_KERNEL);
	pool->use = kvzalloc(pool->use_bytes, GFP_KERNEL);
	pool->clean = kvzalloc((units + 7) / 8, GFP_KERNEL);
	kvpool_thread_init(pool);
	INIT_WORK(&pool->scrub, kvpool_scrub_work);
	INIT_LIST_HEAD(&pool->watches);
	for (device = 0; device < pool->geo.device_count; device++) {
		u32 range = claiming->order[device];

		pool->devices[device].start = claiming->ranges[range].start;
		pool->devices[device].region = claiming->regions[range];
		claiming->regions[range] = NULL;
	}
	if (pool->table && pool->next && pool->buffer && pool->unit_scratch && pool->held &&
	    pool->use && pool->clean && pool->thread) {
		kvpool_table_init(pool->table);
		return pool;
	}
	free_pool(pool);
	return ERR_PTR(-ENOMEM);
}

static int map_devices(struct kvpool *pool, struct claiming *claiming)
{
	u32 device;

	for (device = 0; device < pool->geo.device_count; device++) {
		struct kvpool_device *to = &pool->devices[device];

		/* One mapping of labels and areas instead of that of the labels. */
		unmap(claiming->maps[claiming->order[device]]);
		claiming->maps[claiming->order[device]] = NULL;
		to->meta_bytes = kvpool_metadata_bytes(&pool->geo, device);
		to->meta = map_metadata(to->start, to->meta_bytes);
		if (IS_ERR(to->meta)) {
			int err = PTR_ERR(to->meta);

			to->meta = NULL;
			return err;
		}
	}
	return 0;
}

/*
 * A new incarnation says that no line of an earlier life is left in this host's caches. In a
 * guest the data is flushed by address, through a mapping that cannot prefetch.
 */
static int empty_caches(struct kvpool *pool)
{
	u64 window = 1ull << 30, at, bytes;
	u32 device;

	if (!kvpool_in_guest()) {
		kvpool_caches_empty();
		return 0;
	}
	for (device = 0; device < pool->geo.device_count; device++) {
		struct kvpool_device *from = &pool->devices[device];

		kvpool_caches_retire(from->meta, from->meta_bytes);
		for (at = from->meta_bytes; at < pool->geo.device_bytes; at += bytes) {
			void __iomem *map;

			bytes = min(window, pool->geo.device_bytes - at);
			map = ioremap_wc(from->start + at, bytes);
			if (!map)
				return -ENOMEM;
			kvpool_caches_retire((void __force *)map, bytes);
			iounmap(map);
		}
	}
	return 0;
}

static int read_own_host(struct kvpool *pool, struct kvpool_host_view *view, u32 *period_ms)
{
	union kvpool_line copies[2];
	u32 copy, intact;

	memset(view, 0, sizeof(*view));
	intact = kvpool_area_read(pool, pool->host, KVPOOL_AREA_HOST_LINE, KVPOOL_MAGIC_HOST,
				  copies);
	for (copy = 0; copy < 2; copy++)
		if (intact & 1u << copy) {
			kvpool_host_line_read(view, &copies[copy], pool->host);
			*period_ms = clamp(le32_to_cpu(copies[copy].host.period_ms), 10u, 10000u);
		}
	return view->readable ? 0 : -EIO;
}

/* A host that uses this id and lives moves its heartbeat. */
static int check_host_free(struct kvpool_claim *args, struct kvpool *pool)
{
	struct kvpool_host_view before, after;
	u32 period_ms = 1000;
	int err;

	if (pool->host >= pool->geo.host_count)
		return -EINVAL;
	err = read_own_host(pool, &before, &period_ms);
	if (err)
		return refuse(args, 0, KVPOOL_REFUSED_UNREADABLE, err);
	if (before.state == KVPOOL_HOST_UP) {
		if (msleep_interruptible(period_ms * 5 / 2))
			return -EINTR;
		err = read_own_host(pool, &after, &period_ms);
		if (err || after.heartbeat != before.heartbeat)
			return refuse(args, 0, KVPOOL_REFUSED_HOST_IN_USE, err ?: -EADDRINUSE);
	}
	pool->heartbeat = before.heartbeat;
	return 0;
}

static int start_pool(struct kvpool_claim *args, struct kvpool *pool, struct claiming *claiming)
{
	bool label = args->flags & KVPOOL_CLAIM_F_LABEL;
	int err = map_devices(pool, claiming);

	if (err)
		return err;
	if (label) {
		err = write_labels(pool, claiming);
		if (!err)
			err = write_areas(pool);
		if (err)
			return err;
	}
	err = check_host_free(args, pool);
	if (!err)
		err = empty_caches(pool);
	if (err)
		return err;
	pool->incarnation = get_random_u64() | 1;
	pool->boot_nonce = get_random_u64() | 1;
	mutex_lock(&kvpool_lock);
	kvpool_pool = pool;
	mutex_unlock(&kvpool_lock);
	err = kvpool_thread_start(pool);
	if (!err && label)
		err = kvpool_admin_first(pool);
	return err;
}

static void stop_pool(struct kvpool *pool)
{
	struct kvpool_part *part, *other;
	LIST_HEAD(parts);

	cancel_work_sync(&pool->scrub);
	kvpool_thread_stop(pool);
	mutex_lock(&kvpool_lock);
	kvpool_pool = NULL;
	kvpool_watches_free(pool);
	list_splice_init(&kvpool_parts, &parts);
	mutex_unlock(&kvpool_lock);
	list_for_each_entry_safe(part, other, &parts, list) {
		list_del_init(&part->list);
		kvpool_node_remove(part);
		kvpool_part_put(part);
	}
}

static int claim_labelled(struct kvpool_claim *args, struct claiming *claiming)
{
	int err;

	if (args->flags & KVPOOL_CLAIM_F_LABEL) {
		err = check_unlabelled(args, claiming);
		return err ? err : plan_labels(args, claiming);
	}
	err = read_first_labels(args, claiming);
	return err ? err : read_all_labels(args, claiming);
}

int kvpool_claim_pool(struct kvpool_claim *args, const struct kvpool_range *ranges)
{
	struct claiming *claiming;
	struct kvpool *pool = NULL;
	u32 range = 0, reason = 0;
	int err;

	lockdep_assert_held(&kvpool_control_lock);
	if (kvpool_pool)
		return -EEXIST;
	err = kvpool_ranges_check(ranges, args->range_count, &range, &reason);
	if (err)
		return refuse(args, range, reason, err);
	err = check_cpu(args);
	if (err)
		return err;
	claiming = kvzalloc(sizeof(*claiming), GFP_KERNEL);
	if (!claiming)
		return -ENOMEM;
	claiming->ranges = ranges;
	claiming->count = args->range_count;
	err = request_ranges(args, claiming);
	if (!err)
		err = claim_labelled(args, claiming);
	if (!err) {
		pool = new_pool(args, claiming);
		err = PTR_ERR_OR_ZERO(pool);
		if (err)
			pool = NULL;
	}
	if (!err)
		err = start_pool(args, pool, claiming);
	release_ranges(claiming);
	kvfree(claiming);
	if (err && pool) {
		if (kvpool_pool == pool) {
			WRITE_ONCE(pool->closing, true);
			stop_pool(pool);
		}
		free_pool(pool);
	}
	trace_kvpool_claim(args->host, err ? 0 : pool->incarnation, err);
	if (err)
		return err;
	memcpy(args->uuid, pool->seal.uuid, sizeof(args->uuid));
	args->ret_incarnation = pool->incarnation;
	pr_info("pool %pUb: claimed by host %u, %u devices, %llu MiB\n", pool->seal.uuid,
		pool->host, pool->geo.device_count,
		pool->geo.device_bytes * pool->geo.device_count >> 20);
	return 0;
}

/* -EBUSY while a descriptor of a partition is open, or a process may still reach one. */
int kvpool_release_pool(void)
{
	struct kvpool *pool = kvpool_pool;
	int err = 0;

	lockdep_assert_held(&kvpool_control_lock);
	if (!pool)
		return -ENODEV;
	mutex_lock(&kvpool_lock);
	if (pool->opens || !list_empty(&kvpool_members))
		err = -EBUSY;
	else
		WRITE_ONCE(pool->closing, true);
	mutex_unlock(&kvpool_lock);
	if (err)
		return err;
	stop_pool(pool);
	pr_info("pool %pUb: released\n", pool->seal.uuid);
	free_pool(pool);
	return 0;
}
