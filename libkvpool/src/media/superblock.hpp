// SPDX-License-Identifier: Apache-2.0
// Reading a store that exists, line by line through an interface, trusting no field: is this a
// store, all of it, of one life, in a format we know? Owns no memory.
#pragma once

#include <string>

#include "media/layout.hpp"

namespace kvpool::media {

// Lines of a store, from mapped memory, a file, or a test. What a device holds is whole lines.
class LineReader {
public:
  virtual ~LineReader() = default;
  virtual u32 device_count() const = 0;
  virtual u64 device_bytes(u32 device) const = 0;
  // For messages: where the device is, empty if that is not known, and the bytes its file has, of
  // which only whole stripes can be read.
  virtual std::string device_name(u32) const { return {}; }
  virtual u64 device_file_bytes(u32 device) const { return device_bytes(device); }
  // False: cannot be read (poison, or past the end of the device); `ret_line` is untouched.
  virtual bool read_line(PoolOffset at, Line &ret_line) = 0;

  bool inside(PoolOffset at) const {
    return at.device() < device_count() && at.byte() % kLineBytes == 0 &&
           at.byte() + kLineBytes <= device_bytes(at.device());
  }
};

// Over memory that is mapped in this process. Loads are plain: whoever needs them fresh flushes
// first.
class MappedReader final : public LineReader {
public:
  struct Device {
    const void *base = nullptr;
    u64 bytes = 0;
    const char *name = "";  // for messages, as of LineReader
    u64 file_bytes = 0;     // 0: `bytes`
  };
  MappedReader(const Device *devices, u32 count);
  u32 device_count() const override { return count_; }
  u64 device_bytes(u32 device) const override { return device_[device].bytes; }
  std::string device_name(u32 device) const override { return device_[device].name; }
  u64 device_file_bytes(u32 device) const override {
    const Device &d = device_[device];
    return d.file_bytes != 0 ? d.file_bytes : d.bytes;
  }
  bool read_line(PoolOffset at, Line &ret_line) override;

private:
  Device device_[kMaxDevices] = {};
  u32 count_;
};

// Whether nothing of the device can be read, as far as two lines tell: a single one that went bad
// is no lost device (proto 14).
bool device_unreadable(LineReader &reader, u32 device);

struct SuperblockRead {
  Geometry geometry;
  bool copy_intact[2];  // identity and both geometry lines of that copy
  bool copies_differ;
};

inline constexpr u32 kKnownIncompat = 0;
inline constexpr u32 kKnownRoCompat = 0;

// Whether a library that knows only those features may write this store: 0, or -EPROTONOSUPPORT
// with a sentence.
int may_write(const Geometry &geometry, std::string *why);

// Results, with a sentence in `why` (may be null) that names the thing:
//   -ENODATA          no store: never formatted, or formatting was not finished
//   -EPROTONOSUPPORT  a newer format, or a feature this library does not know
//   -ENODEV           the store has another number of devices
//   -EXDEV            a device of another store
//   -ESTALE           a device left over from a former life of this store
//   -EINVAL           devices in the wrong order
//   -EUCLEAN          damaged, or a device shorter than when it was formatted
int read_superblock(LineReader &reader, SuperblockRead &ret, std::string *why);

// The same, where formatting may still be under way.
int read_superblock_any_state(LineReader &reader, SuperblockRead &ret, std::string *why);

// ---- a store as far as its metadata can be read ----

struct StoreView {
  SuperblockRead superblock;
  ClaimLine claim[kMaxStandbys];      // each slot's better copy
  bool claim_readable[kMaxStandbys];
  bool active_known;                  // some claim names an active area
  bool area_known;                    // and the regions in it are sound
  u32 active_slot;
  RegionTable regions;

  const Geometry &geometry() const { return superblock.geometry; }
  // Only with active_known.
  const ClaimLine &active() const { return claim[active_slot]; }
  u32 epoch() const { return active().active; }
  PoolOffset area() const { return geometry().area_at(active_slot, active().area); }
};

// Of two copies of a claim line the one that counts (proto 7).
constexpr bool better_claim(const ClaimLine &a, const ClaimLine &b) {
  return a.claimed != b.claimed ? a.claimed > b.claimed : a.active > b.active;
}

// Reads claims and the table of regions of the active area. `superblock` must have been read. 0, or
// -EUCLEAN with a sentence: no active claim can be read, or its regions are damaged (then the
// claims are still filled in).
int read_view(LineReader &reader, const SuperblockRead &superblock, StoreView &ret_view,
              std::string *why);

}  // namespace kvpool::media
