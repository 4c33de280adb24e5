// SPDX-License-Identifier: Apache-2.0
// Where everything of a store lies. Geometry is the decoded superblock, RegionTable the decoded
// table at the head of an area; both are plain values without heap, so that templates over any
// memory use them. plan_layout() chooses the numbers of a new store; nothing here does I/O.
//
// A device, from byte 0: [superblock copy, or its identity line] [lines and rings of hosts and
// members, control devices only] [metadata areas, control devices only] [check strips] [stripes]
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "media/classes.hpp"
#include "media/format.hpp"
#include "media/index_hash.hpp"

namespace kvpool::media {

inline constexpr u64 kPageBytes = 4096;
inline constexpr u64 kStripBytesPerStripe = kStripLinesPerStripe * kLineBytes;
inline constexpr u64 kStripLineCovers = kStripeBytes / kStripLinesPerStripe;
inline constexpr u32 kClaimFirstLine = 8;         // in the superblock's page
inline constexpr u64 kSecondCopyByte = 8192;      // where one device holds both copies
inline constexpr u32 kRegionTableLines = kMaxRegions * kRegionLines;
inline constexpr u32 kExtentStripesMax = 32;
inline constexpr u64 kBigDeviceBytes = u64{256} << 20;  // stripes are 2 MiB aligned from here on
inline constexpr u32 kNoRegion = ~u32{0};

// ---- regions ------------------------------------------------------------------------------------

// Stripes are dealt to the places in turn: stripe s of the region lies on place s % place_count, as
// its stripe number s / place_count.
struct Region {
  u32 first_extent;
  u32 extent_count;
  u32 place_count;
  u8 device[kMaxDevices];
  u32 data_page[kMaxDevices];
  u32 strip_page[kMaxDevices];

  constexpr u32 end_extent() const { return first_extent + extent_count; }
  friend bool operator==(const Region &, const Region &) = default;
};

// Addresses. A pool address counts bytes: extent * extent_bytes + byte in the extent.
struct RegionTable {
  u32 count;
  u32 extent_stripes;
  u32 retired;  // of the last extents: they keep their numbers and map words, nothing refers to
                // them
  std::array<Region, kMaxRegions> region;

  constexpr u64 extent_bytes() const { return extent_stripes * kStripeBytes; }
  constexpr u32 extent_count() const { return count == 0 ? 0 : region[count - 1].end_extent(); }
  constexpr u32 extents_in_use() const { return extent_count() - retired; }
  constexpr u64 payload_bytes() const { return extents_in_use() * extent_bytes(); }

  constexpr u64 address(u32 extent, u64 byte_in_extent) const {
    return extent * extent_bytes() + byte_in_extent;
  }
  constexpr u32 extent_of(u64 address) const {
    return static_cast<u32>(address / extent_bytes());
  }
  constexpr u64 byte_of(u64 address) const { return address % extent_bytes(); }

  // kNoRegion: no such extent in use.
  constexpr u32 region_of(u32 extent) const {
    if (extent >= extents_in_use()) return kNoRegion;
    for (u32 r = 0; r < count; ++r) {
      if (extent - region[r].first_extent < region[r].extent_count) return r;
    }
    return kNoRegion;
  }
  // Whether extents [first, first + n) exist and lie in one region, as those of a run must.
  constexpr bool one_region(u32 first, u64 n) const {
    const u32 r = region_of(first);
    return r != kNoRegion && n != 0 &&
           n <= std::min(region[r].end_extent(), extents_in_use()) - first;
  }
  constexpr bool holds(u64 address, u64 bytes) const {
    if (bytes == 0 || address >= payload_bytes()) return false;
    if (bytes > payload_bytes() - address) return false;
    const u64 extents = (byte_of(address) + bytes - 1) / extent_bytes() + 1;
    return one_region(extent_of(address), extents);
  }

  // `byte` may reach past the extent into those that follow it in the region (runs). What is asked
  // for must exist: kNoOffset else.
  constexpr PoolOffset data_at(u32 extent, u64 byte) const {
    const u32 r = region_of(extent);
    if (r == kNoRegion) return kNoOffset;
    const Spot spot = find(region[r], extent, byte / kStripeBytes);
    return PoolOffset(region[r].device[spot.place],
                      region[r].data_page[spot.place] * kPageBytes + spot.row * kStripeBytes +
                          byte % kStripeBytes);
  }
  constexpr PoolOffset data_at(u64 address) const {
    return data_at(extent_of(address), byte_of(address));
  }
  constexpr PoolOffset strip_line_at(u64 address) const {
    return strip_line(extent_of(address), byte_of(address) / kStripLineCovers);
  }
  // Devices that the bytes from `address` on lie on, a bit each; those in use only.
  constexpr u32 devices_of(u64 address, u64 bytes) const {
    u32 devices = 0;
    for (u64 at = address; at < address + bytes; at += contiguous_bytes(at)) {
      const PoolOffset place = data_at(at);
      if (place != kNoOffset) devices |= 1u << place.device();
    }
    return devices;
  }
  // Bytes from `address` on that lie on one device without a break.
  static constexpr u64 contiguous_bytes(u64 address) {
    return kStripeBytes - address % kStripeBytes;
  }

  // First byte of the device behind what its places use; all of them, or those of extents in use.
  constexpr u64 places_end(u32 device, bool in_use) const {
    u64 end = 0;
    for (u32 r = 0; r < count; ++r) {
      const Region &of = region[r];
      const u32 last = in_use ? extents_in_use() : of.end_extent();
      if (last <= of.first_extent) continue;
      const u32 extents = std::min(last, of.end_extent()) - of.first_extent;
      for (u32 k = 0; k < of.place_count; ++k) {
        const u64 rows = rows_of(of, extents, k);
        if (of.device[k] != device || rows == 0) continue;
        end = std::max({end, of.data_page[k] * kPageBytes + rows * kStripeBytes,
                        of.strip_page[k] * kPageBytes + rows * kStripBytesPerStripe});
      }
    }
    return end;
  }
  // Stripes that the first `extents` of a region have on its k-th place.
  constexpr u64 rows_of(const Region &in, u32 extents, u32 k) const {
    const u64 stripes = u64{extents} * extent_stripes;
    return stripes > k ? (stripes - k - 1) / in.place_count + 1 : 0;
  }

  // The check line of the 64 KiB unit number `unit` of the extent, or of those behind it.
  constexpr PoolOffset strip_line(u32 extent, u64 unit) const {
    const u32 r = region_of(extent);
    if (r == kNoRegion) return kNoOffset;
    const Spot spot = find(region[r], extent, unit / kStripLinesPerStripe);
    return PoolOffset(region[r].device[spot.place],
                      region[r].strip_page[spot.place] * kPageBytes +
                          spot.row * kStripBytesPerStripe +
                          unit % kStripLinesPerStripe * kLineBytes);
  }

  friend bool operator==(const RegionTable &, const RegionTable &) = default;

private:
  struct Spot {
    u32 place;
    u64 row;
  };
  constexpr Spot find(const Region &in, u32 extent, u64 stripe) const {
    const u64 s = u64{extent - in.first_extent} * extent_stripes + stripe;
    return {static_cast<u32>(s % in.place_count), s / in.place_count};
  }
};

// Where the check line of a block's segment stands: in the strip it is that of the segment-th 64
// KiB unit of the device that starts inside the block, so that no two blocks share one; else behind
// the payload.
constexpr PoolOffset check_line_at(const RegionTable &regions, const BlockShape &shape, u64 address,
                                   u64 segment) {
  if (!shape.checks_in_strip()) {
    return regions.data_at(address + (shape.payload_lines() + segment) * kLineBytes);
  }
  const u64 unit = (regions.byte_of(address) + kStripLineCovers - 1) / kStripLineCovers + segment;
  return regions.strip_line(regions.extent_of(address), unit);
}

// ---- geometry -----------------------------------------------------------------------------------

// The superblock, decoded and checked (decode_geometry) or planned (plan_layout). Field names are
// those of format.hpp.
struct Geometry {
  u8 uuid[16];
  u64 nonce;
  u32 incompat, ro_compat, compat;
  StoreState state;
  u8 device_count;
  u64 device_bytes[kMaxDevices];

  u32 lease_ms, delta_us, grace_us;
  u8 host_count, members_per_host, standby_count, width;
  u16 namespace_lines, request_lines, response_slots;
  u8 control_devices;
  u32 min_block_bytes, extent_stripes;
  u64 index_groups, index_groups_max;

  u64 area_bytes;
  u64 area_offset[2];
  u64 extent_lines;
  u8 standby_host[kMaxStandbys];

  // Not of the superblock: how often lines and rings have moved to the other control device, as the
  // process knows it from the claims (proto 14), and the number of those that it builds on; another
  // one only while it moves them.
  u8 control, control_before;

  constexpr u32 member_count() const { return u32{host_count} * members_per_host; }
  constexpr u32 host_of(u32 member) const { return member / members_per_host; }
  constexpr u64 extent_bytes() const { return extent_stripes * kStripeBytes; }
  constexpr u64 extents_max() const { return extent_lines * kMapRecordsPerLine; }
  constexpr u64 pool_bytes() const {
    u64 sum = 0;
    for (u32 d = 0; d < device_count; ++d) sum += device_bytes[d];
    return sum;
  }

  // How far regions may reach on a device: what the extent map has words for, dealt evenly. Address
  // space for so much is set aside when a store is opened, so that nothing moves when it grows.
  constexpr u64 room_bytes(u32 device) const {
    const u64 rows = extents_max() * extent_stripes / device_count + 4;
    const u64 room = device_bytes[device] + rows * (kStripeBytes + kStripBytesPerStripe);
    return std::min(round_up(room, kStripeBytes), PoolOffset::kByteMask / kStripeBytes *
                                                      kStripeBytes);
  }

  // ---- superblock copies: two, on two devices where there are two ----
  constexpr PoolOffset identity_at(u32 copy) const {
    if (copy == 0) return PoolOffset(0, 0);
    return control_devices == 2 ? PoolOffset(1, 0) : PoolOffset(0, kSecondCopyByte);
  }
  constexpr PoolOffset geometry_at(u32 copy, u32 i) const {  // i: 0 GeometryA, 1 GeometryB
    return identity_at(copy) + (1 + i) * kLineBytes;
  }
  constexpr PoolOffset claim_at(u32 copy, u32 slot) const {
    return identity_at(copy) + (kClaimFirstLine + slot) * kLineBytes;
  }

  // ---- lines and rings of hosts and members: on one control device, with room on the other ----
  // ----
  constexpr u32 control_device() const { return control_devices == 2 ? control & 1u : 0; }
  constexpr u64 lines_byte() const {  // where they start
    return control_devices == 2 ? kPageBytes : kSecondCopyByte + kPageBytes;
  }
  constexpr PoolOffset host_at(u32 host) const {
    return PoolOffset(control_device(), lines_byte() + host * kLineBytes);
  }
  constexpr PoolOffset doorbell_at(u32 host) const {
    return PoolOffset(control_device(), lines_byte() + (kMaxHosts + host) * kLineBytes);
  }
  constexpr PoolOffset member_at(u32 member) const {
    return PoolOffset(control_device(), lines_byte() + (2 * kMaxHosts + member) * kLineBytes);
  }
  constexpr PoolOffset reaper_at(u32 member) const {
    return PoolOffset(control_device(),
                      lines_byte() + (2 * kMaxHosts + member_count() + member) * kLineBytes);
  }
  constexpr PoolOffset notice_at(u32 member, u32 standby) const {
    return PoolOffset(control_device(), lines_byte() + (2 * kMaxHosts + 2 * member_count() +
                                         member * standby_count + standby) * kLineBytes);
  }
  constexpr PoolOffset request_line(u32 member, u32 i) const {
    return PoolOffset(control_device(),
                      rings_byte() + (u64{member} * request_lines + i) * kLineBytes);
  }
  constexpr PoolOffset response_line(u32 member, u32 standby, u32 slot, u32 i) const {
    const u64 ring = u64{member} * standby_count + standby;
    const u64 line = (ring * response_slots + slot) * kResponseSlotLines + i;
    return PoolOffset(control_device(),
                      rings_byte() + (u64{member_count()} * request_lines + line) * kLineBytes);
  }
  constexpr u64 rings_byte() const {
    const u64 lines = 2 * kMaxHosts + u64{member_count()} * (2 + standby_count);
    return lines_byte() + round_up(lines * kLineBytes, kPageBytes);
  }
  constexpr u64 lines_end() const {  // first byte behind the rings, whole pages
    const u64 lines = u64{member_count()} *
                      (request_lines + u64{standby_count} * response_slots * kResponseSlotLines);
    return rings_byte() + round_up(lines * kLineBytes, kPageBytes);
  }
  // Place of a host or member line or ring on the other control device; kNoOffset with one device.
  constexpr PoolOffset twin_of(PoolOffset at) const {
    return control_devices == 2 ? PoolOffset(1 - at.device(), at.byte()) : kNoOffset;
  }

  // ---- areas: two a standby slot, on different control devices where there are two ----
  constexpr PoolOffset area_at(u32 standby, u32 which) const {
    return PoolOffset(control_devices == 2 ? which : 0,
                      area_offset[which] + standby * area_bytes);
  }
  constexpr PoolOffset region_line(PoolOffset area, u32 i) const { return area + i * kLineBytes; }
  constexpr PoolOffset ns_line(PoolOffset area, u32 id) const {
    return area + (kRegionTableLines + u64{id}) * kLineBytes;
  }
  // The spare line, the last one of the table, holds what was written last to any other line of it,
  // sealed for its place there: where a line was stored in part only, this one has the whole.
  constexpr u32 ns_spare() const { return namespace_lines - 1u; }
  constexpr u32 namespaces_max() const { return ns_probes(namespace_lines); }
  constexpr PoolOffset map_line(PoolOffset area, u64 i) const {
    return area + (kRegionTableLines + u64{namespace_lines} + i) * kLineBytes;
  }
  constexpr PoolOffset map_word(PoolOffset area, u32 extent) const {
    return map_line(area, 0) + u64{extent} * 8;
  }
  constexpr PoolOffset entry_line(PoolOffset area, u64 entry) const {
    return map_line(area, extent_lines) + entry * kLineBytes;
  }
  constexpr PoolOffset group_at(PoolOffset area, u64 group) const {
    return entry_line(area, group * kGroupLines);
  }
  // What the pieces of an area take; area_bytes is at least this.
  constexpr u64 area_bytes_needed() const {
    const u64 lines = kRegionTableLines + u64{namespace_lines} + extent_lines +
                      index_groups_max * kGroupLines;
    return round_up(lines * kLineBytes, kPageBytes);
  }
  // First byte of a device that neither superblock, lines nor areas use.
  constexpr u64 control_end(u32 device) const {
    if (device >= control_devices) return kPageBytes;
    if (control_devices == 2) return area_offset[device] + standby_count * area_bytes;
    return area_offset[1] + standby_count * area_bytes;
  }

  static constexpr u64 round_up(u64 n, u64 unit) { return (n + unit - 1) / unit * unit; }

  friend bool operator==(const Geometry &, const Geometry &) = default;
};
static_assert(std::is_trivially_copyable_v<Geometry>);
static_assert(std::is_trivially_copyable_v<RegionTable>);

// ---- planning -----------------------------------------------------------------------------------

// 0 means: choose by the pool's size.
struct FormatOptions {
  u64 device_bytes[kMaxDevices] = {};
  u32 device_count = 0;

  u32 hosts = 0;
  u32 members_per_host = 0;
  u32 standbys = 0;
  u32 width = 0;            // devices that extents are spread over at most; default all
  u32 namespaces = 0;       // lines of the table; rounded up to a power of two
  u32 min_block_bytes = 0;  // smallest block the index must serve a full pool of
  u32 lines_per_block = 0;  // index lines for each such block; default 3
  u64 block_bytes = 0;      // payload of the usual block: chooses the extent size
  u32 extent_stripes = 0;   // chooses it outright
  u32 index_growth = 0;     // room for an index so many times as large
  u32 map_growth = 0;       // room in the extent map for a pool so many times as large; default 4
  u64 max_bytes = 0;        // or for one of this size
  u32 request_lines = 0;
  u32 response_slots = 0;
  u32 lease_ms = 0;         // default 2000; the driver's stores set 10000
  u32 delta_us = 0;         // default 1000
  u32 grace_us = 0;         // default 20000
  const u8 *standby_host = nullptr;  // host of each standby slot; null: any host
};

// What plan_layout() chose. uuid and nonce are left zero for the caller, state is kFormatting.
struct Layout {
  Geometry geometry;
  RegionTable regions;
};

// -EINVAL: an option makes no sense; -ENOSPC: too small. `why` (may be null) gets a sentence that
// names the option or the smallest size.
int plan_layout(const FormatOptions &options, Layout &ret_layout, std::string *why);

// The options with which plan_layout() makes a store like that of `geometry` again, on its devices;
// standby_host points into `geometry`. Of lines_per_block only what the index shows.
FormatOptions options_of(const Geometry &geometry);

// Bytes of the pool that are not payload stripes.
u64 metadata_bytes(const Geometry &geometry, const RegionTable &regions);

// ---- growing and shrinking (proto 14) -----------------------------------------------------------

// Size of the device with all regions, those that are retired included.
u64 device_end(const Geometry &geometry, const RegionTable &regions, u32 device);
// The size of a pool: all devices, less the bytes of retired extents.
u64 pool_bytes_in_use(const Geometry &geometry, const RegionTable &regions);

// The table of a pool of `pool_bytes`: the same one when that is its size, or as near as whole
// extents come. Growing takes retired extents back first and appends regions behind all others;
// shrinking retires the last extents. Existing extents stay where they are. With a sentence in
// `why`: -EINVAL no whole number of stripes on each device; -ERANGE smaller than metadata and the
// fewest extents, or too little more for an extent; -EFBIG beyond what the extent map has room for;
// -E2BIG no region is left.
int plan_resize(const Geometry &geometry, const RegionTable &now, u64 pool_bytes,
                RegionTable &ret_regions, std::string *why);

// The largest size that plan_resize() does not refuse, in whole extents.
u64 largest_pool_bytes(const Geometry &geometry, const RegionTable &now);

// Bytes of retired extents, by region and place: at most kMaxRegions * kMaxDevices pieces.
struct DeviceRange {
  u32 device;
  u64 begin, end;
};
u32 retired_ranges(const RegionTable &regions,
                   DeviceRange (&ret_ranges)[kMaxRegions * kMaxDevices]);

// ---- codec --------------------------------------------------------------------------------------

// Identity line of a device.
Identity make_identity(const Geometry &geometry, u32 device, StoreState state);
GeometryA make_geometry_a(const Geometry &geometry);
GeometryB make_geometry_b(const Geometry &geometry);

// The lines are intact; their content is checked here, all of it: a Geometry that comes out of this
// keeps every accessor inside its device. device_bytes of devices other than the identity's own are
// taken from `device_bytes`, which the caller read from the other identity lines. -EUCLEAN.
int decode_geometry(const Identity &identity, const GeometryA &a, const GeometryB &b,
                    const u64 device_bytes[kMaxDevices], Geometry &ret_geometry, std::string *why);

// The table as it stands at the head of an area, to be sealed with each line's place.
void encode_regions(const RegionTable &regions, Line (&ret_lines)[kRegionTableLines]);

// The lines are intact. Checked against the geometry: consecutive extents, known devices, places
// inside their device behind its control part, no two places on the same bytes. -EUCLEAN.
int decode_regions(const Line (&lines)[kRegionTableLines], const Geometry &geometry,
                   RegionTable &ret_regions, std::string *why);

}  // namespace kvpool::media
