/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who administers: the host with the highest active claim. Decisions on claim lines that were
 * read; reading and writing them in the right order is the caller's (kmod/admin.c). The rules
 * are those of an owner's take-over.
 */
#ifndef KVPOOL_LOGIC_CLAIMS_H
#define KVPOOL_LOGIC_CLAIMS_H

#include "env.h"

struct kvpool_claim_view {
	bool readable; /* one copy at least verified */
	u64 claimed;
	u64 active;
	u64 generation;
	u64 sequence;
	u32 table;
};

#define KVPOOL_EPOCH_HOST_BITS 8
/* A counter so far above the others is damage, not an epoch. */
#define KVPOOL_EPOCH_JUMP_MAX (1ull << 16)

static inline u32 kvpool_epoch_host(u64 epoch)
{
	return epoch & ((1u << KVPOOL_EPOCH_HOST_BITS) - 1);
}

/*
 * Takes one copy into the view of a host: of two the higher claim wins, then active, then
 * sequence.
 */
void kvpool_claim_merge(struct kvpool_claim_view *view, const union kvpool_line *copy, u32 host);
void kvpool_claim_make(const struct kvpool_claim_view *view, u32 host, union kvpool_line *line);

/* The host whose table is in force, or -ENOENT: nobody's. -EUCLEAN: a claim is damage. */
int kvpool_claims_in_force(const struct kvpool_claim_view *views, u32 count);
/*
 * The epoch that `host` may claim: above all. -EIO: a claim cannot be read, so nothing is above
 * all.
 */
int kvpool_claims_next(const struct kvpool_claim_view *views, u32 count, u32 host, u64 *ret_epoch);
/*
 * What an administrator knows of units counts under the epoch in which he learned it: whoever
 * administered in between has given them to somebody. Clears the bits if `bound` is another one.
 */
void kvpool_bits_bind(u8 *bits, u32 bytes, u64 *bound, u64 epoch);
/* Whether somebody claimed above this epoch, or may have: what cannot be read counts as higher. */
bool kvpool_claims_outbid(const struct kvpool_claim_view *views, u32 count, u64 epoch);

#endif
