// SPDX-License-Identifier: Apache-2.0
// kvpool setup partition grow, partition shrink, device watch: what changes below partitions that
// are in use. Stores follow with kvpool grow and kvpool shrink.
#include <linux/kvpool.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "claim_plan.hpp"
#include "setup.hpp"

namespace kvpool::tools {

namespace {

// A change that the driver refused, or that a dry run says it would.
struct Change {
  int err = 0;
  u32 reason = KVPOOL_CHANGE_DONE;
  u64 whole_bytes = 0;  // NOT_WHOLE: what would be
};

[[noreturn]] void refuse_change(const ControlNode &node, const std::string &name,
                                const Change &change) {
  const kvpool_info info = node.info();
  switch (change.reason) {
    case KVPOOL_CHANGE_NO_PARTITION: fail(kExitNothing, name, "there is no such partition");
    case KVPOOL_CHANGE_DRAINS:
      fail(kExitFailed, name, "the partition is on its way out", "kvpool setup partition list");
    case KVPOOL_CHANGE_BAD_BYTES:
      fail(kExitUsage, name,
           fmt::format("sizes are multiples of {}", bytes_text(info.unit_bytes)));
    case KVPOOL_CHANGE_NO_ROOM:
      fail(kExitFailed, name,
           fmt::format("no room: {} are in no partition",
                       bytes_text(info.free_units * info.unit_bytes)),
           "ask for less, or give back what another partition does not need");
    case KVPOOL_CHANGE_HELD:
      fail(kExitFailed, name, "no room but what waits for hosts that are not proven out yet",
           "kvpool setup partition list and host list say for which");
    case KVPOOL_CHANGE_NO_SLICE:
      fail(kExitNothing, "--slice-id", fmt::format("{} has no slice of that number", name),
           "kvpool setup partition list --json has their numbers");
    case KVPOOL_CHANGE_FIRST_SLICE:
      fail(kExitFailed, name, "the first slice stays: the drivers' own lines lie in it",
           "kvpool setup partition destroy ends the whole partition");
    case KVPOOL_CHANGE_NOTHING_LEFT:
      fail(kExitFailed, name, "nothing would be left of the partition",
           "kvpool setup partition destroy ends it");
    case KVPOOL_CHANGE_NOT_WHOLE:
      fail(kExitFailed, name,
           "a slice is given back whole, and none are together just so many bytes",
           fmt::format("--size {}MiB would do", change.whole_bytes >> 20));
    default: break;
  }
  if (change.err == -EAGAIN) refuse_administrator(info);
  fail_errno(name, change.err);
}

// Slices in use, the newest first.
std::vector<kvpool_item_slice> slices_of(const ControlNode &node, u32 partition) {
  auto slices = node.list<kvpool_item_slice>(KVPOOL_LIST_SLICES);
  std::erase_if(slices, [&](const kvpool_item_slice &slice) {
    return slice.partition != partition || slice.state == KVPOOL_SLICE_DRAINING;
  });
  std::sort(slices.begin(), slices.end(), [](const auto &a, const auto &b) { return a.id > b.id; });
  return slices;
}

std::vector<u32> slice_ids(const Args &args) {
  std::vector<u32> ids;
  for (const std::string &text : args.all("--slice-id")) {
    std::uint64_t id = 0;
    if (!parse_count(text, id) || id == 0 || id > ~u32{0}) {
      fail(kExitUsage, "--slice-id", fmt::format("'{}' is no number of a slice", text));
    }
    ids.push_back(static_cast<u32>(id));
  }
  if (ids.size() > KVPOOL_SHRINK_SLICES_MAX) {
    fail(kExitUsage, "--slice-id", fmt::format("at most {} at once", KVPOOL_SHRINK_SLICES_MAX));
  }
  return ids;
}

// What the driver would answer, and the bytes that would drain. It decides; this looks.
Change plan_shrink(const kvpool_info &info, const kvpool_item_partition &item,
                   const std::vector<kvpool_item_slice> &slices, const std::vector<u32> &ids,
                   u64 bytes, u64 &ret_bytes) {
  if (info.is_admin == 0) return {-EAGAIN};
  if (item.state == KVPOOL_PARTITION_DRAINING) return {-ESTALE, KVPOOL_CHANGE_DRAINS};
  if (ids.empty() && bytes % info.unit_bytes != 0) return {-EINVAL, KVPOOL_CHANGE_BAD_BYTES};
  std::size_t count = 0;
  ret_bytes = 0;
  const auto named = [&](const kvpool_item_slice &slice) {
    return std::find(ids.begin(), ids.end(), slice.id) != ids.end();
  };
  for (const kvpool_item_slice &slice : slices) {
    if (ids.empty() ? ret_bytes >= bytes : !named(slice)) continue;
    if (item.type_requested == KVPOOL_TYPE_WB && &slice == &slices.back()) {
      return {-EBUSY, KVPOOL_CHANGE_FIRST_SLICE};
    }
    ret_bytes += slice.bytes;
    ++count;
  }
  if (count < ids.size()) return {-ENOENT, KVPOOL_CHANGE_NO_SLICE};
  if (count == slices.size()) return {-EBUSY, KVPOOL_CHANGE_NOTHING_LEFT};
  if (ids.empty() && ret_bytes > bytes) return {-EINVAL, KVPOOL_CHANGE_NOT_WHOLE, ret_bytes};
  return {};
}

}  // namespace

int grow_partition(Setup setup) {
  const Args &args = setup.args;
  const std::string name = partition_word(args);
  required(args, "--size", "how much more");
  const ControlNode node;
  const kvpool_info info = node.claimed();
  const kvpool_item_partition item = partition_named(node, name);
  kvpool_partition_grow request{};
  request.bytes = args.number("--size", 0);
  request.slice_bytes = args.number("--slice", 0);
  request.name = reinterpret_cast<std::uintptr_t>(name.data());
  request.name_len = static_cast<u32>(name.size());
  Change change;
  if (!setup.dry) {
    change.err = node.call(KVPOOL_PARTITION_GROW, &request);
    change.reason = request.ret_reason;
  } else if (info.is_admin == 0) {
    change = {-EAGAIN};
  } else if (item.state == KVPOOL_PARTITION_DRAINING) {
    change = {-ESTALE, KVPOOL_CHANGE_DRAINS};
  } else if (request.bytes % info.unit_bytes != 0 || request.slice_bytes % info.unit_bytes != 0) {
    change = {-EINVAL, KVPOOL_CHANGE_BAD_BYTES};
  } else if (request.bytes > u64{info.free_units} * info.unit_bytes) {
    change = {-ENOSPC, KVPOOL_CHANGE_NO_ROOM};
  }
  if (change.err != 0) refuse_change(node, name, change);
  setup.data["name"] = name;
  setup.data["bytes"] = item.bytes + request.bytes;
  if (!setup.dry) setup.data["slice_count"] = request.ret_slice_count;
  setup.text = fmt::format("{} {} by {} to {}\n", setup.dry ? "would grow" : "grew", name,
                           bytes_text(request.bytes), bytes_text(item.bytes + request.bytes));
  return setup.finish();
}

int shrink_partition(Setup setup) {
  const Args &args = setup.args;
  const std::string name = partition_word(args);
  std::vector<u32> ids = slice_ids(args);
  if (args.has("--size") == !ids.empty()) {
    fail(kExitUsage, "--size", "how much less, or else which slices (--slice-id)");
  }
  const ControlNode node;
  const kvpool_info info = node.claimed();
  const kvpool_item_partition item = partition_named(node, name);
  if (!setup.dry && !args.has("--yes")) {
    fail(kExitFailed, name,
         fmt::format("{} members of this host use it, and what is in those slices would be lost",
                     item.members),
         "move it away, as kvpool shrink does for stores; then add --yes");
  }
  kvpool_partition_shrink request{};
  request.flags = args.has("--force") ? KVPOOL_SHRINK_F_FORCE : 0;
  request.name = reinterpret_cast<std::uintptr_t>(name.data());
  request.name_len = static_cast<u32>(name.size());
  request.slices = reinterpret_cast<std::uintptr_t>(ids.data());
  request.slice_count = static_cast<u32>(ids.size());
  request.bytes = args.number("--size", 0);
  Change change;
  u64 drains = 0;
  if (setup.dry) {
    change = plan_shrink(info, item, slices_of(node, item.id), ids, request.bytes, drains);
  } else {
    change.err = node.call(KVPOOL_PARTITION_SHRINK, &request);
    change.reason = request.ret_reason;
    change.whole_bytes = drains = request.ret_bytes;
  }
  if (change.err != 0) refuse_change(node, name, change);
  setup.data["name"] = name;
  setup.data["bytes"] = drains;
  setup.data["members"] = item.members;
  setup.text = fmt::format("{} {} by {}; the memory passes on when every host is out of it\n",
                           setup.dry ? "would shrink" : "shrinking", name,
                           bytes_text(drains));
  return setup.finish();
}

int watch_device(Setup setup) {
  const Args &args = setup.args;
  const std::string word = required(args, "NAME", "the device's number");
  std::uint64_t device = 0;
  if (!parse_count(word, device) || device >= KVPOOL_DEVICE_COUNT_MAX) {
    fail(kExitUsage, "NAME", fmt::format("'{}' is no number of a device", word));
  }
  const std::string address = required(args, "--pci", "the PCI function to watch");
  PciFunction function;
  if (!parse_pci(address, function)) {
    fail(kExitUsage, "--pci",
         fmt::format("'{}' is no PCI function: write DOMAIN:BUS:SLOT.FUNCTION, as in 0000:3a:00.0",
                     address));
  }
  const ControlNode node;
  const kvpool_info info = node.claimed();
  if (device >= info.device_count) {
    fail(kExitNothing, kNode, fmt::format("the pool has {} devices", info.device_count),
         "kvpool setup device list");
  }
  kvpool_device_watch request{};
  request.device = static_cast<u32>(device);
  request.domain = function.domain;
  request.bus = function.bus;
  request.devfn = function.devfn;
  const int err = setup.dry ? 0 : node.call(KVPOOL_DEVICE_WATCH, &request);
  if (err == -ENOENT) {
    fail(kExitNothing, "--pci", fmt::format("there is no {} on this host", address), "lspci -D");
  }
  if (err == -ENODEV) fail(kExitFailed, kNode, fmt::format("device {} is gone already", device),
         "it is looked for again at the next claim: kvpool setup release, then claim");
  if (err != 0) fail_errno(kNode, err);
  setup.data["device"] = device;
  setup.data["pci"] = address;
  setup.text = fmt::format("{}: when {} goes, device {} counts as gone on this host\n",
                           setup.dry ? "would watch" : "watched", address, device);
  return setup.finish();
}

}  // namespace kvpool::tools
