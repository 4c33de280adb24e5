// SPDX-License-Identifier: Apache-2.0
// Shows: a store grows and shrinks as `kvpool grow` and `shrink` do it, while another context puts
// and gets; blocks larger than the store was fit afterwards; what is asked wrongly is refused by
// name and changes nothing; storage comes back when it shrinks.
// How: contexts over one file, each with descriptors and mappings of its own.
#include <criterion/criterion.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "api_fixture.hpp"
#include "store/context.hpp"
#include "store/make.hpp"

using namespace kvpool;
using namespace kvpool::store;

namespace {

constexpr u64 kMiB = u64{1} << 20;

class FileStore {
public:
  explicit FileStore(u64 mib, u64 max_mib = 0) {
    char name[] = "/tmp/kvpool-resize-XXXXXX";
    cr_assert(mkdtemp(name) != nullptr);
    folder_ = name;
    address_ = "file:" + folder_ + "/a," + folder_ + "/b";
    kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
    opts.size_bytes = mib * kMiB;
    opts.max_bytes = max_mib * kMiB;
    opts.block_bytes = 65536;
    opts.lease_ms = 1000;
    opts.grace_us = 1000;
    const int err = kvpool_format(address_.c_str(), &opts);
    cr_assert_eq(err, 0, "format: %s", kvpool_strerror_detail(nullptr));
  }
  ~FileStore() { std::filesystem::remove_all(folder_); }
  const char *address() const { return address_.c_str(); }
  u64 allocated() const {
    u64 sum = 0;
    for (const char *name : {"/a", "/b"}) {
      struct stat st {};
      cr_assert_eq(stat((folder_ + name).c_str(), &st), 0);
      sum += static_cast<u64>(st.st_blocks) * 512;
    }
    return sum;
  }
  u64 length(const char *name) const { return std::filesystem::file_size(folder_ + name); }

private:
  std::string folder_, address_;
};

std::unique_ptr<Context> opened(const FileStore &store, bool owner = false) {
  ContextOptions options;
  options.embedded_owner = owner;
  std::unique_ptr<Context> context;
  std::string why;
  const int err = Context::open(store.address(), options, context, &why);
  cr_assert_eq(err, 0, "%s", why.c_str());
  return context;
}

int resize(Context &context, u64 mib, bool shrink, ResizeReport &ret, std::string *ret_why) {
  ResizeOptions options;
  options.pool_bytes = mib * kMiB;
  options.shrink = shrink;
  return context.resize(options, ret, ret_why);
}

// The C API over an address: what an application has.
struct Application {
  explicit Application(const FileStore &store, bool owner = false) {
    kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
    opts.owner = owner ? KVPOOL_OWNER_EMBEDDED : KVPOOL_OWNER_NONE;
    const int err = kvpool_open(store.address(), &opts, &ctx);
    cr_assert_eq(err, 0, "open: %s", kvpool_strerror_detail(nullptr));
    ns = api_test::open_ns(ctx);
  }
  ~Application() {
    kvpool_ns_close(ns);
    kvpool_close(ctx);
  }
  int put(u64 n, u64 bytes) {
    const auto key = api_test::key_of(ns, n);
    const auto data = api_test::bytes_of(n, bytes);
    return kvpool_put(ns, &key, data.data(), data.size(), api_test::in_ms(10'000));
  }
  // 1: found, with the right bytes; 0: a miss.
  int get(u64 n, u64 bytes) {
    const auto key = api_test::key_of(ns, n);
    std::vector<uint8_t> data(bytes);
    const int got = kvpool_get(ns, &key, data.data(), data.size(), api_test::in_ms(10'000));
    if (got == 1) cr_expect(data == api_test::bytes_of(n, bytes), "block %lu", n);
    return got;
  }
  kvpool_ctx *ctx = nullptr;
  kvpool_ns *ns = nullptr;
};

}  // namespace

Test(store_resize, members_go_on_while_it_grows_and_shrinks, .timeout = 120) {
  const FileStore store(32, 512);
  Application owner(store, true), busy(store);
  const auto admin = opened(store);
  std::atomic<bool> stop{false};
  std::atomic<u64> puts{0}, hits{0}, failures{0};
  std::thread worker([&] {
    for (u64 n = 0; !stop; ++n) {
      if (busy.put(n % 40, 300 * 1024) < 0) ++failures;
      ++puts;
      const int got = busy.get((n * 7) % 40, 300 * 1024);
      if (got < 0) ++failures;
      if (got == 1) ++hits;
    }
  });
  ResizeReport report;
  std::string why;
  for (const u64 mib : {64, 128}) {
    cr_assert_eq(resize(*admin, mib, false, report, &why), 0, "%s", why.c_str());
    cr_expect_eq(report.bytes_after, mib * kMiB);
    cr_expect_gt(report.data_after, report.data_before);
    cr_expect_eq(store.length("/a"), mib / 2 * kMiB);
    const u64 before = puts;
    while (puts < before + 40) usleep(1000);
  }
  const u64 full = store.allocated();
  for (const u64 mib : {96, 24}) {
    cr_assert_eq(resize(*admin, mib, true, report, &why), 0, "%s", why.c_str());
    cr_expect_eq(report.bytes_after, mib * kMiB);
    cr_expect_geq(report.given_back_bytes, (128 - mib) * kMiB);
    const u64 before = puts;
    while (puts < before + 40) usleep(1000);
  }
  cr_expect_leq(store.allocated(), full - 100 * kMiB);
  cr_expect_eq(store.length("/a"), 64 * kMiB, "files keep their length");
  cr_assert_eq(resize(*admin, 128, false, report, &why), 0, "%s", why.c_str());
  cr_expect_geq(store.allocated(), full - kMiB);
  const u64 before = puts;
  while (puts < before + 40) usleep(1000);
  stop = true;
  worker.join();
  cr_expect_eq(failures, 0);
  cr_expect_gt(hits, 40);
}

// What a context has ready for one block was made for the store as it was.
Test(store_resize, a_block_larger_than_the_store_was, .timeout = 60) {
  const FileStore store(16, 256);
  Application owner(store, true), user(store);
  constexpr u64 kLarge = 80 * kMiB;
  cr_expect_eq(user.put(1, kLarge), -EMSGSIZE);
  ResizeReport report;
  std::string why;
  cr_assert_eq(resize(*opened(store), 128, false, report, &why), 0, "%s", why.c_str());
  cr_assert_eq(user.put(1, kLarge), 1, "%s", kvpool_strerror_detail(user.ctx));
  cr_expect_eq(owner.get(1, kLarge), 1);
}

// Who only reads has nobody that looks for new owners: a ticket of somebody who knows the grown
// pool makes it look.
Test(store_resize, a_reader_of_before_maps_a_block_of_the_grown_part, .timeout = 60) {
  const FileStore store(16, 256);
  Application owner(store, true);
  const auto joined = [&](uint32_t flags) {
    kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
    opts.flags = flags;
    opts.engine_id = 7;
    kvpool_ctx *ctx = nullptr;
    cr_assert_eq(kvpool_open(store.address(), &opts, &ctx), 0);
    return ctx;
  };
  kvpool_ctx *reader = joined(KVPOOL_OPEN_F_READ_ONLY), *writer = joined(0);
  ResizeReport report;
  std::string why;
  cr_assert_eq(resize(*opened(store), 128, false, report, &why), 0, "%s", why.c_str());
  constexpr u64 kBlock = 40 * kMiB;  // larger than the pool was
  kvpool_ns *ns = api_test::open_ns(writer);
  const auto key = api_test::key_of(ns, 1);
  const auto data = api_test::bytes_of(1, kBlock);
  cr_assert_eq(kvpool_put(ns, &key, data.data(), data.size(), api_test::in_ms(10'000)), 1);
  kvpool_ticket ticket{};
  cr_assert_eq(kvpool_pin(ns, &key, 1, nullptr, &ticket), 1);
  std::vector<kvpool_piece> pieces(64);
  const int n = kvpool_map(reader, &ticket, pieces.size(), pieces.data());
  cr_assert_gt(n, 1, "%d: %s", n, kvpool_strerror_detail(reader));
  for (int i = 0; i < n; ++i) {
    const kvpool_piece &piece = pieces[static_cast<std::size_t>(i)];
    cr_expect_eq(std::memcmp(piece.addr, &data[piece.block_offset], piece.bytes), 0);
  }
  kvpool_ns_close(ns);
  kvpool_close(writer);
  kvpool_close(reader);
}

Test(store_resize, refusals_name_what_is_wrong, .timeout = 60) {
  const FileStore store(32);
  const auto refused = [&](Context &context, u64 bytes, bool shrink, const char *says) {
    ResizeOptions options;
    options.pool_bytes = bytes;
    options.shrink = shrink;
    options.patience_ns = 200'000'000;
    ResizeReport report;
    std::string why;
    const int err = context.resize(options, report, &why);
    cr_expect(why.find(says) < why.size(), "\"%s\" says nothing of \"%s\"", why.c_str(), says);
    return err;
  };
  {
    const auto alone = opened(store);
    cr_expect_eq(refused(*alone, 64 * kMiB, false, "no owner serves"), -EAGAIN);
  }
  Application owner(store, true);
  const auto admin = opened(store);
  cr_expect_eq(refused(*admin, 16 * kMiB, false, "`kvpool shrink`"), -EINVAL);
  cr_expect_eq(refused(*admin, 64 * kMiB, true, "`kvpool grow`"), -EINVAL);
  cr_expect_eq(refused(*admin, 65 * kMiB, false, "multiple of 4 MiB"), -EINVAL);
  cr_expect_eq(refused(*admin, 4 * kMiB, true, "too small"), -ERANGE);
  cr_expect_eq(refused(*admin, 8192 * kMiB, false, "room"), -EFBIG);
  const auto other = opened(store);
  cr_assert_eq(other->env().try_lock(pool::LockKind::kFormat, 0), true);
  cr_expect_eq(refused(*admin, 64 * kMiB, false, "another process"), -EBUSY);
  other->env().unlock(pool::LockKind::kFormat, 0);
  ResizeReport report;
  std::string why;
  cr_expect_eq(resize(*admin, 32, false, report, &why), 0, "that is its size");
  cr_expect_eq(report.extents_before, report.extents_after);
  cr_expect_eq(store.length("/a"), 16 * kMiB);
}

// A standby under a limit on its address space: no claim of it is in the way of one that can map
// the pool, it goes on standing by, and says so once.
Test(store_resize, a_standby_that_cannot_map_the_grown_pool_stands_back, .timeout = 60) {
  const FileStore store(256, 16 * 1024);
  auto owner = std::make_unique<Application>(store, true);
  std::string said;
  std::mutex said_mutex;
  ContextOptions options;
  options.log = [&](LogLevel, const char *text) {
    std::lock_guard guard(said_mutex);
    said += std::string(text) + "\n";
  };
  rlimit before{}, limit{};
  getrlimit(RLIMIT_AS, &before);
  limit = before;
  u64 pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit.rlim_cur = pages * 4096 + 4 * 1024 * kMiB;
  std::unique_ptr<Context> standby;
  std::string why;
  cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
  const int opened_with = Context::open(store.address(), options, standby, &why);
  cr_assert_eq(setrlimit(RLIMIT_AS, &before), 0);
  cr_assert_eq(opened_with, 0, "%s", why.c_str());
  std::atomic<bool> ended{false};
  std::string end;
  std::thread serving([&] {
    standby->serve(0, 200, &end);
    ended = true;
  });
  ResizeReport report;
  cr_assert_eq(resize(*opened(store), 512, false, report, &why), 0, "%s", why.c_str());
  owner.reset();
  usleep(1'000'000);
  cr_expect_not(ended, "it ends: %s", end.c_str());
  const pool::ClaimView view = standby->member().claims().read();
  cr_expect_eq(view.highest_claimed, view.highest_active, "no claim that leads nowhere");
  cr_expect_eq(standby->owner_state(), 0);
  {
    std::lock_guard guard(said_mutex);
    const auto first = said.find("more bytes than this process can map");
    cr_expect(first < said.size(), "it says: %s", said.c_str());
    cr_expect_eq(said.find("more bytes than this process can map", first + 1), std::string::npos);
  }
  Application next(store, true);
  cr_expect_eq(next.put(1, 300 * 1024), 1);
  standby->stop_serving();
  serving.join();
}

// Whoever gives up, or is told to, leaves the store as it was; a pin is waited for.
Test(store_resize, shrinking_can_be_given_up, .timeout = 60) {
  const FileStore store(32);
  Application owner(store, true), user(store);
  for (u64 n = 0; n < 60; ++n) cr_assert_geq(user.put(n, 500 * 1024), 0);
  std::vector<kvpool_ticket> tickets;
  for (u64 n = 0; n < 60; ++n) {
    const auto key = api_test::key_of(user.ns, n);
    kvpool_ticket ticket{};
    kvpool_pin_opts opts = KVPOOL_OPTS(kvpool_pin_opts);
    opts.ttl_ms = 60'000;
    if (kvpool_pin(user.ns, &key, 1, &opts, &ticket) == 1) tickets.push_back(ticket);
  }
  cr_assert_gt(tickets.size(), 30);
  const auto admin = opened(store);
  ResizeOptions options;
  options.pool_bytes = 16 * kMiB;
  options.shrink = true;
  u32 asked = 0, pinned = 0;
  options.go_on = [&](const ResizeProgress &now) {
    pinned = std::max(pinned, now.pinned);
    return ++asked < 20;
  };
  ResizeReport report;
  std::string why;
  cr_expect_eq(admin->resize(options, report, &why), -ECANCELED);
  cr_expect_gt(pinned, 0);
  cr_expect(why.find("the size it had") < why.size());
  options.go_on = nullptr;
  for (const auto &ticket : tickets) kvpool_unpin(user.ctx, &ticket, 1);
  cr_expect_eq(admin->resize(options, report, &why), 0, "%s", why.c_str());
  cr_expect_eq(report.bytes_after, 16 * kMiB);
}
