// SPDX-License-Identifier: Apache-2.0
// The scan of a take-over (proto 7): every line of the base area is read from the medium, verified,
// taken into the mirror and copied forward into the own area. Entries are nearly all of it and are
// scanned in parts, a thread each where the environment has threads.
#pragma once

namespace kvpool::pool {

inline constexpr u64 kScanWindow = 512;            // lines that share a pair of fences
inline constexpr u32 kScanBlock = 64;              // of them, worked on while they are near
inline constexpr u32 kScanNear = 2 * kScanBlock;
inline constexpr u32 kScanAhead = 16;              // entries fetched ahead of the one in hand
inline constexpr u64 kScanPartLines = 128 * 1024;  // not worth a thread below
inline constexpr u8 kFoundLongRun = 0xFF;          // no size class: a block of several extents

template <PoolEnv Env>
int Owner<Env>::scan(const ClaimView &base, u64 index_groups, bool in_parts) {
  const PoolOffset area = geo_.area_at(base.active_slot, base.active.area);
  const u32 epoch = base.highest_active;
  if (base.active.index_groups == 0 || base.active.index_groups > geo_.index_groups_max) {
    return -EUCLEAN;
  }
  if (index_groups == 0) index_groups = base.active.index_groups;
  grace_.clear();
  grace_pinned_.clear();
  pins_.clear();
  taints_.clear();
  pendings_.clear();
  grace_bytes_ = version_number_ = 0;
  run_first_ = run_length_ = 0;
  base_version_ = media::make_version(epoch, 0);
  emptied_version_ = 0;
  unread_.clear();
  if (int err = scan_regions(area, epoch)) return err;
  scan_namespaces(area, epoch);
  index_.reset(index_groups, static_cast<u32>(ns_.size()),
               [this] { renew_while_scanning(); });
  scan_map(area, epoch);
  find_in_unread(area, epoch, base.active.index_groups * media::kGroupLines);
  repair_runs();
  classify_unread();
  if (index_groups != base.active.index_groups) {
    return scan_into_larger(area, epoch, base.active.index_groups);
  }
  if (!scan_entries(area, epoch, in_parts)) return scan(base, index_groups, false);
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
  load_lines(mem, from, lines, ret_lines, ret_good);
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
  base_extents_ = regions.extent_count();
  // The base is the area that it was planned for: nobody else decided anything since.
  if (resize_ && resize_->ready && resize_->now == base_epoch) {
    regions = resize_->table;
    media::encode_regions(regions, lines);
    env_.mark("regions_changed");
  }
  if (!reach_regions(env_, geo_, regions)) return -EFBIG;
  space_.reset(regions);
  for (u32 i = 0; i < media::kRegionTableLines; ++i) {
    pen_.write_line(geo_.region_line(pen_.area(), i), lines[i]);
  }
  return 0;
}

// Whether a line of the namespace table is whole, or was made whole from the spare line (proto 8).
// That is looked at after the line: an owner that was outbid may store the line just now, and its
// copy came to the spare line only since the scan began. By then it may be another's; then this
// store is over, and the line is looked at again.
template <PoolEnv Env>
bool Owner<Env>::whole_ns(Line &line, bool good, u32 id, PoolOffset base, u32 base_epoch) {
  const PoolOffset at = geo_.ns_line(base, id);
  const PoolOffset spare_at = geo_.ns_line(base, geo_.ns_spare());
  for (int look = 0;; ++look) {
    if (good && claims_.sealer().intact(line, at, base_epoch)) return true;
    if (look == kTornRetries) return false;
    Line spare;
    load_window(spare_at, 1, &spare, &good);
    if (good && claims_.sealer().intact(spare, at, base_epoch)) {
      env_.mark("scan_ns_from_spare");
      line = spare;
      return true;
    }
    load_window(at, 1, &line, &good);
  }
}

template <PoolEnv Env>
void Owner<Env>::scan_namespaces(PoolOffset base, u32 base_epoch) {
  ns_.assign(geo_.namespace_lines, media::NamespaceLine{});
  ns_bytes_.assign(geo_.namespace_lines, 0);
  std::vector<Line> lines(kScanWindow);
  const auto good = std::make_unique<bool[]>(kScanWindow);
  for (u32 first = 0; first < geo_.namespace_lines; first += kScanWindow) {
    const u32 n = std::min<u32>(kScanWindow, geo_.namespace_lines - first);
    load_window(geo_.ns_line(base, first), n, lines.data(), good.get());
    for (u32 i = 0; i < n; ++i) {
      const u32 id = first + i;
      if (id == geo_.ns_spare()) {
        ns_[id].flags = media::kNsEmpty;
      } else if (whole_ns(lines[i], good[i], id, base, base_epoch)) {
        ns_[id] = media::from_line<media::NamespaceLine>(lines[i]);
      } else {
        env_.mark("scan_ns_unreadable");
        ns_[id].flags = 0;  // not empty: what stands behind it must still be found
      }
      pen_.fill_ns(id, ns_[id]);
    }
  }
  // Line 0 is no namespace's: see note_before_emptying().
  if (ns_[0].clear_version >> 40 == base_epoch) {
    base_version_ = std::max(base_version_, ns_[0].clear_version);
  }
}

template <PoolEnv Env>
void Owner<Env>::scan_map(PoolOffset base, u32 base_epoch) {
  auto &mem = env_.memory();
  constexpr u32 kWindow = kScanWindow * media::kMapRecordsPerLine;
  for (u32 first = 0; first < base_extents_; first += kWindow) {
    const u32 end = std::min(base_extents_, first + kWindow);
    mem.acquire(geo_.map_word(base, first), u64{end - first} * sizeof(u64));
    renew_while_scanning();
    for (u32 i = first; i < end; ++i) {
      const PoolOffset at = geo_.map_word(base, i);
      media::MapRecord record{media::kHolderFormer, 0, media::kClassNone, 0, 0};
      u64 word = 0;
      const bool good = mem.load_word(at, word) &&
                        claims_.sealer().unpack_map(word, at, base_epoch, record);
      const bool nobody =
          record.holder >= geo_.member_count() && record.holder < media::kHolderFormer;
      if (!good || nobody) {
        env_.mark("scan_map_unreadable");
        unread_.push_back(i);
        ++stats_.unreadable_map_words;
        record = {media::kHolderFormer, 0, media::kClassNone, 0, 0};
      }
      if (record.flags & media::kMapTainted) note_taint(record.ns);
      if (moves_control() && record.holder < geo_.member_count()) {
        env_.mark("holder_of_other_lines");
        record.holder = media::kHolderFormer;
        record.tag = 0;
      }
      space_.set_record(i, record);
      pen_.write_map(i, record);
    }
  }
  if (env_.mutant(Mutant::kGrownWordsForgotten)) return;
  for (u32 x = base_extents_; x < space_.count(); ++x) pen_.write_map(x, space_.at(x).record);
}

// A crash between the words of a run that was granted leaves tails without a head: they are free
// (proto 8). One between the words of a run that was given back leaves tails of the owner behind a
// member's head: they stay with it, for the member may write the whole run. A word that could not
// be read is taken for the run's that stands before it, or for the head of the tails behind it;
// where the head may be another one these tails wait as it does.
template <PoolEnv Env>
void Owner<Env>::repair_runs() {
  bool in_run = false, former = false;
  u32 first = 0;
  media::MapRecord head{};
  for (u32 x = 0; x < space_.count(); ++x) {
    if (media::MapRecord part; in_unread_run(x, in_run ? &head : nullptr, first, part)) {
      env_.mark("run_word_restored");
      set_map(x, part);
    }
    const media::MapRecord record = space_.at(x).record;
    if (record.holder == media::kHolderFormer) {
      in_run = false;
      former = true;
    } else if (record.flags & media::kMapRunHead) {
      in_run = true;
      former = false;
      head = record;
      first = x;
    } else if (record.flags & media::kMapRunTail) {
      if (in_run && record.holder == head.holder) continue;
      if (in_run && record.holder == media::kHolderOwner &&
          !env_.mutant(Mutant::kReleasedTailsFree)) {
        env_.mark("run_release_cut_short");
        media::MapRecord again = record;
        again.holder = head.holder;
        again.tag = head.tag;
        set_map(x, again);
        continue;
      }
      env_.mark("run_tail_repaired");
      const u8 waits = former ? media::kHolderFormer : media::kHolderOwner;
      media::MapRecord alone{waits, 0, media::kClassNone, 0, 0};
      add_taint(alone, record);
      set_map(x, alone);
      in_run = false;
    } else {
      in_run = former = false;
    }
  }
}

template <PoolEnv Env>
bool Owner<Env>::unread(u32 extent) const {
  return std::binary_search(unread_.begin(), unread_.end(), extent);
}

// Whether an entry says what stands in extent x, whose word could not be read, and no other entry
// contradicts it.
template <PoolEnv Env>
bool Owner<Env>::told_by_entries(u32 x) const {
  const auto found = found_in_unread_.find(x);
  return found != found_in_unread_.end() && found->second != media::kClassNone;
}

// Whether extent x, whose word could not be read, is taken for a part of a run: of the one that is
// in progress there (null: none), from `first` on, or of the one that goes on behind x. What else
// the word said is not known, so the part is tainted. Where a block begins no run goes on.
template <PoolEnv Env>
bool Owner<Env>::in_unread_run(u32 x, const media::MapRecord *before, u32 first,
                               media::MapRecord &ret) const {
  if (!unread(x) || x >= space_.regions().extents_in_use()) return false;
  if (told_by_entries(x)) before = nullptr;
  media::MapRecord part{};
  const bool tail_behind = x + 1 < space_.count() && !unread(x + 1) &&
                           (space_.at(x + 1).record.flags & media::kMapRunTail);
  if (tail_behind) part = space_.at(x + 1).record;
  const bool same = before && part.holder == before->holder && part.tag == before->tag;
  if (before && (!tail_behind || same) && space_.regions().one_region(first, x + 1 - first)) {
    part = *before;
    part.flags = media::kMapRunTail | media::kMapTainted;
  } else if (tail_behind && (x == 0 || !unread(x - 1) || told_by_entries(x))) {
    part.flags = media::kMapRunHead | media::kMapTainted;
  } else {
    return false;
  }
  part.ns = 0;
  ret = part;
  return true;
}

// proto 14: a word that cannot be read does not say what its extent is cut into. The entries of
// blocks that begin there do. Where two of them contradict each other nothing is believed; nor is
// one that needs more than the one extent, but for that no other run goes on there.
template <PoolEnv Env>
void Owner<Env>::find_in_unread(PoolOffset base, u32 base_epoch, u64 entries) {
  found_in_unread_.clear();
  if (unread_.empty()) return;
  const u64 extent_bytes = space_.regions().extent_bytes();
  std::vector<Line> lines(kScanWindow);
  const auto good = std::make_unique<bool[]>(kScanWindow);
  for (u64 at = 0; at < entries; at += kScanWindow) {
    const u64 n = std::min<u64>(kScanWindow, entries - at);
    load_window(geo_.entry_line(base, at), n, lines.data(), good.get());
    if (!renew_while_scanning()) return;  // dead: take_over() sees it
    for (u64 i = 0; i < n; ++i) {
      const PoolOffset place = geo_.entry_line(base, at + i);
      if (!good[i] || !claims_.sealer().intact(lines[i], place, base_epoch)) {
        load_window(place, 1, &lines[i], &good[i]);  // torn while it was read? once more
        if (!good[i] || !claims_.sealer().intact(lines[i], place, base_epoch)) continue;
      }
      const media::EntryView entry(lines[i]);
      const bool block = entry.state() > media::EntryState::kPending &&
                         entry.state() <= media::EntryState::kHidden;
      if (!block) continue;
      const u32 x = space_.regions().extent_of(entry.locator() * media::kLocatorUnit);
      if (x >= space_.count() || !unread(x)) continue;
      const media::BlockShape shape(media::payload_lines_of(entry.length()),
                                    media::shards_of(entry.length()));
      if (!shape.valid()) continue;
      const u8 its = shape.block_bytes() > extent_bytes
                         ? kFoundLongRun
                         : static_cast<u8>(media::class_for(shape.block_bytes(), extent_bytes));
      const auto [known, fresh] = found_in_unread_.try_emplace(x, its);
      if (!fresh && known->second != its) known->second = media::kClassNone;
    }
  }
}

// The blocks that were found stay; what none of them names waits in quarantine.
template <PoolEnv Env>
void Owner<Env>::classify_unread() {
  for (const auto &[x, size_class] : found_in_unread_) {
    media::MapRecord record = space_.at(x).record;
    const bool open =
        record.holder == media::kHolderFormer && record.size_class == media::kClassNone;
    if (!open || size_class == media::kClassNone || size_class == kFoundLongRun) continue;
    env_.mark("map_word_by_entries");
    record.size_class = size_class;
    if (size_class == media::kClassRun) record.flags |= media::kMapRunHead;
    set_map(x, record);
  }
}

// After the entries were scanned. A run that the owner holds is no longer than its block needs:
// what was taken for a part of it waits like any extent whose word could not be read. One without a
// block, whose entry was lost, is free.
template <PoolEnv Env>
void Owner<Env>::settle_runs() {
  for (u32 x = 0; x < space_.count(); ++x) {
    const media::MapRecord head = space_.at(x).record;
    if (!(head.flags & media::kMapRunHead) || head.holder != media::kHolderOwner) continue;
    if (space_.at(x).used == 0) {
      env_.mark("run_without_entry");
      free_run(x);
      continue;
    }
    const media::Entry &e = index_.entry(space_.entry_at({x, 0}));
    const media::BlockShape shape(media::payload_lines_of(e.length), media::shards_of(e.length));
    const u64 needs = media::run_extents(shape.block_bytes(), space_.regions().extent_bytes());
    for (u32 i = space_.run_length(x); i-- > needs;) {
      set_map(x + i, {media::kHolderFormer, 0, media::kClassNone, 0, 0});
    }
  }
}

// A share of the index: consecutive groups, scanned by one thread, told to the owner by merge().
template <PoolEnv Env>
class Owner<Env>::EntryScan {
public:
  // Lines [first, end) of the base area. `renews`: run() is called by the owner's own thread.
  EntryScan(Owner &owner, PoolOffset base, u32 base_epoch, u64 first, u64 end, bool renews)
      : owner_(owner), base_(base), base_epoch_(base_epoch), first_(first), end_(end),
        renews_(renews),
        pen_(owner.env_, owner.geo_, owner.claims_.sealer()), chains_(owner.ns_.size()),
        ns_bytes_(owner.ns_.size()), lines_(kScanNear), spots_(kScanNear), seals_(kScanNear) {
    pen_.open(owner.pen_.area(), owner.epoch_);
  }

  // Every entry keeps its number.
  void run() {
    each_block([this](u64 at, const Block &block) {
      for (u32 k = 0; k < block.count; ++k) {
        const u32 i = block.of_use[k];
        adopt(static_cast<u32>(at + i), i);
      }
      for (u32 i = block.first; i < block.end; i += media::kGroupLines) {
        write_group(at + i, i);
      }
      return true;
    });
    if (!owner_.env_.mutant(Mutant::kActivateBeforeDrain)) pen_.drain_strict();
  }
  // Every entry goes where its key belongs in a mirror of another size; the medium is not written.
  // False when one finds no room.
  bool move() {
    moves_ = true;
    bool fits = true;
    each_block([this, &fits](u64, const Block &block) {
      for (u32 k = 0; k < block.count && fits; ++k) fits = move_one(block.of_use[k]);
      return fits;
    });
    return fits;
  }

  // In the order of the parts, by the owner's thread.
  void merge() {
    for (u32 ns = 0; ns < chains_.size(); ++ns) {
      owner_.index_.join(ns, chains_[ns]);
      owner_.ns_bytes_[ns] += ns_bytes_[ns];
    }
    for (const Grace &g : graces_) {
      owner_.grace_.push_back(g);
      owner_.grace_bytes_ += owner_.entry_bytes(owner_.index_.entry(g.entry));
    }
    for (u32 number : pendings_) owner_.pendings_.push_back({number, kNever});
    owner_.base_version_ = std::max(owner_.base_version_, version_);
    owner_.stats_.unreadable_entries += unreadable_;
  }
  // After all parts were told: what only entries of several groups, or several lines, say together.
  void settle() {
    say_spills();
    for (const auto &[a, b] : twins_) owner_.hide_twin(a, b);
  }
  u64 attached() const { return attached_; }

private:
  // Some lines of a window: those that adopt() has to see, so that nothing that follows asks of
  // each line, and guesses wrong, whether it is empty.
  struct Block {
    u32 first = 0, end = 0, count = 0;
    u16 of_use[kScanBlock];
  };

  // While a window is worked on, the next one is flushed; while a block of it is, what the next
  // block will touch comes nearer. Ends early where `work` says false.
  template <class Work>
  void each_block(Work &&work) {
    auto &mem = owner_.env_.memory();
    begin(first_);
    mem.end_wave();
    for (u64 at = first_; at < end_; at += kScanWindow) {
      const u32 n = static_cast<u32>(std::min(kScanWindow, end_ - at));
      prefetch_far_lines(mem, base_line(at), std::min(kScanBlock, n));
      begin(at + n);
      Block blocks[2];
      bool go_on = true;
      u32 turn = 0;
      for (u32 first = 0; first < n && go_on; first += kScanBlock, turn ^= 1) {
        blocks[turn].first = first;
        blocks[turn].end = std::min(first + kScanBlock, n);
        load(at, n, blocks[turn]);
        if (first > 0) go_on = work(at, blocks[turn ^ 1]);
      }
      go_on = go_on && work(at, blocks[turn ^ 1]);
      mem.end_wave();
      if (!go_on) break;
      if (renews_ && !owner_.renew_while_scanning()) break;  // dead: take_over() sees it
    }
  }
  void load(u64 at, u32 n, Block &block) {
    auto &mem = owner_.env_.memory();
    if (block.end < n) {
      prefetch_far_lines(mem, base_line(at + block.end), std::min(kScanBlock, n - block.end));
    }
    load_lines(mem, base_line(at + block.first), block.end - block.first, &line(block.first),
               &good(block.first));
    verify(at, block);
    const bool skips = moves_ || owner_.index_.blank();  // lines that are empty, and do not spill
    block.count = 0;
    for (u32 i = block.first; i < block.end; ++i) {
      block.of_use[block.count] = static_cast<u16>(i);
      block.count += !(skips && IndexMirror::plain(line(i)));
    }
    for (u32 k = 0; k < block.count; ++k) {
      const u32 i = block.of_use[k];
      locate(i);
      if (!moves_) reach(at + i, i);
    }
  }
  // Of a window only the block in hand and the one behind it are kept: they fit the nearest cache.
  Line &line(u32 i) { return lines_[i % kScanNear]; }
  bool &good(u32 i) { return good_[i % kScanNear]; }
  SpaceMap::Spot &spot(u32 i) { return spots_[i % kScanNear]; }
  // That of the line in the new area; kNotSealed where it was changed since it was verified.
  u32 &seal(u32 i) { return seals_[i % kScanNear]; }
  PoolOffset base_line(u64 number) const { return owner_.geo_.entry_line(base_, number); }

  void begin(u64 at) {
    auto &mem = owner_.env_.memory();
    mem.begin_wave();
    if (at >= end_ || owner_.env_.mutant(Mutant::kScanWithoutAcquire)) return;
    const PoolOffset from = base_line(at);
    flush_groups(mem, &from, 1, std::min(kScanWindow, end_ - at));
  }

  // Unreadable lines become empty ones. What stood there is dropped; its block stays out of use
  // until all reports are in, as every block does.
  void verify(u64 at, const Block &block) {
    const media::Sealer &sealer = owner_.claims_.sealer();
    for (u32 group = block.first; group < block.end; group += media::kGroupLines) {
      const PoolOffset next = owner_.geo_.entry_line(pen_.area(), at + group);
      const u32 mask = sealer.intact4(&line(group), base_line(at + group), base_epoch_, next,
                                      pen_.epoch(), &seal(group));
      if (mask == 15 && good(group) && good(group + 1) && good(group + 2) && good(group + 3)) {
        continue;
      }
      for (u32 i = group; i < group + media::kGroupLines; ++i) {
        if (good(i) && (mask >> (i - group) & 1)) continue;
        seal(i) = kNotSealed;
        const PoolOffset place = base_line(at + i);
        owner_.load_window(place, 1, &line(i), &good(i));  // torn while it was read? once more
        if (good(i) && sealer.intact(line(i), place, base_epoch_)) continue;
        owner_.env_.mark("scan_entry_unreadable");
        ++unreadable_;
        set_empty(i, i == group);
      }
    }
  }
  void set_empty(u32 i, bool spill) {
    media::Entry entry{};
    entry.state = static_cast<u8>(media::EntryState::kEmpty);
    if (spill) entry.state |= media::kEntrySpill;
    line(i) = media::to_line(entry);
    seal(i) = kNotSealed;
  }
  void write_group(u64 first, u32 i) {
    const u32 *seals = &seal(i);
    static_assert(media::kGroupLines == 4);
    if (seals[0] != kNotSealed && seals[1] != kNotSealed && seals[2] != kNotSealed &&
        seals[3] != kNotSealed) [[likely]] {
      pen_.write_group(first, &line(i), seals);
    } else {
      pen_.write_group(first, &line(i));
    }
  }

  static bool has_block(media::EntryState state) {
    return state != media::EntryState::kEmpty && state != media::EntryState::kPending;
  }
  // Whether an owner can have written it, whatever its check says.
  bool possible(const media::EntryView &entry) const {
    const media::EntryState state = entry.state();
    if (state < media::EntryState::kEmpty || state > media::EntryState::kHidden) return false;
    return !has_block(state) || (entry.ns() != 0 && entry.ns() < owner_.ns_.size());
  }
  void locate(u32 i) {
    const media::EntryView entry(line(i));
    spot(i) = {};
    if (!has_block(entry.state())) return;
    spot(i) = owner_.space_.locate(entry.locator() * media::kLocatorUnit);
  }
  // Brings nearer what adopt() of a block will touch.
  void reach(u64 number, u32 i) {
    if (!spot(i)) return;
    owner_.space_.prefetch_spot(spot(i));
    owner_.index_.prefetch_place(number);
  }

  // Whether the block has the room it says: a run may have lost its end to an unreadable word.
  bool whole(const media::EntryView &entry, SpaceMap::Spot spot) const {
    if (owner_.space_.at(spot.extent).record.size_class != media::kClassRun) return true;
    const media::BlockShape shape(media::payload_lines_of(entry.length()),
                                  media::shards_of(entry.length()));
    return shape.valid() && shape.block_bytes() <= owner_.room_in(spot.extent);
  }

  // Takes what the former owner knew of an entry into the mirror; graces start anew.
  void adopt(u32 number, u32 i) {
    const media::EntryView entry(line(i));  // of what stands there now
    if (!possible(entry)) refuse(i);
    const media::EntryState state = entry.state();
    const u32 ns = entry.ns();
    const u64 version = entry.version();
    bool attached = false;
    if (has_block(state)) {
      note_version(version);
      attached = spot(i) && whole(entry, spot(i)) &&
                 owner_.space_.attach_shared(spot(i), number);
      attached_ += attached;
      if (!attached) {
        refuse(i);
      } else if (state != media::EntryState::kPublished &&
                 owner_.env_.mutant(Mutant::kAdoptDropsHidden)) {
        owner_.space_.detach(spot(i));
        attached = false;
        --attached_;
        set_empty(i, false);
      }
    }
    owner_.index_.place(number, line(i));
    if (entry.state() != media::EntryState::kEmpty) note_spill(number, i);
    if (!moves_ && IndexMirror::counts(entry.state())) note_twins(number, i);
    if (state == media::EntryState::kPending) pendings_.push_back(number);
    if (!attached) return;
    if (state == media::EntryState::kPublished) {
      const bool cleared = version <= owner_.ns_[ns].clear_version;
      const u32 list = cleared ? kClearedList : ns;
      owner_.index_.chain(number, list, chains_[list]);
      if (!cleared) ns_bytes_[ns] += owner_.room_in(spot(i).extent);
    } else {
      graces_.push_back({owner_.env_.now_ns() + u64{owner_.geo_.grace_us} * 1000, number,
                         owner_.index_.stamp(number)});
    }
  }
  bool move_one(u32 i) {
    const media::EntryView entry(line(i));
    if (!possible(entry)) refuse(i);
    if (entry.state() == media::EntryState::kEmpty) return true;
    const IndexMirror::Found found = owner_.index_.find(line(i).w);
    const bool first = found.free_first != kNoEntry;
    const u32 number = first ? found.free_first : found.free_second;
    if (number == kNoEntry) return false;
    if (IndexMirror::counts(entry.state())) {
      if (found.visible != kNoEntry) twins_.emplace_back(found.visible, number);
      if (found.draining != kNoEntry) twins_.emplace_back(found.draining, number);
    }
    line(i).w[7] &= ~(u64{media::kEntrySpill} << 8);  // was said of another group
    seal(i) = kNotSealed;
    adopt(number, i);
    return true;
  }
  // What no owner wrote, or stands on a block that is another entry's.
  void refuse(u32 i) {
    owner_.env_.mark("scan_entry_refused");
    ++unreadable_;
    set_empty(i, media::EntryView(line(i)).spill());
  }

  // An owner that was outbid may have set a flag and inserted behind it after the scan had passed
  // the first group and before it came to the second: such an entry would be there and never be
  // found. So the entries that were found say which groups spill, not their flags alone.
  void say_spills() {
    for (std::size_t i = 0; i < spilled_.size(); ++i) {
      if (i + kScanAhead < spilled_.size()) {
        const Spilled &later = spilled_[i + kScanAhead];
        owner_.index_.prefetch_flag(later.first_group);
        owner_.index_.prefetch_flag(later.number / media::kGroupLines);
      }
      const auto [first, number] = spilled_[i];
      const u32 twin = owner_.index_.same_key_in(first, number);
      if (twin != kNoEntry) twins_.emplace_back(twin, number);
      if (owner_.index_.spills(first)) continue;
      owner_.index_.set_spill(first);
      if (moves_) continue;  // the whole index is still to be written
      owner_.env_.mark("scan_spill_said_anew");
      const u32 head = static_cast<u32>(first * media::kGroupLines);
      owner_.pen_.write_entry(head, owner_.index_.as_written(head));
    }
  }
  void note_spill(u32 number, u32 i) {
    const u64 first = media::first_group(line(i).w, owner_.index_.groups());
    if (number / media::kGroupLines == first) return;
    const Mutant forgets = moves_ ? Mutant::kGrowthForgetsSpill : Mutant::kScanCopiesSpill;
    if (!owner_.env_.mutant(forgets)) spilled_.push_back({first, number});
  }
  // Other lines of the group that have the key as well.
  void note_twins(u32 number, u32 i) {
    for (u32 j = i - i % media::kGroupLines; j < i; ++j) {
      const media::EntryState state = media::EntryView(line(j)).state();
      if (line(j).w[0] != line(i).w[0] || !IndexMirror::counts(state)) continue;
      if (std::memcmp(line(j).w, line(i).w, sizeof(media::Entry::key)) != 0) continue;
      twins_.emplace_back(number - (i - j), number);
    }
  }

  void note_version(u64 version) {
    if (version >> 40 == base_epoch_) version_ = std::max(version_, version);
  }

  Owner &owner_;
  const PoolOffset base_;
  const u32 base_epoch_;
  const u64 first_, end_;
  const bool renews_;
  AreaWriter<Env> pen_;
  std::vector<IndexMirror::Chain> chains_;  // by namespace
  std::vector<u64> ns_bytes_;
  std::vector<Grace> graces_;
  std::vector<u32> pendings_;
  struct Spilled {
    u64 first_group;
    u32 number;
  };
  std::vector<Spilled> spilled_;  // entries that stand in their second group
  std::vector<std::pair<u32, u32>> twins_;  // entries of one key
  bool moves_ = false;
  u64 version_ = 0;  // highest of the owner that filled the base area
  u64 unreadable_ = 0;
  u64 attached_ = 0;  // blocks
  std::vector<Line> lines_;
  std::vector<SpaceMap::Spot> spots_;
  static constexpr u32 kNotSealed = 0;  // one in 2^32 lines has this seal: it is sealed anew
  std::vector<u32> seals_;
  bool good_[kScanNear]{};
};

// A scan may take longer than a lease, and nobody outbids a claim whose heartbeat moves.
template <PoolEnv Env>
bool Owner<Env>::renew_while_scanning() {
  const u64 now = env_.now_ns();
  if (now - last_renew_ns_ < std::min(u64{geo_.lease_ms} * kMs / 10, 2 * kBeatNs)) return true;
  last_renew_ns_ = now;
  return member_.renew();
}

// False when entries of different parts stand on one block, and which of them has it is not known.
template <PoolEnv Env>
bool Owner<Env>::scan_entries(PoolOffset base, u32 base_epoch, bool in_parts) {
  const u64 groups = index_.groups();
  constexpr bool threads = requires { env_.scan_threads(); };
  u64 count = 2;  // without threads too: joining parts is part of what is simulated
  if constexpr (threads) {
    count = std::clamp<u64>(index_.count() / kScanPartLines, 1, env_.scan_threads());
  }
  count = in_parts ? std::min(count, groups) : 1;
  space_.open_blocks();
  std::vector<EntryScan> parts;
  parts.reserve(count);
  for (u64 p = 0; p < count; ++p) {
    const u64 first = groups * p / count * media::kGroupLines;
    const u64 end = groups * (p + 1) / count * media::kGroupLines;
    parts.emplace_back(*this, base, base_epoch, first, end, !threads || p == 0);
  }
  if constexpr (requires { env_.in_parallel(u32{}, [](u32) {}); }) {
    env_.in_parallel(static_cast<u32>(count), [&](u32 p) { parts[p].run(); });
  } else {
    for (EntryScan &part : parts) part.run();
  }
  u64 attached = 0;
  for (const EntryScan &part : parts) attached += part.attached();
  if (space_.count_blocks() != attached) return false;
  for (EntryScan &part : parts) part.merge();
  index_.scanned();
  for (EntryScan &part : parts) part.settle();
  settle_runs();
  return true;
}

// An owner that was outbid may have let an entry go after the scan had passed it, and published its
// key again in a line that the scan came to later. One entry of a key may be visible, or revived:
// the other one would stay when it is removed. The later publication stays.
template <PoolEnv Env>
void Owner<Env>::hide_twin(u32 a, u32 b) {
  const media::EntryState of_a = index_.entry(a).entry_state(),
                          of_b = index_.entry(b).entry_state();
  if (!IndexMirror::counts(of_a) || !IndexMirror::counts(of_b)) return;  // a third one stays
  if (env_.mutant(Mutant::kTwinsKept)) return;
  env_.mark("scan_twin_hidden");
  const bool pending = of_a == media::EntryState::kPending;
  const bool older = index_.entry(a).version < index_.entry(b).version;
  const u32 n = pending || (of_b != media::EntryState::kPending && older) ? a : b;
  media::Entry &e = index_.entry(n);
  if (e.entry_state() == media::EntryState::kPending) {
    forget_pending(n);
    return clear_entry(n);
  }
  if (index_.linked(n)) {
    if (index_.list_of(n) != kClearedList) ns_bytes_[e.ns] -= entry_bytes(e);
    index_.unlink(n);
    grace_.push_back({env_.now_ns() + u64{geo_.grace_us} * 1000, n, index_.stamp(n)});
    grace_bytes_ += entry_bytes(e);
  }
  index_.set_state(n, media::EntryState::kHidden);
  pen_.write_entry_state(n, e);
}

// The mirror, empty, has another size than the index it is filled from.
template <PoolEnv Env>
int Owner<Env>::scan_into_larger(PoolOffset base, u32 base_epoch, u64 base_groups) {
  space_.open_blocks();
  EntryScan part(*this, base, base_epoch, 0, base_groups * media::kGroupLines, true);
  const bool fits = part.move();
  space_.count_blocks();
  if (!fits) {
    env_.mark("index_growth_without_room");
    return -ENOSPC;
  }
  part.merge();
  index_.scanned();
  part.settle();
  settle_runs();
  write_index();
  env_.mark("index_grown");
  return 0;
}

template <PoolEnv Env>
void Owner<Env>::write_index() {
  Line lines[media::kGroupLines];
  for (u64 first = 0; first < index_.count(); first += media::kGroupLines) {
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      lines[i] = media::to_line(index_.as_written(static_cast<u32>(first + i)));
    }
    pen_.write_group(first, lines);
    if (first % (kScanWindow * media::kGroupLines) == 0 && !renew_while_scanning()) return;
  }
}

}  // namespace kvpool::pool
