// SPDX-License-Identifier: Apache-2.0
// Shows: processes share a store: one serves, others put and get each other's blocks, and a store
// whose owner was killed is taken over with its blocks.
// How: forked children that open the store anew; SIGKILL for the owner.
#include <fcntl.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "api_fixture.hpp"
#include "media/seal.hpp"
#include "media/superblock.hpp"

using namespace api_test;

namespace {

// A child that serves until it is stopped. Never returns there.
pid_t start_server(const Pool &pool) {
  const pid_t child = fork();
  if (child != 0) return child;
  static kvpool_ctx *ctx = nullptr;
  if (kvpool_open(pool.address(), nullptr, &ctx) != 0) _exit(2);
  signal(SIGTERM, [](int) { kvpool_serve_stop(ctx); });
  const int result = kvpool_serve(ctx, nullptr);
  kvpool_close(ctx);
  _exit(result == 0 ? 0 : 1);
}

int exit_code(pid_t child) {
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

}  // namespace

Test(api_process, blocks_cross_processes_and_owners, .timeout = 120) {
  Pool pool("procs");
  pid_t server = start_server(pool);
  constexpr uint64_t kBlocks = 30, kBytes = 100000;
  const pid_t writer = fork();
  if (writer == 0) {
    kvpool_ctx *ctx = nullptr;
    if (kvpool_open(pool.address(), nullptr, &ctx) != 0) _exit(1);
    if (kvpool_owner_wait(ctx, in_ms(20000)) != 1) _exit(2);
    kvpool_ns_opts opts = ns_opts();
    kvpool_ns *ns = nullptr;
    if (kvpool_ns_open(ctx, "unit", &opts, &ns) != 0) _exit(3);
    for (uint64_t i = 0; i < kBlocks; ++i) {
      const auto out = bytes_of(i, kBytes);
      kvpool_key key;
      kvpool_key_wrap(ns, &i, sizeof i, &key);
      if (kvpool_put(ns, &key, out.data(), kBytes, in_ms(20000)) != 1) _exit(4);
    }
    _exit(0);  // without leaving: its blocks stay
  }
  cr_assert_eq(exit_code(writer), 0);
  Ctx ctx(pool, false);
  kvpool_ns *ns = open_ns(ctx);
  std::vector<uint8_t> in(kBytes);
  auto all_there = [&](const char *when) {
    for (uint64_t i = 0; i < kBlocks; ++i) {
      const kvpool_key key = key_of(ns, i);
      cr_assert_eq(kvpool_get(ns, &key, in.data(), kBytes, 0), 1, "block %lu %s", i, when);
      cr_assert(in == bytes_of(i, kBytes), "block %lu %s", i, when);
    }
  };
  all_there("after its writer ended");
  cr_assert_eq(kill(server, SIGKILL), 0);
  cr_assert_eq(exit_code(server), 1000 + SIGKILL);
  all_there("while nobody serves");
  server = start_server(pool);
  cr_assert_eq(kvpool_owner_wait(ctx, in_ms(20000)), 1);
  all_there("after take-over");
  const kvpool_key fresh = key_of(ns, 1000);
  cr_assert_eq(kvpool_put(ns, &fresh, in.data(), kBytes, in_ms(20000)), 1, "%s",
               kvpool_strerror_detail(ctx));
  const pid_t standby = start_server(pool);
  usleep(100000);
  cr_assert_eq(kill(server, SIGTERM), 0);
  cr_expect_eq(exit_code(server), 0);
  const kvpool_key last = key_of(ns, 1001);
  cr_assert_eq(kvpool_put(ns, &last, in.data(), kBytes, in_ms(20000)), 1, "the standby serves: %s",
               kvpool_strerror_detail(ctx));
  all_there("under the standby");
  cr_assert_eq(kill(standby, SIGTERM), 0);
  cr_expect_eq(exit_code(standby), 0);
}

// Another machine is played by a thread that keeps the line of host 0 alive with another boot id.
Test(api_process, host_id_of_another_machine_is_refused, .timeout = 60) {
  Pool pool("hostid");
  const std::string name = "/kvpool-unit-hostid-" + std::to_string(getpid()) + ".0";
  const int fd = shm_open(name.c_str(), O_RDWR, 0);
  cr_assert_geq(fd, 0);
  const size_t bytes = 64 << 20;
  void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  cr_assert_neq(base, MAP_FAILED);
  const kvpool::media::MappedReader::Device device{base, bytes};
  kvpool::media::MappedReader reader(&device, 1);
  kvpool::media::SuperblockRead superblock;
  cr_assert_eq(kvpool::media::read_superblock(reader, superblock, nullptr), 0);
  const kvpool::media::Geometry &geo = superblock.geometry;
  const kvpool::PoolOffset at = geo.host_at(0);
  const kvpool::media::Sealer sealer(geo.uuid, geo.nonce);
  std::atomic<bool> alive{true};
  kvpool::media::HostLine line{};
  line.boot_id[3] = 7;
  line.incarnation = 99;
  auto beat = [&] {
    ++line.counter;
    const kvpool::Line raw = sealer.sealed(line, at, 0);
    std::memcpy(static_cast<char *>(base) + at.byte(), &raw, sizeof raw);
  };
  beat();
  std::thread machine([&] {
    while (alive) {
      usleep(20000);
      beat();
    }
  });
  kvpool_ctx *ctx = nullptr;
  cr_expect_eq(kvpool_open(pool.address(), nullptr, &ctx), -EADDRINUSE, "%s",
               kvpool_strerror_detail(nullptr));
  cr_expect(std::strstr(kvpool_strerror_detail(nullptr), "host=") != nullptr);
  alive = false;
  machine.join();
  cr_expect_eq(kvpool_open(pool.address(), nullptr, &ctx), 0, "a line that was left behind");
  kvpool_close(ctx);
  close(fd);
}

Test(api_process, member_slots_run_out_and_come_back, .timeout = 120) {
  Pool pool("slots");
  Ctx owner(pool);
  std::vector<kvpool_ctx *> members;
  for (;;) {
    kvpool_ctx *ctx = nullptr;
    const int err = kvpool_open(pool.address(), nullptr, &ctx);
    if (err == -EUSERS) break;
    cr_assert_eq(err, 0);
    members.push_back(ctx);
    cr_assert_lt(members.size(), 300);
  }
  cr_assert_geq(members.size(), 4);
  cr_expect(std::strstr(kvpool_strerror_detail(nullptr), "slot") != nullptr);
  kvpool_close(members.back());
  kvpool_ctx *ctx = nullptr;
  cr_expect_eq(kvpool_open(pool.address(), nullptr, &ctx), 0, "a slot that was left is free");
  kvpool_close(ctx);
  members.pop_back();
  for (kvpool_ctx *m : members) kvpool_close(m);
}
