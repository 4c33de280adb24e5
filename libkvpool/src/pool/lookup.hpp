// SPDX-License-Identifier: Apache-2.0
// The reader's side of the index (proto 10): lookups in waves, and the second look that proves a
// copy. One-sided: no owner is asked. Owns no state; safe from any number of threads.
#pragma once

#include <algorithm>

#include "pool/session.hpp"

namespace kvpool::pool {

inline constexpr u32 kWaveKeys = 128;    // keys of one wave
inline constexpr u32 kSliceKeys = 16;    // looked at together
inline constexpr u32 kGroupsAhead = 16;  // on their way meanwhile

struct LookupOptions {
  bool stop_at_miss = false;  // keys are a chain: what follows the first miss is not looked for
};

template <PoolEnv Env>
class IndexReader {
public:
  IndexReader(Env &env, const media::Geometry &geo, Claims<Env> &claims)
      : env_(env), geo_(geo), claims_(claims) {}

  // Looks up `count` keys. Keys behind a stop are left as misses. 0; -EAGAIN when another area is
  // the active one by now (open a new session); -ESTALE when the store's life ended.
  int lookup(const Session &session, NsRef ns, const Key *keys, u32 count, LookupOptions options,
             Hit *hits) {
    for (u32 done = 0; done < count;) {
      const u32 n = std::min(count - done, kWaveKeys);
      if (int err = chunk(session, ns, keys + done, n, options, hits + done)) return err;
      if (options.stop_at_miss) {
        for (u32 i = 0; i < n; ++i) {
          if (hits[done + i].presence == Presence::kHit) continue;
          for (u32 j = done + n; j < count; ++j) hits[j] = Hit{};
          return 0;
        }
      }
      done += n;
    }
    return 0;
  }

  // The second look (proto 10), after the last load of a copy: valid[i] says that the copy of
  // hits[i] counts. One serial round trip for up to kWaveKeys blocks. A hit of another area, or of
  // an entry that this one has not, is not looked at: hits come from callers, who may have kept
  // them while the namespace was cleared or bypassed. `keys` (may be null): *keys[i], where there
  // is one, must be the entry's key. 0, -EAGAIN, -ESTALE as above.
  int validate(const Session &session, const Hit *hits, u32 count, bool *valid,
               const Key *const *keys = nullptr) {
    auto &mem = env_.memory();
    mem.begin_wave();
    PoolOffset entry[kWaveKeys];
    u32 n = 0;
    if (!env_.mutant(Mutant::kValidateWithoutAcquire)) {
      claims_.flush_into_wave();
      u32 ns = kNoNs;
      for (u32 i = 0; i < count; ++i) {
        if (!of_session(session, hits[i])) continue;
        entry[n++] = entry_at(session, hits[i].entry);
        if (hits[i].ns != ns) mem.flush(geo_.ns_line(session.area, ns = hits[i].ns));
      }
      flush_groups(mem, entry, n, 1);
    }
    mem.end_wave();
    if (count > 0 && of_session(session, hits[0])) {
      mem.prefetch(geo_.ns_line(session.area, hits[0].ns));
    }
    for (u32 i = 0; i < n; ++i) mem.prefetch_far(entry[i]);  // else one waits for another
    const ClaimView view = claims_.decode();
    if (!env_.mutant(Mutant::kValidateWithoutClaims)) {
      if (view.gone || env_.revoked()) return -ESTALE;
      if (view.highest_active != session.epoch) return -EAGAIN;
    }
    NsView view_of_ns;
    u32 ns = kNoNs;
    for (u32 i = 0; i < count; ++i) {
      valid[i] = false;
      if (!of_session(session, hits[i])) continue;
      if (hits[i].ns != ns) view_of_ns = load_ns(session, {static_cast<u16>(ns = hits[i].ns), 0});
      valid[i] = binds(view_of_ns, hits[i]) &&
                 (env_.mutant(Mutant::kValidateWithoutEntry) ||
                  still_there(session, hits[i], keys ? keys[i] : nullptr));
    }
    return 0;
  }

  // Reads one entry afresh; false when it does not verify after some looks.
  bool read_entry(const Session &session, u32 number, media::Entry &ret_entry) {
    const PoolOffset at = entry_at(session, number);
    auto &mem = env_.memory();
    for (int attempt = 0; attempt < kTornRetries; ++attempt) {
      Line line;
      const bool loaded = mem.load_line(at, line);
      const bool trust = env_.mutant(Mutant::kTornEntryAccepted);
      if (loaded && (trust || claims_.sealer().intact(line, at, session.epoch))) {
        ret_entry = media::from_line<media::Entry>(line);
        return true;
      }
      env_.relax(static_cast<u32>(attempt));
      mem.acquire(at, kLineBytes);
    }
    return false;
  }

  PoolOffset entry_at(const Session &session, u64 number) const {
    return geo_.entry_line(session.area, number);
  }

private:
  static constexpr u32 kNoNs = ~u32{0};
  struct NsView {
    bool readable = false;
    media::NamespaceLine line{};
  };

  NsView load_ns(const Session &session, NsRef ns) {
    NsView view;
    const PoolOffset at = geo_.ns_line(session.area, ns.id);
    for (int attempt = 0; attempt < kTornRetries && !view.readable; ++attempt) {
      Line line;
      if (env_.memory().load_line(at, line) &&
          claims_.sealer().intact(line, at, session.epoch)) {
        view.line = media::from_line<media::NamespaceLine>(line);
        view.readable = true;
      } else {
        env_.relax(static_cast<u32>(attempt));
        env_.memory().acquire(at, kLineBytes);
      }
    }
    return view;
  }

  static MissReason ns_verdict(const NsView &view, NsRef ns) {
    if (!view.readable) return MissReason::kUnreadable;
    if (!(view.line.flags & media::kNsUsed)) return MissReason::kForeignNs;
    if (view.line.flags & media::kNsBypass) return MissReason::kBypassed;
    if (view.line.epoch != ns.epoch) return MissReason::kCleared;
    return MissReason::kNone;
  }

  // One wave over the first groups, a second over the second groups of what is not found.
  int chunk(const Session &session, NsRef ns, const Key *keys, u32 n, LookupOptions options,
            Hit *hits) {
    auto &mem = env_.memory();
    PoolOffset group[kWaveKeys];
    for (u32 i = 0; i < n; ++i) {
      const u64 first = media::first_group(keys[i].w, session.index_groups);
      group[i] = geo_.entry_line(session.area, first * media::kGroupLines);
    }
    mem.begin_wave();
    if (!env_.mutant(Mutant::kLookupWithoutAcquire)) {
      claims_.flush_into_wave();
      if (!env_.mutant(Mutant::kNsNotAcquired)) mem.flush(geo_.ns_line(session.area, ns.id));
      flush_groups(mem, group, n, media::kGroupLines);
    }
    mem.end_wave();
    mem.prefetch(geo_.ns_line(session.area, ns.id));
    prefetch_first(group, n);
    const ClaimView view = claims_.decode();
    if (view.gone || env_.revoked()) return -ESTALE;
    const bool moved = view.highest_active != session.epoch;
    if (moved && !env_.mutant(Mutant::kLookupWithoutClaims)) return -EAGAIN;
    const NsView ns_view = load_ns(session, ns);
    if (const MissReason reason = ns_verdict(ns_view, ns); reason != MissReason::kNone) {
      for (u32 i = 0; i < n; ++i) {
        hits[i] = Hit{};
        hits[i].reason = reason;
      }
      return 0;
    }
    u16 rest[kWaveKeys];
    const u32 open = first_pass(session, ns_view, keys, group, n, hits, rest);
    second_pass(session, ns_view, keys, rest, open, options, hits);
    return 0;
  }

  void prefetch_group(PoolOffset group) {
    auto &mem = env_.memory();
    for (u32 j = 0; j < media::kGroupLines; ++j) mem.prefetch_far(group + j * kLineBytes);
  }
  void prefetch_first(const PoolOffset *group, u32 n) {
    for (u32 i = 0; i < kGroupsAhead && i < n; ++i) prefetch_group(group[i]);
  }

  // Returns how many keys stay open.
  u32 first_pass(const Session &session, const NsView &ns, const Key *keys, const PoolOffset *group,
                 u32 n, Hit *hits, u16 *rest) {
    u32 rest_count = 0;
    for (u32 done = 0; done < n; done += kSliceKeys) {
      pass_slice(session, ns, keys, group, done, std::min(done + kSliceKeys, n), n, hits, rest,
                 rest_count);
    }
    return rest_count;
  }

  // Compares one word in each line, then copies the lines that match, then checks CRCs four at a
  // time, while the groups of the next keys are on their way.
  void pass_slice(const Session &session, const NsView &ns, const Key *keys,
                  const PoolOffset *group, u32 begin, u32 end, u32 n, Hit *hits, u16 *rest,
                  u32 &rest_count) {
    auto &mem = env_.memory();
    Line got[kSliceKeys];
    PoolOffset from[kSliceKeys];
    u16 key_of[kSliceKeys];
    u32 got_count = 0;
    u8 matches[kSliceKeys];
    for (u32 i = begin; i < end; ++i) {
      if (i + kGroupsAhead < n) prefetch_group(group[i + kGroupsAhead]);
      matches[i - begin] =
          static_cast<u8>(match_lines<media::kGroupLines>(mem, group[i], keys[i].w[0]));
    }
    for (u32 i = begin; i < end; ++i) {
      const u32 match = matches[i - begin];
      if (std::has_single_bit(match)) [[likely]] {
        const PoolOffset at = group[i] + static_cast<u32>(std::countr_zero(match)) * kLineBytes;
        if (mem.load_line(at, got[got_count])) {
          from[got_count] = at;
          key_of[got_count++] = static_cast<u16>(i);
          continue;
        }
      }
      slow_group(session, ns, keys[i], group[i], hits[i], rest, rest_count, i);
    }
    bool verified[kSliceKeys];
    verify_batch(session, got, from, got_count, verified);
    for (u32 g = 0; g < got_count; ++g) {
      const u32 i = key_of[g];
      const auto entry = media::from_line<media::Entry>(got[g]);
      const u64 number = (from[g].byte() - entry_at(session, 0).byte()) / kLineBytes;
      const bool sound = verified[g] && same_key(entry, keys[i]) &&
                         entry.entry_state() == media::EntryState::kPublished &&
                         entry.version > ns.line.clear_version;
      if (sound) [[likely]] {
        fill_hit(session, entry, static_cast<u32>(number), hits[i]);
      } else {
        slow_group(session, ns, keys[i], group[i], hits[i], rest, rest_count, i);
      }
    }
  }

  void verify_batch(const Session &session, const Line *got, const PoolOffset *from, u32 count,
                    bool *verified) {
    u32 g = 0;
    for (; g + 4 <= count; g += 4) {
      const Line *const lines[4] = {got + g, got + g + 1, got + g + 2, got + g + 3};
      const u32 mask = claims_.sealer().intact4(lines, from + g, session.epoch);
      for (u32 i = 0; i < 4; ++i) verified[g + i] = mask >> i & 1;
    }
    for (; g < count; ++g) verified[g] = claims_.sealer().intact(got[g], from[g], session.epoch);
    if (env_.mutant(Mutant::kTornEntryAccepted)) std::fill_n(verified, count, true);
  }

  // Whether a group sent keys to their second one; an unreadable flag counts as set.
  bool spills(PoolOffset group) {
    if (env_.mutant(Mutant::kLookupIgnoresSpill)) return false;
    u64 word = 0;
    if (!env_.memory().load_word(group + 7 * sizeof(u64), word)) return true;
    return word >> 8 & media::kEntrySpill;
  }

  void slow_group(const Session &session, const NsView &ns, const Key &key, PoolOffset group,
                  Hit &hit, u16 *rest, u32 &rest_count, u32 i) {
    hit = Hit{};
    if (search_group(session, ns, key, group, hit)) return;
    if (spills(group)) rest[rest_count++] = static_cast<u16>(i);
  }

  void second_pass(const Session &session, const NsView &ns, const Key *keys, u16 *rest, u32 open,
                   LookupOptions options, Hit *hits) {
    if (open == 0) return;
    auto &mem = env_.memory();
    std::sort(rest, rest + open);
    if (options.stop_at_miss) open = before_first_miss(hits, rest, open);
    env_.mark("lookup_second_wave");
    PoolOffset group[kWaveKeys];
    for (u32 r = 0; r < open; ++r) {
      const u64 second = media::second_group(keys[rest[r]].w, session.index_groups);
      group[r] = geo_.entry_line(session.area, second * media::kGroupLines);
    }
    mem.begin_wave();
    if (!env_.mutant(Mutant::kLookupWithoutAcquire)) {
      flush_groups(mem, group, open, media::kGroupLines);
    }
    mem.end_wave();
    prefetch_first(group, open);
    for (u32 r = 0; r < open; ++r) {
      if (r + kGroupsAhead < open) prefetch_group(group[r + kGroupsAhead]);
      search_group(session, ns, keys[rest[r]], group[r], hits[rest[r]]);
    }
  }

  // How many of the open keys stand before the first key that is a miss for certain.
  static u32 before_first_miss(const Hit *hits, const u16 *rest, u32 open) {
    u32 next = 0;
    for (u32 i = 0; next < open; ++i) {
      if (i == rest[next]) {
        ++next;
      } else if (hits[i].presence != Presence::kHit) {
        return next;
      }
    }
    return open;
  }

  static bool same_key(const media::Entry &entry, const Key &key) {
    return entry.key[0] == key.w[0] && entry.key[1] == key.w[1] && entry.key[2] == key.w[2] &&
           entry.key[3] == key.w[3];
  }

  // Every line of a group, with a second look at torn ones. True when the key is found visible.
  bool search_group(const Session &session, const NsView &ns, const Key &key, PoolOffset group,
                    Hit &hit) {
    const u64 base = (group.byte() - entry_at(session, 0).byte()) / kLineBytes;
    for (u32 j = 0; j < media::kGroupLines; ++j) {
      u64 first = 0;
      if (!env_.memory().load_word(group + j * kLineBytes, first) || first != key.w[0]) continue;
      media::Entry entry;
      const u32 number = static_cast<u32>(base + j);
      if (!read_entry(session, number, entry)) {
        hit.reason = MissReason::kUnreadable;
        continue;
      }
      if (!same_key(entry, key)) continue;
      switch (entry.entry_state()) {
        case media::EntryState::kPublished:
          if (entry.version <= ns.line.clear_version) {
            hit.reason = MissReason::kCleared;
            break;
          }
          fill_hit(session, entry, number, hit);
          return true;
        case media::EntryState::kPending:
          hit.presence = Presence::kPending;
          hit.reason = MissReason::kNone;
          hit.ns = entry.ns;
          hit.epoch = session.epoch;
          hit.entry = number;
          hit.pending_ms = entry.check_hash >> 16;
          return true;
        case media::EntryState::kDraining:
          hit.reason = MissReason::kDraining;
          break;
        case media::EntryState::kHidden:
          hit.reason = MissReason::kHidden;
          break;
        case media::EntryState::kEmpty:
          break;
      }
    }
    return false;
  }

  void fill_hit(const Session &session, const media::Entry &entry, u32 number, Hit &hit) {
    hit.presence = Presence::kHit;
    hit.reason = MissReason::kNone;
    hit.tainted = entry.state & media::kEntryTainted;
    hit.ns = entry.ns;
    hit.epoch = session.epoch;
    hit.entry = number;
    hit.shards = entry.shards();
    hit.version = entry.version;
    hit.payload_bytes = entry.payload_lines() * kLineBytes;
    hit.address = entry.locator() * media::kLocatorUnit;
    hit.check_hash = entry.check_hash;
  }

  bool of_session(const Session &session, const Hit &hit) const {
    return hit.epoch == session.epoch && hit.entry < session.entry_count() &&
           hit.ns < geo_.namespace_lines;
  }

  // Whether the namespace lets its blocks be read, and this one is of after its last clear.
  bool binds(const NsView &ns, const Hit &hit) const {
    if (env_.mutant(Mutant::kValidateIgnoresNs)) return true;
    if (!ns.readable || !(ns.line.flags & media::kNsUsed)) return false;
    return !(ns.line.flags & media::kNsBypass) && hit.version > ns.line.clear_version;
  }

  bool still_there(const Session &session, const Hit &hit, const Key *key) {
    media::Entry entry;
    if (!read_entry(session, hit.entry, entry)) return false;
    if (entry.ns != hit.ns || (key && !same_key(entry, *key))) return false;
    const auto state = entry.entry_state();
    if (state != media::EntryState::kPublished && state != media::EntryState::kDraining) {
      return false;
    }
    if (env_.mutant(Mutant::kValidateIgnoresVersion)) return true;
    return entry.version == hit.version;
  }

  Env &env_;
  const media::Geometry &geo_;
  Claims<Env> &claims_;
};

}  // namespace kvpool::pool
