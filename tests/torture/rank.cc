// SPDX-License-Identifier: Apache-2.0
// A group that writes in shards: rank 0 reserves a block and offers its ticket on the shared page;
// every rank writes its shard; rank 0 publishes when all are done. Any of them may be killed or
// stopped at any moment. Rank 0 gives a reservation back only when no rank can be writing for it
// any more, as an engine must.
#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "party.hpp"
#include "say.hpp"

namespace kvpool::torture {

using tools::deadline_in;
using tools::now_ns;

namespace {

constexpr double kPatienceSeconds = 1.5;  // for the other ranks' shards, before rank 0 gives up
constexpr std::uint64_t kEngine = 77;

class Rank : public Party {
public:
  Rank(const PartyOptions &options, Shared &shared)
      : Party(options, shared), rank_(options.rank), world_(options.world) {}

  void run() {
    // Whatever was offered before is of another life: nothing of it is touched any more.
    std::uint64_t last = shared_.group.offer.load() & ~std::uint64_t{1};
    shared_.group.over[rank_].store(last);
    while (!over()) {
      const int result = inside([&] { return rank_ == 0 ? lead() : follow(last); });
      if (result == -ENOTCONN) {  // this rank lost its lease, or the one that reserved did
        shared_.rejoins.fetch_add(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      } else if (!expected(result)) {
        unexplained(fmt::format("offer {}", last), result);
      }
    }
  }

private:
  // Large enough to be worth sharing. Only the largest blocks can be cut into any number of shards.
  static std::uint32_t some_key(Random &random, std::uint32_t world) {
    const std::size_t least = world > 2 ? kBytesMax : 131072;
    for (;;) {
      const auto key = static_cast<std::uint32_t>(random.below(kKeys));
      if (bytes_of(key) >= least) return key;
    }
  }

  int lead() {
    const std::uint32_t number = some_key(random_, world_);
    const std::uint64_t rejoins_before = rejoins();
    kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
    opts.shards = world_;
    opts.block_bytes = bytes_of(number);
    opts.deadline_ns = deadline_in(kCallSeconds);
    kvpool_ticket ticket = {};
    int result = kvpool_reserve(ns(), &key(number), nullptr, 1, &opts, &ticket);
    if (result < 0) return result;
    const std::uint64_t offer = post(ticket, number);
    result = write_shard(ticket, number);
    const Group &group = shared_.group;
    const bool whole = result >= 0 && all(group.written, offer, kPatienceSeconds);
    if (whole) {
      std::int32_t status = 0;
      result = kvpool_publish(ns(), &ticket, 1, deadline_in(kCallSeconds), &status);
      if (result == 1) shared_.group_puts.fetch_add(1);
      // What it reserved went with its lease, and it is another member now.
      if (result == -EACCES && rejoins() != rejoins_before) result = -ENOTCONN;
    }
    // No new offer, and no giving back, while somebody may write for this one.
    while (!all(group.over, offer, kPatienceSeconds) && !over()) breathe();
    if (!whole && all(group.over, offer, 0)) kvpool_abort(ns(), &ticket, 1);
    return result;
  }

  // Offers a reservation, filled anew, to the other ranks.
  std::uint64_t post(const kvpool_ticket &ticket, std::uint32_t number) {
    Group &group = shared_.group;
    const std::uint64_t nonce = fill(number);
    const std::uint64_t offer = (group.offer.load() | 1) + 1;
    group.offer.store(offer - 1);
    for (std::size_t i = 0; i < 8; ++i) group.ticket[i].store(ticket.opaque[i]);
    group.nonce.store(nonce);
    group.key.store(number);
    group.offer.store(offer);
    return offer;
  }

  int follow(std::uint64_t &last) {
    Group &group = shared_.group;
    const std::uint64_t offer = group.offer.load();
    if (offer == last || (offer & 1) != 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      return 0;
    }
    kvpool_ticket ticket = {};
    for (std::size_t i = 0; i < 8; ++i) ticket.opaque[i] = group.ticket[i].load();
    const std::uint64_t nonce = group.nonce.load();
    const std::uint32_t number = group.key.load();
    if (group.offer.load() != offer) return 0;  // overtaken while it was read
    last = offer;
    fill_with(number, nonce, 0);
    const int result = write_shard(ticket, number);
    if (result >= 0) group.written[rank_].store(offer);
    group.over[rank_].store(offer);
    return result;
  }

  int write_shard(const kvpool_ticket &ticket, std::uint32_t number) {
    kvpool_plan plan = {};
    plan.buf = buffer();
    plan.bytes = bytes_of(number);
    const int result = kvpool_write(ctx(), &ticket, rank_, &plan, deadline_in(kCallSeconds));
    if (result < 0) return result;
    return kvpool_shard_done(ctx(), &ticket, rank_);
  }

  // Whether every other rank came to `offer` within so many seconds.
  bool all(const std::atomic<std::uint64_t> *places, std::uint64_t offer, double seconds) {
    const std::uint64_t until = deadline_in(seconds);
    for (;;) {
      bool there = true;
      for (std::uint32_t r = 1; r < world_; ++r) there = there && places[r].load() >= offer;
      if (there) return true;
      if (now_ns() >= until || over()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::uint32_t rank_;
  std::uint32_t world_;
};

}  // namespace

int run_rank(const std::string &address, std::uint32_t rank, std::uint32_t world,
             std::uint32_t place, std::uint64_t seed, Shared &shared) {
  tools::stop_on_signals();
  PartyOptions options;
  options.address = address;
  options.name = fmt::format("rank-{}", rank);
  options.seed = seed;
  options.engine = kEngine;
  options.rank = rank;
  options.world = world;
  options.place = place;
  try {
    Rank(options, shared).run();
  } catch (const tools::Failure &) {
    if (shared.stop.load() == 0) throw;  // else it was not worth waiting for an owner
  }
  return tools::kExitFine;
}

}  // namespace kvpool::torture
