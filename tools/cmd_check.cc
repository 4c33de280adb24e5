// SPDX-License-Identifier: Apache-2.0
// kvpool check: the verifier, and single lines in words.
#include <cerrno>

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
  }
  Json list = Json::array();
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

// "claim:1", "entry:77" or "0:4096" to an address.
PoolOffset place_of(const std::string &text, const media::StoreView &view) {
  const media::Geometry &geo = view.geometry();
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string name = text.substr(0, colon);
  std::uint64_t number = 0;
  if (colon < text.size() && !parse_bytes(text.substr(colon + 1), number)) {
    fail(kExitUsage, "--decode", "'" + text + "' has no number behind the colon");
  }
  std::uint64_t device = 0;
  if (parse_count(name, device)) {
    if (device >= geo.device_count || number % kLineBytes != 0 ||
        number >= geo.device_bytes[device]) {
      fail(kExitUsage, "--decode", "'" + text + "' is no line of the store",
           fmt::format("a line's byte is a multiple of {}", kLineBytes));
    }
    return PoolOffset(static_cast<u32>(device), number);
  }
  const auto index = static_cast<u32>(number);
  const auto below = [&](u64 count) {
    if (number >= count)
      fail(kExitUsage, "--decode", fmt::format("'{}': there are {} of them", text, count));
  };
  if (name == "superblock") return below(2), geo.identity_at(index);
  if (name == "geometry") return below(4), geo.geometry_at(index / 2, index % 2);
  if (name == "claim")
    return below(u64{2} * geo.standby_count),
           geo.claim_at(index / geo.standby_count, index % geo.standby_count);
  if (name == "host") return below(geo.host_count), geo.host_at(index);
  if (name == "doorbell") return below(geo.host_count), geo.doorbell_at(index);
  if (name == "member") return below(geo.member_count()), geo.member_at(index);
  if (name == "reaper") return below(geo.member_count()), geo.reaper_at(index);
  if (name == "region" || name == "ns" || name == "extent" || name == "entry") {
    if (!view.area_known)
      fail(kExitDamaged, "--decode", "no area can be trusted, so its lines have no address");
    if (name == "region")
      return below(media::kMaxRegions), geo.region_line(view.area(), index * media::kRegionLines);
    if (name == "ns") return below(geo.namespace_lines), geo.ns_line(view.area(), index);
    if (name == "extent")
      return below(view.regions.extent_count()),
             geo.map_line(view.area(), number / media::kMapRecordsPerLine);
    return below(view.active().index_groups * media::kGroupLines),
           geo.entry_line(view.area(), number);
  }
  fail(kExitUsage, "--decode", "'" + name + "' is no kind of line",
       "superblock geometry claim host doorbell member reaper region ns extent entry, or "
       "DEVICE:BYTE");
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
  print_text(fmt::format("{}: {}: {} blocks published, {} lines read, {} damage, {} warnings\n",
                         address, damaged ? "DAMAGED" : "clean",
                         count_text(sums["published"].get<u64>()), count_text(report.lines_read),
                         sums["damage"].get<u64>(), sums["warnings"].get<u64>()));
}

// Findings about one block's bytes: it goes, and the store is whole again.
bool of_a_block(const std::string &name) {
  return name == "payload" || name == "check-line" || name == "check-field" ||
         name == "check-table";
}

// The way on for what was found. Repair writes what has a second copy; a block has none.
std::string way_on(const std::string &address, const Json &findings) {
  unsigned long long number = 0;
  bool blocks = false;
  for (const Json &finding : findings) {
    if (finding["severity"].get<std::string>() != "damage") continue;
    const auto name = finding["name"].get<std::string>();
    if (name == "superblock") return unusable_hint(address, finding["detail"].get<std::string>());
    if (!of_a_block(name)) {
      return "kvpool repair " + address + "; what it cannot mend goes with kvpool format " +
             address + " --yes";
    }
    if (!blocks) std::sscanf(finding["detail"].get<std::string>().c_str(), "entry %llu", &number);
    blocks = true;
  }
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
  Progress progress("check", args.text("--progress", "auto"));
  CountingReader reader(*pool.reader, progress);
  media::VerifyOptions options;
  options.payload = args.has("--payload");
  ListSink sink;
  media::VerifyReport report;
  const int result = media::verify_store(reader, options, sink, report);
  progress.clear();
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
  if (damaged) {
    fail(kExitDamaged, address,
         fmt::format("damaged, {} findings", report.count(media::Severity::kDamage)),
         way_on(address, sink.list));
  }
  return kExitFine;
}

}  // namespace kvpool::tools
