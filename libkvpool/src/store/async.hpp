// SPDX-License-Identifier: Apache-2.0
// Prepared operations: a few worker threads, a queue, completions and a descriptor that tells of
// them. Owns the life of operations between post and completion; knows nothing of what they do. One
// mutex guards everything; posting and polling allocate nothing.
//
// Cancelling returns only when the operation's body does not run and will not: from then on nothing
// here touches memory that the caller gave.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "arch/types.hpp"

namespace kvpool::store {

// Does the work of one operation. Looks at `cancelled` between blocks and then ends with
// -ECANCELED.
using OperationBody = std::function<int(u64 deadline_ns, const std::atomic<bool> &cancelled)>;

class Operation {
public:
  explicit Operation(OperationBody body) : body_(std::move(body)) {}

private:
  friend class Async;
  enum class State : u8 { kIdle, kQueued, kRunning, kDone };

  OperationBody body_;
  State state_ = State::kIdle;
  bool completion_waits_ = false;
  std::atomic<bool> cancelled_{false};
  u64 deadline_ns_ = 0;
  u64 user_ = 0;
  int result_ = 0;
  Operation *next_ = nullptr;  // in the queue, or among the completions
};

class Async {
public:
  struct Completion {
    Operation *op = nullptr;
    u64 user = 0;
    int result = 0;
  };

  Async() = default;
  ~Async() { stop(); }
  Async(const Async &) = delete;
  Async &operator=(const Async &) = delete;

  // Makes the descriptor; threads start with the first operation. 0 or -errno.
  int start(u32 workers);
  // Cancels what runs, ends the threads, closes the descriptor. Operations stay their owners'.
  void stop();
  // Makes sure the threads run. 0, or -EAGAIN when the system gives none.
  int ready();
  // 0, or -EALREADY while it is queued or runs. Drops a completion of an earlier post.
  int post(Operation &op, u64 deadline_ns, u64 user);
  // -ENODATA before the first post, -EINPROGRESS, else the result.
  int check(const Operation &op);
  // 1: stopped, its result is -ECANCELED; 0: it had ended, was never posted, or its body gave a
  // result for what it had done by then.
  int cancel(Operation &op);
  // Cancels, and drops its completion: the operation may be destroyed afterwards.
  void forget(Operation &op);
  // Takes up to `max` completions; waits for the first one until `deadline_ns` (CLOCK_MONOTONIC).
  u32 poll(u32 max, u64 deadline_ns, Completion *ret_completions);

  int event_fd() const { return event_fd_; }

private:
  // Singly linked through Operation::next_; order is first in, first out.
  struct List {
    Operation *first = nullptr;
    Operation *last = nullptr;
    void push(Operation &op);
    Operation *pop();
    bool remove(Operation &op);
  };

  void work();
  void finish(Operation &op, int result);
  void signal();
  void unsignal();

  std::mutex mutex_;
  std::condition_variable work_;   // the queue grew, or the end
  std::condition_variable ended_;  // an operation ended
  List queue_;
  List completions_;
  std::vector<Operation *> running_;  // one for each thread at most
  bool stopping_ = false;
  u32 workers_ = 0;
  int event_fd_ = -1;
  std::vector<std::thread> threads_;
};

}  // namespace kvpool::store
