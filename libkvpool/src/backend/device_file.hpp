// SPDX-License-Identifier: Apache-2.0
// One device of a pool: an open file, shared memory object or dax device, its reserved space and
// its mapping. Owns the descriptor (an open of its own, so that its locks are its own) and the
// mapping.
//
// A file that somebody truncates while it is mapped gives SIGBUS on the next touch and nothing in
// user space can prevent that: sizes are checked at open and again after mapping, and by
// check_size().
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>

#include "arch/types.hpp"
#include "backend/driver.hpp"
#include "backend/status.hpp"

namespace kvpool::backend {

enum class PlaceKind { kShm, kFile, kDax, kNode };  // the last: a partition of the driver

// Where a device is: `path` is what shm_open or open takes.
struct Place {
  PlaceKind kind = PlaceKind::kFile;
  std::string path;

  std::string shown() const;  // the path in the file system, for messages
};

class DeviceFile {
public:
  DeviceFile() = default;
  ~DeviceFile();
  DeviceFile(DeviceFile &&other) noexcept;
  DeviceFile &operator=(DeviceFile &&other) noexcept;

  // Opens what exists. -ENOENT, -EACCES, -EROFS, -EINVAL for what is no file of its kind.
  static Status open(const Place &place, bool writable, DeviceFile &ret);

  // Opens for a new pool: makes the file (mode 0600), or opens an existing one if `reuse`, else
  // -EEXIST. The size is left as it is.
  static Status open_new(const Place &place, bool reuse, DeviceFile &ret);

  // Makes the file at least `bytes` long, with every block of it allocated: -ENOSPC, -EDQUOT,
  // -ENOMEM or -EFBIG now instead of SIGBUS later. Existing content stays. `huge`: on tmpfs, in
  // huge pages where the kernel finds any.
  Status reserve(u64 bytes, bool huge);

  struct MapOptions {
    bool writable = false;
    bool populate = false;  // fault all pages in now
    int huge = 0;           // -1: no huge pages; 0: advised; 1: advised and collapsed (tmpfs)
    bool lost = false;      // the file is shorter: whoever touches what is missing faults
    u64 room = 0;           // address space to keep for a file that grows, if more than `bytes`
  };
  // Maps the first `bytes`, aligned to 2 MiB or what the device asks for. A node is mapped whole,
  // and by members of its partition only (Membership).
  Status map(u64 bytes, const MapOptions &options);

  // Maps on to at least `end`, as far as the file reaches, within the room of map(). -EFBIG.
  Status extend(u64 end);

  // Lets the mapping go; the file stays open.
  void unmap();

  // Makes all entries of a node's page table now.
  Status populate_node() const;

  // Proves place and type of a node's mapping once more, after a membership that began anew.
  Status check_node() const;

  // Makes [begin, end) a hole of the file: whole pages.
  Status punch(u64 begin, u64 end);

  // The size now, against `bytes`: -EFBIG when the file is shorter.
  Status check_size(u64 bytes) const;

  // Undoes open_new and reserve: unlinks a file they made, cuts one they made longer.
  void roll_back();
  // What open_new and reserve did stays, whatever is rolled back later.
  void keep() { created_ = grown_ = false; }

  // Reads the size again, once locks make it certain that nobody else is making this file.
  Status refresh_size();

  // Somebody else took the file between its making and its locking: it is no longer ours to remove.
  void disown() { created_ = false; }

  // Whether the path still leads to the file that is open.
  bool still_linked() const;

  int fd() const { return fd_; }
  const Place &place() const { return place_; }
  bool created() const { return created_; }
  u64 size_now() const;                           // of the file
  u64 file_bytes() const { return file_bytes_; }  // at open, or since reserve
  std::byte *base() const { return base_; }
  u64 mapped_bytes() const { return mapped_bytes_; }
  bool same_file(const DeviceFile &other) const;
  std::string shown() const { return place_.shown(); }

private:
  Status finish_open();
  Status finish_node();
  Status map_at(std::byte *start, u64 bytes, const MapOptions &options);
  // Of a size that the file system does not know, and nobody changes.
  bool fixed() const { return place_.kind == PlaceKind::kDax || place_.kind == PlaceKind::kNode; }
  Status check_space(u64 bytes) const;
  Status settle_mapping(std::byte *base, u64 bytes) const;
  Status no_space(int err, u64 bytes) const;
  void collapse(std::byte *base, u64 bytes, bool empty) const;
  void prefer_huge(u64 bytes) const;
  int allocate(u64 bytes) const;
  int write_holes(u64 bytes) const;
  u64 alignment() const;
  void reset();

  Place place_;
  int fd_ = -1;
  bool created_ = false;
  bool grown_ = false;
  u64 old_bytes_ = 0;
  u64 file_bytes_ = 0;
  u64 granule_ = 4096;  // what lengths and addresses of a mapping are multiples of
  bool tmpfs_ = false;
  bool hugetlbfs_ = false;
  dev_t dev_ = 0;
  ino_t ino_ = 0;
  std::byte *base_ = nullptr;
  u64 mapped_bytes_ = 0;
  u64 room_bytes_ = 0;  // address space from base_ on that is ours
  MapOptions how_;
  Partition partition_;  // of a node
  std::vector<Piece> pieces_;
  pid_t mapped_by_ = 0;  // a node's mappings are not there in a forked child
};

// Unlinks what `place` names. 0, or -errno.
int unlink_place(const Place &place);

// Whether `place` exists, without opening it.
bool place_exists(const Place &place);

}  // namespace kvpool::backend
