// SPDX-License-Identifier: Apache-2.0
// A member of a replay: takes requests, looks their prefix up, reads and verifies what is there,
// stores the rest. Its payload is made from key and nonce (payload.hpp), so what it reads proves
// itself.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "client.hpp"
#include "payload.hpp"
#include "replay/replay.hpp"

namespace kvpool::tools {

namespace {

constexpr std::uint64_t kSampleEvery = 8;
constexpr double kOperationSeconds = 20;

class Member {
public:
  Member(const Args &args, const Workload &workload, ControlPage &page)
      : workload_(workload),
        page_(page),
        number_(static_cast<std::uint32_t>(args.number("--member", 0))) {
    OpenAs as;
    as.name = fmt::format("replay-{}", number_);
    ctx_ = open_store(args.text("--pool"), as);
    kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
    opts.model = "replay";
    opts.dtype = "u8";
    opts.verify =
        args.text("--verify", "always") == "off" ? KVPOOL_VERIFY_OFF : KVPOOL_VERIFY_ALWAYS;
    opts.block_bytes = workload.block_bytes;
    opts.deadline_ns = deadline_in(30);
    kvpool_ns *ns = nullptr;
    checked(kvpool_ns_open(ctx_.get(), "replay", &opts, &ns), ctx_.get(), "namespace replay");
    ns_.reset(ns);
    const std::size_t bytes = workload.block_bytes * kReplayBatch;
    buffer_.reset(static_cast<char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
    if (buffer_ == nullptr) throw std::bad_alloc();
    std::memset(buffer_.get(), 0, bytes);
    nonce_ = mix64(now_ns()) ^ (static_cast<std::uint64_t>(number_) << 56);
  }

  MemberResult run() {
    page_.attached.fetch_add(1);
    const std::uint64_t per_pass = workload_.trace.requests.size();
    while (page_.stop.load(std::memory_order_relaxed) == 0 && !stop_requested()) {
      const std::uint64_t at = page_.next.fetch_add(1);
      if (at >= per_pass * workload_.passes) break;
      // Passes after the first are there to move --min-bytes.
      const bool enough =
          workload_.min_bytes != 0 && page_.bytes_moved.load() >= workload_.min_bytes;
      if (at >= per_pass && enough) break;
      replay(workload_.trace.requests[at % per_pass]);
    }
    return std::move(result_);
  }

private:
  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };

  // Times one call and now and then counts what it sent over the fabric.
  template <class Call>
  int timed(OperationResult &op, std::uint64_t blocks, Call call) {
    const bool sample = op.calls % kSampleEvery == 0;
    kvpool_stats before = KVPOOL_OPTS(kvpool_stats);
    if (sample) kvpool_stats_read(ctx_.get(), &before);
    const std::uint64_t start = now_ns();
    const int result = call();
    op.latency.add(now_ns() - start);
    if (sample) {
      kvpool_stats after = KVPOOL_OPTS(kvpool_stats);
      kvpool_stats_read(ctx_.get(), &after);
      ++op.sampled;
      op.round_trips += static_cast<double>(after.round_trips - before.round_trips +
                                            after.message_pairs - before.message_pairs);
      op.data_waves += static_cast<double>(after.data_waves - before.data_waves);
      op.lines_flushed +=
          static_cast<double>(after.lines_acquired + after.lines_retired + after.lines_fetched -
                              before.lines_acquired - before.lines_retired - before.lines_fetched);
    }
    ++op.calls;
    op.blocks += blocks;
    return result;
  }

  void replay(const Request &request) {
    const auto ids = workload_.trace.ids_of(request);
    ++result_.requests;
    if (ids.empty()) return;
    keys_.resize(ids.size());
    hits_.assign(ids.size(), kvpool_hit{});
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const IdBytes bytes = id_bytes(ids[i]);
      checked(kvpool_key_wrap(ns_.get(), bytes.bytes, sizeof(bytes.bytes), &keys_[i]), ctx_.get(),
              "key");
    }
    const bool chained = workload_.trace.tokens_per_id != 0;
    const std::uint32_t flags = chained ? 0 : KVPOOL_LOOKUP_F_ALL;
    const int found = timed(result_.lookup, ids.size(), [&] {
      return kvpool_lookup(ns_.get(), keys_.data(), keys_.size(), flags,
                           deadline_in(kOperationSeconds), hits_.data());
    });
    const auto prefix = static_cast<std::size_t>(checked(found, ctx_.get(), "lookup"));
    wanted_.clear();
    missing_.clear();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool hit = chained ? i < prefix : hits_[i].state == KVPOOL_STATE_HIT;
      (hit ? wanted_ : missing_).push_back(i);
    }
    read_blocks(chained);
    std::sort(missing_.begin(), missing_.end());
    for (std::size_t first = 0; first < missing_.size(); first += kReplayBatch) {
      store_blocks(first, std::min<std::size_t>(kReplayBatch, missing_.size() - first));
    }
  }

  // Blocks that went away between lookup and read become missing, and on a chain all behind them.
  void read_blocks(bool chained) {
    for (std::size_t first = 0; first < wanted_.size(); first += kReplayBatch) {
      const std::size_t n = std::min<std::size_t>(kReplayBatch, wanted_.size() - first);
      kvpool_block blocks[kReplayBatch] = {};
      std::int32_t status[kReplayBatch] = {};
      for (std::size_t i = 0; i < n; ++i) {
        blocks[i].key = keys_[wanted_[first + i]];
        blocks[i].hit = &hits_[wanted_[first + i]];
        blocks[i].plan.buf = buffer_.get() + i * workload_.block_bytes;
        blocks[i].plan.bytes = workload_.block_bytes;
      }
      const int read = timed(result_.get, n, [&] {
        return kvpool_get_blocks(ns_.get(), blocks, n, deadline_in(kOperationSeconds), status);
      });
      checked(read, ctx_.get(), "get");
      for (std::size_t i = 0; i < n; ++i) {
        const std::size_t at = wanted_[first + i];
        if (accept_block(keys_[at], status[i], buffer_.get() + i * workload_.block_bytes)) continue;
        missing_.push_back(at);
        if (!chained) continue;
        for (std::size_t j = first + i + 1; j < wanted_.size(); ++j) missing_.push_back(wanted_[j]);
        return;
      }
    }
  }

  bool accept_block(const kvpool_key &key, std::int32_t status, const char *bytes) {
    if (status == KVPOOL_STATUS_CORRUPT) {
      failed(fmt::format("verification failed: block {} does not match its checks", key_text(key)));
      return false;
    }
    if (status != KVPOOL_STATUS_OK) {
      ++result_.blocks_stale;
      return false;
    }
    std::uint64_t words[4];
    std::memcpy(words, key.bytes, sizeof(words));
    const PayloadReport report = payload_verify(words, bytes, workload_.block_bytes);
    result_.bytes_read += workload_.block_bytes;
    page_.bytes_moved.fetch_add(workload_.block_bytes, std::memory_order_relaxed);
    if (report.verdict != PayloadVerdict::kGood) {
      const bool foreign = report.verdict == PayloadVerdict::kNoHeader;
      failed(fmt::format("verification failed: block {} holds {} at byte {}", key_text(key),
                         foreign ? "another block's bytes" : "wrong bytes", report.first_bad));
      return false;
    }
    ++result_.blocks_hit;
    if (report.writer != number_) ++result_.blocks_hit_remote;
    return true;
  }

  void failed(std::string what) {
    ++result_.verify_failures;
    page_.verify_failures.fetch_add(1);
    if (result_.first_failure.empty()) result_.first_failure = std::move(what);
  }

  void store_blocks(std::size_t first, std::size_t n) {
    kvpool_block blocks[kReplayBatch] = {};
    std::int32_t status[kReplayBatch] = {};
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t at = missing_[first + i];
      char *bytes = buffer_.get() + i * workload_.block_bytes;
      PayloadId id;
      std::memcpy(id.key, keys_[at].bytes, sizeof(id.key));
      id.nonce = ++nonce_;
      id.writer = number_;
      payload_fill(id, bytes, workload_.block_bytes);
      blocks[i].key = keys_[at];
      if (at > 0) blocks[i].parent = keys_[at - 1];
      blocks[i].plan.buf = bytes;
      blocks[i].plan.bytes = workload_.block_bytes;
    }
    result_.blocks_missed += n;
    const int stored = timed(result_.put, n, [&] {
      return kvpool_put_blocks(ns_.get(), blocks, n, deadline_in(kOperationSeconds), status);
    });
    if (stored == -ENOSPC) {
      result_.blocks_full += n;
      return;
    }
    checked(stored, ctx_.get(), "put");
    for (std::size_t i = 0; i < n; ++i) {
      switch (status[i]) {
        case KVPOOL_STATUS_OK:
          ++result_.blocks_put;
          result_.bytes_written += workload_.block_bytes;
          page_.bytes_moved.fetch_add(workload_.block_bytes, std::memory_order_relaxed);
          break;
        case KVPOOL_STATUS_EXISTS:
          ++result_.blocks_exists;
          break;
        default:
          ++result_.blocks_full;
          break;
      }
    }
  }

  const Workload &workload_;
  ControlPage &page_;
  std::uint32_t number_;
  Context ctx_;
  Namespace ns_;
  std::unique_ptr<char, Free> buffer_;
  std::uint64_t nonce_ = 0;
  std::vector<kvpool_key> keys_;
  std::vector<kvpool_hit> hits_;
  std::vector<std::size_t> wanted_;
  std::vector<std::size_t> missing_;
  MemberResult result_;
};

void write_result(int fd, const MemberResult &result) {
  const std::string text = to_json(result).dump();
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t wrote = write(fd, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail(kExitFailed, "result", std::strerror(errno));
    at += static_cast<std::size_t>(wrote);
  }
  close(fd);
}

}  // namespace

int run_member(const Args &args, const Workload &workload) {
  const int fd = static_cast<int>(args.number("--control-fd", 0));
  void *memory = mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail(kExitFailed, "control page", std::strerror(errno));
  stop_on_signals();
  Member member(args, workload, *static_cast<ControlPage *>(memory));
  write_result(STDOUT_FILENO, member.run());
  return kExitFine;
}

}  // namespace kvpool::tools
