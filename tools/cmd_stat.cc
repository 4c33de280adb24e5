// SPDX-License-Identifier: Apache-2.0
// kvpool stat: how full a store is, who is attached, who owns it.
#include <thread>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "liveness.hpp"
#include "stat_report.hpp"

namespace kvpool::tools {

namespace {

// An owner that lives moves its heartbeat every tenth of a second at least.
constexpr double kOwnerSilence = 1;

// Members whose lock says nothing are looked at again until all their heartbeats moved, or for half
// a lease: each living one moves several times meanwhile. So is the owner, for its own time.
std::vector<bool> moved(StoreView &view, const std::vector<MemberView> &before) {
  std::vector<bool> moves(before.size());
  const auto tells = [&](const MemberView &member) {
    const bool owns = view.epoch() != 0 && member.slot == view.owner_slot() && member.alive;
    return member.joined && (!member.lock_known || owns);
  };
  const std::uint64_t until = deadline_in(view.geometry().lease_ms / 2000.0);
  const std::uint64_t owner_until = deadline_in(kOwnerSilence);
  for (;;) {
    bool open = false;
    const std::vector<MemberView> now = view.members();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!tells(before[i]) || moves[i]) continue;
      for (const MemberView &again : now) {
        if (again.slot != before[i].slot) continue;
        moves[i] = again.line.incarnation != before[i].line.incarnation ||
                   again.line.counter != before[i].line.counter;
      }
      open = open || (!moves[i] && now_ns() < (before[i].lock_known ? owner_until : until));
    }
    if (!open || stop_requested()) return moves;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

Json stat_of(StoreView &view) {
  view.refresh();
  const IndexCounts index = view.count_index();
  const ExtentCounts extents = view.count_extents(index);
  Json stat;
  stat["address"] = view.address();
  stat["uuid"] = uuid_text(view.geometry().uuid);
  stat["epoch"] = view.epoch();
  const auto members = view.members();
  bool owned = false, hangs = false;
  stat["members"] = Json::array();
  const std::vector<bool> moves = moved(view, members);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const MemberView &member = members[i];
    const Liveness life = liveness({member.joined, member.lock_known, member.alive, moves[i]});
    const bool owner = view.epoch() != 0 && member.slot == view.owner_slot() &&
                       life == Liveness::kAlive;
    owned = owned || owner;
    hangs = hangs || (owner && !moves[i]);
    stat["members"].push_back({{"slot", member.slot},
                               {"host", member.host},
                               {"name", member.name},
                               {"pid", member.line.pid},
                               {"state", liveness_name(life)},
                               {"owner", owner},
                               {"heartbeat", member.line.counter},
                               {"rank", member.line.rank},
                               {"holds", (member.line.flags & media::kMemberHolds) != 0},
                               {"pins", (member.line.flags & media::kMemberPins) != 0}});
  }
  stat["owned"] = owned;
  stat["owner_hangs"] = hangs;
  stat["control_device"] = view.geometry().control_device();
  stat["blocks"] = {{"published", index.published},   {"pending", index.pending},
                    {"draining", index.draining},     {"hidden", index.hidden},
                    {"unreadable", index.unreadable}, {"bytes", index.published_bytes},
                    {"entries", view.entry_count()}};
  const u64 extent_bytes = view.geometry().extent_bytes();
  stat["space"] = {{"data_bytes", view.regions().payload_bytes()},
                   {"extent_bytes", extent_bytes},
                   {"extents_owner", extents.owner},
                   {"extents_members", extents.members},
                   {"extents_former", extents.former},
                   {"extents_tainted", extents.tainted},
                   {"extents_unreadable", extents.unreadable},
                   {"extents_retired", view.regions().retired},
                   {"largest_free_run_bytes", extents.largest_free_run * extent_bytes}};
  stat["namespaces"] = Json::array();
  for (const NsView &ns : view.namespaces()) {
    const bool known = ns.id < index.by_ns.size();
    stat["namespaces"].push_back({{"name", ns.name},
                                  {"id", ns.id},
                                  {"blocks", known ? index.by_ns[ns.id].published : 0},
                                  {"bytes", known ? index.by_ns[ns.id].bytes : 0},
                                  {"quota_bytes", ns.line.quota_bytes},
                                  {"weight", ns.line.weight},
                                  {"epoch", ns.line.epoch},
                                  {"bypassed", (ns.line.flags & media::kNsBypass) != 0}});
  }
  return stat;
}

std::string owner_hangs_text(const Json &stat) {
  for (const Json &member : stat["members"]) {
    if (!member["owner"].get<bool>()) continue;
    return fmt::format("its owner hangs: the heartbeat of {} (pid {}) stands still",
                       member["name"].get<std::string>(), member["pid"].get<std::uint64_t>());
  }
  return "its owner hangs";
}

std::string stat_text(const Json &stat) {
  const Json &blocks = stat["blocks"];
  const Json &space = stat["space"];
  const auto number = [](const Json &value) { return value.get<std::uint64_t>(); };
  const double full = number(space["data_bytes"]) == 0
                          ? 0
                          : 100.0 * static_cast<double>(number(blocks["bytes"])) /
                                static_cast<double>(number(space["data_bytes"]));
  std::string text = fmt::format("{}  {}\n", stat["address"].get<std::string>(),
                                 !stat["owned"].get<bool>()        ? "not served: kvpool serve"
                                 : stat["owner_hangs"].get<bool>() ? owner_hangs_text(stat)
                                                                   : "served");
  text += fmt::format("{} blocks, {} of {} ({:.1f} %), epoch {}\n",
                      count_text(number(blocks["published"])), bytes_text(number(blocks["bytes"])),
                      bytes_text(number(space["data_bytes"])), full, number(stat["epoch"]));
  text += fmt::format("{} pending, {} draining, {} hidden, {} unreadable entries\n",
                      number(blocks["pending"]), number(blocks["draining"]),
                      number(blocks["hidden"]), number(blocks["unreadable"]));
  text +=
      fmt::format("extents: {} owner, {} members, {} former life, {} tainted, {} unreadable, {} "
                  "retired; {} free in one run\n\n",
                  number(space["extents_owner"]), number(space["extents_members"]),
                  number(space["extents_former"]), number(space["extents_tainted"]),
                  number(space["extents_unreadable"]), number(space["extents_retired"]),
                  bytes_text(number(space["largest_free_run_bytes"])));
  if (number(stat["control_device"]) != 0) {  // one was lost at some time
    text.pop_back();
    text += fmt::format("members' lines on device {}\n\n", number(stat["control_device"]));
  }
  Table members({">slot", ">host", "name", ">pid", "state", "role", ">heartbeat"});
  for (const Json &member : stat["members"]) {
    if (member["state"] == "left") continue;
    members.row({std::to_string(number(member["slot"])), std::to_string(number(member["host"])),
                 member["name"].get<std::string>(), std::to_string(number(member["pid"])),
                 member["state"].get<std::string>(), member["owner"].get<bool>() ? "owner" : "",
                 count_text(number(member["heartbeat"]))});
  }
  text += members.text() + "\n";
  Table namespaces({"namespace", ">id", ">blocks", ">bytes", ">quota", ">weight", "state"});
  for (const Json &ns : stat["namespaces"]) {
    namespaces.row({ns["name"].get<std::string>(), std::to_string(number(ns["id"])),
                    count_text(number(ns["blocks"])), bytes_text(number(ns["bytes"])),
                    number(ns["quota_bytes"]) == 0 ? "none" : bytes_text(number(ns["quota_bytes"])),
                    std::to_string(number(ns["weight"])),
                    ns["bypassed"].get<bool>() ? "bypassed" : ""});
  }
  return text + namespaces.text();
}

int cmd_stat(const Args &args) {
  StoreView view(store_address(args, "ADDRESS"));
  view.must_be_readable();
  if (!view.lost_device().empty()) warn(view.lost_device());
  const bool watch = args.has("--watch");
  const double seconds = args.real("--watch", 1);
  if (watch && !(seconds > 0 && seconds < 1e6))
    fail(kExitUsage, "--watch", "expected more than 0 seconds");
  const std::uint64_t times = watch ? args.number("--count", UINT64_MAX) : 1;
  if (!watch && args.has("--count")) fail(kExitUsage, "--count", "needs --watch");
  stop_on_signals();
  for (std::uint64_t i = 0; i < times && !stop_requested(); ++i) {
    if (i != 0) {
      const std::uint64_t until = deadline_in(seconds);
      while (now_ns() < until && !stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      if (stop_requested()) break;
    }
    const Json stat = stat_of(view);
    if (args.json()) {
      print_json("stat", stat);
    } else {
      print_text((i == 0 ? "" : "\n") + stat_text(stat));
    }
  }
  return kExitFine;
}

}  // namespace kvpool::tools
