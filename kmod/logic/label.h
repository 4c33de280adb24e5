/* SPDX-License-Identifier: GPL-2.0-only */
/* Labels: which device of which pool a range is, and whether its bytes lie where they should. */
#ifndef KVPOOL_LOGIC_LABEL_H
#define KVPOOL_LOGIC_LABEL_H

#include "geometry.h"

struct kvpool_label_info {
	struct kvpool_seal seal;
	u64 device_bytes;
	u32 device;
	u32 device_count;
	u32 host_count;
	u32 unit_shift;
};

void kvpool_label_make(const struct kvpool_label_info *info, u64 offset, union kvpool_line *line);
/*
 * The first line of a range. 0, or -errno and why (KVPOOL_REFUSED_*). `uuid` may be NULL: any
 * pool.
 */
int kvpool_label_read(const union kvpool_line *line, u64 range_bytes, const u8 *uuid,
		      struct kvpool_label_info *ret_info, u32 *ret_reason);
/* Any other line of a range whose first one was read. */
int kvpool_label_check(const union kvpool_line *line, u64 offset,
		       const struct kvpool_label_info *info, u32 *ret_reason);
/*
 * What was read from `count` ranges: one pool, every device once. order[d] is the range of
 * device d. On errors *ret_range is the range that is wrong.
 */
int kvpool_label_order(const struct kvpool_label_info *infos, u32 count, u32 *ret_order,
		       u32 *ret_range, u32 *ret_reason);

#endif
