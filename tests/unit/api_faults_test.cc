// SPDX-License-Identifier: Apache-2.0
// Shows: a call that runs out of memory fails as a whole, leaves its outputs alone and leaks
// nothing; lookup and get allocate nothing at all.
// How: this program's allocation functions are its own, and fail the n-th allocation of this
// thread, for n = 1, 2, ... until the call gets by without one failing.
#include <cstdlib>
#include <new>

#include "api_fixture.hpp"

using namespace api_test;

// Both sides of the pair are ours: what operator new takes from malloc goes back to free.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {

constinit thread_local int fail_in = 0;     // 0: never
constinit thread_local long allocations = 0;
constinit thread_local long live = 0;       // made less given back, by operator new in this thread

bool denied() {
  ++allocations;
  return fail_in > 0 && --fail_in == 0;
}

void *take(std::size_t size) {
  if (denied()) return nullptr;
  void *p = std::malloc(size == 0 ? 1 : size);
  if (p != nullptr) ++live;
  return p;
}
void give(void *p) {
  if (p != nullptr) --live;
  std::free(p);
}

}  // namespace

void *operator new(std::size_t size) {
  void *p = take(size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void *operator new[](std::size_t size) { return operator new(size); }
void *operator new(std::size_t size, const std::nothrow_t &) noexcept { return take(size); }
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept { return take(size); }
void *operator new(std::size_t size, std::align_val_t align) {
  if (denied()) throw std::bad_alloc();
  void *p =
      std::aligned_alloc(static_cast<std::size_t>(align),
                         (size + static_cast<std::size_t>(align) - 1) /
                             static_cast<std::size_t>(align) * static_cast<std::size_t>(align));
  if (p == nullptr) throw std::bad_alloc();
  ++live;
  return p;
}
void operator delete(void *p) noexcept { give(p); }
void operator delete[](void *p) noexcept { give(p); }
void operator delete(void *p, std::size_t) noexcept { give(p); }
void operator delete[](void *p, std::size_t) noexcept { give(p); }
void operator delete(void *p, std::align_val_t) noexcept { give(p); }
void operator delete(void *p, std::size_t, std::align_val_t) noexcept { give(p); }

namespace {

// Runs `call` with the n-th allocation failing, n = 1, 2, ..., until none fails. `output` must hold
// the same bytes after a failed call; `undo` takes back what a successful one made.
template <class Out, class Call, class Undo>
void sweep(const char *name, Out &output, Call &&call, Undo &&undo) {
  Out before;
  std::memcpy(static_cast<void *>(&before), &output, sizeof before);
  call();  // grows what grows once: batch rooms, queues, statics
  undo();
  std::memcpy(static_cast<void *>(&output), &before, sizeof before);
  for (int n = 1; n < 2000; ++n) {
    const long live_before = live;
    fail_in = n;
    const int result = call();
    const bool failed = fail_in == 0;
    fail_in = 0;
    if (!failed) {
      cr_assert_geq(result, 0, "%s: no allocation failed, and yet %d", name, result);
      undo();
      return;
    }
    if (result < 0) {
      cr_expect_eq(result, -ENOMEM, "%s: allocation %d gave %d", name, n, result);
      cr_expect_eq(std::memcmp(&output, &before, sizeof before), 0, "%s: output written", name);
      // Queues may keep a node they grew by; what leaks grows with every failure.
      constexpr int kAgain = 8;
      for (int i = 0; i < kAgain; ++i) {
        fail_in = n;
        if (call() >= 0) undo();
      }
      fail_in = 0;
      cr_expect_lt(live - live_before, kAgain, "%s: allocation %d leaks %ld in %d calls", name, n,
                   live - live_before, kAgain + 1);
    } else {
      undo();  // a smaller way was found without the memory
      std::memcpy(static_cast<void *>(&output), &before, sizeof before);
    }
  }
  cr_assert_fail("%s: never gets by", name);
}

void nothing() {}

}  // namespace

Test(api_faults, format_and_open, .timeout = 200) {
  Pool pool("fopen");
  Ctx owner(pool);
  kvpool_ctx *ctx = nullptr;
  sweep("open", ctx, [&] { return kvpool_open(pool.address(), nullptr, &ctx); },
        [&] {
          kvpool_close(ctx);
          ctx = nullptr;
        });
  int unused = 0;
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.flags = KVPOOL_FORMAT_F_DRY_RUN;
  sweep("format", unused, [&] { return kvpool_format("mem:unit-dry?size=64MiB", &opts); }, nothing);
}

Test(api_faults, namespaces_and_keys, .timeout = 200) {
  Pool pool("fns");
  Ctx ctx(pool);
  kvpool_ns_opts opts = ns_opts();
  kvpool_ns *ns = nullptr;
  sweep("ns_open", ns, [&] { return kvpool_ns_open(ctx, "faulty", &opts, &ns); },
        [&] {
          kvpool_ns_close(ns);
          ns = nullptr;
        });
  ns = open_ns(ctx, "faulty");
  uint32_t tokens[64] = {};
  kvpool_key keys[4] = {};
  sweep(
      "key_chain", keys, [&] { return kvpool_key_chain(ns, nullptr, tokens, 64, 4, keys); },
      nothing);
  sweep("key_wrap", keys, [&] { return kvpool_key_wrap(ns, "k", 1, keys); }, nothing);
  kvpool_ns_info infos[4] = {};
  sweep("ns_list", infos, [&] { return kvpool_ns_list(ctx, 4, infos); }, nothing);
  sweep("ns_stat", infos, [&] { return kvpool_ns_stat(ns, infos); }, nothing);
  kvpool_mem *mem = nullptr;
  sweep("mem_register", mem, [&] { return kvpool_mem_register(ctx, tokens, 256, nullptr, &mem); },
        [&] {
          kvpool_mem_unregister(mem);
          mem = nullptr;
        });
}

Test(api_faults, data, .timeout = 200) {
  Pool pool("fdata");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  uint64_t next = 0;
  int32_t status[2] = {-7, -7};
  auto out = bytes_of(1, 4096);
  std::vector<uint8_t> in(4096);
  kvpool_block blocks[2] = {};
  auto set = [&](std::vector<uint8_t> &bytes) {
    for (kvpool_block &b : blocks) {
      b.plan.buf = bytes.data();
      b.plan.bytes = bytes.size();
    }
  };
  set(out);
  for (kvpool_block &b : blocks) b.key = key_of(ns, ++next);
  sweep("put_blocks", status, [&] { return kvpool_put_blocks(ns, blocks, 2, 0, status); }, nothing);
  set(in);
  sweep("get_blocks", status, [&] { return kvpool_get_blocks(ns, blocks, 2, 0, status); }, nothing);
  kvpool_hit hits[2] = {};
  const kvpool_key keys[2] = {blocks[0].key, blocks[1].key};
  sweep("lookup", hits, [&] { return kvpool_lookup(ns, keys, 2, 0, 0, hits); }, nothing);
  kvpool_ticket tickets[2] = {};
  sweep("pin", tickets, [&] { return kvpool_pin(ns, keys, 2, nullptr, tickets); },
        [&] { kvpool_unpin(ctx, tickets, 2); });
  kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
  opts.block_bytes = 4096;
  sweep("reserve", tickets, [&] { return kvpool_reserve(ns, keys, nullptr, 2, &opts, tickets); },
        [&] { kvpool_abort(ns, tickets, 2); });
  kvpool_op *op = nullptr;
  sweep("prep_get", op, [&] { return kvpool_prep_get(ns, blocks, 2, nullptr, &op); },
        [&] {
          kvpool_op_free(op);
          op = nullptr;
        });
  kvpool_events *events = nullptr;
  sweep("events_open", events, [&] { return kvpool_events_open(ctx, nullptr, &events); },
        [&] {
          kvpool_events_close(events);
          events = nullptr;
        });
  // Nothing of all this is left behind in the store.
  cr_expect_eq(kvpool_lookup(ns, keys, 2, 0, 0, nullptr), 2);
}

// What fails after blocks were reserved would keep them for ever: nobody has their tickets.
Test(api_faults, reservations_that_fail_reserve_nothing, .timeout = 100) {
  Pool pool("freserve");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  constexpr size_t kBlocks = 8;
  std::vector<kvpool_key> keys;
  for (size_t i = 0; i < kBlocks; ++i) keys.push_back(key_of(ns, i));
  kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
  opts.block_bytes = 1 << 20;
  kvpool_ticket tickets[kBlocks];
  auto reserve = [&] {
    opts.deadline_ns = in_ms(5000);
    return kvpool_reserve(ns, keys.data(), nullptr, kBlocks, &opts, tickets);
  };
  for (int n = 1; n < 30; ++n) {
    for (int i = 0; i < 4; ++i) {
      fail_in = n;
      const int result = reserve();
      fail_in = 0;
      if (result > 0) kvpool_abort(ns, tickets, kBlocks);
    }
  }
  cr_expect_eq(reserve(), kBlocks, "%s", kvpool_strerror_detail(ctx));
}

Test(api_faults, lookup_get_and_put_allocate_nothing, .timeout = 60) {
  Pool pool("noalloc");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  constexpr size_t kBlocks = 128;
  auto out = bytes_of(1, 16384);
  std::vector<uint8_t> in(out.size());
  std::vector<kvpool_key> keys(kBlocks);
  std::vector<kvpool_hit> hits(kBlocks);
  std::vector<kvpool_block> blocks(kBlocks);
  std::vector<int32_t> status(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    keys[i] = blocks[i].key = key_of(ns, i);
    blocks[i].plan.buf = in.data();
    blocks[i].plan.bytes = in.size();
    cr_assert_eq(kvpool_put(ns, &keys[i], out.data(), out.size(), 0), 1);
  }
  const kvpool_key absent = key_of(ns, kBlocks);
  const long before = allocations;
  cr_assert_eq(kvpool_lookup(ns, keys.data(), kBlocks, 0, 0, hits.data()), kBlocks);
  cr_expect_eq(allocations, before, "lookup allocated %ld times", allocations - before);
  cr_assert_eq(kvpool_get_blocks(ns, blocks.data(), kBlocks, 0, status.data()), kBlocks);
  cr_expect_eq(allocations, before, "get_blocks allocated %ld times", allocations - before);
  cr_assert_eq(kvpool_get(ns, &keys[5], in.data(), in.size(), 0), 1);
  cr_expect_eq(allocations, before, "get allocated");
  cr_assert_eq(kvpool_put(ns, &absent, out.data(), out.size(), 0), 1);
  cr_expect_eq(allocations, before, "put allocated");
}
