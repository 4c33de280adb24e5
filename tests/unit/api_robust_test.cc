// SPDX-License-Identifier: Apache-2.0
// Shows: records of other stores, blocks that cannot fit, owners that are not there, host ids used
// twice, callbacks that throw, signals from outside and stores of a newer minor format get the
// answer that the header promises, and nothing crashes or waits for ever.
// How: contexts in this process; lines of the store's memory changed behind their backs.
#include <fcntl.h>

#include <atomic>
#include <csignal>
#include <new>
#include <thread>

#include "api_fixture.hpp"
#include "media/seal.hpp"
#include "media/superblock.hpp"

using namespace api_test;

namespace {

using kvpool::PoolOffset;
namespace media = kvpool::media;

// The memory of a one-device store, as another program could see it.
class Memory {
public:
  explicit Memory(const char *tag) {
    const std::string name = "/kvpool-unit-" + std::string(tag) + "-" + std::to_string(getpid());
    const int fd = shm_open((name + ".0").c_str(), O_RDWR, 0);
    cr_assert_geq(fd, 0);
    base_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(base_, MAP_FAILED);
    close(fd);
    const media::MappedReader::Device device{base_, kBytes};
    media::MappedReader reader(&device, 1);
    media::SuperblockRead superblock;
    cr_assert_eq(media::read_superblock(reader, superblock, nullptr), 0);
    geo = superblock.geometry;
  }
  ~Memory() { munmap(base_, kBytes); }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  kvpool::Line get(PoolOffset at) const {
    kvpool::Line line;
    std::memcpy(&line, static_cast<const char *>(base_) + at.byte(), sizeof line);
    return line;
  }
  void set(PoolOffset at, const kvpool::Line &line) {
    std::memcpy(static_cast<char *>(base_) + at.byte(), &line, sizeof line);
  }

  media::Geometry geo;

private:
  static constexpr size_t kBytes = 64 << 20;
  void *base_ = nullptr;
};

kvpool_block block_of(kvpool_ns *ns, uint64_t n, std::vector<uint8_t> &bytes) {
  kvpool_block block{};
  block.key = key_of(ns, n);
  block.plan.buf = bytes.data();
  block.plan.bytes = bytes.size();
  return block;
}

}  // namespace

// Guards: whose link gave no readable superblock any more was told that the store was formatted
// anew, and stayed dead when it could be read again.
Test(api_robust, unreadable_superblock_is_no_other_life, .timeout = 60) {
  Pool pool("dark");
  Ctx ctx(pool), reader(pool, false);
  Memory memory("dark");
  kvpool_ns *ns = open_ns(ctx);
  const auto out = bytes_of(1, 8192);
  const kvpool_key key = key_of(ns, 1);
  kvpool_events *events = nullptr;
  cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  cr_assert_eq(kvpool_events_open(reader, nullptr, &events), 0);
  const PoolOffset at[2] = {memory.geo.identity_at(0), memory.geo.identity_at(1)};
  const kvpool::Line whole[2] = {memory.get(at[0]), memory.get(at[1])};
  const kvpool::Line ones{{~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull}};
  memory.set(at[0], ones);
  memory.set(at[1], ones);
  kvpool_event event;
  cr_expect_eq(kvpool_events_next(events, 1, in_ms(1000), &event), -EIO);
  cr_expect(std::strstr(kvpool_strerror_detail(reader), "superblock cannot be read") != nullptr,
            "%s", kvpool_strerror_detail(reader));
  int put = 0;
  for (const uint64_t end = in_ms(10'000); put != -EIO && now_ns() < end; usleep(1000)) {
    put = kvpool_put(ns, &key, out.data(), out.size(), in_ms(100));
  }
  cr_expect_eq(put, -EIO, "%d: %s", put, kvpool_strerror_detail(ctx));
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "formatted anew") == nullptr, "%s",
            kvpool_strerror_detail(ctx));
  usleep(300'000);  // the keepers see it, too
  memory.set(at[0], whole[0]);
  memory.set(at[1], whole[1]);
  for (const uint64_t end = in_ms(20'000); put < 0 && now_ns() < end; usleep(1000)) {
    put = kvpool_put(ns, &key, out.data(), out.size(), in_ms(1000));
  }
  cr_expect_geq(put, 0, "%d: %s", put, kvpool_strerror_detail(ctx));
  kvpool_events_close(events);
}

Test(api_robust, records_of_look_ups_are_not_believed, .timeout = 60) {
  Pool pool("wild"), other("wild2");
  Ctx ctx(pool), elsewhere(other);
  kvpool_ns *ns = open_ns(ctx), *there = open_ns(elsewhere);
  const auto out = bytes_of(1, 8192);
  std::vector<uint8_t> in(out.size());
  kvpool_block block = block_of(ns, 1, in);
  cr_assert_eq(kvpool_put(ns, &block.key, out.data(), out.size(), 0), 1);
  kvpool_hit good;
  cr_assert_eq(kvpool_lookup(ns, &block.key, 1, 0, 0, &good), 1);
  auto read_by = [&](const kvpool_hit &hit, const char *what) {
    std::fill(in.begin(), in.end(), 0);
    block.hit = &hit;
    int32_t status = -1;
    cr_expect_eq(kvpool_get_blocks(ns, &block, 1, 0, &status), 1, "%s", what);
    cr_expect_eq(status, KVPOOL_STATUS_OK, "%s", what);
    cr_expect(in == out, "%s", what);
    cr_expect_eq(kvpool_touch(ns, &hit, 1), 0, "%s", what);
  };
  read_by(good, "as found");
  kvpool_hit bad = good;
  bad.entry = 0xF0000000u;
  read_by(bad, "an entry that the store has not");
  bad.entry = good.entry + (uint64_t{1} << 32);
  read_by(bad, "an entry beyond 32 bits");
  bad = good;
  bad.opaque[0] += 64;
  read_by(bad, "an address where no block can stand");
  bad = good;
  bad.opaque[2] ^= 5;
  read_by(bad, "another epoch");
  bad = good;
  bad.version += 1;
  read_by(bad, "another version");
  // Of another store: there is no such block here, whatever stands at that place.
  kvpool_block foreign = block_of(there, 1, in);
  foreign.hit = &good;
  int32_t status = -1;
  cr_expect_eq(kvpool_get_blocks(there, &foreign, 1, 0, &status), 0);
  cr_expect_eq(status, KVPOOL_STATUS_MISS);
}

Test(api_robust, blocks_larger_than_the_store, .timeout = 60) {
  Pool pool("large");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  const kvpool_key key = key_of(ns, 1);
  std::vector<uint8_t> bytes(uint64_t{128} << 20);
  cr_expect_eq(kvpool_put(ns, &key, bytes.data(), bytes.size(), in_ms(2000)), -EMSGSIZE);
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "larger than this store") != nullptr, "%s",
            kvpool_strerror_detail(ctx));
  kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
  opts.block_bytes = bytes.size();
  opts.deadline_ns = in_ms(2000);
  kvpool_ticket ticket;
  cr_expect_eq(kvpool_reserve(ns, &key, nullptr, 1, &opts, &ticket), -EMSGSIZE);
}

// What is asked of an owner that is gone ends when its caller does not want it any more.
Test(api_robust, close_and_cancel_do_not_wait_for_deadlines, .timeout = 90) {
  for (const bool cancel : {true, false}) {
    Pool pool(cancel ? "nowait1" : "nowait2");
    kvpool_ctx *ctx = nullptr, *owner = nullptr;
    cr_assert_eq(kvpool_open(pool.address(), nullptr, &ctx), 0);
    cr_assert_eq(kvpool_open(pool.address(), nullptr, &owner), 0);
    std::thread server([&] { kvpool_serve(owner, nullptr); });
    cr_assert_eq(kvpool_owner_wait(ctx, in_ms(20000)), 1);
    kvpool_ns *ns = open_ns(ctx);
    std::vector<uint8_t> bytes = bytes_of(1, 65536);
    std::vector<kvpool_block> blocks;
    for (uint64_t i = 0; i < 40; ++i) blocks.push_back(block_of(ns, i, bytes));
    cr_assert_eq(kvpool_put(ns, &blocks[0].key, bytes.data(), bytes.size(), 0), 1);
    kvpool_serve_stop(owner);
    server.join();
    kvpool_close(owner);
    kvpool_op *op = nullptr;
    cr_assert_eq(kvpool_prep_put(ns, blocks.data(), blocks.size(), nullptr, &op), 0);
    cr_assert_eq(kvpool_post(op, in_ms(20000), 1), 0);
    usleep(200000);
    cr_expect_eq(kvpool_check(op), -EINPROGRESS);
    const uint64_t start = now_ns();
    if (cancel) {
      cr_expect_eq(kvpool_cancel(op), 1);
      cr_expect_eq(kvpool_check(op), -ECANCELED);
    }
    kvpool_close(ctx);
    cr_expect_lt(now_ns() - start, 2'000'000'000, "it took %lu ms", (now_ns() - start) / 1000000);
  }
}

Test(api_robust, a_ticket_is_published_by_one_thread, .timeout = 90) {
  Pool pool("tworace");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  std::vector<uint8_t> bytes = bytes_of(1, 4096);
  kvpool_plan plan{};
  plan.buf = bytes.data();
  plan.bytes = bytes.size();
  kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
  opts.block_bytes = bytes.size();
  for (uint64_t round = 0; round < 300; ++round) {
    const kvpool_key key = key_of(ns, round);
    kvpool_ticket ticket;
    cr_assert_eq(kvpool_reserve(ns, &key, nullptr, 1, &opts, &ticket), 1);
    cr_assert_eq(kvpool_write(ctx, &ticket, 0, &plan, 0), 0);
    std::atomic<int> waiting{2};
    int result[2];
    auto publish = [&](int i) {
      --waiting;
      while (waiting > 0) {
      }
      result[i] = kvpool_publish(ns, &ticket, 1, 0, nullptr);
    };
    std::thread other([&] { publish(1); });
    publish(0);
    other.join();
    const bool one = (result[0] == 1 && result[1] == -EKEYEXPIRED) ||
                     (result[1] == 1 && result[0] == -EKEYEXPIRED);
    cr_assert(one, "round %lu: %d and %d", round, result[0], result[1]);
  }
}

// proto 6: a host id used twice is fatal, also when it is noticed late.
Test(api_robust, a_host_id_used_twice_ends_the_member, .timeout = 90) {
  Pool pool("twice");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  const auto out = bytes_of(1, 4096);
  usleep(300000);  // the keeper writes the host's line at its first beat
  Memory memory("twice");
  const PoolOffset at = memory.geo.host_at(0);
  auto line = media::from_line<media::HostLine>(memory.get(at));
  cr_assert_neq(line.incarnation, 0);
  line.incarnation ^= 0x55;
  line.boot_id[0] ^= 1;
  memory.set(at, media::Sealer(memory.geo.uuid, memory.geo.nonce).sealed(line, at, 0));
  int result = 1;
  for (uint64_t i = 0; i < 300 && result == 1; ++i) {
    const kvpool_key key = key_of(ns, i);
    result = kvpool_put(ns, &key, out.data(), out.size(), in_ms(5000));
    usleep(10000);
  }
  cr_expect_eq(result, -EADDRINUSE, "%d: %s", result, kvpool_strerror_detail(ctx));
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "host=") != nullptr);
  usleep(300000);
  const kvpool_key key = key_of(ns, 1000);
  cr_expect_eq(kvpool_put(ns, &key, out.data(), out.size(), in_ms(500)), -EADDRINUSE);
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  cr_assert_eq(kvpool_stats_read(ctx, &stats), 0);
  cr_expect_eq(stats.rejoins, 0, "it joined anew");
  cr_expect_eq(kvpool_owner_wait(ctx, in_ms(1)), 0, "it still decides for the store");
}

namespace {

std::atomic<int> throws{0};
void throwing_log(void *, kvpool_log_level, const char *text) {
  if (std::strstr(text, "serving as owner") != nullptr && throws > 0 && throws-- > 0) {
    throw std::bad_alloc();
  }
}

}  // namespace

Test(api_robust, exceptions_while_serving_leave_nothing_behind, .timeout = 60) {
  Pool pool("throws");
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.log = throwing_log;
  opts.log_level = KVPOOL_LOG_DEBUG;
  kvpool_ctx *ctx = nullptr;
  cr_assert_eq(kvpool_open(pool.address(), &opts, &ctx), 0);
  throws = 1;
  cr_expect_eq(kvpool_serve(ctx, nullptr), -ENOMEM);
  kvpool_serve_opts serve = KVPOOL_OPTS(kvpool_serve_opts);
  for (int i = 0; i < 3; ++i) {
    serve.until_ns = in_ms(200);
    cr_expect_eq(kvpool_serve(ctx, &serve), 0, "again: %s", kvpool_strerror_detail(ctx));
  }
  {
    Ctx second(pool);  // the standby slot is free as well
    cr_expect_eq(kvpool_owner_wait(second, in_ms(5000)), 1);
  }
  kvpool_close(ctx);
  // In a thread of the library: the process lives, and says that no owner came.
  throws = 1;
  opts.owner = KVPOOL_OWNER_EMBEDDED;
  opts.deadline_ns = in_ms(500);
  const int opened = kvpool_open(pool.address(), &opts, &ctx);
  cr_expect(opened == -ETIMEDOUT || opened == 0, "%d", opened);  // 0: the last owner still counts
  if (opened == 0) kvpool_close(ctx);
  throws = 0;
  Ctx third(pool);
}

Test(api_robust, numbers_of_an_owner, .timeout = 60) {
  Pool pool("numbers");
  Ctx client(pool, false);
  kvpool_ctx *owner = nullptr;
  cr_assert_eq(kvpool_open(pool.address(), nullptr, &owner), 0);
  std::thread server([&] { kvpool_serve(owner, nullptr); });
  cr_assert_eq(kvpool_owner_wait(client, in_ms(20000)), 1);
  kvpool_ns *ns = open_ns(client);
  const auto out = bytes_of(1, 8192);
  for (uint64_t i = 0; i < 7; ++i) {
    const kvpool_key key = key_of(ns, i);
    cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  }
  const kvpool_key first = key_of(ns, 0);
  cr_expect_eq(kvpool_remove(ns, &first, 1, 0), 1);
  cr_expect_eq(kvpool_remove(ns, &first, 1, 0), 0);
  usleep(100000);
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  cr_assert_eq(kvpool_stats_read(owner, &stats), 0);
  cr_expect_eq(stats.capacity_entries, 6);
  cr_expect_gt(stats.capacity_free_bytes, 0);
  const uint64_t extent = uint64_t{2} << 20;
  cr_expect(stats.capacity_free_run_bytes >= extent &&
                stats.capacity_free_run_bytes % extent == 0 &&
                stats.capacity_free_run_bytes < stats.capacity_bytes,
            "%lu", stats.capacity_free_run_bytes);
  kvpool_serve_stop(owner);
  server.join();
  cr_assert_eq(kvpool_stats_read(owner, &stats), 0);
  cr_expect_eq(stats.capacity_entries, 6, "%lu when it stopped", stats.capacity_entries);
  cr_expect_gt(stats.capacity_free_bytes, 0);
  kvpool_close(owner);
}

Test(api_robust, removing_what_others_may_put_meanwhile, .timeout = 60) {
  Pool pool("removes");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  const auto out = bytes_of(1, 4096);
  std::vector<kvpool_key> keys;
  for (uint64_t i = 0; i < 200; ++i) {
    keys.push_back(key_of(ns, i));
    if (i % 2 == 0) cr_assert_eq(kvpool_put(ns, &keys[i], out.data(), out.size(), 0), 1);
  }
  cr_assert_eq(kvpool_pending(ns, &keys[1], 1, 5000), 1);
  cr_expect_eq(kvpool_remove(ns, keys.data(), keys.size(), 0), 100);
  cr_expect_eq(kvpool_remove(ns, keys.data(), keys.size(), 0), 0);
  cr_assert_eq(kvpool_put(ns, &keys[4], out.data(), out.size(), 0), 1, "put again");
  cr_assert_eq(kvpool_ns_bypass(ns, 1, 0), 0);
  cr_expect_eq(kvpool_remove(ns, &keys[4], 1, 0), 1, "bypassed namespaces can be emptied");
}

Test(api_robust, a_sent_sigbus_ends_the_process, .signal = SIGBUS, .timeout = 60) {
  std::signal(SIGBUS, SIG_DFL);
  Pool pool("bus");
  Ctx ctx(pool);
  kill(getpid(), SIGBUS);
  usleep(1000000);
}

Test(api_robust, features_that_a_writer_must_know, .timeout = 60) {
  Pool pool("rocompat");
  {
    Memory memory("rocompat");
    for (uint32_t copy = 0; copy < 2; ++copy) {
      const PoolOffset at = memory.geo.identity_at(copy);
      auto id = media::from_line<media::Identity>(memory.get(at));
      id.ro_compat = 0x80;
      memory.set(at, media::Sealer::sealed_identity(id));
    }
  }
  kvpool_ctx *ctx = nullptr;
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  cr_expect_eq(kvpool_open(pool.address(), &opts, &ctx), -ENOTSUP);
  cr_expect(std::strstr(kvpool_strerror_detail(nullptr), "read-only") != nullptr, "%s",
            kvpool_strerror_detail(nullptr));
  opts.flags = KVPOOL_OPEN_F_READ_ONLY;
  cr_assert_eq(kvpool_open(pool.address(), &opts, &ctx), 0, "%s", kvpool_strerror_detail(nullptr));
  kvpool_close(ctx);
  kvpool_format_opts format = KVPOOL_OPTS(kvpool_format_opts);
  format.flags = KVPOOL_FORMAT_F_YES;
  cr_expect_eq(kvpool_format(pool.address(), &format), -EEXIST);
  format.flags |= KVPOOL_FORMAT_F_FORCE;
  cr_expect_eq(kvpool_format(pool.address(), &format), 0, "%s", kvpool_strerror_detail(nullptr));
}
