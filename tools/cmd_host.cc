// SPDX-License-Identifier: Apache-2.0
// kvpool host: a host that is lost for ever. Fencing it says, on an operator's word, that none of
// its members will ever store again: their slots' reaper lines become QUIET, and the owner takes
// back what they held at once instead of after a quarantine (proto 6, 14). On partitions of the
// driver the same word is for both: units that wait for the host pass on, too.
#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

// The lines by which others see a host move.
std::vector<u64> pulse(StoreView &view, u32 host) {
  std::vector<u64> counters;
  for (const MemberView &member : view.members()) {
    if (member.host != host) continue;
    counters.push_back(member.line.incarnation);
    counters.push_back(member.line.counter);
  }
  Line line{};
  const PoolOffset at = view.geometry().host_at(host);
  if (view.reader().read_line(at, line) && view.sealer().intact(line, at, 0)) {
    counters.push_back(media::from_line<media::HostLine>(line).counter);
  }
  return counters;
}

// Nothing of the host may move for a whole lease. Whoever lives on this machine holds its slot's
// lock, however long it has stood still.
void must_be_still(StoreView &view, u32 host) {
  const media::Geometry &geo = view.geometry();
  const u32 first = host * geo.members_per_host;
  bool taken = false;
  view.backend().locks().any_elsewhere(backend::LockKind::kMember, first,
                                       first + geo.members_per_host, taken);
  if (taken) {
    fail(kExitFailed, view.address(),
         fmt::format("host {} is alive: processes of this machine hold its slots", host),
         "kvpool stat names them; end them first");
  }
  const std::vector<u64> before = pulse(view, host);
  const u64 until = now_ns() + u64{geo.lease_ms} * 1'100'000;
  while (now_ns() < until && !stop_requested()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (pulse(view, host) == before) continue;
    fail(kExitFailed, view.address(), fmt::format("host {} is alive: its lines move", host),
         "a host that is on must not be fenced");
  }
  if (stop_requested()) fail(kExitFailed, view.address(), "interrupted; nothing was written");
}

void write_quiet(OpenPool &pool, const StoreView &view, const MemberView &member) {
  media::ReaperLine reaper{};
  reaper.incarnation = member.line.incarnation;
  reaper.state = static_cast<u8>(media::ReaperState::kQuiet);
  const PoolOffset at = view.geometry().reaper_at(member.slot);
  pool.memory->publish_line(at, view.sealer().sealed(reaper, at, 0));
  pool.memory->drain_strict(&at, 1);
}

// By an earlier fence, or by an owner that got the slot's lock.
bool fenced_before(StoreView &view, const MemberView &member) {
  const PoolOffset at = view.geometry().reaper_at(member.slot);
  Line line{};
  if (!view.reader().read_line(at, line) || !view.sealer().intact(line, at, 0)) return false;
  const auto reaper = media::from_line<media::ReaperLine>(line);
  return reaper.incarnation == member.line.incarnation &&
         reaper.state == static_cast<u8>(media::ReaperState::kQuiet);
}

// The driver of the partitions below, for which a host's memory waits as well. Null: that host
// never came to it.
Json fence_driver(u32 host, bool dry, std::string &text) {
  try {
    const DriverFence fence = fence_in_driver(host, dry);
    text += fmt::format("{} in the driver: incarnation {:016x}, {} units waited for it\n",
                        fence.before ? "fenced already"
                        : dry        ? "would fence"
                                     : "fenced",
                        fence.incarnation, fence.held_units);
    return {{"incarnation", fmt::format("{:016x}", fence.incarnation)},
            {"held_units", fence.held_units},
            {"before", fence.before}};
  } catch (const Failure &failure) {
    if (failure.code != kExitNothing) throw;
    return {};
  }
}

}  // namespace

int cmd_host(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  const auto host = static_cast<u32>(args.number("ID", 0));
  const bool dry = args.has("--dry-run");
  stop_on_signals();
  StoreView view(address);
  if (host >= view.geometry().host_count) {
    fail(kExitUsage, "ID", fmt::format("the store has hosts 0 to {}",
                                       view.geometry().host_count - 1));
  }
  if (!dry && !args.has("--confirmed")) {
    fail(kExitFailed, address, "the fence was not confirmed",
         fmt::format("give --confirmed if host {} is off and stays off", host));
  }
  must_be_still(view, host);
  Json driver;
  std::string text;
  if (address.starts_with("dev:")) driver = fence_driver(host, dry, text);
  OpenPool pool =
      open_pool(address, dry ? backend::OpenMode::kReadOnly : backend::OpenMode::kReadWrite);
  Json fenced = Json::array();
  for (const MemberView &member : view.members()) {
    if (member.host != host || !member.joined) continue;
    const bool before = fenced_before(view, member);
    if (!dry && !before) write_quiet(pool, view, member);
    fenced.push_back({{"slot", member.slot}, {"name", member.name}, {"before", before}});
    text += fmt::format("{} slot {} {}\n",
                        before ? "fenced already, or seen to be gone:"
                        : dry  ? "would fence"
                               : "fenced",
                        member.slot, member.name);
  }
  must_be_mapped(*pool.backend);
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["host"] = host;
    data["dry_run"] = dry;
    data["fenced"] = fenced;
    if (!driver.is_null()) data["driver"] = driver;
    print_json("host", std::move(data));
  } else {
    print_text(text);
  }
  if (!fenced.empty() || !driver.is_null()) return kExitFine;
  fail(kExitNothing, address, fmt::format("host {} has no member that did not leave", host),
       "nothing needs a fence; kvpool stat lists members and their hosts");
}

}  // namespace kvpool::tools
