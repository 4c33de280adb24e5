// SPDX-License-Identifier: Apache-2.0
// A member: puts, gets, removes, pins, announces and writes in shards, on a few keys that others
// use as well, and proves every byte it reads.
#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "party.hpp"
#include "say.hpp"

namespace kvpool::torture {

using tools::deadline_in;

namespace {

class Member : public Party {
public:
  using Party::Party;

  // Until told to stop; false when the lease was lost, after which the member begins anew.
  bool run() {
    while (!over()) {
      // Half of all work on a few keys, so that members meet on them.
      const auto number = static_cast<std::uint32_t>(random_.below(2) == 0 ? random_.below(24)
                                                                           : random_.below(kKeys));
      const std::uint64_t dice = random_.below(100);
      const int result = inside([&] { return act(number, dice); });
      if (result == -ENOTCONN) {
        shared_.rejoins.fetch_add(1);
        return false;
      }
      if (!expected(result)) unexplained(fmt::format("call {} on key {}", dice, number), result);
    }
    return true;
  }

private:
  int act(std::uint32_t number, std::uint64_t dice) {
    if (dice < 60) {
      const int result = get(number);
      return result == 0 ? put(number) : result;
    }
    if (dice < 70) return put(number);
    if (dice < 78) return put_sharded(number);
    if (dice < 84) {
      const int result = kvpool_remove(ns(), &key(number), 1, deadline_in(kCallSeconds));
      if (result > 0) shared_.removes.fetch_add(1);
      return result;
    }
    if (dice < 92) return read_pinned(number);
    if (dice < 96) return kvpool_pending(ns(), &key(number), 1, 50);
    return reserve_and_forget(number);
  }

  int put(std::uint32_t number) {
    fill(number);
    const int result =
        kvpool_put(ns(), &key(number), buffer(), bytes_of(number), deadline_in(kCallSeconds));
    if (result == 1) shared_.puts.fetch_add(1);
    if (result == -ENOSPC) shared_.full.fetch_add(1);
    return result;
  }

  int get(std::uint32_t number) {
    const std::uint64_t newest = shared_.newest[number].load();
    kvpool_hit hit = {};
    const int found = kvpool_lookup(ns(), &key(number), 1, KVPOOL_LOOKUP_F_ALL,
                                    deadline_in(kCallSeconds), &hit);
    if (found < 0) return found;
    if (hit.state != KVPOOL_STATE_HIT) return 0;
    if (hit.bytes < bytes_of(number)) {
      wrong(number, fmt::format("the index says {} bytes", hit.bytes));
      return 0;
    }
    kvpool_block block = {};
    block.key = key(number);
    block.hit = &hit;
    block.plan.buf = copy();
    block.plan.bytes = bytes_of(number);
    std::int32_t status = 0;
    const int got = kvpool_get_blocks(ns(), &block, 1, deadline_in(kCallSeconds), &status);
    if (got < 0) return got;
    if (status == KVPOOL_STATUS_CORRUPT) {
      refused(number);
      return 0;
    }
    if (status != KVPOOL_STATUS_OK) {
      shared_.stale.fetch_add(1);
      return 0;
    }
    // A block that moves is read in a later version than the one looked up. Versions only rise, so
    // if the same one stands there afterwards, the bytes are of that version.
    kvpool_hit after = {};
    const int again = kvpool_lookup(ns(), &key(number), 1, KVPOOL_LOOKUP_F_ALL,
                                    deadline_in(kCallSeconds), &after);
    const bool still =
        again >= 0 && after.state == KVPOOL_STATE_HIT && after.version == hit.version;
    return judge(number, still ? hit.version : 0, newest, hit.version) ? 1 : 0;
  }

  // Pinned bytes stay, so what is read through a pin is exactly the version that was pinned.
  int read_pinned(std::uint32_t number) {
    kvpool_ticket ticket = {};
    kvpool_pin_opts opts = KVPOOL_OPTS(kvpool_pin_opts);
    opts.ttl_ms = 200;
    opts.deadline_ns = deadline_in(kCallSeconds);
    const int pinned = kvpool_pin(ns(), &key(number), 1, &opts, &ticket);
    if (pinned <= 0) return pinned;
    shared_.pins.fetch_add(1);
    kvpool_block block = {};
    block.ticket = &ticket;
    block.plan.buf = copy();
    block.plan.bytes = bytes_of(number);
    std::int32_t status = 0;
    const int got = kvpool_get_blocks(ns(), &block, 1, deadline_in(kCallSeconds), &status);
    const bool valid = kvpool_ticket_valid(ctx(), &ticket, deadline_in(kCallSeconds)) == 1;
    int result = 0;
    if (got == 1 && valid) result = judge(number, 0, 0, 0) ? 1 : 0;
    if (got >= 0 && status == KVPOOL_STATUS_CORRUPT) refused(number);
    kvpool_unpin(ctx(), &ticket, 1);
    return got < 0 ? got : result;
  }

  int put_sharded(std::uint32_t number) {
    const std::size_t bytes = bytes_of(number);
    kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
    opts.shards = bytes >= 131072 ? 2 : 1;
    opts.block_bytes = bytes;
    opts.deadline_ns = deadline_in(kCallSeconds);
    kvpool_ticket ticket = {};
    int result = kvpool_reserve(ns(), &key(number), nullptr, 1, &opts, &ticket);
    if (result < 0) return result;
    fill(number);
    kvpool_plan plan = {};
    plan.buf = buffer();
    plan.bytes = bytes;
    for (std::uint32_t shard = 0; shard < opts.shards; ++shard) {
      result = kvpool_write(ctx(), &ticket, shard, &plan, deadline_in(kCallSeconds));
      if (result >= 0) result = kvpool_shard_done(ctx(), &ticket, shard);
      if (result < 0) {
        kvpool_abort(ns(), &ticket, 1);
        return result;
      }
    }
    std::int32_t status = 0;
    result = kvpool_publish(ns(), &ticket, 1, deadline_in(kCallSeconds), &status);
    if (result == 1) shared_.sharded.fetch_add(1);
    return result;
  }

  // A reservation that is given back, or left for the owner to reclaim when this process dies.
  int reserve_and_forget(std::uint32_t number) {
    kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
    opts.block_bytes = bytes_of(number);
    opts.deadline_ns = deadline_in(kCallSeconds);
    kvpool_ticket ticket = {};
    const int result = kvpool_reserve(ns(), &key(number), nullptr, 1, &opts, &ticket);
    if (result < 0) return result;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(500)));
    return kvpool_abort(ns(), &ticket, 1);
  }
};

}  // namespace

int run_member(const std::string &address, std::uint32_t number, std::uint64_t seed,
               Shared &shared) {
  tools::stop_on_signals();
  Random lives(seed);
  while (shared.stop.load() == 0 && !tools::stop_requested()) {
    PartyOptions options;
    options.address = address;
    options.name = fmt::format("member-{}", number);
    options.seed = lives.next();
    options.writer = number;
    options.place = number;
    // Every second life reads without the store's checks: then the protocol alone must be right.
    options.verify = lives.below(2) == 0 ? KVPOOL_VERIFY_OFF : KVPOOL_VERIFY_ALWAYS;
    try {
      Member member(options, shared);
      if (member.run()) break;
    } catch (const tools::Failure &) {
      if (shared.stop.load() == 0) throw;  // else it was not worth waiting for an owner
    }
  }
  return tools::kExitFine;
}

}  // namespace kvpool::torture
