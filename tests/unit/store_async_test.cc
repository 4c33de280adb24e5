// SPDX-License-Identifier: Apache-2.0
// Shows: operations run once per post, completions come once, and cancel ends only when nothing
// runs.
// How: bodies that count, wait on a gate, or spin until cancelled; the descriptor polled beside
// them.
#include <criterion/criterion.h>
#include <poll.h>

#include <chrono>
#include <ctime>

#include "store/async.hpp"

using namespace kvpool;
using namespace kvpool::store;

namespace {

u64 now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return u64(t.tv_sec) * 1'000'000'000 + u64(t.tv_nsec);
}
u64 in_ms(u64 ms) { return now_ns() + ms * 1'000'000; }

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

// A body that runs until it is let go or cancelled.
struct Gate {
  std::atomic<bool> entered{false}, open{false};
  OperationBody body() {
    return [this](u64, const std::atomic<bool> &cancelled) {
      entered = true;
      while (!open && !cancelled) std::this_thread::yield();
      entered = false;
      return cancelled ? -ECANCELED : 7;
    };
  }
  void wait_entered() const {
    while (!entered) std::this_thread::yield();
  }
};

}  // namespace

Test(async, post_completes_once, .timeout = 20) {
  Async async;
  cr_assert_eq(async.start(2), 0);
  cr_assert_eq(async.ready(), 0);
  std::atomic<int> runs{0};
  Operation op([&](u64 deadline, const std::atomic<bool> &) {
    ++runs;
    return static_cast<int>(deadline);
  });
  cr_expect_eq(async.check(op), -ENODATA);
  cr_expect_not(readable(async.event_fd()));
  for (int i = 1; i <= 50; ++i) {
    cr_assert_eq(async.post(op, static_cast<u64>(i), static_cast<u64>(100 + i)), 0);
    Async::Completion done[4];
    cr_assert_eq(async.poll(4, in_ms(5000), done), 1);
    cr_expect(done[0].op == &op && done[0].user == static_cast<u64>(100 + i));
    cr_expect_eq(done[0].result, i);
    cr_expect_eq(async.check(op), i);
    cr_expect_not(readable(async.event_fd()));
    cr_expect_eq(async.poll(4, 1, done), 0, "a completion came twice");
  }
  cr_expect_eq(runs, 50);
}

Test(async, event_fd_is_readable_while_completions_wait, .timeout = 20) {
  Async async;
  async.start(1);
  async.ready();
  Operation a([](u64, const std::atomic<bool> &) { return 1; });
  Operation b([](u64, const std::atomic<bool> &) { return 2; });
  async.post(a, 0, 0);
  async.post(b, 0, 0);
  while (async.check(a) == -EINPROGRESS || async.check(b) == -EINPROGRESS) {
    std::this_thread::yield();
  }
  Async::Completion one;
  cr_expect(readable(async.event_fd()));
  cr_assert_eq(async.poll(1, 1, &one), 1);
  cr_expect(readable(async.event_fd()));
  cr_assert_eq(async.poll(1, 1, &one), 1);
  cr_expect_not(readable(async.event_fd()));
  async.post(a, 0, 0);
  while (async.check(a) == -EINPROGRESS) std::this_thread::yield();
  async.forget(a);
  cr_expect_not(readable(async.event_fd()), "a forgotten completion kept the descriptor readable");
}

Test(async, running_operation_is_not_posted_again, .timeout = 20) {
  Async async;
  async.start(1);
  async.ready();
  Gate gate;
  Operation op(gate.body());
  cr_assert_eq(async.post(op, 0, 0), 0);
  gate.wait_entered();
  cr_expect_eq(async.check(op), -EINPROGRESS);
  cr_expect_eq(async.post(op, 0, 0), -EALREADY);
  gate.open = true;
  Async::Completion done;
  cr_assert_eq(async.poll(1, in_ms(5000), &done), 1);
  cr_expect_eq(done.result, 7);
}

Test(async, cancel_returns_when_nothing_runs, .timeout = 20) {
  Async async;
  async.start(1);
  async.ready();
  Gate gate;
  Operation running(gate.body()), queued(gate.body());
  async.post(running, 0, 1);
  gate.wait_entered();
  async.post(queued, 0, 2);
  cr_expect_eq(async.cancel(queued), 1);
  cr_expect_eq(async.check(queued), -ECANCELED);
  cr_expect(gate.entered, "cancelling a queued one stopped another");
  cr_expect_eq(async.cancel(running), 1);
  cr_expect_not(gate.entered, "cancel returned while the body ran");
  cr_expect_eq(async.cancel(running), 0);
  Async::Completion done[4];
  cr_expect_eq(async.poll(4, 1, done), 2, "cancelled operations complete too");
}

Test(async, poll_ends_by_its_deadline, .timeout = 20) {
  Async async;
  async.start(1);
  Async::Completion done;
  const u64 start = now_ns();
  cr_expect_eq(async.poll(1, start + 30'000'000, &done), 0);
  cr_expect_geq(now_ns() - start, 30'000'000);
  cr_expect_eq(async.poll(1, 1, &done), 0);
}

Test(async, reposting_drops_the_completion_not_taken, .timeout = 20) {
  Async async;
  async.start(1);
  async.ready();
  Operation op([](u64, const std::atomic<bool> &) { return 3; });
  for (u64 i = 0; i < 3; ++i) {
    cr_assert_eq(async.post(op, 0, i), 0);
    while (async.check(op) == -EINPROGRESS) std::this_thread::yield();
  }
  Async::Completion done[4];
  cr_expect_eq(async.poll(4, 1, done), 1);
  cr_expect_eq(done[0].user, 2);
}

Test(async, stop_cancels_what_waits_and_what_runs, .timeout = 20) {
  Gate gate;  // nobody opens it
  Operation running(gate.body()), queued(gate.body());
  Async async;
  async.start(1);
  async.ready();
  async.post(running, 0, 0);
  gate.wait_entered();
  async.post(queued, 0, 0);
  async.stop();
  cr_expect_eq(async.check(running), -ECANCELED);
  cr_expect_eq(async.check(queued), -ECANCELED);
  cr_expect_eq(async.post(queued, 0, 0), -ESHUTDOWN);
}

Test(async, many_threads_post_and_poll, .timeout = 60) {
  Async async;
  async.start(3);
  async.ready();
  constexpr int kOps = 64, kRounds = 200;
  std::atomic<int> runs{0};
  std::vector<std::unique_ptr<Operation>> ops;
  for (int i = 0; i < kOps; ++i) {
    ops.push_back(
        std::make_unique<Operation>([&](u64, const std::atomic<bool> &) { return ++runs; }));
  }
  int taken = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (auto &op : ops) cr_assert_eq(async.post(*op, 0, 0), 0);
    for (int left = kOps; left > 0;) {
      Async::Completion done[16];
      const u32 n = async.poll(16, in_ms(5000), done);
      cr_assert_gt(n, 0);
      left -= static_cast<int>(n);
      taken += static_cast<int>(n);
    }
  }
  cr_expect_eq(runs, kOps * kRounds);
  cr_expect_eq(taken, kOps * kRounds);
}
