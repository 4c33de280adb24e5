// SPDX-License-Identifier: Apache-2.0
// Shows: a block that was aborted is nobody's while somebody still writes a shard of it, and who
// writes shards holds up nobody but those who wait for just that.
// How: members of one group, as threads over one store in anonymous memory; a shard is "written"
// between begin and end.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

pool::Block reserve_one(LiveMember &member, u64 bytes = 1 << 20) {
  pool::Block block;
  const int err = member->reserve(bytes, 1, member.in(5000), &block);
  cr_assert_eq(err, 0, "reserve: %d", err);
  return block;
}

// Whether `member` is given the block again within so long; what else it gets is kept.
bool comes_back(LiveMember &member, const pool::Block &block, int ms) {
  std::vector<pool::Block> others;
  const bool back = within_ms(ms / 10, [&] {
    pool::Block next;
    if (member->reserve(block.bytes, 1, member.in(5), &next) != 0) return false;
    if (next.address == block.address) return true;
    others.push_back(next);
    wait_ms(9);
    return false;
  });
  for (const pool::Block &other : others) member->abort(other);
  return back;
}

}  // namespace

Test(pool_shards, aborted_block_waits_for_threads_of_its_process, .timeout = 30) {
  TestStore store(lease_of(1000));
  ServingOwner owner(store, 1);
  for (u64 group : {0, 77}) {
    LiveMember a(store, 2, of_group(group));
    const pool::Block block = reserve_one(a);
    cr_assert_eq(begin_shard(a, a->incarnation()), 0);
    a->abort_shared(block, a->incarnation());
    cr_expect_not(comes_back(a, block, 300), "group %lu: it is being written", group);
    end_shard(a);
    cr_expect(comes_back(a, block, 1000), "group %lu: it is not written any more", group);
  }
}

Test(pool_shards, aborted_block_waits_for_the_group, .timeout = 30) {
  TestStore store(lease_of(1000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2, of_group(77)), b(store, 3, of_group(77)), other(store, 4);
  const pool::Block block = reserve_one(a), second = reserve_one(a);
  cr_assert_eq(begin_shard(b, a->incarnation()), 0);
  a->abort_shared(block, a->incarnation());
  a->abort_shared(second, a->incarnation());
  cr_expect_not(comes_back(a, block, 300));
  owner->stop();  // the next one is asked anew
  ServingOwner next(store, 5, 1);
  wait_ms(100);
  cr_expect_not(comes_back(a, block, 300));
  end_shard(b);
  cr_expect(comes_back(a, block, 2000));
  cr_expect(comes_back(a, second, 2000));
}

// Whoever began after the abort finds the shards closed: nobody waits for him.
Test(pool_shards, later_writers_hold_up_no_abort, .timeout = 30) {
  TestStore store(lease_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2, of_group(77)), b(store, 3, of_group(77));
  const pool::Block block = reserve_one(a);
  cr_assert_eq(begin_shard(b, a->incarnation()), 0);
  const u64 first = b.shard;
  a->abort_shared(block, a->incarnation());
  wait_ms(200);  // b has heard of it
  std::atomic<bool> stop{false};
  std::thread busy([&] {  // one shard or two at any time
    u64 before = first;
    while (!stop) {
      begin_shard(b, a->incarnation());
      b->end_shard_write(before);
      before = b.shard;
      wait_ms(2);
    }
    b->end_shard_write(before);
  });
  cr_expect(comes_back(a, block, 3000));
  stop = true;
  busy.join();
}

Test(pool_shards, aborted_block_of_a_stopped_rank_comes_back_tainted, .timeout = 30) {
  TestStore store(lease_of(200));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2, of_group(77)), b(store, 3, of_group(77));
  const pool::Block block = reserve_one(a);
  cr_assert_eq(begin_shard(b, a->incarnation()), 0);
  b.freeze(true);  // in the middle of it; its process lives
  a->abort_shared(block, a->incarnation());
  cr_expect_not(comes_back(a, block, 300));
  cr_assert(within_ms(5000, [&] { return owner->stats().extents_tainted > 0; }),
            "returned to the owner, after twice the lease");
  cr_assert(owner->space().at(block.extent).record.flags & media::kMapTainted);
  end_shard(b);
}

// Guards: threads that wrote shards without a pause kept their member from acknowledging anything.
Test(pool_shards, writers_hold_up_only_who_waits_for_them, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember c(store, 2, of_group(77)), a(store, 3, of_group(77)), b(store, 4, of_group(77));
  reserve_one(a);
  reserve_one(b);
  const u64 of_b = b->incarnation();
  const u32 slot_a = a->slot(), slot_b = b->slot();
  cr_assert_eq(begin_shard(c, of_b), 0);
  a.kill();
  cr_assert(within_ms(3000, [&] { return owner->space().held_by(slot_a).empty(); }),
            "c writes for b alone");
  b.kill();
  wait_ms(700);
  cr_expect_not(owner->space().held_by(slot_b).empty(), "c writes for b");
  // What c does not use is wanted by another one meanwhile.
  c->abort(reserve_one(c));
  LiveMember z(store, 5);
  std::vector<pool::Block> all;
  cr_expect(within_ms(2000, [&] {
    pool::Block block;
    while (z->reserve(2 << 20, 1, z.in(100), &block) == 0) all.push_back(block);
    return owner->space().held_by(c->slot()).empty();
  }), "RECALL is served while an acknowledgement waits");
  end_shard(c);
  cr_expect(within_ms(3000, [&] { return owner->space().held_by(slot_b).empty(); }));
}

// Guards: the first write for another member waited for two leases whatever its deadline.
Test(pool_shards, first_write_for_another_ends_by_its_deadline, .timeout = 30) {
  TestStore store(lease_of(4000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2, of_group(77)), b(store, 3, of_group(77));
  reserve_one(a);
  const auto takes_ms = [&](u64 deadline_ms) {
    const u64 begun = clock_ns();
    const int err = begin_shard(b, a->incarnation(), deadline_ms);
    cr_expect(err == -ETIMEDOUT || err == -EAGAIN, "%d", err);
    return (clock_ns() - begun) / 1'000'000;
  };
  a.freeze(true);  // its heartbeat does not move
  cr_expect_lt(takes_ms(50), 500u);
  owner->stop();
  cr_expect_lt(takes_ms(50), 500u);
  ServingOwner next(store, 5, 1);
  a.freeze(false);
  cr_expect_eq(begin_shard(b, a->incarnation()), 0, "nothing is left of the tries before");
  end_shard(b);
}

// Guards: an abort of one whose lease was over blanked lines of blocks that were others' by then.
Test(pool_shards, abort_after_the_lease_stores_nothing, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2, of_group(77)), b(store, 3);
  const pool::Block block = reserve_one(a);
  const u64 reserver = a->incarnation();
  const PoolOffset at = store.regions().data_at(block.address);
  a.freeze(true);
  cr_assert(within_ms(3000, [&] { return !a->alive(); }));
  const Line theirs{{1, 2, 3, 4, 5, 6, 7, 8}};
  store.memory().publish_line(at, theirs);
  store.memory().drain();
  Line line{};
  cr_expect_not(a->close_shard(at, reserver));
  a->abort_shared(block, reserver);
  store.memory().acquire(at, kLineBytes);
  cr_assert(store.memory().load_line(at, line) && line == theirs, "while its lease is over");
  cr_assert_eq(a->rejoin(), 0);
  cr_expect_not(a->close_shard(at, reserver), "it is another member now");
  a->abort_shared(block, reserver);
  store.memory().acquire(at, kLineBytes);
  cr_assert(store.memory().load_line(at, line) && line == theirs);
  pool::Block others;
  for (u32 i = 0; i < 8; ++i) {  // what it gets anew is not what it was told to give back
    cr_assert_eq(b->reserve(1 << 20, 1, b.in(5000), &others), 0);
  }
}
