// SPDX-License-Identifier: Apache-2.0
#include "party.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "say.hpp"

namespace kvpool::torture {

using tools::checked;
using tools::deadline_in;
using tools::now_ns;

namespace {

constexpr double kOpenSeconds = 40;  // a store without an owner is served again within this

// Opening may meet any moment of a take-over.
bool passing(int result) {
  return result == -EAGAIN || result == -ETIMEDOUT || result == -EUSERS || result == -ENOTCONN ||
         result == -EINPROGRESS;
}

// Repeats `call` while it fails for a passing reason and nobody asks to stop.
template <class Call>
int patiently(const Shared &shared, Call call) {
  const std::uint64_t until = deadline_in(kOpenSeconds);
  for (;;) {
    const int result = call();
    if (result >= 0 || !passing(result)) return result;
    if (now_ns() >= until || shared.stop.load() != 0) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

Party::Party(const PartyOptions &options, Shared &shared)
    : shared_(shared), random_(options.seed), options_(options), buffer_(kBytesMax),
      copy_(kBytesMax) {
  kvpool_open_opts open = KVPOOL_OPTS(kvpool_open_opts);
  open.name = options_.name.c_str();
  open.engine_id = options_.engine;
  open.engine_rank = options_.rank;
  open.engine_world = options_.world;
  kvpool_ctx *ctx = nullptr;
  checked(patiently(shared,
                    [&] { return kvpool_open(options_.address.c_str(), &open, &ctx); }),
          nullptr, options_.address);
  ctx_.reset(ctx);
  kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
  opts.model = "torture";
  opts.dtype = "u8";
  opts.verify = options_.verify;
  kvpool_ns *ns = nullptr;
  checked(patiently(shared,
                    [&] {
                      opts.deadline_ns = deadline_in(kCallSeconds);
                      return kvpool_ns_open(ctx_.get(), "torture", &opts, &ns);
                    }),
          ctx_.get(), "namespace torture");
  ns_.reset(ns);
  for (std::uint32_t i = 0; i < kAllKeys; ++i) {
    kvpool_key key = {};
    checked(kvpool_key_wrap(ns_.get(), &i, sizeof(i), &key), ctx_.get(), "key");
    keys_.push_back(key);
  }
}

bool Party::over() const { return shared_.stop.load() != 0 || tools::stop_requested(); }

std::uint64_t Party::rejoins() const {
  kvpool_stats stats = KVPOOL_OPTS(kvpool_stats);
  return kvpool_stats_read(ctx_.get(), &stats) < 0 ? 0 : stats.rejoins;
}

bool Party::expected(int result) {
  if (result == -EAGAIN || result == -ETIMEDOUT || result == -EINPROGRESS) {
    shared_.unserved.fetch_add(1);
    return true;
  }
  return result >= 0 || result == -ENOSPC || result == -ENOENT || result == -ESTALE ||
         result == -EKEYEXPIRED;
}

void Party::unexplained(const std::string &what, int result) {
  shared_.errors.fetch_add(1);
  note_wrong(shared_, fmt::format("{} {}: {} ({})", options_.name, what, std::strerror(-result),
                                  kvpool_strerror_detail(ctx_.get())));
}

std::uint64_t Party::fill(std::uint32_t key) {
  const std::uint64_t nonce = random_.next() | 1;
  fill_with(key, nonce, options_.writer);
  return nonce;
}

void Party::fill_with(std::uint32_t key, std::uint64_t nonce, std::uint32_t writer) {
  tools::PayloadId id;
  std::memcpy(id.key, keys_[key].bytes, sizeof(id.key));
  id.nonce = nonce;
  id.writer = writer;
  tools::payload_fill(id, buffer_.data(), bytes_of(key));
}

bool Party::judge(std::uint32_t key, std::uint64_t version, std::uint64_t newest,
                  std::uint64_t looked_up, std::uint64_t *ret_nonce) {
  shared_.reads.fetch_add(1);
  std::uint64_t words[4];
  std::memcpy(words, keys_[key].bytes, sizeof(words));
  const tools::PayloadReport report =
      tools::payload_verify(words, copy_.data(), bytes_of(key));
  if (report.verdict != tools::PayloadVerdict::kGood) {
    const bool foreign = report.verdict == tools::PayloadVerdict::kNoHeader;
    wrong(key, fmt::format("{} at byte {}, version {:x}",
                           foreign ? "foreign bytes" : "wrong bytes", report.first_bad, looked_up));
    return false;
  }
  if (looked_up < newest) {
    wrong(key, fmt::format("version {:x} after {:x} was seen", looked_up, newest));
    return false;
  }
  if (version != 0 && !same_content(key, version, report.nonce)) {
    wrong(key, fmt::format("version {:x} has two contents", version));
    return false;
  }
  std::uint64_t now = shared_.newest[key].load();
  while (now < version && !shared_.newest[key].compare_exchange_weak(now, version)) {
  }
  if (ret_nonce != nullptr) *ret_nonce = report.nonce;
  return true;
}

// Whether every reader so far saw the same publication under this version.
bool Party::same_content(std::uint32_t key, std::uint64_t version, std::uint64_t nonce) {
  const std::uint64_t where = tools::mix64(version ^ (std::uint64_t{key} << 52));
  const std::uint64_t tag = (where | 1) << 32;
  const std::uint64_t mine = tag | static_cast<std::uint32_t>(tools::mix64(nonce));
  std::uint64_t before = 0;
  std::atomic<std::uint64_t> &slot = shared_.seen[where >> 44];
  if (slot.compare_exchange_strong(before, mine)) return true;
  return (before & ~std::uint64_t{0xffffffff}) != tag || before == mine;
}

void Party::wrong(std::uint32_t key, const std::string &what) {
  shared_.wrong_reads.fetch_add(1);
  note_wrong(shared_, fmt::format("{}: key {}: {}", options_.name, key, what));
}

void Party::refused(std::uint32_t) { shared_.refused_reads.fetch_add(1); }

void die_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

}  // namespace kvpool::torture
