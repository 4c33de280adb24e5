// SPDX-License-Identifier: Apache-2.0
// Shows: quantiles of the tools' histogram are those of the sorted values, to a bucket's width.
// How: random values over many magnitudes, against a sorted copy; parts merged and sent as buckets.
#include <criterion/criterion.h>

#include <algorithm>
#include <vector>

#include "histogram.hpp"
#include "payload.hpp"

using kvpool::tools::Histogram;

namespace {

std::uint64_t draw(std::uint64_t &state) {
  state += 0x9e3779b97f4a7c15ull;
  const std::uint64_t x = kvpool::tools::mix64(state);
  return x >> (kvpool::tools::mix64(x) % 64);
}

std::uint64_t exact(const std::vector<std::uint64_t> &sorted, double share) {
  const double wanted = share * static_cast<double>(sorted.size());
  auto rank = static_cast<std::size_t>(wanted);
  if (static_cast<double>(rank) < wanted || rank == 0) ++rank;
  return sorted[rank - 1];
}

void compare(const Histogram &histogram, std::vector<std::uint64_t> values) {
  std::sort(values.begin(), values.end());
  cr_assert_eq(histogram.count(), values.size());
  cr_assert_eq(histogram.min(), values.front());
  cr_assert_eq(histogram.max(), values.back());
  for (const double share : {0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const std::uint64_t truth = exact(values, share);
    const std::uint64_t said = histogram.quantile(share);
    cr_assert_geq(said, truth, "share %f: %lu below %lu", share, said, truth);
    cr_assert_leq(said - truth, truth / 64 + 1, "share %f: %lu above %lu", share, said, truth);
  }
}

}  // namespace

Test(histogram, agrees_with_sorted_values) {
  std::uint64_t state = 7;
  for (const std::size_t n : {1u, 2u, 3u, 1000u, 20000u}) {
    Histogram histogram;
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < n; ++i) {
      values.push_back(draw(state));
      histogram.add(values.back());
    }
    compare(histogram, values);
  }
}

Test(histogram, merges_without_loss) {
  std::uint64_t state = 11;
  Histogram parts[4];
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < 8000; ++i) {
    values.push_back(draw(state));
    parts[i % 3].add(values.back());  // the last part stays empty
  }
  Histogram whole;
  for (const Histogram &part : parts) whole.merge(part);
  compare(whole, values);
  Histogram sent;
  cr_assert(sent.restore(whole.buckets(), whole.sum(), whole.min(), whole.max()));
  compare(sent, values);
  cr_assert_eq(sent.mean(), whole.mean());
}

Test(histogram, buckets_are_in_order_and_cover_everything) {
  std::uint64_t before = 0;
  for (std::uint32_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t last = Histogram::last_of(bucket);
    if (bucket != 0) {
      cr_assert_gt(last, before);
      cr_assert_eq(Histogram::bucket_of(before + 1), bucket);
    }
    cr_assert_eq(Histogram::bucket_of(last), bucket);
    before = last;
  }
  cr_assert_eq(before, UINT64_MAX);
}

Test(histogram, refuses_buckets_that_cannot_be) {
  Histogram histogram;
  histogram.add(5);
  cr_assert_not(histogram.restore({{Histogram::kBuckets, 1}}, 1, 1, 1));
  cr_assert_eq(histogram.count(), 1, "a refused restore must leave it as it was");
  cr_assert_eq(Histogram().quantile(0.5), 0);
}
