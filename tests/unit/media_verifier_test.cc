// SPDX-License-Identifier: Apache-2.0
// Shows: the verifier finds nothing wrong with a good store and names each kind of damage.
// How: a store built in memory; one damage at a time; the finding expected must be among those
// made.
#include <criterion/criterion.h>

#include <functional>
#include <set>

#include "golden/image.hpp"
#include "media/verifier.hpp"

using namespace kvpool;
using namespace kvpool::media;
using kvpool::test::golden_store;
using kvpool::test::Image;

namespace {

struct Collect final : FindingSink {
  void found(const FindingAt &finding) override { list.push_back(finding); }
  bool has(Finding finding) const {
    for (const FindingAt &f : list) {
      if (f.finding == finding) return true;
    }
    return false;
  }
  std::string names() const {
    std::string out;
    for (const FindingAt &f : list) {
      out += std::string(finding_name(f.finding)) + " (" + f.detail + ") ";
    }
    return out;
  }
  std::vector<FindingAt> list;
};

const VerifyOptions kAll = {true, true, true, 64};

struct Damage {
  Finding finding;
  std::function<void(Image &)> apply;
};

// Changes a sealed structure and seals it again: only its meaning is wrong.
template <class T, class F>
void edit(Image &image, PoolOffset at, u32 epoch, F change) {
  T value = image.get<T>(at);
  change(value);
  image.put(at, value, epoch);
}
template <class F>
void edit_entry(Image &image, u64 key_number, F change) {
  const Image::Key key = Image::make_key(key_number);
  for (u64 n = 0; n < image.geo().index_groups * kGroupLines; ++n) {
    Entry e = image.entry(n);
    if (e.key[0] != key.w[0]) continue;
    change(n, e);
    image.write_entry(n, e);
    return;
  }
  cr_assert_fail("key %llu is not in the image", static_cast<unsigned long long>(key_number));
}
u64 number_of(Image &image, u64 key_number) {
  u64 number = ~u64{0};
  edit_entry(image, key_number, [&](u64 n, Entry &) { number = n; });
  return number;
}
void flip(Image &image, PoolOffset at) { image.line(at).w[3] ^= u64{1} << 17; }

ClaimLine claim0(Image &image) { return image.get<ClaimLine>(image.geo().claim_at(0, 0)); }

// A key whose first group is `group` and whose second is not.
Image::Key key_for_group(Image &image, u64 group) {
  for (u64 n = 1000;; ++n) {
    const Image::Key key = Image::make_key(n);
    if (first_group(key.w, image.geo().index_groups) == group) return key;
  }
}

Entry pending_entry(const Image::Key &key) {
  Entry e{};
  std::copy(std::begin(key.w), std::end(key.w), e.key);
  e.state = static_cast<u8>(EntryState::kPending);
  e.version = 1;
  e.ns = 1;
  return e;
}

void put_in_second_group(Image &image, bool spill) {
  const Image::Key key = key_for_group(image, 3);
  const u64 second = second_group(key.w, image.geo().index_groups);
  image.write_entry(second * kGroupLines + 3, pending_entry(key));
  Entry head = image.entry(3 * kGroupLines);
  head.state = static_cast<u8>((head.state & ~kEntrySpill) | (spill ? kEntrySpill : 0));
  image.write_entry(3 * kGroupLines, head);
}

void edit_map(Image &image, u64 key_number, const std::function<void(MapRecord &)> &change) {
  const Entry e = image.entry(number_of(image, key_number));
  const u32 extent = image.regions().extent_of(e.locator() * kLocatorUnit);
  MapRecord record = image.read_map(extent);
  change(record);
  image.write_map(extent, record);
}

PoolOffset check_of(Image &image, u64 key_number, u64 segment) {
  const Entry e = image.entry(number_of(image, key_number));
  return check_line_at(image.regions(), block_shape(e), e.locator() * kLocatorUnit, segment);
}

Message good_message() {
  Message m{};
  m.epoch = 0x10;
  m.incarnation = 1;
  m.type = static_cast<u8>(MessageType::kNop);
  m.lines = 1;
  return m;
}

void break_both_identities(Image &i) {
  flip(i, i.geo().identity_at(0));
  flip(i, i.geo().identity_at(1));
}
void break_both_claims(Image &i) {
  flip(i, i.geo().claim_at(0, 1));
  flip(i, i.geo().claim_at(1, 1));
}
void claim_without(Image &i, u32 ClaimLine::*field) {
  ClaimLine c = claim0(i);
  c.*field = 0;
  i.write_claim(0, c);
}
void claim_of_slot_1(Image &i, u32 epoch) {
  ClaimLine c{};
  c.claimed = epoch;
  i.write_claim(1, c);
}
void message_of_four_lines(Image &i) {
  Message m = good_message();
  m.lines = 4;
  i.put(i.geo().request_line(0, 0), m);
}

std::vector<Damage> outer_damages() {
  using F = Finding;
  return {
      {F::kSuperblock, break_both_identities},
      {F::kSuperblockCopy, [](Image &i) { flip(i, i.geo().geometry_at(1, 0)); }},
      {F::kSuperblockCopies,
       [](Image &i) {
         edit<GeometryA>(i, i.geo().geometry_at(1, 0), 0, [](GeometryA &a) { ++a.lease_ms; });
       }},
      {F::kClaimCopy, [](Image &i) { flip(i, i.geo().claim_at(0, 0)); }},
      {F::kClaimCopy,
       [](Image &i) {
         edit<ClaimLine>(i, i.geo().claim_at(1, 0), 0,
                         [](ClaimLine &c) { c.claimed = make_epoch(2, 0); });
       }},
      {F::kClaimUnreadable, break_both_claims},
      {F::kClaimField, [](Image &i) { claim_without(i, &ClaimLine::claimed); }},
      {F::kClaimField, [](Image &i) { claim_of_slot_1(i, make_epoch(1, 0)); }},
      {F::kClaimJump, [](Image &i) { claim_of_slot_1(i, make_epoch(kEpochJumpMax + 2, 1)); }},
      {F::kNoActive, [](Image &i) { claim_without(i, &ClaimLine::active); }},
      {F::kHostLine, [](Image &i) { flip(i, i.geo().host_at(0)); }},
      {F::kHostLine, [](Image &i) { i.put(i.geo().host_at(0), HostLine{}); }},
      {F::kMemberLine, [](Image &i) { flip(i, i.geo().member_at(0)); }},
      {F::kMemberLine,
       [](Image &i) {
         edit<MemberLine>(i, i.geo().member_at(0), 0, [](MemberLine &m) { m.host = 9; });
       }},
      {F::kReaperLine, [](Image &i) { flip(i, i.geo().reaper_at(1)); }},
      {F::kNoticeLine, [](Image &i) { flip(i, i.geo().notice_at(1, 1)); }},
      {F::kRequestLine, [](Image &i) { flip(i, i.geo().request_line(1, 7)); }},
      {F::kRequestLine, message_of_four_lines},
      {F::kResponseLine,
       [](Image &i) { i.put(i.geo().response_line(0, 1, 3, 1), good_message()); }},
  };
}

std::vector<Damage> area_damages() {
  using F = Finding;
  return {
      {F::kRegions, [](Image &i) { flip(i, i.geo().region_line(i.area(), 1)); }},
      {F::kRegions,
       [](Image &i) {
         edit<RegionPlaces>(i, i.geo().region_line(i.area(), 1), i.epoch(),
                            [](RegionPlaces &p) { p.place[0].data_page = 1; });
       }},
      {F::kNsLine, [](Image &i) { flip(i, i.geo().ns_line(i.area(), 2)); }},
      {F::kNsTorn,
       [](Image &i) {  // what an owner's crash leaves between two pieces of a line
         const PoolOffset at = i.geo().ns_line(i.area(), 2);
         i.line(i.geo().ns_line(i.area(), i.geo().ns_spare())) = i.line(at);
         flip(i, at);
       }},
      {F::kNsField,
       [](Image &i) {
         edit<NamespaceLine>(i, i.geo().ns_line(i.area(), 2), i.epoch(),
                             [](NamespaceLine &n) { n.flags = kNsUsed | kNsEmpty; });
       }},
      {F::kNsLost,
       [](Image &i) { i.put(i.geo().ns_line(i.area(), 2), NamespaceLine{}, i.epoch()); }},
      {F::kNsDuplicate,
       [](Image &i) {
         const auto first = i.get<NamespaceLine>(i.geo().ns_line(i.area(), 1));
         i.put(i.geo().ns_line(i.area(), 2), first, i.epoch());
       }},
      {F::kMapWord, [](Image &i) { i.map_word(1) ^= 1; }},
      {F::kMapWord, [](Image &i) { i.map_word(1) = 0; }},
      {F::kMapWord, [](Image &i) { i.map_word(1) = i.map_word(2); }},
      {F::kMapHolder, [](Image &i) { i.write_map(4, MapRecord{77, 0, kClassNone, 0, 0}); }},
      {F::kMapClass, [](Image &i) { i.write_map(4, MapRecord{255, 0, 61, 0, 0}); }},
      {F::kMapClass, [](Image &i) { i.write_map(4, MapRecord{255, 0, 60, 0, 0}); }},
      {F::kMapNamespace, [](Image &i) { i.write_map(4, MapRecord{255, 0, kClassNone, 0, 2}); }},
      {F::kMapRun,
       [](Image &i) { i.write_map(4, MapRecord{255, 0, kClassRun, kMapRunTail, 0}); }},
  };
}

void copy_to_wrong_group(Image &i) {
  const u64 groups = i.geo().index_groups;
  const Image::Key key = Image::make_key(7);
  u64 wrong = 0;
  while (wrong == first_group(key.w, groups) || wrong == second_group(key.w, groups)) ++wrong;
  i.write_entry(wrong * kGroupLines + 3, i.entry(number_of(i, 7)));
}
void same_key_in_both_groups(Image &i) {
  put_in_second_group(i, true);
  i.write_entry(3 * kGroupLines + 3, pending_entry(key_for_group(i, 3)));
}
void lie_on_entry_1(Image &i) {
  const u64 locator = i.entry(number_of(i, 1)).locator();
  edit_entry(i, 5, [&](u64, Entry &e) { e.set_locator(locator); });
}
void reach_past_the_end(Image &i) {
  const u64 last = (i.regions().payload_bytes() - 256) / kLocatorUnit;
  edit_entry(i, 1, [&](u64, Entry &e) { e.set_locator(last); });
}
void change_payload(Image &i) {
  const Entry e = i.entry(number_of(i, 3));
  i.line(i.regions().data_at(e.locator() * kLocatorUnit + 2000 * 64)).w[7] ^= 1;
}

std::vector<Damage> entry_damages() {
  using F = Finding;
  return {
      {F::kEntryLine, [](Image &i) { flip(i, i.entry_at(number_of(i, 1))); }},
      {F::kEntryLine, [](Image &i) { i.poison(i.entry_at(5)); }},
      {F::kEntryState, [](Image &i) { edit_entry(i, 1, [](u64, Entry &e) { e.state = 7; }); }},
      {F::kEntryState, [](Image &i) { edit_entry(i, 1, [](u64, Entry &e) { e.state = 0; }); }},
      {F::kEntryGroup, copy_to_wrong_group},
      {F::kSpillMissing, [](Image &i) { put_in_second_group(i, false); }},
      {F::kEntryDuplicate, [](Image &i) { i.insert(i.entry(number_of(i, 7))); }},
      {F::kEntryDuplicate, same_key_in_both_groups},
      {F::kEntryPending,
       [](Image &i) { edit_entry(i, 7, [](u64, Entry &e) { e.check_hash = 99; }); }},
      {F::kEntryLength, [](Image &i) { edit_entry(i, 1, [](u64, Entry &e) { e.length = 0; }); }},
      {F::kEntryLocator,
       [](Image &i) { edit_entry(i, 1, [](u64, Entry &e) { e.set_locator(u64{1} << 39); }); }},
      {F::kEntryLocator, reach_past_the_end},
      {F::kEntryClass,
       [](Image &i) { edit_entry(i, 1, [](u64, Entry &e) { e.set_locator(e.locator() + 1); }); }},
      {F::kEntryClass,
       [](Image &i) { edit_map(i, 2, [](MapRecord &r) { r.size_class = kClassNone; }); }},
      {F::kEntryHolder,
       [](Image &i) {
         edit_map(i, 1, [](MapRecord &r) { r = {kHolderFormer, 0, kClassNone, 0, 0}; });
       }},
      {F::kEntryOverlap, lie_on_entry_1},
      {F::kEntryNamespace, [](Image &i) { edit_entry(i, 1, [](u64, Entry &e) { e.ns = 2; }); }},
      {F::kEntryNamespace, [](Image &i) { edit_entry(i, 5, [](u64, Entry &e) { e.ns = 0; }); }},
      {F::kEntryNamespace, [](Image &i) { edit_map(i, 1, [](MapRecord &r) { r.ns = 3; }); }},
      {F::kEntryVersion,
       [](Image &i) {
         edit_entry(i, 1, [](u64, Entry &e) { e.version = make_version(make_epoch(9, 0), 1); });
       }},
      {F::kCheckLine, [](Image &i) { flip(i, check_of(i, 2, 0)); }},
      {F::kCheckLine, [](Image &i) { flip(i, check_of(i, 4, 2)); }},
      {F::kCheckField,
       [](Image &i) {
         edit<CheckLine>(i, check_of(i, 3, 1), 0, [](CheckLine &c) { c.shard = 0; });
       }},
      {F::kCheckField,  // a segment of another publication
       [](Image &i) { edit<CheckLine>(i, check_of(i, 3, 1), 0, [](CheckLine &c) { ++c.nonce; }); }},
      {F::kCheckTable,
       [](Image &i) { edit_entry(i, 3, [](u64, Entry &e) { e.check_hash ^= 1; }); }},
      {F::kPayload, change_payload},
  };
}

void run_damages(const std::vector<Damage> &damages) {
  u32 n = 0;
  for (const Damage &damage : damages) {
    Image image = golden_store();
    damage.apply(image);
    Collect sink;
    VerifyReport report;
    const int result = verify_store(image, kAll, sink, report);
    cr_expect(sink.has(damage.finding), "damage %u: %s not among: %s", n,
              finding_name(damage.finding), sink.names().c_str());
    const bool damaged = report.count(Severity::kDamage) != 0;
    cr_expect(damaged == (result != 0), "damage %u: result %d", n, result);
    cr_expect(damaged || finding_severity(damage.finding) == Severity::kWarning, "damage %u", n);
    ++n;
  }
}

// Something happens to the store when line `at` has been read for the first time.
class Moving final : public LineReader {
public:
  Moving(Image &image, PoolOffset at, std::function<void(Image &)> move)
      : image_(image), at_(at), move_(std::move(move)) {}
  u32 device_count() const override { return image_.device_count(); }
  u64 device_bytes(u32 device) const override { return image_.device_bytes(device); }
  bool read_line(PoolOffset at, Line &ret_line) override {
    const bool ok = image_.read_line(at, ret_line);
    if (at == at_ && move_) {
      move_(image_);
      move_ = nullptr;
    }
    return ok;
  }
  bool moved() const { return !move_; }

private:
  Image &image_;
  PoolOffset at_;
  std::function<void(Image &)> move_;
};

}  // namespace

Test(media_verifier, good_store_is_clean) {
  Image image = golden_store();
  Collect sink;
  VerifyReport report;
  cr_expect(verify_store(image, kAll, sink, report) == 0);
  cr_expect(sink.list.empty(), "%s", sink.names().c_str());
  cr_expect(report.area_known);
  cr_expect(report.epoch == image.epoch());
  cr_expect(report.entries[static_cast<u32>(EntryState::kPublished)] == 4);
  cr_expect(report.entries[static_cast<u32>(EntryState::kDraining)] == 1);
  cr_expect(report.entries[static_cast<u32>(EntryState::kHidden)] == 1);
  cr_expect(report.entries[static_cast<u32>(EntryState::kPending)] == 1);
  cr_expect(report.payload_bytes == 4096 + 65536 + 131072 + 8192 - 64);
  cr_expect(report.namespaces == 2 && report.members_joined == 1);
  cr_expect(report.extents == image.regions().extent_count());
  cr_expect(report.extents_owner == report.extents);
}

Test(media_verifier, names_damage_outside_areas) { run_damages(outer_damages()); }
Test(media_verifier, names_damage_of_tables) { run_damages(area_damages()); }
Test(media_verifier, names_damage_of_entries) { run_damages(entry_damages()); }

// Of the first two its copies of superblock and claims are gone with it, which is not said again.
Test(media_verifier, names_a_lost_device) {
  for (u32 device = 0; device < 3; ++device) {
    FormatOptions options;
    options.device_count = 3;
    for (u32 d = 0; d < 3; ++d) options.device_bytes[d] = u64{16} << 20;
    Image image(options);
    image.poison(PoolOffset(device, 0));
    image.poison(PoolOffset(device, kPageBytes - kLineBytes));
    Collect sink;
    VerifyReport report;
    cr_expect_eq(verify_store(image, kAll, sink, report), -EUCLEAN);
    cr_expect(sink.has(Finding::kDeviceLost), "device %u: %s", device, sink.names().c_str());
    cr_expect_not(sink.has(Finding::kSuperblockCopy));
    cr_expect_eq(report.count(Severity::kDamage), 1u, "device %u: %s", device,
                 sink.names().c_str());
  }
}

Test(media_verifier, every_finding_has_a_test) {
  // By tells_when_the_owner_changed and names_a_lost_device.
  std::set<Finding> shown = {Finding::kChanged, Finding::kDeviceLost};
  for (const auto &list : {outer_damages(), area_damages(), entry_damages()}) {
    for (const Damage &damage : list) shown.insert(damage.finding);
  }
  for (u32 f = 0; f < kFindingCount; ++f) {
    const auto finding = static_cast<Finding>(f);
    cr_expect(shown.count(finding) == 1, "%s", finding_name(finding));
  }
}

// A shrunk pool: the last extents keep their words, and neither members nor entries have them.
Test(media_verifier, retired_extents_belong_to_nobody) {
  const auto retire = [](Image &i, u32 count) {
    edit<RegionHead>(i, i.geo().region_line(i.area(), 0), i.epoch(),
                     [&](RegionHead &head) { head.retired_extents = count; });
  };
  const auto findings = [](Image &i) {
    Collect sink;
    VerifyReport report;
    verify_store(i, kAll, sink, report);
    return sink.names();
  };
  Image fine = golden_store(), whole = golden_store();
  const u32 extents = fine.regions().extent_count();
  retire(fine, 1);
  const std::string of_fine = findings(fine), of_whole = findings(whole);
  cr_expect_str_eq(of_fine.c_str(), of_whole.c_str());
  Image held = golden_store();
  retire(held, 1);
  held.write_map(extents - 1, MapRecord{0, 1, kClassNone, 0, 0});
  cr_expect(findings(held).find(finding_name(Finding::kMapHolder)) != std::string::npos);
  Image used = golden_store();
  retire(used, extents - 1);
  cr_expect(findings(used).find(finding_name(Finding::kEntryLocator)) != std::string::npos);
}

// Every status that an owner sends.
Test(media_verifier, answers_of_any_status_are_fine) {
  for (u8 status = 1; status <= static_cast<u8>(MessageStatus::kQuota); ++status) {
    Image i = golden_store();
    Message m{};
    m.epoch = i.epoch();
    m.incarnation = 1;
    m.type = static_cast<u8>(MessageType::kAbort);
    m.lines = 1;
    m.status = status;
    i.put(i.geo().response_line(0, 0, 0, 0), m);
    Collect sink;
    VerifyReport report;
    verify_store(i, kAll, sink, report);
    cr_expect_not(sink.has(Finding::kResponseLine), "status %u", status);
  }
}

Test(media_verifier, spilled_entry_is_fine) {
  Image image = golden_store();
  put_in_second_group(image, true);
  Collect sink;
  VerifyReport report;
  cr_expect(verify_store(image, kAll, sink, report) == 0, "%s", sink.names().c_str());
  cr_expect(sink.list.empty(), "%s", sink.names().c_str());
}

Test(media_verifier, runs_are_followed) {
  Image image(test::tiny_options(1, u64{24} << 20));
  image.add_namespace(1, "runs");
  image.add_block(Image::make_key(1), u64{5} << 20, 1, 1);
  Collect sink;
  VerifyReport report;
  cr_expect(verify_store(image, kAll, sink, report) == 0, "%s", sink.names().c_str());
  image.write_map(2, MapRecord{kHolderOwner, 0, kClassNone, 0, 0});  // its last extent is gone
  cr_expect(verify_store(image, kAll, sink, report) == -EUCLEAN);
  cr_expect(sink.has(Finding::kEntryClass), "%s", sink.names().c_str());
}

// Guards: blocks of a namespace that was removed, and its line, were damage or a warning.
Test(media_verifier, what_a_removed_namespace_leaves_is_fine) {
  Image image(test::tiny_options(1, u64{24} << 20));
  image.add_namespace(1, "goes");
  const u64 n = image.add_block(Image::make_key(1), 4096, 1, 1);
  const Entry entry = image.entry(n);
  const auto line_of = [&](u64 clear_version, u16 flags) {
    auto line = image.get<NamespaceLine>(image.geo().ns_line(image.area(), 1));
    line.clear_version = clear_version;
    line.flags = flags;
    std::memset(line.fingerprint, 0, sizeof line.fingerprint);
    image.put(image.geo().ns_line(image.area(), 1), line, image.epoch());
  };
  const auto findings = [&] {
    Collect sink;
    VerifyReport report;
    verify_store(image, kAll, sink, report);
    return sink.names();
  };
  line_of(entry.version, 0);
  const std::string none = findings();
  cr_expect_str_empty(none.c_str(), "%s", none.c_str());
  line_of(entry.version - 1, 0);
  cr_expect(findings().find("entry-namespace") < findings().size(), "published after the removal");
  line_of(entry.version, kNsEmpty);
  cr_expect(findings().find("entry-namespace") < findings().size(), "nobody ever used it");
  line_of(0, 0);
  cr_expect(findings().find("namespace-lost") < findings().size());
}

Test(media_verifier, counts_beyond_what_it_lists) {
  Image image = golden_store();
  const u64 entries = image.geo().index_groups * kGroupLines;
  for (u64 n = 0; n < entries; ++n) flip(image, image.entry_at(n));
  Collect sink;
  VerifyReport report;
  const VerifyOptions few = {true, false, true, 3};
  cr_expect(verify_store(image, few, sink, report) == -EUCLEAN);
  cr_expect(sink.list.size() == 3);
  cr_expect(report.found[static_cast<u32>(Finding::kEntryLine)] == entries);
}

Test(media_verifier, tells_when_the_owner_changed) {
  Image image = golden_store();
  // The next owner fills the other area and activates it while the index is read.
  Moving reader(image, image.entry_at(8), [](Image &i) {
    const u32 next = make_epoch(2, 0);
    Line lines[kRegionTableLines];
    encode_regions(i.regions(), lines);
    for (u32 n = 0; n < kRegionTableLines; ++n) {
      i.put(i.geo().region_line(i.geo().area_at(0, 1), n), lines[n], next);
    }
    ClaimLine claim = claim0(i);
    claim.claimed = claim.active = next;
    claim.area = 1;
    i.write_claim(0, claim);
  });
  Collect sink;
  VerifyReport report;
  cr_expect(verify_store(reader, kAll, sink, report) == 0, "%s", sink.names().c_str());
  cr_expect(reader.moved());
  cr_expect(sink.has(Finding::kChanged), "%s", sink.names().c_str());
}

Test(media_verifier, publication_during_the_scan_is_no_damage) {
  Image image = golden_store();
  // After the map was read, a block of a class that no extent had is published.
  Moving reader(image, image.entry_at(0),
                [](Image &i) { i.add_block(Image::make_key(20), 16384, 1, 1); });
  Collect sink;
  VerifyReport report;
  cr_expect(verify_store(reader, kAll, sink, report) == 0, "%s", sink.names().c_str());
  cr_expect(reader.moved());
  cr_expect(report.entries[static_cast<u32>(EntryState::kPublished)] == 5);
}

Test(media_verifier, reuse_during_the_scan_is_no_damage) {
  Image image = golden_store();
  // While the checks of the last block are read, its block is cleared and written anew.
  const Entry e = image.entry(number_of(image, 3));
  const PoolOffset check = check_of(image, 3, 0);
  Moving reader(image, check, [&](Image &i) {
    edit_entry(i, 3, [](u64, Entry &entry) { ++entry.version; });
    i.line(i.regions().data_at(e.locator() * kLocatorUnit)).w[0] ^= 1;
  });
  Collect sink;
  VerifyReport report;
  cr_expect(verify_store(reader, kAll, sink, report) == 0, "%s", sink.names().c_str());
  cr_expect(reader.moved());
}
