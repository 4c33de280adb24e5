// SPDX-License-Identifier: GPL-2.0-only
#include "geometry.h"

#include <linux/kvpool.h>

u32 kvpool_unit_shift(u64 pool_bytes)
{
	return pool_bytes < (64ull << 30) ? KVPOOL_UNIT_SHIFT_SMALL : KVPOOL_UNIT_SHIFT_LARGE;
}

int kvpool_geometry_init(struct kvpool_geometry *geo, u32 device_count, u64 device_bytes,
			 u32 host_count)
{
	u64 units;
	u32 device;

	if (!device_count || device_count > KVPOOL_DEVICE_COUNT_MAX)
		return -EINVAL;
	if (!host_count || host_count > KVPOOL_HOST_COUNT_MAX)
		return -EINVAL;
	/* Room for the sum, and for offsets in a slice below its id. */
	if (!device_bytes || device_bytes > (1ull << 45))
		return -EINVAL;
	geo->device_count = device_count;
	geo->device_bytes = device_bytes;
	geo->host_count = host_count;
	geo->unit_shift = kvpool_unit_shift(device_count * device_bytes);
	if (device_bytes & (KVPOOL_LEAF_BYTES - 1))
		return -EINVAL;
	units = device_bytes >> geo->unit_shift;
	if (!units || units * device_count > KVPOOL_UNIT_COUNT_MAX)
		return -EINVAL;
	geo->units_per_device = units;
	for (device = 0; device < device_count; device++)
		if (kvpool_first_data_unit(geo, device) >= units)
			return -EINVAL;
	return 0;
}

u64 kvpool_metadata_bytes(const struct kvpool_geometry *geo, u32 device)
{
	u64 areas = (u64)geo->host_count * KVPOOL_HOST_AREA_BYTES;

	if (geo->device_count == 1)
		return KVPOOL_LABEL_BYTES + 2 * areas;
	return KVPOOL_LABEL_BYTES + (device < 2 ? areas : 0);
}

u32 kvpool_first_data_unit(const struct kvpool_geometry *geo, u32 device)
{
	u64 unit = 1ull << geo->unit_shift;

	return (kvpool_metadata_bytes(geo, device) + unit - 1) >> geo->unit_shift;
}

static u64 control_devices(const struct kvpool_geometry *geo)
{
	return geo->device_count > 1 ? 3 : 1;
}

bool kvpool_control_lost(const struct kvpool_geometry *geo, u64 gone)
{
	return gone & control_devices(geo);
}

bool kvpool_control_gone(const struct kvpool_geometry *geo, u64 gone)
{
	return (gone & control_devices(geo)) == control_devices(geo);
}

struct kvpool_place kvpool_area_place(const struct kvpool_geometry *geo, u32 host, u32 copy,
				      u32 offset)
{
	struct kvpool_place at = { 0, KVPOOL_LABEL_BYTES };

	if (geo->device_count > 1)
		at.device = copy;
	else
		at.offset += (u64)copy * geo->host_count * KVPOOL_HOST_AREA_BYTES;
	at.offset += (u64)host * KVPOOL_HOST_AREA_BYTES + offset;
	return at;
}

u32 kvpool_map_id(u64 map_offset)
{
	u64 id = map_offset >> KVPOOL_MAP_ID_SHIFT;

	return id > 0xffffffffull ? 0 : id;
}

int kvpool_map_check(u64 map_offset, u64 bytes, u64 slice_bytes, u64 *ret_offset)
{
	u64 offset = map_offset & ((1ull << KVPOOL_MAP_ID_SHIFT) - 1);

	if (!bytes || ((offset | bytes) & (KVPOOL_LEAF_BYTES - 1)))
		return -EINVAL;
	if (offset >= slice_bytes || bytes > slice_bytes - offset)
		return -EINVAL;
	*ret_offset = offset;
	return 0;
}
