// SPDX-License-Identifier: Apache-2.0
// kvpool check: the verifier, and single lines in words.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "media/decode.hpp"
#include "media/verifier.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

std::string place_text(PoolOffset at) {
  return at == kNoOffset ? std::string() : fmt::format("{}:{}", at.device(), at.byte());
}

// Shows progress while the verifier reads.
class CountingReader final : public media::LineReader {
public:
  CountingReader(media::LineReader &reader, Progress &progress)
      : reader_(reader), progress_(progress) {}
  u32 device_count() const override { return reader_.device_count(); }
  u64 device_bytes(u32 device) const override { return reader_.device_bytes(device); }
  std::string device_name(u32 device) const override { return reader_.device_name(device); }
  u64 device_file_bytes(u32 device) const override { return reader_.device_file_bytes(device); }
  bool read_line(PoolOffset at, Line &ret_line) override {
    if ((++lines_ & 0xfff) == 0) progress_.show(lines_, 0, "lines read");
    return reader_.read_line(at, ret_line);
  }

private:
  media::LineReader &reader_;
  Progress &progress_;
  u64 lines_ = 0;
};

class ListSink final : public media::FindingSink {
public:
  void found(const media::FindingAt &finding) override {
    list.push_back({{"name", media::finding_name(finding.finding)},
                    {"severity", media::severity_name(media::finding_severity(finding.finding))},
                    {"text", media::finding_text(finding.finding)},
                    {"at", place_text(finding.at)},
                    {"detail", finding.detail}});
    if (media::finding_severity(finding.finding) != media::Severity::kDamage) {
      warning_remedy = std::max(warning_remedy, media::finding_remedy(finding.finding));
      return;
    }
    remedy = std::max(remedy, media::finding_remedy(finding.finding));
    serve = serve || media::finding_remedy(finding.finding) == media::Remedy::kServe;
    if (superblock.empty() && finding.finding == media::Finding::kSuperblock) {
      superblock = finding.detail;
    }
    if (media::finding_remedy(finding.finding) == media::Remedy::kRemove && block.empty()) {
      block = finding.detail;
    }
  }
  Json list = Json::array();
  media::Remedy remedy = media::Remedy::kItself;  // that all the damage together needs
  bool serve = false;  // a part of it needs an owner
  media::Remedy warning_remedy = media::Remedy::kItself;  // and all the warnings
  std::string superblock, block;                  // details of the first of these
};

Json report_json(const media::VerifyReport &report) {
  Json json;
  json["epoch"] = report.epoch;
  json["lines_read"] = report.lines_read;
  json["published"] = report.entries[static_cast<u32>(media::EntryState::kPublished)];
  json["pending"] = report.entries[static_cast<u32>(media::EntryState::kPending)];
  json["draining"] = report.entries[static_cast<u32>(media::EntryState::kDraining)];
  json["hidden"] = report.entries[static_cast<u32>(media::EntryState::kHidden)];
  json["payload_bytes"] = report.payload_bytes;
  json["namespaces"] = report.namespaces;
  json["members_joined"] = report.members_joined;
  json["extents"] = report.extents;
  json["extents_tainted"] = report.extents_tainted;
  json["damage"] = report.count(media::Severity::kDamage);
  json["warnings"] = report.count(media::Severity::kWarning);
  return json;
}

// A line's name: "claim:1", or "response:2.0.3", most significant number first.
struct LineName {
  std::string kind;
  std::vector<u64> numbers;
};

LineName parse_line_name(const std::string &text) {
  LineName name;
  std::size_t at = std::min(text.find(':'), text.size());
  name.kind = text.substr(0, at);
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('.', at + 1), text.size());
    std::uint64_t number = 0;
    if (!parse_count(text.substr(at + 1, end - at - 1), number)) {
      fail(kExitUsage, "--decode",
           fmt::format("'{}' has no number behind the {}", text,
                       text[at] == ':' ? "colon" : "dot"));
    }
    name.numbers.push_back(number);
    at = end;
  }
  return name;
}

// DEVICE:BYTE. False: the text does not begin with a number.
bool byte_of(const std::string &text, const media::StoreView &view, PoolOffset &ret) {
  const media::Geometry &geo = view.geometry();
  const std::size_t colon = std::min(text.find(':'), text.size());
  std::uint64_t device = 0, byte = 0;
  if (!parse_count(text.substr(0, colon), device)) return false;
  if (colon < text.size() && !parse_bytes(text.substr(colon + 1), byte)) {
    fail(kExitUsage, "--decode", "'" + text + "' has no number behind the colon");
  }
  if (device >= geo.device_count || byte % kLineBytes != 0 ||
      byte >= media::device_end(geo, view.regions, static_cast<u32>(device))) {
    fail(kExitUsage, "--decode", "'" + text + "' is no line of the store",
         fmt::format("a line's byte is a multiple of {}", kLineBytes));
  }
  ret = PoolOffset(static_cast<u32>(device), byte);
  return true;
}

struct LineKind {
  const char *name;
  bool needs_area;          // it has no address while no area can be trusted
  std::vector<u64> counts;  // how many there are, by each number of the name
  std::function<PoolOffset(const u32 *)> at;
};

std::vector<LineKind> line_kinds(const media::StoreView &view) {
  const media::Geometry &geo = view.geometry();
  const u64 members = geo.member_count(), standbys = geo.standby_count;
  const u64 extents = view.area_known ? view.regions.extent_count() : 0;
  const u64 entries = view.area_known ? view.active().index_groups * media::kGroupLines : 0;
  const u64 units = geo.extent_bytes() / media::kStripLineCovers;
  const u64 answer_lines = u64{geo.response_slots} * media::kResponseSlotLines;
  const auto area = [&view] { return view.area(); };
  return {
      {"superblock", false, {2}, [&](const u32 *n) { return geo.identity_at(n[0]); }},
      {"geometry", false, {4}, [&](const u32 *n) { return geo.geometry_at(n[0] / 2, n[0] % 2); }},
      {"claim", false, {2 * standbys},
       [&](const u32 *n) {
         return geo.claim_at(n[0] / geo.standby_count, n[0] % geo.standby_count);
       }},
      {"host", false, {geo.host_count}, [&](const u32 *n) { return geo.host_at(n[0]); }},
      {"doorbell", false, {geo.host_count}, [&](const u32 *n) { return geo.doorbell_at(n[0]); }},
      {"member", false, {members}, [&](const u32 *n) { return geo.member_at(n[0]); }},
      {"reaper", false, {members}, [&](const u32 *n) { return geo.reaper_at(n[0]); }},
      {"notice", false, {members, standbys},
       [&](const u32 *n) { return geo.notice_at(n[0], n[1]); }},
      {"request", false, {members, geo.request_lines},
       [&](const u32 *n) { return geo.request_line(n[0], n[1]); }},
      {"response", false, {members, standbys, answer_lines},
       [&](const u32 *n) { return geo.response_line(n[0], n[1], 0, n[2]); }},
      {"area", false, {standbys, 2, geo.area_bytes / kLineBytes},
       [&](const u32 *n) { return geo.area_at(n[0], n[1]) + u64{n[2]} * kLineBytes; }},
      {"region", true, {media::kMaxRegions},
       [&, area](const u32 *n) { return geo.region_line(area(), n[0] * media::kRegionLines); }},
      {"ns", true, {geo.namespace_lines},
       [&, area](const u32 *n) { return geo.ns_line(area(), n[0]); }},
      {"extent", true, {extents},
       [&, area](const u32 *n) { return geo.map_line(area(), n[0] / media::kMapRecordsPerLine); }},
      {"entry", true, {entries}, [&, area](const u32 *n) { return geo.entry_line(area(), n[0]); }},
      {"strip", true, {view.area_known ? view.regions.extents_in_use() : 0, units},
       [&view](const u32 *n) { return view.regions.strip_line(n[0], n[1]); }},
  };
}

// A line's name, or DEVICE:BYTE, to its address. Numbers that are left out are 0.
PoolOffset place_of(const std::string &text, const media::StoreView &view) {
  PoolOffset place{};
  if (byte_of(text, view, place)) return place;
  const LineName name = parse_line_name(text);
  std::string names;
  for (const LineKind &kind : line_kinds(view)) {
    names += std::string(kind.name) + " ";
    if (name.kind != kind.name) continue;
    if (kind.needs_area && !view.area_known)
      fail(kExitDamaged, "--decode", "no area can be trusted, so its lines have no address");
    if (name.numbers.size() > kind.counts.size())
      fail(kExitUsage, "--decode",
           fmt::format("'{}': a {} has at most {} numbers", text, kind.name, kind.counts.size()));
    u32 numbers[3] = {};
    for (std::size_t i = 0; i < name.numbers.size(); ++i) {
      if (name.numbers[i] >= kind.counts[i])
        fail(kExitUsage, "--decode",
             fmt::format("'{}': {} is not below {}", text, name.numbers[i], kind.counts[i]));
      numbers[i] = static_cast<u32>(name.numbers[i]);
    }
    return kind.at(numbers);
  }
  fail(kExitUsage, "--decode", "'" + name.kind + "' is no kind of line", names + "or DEVICE:BYTE");
}

int decode_one(const Args &args, const std::string &address, media::LineReader &reader) {
  media::StoreView view{};
  std::string why;
  if (const int error = media::read_superblock_any_state(reader, view.superblock, &why);
      error != 0) {
    fail_superblock(address, error, why);
  }
  media::read_view(reader, view.superblock, view, &why);
  const PoolOffset at = place_of(args.text("--decode"), view);
  Line line{};
  if (!reader.read_line(at, line)) fail(kExitDamaged, place_text(at), "the line cannot be read");
  const media::DecodedLine decoded = media::decode_line(view, at, line);
  // A line that nobody ever wrote, of a host or member that never was, is no damage.
  const bool written = line != Line{};
  const bool bad = decoded.sealed && !decoded.verifies && decoded.epoch_known && written;
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["at"] = place_text(at);
    data["kind"] = media::line_kind_name(decoded.place.kind);
    data["sealed"] = decoded.sealed;
    data["verifies"] = decoded.verifies;
    data["text"] = decoded.text;
    print_json("check.line", std::move(data));
  } else {
    print_text(fmt::format("{} at {}: {}\n{}", media::line_kind_name(decoded.place.kind),
                           place_text(at),
                           !decoded.sealed        ? "carries no seal"
                           : decoded.verifies     ? "verifies"
                           : !decoded.epoch_known ? "of an area that is not in use"
                                                  : "DOES NOT VERIFY",
                           decoded.text));
  }
  return bad ? kExitDamaged : kExitFine;
}

void print_findings(const std::string &address, const Json &findings,
                    const media::VerifyReport &report, bool damaged) {
  for (const Json &finding : findings) {
    const auto at = finding["at"].get<std::string>();
    const auto detail = finding["detail"].get<std::string>();
    print_text(fmt::format("{}: {}: {}{}{}\n", finding["severity"].get<std::string>(),
                           finding["name"].get<std::string>(), finding["text"].get<std::string>(),
                           at.empty() ? "" : " at " + at, detail.empty() ? "" : ": " + detail));
  }
  const Json sums = report_json(report);
  const char *verdict = damaged ? "DAMAGED" : findings.empty() ? "clean" : "no damage";
  print_text(fmt::format("{}: {}: {} blocks published, {} lines read, {} damage, {} warnings\n",
                         address, verdict,
                         count_text(sums["published"].get<u64>()), count_text(report.lines_read),
                         sums["damage"].get<u64>(), sums["warnings"].get<u64>()));
}

// Findings about one block's bytes: it goes, and the store is whole again.
int verify(const Args &args, media::LineReader &lines, ListSink &ret_findings,
           media::VerifyReport &ret_report) {
  ret_findings = ListSink();
  Progress progress("check", args.text("--progress", "auto"));
  CountingReader reader(lines, progress);
  media::VerifyOptions options;
  options.payload = args.has("--payload");
  const int result = media::verify_store(reader, options, ret_findings, ret_report);
  progress.clear();
  return result;
}

// The way on for what was found.
std::string way_on(const std::string &address, const ListSink &found) {
  if (!found.superblock.empty()) return unusable_hint(address, found.superblock);
  switch (found.remedy) {
    case media::Remedy::kFormat:
      return "nothing has a second copy of it: kvpool repair " + address +
             " --new-life starts the store anew with its options, and its blocks are lost";
    case media::Remedy::kRepair:
      return "kvpool repair " + address + " mends it, while nobody is attached" +
             (found.serve ? "; the rest is mended by the next owner: kvpool serve " + address : "");
    case media::Remedy::kServe:
      return "kvpool serve " + address + ": the next owner mends it, or drops what it cannot read";
    case media::Remedy::kItself:
      return "whoever uses it next writes it anew: kvpool serve " + address;
    case media::Remedy::kRemove: break;
  }
  unsigned long long number = 0;
  std::sscanf(found.block.c_str(), "entry %llu", &number);
  StoreView view(address);
  std::string removal = "kvpool rm KEY";
  view.for_each_entry([&](const EntryView &at) {
    if (at.number != number) return true;
    for (const NsView &ns : view.namespaces()) {
      if (ns.id != at.entry.ns) continue;
      removal = fmt::format("kvpool rm --hex {} --ns {} --pool {}", entry_key_text(at.entry.key),
                            ns.name, address);
    }
    return false;
  });
  return removal + " removes the first damaged block; so does a member that reads it";
}

}  // namespace

int cmd_check(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  OpenPool pool = open_pool(address, backend::OpenMode::kReadOnly);
  if (args.has("--decode")) return decode_one(args, address, *pool.reader);
  ListSink sink;
  media::VerifyReport report;
  int result = verify(args, *pool.reader, sink, report);
  constexpr int kLooks = 3;
  for (int look = 1; look < kLooks && has_grown(*pool.backend); ++look) {
    pool = open_pool(address, backend::OpenMode::kReadOnly);  // what it has got is not mapped yet
    result = verify(args, *pool.reader, sink, report);
  }
  if (report.superblock_error != 0 && report.superblock_error != -EUCLEAN) {
    media::SuperblockRead superblock{};
    std::string why;
    media::read_superblock(*pool.reader, superblock, &why);
    fail_superblock(address, report.superblock_error, why);
  }
  const bool damaged = result != 0;
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["clean"] = !damaged && sink.list.empty();
    data["damaged"] = damaged;
    data["findings"] = sink.list;
    data["report"] = report_json(report);
    print_json("check", std::move(data));
  } else {
    print_findings(address, sink.list, report, damaged);
  }
  if (const std::string lost = lost_device_of(*pool.backend); damaged && !lost.empty()) {
    fail(kExitDamaged, address, lost, kLostHint);
  }
  if (damaged) {
    fail(kExitDamaged, address,
         fmt::format("damaged, {} findings", report.count(media::Severity::kDamage)),
         way_on(address, sink));
  }
  // What a crash left is no damage, but readers may stumble over it until somebody mends it.
  if (sink.warning_remedy > media::Remedy::kRemove) {
    sink.remedy = sink.warning_remedy;
    std::fputs(("hint: " + way_on(address, sink) + "\n").c_str(), stderr);
  }
  return kExitFine;
}

}  // namespace kvpool::tools
