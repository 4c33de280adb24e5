// SPDX-License-Identifier: Apache-2.0
// Claims and acceptance (proto 7): who owns the store, and whether an answer counts. Owns no state;
// it reads the claim lines and both identity lines in one wave, or as part of somebody's wave.
#pragma once

#include <algorithm>

#include "media/layout.hpp"
#include "media/seal.hpp"
#include "pool/env.hpp"
#include "pool/types.hpp"

namespace kvpool::pool {

// What one reading of the claim lines says.
struct ClaimView {
  bool gone = false;        // another life of the store, or no superblock any more, or moved
  bool moved = false;       // lines and rings stand on another device (proto 14)
  bool elsewhere = false;   // they do, or whoever claims now moves them: no lease begins
  u64 other_life = 0;       // the nonce of another life; 0: none was seen
  bool unreadable = false;  // a slot with no readable copy: counts as a higher claim
  u32 highest_claimed = 0;  // over claimed and active
  u32 highest_active = 0;
  u8 active_slot = 0;
  media::ClaimLine active{};                      // the line with the highest active epoch
  media::ClaimLine line[media::kMaxStandbys]{};   // each slot's, where readable
  bool readable[media::kMaxStandbys]{};

  // proto 7: an answer counts only if no claim, active or not, is above its epoch.
  bool accepts(u32 epoch) const { return !gone && !unreadable && highest_claimed <= epoch; }
};

inline constexpr int kTornRetries = 8;  // a line stored in pieces is whole again after a few looks

template <PoolEnv Env>
class Claims {
public:
  using Memory = typename Env::Memory;

  Claims(Env &env, const media::Geometry &geo)
      : env_(env), geo_(geo), sealer_(geo.uuid, geo.nonce) {}

  const media::Sealer &sealer() const { return sealer_; }

  // Adds the lines to a wave that the caller has begun.
  void flush_into_wave() {
    Memory &mem = env_.memory();
    for (u32 copy = 0; copy < 2; ++copy) {
      flush_claim(mem, geo_.identity_at(copy));
      for (u32 slot = 0; slot < geo_.standby_count; ++slot) {
        flush_claim(mem, geo_.claim_at(copy, slot));
      }
    }
  }

  // Decodes after the wave's end. A line that does not verify is looked at again: it may have been
  // caught in the middle of a store (A1).
  ClaimView decode() {
    Memory &mem = env_.memory();
    for (u32 copy = 0; copy < 2; ++copy) {
      mem.prefetch(geo_.identity_at(copy));
      for (u32 slot = 0; slot < geo_.standby_count; ++slot) mem.prefetch(geo_.claim_at(copy, slot));
    }
    ClaimView view = decode_once();
    for (int i = 0; i < kTornRetries && (view.unreadable || view.gone); ++i) {
      env_.mark("claims_reread");
      env_.relax(static_cast<u32>(i));
      wave();
      view = decode_once();
    }
    return view;
  }

  // One serial round trip.
  ClaimView read() {
    wave();
    return decode();
  }

  // Writes one slot's line to both copies, each drained strictly (proto 7).
  void write(u32 slot, media::ClaimLine claim) {
    Memory &mem = env_.memory();
    for (u32 copy = 0; copy < 2; ++copy) {
      if (copy == 1 && env_.mutant(Mutant::kClaimOneCopy)) break;
      const PoolOffset at = geo_.claim_at(copy, slot);
      Line line = media::to_line(claim);
      sealer_.seal(line, at, 0);
      mem.publish_line(at, line);
      mem.drain_strict(&at, 1);
    }
  }

private:
  void wave() {
    Memory &mem = env_.memory();
    mem.begin_wave();
    flush_into_wave();
    mem.end_wave();
  }

  // 1: this life, 0: unreadable, -1: another life, whose nonce it gives.
  int identity_state(u32 copy, u64 &ret_other) {
    Line line;
    const PoolOffset at = geo_.identity_at(copy);
    if (!env_.memory().load_line(at, line)) return 0;
    if (!media::Sealer::identity_intact(line)) return 0;
    const auto id = media::from_line<media::Identity>(line);
    const bool same = id.nonce == geo_.nonce && std::memcmp(id.uuid, geo_.uuid, 16) == 0;
    if (!same) ret_other = id.nonce;
    return same ? 1 : -1;
  }

  ClaimView decode_once() {
    ClaimView view;
    const int id0 = identity_state(0, view.other_life), id1 = identity_state(1, view.other_life);
    view.gone = id0 < 0 || id1 < 0 || (id0 == 0 && id1 == 0);
    for (u32 slot = 0; slot < geo_.standby_count; ++slot) {
      media::ClaimLine best{};
      bool any = false;
      for (u32 copy = 0; copy < 2; ++copy) {
        Line line;
        const PoolOffset at = geo_.claim_at(copy, slot);
        if (!env_.memory().load_line(at, line) || !sealer_.intact(line, at, 0)) continue;
        const auto claim = media::from_line<media::ClaimLine>(line);
        const bool higher = claim.claimed > best.claimed ||
                            (claim.claimed == best.claimed && claim.active > best.active);
        if (!any || higher) best = claim;
        any = true;
      }
      if (!any) {
        view.unreadable = true;
        continue;
      }
      view.readable[slot] = true;
      view.line[slot] = best;
    }
    summarise(view);
    return view;
  }

  // A counter far above the others is damage, not an epoch (proto 14).
  void summarise(ClaimView &view) {
    u32 second = 0, highest = 0;
    for (u32 slot = 0; slot < geo_.standby_count; ++slot) {
      if (!view.readable[slot]) continue;
      const u32 counter = media::epoch_counter(std::max(view.line[slot].claimed,
                                                        view.line[slot].active));
      if (counter > highest) {
        second = highest;
        highest = counter;
      } else if (counter > second) {
        second = counter;
      }
    }
    for (u32 slot = 0; slot < geo_.standby_count; ++slot) {
      if (!view.readable[slot]) continue;
      const media::ClaimLine &claim = view.line[slot];
      const u32 top = std::max(claim.claimed, claim.active);
      if (geo_.standby_count > 1 && media::epoch_counter(top) == highest &&
          highest > second + media::kEpochJumpMax) {
        env_.mark("claim_jump");
        view.readable[slot] = false;
        view.unreadable = true;
        continue;
      }
      if (top > view.highest_claimed) {
        view.highest_claimed = top;
        view.elsewhere = !mine(claim.claimed == top ? claim.claimed_control : claim.active_control);
      }
      if (claim.active > view.highest_active) {
        view.highest_active = claim.active;
        view.active_slot = static_cast<u8>(slot);
        view.active = claim;
      }
    }
    // proto 14: of a slot that cannot be read nobody knows what it activated.
    view.moved = !view.unreadable && view.highest_active != 0 &&
                 !mine(view.active.active_control) && !env_.mutant(Mutant::kControlIgnored);
    view.gone = view.gone || view.moved;
  }

  bool mine(u8 control) const { return control == geo_.control || control == geo_.control_before; }

  Env &env_;
  const media::Geometry &geo_;
  media::Sealer sealer_;
};

}  // namespace kvpool::pool
