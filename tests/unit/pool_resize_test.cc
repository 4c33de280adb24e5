// SPDX-License-Identifier: Apache-2.0
// Shows: a pool grows and shrinks while members go on: new extents are granted, what stays is found
// where it was, what goes was recalled and evicted first, waits for pins and for members' hands,
// and comes back as it was when the pool grows again. Whoever stops asking leaves it as it was.
// How: an owner and members as threads over one store in anonymous memory with room behind it.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

constexpr u64 kBlock = 1 << 20;
constexpr u64 kMiB = 1 << 20;
constexpr u64 kSmall = 32 * kMiB, kLarge = 64 * kMiB, kRoom = 128 * kMiB;

media::FormatOptions options() {
  media::FormatOptions o = lease_of(400);
  o.map_growth = 8;
  return o;
}

const media::RegionTable &regions_of(LiveMember &member) {
  cr_assert_eq(member->follow_owner(), 0);
  return member->session()->regions;
}

// One question; what the owner says to it.
int ask(TestStore &store, LiveMember &member, u64 bytes, media::ResizeAnswer &ret) {
  media::RegionTable wanted;
  const int err = media::plan_resize(store.geometry(), regions_of(member), bytes, wanted, nullptr);
  cr_assert_eq(err, 0, "plan: %d", err);
  return member->resize(bytes, wanted.extents_in_use(), member.in(5000), ret);
}

bool resized(TestStore &store, LiveMember &member, u64 bytes, int ms = 10'000) {
  media::ResizeAnswer answer{};
  return within_ms(ms, [&] {
    const int err = ask(store, member, bytes, answer);
    cr_assert(err == 0 || err == -EBUSY || err == -EAGAIN, "resize: %d", err);
    return err == 0;
  });
}

// Puts until the pool is full; returns how many keys are found then.
u64 fill(LiveMember &member, pool::NsRef ns, u64 first, u64 count) {
  u64 found = 0;
  for (u64 key = first; key < first + count; ++key) {
    cr_assert(within_ms(5000, [&] { return put_block(member, ns, key, kBlock) == 0; }));
  }
  for (u64 key = first; key < first + count; ++key) {
    found += look(member, ns, key).presence == pool::Presence::kHit;
  }
  return found;
}

u32 extent_of(const media::RegionTable &regions, const pool::Hit &hit) {
  return regions.extent_of(hit.address);
}

}  // namespace

Test(pool_resize, a_full_pool_grows_and_keeps_what_it_has, .timeout = 60) {
  TestStore store(options(), kSmall, kRoom);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  const u32 extents = regions_of(a).extents_in_use();
  const u64 blocks = extents * 2;
  fill(a, ns, 0, blocks + 4);
  const pool::Hit before = look(b, ns, blocks + 3);
  cr_assert_eq(before.presence, pool::Presence::kHit);

  cr_assert(resized(store, a, kLarge));
  const media::RegionTable &grown = regions_of(a);
  cr_expect_eq(media::pool_bytes_in_use(store.geometry(), grown), kLarge);
  cr_expect_gt(grown.extents_in_use(), extents + 14);
  const pool::Hit after = look(b, ns, blocks + 3);
  cr_expect_eq(after.presence, pool::Presence::kHit);
  cr_expect_eq(after.address, before.address);
  cr_expect_eq(after.version, before.version);
  const u64 more = (grown.extents_in_use() - extents - 3) * 2;
  cr_expect_eq(fill(a, ns, 1000, more), more, "there is room for all of them");
  u32 highest = 0;
  for (u64 key = 1000; key < 1000 + more; ++key) {
    highest = std::max(highest, extent_of(grown, look(a, ns, key)));
  }
  cr_expect_geq(highest, extents, "new extents are granted");
  cr_expect(resized(store, a, kLarge), "it has that size already");
}

Test(pool_resize, a_shrinking_pool_empties_what_goes_and_grows_back, .timeout = 60) {
  TestStore store(options(), kSmall, kRoom);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert(resized(store, a, kLarge));
  const media::RegionTable grown = regions_of(a);
  fill(a, ns, 0, grown.extents_in_use() * 2 - 6);
  // In b's hand, idle: a RECALL by number fetches it.
  pool::Block block;
  cr_assert_eq(b->reserve(kBlock, 1, b.in(5000), &block), 0);
  b->abort(block);

  cr_assert(resized(store, a, kSmall));
  const media::RegionTable &shrunk = regions_of(a);
  cr_expect_eq(media::pool_bytes_in_use(store.geometry(), shrunk), kSmall);
  const u32 limit = shrunk.extents_in_use();
  cr_expect_lt(limit, grown.extents_in_use());
  u64 left = 0;
  for (u64 key = 0; key < grown.extents_in_use() * 2; ++key) {
    const pool::Hit hit = look(b, ns, key);
    if (hit.presence != pool::Presence::kHit) continue;
    ++left;
    cr_expect_lt(extent_of(grown, hit), limit, "key %lu", key);
    cr_expect_neq(shrunk.data_at(hit.address), kNoOffset);
  }
  cr_expect_gt(left, limit, "what is not in the way stays");
  fill(b, ns, 1000, limit * 4);  // evicts as any full pool does
  for (u64 key = 1000; key < 1000 + limit * 4; ++key) {
    const pool::Hit hit = look(b, ns, key);
    if (hit.presence == pool::Presence::kHit) cr_expect_lt(extent_of(grown, hit), limit);
  }
  cr_assert(resized(store, a, kLarge));
  cr_expect(regions_of(a) == grown, "the extents come back where they were");
  const u64 again = (grown.extents_in_use() - limit - 3) * 2;
  cr_expect_eq(fill(a, ns, 5000, again), again);
}

Test(pool_resize, shrinking_waits_for_pins_and_hands, .timeout = 60) {
  TestStore store(options(), kSmall, kRoom);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  const media::RegionTable before = regions_of(a);
  const u64 keys = before.extents_in_use() * 2 - 6;
  fill(a, ns, 0, keys);
  u64 key = keys;
  pool::Hit hit;
  for (u64 k = 0; k < keys; ++k) {  // in the last extent that has a block
    const pool::Hit h = look(b, ns, k);
    if (h.presence != pool::Presence::kHit || (key < keys && h.address < hit.address)) continue;
    hit = h;
    key = k;
  }
  cr_assert_lt(key, keys);
  pool::Pin pin;
  cr_assert_eq(b->pin(hit, make_key(key), 60'000, b.in(5000), pin), 0);
  const u64 target = media::pool_bytes_in_use(store.geometry(), before) -
                     (before.extents_in_use() - extent_of(before, hit)) * before.extent_bytes();
  cr_expect_not(resized(store, a, target, 300), "a pinned block is in the way");
  media::ResizeAnswer answer{};
  cr_expect_eq(ask(store, a, target, answer), -EBUSY);
  cr_expect_geq(answer.pinned, 1);
  cr_expect_geq(answer.leaving, 1);
  b->unpin(pin);
  cr_expect(resized(store, a, target), "it is not pinned any more");
  // A block being written holds its extent; nothing else of it is taken.
  constexpr u32 kTries = 16;
  pool::Block block[kTries];
  const media::RegionTable now = regions_of(a);
  const u64 least = (now.extents_in_use() - 4) * now.extent_bytes();
  const u64 smaller = media::pool_bytes_in_use(store.geometry(), now) - least;
  u32 got = 0;
  for (; got < kTries && b->reserve(kBlock, 1, b.in(5000), &block[got]) == 0; ++got) {
    if (block[got].extent >= 4) break;
  }
  cr_assert(got < kTries && block[got].extent >= 4);
  cr_expect_not(resized(store, a, smaller, 300), "a member writes there");
  b->abort(block[got]);
  cr_expect(resized(store, a, smaller));
  cr_expect_eq(regions_of(a).extents_in_use(), 4);
}

Test(pool_resize, who_stops_asking_leaves_the_pool_as_it_was, .timeout = 60) {
  TestStore store(options(), kSmall, kRoom);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  const u32 extents = regions_of(a).extents_in_use();
  pool::Block held;
  cr_assert_eq(b->reserve(kBlock, 1, b.in(5000), &held), 0);
  while (held.extent < 2) cr_assert_eq(b->reserve(kBlock, 1, b.in(5000), &held), 0);
  media::ResizeAnswer answer{};
  const u64 target = media::pool_bytes_in_use(store.geometry(), regions_of(a)) -
                     (extents - 2) * regions_of(a).extent_bytes();
  cr_expect_eq(ask(store, a, target, answer), -EBUSY);
  wait_ms(1000);  // two leases
  const u64 keys = extents;  // half of the pool, from either end
  cr_expect_eq(fill(a, ns, 0, keys), keys, "all extents are granted again");
  cr_expect_eq(regions_of(a).extents_in_use(), extents);
  cr_expect_eq(ask(store, a, target, answer), -EBUSY);
  cr_expect_eq(a->resize(0, 0, a.in(5000), answer), 0, "given up by a word");
  cr_expect_eq(answer.extents, extents);
  cr_expect_eq(fill(a, ns, 1000, 2), 2);
}

// The owner dies while it empties extents, and after it retired them: the next one goes on from
// what is on the medium, and members that did not look meanwhile follow.
Test(pool_resize, owners_change_while_it_shrinks, .timeout = 60) {
  TestStore store(options(), kSmall, kRoom);
  auto first = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert(resized(store, a, kLarge));
  const media::RegionTable grown = regions_of(a);
  fill(a, ns, 0, 40);
  pool::Block held;
  do {
    cr_assert_eq(b->reserve(kBlock, 1, b.in(5000), &held), 0);
  } while (held.extent < grown.extents_in_use() / 2 + 2);
  cr_expect_not(resized(store, a, kSmall, 200));
  first->stop();
  ServingOwner second(store, 4, 1);
  cr_expect(regions_of(a) == grown, "what was begun is forgotten");
  cr_expect_not(resized(store, a, kSmall, 200), "still held");
  b->abort(held);
  cr_assert(resized(store, a, kSmall));
  second.stop();
  ServingOwner third(store, 5);
  const media::RegionTable &now = regions_of(b);
  cr_expect_eq(media::pool_bytes_in_use(store.geometry(), now), kSmall);
  fill(b, ns, 1000, now.extents_in_use() * 3);
  for (u64 key = 1000; key < 1000 + now.extents_in_use() * 3; ++key) {
    const pool::Hit hit = look(b, ns, key);
    if (hit.presence != pool::Presence::kHit) continue;
    cr_expect_lt(extent_of(grown, hit), now.extents_in_use());
  }
}

// Bytes that are not there, or another plan than the owner's: refused, and nothing changes.
Test(pool_resize, what_cannot_be_touched_is_not_named, .timeout = 60) {
  TestStore store(options(), kSmall, kSmall + 8 * kMiB);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const media::RegionTable before = regions_of(a);
  const u32 epoch = owner->epoch();
  media::ResizeAnswer answer{};
  cr_expect_eq(ask(store, a, kLarge, answer), -EINVAL, "no such bytes");
  cr_expect_eq(a->resize(kSmall + 8 * kMiB, before.extents_in_use() + 100, a.in(5000), answer),
               -EINVAL, "another plan");
  cr_expect_eq(a->resize(kSmall + 12345, before.extents_in_use(), a.in(5000), answer), -EINVAL);
  cr_expect(regions_of(a) == before);
  cr_expect_eq(owner->epoch(), epoch);
  cr_expect(resized(store, a, kSmall + 8 * kMiB));
}

// proto 14: a candidate that cannot map the pool as it is would leave a claim above the owner's
// epoch, and no answer would count any more.
Test(pool_resize, who_cannot_map_the_pool_does_not_claim_it, .timeout = 60) {
  media::FormatOptions patient = options();
  patient.lease_ms = 10'000;
  TestStore store(patient, kSmall, kRoom);
  auto env = store.process(9);
  Member candidate(*env, store.geometry());
  cr_assert_eq(candidate.join({.standby_slot = 1}), 0, "while the pool is small");
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  cr_assert(resized(store, a, kLarge));
  env->map_at_most(kSmall);
  Owner late(*env, candidate);
  cr_expect_eq(late.take_over(1), -EFBIG);
  const pool::ClaimView view = a->claims().read();
  cr_expect_eq(view.highest_claimed, owner->epoch(), "it looked before it claimed");
  cr_expect_eq(put_block(a, open_ns(a), 1, kBlock), 0, "answers count as before");
  env->map_at_most(kRoom);
  cr_expect_eq(late.take_over(1), 0);
}

// A run over the new end goes as a whole.
Test(pool_resize, a_run_over_the_new_end_goes, .timeout = 60) {
  TestStore store(options(), kSmall, kRoom);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  constexpr u64 kRun = 5 * kMiB;
  u64 keys = 0;
  while (put_block(a, ns, keys, kRun) == 0 && ++keys < 4) {
  }
  cr_assert_geq(keys, 3);
  const media::RegionTable before = regions_of(a);
  const pool::Hit low = look(a, ns, 0), over = look(a, ns, 1);
  cr_assert(low.presence == pool::Presence::kHit && over.presence == pool::Presence::kHit);
  const u32 cut = std::max(extent_of(before, low), extent_of(before, over)) + 1;
  const u64 target = media::pool_bytes_in_use(store.geometry(), before) -
                     (before.extents_in_use() - cut) * before.extent_bytes();
  cr_assert(resized(store, a, target));
  cr_expect_eq(regions_of(a).extents_in_use(), cut);
  const u64 gone = extent_of(before, low) < extent_of(before, over) ? 1 : 0;
  cr_expect_neq(look(a, ns, gone).presence, pool::Presence::kHit, "it reached over the end");
  for (u64 key = 0; key < keys; ++key) {
    const pool::Hit hit = look(a, ns, key);
    if (hit.presence != pool::Presence::kHit) continue;
    cr_expect(regions_of(a).holds(hit.address, kRun));
  }
}
