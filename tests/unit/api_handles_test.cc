// SPDX-License-Identifier: Apache-2.0
// Shows: options, handles and outputs keep the promises of kvpool.h's first page; errors have a
// sentence.
// How: one table over all options structs; outputs compared before and after refused calls; a
// fork.
#include <sys/wait.h>

#include "api_fixture.hpp"

using namespace api_test;

namespace {

// Every options struct with a call that takes it. The call must fail for another reason, or
// succeed, when the options are fine.
struct OptionsCase {
  const char *name;
  size_t size;
  int (*call)(kvpool_ctx *ctx, kvpool_ns *ns, const void *opts);
};

template <class T>
const T *as(const void *opts) {
  return static_cast<const T *>(opts);
}

const OptionsCase kCases[] = {
    {"format", sizeof(kvpool_format_opts),
     [](kvpool_ctx *, kvpool_ns *, const void *o) {
       return kvpool_format("mem:unit-absent?size=1MiB", as<kvpool_format_opts>(o));
     }},
    {"open", sizeof(kvpool_open_opts),
     [](kvpool_ctx *, kvpool_ns *, const void *o) {
       kvpool_ctx *ctx = nullptr;
       return kvpool_open("mem:unit-absent", as<kvpool_open_opts>(o), &ctx);
     }},
    {"serve", sizeof(kvpool_serve_opts),
     [](kvpool_ctx *ctx, kvpool_ns *, const void *o) {
       return kvpool_serve(ctx, as<kvpool_serve_opts>(o));  // -EBUSY: it serves already
     }},
    {"namespace", sizeof(kvpool_ns_opts),
     [](kvpool_ctx *ctx, kvpool_ns *, const void *o) {
       kvpool_ns *ns = nullptr;
       return kvpool_ns_open(ctx, "", as<kvpool_ns_opts>(o), &ns);
     }},
    {"memory", sizeof(kvpool_mem_opts),
     [](kvpool_ctx *ctx, kvpool_ns *, const void *o) {
       static char memory[64];
       kvpool_mem *mem = nullptr;
       return kvpool_mem_register(ctx, memory, sizeof memory, as<kvpool_mem_opts>(o), &mem);
     }},
    {"reserve", sizeof(kvpool_reserve_opts),
     [](kvpool_ctx *, kvpool_ns *ns, const void *o) {
       return kvpool_reserve(ns, nullptr, nullptr, 1, as<kvpool_reserve_opts>(o), nullptr);
     }},
    {"pin", sizeof(kvpool_pin_opts),
     [](kvpool_ctx *, kvpool_ns *ns, const void *o) {
       return kvpool_pin(ns, nullptr, 1, as<kvpool_pin_opts>(o), nullptr);
     }},
    {"events", sizeof(kvpool_events_opts),
     [](kvpool_ctx *ctx, kvpool_ns *, const void *o) {
       kvpool_events *events = nullptr;
       return kvpool_events_open(ctx, as<kvpool_events_opts>(o), &events);
     }},
};

void set_size(std::vector<char> &raw, size_t size) { std::memcpy(raw.data(), &size, sizeof size); }

}  // namespace

Test(api_handles, options_of_any_size, .timeout = 60) {
  Pool pool("opts");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  for (const OptionsCase &c : kCases) {
    std::vector<char> raw(c.size + 64, 0);
    set_size(raw, c.size);
    const int plain = c.call(ctx, ns, raw.data());
    auto detail = [&] { return std::string(kvpool_strerror_detail(nullptr)) +
                               kvpool_strerror_detail(ctx); };
    set_size(raw, 4);
    cr_expect_eq(c.call(ctx, ns, raw.data()), -EINVAL, "%s: size 4", c.name);
    cr_expect(detail().find("size") != std::string::npos, "%s: %s", c.name, detail().c_str());
    set_size(raw, 0);
    cr_expect_eq(c.call(ctx, ns, raw.data()), -EINVAL, "%s: size 0", c.name);
    set_size(raw, 12);
    cr_expect_eq(c.call(ctx, ns, raw.data()), plain, "%s: an older, shorter caller", c.name);
    set_size(raw, c.size + 64);
    cr_expect_eq(c.call(ctx, ns, raw.data()), plain, "%s: a newer caller that asks nothing",
                 c.name);
    raw[c.size + 33] = 1;
    cr_expect_eq(c.call(ctx, ns, raw.data()), -E2BIG, "%s: a newer caller that asks more", c.name);
    raw[c.size + 33] = 0;
    set_size(raw, c.size);
    const uint32_t flags = 0x80000000u;
    std::memcpy(raw.data() + sizeof(size_t), &flags, sizeof flags);
    cr_expect_eq(c.call(ctx, ns, raw.data()), -EINVAL, "%s: an unknown flag", c.name);
  }
}

Test(api_handles, a_rank_is_below_its_world, .timeout = 60) {
  Pool pool("rank");
  for (const uint32_t rank : {1u, 2u, 3u}) {
    kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
    opts.engine_id = 7;
    opts.engine_world = 2;
    opts.engine_rank = rank;
    kvpool_ctx *ctx = nullptr;
    const int err = kvpool_open(pool.address(), &opts, &ctx);
    cr_expect_eq(err, rank < 2 ? 0 : -EINVAL, "rank %u: %d", rank, err);
    if (err == 0) kvpool_close(ctx);
  }
}

Test(api_handles, null_arguments, .timeout = 60) {
  Pool pool("null");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  kvpool_key key = key_of(ns, 1);
  char buf[64] = {};
  kvpool_stats no_size{};
  kvpool_ctx *never = nullptr;
  const int refused[] = {
      kvpool_open("mem:x", nullptr, nullptr),
      kvpool_serve(nullptr, nullptr),
      kvpool_owner_wait(nullptr, 0),
      kvpool_ns_open(ctx, nullptr, nullptr, &ns),
      kvpool_ns_open(nullptr, "n", nullptr, &ns),
      kvpool_ns_clear(nullptr, 0),
      kvpool_ns_bypass(nullptr, 1, 0),
      kvpool_ns_remove(ctx, nullptr, 0),
      kvpool_ns_list(ctx, 1, nullptr),
      kvpool_ns_stat(ns, nullptr),
      kvpool_key_chain(ns, nullptr, nullptr, 16, 1, &key),
      kvpool_key_wrap(ns, nullptr, 1, &key),
      kvpool_key_wrap(ns, buf, 0, &key),
      kvpool_key_component(ns, &key, 1, &key),
      kvpool_mem_register(ctx, nullptr, 1, nullptr, nullptr),
      kvpool_lookup(nullptr, &key, 1, 0, 0, nullptr),
      kvpool_lookup(ns, nullptr, 1, 0, 0, nullptr),
      kvpool_lookup(ns, &key, 1, 2, 0, nullptr),
      kvpool_lookup(ns, &key, (1u << 20) + 1, 0, 0, nullptr),
      kvpool_put(ns, &key, nullptr, 1, 0),
      kvpool_put(ns, &key, buf, 0, 0),
      kvpool_get(ns, nullptr, buf, 1, 0),
      kvpool_put_blocks(ns, nullptr, 1, 0, nullptr),
      kvpool_get_blocks(ns, nullptr, 1025, 0, nullptr),
      kvpool_get_rows(ns, nullptr, 1, nullptr, 0, nullptr),
      kvpool_remove(ns, nullptr, 1, 0),
      kvpool_touch(ns, nullptr, 1),
      kvpool_pending(ns, nullptr, 1, 1),
      kvpool_reserve(ns, &key, nullptr, 1, nullptr, nullptr),
      kvpool_write(ctx, nullptr, 0, nullptr, 0),
      kvpool_shard_done(ctx, nullptr, 0),
      kvpool_publish(ns, nullptr, 1, 0, nullptr),
      kvpool_abort(ns, nullptr, 1),
      kvpool_map(ctx, nullptr, 1, nullptr),
      kvpool_ticket_valid(ctx, nullptr, 0),
      kvpool_prep_get(ns, nullptr, 1, nullptr, nullptr),
      kvpool_post(nullptr, 0, 0),
      kvpool_check(nullptr),
      kvpool_cancel(nullptr),
      kvpool_poll(ctx, 0, 0, nullptr),
      kvpool_events_next(nullptr, 1, 0, nullptr),
      kvpool_stats_read(ctx, nullptr),
      kvpool_stats_read(ctx, &no_size),
      kvpool_stats_read(never, &no_size),
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    cr_expect_eq(refused[i], -EINVAL, "call %zu of the list: %d", i, refused[i]);
  }
  kvpool_close(nullptr);
  kvpool_ns_close(nullptr);
  kvpool_op_free(nullptr);
  kvpool_events_close(nullptr);
  kvpool_unpin(ctx, nullptr, 1);
  kvpool_serve_stop(nullptr);
  cr_expect_eq(kvpool_mem_unregister(nullptr), 0);
}

Test(api_handles, errors_have_sentences_of_their_context_and_thread, .timeout = 60) {
  Pool pool("detail");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns *ns = open_ns(ctx);
  kvpool_key key;
  cr_expect_str_eq(kvpool_strerror_detail(other), "");
  cr_expect_eq(kvpool_key_wrap(ns, &key, 257, &key), -EINVAL);
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "256") != nullptr);
  cr_expect_str_eq(kvpool_strerror_detail(other), "");
  cr_expect_str_eq(kvpool_strerror_detail(nullptr), "");
  kvpool_ctx *none = nullptr;
  cr_expect_eq(kvpool_open("mem:unit-absent", nullptr, &none), -ENOENT);
  cr_expect_null(none);
  cr_expect(std::strstr(kvpool_strerror_detail(nullptr), "unit-absent") != nullptr);
  unsetenv("KVPOOL");
  cr_expect_eq(kvpool_open(nullptr, nullptr, &none), -ENODEV, "memory is never a silent fall-back");
  setenv("KVPOOL", pool.address(), 1);
  cr_expect_eq(kvpool_open(nullptr, nullptr, &none), 0);
  kvpool_close(none);
}

Test(api_handles, bad_stores_are_refused_by_name, .timeout = 60) {
  kvpool_ctx *none = nullptr;
  char path[] = "/tmp/kvpool-unit-XXXXXX";
  const int fd = mkstemp(path);
  cr_assert_eq(ftruncate(fd, 64 << 20), 0);
  const std::string addr = std::string("file:") + path;
  cr_expect_eq(kvpool_open(addr.c_str(), nullptr, &none), -ENODATA, "%s",
               kvpool_strerror_detail(nullptr));
  cr_expect(std::strstr(kvpool_strerror_detail(nullptr), "format") != nullptr, "the way on");
  cr_expect_eq(kvpool_format(addr.c_str(), nullptr), -EEXIST, "a file that is no store");
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.flags = KVPOOL_FORMAT_F_YES;
  const uint8_t hosts[] = {0};
  opts.standby_hosts = hosts;
  cr_expect_eq(kvpool_format(addr.c_str(), &opts), -EINVAL, "an array of no length");
  opts.standby_hosts = nullptr;
  cr_assert_eq(kvpool_format(addr.c_str(), &opts), 0, "%s", kvpool_strerror_detail(nullptr));
  cr_expect_eq(kvpool_format(addr.c_str(), nullptr), -EEXIST, "a store");
  cr_assert_eq(kvpool_open(addr.c_str(), nullptr, &none), 0);
  cr_expect_eq(kvpool_format(addr.c_str(), &opts), -EBUSY, "somebody lives in it");
  cr_expect(std::strstr(kvpool_strerror_detail(nullptr), "open") != nullptr);
  kvpool_close(none);
  none = nullptr;
  // A newer format, a flipped bit, a device that was cut.
  uint8_t line[64];
  cr_assert_eq(pread(fd, line, 64, 0), 64);
  uint8_t bad[64];
  std::memcpy(bad, line, 64);
  bad[20] ^= 1;
  for (off_t copy : {0, 8192}) cr_assert_eq(pwrite(fd, bad, 64, copy), 64);
  cr_expect_eq(kvpool_open(addr.c_str(), nullptr, &none), -EUCLEAN, "%s",
               kvpool_strerror_detail(nullptr));
  cr_expect_eq(kvpool_format(addr.c_str(), &opts), -EEXIST, "damaged: only by force");
  for (off_t copy : {0, 8192}) cr_assert_eq(pwrite(fd, line, 64, copy), 64);
  cr_assert_eq(ftruncate(fd, 32 << 20), 0);
  cr_expect_lt(kvpool_open(addr.c_str(), nullptr, &none), 0);
  cr_expect_null(none);
  opts.flags |= KVPOOL_FORMAT_F_FORCE;
  cr_expect_eq(kvpool_format(addr.c_str(), &opts), 0);
  opts.flags = KVPOOL_FORMAT_F_DRY_RUN;
  opts.size_bytes = 1 << 20;
  cr_expect_eq(kvpool_format("mem:unit-small", &opts), -ERANGE, "too small: %s",
               kvpool_strerror_detail(nullptr));
  opts.size_bytes = 64 << 20;
  cr_expect_eq(kvpool_format("mem:unit-dry", &opts), 0);
  cr_expect_eq(kvpool_open("mem:unit-dry", nullptr, &none), -ENOENT, "a dry run wrote something");
  close(fd);
  unlink(path);
}

Test(api_handles, namespaces_keep_their_description, .timeout = 60) {
  Pool pool("names");
  Ctx ctx(pool), other(pool, false);
  kvpool_ns_opts opts = ns_opts();
  kvpool_ns *ns = nullptr, *same = nullptr, *bad = nullptr;
  opts.flags = KVPOOL_NS_F_OPEN_ONLY;
  cr_expect_eq(kvpool_ns_open(ctx, "a", &opts, &ns), -ENOENT);
  cr_expect_null(ns);
  opts.flags = 0;
  opts.block_bytes = 4096;
  opts.quota_bytes = 1 << 20;
  cr_assert_eq(kvpool_ns_open(ctx, "a", &opts, &ns), 0);
  cr_assert_eq(kvpool_ns_open(other, "a", &opts, &same), 0);
  kvpool_ns_info info, list[4];
  cr_assert_eq(kvpool_ns_stat(same, &info), 0);
  cr_expect_str_eq(info.name, "a");
  cr_expect(info.block_bytes == 4096 && info.quota_bytes == 1 << 20 && info.weight == 10);
  const kvpool_key one = key_of(ns, 1), two = key_of(same, 1);
  cr_expect_eq(std::memcmp(&one, &two, sizeof one), 0);
  char buf[8192] = {};
  cr_expect_eq(kvpool_put(ns, &one, buf, 8192, 0), -EMSGSIZE);
  opts.block_bytes = 8192;
  cr_expect_eq(kvpool_ns_open(ctx, "a", &opts, &bad), -EMEDIUMTYPE);
  opts.block_bytes = 4096;
  opts.dtype = "fp8_e4m3";
  cr_expect_eq(kvpool_ns_open(ctx, "a", &opts, &bad), -EEXIST);
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "dtype") != nullptr);
  opts.dtype = "auto";
  cr_expect_eq(kvpool_ns_open(ctx, "a", &opts, &bad), -EINVAL);
  opts = ns_opts();
  opts.layout = "l-t-c";
  cr_expect_eq(kvpool_ns_open(ctx, "a", &opts, &bad), -EEXIST);
  cr_expect_eq(kvpool_ns_open(ctx, "name-of-17-bytes-", &opts, &bad), -EINVAL);
  cr_assert_eq(kvpool_ns_open(ctx, "b", &opts, &bad), 0);
  cr_expect_eq(kvpool_ns_list(ctx, 4, list), 2);
  cr_expect_eq(kvpool_ns_remove(ctx, "c", 0), -ENOENT);
  cr_expect_eq(kvpool_ns_remove(ctx, "b", 0), 0);
  cr_expect_eq(kvpool_ns_stat(bad, &info), -ENOENT);
  cr_expect_eq(kvpool_put(bad, &one, buf, 4096, 0), -EKEYREVOKED);
  cr_expect_eq(kvpool_ns_list(ctx, 0, nullptr), 1);
  // The place of a removed one goes to another, which its handles must not touch.
  kvpool_ns *heir = nullptr;
  opts = ns_opts();
  cr_assert_eq(kvpool_ns_open(ctx, "heir", &opts, &heir), 0);
  const kvpool_key mine = key_of(heir, 1);
  cr_assert_eq(kvpool_put(heir, &mine, buf, 4096, 0), 1);
  cr_expect_eq(kvpool_ns_clear(bad, 0), -ENOENT);
  cr_expect_eq(kvpool_ns_bypass(bad, 1, 0), -ENOENT);
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "removed") != nullptr);
  cr_expect_eq(kvpool_get(heir, &mine, buf, 4096, 0), 1);
  kvpool_ns_close(heir);
  kvpool_ns_close(bad);
}

Test(api_handles, handles_are_dead_in_a_forked_child, .timeout = 60) {
  Pool pool("fork");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  const kvpool_key key = key_of(ns, 1);
  char buf[4096] = {};
  cr_assert_eq(kvpool_put(ns, &key, buf, sizeof buf, 0), 1);
  const pid_t child = fork();
  if (child == 0) {
    int wrong = kvpool_put(ns, &key, buf, sizeof buf, 0) != -ESTALE;
    wrong += kvpool_lookup(ns, &key, 1, 0, 0, nullptr) != -ESTALE;
    wrong += kvpool_owner_wait(ctx, 0) != -ESTALE;
    wrong += std::strlen(kvpool_strerror_detail(ctx)) == 0;
    kvpool_close(ctx);  // of this process's memory only
    kvpool_ctx *mine = nullptr;
    wrong += kvpool_open(pool.address(), nullptr, &mine) != 0;
    kvpool_close(mine);
    _exit(wrong);
  }
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child said %d", status);
  usleep(100000);
  cr_expect_eq(kvpool_get(ns, &key, buf, sizeof buf, 0), 1,
               "the child took the parent's slot along");
  const kvpool_key second = key_of(ns, 2);
  cr_expect_eq(kvpool_put(ns, &second, buf, sizeof buf, 0), 1);
}

Test(api_handles, read_only_reads_and_nothing_else, .timeout = 60) {
  Pool pool("ro");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  const kvpool_key key = key_of(ns, 1);
  const auto out = bytes_of(3, 70000);
  std::vector<uint8_t> in(out.size());
  cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.flags = KVPOOL_OPEN_F_READ_ONLY;
  kvpool_ctx *ro = nullptr;
  cr_assert_eq(kvpool_open(pool.address(), &opts, &ro), 0, "%s", kvpool_strerror_detail(nullptr));
  kvpool_ns *there = open_ns(ro);
  cr_expect_eq(kvpool_lookup(there, &key, 1, 0, 0, nullptr), 1);
  cr_assert_eq(kvpool_get(there, &key, in.data(), in.size(), 0), 1, "%s",
               kvpool_strerror_detail(ro));
  cr_expect(in == out);
  cr_expect_eq(kvpool_put(there, &key, out.data(), out.size(), 0), -EROFS);
  cr_expect_eq(kvpool_remove(there, &key, 1, in_ms(100)), -EROFS);
  cr_expect_eq(kvpool_ns_clear(there, in_ms(100)), -EROFS);
  cr_expect_eq(kvpool_serve(ro, nullptr), -EROFS);
  kvpool_close(ro);
}

Test(api_handles, without_an_owner_reads_go_on_and_writes_say_how, .timeout = 60) {
  Pool pool("noowner");
  kvpool_key key;
  const auto out = bytes_of(3, 4096);
  std::vector<uint8_t> in(out.size());
  {
    Ctx owner(pool);
    kvpool_ns *ns = open_ns(owner);
    key = key_of(ns, 1);
    cr_assert_eq(kvpool_put(ns, &key, out.data(), out.size(), 0), 1);
  }
  Ctx ctx(pool, false);
  cr_expect_eq(kvpool_owner_wait(ctx, in_ms(10)), 0);
  kvpool_ns *ns = open_ns(ctx);
  cr_expect_eq(kvpool_get(ns, &key, in.data(), in.size(), 0), 1);
  cr_expect(in == out);
  const kvpool_key other = key_of(ns, 2);
  const uint64_t start = now_ns();
  cr_expect_eq(kvpool_put(ns, &other, out.data(), out.size(), in_ms(200)), -EAGAIN);
  cr_expect_lt(now_ns() - start, 2'000'000'000, "the deadline holds");
  cr_expect(std::strstr(kvpool_strerror_detail(ctx), "kvpool serve") != nullptr, "%s",
            kvpool_strerror_detail(ctx));
  cr_expect_eq(kvpool_error_class(-EAGAIN), KVPOOL_CLASS_RETRY);
  Ctx again(pool);  // takes the store over
  cr_expect_eq(kvpool_put(ns, &other, out.data(), out.size(), 0), 1, "%s",
               kvpool_strerror_detail(ctx));
}

Test(api_handles, formatted_anew_is_gone, .timeout = 60) {
  Pool pool("gone");
  Ctx ctx(pool);
  kvpool_ns *ns = open_ns(ctx);
  const kvpool_key key = key_of(ns, 1);
  char buf[4096] = {};
  cr_assert_eq(kvpool_put(ns, &key, buf, sizeof buf, 0), 1);
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.flags = KVPOOL_FORMAT_F_YES | KVPOOL_FORMAT_F_FORCE;
  cr_assert_eq(kvpool_format(pool.address(), &opts), 0, "%s", kvpool_strerror_detail(nullptr));
  cr_expect_eq(kvpool_lookup(ns, &key, 1, 0, 0, nullptr), -EIDRM);
  // What was on its way may still be answered by the owner that does not know yet; nothing later
  // is.
  const uint64_t end = in_ms(2000);
  int result;
  do {
    result = kvpool_put(ns, &key, buf, sizeof buf, in_ms(500));
  } while (result != -EIDRM && now_ns() < end);
  cr_expect_eq(result, -EIDRM, "%d: %s", result, kvpool_strerror_detail(ctx));
  cr_expect_eq(kvpool_get(ns, &key, buf, sizeof buf, in_ms(1000)), -EIDRM);
  cr_expect_eq(kvpool_error_class(-EIDRM), KVPOOL_CLASS_REOPEN);
}
