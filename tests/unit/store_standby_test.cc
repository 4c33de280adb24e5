// SPDX-License-Identifier: Apache-2.0
// Shows: a standby whose own link is gone does not take that for the owner's silence: it claims
// nothing while it cannot read back what it writes, and takes over when it can and the owner is
// gone. Who found no slot is no standby, not even for a moment.
// How: contexts over one file; the pages with the members' lines are taken from one of them, as a
// link that gives errors and lets stores vanish.
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "api_fixture.hpp"
#include "store/context.hpp"

using namespace kvpool;
using namespace kvpool::store;
using api_test::Ctx;
using api_test::Pool;

namespace {

std::unique_ptr<Context> opened(const std::string &address, bool owner = false) {
  ContextOptions options;
  options.embedded_owner = owner;
  std::unique_ptr<Context> context;
  std::string why;
  cr_assert_eq(Context::open(address.c_str(), options, context, &why), 0, "%s", why.c_str());
  return context;
}

// The members' lines of a mapping, as a file shows them: an empty one gives SIGBUS, which the verbs
// turn into errors.
void map_members(Context &context, const std::string &path) {
  const media::Geometry &geo = context.geometry();
  constexpr u64 kPage = 4096;
  const u64 begin = geo.member_at(0).byte() / kPage * kPage;
  const u64 last = geo.member_at(geo.member_count() - 1).byte();
  const u64 end = (last + kLineBytes + kPage - 1) / kPage * kPage;
  for (u32 slot = 0; slot < geo.standby_count; ++slot) {
    const u64 claim = geo.claim_at(0, slot).byte();
    cr_assert(claim < begin || claim >= end, "claims stay readable");
  }
  const int fd = path.empty() ? memfd_create("empty", MFD_CLOEXEC) : open(path.c_str(), O_RDWR);
  cr_assert_geq(fd, 0);
  auto *at = const_cast<std::byte *>(context.address_of(PoolOffset(0, begin)));
  const off_t from = path.empty() ? 0 : static_cast<off_t>(begin);
  cr_assert_neq(mmap(at, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, from),
                MAP_FAILED);
  close(fd);
}

}  // namespace

Test(store_standby, a_lost_link_is_not_the_owners_silence, .timeout = 60) {
  char folder[] = "/tmp/kvpool-standby-XXXXXX";
  cr_assert(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/pool", address = "file:" + path;
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.size_bytes = 32 << 20;
  opts.lease_ms = 20'000;
  cr_assert_eq(kvpool_format(address.c_str(), &opts), 0);
  auto owner = opened(address, true);
  const auto standby = opened(address);
  const u32 epoch = owner->member().claims().read().highest_active;
  std::string end;
  std::thread serving([&] { standby->serve(0, 300, &end); });
  usleep(200'000);
  map_members(*standby, "");
  usleep(1'500'000);
  const pool::ClaimView view = owner->member().claims().read();
  cr_expect_eq(view.highest_claimed, epoch, "it claimed although it sees nobody, not even itself");
  cr_expect_eq(owner->owner_state(), 1);
  map_members(*standby, path);
  owner.reset();
  bool taken = false;
  for (int i = 0; i < 500 && !taken; ++i) {
    taken = standby->member().claims().read().highest_active > epoch;
    usleep(10'000);
  }
  cr_expect(taken, "with its link back it takes over: %s", end.c_str());
  standby->stop_serving();
  serving.join();
  std::filesystem::remove_all(folder);
}

Test(store_standby, statistics_tell_who_holds_a_slot, .timeout = 60) {
  const Pool pool("standby");
  const auto stands_by = [](kvpool_ctx *ctx) {
    kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
    return kvpool_stats_read(ctx, &stats) == 0 && (stats.flags & KVPOOL_STATS_F_STANDBY) != 0;
  };
  const Ctx owner(pool), second(pool), other(pool, false);  // two slots, as formatted by default
  for (int i = 0; i < 1000 && !(stands_by(owner) && stands_by(second)); ++i) usleep(5'000);
  cr_expect(stands_by(owner) && stands_by(second));
  std::atomic<bool> over{false};
  bool seen = false;
  std::thread watch([&] {
    while (!over.load()) seen |= stands_by(other);
  });
  cr_expect_eq(kvpool_serve(other, nullptr), -EUSERS);
  over.store(true);
  watch.join();
  cr_expect_not(seen, "it has no slot");
}
