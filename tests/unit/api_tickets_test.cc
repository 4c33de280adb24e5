// SPDX-License-Identifier: Apache-2.0
// Shows: reservations and pins travel between members of a group, and nobody else can use them.
// How: two or three contexts of one or different engines in this process stand for ranks and
// strangers.
#include <thread>

#include "api_fixture.hpp"

using namespace api_test;

namespace {

kvpool_plan plan_of(std::vector<uint8_t> &bytes) {
  kvpool_plan plan{};
  plan.buf = bytes.data();
  plan.bytes = bytes.size();
  return plan;
}

kvpool_ticket reserve_one(kvpool_ns *ns, const kvpool_key &key, uint64_t bytes, uint32_t shards) {
  kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
  opts.block_bytes = bytes;
  opts.shards = shards;
  kvpool_ticket ticket;
  cr_assert_eq(kvpool_reserve(ns, &key, nullptr, 1, &opts, &ticket), 1, "%d: %lu bytes, %u shards",
               0, bytes, shards);
  return ticket;
}

}  // namespace

Test(api_tickets, ranks_write_their_shards, .timeout = 60) {
  Pool pool("shards");
  Ctx first(pool, true, 77), second(pool, false, 77);
  kvpool_ns *ns = open_ns(first), *there = open_ns(second);
  const struct {
    uint64_t bytes;
    uint32_t shards;
  } cases[] = {{4096, 2}, {65536, 1}, {262144, 4}, {655360, 4}, {3145728, 8}, {8192, 64}};
  for (const auto &c : cases) {
    const kvpool_key key = key_of(ns, c.bytes);
    auto out = bytes_of(c.bytes, c.bytes);
    const kvpool_plan plan = plan_of(out);
    const kvpool_ticket ticket = reserve_one(ns, key, c.bytes, c.shards);
    uint64_t covered = 0;
    int32_t status = -1;
    for (uint32_t s = 0; s < c.shards; ++s) {
      uint64_t offset, bytes;
      kvpool_ctx *rank = s % 2 ? second : first;
      cr_assert_eq(kvpool_shard_range(rank, &ticket, s, &offset, &bytes), 0);
      cr_expect_eq(offset, covered, "shards follow each other");
      covered += bytes;
      cr_expect_eq(kvpool_shard_done(rank, &ticket, s), -ENODATA);
      if (s == 0) {
        cr_expect_eq(kvpool_publish(ns, &ticket, 1, 0, &status), -EINPROGRESS);
        cr_expect_eq(status, -1);
      }
      cr_assert_eq(kvpool_write(rank, &ticket, s, &plan, 0), 0, "%s", kvpool_strerror_detail(rank));
      cr_expect_eq(kvpool_write(rank, &ticket, s, &plan, 0), -EALREADY);
      cr_expect_eq(kvpool_shard_done(rank, &ticket, s), 0);
      cr_expect_eq(kvpool_shard_done(rank, &ticket, s), 0, "idempotent");
      cr_expect_eq(kvpool_lookup(there, &key, 1, 0, 0, nullptr), 0, "visible before publish");
    }
    cr_expect_eq(covered, c.bytes);
    cr_expect_eq(kvpool_publish(there, &ticket, 1, 0, &status), -EACCES);
    cr_assert_eq(kvpool_publish(ns, &ticket, 1, 0, &status), 1, "%s",
                 kvpool_strerror_detail(first));
    cr_expect_eq(status, KVPOOL_STATUS_OK);
    cr_expect_eq(kvpool_publish(ns, &ticket, 1, 0, &status), -EKEYEXPIRED, "published twice");
    std::vector<uint8_t> in(c.bytes), part(c.bytes / 3 + 1);
    cr_assert_eq(kvpool_get(there, &key, in.data(), in.size(), 0), 1, "%lu bytes in %u shards",
                 c.bytes, c.shards);
    cr_expect(in == out);
    cr_assert_eq(kvpool_get(there, &key, part.data(), part.size(), 0), 1);
    cr_expect(std::equal(part.begin(), part.end(), out.begin()));
  }
}

Test(api_tickets, aborted_and_bad_reservations, .timeout = 60) {
  Pool pool("abort");
  Ctx ctx(pool, true, 5);
  kvpool_ns *ns = open_ns(ctx);
  auto out = bytes_of(1, 8192);
  const kvpool_plan plan = plan_of(out);
  const kvpool_key key = key_of(ns, 1);
  kvpool_ticket ticket = reserve_one(ns, key, 8192, 1);
  cr_expect_eq(kvpool_abort(ns, &ticket, 1), 1);
  cr_expect_eq(kvpool_abort(ns, &ticket, 1), 0);
  cr_expect_eq(kvpool_write(ctx, &ticket, 0, &plan, 0), -EKEYEXPIRED);
  kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
  kvpool_ticket untouched;
  std::memset(&untouched, 0x5A, sizeof untouched);
  const kvpool_ticket before = untouched;
  auto refused = [&](int err, uint64_t bytes, uint32_t shards) {
    opts.block_bytes = bytes;
    opts.shards = shards;
    cr_expect_eq(kvpool_reserve(ns, &key, nullptr, 1, &opts, &untouched), err,
                 "%lu bytes %u shards", bytes, shards);
    cr_expect_eq(std::memcmp(&untouched, &before, sizeof before), 0);
  };
  refused(-EINVAL, 0, 1);
  refused(-EINVAL, 4096, 65);
  refused(-EINVAL, 64, 2);
  refused(-EINVAL, 192, 2);  // lines that two shards cannot share evenly
  refused(-EMSGSIZE, uint64_t{2} << 30, 1);
  ticket = reserve_one(ns, key, 8192, 2);
  cr_expect_eq(kvpool_write(ctx, &ticket, 2, &plan, 0), -EINVAL);
  kvpool_plan beyond = plan;
  std::vector<uint8_t> more(8256);
  beyond.buf = more.data();
  beyond.bytes = more.size();
  cr_expect_eq(kvpool_write(ctx, &ticket, 0, &beyond, 0), -ERANGE);
  ticket.opaque[3] ^= 1;
  cr_expect_eq(kvpool_write(ctx, &ticket, 0, &plan, 0), -EBADMSG);
  ticket.opaque[3] ^= 1;
  const kvpool_ticket twice[2] = {ticket, ticket};
  cr_expect_eq(kvpool_publish(ns, twice, 2, 0, nullptr), -EINVAL);
}

// Guards: a rank that was late wrote into a block that had been aborted, and was another's by then.
Test(api_tickets, nobody_begins_to_write_what_was_aborted, .timeout = 60) {
  Pool pool("late");
  Ctx ours(pool, true, 9), rank(pool, false, 9);
  kvpool_ns *ns = open_ns(ours);
  auto out = bytes_of(1, 65536);
  const kvpool_plan plan = plan_of(out);
  const kvpool_ticket first = reserve_one(ns, key_of(ns, 1), 65536, 1);
  const kvpool_ticket open = reserve_one(ns, key_of(ns, 2), 65536, 1);
  cr_expect_eq(kvpool_abort(ns, &first, 1), 1);
  cr_expect_eq(kvpool_write(rank, &first, 0, &plan, 0), -EKEYEXPIRED, "%s",
               kvpool_strerror_detail(rank));
  cr_expect_eq(kvpool_write(ours, &first, 0, &plan, 0), -EKEYEXPIRED);
  cr_expect_eq(kvpool_write(rank, &open, 0, &plan, 0), 0, "%s", kvpool_strerror_detail(rank));
  cr_expect_eq(kvpool_publish(ns, &open, 1, 0, nullptr), 1);
  // Nor once the place is somebody else's.
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const kvpool_ticket next = reserve_one(ns, key_of(ns, 3), 65536, 1);
  cr_expect_eq(kvpool_write(rank, &first, 0, &plan, 0), -EKEYEXPIRED);
  cr_expect_eq(kvpool_write(ours, &next, 0, &plan, 0), 0);
  cr_expect_eq(kvpool_publish(ns, &next, 1, 0, nullptr), 1);
}

// Guards: a deadline was looked at once, before the write began.
Test(api_tickets, write_ends_by_its_deadline_and_may_be_made_again, .timeout = 60) {
  constexpr uint64_t kBytes = 32 << 20;
  Pool pool("slow", 64);
  Ctx ctx(pool, true, 9);
  kvpool_ns *ns = open_ns(ctx);
  auto out = bytes_of(7, kBytes);
  const kvpool_plan plan = plan_of(out);
  const kvpool_key key = key_of(ns, 1);
  const kvpool_ticket ticket = reserve_one(ns, key, kBytes, 1);
  cr_expect_eq(kvpool_write(ctx, &ticket, 0, &plan, now_ns() + 200'000), -ETIMEDOUT, "%s",
               kvpool_strerror_detail(ctx));
  cr_expect_eq(kvpool_shard_done(ctx, &ticket, 0), -ENODATA);
  cr_assert_eq(kvpool_write(ctx, &ticket, 0, &plan, 0), 0, "%s", kvpool_strerror_detail(ctx));
  cr_assert_eq(kvpool_publish(ns, &ticket, 1, 0, nullptr), 1);
  std::vector<uint8_t> in(kBytes);
  cr_assert_eq(kvpool_get(ns, &key, in.data(), in.size(), 0), 1);
  cr_expect(in == out);
}

Test(api_tickets, strangers_and_former_lives_are_refused, .timeout = 60) {
  Pool pool("strange"), elsewhere("strange2");
  Ctx ours(pool, true, 1), stranger(pool, false, 2), other_store(elsewhere, true, 1);
  kvpool_ns *ns = open_ns(ours);
  auto out = bytes_of(1, 4096);
  const kvpool_plan plan = plan_of(out);
  const kvpool_key key = key_of(ns, 1);
  cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  kvpool_ticket pin, reservation = reserve_one(ns, key_of(ns, 2), 4096, 1);
  cr_assert_eq(kvpool_pin(ns, &key, 1, nullptr, &pin), 1);
  cr_expect_eq(kvpool_ticket_valid(stranger, &pin, 0), -EACCES);
  cr_expect_eq(kvpool_ticket_valid(other_store, &pin, 0), -EXDEV);
  cr_expect_eq(kvpool_write(stranger, &reservation, 0, &plan, 0), -EACCES);
  cr_expect_eq(kvpool_write(other_store, &reservation, 0, &plan, 0), -EXDEV);
  cr_expect_eq(kvpool_write(ours, &pin, 0, &plan, 0), -EINVAL, "a pin is no reservation");
  cr_expect_eq(kvpool_ticket_valid(ours, &reservation, 0), -EINVAL);
  kvpool_ns *there = open_ns(other_store);
  kvpool_ticket former;
  const kvpool_key same = key_of(there, 1);
  cr_assert_eq(kvpool_put(there, &same, out.data(), out.size(), 0), 1);
  cr_assert_eq(kvpool_pin(there, &same, 1, nullptr, &former), 1);
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.flags = KVPOOL_FORMAT_F_YES | KVPOOL_FORMAT_F_FORCE;
  opts.block_bytes = 16384;
  cr_assert_eq(kvpool_format(elsewhere.address(), &opts), 0);
  Ctx anew(elsewhere, true, 1);
  cr_expect_eq(kvpool_ticket_valid(anew, &pin, 0), -EXDEV);
  cr_expect_eq(kvpool_ticket_valid(anew, &former, 0), -EXDEV, "a format draws a new id");
  cr_expect(std::strstr(kvpool_strerror_detail(anew), "before this one was formatted") != nullptr);
  former.opaque[1] ^= 1;
  cr_expect_eq(kvpool_ticket_valid(anew, &former, 0), -EBADMSG);
}

Test(api_tickets, pins_protect_and_expire, .timeout = 120) {
  Pool pool("pins", 32);
  Ctx ctx(pool, true, 9), rank(pool, false, 9);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(rank);
  constexpr size_t kBytes = 1 << 20;
  auto out = bytes_of(1, kBytes);
  std::vector<uint8_t> in(kBytes);
  kvpool_key keys[3] = {key_of(ns, 1), key_of(ns, 2), key_of(ns, 3)};
  for (int i = 0; i < 2; ++i) cr_assert_eq(kvpool_put(ns, &keys[i], out.data(), kBytes, 0), 1);
  kvpool_pin_opts opts = KVPOOL_OPTS(kvpool_pin_opts);
  opts.ttl_ms = 60000;
  kvpool_ticket pins[3];
  cr_assert_eq(kvpool_pin(ns, keys, 3, &opts, pins), 2, "the longest prefix");
  kvpool_piece pieces[4];
  const int n = kvpool_map(rank, &pins[0], 4, pieces);
  cr_assert_geq(n, 1, "%s", kvpool_strerror_detail(rank));
  uint64_t mapped = 0;
  for (int i = 0; i < n; ++i) {
    cr_expect_eq(pieces[i].block_offset, mapped);
    cr_expect_eq(std::memcmp(pieces[i].addr, out.data() + mapped, pieces[i].bytes), 0);
    mapped += pieces[i].bytes;
  }
  cr_expect_eq(mapped, kBytes);
  // Pressure that would evict them, and a removal: pinned bytes stay.
  cr_assert_eq(kvpool_remove(ns, &keys[0], 1, 0), 1);
  for (uint64_t i = 100; i < 160; ++i) {
    const kvpool_key key = key_of(ns, i);
    cr_assert_eq(kvpool_put(ns, &key, in.data(), kBytes, 0), 1, "%s", kvpool_strerror_detail(ctx));
  }
  cr_expect_eq(kvpool_lookup(ns, &keys[0], 1, 0, 0, nullptr), 0);
  kvpool_block block{};
  block.ticket = &pins[1];
  block.plan.buf = in.data();
  block.plan.bytes = kBytes;
  int32_t status;
  cr_assert_eq(kvpool_get_blocks(there, &block, 1, 0, &status), 1, "status %d", status);
  cr_expect(in == out);
  cr_expect_eq(kvpool_ticket_valid(rank, &pins[1], 0), 1);
  cr_expect_eq(std::memcmp(pieces[0].addr, out.data(), pieces[0].bytes), 0, "removed but pinned");
  kvpool_unpin(ctx, pins, 2);
  kvpool_unpin(ctx, pins, 2);
  opts.ttl_ms = 30;
  cr_assert_eq(kvpool_put(ns, &keys[2], out.data(), kBytes, 0), 1);
  cr_assert_eq(kvpool_pin(ns, &keys[2], 1, &opts, pins), 1);
  usleep(60000);
  cr_expect_eq(kvpool_ticket_valid(ctx, pins, 0), 0);
  cr_expect_eq(kvpool_map(ctx, pins, 4, pieces), -EKEYEXPIRED);
}

Test(api_tickets, snapshots_pin_versions, .timeout = 60) {
  Pool pool("snap");
  Ctx ctx(pool, true, 9);
  kvpool_ns *ns = open_ns(ctx);
  auto out = bytes_of(1, 4096);
  const kvpool_key key = key_of(ns, 1);
  cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  kvpool_hit hit;
  cr_assert_eq(kvpool_lookup(ns, &key, 1, 0, 0, &hit), 1);
  kvpool_pin_opts opts = KVPOOL_OPTS(kvpool_pin_opts);
  opts.snapshot = &hit;
  kvpool_ticket pin;
  cr_expect_eq(kvpool_pin(ns, &key, 1, &opts, &pin), 1);
  kvpool_unpin(ctx, &pin, 1);
  cr_assert_eq(kvpool_remove(ns, &key, 1, 0), 1);
  cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  cr_expect_eq(kvpool_pin(ns, &key, 1, &opts, &pin), 0, "another version is there by now");
  kvpool_block block{};
  std::vector<uint8_t> in(4096);
  block.key = key;
  block.hit = &hit;
  block.plan.buf = in.data();
  block.plan.bytes = in.size();
  int32_t status;
  cr_expect_eq(kvpool_get_blocks(ns, &block, 1, 0, &status), 1, "by key: read again as it is now");
  cr_expect(in == out);
}

Test(api_tickets, components_have_policies, .timeout = 60) {
  Pool pool("parts");
  Ctx ctx(pool);
  const kvpool_component parts[] = {{"kv", 0, 0, 0}, {"state", 0, 2, 0}};
  kvpool_ns_opts opts = ns_opts();
  opts.components = parts;
  opts.component_count = 2;
  kvpool_ns *ns = nullptr;
  cr_assert_eq(kvpool_ns_open(ctx, "parts", &opts, &ns), 0, "%s", kvpool_strerror_detail(ctx));
  auto out = bytes_of(1, 4096);
  kvpool_key keys[6], state;
  for (uint64_t i = 0; i < 6; ++i) keys[i] = key_of(ns, i);
  auto put_state = [&](int i) {
    cr_assert_eq(kvpool_key_component(ns, &keys[i], 1, &state), 0);
    cr_assert_eq(kvpool_put(ns, &state, out.data(), out.size(), 0), 1);
  };
  for (int i = 0; i < 5; ++i) cr_assert_eq(kvpool_put(ns, &keys[i], out.data(), out.size(), 0), 1);
  cr_expect_eq(kvpool_lookup(ns, keys, 6, 0, 0, nullptr), 0, "no state at all");
  put_state(1);
  put_state(2);
  kvpool_hit hits[12];
  cr_expect_eq(kvpool_lookup(ns, keys, 6, 0, 0, hits), 3, "states of the last two blocks of 3");
  cr_expect(hits[3].state == KVPOOL_STATE_HIT && hits[1].state == KVPOOL_STATE_MISS);
  put_state(4);
  cr_expect_eq(kvpool_lookup(ns, keys, 6, 0, 0, nullptr), 3, "block 3 has no state");
  put_state(3);
  cr_expect_eq(kvpool_lookup(ns, keys, 6, 0, 0, nullptr), 5);
  cr_expect_eq(kvpool_lookup(ns, keys, 2, 0, 0, nullptr), 0, "block 0 has no state");
}
