// SPDX-License-Identifier: Apache-2.0
// Shows: prepared operations do what the synchronous calls do, can be posted again, cancelled,
// polled for; events tell what the owner decided.
// How: a store with an embedded owner; the descriptor is watched with poll(2).
#include <poll.h>

#include "api_fixture.hpp"

using namespace api_test;

namespace {

bool readable(int fd, int ms) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, ms) == 1;
}

}  // namespace

Test(api_async, put_then_get_many_times, .timeout = 60) {
  Pool pool("async");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  constexpr size_t kBlocks = 16, kBytes = 20000;
  std::vector<uint8_t> out = bytes_of(1, kBlocks * kBytes), in(out.size());
  kvpool_mem *mem = nullptr;
  cr_assert_eq(kvpool_mem_register(ctx, in.data(), in.size(), nullptr, &mem), 0);
  std::vector<kvpool_block> puts(kBlocks), gets(kBlocks);
  std::vector<kvpool_run> runs(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    puts[i].key = gets[i].key = key_of(ns, i);
    puts[i].plan.buf = out.data() + i * kBytes;
    puts[i].plan.bytes = kBytes;
    runs[i] = {mem, i * kBytes, 0, kBytes, 1, 0, 0};
    gets[i].plan.runs = &runs[i];
    gets[i].plan.run_count = 1;
  }
  std::vector<int32_t> put_status(kBlocks, -1), get_status(kBlocks, -1);
  kvpool_op *put = nullptr, *get = nullptr;
  cr_assert_eq(kvpool_prep_put(ns, puts.data(), kBlocks, put_status.data(), &put), 0);
  cr_assert_eq(kvpool_prep_get(ns, gets.data(), kBlocks, get_status.data(), &get), 0);
  puts.clear();  // an operation has copies of all but the memory it names
  runs.clear();
  cr_expect_eq(kvpool_mem_unregister(mem), -EBUSY);
  cr_expect_eq(kvpool_check(put), -ENODATA);
  const int fd = kvpool_event_fd(ctx);
  cr_assert_geq(fd, 0);
  cr_expect_not(readable(fd, 0));
  cr_assert_eq(kvpool_post(put, 0, 11), 0);
  cr_assert(readable(fd, 10000));
  kvpool_completion done[4];
  cr_assert_eq(kvpool_poll(ctx, 4, 1, done), 1);
  cr_expect(done[0].op == put && done[0].user == 11);
  cr_expect_eq(done[0].result, kBlocks);
  cr_expect_not(readable(fd, 0));
  for (int round = 0; round < 5; ++round) {
    std::fill(in.begin(), in.end(), 0);
    cr_assert_eq(kvpool_post(get, in_ms(5000), 12), 0);
    cr_assert_eq(kvpool_poll(ctx, 4, in_ms(10000), done), 1);
    cr_expect_eq(done[0].result, kBlocks);
    cr_expect_eq(kvpool_check(get), kBlocks);
    cr_expect(in == out, "round %d", round);
  }
  for (int32_t s : get_status) cr_expect_eq(s, KVPOOL_STATUS_OK);
  cr_expect_eq(kvpool_cancel(get), 0, "it had ended");
  kvpool_op_free(get);
  kvpool_op_free(put);
  cr_expect_eq(kvpool_mem_unregister(mem), 0);
}

// Guards: a prepared operation named the handle it was made with, and nothing kept that alive.
Test(api_async, operation_outlives_the_handle_it_was_made_with, .timeout = 60) {
  Pool pool("handle");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  std::vector<uint8_t> out = bytes_of(1, 65536), in(65536);
  kvpool_block block{};
  block.key = key_of(ns, 1);
  block.plan.buf = out.data();
  block.plan.bytes = out.size();
  kvpool_op *put = nullptr, *get = nullptr;
  cr_assert_eq(kvpool_prep_put(ns, &block, 1, nullptr, &put), 0);
  block.plan.buf = in.data();
  cr_assert_eq(kvpool_prep_get(ns, &block, 1, nullptr, &get), 0);
  kvpool_ns_close(ns);
  kvpool_completion done;
  for (kvpool_op *op : {put, get}) {
    cr_assert_eq(kvpool_post(op, 0, 0), 0);
    cr_assert_eq(kvpool_poll(ctx, 1, 0, &done), 1);
    cr_expect_eq(done.result, 1);
  }
  cr_expect(in == out);
  kvpool_op_free(put);
  kvpool_op_free(get);
}

Test(api_async, cancel_leaves_memory_alone, .timeout = 60) {
  Pool pool("cancel", 256);
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  constexpr size_t kBlocks = 64, kBytes = 1 << 20;
  std::vector<uint8_t> out = bytes_of(1, kBytes), in(kBlocks * kBytes);
  std::vector<kvpool_block> gets(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    gets[i].key = key_of(ns, i);
    gets[i].plan.buf = in.data() + i * kBytes;
    gets[i].plan.bytes = kBytes;
    cr_assert_eq(kvpool_put(ns, &gets[i].key, out.data(), kBytes, 0), 1);
  }
  kvpool_op *get = nullptr;
  cr_assert_eq(kvpool_prep_get(ns, gets.data(), kBlocks, nullptr, &get), 0);
  int stopped = 0;
  for (int round = 0; round < 20; ++round) {
    cr_assert_eq(kvpool_post(get, 0, 0), 0);
    for (int i = 0; i < round * 200; ++i) __builtin_ia32_pause();
    const int cancelled = kvpool_cancel(get);
    cr_assert(cancelled == 0 || cancelled == 1, "%d", cancelled);
    stopped += cancelled;
    if (cancelled == 1) cr_expect_eq(kvpool_check(get), -ECANCELED);
    std::fill(in.begin(), in.end(), 0x3C);
    usleep(2000);
    cr_assert(std::all_of(in.begin(), in.end(), [](uint8_t b) { return b == 0x3C; }),
              "memory was touched after cancel returned");
    kvpool_completion done;
    cr_assert_eq(kvpool_poll(ctx, 1, 1, &done), 1, "a cancelled operation completes, too");
  }
  cr_expect_gt(stopped, 0);
  kvpool_op_free(get);
}

Test(api_async, close_ends_what_runs, .timeout = 60) {
  Pool pool("aclose");
  kvpool_ctx *ctx = nullptr;
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.owner = KVPOOL_OWNER_EMBEDDED;
  opts.workers = 2;
  cr_assert_eq(kvpool_open(pool.address(), &opts, &ctx), 0);
  kvpool_ns *ns = open_ns(ctx);
  std::vector<uint8_t> out = bytes_of(1, 1 << 20);
  std::vector<kvpool_op *> ops(8);
  for (uint64_t i = 0; i < ops.size(); ++i) {
    kvpool_block block{};
    block.key = key_of(ns, i);
    block.plan.buf = out.data();
    block.plan.bytes = out.size();
    cr_assert_eq(kvpool_prep_put(ns, &block, 1, nullptr, &ops[i]), 0);
    cr_assert_eq(kvpool_post(ops[i], 0, i), 0);
  }
  kvpool_close(ctx);
  std::fill(out.begin(), out.end(), 0);  // nobody reads it any more (AddressSanitizer would tell)
}

Test(api_async, events_tell_what_was_decided, .timeout = 60) {
  Pool pool("events");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx);
  kvpool_events *live = nullptr, *replay = nullptr;
  cr_assert_eq(kvpool_events_open(other, nullptr, &live), 0, "%s", kvpool_strerror_detail(other));
  auto out = bytes_of(1, 8192);
  const kvpool_key key = key_of(ns, 1);
  cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  kvpool_event got[8];
  cr_assert_eq(kvpool_events_next(live, 8, in_ms(5000), got), 1);
  cr_expect_eq(got[0].type, KVPOOL_EVENT_STORED);
  cr_expect_eq(got[0].bytes, 8192);
  cr_expect_eq(std::memcmp(&got[0].key, &key, sizeof key), 0);
  cr_expect_neq(got[0].version, 0);
  cr_assert_eq(kvpool_remove(ns, &key, 1, 0), 1);
  cr_assert_eq(kvpool_ns_clear(ns, 0), 0);
  int seen = 0;
  while (seen < 2) {
    const int n = kvpool_events_next(live, 8 - seen, in_ms(5000), got + seen);
    cr_assert_gt(n, 0);
    seen += n;
  }
  cr_expect(got[0].type == KVPOOL_EVENT_REMOVED && got[0].reason == KVPOOL_REASON_REMOVED);
  cr_expect(got[1].type == KVPOOL_EVENT_CLEARED);
  cr_expect_eq(got[1].sequence, got[0].sequence + 1);
  cr_expect_eq(kvpool_events_next(live, 8, in_ms(20), got), 0);
  kvpool_events_opts opts = KVPOOL_OPTS(kvpool_events_opts);
  opts.from_sequence = 1;
  cr_assert_eq(kvpool_events_open(ctx, &opts, &replay), 0);
  cr_assert_eq(kvpool_events_next(replay, 8, 1, got), 4);
  cr_expect_eq(got[0].type, KVPOOL_EVENT_OWNER);
  cr_expect_eq(got[1].type, KVPOOL_EVENT_STORED);
  kvpool_events_close(live);
}

// Guards: before the post it said that the operation had failed, and nothing of why it did later.
Test(api_async, check_says_what_it_means, .timeout = 60) {
  Pool pool("acheck");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  auto out = bytes_of(1, 8192);
  kvpool_block block{};
  block.key = key_of(ns, 1);
  block.plan.buf = out.data();
  block.plan.bytes = out.size();
  kvpool_op *put = nullptr;
  cr_assert_eq(kvpool_prep_put(ns, &block, 1, nullptr, &put), 0);
  cr_expect_eq(kvpool_check(put), -ENODATA);
  cr_expect_str_eq(kvpool_strerror_detail(ctx), "check: the operation was never posted");
  cr_expect_eq(kvpool_cancel(put), 0, "it was not running");
  cr_expect_eq(kvpool_check(put), -ENODATA);
  cr_assert_eq(kvpool_post(put, 0, 0), 0);
  kvpool_completion done;
  cr_assert_eq(kvpool_poll(ctx, 1, 0, &done), 1);
  cr_expect_eq(kvpool_check(put), 1);
  kvpool_op_free(put);
}

// What a cancelled put says: ECANCELED only where no block was tried, else how each fared.
Test(api_async, cancel_of_a_put_that_waits, .timeout = 60) {
  Pool pool("acancel");
  Ctx ctx(pool, false);  // nobody serves: the put waits for an owner
  Ctx looker(pool, false);
  kvpool_block block{};
  auto out = bytes_of(1, 8192);
  int32_t status = -1;
  kvpool_op *put = nullptr;
  kvpool_ns *ns = nullptr;
  {
    Ctx owner(pool);
    ns = open_ns(ctx);
    block.key = key_of(ns, 1);
    block.plan.buf = out.data();
    block.plan.bytes = out.size();
    cr_assert_eq(kvpool_prep_put(ns, &block, 1, &status, &put), 0);
    cr_assert_eq(kvpool_post(put, 0, 0), 0);
    kvpool_completion done;
    cr_assert_eq(kvpool_poll(ctx, 1, 0, &done), 1);
    cr_expect_eq(kvpool_cancel(put), 0, "it had ended");
    cr_expect_eq(kvpool_check(put), 1);
    cr_expect_eq(status, KVPOOL_STATUS_OK);
  }
  status = -1;
  cr_assert_eq(kvpool_post(put, in_ms(20'000), 0), 0);
  usleep(50'000);
  cr_expect_eq(kvpool_check(put), -EINPROGRESS);
  cr_expect_eq(kvpool_cancel(put), 1);
  cr_expect_eq(kvpool_check(put), -ECANCELED);
  cr_expect_str_eq(kvpool_strerror_detail(ctx), "check: the operation was cancelled");
  cr_expect_eq(status, -1, "no block was tried");
  kvpool_op_free(put);
}

// Guards: a reader of events heard nothing after a forced format, for ever.
Test(api_async, events_end_with_the_life_of_the_store, .timeout = 60) {
  Pool pool("elife");
  Ctx owner(pool), ctx(pool, false);
  kvpool_events *events = nullptr;
  cr_assert_eq(kvpool_events_open(ctx, nullptr, &events), 0, "%s", kvpool_strerror_detail(ctx));
  kvpool_event got[4];
  cr_expect_eq(kvpool_events_next(events, 4, 1, got), 0);
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.flags = KVPOOL_FORMAT_F_YES | KVPOOL_FORMAT_F_FORCE;
  cr_assert_eq(kvpool_format(pool.address(), &opts), 0, "%s", kvpool_strerror_detail(nullptr));
  const uint64_t end = in_ms(10'000);
  int n = 0;
  while ((n = kvpool_events_next(events, 4, in_ms(50), got)) >= 0 && now_ns() < end) {
  }
  cr_expect_eq(n, -EIDRM, "%d", n);
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "formatted anew (its life is ") != nullptr,
            "%s", kvpool_strerror_detail(ctx));
  kvpool_events_close(events);
}

Test(api_async, statistics_count_round_trips, .timeout = 60) {
  Pool pool("counts");
  Ctx owner(pool), ctx(pool, false);
  kvpool_ns *ns = open_ns(ctx);
  auto out = bytes_of(1, 65536);
  std::vector<uint8_t> in(out.size());
  kvpool_key keys[64];
  for (uint64_t i = 0; i < 64; ++i) {
    keys[i] = key_of(ns, i);
    cr_assert_eq(kvpool_put(ns, &keys[i], out.data(), out.size(), 0), 1);
  }
  // The keeper and accepts in the background read lines as well: the least of many tries counts.
  uint64_t lookup = ~0ull, get_trips = ~0ull, get_data = 0, pairs = ~0ull;
  for (int round = 0; round < 50; ++round) {
    kvpool_stats a = KVPOOL_OPTS(kvpool_stats), b = a, c = a;
    cr_assert_eq(kvpool_stats_read(ctx, &a), 0);
    cr_assert_eq(kvpool_lookup(ns, keys, 64, 0, 0, nullptr), 64);
    cr_assert_eq(kvpool_stats_read(ctx, &b), 0);
    cr_assert_eq(kvpool_get(ns, &keys[round], in.data(), in.size(), 0), 1);
    cr_assert_eq(kvpool_stats_read(ctx, &c), 0);
    lookup = std::min(lookup, b.round_trips - a.round_trips);
    if (c.round_trips - b.round_trips < get_trips) {
      get_trips = c.round_trips - b.round_trips;
      get_data = c.data_waves - b.data_waves;
    }
    kvpool_stats d = KVPOOL_OPTS(kvpool_stats);
    const kvpool_key fresh = key_of(ns, 1000 + static_cast<uint64_t>(round));
    cr_assert_eq(kvpool_put(ns, &fresh, out.data(), out.size(), 0), 1);
    cr_assert_eq(kvpool_stats_read(ctx, &d), 0);
    pairs = std::min(pairs, d.message_pairs - c.message_pairs);
  }
  cr_expect_eq(lookup, 1);
  cr_expect_eq(get_trips, 2, "a get is a lookup, the data, and the second look");
  cr_expect_eq(get_data, 1);
  cr_expect_eq(pairs, 1, "a put from an extent in hand is one message pair");
  kvpool_stats s = KVPOOL_OPTS(kvpool_stats);
  s.size = 32;  // an older caller
  s.lookups = 77;
  cr_assert_eq(kvpool_stats_read(ctx, &s), 0);
  cr_expect(s.size == 32 && s.capacity_bytes > 0 && s.lookups == 77, "beyond what was asked for");
}
