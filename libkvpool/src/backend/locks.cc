// SPDX-License-Identifier: Apache-2.0
// The places of LockKind as byte offsets, and the three fcntl calls. Bound: no call waits.
#include "backend/locks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kvpool::backend {

namespace {

constexpr u64 kLockBase = u64{1} << 62;

// First place of each kind. Changing one lets an old and a new library hold the same slot at once.
constexpr std::array<u64, kLockKinds> kFirst = {0, 16, 64, 32};
static_assert(kFirst[1] + kLockCount[1] <= kFirst[3]);
static_assert(kFirst[3] + kLockCount[3] <= kFirst[2]);
static_assert(kFirst[2] + kLockCount[2] <= 320);

struct flock span_of(short type, u64 id, u64 count) {
  struct flock span = {};
  span.l_type = type;
  span.l_whence = SEEK_SET;
  span.l_start = static_cast<off_t>(kLockBase + id);
  span.l_len = static_cast<off_t>(count);
  return span;
}

}  // namespace

Locks::Locks(int fd) : fd_(fd), pid_(getpid()) {}

int Locks::place(LockKind kind, u32 index, u64 &ret) const {
  const u32 k = static_cast<u32>(kind);
  if (k >= kLockKinds || index >= kLockCount[k]) return -EINVAL;
  if (getpid() != pid_) return -ESTALE;
  ret = kFirst[k] + index;
  return 0;
}

int Locks::set(short type, u64 id) {
  struct flock span = span_of(type, id, 1);
  while (fcntl(fd_, F_OFD_SETLK, &span) != 0) {
    if (errno == EINTR) continue;
    if (errno == EACCES || errno == EAGAIN) return -EAGAIN;
    return errno == EBADF ? -EROFS : -errno;
  }
  return 0;
}

int Locks::probe(u64 id, u64 count, bool &ret) const {
  struct flock span = span_of(F_WRLCK, id, count);
  if (fcntl(fd_, F_OFD_GETLK, &span) != 0) return -errno;
  ret = span.l_type != F_UNLCK;  // own locks are no conflict
  return 0;
}

int Locks::try_lock(LockKind kind, u32 index) {
  u64 id = 0;
  if (const int err = place(kind, index, id); err != 0) return err;
  const std::lock_guard guard(mutex_);
  if (held_[id]) return -EALREADY;
  if (const int err = set(F_WRLCK, id); err != 0) return err;
  held_[id] = true;
  return 0;
}

int Locks::unlock(LockKind kind, u32 index) {
  u64 id = 0;
  if (const int err = place(kind, index, id); err != 0) return err;
  const std::lock_guard guard(mutex_);
  if (!held_[id]) return 0;
  if (const int err = set(F_UNLCK, id); err != 0) return err;
  held_[id] = false;
  return 0;
}

int Locks::try_lock_first(LockKind kind, u32 first, u32 last, u32 &ret_index) {
  u64 id = 0;
  if (first >= last) return -EINVAL;
  if (const int err = place(kind, last - 1, id); err != 0) return err;
  for (u32 i = first; i < last; ++i) {
    const int err = try_lock(kind, i);
    if (err == -EAGAIN || err == -EALREADY) continue;
    if (err == 0) ret_index = i;
    return err;
  }
  return -EAGAIN;
}

int Locks::query(LockKind kind, u32 index, LockState &ret) const {
  u64 id = 0;
  if (const int err = place(kind, index, id); err != 0) return err;
  const std::lock_guard guard(mutex_);
  bool elsewhere = false;
  if (const int err = probe(id, 1, elsewhere); err != 0) return err;
  ret = held_[id] ? LockState::kHere : elsewhere ? LockState::kElsewhere : LockState::kFree;
  return 0;
}

int Locks::any_elsewhere(LockKind kind, u32 first, u32 last, bool &ret) const {
  u64 id = 0;
  if (first >= last) return -EINVAL;
  if (const int err = place(kind, last - 1, id); err != 0) return err;
  return probe(id - (last - 1 - first), last - first, ret);
}

}  // namespace kvpool::backend
