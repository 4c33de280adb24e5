/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of logic/ use from around them. They hold no hardware, no lock and no
 * allocation, so that they compile into the module and into user space, where tests/kmod runs
 * them under sanitizers.
 */
#ifndef KVPOOL_LOGIC_ENV_H
#define KVPOOL_LOGIC_ENV_H

#ifdef __KERNEL__

#include <linux/crc32c.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/string.h>
#include <linux/types.h>

#include <asm/byteorder.h>

static inline u32 kvpool_crc32c(u32 crc, const void *data, size_t bytes)
{
	return crc32c(crc, data, bytes);
}

#else

#include <endian.h>
#include <errno.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define cpu_to_le16(x) htole16(x)
#define cpu_to_le32(x) htole32(x)
#define cpu_to_le64(x) htole64(x)
#define le16_to_cpu(x) le16toh(x)
#define le32_to_cpu(x) le32toh(x)
#define le64_to_cpu(x) le64toh(x)

/* Provided by whoever links the logic in user space. */
u32 kvpool_crc32c(u32 crc, const void *data, size_t bytes);

#endif

#include <linux/kvpool_format.h>

/*
 * A line in parts or whole; what lies on the medium is copied into one before anything in it is
 * believed.
 */
union kvpool_line {
	__u8 bytes[KVPOOL_LINE_BYTES];
	__le32 words[KVPOOL_LINE_BYTES / 4];
	struct kvpool_label label;
	struct kvpool_host_line host;
	struct kvpool_claim_line claim;
	struct kvpool_ack_line ack;
	struct kvpool_use_line use;
	struct kvpool_table_line table;
	struct kvpool_reaper_line reaper;
};

#endif
