// SPDX-License-Identifier: Apache-2.0
// kvpool for C++: owners of the handles of kvpool.h, and errors as exceptions. Header only and
// thin: whatever is not here is done through get() with the C calls. C++17.
#ifndef KVPOOL_KVPOOL_HPP
#define KVPOOL_KVPOOL_HPP

#include <kvpool/kvpool.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvpool {
inline namespace v0 {

// A call that failed: code() is its negative errno, what() the library's sentence about it.
class error : public std::runtime_error {
public:
  error(int code, const char *what) : std::runtime_error(what), code_(code) {}
  int code() const noexcept { return code_; }
  kvpool_class group() const noexcept { return kvpool_error_class(code_); }

private:
  int code_;
};

// Passes counts on and throws failures.
inline int check(int result, const kvpool_ctx *ctx = nullptr) {
  if (result < 0) throw error(result, kvpool_strerror_detail(ctx));
  return result;
}

namespace detail {

// Owns one handle. Close is its C function; move only.
template <class T, void (*Close)(T *)>
class handle {
public:
  handle() = default;
  explicit handle(T *raw) noexcept : raw_(raw) {}
  handle(handle &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  handle &operator=(handle &&other) noexcept {
    if (this != &other) reset(std::exchange(other.raw_, nullptr));
    return *this;
  }
  ~handle() { reset(); }
  T *get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != nullptr; }
  void reset(T *raw = nullptr) noexcept {
    if (raw_ != nullptr) Close(raw_);
    raw_ = raw;
  }

private:
  T *raw_ = nullptr;
};

inline void unregister(kvpool_mem *mem) { kvpool_mem_unregister(mem); }

}  // namespace detail

using key = kvpool_key;

inline void format(const std::string &address, const kvpool_format_opts *opts = nullptr) {
  check(kvpool_format(address.c_str(), opts));
}

// Registered local memory. Outlives every operation that names it; goes before its store.
class memory : public detail::handle<kvpool_mem, detail::unregister> {
public:
  using handle::handle;
};

// A prepared operation. wait() is the usual end of one that was posted.
class operation : public detail::handle<kvpool_op, kvpool_op_free> {
public:
  operation() = default;
  operation(kvpool_ctx *ctx, kvpool_op *raw) noexcept : handle(raw), ctx_(ctx) {}
  void post(std::uint64_t deadline_ns = 0, std::uint64_t user = 0) {
    check(kvpool_post(get(), deadline_ns, user), ctx_);
  }
  bool running() { return kvpool_check(get()) == -EINPROGRESS; }
  int result() { return check(kvpool_check(get()), ctx_); }
  bool cancel() { return check(kvpool_cancel(get()), ctx_) == 1; }

private:
  kvpool_ctx *ctx_ = nullptr;
};

// An open namespace. Goes before its store.
class name_space : public detail::handle<kvpool_ns, kvpool_ns_close> {
public:
  name_space() = default;
  name_space(kvpool_ctx *ctx, kvpool_ns *raw) noexcept : handle(raw), ctx_(ctx) {}

  std::vector<key> chain(const std::uint32_t *tokens, std::size_t count, std::size_t block_tokens,
                         const key *parent = nullptr) {
    std::vector<key> keys(count / (block_tokens == 0 ? 1 : block_tokens));
    keys.resize(static_cast<std::size_t>(
        check(kvpool_key_chain(get(), parent, tokens, count, keys.size(), keys.data()), ctx_)));
    return keys;
  }
  key wrap(const void *bytes, std::size_t count) {
    key out;
    check(kvpool_key_wrap(get(), bytes, count, &out), ctx_);
    return out;
  }
  // Blocks of `keys` from the first on that are there.
  std::size_t lookup(const std::vector<key> &keys, kvpool_hit *hits = nullptr) {
    const int found = kvpool_lookup(get(), keys.data(), keys.size(), 0, 0, hits);
    return static_cast<std::size_t>(check(found, ctx_));
  }
  // True when stored now, false when it was there.
  bool put(const key &key, const void *bytes, std::uint64_t count, std::uint64_t deadline_ns = 0) {
    return check(kvpool_put(get(), &key, bytes, count, deadline_ns), ctx_) == 1;
  }
  // True when read and proven, false when there is no such block.
  bool get_block(const key &key, void *bytes, std::uint64_t count, std::uint64_t deadline_ns = 0) {
    return check(kvpool_get(get(), &key, bytes, count, deadline_ns), ctx_) == 1;
  }
  bool remove(const key &key, std::uint64_t deadline_ns = 0) {
    return check(kvpool_remove(get(), &key, 1, deadline_ns), ctx_) == 1;
  }
  void clear(std::uint64_t deadline_ns = 0) { check(kvpool_ns_clear(get(), deadline_ns), ctx_); }
  void bypass(bool on, std::uint64_t deadline_ns = 0) {
    check(kvpool_ns_bypass(get(), on ? 1 : 0, deadline_ns), ctx_);
  }
  operation prepare_get(const kvpool_block *blocks, std::size_t n, std::int32_t *status = nullptr) {
    kvpool_op *op = nullptr;
    check(kvpool_prep_get(get(), blocks, n, status, &op), ctx_);
    return operation(ctx_, op);
  }
  operation prepare_put(const kvpool_block *blocks, std::size_t n, std::int32_t *status = nullptr) {
    kvpool_op *op = nullptr;
    check(kvpool_prep_put(get(), blocks, n, status, &op), ctx_);
    return operation(ctx_, op);
  }

private:
  kvpool_ctx *ctx_ = nullptr;
};

// An open store.
class store : public detail::handle<kvpool_ctx, kvpool_close> {
public:
  // An empty address means $KVPOOL.
  explicit store(const std::string &address, const kvpool_open_opts *opts = nullptr) {
    kvpool_ctx *raw = nullptr;
    check(kvpool_open(address.empty() ? nullptr : address.c_str(), opts, &raw));
    reset(raw);
  }
  name_space open(const char *name, const kvpool_ns_opts &opts) {
    kvpool_ns *ns = nullptr;
    check(kvpool_ns_open(get(), name, &opts, &ns), get());
    return name_space(get(), ns);
  }
  memory add_memory(void *base, std::uint64_t bytes) {
    kvpool_mem *mem = nullptr;
    check(kvpool_mem_register(get(), base, bytes, nullptr, &mem), get());
    return memory(mem);
  }
  kvpool_stats stats() {
    kvpool_stats out = KVPOOL_OPTS(kvpool_stats);
    check(kvpool_stats_read(get(), &out), get());
    return out;
  }
  bool wait_owner(std::uint64_t deadline_ns = 0) {
    return check(kvpool_owner_wait(get(), deadline_ns), get()) == 1;
  }
};

}  // namespace v0
}  // namespace kvpool

#endif
