// SPDX-License-Identifier: Apache-2.0
// Payload that a device writes or reads for a member (proto 4, 6, 9): device agents. A device knows
// no lease and no signal; what it wrote is where its root port put it.
#include "rig.hpp"

namespace kvpool::sim {

namespace {
constexpr Time kLineNs = 40;
constexpr Time kLateForEver = kNever / 2;
}  // namespace

bool Rig::by_device(Actor &actor) {
  if (options_.device_permille == 0 || !sim_.allows(Feature::kDevices)) return false;
  if (!sim_.rng().chance(options_.device_permille)) return false;
  if (!actor.agent) {
    actor.agent = std::make_unique<Agent>();
    Agent &agent = *actor.agent;
    agent.host = actor.host;
    agent.allocates = sim_.rng().chance(500);
    agent.process = sim_.add_process(actor.host, "device of " + actor.name);
    sim_.spawn(agent.process, "device of " + actor.name, [this, &actor] { run_agent(actor); },
               true);
  }
  return true;
}

void Rig::run_agent(Actor &actor) {
  Agent &agent = *actor.agent;
  for (;;) {
    if (agent.busy) {
      do_job(actor);
      agent.busy = false;
      sim_.wake(&agent.copy, true);
    } else if (sim_.inherited(agent.process)) {
      // The process is gone: what its devices left in this host's cache leaves it before its lock
      // is free; the owner allows delta for the rest of the way.
      SIM_MARK("kernel waited for the device of a dead process");
      for (u64 i = 0; i < agent.lines; ++i) {
        sim_.step(kLineNs, "kernel flush", agent.at.raw(), i);
        if (actor.env->mutant(pool::Mutant::kDeadLinesKept)) continue;
        sim_.world().kernel_flush(agent.host, agent.at + i * kLineBytes);
      }
      sim_.release_inherited(agent.process);
      sim_.note("op device quiet", actor.process);
      return;
    } else {
      sim_.block(&agent.busy);
    }
  }
}

// Lines in any order, beginning anywhere; sometimes the device is busy with somebody else's work.
void Rig::do_job(Actor &actor) {
  Agent &agent = *actor.agent;
  const Time lease = u64{options_.lease_ms} * 1'000'000;
  const u64 first = sim_.rng().below(agent.lines);
  const u64 stalls_at = sim_.rng().chance(250) ? sim_.rng().below(agent.lines) : agent.lines;
  agent.readable = true;
  for (u64 k = 0; k < agent.lines; ++k) {
    const u64 i = (first + k) % agent.lines;
    sim_.step(kLineNs, agent.writes ? "device store" : "device load", agent.at.raw(), i);
    const Time longest = sim_.rng().chance(300) ? 5 * lease : lease / 2;
    if (k == stalls_at) sim_.sleep_true(sim_.rng().below(longest));
    if (sim_.rng().chance(200)) sim_.sleep_true(sim_.rng().below(200'000));
    const PoolOffset at = agent.at + i * kLineBytes;
    if (!agent.writes) {
      agent.readable &= sim_.world().device_load(agent.host, at, agent.copy[i]);
      continue;
    }
    if (!sim_.alive(actor.process)) SIM_MARK("device writes on for a dead process");
    if (sim_.now() > actor.lease_latest) SIM_MARK("device writes after a lease");
    sim_.world().device_store(agent.host, at, payload_line(agent.key, agent.nonce, i),
                              agent.allocates);
    Time &late = lateness_[agent.nonce];
    // A line that lies in a cache is written back whenever.
    late = agent.allocates ? kLateForEver : std::max(late, sim_.now() - actor.renewed_at);
  }
}

void Rig::await_agent(Actor &actor) {
  while (actor.agent->busy) sim_.block(&actor.agent->copy);
}

void Rig::start_job(Actor &actor, PoolOffset at, u64 lines) {
  Agent &agent = *actor.agent;
  agent.at = at;
  agent.lines = lines;
  agent.copy.assign(lines, Line{});
  agent.busy = true;
  sim_.wake(&agent.busy, true);
}

int Rig::write_by_device(Actor &actor, const pool::Block &block, u64 key, u64 nonce, u64 lines) {
  SimMember &member = *actor.member;
  Agent &agent = *actor.agent;
  SimMemory &mem = actor.env->memory();
  const PoolOffset at = payload_at(*member.session(), block.address, 0);
  const u64 incarnation = member.incarnation();
  await_agent(actor);
  if (!member.alive()) {  // proto 6: before a device is started as before each chunk
    release_block(actor, block.address);
    return -ESTALE;
  }
  const u64 lock = SimEnv::lock_id(pool::LockKind::kMember, member.slot());
  if (!actor.env->mutant(pool::Mutant::kDeviceOutlivesLock)) sim_.bequeath(lock, agent.process);
  agent.writes = true;
  agent.key = key;
  agent.nonce = nonce;
  start_job(actor, at, lines);
  maybe_fall(actor, 120, 60);
  // Also one whose lease is over waits: it joins anew when nothing of it writes any more.
  if (!actor.env->mutant(pool::Mutant::kDeviceUnawaited)) await_agent(actor);
  if (!actor.env->mutant(pool::Mutant::kDeviceNotRetired)) {
    mem.device_retire(at, lines * kLineBytes);
  }
  sim_.bequeath_no_more(lock);
  if (agent.allocates) {
    SIM_MARK("device wrote a payload into its host's cache");
  } else {
    SIM_MARK("device wrote a payload past its host's cache");
  }
  if (member.alive() && member.incarnation() == incarnation) return 0;
  release_block(actor, block.address);
  return -ESTALE;
}

bool Rig::read_by_device(Actor &actor, PoolOffset from, u64 lines, std::vector<Line> &copy) {
  Agent &agent = *actor.agent;
  await_agent(actor);
  if (!actor.env->mutant(pool::Mutant::kDeviceNotAcquired)) {
    actor.env->memory().device_acquire(from, lines * kLineBytes);
  }
  dawdle(actor);
  agent.writes = false;
  start_job(actor, from, lines);
  await_agent(actor);
  SIM_MARK("device read a payload");
  copy = agent.copy;
  return agent.readable;
}

}  // namespace kvpool::sim
