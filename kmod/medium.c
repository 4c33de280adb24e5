// SPDX-License-Identifier: GPL-2.0-only
/*
 * The verbs: how the driver reads and writes memory that other hosts share without coherence,
 * and the only place of flushes and fences. Control lines are touched by the pool's thread
 * alone, with copies that survive a machine check. Never locked or read-modify-write
 * instructions, never memcpy or memset on pool memory.
 */
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/sched.h>
#include <linux/uaccess.h>

#include <asm/cacheflush.h>
#include <asm/memtype.h>
#include <asm/pgtable.h>
#include <asm/smp.h>

#include "internal.h"

#define FLUSH_CHUNK (2ul << 20)

static void *meta_at(struct kvpool *pool, struct kvpool_place at, size_t bytes)
{
	struct kvpool_device *device = &pool->devices[at.device];

	if (WARN_ON_ONCE(at.device >= pool->geo.device_count ||
			 at.offset + bytes > device->meta_bytes))
		return NULL;
	if (READ_ONCE(device->gone))
		return NULL;
	return device->meta + at.offset;
}

/* acquire: the loads after this come from the medium. clflush_cache_range fences on both sides. */
static void acquire(void *from, size_t bytes)
{
	mb();
	clflush_cache_range(from, bytes);
}

/* Of a device that is gone nothing else was to be expected. */
static int line_failed(struct kvpool *pool, u32 device, const char *why)
{
	if (!READ_ONCE(pool->devices[device].gone))
		kvpool_host_gone(pool, why);
	return -EIO;
}

/* Loads into the caller's copy, which alone is believed. -EIO: poison. */
int kvpool_lines_read(struct kvpool *pool, u32 device, void *from, void *to, size_t bytes)
{
	if (READ_ONCE(pool->gone))
		return -ENODEV;
	acquire(from, bytes);
	atomic64_add(bytes / KVPOOL_LINE_BYTES, &pool->line_reads);
	if (copy_mc_to_kernel(to, from, bytes))
		return line_failed(pool, device, "a control line cannot be read");
	return 0;
}

int kvpool_medium_read(struct kvpool *pool, struct kvpool_place at, void *to, size_t bytes)
{
	void *from = meta_at(pool, at, bytes);

	return from ? kvpool_lines_read(pool, at.device, from, to, bytes) : -EIO;
}

/*
 * stream and drain_strict: past the caches, then fenced, then the last line read back, so that
 * what was written is at the device and not only on its way, and a device that is lost is
 * noticed before anything rests on it. `to` is mapped write-back.
 */
int kvpool_lines_write(struct kvpool *pool, u32 device, void *to, const void *from, size_t bytes)
{
	union kvpool_line last;

	if (READ_ONCE(pool->gone))
		return -ENODEV;
	memcpy_flushcache(to, from, bytes);
	wmb();
	atomic64_add(bytes / KVPOOL_LINE_BYTES, &pool->line_writes);
	to += bytes - sizeof(last);
	acquire(to, sizeof(last));
	if (copy_mc_to_kernel(&last, to, sizeof(last)))
		return line_failed(pool, device, "a control line cannot be read back");
	/* A device that does not answer may read as anything; it did not store this. */
	if (memcmp(&last, from + bytes - sizeof(last), sizeof(last)))
		return line_failed(pool, device, "a control line does not read back as written");
	return 0;
}

int kvpool_medium_write(struct kvpool *pool, struct kvpool_place at, const void *from,
			size_t bytes)
{
	void *to = meta_at(pool, at, bytes);

	return to ? kvpool_lines_write(pool, at.device, to, from, bytes) : -EIO;
}

/* retire: write back and forget, for memory that nothing maps any more. */
void kvpool_caches_retire(void *from, u64 bytes)
{
	u64 done;

	mb();
	for (done = 0; done < bytes; done += FLUSH_CHUNK) {
		clflush_cache_range(from + done, min_t(u64, FLUSH_CHUNK, bytes - done));
		cond_resched();
	}
}

/* All caches of this host. Not in a guest, where the instruction traps and may do nothing. */
void kvpool_caches_empty(void)
{
	wbinvd_on_all_cpus();
}

/*
 * Two copies, one after the other: whatever happens, one of them is whole. One is enough where
 * the other's device is gone.
 */
int kvpool_area_write(struct kvpool *pool, u32 offset, union kvpool_line *line)
{
	u32 copy, written = 0;
	int err;

	for (copy = 0; copy < 2; copy++) {
		struct kvpool_place at = kvpool_area_place(&pool->geo, pool->host, copy, offset);

		kvpool_seal_line(&pool->seal, at, line);
		err = kvpool_medium_write(pool, at, line, sizeof(*line));
		if (err && !READ_ONCE(pool->devices[at.device].gone))
			return err;
		written += !err;
	}
	return written ? 0 : -EIO;
}

/*
 * Which copies verify, as bits. A reader's loads may straddle a write, so a bad copy is read
 * again.
 */
u32 kvpool_area_read(struct kvpool *pool, u32 host, u32 offset, u32 magic,
		     union kvpool_line copies[2])
{
	u32 copy, intact = 0, attempt;

	for (copy = 0; copy < 2; copy++) {
		struct kvpool_place at = kvpool_area_place(&pool->geo, host, copy, offset);

		for (attempt = 0; attempt < 3; attempt++) {
			if (kvpool_medium_read(pool, at, &copies[copy], sizeof(copies[copy])))
				break;
			if (!kvpool_line_intact(&pool->seal, at, &copies[copy], magic))
				continue;
			intact |= 1u << copy;
			break;
		}
	}
	return intact;
}

/* What was fenced here is on the medium everywhere after delta; twice that covers both sides. */
void kvpool_settle(void)
{
	usleep_range(2 * kvpool_delta_us, 2 * kvpool_delta_us + 200);
}

static u32 type_of(unsigned long protection)
{
	protection &= _PAGE_CACHE_MASK;
	if (protection == cachemode2protval(_PAGE_CACHE_MODE_WB))
		return KVPOOL_TYPE_WB;
	if (protection == cachemode2protval(_PAGE_CACHE_MODE_WC))
		return KVPOOL_TYPE_WC;
	if (protection == cachemode2protval(_PAGE_CACHE_MODE_UC_MINUS))
		return KVPOOL_TYPE_UC_MINUS;
	return KVPOOL_TYPE_OTHER;
}

/* The type that the bits of a leaf of user space mean. */
u32 kvpool_leaf_type(unsigned long protection, bool huge)
{
	/* In a large entry the bit at _PAGE_PAT's place says that it is one. */
	return type_of(huge ? protection & ~_PAGE_PAT : protection);
}

/* The type that a mapping of the kernel obtained, which need not be the one that was asked for. */
u32 kvpool_map_type(const void *address)
{
	unsigned int level;
	pte_t *entry = lookup_address((unsigned long)address, &level);

	if (!entry)
		return KVPOOL_TYPE_OTHER;
	return kvpool_leaf_type(pte_val(*entry), level != PG_LEVEL_4K);
}

void __iomem *kvpool_map_as(phys_addr_t start, u64 bytes, u32 type)
{
	switch (type) {
	case KVPOOL_TYPE_WB:
		return ioremap_cache(start, bytes);
	case KVPOOL_TYPE_WC:
		return ioremap_wc(start, bytes);
	default:
		return ioremap(start, bytes);
	}
}
