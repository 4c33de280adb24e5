// SPDX-License-Identifier: Apache-2.0
#include "new_life.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

#include "media/verifier.hpp"
#include "say.hpp"
#include "store/make.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

// What stands there now, and how far it can be read.
struct Before {
  media::Geometry geometry{};
  media::VerifyReport report;
  Json damage = Json::array();
  media::Remedy remedy = media::Remedy::kItself;  // of the damage
  media::Remedy less = media::Remedy::kItself;    // of all that was found
};

class Damage final : public media::FindingSink {
public:
  explicit Damage(Before &to) : to_(to) {}
  void found(const media::FindingAt &finding) override {
    to_.less = std::max(to_.less, media::finding_remedy(finding.finding));
    if (media::finding_severity(finding.finding) != media::Severity::kDamage) return;
    to_.remedy = std::max(to_.remedy, media::finding_remedy(finding.finding));
    to_.damage.push_back({{"name", media::finding_name(finding.finding)},
                          {"text", media::finding_text(finding.finding)},
                          {"severity", "damage"}});
  }

private:
  Before &to_;
};

Before look_at(const std::string &address) {
  const OpenPool pool = open_pool(address, backend::OpenMode::kReadOnly);
  Before before;
  media::SuperblockRead superblock{};
  std::string why;
  const int error = media::read_superblock(*pool.reader, superblock, &why);
  if (error == -EUCLEAN && why.find("truncated") == std::string::npos) {
    fail(kExitDamaged, address, "no copy of the superblock tells the store's options: " + why,
         format_command(address, Over::kDamaged) +
             "; with the options that it was made with, where they were others than the defaults");
  }
  if (error != 0) fail_superblock(address, error, why);
  if (media::may_write(superblock.geometry, &why) != 0) {
    fail(kExitFailed, address, why, "the kvpool that made or last changed it knows its options");
  }
  before.geometry = superblock.geometry;
  Damage sink(before);
  media::verify_store(*pool.reader, {}, sink, before.report);
  return before;
}

void refuse_where_less_helps(const std::string &address, const Before &before) {
  if (before.remedy == media::Remedy::kFormat) return;
  std::string hint = "kvpool format makes a new store whatever stands there";
  if (before.less == media::Remedy::kRepair) hint = "kvpool repair " + address + " mends it";
  if (before.less == media::Remedy::kServe) {
    hint = "kvpool serve " + address + ": the next owner mends it, or drops what it cannot read";
  }
  if (before.less == media::Remedy::kRemove) {
    hint = "kvpool check --payload " + address + " names the block, and kvpool rm removes it";
  }
  fail(kExitNothing, address, "there is nothing that only a new life would mend", std::move(hint));
}

std::string lost_text(const media::VerifyReport &report) {
  if (!report.area_known) return "all blocks; nobody can tell how many";
  return fmt::format("all blocks, {} that are published, and {} namespaces",
                     report.entries[static_cast<u32>(media::EntryState::kPublished)],
                     report.namespaces);
}

Json lost_json(const media::VerifyReport &report) {
  if (!report.area_known) return {{"blocks", Json()}, {"namespaces", Json()}};
  return {{"blocks", report.entries[static_cast<u32>(media::EntryState::kPublished)]},
          {"namespaces", report.namespaces}};
}

}  // namespace

int start_new_life(const Args &args, const std::string &address) {
  const Before before = look_at(address);
  refuse_where_less_helps(address, before);
  const bool dry = args.has("--dry-run") || !args.has("--yes");
  store::MakeOptions make;
  make.layout = media::options_of(before.geometry);
  make.yes = true;
  make.force = args.has("--force");
  make.dry_run = dry;
  media::Layout layout{};
  std::string why;
  const int error = store::make_store(address.c_str(), make, &layout, &why);
  if (error != 0) {
    if (why.starts_with(address + ": ")) why.erase(0, address.size() + 2);
    fail(exit_code_of(error), address, std::move(why),
         error == -EBUSY ? "stop who is attached (kvpool stat names them), or add --force" : "");
  }
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["dry_run"] = dry;
    data["mended"] = Json::array();
    data["beyond_repair"] = Json::array();
    data["left"] = dry ? before.damage : Json::array();
    data["new_life"] = {{"started", !dry},
                        {"lost", lost_json(before.report)},
                        {"store", plan_json(layout)}};
    print_json("repair", std::move(data));
    return kExitFine;
  }
  for (const Json &one : before.damage) {
    print_text(fmt::format("damaged: {}: {}\n", one["name"].get<std::string>(),
                           one["text"].get<std::string>()));
  }
  print_text(fmt::format("{}: {} a new life: {}lost: {}\n", address,
                         dry ? "would start" : "started", plan_text(layout),
                         lost_text(before.report)));
  if (dry && !args.has("--dry-run")) {
    std::fputs("hint: add --yes to start it; nothing was changed\n", stderr);
  }
  return kExitFine;
}

}  // namespace kvpool::tools
