// SPDX-License-Identifier: Apache-2.0
#include "store/tickets.hpp"

#include "arch/crc32c.hpp"

namespace kvpool::store {

namespace {

constexpr u64 kCrcSeed = 0x4B565449;  // never the seed of a line on the medium
constexpr u32 kExpiryShift = 20;  // 1.05 ms: 32 bits hold 52 days
constexpr u64 kMask20 = (u64{1} << 20) - 1;
constexpr u64 kMask24 = (u64{1} << 24) - 1;

// A well-mixed word of any 64-bit value: tags of different things rarely meet.
constexpr u64 mixed(u64 x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDull;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53ull;
  return x ^ x >> 33;
}

u32 store_tag(const TicketScope &scope) {
  u64 half[2];
  std::memcpy(half, scope.uuid, sizeof half);
  return static_cast<u32>(mixed(half[0] ^ mixed(half[1])));
}
u32 life_tag(const TicketScope &scope) { return static_cast<u32>(mixed(scope.life_nonce)); }
u32 group_tag(const TicketScope &scope) { return mixed(scope.group) & kMask24; }
u32 member_tag(const TicketScope &scope) { return mixed(scope.incarnation) & kMask24; }
u32 host_tag(const TicketScope &scope) { return mixed(scope.host_stamp) & 0xFFFF; }

u32 crc_of(const TicketWire &wire) {
  u32 crc = kCrcSeed;
  for (int i = 0; i < 7; ++i) crc = crc32c_u64(crc, wire.w[i]);
  return crc32c_u64(crc, wire.w[7] & 0xFFFFFFFFu);
}

}  // namespace

// w0 store 32 | life 32          w1 issuer 24 | group 24 | host 16     w2 generation
// w3 address / 256 40 | kind 4 | namespace 12 | 8 zero                 w4 check hash
// w5 entry 32 | epoch 24 | slot high 8                                 w6 length 32 | duration 20 |
// slot low 12                    w7 expiry 32 | crc 32
void encode_ticket(const TicketScope &scope, const Ticket &ticket, TicketWire &ret_wire) {
  TicketWire wire;
  const u64 duration = ticket.duration_ms & kMask20;
  const u64 expiry = ticket.expiry_ns >> kExpiryShift & 0xFFFFFFFFu;
  wire.w[0] = store_tag(scope) | u64{life_tag(scope)} << 32;
  wire.w[1] = member_tag(scope) | u64{group_tag(scope)} << 24 | u64{host_tag(scope)} << 48;
  wire.w[2] = ticket.generation;
  wire.w[3] = ticket.address / media::kLocatorUnit | u64{static_cast<u8>(ticket.kind)} << 40 |
              u64{ticket.ns} << 44;
  wire.w[4] = ticket.check_hash;
  wire.w[5] = ticket.entry | u64{ticket.epoch} << 32 | u64{ticket.slot} >> 12 << 56;
  wire.w[6] = media::pack_length(ticket.payload_bytes / kLineBytes, ticket.shards) |
              duration << 32 | (u64{ticket.slot} & 0xFFF) << 52;
  wire.w[7] = expiry;
  wire.w[7] |= u64{crc_of(wire)} << 32;
  ret_wire = wire;
}

int decode_ticket(const TicketScope &scope, const TicketWire &wire, Ticket &ret_ticket) {
  if (static_cast<u32>(wire.w[7] >> 32) != crc_of(wire)) return -EBADMSG;
  const u64 kind = wire.w[3] >> 40 & 15;
  if (kind < 1 || kind > 3 || wire.w[3] >> 56 != 0) return -EBADMSG;
  if (static_cast<u32>(wire.w[0]) != store_tag(scope)) return -EXDEV;
  if (wire.w[0] >> 32 != life_tag(scope)) return -EIDRM;
  if ((wire.w[1] >> 24 & kMask24) != group_tag(scope)) return -EACCES;
  Ticket out;
  out.kind = static_cast<TicketKind>(kind);
  out.ns = static_cast<u16>(wire.w[3] >> 44 & 0xFFF);
  out.slot = static_cast<u32>(wire.w[5] >> 56 << 12 | wire.w[6] >> 52);
  out.address = (wire.w[3] & ((u64{1} << 40) - 1)) * media::kLocatorUnit;
  out.payload_bytes = (wire.w[6] & media::kPayloadLinesMax) * kLineBytes;
  out.shards = static_cast<u32>(wire.w[6] >> 26 & 63) + 1;
  out.generation = wire.w[2];
  out.check_hash = wire.w[4];
  out.entry = static_cast<u32>(wire.w[5]);
  out.epoch = static_cast<u32>(wire.w[5] >> 32 & kMask24);
  out.duration_ms = static_cast<u32>(wire.w[6] >> 32 & kMask20);
  out.expiry_ns = (wire.w[7] & 0xFFFFFFFFu) << kExpiryShift;
  out.incarnation_tag = static_cast<u32>(wire.w[1] & kMask24);
  out.same_host = wire.w[1] >> 48 == host_tag(scope);
  if (out.payload_bytes == 0) return -EBADMSG;
  ret_ticket = out;
  return 0;
}

// The wire has 32 bits of the time, so it is the one nearest to now.
bool expired(const Ticket &ticket, u64 now_ns) {
  const u32 step = static_cast<u32>(ticket.expiry_ns >> kExpiryShift);
  return static_cast<std::int32_t>(static_cast<u32>(now_ns >> kExpiryShift) - step) >= 0;
}

bool issued_here(const TicketScope &scope, const Ticket &ticket) {
  return ticket.incarnation_tag == member_tag(scope);
}

const char *ticket_error(int err) {
  switch (err) {
    case -EBADMSG: return "ticket: damaged, or not a ticket at all";
    case -EXDEV: return "ticket: issued for another store, or before this one was formatted";
    case -EIDRM: return "ticket: issued in another life of this store, under the same id";
    case -EACCES: return "ticket: issued for another engine's group";
    case -EKEYEXPIRED: return "ticket: expired";
    default: return "ticket: refused";
  }
}

}  // namespace kvpool::store
