// SPDX-License-Identifier: Apache-2.0
// Shows: what must run alone begins when the last call is out, lets none in meanwhile, and lets all
// go on afterwards, whatever ended it.
// How: threads that take and give back as calls do, beside one that wants to be alone.
#include <criterion/criterion.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "store/context.hpp"

using namespace kvpool;
using namespace kvpool::store;

namespace {

constexpr u64 kBlockBytes = u64{1} << 20;

void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace

Test(store_scratch, alone_waits_for_those_inside_and_keeps_others_out) {
  ScratchPool pool(kBlockBytes);
  std::atomic<bool> alone{false}, entered{false};
  std::thread keeper, caller;
  {
    const auto inside = pool.take();
    keeper = std::thread([&] {
      pool.alone([&] {
        alone = true;
        rest();
        cr_expect(!entered.load(), "a call came in");
      });
    });
    rest();
    cr_expect(!alone.load(), "somebody is inside");
    caller = std::thread([&] {
      const auto late = pool.take();
      entered = true;
    });
    rest();
    cr_expect(!entered.load(), "it has to wait");
  }
  keeper.join();
  caller.join();
  cr_expect(alone.load());
  cr_expect(entered.load());
}

Test(store_scratch, nobody_is_ever_inside_with_the_one_that_is_alone) {
  ScratchPool pool(kBlockBytes);
  std::atomic<int> inside{0};
  std::atomic<bool> over{false};
  std::atomic<u64> calls{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!over.load()) {
        const auto scratch = pool.take();
        ++inside;
        ++calls;
        std::this_thread::yield();
        --inside;
      }
    });
  }
  for (int round = 0; round < 200; ++round) {
    pool.alone([&] { cr_expect_eq(inside.load(), 0); });
  }
  const u64 before = calls.load();
  while (calls.load() < before + 100) std::this_thread::yield();  // they go on
  over = true;
  for (std::thread &thread : threads) thread.join();
}

Test(store_scratch, an_exception_opens_it_again) {
  ScratchPool pool(kBlockBytes);
  bool thrown = false;
  try {
    pool.alone([] { throw std::runtime_error("x"); });
  } catch (const std::runtime_error &) {
    thrown = true;
  }
  cr_expect(thrown);
  const auto first = pool.take(), second = pool.take();
}
