// SPDX-License-Identifier: Apache-2.0
// Prepared operations and events.
#include "api/handles.hpp"
#include "api/private.h"

using namespace kvpool;
using namespace kvpool::api;

namespace {

// Copies the batch, so that only memory it names must stay.
void copy_blocks(const kvpool_block *blocks, size_t n, kvpool_op &op) {
  size_t runs = 0;
  for (size_t i = 0; i < n; ++i) {
    if (blocks[i].plan.runs != nullptr) runs += blocks[i].plan.run_count;
  }
  op.blocks.assign(blocks, blocks + n);
  op.runs.reserve(runs);
  op.tickets.reserve(n);
  op.hits.reserve(n);
  for (kvpool_block &block : op.blocks) {
    if (block.plan.runs != nullptr) {
      const kvpool_run *copied = op.runs.data() + op.runs.size();
      op.runs.insert(op.runs.end(), block.plan.runs, block.plan.runs + block.plan.run_count);
      block.plan.runs = copied;
    }
    if (block.ticket != nullptr) block.ticket = &op.tickets.emplace_back(*block.ticket);
    if (block.hit != nullptr) block.hit = &op.hits.emplace_back(*block.hit);
  }
}

// Registered memory may not go while an operation names it.
int hold_memory(kvpool_op &op, std::string *why) {
  for (const kvpool_run &run : op.runs) {
    if (run.mem == nullptr) continue;
    if (run.mem->ctx != op.ctx) {
      return options_error(why, -EINVAL, "plan: a memory handle of another context");
    }
    auto *mem = const_cast<kvpool_mem *>(run.mem);
    if (std::ranges::find(op.used, mem) != op.used.end()) continue;
    op.used.push_back(mem);
    mem->users.fetch_add(1);
  }
  return 0;
}

// A status array of its own keeps the caller's untouched when the batch fails as a whole.
int run_batch(kvpool_op &op, u64 deadline, const std::atomic<bool> &cancelled) {
  return run(op.ctx, [&](std::string *why) {
    const size_t n = op.blocks.size();
    return op.is_put
               ? put_blocks(&op.ns, op.blocks.data(), n, deadline, &cancelled, op.status, why)
               : get_blocks(&op.ns, op.blocks.data(), n, deadline, &cancelled, op.status, why);
  });
}

int prepare(kvpool_ns *ns, const kvpool_block *blocks, size_t n, bool is_put, int32_t *status,
            kvpool_op **ret_op) {
  return guarded(ns, [&](std::string *why) {
    if (blocks == nullptr || n == 0 || ret_op == nullptr) {
      return options_error(why, -EINVAL, "prep: blocks or ret_op is missing");
    }
    if (n > store::kBatchMax) return options_error(why, -EINVAL, "prep: more than 1024 blocks");
    if (int err = ns->ctx->context->async().ready()) {
      return options_error(why, err, "prep: no worker thread can be started");
    }
    auto op = std::make_unique<kvpool_op>();
    op->ctx = ns->ctx;
    op->ns = *ns;
    op->is_put = is_put;
    op->status = status;
    copy_blocks(blocks, n, *op);
    if (int err = hold_memory(*op, why)) return err;
    op->operation = std::make_unique<store::Operation>(
        [raw = op.get()](u64 deadline, const std::atomic<bool> &cancelled) {
          return run_batch(*raw, deadline, cancelled);
        });
    kvpool_op *handle = op.get();
    ns->ctx->operations.add(std::move(op));
    *ret_op = handle;
    return 0;
  });
}

int guarded_op(kvpool_op *op, auto &&body) noexcept {
  if (op == nullptr) return refuse(nullptr, -EINVAL, "the operation is NULL");
  return guarded(op->ctx, std::forward<decltype(body)>(body));
}

kvpool_event event_to(const store::Event &e) {
  kvpool_event out{};
  out.sequence = e.sequence;
  out.epoch = e.epoch;
  out.type = static_cast<uint32_t>(e.type);
  out.reason = static_cast<uint32_t>(e.reason);
  out.ns = e.ns;
  out.version = e.version;
  out.bytes = e.bytes;
  out.count = e.count;
  out.member = e.member;
  out.key = key_to(e.key);
  return out;
}

}  // namespace

extern "C" {

int kvpool_prep_get(kvpool_ns *ns, const kvpool_block *blocks, size_t n, int32_t *status,
                    kvpool_op **ret_op) {
  return prepare(ns, blocks, n, /*is_put=*/false, status, ret_op);
}

int kvpool_prep_put(kvpool_ns *ns, const kvpool_block *blocks, size_t n, int32_t *status,
                    kvpool_op **ret_op) {
  return prepare(ns, blocks, n, /*is_put=*/true, status, ret_op);
}

int kvpool_post(kvpool_op *op, uint64_t deadline_ns, uint64_t user) {
  return guarded_op(op, [&](std::string *why) {
    const u64 deadline = store::deadline_of(deadline_ns);
    const int err = op->ctx->context->async().post(*op->operation, deadline, user);
    if (err == -EALREADY) return options_error(why, err, "post: the operation runs already");
    return err;
  });
}

int kvpool_check(kvpool_op *op) {
  return guarded_op(op, [&](std::string *why) {
    const int result = op->ctx->context->async().check(*op->operation);
    if (result == -EINPROGRESS) *why = "check: the operation runs";
    if (result == -ENODATA) *why = "check: the operation was never posted";
    if (result == -ECANCELED) *why = "check: the operation was cancelled";
    if (result < 0 && why->empty()) {
      *why = std::string("check: the operation ended with: ") + std::strerror(-result);
    }
    return result;
  });
}

int kvpool_cancel(kvpool_op *op) {
  return guarded_op(op, [&](std::string *) {
    return op->ctx->context->async().cancel(*op->operation);
  });
}

int kvpool_poll(kvpool_ctx *ctx, size_t max, uint64_t deadline_ns,
                kvpool_completion *ret_completions) {
  return guarded(ctx, [&](std::string *why) {
    if (max == 0 || ret_completions == nullptr) {
      return options_error(why, -EINVAL, "poll: max or ret_completions is missing");
    }
    constexpr size_t kStep = 64;
    store::Async::Completion done[kStep];
    const u64 deadline = store::deadline_of(deadline_ns);
    const u32 n =
        ctx->context->async().poll(static_cast<u32>(std::min(max, kStep)), deadline, done);
    for (u32 i = 0; i < n; ++i) {
      kvpool_op *op = nullptr;
      ctx->operations.each([&](kvpool_op *candidate) {
        if (candidate->operation.get() == done[i].op) op = candidate;
      });
      ret_completions[i] = {op, done[i].user, done[i].result, 0};
    }
    return static_cast<int>(n);
  });
}

int kvpool_event_fd(kvpool_ctx *ctx) {
  return guarded(ctx, [&](std::string *) { return ctx->context->async().event_fd(); });
}

void kvpool_op_free(kvpool_op *op) {
  if (op == nullptr) return;
  kvpool_ctx *ctx = op->ctx;
  if (!ctx->context->forked()) ctx->context->async().forget(*op->operation);
  ctx->operations.take(op);
}

int kvpool_events_open(kvpool_ctx *ctx, const kvpool_events_opts *opts,
                       kvpool_events **ret_events) {
  return guarded(ctx, [&](std::string *why) {
    kvpool_events_opts o;
    if (int err = read_options(opts, 0, o, why)) return err;
    if (o.reserved != 0 || ret_events == nullptr) {
      return options_error(why, -EINVAL, "events: reserved is not 0, or ret_events is NULL");
    }
    auto events = std::make_unique<kvpool_events>();
    events->ctx = ctx;
    if (int err = ctx->context->open_events(o.from_sequence, events->reader, why)) return err;
    kvpool_events *handle = events.get();
    ctx->readers.add(std::move(events));
    *ret_events = handle;
    return 0;
  });
}

int kvpool_events_next(kvpool_events *events, size_t max, uint64_t deadline_ns,
                       kvpool_event *ret_events) {
  if (events == nullptr) return refuse(nullptr, -EINVAL, "the reader of events is NULL");
  return guarded(events->ctx, [&](std::string *why) {
    if (max == 0 || ret_events == nullptr) {
      return options_error(why, -EINVAL, "events: max or ret_events is missing");
    }
    constexpr size_t kStep = 64;
    store::Event some[kStep];
    const int n = events->ctx->context->next_events(
        events->reader, static_cast<u32>(std::min(max, kStep)), store::deadline_of(deadline_ns),
        some, why);
    for (int i = 0; i < n; ++i) ret_events[i] = event_to(some[i]);
    return n;
  });
}

void kvpool_events_close(kvpool_events *events) {
  if (events != nullptr) events->ctx->readers.take(events);
}

int kvpool_private_locate(kvpool_ns *ns, const kvpool_key *key, kvpool_private_place *ret_place) {
  return guarded(ns, [&](std::string *why) {
    if (key == nullptr || ret_place == nullptr) {
      return options_error(why, -EINVAL, "locate: an argument is NULL");
    }
    const pool::Key wanted = key_of(*key);
    pool::Hit hit;
    if (int err = store::lookup_prefix(*ns->ns, &wanted, 1, true, &hit, nullptr); err < 0) {
      return ns->ctx->context->explain(err, why);
    }
    if (hit.presence != pool::Presence::kHit) return options_error(why, -ENOENT, "no such block");
    const PoolOffset at = ns->ctx->context->member().session()->regions.data_at(hit.address);
    *ret_place = {at.device(), 0, at.byte(), hit.payload_bytes, hit.version, hit.entry};
    return 0;
  });
}

}  // extern "C"
