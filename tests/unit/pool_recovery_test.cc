// SPDX-License-Identifier: Apache-2.0
// Shows: what a take-over, a rejoin and a death must carry over is carried over: reports that are
// owed, the word of a dead member's group, quotas; and what a damaged medium says is not believed.
// How: threads over one store in anonymous memory; the test kills "processes", freezes members and
// writes lines and words of the medium itself.
#include "pool_fixture.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

media::FormatOptions lease_of(u32 lease_ms) {
  media::FormatOptions options;
  options.lease_ms = lease_ms;
  options.grace_us = 500;
  return options;
}

void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

template <class F>
bool within_ms(int ms, F done) {
  for (int i = 0; i < ms; ++i) {
    if (done()) return true;
    wait_ms(1);
  }
  return done();
}

pool::MemberOptions of_group(u64 group) {
  pool::MemberOptions options;
  options.group = group;
  return options;
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
