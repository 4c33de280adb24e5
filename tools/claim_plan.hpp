// SPDX-License-Identifier: Apache-2.0
// What a claim would meet, as far as it can be told without the driver: the rules for ranges, and
// the kernel's map of physical memory. Text and numbers only; nothing here opens anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvpool::tools {

struct RangeSpec {
  std::uint64_t start = 0;
  std::uint64_t bytes = 0;
};

// "0x100000000+384MiB". False: it is none.
bool parse_range(std::string_view text, RangeSpec &ret);
std::string range_text(const RangeSpec &range);

// A PCI function as lspci -D names it, "0000:3a:00.0"; without a domain it is 0000.
struct PciFunction {
  std::uint32_t domain = 0, bus = 0;
  std::uint32_t devfn = 0;  // slot << 3 | function
};
bool parse_pci(std::string_view text, PciFunction &ret);

// A line of /proc/iomem.
struct MapLine {
  std::uint64_t start = 0;
  std::uint64_t end = 0;  // the last byte
  std::uint32_t depth = 0;
  std::string name;
};
// Empty where the kernel hides addresses, as it does from ordinary users.
std::vector<MapLine> parse_iomem(std::string_view text);

// What is wrong with the ranges themselves, by the driver's own rules: KVPOOL_REFUSED_*, 0:
// nothing.
std::uint32_t judge_ranges(const std::vector<RangeSpec> &ranges, std::size_t &ret_range);

// What this kernel's map says of a range: KVPOOL_REFUSED_RAM, _BUSY, _PCI, _NOT_RESERVED or 0, and
// the line that says so. The driver looks closer; a range that passes here may be refused there.
std::uint32_t judge_by_map(const RangeSpec &range, const std::vector<MapLine> &map,
                           std::string &ret_name);

// A sentence for KVPOOL_REFUSED_*, and what to do about it.
struct Refusal {
  const char *why;
  const char *hint;
};
Refusal refusal_of(std::uint32_t reason);

}  // namespace kvpool::tools
