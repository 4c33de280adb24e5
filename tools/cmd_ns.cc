// SPDX-License-Identifier: Apache-2.0
// kvpool ns: the namespaces of a store.
#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"
#include "store_view.hpp"
#include "store/context.hpp"
#include "store/namespace.hpp"

namespace kvpool::tools {

namespace {

const char *verify_name(std::uint32_t verify) {
  switch (verify) {
    case KVPOOL_VERIFY_SAMPLE:
      return "sample";
    case KVPOOL_VERIFY_OFF:
      return "off";
    default:
      return "always";
  }
}

Json info_json(const kvpool_ns_info &info) {
  std::string fingerprint;
  for (const std::uint8_t byte : info.fingerprint) fingerprint += fmt::format("{:02x}", byte);
  Json one;
  one["name"] = info.name;
  one["id"] = info.id;
  one["fingerprint"] = fingerprint;
  one["block_bytes"] = info.block_bytes;
  one["quota_bytes"] = info.quota_bytes;
  one["epoch"] = info.epoch;
  one["bypassed"] = info.bypassed != 0;
  one["weight"] = info.weight;
  one["verify"] = verify_name(info.verify);
  return one;
}

std::vector<kvpool_ns_info> list_of(kvpool_ctx *ctx, const std::string &address) {
  std::vector<kvpool_ns_info> infos(4096);
  const int n = checked(kvpool_ns_list(ctx, infos.size(), infos.data()), ctx, address);
  infos.resize(std::min<std::size_t>(static_cast<std::size_t>(n), infos.size()));
  return infos;
}

int list_namespaces(const Args &args, kvpool_ctx *ctx, const std::string &address) {
  const auto infos = list_of(ctx, address);
  if (args.json()) {
    Json data;
    data["namespaces"] = Json::array();
    for (const auto &info : infos) data["namespaces"].push_back(info_json(info));
    print_json("ns", std::move(data));
    return kExitFine;
  }
  Table table({"name", ">id", ">block", ">quota", ">clears", ">weight", "verify", "state"});
  for (const auto &info : infos) {
    table.row({info.name, std::to_string(info.id),
               info.block_bytes == 0 ? "any" : bytes_text(info.block_bytes),
               info.quota_bytes == 0 ? "none" : bytes_text(info.quota_bytes),
               std::to_string(info.epoch - 1), std::to_string(info.weight),
               verify_name(info.verify), info.bypassed != 0 ? "bypassed" : "in use"});
  }
  print_text(table.text());
  return kExitFine;
}

bool exists(kvpool_ctx *ctx, const std::string &address, const std::string &name,
            kvpool_ns_info &ret_info) {
  for (const auto &info : list_of(ctx, address)) {
    if (info.name != name) continue;
    ret_info = info;
    return true;
  }
  return false;
}

// What was chosen when the namespace was created stays so: nobody is told that it is otherwise.
void refuse_other_values(const Args &args, const kvpool_ns_info &info) {
  std::string differs;
  const auto differ = [&](const char *option, bool same, const std::string &has) {
    if (!args.has(option) || same) return;
    differs += fmt::format("{}{} {}", differs.empty() ? "" : ", ", has, option + 2);
  };
  differ("--quota", args.number("--quota", 0) == info.quota_bytes,
         info.quota_bytes == 0 ? "no" : bytes_text(info.quota_bytes));
  differ("--weight", args.number("--weight", 10) == info.weight, std::to_string(info.weight));
  differ("--verify", args.text("--verify") == verify_name(info.verify), verify_name(info.verify));
  differ("--block-bytes", args.number("--block-bytes", 0) == info.block_bytes,
         info.block_bytes == 0 ? "any" : bytes_text(info.block_bytes));
  if (differs.empty()) return;
  fail(
      kExitFailed, fmt::format("namespace {}", info.name), "is there already, and has " + differs,
      fmt::format("these are chosen once: kvpool ns remove {} --yes, which forgets its blocks, and "
                  "create it anew",
                  info.name));
}

void done(const Args &args, const std::string &action, const std::string &name, bool dry) {
  if (!args.json()) {
    print_text(fmt::format("{}{}: {}\n", dry ? "would do: " : "", name, action));
    return;
  }
  Json data;
  data["action"] = action;
  data["namespace"] = name;
  data["dry_run"] = dry;
  print_json("ns", std::move(data));
}

void ask_first(const Args &args, const std::string &action, const std::string &name) {
  if (args.has("--yes")) return;
  if (!confirmed_by_typing(fmt::format("{} forgets all blocks of namespace {}.", action, name),
                           name)) {
    fail(kExitFailed, "namespace " + name, fmt::format("{} was not confirmed", action),
         "give --yes");
  }
}

// A namespace has one name, so that is enough. Who gives a description nevertheless has it
// compared.
void control(const Args &args, kvpool_ctx *ctx, const std::string &address,
             const std::string &action, const std::string &name, std::uint64_t deadline) {
  if (args.has("--model") || args.has("--dtype") || args.has("--block-tokens")) {
    Namespace ns = open_namespace(ctx, name, args, false);
    const int result = action == "clear"
                           ? kvpool_ns_clear(ns.get(), deadline)
                           : kvpool_ns_bypass(ns.get(), action == "bypass" ? 1 : 0, deadline);
    checked(result, ctx, "namespace " + name);
    return;
  }
  store::ContextOptions how;
  how.name = "ns";
  std::unique_ptr<store::Context> context;
  std::string why;
  if (const int err = store::Context::open(address.c_str(), how, context, &why)) {
    refuse_open(address, err, std::move(why));
  }
  const media::NsOp op = action == "clear"    ? media::NsOp::kClear
                         : action == "bypass" ? media::NsOp::kBypassOn
                                              : media::NsOp::kBypassOff;
  if (const int err = store::control_namespace(*context, name, op, deadline, &why)) {
    fail_errno("namespace " + name, err, why);
  }
}

}  // namespace

int cmd_ns(const Args &args) {
  const std::string action = args.text("ACTION");
  const std::string name = args.text("NAME");
  if ((action == "list") != name.empty()) {
    fail(kExitUsage, {}, action == "list" ? "list takes no NAME" : action + " needs a NAME");
  }
  const std::string address = store_address(args, "--pool");
  const bool dry = args.has("--dry-run");
  OpenAs as;
  as.name = "ns";
  if (action == "list" || dry) {
    as.flags = KVPOOL_OPEN_F_READ_ONLY;
  } else if (args.has("--embedded")) {
    as.owner = KVPOOL_OWNER_EMBEDDED;
  }
  Context ctx = open_store(address, as);
  if (action == "list") return list_namespaces(args, ctx.get(), address);
  kvpool_ns_info info = {};
  const bool there = exists(ctx.get(), address, name, info);
  if (action == "create" && there) refuse_other_values(args, info);
  if (action != "create" && !there) {
    fail(kExitNothing, "namespace " + name, "there is none", "kvpool ns list names them");
  }
  if (dry) {
    done(args, action, name, true);
    return kExitFine;
  }
  const std::uint64_t deadline = deadline_in(args.real("--timeout", 5));
  if (action == "clear" || action == "remove") ask_first(args, action, name);
  if (action == "remove") {
    checked(kvpool_ns_remove(ctx.get(), name.c_str(), deadline), ctx.get(), "namespace " + name);
  } else if (action == "create") {
    open_namespace(ctx.get(), name, args, true);
  } else {
    control(args, ctx.get(), address, action, name, deadline);
  }
  done(args, action == "create" && there ? "was there already" : action, name, false);
  return kExitFine;
}

}  // namespace kvpool::tools
