// SPDX-License-Identifier: Apache-2.0
// What stands behind the opaque handles of kvpool.h, and what every shim does before and after its
// one call into the store layer: reject null and dead handles, read options, turn exceptions into
// errors, keep the sentence about a failure. No logic beyond that.
#pragma once

#include <kvpool/kvpool.h>

#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "store/batches.hpp"
#include "store/sharded.hpp"

namespace kvpool::api {

// A list of the handles that belong to a context, so that closing it frees them all.
template <class T>
class Children {
public:
  void add(std::unique_ptr<T> child) {
    std::lock_guard guard(mutex_);
    children_.push_back(std::move(child));
  }
  // Taken out; destroyed by whoever holds the result. Null when it is not a child.
  std::unique_ptr<T> take(T *child) {
    std::lock_guard guard(mutex_);
    for (auto &c : children_) {
      if (c.get() != child) continue;
      std::swap(c, children_.back());
      auto out = std::move(children_.back());
      children_.pop_back();
      return out;
    }
    return nullptr;
  }
  template <class F>
  void each(F &&f) {
    std::lock_guard guard(mutex_);
    for (auto &c : children_) f(c.get());
  }

private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> children_;
};

// Working room to turn a batch of C structs into the store's.
struct BatchRoom {
  BatchRoom() {
    keys.reserve(store::kBatchMax);
    hits.reserve(store::kBatchMax);
    known.reserve(store::kBatchMax);
    puts.reserve(store::kBatchMax);
    gets.reserve(store::kBatchMax);
    runs.reserve(4096);
    memories.reserve(4096);
  }
  std::vector<pool::Key> keys;
  std::vector<pool::Hit> hits;
  std::vector<u8> known;
  std::vector<store::PutBlock> puts;
  std::vector<store::GetBlock> gets;
  std::vector<transfer::Run> runs;
  std::vector<transfer::LocalMemory> memories;
};

// As store::ScratchPool: grows only when more threads than ever before are inside at once.
class BatchRooms {
public:
  BatchRooms() { put(make()); }
  std::unique_ptr<BatchRoom> take() {
    {
      std::lock_guard guard(mutex_);
      if (!free_.empty()) {
        auto room = std::move(free_.back());
        free_.pop_back();
        return room;
      }
    }
    return make();
  }
  void put(std::unique_ptr<BatchRoom> room) noexcept {
    std::lock_guard guard(mutex_);
    free_.push_back(std::move(room));  // never allocates: make() made room
  }

private:
  std::unique_ptr<BatchRoom> make() {
    auto room = std::make_unique<BatchRoom>();
    std::lock_guard guard(mutex_);
    free_.reserve(++made_);
    return room;
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<BatchRoom>> free_;
  std::size_t made_ = 0;
};

class RoomLease {
public:
  explicit RoomLease(BatchRooms &rooms) : rooms_(rooms), room_(rooms.take()) {}
  ~RoomLease() { rooms_.put(std::move(room_)); }
  RoomLease(const RoomLease &) = delete;
  RoomLease &operator=(const RoomLease &) = delete;
  BatchRoom *operator->() { return room_.get(); }
  BatchRoom &operator*() { return *room_; }

private:
  BatchRooms &rooms_;
  std::unique_ptr<BatchRoom> room_;
};

}  // namespace kvpool::api

struct kvpool_ns {
  kvpool_ctx *ctx = nullptr;
  std::shared_ptr<kvpool::store::Namespace> ns;
};

struct kvpool_mem {
  kvpool_ctx *ctx = nullptr;
  std::byte *base = nullptr;
  kvpool::u64 bytes = 0;
  std::atomic<kvpool::u32> users{0};  // prepared operations that name it
};

struct kvpool_events {
  kvpool_ctx *ctx = nullptr;
  kvpool::store::EventReader reader;
};

struct kvpool_op {
  ~kvpool_op() {
    for (kvpool_mem *m : used) m->users.fetch_sub(1);
  }
  kvpool_ctx *ctx = nullptr;
  kvpool_ns ns;  // a handle of its own: the caller may close the one it gave
  bool is_put = false;
  int32_t *status = nullptr;
  std::vector<kvpool_block> blocks;
  std::vector<kvpool_run> runs;
  std::vector<kvpool_ticket> tickets;
  std::vector<kvpool_hit> hits;
  std::vector<kvpool_mem *> used;
  std::unique_ptr<kvpool::store::Operation> operation;
};

// Members are destroyed from the last to the first: operations before what they name, all before
// the context.
struct kvpool_ctx {
  std::unique_ptr<kvpool::store::Context> context;
  kvpool::api::BatchRooms rooms;
  kvpool::api::Children<kvpool_ns> namespaces;
  kvpool::api::Children<kvpool_mem> memories;
  kvpool::api::Children<kvpool_events> readers;
  kvpool::api::Children<kvpool_op> operations;
};

namespace kvpool::api {

// The sentence about the last failure of this thread. A cache: it owns nothing but its text.
void set_detail(const kvpool_ctx *ctx, const char *text) noexcept;

inline int refuse(const kvpool_ctx *ctx, int err, const char *text) noexcept {
  set_detail(ctx, text);
  return err;
}

// Runs `body(why)` with everything that the header promises for every call.
template <class F>
int run(const kvpool_ctx *ctx, F &&body) noexcept {
  try {
    std::string why;
    const int result = body(&why);
    if (result < 0) set_detail(ctx, why.empty() ? std::strerror(-result) : why.c_str());
    return result;
  } catch (const std::bad_alloc &) {
    return refuse(ctx, -ENOMEM, "no memory");
  } catch (const std::exception &e) {
    return refuse(ctx, -EIO, e.what());
  } catch (...) {
    return refuse(ctx, -EIO, "unknown exception");
  }
}

template <class F>
int guarded(kvpool_ctx *ctx, F &&body) noexcept {
  if (ctx == nullptr) return refuse(nullptr, -EINVAL, "the context is NULL");
  if (ctx->context->forked()) {
    return refuse(ctx, -ESTALE, "this context was opened before a fork; open the store anew");
  }
  return run(ctx, std::forward<F>(body));
}

template <class F>
int guarded(kvpool_ns *ns, F &&body) noexcept {
  if (ns == nullptr) return refuse(nullptr, -EINVAL, "the namespace is NULL");
  return guarded(ns->ctx, std::forward<F>(body));
}

int options_error(std::string *why, int err, const char *text);

// Options of any size into this library's struct: absent members read as 0.
template <class T>
int read_options(const T *options, u32 known_flags, T &ret, std::string *why) {
  T out{};
  out.size = sizeof(T);
  if (options != nullptr) {
    constexpr std::size_t kSmallest = sizeof(std::size_t) + sizeof(uint32_t);
    const std::size_t given = options->size;
    if (given < kSmallest) {
      return options_error(why, -EINVAL, "options: size is not set; begin from KVPOOL_OPTS()");
    }
    const char *raw = reinterpret_cast<const char *>(options);
    for (std::size_t i = sizeof(T); i < given; ++i) {
      if (raw[i] != 0) {
        return options_error(why, -E2BIG,
                             "options: members that this library does not know are set");
      }
    }
    std::memcpy(static_cast<void *>(&out), raw, given < sizeof(T) ? given : sizeof(T));
    if (out.flags & ~known_flags) return options_error(why, -EINVAL, "options: unknown flags");
  }
  ret = out;
  return 0;
}

static_assert(sizeof(kvpool_key) == sizeof(pool::Key));
inline pool::Key key_of(const kvpool_key &key) {
  pool::Key out;
  std::memcpy(out.w, key.bytes, sizeof out.w);
  return out;
}
inline kvpool_key key_to(const pool::Key &key) {
  kvpool_key out;
  std::memcpy(out.bytes, key.w, sizeof out.bytes);
  return out;
}
// Copies, since the C type may lie at any address.
void keys_of(const kvpool_key *keys, std::size_t n, std::vector<pool::Key> &ret);

static_assert(sizeof(kvpool_ticket) == sizeof(store::TicketWire));
inline store::TicketWire wire_of(const kvpool_ticket &ticket) {
  store::TicketWire out;
  std::memcpy(out.w, ticket.opaque, sizeof out.w);
  return out;
}

// opaque: address, check hash, owner's epoch 24 | tainted at 31 | namespace at 32 | tag of the
// store's life at 48. Written in place and inlined: a look-up of many keys does nothing else
// between its loads.
inline void write_hit(const pool::Hit &hit, bool known, u16 life_tag, kvpool_hit &ret) {
  const bool found = known && hit.presence == pool::Presence::kHit;
  const bool pending = known && hit.presence == pool::Presence::kPending;
  ret = {};
  if (!known) return;
  ret.state = found ? KVPOOL_STATE_HIT : pending ? KVPOOL_STATE_PENDING : KVPOOL_STATE_MISS;
  if (found || pending) ret.entry = hit.entry;
  if (pending) ret.pending_ms = static_cast<uint32_t>(hit.pending_ms);
  if (!found) return;
  ret.version = hit.version;
  ret.bytes = hit.payload_bytes;
  ret.shards = hit.shards;
  ret.opaque[0] = hit.address;
  ret.opaque[1] = hit.check_hash;
  ret.opaque[2] = (hit.epoch & 0xFFFFFF) | u64{hit.tainted} << 31 | u64{hit.ns} << 32 |
                  u64{life_tag} << 48;
}
// False: the record was not made by a lookup that found the block in this life of this store.
bool hit_of(const kvpool_hit &hit, u16 life_tag, pool::Hit &ret);

// Appends one block's plan to the room; spans are made when all of a batch are in (vectors move).
struct PlanAt {
  std::size_t run = 0, runs = 0;
};
int add_plan(const kvpool_ctx *ctx, const kvpool_plan &plan, BatchRoom &room, PlanAt &ret,
             std::string *why);
store::MemoryPlan plan_at(const BatchRoom &room, const PlanAt &at);

// The batches behind kvpool_put_blocks, kvpool_get_blocks and prepared operations.
int put_blocks(kvpool_ns *ns, const kvpool_block *blocks, std::size_t n, u64 deadline,
               const std::atomic<bool> *cancelled, int32_t *ret_status, std::string *why);
int get_blocks(kvpool_ns *ns, const kvpool_block *blocks, std::size_t n, u64 deadline,
               const std::atomic<bool> *cancelled, int32_t *ret_status, std::string *why);

}  // namespace kvpool::api
