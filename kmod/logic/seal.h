/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CRC of lines and tables: bound to the pool, its life and the place, so that nothing moved or
 * old verifies.
 */
#ifndef KVPOOL_LOGIC_SEAL_H
#define KVPOOL_LOGIC_SEAL_H

#include "env.h"

struct kvpool_seal {
	u8 uuid[16];
	u64 life;
};

struct kvpool_place {
	u32 device;
	u64 offset;
};

void kvpool_seal_line(const struct kvpool_seal *seal, struct kvpool_place at,
		      union kvpool_line *line);
bool kvpool_line_intact(const struct kvpool_seal *seal, struct kvpool_place at,
			const union kvpool_line *line, u32 magic);
u32 kvpool_body_crc(const struct kvpool_seal *seal, struct kvpool_place at, u64 epoch,
		    const void *body, size_t bytes);

#endif
