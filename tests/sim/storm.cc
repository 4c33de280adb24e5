// SPDX-License-Identifier: Apache-2.0
// Scenarios over the production templates: members that put, get, remove, pin and clear, owners
// that serve and take over, and a nemesis that kills, stops and breaks. Each stresses another part.
#include <algorithm>
#include <string_view>

#include "rig.hpp"
#include "scenario.hpp"

namespace kvpool::sim {

namespace {

constexpr u64 kMs = 1'000'000;
constexpr Time kBound = 30'000 * kMs;
constexpr u64 kStepsMax = 4'000'000;

struct Storm {
  RigOptions rig;
  u32 members = 2;       // on hosts 1, 2, ... in turn, and on host 0 too
  u64 ops = 20;
  u32 standbys = 0;      // besides the first owner
  bool kill_members = false;
  bool pause_members = false;
  bool kill_owner = false;
  bool pause_owner = false;
  bool crash_hosts = false;
  bool poison_claims = false;
  bool stutter_owner = false;  // instead of other faults
  bool poison_areas = false;
  bool crash_at_marks = false;  // an owner's host loses power a few verbs after a critical step
  bool cut_links = false;       // a host reads and writes nothing any more
  bool lose_device = false;     // one of those without the lines of members
  u64 resizes = 0;              // a member makes the pool larger and smaller so often
  u32 strikes = 3;
};

// Somebody starts the program again on the same host.
void restart(Rig &rig, const Actor &victim) {
  const u32 host = victim.host;
  const bool owner = victim.standing_by;
  const u32 slot = victim.standby_slot;
  Actor &actor = rig.add_actor(host, victim.name + "'");
  if (owner) {
    rig.spawn_owner(actor, slot, false);
  } else {
    rig.spawn_member(actor, 4);
  }
}

// One fault at a random moment. At least one owner must be left, or nothing can settle.
void strike(Rig &rig, const Storm &storm) {
  Sim &sim = rig.sim();
  auto &actors = rig.actors();
  Actor &victim = *actors[sim.rng().below(actors.size())];
  if (!sim.alive(victim.process) || victim.doomed || victim.name == "inspector") return;
  if (victim.spared) return;
  u32 owners = 0;
  for (const auto &actor : actors) {
    owners += actor->standing_by && sim.alive(actor->process) && !actor->doomed;
  }
  const bool owner = victim.standing_by;
  const Time lease = u64{rig.options().lease_ms} * kMs;
  const bool may_kill = sim.allows(Feature::kKill) && (owner ? storm.kill_owner && owners > 1
                                                             : storm.kill_members);
  const bool may_pause = sim.allows(Feature::kPause) &&
                         (owner ? storm.pause_owner : storm.pause_members);
  if (may_kill && (!may_pause || sim.rng().chance(500))) {
    SIM_MARK("process killed");
    rig.disturb(victim);
    victim.doomed = true;
    if (owner && storm.crash_hosts && sim.allows(Feature::kHostCrash) && sim.rng().chance(500)) {
      SIM_MARK("owner's host lost its power");
      for (const auto &actor : actors) {
        if (actor->host != victim.host || actor->name == "inspector") continue;
        rig.disturb(*actor);
        actor->doomed = true;
      }
      sim.crash_host_after(victim.process, 1 + sim.rng().below(600));
      return;
    }
    if (sim.rng().chance(700)) {
      sim.kill_after(victim.process, 1 + sim.rng().below(600));
    } else {
      sim.kill(victim.process);
    }
    if (sim.rng().chance(600)) restart(rig, victim);
  } else if (may_pause) {
    const Time longest = sim.rng().chance(500) ? lease / 2 : 4 * lease;
    if (longest > lease) SIM_MARK("process stopped for longer than its lease");
    sim.pause(victim.process, sim.rng().between(kMs / 10, longest));
  }
}

void strike_host(Rig &rig, const Storm &storm) {
  Sim &sim = rig.sim();
  const u32 host = static_cast<u32>(sim.rng().below(rig.options().hosts - 1));
  u32 owners_elsewhere = 0;
  for (const auto &actor : rig.actors()) {
    const bool stays = sim.alive(actor->process) && !actor->doomed && actor->host != host;
    if (actor->standing_by && stays) ++owners_elsewhere;
  }
  if (owners_elsewhere == 0 || !storm.crash_hosts || !sim.allows(Feature::kHostCrash)) return;
  SIM_MARK("host lost its power");
  for (const auto &actor : rig.actors()) {
    if (actor->host != host) continue;
    rig.disturb(*actor);
    actor->doomed = true;
  }
  sim.crash_host(host);
}

// One copy of a claim or identity line goes bad; the other one must do.
void poison(Rig &rig) {
  Sim &sim = rig.sim();
  const media::Geometry &geo = rig.geometry();
  const u32 copy = static_cast<u32>(sim.rng().below(2));
  const u32 slot = static_cast<u32>(sim.rng().below(geo.standby_count + 1));
  const auto at = [&](u32 c) {
    return slot == geo.standby_count ? geo.identity_at(c) : geo.claim_at(c, slot);
  };
  if (sim.world().poisoned(at(1 - copy))) return;
  SIM_MARK("one copy of a line poisoned");
  sim.note("op poison", copy, slot);
  sim.world().set_poison(at(copy));
}

void strike_link(Rig &rig) {
  Sim &sim = rig.sim();
  const u32 host = static_cast<u32>(sim.rng().below(rig.options().hosts - 1));
  u32 owners_elsewhere = 0;
  for (const auto &actor : rig.actors()) {
    const bool stays = sim.alive(actor->process) && !actor->doomed && actor->host != host;
    if (actor->standing_by && stays) ++owners_elsewhere;
  }
  if (owners_elsewhere == 0 || !sim.allows(Feature::kLinkLoss)) return;
  SIM_MARK("host lost its link");
  rig.cut_link(host);
}

// Where the newest area goes its owner has to live on: nobody else knows what stood there. It may
// be outbid at that moment.
void strike_device(Rig &rig) {
  Sim &sim = rig.sim();
  if (rig.device_gone() || !sim.allows(Feature::kDeviceLoss)) return;
  const u32 device = 1 + static_cast<u32>(sim.rng().below(rig.geometry().device_count - 1));
  const bool areas = device < rig.geometry().control_devices;
  if (areas && sim.rng().chance(500)) {
    for (u32 i = 0; i < 3'000 && !rig.calm() && !rig.candidate_claimed(); ++i) {
      sim.sleep_true(10'000);
    }
  }
  if (areas && !rig.owner_lives_on()) return;
  for (const auto &actor : rig.actors()) actor->spared |= areas && actor->standing_by;
  if (areas) {
    SIM_MARK("device with areas lost");
  } else {
    SIM_MARK("device with payload alone lost");
  }
  rig.lose_device(device);
}

// Not before its owner has noticed, and then that one lives on: of a block that was being written
// part vanished, and only that owner knows which extents those are in.
void bring_back_device(Rig &rig) {
  if (!rig.owner_lives_on() || !rig.loss_noticed()) return;
  for (const auto &actor : rig.actors()) actor->spared |= actor->standing_by;
  SIM_MARK("lost device is back");
  rig.bring_back_device();
}

void nemesis(Rig &rig, const Storm &storm) {
  Sim &sim = rig.sim();
  for (u32 i = 0; i < storm.strikes && !rig.calm(); ++i) {
    const u64 shortest = storm.stutter_owner ? 12 : 16, longest = storm.stutter_owner ? 18 : 23;
    sim.sleep_true(sim.rng().below(u64{1} << sim.rng().between(shortest, longest)));
    if (rig.calm()) return;
    if (storm.stutter_owner) {
      sim.pause_after(rig.actors()[0]->process, 1 + sim.rng().below(120),
                      sim.rng().between(20'000, 90'000));
      SIM_MARK("owner stops in the middle of a round");
      continue;
    }
    if (storm.cut_links && sim.rng().chance(400)) {
      strike_link(rig);
      continue;
    }
    if (storm.lose_device && sim.rng().chance(500)) {
      if (rig.device_gone()) {
        bring_back_device(rig);
      } else {
        strike_device(rig);
      }
      continue;
    }
    if (storm.poison_areas && sim.rng().chance(600)) {
      rig.poison_area();
      continue;
    }
    if (storm.poison_claims && sim.allows(Feature::kPoison) && sim.rng().chance(500)) {
      poison(rig);
      continue;
    }
    if (storm.crash_hosts && sim.rng().chance(150)) {
      strike_host(rig, storm);
    } else {
      strike(rig, storm);
    }
  }
}

// Power is lost where it hurts most: a few verbs after the owner began a step of two writes.
void strike_at(Rig &rig, const char *mark) {
  Sim &sim = rig.sim();
  const std::string_view name = mark;
  if (name != "spill" && name != "take_over_activates" && name != "run_granted") return;
  if (!sim.allows(Feature::kHostCrash) || rig.calm() || sim.rng().chance(300)) return;
  if (name == "take_over_activates" && sim.rng().chance(500)) return;
  Actor *owner = nullptr;
  u32 others = 0;
  for (const auto &actor : rig.actors()) {
    if (actor->process == sim.current_process()) owner = actor.get();
    if (!actor->standing_by || !sim.alive(actor->process) || actor->doomed) continue;
    others += actor->host != sim.current_host();
  }
  if (!owner || owner->doomed || others == 0) return;
  SIM_MARK("power lost between two writes of an owner");
  for (const auto &actor : rig.actors()) {
    if (actor->host != owner->host) continue;
    rig.disturb(*actor);
    actor->doomed = true;
  }
  sim.crash_host_after(owner->process, 1 + sim.rng().below(name == "spill" ? 6 : 14));
}

// Whoever was killed in the middle of a payload is started again at once.
void start_fallen(Rig &rig) {
  while (!rig.calm()) {
    rig.sim().sleep_true(50'000);
    for (std::size_t i = 0; i < rig.actors().size(); ++i) {
      Actor &actor = *rig.actors()[i];
      if (!actor.fell || rig.sim().alive(actor.process)) continue;
      actor.fell = false;
      restart(rig, actor);
    }
  }
}

// Swarm: a quarter of the runs does without some kinds of operation, so that what needs their
// absence is met. Its own chance: what else a seed means does not hang on it.
void leave_out_operations(RigOptions &rig, u64 seed) {
  Rng chance(seed ^ 0x73776172'6d6f7073ull);
  if (!chance.chance(250)) return;
  for (u32 *weight : {&rig.get, &rig.remove, &rig.pin, &rig.clear, &rig.pending, &rig.idle}) {
    if (chance.chance(300)) *weight = 0;
  }
}

void run_storm(Sim &sim, Storm storm) {
  leave_out_operations(storm.rig, sim.options().seed);
  if (!sim.allows(Feature::kPause)) storm.pause_members = storm.pause_owner = false;
  storm.rig.standbys = std::max(storm.rig.standbys, storm.standbys + 1);
  Rig rig(sim, storm.rig);
  rig.format();
  if (storm.poison_areas) rig.expect_media_faults();
  for (u32 i = 0; i <= storm.standbys; ++i) {
    Actor &actor = rig.add_actor(i % storm.rig.hosts, "owner " + std::to_string(i));
    rig.spawn_owner(actor, i, i == 0);
  }
  for (u32 i = 0; i < storm.members; ++i) {
    Actor &actor = rig.add_actor((i + 1) % storm.rig.hosts, "member " + std::to_string(i));
    if (i < storm.rig.shards) {  // the others are of no group
      actor.group = 1 + sim.options().seed;
      actor.rank = i;
      rig.spawn_rank(actor);
    }
    rig.spawn_member(actor, sim.ops(storm.ops));
  }
  if (storm.resizes) {
    Actor &actor = rig.add_actor(storm.rig.hosts - 1, "resizer");
    rig.spawn_resizer(actor, sim.ops(storm.resizes));
  }
  rig.spawn_closer();
  if (storm.crash_at_marks) {
    sim.on_mark([&rig](const char *mark) { strike_at(rig, mark); });
  }
  if (storm.rig.falls > 0) {
    sim.spawn(sim.add_nemesis("starter"), "starter", [&rig] { start_fallen(rig); }, true);
  }
  if (storm.strikes > 0) {
    sim.spawn(sim.add_nemesis("nemesis"), "nemesis", [&rig, &storm] { nemesis(rig, storm); }, true);
  }
  rig.run(kBound, kStepsMax);
}

void publish_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 3, .keys = 6}, .members = 2, .ops = 16, .strikes = 0});
}

void pressure_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .keys = 40, .put = 60, .remove = 2},
                  .members = 3, .ops = 30, .strikes = 0});
}

void remove_storm(Sim &sim) {
  run_storm(sim, {.rig = {.keys = 3, .put = 35, .get = 35, .remove = 25, .idle = 5},
                  .members = 3, .ops = 24, .strikes = 0});
}

void pin_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 1 << 20, .grace_us = 300, .keys = 8,
                          .slow_ns = 15 * kMs, .put = 45, .get = 15, .remove = 12, .pin = 25},
                  .members = 3, .ops = 24, .strikes = 0});
}

void clear_storm(Sim &sim) {
  run_storm(sim, {.rig = {.keys = 4, .record_permille = 250, .put = 40, .get = 40, .pin = 10,
                          .clear = 8, .idle = 5},
                  .members = 3, .ops = 20, .strikes = 0});
}

// Hardly more index lines than blocks: groups overflow into their second ones, and fill up.
void index_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 10, .lines_per_block = 1, .keys = 90, .index_bytes = 4 << 20,
                          .put = 85, .get = 15, .remove = 3, .idle = 2},
                  .members = 3, .ops = 40, .strikes = 0});
}

// An index much too small for what is put, with room to grow: its owner takes the store over from
// itself, while others die, stop and suspect it.
void index_growth_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 10,
                          .lines_per_block = 1,
                          .lease_ms = 20,
                          .keys = 140,
                          .index_growth = 4,
                          .index_bytes = 8 << 20,
                          .rash_permille = 5,
                          .put = 75,
                          .get = 20,
                          .remove = 2,
                          .pin = 3,
                          .idle = 2},
                  .members = 3,
                  .ops = 60,
                  .standbys = 1,
                  .kill_members = true,
                  .pause_members = true,
                  .kill_owner = true,
                  .pause_owner = true,
                  .strikes = 3});
}

// The pool grows and shrinks while members write, read and pin, and owners die in between.
void pool_growth_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 3,
                          .members_per_host = 4,
                          .extents = 4,
                          .block_bytes = 1 << 20,
                          .lease_ms = 20,
                          .grace_us = 300,
                          .keys = 24,
                          .slow_ns = 4 * kMs,
                          .room_bytes = 10 << 20,
                          .rash_permille = 10,
                          .put = 55,
                          .get = 25,
                          .remove = 3,
                          .pin = 12,
                          .idle = 5},
                  .members = 3,
                  .ops = 40,
                  .standbys = 1,
                  .kill_members = true,
                  .pause_members = true,
                  .kill_owner = true,
                  .pause_owner = true,
                  .resizes = 8,
                  .strikes = 3});
}

void member_faults(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 4, .keys = 20, .put = 50, .get = 35, .remove = 5, .pin = 5},
                  .members = 4, .ops = 20, .kill_members = true, .pause_members = true,
                  .strikes = 6});
}

void owner_faults(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 4, .keys = 12, .put = 50, .get = 35, .remove = 5},
                  .members = 2, .ops = 20, .standbys = 1, .kill_owner = true, .pause_owner = true,
                  .strikes = 3});
}

void all_faults(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 4, .standbys = 3, .extents = 3, .keys = 16, .put = 45, .get = 35,
                          .remove = 5, .pin = 5, .pending = 10},
                  .members = 3, .ops = 16, .standbys = 2, .kill_members = true,
                  .pause_members = true, .kill_owner = true, .pause_owner = true,
                  .crash_hosts = true, .strikes = 6});
}

// Two blocks an extent, short graces, slow readers: what is read is often somebody else's by then.
void reuse_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 1 << 20, .grace_us = 300, .keys = 8,
                          .slow_ns = 4 * kMs, .put = 45, .get = 30, .remove = 20, .idle = 5},
                  .members = 3, .ops = 30, .strikes = 0});
}

// Nothing is removed, much is evicted: who reads within the grace succeeds.
void grace_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 1 << 20, .keys = 12, .slow_ns = 2 * kMs,
                          .strict_grace = true, .put = 50, .get = 45, .remove = 0, .idle = 5},
                  .members = 3, .ops = 30, .strikes = 0});
}

// The store changes hands all the time, between owners that both live.
void handover_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 3, .block_bytes = 1 << 20, .lease_ms = 10, .grace_us = 300,
                          .keys = 8, .slow_ns = 20 * kMs,
                          .slice_ns = sim.options().seed % 2 ? kMs / 20 : 0u, .rash_permille = 250,
                          .stop_permille = 500, .stun_permille = 500,
                          .put = 45, .get = 30, .remove = 5, .pin = 5, .idle = 15},
                  .members = 3, .ops = 30, .standbys = 2, .pause_members = true,
                  .pause_owner = true, .strikes = 4});
}

// Writers are killed in the middle of a payload and their slots taken again at once, while what
// they stored is long under way.
void restart_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 1 << 20, .payload_lines = 16,
                          .delta_us = 8'000, .grace_us = 300, .keys = 12, .falls = 12, .put = 75,
                          .get = 25, .remove = 0, .pending = 0, .idle = 0},
                  .members = 4, .ops = 30, .strikes = 0});
}

// The owner stops again and again in the middle of its work, never for long.
void stutter_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 3, .extents = 8, .keys = 20, .put = 70, .get = 20, .remove = 0,
                          .idle = 5},
                  .members = 3, .ops = 24, .stutter_owner = true, .strikes = 60});
}

// Owners outbid each other while nothing is evicted or removed: whatever was accepted stays.
void rivals_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 12, .lease_ms = 10, .keys = 24, .rash_permille = 300,
                          .stun_permille = 700, .put = 70, .get = 25, .remove = 0, .idle = 5},
                  .members = 3, .ops = 30, .standbys = 2, .pause_members = true,
                  .pause_owner = true, .strikes = 3});
}

// Lines of the area go bad, then a new owner makes the best of what is left.
void media_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 6, .lease_ms = 10, .keys = 16, .rash_permille = 150, .put = 50,
                          .get = 35, .remove = 5, .idle = 10},
                  .members = 2, .ops = 20, .standbys = 1, .kill_owner = true, .poison_areas = true,
                  .strikes = 6});
}

// Blocks of two extents each; owners lose their power while they grant one.
void run_blocks_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 4, .extents = 8, .block_bytes = 4 << 20, .lease_ms = 10,
                          .grace_us = 500, .keys = 6, .put = 50, .get = 30, .remove = 15},
                  .members = 2, .ops = 20, .standbys = 1, .kill_members = true,
                  .pause_members = true, .crash_at_marks = true, .strikes = 2});
}

// Two machines with the same host id: at least one of them has to notice.
void twin_hosts(Sim &sim) {
  Rig rig(sim, {.hosts = 3});
  rig.format();
  Actor &owner = rig.add_actor(0, "owner 0");
  rig.spawn_owner(owner, 0, true);
  // Of each machine: the first one keeps the host's line, the other one looks at it.
  bool noticed[2][2] = {};
  u32 over = 0;
  const auto twin = [&](u32 machine, u32 which) {
    SimEnv env(sim, machine);
    SimMember member(env, rig.geometry());
    env.sleep_ns(sim.rng().below(3 * kMs) + which * 4 * kMs);
    pool::MemberOptions options;
    options.host = 1;
    options.host_identity.boot_id[0] = static_cast<u8>(machine + 1);
    if (member.join(options) != 0) sim.fail("a twin cannot join");
    for (u32 i = 0; i < 80 && !noticed[machine][which]; ++i) {
      const int err = member.tick();
      noticed[machine][which] = err == -ENOTUNIQ || err == -ESTALE;
      env.sleep_ns(2 * kMs);
    }
    for (++over; over < 4;) env.sleep_ns(2 * kMs);  // it keeps its locks
  };
  for (u32 machine = 0; machine < 2; ++machine) {
    for (u32 which = 0; which < 2; ++which) {
      const char *name = which ? "twin's other" : "twin";
      const ProcessId process = sim.add_process(1 + machine, name);
      sim.spawn(process, name, [&twin, machine, which] { twin(machine, which); });
    }
  }
  if (!rig.run(kBound, kStepsMax)) return;
  if (!noticed[0][0] && !noticed[1][0]) sim.fail("a host id is used twice, unnoticed");
  if (!noticed[0][1] && !noticed[1][1]) sim.fail("only who keeps the host's line notices");
}

// Writers stop between looking at their lease and storing, and go on long after.
void zombie_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 1 << 20, .lease_ms = 10, .grace_us = 300,
                          .keys = 8, .freeze_permille = 30, .put = 50, .get = 30, .idle = 20},
                  .members = 3, .ops = 30, .kill_members = true, .strikes = 2});
}

// Claim and identity lines go bad, one copy at a time, while owners change.
void poison_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 4, .lease_ms = 10, .keys = 8, .rash_permille = 150, .put = 45,
                          .get = 40, .remove = 5, .idle = 10},
                  .members = 2, .ops = 20, .standbys = 1, .kill_owner = true,
                  .poison_claims = true, .strikes = 8});
}

// The same small index while the owner's host loses power.
void index_crash_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 4,
                          .extents = 10,
                          .lines_per_block = 1,
                          .lease_ms = 10,
                          .keys = 90,
                          .index_bytes = 4 << 20,
                          .put = 85,
                          .get = 12,
                          .remove = 2,
                          .idle = 3},
                  .members = 3,
                  .ops = 40,
                  .standbys = 1,
                  .crash_at_marks = true,
                  .strikes = 0});
}

// Whole blocks through store::put and get: half a MiB each, two extents in all.
void store_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 512 << 10, .store_bytes = 512 << 10,
                          .grace_us = 300, .keys = 8, .put = 50, .get = 40, .remove = 12},
                  .members = 3, .ops = 16, .pause_members = true, .strikes = 8});
}

// Small blocks that carry their checks behind the payload, while owners and members fail.
void store_small_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 3,
                          .block_bytes = 4 << 10,
                          .store_bytes = 2'496,
                          .lease_ms = 20,
                          .keys = 12,
                          .rash_permille = 60,
                          .put = 50,
                          .get = 40,
                          .remove = 5},
                  .members = 3,
                  .ops = 20,
                  .standbys = 1,
                  .kill_members = true,
                  .pause_members = true,
                  .kill_owner = true,
                  .pause_owner = true,
                  .strikes = 5});
}

// Writers stop in the middle of a block, for longer than a quarantine lasts.
void store_zombie_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .block_bytes = 1 << 20, .store_bytes = 1 << 20,
                          .lease_ms = 10, .grace_us = 300, .keys = 6, .stall_permille = 150,
                          .put = 55, .get = 35, .idle = 10},
                  .members = 3, .ops = 16, .pause_members = true, .strikes = 3});
}

// Members of one group write every block together; ranks and reservers die or stop for long.
void group_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 4, .extents = 3, .block_bytes = 1 << 20, .shards = 3,
                          .payload_lines = 6, .lease_ms = 10, .grace_us = 300, .keys = 8,
                          .freeze_permille = 50, .hasty_permille = 250, .late_permille = 20,
                          .forsake_permille = 60, .put = 60, .get = 30,
                          .remove = 5, .pending = 0, .idle = 5},
                  .members = 5, .ops = 14, .standbys = 1, .kill_members = true,
                  .pause_members = true, .kill_owner = true, .strikes = 4});
}

// Hosts lose their links: who lives there is dead to the others, and has to see it himself.
void link_storm(Sim &sim) {
  run_storm(sim, {.rig = {.hosts = 4, .extents = 4, .lease_ms = 10, .grace_us = 500, .keys = 10,
                          .put = 45, .get = 35, .remove = 5, .pin = 5, .idle = 10},
                  .members = 4, .ops = 20, .standbys = 1, .cut_links = true, .strikes = 4});
}

// A device is lost: the others' blocks stay, its own are errors, then misses, never wrong bytes;
// puts go on. It may be the one with the area of the owner.
void device_storm(Sim &sim) {
  run_storm(sim, {.rig = {.devices = 3,
                          .extents = 6,
                          .lease_ms = 10,
                          .grace_us = 500,
                          .keys = 16,
                          .rash_permille = 80,
                          .put = 50,
                          .get = 35,
                          .remove = 5,
                          .pin = 5,
                          .idle = 5},
                  .members = 3,
                  .ops = 20,
                  .standbys = 1,
                  .kill_owner = true,
                  .lose_device = true,
                  .strikes = 4});
}

// The same with whole blocks through store::put, whose writers read back what they wrote.
void device_store_storm(Sim &sim) {
  run_storm(sim, {.rig = {.devices = 3,
                          .extents = 6,
                          .block_bytes = 64 << 10,
                          .store_bytes = 64 << 10,
                          .lease_ms = 20,
                          .grace_us = 500,
                          .keys = 12,
                          .rash_permille = 60,
                          .put = 55,
                          .get = 35,
                          .remove = 5,
                          .idle = 5},
                  .members = 3,
                  .ops = 16,
                  .standbys = 1,
                  .kill_owner = true,
                  .lose_device = true,
                  .strikes = 4});
}

// Lines and rings move to the other control device: because theirs is lost, or on the word of
// somebody who is wrong, and then whoever is left behind can read and write everything there.
void move_lines(Rig &rig) {
  Sim &sim = rig.sim();
  sim.sleep_true(sim.rng().below(30 * kMs));
  const bool lost = sim.allows(Feature::kDeviceLoss) && sim.rng().chance(500);
  for (u32 i = 0; i < 100 && !rig.owner_lives_on(); ++i) sim.sleep_true(kMs);
  rig.leave_behind();
  if (lost) {
    SIM_MARK("device with the lines of members lost");
    rig.lose_device(0);
    sim.sleep_true(u64{rig.options().lease_ms} * kMs);
  }
  const u32 hosts = rig.options().hosts;
  if (sim.allows(Feature::kKill) && sim.rng().chance(300)) {
    Actor &first = rig.add_actor(sim.rng().below(hosts), "first mover");
    first.doomed = true;
    rig.spawn_mover(first, 2);
    sim.kill_after(first.process, 1 + sim.rng().below(6'000));
    for (u32 i = 0; i < 60 && sim.alive(first.process) && !rig.lines_moved(); ++i) {
      sim.sleep_true(kMs);
    }
    if (!sim.alive(first.process)) SIM_MARK("killed while lines and rings move");
    sim.kill(first.process);
    if (lost || sim.rng().chance(500)) sim.sleep_true(sim.rng().below(30 * kMs));
  }
  // Who comes after a move that ended would move them once more, when next owners serve already.
  if (!rig.lines_moved()) rig.spawn_mover(rig.add_actor(sim.rng().below(hosts), "mover"), 2);
  while (!rig.lines_moved() && !sim.failed()) sim.sleep_true(kMs);
  Actor &owner = rig.add_actor(sim.rng().below(hosts), "next owner");
  rig.spawn_owner(owner, 2, true);
  rig.spawn_owner(rig.add_actor(0, "next standby"), 3, false);
  for (u32 i = 0; i < 3; ++i) {
    rig.spawn_member(rig.add_actor(i % hosts, "next member " + std::to_string(i)), sim.ops(20));
  }
  rig.spawn_closer();
  sim.sleep_true(sim.rng().below(40 * kMs));
  if (lost && sim.rng().chance(500)) {
    for (u32 i = 0; i < 200 && !rig.loss_noticed(); ++i) sim.sleep_true(kMs);
    bring_back_device(rig);
  } else if (sim.allows(Feature::kKill) && sim.rng().chance(500)) {
    SIM_MARK("process killed");
    rig.disturb(owner);
    owner.doomed = true;
    sim.kill(owner.process);
  }
}

void control_storm(Sim &sim) {
  Rig rig(sim, {.members_per_host = 8,
                .standbys = 4,
                .extents = 8,
                .lease_ms = 10,
                .grace_us = 500,
                .keys = 16,
                .freeze_permille = 5,
                .rash_permille = 0,
                .put = 50,
                .get = 35,
                .remove = 3,
                .pin = 8,
                .idle = 5});
  rig.format();
  rig.spawn_owner(rig.add_actor(0, "owner 0"), 0, true);
  rig.spawn_owner(rig.add_actor(1, "owner 1"), 1, false);
  for (u32 i = 0; i < 3; ++i) {
    rig.spawn_member(rig.add_actor((i + 1) % 3, "member " + std::to_string(i)), sim.ops(20));
  }
  sim.spawn(sim.add_nemesis("nemesis"), "nemesis", [&rig] { move_lines(rig); });
  rig.run(kBound, kStepsMax);
}

// Devices write and read payloads: their processes are killed and stopped meanwhile, and their root
// ports leave what they write in a cache.
void device_agents_storm(Sim &sim) {
  run_storm(sim, {.rig = {.members_per_host = 5,
                          .extents = 2,
                          .block_bytes = 1 << 20,
                          .lease_ms = 10,
                          .grace_us = 300,
                          .keys = 8,
                          .falls = 6,
                          .device_permille = 700,
                          .put = 60,
                          .get = 35,
                          .remove = 5,
                          .pin = 3,
                          .pending = 0,
                          .idle = 5},
                  .members = 4,
                  .ops = 24,
                  .standbys = 1,
                  .kill_members = true,
                  .pause_members = true,
                  .kill_owner = true,
                  .strikes = 3});
}

// A full store whose owners change: publications in doubt meet evictions and removals.
void doubt_storm(Sim &sim) {
  run_storm(sim, {.rig = {.extents = 2, .grace_us = 500, .keys = 30,
                          .versions = sim.options().seed % 2 == 0 ? 3u : 0u, .put = 65, .get = 20,
                          .remove = 10, .idle = 5},
                  .members = 3, .ops = 30, .standbys = 1, .pause_members = true,
                  .kill_owner = true, .pause_owner = true, .strikes = 5});
}

constexpr Scenario kStorms[] = {
    {"publish", "members put and get, nothing else happens", publish_storm, 3},
    {"pressure", "a store smaller than its working set: eviction and grace", pressure_storm, 3},
    {"remove", "few keys, put, read and removed at once", remove_storm, 3},
    {"pins", "blocks are pinned and used while others evict and remove them", pin_storm, 3},
    {"clear", "the namespace is cleared while members put and get", clear_storm, 2},
    {"index", "an index so small that groups overflow", index_storm, 3},
    {"index-growth", "an index outgrown while members put and owners fail", index_growth_storm, 3},
    {"pool-growth", "the pool grows and shrinks under load, owners fail in between",
     pool_growth_storm, 3},
    {"member-faults", "members are killed, or stopped for longer than their lease", member_faults,
     4},
    {"restarts", "members are killed and their slots taken again at once", restart_storm, 2},
    {"owner-faults", "owners are killed or stopped, a standby takes over", owner_faults, 5},
    {"doubt", "a full store whose owners change: publications in doubt", doubt_storm, 4},
    {"reuse", "slow readers of blocks that are soon another key's", reuse_storm, 4},
    {"grace", "reads within the grace of an evicted block succeed", grace_storm, 2},
    {"handover", "the store changes hands between owners that both live", handover_storm, 9},
    {"zombie", "writers stop between looking at their lease and storing", zombie_storm, 4},
    {"poison", "single copies of claim and identity lines go bad", poison_storm, 3},
    {"index-crash", "a small index, and the owner's host loses power", index_crash_storm, 3},
    {"stutter", "the owner stops in the middle of its work, never for long", stutter_storm, 3},
    {"rivals", "owners outbid each other; whatever was accepted stays", rivals_storm, 4},
    {"media", "lines of the active area go bad, then owners change", media_storm, 3},
    {"runs", "blocks of several extents, power lost while one is granted", run_blocks_storm, 3},
    {"twin-hosts", "two machines with one host id", twin_hosts, 1},
    {"store", "whole blocks through store::put and get, under pressure", store_storm, 2},
    {"store-small", "small blocks through the store, owners and members fail", store_small_storm,
     3},
    {"store-zombie", "writers stop in the middle of a block", store_zombie_storm, 2},
    {"groups", "a group writes blocks in shards, its members die or stop", group_storm, 3},
    {"links", "hosts lose their links", link_storm, 3},
    {"device", "a device is lost, with payload or with areas of owners too", device_storm, 4},
    {"device-store", "the same, blocks go through store::put and get", device_store_storm, 1},
    {"control", "lines and rings of members move to another device", control_storm, 3},
    {"devices", "devices write and read payloads, their processes die or stop",
     device_agents_storm, 2},
    {"all-faults", "everybody may die, hosts lose power, two standbys", all_faults, 3},
};

}  // namespace

std::span<const Scenario> storm_scenarios() {
  return kStorms;
}

}  // namespace kvpool::sim
