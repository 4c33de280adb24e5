// SPDX-License-Identifier: Apache-2.0
// What happened to each key, and whether a read may have returned what it did (I1, I2). Payload is
// a function of key and publication nonce, so that an older publication of the same key is told
// apart.
#pragma once

#include <string>
#include <vector>

#include "arch/types.hpp"
#include "world.hpp"

namespace kvpool::sim {

// Line `index` of the payload of one publication.
Line payload_line(u64 key, u64 nonce, u64 index);

struct Written {
  u64 key = 0;
  u64 nonce = 0;
  u32 scope = 0;          // epoch of the namespace it was published in
  Time begun = 0;         // the publish call began: from here on it may be read
  Time ended = kNever;    // the publish call returned success
  Time accepted = kNever;  // and from here on its publisher knew that it counts
  Time gone = kNever;     // an accepted removal or clear returned: reads begun later may not see it
};

class History {
public:
  void reset();
  u64 next_nonce() { return ++nonce_; }
  // A publish call begins.
  void begin(u64 key, u64 nonce, u32 scope, Time now);
  void acknowledged(u64 nonce, Time now);
  void accepted(u64 nonce, Time now);
  // A removal took effect between `begun` and `ended`: what was acknowledged before it began is
  // gone for every read begun after it ended. key 0: of every key.
  void removed(u64 key, u32 scope, Time begun, Time ended);
  // Takes payload apart; empty text: the bytes are one complete publication of `key` that may be
  // read.
  std::string judge(u64 key, const Line *lines, u64 count, Time read_begun, Time read_ended,
                    u64 &ret_nonce) const;
  const std::vector<Written> &all() const { return written_; }
  const Written *find(u64 nonce) const;

private:
  std::vector<Written> written_;  // by nonce, from 1
  u64 nonce_ = 0;
};

}  // namespace kvpool::sim
