// SPDX-License-Identifier: Apache-2.0
// The memory of a pool: all its devices, opened or made, mapped, with the locks of this opening.
// The door of this layer: store includes this header.
//
// Every Backend opens its own descriptors, so that two in one process exclude each other by locks
// as two processes do. All members are constant after open except the locks, which guard
// themselves, and how much of a device is mapped: devices may grow.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "arch/types.hpp"
#include "backend/address.hpp"
#include "backend/dax.hpp"
#include "backend/device_file.hpp"
#include "backend/driver.hpp"
#include "backend/host_id.hpp"
#include "backend/locks.hpp"
#include "backend/status.hpp"

namespace kvpool::backend {

struct DeviceSpan {
  std::byte *base = nullptr;  // 2 MiB aligned
  u64 bytes = 0;              // multiple of 2 MiB
  std::string name;           // path, for messages
  bool lost = false;          // cut to (nearly) nothing: loads fail until its file is whole again
};

enum class OpenMode { kReadOnly, kReadWrite };

struct OpenOptions {
  bool populate = false;  // fault everything in now: slow open, no page faults later
};

struct CreateOptions {
  bool reuse = false;  // existing files may be taken: grown where too short, never cut
  bool force = false;  // also while other openings hold locks on them
  bool populate = false;
};

class Backend {
public:
  // An existing pool. Says nothing about what is in it. Devices may be lost, but for one of the
  // first two, by which the store is known; a lost one is taken to be as long as others are.
  static Status open(const Address &address, OpenMode mode, const OpenOptions &options,
                     std::unique_ptr<Backend> &ret);

  // A new pool: every byte of it is reserved when this returns, and the format lock is held
  // (release it when the store is formatted). `sizes`: one per device, multiples of 2 MiB; empty:
  // from the address, or the sizes existing files have. On failure what was made is removed, and an
  // existing file has the length and content it had.
  static Status create(const Address &address, std::span<const u64> sizes,
                       const CreateOptions &options, std::unique_ptr<Backend> &ret);

  // Unlinks mem: objects and files. -EBUSY while somebody holds a lock, unless `force`. Whoever has
  // the pool mapped keeps it until he lets go.
  static Status remove(const Address &address, bool force);

  // Whether anything is at the address, without opening it.
  static bool exists(const Address &address);

  std::span<const DeviceSpan> devices() const { return spans_; }
  const Address &address() const { return address_; }
  u32 host_id() const { return address_.host_id(); }
  bool writable() const { return writable_; }
  Locks &locks() { return *locks_; }

  // Sets address space aside for devices that may grow to `rooms` bytes, and maps them anew there:
  // pointers from before are void. Where the process may not have so much, they stay as they are.
  Status make_room(std::span<const u64> rooms, bool populate);

  // Maps what the file of `device` has got since, so that the bytes below `end` can be touched. Any
  // thread; what is mapped stays where it is. -EFBIG: the file is shorter, or no room was made.
  Status extend(u32 device, u64 end);

  // Allocates all files up to these sizes, one per device; on failure none is longer than it was.
  // -EINVAL for dax and dev.
  Status grow_files(std::span<const u64> sizes);

  // Gives the storage of whole pages back; they read as zeros from now on, the file keeps its
  // length.
  Status punch(u32 device, u64 begin, u64 end);

  // Bytes of the file now.
  u64 file_bytes(u32 device) const;

  // -EFBIG when the file of `device` is shorter than `bytes`, as a superblock says it should be;
  // -ENODEV when the address names no such device; -ESTALE when the file has grown and must be
  // opened anew.
  Status require_bytes(u32 device, u64 bytes) const;

  // The same for everything mapped; a pool whose file shrank will raise SIGBUS, so ask now and
  // then.
  Status recheck() const;

  // True when the driver took the mappings away: nothing read or written after that means anything.
  // Any thread; no system call.
  bool revoked() const noexcept { return membership_ != nullptr && membership_->revoked(); }

  // Gets them back, at the same addresses. Nobody may be on his way through the pool meanwhile.
  Status regain();

  // -EIDRM when the address does not lead to what is mapped any more: it was removed, or made anew.
  Status still_there() const;

private:
  Backend() = default;
  Status join();
  Status map_all(std::span<const u64> sizes, bool populate);

  Address address_;
  bool writable_ = false;
  std::vector<DeviceFile> files_;
  std::unique_ptr<Membership> membership_;  // of partitions; goes before their descriptors
  std::vector<DeviceSpan> spans_;
  std::unique_ptr<Locks> locks_;
  std::mutex extend_mutex_;
};

}  // namespace kvpool::backend
