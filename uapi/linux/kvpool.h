/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The ioctl interface of /dev/kvpool (control, for the administrator) and /dev/kvpool-<name>
 * (one for each partition).
 *
 * Commands carry their structure, flags first. A command is known by its type and number; the
 * size in the command word is the caller's. A structure grows at its end: a shorter one is
 * filled up with zeros, a longer one must hold zeros where the driver knows nothing. Unknown
 * flags and non-zero reserved fields are EINVAL, a set byte behind what the driver knows is
 * E2BIG, an unknown command is ENOTTY. Numbers are never used again. kvpool(4) has the table
 * of rights and errors.
 */
#ifndef _UAPI_LINUX_KVPOOL_H
#define _UAPI_LINUX_KVPOOL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KVPOOL_IOC_MAGIC 0xD4
#define KVPOOL_ABI_VERSION 1

/* Feature bits of kvpool_info. */
#define KVPOOL_FEATURE_LEAF_2M (1ull << 0) /* partitions are mapped with 2 MiB leaves */
#define KVPOOL_FEATURE_ZERO_PAGE (1ull << 1)
#define KVPOOL_FEATURE_SCRUB (1ull << 2)

#define KVPOOL_CLAIM_NONE 0
#define KVPOOL_CLAIM_CLAIMED 1
#define KVPOOL_CLAIM_GONE 2

struct kvpool_info {
	__u64 flags;
	__u64 features;
	__u32 abi_version;
	__u32 format_version;
	__u32 state; /* KVPOOL_CLAIM_* */
	__u32 host;
	__u64 incarnation;
	__u8 uuid[16];
	__u64 pool_bytes;
	__u64 unit_bytes;
	__u32 device_count;
	__u32 host_count;
	__u64 admin_epoch; /* highest active claim seen; 0: none */
	__u32 admin_host;
	__u32 is_admin;
	__u64 table_generation;
	__u64 free_units;
	__u64 line_reads; /* lines the driver acquired since the claim */
	__u64 line_writes;
	__u64 gone_devices; /* bit per device */
};

struct kvpool_range {
	__u64 start;
	__u64 bytes;
};

#define KVPOOL_CLAIM_F_LABEL 1 /* label the ranges: whatever stands there is lost */
#define KVPOOL_CLAIM_F_FORCE 2 /* with LABEL: also over labels that are there */

struct kvpool_claim {
	__u64 flags;
	__aligned_u64 ranges; /* array of struct kvpool_range */
	__u32 range_count;
	__u32 host;
	__u32 host_count; /* with LABEL */
	__u32 pad;
	__u8 uuid[16]; /* with LABEL: to be given; else zeros, or the pool that is meant */
	__u64 ret_incarnation;
	__u32 ret_bad_range; /* on errors: which range, and where in it */
	__u32 ret_reason; /* KVPOOL_REFUSED_* */
	__u64 ret_bad_offset;
};

#define KVPOOL_REFUSED_NOT 0
#define KVPOOL_REFUSED_BELOW_4G 1
#define KVPOOL_REFUSED_UNALIGNED 2
#define KVPOOL_REFUSED_BUSY 3
#define KVPOOL_REFUSED_RAM 4
#define KVPOOL_REFUSED_NOT_RESERVED 5
#define KVPOOL_REFUSED_PCI 6
#define KVPOOL_REFUSED_OVERLAP 7
#define KVPOOL_REFUSED_SIZE 8
#define KVPOOL_REFUSED_TYPE 9 /* memory type obtained is not the one asked for */
#define KVPOOL_REFUSED_UNREADABLE 10
#define KVPOOL_REFUSED_NO_LABEL 11
#define KVPOOL_REFUSED_FOREIGN 12
#define KVPOOL_REFUSED_DUPLICATE 13
#define KVPOOL_REFUSED_MISSING 14
#define KVPOOL_REFUSED_INTERLEAVE 15
#define KVPOOL_REFUSED_LABELLED 16
#define KVPOOL_REFUSED_HOST_IN_USE 17
#define KVPOOL_REFUSED_VERSION 18
#define KVPOOL_REFUSED_CPU 19
#define KVPOOL_REFUSED_DAX 20

struct kvpool_release {
	__u64 flags;
};

struct kvpool_admin {
	__u64 flags;
	__u64 ret_epoch;
};

struct kvpool_partition_create {
	__u64 flags;
	__u64 bytes; /* multiple of the unit */
	__u64 slice_bytes; /* longest slice, multiple of the unit; 0: as long as is contiguous */
	__aligned_u64 name;
	__u32 name_len;
	__u32 type; /* KVPOOL_TYPE_* */
	__u32 ddio; /* KVPOOL_DDIO_* */
	__u32 pad;
	__u8 ret_uuid[16];
	__u32 ret_id;
	__u32 ret_slice_count;
};

#define KVPOOL_DESTROY_F_FORCE 1 /* kill what can still reach it */

struct kvpool_partition_destroy {
	__u64 flags;
	__aligned_u64 name;
	__u32 name_len;
	__u32 pad;
};

/* Why a partition was not changed. */
#define KVPOOL_CHANGE_DONE 0
#define KVPOOL_CHANGE_NO_PARTITION 1 /* ENOENT */
#define KVPOOL_CHANGE_DRAINS 2 /* ESTALE: the whole partition is on its way out */
#define KVPOOL_CHANGE_BAD_BYTES 3 /* EINVAL: nothing, or no multiple of the unit */
#define KVPOOL_CHANGE_NO_ROOM 4 /* ENOSPC: too few units, slices or ids are free */
#define KVPOOL_CHANGE_HELD 5 /* ENOSPC: units are free but for hosts that are not proven out */
#define KVPOOL_CHANGE_NO_SLICE 6 /* ENOENT: no slice of this partition has that id */
#define KVPOOL_CHANGE_FIRST_SLICE 7 /* EBUSY: the drivers' lines lie in it */
#define KVPOOL_CHANGE_NOTHING_LEFT 8 /* EBUSY: destroy it instead */
#define KVPOOL_CHANGE_NOT_WHOLE 9 /* EINVAL: no whole slices are together so many bytes */

/* More slices for a partition, of units that were scrubbed; hosts attach them as they see them. */
struct kvpool_partition_grow {
	__u64 flags;
	__u64 bytes; /* to be added, multiple of the unit */
	__u64 slice_bytes; /* as in kvpool_partition_create */
	__aligned_u64 name;
	__u32 name_len;
	__u32 ret_reason; /* KVPOOL_CHANGE_* */
	__u32 ret_first_slice; /* id; the new ones have the highest */
	__u32 ret_slice_count;
};

#define KVPOOL_SHRINK_F_FORCE 1 /* kill what can still reach the slices */
#define KVPOOL_SHRINK_SLICES_MAX 4096

/*
 * Begins the end of slices, whole ones, while the partition stays. Whoever keeps something in
 * them moves it away before.
 */
struct kvpool_partition_shrink {
	__u64 flags;
	__aligned_u64 name;
	__aligned_u64 slices; /* array of __u32, ids */
	__u32 name_len;
	__u32 slice_count; /* 0: the newest, so many that they are together `bytes` */
	__u64 bytes; /* 0 where slices are named */
	__u64 ret_bytes; /* that drain now; NOT_WHOLE: the least above that would be whole */
	__u32 ret_reason; /* KVPOOL_CHANGE_* */
	__u32 pad;
};

#define KVPOOL_SLICE_QUIET_F_CONFIRMED 1 /* required: no device reaches the slice for this member */

/* Of a slice that drains on this host; the host's own word, never the member's. */
struct kvpool_slice_quiet {
	__u64 flags;
	__u64 incarnation; /* of the member */
	__u32 slice;
	__u32 pad;
};

/* A PCI function without which the device does not answer; several may be named. */
struct kvpool_device_watch {
	__u64 flags;
	__u32 device;
	__u32 domain;
	__u32 bus;
	__u32 devfn; /* slot << 3 | function */
};

#define KVPOOL_LIST_DEVICES 1
#define KVPOOL_LIST_HOSTS 2
#define KVPOOL_LIST_PARTITIONS 3
#define KVPOOL_LIST_SLICES 4
#define KVPOOL_LIST_MEMBERS 5

/* On a partition's node only its own partition, slices and members are listed. */
struct kvpool_list {
	__u64 flags;
	__aligned_u64 items; /* array of struct kvpool_item_* */
	__u32 kind;
	__u32 item_bytes; /* of one element of the array */
	__u32 first;
	__u32 count; /* room */
	__u32 ret_count; /* how many there are from `first` on */
	__u32 pad;
};

struct kvpool_item_device {
	__u64 start;
	__u64 bytes;
	__u32 device;
	__u32 gone; /* from this host, until it claims anew */
	__u64 data_offset;
};

struct kvpool_item_host {
	__u32 host;
	__u32 state; /* KVPOOL_HOST_*, 0: not readable */
	__u64 incarnation;
	__u64 heartbeat;
	__u64 claimed;
	__u64 active;
	__u64 fenced_incarnation;
	__u32 used_units;
	__u32 held_units; /* drained units that wait for this host */
};

struct kvpool_item_partition {
	__u8 uuid[16];
	__u8 name[32];
	__u32 id;
	__u32 state;
	__u32 type_requested;
	__u32 type_obtained; /* ~0: not attached here */
	__u32 ddio;
	__u32 slice_count;
	__u64 bytes;
	__u32 members;
	__u32 reachers;
	__u32 descriptors; /* joined and not yet released */
	__u32 attached;
	__u32 poisoned; /* pages reported on this host */
	__u32 gone; /* with its devices: nothing of it is served here any more */
};

#define KVPOOL_SLICE_GONE 3 /* in no table: its device is gone from this host */

struct kvpool_item_slice {
	__u32 id;
	__u32 partition;
	__u32 device;
	__u32 state; /* KVPOOL_SLICE_* */
	__u64 device_offset;
	__u64 bytes;
	__u64 map_offset; /* for mmap on the partition's node */
	__u64 held_hosts; /* bit per host below 64 whose proof is missing */
};

struct kvpool_item_member {
	__u64 incarnation;
	__u64 deadline_ns; /* CLOCK_BOOTTIME */
	__u32 slot;
	__u32 pid; /* thread group, as seen by the caller; 0: gone */
	__u32 state; /* KVPOOL_REAPER_* */
	__u32 revoked;
};

#define KVPOOL_FENCE_F_CONFIRMED 1 /* required: the host is off, or cut from the pool */

struct kvpool_host_fence {
	__u64 flags;
	__u32 host;
	__u32 pad;
	__u64 incarnation; /* as listed; another one in the host line is ESTALE */
};

struct kvpool_revoke {
	__u64 flags;
	__u64 incarnation;
};

struct kvpool_poison {
	__u64 flags;
	__u32 device;
	__u32 pad;
	__u64 device_offset;
	__u64 bytes; /* at most 2 MiB */
};

#define KVPOOL_JOIN_F_ZERO_PAGE 1 /* after a revoke: a private page instead of SIGBUS */
#define KVPOOL_JOIN_FDS_MAX 32

struct kvpool_join {
	__u64 flags;
	__aligned_u64 fds; /* array of __s32: nodes of the payload partitions */
	__u32 fd_count;
	__u32 lease_ms; /* 0: 10 s */
	__u64 ret_incarnation;
	__u64 ret_deadline_ns;
	__u32 ret_slot;
	__u32 ret_host;
};

struct kvpool_renew {
	__u64 flags;
	__u64 ret_deadline_ns;
};

struct kvpool_populate {
	__u64 flags;
	__u64 address;
	__u64 bytes;
	__u64 ret_bytes; /* done from the start, also on errors */
	__u32 ret_leaves_4k;
	__u32 ret_leaves_2m;
	__u32 ret_poisoned; /* pages left out */
	__u32 ret_pad;
};

struct kvpool_mapping {
	__u64 flags;
	__u64 address;
	__u64 ret_leaf_bytes; /* 0: nothing is present there */
	__u32 ret_type; /* KVPOOL_TYPE_*, ~0: another one */
	__u32 ret_device;
	__u64 ret_device_offset;
};

struct kvpool_quiet {
	__u64 flags;
	__u64 incarnation; /* a former one of this member: its devices have stopped, says the live one */
};

/* Node: C control, P partition. Right: A CAP_SYS_ADMIN, M the member's own mm and threads. */
#define KVPOOL_GET_INFO _IOWR(KVPOOL_IOC_MAGIC, 0x00, struct kvpool_info) /* C P */
#define KVPOOL_CLAIM _IOWR(KVPOOL_IOC_MAGIC, 0x01, struct kvpool_claim) /* C A */
#define KVPOOL_RELEASE _IOW(KVPOOL_IOC_MAGIC, 0x02, struct kvpool_release) /* C A */
#define KVPOOL_ADMIN _IOWR(KVPOOL_IOC_MAGIC, 0x03, struct kvpool_admin) /* C A */
#define KVPOOL_PARTITION_CREATE \
	_IOWR(KVPOOL_IOC_MAGIC, 0x04, struct kvpool_partition_create) /* C A */
#define KVPOOL_PARTITION_DESTROY \
	_IOW(KVPOOL_IOC_MAGIC, 0x05, struct kvpool_partition_destroy) /* C A */
#define KVPOOL_LIST _IOWR(KVPOOL_IOC_MAGIC, 0x06, struct kvpool_list) /* C P */
#define KVPOOL_HOST_FENCE _IOW(KVPOOL_IOC_MAGIC, 0x07, struct kvpool_host_fence) /* C A */
#define KVPOOL_REVOKE _IOW(KVPOOL_IOC_MAGIC, 0x08, struct kvpool_revoke) /* C A */
#define KVPOOL_POISON _IOW(KVPOOL_IOC_MAGIC, 0x09, struct kvpool_poison) /* C A */

#define KVPOOL_PARTITION_GROW \
	_IOWR(KVPOOL_IOC_MAGIC, 0x0a, struct kvpool_partition_grow) /* C A */
#define KVPOOL_PARTITION_SHRINK \
	_IOWR(KVPOOL_IOC_MAGIC, 0x0b, struct kvpool_partition_shrink) /* C A */
#define KVPOOL_SLICE_QUIET _IOW(KVPOOL_IOC_MAGIC, 0x0c, struct kvpool_slice_quiet) /* C A */
#define KVPOOL_DEVICE_WATCH _IOW(KVPOOL_IOC_MAGIC, 0x0d, struct kvpool_device_watch) /* C A */

#define KVPOOL_JOIN _IOWR(KVPOOL_IOC_MAGIC, 0x10, struct kvpool_join) /* P */
#define KVPOOL_RENEW _IOWR(KVPOOL_IOC_MAGIC, 0x11, struct kvpool_renew) /* P M */
#define KVPOOL_POPULATE _IOWR(KVPOOL_IOC_MAGIC, 0x12, struct kvpool_populate) /* P M */
#define KVPOOL_MAPPING _IOWR(KVPOOL_IOC_MAGIC, 0x13, struct kvpool_mapping) /* P M */
#define KVPOOL_QUIET _IOW(KVPOOL_IOC_MAGIC, 0x14, struct kvpool_quiet) /* P M */

/* mmap offsets: the slice's id above, the offset in it below. Offset 0 is the STATE page. */
#define KVPOOL_MAP_ID_SHIFT 40
#define KVPOOL_MAP_STATE 0ull

/*
 * Events: read() on a node gives whole records from the time of open() on, poll() says when there
 * are any. A descriptor keeps 64; then the oldest goes, and the next one that is read says how many
 * went. The control node hears of everything, a partition's node of what has its id, or of its
 * members, and of what has none.
 */
#define KVPOOL_EVENT_MEMBER_REVOKED 1 /* value: incarnation; its mappings go now */
#define KVPOOL_EVENT_MEMBER_FENCED 2 /* they are gone */
#define KVPOOL_EVENT_MEMBER_DEAD 3 /* never has another incarnation */
#define KVPOOL_EVENT_MEMBER_QUIET 4 /* nothing reaches for it any more */
#define KVPOOL_EVENT_SLICE_READY 5 /* this host has attached it: mmap it */
#define KVPOOL_EVENT_SLICE_DRAINS 6 /* its mappings are gone */
#define KVPOOL_EVENT_SLICE_HELD 7 /* on the administrator's host; value: bit per host below 64 */
#define KVPOOL_EVENT_SLICE_FREE 8 /* it left the table: its units are another's soon */
#define KVPOOL_EVENT_POISON 9 /* device_offset, bytes: the page */
#define KVPOOL_EVENT_TABLE 10 /* value: generation of the table in force */
#define KVPOOL_EVENT_ADMINISTRATOR 11 /* value: epoch; host: who administers */
#define KVPOOL_EVENT_HOST_GONE 12 /* this host has fenced itself; value: incarnation */
#define KVPOOL_EVENT_DEVICE_GONE 13 /* the slices on it are lost on this host */

struct kvpool_event_record {
	__u32 kind; /* KVPOOL_EVENT_*; skip what you do not know */
	__u32 lost; /* events of this descriptor between the one read before and this one */
	__u64 time_ns; /* CLOCK_BOOTTIME */
	__u64 sequence; /* the same on all descriptors of this host, without gaps on the control node */
	__u32 partition; /* id; 0: none */
	__u32 slice; /* id; 0: none */
	__u32 device;
	__u32 host;
	__u64 value;
	__u64 device_offset;
	__u64 bytes;
};

/* The STATE page of a member: one page, read-only. The driver writes it with release order. */
struct kvpool_state_page {
	__u64 incarnation;
	__u64 deadline_ns; /* CLOCK_BOOTTIME */
	__u64 revoked; /* set before the mappings go; nothing read after that means anything */
	__u64 cpu_fenced; /* the last incarnation whose mappings are gone */
	/*
	 * Slices that were taken away from this member, or went with their device, while it lives
	 * on. Grows before the mappings
	 * go, never falls: what was read or stored since it was looked at last may have been a
	 * private page, if JOIN asked for one.
	 */
	__u64 lost;
};

#endif
