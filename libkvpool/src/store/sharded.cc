// SPDX-License-Identifier: Apache-2.0
#include "store/sharded.hpp"

#include <algorithm>

namespace kvpool::store {

namespace {

int fail(std::string *why, int err, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return err;
}

int decode(Context &context, const TicketWire &wire, bool pin, Ticket &ret_ticket,
           std::string *why) {
  const int err = decode_ticket(context.scope(), wire, ret_ticket);
  if (err) return fail(why, err, ticket_error(err));
  if ((ret_ticket.kind != TicketKind::kReservation) != pin) {
    return fail(why, -EINVAL, pin ? "ticket: a reservation, where a pin is needed"
                                  : "ticket: a pin, where a reservation is needed");
  }
  return 0;
}

constexpr const char *kReservationGone = "ticket: this reservation was published, aborted or lost";

ShardTarget target_of(const Ticket &ticket) {
  return {ticket.address, ticket.payload_bytes, ticket.shards, ticket.generation,
          ticket.check_hash};
}

// A reservation that this process made must still be in its table; one of another rank is believed.
int open_reservation(Context &context, const TicketWire &wire, u32 shard, Ticket &ret_ticket,
                     std::string *why) {
  if (int err = decode(context, wire, /*pin=*/false, ret_ticket, why)) return err;
  if (shard >= ret_ticket.shards) return fail(why, -EINVAL, "ticket: it has fewer shards");
  Reservation kept;
  if (issued_here(context.scope(), ret_ticket) &&
      !context.reservations().find(ret_ticket.slot, ret_ticket.generation, kept)) {
    return fail(why, -EKEYEXPIRED, kReservationGone);
  }
  return 0;
}

}  // namespace

int reserve_blocks(Namespace &ns, const Key *keys, const Key *parents, u64 count, u64 payload_bytes,
                   u32 shards, u64 deadline, TicketWire *ret_tickets, std::string *why) {
  Context &context = ns.context();
  const media::BlockShape shape = media::block_shape(payload_bytes, shards);
  if (!shape.valid() || !BlockLayout::even(shape)) {
    return fail(why, -EINVAL,
                "reserve: a block of " + std::to_string(payload_bytes) +
                    " bytes cannot be cut into " + std::to_string(shards) +
                    " shards of whole lines of 64 bytes");
  }
  auto scratch = context.scratch().take();
  std::shared_lock life(context.life());
  std::vector<pool::Block> blocks(count);  // all memory first: what is reserved has no other owner
  std::vector<TicketWire> wires(count);
  std::vector<std::pair<u32, u64>> taken;
  taken.reserve(count);
  const int err = context.store().reserve(payload_bytes, shards, static_cast<u32>(count), deadline,
                                          blocks.data());
  if (err) return err;
  const TicketScope scope = context.scope();
  const auto give_up = [&](int result, const std::string &text) {
    Reservation gone;
    for (const auto &[slot, nonce] : taken) context.reservations().take(slot, nonce, gone);
    context.store().drain_shards(*scratch);  // what goes back has no store under way
    for (const pool::Block &block : blocks) context.member().abort(block);
    return text.empty() ? context.explain(result, why) : fail(why, result, text);
  };
  for (u64 i = 0; i < count; ++i) {
    Reservation r;
    r.key = keys[i];
    r.ns = ns.ref();
    r.block = blocks[i];
    r.parent = parents ? parents[i].w[0] : 0;
    r.payload_bytes = shape.payload_lines() * kLineBytes;
    r.shards = shards;
    r.nonce = context.env().random();
    Ticket ticket;
    if (!context.reservations().add(r.nonce, r, ticket.slot)) {
      return give_up(-EMFILE, "reserve: 8192 reservations are open already");
    }
    taken.emplace_back(ticket.slot, r.nonce);
    const ShardTarget target{r.block.address, r.payload_bytes, shards, r.nonce, 0};
    if (int lost = context.store().open_shards(target, *scratch)) return give_up(lost, {});
    ticket.kind = TicketKind::kReservation;
    ticket.ns = r.ns.id;
    ticket.address = r.block.address;
    ticket.payload_bytes = r.payload_bytes;
    ticket.shards = shards;
    ticket.generation = r.nonce;
    ticket.check_hash = context.member().incarnation();
    encode_ticket(scope, ticket, wires[i]);
  }
  context.store().drain_shards(*scratch);
  std::ranges::copy(wires, ret_tickets);
  return static_cast<int>(count);
}

int shard_range(Context &context, const TicketWire &wire, u32 shard, u64 &ret_offset,
                u64 &ret_bytes, std::string *why) {
  Ticket ticket;
  if (int err = decode(context, wire, /*pin=*/false, ticket, why)) return err;
  if (shard >= ticket.shards) return fail(why, -EINVAL, "ticket: it has fewer shards");
  const media::BlockShape shape = media::block_shape(ticket.payload_bytes, ticket.shards);
  if (!shape.valid()) return fail(why, -EBADMSG, ticket_error(-EBADMSG));
  const media::LineRange range = shape.shard_range(shard);
  ret_offset = range.first_line * kLineBytes;
  ret_bytes = range.line_count * kLineBytes;
  return 0;
}

int write_shard(Context &context, const TicketWire &wire, u32 shard, const MemoryPlan &plan,
                u64 deadline, std::string *why) {
  Ticket ticket;
  auto scratch = context.scratch().take();
  std::shared_lock life(context.life());
  if (int err = open_reservation(context, wire, shard, ticket, why)) return err;
  const ShardTarget target = target_of(ticket);
  const int err = context.store().write_shard(target, shard, plan, deadline, *scratch);
  switch (err) {
    case 0: return 0;
    case -EALREADY: return fail(why, err, "write: shard " + std::to_string(shard) + " is done");
    case -EKEYEXPIRED: return fail(why, err, kReservationGone);
    case -EINVAL: return fail(why, err, "write: the plan makes no sense, or its fragments overlap");
    case -ERANGE: return fail(why, err, "write: the plan leaves the block or its memory");
    case -ENOTCONN: return fail(why, err, "write: the member that reserved this block is dead");
    default: return context.explain(err, why);
  }
}

int shard_done(Context &context, const TicketWire &wire, u32 shard, std::string *why) {
  Ticket ticket;
  auto scratch = context.scratch().take();
  if (int err = open_reservation(context, wire, shard, ticket, why)) return err;
  const int err = context.store().read_checks(target_of(ticket), shard, shard + 1, *scratch);
  if (err == -EINPROGRESS) {
    return fail(why, -ENODATA, "shard_done: shard " + std::to_string(shard) + " was not written");
  }
  return context.explain(err, why);
}

namespace {

BlockStatus publish_status(int result) {
  switch (result) {
    case 0: return BlockStatus::kOk;
    case -EEXIST: return BlockStatus::kExists;
    case -ENOSPC:
    case -EDQUOT: return BlockStatus::kFull;
    case -EPERM: return BlockStatus::kBypassed;
    case -EINPROGRESS: return BlockStatus::kDoubt;
    default: return BlockStatus::kStale;
  }
}

// Reads the checks of one complete reservation and makes its publication.
int ready_publication(Context &context, const Reservation &r, Scratch &scratch,
                      pool::Publication &ret) {
  const ShardTarget target{r.block.address, r.payload_bytes, r.shards, r.nonce, 0};
  if (int err = context.store().read_checks(target, 0, r.shards, scratch)) return err;
  const media::BlockShape shape = media::block_shape(r.payload_bytes, r.shards);
  ret.key = r.key;
  ret.ns = r.ns;
  ret.block = r.block;
  ret.payload_lines = shape.payload_lines();
  ret.shards = r.shards;
  ret.check_hash = check_table_hash(scratch.checks.data(), shape.segments());
  ret.parent = r.parent;
  return 0;
}

}  // namespace

namespace {

// Reservations while their publication is made: no other thread finds them. What was not posted
// goes back to its table.
class Lent {
public:
  Lent(Reservations &table, const std::vector<Ticket> &tickets)
      : table_(table), tickets_(tickets) {}
  ~Lent() {
    for (u64 i = 0; i < count_; ++i) table_.give_back(tickets_[i].slot, tickets_[i].generation);
  }
  Lent(const Lent &) = delete;
  Lent &operator=(const Lent &) = delete;

  // The next one, in the order of the tickets.
  bool lend(Reservation &ret) {
    if (!table_.lend(tickets_[count_].slot, tickets_[count_].generation, ret)) return false;
    ++count_;
    return true;
  }
  void end(u64 i) { table_.end(tickets_[i].slot, tickets_[i].generation); }

private:
  Reservations &table_;
  const std::vector<Ticket> &tickets_;
  u64 count_ = 0;
};

}  // namespace

int publish_blocks(Namespace &ns, const TicketWire *wires, u64 count, u64 deadline,
                   BlockStatus *ret_status, std::string *why) {
  Context &context = ns.context();
  auto scratch = context.scratch().take();
  std::shared_lock life(context.life());
  std::vector<Ticket> &tickets = scratch->tickets;
  std::vector<pool::Publication> &publications = scratch->publications;
  for (u64 i = 0; i < count; ++i) {
    if (int err = open_reservation(context, wires[i], 0, tickets[i], why)) return err;
    if (!issued_here(context.scope(), tickets[i])) {
      return fail(why, -EACCES, "publish: only the member that reserved a block may publish it");
    }
    for (u64 j = 0; j < i; ++j) {
      if (tickets[j].slot == tickets[i].slot)
        return fail(why, -EINVAL, "publish: one ticket twice");
    }
    Reservation r;
    if (!context.reservations().find(tickets[i].slot, tickets[i].generation, r)) {
      return fail(why, -EKEYEXPIRED, "publish: this reservation was published or aborted just now");
    }
    if (r.ns.id != ns.ref().id) {
      return fail(why, -EINVAL, "publish: a ticket of another namespace");
    }
  }
  Lent lent(context.reservations(), tickets);
  for (u64 i = 0; i < count; ++i) {
    Reservation r;
    if (!lent.lend(r)) {
      return fail(why, -EKEYEXPIRED, "publish: this reservation was aborted or lost meanwhile");
    }
    publications[i] = pool::Publication{};
    const int err = ready_publication(context, r, *scratch, publications[i]);
    if (err == -EINPROGRESS) {
      return fail(why, err,
                  "publish: block " + std::to_string(i) + " has a shard that is not done");
    }
    if (err) return context.explain(err, why);
  }
  if (!context.member().alive()) return context.explain(-ESTALE, why);
  const int err = context.member().publish(publications.data(), static_cast<u32>(count), deadline);
  ContextCounters::add(context.counters().publishes, count);
  int published = 0, tried = 0;
  for (u64 i = 0; i < count; ++i) {
    const int result = publications[i].result;
    const bool posted = publications[i].posted;
    ret_status[i] = posted ? publish_status(result) : BlockStatus::kUntried;
    if (!posted) continue;
    ++tried;
    published += result == 0;
    if (ret_status[i] == BlockStatus::kStale) ns.note_cleared();
    if (ret_status[i] == BlockStatus::kDoubt) ContextCounters::add(context.counters().doubts, 1);
    lent.end(i);
  }
  return tried == 0 && err != 0 ? context.explain(err, why) : published;
}

int abort_blocks(Namespace &ns, const TicketWire *wires, u64 count) {
  Context &context = ns.context();
  auto scratch = context.scratch().take();
  std::shared_lock life(context.life());
  int given_back = 0;
  for (u64 i = 0; i < count; ++i) {
    Ticket ticket;
    Reservation r;
    if (decode(context, wires[i], /*pin=*/false, ticket, nullptr) != 0) continue;
    if (!issued_here(context.scope(), ticket)) continue;
    if (!context.reservations().take(ticket.slot, ticket.generation, r)) continue;
    context.store().abort_shared(target_of(ticket), r.block, *scratch);
    ++given_back;
  }
  return given_back;
}

// ---- pins ---------------------------------------------------------------------------------------

int pin_blocks(Namespace &ns, const Key *keys, u64 count, const pool::Hit *snapshot, u32 ttl_ms,
               u64 deadline, TicketWire *ret_tickets, std::string *why) {
  Context &context = ns.context();
  std::vector<pool::Hit> hits(count);
  if (snapshot != nullptr) {
    std::copy_n(snapshot, count, hits.begin());
  } else {
    const pool::LookupOptions how{.stop_at_miss = true};
    const int err =
        context.member().lookup(ns.ref(), keys, static_cast<u32>(count), how, hits.data());
    if (err) return context.explain(err, why);
  }
  std::shared_lock life(context.life());
  const TicketScope scope = context.scope();
  u64 pinned = 0;
  for (; pinned < count; ++pinned) {
    const pool::Hit &hit = hits[pinned];
    if (hit.presence != pool::Presence::kHit) break;
    pool::Pin pin;
    const int err = context.member().pin(hit, keys[pinned], ttl_ms, deadline, pin);
    const bool stale = err == -ESTALE && context.member().alive();
    if (err == -ENOENT || err == -EPERM || stale) break;  // gone, or bypassed, meanwhile
    if (err) {
      if (pinned > 0) break;
      return context.explain(err, why);
    }
    Ticket ticket;
    if (!context.pins().add(hit.version, pin, ticket.slot)) {
      context.member().unpin(pin);
      if (pinned > 0) break;
      return fail(why, -EMFILE, "pin: 65536 pins are held already");
    }
    ticket.kind = hit.tainted ? TicketKind::kTaintedPin : TicketKind::kPin;
    ticket.ns = ns.ref().id;
    ticket.address = hit.address;
    ticket.payload_bytes = hit.payload_bytes;
    ticket.shards = hit.shards;
    ticket.generation = hit.version;
    ticket.check_hash = hit.check_hash;
    ticket.entry = hit.entry;
    ticket.epoch = hit.epoch;
    ticket.duration_ms = ttl_ms;
    ticket.expiry_ns = pin.expiry_ns;
    encode_ticket(scope, ticket, ret_tickets[pinned]);
  }
  ContextCounters::add(context.counters().pins, pinned);
  return static_cast<int>(pinned);
}

void unpin_blocks(Context &context, const TicketWire *wires, u64 count) {
  for (u64 i = 0; i < count; ++i) {
    Ticket ticket;
    pool::Pin pin;
    if (decode(context, wires[i], /*pin=*/true, ticket, nullptr) != 0) continue;
    if (!issued_here(context.scope(), ticket)) continue;
    if (context.pins().take(ticket.slot, ticket.generation, pin)) context.member().unpin(pin);
  }
}

int hit_of_ticket(Context &context, const TicketWire &wire, u16 ns, pool::Hit &ret_hit,
                  std::string *why) {
  Ticket ticket;
  if (int err = decode(context, wire, /*pin=*/true, ticket, why)) return err;
  if (ns != 0 && ticket.ns != ns) return fail(why, -EINVAL, "ticket: of another namespace");
  pool::Hit hit;
  hit.presence = pool::Presence::kHit;
  hit.reason = pool::MissReason::kNone;
  hit.tainted = ticket.kind == TicketKind::kTaintedPin;
  hit.ns = ticket.ns;
  hit.epoch = ticket.epoch;
  hit.entry = ticket.entry;
  hit.shards = ticket.shards;
  hit.version = ticket.generation;
  hit.payload_bytes = ticket.payload_bytes;
  hit.address = ticket.address;
  hit.check_hash = ticket.check_hash;
  ret_hit = hit;
  return 0;
}

namespace {

// Whether an owner told this process, whose pin it is, that the block went all the same.
bool pin_lost(Context &context, const Ticket &ticket) {
  pool::Pin pin;
  return issued_here(context.scope(), ticket) &&
         context.pins().find(ticket.slot, ticket.generation, pin) &&
         context.member().pin_lost(pin);
}

}  // namespace

int ticket_valid(Context &context, const TicketWire &wire, std::string *why) {
  Ticket ticket;
  if (int err = decode(context, wire, /*pin=*/true, ticket, why)) return err;
  if (ticket.same_host && expired(ticket, monotonic_ns())) return 0;
  if (pin_lost(context, ticket)) return 0;
  pool::Hit hit;
  if (int err = hit_of_ticket(context, wire, 0, hit, why)) return err;
  auto scratch = context.scratch().take();
  bool valid = false;
  if (int err = context.store().validate_one(hit, *scratch, valid))
    return context.explain(err, why);
  // In that order: while the scratch is held, nothing comes back.
  return valid && context.mapped_all_along(ticket.address, ticket.generation) ? 1 : 0;
}

int map_block(Context &context, const TicketWire &wire, u64 max, MappedPiece *ret_pieces,
              std::string *why) {
  Ticket ticket;
  if (int err = decode(context, wire, /*pin=*/true, ticket, why)) return err;
  if ((ticket.same_host && expired(ticket, monotonic_ns())) || pin_lost(context, ticket)) {
    return fail(why, -EKEYEXPIRED, ticket_error(-EKEYEXPIRED));
  }
  if (context.member().claims().read().gone) return context.explain(-EIDRM, why);
  auto scratch = context.scratch().take();
  BlockLayout layout;
  const int err = context.store().open_layout(layout, ticket.address, ticket.payload_bytes,
                                              ticket.shards, *scratch);
  if (err) return context.explain(err, why);
  u64 offset = 0, n = 0;
  for (const transfer::Piece &piece : layout.pieces()) {
    context.env().memory().acquire(piece.pool, piece.bytes);
    if (n < max) {
      ret_pieces[n] = {context.address_of(piece.pool), piece.bytes, offset, piece.pool.device()};
    }
    offset += piece.bytes;
    ++n;
  }
  context.note_mapped(ticket.address, ticket.generation);
  return static_cast<int>(n);
}

}  // namespace kvpool::store
