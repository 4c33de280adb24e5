// SPDX-License-Identifier: Apache-2.0
// Threads that are started while one of these lives take no signals of the program: its handlers
// run in its own threads. Faults stay, since they belong to the instruction that raised them.
#pragma once

#include <csignal>

namespace kvpool::store {

class QuietThreads {
public:
  QuietThreads() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~QuietThreads() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  QuietThreads(const QuietThreads &) = delete;
  QuietThreads &operator=(const QuietThreads &) = delete;

private:
  sigset_t before_;
};

}  // namespace kvpool::store
