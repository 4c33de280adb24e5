// SPDX-License-Identifier: Apache-2.0
// kvpool repair: restores what has a second copy, and clears what needs none. Works under the
// store's format lock, so that nobody formats or takes over meanwhile, and only while nobody is
// attached.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "media/verifier.hpp"
#include "new_life.hpp"
#include "replay/corrupt.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

struct Mend {
  std::string what;
  PoolOffset at{};
  Line line{};
};

class FirstFindings final : public media::FindingSink {
public:
  void found(const media::FindingAt &finding) override {
    list.push_back({{"name", media::finding_name(finding.finding)},
                    {"text", media::finding_text(finding.finding)},
                    {"severity", media::severity_name(media::finding_severity(finding.finding))}});
    if (media::finding_severity(finding.finding) != media::Severity::kDamage) return;
    remedy = std::max(remedy, media::finding_remedy(finding.finding));
  }
  Json list = Json::array();
  media::Remedy remedy = media::Remedy::kItself;
};

bool same_claim(const media::ClaimLine &a, const media::ClaimLine &b) {
  return a.claimed == b.claimed && a.active == b.active;
}

// Superblock: the copy that does not verify is written from the one that does.
void mend_superblock(media::LineReader &reader, const media::SuperblockRead &superblock,
                     std::vector<Mend> &ret_mends) {
  const media::Geometry &geo = superblock.geometry;
  if (superblock.copy_intact[0] == superblock.copy_intact[1]) return;
  const u32 good = superblock.copy_intact[0] ? 0 : 1;
  const u32 bad = 1 - good;
  const media::Sealer sealer(geo.uuid, geo.nonce);
  const PoolOffset at = geo.identity_at(bad);
  const auto identity = media::make_identity(geo, at.device(), geo.state);
  ret_mends.push_back({"superblock copy", at, media::Sealer::sealed_identity(identity)});
  for (u32 i = 0; i < 2; ++i) {
    const PoolOffset line_at = geo.geometry_at(bad, i);
    Line line{};
    if (!reader.read_line(geo.geometry_at(good, i), line)) return;
    sealer.seal(line, line_at, 0);
    ret_mends.push_back({"geometry line", line_at, line});
  }
}

void mend_claims(media::LineReader &reader, const media::Geometry &geo,
                 std::vector<Mend> &ret_mends, Json &ret_beyond) {
  const media::Sealer sealer(geo.uuid, geo.nonce);
  for (u32 slot = 0; slot < geo.standby_count; ++slot) {
    media::ClaimLine claim[2] = {};
    bool intact[2] = {};
    for (u32 copy = 0; copy < 2; ++copy) {
      Line line{};
      const PoolOffset at = geo.claim_at(copy, slot);
      intact[copy] = reader.read_line(at, line) && sealer.intact(line, at, 0);
      if (intact[copy]) claim[copy] = media::from_line<media::ClaimLine>(line);
    }
    if (!intact[0] && !intact[1]) {
      ret_beyond.push_back(fmt::format("claim of standby slot {}: both copies are damaged", slot));
      continue;
    }
    if (intact[0] && intact[1] && same_claim(claim[0], claim[1])) continue;
    u32 good = intact[0] ? 0 : 1;
    if (intact[0] && intact[1]) good = media::better_claim(claim[0], claim[1]) ? 0 : 1;
    const PoolOffset at = geo.claim_at(1 - good, slot);
    ret_mends.push_back({fmt::format("claim copy of standby slot {}", slot), at,
                         sealer.sealed(claim[good], at, 0)});
  }
}

// Whether a line is neither blank nor intact, nor will be at another look.
template <class T>
bool is_damaged(media::LineReader &reader, const media::Sealer &sealer, PoolOffset at, T &ret) {
  constexpr int kLooks = 8;
  for (int look = 0; look < kLooks; ++look) {
    Line line{};
    if (!reader.read_line(at, line)) return false;  // there is nothing to write to
    if (line == Line{}) return false;
    if (!sealer.intact(line, at, 0)) continue;
    ret = media::from_line<T>(line);
    return false;
  }
  return true;
}

// Lines that nobody believes once they are damaged, and that stand as long as nobody has a reason
// to write them. They become what they were formatted as: a host that never was, a reaper and an
// owner that said nothing.
void clear_lines(media::LineReader &reader, const media::Geometry &geo,
                 std::vector<Mend> &ret_mends) {
  const media::Sealer sealer(geo.uuid, geo.nonce);
  for (u32 host = 0; host < geo.host_count; ++host) {
    media::HostLine line{};
    line.incarnation = 1;
    const PoolOffset at = geo.host_at(host);
    const bool bad = is_damaged(reader, sealer, at, line) || line.incarnation == 0;
    if (bad) ret_mends.push_back({fmt::format("line of host {}", host), at});
  }
  for (u32 slot = 0; slot < geo.member_count(); ++slot) {
    media::ReaperLine reaper{};
    reaper.state = static_cast<u8>(media::ReaperState::kNone);
    const PoolOffset at = geo.reaper_at(slot);
    const bool bad = is_damaged(reader, sealer, at, reaper) ||
                     reaper.state < static_cast<u8>(media::ReaperState::kNone) ||
                     reaper.state > static_cast<u8>(media::ReaperState::kQuiet);
    if (bad) ret_mends.push_back({fmt::format("reaper line of member slot {}", slot), at});
    for (u32 standby = 0; standby < geo.standby_count; ++standby) {
      media::NoticeLine notice{};
      const PoolOffset told = geo.notice_at(slot, standby);
      if (!is_damaged(reader, sealer, told, notice)) continue;
      ret_mends.push_back(
          {fmt::format("notice line of member slot {}, standby slot {}", slot, standby), told});
    }
  }
}

// Holds every place of the store that somebody attached would hold; says so when one is taken.
void take_locks(backend::Backend &pool, const media::Geometry &geo, const std::string &address) {
  bool taken = false;
  if (pool.locks().try_lock(backend::LockKind::kFormat, 0) != 0) {
    fail(kExitFailed, address, "somebody formats or repairs it");
  }
  pool.locks().any_elsewhere(backend::LockKind::kMember, 0, geo.member_count(), taken);
  if (taken)
    fail(kExitFailed, address, "members are attached", "kvpool stat names them; stop them first");
}

}  // namespace

int cmd_repair(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  if (args.has("--new-life")) return start_new_life(args, address);
  if (args.has("--force")) fail(kExitUsage, "--force", "needs --new-life as well");
  const bool dry = args.has("--dry-run");
  OpenPool pool =
      open_pool(address, dry ? backend::OpenMode::kReadOnly : backend::OpenMode::kReadWrite);
  if (const std::string lost = lost_device_of(*pool.backend); !lost.empty()) {
    fail(kExitDamaged, address, lost, kLostHint);  // a copy that is written there goes nowhere
  }
  media::SuperblockRead superblock{};
  std::string why;
  const int error = media::read_superblock(*pool.reader, superblock, &why);
  if (error != 0) fail_superblock(address, error, why);
  if (media::may_write(superblock.geometry, &why) != 0) {
    fail(kExitFailed, address, why, "the kvpool that made or last changed it can repair it");
  }
  if (!dry) take_locks(*pool.backend, superblock.geometry, address);
  std::vector<Mend> mends;
  Json beyond = Json::array();
  mend_superblock(*pool.reader, superblock, mends);
  mend_claims(*pool.reader, superblock.geometry, mends, beyond);
  clear_lines(*pool.reader, superblock.geometry, mends);
  if (!mends.empty() && !dry && !args.has("--yes") &&
      !confirmed_by_typing(fmt::format("{} lines of {} will be written.", mends.size(), address),
                           address)) {
    fail(kExitFailed, address, "the repair was not confirmed", "give --yes");
  }
  Json done = Json::array();
  for (const Mend &mend : mends) {
    if (!dry) {
      pool.memory->publish_line(mend.at, mend.line);
      pool.memory->drain_strict(&mend.at, 1);
    }
    done.push_back(
        {{"what", mend.what}, {"at", fmt::format("{}:{}", mend.at.device(), mend.at.byte())}});
  }
  FirstFindings left;
  media::VerifyReport report;
  const int result = media::verify_store(*pool.reader, {}, left, report);
  const bool damaged = result != 0 && !(dry && !mends.empty());
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["dry_run"] = dry;
    data["mended"] = done;
    data["beyond_repair"] = beyond;
    data["left"] = left.list;
    data["new_life"] = nullptr;
    print_json("repair", std::move(data));
  } else {
    for (const Json &one : done) {
      print_text(fmt::format("{}: {} at {}\n", dry ? "would mend" : "mended",
                             one["what"].get<std::string>(), one["at"].get<std::string>()));
    }
    for (const Json &one : beyond) print_text("cannot be mended: " + one.get<std::string>() + "\n");
    if (!dry) {
      for (const Json &one : left.list) {
        print_text(fmt::format("left: {}: {}\n", one["name"].get<std::string>(),
                               one["text"].get<std::string>()));
      }
    }
  }
  if (damaged) {
    const bool serves = left.remedy <= media::Remedy::kServe;
    fail(kExitDamaged, address, "damage is left that has no second copy",
         serves ? "kvpool serve " + address +
                      ": the next owner mends it, or drops what it cannot read"
                : "kvpool repair " + address + " --new-life says what a new store would lose");
  }
  if (mends.empty()) {
    fail(kExitNothing, address, "there is nothing to mend",
         "a block whose bytes are damaged has no second copy: kvpool check --payload " + address +
             " names it, and kvpool rm removes it");
  }
  return kExitFine;
}

}  // namespace kvpool::tools
