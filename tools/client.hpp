// SPDX-License-Identifier: Apache-2.0
// What the commands share when they talk to a store through the library: handles that close
// themselves, deadlines, keys from the command line, and errors in the words of Failure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <kvpool/kvpool.h>

#include "options.hpp"

namespace kvpool::tools {

struct CloseContext {
  void operator()(kvpool_ctx *ctx) const { kvpool_close(ctx); }
};
struct CloseNamespace {
  void operator()(kvpool_ns *ns) const { kvpool_ns_close(ns); }
};
struct CloseEvents {
  void operator()(kvpool_events *events) const { kvpool_events_close(events); }
};
using Context = std::unique_ptr<kvpool_ctx, CloseContext>;
using Namespace = std::unique_ptr<kvpool_ns, CloseNamespace>;
using Events = std::unique_ptr<kvpool_events, CloseEvents>;

std::uint64_t now_ns();  // CLOCK_MONOTONIC
std::uint64_t deadline_in(double seconds);

// The address given under `option`, else $KVPOOL; Failure when there is neither.
std::string store_address(const Args &args, std::string_view option);

struct OpenAs {
  std::uint32_t flags = 0;
  std::uint32_t owner = KVPOOL_OWNER_NONE;
  std::string name = "kvpool";
};
Context open_store(const std::string &address, const OpenAs &as);

// The namespace that --ns, --model and --dtype name. `create`: make it when there is none.
Namespace open_namespace(kvpool_ctx *ctx, const std::string &name, const Args &args, bool create);

// KEY or, with --hex, 64 hexadecimal digits.
kvpool_key key_of(kvpool_ns *ns, const std::string &text, const Args &args);
std::string key_text(const kvpool_key &key);
bool parse_hex_key(std::string_view text, kvpool_key &ret);

// Throws Failure when `result` is negative: `what` was being done to.
int checked(int result, const kvpool_ctx *ctx, const std::string &what);

// Asks for `word` to be typed on a terminal; false when there is no terminal.
bool confirmed_by_typing(const std::string &question, const std::string &word);

}  // namespace kvpool::tools
