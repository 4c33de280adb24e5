// SPDX-License-Identifier: Apache-2.0
// kvpool top: stat, redrawn, with rates of what changed since the last picture.
#include <unistd.h>

#include <thread>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "stat_report.hpp"

namespace kvpool::tools {

namespace {

Json rates_of(const Json &before, const Json &now, double seconds) {
  const auto rate = [&](const Json &a, const Json &b) {
    return (b.get<double>() - a.get<double>()) / seconds;
  };
  Json rates;
  rates["seconds"] = seconds;
  rates["blocks_per_second"] = rate(before["blocks"]["published"], now["blocks"]["published"]);
  rates["bytes_per_second"] = rate(before["blocks"]["bytes"], now["blocks"]["bytes"]);
  return rates;
}

}  // namespace

int cmd_top(const Args &args) {
  StoreView view(store_address(args, "ADDRESS"));
  view.must_be_readable();
  const double interval = args.real("--interval", 1);
  if (!(interval > 0 && interval < 1e6))
    fail(kExitUsage, "--interval", "expected more than 0 seconds");
  const std::uint64_t times = args.number("--count", UINT64_MAX);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  stop_on_signals();
  Json before;
  std::uint64_t before_ns = 0;
  for (std::uint64_t i = 0; i < times && !stop_requested(); ++i) {
    if (i != 0) {
      const std::uint64_t until = deadline_in(interval);
      while (now_ns() < until && !stop_requested()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      if (stop_requested()) break;
    }
    Json stat = stat_of(view);
    const std::uint64_t at = now_ns();
    const double seconds = i == 0 ? interval : static_cast<double>(at - before_ns) / 1e9;
    const Json rates = rates_of(i == 0 ? stat : before, stat, seconds);
    before = stat;
    before_ns = at;
    if (args.json()) {
      stat["rates"] = rates;
      print_json("top", std::move(stat));
      continue;
    }
    std::string text = terminal ? "\033[H\033[2J" : "";
    text += fmt::format("{:+.0f} blocks/s  {:+.1f} MB/s net\n",
                        rates["blocks_per_second"].get<double>(),
                        rates["bytes_per_second"].get<double>() / 1e6);
    print_text(text + stat_text(stat) + (terminal ? "" : "\n"));
  }
  return kExitFine;
}

}  // namespace kvpool::tools
