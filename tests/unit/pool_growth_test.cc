// SPDX-License-Identifier: Apache-2.0
// Shows: an index that is outgrown becomes larger while members go on: what was published stays
// readable, what was pinned stays pinned, a hit of before is looked up anew, and puts that found no
// line find one. Where there is no room for a larger index it stays as it is.
// How: an owner and members as threads over one store in anonymous memory, formatted for blocks
// much larger than those that are put.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

constexpr u64 kBlock = 64 * 1024;

media::FormatOptions for_large_blocks(u32 growth) {
  media::FormatOptions options = lease_of(1000);
  options.min_block_bytes = 1 << 20;
  options.lines_per_block = 1;
  options.index_growth = growth;
  return options;
}

// A put that tries again while its groups have no line.
void put_patiently(LiveMember &member, pool::NsRef ns, u64 key) {
  int err = 0;
  const bool stored =
      within_ms(5000, [&] { return (err = put_block(member, ns, key, kBlock)) == 0; });
  cr_assert(stored, "key %lu: %d", key, err);
}

}  // namespace

Test(pool_growth, outgrown_index_becomes_larger_and_nothing_is_lost, .timeout = 60) {
  TestStore store(for_large_blocks(8));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2), b(store, 3);
  const pool::NsRef ns = open_ns(a);
  const u64 small = owner->index().count();
  const u32 epoch = owner->epoch();
  put_patiently(a, ns, 1'000'000);
  const pool::Hit before = look(b, ns, 1'000'000);
  cr_assert_eq(before.presence, pool::Presence::kHit);
  pool::Pin pin;
  cr_assert_eq(b->pin(before, make_key(1'000'000), 30'000, b.in(5000), pin), 0);

  u64 key = 0;
  for (; key < 20 * small && owner->index().count() < store.geometry().index_groups_max *
                                                          media::kGroupLines; ++key) {
    put_patiently(a, ns, key);
  }
  cr_assert_eq(owner->index().count(), 8 * small, "%lu puts, %lu lines", key,
               owner->index().count());
  cr_assert_gt(owner->epoch(), epoch);
  wait_ms(50);  // reports are in
  cr_expect_geq(owner->pinned(), 1, "the pin came with a report");
  const pool::Hit after = look(b, ns, 1'000'000);
  cr_expect_eq(after.presence, pool::Presence::kHit, "a pinned block is neither evicted nor lost");
  cr_expect_eq(after.version, before.version);
  bool valid = true;
  cr_expect_eq(b->validate(&before, 1, &valid), 0);
  cr_expect_not(valid, "entries have other numbers now");

  for (u64 k = key; k < key + 100; ++k) put_patiently(a, ns, k);  // room enough now
  u64 found = 0;
  for (u64 k = key; k < key + 100; ++k) found += look(b, ns, k).presence == pool::Presence::kHit;
  cr_expect_eq(found, 100);
}

Test(pool_growth, without_room_the_index_stays_and_puts_displace, .timeout = 60) {
  TestStore store(for_large_blocks(1));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const u64 lines = owner->index().count();
  const u32 epoch = owner->epoch();
  for (u64 key = 0; key < 3 * lines; ++key) put_patiently(a, ns, key);
  cr_expect_eq(owner->index().count(), lines);
  cr_expect_eq(owner->epoch(), epoch);
  cr_expect_eq(look(a, ns, 3 * lines - 1).presence, pool::Presence::kHit);
}

// Guards: the way back from a larger index in which an entry finds no line. Eight keys whose two
// groups are the same ones in any size fill them; a ninth lies elsewhere, and is moved first.
Test(pool_growth, larger_index_without_a_line_for_an_entry_is_given_up, .timeout = 60) {
  TestStore store(for_large_blocks(8));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const u64 lines = owner->index().count();
  const auto put = [&](u64 first, u64 second, u64 n) {
    pool::Publication p;
    cr_assert_eq(a->reserve(kBlock, 1, a.in(5000), &p.block), 0);
    p.key = make_key(n);
    p.key.w[0] = first;
    p.key.w[1] = second;
    p.ns = ns;
    p.payload_lines = 1;
    const int err = a->publish(&p, 1, a.in(5000));
    cr_assert_eq(err, 0);
    if (p.result != 0) a->abort(p.block);
    return p.result;
  };
  constexpr u64 kLow = u64{1} << 40, kMiddle = u64{1} << 63, kHigh = ~u64{0};
  for (u64 n = 0; n < 8; ++n) cr_assert_eq(put(kMiddle, kHigh, n), 0);
  cr_assert_eq(put(kMiddle, kLow, 8), 0);
  const u32 epoch = owner->epoch();
  u64 n = 9;
  for (; n < 400 && owner->epoch() == epoch; ++n) put(kMiddle, kHigh, n);
  cr_expect_gt(owner->epoch(), epoch, "no growth was tried");
  // Its epoch is another one from the claim on, before the larger index was given up.
  cr_expect(within_ms(5000, [&] { return put(kLow, kLow + 1, n) == 0; }), "it serves on");
  cr_expect_eq(owner->index().count(), lines);
}
