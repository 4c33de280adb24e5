// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nodes, descriptors, loading and unloading. /dev/kvpool is the control node; each partition
 * has its own. Minors are not used again while the module is loaded, and begin elsewhere at
 * each load, since a container keeps the number.
 */
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/random.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/suspend.h>

#include "compat.h"
#include "internal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

DEFINE_MUTEX(kvpool_control_lock);
DEFINE_MUTEX(kvpool_lock);
struct kvpool *kvpool_pool;
LIST_HEAD(kvpool_members);
LIST_HEAD(kvpool_parts);

unsigned int kvpool_delta_us = 1000;
module_param_named(delta_us, kvpool_delta_us, uint, 0444);
MODULE_PARM_DESC(delta_us, "Within how many microseconds a fenced store is on the medium");
unsigned int kvpool_heartbeat_ms = 1000;
module_param_named(heartbeat_ms, kvpool_heartbeat_ms, uint, 0444);
MODULE_PARM_DESC(heartbeat_ms, "Milliseconds between heartbeats and looks at the table");

static struct class *kvpool_class;
static struct cdev kvpool_cdev;
static dev_t kvpool_region;
static u32 next_minor = 1;
static struct vfsmount *mount;
static int mount_count;

#define PSEUDO_MAGIC 0x6b767066

static int init_fs(struct fs_context *context)
{
	return init_pseudo(context, PSEUDO_MAGIC) ? 0 : -ENOMEM;
}

static struct file_system_type kvpool_fs = {
	.name = "kvpool",
	.owner = THIS_MODULE,
	.init_fs_context = init_fs,
	.kill_sb = kill_anon_super,
};

int kvpool_node_add(struct kvpool_part *part)
{
	struct device *device;

	if (next_minor == KVPOOL_MINOR_COUNT)
		return -ENOSPC;
	part->minor = next_minor++;
	device = device_create_with_groups(kvpool_class, NULL, kvpool_region + part->minor, part,
					   kvpool_part_groups, "kvpool-%s", part->name);
	return PTR_ERR_OR_ZERO(device);
}

void kvpool_node_remove(struct kvpool_part *part)
{
	if (part->minor)
		device_destroy(kvpool_class, kvpool_region + part->minor);
}

static struct kvpool_part *find_minor(u32 minor)
{
	struct kvpool_part *part;

	list_for_each_entry(part, &kvpool_parts, list)
		if (part->minor == minor)
			return part;
	return NULL;
}

static int open_part(struct kvpool_open *open, u32 minor)
{
	struct kvpool_part *part;
	int err = 0;

	mutex_lock(&kvpool_lock);
	part = find_minor(minor);
	if (!part || !kvpool_pool || kvpool_pool->closing || READ_ONCE(kvpool_pool->gone)) {
		err = -ENODEV;
	} else if (part->gone) {
		err = -ENODEV;
	} else if (part->draining) {
		err = -ESTALE;
	} else {
		kref_get(&part->ref);
		kvpool_pool->opens++;
		open->part = part;
	}
	mutex_unlock(&kvpool_lock);
	return err;
}

static void close_part(struct kvpool_part *part)
{
	mutex_lock(&kvpool_lock);
	part->pool->opens--;
	mutex_unlock(&kvpool_lock);
	kvpool_part_put(part);
}

static int kvpool_open(struct inode *inode, struct file *file)
{
	struct kvpool_open *open = kzalloc(sizeof(*open), GFP_KERNEL_ACCOUNT);
	u32 minor = inode->i_rdev - kvpool_region;
	int err;

	if (!open)
		return -ENOMEM;
	INIT_LIST_HEAD(&open->list);
	/* Pinned by each open, not for good: a mount holds the module. */
	err = simple_pin_fs(&kvpool_fs, &mount, &mount_count);
	if (err)
		goto free;
	open->inode = alloc_anon_inode(mount->mnt_sb);
	err = PTR_ERR_OR_ZERO(open->inode);
	if (err)
		goto unpin;
	err = minor ? open_part(open, minor) : 0;
	if (err)
		goto put;
	err = kvpool_events_open(open);
	if (err)
		goto close;
	atomic_inc(&kvpool_live[KVPOOL_LIVE_DESCRIPTORS]);
	file->f_mapping = open->inode->i_mapping;
	file->private_data = open;
	return 0;
close:
	if (open->part)
		close_part(open->part);
put:
	iput(open->inode);
unpin:
	simple_release_fs(&mount, &mount_count);
free:
	kfree(open);
	return err;
}

static int kvpool_close(struct inode *inode, struct file *file)
{
	struct kvpool_open *open = file->private_data;

	kvpool_events_close(open);
	if (open->part) {
		kvpool_member_release(open);
		close_part(open->part);
	}
	iput(open->inode);
	simple_release_fs(&mount, &mount_count);
	kfree(open);
	atomic_dec(&kvpool_live[KVPOOL_LIVE_DESCRIPTORS]);
	return 0;
}

const struct file_operations kvpool_fops = {
	.owner = THIS_MODULE,
	.open = kvpool_open,
	.release = kvpool_close,
	.read = kvpool_read,
	.poll = kvpool_poll,
	.mmap = kvpool_mmap,
	.get_unmapped_area = kvpool_unmapped_area,
	.unlocked_ioctl = kvpool_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

/* A suspended host renews nothing, and its clock goes on. */
static int before_suspend(struct notifier_block *block, unsigned long action, void *data)
{
	bool joined;

	if (action != PM_SUSPEND_PREPARE && action != PM_HIBERNATION_PREPARE)
		return NOTIFY_DONE;
	mutex_lock(&kvpool_lock);
	joined = !list_empty(&kvpool_members);
	mutex_unlock(&kvpool_lock);
	return notifier_from_errno(joined ? -EBUSY : 0);
}

static struct notifier_block suspend_block = { .notifier_call = before_suspend };

/*
 * The host goes down. LEFT spares the others a fence, where nothing can reach the pool any more;
 * else the next incarnation is the proof. Never longer than two seconds.
 */
static int before_reboot(struct notifier_block *block, unsigned long action, void *data)
{
	kvpool_leave_soon(2 * HZ);
	return NOTIFY_DONE;
}

static struct notifier_block reboot_block = { .notifier_call = before_reboot };

static int add_control_node(void)
{
	/* Elsewhere at each load. */
	u32 base = get_random_u32() % ((1u << MINORBITS) - KVPOOL_MINOR_COUNT);
	struct device *device;
	int err = alloc_chrdev_region(&kvpool_region, base, KVPOOL_MINOR_COUNT, "kvpool");

	if (err)
		return err;
	cdev_init(&kvpool_cdev, &kvpool_fops);
	kvpool_cdev.owner = THIS_MODULE;
	err = cdev_add(&kvpool_cdev, kvpool_region, KVPOOL_MINOR_COUNT);
	if (err)
		goto unregister;
	kvpool_class = kvpool_class_create("kvpool");
	err = PTR_ERR_OR_ZERO(kvpool_class);
	if (err)
		goto del;
	device = device_create_with_groups(kvpool_class, NULL, kvpool_region, NULL,
					   kvpool_pool_groups, "kvpool");
	err = PTR_ERR_OR_ZERO(device);
	if (!err)
		return 0;
	class_destroy(kvpool_class);
del:
	cdev_del(&kvpool_cdev);
unregister:
	unregister_chrdev_region(kvpool_region, KVPOOL_MINOR_COUNT);
	return err;
}

static void remove_control_node(void)
{
	device_destroy(kvpool_class, kvpool_region);
	class_destroy(kvpool_class);
	cdev_del(&kvpool_cdev);
	unregister_chrdev_region(kvpool_region, KVPOOL_MINOR_COUNT);
}

static int __init kvpool_init(void)
{
	int err = kvpool_members_init();

	if (err)
		return err;
	kvpool_guard_init();
	kvpool_poison_init();
	err = register_pm_notifier(&suspend_block);
	if (err)
		goto members;
	err = register_reboot_notifier(&reboot_block);
	if (err)
		goto suspend;
	err = kvpool_remove_init();
	if (err)
		goto reboot;
	err = add_control_node();
	if (err)
		goto bus;
	kvpool_debugfs_init();
	return 0;
bus:
	kvpool_remove_exit();
reboot:
	unregister_reboot_notifier(&reboot_block);
suspend:
	unregister_pm_notifier(&suspend_block);
members:
	kvpool_poison_exit();
	kvpool_guard_exit();
	kvpool_members_exit();
	return err;
}

/* Nothing is open and nothing reaches: either would hold the module. */
static void __exit kvpool_exit(void)
{
	mutex_lock(&kvpool_control_lock);
	if (kvpool_pool)
		WARN_ON(kvpool_release_pool());
	mutex_unlock(&kvpool_control_lock);
	kvpool_debugfs_exit();
	remove_control_node();
	kvpool_remove_exit();
	unregister_reboot_notifier(&reboot_block);
	unregister_pm_notifier(&suspend_block);
	kvpool_poison_exit();
	kvpool_members_exit();
	kvpool_guard_exit();
}

module_init(kvpool_init);
module_exit(kvpool_exit);
MODULE_AUTHOR("kvpool authors");
MODULE_DESCRIPTION("Partitions of memory that several hosts share without coherence");
MODULE_LICENSE("GPL");
