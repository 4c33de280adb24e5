// SPDX-License-Identifier: Apache-2.0
// kvpool serve: owner of a store, or standby, until a signal or --seconds.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

// The context that the signal handler stops: a handler has no other way to reach it.
std::atomic<kvpool_ctx *> g_serving{nullptr};

void on_signal(int signal) {
  if (g_stop_signal.exchange(signal) != 0) _exit(128 + signal);
  if (kvpool_ctx *ctx = g_serving.load(); ctx != nullptr) kvpool_serve_stop(ctx);
}

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
}

enum class Role : std::uint8_t { kNone, kStandby, kOwner };

// An owner, once it was one, stays so here.
Role role(kvpool_ctx *ctx) {
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  if (kvpool_stats_read(ctx, &stats) < 0) return Role::kNone;
  if (stats.owner_takeovers > 0) return Role::kOwner;
  return (stats.flags & KVPOOL_STATS_F_STANDBY) != 0 ? Role::kStandby : Role::kNone;
}

// A program that asks by --ready-fd has its own log.
void say(const char *what, const std::string &address, int fd) {
  if (fd >= 0 && isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "%s %s\n", what, address.c_str());
}

// Says on --ready-fd when the store has an owner, this process or the one that it stands by for,
// and on standard error which of them, and when this one takes over: another thread, since serving
// blocks.
void announce(kvpool_ctx *ctx, int fd, const std::string &address, std::atomic<bool> &done) {
  bool ready = false, said = false;
  while (!done.load() && !stop_requested()) {
    if (!ready) {
      const int found = kvpool_owner_wait(ctx, deadline_in(0.2));
      if (found < 0) return;
      if (found == 0) continue;
      ready = true;
      // Whoever asked for it may be gone by now; serving goes on.
      if (fd >= 0 && write(fd, "ready\n", 6) != 6 && errno != EPIPE) {
        warn(fmt::format("ready-fd: {}", std::strerror(errno)));
      }
      usleep(20'000);  // an owner counts its take-over a moment after others can see it
    }
    const Role now = role(ctx);
    if (now == Role::kOwner) {
      say("serving", address, fd);
      return;
    }
    if (now == Role::kStandby && !std::exchange(said, true)) say("standing by for", address, fd);
    usleep(100'000);
  }
}

Json stats_json(const kvpool_stats &stats) {
  Json data;
  data["member"] = stats.member_slot;
  data["epoch"] = stats.owner_epoch;
  data["requests"] = stats.owner_requests;
  data["publications"] = stats.owner_publications;
  data["evictions"] = stats.owner_evictions;
  data["takeovers"] = stats.owner_takeovers;
  data["entries"] = stats.capacity_entries;
  data["capacity_bytes"] = stats.capacity_bytes;
  data["free_bytes"] = stats.capacity_free_bytes;
  return data;
}

void refuse_serving(int result, const kvpool_ctx *ctx, const std::string &address) {
  if (result == -EINVAL) {  // the store's lease is shorter than what was asked for
    fail(kExitUsage, "--suspicion", kvpool_strerror_detail(ctx),
         "leave it out for a second, or the lease where that is shorter");
  }
  const std::string why = result == -EUSERS ? kvpool_strerror_detail(ctx) : "";
  if (why.find("standby") != std::string::npos) {
    fail(kExitFailed, {}, why,
         "kvpool stat ADDRESS lists who serves and stands by; kvpool format with more --standbys, "
         "or other --standby-hosts, makes room for more");
  }
  checked(result, ctx, address);
}

}  // namespace

int cmd_serve(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  const bool suspects = args.has("--suspicion");
  const double suspicion = args.real("--suspicion", 1);
  if (!(suspicion >= 0.2 && suspicion <= 600)) {
    fail(kExitUsage, "--suspicion", "expected 0.2 to 600 seconds");
  }
  const int ready_fd = args.has("--ready-fd") ? static_cast<int>(args.number("--ready-fd", 0)) : -1;
  if (ready_fd >= 0 && fcntl(ready_fd, F_GETFD) < 0) {
    fail(kExitUsage, "--ready-fd", fmt::format("{} is no open descriptor", ready_fd));
  }
  OpenAs as;
  as.name = args.text("--name", "serve");
  if (args.has("--huge")) as.flags |= KVPOOL_OPEN_F_HUGE;
  Context ctx = open_store(address, as);
  g_serving.store(ctx.get());
  catch_signals();
  kvpool_serve_opts opts = KVPOOL_OPTS(kvpool_serve_opts);
  if (suspects) opts.suspicion_ms = static_cast<std::uint32_t>(suspicion * 1000);
  if (args.has("--seconds")) opts.until_ns = deadline_in(args.real("--seconds", 0));
  std::atomic<bool> done{false};
  std::thread announcer([&, fd = ready_fd] { announce(ctx.get(), fd, address, done); });
  const int result = stop_requested() ? 0 : kvpool_serve(ctx.get(), &opts);
  done.store(true);
  announcer.join();
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  const bool counted = kvpool_stats_read(ctx.get(), &stats) >= 0;
  g_serving.store(nullptr);
  refuse_serving(result, ctx.get(), address);
  if (counted && args.json()) print_json("serve", stats_json(stats));
  if (counted && !args.json()) {
    print_text(fmt::format("served {} requests, {} publications, {} evictions\n",
                           count_text(stats.owner_requests), count_text(stats.owner_publications),
                           count_text(stats.owner_evictions)));
  }
  return kExitFine;
}

}  // namespace kvpool::tools
