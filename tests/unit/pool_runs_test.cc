// SPDX-License-Identifier: Apache-2.0
// Shows: a block larger than an extent, put into a full store among small blocks, costs about the
// room that it needs, and gets it: pinned blocks, other members' grants and other runs included.
// How: an owner and members as threads over one store in anonymous memory, with a grace far longer
// than a member waits between two tries.
#include <random>

#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

constexpr u64 kSmall = 64 * 1024, kPool = u64{256} << 20, kFill = 5000;

media::FormatOptions long_grace() {
  media::FormatOptions options = lease_of(2000);
  options.grace_us = 40'000;
  return options;
}

u64 small_per_extent(const TestStore &store) { return store.geometry().extent_bytes() / kSmall; }

// More than fits, so that what comes next needs room.
void fill(LiveMember &member, pool::NsRef ns, u64 blocks = kFill) {
  for (u64 k = 0; k < blocks; ++k) {
    const int err = put_block(member, ns, k, kSmall);
    cr_assert(err == 0 || err == -ENOSPC, "%d", err);  // the index may have no line for a key
  }
  wait_ms(200);
}

}  // namespace

// Guards: every try for a run, while the grace of the one before went on, emptied another one.
Test(pool_runs, one_run_does_not_evict_the_whole_pool, .timeout = 30) {
  TestStore store(long_grace(), kPool);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  fill(a, ns);
  const u64 before = owner->stats().evicted;
  pool::Publication p;
  cr_assert_eq(put_block(a, ns, 5000, 15 << 20, &p), 0);
  cr_assert_leq(owner->stats().evicted - before,
                (p.block.run_extents + 3) * small_per_extent(store), "%lu for a run of %u",
                owner->stats().evicted - before, p.block.run_extents);
}

// Shows: so too while another member puts small blocks all the time, with grants of its own.
Test(pool_runs, runs_beside_small_blocks_cost_about_their_room, .timeout = 60) {
  TestStore store(long_grace(), kPool);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  fill(a, ns);
  std::atomic<bool> stop{false};
  std::atomic<u64> puts{0};
  std::thread other([&] {
    for (u64 k = 100'000; !stop; ++k) {
      if (put_block(b, ns, k, kSmall) == 0) ++puts;
      wait_ms(1);
    }
  });
  wait_ms(100);
  const u64 before = owner->stats().evicted, puts_before = puts;
  constexpr u64 kRuns = 8;
  u32 length = 0;
  for (u64 k = 0; k < kRuns; ++k) {
    pool::Publication p;
    cr_assert_eq(put_block(a, ns, 5000 + k, 15 << 20, &p), 0);
    length = p.block.run_extents;
  }
  const u64 evicted = owner->stats().evicted - before, others = puts - puts_before;
  stop = true;
  other.join();
  cr_assert_gt(others, 0u);
  cr_assert_leq(evicted, others + (kRuns * length * 3 / 2 + 4) * small_per_extent(store),
                "%lu for %lu runs of %u and %lu blocks", evicted, kRuns, length, others);
}

// Guards: places with pinned blocks were emptied for a run, which could not have them.
Test(pool_runs, pinned_blocks_do_not_starve_a_run, .timeout = 60) {
  TestStore store(long_grace(), kPool);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  fill(a, ns);
  u32 pinned = 0;
  std::vector<bool> has(store.regions().extent_count());
  for (u64 k = 0; k < kFill; ++k) {
    const pool::Hit hit = look(a, ns, k);
    if (hit.presence != pool::Presence::kHit) continue;
    const u32 extent = store.regions().extent_of(hit.address);
    if (has[extent] || extent < 8) continue;
    has[extent] = true;
    pool::Pin pin;
    if (a->pin(hit, make_key(k), 60'000, a.in(1000), pin) == 0) ++pinned;
  }
  cr_assert_gt(pinned, 4u);
  const u64 before = owner->stats().evicted;
  pool::Publication p;
  cr_assert_eq(put_block(a, ns, 5000, 7 << 20, &p), 0);
  cr_assert_leq(owner->stats().evicted - before, 12 * small_per_extent(store), "%lu",
                owner->stats().evicted - before);
}

// Shows: several members that want runs of different lengths all get them.
Test(pool_runs, members_with_different_lengths_all_get_theirs, .timeout = 60) {
  TestStore store(long_grace(), kPool);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3), c(store, 4);
  const pool::NsRef ns = open_ns(a);
  fill(a, ns);
  std::atomic<u32> failed{0};
  const auto put_some = [&](LiveMember &member, u64 key, u64 bytes, u32 count) {
    for (u32 i = 0; i < count; ++i) {
      if (put_block(member, ns, key + i, bytes) != 0) ++failed;
    }
  };
  std::thread one([&] { put_some(b, 10'000, 3 << 20, 20); });
  std::thread two([&] { put_some(c, 20'000, 11 << 20, 10); });
  put_some(a, 30'000, 7 << 20, 10);
  one.join();
  two.join();
  cr_assert_eq(failed, 0u);
}

// Shows: the metric is what could be granted: a run ends where an extent is held or out of use, at
// the limit, and where its region does. Compared with the search itself over random holders.
Test(pool_runs, longest_free_run_is_what_can_be_granted) {
  media::RegionTable regions{};
  regions.extent_stripes = 1;
  u32 first = 0;
  for (const u32 extents : {5u, 130u, 64u, 1u}) {
    media::Region &region = regions.region[regions.count++];
    region.first_extent = first;
    region.extent_count = extents;
    region.place_count = 1;
    first += extents;
  }
  pool::SpaceMap space;
  space.reset(regions);
  cr_assert_eq(space.largest_free_run(), 130u);
  std::mt19937 random(7);
  media::MapRecord held = space.at(0).record;
  held.holder = 3;
  for (u32 step = 0; step < 400; ++step) {
    const u32 extent = random() % first;
    media::MapRecord record = space.at(extent).record;
    record.holder = random() % 4 == 0 ? media::kHolderOwner : held.holder;
    space.set_record(extent, record);
    if (step % 8 == 0) space.set_out(random() % first, random() % 2);
    if (step % 50 == 49) space.set_limit(first - random() % 100);
    const u32 run = space.largest_free_run();
    if (run > 0) cr_assert_neq(space.pick_free_run(run), pool::SpaceMap::kNone, "%u", step);
    cr_assert_eq(space.pick_free_run(run + 1), pool::SpaceMap::kNone, "%u", step);
  }
}
