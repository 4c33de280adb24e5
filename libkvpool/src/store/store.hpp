// SPDX-License-Identifier: Apache-2.0
// put, get, and the parts they are made of, over a member and the CPU engine: the way of a block
// into the pool and back (proto 9, 10). Templates over the environment, so that the simulator runs
// this code.
//
// Owns no protocol state: decisions are the member's, copies the engine's. What is done here is
// their order: payload and checks drained before publish; copy, then the second look, then the
// verdict.
#pragma once

#include <algorithm>
#include <atomic>
#include <span>

#include "media/seal.hpp"
#include "pool/member.hpp"
#include "store/block_layout.hpp"
#include "store/bulk_gate.hpp"
#include "store/scratch.hpp"
#include "transfer/cpu_engine.hpp"

namespace kvpool::store {

// How one block fared; the numbers are those of enum kvpool_status.
enum class BlockStatus : std::int32_t {
  kOk = 0,
  kExists = 1,
  kMiss = 2,
  kPending = 3,
  kStale = 4,
  kFull = 5,
  kGone = 6,
  kCorrupt = 7,
  kDoubt = 8,
  kBypassed = 9,
  kRange = 10,
  kUntried = 11,
};

enum class Verify : u8 { kDefault = 0, kAlways = 1, kSample = 2, kOff = 3 };

// The memory side of one block.
struct MemoryPlan {
  std::span<const transfer::Run> runs;
  std::span<const transfer::LocalMemory> memories;
};

struct PutBlock {
  pool::Key key{};
  u64 parent = 0;
  u64 payload_bytes = 0;  // whole lines
  MemoryPlan plan;
  // Result. `error` says more where status is not enough: -errno of what went wrong.
  BlockStatus status = BlockStatus::kUntried;
  int error = 0;
  u64 version = 0;
  bool no_line = false;  // FULL, as the index has no line for this key now: worth another try
};

struct GetBlock {
  pool::Key key{};
  pool::Hit hit{};        // with presence kHit: what was found before; else it is looked up
  bool by_key = true;     // false: only this hit will do (a ticket)
  MemoryPlan plan;
  // Result.
  BlockStatus status = BlockStatus::kUntried;
  pool::MissReason reason = pool::MissReason::kNone;
  int error = 0;
  u64 bytes_read = 0;
};

struct GetOptions {
  Verify verify = Verify::kAlways;
  u32 sample = 16;
  u64 deadline_ns = 0;
  const std::atomic<bool> *cancelled = nullptr;
};

// What a shard's writer needs to know of a reservation (it travels as a ticket).
struct ShardTarget {
  u64 address = 0;
  u64 payload_bytes = 0;
  u32 shards = 1;
  u64 nonce = 0;
  u64 reserver = 0;  // incarnation
};

inline constexpr u32 kBatchMax = 1024;
inline constexpr u32 kPutWindow = 32;  // blocks that are written before they are published together
// How long a call that may be cancelled waits before it looks whether it was.
inline constexpr u64 kCancelSliceNs = 50'000'000;
// Tries for a key whose lines of the index are all taken, each a grace after the one before.
inline constexpr int kLineTries = 4;
inline constexpr u64 kLineSlackNs = 1'000'000;  // by which the owner has emptied what it drained
inline constexpr int kReadAttempts = 4;  // copies that a moving block may cost before it is stale

template <pool::PoolEnv Env>
class Store {
public:
  using Member = pool::Member<Env>;

  explicit Store(Member &member) : member_(member), env_(member.env()) {}

  Member &member() { return member_; }
  BulkGate &bulk() { return bulk_; }

  // Stores `blocks` one window after another; each block's status says how it fared. Returns 0 or
  // what ended the batch early: -ESTALE (this member is dead or the store gone), -EAGAIN (no
  // owner), -ETIMEDOUT, -ECANCELED. Blocks that were not tried are kUntried.
  int put(pool::NsRef ns, std::span<PutBlock> blocks, u64 deadline,
          const std::atomic<bool> *cancelled, Scratch &scratch) {
    for (PutBlock &block : blocks) {
      block.status = BlockStatus::kUntried;
      block.no_line = false;
    }
    for (u64 done = 0; done < blocks.size();) {
      if (cancelled && cancelled->load(std::memory_order_relaxed)) return -ECANCELED;
      u64 n = 1;
      while (n < kPutWindow && done + n < blocks.size() &&
             blocks[done + n].payload_bytes == blocks[done].payload_bytes) {
        ++n;
      }
      const int tried = put_window(ns, blocks.subspan(done, n), deadline, cancelled, scratch);
      if (tried < 0) return tried;
      const auto these = blocks.subspan(done, static_cast<u32>(tried));
      if (int err = put_displacing(ns, these, deadline, cancelled, scratch)) return err;
      done += static_cast<u32>(tried);
    }
    return 0;
  }

  // Reads `blocks` (at most kBatchMax). 0, -ESTALE, -EAGAIN (areas change too fast), -ECANCELED,
  // -ETIMEDOUT; statuses hold for what was tried.
  int get(pool::NsRef ns, std::span<GetBlock> blocks, const GetOptions &options, Scratch &scratch) {
    for (GetBlock &block : blocks) block.status = BlockStatus::kUntried;
    u32 open = 0;
    for (u32 i = 0; i < blocks.size(); ++i) scratch.open_blocks[open++] = i;
    for (int attempt = 0; open > 0; ++attempt) {
      if (int err = find(ns, blocks, scratch, open)) return err;
      u32 copied = 0;
      for (u32 j = 0; j < open; ++j) {
        const u32 i = scratch.open_blocks[j];
        if (interrupted(options)) return why_interrupted(options);
        const auto turn = bulk_.enter(env_, BulkGate::kRead, bytes_of(blocks[i]),
                                      [&] { return !interrupted(options); });
        if (!turn) return why_interrupted(options);
        if (copy(blocks[i], options, scratch, scratch.proven[i])) scratch.open_blocks[copied++] = i;
      }
      open = copied;
      if (int err = judge(blocks, attempt + 1 < kReadAttempts, scratch, open)) return err;
    }
    return 0;
  }

  // Reads rows out of blocks of equal size into local memory, then looks at every block's entry
  // again. Checks are not proven here: pins of blocks that were verified once carry that
  // (movement.md).
  int get_rows(pool::NsRef ns, std::span<GetBlock> blocks, transfer::RowsPlan plan,
               const GetOptions &options, Scratch &scratch);

  // ---- writing in shards ----

  // Reserves `count` blocks of one size, all or none.
  int reserve(u64 payload_bytes, u32 shards, u32 count, u64 deadline, pool::Block *ret_blocks) {
    const media::BlockShape shape = media::block_shape(payload_bytes, shards);
    if (!shape.valid() || !BlockLayout::even(shape)) return -EINVAL;
    if (payload_bytes > kBlockBytesMax) return -EMSGSIZE;
    return member_.reserve(shape.block_bytes(), count, deadline, ret_blocks);
  }

  // The shards of a block are there to be written, before anybody has its ticket. The caller
  // drains for all: drain_shards().
  int open_shards(const ShardTarget &target, Scratch &scratch) {
    return mark_shards(target, scratch, [&](PoolOffset at, u32 shard) {
      if (!member_.alive()) return false;
      member_.open_shard(at, target.nonce, shard);
      return true;
    });
  }
  void drain_shards(Scratch &scratch) { drain_touched(scratch); }

  // Gives a block back whose ticket others may have: nobody begins to write it from now on, and it
  // is free when those who have begun are done.
  void abort_shared(const ShardTarget &target, const pool::Block &block, Scratch &scratch) {
    mark_shards(target, scratch,
                [&](PoolOffset at, u32) { return member_.close_shard(at, target.reserver); });
    drain_touched(scratch);
    member_.abort_shared(block, target.reserver);
  }

  // Writes what `plan` has of one shard, with its checks, so that it is on the medium on return.
  // 0; -EINVAL, -ERANGE (the plan); -ENOTCONN (this member, or the one that reserved, is dead);
  // -EALREADY (done); -EKEYEXPIRED (published or aborted); -ETIMEDOUT.
  int write_shard(const ShardTarget &target, u32 shard, const MemoryPlan &plan, u64 deadline,
                  Scratch &scratch) {
    BlockLayout layout;
    if (int err =
            open_layout(layout, target.address, target.payload_bytes, target.shards, scratch)) {
      return err;
    }
    u64 writer = 0;
    if (const int err = member_.begin_shard_write(target.reserver, deadline, writer)) return err;
    int err = may_write(layout, target, shard, scratch);
    if (err == 0) {
      err = write_part(layout, shard, target.nonce, plan, scratch, /*strict=*/true, deadline);
    }
    member_.end_shard_write(writer);
    return err;
  }

  // Whether every shard in [first, end) of a reservation is complete; then ret_checks has the
  // checks of their segments, from the first segment of the block on. 0, -EINPROGRESS, -EIO,
  // -EUCLEAN.
  int read_checks(const ShardTarget &target, u32 first, u32 end, Scratch &scratch) {
    BlockLayout layout;
    if (int err =
            open_layout(layout, target.address, target.payload_bytes, target.shards, scratch)) {
      return err;
    }
    const u64 from = layout.shape().first_segment(first);
    const u64 to = end == target.shards ? layout.shape().segments()
                                        : layout.shape().first_segment(end);
    return load_checks(layout, from, to, &target.nonce, scratch);
  }

  // The second look at one hit alone.
  int validate_one(const pool::Hit &hit, Scratch &scratch, bool &ret_valid) {
    scratch.hits[0] = hit;
    scratch.wanted[0] = nullptr;
    if (int err = validate(1, scratch)) return err;
    ret_valid = scratch.valid[0];
    return 0;
  }

  // Where a block lies. One that this member's table of regions does not know may be in a region
  // that the pool got since: it came with a ticket of somebody who knows the present owner.
  int open_layout(BlockLayout &layout, u64 address, u64 payload_bytes, u32 shards,
                  Scratch &scratch) {
    const pool::Session *session = member_.session();
    const int err =
        layout.open(session->regions, address, payload_bytes, shards, scratch.pieces);
    if (err != -EUCLEAN || member_.follow_owner() != 0) return err;
    if (member_.session() == session) return err;
    return layout.open(member_.session()->regions, address, payload_bytes, shards,
                       scratch.pieces);
  }

private:
  auto &mem() { return env_.memory(); }

  template <class Mark>
  int mark_shards(const ShardTarget &target, Scratch &scratch, Mark &&mark) {
    BlockLayout layout;
    if (int err =
            open_layout(layout, target.address, target.payload_bytes, target.shards, scratch)) {
      return err;
    }
    for (u32 s = 0; s < target.shards; ++s) {
      const PoolOffset at = layout.check_line(layout.shape().first_segment(s));
      if (!mark(at, s)) return -ESTALE;
      scratch.touch(at);
    }
    return 0;
  }

  // proto 8: asked after begin_shard_write(), by what the medium has then.
  int may_write(const BlockLayout &layout, const ShardTarget &target, u32 shard,
                Scratch &scratch) {
    const u64 first = layout.shape().first_segment(shard);
    const u64 end = first + layout.shape().shard_segments(shard);
    const int err = load_checks(layout, first, end, &target.nonce, scratch);
    if (err == 0) return -EALREADY;
    if (err != -EINPROGRESS) return err;
    return member_.shard_is_open(layout.check_line(first), target.nonce) ? 0 : -EKEYEXPIRED;
  }

  // What a block's plan reads of it.
  static u64 bytes_of(const GetBlock &block) {
    if (block.hit.payload_bytes < BulkGate::kBulkBytes) return block.hit.payload_bytes;
    u64 bytes = 0;
    for (const transfer::Run &run : block.plan.runs) bytes += run.fragment_bytes * run.count;
    return std::min(bytes, block.hit.payload_bytes);  // plans are checked later
  }
  bool interrupted(const GetOptions &o) {
    return (o.cancelled && o.cancelled->load(std::memory_order_relaxed)) ||
           env_.now_ns() >= o.deadline_ns;
  }
  int why_interrupted(const GetOptions &o) {
    return o.cancelled && o.cancelled->load(std::memory_order_relaxed) ? -ECANCELED : -ETIMEDOUT;
  }

  // Waits by a call that may be made again, a slice at a time, so that cancelling ends it soon.
  template <class Call>
  int in_slices(u64 deadline, const std::atomic<bool> *cancelled, Call &&call) {
    if (cancelled == nullptr) return call(deadline);
    for (;;) {
      if (cancelled->load(std::memory_order_relaxed)) return -ECANCELED;
      const int got = call(std::min(deadline, env_.now_ns() + kCancelSliceNs));
      if (got != -EAGAIN && got != -ETIMEDOUT) return got;
      if (env_.now_ns() >= deadline) return got;
    }
  }

  // ---- put --------------------------------------------------------------------------------------

  // reserve, write, drain, publish (proto 9). How many of the first blocks were tried, or an error.
  int put_window(pool::NsRef ns, std::span<PutBlock> blocks, u64 deadline,
                 const std::atomic<bool> *cancelled, Scratch &scratch) {
    const media::BlockShape shape = media::block_shape(blocks[0].payload_bytes, 1);
    pool::Block reserved[kPutWindow];
    const int got = in_slices(deadline, cancelled, [&](u64 until) {
      return member_.reserve_some(shape.block_bytes(), static_cast<u32>(blocks.size()), until,
                                  reserved, nullptr, ns.id);
    });
    if (got == -ENOSPC || got == -EDQUOT) {
      blocks[0].status = BlockStatus::kFull;
      blocks[0].error = got;
      return 1;
    }
    if (got < 0) return got;
    const u32 n = static_cast<u32>(got);
    int err = 0;
    pool::Publication publications[kPutWindow];
    u32 which[kPutWindow];
    u32 ready = 0;
    for (u32 i = 0; i < n; ++i) {
      u64 check_hash = 0;
      blocks[i].error = write_block(blocks[i], reserved[i], scratch, check_hash);
      if (blocks[i].error) {
        member_.abort(reserved[i]);
        blocks[i].status = BlockStatus::kRange;  // the plan; a dead member's blocks are untried
        if (blocks[i].error == -ESTALE) blocks[i].status = BlockStatus::kUntried;
        continue;
      }
      pool::Publication &p = publications[ready];
      p.key = blocks[i].key;
      p.ns = ns;
      p.block = reserved[i];
      p.payload_lines = shape.payload_lines();
      p.shards = 1;
      p.check_hash = check_hash;
      p.parent = blocks[i].parent;
      which[ready++] = i;
    }
    u32 lost = 0;
    if (!env_.mutant(pool::Mutant::kPublishWithoutDrain)) lost = drain_touched(scratch);
    if (env_.mutant(pool::Mutant::kUnreadPublished)) lost = 0;
    if (lost != 0) ready = drop_lost(blocks, lost, publications, which, ready);
    // proto 7: the step between drain and publish asks whether this member may still write.
    if (!member_.alive()) err = -ESTALE;
    if (err == 0 && ready > 0) err = member_.publish(publications, ready, deadline, cancelled);
    for (u32 j = 0; j < ready; ++j) {
      finish_put(blocks[which[j]], publications[j], err);
    }
    return err ? err : static_cast<int>(n);
  }

  // proto 14: what could not be read back is not published; another try finds another place.
  u32 drop_lost(std::span<PutBlock> blocks, u32 lost, pool::Publication *publications, u32 *which,
                u32 ready) {
    const pool::Session &session = *member_.session();
    u32 kept = 0;
    for (u32 j = 0; j < ready; ++j) {
      const pool::Block &place = publications[j].block;
      if (session.regions.devices_of(place.address, place.bytes) & lost) {
        member_.abort_lost(place);
        no_place(blocks[which[j]]);
        continue;
      }
      publications[kept] = publications[j];
      which[kept++] = which[j];
    }
    return kept;
  }
  static void no_place(PutBlock &block) {
    block.status = BlockStatus::kUntried;
    block.error = -EIO;
    block.no_line = true;
  }

  // proto 10: a key whose two groups are full got an old entry of theirs drained, and its line is
  // free a grace later. What finds none in time stays FULL.
  int put_displacing(pool::NsRef ns, std::span<PutBlock> blocks, u64 deadline,
                     const std::atomic<bool> *cancelled, Scratch &scratch) {
    const u64 grace = u64{member_.geometry().grace_us} * 1000 + kLineSlackNs;
    for (int tries = 0; tries < kLineTries; ++tries) {
      const bool any = std::any_of(blocks.begin(), blocks.end(),
                                   [](const PutBlock &block) { return block.no_line; });
      const u64 until = env_.now_ns() + grace;
      if (!any || until >= deadline) return 0;
      for (u64 now = env_.now_ns(); now < until; now = env_.now_ns()) {
        if (cancelled && cancelled->load(std::memory_order_relaxed)) return -ECANCELED;
        env_.sleep_ns(std::min(until - now, kCancelSliceNs));
      }
      for (u64 i = 0; i < blocks.size(); ++i) {
        if (!blocks[i].no_line) continue;
        blocks[i].no_line = false;
        const int tried = put_window(ns, blocks.subspan(i, 1), deadline, cancelled, scratch);
        if (tried < 0) return tried;
      }
    }
    return 0;
  }

  // `err`: what ended the call. A member that died before it could post leaves blocks untried.
  void finish_put(PutBlock &block, const pool::Publication &p, int err) {
    block.version = p.version;
    block.error = p.result;
    if (!p.posted) {  // the block is in hand as before
      if (p.result == -EINPROGRESS) block.error = err;
      member_.abort(p.block);
      block.status = BlockStatus::kUntried;
      return;
    }
    switch (p.result) {
      case 0: block.status = BlockStatus::kOk; break;
      case -EEXIST: block.status = BlockStatus::kExists; block.error = 0; break;
      case -ENOSPC:
        block.no_line = true;
        [[fallthrough]];
      case -EDQUOT: block.status = BlockStatus::kFull; break;
      case -EPERM: block.status = BlockStatus::kBypassed; break;
      case -EBUSY: no_place(block); break;
      case -EINPROGRESS: block.status = BlockStatus::kDoubt; break;
      default: block.status = BlockStatus::kStale; break;
    }
    const bool died = err == -ESTALE && p.result == -ESTALE;
    if (died) block.status = BlockStatus::kUntried;
  }

  int write_block(PutBlock &block, const pool::Block &place, Scratch &scratch, u64 &ret_hash) {
    BlockLayout layout;
    const pool::Session &session = *member_.session();
    if (int err = layout.open(session.regions, place.address, block.payload_bytes, 1,
                              scratch.pieces)) {
      return err;
    }
    if (int err = write_part(layout, 0, env_.random(), block.plan, scratch, /*strict=*/false)) {
      return err;
    }
    ret_hash = check_table_hash(scratch.checks.data(), layout.shape().segments());
    return 0;
  }

  // One shard's payload and check lines. Strict: payload on the medium before its checks, and
  // checks on the medium on return, since another member decides by them. Else the caller drains
  // for all.
  int write_part(const BlockLayout &layout, u32 shard, u64 nonce, const MemoryPlan &plan,
                 Scratch &scratch, bool strict, u64 deadline = ~u64{0}) {
    if (int err = scratch.plan.prepare(plan.runs, plan.memories, layout.payload_bytes(),
                                       transfer::Direction::kWrite)) {
      return err;
    }
    const media::LineRange lines = layout.shape().shard_range(shard);
    const transfer::Range range{lines.first_line * kLineBytes, lines.end_line() * kLineBytes};
    const u64 first = layout.shape().first_segment(shard);
    const u64 count = layout.shape().shard_segments(shard);
    // proto 6: a writer checks its expiry before each chunk.
    const auto go_on = [&] {
      const u64 now = env_.now_ns();
      return member_.alive() && now < deadline;
    };
    const auto turn = bulk_.enter(env_, BulkGate::kWrite, range.end - range.begin, go_on);
    if (!turn) return member_.alive() ? -ETIMEDOUT : -ESTALE;
    const int err = transfer::gather_write(mem(), layout.pieces(), scratch.plan, range,
                                           scratch.checks.data() + first, go_on);
    note_touched(layout, scratch);
    if (err == -ECANCELED && member_.alive()) {
      drain_touched(scratch);  // nothing comes after the call
      return -ETIMEDOUT;
    }
    if (err) return err == -ECANCELED ? -ESTALE : err;
    if (strict && drain_touched(scratch) != 0) return -EIO;
    for (u64 s = first; s < first + count; ++s) {
      publish_check(layout, s, shard, nonce, scratch.checks[s], scratch);
    }
    if (strict && drain_touched(scratch) != 0) return -EIO;
    return 0;
  }

  void publish_check(const BlockLayout &layout, u64 segment, u32 shard, u64 nonce, u64 check,
                     Scratch &scratch) {
    media::CheckLine line{};
    line.check = check;
    line.incarnation = member_.incarnation();
    line.nonce = nonce;
    line.segment = static_cast<u32>(segment);
    line.segment_lines = static_cast<u32>(layout.shape().segment_range(segment).line_count);
    line.shard = static_cast<u16>(shard);
    line.shard_count = static_cast<u16>(layout.shape().shards());
    const PoolOffset at = layout.check_line(segment);
    Line raw = media::line_of(line);
    member_.claims().sealer().seal(raw, at, 0);
    mem().publish_line(at, raw);
    scratch.touch(at);
  }

  // drain_strict reads back the last line written on each device.
  static void note_touched(const BlockLayout &layout, Scratch &scratch) {
    for (const transfer::Piece &piece : layout.pieces()) {
      scratch.touch(piece.pool + (piece.bytes - kLineBytes));
    }
  }
  // Returns the devices that could not be read back, a bit each.
  u32 drain_touched(Scratch &scratch) {
    PoolOffset last[media::kMaxDevices];
    const u32 n = scratch.take_touched(last);
    if (n == 0) return 0;
    mem().drain_strict(last, n);
    u32 lost = 0;
    for (u32 i = 0; i < n; ++i) {
      u64 word = 0;
      if (!mem().load_word(last[i], word)) lost |= 1u << last[i].device();
    }
    return lost;
  }

  // ---- get --------------------------------------------------------------------------------------

  // Looks up the open blocks that have no hit. Blocks that are not there leave the open list.
  int find(pool::NsRef ns, std::span<GetBlock> blocks, Scratch &scratch, u32 &open) {
    u32 wanted = 0;
    for (u32 j = 0; j < open; ++j) {
      const GetBlock &block = blocks[scratch.open_blocks[j]];
      if (block.hit.presence != pool::Presence::kHit) scratch.keys[wanted++] = block.key;
    }
    if (wanted == 0) return 0;
    if (int err = member_.lookup(ns, scratch.keys.data(), wanted, {}, scratch.hits.data()))
      return err;
    u32 left = 0, next = 0;
    for (u32 j = 0; j < open; ++j) {
      const u32 i = scratch.open_blocks[j];
      GetBlock &block = blocks[i];
      if (block.hit.presence != pool::Presence::kHit) block.hit = scratch.hits[next++];
      if (block.hit.presence == pool::Presence::kHit) {
        scratch.open_blocks[left++] = i;
      } else {
        miss(block);
      }
    }
    open = left;
    return 0;
  }

  void miss(GetBlock &block) {
    block.error = 0;
    block.reason = block.hit.reason;
    block.status = block.hit.presence == pool::Presence::kPending ? BlockStatus::kPending
                                                                  : BlockStatus::kMiss;
    if (block.hit.reason == pool::MissReason::kBypassed) block.status = BlockStatus::kBypassed;
  }

  // Copies one block. True: it awaits its verdict, and ret_proven says whether its checks hold.
  // False: its status is final, it leaves the open list.
  bool copy(GetBlock &block, const GetOptions &options, Scratch &scratch, bool &ret_proven) {
    block.error = 0;
    BlockLayout layout;
    if (int err = open_layout(layout, block.hit.address, block.hit.payload_bytes, block.hit.shards,
                              scratch)) {
      // Found in an area before the present one: the pool may have shrunk since, by bytes that
      // nothing refers to any more. The second look says so.
      ret_proven = false;
      if (err == -EUCLEAN && block.hit.epoch != member_.session()->epoch) return true;
      return finish(block, BlockStatus::kGone, err);
    }
    if (int err = scratch.plan.prepare(block.plan.runs, block.plan.memories, layout.payload_bytes(),
                                       transfer::Direction::kRead)) {
      return finish(block, BlockStatus::kRange, err);
    }
    const bool verify = must_verify(block, options, scratch);
    transfer::Range range{scratch.plan.begin(), scratch.plan.end()};
    if (verify) range = layout.proven_range(range.begin, range.end);
    u64 *checks = verify ? scratch.checks.data() : nullptr;
    if (transfer::scatter_read(mem(), layout.pieces(), scratch.plan, range, layout.segments(),
                               checks)) {
      return finish(block, BlockStatus::kGone, -EIO);
    }
    block.bytes_read = range.end - range.begin;
    ret_proven = true;
    if (verify && !env_.mutant(pool::Mutant::kCheckNotVerified)) {
      ret_proven = prove(layout, block.hit.check_hash, range, scratch);
    }
    return true;
  }

  bool finish(GetBlock &block, BlockStatus status, int error) {
    block.status = status;
    block.error = error;
    return false;
  }

  bool must_verify(const GetBlock &block, const GetOptions &options, Scratch &scratch) {
    if (block.hit.tainted) return true;
    switch (options.verify) {
      case Verify::kOff: return false;
      case Verify::kSample:
        return options.sample <= 1 || scratch.next_sample() % options.sample == 0;
      default: return true;
    }
  }

  // Whole block: the entry's hash decides. Part of it: the check lines must add up to the entry's
  // hash, and the segments read to their check lines.
  bool prove(const BlockLayout &layout, u64 check_hash, transfer::Range range, Scratch &scratch) {
    const u64 count = layout.shape().segments();
    if (range.begin == 0 && range.end == layout.payload_bytes()) {
      return check_table_hash(scratch.checks.data(), count) == check_hash;
    }
    const transfer::Range read = layout.segments().whole_in(range);
    std::copy(scratch.checks.begin() + static_cast<std::ptrdiff_t>(read.begin),
              scratch.checks.begin() + static_cast<std::ptrdiff_t>(read.end),
              scratch.read_checks.begin() + static_cast<std::ptrdiff_t>(read.begin));
    if (load_checks(layout, 0, count, nullptr, scratch) != 0) return false;
    if (check_table_hash(scratch.checks.data(), count) != check_hash) return false;
    return std::equal(scratch.checks.begin() + static_cast<std::ptrdiff_t>(read.begin),
                      scratch.checks.begin() + static_cast<std::ptrdiff_t>(read.end),
                      scratch.read_checks.begin() + static_cast<std::ptrdiff_t>(read.begin));
  }

  // Check lines [from, to) into scratch.checks at their numbers, freshly acquired. With `nonce`,
  // they must be of that reservation.
  int load_checks(const BlockLayout &layout, u64 from, u64 to, const u64 *nonce, Scratch &scratch) {
    mem().begin_wave();
    for (u64 s = from; s < to; ++s) mem().flush(layout.check_line(s));
    mem().end_wave();
    u64 common = 0;
    for (u64 s = from; s < to; ++s) {
      const PoolOffset at = layout.check_line(s);
      Line raw;
      if (!mem().load_line(at, raw)) return -EIO;
      if (!member_.claims().sealer().intact(raw, at, 0)) return -EINPROGRESS;
      const auto line = media::from_line<media::CheckLine>(raw);
      if (s == from) common = nonce ? *nonce : line.nonce;
      if (line.nonce != common || line.segment != s) return -EINPROGRESS;
      scratch.checks[s] = line.check;
    }
    return 0;
  }

  // The second look at everything that was copied (proto 10), then each block's verdict.
  int judge(std::span<GetBlock> blocks, bool again, Scratch &scratch, u32 &open) {
    for (u32 j = 0; j < open; ++j) {
      const GetBlock &block = blocks[scratch.open_blocks[j]];
      scratch.hits[j] = block.hit;
      scratch.wanted[j] = block.by_key ? &block.key : nullptr;
    }
    if (int err = validate(open, scratch)) return err;
    u32 left = 0;
    for (u32 j = 0; j < open; ++j) {
      const u32 i = scratch.open_blocks[j];
      GetBlock &block = blocks[i];
      if (scratch.valid[j]) {
        block.hit.epoch = scratch.hits[j].epoch;
        if (scratch.proven[i]) {
          finish(block, BlockStatus::kOk, 0);
        } else {
          env_.mark("get_corrupt");
          finish(block, BlockStatus::kCorrupt, -EBADMSG);
        }
        continue;
      }
      env_.mark("get_stale");
      block.hit = pool::Hit{};
      if (again && block.by_key) {
        scratch.open_blocks[left++] = i;
      } else {
        finish(block, BlockStatus::kStale, -ESTALE);
      }
    }
    open = left;
    return 0;
  }

  // scratch.hits[0, count), and the keys wanted, against the area of the highest active claim. When
  // that changed, the entry of the same number in the new area decides: it was copied forward with
  // its version, or it is another.
  int validate(u32 count, Scratch &scratch) {
    for (u32 attempt = 0; attempt < pool::kAreaRetries; ++attempt) {
      const pool::Session &session = *member_.session();
      for (u32 j = 0; j < count; ++j) {
        scratch.hits[j].epoch = session.epoch;
        if (scratch.hits[j].entry >= session.entry_count()) scratch.hits[j].epoch = 0;
      }
      const int err = member_.validate(scratch.hits.data(), count, scratch.valid.get(),
                                       scratch.wanted.data());
      if (err != -EAGAIN) return err;
      env_.mark("validate_again");
    }
    return -EAGAIN;
  }

  Member &member_;
  Env &env_;
  BulkGate bulk_;
};

template <pool::PoolEnv Env>
int Store<Env>::get_rows(pool::NsRef ns, std::span<GetBlock> blocks, transfer::RowsPlan plan,
                         const GetOptions &options, Scratch &scratch) {
  u32 open = 0;
  for (u32 i = 0; i < blocks.size(); ++i) scratch.open_blocks[open++] = i;
  if (int err = find(ns, blocks, scratch, open)) return err;
  for (GetBlock &block : blocks) {
    // A writer that may be alive wrote near it: only whole segments could be proven (proto 9).
    if (block.status == BlockStatus::kUntried && block.hit.tainted) {
      finish(block, BlockStatus::kMiss, 0);
      --open;
    }
  }
  if (open < blocks.size()) return 0;  // rows are one batch: without all blocks nothing is read
  if (interrupted(options)) return why_interrupted(options);
  const u64 bytes = blocks[0].hit.payload_bytes;
  const pool::Session &session = *member_.session();
  u64 used = 0;
  for (u32 i = 0; i < blocks.size(); ++i) {
    BlockLayout layout;
    const auto room = std::span(scratch.pieces).subspan(used);
    const u64 needed = bytes / media::kStripeBytes + 2;
    if (blocks[i].hit.payload_bytes != bytes || room.size() < needed) return -EINVAL;
    if (int err = layout.open(session.regions, blocks[i].hit.address, bytes, blocks[i].hit.shards,
                              room)) {
      const bool moved = err == -EUCLEAN && blocks[i].hit.epoch != session.epoch;
      finish(blocks[i], moved ? BlockStatus::kStale : BlockStatus::kGone, err);
      return 0;
    }
    scratch.row_blocks[i] = layout.pieces();
    scratch.proven[i] = true;
    used += layout.pieces().size();
  }
  const auto turn = bulk_.enter(env_, BulkGate::kRead, plan.rows.size() * plan.row_bytes,
                                [&] { return !interrupted(options); });
  if (!turn) return why_interrupted(options);
  const auto pieces_of = [&](u64 block) { return scratch.row_blocks[block]; };
  if (int err = transfer::rows_read(mem(), pieces_of, blocks.size(), bytes, plan)) {
    if (err != -EIO) return err;
    for (GetBlock &block : blocks) finish(block, BlockStatus::kGone, -EIO);
    return 0;
  }
  return judge(blocks, /*again=*/false, scratch, open);
}

}  // namespace kvpool::store
