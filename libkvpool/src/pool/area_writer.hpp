// SPDX-License-Identifier: Apache-2.0
// The owner's pen: every decision is one line, or one aligned word, of its area (proto 7).
// Remembers the last line written, so that one strict drain covers a batch. Single writer: the
// owner's thread.
#pragma once

#include <utility>

#include "media/layout.hpp"
#include "media/seal.hpp"
#include "pool/env.hpp"

namespace kvpool::pool {

template <PoolEnv Env>
class AreaWriter {
public:
  AreaWriter(Env &env, const media::Geometry &geo, const media::Sealer &sealer)
      : env_(env), geo_(geo), sealer_(sealer) {}

  void open(PoolOffset area, u32 epoch) {
    area_ = area;
    epoch_ = epoch;
    last_ = kNoOffset;
    failed_ = false;
  }
  PoolOffset area() const { return area_; }
  u32 epoch() const { return epoch_; }

  // Seals the line where it stands.
  void write_line(PoolOffset at, Line &&line) { write_line(at, line); }
  void write_line(PoolOffset at, Line &line) {
    sealer_.seal(line, at, epoch_);
    env_.memory().publish_line(at, line);
    last_ = at;
  }
  void write_entry(u64 number, const media::Entry &entry) {
    write_line(geo_.entry_line(area_, number), media::to_line(entry));
  }
  // As entry_line() of media makes it.
  void write_entry(u64 number, Line &line) {
    write_line(geo_.entry_line(area_, number), line);
  }
  // Entries of a whole group, sealed side by side.
  void write_group(u64 first, const Line *lines) {
    u32 seals[media::kGroupLines];
    sealer_.seals4(lines, geo_.entry_line(area_, first), epoch_, seals);
    write_group(first, lines, seals);
  }
  // What seals them is known.
  void write_group(u64 first, const Line *lines, const u32 *seals) {
    const PoolOffset at = geo_.entry_line(area_, first);
    publish_sealed_lines(env_.memory(), at, lines, seals, media::kGroupLines);
    last_ = at + (media::kGroupLines - 1) * kLineBytes;
  }
  // Only the last word of the entry changed: state, flags, CRC.
  void write_entry_state(u64 number, const media::Entry &entry) {
    const PoolOffset at = geo_.entry_line(area_, number);
    Line line = media::to_line(entry);
    sealer_.seal(line, at, epoch_);
    env_.memory().publish_word(at + 7 * sizeof(u64), line.w[7]);
    last_ = at;
  }
  void write_map(u32 extent, const media::MapRecord &record) {
    const PoolOffset at = geo_.map_word(area_, extent);
    env_.memory().publish_word(at, sealer_.pack_map(record, at, epoch_));
    last_ = PoolOffset::from_raw(at.raw() & ~(kLineBytes - 1));
  }
  // Of an area that is being filled.
  void fill_ns(u32 id, const media::NamespaceLine &line) {
    write_line(geo_.ns_line(area_, id), media::to_line(line));
  }
  // proto 8: more than a word of the line changes, so where lines are stored in pieces it may be
  // left in part. The spare line holds the whole, sealed for this place, before the line is
  // touched, and until it is on the medium.
  void write_ns(u32 id, const media::NamespaceLine &content) {
    const PoolOffset at = geo_.ns_line(area_, id), spare = geo_.ns_line(area_, geo_.ns_spare());
    Line line = media::to_line(content);
    sealer_.seal(line, at, epoch_);
    drain_strict();  // what the spare line stood for
    if (!env_.mutant(Mutant::kNsWithoutSpare)) {
      env_.memory().publish_line(spare, line);
      last_ = spare;
      if (!env_.mutant(Mutant::kNsBeforeSpare)) drain_strict();
    }
    env_.memory().publish_line(at, line);
    last_ = at;
  }

  bool dirty() const { return last_ != kNoOffset; }
  // What was written so far is on the medium.
  void drain_strict() {
    if (!dirty()) return;
    env_.memory().drain_strict(&last_, 1);
    u64 word = 0;
    failed_ |= !env_.memory().load_word(last_, word);  // what the drain has just read back
    last_ = kNoOffset;
  }
  // Whether a drain could not read back what was written, since this was asked last.
  bool take_failed() { return std::exchange(failed_, false); }

private:
  Env &env_;
  const media::Geometry &geo_;
  const media::Sealer &sealer_;
  PoolOffset area_{};
  u32 epoch_ = 0;
  PoolOffset last_ = kNoOffset;
  bool failed_ = false;
};

}  // namespace kvpool::pool
