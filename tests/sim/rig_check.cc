// SPDX-License-Identifier: Apache-2.0
// What must be true when everybody has done his work and the graces are over: nothing leaked (I5),
// what was published is there (I4, I6), what is there reads right (I1, I2).
#include <algorithm>

#include "rig.hpp"

namespace kvpool::sim {

namespace {

constexpr u64 kMs = 1'000'000;

unsigned long long ull(u64 value) { return value; }

}  // namespace

SimOwner *Rig::serving_owner() const {
  SimOwner *best = nullptr;
  for (const auto &actor : actors_) {
    if (!actor->serving || !sim_.alive(actor->process)) continue;
    if (!best || actor->owner->epoch() > best->epoch()) best = actor->owner;
  }
  return best;
}

bool Rig::loss_noticed() const {
  const SimOwner *owner = serving_owner();
  return owner && owner->serving() && owner->space().out_count() > 0 && !owner->wants_other_area();
}

bool Rig::candidate_claimed() const {
  u32 claimed = 0, active = 0;
  const media::Geometry &geo = layout_.geometry;
  for (u32 slot = 0; slot < geo.standby_count; ++slot) {
    const PoolOffset at = geo.claim_at(0, slot);
    const Line line = sim_.world().peek(at);
    if (!sealer_.intact(line, at, 0)) continue;
    const auto claim = media::from_line<media::ClaimLine>(line);
    claimed = std::max(claimed, claim.claimed);
    active = std::max(active, claim.active);
  }
  return claimed > active;
}

bool Rig::owner_lives_on() const {
  MediumView view;
  if (!read_medium(view)) return false;
  for (const auto &actor : actors_) {
    if (!actor->serving || actor->doomed || !sim_.alive(actor->process)) continue;
    if (actor->owner->epoch() == view.epoch) return actor->owner->serving();
  }
  return false;
}

void Rig::poison_area() {
  MediumView view;
  if (!read_medium(view)) return;
  const media::Geometry &geo = layout_.geometry;
  PoolOffset at =
      geo.entry_line(view.area, sim_.rng().below(geo.index_groups * media::kGroupLines));
  if (sim_.rng().chance(250)) at = geo.map_line(view.area, 0);
  if (sim_.rng().chance(150)) at = geo.ns_line(view.area, 1 + sim_.rng().below(3));
  SIM_MARK("line of an area poisoned");
  sim_.note("op poison", at.raw());
  sim_.world().set_poison(at);
}

u32 Rig::owners_serving() const {
  u32 count = 0;
  for (const auto &actor : actors_) count += actor->serving && sim_.alive(actor->process);
  return count;
}

// Reads the medium as a stranger would: the area of the highest active claim.
bool Rig::read_medium(MediumView &view) const {
  const media::Geometry &geo = layout_.geometry;
  media::ClaimLine best{};
  for (u32 copy = 0; copy < 2; ++copy) {
    for (u32 slot = 0; slot < geo.standby_count; ++slot) {
      const PoolOffset at = geo.claim_at(copy, slot);
      const Line line = sim_.world().peek(at);
      if (!sealer_.intact(line, at, 0)) continue;
      const auto claim = media::from_line<media::ClaimLine>(line);
      if (claim.active > best.active) {
        best = claim;
        view.area = geo.area_at(slot, claim.area);
      }
    }
  }
  if (best.active == 0) return false;
  view.epoch = best.active;
  view.extents.clear();
  Line table[media::kRegionTableLines];
  for (u32 i = 0; i < media::kRegionTableLines; ++i) {
    table[i] = sim_.world().peek(geo.region_line(view.area, i));
    if (!sealer_.intact(table[i], geo.region_line(view.area, i), view.epoch)) return false;
  }
  if (media::decode_regions(table, geo, view.regions, nullptr) != 0) return false;
  for (u32 x = 0; x < view.regions.extent_count(); ++x) {
    const PoolOffset at = geo.map_word(view.area, x);
    const Line line = sim_.world().peek(PoolOffset::from_raw(at.raw() & ~(kLineBytes - 1)));
    media::MapRecord record{};
    if (sim_.world().poisoned(PoolOffset::from_raw(at.raw() & ~(kLineBytes - 1)))) continue;
    if (!sealer_.unpack_map(line.w[at.byte() % kLineBytes / 8], at, view.epoch, record))
      return false;
    view.extents.push_back(record);
  }
  view.entries.clear();
  for (u64 n = 0; n < best.index_groups * media::kGroupLines; ++n) {
    const PoolOffset at = geo.entry_line(view.area, n);
    const Line line = sim_.world().peek(at);
    if (sim_.world().poisoned(at)) continue;
    if (!sealer_.intact(line, at, view.epoch)) return false;
    view.entries.push_back(media::from_line<media::Entry>(line));
  }
  return true;
}

// Empty text: every block is free or published, and nothing overlaps.
std::string Rig::space_text() const {
  MediumView view;
  if (!read_medium(view)) return "the active area does not verify";
  for (u32 x = 0; x < view.extents.size(); ++x) {
    if (view.extents[x].holder != media::kHolderOwner) {
      return "extent " + std::to_string(x) + " is still held by slot " +
             std::to_string(view.extents[x].holder);
    }
  }
  std::map<u64, u64> blocks;  // start to end
  for (u64 n = 0; n < view.entries.size(); ++n) {
    const media::Entry &entry = view.entries[n];
    const auto state = entry.entry_state();
    if (state == media::EntryState::kEmpty) continue;
    if (state != media::EntryState::kPublished) {
      return "entry " + std::to_string(n) + " stays in state " +
             std::to_string(static_cast<u32>(state));
    }
    const u64 begin = entry.locator() * media::kLocatorUnit;
    const u64 end = begin + entry.payload_lines() * kLineBytes;
    if (!view.regions.holds(begin, end - begin)) return "entry names bytes outside the pool";
    const auto next = blocks.lower_bound(begin);
    if (next != blocks.end() && next->first < end) return "two entries share a block";
    if (next != blocks.begin() && std::prev(next)->second > begin)
      return "two entries share a block";
    blocks[begin] = end;
  }
  return "";
}

// I4 and I6: a key that was not found although a member that nothing happened to published it
// before `before`, and nothing was removed or evicted since.
void Rig::check_kept(u64 key, Time before, bool accepted) {
  if (removals_.count(key) || cleared_ || owners_stats_lost_ || media_faults_) return;
  for (const auto &actor : actors_) {
    if (actor->owner && actor->owner->stats().evicted) return;
  }
  for (const Written &w : history_.all()) {
    if (w.nonce == 0 || w.key != key || (accepted ? w.accepted : w.ended) > before) continue;
    const auto by = writer_of_.find(w.nonce);
    if (by == writer_of_.end()) continue;
    const auto on = device_of_.find(w.nonce);
    if (device_gone() && (on == device_of_.end() || on->second == lost_device_)) continue;
    // What its publisher knew to count stays, whatever became of the publisher.
    const bool there = !by->second->disturbed && sim_.alive(by->second->process);
    if (!there && w.accepted > before) continue;
    sim_.fail("key %llu, published with nonce %llu by %s and never removed, is lost", ull(key),
              ull(w.nonce), by->second->name.c_str());
  }
}

void Rig::read_everything(Actor &actor) {
  u64 hits = 0;
  refresh_namespace(actor);
  for (u64 key = 1; key <= options_.keys; ++key) {
    int err = 0;
    for (u32 attempt = 0; attempt < 20; ++attempt) {
      err = get(actor, key);
      if (err != -EAGAIN) break;
      actor.env->sleep_ns(kMs);
    }
    if (err == -EIO && media_faults_) continue;
    const bool found = err == 0 || err == -EILSEQ;
    if (!found && err != -ENOENT) sim_.fail("last read of key %llu: error %d", ull(key), err);
    hits += found;
    if (!found) check_kept(key, sim_.now(), false);
  }
  MediumView view;
  u64 published = 0;
  if (read_medium(view)) {
    // Entries of a namespace that was cleared since stay until their room is wanted.
    for (const media::Entry &entry : view.entries) {
      if (entry.entry_state() != media::EntryState::kPublished) continue;
      for (u64 key = 1; key <= options_.keys; ++key) {
        published += std::equal(entry.key, entry.key + 4, key_of(key, actor.ns.epoch).w);
      }
    }
  }
  // Where lines went bad a whole namespace may be out of reach, until its blocks are evicted.
  if (published != hits && !media_faults_) {
    sim_.fail("%llu entries are published, %llu keys are hits", ull(published), ull(hits));
  }
}

// A device is lost: puts go on, and what they put can be read. By now its owner has noticed, and
// the caller has nothing in hand from before.
void Rig::put_more(Actor &actor) {
  constexpr u64 kPuts = 8, kTries = 60;
  for (u64 i = 1; i <= kPuts && !sim_.failed(); ++i) {
    const u64 key = options_.keys + i;
    int err = -EAGAIN;
    for (u64 attempt = 0; attempt < kTries && err != 0; ++attempt) {
      if (attempt > 0) actor.env->sleep_ns(kMs);
      err = put(actor, key);
      if (err == -EIO) sim_.fail("an extent on a lost device is granted");
      if (err == 0 || err == -EEXIST) err = get(actor, key);
      if (err == -EIO) sim_.fail("key %llu is published on a lost device", ull(key));
    }
    if (err != 0) sim_.fail("puts do not go on after a device was lost: error %d", err);
  }
}

// I5 while members live: what the map gives to a member is in its hand, and nothing is held by the
// dead.
std::string Rig::hands_text() {
  MediumView view;
  if (!read_medium(view)) return "the active area does not verify";
  for (u32 x = 0; x < view.extents.size(); ++x) {
    const u8 holder = view.extents[x].holder;
    const bool tail = view.extents[x].flags & media::kMapRunTail;  // its head stands for the run
    if (holder == media::kHolderOwner || tail) continue;
    bool known = false;
    for (const auto &actor : actors_) {
      const bool there = sim_.alive(actor->process) && !actor->left && actor->member->joined();
      if (!there || actor->member->slot() != holder) continue;
      const u32 run = actor->member->run_in_hand(x);
      known |= run != 0;
      for (u32 t = x + 1; t < x + run; ++t) {
        const bool of_it = view.extents[t].flags & media::kMapRunTail;
        if (of_it && view.extents[t].holder == holder) continue;
        return "a run of " + std::to_string(run) + " extents from " + std::to_string(x) +
               " on is in a hand, but extent " + std::to_string(t) + " is not part of it";
      }
    }
    if (!known) {
      return "extent " + std::to_string(x) + " is slot " + std::to_string(holder) +
             "'s on the medium and in nobody's hand";
    }
  }
  return "";
}

void Rig::closer(Actor &actor) {
  if (!join(actor, media::kNoStandby)) return;
  sim_.spawn(actor.process, "inspector lease", [this, &actor] { lease_thread(actor); }, true);
  if (!open_namespace(actor)) sim_.fail("the inspector finds no owner");
  for (;;) {  // the others are done
    bool busy = false;
    for (const auto &other : actors_) {
      if (other.get() == &actor || other->standing_by) continue;
      busy |= sim_.alive(other->process) && !other->left && !other->worked;
    }
    if (!busy && serving_owner()) break;
    actor.env->sleep_ns(5 * kMs);
  }
  settling_ = true;
  Time start = sim_.now();
  std::string text;
  const Time bound = u64{options_.lease_ms} * kMs * 20;
  while (!(text = hands_text()).empty() && sim_.now() - start < bound) {
    actor.env->sleep_ns(10 * kMs);
  }
  if (!text.empty()) sim_.fail("long after the last call %s", text.c_str());
  calm_ = true;
  start = sim_.now();
  do {  // quarantines and graces are over after a few leases
    actor.env->sleep_ns(20 * kMs);
    text = space_text();
  } while (!text.empty() && sim_.now() - start < bound);
  if (!text.empty()) sim_.fail("not settled long after the last call: %s", text.c_str());
  start = sim_.now();
  const auto pinned = [this] { return serving_owner() ? serving_owner()->pinned() : 0; };
  while (pinned() != 0 && sim_.now() - start < bound) actor.env->sleep_ns(10 * kMs);
  if (pinned() != 0) sim_.fail("%llu blocks are pinned by nobody", ull(pinned()));
  read_everything(actor);
  if (device_gone()) put_more(actor);
  start = sim_.now();
  while (owners_serving() > 1 && sim_.now() - start < bound) actor.env->sleep_ns(10 * kMs);
  if (owners_serving() > 1) sim_.fail("%u owners go on serving", owners_serving());
  for (const auto &other : actors_) {
    if (!(other->cut_off || other->left_behind) || !sim_.alive(other->process)) continue;
    if (other->serving || (!other->standing_by && other->entitled_until != 0)) {
      sim_.fail("%s does not notice that its %s", other->name.c_str(),
                other->cut_off ? "link is gone" : "lines have moved");
    }
  }
  actor.stop = true;
}

void Rig::spawn_closer() {
  Actor &actor = add_actor(options_.hosts - 1, "inspector");
  sim_.spawn(actor.process, actor.name, [this, &actor] { closer(actor); });
}

}  // namespace kvpool::sim
