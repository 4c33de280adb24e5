// SPDX-License-Identifier: Apache-2.0
// Stores: format, open, close, serve, statistics.
#include <unistd.h>

#include "api/handles.hpp"
#include "store/make.hpp"

using namespace kvpool;
using namespace kvpool::api;

namespace {

// The program's name, for people who look at the members of a store.
std::string program_name() {
  return program_invocation_short_name != nullptr ? program_invocation_short_name : "";
}

int open_options(const kvpool_open_opts &o, store::ContextOptions &ret, std::string *why) {
  if (o.owner > KVPOOL_OWNER_EMBEDDED) return options_error(why, -EINVAL, "open: unknown owner");
  if (o.log_level > KVPOOL_LOG_DEBUG) return options_error(why, -EINVAL, "open: unknown log level");
  if (o.workers > 16) return options_error(why, -EINVAL, "open: more than 16 workers");
  if (o.engine_rank > 65535 || o.engine_world > 65535) {
    return options_error(why, -EINVAL, "open: engine rank or world beyond 65535");
  }
  if (o.engine_world != 0 && o.engine_rank >= o.engine_world) {
    return options_error(why, -EINVAL, "open: engine_rank is not below engine_world");
  }
  ret.read_only = o.flags & KVPOOL_OPEN_F_READ_ONLY;
  ret.huge = o.flags & KVPOOL_OPEN_F_HUGE;
  ret.embedded_owner = o.owner == KVPOOL_OWNER_EMBEDDED;
  if (ret.read_only && ret.embedded_owner) {
    return options_error(why, -EINVAL, "open: an owner cannot be read-only");
  }
  ret.move_control = o.flags & KVPOOL_OPEN_F_MOVE_CONTROL;
  if (ret.read_only && ret.move_control) {
    return options_error(why, -EINVAL, "open: who is read-only moves nothing");
  }
  ret.engine_id = o.engine_id;
  ret.rank = o.engine_rank;
  ret.world = o.engine_world == 0 ? 1 : o.engine_world;
  ret.name = o.name != nullptr ? o.name : program_name();
  ret.workers = o.workers == 0 ? 1 : o.workers;
  ret.deadline_ns = o.deadline_ns;
  ret.bulk_bytes = o.bulk_bytes;
  if (o.log != nullptr) {
    ret.log = [fn = o.log, user = o.log_user](store::LogLevel level, const char *text) {
      fn(user, static_cast<kvpool_log_level>(level), text);
    };
  }
  if (o.log_level != 0) ret.log_level = static_cast<store::LogLevel>(o.log_level);
  return 0;
}

}  // namespace

extern "C" {

int kvpool_format(const char *addr, const kvpool_format_opts *opts) {
  return run(nullptr, [&](std::string *why) {
    kvpool_format_opts o;
    constexpr u32 kKnown = KVPOOL_FORMAT_F_YES | KVPOOL_FORMAT_F_FORCE | KVPOOL_FORMAT_F_DRY_RUN;
    if (int err = read_options(opts, kKnown, o, why)) return err;
    store::MakeOptions make;
    make.size_bytes = o.size_bytes;
    make.devices = o.devices;
    make.layout.max_bytes = o.max_bytes;
    make.yes = o.flags & KVPOOL_FORMAT_F_YES;
    make.force = o.flags & KVPOOL_FORMAT_F_FORCE;
    make.dry_run = o.flags & KVPOOL_FORMAT_F_DRY_RUN;
    make.layout.hosts = o.hosts;
    make.layout.members_per_host = o.members_per_host;
    make.layout.standbys = o.standbys;
    make.layout.width = o.width;
    make.layout.min_block_bytes = o.block_bytes;
    make.layout.block_bytes = o.block_bytes;
    make.layout.index_growth = o.index_growth;
    make.layout.namespaces = o.namespaces;
    make.layout.lease_ms = o.lease_ms;
    make.layout.grace_us = o.grace_us;
    make.layout.delta_us = o.delta_us;
    if (o.standby_hosts != nullptr && o.standbys == 0) {
      return options_error(why, -EINVAL, "format: standby_hosts without standbys, its length");
    }
    make.layout.standby_host = o.standby_hosts;
    return store::make_store(addr, make, nullptr, why);
  });
}

int kvpool_open(const char *addr, const kvpool_open_opts *opts, kvpool_ctx **ret_ctx) {
  if (ret_ctx == nullptr) return refuse(nullptr, -EINVAL, "open: ret_ctx is NULL");
  return run(nullptr, [&](std::string *why) {
    kvpool_open_opts o;
    store::ContextOptions options;
    constexpr u32 kKnown =
        KVPOOL_OPEN_F_READ_ONLY | KVPOOL_OPEN_F_HUGE | KVPOOL_OPEN_F_MOVE_CONTROL;
    if (int err = read_options(opts, kKnown, o, why)) return err;
    if (int err = open_options(o, options, why)) return err;
    auto ctx = std::make_unique<kvpool_ctx>();
    if (int err = store::Context::open(addr, options, ctx->context, why)) return err;
    *ret_ctx = ctx.release();
    return 0;
  });
}

void kvpool_close(kvpool_ctx *ctx) {
  if (ctx == nullptr) return;
  // Nothing may run any more when what operations name is freed.
  if (ctx->context->forked()) {
    store::Context::abandon(std::move(ctx->context));
  } else {
    ctx->context->async().stop();
  }
  delete ctx;
}

int kvpool_serve(kvpool_ctx *ctx, const kvpool_serve_opts *opts) {
  return guarded(ctx, [&](std::string *why) {
    kvpool_serve_opts o;
    if (int err = read_options(opts, 0, o, why)) return err;
    return ctx->context->serve(o.until_ns, o.suspicion_ms, why);
  });
}

void kvpool_serve_stop(kvpool_ctx *ctx) {
  if (ctx != nullptr) ctx->context->stop_serving();
}

int kvpool_owner_wait(kvpool_ctx *ctx, uint64_t deadline_ns) {
  return guarded(ctx, [&](std::string *why) {
    return ctx->context->explain(ctx->context->wait_owner(store::deadline_of(deadline_ns)), why);
  });
}

int kvpool_stats_read(kvpool_ctx *ctx, kvpool_stats *ret_stats) {
  return guarded(ctx, [&](std::string *why) {
    constexpr std::size_t kSmallest = sizeof(std::size_t) + 2 * sizeof(uint32_t);
    if (ret_stats == nullptr || ret_stats->size < kSmallest) {
      return options_error(why, -EINVAL, "stats: begin from KVPOOL_OPTS(kvpool_stats)");
    }
    store::Context &context = *ctx->context;
    const store::ContextCounters &c = context.counters();
    kvpool_stats s{};
    const std::size_t size = std::min(ret_stats->size, sizeof s);
    s.size = ret_stats->size;
    if (context.stands_by()) s.flags |= KVPOOL_STATS_F_STANDBY;
    s.member_slot = context.member().slot();
    const pool::Session &session = *context.member().session();
    s.capacity_bytes = session.regions.payload_bytes();
    s.capacity_entries_max = session.entry_count();
    s.owner_epoch = session.epoch;
    s.lookups = c.lookups;
    s.keys_looked_up = c.keys_looked_up;
    s.keys_hit = c.keys_hit;
    s.gets = c.gets;
    s.get_hits = c.get_hits;
    s.get_stale = c.get_stale;
    s.get_corrupt = c.get_corrupt;
    s.get_bytes = c.get_bytes;
    s.puts = c.puts;
    s.put_stored = c.put_stored;
    s.put_exists = c.put_exists;
    s.put_full = c.put_full;
    s.put_bytes = c.put_bytes;
    s.publishes = c.publishes;
    s.pins = c.pins;
    s.removes = c.removes;
    s.doubts = c.doubts;
    s.rejoins = c.rejoins;
    s.owner_takeovers = c.takeovers;
    s.bulk_waits = context.store().bulk().waits();
    s.bulk_bytes_most = context.store().bulk().most();
    const Counters lines = context.env().memory().total_counters();
    s.lines_acquired = lines.lines_acquired;
    s.lines_published = lines.lines_published;
    s.lines_streamed = lines.lines_streamed;
    s.lines_fetched = lines.lines_fetched;
    s.lines_retired = lines.lines_retired;
    s.round_trips = lines.round_trips;
    s.message_pairs = lines.message_pairs;
    s.data_waves = lines.data_waves;
    s.poison_hits = lines.poison_hits;
    s.words_published = lines.words_published;
    s.doorbells = lines.doorbells;
    s.lines_flushed = lines.lines_flushed;
    s.retires = lines.retires;
    s.lines_device_retired = lines.lines_device_retired;
    s.device_retires = lines.device_retires;
    s.lines_device_acquired = lines.lines_device_acquired;
    s.device_acquires = lines.device_acquires;
    s.polls = lines.polls;
    s.drains = lines.drains;
    s.drains_strict = lines.drains_strict;
    s.fences = lines.fences;
    store::Context::OwnerNumbers owner;
    if (context.owner_numbers(owner)) {
      s.capacity_free_bytes = owner.free_bytes;
      s.capacity_free_run_bytes = owner.free_run_bytes;
      s.capacity_entries = owner.entries;
      s.owner_requests = owner.stats.requests;
      s.owner_publications = owner.stats.publications;
      s.owner_evictions = owner.stats.evicted;
    }
    std::memcpy(static_cast<void *>(ret_stats), &s, size);
    return 0;
  });
}

}  // extern "C"
