// SPDX-License-Identifier: Apache-2.0
// Values that pass between the pool and what stands above it. Plain data, no behaviour.
#pragma once

#include <cerrno>

#include "media/format.hpp"

namespace kvpool::pool {

// 32 bytes, uniform (proto 13). Compared whole.
struct Key {
  u64 w[4];
  friend bool operator==(const Key &, const Key &) = default;
};

// A namespace as its handle knows it.
struct NsRef {
  u16 id = 0;
  u32 epoch = 0;  // of the namespace: enters the keys
};

enum class Presence : u8 { kMiss, kPending, kHit };

// Why a key is no hit, for `kvpool why` and events.
enum class MissReason : u8 {
  kNone,
  kAbsent,
  kDraining,
  kHidden,
  kCleared,
  kBypassed,
  kUnreadable,
  kForeignNs,
};

// What a lookup found of one key; the token a later validation needs.
struct Hit {
  Presence presence = Presence::kMiss;
  MissReason reason = MissReason::kAbsent;
  bool tainted = false;
  u16 ns = 0;
  u32 epoch = 0;        // whose area it was found in
  u32 entry = 0;        // number in that area's index
  u32 shards = 0;
  u64 version = 0;
  u64 payload_bytes = 0;
  u64 address = 0;      // pool address of the block
  u64 check_hash = 0;
  u64 pending_ms = 0;   // kPending: announced duration, from when it was posted
};

// A block in hand: nobody else may use it until it is published or given back.
struct Block {
  u32 extent = 0;
  u32 index = 0;       // within the extent
  u32 run_extents = 0;  // 0: cut from one extent
  u8 size_class = media::kClassNone;
  bool tainted = false;
  u64 address = 0;     // pool address
  u64 bytes = 0;       // of the class
};

// One publication of a batch, and what became of it.
struct Publication {
  Key key{};
  NsRef ns{};
  Block block{};
  u64 payload_lines = 0;
  u32 shards = 1;
  u64 check_hash = 0;
  u64 parent = 0;
  // Result: 0, -EEXIST (the block stays in hand unless its extent was given back), -ENOSPC (the
  // index has no line), -EDQUOT (the quota), -ESTALE, -EINPROGRESS (in doubt at the deadline; the
  // member goes on resolving it), -EINVAL
  int result = -EINPROGRESS;
  bool posted = false;  // else the block is in hand as before, whatever the result
  u64 version = 0;
  u32 entry = 0;
};

struct Pin {
  u64 id = 0;
  Hit hit{};
  u64 expiry_ns = 0;  // on the holder's own clock
};

// A decision that others want to hear of (events). `member` is the slot that asked, or kNobody.
enum class Decision : u8 { kStored, kEvicted, kRemoved, kCleared, kLost, kDamaged };
struct DecisionEvent {
  static constexpr u32 kNobody = 0xFFFF;
  Decision what = Decision::kStored;
  u32 member = kNobody;
  u32 ns = 0;
  u64 version = 0;
  u64 payload_bytes = 0;
  Key key{};
};
// Called by the owner's thread, before the decision is answered. Must be quick.
struct DecisionSink {
  void (*fn)(void *arg, const DecisionEvent &event) = nullptr;
  void *arg = nullptr;
};

// What an owner has done; read by `kvpool serve`, the demo and the benchmarks.
struct OwnerStats {
  u64 requests = 0, publications = 0, exists = 0, grants = 0, busy = 0, full = 0;
  u64 evicted = 0, revived = 0, removed = 0, cleared = 0, displaced_pending = 0;
  u64 extents_returned = 0, extents_reclaimed = 0, extents_tainted = 0;
  u64 members_joined = 0, members_left = 0, members_dead = 0;
  u64 batches = 0, polls = 0, spills = 0, unreadable_entries = 0, unreadable_map_words = 0;
  u64 pins = 0, reports = 0;
  u64 lost = 0;  // blocks that went with their device
};

}  // namespace kvpool::pool
