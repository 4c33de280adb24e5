// SPDX-License-Identifier: Apache-2.0
// Shows: the payload check is what Documentation/format.md says, the same in every vector form and
// order, binds position and length, and errs no more often than a random function would.
// How: vectors, comparison with the plain form on random pieces, and a model scaled to 16 bits in
// which misses are frequent enough to be counted.
#include <criterion/criterion.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "arch/check_keys.hpp"
#include "arch/crc32c.hpp"
#include "arch/x86_memory.hpp"

using namespace kvpool;

namespace {

struct Random {
  u64 state;
  u64 operator()() {
    ++state;
    return splitmix64(0x1234, state);
  }
  u64 below(u64 n) { return (*this)() % n; }
};

u64 check_of(const std::vector<std::byte> &bytes) {
  CheckLanes lanes{};
  check_add_reference(lanes, bytes.data(), bytes.size() / kLineBytes, 0);
  return check_fold(lanes, bytes.size() / kLineBytes);
}

bool same(const CheckLanes &a, const CheckLanes &b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

Test(arch_check, vectors) {
  cr_assert_eq(kCheckBase[0], 0xDBDAC96C584530C6ull);
  cr_assert_eq(kCheckBase[7], 0x72D58AD275C80387ull);
  cr_assert_eq(kCheckStep[0], 0x92A485ED2B803693ull);
  cr_assert_eq(kCheckStep[7], 0xBDC485FD862C96D3ull);
  for (const u64 step : kCheckStep) cr_assert_eq(step & kCheckOdd, kCheckOdd);
  cr_assert_eq(check_of({}), 0xF8E3D9654DC3092Eull);
  std::vector<std::byte> bytes(kLineBytes);
  cr_assert_eq(check_of(bytes), 0x13AA51AD8CB27F43ull);
  for (u64 i = 0; i < kLineBytes; ++i) bytes[i] = static_cast<std::byte>(i);
  cr_assert_eq(check_of(bytes), 0x7DDD4BB3654287C6ull);
  bytes.resize(kSegmentBytes);
  for (u64 i = 0; i < kSegmentBytes; ++i) bytes[i] = static_cast<std::byte>(i * 131 + i / 256);
  cr_assert_eq(check_of(bytes), 0x4B70D611971CA95Eull);
  const u64 table[] = {1, 2, 3};
  cr_assert_eq(check_table_hash(table, 3), 0xDD0AF42387B1A5E6ull);
  cr_assert_eq(check_table_hash(table, 0), 0x4C10E12770A23226ull);
}

Test(arch_check, every_vector_form_equals_the_plain_one_while_it_copies) {
  Random random{1};
  std::vector<std::byte> pool_bytes(kSegmentBytes + kLineBytes);
  auto *pool = reinterpret_cast<std::byte *>(
      (reinterpret_cast<u64>(pool_bytes.data()) + kLineBytes - 1) & ~(kLineBytes - 1));
  const DeviceMapping devices[] = {{pool, kSegmentBytes}};
  std::vector<std::byte> local(kSegmentBytes + 2 * kLineBytes),
      back(kSegmentBytes + 2 * kLineBytes);
  int forms = 0;
  for (const Isa isa : {Isa::kSse2, Isa::kAvx2, Isa::kAvx512, Isa::kMovdir64b}) {
    X86Choice choice;
    std::string error;
    if (choose_x86({isa, FlushInsn::kAuto}, choice, error) != 0) continue;
    ++forms;
    X86Memory mem(devices, {isa});
    for (int round = 0; round < 300; ++round) {
      const u64 lines = random.below(round % 10 == 0 ? kSegmentLines + 1 : 20);
      const u64 first = random.below(kSegmentLines);
      const u64 skew = random.below(kLineBytes);
      for (u64 i = 0; i < lines * kLineBytes; ++i)
        local[skew + i] = static_cast<std::byte>(random());
      CheckLanes start;
      for (u64 i = 0; i < 8; ++i)
        start.p[i] = random(), start.q[i] = random(), start.d[i] = random();
      CheckLanes plain = start, streamed = start, fetched = start, ahead = start, added = start;
      check_add_reference(plain, local.data() + skew, lines, first);
      mem.stream_lines(PoolOffset(0, 0), local.data() + skew, lines, &streamed, first);
      mem.drain();
      cr_assert(same(streamed, plain), "%s stream", isa_name(isa));
      cr_assert_eq(std::memcmp(pool, local.data() + skew, lines * kLineBytes), 0);
      for (CheckLanes *lanes : {&fetched, &ahead}) {
        std::memset(back.data(), 0, back.size());
        const PoolOffset flush_at = lanes == &ahead ? PoolOffset(0, 0) : kNoOffset;
        cr_assert(
            mem.fetch_lines(back.data() + skew, PoolOffset(0, 0), lines, flush_at, lanes, first));
        cr_assert(same(*lanes, plain), "%s fetch", isa_name(isa));
        cr_assert_eq(std::memcmp(pool, back.data() + skew, lines * kLineBytes), 0);
        for (u64 i = 0; i < skew; ++i) cr_assert_eq(back[i], std::byte{0});
        for (u64 i = skew + lines * kLineBytes; i < back.size(); ++i)
          cr_assert_eq(back[i], std::byte{0});
      }
      mem.payload_ops().add(added, local.data() + skew, lines, first);
      cr_assert(same(added, plain), "%s add", isa_name(isa));
      const u64 bytes = random.below(lines * kLineBytes + 1);
      const u64 from = random.below(lines * kLineBytes - bytes + 1);
      std::memset(back.data(), 0, back.size());
      cr_assert(mem.fetch_bytes(back.data() + skew, PoolOffset(0, from), bytes));
      cr_assert_eq(std::memcmp(pool + from, back.data() + skew, bytes), 0);
      for (u64 i = skew + bytes; i < back.size(); ++i) cr_assert_eq(back[i], std::byte{0});
    }
  }
  cr_assert_geq(forms, 1);
}

Test(arch_check, lines_may_be_added_in_any_order_but_their_place_counts) {
  Random random{2};
  std::vector<std::byte> bytes(64 * kLineBytes);
  for (std::byte &b : bytes) b = static_cast<std::byte>(random());
  const u64 whole = check_of(bytes);
  CheckLanes lanes{};
  for (u64 i = 64; i > 0; --i) check_add_reference(lanes, &bytes[(i - 1) * kLineBytes], 1, i - 1);
  cr_assert_eq(check_fold(lanes, 64), whole);
  cr_assert_neq(check_fold(lanes, 63), whole, "the length is bound");
  std::vector<std::byte> moved(bytes.begin() + kLineBytes, bytes.end());
  moved.insert(moved.end(), bytes.begin(), bytes.begin() + kLineBytes);
  cr_assert_neq(check_of(moved), whole);
  bytes.resize(65 * kLineBytes);
  cr_assert_neq(check_of(bytes), whole, "a zero line at the end counts");
}

Test(arch_check, every_single_bit_flip_of_a_line_is_seen) {
  std::vector<std::byte> bytes(4 * kLineBytes);
  const u64 before = check_of(bytes);
  for (u64 bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    cr_assert_neq(check_of(bytes), before, "bit %lu", bit);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  cr_assert_eq(check_of(bytes), before);
}

// ---- the construction with 16-bit words: 8-bit halves, 16-bit sums, a 16-bit digest -------------

namespace {

constexpr int kModelLines = 16;
struct ModelKeys {
  u16 base[8], step[8], multiplier;
};
struct Model {
  u16 w[kModelLines][8];
};

u16 model_mix(u16 h, u16 v, const ModelKeys &keys) {
  h ^= v;
  h = static_cast<u16>(h * keys.multiplier);
  h ^= static_cast<u16>(h >> 7);
  return static_cast<u16>(std::rotl(h, 5) + 0x632B);
}

u16 model_check(const Model &m, const ModelKeys &keys) {
  u16 p[8] = {}, q[8] = {}, d[8] = {};
  for (int i = 0; i < kModelLines; ++i) {
    u16 u[8];
    for (int k = 0; k < 8; ++k)
      u[k] = static_cast<u16>(m.w[i][k] ^ (keys.base[k] + i * keys.step[k]));
    for (int k = 0; k < 8; ++k) {
      p[k] = static_cast<u16>(p[k] + (u[k] & 255) * (u[k] >> 8));
      q[k] = static_cast<u16>(q[k] + (u[k] & 255) * (u[k ^ 1] >> 8));
      d[k] = static_cast<u16>(d[k] + m.w[i][k]);
    }
  }
  u16 h = model_mix(0x9E37, kModelLines, keys);
  for (const u16 v : p) h = model_mix(h, v, keys);
  for (const u16 v : q) h = model_mix(h, v, keys);
  for (const u16 v : d) h = model_mix(h, v, keys);
  return h;
}

// Damages of memory that loses or mixes lines. True if `m` changed.
enum Damage {
  kFlip,
  kFlipZero,
  kTwoFlips,
  kSameBitTwice,
  kSwap,
  kZeroed,
  kTorn,
  kWordMoved,
  kRotated,
  kDamages
};
const char *const kDamageNames[] = {
    "bit flip",         "bit flip in zeros", "two bit flips", "same bit in two lines",
    "lines swapped",    "line zeroed",       "line torn",     "word moved to another line",
    "rotated by a line"};

void damage(Model &m, int kind, Random &random) {
  const u64 r = random();
  const int i = r & 15, j = (i + 1 + (r >> 4) % 15) & 15, k = r >> 8 & 7, n = r >> 11 & 7;
  const u16 bit = static_cast<u16>(1u << (r >> 16 & 15)),
            other = static_cast<u16>(1u << (r >> 20 & 15));
  switch (kind) {
    case kFlip:
    case kFlipZero:
      m.w[i][k] ^= bit;
      break;
    case kTwoFlips:
      m.w[i][k] ^= bit;
      m.w[j][n] ^= other;
      break;
    case kSameBitTwice:
      m.w[i][k] ^= bit;
      m.w[j][k] ^= bit;
      break;
    case kSwap:
      std::swap(m.w[i], m.w[j]);
      break;
    case kZeroed:
      std::memset(m.w[i], 0, sizeof m.w[i]);
      break;
    case kTorn:
      for (int word = 4; word < 8; ++word) m.w[i][word] = static_cast<u16>(random());
      break;
    case kWordMoved:
      std::swap(m.w[i][k], m.w[j][k]);
      break;
    default: {
      const Model old = m;
      for (int line = 0; line < kModelLines; ++line) {
        std::memcpy(m.w[line], old.w[(line + 1) % kModelLines], sizeof m.w[line]);
      }
    }
  }
}

}  // namespace

Test(arch_check, a_scaled_model_misses_no_more_than_a_random_function, .timeout = 120) {
  Random random{3};
  constexpr u64 kTrials = 1'000'000;  // 15 misses are ideal
  for (int kind = 0; kind < kDamages; ++kind) {
    u64 misses = 0, changed = 0;
    ModelKeys keys{};
    for (u64 trial = 0; trial < kTrials; ++trial) {
      if (trial % 16 == 0) {
        for (int k = 0; k < 8; ++k) {
          keys.base[k] = static_cast<u16>(random());
          keys.step[k] = static_cast<u16>(random() | 0x101);
        }
        keys.multiplier = static_cast<u16>(random() | 1);
      }
      Model m{};
      if (kind != kFlipZero) {
        for (auto &line : m.w) {
          const u64 a = random(), b = random();
          std::memcpy(line, &a, 8);
          std::memcpy(line + 4, &b, 8);
        }
      }
      const u16 before = model_check(m, keys);
      const Model old = m;
      damage(m, kind, random);
      if (std::memcmp(&m, &old, sizeof m) == 0) continue;
      ++changed;
      misses += model_check(m, keys) == before ? 1 : 0;
    }
    const double ideal = static_cast<double>(changed) / 65536;
    const double ratio = static_cast<double>(misses) / ideal;
    std::printf("%-28s %5lu misses, %.2f of ideal\n", kDamageNames[kind], misses, ratio);
    cr_assert_lt(ratio, 2.0, "%s: %.2f of ideal", kDamageNames[kind], ratio);
    cr_assert_gt(ratio, 0.3, "%s: %.2f of ideal", kDamageNames[kind], ratio);
  }
}

// ---- CRC-32C ------------------------------------------------------------------------------------

Test(arch_check, crc_is_castagnoli_in_every_form) {
  // The check value of CRC-32C over "123456789", with the usual inversions around the raw form.
  cr_assert_eq(~crc32c(~0u, "123456789", 9), 0xE3069283u);
  static_assert(crc32c_u64(1, 0x0123456789ABCDEFull) != 0);
  Random random{4};
  for (int round = 0; round < 1000; ++round) {
    Line line[4];
    const Line *list[4];
    u32 seed[4], crc[4];
    for (int i = 0; i < 4; ++i) {
      for (u64 &w : line[i].w) w = random();
      list[i] = &line[i];
      seed[i] = static_cast<u32>(random());
    }
    crc4(seed, list, crc);
    for (int i = 0; i < 4; ++i) {
      u32 reference = seed[i];
      const auto *bytes = reinterpret_cast<const u8 *>(&line[i]);
      for (int k = 0; k < 60; ++k) reference = crc32c_reference(reference, bytes[k]);
      cr_assert_eq(crc[i], reference);
      cr_assert_eq(crc32c_line60(seed[i], line[i]), reference);
      cr_assert_eq(crc32c(seed[i], bytes, 60), reference);
    }
  }
}
