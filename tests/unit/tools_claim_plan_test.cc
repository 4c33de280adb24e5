// SPDX-License-Identifier: Apache-2.0
// Shows: what a dry run says of a claim agrees with the driver's rules, and every refusal of the
// driver has words of its own.
// How: ranges and maps of memory made up here, as the kernel prints them.
#include <criterion/criterion.h>
#include <linux/kvpool.h>

#include <set>

#include "claim_plan.hpp"

using namespace kvpool::tools;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

std::uint32_t judged(std::vector<RangeSpec> ranges, std::size_t *ret_bad = nullptr) {
  std::size_t bad = 99;
  const std::uint32_t reason = judge_ranges(ranges, bad);
  if (ret_bad != nullptr) *ret_bad = bad;
  return reason;
}

constexpr const char *kMap =
    "00001000-0009fbff : System RAM\n"
    "80000000-8fffffff : PCI ECAM 0000 [bus 00-ff]\n"
    "  80000000-8fffffff : Reserved\n"
    "100000000-13fffffff : System RAM\n"
    "140000000-17fffffff : Reserved\n"
    "180000000-1bfffffff : Soft Reserved\n"
    "  180000000-1bfffffff : dax0.0\n"
    "    180000000-1bfffffff : System RAM (kmem)\n"
    "1c0000000-1ffffffff : CXL Window 0\n"
    "  1c0000000-1dfffffff : region0\n"
    "    1c0000000-1dfffffff : dax1.0\n"
    "200000000-23fffffff : Reserved\n"
    "  200000000-23fffffff : kvpool\n"
    "8000000000-80ffffffff : PCI Bus 0000:00\n";

std::uint32_t by_map(std::uint64_t start, std::uint64_t bytes) {
  std::string name;
  return judge_by_map({start, bytes}, parse_iomem(kMap), name);
}

}  // namespace

Test(tools_claim_plan, ranges_are_read) {
  RangeSpec range;
  cr_assert(parse_range("0x100000000+384MiB", range));
  cr_expect_eq(range.start, 4 * kGiB);
  cr_expect_eq(range.bytes, std::uint64_t{384} << 20);
  cr_expect(range_text(range) == "0x100000000+384MiB");
  cr_expect(parse_range("4294967296+2097152", range));
  for (const char *bad : {"", "+", "0x1", "0x100000000-0x1ffffffff", "0x+1GiB", "0xg+1GiB",
                          "0x100000000+", "0x100000000+0", "0x100000000+1GB",
                          "0xffffffffffe00000+4MiB", "-1+1GiB"}) {
    cr_expect(!parse_range(bad, range), "%s", bad);
  }
}

Test(tools_claim_plan, pci_functions_are_read) {
  PciFunction function;
  cr_assert(parse_pci("0001:3a:1f.7", function));
  cr_expect_eq(function.domain, 1u);
  cr_expect_eq(function.bus, 0x3Au);
  cr_expect_eq(function.devfn, 0xFFu);
  cr_assert(parse_pci("10000:00:02.0", function), "domains of NVMe bridges are longer");
  cr_expect_eq(function.domain, 0x10000u);
  cr_assert(parse_pci("3a:00.1", function));
  cr_expect_eq(function.domain, 0u);
  cr_expect_eq(function.devfn, 1u);
  for (const char *bad : {"", ":", "3a:00", "3a.00", "0:3a:00.0.0", "3a:20.0", "3a:00.8", "3a:00.",
                          "100:00.0", "0000:3a:00.0 ", "-1:00.0", "g0:00.0", "0:0:0:00.0"}) {
    cr_expect(!parse_pci(bad, function), "%s", bad);
  }
}

Test(tools_claim_plan, rules_for_ranges) {
  std::size_t bad = 0;
  cr_expect_eq(judged({{4 * kGiB, kGiB}, {5 * kGiB, kGiB}}), KVPOOL_REFUSED_NOT);
  cr_expect_eq(judged({{kGiB, kGiB}}), KVPOOL_REFUSED_BELOW_4G);
  cr_expect_eq(judged({{4 * kGiB + 4096, kGiB}}), KVPOOL_REFUSED_UNALIGNED);
  cr_expect_eq(judged({{4 * kGiB, kGiB + 4096}}), KVPOOL_REFUSED_UNALIGNED);
  cr_expect_eq(judged({{4 * kGiB, kGiB}, {5 * kGiB, 2 * kGiB}}, &bad), KVPOOL_REFUSED_SIZE);
  cr_expect_eq(bad, 1u);
  cr_expect_eq(judged({{4 * kGiB, kGiB}, {4 * kGiB, kGiB}}, &bad), KVPOOL_REFUSED_OVERLAP);
  cr_expect_eq(judged({{5 * kGiB, kGiB}, {4 * kGiB + kGiB / 2, kGiB}}), KVPOOL_REFUSED_OVERLAP);
}

Test(tools_claim_plan, what_the_map_says) {
  cr_expect_eq(by_map(0x140000000, kGiB), KVPOOL_REFUSED_NOT);
  cr_expect_eq(by_map(0x1e0000000, kGiB / 2), KVPOOL_REFUSED_NOT, "the free end of a window");
  cr_expect_eq(by_map(0x100000000, kGiB), KVPOOL_REFUSED_RAM);
  cr_expect_eq(by_map(0x13fe00000, 4 << 20), KVPOOL_REFUSED_RAM, "the last piece of it");
  cr_expect_eq(by_map(0x180000000, kGiB), KVPOOL_REFUSED_RAM, "onlined through kmem");
  cr_expect_eq(by_map(0x1c0000000, kGiB / 2), KVPOOL_REFUSED_DAX);
  cr_expect_eq(by_map(0x200000000, kGiB), KVPOOL_REFUSED_BUSY);
  cr_expect_eq(by_map(0x8000000000, kGiB), KVPOOL_REFUSED_PCI);
  cr_expect_eq(by_map(0x240000000, kGiB), KVPOOL_REFUSED_NOT_RESERVED);
  cr_expect_eq(by_map(0x23fe00000, 4 << 20), KVPOOL_REFUSED_BUSY);
}

// Ordinary users see zeros: that says nothing, and must not look like free memory.
Test(tools_claim_plan, a_hidden_map_is_none) {
  cr_expect(parse_iomem("00000000-00000000 : System RAM\n00000000-00000000 : Reserved\n").empty());
  cr_expect(parse_iomem("").empty());
  cr_expect(parse_iomem("nonsense\n12 : x\n").empty());
  cr_expect_eq(parse_iomem(kMap).size(), 14u);
  cr_expect_eq(parse_iomem(kMap)[7].depth, 2u);
}

Test(tools_claim_plan, every_refusal_has_its_own_words) {
  std::set<std::string> whys, hints;
  for (std::uint32_t reason = 0; reason <= KVPOOL_REFUSED_DAX; ++reason) {
    whys.insert(refusal_of(reason).why);
    hints.insert(refusal_of(reason).hint);
  }
  cr_expect_eq(whys.size(), KVPOOL_REFUSED_DAX + 1u);
  cr_expect_eq(hints.size(), KVPOOL_REFUSED_DAX + 1u);
  cr_expect(refusal_of(4711).why == refusal_of(0).why);
}
