// SPDX-License-Identifier: Apache-2.0
// The scripts of crash enumeration and the rack they are played in: an owner on host 0, a member on
// host 1 (or on the owner's), a standby on host 2, and on host 3 a reader and the inspector.
#include "scripts.hpp"

#include "media/index_hash.hpp"
#include "scenario.hpp"

namespace kvpool::sim {

namespace {

constexpr u64 kMs = 1'000'000;
constexpr Time kBound = 30'000 * kMs;
constexpr u64 kStepsMax = 1'500'000;
constexpr u64 kTail = 80;     // verbs of the victim's host after the script, still in the window
constexpr u32 kReads = 10;    // of the reader, from the opening of the window on
constexpr u32 kReaderKeys = 4;

u32 victim_host(Victim victim) {
  if (victim == Victim::kMember) return 1;
  return victim == Victim::kStandby ? 2 : 0;
}

}  // namespace

struct Play {
  Sim &sim;
  const Script &script;
  Rig rig;
  PlayReport report;
  bool count_ways = false;
  Actor *owner = nullptr;
  Actor *member = nullptr;
  Actor *standby = nullptr;
  std::vector<u64> keys;  // of the script, in the order of its use
  bool open = false;      // the window was opened
  bool closed = false;    // no reads any more
  u64 verbs = 0;
  u64 ends_at = ~u64{0};
  u64 changes_seen = 0;
  u64 unwanted = 0;       // a key that the reader is to remove

  Play(Sim &s, const Script &what, const RigOptions &options)
      : sim(s), script(what), rig(s, options) {}

  void put(u64 key) {
    const int err = rig.put(*member, key);
    if (err != 0 && err != -EEXIST && err != -EINPROGRESS && err != -ESTALE && err != -ENOSPC) {
      sim.fail("script %s: put of key %llu: error %d", script.name,
               static_cast<unsigned long long>(key), err);
    }
    rig.accept_all(*member);
  }
  void open_window();
  void close_window() {
    if (ends_at == ~u64{0}) ends_at = verbs + kTail;
  }
};

void Play::open_window() {
  open = true;
  sim.watch_host(victim_host(script.victim), [this](u64 verb) {
    verbs = verb;
    const RunOptions &options = sim.options();
    if (count_ways) {
      const u64 ways = sim.world().crash_ways(victim_host(script.victim), options.crash_bound);
      const u64 changes = sim.world().changes();
      report.ways.push_back(changes == changes_seen ? 0 : ways);
      changes_seen = changes;
    }
    if (verb == options.crash_at) {
      report.crashed = true;
      SIM_MARK("power lost after a chosen verb");
      for (const auto &actor : rig.actors()) {
        if (actor->host != victim_host(script.victim)) continue;
        actor->disturbed = actor->doomed = true;
      }
      sim.lose_power(options.crash_way, options.crash_bound);
    } else if (verb >= ends_at) {
      sim.watch_host(kNobody, nullptr);
    }
  });
}

namespace {

void prepare_one(Play &play) { play.put(1); }

void prepare_announced(Play &play) {
  play.put(1);
  const pool::Key key = play.rig.key_of(2, play.member->ns.epoch);
  play.member->member->pending(play.member->ns, key, 1'000);
  play.member->env->sleep_ns(kMs);
}

// All but the last block of an extent; the next put uses it up and gives it back.
void prepare_extent(Play &play) {
  const u64 blocks = play.rig.geometry().extent_bytes() / play.script.rig.block_bytes;
  for (u64 key = 1; key < blocks; ++key) play.put(key);
}

// Keys whose first group is the one of key 1, until that group is full.
void prepare_group(Play &play) {
  const u64 groups = play.rig.geometry().index_groups;
  const auto group_of = [&](u64 key) {
    return media::first_group(play.rig.key_of(key, play.member->ns.epoch).w, groups);
  };
  for (u64 key = 1; key <= play.script.rig.keys; ++key) {
    if (group_of(key) == group_of(1)) play.keys.push_back(key);
  }
  if (play.keys.size() <= media::kGroupLines) {
    play.sim.fail("too few keys fill one of %llu groups", static_cast<unsigned long long>(groups));
  }
  for (u32 i = 0; i < media::kGroupLines && !play.sim.failed(); ++i) play.put(play.keys[i]);
}

void prepare_full(Play &play) {
  for (u64 key = 1; key <= 4; ++key) play.put(key);
}

void act_publish(Play &play) { play.put(2); }
void act_use_up(Play &play) { play.put(play.script.rig.keys); }
void act_use_up_again(Play &play) { play.put(1); }
void act_spill(Play &play) { play.put(play.keys[media::kGroupLines]); }

void act_remove(Play &play) {
  play.rig.remove(*play.member, 1);
  play.member->env->sleep_ns(2 * u64{play.script.rig.grace_us} * 1000);  // and it is cleared
}

// Published, answered and removed by another one before the publisher accepts the answer.
void act_doubt(Play &play) {
  play.rig.put(*play.member, 2);
  play.unwanted = 2;
  for (u32 i = 0; i < 200 && play.unwanted != 0; ++i) play.member->env->sleep_ns(50'000);
  play.member->env->sleep_ns(8 * u64{play.script.rig.grace_us} * 1000);
}

void act_evict(Play &play) {
  play.rig.expect_evictions();
  play.put(5);
}

void act_clear(Play &play) {
  play.rig.clear(*play.member);
  play.put(2);
  play.rig.clear(*play.member);  // a namespace that began anew would have the first epoch's keys
  play.put(3);
}

void act_join(Play &play) {
  ++play.member->writing;  // no new life by the lease thread meanwhile
  if (play.member->member->rejoin() == 0) play.rig.renewed(*play.member, play.sim.now());
  --play.member->writing;
  play.put(2);
}

void act_leave(Play &play) {
  play.member->stop = true;
  while (!play.member->left) play.member->env->sleep_ns(kMs / 4);
}

// Announced, and gone before a new owner comes.
void act_pending(Play &play) {
  const pool::Key key = play.rig.key_of(2, play.member->ns.epoch);
  play.member->member->pending(play.member->ns, key, 1'000);
  play.member->env->sleep_ns(kMs);
  act_leave(play);
}

// The owner takes over from itself, as for an index of another size.
void act_take_over(Play &play) {
  Actor &candidate = play.script.victim == Victim::kStandby ? *play.standby : *play.owner;
  const u32 before = play.owner->owner->epoch();
  candidate.again = true;
  if (&candidate == play.owner) play.owner->owner->stop();
  for (u32 i = 0; i < 400; ++i) {
    const SimOwner *now = play.rig.serving_owner();
    if (now && now->epoch() > before) break;
    play.member->env->sleep_ns(kMs / 4);
  }
  play.put(2);
}

// What resizing does to the pool, in stripes on each device.
void resize_by(Play &play, int stripes) {
  const media::Geometry &geo = play.rig.geometry();
  const u64 unit = media::kStripeBytes * geo.device_count;
  const u64 size = geo.pool_bytes() / unit + static_cast<u64>(stripes);
  play.rig.expect_evictions();
  const int err = play.rig.resize(*play.member, size * unit);
  if (err == -ERANGE || err == -EFBIG || err == -ENOSPC) {
    play.sim.fail("script %s: no such size: error %d", play.script.name, err);
  }
}
void act_grow(Play &play) {
  resize_by(play, 3);
  play.put(2);
}
void act_shrink(Play &play) {
  resize_by(play, 1);
  play.put(4);
}
// A larger pool, whose new extents are granted next; it is made small again.
void prepare_grown(Play &play) {
  resize_by(play, 3);
  for (u64 key = 1; key <= 3; ++key) play.put(key);
}

constexpr RigOptions kSmall{.hosts = 4, .extents = 4, .block_bytes = 512 << 10, .payload_lines = 2,
                            .lease_ms = 10, .grace_us = 500, .keys = 4, .rest_ns = 1 * kMs,
                            .rash_permille = 0};
constexpr RigOptions with(RigOptions rig, u32 extents, u64 block_bytes, u32 keys) {
  rig.extents = extents;
  rig.block_bytes = block_bytes;
  rig.keys = keys;
  return rig;
}
constexpr RigOptions with_index(RigOptions rig, u64 index_bytes) {
  rig.index_bytes = index_bytes;
  rig.lines_per_block = 1;
  return rig;
}
constexpr RigOptions kGroups = with_index(with(kSmall, 6, 512 << 10, 40), 4 << 20);
constexpr RigOptions kFull = with(kSmall, 2, 1 << 20, 5);
constexpr RigOptions patient(RigOptions rig) {
  rig.lease_ms = 80;
  rig.grace_us = 100;
  rig.rest_ns = kMs / 10;
  return rig;
}
constexpr RigOptions kPatient = patient(kSmall);
constexpr RigOptions roomy(RigOptions rig) {
  rig.room_bytes = 8 << 20;
  return rig;
}
constexpr RigOptions kRoomy = roomy(with(kSmall, 4, 1 << 20, 4));
constexpr RigOptions spanning(RigOptions rig) {
  rig.run_lines = 40'000;  // more than an extent
  return rig;
}
constexpr RigOptions kRuns = spanning(with(kSmall, 6, 4 << 20, 3));

constexpr Script kScripts[] = {
    {"publish", "one publication", Victim::kOwner, kSmall, prepare_one, act_publish},
    {"publish-member", "one publication, by the member that dies", Victim::kMember, kSmall,
     prepare_one, act_publish},
    {"publish-both", "one publication, owner and member on one host", Victim::kBoth, kSmall,
     prepare_one, act_publish},
    {"fulfil", "a publication over the announcement of its key", Victim::kOwner, kSmall,
     prepare_announced, act_publish},
    {"use-up", "a publication that returns its extent", Victim::kOwner, kSmall, prepare_extent,
     act_use_up},
    {"use-up-both", "the same, owner and member on one host", Victim::kBoth, kSmall,
     prepare_extent, act_use_up},
    {"use-up-exists", "the same by a key that is there", Victim::kOwner, kSmall, prepare_extent,
     act_use_up_again},
    {"spill", "an insert into the second group", Victim::kOwner, kGroups, prepare_group,
     act_spill},
    {"spill-both", "the same, owner and member on one host", Victim::kBoth, kGroups,
     prepare_group, act_spill},
    {"remove", "a removal and its clearing", Victim::kOwner, kSmall, prepare_one, act_remove},
    {"remove-both", "the same, owner and member on one host", Victim::kBoth, kSmall, prepare_one,
     act_remove},
    {"doubt", "removed and cleared while its publication is in doubt", Victim::kOwner, kPatient,
     prepare_one, act_doubt},
    {"evict", "an eviction, its clearing, and the block granted again", Victim::kOwner, kFull,
     prepare_full, act_evict},
    {"run", "a run granted and published", Victim::kOwner, kRuns, prepare_one, act_publish},
    {"run-both", "the same, owner and member on one host", Victim::kBoth, kRuns, prepare_one,
     act_publish},
    {"run-remove", "a run falls apart", Victim::kOwner, kRuns, prepare_one, act_remove},
    {"clear", "a namespace is cleared, and again", Victim::kOwner, kSmall, prepare_one, act_clear},
    {"pending", "a key is announced by one who leaves", Victim::kOwner, kSmall, prepare_one,
     act_pending},
    {"take-over", "an owner takes over from itself", Victim::kOwner, kSmall, prepare_one,
     act_take_over},
    {"take-over-other", "a standby takes over", Victim::kStandby, kSmall, prepare_one,
     act_take_over},
    {"join", "a member joins anew and publishes", Victim::kMember, kSmall, prepare_one, act_join},
    {"leave", "a member leaves", Victim::kMember, kSmall, prepare_one, act_leave},
    {"grow", "the pool gets a region", Victim::kOwner, kRoomy, prepare_one, act_grow},
    {"grow-member", "the same, by the member that dies", Victim::kMember, kRoomy, prepare_one,
     act_grow},
    {"shrink", "the last extents are retired", Victim::kOwner, kRoomy, prepare_grown, act_shrink},
    {"shrink-both", "the same, owner and member on one host", Victim::kBoth, kRoomy, prepare_grown,
     act_shrink},
};

void read_along(Play &play, Actor &reader) {
  while (!play.open && !play.rig.calm()) reader.env->sleep_ns(kMs / 2);
  for (u32 i = 0; i < kReads && !play.rig.calm(); ++i) {
    if (play.unwanted != 0) {
      play.rig.remove(reader, play.unwanted);
      play.unwanted = 0;
    }
    play.rig.get(reader, 1 + play.sim.rng().below(std::min(kReaderKeys, play.script.rig.keys)));
    reader.env->sleep_ns(play.sim.rng().below(400'000));
  }
}

// The scenario: script, verb and outcome are drawn unless they were named.
void crash_scenario(Sim &sim) {
  const RunOptions &given = sim.options();
  const Script &script = given.script ? kScripts[given.script - 1]
                                      : kScripts[sim.rng().below(std::size(kScripts))];
  if (given.crash_at == 0) {
    RunOptions drawn = given;
    drawn.crash_at = 1 + sim.rng().below(u64{1} << sim.rng().between(4, 11));
    drawn.crash_way = sim.rng().below(1 << 20);
    sim.choose_crash(drawn);
  }
  play(sim, script, false);
}

constexpr Scenario kCrash[] = {
    {"crash", "a small script, its host loses power after a drawn verb", crash_scenario, 3},
};

}  // namespace

std::span<const Script> scripts() { return kScripts; }
std::span<const Scenario> crash_scenarios() { return kCrash; }

void interleave(RunOptions &options, u64 seed) {
  options.seed = seed;
  options.exactly = ~u32{0};
  if (seed == 1) options.exactly = 0;
  if (seed == 2) options.exactly = 1u << static_cast<u32>(Feature::kTornLines);
}

PlayReport play(Sim &sim, const Script &script, bool count_ways) {
  RigOptions options = script.rig;
  options.torn_permille = 1000;
  Play play(sim, script, options);
  play.count_ways = count_ways;
  Rig &rig = play.rig;
  rig.format();
  play.owner = &rig.add_actor(0, "owner");
  rig.spawn_owner(*play.owner, 0, true);
  play.standby = &rig.add_actor(2, "standby");
  play.standby->standing_by = true;
  play.member = &rig.add_actor(script.victim == Victim::kBoth ? 0 : 1, "member");
  rig.spawn_worker(*play.member, [&play, &script] {
    play.rig.spawn_owner(*play.standby, 1, false);  // it would race with the first owner
    if (script.prepare) script.prepare(play);
    play.open_window();
    script.act(play);
    play.close_window();
  });
  Actor &reader = rig.add_actor(3, "reader");
  rig.spawn_worker(reader, [&play, &reader] { read_along(play, reader); });
  rig.spawn_closer();
  rig.run(kBound, kStepsMax);
  return play.report;
}

}  // namespace kvpool::sim
