/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * What the driver reads and writes on the medium. What a store looks like inside a partition
 * is not here.
 *
 * A pool is a list of devices (ranges of physical memory of equal size). Each begins with 2
 * MiB of labels. Behind the labels of device 0, and of device 1 if there is one (else behind
 * the first copy), lie the host areas: 1 MiB for each host, written by that host alone. All
 * else is cut into units, from which partitions get their slices.
 *
 * Every line of 64 bytes begins with a word that names its kind and ends with a CRC-32C over
 * the pool's UUID, its life, the line's own device and offset, and the 60 bytes before it.
 * Nothing valid is all zeros or all ones. Numbers are little endian. Offsets count from the
 * start of the device.
 */
#ifndef _UAPI_LINUX_KVPOOL_FORMAT_H
#define _UAPI_LINUX_KVPOOL_FORMAT_H

#include <linux/types.h>

#define KVPOOL_LINE_BYTES 64
#define KVPOOL_FORMAT_VERSION 1 /* raised: all hosts need the new driver, then a new labelling */

#define KVPOOL_LABEL_BYTES (2u << 20)
#define KVPOOL_HOST_AREA_BYTES (1u << 20)
#define KVPOOL_HOST_COUNT_MAX 64
#define KVPOOL_DEVICE_COUNT_MAX 64
#define KVPOOL_SLICE_COUNT_MAX 4096
#define KVPOOL_PARTITION_COUNT_MAX 256
#define KVPOOL_UNIT_COUNT_MAX 65536
#define KVPOOL_UNIT_SHIFT_SMALL 26 /* 64 MiB, pools below 64 GiB */
#define KVPOOL_UNIT_SHIFT_LARGE 30
#define KVPOOL_NAME_BYTES 32 /* with the closing zero */

/* Places in a host area. */
#define KVPOOL_AREA_HOST_LINE 0
#define KVPOOL_AREA_CLAIM_LINE 64
#define KVPOOL_AREA_ACK_LINE 128
#define KVPOOL_AREA_USE_LINES (64u << 10)
#define KVPOOL_AREA_TABLE_0 (512u << 10)
#define KVPOOL_AREA_TABLE_BYTES (256u << 10)

/* The first 2 MiB of a WB partition: a page for each host; its driver writes, users read. */
#define KVPOOL_REAPER_BYTES (2u << 20)
#define KVPOOL_REAPER_PAGE_BYTES 4096u
#define KVPOOL_MEMBER_SLOTS 64

#define KVPOOL_MAGIC_LABEL 0x4c50564b /* "KVPL" */
#define KVPOOL_MAGIC_HOST 0x4850564b
#define KVPOOL_MAGIC_CLAIM 0x4350564b
#define KVPOOL_MAGIC_ACK 0x4150564b
#define KVPOOL_MAGIC_USE 0x5550564b
#define KVPOOL_MAGIC_TABLE 0x5450564b
#define KVPOOL_MAGIC_REAPER 0x5250564b

/* writer: the host that labels the pool, before anybody else uses it */
struct kvpool_label {
	__le32 magic;
	__le16 version;
	__le16 unit_shift;
	__u8 uuid[16];
	__le64 life; /* random, another one after each labelling */
	__le64 device_bytes;
	__le64 offset; /* its own: another interleave of the devices shows itself here */
	__le16 device;
	__le16 device_count;
	__le16 host_count;
	__le16 reserved;
	__le32 reserved2;
	__le32 crc;
};

#define KVPOOL_HOST_NEVER 1 /* labelled, no host has used the area in this life */
#define KVPOOL_HOST_UP 2
#define KVPOOL_HOST_LEFT 3 /* all mappings are gone, caches written back, use lines empty */
/* Fenced itself: a second writer, or the medium failed; or left with units it is not out of. */
#define KVPOOL_HOST_GONE 4

/* writer: the host of the area */
struct kvpool_host_line {
	__le32 magic;
	__le16 host;
	__le16 state;
	__le64 incarnation; /* written after this host's caches were emptied for the pool */
	__le64 heartbeat;
	__le64 boot_nonce;
	__le64 features;
	__le32 version;
	__le32 period_ms; /* of the heartbeat */
	__le32 reserved[3];
	__le32 crc;
};

/*
 * writer: the host of the area. An epoch is (counter << 8 | host): two hosts never claim the
 * same. `claimed` only grows; `active` is the last epoch whose table was complete and is never
 * cleared.
 */
struct kvpool_claim_line {
	__le32 magic;
	__le16 host;
	__le16 table; /* which of the host's two table areas holds the active epoch's table */
	__le64 claimed;
	__le64 active;
	__le64 generation; /* of the table in force: grows with each table that this epoch writes */
	__le64 sequence;
	__le32 reserved[5];
	__le32 crc;
};

/* writer: the host of the area. How far it is with the table; no decision rests on it. */
struct kvpool_ack_line {
	__le32 magic;
	__le16 host;
	__le16 held_units; /* drained units whose proof is not complete on this host */
	__le64 epoch;
	__le64 generation; /* the table it has acted upon */
	__le64 sequence;
	__le64 scrub_unit;
	__le32 scrub_progress_mib;
	__le32 reserved[4];
	__le32 crc;
};

#define KVPOOL_USE_NONE 0
#define KVPOOL_USE_ANNOUNCED 1
#define KVPOOL_USE_USED 2
#define KVPOOL_USE_SCRUB 3
#define KVPOOL_USE_UNITS_PER_LINE 128

/*
 * writer: the host of the area. Two bits for each unit. A unit whose bits are 0 in both copies
 * is proven free of this host: no mapping, no reacher, caches written back. Bits count only
 * while `incarnation` is the host line's.
 */
struct kvpool_use_line {
	__le32 magic;
	__le16 host;
	__le16 index; /* first unit / 128 */
	__le64 incarnation;
	__le64 sequence;
	__u8 bits[KVPOOL_USE_UNITS_PER_LINE / 4];
	__le32 reserved;
	__le32 crc;
};

/* writer: the host of the area. First line of a table; partitions, slices and fences follow it. */
struct kvpool_table_line {
	__le32 magic;
	__le16 partition_count;
	__le16 slice_count;
	__le64 epoch;
	__le64 generation;
	__le32 next_slice_id;
	__le32 next_partition_id;
	__le32 body_bytes;
	__le32 body_crc;
	__le32 fence_count; /* one word for each host: the incarnation that was fenced, 0 for none */
	__le32 reserved[4];
	__le32 crc;
};

#define KVPOOL_PARTITION_ACTIVE 1
#define KVPOOL_PARTITION_DRAINING 2

#define KVPOOL_PARTITION_F_FORCE 1 /* hosts kill what can still reach it */

#define KVPOOL_TYPE_WB 0
#define KVPOOL_TYPE_WC 1
#define KVPOOL_TYPE_UC_MINUS 2

#define KVPOOL_DDIO_FLUSH 0
#define KVPOOL_DDIO_REQUIRE_NONALLOCATING 1
#define KVPOOL_DDIO_LITMUS_VERIFIED 2

/* writer: the host of the area; no CRC: the table's line has one over all of them */
struct kvpool_partition_record {
	__u8 uuid[16];
	__u8 name[KVPOOL_NAME_BYTES];
	__le32 id; /* never used again in this life */
	__u8 state;
	__u8 type;
	__u8 ddio;
	__u8 flags;
	__le64 litmus_date; /* seconds since 1970 of the passed litmus */
};

#define KVPOOL_SLICE_ACTIVE 1
#define KVPOOL_SLICE_DRAINING 2

#define KVPOOL_SLICE_F_FORCE 1 /* hosts kill what can still reach it */

/* writer: the host of the area; no CRC: the table's line has one over all of them */
struct kvpool_slice_record {
	__le32 id; /* never used again in this life */
	__le32 partition;
	__le32 first_unit; /* of its device */
	__le32 unit_count;
	__le16 device;
	__u8 state;
	__u8 flags;
	__u8 reserved[4];
	__le64 reserved2;
};

#define KVPOOL_REAPER_FREE 1
#define KVPOOL_REAPER_LIVE 2
#define KVPOOL_REAPER_CPU_FENCED 3 /* its mappings are gone and cannot come back */
#define KVPOOL_REAPER_QUIET 4 /* also: no device can write for it, its lines are written back */

/* writer: the driver of the page's host */
struct kvpool_reaper_line {
	__le32 magic;
	__le16 host;
	__le16 slot;
	__le64 incarnation;
	__le32 state;
	__le32 former_state; /* KVPOOL_REAPER_FREE, CPU_FENCED; QUIET: it and all before it are */
	__le64 former_incarnation; /* of the same process, before it joined anew */
	__le64 sequence;
	__le32 reserved[5];
	__le32 crc;
};

#endif
