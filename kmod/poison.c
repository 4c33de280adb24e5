// SPDX-License-Identifier: GPL-2.0-only
/*
 * Poison: pages of partitions that must not be touched any more. Reported by an administrator's
 * daemon that reads the trace events of CXL, and by machine checks. A hit takes the mappings of
 * the page away; later faults on it give SIGBUS with the address, its neighbours are mapped
 * with small leaves. A page is forgotten with its partition: the scrub of the next tenant fails
 * on it, if it is still bad.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

/* Pages of one batch that wait for the lock. Machine checks come from where nobody may sleep. */
#define WAITING_MAX 64

static struct {
	spinlock_t lock;
	u64 address[WAITING_MAX];
	u32 count;
	u32 lost;
} waiting = { .lock = __SPIN_LOCK_UNLOCKED(waiting.lock) };

/* Index of a page in the partition's set: slices are at most 2^28 pages long, ids below 2^23. */
static unsigned long poison_index(const struct kvpool_slice *slice, u64 offset)
{
	return (unsigned long)slice->id << (KVPOOL_MAP_ID_SHIFT - PAGE_SHIFT) |
	       offset >> PAGE_SHIFT;
}

bool kvpool_page_is_poisoned(struct kvpool_part *part, const struct kvpool_slice *slice, u64 offset)
{
	return xa_load(&part->poison, poison_index(slice, offset));
}

/* Whether any page of a leaf is. */
bool kvpool_leaf_is_poisoned(struct kvpool_part *part, const struct kvpool_slice *slice, u64 offset,
			     u64 bytes)
{
	unsigned long first = poison_index(slice, offset);

	return xa_find(&part->poison, &first, first + (bytes >> PAGE_SHIFT) - 1, XA_PRESENT);
}

/* The slice is another's soon, and zeroed before. */
void kvpool_poison_forget(struct kvpool_part *part, const struct kvpool_slice *slice)
{
	unsigned long index, last = poison_index(slice, slice->bytes - 1);
	void *entry;

	xa_for_each_range(&part->poison, index, entry, poison_index(slice, 0), last) {
		xa_erase(&part->poison, index);
		part->poisoned--;
	}
}

/* Whole leaves are taken away; what is not poisoned comes back by fault. */
static void zap_leaf(struct kvpool_part *part, const struct kvpool_slice *slice, u64 offset)
{
	loff_t at = ((u64)slice->id << KVPOOL_MAP_ID_SHIFT) + (offset & ~(KVPOOL_LEAF_BYTES - 1));
	struct kvpool_member *member;
	struct kvpool_open *open;

	list_for_each_entry(member, &kvpool_members, list)
		list_for_each_entry(open, &member->opens, list) {
			if (open->part != part)
				continue;
			/* A fault that looked before the page was entered is over then. */
			down_write(&member->sem);
			unmap_mapping_range(open->inode->i_mapping, at, KVPOOL_LEAF_BYTES, 1);
			up_write(&member->sem);
		}
}

static int poison_part(struct kvpool_part *part, u32 device, u64 device_offset)
{
	struct kvpool_slice *slice;
	unsigned long id;
	void *before;

	xa_for_each(&part->slices, id, slice) {
		u64 offset = device_offset - slice->device_offset;

		/* One that the table does not have any more may be another's by now. */
		if (!slice->listed || slice->device != device ||
		    device_offset < slice->device_offset || offset >= slice->bytes)
			continue;
		before = xa_store(&part->poison, poison_index(slice, offset), xa_mk_value(1),
				  GFP_KERNEL);
		if (xa_is_err(before))
			return xa_err(before);
		if (before)
			return 0;
		part->poisoned++;
		kvpool_event_place(KVPOOL_EVENT_POISON, part->pool, part->id, slice->id,
				   (struct kvpool_place){ device, device_offset & PAGE_MASK },
				   PAGE_SIZE, 0);
		pr_err("partition %s: poison on device %u at %#llx\n", part->name, device,
		       device_offset & PAGE_MASK);
		zap_leaf(part, slice, offset);
		return 0;
	}
	return -ENOENT;
}

/* One line of a device. -ENOENT: no partition is there. */
int kvpool_poison(u32 device, u64 device_offset, u64 bytes)
{
	struct kvpool_part *part;
	u64 at = device_offset & PAGE_MASK, end = device_offset + bytes;
	int err = 0, result = -ENOENT;

	mutex_lock(&kvpool_lock);
	for (; at < end && (!err || err == -ENOENT); at += PAGE_SIZE)
		list_for_each_entry(part, &kvpool_parts, list) {
			err = poison_part(part, device, at);
			if (err != -ENOENT)
				result = err;
			if (!err)
				break;
		}
	mutex_unlock(&kvpool_lock);
	trace_kvpool_poison(device, device_offset, bytes, result);
	return result;
}

static int poison_address(u64 address)
{
	u32 device, count = 0;
	u64 start = 0;

	mutex_lock(&kvpool_lock);
	if (kvpool_pool) {
		count = kvpool_pool->geo.device_count;
		for (device = 0; device < count; device++) {
			start = kvpool_pool->devices[device].start;
			if (address >= start && address - start < kvpool_pool->geo.device_bytes)
				break;
		}
	}
	mutex_unlock(&kvpool_lock);
	if (!count || device == count)
		return -ENOENT;
	return kvpool_poison(device, address - start, KVPOOL_LINE_BYTES);
}

static void take_waiting(struct work_struct *work)
{
	u64 address;
	u32 lost;

	for (;;) {
		spin_lock_irq(&waiting.lock);
		lost = waiting.lost;
		waiting.lost = 0;
		address = waiting.count ? waiting.address[--waiting.count] : 0;
		spin_unlock_irq(&waiting.lock);
		if (lost)
			pr_err("%u machine checks came too fast to be looked at\n", lost);
		if (!address)
			return;
		poison_address(address);
	}
}
static DECLARE_WORK(waiting_work, take_waiting);

void kvpool_poison_later(u64 address)
{
	unsigned long flags;

	spin_lock_irqsave(&waiting.lock, flags);
	if (waiting.count < WAITING_MAX)
		waiting.address[waiting.count++] = address;
	else
		waiting.lost++;
	spin_unlock_irqrestore(&waiting.lock, flags);
	schedule_work(&waiting_work);
}

static int on_machine_check(struct notifier_block *block, unsigned long value, void *data)
{
	struct mce *mce = data;

	if (!mce || !mce_usable_address(mce))
		return NOTIFY_DONE;
	kvpool_poison_later(mce->addr & MCI_ADDR_PHYSADDR);
	return NOTIFY_OK;
}

static struct notifier_block machine_checks = {
	.notifier_call = on_machine_check,
	.priority = MCE_PRIO_EXTLOG,
};

void kvpool_poison_init(void)
{
	mce_register_decode_chain(&machine_checks);
}

void kvpool_poison_exit(void)
{
	mce_unregister_decode_chain(&machine_checks);
	cancel_work_sync(&waiting_work);
}
