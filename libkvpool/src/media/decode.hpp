// SPDX-License-Identifier: Apache-2.0
// Any line of a store in words, for `kvpool check --decode`: what stands at an address, each field
// by its name, and whether the line verifies. Trusts no field.
#pragma once

#include <string>

#include "media/superblock.hpp"

namespace kvpool::media {

enum class LineKind : u8 {
  kIdentity,
  kGeometryA,
  kGeometryB,
  kClaim,         // i: standby slot
  kHost,          // i: host
  kDoorbell,      // i: host
  kMember,        // i: member slot
  kReaper,        // i: member slot
  kNotice,        // i: member slot, j: standby slot
  kRequest,       // i: member slot, n: line of the ring
  kResponse,      // i: member slot, j: standby slot, n: line of the ring
  kRegionHead,    // area; n: region
  kRegionPlaces,  // area; n: region, i: which of its three lines
  kNamespace,     // area; n: namespace
  kMap,           // area; n: line, of eight extents
  kEntry,         // area; n: entry
  kStrip,         // n: extent, i: 64 KiB unit in it
  kPayload,       // n: pool address; payload, or the check line of a small block
  kUnused,
};

struct LinePlace {
  LineKind kind = LineKind::kUnused;
  bool in_area = false;
  u32 area_slot = 0, area_which = 0;
  u32 i = 0, j = 0;
  u64 n = 0;
};

const char *line_kind_name(LineKind kind);

// What the view says about this address. Without area_known, strips and payload are kUnused.
LinePlace locate_line(const StoreView &view, PoolOffset at);

struct DecodedLine {
  LinePlace place;
  bool sealed = false;    // lines of this kind carry a seal
  bool verifies = false;  // and this one does, or is a line without seal
  bool epoch_known = true;  // false: of an area that is not active, under an epoch nobody names
  std::string text;       // one "name: value" a line
};

// `line` was read at `at`, a whole line's address.
DecodedLine decode_line(const StoreView &view, PoolOffset at, const Line &line);

}  // namespace kvpool::media
