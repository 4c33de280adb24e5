// SPDX-License-Identifier: Apache-2.0
// Stores, processes and members for the figures.
#include "bench/rig.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "media/superblock.hpp"
#include "say.hpp"
#include "store/format.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr u32 kLeaseMs = 10'000;  // a loaded machine may keep a process waiting for long
constexpr u32 kGraceUs = 1'000;   // removed blocks are reused at once: nobody reads them here
constexpr const char *kMemoryName = "kvpool-bench-pool";
constexpr double kOwnerWaitSeconds = 60;
#ifndef MADV_COLLAPSE
constexpr int kMadvCollapse = 25;
#else
constexpr int kMadvCollapse = MADV_COLLAPSE;
#endif

std::atomic<bool> g_child_stops{false};
std::atomic<kvpool_ctx *> g_child_serves{nullptr};

void stop_child(int) {
  g_child_stops.store(true);
  if (kvpool_ctx *ctx = g_child_serves.load(); ctx != nullptr) kvpool_serve_stop(ctx);
}

// A new store in `file` with every byte reserved, through the C API.
void format_whole(const PoolFile &file, const StoreShape &shape) {
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.flags = KVPOOL_FORMAT_F_YES;
  opts.block_bytes = shape.block_bytes;
  opts.hosts = shape.hosts;
  opts.members_per_host = shape.members_per_host;
  opts.lease_ms = kLeaseMs;
  opts.grace_us = kGraceUs;
  const int err = kvpool_format(file.address().c_str(), &opts);
  if (err < 0) fail_errno("memory for a store", err, kvpool_strerror_detail(nullptr));
}

// The same with nothing reserved but the metadata, in 2 MiB pages where the kernel gives them:
// millions of entries whose payload nobody touches need no memory for it.
void format_sparse(const PoolFile &file, const StoreShape &shape) {
  backend::Address address;
  std::unique_ptr<backend::Backend> backend;
  auto status = backend::parse_address(file.address().c_str(), address);
  address.huge.reset();
  if (status.ok())
    status = backend::Backend::open(address, backend::OpenMode::kReadWrite, {}, backend);
  if (!status.ok()) fail_errno("memory for an index", status.err, status.what);
  media::FormatOptions options;
  options.device_bytes[0] = shape.bytes;
  options.device_count = 1;
  options.hosts = 1;
  options.members_per_host = static_cast<u16>(shape.members_per_host);
  options.standbys = 1;
  options.min_block_bytes = shape.block_bytes;
  options.lease_ms = kLeaseMs;
  options.grace_us = kGraceUs;
  media::Layout layout;
  std::string why;
  if (const int err = media::plan_layout(options, layout, &why)) {
    fail_errno("an index to measure on", err, why);
  }
  std::random_device random;
  for (u8 &byte : layout.geometry.uuid) byte = static_cast<u8>(random());
  layout.geometry.nonce = u64{random()} << 32 | random() | 1;
  std::byte *base = backend->devices()[0].base;
  constexpr u64 kPage = u64{2} << 20;
  const u64 metadata =
      std::min((layout.geometry.control_end(0) + kPage - 1) / kPage * kPage, shape.bytes);
  for (u64 at = 0; at < metadata; at += kPage) {
    base[at] = std::byte{0};
    (void)madvise(base + at, kPage, kMadvCollapse);  // where it is refused, small pages serve
  }
  store::ProcessEnv env(*backend);
  store::format_store(env, store::FormatWork{layout.geometry, layout.regions, false});
}

int serve(const std::string &address) {
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.name = "bench-owner";
  kvpool_ctx *ctx = nullptr;
  int result = kvpool_open(address.c_str(), &opts, &ctx);
  if (result < 0) {
    fail_errno("owner of a measured store", result, kvpool_strerror_detail(nullptr));
  }
  g_child_serves.store(ctx);
  if (!g_child_stops.load()) result = kvpool_serve(ctx, nullptr);
  g_child_serves.store(nullptr);
  const std::string why = kvpool_strerror_detail(ctx);
  kvpool_close(ctx);
  if (result < 0) fail_errno("owner of a measured store", result, why);
  return kExitFine;
}

// Members that are there and do nothing: the owner watches them, they renew their leases.
int idle_members(u32 count, const std::string &address_text) {
  struct One {
    std::unique_ptr<backend::Backend> backend;
    std::unique_ptr<store::ProcessEnv> env;
    std::unique_ptr<pool::Member<store::ProcessEnv>> member;
  };
  std::vector<One> members;
  media::Geometry geometry{};
  u32 host = 1;  // the first one has the members that work
  while (members.size() < count) {
    One one;
    backend::Address address;
    auto status = backend::parse_address(address_text.c_str(), address);
    address.host = host;
    if (status.ok()) {
      status = backend::Backend::open(address, backend::OpenMode::kReadWrite, {}, one.backend);
    }
    if (!status.ok()) fail_errno("idle members", status.err, status.what);
    if (members.empty()) {
      const backend::DeviceSpan &d = one.backend->devices()[0];
      media::MappedReader::Device device{d.base, d.bytes};
      media::MappedReader reader(&device, 1);
      media::SuperblockRead superblock;
      std::string why;
      if (const int err = media::read_superblock(reader, superblock, &why)) {
        fail_errno("idle members", err, why);
      }
      geometry = superblock.geometry;
    }
    one.env = std::make_unique<store::ProcessEnv>(*one.backend);
    one.member = std::make_unique<pool::Member<store::ProcessEnv>>(*one.env, geometry);
    const int err = one.member->join({.host = host, .pid = static_cast<u32>(getpid())});
    if (err == -EUSERS && ++host < geometry.host_count) continue;
    if (err) fail_errno(fmt::format("idle member {}", members.size()), err);
    members.push_back(std::move(one));
  }
  while (!g_child_stops.load()) {
    for (One &one : members) {
      if (one.member->tick() == -ESTALE) fail(kExitFailed, "idle members", "lost a lease");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  for (One &one : members) one.member->leave();
  return kExitFine;
}

}  // namespace

PoolFile::PoolFile(u64 bytes) : bytes_(bytes) {
  fd_ = memfd_create(kMemoryName, MFD_CLOEXEC);
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    if (fd_ >= 0) close(fd_);
    fail_errno("memory for a store", error);
  }
  address_ = fmt::format("file:/proc/{}/fd/{}?huge=on", getpid(), fd_);
}

PoolFile::~PoolFile() { close(fd_); }

double huge_share() {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool ours = false;
  u64 resident = 0, huge = 0;
  while (std::getline(maps, line)) {
    if (line.find(kMemoryName) != std::string::npos) {
      ours = true;
    } else if (line.find('-') < line.find(' ') && line.find(':') > line.find(' ')) {
      ours = false;  // the head of another mapping
    }
    if (!ours) continue;
    if (line.starts_with("Rss:")) resident += std::strtoull(line.c_str() + 4, nullptr, 10);
    if (line.starts_with("ShmemPmdMapped:")) huge += std::strtoull(line.c_str() + 15, nullptr, 10);
  }
  return resident == 0 ? 0 : static_cast<double>(huge) / static_cast<double>(resident);
}

Child::Child(u32 cpu, const std::string &what) {
  const pid_t parent = getpid();
  const std::string self = "/proc/self/exe";
  pid_ = fork();
  if (pid_ < 0) fail_errno("a second process", errno);
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  pin_to(cpu);
  execl(self.c_str(), "kvpool", "bench", "--child", what.c_str(), nullptr);
  _exit(kExitFailed);
}

Child::~Child() {
  if (pid_ <= 0) return;
  kill(pid_, SIGTERM);
  int status = 0;
  for (int tries = 0; tries < 500; ++tries) {  // five seconds to leave in peace
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_ || (ended < 0 && errno != EINTR)) return;
    usleep(10'000);
  }
  kill(pid_, SIGKILL);
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
}

Child &Child::operator=(Child &&other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

bool Child::running() {
  int status = 0;
  if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) != 0) pid_ = 0;
  return pid_ > 0;
}

int run_child(const std::string &what) {
  struct sigaction action = {};
  action.sa_handler = stop_child;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const auto space = what.find(' ');
  const std::string verb = what.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : what.substr(space + 1);
  if (verb == "serve") return serve(rest);
  const auto second = rest.find(' ');
  u64 count = 0;
  if (verb != "members" || second == std::string::npos ||
      !parse_count(rest.substr(0, second), count)) {
    fail(kExitUsage, "--child", "is for kvpool bench itself");
  }
  return idle_members(static_cast<u32>(count), rest.substr(second + 1));
}

ApiStore::ApiStore(const StoreShape &shape) : file_(shape.bytes) {
  if (shape.sparse) {
    format_sparse(file_, shape);
  } else {
    format_whole(file_, shape);
  }
  owner_ = Child(kOwnerCpu, "serve " + file_.address());
  pin_to(kClientCpu);
  OpenAs as;
  as.name = "bench";
  if (!shape.sparse) as.flags |= KVPOOL_OPEN_F_HUGE;
  ctx_ = open_store(file_.address(), as);
  const int served = kvpool_owner_wait(ctx_.get(), deadline_in(kOwnerWaitSeconds));
  if (served <= 0) fail(kExitFailed, "owner of a measured store", "does not serve in time");
  kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
  opts.model = "bench@1";
  opts.dtype = "bf16";
  opts.verify = static_cast<u32>(shape.verify);
  kvpool_ns *ns = nullptr;
  checked_call(kvpool_ns_open(ctx_.get(), "bench", &opts, &ns), "namespace");
  ns_.reset(ns);
}

kvpool_key ApiStore::key(u64 n) const {
  kvpool_key key;
  checked_call(kvpool_key_wrap(ns(), &n, sizeof n, &key), "key");
  return key;
}

kvpool_stats ApiStore::stats() const {
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  checked_call(kvpool_stats_read(ctx(), &stats), "statistics");
  return stats;
}

int ApiStore::checked_call(int result, const char *what) const {
  if (result < 0) fail_errno(what, result, kvpool_strerror_detail(ctx()));
  return result;
}

void ApiStore::remove(const std::vector<kvpool_key> &keys) const {
  constexpr std::size_t kBatch = 1024;
  for (std::size_t at = 0; at < keys.size(); at += kBatch) {
    const std::size_t n = std::min(kBatch, keys.size() - at);
    checked_call(kvpool_remove(ns(), &keys[at], n, deadline_in(60)), "remove");
  }
  // Grace, and the owner's chores behind it.
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

PoolMember::PoolMember(const std::string &address) {
  store::ContextOptions options;
  options.name = "bench";
  std::string why;
  if (const int err = store::Context::open(address.c_str(), options, context_, &why)) {
    fail_errno("member of a measured store", err, why);
  }
}

kvpool_key plain_key(u64 n) {
  kvpool_key key;
  u64 words[4];
  u64 h = n * 0x9E3779B97F4A7C15ull + 5;
  for (u64 &word : words) word = h = check_mix(h, n + 77);
  std::memcpy(key.bytes, words, sizeof key.bytes);
  return key;
}

namespace {

constexpr u64 kPayloadLines = 63;  // with its check line exactly 4 KiB

// Publications of keys [from, from + n) in blocks just reserved, ready to be sent.
void reserve_small(PoolMember &member, pool::NsRef ns, u64 from, u32 n, pool::Block *blocks,
                   pool::Publication *ret_publications) {
  const u64 bytes = media::block_shape(kPayloadLines * kLineBytes, 1).block_bytes();
  if (const int err = member.member().reserve(bytes, n, deadline_in(60), blocks)) {
    fail_errno("filling an index", err, "no room for its blocks");
  }
  for (u32 i = 0; i < n; ++i) {
    pool::Publication &p = ret_publications[i];
    p = {};
    const kvpool_key key = plain_key(from + i);
    std::memcpy(p.key.w, key.bytes, sizeof p.key.w);
    p.ns = ns;
    p.block = blocks[i];
    p.payload_lines = kPayloadLines;
    p.check_hash = from + i;
  }
}

void publish_small(PoolMember &member, u32 n, pool::Publication *publications) {
  const int err = member.member().publish(publications, n, deadline_in(60));
  if (err) fail_errno("filling an index", err, "the owner does not answer");
}

// What a publication was answered; the room of one that was refused goes back.
int settled(PoolMember &member, const pool::Publication &p) {
  if (p.result == 0) return 0;
  if (p.result != -ENOSPC) fail_errno("filling an index", p.result);
  member.member().abort(p.block);
  return p.result;
}

}  // namespace

u64 fill(PoolMember &member, pool::NsRef ns, u64 from, u64 to) {
  constexpr u32 kBatch = 1024;
  std::vector<pool::Block> blocks(kBatch);
  std::vector<pool::Publication> publications(kBatch);
  u64 took = 0;
  for (u64 at = from; at < to; at += kBatch) {
    const u32 n = static_cast<u32>(std::min<u64>(kBatch, to - at));
    reserve_small(member, ns, at, n, blocks.data(), publications.data());
    const u64 start = now_ns();
    publish_small(member, n, publications.data());
    took += now_ns() - start;
    for (u32 i = 0; i < n; ++i) (void)settled(member, publications[i]);
  }
  return took;
}

int put_one(PoolMember &member, pool::NsRef ns, u64 n) {
  pool::Block block;
  pool::Publication publication;
  reserve_small(member, ns, n, 1, &block, &publication);
  publish_small(member, 1, &publication);
  return settled(member, publication);
}

pool::NsRef ns_ref(const ApiStore &store) {
  kvpool_ns_info info = {};
  store.checked_call(kvpool_ns_stat(store.ns(), &info), "namespace");
  return {static_cast<u16>(info.id), info.epoch};
}

}  // namespace kvpool::tools::bench
