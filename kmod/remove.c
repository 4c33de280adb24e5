// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device of the pool is gone: pulled, unbound, or lost in another way that somebody told of.
 * It is never touched again, and what was on it is taken from everybody; the other devices go
 * on. The driver owns the physical range only, not the device that answers there, so an
 * administrator names the PCI functions to watch.
 */
#include <linux/device.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "internal.h"

#define WATCH_COUNT_MAX 256

struct watch {
	struct list_head list; /* of the pool's; kvpool_lock */
	u32 device;
	u32 domain;
	u32 bus;
	u32 devfn;
};

/* A partition of which this host can serve nothing any more, or not the drivers' lines. */
void kvpool_part_judge(struct kvpool_part *part)
{
	struct kvpool_member *member;
	struct kvpool_slice *slice;
	unsigned long id;
	bool any = false, left = false;

	lockdep_assert_held(&kvpool_lock);
	xa_for_each(&part->slices, id, slice) {
		any = any || (slice->listed && slice->gone);
		left = left || (slice->listed && !slice->gone);
	}
	slice = kvpool_part_first(part);
	if (part->type == KVPOOL_TYPE_WB && slice && slice->gone)
		left = false;
	if (part->gone || !any || left)
		return;
	WRITE_ONCE(part->gone, true);
	pr_alert("partition %s: gone with its devices\n", part->name);
	/* Whose lines cannot be written any more can never say anything again. */
	list_for_each_entry(member, &kvpool_members, list)
		if (member->parts[0] == part)
			kvpool_member_revoke(member, true);
	kvpool_events_end(part);
}

/* Once for a device. What loads from it return from now on means nothing. */
void kvpool_device_gone(struct kvpool *pool, u32 device, const char *why)
{
	struct kvpool_place at = { device, 0 };
	struct kvpool_slice *slice;
	struct kvpool_part *part;
	unsigned long id;

	lockdep_assert_held(&kvpool_lock);
	if (pool->devices[device].gone)
		return;
	WRITE_ONCE(pool->devices[device].gone, true);
	pr_alert("pool %pUb: device %u is gone: %s\n", pool->seal.uuid, device, why);
	if (kvpool_control_lost(&pool->geo, kvpool_gone_devices(pool)) && pool->admin_epoch) {
		pr_alert("host %u cannot see all lines and administers no more: let another host\n",
			 pool->host);
		pool->admin_epoch = 0;
	}
	kvpool_event_place(KVPOOL_EVENT_DEVICE_GONE, pool, 0, 0, at, pool->geo.device_bytes, 0);
	list_for_each_entry(part, &kvpool_parts, list) {
		xa_for_each(&part->slices, id, slice)
			if (slice->device == device && !slice->gone)
				kvpool_members_lose(part, slice, &slice->gone);
		kvpool_part_judge(part);
	}
	if (kvpool_control_gone(&pool->geo, kvpool_gone_devices(pool)))
		kvpool_host_gone(pool, "no device with its lines is left");
	kvpool_kick(pool);
}

u64 kvpool_gone_devices(const struct kvpool *pool)
{
	u64 gone = 0;
	u32 device;

	for (device = 0; device < pool->geo.device_count; device++)
		if (READ_ONCE(pool->devices[device].gone))
			gone |= 1ull << device;
	return gone;
}

static bool is_watched(const struct watch *watch, const struct pci_dev *dev)
{
	return watch->domain == pci_domain_nr(dev->bus) && watch->bus == dev->bus->number &&
	       watch->devfn == dev->devfn;
}

/* In the remover's context, which waits until the mappings are gone. */
static int on_bus(struct notifier_block *block, unsigned long action, void *data)
{
	struct pci_dev *dev = to_pci_dev(data);
	struct watch *watch;

	if (action != BUS_NOTIFY_DEL_DEVICE && action != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	mutex_lock(&kvpool_lock);
	if (kvpool_pool)
		list_for_each_entry(watch, &kvpool_pool->watches, list)
			if (is_watched(watch, dev))
				kvpool_device_gone(kvpool_pool, watch->device,
						   action == BUS_NOTIFY_DEL_DEVICE ?
						   "its PCI function was removed" :
						   "the driver of its PCI function was unbound");
	mutex_unlock(&kvpool_lock);
	return NOTIFY_OK;
}

static struct notifier_block bus_block = { .notifier_call = on_bus };

static int add_watch(struct kvpool *pool, const struct watch *wanted)
{
	struct watch *watch;
	u32 count = 0;

	lockdep_assert_held(&kvpool_lock);
	list_for_each_entry(watch, &pool->watches, list) {
		count++;
		if (watch->device == wanted->device && watch->domain == wanted->domain &&
		    watch->bus == wanted->bus && watch->devfn == wanted->devfn)
			return -EEXIST;
	}
	if (count == WATCH_COUNT_MAX)
		return -ENOSPC;
	watch = kmemdup(wanted, sizeof(*wanted), GFP_KERNEL);
	if (!watch)
		return -ENOMEM;
	list_add_tail(&watch->list, &pool->watches);
	return 0;
}

static void drop_watch(struct kvpool *pool, const struct watch *wanted)
{
	struct watch *watch, *other;

	list_for_each_entry_safe(watch, other, &pool->watches, list)
		if (watch->device == wanted->device && watch->domain == wanted->domain &&
		    watch->bus == wanted->bus && watch->devfn == wanted->devfn) {
			list_del(&watch->list);
			kfree(watch);
		}
}

/* Until the pool is released. Watched first and looked for after: it may go in between. */
int kvpool_device_watch(const struct kvpool_device_watch *args)
{
	struct watch wanted = { .device = args->device, .domain = args->domain, .bus = args->bus,
				.devfn = args->devfn };
	struct pci_dev *dev;
	int err = -ENODEV;

	mutex_lock(&kvpool_lock);
	if (kvpool_pool && args->device >= kvpool_pool->geo.device_count)
		err = -EINVAL;
	else if (kvpool_pool && !READ_ONCE(kvpool_pool->devices[args->device].gone))
		err = add_watch(kvpool_pool, &wanted);
	mutex_unlock(&kvpool_lock);
	if (err)
		return err == -EEXIST ? 0 : err;
	dev = pci_get_domain_bus_and_slot(args->domain, args->bus, args->devfn);
	pci_dev_put(dev);
	if (dev)
		return 0;
	mutex_lock(&kvpool_lock);
	if (kvpool_pool)
		drop_watch(kvpool_pool, &wanted);
	mutex_unlock(&kvpool_lock);
	return -ENOENT;
}

void kvpool_watches_free(struct kvpool *pool)
{
	struct watch *watch, *other;

	list_for_each_entry_safe(watch, other, &pool->watches, list)
		kfree(watch);
	INIT_LIST_HEAD(&pool->watches);
}

int kvpool_remove_init(void)
{
	return bus_register_notifier(&pci_bus_type, &bus_block);
}

void kvpool_remove_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &bus_block);
}
