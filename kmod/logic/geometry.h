/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where things lie on the devices of a pool, and what a user may map: arithmetic without a
 * device.
 */
#ifndef KVPOOL_LOGIC_GEOMETRY_H
#define KVPOOL_LOGIC_GEOMETRY_H

#include "env.h"
#include "seal.h"

#define KVPOOL_LEAF_BYTES (2ull << 20)

struct kvpool_geometry {
	u32 device_count;
	u32 host_count;
	u32 unit_shift;
	u32 units_per_device;
	u64 device_bytes;
};

/* 0 or -EINVAL. Everything else here takes a geometry that was checked. */
int kvpool_geometry_init(struct kvpool_geometry *geo, u32 device_count, u64 device_bytes,
			 u32 host_count);
u32 kvpool_unit_shift(u64 pool_bytes);
/* First unit of a device that partitions may get. */
u32 kvpool_first_data_unit(const struct kvpool_geometry *geo, u32 device);
/* Bytes of labels and host areas at the start of a device. */
u64 kvpool_metadata_bytes(const struct kvpool_geometry *geo, u32 device);
/*
 * Of the devices with the two copies of every host's lines: whether one is among `gone` (a bit
 * for each device), or both. Who has lost one writes and sees one copy. That is enough to say
 * what he does, since administrators see both; it is not enough to administer, since another
 * host may have lost the other one.
 */
bool kvpool_control_lost(const struct kvpool_geometry *geo, u64 gone);
bool kvpool_control_gone(const struct kvpool_geometry *geo, u64 gone);
struct kvpool_place kvpool_area_place(const struct kvpool_geometry *geo, u32 host, u32 copy,
				      u32 offset);
static inline u32 kvpool_unit_number(const struct kvpool_geometry *geo, u32 device, u32 unit)
{
	return device * geo->units_per_device + unit;
}

static inline u32 kvpool_unit_count(const struct kvpool_geometry *geo)
{
	return geo->device_count * geo->units_per_device;
}

/*
 * One VMA maps one slice or part of it, in whole leaves. Gives the slice's id, and after the
 * slice was found whether offset and length lie in it.
 */
u32 kvpool_map_id(u64 map_offset);
int kvpool_map_check(u64 map_offset, u64 bytes, u64 slice_bytes, u64 *ret_offset);

#endif
