// SPDX-License-Identifier: Apache-2.0
// A small whole store built in ordinary memory straight from the format, without the code that
// serves stores: what tests of the media layer read, damage and compare. Tests only.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "arch/check.hpp"
#include "arch/check_keys.hpp"
#include "media/index_hash.hpp"
#include "media/layout.hpp"
#include "media/seal.hpp"
#include "media/superblock.hpp"

namespace kvpool::test {

using namespace kvpool::media;

// Options of a store about as small as one can be, on `devices` devices of `bytes` each.
inline FormatOptions tiny_options(u32 devices = 1, u64 bytes = u64{6} << 20) {
  FormatOptions o;
  o.device_count = devices;
  for (u32 d = 0; d < devices; ++d) o.device_bytes[d] = bytes;
  o.hosts = 1;
  o.members_per_host = 2;
  o.standbys = 2;
  o.namespaces = 8;
  o.min_block_bytes = 1 << 20;
  o.request_lines = 8;
  o.response_slots = 4;
  return o;
}

class Image final : public LineReader {
public:
  explicit Image(const FormatOptions &options) {
    std::string why;
    if (plan_layout(options, layout_, &why) != 0) {
      std::fprintf(stderr, "image: %s\n", why.c_str());
      std::abort();
    }
    for (u32 i = 0; i < 16; ++i) geo().uuid[i] = static_cast<u8>(0x10 + i);
    geo().nonce = 0x1122334455667788ull;
    geo().state = StoreState::kReady;
    devices_.resize(geo().device_count);
    for (u32 d = 0; d < geo().device_count; ++d) {
      devices_[d].resize(geo().device_bytes[d] / kLineBytes);
    }
    epoch_ = make_epoch(1, 0);
    next_in_class_.fill(kNoBlock);
    write_superblock();
    write_claims();
    write_area();
  }

  // LineReader
  u32 device_count() const override { return static_cast<u32>(devices_.size()); }
  u64 device_bytes(u32 d) const override { return devices_[d].size() * kLineBytes; }
  bool read_line(PoolOffset at, Line &ret_line) override {
    if (!inside(at)) return false;
    for (PoolOffset bad : poison_) {
      if (bad == at) return false;
    }
    ret_line = line(at);
    return true;
  }

  Geometry &geo() { return layout_.geometry; }
  RegionTable &regions() { return layout_.regions; }
  Sealer sealer() { return Sealer(geo().uuid, geo().nonce); }
  u32 epoch() const { return epoch_; }
  PoolOffset area() { return geo().area_at(0, 0); }
  Line &line(PoolOffset at) { return devices_[at.device()][at.byte() / kLineBytes]; }
  std::vector<std::vector<Line>> &devices() { return devices_; }
  void poison(PoolOffset at) { poison_.push_back(at); }

  template <class T>
  void put(PoolOffset at, const T &value, u32 epoch = 0) {
    line(at) = sealer().sealed(value, at, epoch);
  }
  template <class T>
  T get(PoolOffset at) {
    return from_line<T>(line(at));
  }

  void write_superblock() {
    for (u32 copy = 0; copy < 2; ++copy) write_identity(geo().identity_at(copy));
    for (u32 d = 2; d < geo().device_count; ++d) write_identity(PoolOffset(d, 0));
    for (u32 copy = 0; copy < 2; ++copy) {
      put(geo().geometry_at(copy, 0), make_geometry_a(geo()));
      put(geo().geometry_at(copy, 1), make_geometry_b(geo()));
    }
  }
  void write_identity(PoolOffset at) {
    line(at) = Sealer::sealed_identity(make_identity(geo(), at.device(), geo().state));
  }

  void write_claim(u32 slot, const ClaimLine &claim) {
    for (u32 copy = 0; copy < 2; ++copy) put(geo().claim_at(copy, slot), claim);
  }
  void write_claims() {
    for (u32 slot = 0; slot < geo().standby_count; ++slot) {
      ClaimLine claim{};
      if (slot == 0) {
        claim.claimed = claim.active = epoch_;
        claim.claimed_incarnation = claim.active_incarnation = 0xAAAA;
        claim.index_groups = geo().index_groups;
      }
      write_claim(slot, claim);
    }
  }

  void write_area() {
    Line lines[kRegionTableLines];
    encode_regions(regions(), lines);
    for (u32 i = 0; i < kRegionTableLines; ++i) put(geo().region_line(area(), i), lines[i], epoch_);
    NamespaceLine ns{};
    ns.flags = kNsEmpty;
    for (u32 id = 1; id < geo().namespace_lines; ++id) put(geo().ns_line(area(), id), ns, epoch_);
    for (u32 e = 0; e < regions().extent_count(); ++e) {
      write_map(e, MapRecord{kHolderOwner, 0, kClassNone, 0, 0});
    }
    Entry empty{};
    empty.state = static_cast<u8>(EntryState::kEmpty);
    for (u64 i = 0; i < geo().index_groups * kGroupLines; ++i) write_entry(i, empty);
  }
  u64 &map_word(u32 extent) {
    const PoolOffset at = geo().map_word(area(), extent);
    return line(PoolOffset(at.device(), at.byte() & ~u64{63})).w[at.byte() / 8 % 8];
  }
  void write_map(u32 extent, const MapRecord &record) {
    map_word(extent) = sealer().pack_map(record, geo().map_word(area(), extent), epoch_);
  }
  MapRecord read_map(u32 extent) {
    MapRecord record{};
    const PoolOffset at = geo().map_word(area(), extent);
    if (!sealer().unpack_map(map_word(extent), at, epoch_, record)) std::abort();
    return record;
  }
  void write_entry(u64 number, const Entry &entry) { put(entry_at(number), entry, epoch_); }
  PoolOffset entry_at(u64 number) { return geo().entry_line(area(), number); }
  Entry entry(u64 number) { return get<Entry>(entry_at(number)); }

  void add_namespace(u32 id, const char *name) {
    NamespaceLine ns{};
    ns.flags = kNsUsed;
    ns.weight = 1;
    ns.epoch = 1;
    for (u32 i = 0; i < 16; ++i) ns.fingerprint[i] = static_cast<u8>(id + i);
    std::memcpy(ns.name, name, std::min(std::strlen(name), sizeof(ns.name)));
    put(geo().ns_line(area(), id), ns, epoch_);
    line(geo().ns_line(area(), geo().ns_spare())) = line(geo().ns_line(area(), id));
  }

  void add_member(u32 slot) {
    MemberLine m{};
    m.incarnation = 0xC0FFEE00 + slot;
    m.counter = 7;
    m.state = static_cast<u8>(MemberState::kJoined);
    m.host = static_cast<u8>(geo().host_of(slot));
    m.standby_slot = kNoStandby;
    m.world = 1;
    std::strncpy(m.name, "tester", sizeof(m.name));
    put(geo().member_at(slot), m);
    ReaperLine r{};
    r.state = static_cast<u8>(ReaperState::kNone);
    put(geo().reaper_at(slot), r);
  }

  struct Key {
    u64 w[4];
  };
  // A key that any reader of a golden image can make again: outputs of splitmix64.
  static Key make_key(u64 n) {
    Key key{};
    for (u64 i = 0; i < 4; ++i) key.w[i] = splitmix64(n, i + 1);
    return key;
  }
  // Word `word` of line `line` of the payload under a key: only each 16th line is not zero.
  static u64 payload_word(const Key &key, u64 line, u64 word) {
    return line % 16 == 0 ? splitmix64(key.w[0], line * 8 + word + 1) : 0;
  }

  // Puts an entry where its key belongs, as an owner does: first group, else second and spill flag.
  // Returns its number, or ~0 if both are full.
  u64 insert(const Entry &e) {
    const u64 groups[2] = {first_group(e.key, geo().index_groups),
                           second_group(e.key, geo().index_groups)};
    for (u32 which = 0; which < 2; ++which) {
      for (u64 i = 0; i < kGroupLines; ++i) {
        const u64 number = groups[which] * kGroupLines + i;
        if (entry(number).entry_state() != EntryState::kEmpty) continue;
        Entry placed = e;
        placed.state |= entry(number).state & kEntrySpill;
        write_entry(number, placed);
        if (which == 1) {
          Entry head = entry(groups[0] * kGroupLines);
          head.state |= kEntrySpill;
          write_entry(groups[0] * kGroupLines, head);
        }
        return number;
      }
    }
    return ~u64{0};
  }

  // Publishes a block: takes space for it, writes payload and checks, then the entry.
  u64 add_block(const Key &key, u64 payload_bytes, u32 shards, u16 ns,
                EntryState state = EntryState::kPublished) {
    const BlockShape shape = block_shape(payload_bytes, shards);
    const u64 address = take_space(shape.block_bytes(), ns);
    for (u64 l = 0; l < shape.payload_lines(); ++l) {
      Line &to = line(regions().data_at(address + l * kLineBytes));
      for (u64 w = 0; w < 8; ++w) to.w[w] = payload_word(key, l, w);
    }
    Entry e{};
    std::copy(std::begin(key.w), std::end(key.w), e.key);
    e.version = make_version(epoch_, ++version_);
    e.check_hash = write_checks(shape, address, key);
    e.length = pack_length(shape.payload_lines(), shards);
    e.set_locator(address / kLocatorUnit);
    e.state = static_cast<u8>(state);
    e.ns = ns;
    return insert(e);
  }

  u64 add_pending(const Key &key, u16 ns) {
    Entry e{};
    std::copy(std::begin(key.w), std::end(key.w), e.key);
    e.version = 0xC0FFEE00;
    e.check_hash = 0 | u64{500} << 16;
    e.state = static_cast<u8>(EntryState::kPending);
    e.ns = ns;
    return insert(e);
  }

  u64 write_checks(const BlockShape &shape, u64 address, const Key &key) {
    std::vector<u64> checks;
    for (u64 s = 0; s < shape.segments(); ++s) {
      const LineRange range = shape.segment_range(s);
      CheckLanes lanes{};
      for (u64 i = 0; i < range.line_count; ++i) {
        const u64 at = address + (range.first_line + i) * kLineBytes;
        check_add_reference(lanes, &line(regions().data_at(at)), 1, i);
      }
      CheckLine c{};
      c.check = check_fold(lanes, range.line_count);
      c.incarnation = 0xC0FFEE00;
      c.nonce = key.w[3];
      c.segment = static_cast<u32>(s);
      c.segment_lines = static_cast<u32>(range.line_count);
      c.shard = static_cast<u16>(shape.shard_of(s));
      c.shard_count = static_cast<u16>(shape.shards());
      put(check_line_at(regions(), shape, address, s), c);
      checks.push_back(c.check);
    }
    return check_table_hash(checks.data(), checks.size());
  }

private:
  static constexpr u64 kNoBlock = ~u64{0};

  // Next free block of the class, from an extent cut for it; a run takes fresh extents.
  u64 take_space(u64 block_bytes, u16 ns) {
    const auto size_class = static_cast<u32>(class_for(block_bytes, geo().extent_bytes()));
    if (size_class == kClassRun) {
      const u64 n = run_extents(block_bytes, geo().extent_bytes());
      for (u64 i = 0; i < n; ++i) {
        write_map(next_extent_ + static_cast<u32>(i),
                  MapRecord{kHolderOwner, 0, kClassRun, i == 0 ? kMapRunHead : kMapRunTail, ns});
      }
      next_extent_ += static_cast<u32>(n);
      return regions().address(next_extent_ - static_cast<u32>(n), 0);
    }
    u64 &next = next_in_class_[size_class];
    const u64 bytes = class_bytes(size_class);
    if (next == kNoBlock || regions().byte_of(next) + bytes > geo().extent_bytes()) {
      if (next_extent_ >= regions().extent_count()) std::abort();
      write_map(next_extent_, MapRecord{kHolderOwner, 0, static_cast<u8>(size_class), 0, 0});
      next = regions().address(next_extent_++, 0);
    }
    const u64 address = next;
    next += bytes;
    if (regions().byte_of(next) == 0) next = kNoBlock;
    return address;
  }

  Layout layout_{};
  std::vector<std::vector<Line>> devices_;
  std::vector<PoolOffset> poison_;
  std::array<u64, kSizeClasses> next_in_class_{};
  u32 epoch_ = 0;
  u32 next_extent_ = 0;
  u64 version_ = 0;
};

// The store of the golden image.
inline Image golden_store() {
  Image image(tiny_options(1, u64{16} << 20));
  image.add_member(0);
  image.add_namespace(1, "golden-model");
  image.add_namespace(3, "another");
  image.add_block(Image::make_key(1), 4096, 1, 1);
  image.add_block(Image::make_key(2), 65536, 1, 1);
  image.add_block(Image::make_key(3), 131072, 2, 1);
  image.add_block(Image::make_key(4), 8192 - 64, 3, 3);
  image.add_block(Image::make_key(5), 4096, 1, 1, EntryState::kDraining);
  image.add_block(Image::make_key(6), 4096, 1, 1, EntryState::kHidden);
  image.add_pending(Image::make_key(7), 3);
  return image;
}

}  // namespace kvpool::test
