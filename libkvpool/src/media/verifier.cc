// SPDX-License-Identifier: Apache-2.0
// The verifier. One object a run; each method judges one kind of structure and reports what is
// wrong with it. What is wrong is looked at again first (A1: a line may be caught in the middle of
// a store).
#include "media/verifier.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <vector>

#include "arch/check.hpp"
#include "media/index_hash.hpp"
#include "media/seal.hpp"

namespace kvpool::media {
namespace {

using ull = unsigned long long;
constexpr int kRereads = 8;

struct FindingInfo {
  const char *name;
  const char *text;
  Severity severity;
  Remedy remedy;
};
constexpr FindingInfo kFindingInfo[] = {
#define FINDING(name, printed, severity, remedy, text) \
  {printed, text, Severity::k##severity, Remedy::k##remedy},
#include "media/findings.def"
#undef FINDING
};

template <class T>
bool is_zero(const T &bytes) {
  static constexpr T kZero{};
  return std::memcmp(&bytes, &kZero, sizeof(T)) == 0;
}

bool visible(const Entry &e) {
  return e.entry_state() == EntryState::kPending || e.entry_state() == EntryState::kPublished;
}
bool has_block(const Entry &e) {
  return e.entry_state() >= EntryState::kPublished && e.entry_state() <= EntryState::kHidden;
}

// Findings that are not yet certain.
class HeldFindings final : public FindingSink {
public:
  void found(const FindingAt &finding) override { held_.push_back(finding); }
  void release_to(FindingSink &sink) {
    for (const FindingAt &finding : held_) sink.found(finding);
    held_.clear();
  }
  void drop() { held_.clear(); }

private:
  std::vector<FindingAt> held_;
};

// What a line turned out to be.
enum class Look : u8 { kIntact, kBlank, kBad };

class Verifier {
public:
  Verifier(LineReader &reader, const VerifyOptions &options, FindingSink &sink,
           VerifyReport &report)
      : reader_(reader), options_(options), sink_(&sink), report_(report) {}

  int run();

private:
  struct Group {
    Entry entry[kGroupLines];
    bool intact[kGroupLines];
  };
  struct BlockUse {
    u64 begin, end;  // pool address
    u64 entry;
  };

  __attribute__((format(printf, 4, 5))) void found(Finding finding, PoolOffset at,
                                                   const char *format, ...);
  template <class T>
  Look look(PoolOffset at, u32 epoch, T &ret);

  int open_store();
  void devices();
  void superblock_copies();
  void claims();
  void claim_copies(u32 slot);
  void hosts();
  void members();
  void member(u32 slot);
  void mailboxes();
  void message(PoolOffset at, Finding finding, u32 member, bool answer);
  void namespaces();
  bool spare_of(u32 id, NamespaceLine &ret_ns);
  void extent_map();
  void map_record(u32 extent, PoolOffset at, const MapRecord &record);
  void map_runs();
  void index();
  Group read_group(u64 group, bool report);
  void entry(u64 number, const Entry &e, const Group &group);
  void duplicates(u64 number, const Entry &e, const Group &group);
  bool entry_fields(u64 number, const Entry &e);
  bool fits_class(const Entry &e, const BlockShape &shape, u32 extent);
  void refresh_record(u32 extent);
  bool ns_known(u32 id);
  bool ns_known(const Entry &e);
  void entry_place(u64 number, const Entry &e, const BlockShape &shape);
  bool fits_run(const Entry &e, const BlockShape &shape, u32 extent);
  void overlaps();
  bool still_there(u64 number, const BlockUse &use);
  void checks();
  void block_checks(u64 number, const Entry &e);
  bool segment_payload(const BlockShape &shape, u64 address, u64 segment, u64 check);

  const Geometry &geo() const { return view_.superblock.geometry; }
  PoolOffset entry_at(u64 number) const { return geo().entry_line(area_, number); }
  u64 index_groups() const { return view_.active().index_groups; }

  LineReader &reader_;
  const VerifyOptions &options_;
  FindingSink *sink_;
  VerifyReport &report_;
  StoreView view_{};
  Sealer sealer_;
  PoolOffset area_;
  u32 epoch_ = 0;
  std::vector<MapRecord> map_;
  std::vector<bool> map_known_;
  std::vector<u8> ns_used_;  // 0: free, 1: used, 2: unknown, 3: removed
  std::vector<BlockUse> blocks_;
};

void Verifier::found(Finding finding, PoolOffset at, const char *format, ...) {
  const u64 n = ++report_.found[static_cast<u32>(finding)];
  if (n > options_.listed_of_a_kind) return;
  char buffer[600];  // a path may stand in it
  va_list args;
  va_start(args, format);
  std::vsnprintf(buffer, sizeof(buffer), format, args);
  va_end(args);
  sink_->found({finding, at, buffer});
}

template <class T>
Look Verifier::look(PoolOffset at, u32 epoch, T &ret) {
  Line line{};
  for (int i = 0; i < kRereads; ++i) {
    ++report_.lines_read;
    if (!reader_.inside(at) || !reader_.read_line(at, line)) return Look::kBad;
    if (sealer_.intact(line, at, epoch)) {
      std::memcpy(&ret, &line, sizeof(ret));
      return Look::kIntact;
    }
    if (is_zero(line)) return Look::kBlank;
  }
  return Look::kBad;
}

// ---- superblock and claims

int Verifier::open_store() {
  std::string why;
  SuperblockRead superblock{};
  report_.superblock_error = read_superblock(reader_, superblock, &why);
  if (report_.superblock_error != 0) {
    found(Finding::kSuperblock, PoolOffset(0, 0), "%s", why.c_str());
    return report_.superblock_error;
  }
  sealer_ = Sealer(superblock.geometry.uuid, superblock.geometry.nonce);
  const int err = read_view(reader_, superblock, view_, &why);
  devices();
  superblock_copies();
  claims();
  if (err != 0) {
    const bool regions = view_.active_known;
    found(regions ? Finding::kRegions : Finding::kNoActive,
          regions ? view_.area() : geo().claim_at(0, 0), "%s", why.c_str());
  }
  return 0;
}

// proto 14: what lay there is lost; the next owner drops it, and the rest goes on.
void Verifier::devices() {
  for (u32 d = 0; d < geo().device_count && geo().device_count > 1; ++d) {
    if (device_unreadable(reader_, d))
      found(Finding::kDeviceLost, PoolOffset(d, 0), "device %u", d);
  }
}

void Verifier::superblock_copies() {
  for (u32 copy = 0; copy < 2; ++copy) {
    if (view_.superblock.copy_intact[copy]) continue;
    if (geo().device_count > 1 && device_unreadable(reader_, copy)) continue;  // was said
    found(Finding::kSuperblockCopy, geo().identity_at(copy), "copy %u", copy);
  }
  if (view_.superblock.copies_differ) {
    found(Finding::kSuperblockCopies, geo().identity_at(1), "copy 0 is used");
  }
}

void Verifier::claim_copies(u32 slot) {
  ClaimLine copy[2] = {};
  const Look look0 = look(geo().claim_at(0, slot), 0, copy[0]);
  const Look look1 = look(geo().claim_at(1, slot), 0, copy[1]);
  if (look0 != Look::kIntact && look1 != Look::kIntact) {
    found(Finding::kClaimUnreadable, geo().claim_at(0, slot), "standby slot %u", slot);
  } else if (look0 != Look::kIntact || look1 != Look::kIntact) {
    const u32 bad = look0 != Look::kIntact ? 0 : 1;
    found(Finding::kClaimCopy, geo().claim_at(bad, slot), "standby slot %u, copy %u", slot, bad);
  } else if (copy[0].claimed != copy[1].claimed || copy[0].active != copy[1].active) {
    found(Finding::kClaimCopy, geo().claim_at(1, slot),
          "standby slot %u: claimed 0x%x and 0x%x, active 0x%x and 0x%x", slot, copy[0].claimed,
          copy[1].claimed, copy[0].active, copy[1].active);
  }
}

void Verifier::claims() {
  u32 highest = 0, second = 0, highest_slot = 0;
  for (u32 slot = 0; slot < geo().standby_count; ++slot) {
    claim_copies(slot);
    if (!view_.claim_readable[slot]) continue;
    const ClaimLine &c = view_.claim[slot];
    const PoolOffset at = geo().claim_at(0, slot);
    const char *bad = nullptr;
    if (c.active > c.claimed) bad = "active above claimed";
    if (c.claimed != 0 && epoch_slot(c.claimed) != slot) bad = "claimed epoch of another slot";
    if (c.active != 0 && epoch_slot(c.active) != slot) bad = "active epoch of another slot";
    if (c.area > 1) bad = "area is neither 0 nor 1";
    if (c.index_groups > geo().index_groups_max) bad = "index larger than its room";
    if (c.active != 0 && c.index_groups == 0) bad = "active area without an index";
    if (bad != nullptr) found(Finding::kClaimField, at, "standby slot %u: %s", slot, bad);
    const u32 counter = epoch_counter(std::max(c.claimed, c.active));
    if (counter > highest) {
      second = highest;
      highest = counter;
      highest_slot = slot;
    } else {
      second = std::max(second, counter);
    }
  }
  if (geo().standby_count > 1 && highest > second + kEpochJumpMax) {
    found(Finding::kClaimJump, geo().claim_at(0, highest_slot),
          "standby slot %u: counter %u, next %u", highest_slot, highest, second);
  }
}

// ---- hosts, members, mailboxes

void Verifier::hosts() {
  for (u32 host = 0; host < geo().host_count; ++host) {
    HostLine line{};
    const PoolOffset at = geo().host_at(host);
    const Look seen = look(at, 0, line);
    if (seen == Look::kBad) found(Finding::kHostLine, at, "host %u", host);
    if (seen == Look::kIntact && line.incarnation == 0) {
      found(Finding::kHostLine, at, "host %u: incarnation 0", host);
    }
  }
}

void Verifier::member(u32 slot) {
  MemberLine m{};
  const PoolOffset at = geo().member_at(slot);
  const Look seen = look(at, 0, m);
  if (seen == Look::kBad) found(Finding::kMemberLine, at, "member slot %u", slot);
  if (seen == Look::kIntact) {
    const char *bad = nullptr;
    const auto state = static_cast<MemberState>(m.state);
    if (m.incarnation == 0) bad = "incarnation 0";
    if (state != MemberState::kJoined && state != MemberState::kLeft) bad = "unknown state";
    if (m.host != geo().host_of(slot)) bad = "of another host";
    if (m.standby_slot != kNoStandby && m.standby_slot >= geo().standby_count) {
      bad = "unknown standby slot";
    }
    if (bad != nullptr) found(Finding::kMemberLine, at, "member slot %u: %s", slot, bad);
    if (state == MemberState::kJoined) ++report_.members_joined;
  }
  ReaperLine r{};
  const PoolOffset reaper = geo().reaper_at(slot);
  const Look reaped = look(reaper, 0, r);
  const bool known = r.state >= static_cast<u8>(ReaperState::kNone) &&
                     r.state <= static_cast<u8>(ReaperState::kQuiet);
  if (reaped == Look::kBad || (reaped == Look::kIntact && !known)) {
    found(Finding::kReaperLine, reaper, "member slot %u", slot);
  }
}

void Verifier::members() {
  for (u32 slot = 0; slot < geo().member_count(); ++slot) member(slot);
}

void Verifier::message(PoolOffset at, Finding finding, u32 member, bool answer) {
  Message m{};
  const Look seen = look(at, 0, m);
  if (seen == Look::kBlank) return;
  const char *bad = nullptr;
  if (seen == Look::kBad) {
    bad = "does not verify";
  } else if (m.type < static_cast<u8>(MessageType::kNop) ||
             m.type > static_cast<u8>(MessageType::kAbort)) {
    bad = "unknown type";
  } else if (m.lines == 0 || m.lines > kMessageLinesMax || m.index >= m.lines) {
    bad = "impossible number of lines";
  } else if (answer ? m.status == 0 || m.status > static_cast<u8>(MessageStatus::kQuota)
                    : m.status != 0) {
    bad = "unknown status";
  }
  if (bad != nullptr) found(finding, at, "member slot %u: %s", member, bad);
}

void Verifier::mailboxes() {
  for (u32 m = 0; m < geo().member_count(); ++m) {
    for (u32 i = 0; i < geo().request_lines; ++i) {
      message(geo().request_line(m, i), Finding::kRequestLine, m, false);
    }
    for (u32 s = 0; s < geo().standby_count; ++s) {
      for (u32 i = 0; i < geo().response_slots * kResponseSlotLines; ++i) {
        message(geo().response_line(m, s, 0, i), Finding::kResponseLine, m, true);
      }
      NoticeLine notice{};
      const PoolOffset at = geo().notice_at(m, s);
      if (look(at, 0, notice) == Look::kBad) {
        found(Finding::kNoticeLine, at, "member slot %u, standby slot %u", m, s);
      }
    }
  }
}

// ---- namespaces and extent map

// What an owner's crash left in part stands whole in the spare line, sealed for its own place.
bool Verifier::spare_of(u32 id, NamespaceLine &ret_ns) {
  Line line{};
  const PoolOffset at = geo().ns_line(area_, geo().ns_spare());
  ++report_.lines_read;
  if (!reader_.inside(at) || !reader_.read_line(at, line)) return false;
  if (!sealer_.intact(line, geo().ns_line(area_, id), epoch_)) return false;
  ret_ns = from_line<NamespaceLine>(line);
  return true;
}

void Verifier::namespaces() {
  struct Name {
    u8 fingerprint[16];
    u32 id;
  };
  std::vector<Name> names;
  ns_used_.assign(geo().namespace_lines, 0);
  for (u32 id = 1; id <= geo().namespaces_max(); ++id) {
    NamespaceLine ns{};
    const PoolOffset at = geo().ns_line(area_, id);
    if (look(at, epoch_, ns) != Look::kIntact) {
      const bool spare = spare_of(id, ns);
      found(spare ? Finding::kNsTorn : Finding::kNsLine, at, "namespace %u", id);
      ns_used_[id] = 2;
      if (!spare) continue;
    }
    const bool used = (ns.flags & kNsUsed) != 0, empty = (ns.flags & kNsEmpty) != 0;
    if (used && empty) found(Finding::kNsField, at, "namespace %u: flags 0x%x", id, ns.flags);
    if (!used && !empty && ns.clear_version != 0) {
      ns_used_[id] = 3;
    } else if (!used && !empty) {  // what a take-over makes of a line that it could not read
      ns_used_[id] = 2;
      found(Finding::kNsLost, at, "namespace %u", id);
    }
    if (!used) continue;
    ns_used_[id] = 1;
    ++report_.namespaces;
    Name name{};
    std::memcpy(name.fingerprint, ns.fingerprint, sizeof(name.fingerprint));
    name.id = id;
    names.push_back(name);
  }
  const auto before = [](const Name &a, const Name &b) {
    return std::memcmp(a.fingerprint, b.fingerprint, sizeof(a.fingerprint)) < 0;
  };
  std::sort(names.begin(), names.end(), before);
  for (u64 i = 1; i < names.size(); ++i) {
    if (before(names[i - 1], names[i])) continue;
    found(Finding::kNsDuplicate, geo().ns_line(area_, names[i].id), "namespaces %u and %u",
          names[i - 1].id, names[i].id);
  }
}

void Verifier::map_record(u32 extent, PoolOffset at, const MapRecord &record) {
  if (record.holder == kHolderOwner) {
    ++report_.extents_owner;
  } else if (record.holder == kHolderFormer) {
    ++report_.extents_former;
  } else if (record.holder < geo().member_count()) {
    ++report_.extents_member;
    if (extent >= view_.regions.extents_in_use()) {
      found(Finding::kMapHolder, at, "extent %u: retired, but slot %u holds it", extent,
            record.holder);
    }
  } else {
    found(Finding::kMapHolder, at, "extent %u: holder %u", extent, record.holder);
  }
  if ((record.flags & kMapTainted) != 0) ++report_.extents_tainted;
  const bool cut = blocks_per_extent(record.size_class, geo().extent_bytes()) > 0;
  if (!cut && record.size_class != kClassNone && record.size_class != kClassRun) {
    found(Finding::kMapClass, at, "extent %u: class %u", extent, record.size_class);
  }
  if ((record.flags & kMapTainted) != 0) return;  // `ns` says by whom
  if (record.ns != 0 && !ns_known(record.ns)) {
    found(Finding::kMapNamespace, at, "extent %u: namespace %u", extent, record.ns);
  }
}

void Verifier::extent_map() {
  const u32 extents = view_.regions.extent_count();
  report_.extents = extents;
  map_.assign(extents, MapRecord{});
  map_known_.assign(extents, false);
  Line line{};
  bool readable = false;
  for (u32 extent = 0; extent < extents; ++extent) {
    const PoolOffset at = geo().map_word(area_, extent);
    const PoolOffset line_at(at.device(), at.byte() / kLineBytes * kLineBytes);
    MapRecord record{};
    if (extent % kMapRecordsPerLine == 0) {
      ++report_.lines_read;
      readable = reader_.inside(line_at) && reader_.read_line(line_at, line);
    }
    const u64 word = line.w[extent % kMapRecordsPerLine];
    if (!readable || !sealer_.unpack_map(word, at, epoch_, record)) {
      found(Finding::kMapWord, at, "extent %u", extent);
      continue;
    }
    map_[extent] = record;
    map_known_[extent] = true;
    map_record(extent, at, record);
  }
  map_runs();
}

void Verifier::map_runs() {
  constexpr u8 kRunFlags = kMapRunHead | kMapRunTail;
  for (u32 extent = 0; extent < map_.size(); ++extent) {
    if (!map_known_[extent]) continue;
    const u8 run = map_[extent].flags & kRunFlags;
    const PoolOffset at = geo().map_word(area_, extent);
    if (run == kRunFlags || (run != 0 && map_[extent].size_class != kClassRun)) {
      found(Finding::kMapRun, at, "extent %u: flags and class contradict", extent);
    }
    if ((run & kMapRunTail) == 0) continue;
    if (extent == 0) {
      found(Finding::kMapRun, at, "extent 0 goes on from nothing");
    } else if (map_known_[extent - 1] && (map_[extent - 1].flags & kRunFlags) == 0) {
      found(Finding::kMapRun, at, "extent %u goes on from none", extent);
    }
  }
}

// ---- index

Verifier::Group Verifier::read_group(u64 number, bool report) {
  Group group{};
  for (u32 i = 0; i < kGroupLines; ++i) {
    const u64 entry = number * kGroupLines + i;
    group.intact[i] = look(entry_at(entry), epoch_, group.entry[i]) == Look::kIntact;
    if (!group.intact[i] && report) {
      found(Finding::kEntryLine, entry_at(entry), "entry %llu", static_cast<ull>(entry));
    }
  }
  return group;
}

// Another visible entry with this key can only stand in the key's two groups.
void Verifier::duplicates(u64 number, const Entry &e, const Group &group) {
  const u64 here = number / kGroupLines;
  const u64 first = first_group(e.key, index_groups());
  const u64 second = second_group(e.key, index_groups());
  const auto search = [&](const Group &in, u64 group_number, u32 from) {
    for (u32 i = from; i < kGroupLines; ++i) {
      if (!in.intact[i] || !visible(in.entry[i])) continue;
      if (std::memcmp(in.entry[i].key, e.key, sizeof(e.key)) != 0) continue;
      found(Finding::kEntryDuplicate, entry_at(number), "entries %llu and %llu",
            static_cast<ull>(number), static_cast<ull>(group_number * kGroupLines + i));
    }
  };
  search(group, here, number % kGroupLines + 1);
  if (here != second || first == second) return;
  const Group before = read_group(first, false);
  search(before, first, 0);
  if (before.intact[0] && (before.entry[0].state & kEntrySpill) == 0) {
    found(Finding::kSpillMissing, entry_at(first * kGroupLines), "group %llu for entry %llu",
          static_cast<ull>(first), static_cast<ull>(number));
  }
}

// False: the fields that say where its block lies mean nothing.
bool Verifier::entry_fields(u64 number, const Entry &e) {
  const PoolOffset at = entry_at(number);
  const auto n = static_cast<ull>(number);
  const bool pending = e.entry_state() == EntryState::kPending;
  const bool in_table = e.ns != 0 && e.ns <= geo().namespaces_max();
  if (!in_table || (visible(e) && !ns_known(e))) {
    found(Finding::kEntryNamespace, at, "entry %llu: namespace %u", n, e.ns);
  }
  if (pending) {
    if (e.locator() != 0 || (e.check_hash & 0xFFFF) >= geo().member_count()) {
      found(Finding::kEntryPending, at, "entry %llu", n);
    }
    return false;
  }
  const u32 epoch = static_cast<u32>(e.version >> 40);
  if (epoch == 0 || epoch > epoch_) {
    found(Finding::kEntryVersion, at, "entry %llu: epoch 0x%x, owner's 0x%x", n, epoch, epoch_);
  }
  if (!block_shape(e).valid()) {
    found(Finding::kEntryLength, at, "entry %llu: length 0x%x", n, e.length);
    return false;
  }
  return true;
}

// A run starts at the head of its extents, and each extent it covers says so.
bool Verifier::fits_run(const Entry &e, const BlockShape &shape, u32 extent) {
  if (view_.regions.byte_of(e.locator() * kLocatorUnit) != 0) return false;
  const u64 n = run_extents(shape.block_bytes(), geo().extent_bytes());
  for (u64 i = 1; i < n; ++i) {
    const u64 tail = extent + i;
    if (!map_known_[tail]) continue;
    if ((map_[tail].flags & kMapRunTail) == 0 || map_[tail].size_class != kClassRun) return false;
  }
  return n == 1 || (map_[extent].flags & kMapRunHead) != 0;
}

bool Verifier::fits_class(const Entry &e, const BlockShape &shape, u32 extent) {
  const MapRecord &record = map_[extent];
  if (record.size_class == kClassRun) return fits_run(e, shape, extent);
  const u64 byte = view_.regions.byte_of(e.locator() * kLocatorUnit);
  const u64 bytes = class_bytes(record.size_class);
  return bytes != 0 && byte % bytes == 0 && shape.block_bytes() <= bytes &&
         byte / bytes < blocks_per_extent(record.size_class, geo().extent_bytes());
}

void Verifier::refresh_record(u32 extent) {
  const PoolOffset at = geo().map_word(area_, extent);
  const PoolOffset line_at(at.device(), at.byte() / kLineBytes * kLineBytes);
  Line line{};
  MapRecord record{};
  ++report_.lines_read;
  if (!reader_.inside(line_at) || !reader_.read_line(line_at, line)) return;
  if (sealer_.unpack_map(line.w[extent % kMapRecordsPerLine], at, epoch_, record)) {
    map_[extent] = record;
  }
}

// Whether the namespace is used, or may be; one made since the table was read counts.
bool Verifier::ns_known(u32 id) {
  if (id == 0 || id > geo().namespaces_max()) return false;
  if (ns_used_[id] == 1 || ns_used_[id] == 2) return true;
  NamespaceLine ns{};
  if (look(geo().ns_line(area_, id), epoch_, ns) != Look::kIntact) return true;
  if ((ns.flags & kNsUsed) != 0) ns_used_[id] = 1;
  return ns_used_[id] == 1;
}

// Blocks that a removed namespace had stay a while; what was published later is damage.
bool Verifier::ns_known(const Entry &e) {
  if (ns_known(e.ns)) return true;
  if (ns_used_[e.ns] != 3 || e.entry_state() == EntryState::kPending) return false;
  NamespaceLine ns{};
  if (look(geo().ns_line(area_, e.ns), epoch_, ns) != Look::kIntact) return true;
  return e.version <= ns.clear_version;
}

void Verifier::entry_place(u64 number, const Entry &e, const BlockShape &shape) {
  const PoolOffset at = entry_at(number);
  const auto n = static_cast<ull>(number);
  const u64 address = e.locator() * kLocatorUnit;
  if (!view_.regions.holds(address, shape.block_bytes())) {
    found(Finding::kEntryLocator, at, "entry %llu: address 0x%llx, %llu bytes", n,
          static_cast<ull>(address), static_cast<ull>(shape.block_bytes()));
    return;
  }
  blocks_.push_back({address, address + shape.block_bytes(), number});
  const u32 extent = view_.regions.extent_of(address);
  if (!map_known_[extent]) return;
  if (!fits_class(e, shape, extent)) {  // the map was read before the index: look again
    const u64 extents = run_extents(shape.block_bytes(), geo().extent_bytes());
    for (u64 i = 0; i < extents; ++i) refresh_record(static_cast<u32>(extent + i));
  }
  const MapRecord &record = map_[extent];
  // With a class: its word could not be read, and the entries that lie there stay (proto 14).
  if (record.holder == kHolderFormer && record.size_class == kClassNone) {
    found(Finding::kEntryHolder, at, "entry %llu: extent %u", n, extent);
  }
  if (!fits_class(e, shape, extent)) {
    found(Finding::kEntryClass, at, "entry %llu: extent %u of class %u, %llu bytes at %llu",
          n, extent, record.size_class, static_cast<ull>(shape.block_bytes()),
          static_cast<ull>(view_.regions.byte_of(address)));
  }
  if ((record.flags & kMapTainted) == 0 && record.ns != 0 && record.ns != e.ns) {
    found(Finding::kEntryNamespace, at, "entry %llu: extent %u is for namespace %u", n, extent,
          record.ns);
  }
}

void Verifier::entry(u64 number, const Entry &e, const Group &group) {
  const u32 state = e.state & kEntryStateMask;
  ++report_.entries[state];
  if (state == 0 || state > static_cast<u32>(EntryState::kHidden)) {
    found(Finding::kEntryState, entry_at(number), "entry %llu: state %u", static_cast<ull>(number),
          state);
    return;
  }
  if (e.entry_state() == EntryState::kEmpty) return;
  if ((e.state & kEntryTainted) != 0) ++report_.tainted_entries;
  const u64 here = number / kGroupLines;
  if (here != first_group(e.key, index_groups()) && here != second_group(e.key, index_groups())) {
    found(Finding::kEntryGroup, entry_at(number), "entry %llu", static_cast<ull>(number));
  } else if (visible(e)) {
    duplicates(number, e, group);
  }
  if (!entry_fields(number, e)) return;
  if (e.entry_state() == EntryState::kPublished) {
    report_.payload_bytes += e.payload_lines() * kLineBytes;
  }
  entry_place(number, e, block_shape(e));
}

void Verifier::index() {
  for (u64 g = 0; g < index_groups(); ++g) {
    const Group group = read_group(g, true);
    for (u32 i = 0; i < kGroupLines; ++i) {
      if (group.intact[i]) entry(g * kGroupLines + i, group.entry[i], group);
    }
  }
}

// Whether the entry still refers to these bytes: in a store in use another may have followed it.
bool Verifier::still_there(u64 number, const BlockUse &use) {
  Entry e{};
  if (look(entry_at(number), epoch_, e) != Look::kIntact) return false;
  return has_block(e) && e.locator() * kLocatorUnit == use.begin;
}

void Verifier::overlaps() {
  std::sort(blocks_.begin(), blocks_.end(), [](const BlockUse &a, const BlockUse &b) {
    return a.begin != b.begin ? a.begin < b.begin : a.entry < b.entry;
  });
  u64 widest = 0;  // of the blocks before, the one that reaches furthest
  for (u64 i = 1; i < blocks_.size(); ++i) {
    if (blocks_[i - 1].end > blocks_[widest].end) widest = i - 1;
    if (blocks_[widest].end <= blocks_[i].begin) continue;
    const BlockUse &a = blocks_[widest], &b = blocks_[i];
    if (!still_there(a.entry, a) || !still_there(b.entry, b)) continue;
    found(Finding::kEntryOverlap, entry_at(b.entry), "entries %llu and %llu at 0x%llx",
          static_cast<ull>(a.entry), static_cast<ull>(b.entry), static_cast<ull>(b.begin));
  }
}

// ---- checks

bool Verifier::segment_payload(const BlockShape &shape, u64 address, u64 segment, u64 check) {
  const LineRange range = shape.segment_range(segment);
  CheckLanes lanes{};
  for (u64 i = 0; i < range.line_count; ++i) {
    Line line;
    const PoolOffset at = view_.regions.data_at(address + (range.first_line + i) * kLineBytes);
    ++report_.lines_read;
    if (!reader_.inside(at) || !reader_.read_line(at, line)) return false;
    check_add_reference(lanes, &line, 1, i);
  }
  return check_fold(lanes, range.line_count) == check;
}

void Verifier::block_checks(u64 number, const Entry &e) {
  const BlockShape shape = block_shape(e);
  const u64 address = e.locator() * kLocatorUnit;
  const auto n = static_cast<ull>(number);
  std::vector<u64> checks(shape.segments());
  u64 nonce = 0;
  for (u64 s = 0; s < shape.segments(); ++s) {
    CheckLine c{};
    const auto segment = static_cast<ull>(s);
    const PoolOffset at = check_line_at(view_.regions, shape, address, s);
    if (look(at, 0, c) != Look::kIntact) {
      found(Finding::kCheckLine, at, "entry %llu, segment %llu", n, segment);
      return;
    }
    if (s == 0) nonce = c.nonce;
    if (c.segment != s || c.segment_lines != shape.segment_range(s).line_count ||
        c.shard != shape.shard_of(s) || c.shard_count != shape.shards() || c.nonce != nonce) {
      found(Finding::kCheckField, at, "entry %llu, segment %llu", n, segment);
      return;
    }
    checks[s] = c.check;
    if (options_.payload && !segment_payload(shape, address, s, c.check)) {
      const u64 first_line = shape.segment_range(s).first_line;
      found(Finding::kPayload, view_.regions.data_at(address + first_line * kLineBytes),
            "entry %llu, segment %llu", n, segment);
    }
  }
  if (check_table_hash(checks.data(), checks.size()) != e.check_hash) {
    found(Finding::kCheckTable, entry_at(number), "entry %llu", n);
  }
}

void Verifier::checks() {
  FindingSink &certain = *sink_;
  HeldFindings held;
  for (const BlockUse &use : blocks_) {
    Entry before{}, after{};
    if (look(entry_at(use.entry), epoch_, before) != Look::kIntact) continue;
    if (before.entry_state() != EntryState::kPublished) continue;
    if (before.locator() * kLocatorUnit != use.begin) continue;
    if (block_shape(before).block_bytes() != use.end - use.begin) continue;
    // In a store in use the block may go while its checks are read: then nothing is wrong with it.
    const VerifyReport counted = report_;
    sink_ = &held;
    block_checks(use.entry, before);
    sink_ = &certain;
    const bool same = look(entry_at(use.entry), epoch_, after) == Look::kIntact &&
                      after.version == before.version;
    if (same) {
      held.release_to(certain);
    } else {
      held.drop();
      std::copy(std::begin(counted.found), std::end(counted.found), report_.found);
    }
  }
}

int Verifier::run() {
  if (int err = open_store(); err != 0) return err;
  hosts();
  members();
  if (options_.rings) mailboxes();
  report_.area_known = view_.area_known;
  if (view_.area_known) {
    epoch_ = report_.epoch = view_.epoch();
    area_ = view_.area();
    namespaces();
    extent_map();
    index();
    overlaps();
    if (options_.checks || options_.payload) checks();
    StoreView again{};
    if (read_view(reader_, view_.superblock, again, nullptr) == 0 && again.epoch() != epoch_) {
      found(Finding::kChanged, area_, "epoch 0x%x, now 0x%x", epoch_, again.epoch());
    }
  }
  return report_.count(Severity::kDamage) != 0 ? -EUCLEAN : 0;
}

}  // namespace

const char *finding_name(Finding finding) { return kFindingInfo[static_cast<u32>(finding)].name; }
const char *finding_text(Finding finding) { return kFindingInfo[static_cast<u32>(finding)].text; }
Severity finding_severity(Finding finding) {
  return kFindingInfo[static_cast<u32>(finding)].severity;
}
Remedy finding_remedy(Finding finding) {
  return kFindingInfo[static_cast<u32>(finding)].remedy;
}
const char *severity_name(Severity severity) {
  switch (severity) {
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kDamage: return "damage";
  }
  return "unknown";
}

u64 VerifyReport::count(Severity severity) const {
  u64 n = 0;
  for (u32 f = 0; f < kFindingCount; ++f) {
    if (kFindingInfo[f].severity == severity) n += found[f];
  }
  return n;
}

int verify_store(LineReader &reader, const VerifyOptions &options, FindingSink &sink,
                 VerifyReport &ret_report) {
  VerifyReport report;
  Verifier verifier(reader, options, sink, report);
  const int result = verifier.run();
  ret_report = report;
  return result;
}

}  // namespace kvpool::media
