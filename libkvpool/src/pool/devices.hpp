// SPDX-License-Identifier: Apache-2.0
// Which devices of a store cannot be read (proto 14). Loads and looks only; what follows from it is
// the caller's business.
#pragma once

#include "media/layout.hpp"
#include "media/seal.hpp"
#include "pool/env.hpp"

namespace kvpool::pool {

// A single line that went bad is no lost device, so a second one has to agree. Where a device is
// gone loads fail or give all ones; a file that was cut and became longer again reads zeros, which
// no identity line is. `end`: behind the last byte in use, 0 when nothing is; a file that was cut
// in its middle fails there.
template <PoolEnv Env>
bool device_lost(Env &env, u32 device, u64 end) {
  auto &mem = env.memory();
  const auto loads = [&](u64 byte, Line &ret_line) {
    const PoolOffset at(device, byte);
    mem.acquire(at, kLineBytes);
    return mem.load_line(at, ret_line);
  };
  Line line{};
  const bool first = loads(0, line);
  if (first) {
    const auto all = [&line](u64 word) { return std::count(line.w, line.w + 8, word) == 8; };
    if (all(0) || all(~u64{0})) return true;
  } else if (!loads(media::kPageBytes - kLineBytes, line)) {
    return true;
  }
  if (end < 2 * media::kPageBytes || loads(end - kLineBytes, line)) return false;
  return !loads(end - media::kPageBytes, line);
}

// The lines and rings of hosts and members.
template <PoolEnv Env>
bool lines_lost(Env &env, const media::Geometry &geo) {
  return geo.device_count > 1 && device_lost(env, geo.member_at(0).device(), geo.area_offset[0]);
}
template <PoolEnv Env>
bool area_lost(Env &env, const media::Geometry &geo, PoolOffset area) {
  return geo.device_count > 1 && device_lost(env, area.device(), area.byte() + geo.area_bytes);
}

// Bit d: device d. A store of one device has nothing left without it: nobody asks.
template <PoolEnv Env>
u32 lost_devices(Env &env, const media::Geometry &geo, const media::RegionTable &regions) {
  u32 lost = 0;
  for (u32 d = 0; d < geo.device_count && geo.device_count > 1; ++d) {
    if (device_lost(env, d, regions.places_end(d, true))) lost |= 1u << d;
  }
  return lost;
}

}  // namespace kvpool::pool
