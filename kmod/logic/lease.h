/* SPDX-License-Identifier: GPL-2.0-only */
/* Leases of members. Times are nanoseconds of CLOCK_BOOTTIME. */
#ifndef KVPOOL_LOGIC_LEASE_H
#define KVPOOL_LOGIC_LEASE_H

#include "env.h"

#define KVPOOL_LEASE_MS_DEFAULT 10000u
#define KVPOOL_LEASE_MS_MIN 100u
#define KVPOOL_LEASE_MS_MAX 600000u

/* Length in ns of a lease that a caller asked for, 0 if it is none. */
static inline u64 kvpool_lease_ns(u32 lease_ms)
{
	if (!lease_ms)
		lease_ms = KVPOOL_LEASE_MS_DEFAULT;
	if (lease_ms < KVPOOL_LEASE_MS_MIN || lease_ms > KVPOOL_LEASE_MS_MAX)
		return 0;
	return lease_ms * 1000000ull;
}

static inline bool kvpool_lease_over(u64 now_ns, u64 deadline_ns)
{
	return now_ns >= deadline_ns;
}

/*
 * The new deadline, or 0: it is too late, and late stays late. Time that runs backwards renews
 * nothing.
 */
static inline u64 kvpool_lease_renew(u64 now_ns, u64 deadline_ns, u64 lease_ns)
{
	if (kvpool_lease_over(now_ns, deadline_ns))
		return 0;
	return now_ns + lease_ns > deadline_ns ? now_ns + lease_ns : deadline_ns;
}

#endif
