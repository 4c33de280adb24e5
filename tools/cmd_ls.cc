// SPDX-License-Identifier: Apache-2.0
// kvpool ls: blocks as the index has them.
#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

int cmd_ls(const Args &args) {
  StoreView view(store_address(args, "ADDRESS"));
  if (view.epoch() == 0) fail(kExitDamaged, view.address(), view.why(), "kvpool check says more");
  const auto namespaces = view.namespaces();
  const std::string wanted = args.text("--ns");
  u32 wanted_id = 0;
  for (const NsView &ns : namespaces) {
    if (ns.name == wanted) wanted_id = ns.id;
  }
  if (!wanted.empty() && wanted_id == 0) {
    fail(kExitNothing, "namespace " + wanted, "there is none", "kvpool ns list names them");
  }
  const auto name_of = [&](u32 id) {
    for (const NsView &ns : namespaces) {
      if (ns.id == id) return ns.name;
    }
    return fmt::format("#{}", id);
  };
  const bool all = args.has("--all");
  u64 limit = args.number("--limit", 1000);
  if (limit == 0) limit = UINT64_MAX;
  u64 shown = 0;
  u64 total = 0;
  Json list = Json::array();
  Table table({"key", "namespace", "state", ">bytes", ">shards", ">version", ">entry"});
  view.for_each_entry([&](const EntryView &at) {
    const auto state = at.entry.entry_state();
    if (state == media::EntryState::kEmpty || (!all && state != media::EntryState::kPublished))
      return true;
    if (wanted_id != 0 && at.entry.ns != wanted_id) return true;
    ++total;
    if (shown >= limit) return true;
    ++shown;
    const bool pending = state == media::EntryState::kPending;
    const u64 bytes = pending ? 0 : at.entry.payload_lines() * kLineBytes;
    if (args.json()) {
      list.push_back({{"key", entry_key_text(at.entry.key)},
                      {"namespace", name_of(at.entry.ns)},
                      {"state", entry_state_name(state)},
                      {"bytes", bytes},
                      {"shards", pending ? 0 : at.entry.shards()},
                      {"version", fmt::format("{:x}", at.entry.version)},
                      {"tainted", (at.entry.state & media::kEntryTainted) != 0},
                      {"entry", at.number}});
    } else {
      table.row({entry_key_text(at.entry.key), name_of(at.entry.ns), entry_state_name(state),
                 std::to_string(bytes), pending ? "" : std::to_string(at.entry.shards()),
                 fmt::format("{:x}", at.entry.version), std::to_string(at.number)});
    }
    return true;
  });
  if (args.json()) {
    Json data;
    data["blocks"] = std::move(list);
    data["total"] = total;
    print_json("ls", std::move(data));
  } else if (total != 0) {
    print_text(table.text());
    if (total > shown)
      print_text(fmt::format("... and {} more (--limit 0 prints all)\n", total - shown));
  }
  if (total == 0)
    fail(kExitNothing, wanted.empty() ? view.address() : "namespace " + wanted, "holds no block");
  return kExitFine;
}

}  // namespace kvpool::tools
