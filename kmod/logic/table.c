// SPDX-License-Identifier: GPL-2.0-only
#include "table.h"

#include <linux/kvpool.h>

#define UNIT_BITMAP_BYTES(geo) ((kvpool_unit_count(geo) + 7) / 8)

int kvpool_name_check(const char *name, u32 length)
{
	u32 i;

	if (!length || length >= KVPOOL_NAME_BYTES || name[0] == '-')
		return -EINVAL;
	for (i = 0; i < length; i++)
		if (!(name[i] >= 'a' && name[i] <= 'z') && !(name[i] >= '0' && name[i] <= '9') &&
		    name[i] != '-')
			return -EINVAL;
	return 0;
}

void kvpool_table_init(struct kvpool_table *table)
{
	memset(table, 0, sizeof(*table));
	table->next_slice_id = 1; /* map offset 0 is the STATE page */
	table->next_partition_id = 1;
}

static u32 body_bytes(u32 partitions, u32 slices, u32 fences)
{
	u32 bytes = partitions * sizeof(struct kvpool_partition_record) +
		    slices * sizeof(struct kvpool_slice_record) + fences * sizeof(__le64);

	return (bytes + KVPOOL_LINE_BYTES - 1) & ~(KVPOOL_LINE_BYTES - 1u);
}

static void encode_partition(const struct kvpool_partition_entry *entry,
			     struct kvpool_partition_record *record)
{
	memset(record, 0, sizeof(*record));
	memcpy(record->uuid, entry->uuid, sizeof(record->uuid));
	memcpy(record->name, entry->name, sizeof(record->name));
	record->id = cpu_to_le32(entry->id);
	record->state = entry->state;
	record->type = entry->type;
	record->ddio = entry->ddio;
	record->flags = entry->flags;
	record->litmus_date = cpu_to_le64(entry->litmus_date);
}

static void encode_slice(const struct kvpool_slice_entry *entry, struct kvpool_slice_record *record)
{
	memset(record, 0, sizeof(*record));
	record->id = cpu_to_le32(entry->id);
	record->partition = cpu_to_le32(entry->partition);
	record->first_unit = cpu_to_le32(entry->first_unit);
	record->unit_count = cpu_to_le32(entry->unit_count);
	record->device = cpu_to_le16(entry->device);
	record->state = entry->state;
	record->flags = entry->flags;
}

u32 kvpool_table_encode(const struct kvpool_table *table, const struct kvpool_geometry *geo,
			const struct kvpool_seal *seal, struct kvpool_place at, void *buffer)
{
	u32 bytes = body_bytes(table->partition_count, table->slice_count, geo->host_count);
	union kvpool_line *line = buffer;
	struct kvpool_partition_record *partition = (void *)(line + 1);
	struct kvpool_slice_record *slice = (void *)(partition + table->partition_count);
	__le64 *fence = (void *)(slice + table->slice_count);
	u32 i;

	memset(buffer, 0, KVPOOL_LINE_BYTES + bytes);
	for (i = 0; i < table->partition_count; i++)
		encode_partition(&table->partitions[i], &partition[i]);
	for (i = 0; i < table->slice_count; i++)
		encode_slice(&table->slices[i], &slice[i]);
	for (i = 0; i < geo->host_count; i++)
		fence[i] = cpu_to_le64(table->fenced[i]);
	line->table.magic = cpu_to_le32(KVPOOL_MAGIC_TABLE);
	line->table.partition_count = cpu_to_le16(table->partition_count);
	line->table.slice_count = cpu_to_le16(table->slice_count);
	line->table.epoch = cpu_to_le64(table->epoch);
	line->table.generation = cpu_to_le64(table->generation);
	line->table.next_slice_id = cpu_to_le32(table->next_slice_id);
	line->table.next_partition_id = cpu_to_le32(table->next_partition_id);
	line->table.fence_count = cpu_to_le32(geo->host_count);
	line->table.body_bytes = cpu_to_le32(bytes);
	line->table.body_crc =
		cpu_to_le32(kvpool_body_crc(seal, at, table->epoch, line + 1, bytes));
	kvpool_seal_line(seal, at, line);
	return KVPOOL_LINE_BYTES + bytes;
}

int kvpool_table_body_bytes(const union kvpool_line *first, const struct kvpool_geometry *geo)
{
	u32 partitions = le16_to_cpu(first->table.partition_count);
	u32 slices = le16_to_cpu(first->table.slice_count);
	u32 bytes = body_bytes(partitions, slices, geo->host_count);

	if (partitions > KVPOOL_PARTITION_COUNT_MAX || slices > KVPOOL_SLICE_COUNT_MAX ||
	    le32_to_cpu(first->table.fence_count) != geo->host_count ||
	    le32_to_cpu(first->table.body_bytes) != bytes ||
	    bytes > KVPOOL_AREA_TABLE_BYTES - KVPOOL_LINE_BYTES)
		return -EUCLEAN;
	return bytes;
}

static int decode_partition(const struct kvpool_partition_record *record,
			    const struct kvpool_table *table, u32 index,
			    struct kvpool_partition_entry *entry)
{
	u32 length = 0, i;

	while (length < KVPOOL_NAME_BYTES && record->name[length])
		length++;
	for (i = length; i < KVPOOL_NAME_BYTES; i++)
		if (record->name[i])
			return -EUCLEAN;
	if (kvpool_name_check((const char *)record->name, length))
		return -EUCLEAN;
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->uuid, record->uuid, sizeof(entry->uuid));
	memcpy(entry->name, record->name, sizeof(entry->name));
	entry->id = le32_to_cpu(record->id);
	entry->state = record->state;
	entry->type = record->type;
	entry->ddio = record->ddio;
	entry->flags = record->flags;
	entry->litmus_date = le64_to_cpu(record->litmus_date);
	if (!entry->id || entry->id >= table->next_partition_id ||
	    (entry->state != KVPOOL_PARTITION_ACTIVE && entry->state != KVPOOL_PARTITION_DRAINING) ||
	    entry->type > KVPOOL_TYPE_UC_MINUS || entry->ddio > KVPOOL_DDIO_LITMUS_VERIFIED ||
	    entry->flags & ~KVPOOL_PARTITION_F_FORCE)
		return -EUCLEAN;
	for (i = 0; i < index; i++)
		if (table->partitions[i].id == entry->id ||
		    !memcmp(table->partitions[i].name, entry->name, sizeof(entry->name)))
			return -EUCLEAN;
	return 0;
}

static int decode_slice(const struct kvpool_slice_record *record, struct kvpool_table *table,
			const struct kvpool_geometry *geo, u32 index, u8 *units,
			struct kvpool_slice_entry *entry)
{
	u32 i;

	memset(entry, 0, sizeof(*entry));
	entry->id = le32_to_cpu(record->id);
	entry->partition = le32_to_cpu(record->partition);
	entry->first_unit = le32_to_cpu(record->first_unit);
	entry->unit_count = le32_to_cpu(record->unit_count);
	entry->device = le16_to_cpu(record->device);
	entry->state = record->state;
	entry->flags = record->flags;
	if (!entry->id || entry->id >= table->next_slice_id ||
	    !kvpool_table_find_id(table, entry->partition) || entry->device >= geo->device_count ||
	    entry->first_unit < kvpool_first_data_unit(geo, entry->device) ||
	    entry->first_unit >= geo->units_per_device || !entry->unit_count ||
	    entry->unit_count > geo->units_per_device - entry->first_unit ||
	    (u64)entry->unit_count << geo->unit_shift > 1ull << KVPOOL_MAP_ID_SHIFT ||
	    (entry->state != KVPOOL_SLICE_ACTIVE && entry->state != KVPOOL_SLICE_DRAINING) ||
	    entry->flags & ~KVPOOL_SLICE_F_FORCE)
		return -EUCLEAN;
	/* Ids grow in the order in which slices were made. */
	if (index && entry->id <= table->slices[index - 1].id)
		return -EUCLEAN;
	for (i = 0; i < entry->unit_count; i++) {
		u32 unit = kvpool_unit_number(geo, entry->device, entry->first_unit + i);

		if (kvpool_bit(units, unit))
			return -EUCLEAN;
		kvpool_bit_set(units, unit);
	}
	return 0;
}

int kvpool_table_decode(const void *buffer, const struct kvpool_geometry *geo,
			const struct kvpool_seal *seal, struct kvpool_place at, u64 epoch,
			u8 *scratch, struct kvpool_table *table)
{
	const union kvpool_line *line = buffer;
	const struct kvpool_partition_record *partition = (const void *)(line + 1);
	const struct kvpool_slice_record *slice;
	const __le64 *fence;
	int bytes, err;
	u32 i, slices;

	if (!kvpool_line_intact(seal, at, line, KVPOOL_MAGIC_TABLE))
		return -EUCLEAN;
	bytes = kvpool_table_body_bytes(line, geo);
	if (bytes < 0)
		return bytes;
	if (le64_to_cpu(line->table.epoch) != epoch ||
	    le32_to_cpu(line->table.body_crc) != kvpool_body_crc(seal, at, epoch, line + 1, bytes))
		return -EUCLEAN;
	kvpool_table_init(table);
	table->epoch = epoch;
	table->generation = le64_to_cpu(line->table.generation);
	table->next_slice_id = le32_to_cpu(line->table.next_slice_id);
	table->next_partition_id = le32_to_cpu(line->table.next_partition_id);
	if (!table->next_slice_id || !table->next_partition_id)
		return -EUCLEAN;
	for (i = 0; i < le16_to_cpu(line->table.partition_count); i++) {
		err = decode_partition(&partition[i], table, i, &table->partitions[i]);
		if (err)
			return err;
		table->partition_count = i + 1;
	}
	slices = le16_to_cpu(line->table.slice_count);
	slice = (const void *)(partition + table->partition_count);
	memset(scratch, 0, UNIT_BITMAP_BYTES(geo));
	for (i = 0; i < slices; i++) {
		err = decode_slice(&slice[i], table, geo, i, scratch, &table->slices[i]);
		if (err)
			return err;
		table->slice_count = i + 1;
	}
	fence = (const void *)(slice + slices);
	for (i = 0; i < geo->host_count; i++)
		table->fenced[i] = le64_to_cpu(fence[i]);
	return 0;
}

struct kvpool_partition_entry *kvpool_table_find(struct kvpool_table *table, const char *name)
{
	u32 i;

	for (i = 0; i < table->partition_count; i++)
		if (!strncmp(table->partitions[i].name, name, KVPOOL_NAME_BYTES))
			return &table->partitions[i];
	return NULL;
}

struct kvpool_partition_entry *kvpool_table_find_id(struct kvpool_table *table, u32 id)
{
	u32 i;

	for (i = 0; i < table->partition_count; i++)
		if (table->partitions[i].id == id)
			return &table->partitions[i];
	return NULL;
}

void kvpool_table_units(const struct kvpool_table *table, const struct kvpool_geometry *geo,
			u8 *taken)
{
	u32 i, unit;

	memset(taken, 0, UNIT_BITMAP_BYTES(geo));
	for (i = 0; i < table->slice_count; i++) {
		const struct kvpool_slice_entry *slice = &table->slices[i];

		for (unit = 0; unit < slice->unit_count; unit++)
			kvpool_bit_set(taken, kvpool_unit_number(geo, slice->device,
								 slice->first_unit + unit));
	}
}

static u32 free_run(const struct kvpool_geometry *geo, u32 device, const u8 *taken,
		    const u8 *barred, u32 max_units, u32 *ret_first)
{
	u32 unit, length = 0;

	for (unit = kvpool_first_data_unit(geo, device); unit < geo->units_per_device; unit++) {
		u32 number = kvpool_unit_number(geo, device, unit);

		if (kvpool_bit(taken, number) || (barred && kvpool_bit(barred, number))) {
			if (length)
				break;
			continue;
		}
		if (!length)
			*ret_first = unit;
		if (++length == max_units)
			break;
	}
	return length;
}

/*
 * Adds slices of `units` in all; each device in turn gives its share, then what others could
 * not give.
 */
static int add_slices(struct kvpool_table *table, const struct kvpool_geometry *geo, u32 partition,
		      u32 units, u32 slice_units, const u8 *barred, u8 *taken)
{
	u32 device = 0, barren = 0, share, first = 0, got, i;

	share = (units + geo->device_count - 1) / geo->device_count;
	if (slice_units > share)
		slice_units = share;
	while (units) {
		struct kvpool_slice_entry *slice;

		got = free_run(geo, device, taken, barred, slice_units < units ? slice_units : units,
			       &first);
		barren = got ? 0 : barren + 1;
		if (barren == geo->device_count)
			return -ENOSPC;
		if (got) {
			if (table->slice_count == KVPOOL_SLICE_COUNT_MAX)
				return -ENOSPC;
			if (table->next_slice_id >= 1u << (63 - KVPOOL_MAP_ID_SHIFT))
				return -EOVERFLOW;
			slice = &table->slices[table->slice_count++];
			memset(slice, 0, sizeof(*slice));
			slice->id = table->next_slice_id++;
			slice->partition = partition;
			slice->device = device;
			slice->first_unit = first;
			slice->unit_count = got;
			slice->state = KVPOOL_SLICE_ACTIVE;
			for (i = 0; i < got; i++)
				kvpool_bit_set(taken, kvpool_unit_number(geo, device, first + i));
			units -= got;
		}
		device = (device + 1) % geo->device_count;
	}
	return 0;
}

/* The slices of a plan for a partition, or none of them. */
static int add_planned(struct kvpool_table *table, const struct kvpool_geometry *geo, u32 partition,
		       const struct kvpool_create_plan *plan, const u8 *barred, u8 *taken)
{
	u64 unit = 1ull << geo->unit_shift, longest = 1ull << KVPOOL_MAP_ID_SHIFT;
	u32 slice_count = table->slice_count, next_slice_id = table->next_slice_id;
	u64 slice_bytes = plan->slice_bytes ? plan->slice_bytes : longest;
	int err;

	if (!plan->bytes || plan->bytes & (unit - 1) || slice_bytes & (unit - 1) ||
	    slice_bytes > longest)
		return -EINVAL;
	if (plan->bytes >> geo->unit_shift > kvpool_unit_count(geo))
		return -ENOSPC;
	kvpool_table_units(table, geo, taken);
	err = add_slices(table, geo, partition, plan->bytes >> geo->unit_shift,
			 slice_bytes >> geo->unit_shift, barred, taken);
	if (err) {
		table->slice_count = slice_count;
		table->next_slice_id = next_slice_id;
	}
	return err;
}

int kvpool_table_create(struct kvpool_table *table, const struct kvpool_geometry *geo,
			const struct kvpool_create_plan *plan, const u8 *barred, u8 *taken,
			u32 *ret_id)
{
	struct kvpool_partition_entry *entry;
	u32 length = 0;
	int err;

	while (length < KVPOOL_NAME_BYTES && plan->name[length])
		length++;
	if (kvpool_name_check(plan->name, length) || plan->type > KVPOOL_TYPE_UC_MINUS ||
	    plan->ddio > KVPOOL_DDIO_REQUIRE_NONALLOCATING)
		return -EINVAL;
	if (kvpool_table_find(table, plan->name))
		return -EEXIST;
	if (table->partition_count == KVPOOL_PARTITION_COUNT_MAX)
		return -ENOSPC;
	if (table->next_partition_id == ~0u)
		return -EOVERFLOW;
	err = add_planned(table, geo, table->next_partition_id, plan, barred, taken);
	if (err)
		return err;
	entry = &table->partitions[table->partition_count++];
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->uuid, plan->uuid, sizeof(entry->uuid));
	memcpy(entry->name, plan->name, length);
	entry->id = table->next_partition_id++;
	entry->state = KVPOOL_PARTITION_ACTIVE;
	entry->type = plan->type;
	entry->ddio = plan->ddio;
	*ret_id = entry->id;
	return 0;
}

int kvpool_table_grow(struct kvpool_table *table, const struct kvpool_geometry *geo,
		      const struct kvpool_create_plan *plan, const u8 *barred, u8 *taken,
		      u32 *ret_id)
{
	struct kvpool_partition_entry *entry = kvpool_table_find(table, plan->name);

	if (!entry)
		return -ENOENT;
	if (entry->state != KVPOOL_PARTITION_ACTIVE)
		return -ESTALE;
	*ret_id = entry->id;
	return add_planned(table, geo, entry->id, plan, barred, taken);
}

static bool is_named(const struct kvpool_shrink_plan *plan, u32 id)
{
	u32 i;

	for (i = 0; i < plan->id_count; i++)
		if (plan->ids[i] == id)
			return true;
	return false;
}

/* The id from which on active slices are together `bytes`; 0, and the next larger sum. */
static u32 newest_slices(const struct kvpool_table *table, const struct kvpool_geometry *geo,
			 u32 partition, u64 bytes, u64 *ret_sum)
{
	u32 i;

	*ret_sum = 0;
	for (i = table->slice_count; i-- && *ret_sum < bytes;) {
		const struct kvpool_slice_entry *slice = &table->slices[i];

		if (slice->partition != partition || slice->state != KVPOOL_SLICE_ACTIVE)
			continue;
		*ret_sum += (u64)slice->unit_count << geo->unit_shift;
		if (*ret_sum == bytes)
			return slice->id;
	}
	return 0;
}

static int refuse(u32 *ret_reason, u32 reason, int err)
{
	*ret_reason = reason;
	return err;
}

/* Whether every id is a slice of the partition, and none the one that stays. */
static int check_named(const struct kvpool_table *table, u32 partition, u32 first,
		       const struct kvpool_shrink_plan *plan, u32 *ret_reason)
{
	u32 i, k;

	for (i = 0; i < plan->id_count; i++) {
		for (k = 0; k < table->slice_count; k++)
			if (table->slices[k].id == plan->ids[i] &&
			    table->slices[k].partition == partition)
				break;
		if (k == table->slice_count)
			return refuse(ret_reason, KVPOOL_CHANGE_NO_SLICE, -ENOENT);
		if (plan->ids[i] == first)
			return refuse(ret_reason, KVPOOL_CHANGE_FIRST_SLICE, -EBUSY);
	}
	return 0;
}

static u32 first_slice(const struct kvpool_table *table, u32 partition)
{
	u32 i;

	for (i = 0; i < table->slice_count; i++)
		if (table->slices[i].partition == partition)
			return table->slices[i].id;
	return 0;
}

int kvpool_table_shrink(struct kvpool_table *table, const struct kvpool_geometry *geo,
			const struct kvpool_shrink_plan *plan, u64 *ret_bytes, u32 *ret_reason)
{
	struct kvpool_partition_entry *entry = kvpool_table_find(table, plan->name);
	u32 i, first = 0, from = 0, left = 0;
	int err;

	if (!entry)
		return refuse(ret_reason, KVPOOL_CHANGE_NO_PARTITION, -ENOENT);
	if (entry->state != KVPOOL_PARTITION_ACTIVE)
		return refuse(ret_reason, KVPOOL_CHANGE_DRAINS, -ESTALE);
	if (entry->type == KVPOOL_TYPE_WB)
		first = first_slice(table, entry->id);
	if (plan->id_count) {
		err = check_named(table, entry->id, first, plan, ret_reason);
		if (err)
			return err;
	} else if (!plan->bytes || plan->bytes & ((1ull << geo->unit_shift) - 1)) {
		return refuse(ret_reason, KVPOOL_CHANGE_BAD_BYTES, -EINVAL);
	} else {
		from = newest_slices(table, geo, entry->id, plan->bytes, ret_bytes);
		if (!from && *ret_bytes > plan->bytes)
			return refuse(ret_reason, KVPOOL_CHANGE_NOT_WHOLE, -EINVAL);
		if (from == first && first)
			return refuse(ret_reason, KVPOOL_CHANGE_FIRST_SLICE, -EBUSY);
	}
	/* Without a beginning the bytes are more than there are. */
	for (i = 0; i < table->slice_count; i++)
		left += table->slices[i].partition == entry->id &&
			table->slices[i].state == KVPOOL_SLICE_ACTIVE &&
			!is_named(plan, table->slices[i].id) &&
			(plan->id_count || (from && table->slices[i].id < from));
	if (!left)
		return refuse(ret_reason, KVPOOL_CHANGE_NOTHING_LEFT, -EBUSY);
	*ret_bytes = 0;
	for (i = 0; i < table->slice_count; i++) {
		struct kvpool_slice_entry *slice = &table->slices[i];

		if (slice->partition != entry->id || (plan->id_count ? !is_named(plan, slice->id) :
						      slice->id < from))
			continue;
		if (!plan->id_count && slice->state != KVPOOL_SLICE_ACTIVE)
			continue;
		slice->state = KVPOOL_SLICE_DRAINING;
		if (plan->force)
			slice->flags |= KVPOOL_SLICE_F_FORCE;
		*ret_bytes += (u64)slice->unit_count << geo->unit_shift;
	}
	return 0;
}

int kvpool_table_drain(struct kvpool_table *table, const char *name, bool force)
{
	struct kvpool_partition_entry *entry = kvpool_table_find(table, name);
	u32 i;

	if (!entry)
		return -ENOENT;
	entry->state = KVPOOL_PARTITION_DRAINING;
	if (force)
		entry->flags |= KVPOOL_PARTITION_F_FORCE;
	for (i = 0; i < table->slice_count; i++)
		if (table->slices[i].partition == entry->id)
			table->slices[i].state = KVPOOL_SLICE_DRAINING;
	return 0;
}

void kvpool_table_drop_slice(struct kvpool_table *table, u32 slice)
{
	u32 id = table->slices[slice].partition, i;

	table->slice_count--;
	memmove(&table->slices[slice], &table->slices[slice + 1],
		(table->slice_count - slice) * sizeof(table->slices[0]));
	for (i = 0; i < table->slice_count; i++)
		if (table->slices[i].partition == id)
			return;
	for (i = 0; i < table->partition_count; i++)
		if (table->partitions[i].id == id)
			break;
	if (i == table->partition_count)
		return;
	table->partition_count--;
	memmove(&table->partitions[i], &table->partitions[i + 1],
		(table->partition_count - i) * sizeof(table->partitions[0]));
}
