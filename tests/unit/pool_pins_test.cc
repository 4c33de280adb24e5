// SPDX-License-Identifier: Apache-2.0
// Shows: an owner knows whose pins it keeps: they end with their holder and its group, and when
// they are given back whatever happens meanwhile; a holder hears of a pinned block that is gone.
// How: threads over one store in anonymous memory whose "processes" the test kills; owners that
// serve only as much as the test lets them.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

constexpr u32 kLong = 600'000;  // ms: no pin of these tests ends by its time

pool::Pin pin_block(LiveMember &member, pool::NsRef ns, u64 key) {
  pool::Pin pin;
  cr_assert_eq(member->pin(look(member, ns, key), make_key(key), kLong, member.in(2000), pin), 0);
  return pin;
}

// A member, or an owner, that does nothing by itself.
struct Still {
  Still(TestStore &store, u32 process)
      : env(store.process(process)), member(*env, store.geometry()), owner(*env, member) {
    cr_assert_eq(member.join({}), 0);
  }
  // Serves until `done`, with the member's ticks when it has any.
  template <class F>
  bool serve_until(F done, Member *ticks = nullptr) {
    for (const u64 end = env->now_ns() + 5'000'000'000; env->now_ns() < end;) {
      if (done()) return true;
      owner.step();
      if (ticks) ticks->renew();
    }
    return done();
  }
  u64 in(u64 ms) { return env->now_ns() + ms * 1'000'000; }

  std::unique_ptr<TestEnv> env;
  Member member;
  Owner owner;
};

// What a thread of a process does while the test serves it.
template <class F>
class Beside {
public:
  explicit Beside(F work) : thread_([this, work] {
    work();
    over_ = true;
  }) {}
  ~Beside() { thread_.join(); }
  bool over() const { return over_; }

private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// A store with two blocks, and a member that pinned one of them, or both.
struct TwoBlocks {
  explicit TwoBlocks(Still &owner, Still &holder) : owner(owner), holder(holder) {
    bool done = false;
    Beside work([&] {
      media::NsOpenBody body{};
      std::memset(body.fingerprint, 1, sizeof body.fingerprint);
      body.create = 1;
      media::NsAnswer answer{};
      cr_assert_eq(holder.member.ns_open(body, holder.in(3000), answer), 0);
      ns = {static_cast<u16>(answer.id), answer.epoch};
      for (u64 key : {1, 2}) {
        pool::Publication p;
        const media::BlockShape shape = media::block_shape(64 * 1024, 1);
        cr_assert_eq(holder.member.reserve(shape.block_bytes(), 1, holder.in(3000), &p.block), 0);
        p.key = make_key(key);
        p.ns = ns;
        p.payload_lines = 1024;
        cr_assert_eq(holder.member.publish(&p, 1, holder.in(3000)), 0);
      }
      done = true;
    });
    cr_assert(owner.serve_until([&] { return work.over(); }));
    cr_assert(done);
  }
  pool::Hit hit(u64 key) {
    const pool::Key k = make_key(key);
    pool::Hit hit;
    cr_assert_eq(holder.member.lookup(ns, &k, 1, {}, &hit), 0);
    cr_assert(hit.presence == pool::Presence::kHit);
    return hit;
  }
  pool::Pin pin(u64 key) {
    pool::Pin pin;
    int err = 1;
    {
      const pool::Hit found = hit(key);
      Beside work(
          [&] { err = holder.member.pin(found, make_key(key), kLong, holder.in(3000), pin); });
      cr_assert(owner.serve_until([&] { return work.over(); }));
    }
    cr_assert_eq(err, 0);
    return pin;
  }

  Still &owner, &holder;
  pool::NsRef ns{};
};

}  // namespace

// Guards: a pin of a member that was killed kept its block until the pin's time was over.
Test(pool_pins, end_with_a_member_that_dies_stops_or_leaves, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), stopped(store, 3);
  const pool::NsRef ns = open_ns(a);
  for (u64 key = 1; key <= 4; ++key) cr_assert_eq(put_block(a, ns, key), 0);
  pin_block(a, ns, 1);
  {
    LiveMember killed(store, 4);
    pin_block(killed, ns, 2);
    pin_block(stopped, ns, 3);
    LiveMember leaves(store, 5);
    pin_block(leaves, ns, 4);
    cr_assert_eq(owner->pinned(), 4u);
    killed.kill();
    cr_assert(within_ms(2000, [&] { return owner->pinned() == 3; }), "killed");
  }
  cr_assert(within_ms(2000, [&] { return owner->pinned() == 2; }), "left");
  stopped.freeze(true);
  cr_assert(within_ms(2000, [&] { return owner->pinned() == 1; }), "stopped for a lease");
  wait_ms(100);
  cr_assert_eq(owner->pinned(), 1u, "those of the living stay");
  cr_assert_eq(a->remove(make_key(2), 0, a.in(1000)), 0);
  cr_assert_eq(a->remove(make_key(1), 0, a.in(1000)), 0);
  cr_assert(within_ms(1000, [&] { return owner->in_grace() == 1; }), "only the pinned one waits");
}

Test(pool_pins, of_a_group_end_with_its_last_member, .timeout = 30) {
  TestStore store(lease_of(300));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  pool::MemberOptions of_group;
  of_group.group = 7;
  LiveMember first(store, 3, of_group), last(store, 4, of_group);
  of_group.group = 8;
  LiveMember other(store, 5, of_group);
  pin_block(first, ns, 1);
  first.kill();
  cr_assert(within_ms(2000, [&] { return owner->stats().members_dead == 1; }));
  wait_ms(100);
  cr_assert_eq(owner->pinned(), 1u, "a ticket may be in use by another rank");
  last.kill();
  cr_assert(within_ms(2000, [&] { return owner->pinned() == 0; }));
}

// Guards: a report that was cut short pinned again what it had pinned, and a pin that was given
// back in between stayed.
Test(pool_pins, a_report_replaces_the_one_before, .timeout = 30) {
  TestStore store(lease_of(5000));
  auto first = std::make_unique<Still>(store, 1);
  cr_assert_eq(first->owner.take_over(0), 0);
  Still holder(store, 2), next(store, 3);
  pool::Pin given_back, kept;
  {
    TwoBlocks blocks(*first, holder);
    given_back = blocks.pin(1);
    kept = blocks.pin(2);
  }
  first->owner.stop();
  cr_assert_eq(next.owner.take_over(1), 0);
  {
    Beside report([&] { holder.member.tick(); });
    cr_assert(next.serve_until([&] { return next.owner.pinned() == 2; }));
    while (!report.over()) wait_ms(1);  // END is not answered in time
  }
  holder.member.unpin(given_back);
  cr_assert_eq(next.owner.pinned(), 2u);
  {
    Beside report([&] {
      for (int i = 0; i < 3; ++i) holder.member.tick();
    });
    cr_assert(next.serve_until([&] { return report.over(); }));
  }
  // The report goes on where it was cut short; that it named what was given back is told after it.
  cr_expect(next.serve_until([&] { return next.owner.pinned() == 1; }));
  {
    Beside rest([&] { holder.member.unpin(kept); });
    cr_assert(next.serve_until([&] { return next.owner.pinned() == 0; }));
  }
}

// Guards: a pin given back while the rings were full, or asked for by one who gave up, stayed.
Test(pool_pins, what_cannot_be_given_back_now_is_later, .timeout = 30) {
  TestStore store(lease_of(5000));
  Still owner(store, 1), holder(store, 2);
  cr_assert_eq(owner.owner.take_over(0), 0);
  TwoBlocks blocks(owner, holder);
  const pool::Pin pin = blocks.pin(1);
  u64 key = 100;
  while (holder.member.pending(blocks.ns, make_key(key), 1000) == 0) ++key;
  cr_assert_gt(key, 100u);
  holder.member.unpin(pin);  // finds no room
  const auto settle = [&] {
    Beside ticks([&] {
      for (int i = 0; i < 20 && owner.owner.pinned() != 0; ++i) {
        holder.member.tick();
        wait_ms(5);
      }
    });
    owner.serve_until([&] { return ticks.over(); });
  };
  settle();
  cr_expect_eq(owner.owner.pinned(), 0u);

  pool::Pin never;
  const pool::Hit hit = blocks.hit(2);
  cr_assert_eq(holder.member.pin(hit, make_key(2), kLong, holder.in(20), never), -ETIMEDOUT);
  cr_assert(owner.serve_until([&] { return owner.owner.pinned() == 1; }));
  settle();
  cr_expect_eq(owner.owner.pinned(), 0u);
}

// Guards: nobody told the holder of a pin that its block had gone with an entry that went bad.
Test(pool_pins, holder_hears_of_a_block_that_is_gone, .timeout = 30) {
  TestStore store(lease_of(2000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  for (u64 key : {1, 2}) cr_assert_eq(put_block(a, ns, key), 0);
  const pool::Pin bad = pin_block(a, ns, 1), good = pin_block(a, ns, 2);
  owner->stop();
  const PoolOffset at = store.geometry().entry_line(a->session()->area, bad.hit.entry);
  store.memory().publish_line(at, Line{{1, 2, 3}});
  store.memory().drain_strict(&at, 1);
  cr_assert_not(a->pin_lost(bad));
  ServingOwner next(store, 3);
  cr_assert(within_ms(3000, [&] { return a->pin_lost(bad); }));
  cr_assert_not(a->pin_lost(good));
  cr_assert_eq(next->pinned(), 1u);
  a->unpin(bad);
  cr_assert_not(a->pin_lost(bad), "what was given back is nobody's to lose");
  a->unpin(good);
  cr_assert(within_ms(1000, [&] { return next->pinned() == 0; }));
}

// Guards: what is pinned was hidden to make room, which it cannot give; once all of it was, what
// had just been put went too.
Test(pool_pins, pinned_blocks_are_not_evicted_for_room, .timeout = 60) {
  constexpr u64 kPinned = 10, kMost = 20'000;
  TestStore store(lease_of(1000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 3);
  const pool::NsRef ns = open_ns(a);
  for (u64 k = 0; k < kPinned; ++k) {
    cr_assert_eq(put_block(a, ns, k), 0);
    pin_block(a, ns, k);
  }
  u64 k = kPinned;
  for (bool evicted = false; !evicted && k < kMost; ++k) {
    cr_assert_eq(put_block(a, ns, k), 0);
    evicted = look(a, ns, kPinned).presence != pool::Presence::kHit;
  }
  cr_assert_lt(k, kMost, "nothing was evicted");
  for (u64 more = k + 50; k < more; ++k) cr_expect_eq(put_block(a, ns, k), 0);
  for (u64 p = 0; p < kPinned; ++p) {
    cr_expect_eq(look(a, ns, p).presence, pool::Presence::kHit, "pinned block %lu", p);
  }
}

namespace {

// Some ten thousand pins of one block.
std::vector<pool::Pin> pin_often(LiveMember &member, pool::NsRef ns, u64 key, u64 count) {
  std::vector<pool::Pin> pins(count);
  const pool::Hit hit = look(member, ns, key);
  for (pool::Pin &pin : pins) {
    const int err = member->pin(hit, make_key(key), kLong, member.in(5000), pin);
    cr_assert_eq(err, 0, "pin: %d", err);
  }
  return pins;
}

}  // namespace

// Guards: a report of many pins began anew with each slice of time, and never ended.
Test(pool_pins, report_of_many_pins_goes_on_where_it_stopped, .timeout = 60) {
  constexpr u64 kMany = 20'000;
  TestStore store(lease_of(4000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  pool::MemberOptions options;
  options.slice_ns = 500'000;  // cut short again and again
  LiveMember a(store, 2, options), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  for (u64 key : {1, 2, 3}) cr_assert_eq(put_block(a, ns, key), 0);
  const std::vector<pool::Pin> first = pin_often(a, ns, 1, 100);
  pin_often(a, ns, 2, kMany);
  const std::vector<pool::Pin> late = pin_often(a, ns, 3, 100);
  owner->stop();
  auto next = std::make_unique<ServingOwner>(store, 4, 1);
  wait_ms(10);
  next->stop();  // in the middle of it, most likely: it begins anew with the next one
  ServingOwner last(store, 5, 0);
  wait_ms(20);
  for (const pool::Pin &pin : first) a->unpin(pin);  // named already
  for (const pool::Pin &pin : late) a->unpin(pin);   // or not
  cr_assert(within_ms(5000, [&] { return last->stats().reports > 0; }), "the report ends");
  cr_expect_eq(put_block(b, ns, 4), 0, "others are served");
  cr_assert(within_ms(3000, [&] { return last->pinned() == 1; }), "those that were given back end");
  wait_ms(50);
  cr_expect_eq(last->pinned(), 1u);
}

// Guards: until a member with pins had reported to a new owner, a put whose groups were full, or
// whose namespace had used up its quota, drained the oldest block there, pinned or not.
// How: the holder of the pin stands still over the take-over; the puts come from another member.
Test(pool_pins, nothing_goes_before_those_with_pins_have_reported, .timeout = 60) {
  media::FormatOptions options = lease_of(6000);
  options.min_block_bytes = 1 << 20;
  options.lines_per_block = 1;
  TestStore store(options);
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), holder(store, 3);
  const pool::NsRef crowded = open_ns(a, 1), narrow = open_ns(a, 2, 2 << 20);
  const auto put = [&](u64 n) {  // all of the same two groups
    pool::Publication p;
    cr_assert_eq(a->reserve(64 * 1024, 1, a.in(5000), &p.block), 0);
    p.key = make_key(n);
    p.key.w[0] = u64{1} << 63;
    p.key.w[1] = ~u64{0};
    p.ns = crowded;
    p.payload_lines = 1;
    cr_assert_eq(a->publish(&p, 1, a.in(5000)), 0);
    if (p.result != 0) a->abort(p.block);
    return std::pair{p.key, p.result};
  };
  const pool::Key oldest = put(0).first;
  for (u64 n = 1; n < 8; ++n) cr_assert_eq(put(n).second, 0);
  for (u64 n = 100; n < 102; ++n) cr_assert_eq(put_block(a, narrow, n, 1 << 20), 0);
  pool::Hit hit;
  pool::Pin pin;
  cr_assert_eq(holder->lookup(crowded, &oldest, 1, {}, &hit), 0);
  cr_assert_eq(holder->pin(hit, oldest, kLong, holder.in(2000), pin), 0);
  pin_block(holder, narrow, 100);
  holder.freeze(true);
  wait_ms(20);
  owner->stop();
  ServingOwner next(store, 4);
  cr_assert(next->awaits_reports());
  cr_expect_eq(put(8).second, -ENOSPC);
  cr_expect_neq(put_block(a, narrow, 102, 1 << 20), 0);
  cr_expect_eq(next->stats().evicted, 0u);
  cr_expect_eq(look(a, narrow, 100).presence, pool::Presence::kHit);
  cr_assert(next->awaits_reports(), "all this before the report");
  holder.freeze(false);
  cr_assert(within_ms(3000, [&] { return !next->awaits_reports(); }));
  cr_expect(within_ms(3000, [&] { return put(8).second == 0; }), "another of its group goes");
  cr_expect_eq(put_block(a, narrow, 102, 1 << 20), 0, "another of its namespace goes");
  cr_assert_eq(a->lookup(crowded, &oldest, 1, {}, &hit), 0);
  cr_expect_eq(hit.presence, pool::Presence::kHit, "it kept its entry all the while");
  cr_expect_eq(look(a, narrow, 100).presence, pool::Presence::kHit);
}
