// SPDX-License-Identifier: Apache-2.0
// A log-linear histogram: latencies of one operation in fixed memory, whatever their number.
// Every power of two is cut into 64 equal buckets, so a quantile is at most 1/64 above the true
// value. Histograms of several processes are merged bucket by bucket, without loss.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvpool::tools {

class Histogram {
public:
  static constexpr int kSubBits = 6;
  static constexpr std::uint32_t kSub = 1u << kSubBits;
  static constexpr std::uint32_t kBuckets = (64 - kSubBits + 1) * kSub;

  Histogram() : counts_(kBuckets, 0) {}

  void add(std::uint64_t value, std::uint64_t times = 1) {
    counts_[bucket_of(value)] += times;
    count_ += times;
    sum_ += static_cast<double>(value) * static_cast<double>(times);
    max_ = std::max(max_, value);
    min_ = std::min(min_, value);
  }

  void merge(const Histogram &other) {
    for (std::uint32_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
    min_ = std::min(min_, other.min_);
  }

  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return count_ == 0 ? 0 : max_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  double sum() const { return sum_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

  // The smallest value that at least `share` of all values do not exceed, rounded up to the end of
  // its bucket, never beyond the greatest value seen. 0 without values.
  std::uint64_t quantile(double share) const {
    if (count_ == 0) return 0;
    const double wanted = std::clamp(share, 0.0, 1.0) * static_cast<double>(count_);
    std::uint64_t rank = static_cast<std::uint64_t>(wanted);
    if (static_cast<double>(rank) < wanted || rank == 0) ++rank;
    std::uint64_t seen = 0;
    for (std::uint32_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen >= rank) return std::min(last_of(i), max_);
    }
    return max_;
  }

  // Non-empty buckets, for a process that hands its histogram to another one.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> buckets() const {
    std::vector<std::pair<std::uint32_t, std::uint64_t>> ret;
    for (std::uint32_t i = 0; i < kBuckets; ++i) {
      if (counts_[i] != 0) ret.emplace_back(i, counts_[i]);
    }
    return ret;
  }

  // The other end of buckets(); a bucket that cannot exist is refused.
  bool restore(const std::vector<std::pair<std::uint32_t, std::uint64_t>> &from, double sum,
               std::uint64_t min, std::uint64_t max) {
    Histogram fresh;
    for (const auto &[index, times] : from) {
      if (index >= kBuckets) return false;
      fresh.counts_[index] += times;
      fresh.count_ += times;
    }
    fresh.sum_ = sum;
    if (fresh.count_ != 0) {
      fresh.min_ = min;
      fresh.max_ = max;
    }
    *this = std::move(fresh);
    return true;
  }

  static std::uint32_t bucket_of(std::uint64_t value) {
    if (value < kSub) return static_cast<std::uint32_t>(value);
    const int shift = std::bit_width(value) - 1 - kSubBits;
    const auto low = static_cast<std::uint32_t>(value >> shift) - kSub;
    return (static_cast<std::uint32_t>(shift) + 1) * kSub + low;
  }

  // Greatest value of a bucket.
  static std::uint64_t last_of(std::uint32_t bucket) {
    if (bucket < kSub) return bucket;
    const std::uint32_t shift = bucket / kSub - 1;
    const std::uint64_t first = (std::uint64_t{kSub} + bucket % kSub) << shift;
    return first + ((std::uint64_t{1} << shift) - 1);
  }

private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  double sum_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::uint64_t max_ = 0;
};

}  // namespace kvpool::tools
