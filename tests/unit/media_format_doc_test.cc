// SPDX-License-Identifier: Apache-2.0
// Shows: Documentation/format.md states the format as the compiler lays it out.
// How: every field's offset and size, every size class and every row of the table of sizes is
// computed and looked for in the page, under its heading.
#include <criterion/criterion.h>

#include <cstdarg>
#include <fstream>
#include <sstream>

#include "arch/check.hpp"
#include "arch/check_keys.hpp"
#include "media/layout.hpp"
#include "media/seal.hpp"

using namespace kvpool;
using namespace kvpool::media;

namespace {

std::string page() {
  const char *root = std::getenv("KVPOOL_SOURCE_DIR");
  std::ifstream file(std::string(root != nullptr ? root : "..") + "/Documentation/format.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// From a heading to the next one.
std::string section(const std::string &text, const std::string &heading) {
  u64 begin = text.find("# " + heading + "\n");
  if (begin == std::string::npos) return "";
  begin += 2;
  return text.substr(begin, text.find("\n#", begin) - begin);
}

__attribute__((format(printf, 1, 2))) std::string row(const char *format, ...) {
  char buffer[300];
  va_list args;
  va_start(args, format);
  std::vsnprintf(buffer, sizeof(buffer), format, args);
  va_end(args);
  return buffer;
}

struct Field {
  const char *structure, *name;
  u64 offset, bytes;
};

const Field kFields[] = {
#define KVPOOL_FIELD(structure, name) \
  {#structure, #name, offsetof(structure, name), sizeof(structure::name)}
    KVPOOL_FIELD(Identity, magic),
    KVPOOL_FIELD(Identity, uuid),
    KVPOOL_FIELD(Identity, nonce),
    KVPOOL_FIELD(Identity, incompat),
    KVPOOL_FIELD(Identity, ro_compat),
    KVPOOL_FIELD(Identity, compat),
    KVPOOL_FIELD(Identity, state),
    KVPOOL_FIELD(Identity, device_index),
    KVPOOL_FIELD(Identity, device_count),
    KVPOOL_FIELD(Identity, version),
    KVPOOL_FIELD(Identity, device_bytes),
    KVPOOL_FIELD(Identity, reserved),
    KVPOOL_FIELD(Identity, crc),
    KVPOOL_FIELD(GeometryA, lease_ms),
    KVPOOL_FIELD(GeometryA, delta_us),
    KVPOOL_FIELD(GeometryA, grace_us),
    KVPOOL_FIELD(GeometryA, host_count),
    KVPOOL_FIELD(GeometryA, members_per_host),
    KVPOOL_FIELD(GeometryA, standby_count),
    KVPOOL_FIELD(GeometryA, width),
    KVPOOL_FIELD(GeometryA, namespace_lines),
    KVPOOL_FIELD(GeometryA, request_lines),
    KVPOOL_FIELD(GeometryA, response_slots),
    KVPOOL_FIELD(GeometryA, control_devices),
    KVPOOL_FIELD(GeometryA, reserved0),
    KVPOOL_FIELD(GeometryA, min_block_bytes),
    KVPOOL_FIELD(GeometryA, extent_stripes),
    KVPOOL_FIELD(GeometryA, index_groups),
    KVPOOL_FIELD(GeometryA, index_groups_max),
    KVPOOL_FIELD(GeometryA, reserved1),
    KVPOOL_FIELD(GeometryA, reserved2),
    KVPOOL_FIELD(GeometryA, crc),
    KVPOOL_FIELD(GeometryB, area_bytes),
    KVPOOL_FIELD(GeometryB, area_offset),
    KVPOOL_FIELD(GeometryB, extent_lines),
    KVPOOL_FIELD(GeometryB, standby_host),
    KVPOOL_FIELD(GeometryB, reserved0),
    KVPOOL_FIELD(GeometryB, reserved1),
    KVPOOL_FIELD(GeometryB, crc),
    KVPOOL_FIELD(HostLine, machine_id),
    KVPOOL_FIELD(HostLine, boot_id),
    KVPOOL_FIELD(HostLine, incarnation),
    KVPOOL_FIELD(HostLine, counter),
    KVPOOL_FIELD(HostLine, reserved0),
    KVPOOL_FIELD(HostLine, reserved1),
    KVPOOL_FIELD(HostLine, crc),
    KVPOOL_FIELD(MemberLine, incarnation),
    KVPOOL_FIELD(MemberLine, counter),
    KVPOOL_FIELD(MemberLine, group),
    KVPOOL_FIELD(MemberLine, reported_epoch),
    KVPOOL_FIELD(MemberLine, state),
    KVPOOL_FIELD(MemberLine, flags),
    KVPOOL_FIELD(MemberLine, host),
    KVPOOL_FIELD(MemberLine, standby_slot),
    KVPOOL_FIELD(MemberLine, rank),
    KVPOOL_FIELD(MemberLine, world),
    KVPOOL_FIELD(MemberLine, pid),
    KVPOOL_FIELD(MemberLine, name),
    KVPOOL_FIELD(MemberLine, reserved),
    KVPOOL_FIELD(MemberLine, crc),
    KVPOOL_FIELD(ReaperLine, incarnation),
    KVPOOL_FIELD(ReaperLine, state),
    KVPOOL_FIELD(ReaperLine, reserved0),
    KVPOOL_FIELD(ReaperLine, crc),
    KVPOOL_FIELD(ClaimLine, claimed),
    KVPOOL_FIELD(ClaimLine, active),
    KVPOOL_FIELD(ClaimLine, claimed_incarnation),
    KVPOOL_FIELD(ClaimLine, active_incarnation),
    KVPOOL_FIELD(ClaimLine, index_groups),
    KVPOOL_FIELD(ClaimLine, claimed_member),
    KVPOOL_FIELD(ClaimLine, active_member),
    KVPOOL_FIELD(ClaimLine, area),
    KVPOOL_FIELD(ClaimLine, claimed_control),
    KVPOOL_FIELD(ClaimLine, active_control),
    KVPOOL_FIELD(ClaimLine, reserved0),
    KVPOOL_FIELD(ClaimLine, reserved1),
    KVPOOL_FIELD(ClaimLine, crc),
    KVPOOL_FIELD(RegionHead, first_extent),
    KVPOOL_FIELD(RegionHead, extent_count),
    KVPOOL_FIELD(RegionHead, state),
    KVPOOL_FIELD(RegionHead, place_count),
    KVPOOL_FIELD(RegionHead, reserved0),
    KVPOOL_FIELD(RegionHead, device),
    KVPOOL_FIELD(RegionHead, retired_extents),
    KVPOOL_FIELD(RegionHead, reserved1),
    KVPOOL_FIELD(RegionHead, crc),
    KVPOOL_FIELD(RegionPlace, data_page),
    KVPOOL_FIELD(RegionPlace, strip_page),
    KVPOOL_FIELD(RegionPlaces, place),
    KVPOOL_FIELD(RegionPlaces, reserved),
    KVPOOL_FIELD(RegionPlaces, crc),
    KVPOOL_FIELD(NamespaceLine, fingerprint),
    KVPOOL_FIELD(NamespaceLine, quota_bytes),
    KVPOOL_FIELD(NamespaceLine, clear_version),
    KVPOOL_FIELD(NamespaceLine, epoch),
    KVPOOL_FIELD(NamespaceLine, block_lines),
    KVPOOL_FIELD(NamespaceLine, flags),
    KVPOOL_FIELD(NamespaceLine, weight),
    KVPOOL_FIELD(NamespaceLine, verify),
    KVPOOL_FIELD(NamespaceLine, name),
    KVPOOL_FIELD(NamespaceLine, crc),
    KVPOOL_FIELD(Entry, key),
    KVPOOL_FIELD(Entry, version),
    KVPOOL_FIELD(Entry, check_hash),
    KVPOOL_FIELD(Entry, length),
    KVPOOL_FIELD(Entry, locator_low),
    KVPOOL_FIELD(Entry, locator_high),
    KVPOOL_FIELD(Entry, state),
    KVPOOL_FIELD(Entry, ns),
    KVPOOL_FIELD(Entry, crc),
    KVPOOL_FIELD(CheckLine, check),
    KVPOOL_FIELD(CheckLine, incarnation),
    KVPOOL_FIELD(CheckLine, nonce),
    KVPOOL_FIELD(CheckLine, segment),
    KVPOOL_FIELD(CheckLine, segment_lines),
    KVPOOL_FIELD(CheckLine, shard),
    KVPOOL_FIELD(CheckLine, shard_count),
    KVPOOL_FIELD(CheckLine, reserved0),
    KVPOOL_FIELD(CheckLine, reserved1),
    KVPOOL_FIELD(CheckLine, reserved2),
    KVPOOL_FIELD(CheckLine, crc),
    KVPOOL_FIELD(Message, epoch),
    KVPOOL_FIELD(Message, sequence),
    KVPOOL_FIELD(Message, incarnation),
    KVPOOL_FIELD(Message, type),
    KVPOOL_FIELD(Message, lines),
    KVPOOL_FIELD(Message, index),
    KVPOOL_FIELD(Message, status),
    KVPOOL_FIELD(Message, body),
    KVPOOL_FIELD(Message, crc),
    KVPOOL_FIELD(NoticeLine, epoch),
    KVPOOL_FIELD(NoticeLine, sequence),
    KVPOOL_FIELD(NoticeLine, incarnation),
    KVPOOL_FIELD(NoticeLine, recall_extents),
    KVPOOL_FIELD(NoticeLine, flags),
    KVPOOL_FIELD(NoticeLine, reserved0),
    KVPOOL_FIELD(NoticeLine, dead_incarnation),
    KVPOOL_FIELD(NoticeLine, dead_slot),
    KVPOOL_FIELD(NoticeLine, reserved1),
    KVPOOL_FIELD(NoticeLine, recall_from),
    KVPOOL_FIELD(NoticeLine, aborted),
    KVPOOL_FIELD(NoticeLine, reserved2),
    KVPOOL_FIELD(NoticeLine, crc),
    KVPOOL_FIELD(GrantBody, size_class),
    KVPOOL_FIELD(GrantBody, want),
    KVPOOL_FIELD(GrantBody, ns),
    KVPOOL_FIELD(GrantBody, run_extents),
    KVPOOL_FIELD(GrantAnswer, extent),
    KVPOOL_FIELD(GrantAnswer, block_count),
    KVPOOL_FIELD(GrantAnswer, flags),
    KVPOOL_FIELD(GrantAnswer, free_bits),
    KVPOOL_FIELD(PublishBody, key),
    KVPOOL_FIELD(PublishBody, check_hash),
    KVPOOL_FIELD(PublishBody, parent),
    KVPOOL_FIELD(PublishBody, length),
    KVPOOL_FIELD(PublishBody, locator_low),
    KVPOOL_FIELD(PublishBody, locator_high),
    KVPOOL_FIELD(PublishBody, flags),
    KVPOOL_FIELD(PublishBody, ns),
    KVPOOL_FIELD(PublishBody, ns_epoch),
    KVPOOL_FIELD(PublishBody, touch),
    KVPOOL_FIELD(PublishAnswer, entry),
    KVPOOL_FIELD(PublishAnswer, version),
    KVPOOL_FIELD(PendingBody, key),
    KVPOOL_FIELD(PendingBody, duration_ms),
    KVPOOL_FIELD(PendingBody, ns),
    KVPOOL_FIELD(PendingBody, reserved),
    KVPOOL_FIELD(RemoveBody, key),
    KVPOOL_FIELD(RemoveBody, version),
    KVPOOL_FIELD(ReturnBody, extent),
    KVPOOL_FIELD(ReturnBody, flags),
    KVPOOL_FIELD(PinBody, key),
    KVPOOL_FIELD(PinBody, ttl_ms),
    KVPOOL_FIELD(PinBody, reserved),
    KVPOOL_FIELD(PinAnswer, pin),
    KVPOOL_FIELD(PinAnswer, entry),
    KVPOOL_FIELD(PinAnswer, version),
    KVPOOL_FIELD(UnpinBody, pin),
    KVPOOL_FIELD(UnpinBody, entry),
    KVPOOL_FIELD(TouchBody, entry),
    KVPOOL_FIELD(NsOpenBody, fingerprint),
    KVPOOL_FIELD(NsOpenBody, name),
    KVPOOL_FIELD(NsOpenBody, quota_bytes),
    KVPOOL_FIELD(NsOpenBody, block_lines),
    KVPOOL_FIELD(NsOpenBody, weight),
    KVPOOL_FIELD(NsOpenBody, verify),
    KVPOOL_FIELD(NsOpenBody, create),
    KVPOOL_FIELD(NsOpenBody, reserved),
    KVPOOL_FIELD(NsAnswer, id),
    KVPOOL_FIELD(NsAnswer, epoch),
    KVPOOL_FIELD(NsControlBody, id),
    KVPOOL_FIELD(NsControlBody, epoch),
    KVPOOL_FIELD(NsControlBody, op),
    KVPOOL_FIELD(NsControlBody, reserved),
    KVPOOL_FIELD(NsControlBody, fingerprint),
    KVPOOL_FIELD(ReportExtentBody, extent),
    KVPOOL_FIELD(ReportExtentBody, size_class),
    KVPOOL_FIELD(ReportExtentBody, reserved),
    KVPOOL_FIELD(ReportExtentBody, hand_bits),
    KVPOOL_FIELD(ReportPinBody, key),
    KVPOOL_FIELD(ReportPinBody, pin_ttl_ms),
    KVPOOL_FIELD(ReportPinBody, version),
    KVPOOL_FIELD(ReportPinBody, entry),
    KVPOOL_FIELD(ResizeBody, pool_bytes),
    KVPOOL_FIELD(ResizeBody, extents),
    KVPOOL_FIELD(ResizeBody, reserved),
    KVPOOL_FIELD(ResizeAnswer, pool_bytes),
    KVPOOL_FIELD(ResizeAnswer, extents),
    KVPOOL_FIELD(ResizeAnswer, leaving),
    KVPOOL_FIELD(ResizeAnswer, held),
    KVPOOL_FIELD(ResizeAnswer, pinned),
    KVPOOL_FIELD(DeathAckBody, incarnation),
    KVPOOL_FIELD(DeathAckBody, slot),
    KVPOOL_FIELD(DeathAckBody, reserved),
    KVPOOL_FIELD(DeathAckBody, aborted),
    KVPOOL_FIELD(AbortBody, number),
    KVPOOL_FIELD(AbortAnswer, mark),
    KVPOOL_FIELD(AbortAnswer, reserved),
    KVPOOL_FIELD(DoorbellLine, counter),
#undef KVPOOL_FIELD
};

}  // namespace

Test(media_format_doc, every_field) {
  const std::string text = page();
  cr_assert(!text.empty(), "Documentation/format.md cannot be read");
  for (const Field &field : kFields) {
    const std::string part = section(text, field.structure);
    const std::string want =
        row("| %llu | %llu | `%s` |", static_cast<unsigned long long>(field.offset),
            static_cast<unsigned long long>(field.bytes), field.name);
    cr_expect(part.find(want) != std::string::npos, "section %s lacks: %s", field.structure,
              want.c_str());
  }
}

// And no field that is not there any more.
Test(media_format_doc, no_other_field) {
  const std::string text = page();
  u64 rows = 0;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    unsigned offset, bytes;
    rows += std::sscanf(line.c_str(), "| %u | %u | `", &offset, &bytes) == 2 &&
            line.find(" | `") != std::string::npos;
  }
  cr_expect(rows == sizeof(kFields) / sizeof(kFields[0]), "%llu rows",
            static_cast<unsigned long long>(rows));
}

Test(media_format_doc, size_classes) {
  const std::string part = section(page(), "Size classes");
  for (u32 c = 0; c < kSizeClasses; ++c) {
    const std::string want = row("| %u | %llu |", c,
                                 static_cast<unsigned long long>(class_bytes(c)));
    cr_expect(part.find(want) != std::string::npos, "%s", want.c_str());
  }
}

Test(media_format_doc, table_of_sizes) {
  struct Case {
    const char *name;
    u64 bytes;
    u32 devices;
  };
  constexpr u64 kMiB = u64{1} << 20, kGiB = u64{1} << 30, kTiB = u64{1} << 40;
  const std::string part = section(page(), "How large it is");
  for (const Case &c : {Case{"64 MiB", 64 * kMiB, 1}, Case{"64 MiB", 64 * kMiB, 2},
                        Case{"256 MiB", 256 * kMiB, 1}, Case{"1 GiB", kGiB, 1},
                        Case{"1 GiB", kGiB, 2}, Case{"64 GiB", 64 * kGiB, 2},
                        Case{"1 TiB", kTiB, 4}, Case{"8 TiB", 8 * kTiB, 8}}) {
    FormatOptions o;
    o.device_count = c.devices;
    for (u32 d = 0; d < c.devices; ++d) o.device_bytes[d] = c.bytes / c.devices;
    Layout l{};
    cr_assert(plan_layout(o, l, nullptr) == 0);
    const Geometry &g = l.geometry;
    const auto kib = [](u64 bytes) { return static_cast<unsigned long long>(bytes >> 10); };
    const std::string want = row(
        "| %s | %u | %u x %u | %u KiB | %u | %llu KiB | %llu KiB | %llu KiB | %llu MiB | %.2f %% |",
        c.name, c.devices, g.host_count, g.members_per_host, g.min_block_bytes >> 10,
        l.regions.extent_count(), kib(g.index_groups * kGroupLines * kLineBytes),
        kib(g.extent_lines * kLineBytes), kib(g.lines_end() - g.lines_byte()),
        kib(l.regions.payload_bytes()) >> 10,
        100.0 * static_cast<double>(metadata_bytes(g, l.regions)) /
            static_cast<double>(g.pool_bytes()));
    cr_expect(part.find(want) != std::string::npos, "lacks: %s", want.c_str());
  }
}

Test(media_format_doc, vectors) {
  const std::string text = page();
  u8 uuid[16];
  for (u32 i = 0; i < 16; ++i) uuid[i] = static_cast<u8>(0x10 + i);
  const Sealer sealer(uuid, 0x1122334455667788ull);
  Line line{};
  line.w[0] = 1;
  sealer.seal(line, PoolOffset(1, 0x1000), 0x10);
  const MapRecord record{255, 0xBEEF, 20, kMapTainted, 7};
  const u64 words[] = {crc32c_u64(0xFFFFFFFFu, 0), identity_seed(0),
                       sealer.seed(PoolOffset(0, 0x40), 0),
                       sealer.seed(PoolOffset(1, 0x1000), 0x10),
                       stored_crc(line)};
  for (u64 word : words) {
    cr_expect(text.find(row("| 0x%08llX |", static_cast<unsigned long long>(word))) < text.size());
  }
  Line zero{};
  CheckLanes none{}, one{};
  check_add_reference(one, &zero, 1, 0);
  const u64 table[] = {1, 2, 3};
  const u64 longs[] = {sealer.pack_map(record, PoolOffset(0, 0x2008), 0x10), check_fold(none, 0),
                       check_fold(one, 1), check_table_hash(table, 3), check_table_hash(table, 0)};
  for (u64 word : longs) {
    cr_expect(text.find(row("| 0x%016llX |", static_cast<unsigned long long>(word))) < text.size());
  }
  cr_expect(text.find(row("0x%016llX, 0x%016llX", static_cast<unsigned long long>(kCheckBase[0]),
                          static_cast<unsigned long long>(kCheckBase[7]))) < text.size());
}
