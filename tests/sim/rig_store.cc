// SPDX-License-Identifier: Apache-2.0
// The same operations one layer up: whole payloads through store::put and store::get, that is
// through the CPU engine, with its checks.
#include "rig.hpp"

namespace kvpool::sim {

namespace {
unsigned long long ull(u64 value) { return value; }
}  // namespace

int Rig::store_put(Actor &actor, u64 key) {
  const Time begun = sim_.now(), paused = sim_.paused_total(actor.process);
  const u64 deadline = actor.env->now_ns() + options_.call_ns;
  ++actor.puts;
  const u64 nonce = history_.next_nonce();
  const u64 lines = options_.store_bytes / kLineBytes;
  std::vector<Line> payload(lines);
  for (u64 i = 0; i < lines; ++i) payload[i] = payload_line(key, nonce, i);
  // In one piece or in two fragments that stand in the other order in local memory.
  const u64 cut = sim_.rng().chance(500) ? 0 : sim_.rng().below(lines) * kLineBytes;
  if (cut) std::rotate(payload.begin(), payload.begin() + cut / kLineBytes, payload.end());
  const u64 bytes = options_.store_bytes;
  const transfer::LocalMemory memory{reinterpret_cast<std::byte *>(payload.data()), bytes};
  const transfer::Run runs[] = {
      {.local_offset = 0, .block_offset = cut, .fragment_bytes = bytes - cut, .count = 1},
      {.local_offset = bytes - cut, .block_offset = 0, .fragment_bytes = cut, .count = 1}};
  store::PutBlock block;
  block.key = key_of(key, actor.ns.epoch);
  block.payload_bytes = bytes;
  block.plan = {std::span(runs, cut ? 2 : 1), std::span(&memory, 1)};
  sim_.note("op put", key, nonce);
  history_.begin(key, nonce, actor.ns.epoch, sim_.now());
  writer_of_[nonce] = &actor;
  if (sim_.rng().chance(options_.stall_permille)) {
    SIM_MARK("writer stalled in the middle of a block");
    const Time lease = u64{options_.lease_ms} * 1'000'000;
    sim_.pause_after(actor.process, 1 + sim_.rng().below(300),
                     sim_.rng().between(lease, 6 * lease));
  }
  ++actor.writing;  // no new life before the call is over, as the context does it
  const int err =
      actor.store->put(actor.ns, std::span(&block, 1), deadline, nullptr, *actor.scratch);
  --actor.writing;
  sim_.note("op stored", nonce, static_cast<u64>(block.status));
  if (block.status == store::BlockStatus::kOk) {
    history_.acknowledged(nonce, sim_.now());
    SIM_MARK("block stored");
  }
  check_deadline(actor, "store put", begun, paused);
  return err ? err : block.error;
}

int Rig::store_get(Actor &actor, u64 key) {
  const Time begun = sim_.now(), paused = sim_.paused_total(actor.process);
  ++actor.gets;
  const u64 bytes = options_.store_bytes;
  std::vector<Line> copy(bytes / kLineBytes);
  const transfer::LocalMemory memory{reinterpret_cast<std::byte *>(copy.data()), bytes};
  const transfer::Run run{.fragment_bytes = bytes, .count = 1};
  store::GetBlock block;
  block.key = key_of(key, actor.ns.epoch);
  block.plan = {std::span(&run, 1), std::span(&memory, 1)};
  store::GetOptions how;
  how.verify = sim_.rng().chance(500) ? store::Verify::kAlways : store::Verify::kOff;
  how.deadline_ns = actor.env->now_ns() + options_.call_ns;
  sim_.note("op get", key);
  ++actor.writing;  // readers too hold the context's life
  const int err = actor.store->get(actor.ns, std::span(&block, 1), how, *actor.scratch);
  --actor.writing;
  check_deadline(actor, "store get", begun, paused);
  if (err) return err;
  switch (block.status) {
  case store::BlockStatus::kOk: break;
  case store::BlockStatus::kMiss:
  case store::BlockStatus::kPending: return -ENOENT;
  case store::BlockStatus::kCorrupt:
    if (!block.hit.tainted) {
      sim_.fail("%s, key %llu: a validated block is damaged", actor.name.c_str(), ull(key));
    }
    SIM_MARK("check found damage on a tainted block");
    return -EILSEQ;
  default: return -EAGAIN;
  }
  u64 nonce = 0;
  const std::string wrong =
      history_.judge(key, copy.data(), copy.size(), begun, sim_.now(), nonce);
  if (!wrong.empty()) sim_.fail("%s, key %llu: %s", actor.name.c_str(), ull(key), wrong.c_str());
  SIM_MARK("block read back");
  ++actor.hits;
  return 0;
}

}  // namespace kvpool::sim
