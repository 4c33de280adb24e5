// SPDX-License-Identifier: Apache-2.0
// A store of its own for each test of the C API: made, opened, and taken away again. Not a test
// itself.
#pragma once

#include <criterion/criterion.h>
#include <kvpool/kvpool.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace api_test {

inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000 + uint64_t(t.tv_nsec);
}
inline uint64_t in_ms(uint64_t ms) { return now_ns() + ms * 1'000'000; }

// A store in named memory that disappears with this object.
class Pool {
public:
  explicit Pool(const char *tag, uint64_t mib = 64, uint32_t devices = 1) : devices_(devices) {
    name_ = "unit-" + std::string(tag) + "-" + std::to_string(getpid());
    address_ = "mem:" + name_ + "?size=" + std::to_string(mib) + "MiB&devices=" +
               std::to_string(devices);
    kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
    opts.flags = KVPOOL_FORMAT_F_YES;
    opts.block_bytes = 16384;
    const int err = kvpool_format(address_.c_str(), &opts);
    cr_assert_eq(err, 0, "format: %s", kvpool_strerror_detail(nullptr));
  }
  ~Pool() {
    for (uint32_t d = 0; d < devices_; ++d) {
      shm_unlink(("/kvpool-" + name_ + "." + std::to_string(d)).c_str());
    }
  }
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;
  const char *address() const { return address_.c_str(); }

private:
  std::string name_, address_;
  uint32_t devices_;
};

// An open context; the first one of a test is usually the owner as well.
class Ctx {
public:
  explicit Ctx(const Pool &pool, bool owner = true, uint64_t engine = 0) {
    kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
    opts.owner = owner ? KVPOOL_OWNER_EMBEDDED : KVPOOL_OWNER_NONE;
    opts.engine_id = engine;
    opts.name = "unit";
    const int err = kvpool_open(pool.address(), &opts, &ctx_);
    cr_assert_eq(err, 0, "open: %s", kvpool_strerror_detail(nullptr));
  }
  ~Ctx() { kvpool_close(ctx_); }
  Ctx(const Ctx &) = delete;
  Ctx &operator=(const Ctx &) = delete;
  operator kvpool_ctx *() const { return ctx_; }

private:
  kvpool_ctx *ctx_ = nullptr;
};

inline kvpool_ns_opts ns_opts() {
  kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
  opts.model = "unit@1";
  opts.dtype = "bf16";
  return opts;
}

inline kvpool_ns *open_ns(kvpool_ctx *ctx, const char *name = "unit") {
  kvpool_ns_opts opts = ns_opts();
  kvpool_ns *ns = nullptr;
  const int err = kvpool_ns_open(ctx, name, &opts, &ns);
  cr_assert_eq(err, 0, "namespace: %s", kvpool_strerror_detail(ctx));
  return ns;
}

inline kvpool_key key_of(kvpool_ns *ns, uint64_t n) {
  kvpool_key key;
  cr_assert_eq(kvpool_key_wrap(ns, &n, sizeof n, &key), 0);
  return key;
}

// Bytes that depend on the seed and on their place.
inline std::vector<uint8_t> bytes_of(uint64_t seed, size_t count) {
  std::vector<uint8_t> out(count);
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;
  for (size_t i = 0; i < count; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    out[i] = static_cast<uint8_t>(x);
  }
  return out;
}

}  // namespace api_test
