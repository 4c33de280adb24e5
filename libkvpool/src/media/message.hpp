// SPDX-License-Identifier: Apache-2.0
// Messages as lines (struct Message of format.hpp), made and read word by word. A line is made in
// registers and read where it stands: a copy through the struct would store bytes and load vectors,
// and such a load waits until the stores before it, to far memory too, have left the processor.
#pragma once

#include <algorithm>
#include <cstring>

#include "media/format.hpp"

namespace kvpool::media {

static_assert(offsetof(Message, epoch) == 0 && offsetof(Message, sequence) == 4);
static_assert(offsetof(Message, incarnation) == 8 && offsetof(Message, type) == 16);
static_assert(offsetof(Message, lines) == 17 && offsetof(Message, index) == 18);
static_assert(offsetof(Message, status) == 19 && offsetof(Message, body) == 20);

// What all lines of a message have in common.
struct MessageHead {
  u32 epoch;
  u32 sequence;
  u64 incarnation;
  u8 type;
  u8 lines;
  u8 status;
};

constexpr u32 message_lines(u32 body_bytes) {
  return std::max(1u, (body_bytes + kMessageBody - 1) / kMessageBody);
}

// Line number `index` of a message whose whole body has `body_bytes` bytes, a multiple of 4; not
// sealed yet.
inline Line message_line(const MessageHead &head, u32 index, const void *body, u32 body_bytes) {
  static_assert(kMessageBody == 5 * sizeof(u64));
  const u32 begin = index * kMessageBody;
  const u8 *from = static_cast<const u8 *>(body) + begin;
  const u32 bytes = begin < body_bytes ? body_bytes - begin : 0;
  // As they were stored, and put together in registers.
  const auto part = [&](u32 i) {
    u64 word = 0;
    if (bytes >= (i + 1) * sizeof word) {
      std::memcpy(&word, from + i * sizeof word, sizeof word);
    } else if (bytes > i * sizeof word) {
      u32 half;
      std::memcpy(&half, from + i * sizeof word, sizeof half);
      word = half;
    }
    return word;
  };
  const u64 p0 = part(0), p1 = part(1), p2 = part(2), p3 = part(3), p4 = part(4);
  Line line;
  line.w[0] = u64{head.epoch} | u64{head.sequence} << 32;
  line.w[1] = head.incarnation;
  line.w[2] = u64{head.type} | u64{head.lines} << 8 | u64{index} << 16 | u64{head.status} << 24 |
              p0 << 32;
  line.w[3] = p0 >> 32 | p1 << 32;
  line.w[4] = p1 >> 32 | p2 << 32;
  line.w[5] = p2 >> 32 | p3 << 32;
  line.w[6] = p3 >> 32 | p4 << 32;
  line.w[7] = p4 >> 32;
  return line;
}

inline MessageHead message_head(const Line &line) {
  return {.epoch = static_cast<u32>(line.w[0]),
          .sequence = static_cast<u32>(line.w[0] >> 32),
          .incarnation = line.w[1],
          .type = static_cast<u8>(line.w[2]),
          .lines = static_cast<u8>(line.w[2] >> 8),
          .status = static_cast<u8>(line.w[2] >> 24)};
}
inline u32 message_index(const Line &line) { return static_cast<u8>(line.w[2] >> 16); }
inline const u8 *message_body(const Line &line) {
  return reinterpret_cast<const u8 *>(&line) + offsetof(Message, body);
}

}  // namespace kvpool::media
