// SPDX-License-Identifier: Apache-2.0
// The CPU engine: executes plans with the verbs of a PoolMemory. Templates, so that the simulator
// runs the same code. Allocates nothing; all working room is on the stack (about 30 KiB).
//
// Reads flush ahead: the lines of window k + 1 are flushed, one by one, while those of window k are
// copied, and one full fence stands between windows. So the flush of a line precedes the fence that
// precedes its load, whatever fragments and stripes the windows are made of.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "arch/memory.hpp"
#include "transfer/blocks.hpp"
#include "transfer/plan.hpp"

namespace kvpool::transfer {

inline constexpr u64 kWindowBytes = 64 * 1024;
inline constexpr u64 kSmallWindowBytes = 16 * 1024;  // for reads of at most one large window
inline constexpr u64 kStageLines = 64;
// Whole lines a fragment must have in one place to be copied there directly.
inline constexpr u64 kDirectLines = 4;
inline constexpr u64 kRowChunkMax = 1024;
inline constexpr u64 kRowChunkLines = 8192;

namespace detail {

constexpr u64 line_floor(u64 offset) { return offset & ~(kLineBytes - 1); }
constexpr u64 line_ceil(u64 offset) { return line_floor(offset + kLineBytes - 1); }

// Adds up the check of one segment after another while lines pass by.
class SegmentSums {
public:
  explicit SegmentSums(u64 *checks) : checks_(checks) {}
  CheckLanes *lanes() { return checks_ != nullptr ? &lanes_ : nullptr; }
  void finish(u64 slot, u64 line_count) {
    if (checks_ == nullptr) return;
    checks_[slot] = check_fold(lanes_, line_count);
    lanes_ = {};
  }

private:
  u64 *checks_;
  CheckLanes lanes_ = {};
};

// ---- writing ------------------------------------------------------------------------------------

template <PoolMemory M>
class Gather {
public:
  Gather(M &mem, std::span<const Piece> pieces, Plan &plan, u64 *ret_checks)
      : mem_(mem), pieces_(pieces), plan_(plan), sums_(ret_checks) {}

  // Writes [range.begin, range.end): fragments where the plan has them, zeros elsewhere.
  template <class Gate>
  int run(Range range, Gate &&gate) {
    plan_.walk_from(range.begin);
    more_ = plan_.next(fragment_);
    u64 slot = 0;
    for (u64 begin = range.begin; begin < range.end; begin += kSegmentBytes, ++slot) {
      if (!gate()) return -ECANCELED;
      const u64 end = std::min(begin + kSegmentBytes, range.end);
      write_segment(begin, end);
      sums_.finish(slot, (end - begin) / kLineBytes);
    }
    return 0;
  }

private:
  void write_segment(u64 begin, u64 end) {
    segment_ = begin;
    at_ = begin;
    while (at_ < end) {
      skip_passed();
      const u64 next = more_ ? std::max(fragment_.block_offset, at_) : end;
      const u64 whole_end = more_ ? line_floor(std::min(fragment_.end(), end)) : at_;
      if (next == at_ && whole_end >= at_ + kDirectLines * kLineBytes) {
        send(fragment_.local + (at_ - fragment_.block_offset), whole_end - at_);
      } else {
        send_staged(end);
      }
    }
  }
  void skip_passed() {
    while (more_ && fragment_.end() <= at_) more_ = plan_.next(fragment_);
  }

  // From at_ (a line) on: fills the stage until it is full, the segment ends, or a fragment begins
  // that is better sent directly.
  void send_staged(u64 end) {
    const u64 limit = std::min(end, at_ + kStageLines * kLineBytes);
    u64 filled = at_;
    while (filled < limit) {
      while (more_ && fragment_.end() <= filled) more_ = plan_.next(fragment_);
      if (!more_ || fragment_.block_offset >= limit) {
        filled = fill_zero(filled, limit);
        break;
      }
      if (fragment_.block_offset > filled) filled = fill_zero(filled, fragment_.block_offset);
      const u64 whole = line_ceil(filled);
      const u64 whole_end = line_floor(std::min(fragment_.end(), end));
      const bool direct = whole_end >= whole + kDirectLines * kLineBytes && whole < limit;
      const u64 stop = direct ? whole : std::min(fragment_.end(), limit);
      const std::byte *from = fragment_.local + (filled - fragment_.block_offset);
      std::memcpy(stage_ + (filled - at_), from, stop - filled);
      filled = stop;
      if (direct) break;
    }
    send(stage_, filled - at_);
  }
  u64 fill_zero(u64 from, u64 to) {
    std::memset(stage_ + (from - at_), 0, to - from);
    return to;
  }

  // Streams whole lines to the pool at at_ and moves on.
  void send(const std::byte *from, u64 bytes) {
    while (bytes > 0) {
      u64 run = 0;
      const PoolOffset to = pieces_.at(at_, run);
      run = std::min(run, bytes);
      mem_.stream_lines(to, from, run / kLineBytes, sums_.lanes(), (at_ - segment_) / kLineBytes);
      from += run;
      at_ += run;
      bytes -= run;
    }
  }

  M &mem_;
  PieceCursor pieces_;
  Plan &plan_;
  SegmentSums sums_;
  Fragment fragment_;
  bool more_ = false;
  u64 segment_ = 0;
  u64 at_ = 0;
  alignas(kLineBytes) std::byte stage_[kStageLines * kLineBytes];
};

// ---- reading ------------------------------------------------------------------------------------

// What happens to the lines of a window: spans of lines that lie together in the pool, each copied
// straight to local memory or into the stage and from there in copies.
struct Copy {
  std::byte *to;
  u32 from;  // in the stage
  u32 bytes;
};
struct Span {
  static constexpr u32 kNoSegment = ~u32{0};
  PoolOffset pool;
  std::byte *direct;  // null: through the stage
  u32 lines;
  u32 first_copy;
  u32 copies;
  u32 segment;      // number in the block, or kNoSegment: not added to a check
  u32 first_line;   // in the segment
  u32 fold_lines;   // not 0: ends its segment, which has so many lines
};
struct FlushRange {
  PoolOffset pool;
  u64 lines;
};
struct Window {
  static constexpr u32 kSpans = 96;
  static constexpr u32 kCopies = 448;
  static constexpr u32 kCopiesLine = 64;  // that one line can need
  u32 spans = 0;
  u32 ranges = 0;
  u32 copies = 0;
  u64 lines = 0;
  Span span[kSpans];
  FlushRange range[kSpans];  // the lines of all spans, where they lie together as one
  Copy copy[kCopies];
  bool full(u64 max_lines) const {
    return lines >= max_lines || spans == kSpans || copies > kCopies - kCopiesLine;
  }
};

// Cuts a plan into windows, in the order of the block.
class WindowBuilder {
public:
  // With checks, the lines of every segment that lies whole in `range` are read even where the plan
  // has none; otherwise only lines that the plan touches.
  WindowBuilder(std::span<const Piece> pieces, Plan &plan, Range range, const Segments &segments,
                bool checks)
      : pieces_(pieces), plan_(plan), range_(range), segments_(segments) {
    if (checks) whole_ = segments.whole_in(range);
    at_ = line_floor(range.begin);
    end_ = line_ceil(range.end);
    plan_.walk_from(range.begin);
    more_ = plan_.next(fragment_);
    clip();
  }

  // Fills `window`; it stays empty at the end.
  void build(Window &window, u64 max_lines) {
    window.spans = 0;
    window.ranges = 0;
    window.copies = 0;
    window.lines = 0;
    while (at_ < end_ && !window.full(max_lines)) {
      enter_segment();
      add_span(window, max_lines);
    }
  }

private:
  // Keeps of the fragment what lies in the range.
  void clip() {
    while (more_ && fragment_.end() <= range_.begin) more_ = plan_.next(fragment_);
    if (!more_ || fragment_.block_offset >= range_.end) {
      more_ = false;
      return;
    }
    if (fragment_.block_offset < range_.begin) {
      const u64 cut = range_.begin - fragment_.block_offset;
      fragment_ = {fragment_.local + cut, range_.begin, fragment_.bytes - cut};
    }
    fragment_.bytes = std::min(fragment_.end(), range_.end) - fragment_.block_offset;
  }
  void skip_passed(u64 offset) {
    while (more_ && fragment_.end() <= offset) {
      more_ = plan_.next(fragment_);
      clip();
    }
  }

  // Finds the segment of at_.
  void enter_segment() {
    skip_passed(at_);
    if (at_ < segment_end_) return;
    const u64 index = segments_.index_of(at_);
    const Range segment = segments_.range_of(index);
    segment_begin_ = segment.begin;
    segment_end_ = segment.end;
    segment_ = index;
    checked_ = index >= whole_.begin && index < whole_.end;
  }

  void add_span(Window &window, u64 max_lines) {
    u64 room = std::min(segment_end_, end_) - at_;
    room = std::min(room, (max_lines - window.lines) * kLineBytes);
    if (!checked_) {
      // Lines between fragments are nobody's; but a segment that is checked may come before the
      // next.
      const u64 wanted = more_ ? line_floor(fragment_.block_offset) : end_;
      if (wanted > at_) {
        at_ = whole_.begin == whole_.end ? wanted : std::min(wanted, segment_end_);
        return;
      }
    }
    u64 run = 0;
    const PoolOffset pool = pieces_.at(at_, run);
    room = std::min(room, run);
    Span &span = window.span[window.spans];
    span = {pool, nullptr, 0, window.copies, 0, Span::kNoSegment, 0, 0};
    u64 bytes = 0;
    if (more_ && fragment_.block_offset <= at_)
      bytes = line_floor(std::min(fragment_.end() - at_, room));
    if (bytes >= kDirectLines * kLineBytes) {
      span.direct = fragment_.local + (at_ - fragment_.block_offset);
    } else {
      bytes = stage(window, span, room);
    }
    if (checked_) {
      span.segment = static_cast<u32>(segment_);
      span.first_line = static_cast<u32>((at_ - segment_begin_) / kLineBytes);
      if (at_ + bytes == segment_end_) {
        span.fold_lines = static_cast<u32>((segment_end_ - segment_begin_) / kLineBytes);
      }
    }
    span.lines = static_cast<u32>(bytes / kLineBytes);
    add_range(window, pool, span.lines);
    window.lines += span.lines;
    ++window.spans;
    at_ += bytes;
  }
  static void add_range(Window &window, PoolOffset pool, u64 lines) {
    if (window.ranges > 0) {
      FlushRange &last = window.range[window.ranges - 1];
      if (last.pool + last.lines * kLineBytes == pool) {
        last.lines += lines;
        return;
      }
    }
    window.range[window.ranges++] = {pool, lines};
  }

  // Plans lines through the stage, from at_ on: until room or copies run out, a fragment begins
  // that is better copied directly, or, in a segment that is not checked, the plan has a gap.
  // Returns bytes.
  u64 stage(Window &window, Span &span, u64 room) {
    u64 limit = at_ + std::min(room, kStageLines * kLineBytes);
    u64 filled = at_;  // what lies before is planned
    for (;;) {
      // A line that was begun must find room for all its copies.
      if (window.copies > Window::kCopies - Window::kCopiesLine)
        limit = std::min(limit, line_ceil(filled));
      if (filled >= limit) break;
      skip_passed(filled);
      if (!more_ || fragment_.block_offset >= limit) {
        filled = checked_ ? limit : line_ceil(filled);
        break;
      }
      const u64 from = std::max(fragment_.block_offset, filled);
      if (!checked_ && line_floor(from) > line_ceil(filled)) {
        filled = line_ceil(filled);
        break;
      }
      const u64 whole = line_ceil(from);
      const u64 whole_end = line_floor(std::min(fragment_.end(), at_ + room));
      const bool direct = whole_end >= whole + kDirectLines * kLineBytes && whole < limit;
      if (direct && whole == from && from % kLineBytes == 0 && from > at_) {
        filled = from;
        break;
      }
      const u64 to = direct ? whole : std::min(fragment_.end(), limit);
      window.copy[window.copies++] = {fragment_.local + (from - fragment_.block_offset),
                                      static_cast<u32>(from - at_), static_cast<u32>(to - from)};
      ++span.copies;
      filled = to;
      if (direct) break;
    }
    return line_ceil(filled) - at_;
  }

  PieceCursor pieces_;
  Plan &plan_;
  Range range_;
  Segments segments_;
  Range whole_;        // numbers of the segments that are checked
  Fragment fragment_;  // the next one, cut to the range
  bool more_ = false;
  bool checked_ = false;
  u64 at_ = 0;         // the next line, as a block offset
  u64 end_ = 0;
  u64 segment_ = 0;    // that at_ lies in, from segment_begin_ to segment_end_
  u64 segment_begin_ = 0;
  u64 segment_end_ = 0;
};

template <PoolMemory M>
class Scatter {
public:
  Scatter(M &mem, std::span<const Piece> pieces, Plan &plan, Range range, const Segments &segments,
          u64 *ret_checks)
      : mem_(mem),
        builder_(pieces, plan, range, segments, ret_checks != nullptr),
        checks_(ret_checks),
        window_lines_((range.end - range.begin <= kWindowBytes ? kSmallWindowBytes : kWindowBytes) /
                      kLineBytes) {}

  int run() {
    Window *now = &windows_[0];
    Window *next = &windows_[1];
    builder_.build(*now, window_lines_);
    if (now->spans == 0) return 0;
    ++mem_.counters().data_waves;
    mem_.fence();
    begin_flush(now);
    flush_rest();
    // A window is built while flushes are under way, not behind the fence where nothing is.
    builder_.build(*next, window_lines_);
    mem_.fence();
    for (;;) {
      begin_flush(next);
      if (!copy(*now)) return -EIO;
      if (next->spans == 0) return 0;
      flush_rest();
      builder_.build(*now, window_lines_);
      mem_.fence();
      std::swap(now, next);
    }
  }

private:
  // The cursor over lines that are to be flushed.
  void begin_flush(const Window *window) {
    flush_ = window;
    flush_range_ = 0;
    flush_line_ = 0;
  }
  bool flush_left() const { return flush_range_ < flush_->ranges; }
  u64 flush_run() const { return flush_->range[flush_range_].lines - flush_line_; }
  PoolOffset flush_place() const {
    return flush_->range[flush_range_].pool + flush_line_ * kLineBytes;
  }
  void flushed(u64 lines) {
    flush_line_ += lines;
    if (flush_line_ < flush_->range[flush_range_].lines) return;
    ++flush_range_;
    flush_line_ = 0;
  }
  void flush_rest() {
    while (flush_left()) {
      const u64 lines = flush_run();
      mem_.flush_lines(flush_place(), lines);
      flushed(lines);
    }
  }

  bool copy(const Window &window) {
    for (u32 i = 0; i < window.spans; ++i) {
      const Span &span = window.span[i];
      if (!fetch(span)) return false;
      for (u32 k = span.first_copy; k < span.first_copy + span.copies; ++k) {
        const Copy &part = window.copy[k];
        std::memcpy(part.to, stage_ + part.from, part.bytes);
      }
      if (span.fold_lines == 0) continue;
      checks_[span.segment] = check_fold(lanes_, span.fold_lines);
      lanes_ = {};
    }
    return true;
  }
  bool fetch(const Span &span) {
    std::byte *to = span.direct != nullptr ? span.direct : stage_;
    CheckLanes *lanes = span.segment != Span::kNoSegment ? &lanes_ : nullptr;
    for (u64 done = 0; done < span.lines;) {
      u64 lines = span.lines - done;
      const bool ahead = flush_left();
      if (ahead) lines = std::min(lines, flush_run());
      if (!mem_.fetch_lines(to + done * kLineBytes, span.pool + done * kLineBytes, lines,
                            ahead ? flush_place() : kNoOffset, lanes, span.first_line + done)) {
        return false;
      }
      if (ahead) flushed(lines);
      done += lines;
    }
    return true;
  }

  M &mem_;
  WindowBuilder builder_;
  u64 *checks_;
  u64 window_lines_;
  const Window *flush_ = nullptr;  // the window whose lines are being flushed, and how far
  u32 flush_range_ = 0;
  u64 flush_line_ = 0;
  CheckLanes lanes_ = {};
  Window windows_[2];
  alignas(kLineBytes) std::byte stage_[kStageLines * kLineBytes];
};

// ---- rows ---------------------------------------------------------------------------------------

// Rows in three steps: the place of each, the flush of all, and behind a fence the copies. Memories
// that have verbs of their own for it are faster; the others go line by line.
template <PoolMemory M>
class Rows {
public:
  using Place = PoolOffset;
  static constexpr Place kNone = kNoOffset;
  explicit Rows(M &mem) : mem_(mem) {}

  Place place(PoolOffset off) const { return off; }
  void flush(const Place *rows, u64 n, u64 bytes) {
    for (u64 i = 0; i < n; ++i) {
      if (rows[i] == kNone) continue;
      const u64 head = rows[i].byte() % kLineBytes;
      mem_.flush_lines(PoolOffset::from_raw(rows[i].raw() - head),
                       line_ceil(head + bytes) / kLineBytes);
    }
  }
  bool fetch(std::byte *to, u64 stride, const Place *rows, u64 n, u64 bytes) {
    for (u64 i = 0; i < n; ++i) {
      if (rows[i] != kNone && !fetch_row(to + i * stride, rows[i], bytes)) return false;
    }
    return true;
  }

private:
  bool fetch_row(std::byte *to, PoolOffset from, u64 bytes) {
    alignas(kLineBytes) std::byte stage[kLineBytes];
    while (bytes > 0) {
      const u64 head = from.byte() % kLineBytes;
      const u64 n = std::min(bytes, kLineBytes - head);
      const PoolOffset line = PoolOffset::from_raw(from.raw() - head);
      if (!mem_.fetch_lines(stage, line, 1, kNoOffset, nullptr, 0)) return false;
      std::memcpy(to, stage + head, n);
      to += n;
      from = from + n;
      bytes -= n;
    }
    return true;
  }
  M &mem_;
};

template <PoolMemory M>
  requires requires(M m) { typename M::RowPlace; }
class Rows<M> {
public:
  using Place = typename M::RowPlace;
  static constexpr Place kNone = Place{};
  explicit Rows(M &mem) : mem_(mem) {}

  Place place(PoolOffset off) const { return mem_.row_place(off); }
  void flush(const Place *rows, u64 n, u64 bytes) { mem_.flush_rows(rows, n, bytes); }
  bool fetch(std::byte *to, u64 stride, const Place *rows, u64 n, u64 bytes) {
    return mem_.fetch_rows(to, stride, rows, n, bytes);
  }

private:
  M &mem_;
};

template <PoolMemory M, class Blocks>
class RowReader {
public:
  RowReader(M &mem, const Blocks &blocks, u64 block_count, const RowsPlan &plan)
      : mem_(mem),
        rows_(mem),
        blocks_(blocks),
        plan_(plan),
        inverse_(~u64{0} / plan.rows_per_block),
        striped_(true) {
    for (u64 b = 0; b < block_count && striped_; ++b) striped_ = is_striped(blocks_(b));
  }

  int run() {
    const u64 row_lines = plan_.row_bytes / kLineBytes + 2;
    const u64 chunk = std::clamp(kRowChunkLines / row_lines, u64{1}, kRowChunkMax);
    const u64 count = plan_.rows.size();
    ++mem_.counters().data_waves;
    for (u64 first = 0; first < count; first += chunk) {
      if (!read_chunk(first, std::min(chunk, count - first))) return -EIO;
    }
    return 0;
  }

private:
  using Place = typename Rows<M>::Place;

  // All lines of the chunk are flushed, then one fence, then all are loaded.
  bool read_chunk(u64 first, u64 count) {
    bool broken = false;
    for (u64 i = 0; i < count; ++i) {
      const std::int64_t row = plan_.rows[first + i];
      u64 run = 0;
      Place place = Rows<M>::kNone;
      if (row >= 0) {
        const PoolOffset off = place_of(static_cast<u64>(row), 0, run);
        if (run >= plan_.row_bytes) [[likely]] {
          place = rows_.place(off);
        } else {
          broken = true;
        }
      }
      place_[i] = place;
    }
    std::byte *to = plan_.local.base + plan_.local_offset + first * plan_.local_stride;
    mem_.fence();
    rows_.flush(place_, count, plan_.row_bytes);
    mem_.fence();
    if (!rows_.fetch(to, plan_.local_stride, place_, count, plan_.row_bytes)) return false;
    return !broken || fetch_broken(first, count, to);
  }
  // Rows that lie in several pieces, part by part: they are few.
  bool fetch_broken(u64 first, u64 count, std::byte *to) {
    for (u64 i = 0; i < count; ++i) {
      const std::int64_t row = plan_.rows[first + i];
      if (row < 0 || place_[i] != Rows<M>::kNone) continue;
      for (u64 done = 0; done < plan_.row_bytes;) {
        u64 run = 0;
        const Place place = rows_.place(place_of(static_cast<u64>(row), done, run));
        const u64 bytes = std::min(run, plan_.row_bytes - done);
        rows_.flush(&place, 1, bytes);
        mem_.fence();
        if (!rows_.fetch(to + i * plan_.local_stride + done, 0, &place, 1, bytes)) return false;
        done += bytes;
      }
    }
    return true;
  }
  PoolOffset place_of(u64 row, u64 inside, u64 &ret_run) const {
    // The quotient by the inverse is right or one too small: rows stay below 2^63.
    u64 block = static_cast<u64>(static_cast<unsigned __int128>(row) * inverse_ >> 64);
    u64 in_block = row - block * plan_.rows_per_block;
    if (in_block >= plan_.rows_per_block) {
      ++block;
      in_block -= plan_.rows_per_block;
    }
    const u64 offset = plan_.block_offset + in_block * plan_.row_stride + inside;
    const std::span<const Piece> pieces = blocks_(block);
    return striped_ ? place_in_stripes(pieces, offset, ret_run)
                    : PieceCursor(pieces).at(offset, ret_run);
  }

  M &mem_;
  Rows<M> rows_;
  const Blocks &blocks_;
  const RowsPlan &plan_;
  u64 inverse_;
  bool striped_;  // every block
  Place place_[kRowChunkMax];
};

}  // namespace detail

struct AlwaysOpen {
  bool operator()() const { return true; }
};

// Writes bytes [range.begin, range.end) of the block at `pieces` from the fragments of `plan`,
// which was prepared for writing; bytes that no fragment covers become zero. The range is a shard,
// or whole segments of one: its segments start at range.begin, and their checks go to ret_checks
// (may be null), the first at [0]. `gate` is asked before each segment, and the writing ends with
// -ECANCELED if it says no (a lease that ran out). Nothing is drained.
template <PoolMemory M, class Gate = AlwaysOpen>
int gather_write(M &mem, std::span<const Piece> pieces, Plan &plan, Range range, u64 *ret_checks,
                 Gate &&gate = {}) {
  if (range.begin % kLineBytes != 0 || range.end % kLineBytes != 0 || range.begin > range.end) {
    return -EINVAL;
  }
  if (range.end > plan.block_bytes() || pieces_bytes(pieces) < plan.block_bytes()) return -ERANGE;
  detail::Gather<M> gather(mem, pieces, plan, ret_checks);
  return gather.run(range, gate);
}

// Reads what `plan`, prepared for reading, has of bytes [range.begin, range.end) of the block. With
// ret_checks, an array of segments.count(), the check of every segment that lies in the range whole
// (segments.whole_in(range)) is computed on the way and stored at its number; lines of those
// segments that the plan does not touch are read as well. -EIO on poison: then some of it was
// copied.
template <PoolMemory M>
int scatter_read(M &mem, std::span<const Piece> pieces, Plan &plan, Range range,
                 const Segments &segments, u64 *ret_checks) {
  if (range.begin > range.end || segments.block_bytes != plan.block_bytes() ||
      segments.shard_bytes == 0 || segments.shard_bytes % kLineBytes != 0) {
    return -EINVAL;
  }
  if (range.end > plan.block_bytes() || pieces_bytes(pieces) < plan.block_bytes()) return -ERANGE;
  detail::Scatter<M> scatter(mem, pieces, plan, range, segments, ret_checks);
  return scatter.run();
}

// Reads rows. `blocks(i)` gives the pieces of block i, all of `block_bytes`; they are copied
// nowhere, so it must be cheap. The whole list is one batch of flushes with one fence, in parts of
// at most kRowChunkMax rows.
template <PoolMemory M, class Blocks>
int rows_read(M &mem, const Blocks &blocks, u64 block_count, u64 block_bytes,
              const RowsPlan &plan) {
  if (const int err = check_rows(plan, block_count, block_bytes); err != 0) return err;
  detail::RowReader<M, Blocks> reader(mem, blocks, block_count, plan);
  return reader.run();
}

}  // namespace kvpool::transfer
