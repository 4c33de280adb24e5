// SPDX-License-Identifier: Apache-2.0
#include "claim_plan.hpp"

#include <linux/kvpool.h>
#include <linux/kvpool_format.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "options.hpp"

namespace kvpool::tools {

namespace {

constexpr std::uint64_t kLeafBytes = 2u << 20;
constexpr std::uint64_t kLowest = std::uint64_t{4} << 30;
constexpr std::uint64_t kLongest = std::uint64_t{1} << 45;

bool parse_hex(std::string_view text, std::uint64_t &ret) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret, 16);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool overlap(const RangeSpec &range, std::uint64_t start, std::uint64_t last) {
  return range.start <= last && start <= range.start + range.bytes - 1;
}

bool reserved_by_firmware(const std::string &name) {
  return name == "Reserved" || name == "reserved" || name == "Soft Reserved" ||
         name.starts_with("CXL Window");
}

bool of_pci(const std::string &name) {
  return name.starts_with("PCI Bus") || name.starts_with("PCI MMCONFIG") ||
         name.starts_with("PCI ECAM");
}

// Whether every byte of the range lies in lines that firmware reserved. Lines do not overlap but
// where one lies within another.
bool covered(const RangeSpec &range, const std::vector<MapLine> &map) {
  std::uint64_t at = range.start;
  const std::uint64_t end = range.start + range.bytes;
  for (bool moved = true; moved && at < end;) {
    moved = false;
    for (const MapLine &line : map) {
      if (!reserved_by_firmware(line.name) || line.start > at || line.end < at) continue;
      at = line.end + 1;
      moved = true;
      break;
    }
  }
  return at >= end;
}

}  // namespace

bool parse_range(std::string_view text, RangeSpec &ret) {
  const std::size_t plus = text.find('+');
  if (plus == std::string_view::npos) return false;
  const std::string_view start = text.substr(0, plus);
  RangeSpec out;
  const bool hex = start.starts_with("0x") || start.starts_with("0X");
  if (hex ? !parse_hex(start.substr(2), out.start) : !parse_bytes(start, out.start)) return false;
  if (!parse_bytes(text.substr(plus + 1), out.bytes)) return false;
  if (out.bytes == 0 || out.start + out.bytes < out.start) return false;
  ret = out;
  return true;
}

bool parse_pci(std::string_view text, PciFunction &ret) {
  const auto part = [&](char end, std::size_t most, std::uint64_t limit, std::uint32_t &ret_part) {
    const std::size_t at = end ? text.find(end) : text.size();
    std::uint64_t value = 0;
    if (at == std::string_view::npos || at > most || !parse_hex(text.substr(0, at), value)) {
      return false;
    }
    text.remove_prefix(at + (end != 0));
    ret_part = static_cast<std::uint32_t>(value);
    return value <= limit;
  };
  PciFunction out;
  std::uint32_t slot = 0, function = 0;
  const bool domain = std::count(text.begin(), text.end(), ':') == 2;
  if (domain && !part(':', 8, 0xFFFFFFFF, out.domain)) return false;
  if (!part(':', 2, 0xFF, out.bus) || !part('.', 2, 31, slot) || !part(0, 1, 7, function)) {
    return false;
  }
  out.devfn = slot << 3 | function;
  ret = out;
  return true;
}

std::string range_text(const RangeSpec &range) {
  constexpr std::uint64_t kMiB = 1u << 20;
  return range.bytes % kMiB == 0 ? fmt::format("{:#x}+{}MiB", range.start, range.bytes / kMiB)
                                 : fmt::format("{:#x}+{}", range.start, range.bytes);
}

std::vector<MapLine> parse_iomem(std::string_view text) {
  std::vector<MapLine> out;
  bool shown = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    MapLine one;
    const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
    one.depth = static_cast<std::uint32_t>(indent / 2);
    line.remove_prefix(indent);
    const std::size_t dash = line.find('-'), colon = line.find(" : ");
    if (dash == std::string_view::npos || colon == std::string_view::npos || dash > colon) continue;
    if (!parse_hex(line.substr(0, dash), one.start) ||
        !parse_hex(line.substr(dash + 1, colon - dash - 1), one.end)) {
      continue;
    }
    one.name = line.substr(colon + 3);
    shown = shown || one.end != 0;
    out.push_back(std::move(one));
  }
  if (!shown) out.clear();
  return out;
}

std::uint32_t judge_ranges(const std::vector<RangeSpec> &ranges, std::size_t &ret_range) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const RangeSpec &range = ranges[i];
    ret_range = i;
    if (range.start < kLowest) return KVPOOL_REFUSED_BELOW_4G;
    if ((range.start | range.bytes) % kLeafBytes != 0) return KVPOOL_REFUSED_UNALIGNED;
    if (range.bytes != ranges[0].bytes || range.bytes > kLongest) return KVPOOL_REFUSED_SIZE;
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(range, ranges[j].start, ranges[j].start + ranges[j].bytes - 1)) {
        return KVPOOL_REFUSED_OVERLAP;
      }
    }
  }
  return KVPOOL_REFUSED_NOT;
}

std::uint32_t judge_by_map(const RangeSpec &range, const std::vector<MapLine> &map,
                           std::string &ret_name) {
  const auto met = [&](auto &&is) {
    const auto found = std::find_if(map.begin(), map.end(), [&](const MapLine &line) {
      return is(line.name) && overlap(range, line.start, line.end);
    });
    if (found != map.end()) ret_name = found->name;
    return found != map.end();
  };
  ret_name.clear();
  if (met([](const std::string &name) { return name.starts_with("System RAM"); })) {
    return KVPOOL_REFUSED_RAM;
  }
  if (met([](const std::string &name) { return name == "kvpool"; })) return KVPOOL_REFUSED_BUSY;
  if (met([](const std::string &name) { return name.starts_with("dax"); })) {
    return KVPOOL_REFUSED_DAX;
  }
  if (met(of_pci)) return KVPOOL_REFUSED_PCI;
  if (!covered(range, map)) return KVPOOL_REFUSED_NOT_RESERVED;
  return KVPOOL_REFUSED_NOT;
}

Refusal refusal_of(std::uint32_t reason) {
  static constexpr Refusal kWords[] = {
      {"the driver refused it", "see the kernel's log"},
      {"starts below 4 GiB, where firmware and devices have their addresses",
       "the ranges of a memory pool lie above; /proc/iomem shows them to root"},
      {"is not made of whole pieces of 2 MiB",
       "round its start up and its length down to multiples of 2MiB"},
      {"is in use by another driver", "/proc/iomem names it to root; unbind that driver first"},
      {"is System RAM: this kernel keeps its own data there",
       "reserve it at boot (memmap=BYTES$START), or keep it from being onlined: daxctl "
       "reconfigure-device --mode=devdax"},
      {"was not reserved by firmware, so anything may live there",
       "have firmware reserve it (EFI_MEMORY_SP, a CXL window), or the kernel at boot "
       "(memmap=BYTES$START); on a machine for tests: modprobe kvpool unsafe_ranges=1"},
      {"lies in a window of a PCI bridge or in PCI configuration space",
       "name the memory of the pool, not of a PCI device"},
      {"overlaps another range that was named", "name each device of the pool once"},
      {"has not the size that it should have: all devices of a pool have the same, with room for "
       "labels and a unit",
       "name the ranges as they were labelled"},
      {"is mapped by this kernel with another memory type than write-back",
       "firmware's MTRRs must cover it as write-back (/proc/mtrr); the kernel needs PAT"},
      {"cannot be read, or does not keep what is written",
       "the memory or the link to it failed: see the kernel's log"},
      {"bears no label of a pool",
       "--label makes a new pool of it, and whatever stands there is lost"},
      {"bears labels of another pool", "name the ranges of one pool; --uuid says which is meant"},
      {"is the same device of the pool as another range",
       "one device is decoded at two places: see firmware's settings of CXL decoders"},
      {"is not all: another device of the pool is missing", "name the ranges of all devices"},
      {"holds lines that lie elsewhere than they say: this host interleaves the devices in another "
       "way than the host that labelled them",
       "set the same interleave in firmware on all hosts"},
      {"bears labels of a pool already",
       "without --label it is claimed as it is; --label --force makes a new pool, and all that "
       "hosts have in the old one is lost"},
      {"is used by another host under this number: its heartbeat moves",
       "give each host its own --host"},
      {"was labelled by another version of the driver",
       "use the driver that labelled it, or label it anew"},
      {"cannot be used: the processor has no PAT, ERMS or CLFLUSHOPT",
       "use a machine with these; in a guest, pass the host's processor through"},
      {"is bound to device-dax or serves as RAM through it",
       "daxctl disable-device, then unbind it; or keep it, and use dax: instead of the driver"},
  };
  return reason < std::size(kWords) ? kWords[reason] : kWords[0];
}

}  // namespace kvpool::tools
