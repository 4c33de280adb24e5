// SPDX-License-Identifier: Apache-2.0
// One owner's area as a reader sees it: where the index lies, how long it is, and how logical
// extents map to devices. Immutable once made; a new owner makes a new session.
#pragma once

#include "media/index_hash.hpp"
#include "pool/claims.hpp"

namespace kvpool::pool {

struct Session {
  u32 epoch = 0;
  u8 standby = 0;       // slot of the owner
  PoolOffset area{};
  u64 index_groups = 0;
  media::RegionTable regions{};

  u64 entry_count() const { return index_groups * media::kGroupLines; }
};

// proto 14: a table is believed only once everything it has in use can be touched.
template <PoolEnv Env>
bool reach_regions(Env &env, const media::Geometry &geo, const media::RegionTable &regions) {
  if (env.mutant(Mutant::kTableUnmapped)) return true;
  for (u32 d = 0; d < geo.device_count; ++d) {
    const u64 end = regions.places_end(d, true);
    if (end > 0 && !env.reach(PoolOffset(d, end))) return false;
  }
  return true;
}

// Reads the regions of the area that `view` names as the active one. 0, -EAGAIN when the area is
// being replaced while it is read, -EUCLEAN when its regions do not verify, -EFBIG when a device
// has fewer bytes than they name.
template <PoolEnv Env>
int open_session(Env &env, Claims<Env> &claims, const media::Geometry &geo, const ClaimView &view,
                 Session &ret_session) {
  if (view.gone) return -ESTALE;
  if (view.highest_active == 0) return -EUCLEAN;
  Session session;
  session.epoch = view.highest_active;
  session.standby = view.active_slot;
  session.area = geo.area_at(view.active_slot, view.active.area);
  session.index_groups = view.active.index_groups;
  if (session.index_groups == 0 || session.index_groups > geo.index_groups_max) return -EUCLEAN;
  auto &mem = env.memory();
  constexpr u32 kLines = media::kRegionTableLines;
  Line lines[kLines];
  for (int attempt = 0; attempt < kTornRetries; ++attempt) {
    mem.acquire(session.area, u64{kLines} * kLineBytes);
    bool whole = true;
    for (u32 i = 0; i < kLines && whole; ++i) {
      const PoolOffset at = geo.region_line(session.area, i);
      whole = mem.load_line(at, lines[i]) && claims.sealer().intact(lines[i], at, session.epoch);
    }
    if (whole) {
      if (int err = media::decode_regions(lines, geo, session.regions, nullptr)) return err;
      if (!reach_regions(env, geo, session.regions)) return -EFBIG;
      ret_session = session;
      return 0;
    }
    const ClaimView again = claims.read();
    if (again.highest_active != session.epoch) return -EAGAIN;
    env.relax(static_cast<u32>(attempt));
  }
  return -EUCLEAN;
}

}  // namespace kvpool::pool
