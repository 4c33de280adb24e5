// SPDX-License-Identifier: Apache-2.0
// Small scripts whose host loses its power after a chosen verb, with chosen stores kept and lost:
// what crash enumeration goes through, and what the scenario `crash` draws from.
#pragma once

#include <functional>
#include <span>

#include "rig.hpp"

namespace kvpool::sim {

// Whose host it is: owner and member may share one.
enum class Victim : u8 { kOwner, kMember, kBoth, kStandby };

struct Play;
struct Script {
  const char *name;
  const char *what;
  Victim victim;
  RigOptions rig;
  void (*prepare)(Play &play);  // before the window opens; may be nullptr
  void (*act)(Play &play);      // in the window; may be cut short
};

std::span<const Script> scripts();

// What a run saw.
struct PlayReport {
  // For each verb of the victim's host while the script's window was open: how many endings a power
  // loss has after it; 0: it and all others since the verb before stored nothing, so it is the same
  // moment.
  std::vector<u64> ways;
  bool crashed = false;
};

// One run: at options.crash_at of the window power is lost with options.crash_way; 0: never.
PlayReport play(Sim &sim, const Script &script, bool count_ways);

// How a script is interleaved: 1 nothing happens by itself, so that stores stay under way as long
// as they may; 2 the same with every line stored in two pieces; from 3 on whatever the seed draws.
void interleave(RunOptions &options, u64 seed);

}  // namespace kvpool::sim
