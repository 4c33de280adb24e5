// SPDX-License-Identifier: Apache-2.0
// A process that makes the store larger and smaller while it is in use: what `kvpool grow` and
// `kvpool shrink` are. A shrinking that members or pins keep from going on is given up.
#include <cerrno>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "party.hpp"
#include "say.hpp"
#include "store/context.hpp"

namespace kvpool::torture {

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kStep = 2u << 20;
constexpr std::uint64_t kStepsLeast = 20, kStepsMost = 48;  // the store is made with 24
constexpr double kWaitSeconds = 2;                          // for what is to go

// What an attempt may end with while owners, and other resizers, are killed and stopped.
bool passing(int err) {
  switch (err) {
    case -EAGAIN:
    case -EBUSY:
    case -ECANCELED:
    case -EINVAL:  // another one was there first
    case -ENOTCONN:
    case -ERANGE:  // all regions that a store may have are used
    case -ETIMEDOUT:
    case -EUSERS: return true;
    default: return false;
  }
}

std::unique_ptr<store::Context> open(const std::string &address, Shared &shared) {
  store::ContextOptions options;
  options.name = "resizer";
  const std::uint64_t until = tools::deadline_in(40);
  for (;;) {
    std::unique_ptr<store::Context> context;
    std::string why;
    const int err = store::Context::open(address.c_str(), options, context, &why);
    if (err == 0) return context;
    if (shared.stop.load() != 0) return nullptr;
    if (!passing(err) || tools::now_ns() >= until) {
      tools::fail(tools::kExitFailed, address, why);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

int run_resizer(const std::string &address, std::uint64_t seed, Shared &shared) {
  Random random(seed);
  std::unique_ptr<store::Context> context = open(address, shared);
  if (context == nullptr) return tools::kExitFine;
  while (shared.stop.load() == 0) {
    const std::uint64_t now =
        media::pool_bytes_in_use(context->geometry(), context->member().session()->regions);
    store::ResizeOptions options;
    options.pool_bytes = kStep * (kStepsLeast + random.below(kStepsMost - kStepsLeast + 1));
    options.shrink = options.pool_bytes < now;
    const std::uint64_t until = tools::deadline_in(kWaitSeconds);
    options.go_on = [&](const store::ResizeProgress &) {
      return shared.stop.load() == 0 && tools::now_ns() < until;
    };
    store::ResizeReport report;
    std::string why;
    const int err = context->resize(options, report, &why);
    if (err == 0) {
      ++(report.extents_after > report.extents_before   ? shared.grown
         : report.extents_after < report.extents_before ? shared.shrunk
                                                        : shared.resizes_void);
    } else if (passing(err)) {
      ++shared.resizes_void;
    } else {
      ++shared.errors;
      note_wrong(shared, fmt::format("resizing to {}: {} ({})", options.pool_bytes, why, err));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds((20 + random.below(400)) * kMs));
  }
  return tools::kExitFine;
}

}  // namespace kvpool::torture
