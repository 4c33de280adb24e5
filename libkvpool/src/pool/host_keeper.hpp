// SPDX-License-Identifier: Apache-2.0
// The host line (proto 6): one process of a host holds the host's lock and writes its line. Before
// each heartbeat it rereads the line: a foreign incarnation means that two hosts use one id, which
// is fatal for both, since their slots and doorbells are the same lines. Guarded by the member's
// mutex. The host's other processes look at the line as well, by its boot id.
#pragma once

#include <cstring>

#include "media/layout.hpp"
#include "media/seal.hpp"
#include "pool/env.hpp"

namespace kvpool::pool {

struct HostIdentity {
  u8 machine_id[16] = {};
  u8 boot_id[16] = {};
};

template <PoolEnv Env>
class HostKeeper {
public:
  HostKeeper(Env &env, const media::Geometry &geo, const media::Sealer &sealer)
      : env_(env), geo_(geo), sealer_(sealer) {}

  // One heartbeat, if this process keeps the host's line or may start to. False: the id is used
  // twice.
  bool beat(u32 host, const HostIdentity &identity) {
    if (!holding_) {
      host_ = host;
      if (!env_.try_lock(LockKind::kHost, host)) return !stranger_writes(identity);
      holding_ = true;
      begin(identity);
      return true;
    }
    media::HostLine found;
    if (read(found) && found.incarnation != line_.incarnation) {
      env_.mark("host_id_used_twice");
      return false;
    }
    ++line_.counter;
    write();
    return true;
  }

  // The lock goes with the process; a leaving member lets another one of its host continue.
  void stop() {
    if (holding_) env_.unlock(LockKind::kHost, host_);
    holding_ = false;
  }

private:
  // Another process of this host keeps the line. One of another boot that moves is written by
  // somebody else; one that stands still was left there before.
  bool stranger_writes(const HostIdentity &identity) {
    media::HostLine found;
    if (!read(found)) return false;
    if (std::memcmp(found.boot_id, identity.boot_id, sizeof found.boot_id) == 0) return false;
    const bool again = stranger_.incarnation != 0;
    const bool moves =
        found.incarnation != stranger_.incarnation || found.counter != stranger_.counter;
    stranger_ = found;
    if (!again || !moves) return false;
    env_.mark("host_id_used_by_strangers");
    return true;
  }

  void begin(const HostIdentity &identity) {
    line_ = media::HostLine{};
    std::memcpy(line_.machine_id, identity.machine_id, sizeof line_.machine_id);
    std::memcpy(line_.boot_id, identity.boot_id, sizeof line_.boot_id);
    do {
      line_.incarnation = env_.random();
    } while (line_.incarnation == 0 || line_.incarnation == ~u64{0});
    line_.counter = 1;
    write();
  }

  bool read(media::HostLine &ret_line) {
    const PoolOffset at = geo_.host_at(host_);
    Line line;
    env_.memory().acquire(at, kLineBytes);
    if (!env_.memory().load_line(at, line) || !sealer_.intact(line, at, 0)) return false;
    ret_line = media::from_line<media::HostLine>(line);
    return true;
  }

  void write() {
    const PoolOffset at = geo_.host_at(host_);
    env_.memory().publish_line(at, sealer_.sealed(line_, at, 0));
    env_.memory().drain_strict(&at, 1);
  }

  Env &env_;
  const media::Geometry &geo_;
  const media::Sealer &sealer_;
  bool holding_ = false;
  u32 host_ = 0;
  media::HostLine line_{};
  media::HostLine stranger_{};  // as last seen, of another boot
};

}  // namespace kvpool::pool
