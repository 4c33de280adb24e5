// SPDX-License-Identifier: Apache-2.0
// A process that serves the store, or stands by for one that does: what `kvpool serve` is.
#include <signal.h>

#include <atomic>

#include <fmt/format.h>

#include "party.hpp"
#include "say.hpp"

namespace kvpool::torture {

namespace {

std::atomic<kvpool_ctx *> g_serving{nullptr};

void on_signal(int) {
  if (kvpool_ctx *ctx = g_serving.load(); ctx != nullptr) kvpool_serve_stop(ctx);
}

}  // namespace

int run_server(const std::string &address, std::uint32_t number) {
  tools::OpenAs as;
  as.name = fmt::format("server-{}", number);
  tools::Context ctx = tools::open_store(address, as);
  g_serving.store(ctx.get());
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  kvpool_serve_opts opts = KVPOOL_OPTS(kvpool_serve_opts);
  const int result = kvpool_serve(ctx.get(), &opts);
  g_serving.store(nullptr);
  tools::checked(result, ctx.get(), address);
  return tools::kExitFine;
}

}  // namespace kvpool::torture
