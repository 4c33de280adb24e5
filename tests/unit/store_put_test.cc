// SPDX-License-Identifier: Apache-2.0
// Shows: a put finds room for a key whose two groups of the index are full, says FULL by its
// deadline when there is none, and tells a namespace's quota from a full store.
// How: store::put over an owner and a member as threads; keys that share both groups.
#include "pool_fixture.hpp"
#include "store/store.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

constexpr u64 kBytes = 16 * 1024;
constexpr u32 kLinesOfTwoGroups = 2 * media::kGroupLines;

// All of them belong into the same two groups.
pool::Key crowded_key(u64 n) {
  pool::Key key = make_key(n);
  key.w[0] = 0x1234567812345678;
  key.w[1] = 0x9876543298765432;
  return key;
}

class Putter {
public:
  explicit Putter(LiveMember &member) : member_(member), store_(*member), payload_(kBytes) {}

  store::PutBlock put(pool::NsRef ns, const pool::Key &key, u64 ms,
                      const std::atomic<bool> *cancelled = nullptr) {
    const transfer::LocalMemory memory{payload_.data(), kBytes};
    const transfer::Run run{.fragment_bytes = kBytes, .count = 1};
    store::PutBlock block;
    block.key = key;
    block.payload_bytes = kBytes;
    block.plan = {std::span(&run, 1), std::span(&memory, 1)};
    result_ = store_.put(ns, std::span(&block, 1), member_.in(ms), cancelled, scratch_);
    return block;
  }
  int result() const { return result_; }

private:
  LiveMember &member_;
  store::Store<TestEnv> store_;
  store::Scratch scratch_;
  std::vector<std::byte> payload_;
  int result_ = 0;
};

media::FormatOptions grace_of(u32 us) {
  media::FormatOptions options = lease_of(10'000);
  options.grace_us = us;
  return options;
}

}  // namespace

// Guards: such a put said FULL once, although a second try finds room.
Test(store_put, full_index_groups_make_room, .timeout = 30) {
  TestStore store(grace_of(20'000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  Putter putter(a);
  for (u64 k = 0; k < 3 * kLinesOfTwoGroups; ++k) {
    const store::PutBlock block = putter.put(ns, crowded_key(k), 5000);
    cr_assert_eq(putter.result(), 0);
    cr_assert(block.status == store::BlockStatus::kOk, "%lu: %d", k, int(block.status));
    pool::Hit hit;
    const pool::Key key = crowded_key(k);
    cr_assert_eq(a->lookup(ns, &key, 1, {}, &hit), 0);
    cr_assert(hit.presence == pool::Presence::kHit);
  }
  cr_assert_eq(owner->stats().evicted, 2 * kLinesOfTwoGroups, "one line's worth for each");
}

// Shows: what cannot make room in time is FULL, by its deadline, and at once when cancelled.
Test(store_put, full_index_groups_wait_no_longer_than_they_may, .timeout = 30) {
  TestStore store(grace_of(3'000'000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  Putter putter(a);
  for (u64 k = 0; k < kLinesOfTwoGroups; ++k) {
    cr_assert(putter.put(ns, crowded_key(k), 5000).status == store::BlockStatus::kOk);
  }
  u64 begun = clock_ns();
  cr_assert(putter.put(ns, crowded_key(100), 100).status == store::BlockStatus::kFull);
  cr_assert_eq(putter.result(), 0);
  cr_assert_lt(clock_ns() - begun, 2'000'000'000u);
  std::atomic<bool> cancelled{false};
  std::thread canceller([&] {
    wait_ms(50);
    cancelled = true;
  });
  begun = clock_ns();
  putter.put(ns, crowded_key(101), 5000, &cancelled);
  canceller.join();
  cr_assert_eq(putter.result(), -ECANCELED);
  cr_assert_lt(clock_ns() - begun, 2'000'000'000u);
}

// Guards: a put that was cancelled while its publication waited for a dead owner went on until its
// deadline.
Test(store_put, cancelling_ends_a_put_that_a_dead_owner_will_not_answer, .timeout = 30) {
  TestStore store(grace_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  Putter putter(a);
  cr_assert(putter.put(ns, make_key(1), 5000).status == store::BlockStatus::kOk);
  owner.stop();
  std::atomic<bool> cancelled{false};
  std::thread canceller([&] {
    wait_ms(100);
    cancelled = true;
  });
  const u64 begun = clock_ns();
  const store::PutBlock block = putter.put(ns, make_key(2), 5000, &cancelled);
  canceller.join();
  cr_assert_eq(putter.result(), -ECANCELED);
  cr_assert(block.status == store::BlockStatus::kDoubt, "%d", int(block.status));
  cr_assert_lt(clock_ns() - begun, 1'000'000'000u);
  ServingOwner next(store, 3);
  cr_assert(within_ms(2000, [&] { return a->blocks_in_doubt() == 0; }));
  cr_assert(look(a, ns, 2).presence == pool::Presence::kHit, "the report told of it");
}

// Shows: the reason of a put that its namespace's quota refuses differs from a full store's.
Test(store_put, quota_is_not_a_full_store, .timeout = 30) {
  TestStore store(grace_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a, 7, kBytes / 2);
  Putter putter(a);
  const u64 begun = clock_ns();
  const store::PutBlock block = putter.put(ns, make_key(1), 5000);
  cr_assert(block.status == store::BlockStatus::kFull);
  cr_assert_eq(block.error, -EDQUOT);
  cr_assert_lt(clock_ns() - begun, 1'000'000'000u, "trying again cannot help");
}

// Guards: PENDING was announced in namespaces that are not there, bypassed ones included.
Test(store_put, pending_needs_its_namespace, .timeout = 30) {
  TestStore store(grace_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const auto announced = [&](pool::NsRef in, u64 key) {
    cr_assert_eq(a->pending(in, make_key(key), 10'000), 0);
    wait_ms(50);
    const pool::Key k = make_key(key);
    for (u32 n = 0; n < owner->index().count(); ++n) {
      if (std::memcmp(owner->index().entry(n).key, k.w, sizeof k.w) == 0) return true;
    }
    return false;
  };
  cr_assert(announced(ns, 1));
  cr_assert_not(announced({0, 1}, 2), "no namespace");
  cr_assert_not(announced({static_cast<u16>(ns.id + 1), 1}, 3), "never opened");
  cr_assert_not(announced({0xFFFF, 1}, 4), "behind the table");
  media::NsAnswer answer{};
  cr_assert_eq(ns_control(a, ns.id, 0, media::NsOp::kBypassOn, answer), 0);
  cr_assert_not(announced(ns, 5), "bypassed");
}

// Guards: such a put kept its block until its member left.
Test(store_put, block_whose_publication_could_not_be_sent_comes_back, .timeout = 30) {
  TestStore store(lease_of(10'000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  Putter putter(a);
  cr_assert(putter.put(ns, make_key(1), 5000).status == store::BlockStatus::kOk);
  cr_assert(within_ms(1000, [&] { return a->blocks_in_doubt() == 0; }));
  const u64 in_hand = a->blocks_in_hand();
  a.freeze(true);
  owner->stop();
  ServingOwner next(store, 3, 1);
  const PoolOffset area = store.geometry().area_at(1, 0);
  const PoolOffset at = store.geometry().region_line(area, 0);
  Line whole;
  cr_assert(store.memory().load_line(at, whole));
  store.memory().publish_line(at, Line{{1, 2, 3}});
  store.memory().drain_strict(&at, 1);
  a.freeze(false);
  wait_ms(100);  // it has seen that there is another owner
  const store::PutBlock block = putter.put(ns, make_key(2), 300);
  cr_assert_lt(putter.result(), 0, "nobody can read who owns the store: %d", putter.result());
  cr_expect(block.status == store::BlockStatus::kUntried, "%d", int(block.status));
  store.memory().publish_line(at, whole);
  store.memory().drain_strict(&at, 1);
  cr_assert(within_ms(3000, [&] {
    return putter.put(ns, make_key(3), 1000).status == store::BlockStatus::kOk;
  }));
  cr_assert(within_ms(1000, [&] { return a->blocks_in_doubt() == 0; }));
  cr_expect_eq(a->blocks_in_hand(), in_hand - 1, "of which one is published now");
}
