// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attributes of the control device and of partitions, one value a file. Tables are in LIST. What is
 * shown is described in Documentation/ABI/testing/sysfs-class-kvpool.
 */
#include <linux/device.h>
#include <linux/sysfs.h>

#include "internal.h"

static const char *type_name(u32 type)
{
	switch (type) {
	case KVPOOL_TYPE_WB:
		return "write-back";
	case KVPOOL_TYPE_WC:
		return "write-combining";
	case KVPOOL_TYPE_UC_MINUS:
		return "uncached-minus";
	default:
		return "none";
	}
}

/* One word of a closed list, for whoever watches. */
static const char *pool_health(const struct kvpool *pool)
{
	if (!pool)
		return "unclaimed";
	if (READ_ONCE(pool->gone))
		return "gone";
	if (kvpool_gone_devices(pool))
		return "device-gone";
	return kvpool_claims_in_force(pool->claims, pool->geo.host_count) < 0 ? "no-administrator" :
										 "good";
}

#define POOL_ATTRIBUTE(name, format, value)                                                        \
	static ssize_t name##_show(struct device *device, struct device_attribute *attribute,      \
				   char *page)                                                     \
	{                                                                                          \
		const struct kvpool *pool;                                                         \
		ssize_t bytes = -ENODEV;                                                           \
                                                                                                   \
		mutex_lock(&kvpool_lock);                                                          \
		pool = kvpool_pool;                                                                \
		if (pool)                                                                          \
			bytes = sysfs_emit(page, format "\n", value);                              \
		mutex_unlock(&kvpool_lock);                                                        \
		return bytes;                                                                      \
	}                                                                                          \
	static DEVICE_ATTR_RO(name)

POOL_ATTRIBUTE(uuid, "%pUb", pool->seal.uuid);
POOL_ATTRIBUTE(host, "%u", pool->host);
POOL_ATTRIBUTE(incarnation, "%#llx", pool->incarnation);
POOL_ATTRIBUTE(administrator, "%d",
	       kvpool_claims_in_force(pool->claims, pool->geo.host_count));
POOL_ATTRIBUTE(table_generation, "%llu", pool->table->generation);
POOL_ATTRIBUTE(lines_read, "%lld", atomic64_read(&pool->line_reads));
POOL_ATTRIBUTE(lines_written, "%lld", atomic64_read(&pool->line_writes));

static ssize_t health_show(struct device *device, struct device_attribute *attribute, char *page)
{
	ssize_t bytes;

	mutex_lock(&kvpool_lock);
	bytes = sysfs_emit(page, "%s\n", pool_health(kvpool_pool));
	mutex_unlock(&kvpool_lock);
	return bytes;
}
static DEVICE_ATTR_RO(health);

static struct attribute *pool_attributes[] = {
	&dev_attr_health.attr,	      &dev_attr_uuid.attr,
	&dev_attr_host.attr,	      &dev_attr_incarnation.attr,
	&dev_attr_administrator.attr, &dev_attr_table_generation.attr,
	&dev_attr_lines_read.attr,    &dev_attr_lines_written.attr,
	NULL,
};

static const struct attribute_group pool_group = { .attrs = pool_attributes };
const struct attribute_group *kvpool_pool_groups[] = { &pool_group, NULL };

#define PART_ATTRIBUTE(name, format, value)                                                        \
	static ssize_t name##_show(struct device *device, struct device_attribute *attribute,      \
				   char *page)                                                     \
	{                                                                                          \
		struct kvpool_part *part = dev_get_drvdata(device);                                \
		ssize_t bytes;                                                                     \
                                                                                                   \
		mutex_lock(&kvpool_lock);                                                          \
		bytes = sysfs_emit(page, format "\n", value);                                      \
		mutex_unlock(&kvpool_lock);                                                        \
		return bytes;                                                                      \
	}                                                                                          \
	static DEVICE_ATTR_RO(name)

static u64 part_bytes(struct kvpool_part *part)
{
	u32 slices;

	return kvpool_part_bytes(part, &slices);
}

static u32 part_reachers(struct kvpool_part *part)
{
	u32 descriptors;

	return kvpool_part_reachers(part, &descriptors);
}

PART_ATTRIBUTE(partition_uuid, "%pUb", part->uuid);
PART_ATTRIBUTE(state, "%s",
	       part->gone ? "gone" :
	       part->draining ? "draining" :
	       part->attached ? "attached" : "idle");
PART_ATTRIBUTE(bytes, "%llu", part_bytes(part));
PART_ATTRIBUTE(type_requested, "%s", type_name(part->type));
PART_ATTRIBUTE(type_obtained, "%s", type_name(part->type_obtained));
PART_ATTRIBUTE(members, "%u", part->members);
PART_ATTRIBUTE(reachers, "%u", part_reachers(part));
PART_ATTRIBUTE(poisoned_pages, "%u", part->poisoned);

static struct attribute *part_attributes[] = {
	&dev_attr_partition_uuid.attr, &dev_attr_state.attr,
	&dev_attr_bytes.attr,	       &dev_attr_type_requested.attr,
	&dev_attr_type_obtained.attr,  &dev_attr_members.attr,
	&dev_attr_reachers.attr,       &dev_attr_poisoned_pages.attr,
	NULL,
};

static const struct attribute_group part_group = { .attrs = part_attributes };
const struct attribute_group *kvpool_part_groups[] = { &part_group, NULL };
