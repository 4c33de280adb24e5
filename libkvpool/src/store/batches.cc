// SPDX-License-Identifier: Apache-2.0
#include "store/batches.hpp"

#include <algorithm>

namespace kvpool::store {

namespace {

// Whether hits say that the handle's epoch is over.
bool cleared(const pool::Hit &hit) { return hit.reason == pool::MissReason::kCleared; }

// One chain without components of its own: keys are looked up as they are.
int lookup_plain(Namespace &ns, const Key *keys, u64 count, bool all, Scratch &scratch,
                 pool::Hit *ret_hits, u8 *ret_known) {
  Context &context = ns.context();
  u64 prefix = 0;
  bool broken = false;
  for (u64 done = 0; done < count; done += kScratchBlocks) {
    const u32 n = static_cast<u32>(std::min<u64>(kScratchBlocks, count - done));
    if (broken && !all) {
      for (u64 i = done; i < count; ++i) {
        if (ret_known) ret_known[i] = false;
        if (ret_hits) ret_hits[i] = pool::Hit{};
      }
      break;
    }
    pool::Hit *hits = ret_hits ? ret_hits + done : scratch.hits.data();
    const pool::LookupOptions how{.stop_at_miss = !all};
    if (int err = context.member().lookup(ns.ref(), keys + done, n, how, hits)) return err;
    if (cleared(hits[0])) ns.note_cleared();
    for (u32 i = 0; i < n; ++i) {
      if (ret_known) ret_known[done + i] = all || !broken;
      if (hits[i].presence != pool::Presence::kHit) {
        broken = true;
      } else if (!broken) {
        ++prefix;
      }
    }
  }
  return static_cast<int>(prefix);
}

}  // namespace

int lookup_prefix(Namespace &ns, const Key *keys, u64 count, bool all, pool::Hit *ret_hits,
                  u8 *ret_known) {
  Context &context = ns.context();
  auto scratch = context.scratch().take();
  ContextCounters &counters = context.counters();
  ContextCounters::add(counters.lookups, 1);
  ContextCounters::add(counters.keys_looked_up, count);
  const u32 parts = ns.component_count();
  int result = 0;
  if (parts == 1 && ns.components()[0].trailing == 0) {
    result = lookup_plain(ns, keys, count, all, *scratch, ret_hits, ret_known);
  } else {
    // With components a miss of one says nothing of the others, so everything is looked at.
    std::vector<u8> there(count * parts);
    const u64 step = kScratchBlocks / parts;
    for (u64 done = 0; done < count; done += step) {
      const u64 n = std::min(step, count - done);
      for (u64 i = 0; i < n; ++i) {
        for (u32 c = 0; c < parts; ++c) {
          scratch->keys[i * parts + c] = component_key(keys[done + i], c);
        }
      }
      const u32 total = static_cast<u32>(n * parts);
      pool::Hit *hits = scratch->hits.data();
      if (int err = context.member().lookup(ns.ref(), scratch->keys.data(), total, {}, hits)) {
        return err;
      }
      if (cleared(hits[0])) ns.note_cleared();
      for (u32 j = 0; j < total; ++j) {
        there[done * parts + j] = hits[j].presence == pool::Presence::kHit;
        if (ret_hits) ret_hits[done * parts + j] = hits[j];
        if (ret_known) ret_known[done * parts + j] = true;
      }
    }
    result = static_cast<int>(usable_prefix(
        ns.components(), count, [&](u64 i, u32 c) { return there[i * parts + c] != 0; }));
  }
  if (result > 0) ContextCounters::add(counters.keys_hit, static_cast<u64>(result));
  return result;
}

namespace {

int put_some(Namespace &ns, std::span<PutBlock> blocks, u64 deadline,
             const std::atomic<bool> *cancelled) {
  Context &context = ns.context();
  auto scratch = context.scratch().take();
  std::shared_lock life(context.life());
  return context.store().put(ns.ref(), blocks, deadline, cancelled, *scratch);
}

// What is posted to an owner waits for its answer, so nothing is posted to one that is not there:
// waiting for one ends soon when cancelled.
int put_cancellable(Namespace &ns, std::span<PutBlock> blocks, u64 deadline,
                    const std::atomic<bool> &cancelled) {
  for (PutBlock &block : blocks) block.status = BlockStatus::kUntried;
  for (u64 done = 0; done < blocks.size(); done += kPutWindow) {
    if (int err = ns.context().await_owner(deadline, cancelled)) return err;
    const u64 n = std::min<u64>(kPutWindow, blocks.size() - done);
    if (int err = put_some(ns, blocks.subspan(done, n), deadline, &cancelled)) return err;
  }
  return 0;
}

}  // namespace

int put_batch(Namespace &ns, std::span<PutBlock> blocks, u64 deadline,
              const std::atomic<bool> *cancelled) {
  Context &context = ns.context();
  ContextCounters &counters = context.counters();
  ContextCounters::add(counters.puts, blocks.size());
  const int err = cancelled == nullptr ? put_some(ns, blocks, deadline, nullptr)
                                      : put_cancellable(ns, blocks, deadline, *cancelled);
  for (const PutBlock &block : blocks) {
    switch (block.status) {
      case BlockStatus::kOk:
        ContextCounters::add(counters.put_stored, 1);
        ContextCounters::add(counters.put_bytes, block.payload_bytes);
        break;
      case BlockStatus::kExists: ContextCounters::add(counters.put_exists, 1); break;
      case BlockStatus::kFull: ContextCounters::add(counters.put_full, 1); break;
      case BlockStatus::kDoubt: ContextCounters::add(counters.doubts, 1); break;
      case BlockStatus::kStale: ns.note_cleared(); break;
      default: break;
    }
  }
  return err;
}

namespace {

// A damaged block misleads nobody for long: whoever finds it removes it, by the version seen.
void remove_damaged(Namespace &ns, const GetBlock &block, u64 deadline,
                    const std::atomic<bool> *cancelled) {
  Context &context = ns.context();
  media::Entry entry;
  const pool::Session &session = *context.member().session();
  context.log(LogLevel::kError, "a block does not match its checks: entry " +
                                    std::to_string(block.hit.entry) + ", version " +
                                    std::to_string(block.hit.version) +
                                    (context.read_only() ? "" : "; removing it"));
  if (context.read_only() || block.hit.entry >= session.entry_count()) return;
  context.env().memory().acquire(context.member().reader().entry_at(session, block.hit.entry),
                                 kLineBytes);
  if (!context.member().reader().read_entry(session, block.hit.entry, entry)) return;
  if (entry.version != block.hit.version) return;
  Key key;
  std::copy(std::begin(entry.key), std::end(entry.key), key.w);
  if (cancelled != nullptr && context.await_owner(deadline, *cancelled) != 0) return;
  context.member().remove(key, block.hit.version, deadline, /*damaged=*/true);
}

void count_gets(Namespace &ns, std::span<const GetBlock> blocks, u64 deadline,
                const std::atomic<bool> *cancelled) {
  ContextCounters &counters = ns.context().counters();
  ContextCounters::add(counters.gets, blocks.size());
  for (const GetBlock &block : blocks) {
    switch (block.status) {
      case BlockStatus::kOk:
        ContextCounters::add(counters.get_hits, 1);
        ContextCounters::add(counters.get_bytes, block.bytes_read);
        break;
      case BlockStatus::kStale: ContextCounters::add(counters.get_stale, 1); break;
      case BlockStatus::kCorrupt:
        ContextCounters::add(counters.get_corrupt, 1);
        remove_damaged(ns, block, deadline, cancelled);
        break;
      default: break;
    }
    if (block.reason == pool::MissReason::kCleared) ns.note_cleared();
  }
}

GetOptions options_of(const Namespace &ns, u64 deadline, const std::atomic<bool> *cancelled) {
  return {ns.verify(), ns.verify_sample(), deadline, cancelled};
}

}  // namespace

int get_batch(Namespace &ns, std::span<GetBlock> blocks, u64 deadline,
              const std::atomic<bool> *cancelled) {
  int err = 0;
  {
    auto scratch = ns.context().scratch().take();
    err = ns.context().store().get(ns.ref(), blocks, options_of(ns, deadline, cancelled), *scratch);
  }
  count_gets(ns, blocks, deadline, cancelled);
  return err;
}

int get_rows(Namespace &ns, std::span<GetBlock> blocks, const transfer::RowsPlan &plan,
             u64 deadline) {
  int err = 0;
  {
    auto scratch = ns.context().scratch().take();
    err = ns.context().store().get_rows(ns.ref(), blocks, plan, options_of(ns, deadline, nullptr),
                                        *scratch);
  }
  count_gets(ns, blocks, deadline, nullptr);
  return err;
}

namespace {

// A removal names the version seen (proto 12): sent again to a new owner, it removes nothing that
// was put in between. Where a lookup sees no versions nothing can be put either, or the owner alone
// can tell what is there: any version.
bool may_be_there(const pool::Hit &hit) {
  return hit.presence == pool::Presence::kHit || hit.reason == pool::MissReason::kBypassed ||
         hit.reason == pool::MissReason::kUnreadable;
}

int remove_seen(Context &context, const Key *keys, const pool::Hit *hits, u32 count, u64 deadline,
                int &removed) {
  for (u32 i = 0; i < count; ++i) {
    if (!may_be_there(hits[i])) continue;
    const u64 version = hits[i].presence == pool::Presence::kHit ? hits[i].version : 0;
    const int err = context.member().remove(keys[i], version, deadline);
    if (err == 0) ++removed;
    const bool replaced = err == -ESTALE && context.member().alive();  // what was seen is gone
    if (err != 0 && err != -ENOENT && !replaced) return err;
  }
  return 0;
}

}  // namespace

int remove_batch(Namespace &ns, const Key *keys, u64 count, u64 deadline) {
  Context &context = ns.context();
  auto scratch = context.scratch().take();
  int removed = 0, err = 0;
  for (u64 done = 0; done < count && err == 0; done += kScratchBlocks) {
    const u32 n = static_cast<u32>(std::min<u64>(kScratchBlocks, count - done));
    pool::Hit *hits = scratch->hits.data();
    err = context.member().lookup(ns.ref(), keys + done, n, {}, hits);
    if (err == 0) err = remove_seen(context, keys + done, hits, n, deadline, removed);
  }
  ContextCounters::add(context.counters().removes, static_cast<u64>(removed));
  return removed > 0 ? removed : err;
}

}  // namespace kvpool::store
