// SPDX-License-Identifier: Apache-2.0
// What kvpool doctor says of the driver: whether it is there, what it claimed, how it maps, and
// what of that nobody looked at. Looks only.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "claim_plan.hpp"
#include "doctor.hpp"
#include "driver_node.hpp"

namespace kvpool::tools {

namespace {

std::vector<MapLine> memory_map() {
  std::ifstream file("/proc/iomem");
  std::stringstream text;
  text << file.rdbuf();
  return parse_iomem(text.str());
}

void look_at_claim(const kvpool_info &info, Findings &findings) {
  if (info.state == KVPOOL_CLAIM_NONE) {
    findings.add("pool", "note", "none is claimed on this host",
                 "kvpool setup claim --range START+BYTES --host N");
    return;
  }
  if (info.state == KVPOOL_CLAIM_GONE) {
    findings.add("pool", "wrong",
                 "this host has fenced itself: another host wrote its line, or the memory failed",
                 "see the kernel's log; kvpool setup release, then claim it anew");
    return;
  }
  findings.add("pool", "ok",
               fmt::format("{} on {} devices, this is host {} of {}; {} free",
                           bytes_text(info.pool_bytes), info.device_count, info.host,
                           info.host_count, bytes_text(info.free_units * info.unit_bytes)));
  const bool administered = info.admin_epoch != 0;
  findings.add("administrator", administered ? "ok" : "note",
               administered ? fmt::format("host {}", info.admin_host) : "nobody",
               administered ? "" : "kvpool setup admin: until then no partition is made or ended");
}

// What holds the claimed ranges for this boot; what holds them at the next one cannot be seen here.
void look_at_ranges(const ControlNode &node, Findings &findings) {
  const std::vector<MapLine> map = memory_map();
  if (map.empty()) {
    findings.add("ranges", "note", "not looked at: /proc/iomem hides addresses from this user",
                 "run it as root");
    return;
  }
  for (const auto &item : node.list<kvpool_item_device>(KVPOOL_LIST_DEVICES)) {
    std::vector<MapLine> others;
    for (const MapLine &line : map) {
      if (line.name != "kvpool") others.push_back(line);
    }
    const RangeSpec range{item.start, item.bytes};
    std::string name;
    const std::uint32_t reason = judge_by_map(range, others, name);
    findings.add("range", reason == 0 ? "ok" : "wrong",
                 fmt::format("device {} {}: {}", item.device, range_text(range),
                             reason == 0 ? "reserved, and no memory of this kernel"
                                         : refusal_of(reason).why),
                 reason == 0 ? "" : refusal_of(reason).hint);
  }
  findings.add("other kernels", "note",
               "not looked at: whether each installed kernel leaves these ranges alone",
               "reserve them in firmware, or on every kernel's command line");
}

void look_at_partitions(const ControlNode &node, Findings &findings) {
  for (const auto &item : node.list<kvpool_item_partition>(KVPOOL_LIST_PARTITIONS)) {
    const std::string name = partition_name(item), type = type_word(item.type_requested);
    if (item.attached == 0) {
      findings.add(
          "partition", "ok",
          fmt::format("{} {}: not in use on this host; the type obtained was not looked at", name,
                      type));
    } else {
      const bool same = item.type_obtained == item.type_requested;
      findings.add("partition", same ? "ok" : "wrong",
                   fmt::format("{} {}: obtained {}, {} members", name, type,
                               type_word(item.type_obtained), item.members),
                   same ? "" : "firmware's MTRRs or another driver decide otherwise (/proc/mtrr)");
    }
    if (item.poisoned != 0) {
      findings.add("poison", "note", fmt::format("{}: {} pages", name, item.poisoned),
                   "blocks there are misses; replace the device");
    }
  }
  for (const auto &item : node.list<kvpool_item_host>(KVPOOL_LIST_HOSTS)) {
    if (item.held_units == 0) continue;
    findings.add("held memory", "note",
                 fmt::format("{} units wait for host {}", item.held_units, item.host),
                 fmt::format("end what uses them there; if the host is off for good: kvpool setup "
                             "host fence {} --confirmed",
                             item.host));
  }
}

}  // namespace

void look_at_driver(Findings &findings) {
  static constexpr const char *kNode = "/dev/kvpool";
  if (access(kNode, F_OK) != 0) {
    findings.add("driver", "ok", "not loaded; mem:, file: and dax: need none");
    return;
  }
  const int fd = open(kNode, O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    findings.add("driver", "note",
                 "loaded; this user may not open /dev/kvpool, so claim, ranges and memory types "
                 "were not looked at",
                 "run it as root");
    return;
  }
  close(fd);
  try {
    const ControlNode node;
    const kvpool_info info = node.info();
    const bool large = (info.features & KVPOOL_FEATURE_LEAF_2M) != 0;
    findings.add("driver", "ok",
                 fmt::format("loaded, interface {}, format {}", info.abi_version,
                             info.format_version));
    findings.add("driver's pages", large ? "ok" : "note", large ? "2 MiB" : "4 KiB",
                 large ? ""
                       : "2 MiB need Linux 6.12 or newer with CONFIG_KPROBES, and leaf_2m=1; page "
                         "tables take 2 GiB for each TiB and process otherwise");
    look_at_claim(info, findings);
    if (info.state != KVPOOL_CLAIM_NONE) {
      look_at_ranges(node, findings);
      look_at_partitions(node, findings);
    }
    findings.add("driver, the rest", "note",
                 "not looked at: DDIO of the ports, the module's signature, whether two hosts see "
                 "each other's stores");
  } catch (const Failure &failure) {
    findings.add("driver", "wrong", failure.what + ": " + failure.why, failure.hint);
  }
}

}  // namespace kvpool::tools
