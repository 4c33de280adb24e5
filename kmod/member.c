// SPDX-License-Identifier: GPL-2.0-only
/*
 * Members: one process, one slot, one incarnation, one fate for all partitions of its store.
 * The lease is the fence; the death of the mm only shortens the wait. A member stays until its
 * descriptors are released and nothing that ever mapped for it is left: GPUs keep physical
 * addresses and no reference.
 */
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "compat.h"
#include "internal.h"
#include "trace.h"

#define ZERO_ORDER (KVPOOL_HUGE_LEAVES ? PMD_SHIFT - PAGE_SHIFT : 0)

static unsigned int scan_ms = 50;
module_param(scan_ms, uint, 0444);
MODULE_PARM_DESC(scan_ms, "Milliseconds between looks for ended leases");

static struct workqueue_struct *scan_queue;
static struct delayed_work scan_work;

/* A second after a process is gone its descriptors are, too, and with them its GPU contexts. */
#define REACHER_GRACE_NS NSEC_PER_SEC

struct kvpool_state_page *kvpool_member_state(struct kvpool_member *member)
{
	return page_address(member->state);
}

bool kvpool_member_is_current(const struct kvpool_member *member)
{
	return member->mm == current->mm && member->tgid == task_tgid(current);
}

static void free_member(struct kref *ref)
{
	struct kvpool_member *member = container_of(ref, struct kvpool_member, ref);
	u32 i;

	/* Waits for the callback, so under no lock that the callback takes. */
	mmu_notifier_unregister(&member->notifier, member->mm);
	mmdrop(member->mm);
	put_pid(member->tgid);
	for (i = 0; i < member->part_count; i++)
		kvpool_part_put(member->parts[i]);
	xa_destroy(&member->mapped);
	atomic_dec(&kvpool_live[KVPOOL_LIVE_MEMBERS]);
	kfree(member->parts);
	__free_page(member->state);
	if (member->zero)
		__free_pages(member->zero, member->zero_order);
	kfree(member);
	module_put(THIS_MODULE);
}

void kvpool_member_put(struct kvpool_member *member)
{
	kref_put(&member->ref, free_member);
}

/*
 * `revoked` is set before the mappings go, and faults wait until they are gone: nothing is
 * served in between that could be taken for the pool.
 */
void kvpool_member_revoke(struct kvpool_member *member, bool dead)
{
	struct kvpool_state_page *state = kvpool_member_state(member);
	bool was = member->revoked;
	struct kvpool_open *open;

	lockdep_assert_held(&kvpool_lock);
	if (member->revoked && (member->dead || !dead))
		return;
	smp_store_release(&state->revoked, 1);
	if (!was)
		kvpool_event_member(member, KVPOOL_EVENT_MEMBER_REVOKED);
	down_write(&member->sem);
	member->revoked = true;
	member->dead = member->dead || dead;
	list_for_each_entry(open, &member->opens, list)
		unmap_mapping_range(open->inode->i_mapping, 0, 0, 1);
	up_write(&member->sem);
	smp_store_release(&state->cpu_fenced, member->incarnation);
	trace_kvpool_revoke(member->parts[0]->id, member->slot, member->incarnation);
	if (!was)
		kvpool_event_member(member, KVPOOL_EVENT_MEMBER_FENCED);
	if (dead)
		kvpool_event_member(member, KVPOOL_EVENT_MEMBER_DEAD);
	member->reaper_due = true;
	if (kvpool_pool)
		kvpool_kick(kvpool_pool);
}

int kvpool_member_revoke_id(u64 incarnation)
{
	struct kvpool_member *member;
	int err = -ESRCH;

	mutex_lock(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list)
		if (member->incarnation == incarnation) {
			kvpool_member_revoke(member, false);
			err = 0;
		}
	mutex_unlock(&kvpool_lock);
	return err;
}

/* The mm goes: exit, or exec. */
static void mm_gone(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct kvpool_member *member = container_of(notifier, struct kvpool_member, notifier);

	mutex_lock(&kvpool_lock);
	kvpool_member_revoke(member, true);
	mutex_unlock(&kvpool_lock);
	kvpool_members_scan_soon();
}

static const struct mmu_notifier_ops notifier_ops = { .release = mm_gone };

/* A child that can see the STATE page: by its mm, since it has no pid yet. */
int kvpool_member_add_mm(struct kvpool_member *member, struct mm_struct *mm)
{
	struct kvpool_reacher *reacher, *new = kzalloc(sizeof(*new), GFP_KERNEL | __GFP_NOFAIL);

	mmgrab(mm);
	new->mm = mm;
	spin_lock(&member->reach_lock);
	list_for_each_entry(reacher, &member->reachers, list)
		if (reacher->mm == mm)
			break;
	if (list_entry_is_head(reacher, &member->reachers, list)) {
		list_add(&new->list, &member->reachers);
		atomic_inc(&kvpool_live[KVPOOL_LIVE_REACHERS]);
		new = NULL;
	}
	spin_unlock(&member->reach_lock);
	if (new) {
		mmdrop(mm);
		kfree(new);
	}
	return 0;
}

/* An unreaped zombie is gone: its leader has an exit state and no thread is left. */
static bool thread_group_lives(struct pid *tgid)
{
	struct task_struct *task;
	bool lives;

	rcu_read_lock();
	task = pid_task(tgid, PIDTYPE_TGID);
	lives = task && !(READ_ONCE(task->exit_state) && thread_group_empty(task));
	rcu_read_unlock();
	return lives;
}

static bool past_grace(u64 *gone_ns, u64 now)
{
	if (!*gone_ns)
		*gone_ns = now;
	return now - *gone_ns >= REACHER_GRACE_NS;
}

/* Children first: frees those that are gone. Whether anything may still reach for this member. */
static bool reachers_left(struct kvpool_member *member, u64 now)
{
	struct kvpool_reacher *reacher, *other;
	LIST_HEAD(gone);
	bool left;

	spin_lock(&member->reach_lock);
	list_for_each_entry_safe(reacher, other, &member->reachers, list)
		if (!atomic_read(&reacher->mm->mm_users) && past_grace(&reacher->gone_ns, now))
			list_move(&reacher->list, &gone);
	left = !list_empty(&member->reachers);
	spin_unlock(&member->reach_lock);
	list_for_each_entry_safe(reacher, other, &gone, list) {
		mmdrop(reacher->mm);
		kfree(reacher);
		atomic_dec(&kvpool_live[KVPOOL_LIVE_REACHERS]);
	}
	if (xa_empty(&member->mapped))
		return left;
	/* A process made with CLONE_VM goes on with the same mm. */
	if (thread_group_lives(member->tgid) || atomic_read(&member->mm->mm_users))
		return true;
	return !past_grace(&member->gone_ns, now) || left;
}

static u32 count_reachers(struct kvpool_member *member)
{
	struct kvpool_reacher *reacher;
	u32 count = !xa_empty(&member->mapped);

	spin_lock(&member->reach_lock);
	list_for_each_entry(reacher, &member->reachers, list)
		count++;
	spin_unlock(&member->reach_lock);
	return count;
}

u32 kvpool_part_reachers(struct kvpool_part *part, u32 *ret_descriptors)
{
	struct kvpool_member *member;
	struct kvpool_open *open;
	u32 reachers = 0, i;

	*ret_descriptors = 0;
	list_for_each_entry(member, &kvpool_members, list)
		for (i = 0; i < member->part_count; i++) {
			if (member->parts[i] != part)
				continue;
			reachers += count_reachers(member);
			list_for_each_entry(open, &member->opens, list)
				*ret_descriptors += open->part == part;
		}
	return reachers;
}

static void kill_mm_owner(struct mm_struct *mm)
{
#ifdef CONFIG_MEMCG
	struct task_struct *owner;

	rcu_read_lock();
	owner = rcu_dereference(mm->owner);
	if (owner)
		send_sig(SIGKILL, owner, 1);
	rcu_read_unlock();
#endif
}

static bool is_member_of(const struct kvpool_member *member, const struct kvpool_part *part)
{
	u32 i;

	for (i = 0; i < member->part_count; i++)
		if (member->parts[i] == part)
			return true;
	return false;
}

/*
 * A slice goes while its members live on. STATE says so before anything else than the pool is
 * served there, and faults that looked before are over when the mappings go.
 */
void kvpool_members_lose(struct kvpool_part *part, struct kvpool_slice *slice, bool *ret_lost)
{
	loff_t at = (loff_t)slice->id << KVPOOL_MAP_ID_SHIFT;
	struct kvpool_member *member;
	struct kvpool_state_page *state;
	struct kvpool_open *open;

	lockdep_assert_held(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list) {
		state = kvpool_member_state(member);
		if (is_member_of(member, part))
			smp_store_release(&state->lost, state->lost + 1);
	}
	smp_store_release(ret_lost, true);
	list_for_each_entry(member, &kvpool_members, list) {
		if (!is_member_of(member, part))
			continue;
		down_write(&member->sem);
		list_for_each_entry(open, &member->opens, list)
			if (open->part == part)
				unmap_mapping_range(open->inode->i_mapping, at, slice->bytes, 1);
		up_write(&member->sem);
	}
}

/* Whether anything on this host that ever mapped the slice may still reach it. */
bool kvpool_slice_is_reached(const struct kvpool_slice *slice)
{
	struct kvpool_member *member;

	lockdep_assert_held(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list)
		if (xa_load(&member->mapped, slice->id))
			return true;
	return false;
}

int kvpool_member_forget_slice(u64 incarnation, u32 slice)
{
	struct kvpool_member *member;

	lockdep_assert_held(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list)
		if (member->incarnation == incarnation)
			return xa_erase(&member->mapped, slice) ? 0 : -ESRCH;
	return -ESRCH;
}

/* Forced: whoever may still reach the partition from here, or the slice. */
void kvpool_members_kill(struct kvpool_part *part, u32 slice)
{
	struct kvpool_member *member;
	struct kvpool_reacher *reacher;

	lockdep_assert_held(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list) {
		if (!is_member_of(member, part) || (slice && !xa_load(&member->mapped, slice)))
			continue;
		kill_pid(member->tgid, SIGKILL, 1);
		spin_lock(&member->reach_lock);
		list_for_each_entry(reacher, &member->reachers, list)
			kill_mm_owner(reacher->mm);
		spin_unlock(&member->reach_lock);
	}
}

static void scan_members(struct work_struct *work)
{
	u64 now = ktime_get_boottime_ns();
	struct kvpool_member *member;
	bool kick = false, any, left;

	mutex_lock(&kvpool_lock);
	list_for_each_entry(member, &kvpool_members, list) {
		if (!member->revoked &&
		    (READ_ONCE(member->late) ||
		     kvpool_lease_over(now, READ_ONCE(member->deadline_ns)))) {
			trace_kvpool_lease_over(member->parts[0]->id, member->slot,
						member->incarnation);
			kvpool_member_revoke(member, false);
		}
		left = reachers_left(member, now);
		if (member->quieting || !list_empty(&member->opens) || left)
			continue;
		member->quieting = true;
		kick = true;
	}
	any = !list_empty(&kvpool_members);
	if (kick && kvpool_pool)
		kvpool_kick(kvpool_pool);
	mutex_unlock(&kvpool_lock);
	if (any)
		queue_delayed_work(scan_queue, &scan_work, msecs_to_jiffies(scan_ms));
}

void kvpool_members_scan_soon(void)
{
	mod_delayed_work(scan_queue, &scan_work, 0);
}

int kvpool_members_init(void)
{
	INIT_DELAYED_WORK(&scan_work, scan_members);
	scan_queue = alloc_workqueue("kvpool-scan", WQ_UNBOUND | WQ_HIGHPRI, 1);
	return scan_queue ? 0 : -ENOMEM;
}

void kvpool_members_exit(void)
{
	cancel_delayed_work_sync(&scan_work);
	destroy_workqueue(scan_queue);
	mmu_notifier_synchronize();
}

static u32 reaper_state(const struct kvpool_member *member, bool quiet)
{
	if (quiet)
		return KVPOOL_REAPER_QUIET;
	return member->revoked ? KVPOOL_REAPER_CPU_FENCED : KVPOOL_REAPER_LIVE;
}

/* The line of a member's slot, in the page that its store's members read. */
static void write_reaper_line(struct kvpool *pool, struct kvpool_member *member, bool quiet)
{
	const struct kvpool_slice *slice = kvpool_part_first(member->parts[0]);
	u64 offset = pool->host * KVPOOL_REAPER_PAGE_BYTES + member->slot * KVPOOL_LINE_BYTES;
	struct kvpool_place at = {};
	union kvpool_line line = {};

	if (!slice || !slice->map || READ_ONCE(slice->gone) || member->slot >= KVPOOL_MEMBER_SLOTS)
		return;
	at.device = slice->device;
	at.offset = slice->device_offset + offset;
	mutex_lock(&kvpool_lock);
	line.reaper.magic = cpu_to_le32(KVPOOL_MAGIC_REAPER);
	line.reaper.host = cpu_to_le16(pool->host);
	line.reaper.slot = cpu_to_le16(member->slot);
	line.reaper.incarnation = cpu_to_le64(member->incarnation);
	line.reaper.state = cpu_to_le32(reaper_state(member, quiet));
	line.reaper.former_incarnation = cpu_to_le64(member->former_incarnation);
	line.reaper.former_state = cpu_to_le32(quiet && member->former_incarnation ?
					       KVPOOL_REAPER_QUIET : member->former_state);
	line.reaper.sequence = cpu_to_le64(++pool->sequence);
	mutex_unlock(&kvpool_lock);
	kvpool_seal_line(&pool->seal, at, &line);
	kvpool_lines_write(pool, at.device, (u8 __force *)slice->map + offset, &line, sizeof(line));
}

static struct kvpool_member *find_due(bool *ret_quiet)
{
	struct kvpool_member *member;

	list_for_each_entry(member, &kvpool_members, list)
		if (member->reaper_due || member->quieting) {
			*ret_quiet = member->quieting;
			member->reaper_due = false;
			return member;
		}
	return NULL;
}

/* Lines that are due; and the end of members that nothing reaches for any more. */
void kvpool_members_reap(struct kvpool *pool)
{
	struct kvpool_member *member;
	bool quiet = false;
	u32 i;

	for (;;) {
		mutex_lock(&kvpool_lock);
		member = find_due(&quiet);
		if (member)
			kref_get(&member->ref);
		mutex_unlock(&kvpool_lock);
		if (!member)
			return;
		if (quiet && !READ_ONCE(pool->gone)) {
			for (i = 0; i < member->part_count; i++)
				kvpool_part_retire(member->parts[i]);
			kvpool_settle();
		}
		write_reaper_line(pool, member, quiet);
		if (quiet) {
			trace_kvpool_quiet(member->parts[0]->id, member->slot, member->incarnation);
			kvpool_event_member(member, KVPOOL_EVENT_MEMBER_QUIET);
			mutex_lock(&kvpool_lock);
			list_del_init(&member->list);
			for (i = 0; i < member->part_count; i++)
				member->parts[i]->members--;
			if (member->slot < KVPOOL_MEMBER_SLOTS)
				member->parts[0]->slots &= ~(1ull << member->slot);
			mutex_unlock(&kvpool_lock);
			kvpool_member_put(member);
		}
		kvpool_member_put(member);
	}
}

static int reap(struct kvpool *pool, void *arg)
{
	kvpool_members_reap(pool);
	return 0;
}

static struct kvpool_member *new_member(const struct kvpool_join *args, u32 part_count)
{
	struct kvpool_member *member = kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT);

	if (!member)
		return NULL;
	kref_init(&member->ref);
	INIT_LIST_HEAD(&member->list);
	INIT_LIST_HEAD(&member->opens);
	INIT_LIST_HEAD(&member->reachers);
	xa_init(&member->mapped);
	spin_lock_init(&member->reach_lock);
	init_rwsem(&member->sem);
	member->notifier.ops = &notifier_ops;
	member->flags = args->flags;
	member->revoked = true;
	member->former_state = KVPOOL_REAPER_FREE;
	member->parts = kcalloc(part_count, sizeof(*member->parts), GFP_KERNEL_ACCOUNT);
	member->state = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (args->flags & KVPOOL_JOIN_F_ZERO_PAGE) {
		/*
		 * As large as the leaves: behind smaller ones they would stay small after a new
		 * JOIN.
		 */
		member->zero_order = kvpool_leaves_2m() ? ZERO_ORDER : 0;
		member->zero = alloc_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_COMP |
					   __GFP_NOWARN, member->zero_order);
	}
	if (member->parts && member->state &&
	    (member->zero || !(args->flags & KVPOOL_JOIN_F_ZERO_PAGE)))
		return member;
	kfree(member->parts);
	if (member->state)
		__free_page(member->state);
	if (member->zero)
		__free_pages(member->zero, member->zero_order);
	kfree(member);
	return NULL;
}

/* Before it was bound to anything. */
static void discard_member(struct kvpool_member *member)
{
	kfree(member->parts);
	__free_page(member->state);
	if (member->zero)
		__free_pages(member->zero, member->zero_order);
	kfree(member);
}

/* A new incarnation: mappings are gone, then it changes, then `revoked` goes. */
static void begin_incarnation(struct kvpool_member *member, u64 lease_ns, struct kvpool_join *args)
{
	struct kvpool_state_page *state = kvpool_member_state(member);
	u64 incarnation = get_random_u64() | 1;
	struct kvpool_open *open;

	down_write(&member->sem);
	list_for_each_entry(open, &member->opens, list)
		unmap_mapping_range(open->inode->i_mapping, 0, 0, 1);
	member->incarnation = incarnation;
	member->lease_ns = lease_ns;
	member->deadline_ns = ktime_get_boottime_ns() + lease_ns;
	member->late = false;
	WRITE_ONCE(state->deadline_ns, member->deadline_ns);
	smp_store_release(&state->incarnation, incarnation);
	smp_store_release(&state->revoked, 0);
	member->revoked = false;
	up_write(&member->sem);
	member->reaper_due = true;
	args->ret_incarnation = incarnation;
	args->ret_deadline_ns = member->deadline_ns;
	args->ret_slot = member->slot;
	args->ret_host = member->parts[0]->pool->host;
	trace_kvpool_join(member->parts[0]->id, member->slot, incarnation);
}

static int join_again(struct kvpool_member *member, struct file **files, u32 count, u64 lease_ns,
		      struct kvpool_join *args)
{
	u32 i;

	if (!kvpool_member_is_current(member))
		return -EPERM;
	for (i = 0; i < count; i++) {
		struct kvpool_open *open = files[i]->private_data;

		if (open->member != member)
			return -EBUSY;
	}
	if (args->flags != member->flags)
		return -EINVAL;
	if (member->dead)
		return -EOWNERDEAD;
	for (i = 0; i < member->part_count; i++) {
		if (member->parts[i]->gone)
			return -ENODEV;
		if (member->parts[i]->draining || !member->parts[i]->attached)
			return -ESTALE;
	}
	kvpool_member_revoke(member, false);
	/* Devices may still write for it: QUIET once the process says so, or is gone. */
	member->former_incarnation = member->incarnation;
	member->former_state = KVPOOL_REAPER_CPU_FENCED;
	begin_incarnation(member, lease_ns, args);
	return 0;
}

static int join_new(struct kvpool_member *member, struct file **files, u32 count, u64 lease_ns,
		    struct kvpool_join *args)
{
	struct kvpool_open *open;
	struct kvpool_part *control = ((struct kvpool_open *)files[0]->private_data)->part;
	u32 i, k;
	int err;

	for (i = 0; i < count; i++) {
		open = files[i]->private_data;
		if (open->member)
			return -EBUSY;
		if (open->part->gone)
			return -ENODEV;
		if (open->part->draining || !open->part->attached)
			return -ESTALE;
	}
	if (control->slots == ~0ull)
		return -EUSERS;
	/* Takes the mmap lock; -EINTR on any signal. */
	err = mmu_notifier_register(&member->notifier, current->mm);
	if (err)
		return err;
	__module_get(THIS_MODULE);
	atomic_inc(&kvpool_live[KVPOOL_LIVE_MEMBERS]);
	mmgrab(current->mm);
	member->mm = current->mm;
	member->tgid = get_pid(task_tgid(current));
	member->slot = ffz(control->slots);
	control->slots |= 1ull << member->slot;
	for (i = 0; i < count; i++) {
		open = files[i]->private_data;
		for (k = 0; k < member->part_count; k++)
			if (member->parts[k] == open->part)
				break;
		if (k == member->part_count) {
			kref_get(&open->part->ref);
			open->part->members++;
			member->parts[member->part_count++] = open->part;
		}
		if (open->member)
			continue; /* the same descriptor twice */
		list_add_tail(&open->list, &member->opens);
		kref_get(&member->ref);
		WRITE_ONCE(open->member, member);
	}
	list_add_tail(&member->list, &kvpool_members);
	begin_incarnation(member, lease_ns, args);
	return 0;
}

static int attach_parts(struct kvpool *pool, struct file **files, u32 count)
{
	int err = 0;
	u32 i;

	for (i = 0; i < count && !err; i++)
		err = kvpool_call(pool, kvpool_part_attach,
				  ((struct kvpool_open *)files[i]->private_data)->part);
	return err;
}

static void hold_parts(struct file **files, u32 count, int by)
{
	u32 i;

	mutex_lock(&kvpool_lock);
	for (i = 0; i < count; i++)
		((struct kvpool_open *)files[i]->private_data)->part->attaching += by;
	mutex_unlock(&kvpool_lock);
}

/* files[0] is the control partition's. The caller checked that all are nodes of partitions. */
int kvpool_join(struct kvpool_join *args, struct file **files, u32 count)
{
	struct kvpool_open *open = files[0]->private_data;
	struct kvpool *pool = open->part->pool;
	u64 lease_ns = kvpool_lease_ns(args->lease_ms);
	struct kvpool_member *member;
	bool again = READ_ONCE(open->member);
	int err;

	if (open->part->type != KVPOOL_TYPE_WB)
		return -EMEDIUMTYPE;
	if (again) {
		mutex_lock(&kvpool_lock);
		err = READ_ONCE(pool->gone) ? -ENODEV :
		      join_again(open->member, files, count, lease_ns, args);
		mutex_unlock(&kvpool_lock);
	} else {
		member = new_member(args, count);
		if (!member)
			return -ENOMEM;
		hold_parts(files, count, 1);
		err = attach_parts(pool, files, count);
		if (!err) {
			mutex_lock(&kvpool_lock);
			err = READ_ONCE(pool->gone) ? -ENODEV :
			      join_new(member, files, count, lease_ns, args);
			mutex_unlock(&kvpool_lock);
		}
		hold_parts(files, count, -1);
		if (err)
			discard_member(member);
	}
	if (err) {
		kvpool_kick(pool);
		return err;
	}
	kvpool_call(pool, reap, NULL);
	kvpool_members_scan_soon();
	return 0;
}

/* Renewed in time, or never: a lease that ended stays ended. */
int kvpool_renew(struct kvpool_member *member, u64 *ret_deadline_ns)
{
	u64 deadline = 0;

	down_write(&member->sem);
	if (!member->revoked && !member->late)
		deadline = kvpool_lease_renew(ktime_get_boottime_ns(), member->deadline_ns,
					      member->lease_ns);
	if (deadline) {
		WRITE_ONCE(member->deadline_ns, deadline);
		WRITE_ONCE(kvpool_member_state(member)->deadline_ns, deadline);
	}
	up_write(&member->sem);
	if (!deadline)
		return -ESTALE;
	*ret_deadline_ns = deadline;
	return 0;
}

/* The live member says that its devices have stopped for what it was before. */
int kvpool_quiet(struct kvpool_member *member, u64 incarnation)
{
	struct kvpool *pool = member->parts[0]->pool;
	int err = -ESRCH;

	mutex_lock(&kvpool_lock);
	if (member->former_incarnation == incarnation) {
		member->former_state = KVPOOL_REAPER_QUIET;
		member->reaper_due = true;
		err = 0;
	}
	mutex_unlock(&kvpool_lock);
	return err ? err : kvpool_call(pool, reap, NULL);
}

/*
 * A descriptor is released: no mapping of it is left. With the last one the member has no way
 * back.
 */
void kvpool_member_release(struct kvpool_open *open)
{
	struct kvpool_member *member = open->member;

	if (!member)
		return;
	mutex_lock(&kvpool_lock);
	list_del(&open->list);
	if (list_empty(&member->opens))
		kvpool_member_revoke(member, true);
	mutex_unlock(&kvpool_lock);
	kvpool_member_put(member);
	kvpool_members_scan_soon();
}
