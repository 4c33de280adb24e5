// SPDX-License-Identifier: Apache-2.0
// Seals: the seeded CRC-32C that binds a line to its store, life, place and, in areas, the epoch
// that fills the area (proto 4). A line moved, zeroed, filled with ones, or left by a former life
// or by another owner does not verify. Stale lines do: no decision rests on a seal alone.
#pragma once

#include "arch/crc32c.hpp"
#include "media/format.hpp"

namespace kvpool::media {

// Stands for a seed or a CRC that came out as zero, so that zeros never verify.
inline constexpr u32 kZeroSeedStandIn = 0x6B767031;  // "1pvk"
inline constexpr u16 kZeroMapCrcStandIn = 0x6B76;

constexpr bool all_ones(const Line &line) {
  u64 all = ~u64{0};
  for (u64 word : line.w) all &= word;
  return all == ~u64{0};
}

constexpr u32 stored_crc(const Line &line) { return static_cast<u32>(line.w[7] >> 32); }

inline void store_crc(Line &line, u32 crc) {
  line.w[7] = (line.w[7] & 0xFFFFFFFFull) | u64{crc} << 32;
}

// The identity line is read before uuid and nonce are known: its seed is made of the magic and of
// the device it says it is.
inline u32 identity_seed(u32 device_index) {
  const u64 c = crc32c_u64(0xFFFFFFFFu, kMagic);
  const u32 seed = static_cast<u32>(crc32c_u64(c, device_index));
  return seed != 0 ? seed : kZeroSeedStandIn;
}

// Seals lines of one life of one store. Immutable, cheap to copy.
class Sealer {
public:
  Sealer() = default;
  Sealer(const u8 uuid[16], u64 nonce) {
    u64 halves[2];
    std::memcpy(halves, uuid, sizeof(halves));
    u64 c = crc32c_u64(0xFFFFFFFFu, halves[0]);
    c = crc32c_u64(c, halves[1]);
    base_ = static_cast<u32>(crc32c_u64(c, nonce));
  }
  explicit Sealer(const Identity &identity) : Sealer(identity.uuid, identity.nonce) {}

  static Line sealed_identity(const Identity &identity) {
    Line line = to_line(identity);
    store_crc(line, crc32c_line60(identity_seed(identity.device_index), line));
    return line;
  }
  static bool identity_intact(const Line &line) {
    const u32 seed = identity_seed(from_line<Identity>(line).device_index);
    return crc32c_line60(seed, line) == stored_crc(line) && !all_ones(line);
  }

  // Epoch 0 stands for lines outside areas. The epoch goes in first, so that a scan of one area
  // computes its part once.
  u32 seed(PoolOffset addr, u32 epoch) const {
    const u64 c = crc32c_u64(base_, epoch);
    const u32 seed = static_cast<u32>(crc32c_u64(c, addr.raw()));
    return seed != 0 ? seed : kZeroSeedStandIn;
  }

  void seal(Line &line, PoolOffset addr, u32 epoch) const {
    store_crc(line, crc32c_line60(seed(addr, epoch), line));
  }
  bool intact(const Line &line, PoolOffset addr, u32 epoch) const {
    return crc32c_line60(seed(addr, epoch), line) == stored_crc(line) && !all_ones(line);
  }

  // The same for the structures of format.hpp.
  template <LineStruct T>
  Line sealed(const T &value, PoolOffset addr, u32 epoch) const {
    Line line = to_line(value);
    seal(line, addr, epoch);
    return line;
  }
  template <LineStruct T>
  bool intact(const T &value, PoolOffset addr, u32 epoch) const {
    return intact(to_line(value), addr, epoch);
  }

  // Four lines that follow each other, such as an index group: bit i of the result says whether
  // line i is intact. The four chains run side by side.
  u32 intact4(const Line lines[4], PoolOffset first, u32 epoch) const {
    u32 crc[4];
    crc_of_four(lines, first, epoch, crc);
    return mask_of(crc, lines);
  }
  // What seals them there.
  void seals4(const Line lines[4], PoolOffset first, u32 epoch, u32 ret_seals[4]) const {
    crc_of_four(lines, first, epoch, ret_seals);
  }
  // As intact4(), of lines that will be copied: ret_seals[i] is what seals line i, where it is
  // intact, at its next place. It follows from the seal that it has.
  u32 intact4(const Line lines[4], PoolOffset first, u32 epoch, PoolOffset next, u32 next_epoch,
              u32 ret_seals[4]) const {
    u32 seeds[4], crc[4];
    for (u32 i = 0; i < 4; ++i) seeds[i] = seed(first + i * kLineBytes, epoch);
    crc4(seeds, lines, crc);
    for (u32 i = 0; i < 4; ++i) {
      const u32 change = seeds[i] ^ seed(next + i * kLineBytes, next_epoch);
      ret_seals[i] = stored_crc(lines[i]) ^ crc32c_over_60_zeros(change);
    }
    return mask_of(crc, lines);
  }
  // Four lines anywhere, each with its own place.
  u32 intact4(const Line *const lines[4], const PoolOffset addr[4], u32 epoch) const {
    u32 seeds[4];
    for (u32 i = 0; i < 4; ++i) seeds[i] = seed(addr[i], epoch);
    u32 crc[4];
    crc4(seeds, lines, crc);
    u32 mask = 0;
    for (u32 i = 0; i < 4; ++i) {
      if (crc[i] == stored_crc(*lines[i]) && !all_ones(*lines[i])) mask |= 1u << i;
    }
    return mask;
  }

  // `addr` is the address of the 8-byte word itself (Geometry::map_word).
  u64 pack_map(const MapRecord &record, PoolOffset addr, u32 epoch) const {
    const u64 value = u64{record.holder} | u64{record.tag} << 8 |
                      u64{record.size_class & 63u} << 24 | u64{record.flags & 63u} << 30 |
                      u64{record.ns & 0xFFFu} << 36;
    return value | u64{map_crc(value, addr, epoch)} << 48;
  }
  // False: the word is not what an owner of this epoch wrote here; `ret_record` is untouched.
  bool unpack_map(u64 word, PoolOffset addr, u32 epoch, MapRecord &ret_record) const {
    const u64 value = word & kMapValueMask;
    if (static_cast<u16>(word >> 48) != map_crc(value, addr, epoch)) return false;
    MapRecord record;
    record.holder = static_cast<u8>(value);
    record.tag = static_cast<u16>(value >> 8);
    record.size_class = static_cast<u8>(value >> 24 & 63);
    record.flags = static_cast<u8>(value >> 30 & 63);
    record.ns = static_cast<u16>(value >> 36 & 0xFFF);
    if ((record.flags & ~(kMapTainted | kMapRunTail | kMapRunHead)) != 0) return false;
    ret_record = record;
    return true;
  }

private:
  static u32 mask_of(const u32 crc[4], const Line lines[4]) {
    // Nearly always all are: what is asked of them together costs less.
    u32 wrong = 0, ones = 0;
    for (u32 i = 0; i < 4; ++i) {
      wrong |= crc[i] ^ stored_crc(lines[i]);
      ones |= stored_crc(lines[i]) == ~u32{0};
    }
    if ((wrong | ones) == 0) [[likely]] return 15;
    u32 mask = 0;
    for (u32 i = 0; i < 4; ++i) {
      if (crc[i] == stored_crc(lines[i]) && !all_ones(lines[i])) mask |= 1u << i;
    }
    return mask;
  }
  void crc_of_four(const Line lines[4], PoolOffset first, u32 epoch, u32 ret_crc[4]) const {
    u32 seeds[4];
    for (u32 i = 0; i < 4; ++i) seeds[i] = seed(first + i * kLineBytes, epoch);
    crc4(seeds, lines, ret_crc);
  }
  static constexpr u64 kMapValueMask = (u64{1} << 48) - 1;

  u16 map_crc(u64 value, PoolOffset addr, u32 epoch) const {
    const u32 c = static_cast<u32>(crc32c_u64(seed(addr, epoch), value));
    const u16 crc = static_cast<u16>(c ^ c >> 16);
    return crc != 0 ? crc : kZeroMapCrcStandIn;
  }

  u32 base_ = 0;
};

}  // namespace kvpool::media
