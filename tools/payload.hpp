// SPDX-License-Identifier: Apache-2.0
// Payload that proves itself: every byte of a block is a function of its key and of a nonce that
// differs from publication to publication. The first line names nonce, writer and length under a
// check of its own, so that any process can verify any block, tell an older publication of the same
// key from the newest one, and say which member wrote it. Generating and comparing both run at
// memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvpool::tools {

inline constexpr std::size_t kPayloadHeader = 64;

struct PayloadId {
  std::uint64_t key[4] = {};
  std::uint64_t nonce = 0;   // one for each publication
  std::uint32_t writer = 0;  // member that published it
};

constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

namespace payload_detail {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;

constexpr std::uint64_t seed_of(const PayloadId &id, std::uint64_t salt) {
  std::uint64_t h = mix64(salt ^ id.nonce);
  for (const std::uint64_t word : id.key) h = mix64(h + kStep) ^ word;
  return mix64(h + id.writer);
}

// Word i is a counter with an odd step, folded once: it depends on the place as well as on the
// seed, so bytes that moved within the block differ too.
constexpr std::uint64_t word_at(std::uint64_t a, std::uint64_t b, std::uint64_t i) {
  const std::uint64_t w = a + i * kStep;
  return w ^ (w >> 29) ^ b;
}

inline void header_of(const PayloadId &id, std::uint64_t bytes, std::uint64_t out[8]) {
  out[0] = 0x59414c505642564bull;  // "KVBVPLAY"
  out[1] = id.nonce;
  out[2] = id.writer;
  out[3] = bytes;
  out[4] = id.key[0];
  out[5] = seed_of(id, 1);
  out[6] = seed_of(id, 2) ^ bytes;
  out[7] = mix64(out[1] ^ mix64(out[2] ^ mix64(out[3] ^ mix64(out[5] + out[6]))));
}

}  // namespace payload_detail

// Fills `bytes` bytes (a multiple of 8, at least kPayloadHeader) at `out`.
__attribute__((optimize("O3"))) inline void payload_fill(const PayloadId &id, void *out,
                                                         std::size_t bytes) {
  using namespace payload_detail;
  std::uint64_t header[8];
  header_of(id, bytes, header);
  std::memcpy(out, header, sizeof(header));
  const std::uint64_t a = seed_of(id, 3);
  const std::uint64_t b = seed_of(id, 4);
  auto *words = static_cast<char *>(out);
  std::uint64_t w = a + 8 * kStep;
  for (std::size_t i = kPayloadHeader; i < bytes; i += 8, w += kStep) {
    const std::uint64_t value = w ^ (w >> 29) ^ b;
    std::memcpy(words + i, &value, 8);
  }
}

enum class PayloadVerdict {
  kGood,
  kNoHeader,  // the first line is not one that payload_fill wrote for this key and length
  kWrong,     // the header is right and bytes behind it are not
};

struct PayloadReport {
  PayloadVerdict verdict = PayloadVerdict::kGood;
  std::uint64_t nonce = 0;
  std::uint32_t writer = 0;
  std::size_t first_bad = 0;  // offset of the first wrong byte's word
};

// Whether `bytes` bytes at `in` are one whole publication of `key`, by whomever.
__attribute__((optimize("O3"))) inline PayloadReport payload_verify(const std::uint64_t key[4],
                                                                    const void *in,
                                                                    std::size_t bytes) {
  using namespace payload_detail;
  PayloadReport report;
  std::uint64_t seen[8];
  std::memcpy(seen, in, sizeof(seen));
  PayloadId id{{key[0], key[1], key[2], key[3]}, seen[1], static_cast<std::uint32_t>(seen[2])};
  std::uint64_t header[8];
  header_of(id, bytes, header);
  if (std::memcmp(seen, header, sizeof(seen)) != 0) {
    report.verdict = PayloadVerdict::kNoHeader;
    return report;
  }
  report.nonce = id.nonce;
  report.writer = id.writer;
  const std::uint64_t a = seed_of(id, 3);
  const std::uint64_t b = seed_of(id, 4);
  const auto *words = static_cast<const char *>(in);
  std::uint64_t w = a + 8 * kStep;
  std::uint64_t differ = 0;
  for (std::size_t i = kPayloadHeader; i < bytes; i += 8, w += kStep) {
    std::uint64_t value;
    std::memcpy(&value, words + i, 8);
    differ |= value ^ w ^ (w >> 29) ^ b;
  }
  if (differ == 0) return report;
  report.verdict = PayloadVerdict::kWrong;
  for (std::size_t i = kPayloadHeader; i < bytes; i += 8) {
    std::uint64_t value;
    std::memcpy(&value, words + i, 8);
    if (value != word_at(a, b, i / 8)) {
      report.first_bad = i;
      break;
    }
  }
  return report;
}

}  // namespace kvpool::tools
