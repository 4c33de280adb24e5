// SPDX-License-Identifier: Apache-2.0
// Tickets (proto 11): a reservation or a pin in 64 bytes that any member of the group can use, on
// any host. Owns their layout, which only this library reads: it may change with every release,
// since a ticket never outlives the processes that exchange it.
//
// A ticket is refused by what is foreign about it: store, life, group. The expiry is a time of the
// host that issued it; on another host it means nothing (the entry check after the use decides).
#pragma once

#include <cstring>

#include "pool/types.hpp"

namespace kvpool::store {

enum class TicketKind : u8 { kReservation = 1, kPin = 2, kTaintedPin = 3 };

inline constexpr u64 kTicketDurationMsMax = (u64{1} << 20) - 1;
inline constexpr u32 kTicketSlotMax = (u32{1} << 20) - 1;

// Who issues and who may use: everything a ticket is compared with.
struct TicketScope {
  u8 uuid[16] = {};      // of the store
  u64 life_nonce = 0;    // of this life of it
  u64 group = 0;         // the engine's id, or the member's incarnation when it is alone
  u64 incarnation = 0;   // of the issuing member
  u64 host_stamp = 0;    // names this boot of this host: whose clock the expiry is on
};

struct Ticket {
  TicketKind kind = TicketKind::kReservation;
  u16 ns = 0;
  u32 slot = 0;            // in the issuer's table of reservations or pins
  u64 address = 0;         // pool address of the block
  u64 payload_bytes = 0;   // whole lines
  u32 shards = 1;
  u64 generation = 0;      // reservation: its nonce; pin: the version it protects
  u64 check_hash = 0;      // pin: of the block; reservation: first word of the key
  u32 entry = 0;           // pin
  u32 epoch = 0;           // of the owner, 24 bits
  u32 duration_ms = 0;     // of a pin, as granted
  u64 expiry_ns = 0;       // on the issuing host's clock, in steps of 1.05 ms; decoded: modulo 2^52
  u32 incarnation_tag = 0;  // decoded: of the issuer
  bool same_host = false;   // decoded: the expiry may be compared with this host's clock
};

// What a ticket is on the wire: eight words, the last 32 bits a CRC over the rest.
struct TicketWire {
  u64 w[8];
};

void encode_ticket(const TicketScope &scope, const Ticket &ticket, TicketWire &ret_wire);

// 0; -EBADMSG (damaged, or no ticket), -EXDEV (another store), -EIDRM (an earlier life of this
// one), -EACCES (another group). ret_ticket is untouched on failure.
int decode_ticket(const TicketScope &scope, const TicketWire &wire, Ticket &ret_ticket);

// What the errors mean, for the message of a refusing call.
const char *ticket_error(int err);

// Whether the time of a pin is over by the clock of the host that issued it.
bool expired(const Ticket &ticket, u64 now_ns);

// Whether the issuer was this very incarnation (its table has the slot).
bool issued_here(const TicketScope &scope, const Ticket &ticket);

}  // namespace kvpool::store
