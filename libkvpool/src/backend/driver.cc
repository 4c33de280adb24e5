// SPDX-License-Identifier: Apache-2.0
// The ioctls of a partition's node, none of them on the way of a block. Bound: a join waits for the
// driver's thread (two settle times of the pool and its line writes); renewals wait for faults.
#include "backend/driver.hpp"

#include <linux/kvpool.h>
#include <linux/kvpool_format.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "backend/address.hpp"

namespace kvpool::backend {

namespace {

constexpr u64 kPageBytes = 4096;
constexpr u64 kLeafBytes = u64{2} << 20;
constexpr auto kRenewEvery = std::chrono::seconds(1);  // a tenth of the driver's default lease
constexpr u64 kPopulateStep = u64{1} << 30;            // so that a signal repeats little

static_assert(KVPOOL_REAPER_BYTES == kDeviceAlign && kLeafBytes == kDeviceAlign);
static_assert(KVPOOL_JOIN_FDS_MAX >= kMaxDevices);

std::string error_text(int err) { return std::strerror(err < 0 ? -err : err); }

template <class T>
int command(int fd, unsigned long number, T &args) {
  while (ioctl(fd, number, &args) != 0) {
    if (errno != EINTR) return -errno;
  }
  return 0;
}

template <class Item>
int list(int fd, u32 kind, std::vector<Item> &ret) {
  ret.resize(64);
  for (;;) {
    kvpool_list args{};
    args.items = reinterpret_cast<std::uintptr_t>(ret.data());
    args.kind = kind;
    args.item_bytes = sizeof(Item);
    args.count = static_cast<u32>(ret.size());
    if (const int err = command(fd, KVPOOL_LIST, args); err != 0) return err;
    const bool all = args.ret_count <= args.count;
    ret.resize(args.ret_count);
    if (all) return 0;
  }
}

// All but faults: mmu_notifier_register gives up at any signal, and a thread of ours runs no
// handler of the program.
class SignalsBlocked {
public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

private:
  sigset_t before_;
};

const char *type_name(u32 type) {
  switch (type) {
    case KVPOOL_TYPE_WB: return "write-back";
    case KVPOOL_TYPE_WC: return "write-combining";
    case KVPOOL_TYPE_UC_MINUS: return "uncached";
    default: return "another one";
  }
}

Status explain_join(int err, const std::string &shown) {
  switch (err) {
    case -EUSERS:
      return Status::fail(err, shown + ": all " + std::to_string(KVPOOL_MEMBER_SLOTS) +
                                   " members that the driver has for this host and partition are "
                                   "taken, or gone for less than a second; end processes that "
                                   "have it open");
    case -ESTALE:
      return Status::fail(-ENODEV, shown + ": the partition is being destroyed; kvpool setup "
                                           "partition list shows what waits for whom");
    case -ENODEV:
      return Status::fail(err, shown + ": the driver has given the pool up: this host fenced "
                                       "itself, or the memory failed (see the kernel's log and "
                                       "/sys/class/kvpool/kvpool/health); kvpool setup release, "
                                       "then claim it anew");
    case -ENOMEM:
      return Status::fail(err, shown + ": the kernel has no 2 MiB of contiguous memory for the "
                                       "page that stands in for revoked memory");
    case -EMEDIUMTYPE:
      return Status::fail(err, shown + ": this host's processor maps the partition with another "
                                       "memory type than the partition's (see the kernel's log); "
                                       "it must not be used here");
    case -ENOTTY:
      return Status::fail(-EINVAL, shown + ": is no node of the kvpool driver, or of one that is "
                                           "too old for this library");
    case -EOWNERDEAD:
      return Status::fail(-ENODEV, shown + ": the driver has given this process up for good");
    default:
      return Status::fail(err, shown + ": the driver does not let this process join: " +
                                   error_text(err));
  }
}

// The type of the first page of `piece` that is present, poisoned ones being left out.
Status check_piece(int fd, const std::string &shown, const Partition &partition,
                   const Piece &piece, std::byte *base) {
  for (u64 at = 0; at < kLeafBytes; at += kPageBytes) {
    kvpool_mapping args{};
    args.address = reinterpret_cast<std::uintptr_t>(base) + piece.at + at;
    if (const int err = command(fd, KVPOOL_MAPPING, args); err != 0) {
      return Status::fail(err, shown + ": the driver cannot say what was mapped: " +
                                   error_text(err));
    }
    if (args.ret_leaf_bytes == 0) continue;
    if (args.ret_device != piece.device || args.ret_device_offset != piece.device_offset + at) {
      return Status::fail(-ENOTSUP, shown + ": the driver mapped another place than was asked for; "
                                            "driver and library do not fit together");
    }
    if (args.ret_type == partition.type) return {};
    return Status::fail(-EMEDIUMTYPE, shown + ": is mapped as " + type_name(args.ret_type) +
                                          " memory, not as " + type_name(partition.type) +
                                          ": another driver maps these addresses, or the "
                                          "firmware's MTRRs do not allow it");
  }
  return Status::fail(-EIO, shown + ": the first 2 MiB of a slice cannot be mapped: revoked "
                                    "meanwhile, or all of it is poisoned (kvpool setup partition "
                                    "list)");
}

Status populate(int fd, const std::string &shown, const std::byte *base, u64 bytes) {
  for (u64 done = 0; done < bytes;) {
    kvpool_populate args{};
    args.address = reinterpret_cast<std::uintptr_t>(base) + done;
    args.bytes = std::min(kPopulateStep, bytes - done);
    const int err = ioctl(fd, KVPOOL_POPULATE, &args) == 0 ? 0 : -errno;
    done += args.ret_bytes;
    if (err == 0 || err == -EINTR) continue;
    return Status::fail(err, shown + ": cannot map " + format_size(bytes) + " now: " +
                                 (err == -ESTALE ? "the driver revoked it" : error_text(err)));
  }
  return {};
}

}  // namespace

std::string partition_path(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool good = !name.empty() && name.size() < KVPOOL_NAME_BYTES && plain(name[0]) &&
                    std::all_of(name.begin(), name.end(),
                                [&](char c) { return plain(c) || c == '-'; });
  return good ? std::string(kControlNode) + "-" + std::string(name) : std::string();
}

u64 driver_bytes(const Partition &partition) {
  return partition.type == KVPOOL_TYPE_WB ? KVPOOL_REAPER_BYTES : 0;
}

Status pieces_of(const Partition &partition, const std::string &shown, std::vector<Piece> &ret) {
  std::vector<Piece> out;
  u64 skip = driver_bytes(partition), at = 0;
  const Slice *before = nullptr;
  for (const Slice &slice : partition.slices) {
    const bool whole = slice.bytes != 0 && slice.bytes % kLeafBytes == 0 &&
                       slice.map_offset % kLeafBytes == 0;
    if (!whole || (before != nullptr && slice.id <= before->id)) {
      return Status::fail(-ENOTSUP, shown + ": slice " + std::to_string(slice.id) +
                                        " is none that this library understands; driver and "
                                        "library do not fit together");
    }
    before = &slice;
    const u64 left = std::min(skip, slice.bytes);
    skip -= left;
    if (left == slice.bytes) continue;
    out.push_back({at, slice.bytes - left, slice.map_offset + left, slice.device,
                   slice.device_offset + left});
    at += slice.bytes - left;
  }
  if (out.empty()) {
    return Status::fail(-ENOTSUP, shown + ": the partition has no memory: it is being destroyed, "
                                          "or this host has not read the table yet; try again");
  }
  ret = std::move(out);
  return {};
}

Status read_partition(int fd, const std::string &shown, Partition &ret) {
  std::vector<kvpool_item_partition> self;
  std::vector<kvpool_item_slice> slices;
  int err = list(fd, KVPOOL_LIST_PARTITIONS, self);
  if (err == 0) err = list(fd, KVPOOL_LIST_SLICES, slices);
  if (err != 0) return explain_join(err, shown);
  if (self.size() != 1) return explain_join(-ESTALE, shown);
  Partition out;
  out.type = self[0].type_requested;
  for (const kvpool_item_slice &slice : slices) {
    out.slices.push_back(
        {slice.id, slice.device, slice.device_offset, slice.bytes, slice.map_offset});
  }
  if (out.type != KVPOOL_TYPE_WB) {
    return Status::fail(-EMEDIUMTYPE,
                        shown + ": holds " + type_name(out.type) +
                            " memory; a store is made of write-back partitions (kvpool setup "
                            "partition create NAME --size BYTES)");
  }
  ret = std::move(out);
  return {};
}

Status map_pieces(int fd, const std::string &shown, const Partition &partition,
                  std::span<const Piece> pieces, std::byte *base, bool writable, bool whole) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  for (const Piece &piece : pieces) {
    void *map = mmap(base + piece.at, piece.bytes, protection, MAP_SHARED | MAP_FIXED, fd,
                     static_cast<off_t>(piece.map_offset));
    if (map == MAP_FAILED) {
      const int err = -errno;
      return Status::fail(err, shown + ": cannot map " + format_size(piece.bytes) + ": " +
                                   (err == -ENOMEM ? "no address space, or more mappings than "
                                                     "vm.max_map_count allows"
                                                   : error_text(err)));
    }
  }
  return check_pieces(fd, shown, partition, pieces, base, whole);
}

Status check_pieces(int fd, const std::string &shown, const Partition &partition,
                    std::span<const Piece> pieces, std::byte *base, bool whole) {
  for (const Piece &piece : pieces) {
    const u64 bytes = whole ? piece.bytes : std::min(piece.bytes, kLeafBytes);
    auto s = populate(fd, shown, base + piece.at, bytes);
    if (s.ok()) s = check_piece(fd, shown, partition, piece, base);
    if (!s.ok()) return s;
  }
  return {};
}

Status populate_pieces(int fd, const std::string &shown, std::span<const Piece> pieces,
                       const std::byte *base) {
  for (const Piece &piece : pieces) {
    if (auto s = populate(fd, shown, base + piece.at, piece.bytes); !s.ok()) return s;
  }
  return {};
}

Status explain_missing_node(const std::string &path) {
  if (access(kControlNode, F_OK) != 0) {
    return Status::fail(-ENODEV, path + ": the kvpool driver is not loaded: modprobe kvpool, then "
                                        "kvpool setup claim (kvpool doctor says what there is); "
                                        "without it use dax:/dev/daxX.Y?host=N, file:PATH or "
                                        "mem:NAME?size=1GiB");
  }
  return Status::fail(-ENODEV, path + ": there is no such partition on this host: kvpool setup "
                                      "partition list names those there are, kvpool setup claim "
                                      "brings those of a pool, kvpool setup partition create makes "
                                      "one");
}

// Late stays late: then the driver has revoked, and there is nothing to renew any more.
struct Membership::Renewer {
  explicit Renewer(int node) : fd(node), thread([this] { run(); }) {}
  ~Renewer() {
    {
      std::lock_guard guard(mutex);
      closing = true;
    }
    wake.notify_all();
    thread.join();
  }
  void run() {
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, kRenewEvery, [this] { return closing; })) {
      kvpool_renew args{};
      if (command(fd, KVPOOL_RENEW, args) == -ESTALE) return;
    }
  }

  const int fd;
  std::mutex mutex;
  std::condition_variable wake;
  bool closing = false;
  std::thread thread;  // last: it uses the others
};

Membership::Membership(std::span<const int> fds, std::string shown)
    : fds_(fds.begin(), fds.end()), shown_(std::move(shown)) {}

Status Membership::join(std::span<const int> fds, const std::string &shown,
                        std::unique_ptr<Membership> &ret) {
  std::unique_ptr<Membership> out(new Membership(fds, shown));
  const SignalsBlocked blocked;
  if (auto s = out->join(); !s.ok()) return s;
  out->pid_ = getpid();
  void *page = mmap(nullptr, kPageBytes, PROT_READ, MAP_SHARED, fds[0],
                    static_cast<off_t>(KVPOOL_MAP_STATE));
  if (page == MAP_FAILED) {
    return Status::fail(-errno, shown + ": cannot map the page that says whether this member was "
                                        "revoked: " + error_text(errno));
  }
  out->state_ = page;
  if (auto s = out->start_renewing(); !s.ok()) return s;
  ret = std::move(out);
  return {};
}

Status Membership::join() {
  std::array<std::int32_t, KVPOOL_JOIN_FDS_MAX> others{};
  for (std::size_t i = 1; i < fds_.size(); ++i) others[i - 1] = fds_[i];
  kvpool_join args{};
  args.flags = KVPOOL_JOIN_F_ZERO_PAGE;  // an engine loses its cache, not its life
  args.fds = reinterpret_cast<std::uintptr_t>(others.data());
  args.fd_count = static_cast<u32>(fds_.size() - 1);
  // Before: what goes from here on counts. What is gone by now, check_pieces finds.
  if (const auto *state = static_cast<const kvpool_state_page *>(state_); state != nullptr) {
    lost_.store(__atomic_load_n(&state->lost, __ATOMIC_ACQUIRE), std::memory_order_release);
  }
  if (const int err = command(fds_[0], KVPOOL_JOIN, args); err != 0) {
    return explain_join(err, shown_);
  }
  host_ = args.ret_host;
  slot_ = args.ret_slot;
  incarnation_.store(args.ret_incarnation, std::memory_order_release);
  return {};
}

Status Membership::start_renewing() {
  try {
    renewer_.reset();
    renewer_ = std::make_unique<Renewer>(fds_[0]);
  } catch (const std::system_error &) {
    return Status::fail(-EAGAIN,
                        shown_ + ": no thread to be had that renews the lease (ulimit -u)");
  }
  return {};
}

Status Membership::join_again() {
  const SignalsBlocked blocked;
  renewer_.reset();
  kvpool_quiet former{};
  former.incarnation = incarnation_.load(std::memory_order_relaxed);
  if (auto s = join(); !s.ok()) return s;
  // Only processors of this process wrote for it, and they are here.
  command(fds_[0], KVPOOL_QUIET, former);
  return start_renewing();
}

bool Membership::revoked() const noexcept {
  const auto *state = static_cast<const kvpool_state_page *>(state_);
  return __atomic_load_n(&state->revoked, __ATOMIC_ACQUIRE) != 0 ||
         __atomic_load_n(&state->lost, __ATOMIC_ACQUIRE) !=
             lost_.load(std::memory_order_acquire) ||
         __atomic_load_n(&state->incarnation, __ATOMIC_ACQUIRE) !=
             incarnation_.load(std::memory_order_acquire);
}

// In a forked child the thread is not there: what it waits on can neither be woken nor destroyed.
Membership::~Membership() {
  if (pid_ != 0 && getpid() != pid_) (void)renewer_.release();
  renewer_.reset();
  if (state_ != nullptr) munmap(const_cast<void *>(state_), kPageBytes);
}

}  // namespace kvpool::backend
