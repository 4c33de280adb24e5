// SPDX-License-Identifier: Apache-2.0
// Lookup, put, get, rows, remove, touch, pending.
#include "api/handles.hpp"
#include "backend/address.hpp"

using namespace kvpool;
using namespace kvpool::api;

namespace kvpool::api {

namespace {

constexpr size_t kLookupMax = size_t{1} << 20;

int too_many(std::string *why) {
  return options_error(why, -EINVAL, "more than 1024 blocks in one batch");
}

// The namespace's block size binds those who created it with one.
int check_size(const store::Namespace &ns, u64 bytes, std::string *why) {
  if (bytes == 0) return options_error(why, -EINVAL, "put: a block of 0 bytes");
  const bool fixed = ns.block_bytes() != 0 && ns.component_count() == 1;
  if (fixed && bytes != ns.block_bytes()) {
    *why = "put: " + std::to_string(bytes) + " bytes, but blocks of this namespace have " +
           std::to_string(ns.block_bytes());
    return -EMSGSIZE;
  }
  if (bytes > store::kBlockBytesMax) {
    return options_error(why, -EMSGSIZE, "put: a block has at most 1 GiB");
  }
  return ns.context().check_room(bytes, why);
}

constexpr u64 whole_lines(u64 bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

int fill_put(kvpool_ns *ns, const kvpool_block &from, BatchRoom &room, PlanAt &at,
             std::string *why) {
  if (from.ticket != nullptr) return options_error(why, -EINVAL, "put: takes keys, not tickets");
  u64 bytes = from.plan.buf != nullptr ? from.plan.bytes : from.bytes;
  if (bytes == 0) bytes = ns->ns->block_bytes();
  if (int err = check_size(*ns->ns, bytes, why)) return err;
  if (int err = add_plan(ns->ctx, from.plan, room, at, why)) return err;
  store::PutBlock &block = room.puts.emplace_back();
  block.key = key_of(from.key);
  block.parent = key_of(from.parent).w[0];
  block.payload_bytes = whole_lines(bytes);
  return 0;
}

int fill_get(kvpool_ns *ns, const kvpool_block &from, bool with_plan, BatchRoom &room, PlanAt &at,
             std::string *why) {
  store::GetBlock &block = room.gets.emplace_back();
  if (from.ticket != nullptr) {
    const store::TicketWire wire = wire_of(*from.ticket);
    if (int err = store::hit_of_ticket(*ns->ctx->context, wire, ns->ns->ref().id, block.hit, why)) {
      return err;
    }
    block.by_key = false;
  } else {
    block.key = key_of(from.key);
    const bool found =
        from.hit != nullptr && hit_of(*from.hit, ns->ctx->context->life_tag(), block.hit);
    if (found && block.hit.ns != ns->ns->ref().id) {
      return options_error(why, -EINVAL, "get: a lookup's record of another namespace");
    }
  }
  return with_plan ? add_plan(ns->ctx, from.plan, room, at, why) : 0;
}

// What a batch that ended early returns: statuses count if anything was tried.
template <class Block>
int batch_result(kvpool_ns *ns, const std::vector<Block> &blocks, int err, int32_t *ret_status,
                 std::string *why) {
  int ok = 0;
  bool tried = false;
  for (const Block &block : blocks) {
    ok += block.status == store::BlockStatus::kOk;
    tried |= block.status != store::BlockStatus::kUntried;
  }
  if (err != 0 && !tried) return ns->ctx->context->explain(err, why);
  if (ret_status != nullptr) {
    for (size_t i = 0; i < blocks.size(); ++i)
      ret_status[i] = static_cast<int32_t>(blocks[i].status);
  }
  return ok;
}

void clear_room(BatchRoom &room) {
  room.puts.clear();
  room.gets.clear();
  room.runs.clear();
  room.memories.clear();
}

}  // namespace

int put_blocks(kvpool_ns *ns, const kvpool_block *blocks, size_t n, u64 deadline,
               const std::atomic<bool> *cancelled, int32_t *ret_status, std::string *why) {
  if (n > 0 && blocks == nullptr) return options_error(why, -EINVAL, "put: blocks is NULL");
  if (n > store::kBatchMax) return too_many(why);
  if (ns->ctx->context->read_only()) {
    return options_error(why, -EROFS, "put: the store is open read-only");
  }
  RoomLease room(ns->ctx->rooms);
  clear_room(*room);
  PlanAt at[store::kBatchMax];
  for (size_t i = 0; i < n; ++i) {
    if (int err = fill_put(ns, blocks[i], *room, at[i], why)) return err;
  }
  for (size_t i = 0; i < n; ++i) room->puts[i].plan = plan_at(*room, at[i]);
  const int err = store::put_batch(*ns->ns, room->puts, store::deadline_of(deadline), cancelled);
  return batch_result(ns, room->puts, err, ret_status, why);
}

int get_blocks(kvpool_ns *ns, const kvpool_block *blocks, size_t n, u64 deadline,
               const std::atomic<bool> *cancelled, int32_t *ret_status, std::string *why) {
  if (n > 0 && blocks == nullptr) return options_error(why, -EINVAL, "get: blocks is NULL");
  if (n > store::kBatchMax) return too_many(why);
  RoomLease room(ns->ctx->rooms);
  clear_room(*room);
  PlanAt at[store::kBatchMax];
  for (size_t i = 0; i < n; ++i) {
    if (int err = fill_get(ns, blocks[i], /*with_plan=*/true, *room, at[i], why)) return err;
  }
  for (size_t i = 0; i < n; ++i) room->gets[i].plan = plan_at(*room, at[i]);
  const int err = store::get_batch(*ns->ns, room->gets, store::deadline_of(deadline), cancelled);
  return batch_result(ns, room->gets, err, ret_status, why);
}

namespace {

// The store may have room: what is in the way is the namespace's quota.
int quota_result(kvpool_ns *ns, std::string *why) {
  store::NsInfo info;
  std::string said = "put: namespace '" + ns->ns->description().name + "' has a quota";
  if (ns->ns->stat(info) == 0) said += " of " + backend::format_size(info.quota_bytes);
  said += ", which has no room for this block; kvpool ns clear empties it, and one that is removed "
          "can be made with another quota";
  return options_error(why, -ENOSPC, said.c_str());
}

// One block's status as the result of kvpool_put.
int put_result(kvpool_ns *ns, const store::PutBlock &block, int err, std::string *why) {
  using store::BlockStatus;
  switch (block.status) {
    case BlockStatus::kOk: return 1;
    case BlockStatus::kExists: return 0;
    case BlockStatus::kFull:
      return block.error == -EDQUOT ? quota_result(ns, why)
                                    : ns->ctx->context->explain(-ENOSPC, why);
    case BlockStatus::kBypassed: return ns->ctx->context->explain(-EPERM, why);
    case BlockStatus::kDoubt:
      if (err == -ESTALE) return ns->ctx->context->explain(err, why);
      if (ns->ctx->context->first_device_lost()) {
        return options_error(why, -EINPROGRESS, ns->ctx->context->first_device_text().c_str());
      }
      *why = "put: sent, but no answer could be accepted in time";
      if (const std::string silence = ns->ctx->context->owner_silence(); !silence.empty()) {
        *why += "; " + silence;
      }
      return -EINPROGRESS;
    case BlockStatus::kStale:
      return options_error(why, -EKEYREVOKED,
                           "put: the namespace was cleared or removed since this "
                           "key was made; make the key again");
    case BlockStatus::kUntried:
      return ns->ctx->context->explain(err != 0 ? err : block.error != 0 ? block.error : -EAGAIN,
                                       why);
    default:
      return ns->ctx->context->explain(block.error != 0 ? block.error : -EIO, why);
  }
}

int get_result(kvpool_ns *ns, const store::GetBlock &block, int err, std::string *why) {
  using store::BlockStatus;
  switch (block.status) {
    case BlockStatus::kOk: return 1;
    case BlockStatus::kMiss:
    case BlockStatus::kPending:
    case BlockStatus::kStale:
    case BlockStatus::kBypassed: return 0;
    case BlockStatus::kGone:
      return options_error(why, -EIO, "get: the block's memory could not be read");
    case BlockStatus::kCorrupt:
      return options_error(why, -EBADMSG,
                           ns->ctx->context->read_only()
                               ? "get: the block does not match its checks; a member that reads it "
                                 "removes it, or: kvpool rm"
                               : "get: the block does not match its checks; it is removed");
    case BlockStatus::kRange:
      return options_error(why, -ERANGE, "get: bytes beyond the end of the block were asked for");
    default: return ns->ctx->context->explain(err != 0 ? err : -EAGAIN, why);
  }
}

}  // namespace

}  // namespace kvpool::api

extern "C" {

int kvpool_lookup(kvpool_ns *ns, const kvpool_key *keys, size_t n, uint32_t flags,
                  uint64_t deadline_ns, kvpool_hit *ret_hits) {
  return guarded(ns, [&](std::string *why) {
    if (n == 0) return 0;
    if (keys == nullptr) return options_error(why, -EINVAL, "lookup: keys is NULL");
    if (n > kLookupMax) return options_error(why, -EINVAL, "lookup: more than 1048576 keys");
    if (flags & ~KVPOOL_LOOKUP_F_ALL) return options_error(why, -EINVAL, "lookup: unknown flags");
    if (deadline_ns != 0 && store::monotonic_ns() >= deadline_ns) {
      return options_error(why, -ETIMEDOUT, "lookup: the deadline is over");
    }
    RoomLease room(ns->ctx->rooms);
    keys_of(keys, n, room->keys);
    const size_t records = n * ns->ns->component_count();
    pool::Hit *hits = nullptr;
    u8 *known = nullptr;
    if (ret_hits != nullptr) {
      room->hits.resize(records);
      room->known.resize(records);
      hits = room->hits.data();
      known = room->known.data();
    }
    const bool all = flags & KVPOOL_LOOKUP_F_ALL;
    const int prefix = store::lookup_prefix(*ns->ns, room->keys.data(), n, all, hits, known);
    if (prefix < 0) return ns->ctx->context->explain(prefix, why);
    if (ret_hits != nullptr) {
      const u16 tag = ns->ctx->context->life_tag();
      for (size_t i = 0; i < records; ++i) write_hit(hits[i], known[i] != 0, tag, ret_hits[i]);
    }
    return prefix;
  });
}

int kvpool_put(kvpool_ns *ns, const kvpool_key *key, const void *buf, uint64_t bytes,
               uint64_t deadline_ns) {
  return guarded(ns, [&](std::string *why) {
    if (key == nullptr || buf == nullptr) {
      return options_error(why, -EINVAL, "put: key or buf is NULL");
    }
    if (ns->ctx->context->read_only()) {
      return options_error(why, -EROFS, "put: the store is open read-only");
    }
    if (int err = check_size(*ns->ns, bytes, why)) return err;
    // The engine only reads from memory it writes the pool from.
    auto *from = static_cast<std::byte *>(const_cast<void *>(buf));
    const transfer::LocalMemory memory{from, bytes};
    const transfer::Run run{.memory_index = 0, .fragment_bytes = bytes, .count = 1};
    store::PutBlock block;
    block.key = key_of(*key);
    block.payload_bytes = whole_lines(bytes);
    block.plan = {{&run, 1}, {&memory, 1}};
    const int err =
        store::put_batch(*ns->ns, {&block, 1}, store::deadline_of(deadline_ns), nullptr);
    return put_result(ns, block, err, why);
  });
}

int kvpool_get(kvpool_ns *ns, const kvpool_key *key, void *buf, uint64_t bytes,
               uint64_t deadline_ns) {
  return guarded(ns, [&](std::string *why) {
    if (key == nullptr || buf == nullptr || bytes == 0) {
      return options_error(why, -EINVAL, "get: key, buf or bytes is missing");
    }
    const transfer::LocalMemory memory{static_cast<std::byte *>(buf), bytes};
    const transfer::Run run{.memory_index = 0, .fragment_bytes = bytes, .count = 1};
    store::GetBlock block;
    block.key = key_of(*key);
    block.plan = {{&run, 1}, {&memory, 1}};
    const int err =
        store::get_batch(*ns->ns, {&block, 1}, store::deadline_of(deadline_ns), nullptr);
    return get_result(ns, block, err, why);
  });
}

int kvpool_put_blocks(kvpool_ns *ns, const kvpool_block *blocks, size_t n, uint64_t deadline_ns,
                      int32_t *ret_status) {
  return guarded(ns, [&](std::string *why) {
    return put_blocks(ns, blocks, n, deadline_ns, nullptr, ret_status, why);
  });
}

int kvpool_get_blocks(kvpool_ns *ns, const kvpool_block *blocks, size_t n, uint64_t deadline_ns,
                      int32_t *ret_status) {
  return guarded(ns, [&](std::string *why) {
    return get_blocks(ns, blocks, n, deadline_ns, nullptr, ret_status, why);
  });
}

int kvpool_get_rows(kvpool_ns *ns, const kvpool_block *blocks, size_t n, const kvpool_rows *rows,
                    uint64_t deadline_ns, int32_t *ret_status) {
  return guarded(ns, [&](std::string *why) {
    if (n == 0 || blocks == nullptr || rows == nullptr || rows->rows == nullptr) {
      return options_error(why, -EINVAL, "rows: blocks or rows is missing");
    }
    if (n > store::kBatchMax) return too_many(why);
    transfer::RowsPlan plan;
    plan.rows = {rows->rows, rows->row_count};
    plan.row_bytes = rows->row_bytes;
    plan.row_stride = rows->block_stride != 0 ? rows->block_stride : rows->row_bytes;
    plan.rows_per_block = rows->rows_per_block;
    plan.block_offset = rows->block_offset;
    plan.local_stride = rows->local_stride != 0 ? rows->local_stride : rows->row_bytes;
    if (rows->mem != nullptr) {
      if (rows->mem->ctx != ns->ctx) {
        return options_error(why, -EINVAL, "rows: a memory handle of another context");
      }
      plan.local = {rows->mem->base, rows->mem->bytes};
      plan.local_offset = rows->local_offset;
    } else {
      const __int128 span = __int128{plan.local_stride} * rows->row_count + rows->row_bytes;
      if (rows->local_offset == 0 || span + rows->local_offset > (__int128{1} << 63)) {
        return options_error(why, -ERANGE, "rows: they leave the address space");
      }
      plan.local = {reinterpret_cast<std::byte *>(static_cast<uintptr_t>(rows->local_offset)),
                    static_cast<u64>(span)};
    }
    RoomLease room(ns->ctx->rooms);
    clear_room(*room);
    PlanAt unused;
    for (size_t i = 0; i < n; ++i) {
      if (int err = fill_get(ns, blocks[i], /*with_plan=*/false, *room, unused, why)) return err;
    }
    const int err = store::get_rows(*ns->ns, room->gets, plan, store::deadline_of(deadline_ns));
    if (err == -EINVAL) {
      return options_error(why, err, "rows: sizes make no sense, or blocks are not of one size");
    }
    if (err == -ERANGE) {
      return options_error(why, err, "rows: a row leaves its block or local memory");
    }
    return batch_result(ns, room->gets, err, ret_status, why);
  });
}

int kvpool_remove(kvpool_ns *ns, const kvpool_key *keys, size_t n, uint64_t deadline_ns) {
  return guarded(ns, [&](std::string *why) {
    if (n > 0 && keys == nullptr) return options_error(why, -EINVAL, "remove: keys is NULL");
    if (n > kLookupMax) return options_error(why, -EINVAL, "remove: more than 1048576 keys");
    if (ns->ctx->context->read_only()) {
      return options_error(why, -EROFS, "remove: the store is open read-only");
    }
    RoomLease room(ns->ctx->rooms);
    keys_of(keys, n, room->keys);
    const int removed = store::remove_batch(*ns->ns, room->keys.data(), n,
                                            store::deadline_of(deadline_ns));
    return ns->ctx->context->explain(removed, why);
  });
}

int kvpool_touch(kvpool_ns *ns, const kvpool_hit *hits, size_t n) {
  return guarded(ns, [&](std::string *why) {
    if (n > 0 && hits == nullptr) return options_error(why, -EINVAL, "touch: hits is NULL");
    if (n > kLookupMax) return options_error(why, -EINVAL, "touch: more than 1048576 hits");
    constexpr size_t kStep = 64;
    pool::Hit some[kStep];
    for (size_t done = 0; done < n;) {
      u32 count = 0;
      const u16 tag = ns->ctx->context->life_tag();
      for (; done < n && count < kStep; ++done) count += hit_of(hits[done], tag, some[count]);
      ns->ctx->context->member().touch(some, count);
    }
    return 0;
  });
}

int kvpool_pending(kvpool_ns *ns, const kvpool_key *keys, size_t n, uint32_t duration_ms) {
  return guarded(ns, [&](std::string *why) {
    if (n > 0 && keys == nullptr) return options_error(why, -EINVAL, "pending: keys is NULL");
    int posted = 0;
    for (size_t i = 0; i < n; ++i) {
      const int err =
          ns->ctx->context->member().pending(ns->ns->ref(), key_of(keys[i]), duration_ms);
      if (err != 0 && posted == 0) return ns->ctx->context->explain(err, why);
      if (err != 0) break;
      ++posted;
    }
    return posted;
  });
}

}  // extern "C"
