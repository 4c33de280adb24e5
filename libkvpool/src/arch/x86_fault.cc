// SPDX-License-Identifier: Apache-2.0
// The SIGBUS handler: looks up the faulting instruction in the section kvpool_faults and goes on at
// the address noted there. It reads constants only, so it is safe in any thread at any time, and
// takes no lock. A process that installs its own handler later must call the one it finds.
#include "arch/x86_fault.hpp"

#include <csignal>
#include <cstdint>
#include <mutex>
#include <ucontext.h>

#include "arch/types.hpp"

namespace kvpool::x86 {
namespace {

// Both relative to their own place, so that the section needs no relocation.
struct FaultEntry {
  std::int32_t at;
  std::int32_t to;
};

extern "C" {
[[gnu::visibility("hidden")]] extern const FaultEntry __start_kvpool_faults[];
[[gnu::visibility("hidden")]] extern const FaultEntry __stop_kvpool_faults[];
}

struct sigaction previous;

u64 resolve(const std::int32_t &field) {
  return reinterpret_cast<u64>(&field) + static_cast<u64>(static_cast<std::int64_t>(field));
}

void pass_on(int signal, siginfo_t *info, void *context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    const bool sent = info->si_code <= 0;
    if (sent && previous.sa_handler == SIG_IGN) return;
    // The instruction runs again and ends the process as it would have without us. A signal that
    // somebody sent has no such instruction: it is sent again, and comes when this handler is over.
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);
    if (sent) raise(signal);
  } else {
    previous.sa_handler(signal);
  }
}

void on_fault(int signal, siginfo_t *info, void *context) {
  if (info->si_code <= 0) {  // sent by a process: where this thread happens to be means nothing
    pass_on(signal, info, context);
    return;
  }
  auto *state = static_cast<ucontext_t *>(context);
  auto &rip = state->uc_mcontext.gregs[REG_RIP];
  for (const FaultEntry *e = __start_kvpool_faults; e != __stop_kvpool_faults; ++e) {
    if (resolve(e->at) == static_cast<u64>(rip)) {
      rip = static_cast<greg_t>(resolve(e->to));
      return;
    }
  }
  pass_on(signal, info, context);
}

}  // namespace

void catch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
  });
}

}  // namespace kvpool::x86
