// SPDX-License-Identifier: Apache-2.0
// kvpool format: a new, empty store. Over an existing one only after a clear yes.
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "backend/backend.hpp"
#include "client.hpp"
#include "commands.hpp"
#include "replay/scratch.hpp"
#include "say.hpp"
#include "store/make.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

// "0,1,any" as host ids; 255: any.
std::vector<std::uint8_t> standby_hosts_of(const Args &args) {
  std::vector<std::uint8_t> hosts;
  if (!args.has("--standby-hosts")) return hosts;
  std::string text = args.text("--standby-hosts", "") + ",";
  for (std::size_t from = 0, to; (to = text.find(',', from)) != std::string::npos; from = to + 1) {
    const std::string one = text.substr(from, to - from);
    unsigned host = 255;
    const char *end = one.data() + one.size();
    const auto parsed = std::from_chars(one.data(), end, host);
    const bool number = parsed.ec == std::errc() && parsed.ptr == end && host < media::kMaxHosts;
    if (one != "any" && !number) {
      fail(kExitUsage, "--standby-hosts", fmt::format("'{}' is neither a host id nor any", one));
    }
    hosts.push_back(static_cast<std::uint8_t>(one == "any" ? media::kAnyHost : host));
  }
  const std::uint64_t slots = args.number("--standbys", hosts.size());
  if (hosts.size() != slots || slots > media::kMaxStandbys) {
    fail(kExitUsage, "--standby-hosts",
         fmt::format("names {} slots, and the store has {}", hosts.size(),
                     std::min<std::uint64_t>(slots, media::kMaxStandbys)));
  }
  return hosts;
}

kvpool_format_opts options_of(const Args &args, const std::vector<std::uint8_t> &standby_hosts) {
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  const auto small = [&](const char *name) {
    return static_cast<std::uint32_t>(args.number(name, 0));
  };
  opts.size_bytes = args.number("--size", 0);
  opts.max_bytes = args.number("--max-size", 0);
  opts.devices = small("--devices");
  opts.block_bytes = small("--block-bytes");
  opts.index_growth = small("--index-growth");
  opts.hosts = small("--hosts");
  opts.members_per_host = small("--members");
  opts.standbys = small("--standbys");
  if (!standby_hosts.empty()) {
    opts.standbys = static_cast<std::uint32_t>(standby_hosts.size());
    opts.standby_hosts = standby_hosts.data();
  }
  opts.width = small("--width");
  opts.namespaces = small("--namespaces");
  opts.lease_ms = small("--lease-ms");
  opts.grace_us = small("--grace-us");
  opts.deadline_ns = deadline_in(600);  // reserving space on a slow disk takes its time
  if (args.has("--yes")) opts.flags |= KVPOOL_FORMAT_F_YES;
  if (args.has("--force")) opts.flags |= KVPOOL_FORMAT_F_FORCE;
  return opts;
}

// What kvpool_format() refused, with the way on.
void refuse_as_format(const std::string &address, int result) {
  if (result >= 0) return;
  std::string why = kvpool_strerror_detail(nullptr);
  if (why.starts_with(address + ": ")) why.erase(0, address.size() + 2);
  std::string hint;
  if (result == -EBUSY) hint = "stop who is attached (kvpool stat names them), or add --force";
  if (result == -EEXIST) {
    hint = why.find("force") != std::string::npos ? "add --yes --force; what is there is lost"
                                                  : "add --yes; what is there is lost";
  }
  const bool wrong = result == -EINVAL || result == -E2BIG;
  fail(wrong ? kExitUsage : exit_code_of(result), address, std::move(why), std::move(hint));
}

// Whether the file systems have room for what is new; format itself reserves it.
void refuse_without_room(const std::string &address, const media::Geometry &geo, bool there) {
  backend::Address where;
  if (there || !backend::parse_address(address.c_str(), where).ok()) return;
  if (backend::Backend::exists(where)) return;
  std::string folder = "/dev/shm";
  if (where.scheme == backend::Scheme::kFile) {
    folder = std::filesystem::absolute(where.paths.front()).parent_path();
    if (access(folder.c_str(), W_OK) != 0) {
      fail(exit_code_of(errno), folder, std::strerror(errno));
    }
  } else if (where.scheme != backend::Scheme::kMem) {
    return;
  }
  const std::uint64_t room = free_bytes(folder);
  if (room < geo.pool_bytes()) {
    fail(kExitFailed, address,
         fmt::format("no space: {} has {} free of the {} needed", folder, bytes_text(room),
                     bytes_text(geo.pool_bytes())));
  }
}

// Another may have begun to format the same place since: then it is its store that is told of.
Json summary_of_new(const std::string &address) {
  constexpr int kLooks = 200;
  for (int look = 1;; ++look) {
    try {
      return store_summary(address);
    } catch (const Failure &) {
      if (look == kLooks) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void report(const Args &args, const std::string &address, bool replaced) {
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["replaced"] = replaced;
    data["dry_run"] = false;
    data["store"] = summary_of_new(address);
    print_json("format", std::move(data));
    return;
  }
  const Json store = summary_of_new(address);
  print_text(fmt::format("{}: formatted, {} for blocks on {} device(s), id {}\n", address,
                         bytes_text(store["data_bytes"].get<std::uint64_t>()),
                         store["device_count"].get<std::uint64_t>(),
                         store["uuid"].get<std::string>()));
}

// Plans as kvpool_format() would and says what it would choose.
media::Layout planned(const std::string &address, const kvpool_format_opts &opts) {
  store::MakeOptions make;
  make.size_bytes = opts.size_bytes;
  make.layout.max_bytes = opts.max_bytes;
  make.devices = opts.devices;
  make.yes = (opts.flags & KVPOOL_FORMAT_F_YES) != 0;
  make.force = (opts.flags & KVPOOL_FORMAT_F_FORCE) != 0;
  make.dry_run = true;
  make.layout.hosts = opts.hosts;
  make.layout.members_per_host = opts.members_per_host;
  make.layout.standbys = opts.standbys;
  make.layout.standby_host = opts.standby_hosts;
  make.layout.width = opts.width;
  make.layout.min_block_bytes = opts.block_bytes;
  make.layout.block_bytes = opts.block_bytes;
  make.layout.index_growth = opts.index_growth;
  make.layout.namespaces = opts.namespaces;
  make.layout.lease_ms = opts.lease_ms;
  make.layout.grace_us = opts.grace_us;
  media::Layout layout{};
  std::string why;
  const int error = store::make_store(address.c_str(), make, &layout, &why);
  if (error != 0) fail_errno(address, error, why);
  return layout;
}

void dry_run(const Args &args, const std::string &address, kvpool_format_opts opts, bool there) {
  opts.flags |= KVPOOL_FORMAT_F_DRY_RUN;
  refuse_as_format(address, kvpool_format(address.c_str(), &opts));
  const media::Layout layout = planned(address, opts);
  const media::Geometry &geo = layout.geometry;
  refuse_without_room(address, geo, there);
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["replaced"] = there;
    data["dry_run"] = true;
    data["plan"] = plan_json(layout);
    print_json("format", std::move(data));
    return;
  }
  print_text(fmt::format("{}: would be {}, {}", address,
                         there ? "formatted over an existing store" : "formatted",
                         plan_text(layout)));
}

// The address and an option may both name a size; they must not contradict each other.
void refuse_contradictions(const Args &args, const std::string &address) {
  backend::Address where;
  if (!backend::parse_address(address.c_str(), where).ok()) return;  // whoever uses it says so
  if (args.has("--size") && where.size && *where.size != args.number("--size", 0)) {
    fail(kExitUsage, "--size",
         fmt::format("is {} and the address says {}", args.text("--size"),
                     backend::format_size(*where.size)),
         "give the size once");
  }
  if (args.has("--devices") && where.devices && *where.devices != args.number("--devices", 0)) {
    fail(kExitUsage, "--devices",
         fmt::format("is {} and the address says {}", args.text("--devices"), *where.devices),
         "give the number once");
  }
}

}  // namespace

int cmd_format(const Args &args) {
  const std::string address = args.text("ADDRESS");
  if (args.has("--force") && !args.has("--yes")) {
    fail(kExitUsage, "--force", "needs --yes as well");
  }
  refuse_contradictions(args, address);
  const bool there = store_exists(address);
  const std::vector<std::uint8_t> standby_hosts = standby_hosts_of(args);
  kvpool_format_opts opts = options_of(args, standby_hosts);
  if (args.has("--dry-run")) {
    if (there && !args.has("--yes")) {
      fail(kExitFailed, address, "a store is there, and would be lost",
           "give --yes to format over it");
    }
    dry_run(args, address, opts, there);
    return kExitFine;
  }
  if (there && !args.has("--yes")) {
    if (!confirmed_by_typing(fmt::format("{} holds a store. Its blocks will be lost.", address),
                             address)) {
      fail(kExitFailed, address, "a store is there, and was left as it is",
           "give --yes to format over it; its blocks are lost");
    }
    opts.flags |= KVPOOL_FORMAT_F_YES;
  }
  refuse_as_format(address, kvpool_format(address.c_str(), &opts));
  report(args, address, there);
  return kExitFine;
}

}  // namespace kvpool::tools
