// SPDX-License-Identifier: Apache-2.0
// Choosing and checking where everything of a store lies.
#include "media/layout.hpp"

#include <algorithm>
#include <bit>
#include <cstdarg>
#include <cstdio>


namespace kvpool::media {
namespace {

constexpr u64 kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024, kTiB = kGiB * 1024;
constexpr u32 kMapGrowthMax = 64;
constexpr u32 kFewestExtents = 2;
constexpr u64 kFewestGroups = 16;
constexpr u32 kRequestLinesMin = 8, kRequestLinesMax = 32768;
constexpr u32 kResponseSlotsMin = 4, kResponseSlotsMax = 4096;  // a mailbox tracks no more
constexpr u64 kGroupsMax = u64{1} << 30;  // entries have 32-bit numbers

__attribute__((format(printf, 3, 4))) int fail(std::string *why, int err, const char *text, ...) {
  if (why != nullptr) {
    char buffer[256];
    va_list args;
    va_start(args, text);
    std::vsnprintf(buffer, sizeof(buffer), text, args);
    va_end(args);
    *why = buffer;
  }
  return err;
}

u64 div_up(u64 n, u64 unit) { return (n + unit - 1) / unit; }

// ---- defaults -----------------------------------------------------------------------------------

struct SizeDefaults {
  u64 below;  // pools smaller than this
  u32 hosts, members_per_host, namespaces, min_block_bytes, index_growth;
};
constexpr SizeDefaults kDefaults[] = {
    {256 * kMiB, 2, 8, 64, 16 * kKiB, 1},
    {1 * kGiB, 4, 8, 256, 64 * kKiB, 1},
    {64 * kGiB, 4, 16, 256, 64 * kKiB, 1},
    {1 * kTiB, 16, 15, 1024, 256 * kKiB, 1},
    {~u64{0}, 16, 15, 1024, 1 * kMiB, 4},
};
constexpr u32 kDefaultCount = sizeof(kDefaults) / sizeof(kDefaults[0]);

u32 default_row(u64 pool_bytes) {
  u32 row = 0;
  while (row + 1 < kDefaultCount && pool_bytes >= kDefaults[row].below) ++row;
  return row;
}

u32 pick(u32 wanted, u32 otherwise) { return wanted != 0 ? wanted : otherwise; }

// Share of the pool that metadata may take, in 1/1000 (proto 5).
u64 metadata_budget(u64 pool_bytes) {
  return pool_bytes / 1000 * (pool_bytes < 256 * kMiB ? 80 : 20);
}

int check_devices(const FormatOptions &options, std::string *why) {
  if (options.device_count == 0 || options.device_count > kMaxDevices) {
    return fail(why, -EINVAL, "a store has 1 to %u devices, not %u", kMaxDevices,
                options.device_count);
  }
  for (u32 d = 0; d < options.device_count; ++d) {
    if (options.device_bytes[d] > PoolOffset::kByteMask) {
      return fail(why, -EINVAL, "device %u is larger than 64 PiB", d);
    }
  }
  return 0;
}

struct Range {
  const char *name;
  u64 value, low, high;  // a value of 0 stands for the default
};

int check_options(const FormatOptions &o, std::string *why) {
  const Range ranges[] = {
      {"hosts", o.hosts, 1, kMaxHosts},
      {"members per host", o.members_per_host, 1, kMaxMembersPerHost},
      {"standby slots", o.standbys, 1, kMaxStandbys},
      {"width", o.width, 1, kMaxDevices},
      {"namespaces", o.namespaces, 1, kMaxNamespaces},
      {"smallest block", o.min_block_bytes, kSmallestClassBytes, 64 * kMiB},
      {"index lines for each block", o.lines_per_block, 1, 64},
      {"block", o.block_bytes, 1, kPayloadLinesMax * kLineBytes},
      {"stripes of an extent", o.extent_stripes, 1, kExtentStripesMax},
      {"index growth", o.index_growth, 1, 64},
      {"map growth", o.map_growth, 1, kMapGrowthMax},
      {"request lines", o.request_lines, kRequestLinesMin, kRequestLinesMax},
      {"response slots", o.response_slots, kResponseSlotsMin, kResponseSlotsMax},
      {"lease in ms", o.lease_ms, 10, 3600 * 1000},
      {"settling bound in us", o.delta_us, 1, 1000 * 1000},
      {"grace in us", o.grace_us, 1, 60 * 1000 * 1000},
  };
  for (const Range &r : ranges) {
    if (r.value == 0 || (r.value >= r.low && r.value <= r.high)) continue;
    return fail(why, -EINVAL, "%s: %llu is not between %llu and %llu", r.name,
                static_cast<unsigned long long>(r.value), static_cast<unsigned long long>(r.low),
                static_cast<unsigned long long>(r.high));
  }
  u64 size = 0;
  for (u32 d = 0; d < o.device_count; ++d) size += o.device_bytes[d];
  if (o.max_bytes != 0 && (o.max_bytes < size || o.max_bytes / kMapGrowthMax > size)) {
    return fail(why, -EINVAL, "largest size: %llu MiB is not between the size and %u times as much",
                static_cast<unsigned long long>(o.max_bytes / kMiB), kMapGrowthMax);
  }
  if (o.response_slots != 0 && !std::has_single_bit(o.response_slots)) {
    return fail(why, -EINVAL, "response slots: %u is not a power of two", o.response_slots);
  }
  return 0;
}

// ---- stripes and regions ------------------------------------------------------------------------

u64 data_align(u64 device_bytes) {
  return device_bytes >= kBigDeviceBytes ? kStripeBytes : kPageBytes;
}

u64 data_start(const Geometry &g, u32 device, u64 strip_bytes) {
  const u64 align = data_align(g.device_bytes[device]);
  return Geometry::round_up(g.control_end(device) + strip_bytes, align);
}

// Stripes that fit when their check lines stand in one piece.
u64 stripes_that_fit(const Geometry &g, u32 device) {
  const u64 bytes = g.device_bytes[device];
  const u64 begin = g.control_end(device);
  if (bytes <= begin) return 0;
  u64 stripes = (bytes - begin) / (kStripeBytes + kStripBytesPerStripe);
  while (stripes > 0 &&
         data_start(g, device, Geometry::round_up(stripes * kStripBytesPerStripe, kPageBytes)) +
                 stripes * kStripeBytes > bytes) {
    --stripes;
  }
  return stripes;
}

struct RegionPlan {
  u32 count = 0;
  u64 rows[kMaxRegions] = {};
  u32 place_count[kMaxRegions] = {};
  u8 device[kMaxRegions][kMaxDevices] = {};
};

// Deals the free stripes to regions: the `width` devices with most of them make a region as long as
// the least of these, and so on with what is left.
RegionPlan deal_regions(const Geometry &g, const u64 (&stripes)[kMaxDevices]) {
  u64 free[kMaxDevices];
  std::copy(std::begin(stripes), std::end(stripes), free);
  RegionPlan plan;
  while (plan.count < kMaxRegions) {
    u8 order[kMaxDevices];
    u32 n = 0;
    for (u32 d = 0; d < g.device_count; ++d) {
      if (free[d] > 0) order[n++] = static_cast<u8>(d);
    }
    std::stable_sort(order, order + n, [&](u8 a, u8 b) { return free[a] > free[b]; });
    n = std::min<u32>(n, g.width);
    while (n > 0 && free[order[n - 1]] * n < g.extent_stripes) --n;
    if (n == 0) break;
    const u64 rows = free[order[n - 1]];
    u32 chosen = 0;
    for (u32 k = 0; k < n; ++k) chosen |= 1u << order[k];
    plan.rows[plan.count] = rows;
    plan.place_count[plan.count] = n;
    u8 *to = plan.device[plan.count];
    for (u32 d = 0; d < g.device_count; ++d) {
      if (!(chosen >> d & 1)) continue;
      free[d] -= rows;
      *to++ = static_cast<u8>(d);
    }
    ++plan.count;
  }
  return plan;
}

// The first device on which strips and stripes of the plan do not fit, or device_count.
u32 overfull_device(const Geometry &g, const RegionPlan &plan, u64 (&ret_data_byte)[kMaxDevices]) {
  for (u32 d = 0; d < g.device_count; ++d) {
    u64 strip = 0, stripes = 0;
    for (u32 r = 0; r < plan.count; ++r) {
      for (u32 k = 0; k < plan.place_count[r]; ++k) {
        if (plan.device[r][k] != d) continue;
        strip += Geometry::round_up(plan.rows[r] * kStripBytesPerStripe, kPageBytes);
        stripes += plan.rows[r];
      }
    }
    ret_data_byte[d] = data_start(g, d, strip);
    if (stripes > 0 && ret_data_byte[d] + stripes * kStripeBytes > g.device_bytes[d]) return d;
  }
  return g.device_count;
}

RegionTable make_regions(const Geometry &g) {
  u64 stripes[kMaxDevices] = {};
  for (u32 d = 0; d < g.device_count; ++d) stripes[d] = stripes_that_fit(g, d);
  RegionPlan plan;
  u64 data_byte[kMaxDevices] = {}, strip_byte[kMaxDevices] = {};
  for (;;) {  // ends: each turn takes a stripe away
    plan = deal_regions(g, stripes);
    const u32 d = overfull_device(g, plan, data_byte);
    if (d == g.device_count) break;
    --stripes[d];
  }
  for (u32 d = 0; d < g.device_count; ++d) strip_byte[d] = g.control_end(d);
  RegionTable table{};
  table.extent_stripes = g.extent_stripes;
  for (u32 r = 0; r < plan.count; ++r) {
    Region &region = table.region[r];
    region.first_extent = table.extent_count();
    region.place_count = plan.place_count[r];
    region.extent_count =
        static_cast<u32>(plan.rows[r] * plan.place_count[r] / g.extent_stripes);
    for (u32 k = 0; k < region.place_count; ++k) {
      const u32 d = plan.device[r][k];
      region.device[k] = static_cast<u8>(d);
      region.data_page[k] = static_cast<u32>(data_byte[d] / kPageBytes);
      region.strip_page[k] = static_cast<u32>(strip_byte[d] / kPageBytes);
      data_byte[d] += plan.rows[r] * kStripeBytes;
      strip_byte[d] += Geometry::round_up(plan.rows[r] * kStripBytesPerStripe, kPageBytes);
    }
    table.count = r + 1;
  }
  return table;
}

// ---- choosing the numbers -----------------------------------------------------------------------

// Payload bytes of a full extent over the extent's bytes, for blocks of `payload` bytes, in 1/1000.
u64 extent_use(u64 payload, u64 extent_bytes) {
  const u64 block = block_shape(payload, 1).block_bytes();
  const int c = class_for(block, extent_bytes);
  if (c == kClassRun) return payload * 1000 / (run_extents(block, extent_bytes) * extent_bytes);
  return blocks_per_extent(static_cast<u32>(c), extent_bytes) * payload * 1000 / extent_bytes;
}

// One stripe unless that wastes more than a tenth; then what wastes least and leaves at least eight
// extents.
u32 choose_extent_stripes(const FormatOptions &options, u64 pool_bytes) {
  if (options.extent_stripes != 0) return options.extent_stripes;
  u32 best = 1;
  if (options.block_bytes == 0) return best;
  u64 best_use = extent_use(options.block_bytes, kStripeBytes);
  if (best_use >= 900) return best;
  for (u32 n = 2; n <= kExtentStripesMax && n * kStripeBytes * 8 <= pool_bytes; ++n) {
    const u64 use = extent_use(options.block_bytes, n * kStripeBytes);
    if (use > best_use) {
      best = n;
      best_use = use;
    }
  }
  return best;
}

// One way to size what scales: members, index.
struct Candidate {
  u32 hosts, members_per_host, min_block_bytes, index_growth;
};

// Sizes areas for `payload_bytes` and places everything.
void place_areas(Geometry &g, const FormatOptions &options, u64 payload_bytes, u32 growth) {
  const u64 blocks = div_up(payload_bytes, g.min_block_bytes);
  const u64 lines = blocks * pick(options.lines_per_block, 3);
  g.index_groups = std::max(div_up(lines, kGroupLines), kFewestGroups);
  g.index_groups_max = g.index_groups * growth;
  const u64 most = options.max_bytes != 0 ? options.max_bytes
                                          : g.pool_bytes() * pick(options.map_growth, 4);
  const u64 extents = div_up(std::max(most, payload_bytes), g.extent_bytes());
  const u64 records_per_page = kPageBytes / sizeof(u64);
  g.extent_lines = div_up(extents, records_per_page) * records_per_page / kMapRecordsPerLine;
  g.area_bytes = g.area_bytes_needed();
  g.area_offset[0] = g.lines_end();
  g.area_offset[1] = g.lines_end() + (g.control_devices == 2 ? 0 : g.standby_count * g.area_bytes);
}

bool try_candidate(const FormatOptions &options, const Candidate &c, Geometry base, Layout &ret) {
  Geometry &g = base;
  g.host_count = static_cast<u8>(c.hosts);
  g.members_per_host = static_cast<u8>(c.members_per_host);
  g.min_block_bytes = c.min_block_bytes;
  u64 payload = g.pool_bytes();
  bool placed = false;
  // The index is sized from the payload, which is what the index leaves: a few turns settle it, and
  // each of them is a layout that works.
  for (int turn = 0; turn < 4; ++turn) {
    place_areas(g, options, payload, c.index_growth);
    if (g.index_groups_max > kGroupsMax || g.extents_max() > ~u32{0}) return placed;
    for (u32 d = 0; d < g.device_count; ++d) {
      if (g.control_end(d) > g.device_bytes[d]) return placed;
    }
    const RegionTable regions = make_regions(g);
    if (regions.extent_count() < kFewestExtents) return placed;
    ret = {g, regions};
    placed = true;
    if (regions.payload_bytes() == payload) break;
    payload = regions.payload_bytes();
  }
  return placed;
}

// Tries the defaults of the pool's size first, then a coarser index, then fewer members, until
// metadata keeps its share; else the one that leaves most payload.
bool plan_best(const FormatOptions &options, const Geometry &base, Layout &ret) {
  const u64 pool = base.pool_bytes();
  const u32 top = default_row(pool);
  bool found = false;
  for (u32 back = 0; back <= top; ++back) {
    const SizeDefaults &members = kDefaults[top - back];
    for (u32 coarser = 0; coarser < 5; ++coarser) {
      if (options.min_block_bytes != 0 && coarser != 0) break;
      const u32 growth = back + coarser == 0 ? kDefaults[top].index_growth : 1;
      const Candidate c = {pick(options.hosts, members.hosts),
                           pick(options.members_per_host, members.members_per_host),
                           pick(options.min_block_bytes, kDefaults[top].min_block_bytes << coarser),
                           pick(options.index_growth, growth)};
      if (c.hosts * c.members_per_host > kMaxMembers) continue;
      Layout layout;
      if (!try_candidate(options, c, base, layout)) continue;
      if (metadata_bytes(layout.geometry, layout.regions) <= metadata_budget(pool)) {
        ret = layout;
        return true;
      }
      if (!found || layout.regions.payload_bytes() > ret.regions.payload_bytes()) ret = layout;
      found = true;
    }
  }
  return found;
}

Geometry base_geometry(const FormatOptions &o) {
  Geometry g{};
  g.state = StoreState::kFormatting;
  g.device_count = static_cast<u8>(o.device_count);
  for (u32 d = 0; d < o.device_count; ++d) {
    g.device_bytes[d] = o.device_bytes[d] / kPageBytes * kPageBytes;
  }
  const SizeDefaults &row = kDefaults[default_row(g.pool_bytes())];
  g.control_devices = o.device_count >= 2 ? 2 : 1;
  g.standby_count = static_cast<u8>(pick(o.standbys, 2));
  g.width = static_cast<u8>(std::min(pick(o.width, o.device_count), o.device_count));
  g.namespace_lines =
      static_cast<u16>(std::bit_ceil(std::max(pick(o.namespaces, row.namespaces), 4u)));
  g.request_lines = static_cast<u16>(pick(o.request_lines, 384));
  g.response_slots = static_cast<u16>(pick(o.response_slots, 128));
  g.lease_ms = pick(o.lease_ms, 2000);
  g.delta_us = pick(o.delta_us, 1000);
  g.grace_us = pick(o.grace_us, 20000);
  g.extent_stripes = choose_extent_stripes(o, g.pool_bytes());
  for (u32 s = 0; s < kMaxStandbys; ++s) {
    const bool named = o.standby_host != nullptr && s < g.standby_count;
    g.standby_host[s] = named ? o.standby_host[s] : kAnyHost;
  }
  return g;
}

// Bytes of each device with which these options give a store, as devices come: in whole stripes; 0
// if none up to 16 TiB.
u64 smallest_device_bytes(FormatOptions options) {
  const auto fits = [&](u64 bytes) {
    for (u32 d = 0; d < options.device_count; ++d) options.device_bytes[d] = bytes;
    Layout layout;
    return plan_best(options, base_geometry(options), layout);
  };
  u64 high = 64 * kKiB;
  while (!fits(high)) {
    high *= 2;
    if (high > 16 * kTiB) return 0;
  }
  u64 low = high / 2;
  while (high - low > 64 * kKiB) {
    const u64 middle = (low + high) / 2 / (64 * kKiB) * (64 * kKiB);
    (fits(middle) ? high : low) = middle;
  }
  return (high + kStripeBytes - 1) / kStripeBytes * kStripeBytes;
}

}  // namespace

u64 metadata_bytes(const Geometry &geometry, const RegionTable &regions) {
  return geometry.pool_bytes() - regions.payload_bytes();
}

int plan_layout(const FormatOptions &options, Layout &ret_layout, std::string *why) {
  if (int err = check_devices(options, why); err != 0) return err;
  if (int err = check_options(options, why); err != 0) return err;
  if (u64{options.hosts} * options.members_per_host > kMaxMembers) {
    return fail(why, -EINVAL, "%u hosts of %u members are more than %u members", options.hosts,
                options.members_per_host, kMaxMembers);
  }
  const Geometry base = base_geometry(options);
  for (u32 s = 0; options.standby_host != nullptr && s < base.standby_count; ++s) {
    const u32 hosts = options.hosts != 0 ? options.hosts : kMaxHosts;
    if (base.standby_host[s] >= hosts && base.standby_host[s] != kAnyHost) {
      return fail(why, -EINVAL, "standby slot %u: no host %u", s, base.standby_host[s]);
    }
  }
  if (plan_best(options, base, ret_layout)) return 0;
  const u64 needed = smallest_device_bytes(options);
  if (needed == 0) return fail(why, -ENOSPC, "no size up to 16 TiB can hold a store so formatted");
  const u64 *bytes = options.device_bytes;
  const u64 least = *std::min_element(bytes, bytes + options.device_count);
  return fail(why, -ENOSPC, "too small: %s %llu KiB; with these options a store needs %llu KiB%s",
              options.device_count == 1 ? "the device has" : "the smallest device has",
              static_cast<unsigned long long>(least / kKiB),
              static_cast<unsigned long long>(needed / kKiB),
              options.device_count == 1 ? "" : " on each device");
}

FormatOptions options_of(const Geometry &g) {
  FormatOptions o;
  o.device_count = g.device_count;
  std::copy(std::begin(g.device_bytes), std::end(g.device_bytes), o.device_bytes);
  o.hosts = g.host_count;
  o.members_per_host = g.members_per_host;
  o.standbys = g.standby_count;
  o.standby_host = g.standby_host;
  o.width = g.width;
  o.namespaces = g.namespace_lines;
  o.min_block_bytes = g.min_block_bytes;
  o.extent_stripes = g.extent_stripes;
  o.index_growth = static_cast<u32>(g.index_groups_max / g.index_groups);
  o.request_lines = g.request_lines;
  o.response_slots = g.response_slots;
  o.lease_ms = g.lease_ms;
  o.delta_us = g.delta_us;
  o.grace_us = g.grace_us;
  // The map was rounded up, maybe to more than may be asked for.
  const u64 most = g.extents_max() * g.extent_bytes();
  o.max_bytes = std::clamp(most, g.pool_bytes(), g.pool_bytes() * kMapGrowthMax);
  for (u32 lines = 0; lines <= 64; ++lines) {
    o.lines_per_block = lines;
    Layout layout;
    if (plan_layout(o, layout, nullptr) == 0 && layout.geometry.index_groups == g.index_groups) {
      return o;
    }
  }
  o.lines_per_block = 0;
  return o;
}

// ---- growing and shrinking ----------------------------------------------------------------------

u64 device_end(const Geometry &g, const RegionTable &table, u32 device) {
  return std::max(g.device_bytes[device],
                  Geometry::round_up(table.places_end(device, false), kStripeBytes));
}

u64 pool_bytes_in_use(const Geometry &g, const RegionTable &table) {
  u64 bytes = 0;
  for (u32 d = 0; d < g.device_count; ++d) bytes += device_end(g, table, d);
  return bytes - table.retired * table.extent_bytes();
}

namespace {

// A region over devices [first, first + count) behind all that is there, each of them `more` bytes
// longer than it was.
bool append_region(const Geometry &g, RegionTable &table, u32 first, u32 count, u64 more) {
  Region region{};
  region.first_extent = table.extent_count();
  region.place_count = count;
  u64 rows = ~u64{0};
  for (u32 k = 0; k < count; ++k) {
    const u64 begin = Geometry::round_up(device_end(g, table, first + k), kStripeBytes);
    const u64 align = data_align(begin + more);
    const auto data = [&](u64 n) {
      return Geometry::round_up(
          begin + Geometry::round_up(n * kStripBytesPerStripe, kPageBytes), align);
    };
    u64 fit = more / kStripeBytes;
    while (fit > 0 && data(fit) + fit * kStripeBytes > begin + more) --fit;
    rows = std::min(rows, fit);
  }
  region.extent_count = static_cast<u32>(rows * count / g.extent_stripes);
  if (region.extent_count == 0) return false;
  for (u32 k = 0; k < count; ++k) {
    const u64 begin = Geometry::round_up(device_end(g, table, first + k), kStripeBytes);
    const u64 data = Geometry::round_up(
        begin + Geometry::round_up(rows * kStripBytesPerStripe, kPageBytes),
        data_align(begin + more));
    region.device[k] = static_cast<u8>(first + k);
    region.strip_page[k] = static_cast<u32>(begin / kPageBytes);
    region.data_page[k] = static_cast<u32>(data / kPageBytes);
  }
  table.region[table.count++] = region;
  return true;
}

using ull = unsigned long long;

int plan_growth(const Geometry &g, RegionTable &table, u64 more, std::string *why) {
  const u64 extent = table.extent_bytes();
  const u32 back = static_cast<u32>(std::min<u64>(table.retired, more / extent));
  table.retired -= back;
  const u64 each = (more - back * extent) / g.device_count / kStripeBytes * kStripeBytes;
  if (table.retired != 0 || each == 0) return 0;
  u32 appended = 0;
  for (u32 first = 0; first < g.device_count; first += g.width) {
    if (table.count == kMaxRegions) {
      return fail(why, -E2BIG, "the pool grew as often as it can: all %u regions are used",
                  kMaxRegions);
    }
    appended += append_region(g, table, first, std::min<u32>(g.width, g.device_count - first),
                              each);
  }
  if (table.extent_count() > g.extents_max()) {
    return fail(why, -EFBIG, "the extent map has room for %llu MiB of blocks, %llu MiB are wanted",
                static_cast<ull>(g.extents_max() * extent / kMiB),
                static_cast<ull>(table.extent_count() * extent / kMiB));
  }
  if (appended == 0 && back == 0) {
    return fail(why, -ERANGE, "%llu MiB more on each device are not enough for one more extent",
                static_cast<ull>(each / kMiB));
  }
  return 0;
}

int plan_shrinking(const Geometry &g, RegionTable &table, u64 size, u64 less, std::string *why) {
  const u64 going = div_up(less, table.extent_bytes());
  const u32 now = table.extents_in_use();
  if (going + kFewestExtents > now) {
    const u64 least = pool_bytes_in_use(g, table) - (now - kFewestExtents) * table.extent_bytes();
    return fail(why, -ERANGE,
                "%llu MiB are too small: metadata and %u extents need %llu MiB",
                static_cast<ull>(size / kMiB), kFewestExtents,
                static_cast<ull>(div_up(least, kMiB)));
  }
  table.retired += static_cast<u32>(going);
  return 0;
}

}  // namespace

int plan_resize(const Geometry &g, const RegionTable &now, u64 pool_bytes,
                RegionTable &ret_regions, std::string *why) {
  const u64 unit = kStripeBytes * g.device_count;
  if (pool_bytes == 0 || pool_bytes % unit != 0) {
    return fail(why, -EINVAL, "%llu bytes are no multiple of %llu MiB, a stripe on each device",
                static_cast<ull>(pool_bytes), static_cast<ull>(unit / kMiB));
  }
  u64 room = 0;
  for (u32 d = 0; d < g.device_count; ++d) room += g.room_bytes(d);
  if (pool_bytes > room) {
    return fail(why, -EFBIG, "%llu MiB are more than the room of %llu MiB",
                static_cast<ull>(pool_bytes / kMiB), static_cast<ull>(room / kMiB));
  }
  RegionTable table = now;
  const u64 size = pool_bytes_in_use(g, now);
  const int err = pool_bytes >= size
                      ? plan_growth(g, table, pool_bytes - size, why)
                      : plan_shrinking(g, table, pool_bytes, size - pool_bytes, why);
  if (err != 0) return err;
  for (u32 d = 0; d < g.device_count; ++d) {
    if (device_end(g, table, d) > g.room_bytes(d)) {
      return fail(why, -EFBIG, "device %u would be larger than its room of %llu MiB", d,
                  static_cast<ull>(g.room_bytes(d) / kMiB));
    }
  }
  ret_regions = table;
  return 0;
}

u64 largest_pool_bytes(const Geometry &g, const RegionTable &now) {
  const u64 unit = kStripeBytes * g.device_count;
  u64 room = 0;
  for (u32 d = 0; d < g.device_count; ++d) room += g.room_bytes(d);
  u64 low = pool_bytes_in_use(g, now) / unit, high = room / unit + 1;
  while (high - low > 1) {
    const u64 middle = (low + high) / 2;
    RegionTable table;
    (plan_resize(g, now, middle * unit, table, nullptr) == 0 ? low : high) = middle;
  }
  RegionTable table;
  const u64 size = pool_bytes_in_use(g, now);
  if (low * unit <= size || plan_resize(g, now, low * unit, table, nullptr) != 0) return size;
  return pool_bytes_in_use(g, table);
}

u32 retired_ranges(const RegionTable &table,
                   DeviceRange (&ret_ranges)[kMaxRegions * kMaxDevices]) {
  u32 n = 0;
  for (u32 r = 0; r < table.count; ++r) {
    const Region &region = table.region[r];
    const u32 end = std::min(table.extents_in_use(), region.end_extent());
    const u32 used = std::max(end, region.first_extent) - region.first_extent;
    for (u32 k = 0; k < region.place_count; ++k) {
      const u64 data = region.data_page[k] * kPageBytes;
      const u64 begin = table.rows_of(region, used, k);
      const u64 rows = table.rows_of(region, region.extent_count, k);
      if (begin == rows) continue;
      ret_ranges[n++] = {region.device[k], data + begin * kStripeBytes,
                         data + rows * kStripeBytes};
    }
  }
  return n;
}

// ---- codec --------------------------------------------------------------------------------------

Identity make_identity(const Geometry &g, u32 device, StoreState state) {
  Identity id{};
  id.magic = kMagic;
  std::memcpy(id.uuid, g.uuid, sizeof(id.uuid));
  id.nonce = g.nonce;
  id.incompat = g.incompat;
  id.ro_compat = g.ro_compat;
  id.compat = g.compat;
  id.state = static_cast<u8>(state);
  id.device_index = static_cast<u8>(device);
  id.device_count = g.device_count;
  id.version = kFormatVersion;
  id.device_bytes = g.device_bytes[device];
  return id;
}

GeometryA make_geometry_a(const Geometry &g) {
  GeometryA a{};
  a.lease_ms = g.lease_ms;
  a.delta_us = g.delta_us;
  a.grace_us = g.grace_us;
  a.host_count = g.host_count;
  a.members_per_host = g.members_per_host;
  a.standby_count = g.standby_count;
  a.width = g.width;
  a.namespace_lines = g.namespace_lines;
  a.request_lines = g.request_lines;
  a.response_slots = g.response_slots;
  a.control_devices = g.control_devices;
  a.min_block_bytes = g.min_block_bytes;
  a.extent_stripes = g.extent_stripes;
  a.index_groups = g.index_groups;
  a.index_groups_max = g.index_groups_max;
  return a;
}

GeometryB make_geometry_b(const Geometry &g) {
  GeometryB b{};
  b.area_bytes = g.area_bytes;
  b.area_offset[0] = g.area_offset[0];
  b.area_offset[1] = g.area_offset[1];
  b.extent_lines = g.extent_lines;
  std::memcpy(b.standby_host, g.standby_host, sizeof(b.standby_host));
  return b;
}

namespace {

// Numbers whose products size the areas are bounded first, so that nothing below overflows.
const char *bad_numbers(const Geometry &g) {
  if (g.nonce == 0) return "the life nonce is zero";
  if (g.state != StoreState::kFormatting && g.state != StoreState::kReady) return "unknown state";
  if (g.device_count == 0 || g.device_count > kMaxDevices) return "impossible number of devices";
  if (g.control_devices != (g.device_count >= 2 ? 2 : 1)) return "impossible control devices";
  if (g.host_count == 0 || g.host_count > kMaxHosts) return "impossible number of hosts";
  if (g.members_per_host == 0 || g.members_per_host > kMaxMembersPerHost ||
      g.member_count() > kMaxMembers) {
    return "impossible member count";
  }
  if (g.standby_count == 0 || g.standby_count > kMaxStandbys) return "impossible standby count";
  if (g.width == 0 || g.width > kMaxDevices) return "impossible width";
  if (!std::has_single_bit(g.namespace_lines) || g.namespace_lines > kMaxNamespaces ||
      g.namespace_lines < 4) {
    return "impossible namespace table";
  }
  if (g.request_lines < kRequestLinesMin || g.request_lines > kRequestLinesMax) {
    return "impossible request ring";
  }
  if (!std::has_single_bit(g.response_slots) || g.response_slots < kResponseSlotsMin ||
      g.response_slots > kResponseSlotsMax) {
    return "impossible response ring";
  }
  if (g.lease_ms == 0) return "no lease";
  if (g.min_block_bytes == 0) return "no smallest block";
  if (g.extent_stripes == 0 || g.extent_stripes > kExtentStripesMax) return "impossible extent";
  if (g.index_groups == 0 || g.index_groups > g.index_groups_max) return "impossible index size";
  if (g.index_groups_max > kGroupsMax) return "index larger than entry numbers reach";
  if (g.extent_lines == 0 || g.extent_lines > ~u32{0} / kMapRecordsPerLine) {
    return "impossible extent map";
  }
  return nullptr;
}

const char *bad_places(const Geometry &g) {
  if (g.area_bytes > PoolOffset::kByteMask || g.area_bytes % kPageBytes != 0 ||
      g.area_bytes < g.area_bytes_needed()) {
    return "areas are too small for their content";
  }
  for (u32 which = 0; which < 2; ++which) {
    if (g.area_offset[which] > PoolOffset::kByteMask || g.area_offset[which] % kPageBytes != 0) {
      return "areas at an impossible place";
    }
    if (g.area_offset[which] < g.lines_end()) return "areas overlap the rings";
  }
  if (g.control_devices == 1 &&
      g.area_offset[1] < g.area_offset[0] + g.standby_count * g.area_bytes) {
    return "areas overlap each other";
  }
  for (u32 d = 0; d < g.device_count; ++d) {
    if (g.device_bytes[d] > PoolOffset::kByteMask) return "impossible device size";
    if (g.control_end(d) > g.device_bytes[d]) return "areas reach past their device";
  }
  return nullptr;
}

}  // namespace

int decode_geometry(const Identity &id, const GeometryA &a, const GeometryB &b,
                    const u64 device_bytes[kMaxDevices], Geometry &ret_geometry, std::string *why) {
  Geometry g{};
  std::memcpy(g.uuid, id.uuid, sizeof(g.uuid));
  g.nonce = id.nonce;
  g.incompat = id.incompat;
  g.ro_compat = id.ro_compat;
  g.compat = id.compat;
  g.state = static_cast<StoreState>(id.state);
  g.device_count = id.device_count;
  for (u32 d = 0; d < std::min<u32>(g.device_count, kMaxDevices); ++d) {
    g.device_bytes[d] = d == id.device_index ? id.device_bytes : device_bytes[d];
  }
  g.lease_ms = a.lease_ms;
  g.delta_us = a.delta_us;
  g.grace_us = a.grace_us;
  g.host_count = a.host_count;
  g.members_per_host = a.members_per_host;
  g.standby_count = a.standby_count;
  g.width = a.width;
  g.namespace_lines = a.namespace_lines;
  g.request_lines = a.request_lines;
  g.response_slots = a.response_slots;
  g.control_devices = a.control_devices;
  g.min_block_bytes = a.min_block_bytes;
  g.extent_stripes = a.extent_stripes;
  g.index_groups = a.index_groups;
  g.index_groups_max = a.index_groups_max;
  g.area_bytes = b.area_bytes;
  g.area_offset[0] = b.area_offset[0];
  g.area_offset[1] = b.area_offset[1];
  g.extent_lines = b.extent_lines;
  std::memcpy(g.standby_host, b.standby_host, sizeof(g.standby_host));
  const char *bad = bad_numbers(g);
  if (bad == nullptr) bad = bad_places(g);
  if (bad != nullptr) return fail(why, -EUCLEAN, "superblock: %s", bad);
  ret_geometry = g;
  return 0;
}

void encode_regions(const RegionTable &table, Line (&ret_lines)[kRegionTableLines]) {
  for (u32 r = 0; r < kMaxRegions; ++r) {
    const Region &region = table.region[r];
    RegionHead head{};
    head.state = kRegionUnused;
    RegionPlaces places[kRegionLines - 1] = {};
    if (r < table.count) {
      head.state = kRegionUsed;
      head.first_extent = region.first_extent;
      head.extent_count = region.extent_count;
      head.place_count = static_cast<u8>(region.place_count);
      const u32 used = std::min(table.extents_in_use(), region.end_extent());
      head.retired_extents = region.end_extent() - std::max(used, region.first_extent);
      for (u32 k = 0; k < region.place_count; ++k) {
        head.device[k] = region.device[k];
        places[k / kPlacesPerLine].place[k % kPlacesPerLine] = {region.data_page[k],
                                                                region.strip_page[k]};
      }
    }
    ret_lines[r * kRegionLines] = to_line(head);
    for (u32 i = 0; i + 1 < kRegionLines; ++i) {
      ret_lines[r * kRegionLines + 1 + i] = to_line(places[i]);
    }
  }
}

namespace {

// Whether every place lies behind its device's control part and no byte belongs to two of them.
const char *bad_region_places(const RegionTable &table, const Geometry &g) {
  DeviceRange used[kMaxRegions * kMaxDevices * 2];
  u32 n = 0;
  for (u32 r = 0; r < table.count; ++r) {
    const Region &region = table.region[r];
    for (u32 k = 0; k < region.place_count; ++k) {
      const u32 d = region.device[k];
      const u64 rows = table.rows_of(region, region.extent_count, k);
      if (rows == 0) continue;  // a short region has nothing there, and the next one begins there
      const u64 data = region.data_page[k] * kPageBytes;
      const u64 strip = region.strip_page[k] * kPageBytes;
      used[n++] = {d, data, data + rows * kStripeBytes};
      used[n++] = {d, strip, strip + rows * kStripBytesPerStripe};
    }
  }
  for (u32 i = 0; i < n; ++i) {
    if (used[i].begin < g.control_end(used[i].device)) return "stripes overlap control lines";
    if (used[i].end > g.room_bytes(used[i].device)) return "stripes reach past their device";
  }
  std::sort(used, used + n, [](const DeviceRange &a, const DeviceRange &b) {
    return a.device != b.device ? a.device < b.device : a.begin < b.begin;
  });
  for (u32 i = 1; i < n; ++i) {
    if (used[i].device == used[i - 1].device && used[i].begin < used[i - 1].end) {
      return "two places share bytes";
    }
  }
  return nullptr;
}

const char *bad_region_head(const RegionHead &head, const RegionTable &table, const Geometry &g) {
  if (head.first_extent != table.extent_count()) return "extents do not follow on";
  if (head.extent_count == 0 || head.extent_count > g.extents_max() - table.extent_count()) {
    return "more extents than the map holds";
  }
  if (head.place_count == 0 || head.place_count > kMaxDevices) return "impossible place count";
  for (u32 k = 0; k < head.place_count; ++k) {
    if (head.device[k] >= g.device_count) return "unknown device";
  }
  // Retired are the last extents of all: behind one of them nothing is in use.
  if (head.retired_extents > head.extent_count ||
      (table.retired != 0 && head.retired_extents != head.extent_count)) {
    return "extents in use behind retired ones";
  }
  return nullptr;
}

}  // namespace

int decode_regions(const Line (&lines)[kRegionTableLines], const Geometry &g,
                   RegionTable &ret_regions, std::string *why) {
  RegionTable table{};
  table.extent_stripes = g.extent_stripes;
  for (u32 r = 0; r < kMaxRegions; ++r) {
    const auto head = from_line<RegionHead>(lines[r * kRegionLines]);
    if (head.state == kRegionUnused) continue;
    if (head.state != kRegionUsed || table.count != r) {
      return fail(why, -EUCLEAN, "region %u: impossible state %u", r, head.state);
    }
    if (const char *bad = bad_region_head(head, table, g); bad != nullptr) {
      return fail(why, -EUCLEAN, "region %u: %s", r, bad);
    }
    Region &region = table.region[r];
    region.first_extent = head.first_extent;
    region.extent_count = head.extent_count;
    region.place_count = head.place_count;
    for (u32 k = 0; k < head.place_count; ++k) {
      const auto places =
          from_line<RegionPlaces>(lines[r * kRegionLines + 1 + k / kPlacesPerLine]);
      region.device[k] = head.device[k];
      region.data_page[k] = places.place[k % kPlacesPerLine].data_page;
      region.strip_page[k] = places.place[k % kPlacesPerLine].strip_page;
    }
    table.count = r + 1;
    table.retired += head.retired_extents;
  }
  if (table.extents_in_use() == 0) return fail(why, -EUCLEAN, "the area has no region in use");
  if (const char *bad = bad_region_places(table, g); bad != nullptr) {
    return fail(why, -EUCLEAN, "regions: %s", bad);
  }
  ret_regions = table;
  return 0;
}

}  // namespace kvpool::media
