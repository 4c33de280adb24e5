// SPDX-License-Identifier: Apache-2.0
// Shows: what a take-over, a rejoin and a death must carry over is carried over: reports that are
// owed, the word of a dead member's group, quotas; and what a damaged medium says is not believed.
// How: threads over one store in anonymous memory; the test kills "processes", freezes members and
// writes lines and words of the medium itself.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

// A line as it is seen in the middle of a store; `ret_good` is what it was.
void tear(TestStore &store, PoolOffset at, Line &ret_good) {
  cr_assert(store.memory().load_line(at, ret_good));
  Line torn = ret_good;
  torn.w[1] ^= 1;
  store.memory().publish_line(at, torn);
}

}  // namespace

// Guards: a rejoined member believed that its line still said HOLDS and PINS.
Test(pool_recovery, rejoined_member_announces_what_it_holds_and_pins, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const PoolOffset at = store.geometry().member_at(a->slot());
  const auto flags = [&] {
    Line line;
    store.memory().acquire(at, kLineBytes);
    cr_assert(store.memory().load_line(at, line));
    return u32{media::from_line<media::MemberLine>(line).flags};
  };
  const auto put_and_pin = [&](u64 key) {
    cr_assert_eq(put_block(a, ns, key), 0);
    pool::Pin pin;
    cr_assert_eq(a->pin(look(a, ns, key), make_key(key), 20'000, a.in(1000), pin), 0);
  };
  put_and_pin(1);
  cr_assert_eq(flags(), u32{media::kMemberHolds | media::kMemberPins});
  a.freeze(true);
  wait_ms(400);
  cr_assert_eq(a->tick(), -ESTALE);
  cr_assert_eq(a->rejoin(), 0);
  a.freeze(false);
  cr_assert_eq(flags(), 0u, "a new incarnation owes no report");
  put_and_pin(2);
  cr_assert_eq(flags(), u32{media::kMemberHolds | media::kMemberPins});
}

// Guards: a request that waited for an owner while its member joined anew was announced by the dead
// incarnation only.
Test(pool_recovery, rejoin_while_a_request_waits_leaves_nothing_unannounced, .timeout = 30) {
  for (const bool pins : {false, true}) {
    TestStore store(lease_of(1000));
    auto owner = std::make_unique<ServingOwner>(store, 1);
    LiveMember a(store, 2), b(store, 3);
    const pool::NsRef ns = open_ns(a);
    cr_assert_eq(put_block(b, ns, 1), 0);
    const pool::Hit hit = look(a, ns, 1);
    const auto flags = [&] {
      Line line;
      const PoolOffset at = store.geometry().member_at(a->slot());
      store.memory().acquire(at, kLineBytes);
      cr_assert(store.memory().load_line(at, line));
      return u32{media::from_line<media::MemberLine>(line).flags};
    };
    owner->stop();
    a->remove(make_key(77), 0, a.in(50));  // so that it has seen that its owner is gone
    std::atomic<int> result{1};
    std::thread asks([&] {
      if (pins) {
        pool::Pin pin;
        result = a->pin(hit, make_key(1), 20'000, a.in(10'000), pin);
      } else {
        pool::Block block;
        result = a->reserve(64 * 1024, 1, a.in(10'000), &block);
      }
    });
    wait_ms(100);
    cr_assert_eq(result, 1, "it waits for an owner");
    cr_assert_eq(a->rejoin(), 0);  // a line without flags, until the call says them again
    ServingOwner next(store, 4);
    asks.join();
    cr_assert_eq(result, 0);
    cr_assert_eq(flags(), u32{pins ? media::kMemberPins : media::kMemberHolds});
  }
}

// Guards: a member line that was torn at activation lost that member's pins and reports.
Test(pool_recovery, member_whose_line_cannot_be_read_still_owes_its_report, .timeout = 30) {
  TestStore store(lease_of(2000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 2), 0);
  pool::Pin pin;
  cr_assert_eq(b->pin(look(b, ns, 2), make_key(2), 20'000, b.in(1000), pin), 0);
  b.freeze(true);
  wait_ms(20);
  cr_assert_eq(a->remove(make_key(2), 0, a.in(1000)), 0);  // hidden, kept for the pin
  owner->stop();
  const PoolOffset at = store.geometry().member_at(b->slot());
  Line good;
  tear(store, at, good);
  ServingOwner next(store, 4);
  cr_assert(next->awaits_reports());
  cr_assert_eq(next->in_grace(), 1u);
  store.memory().publish_line(at, good);  // the other half arrives
  wait_ms(100);
  cr_assert(next->awaits_reports());
  cr_assert_eq(next->in_grace(), 1u);
  b.freeze(false);
  cr_assert(within_ms(2000, [&] { return !next->awaits_reports(); }));
  wait_ms(20);
  cr_assert_eq(next->in_grace(), 1u, "the pin was reported");
  cr_assert_eq(put_block(b, ns, 3), 0);
  b->unpin(pin);
  cr_assert(within_ms(2000, [&] { return next->in_grace() == 0; }));
}

// Guards: whose line could not be read was asked for its word about a death in a group, and went on
// being awaited when it could be read and was of no group: it has no word to give.
Test(pool_recovery, member_of_no_group_is_not_awaited_for_one, .timeout = 30) {
  TestStore store(lease_of(300));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), silent(store, 3), rank(store, 5, of_group(77));
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(rank, ns, 1), 0);
  const u32 slot = rank->slot();
  silent.freeze(true);
  wait_ms(20);
  owner->stop();
  const PoolOffset at = store.geometry().member_at(silent->slot());
  Line good;
  tear(store, at, good);
  ServingOwner next(store, 4);
  rank.kill();
  wait_ms(100);  // its lock is free: the death is known, and the unread one is asked
  store.memory().publish_line(at, good);
  silent.freeze(false);
  cr_expect(within_ms(2000, [&] { return next->space().held_by(slot).empty(); }));
  cr_expect(silent->alive());
}

// Shows: a slot whose line stays damaged is waited for no longer than its member lives.
Test(pool_recovery, unreadable_line_of_a_dead_member_holds_nobody_up, .timeout = 30) {
  TestStore store(lease_of(300));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(b, ns, 1), 0);
  const u32 slot = b->slot();
  b.freeze(true);
  wait_ms(20);
  owner->stop();
  const PoolOffset at = store.geometry().member_at(slot);
  Line good;
  tear(store, at, good);
  ServingOwner next(store, 4);
  cr_assert(next->awaits_reports());
  b.kill();
  cr_assert(within_ms(2000, [&] {
    return !next->awaits_reports() && next->space().held_by(slot).empty();
  }));
  cr_assert_eq(next->stats().extents_tainted, 0u, "its lock proves it QUIET");
  cr_assert_eq(put_block(a, ns, 2), 0);
}

namespace {

enum class Gone { kLeft, kKilled, kSlotTaken };

// `a` goes while nobody owns the store, and `c` of its group is still writing a shard of what `a`
// reserved.
void take_over_after(Gone how) {
  TestStore store(lease_of(1000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember c(store, 2, of_group(77));
  open_ns(c);
  auto a = std::make_unique<LiveMember>(store, 3, of_group(77));
  const u64 incarnation = (*a)->incarnation();
  const u32 slot = (*a)->slot();
  pool::Block block;
  cr_assert_eq((*a)->reserve(64 * 1024, 1, a->in(1000), &block), 0);
  cr_assert_eq(begin_shard(c, incarnation), 0);
  owner->stop();
  if (how != Gone::kLeft) a->kill();
  if (how == Gone::kLeft) a.reset();
  std::unique_ptr<LiveMember> filler, d;
  if (how == Gone::kSlotTaken) {
    filler = std::make_unique<LiveMember>(store, 6);  // in the slot that the owner had
    d = std::make_unique<LiveMember>(store, 4);
    cr_assert_eq((*d)->slot(), slot, "a test of a slot taken again needs that slot");
  }
  ServingOwner next(store, 5);
  wait_ms(300);
  cr_assert_eq(next->space().held_by(slot).size(), 1u);
  end_shard(c);
  cr_assert(within_ms(3000, [&] { return next->space().held_by(slot).empty(); }));
  cr_assert_eq(begin_shard(c, incarnation), -ENOTCONN, "nobody writes for the dead any more");
  if (how == Gone::kSlotTaken) {
    cr_assert_eq(begin_shard(c, (*d)->incarnation()), 0);
    end_shard(c);
    d.reset();
  }
}

}  // namespace

// Guards: a take-over freed a departed reserver's blocks without the word of its group.
Test(pool_recovery, blocks_of_one_who_left_wait_for_its_group_across_a_take_over, .timeout = 30) {
  take_over_after(Gone::kLeft);
}
Test(pool_recovery, blocks_of_one_who_died_wait_for_its_group_across_a_take_over, .timeout = 30) {
  take_over_after(Gone::kKilled);
}
Test(pool_recovery, blocks_of_a_slot_taken_again_wait_for_every_group, .timeout = 30) {
  take_over_after(Gone::kSlotTaken);
}

// Guards: the notice of a second death, or a RECALL, took the place of one not acknowledged yet.
Test(pool_recovery, two_deaths_of_a_group_are_both_acknowledged, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember c(store, 2, of_group(77)), a(store, 3, of_group(77)), b(store, 4, of_group(77));
  LiveMember other(store, 5);
  open_ns(c);
  pool::Block block;
  cr_assert_eq(a->reserve(64 * 1024, 1, a.in(1000), &block), 0);
  cr_assert_eq(b->reserve(64 * 1024, 1, b.in(1000), &block), 0);
  const u32 slot_a = a->slot(), slot_b = b->slot();
  c.freeze(true);  // reads no notice before both have died
  wait_ms(10);
  std::thread both([&] { a.kill(); });
  b.kill();
  both.join();
  cr_assert(within_ms(250, [&] { return owner->stats().members_dead == 2; }));
  c.freeze(false);
  cr_assert(within_ms(3000, [&] {
    return owner->space().held_by(slot_a).empty() && owner->space().held_by(slot_b).empty();
  }));
  cr_assert_eq(begin_shard(c, a->incarnation()), -ENOTCONN);
  cr_assert_eq(begin_shard(c, b->incarnation()), -ENOTCONN);
}

// Guards: a member of a group that had asked the owner for nothing yet never read its notices.
Test(pool_recovery, member_that_never_asked_acknowledges_a_death, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember c(store, 2, of_group(77)), b(store, 3, of_group(77));
  pool::Block block;
  cr_assert_eq(b->reserve(64 * 1024, 1, b.in(1000), &block), 0);
  const u32 slot = b->slot();
  b.kill();
  cr_assert(within_ms(3000, [&] { return owner->space().held_by(slot).empty(); }));
  cr_assert_eq(begin_shard(c, b->incarnation()), -ENOTCONN);
}

// Guards: a take-over counted cleared blocks against the quota for ever.
Test(pool_recovery, cleared_blocks_count_for_no_quota_after_a_take_over, .timeout = 30) {
  TestStore store(lease_of(1000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const u64 block = 64 * 1024;
  pool::NsRef ns = open_ns(a, 5, 10 * block);
  for (u64 k = 0; k < 17; ++k) cr_assert_eq(put_block(a, ns, k, block / 2), 0);
  media::NsAnswer answer{};
  cr_assert_eq(ns_control(a, ns.id, 0, media::NsOp::kClear, answer, 5), 0);
  ns.epoch = answer.epoch;
  cr_assert_eq(put_block(a, ns, 100, block / 2), 0);
  owner->stop();
  ServingOwner next(store, 4);
  for (u64 k = 200; k < 205; ++k) cr_assert_eq(put_block(a, ns, k, block / 2), 0);
  cr_assert(look(a, ns, 100).presence == pool::Presence::kHit, "the quota has room for it");
}

// Guards: a block larger than its namespace's quota emptied the namespace before it got FULL.
Test(pool_recovery, block_larger_than_the_quota_evicts_nothing, .timeout = 30) {
  TestStore store(lease_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a, 5, 640 * 1024);
  for (u64 k = 0; k < 8; ++k) cr_assert_eq(put_block(a, ns, k, 60 * 1024), 0);
  cr_assert_eq(put_block(a, ns, 50, 1024 * 1024), -EDQUOT);
  for (u64 k = 0; k < 8; ++k) cr_assert(look(a, ns, k).presence == pool::Presence::kHit);
}

namespace {

PoolOffset active_area(const TestStore &store, LiveMember &member) {
  const pool::ClaimView view = member->claims().read();
  return store.geometry().area_at(view.active_slot, view.active.area);
}

// Flips a bit in the map word of an extent.
void spoil_word(TestStore &store, LiveMember &member, u32 extent) {
  const PoolOffset at = store.geometry().map_word(active_area(store, member), extent);
  u64 word = 0;
  cr_assert(store.memory().load_word(at, word));
  store.memory().publish_word(at, word ^ 1);
}

}  // namespace

// An unreadable map word beside a run's is taken for the run's: a published run stays.
// Guards: tails behind an unreadable word of their run were free at once.
Test(pool_recovery, unreadable_word_of_a_published_run_loses_nothing, .timeout = 30) {
  for (u32 unreadable : {0u, 1u, 3u}) {
    TestStore store(lease_of(400));
    auto owner = std::make_unique<ServingOwner>(store, 1);
    LiveMember a(store, 2);
    const pool::NsRef ns = open_ns(a);
    pool::Publication p;
    cr_assert_eq(put_block(a, ns, 1, 7 << 20, &p), 0);
    cr_assert_eq(p.block.run_extents, 4u);
    const u32 head = p.block.extent;
    owner->stop();
    spoil_word(store, a, head + unreadable);
    ServingOwner next(store, 4);
    cr_assert_eq(next->stats().unreadable_map_words, 1u);
    wait_ms(1200);  // three leases
    cr_assert(look(a, ns, 1).presence == pool::Presence::kHit);
    for (u32 x = head; x < head + 5; ++x) {
      cr_assert_eq(next->space().is_free(x), x == head + 4, "%u of %u", x, head);
    }
    cr_assert_eq(a->remove(make_key(1), 0, a.in(1000)), 0);
    cr_assert(within_ms(2000, [&] { return next->space().is_free(head + 3); }));
    for (u32 x = head; x < head + 4; ++x) cr_assert(next->space().is_free(x), "%u", x);
  }
}

// Guards: the blocks of an extent were dropped for the one word of the map that names it.
// How: blocks of one class, a few of them removed, or one that has the extent alone.
Test(pool_recovery, unreadable_word_of_an_extent_loses_no_block, .timeout = 60) {
  for (const u64 bytes : {u64{100'032}, u64{1'900'032}}) {
    TestStore store(lease_of(400));
    auto owner = std::make_unique<ServingOwner>(store, 1);
    LiveMember a(store, 2);
    const pool::NsRef ns = open_ns(a);
    std::vector<u64> there;
    pool::Publication p;
    cr_assert_eq(put_block(a, ns, 0, bytes, &p), 0);
    const u32 extent = p.block.extent;
    const u64 most = bytes > 1'000'000 ? 1 : 8;
    there.push_back(0);
    for (u64 k = 1; k < most; ++k) {
      cr_assert_eq(put_block(a, ns, k, bytes, &p), 0);
      if (p.block.extent == extent) there.push_back(k);
    }
    if (there.size() > 2) {
      cr_assert_eq(a->remove(make_key(there[1]), 0, a.in(1000)), 0);
      there.erase(there.begin() + 1);
    }
    const pool::Hit before = look(a, ns, 0);
    wait_ms(100);  // the grace of what was removed is over
    owner->stop();
    spoil_word(store, a, extent);
    ServingOwner next(store, 4);
    cr_assert_eq(next->stats().unreadable_map_words, 1u);
    const auto whole = [&](const char *when) {
      for (u64 k : there) {
        cr_expect(look(a, ns, k).presence == pool::Presence::kHit, "%s: block %lu", when, k);
      }
      cr_expect_eq(look(a, ns, 0).version, before.version);
      cr_expect_eq(look(a, ns, 0).address, before.address);
      cr_expect_not(next->space().is_free(extent));
    };
    whole("after the take-over");
    cr_expect_not(next->space().owner_held(extent), "a member may still write there");
    cr_assert(within_ms(3000, [&] { return next->space().owner_held(extent); }));
    whole("after the quarantine");
    for (u64 k : there) cr_expect_eq(a->remove(make_key(k), 0, a.in(1000)), 0);
    cr_expect(within_ms(3000, [&] { return next->space().is_free(extent); }));
  }
}

// Guards: the word right behind a run was taken for the run's, and what stood there was dropped.
// How: a published run, and behind it an extent of small blocks, or another run.
Test(pool_recovery, unreadable_word_right_behind_a_run_loses_no_block, .timeout = 60) {
  for (const u64 bytes : {u64{65'536}, u64{1'900'032}, u64{7} << 20}) {
    TestStore store(lease_of(400));
    auto owner = std::make_unique<ServingOwner>(store, 1);
    LiveMember a(store, 2), b(store, 3);
    const pool::NsRef ns = open_ns(a);
    pool::Publication run, behind;
    cr_assert_eq(put_block(a, ns, 1, 7 << 20, &run), 0);
    const u32 x = run.block.extent + 4;
    u64 key = 1;
    while (behind.block.extent != x && key < 400) {
      cr_assert_eq(put_block(b, ns, ++key, bytes, &behind), 0);
    }
    cr_assert_eq(behind.block.extent, x);
    owner->stop();
    spoil_word(store, a, x);
    ServingOwner next(store, 4);
    cr_assert_eq(next->stats().unreadable_map_words, 1u);
    wait_ms(1200);  // three leases
    cr_expect(look(a, ns, 1).presence == pool::Presence::kHit, "the run, %lu bytes", bytes);
    cr_expect(look(a, ns, key).presence == pool::Presence::kHit, "behind it, %lu bytes", bytes);
    cr_assert_eq(a->remove(make_key(1), 0, a.in(1000)), 0);
    cr_expect(within_ms(2000, [&] { return next->space().is_free(x - 1); }));
    cr_expect(look(a, ns, key).presence == pool::Presence::kHit, "alone, %lu bytes", bytes);
    cr_expect_not(next->space().is_free(x));
  }
}

// One that is in a member's hand stays there whatever time passes, and comes back with it.
Test(pool_recovery, unreadable_word_of_a_run_in_hand_waits_for_its_member, .timeout = 60) {
  for (u32 unreadable : {0u, 2u, 3u}) {
    TestStore store(lease_of(400));
    auto owner = std::make_unique<ServingOwner>(store, 1);
    LiveMember a(store, 2);
    const pool::NsRef ns = open_ns(a);
    pool::Publication p;
    const media::BlockShape shape = media::block_shape(7 << 20, 1);
    cr_assert_eq(a->reserve(shape.block_bytes(), 1, a.in(1000), &p.block), 0);
    cr_assert_eq(p.block.run_extents, 4u);
    owner->stop();
    spoil_word(store, a, p.block.extent + unreadable);
    ServingOwner next(store, 4);
    wait_ms(1600);  // four leases: it writes all the while
    for (u32 x = p.block.extent; x < p.block.extent + 4; ++x) {
      cr_assert_eq(u32{next->space().at(x).record.holder}, a->slot(), "%u", x);
    }
    p.key = make_key(1);
    p.ns = ns;
    p.payload_lines = (7 << 20) / kLineBytes;
    cr_assert_eq(a->publish(&p, 1, a.in(1000)), 0);
    cr_assert_eq(p.result, 0, "it has all of its run: %d", p.result);
    cr_assert(look(a, ns, 1).presence == pool::Presence::kHit);
  }
}

// The word behind a run may be another member's extent: that one says so in its report.
Test(pool_recovery, unreadable_word_behind_a_run_goes_to_who_reports_it, .timeout = 30) {
  TestStore store(lease_of(400));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  pool::Publication run, single;
  const media::BlockShape large = media::block_shape(7 << 20, 1),
                          small = media::block_shape(65536, 1);
  cr_assert_eq(a->reserve(large.block_bytes(), 1, a.in(1000), &run.block), 0);
  u32 x = 0;
  for (u32 i = 0; i < 400 && x != run.block.extent + 4; ++i) {
    cr_assert_eq(b->reserve(small.block_bytes(), 1, b.in(1000), &single.block), 0);
    x = single.block.extent;
  }
  cr_assert_eq(x, run.block.extent + 4);
  owner->stop();
  spoil_word(store, a, x);
  ServingOwner next(store, 4);
  const auto publish = [&](LiveMember &member, pool::Publication &p, u64 key, u64 bytes) {
    p.key = make_key(key);
    p.ns = ns;
    p.payload_lines = bytes / kLineBytes;
    cr_assert_eq(member->publish(&p, 1, member.in(2000)), 0);
    cr_assert_eq(p.result, 0, "key %lu: %d", key, p.result);
    cr_assert(look(b, ns, key).presence == pool::Presence::kHit);
  };
  publish(b, single, 1, 65536);
  publish(a, run, 2, 7 << 20);
  cr_assert_eq(u32{next->space().at(x).record.holder}, b->slot());
  cr_assert(next->space().at(x).record.flags & media::kMapTainted);
}

// Guards: the tails of a run whose entry was lost were nobody's.
Test(pool_recovery, run_whose_entry_is_lost_is_free, .timeout = 30) {
  TestStore store(lease_of(400));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  pool::Publication p;
  const int put = put_block(a, ns, 1, 7 << 20, &p);
  cr_assert_eq(put, 0, "%d", put);
  const pool::Hit hit = look(a, ns, 1);
  owner->stop();
  const PoolOffset at = store.geometry().entry_line(active_area(store, a), hit.entry);
  u64 word = 0;
  cr_assert(store.memory().load_word(at, word));
  store.memory().publish_word(at, word ^ 1);
  ServingOwner next(store, 4);
  cr_assert_eq(next->stats().unreadable_entries, 1u);
  for (u32 x = p.block.extent; x < p.block.extent + 4; ++x) {
    cr_assert(next->space().is_free(x), "%u of %u", x, p.block.extent);
  }
}

// Guards: pins that nobody took back stayed in the owner's memory for ever.
Test(pool_recovery, expired_pins_are_forgotten, .timeout = 30) {
  TestStore store(lease_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  for (u64 k = 0; k < 20; ++k) {
    cr_assert_eq(put_block(a, ns, k), 0);
    pool::Pin pin;
    for (u32 i = 0; i < 5; ++i) {
      cr_assert_eq(a->pin(look(a, ns, k), make_key(k), 300, a.in(1000), pin), 0);
    }
  }
  pool::Pin lasting;
  cr_assert_eq(a->pin(look(a, ns, 7), make_key(7), 60'000, a.in(1000), lasting), 0);
  cr_assert(within_ms(2000, [&] { return owner->pinned() == 1; }), "%lu", owner->pinned());
}

// Guards: values that verify, but cannot be, were taken over from the medium.
Test(pool_recovery, take_over_refuses_impossible_values, .timeout = 30) {
  TestStore store(lease_of(300));
  const media::Geometry &geo = store.geometry();
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  pool::Publication p[5];
  for (u64 k = 0; k < 5; ++k) cr_assert_eq(put_block(a, ns, k, 64 * 1024, &p[k]), 0);
  owner->stop();
  const u32 epoch = a->claims().read().highest_active;
  const PoolOffset area = active_area(store, a);
  const auto change = [&](u32 number, auto how) {
    const PoolOffset at = geo.entry_line(area, number);
    Line line;
    cr_assert(store.memory().load_line(at, line));
    auto entry = media::from_line<media::Entry>(line);
    how(entry);
    line = media::to_line(entry);
    a->claims().sealer().seal(line, at, epoch);
    store.memory().publish_line(at, line);
  };
  const auto state = [](media::Entry &e, u32 to) {
    e.state = static_cast<u8>((e.state & ~media::kEntryStateMask) | to);
  };
  change(p[0].entry, [&](media::Entry &e) {
    state(e, static_cast<u32>(media::EntryState::kDraining));
    e.ns = 0xFFF0;
  });
  change(p[1].entry, [&](media::Entry &e) { state(e, 0); });
  change(p[2].entry, [&](media::Entry &e) { state(e, 6); });
  change(p[3].entry, [&](media::Entry &e) { state(e, 7); });
  const u32 last = store.regions().extent_count() - 1;
  const PoolOffset at = geo.map_word(area, last);
  const media::MapRecord nobody{static_cast<u8>(geo.member_count()), 1, media::kClassNone, 0, 0};
  store.memory().publish_word(at, a->claims().sealer().pack_map(nobody, at, epoch));
  ServingOwner next(store, 4);
  cr_assert_eq(next->stats().unreadable_entries, 4u);
  cr_assert_eq(next->stats().unreadable_map_words, 1u);
  cr_assert_eq(next->in_grace(), 0u);
  cr_assert(look(a, ns, 4).presence == pool::Presence::kHit);
  for (u64 k = 0; k < 4; ++k) cr_assert_eq(put_block(a, ns, k), 0);
  cr_assert(within_ms(3000, [&] { return next->space().is_free(last); }));
}

// Shows: a ring of the fewest lines serves more publications than it holds.
Test(pool_recovery, smallest_ring_serves_many_publications, .timeout = 30) {
  media::FormatOptions options = lease_of(1000);
  options.request_lines = 8;
  options.response_slots = 4;
  TestStore store(options);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  std::thread other([&] {
    for (u64 k = 1000; k < 1100; ++k) put_block(b, ns, k);
  });
  for (u64 k = 0; k < 100; ++k) cr_assert_eq(put_block(a, ns, k), 0);
  other.join();
}

// Guards: a successor copied the flag of a first group that it had scanned before its outbid owner
// set it, and the entry in the second group that this owner inserted meanwhile: published, found by
// its owner, missed by every reader.
Test(pool_recovery, take_over_says_anew_which_groups_spill, .timeout = 30) {
  TestStore store(lease_of(1000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 3);
  const pool::NsRef ns = open_ns(a);
  const media::Geometry &geo = store.geometry();
  const u64 groups = (*owner)->index().groups();
  const u64 group = media::first_group(make_key(0).w, groups);
  std::vector<u64> keys;
  for (u64 k = 0; keys.size() <= media::kGroupLines; ++k) {
    if (media::first_group(make_key(k).w, groups) == group) keys.push_back(k);
  }
  for (u64 k : keys) cr_assert_eq(put_block(a, ns, k), 0);
  cr_assert_eq(look(a, ns, keys.back()).entry / media::kGroupLines,
               media::second_group(make_key(keys.back()).w, groups));
  wait_ms(20);
  owner->stop();
  const auto view = a->claims().read();
  const PoolOffset at = geo.entry_line(geo.area_at(view.active_slot, view.active.area),
                                       group * media::kGroupLines);
  Line line;
  store.memory().acquire(at, kLineBytes);
  cr_assert(store.memory().load_line(at, line));
  auto head = media::from_line<media::Entry>(line);
  cr_assert(head.state & media::kEntrySpill);
  head.state &= static_cast<u8>(~media::kEntrySpill);
  line = media::to_line(head);
  a->claims().sealer().seal(line, at, view.highest_active);
  store.memory().publish_line(at, line);

  ServingOwner next(store, 4, 1);
  cr_assert(within_ms(2000, [&] { return !next->awaits_reports(); }));
  for (u64 k : keys) {
    cr_expect_eq(look(a, ns, k).presence, pool::Presence::kHit, "key %lu of %zu", k, keys.size());
  }
  cr_expect_eq(put_block(a, ns, keys.back()), -EEXIST);
}

namespace {

// A line of the active area as it stands, to be put back later: what a scan saw that passed early.
struct Snapshot {
  PoolOffset at;
  Line line;
};

Snapshot snapshot(TestStore &store, LiveMember &member, u32 entry) {
  const auto view = member->claims().read();
  const media::Geometry &geo = store.geometry();
  Snapshot taken{geo.entry_line(geo.area_at(view.active_slot, view.active.area), entry), {}};
  store.memory().acquire(taken.at, kLineBytes);
  cr_assert(store.memory().load_line(taken.at, taken.line));
  return taken;
}

std::vector<u64> keys_of_one_group(u64 groups, u32 count) {
  const u64 group = media::first_group(make_key(0).w, groups);
  std::vector<u64> keys;
  for (u64 k = 0; keys.size() < count; ++k) {
    if (media::first_group(make_key(k).w, groups) == group) keys.push_back(k);
  }
  return keys;
}

// Removes the first key and publishes it again elsewhere; the successor finds both entries.
void find_twins(u32 in_group) {
  TestStore store(lease_of(1000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 3);
  const pool::NsRef ns = open_ns(a);
  const std::vector<u64> keys = keys_of_one_group((*owner)->index().groups(), in_group + 1);
  const u64 key = keys[0];
  for (u32 i = 0; i < in_group; ++i) cr_assert_eq(put_block(a, ns, keys[i]), 0);
  const pool::Hit before = look(a, ns, key);
  const Snapshot early = snapshot(store, a, before.entry);
  cr_assert_eq(a->remove(make_key(key), 0, a.in(1000)), 0);
  cr_assert(within_ms(1000, [&] { return (*owner)->in_grace() == 0; }));
  cr_assert_eq(put_block(a, ns, keys[in_group]), 0);
  cr_assert_eq(look(a, ns, keys[in_group]).entry, before.entry, "the line is taken by another");
  cr_assert_eq(put_block(a, ns, key), 0);
  const pool::Hit again = look(a, ns, key);
  cr_assert_eq(again.entry / media::kGroupLines == before.entry / media::kGroupLines,
               in_group < media::kGroupLines);
  wait_ms(20);
  owner->stop();
  store.memory().publish_line(early.at, early.line);

  ServingOwner next(store, 4, 1);
  cr_assert(within_ms(2000, [&] { return !next->awaits_reports(); }));
  cr_expect_eq(look(a, ns, key).presence, pool::Presence::kHit);
  cr_expect_eq(look(a, ns, key).version, again.version, "the later one");
  cr_assert_eq(a->remove(make_key(key), 0, a.in(1000)), 0);
  cr_expect_eq(look(a, ns, key).presence, pool::Presence::kMiss, "one of them is left");
}

}  // namespace

// Guards: two visible entries of one key, of which a removal left one. An outbid owner removes a
// key and publishes it in another line while its successor scans.
Test(pool_recovery, take_over_keeps_one_entry_of_a_key, .timeout = 30) {
  find_twins(2);
}
Test(pool_recovery, take_over_keeps_one_entry_of_a_key_over_both_groups, .timeout = 30) {
  find_twins(media::kGroupLines);
}

// Guards: where lines are stored in pieces, an owner that died in the middle of a clear left a line
// that nobody could read, and its namespace was lost; one made anew had the first epoch's keys.
Test(pool_recovery, line_of_a_namespace_stored_in_part_is_restored, .timeout = 30) {
  TestStore store(lease_of(1000));
  const media::Geometry &geo = store.geometry();
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef other = open_ns(a, 2), ns = open_ns(a, 1, 1 << 20);
  cr_assert_eq(put_block(a, other, 5), 0);
  media::NsAnswer answer{};
  cr_assert_eq(ns_control(a, ns.id, ns.epoch, media::NsOp::kClear, answer), 0);
  owner->stop();
  for (const u32 id : {u32{ns.id}, u32{other.id}}) {
    const PoolOffset at = geo.ns_line(a->session()->area, id);
    Line line;
    store.memory().acquire(at, kLineBytes);
    cr_assert(store.memory().load_line(at, line));
    line.w[3] ^= 1;  // of a store before
    store.memory().publish_line(at, line);
    store.memory().drain_strict(&at, 1);
  }
  ServingOwner next(store, 3);
  const pool::NsRef now = open_ns(a, 1);
  cr_expect_eq(now.id, ns.id);
  cr_expect_eq(now.epoch, answer.epoch);
  media::NamespaceLine line{};
  cr_assert_eq(a->read_ns(now.id, line), 0);
  cr_expect_eq(line.quota_bytes, 1u << 20);
  // The spare line has what was written last, and nothing else.
  cr_assert_eq(a->read_ns(other.id, line), 0);
  cr_expect_eq(line.flags, 0u);
}
