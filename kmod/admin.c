// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the administrator decides: the table. Each decision is a whole table in the area that is
 * not in force, then the claim line that points to it, then a look whether somebody has claimed
 * above. Units change hands only when every host is proven out and this host zeroed and
 * verified them.
 */
#include <linux/random.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

/* Whether a device with a copy of every host's lines is gone: others may be heard there alone. */
static bool control_lost(struct kvpool *pool)
{
	return kvpool_control_lost(&pool->geo, kvpool_gone_devices(pool));
}

/* Writes pool->next, which becomes the table in force. -EAGAIN: outbid, it counts for nothing. */
static int write_table(struct kvpool *pool, u64 claimed)
{
	struct kvpool_claim_view *own = &pool->claims[pool->host], view = *own;
	struct kvpool_claim_view *views;
	union kvpool_line line;
	u32 copy, bytes, area = own->active ? !own->table : 0;
	int err = 0;

	pool->next->epoch = claimed;
	pool->next->generation++;
	for (copy = 0; copy < 2 && !err; copy++) {
		struct kvpool_place at =
			kvpool_area_place(&pool->geo, pool->host, copy,
					  KVPOOL_AREA_TABLE_0 + area * KVPOOL_AREA_TABLE_BYTES);

		bytes = kvpool_table_encode(pool->next, &pool->geo, &pool->seal, at, pool->buffer);
		err = kvpool_medium_write(pool, at, pool->buffer, bytes);
	}
	if (err)
		return err;
	view.readable = true;
	view.claimed = claimed;
	view.active = claimed;
	view.table = area;
	view.generation = pool->next->generation;
	view.sequence++;
	kvpool_claim_make(&view, pool->host, &line);
	err = kvpool_area_write(pool, KVPOOL_AREA_CLAIM_LINE, &line);
	/* In force only on both devices: a host may see one of them alone, and act on it. */
	if (!err && control_lost(pool))
		err = -EAGAIN;
	if (err)
		return err;
	kvpool_settle();
	views = kcalloc(KVPOOL_HOST_COUNT_MAX, sizeof(*views), GFP_KERNEL);
	if (!views)
		return -ENOMEM;
	err = kvpool_claims_read(pool, views);
	mutex_lock(&kvpool_lock);
	if (!err)
		kvpool_claims_seen(pool, views);
	else
		*own = view;
	if (!err && kvpool_claims_outbid(views, pool->geo.host_count, claimed)) {
		pool->admin_epoch = 0;
		err = -EAGAIN;
	}
	mutex_unlock(&kvpool_lock);
	kfree(views);
	if (!err)
		kvpool_table_apply(pool);
	return err;
}

/* The first table of a pool that was just labelled; nobody else is there. */
static int first_table(struct kvpool *pool, void *arg)
{
	int err = kvpool_claims_read(pool, pool->claims);
	u64 epoch;

	if (!err)
		err = kvpool_claims_next(pool->claims, pool->geo.host_count, pool->host, &epoch);
	if (err)
		return err;
	kvpool_table_init(pool->next);
	err = write_table(pool, epoch);
	if (!err)
		pool->admin_epoch = epoch;
	return err;
}

int kvpool_admin_first(struct kvpool *pool)
{
	return kvpool_call(pool, first_table, NULL);
}

/* Claim, settle, look; then the table of the highest active claim becomes this host's. */
static int take(struct kvpool *pool, void *arg)
{
	struct kvpool_claim_view view;
	union kvpool_line line;
	u64 epoch, *ret_epoch = arg;
	int err = kvpool_sync(pool);

	if (err)
		return err;
	if (pool->admin_epoch) {
		*ret_epoch = pool->admin_epoch;
		return 0;
	}
	err = kvpool_claims_next(pool->claims, pool->geo.host_count, pool->host, &epoch);
	if (err)
		return err;
	view = pool->claims[pool->host];
	view.claimed = epoch;
	view.sequence++;
	kvpool_claim_make(&view, pool->host, &line);
	err = kvpool_area_write(pool, KVPOOL_AREA_CLAIM_LINE, &line);
	if (err)
		return err;
	kvpool_settle();
	/* Loads the table in force as of now. */
	err = kvpool_sync(pool);
	if (err)
		return err;
	if (kvpool_claims_outbid(pool->claims, pool->geo.host_count, epoch))
		return -EAGAIN;
	*pool->next = *pool->table;
	err = write_table(pool, epoch);
	if (err)
		return err;
	mutex_lock(&kvpool_lock);
	if (control_lost(pool))
		err = -ENXIO;
	else
		pool->admin_epoch = epoch;
	mutex_unlock(&kvpool_lock);
	if (err)
		return err;
	*ret_epoch = epoch;
	pr_info("host %u administers pool %pUb, epoch %llx\n", pool->host, pool->seal.uuid, epoch);
	return 0;
}

int kvpool_admin_take(struct kvpool *pool, u64 *ret_epoch)
{
	return control_lost(pool) ? -ENXIO : kvpool_call(pool, take, ret_epoch);
}

/* What another administrator scrubbed, or gave away, is not known to be clean here. */
static void bind_clean(struct kvpool *pool)
{
	kvpool_bits_bind(pool->clean, (kvpool_unit_count(&pool->geo) + 7) / 8, &pool->clean_epoch,
			 pool->admin_epoch);
}

static void read_host(struct kvpool *pool, u32 host, struct kvpool_host_view *view)
{
	union kvpool_line copies[2];
	u32 copy, intact;

	memset(view, 0, sizeof(*view));
	intact = kvpool_area_read(pool, host, KVPOOL_AREA_HOST_LINE, KVPOOL_MAGIC_HOST, copies);
	for (copy = 0; copy < 2; copy++)
		if (intact & 1u << copy)
			kvpool_host_line_read(view, &copies[copy], host);
	view->fenced = pool->table->fenced[host];
}

/* Whether a host is out of a run of units: a use line first, its host line after it. */
static bool is_out(struct kvpool *pool, u32 host, u32 first, u32 count)
{
	u32 unit = first, index, copy, intact;
	struct kvpool_host_view view;
	struct kvpool_use_view use;
	union kvpool_line copies[2];

	while (unit < first + count && host != pool->host) {
		index = unit / KVPOOL_USE_UNITS_PER_LINE;
		intact = kvpool_area_read(pool, host,
					  KVPOOL_AREA_USE_LINES + index * KVPOOL_LINE_BYTES,
					  KVPOOL_MAGIC_USE, copies);
		read_host(pool, host, &view);
		for (; unit < first + count && unit / KVPOOL_USE_UNITS_PER_LINE == index; unit++) {
			memset(&use, 0, sizeof(use));
			for (copy = 0; copy < 2; copy++)
				if (intact & 1u << copy)
					kvpool_use_merge(&use, &copies[copy], host, unit);
			if (!kvpool_host_is_out(&view, &use))
				return false;
		}
	}
	for (; unit < first + count; unit++)
		if (kvpool_use_get(pool->use, unit) != KVPOOL_USE_NONE)
			return false;
	return true;
}

static u64 hosts_in(struct kvpool *pool, u32 first, u32 count)
{
	u64 held = 0;
	u32 host;

	for (host = 0; host < pool->geo.host_count; host++)
		if (!is_out(pool, host, first, count))
			held |= 1ull << host;
	/* Another host may write its lines where this one cannot read. */
	if (READ_ONCE(pool->gone) || control_lost(pool))
		return ~0ull;
	return held;
}

/* A partition, or more slices for one. */
struct creation {
	struct kvpool_create_plan plan;
	bool grow;
	u8 uuid[16];
	u8 *barred; /* units that some host may still reach */
	u8 *planned; /* units to be given */
	u8 *dirty; /* those of them to scrub first */
	u32 ret_id;
	u32 ret_first;
	u32 ret_slices;
	bool held; /* some units were barred */
	bool scrubbed; /* all of them */
};

static void announce_bits(struct kvpool *pool, const u8 *bits, u32 use, int *err)
{
	struct kvpool_slice slice = { .unit_count = 1 };
	u32 unit, units = kvpool_unit_count(&pool->geo);

	for (unit = 0; unit < units && !*err; unit++) {
		if (!kvpool_bit(bits, unit))
			continue;
		slice.device = unit / pool->geo.units_per_device;
		slice.first_unit = unit % pool->geo.units_per_device;
		*err = kvpool_use_write(pool, &slice, use);
	}
}

/* Whether this host still administers, as the medium says now. */
static int still_admin(struct kvpool *pool)
{
	int err = kvpool_sync(pool);

	if (!err && !pool->admin_epoch)
		err = -EAGAIN;
	return err;
}

/* Into pool->next. */
static int make_table(struct kvpool *pool, struct creation *creation)
{
	int (*make)(struct kvpool_table *table, const struct kvpool_geometry *geo,
		    const struct kvpool_create_plan *plan, const u8 *barred, u8 *taken,
		    u32 *ret_id) = creation->grow ? kvpool_table_grow : kvpool_table_create;

	*pool->next = *pool->table;
	return make(pool->next, &pool->geo, &creation->plan, creation->barred, pool->unit_scratch,
		    &creation->ret_id);
}

/* One attempt at free units: 0, or 1 if some are barred now and another attempt may find others. */
static int try_units(struct kvpool *pool, struct creation *creation)
{
	u32 old_count = pool->table->slice_count, i, unit, number;
	bool barred = false;
	int err = make_table(pool, creation);

	if (err)
		return err;
	memset(creation->planned, 0, (kvpool_unit_count(&pool->geo) + 7) / 8);
	memset(creation->dirty, 0, (kvpool_unit_count(&pool->geo) + 7) / 8);
	for (i = old_count; i < pool->next->slice_count; i++) {
		const struct kvpool_slice_entry *slice = &pool->next->slices[i];

		for (unit = 0; unit < slice->unit_count; unit++) {
			number = kvpool_unit_number(&pool->geo, slice->device,
						    slice->first_unit + unit);
			kvpool_bit_set(creation->planned, number);
			if (hosts_in(pool, number, 1)) {
				kvpool_bit_set(creation->barred, number);
				creation->held = true;
				barred = true;
			} else if (!kvpool_bit(pool->clean, number)) {
				kvpool_bit_set(creation->dirty, number);
			}
		}
	}
	creation->ret_slices = pool->next->slice_count - old_count;
	creation->ret_first = pool->next->slices[old_count].id;
	return barred;
}

static void bar_gone(struct kvpool *pool, struct creation *creation)
{
	u64 gone = kvpool_gone_devices(pool);
	u32 unit, units = kvpool_unit_count(&pool->geo);

	for (unit = 0; unit < units && gone; unit++)
		if (gone >> unit / pool->geo.units_per_device & 1)
			kvpool_bit_set(creation->barred, unit);
}

/* Chooses units and announces what has to be scrubbed. */
static int plan_creation(struct kvpool *pool, void *arg)
{
	struct creation *creation = arg;
	int err = still_admin(pool);
	u32 attempts = kvpool_unit_count(&pool->geo) + 1;

	if (err)
		return err;
	bind_clean(pool);
	bar_gone(pool, creation);
	do {
		err = try_units(pool, creation);
	} while (err == 1 && --attempts && !READ_ONCE(pool->gone));
	if (err)
		return err < 0 ? err : -ENOSPC;
	announce_bits(pool, creation->dirty, KVPOOL_USE_SCRUB, &err);
	if (!err) {
		kvpool_settle();
		/* A new administrator either sees the scrub, or is seen here. */
		err = still_admin(pool);
	}
	if (err) {
		int other = 0;

		announce_bits(pool, creation->dirty, KVPOOL_USE_NONE, &other);
	}
	return err;
}

/*
 * The units that were planned and no others: some may have become free meanwhile that nobody
 * scrubbed.
 */
static int commit_creation(struct kvpool *pool, void *arg)
{
	struct creation *creation = arg;
	u32 unit, units = kvpool_unit_count(&pool->geo);
	int err = 0;

	announce_bits(pool, creation->dirty, KVPOOL_USE_NONE, &err);
	if (err)
		return err;
	if (!creation->scrubbed)
		return -EIO;
	err = still_admin(pool);
	if (err)
		return err;
	bind_clean(pool);
	for (unit = 0; unit < units; unit++) {
		if (!kvpool_bit(creation->planned, unit))
			kvpool_bit_set(creation->barred, unit);
		else if (!kvpool_bit(pool->clean, unit))
			return -EIO;
	}
	err = make_table(pool, creation);
	if (err)
		return err;
	/* Whatever the new tenant leaves there is not clean. */
	for (unit = 0; unit < units; unit++)
		if (kvpool_bit(creation->planned, unit))
			kvpool_bit_clear(pool->clean, unit);
	return write_table(pool, pool->admin_epoch);
}

static int scrub_planned(struct kvpool *pool, struct creation *creation)
{
	u32 unit, units = kvpool_unit_count(&pool->geo);
	int err;

	for (unit = 0; unit < units; unit++) {
		if (!kvpool_bit(creation->dirty, unit))
			continue;
		err = kvpool_scrub(pool, unit / pool->geo.units_per_device,
				   (u64)(unit % pool->geo.units_per_device) << pool->geo.unit_shift,
				   1ull << pool->geo.unit_shift);
		if (err) {
			pr_err("pool %pUb: unit %u was not scrubbed: %d\n", pool->seal.uuid, unit,
			       err);
			return err;
		}
		kvpool_bit_set(pool->clean, unit);
	}
	return 0;
}

/* Units are chosen, scrubbed, and given. */
static int create(struct kvpool *pool, struct creation *creation)
{
	u32 bytes = (kvpool_unit_count(&pool->geo) + 7) / 8;
	int err, scrub_err;

	creation->barred = kzalloc(bytes, GFP_KERNEL);
	creation->planned = kzalloc(bytes, GFP_KERNEL);
	creation->dirty = kzalloc(bytes, GFP_KERNEL);
	err = creation->barred && creation->planned && creation->dirty ? 0 : -ENOMEM;
	if (!err)
		err = kvpool_call(pool, plan_creation, creation);
	if (!err) {
		scrub_err = scrub_planned(pool, creation);
		creation->scrubbed = !scrub_err;
		err = kvpool_call(pool, commit_creation, creation);
		if (scrub_err && err == -EIO)
			err = scrub_err;
	}
	kfree(creation->barred);
	kfree(creation->planned);
	kfree(creation->dirty);
	return err;
}

int kvpool_admin_create(struct kvpool *pool, struct kvpool_partition_create *args,
			const char *name)
{
	struct creation creation = {
		.plan = { .name = name, .bytes = args->bytes, .slice_bytes = args->slice_bytes,
			  .type = args->type, .ddio = args->ddio },
	};
	int err;

	get_random_bytes(creation.uuid, sizeof(creation.uuid));
	creation.uuid[6] = (creation.uuid[6] & 0x0f) | 0x40;
	creation.uuid[8] = (creation.uuid[8] & 0x3f) | 0x80;
	creation.plan.uuid = creation.uuid;
	err = create(pool, &creation);
	if (err)
		return err;
	memcpy(args->ret_uuid, creation.uuid, sizeof(creation.uuid));
	args->ret_id = creation.ret_id;
	args->ret_slice_count = creation.ret_slices;
	return 0;
}

static u32 grow_reason(int err, bool held)
{
	switch (err) {
	case -ENOENT:
		return KVPOOL_CHANGE_NO_PARTITION;
	case -ESTALE:
		return KVPOOL_CHANGE_DRAINS;
	case -EINVAL:
		return KVPOOL_CHANGE_BAD_BYTES;
	case -ENOSPC:
		return held ? KVPOOL_CHANGE_HELD : KVPOOL_CHANGE_NO_ROOM;
	default:
		return KVPOOL_CHANGE_DONE;
	}
}

int kvpool_admin_grow(struct kvpool *pool, struct kvpool_partition_grow *args, const char *name)
{
	struct creation creation = {
		.plan = { .name = name, .bytes = args->bytes, .slice_bytes = args->slice_bytes },
		.grow = true,
	};
	int err = create(pool, &creation);

	args->ret_reason = grow_reason(err, creation.held);
	args->ret_first_slice = err ? 0 : creation.ret_first;
	args->ret_slice_count = err ? 0 : creation.ret_slices;
	if (!err)
		kvpool_kick(pool);
	return err;
}

struct shrinking {
	const struct kvpool_shrink_plan *plan;
	u64 ret_bytes;
	u32 ret_reason;
};

static int shrink(struct kvpool *pool, void *arg)
{
	struct shrinking *shrinking = arg;
	int err = still_admin(pool);

	if (err)
		return err;
	*pool->next = *pool->table;
	err = kvpool_table_shrink(pool->next, &pool->geo, shrinking->plan, &shrinking->ret_bytes,
				  &shrinking->ret_reason);
	if (err)
		return err;
	err = write_table(pool, pool->admin_epoch);
	if (!err)
		kvpool_kick(pool);
	return err;
}

/* Begins it, as destruction: the slices are gone when every host is proven out of them. */
int kvpool_admin_shrink(struct kvpool *pool, struct kvpool_partition_shrink *args,
			const struct kvpool_shrink_plan *plan)
{
	struct shrinking shrinking = { .plan = plan };
	int err = kvpool_call(pool, shrink, &shrinking);

	args->ret_bytes = shrinking.ret_bytes;
	args->ret_reason = shrinking.ret_reason;
	return err;
}

struct destruction {
	const char *name;
	bool force;
};

static int destroy(struct kvpool *pool, void *arg)
{
	struct destruction *destruction = arg;
	int err = still_admin(pool);

	if (err)
		return err;
	*pool->next = *pool->table;
	err = kvpool_table_drain(pool->next, destruction->name, destruction->force);
	if (err)
		return err;
	err = write_table(pool, pool->admin_epoch);
	if (!err)
		kvpool_kick(pool);
	return err;
}

/*
 * Begins it. It ends when every host is proven out, which may be never: then it is shown as
 * held.
 */
int kvpool_admin_destroy(struct kvpool *pool, const char *name, bool force)
{
	struct destruction destruction = { name, force };

	return kvpool_call(pool, destroy, &destruction);
}

struct fencing {
	u32 host;
	u64 incarnation;
};

static int fence(struct kvpool *pool, void *arg)
{
	struct fencing *fencing = arg;
	struct kvpool_host_view view;
	int err = still_admin(pool);

	if (err)
		return err;
	read_host(pool, fencing->host, &view);
	/* A host line that nobody can read says nothing against what was listed before. */
	if (view.readable && view.incarnation != fencing->incarnation)
		return -ESTALE;
	*pool->next = *pool->table;
	pool->next->fenced[fencing->host] = fencing->incarnation;
	err = write_table(pool, pool->admin_epoch);
	if (!err)
		kvpool_kick(pool);
	return err;
}

int kvpool_admin_fence(struct kvpool *pool, u32 host, u64 incarnation)
{
	struct fencing fencing = { host, incarnation };
	int err;

	if (host >= pool->geo.host_count || host == pool->host)
		return -EINVAL;
	err = kvpool_call(pool, fence, &fencing);
	trace_kvpool_fence(host, incarnation, err);
	return err;
}

static void event_held(struct kvpool *pool, const struct kvpool_slice_entry *slice, u64 held)
{
	struct kvpool_place at = { slice->device, (u64)slice->first_unit << pool->geo.unit_shift };

	kvpool_event_place(KVPOOL_EVENT_SLICE_HELD, pool, slice->partition, slice->id, at,
			   (u64)slice->unit_count << pool->geo.unit_shift, held);
}

/*
 * What drains and is proven free leaves the table; what is not is shown with the hosts it waits
 * for.
 */
void kvpool_admin_tick(struct kvpool *pool)
{
	bool dropped = false;
	u64 held;
	u32 i, first;

	if (!pool->admin_epoch)
		return;
	*pool->next = *pool->table;
	for (i = pool->next->slice_count; i--;) {
		const struct kvpool_slice_entry *slice = &pool->next->slices[i];

		if (slice->state != KVPOOL_SLICE_DRAINING)
			continue;
		first = kvpool_unit_number(&pool->geo, slice->device, slice->first_unit);
		held = hosts_in(pool, first, slice->unit_count);
		mutex_lock(&kvpool_lock);
		if (held && held != pool->held[i])
			event_held(pool, slice, held);
		pool->held[i] = held;
		mutex_unlock(&kvpool_lock);
		if (held)
			continue;
		kvpool_table_drop_slice(pool->next, i);
		dropped = true;
	}
	if (dropped && !write_table(pool, pool->admin_epoch))
		queue_work(system_unbound_wq, &pool->scrub);
}

struct unit_scrub {
	u32 unit;
	bool begin;
};

static int announce_scrub(struct kvpool *pool, void *arg)
{
	struct unit_scrub *scrub = arg;
	struct kvpool_slice slice = { .unit_count = 1 };
	int err = 0;

	slice.device = scrub->unit / pool->geo.units_per_device;
	slice.first_unit = scrub->unit % pool->geo.units_per_device;
	if (!scrub->begin)
		return kvpool_use_write(pool, &slice, KVPOOL_USE_NONE);
	err = still_admin(pool);
	if (err)
		return err;
	if (hosts_in(pool, scrub->unit, 1))
		return -EBUSY;
	err = kvpool_use_write(pool, &slice, KVPOOL_USE_SCRUB);
	if (!err) {
		kvpool_settle();
		err = still_admin(pool);
	}
	if (err)
		kvpool_use_write(pool, &slice, KVPOOL_USE_NONE);
	return err;
}

static int scrub_unit(struct kvpool *pool, u32 unit)
{
	struct unit_scrub scrub = { unit, true };
	int err = kvpool_call(pool, announce_scrub, &scrub), other;

	if (err)
		return err;
	err = kvpool_scrub(pool, unit / pool->geo.units_per_device,
			   (u64)(unit % pool->geo.units_per_device) << pool->geo.unit_shift,
			   1ull << pool->geo.unit_shift);
	scrub.begin = false;
	other = kvpool_call(pool, announce_scrub, &scrub);
	if (!err && !other)
		kvpool_bit_set(pool->clean, unit);
	return err ?: other;
}

/*
 * In the background, one unit after the other, so that what was freed is zero soon and a new
 * partition need not wait. Administration comes first: this one never waits for the lock.
 */
void kvpool_scrub_work(struct work_struct *work)
{
	struct kvpool *pool = container_of(work, struct kvpool, scrub);
	u32 unit, device, first, units = kvpool_unit_count(&pool->geo);
	u8 *taken = kzalloc((units + 7) / 8, GFP_KERNEL);

	if (!taken)
		return;
	for (unit = 0; unit < units; unit++) {
		if (READ_ONCE(pool->closing) || !mutex_trylock(&kvpool_control_lock))
			break;
		mutex_lock(&kvpool_lock);
		kvpool_table_units(pool->table, &pool->geo, taken);
		bind_clean(pool);
		mutex_unlock(&kvpool_lock);
		device = unit / pool->geo.units_per_device;
		first = kvpool_first_data_unit(&pool->geo, device);
		if (pool->admin_epoch && unit % pool->geo.units_per_device >= first &&
		    !READ_ONCE(pool->devices[device].gone) && !kvpool_bit(taken, unit) &&
		    !kvpool_bit(pool->clean, unit))
			scrub_unit(pool, unit);
		mutex_unlock(&kvpool_control_lock);
	}
	kfree(taken);
}
