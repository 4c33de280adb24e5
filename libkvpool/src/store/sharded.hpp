// SPDX-License-Identifier: Apache-2.0
// Reservations and pins as tickets (proto 9, 11): what travels between the ranks of an engine. Owns
// the rules of who may do what with a ticket; the tables stand in the context.
#pragma once

#include "store/namespace.hpp"

namespace kvpool::store {

// All or none; returns count or -errno.
int reserve_blocks(Namespace &ns, const Key *keys, const Key *parents, u64 count, u64 payload_bytes,
                   u32 shards, u64 deadline, TicketWire *ret_tickets, std::string *why);

// Bytes of the block that a shard covers.
int shard_range(Context &context, const TicketWire &wire, u32 shard, u64 &ret_offset,
                u64 &ret_bytes, std::string *why);
int write_shard(Context &context, const TicketWire &wire, u32 shard, const MemoryPlan &plan,
                u64 deadline, std::string *why);
int shard_done(Context &context, const TicketWire &wire, u32 shard, std::string *why);

// ret_status[i]; returns how many are published by this call, or -errno when nothing was done.
int publish_blocks(Namespace &ns, const TicketWire *wires, u64 count, u64 deadline,
                   BlockStatus *ret_status, std::string *why);
int abort_blocks(Namespace &ns, const TicketWire *wires, u64 count);

// Pins the longest possible prefix; returns its length or -errno. `snapshot` may be null.
int pin_blocks(Namespace &ns, const Key *keys, u64 count, const pool::Hit *snapshot, u32 ttl_ms,
               u64 deadline, TicketWire *ret_tickets, std::string *why);
void unpin_blocks(Context &context, const TicketWire *wires, u64 count);

// A pin as a hit that a get can use. -EINVAL for a reservation or another namespace's (ns 0: any).
int hit_of_ticket(Context &context, const TicketWire &wire, u16 ns, pool::Hit &ret_hit,
                  std::string *why);
// 1, 0 or -errno.
int ticket_valid(Context &context, const TicketWire &wire, std::string *why);

struct MappedPiece {
  const std::byte *addr = nullptr;
  u64 bytes = 0;
  u64 block_offset = 0;
  u32 device = 0;
};
// Pieces of a pinned block in this process, freshly acquired; returns how many there are.
int map_block(Context &context, const TicketWire &wire, u64 max, MappedPiece *ret_pieces,
              std::string *why);

}  // namespace kvpool::store
