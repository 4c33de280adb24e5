// SPDX-License-Identifier: Apache-2.0
// A member whose memory the driver took away, and how it gets that back. What stands at the pool's
// addresses meanwhile is a page of zeros of its own: whatever was begun before and goes on after
// would take zeros for the pool, so everything that is under way ends before the driver is asked.
#include "store/context.hpp"

namespace kvpool::store {

int Context::explain_revoked(std::string *why) {
  const bool for_good = options_.read_only || gone_.load();
  if (why != nullptr) {
    *why = address_ +
           ": the driver took the memory away from this process, which stood still for longer "
           "than its lease, or was revoked, or its partition is being destroyed; " +
           (for_good ? "open it again" : "it is joining anew");
  }
  return for_good ? -EIDRM : -ENOTCONN;
}

// By the keeper. Calls hold a scratch from their first look to their last; the serving thread steps
// aside; what is left reads lines only, which are believed by their seals.
void Context::regain() {
  if (serving_.load() && !aside_.load()) return;  // soon
  backend::Status status;
  int rejoined = 0;
  scratch_->alone([&] {
    std::unique_lock life(life_);
    reservations_.clear();
    pins_.clear();
    {
      std::lock_guard guard(mapped_mutex_);
      mapped_.clear();
      regained_.store(true);
    }
    status = backend_->regain();
    // The former incarnation ends whatever comes: what it asked for went to the page of zeros.
    if (status.ok()) rejoined = member_->rejoin();
  });
  if (!status.ok()) {
    gone_.store(true);
    log(LogLevel::kError, address_ + ": the driver took the memory away: " + status.what);
    return;
  }
  if (rejoined != 0) return;  // the keeper asks again
  ContextCounters::add(counters_.rejoins, 1);
  log(LogLevel::kWarning, address_ + ": the driver had taken the memory away from this process, "
                                     "which has joined anew; reservations and pins are gone");
}

void Context::note_mapped(u64 address, u64 version) {
  constexpr std::size_t kMost = 65'536;  // beyond it some are forgotten, and read again
  if (!regained_.load()) return;
  std::lock_guard guard(mapped_mutex_);
  if (mapped_.size() >= kMost) mapped_.clear();
  mapped_.insert({address, version});
}

bool Context::mapped_all_along(u64 address, u64 version) {
  if (!regained_.load()) return true;
  std::lock_guard guard(mapped_mutex_);
  return mapped_.contains({address, version});
}

// By the serving thread, which has nothing under way: until the keeper has the memory back.
void Context::stand_aside(u64 until_ns) {
  constexpr u64 kLookNs = 5'000'000;
  aside_.store(true);
  while (env_->revoked() && !serving_over(until_ns)) env_->sleep_ns(kLookNs);
  aside_.store(false);
}

}  // namespace kvpool::store
