// SPDX-License-Identifier: Apache-2.0
// Shows: every line of a store is named and printed with its fields, and marked when it does not
// verify.
// How: each kind of line of a small store by its accessor, whole, damaged, and from another area.
#include <criterion/criterion.h>

#include "golden/image.hpp"
#include "media/decode.hpp"

using namespace kvpool;
using namespace kvpool::media;
using kvpool::test::golden_store;
using kvpool::test::Image;

namespace {

StoreView view_of(Image &image) {
  SuperblockRead read{};
  StoreView view{};
  cr_assert(read_superblock(image, read, nullptr) == 0);
  cr_assert(read_view(image, read, view, nullptr) == 0);
  return view;
}

void expect_line(Image &image, PoolOffset at, LineKind kind, const char *words) {
  const StoreView view = view_of(image);
  DecodedLine d = decode_line(view, at, image.line(at));
  cr_expect(d.place.kind == kind, "%s: %s", words, d.text.c_str());
  cr_expect(d.verifies, "%s: %s", words, d.text.c_str());
  cr_expect(d.text.find(words) != std::string::npos, "'%s' not in:\n%s", words, d.text.c_str());
  if (!d.sealed) return;
  Line damaged = image.line(at);
  damaged.w[2] ^= 256;
  d = decode_line(view, at, damaged);
  cr_expect(!d.verifies, "%s", words);
  cr_expect(d.text.find("does not verify") != std::string::npos, "%s:\n%s", words, d.text.c_str());
}

}  // namespace

Test(media_decode, every_kind_of_line) {
  Image image = golden_store();
  const Geometry &g = image.geo();
  HostLine host{};
  host.incarnation = 0x4242;
  image.put(g.host_at(0), host);
  Message message{};
  message.type = static_cast<u8>(MessageType::kPublish);
  message.lines = 2;
  image.put(g.request_line(1, 3), message);
  message.status = static_cast<u8>(MessageStatus::kExists);
  image.put(g.response_line(1, 1, 2, 1), message);
  NoticeLine notice{};
  notice.flags = kNoticeReport;
  image.put(g.notice_at(1, 0), notice);
  expect_line(image, g.identity_at(0), LineKind::kIdentity, "state: ready");
  expect_line(image, g.identity_at(1), LineKind::kIdentity, "magic: KVPOOL_1");
  expect_line(image, g.geometry_at(1, 0), LineKind::kGeometryA, "lease_ms: 2000");
  expect_line(image, g.geometry_at(0, 1), LineKind::kGeometryB, "area_bytes: ");
  expect_line(image, g.claim_at(1, 0), LineKind::kClaim, "counter 1, standby slot 0");
  expect_line(image, g.host_at(0), LineKind::kHost, "incarnation: 0x4242");
  expect_line(image, g.doorbell_at(0), LineKind::kDoorbell, "counter[15]: 0");
  expect_line(image, g.member_at(0), LineKind::kMember, "name: tester");
  expect_line(image, g.reaper_at(0), LineKind::kReaper, "state: none");
  expect_line(image, g.notice_at(1, 0), LineKind::kNotice, "flags: 0x1 report");
  expect_line(image, g.request_line(1, 3), LineKind::kRequest, "type: publish");
  expect_line(image, g.response_line(1, 1, 2, 1), LineKind::kResponse, "status: exists");
  expect_line(image, g.region_line(image.area(), 0), LineKind::kRegionHead, "state: used");
  expect_line(image, g.region_line(image.area(), 1), LineKind::kRegionPlaces, "place[0]: data");
  expect_line(image, g.ns_line(image.area(), 1), LineKind::kNamespace, "name: golden-model");
  const PoolOffset spare = g.ns_line(image.area(), g.ns_spare());
  expect_line(image, spare, LineKind::kNamespace, "spare line of: 3");
  image.line(spare) = image.line(g.ns_line(image.area(), 1));
  expect_line(image, spare, LineKind::kNamespace, "spare line of: 1");
  expect_line(image, spare, LineKind::kNamespace, "seal: verifies");
  expect_line(image, g.map_line(image.area(), 0), LineKind::kMap, "extent 0: holder 255 (owner)");
}

Test(media_decode, entries_and_payload) {
  Image image = golden_store();
  const StoreView view = view_of(image);
  u32 published = 0, pending = 0;
  for (u64 n = 0; n < image.geo().index_groups * kGroupLines; ++n) {
    const Entry e = image.entry(n);
    const DecodedLine d = decode_line(view, image.entry_at(n), image.line(image.entry_at(n)));
    cr_assert(d.verifies && d.place.kind == LineKind::kEntry && d.place.n == n);
    cr_assert(d.text.find("(active)") != std::string::npos);
    pending += d.text.find("posted by: member slot 0 for 500 ms") != std::string::npos;
    if (e.entry_state() != EntryState::kPublished) continue;
    ++published;
    const u64 address = e.locator() * kLocatorUnit;
    const PoolOffset payload = image.regions().data_at(address);
    const DecodedLine p = decode_line(view, payload, image.line(payload));
    cr_expect(p.place.kind == LineKind::kPayload && p.place.n == address);
    const PoolOffset check = check_line_at(image.regions(), block_shape(e), address, 0);
    const DecodedLine c = decode_line(view, check, image.line(check));
    cr_expect(c.text.find("shard: 0 of") != std::string::npos, "%s", c.text.c_str());
    cr_expect((c.place.kind == LineKind::kStrip) == block_shape(e).checks_in_strip());
  }
  cr_expect(published == 4 && pending == 1);
}

// Each line of the store that the verifier reads has a place, and the accessors lead back to it.
Test(media_decode, every_address_has_a_place) {
  Image image = golden_store();
  const StoreView view = view_of(image);
  u64 kinds[32] = {};
  for (u64 byte = 0; byte < image.device_bytes(0); byte += kLineBytes) {
    const PoolOffset at(0, byte);
    const DecodedLine d = decode_line(view, at, image.line(at));
    cr_assert(!d.text.empty());
    ++kinds[static_cast<u32>(d.place.kind)];
  }
  const Geometry &g = image.geo();
  const auto count = [&](LineKind kind) { return kinds[static_cast<u32>(kind)]; };
  cr_expect(count(LineKind::kIdentity) == 2 && count(LineKind::kClaim) == 2 * g.standby_count);
  cr_expect(count(LineKind::kRequest) == u64{g.member_count()} * g.request_lines);
  cr_expect(count(LineKind::kNotice) == u64{g.member_count()} * g.standby_count);
  cr_expect(count(LineKind::kEntry) == 4 * g.index_groups_max * kGroupLines);
  cr_expect(count(LineKind::kMap) == 4 * g.extent_lines);
  const u64 stripes = image.regions().extent_count();
  cr_expect(count(LineKind::kStrip) == stripes * kStripLinesPerStripe);
  cr_expect(count(LineKind::kPayload) == stripes * kStripeBytes / kLineBytes);
}

// A line of an area that nobody's claim names is shown, and said to be of unknown standing.
Test(media_decode, areas_that_are_not_active) {
  Image image = golden_store();
  const PoolOffset other = image.geo().area_at(1, 1);
  const DecodedLine d = decode_line(view_of(image), image.geo().entry_line(other, 3), Line{});
  cr_expect(d.place.kind == LineKind::kEntry && d.place.area_slot == 1 && d.place.area_which == 1);
  cr_expect(!d.verifies && !d.epoch_known);
}

// What members wrote is for people: nothing in it reaches a terminal as it is.
Test(media_decode, names_are_made_printable) {
  Image image = golden_store();
  auto m = image.get<MemberLine>(image.geo().member_at(0));
  std::memcpy(m.name, "\x1b[31mred\x07\xff", 11);
  image.put(image.geo().member_at(0), m);
  const PoolOffset at = image.geo().member_at(0);
  const DecodedLine d = decode_line(view_of(image), at, image.line(at));
  cr_expect(d.text.find("?[31mred??") != std::string::npos, "%s", d.text.c_str());
  cr_expect(d.text.find('\x1b') == std::string::npos);
}
