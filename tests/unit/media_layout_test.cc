// SPDX-License-Identifier: Apache-2.0
// Shows: no two structures of a store share a byte, all lie on their device, each extent has bytes
// of its own, defaults keep metadata under its share, and impossible wishes are refused by name.
// How: rapidcheck over devices and options: every accessor's range is listed, sorted and compared.
#include <criterion/criterion.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "media/layout.hpp"
#include "media/seal.hpp"

using namespace kvpool;
using namespace kvpool::media;

namespace {

constexpr u64 kMiB = u64{1} << 20, kGiB = kMiB << 10, kTiB = kGiB << 10;

struct Range {
  PoolOffset at;
  u64 bytes;
  const char *what;
};

class Ranges {
public:
  void add(const char *what, PoolOffset at, u64 bytes) { list_.push_back({at, bytes, what}); }
  // What is wrong, or an empty string.
  std::string fault(const Geometry &g) {
    std::sort(list_.begin(), list_.end(),
              [](const Range &a, const Range &b) { return a.at < b.at; });
    for (u64 i = 0; i < list_.size(); ++i) {
      const Range &r = list_[i];
      if (r.at.device() >= g.device_count) return std::string(r.what) + " on no device";
      if (r.at.byte() + r.bytes > g.device_bytes[r.at.device()]) {
        return std::string(r.what) + " past its device";
      }
      if (r.at.byte() % kLineBytes != 0) return std::string(r.what) + " not on a line";
      if (i > 0 && list_[i - 1].at.device() == r.at.device() &&
          list_[i - 1].at.byte() + list_[i - 1].bytes > r.at.byte()) {
        return std::string(list_[i - 1].what) + " overlaps " + r.what;
      }
    }
    return "";
  }

private:
  std::vector<Range> list_;
};

void add_lines(Ranges &ranges, const Geometry &g) {
  for (u32 copy = 0; copy < 2; ++copy) {
    ranges.add("identity", g.identity_at(copy), 64);
    for (u32 i = 0; i < 2; ++i) ranges.add("geometry", g.geometry_at(copy, i), 64);
    for (u32 s = 0; s < g.standby_count; ++s) ranges.add("claim", g.claim_at(copy, s), 64);
  }
  for (u32 d = 2; d < g.device_count; ++d) ranges.add("identity", PoolOffset(d, 0), 64);
  const auto both = [&](const char *what, PoolOffset at) {
    ranges.add(what, at, 64);
    if (g.control_devices == 2) ranges.add("twin", g.twin_of(at), 64);
  };
  for (u32 h = 0; h < g.host_count; ++h) {
    both("host", g.host_at(h));
    both("doorbell", g.doorbell_at(h));
  }
  for (u32 m = 0; m < g.member_count(); ++m) {
    both("member", g.member_at(m));
    both("reaper", g.reaper_at(m));
    for (u32 s = 0; s < g.standby_count; ++s) both("notice", g.notice_at(m, s));
    for (u32 i = 0; i < g.request_lines; ++i) both("request", g.request_line(m, i));
    for (u32 s = 0; s < g.standby_count; ++s) {
      for (u32 slot = 0; slot < g.response_slots; ++slot) {
        for (u32 i = 0; i < kResponseSlotLines; ++i) {
          both("response", g.response_line(m, s, slot, i));
        }
      }
    }
  }
}

void add_areas(Ranges &ranges, const Geometry &g) {
  for (u32 s = 0; s < g.standby_count; ++s) {
    for (u32 which = 0; which < 2; ++which) {
      const PoolOffset area = g.area_at(s, which);
      ranges.add("regions", g.region_line(area, 0), kRegionTableLines * 64);
      ranges.add("namespaces", g.ns_line(area, 0), u64{g.namespace_lines} * 64);
      ranges.add("map", g.map_line(area, 0), g.extent_lines * 64);
      ranges.add("index", g.entry_line(area, 0), g.index_groups_max * kGroupLines * 64);
    }
  }
}

// Ends of the structures that are too many to list one by one are listed too.
void add_payload(Ranges &ranges, const RegionTable &table) {
  const u64 stripes = u64{table.extent_count()} * table.extent_stripes;
  const u64 step = stripes / 4000 + 1;  // all of them in small stores
  for (u64 s = 0; s < stripes; ++s) {
    if (s % step != 0 && s + 1 != stripes) continue;
    const auto extent = static_cast<u32>(s / table.extent_stripes);
    const u64 stripe = s % table.extent_stripes;
    ranges.add("stripe", table.data_at(extent, stripe * kStripeBytes), kStripeBytes);
    ranges.add("strip", table.strip_line(extent, stripe * kStripLinesPerStripe),
               kStripBytesPerStripe);
  }
}

std::string layout_fault(const Layout &layout) {
  Ranges ranges;
  add_lines(ranges, layout.geometry);
  add_areas(ranges, layout.geometry);
  add_payload(ranges, layout.regions);
  return ranges.fault(layout.geometry);
}

FormatOptions equal_devices(u32 count, u64 bytes) {
  FormatOptions o;
  o.device_count = count;
  for (u32 d = 0; d < count; ++d) o.device_bytes[d] = bytes;
  return o;
}

Layout planned(const FormatOptions &options) {
  Layout layout{};
  std::string why;
  const int err = plan_layout(options, layout, &why);
  cr_assert(err == 0, "%s", why.c_str());
  return layout;
}

FormatOptions random_options() {
  FormatOptions o = equal_devices(*rc::gen::inRange<u32>(1, 9), 0);
  const u64 bytes = *rc::gen::inRange<u64>(4, 600) * kMiB + *rc::gen::inRange<u64>(0, kMiB);
  const bool equal = *rc::gen::arbitrary<bool>();
  for (u32 d = 0; d < o.device_count; ++d) {
    o.device_bytes[d] = equal ? bytes : *rc::gen::inRange<u64>(0, 400) * kMiB + d * 12345;
  }
  const auto maybe = [](u32 low, u32 high) {
    return *rc::gen::arbitrary<bool>() ? 0 : *rc::gen::inRange<u32>(low, high);
  };
  o.hosts = maybe(1, 5);
  o.members_per_host = maybe(1, 8);
  o.standbys = maybe(1, 5);
  o.width = maybe(1, 9);
  o.namespaces = maybe(1, 300);
  o.min_block_bytes = maybe(1, 64) * 16384;
  o.lines_per_block = maybe(1, 5);
  o.extent_stripes = maybe(1, 6);
  o.index_growth = maybe(1, 4);
  o.request_lines = maybe(8, 100);
  o.block_bytes = maybe(1, 10000) * u64{1000};
  return o;
}

}  // namespace

Test(media_layout, nothing_overlaps) {
  const bool ok = rc::check("structures are disjoint and on their devices", []() {
    const FormatOptions options = random_options();
    Layout layout{};
    std::string why;
    const int err = plan_layout(options, layout, &why);
    RC_ASSERT(err == 0 || err == -ENOSPC);
    RC_CLASSIFY(err == 0, "fits");
    RC_CLASSIFY(err == 0 && layout.regions.count > 1, "several regions");
    if (err != 0) {
      RC_ASSERT(!why.empty());
      return;
    }
    RC_ASSERT(layout_fault(layout) == "");
  });
  cr_expect(ok);
}

// A new life has the sizes and options of the one before, as far as they stand in the superblock.
Test(media_layout, options_of_a_store_make_it_again) {
  const bool ok = rc::check("planned again it is the same", []() {
    FormatOptions options = random_options();
    u64 bytes = 0;
    for (u32 d = 0; d < options.device_count; ++d) bytes += options.device_bytes[d];
    const bool largest = *rc::gen::arbitrary<bool>();
    if (largest) options.max_bytes = bytes * *rc::gen::inRange<u64>(1, 65);
    options.lease_ms = *rc::gen::inRange<u32>(10, 5000);
    options.grace_us = *rc::gen::inRange<u32>(1, 5000);
    options.delta_us = *rc::gen::inRange<u32>(1, 5000);
    const u8 hosts[kMaxStandbys] = {0, kAnyHost, 0};
    if (*rc::gen::arbitrary<bool>()) options.standby_host = hosts;
    Layout first{}, again{};
    std::string why;
    const int err = plan_layout(options, first, &why);
    if (err == -ENOSPC) return;
    RC_ASSERT(err == 0);
    RC_ASSERT(plan_layout(options_of(first.geometry), again, &why) == 0);
    const auto same = [](const auto &one, const auto &two) {
      return std::memcmp(&one, &two, sizeof one) == 0;
    };
    const Geometry &a = first.geometry, &b = again.geometry;
    for (u32 d = 0; d < options.device_count; ++d) {
      RC_ASSERT(same(make_identity(a, d, a.state), make_identity(b, d, b.state)));
    }
    RC_ASSERT(same(make_geometry_a(a), make_geometry_a(b)));
    RC_ASSERT(same(make_geometry_b(a), make_geometry_b(b)));
    RC_ASSERT(first.regions == again.regions);
  });
  cr_expect(ok);
}

Test(media_layout, large_stores_do_not_overlap) {
  for (u32 count : {1u, 2u, 8u, 16u}) {
    FormatOptions o = equal_devices(count, 8 * kTiB / count);
    cr_expect(layout_fault(planned(o)) == "", "%u devices", count);
    o.width = 3;
    o.extent_stripes = 4;
    cr_expect(layout_fault(planned(o)) == "", "%u devices of width 3", count);
  }
}

Test(media_layout, every_extent_has_its_own_bytes) {
  FormatOptions o = equal_devices(5, 40 * kMiB);
  o.device_bytes[1] = 70 * kMiB;
  o.device_bytes[4] = 20 * kMiB;
  o.extent_stripes = 3;
  const Layout layout = planned(o);
  const RegionTable &table = layout.regions;
  cr_assert(table.count >= 2, "unequal devices give several regions");
  std::set<u64> seen;
  for (u32 e = 0; e < table.extent_count(); ++e) {
    for (u64 unit = 0; unit < table.extent_bytes() / kStripLineCovers; ++unit) {
      cr_assert(seen.insert(table.data_at(e, unit * kStripLineCovers).raw()).second);
      cr_assert(seen.insert(table.strip_line(e, unit).raw()).second);
    }
  }
  cr_expect(table.data_at(table.extent_count(), 0) == kNoOffset);
  cr_expect(table.region_of(table.extent_count()) == kNoRegion);
  const u32 border = table.region[1].first_extent;
  cr_expect(table.one_region(border - 1, 1) && !table.one_region(border - 1, 2));
  cr_expect(table.one_region(border, table.extent_count() - border) == (table.count == 2));
  cr_expect(table.holds(table.address(border, 0), table.extent_bytes()));
  cr_expect(!table.holds(table.address(border, 0) - 256, 512), "across two regions");
  cr_expect(!table.holds(table.payload_bytes(), 256));
  cr_expect(!table.holds(~u64{0} - 255, 512));
}

Test(media_layout, addresses_and_extents) {
  const Layout layout = planned(equal_devices(3, 64 * kMiB));
  const RegionTable &t = layout.regions;
  for (u32 e = 0; e < t.extent_count(); ++e) {
    const u64 address = t.address(e, 777 * 64);
    cr_expect(t.extent_of(address) == e && t.byte_of(address) == 777 * 64);
    cr_expect(t.data_at(address) == t.data_at(e, 0) + 777 * 64);
  }
  // Extents of one stripe go round the devices.
  const Region &r = t.region[0];
  for (u32 e = 0; e < r.extent_count; ++e) {
    cr_expect(t.data_at(e, 0).device() == r.device[e % r.place_count]);
  }
}

// The shares of the defaults: under 8 % below 256 MiB, under 2 % from there.
Test(media_layout, metadata_keeps_its_share) {
  struct Case {
    u64 bytes;
    u32 devices;
  };
  for (const Case &c : {Case{64 * kMiB, 1}, Case{64 * kMiB, 2}, Case{128 * kMiB, 1},
                        Case{256 * kMiB, 1}, Case{512 * kMiB, 2}, Case{kGiB, 1}, Case{kGiB, 2},
                        Case{4 * kGiB, 4}, Case{64 * kGiB, 2}, Case{kTiB, 8}, Case{8 * kTiB, 8},
                        Case{8 * kTiB, 1}}) {
    const Layout l = planned(equal_devices(c.devices, c.bytes / c.devices));
    const u64 share = metadata_bytes(l.geometry, l.regions) * 1000 / c.bytes;
    cr_expect(share < (c.bytes < 256 * kMiB ? 80u : 20u), "%llu MiB on %u: %llu/1000",
              static_cast<unsigned long long>(c.bytes / kMiB), c.devices,
              static_cast<unsigned long long>(share));
  }
}

Test(media_layout, superblock_round_trip) {
  const Layout layout = planned(equal_devices(4, 300 * kMiB));
  Geometry g = layout.geometry;
  g.nonce = 5;
  for (u32 d = 0; d < 4; ++d) {
    const Identity id = make_identity(g, d, StoreState::kReady);
    Geometry back{};
    std::string why;
    cr_expect(decode_geometry(id, make_geometry_a(g), make_geometry_b(g), g.device_bytes, back,
                              &why) == 0,
              "%s", why.c_str());
    g.state = StoreState::kReady;
    cr_expect(back == g);
  }
}

Test(media_layout, regions_round_trip) {
  FormatOptions o = equal_devices(16, 64 * kMiB);
  o.device_bytes[3] = 90 * kMiB;
  o.width = 5;
  const Layout layout = planned(o);
  cr_assert(layout.regions.count > 3);
  Line lines[kRegionTableLines];
  encode_regions(layout.regions, lines);
  RegionTable back{};
  std::string why;
  cr_expect(decode_regions(lines, layout.geometry, back, &why) == 0, "%s", why.c_str());
  cr_expect(back == layout.regions);
}

namespace {

// Bad regions are refused, whatever is wrong with them.
int decode_edited(const Layout &layout, u32 line, void (*edit)(Line &), std::string &why) {
  Line lines[kRegionTableLines];
  encode_regions(layout.regions, lines);
  edit(lines[line]);
  RegionTable back{};
  return decode_regions(lines, layout.geometry, back, &why);
}
template <class T, auto Field, auto Value>
void set(Line &line) {
  T value = from_line<T>(line);
  value.*Field = Value;
  line = to_line(value);
}

}  // namespace

Test(media_layout, bad_regions_are_refused) {
  const Layout l = planned(equal_devices(2, 64 * kMiB));
  std::string why;
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::first_extent, 1u>, why) == -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::extent_count, 0u>, why) == -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::extent_count, 9999u>, why) ==
            -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::place_count, u8{0}>, why) ==
            -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::place_count, u8{17}>, why) ==
            -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::state, u8{9}>, why) == -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::retired_extents, 9999u>, why) ==
            -EUCLEAN);
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::retired_extents, 1u>, why) == 0);
  {
    RegionTable grown{};
    cr_assert(plan_resize(l.geometry, l.regions, 256 * kMiB, grown, nullptr) == 0);
    const Layout longer{l.geometry, grown};
    const auto retire_first = set<RegionHead, &RegionHead::retired_extents, 1u>;
    cr_expect(decode_edited(longer, 0, retire_first, why) == -EUCLEAN);
    cr_expect(why.find("behind retired") < why.size());
  }
  cr_expect(decode_edited(l, 0, set<RegionHead, &RegionHead::state, kRegionUnused>, why) ==
            -EUCLEAN);
  cr_expect(decode_edited(l, 8, set<RegionHead, &RegionHead::state, kRegionUsed>, why) ==
            -EUCLEAN);
  const auto to_control = [](Line &line) {
    auto places = from_line<RegionPlaces>(line);
    places.place[1].strip_page = 0;
    line = to_line(places);
  };
  cr_expect(decode_edited(l, 1, to_control, why) == -EUCLEAN && why.find("control") < why.size());
  const auto past_end = [](Line &line) {
    auto places = from_line<RegionPlaces>(line);
    places.place[1].data_page += 1'000'000;
    line = to_line(places);
  };
  cr_expect(decode_edited(l, 1, past_end, why) == -EUCLEAN && why.find("past") < why.size());
  const auto onto_strip = [](Line &line) {
    auto places = from_line<RegionPlaces>(line);
    places.place[1].data_page = places.place[1].strip_page;
    line = to_line(places);
  };
  cr_expect(decode_edited(l, 1, onto_strip, why) == -EUCLEAN && why.find("share") < why.size());
}

// ---- growing and shrinking ----

namespace {

// Every stripe and strip line of extents in use, in pieces that no two of them share.
void stands_apart(const Geometry &g, const RegionTable &table) {
  std::vector<std::pair<u64, u64>> used[kMaxDevices];
  for (u32 x = 0; x < table.extents_in_use(); ++x) {
    for (u64 s = 0; s < table.extent_stripes; ++s) {
      const PoolOffset data = table.data_at(x, s * kStripeBytes);
      const PoolOffset strip = table.strip_line(x, s * kStripLinesPerStripe);
      RC_ASSERT(data != kNoOffset && strip != kNoOffset);
      used[data.device()].emplace_back(data.byte(), data.byte() + kStripeBytes);
      used[strip.device()].emplace_back(strip.byte(), strip.byte() + kStripBytesPerStripe);
    }
  }
  for (u32 d = 0; d < g.device_count; ++d) {
    std::sort(used[d].begin(), used[d].end());
    u64 end = g.control_end(d);
    for (const auto &[from, to] : used[d]) {
      RC_ASSERT(from >= end);
      end = to;
    }
    RC_ASSERT(used[d].empty() || end <= table.places_end(d, true));
    RC_ASSERT(device_end(g, table, d) <= g.room_bytes(d));
  }
}

}  // namespace

// Any sizes in any order: extents that stay have the place they had, no two share a byte, the table
// survives its encoding, and a size that was refused changes nothing.
Test(media_layout, resizing_moves_nothing) {
  const bool ok = rc::check("plan_resize", []() {
    FormatOptions o = equal_devices(*rc::gen::inRange<u32>(1, 4), 32 * kMiB);
    if (*rc::gen::arbitrary<bool>()) o.device_bytes[0] = 44 * kMiB;
    o.extent_stripes = *rc::gen::inRange<u32>(1, 4);
    o.width = *rc::gen::inRange<u32>(1, o.device_count + 1);
    o.map_growth = 8;
    Layout l{};
    RC_ASSERT(plan_layout(o, l, nullptr) == 0);
    const Geometry &g = l.geometry;
    const u64 unit = kStripeBytes * g.device_count;
    RegionTable table = l.regions;
    RC_ASSERT(pool_bytes_in_use(g, table) == g.pool_bytes());
    for (u32 step = 0; step < 8; ++step) {
      const u64 wanted = *rc::gen::inRange<u64>(1, 160) * unit;
      RegionTable next = table;
      std::string why;
      const int err = plan_resize(g, table, wanted, next, &why);
      RC_CLASSIFY(err == 0, "resized");
      if (err != 0) {
        RC_ASSERT(next == table && !why.empty());
        continue;
      }
      const u64 size = pool_bytes_in_use(g, next);
      RC_ASSERT(size <= wanted || size == pool_bytes_in_use(g, table));
      RC_ASSERT(wanted < size + 2 * unit * g.extent_stripes + 2 * unit);
      for (u32 x = 0; x < std::min(table.extents_in_use(), next.extents_in_use()); ++x) {
        RC_ASSERT(table.data_at(x, 0) == next.data_at(x, 0));
        RC_ASSERT(table.strip_line(x, 0) == next.strip_line(x, 0));
      }
      RC_ASSERT(next.extent_count() >= table.extent_count());
      stands_apart(g, next);
      RC_ASSERT(next.data_at(next.extents_in_use(), 0) == kNoOffset);
      Line lines[kRegionTableLines];
      encode_regions(next, lines);
      RegionTable back{};
      RC_ASSERT(decode_regions(lines, g, back, &why) == 0);
      RC_ASSERT(back == next);
      table = next;
    }
  });
  cr_expect(ok);
}

// Guards: a region of one extent of two stripes over three devices has nothing on the third, where
// the next region begins: that was taken for an overlap, and the table written was not readable.
Test(media_layout, region_may_leave_a_device_empty) {
  FormatOptions o = equal_devices(3, 32 * kMiB);
  o.extent_stripes = 2;
  o.width = 3;
  o.map_growth = 8;
  const Layout l = planned(o);
  RegionTable table = l.regions;
  bool empty = false;
  for (const u64 rows : {87, 89, 94}) {
    std::string why;
    cr_assert_eq(plan_resize(l.geometry, table, rows * 3 * kStripeBytes, table, &why), 0, "%s",
                 why.c_str());
    const Region &last = table.region[table.count - 1];
    empty |= table.rows_of(last, last.extent_count, 2) == 0;
    Line lines[kRegionTableLines];
    encode_regions(table, lines);
    RegionTable back{};
    cr_expect_eq(decode_regions(lines, l.geometry, back, &why), 0, "%lu: %s", rows, why.c_str());
    cr_expect(back == table);
  }
  cr_expect(empty);
}

Test(media_layout, sizes_are_refused_by_name) {
  FormatOptions o = equal_devices(2, 32 * kMiB);
  o.map_growth = 2;
  const Layout l = planned(o);
  const auto refused = [&](u64 bytes) {
    RegionTable to{};
    std::string why;
    const int err = plan_resize(l.geometry, l.regions, bytes, to, &why);
    cr_expect(err != 0 && !why.empty());
    return err;
  };
  cr_expect(refused(u64{1} << 62) == -EFBIG);  // at once, whatever asks for it
  cr_expect(refused(65 * kMiB) == -EINVAL);
  cr_expect(refused(0) == -EINVAL);
  cr_expect(refused(4 * kMiB) == -ERANGE);
  cr_expect(refused(4 * kGiB) == -EFBIG);
  o = equal_devices(2, 64 * kMiB);
  o.extent_stripes = 4;
  const Layout large = planned(o);
  RegionTable to{};
  cr_expect(plan_resize(large.geometry, large.regions, 132 * kMiB, to, nullptr) == -ERANGE);
  cr_expect(plan_resize(large.geometry, large.regions, 128 * kMiB, to, nullptr) == 0);
  cr_expect(to == large.regions);
}

// Where room for a size was asked for at format, the pool grows to that size, and not much further.
Test(media_layout, room_is_what_was_asked_for) {
  for (const u32 devices : {1u, 3u}) {
    for (const u64 size : {64 * kMiB, 10 * kGiB, 2 * kTiB}) {
      FormatOptions o = equal_devices(devices, size);
      for (const u64 times : {1u, 4u, 5u}) {
        o.max_bytes = times == 4 ? 0 : size * devices * times;  // four times is the default
        const Layout l = planned(o);
        const u64 most = largest_pool_bytes(l.geometry, l.regions);
        cr_expect_geq(most, size * devices * times, "%lu MiB", most / kMiB);
        cr_expect_leq(most, size * devices * times * 103 / 100 + kGiB * devices);
        RegionTable to{};
        cr_expect_eq(plan_resize(l.geometry, l.regions, size * devices * times, to, nullptr), 0);
        cr_expect_eq(pool_bytes_in_use(l.geometry, to), size * devices * times);
      }
    }
  }
  FormatOptions o = equal_devices(1, 64 * kMiB);
  o.max_bytes = 63 * kMiB;
  Layout l{};
  cr_expect_eq(plan_layout(o, l, nullptr), -EINVAL);
  o.max_bytes = 65 * 64 * kMiB;
  cr_expect_eq(plan_layout(o, l, nullptr), -EINVAL);
}

// What is given back is exactly the stripes of the extents that went.
Test(media_layout, retired_bytes_are_those_of_retired_extents) {
  const Layout l = planned(equal_devices(2, 32 * kMiB));
  RegionTable to{};
  cr_assert(plan_resize(l.geometry, l.regions, 128 * kMiB, to, nullptr) == 0);
  cr_expect(pool_bytes_in_use(l.geometry, to) == 128 * kMiB);
  const RegionTable grown = to;
  cr_assert(plan_resize(l.geometry, grown, 48 * kMiB, to, nullptr) == 0);
  cr_expect(pool_bytes_in_use(l.geometry, to) == 48 * kMiB);
  cr_expect(to.retired == 40);
  DeviceRange ranges[kMaxRegions * kMaxDevices];
  const u32 n = retired_ranges(to, ranges);
  u64 bytes = 0;
  for (u32 i = 0; i < n; ++i) bytes += ranges[i].end - ranges[i].begin;
  cr_expect(bytes == 80 * kMiB);
  for (u32 x = 0; x < grown.extents_in_use(); ++x) {
    const PoolOffset at = grown.data_at(x, 0);
    bool inside = false;
    for (u32 i = 0; i < n; ++i) {
      inside |= ranges[i].device == at.device() && at.byte() >= ranges[i].begin &&
                at.byte() < ranges[i].end;
    }
    cr_expect(inside == (x >= to.extents_in_use()), "extent %u", x);
  }
  cr_assert(plan_resize(l.geometry, to, 128 * kMiB, to, nullptr) == 0);
  cr_expect(to == grown, "what was retired is taken back first");
}

// Any numbers whatever in the geometry lines are refused or keep every accessor on its device.
Test(media_layout, decoded_geometry_is_safe) {
  const bool ok = rc::check("decode_geometry lets nothing through", []() {
    Layout layout{};
    RC_ASSERT(plan_layout(equal_devices(2, 64 * kMiB), layout, nullptr) == 0);
    Geometry g = layout.geometry;
    g.nonce = 1;
    Line line[2] = {to_line(make_geometry_a(g)), to_line(make_geometry_b(g))};
    const u32 changes = *rc::gen::inRange<u32>(1, 4);
    for (u32 i = 0; i < changes; ++i) {
      auto *bytes = reinterpret_cast<u8 *>(&line[*rc::gen::inRange<u32>(0, 2)]);
      bytes[*rc::gen::inRange<u32>(0, 60)] = *rc::gen::arbitrary<u8>();
    }
    Geometry back{};
    std::string why;
    const int err = decode_geometry(make_identity(g, 0, StoreState::kReady),
                                    from_line<GeometryA>(line[0]), from_line<GeometryB>(line[1]),
                                    g.device_bytes, back, &why);
    RC_CLASSIFY(err == 0, "accepted");
    RC_ASSERT(err == 0 || err == -EUCLEAN);
    if (err != 0) {
      RC_ASSERT(!why.empty());
      return;
    }
    const u32 m = back.member_count() - 1, s = back.standby_count - 1;
    const PoolOffset last[] = {
        back.response_line(m, s, back.response_slots - 1, 1),
        back.request_line(m, back.request_lines - 1),
        back.entry_line(back.area_at(s, 0), back.index_groups_max * kGroupLines - 1),
        back.entry_line(back.area_at(s, 1), back.index_groups_max * kGroupLines - 1),
    };
    for (PoolOffset at : last) {
      RC_ASSERT(at.device() < back.device_count);
      RC_ASSERT(at.byte() + kLineBytes <= back.device_bytes[at.device()]);
    }
  });
  cr_expect(ok);
}

Test(media_layout, too_small_names_the_smallest_size) {
  for (u32 devices : {1u, 2u, 8u}) {
    Layout layout{};
    std::string why;
    cr_expect(plan_layout(equal_devices(devices, 64 * 1024), layout, &why) == -ENOSPC);
    const char *needs = std::strstr(why.c_str(), "needs ");
    cr_assert(needs != nullptr, "%s", why.c_str());
    const u64 kib = std::strtoull(needs + 6, nullptr, 10);
    cr_expect(plan_layout(equal_devices(devices, kib * 1024), layout, &why) == 0, "%s",
              why.c_str());
    cr_expect_eq(kib * 1024 % kStripeBytes, 0, "devices come in whole stripes");
    const u64 less = kib * 1024 - kStripeBytes;
    cr_expect(plan_layout(equal_devices(devices, less), layout, &why) == -ENOSPC);
  }
  Layout layout{};
  cr_expect(plan_layout(equal_devices(1, 0), layout, nullptr) == -ENOSPC);
}

Test(media_layout, refuses_by_name) {
  const auto refused = [](void (*change)(FormatOptions &), const char *name) {
    FormatOptions o = equal_devices(2, 64 * kMiB);
    change(o);
    Layout layout{};
    std::string why;
    cr_expect(plan_layout(o, layout, &why) == -EINVAL, "%s", name);
    cr_expect(why.find(name) != std::string::npos, "%s: %s", name, why.c_str());
  };
  refused([](FormatOptions &o) { o.device_count = 0; }, "devices");
  refused([](FormatOptions &o) { o.device_count = 17; }, "devices");
  refused([](FormatOptions &o) { o.device_bytes[1] = ~u64{0}; }, "device 1");
  refused([](FormatOptions &o) { o.hosts = 17; }, "hosts");
  refused([](FormatOptions &o) { o.hosts = 16, o.members_per_host = 16; }, "members");
  refused([](FormatOptions &o) { o.standbys = 17; }, "standby slots");
  refused([](FormatOptions &o) { o.namespaces = 5000; }, "namespaces");
  refused([](FormatOptions &o) { o.min_block_bytes = 100; }, "smallest block");
  refused([](FormatOptions &o) { o.extent_stripes = 33; }, "stripes of an extent");
  refused([](FormatOptions &o) { o.response_slots = 100; }, "response slots");
  refused([](FormatOptions &o) { o.request_lines = 3; }, "request lines");
  refused([](FormatOptions &o) { o.lease_ms = 1; }, "lease");
  static const u8 kNoSuchHost[16] = {0, 16};
  refused([](FormatOptions &o) { o.standby_host = kNoSuchHost; }, "standby slot 1");
}

// Blocks that waste more than a tenth of a 2 MiB extent get larger extents; others do not.
Test(media_layout, extents_fit_the_usual_block) {
  const auto stripes = [](u64 block) {
    FormatOptions o = equal_devices(1, 4 * kGiB);
    o.block_bytes = block;
    return planned(o).geometry.extent_stripes;
  };
  cr_expect(stripes(0) == 1 && stripes(65536) == 1 && stripes(kMiB) == 1);
  cr_expect(stripes(2 * kMiB) == 1 && stripes(4 * kMiB) == 1);
  cr_expect(stripes(20480 * 128) == 5, "2.5 MiB: four in 10 MiB");
  cr_expect(stripes(3 * kMiB) > 1);
}
