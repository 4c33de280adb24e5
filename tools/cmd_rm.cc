// SPDX-License-Identifier: Apache-2.0
// kvpool rm: removes blocks by key.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {

int cmd_rm(const Args &args) {
  const std::string address = store_address(args, "--pool");
  const std::string name = args.text("--ns", "default");
  const bool dry = args.has("--dry-run");
  OpenAs as;
  as.name = "rm";
  if (dry) as.flags = KVPOOL_OPEN_F_READ_ONLY;
  Context ctx = open_store(address, as);
  Namespace ns = open_namespace(ctx.get(), name, args, false);
  std::vector<kvpool_key> keys;
  for (const std::string &text : args.all("KEY")) keys.push_back(key_of(ns.get(), text, args));
  // A key that is named twice is one block.
  const auto order = [](const kvpool_key &a, const kvpool_key &b) {
    return std::memcmp(a.bytes, b.bytes, sizeof a.bytes);
  };
  std::sort(keys.begin(), keys.end(), [&](auto &a, auto &b) { return order(a, b) < 0; });
  const auto same = [&](auto &a, auto &b) { return order(a, b) == 0; };
  keys.erase(std::unique(keys.begin(), keys.end(), same), keys.end());
  const std::uint64_t deadline = deadline_in(args.real("--timeout", 5));
  std::uint64_t removed = 0;
  if (dry) {
    std::vector<kvpool_hit> hits(keys.size());
    checked(kvpool_lookup(ns.get(), keys.data(), keys.size(), KVPOOL_LOOKUP_F_ALL, deadline,
                          hits.data()),
            ctx.get(), address);
    for (const kvpool_hit &hit : hits) removed += hit.state == KVPOOL_STATE_HIT ? 1 : 0;
  } else {
    removed = static_cast<std::uint64_t>(
        checked(kvpool_remove(ns.get(), keys.data(), keys.size(), deadline), ctx.get(), address));
  }
  if (args.json()) {
    Json data;
    data["asked"] = keys.size();
    data["removed"] = removed;
    data["dry_run"] = dry;
    print_json("rm", std::move(data));
  } else {
    print_text(
        fmt::format("{} of {} {}\n", removed, keys.size(), dry ? "would be removed" : "removed"));
  }
  if (removed == 0) fail(kExitNothing, name, "there is no such block");
  return kExitFine;
}

}  // namespace kvpool::tools
