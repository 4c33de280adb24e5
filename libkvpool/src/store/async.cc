// SPDX-License-Identifier: Apache-2.0
#include "store/async.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <system_error>

#include "store/quiet_threads.hpp"

namespace kvpool::store {

namespace {

// steady_clock counts CLOCK_MONOTONIC in nanoseconds here, so deadlines convert as they are.
std::chrono::steady_clock::time_point time_of(u64 ns) {
  constexpr u64 kFar = u64{1} << 62;
  const auto since = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(ns, kFar)));
  return std::chrono::steady_clock::time_point(since);
}

}  // namespace

void Async::List::push(Operation &op) {
  op.next_ = nullptr;
  if (last == nullptr) {
    first = &op;
  } else {
    last->next_ = &op;
  }
  last = &op;
}

Operation *Async::List::pop() {
  Operation *op = first;
  if (op == nullptr) return nullptr;
  first = op->next_;
  if (first == nullptr) last = nullptr;
  return op;
}

bool Async::List::remove(Operation &op) {
  Operation *before = nullptr;
  for (Operation *at = first; at != nullptr; before = at, at = at->next_) {
    if (at != &op) continue;
    (before == nullptr ? first : before->next_) = op.next_;
    if (last == &op) last = before;
    return true;
  }
  return false;
}

int Async::start(u32 workers) {
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_fd_ < 0) return -errno;
  workers_ = workers;
  return 0;
}

void Async::stop() {
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
    for (Operation *op : running_) op->cancelled_.store(true, std::memory_order_relaxed);
    while (Operation *op = queue_.pop()) finish(*op, -ECANCELED);
  }
  work_.notify_all();
  for (std::thread &t : threads_) t.join();
  threads_.clear();
  if (event_fd_ >= 0) close(event_fd_);
  event_fd_ = -1;
}

int Async::ready() {
  std::lock_guard guard(mutex_);
  if (stopping_ || event_fd_ < 0) return -ESHUTDOWN;
  const QuietThreads quiet;
  try {
    threads_.reserve(workers_);
    running_.reserve(workers_);
    while (threads_.size() < workers_) threads_.emplace_back([this] { work(); });
  } catch (const std::bad_alloc &) {
    return threads_.empty() ? -ENOMEM : 0;
  } catch (const std::system_error &) {
    return threads_.empty() ? -EAGAIN : 0;  // fewer threads do the same work more slowly
  }
  return 0;
}

void Async::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return stopping_ || queue_.first != nullptr; });
    Operation *op = queue_.pop();
    if (op == nullptr) return;
    op->state_ = Operation::State::kRunning;
    running_.push_back(op);
    lock.unlock();
    const int result = op->body_(op->deadline_ns_, op->cancelled_);
    lock.lock();
    std::erase(running_, op);
    finish(*op, result);
  }
}

// Mutex held.
void Async::finish(Operation &op, int result) {
  op.state_ = Operation::State::kDone;
  op.result_ = result;
  op.completion_waits_ = true;
  const bool first = completions_.first == nullptr;
  completions_.push(op);
  if (first) signal();
  ended_.notify_all();
}

// The descriptor is readable exactly while completions wait.
void Async::signal() {
  const u64 one = 1;
  [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof one);
}
void Async::unsignal() {
  u64 count;
  [[maybe_unused]] const ssize_t n = read(event_fd_, &count, sizeof count);
}

int Async::post(Operation &op, u64 deadline_ns, u64 user) {
  {
    std::lock_guard guard(mutex_);
    if (stopping_) return -ESHUTDOWN;
    if (op.state_ == Operation::State::kQueued || op.state_ == Operation::State::kRunning) {
      return -EALREADY;
    }
    if (op.completion_waits_) {
      completions_.remove(op);
      if (completions_.first == nullptr) unsignal();
      op.completion_waits_ = false;
    }
    op.cancelled_.store(false, std::memory_order_relaxed);
    op.deadline_ns_ = deadline_ns;
    op.user_ = user;
    op.state_ = Operation::State::kQueued;
    queue_.push(op);
  }
  work_.notify_one();
  return 0;
}

int Async::check(const Operation &op) {
  std::lock_guard guard(mutex_);
  switch (op.state_) {
    case Operation::State::kIdle: return -ENODATA;
    case Operation::State::kDone: return op.result_;
    default: return -EINPROGRESS;
  }
}

int Async::cancel(Operation &op) {
  std::unique_lock lock(mutex_);
  if (op.state_ == Operation::State::kQueued) {
    queue_.remove(op);
    finish(op, -ECANCELED);
    return 1;
  }
  if (op.state_ != Operation::State::kRunning) return 0;
  op.cancelled_.store(true, std::memory_order_relaxed);
  ended_.wait(lock, [&] { return op.state_ != Operation::State::kRunning; });
  return op.result_ == -ECANCELED ? 1 : 0;
}

void Async::forget(Operation &op) {
  cancel(op);
  std::lock_guard guard(mutex_);
  if (!op.completion_waits_) return;
  completions_.remove(op);
  op.completion_waits_ = false;
  if (completions_.first == nullptr) unsignal();
}

u32 Async::poll(u32 max, u64 deadline_ns, Completion *ret_completions) {
  std::unique_lock lock(mutex_);
  ended_.wait_until(lock, time_of(deadline_ns),
                    [this] { return completions_.first != nullptr || stopping_; });
  u32 n = 0;
  while (n < max) {
    Operation *op = completions_.pop();
    if (op == nullptr) break;
    op->completion_waits_ = false;
    ret_completions[n++] = {op, op->user_, op->result_};
  }
  if (n > 0 && completions_.first == nullptr) unsignal();
  return n;
}

}  // namespace kvpool::store
