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
#include "store_view.hpp"

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

// Whether this process may go on from another device where that with the lines of all members is
// lost. Processes of one machine see the same files; hosts may differ on a device, so there an
// operator has to know.
bool may_move_control(const Args &args, const std::string &address) {
  const bool shared = address.starts_with("dax:") || address.starts_with("dev:");
  if (!args.has("--control-device")) return !shared;
  const auto device = args.number("--control-device", 0);
  if (device > 1) fail(kExitUsage, "--control-device", "expected 0 or 1");
  if (shared && !args.has("--confirmed")) {
    fail(kExitFailed, address, "that the other device is lost was not confirmed",
         fmt::format("give --confirmed if no host can read device {} any more", 1 - device));
  }
  return true;
}

void must_stand_on(const Args &args, const std::string &address) {
  if (!args.has("--control-device")) return;
  StoreView view(address);
  const auto device = static_cast<u32>(args.number("--control-device", 0));
  if (view.geometry().control_device() == device) return;
  fail(kExitFailed, address,
       fmt::format("the lines of all members stand on device {}, which can be read",
                   view.geometry().control_device()),
       "leave --control-device out");
}

// One opening of the store, until the end or until it has to be opened again (-ENODEV).
int serve_once(const Args &args, const std::string &address, bool may_move, int ready_fd,
               std::uint64_t until_ns) {
  OpenAs as;
  as.name = args.text("--name", "serve");
  if (args.has("--huge")) as.flags |= KVPOOL_OPEN_F_HUGE;
  if (may_move) as.flags |= KVPOOL_OPEN_F_MOVE_CONTROL;
  Context ctx = open_store(address, as);
  must_stand_on(args, address);
  g_serving.store(ctx.get());
  kvpool_serve_opts opts = KVPOOL_OPTS(kvpool_serve_opts);
  if (args.has("--suspicion")) {
    opts.suspicion_ms = static_cast<std::uint32_t>(args.real("--suspicion", 1) * 1000);
  }
  opts.until_ns = until_ns;
  std::atomic<bool> done{false};
  std::thread announcer([&, fd = ready_fd] { announce(ctx.get(), fd, address, done); });
  const int result = stop_requested() ? 0 : kvpool_serve(ctx.get(), &opts);
  done.store(true);
  announcer.join();
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  const bool counted = kvpool_stats_read(ctx.get(), &stats) >= 0;
  g_serving.store(nullptr);
  if (result == -ENODEV && may_move) {
    warn(kvpool_strerror_detail(ctx.get()));
    return result;
  }
  refuse_serving(result, ctx.get(), address);
  if (counted && args.json()) print_json("serve", stats_json(stats));
  if (counted && !args.json()) {
    print_text(fmt::format("served {} requests, {} publications, {} evictions\n",
                           count_text(stats.owner_requests), count_text(stats.owner_publications),
                           count_text(stats.owner_evictions)));
  }
  return 0;
}

}  // namespace

int cmd_serve(const Args &args) {
  const std::string address = store_address(args, "ADDRESS");
  const double suspicion = args.real("--suspicion", 1);
  if (!(suspicion >= 0.2 && suspicion <= 600)) {
    fail(kExitUsage, "--suspicion", "expected 0.2 to 600 seconds");
  }
  const bool may_move = may_move_control(args, address);
  catch_signals();
  const std::uint64_t until_ns = args.has("--seconds") ? deadline_in(args.real("--seconds", 0)) : 0;
  const int ready_fd = args.has("--ready-fd") ? static_cast<int>(args.number("--ready-fd", 0)) : -1;
  if (ready_fd >= 0 && fcntl(ready_fd, F_GETFD) < 0) {
    fail(kExitUsage, "--ready-fd", fmt::format("{} is no open descriptor", ready_fd));
  }
  while (serve_once(args, address, may_move, ready_fd, until_ns) == -ENODEV && !stop_requested()) {
  }
  return kExitFine;
}

}  // namespace kvpool::tools
