// SPDX-License-Identifier: GPL-2.0-only
/*
 * Partitions on this host: attached while somebody joined them, and out only when nothing can
 * reach them. Attaching announces first and reads the table after; leaving withdraws after
 * mappings, reachers and cached lines are gone.
 */
#include <linux/io.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

/* Beyond this all caches are emptied at once: line by line a TiB would take minutes. */
#define RETIRE_LINES_MAX (256ull << 20)

static void release_part(struct kref *ref)
{
	struct kvpool_part *part = container_of(ref, struct kvpool_part, ref);
	struct kvpool_slice *slice;
	unsigned long id;

	xa_for_each(&part->slices, id, slice) {
		if (slice->map)
			iounmap(slice->map);
		kfree(slice);
		atomic_dec(&kvpool_live[KVPOOL_LIVE_SLICES]);
	}
	xa_destroy(&part->slices);
	xa_destroy(&part->poison);
	kfree(part);
	atomic_dec(&kvpool_live[KVPOOL_LIVE_PARTITIONS]);
}

void kvpool_part_put(struct kvpool_part *part)
{
	kref_put(&part->ref, release_part);
}

struct kvpool_part *kvpool_part_new(struct kvpool *pool,
				    const struct kvpool_partition_entry *entry)
{
	struct kvpool_part *part = kzalloc(sizeof(*part), GFP_KERNEL);
	int err;

	if (!part)
		return ERR_PTR(-ENOMEM);
	atomic_inc(&kvpool_live[KVPOOL_LIVE_PARTITIONS]);
	kref_init(&part->ref);
	xa_init(&part->poison);
	xa_init(&part->slices);
	INIT_LIST_HEAD(&part->list);
	part->pool = pool;
	memcpy(part->name, entry->name, sizeof(part->name));
	memcpy(part->uuid, entry->uuid, sizeof(part->uuid));
	part->id = entry->id;
	part->type = entry->type;
	part->ddio = entry->ddio;
	part->type_obtained = KVPOOL_TYPE_OTHER;
	err = kvpool_part_follow(part);
	if (!err)
		return part;
	kvpool_part_put(part);
	return ERR_PTR(err);
}

struct kvpool_slice *kvpool_part_slice(struct kvpool_part *part, u32 id)
{
	return xa_load(&part->slices, id);
}

/* Of a write-back partition it stays as long as the partition does. */
struct kvpool_slice *kvpool_part_first(struct kvpool_part *part)
{
	unsigned long id = 0;

	return xa_find(&part->slices, &id, ULONG_MAX, XA_PRESENT);
}

/* What it has, or while all of it drains still holds. */
u64 kvpool_part_bytes(struct kvpool_part *part, u32 *ret_slices)
{
	struct kvpool_slice *slice;
	unsigned long id;
	u64 bytes = 0;

	*ret_slices = 0;
	xa_for_each(&part->slices, id, slice) {
		if (!slice->listed || (slice->draining && !part->draining))
			continue;
		bytes += slice->bytes;
		++*ret_slices;
	}
	return bytes;
}

static struct kvpool_slice *add_slice(struct kvpool_part *part,
				      const struct kvpool_slice_entry *from)
{
	const struct kvpool *pool = part->pool;
	struct kvpool_slice *slice = kzalloc(sizeof(*slice), GFP_KERNEL);

	if (!slice)
		return NULL;
	slice->id = from->id;
	slice->device = from->device;
	slice->first_unit = from->first_unit;
	slice->unit_count = from->unit_count;
	slice->device_offset = (u64)from->first_unit << pool->geo.unit_shift;
	slice->bytes = (u64)from->unit_count << pool->geo.unit_shift;
	slice->start = pool->devices[from->device].start + slice->device_offset;
	slice->gone = pool->devices[from->device].gone;
	if (xa_err(xa_store(&part->slices, slice->id, slice, GFP_KERNEL))) {
		kfree(slice);
		return NULL;
	}
	atomic_inc(&kvpool_live[KVPOOL_LIVE_SLICES]);
	return slice;
}

static void drain_slice(struct kvpool_part *part, struct kvpool_slice *slice, bool force)
{
	if (!slice->draining) {
		trace_kvpool_slice_drain(part->id, slice->id);
		kvpool_members_lose(part, slice, &slice->draining);
		kvpool_event_slice(KVPOOL_EVENT_SLICE_DRAINS, part, slice);
	}
	if (force && !slice->force) {
		slice->force = true;
		kvpool_members_kill(part, slice->id);
	}
}

/* The whole partition left the table: no more is heard of it. */
void kvpool_part_freed(struct kvpool_part *part)
{
	struct kvpool_slice *slice;
	unsigned long id;

	xa_for_each(&part->slices, id, slice)
		if (slice->listed)
			kvpool_event_slice(KVPOOL_EVENT_SLICE_FREE, part, slice);
	kvpool_events_end(part);
}

/* What nobody can have a pointer to any more, since a member was the only way to one. */
static void free_slices(struct kvpool_part *part)
{
	struct kvpool_slice *slice;
	unsigned long id;

	if (part->members || part->attaching)
		return;
	xa_for_each(&part->slices, id, slice) {
		if (slice->listed || slice->announced)
			continue;
		xa_erase(&part->slices, id);
		kfree(slice);
		atomic_dec(&kvpool_live[KVPOOL_LIVE_SLICES]);
	}
}

/* Its slices become what the table says. -ENOMEM: the others have. */
int kvpool_part_follow(struct kvpool_part *part)
{
	struct kvpool_table *table = part->pool->table;
	const struct kvpool_partition_entry *whole = kvpool_table_find_id(table, part->id);
	struct kvpool_slice *slice;
	unsigned long id;
	int err = 0;
	u32 i;

	lockdep_assert_held(&kvpool_lock);
	xa_for_each(&part->slices, id, slice)
		slice->found = false;
	for (i = 0; i < table->slice_count; i++) {
		const struct kvpool_slice_entry *entry = &table->slices[i];

		if (entry->partition != part->id)
			continue;
		slice = kvpool_part_slice(part, entry->id) ?: add_slice(part, entry);
		if (!slice) {
			err = -ENOMEM;
			continue;
		}
		/* No administrator moves a slice: whatever stands there is another one. */
		if (slice->device != entry->device || slice->first_unit != entry->first_unit ||
		    slice->unit_count != entry->unit_count)
			continue;
		slice->found = true;
		slice->listed = true;
		/* All of a partition is drained by kvpool_part_drain(). */
		if (entry->state == KVPOOL_SLICE_DRAINING &&
		    whole->state == KVPOOL_PARTITION_ACTIVE)
			drain_slice(part, slice, entry->flags & KVPOOL_SLICE_F_FORCE);
	}
	xa_for_each(&part->slices, id, slice) {
		if (slice->found || !slice->listed)
			continue;
		/* Without this host's proof only after it was fenced. */
		drain_slice(part, slice, false);
		kvpool_poison_forget(part, slice);
		slice->listed = false;
		kvpool_event_slice(KVPOOL_EVENT_SLICE_FREE, part, slice);
	}
	free_slices(part);
	kvpool_part_judge(part);
	return err;
}

static bool is_any(const struct kvpool_slice *slice)
{
	return true;
}

static bool is_leaving(const struct kvpool_slice *slice)
{
	return slice->leaving;
}

static bool is_new(const struct kvpool_slice *slice)
{
	return slice->announced && !slice->attached;
}

/* Whether lines of it may be in this host's caches and can be written back. */
static bool has_lines(const struct kvpool_slice *slice)
{
	return slice->map && !READ_ONCE(slice->gone);
}

/*
 * Lines of this host are written back and forgotten, of whatever type the mappings were:
 * devices may allocate, too.
 */
static void retire(struct kvpool_part *part, bool (*chosen)(const struct kvpool_slice *slice))
{
	struct kvpool_slice *slice;
	unsigned long id;
	u64 bytes = 0;

	xa_for_each(&part->slices, id, slice)
		if (has_lines(slice) && chosen(slice))
			bytes += slice->bytes;
	if (bytes > RETIRE_LINES_MAX && !kvpool_in_guest()) {
		kvpool_caches_empty();
		return;
	}
	xa_for_each(&part->slices, id, slice)
		if (has_lines(slice) && chosen(slice))
			kvpool_caches_retire((void __force *)slice->map, slice->bytes);
}

void kvpool_part_retire(struct kvpool_part *part)
{
	retire(part, is_any);
}

/* One mapping a slice, of the partition's type: it holds the type for every mapping of a user. */
static int map_slice(struct kvpool_part *part, struct kvpool_slice *slice)
{
	u32 type;

	slice->map = kvpool_map_as(slice->start, slice->bytes, part->type);
	if (!slice->map)
		return -ENOMEM;
	type = kvpool_map_type((void __force *)slice->map);
	part->type_obtained = type;
	if (type == part->type)
		return 0;
	pr_err("partition %s: memory type %u was asked for, %u obtained\n", part->name, part->type,
	       type);
	return -EMEDIUMTYPE;
}

/* Whether the table in force still gives this partition the slices that were announced. */
static int check_table(struct kvpool *pool, struct kvpool_part *part)
{
	struct kvpool_partition_entry *entry;
	struct kvpool_slice *slice;
	unsigned long id;
	int err = kvpool_sync(pool);

	if (err)
		return err;
	entry = kvpool_table_find_id(pool->table, part->id);
	if (!entry || entry->state != KVPOOL_PARTITION_ACTIVE)
		return -ESTALE;
	xa_for_each(&part->slices, id, slice)
		if (slice->announced && !slice->attached &&
		    (slice->draining || !slice->listed || READ_ONCE(slice->gone)))
			return -EAGAIN; /* shrunk meanwhile: without it */
	return 0;
}

/*
 * What stood in this host's page before this incarnation of the host: its members are gone, and
 * their lines with the caches that were emptied since.
 */
static int write_reaper_page(struct kvpool *pool, struct kvpool_part *part)
{
	u64 offset = pool->host * KVPOOL_REAPER_PAGE_BYTES, at_offset;
	const struct kvpool_slice *first = kvpool_part_first(part);
	u8 *page = (u8 __force *)first->map;
	union kvpool_line line;
	u32 slot;
	int err;

	for (slot = 0; slot < KVPOOL_MEMBER_SLOTS; slot++) {
		struct kvpool_place at = { first->device, 0 };

		at_offset = offset + slot * KVPOOL_LINE_BYTES;
		at.offset = first->device_offset + at_offset;
		err = kvpool_lines_read(pool, at.device, page + at_offset, &line, sizeof(line));
		if (err)
			return err;
		if (!kvpool_line_intact(&pool->seal, at, &line, KVPOOL_MAGIC_REAPER)) {
			memset(&line, 0, sizeof(line));
			line.reaper.magic = cpu_to_le32(KVPOOL_MAGIC_REAPER);
			line.reaper.state = cpu_to_le32(KVPOOL_REAPER_FREE);
			line.reaper.former_state = cpu_to_le32(KVPOOL_REAPER_FREE);
		} else if (le32_to_cpu(line.reaper.state) != KVPOOL_REAPER_FREE) {
			line.reaper.state = cpu_to_le32(KVPOOL_REAPER_QUIET);
			line.reaper.former_state = cpu_to_le32(KVPOOL_REAPER_QUIET);
		}
		line.reaper.host = cpu_to_le16(pool->host);
		line.reaper.slot = cpu_to_le16(slot);
		line.reaper.sequence = cpu_to_le64(++pool->sequence);
		kvpool_seal_line(&pool->seal, at, &line);
		err = kvpool_lines_write(pool, at.device, page + at_offset, &line, sizeof(line));
		if (err)
			return err;
	}
	return 0;
}

/*
 * After cached lines were written back. To a device that is gone they cannot be, and may be one
 * day if it comes back: until this host's next incarnation its units stay in the use lines.
 */
static void leave_slice(struct kvpool *pool, struct kvpool_slice *slice)
{
	if (slice->map)
		iounmap(slice->map);
	slice->map = NULL;
	slice->announced = false;
	if (!READ_ONCE(pool->gone) && !READ_ONCE(slice->gone))
		kvpool_use_write(pool, slice, KVPOOL_USE_NONE);
}

/* What was announced and not attached is withdrawn. */
static void withdraw(struct kvpool *pool, struct kvpool_part *part)
{
	struct kvpool_slice *slice;
	unsigned long id;

	retire(part, is_new);
	xa_for_each(&part->slices, id, slice)
		if (is_new(slice))
			leave_slice(pool, slice);
	/* What was asked for before is what the others have. */
	if (part->attached)
		part->type_obtained = part->type;
}

static int map_new(struct kvpool *pool, struct kvpool_part *part)
{
	struct kvpool_slice *slice, *first = kvpool_part_first(part);
	unsigned long id;
	int err;

	xa_for_each(&part->slices, id, slice) {
		if (!is_new(slice))
			continue;
		err = map_slice(part, slice);
		if (err)
			return err;
	}
	/* Prefetch may have kept lines of what stood there before. */
	retire(part, is_new);
	return part->type == KVPOOL_TYPE_WB && is_new(first) ? write_reaper_page(pool, part) : 0;
}

/* Announced, looked at, mapped, used: the slices that are not yet; others may be. */
static int attach(struct kvpool *pool, struct kvpool_part *part)
{
	struct kvpool_slice *slice;
	unsigned long id;
	int err = 0;
	bool any = false;

	xa_for_each(&part->slices, id, slice) {
		if (slice->attached || slice->draining || slice->gone || !slice->listed)
			continue;
		any = true;
		slice->announced = true;
		err = kvpool_use_write(pool, slice, KVPOOL_USE_ANNOUNCED);
		if (err)
			return err; /* it fenced itself */
	}
	if (!any)
		return 0;
	kvpool_settle();
	/* Claims, table, claims: what is in force now is from after the announcement. */
	err = check_table(pool, part);
	if (!err)
		err = check_table(pool, part);
	if (!err)
		err = map_new(pool, part);
	xa_for_each(&part->slices, id, slice)
		if (!err && is_new(slice))
			err = kvpool_use_write(pool, slice, KVPOOL_USE_USED);
	if (err) {
		withdraw(pool, part);
		return err;
	}
	mutex_lock(&kvpool_lock);
	xa_for_each(&part->slices, id, slice) {
		if (!is_new(slice))
			continue;
		smp_store_release(&slice->attached, true);
		kvpool_event_slice(KVPOOL_EVENT_SLICE_READY, part, slice);
	}
	part->attached = true;
	mutex_unlock(&kvpool_lock);
	return 0;
}

static int attach_some(struct kvpool *pool, struct kvpool_part *part)
{
	int err, attempt;

	for (attempt = 0; attempt < 3; attempt++) {
		err = attach(pool, part);
		if (err != -EAGAIN)
			break;
	}
	trace_kvpool_attach(part->id, err);
	return err;
}

int kvpool_part_attach(struct kvpool *pool, void *arg)
{
	struct kvpool_part *part = arg;
	int err = 0;

	mutex_lock(&kvpool_lock);
	if (READ_ONCE(pool->gone))
		err = -ENODEV;
	else if (part->gone)
		err = -ENODEV;
	else if (part->draining)
		err = -ESTALE;
	mutex_unlock(&kvpool_lock);
	return err || part->attached ? err : attach_some(pool, part);
}

static struct kvpool_part *find_grown(void)
{
	struct kvpool_slice *slice;
	struct kvpool_part *part;
	unsigned long id;

	list_for_each_entry(part, &kvpool_parts, list) {
		if (!part->attached || part->draining)
			continue;
		xa_for_each(&part->slices, id, slice)
			if (slice->listed && !slice->attached && !slice->draining &&
			    !slice->failed && !slice->gone)
				return part;
	}
	return NULL;
}

/*
 * Who has joined gets what the partition grew by. What cannot be attached now is tried again at
 * the next look; until then its mmap says EAGAIN.
 */
void kvpool_part_attach_grown(struct kvpool *pool)
{
	struct kvpool_slice *slice;
	struct kvpool_part *part;
	unsigned long id;
	int err;

	list_for_each_entry(part, &kvpool_parts, list)
		xa_for_each(&part->slices, id, slice)
			slice->failed = false;
	while (!READ_ONCE(pool->gone)) {
		mutex_lock(&kvpool_lock);
		part = find_grown();
		mutex_unlock(&kvpool_lock);
		if (!part)
			return;
		err = attach_some(pool, part);
		if (!err)
			continue;
		pr_err_ratelimited("partition %s: new slices were not attached: %d\n", part->name,
				   err);
		xa_for_each(&part->slices, id, slice)
			slice->failed = slice->failed || !slice->attached;
	}
}

/* The table takes it away: no faults any more, and with force no reachers. */
void kvpool_part_drain(struct kvpool_part *part, bool force)
{
	struct kvpool_member *member;
	struct kvpool_slice *slice;
	unsigned long id;
	u32 i;

	lockdep_assert_held(&kvpool_lock);
	if (!part->draining) {
		part->draining = true;
		trace_kvpool_drain(part->id, 0);
		list_for_each_entry(member, &kvpool_members, list)
			for (i = 0; i < member->part_count; i++)
				if (member->parts[i] == part)
					kvpool_member_revoke(member, true);
		xa_for_each(&part->slices, id, slice) {
			if (!slice->draining)
				kvpool_event_slice(KVPOOL_EVENT_SLICE_DRAINS, part, slice);
			WRITE_ONCE(slice->draining, true);
		}
	}
	if (force && !part->force) {
		part->force = true;
		kvpool_members_kill(part, 0);
	}
}

/*
 * The host's administrator answers for a member's devices. Only while faults serve the slice no
 * more, so that nothing comes after the word.
 */
int kvpool_slice_quiet(u64 incarnation, u32 id)
{
	struct kvpool_slice *slice = NULL;
	struct kvpool_part *part;
	int err;

	mutex_lock(&kvpool_lock);
	list_for_each_entry(part, &kvpool_parts, list) {
		slice = kvpool_part_slice(part, id);
		if (slice)
			break;
	}
	if (!kvpool_pool)
		err = -ENODEV;
	else if (!slice)
		err = -ENOENT;
	else if (!slice->draining)
		err = -EBUSY;
	else
		err = kvpool_member_forget_slice(incarnation, id);
	if (!err)
		kvpool_kick(kvpool_pool);
	mutex_unlock(&kvpool_lock);
	return err;
}

/*
 * Marks what nothing can reach any more on this host: all of an idle partition, and of others
 * the slices that drain and that no member ever mapped who is still there. From here on nobody
 * maps them.
 */
static bool pick_leaving(struct kvpool_part *part)
{
	bool idle = !part->members && !part->attaching, any = false;
	struct kvpool_slice *slice;
	unsigned long id;

	if (kvpool_drain_fails())
		return false;
	xa_for_each(&part->slices, id, slice) {
		slice->leaving = slice->announced &&
				 (idle || (slice->draining && !part->draining &&
					   !kvpool_slice_is_reached(slice)));
		if (!slice->leaving)
			continue;
		WRITE_ONCE(slice->attached, false);
		any = true;
	}
	if (idle)
		part->attached = false;
	return any;
}

/*
 * The use lines without a slice are the proof that others wait for, so they are written last;
 * when the medium cannot be written any more, nothing is.
 */
static void detach(struct kvpool *pool, struct kvpool_part *part)
{
	struct kvpool_slice *slice;
	unsigned long id;

	if (!READ_ONCE(pool->gone)) {
		retire(part, is_leaving);
		kvpool_settle();
	}
	xa_for_each(&part->slices, id, slice) {
		if (!slice->leaving)
			continue;
		trace_kvpool_slice_detach(part->id, slice->id);
		leave_slice(pool, slice);
	}
	if (!part->attached)
		part->type_obtained = KVPOOL_TYPE_OTHER;
	trace_kvpool_detach(part->id, READ_ONCE(pool->gone) ? -ENODEV : 0);
}

/* On the thread, which alone changes the list of partitions: it may walk it without a lock. */
void kvpool_part_detach_idle(struct kvpool *pool)
{
	struct kvpool_part *part;
	bool any;

	list_for_each_entry(part, &kvpool_parts, list) {
		mutex_lock(&kvpool_lock);
		any = pick_leaving(part);
		mutex_unlock(&kvpool_lock);
		if (!any)
			continue;
		detach(pool, part);
		mutex_lock(&kvpool_lock);
		free_slices(part);
		mutex_unlock(&kvpool_lock);
	}
}
