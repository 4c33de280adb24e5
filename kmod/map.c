// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mappings of partitions: shared ones of joined processes, inserted by fault, in leaves as
 * large as the kernel can have safely, each verified in the page table before it counts.
 */
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

#define POPULATE_BATCH 512

static bool leaf_2m = true;
module_param(leaf_2m, bool, 0444);
MODULE_PARM_DESC(leaf_2m, "Map with 2 MiB leaves where the kernel can");

static const struct vm_operations_struct part_vm_ops;
static const struct vm_operations_struct state_vm_ops;

bool kvpool_owns_vma(const struct vm_area_struct *vma)
{
	return vma->vm_ops == &part_vm_ops;
}

bool kvpool_leaves_2m(void)
{
	return KVPOOL_HUGE_LEAVES && leaf_2m && kvpool_guard_stands();
}

static u64 map_offset(const struct vm_area_struct *vma, unsigned long address)
{
	return ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);
}

static struct kvpool_slice *slice_at(struct kvpool_part *part, u64 at, u64 *ret_offset)
{
	struct kvpool_slice *slice = kvpool_part_slice(part, kvpool_map_id(at));

	*ret_offset = at & ((1ull << KVPOOL_MAP_ID_SHIFT) - 1);
	return slice && *ret_offset < slice->bytes ? slice : NULL;
}

/*
 * Under i_mmap for reading: most huge faults hold the VMA's lock alone. Not present is no
 * mismatch.
 */
static bool leaf_is_right(struct vm_area_struct *vma, unsigned long address, unsigned long pfn,
			  u32 type)
{
	struct address_space *mapping = vma->vm_file->f_mapping;
	struct kvpool_leaf leaf = {};
	bool right = true;

	i_mmap_lock_read(mapping);
	if (!kvpool_follow(vma, address, &leaf))
		right = leaf.pfn == pfn && kvpool_leaf_type(leaf.protection, leaf.huge) == type;
	i_mmap_unlock_read(mapping);
	return right;
}

/* A slice that drains is the pool's no more; what was attached before drains first. */
static bool is_served(const struct kvpool_slice *slice)
{
	return smp_load_acquire(&slice->attached) && !smp_load_acquire(&slice->draining) &&
	       !smp_load_acquire(&slice->gone);
}

/* What is served now: the pool, or after a revoke the member's own zero page. -1: neither. */
static long pfn_to_serve(struct kvpool_member *member, struct kvpool_slice *slice, u64 offset,
			 unsigned int order, bool *ret_pool)
{
	*ret_pool = false;
	if (!member->revoked &&
	    (member->late || kvpool_lease_over(ktime_get_boottime_ns(), member->deadline_ns))) {
		/* RENEW waits for us, and is too late then; the zap follows. */
		WRITE_ONCE(member->late, true);
		smp_store_release(&kvpool_member_state(member)->revoked, 1);
	}
	if (!member->revoked && !member->late && is_served(slice)) {
		*ret_pool = true;
		return (slice->start + offset) >> PAGE_SHIFT;
	}
	if (!member->zero)
		return -1;
	if (order)
		return member->zero_order == order ? (long)page_to_pfn(member->zero) : -1;
	return page_to_pfn(member->zero) +
	       ((offset >> PAGE_SHIFT) & ((1ul << member->zero_order) - 1));
}

static vm_fault_t insert(struct vm_fault *vmf, unsigned long address, unsigned long pfn,
			 unsigned int order)
{
#if KVPOOL_HUGE_LEAVES
	if (order)
		return kvpool_insert_pmd(vmf, pfn);
#endif
	return vmf_insert_pfn(vmf->vma, address, pfn);
}

/* `member->sem` is held for reading from the check to the verification: a revoke waits for us. */
static vm_fault_t serve(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct kvpool_open *open = vma->vm_file->private_data;
	struct kvpool_member *member = READ_ONCE(open->member);
	unsigned long address = vmf->address & ~((PAGE_SIZE << order) - 1);
	struct kvpool_slice *slice;
	vm_fault_t result = VM_FAULT_SIGBUS;
	bool from_pool, late;
	u64 offset;
	long pfn;

	if (order && (address < vma->vm_start || address + (PAGE_SIZE << order) > vma->vm_end))
		return VM_FAULT_FALLBACK;
	slice = slice_at(open->part, map_offset(vma, address), &offset);
	if (!member || !slice || vma->vm_mm != member->mm)
		return VM_FAULT_SIGBUS;
	down_read(&member->sem);
	if (unlikely(!xa_empty(&open->part->poison)) && !member->revoked && is_served(slice)) {
		if (order && kvpool_leaf_is_poisoned(open->part, slice, offset, KVPOOL_LEAF_BYTES))
			result = VM_FAULT_FALLBACK;
		else if (!order && kvpool_page_is_poisoned(open->part, slice, offset))
			result = VM_FAULT_HWPOISON;
		if (result != VM_FAULT_SIGBUS) {
			up_read(&member->sem);
			return result;
		}
	}
	pfn = pfn_to_serve(member, slice, offset, order, &from_pool);
	late = member->late && !member->revoked;
	if (pfn < 0) {
		if (order && member->zero)
			result = VM_FAULT_FALLBACK;
	} else if (order && (pfn & ((1l << order) - 1))) {
		result = VM_FAULT_FALLBACK;
	} else {
		result = insert(vmf, address, pfn, order);
		trace_kvpool_map(open->part->id, slice->id, offset, order, from_pool);
		if (result == VM_FAULT_NOPAGE && from_pool &&
		    !leaf_is_right(vma, address, pfn, open->part->type)) {
			pr_err_ratelimited("partition %s: a mapping got another memory type\n",
					   open->part->name);
			unmap_mapping_range(vma->vm_file->f_mapping, map_offset(vma, address),
					    PAGE_SIZE << order, 1);
			result = VM_FAULT_SIGBUS;
		}
	}
	up_read(&member->sem);
	if (late)
		kvpool_members_scan_soon();
	return result;
}

static vm_fault_t part_fault(struct vm_fault *vmf)
{
	return serve(vmf, 0);
}

#if KVPOOL_HUGE_LEAVES
static vm_fault_t part_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	if (order != PMD_ORDER || !kvpool_leaves_2m())
		return VM_FAULT_FALLBACK;
	return serve(vmf, order);
}
#endif

/* Only where leaves meet, so that no large leaf is ever split. */
static int part_may_split(struct vm_area_struct *vma, unsigned long address)
{
	return address & (KVPOOL_LEAF_BYTES - 1) ? -EINVAL : 0;
}

static int part_mremap(struct vm_area_struct *vma)
{
	return ((vma->vm_start >> PAGE_SHIFT) ^ vma->vm_pgoff) &
	       ((KVPOOL_LEAF_BYTES >> PAGE_SHIFT) - 1) ? -EINVAL : 0;
}

static const struct vm_operations_struct part_vm_ops = {
	.fault = part_fault,
#if KVPOOL_HUGE_LEAVES
	.huge_fault = part_huge_fault,
#endif
	.may_split = part_may_split,
	.mremap = part_mremap,
};

/* A fork copies the STATE page's VMA: the child is a reacher, whatever it does. */
static void state_open(struct vm_area_struct *vma)
{
	struct kvpool_open *open = vma->vm_file->private_data;

	if (vma->vm_mm != open->member->mm)
		kvpool_member_add_mm(open->member, vma->vm_mm);
}

static vm_fault_t state_fault(struct vm_fault *vmf)
{
	struct kvpool_open *open = vmf->vma->vm_file->private_data;

	if (vmf->pgoff != vmf->vma->vm_pgoff)
		return VM_FAULT_SIGBUS;
	get_page(open->member->state);
	vmf->page = open->member->state;
	return 0;
}

static const struct vm_operations_struct state_vm_ops = {
	.open = state_open,
	.fault = state_fault,
};

static int map_state(struct vm_area_struct *vma)
{
	if (vma->vm_end - vma->vm_start != PAGE_SIZE || (vma->vm_flags & (VM_WRITE | VM_EXEC)))
		return -EINVAL;
	kvpool_vm_flags(vma, VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE | VM_MAYEXEC);
	vma->vm_ops = &state_vm_ops;
	return 0;
}

int kvpool_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct kvpool_open *open = file->private_data;
	struct kvpool_member *member = open->part ? READ_ONCE(open->member) : NULL;
	u64 at = (u64)vma->vm_pgoff << PAGE_SHIFT, bytes = vma->vm_end - vma->vm_start, offset;
	unsigned long clear = VM_MAYEXEC;
	struct kvpool_slice *slice;
	int err;

	if (!open->part)
		return -ENODEV;
	if (!member)
		return -ENXIO;
	if (!kvpool_member_is_current(member))
		return -EPERM;
	/* Not VM_SHARED, which the kernel clears for descriptors that are not writable. */
	if (!(vma->vm_flags & VM_MAYSHARE) || (vma->vm_flags & VM_EXEC))
		return -EINVAL;
	if (at == KVPOOL_MAP_STATE)
		return map_state(vma);
	slice = kvpool_part_slice(open->part, kvpool_map_id(at));
	if (!slice || kvpool_map_check(at, bytes, slice->bytes, &offset))
		return -EINVAL;
	if (READ_ONCE(slice->gone))
		return -ENODEV;
	if (READ_ONCE(slice->draining))
		return -ESTALE;
	if (!READ_ONCE(slice->attached))
		return -EAGAIN;
	if (((vma->vm_start >> PAGE_SHIFT) ^ vma->vm_pgoff) &
	    ((KVPOOL_LEAF_BYTES >> PAGE_SHIFT) - 1))
		return -EINVAL;
	/* The drivers' lines: whole leaves, and nothing else of the partition lies in them. */
	if (open->part->type == KVPOOL_TYPE_WB && slice == kvpool_part_first(open->part) &&
	    offset < KVPOOL_REAPER_BYTES) {
		if ((vma->vm_flags & VM_WRITE) || bytes != KVPOOL_REAPER_BYTES)
			return -EACCES;
		clear |= VM_MAYWRITE;
	}
	if (!(file->f_mode & FMODE_WRITE))
		clear |= VM_MAYWRITE;
	/* Before the first fault, so that who holds a leaf is known when the slice drains. */
	err = xa_err(xa_store(&member->mapped, slice->id, xa_mk_value(1), GFP_KERNEL_ACCOUNT));
	if (err)
		return err;
	kvpool_vm_flags(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY, clear);
	if (open->part->type == KVPOOL_TYPE_WC)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	else if (open->part->type == KVPOOL_TYPE_UC_MINUS)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_ops = &part_vm_ops;
	return 0;
}

/* Addresses congruent to the offset, so that large leaves fit. */
unsigned long kvpool_unmapped_area(struct file *file, unsigned long address, unsigned long bytes,
				   unsigned long pgoff, unsigned long flags)
{
	unsigned long mask = KVPOOL_LEAF_BYTES - 1, found;

	if ((flags & MAP_FIXED) || pgoff == KVPOOL_MAP_STATE >> PAGE_SHIFT)
		return kvpool_get_unmapped(file, address, bytes, flags);
	if (address && !((address ^ pgoff << PAGE_SHIFT) & mask)) {
		found = kvpool_get_unmapped(file, address, bytes, flags);
		if (found == address)
			return found;
	}
	if (bytes + mask + 1 < bytes)
		return -ENOMEM;
	found = kvpool_get_unmapped(file, 0, bytes + mask + 1, flags);
	if (IS_ERR_VALUE(found))
		return found;
	return found + (((pgoff << PAGE_SHIFT) - found) & mask);
}

static int populate_leaf(struct file *file, unsigned long address, struct kvpool_populate *args,
			 unsigned long *ret_next)
{
	struct vm_area_struct *vma = find_vma(current->mm, address);
	struct kvpool_open *open = file->private_data;
	struct kvpool_leaf leaf = {};
	struct kvpool_slice *slice;
	u64 offset;
	int err;

	if (!vma || address < vma->vm_start || vma->vm_file != file || !kvpool_owns_vma(vma))
		return -EFAULT;
	slice = slice_at(open->part, map_offset(vma, address), &offset);
	if (slice && READ_ONCE(slice->gone))
		return -ENODEV;
	if (slice && READ_ONCE(slice->draining))
		return -ESTALE;
	if (slice && kvpool_page_is_poisoned(open->part, slice, offset)) {
		args->ret_poisoned++;
		*ret_next = address + PAGE_SIZE;
		return 0;
	}
	/* Touches no byte: only the entry is made. */
	err = fixup_user_fault(current->mm, address,
			       vma->vm_flags & VM_WRITE ? FAULT_FLAG_WRITE : 0, NULL);
	if (err)
		return err;
	if (kvpool_follow(vma, address, &leaf))
		return -EAGAIN; /* revoked in between */
	if (leaf.huge) {
		args->ret_leaves_2m++;
		*ret_next = (address | (KVPOOL_LEAF_BYTES - 1)) + 1;
	} else {
		args->ret_leaves_4k++;
		*ret_next = address + PAGE_SIZE;
	}
	return 0;
}

int kvpool_populate(struct file *file, struct kvpool_populate *args)
{
	unsigned long start = untagged_addr(args->address), at = start, end = start + args->bytes;
	int err = 0;
	u32 batch;

	args->ret_bytes = 0;
	args->ret_leaves_4k = 0;
	args->ret_leaves_2m = 0;
	args->ret_poisoned = 0;
	while (at < end && !err) {
		if (mmap_read_lock_killable(current->mm))
			return -EINTR;
		for (batch = 0; batch < POPULATE_BATCH && at < end && !err; batch++) {
			err = signal_pending(current) ? -EINTR :
			      populate_leaf(file, at, args, &at);
		}
		mmap_read_unlock(current->mm);
		cond_resched();
	}
	args->ret_bytes = min(at, end) - start;
	return err;
}

/* What an address got, for whoever wants to check before he believes. */
int kvpool_mapping_ask(struct file *file, struct kvpool_mapping *args)
{
	struct kvpool_open *open = file->private_data;
	struct kvpool_leaf leaf = {};
	struct vm_area_struct *vma;
	struct kvpool_slice *slice;
	u64 offset;
	int err = -EFAULT;

	args->ret_leaf_bytes = 0;
	args->ret_type = KVPOOL_TYPE_OTHER;
	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	vma = find_vma(current->mm, args->address);
	if (vma && args->address >= vma->vm_start && vma->vm_file == file && kvpool_owns_vma(vma)) {
		err = 0;
		slice = slice_at(open->part, map_offset(vma, args->address), &offset);
		args->ret_device = slice ? slice->device : 0;
		args->ret_device_offset = slice ? slice->device_offset + offset : 0;
		if (slice && !kvpool_follow(vma, args->address & PAGE_MASK, &leaf)) {
			args->ret_leaf_bytes = leaf.huge ? KVPOOL_LEAF_BYTES : PAGE_SIZE;
			/*
			 * A zero page has the type that its protection says, and is not the
			 * pool.
			 */
			if (leaf.pfn >= slice->start >> PAGE_SHIFT &&
			    leaf.pfn < (slice->start + slice->bytes) >> PAGE_SHIFT)
				args->ret_type = kvpool_leaf_type(leaf.protection, leaf.huge);
		}
	}
	mmap_read_unlock(current->mm);
	return err;
}
