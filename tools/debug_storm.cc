// SPDX-License-Identifier: Apache-2.0
// kvpool debug storm: threads of one member that store, read and remove blocks whose every word
// says which block it is, in a namespace that proves nothing on reads. Whatever is done to the
// process meanwhile (tests/qemu revokes it), no read may give other words. Serves the store itself.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

constexpr std::size_t kWords = 16384;  // of a block: 128 KiB
constexpr std::uint32_t kKeys = 48;
constexpr int kThreads = 3;

std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

struct Counts {
  std::atomic<std::uint64_t> puts{0}, hits{0}, misses{0}, removed{0}, wrong{0}, later{0};
  std::array<std::atomic<std::uint64_t>, 256> other{};  // by errno, which nothing explains
};

// What a member is told while it is without its memory, or without an owner.
bool comes_later(int result) {
  return result == -ENOTCONN || result == -EAGAIN || result == -ETIMEDOUT || result == -ENOSPC;
}

class Thread {
public:
  Thread(kvpool_ns *ns, Counts &counts, std::uint64_t seed)
      : ns_(ns), counts_(counts), state_(seed), block_(kWords) {}

  void step() {
    const auto number = static_cast<std::uint32_t>(random() % kKeys);
    kvpool_key key = {};
    kvpool_key_wrap(ns_, &number, sizeof number, &key);
    const std::uint64_t what = random() % 8;
    if (what == 0) return remove(key);
    if (what < 3) return put(key, number);
    get(key, number);
  }

private:
  std::uint64_t random() { return mixed(state_ += 0x9E3779B97F4A7C15ull); }
  void *bytes() { return block_.data(); }
  static constexpr std::uint64_t kBytes = kWords * sizeof(std::uint64_t);

  void count(int result) {
    if (comes_later(result)) {
      ++counts_.later;
      usleep(2000);
    } else {
      ++counts_.other[static_cast<std::size_t>(-result) % counts_.other.size()];
    }
  }

  void put(const kvpool_key &key, std::uint32_t number) {
    block_[0] = number;
    block_[1] = random();
    for (std::size_t i = 2; i < kWords; ++i) block_[i] = mixed(block_[1] + number + i);
    const int result = kvpool_put(ns_, &key, bytes(), kBytes, deadline_in(2));
    if (result < 0) return count(result);
    ++counts_.puts;
  }

  void get(const kvpool_key &key, std::uint32_t number) {
    std::memset(bytes(), 0xee, kBytes);
    const int result = kvpool_get(ns_, &key, bytes(), kBytes, deadline_in(2));
    if (result < 0) return count(result);
    if (result == 0) {
      ++counts_.misses;
      return;
    }
    bool right = block_[0] == number;
    for (std::size_t i = 2; i < kWords; ++i) {
      right = right && block_[i] == mixed(block_[1] + number + i);
    }
    ++(right ? counts_.hits : counts_.wrong);
  }

  void remove(const kvpool_key &key) {
    const int result = kvpool_remove(ns_, &key, 1, deadline_in(2));
    if (result < 0 && result != -ENOENT) return count(result);
    ++counts_.removed;
  }

  kvpool_ns *ns_;
  Counts &counts_;
  std::uint64_t state_;
  std::vector<std::uint64_t> block_;
};

kvpool_ns *unproven_namespace(kvpool_ctx *ctx, const std::string &address) {
  kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
  opts.model = "storm";
  opts.dtype = "u64";
  opts.verify = KVPOOL_VERIFY_OFF;
  kvpool_ns *ns = nullptr;
  checked(kvpool_ns_open(ctx, "storm", &opts, &ns), ctx, address);
  return ns;
}

}  // namespace

int storm(const Args &args) {
  const std::string address = args.text("ADDRESS");
  kvpool_open_opts open = KVPOOL_OPTS(kvpool_open_opts);
  open.name = "storm";
  open.owner = KVPOOL_OWNER_EMBEDDED;
  kvpool_ctx *opened = nullptr;
  checked(kvpool_open(address.c_str(), &open, &opened), nullptr, address);
  const Context ctx(opened);
  const Namespace ns(unproven_namespace(opened, address));
  Counts counts;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Thread thread(ns.get(), counts, args.number("--seed", 1) * kThreads + i);
      while (!over.load()) thread.step();
    });
  }
  std::printf("ready\n");
  std::fflush(stdout);
  const std::uint64_t until = deadline_in(args.real("--seconds", 10));
  while (now_ns() < until) usleep(10'000);
  over = true;
  for (std::thread &thread : threads) thread.join();
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  kvpool_stats_read(opened, &stats);
  Json other = Json::object();
  for (std::size_t i = 0; i < counts.other.size(); ++i) {
    if (counts.other[i] != 0) other[std::to_string(i)] = counts.other[i].load();
  }
  print_plain_json({{"puts", counts.puts.load()},
                    {"hits", counts.hits.load()},
                    {"misses", counts.misses.load()},
                    {"removed", counts.removed.load()},
                    {"later", counts.later.load()},
                    {"wrong", counts.wrong.load()},
                    {"other", other},
                    {"rejoins", stats.rejoins}});
  return counts.wrong == 0 && other.empty() ? kExitFine : kExitDamaged;
}

}  // namespace kvpool::tools
