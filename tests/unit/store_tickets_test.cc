// SPDX-License-Identifier: Apache-2.0
// Shows: a ticket survives the wire, and a foreign, former or damaged one is refused by what it is.
// How: round trips of random tickets; each part of the scope changed alone; every bit flipped.
#include <criterion/criterion.h>

#include <random>

#include "store/tickets.hpp"

using namespace kvpool;
using namespace kvpool::store;

namespace {

TicketScope scope_of(u64 seed) {
  TicketScope s;
  std::mt19937_64 rng(seed);
  for (u8 &b : s.uuid) b = static_cast<u8>(rng());
  s.life_nonce = rng();
  s.group = rng();
  s.incarnation = rng();
  s.host_stamp = rng();
  return s;
}

Ticket ticket_of(std::mt19937_64 &rng) {
  Ticket t;
  t.kind = static_cast<TicketKind>(1 + rng() % 3);
  t.ns = rng() % media::kMaxNamespaces;
  t.slot = rng() % (kTicketSlotMax + u64{1});
  t.address = rng() % (u64{1} << 40) * media::kLocatorUnit;
  t.payload_bytes = (1 + rng() % media::kPayloadLinesMax) * kLineBytes;
  t.shards = 1 + rng() % media::kMaxShards;
  t.generation = rng();
  t.check_hash = rng();
  t.entry = static_cast<u32>(rng());
  t.epoch = rng() & 0xFFFFFF;
  t.duration_ms = rng() % (kTicketDurationMsMax + 1);
  t.expiry_ns = (rng() & 0xFFFFFFFF) << 20;
  return t;
}

}  // namespace

// Guards: on a host that had been up for 52 days every pin counted as over.
Test(tickets, expiry_of_any_age_of_the_clock) {
  const TicketScope scope = scope_of(1);
  std::mt19937_64 rng(3);
  constexpr u64 kSecond = 1'000'000'000, kWrap = u64{1} << 52;
  for (const u64 now : {60 * kSecond, kWrap - kSecond, kWrap, kWrap + kSecond, 3 * kWrap + 7}) {
    for (const u64 ttl : {kSecond / 10, kSecond, 900 * kSecond}) {
      Ticket t = ticket_of(rng), back;
      t.expiry_ns = now + ttl;
      TicketWire wire;
      encode_ticket(scope, t, wire);
      cr_assert_eq(decode_ticket(scope, wire, back), 0);
      cr_expect_not(expired(back, now), "at once");
      cr_expect_not(expired(back, now + ttl - 3'000'000), "just before");
      cr_expect(expired(back, now + ttl), "in time");
      cr_expect(expired(back, now + 2 * ttl), "long after");
    }
  }
}

Test(tickets, round_trip) {
  const TicketScope scope = scope_of(1);
  std::mt19937_64 rng(2);
  for (int i = 0; i < 10000; ++i) {
    const Ticket t = ticket_of(rng);
    TicketWire wire;
    encode_ticket(scope, t, wire);
    Ticket back;
    cr_assert_eq(decode_ticket(scope, wire, back), 0);
    cr_assert(back.kind == t.kind && back.ns == t.ns && back.slot == t.slot);
    cr_assert(back.address == t.address && back.payload_bytes == t.payload_bytes);
    cr_assert(back.shards == t.shards && back.generation == t.generation);
    cr_assert(back.check_hash == t.check_hash && back.entry == t.entry && back.epoch == t.epoch);
    cr_assert(back.duration_ms == t.duration_ms && back.expiry_ns == t.expiry_ns);
    cr_assert(back.same_host && issued_here(scope, back));
  }
}

Test(tickets, foreign_ones_are_refused_by_name) {
  const TicketScope scope = scope_of(3);
  std::mt19937_64 rng(4);
  TicketWire wire;
  encode_ticket(scope, ticket_of(rng), wire);
  auto refused = [&](int err, auto change) {
    TicketScope other = scope;
    change(other);
    Ticket t;
    t.entry = 77;
    cr_expect_eq(decode_ticket(other, wire, t), err);
    cr_expect_eq(t.entry, 77, "a refused ticket was written to the output");
    cr_expect_str_neq(ticket_error(err), ticket_error(0));
  };
  refused(-EXDEV, [](TicketScope &s) { s.uuid[7] ^= 1; });
  refused(-EIDRM, [](TicketScope &s) { s.life_nonce ^= 1; });
  refused(-EACCES, [](TicketScope &s) { s.group ^= 1; });
}

// Golden: the errno of each case, on tickets as they are stored and sent. Their bytes may not
// change.
Test(tickets, golden_refusals) {
  constexpr TicketWire kWire = {{0xa27c65f42720031full, 0x10ee481f2240fe54ull,
                                 0x14246ba5f907cee8ull, 0x00c7b3b731572a29ull,
                                 0xd65ce10154ee6946ull, 0x9dd3ed66626eed43ull,
                                 0xf06bf350aa0ab256ull, 0x4643cff9bafa3e26ull}};
  const TicketScope scope = scope_of(42);
  std::mt19937_64 rng(43);
  TicketWire now;
  encode_ticket(scope, ticket_of(rng), now);
  for (int i = 0; i < 8; ++i) cr_expect_eq(now.w[i], kWire.w[i], "word %d: 0x%016lx", i, now.w[i]);
  Ticket t;
  cr_expect_eq(decode_ticket(scope, kWire, t), 0);
  const auto refused = [&](const TicketScope &at, int err) {
    cr_expect_eq(decode_ticket(at, kWire, t), err, "%d instead of %d", decode_ticket(at, kWire, t),
                 err);
  };
  TicketScope formatted = scope;  // a format draws a new id and a new life: another store
  formatted.uuid[0] ^= 0x10;
  formatted.life_nonce ^= 1;
  refused(formatted, -EXDEV);
  TicketScope life = scope;
  life.life_nonce ^= 1;
  refused(life, -EIDRM);
  TicketScope group = scope;
  group.group ^= 1;
  refused(group, -EACCES);
  TicketWire flipped = kWire;
  flipped.w[6] ^= 1;
  cr_expect_eq(decode_ticket(scope, flipped, t), -EBADMSG);
}

Test(tickets, another_member_or_host_of_the_group_may_use_one) {
  const TicketScope scope = scope_of(5);
  std::mt19937_64 rng(6);
  TicketWire wire;
  encode_ticket(scope, ticket_of(rng), wire);
  TicketScope rank = scope;
  rank.incarnation ^= 4;
  Ticket t;
  cr_assert_eq(decode_ticket(rank, wire, t), 0);
  cr_expect(t.same_host);
  cr_expect_not(issued_here(rank, t), "another member's table has no such slot");
  rank.host_stamp ^= 1;
  cr_assert_eq(decode_ticket(rank, wire, t), 0);
  cr_expect_not(t.same_host, "another host's clock says nothing about the expiry");
}

Test(tickets, damage_is_found) {
  const TicketScope scope = scope_of(7);
  std::mt19937_64 rng(8);
  TicketWire wire;
  encode_ticket(scope, ticket_of(rng), wire);
  for (int bit = 0; bit < 512; ++bit) {
    TicketWire bad = wire;
    bad.w[bit / 64] ^= u64{1} << bit % 64;
    Ticket t;
    cr_assert_eq(decode_ticket(scope, bad, t), -EBADMSG, "bit %d", bit);
  }
  Ticket t;
  TicketWire zeros{}, ones;
  std::memset(ones.w, 0xFF, sizeof ones.w);
  cr_expect_eq(decode_ticket(scope, zeros, t), -EBADMSG);
  cr_expect_eq(decode_ticket(scope, ones, t), -EBADMSG);
}
