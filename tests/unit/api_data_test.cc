// SPDX-License-Identifier: Apache-2.0
// Shows: what kvpool.h promises of lookup, put, get, runs, rows, removal, clears and bypass.
// How: a store in named memory with an embedded owner; a second context stands for another member.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "api_fixture.hpp"

#include "api/private.h"

using namespace api_test;

Test(api_data, put_lookup_get, .timeout = 60) {
  Pool pool("data");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(other);
  for (size_t bytes : {1, 63, 64, 65, 4096, 16384, 65536, 65537, 131072, 1000000, 3145728}) {
    const kvpool_key key = key_of(ns, bytes);
    const auto out = bytes_of(bytes, bytes);
    std::vector<uint8_t> in(bytes, 0xEE);
    kvpool_hit hit;
    cr_expect_eq(kvpool_get(there, &key, in.data(), bytes, 0), 0, "a block before it was put");
    cr_assert_eq(kvpool_put(ns, &key, out.data(), bytes, 0), 1, "%s", kvpool_strerror_detail(ctx));
    cr_expect_eq(kvpool_put(there, &key, out.data(), bytes, 0), 0, "put twice");
    cr_expect_eq(kvpool_lookup(there, &key, 1, 0, 0, &hit), 1);
    cr_expect_eq(hit.state, KVPOOL_STATE_HIT);
    cr_expect_eq(hit.bytes, (bytes + 63) / 64 * 64);
    cr_assert_eq(kvpool_get(there, &key, in.data(), bytes, 0), 1);
    cr_expect(in == out, "%zu bytes came back changed", bytes);
    std::vector<uint8_t> head(bytes / 2 + 1);
    cr_assert_eq(kvpool_get(there, &key, head.data(), head.size(), 0), 1);
    cr_expect(std::equal(head.begin(), head.end(), out.begin()), "the head of %zu bytes", bytes);
    std::vector<uint8_t> more(bytes + 64);
    cr_expect_eq(kvpool_get(there, &key, more.data(), more.size(), 0), -ERANGE);
  }
}

Test(api_data, blocks_over_devices_and_extents, .timeout = 60) {
  Pool pool("wide", 128, 4);
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(other);
  const size_t bytes = 9 << 20;
  const kvpool_key key = key_of(ns, 1);
  const auto out = bytes_of(7, bytes);
  std::vector<uint8_t> in(bytes);
  cr_assert_eq(kvpool_put(ns, &key, out.data(), bytes, 0), 1, "%s", kvpool_strerror_detail(ctx));
  cr_assert_eq(kvpool_get(there, &key, in.data(), bytes, 0), 1);
  cr_expect(in == out);
}

Test(api_data, prefix_states, .timeout = 60) {
  Pool pool("prefix");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  uint32_t tokens[8 * 16 + 5];
  for (uint32_t i = 0; i < 8 * 16 + 5; ++i) tokens[i] = i;
  kvpool_key keys[16];
  cr_assert_eq(kvpool_key_chain(ns, nullptr, tokens, 8 * 16 + 5, 16, keys), 8);
  kvpool_key rest[4];
  cr_assert_eq(kvpool_key_chain(ns, &keys[3], tokens + 64, 64, 4, rest), 4);
  cr_expect_eq(std::memcmp(rest, keys + 4, sizeof rest), 0, "a chain taken up again");
  const auto bytes = bytes_of(1, 4096);
  for (int i : {0, 1, 2, 5, 6}) {
    cr_assert_eq(kvpool_put(ns, &keys[i], bytes.data(), bytes.size(), 0), 1);
  }
  cr_assert_eq(kvpool_pending(ns, &keys[3], 1, 5000), 1);
  kvpool_hit hits[8];
  const uint64_t deadline = in_ms(3000);
  do {
    cr_assert_eq(kvpool_lookup(ns, keys, 8, KVPOOL_LOOKUP_F_ALL, 0, hits), 3);
  } while (hits[3].state != KVPOOL_STATE_PENDING && now_ns() < deadline);
  cr_expect_eq(hits[3].state, KVPOOL_STATE_PENDING);
  cr_expect_eq(hits[4].state, KVPOOL_STATE_MISS);
  cr_expect_eq(hits[5].state, KVPOOL_STATE_HIT);
  cr_assert_eq(kvpool_lookup(ns, keys, 8, 0, 0, hits), 3);
  cr_expect_eq(hits[3].state, KVPOOL_STATE_PENDING);
  for (int i = 4; i < 8; ++i) cr_expect_eq(hits[i].state, KVPOOL_STATE_UNKNOWN);
  cr_assert_eq(kvpool_put(ns, &keys[3], bytes.data(), bytes.size(), 0), 1, "replaces the promise");
  cr_expect_eq(kvpool_lookup(ns, keys, 8, 0, 0, nullptr), 4);
  cr_expect_eq(kvpool_touch(ns, hits, 8), 0);
}

Test(api_data, runs_gather_and_scatter, .timeout = 60) {
  Pool pool("runs");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  std::mt19937_64 rng(11);
  for (int round = 0; round < 60; ++round) {
    const uint64_t fragment = 1 + rng() % 3000, count = 1 + rng() % 40;
    const uint64_t block_stride = fragment + rng() % 200, local_stride = fragment + rng() % 5000;
    const uint64_t bytes = (count * block_stride + 64 + 63) / 64 * 64, offset = rng() % 64;
    std::vector<uint8_t> from = bytes_of(rng(), count * local_stride + fragment);
    std::vector<uint8_t> to(from.size(), 0xAA), expected(bytes, 0), whole(bytes);
    kvpool_mem *mem = nullptr;
    cr_assert_eq(kvpool_mem_register(ctx, from.data(), from.size(), nullptr, &mem), 0);
    kvpool_run run{};
    run.mem = mem;
    run.block_offset = offset;
    run.fragment_bytes = fragment;
    run.count = count;
    run.local_stride = static_cast<int64_t>(local_stride);
    run.block_stride = block_stride;
    for (uint64_t i = 0; i < count; ++i) {
      std::copy_n(from.begin() + static_cast<long>(i * local_stride), fragment,
                  expected.begin() + static_cast<long>(offset + i * block_stride));
    }
    kvpool_block block{};
    block.key = key_of(ns, static_cast<uint64_t>(round));
    block.plan.runs = &run;
    block.plan.run_count = 1;
    block.bytes = bytes;
    int32_t status = -1;
    cr_assert_eq(kvpool_put_blocks(ns, &block, 1, 0, &status), 1, "%s",
                 kvpool_strerror_detail(ctx));
    cr_expect_eq(status, KVPOOL_STATUS_OK);
    cr_assert_eq(kvpool_get(ns, &block.key, whole.data(), bytes, 0), 1);
    cr_expect(whole == expected, "round %d: the block differs", round);
    // Back through a run without handle, from the last fragment to the first.
    kvpool_run back = run;
    back.mem = nullptr;
    back.local_offset = reinterpret_cast<uintptr_t>(to.data()) + (count - 1) * local_stride;
    back.local_stride = -static_cast<int64_t>(local_stride);
    block.plan.runs = &back;
    cr_assert_eq(kvpool_get_blocks(ns, &block, 1, 0, &status), 1);
    for (uint64_t i = 0; i < count; ++i) {
      const auto a = to.begin() + static_cast<long>((count - 1 - i) * local_stride);
      const auto b = from.begin() + static_cast<long>(i * local_stride);
      cr_assert(std::equal(a, a + static_cast<long>(fragment), b), "round %d fragment %lu", round,
                i);
    }
    cr_assert_eq(kvpool_mem_unregister(mem), 0);
  }
}

Test(api_data, bad_plans_are_refused, .timeout = 60) {
  Pool pool("plans");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx);
  std::vector<uint8_t> local(8192);
  kvpool_mem *mem = nullptr, *foreign = nullptr;
  cr_assert_eq(kvpool_mem_register(ctx, local.data(), local.size(), nullptr, &mem), 0);
  cr_assert_eq(kvpool_mem_register(other, local.data(), local.size(), nullptr, &foreign), 0);
  auto put = [&](kvpool_run run, int32_t *status) {
    kvpool_block block{};
    block.key = key_of(ns, 1);
    block.plan.runs = &run;
    block.plan.run_count = 1;
    block.bytes = 4096;
    *status = -1;
    return kvpool_put_blocks(ns, &block, 1, 0, status);
  };
  int32_t status;
  kvpool_run good{};
  good.mem = mem;
  good.fragment_bytes = 100;
  good.count = 10;
  good.local_stride = 200;
  good.block_stride = 100;
  auto refused = [&](auto change) {
    kvpool_run run = good;
    change(run);
    cr_expect_eq(put(run, &status), 0);
    cr_expect_eq(status, KVPOOL_STATUS_RANGE);
  };
  refused([](kvpool_run &r) { r.block_offset = 4000; });
  refused([](kvpool_run &r) { r.local_offset = 7000; });
  refused([](kvpool_run &r) { r.local_stride = -200; });
  refused([](kvpool_run &r) { r.block_stride = 50; });
  refused([](kvpool_run &r) { r.count = ~0ull; });
  refused([](kvpool_run &r) { r.block_offset = ~0ull - 50; });
  refused([](kvpool_run &r) { r.fragment_bytes = 0; });
  kvpool_run run = good;
  run.mem = foreign;
  cr_expect_eq(put(run, &status), -EINVAL);
  cr_expect_eq(status, -1, "the status of a batch that was not tried");
  run.mem = nullptr;
  run.local_offset = 0;
  cr_expect_eq(put(run, &status), -ERANGE);
  cr_assert_eq(put(good, &status), 1, "%s", kvpool_strerror_detail(ctx));
  kvpool_block both{};
  both.plan.buf = local.data();
  both.plan.bytes = 64;
  both.plan.runs = &good;
  cr_expect_eq(kvpool_put_blocks(ns, &both, 1, 0, nullptr), -EINVAL);
}

Test(api_data, rows_come_from_many_blocks, .timeout = 60) {
  Pool pool("rows");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  constexpr uint64_t kRow = 160, kPerBlock = 64, kBlocks = 5;
  std::vector<std::vector<uint8_t>> data;
  std::vector<kvpool_block> blocks(kBlocks);
  for (uint64_t b = 0; b < kBlocks; ++b) {
    data.push_back(bytes_of(b, kRow * kPerBlock));
    blocks[b].key = key_of(ns, b);
    cr_assert_eq(kvpool_put(ns, &blocks[b].key, data[b].data(), data[b].size(), 0), 1);
  }
  std::mt19937_64 rng(5);
  std::vector<int64_t> rows(1024);
  for (int64_t &r : rows)
    r = rng() % 10 == 0 ? -1 : static_cast<int64_t>(rng() % (kPerBlock * kBlocks));
  std::vector<uint8_t> got(rows.size() * kRow, 0x77);
  kvpool_rows plan{};
  plan.local_offset = reinterpret_cast<uintptr_t>(got.data());
  plan.rows = rows.data();
  plan.row_count = rows.size();
  plan.row_bytes = kRow;
  plan.rows_per_block = kPerBlock;
  cr_assert_eq(kvpool_get_rows(ns, blocks.data(), kBlocks, &plan, 0, nullptr), kBlocks, "%s",
               kvpool_strerror_detail(ctx));
  for (size_t i = 0; i < rows.size(); ++i) {
    for (uint64_t j = 0; j < kRow; ++j) {
      const uint8_t expected =
          rows[i] < 0 ? 0x77
                      : data[static_cast<uint64_t>(rows[i]) / kPerBlock]
                            [static_cast<uint64_t>(rows[i]) % kPerBlock * kRow + j];
      cr_assert_eq(got[i * kRow + j], expected, "row %zu byte %lu", i, j);
    }
  }
  rows[3] = kPerBlock * kBlocks;
  cr_expect_eq(kvpool_get_rows(ns, blocks.data(), kBlocks, &plan, 0, nullptr), -ERANGE);
  rows[3] = 0;
  blocks[2].key = key_of(ns, 99);
  int32_t status[kBlocks];
  cr_expect_eq(kvpool_get_rows(ns, blocks.data(), kBlocks, &plan, 0, status), 0);
  cr_expect_eq(status[2], KVPOOL_STATUS_MISS);
}

Test(api_data, batches_report_each_block, .timeout = 60) {
  Pool pool("batch");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(other);
  constexpr size_t kBlocks = 200, kBytes = 8192;
  std::vector<std::vector<uint8_t>> out, in;
  std::vector<kvpool_block> blocks(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    out.push_back(bytes_of(i, kBytes));
    in.emplace_back(kBytes);
    blocks[i].key = key_of(ns, i);
    if (i > 0) blocks[i].parent = blocks[i - 1].key;
    blocks[i].plan.buf = out[i].data();
    blocks[i].plan.bytes = kBytes;
  }
  std::vector<int32_t> status(kBlocks, -1);
  cr_assert_eq(kvpool_put(ns, &blocks[7].key, out[7].data(), kBytes, 0), 1);
  cr_assert_eq(kvpool_put_blocks(ns, blocks.data(), kBlocks, 0, status.data()), kBlocks - 1);
  for (size_t i = 0; i < kBlocks; ++i) {
    cr_assert_eq(status[i], i == 7 ? KVPOOL_STATUS_EXISTS : KVPOOL_STATUS_OK);
  }
  std::vector<kvpool_key> keys(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    keys[i] = blocks[i].key;
    blocks[i].plan.buf = in[i].data();
  }
  std::vector<kvpool_hit> hits(kBlocks);
  cr_assert_eq(kvpool_lookup(there, keys.data(), kBlocks, 0, 0, hits.data()), kBlocks);
  for (size_t i = 0; i < kBlocks; i += 2) blocks[i].hit = &hits[i];
  cr_assert_eq(kvpool_remove(ns, &keys[9], 1, 0), 1);
  cr_expect_eq(kvpool_remove(ns, &keys[9], 1, 0), 0);
  cr_assert_eq(kvpool_get_blocks(there, blocks.data(), kBlocks, 0, status.data()), kBlocks - 1);
  for (size_t i = 0; i < kBlocks; ++i) {
    cr_assert_eq(status[i], i == 9 ? KVPOOL_STATUS_MISS : KVPOOL_STATUS_OK);
    if (i != 9) cr_assert(in[i] == out[i]);
  }
}

Test(api_data, clear_and_bypass_bind_everybody, .timeout = 60) {
  Pool pool("clear");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(other);
  const auto bytes = bytes_of(1, 4096);
  std::vector<uint8_t> in(4096);
  const kvpool_key old = key_of(ns, 1);
  cr_assert_eq(kvpool_put(ns, &old, bytes.data(), bytes.size(), 0), 1);
  cr_assert_eq(kvpool_lookup(there, &old, 1, 0, 0, nullptr), 1);
  cr_assert_eq(kvpool_ns_clear(ns, 0), 0);
  cr_expect_eq(kvpool_lookup(there, &old, 1, 0, 0, nullptr), 0);
  cr_expect_eq(kvpool_lookup(ns, &old, 1, 0, 0, nullptr), 0);
  cr_expect_eq(kvpool_get(there, &old, in.data(), in.size(), 0), 0);
  cr_expect_eq(kvpool_put(there, &old, bytes.data(), bytes.size(), 0), -EKEYREVOKED);
  const kvpool_key fresh = key_of(ns, 1), fresh_there = key_of(there, 1);
  cr_expect_eq(std::memcmp(&fresh, &fresh_there, sizeof fresh), 0, "both follow the clear");
  cr_expect_neq(std::memcmp(&fresh, &old, sizeof fresh), 0, "the epoch enters the key");
  cr_assert_eq(kvpool_put(ns, &fresh, bytes.data(), bytes.size(), 0), 1);
  // What a clear hid is not there for a put either: it said EXISTS, and no get found it.
  cr_expect_eq(kvpool_put(ns, &old, bytes.data(), bytes.size(), 0), 1);
  cr_expect_eq(kvpool_get(ns, &old, in.data(), in.size(), 0), 1);
  cr_assert_eq(kvpool_ns_bypass(ns, 1, 0), 0);
  cr_expect_eq(kvpool_lookup(there, &fresh, 1, 0, 0, nullptr), 0);
  cr_expect_eq(kvpool_get(there, &fresh, in.data(), in.size(), 0), 0);
  const kvpool_key third = key_of(ns, 3);
  cr_expect_eq(kvpool_put(there, &third, bytes.data(), bytes.size(), 0), -ESHUTDOWN);
  kvpool_ns_info info;
  cr_assert_eq(kvpool_ns_stat(there, &info), 0);
  cr_expect_eq(info.bypassed, 1);
  cr_assert_eq(kvpool_ns_bypass(there, 0, 0), 0);
  cr_expect_eq(kvpool_lookup(ns, &fresh, 1, 0, 0, nullptr), 1, "nothing was lost meanwhile");
}

// Shows: a record of an earlier lookup, a snapshot and a pin's ticket are no way around a clear, a
// bypass, a removal of the namespace, or the key that is asked for.
// How: looked up first, then each happens, then the call is made with the record.
Test(api_data, records_of_lookups_are_bound_too, .timeout = 60) {
  Pool pool("records");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(other);
  const auto one = bytes_of(1, 4096), two = bytes_of(2, 4096);
  std::vector<uint8_t> in(4096);
  kvpool_key keys[2] = {key_of(ns, 1), key_of(ns, 2)};
  cr_assert_eq(kvpool_put(ns, &keys[0], one.data(), one.size(), 0), 1);
  cr_assert_eq(kvpool_put(ns, &keys[1], two.data(), two.size(), 0), 1);
  kvpool_hit hits[2];
  cr_assert_eq(kvpool_lookup(there, keys, 2, 0, 0, hits), 2);
  kvpool_block block{};
  block.plan = {in.data(), in.size(), nullptr, 0};
  int32_t status = -1;
  const auto get = [&](const kvpool_key &key, const kvpool_hit *hit, const kvpool_ticket *ticket) {
    block.key = key;
    block.hit = hit;
    block.ticket = ticket;
    return kvpool_get_blocks(there, &block, 1, 0, &status);
  };
  cr_expect_eq(get(keys[0], &hits[1], nullptr), 1, "the key decides, not the record");
  cr_expect_eq(std::memcmp(in.data(), one.data(), in.size()), 0);

  kvpool_pin_opts pin = KVPOOL_OPTS(kvpool_pin_opts);
  pin.ttl_ms = 60000;
  kvpool_ticket held, unheld;
  cr_assert_eq(kvpool_pin(there, &keys[0], 1, &pin, &held), 1);
  cr_assert_eq(get(keys[0], nullptr, &held), 1);
  pin.snapshot = hits;
  const auto nothing = [&](const char *when, int32_t by_key) {
    cr_expect_eq(get(keys[0], &hits[0], nullptr), 0, "%s", when);
    cr_expect_eq(status, by_key, "%s: status %d", when, status);
    cr_expect_eq(get(keys[0], nullptr, &held), 0, "%s", when);
    cr_expect_eq(status, KVPOOL_STATUS_STALE, "%s: status %d", when, status);
    cr_expect_eq(kvpool_ticket_valid(other, &held, 0), 0, "%s", when);
    cr_expect_eq(kvpool_pin(there, keys, 2, &pin, &unheld), 0, "%s", when);
  };
  cr_assert_eq(kvpool_ns_bypass(ns, 1, 0), 0);
  nothing("bypassed", KVPOOL_STATUS_BYPASSED);
  cr_assert_eq(kvpool_ns_bypass(ns, 0, 0), 0);
  cr_expect_eq(get(keys[0], &hits[0], nullptr), 1, "nothing was lost meanwhile");
  cr_expect_eq(get(keys[0], nullptr, &held), 1);
  cr_expect_eq(kvpool_ticket_valid(other, &held, 0), 1);
  cr_assert_eq(kvpool_ns_clear(ns, 0), 0);
  nothing("cleared", KVPOOL_STATUS_MISS);
  keys[0] = key_of(there, 1);
  cr_assert_eq(kvpool_put(there, &keys[0], one.data(), one.size(), 0), 1);
  cr_assert_eq(kvpool_lookup(there, keys, 1, 0, 0, hits), 1);
  pin.snapshot = nullptr;
  cr_assert_eq(kvpool_pin(there, keys, 1, &pin, &held), 1);
  pin.snapshot = hits;
  cr_assert_eq(kvpool_ns_remove(ctx, "unit", 0), 0);
  nothing("removed", KVPOOL_STATUS_MISS);
}

// Guards: a removal between whose look and request another cleared the namespace said that the
// lease was lost, and left it there.
Test(api_data, remove_beside_clears, .timeout = 60) {
  Pool pool("removal");
  Ctx ctx(pool), other(pool, false);
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0}, cleared{0};
  std::atomic<kvpool_ns *> theirs{open_ns(other)};
  std::thread clearer([&] {
    while (!over.load()) {
      const int err = kvpool_ns_clear(theirs.load(), 0);
      if (err != 0 && err != -ENOENT) wrong.store(err);
      cleared += err == 0;
    }
  });
  for (int round = 0; round < 200 && wrong.load() == 0; ++round) {
    const int before = cleared.load();
    while (cleared.load() == before && wrong.load() == 0) std::this_thread::yield();
    const int err = kvpool_ns_remove(ctx, "unit", 0);
    cr_expect_eq(err, 0, "round %d: %d %s", round, err, kvpool_strerror_detail(ctx));
    if (err != 0) break;
    open_ns(ctx);
  }
  over.store(true);
  clearer.join();
  cr_expect_eq(wrong.load(), 0, "a clear: %d", wrong.load());
}

// Shows: a put that a quota refuses makes no room at others' expense.
// How: one namespace fills the store; then a block larger than its quota, and one beside a pinned
// block that has all of it.
Test(api_data, refused_by_quota_evicts_nobody, .timeout = 60) {
  Pool pool("quota-peace");
  Ctx ctx(pool), late(pool, false);
  kvpool_ns *full = open_ns(ctx, "full");
  const auto bytes = bytes_of(1, 65536);
  std::vector<kvpool_key> keys;
  for (uint64_t n = 0; n < 2000; ++n) {
    keys.push_back(key_of(full, n));
    cr_assert_eq(kvpool_put(full, &keys.back(), bytes.data(), bytes.size(), 0), 1);
  }
  const auto there = [&] {
    std::vector<kvpool_hit> hits(keys.size());
    kvpool_lookup(full, keys.data(), keys.size(), KVPOOL_LOOKUP_F_ALL, 0, hits.data());
    return std::ranges::count_if(hits, [](auto &h) { return h.state == KVPOOL_STATE_HIT; });
  };
  kvpool_ns_opts opts = ns_opts();
  opts.quota_bytes = 1 << 20;
  kvpool_ns *small = nullptr;
  cr_assert_eq(kvpool_ns_open(late, "small", &opts, &small), 0);
  usleep(100'000);
  const auto before = there();
  const auto large = bytes_of(2, 3 << 20), fitting = bytes_of(3, 1 << 20);
  const kvpool_key one = key_of(small, 1), two = key_of(small, 2);
  cr_expect_eq(kvpool_put(small, &one, large.data(), large.size(), 0), -ENOSPC);
  usleep(100'000);
  cr_expect_eq(there(), before, "a block larger than the quota");
  cr_assert_eq(kvpool_put(small, &one, fitting.data(), fitting.size(), 0), 1);
  kvpool_pin_opts pin = KVPOOL_OPTS(kvpool_pin_opts);
  pin.ttl_ms = 60000;
  kvpool_ticket ticket;
  cr_assert_eq(kvpool_pin(small, &one, 1, &pin, &ticket), 1);
  const auto quarter = bytes_of(4, 1 << 18);
  usleep(100'000);
  const auto now = there();
  cr_expect_eq(kvpool_put(small, &two, quarter.data(), quarter.size(), 0), -ENOSPC);
  cr_expect(std::strstr(kvpool_strerror_detail(late), "quota"), "%s", kvpool_strerror_detail(late));
  usleep(100'000);
  cr_expect_eq(there(), now, "a block beside what is pinned");
}

Test(api_data, damage_is_found_and_removed, .timeout = 60) {
  Pool pool("damage");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  kvpool_events *events = nullptr;
  cr_assert_eq(kvpool_events_open(ctx, nullptr, &events), 0);
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  cr_assert_eq(kvpool_stats_read(ctx, &stats), 0);
  for (size_t bytes : {4096, 65536, 300000}) {
    const kvpool_key key = key_of(ns, bytes);
    const auto out = bytes_of(bytes, bytes);
    std::vector<uint8_t> in(bytes);
    cr_assert_eq(kvpool_put(ns, &key, out.data(), bytes, 0), 1);
    kvpool_private_place place;
    cr_assert_eq(kvpool_private_locate(ns, &key, &place), 0);
    const int fd = shm_open(("/kvpool-unit-damage-" + std::to_string(getpid()) + ".0").c_str(),
                            O_RDWR, 0);
    cr_assert_geq(fd, 0);
    uint8_t byte;
    const off_t at = static_cast<off_t>(place.byte + bytes / 2);
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    cr_expect_eq(kvpool_get(ns, &key, in.data(), bytes, 0), -EBADMSG);
    cr_expect_eq(kvpool_lookup(ns, &key, 1, 0, 0, nullptr), 0, "damaged blocks are removed");
    cr_expect_eq(kvpool_error_class(-EBADMSG), KVPOOL_CLASS_RECOMPUTE);
    kvpool_event told[2];
    cr_assert_eq(kvpool_events_next(events, 2, in_ms(1000), told), 2, "stored, removed");
    cr_expect_eq(told[1].type, KVPOOL_EVENT_REMOVED);
    cr_expect_eq(told[1].reason, KVPOOL_REASON_DAMAGED);
    cr_expect_eq(told[1].member, stats.member_slot);
    cr_expect_eq(std::memcmp(&told[1].key, &key, sizeof key), 0);
  }
  const kvpool_key key = key_of(ns, 1);
  cr_assert_eq(kvpool_put(ns, &key, &key, sizeof key, 0), 1);
  cr_assert_eq(kvpool_remove(ns, &key, 1, 0), 1);
  kvpool_event told[2];
  cr_assert_eq(kvpool_events_next(events, 2, in_ms(1000), told), 2);
  cr_expect_eq(told[1].reason, KVPOOL_REASON_REMOVED);
  cr_expect_eq(told[1].member, stats.member_slot, "who removed it");
  kvpool_events_close(events);
}

Test(api_data, full_store_evicts_and_goes_on, .timeout = 120) {
  Pool pool("evict", 32);
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  constexpr size_t kBytes = 1 << 20;
  const auto bytes = bytes_of(1, kBytes);
  for (uint64_t i = 0; i < 120; ++i) {
    const kvpool_key key = key_of(ns, i);
    const int result = kvpool_put(ns, &key, bytes.data(), kBytes, 0);
    cr_assert_eq(result, 1, "block %lu: %d %s", i, result, kvpool_strerror_detail(ctx));
  }
  kvpool_key keys[120];
  int there = 0;
  for (uint64_t i = 0; i < 120; ++i) {
    keys[i] = key_of(ns, i);
    there += kvpool_lookup(ns, &keys[i], 1, 0, 0, nullptr);
  }
  cr_expect_gt(there, 5);
  cr_expect_lt(there, 60);
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  usleep(50000);
  cr_assert_eq(kvpool_stats_read(ctx, &stats), 0);
  cr_expect_gt(stats.owner_evictions, 60);
  cr_expect_eq(stats.put_stored, 120);
  // Each verb is told by itself.
  cr_expect_gt(stats.lines_published, 0);
  cr_expect_gt(stats.words_published, 0);
  cr_expect_gt(stats.polls, 0);
  cr_expect_geq(stats.drains_strict, 120, "each payload is drained strictly");
  cr_expect_gt(stats.drains, 0);
  cr_expect_eq(stats.device_retires, 0, "nothing starts a device");
}
