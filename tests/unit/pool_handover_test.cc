// SPDX-License-Identifier: Apache-2.0
// Shows: what happens around a change of owners is neither undone nor waited for: an accepted
// removal stays, a call ends by its own deadline while another one waits, a scan outlasts the
// lease.
// How: threads over one store in anonymous memory whose owners the test replaces.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

Test(pool_handover, a_removal_is_not_undone_by_a_doubt, .timeout = 30) {
  TestStore store(lease_of(2000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember writer(store, 2), other(store, 3);
  const pool::NsRef ns = open_ns(writer);
  cr_assert_eq(put_block(writer, ns, 1), 0);
  wait_ms(30);
  writer.freeze(true);  // nothing is accepted in the background any more
  wait_ms(20);
  cr_assert_eq(put_block(writer, ns, 2), 0);
  cr_assert_gt(writer->blocks_in_doubt(), 0u);
  cr_assert_eq(other->remove(make_key(2), 0, other.in(1000)), 0);
  wait_ms(50);  // grace, and the line is emptied
  cr_assert_eq((*owner)->in_grace(), 0u);
  owner->stop();
  ServingOwner next(store, 4);
  writer.freeze(false);  // reports its doubt
  for (int i = 0; i < 1000 && writer->blocks_in_doubt() > 0; ++i) wait_ms(1);
  cr_assert_eq(writer->blocks_in_doubt(), 0u);
  cr_expect_neq(look(other, ns, 2).presence, pool::Presence::kHit, "what was removed is back");
  cr_expect_eq(look(other, ns, 1).presence, pool::Presence::kHit);
}

Test(pool_handover, a_call_ends_by_its_deadline_behind_another, .timeout = 60) {
  TestStore store(lease_of(2000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  owner->stop();
  // A candidate that claims and dies before it activates.
  const auto view = a->claims().read();
  media::ClaimLine claim = view.line[1];
  claim.claimed = media::make_epoch(media::epoch_counter(view.highest_claimed) + 1, 1);
  a->claims().write(1, claim);
  std::thread patient([&] { (void)a->remove(make_key(9), 0, a.in(3000)); });
  wait_ms(100);
  const u64 start = clock_ns();
  cr_expect_neq(a->remove(make_key(8), 0, a.in(50)), 0);
  const u64 took_ms = (clock_ns() - start) / 1'000'000;
  patient.join();
  cr_expect_lt(took_ms, 1500u, "a call with a deadline of 50 ms took %lu ms", took_ms);
}

// A machine that stands still for a lease ends the owner rightly: the take-over has three tries.
Test(pool_handover, a_scan_may_take_longer_than_the_lease, .timeout = 60) {
  media::FormatOptions options = lease_of(150);
  options.min_block_bytes = 4096;
  int err = -ESTALE;
  for (u32 i = 0; i < 3 && err != 0; ++i) {
    TestStore store(options, u64{4} << 30);
    auto env = store.process(1);
    Member member(*env, store.geometry());
    pool::MemberOptions how;
    how.standby_slot = 0;
    cr_assert_eq(member.join(how), 0);
    Owner owner(*env, member);
    err = owner.take_over(0);
  }
  cr_expect_eq(err, 0, "%d", err);
}

// Publications that go out in several halves while the member dies: none may keep a pointer to
// the caller's array.
Test(pool_handover, a_dead_members_publications_are_told_so, .timeout = 30) {
  TestStore store(lease_of(2000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  constexpr u32 kMany = 300;
  std::vector<pool::Block> blocks(kMany);
  cr_assert_eq(a->reserve(16 * 1024, kMany, a.in(5000), blocks.data()), 0);
  {
    std::vector<pool::Publication> publications(kMany);
    for (u32 i = 0; i < kMany; ++i) {
      publications[i].key = make_key(100 + i);
      publications[i].ns = ns;
      publications[i].block = blocks[i];
      publications[i].payload_lines = 255;
    }
    std::thread killer([&] { a.kill(); });
    (void)a->publish(publications.data(), kMany, a.in(2000));
    killer.join();
    for (const pool::Publication &p : publications) {
      cr_expect(p.result == 0 || p.result == -EINPROGRESS || p.result == -ESTALE ||
                    p.result == -EAGAIN || p.result == -ETIMEDOUT,
                "%d", p.result);
    }
  }
}

namespace {

Line line_at(TestStore &store, PoolOffset at) {
  Line line;
  store.memory().acquire(at, kLineBytes);
  cr_assert(store.memory().load_line(at, line));
  return line;
}

}  // namespace

// Guards: what an outbid owner did after its successor's scan had passed the namespace's line, a
// clear and then a publication, was confirmed by the successor, where no lookup found it.
Test(pool_handover, doubt_under_a_clear_that_never_counted_is_not_confirmed, .timeout = 30) {
  TestStore store(lease_of(2000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember writer(store, 2), other(store, 3);
  const pool::NsRef ns = open_ns(writer);
  const auto view = other->claims().read();
  const PoolOffset area = store.geometry().area_at(view.active_slot, view.active.area);
  const PoolOffset at = store.geometry().ns_line(area, ns.id);
  const Line before = line_at(store, at);
  media::NsAnswer answer;
  cr_assert_eq(ns_control(other, ns.id, ns.epoch, media::NsOp::kClear, answer), 0);
  writer.freeze(true);
  wait_ms(20);
  const pool::NsRef later{ns.id, answer.epoch};
  cr_assert_eq(put_block(writer, later, 2), 0);
  cr_assert_gt(writer->blocks_in_doubt(), 0u);
  owner->stop();
  store.memory().publish_line(at, before);  // as the scan had found it
  ServingOwner next(store, 4);
  writer.freeze(false);
  cr_assert(within_ms(2000, [&] { return writer->blocks_in_doubt() == 0; }));
  for (u32 n = 0; n < next->index().count(); ++n) {
    const media::Entry &e = next->index().entry(n);
    cr_expect(std::memcmp(e.key, make_key(2).w, sizeof e.key) != 0 ||
                  e.entry_state() != media::EntryState::kPublished,
              "published where nobody looks");
  }
  cr_expect_eq(put_block(writer, ns, 2), 0, "its block is free, and so is the key");
  cr_expect_eq(look(other, ns, 2).presence, pool::Presence::kHit);
}

// Guards: what an outbid owner published after its successor's scan had passed was lost when its
// member reported to nobody before the owner after that one, who knew nothing of the first.
Test(pool_handover, what_an_outbid_owner_answered_counts_two_owners_later, .timeout = 30) {
  TestStore store(lease_of(6000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember writer(store, 2), other(store, 3);
  const pool::NsRef ns = open_ns(writer);
  cr_assert_eq(put_block(writer, ns, 1), 0);
  wait_ms(30);
  writer.freeze(true);
  wait_ms(20);
  const auto view = other->claims().read();
  const PoolOffset area = store.geometry().area_at(view.active_slot, view.active.area);
  std::vector<Line> before;
  for (u64 n = 0; n < (*owner)->index().count(); ++n) {
    before.push_back(line_at(store, store.geometry().entry_line(area, n)));
  }
  cr_assert_eq(put_block(writer, ns, 2), 0);
  cr_assert_gt(writer->blocks_in_doubt(), 0u);
  owner->stop();
  for (u64 n = 0; n < before.size(); ++n) {  // as the scan finds it
    store.memory().publish_line(store.geometry().entry_line(area, n), before[n]);
  }
  auto next = std::make_unique<ServingOwner>(store, 4);
  cr_assert_neq(look(other, ns, 2).presence, pool::Presence::kHit);
  next->stop();
  ServingOwner last(store, 5);
  writer.freeze(false);
  cr_assert(within_ms(3000, [&] { return writer->blocks_in_doubt() == 0; }));
  cr_expect_eq(look(other, ns, 2).presence, pool::Presence::kHit, "its writer was told OK");
  cr_expect_eq(look(other, ns, 1).presence, pool::Presence::kHit);
}

// Guards: a clear that named the epoch of such a line was taken for done, and nothing was cleared.
Test(pool_handover, clear_ahead_of_the_owner_clears, .timeout = 30) {
  TestStore store(lease_of(2000));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 1), 0);
  media::NsAnswer answer;
  const auto clear = [&](u32 epoch) {
    return ns_control(a, ns.id, epoch, media::NsOp::kClear, answer);
  };
  cr_assert_eq(clear(ns.epoch + 1), 0);
  cr_expect_eq(answer.epoch, ns.epoch + 2, "an epoch that nobody used yet");
  cr_expect_eq(look(a, ns, 1).presence, pool::Presence::kMiss);
  cr_expect_eq(clear(ns.epoch + 1), -ESTALE, "done already");
  cr_expect_neq(clear(ns.epoch + (1u << 20)), 0, "no owner clears that often");
}

// Guards: after 2^40 publications of one owner every put was refused, and its extent given up.
Test(pool_handover, owner_takes_over_from_itself_before_versions_are_used_up, .timeout = 30) {
  TestStore store(lease_of(2000));
  pool::OwnerOptions how;
  how.versions = 32;
  ServingOwner owner(store, 1, 0, how);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const u32 first = owner->epoch();
  for (u64 key = 0; key < 200; ++key) {
    const int err = put_block(a, ns, key);
    cr_assert_eq(err, 0, "put %lu: %d", key, err);
  }
  cr_expect_geq(media::epoch_counter(owner->epoch()), media::epoch_counter(first) + 6);
  for (u64 key = 0; key < 200; ++key) {
    cr_expect_eq(look(a, ns, key).presence, pool::Presence::kHit, "%lu", key);
  }
}

// Without the take-over a put waits for one, as for a line of the index, and loses nothing.
Test(pool_handover, put_without_a_version_left_is_full, .timeout = 30) {
  TestStore store(lease_of(2000));
  const auto env = store.process(1);
  Member member(*env, store.geometry());
  cr_assert_eq(member.join({}), 0);
  Owner owner(*env, member, {.versions = 4});
  cr_assert_eq(owner.take_over(0), 0);
  std::atomic<bool> stop{false}, renew{false};
  std::thread serving([&] {
    while (!stop && owner.step() >= 0) {
      if (renew && owner.wants_new_epoch()) owner.renew_epoch();
    }
  });
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  for (u64 key = 0; key < 4; ++key) cr_assert_eq(put_block(a, ns, key), 0);
  cr_assert(owner.wants_new_epoch());
  cr_expect_eq(put_block(a, ns, 4), -ENOSPC);
  renew = true;
  cr_expect(within_ms(3000, [&] { return put_block(a, ns, 4) == 0; }));
  stop = true;
  serving.join();
}

namespace {

bool is_pending(LiveMember &member, pool::NsRef ns, u64 key, u64 ms) {
  const pool::Hit hit = look(member, ns, key);
  return hit.presence == pool::Presence::kPending && hit.pending_ms == ms;
}

}  // namespace

// Guards: PENDING ended with its member alone.
Test(pool_handover, pending_ends_with_the_duration_announced, .timeout = 30) {
  TestStore store(lease_of(4000));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(put_block(a, ns, 9), 0);  // it speaks to the owner
  cr_assert_eq(a->pending(ns, make_key(1), 300), 0);
  cr_assert_eq(a->pending(ns, make_key(2), 60'000), 0);
  cr_assert_eq(a->pending(ns, make_key(3), 300), 0);
  cr_assert(within_ms(200, [&] { return is_pending(b, ns, 3, 300); }));
  cr_assert_eq(a->pending(ns, make_key(3), 60'000), 0);  // it takes longer
  wait_ms(100);
  cr_expect(is_pending(b, ns, 1, 300));
  cr_expect(within_ms(1000, [&] {
    return look(b, ns, 1).presence == pool::Presence::kMiss;
  }));
  wait_ms(300);
  cr_expect(is_pending(b, ns, 2, 60'000));
  cr_expect(is_pending(b, ns, 3, 60'000), "announced again");
  cr_assert_eq(a->pending(ns, make_key(1), 500), 0, "it may be announced again");
  cr_assert(within_ms(200, [&] { return is_pending(b, ns, 1, 500); }));
  owner->stop();
  ServingOwner next(store, 4, 1);
  cr_expect(is_pending(b, ns, 2, 60'000), "another owner knows it");
  cr_expect(within_ms(1500, [&] {
    return look(b, ns, 1).presence == pool::Presence::kMiss;
  }), "and ends it");
}
