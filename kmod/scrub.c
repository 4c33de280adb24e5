// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zeroing what changes hands, and proof of it from the medium: streaming stores through a
 * mapping of its own, then every line flushed, loaded and compared. Nothing maps the range
 * meanwhile: it belongs to no partition, and this host announced the scrub.
 */
#include <linux/io.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include <asm/cacheflush.h>

#include "internal.h"
#include "trace.h"

#define WINDOW_BYTES (1ull << 30)

static int write_zeros(void *to, u64 bytes, const void *zeros, const bool *gone)
{
	u64 done;

	for (done = 0; done < bytes; done += PAGE_SIZE) {
		if (READ_ONCE(*gone))
			return -ENODEV;
		memcpy_flushcache(to + done, zeros, PAGE_SIZE);
		if (!(done & (KVPOOL_LEAF_BYTES - 1)))
			cond_resched();
	}
	wmb();
	return 0;
}

static int verify_zeros(void *from, u64 bytes, void *page, const bool *gone)
{
	u64 done;

	for (done = 0; done < bytes; done += PAGE_SIZE) {
		if (READ_ONCE(*gone))
			return -ENODEV;
		if (copy_mc_to_kernel(page, from + done, PAGE_SIZE))
			return -EIO;
		if (memchr_inv(page, 0, PAGE_SIZE))
			return -EUCLEAN;
		if (!(done & (KVPOOL_LEAF_BYTES - 1)))
			cond_resched();
	}
	return 0;
}

/* A device that goes meanwhile is let go at the next page. */
static int scrub_window(phys_addr_t start, u64 bytes, const void *zeros, void *page,
			const bool *gone)
{
	void *map = (void __force *)ioremap_cache(start, bytes);
	int err;

	if (!map)
		return -ENOMEM;
	/* While another mapping registers WC, a request for WB gives WC without a word. */
	if (kvpool_map_type(map) != KVPOOL_TYPE_WB) {
		iounmap((void __iomem __force *)map);
		return -EMEDIUMTYPE;
	}
	kvpool_caches_retire(map, bytes);
	err = write_zeros(map, bytes, zeros, gone);
	if (!err) {
		kvpool_caches_retire(map, bytes);
		err = verify_zeros(map, bytes, page, gone);
	}
	/* What was loaded to compare is not to stay here either. */
	if (!READ_ONCE(*gone))
		kvpool_caches_retire(map, bytes);
	iounmap((void __iomem __force *)map);
	return err;
}

int kvpool_scrub(struct kvpool *pool, u32 device, u64 offset, u64 bytes)
{
	void *zeros = kzalloc(PAGE_SIZE, GFP_KERNEL), *page = kmalloc(PAGE_SIZE, GFP_KERNEL);
	const bool *gone = &pool->devices[device].gone;
	int err = zeros && page ? 0 : -ENOMEM;
	u64 done;

	for (done = 0; done < bytes && !err; done += WINDOW_BYTES) {
		if (READ_ONCE(pool->gone) || READ_ONCE(*gone))
			err = -ENODEV;
		else if (fatal_signal_pending(current))
			err = -EINTR;
		else
			err = scrub_window(pool->devices[device].start + offset + done,
					   min(WINDOW_BYTES, bytes - done), zeros, page, gone);
	}
	trace_kvpool_scrub(device, offset, bytes, err);
	kfree(zeros);
	kfree(page);
	return err;
}
