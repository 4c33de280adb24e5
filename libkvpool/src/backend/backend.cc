// SPDX-License-Identifier: Apache-2.0
// Puts devices together into a pool. Bounds: at most kMaxDevices devices; nothing here waits.
#include "backend/backend.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "media/format.hpp"

namespace kvpool::backend {

// The format decides these; addresses and locks must be able to name all of them.
static_assert(kMaxDevices == media::kMaxDevices && kMaxHosts == media::kMaxHosts);
static_assert(kDeviceAlign == media::kStripeBytes);
static_assert(kLockCount[static_cast<u32>(LockKind::kHost)] == media::kMaxHosts);
static_assert(kLockCount[static_cast<u32>(LockKind::kMember)] == media::kMaxMembers);
static_assert(kLockCount[static_cast<u32>(LockKind::kStandby)] == media::kMaxStandbys);

namespace {

std::string quoted(const std::string &text) { return "\"" + text + "\""; }

std::vector<Place> places_of(const Address &address, u32 mem_devices) {
  std::vector<Place> out;
  if (address.scheme == Scheme::kMem) {
    for (u32 i = 0; i < mem_devices; ++i)
      out.push_back({PlaceKind::kShm, shm_name(address.name, i)});
  } else {
    const auto kind = address.scheme == Scheme::kDax   ? PlaceKind::kDax
                      : address.scheme == Scheme::kDev ? PlaceKind::kNode
                                                       : PlaceKind::kFile;
    for (const auto &path : address.paths) out.push_back({kind, path});
  }
  return out;
}

// How many devices a mem: pool has is found out by looking; a gap means that one was removed.
Status count_mem_devices(const Address &address, u32 &ret) {
  const auto all = places_of(address, kMaxDevices);
  u32 found = 0;
  u32 end = 0;
  for (u32 i = 0; i < kMaxDevices; ++i) {
    if (!place_exists(all[i])) continue;
    ++found;
    end = i + 1;
  }
  if (found == 0) {
    return Status::fail(-ENOENT, quoted(address.text) + ": there is no pool of this name (no " +
                                     all[0].shown() + "); kvpool format makes one");
  }
  if (found != end) {
    const auto missing = std::find_if_not(all.begin(), all.end(), place_exists);
    return Status::fail(-ENODEV,
                        quoted(address.text) + ": device file " + missing->shown() + " is missing");
  }
  if (address.devices && *address.devices != found) {
    return Status::fail(-EINVAL, quoted(address.text) + ": option devices says " +
                                     std::to_string(*address.devices) + ", the pool has " +
                                     std::to_string(found) + "; leave it out");
  }
  ret = found;
  return {};
}

Status check_distinct(const std::vector<DeviceFile> &files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (files[i].same_file(files[j])) {
        return Status::fail(-EINVAL, files[i].shown() + " and " + files[j].shown() +
                                         " are the same file; each device needs its own");
      }
    }
  }
  return {};
}

// What every device of a store begins with.
bool begins_as_device(const DeviceFile &file) {
  u64 magic = 0;
  return pread(file.fd(), &magic, sizeof magic, 0) == sizeof magic && magic == media::kMagic;
}

// Whether the file was cut to less than any device has, while one of the first two others is there
// (proto 14).
bool lost_beside(const std::vector<DeviceFile> &all, std::size_t i) {
  if (all.size() < 2 || all[i].file_bytes() >= kDeviceAlign) return false;
  for (std::size_t known_by = 0; known_by < 2; ++known_by) {
    const DeviceFile &file = all[known_by];
    if (known_by == i || file.file_bytes() < kDeviceAlign) continue;
    if (begins_as_device(file)) return true;
  }
  return false;
}

// How long a lost device is taken to be: nobody but itself tells. Of the first two as the other
// one, of a later one as the longest; more than it had costs addresses only.
u64 bytes_of_lost(const std::vector<u64> &sizes, std::size_t i) {
  return i < 2 ? sizes[1 - i] : *std::max_element(sizes.begin(), sizes.end());
}

Status check_usable(const DeviceFile &file, const std::vector<DeviceFile> &all) {
  if (lost_beside(all, static_cast<std::size_t>(&file - all.data()))) return {};
  const bool alone = all.size() == 1;
  const auto whole = std::find_if(all.begin(), all.end(), begins_as_device);
  if (file.file_bytes() == 0 && whole != all.end()) {
    return Status::fail(-EFBIG, file.shown() + ": truncated: is empty, while " + whole->shown() +
                                    " begins as a device of a store");
  }
  if (file.file_bytes() == 0) {
    return Status::fail(-ENODATA, file.shown() +
                                      ": is empty: it was never formatted, or is being "
                                      "formatted now");
  }
  if (alone && file.file_bytes() < kDeviceAlign && !begins_as_device(file)) {
    return Status::fail(-ENODATA, file.shown() + ": is no store: has " +
                                      std::to_string(file.file_bytes()) +
                                      " bytes, and does not begin as one");
  }
  if (file.file_bytes() < kDeviceAlign) {
    return Status::fail(-EFBIG, file.shown() + ": truncated: has " +
                                    std::to_string(file.file_bytes()) +
                                    " bytes, the smallest device has " + format_size(kDeviceAlign));
  }
  return {};
}

u64 whole_stripes(u64 bytes) { return bytes / kDeviceAlign * kDeviceAlign; }

// With a size in the address an existing pool must have at least that.
Status check_address_size(const Address &address, const std::vector<DeviceFile> &files) {
  if (!address.size) return {};
  u64 total = 0;
  for (const auto &file : files) total += whole_stripes(file.file_bytes());
  const u64 step = kDeviceAlign * files.size();
  if (total >= *address.size / step * step) return {};
  return Status::fail(-EINVAL, quoted(address.text) + ": option size says " +
                                   format_size(*address.size) + ", the pool has " +
                                   format_size(total) + "; leave it out");
}

// Whether other openings hold any of the places that members and their hosts hold.
int busy_elsewhere(const Locks &locks, bool &ret) {
  for (const auto kind : {LockKind::kHost, LockKind::kMember, LockKind::kStandby}) {
    const u32 count = kLockCount[static_cast<u32>(kind)];
    if (const int err = locks.any_elsewhere(kind, 0, count, ret); err != 0 || ret) return err;
  }
  return 0;
}

// Takes the format lock and makes sure that nobody is using what is about to be overwritten.
Status lock_for_format(DeviceFile &first, Locks &locks, bool force) {
  const int err = locks.try_lock(LockKind::kFormat, 0);
  if (err == -EAGAIN) {
    first.disown();
    return Status::fail(-EBUSY,
                        first.shown() + ": is being formatted or removed by another process");
  }
  if (err != 0)
    return Status::fail(err, first.shown() + ": cannot be locked: " + std::strerror(-err));
  // Whoever held the lock before may have unlinked the file: what is locked must be what is named.
  if (!first.still_linked()) {
    return Status::fail(-EAGAIN, first.shown() + ": was removed meanwhile; try again");
  }
  if (auto s = first.refresh_size(); !s.ok()) return s;
  if (first.created() && first.file_bytes() != 0) {
    first.disown();
    return Status::fail(-EEXIST, first.shown() + ": was formatted by another process meanwhile");
  }
  bool busy = false;
  if (const int probe = busy_elsewhere(locks, busy); probe != 0) {
    return Status::fail(probe, first.shown() + ": locks cannot be read: " + std::strerror(-probe));
  }
  if (busy && !force) {
    return Status::fail(-EBUSY, first.shown() + ": is in use by running members; end them first");
  }
  return {};
}

Status check_sizes(const Address &address, std::span<const u64> sizes, std::size_t devices) {
  if (sizes.size() != devices) {
    return Status::fail(-EINVAL, quoted(address.text) + ": " + std::to_string(sizes.size()) +
                                     " sizes for " + std::to_string(devices) + " devices");
  }
  for (const u64 size : sizes) {
    if (size != 0 && size % kDeviceAlign == 0) continue;
    return Status::fail(-EINVAL, quoted(address.text) + ": a device of " + std::to_string(size) +
                                     " bytes is not a multiple of " + format_size(kDeviceAlign));
  }
  return {};
}

// Sizes when the caller names none: of the address, else those that are there.
Status sizes_for(const Address &address, const std::vector<DeviceFile> &files,
                 std::vector<u64> &ret) {
  const bool have_all = std::all_of(files.begin(), files.end(), [](const DeviceFile &file) {
    return file.file_bytes() >= kDeviceAlign;
  });
  if (address.size || !have_all) return device_sizes(address, ret);
  ret.clear();
  for (const auto &file : files) ret.push_back(whole_stripes(file.file_bytes()));
  return {};
}

}  // namespace

Status Backend::make_room(std::span<const u64> rooms, bool populate) {
  if (address_.scheme == Scheme::kDev) {  // a partition does not grow, and stays where it is
    for (std::size_t i = 0; populate && i < files_.size(); ++i) {
      if (auto s = files_[i].populate_node(); !s.ok()) return s;
    }
    return {};
  }
  for (std::size_t i = 0; i < files_.size() && i < rooms.size(); ++i) {
    DeviceFile::MapOptions options;
    options.writable = writable_;
    options.populate = populate;
    options.huge = !address_.huge ? 0 : *address_.huge ? 1 : -1;
    options.room = address_.scheme == Scheme::kDax ? 0 : rooms[i];
    options.lost = spans_[i].lost;
    files_[i].unmap();
    auto s = files_[i].map(spans_[i].bytes, options);
    if (s.err == -ENOMEM && options.room > spans_[i].bytes) {  // a limit on address space
      files_[i].unmap();
      options.room = 0;
      s = files_[i].map(spans_[i].bytes, options);
    }
    if (!s.ok()) return s;
    spans_[i].base = files_[i].base();
  }
  return {};
}

Status Backend::extend(u32 device, u64 end) {
  std::lock_guard guard(extend_mutex_);
  if (device >= files_.size()) {
    return Status::fail(-ENODEV, quoted(address_.text) + ": no device " + std::to_string(device));
  }
  return files_[device].extend(end);
}

Status Backend::grow_files(std::span<const u64> sizes) {
  if (is_device(address_.scheme)) {
    return Status::fail(-EINVAL, quoted(address_.text) + ": the size of " +
                                     (address_.scheme == Scheme::kDax ? "a dax device"
                                                                      : "a partition") +
                                     " is fixed");
  }
  for (std::size_t i = 0; i < files_.size() && i < sizes.size(); ++i) {
    auto s = files_[i].refresh_size();
    if (s.ok()) s = files_[i].reserve(sizes[i], false);
    if (s.ok()) continue;
    for (std::size_t k = 0; k <= i; ++k) files_[k].roll_back();
    return s;
  }
  for (auto &file : files_) file.keep();
  return {};
}

Status Backend::punch(u32 device, u64 begin, u64 end) { return files_[device].punch(begin, end); }

u64 Backend::file_bytes(u32 device) const { return files_[device].size_now(); }

// Before anything of a partition can be mapped. The driver says which host this is.
Status Backend::join() {
  std::vector<int> nodes;
  for (const auto &file : files_) nodes.push_back(file.fd());
  if (auto s = Membership::join(nodes, files_.front().shown(), membership_); !s.ok()) return s;
  address_.host = membership_->host();
  if (*address_.host < kMaxHosts) return {};
  return Status::fail(-ERANGE, quoted(address_.text) + ": this is host " +
                                   std::to_string(*address_.host) +
                                   " of the driver's pool; a store has hosts 0 to " +
                                   std::to_string(kMaxHosts - 1) +
                                   " only, so claim the pool with a lower --host");
}

Status Backend::regain() {
  if (membership_ == nullptr) return {};
  if (auto s = membership_->join_again(); !s.ok()) return s;
  for (const auto &file : files_) {
    auto s = file.check_node();
    if (s.ok()) continue;
    membership_->give_up();
    return s;
  }
  return {};
}

Status Backend::map_all(std::span<const u64> sizes, bool populate) {
  if (address_.scheme == Scheme::kDev) {
    if (auto s = join(); !s.ok()) return s;
  }
  DeviceFile::MapOptions options;
  options.writable = writable_;
  options.populate = populate;
  options.huge = !address_.huge ? 0 : *address_.huge ? 1 : -1;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    options.lost = files_[i].file_bytes() < sizes[i];
    if (auto s = files_[i].map(sizes[i], options); !s.ok()) return s;
    spans_.push_back({files_[i].base(), sizes[i], files_[i].shown(), options.lost});
  }
  return {};
}

Status Backend::open(const Address &address, OpenMode mode, const OpenOptions &options,
                     std::unique_ptr<Backend> &ret) {
  u32 mem_devices = 0;
  if (address.scheme == Scheme::kMem) {
    if (auto s = count_mem_devices(address, mem_devices); !s.ok()) return s;
  }
  std::unique_ptr<Backend> out(new Backend);
  out->address_ = address;
  out->writable_ = mode == OpenMode::kReadWrite;
  const auto places = places_of(address, mem_devices);
  for (const auto &place : places) {
    if (auto s = DeviceFile::open(place, out->writable_, out->files_.emplace_back()); !s.ok())
      return s;
  }
  for (const auto &file : out->files_) {
    if (auto s = check_usable(file, out->files_); !s.ok()) return s;
  }
  if (auto s = check_distinct(out->files_); !s.ok()) return s;
  if (auto s = check_address_size(address, out->files_); !s.ok()) return s;
  std::vector<u64> sizes;
  for (const auto &file : out->files_) sizes.push_back(whole_stripes(file.file_bytes()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (lost_beside(out->files_, i)) sizes[i] = bytes_of_lost(sizes, i);
  }
  if (auto s = out->map_all(sizes, options.populate); !s.ok()) return s;
  out->locks_ = std::make_unique<Locks>(out->files_.front().fd());
  ret = std::move(out);
  return {};
}

Status Backend::create(const Address &address, std::span<const u64> sizes,
                       const CreateOptions &options, std::unique_ptr<Backend> &ret) {
  const u32 mem_devices =
      address.devices.value_or(sizes.empty() ? 1 : static_cast<u32>(sizes.size()));
  const auto places = places_of(address, mem_devices);
  if (places.size() > kMaxDevices) {
    return Status::fail(
        -E2BIG, quoted(address.text) + ": at most " + std::to_string(kMaxDevices) + " devices");
  }
  if (!sizes.empty()) {
    if (auto s = check_sizes(address, sizes, places.size()); !s.ok()) return s;
  }
  std::unique_ptr<Backend> out(new Backend);
  out->address_ = address;
  out->writable_ = true;

  auto build = [&]() -> Status {
    for (const auto &place : places) {
      if (auto s = DeviceFile::open_new(place, options.reuse, out->files_.emplace_back());
          !s.ok()) {
        out->files_.pop_back();
        return s;
      }
      if (out->files_.size() > 1) continue;
      // The lock comes before anything else is made: it decides between two formats at once.
      out->locks_ = std::make_unique<Locks>(out->files_.front().fd());
      if (auto s = lock_for_format(out->files_.front(), *out->locks_, options.force); !s.ok())
        return s;
    }
    if (auto s = check_distinct(out->files_); !s.ok()) return s;
    std::vector<u64> wanted(sizes.begin(), sizes.end());
    if (wanted.empty()) {
      if (auto s = sizes_for(address, out->files_, wanted); !s.ok()) return s;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (auto s = out->files_[i].reserve(wanted[i], address.huge.value_or(true)); !s.ok())
        return s;
    }
    return out->map_all(wanted, options.populate);
  };
  if (auto s = build(); !s.ok()) {
    // The first device goes last: it holds the lock and is how a pool is found.
    for (auto file = out->files_.rbegin(); file != out->files_.rend(); ++file) file->roll_back();
    return s;
  }
  ret = std::move(out);
  return {};
}

Status Backend::remove(const Address &address, bool force) {
  if (is_device(address.scheme)) {
    return Status::fail(-EINVAL,
                        quoted(address.text) + ": a device cannot be removed; format it anew");
  }
  // All there may be of a mem: pool, so that one with a missing device can be removed too.
  auto places = places_of(address, kMaxDevices);
  std::erase_if(places, [](const Place &place) { return !place_exists(place); });
  if (places.empty()) {
    return Status::fail(-ENOENT, quoted(address.text) + ": there is nothing to remove");
  }
  DeviceFile first;
  if (auto s = DeviceFile::open(places.front(), true, first); !s.ok()) return s;
  Locks locks(first.fd());
  if (auto s = lock_for_format(first, locks, force); !s.ok()) return s;
  // Looked at again under the lock: a format may have just ended. Device 0 goes last.
  places = places_of(address, kMaxDevices);
  std::erase_if(places, [](const Place &place) { return !place_exists(place); });
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    if (const int err = unlink_place(*place); err != 0 && err != -ENOENT) {
      return Status::fail(err, place->shown() + ": cannot be removed: " + std::strerror(-err));
    }
  }
  return {};
}

bool Backend::exists(const Address &address) {
  const auto places = places_of(address, kMaxDevices);
  return std::any_of(places.begin(), places.end(), place_exists);
}

Status Backend::require_bytes(u32 device, u64 bytes) const {
  if (device >= files_.size()) {
    return Status::fail(-ENODEV, quoted(address_.text) + ": device " + std::to_string(device) +
                                     " is not among the " + std::to_string(files_.size()) +
                                     " named");
  }
  if (bytes <= spans_[device].bytes) return files_[device].check_size(bytes);
  // Not mapped: either it was short at open, or it grew since, and then a new open helps.
  auto s = files_[device].check_size(bytes);
  return s.ok() ? Status::fail(-ESTALE, spans_[device].name + ": has grown since it was opened")
                : s;
}

Status Backend::still_there() const {
  if (is_device(address_.scheme)) return {};
  for (const DeviceFile &file : files_) {
    if (file.still_linked()) continue;
    return Status::fail(-EIDRM, file.shown() + ": was removed, or the store was formatted anew "
                                               "elsewhere in its place; open it again");
  }
  return {};
}

Status Backend::recheck() const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (auto s = files_[i].check_size(spans_[i].bytes); !s.ok()) return s;
  }
  return {};
}

}  // namespace kvpool::backend
