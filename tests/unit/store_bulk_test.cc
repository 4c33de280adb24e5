// SPDX-License-Identifier: Apache-2.0
// Shows: the cap on bytes of blocks that a member has on their way (proto 12).
// How: threads at the gate itself, and threads that put and get through the C API.
#include <atomic>
#include <thread>
#include <vector>

#include "api_fixture.hpp"
#include "store/bulk_gate.hpp"

using namespace api_test;
using kvpool::store::BulkGate;

namespace {

constexpr uint64_t kMiB = 1 << 20;

struct SleepEnv {
  void sleep_ns(uint64_t ns) {
    const timespec t{0, static_cast<long>(ns)};
    nanosleep(&t, nullptr);
  }
};

}  // namespace

// Shows: never more than the limit and one block, however many threads copy.
Test(store_bulk, no_copy_begins_above_the_limit, .timeout = 30) {
  BulkGate gate;
  gate.set_limit(3 * kMiB);
  std::atomic<uint64_t> now{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([&] {
      SleepEnv env;
      for (int i = 0; i < 50; ++i) {
        const auto turn = gate.enter(env, BulkGate::kWrite, 2 * kMiB, [] { return true; });
        const uint64_t there = now.fetch_add(2 * kMiB) + 2 * kMiB;
        for (uint64_t m = most.load(); there > m && !most.compare_exchange_weak(m, there);) {
        }
        env.sleep_ns(100'000);
        now.fetch_sub(2 * kMiB);
      }
    });
  }
  for (std::thread &t : threads) t.join();
  cr_expect_eq(most.load(), 4 * kMiB, "%lu", most.load());
  cr_expect_eq(gate.most(), 4 * kMiB);
  cr_expect_gt(gate.waits(), 0u);
}

// Guards: who waits goes when its call is over; a refused turn holds nothing.
Test(store_bulk, waiting_ends_with_the_call) {
  BulkGate gate;
  gate.set_limit(1);
  SleepEnv env;
  const auto yes = [] { return true; };
  {
    const auto first = gate.enter(env, BulkGate::kRead, kMiB, yes);
    cr_expect(static_cast<bool>(first));
    int looks = 0;
    const auto second = gate.enter(env, BulkGate::kRead, kMiB, [&] { return ++looks < 3; });
    cr_expect_not(static_cast<bool>(second));
    cr_expect_eq(looks, 3);
    const auto other_way = gate.enter(env, BulkGate::kWrite, kMiB, [] { return false; });
    cr_expect(static_cast<bool>(other_way), "directions are counted apart");
    const auto small = gate.enter(env, BulkGate::kRead, BulkGate::kBulkBytes - 1,
                                  [] { return false; });
    cr_expect(static_cast<bool>(small), "small copies wait for nobody");
  }
  const auto again = gate.enter(env, BulkGate::kRead, 64 * kMiB, [] { return false; });
  cr_expect(static_cast<bool>(again), "larger than the limit, and alone");
}

// Shows: kvpool_open_opts.bulk_bytes holds for puts, gets and parts of blocks of all threads.
Test(store_bulk, one_copy_at_a_time, .timeout = 60) {
  Pool pool("bulk", 128);
  Ctx owner(pool);
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.bulk_bytes = 1;
  kvpool_ctx *ctx = nullptr;
  cr_assert_eq(kvpool_open(pool.address(), &opts, &ctx), 0);
  kvpool_ns *ns = open_ns(ctx);
  constexpr uint64_t kBytes = 512 << 10;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint8_t> data(kBytes, static_cast<uint8_t>(t)), back(kBytes);
      for (uint64_t i = 0; i < 20; ++i) {
        const uint64_t n = t * 1000 + i % 4;
        kvpool_key key;
        wrong += kvpool_key_wrap(ns, &n, sizeof n, &key) != 0;
        wrong += kvpool_put(ns, &key, data.data(), kBytes, in_ms(20'000)) < 0;
        const int got = kvpool_get(ns, &key, back.data(), kBytes, in_ms(20'000));
        wrong += got < 0 || (got == 1 && back != data);
      }
    });
  }
  for (std::thread &t : threads) t.join();
  cr_expect_eq(wrong.load(), 0);
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  cr_assert_eq(kvpool_stats_read(ctx, &stats), 0);
  cr_expect_eq(stats.bulk_bytes_most, kBytes, "%lu", stats.bulk_bytes_most);
  kvpool_close(ctx);
}
