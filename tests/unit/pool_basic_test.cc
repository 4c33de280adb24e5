// SPDX-License-Identifier: Apache-2.0
// Shows: one owner and its members put, find, prove, evict, remove, pin and clear blocks as
// protocol.md says, and count the round trips it promises.
// How: threads over one store in anonymous memory (pool_fixture.hpp); real verbs, real rings.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

Test(pool_basic, put_found_by_another_member_and_proven, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  const pool::Hit hit = look(b, ns, 1);
  cr_assert(hit.presence == pool::Presence::kHit);
  cr_assert_eq(hit.check_hash, 1);
  cr_assert_eq(hit.payload_bytes, 64 * 1024);
  bool valid = false;
  cr_assert_eq(b->validate(&hit, 1, &valid), 0);
  cr_assert(valid);
  cr_assert(look(b, ns, 2).presence == pool::Presence::kMiss);
}

Test(pool_basic, second_put_of_a_key_exists_and_keeps_its_block, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  cr_assert_eq(put_block(b, ns, 1), -EEXIST);
  cr_assert_eq(put_block(b, ns, 2), 0);
}

Test(pool_basic, thousands_of_blocks_are_evicted_and_none_is_lost, .timeout = 60) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  u32 failed = 0;
  for (u64 k = 0; k < 4000; ++k) failed += put_block(k % 2 ? a : b, ns, k) != 0;
  cr_expect_lt(failed, 40u, "%u puts failed", failed);
  u32 found = 0;
  for (u64 k = 0; k < 4000; ++k) found += look(b, ns, k).presence == pool::Presence::kHit;
  cr_expect_gt(found, 300u, "%u found", found);
  cr_expect_gt(owner->stats().evicted, 2000u);
  cr_assert(look(a, ns, 3999).presence == pool::Presence::kHit);
}

Test(pool_basic, batches_of_publications_share_a_message_wave, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  pool::Block blocks[128];
  pool::Publication p[128];
  for (u32 round = 0; round < 3; ++round) {
    cr_assert_eq(a->reserve(64 * 1024, 128, a.in(5000), blocks), 0);
    for (u32 i = 0; i < 128; ++i) {
      p[i] = {};
      p[i].key = make_key(round * 1000 + i);
      p[i].ns = ns;
      p[i].block = blocks[i];
      p[i].payload_lines = 1024;
      p[i].check_hash = i;
    }
    cr_assert_eq(a->publish(p, 128, a.in(5000)), 0);
    for (u32 i = 0; i < 128; ++i) cr_assert_eq(p[i].result, 0, "%u: %d", i, p[i].result);
  }
  for (u32 i = 0; i < 128; ++i) cr_assert(look(a, ns, 2000 + i).presence == pool::Presence::kHit);
}

Test(pool_basic, runs_of_extents_and_small_classes, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1, 5 << 20), 0);
  cr_assert_eq(put_block(a, ns, 2, 4096), 0);
  cr_assert_eq(put_block(a, ns, 3, 2 << 20), 0);
  cr_assert_eq(look(a, ns, 1).payload_bytes, 5u << 20);
  cr_assert_eq(look(a, ns, 2).payload_bytes, 4096u);
  for (u64 k = 10; k < 60; ++k) cr_assert_eq(put_block(a, ns, k, 5 << 20), 0, "%lu", k);
  for (u64 k = 100; k < 400; ++k) cr_assert_eq(put_block(a, ns, k, 16384), 0, "%lu", k);
}

Test(pool_basic, removed_is_gone_and_may_come_again, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  const pool::Hit old = look(a, ns, 1);
  cr_assert_eq(a->remove(make_key(1), old.version + 1, a.in(1000)), -ESTALE);
  cr_assert_eq(a->remove(make_key(1), old.version, a.in(1000)), 0);
  cr_assert(look(a, ns, 1).presence == pool::Presence::kMiss);
  bool valid = true;
  cr_assert_eq(a->validate(&old, 1, &valid), 0);
  cr_assert_not(valid);
  cr_assert_eq(a->remove(make_key(1), 0, a.in(1000)), -ENOENT);
  cr_assert_eq(put_block(a, ns, 1), 0);
  cr_assert_neq(look(a, ns, 1).version, old.version);
}

Test(pool_basic, clear_and_bypass_bind_what_begins_after_their_answer, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  media::NsAnswer answer;
  cr_assert_eq(ns_control(a, ns.id, 0, media::NsOp::kBypassOn, answer), 0);
  cr_assert(look(a, ns, 1).reason == pool::MissReason::kBypassed);
  cr_assert_eq(put_block(a, ns, 2), -EPERM);
  cr_assert_eq(ns_control(a, ns.id, 0, media::NsOp::kBypassOff, answer), 0);
  cr_assert(look(a, ns, 1).presence == pool::Presence::kHit);
  cr_assert_eq(ns_control(a, ns.id, ns.epoch, media::NsOp::kClear, answer), 0);
  cr_assert_eq(answer.epoch, ns.epoch + 1);
  cr_assert(look(a, ns, 1).reason == pool::MissReason::kCleared);
  cr_assert_eq(put_block(a, ns, 3), -ESTALE, "a key of the old epoch");
  cr_assert_eq(put_block(a, {ns.id, answer.epoch}, 3), 0);
}

// Guards: a request to clear, bypass or remove that was on its way while its namespace was removed
// bound the one that had got its place.
Test(pool_basic, requests_name_their_namespace, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a, 7);
  cr_assert_eq(put_block(a, ns, 1), 0);
  media::NsAnswer answer;
  for (const media::NsOp op : {media::NsOp::kBypassOn, media::NsOp::kBypassOff, media::NsOp::kClear,
                               media::NsOp::kRemove}) {
    for (const u32 epoch : {0u, ns.epoch}) {
      cr_expect_eq(ns_control(a, ns.id, epoch, op, answer, 8), -ENOENT);
    }
  }
  cr_expect_eq(look(a, ns, 1).presence, pool::Presence::kHit);
  cr_expect_eq(ns_control(a, ns.id, ns.epoch, media::NsOp::kRemove, answer, 7), 0);
  cr_expect_eq(ns_control(a, ns.id, 0, media::NsOp::kBypassOn, answer, 7), -ENOENT);
}

// Guards: blocks of a removed or cleared namespace stayed until somebody needed their room.
Test(pool_basic, removed_and_cleared_namespaces_are_emptied, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  for (const media::NsOp op : {media::NsOp::kClear, media::NsOp::kRemove}) {
    const pool::NsRef ns = open_ns(a);
    const auto left = [&] {
      u32 blocks = 0;
      for (u32 n = 0; n < owner->index().count(); ++n) {
        const auto &e = owner->index().entry(n);
        blocks += e.ns == ns.id && e.entry_state() != media::EntryState::kEmpty;
      }
      return blocks;
    };
    for (u64 k = 0; k < 200; ++k) cr_assert_eq(put_block(a, ns, k), 0);
    cr_assert_eq(a->pending(ns, make_key(500), 60'000), 0);
    cr_assert(within_ms(1000, [&] { return left() == 201; }));
    media::NsAnswer answer;
    cr_assert_eq(ns_control(a, ns.id, ns.epoch, op, answer), 0);
    cr_assert(look(a, ns, 1).presence != pool::Presence::kHit);
    cr_assert(within_ms(2000, [&] { return left() == 0; }), "%u", left());
    cr_assert_eq(owner->stats().evicted, 0u, "nobody's blocks made room for others");
  }
}

Test(pool_basic, pinned_block_outlives_removal_and_eviction_until_it_expires, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  const pool::Hit hit = look(b, ns, 1);
  pool::Pin pin;
  cr_assert_eq(b->pin(hit, make_key(1), 60'000, b.in(1000), pin), 0);
  for (u64 k = 10; k < 3000; ++k) put_block(a, ns, k);
  media::Entry entry;
  cr_assert(b->reader().read_entry(*b->session(), hit.entry, entry));
  cr_assert_eq(entry.version, hit.version, "a pinned block keeps its entry");
  b->unpin(pin);
  for (u64 k = 3000; k < 4000; ++k) put_block(a, ns, k);
  b->env().memory().acquire(b->reader().entry_at(*b->session(), hit.entry), 64);
  cr_assert(b->reader().read_entry(*b->session(), hit.entry, entry));
}

Test(pool_basic, pending_is_seen_and_replaced, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 50), 0);
  cr_assert_eq(a->pending(ns, make_key(1), 60'000), 0);
  pool::Hit hit;
  cr_assert(within_ms(5000, [&] {
    hit = look(b, ns, 1);
    return hit.presence == pool::Presence::kPending;
  }));
  cr_assert_eq(hit.pending_ms, 60'000u);
  cr_assert_eq(put_block(b, ns, 1), 0);
  cr_assert(look(a, ns, 1).presence == pool::Presence::kHit);
}

// Guards: extents that stood idle with their member, of another size, were nobody's to ask for.
Test(pool_basic, a_member_gives_way_to_its_own_wish, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  std::vector<pool::Block> all;
  pool::Block block;
  while (a->reserve(2 << 20, 1, a.in(300), &block) == 0) all.push_back(block);
  cr_assert_geq(all.size(), 4u);
  for (const pool::Block &b : all) a->abort(b);
  cr_expect_eq(a->reserve(64 * 1024, 1, a.in(2000), &block), 0);
}

// Guards: where the oldest blocks all had children, none was evicted for the quota.
Test(pool_basic, quota_of_a_long_chain_evicts_its_oldest, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  constexpr u64 kBlock = 4096, kBlocks = 700;
  const pool::NsRef ns = open_ns(a, 1, kBlocks * 8192);
  u64 refused = 0;
  for (u64 key = 1; key <= 3 * kBlocks; ++key) {
    pool::Publication p;
    cr_assert_eq(a->reserve(media::block_shape(kBlock, 1).block_bytes(), 1, a.in(5000), &p.block),
                 0);
    p.key = make_key(key);
    p.parent = key > 1 ? make_key(key - 1).w[0] : 0;
    p.ns = ns;
    p.payload_lines = kBlock / kLineBytes;
    cr_assert_eq(a->publish(&p, 1, a.in(5000)), 0);
    if (p.result == 0) continue;
    a->abort(p.block);
    ++refused;
  }
  cr_expect_eq(refused, 0);
}

Test(pool_basic, quota_of_a_namespace_evicts_its_own, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef big = open_ns(a, 1), small = open_ns(a, 2, 8 * 64 * 1024);
  cr_assert_eq(put_block(a, big, 1), 0);
  for (u64 k = 100; k < 140; ++k) cr_assert_eq(put_block(a, small, k), 0);
  u32 found = 0;
  for (u64 k = 100; k < 140; ++k) found += look(a, small, k).presence == pool::Presence::kHit;
  cr_assert_leq(found, 8u);
  cr_assert(look(a, big, 1).presence == pool::Presence::kHit);
}

Test(pool_basic, round_trips_are_those_of_the_protocol, .timeout = 30) {
  TestStore store;
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  a.freeze(true);  // its keeper counts on the keeper's thread anyway
  cr_assert_eq(put_block(a, ns, 1), 0);
  pool::Block block;
  cr_assert_eq(a->reserve(64 * 1024, 1, a.in(1000), &block), 0);
  Counters &c = store.memory().counters();
  Counters before = c;
  pool::Publication p;
  p.key = make_key(2);
  p.ns = ns;
  p.block = block;
  p.payload_lines = 1024;
  cr_assert_eq(a->publish(&p, 1, a.in(1000)), 0);
  cr_assert_eq(c.message_pairs - before.message_pairs, 1);
  before = c;
  const pool::Hit hit = look(a, ns, 2);
  cr_assert_eq(c.round_trips - before.round_trips, 1);
  before = c;
  bool valid;
  cr_assert_eq(a->validate(&hit, 1, &valid), 0);
  cr_assert(valid);
  cr_assert_eq(c.round_trips - before.round_trips, 1);
}
