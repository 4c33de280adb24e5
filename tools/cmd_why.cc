// SPDX-License-Identifier: Apache-2.0
// kvpool why: why a key is a hit or a miss, from the namespace's line, the index, and the owner's
// events.
#include <cstring>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "events.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

constexpr std::uint32_t kNobody = 0xFFFF;  // as an event says that no member asked for it

struct Reason {
  std::string code;  // one word, for programs
  std::string text;
  std::string hint;
};

Reason from_events(kvpool_ctx *ctx, const kvpool_key &key) {
  kvpool_events_opts opts = KVPOOL_OPTS(kvpool_events_opts);
  opts.from_sequence = 1;
  kvpool_events *raw = nullptr;
  if (kvpool_events_open(ctx, &opts, &raw) < 0) {
    return {"absent",
            "the index has no entry for this key; no owner on this host keeps its events",
            {}};
  }
  Events events(raw);
  std::vector<kvpool_event> batch(256);
  Reason reason{"absent", "the index has no entry for this key, and the owner remembers none", {}};
  for (int rounds = 0; rounds < 100000; ++rounds) {
    const int n = kvpool_events_next(events.get(), batch.size(), deadline_in(0.02), batch.data());
    if (n <= 0) break;
    for (int i = 0; i < n; ++i) {
      const kvpool_event &event = batch[static_cast<std::size_t>(i)];
      if (std::memcmp(event.key.bytes, key.bytes, sizeof(key.bytes)) != 0) continue;
      if (event.type == KVPOOL_EVENT_STORED) {
        reason = {"stored",
                  fmt::format("member {} stored it (event {})", event.member, event.sequence),
                  {}};
      }
      if (event.type == KVPOOL_EVENT_REMOVED) {
        const char *why = event_reason_name(event.reason);
        const bool damaged = event.reason == KVPOOL_REASON_DAMAGED;
        std::string text = damaged ? "its bytes did not match their checks, so it was removed"
                                   : fmt::format("it was {}", why);
        if (event.member != kNobody) text += fmt::format(" by member {}", event.member);
        reason = {why, fmt::format("{} (event {})", text, event.sequence),
                  event.reason == KVPOOL_REASON_EVICTED
                      ? "the pool is too small for the working set"
                      : ""};
      }
    }
  }
  return reason;
}

// Where a namespace is about as full as it may be, its quota is what evicts.
void blame_quota(StoreView &view, const media::NamespaceLine &line, u32 id, Reason &reason) {
  if (line.quota_bytes == 0) return;
  const IndexCounts counts = view.count_index();
  const u64 held = id < counts.by_ns.size() ? counts.by_ns[id].bytes : 0;
  const u64 blocks = id < counts.by_ns.size() ? counts.by_ns[id].published : 0;
  const u64 another = blocks == 0 ? line.quota_bytes : held / blocks;
  if (held + 2 * another < line.quota_bytes) return;
  reason.hint = fmt::format(
      "the namespace holds {} of its quota of {}: that is too small for its working set",
      bytes_text(held), bytes_text(line.quota_bytes));
}

Reason from_entry(const EntryView &view) {
  const media::Entry &entry = view.entry;
  switch (entry.entry_state()) {
    case media::EntryState::kPending:
      return {
          "pending",
          fmt::format("member {} announced that it computes this block", entry.check_hash & 0xffff),
          "ask again later"};
    case media::EntryState::kDraining:
      return {
          "draining", "it was evicted a moment ago, and its bytes are kept for reads that run", {}};
    case media::EntryState::kHidden:
      return {"hidden", "it was removed, replaced or cleared a moment ago", {}};
    default:
      return {"hit", "it is published", {}};
  }
}

int answer(const Args &args, const std::string &key, bool hit, const Reason &reason, Json details) {
  if (args.json()) {
    Json data;
    data["key"] = key;
    data["hit"] = hit;
    data["reason"] = reason.code;
    data["text"] = reason.text;
    data["details"] = std::move(details);
    print_json("why", std::move(data));
  } else {
    print_text(fmt::format("{}: {}: {}\n", key, hit ? "hit" : "miss", reason.text));
    for (const auto &[name, value] : details.items()) {
      print_text(fmt::format("  {:<12}{}\n", name,
                             value.is_string() ? value.get<std::string>() : value.dump()));
    }
    if (!reason.hint.empty()) print_text("hint: " + reason.hint + "\n");
  }
  return hit ? kExitFine : kExitNothing;
}

}  // namespace

int cmd_why(const Args &args) {
  const std::string address = store_address(args, "--pool");
  const std::string name = args.text("--ns", "default");
  StoreView view(address);
  if (view.epoch() == 0) fail(kExitDamaged, address, view.why(), "kvpool check says more");
  const NsView *line = nullptr;
  const auto namespaces = view.namespaces();
  for (const NsView &ns : namespaces) {
    if (ns.name == name) line = &ns;
  }
  const std::string shown = args.text("KEY");
  Json details = Json::object();
  details["namespace"] = name;
  if (line == nullptr) {
    return answer(
        args, shown, false,
        {"no-namespace", "the store has no namespace of this name", "kvpool ns list names them"},
        details);
  }
  if ((line->line.flags & media::kNsBypass) != 0) {
    return answer(args, shown, false,
                  {"bypassed", "the namespace is bypassed: all its lookups miss",
                   fmt::format("kvpool ns resume {}", name)},
                  details);
  }
  OpenAs as;
  as.name = "why";
  as.flags = KVPOOL_OPEN_F_READ_ONLY;
  Context ctx = open_store(address, as);
  Namespace ns = open_namespace(ctx.get(), name, args, false);
  const kvpool_key key = key_of(ns.get(), shown, args);
  details["key"] = key_text(key);
  details["clears"] = line->line.epoch - 1;
  u64 words[4];
  std::memcpy(words, key.bytes, sizeof(words));
  const auto found = view.find_key(words);
  const EntryView *best = nullptr;
  for (const EntryView &at : found) {
    if (best == nullptr || at.entry.entry_state() == media::EntryState::kPublished) best = &at;
  }
  if (best == nullptr) {
    Reason reason = from_events(ctx.get(), key);
    if (reason.code == "evicted") blame_quota(view, line->line, line->id, reason);
    if (reason.code == "absent" && line->line.epoch > 1) {
      reason.text +=
          fmt::format("; the namespace was cleared {} time(s), which changes all its keys",
                      line->line.epoch - 1);
    }
    return answer(args, shown, false, reason, details);
  }
  details["entry"] = best->number;
  details["version"] = fmt::format("{:x}", best->entry.version);
  if (best->entry.entry_state() == media::EntryState::kPublished) {
    details["bytes"] = best->entry.payload_lines() * kLineBytes;
    details["shards"] = best->entry.shards();
    details["tainted"] = (best->entry.state & media::kEntryTainted) != 0;
  }
  const Reason reason = from_entry(*best);
  return answer(args, shown, reason.code == "hit", reason, details);
}

}  // namespace kvpool::tools
