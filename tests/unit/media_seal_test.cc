// SPDX-License-Identifier: Apache-2.0
// Shows: a sealed line verifies only where, when and for whom it was sealed; nothing else does.
// How: each structure of the format is moved, torn, zeroed, filled, and read under other seeds.
#include <criterion/criterion.h>

#include <cstdlib>

#include "arch/check_keys.hpp"
#include "media/seal.hpp"

using namespace kvpool;
using namespace kvpool::media;

namespace {

const u8 kUuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
const u8 kOtherUuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17};

// A line of the type whose fields are all set, so that each part of it carries something.
template <class T>
Line filled(u64 seed) {
  Line line;
  for (u64 i = 0; i < 8; ++i) line.w[i] = splitmix64(seed, i + 1);
  return to_line(from_line<T>(line));
}

template <class T>
void moves_tears_zeroes_fills(const char *name) {
  const Sealer sealer(kUuid, 77);
  const PoolOffset at(1, 0x4000);
  const u32 epoch = make_epoch(5, 2);
  Line old_line = filled<T>(1), new_line = filled<T>(2);
  sealer.seal(old_line, at, epoch);
  sealer.seal(new_line, at, epoch);
  cr_expect(sealer.intact(new_line, at, epoch), "%s", name);
  cr_expect(sealer.intact(old_line, at, epoch), "%s", name);

  cr_expect(!sealer.intact(new_line, at + 64, epoch), "%s moved a line", name);
  cr_expect(!sealer.intact(new_line, PoolOffset(0, 0x4000), epoch), "%s moved a device", name);
  cr_expect(!sealer.intact(new_line, at, epoch + 16), "%s of another epoch", name);
  cr_expect(!sealer.intact(new_line, at, 0), "%s as if outside areas", name);
  cr_expect(!Sealer(kUuid, 78).intact(new_line, at, epoch), "%s of a former life", name);
  cr_expect(!Sealer(kOtherUuid, 77).intact(new_line, at, epoch), "%s of another store", name);

  for (int words = 1; words < 8; ++words) {  // the first words new, the others old
    Line torn = old_line;
    for (int i = 0; i < words; ++i) torn.w[i] = new_line.w[i];
    cr_expect(!sealer.intact(torn, at, epoch), "%s torn after %d words", name, words);
  }
  for (int bit = 0; bit < 512; ++bit) {
    Line flipped = new_line;
    flipped.w[bit / 64] ^= u64{1} << bit % 64;
    cr_expect(!sealer.intact(flipped, at, epoch), "%s bit %d", name, bit);
  }
  Line zeros{}, ones;
  for (u64 &word : ones.w) word = ~u64{0};
  cr_expect(!sealer.intact(zeros, at, epoch), "%s zeroed", name);
  cr_expect(!sealer.intact(ones, at, epoch), "%s all ones", name);
}

constexpr u32 kSeedVectors[5] = {0x73D74D75, 0xC9EFD129, 0x89A2D3C5, 0xEBB449ED, 0x9051325C};
constexpr u64 kMapVector = 0xB59E007054BEEFFFull;

}  // namespace

Test(media_seal, every_structure) {
  moves_tears_zeroes_fills<GeometryA>("geometry A");
  moves_tears_zeroes_fills<GeometryB>("geometry B");
  moves_tears_zeroes_fills<HostLine>("host");
  moves_tears_zeroes_fills<MemberLine>("member");
  moves_tears_zeroes_fills<ReaperLine>("reaper");
  moves_tears_zeroes_fills<ClaimLine>("claim");
  moves_tears_zeroes_fills<RegionHead>("region head");
  moves_tears_zeroes_fills<RegionPlaces>("region places");
  moves_tears_zeroes_fills<NamespaceLine>("namespace");
  moves_tears_zeroes_fills<Entry>("entry");
  moves_tears_zeroes_fills<CheckLine>("check");
  moves_tears_zeroes_fills<Message>("message");
  moves_tears_zeroes_fills<NoticeLine>("notice");
}

// Zeros and ones never verify, whatever the seed: also where the CRC itself would come out so.
Test(media_seal, zeros_and_ones_under_many_seeds) {
  Line zeros{}, ones;
  for (u64 &word : ones.w) word = ~u64{0};
  for (u64 nonce = 1; nonce <= 2000; ++nonce) {
    const Sealer sealer(kUuid, nonce);
    for (u64 byte = 0; byte < 64 * 100; byte += 64) {
      const PoolOffset at(0, byte);
      cr_assert(sealer.seed(at, 0) != 0);
      cr_assert(!sealer.intact(zeros, at, 0));
      cr_assert(!sealer.intact(ones, at, 0));
    }
  }
}

namespace {

// The register before `count` bytes of value `byte` went in.
u32 undo_bytes(u32 crc, u8 byte, int count) {
  for (int i = 0; i < count; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 31) != 0 ? (crc ^ 0x82F63B78u) << 1 | 1 : crc << 1;
    }
    crc ^= byte;
  }
  return crc;
}

}  // namespace

// An epoch is made up under which 60 bytes of ones have a CRC of ones: still no valid line.
Test(media_seal, ones_with_a_matching_crc) {
  u64 halves[2];
  std::memcpy(halves, kUuid, 16);
  const u64 nonce = 77;
  const u64 base = crc32c_u64(crc32c_u64(crc32c_u64(0xFFFFFFFFu, halves[0]), halves[1]), nonce);
  const u32 before_address = undo_bytes(undo_bytes(0xFFFFFFFFu, 0xFF, 60), 0, 8);  // address 0
  const u32 epoch = undo_bytes(before_address, 0, 8) ^ static_cast<u32>(base);
  const Sealer sealer(kUuid, nonce);
  Line ones;
  for (u64 &word : ones.w) word = ~u64{0};
  cr_assert(crc32c_line60(sealer.seed(PoolOffset(0, 0), epoch), ones) == 0xFFFFFFFFu);
  cr_expect(!sealer.intact(ones, PoolOffset(0, 0), epoch));
  const Line group[4] = {ones, ones, ones, ones};
  cr_expect((sealer.intact4(group, PoolOffset(0, 0), epoch) & 1) == 0);
}

Test(media_seal, identity_has_its_own_seed) {
  Identity id{};
  id.magic = kMagic;
  id.device_index = 3;
  id.nonce = 9;
  Line line = Sealer::sealed_identity(id);
  cr_expect(Sealer::identity_intact(line));
  Identity other = from_line<Identity>(line);
  other.device_index = 2;
  cr_expect(!Sealer::identity_intact(to_line(other)));
  other = from_line<Identity>(line);
  other.nonce = 10;
  cr_expect(!Sealer::identity_intact(to_line(other)));
  cr_expect(!Sealer::identity_intact(Line{}));
  cr_expect(!Sealer(kUuid, 9).intact(line, PoolOffset(3, 0), 0));
}

Test(media_seal, four_at_once_equal_one_by_one) {
  const Sealer sealer(kUuid, 4711);
  const PoolOffset at(2, 0x10000);
  for (u32 broken = 0; broken < 16; ++broken) {
    Line lines[4];
    const Line *scattered[4];
    PoolOffset places[4];
    for (u32 i = 0; i < 4; ++i) {
      lines[i] = filled<Entry>(broken * 4 + i);
      sealer.seal(lines[i], at + i * 64, 48);
      if ((broken >> i & 1) != 0) lines[i].w[i] ^= 4;
      scattered[i] = &lines[3 - i];
      places[i] = at + (3 - i) * 64;
    }
    u32 reversed = 0;
    for (u32 i = 0; i < 4; ++i) reversed |= (~broken >> i & 1) << (3 - i);
    cr_expect(sealer.intact4(lines, at, 48) == (~broken & 15));
    cr_expect(sealer.intact4(lines, at, 64) == 0);
    cr_expect(sealer.intact4(scattered, places, 48) == reversed);
  }
}

// Guards: lines that are copied get their next seal from the one they have.
Test(media_seal, next_seals_follow_from_those_that_lines_have) {
  const Sealer sealer(kUuid, 4711);
  for (u32 round = 0; round < 2000; ++round) {
    const PoolOffset at(2, 0x10000 + u64{round} * 4096), next(round % 3, u64{round} << 22);
    const u32 epoch = round * 77, next_epoch = epoch + 1 + round % 5;
    Line lines[4];
    u32 seals[4], plain[4];
    for (u32 i = 0; i < 4; ++i) {
      lines[i] = filled<Entry>(round * 4 + i);
      sealer.seal(lines[i], at + i * 64, epoch);
    }
    cr_assert(sealer.intact4(lines, at, epoch, next, next_epoch, seals) == 15);
    sealer.seals4(lines, next, next_epoch, plain);
    for (u32 i = 0; i < 4; ++i) {
      cr_assert_eq(seals[i], plain[i], "round %u", round);
      cr_assert(sealer.intact(with_seal(lines[i], seals[i]), next + i * 64, next_epoch));
    }
    lines[round % 4].w[round % 7] ^= 1;
    cr_assert(sealer.intact4(lines, at, epoch, next, next_epoch, seals) ==
              (15u & ~(1u << round % 4)));
  }
}

Test(media_seal, map_words) {
  const Sealer sealer(kUuid, 5);
  const PoolOffset at(0, 0x8008);
  u64 seed = 1;
  u32 accepted_elsewhere = 0, tries = 0;
  for (u32 round = 0; round < 4000; ++round) {
    MapRecord record{static_cast<u8>(splitmix64(seed, 1)), static_cast<u16>(splitmix64(seed, 2)),
                     static_cast<u8>(splitmix64(seed, 3) & 63),
                     static_cast<u8>(splitmix64(seed, 4) & 7),
                     static_cast<u16>(splitmix64(seed, 5) & 0xFFF)};
    ++seed;
    const u64 word = sealer.pack_map(record, at, 32);
    MapRecord back{};
    cr_assert(sealer.unpack_map(word, at, 32, back));
    cr_assert(back == record);
    for (u32 bit = 0; bit < 64; ++bit) {
      cr_assert(!sealer.unpack_map(word ^ u64{1} << bit, at, 32, back), "bit %u", bit);
    }
    accepted_elsewhere += sealer.unpack_map(word, at + 8, 32, back);
    accepted_elsewhere += sealer.unpack_map(word, at, 48, back);
    accepted_elsewhere += Sealer(kUuid, 6).unpack_map(word, at, 32, back);
    tries += 3;
    cr_assert(!sealer.unpack_map(0, at + round * 8, 32, back));
    cr_assert(!sealer.unpack_map(~u64{0}, at + round * 8, 32, back));
  }
  // 16 bits of CRC: one foreign word in 65,536 passes, so of 12,000 hardly any.
  cr_expect(accepted_elsewhere <= 4, "%u of %u", accepted_elsewhere, tries);
}

// What Documentation/format.md states (section "Seals").
Test(media_seal, vectors) {
  u8 uuid[16];
  for (u32 i = 0; i < 16; ++i) uuid[i] = static_cast<u8>(0x10 + i);
  const Sealer sealer(uuid, 0x1122334455667788ull);
  Line line{};
  line.w[0] = 1;
  sealer.seal(line, PoolOffset(1, 0x1000), 0x10);
  cr_expect(crc32c_u64(0xFFFFFFFFu, 0) == kSeedVectors[0]);
  cr_expect(identity_seed(0) == kSeedVectors[1]);
  cr_expect(sealer.seed(PoolOffset(0, 0x40), 0) == kSeedVectors[2]);
  cr_expect(sealer.seed(PoolOffset(1, 0x1000), 0x10) == kSeedVectors[3]);
  cr_expect(stored_crc(line) == kSeedVectors[4]);
  const MapRecord record{255, 0xBEEF, 20, kMapTainted, 7};
  cr_expect(sealer.pack_map(record, PoolOffset(0, 0x2008), 0x10) == kMapVector);
}
