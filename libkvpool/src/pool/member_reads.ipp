// SPDX-License-Identifier: Apache-2.0
// A member's one-sided calls (proto 10): no lock, no owner.
#pragma once

namespace kvpool::pool {

template <PoolEnv Env>
int Member<Env>::lookup(NsRef ns, const Key *keys, u32 count, LookupOptions options,
                        Hit *ret_hits) {
  for (u32 attempt = 0; attempt < kAreaRetries; ++attempt) {
    const int err = reader_.lookup(*session(), ns, keys, count, options, ret_hits);
    if (err != -EAGAIN) return err;
    env_.mark("lookup_again");
    if (int e = refresh_session(); e && e != -EAGAIN) return e;
  }
  return -EAGAIN;
}

template <PoolEnv Env>
int Member<Env>::validate(const Hit *hits, u32 count, bool *ret_valid, const Key *const *keys) {
  for (u32 done = 0; done < count; done += kWaveKeys) {
    const u32 n = std::min(count - done, kWaveKeys);
    const int err = reader_.validate(*session(), hits + done, n, ret_valid + done,
                                     keys ? keys + done : nullptr);
    if (err == -EAGAIN) refresh_session();
    if (err) return err;
  }
  return 0;
}

template <PoolEnv Env>
int Member<Env>::read_ns(u32 id, media::NamespaceLine &ret_line) {
  for (u32 attempt = 0; attempt < kAreaRetries; ++attempt) {
    const Session &s = *session();
    const PoolOffset at = geo_.ns_line(s.area, id);
    auto &mem = env_.memory();
    mem.begin_wave();
    claims_.flush_into_wave();
    mem.flush(at);
    mem.end_wave();
    const ClaimView view = claims_.decode();
    if (view.gone) return -ESTALE;
    Line line;
    if (view.highest_active == s.epoch && mem.load_line(at, line) &&
        claims_.sealer().intact(line, at, s.epoch)) {
      ret_line = media::from_line<media::NamespaceLine>(line);
      return 0;
    }
    env_.relax(attempt);
    if (view.highest_active != s.epoch) {
      if (int err = refresh_session(); err && err != -EAGAIN) return err;
    }
  }
  return -EUCLEAN;
}

// The table is probed from the fingerprint's own place on, as the owner fills it.
template <PoolEnv Env>
int Member<Env>::find_ns(const u8 fingerprint[16], u32 &ret_id, media::NamespaceLine &ret_line) {
  const u32 lines = geo_.namespace_lines;
  u64 first;
  std::memcpy(&first, fingerprint, sizeof first);
  for (u32 probe = 0; probe < media::ns_probes(lines); ++probe) {
    const u32 id = media::ns_probe(first, probe, lines);
    media::NamespaceLine line;
    if (int err = read_ns(id, line)) return err;
    if (line.flags & media::kNsEmpty) return -ENOENT;
    if ((line.flags & media::kNsUsed) && std::memcmp(line.fingerprint, fingerprint, 16) == 0) {
      ret_id = id;
      ret_line = line;
      return 0;
    }
  }
  return -ENOENT;
}

template <PoolEnv Env>
void Member<Env>::touch(const Hit *hits, u32 count) {
  if (!mutex_.try_lock()) return;  // lossy: a busy member touches less
  std::lock_guard guard(mutex_, std::adopt_lock);
  if (!bound_ && lease_.flags() != 0) return;
  for (u32 i = count; i-- > 0;) {  // from the last block to the first: parents end up more recent
    if (hits[i].presence != Presence::kHit || hits[i].epoch != session()->epoch) continue;
    if (touched_count_ == media::kTouchMax) flush_touches();
    if (touched_count_ < media::kTouchMax) touched_[touched_count_++] = hits[i].entry + 1;
  }
}

}  // namespace kvpool::pool
