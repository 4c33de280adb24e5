// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ioctls: one table of commands (logic/args.c), one place where arguments come in and go out.
 */
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/pid.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

/* That can be given: not on devices that are gone. */
static u64 free_units(const struct kvpool *pool)
{
	const struct kvpool_table *table = pool->table;
	u64 units = 0;
	u32 i;

	for (i = 0; i < pool->geo.device_count; i++)
		if (!pool->devices[i].gone)
			units += pool->geo.units_per_device - kvpool_first_data_unit(&pool->geo, i);
	for (i = 0; i < table->slice_count; i++)
		if (!pool->devices[table->slices[i].device].gone)
			units -= table->slices[i].unit_count;
	return units;
}

static int get_info(struct kvpool_open *open, struct kvpool_info *info)
{
	struct kvpool *pool;
	int in_force;

	memset(info, 0, sizeof(*info));
	info->abi_version = KVPOOL_ABI_VERSION;
	info->format_version = KVPOOL_FORMAT_VERSION;
	info->features = KVPOOL_FEATURE_ZERO_PAGE | KVPOOL_FEATURE_SCRUB;
	if (kvpool_leaves_2m())
		info->features |= KVPOOL_FEATURE_LEAF_2M;
	mutex_lock(&kvpool_lock);
	pool = kvpool_pool;
	if (pool) {
		info->state = READ_ONCE(pool->gone) ? KVPOOL_CLAIM_GONE : KVPOOL_CLAIM_CLAIMED;
		info->host = pool->host;
		info->incarnation = pool->incarnation;
		memcpy(info->uuid, pool->seal.uuid, sizeof(info->uuid));
		info->pool_bytes = pool->geo.device_bytes * pool->geo.device_count;
		info->unit_bytes = 1ull << pool->geo.unit_shift;
		info->device_count = pool->geo.device_count;
		info->host_count = pool->geo.host_count;
		in_force = kvpool_claims_in_force(pool->claims, pool->geo.host_count);
		if (in_force >= 0) {
			info->admin_epoch = pool->claims[in_force].active;
			info->admin_host = in_force;
		}
		info->is_admin = !!pool->admin_epoch;
		info->table_generation = pool->table->generation;
		info->free_units = free_units(pool);
		info->line_reads = atomic64_read(&pool->line_reads);
		info->line_writes = atomic64_read(&pool->line_writes);
		info->gone_devices = kvpool_gone_devices(pool);
	}
	if (open->part && open->part->gone)
		info->state = KVPOOL_CLAIM_GONE;
	mutex_unlock(&kvpool_lock);
	return 0;
}

static int copy_name(u64 from, u32 length, char name[KVPOOL_NAME_BYTES])
{
	memset(name, 0, KVPOOL_NAME_BYTES);
	if (copy_from_user(name, u64_to_user_ptr(from), length))
		return -EFAULT;
	return kvpool_name_check(name, length);
}

static int claim_pool(struct kvpool_claim *claim)
{
	struct kvpool_range *ranges;
	int err;

	claim->ret_incarnation = 0;
	claim->ret_bad_range = 0;
	claim->ret_reason = KVPOOL_REFUSED_NOT;
	claim->ret_bad_offset = 0;
	ranges = memdup_user(u64_to_user_ptr(claim->ranges), claim->range_count * sizeof(*ranges));
	if (IS_ERR(ranges))
		return PTR_ERR(ranges);
	if (mutex_lock_killable(&kvpool_control_lock)) {
		err = -EINTR;
	} else {
		err = kvpool_claim_pool(claim, ranges);
		mutex_unlock(&kvpool_control_lock);
	}
	kfree(ranges);
	return err;
}

/* The partition that a command is about, if it is about one. */
static int command_name(const struct kvpool_command *command, const union kvpool_args *args,
			char name[KVPOOL_NAME_BYTES])
{
	switch (command->number) {
	case KVPOOL_PARTITION_CREATE & 0xff:
		return copy_name(args->create.name, args->create.name_len, name);
	case KVPOOL_PARTITION_DESTROY & 0xff:
		return copy_name(args->destroy.name, args->destroy.name_len, name);
	case KVPOOL_PARTITION_GROW & 0xff:
		return copy_name(args->grow.name, args->grow.name_len, name);
	case KVPOOL_PARTITION_SHRINK & 0xff:
		return copy_name(args->shrink.name, args->shrink.name_len, name);
	default:
		return 0;
	}
}

static int command_ids(const struct kvpool_command *command, const union kvpool_args *args,
		       u32 **ret_ids)
{
	u32 *ids = NULL;

	if (command->number == (KVPOOL_PARTITION_SHRINK & 0xff) && args->shrink.slice_count)
		ids = memdup_user(u64_to_user_ptr(args->shrink.slices),
				  args->shrink.slice_count * sizeof(*ids));
	if (IS_ERR(ids))
		return PTR_ERR(ids);
	*ret_ids = ids;
	return 0;
}

static int administer(struct kvpool *pool, const struct kvpool_command *command,
		      union kvpool_args *args, const char *name, const u32 *ids)
{
	struct kvpool_shrink_plan plan = { .name = name, .ids = ids };

	switch (command->number) {
	case KVPOOL_ADMIN & 0xff:
		return kvpool_admin_take(pool, &args->admin.ret_epoch);
	case KVPOOL_PARTITION_CREATE & 0xff:
		return kvpool_admin_create(pool, &args->create, name);
	case KVPOOL_PARTITION_DESTROY & 0xff:
		return kvpool_admin_destroy(pool, name, args->flags & KVPOOL_DESTROY_F_FORCE);
	case KVPOOL_PARTITION_GROW & 0xff:
		return kvpool_admin_grow(pool, &args->grow, name);
	case KVPOOL_PARTITION_SHRINK & 0xff:
		plan.id_count = args->shrink.slice_count;
		plan.bytes = args->shrink.bytes;
		plan.force = args->flags & KVPOOL_SHRINK_F_FORCE;
		return kvpool_admin_shrink(pool, &args->shrink, &plan);
	default:
		return kvpool_admin_fence(pool, args->fence.host, args->fence.incarnation);
	}
}

/* What an administrator asks of the pool; under the control lock the pool stays. */
static int control(const struct kvpool_command *command, union kvpool_args *args)
{
	char name[KVPOOL_NAME_BYTES];
	struct kvpool *pool;
	u32 *ids = NULL;
	int err = command_name(command, args, name);

	if (!err)
		err = command_ids(command, args, &ids);
	if (err)
		return err;
	if (mutex_lock_killable(&kvpool_control_lock)) {
		kfree(ids);
		return -EINTR;
	}
	pool = kvpool_pool;
	if (command->number == (KVPOOL_RELEASE & 0xff))
		err = kvpool_release_pool();
	else if (!pool || READ_ONCE(pool->gone))
		err = -ENODEV;
	else
		err = administer(pool, command, args, name, ids);
	mutex_unlock(&kvpool_control_lock);
	kfree(ids);
	return err;
}

/* Items of a list are gathered under the lock and copied out without it. */
union item {
	struct kvpool_item_device device;
	struct kvpool_item_host host;
	struct kvpool_item_partition partition;
	struct kvpool_item_slice slice;
	struct kvpool_item_member member;
};

static bool fill_device(struct kvpool *pool, u32 index, struct kvpool_item_device *item)
{
	if (index >= pool->geo.device_count)
		return false;
	item->device = index;
	item->start = pool->devices[index].start;
	item->bytes = pool->geo.device_bytes;
	item->gone = pool->devices[index].gone;
	item->data_offset = (u64)kvpool_first_data_unit(&pool->geo, index) << pool->geo.unit_shift;
	return true;
}

static bool fill_host(struct kvpool *pool, u32 index, struct kvpool_item_host *item)
{
	u32 i;

	if (index >= pool->geo.host_count)
		return false;
	item->host = index;
	if (pool->hosts[index].readable)
		item->state = pool->hosts[index].state;
	item->incarnation = pool->hosts[index].incarnation;
	item->heartbeat = pool->hosts[index].heartbeat;
	item->claimed = pool->claims[index].claimed;
	item->active = pool->claims[index].active;
	item->fenced_incarnation = pool->table->fenced[index];
	for (i = 0; i < pool->table->slice_count; i++)
		if (pool->held[i] & 1ull << index)
			item->held_units += pool->table->slices[i].unit_count;
	if (index == pool->host)
		for (i = 0; i < kvpool_unit_count(&pool->geo); i++)
			item->used_units += kvpool_use_get(pool->use, i) != KVPOOL_USE_NONE;
	return true;
}

static bool fill_partition(struct kvpool *pool, struct kvpool_part *only, u32 index,
			   struct kvpool_item_partition *item)
{
	struct kvpool_part *part;

	list_for_each_entry(part, &kvpool_parts, list)
		if ((!only || part == only) && !index--)
			break;
	if (list_entry_is_head(part, &kvpool_parts, list))
		return false;
	memcpy(item->uuid, part->uuid, sizeof(item->uuid));
	memcpy(item->name, part->name, sizeof(item->name));
	item->id = part->id;
	item->state = part->draining ? KVPOOL_PARTITION_DRAINING : KVPOOL_PARTITION_ACTIVE;
	item->type_requested = part->type;
	item->type_obtained = part->type_obtained;
	item->ddio = part->ddio;
	item->bytes = kvpool_part_bytes(part, &item->slice_count);
	item->members = part->members;
	item->reachers = kvpool_part_reachers(part, &item->descriptors);
	item->attached = part->attached;
	item->poisoned = part->poisoned;
	item->gone = part->gone;
	return true;
}

static bool fill_slice(struct kvpool *pool, struct kvpool_part *only, u32 index,
		       struct kvpool_item_slice *item)
{
	u32 i;

	for (i = 0; i < pool->table->slice_count; i++) {
		const struct kvpool_slice_entry *slice = &pool->table->slices[i];

		if ((only && slice->partition != only->id) || index--)
			continue;
		item->id = slice->id;
		item->partition = slice->partition;
		item->device = slice->device;
		item->state = pool->devices[slice->device].gone ? KVPOOL_SLICE_GONE : slice->state;
		item->device_offset = (u64)slice->first_unit << pool->geo.unit_shift;
		item->bytes = (u64)slice->unit_count << pool->geo.unit_shift;
		item->map_offset = (u64)slice->id << KVPOOL_MAP_ID_SHIFT;
		item->held_hosts = pool->held[i];
		return true;
	}
	return false;
}

static bool fill_member(struct kvpool_part *only, u32 index, struct kvpool_item_member *item)
{
	struct kvpool_member *member;
	bool wanted;
	u32 i;

	list_for_each_entry(member, &kvpool_members, list) {
		wanted = !only;
		for (i = 0; i < member->part_count && !wanted; i++)
			wanted = member->parts[i] == only;
		if (!wanted || index--)
			continue;
		item->incarnation = member->incarnation;
		item->deadline_ns = READ_ONCE(member->deadline_ns);
		item->slot = member->slot;
		item->pid = pid_vnr(member->tgid);
		item->state = member->quieting ? KVPOOL_REAPER_QUIET :
			      member->revoked ? KVPOOL_REAPER_CPU_FENCED : KVPOOL_REAPER_LIVE;
		item->revoked = member->revoked;
		return true;
	}
	return false;
}

static int fill_item(struct kvpool_open *open, u32 kind, u32 index, union item *item,
		     u32 *ret_bytes)
{
	struct kvpool *pool;
	bool filled = false;

	memset(item, 0, sizeof(*item));
	*ret_bytes = 0;
	mutex_lock(&kvpool_lock);
	pool = kvpool_pool;
	if (!pool) {
		mutex_unlock(&kvpool_lock);
		return -ENODEV;
	}
	switch (kind) {
	case KVPOOL_LIST_DEVICES:
		filled = fill_device(pool, index, &item->device);
		*ret_bytes = sizeof(item->device);
		break;
	case KVPOOL_LIST_HOSTS:
		filled = fill_host(pool, index, &item->host);
		*ret_bytes = sizeof(item->host);
		break;
	case KVPOOL_LIST_PARTITIONS:
		filled = fill_partition(pool, open->part, index, &item->partition);
		*ret_bytes = sizeof(item->partition);
		break;
	case KVPOOL_LIST_SLICES:
		filled = fill_slice(pool, open->part, index, &item->slice);
		*ret_bytes = sizeof(item->slice);
		break;
	default:
		filled = fill_member(open->part, index, &item->member);
		*ret_bytes = sizeof(item->member);
		break;
	}
	mutex_unlock(&kvpool_lock);
	return filled;
}

/* Counts to the end, also beyond the room; physical addresses are for administrators. */
static int list(struct kvpool_open *open, struct kvpool_list *args)
{
	union item item;
	u32 index, bytes;
	int more;

	if (args->kind == KVPOOL_LIST_DEVICES && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	args->ret_count = 0;
	for (index = args->first; index >= args->first; index++) {
		more = fill_item(open, args->kind, index, &item, &bytes);
		if (more <= 0)
			return more;
		if (args->ret_count < args->count) {
			u64 to = args->items + (u64)args->ret_count * args->item_bytes;

			if (copy_to_user(u64_to_user_ptr(to), &item, min(bytes, args->item_bytes)))
				return -EFAULT;
			if (args->item_bytes > bytes &&
			    clear_user(u64_to_user_ptr(to + bytes), args->item_bytes - bytes))
				return -EFAULT;
		}
		args->ret_count++;
		cond_resched();
	}
	return 0;
}

/* The descriptors of a JOIN: nodes of partitions of the same pool, held while it runs. */
static int join(struct file *file, struct kvpool_join *args)
{
	struct file *files[1 + KVPOOL_JOIN_FDS_MAX] = { file };
	s32 fds[KVPOOL_JOIN_FDS_MAX];
	struct kvpool_open *open;
	u32 i, count = 1;
	int err = 0;

	if (copy_from_user(fds, u64_to_user_ptr(args->fds), args->fd_count * sizeof(fds[0])))
		return -EFAULT;
	for (i = 0; i < args->fd_count && !err; i++) {
		files[count] = fget(fds[i]);
		if (!files[count]) {
			err = -EBADF;
			break;
		}
		open = files[count]->private_data;
		if (files[count]->f_op != &kvpool_fops || !open->part)
			err = -EINVAL;
		count++;
	}
	if (!err)
		err = kvpool_join(args, files, count);
	for (i = 1; i < count; i++)
		fput(files[i]);
	return err;
}

static int on_partition(struct file *file, const struct kvpool_command *command,
			union kvpool_args *args)
{
	struct kvpool_open *open = file->private_data;
	struct kvpool_member *member = READ_ONCE(open->member);

	if (READ_ONCE(open->part->gone))
		return -ENODEV;
	if (command->number == (KVPOOL_JOIN & 0xff))
		return join(file, &args->join);
	if (!member)
		return -ENXIO;
	if (!kvpool_member_is_current(member))
		return -EPERM;
	switch (command->number) {
	case KVPOOL_RENEW & 0xff:
		return kvpool_renew(member, &args->renew.ret_deadline_ns);
	case KVPOOL_POPULATE & 0xff:
		if (READ_ONCE(member->revoked))
			return -ESTALE;
		return kvpool_populate(file, &args->populate);
	case KVPOOL_MAPPING & 0xff:
		return kvpool_mapping_ask(file, &args->mapping);
	default:
		return kvpool_quiet(member, args->quiet.incarnation);
	}
}

static int run(struct file *file, const struct kvpool_command *command, union kvpool_args *args)
{
	struct kvpool_open *open = file->private_data;

	switch (command->number) {
	case KVPOOL_GET_INFO & 0xff:
		return get_info(open, &args->info);
	case KVPOOL_LIST & 0xff:
		return list(open, &args->list);
	case KVPOOL_CLAIM & 0xff:
		return claim_pool(&args->claim);
	case KVPOOL_REVOKE & 0xff:
		return kvpool_member_revoke_id(args->revoke.incarnation);
	case KVPOOL_POISON & 0xff:
		return kvpool_poison(args->poison.device, args->poison.device_offset,
				     args->poison.bytes);
	case KVPOOL_DEVICE_WATCH & 0xff:
		return kvpool_device_watch(&args->watch);
	case KVPOOL_SLICE_QUIET & 0xff:
		return kvpool_slice_quiet(args->slice_quiet.incarnation, args->slice_quiet.slice);
	default:
		return open->part ? on_partition(file, command, args) : control(command, args);
	}
}

/*
 * A number may be of another size than ours: shorter is filled with zeros, longer must hold
 * zeros.
 */
long kvpool_ioctl(struct file *file, unsigned int word, unsigned long arg)
{
	struct kvpool_open *open = file->private_data;
	const struct kvpool_command *command;
	union kvpool_args args = {};
	int err;

	if (_IOC_TYPE(word) != KVPOOL_IOC_MAGIC)
		return -ENOTTY;
	command = kvpool_command_find(_IOC_NR(word),
				      open->part ? KVPOOL_NODE_PARTITION : KVPOOL_NODE_CONTROL);
	if (!command)
		return -ENOTTY;
	if (_IOC_SIZE(word) < sizeof(args.flags))
		return -EINVAL;
	/* Before anything is read: who may not is told no more than that. */
	if (command->right == KVPOOL_RIGHT_ADMIN && !capable(CAP_SYS_ADMIN))
		return -EPERM;
	err = copy_struct_from_user(&args, command->bytes, (void __user *)arg, _IOC_SIZE(word));
	if (!err)
		err = kvpool_args_check(command, &args);
	if (err)
		return err;
	err = run(file, command, &args);
	/* Also on errors: how far it came, and why it did not go on. */
	if (command->writes && err != -EFAULT &&
	    copy_to_user((void __user *)arg, &args, min_t(u32, command->bytes, _IOC_SIZE(word))))
		return -EFAULT;
	return err;
}
