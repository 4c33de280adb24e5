// SPDX-License-Identifier: Apache-2.0
// Batches of a namespace: lookups with components, puts and gets with their counts, removals. Binds
// the Store template to a context; owns no state.
#pragma once

#include "store/namespace.hpp"

namespace kvpool::store {

// Looks `count` keys of a chain up. ret_hits (may be null) gets component_count records a key,
// those of a key together; `known` (may be null) says which were looked at. Returns the length of
// the longest prefix at which every component's policy holds, or -errno.
int lookup_prefix(Namespace &ns, const Key *keys, u64 count, bool all, pool::Hit *ret_hits,
                  u8 *ret_known);

// Length of the longest usable prefix of `count` blocks, where there(i, c) says whether block i has
// component c (movement.md, layout).
template <class There>
u64 usable_prefix(std::span<const Component> components, u64 count, There &&there) {
  u64 prefix = count;
  for (u32 c = 0; c < components.size(); ++c) {
    if (components[c].trailing != 0) continue;
    u64 i = 0;
    while (i < prefix && there(i, c)) ++i;
    prefix = i;
  }
  u64 runs[kComponentsMax] =
      {};  // blocks in a row, up to the one looked at, that have the component
  u64 best = 0;
  for (u64 i = 0; i < prefix; ++i) {
    bool holds = true;
    for (u32 c = 0; c < components.size(); ++c) {
      const u64 trailing = components[c].trailing;
      if (trailing == 0) continue;
      runs[c] = there(i, c) ? runs[c] + 1 : 0;
      holds = holds && runs[c] >= std::min(trailing, i + 1);
    }
    if (holds) best = i + 1;
  }
  return best;
}

// put: 0 or what ended the batch early; statuses as in Store::put.
int put_batch(Namespace &ns, std::span<PutBlock> blocks, u64 deadline,
              const std::atomic<bool> *cancelled);

// get: the same. Damaged blocks are reported and removed.
int get_batch(Namespace &ns, std::span<GetBlock> blocks, u64 deadline,
              const std::atomic<bool> *cancelled);
int get_rows(Namespace &ns, std::span<GetBlock> blocks, const transfer::RowsPlan &plan,
             u64 deadline);

// How many of `count` blocks there were, or -errno if none could be asked for.
int remove_batch(Namespace &ns, const Key *keys, u64 count, u64 deadline);

}  // namespace kvpool::store
