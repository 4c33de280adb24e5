// SPDX-License-Identifier: GPL-2.0-only
#include "label.h"

#include <linux/kvpool.h>

static struct kvpool_place label_place(u32 device, u64 offset)
{
	struct kvpool_place at = { device, offset };

	return at;
}

static bool is_filled(const union kvpool_line *line, u8 byte)
{
	u32 i;

	for (i = 0; i < KVPOOL_LINE_BYTES; i++)
		if (line->bytes[i] != byte)
			return false;
	return true;
}

void kvpool_label_make(const struct kvpool_label_info *info, u64 offset, union kvpool_line *line)
{
	memset(line, 0, sizeof(*line));
	line->label.magic = cpu_to_le32(KVPOOL_MAGIC_LABEL);
	line->label.version = cpu_to_le16(KVPOOL_FORMAT_VERSION);
	line->label.unit_shift = cpu_to_le16(info->unit_shift);
	memcpy(line->label.uuid, info->seal.uuid, sizeof(line->label.uuid));
	line->label.life = cpu_to_le64(info->seal.life);
	line->label.device_bytes = cpu_to_le64(info->device_bytes);
	line->label.offset = cpu_to_le64(offset);
	line->label.device = cpu_to_le16(info->device);
	line->label.device_count = cpu_to_le16(info->device_count);
	line->label.host_count = cpu_to_le16(info->host_count);
	kvpool_seal_line(&info->seal, label_place(info->device, offset), line);
}

static void decode(const union kvpool_line *line, struct kvpool_label_info *info)
{
	memcpy(info->seal.uuid, line->label.uuid, sizeof(info->seal.uuid));
	info->seal.life = le64_to_cpu(line->label.life);
	info->device_bytes = le64_to_cpu(line->label.device_bytes);
	info->device = le16_to_cpu(line->label.device);
	info->device_count = le16_to_cpu(line->label.device_count);
	info->host_count = le16_to_cpu(line->label.host_count);
	info->unit_shift = le16_to_cpu(line->label.unit_shift);
}

int kvpool_label_read(const union kvpool_line *line, u64 range_bytes, const u8 *uuid,
		      struct kvpool_label_info *ret_info, u32 *ret_reason)
{
	struct kvpool_label_info info;
	struct kvpool_geometry geo;

	if (is_filled(line, 0xff)) {
		*ret_reason = KVPOOL_REFUSED_UNREADABLE;
		return -EIO;
	}
	decode(line, &info);
	/* Its own words name pool and place; whether they are the right ones is asked after. */
	if (!kvpool_line_intact(&info.seal, label_place(info.device, le64_to_cpu(line->label.offset)),
				line, KVPOOL_MAGIC_LABEL)) {
		*ret_reason = KVPOOL_REFUSED_NO_LABEL;
		return -ENOMEDIUM;
	}
	if (le16_to_cpu(line->label.version) != KVPOOL_FORMAT_VERSION) {
		*ret_reason = KVPOOL_REFUSED_VERSION;
		return -EPROTONOSUPPORT;
	}
	if (le64_to_cpu(line->label.offset) != 0) {
		*ret_reason = KVPOOL_REFUSED_INTERLEAVE;
		return -EXDEV;
	}
	if (uuid && memcmp(uuid, info.seal.uuid, sizeof(info.seal.uuid))) {
		*ret_reason = KVPOOL_REFUSED_FOREIGN;
		return -EXDEV;
	}
	if (info.device_bytes != range_bytes || info.device >= info.device_count ||
	    kvpool_geometry_init(&geo, info.device_count, info.device_bytes, info.host_count) ||
	    geo.unit_shift != info.unit_shift) {
		*ret_reason = KVPOOL_REFUSED_SIZE;
		return -EXDEV;
	}
	*ret_info = info;
	return 0;
}

int kvpool_label_check(const union kvpool_line *line, u64 offset,
		       const struct kvpool_label_info *info, u32 *ret_reason)
{
	struct kvpool_label_info other;
	union kvpool_line wanted;

	kvpool_label_make(info, offset, &wanted);
	if (!memcmp(&wanted, line, sizeof(wanted)))
		return 0;
	decode(line, &other);
	if (is_filled(line, 0xff))
		*ret_reason = KVPOOL_REFUSED_UNREADABLE;
	else if (!kvpool_line_intact(&other.seal,
				     label_place(other.device, le64_to_cpu(line->label.offset)),
				     line, KVPOOL_MAGIC_LABEL))
		*ret_reason = KVPOOL_REFUSED_NO_LABEL;
	else if (memcmp(other.seal.uuid, info->seal.uuid, sizeof(other.seal.uuid)) ||
		 other.seal.life != info->seal.life)
		*ret_reason = KVPOOL_REFUSED_FOREIGN;
	else
		*ret_reason = KVPOOL_REFUSED_INTERLEAVE;
	return -EXDEV;
}

int kvpool_label_order(const struct kvpool_label_info *infos, u32 count, u32 *ret_order,
		       u32 *ret_range, u32 *ret_reason)
{
	u64 seen = 0;
	u32 range;

	for (range = 0; range < count; range++) {
		const struct kvpool_label_info *info = &infos[range];

		*ret_range = range;
		if (memcmp(info->seal.uuid, infos[0].seal.uuid, sizeof(info->seal.uuid)) ||
		    info->seal.life != infos[0].seal.life) {
			*ret_reason = KVPOOL_REFUSED_FOREIGN;
			return -EXDEV;
		}
		if (info->device_count != infos[0].device_count ||
		    info->host_count != infos[0].host_count ||
		    info->device_bytes != infos[0].device_bytes ||
		    info->device >= KVPOOL_DEVICE_COUNT_MAX || info->device >= info->device_count) {
			*ret_reason = KVPOOL_REFUSED_SIZE;
			return -EXDEV;
		}
		if (seen & 1ull << info->device) {
			*ret_reason = KVPOOL_REFUSED_DUPLICATE;
			return -ENOTUNIQ;
		}
		seen |= 1ull << info->device;
		ret_order[info->device] = range;
	}
	if (!count || count != infos[0].device_count) {
		*ret_range = count;
		*ret_reason = KVPOOL_REFUSED_MISSING;
		return -ENODEV;
	}
	return 0;
}
