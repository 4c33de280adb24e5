// SPDX-License-Identifier: Apache-2.0
// Partitions of the kvpool driver as memory of a pool: what a node tells of itself, how its slices
// become one range of addresses, and the membership without which nothing of it can be mapped.
//
// The driver takes mappings away when the lease of a member runs out, when an administrator revokes
// it, or when its partition is destroyed. It says so first, in a page that the member can read;
// what is read at the pool's addresses afterwards is a page of zeros and means nothing.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/types.hpp"
#include "backend/status.hpp"

namespace kvpool::backend {

inline constexpr const char *kControlNode = "/dev/kvpool";

// "/dev/kvpool-NAME"; empty for what is no partition's name.
std::string partition_path(std::string_view name);

struct Slice {
  u32 id = 0;
  u32 device = 0;         // of the driver's pool
  u64 device_offset = 0;  // in it
  u64 bytes = 0;
  u64 map_offset = 0;
};

struct Partition {
  u32 type = 0;
  std::vector<Slice> slices;  // in the order of their ids, which all hosts see alike
};

// What of a slice is mapped where, from the start of the range.
struct Piece {
  u64 at = 0;
  u64 bytes = 0;
  u64 map_offset = 0;
  u32 device = 0;
  u64 device_offset = 0;
};

// Bytes at the start of a write-back partition that the drivers write, and nobody else.
u64 driver_bytes(const Partition &partition);

// The partition behind the driver's bytes, as one range without a gap. -ENOTSUP: slices that are no
// such thing (no slice, not whole leaves, ids that do not grow).
Status pieces_of(const Partition &partition, const std::string &shown, std::vector<Piece> &ret);

// What the node tells; needs no membership.
Status read_partition(int fd, const std::string &shown, Partition &ret);

// Maps `pieces` at `base`, which must be kept free, and proves of each that it got the partition's
// memory type and the place it asked for. `populate`: makes every entry of the page table now.
Status map_pieces(int fd, const std::string &shown, const Partition &partition,
                  std::span<const Piece> pieces, std::byte *base, bool writable, bool populate);
// The same proof for mappings that stand already.
Status check_pieces(int fd, const std::string &shown, const Partition &partition,
                    std::span<const Piece> pieces, std::byte *base, bool populate);
Status populate_pieces(int fd, const std::string &shown, std::span<const Piece> pieces,
                       const std::byte *base);

// Why there is no node for this path, and what makes one.
Status explain_missing_node(const std::string &path);

// This process as a member of all partitions of a store, with a lease that a thread renews. The
// descriptors are the caller's and must stay open. Dead in a forked child.
class Membership {
public:
  // `fds`: of the control partition first. Read-only nodes can be joined as well.
  static Status join(std::span<const int> fds, const std::string &shown,
                     std::unique_ptr<Membership> &ret);
  ~Membership();
  Membership(const Membership &) = delete;
  Membership &operator=(const Membership &) = delete;

  // Whether the mappings are not what they were at the last join. Any thread; no system call.
  bool revoked() const noexcept;

  // Joins anew after a revoke: another incarnation, the same addresses. Nobody may be on his way
  // through them: what he has read may be zeros, and could not be told from the pool any more.
  // -ENODEV: the partition or the pool is gone for this process.
  Status join_again();

  // Counts as revoked from now on: the mappings are not what they should be.
  void give_up() noexcept { incarnation_.store(0, std::memory_order_release); }

  u32 host() const { return host_; }
  u32 slot() const { return slot_; }

private:
  struct Renewer;
  Membership(std::span<const int> fds, std::string shown);
  Status join();
  Status start_renewing();

  const std::vector<int> fds_;
  const std::string shown_;
  pid_t pid_ = 0;
  u32 host_ = 0, slot_ = 0;
  std::atomic<u64> incarnation_{0};
  std::atomic<u64> lost_{0};     // slices that had been taken away when it joined last
  const void *state_ = nullptr;  // the driver's page, read-only
  std::unique_ptr<Renewer> renewer_;
};

}  // namespace kvpool::backend
