/* SPDX-License-Identifier: GPL-2.0-only */
/* The table of partitions: what an administrator decides, its codec, and its changes. */
#ifndef KVPOOL_LOGIC_TABLE_H
#define KVPOOL_LOGIC_TABLE_H

#include "geometry.h"

struct kvpool_partition_entry {
	u8 uuid[16];
	char name[KVPOOL_NAME_BYTES];
	u32 id;
	u8 state;
	u8 type;
	u8 ddio;
	u8 flags;
	u64 litmus_date;
};

struct kvpool_slice_entry {
	u32 id;
	u32 partition;
	u32 first_unit; /* of its device */
	u32 unit_count;
	u16 device;
	u8 state;
	u8 flags;
};

struct kvpool_table {
	u64 epoch;
	u64 generation;
	u32 next_slice_id;
	u32 next_partition_id;
	u32 partition_count;
	u32 slice_count;
	struct kvpool_partition_entry partitions[KVPOOL_PARTITION_COUNT_MAX];
	struct kvpool_slice_entry slices[KVPOOL_SLICE_COUNT_MAX];
	u64 fenced[KVPOOL_HOST_COUNT_MAX];
};

/* 0, or -EINVAL: names match [a-z0-9][a-z0-9-]{0,30}. */
int kvpool_name_check(const char *name, u32 length);

void kvpool_table_init(struct kvpool_table *table);
/* Into a buffer of KVPOOL_AREA_TABLE_BYTES. Returns the bytes to write, a multiple of a line. */
u32 kvpool_table_encode(const struct kvpool_table *table, const struct kvpool_geometry *geo,
			const struct kvpool_seal *seal, struct kvpool_place at, void *buffer);
/* How many bytes follow the first line, at most what a table area holds; -EUCLEAN. */
int kvpool_table_body_bytes(const union kvpool_line *first, const struct kvpool_geometry *geo);
/*
 * From bytes that somebody else wrote. 0 or -EUCLEAN; *table is whole or untouched in meaning:
 * the caller throws it away on errors. `scratch` has a bit for each unit of the pool.
 */
int kvpool_table_decode(const void *buffer, const struct kvpool_geometry *geo,
			const struct kvpool_seal *seal, struct kvpool_place at, u64 epoch,
			u8 *scratch, struct kvpool_table *table);

struct kvpool_partition_entry *kvpool_table_find(struct kvpool_table *table, const char *name);
struct kvpool_partition_entry *kvpool_table_find_id(struct kvpool_table *table, u32 id);
/* Sets a bit in `taken` for each unit that a slice holds. */
void kvpool_table_units(const struct kvpool_table *table, const struct kvpool_geometry *geo,
			u8 *taken);

struct kvpool_create_plan {
	const char *name;
	const u8 *uuid;
	u64 bytes;
	u64 slice_bytes;
	u8 type;
	u8 ddio;
};

/*
 * Adds a partition of free units, spread over the devices. `taken` is scratch; units set in
 * `barred` (may be NULL) are left out. -EINVAL, -EEXIST, -ENOSPC; the table is untouched on
 * errors.
 */
int kvpool_table_create(struct kvpool_table *table, const struct kvpool_geometry *geo,
			const struct kvpool_create_plan *plan, const u8 *barred, u8 *taken,
			u32 *ret_id);
/*
 * Adds slices to a partition that is there: `plan` has name, bytes and slice_bytes. -ENOENT,
 * -ESTALE: it drains; else as above.
 */
int kvpool_table_grow(struct kvpool_table *table, const struct kvpool_geometry *geo,
		      const struct kvpool_create_plan *plan, const u8 *barred, u8 *taken,
		      u32 *ret_id);

struct kvpool_shrink_plan {
	const char *name;
	const u32 *ids;
	u32 id_count; /* 0: the newest slices, together `bytes` */
	u64 bytes;
	bool force;
};

/*
 * Whole slices drain, at least one stays, and of a write-back partition the first, where the
 * drivers' lines are. A slice that drains already is no error; force is added. The table is
 * untouched on errors: -ENOENT, -ESTALE, -EINVAL, -EBUSY, and why.
 */
int kvpool_table_shrink(struct kvpool_table *table, const struct kvpool_geometry *geo,
			const struct kvpool_shrink_plan *plan, u64 *ret_bytes, u32 *ret_reason);
/* Every slice drains. -ENOENT; draining already: 0, and force is added. */
int kvpool_table_drain(struct kvpool_table *table, const char *name, bool force);
/*
 * A drained slice was proven free of all hosts: it leaves the table, and with the last one its
 * partition.
 */
void kvpool_table_drop_slice(struct kvpool_table *table, u32 slice);

static inline bool kvpool_bit(const u8 *bits, u32 bit)
{
	return bits[bit / 8] >> bit % 8 & 1;
}

static inline void kvpool_bit_set(u8 *bits, u32 bit)
{
	bits[bit / 8] |= 1u << bit % 8;
}

static inline void kvpool_bit_clear(u8 *bits, u32 bit)
{
	bits[bit / 8] &= ~(1u << bit % 8);
}

#endif
