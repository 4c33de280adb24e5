// SPDX-License-Identifier: Apache-2.0
// Where lines and rings of hosts and members stand (proto 14): found out when the store is opened,
// and moved then if their device is lost and whoever opens it means to serve.
#include "pool/control.hpp"

#include <unistd.h>

#include <algorithm>

#include "store/context.hpp"

namespace kvpool::store {

namespace {

constexpr u64 kMillisecond = 1'000'000;

int fail(std::string *why, int err, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return err;
}

}  // namespace

bool Context::first_device_lost() { return pool::lines_lost(*env_, geometry_); }

std::string Context::first_device_text() const {
  return "device " + std::to_string(geometry_.control_device()) + " (" +
         backend_->devices()[geometry_.control_device()].name +
         ") cannot be read, where the lines of all members stand; `kvpool serve` goes on from "
         "another one";
}

// A device that is gone for a moment is not given up.
u64 Context::patience_ns() const { return std::min(1000 * kMillisecond, lease_ns()); }

// In the serving thread, which looks again and again.
bool Context::first_device_gone() {
  if (!first_device_lost()) {
    first_lost_ns_ = 0;
    return false;
  }
  if (first_lost_ns_ == 0) first_lost_ns_ = monotonic_ns();
  return monotonic_ns() - first_lost_ns_ >= patience_ns();
}

int Context::settle_control(std::string *why) {
  const bool shared = backend::is_device(backend_->address().scheme);  // hosts may differ on it
  const bool may = options_.move_control || (options_.embedded_owner && !shared);
  const u64 give_up = monotonic_ns() + 4 * patience_ns() + 4 * lease_ns();
  for (;;) {
    const int err = pool::read_control(*env_, geometry_);
    if (err == -ESTALE) return fail(why, -EIDRM, address_ + ": was formatted anew just now");
    // What is wrong with claims that cannot be read is said by whoever joins.
    if (!first_device_lost() || options_.read_only) return 0;
    if (err != 0 || !may) {
      return fail(why, -EIO, address_ + ": " + first_device_text());
    }
    if (first_device_gone()) {
      const int moved = move_control();
      if (moved == 0) {
        log(LogLevel::kError, address_ + ": a device is lost; the store goes on from device " +
                                  std::to_string(geometry_.control_device()));
        return 0;
      }
      if (moved != -EAGAIN && moved != -ESTALE) {
        return fail(why, moved,
                    address_ + ": device " + std::to_string(geometry_.control_device()) +
                        " is lost, and what else there is does not suffice to go on: the newest "
                        "metadata was there, or no standby slot has an area elsewhere; bring "
                        "the device back, or give the store up with `kvpool format`");
      }
    }
    if (monotonic_ns() > give_up) {
      return fail(why, -EIO,
                  address_ + ": " + first_device_text() + ", but somebody else is at it for long");
    }
    env_->sleep_ns(20 * kMillisecond + env_->random() % (20 * kMillisecond));
  }
}

// By the first standby slot that will do. -EAGAIN: not now. Who formats, resizes or moves lines
// holds the format lock.
int Context::move_control() {
  if (!env_->try_lock(pool::LockKind::kFormat, 0)) return -EAGAIN;
  const AtEnd over([this] { env_->unlock(pool::LockKind::kFormat, 0); });
  pool::MemberOptions how;
  how.host = backend_->host_id();
  how.pid = static_cast<u32>(getpid());
  how.name = "owner";
  int result = -EAGAIN;
  for (u32 unfit = 0, slot = 0; take_standby(unfit, slot) == 0; unfit |= 1u << slot) {
    const AtEnd free_slot([&] { env_->unlock(pool::LockKind::kStandby, slot); });
    result = pool::move_control(*env_, geometry_, how, slot);
    if (result != -EIO) break;  // an area of another slot may lie elsewhere
  }
  return result;
}

}  // namespace kvpool::store
