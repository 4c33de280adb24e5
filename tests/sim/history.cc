// SPDX-License-Identifier: Apache-2.0
// The history rule: a read returns one complete publication that was begun before the read ended
// and was not known to be gone before the read began.
#include "history.hpp"

#include <cstdio>

namespace kvpool::sim {

namespace {

constexpr u64 kPayloadMagic = 0x51D0AD0F5EED5EEDull;

u64 mixed(u64 key, u64 nonce, u64 index, u64 word) {
  u64 z = key * 0x9E3779B97F4A7C15ull + nonce * 0xBF58476D1CE4E5B9ull + (index * 8 + word);
  z = (z ^ (z >> 29)) * 0x94D049BB133111EBull;
  return z ^ (z >> 32);
}

std::string text(const char *what, u64 a, u64 b, u64 c) {
  char line[160];
  std::snprintf(line, sizeof line, "%s (key %llu, nonce %llu, line %llu)", what,
                static_cast<unsigned long long>(a), static_cast<unsigned long long>(b),
                static_cast<unsigned long long>(c));
  return line;
}

}  // namespace

Line payload_line(u64 key, u64 nonce, u64 index) {
  Line line;
  line.w[0] = kPayloadMagic;
  line.w[1] = key;
  line.w[2] = nonce;
  line.w[3] = index;
  for (u64 k = 4; k < 8; ++k) line.w[k] = mixed(key, nonce, index, k);
  return line;
}

void History::reset() {
  written_.clear();
  nonce_ = 0;
}

void History::begin(u64 key, u64 nonce, u32 scope, Time now) {
  if (written_.size() <= nonce) written_.resize(nonce + 1);
  written_[nonce] = {key, nonce, scope, now, kNever, kNever, kNever};
}

void History::acknowledged(u64 nonce, Time now) {
  written_[nonce].ended = now;
}

void History::accepted(u64 nonce, Time now) {
  if (written_[nonce].accepted == kNever) written_[nonce].accepted = now;
}

void History::removed(u64 key, u32 scope, Time begun, Time ended) {
  for (Written &w : written_) {
    if (w.nonce == 0 || w.scope != scope || (key != 0 && w.key != key)) continue;
    // One that was not acknowledged when the removal began may have come after it.
    if (w.ended <= begun && w.gone > ended) w.gone = ended;
  }
}

const Written *History::find(u64 nonce) const {
  return nonce != 0 && nonce < written_.size() && written_[nonce].nonce != 0 ? &written_[nonce]
                                                                             : nullptr;
}

std::string History::judge(u64 key, const Line *lines, u64 count, Time read_begun, Time read_ended,
                           u64 &ret_nonce) const {
  const u64 nonce = lines[0].w[2];
  ret_nonce = nonce;
  for (u64 i = 0; i < count; ++i) {
    const Line &line = lines[i];
    if (line.w[0] != kPayloadMagic) return text("read what nobody wrote", key, line.w[0], i);
    if (line.w[1] != key) return text("read another key's bytes", line.w[1], line.w[2], i);
    if (line.w[2] != nonce) return text("read two publications in one", key, line.w[2], i);
    if (line != payload_line(key, nonce, i)) return text("read a damaged line", key, nonce, i);
  }
  const Written *w = find(nonce);
  if (!w || w->key != key) return text("read what was never published", key, nonce, 0);
  if (w->begun > read_ended) return text("read before it was published", key, nonce, 0);
  if (w->gone < read_begun) return text("read after its removal", key, nonce, 0);
  return "";
}

}  // namespace kvpool::sim
