// SPDX-License-Identifier: Apache-2.0
// The rig's processes: formatting, serving, standing by, leases, workers.
#include "rig.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvpool::sim {

namespace {

// Owners sleep soon: simulated time passes by itself, and steps are what a seed costs.
Time rest_ns(u64 idle, u64 longest) { return idle < 50'000 ? 0 : std::min(longest, idle / 4); }

constexpr u64 kMs = 1'000'000;

}  // namespace

Rig::Rig(Sim &sim, const RigOptions &options) : sim_(sim), options_(options) {
  media::FormatOptions format;
  format.device_count = options.devices;
  format.hosts = options.hosts;
  format.members_per_host = options.members_per_host;
  format.standbys = options.standbys;
  format.namespaces = 4;
  format.min_block_bytes =
      static_cast<u32>(options.index_bytes ? options.index_bytes : options.block_bytes);
  format.lines_per_block = options.lines_per_block;
  format.extent_stripes = 1;
  format.index_growth = options.index_growth;
  format.map_growth = options.room_bytes ? 8 : 1;
  format.request_lines = 32;
  format.response_slots = 16;
  format.lease_ms = options.lease_ms;
  format.delta_us = options.delta_us;
  format.grace_us = options.grace_us;
  std::string why;
  // The metadata of so small a store takes a share of its own: ask for more until the extents fit.
  for (u64 bytes = media::kStripeBytes;; bytes += 256 << 10) {
    for (u32 d = 0; d < options.devices; ++d) format.device_bytes[d] = bytes;
    const int err = media::plan_layout(format, layout_, &why);
    if (err == 0 && layout_.regions.extent_count() >= options.extents) break;
    if (bytes > u64{512} << 20) {
      std::fprintf(stderr, "kvpool-sim: cannot plan the store: %s\n", why.c_str());
      std::abort();
    }
  }
  media::Geometry &geo = layout_.geometry;
  for (u8 &byte : geo.uuid) byte = static_cast<u8>(sim.rng().next() | 1);
  geo.nonce = sim.rng().next() | 1;
  geo.state = media::StoreState::kReady;
  sealer_ = media::Sealer(geo.uuid, geo.nonce);
  WorldOptions world;
  world.hosts = options.hosts;
  world.torn_permille = options.torn_permille;
  world.delta_ns = u64{options.delta_us} * 990;  // a little less than the store's bound
  world.device_bytes.clear();
  std::vector<u64> files;
  for (u32 d = 0; d < geo.device_count; ++d) {
    files.push_back(geo.device_bytes[d]);
    world.device_bytes.push_back(geo.device_bytes[d] + options.room_bytes);
  }
  sim_.make_world(world);
  if (options.room_bytes == 0) return;
  sim_.set_files(std::move(files));
  sim_.judge_stores([this] {  // whoever is dead may store what nobody will ever read
    for (const auto &actor : actors_) {
      if (actor->process != sim_.current_process()) continue;
      return !actor->cut_off && sim_.now() < actor->entitled_until;
    }
    return false;
  });
}

Rig::~Rig() {
  for (const auto &actor : actors_) {
    for (SimOwner *owner : actor->owners) delete owner;
    delete actor->scratch;
    delete actor->store;
    delete actor->member;
    delete actor->env;
  }
}

void Rig::poke(PoolOffset at, Line line, u32 epoch) {
  sealer_.seal(line, at, epoch);
  sim_.world().poke(at, line);
}

// What `kvpool format` leaves behind: one area activated by slot 0 under epoch 1.
void Rig::format() {
  const media::Geometry &geo = layout_.geometry;
  const u32 epoch = media::make_epoch(1, 0);
  for (u32 copy = 0; copy < 2; ++copy) {
    const auto identity = media::make_identity(geo, geo.identity_at(copy).device(), geo.state);
    sim_.world().poke(geo.identity_at(copy), media::Sealer::sealed_identity(identity));
    for (u32 slot = 0; slot < geo.standby_count; ++slot) {
      media::ClaimLine claim{};
      if (slot == 0) {
        claim.claimed = claim.active = epoch;
        claim.index_groups = geo.index_groups;
        claim.claimed_incarnation = claim.active_incarnation = 1;
      }
      poke(geo.claim_at(copy, slot), media::to_line(claim), 0);
    }
  }
  for (u32 d = geo.control_devices; d < geo.device_count; ++d) {
    const auto identity = media::make_identity(geo, d, geo.state);
    sim_.world().poke(PoolOffset(d, 0), media::Sealer::sealed_identity(identity));
  }
  const PoolOffset area = geo.area_at(0, 0);
  Line regions[media::kRegionTableLines];
  media::encode_regions(layout_.regions, regions);
  for (u32 i = 0; i < media::kRegionTableLines; ++i)
    poke(geo.region_line(area, i), regions[i], epoch);
  for (u32 id = 0; id < geo.namespace_lines; ++id) {
    media::NamespaceLine line{};
    line.flags = media::kNsEmpty;
    poke(geo.ns_line(area, id), media::to_line(line), epoch);
  }
  for (u64 i = 0; i < geo.extent_lines; ++i) {
    Line line{};
    for (u32 k = 0; k < media::kMapRecordsPerLine; ++k) {
      const media::MapRecord record{media::kHolderOwner, 0, media::kClassNone, 0, 0};
      line.w[k] = sealer_.pack_map(record, geo.map_line(area, i) + k * 8, epoch);
    }
    sim_.world().poke(geo.map_line(area, i), line);
  }
  for (u64 n = 0; n < geo.index_groups * media::kGroupLines; ++n) {
    media::Entry entry{};
    entry.state = static_cast<u8>(media::EntryState::kEmpty);
    poke(geo.entry_line(area, n), media::to_line(entry), epoch);
  }
}

Actor &Rig::add_actor(u32 host, const std::string &name) {
  auto actor = std::make_unique<Actor>();
  actor->process = sim_.add_process(host, name);
  actor->host = host;
  actor->name = name;
  actor->env = new SimEnv(sim_);
  actor->member = new SimMember(*actor->env, layout_.geometry);
  if (options_.store_bytes) {
    actor->store = new SimStore(*actor->member);
    actor->scratch = new store::Scratch(options_.store_bytes);
  }
  actors_.push_back(std::move(actor));
  return *actors_.back();
}

void Rig::renewed(Actor &actor, Time begun) {
  const Time lease = u64{options_.lease_ms} * kMs;
  actor.renewed_at = begun;
  actor.entitled_until = begun + lease / 1000 * 960;
  actor.lease_latest = sim_.now() + lease / 1000 * 980;
}

bool Rig::join(Actor &actor, u8 standby_slot) {
  pool::MemberOptions options;
  options.host = actor.host;
  options.name = actor.name;
  options.group = actor.group;
  options.rank = static_cast<u16>(actor.rank);
  options.world = static_cast<u16>(std::max(1u, options_.shards));
  options.standby_slot = standby_slot;
  options.slice_ns = options_.slice_ns;
  for (u32 attempt = 0; attempt < 400; ++attempt) {
    const Time begun = sim_.now();
    const int err = actor.member->join(options);
    if (err == 0) {
      sim_.note("op joined", actor.member->slot(), actor.member->incarnation());
      renewed(actor, begun);
      return true;
    }
    if (actor.cut_off || actor.left_behind) return false;
    if (err != -EAGAIN && err != -EUSERS && err != -EUCLEAN) {
      sim_.fail("%s cannot join: error %d", actor.name.c_str(), err);
    }
    actor.env->sleep_ns(kMs);
  }
  sim_.fail("%s cannot join for long", actor.name.c_str());
  return false;
}

// ---- owners -------------------------------------------------------------------------------------

// Until the heartbeat of the active owner (or of the highest claimer) stands still for long.
void Rig::watch_owner(Actor &actor) {
  u64 counter = 0, seen = actor.env->now_ns();
  u32 watched = ~u32{0};
  while (!actor.stop) {
    if (actor.member->tick() == -ESTALE) {
      if (actor.member->rejoin() == 0) renewed(actor, sim_.now());
    }
    const pool::ClaimView view = actor.member->claims().read();
    u32 slot = view.active.active_member;
    u64 incarnation = view.active.active_incarnation;
    media::Geometry where = actor.member->geometry();
    for (const media::ClaimLine &claim : view.line) {
      if (claim.claimed != view.highest_claimed || claim.claimed <= view.highest_active) continue;
      slot = claim.claimed_member;
      incarnation = claim.claimed_incarnation;
      where.control = claim.claimed_control;
    }
    const PoolOffset at = where.member_at(slot);
    SimMemory &mem = actor.env->memory();
    mem.acquire(at, kLineBytes);
    Line line;
    media::MemberLine other{};
    if (mem.load_line(at, line) && sealer_.intact(line, at, 0)) {
      other = media::from_line<media::MemberLine>(line);
    }
    if (other.counter != counter || slot != watched) {
      counter = other.counter;
      watched = slot;
      seen = actor.env->now_ns();
    }
    // Another incarnation in that slot, or one that left, is not the owner any more.
    const bool gone = other.incarnation != incarnation ||
                      other.state == static_cast<u8>(media::MemberState::kLeft);
    const bool still = gone || actor.env->now_ns() - seen > u64{options_.lease_ms} * kMs;
    const bool rash = !settling_ && !device_back_ && sim_.allows(Feature::kPause) &&
                      sim_.rng().chance(options_.rash_permille);
    if (still || rash) {
      if (rash && !still) SIM_MARK("rival suspects a living owner");
      return;
    }
    actor.env->sleep_ns(u64{options_.lease_ms} * kMs / 10);
  }
}

void Rig::serve(Actor &actor) {
  SimOwner &owner = *actor.owner;
  actor.serving = true;
  while (!actor.stop) {
    const Time begun = sim_.now();
    const int served = owner.step();
    if (served < 0) break;
    renewed(actor, begun);
    if (owner.wants_larger_index()) {
      const int err = owner.enlarge_index();
      sim_.note("op enlarge index", owner.epoch(), static_cast<u64>(err));
      if (err != 0) break;
      SIM_MARK("index enlarged");
    }
    if (owner.wants_new_epoch()) {
      const int err = owner.renew_epoch();
      sim_.note("op renew epoch", owner.epoch(), static_cast<u64>(err));
      if (err != 0) break;
      SIM_MARK("owner took over from itself for more versions");
    }
    if (owner.wants_other_area()) {
      const int err = owner.move_area();
      sim_.note("op move area", owner.epoch(), static_cast<u64>(err));
      if (err != 0) break;
      SIM_MARK("area moved off a lost device");
    }
    if (owner.wants_resize()) {
      const int err = owner.resize_now();
      sim_.note("op resize", owner.epoch(), static_cast<u64>(err));
      if (err != 0) break;
      SIM_MARK("pool resized");
    }
    if (served == 0) actor.env->sleep_ns(rest_ns(owner.idle_ns(), options_.rest_ns));
  }
  actor.serving = false;
  sim_.note("op served", actor.owner->epoch());
}

// A living owner, or another candidate, stops for about as long as a take-over lasts, wherever it
// is.
void Rig::stun_others(const Actor &actor) {
  for (const auto &other : actors_) {
    const bool owner = other->standing_by && other.get() != &actor && sim_.alive(other->process);
    if (!owner || !sim_.rng().chance(options_.stun_permille)) continue;
    SIM_MARK("owner stopped while another takes over");
    const Time ns = sim_.rng().between(50'000, 3 * kMs);
    if (sim_.rng().chance(500)) {
      sim_.pause(other->process, ns);
    } else {  // in the middle of a round rather than between two
      sim_.pause_after(other->process, 1 + sim_.rng().below(80), ns);
    }
  }
}

void Rig::spawn_owner(Actor &actor, u32 standby_slot, bool at_once) {
  actor.standing_by = true;
  actor.standby_slot = standby_slot;
  sim_.spawn(
      actor.process, actor.name,
      [this, &actor, standby_slot, at_once] {
        while (!actor.env->try_lock(pool::LockKind::kStandby, standby_slot)) {
          actor.env->sleep_ns(2 * kMs);
        }
        if (!join(actor, static_cast<u8>(standby_slot))) return;
        actor.ready = true;
        bool first = at_once;
        while (!actor.stop) {
          if (!first && !actor.again) watch_owner(actor);
          first = actor.again = false;
          if (actor.stop) break;
          stun_others(actor);
          if (sim_.rng().chance(options_.stun_permille / 3)) {
            SIM_MARK("candidate stops in its own take-over");
            sim_.pause_after(actor.process, 1 + sim_.rng().below(600),
                             sim_.rng().between(kMs, 15 * kMs));
          }
          if (actor.owner && actor.owner->stats().evicted) owners_stats_lost_ = true;
          pool::OwnerOptions how{.leaving_at_once = 1};
          if (options_.versions != 0) how.versions = options_.versions;
          actor.owner = actor.owners.emplace_back(
              new SimOwner(*actor.env, *actor.member, how));
          const int err = actor.owner->take_over(standby_slot);
          sim_.note("op take over", actor.owner->epoch(), static_cast<u64>(err));
          if (err == 0) {
            SIM_MARK("store taken over");
            ++takeovers_;
            serve(actor);
          } else if (err == -ESTALE) {
            if (actor.member->rejoin() == 0) renewed(actor, sim_.now());
          } else if (err != -EAGAIN && err != -EUCLEAN &&
                     !(err == -EIO && (device_gone() || actor.cut_off))) {
            sim_.fail("%s cannot take over: error %d", actor.name.c_str(), err);
          }
          actor.env->sleep_ns(sim_.rng().below(5 * kMs));
        }
        actor.member->leave();
        actor.left = true;
      },
      true);
}

// ---- members ------------------------------------------------------------------------------------

bool Rig::open_namespace(Actor &actor) {
  media::NsOpenBody body{};
  std::memcpy(body.fingerprint, kFingerprint, sizeof body.fingerprint);
  body.create = 1;
  body.weight = 1;
  for (u32 attempt = 0; attempt < 200 && !actor.stop && !actor.cut_off && !actor.left_behind;
       ++attempt) {
    media::NsAnswer answer{};
    const int err = actor.member->ns_open(body, actor.env->now_ns() + options_.call_ns, answer);
    if (err == 0) {
      actor.ns = {static_cast<u16>(answer.id), answer.epoch};
      return true;
    }
    actor.env->sleep_ns(2 * kMs);
  }
  return false;
}

void Rig::refresh_namespace(Actor &actor) {
  u32 id = 0;
  media::NamespaceLine line{};
  if (actor.member->find_ns(kFingerprint, id, line) == 0) {
    actor.ns = {static_cast<u16>(id), line.epoch};
  }
}

// Nothing in doubt: all that was acknowledged before counts.
void Rig::note_accepted(Actor &actor) {
  const Time before = sim_.now();
  if (actor.disturbed || actor.member->blocks_in_doubt() != 0) return;
  for (const Written &w : history_.all()) {
    if (w.nonce == 0 || w.ended >= before || w.accepted != kNever) continue;
    const auto by = writer_of_.find(w.nonce);
    if (by != writer_of_.end() && by->second == &actor) history_.accepted(w.nonce, sim_.now());
  }
}

void Rig::lease_thread(Actor &actor) {
  while (!actor.stop) {
    const Time begun = sim_.now();
    const u64 expiry = actor.member->lease_expiry_ns();
    actor.ticking = true;
    const int err = actor.member->tick();
    actor.ticking = false;
    if (err == 0 && actor.member->lease_expiry_ns() == expiry) {
      SIM_MARK("lease not renewed: its line is about to move");
    } else if (err == 0) {
      if (begun > actor.lease_latest) {
        sim_.fail("%s renews a lease that was over", actor.name.c_str());
      }
      renewed(actor, begun);
      note_accepted(actor);
    } else if (err == -ESTALE) {
      actor.entitled_until = 0;
      actor.disturbed = true;
      std::erase_if(writers_, [&](const auto &w) { return w.second == &actor; });
      const Time now = sim_.now();
      if (actor.writing == 0 && actor.member->rejoin() == 0) renewed(actor, now);
    }
    actor.env->sleep_ns(u64{options_.lease_ms} * kMs / 8);
  }
  actor.member->leave();
  actor.entitled_until = 0;
  sim_.note("op left", actor.member->slot());
  actor.left = true;
}

void Rig::spawn_member(Actor &actor, u64 ops) {
  spawn_worker(actor, [this, &actor, ops] {
    for (u64 i = 0; i < ops && !sim_.failed(); ++i) one_operation(actor);
  });
}

void Rig::spawn_resizer(Actor &actor, u64 times) {
  spawn_worker(actor, [this, &actor, times] {
    const u64 unit = media::kStripeBytes * geometry().device_count;
    const u64 most =
        (geometry().pool_bytes() + options_.room_bytes * geometry().device_count) / unit;
    for (u64 i = 0; i < times && !sim_.failed(); ++i) {
      resize(actor, unit * (1 + sim_.rng().below(most)));
      actor.env->sleep_ns(sim_.rng().below(10 * kMs));
    }
  });
}

void Rig::accept_all(Actor &actor) {
  for (u32 i = 0; i < 200 && actor.member->blocks_in_doubt() != 0; ++i) {
    actor.member->tick();
    actor.env->sleep_ns(200'000);
  }
  note_accepted(actor);
}

void Rig::spawn_worker(Actor &actor, std::function<void()> work) {
  sim_.spawn(actor.process, actor.name, [this, &actor, work = std::move(work)] {
    if (!join(actor, media::kNoStandby)) {  // its link was cut: nobody waits for it
      actor.worked = true;
      return;
    }
    sim_.spawn(actor.process, actor.name + " lease", [this, &actor] { lease_thread(actor); }, true);
    actor.ready = open_namespace(actor);
    if (actor.ready) work();
    if (!actor.member->doubts_accounted()) {
      sim_.fail("%s has blocks in doubt that nobody asks about", actor.name.c_str());
    }
    actor.worked = true;
    if (sim_.rng().chance(300)) {
      actor.env->sleep_ns(sim_.rng().below(20 * kMs));
    } else {
      while (!calm_) actor.env->sleep_ns(5 * kMs);
    }
    actor.stop = true;
  });
}

void Rig::cut_link(u32 host) {
  sim_.note("op cut link", host);
  for (const auto &actor : actors_) {
    if (actor->host != host) continue;
    disturb(*actor);
    actor->doomed = actor->cut_off = true;
  }
  sim_.world().set_link(host, false);
}

void Rig::leave_behind() {
  for (const auto &actor : actors_) {
    actor->disturbed = actor->doomed = actor->left_behind = true;
  }
}

// Somebody who found their device lost, or was told so.
void Rig::spawn_mover(Actor &actor, u32 standby_slot) {
  sim_.spawn(actor.process, actor.name, [this, &actor, standby_slot] {
    actor.worked = true;
    while (!actor.env->try_lock(pool::LockKind::kFormat, 0)) actor.env->sleep_ns(kMs);
    while (!actor.env->try_lock(pool::LockKind::kStandby, standby_slot)) {
      actor.env->sleep_ns(kMs);
    }
    pool::MemberOptions how;
    how.host = actor.host;
    how.name = actor.name;
    media::Geometry geo = geometry();
    const u32 before = geo.control;
    int err = pool::read_control(*actor.env, geo);
    if (err == 0 && geo.control == before) err = -EAGAIN;  // else somebody did before he was killed
    for (u32 attempt = 0; attempt < 100 && err != 0 && !sim_.failed(); ++attempt) {
      err = pool::move_control(*actor.env, geo, how, standby_slot);
      sim_.note("op move lines", geo.control, static_cast<u64>(err));
      if (err != 0) actor.env->sleep_ns(sim_.rng().below(5 * kMs));
    }
    if (err != 0) sim_.fail("lines cannot be moved: error %d", err);
    SIM_MARK("lines and rings moved to another device");
    layout_.geometry.control = geo.control;
    layout_.geometry.control_before = geo.control_before;
    actor.env->unlock(pool::LockKind::kStandby, standby_slot);
    actor.env->unlock(pool::LockKind::kFormat, 0);
    lines_moved_ = true;
    actor.left = true;
  });
}

void Rig::lose_device(u32 device) {
  sim_.note("op lose device", device);
  lost_device_ = device;
  sim_.world().lose_device(device);
}

void Rig::bring_back_device() {
  sim_.note("op bring back device", lost_device_);
  device_back_ = true;
  sim_.world().bring_back_device(lost_device_);
}

bool Rig::run(Time until, u64 steps_max) {
  switch (sim_.run(until, steps_max)) {
  case RunEnd::kDone: break;
  case RunEnd::kDeadlock: sim_.fail("nobody can run"); break;
  case RunEnd::kTimeLimit: sim_.fail("not done within its bound"); break;
  case RunEnd::kFailed: break;
  }
  return !sim_.failed();
}

}  // namespace kvpool::sim
