// SPDX-License-Identifier: Apache-2.0
// Tickets: reservations and their shards, pins, mapped blocks.
#include "api/handles.hpp"

using namespace kvpool;
using namespace kvpool::api;

namespace {

// At most kBatchMax tickets as the store has them.
struct Wires {
  store::TicketWire at[store::kBatchMax];
};

int wires_of(const kvpool_ticket *tickets, size_t n, Wires &ret, std::string *why) {
  if (n > 0 && tickets == nullptr) return options_error(why, -EINVAL, "tickets is NULL");
  if (n > store::kBatchMax) return options_error(why, -EINVAL, "more than 1024 tickets at once");
  for (size_t i = 0; i < n; ++i) ret.at[i] = wire_of(tickets[i]);
  return 0;
}

void tickets_to(const Wires &wires, size_t n, kvpool_ticket *ret_tickets) {
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(ret_tickets[i].opaque, wires.at[i].w, sizeof ret_tickets[i].opaque);
  }
}

int check_keys(const kvpool_key *keys, size_t n, const void *ret, std::string *why) {
  if (n == 0 || keys == nullptr || ret == nullptr) {
    return options_error(why, -EINVAL, "keys or ret_tickets is missing");
  }
  if (n > store::kBatchMax) return options_error(why, -EINVAL, "more than 1024 keys at once");
  return 0;
}

}  // namespace

extern "C" {

int kvpool_reserve(kvpool_ns *ns, const kvpool_key *keys, const kvpool_key *parents, size_t n,
                   const kvpool_reserve_opts *opts, kvpool_ticket *ret_tickets) {
  return guarded(ns, [&](std::string *why) {
    kvpool_reserve_opts o;
    if (int err = read_options(opts, 0, o, why)) return err;
    if (int err = check_keys(keys, n, ret_tickets, why)) return err;
    if (ns->ctx->context->read_only()) {
      return options_error(why, -EROFS, "reserve: the store is open read-only");
    }
    const u64 bytes = o.block_bytes != 0 ? o.block_bytes : ns->ns->block_bytes();
    if (bytes == 0) return options_error(why, -EINVAL, "reserve: block_bytes is missing");
    if (ns->ns->block_bytes() != 0 && ns->ns->component_count() == 1 &&
        bytes != ns->ns->block_bytes()) {
      return options_error(why, -EMSGSIZE, "reserve: not the namespace's block size");
    }
    if (bytes > store::kBlockBytesMax) {
      return options_error(why, -EMSGSIZE, "reserve: a block has at most 1 GiB");
    }
    if (int err = ns->ctx->context->check_room(bytes, why)) return err;
    store::NsInfo info;
    if (ns->ns->stat(info) == 0 && info.bypassed) return ns->ctx->context->explain(-EPERM, why);
    RoomLease room(ns->ctx->rooms);
    keys_of(keys, n, room->keys);
    std::vector<pool::Key> before;
    if (parents != nullptr) keys_of(parents, n, before);
    Wires wires;
    const int result = store::reserve_blocks(
        *ns->ns, room->keys.data(), parents != nullptr ? before.data() : nullptr, n, bytes,
        o.shards == 0 ? 1 : o.shards, store::deadline_of(o.deadline_ns), wires.at, why);
    if (result < 0) return why->empty() ? ns->ctx->context->explain(result, why) : result;
    tickets_to(wires, n, ret_tickets);
    return result;
  });
}

int kvpool_shard_range(kvpool_ctx *ctx, const kvpool_ticket *ticket, uint32_t shard,
                       uint64_t *ret_offset, uint64_t *ret_bytes) {
  return guarded(ctx, [&](std::string *why) {
    if (ticket == nullptr || ret_offset == nullptr || ret_bytes == nullptr) {
      return options_error(why, -EINVAL, "shard_range: an argument is NULL");
    }
    u64 offset = 0, bytes = 0;
    if (int err = store::shard_range(*ctx->context, wire_of(*ticket), shard, offset, bytes, why)) {
      return err;
    }
    *ret_offset = offset;
    *ret_bytes = bytes;
    return 0;
  });
}

int kvpool_write(kvpool_ctx *ctx, const kvpool_ticket *ticket, uint32_t shard,
                 const kvpool_plan *plan, uint64_t deadline_ns) {
  return guarded(ctx, [&](std::string *why) {
    if (ticket == nullptr || plan == nullptr) {
      return options_error(why, -EINVAL, "write: ticket or plan is NULL");
    }
    if (ctx->context->read_only()) {
      return options_error(why, -EROFS, "write: the store is open read-only");
    }
    if (deadline_ns != 0 && store::monotonic_ns() >= deadline_ns) {
      return options_error(why, -ETIMEDOUT, "write: the deadline is over");
    }
    RoomLease room(ctx->rooms);
    room->runs.clear();
    room->memories.clear();
    PlanAt at;
    if (int err = add_plan(ctx, *plan, *room, at, why)) return err;
    return store::write_shard(*ctx->context, wire_of(*ticket), shard, plan_at(*room, at),
                              store::deadline_of(deadline_ns), why);
  });
}

int kvpool_shard_done(kvpool_ctx *ctx, const kvpool_ticket *ticket, uint32_t shard) {
  return guarded(ctx, [&](std::string *why) {
    if (ticket == nullptr) return options_error(why, -EINVAL, "shard_done: ticket is NULL");
    return store::shard_done(*ctx->context, wire_of(*ticket), shard, why);
  });
}

int kvpool_publish(kvpool_ns *ns, const kvpool_ticket *tickets, size_t n, uint64_t deadline_ns,
                   int32_t *ret_status) {
  return guarded(ns, [&](std::string *why) {
    Wires wires;
    if (int err = wires_of(tickets, n, wires, why)) return err;
    if (n == 0) return 0;
    store::BlockStatus status[store::kBatchMax];
    const int result = store::publish_blocks(*ns->ns, wires.at, n, store::deadline_of(deadline_ns),
                                             status, why);
    if (result < 0 || ret_status == nullptr) return result;
    for (size_t i = 0; i < n; ++i) ret_status[i] = static_cast<int32_t>(status[i]);
    return result;
  });
}

int kvpool_abort(kvpool_ns *ns, const kvpool_ticket *tickets, size_t n) {
  return guarded(ns, [&](std::string *why) {
    Wires wires;
    if (int err = wires_of(tickets, n, wires, why)) return err;
    return store::abort_blocks(*ns->ns, wires.at, n);
  });
}

int kvpool_pin(kvpool_ns *ns, const kvpool_key *keys, size_t n, const kvpool_pin_opts *opts,
               kvpool_ticket *ret_tickets) {
  return guarded(ns, [&](std::string *why) {
    constexpr uint32_t kTtlDefault = 1000, kTtlMax = 600000;
    kvpool_pin_opts o;
    if (int err = read_options(opts, 0, o, why)) return err;
    if (int err = check_keys(keys, n, ret_tickets, why)) return err;
    if (o.ttl_ms > kTtlMax) return options_error(why, -EINVAL, "pin: ttl_ms is above 600000");
    if (ns->ctx->context->read_only()) {
      return options_error(why, -EROFS, "pin: the store is open read-only");
    }
    RoomLease room(ns->ctx->rooms);
    keys_of(keys, n, room->keys);
    room->hits.clear();
    if (o.snapshot != nullptr) {
      room->hits.resize(n);
      for (size_t i = 0; i < n; ++i) {
        hit_of(o.snapshot[i], ns->ctx->context->life_tag(), room->hits[i]);
      }
    }
    Wires wires;
    const int pinned = store::pin_blocks(
        *ns->ns, room->keys.data(), n, o.snapshot != nullptr ? room->hits.data() : nullptr,
        o.ttl_ms == 0 ? kTtlDefault : o.ttl_ms, store::deadline_of(o.deadline_ns), wires.at, why);
    if (pinned > 0) tickets_to(wires, static_cast<size_t>(pinned), ret_tickets);
    return pinned;
  });
}

void kvpool_unpin(kvpool_ctx *ctx, const kvpool_ticket *tickets, size_t n) {
  if (tickets == nullptr) return;
  guarded(ctx, [&](std::string *) {
    for (size_t i = 0; i < n; ++i) {
      const store::TicketWire wire = wire_of(tickets[i]);
      store::unpin_blocks(*ctx->context, &wire, 1);
    }
    return 0;
  });
}

int kvpool_ticket_valid(kvpool_ctx *ctx, const kvpool_ticket *ticket, uint64_t deadline_ns) {
  return guarded(ctx, [&](std::string *why) {
    if (ticket == nullptr) return options_error(why, -EINVAL, "ticket_valid: ticket is NULL");
    if (deadline_ns != 0 && store::monotonic_ns() >= deadline_ns) {
      return options_error(why, -ETIMEDOUT, "ticket_valid: the deadline is over");
    }
    return store::ticket_valid(*ctx->context, wire_of(*ticket), why);
  });
}

int kvpool_map(kvpool_ctx *ctx, const kvpool_ticket *ticket, size_t max,
               kvpool_piece *ret_pieces) {
  return guarded(ctx, [&](std::string *why) {
    if (ticket == nullptr || (max > 0 && ret_pieces == nullptr)) {
      return options_error(why, -EINVAL, "map: an argument is NULL");
    }
    std::vector<store::MappedPiece> pieces(std::min<size_t>(max, store::kPiecesMax));
    const int n =
        store::map_block(*ctx->context, wire_of(*ticket), pieces.size(), pieces.data(), why);
    if (n < 0) return n;
    for (size_t i = 0; i < std::min<size_t>(static_cast<size_t>(n), pieces.size()); ++i) {
      const store::MappedPiece &p = pieces[i];
      ret_pieces[i] = {p.addr, p.bytes, p.block_offset, p.device};
    }
    return n;
  });
}

}  // extern "C"
