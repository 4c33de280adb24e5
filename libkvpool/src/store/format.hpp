// SPDX-License-Identifier: Apache-2.0
// Making a store (proto 5): superblock FORMATTING, an empty area of standby slot 0, its claim,
// READY. A template over the environment, so that tests and measurements format by the same
// code. The caller holds the format lock, and has decided that what was there may be lost.
//
// Lines and rings of hosts and members are zeroed: the life's nonce seeds every seal, so nothing of
// a former life verifies, but a line that is neither zero nor intact is damage to whoever checks.
// Check strips are left as they are, as no entry refers to them.
#pragma once

#include "pool/area_writer.hpp"

namespace kvpool::store {

struct FormatWork {
  media::Geometry geometry{};      // with uuid and nonce
  media::RegionTable regions{};
  bool former_life = false;  // somebody may still write: extents are in quarantine at first
};

namespace detail {

template <pool::PoolEnv Env>
class Formatter {
public:
  Formatter(Env &env, const FormatWork &work)
      : env_(env), work_(work), geo_(work.geometry), sealer_(geo_.uuid, geo_.nonce),
        pen_(env, geo_, sealer_) {}

  void run() {
    write_identities(media::StoreState::kFormatting);
    write_geometry();
    clear_lines();
    write_area();
    write_claims();
    write_identities(media::StoreState::kReady);
  }

private:
  void write(PoolOffset at, const Line &line) {
    env_.memory().publish_line(at, line);
    env_.memory().drain_strict(&at, 1);
  }

  // The devices first, the two copies last: a store is there when the first copy says so.
  void write_identities(media::StoreState state) {
    for (u32 d = geo_.device_count; d-- > geo_.control_devices;) {
      write(PoolOffset(d, 0), media::Sealer::sealed_identity(media::make_identity(geo_, d, state)));
    }
    for (u32 copy = 2; copy-- > 0;) {
      const PoolOffset at = geo_.identity_at(copy);
      write(at, media::Sealer::sealed_identity(media::make_identity(geo_, at.device(), state)));
    }
  }

  void write_geometry() {
    for (u32 copy = 0; copy < 2; ++copy) {
      const PoolOffset a = geo_.geometry_at(copy, 0), b = geo_.geometry_at(copy, 1);
      write(a, sealer_.sealed(media::make_geometry_a(geo_), a, 0));
      write(b, sealer_.sealed(media::make_geometry_b(geo_), b, 0));
    }
  }

  void clear_lines() {
    const Line zero{};
    const PoolOffset first(0, geo_.lines_byte());
    for (u64 byte = first.byte(); byte < geo_.lines_end(); byte += kLineBytes) {
      env_.memory().publish_line(PoolOffset(0, byte), zero);
    }
    env_.memory().drain_strict(&first, 1);
  }

  static constexpr u32 kFirstEpoch = media::make_epoch(1, 0);
  static constexpr u16 kNobody = 0xFFFF;  // the first activation is format's own

  void write_area() {
    pen_.open(geo_.area_at(0, 0), kFirstEpoch);
    Line lines[media::kRegionTableLines] = {};
    media::encode_regions(work_.regions, lines);
    for (u32 i = 0; i < media::kRegionTableLines; ++i) {
      pen_.write_line(geo_.region_line(pen_.area(), i), lines[i]);
    }
    media::NamespaceLine none{};
    none.flags = media::kNsEmpty;
    for (u32 id = 0; id < geo_.namespace_lines; ++id) pen_.fill_ns(id, none);
    const u8 holder = work_.former_life ? media::kHolderFormer : media::kHolderOwner;
    const media::MapRecord record{holder, 0, media::kClassNone, 0, 0};
    for (u32 x = 0; x < work_.regions.extent_count(); ++x) pen_.write_map(x, record);
    media::Entry empty{};
    empty.state = static_cast<u8>(media::EntryState::kEmpty);
    for (u64 e = 0; e < geo_.index_groups * media::kGroupLines; ++e) pen_.write_entry(e, empty);
    pen_.drain_strict();
  }

  void write_claims() {
    for (u32 slot = geo_.standby_count; slot-- > 0;) {
      media::ClaimLine claim{};
      claim.index_groups = geo_.index_groups;
      if (slot == 0) claim.claimed = claim.active = kFirstEpoch;
      claim.claimed_member = claim.active_member = kNobody;
      for (u32 copy = 0; copy < 2; ++copy) {
        const PoolOffset at = geo_.claim_at(copy, slot);
        write(at, sealer_.sealed(claim, at, 0));
      }
    }
  }

  Env &env_;
  const FormatWork &work_;
  const media::Geometry &geo_;
  media::Sealer sealer_;
  pool::AreaWriter<Env> pen_;
};

}  // namespace detail

template <pool::PoolEnv Env>
void format_store(Env &env, const FormatWork &work) {
  detail::Formatter<Env>(env, work).run();
}

}  // namespace kvpool::store
