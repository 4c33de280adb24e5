// SPDX-License-Identifier: Apache-2.0
// A store in the simulated rack with its actors: owners, standbys and members as processes on
// several hosts, each with the threads it has in production. Scenarios say who lives where and what
// goes wrong; the rig runs the calls, keeps the history and checks invariants I1 to I5 and I7.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "history.hpp"
#include "pool/control.hpp"
#include "pool/member.hpp"
#include "pool/owner.hpp"
#include "sim_env.hpp"
#include "store/store.hpp"

namespace kvpool::sim {

using SimMember = pool::Member<SimEnv>;
using SimOwner = pool::Owner<SimEnv>;
using SimStore = store::Store<SimEnv>;

// Of the one namespace.
inline constexpr u8 kFingerprint[16] = {'s', 'i', 'm', 'u', 'l', 'a', 't', 'o', 'r'};

struct RigOptions {
  u32 hosts = 3;
  u32 members_per_host = 3;
  u32 standbys = 2;
  u32 devices = 2;
  u32 extents = 4;            // 2 MiB each, over all devices
  u64 block_bytes = 256 << 10;
  u32 shards = 0;             // not 0: members of one group write every block together
  u64 payload_lines = 6;      // written and read at most: blocks are large, what is in them is not
  u64 run_lines = 0;          // said of each block instead, of which only the first line is written
  u64 store_bytes = 0;        // not 0: whole payloads of this size through store::put and get
  u32 lines_per_block = 3;    // of the index
  u32 lease_ms = 40;
  u32 delta_us = 100;
  u32 grace_us = 2'000;
  u32 keys = 12;
  u64 key_salt = 0;
  u64 call_ns = 400'000'000;  // deadline of one call
  u64 slow_ns = 0;            // a reader may stop this long between its steps; 0: three graces
  u32 index_growth = 1;       // room for an index so many times as large
  u64 room_bytes = 0;         // not 0: so much more on each device, for a pool that grows
  u64 index_bytes = 0;        // blocks of this size the index is made for; 0: of block_bytes
  u32 stall_permille = 0;     // a store's put stops in its middle for longer than a quarantine
  u32 freeze_permille = 0;    // a writer's process stops between looking at its lease and storing
  u32 lasting_permille = 200;  // of the pins, those that would outlast the run
  u32 falls = 0;              // so many writers at most are killed in the middle of a payload
  u64 rest_ns = 200'000;      // an idle owner sleeps this long at most
  u32 torn_permille = 200;    // of the stores of whole lines, those in two pieces (torn-lines)
  u64 slice_ns = 0;           // not 0: a report is cut short after so long
  u64 versions = 0;           // not 0: an owner's epoch has so many
  u32 hasty_permille = 0;     // a group's reserver aborts after less than a lease
  u32 late_permille = 0;      // of the aborted shards looked at, those begun all the same
  u32 forsake_permille = 0;   // a group's reserver is killed while the others write
  u32 rash_permille = 20;     // a standby suspects a living owner, a look
  u32 stop_permille = 0;      // of the readers' stops, those that stop the whole process
  u32 stun_permille = 0;      // other owners stop for a moment when one takes over
  u32 record_permille = 0;    // of the gets and pins, those by what an earlier lookup found
  u32 device_permille = 0;    // of the payloads, those that a device writes or reads (devices)
  bool strict_grace = false;  // nothing is removed: a read within the grace cannot fail
  // Weights of a member's operations.
  u32 put = 40, get = 40, remove = 5, pin = 0, clear = 0, pending = 3, idle = 15;
};

struct Actor;

// A block that one member of a group reserved and all of them write, a shard each.
struct ShardTicket {
  pool::Block block{};
  u64 key = 0, nonce = 0;
  u64 reserver = 0;  // incarnation
  Actor *by = nullptr;
  u32 shards = 0;
  u32 done = 0, begun = 0;  // by shard
  std::vector<std::pair<Actor *, u64>> writing;  // who is in the middle of a shard, and as whom
  bool closed = false;  // nobody begins any more, but those who do not hear of it
  bool aborted = false;
};

// What a lookup found, kept by its caller while the namespace may be cleared.
struct Record {
  u64 key = 0;
  u32 ns_epoch = 0;
  pool::Hit hit{};
};

// A device of a process: it writes and reads payload for it, one job at a time, and goes on when
// the process is stopped or killed. Behind its last job it stands for the kernel, which lets the
// process's lock go when nothing can write any more.
struct Agent {
  ProcessId process = 0;
  u32 host = 0;
  bool allocates = false;  // its root port leaves what it writes in the host's cache
  bool busy = false;
  bool writes = false;
  bool readable = false;
  u64 key = 0, nonce = 0;
  PoolOffset at{};
  u64 lines = 0;
  std::vector<Line> copy;
};

// One process with a member, and perhaps an owner, inside.
struct Actor {
  ProcessId process = 0;
  u32 host = 0;
  std::string name;
  // Destroyed with the rig, when none of its threads will run again: a dead process runs no
  // destructors, and production objects have none that touch the pool.
  SimEnv *env = nullptr;
  SimMember *member = nullptr;
  SimOwner *owner = nullptr;
  SimStore *store = nullptr;
  store::Scratch *scratch = nullptr;
  std::vector<SimOwner *> owners;  // the last one is `owner`
  pool::NsRef ns{};
  Record record{};
  bool ready = false;      // joined, namespace open
  bool stop = false;       // asked to leave
  bool worked = false;     // its operations are over
  bool left = false;
  bool serving = false;
  u32 standby_slot = 0;
  bool standing_by = false;  // owner or standby: leaves last
  bool again = false;        // takes over once more without being suspicious
  bool doomed = false;       // killed, or about to be
  bool fell = false;         // killed in the middle of a payload, and not started again yet
  bool cut_off = false;      // its host has lost its link
  bool spared = false;       // nothing happens to it any more
  bool left_behind = false;  // lines and rings moved away from it, or are about to
  u64 group = 0;
  u32 rank = 0;
  bool disturbed = false;    // killed, or lost its lease, at some time
  Time entitled_until = 0;  // true time until which its lease lasts whatever its clock says
  Time renewed_at = 0;
  Time lease_latest = 0;    // and after which it is over whatever its clock says
  bool ticking = false;     // the lease may have been renewed already
  u32 writing = 0;  // calls on their way: no new incarnation meanwhile
  u64 puts = 0, gets = 0, hits = 0;
  std::unique_ptr<Agent> agent;  // from its first job on
};

class Rig {
public:
  Rig(Sim &sim, const RigOptions &options);
  ~Rig();

  // Writes a formatted store with an activated area onto the medium.
  void format();
  Actor &add_actor(u32 host, const std::string &name);
  // Serves from the standby slot: takes the store over at once, or when the owner's heartbeat
  // stops.
  void spawn_owner(Actor &actor, u32 standby_slot, bool at_once);
  // A member with its lease thread, and `ops` random operations from a worker thread.
  void spawn_member(Actor &actor, u64 ops);
  // A member that makes the pool larger and smaller so many times, as `kvpool grow` and `shrink`
  // do.
  void spawn_resizer(Actor &actor, u64 times);
  // The same with other work than random operations; it runs once the namespace is open.
  void spawn_worker(Actor &actor, std::function<void()> work);
  // Lets members leave when their work is done, waits until everything is settled, checks what is
  // left. Call last; then run().
  void spawn_closer();
  bool run(Time until, u64 steps_max);

  // Single operations, from a thread of `actor`; each checks what it can.
  int put(Actor &actor, u64 key);
  int get(Actor &actor, u64 key);
  int store_put(Actor &actor, u64 key);
  int store_get(Actor &actor, u64 key);
  int remove(Actor &actor, u64 key);
  int hold_pinned(Actor &actor, u64 key);
  int clear(Actor &actor);
  int announce(Actor &actor, u64 key);
  void one_operation(Actor &actor);
  // Reserves a block, writes its own shard, waits for the others' and publishes.
  int put_in_shards(Actor &actor, u64 key, u32 shards);
  // Writes shards of other members' blocks until the work is over.
  void spawn_rank(Actor &actor);
  // Until nothing is in doubt: what was acknowledged is accepted.
  void accept_all(Actor &actor);
  // Asks for a size until an owner's answer counts, or for a while; gives storage back then.
  int resize(Actor &actor, u64 pool_bytes);
  // Its lease was renewed, or begun, at `begun` or a little later.
  void renewed(Actor &actor, Time begun);

  Sim &sim() { return sim_; }
  History &history() { return history_; }
  void disturb(Actor &actor) {
    actor.disturbed = true;
    if (actor.owner) owners_stats_lost_ = true;
  }
  bool calm() const { return calm_; }
  void expect_media_faults() { media_faults_ = true; }
  // Whoever lives there reads nothing and writes nothing from now on.
  void cut_link(u32 host);
  // Whoever is there now stays behind; lines and rings move to the other control device.
  void leave_behind();
  void spawn_mover(Actor &actor, u32 standby_slot);
  bool lines_moved() const { return lines_moved_; }
  // Loads from it fail from now on, stores vanish. Without that of the lines of members nobody can
  // go on before they are moved.
  void lose_device(u32 device);
  bool device_gone() const { return lost_device_ != kNoDevice; }
  // It can be read again, with what stood on it; no owner is suspected without a reason any more.
  void bring_back_device();
  // Whether the serving owner knows of the loss, and has done what follows from it.
  bool loss_noticed() const;
  bool candidate_claimed() const;
  void expect_evictions() { owners_stats_lost_ = true; }
  SimOwner *serving_owner() const;
  // Whether the owner of the highest active claim serves, and nothing is about to end it.
  bool owner_lives_on() const;
  // A line of the active area goes bad: of the namespace table, the extent map or the index.
  void poison_area();
  const media::Geometry &geometry() const { return layout_.geometry; }
  std::vector<std::unique_ptr<Actor>> &actors() { return actors_; }
  pool::Key key_of(u64 key, u32 ns_epoch) const;
  const RigOptions &options() const { return options_; }

private:
  void serve(Actor &actor);
  void watch_owner(Actor &actor);
  bool join(Actor &actor, u8 standby_slot);
  void lease_thread(Actor &actor);
  bool open_namespace(Actor &actor);
  void refresh_namespace(Actor &actor);
  void closer(Actor &actor);
  void read_everything(Actor &actor);
  void put_more(Actor &actor);
  u32 owners_serving() const;
  struct MediumView {
    u32 epoch = 0;
    PoolOffset area{};
    media::RegionTable regions{};
    std::vector<media::MapRecord> extents;
    std::vector<media::Entry> entries;
  };
  bool read_medium(MediumView &view) const;
  std::string space_text() const;
  std::string hands_text();
  void stun_others(const Actor &actor);
  void check_kept(u64 key, Time before, bool accepted);
  void note_accepted(Actor &actor);

  void check_deadline(const Actor &actor, const char *call, Time begun, Time paused_before);
  void take_block(Actor &actor, u64 address);
  void release_block(Actor &actor, u64 address);
  PoolOffset payload_at(const pool::Session &session, u64 address, u64 line) const;
  void poke(PoolOffset at, Line line, u32 epoch);
  bool copy_block(Actor &actor, const pool::Hit &hit, std::vector<Line> &copy);
  bool has_place(const Actor &actor, const pool::Hit &hit) const;
  void give_back(const media::RegionTable &regions);
  // False: damaged, and the block is known to be tainted, so that a check would have told.
  bool judge(Actor &actor, u64 key, const pool::Hit &hit, const std::vector<Line> &copy,
             Time begun);
  void dawdle(Actor &actor);
  bool by_device(Actor &actor);
  void run_agent(Actor &actor);
  void do_job(Actor &actor);
  void start_job(Actor &actor, PoolOffset at, u64 lines);
  void await_agent(Actor &actor);
  int write_lines(Actor &actor, const pool::Block &block, u64 key, u64 nonce, u64 lines);
  int write_by_device(Actor &actor, const pool::Block &block, u64 key, u64 nonce, u64 lines);
  bool read_by_device(Actor &actor, PoolOffset from, u64 lines, std::vector<Line> &copy);
  void maybe_fall(Actor &actor, u32 permille, u64 verbs);
  int find(Actor &actor, u64 &key, pool::Key &ret_key, pool::Hit &ret_hit);
  bool write_shard(Actor &actor, ShardTicket &ticket, u32 shard);
  PoolOffset shard_mark(const pool::Session &session, const ShardTicket &ticket, u32 shard) const;
  bool wait_for_shards(Actor &actor, ShardTicket &ticket);

  Sim &sim_;
  RigOptions options_;
  media::Layout layout_{};
  media::Sealer sealer_;
  History history_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<std::unique_ptr<ShardTicket>> tickets_;
  std::map<u64, Actor *> writers_;  // of blocks between reserve and publish
  std::map<u64, Actor *> writer_of_;  // of each nonce
  std::map<u64, Time> lateness_;      // of each nonce: its last store, after the lease's renewal
  std::map<u64, u64> removals_;       // calls of remove by key, whatever came of them
  bool cleared_ = false;
  u32 takeovers_ = 0;
  u32 falls_ = 0;
  bool owners_stats_lost_ = false;    // an earlier owner evicted, or is gone with its counts
  bool media_faults_ = false;
  static constexpr u32 kNoDevice = ~u32{0};
  u32 lost_device_ = kNoDevice;
  bool device_back_ = false;
  bool lines_moved_ = false;
  std::map<u64, u32> device_of_;      // of each nonce's payload
  bool settling_ = false;             // the work is done: no owner is suspected without a reason
  bool calm_ = false;                 // faults are over: the nemesis has nothing left to do
};

}  // namespace kvpool::sim
