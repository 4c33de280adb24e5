// SPDX-License-Identifier: Apache-2.0
// Whether a member lives, as a bystander can tell. Locks speak for the processes of one machine;
// over a device that several machines map, those of other hosts are seen by their heartbeats alone.
#pragma once

#include "arch/types.hpp"

namespace kvpool::tools {

enum class Liveness { kLeft, kAlive, kDead, kUnknown };

struct Sign {
  bool joined = false;
  bool lock_known = true;  // the slot's lock says whether its process lives
  bool locked = false;
  bool moved = false;  // its heartbeat did, between two looks
};

// Nobody can tell a still heartbeat from a lost machine: whoever knows says `kvpool host fence`.
constexpr Liveness liveness(const Sign &sign) {
  if (!sign.joined) return Liveness::kLeft;
  if (sign.lock_known) return sign.locked ? Liveness::kAlive : Liveness::kDead;
  return sign.moved ? Liveness::kAlive : Liveness::kUnknown;
}

constexpr const char *liveness_name(Liveness liveness) {
  switch (liveness) {
    case Liveness::kLeft: return "left";
    case Liveness::kAlive: return "alive";
    case Liveness::kDead: return "dead";
    case Liveness::kUnknown: return "unknown";
  }
  return "unknown";
}

}  // namespace kvpool::tools
