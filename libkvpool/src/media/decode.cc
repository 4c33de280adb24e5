// SPDX-License-Identifier: Apache-2.0
// Lines in words: where an address belongs, and the printers of each structure.
#include "media/decode.hpp"

#include <cstdarg>
#include <cstdio>

#include "media/index_hash.hpp"
#include "media/seal.hpp"

namespace kvpool::media {
namespace {

using ull = unsigned long long;

// Collects "name: value" lines.
class Printer {
public:
  __attribute__((format(printf, 3, 4))) void field(const char *name, const char *format, ...) {
    char buffer[256];
    va_list args;
    va_start(args, format);
    std::vsnprintf(buffer, sizeof(buffer), format, args);
    va_end(args);
    text_ += name;
    text_ += ": ";
    text_ += buffer;
    text_ += '\n';
  }
  void number(const char *name, u64 value) { field(name, "%llu", static_cast<ull>(value)); }
  void hex(const char *name, u64 value) { field(name, "0x%llx", static_cast<ull>(value)); }
  void bytes(const char *name, const void *data, u64 n) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (u64 i = 0; i < n; ++i) {
      const u8 byte = static_cast<const u8 *>(data)[i];
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
    field(name, "%s", out.c_str());
  }
  // A name for people: what is not printable shows as '?'.
  void name(const char *label, const char *data, u64 n) {
    std::string out;
    for (u64 i = 0; i < n && data[i] != '\0'; ++i) {
      out += data[i] >= ' ' && data[i] <= '~' ? data[i] : '?';
    }
    field(label, "%s", out.c_str());
  }
  // A field that must be zero.
  void zero(const char *label, const void *data, u64 n) {
    for (u64 i = 0; i < n; ++i) {
      if (static_cast<const u8 *>(data)[i] == 0) continue;
      field(label, "not zero, as it must be");
      return;
    }
  }
  std::string take() { return std::move(text_); }

private:
  std::string text_;
};

void epoch(Printer &p, const char *name, u32 epoch) {
  p.field(name, "0x%x (counter %u, standby slot %u)", epoch, epoch_counter(epoch),
          epoch_slot(epoch));
}

template <class E>
const char *pick_name(E value, const char *const *names, u32 count) {
  const u32 n = static_cast<u32>(value);
  return n < count && names[n] != nullptr ? names[n] : "impossible";
}

// ---- printers

void print(Printer &p, const Identity &v) {
  p.field("magic", "%s", v.magic == kMagic ? "KVPOOL_1" : "wrong");
  p.bytes("uuid", v.uuid, sizeof(v.uuid));
  p.hex("nonce", v.nonce);
  p.hex("incompat", v.incompat);
  p.hex("ro_compat", v.ro_compat);
  p.hex("compat", v.compat);
  static constexpr const char *kStates[] = {nullptr, "formatting", "ready"};
  p.field("state", "%s", pick_name(v.state, kStates, 3));
  p.number("device_index", v.device_index);
  p.number("device_count", v.device_count);
  p.number("version", v.version);
  p.number("device_bytes", v.device_bytes);
  p.zero("reserved", &v.reserved, sizeof(v.reserved));
}

void print(Printer &p, const GeometryA &v) {
  p.number("lease_ms", v.lease_ms);
  p.number("delta_us", v.delta_us);
  p.number("grace_us", v.grace_us);
  p.number("host_count", v.host_count);
  p.number("members_per_host", v.members_per_host);
  p.number("standby_count", v.standby_count);
  p.number("width", v.width);
  p.number("namespace_lines", v.namespace_lines);
  p.number("request_lines", v.request_lines);
  p.number("response_slots", v.response_slots);
  p.number("control_devices", v.control_devices);
  p.number("min_block_bytes", v.min_block_bytes);
  p.number("extent_stripes", v.extent_stripes);
  p.number("index_groups", v.index_groups);
  p.number("index_groups_max", v.index_groups_max);
  p.zero("reserved0", &v.reserved0, sizeof(v.reserved0));
  p.zero("reserved1", &v.reserved1, sizeof(v.reserved1));
  p.zero("reserved2", &v.reserved2, sizeof(v.reserved2));
}

void print(Printer &p, const GeometryB &v) {
  p.number("area_bytes", v.area_bytes);
  p.hex("area_offset[0]", v.area_offset[0]);
  p.hex("area_offset[1]", v.area_offset[1]);
  p.number("extent_lines", v.extent_lines);
  p.bytes("standby_host", v.standby_host, sizeof(v.standby_host));
  p.zero("reserved0", &v.reserved0, sizeof(v.reserved0));
  p.zero("reserved1", &v.reserved1, sizeof(v.reserved1));
}

void print(Printer &p, const ClaimLine &v) {
  epoch(p, "claimed", v.claimed);
  epoch(p, "active", v.active);
  p.hex("claimed_incarnation", v.claimed_incarnation);
  p.hex("active_incarnation", v.active_incarnation);
  p.number("index_groups", v.index_groups);
  p.number("claimed_member", v.claimed_member);
  p.number("active_member", v.active_member);
  p.number("area", v.area);
  p.number("claimed_control", v.claimed_control);
  p.number("active_control", v.active_control);
}

void print(Printer &p, const HostLine &v) {
  p.bytes("machine_id", v.machine_id, sizeof(v.machine_id));
  p.bytes("boot_id", v.boot_id, sizeof(v.boot_id));
  p.hex("incarnation", v.incarnation);
  p.number("counter", v.counter);
}

void print(Printer &p, const MemberLine &v) {
  static constexpr const char *kStates[] = {nullptr, "joined", "left"};
  p.hex("incarnation", v.incarnation);
  p.number("counter", v.counter);
  p.hex("group", v.group);
  epoch(p, "reported_epoch", v.reported_epoch);
  p.field("state", "%s", pick_name(v.state, kStates, 3));
  p.field("flags", "0x%x%s%s", v.flags, (v.flags & kMemberHolds) != 0 ? " holds" : "",
          (v.flags & kMemberPins) != 0 ? " pins" : "");
  p.number("host", v.host);
  p.number("standby_slot", v.standby_slot);
  p.number("rank", v.rank);
  p.number("world", v.world);
  p.number("pid", v.pid);
  p.name("name", v.name, sizeof(v.name));
}

void print(Printer &p, const ReaperLine &v) {
  static constexpr const char *kStates[] = {nullptr, "none", "dead", "quiet"};
  p.hex("incarnation", v.incarnation);
  p.field("state", "%s", pick_name(v.state, kStates, 4));
}

void print(Printer &p, const RegionHead &v) {
  p.number("first_extent", v.first_extent);
  p.number("extent_count", v.extent_count);
  static constexpr const char *kStates[] = {nullptr, "unused", "used"};
  p.field("state", "%s", pick_name(v.state, kStates, 3));
  p.number("place_count", v.place_count);
  p.bytes("device", v.device, sizeof(v.device));
  p.number("retired_extents", v.retired_extents);
}

void print(Printer &p, const RegionPlaces &v) {
  for (u32 i = 0; i < kPlacesPerLine; ++i) {
    char name[16];
    std::snprintf(name, sizeof(name), "place[%u]", i);
    p.field(name, "data page %u, strip page %u", v.place[i].data_page, v.place[i].strip_page);
  }
}

void print(Printer &p, const NamespaceLine &v) {
  p.bytes("fingerprint", v.fingerprint, sizeof(v.fingerprint));
  p.number("quota_bytes", v.quota_bytes);
  p.hex("clear_version", v.clear_version);
  p.number("epoch", v.epoch);
  p.number("block_lines", v.block_lines);
  p.field("flags", "0x%x%s%s%s", v.flags, (v.flags & kNsUsed) != 0 ? " used" : "",
          (v.flags & kNsBypass) != 0 ? " bypass" : "", (v.flags & kNsEmpty) != 0 ? " empty" : "");
  p.number("weight", v.weight);
  p.number("verify", v.verify);
  p.name("name", v.name, sizeof(v.name));
}

void print(Printer &p, const Entry &v) {
  static constexpr const char *kStates[] = {nullptr,     "empty",    "pending",
                                            "published", "draining", "hidden"};
  p.bytes("key", v.key, sizeof(v.key));
  if (v.entry_state() == EntryState::kPending) {
    p.hex("incarnation", v.version);
    p.field("posted by", "member slot %llu for %llu ms", static_cast<ull>(v.check_hash & 0xFFFF),
            static_cast<ull>(v.check_hash >> 16));
  } else {
    p.field("version", "epoch 0x%llx number %llu", static_cast<ull>(v.version >> 40),
            static_cast<ull>(v.version & kVersionNumberMax));
    p.hex("check_hash", v.check_hash);
  }
  p.field("length", "%llu bytes in %u shard%s", static_cast<ull>(v.payload_lines() * kLineBytes),
          v.shards(), v.shards() == 1 ? "" : "s");
  p.field("locator", "pool address 0x%llx", static_cast<ull>(v.locator() * kLocatorUnit));
  p.field("state", "%s%s%s", pick_name(v.entry_state(), kStates, 6),
          (v.state & kEntryTainted) != 0 ? " tainted" : "",
          (v.state & kEntrySpill) != 0 ? " spill" : "");
  p.number("ns", v.ns);
}

void print(Printer &p, const CheckLine &v) {
  p.hex("check", v.check);
  p.hex("incarnation", v.incarnation);
  p.hex("nonce", v.nonce);
  p.number("segment", v.segment);
  p.number("segment_lines", v.segment_lines);
  p.field("shard", "%u of %u", v.shard, v.shard_count);
}

void print(Printer &p, const Message &v) {
  static constexpr const char *kTypes[] = {
      nullptr,      "nop",       "grant",        "publish",       "pending",
      "remove",     "return",    "pin",          "unpin",         "touch",
      "ns_open",    "ns_control", "report_begin", "report_extent", "report_doubt",
      "report_pin", "report_end", "death_ack",    "leave",
      "resize",     "abort"};
  static constexpr const char *kStatus[] = {"request", "ok",     "exists",  "full",    "busy",
                                            "stale",   "absent", "refused", "bypassed", "quota"};
  epoch(p, "epoch", v.epoch);
  p.number("sequence", v.sequence);
  p.hex("incarnation", v.incarnation);
  p.field("type", "%s", pick_name(v.type, kTypes, sizeof(kTypes) / sizeof(kTypes[0])));
  p.field("line", "%u of %u", v.index, v.lines);
  p.field("status", "%s", pick_name(v.status, kStatus, sizeof(kStatus) / sizeof(kStatus[0])));
  p.bytes("body", v.body, sizeof(v.body));
}

void print(Printer &p, const NoticeLine &v) {
  epoch(p, "epoch", v.epoch);
  p.number("sequence", v.sequence);
  p.hex("incarnation", v.incarnation);
  p.number("recall_extents", v.recall_extents);
  p.field("flags", "0x%x%s%s", v.flags, (v.flags & kNoticeReport) != 0 ? " report" : "",
          (v.flags & kNoticePeerDead) != 0 ? " peer_dead"
          : (v.flags & kNoticeAborted) != 0 ? " aborted" : "");
  p.hex("dead_incarnation", v.dead_incarnation);
  p.number("dead_slot", v.dead_slot);
  p.number("recall_from", v.recall_from);
  p.number("aborted", v.aborted);
}

void print(Printer &p, const DoorbellLine &v) {
  for (u32 i = 0; i < 16; ++i) {
    char name[16];
    std::snprintf(name, sizeof(name), "counter[%u]", i);
    p.number(name, v.counter[i]);
  }
}

template <class T>
void print_as(Printer &p, const Line &line) {
  print(p, from_line<T>(line));
}

// Words of the extent map verify one by one. True: all of them do.
bool print_map(Printer &p, const StoreView &view, PoolOffset at, u64 first_extent, const Line &line,
               u32 epoch) {
  const Sealer sealer(view.geometry().uuid, view.geometry().nonce);
  bool all = true;
  for (u32 i = 0; i < kMapRecordsPerLine; ++i) {
    char name[32];
    std::snprintf(name, sizeof(name), "extent %llu", static_cast<ull>(first_extent + i));
    MapRecord r{};
    if (!sealer.unpack_map(line.w[i], at + i * 8, epoch, r)) {
      p.field(name, "does not verify (word 0x%016llx)", static_cast<ull>(line.w[i]));
      all = all && view.area_known && first_extent + i >= view.regions.extent_count();
      continue;
    }
    p.field(name, "holder %u%s, tag 0x%x, class %u (%llu bytes), flags 0x%x%s%s%s, %s %u", r.holder,
            r.holder == kHolderOwner ? " (owner)" : r.holder == kHolderFormer ? " (former)" : "",
            r.tag, r.size_class, static_cast<ull>(class_bytes(r.size_class)), r.flags,
            (r.flags & kMapTainted) != 0 ? " tainted" : "",
            (r.flags & kMapRunHead) != 0 ? " run_head" : "",
            (r.flags & kMapRunTail) != 0 ? " run_tail" : "",
            (r.flags & kMapTainted) != 0 ? "by slot" : "ns",
            (r.flags & kMapTainted) != 0 && r.ns != 0 ? taint_slot(r.ns) : u32{r.ns});
  }
  return all;
}

// ---- places

bool in_table(PoolOffset at, PoolOffset begin, u64 lines, u64 &ret_line) {
  if (at < begin || at.device() != begin.device()) return false;
  const u64 line = (at.byte() - begin.byte()) / kLineBytes;
  if (line >= lines) return false;
  ret_line = line;
  return true;
}

bool locate_superblock(const Geometry &g, PoolOffset at, LinePlace &ret) {
  for (u32 copy = 0; copy < 2; ++copy) {
    u64 line = 0;
    if (!in_table(at, g.identity_at(copy), kPageBytes / kLineBytes, line)) continue;
    if (line == 0) ret.kind = LineKind::kIdentity;
    if (line == 1) ret.kind = LineKind::kGeometryA;
    if (line == 2) ret.kind = LineKind::kGeometryB;
    if (line >= kClaimFirstLine && line < kClaimFirstLine + g.standby_count) {
      ret.kind = LineKind::kClaim;
      ret.i = static_cast<u32>(line - kClaimFirstLine);
    }
    return true;
  }
  if (at.byte() == 0 && at.device() < g.device_count) {
    ret.kind = LineKind::kIdentity;
    return true;
  }
  return false;
}

bool locate_lines(const Geometry &g, PoolOffset at, LinePlace &ret) {
  u64 n = 0;
  const u64 members = g.member_count();
  if (in_table(at, g.host_at(0), g.host_count, n)) {
    ret.kind = LineKind::kHost;
  } else if (in_table(at, g.doorbell_at(0), g.host_count, n)) {
    ret.kind = LineKind::kDoorbell;
  } else if (in_table(at, g.member_at(0), members, n)) {
    ret.kind = LineKind::kMember;
  } else if (in_table(at, g.reaper_at(0), members, n)) {
    ret.kind = LineKind::kReaper;
  } else if (in_table(at, g.notice_at(0, 0), members * g.standby_count, n)) {
    ret.kind = LineKind::kNotice;
    ret.i = static_cast<u32>(n / g.standby_count);
    ret.j = static_cast<u32>(n % g.standby_count);
    return true;
  } else if (in_table(at, g.request_line(0, 0), members * g.request_lines, n)) {
    ret.kind = LineKind::kRequest;
    ret.i = static_cast<u32>(n / g.request_lines);
    ret.n = n % g.request_lines;
    return true;
  } else {
    const u64 ring = u64{g.response_slots} * kResponseSlotLines;
    if (!in_table(at, g.response_line(0, 0, 0, 0), members * g.standby_count * ring, n)) {
      return false;
    }
    ret.kind = LineKind::kResponse;
    ret.i = static_cast<u32>(n / ring / g.standby_count);
    ret.j = static_cast<u32>(n / ring % g.standby_count);
    ret.n = n % ring;
    return true;
  }
  ret.i = static_cast<u32>(n);
  return true;
}

bool locate_in_area(const Geometry &g, PoolOffset at, LinePlace &ret) {
  for (u32 slot = 0; slot < g.standby_count; ++slot) {
    for (u32 which = 0; which < 2; ++which) {
      const PoolOffset area = g.area_at(slot, which);
      u64 n = 0;
      if (!in_table(at, area, g.area_bytes / kLineBytes, n)) continue;
      ret.in_area = true;
      ret.area_slot = slot;
      ret.area_which = which;
      if (in_table(at, g.region_line(area, 0), kRegionTableLines, n)) {
        ret.kind = n % kRegionLines == 0 ? LineKind::kRegionHead : LineKind::kRegionPlaces;
        ret.n = n / kRegionLines;
        ret.i = static_cast<u32>(n % kRegionLines);
      } else if (in_table(at, g.ns_line(area, 0), g.namespace_lines, n)) {
        ret.kind = LineKind::kNamespace;
        ret.n = n;
      } else if (in_table(at, g.map_line(area, 0), g.extent_lines, n)) {
        ret.kind = LineKind::kMap;
        ret.n = n;
      } else if (in_table(at, g.entry_line(area, 0), g.index_groups_max * kGroupLines, n)) {
        ret.kind = LineKind::kEntry;
        ret.n = n;
      }
      return true;
    }
  }
  return false;
}

// Extent and byte in it of the stripe byte that lies in a place.
void locate_stripe(const RegionTable &table, const Region &region, u32 place, u64 row,
                   u64 &ret_extent, u64 &ret_stripe) {
  const u64 s = row * region.place_count + place;
  ret_extent = region.first_extent + s / table.extent_stripes;
  ret_stripe = s % table.extent_stripes;
}

void locate_payload(const RegionTable &table, PoolOffset at, LinePlace &ret) {
  for (u32 r = 0; r < table.count; ++r) {
    const Region &region = table.region[r];
    const u64 stripes = u64{region.extent_count} * table.extent_stripes;
    for (u32 k = 0; k < region.place_count; ++k) {
      if (k >= stripes) break;
      const u64 rows = (stripes - k + region.place_count - 1) / region.place_count;
      u64 n = 0, extent = 0, stripe = 0;
      const PoolOffset strip(region.device[k], region.strip_page[k] * kPageBytes);
      const PoolOffset data(region.device[k], region.data_page[k] * kPageBytes);
      if (in_table(at, strip, rows * kStripLinesPerStripe, n)) {
        locate_stripe(table, region, k, n / kStripLinesPerStripe, extent, stripe);
        ret.kind = LineKind::kStrip;
        ret.n = extent;
        ret.i = static_cast<u32>(stripe * kStripLinesPerStripe + n % kStripLinesPerStripe);
        return;
      }
      if (in_table(at, data, rows * (kStripeBytes / kLineBytes), n)) {
        const u64 byte = n * kLineBytes;
        locate_stripe(table, region, k, byte / kStripeBytes, extent, stripe);
        ret.kind = LineKind::kPayload;
        const u64 in_extent = stripe * kStripeBytes + byte % kStripeBytes;
        ret.n = table.address(static_cast<u32>(extent), in_extent);
        return;
      }
    }
  }
}

void print_payload(Printer &p, const StoreView &view, PoolOffset at, const Line &line) {
  const Sealer sealer(view.geometry().uuid, view.geometry().nonce);
  if (sealer.intact(line, at, 0)) {
    p.field("content", "the check line of a small block");
    print_as<CheckLine>(p, line);
    return;
  }
  p.bytes("payload", &line, sizeof(line));
}

struct KindInfo {
  const char *name;
  bool sealed;
  void (*print)(Printer &, const Line &);
};
constexpr KindInfo kKinds[] = {
    {"identity", true, print_as<Identity>},
    {"geometry A", true, print_as<GeometryA>},
    {"geometry B", true, print_as<GeometryB>},
    {"claim", true, print_as<ClaimLine>},
    {"host", true, print_as<HostLine>},
    {"doorbell", false, print_as<DoorbellLine>},
    {"member", true, print_as<MemberLine>},
    {"reaper", true, print_as<ReaperLine>},
    {"notice", true, print_as<NoticeLine>},
    {"request", true, print_as<Message>},
    {"response", true, print_as<Message>},
    {"region head", true, print_as<RegionHead>},
    {"region places", true, print_as<RegionPlaces>},
    {"namespace", true, print_as<NamespaceLine>},
    {"extent map", true, nullptr},
    {"entry", true, print_as<Entry>},
    {"check", true, print_as<CheckLine>},
    {"payload", false, nullptr},
    {"unused", false, nullptr},
};

// Epoch under which a line of this area was sealed, as far as its slot's claim says; 0: unknown.
u32 area_epoch(const StoreView &view, const LinePlace &place) {
  if (!view.claim_readable[place.area_slot]) return 0;
  const ClaimLine &claim = view.claim[place.area_slot];
  if (claim.area == place.area_which) return claim.active;
  return claim.claimed != claim.active ? claim.claimed : 0;  // a candidate may be filling it
}

// The line of the table that the content of the spare line is sealed for.
u64 spare_of(const Geometry &g, const Sealer &sealer, const LinePlace &place, const Line &line,
             u32 epoch) {
  const PoolOffset area = g.area_at(place.area_slot, place.area_which);
  u32 id = 0;
  while (id < g.ns_spare() && !sealer.intact(line, g.ns_line(area, id), epoch)) ++id;
  return id;
}

}  // namespace

const char *line_kind_name(LineKind kind) { return kKinds[static_cast<u32>(kind)].name; }

LinePlace locate_line(const StoreView &view, PoolOffset at) {
  LinePlace place;
  const Geometry &g = view.geometry();
  if (locate_superblock(g, at, place)) return place;
  if (locate_lines(g, at, place)) return place;
  if (locate_in_area(g, at, place)) return place;
  if (view.area_known) locate_payload(view.regions, at, place);
  return place;
}

DecodedLine decode_line(const StoreView &view, PoolOffset at, const Line &line) {
  DecodedLine decoded;
  decoded.place = locate_line(view, at);
  const LinePlace &place = decoded.place;
  const KindInfo &kind = kKinds[static_cast<u32>(place.kind)];
  const Geometry &g = view.geometry();
  const Sealer sealer(g.uuid, g.nonce);
  Printer p;
  p.field("line", "%s", kind.name);
  p.field("at", "device %u, byte 0x%llx", at.device(), static_cast<ull>(at.byte()));
  u32 epoch = 0;
  if (place.in_area) {
    epoch = area_epoch(view, place);
    decoded.epoch_known = epoch != 0;
    const bool active = view.area_known && view.area() == g.area_at(place.area_slot,
                                                                    place.area_which);
    p.field("area", "%u of standby slot %u%s", place.area_which, place.area_slot,
            active ? " (active)" : "");
  }
  decoded.sealed = kind.sealed;
  if (place.kind == LineKind::kMap) {
    decoded.verifies = print_map(p, view, at, place.n * kMapRecordsPerLine, line, epoch);
  } else if (place.kind == LineKind::kIdentity) {
    decoded.verifies = Sealer::identity_intact(line);
  } else {
    decoded.verifies = !kind.sealed || sealer.intact(line, at, epoch);
  }
  const bool spare = place.kind == LineKind::kNamespace && place.n == g.ns_spare();
  const u64 home = spare ? spare_of(g, sealer, place, line, epoch) : place.n;
  const bool sealed_as = home != place.n;
  decoded.verifies |= sealed_as;
  if (kind.sealed && !decoded.verifies) {
    p.field("seal", "%s", line == Line{} ? "does not verify: the line was never written"
                          : decoded.epoch_known
                              ? "does not verify: what follows may mean nothing"
                              : "not known: no claim names an epoch for this area");
  } else if (kind.sealed) {
    p.field("seal", "verifies");
  }
  switch (place.kind) {
    case LineKind::kRequest:
      p.number("member slot", place.i);
      p.number("ring line", place.n);
      break;
    case LineKind::kResponse:
      p.number("member slot", place.i);
      p.number("standby slot", place.j);
      p.number("ring line", place.n);
      break;
    case LineKind::kNotice:
      p.number("member slot", place.i);
      p.number("standby slot", place.j);
      break;
    case LineKind::kNamespace: p.number(sealed_as ? "spare line of" : "namespace", home); break;
    case LineKind::kEntry: p.number("entry", place.n); break;
    case LineKind::kStrip:
      p.field("covers", "unit %u of extent %llu", place.i, static_cast<ull>(place.n));
      break;
    case LineKind::kPayload:
      p.hex("pool address", place.n);
      print_payload(p, view, at, line);
      break;
    default: break;
  }
  if (kind.print != nullptr) kind.print(p, line);
  decoded.text = p.take();
  return decoded;
}

}  // namespace kvpool::media
