// SPDX-License-Identifier: Apache-2.0
// Writing a new store (proto 5): FORMATTING, geometry, claims, the first area, READY. The first
// activation is format's own: slot 0, epoch 1, area 0. The caller holds the format lock and has made
// sure that nobody needs what stood there before.
#pragma once

#include "media/layout.hpp"
#include "media/seal.hpp"
#include "pool/area_writer.hpp"

namespace kvpool::pool {

struct FormatRequest {
  media::Layout layout;      // planned; uuid and nonce filled in
  bool former_life = false;  // forced over a store: its extents pass quarantine first
};

// After each piece: done of total, for progress. May be null.
using FormatProgress = void (*)(void *arg, u64 done, u64 total);

template <PoolEnv Env>
class Formatter {
public:
  Formatter(Env &env, const FormatRequest &request)
      : env_(env),
        geo_(request.layout.geometry),
        regions_(request.layout.regions),
        former_(request.former_life),
        sealer_(geo_.uuid, geo_.nonce),
        pen_(env, geo_, sealer_) {}

  void run(FormatProgress progress = nullptr, void *arg = nullptr) {
    write_identity(media::StoreState::kFormatting);
    write_geometry();
    clear_members();
    fill_area(progress, arg);
    write_claims();
    write_identity(media::StoreState::kReady);
  }

private:
  void put(PoolOffset at, Line line) {
    sealer_.seal(line, at, 0);
    env_.memory().publish_line(at, line);
    env_.memory().drain_strict(&at, 1);
  }

  // Devices beyond the copies first, so that a reader of copy 0 finds the rest in place.
  void write_identity(media::StoreState state) {
    auto &mem = env_.memory();
    for (u32 device = geo_.device_count; device-- > 0;) {
      const PoolOffset at(device, 0);
      const Line line = media::Sealer::sealed_identity(media::make_identity(geo_, device, state));
      if (device == 0) {
        const PoolOffset twin = geo_.identity_at(1);
        if (twin.device() == 0) {
          mem.publish_line(twin, line);
          mem.drain_strict(&twin, 1);
        }
      }
      mem.publish_line(at, line);
      mem.drain_strict(&at, 1);
    }
  }

  void write_geometry() {
    for (u32 copy = 0; copy < 2; ++copy) {
      put(geo_.geometry_at(copy, 0), media::to_line(media::make_geometry_a(geo_)));
      put(geo_.geometry_at(copy, 1), media::to_line(media::make_geometry_b(geo_)));
    }
  }

  // Lines of a former life do not verify any more, but zeros say plainly "never used".
  void clear_members() {
    for (u64 byte = geo_.lines_byte(); byte < geo_.rings_byte(); byte += kLineBytes) {
      env_.memory().publish_line(PoolOffset(0, byte), Line{});
    }
    const PoolOffset last(0, geo_.rings_byte() - kLineBytes);
    env_.memory().drain_strict(&last, 1);
  }

  void write_claims() {
    for (u32 slot = geo_.standby_count; slot-- > 0;) {
      media::ClaimLine claim{};
      if (slot == 0) {
        claim.claimed = claim.active = media::make_epoch(1, 0);
        claim.index_groups = geo_.index_groups;
        claim.claimed_member = claim.active_member = 0xFFFF;
      }
      for (u32 copy = 0; copy < 2; ++copy) put(geo_.claim_at(copy, slot), media::to_line(claim));
    }
  }

  void fill_area(FormatProgress progress, void *arg) {
    pen_.open(geo_.area_at(0, 0), media::make_epoch(1, 0));
    Line lines[media::kRegionTableLines];
    media::encode_regions(regions_, lines);
    for (u32 i = 0; i < media::kRegionTableLines; ++i) {
      pen_.write_line(geo_.region_line(pen_.area(), i), lines[i]);
    }
    media::NamespaceLine none{};
    none.flags = media::kNsEmpty;
    for (u32 id = 0; id < geo_.namespace_lines; ++id) pen_.write_ns(id, none);
    const u8 holder = former_ ? media::kHolderFormer : media::kHolderOwner;
    const media::MapRecord record{holder, 0, media::kClassNone, 0, 0};
    for (u32 x = 0; x < regions_.extent_count(); ++x) pen_.write_map(x, record);
    media::Entry empty{};
    empty.state = static_cast<u8>(media::EntryState::kEmpty);
    const u64 entries = geo_.index_groups * media::kGroupLines;
    for (u64 n = 0; n < entries; ++n) {
      pen_.write_entry(n, empty);
      if (progress && n % 65536 == 0) progress(arg, n, entries);
    }
    pen_.drain_strict();
    if (progress) progress(arg, entries, entries);
  }

  Env &env_;
  const media::Geometry geo_;
  const media::RegionTable regions_;
  const bool former_;
  media::Sealer sealer_;
  AreaWriter<Env> pen_;
};

}  // namespace kvpool::pool
