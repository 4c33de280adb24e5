// SPDX-License-Identifier: Apache-2.0
// Judging the superblock of a store that exists.
#include "media/superblock.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "media/seal.hpp"

namespace kvpool::media {
namespace {

using ull = unsigned long long;

__attribute__((format(printf, 3, 4))) int fail(std::string *why, int err, const char *text, ...) {
  if (why != nullptr) {
    char buffer[512];  // a path may stand in it
    va_list args;
    va_start(args, text);
    std::vsnprintf(buffer, sizeof(buffer), text, args);
    va_end(args);
    *why = buffer;
  }
  return err;
}

constexpr int kRereads = 8;  // a line stored in pieces is whole again after a few looks (A1)

struct IdentityRead {
  bool readable = false;
  bool intact = false;
  bool blank = false;  // all zeros: never formatted
  Identity id{};
};

IdentityRead read_identity(LineReader &reader, PoolOffset at) {
  IdentityRead read;
  Line line{};
  for (int i = 0; i < kRereads && !read.intact; ++i) {
    read.readable = reader.inside(at) && reader.read_line(at, line);
    if (!read.readable) break;
    read.id = from_line<Identity>(line);
    read.intact = read.id.magic == kMagic && Sealer::identity_intact(line);
  }
  read.blank = read.readable && line == Line{};
  return read;
}

template <class T>
bool read_sealed(LineReader &reader, const Sealer &sealer, PoolOffset at, u32 epoch, T &ret) {
  Line line{};
  for (int i = 0; i < kRereads; ++i) {
    if (!reader.inside(at) || !reader.read_line(at, line)) return false;
    if (sealer.intact(line, at, epoch)) {
      std::memcpy(&ret, &line, sizeof(ret));
      return true;
    }
  }
  return false;
}

PoolOffset copy_at(u32 copy, u32 device_count) {
  if (copy == 0) return PoolOffset(0, 0);
  return device_count >= 2 ? PoolOffset(1, 0) : PoolOffset(0, kSecondCopyByte);
}

int judge_version(const Identity &id, std::string *why) {
  if (id.version != kFormatVersion) {
    return fail(why, -EPROTONOSUPPORT, "format version %u; this library knows version %u",
                id.version, kFormatVersion);
  }
  if ((id.incompat & ~kKnownIncompat) != 0) {
    return fail(why, -EPROTONOSUPPORT, "needs features 0x%x that this library does not know",
                id.incompat & ~kKnownIncompat);
  }
  return 0;
}

int no_identity(const IdentityRead copies[2], std::string *why) {
  if (!copies[0].readable && !copies[1].readable) {
    return fail(why, -EUCLEAN, "neither copy of the superblock can be read");
  }
  if (copies[0].blank || copies[1].blank) {
    if (copies[0].blank != copies[1].blank && copies[0].readable && copies[1].readable) {
      return fail(why, -EUCLEAN, "one copy of the superblock is blank, the other damaged");
    }
    return fail(why, -ENODATA, "no kvpool store here: it was never formatted");
  }
  for (u32 copy = 0; copy < 2; ++copy) {
    if (copies[copy].readable && copies[copy].id.magic == kMagic) {
      return fail(why, -EUCLEAN, "both copies of the superblock are damaged");
    }
  }
  return fail(why, -ENODATA, "no kvpool store here: other data stands where its superblock would");
}

// "device 1 (/pool/b)": its number in the store, and where it is.
std::string shown(const LineReader &reader, u32 d) {
  const std::string name = reader.device_name(d);
  return "device " + std::to_string(d) + (name.empty() ? "" : " (" + name + ")");
}

// Whether device `d` is the one that the chosen identity expects.
int judge_device(LineReader &reader, const Identity &chosen, u32 d, u64 &ret_bytes,
                 std::string *why) {
  const IdentityRead read = read_identity(reader, PoolOffset(d, 0));
  if (!read.intact) {
    if (d <= 1 && chosen.device_index <= 1 && chosen.device_index != d) {
      // The other control device's copy stands for it. Of one that is lost the size is not known.
      ret_bytes = std::max(reader.device_bytes(d), chosen.device_bytes);
      return 0;
    }
    if (d > 1 &&
        device_unreadable(reader, d)) {  // lost (proto 14): which one it was nobody can say
      ret_bytes = std::max(reader.device_bytes(d), chosen.device_bytes);
      return 0;
    }
    if (d == chosen.device_index) {  // one device, whose second copy was chosen
      ret_bytes = chosen.device_bytes;
    } else {
      return fail(why, -EUCLEAN, "%s: its identity line is %s", shown(reader, d).c_str(),
                  read.blank ? "blank" : "damaged");
    }
  } else {
    if (std::memcmp(read.id.uuid, chosen.uuid, sizeof(chosen.uuid)) != 0) {
      return fail(why, -EXDEV, "%s belongs to another store", shown(reader, d).c_str());
    }
    if (read.id.nonce != chosen.nonce) {
      return fail(why, -ESTALE, "%s is left over from another life of this store",
                  shown(reader, d).c_str());
    }
    if (read.id.device_index != d) {
      return fail(why, -EINVAL, "devices in the wrong order: %s is device %u of the store",
                  shown(reader, d).c_str(), read.id.device_index);
    }
    ret_bytes = read.id.device_bytes;
  }
  if (reader.device_bytes(d) < ret_bytes) {
    return fail(why, -EUCLEAN, "%s is truncated: %llu bytes of %llu", shown(reader, d).c_str(),
                static_cast<ull>(reader.device_file_bytes(d)), static_cast<ull>(ret_bytes));
  }
  return 0;
}

}  // namespace

bool device_unreadable(LineReader &reader, u32 device) {
  Line line{};
  const PoolOffset first(device, 0), last(device, kPageBytes - kLineBytes);
  return !reader.inside(last) || (!reader.read_line(first, line) && !reader.read_line(last, line));
}

MappedReader::MappedReader(const Device *devices, u32 count)
    : count_(count < kMaxDevices ? count : kMaxDevices) {
  for (u32 d = 0; d < count_; ++d) device_[d] = devices[d];
}

bool MappedReader::read_line(PoolOffset at, Line &ret_line) {
  if (!inside(at)) return false;
  std::memcpy(&ret_line, static_cast<const char *>(device_[at.device()].base) + at.byte(),
              sizeof(ret_line));
  return true;
}

int may_write(const Geometry &geometry, std::string *why) {
  const u32 unknown = geometry.ro_compat & ~kKnownRoCompat;
  if (unknown == 0) return 0;
  return fail(why, -EPROTONOSUPPORT,
              "writing it needs features 0x%x that this library does not know; it can be opened "
              "read-only",
              unknown);
}

int read_superblock_any_state(LineReader &reader, SuperblockRead &ret, std::string *why) {
  if (why != nullptr) why->clear();
  if (reader.device_count() == 0 || reader.device_count() > kMaxDevices) {
    return fail(why, -EINVAL, "a store has 1 to %u devices", kMaxDevices);
  }
  const u32 count = reader.device_count();
  const IdentityRead copies[2] = {read_identity(reader, copy_at(0, count)),
                                  read_identity(reader, copy_at(1, count))};
  if (!copies[0].intact && !copies[1].intact) return no_identity(copies, why);
  const Identity &chosen = copies[copies[0].intact ? 0 : 1].id;
  if (int err = judge_version(chosen, why); err != 0) return err;
  if (chosen.device_count != count) {
    return fail(why, -ENODEV, "the store has %u device%s, %u given", chosen.device_count,
                chosen.device_count == 1 ? "" : "s", count);
  }
  u64 device_bytes[kMaxDevices] = {};
  for (u32 d = 0; d < count; ++d) {
    if (int err = judge_device(reader, chosen, d, device_bytes[d], why); err != 0) return err;
  }
  SuperblockRead read{};
  const Sealer sealer(chosen);
  int err = -EUCLEAN;
  for (u32 copy = 2; copy-- > 0;) {  // copy 0 last, so that it wins
    GeometryA a{};
    GeometryB b{};
    const PoolOffset at = copy_at(copy, count);
    if (!copies[copy].intact || copies[copy].id.nonce != chosen.nonce) continue;
    if (!read_sealed(reader, sealer, at + kLineBytes, 0, a)) continue;
    if (!read_sealed(reader, sealer, at + 2 * kLineBytes, 0, b)) continue;
    Geometry geometry{};
    err = decode_geometry(copies[copy].id, a, b, device_bytes, geometry, why);
    if (err != 0) continue;
    read.copies_differ = read.copy_intact[1] && !(geometry == read.geometry);
    read.copy_intact[copy] = true;
    read.geometry = geometry;
  }
  if (read.copy_intact[0] || read.copy_intact[1]) {
    ret = read;
    return 0;
  }
  if (chosen.state == static_cast<u8>(StoreState::kFormatting)) {
    return fail(why, -ENODATA, "formatting was not finished: format it anew");
  }
  if (why != nullptr && why->empty()) *why = "superblock: both copies of its geometry are damaged";
  return err;
}

int read_superblock(LineReader &reader, SuperblockRead &ret, std::string *why) {
  SuperblockRead read{};
  if (int err = read_superblock_any_state(reader, read, why); err != 0) return err;
  if (read.geometry.state != StoreState::kReady) {
    return fail(why, -ENODATA, "formatting was not finished: format it anew");
  }
  ret = read;
  return 0;
}

int read_view(LineReader &reader, const SuperblockRead &superblock, StoreView &ret_view,
              std::string *why) {
  StoreView view{};
  view.superblock = superblock;
  const Geometry &g = view.superblock.geometry;
  const Sealer sealer(g.uuid, g.nonce);
  u32 highest = 0;
  for (u32 slot = 0; slot < g.standby_count; ++slot) {
    for (u32 copy = 0; copy < 2; ++copy) {
      ClaimLine claim{};
      if (!read_sealed(reader, sealer, g.claim_at(copy, slot), 0, claim)) continue;
      if (!view.claim_readable[slot] || better_claim(claim, view.claim[slot])) {
        view.claim[slot] = claim;
      }
      view.claim_readable[slot] = true;
    }
    const ClaimLine &claim = view.claim[slot];
    const bool usable = claim.area < 2 && claim.index_groups <= g.index_groups_max;
    if (view.claim_readable[slot] && usable && claim.active > highest) {
      highest = claim.active;
      view.active_slot = slot;
    }
  }
  view.active_known = highest != 0;
  Geometry &known = view.superblock.geometry;
  if (view.active_known) known.control = known.control_before = view.active().active_control;
  ret_view = view;
  if (!view.active_known) return fail(why, -EUCLEAN, "no claim line names an active area");
  Line lines[kRegionTableLines];
  for (u32 i = 0; i < kRegionTableLines; ++i) {
    const PoolOffset at = g.region_line(view.area(), i);
    if (!read_sealed(reader, sealer, at, view.epoch(), lines[i])) {
      return fail(why, -EUCLEAN, "line %u of the region table is damaged", i);
    }
  }
  if (int err = decode_regions(lines, g, view.regions, why); err != 0) return err;
  for (u32 d = 0; d < g.device_count; ++d) {
    const u64 end = view.regions.places_end(d, true);
    if (end <= reader.device_bytes(d)) continue;
    return fail(why, -EUCLEAN, "%s is truncated: %llu bytes, its regions need %llu",
                shown(reader, d).c_str(), static_cast<ull>(reader.device_file_bytes(d)),
                static_cast<ull>(end));
  }
  view.area_known = true;
  ret_view = view;
  return 0;
}

}  // namespace kvpool::media
