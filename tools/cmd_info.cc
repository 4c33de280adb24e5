// SPDX-License-Identifier: Apache-2.0
// kvpool info: identity and geometry of a store.
#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

int cmd_info(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  Json data = store_summary(address);
  if (args.json()) {
    print_json("info", std::move(data));
    return kExitFine;
  }
  const auto number = [&](const char *name) { return data[name].get<std::uint64_t>(); };
  Table table({"", ""});
  table.row({"store", data["address"].get<std::string>()});
  table.row({"id", data["uuid"].get<std::string>()});
  table.row({"life", data["life"].get<std::string>()});
  table.row({"state", data["state"].get<std::string>()});
  table.row({"format", fmt::format("version {}", number("format_version"))});
  for (const Json &device : data["devices"]) {
    table.row({"device", fmt::format("{}  {}", bytes_text(device["bytes"].get<std::uint64_t>()),
                                     device["name"].get<std::string>())});
  }
  if (number("device_count") > 1) {
    table.row({"members' lines", fmt::format("on device {}", number("control_device"))});
  }
  table.row(
      {"blocks",
       fmt::format("{} of {} ({:.2f} % is metadata)", bytes_text(number("data_bytes")),
                   bytes_text(number("pool_bytes")),
                   100.0 * static_cast<double>(number("metadata_bytes")) /
                       static_cast<double>(std::max<std::uint64_t>(1, number("pool_bytes"))))});
  const std::uint64_t retired = number("extents_retired");
  table.row({"extents", fmt::format("{} of {}{}", count_text(number("extents")),
                                    bytes_text(number("extent_bytes")),
                                    retired == 0 ? std::string()
                                                 : fmt::format(", {} more retired", retired))});
  table.row({"may grow", fmt::format("to {}", bytes_text(number("pool_bytes_max")))});
  table.row({"index", fmt::format("{} entries, room for {}", count_text(number("index_entries")),
                                  count_text(number("index_entries_max")))});
  std::string slots;
  bool given = false;
  for (const Json &host : data["standby_hosts"]) {
    slots += slots.empty() ? " of hosts " : ", ";
    slots += host.is_null() ? "any" : std::to_string(host.get<std::uint64_t>());
    given = given || !host.is_null();
  }
  table.row({"members", fmt::format("{} hosts of {}, {} standby slots{}", number("hosts"),
                                    number("members_per_host"), number("standbys"),
                                    given ? slots : "")});
  table.row({"times", fmt::format("lease {} ms, grace {} us, delta {} us", number("lease_ms"),
                                  number("grace_us"), number("delta_us"))});
  table.row({"owner", data["owner_member"].is_null()
                          ? std::string("none yet")
                          : fmt::format("member {} since epoch {}", number("owner_member"),
                                        number("epoch"))});
  print_text(table.text());
  return kExitFine;
}

}  // namespace kvpool::tools
