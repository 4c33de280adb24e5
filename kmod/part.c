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

	xa_destroy(&part->poison);
	kvfree(part->slices);
	kfree(part);
}

void kvpool_part_put(struct kvpool_part *part)
{
	kref_put(&part->ref, release_part);
}

struct kvpool_part *kvpool_part_new(struct kvpool *pool,
				    const struct kvpool_partition_entry *entry)
{
	const struct kvpool_table *table = pool->table;
	struct kvpool_part *part = kzalloc(sizeof(*part), GFP_KERNEL);
	u32 i, count = 0;

	if (!part)
		return ERR_PTR(-ENOMEM);
	for (i = 0; i < table->slice_count; i++)
		count += table->slices[i].partition == entry->id;
	part->slices = kvcalloc(count, sizeof(*part->slices), GFP_KERNEL);
	if (!part->slices) {
		kfree(part);
		return ERR_PTR(-ENOMEM);
	}
	kref_init(&part->ref);
	xa_init(&part->poison);
	INIT_LIST_HEAD(&part->list);
	part->pool = pool;
	memcpy(part->name, entry->name, sizeof(part->name));
	memcpy(part->uuid, entry->uuid, sizeof(part->uuid));
	part->id = entry->id;
	part->type = entry->type;
	part->ddio = entry->ddio;
	part->type_obtained = KVPOOL_TYPE_OTHER;
	for (i = 0; i < table->slice_count; i++) {
		const struct kvpool_slice_entry *from = &table->slices[i];
		struct kvpool_slice *slice;

		if (from->partition != entry->id)
			continue;
		slice = &part->slices[part->slice_count++];
		slice->id = from->id;
		slice->device = from->device;
		slice->first_unit = from->first_unit;
		slice->unit_count = from->unit_count;
		slice->device_offset = (u64)from->first_unit << pool->geo.unit_shift;
		slice->bytes = (u64)from->unit_count << pool->geo.unit_shift;
		slice->start = pool->devices[from->device].start + slice->device_offset;
	}
	return part;
}

struct kvpool_slice *kvpool_part_slice(struct kvpool_part *part, u32 id)
{
	u32 i;

	for (i = 0; i < part->slice_count; i++)
		if (part->slices[i].id == id)
			return &part->slices[i];
	return NULL;
}

/*
 * Lines of this host are written back and forgotten, of whatever type the mappings were:
 * devices may allocate, too.
 */
void kvpool_part_retire(struct kvpool_part *part)
{
	u64 bytes = 0;
	u32 i;

	for (i = 0; i < part->slice_count; i++)
		bytes += part->slices[i].map ? part->slices[i].bytes : 0;
	if (bytes > RETIRE_LINES_MAX && !kvpool_in_guest()) {
		kvpool_caches_empty();
		return;
	}
	for (i = 0; i < part->slice_count; i++)
		if (part->slices[i].map)
			kvpool_caches_retire((void __force *)part->slices[i].map,
					     part->slices[i].bytes);
}

static void unmap_slices(struct kvpool_part *part)
{
	u32 i;

	for (i = 0; i < part->slice_count; i++) {
		if (part->slices[i].map)
			iounmap(part->slices[i].map);
		part->slices[i].map = NULL;
	}
}

/* One mapping a slice, of the partition's type: it holds the type for every mapping of a user. */
static int map_slices(struct kvpool_part *part)
{
	u32 i, type;

	for (i = 0; i < part->slice_count; i++) {
		struct kvpool_slice *slice = &part->slices[i];

		slice->map = kvpool_map_as(slice->start, slice->bytes, part->type);
		if (!slice->map)
			return -ENOMEM;
		type = kvpool_map_type((void __force *)slice->map);
		part->type_obtained = type;
		if (type == part->type)
			continue;
		pr_err("partition %s: memory type %u was asked for, %u obtained\n", part->name,
		       part->type, type);
		return -EMEDIUMTYPE;
	}
	return 0;
}

static int write_use(struct kvpool *pool, struct kvpool_part *part, u32 use)
{
	int err = 0;
	u32 i;

	for (i = 0; i < part->slice_count && !err; i++)
		err = kvpool_use_write(pool, &part->slices[i], use);
	return err;
}

/* Whether the table in force still gives this partition these slices. */
static int check_table(struct kvpool *pool, struct kvpool_part *part)
{
	struct kvpool_partition_entry *entry;
	u32 i, found = 0;
	int err = kvpool_sync(pool);

	if (err)
		return err;
	entry = kvpool_table_find_id(pool->table, part->id);
	if (!entry || entry->state != KVPOOL_PARTITION_ACTIVE)
		return -ESTALE;
	for (i = 0; i < pool->table->slice_count; i++) {
		const struct kvpool_slice_entry *slice = &pool->table->slices[i];

		if (slice->partition != part->id)
			continue;
		if (slice->state != KVPOOL_SLICE_ACTIVE || !kvpool_part_slice(part, slice->id))
			return -ESTALE;
		found++;
	}
	return found == part->slice_count ? 0 : -ESTALE;
}

/*
 * What stood in this host's page before this incarnation of the host: its members are gone, and
 * their lines with the caches that were emptied since.
 */
static int write_reaper_page(struct kvpool *pool, struct kvpool_part *part)
{
	u64 offset = pool->host * KVPOOL_REAPER_PAGE_BYTES, at_offset;
	u8 *page = (u8 __force *)part->slices[0].map;
	union kvpool_line line;
	u32 slot;
	int err;

	for (slot = 0; slot < KVPOOL_MEMBER_SLOTS; slot++) {
		struct kvpool_place at = { part->slices[0].device, 0 };

		at_offset = offset + slot * KVPOOL_LINE_BYTES;
		at.offset = part->slices[0].device_offset + at_offset;
		err = kvpool_lines_read(pool, page + at_offset, &line, sizeof(line));
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
		err = kvpool_lines_write(pool, page + at_offset, &line, sizeof(line));
		if (err)
			return err;
	}
	return 0;
}

static int attach(struct kvpool *pool, struct kvpool_part *part)
{
	int err = write_use(pool, part, KVPOOL_USE_ANNOUNCED);

	if (err)
		return err;
	kvpool_settle();
	/* Claims, table, claims: what is in force now is from after the announcement. */
	err = check_table(pool, part);
	if (!err)
		err = check_table(pool, part);
	if (!err)
		err = map_slices(part);
	if (!err) {
		/* Prefetch may have kept lines of what stood there before. */
		kvpool_part_retire(part);
		if (part->type == KVPOOL_TYPE_WB)
			err = write_reaper_page(pool, part);
	}
	if (!err)
		err = write_use(pool, part, KVPOOL_USE_USED);
	if (err) {
		kvpool_part_retire(part);
		unmap_slices(part);
		write_use(pool, part, KVPOOL_USE_NONE);
	}
	return err;
}

int kvpool_part_attach(struct kvpool *pool, void *arg)
{
	struct kvpool_part *part = arg;
	int err = 0;

	mutex_lock(&kvpool_lock);
	if (READ_ONCE(pool->gone))
		err = -ENODEV;
	else if (part->draining)
		err = -ESTALE;
	mutex_unlock(&kvpool_lock);
	if (err || part->attached)
		return err;
	err = attach(pool, part);
	trace_kvpool_attach(part->id, err);
	mutex_lock(&kvpool_lock);
	part->attached = !err;
	mutex_unlock(&kvpool_lock);
	return err;
}

/* The table takes it away: no faults any more, and with force no reachers. */
void kvpool_part_drain(struct kvpool_part *part, bool force)
{
	struct kvpool_member *member;
	u32 i;

	lockdep_assert_held(&kvpool_lock);
	if (!part->draining) {
		part->draining = true;
		trace_kvpool_drain(part->id, 0);
		list_for_each_entry(member, &kvpool_members, list)
			for (i = 0; i < member->part_count; i++)
				if (member->parts[i] == part)
					kvpool_member_revoke(member, true);
	}
	if (force && !part->force) {
		part->force = true;
		kvpool_members_kill(part);
	}
}

static struct kvpool_part *find_idle(void)
{
	struct kvpool_part *part;

	list_for_each_entry(part, &kvpool_parts, list)
		if (part->attached && !part->members && !part->attaching)
			return part;
	return NULL;
}

/*
 * Nothing can reach these any more on this host. The use line without them is the proof that
 * others wait for, so it is written last; when the medium cannot be written any more, nothing
 * is.
 */
void kvpool_part_detach_idle(struct kvpool *pool)
{
	struct kvpool_part *part;

	for (;;) {
		mutex_lock(&kvpool_lock);
		part = find_idle();
		if (part)
			part->attached = false;
		mutex_unlock(&kvpool_lock);
		if (!part)
			return;
		if (!READ_ONCE(pool->gone)) {
			kvpool_part_retire(part);
			kvpool_settle();
		}
		unmap_slices(part);
		part->type_obtained = KVPOOL_TYPE_OTHER;
		if (!READ_ONCE(pool->gone))
			write_use(pool, part, KVPOOL_USE_NONE);
		trace_kvpool_detach(part->id, READ_ONCE(pool->gone) ? -ENODEV : 0);
	}
}
