// SPDX-License-Identifier: Apache-2.0
// Shared parts of the commands that use the library (client.hpp).
#include "client.hpp"

#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include <fmt/format.h>

#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

std::uint64_t now_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ull +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t deadline_in(double seconds) {
  if (!(seconds > 0)) return 1;
  if (seconds > 1e9) seconds = 1e9;
  return now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
}

std::string store_address(const Args &args, std::string_view option) {
  std::string address = args.text(option);
  if (!address.empty()) return address;
  const char *environment = std::getenv("KVPOOL");
  if (environment != nullptr && *environment != '\0') return environment;
  fail(kExitUsage, {}, "no store is named: give an address or set $KVPOOL",
       "an address is mem:NAME, file:PATH[,PATH...], dax:/dev/daxX.Y or dev:NAME; see "
       "kvpool-address(7)");
}

namespace {

std::string hint_for(int error) {
  switch (error) {
    case -EUSERS:
      return "kvpool stat ADDRESS lists who is attached; format with more --members";
    case -EAGAIN:
      return "nobody serves the store: kvpool serve ADDRESS, or --embedded";
    case -EUCLEAN:
      return "kvpool check ADDRESS says what is damaged";
    case -EACCES:
    case -EPERM:
      return "the store belongs to another user";
    default:
      return "";
  }
}

}  // namespace

int checked(int result, const kvpool_ctx *ctx, const std::string &what) {
  if (result >= 0) return result;
  const char *detail = kvpool_strerror_detail(ctx);
  const std::string why = detail != nullptr && *detail != '\0' ? detail : std::strerror(-result);
  // The library's sentence often starts with the address itself.
  const bool named = !what.empty() && why.find(what) != std::string::npos;
  // An owner that hangs is there; what helps stands in the sentence about it.
  const bool hangs = why.find("has not answered for") != std::string::npos;
  fail(exit_code_of(result), named ? std::string() : what, why,
       hangs ? std::string() : hint_for(result));
}

Context open_store(const std::string &address, const OpenAs &as) {
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.flags = as.flags;
  opts.owner = as.owner;
  opts.name = as.name.c_str();
  kvpool_ctx *ctx = nullptr;
  const int result = kvpool_open(address.c_str(), &opts, &ctx);
  if (result < 0) refuse_open(address, result, kvpool_strerror_detail(nullptr));
  return Context(ctx);
}

Namespace open_namespace(kvpool_ctx *ctx, const std::string &name, const Args &args, bool create) {
  const std::string model = args.text("--model", "blob");
  const std::string dtype = args.text("--dtype", "u8");
  kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
  opts.flags = create ? 0 : KVPOOL_NS_F_OPEN_ONLY;
  opts.model = model.c_str();
  opts.dtype = dtype.c_str();
  opts.block_tokens = static_cast<std::uint32_t>(args.number("--block-tokens", 0));
  opts.block_bytes = args.number("--block-bytes", 0);
  opts.quota_bytes = args.number("--quota", 0);
  opts.weight = static_cast<std::uint32_t>(args.number("--weight", 0));
  const std::string verify = args.text("--verify", "always");
  opts.verify = verify == "off"      ? KVPOOL_VERIFY_OFF
                : verify == "sample" ? KVPOOL_VERIFY_SAMPLE
                                     : KVPOOL_VERIFY_ALWAYS;
  opts.deadline_ns = deadline_in(args.real("--timeout", 5));
  kvpool_ns *ns = nullptr;
  const int result = kvpool_ns_open(ctx, name.c_str(), &opts, &ns);
  if (result == -ENOENT) fail(kExitNothing, "namespace " + name, "there is none", "kvpool ns list");
  if (result == -EEXIST) {
    fail(kExitFailed, "namespace " + name, "was created with another description",
         "give --model and --dtype as its creator did");
  }
  if (result == -EINVAL) {
    fail(kExitUsage, "namespace " + name, kvpool_strerror_detail(ctx));
  }
  checked(result, ctx, "namespace " + name);
  return Namespace(ns);
}

bool parse_hex_key(std::string_view text, kvpool_key &ret) {
  if (text.size() != 64) return false;
  kvpool_key key = {};
  for (std::size_t i = 0; i < 64; ++i) {
    const char c = text[i];
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return false;
    key.bytes[i / 2] = static_cast<std::uint8_t>(key.bytes[i / 2] << 4 | digit);
  }
  ret = key;
  return true;
}

std::string key_text(const kvpool_key &key) {
  std::string text;
  for (const std::uint8_t byte : key.bytes) text += fmt::format("{:02x}", byte);
  return text;
}

kvpool_key key_of(kvpool_ns *ns, const std::string &text, const Args &args) {
  kvpool_key key = {};
  if (args.has("--hex")) {
    if (!parse_hex_key(text, key)) {
      fail(kExitUsage, "KEY", "'" + text + "' is not 64 hexadecimal digits");
    }
    return key;
  }
  if (text.empty() || text.size() > 256) {
    fail(kExitUsage, "KEY", fmt::format("{} bytes, expected 1 to 256", text.size()));
  }
  checked(kvpool_key_wrap(ns, text.data(), text.size(), &key), nullptr, "KEY");
  return key;
}

bool confirmed_by_typing(const std::string &question, const std::string &word) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return false;
  std::fprintf(stderr, "%s\nType %s to go on: ", question.c_str(), word.c_str());
  std::string typed;
  std::getline(std::cin, typed);
  return typed == word;
}

}  // namespace kvpool::tools
