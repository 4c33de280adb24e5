// SPDX-License-Identifier: Apache-2.0
// kvpool events: what the owner decided, in order, with replay of what it still keeps.
#include <cerrno>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "events.hpp"
#include "say.hpp"

namespace kvpool::tools {

const char *event_type_name(std::uint32_t type) {
  switch (type) {
    case KVPOOL_EVENT_STORED:
      return "stored";
    case KVPOOL_EVENT_REMOVED:
      return "removed";
    case KVPOOL_EVENT_CLEARED:
      return "cleared";
    case KVPOOL_EVENT_LOST:
      return "lost";
    case KVPOOL_EVENT_OWNER:
      return "owner";
    default:
      return "unknown";
  }
}

const char *event_reason_name(std::uint32_t reason) {
  switch (reason) {
    case KVPOOL_REASON_EVICTED:
      return "evicted";
    case KVPOOL_REASON_REMOVED:
      return "removed";
    case KVPOOL_REASON_REPLACED:
      return "replaced";
    case KVPOOL_REASON_CLEARED:
      return "cleared";
    case KVPOOL_REASON_DAMAGED:
      return "damaged";
    case KVPOOL_REASON_LOST:
      return "lost";
    default:
      return "none";
  }
}

namespace {

Json event_json(const kvpool_event &event) {
  Json one;
  one["sequence"] = event.sequence;
  one["epoch"] = event.epoch;
  one["type"] = event_type_name(event.type);
  one["reason"] = event_reason_name(event.reason);
  one["namespace"] = event.ns;
  one["key"] = key_text(event.key);
  one["version"] = fmt::format("{:x}", event.version);  // as ls and why print it
  one["bytes"] = event.bytes;
  one["count"] = event.count;
  one["member"] = event.member;
  return one;
}

std::string event_line(const kvpool_event &event) {
  if (event.type == KVPOOL_EVENT_LOST)
    return fmt::format("{:>10}  {} events were lost\n", "", event.count);
  return fmt::format("{:>10}  {:<8}{:<9}ns {:<4} member {:<4} {:>10} {}\n", event.sequence,
                     event_type_name(event.type),
                     event.reason == KVPOOL_REASON_NONE ? "" : event_reason_name(event.reason),
                     event.ns, event.member, bytes_text(event.bytes), key_text(event.key));
}

}  // namespace

int cmd_events(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  if (args.number("--from", 1) == 0 && !args.has("--follow")) {
    fail(kExitUsage, "--from", "0 means only what comes from now on", "give --follow as well");
  }
  OpenAs as;
  as.name = "events";
  as.flags = KVPOOL_OPEN_F_READ_ONLY;
  Context ctx = open_store(address, as);
  kvpool_events_opts opts = KVPOOL_OPTS(kvpool_events_opts);
  opts.from_sequence = args.number("--from", 1);
  kvpool_events *raw = nullptr;
  checked(kvpool_events_open(ctx.get(), &opts, &raw), ctx.get(), address);
  Events events(raw);
  const bool follow = args.has("--follow");
  const std::uint64_t limit = args.number("--limit", UINT64_MAX);
  stop_on_signals();
  std::vector<kvpool_event> batch(256);
  Json list = Json::array();
  std::uint64_t seen = 0;
  while (seen < limit && !stop_requested()) {
    const std::size_t wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(batch.size(), limit - seen));
    const std::uint64_t wait = follow ? deadline_in(0.2) : deadline_in(0.05);
    const int n =
        checked(kvpool_events_next(events.get(), wanted, wait, batch.data()), ctx.get(), address);
    if (n == 0 && !follow) break;
    std::string text;
    for (int i = 0; i < n; ++i) {
      const kvpool_event &event = batch[static_cast<std::size_t>(i)];
      if (args.json()) {
        list.push_back(event_json(event));
      } else {
        text += event_line(event);
      }
    }
    if (!text.empty()) print_text(text);
    seen += static_cast<std::uint64_t>(n);
  }
  if (args.json()) {
    Json data;
    data["events"] = std::move(list);
    print_json("events", std::move(data));
  }
  return kExitFine;
}

}  // namespace kvpool::tools
