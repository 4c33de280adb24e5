// SPDX-License-Identifier: Apache-2.0
// Stores to measure on: memory without a name that other processes of the benchmark can open, an
// owner in a process of its own, and this process as a member. Owns them and their order of life.
//
// Pinning: owners run on the first CPU this process may use, whoever asks on the second.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include <kvpool/kvpool.h>

#include "bench/bare.hpp"
#include "client.hpp"
#include "store/context.hpp"

namespace kvpool::tools::bench {

inline constexpr u32 kOwnerCpu = 0;
inline constexpr u32 kClientCpu = 1;

// A memfd and the address under which every process of this user finds it while this one lives.
class PoolFile {
public:
  // Throws Failure. Nothing is reserved yet.
  explicit PoolFile(u64 bytes);
  ~PoolFile();
  PoolFile(const PoolFile &) = delete;
  PoolFile &operator=(const PoolFile &) = delete;
  const std::string &address() const { return address_; }
  u64 bytes() const { return bytes_; }

private:
  int fd_ = -1;
  u64 bytes_;
  std::string address_;
};

// Share of the resident bytes of all PoolFile mappings of this process that 2 MiB pages map.
double huge_share();

// `kvpool bench --child WHAT` in a process of its own on one CPU; ends with this object, or with
// us.
class Child {
public:
  Child() = default;
  // Throws Failure. `what`: see run_child().
  Child(u32 cpu, const std::string &what);
  ~Child();
  Child(Child &&other) noexcept : pid_(other.pid_) { other.pid_ = 0; }
  Child &operator=(Child &&other) noexcept;
  bool running();

private:
  pid_t pid_ = 0;
};

// The other end: "serve ADDRESS" is an owner, "members N ADDRESS" N members that only keep their
// lease. Returns the exit code.
int run_child(const std::string &what);

struct StoreShape {
  u64 bytes = u64{1} << 30;
  u32 block_bytes = 1 << 20;  // smallest expected
  u32 hosts = 0;        // 0: the default
  u32 members_per_host = 16;
  bool sparse = false;  // payload is never touched: only the metadata takes memory
  kvpool_verify verify = KVPOOL_VERIFY_OFF;
};

// A store with its owner, this process as a member through the C API, and one namespace.
class ApiStore {
public:
  explicit ApiStore(const StoreShape &shape);

  const PoolFile &file() const { return file_; }
  kvpool_ctx *ctx() const { return ctx_.get(); }
  kvpool_ns *ns() const { return ns_.get(); }
  kvpool_key key(u64 n) const;  // wrapped by the namespace
  kvpool_stats stats() const;
  // Throws Failure with what the library says.
  int checked_call(int result, const char *what) const;
  // Takes blocks away and waits until their room can be used again.
  void remove(const std::vector<kvpool_key> &keys) const;
  // From now on nobody serves.
  void end_owner() { owner_ = Child(); }

private:
  PoolFile file_;
  Child owner_;
  Context ctx_;
  Namespace ns_;
};

// A second membership of this process in a store, below the C API: what requests cost, and filling
// an index without touching payload.
class PoolMember {
public:
  explicit PoolMember(const std::string &address);
  store::Context &context() { return *context_; }
  pool::Member<store::ProcessEnv> &member() { return context_->member(); }
  Counters counters() { return context_->env().memory().total_counters(); }

private:
  std::unique_ptr<store::Context> context_;
};

// Key number n of an index filled by fill(): uniform, a function of n alone.
kvpool_key plain_key(u64 n);

// Publishes keys [from, to) as blocks of 4 KiB whose payload nobody writes. Returns the nanoseconds
// that publishing alone took. A few may be refused, or be displaced by a later one, because both
// their groups of the index are full. Throws Failure on everything else.
u64 fill(PoolMember &member, pool::NsRef ns, u64 from, u64 to);

// A put without the copy of its payload: room for one block of 4 KiB, and its publication. 0, or
// -ENOSPC where both groups of the key are full. Throws Failure on everything else.
int put_one(PoolMember &member, pool::NsRef ns, u64 n);

pool::NsRef ns_ref(const ApiStore &store);

}  // namespace kvpool::tools::bench
