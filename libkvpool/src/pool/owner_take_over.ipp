// SPDX-License-Identifier: Apache-2.0
// Take-over (proto 7): claim, settle, scan the base area, copy it forward into the own free area,
// look once more, activate. Opening a store whose owner is gone is the same thing.
#pragma once

namespace kvpool::pool {

inline constexpr u64 kScanWindow = 512;  // lines that share a pair of fences in the scan

template <PoolEnv Env>
int Owner<Env>::take_over(u32 standby_slot) {
  standby_ = standby_slot;
  ClaimView view = claims_.read();
  if (view.gone) return -ESTALE;
  if (view.unreadable) return -EUCLEAN;
  const bool low = env_.mutant(Mutant::kEpochFromActive);
  const u32 counter = media::epoch_counter(low ? view.highest_active : view.highest_claimed) + 1;
  if (counter > media::kEpochCounterMax) return -EOVERFLOW;
  epoch_ = media::make_epoch(counter, standby_slot);
  media::ClaimLine mine = view.line[standby_slot];
  mine.claimed = epoch_;
  mine.claimed_incarnation = member_.incarnation();
  mine.claimed_member = static_cast<u16>(member_.slot());
  claims_.write(standby_slot, mine);
  if (!env_.mutant(Mutant::kTakeoverWithoutSettle)) env_.sleep_ns(2ull * geo_.delta_us * 1000);
  view = claims_.read();
  if (view.gone) return -ESTALE;
  const bool rival = view.unreadable || view.highest_claimed > epoch_;
  if (rival && !env_.mutant(Mutant::kIgnoreRival)) return -EAGAIN;
  if (view.highest_active == 0) return -EUCLEAN;

  const bool same = env_.mutant(Mutant::kFillActiveArea);
  const u8 target = mine.active != 0 && (mine.area == 0) != same ? 1 : 0;
  pen_.open(geo_.area_at(standby_slot, target), epoch_);
  if (int err = scan(view)) return err;
  if (!env_.mutant(Mutant::kActivateBeforeDrain)) pen_.drain_strict();

  if (!member_.alive()) return -ESTALE;
  if (!claims_.read().accepts(epoch_)) {
    env_.mark("outbid");
    return -EAGAIN;
  }
  env_.mark("take_over_activates");
  mine.active = epoch_;
  mine.active_incarnation = member_.incarnation();
  mine.active_member = static_cast<u16>(member_.slot());
  mine.area = target;
  mine.index_groups = index_.groups();
  claims_.write(standby_slot, mine);
  first_members();
  serving_ = true;
  last_request_ns_ = env_.now_ns();
  return 0;
}

template <PoolEnv Env>
int Owner<Env>::scan(const ClaimView &base) {
  const PoolOffset area = geo_.area_at(base.active_slot, base.active.area);
  const u32 epoch = base.highest_active;
  if (base.active.index_groups == 0 || base.active.index_groups > geo_.index_groups_max) {
    return -EUCLEAN;
  }
  grace_.clear();
  grace_pinned_.clear();
  pins_.clear();
  pendings_.clear();
  grace_bytes_ = version_number_ = 0;
  scanned_version_.clear();
  scanned_epoch_ = 0;
  scanned_highest_ = nullptr;
  if (int err = scan_regions(area, epoch)) return err;
  scan_namespaces(area, epoch);
  index_.reset(base.active.index_groups, static_cast<u32>(ns_.size()));
  scan_map(area, epoch);
  repair_runs();
  scan_entries(area, epoch);
  return 0;
}

// Acquires and loads consecutive lines; a torn one gets a second look.
template <PoolEnv Env>
void Owner<Env>::load_window(PoolOffset from, u64 lines, Line *ret_lines, bool *ret_good) {
  auto &mem = env_.memory();
  mem.begin_wave();
  if (!env_.mutant(Mutant::kScanWithoutAcquire)) {
    flush_groups(mem, &from, 1, lines);
  }
  mem.end_wave();
  for (u64 i = 0; i < lines; ++i) ret_good[i] = mem.load_line(from + i * kLineBytes, ret_lines[i]);
}

template <PoolEnv Env>
int Owner<Env>::scan_regions(PoolOffset base, u32 base_epoch) {
  Line lines[media::kRegionTableLines];
  bool good[media::kRegionTableLines];
  load_window(base, media::kRegionTableLines, lines, good);
  for (u32 i = 0; i < media::kRegionTableLines; ++i) {
    const PoolOffset at = geo_.region_line(base, i);
    if (!good[i] || !claims_.sealer().intact(lines[i], at, base_epoch)) return -EUCLEAN;
  }
  media::RegionTable regions;
  if (int err = media::decode_regions(lines, geo_, regions, nullptr)) return err;
  space_.reset(regions);
  for (u32 i = 0; i < media::kRegionTableLines; ++i) {
    pen_.write_line(geo_.region_line(pen_.area(), i), lines[i]);
  }
  return 0;
}

template <PoolEnv Env>
void Owner<Env>::scan_namespaces(PoolOffset base, u32 base_epoch) {
  ns_.assign(geo_.namespace_lines, media::NamespaceLine{});
  ns_bytes_.assign(geo_.namespace_lines, 0);
  for (u32 id = 0; id < geo_.namespace_lines; ++id) {
    const PoolOffset at = geo_.ns_line(base, id);
    Line line;
    bool good;
    load_window(at, 1, &line, &good);
    if (good && claims_.sealer().intact(line, at, base_epoch)) {
      ns_[id] = media::from_line<media::NamespaceLine>(line);
    } else {
      env_.mark("scan_ns_unreadable");
      ns_[id].flags = 0;  // not empty: what stands behind it must still be found
    }
    pen_.write_ns(id, ns_[id]);
  }
}

template <PoolEnv Env>
void Owner<Env>::scan_map(PoolOffset base, u32 base_epoch) {
  auto &mem = env_.memory();
  for (u32 x = 0; x < space_.count(); x += media::kMapRecordsPerLine) {
    const PoolOffset line = geo_.map_word(base, x);
    mem.acquire(line, kLineBytes);
    for (u32 i = x; i < std::min(space_.count(), x + media::kMapRecordsPerLine); ++i) {
      const PoolOffset at = geo_.map_word(base, i);
      media::MapRecord record{media::kHolderFormer, 0, media::kClassNone, 0, 0};
      u64 word = 0;
      if (!mem.load_word(at, word) ||
          !claims_.sealer().unpack_map(word, at, base_epoch, record)) {
        env_.mark("scan_map_unreadable");
        ++stats_.unreadable_map_words;
        record = {media::kHolderFormer, 0, media::kClassNone, 0, 0};
      }
      space_.set_record(i, record);
      pen_.write_map(i, record);
    }
  }
}

// A crash between the words of a run leaves tails without a head: they are free (proto 8).
template <PoolEnv Env>
void Owner<Env>::repair_runs() {
  bool in_run = false;
  u8 holder = 0;
  for (u32 x = 0; x < space_.count(); ++x) {
    const media::MapRecord record = space_.at(x).record;
    if (record.flags & media::kMapRunHead) {
      in_run = true;
      holder = record.holder;
    } else if (record.flags & media::kMapRunTail) {
      if (in_run && record.holder == holder) continue;
      env_.mark("run_tail_repaired");
      set_map(x, {media::kHolderOwner, 0, media::kClassNone, 0, 0});
      in_run = false;
    } else {
      in_run = false;
    }
  }
}

template <PoolEnv Env>
void Owner<Env>::scan_entries(PoolOffset base, u32 base_epoch) {
  std::vector<Line> lines(kScanWindow);
  const auto good = std::make_unique<bool[]>(kScanWindow);
  for (u64 first = 0; first < index_.count(); first += kScanWindow) {
    const u64 n = std::min(kScanWindow, index_.count() - first);
    load_window(geo_.entry_line(base, first), n, lines.data(), good.get());
    for (u64 i = 0; i < n; ++i) {
      const u32 number = static_cast<u32>(first + i);
      const PoolOffset at = geo_.entry_line(base, number);
      media::Entry &entry = index_.entry(number);
      if (!good[i] || !claims_.sealer().intact(lines[i], at, base_epoch)) {
        load_window(at, 1, &lines[i], &good[i]);  // torn while it was read? a second look
      }
      if (good[i] && claims_.sealer().intact(lines[i], at, base_epoch)) {
        entry = media::from_line<media::Entry>(lines[i]);
      } else {
        // Dropped; its block stays out of use until all reports are in, as every block does.
        env_.mark("scan_entry_unreadable");
        ++stats_.unreadable_entries;
        entry = media::Entry{};
        entry.state = static_cast<u8>(media::EntryState::kEmpty);
        if (number % media::kGroupLines == 0) entry.state |= media::kEntrySpill;
      }
      adopt_entry(number);
      pen_.write_entry(number, entry);
    }
  }
}

template <PoolEnv Env>
void Owner<Env>::note_version(u64 version) {
  const u32 epoch = static_cast<u32>(version >> 40);
  if (epoch != scanned_epoch_ || !scanned_highest_) {
    scanned_epoch_ = epoch;
    scanned_highest_ = &scanned_version_[epoch];
  }
  *scanned_highest_ = std::max(*scanned_highest_, version);
}

// Takes what the former owner knew of an entry into the mirror; graces start anew.
template <PoolEnv Env>
void Owner<Env>::adopt_entry(u32 number) {
  media::Entry &entry = index_.entry(number);
  const auto state = entry.entry_state();
  if (state == media::EntryState::kPending) {
    pendings_.push_back(number);
  } else if (state != media::EntryState::kEmpty) {
    const u64 address = entry.locator() * media::kLocatorUnit;
    note_version(entry.version);
    const SpaceMap::Spot spot = space_.locate(address);
    if (!spot || !space_.attach(spot, number)) {
      env_.mark("scan_entry_refused");
      const u8 spill = entry.state & media::kEntrySpill;
      entry = media::Entry{};
      entry.state = static_cast<u8>(static_cast<u8>(media::EntryState::kEmpty) | spill);
      ++stats_.unreadable_entries;
    } else if (state == media::EntryState::kPublished) {
      const u32 ns = entry.ns < ns_.size() ? entry.ns : 0;
      const bool cleared = entry.version <= ns_[ns].clear_version;
      index_.link(number, cleared ? kClearedList : ns);
      ns_bytes_[ns] += entry_bytes(entry);
    } else if (env_.mutant(Mutant::kAdoptDropsHidden)) {
      space_.detach(spot);
      entry = media::Entry{};
      entry.state = static_cast<u8>(media::EntryState::kEmpty);
    } else {
      grace_.push_back({env_.now_ns() + u64{geo_.grace_us} * 1000, number, index_.stamp(number)});
      grace_bytes_ += entry_bytes(entry);
    }
  }
  index_.retag(number);
}

}  // namespace kvpool::pool
