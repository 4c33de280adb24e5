// SPDX-License-Identifier: Apache-2.0
// kvpool debug: the option table as JSON, a damaged block, the parsed form of a trace. Hidden: for
// kvpool's own tests.
#include <cstring>

#include <fmt/format.h>

#include "commands.hpp"
#include "replay/corrupt.hpp"
#include "say.hpp"
#include "trace/trace.hpp"

namespace kvpool::tools {

namespace {

int corrupt(const Args &args) {
  const std::string address = args.text("ADDRESS");
  StoreView view(address);
  const u64 seed = args.number("--seed", 1);
  std::vector<EntryView> published;
  view.for_each_entry([&](const EntryView &at) {
    if (at.entry.entry_state() == media::EntryState::kPublished) published.push_back(at);
    return true;
  });
  if (published.empty()) fail(kExitNothing, address, "there is no published block");
  const EntryView &victim = published[seed % published.size()];
  auto writable = open_writable(address);
  const u64 byte = seed * 2654435761u;
  if (!corrupt_block(view, *writable, victim.entry.key, byte)) {
    fail(kExitFailed, address, "the block went away");
  }
  print_text(entry_key_text(victim.entry.key) + "\n");
  return kExitFine;
}

int parse(const Args &args) {
  Trace trace;
  std::string why;
  const int error = read_trace(args.text("ADDRESS"), {}, trace, why);
  if (error != 0) fail(kExitFailed, {}, why);
  Json list = Json::array();
  for (const Request &request : trace.requests) {
    const auto ids = trace.ids_of(request);
    list.push_back({{"time_ns", request.time_ns},
                    {"input", request.input_tokens},
                    {"output", request.output_tokens},
                    {"turn", request.turn},
                    {"chat", request.chat},
                    {"parent", request.parent_chat},
                    {"ids", std::vector<std::uint64_t>(ids.begin(), ids.end())}});
  }
  print_plain_json({{"dialect", dialect_name(trace.dialect)},
                    {"tokens_per_id", trace.tokens_per_id},
                    {"sorted", trace.was_sorted},
                    {"requests", std::move(list)}});
  return kExitFine;
}

}  // namespace

int cmd_debug(const Args &args) {
  const std::string action = args.text("ACTION");
  if (action == "options") {
    print_text(table_as_json());
    return kExitFine;
  }
  if (args.text("ADDRESS").empty()) fail(kExitUsage, {}, action + " needs an ADDRESS");
  return action == "corrupt" ? corrupt(args) : parse(args);
}

}  // namespace kvpool::tools
