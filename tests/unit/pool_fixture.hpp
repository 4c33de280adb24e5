// SPDX-License-Identifier: Apache-2.0
// A store in anonymous memory with members and an owner as threads of one process: the pool layer's
// unit tests run over it. Locks are those of a file store, held by "processes" that a test can
// kill.
#pragma once

#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "arch/x86_memory.hpp"
#include "pool/pool.hpp"
#include "store/format.hpp"

namespace kvpool::test {

inline u64 clock_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

// Who holds which slot; 0: nobody.
struct LockTable {
  std::mutex mutex;
  std::map<std::pair<int, u32>, u32> holder;
};

class TestEnv {
public:
  using Memory = X86Memory;
  using Mutex = std::mutex;
  TestEnv(X86Memory &memory, LockTable &locks, u32 process)
      : memory_(memory), locks_(locks), process_(process), state_(process * 7919 + 1) {}

  X86Memory &memory() noexcept { return memory_; }
  u64 now_ns() noexcept { return clock_ns(); }
  u64 random() noexcept {
    u64 z = state_.fetch_add(0x9E3779B97F4A7C15ull);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    return (z ^ z >> 27) * 0x94D049BB133111EBull;
  }
  void sleep_ns(u64 ns) noexcept {
    const timespec t{static_cast<time_t>(ns / 1'000'000'000),
                     static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&t, nullptr);
  }
  void relax(u32 index) noexcept {
    if (index < 16) cpu_relax();
    else std::this_thread::yield();
  }
  bool try_lock(pool::LockKind kind, u32 index) noexcept {
    std::lock_guard guard(locks_.mutex);
    u32 &holder = locks_.holder[{static_cast<int>(kind), index}];
    if (holder != 0) return false;
    holder = process_;
    return true;
  }
  void unlock(pool::LockKind kind, u32 index) noexcept {
    std::lock_guard guard(locks_.mutex);
    locks_.holder[{static_cast<int>(kind), index}] = 0;
  }
  // What the kernel does when the process dies.
  void drop_locks() {
    std::lock_guard guard(locks_.mutex);
    for (auto &[what, holder] : locks_.holder) {
      if (holder == process_) holder = 0;
    }
  }
  bool revoked() noexcept { return false; }
  bool reach(PoolOffset end) noexcept {
    return end.byte() <= memory_.device_bytes(end.device()) && end.byte() <= can_map_;
  }
  // As under a limit on address space.
  void map_at_most(u64 bytes) { can_map_ = bytes; }
  constexpr bool mutant(pool::Mutant) const noexcept { return false; }
  void mark(const char *) noexcept {}

private:
  X86Memory &memory_;
  LockTable &locks_;
  u32 process_;
  std::atomic<u64> state_;
  u64 can_map_ = ~u64{0};
};

using Member = pool::Member<TestEnv>;
using Owner = pool::Owner<TestEnv>;

inline pool::Key make_key(u64 n) {
  pool::Key key;
  u64 h = n * 0x9E3779B97F4A7C15ull + 0x1234567;
  for (u64 &w : key.w) w = h = check_mix(h, n + 77);
  return key;
}

// One formatted store. Processes are numbered by the test from 1 on.
class TestStore {
public:
  // `room`: bytes of the device; those behind `bytes` are for a store that grows.
  explicit TestStore(media::FormatOptions options = {}, u64 bytes = u64{64} << 20, u64 room = 0)
      : bytes_(std::max(bytes, room)) {
    options.device_count = std::max<u32>(1, options.device_count);
    for (u32 d = 0; d < options.device_count; ++d) {
      const int fd = memfd_create("pool", MFD_CLOEXEC);
      cr_assert_geq(fd, 0);
      cr_assert_eq(ftruncate(fd, static_cast<off_t>(bytes_)), 0);
      void *p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      cr_assert_neq(p, MAP_FAILED);
      files_.push_back(fd);
      devices_.push_back({static_cast<std::byte *>(p), bytes_});
      options.device_bytes[d] = bytes;
    }
    memory_ = std::make_unique<X86Memory>(devices_);
    if (options.lease_ms == 0) options.lease_ms = 1000;
    if (options.grace_us == 0) options.grace_us = 1000;
    std::string why;
    const int err = media::plan_layout(options, layout_, &why);
    cr_assert_eq(err, 0, "%s", why.c_str());
    layout_.geometry.nonce = 0x1122334455667788;
    std::memset(layout_.geometry.uuid, 7, sizeof layout_.geometry.uuid);
    layout_.geometry.state = media::StoreState::kReady;
    TestEnv env(*memory_, locks_, 1);
    store::format_store(env, store::FormatWork{layout_.geometry, layout_.regions, false});
  }
  ~TestStore() {
    for (const DeviceMapping &device : devices_) munmap(device.base, device.bytes);
    for (int fd : files_) close(fd);
  }

  // Every load of the device faults from here on, and what is stored there is gone.
  void lose_device(u32 d) { cr_assert_eq(ftruncate(files_[d], 0), 0); }
  std::vector<std::byte> copy_device(u32 d) const {
    return {devices_[d].base, devices_[d].base + bytes_};
  }
  // It is there again, with what stood on it when the copy was made.
  void bring_back(u32 d, const std::vector<std::byte> &copy) {
    const int fd = files_[d];
    cr_assert_eq(ftruncate(fd, static_cast<off_t>(bytes_)), 0);
    // The first page last: a device is there again once its identity is.
    for (u64 at : {u64{4096}, u64{0}}) {
      const u64 n = at == 0 ? 4096 : bytes_ - at;
      cr_assert_eq(pwrite(fd, copy.data() + at, n, static_cast<off_t>(at)),
                   static_cast<ssize_t>(n));
    }
  }

  std::unique_ptr<TestEnv> process(u32 number) {
    return std::make_unique<TestEnv>(*memory_, locks_, number);
  }
  const media::Geometry &geometry() const { return layout_.geometry; }
  // What opening the store anew finds once lines and rings have moved.
  void set_control(const media::Geometry &geo) { layout_.geometry = geo; }
  const media::RegionTable &regions() const { return layout_.regions; }
  X86Memory &memory() { return *memory_; }
  LockTable &locks() { return locks_; }

private:
  u64 bytes_;
  std::vector<int> files_;
  std::vector<DeviceMapping> devices_;
  media::Layout layout_;
  LockTable locks_;
  std::unique_ptr<X86Memory> memory_;
};

// An owner that serves in a thread of its own until it is destroyed.
class ServingOwner {
public:
  ServingOwner(TestStore &store, u32 process, u32 standby = 0, pool::OwnerOptions how = {})
      : env_(store.process(process)), member_(*env_, store.geometry()) {
    pool::MemberOptions options;
    options.standby_slot = static_cast<u8>(standby);
    cr_assert_eq(member_.join(options), 0);
    owner_ = std::make_unique<Owner>(*env_, member_, how);
    cr_assert_eq(owner_->take_over(standby), 0);
    thread_ = std::thread([this] {
      while (!stop_ && owner_->step() >= 0) {
        if (owner_->wants_resize() && owner_->resize_now() != 0) break;
        if (owner_->wants_other_area() && owner_->move_area() != 0) break;
        if (owner_->wants_new_epoch() && owner_->renew_epoch() != 0) break;
        if (owner_->wants_larger_index() && owner_->enlarge_index() != 0) break;
        if (const u64 idle = owner_->idle_ns(); idle > 50'000) {
          env_->sleep_ns(std::min<u64>(idle / 4, 200'000));
        }
      }
    });
  }
  ~ServingOwner() { stop(); }
  // Ends like a killed process: nothing is given back.
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    env_->drop_locks();
  }
  Owner &operator*() { return *owner_; }
  Owner *operator->() { return owner_.get(); }

private:
  std::unique_ptr<TestEnv> env_;
  Member member_;
  std::unique_ptr<Owner> owner_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A member with its lease kept by a thread; kill() ends it like a killed process.
class LiveMember {
public:
  LiveMember(TestStore &store, u32 process, pool::MemberOptions options = {})
      : env_(store.process(process)), member_(*env_, store.geometry()) {
    cr_assert_eq(member_.join(options), 0);
    keeper_ = std::thread([this] {
      while (!stop_) {
        if (!frozen_) member_.tick();
        env_->sleep_ns(5'000'000);
      }
    });
  }
  ~LiveMember() {
    halt();
    member_.leave();
  }
  void kill() {
    halt();
    env_->drop_locks();
  }
  void freeze(bool on) { frozen_ = on; }
  Member &operator*() { return member_; }
  Member *operator->() { return &member_; }
  u64 in(u64 ms) { return env_->now_ns() + ms * 1'000'000; }
  u64 shard = 0;  // that it writes

private:
  void halt() {
    stop_ = true;
    if (keeper_.joinable()) keeper_.join();
  }
  std::unique_ptr<TestEnv> env_;
  Member member_;
  std::atomic<bool> stop_{false}, frozen_{false};
  std::thread keeper_;
};

// Options of stores whose members may be given up, and blocks used again, soon.
inline media::FormatOptions lease_of(u32 lease_ms) {
  media::FormatOptions options;
  options.lease_ms = lease_ms;
  options.grace_us = 500;
  return options;
}

inline pool::MemberOptions of_group(u64 group) {
  pool::MemberOptions options;
  options.group = group;
  return options;
}

inline void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

template <class F>
bool within_ms(int ms, F done) {
  for (int i = 0; i < ms; ++i) {
    if (done()) return true;
    wait_ms(1);
  }
  return done();
}

// Opens (or creates) a namespace named by one byte.
inline pool::NsRef open_ns(LiveMember &member, u8 name = 1, u64 quota = 0) {
  media::NsOpenBody body{};
  std::memset(body.fingerprint, name, sizeof body.fingerprint);
  body.create = 1;
  body.quota_bytes = quota;
  media::NsAnswer answer{};
  const int err = member->ns_open(body, member.in(5000), answer);
  cr_assert_eq(err, 0, "ns_open: %d", err);
  return {static_cast<u16>(answer.id), answer.epoch};
}

inline int ns_control(LiveMember &member, u32 id, u32 epoch, media::NsOp op,
                      media::NsAnswer &ret_answer, u8 name = 1) {
  media::NsControlBody body{};
  body.id = id;
  body.epoch = epoch;
  body.op = static_cast<u8>(op);
  std::memset(body.fingerprint, name, sizeof body.fingerprint);
  return member->ns_control(body, member.in(1000), ret_answer);
}

// Publishes `key` over a block of `bytes`, without payload. Returns the publication's result.
inline int put_block(LiveMember &member, pool::NsRef ns, u64 key, u64 bytes = 64 * 1024,
                     pool::Publication *ret = nullptr) {
  pool::Publication p;
  const media::BlockShape shape = media::block_shape(bytes, 1);
  if (int err = member->reserve(shape.block_bytes(), 1, member.in(5000), &p.block)) return err;
  p.key = make_key(key);
  p.ns = ns;
  p.payload_lines = bytes / kLineBytes;
  p.check_hash = key;
  const int err = member->publish(&p, 1, member.in(5000));
  if (p.result == -EEXIST) member->abort(p.block);
  if (ret) *ret = p;
  return err ? err : p.result;
}

// One shard at a time of what another member reserved.
inline int begin_shard(LiveMember &member, u64 reserver, u64 ms = 5000) {
  return member->begin_shard_write(reserver, member.in(ms), member.shard);
}
inline void end_shard(LiveMember &member) { member->end_shard_write(member.shard); }

inline pool::Hit look(LiveMember &member, pool::NsRef ns, u64 key) {
  const pool::Key k = make_key(key);
  pool::Hit hit;
  const int err = member->lookup(ns, &k, 1, {}, &hit);
  cr_assert_eq(err, 0, "lookup: %d", err);
  return hit;
}

}  // namespace kvpool::test
