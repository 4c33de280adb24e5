// SPDX-License-Identifier: Apache-2.0
// kvpool format: a new, empty store. Over an existing one only after a clear yes.
#include <cerrno>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

kvpool_format_opts options_of(const Args &args) {
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  const auto small = [&](const char *name) {
    return static_cast<std::uint32_t>(args.number(name, 0));
  };
  opts.size_bytes = args.number("--size", 0);
  opts.devices = small("--devices");
  opts.block_bytes = small("--block-bytes");
  opts.hosts = small("--hosts");
  opts.members_per_host = small("--members");
  opts.standbys = small("--standbys");
  opts.width = small("--width");
  opts.namespaces = small("--namespaces");
  opts.lease_ms = small("--lease-ms");
  opts.grace_us = small("--grace-us");
  opts.deadline_ns = deadline_in(600);  // reserving space on a slow disk takes its time
  if (args.has("--yes")) opts.flags |= KVPOOL_FORMAT_F_YES;
  if (args.has("--force")) opts.flags |= KVPOOL_FORMAT_F_FORCE;
  return opts;
}

void report(const Args &args, const std::string &address, bool replaced, bool dry) {
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["replaced"] = replaced;
    data["dry_run"] = dry;
    if (!dry) data["store"] = store_summary(address);
    print_json("format", std::move(data));
    return;
  }
  if (dry) {
    print_text(fmt::format("{}: would be {}\n", address,
                           replaced ? "formatted over an existing store" : "formatted"));
    return;
  }
  const Json store = store_summary(address);
  print_text(fmt::format("{}: formatted, {} for blocks on {} device(s), id {}\n", address,
                         bytes_text(store["data_bytes"].get<std::uint64_t>()),
                         store["device_count"].get<std::uint64_t>(),
                         store["uuid"].get<std::string>()));
}

}  // namespace

int cmd_format(const Args &args) {
  const std::string address = args.text("ADDRESS");
  if (args.has("--force") && !args.has("--yes")) {
    fail(kExitUsage, "--force", "needs --yes as well");
  }
  const bool there = store_exists(address);
  if (args.has("--dry-run")) {
    if (there && !args.has("--yes")) {
      fail(kExitFailed, address, "a store is there, and would be lost",
           "give --yes to format over it");
    }
    report(args, address, there, true);
    return kExitFine;
  }
  kvpool_format_opts opts = options_of(args);
  if (there && !args.has("--yes")) {
    if (!confirmed_by_typing(fmt::format("{} holds a store. Its blocks will be lost.", address),
                             address)) {
      fail(kExitFailed, address, "a store is there, and was left as it is",
           "give --yes to format over it; its blocks are lost");
    }
    opts.flags |= KVPOOL_FORMAT_F_YES;
  }
  const int result = kvpool_format(address.c_str(), &opts);
  if (result == -EBUSY) {
    fail(kExitFailed, address, kvpool_strerror_detail(nullptr),
         "stop who is attached (kvpool stat names them), or add --force");
  }
  checked(result, nullptr, address);
  report(args, address, there, false);
  return kExitFine;
}

}  // namespace kvpool::tools
