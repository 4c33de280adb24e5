// SPDX-License-Identifier: Apache-2.0
// Shows: members that die, stop or come back, and owners that go, lose nothing but what protocol.md
// says may be lost: blocks return, published blocks stay, doubts end, one decision is taken once.
// How: threads over one store in anonymous memory whose "processes" the test kills; a lease of 300
// ms.
#include "pool_fixture.hpp"
#include "store/store.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

// Waits until no member holds an extent, as far as the owner knows.
bool all_extents_free(Owner &owner, u32 members, int ms) {
  for (int i = 0; i < ms; ++i) {
    u64 held = 0;
    for (u32 slot = 0; slot < members; ++slot) held += owner.space().held_by(slot).size();
    if (held == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// What `kvpool host fence` writes: this incarnation will never store again.
void fence(TestStore &store, u32 slot, u64 incarnation) {
  media::ReaperLine reaper{};
  reaper.incarnation = incarnation;
  reaper.state = static_cast<u8>(media::ReaperState::kQuiet);
  const PoolOffset at = store.geometry().reaper_at(slot);
  const media::Sealer sealer(store.geometry().uuid, store.geometry().nonce);
  store.memory().publish_line(at, sealer.sealed(reaper, at, 0));
  store.memory().drain_strict(&at, 1);
}

}  // namespace

Test(pool_failure, killed_member_returns_what_it_held, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  {
    LiveMember b(store, 3);
    cr_assert_eq(put_block(b, ns, 1), 0);
    pool::Block block;
    cr_assert_eq(b->reserve(64 * 1024, 1, b.in(1000), &block), 0);
    b.kill();
    cr_assert(all_extents_free(*owner, store.geometry().member_count(), 3000));
  }
  cr_assert(look(a, ns, 1).presence == pool::Presence::kHit, "what was published stays");
  cr_assert_geq(owner->stats().extents_reclaimed, 1u);
  cr_assert_eq(owner->stats().extents_tainted, 0u, "a dead process is QUIET: no taint");
}

Test(pool_failure, member_that_leaves_returns_at_once, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  {
    LiveMember b(store, 3);
    cr_assert_eq(put_block(b, ns, 1), 0);
  }
  cr_assert(all_extents_free(*owner, store.geometry().member_count(), 1000));
  cr_assert_eq(owner->stats().members_left, 1u);
}

Test(pool_failure, stopped_member_is_dead_for_ever_and_its_extents_are_tainted, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  pool::Publication p;
  cr_assert_eq(put_block(b, ns, 1, 64 * 1024, &p), 0);
  pool::Block block;
  cr_assert_eq(b->reserve(64 * 1024, 1, b.in(1000), &block), 0);
  b.freeze(true);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  cr_assert_not(b->alive());
  p.key = make_key(2);
  p.block = block;
  cr_assert_eq(b->publish(&p, 1, b.in(1000)), -ESTALE, "a zombie publishes nothing");
  cr_assert_eq(b->tick(), -ESTALE, "a late renewal does not revive");
  cr_assert(all_extents_free(*owner, store.geometry().member_count(), 3000));
  cr_assert_geq(owner->stats().extents_tainted, 1u);
  cr_assert_eq(b->rejoin(), 0);
  b.freeze(false);
  cr_assert_eq(put_block(b, ns, 3), 0);
}

// Guards: a put whose member died before it was posted said that its namespace had been cleared.
Test(pool_failure, put_of_a_dead_member_is_untried, .timeout = 30) {
  TestStore store(lease_of(800));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);  // more of its extent stays in hand
  owner.reset();
  auto process = store.process(3);  // a candidate that dies between claim and activation
  pool::Claims<TestEnv> claims(*process, store.geometry());
  media::ClaimLine claim = claims.read().line[1];
  claim.claimed = media::make_epoch(100, 1);
  claims.write(1, claim);
  wait_ms(100);  // the member sees that its owner is outbid
  a.freeze(true);
  std::vector<std::byte> payload(64 * 1024);
  const transfer::LocalMemory memory{payload.data(), payload.size()};
  const transfer::Run run{.fragment_bytes = payload.size(), .count = 1};
  store::PutBlock block;
  block.key = make_key(2);
  block.payload_bytes = payload.size();
  block.plan = {std::span(&run, 1), std::span(&memory, 1)};
  store::Scratch scratch(1 << 20);
  store::Store<TestEnv> over(*a);
  cr_expect_eq(over.put(ns, std::span(&block, 1), a.in(3000), nullptr, scratch), -ESTALE);
  cr_expect_eq(block.status, store::BlockStatus::kUntried, "%d", static_cast<int>(block.status));
}

// Guards: one rejoin of sixteen bore the mark of the life before, whose taint then never ended.
Test(pool_failure, later_life_bears_another_mark, .timeout = 30) {
  TestStore store(lease_of(10'000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  u64 former = a->incarnation();
  for (int i = 0; i < 200; ++i) {
    cr_assert_eq(a->rejoin(), 0);
    cr_assert_neq(media::taint_mark(a->slot(), a->incarnation()),
                  media::taint_mark(a->slot(), former), "life %d", i);
    former = a->incarnation();
  }
}

// Guards: what a member given up by time had held stayed tainted for ever, whatever became of it.
Test(pool_failure, taint_ends_with_a_proof, .timeout = 60) {
  TestStore store(lease_of(300));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), back(store, 3), lost(store, 4);
  const pool::NsRef ns = open_ns(a);
  const auto tainted = [&](ServingOwner &by) {
    u32 count = 0;
    for (u32 x = 0; x < by->space().count(); ++x) {
      count += (by->space().at(x).record.flags & media::kMapTainted) != 0;
    }
    return count;
  };
  cr_assert_eq(put_block(back, ns, 1), 0);
  cr_assert_eq(put_block(lost, ns, 2), 0);
  back.freeze(true);
  lost.freeze(true);
  cr_assert(all_extents_free(**owner, store.geometry().member_count(), 5000));
  cr_assert_eq(tainted(*owner), 2u);
  cr_assert_eq(back->rejoin(), 0);
  back.freeze(false);
  cr_expect(within_ms(2000, [&] { return tainted(*owner) == 1; }), "it joined anew");
  wait_ms(100);
  cr_expect_eq(tainted(*owner), 1u);
  owner->stop();
  ServingOwner next(store, 5);  // whose taint it is stands on the medium
  fence(store, lost->slot(), lost->incarnation() ^ 2);
  wait_ms(150);
  cr_expect_eq(tainted(next), 1u, "another incarnation was fenced");
  fence(store, lost->slot(), lost->incarnation());
  cr_expect(within_ms(2000, [&] { return tainted(next) == 0; }), "it was fenced");
  cr_assert_eq(put_block(a, ns, 3), 0);
  const pool::Hit old = look(a, ns, 1);
  cr_expect(old.presence == pool::Presence::kHit);
}

// A host that is lost for ever keeps its locks, as far as anybody else can see.
Test(pool_failure, fenced_member_is_quiet_before_and_after_the_verdict, .timeout = 30) {
  TestStore store(lease_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3), c(store, 4);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(b, ns, 1), 0);
  cr_assert_eq(put_block(c, ns, 2), 0);
  b.freeze(true);
  fence(store, b->slot(), b->incarnation() ^ 2);
  wait_ms(300);
  cr_assert_eq(owner->stats().members_dead, 0u, "a line about another incarnation says nothing");
  fence(store, b->slot(), b->incarnation());
  cr_assert(within_ms(1500, [&] { return owner->stats().extents_reclaimed > 0; }), "not after 3 L");
  cr_assert_eq(owner->stats().members_dead, 1u);

  c.freeze(true);
  cr_assert(within_ms(3000, [&] { return owner->stats().members_dead == 2; }));
  fence(store, c->slot(), c->incarnation());
  cr_assert(all_extents_free(*owner, store.geometry().member_count(), 1500), "not after 2 L");
  cr_assert_eq(owner->stats().extents_tainted, 0u, "a fenced host is QUIET: no taint");
  cr_assert(look(a, ns, 2).presence == pool::Presence::kHit, "what was published stays");
}

// Guards: what a killed process stored last could arrive in a block that was another's by then: a
// free lock, or another member in the slot, was believed at once.
Test(pool_failure, quiet_is_believed_delta_after_it_was_seen, .timeout = 30) {
  media::FormatOptions options = lease_of(2000);
  options.delta_us = 150'000;
  TestStore store(options);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  u64 reclaimed = 0;
  for (const bool again : {false, true}) {
    LiveMember b(store, 3 + again);
    cr_assert_eq(put_block(b, ns, 1 + again), 0);
    const u64 joined = owner->stats().members_joined, dead = owner->stats().members_dead;
    std::unique_ptr<LiveMember> next;
    b.kill();
    if (again) {
      next = std::make_unique<LiveMember>(store, 5);
      cr_assert_eq((*next)->slot(), b->slot());
      cr_assert(within_ms(2000, [&] { return owner->stats().members_joined > joined; }));
    } else {
      cr_assert(within_ms(2000, [&] { return owner->stats().members_dead > dead; }));
    }
    wait_ms(50);
    cr_expect_eq(owner->stats().extents_reclaimed, reclaimed, "again: %d", again);
    cr_expect(within_ms(500, [&] { return owner->stats().extents_reclaimed > reclaimed; }),
              "again: %d", again);
    reclaimed = owner->stats().extents_reclaimed;
  }
  cr_assert_eq(owner->stats().extents_tainted, 0u);
}

Test(pool_failure, next_owner_knows_every_published_block, .timeout = 30) {
  TestStore store(lease_of(300));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  for (u64 k = 0; k < 100; ++k) cr_assert_eq(put_block(a, ns, k), 0);
  const u32 epoch = (*owner)->epoch();
  owner->stop();
  for (u64 k = 0; k < 100; ++k) {
    cr_assert(look(a, ns, k).presence == pool::Presence::kHit, "reads go on without an owner");
  }
  ServingOwner next(store, 4);
  cr_assert_gt(next->epoch(), epoch);
  for (u64 k = 0; k < 100; ++k) {
    const pool::Hit hit = look(a, ns, k);
    cr_assert(hit.presence == pool::Presence::kHit);
    cr_assert_eq(hit.epoch, next->epoch());
  }
  for (u64 k = 100; k < 120; ++k) cr_assert_eq(put_block(a, ns, k), 0);
  cr_assert_eq(next->stats().reports, 1u);
  owner.reset();
}

Test(pool_failure, owner_that_stops_is_outbid_and_its_answers_do_not_count, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner first(store, 1, 0);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  ServingOwner second(store, 3, 1);  // a rival on another slot, while the first still serves
  for (u64 k = 10; k < 40; ++k) cr_assert_eq(put_block(a, ns, k), 0, "%lu", k);
  for (u64 k = 10; k < 40; ++k) {
    const pool::Hit hit = look(a, ns, k);
    cr_assert(hit.presence == pool::Presence::kHit);
    cr_assert_eq(hit.epoch, second->epoch());
  }
  for (int i = 0; i < 500 && first->serving(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  cr_assert_not(first->serving(), "the first owner steps down");
}

Test(pool_failure, puts_without_an_owner_end_by_their_deadline, .timeout = 30) {
  TestStore store(lease_of(300));
  LiveMember a(store, 2);
  pool::Block block;
  const u64 start = a.in(0);
  cr_assert_eq(a->reserve(64 * 1024, 1, a.in(200), &block), -EAGAIN, "no owner");
  cr_assert_lt(a.in(0) - start, 2'000'000'000u);
}

Test(pool_failure, full_store_says_so_when_nothing_may_go, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  std::vector<pool::Block> blocks(4096);
  u32 got = 0;
  int err = 0;
  while (got < blocks.size() &&
         (err = a->reserve(1 << 20, 1, a.in(3000), &blocks[got])) == 0) {
    ++got;
  }
  cr_assert_eq(err, -ENOSPC, "%d after %u", err, got);
  cr_assert_gt(got, 40u);
  a->abort(blocks[0]);
  cr_assert_eq(a->reserve(1 << 20, 1, a.in(3000), &blocks[0]), 0);
}

Test(pool_failure, group_member_blocks_wait_for_the_word_of_the_group, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  pool::MemberOptions options;
  options.group = 99;
  LiveMember a(store, 2, options);
  const pool::NsRef ns = open_ns(a);
  LiveMember b(store, 3, options);
  cr_assert_eq(put_block(b, ns, 1), 0);
  const u64 b_incarnation = b->incarnation();
  cr_assert_eq(begin_shard(a, b_incarnation), 0);
  b.kill();
  cr_assert_not(all_extents_free(*owner, store.geometry().member_count(), 500),
                "a shard of the dead member's reservation is being written");
  end_shard(a);
  cr_assert_eq(put_block(a, ns, 2), 0);
  for (int i = 0; i < 1000 && owner->stats().extents_reclaimed == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  cr_assert_geq(owner->stats().extents_reclaimed, 1u);
  cr_assert_eq(begin_shard(a, b_incarnation), -ENOTCONN,
               "nobody writes for the dead any more");
}

// Guards: a rank that joined, or joined anew, after the death of a reserver was not asked for its
// word, and wrote with a ticket of the dead one into blocks that were another's.
Test(pool_failure, nobody_writes_for_one_who_died_before_it_joined, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  pool::MemberOptions options;
  options.group = 99;
  LiveMember a(store, 2, options), b(store, 3, options), z(store, 4, options);
  open_ns(a);
  pool::Block block;
  cr_assert_eq(b->reserve(64 * 1024, 1, b.in(1000), &block), 0);
  cr_assert_eq(z->reserve(64 * 1024, 1, z.in(1000), &block), 0);
  const u64 killed = b->incarnation(), stopped = z->incarnation();
  a.freeze(true);  // is given up itself, so nobody asks it
  z.freeze(true);
  b.kill();
  cr_assert(all_extents_free(*owner, store.geometry().member_count(), 5000));
  LiveMember late(store, 5, options);
  cr_expect_eq(begin_shard(late, killed), -ENOTCONN);
  cr_expect_eq(begin_shard(late, stopped), -ENOTCONN);
  cr_assert_eq(a->rejoin(), 0);
  a.freeze(false);
  cr_expect_eq(begin_shard(a, killed), -ENOTCONN);
  std::thread zombie([&] {  // its late renewal moves its heartbeat once
    wait_ms(50);
    z->tick();
  });
  cr_expect_eq(begin_shard(a, stopped), -ENOTCONN);
  zombie.join();
  cr_assert_eq(begin_shard(a, late->incarnation()), 0);
  end_shard(a);
}

// Guards: members that each waited for more while they held some stopped the store for good.
Test(pool_failure, members_that_want_many_blocks_do_not_stop_each_other, .timeout = 60) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3), c(store, 4), d(store, 5);
  const pool::NsRef ns = open_ns(a);
  for (u64 k = 0; k < 2000; ++k) put_block(a, ns, k);  // leaves extents partly used
  std::atomic<u32> failed{0};
  const auto work = [&](LiveMember &m, u64 first) {
    for (u64 round = 0; round < 30; ++round) {
      pool::Block blocks[64];
      if (m->reserve(64 * 1024, 64, m.in(10'000), blocks) != 0) {
        ++failed;
        continue;
      }
      pool::Publication p[64];
      for (u64 i = 0; i < 64; ++i) {
        p[i].key = make_key(first + round * 64 + i);
        p[i].ns = ns;
        p[i].block = blocks[i];
        p[i].payload_lines = 1024;
      }
      m->publish(p, 64, m.in(10'000));
    }
  };
  std::thread t1([&] { work(a, 10'000); }), t2([&] { work(b, 20'000); });
  std::thread t3([&] { work(c, 30'000); }), t4([&] { work(d, 40'000); });
  t1.join();
  t2.join();
  t3.join();
  t4.join();
  cr_assert_eq(failed, 0u);
}

// proto 7: an owner that takes the store over from itself knows who was given up: nobody waits for
// their reports.
Test(pool_failure, verdicts_outlive_a_take_over_from_oneself, .timeout = 30) {
  media::FormatOptions options = lease_of(1500);
  options.index_growth = 2;
  TestStore store(options);
  auto env = store.process(1);
  Member self(*env, store.geometry());
  cr_assert_eq(self.join({.standby_slot = 0}), 0);
  Owner owner(*env, self);
  cr_assert_eq(owner.take_over(0), 0);
  std::atomic<bool> stop{false};
  std::thread serving([&] {
    while (!stop && owner.step() >= 0) std::this_thread::yield();
  });
  LiveMember a(store, 2), stopped(store, 3), killed(store, 4);
  const pool::NsRef ns = open_ns(a);
  pool::Block block;
  cr_assert_eq(stopped->reserve(64 * 1024, 1, stopped.in(1000), &block), 0);
  cr_assert_eq(killed->reserve(64 * 1024, 1, killed.in(1000), &block), 0);
  stopped.freeze(true);
  killed.kill();
  cr_assert(within_ms(6000, [&] { return owner.stats().members_dead == 2; }));
  stop = true;
  serving.join();
  const u32 before = owner.epoch();
  cr_assert_eq(owner.enlarge_index(), 0);
  cr_assert_gt(owner.epoch(), before);
  stop = false;
  serving = std::thread([&] {
    while (!stop && owner.step() >= 0) std::this_thread::yield();
  });
  const u64 began = clock_ns();
  cr_expect_eq(put_block(a, ns, 1), 0);
  cr_expect_lt(clock_ns() - began, u64{1'000'000'000}, "grants do not wait for the dead");
  cr_expect_not(owner.awaits_reports());
  cr_expect_eq(owner.stats().members_dead, 2, "each of them died once");
  // What the stopped one holds comes back by time, tainted, as without the take-over.
  cr_expect(within_ms(8000, [&] { return owner.stats().extents_tainted == 1; }));
  stop = true;
  serving.join();
}

// A member of a former life of the store writes its line once more after a forced format. Nobody
// believes the line; it goes as soon as nobody holds the slot's lock.
Test(pool_failure, line_of_a_former_life_goes_with_its_process, .timeout = 30) {
  TestStore store(lease_of(300));
  const u32 slot = store.geometry().member_count() - 1;
  const PoolOffset at = store.geometry().member_at(slot);
  const auto put_foreign = [&] {
    media::MemberLine line{};
    line.incarnation = 77;
    line.state = static_cast<u8>(media::MemberState::kJoined);
    const media::Sealer former(store.geometry().uuid, store.geometry().nonce + 1);
    store.memory().publish_line(at, former.sealed(line, at, 0));
    store.memory().drain_strict(&at, 1);
  };
  const auto blank = [&] {
    Line line;
    store.memory().acquire(at, kLineBytes);
    return store.memory().load_line(at, line) && std::count(line.w, line.w + 8, 0) == 8;
  };
  put_foreign();
  ServingOwner owner(store, 1);
  cr_expect(within_ms(2000, blank), "nobody has the slot");
  auto former = store.process(9);
  cr_assert(former->try_lock(pool::LockKind::kMember, slot));
  put_foreign();
  wait_ms(600);
  cr_expect_not(blank(), "its process lives");
  former->drop_locks();
  cr_expect(within_ms(2000, blank));
  LiveMember a(store, 2);
  cr_expect_eq(put_block(a, open_ns(a), 1), 0);
}

// Guards: until all members had reported nobody was granted anything, so that one that was stopped
// held everybody up for its lease.
// How: a full store, one stopped member that holds an extent and no pins, another owner; 40 more
// puts, for which others' blocks go.
Test(pool_failure, stopped_member_without_pins_delays_nothing, .timeout = 60) {
  TestStore store(lease_of(6000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), stopped(store, 3);
  const pool::NsRef ns = open_ns(a);
  pool::Block block;
  cr_assert_eq(stopped->reserve(64 * 1024, 1, stopped.in(1000), &block), 0);
  u64 key = 0;
  while ((*owner)->stats().evicted == 0 && key < 400) {
    cr_assert_eq(put_block(a, ns, ++key, 512 * 1024), 0, "key %lu", key);
  }
  cr_assert_gt((*owner)->stats().evicted, 0u);
  stopped.freeze(true);
  wait_ms(20);
  owner->stop();
  ServingOwner next(store, 4);
  cr_assert(next->awaits_reports());
  const u64 began = clock_ns();
  for (int i = 0; i < 40; ++i) cr_assert_eq(put_block(a, ns, ++key, 512 * 1024), 0);
  cr_expect_gt(next->stats().evicted, 0u);
  cr_expect(next->awaits_reports(), "it did not wait for the report");
  cr_expect_lt(clock_ns() - began, u64{3'000'000'000}, "half its lease");
  // What it holds is its own all the while.
  cr_expect_eq(u32{next->space().at(block.extent).record.holder}, stopped->slot());
  stopped.freeze(false);
  cr_expect(within_ms(3000, [&] { return !next->awaits_reports(); }));
  pool::Publication p;
  p.block = block;
  p.key = make_key(++key);
  p.ns = ns;
  p.payload_lines = 1024;
  cr_assert_eq(stopped->publish(&p, 1, stopped.in(2000)), 0);
  cr_expect_eq(p.result, 0, "%d", p.result);
}

// Guards: a claim far above all others, which no crash leaves, was taken for an epoch.
// How: both copies of an unused slot's claim, sealed, name an epoch that nobody can have reached.
Test(pool_failure, claim_far_above_the_others_is_damage, .timeout = 30) {
  TestStore store(lease_of(2000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  const pool::ClaimView before = a->claims().read();
  const u32 slot = before.active_slot == 0 ? 1 : 0;
  media::ClaimLine claim = before.line[slot];
  const u32 counter = media::epoch_counter(before.highest_claimed);
  claim.claimed = media::make_epoch(counter + media::kEpochJumpMax + 1, slot);
  a->claims().write(slot, claim);
  const pool::ClaimView after = a->claims().read();
  cr_expect(after.unreadable);
  cr_expect_not(after.readable[slot]);
  cr_expect_eq(after.highest_claimed, before.highest_claimed);
  cr_expect_not(after.accepts(owner->epoch()), "nobody believes an answer until it is mended");
}
