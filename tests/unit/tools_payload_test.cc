// SPDX-License-Identifier: Apache-2.0
// Shows: a block's payload proves key, publication and writer, and every wrong byte is noticed.
// How: flips of each byte of a small block, swaps within and between blocks, foreign keys and
// lengths.
#include <criterion/criterion.h>

#include <cstring>
#include <vector>

#include "payload.hpp"

using namespace kvpool::tools;

namespace {

constexpr PayloadId kId{{1, 2, 3, 4}, 77, 3};

std::vector<char> block_of(const PayloadId &id, std::size_t bytes) {
  std::vector<char> block(bytes);
  payload_fill(id, block.data(), bytes);
  return block;
}

}  // namespace

Test(payload, says_who_wrote_it_and_when) {
  for (const std::size_t bytes : {64u, 128u, 4096u, 65536u + 64u}) {
    const auto block = block_of(kId, bytes);
    const PayloadReport report = payload_verify(kId.key, block.data(), bytes);
    cr_assert_eq(report.verdict, PayloadVerdict::kGood);
    cr_assert_eq(report.nonce, 77);
    cr_assert_eq(report.writer, 3);
  }
}

Test(payload, notices_every_flipped_byte) {
  const std::size_t bytes = 1024;
  auto block = block_of(kId, bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    for (const char bit : {char(1), char(0x80)}) {
      block[i] = static_cast<char>(block[i] ^ bit);
      const PayloadReport report = payload_verify(kId.key, block.data(), bytes);
      cr_assert_neq(report.verdict, PayloadVerdict::kGood, "byte %zu", i);
      if (i >= kPayloadHeader) cr_assert_eq(report.first_bad, i / 8 * 8);
      block[i] = static_cast<char>(block[i] ^ bit);
    }
  }
}

Test(payload, notices_moved_and_mixed_bytes) {
  const std::size_t bytes = 8192;
  const auto good = block_of(kId, bytes);
  for (std::size_t a = 64; a + 128 <= bytes; a += 64) {
    auto moved = good;
    std::memcpy(moved.data() + a, good.data() + a + 64, 64);
    cr_assert_eq(payload_verify(kId.key, moved.data(), bytes).verdict, PayloadVerdict::kWrong);
  }
  PayloadId older = kId;
  older.nonce = 76;
  auto torn = good;  // head of one publication, tail of another
  std::memcpy(torn.data() + bytes / 2, block_of(older, bytes).data() + bytes / 2, bytes / 2);
  cr_assert_eq(payload_verify(kId.key, torn.data(), bytes).verdict, PayloadVerdict::kWrong);
  const std::uint64_t other[4] = {1, 2, 3, 5};
  cr_assert_eq(payload_verify(other, good.data(), bytes).verdict, PayloadVerdict::kNoHeader);
  cr_assert_eq(payload_verify(kId.key, good.data(), bytes / 2).verdict, PayloadVerdict::kNoHeader);
  const std::vector<char> zeros(bytes);
  cr_assert_eq(payload_verify(kId.key, zeros.data(), bytes).verdict, PayloadVerdict::kNoHeader);
}
