// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/kernel/debug/kvpool: what is alive, so that a leak shows; and, only with the parameter
 * `inject`, faults that no test can make happen on real memory.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>

#include "internal.h"

static bool inject;
module_param(inject, bool, 0444);
MODULE_PARM_DESC(inject, "Files below debugfs that inject faults (for tests; taints)");

static struct dentry *folder;
static bool fail_drain;
atomic_t kvpool_live[KVPOOL_LIVE_COUNT];

/* A host that cannot get out of what it should leave. */
bool kvpool_drain_fails(void)
{
	return READ_ONCE(fail_drain);
}

static int live_show(struct seq_file *file, void *unused)
{
	static const char *const names[KVPOOL_LIVE_COUNT] = { "partitions", "slices", "members",
							      "reachers", "descriptors" };
	u32 i;

	for (i = 0; i < KVPOOL_LIVE_COUNT; i++)
		seq_printf(file, "%s %d\n", names[i], atomic_read(&kvpool_live[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(live);

/* A device by its number: gone, as if it had been pulled. */
static ssize_t gone_write(struct file *file, const char __user *from, size_t bytes, loff_t *offset)
{
	u32 device;
	int err = kstrtou32_from_user(from, bytes, 0, &device);

	if (err)
		return err;
	mutex_lock(&kvpool_lock);
	if (!kvpool_pool)
		err = -ENODEV;
	else if (device >= kvpool_pool->geo.device_count)
		err = -EINVAL;
	else
		kvpool_device_gone(kvpool_pool, device, "injected");
	mutex_unlock(&kvpool_lock);
	return err ?: bytes;
}

static const struct file_operations gone_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = gone_write,
};

/* A physical address, as a machine check brings it. */
static ssize_t poison_write(struct file *file, const char __user *from, size_t bytes,
			    loff_t *offset)
{
	u64 address;
	int err = kstrtou64_from_user(from, bytes, 0, &address);

	if (err)
		return err;
	kvpool_poison_later(address);
	return bytes;
}

static const struct file_operations poison_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = poison_write,
};

void kvpool_debugfs_init(void)
{
	folder = debugfs_create_dir("kvpool", NULL);
	debugfs_create_file("live", 0400, folder, NULL, &live_fops);
	if (!inject)
		return;
	pr_warn("faults can be injected\n");
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	debugfs_create_file("device_gone", 0200, folder, NULL, &gone_fops);
	debugfs_create_file("poison", 0200, folder, NULL, &poison_fops);
	debugfs_create_bool("fail_drain", 0600, folder, &fail_drain);
}

void kvpool_debugfs_exit(void)
{
	debugfs_remove_recursive(folder);
}
