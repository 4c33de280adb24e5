// SPDX-License-Identifier: Apache-2.0
// Who of this machine holds which place in a store: open-file-description locks on device 0.
//
// A lock belongs to the open file description, not to the process: two Backends conflict even
// inside one process, the kernel drops all locks when the last descriptor goes (kill -9 included),
// and a child made by fork() without exec shares them: they stay held as long as the child keeps
// the descriptor open. O_CLOEXEC ends that at exec only. So a Locks object is dead in a forked
// child (every call is -ESTALE there): a child that unlocked would unlock for its parent.
//
// The bytes locked lie at 2^62 and beyond, where no data ever is. Locks say nothing about other
// hosts.
#pragma once

#include <sys/types.h>

#include <array>
#include <bitset>
#include <mutex>

#include "arch/types.hpp"

namespace kvpool::backend {

enum class LockKind : u32 { kFormat, kHost, kMember, kStandby };
inline constexpr u32 kLockKinds = 4;

// How many places a kind has.
inline constexpr std::array<u32, kLockKinds> kLockCount = {1, 16, 254, 16};

enum class LockState { kFree, kHere, kElsewhere };

class Locks {
public:
  // `fd` stays the caller's and must be an open of its own, writable for try_lock.
  explicit Locks(int fd);

  // 0; -EAGAIN when another description holds it; -EALREADY when this one does; -EINVAL for a place
  // that does not exist; -EROFS on a read-only descriptor; -ESTALE in a forked child.
  int try_lock(LockKind kind, u32 index);

  // 0 (also when it was not held), -EINVAL, -ESTALE.
  int unlock(LockKind kind, u32 index);

  // The first free place in [first, last), locked; -EAGAIN when all are taken.
  int try_lock_first(LockKind kind, u32 first, u32 last, u32 &ret_index);

  // Who holds it, without taking it. The holder's process cannot be named: the kernel does not know
  // it for this kind of lock.
  int query(LockKind kind, u32 index, LockState &ret) const;

  // Whether any other description holds any place in [first, last) of the kind: one system call.
  int any_elsewhere(LockKind kind, u32 first, u32 last, bool &ret) const;

private:
  int place(LockKind kind, u32 index, u64 &ret) const;
  int set(short type, u64 id);
  int probe(u64 id, u64 count, bool &ret) const;

  static constexpr u64 kPlaces = 320;
  int fd_;
  pid_t pid_;
  mutable std::mutex mutex_;
  std::bitset<kPlaces> held_;  // the kernel lets a description lock twice; we do not
};

}  // namespace kvpool::backend
