// SPDX-License-Identifier: Apache-2.0
// Opens, reserves and maps one device. Order matters in reserve(): nothing is touched before the
// checks that can refuse, and whatever fails afterwards is undone by roll_back().
#include "backend/device_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "backend/address.hpp"
#include "backend/dax.hpp"

namespace kvpool::backend {

namespace {

// Kernel interfaces newer than the C library's headers.
constexpr int kMadvPopulateRead = 22;
constexpr int kMadvPopulateWrite = 23;
constexpr int kMadvCollapse = 25;

constexpr u64 kPageBytes = 4096;
constexpr u64 kFallocateChunk = u64{256} << 20;  // so that a signal repeats little
constexpr mode_t kFileMode = 0600;               // cached prompts belong to the user

u64 round_up(u64 value, u64 unit) { return (value + unit - 1) / unit * unit; }

std::string error_text(int err) { return std::strerror(err < 0 ? -err : err); }

std::string owner_text(const struct stat &st) {
  char text[80];
  std::snprintf(text, sizeof text, "owned by user %u, mode %04o", st.st_uid, st.st_mode & 07777u);
  return text;
}

int stat_place(const Place &place, struct stat &st) {
  return stat(place.shown().c_str(), &st) == 0 ? 0 : -errno;
}

Status explain_open(const Place &place, bool writable, int err) {
  const std::string shown = place.shown();
  struct stat st = {};
  if (err == -EACCES || err == -EPERM) {
    std::string what = shown + ": permission denied" + (writable ? " for writing" : "");
    if (stat_place(place, st) == 0) what += " (" + owner_text(st) + ")";
    return Status::fail(-EACCES, what);
  }
  if (err == -EROFS) return Status::fail(err, shown + ": the file system is read-only");
  const bool gone = err == -ENOENT || err == -ENXIO || err == -ENODEV;
  if (place.kind == PlaceKind::kNode && gone) return explain_missing_node(shown);
  if (err == -ENOENT) {
    const std::string dir = shown.substr(0, shown.rfind('/'));
    if (shown.find('/') != std::string::npos && !dir.empty() && stat(dir.c_str(), &st) != 0) {
      return Status::fail(err, shown + ": no such directory " + dir);
    }
    return Status::fail(err, shown + ": no such file");
  }
  if (err == -EMFILE || err == -ENFILE) {
    return Status::fail(err, shown + ": too many open files (ulimit -n)");
  }
  return Status::fail(err, shown + ": " + error_text(err));
}

// Before the open: opening a fifo, a tape or a watchdog by mistake has effects.
Status check_type(const Place &place, const struct stat &st) {
  const std::string shown = place.shown();
  if (place.kind == PlaceKind::kNode) {
    if (S_ISCHR(st.st_mode)) return {};
    return Status::fail(-EINVAL, shown + ": is no node of the kvpool driver");
  }
  if (place.kind == PlaceKind::kDax) {
    if (S_ISCHR(st.st_mode)) return {};
    return Status::fail(-EINVAL,
                        shown + ": is no character device" +
                            (S_ISREG(st.st_mode) ? "; for a file write file:" + shown : ""));
  }
  if (S_ISREG(st.st_mode)) return {};
  if (S_ISDIR(st.st_mode)) {
    return Status::fail(-EISDIR, shown + ": is a directory; name a file in it");
  }
  if (S_ISCHR(st.st_mode) && shown.rfind("/dev/dax", 0) == 0) {
    return Status::fail(-EINVAL, shown + ": is a dax device; write dax:" + shown + "?host=N");
  }
  return Status::fail(-EINVAL, shown + ": is not a regular file");
}

void *reserve_addresses(u64 bytes) {
  return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int open_place(const Place &place, int flags) {
  while (true) {
    const int fd =
        place.kind == PlaceKind::kShm
            ? shm_open(place.path.c_str(), flags, kFileMode)
            : ::open(place.path.c_str(), flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kFileMode);
    if (fd >= 0) return fd;
    if (errno != EINTR) return -errno;
  }
}

// What the machine could still give, in bytes; 0 when unknown.
u64 available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  u64 kib = 0;
  while (std::getline(file, line)) {
    unsigned long long value = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu", &value) == 1 ||
        std::sscanf(line.c_str(), "SwapFree: %llu", &value) == 1) {
      kib += value;
    }
  }
  return kib * 1024;
}

}  // namespace

std::string Place::shown() const { return kind == PlaceKind::kShm ? "/dev/shm" + path : path; }

int unlink_place(const Place &place) {
  const int rc =
      place.kind == PlaceKind::kShm ? shm_unlink(place.path.c_str()) : unlink(place.path.c_str());
  return rc == 0 ? 0 : -errno;
}

bool place_exists(const Place &place) {
  struct stat st = {};
  return lstat(place.shown().c_str(), &st) == 0;
}

DeviceFile::~DeviceFile() { reset(); }

DeviceFile::DeviceFile(DeviceFile &&other) noexcept { *this = std::move(other); }

DeviceFile &DeviceFile::operator=(DeviceFile &&other) noexcept {
  if (this == &other) return *this;
  reset();
  place_ = std::move(other.place_);
  fd_ = std::exchange(other.fd_, -1);
  created_ = std::exchange(other.created_, false);
  grown_ = std::exchange(other.grown_, false);
  old_bytes_ = other.old_bytes_;
  file_bytes_ = other.file_bytes_;
  granule_ = other.granule_;
  tmpfs_ = other.tmpfs_;
  hugetlbfs_ = other.hugetlbfs_;
  dev_ = other.dev_;
  ino_ = other.ino_;
  base_ = std::exchange(other.base_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  room_bytes_ = std::exchange(other.room_bytes_, 0);
  how_ = other.how_;
  partition_ = std::move(other.partition_);
  pieces_ = std::move(other.pieces_);
  mapped_by_ = other.mapped_by_;
  return *this;
}

void DeviceFile::reset() {
  unmap();
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void DeviceFile::unmap() {
  const bool inherited = mapped_by_ == 0 || mapped_by_ == getpid();
  if (base_ != nullptr && inherited) munmap(base_, room_bytes_);
  base_ = nullptr;
  mapped_bytes_ = room_bytes_ = 0;
}

Status DeviceFile::open(const Place &place, bool writable, DeviceFile &ret) {
  struct stat st = {};
  if (const int err = stat_place(place, st); err != 0) return explain_open(place, writable, err);
  if (auto s = check_type(place, st); !s.ok()) return s;
  DeviceFile out;
  out.place_ = place;
  out.fd_ = open_place(place, writable ? O_RDWR : O_RDONLY);
  if (out.fd_ < 0) return explain_open(place, writable, out.fd_);
  if (auto s = out.finish_open(); !s.ok()) return s;
  ret = std::move(out);
  return {};
}

Status DeviceFile::open_new(const Place &place, bool reuse, DeviceFile &ret) {
  if (place.kind == PlaceKind::kDax || place.kind == PlaceKind::kNode) {
    return open(place, true, ret);
  }
  // Two tries: between them somebody may remove the file that was in the way.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const int fd = open_place(place, O_RDWR | O_CREAT | O_EXCL);
    if (fd >= 0) {
      DeviceFile out;
      out.place_ = place;
      out.fd_ = fd;
      out.created_ = true;
      if (auto s = out.finish_open(); !s.ok()) {
        out.roll_back();
        return s;
      }
      ret = std::move(out);
      return {};
    }
    if (fd != -EEXIST) return explain_open(place, true, fd);
    if (!reuse) return Status::fail(-EEXIST, place.shown() + ": exists already");
    auto s = open(place, true, ret);
    if (s.err != -ENOENT) return s;
  }
  return Status::fail(-EAGAIN, place.shown() + ": is made and removed by somebody else meanwhile");
}

Status DeviceFile::finish_open() {
  struct stat st = {};
  if (fstat(fd_, &st) != 0) return Status::fail(-errno, shown() + ": " + error_text(errno));
  if (auto s = check_type(place_, st); !s.ok()) return s;
  dev_ = st.st_dev;
  ino_ = st.st_ino;
  if (place_.kind == PlaceKind::kNode) return finish_node();
  if (place_.kind == PlaceKind::kDax) {
    DaxInfo info;
    if (auto s = read_dax("/sys", st.st_rdev, info); !s.ok()) {
      return Status::fail(s.err, shown() + ": " + s.what);
    }
    file_bytes_ = info.size / info.align * info.align;
    granule_ = std::max(kPageBytes, info.align);
    return {};
  }
  struct statfs fs = {};
  if (fstatfs(fd_, &fs) != 0) return Status::fail(-errno, shown() + ": " + error_text(errno));
  tmpfs_ = static_cast<u64>(fs.f_type) == TMPFS_MAGIC;
  hugetlbfs_ = static_cast<u64>(fs.f_type) == HUGETLBFS_MAGIC;
  if (hugetlbfs_) granule_ = static_cast<u64>(fs.f_bsize);
  file_bytes_ = static_cast<u64>(st.st_size);
  old_bytes_ = file_bytes_;
  return {};
}

Status DeviceFile::finish_node() {
  if (auto s = read_partition(fd_, shown(), partition_); !s.ok()) return s;
  if (auto s = pieces_of(partition_, shown(), pieces_); !s.ok()) return s;
  file_bytes_ = pieces_.back().at + pieces_.back().bytes;
  return {};
}

Status DeviceFile::refresh_size() {
  if (fixed()) return {};
  struct stat st = {};
  if (fstat(fd_, &st) != 0) return Status::fail(-errno, shown() + ": " + error_text(errno));
  file_bytes_ = static_cast<u64>(st.st_size);
  old_bytes_ = file_bytes_;
  return {};
}

u64 DeviceFile::size_now() const {
  struct stat st = {};
  const bool known = fixed() || fstat(fd_, &st) != 0;
  return known ? file_bytes_ : static_cast<u64>(st.st_size);
}

bool DeviceFile::same_file(const DeviceFile &other) const {
  return dev_ == other.dev_ && ino_ == other.ino_;
}

bool DeviceFile::still_linked() const {
  struct stat st = {};
  return stat_place(place_, st) == 0 && st.st_dev == dev_ && st.st_ino == ino_;
}

u64 DeviceFile::alignment() const { return std::max(granule_, kDeviceAlign); }

Status DeviceFile::no_space(int err, u64 bytes) const {
  std::string what = shown() + ": cannot reserve " + format_size(bytes) + ": ";
  if (err == -ENOSPC && hugetlbfs_) {
    what += "not enough free huge pages of " + format_size(granule_) + "; see vm.nr_hugepages";
    return Status::fail(err, what);
  }
  if (err != -ENOSPC) return Status::fail(err, what + error_text(err));
  what += "no space left";
  struct statfs fs = {};
  if (fstatfs(fd_, &fs) == 0) {
    what +=
        " (" + format_size(static_cast<u64>(fs.f_bavail) * static_cast<u64>(fs.f_bsize)) + " free)";
  }
  if (place_.kind == PlaceKind::kShm) {
    what += "; enlarge /dev/shm (in a container: --shm-size) or use file: on a larger file system";
  }
  return Status::fail(err, what);
}

// Refuses early what cannot fit. A tmpfs may allow more than the machine has: filling it would wake
// the out-of-memory killer instead of failing.
Status DeviceFile::check_space(u64 bytes) const {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    return Status::fail(-EFBIG, shown() + ": " + format_size(bytes) +
                                    " is beyond the limit on file sizes (ulimit -f)");
  }
  struct stat st = {};
  struct statfs fs = {};
  if (fstat(fd_, &st) != 0 || fstatfs(fd_, &fs) != 0) {
    return Status::fail(-errno, shown() + ": " + error_text(errno));
  }
  const u64 allocated = std::min(static_cast<u64>(st.st_blocks) * 512, bytes);
  const u64 missing = bytes - allocated;
  // hugetlbfs counts only its own limit there, and 0 blocks is "no limit".
  if (!hugetlbfs_ && fs.f_blocks != 0 &&
      missing > static_cast<u64>(fs.f_bavail) * static_cast<u64>(fs.f_bsize)) {
    return no_space(-ENOSPC, bytes);
  }
  if (tmpfs_) {
    if (const u64 memory = available_memory(); memory != 0 && missing > memory) {
      return Status::fail(-ENOMEM, shown() + ": cannot reserve " + format_size(bytes) +
                                       ": the machine has " + format_size(memory) + " to give");
    }
  }
  return {};
}

// Asks for huge pages, 2 MiB at a time: this works also where the administrator left huge pages for
// shared memory off. It is a hint, and the first refusals in a row end it.
void DeviceFile::collapse(std::byte *base, u64 bytes, bool empty) const {
  constexpr int kRefusalsMax = 8;
  int refusals = 0;
  for (u64 at = 0; at + kDeviceAlign <= bytes && refusals < kRefusalsMax; at += kDeviceAlign) {
    // The kernel collapses nothing that is wholly empty; with one page in it the rest becomes
    // zeros.
    if (empty && fallocate(fd_, 0, static_cast<off_t>(at), kPageBytes) != 0) return;
    refusals = madvise(base + at, kDeviceAlign, kMadvCollapse) == 0 ? 0 : refusals + 1;
  }
}

// Fills a tmpfs file with huge pages before fallocate fills the rest with small ones: pages that
// exist as small ones would all have to be copied.
void DeviceFile::prefer_huge(u64 bytes) const {
  const u64 area_bytes = bytes + kDeviceAlign;
  void *area = reserve_addresses(area_bytes);
  if (area == MAP_FAILED) return;
  const u64 start = round_up(reinterpret_cast<u64>(area), kDeviceAlign);
  void *map = mmap(reinterpret_cast<void *>(start), bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, fd_, 0);
  if (map != MAP_FAILED) collapse(static_cast<std::byte *>(map), bytes, true);
  munmap(area, area_bytes);
}

// For file systems without fallocate: zeros into every hole, which is what allocating means there.
int DeviceFile::write_holes(u64 bytes) const {
  const std::vector<char> zeros(u64{1} << 20);
  u64 at = 0;
  while (at < bytes) {
    const off_t hole = lseek(fd_, static_cast<off_t>(at), SEEK_HOLE);
    if (hole < 0) return errno == ENXIO ? 0 : -errno;
    if (static_cast<u64>(hole) >= bytes) return 0;
    const off_t data = lseek(fd_, hole, SEEK_DATA);
    if (data < 0 && errno != ENXIO) return -errno;
    const u64 end = data < 0 ? bytes : std::min(static_cast<u64>(data), bytes);
    for (at = static_cast<u64>(hole); at < end;) {
      const ssize_t n =
          pwrite(fd_, zeros.data(), std::min<u64>(zeros.size(), end - at), static_cast<off_t>(at));
      if (n < 0 && errno != EINTR) return -errno;
      if (n == 0) return -ENOSPC;
      if (n > 0) at += static_cast<u64>(n);
    }
  }
  return 0;
}

int DeviceFile::allocate(u64 bytes) const {
  for (u64 at = 0; at < bytes;) {
    const u64 part = std::min(kFallocateChunk, bytes - at);
    if (fallocate(fd_, 0, static_cast<off_t>(at), static_cast<off_t>(part)) == 0) {
      at += part;
      continue;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) return write_holes(bytes);
    if (errno != EINTR) return -errno;
  }
  return 0;
}

Status DeviceFile::reserve(u64 bytes, bool huge) {
  if (bytes == 0 || bytes % kPageBytes != 0 || bytes > PoolOffset::kByteMask) {
    return Status::fail(-EINVAL, shown() + ": a device of " + std::to_string(bytes) +
                                     " bytes is not a multiple of 4 KiB within 64 PiB");
  }
  if (fixed()) {
    if (bytes <= file_bytes_) return {};
    return Status::fail(-ENOSPC, shown() + ": has " + format_size(file_bytes_) + ", " +
                                     format_size(bytes) + " are wanted");
  }
  bytes = round_up(bytes, granule_);
  if (auto s = check_space(bytes); !s.ok()) return s;
  if (bytes > file_bytes_) {
    if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return no_space(-errno, bytes);
    grown_ = true;
    file_bytes_ = bytes;
  }
  if (tmpfs_ && huge) prefer_huge(bytes);
  if (const int err = allocate(bytes); err != 0) return no_space(err, bytes);
  return {};
}

void DeviceFile::roll_back() {
  if (fd_ < 0) return;
  if (created_) {
    // By then another file may stand at the path, and that is not ours. Without an inode number the
    // very first look at the file failed, just after it was made.
    if (ino_ == 0 || still_linked()) unlink_place(place_);
  } else if (grown_ && ftruncate(fd_, static_cast<off_t>(old_bytes_)) == 0) {
    file_bytes_ = old_bytes_;
  }
  created_ = false;
  grown_ = false;
}

// At addresses that were kept free.
Status DeviceFile::map_at(std::byte *start, u64 bytes, const MapOptions &options) {
  if (place_.kind == PlaceKind::kNode) {
    mapped_by_ = getpid();
    return map_pieces(fd_, shown(), partition_, pieces_, start, options.writable,
                      options.populate);
  }
  const int protection = options.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED, fd_, 0) != MAP_FAILED) return {};
  const int err = -errno;
  return Status::fail(err,
                      shown() + ": cannot map " + format_size(bytes) + ": " + error_text(err));
}

Status DeviceFile::map(u64 bytes, const MapOptions &options) {
  const u64 align = alignment();
  const u64 room = round_up(std::max(bytes, options.room), align);
  const u64 area_bytes = room + align;
  void *area = reserve_addresses(area_bytes);
  if (area == MAP_FAILED) {
    return Status::fail(-errno, shown() + ": no room for a mapping of " + format_size(room) +
                                    ": " + error_text(errno));
  }
  const u64 first = reinterpret_cast<u64>(area);
  const u64 start = round_up(first, align);
  if (auto s = map_at(reinterpret_cast<std::byte *>(start), bytes, options); !s.ok()) {
    munmap(area, area_bytes);
    return s;
  }
  if (start > first) munmap(area, start - first);
  munmap(reinterpret_cast<void *>(start + room), first + area_bytes - start - room);
  base_ = reinterpret_cast<std::byte *>(start);
  mapped_bytes_ = bytes;
  room_bytes_ = room;
  how_ = options;
  if (place_.kind == PlaceKind::kNode) return {};
  if (options.huge > 0 && tmpfs_ && !options.lost) collapse(base_, bytes, false);
  if (options.lost) return {};
  // Shorter since it was opened: say so before a touch does.
  if (auto s = check_size(bytes); !s.ok()) return s;
  return settle_mapping(base_, bytes);
}

// A pool in a core dump would be terabytes of other people's prompts. These are hints; a kernel
// that does not know one serves the pool all the same.
Status DeviceFile::settle_mapping(std::byte *base, u64 bytes) const {
  madvise(base, bytes, MADV_DONTDUMP);
  madvise(base, bytes, how_.huge < 0 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (!how_.populate) return {};
  const bool write = how_.writable && (tmpfs_ || hugetlbfs_);  // else every page becomes dirty
  if (madvise(base, bytes, write ? kMadvPopulateWrite : kMadvPopulateRead) != 0 &&
      errno != EINVAL) {
    return Status::fail(
        -errno, shown() + ": cannot fault in " + format_size(bytes) + ": " + error_text(errno));
  }
  return {};
}

Status DeviceFile::populate_node() const {
  return populate_pieces(fd_, shown(), pieces_, base_);
}

Status DeviceFile::check_node() const {
  return check_pieces(fd_, shown(), partition_, pieces_, base_, how_.populate);
}

Status DeviceFile::extend(u64 end) {
  if (end <= mapped_bytes_) return {};
  if (auto s = check_size(end); !s.ok()) return s;
  const u64 align = alignment();
  if (mapped_bytes_ % align != 0 || end > room_bytes_) {
    return Status::fail(-EFBIG, shown() + ": has grown beyond the address space kept for it; open "
                                          "it again");
  }
  struct stat st = {};
  if (fstat(fd_, &st) != 0) return Status::fail(-errno, shown() + ": " + error_text(errno));
  const u64 until = std::min(static_cast<u64>(st.st_size) / align * align, room_bytes_);
  if (until < end) return Status::fail(-EFBIG, shown() + ": has grown by no whole page of it");
  const u64 more = until - mapped_bytes_;
  const int protection = how_.writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void *map = mmap(base_ + mapped_bytes_, more, protection, MAP_SHARED | MAP_FIXED, fd_,
                   static_cast<off_t>(mapped_bytes_));
  if (map == MAP_FAILED) {
    return Status::fail(-errno, shown() + ": cannot map " + format_size(more) + " more: " +
                                    error_text(errno));
  }
  mapped_bytes_ = until;
  return settle_mapping(static_cast<std::byte *>(map), more);
}

Status DeviceFile::punch(u64 begin, u64 end) {
  constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (fallocate(fd_, kHole, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) == 0) {
    return {};
  }
  return Status::fail(-errno, shown() + ": cannot give " + format_size(end - begin) +
                                  " back: " + error_text(errno));
}

Status DeviceFile::check_size(u64 bytes) const {
  u64 now = file_bytes_;
  if (!fixed()) {
    struct stat st = {};
    if (fstat(fd_, &st) != 0) return Status::fail(-errno, shown() + ": " + error_text(errno));
    now = static_cast<u64>(st.st_size);
  }
  if (now >= bytes) return {};
  return Status::fail(-EFBIG, shown() + ": truncated: has " + std::to_string(now) +
                                  " bytes, needs " + std::to_string(bytes));
}

}  // namespace kvpool::backend
