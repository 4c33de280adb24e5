/* SPDX-License-Identifier: GPL-2.0-only */
/* Differences between kernels, and the only place that asks for a version. */
#ifndef KVPOOL_COMPAT_H
#define KVPOOL_COMPAT_H

#include <linux/device.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/version.h>

#include <asm/mce.h>
#include <asm/processor.h>

/* Page tables know special huge entries: 2 MiB leaves without struct pages are safe. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#define KVPOOL_HUGE_LEAVES 1
#else
#define KVPOOL_HUGE_LEAVES 0
#endif

/* mbind(MPOL_MF_STRICT) over such an entry oopses: queue_folios_pmd() takes it for a folio. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
#define KVPOOL_MBIND_OOPSES 1
#else
#define KVPOOL_MBIND_OOPSES 0
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0) && KVPOOL_HUGE_LEAVES
#include <linux/pfn_t.h>
#endif

static inline void kvpool_vm_flags(struct vm_area_struct *vma, unsigned long set,
				   unsigned long clear)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

static inline struct class *kvpool_class_create(const char *name)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	return class_create(name);
#else
	return class_create(THIS_MODULE, name);
#endif
}

static inline unsigned long kvpool_get_unmapped(struct file *file, unsigned long address,
						unsigned long bytes, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	return mm_get_unmapped_area(file, address, bytes, 0, flags);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	return mm_get_unmapped_area(current->mm, file, address, bytes, 0, flags);
#else
	return current->mm->get_unmapped_area(file, address, bytes, 0, flags);
#endif
}

#if KVPOOL_HUGE_LEAVES
static inline vm_fault_t kvpool_insert_pmd(struct vm_fault *vmf, unsigned long pfn)
{
	/* Not for write: the entry is writable by vm_page_prot, as in vfio-pci. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
	return vmf_insert_pfn_pmd(vmf, pfn, false);
#else
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), false);
#endif
}
#endif

#ifndef MCI_ADDR_PHYSADDR
#define MCI_ADDR_PHYSADDR GENMASK_ULL(boot_cpu_data.x86_phys_bits - 1, 0)
#endif

/* What a user's page table says of an address. */
struct kvpool_leaf {
	unsigned long pfn;
	unsigned long protection;
	bool huge;
};

/* 0, or -errno: nothing is there. The caller holds the mmap lock, or i_mmap for reading. */
static inline int kvpool_follow(struct vm_area_struct *vma, unsigned long address,
				struct kvpool_leaf *leaf)
{
	int err;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	struct follow_pfnmap_args args = { .vma = vma, .address = address };

	err = follow_pfnmap_start(&args);
	if (err)
		return err;
	leaf->pfn = args.pfn;
	leaf->huge = !args.ptep;
	leaf->protection = pgprot_val(args.pgprot);
	follow_pfnmap_end(&args);
#else
	spinlock_t *lock;
	pte_t *pte;

	err = follow_pte(vma->vm_mm, address, &pte, &lock);
	if (err)
		return err;
	__acquire(lock);
	leaf->pfn = pte_pfn(*pte);
	leaf->huge = false;
	leaf->protection = pte_val(*pte);
	pte_unmap_unlock(pte, lock);
#endif
	return 0;
}

#endif
