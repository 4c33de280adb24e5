/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the module share.
 *
 * Locks, outermost first:
 *   kvpool_control_lock   claim, release, administration, background scrub: one at a time
 *   kvpool_lock           pool pointer, partitions, members, descriptors
 *   mmap lock or VMA lock of a process
 *   member->sem           a fault from its check to its verification (read); revoke to the end of
 *                         the zap, renewal, joining again (write)
 *   i_mmap, page tables
 *   member->reach_lock, that of events.c: spinlocks, innermost
 * The pool's thread (an ordered workqueue) is the only one that touches control lines. It takes
 * kvpool_lock, never kvpool_control_lock; who waits for it holds none but kvpool_control_lock.
 * No user copy under kvpool_lock or member->sem.
 */
#ifndef KVPOOL_INTERNAL_H
#define KVPOOL_INTERNAL_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/ioport.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <linux/kvpool.h>

#include "logic/args.h"
#include "logic/claims.h"
#include "logic/events.h"
#include "logic/geometry.h"
#include "logic/label.h"
#include "logic/lease.h"
#include "logic/table.h"
#include "logic/use.h"

#undef pr_fmt
#define pr_fmt(fmt) "kvpool: " fmt

#define KVPOOL_MINOR_COUNT 65536u
#define KVPOOL_TYPE_OTHER (~0u)

struct kvpool;
struct kvpool_part;

struct kvpool_device {
	phys_addr_t start;
	struct resource *region;
	void *meta; /* labels and host areas, write-back */
	u64 meta_bytes;
	bool gone; /* never touched again; set once, under kvpool_lock */
};

struct kvpool {
	struct kvpool_geometry geo;
	struct kvpool_seal seal;
	struct kvpool_device devices[KVPOOL_DEVICE_COUNT_MAX];
	u32 host;
	u64 incarnation;
	u64 boot_nonce;
	u64 opens; /* of partition nodes; kvpool_lock */
	bool closing; /* no more of them; kvpool_lock */
	bool gone; /* fenced itself; set once, never cleared */

	/*
	 * The pool's thread and what it owns. Readers elsewhere hold kvpool_lock, as do its
	 * changes.
	 */
	struct workqueue_struct *thread;
	struct delayed_work tick;
	union kvpool_line host_line; /* as written last */
	u64 heartbeat;
	u64 sequence;
	u8 *use; /* two bits a unit */
	u32 use_bytes;
	struct kvpool_claim_view claims[KVPOOL_HOST_COUNT_MAX];
	struct kvpool_host_view hosts[KVPOOL_HOST_COUNT_MAX];
	struct kvpool_table *table; /* in force */
	struct kvpool_table *next; /* scratch of the thread */
	void *buffer; /* of a table area */
	u8 *unit_scratch; /* bit a unit */
	u64 *held; /* by slice of `table`: hosts whose proof is missing */
	u64 admin_epoch; /* own, 0: another's or nobody's */

	/* Units found clean in an epoch of this administrator; kvpool_control_lock. */
	u8 *clean;
	u64 clean_epoch;
	struct work_struct scrub;

	struct list_head watches; /* remove.c; kvpool_lock */

	atomic64_t line_reads;
	atomic64_t line_writes;
};

/*
 * Entered by the pool's thread; freed by it, too, when the table does not have it and the
 * partition has no member: so whoever joined may keep a pointer.
 */
struct kvpool_slice {
	u32 id;
	u32 device;
	u32 first_unit;
	u32 unit_count;
	u64 device_offset;
	u64 bytes;
	phys_addr_t start;
	void __iomem *map; /* registers the type while it is attached; pool's thread */
	bool announced; /* this host's use lines name it; pool's thread */
	bool leaving; /* scratch of detaching; pool's thread */
	bool failed; /* scratch of attaching it to what is attached; pool's thread */
	bool found; /* scratch of following the table; kvpool_lock */
	bool listed; /* in the table in force; kvpool_lock */
	bool attached; /* faults may serve it; kvpool_lock */
	bool draining; /* the table takes it away, faults serve it no more; kvpool_lock */
	bool force; /* kvpool_lock */
	bool gone; /* with its device: as draining, and nothing of it is touched; kvpool_lock */
};

struct kvpool_part {
	struct kref ref;
	struct list_head list; /* of the pool's partitions; kvpool_lock */
	struct kvpool *pool;
	char name[KVPOOL_NAME_BYTES];
	u8 uuid[16];
	u32 id;
	u32 type;
	u32 ddio;
	u32 minor;
	bool draining; /* kvpool_lock */
	bool force;
	bool gone; /* with its devices; kvpool_lock */
	bool attached; /* pool's thread; kvpool_lock */
	u32 type_obtained;
	u32 members; /* whose reachers are not gone; kvpool_lock */
	u32 attaching; /* joins under way: no detach; kvpool_lock */
	u64 slots; /* taken; kvpool_lock */
	u32 poisoned; /* kvpool_lock */
	struct xarray poison; /* pages; entered under kvpool_lock, read by faults */
	struct xarray slices; /* by id; entered under kvpool_lock, read by faults */
};

/* A descriptor of a node. Its pseudo inode is its own, so that one member is zapped alone. */
struct kvpool_open {
	struct kvpool_part *part; /* NULL: the control node */
	struct inode *inode;
	struct kvpool_member *member; /* set once, under kvpool_lock */
	struct list_head list; /* of the member's; kvpool_lock */

	/* events.c */
	struct list_head listening;
	struct kvpool_ring ring;
	wait_queue_head_t heard;
	bool ended;
};

struct kvpool_reacher {
	struct list_head list;
	struct mm_struct *mm; /* of a forked child */
	u64 gone_ns;
};

/*
 * A joined process. Lives until its last descriptor is released and all its reachers are gone;
 * the slot is free again after its line said QUIET.
 */
struct kvpool_member {
	struct kref ref;
	struct list_head list; /* of all; kvpool_lock */
	struct mmu_notifier notifier;
	struct mm_struct *mm;
	struct pid *tgid;
	struct list_head opens; /* kvpool_lock */
	struct kvpool_part **parts; /* what it joined, first the control partition; kvpool_lock */
	u32 part_count;
	u32 slot;
	u64 flags;

	struct rw_semaphore sem;
	u64 incarnation;
	u64 deadline_ns;
	u64 lease_ns;
	bool revoked;
	bool late; /* a fault came past the deadline */
	bool dead; /* never again: the process is gone, or the partition */
	struct xarray mapped; /* ids of slices, ever; entered by mmap */

	bool reaper_due; /* its line is to be written; kvpool_lock */
	bool quieting;
	u64 former_incarnation;
	u32 former_state;
	u64 gone_ns;

	struct page *state;
	struct page *zero;
	unsigned int zero_order;

	spinlock_t reach_lock;
	struct list_head reachers;
};

/* main.c */
extern struct mutex kvpool_control_lock;
extern struct mutex kvpool_lock;
extern struct kvpool *kvpool_pool; /* kvpool_lock; changes also under kvpool_control_lock */
extern struct list_head kvpool_members; /* kvpool_lock */
extern struct list_head kvpool_parts; /* kvpool_lock */
extern const struct file_operations kvpool_fops;
extern unsigned int kvpool_delta_us;
extern unsigned int kvpool_heartbeat_ms;
int kvpool_node_add(struct kvpool_part *part);
void kvpool_node_remove(struct kvpool_part *part);
bool kvpool_in_guest(void);

/* medium.c */
int kvpool_medium_read(struct kvpool *pool, struct kvpool_place at, void *to, size_t bytes);
int kvpool_medium_write(struct kvpool *pool, struct kvpool_place at, const void *from,
			size_t bytes);
int kvpool_lines_read(struct kvpool *pool, u32 device, void *from, void *to, size_t bytes);
int kvpool_lines_write(struct kvpool *pool, u32 device, void *to, const void *from, size_t bytes);
void kvpool_caches_retire(void *from, u64 bytes);
void kvpool_caches_empty(void);
int kvpool_area_write(struct kvpool *pool, u32 offset, union kvpool_line *line);
u32 kvpool_area_read(struct kvpool *pool, u32 host, u32 offset, u32 magic,
		     union kvpool_line copies[2]);
void kvpool_settle(void);
u32 kvpool_leaf_type(unsigned long protection, bool huge);
u32 kvpool_map_type(const void *address);
void __iomem *kvpool_map_as(phys_addr_t start, u64 bytes, u32 type);

/* range.c */
int kvpool_range_request(const struct kvpool_range *range, struct resource **ret_region,
			 u32 *ret_reason);
void kvpool_range_release(const struct kvpool_range *range);

/* claim.c; kvpool_control_lock */
int kvpool_claim_pool(struct kvpool_claim *args, const struct kvpool_range *ranges);
int kvpool_release_pool(void);

/* thread.c: what runs on the pool's thread, but for kvpool_call and kvpool_kick */
int kvpool_call(struct kvpool *pool, int (*work)(struct kvpool *pool, void *arg), void *arg);
void kvpool_kick(struct kvpool *pool);
void kvpool_thread_init(struct kvpool *pool);
int kvpool_thread_start(struct kvpool *pool);
void kvpool_thread_stop(struct kvpool *pool);
void kvpool_leave_soon(unsigned long timeout);
int kvpool_host_write(struct kvpool *pool, u32 state);
void kvpool_host_gone(struct kvpool *pool, const char *why);
int kvpool_use_write(struct kvpool *pool, const struct kvpool_slice *slice, u32 use);
int kvpool_claims_read(struct kvpool *pool, struct kvpool_claim_view *views);
/* kvpool_lock */
void kvpool_claims_seen(struct kvpool *pool, const struct kvpool_claim_view *views);
int kvpool_table_read(struct kvpool *pool, const struct kvpool_claim_view *view, u32 host,
		      struct kvpool_table *table);
int kvpool_sync(struct kvpool *pool);
void kvpool_table_apply(struct kvpool *pool);

/* admin.c */
int kvpool_admin_take(struct kvpool *pool, u64 *ret_epoch);
int kvpool_admin_create(struct kvpool *pool, struct kvpool_partition_create *args,
			const char *name);
int kvpool_admin_grow(struct kvpool *pool, struct kvpool_partition_grow *args, const char *name);
int kvpool_admin_shrink(struct kvpool *pool, struct kvpool_partition_shrink *args,
			const struct kvpool_shrink_plan *plan);
int kvpool_admin_destroy(struct kvpool *pool, const char *name, bool force);
int kvpool_admin_fence(struct kvpool *pool, u32 host, u64 incarnation);
void kvpool_admin_tick(struct kvpool *pool);
int kvpool_admin_first(struct kvpool *pool);
void kvpool_scrub_work(struct work_struct *work);

/* scrub.c */
int kvpool_scrub(struct kvpool *pool, u32 device, u64 offset, u64 bytes);

/* part.c; kvpool_lock unless it says otherwise */
struct kvpool_part *kvpool_part_new(struct kvpool *pool,
				    const struct kvpool_partition_entry *entry);
void kvpool_part_put(struct kvpool_part *part);
int kvpool_part_attach(struct kvpool *pool, void *part); /* thread, no lock; holds `attaching` */
void kvpool_part_drain(struct kvpool_part *part, bool force);
void kvpool_part_detach_idle(struct kvpool *pool); /* thread, no lock */
int kvpool_part_follow(struct kvpool_part *part);
void kvpool_part_freed(struct kvpool_part *part); /* no lock */
void kvpool_part_attach_grown(struct kvpool *pool); /* thread, no lock */
struct kvpool_slice *kvpool_part_slice(struct kvpool_part *part, u32 id); /* no lock */
struct kvpool_slice *kvpool_part_first(struct kvpool_part *part); /* no lock */
u64 kvpool_part_bytes(struct kvpool_part *part, u32 *ret_slices);
void kvpool_part_retire(struct kvpool_part *part); /* thread, no lock */
int kvpool_slice_quiet(u64 incarnation, u32 slice); /* no lock */

/* member.c */
int kvpool_join(struct kvpool_join *args, struct file **files, u32 count);
u32 kvpool_part_reachers(struct kvpool_part *part, u32 *ret_descriptors);
int kvpool_renew(struct kvpool_member *member, u64 *ret_deadline_ns);
int kvpool_quiet(struct kvpool_member *member, u64 incarnation);
void kvpool_member_revoke(struct kvpool_member *member, bool dead); /* kvpool_lock */
int kvpool_member_revoke_id(u64 incarnation);
void kvpool_member_put(struct kvpool_member *member);
void kvpool_member_release(struct kvpool_open *open);
void kvpool_members_scan_soon(void);
void kvpool_members_reap(struct kvpool *pool); /* thread */
/* kvpool_lock. Of one slice, or of the whole partition: 0. */
void kvpool_members_kill(struct kvpool_part *part, u32 slice);
void kvpool_members_lose(struct kvpool_part *part, struct kvpool_slice *slice, bool *ret_lost);
bool kvpool_slice_is_reached(const struct kvpool_slice *slice);
int kvpool_member_forget_slice(u64 incarnation, u32 slice);
bool kvpool_member_is_current(const struct kvpool_member *member);
int kvpool_member_add_mm(struct kvpool_member *member, struct mm_struct *mm);
struct kvpool_state_page *kvpool_member_state(struct kvpool_member *member);
int kvpool_members_init(void);
void kvpool_members_exit(void);

/* map.c */
int kvpool_mmap(struct file *file, struct vm_area_struct *vma);
unsigned long kvpool_unmapped_area(struct file *file, unsigned long address, unsigned long bytes,
				   unsigned long pgoff, unsigned long flags);
int kvpool_populate(struct file *file, struct kvpool_populate *args);
int kvpool_mapping_ask(struct file *file, struct kvpool_mapping *args);
bool kvpool_owns_vma(const struct vm_area_struct *vma);
bool kvpool_leaves_2m(void);

/* poison.c */
bool kvpool_page_is_poisoned(struct kvpool_part *part, const struct kvpool_slice *slice,
			     u64 offset);
bool kvpool_leaf_is_poisoned(struct kvpool_part *part, const struct kvpool_slice *slice, u64 offset,
			     u64 bytes);
int kvpool_poison(u32 device, u64 device_offset, u64 bytes);
void kvpool_poison_forget(struct kvpool_part *part, const struct kvpool_slice *slice);
void kvpool_poison_later(u64 address); /* any context */
void kvpool_poison_init(void);
void kvpool_poison_exit(void);

/* remove.c; kvpool_lock unless it says otherwise */
void kvpool_device_gone(struct kvpool *pool, u32 device, const char *why);
void kvpool_part_judge(struct kvpool_part *part);
u64 kvpool_gone_devices(const struct kvpool *pool); /* any lock */
int kvpool_device_watch(const struct kvpool_device_watch *args); /* no lock */
void kvpool_watches_free(struct kvpool *pool);
int kvpool_remove_init(void);
void kvpool_remove_exit(void);

/* debugfs.c */
enum {
	KVPOOL_LIVE_PARTITIONS,
	KVPOOL_LIVE_SLICES,
	KVPOOL_LIVE_MEMBERS,
	KVPOOL_LIVE_REACHERS,
	KVPOOL_LIVE_DESCRIPTORS,
	KVPOOL_LIVE_COUNT
};
extern atomic_t kvpool_live[KVPOOL_LIVE_COUNT];
bool kvpool_drain_fails(void);
void kvpool_debugfs_init(void);
void kvpool_debugfs_exit(void);

/* events.c; any lock */
struct poll_table_struct;
int kvpool_events_open(struct kvpool_open *open);
void kvpool_events_close(struct kvpool_open *open);
void kvpool_events_end(const struct kvpool_part *part);
void kvpool_event_pool(u32 kind, u32 host, u64 value);
void kvpool_event_member(const struct kvpool_member *member, u32 kind);
void kvpool_event_place(u32 kind, const struct kvpool *pool, u32 partition, u32 slice,
			struct kvpool_place at, u64 bytes, u64 value);
void kvpool_event_slice(u32 kind, const struct kvpool_part *part, const struct kvpool_slice *slice);
ssize_t kvpool_read(struct file *file, char __user *to, size_t bytes, loff_t *offset);
__poll_t kvpool_poll(struct file *file, struct poll_table_struct *table);

/* sysfs.c */
extern const struct attribute_group *kvpool_pool_groups[];
extern const struct attribute_group *kvpool_part_groups[];

/* guard.c */
int kvpool_guard_init(void);
void kvpool_guard_exit(void);
bool kvpool_guard_stands(void);

/* ioctl.c */
long kvpool_ioctl(struct file *file, unsigned int command, unsigned long arg);

#endif
