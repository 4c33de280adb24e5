// SPDX-License-Identifier: Apache-2.0
// Blocks that the members of a group write together (proto 8): one reserves, each writes a shard
// into what the other has in hand, the first one publishes. Tickets travel outside the pool.
#include "rig.hpp"

namespace kvpool::sim {

namespace {

constexpr u64 kMs = 1'000'000;
unsigned long long ull(u64 value) { return value; }

}  // namespace

// Where the check line of the shard's first segment would be: behind what is written of the block.
PoolOffset Rig::shard_mark(const pool::Session &session, const ShardTicket &ticket,
                           u32 shard) const {
  return payload_at(session, ticket.block.address, options_.payload_lines + shard);
}

// False: the ticket is not good any more, or the writer is not.
bool Rig::write_shard(Actor &actor, ShardTicket &ticket, u32 shard) {
  SimMember &member = *actor.member;
  const u64 incarnation = member.incarnation();
  ++actor.writing;  // no new life in the middle of it
  ticket.begun |= 1u << shard;
  const auto me = std::make_pair(&actor, incarnation);
  u64 writer = 0;
  const u64 deadline = actor.env->now_ns() + options_.call_ns;
  bool whole = member.alive() && member.begin_shard_write(ticket.reserver, deadline, writer) == 0;
  if (!whole) {
    SIM_MARK("shard refused: its reserver is dead");
    --actor.writing;
    return false;
  }
  const PoolOffset mark = shard_mark(*member.session(), ticket, shard);
  actor.env->memory().acquire(mark, kLineBytes);
  if (!member.shard_is_open(mark, ticket.nonce)) {
    SIM_MARK("shard refused: its block was aborted");
    member.end_shard_write(writer);
    --actor.writing;
    return false;
  }
  ticket.writing.push_back(me);
  const u64 lines = options_.payload_lines / ticket.shards;
  for (u64 i = shard * lines; i < (shard + 1) * lines && whole; ++i) {
    whole = member.alive() && member.incarnation() == incarnation;  // proto 6: before each chunk
    if (!whole) break;
    if (sim_.rng().chance(options_.freeze_permille)) {
      SIM_MARK("rank stopped in the middle of a shard");
      const Time lease = u64{options_.lease_ms} * kMs;
      sim_.pause(actor.process, sim_.rng().between(lease / 2, 8 * lease));
      sim_.yield();
    }
    const Line line = payload_line(ticket.key, ticket.nonce, i);
    const PoolOffset at = payload_at(*member.session(), ticket.block.address, i);
    actor.env->memory().stream_lines(at, &line, 1, nullptr, 0);
  }
  const PoolOffset last = payload_at(*member.session(), ticket.block.address, shard * lines);
  actor.env->memory().drain_strict(&last, 1);
  whole = whole && member.incarnation() == incarnation;
  member.end_shard_write(writer);
  std::erase(ticket.writing, me);
  --actor.writing;
  if (whole) ticket.done |= 1u << shard;
  return whole;
}

void Rig::spawn_rank(Actor &actor) {
  const auto run = [this, &actor] {
    while (!actor.worked && !actor.stop) {
      for (u64 i = 0; i < tickets_.size(); ++i) {
        ShardTicket &ticket = *tickets_[i];
        const bool mine = ticket.begun >> actor.rank & 1;
        // Nobody tells the ranks that a block was aborted, not in time at least.
        const bool late = ticket.aborted && sim_.rng().chance(options_.late_permille);
        if ((ticket.closed && !late) || mine || ticket.by == &actor) continue;
        if (write_shard(actor, ticket, actor.rank)) SIM_MARK("shard of another member's block");
      }
      actor.env->sleep_ns(200'000);
    }
  };
  sim_.spawn(actor.process, actor.name + " rank", run, true);
}

bool Rig::wait_for_shards(Actor &actor, ShardTicket &ticket) {
  const u32 all = (1u << ticket.shards) - 1;
  const u64 lease = u64{options_.lease_ms} * kMs;
  // Some have little patience: they abort while others write.
  const bool hasty = sim_.rng().chance(options_.hasty_permille);
  const u64 until = actor.env->now_ns() + (hasty ? sim_.rng().below(lease) : 4 * lease);
  while (ticket.done != all) {
    if (!actor.member->alive() || actor.env->now_ns() >= until) return false;
    actor.env->sleep_ns(200'000);
  }
  return true;
}

int Rig::put_in_shards(Actor &actor, u64 key, u32 shards) {
  SimMember &member = *actor.member;
  const u64 deadline = actor.env->now_ns() + options_.call_ns;
  const Time begun = sim_.now(), paused = sim_.paused_total(actor.process);
  ++actor.puts;
  auto ticket = std::make_unique<ShardTicket>();
  sim_.note("op put", key);
  ++actor.writing;
  struct Over {
    Actor &actor;
    ~Over() { --actor.writing; }
  } over{actor};
  if (int err = member.reserve(options_.block_bytes, 1, deadline, &ticket->block)) return err;
  check_deadline(actor, "reserve", begun, paused);
  // I3: nobody is in the middle of a shard of what this block was before, if he may still write.
  for (const auto &old : tickets_) {
    if (old->block.address != ticket->block.address) continue;
    for (const auto &[rank, as] : old->writing) {
      const bool may = sim_.alive(rank->process) && sim_.now() < rank->entitled_until &&
                       rank->member->incarnation() == as;
      if (may) {
        sim_.fail("block %#llx is given to %s while %s writes a shard of it",
                  ull(ticket->block.address), actor.name.c_str(), rank->name.c_str());
      }
    }
  }
  take_block(actor, ticket->block.address);
  ticket->key = key;
  ticket->nonce = history_.next_nonce();
  ticket->reserver = member.incarnation();
  ticket->by = &actor;
  ticket->shards = shards;
  std::vector<PoolOffset> marks(shards);
  for (u32 s = 0; s < shards; ++s) {
    marks[s] = shard_mark(*member.session(), *ticket, s);
    member.open_shard(marks[s], ticket->nonce, s);
  }
  actor.env->memory().drain_strict(marks.data(), marks.size());
  if (sim_.allows(Feature::kKill) && sim_.rng().chance(options_.forsake_permille)) {
    SIM_MARK("reserver killed while its group writes");
    disturb(actor);
    actor.doomed = true;
    sim_.kill_after(actor.process, 1 + sim_.rng().below(120));
  }
  ShardTicket &t = *tickets_.emplace_back(std::move(ticket));
  write_shard(actor, t, actor.rank);
  const bool whole = wait_for_shards(actor, t) && member.incarnation() == t.reserver;
  t.closed = true;
  release_block(actor, t.block.address);
  if (!whole) {
    SIM_MARK("block of a group given up");
    if (!t.writing.empty()) SIM_MARK("block given up while somebody writes it");
    t.aborted = true;
    std::vector<PoolOffset> marks(t.shards);
    for (u32 s = 0; s < t.shards; ++s) marks[s] = shard_mark(*member.session(), t, s);
    for (const PoolOffset at : marks) {
      if (!member.close_shard(at, t.reserver)) return -ESTALE;
    }
    actor.env->memory().drain_strict(marks.data(), marks.size());
    member.abort_shared(t.block, t.reserver);
    return -ESTALE;
  }
  pool::Publication p;
  p.key = key_of(key, actor.ns.epoch);
  p.ns = actor.ns;
  p.block = t.block;
  p.payload_lines = options_.payload_lines;
  p.check_hash = t.nonce;
  sim_.note("op publish", key, t.nonce);
  history_.begin(key, t.nonce, actor.ns.epoch, sim_.now());
  writer_of_[t.nonce] = &actor;
  const int err = member.publish(&p, 1, actor.env->now_ns() + options_.call_ns);
  sim_.note("op published", t.nonce, static_cast<u64>(p.result));
  if (p.result == 0) {
    history_.acknowledged(t.nonce, sim_.now());
    SIM_MARK("block of a group published");
  }
  return p.result ? p.result : err;
}

}  // namespace kvpool::sim
