// SPDX-License-Identifier: Apache-2.0
// The line of an entry that is published, made word by word for the reason that message.hpp gives.
#pragma once

#include "media/format.hpp"

namespace kvpool::media {

static_assert(offsetof(Entry, key) == 0 && offsetof(Entry, version) == 32);
static_assert(offsetof(Entry, check_hash) == 40 && offsetof(Entry, length) == 48);
static_assert(offsetof(Entry, locator_low) == 52 && offsetof(Entry, locator_high) == 56);
static_assert(offsetof(Entry, state) == 57 && offsetof(Entry, ns) == 58);

// Not sealed yet.
inline Line entry_line(const PublishBody &body, u64 version, u8 state) {
  Line line;
  for (u32 i = 0; i < 4; ++i) line.w[i] = body.key[i];
  line.w[4] = version;
  line.w[5] = body.check_hash;
  line.w[6] = u64{body.length} | u64{body.locator_low} << 32;
  line.w[7] = u64{body.locator_high} | u64{state} << 8 | u64{body.ns} << 16;
  return line;
}

}  // namespace kvpool::media
