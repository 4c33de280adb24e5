// SPDX-License-Identifier: GPL-2.0-only
/*
 * mbind(MPOL_MF_STRICT) over a 2 MiB leaf without struct pages oopses kernels that do not look
 * for special entries in queue_folios_pmd(), and any user may call it. Where that is so, 2 MiB
 * leaves are mapped only while a probe makes such a walk skip our mappings, as it skips those
 * that cannot be migrated; the call then gives EFAULT.
 */
#include <linux/kprobes.h>
#include <linux/pagewalk.h>

#include "compat.h"
#include "internal.h"

#if KVPOOL_HUGE_LEAVES && KVPOOL_MBIND_OOPSES

static bool stands;

/* Instead of queue_pages_test_walk(): 1 skips the VMA. */
static noinline int skip_walk(unsigned long start, unsigned long end, struct mm_walk *walk)
{
	return 1;
}

static int before_walk(struct kprobe *probe, struct pt_regs *regs)
{
	struct mm_walk *walk = (void *)regs_get_kernel_argument(regs, 2);

	if (!walk->vma || !kvpool_owns_vma(walk->vma))
		return 0;
	instruction_pointer_set(regs, (unsigned long)skip_walk);
	return 1;
}

/* A post handler keeps the probe from being optimised, which would forbid changing the address. */
static void after_walk(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.symbol_name = "queue_pages_test_walk",
	.pre_handler = before_walk,
	.post_handler = after_walk,
};

int kvpool_guard_init(void)
{
	int err = register_kprobe(&probe);

	stands = !err;
	if (err)
		pr_warn("no guard against mbind (%d): partitions are mapped with 4 KiB leaves\n",
			err);
	return 0;
}

void kvpool_guard_exit(void)
{
	if (stands)
		unregister_kprobe(&probe);
	stands = false;
}

bool kvpool_guard_stands(void)
{
	return stands;
}

#else

int kvpool_guard_init(void)
{
	return 0;
}

void kvpool_guard_exit(void)
{
}

bool kvpool_guard_stands(void)
{
	return true;
}

#endif
