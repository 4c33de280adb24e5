// SPDX-License-Identifier: Apache-2.0
// payload_*, block_* and rows_read: bytes through the C API beside bare loops over as much memory.
//
// A figure's writes and reads go to different stores: lines that were flushed since they were
// written are written faster, and neither side shall gain by it.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>

#include "bench/figures.hpp"
#include "bench/rig.hpp"

namespace kvpool::tools::bench {
namespace {

constexpr u64 kMiB = u64{1} << 20;
constexpr u64 kBlockBytes = kMiB;
constexpr u64 kArenaBytes = 512 * kMiB;  // several times a last-level cache
constexpr double kHugeShare = 0.9;

double gbps(u64 bytes, u64 ns) { return static_cast<double>(bytes) / static_cast<double>(ns); }

// Local memory of a caller, in pages as large as the pool's, every page touched.
class Local {
public:
  explicit Local(u64 bytes) : arena_(bytes, true) {
    std::memset(arena_.base(), 0x5A, bytes);
  }
  std::byte *base() const { return arena_.base(); }

private:
  Arena arena_;
};

Json line_counts(const kvpool_stats &before, const kvpool_stats &after, u64 calls) {
  const auto each = [&](u64 a, u64 b) {
    return static_cast<double>(b - a) / static_cast<double>(calls);
  };
  Json ret;
  ret["message_pairs_per_call"] = each(before.message_pairs, after.message_pairs);
  ret["round_trips_per_call"] = each(before.round_trips, after.round_trips);
  ret["lines_acquired_per_call"] = each(before.lines_acquired, after.lines_acquired);
  ret["lines_published_per_call"] = each(before.lines_published, after.lines_published);
  ret["words_published_per_call"] = each(before.words_published, after.words_published);
  ret["lines_streamed_per_call"] = each(before.lines_streamed, after.lines_streamed);
  ret["lines_fetched_per_call"] = each(before.lines_fetched, after.lines_fetched);
  return ret;
}

// A store that is only written, or only read.
class Blocks {
public:
  Blocks(kvpool_verify verify, u64 block_bytes, u64 blocks)
      : store_({.bytes = blocks * block_bytes * 2 + 128 * kMiB,
                .block_bytes = static_cast<u32>(kBlockBytes),
                .verify = verify}),
        block_bytes_(block_bytes) {
    for (u64 i = 0; i < blocks; ++i) keys_.push_back(store_.key(i));
  }

  ApiStore &store() { return store_; }
  const std::vector<kvpool_key> &keys() const { return keys_; }

  // Blocks under new keys; the ones of the turn before are removed first, outside the time.
  template <class Put>
  u64 write(u64 count, Put &&put) {
    store_.remove(written_);
    written_.clear();
    for (u64 i = 0; i < count; ++i) written_.push_back(store_.key(next_++));
    before_ = store_.stats();
    const u64 start = now_ns();
    for (const kvpool_key &key : written_) put(key);
    const u64 took = now_ns() - start;
    counts_ = line_counts(before_, store_.stats(), count);
    return took;
  }

  void put(const kvpool_key &key, const void *buf) {
    const int stored = store_.checked_call(
        kvpool_put(store_.ns(), &key, buf, block_bytes_, deadline_in(60)), "put");
    if (stored != 1) fail(kExitFailed, "put", "a new key was there already");
  }

  // Fills the store once with what get() reads.
  void fill(const void *buf) {
    if (filled_) return;
    for (const kvpool_key &key : keys_) put(key, buf);
    filled_ = true;
  }

  template <class Get>
  u64 read(u64 count, Get &&get) {
    before_ = store_.stats();
    const u64 start = now_ns();
    for (u64 i = 0; i < count; ++i) {
      get(keys_[position_]);
      position_ = (position_ + 1) % keys_.size();
    }
    const u64 took = now_ns() - start;
    counts_ = line_counts(before_, store_.stats(), count);
    return took;
  }

  void get(const kvpool_key &key, void *buf) {
    const int found = store_.checked_call(
        kvpool_get(store_.ns(), &key, buf, block_bytes_, deadline_in(60)), "get");
    if (found != 1) fail(kExitFailed, "get", "a block that was put is not there");
  }

  const Json &counts() const { return counts_; }

private:
  ApiStore store_;
  u64 block_bytes_;
  std::vector<kvpool_key> keys_, written_;
  u64 next_ = u64{1} << 32;
  u64 position_ = 0;
  bool filled_ = false;
  kvpool_stats before_{};
  Json counts_;
};

class Payload final : public Group {
public:
  explicit Payload(const Effort &effort) : per_turn_(effort.of(128)), local_(kBlockBytes) {}

  Turn turn(std::string_view figure) override {
    prepare(figure);
    const u64 bytes = per_turn_ * kBlockBytes;
    Turn ret;
    if (figure.starts_with("payload_write")) {
      ret.value = gbps(bytes, blocks_->write(per_turn_, [&](const kvpool_key &key) {
        blocks_->put(key, local_.base());
      }));
      ret.baseline = bare_->write_gbps(kBlockBytes, per_turn_);
      bare_puts_.push_back(bare_->put_gbps(kBlockBytes, per_turn_) / ret.baseline);
    } else {
      blocks_->fill(local_.base());
      ret.value = gbps(bytes, blocks_->read(per_turn_, [&](const kvpool_key &key) {
        blocks_->get(key, local_.base());
      }));
      ret.baseline = bare_->read_gbps(kBlockBytes, per_turn_);
    }
    return ret;
  }

  Json details(std::string_view) override {
    Json ret = blocks_->counts();
    ret["baseline_page_bytes"] = bare_->has_huge_pages() ? 2 << 20 : 4 << 10;
    if (!bare_puts_.empty()) ret["bare_put_ratio"] = median(bare_puts_);
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  void prepare(std::string_view figure) {
    if (figure == prepared_) return;
    blocks_.reset();
    bare_.reset();
    bare_puts_.clear();
    const bool verify = figure.ends_with("_verify");
    bare_.emplace(kArenaBytes, true);
    blocks_.emplace(verify ? KVPOOL_VERIFY_ALWAYS : KVPOOL_VERIFY_OFF, kBlockBytes,
                    kArenaBytes / kBlockBytes);
    prepared_ = figure;
  }

  const u64 per_turn_;
  Local local_;
  std::string prepared_;
  std::optional<BareLoops> bare_;
  std::vector<double> bare_puts_;  // by turn: the bare put's share of the bare stream's speed
  std::optional<Blocks> blocks_;
};

// A block as an engine has it: a fragment for each layer's keys and each layer's values, in two
// orders of local memory.
class Fragments final : public Group {
public:
  explicit Fragments(const Effort &effort)
      : per_turn_(effort.of(48)), local_(kFragments * kSpacing), contiguous_(kBytes) {
    std::vector<u64> places(kFragments);
    std::iota(places.begin(), places.end(), u64{0});
    std::shuffle(places.begin(), places.end(), std::mt19937_64(7));
    for (u64 i = 0; i < kFragments; ++i) {
      kvpool_run run = {};
      run.local_offset = reinterpret_cast<u64>(local_.base()) + places[i] * kSpacing;
      run.block_offset = i * kFragmentBytes;
      run.fragment_bytes = kFragmentBytes;
      run.count = 1;
      run.local_stride = static_cast<int64_t>(kFragmentBytes);
      run.block_stride = kFragmentBytes;
      runs_.push_back(run);
    }
  }

  Turn turn(std::string_view figure) override {
    prepare(figure);
    const bool gather = figure == "block_gather";
    const u64 bytes = per_turn_ * kBytes;
    Turn ret;
    if (gather) {
      ret.value =
          gbps(bytes, blocks_->write(per_turn_, [&](const kvpool_key &k) { put(k, true); }));
      counts_ = blocks_->counts();
      ret.baseline =
          gbps(bytes, blocks_->write(per_turn_, [&](const kvpool_key &k) { put(k, false); }));
    } else {
      blocks_->fill(contiguous_.base());
      ret.value = gbps(bytes, blocks_->read(per_turn_, [&](const kvpool_key &k) { get(k, true); }));
      counts_ = blocks_->counts();
      ret.baseline =
          gbps(bytes, blocks_->read(per_turn_, [&](const kvpool_key &k) { get(k, false); }));
    }
    return ret;
  }

  Json details(std::string_view) override { return counts_; }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kFragments = 128;
  static constexpr u64 kFragmentBytes = 20 * 1024;
  static constexpr u64 kBytes = kFragments * kFragmentBytes;
  static constexpr u64 kSpacing = 68 * 1024;  // of fragments in local memory: no power of two

  void prepare(std::string_view figure) {
    if (figure == prepared_) return;
    blocks_.reset();
    blocks_.emplace(KVPOOL_VERIFY_OFF, kBytes, kArenaBytes / kBytes);
    prepared_ = figure;
  }

  kvpool_block block(const kvpool_key &key, bool scattered) const {
    kvpool_block block = {};
    block.key = key;
    block.bytes = kBytes;
    if (scattered) {
      block.plan.runs = runs_.data();
      block.plan.run_count = runs_.size();
    } else {
      block.plan.buf = contiguous_.base();
      block.plan.bytes = kBytes;
    }
    return block;
  }
  void put(const kvpool_key &key, bool scattered) {
    const kvpool_block b = block(key, scattered);
    const ApiStore &store = blocks_->store();
    const int n = kvpool_put_blocks(store.ns(), &b, 1, deadline_in(60), nullptr);
    if (store.checked_call(n, "put") != 1) fail(kExitFailed, "put", "a block was not stored");
  }
  void get(const kvpool_key &key, bool scattered) {
    const kvpool_block b = block(key, scattered);
    const ApiStore &store = blocks_->store();
    const int n = kvpool_get_blocks(store.ns(), &b, 1, deadline_in(60), nullptr);
    if (store.checked_call(n, "get") != 1) fail(kExitFailed, "get", "a block is not there");
  }

  const u64 per_turn_;
  Local local_, contiguous_;
  std::vector<kvpool_run> runs_;
  std::string prepared_;
  std::optional<Blocks> blocks_;
  Json counts_;
};

// Rows of sparse attention: random ones out of a batch of blocks found before.
class Rows final : public Group {
public:
  explicit Rows(const Effort &effort)
      : plans_(effort.of(32)), bare_(kBytes * kBlocks, true),
        blocks_(KVPOOL_VERIFY_OFF, kBytes, kBlocks), local_(kBytes) {
    blocks_.fill(local_.base());
    std::vector<kvpool_hit> hits(kBlocks);
    const int found = kvpool_lookup(blocks_.store().ns(), blocks_.keys().data(), kBlocks, 0, 0,
                                    hits.data());
    if (found != static_cast<int>(kBlocks)) fail(kExitFailed, "rows", "a block is not there");
    hits_ = std::move(hits);
    for (u64 i = 0; i < kBlocks; ++i) {
      kvpool_block block = {};
      block.key = blocks_.keys()[i];
      block.hit = &hits_[i];
      batch_.push_back(block);
    }
    rows_.resize(plans_ * kRows);
  }

  Turn turn(std::string_view) override {
    for (int64_t &row : rows_) row = static_cast<int64_t>(random_() % (kBlocks * kRowsPerBlock));
    const ApiStore &store = blocks_.store();
    const kvpool_stats before = store.stats();
    const u64 start = now_ns();
    for (u64 p = 0; p < plans_; ++p) {
      kvpool_rows plan = {};
      plan.local_offset = reinterpret_cast<u64>(local_.base());
      plan.rows = &rows_[p * kRows];
      plan.row_count = kRows;
      plan.row_bytes = kRowBytes;
      plan.rows_per_block = kRowsPerBlock;
      plan.block_stride = kStride;
      const int n =
          kvpool_get_rows(store.ns(), batch_.data(), kBlocks, &plan, deadline_in(60), nullptr);
      if (store.checked_call(n, "rows") != static_cast<int>(kBlocks)) {
        fail(kExitFailed, "rows", "a block is not there any more");
      }
    }
    const u64 took = now_ns() - start;
    counts_ = line_counts(before, store.stats(), plans_);
    Turn ret;
    ret.value = static_cast<double>(plans_ * kRows) * 1e3 / static_cast<double>(took);
    const double one_by_one = bare_.row_by_row_ns(kBareRows, kRowBytes);
    ret.baseline = 1e3 / one_by_one;
    batch_ratios_.push_back(one_by_one / bare_.row_batch_ns(kRows, kRowBytes, kBlocks, plans_));
    return ret;
  }

  Json details(std::string_view) override {
    Json ret = counts_;
    ret["bare_batch_ratio"] = median(batch_ratios_);
    ret["baseline_page_bytes"] = bare_.has_huge_pages() ? 2 << 20 : 4 << 10;
    return ret;
  }
  bool huge_pages() override { return huge_share() >= kHugeShare; }

private:
  static constexpr u64 kBlocks = 64;
  static constexpr u64 kBytes = 4 * kMiB;
  static constexpr u64 kRows = 1024;
  static constexpr u64 kRowBytes = 160;
  static constexpr u64 kBareRows = 32 * kRows;
  static constexpr u64 kStride = 176;  // rows start at every multiple of 16, as the baseline's do
  static constexpr u64 kRowsPerBlock = kBytes / kStride;

  const u64 plans_;
  BareLoops bare_;
  Blocks blocks_;
  Local local_;
  std::vector<kvpool_hit> hits_;
  std::vector<kvpool_block> batch_;
  std::vector<int64_t> rows_;
  std::vector<double> batch_ratios_;
  std::mt19937_64 random_{11};
  Json counts_;
};

}  // namespace

std::unique_ptr<Group> make_payload(const Effort &e) { return std::make_unique<Payload>(e); }
std::unique_ptr<Group> make_block(const Effort &e) { return std::make_unique<Fragments>(e); }
std::unique_ptr<Group> make_rows(const Effort &e) { return std::make_unique<Rows>(e); }

}  // namespace kvpool::tools::bench
