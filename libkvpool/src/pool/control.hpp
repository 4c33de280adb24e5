// SPDX-License-Identifier: Apache-2.0
// Moves lines and rings of hosts and members to the other control device, when theirs is lost
// (proto 14): a take-over whose claim says so. Whoever calls this holds the format lock and the
// lock of the standby slot, and knows that the device is lost to everybody.
#pragma once

#include "pool/devices.hpp"
#include "pool/member.hpp"
#include "pool/owner.hpp"

namespace kvpool::pool {

inline constexpr u8 kControlMax = 255;  // moves in one life of a store

// Where the claims say that lines and rings stand, written to `geo`. 0; -ESTALE another life;
// -EAGAIN: the claims cannot be read.
template <PoolEnv Env>
int read_control(Env &env, media::Geometry &geo) {
  Claims<Env> claims(env, geo);
  const ClaimView view = claims.read();
  if (view.gone && !view.moved) return -ESTALE;
  if (view.unreadable || view.highest_active == 0) return -EAGAIN;
  geo.control = geo.control_before = view.active.active_control;
  return 0;
}

// Nobody believes what stood there before: seals are those of this life and place, so lines of an
// earlier stay would verify.
template <PoolEnv Env>
void clear_lines(Env &env, const media::Geometry &geo) {
  const PoolOffset first(geo.control_device(), geo.lines_byte());
  for (u64 byte = first.byte(); byte < geo.lines_end(); byte += kLineBytes) {
    env.memory().publish_line(PoolOffset(first.device(), byte), Line{});
  }
  env.memory().drain_strict(&first, 1);
}

// `geo` names the lost device, and the other one afterwards. The store is taken over and left at
// once: who serves next finds nothing special. 0; -EAGAIN: somebody moved them, or outbid this one;
// -EIO: the other device is lost too, or the newest area is; -EOVERFLOW; as Owner::take_over.
template <PoolEnv Env>
int move_control(Env &env, media::Geometry &geo, MemberOptions how, u32 standby_slot) {
  if (geo.control_devices != 2 || geo.control == kControlMax) return -EOVERFLOW;
  media::Geometry now = geo;
  if (int err = read_control(env, now)) return err;
  if (now.control != geo.control) return -EAGAIN;
  now.control = geo.control + 1;
  if (lines_lost(env, now)) return -EIO;
  env.sleep_ns(2ull * geo.delta_us *
               1000);  // one who died here before may have stores on their way
  clear_lines(env, now);
  Member<Env> member(env, now);
  how.standby_slot = static_cast<u8>(standby_slot);
  if (int err = member.join(how)) return err;
  // Locks of other hosts are not ours: on two of them operators may do the same.
  int err = member.claims().read().active.active_control == geo.control ? 0 : -EAGAIN;
  if (err == 0) {
    Owner<Env> owner(env, member);
    err = owner.take_over(standby_slot);
    owner.stop();
  }
  member.leave();
  if (err != 0) return err;
  env.mark("control_moved");
  geo.control = geo.control_before = now.control;
  return 0;
}

}  // namespace kvpool::pool
