// SPDX-License-Identifier: Apache-2.0
// Single operations of a member in the rig: each does what production does above the pool layer, on
// payload that the history can judge.
#include <cstring>

#include "rig.hpp"

namespace kvpool::sim {

namespace {

constexpr Time kSlackNs = 400'000'000;  // starvation is no fault of the call
constexpr u64 kMoreNs = 20'000'000;  // how long a member waits for more blocks while it holds one

unsigned long long ull(u64 value) { return value; }

// No new incarnation while a call that began under the old one is on its way; the store's context
// does the same with a lock.
struct Busy {
  explicit Busy(Actor &a) : actor(a) { ++actor.writing; }
  ~Busy() { --actor.writing; }
  Busy(const Busy &) = delete;
  Busy &operator=(const Busy &) = delete;
  Actor &actor;
};

}  // namespace

pool::Key Rig::key_of(u64 key, u32 ns_epoch) const {
  Rng rng(key * 0x9E3779B97F4A7C15ull + ns_epoch * 0xD1B54A32D192ED03ull + options_.key_salt);
  return {{rng.next(), rng.next(), rng.next(), rng.next()}};
}

// I7: a call is over by its deadline, if its process was allowed to run.
void Rig::check_deadline(const Actor &actor, const char *call, Time begun, Time paused_before) {
  const Time paused = sim_.paused_total(actor.process) - paused_before;
  const Time took = sim_.now() - begun;
  if (took > options_.call_ns + options_.call_ns / 50 + kSlackNs + 2 * paused) {
    sim_.fail("%s of %s took %llu us, deadline %llu us", call, actor.name.c_str(),
              ull(took / 1000), ull(options_.call_ns / 1000));
  }
}

// I3: nobody else who is alive for certain is writing this block.
void Rig::take_block(Actor &actor, u64 address) {
  const auto found = writers_.find(address);
  // One whose own lease is over takes from a hand that is not his any more; he stores nothing.
  const bool given = sim_.now() < actor.entitled_until;
  if (given && found != writers_.end() && found->second != &actor) {
    const Actor &other = *found->second;
    if (sim_.alive(other.process) && !other.cut_off && sim_.now() < other.entitled_until) {
      sim_.fail("block %#llx is given to %s while %s writes it", ull(address), actor.name.c_str(),
                other.name.c_str());
    }
  }
  writers_[address] = &actor;
}

void Rig::release_block(Actor &actor, u64 address) {
  const auto found = writers_.find(address);
  if (found != writers_.end() && found->second == &actor) writers_.erase(found);
}

// Lines 0..n-1 of the block, at the places its region gives them.
PoolOffset Rig::payload_at(const pool::Session &session, u64 address, u64 line) const {
  return session.regions.data_at(address + line * kLineBytes);
}

// The payload, past the caches, to the medium.
int Rig::write_lines(Actor &actor, const pool::Block &block, u64 key, u64 nonce, u64 lines) {
  SimMember &member = *actor.member;
  const u64 incarnation = member.incarnation();
  SimMemory &mem = actor.env->memory();
  const pool::Session &session = *member.session();
  for (u64 i = 0; i < lines; ++i) {
    if (!member.alive() || member.incarnation() != incarnation) {  // proto 6: before each chunk
      release_block(actor, block.address);
      mem.drain();  // what was stored does not stay behind for ever
      return -ESTALE;
    }
    if (sim_.now() > actor.lease_latest && !actor.ticking) {
      sim_.fail("%s writes after its lease", actor.name.c_str());
    }
    if (sim_.rng().chance(options_.freeze_permille)) {
      SIM_MARK("stopped between lease check and store");
      const Time lease = u64{options_.lease_ms} * 1'000'000;
      sim_.pause(actor.process, sim_.rng().between(lease / 2, 5 * lease));
      sim_.yield();
    }
    maybe_fall(actor, 15, 4);
    const Line line = payload_line(key, nonce, i);
    mem.stream_lines(payload_at(session, block.address, i), &line, 1, nullptr, 0);
    lateness_[nonce] = std::max(lateness_[nonce], sim_.now() - actor.renewed_at);
  }
  const PoolOffset last = payload_at(session, block.address, lines - 1);
  if (!actor.env->mutant(pool::Mutant::kPublishWithoutDrain)) mem.drain_strict(&last, 1);
  return 0;
}

// Killed a few verbs from now, and started again at once.
void Rig::maybe_fall(Actor &actor, u32 permille, u64 verbs) {
  if (falls_ < options_.falls && !actor.standing_by && sim_.allows(Feature::kKill) &&
      sim_.rng().chance(permille)) {
    SIM_MARK("writer killed in the middle of its payload");
    ++falls_;
    disturb(actor);
    actor.doomed = actor.fell = true;
    sim_.kill_after(actor.process, 1 + sim_.rng().below(verbs));
  }
}

int Rig::put(Actor &actor, u64 key) {
  if (actor.group) return put_in_shards(actor, key, options_.shards);
  if (actor.store) return store_put(actor, key);
  SimMember &member = *actor.member;
  const u64 deadline = actor.env->now_ns() + options_.call_ns;
  const Time begun = sim_.now(), paused = sim_.paused_total(actor.process);
  ++actor.puts;
  const Busy busy(actor);
  sim_.note("op put", key);
  pool::Block block{};
  int err = member.reserve(options_.block_bytes, 1, deadline, &block);
  check_deadline(actor, "reserve", begun, paused);
  if (err) return err;
  // Two more at once, all or none, given back at once. Who waits for them while it holds one may
  // wait for another one that does the same: not for long.
  if (sim_.rng().chance(60)) {
    pool::Block more[2];
    const u64 patience = actor.env->now_ns() + kMoreNs;
    if (member.reserve(options_.block_bytes, 2, std::min(deadline, patience), more) == 0) {
      for (const pool::Block &b : more) member.abort(b);
    }
  }
  if (!member.session()->regions.holds(block.address, options_.block_bytes) &&
      sim_.now() < actor.entitled_until) {
    sim_.fail("%s is given block %#llx of extent %u, outside the pool", actor.name.c_str(),
              ull(block.address), block.extent);
  }
  take_block(actor, block.address);
  const u64 incarnation = member.incarnation();
  const u64 nonce = history_.next_nonce();
  const u64 lines = options_.run_lines != 0 ? 1 : 1 + nonce % options_.payload_lines;
  SimMemory &mem = actor.env->memory();
  const pool::Session &session = *member.session();
  err = by_device(actor) ? write_by_device(actor, block, key, nonce, lines)
                         : write_lines(actor, block, key, nonce, lines);
  if (err) return err;
  const PoolOffset last = payload_at(session, block.address, lines - 1);
  if (member.incarnation() != incarnation) return -ESTALE;
  u64 word = 0;
  const bool reads_back = !device_gone() || mem.load_word(last, word);
  if (!reads_back && !actor.env->mutant(pool::Mutant::kUnreadPublished)) {
    release_block(actor, block.address);
    member.abort_lost(block);
    return -EIO;
  }
  pool::Publication p;
  p.key = key_of(key, actor.ns.epoch);
  p.ns = actor.ns;
  p.block = block;
  p.payload_lines = options_.run_lines != 0 ? options_.run_lines : lines;
  p.check_hash = nonce;
  release_block(actor, block.address);  // from here on an owner may publish, evict and grant it
  sim_.note("op publish", key, nonce);
  history_.begin(key, nonce, actor.ns.epoch, sim_.now());
  writer_of_[nonce] = &actor;
  device_of_[nonce] = last.device();
  err = member.publish(&p, 1, deadline);
  sim_.note("op published", nonce, static_cast<u64>(p.result));
  if (p.result == 0) {
    history_.acknowledged(nonce, sim_.now());
    SIM_MARK("put acknowledged");
  } else if (p.result == -EEXIST) {
    SIM_MARK("put found the key there");
  } else if (p.result == -EINPROGRESS) {
    SIM_MARK("put left in doubt");
  }
  check_deadline(actor, "put", begun, paused);
  return p.result ? p.result : err;
}

int Rig::get(Actor &actor, u64 key) {
  if (actor.store) return store_get(actor, key);
  SimMember &member = *actor.member;
  const Time begun = sim_.now();
  ++actor.gets;
  sim_.note("op get", key);
  pool::Key wanted;
  pool::Hit hit;
  int err = find(actor, key, wanted, hit);
  if (err) return err;
  if (hit.presence != pool::Presence::kHit) {
    // Not asked at once: an owner counts an eviction just after it wrote it.
    // From the loss of an area's device until its owner has moved it nothing is found there.
    const bool adrift = actor.member->session()->area.device() == lost_device_;
    const bool missed = hit.presence == pool::Presence::kMiss;
    if (missed && !adrift) {
      actor.env->sleep_ns(500'000);
      check_kept(key, begun, takeovers_ > 1);
    }
    return -ENOENT;
  }
  sim_.note("op hit", key, hit.version);
  dawdle(actor);
  std::vector<Line> copy;
  const bool readable = copy_block(actor, hit, copy);
  dawdle(actor);
  bool valid = false;
  const pool::Key *const of = &wanted;
  err = member.validate(&hit, 1, &valid, &of);
  if (err) return err;
  if (!valid) {
    SIM_MARK("copy not validated");
    const Time took = sim_.now() - begun;
    const Time grace = u64{options_.grace_us} * 900 - u64{options_.delta_us} * 1000;
    if (options_.strict_grace && took < grace) {
      sim_.fail("key %llu: a read of %llu us fails, the grace is %u us", ull(key),
                ull(took / 1000), options_.grace_us);
    }
    return -EAGAIN;
  }
  if (!readable) {
    if (!has_place(actor, hit)) {
      sim_.fail("%s, key %llu: a validated block is in no region in use", actor.name.c_str(),
                ull(key));
    }
    return -EIO;
  }
  ++actor.hits;
  return judge(actor, key, hit, copy, begun) ? 0 : -EILSEQ;
}

// Looks up, or takes what a lookup of this member found earlier, perhaps before a clear.
int Rig::find(Actor &actor, u64 &key, pool::Key &ret_key, pool::Hit &ret_hit) {
  Record &record = actor.record;
  if (options_.record_permille != 0 && !settling_) {
    const bool kept = sim_.rng().chance(options_.record_permille);
    const pool::Session &session = *actor.member->session();
    if (kept && record.key != 0 && record.hit.entry < session.entry_count()) {
      if (record.ns_epoch != actor.ns.epoch) SIM_MARK("record of before a clear used");
      key = record.key;
      ret_key = key_of(key, record.ns_epoch);
      ret_hit = record.hit;
      ret_hit.epoch = session.epoch;
      return 0;
    }
  }
  const u32 ns_epoch = actor.ns.epoch;
  ret_key = key_of(key, ns_epoch);
  const int err = actor.member->lookup(actor.ns, &ret_key, 1, {}, &ret_hit);
  if (err == 0 && ret_hit.presence == pool::Presence::kHit) record = {key, ns_epoch, ret_hit};
  return err;
}

// Readers are slow now and then, mostly about as long as a grace.
void Rig::dawdle(Actor &actor) {
  if (!sim_.rng().chance(150)) return;
  const u64 longest = options_.slow_ns ? options_.slow_ns : u64{options_.grace_us} * 3000;
  if (sim_.rng().chance(options_.stop_permille)) {
    SIM_MARK("reader's process stopped between two steps");
    sim_.pause(actor.process, 1 + sim_.rng().below(longest));
    sim_.yield();
    return;
  }
  actor.env->sleep_ns(sim_.rng().below(longest));
}

bool Rig::has_place(const Actor &actor, const pool::Hit &hit) const {
  return payload_at(*actor.member->session(), hit.address, 0) != kNoOffset;
}

// What a hole reads as; a host's caches may go on showing what was there.
void Rig::give_back(const media::RegionTable &regions) {
  media::DeviceRange ranges[media::kMaxRegions * media::kMaxDevices];
  const u32 n = media::retired_ranges(regions, ranges);
  for (u32 i = 0; i < n; ++i) {
    const media::DeviceRange &r = ranges[i];
    for (u64 at = r.begin; at < r.end; at += options_.block_bytes) {
      for (u64 line = 0; line < options_.payload_lines; ++line) {
        sim_.world().poke(PoolOffset(r.device, at + line * kLineBytes), Line{});
      }
    }
    sim_.give_back(r.device, r.begin, r.end);
  }
}

int Rig::resize(Actor &actor, u64 pool_bytes) {
  SimMember &member = *actor.member;
  const media::Geometry &geo = geometry();
  const u64 until = actor.env->now_ns() + options_.call_ns;
  int err = -EAGAIN;
  media::ResizeAnswer answer{};
  bool shrinks = false;
  while (!sim_.failed()) {
    member.follow_owner();
    media::RegionTable wanted;
    const media::RegionTable now = member.session()->regions;
    err = media::plan_resize(geo, now, pool_bytes, wanted, nullptr);
    if (err != 0) return err;
    shrinks = wanted.extents_in_use() < now.extents_in_use();
    std::vector<u64> files = sim_.files();
    for (u32 d = 0; d < geo.device_count && !shrinks; ++d) {
      files[d] = std::max(files[d], media::device_end(geo, wanted, d));
      if (files[d] > sim_.world().device_bytes(d)) return -ENOSPC;
    }
    if (!shrinks) {
      sim_.set_files(files);
      sim_.take_back_holes();
    }
    err = member.resize(pool_bytes, wanted.extents_in_use(), actor.env->now_ns() + 5'000'000,
                        answer);
    sim_.note("op resize asked", pool_bytes, static_cast<u64>(err));
    if (err == 0) break;
    if (actor.env->now_ns() > until || sim_.rng().chance(shrinks && err == -EBUSY ? 120 : 20)) {
      SIM_MARK("resize given up");
      if (sim_.rng().chance(500)) {  // as one whose process was killed
        actor.env->sleep_ns(u64{options_.lease_ms} * 1'500'000);
      } else {
        member.resize(0, 0, actor.env->now_ns() + 5'000'000, answer);
      }
      return err;
    }
    actor.env->sleep_ns(sim_.rng().below(3'000'000));
  }
  if (err != 0 || member.follow_owner() != 0) return err;
  actor.env->sleep_ns(u64{options_.grace_us} * 1000);
  const media::RegionTable &now = member.session()->regions;
  if (media::pool_bytes_in_use(geo, now) > pool_bytes || now.retired == 0) return 0;
  SIM_MARK("storage given back");
  give_back(now);
  return 0;
}

bool Rig::copy_block(Actor &actor, const pool::Hit &hit, std::vector<Line> &copy) {
  u64 lines = hit.payload_bytes / kLineBytes;
  if (options_.run_lines != 0 && lines == options_.run_lines) lines = 1;
  if (lines == 0 || lines > options_.payload_lines) {
    sim_.fail("%s: an entry of %llu lines", actor.name.c_str(), ull(lines));
  }
  copy.resize(lines);
  SimMemory &mem = actor.env->memory();
  const PoolOffset from = payload_at(*actor.member->session(), hit.address, 0);
  if (from == kNoOffset) return false;  // the pool has shrunk since it was found
  if (by_device(actor)) return read_by_device(actor, from, lines, copy);
  mem.begin_wave();
  mem.flush_lines(from, lines);
  mem.end_wave();
  const u64 first = sim_.rng().below(lines + 1);
  bool readable = mem.fetch_lines(copy.data(), from, first, kNoOffset, nullptr, 0);
  if (first < lines) dawdle(actor);
  readable &= mem.fetch_lines(copy.data() + first, from + first * kLineBytes, lines - first,
                              kNoOffset, nullptr, 0);
  return readable;
}

bool Rig::judge(Actor &actor, u64 key, const pool::Hit &hit, const std::vector<Line> &copy,
                Time begun) {
  u64 nonce = 0;
  const std::string wrong =
      history_.judge(key, copy.data(), copy.size(), begun, sim_.now(), nonce);
  const bool other = wrong.empty() && hit.check_hash != nonce;
  if (hit.tainted && (!wrong.empty() || other)) {
    // Taint is for those who stopped for longer than a quarantine: L of silence and 2 L more.
    for (const Line &line : copy) {
      const auto late = lateness_.find(line.w[2]);
      const bool stray = line.w[2] != hit.check_hash && late != lateness_.end();
      if (stray && late->second < u64{options_.lease_ms} * 2'800'000) {
        sim_.fail("key %llu: damaged by a writer (nonce %llu) that its quarantine had to outlast",
                  ull(key), ull(line.w[2]));
      }
    }
    SIM_MARK("damage on a tainted block, as a check would tell");
    return false;
  }
  if (!wrong.empty()) {
    sim_.fail("%s, key %llu: %s", actor.name.c_str(), ull(key), wrong.c_str());
  }
  if (other) {
    sim_.fail("%s, key %llu: entry says nonce %llu, bytes say %llu", actor.name.c_str(), ull(key),
              ull(hit.check_hash), ull(nonce));
  }
  return true;
}

int Rig::remove(Actor &actor, u64 key) {
  const Time begun = sim_.now(), paused = sim_.paused_total(actor.process);
  const u64 deadline = actor.env->now_ns() + options_.call_ns;
  sim_.note("op remove", key);
  ++removals_[key];
  const u32 scope = actor.ns.epoch;
  const int err = actor.member->remove(key_of(key, actor.ns.epoch), 0, deadline);
  sim_.note("op removed", key, static_cast<u64>(err));
  check_deadline(actor, "remove", begun, paused);
  if (err == 0) {
    SIM_MARK("key removed");
    history_.removed(key, scope, begun, sim_.now());
  }
  return err;
}

// A pin protects bytes until its expiry on this host's clock, looked at after the use (proto 11).
int Rig::hold_pinned(Actor &actor, u64 key) {
  const Busy busy(actor);
  SimMember &member = *actor.member;
  const Time begun = sim_.now();
  pool::Key wanted;
  pool::Hit hit;
  int err = find(actor, key, wanted, hit);
  if (err) return err;
  if (hit.presence != pool::Presence::kHit) return -ENOENT;
  pool::Pin pin{};
  // Some would outlast everything if they were forgotten.
  const u32 about_ms = static_cast<u32>(sim_.rng().between(5, 30));
  const u32 ttl_ms = sim_.rng().chance(options_.lasting_permille) ? 600'000 : about_ms;
  err = member.pin(hit, wanted, ttl_ms, actor.env->now_ns() + options_.call_ns, pin);
  if (err) return err;
  SIM_MARK("block pinned");
  actor.env->sleep_ns(sim_.rng().below(u64{about_ms} * 1'200'000));
  std::vector<Line> copy;
  const bool before = actor.env->now_ns() <= pin.expiry_ns && member.alive();
  dawdle(actor);
  const bool readable = copy_block(actor, pin.hit, copy);
  const bool late = actor.env->mutant(pool::Mutant::kPinCheckBeforeUse) ? !before
                    : actor.env->now_ns() > pin.expiry_ns || !member.alive();
  if (late) {
    SIM_MARK("pin ran out in use");
    member.unpin(pin);
    return -ETIME;
  }
  // Who used a pin looks at the claims afterwards, as kvpool_ticket_valid() does: what came through
  // a link that was cut on the way is thrown away.
  if (actor.cut_off) {
    const pool::ClaimView view = member.claims().read();
    if (view.gone || view.unreadable) return -EIO;
  }
  if (!has_place(actor, pin.hit)) {
    sim_.fail("%s, key %llu: a pinned block is in no region in use", actor.name.c_str(), ull(key));
  }
  const bool right = !readable || judge(actor, key, pin.hit, copy, begun);
  member.unpin(pin);
  return right ? 0 : -EILSEQ;
}

int Rig::clear(Actor &actor) {
  const Time begun = sim_.now(), paused = sim_.paused_total(actor.process);
  cleared_ = true;
  media::NsAnswer answer{};
  media::NsControlBody body{};
  body.id = actor.ns.id;
  body.epoch = actor.ns.epoch;
  body.op = static_cast<u8>(media::NsOp::kClear);
  std::memcpy(body.fingerprint, kFingerprint, sizeof body.fingerprint);
  const int err =
      actor.member->ns_control(body, actor.env->now_ns() + options_.call_ns, answer);
  check_deadline(actor, "clear", begun, paused);
  if (err == 0) {
    SIM_MARK("namespace cleared");
    history_.removed(0, actor.ns.epoch, begun, sim_.now());
    actor.ns.epoch = answer.epoch;
  }
  return err;
}

// Says that a key is being computed, and mostly forgets to compute it.
int Rig::announce(Actor &actor, u64 key) {
  sim_.note("op pending", key);
  const pool::Key wanted = key_of(key, actor.ns.epoch);
  const u32 ms = sim_.rng().chance(500) ? 5 : 1'000;
  const int err = actor.member->pending(actor.ns, wanted, ms);
  if (err == 0 && sim_.rng().chance(500)) {
    actor.env->sleep_ns(sim_.rng().below(1'000'000));
    return put(actor, key);
  }
  return err;
}

void Rig::one_operation(Actor &actor) {
  const u64 key = 1 + sim_.rng().below(options_.keys);
  const u32 weights[] = {options_.put,   options_.get,  options_.remove,
                         options_.pin,   options_.clear, options_.pending,
                         options_.idle};
  u64 total = 0;
  for (u32 weight : weights) total += weight;
  u64 dice = sim_.rng().below(total);
  u32 which = 0;
  while (dice >= weights[which]) dice -= weights[which++];
  int err = 0;
  switch (which) {
  case 0:
    err = put(actor, key);
    if (err == 0 && sim_.rng().chance(300)) err = get(actor, key);
    break;
  case 1: err = get(actor, key); break;
  case 2: err = remove(actor, key); break;
  case 3: err = hold_pinned(actor, key); break;
  case 4: err = clear(actor); break;
  case 5: err = announce(actor, key); break;
  default: actor.env->sleep_ns(sim_.rng().below(3'000'000)); break;
  }
  // A cleared namespace has another epoch: a handle learns it by opening again.
  if (err == -ESTALE || err == -EPERM || cleared_) refresh_namespace(actor);
}

}  // namespace kvpool::sim
