// SPDX-License-Identifier: Apache-2.0
// kvpool setup: the administrator's side of the driver. Each action asks the driver what there is,
// says what it would do (--dry-run) or does it with one ioctl, and puts a refusal into words.
#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "claim_plan.hpp"
#include "commands.hpp"
#include "setup.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

Setup::Setup(const Args &given, std::string action) : args(given), dry(given.has("--dry-run")) {
  data["action"] = std::move(action);
  data["dry_run"] = dry;
}

int Setup::finish(int code) {
  if (args.json()) {
    print_json("setup", std::move(data));
  } else {
    print_text(text);
  }
  return code;
}

std::string required(const Args &args, std::string_view option, const char *what) {
  std::string value = args.text(option);
  if (value.empty()) fail(kExitUsage, std::string(option), fmt::format("{} is missing", what));
  return value;
}

std::string partition_word(const Args &args) {
  std::string name = required(args, "NAME", "the partition's name");
  if (!backend::partition_path(name).empty()) return name;
  fail(kExitUsage, "NAME",
       fmt::format("'{}' is no name: 1 to 31 small letters, digits and, not first, '-'", name));
}

kvpool_item_partition partition_named(const ControlNode &node, const std::string &name) {
  for (const auto &item : node.list<kvpool_item_partition>(KVPOOL_LIST_PARTITIONS)) {
    if (partition_name(item) == name) return item;
  }
  fail(kExitNothing, name, "there is no such partition");
}

void refuse_administrator(const kvpool_info &info) {
  const std::string who =
      info.admin_epoch == 0 ? "nobody" : fmt::format("host {}", info.admin_host);
  fail(kExitFailed, kNode, fmt::format("{} administers the pool, not this host", who),
       "do it there, or take over: kvpool setup admin");
}

namespace {

// ---- claim --------------------------------------------------------------------------------------

std::vector<RangeSpec> ranges_of(const Args &args) {
  std::vector<RangeSpec> ranges;
  for (const std::string &text : args.all("--range")) {
    RangeSpec range;
    if (!parse_range(text, range)) {
      fail(kExitUsage, "--range",
           fmt::format("'{}' is no range: write START+BYTES, as in 0x100000000+256GiB", text));
    }
    ranges.push_back(range);
  }
  if (ranges.empty()) {
    fail(kExitUsage, "--range", "no range is given",
         "one for each device of the pool, as /proc/iomem shows them to root: START+BYTES");
  }
  if (ranges.size() > KVPOOL_DEVICE_COUNT_MAX) {
    fail(kExitUsage, "--range", fmt::format("at most {} devices", KVPOOL_DEVICE_COUNT_MAX));
  }
  return ranges;
}

bool parse_uuid(const std::string &text, u8 ret[16]) {
  std::string digits = text;
  std::erase(digits, '-');
  if (digits.size() != 32) return false;
  for (int i = 0; i < 16; ++i) {
    unsigned value = 0;
    if (std::sscanf(digits.c_str() + 2 * i, "%2x", &value) != 1) return false;
    if (!std::isxdigit(digits[2 * i]) || !std::isxdigit(digits[2 * i + 1])) return false;
    ret[i] = static_cast<u8>(value);
  }
  return std::any_of(ret, ret + 16, [](u8 byte) { return byte != 0; });
}

std::vector<MapLine> read_map() {
  std::ifstream file("/proc/iomem");
  std::stringstream text;
  text << file.rdbuf();
  return parse_iomem(text.str());
}

[[noreturn]] void refuse_claim(int err, u32 reason, const RangeSpec &range, u64 offset) {
  std::string where = range_text(range);
  if (offset != 0) where += fmt::format(" (at {:#x} in it)", offset);
  if (reason != KVPOOL_REFUSED_NOT) {
    const Refusal words = refusal_of(reason);
    fail(kExitFailed, std::move(where), words.why, words.hint);
  }
  switch (-err) {
    case EEXIST:
      fail(kExitFailed, kNode, "a pool is claimed on this host already",
           "kvpool setup release gives it up");
    case EPERM:
      fail(kExitFailed, kNode, "you may not claim", "the driver is administered by root");
    case EINTR:
      fail(kExitFailed, kNode, "interrupted; nothing is claimed");
    default:
      fail_errno(kNode, err);
  }
}

// As far as it can be told from outside. What the labels say only the driver reads.
void plan_claim(Setup &setup, const ControlNode &node, const std::vector<RangeSpec> &ranges) {
  const kvpool_info info = node.info();
  if (info.state != KVPOOL_CLAIM_NONE) refuse_claim(-EEXIST, 0, ranges[0], 0);
  std::size_t bad = 0;
  if (const u32 reason = judge_ranges(ranges, bad)) refuse_claim(0, reason, ranges[bad], 0);
  const std::vector<MapLine> map = read_map();
  for (const RangeSpec &range : ranges) {
    std::string name;
    const u32 reason = map.empty() ? 0 : judge_by_map(range, map, name);
    if (reason == 0) continue;
    refuse_claim(0, reason, range, 0);
  }
  setup.data["looked_at"] = map.empty() ? Json::array({"ranges"}) : Json::array({"ranges", "map"});
  if (map.empty()) {
    warn("/proc/iomem hides addresses from this user: what lies in the ranges was not looked at");
  }
  setup.text += setup.args.has("--label")
                    ? "would label the ranges: whatever stands there is lost\n"
                    : "would read the labels, which were not looked at\n";
  for (const RangeSpec &range : ranges) {
    setup.text += fmt::format("would claim {}\n", range_text(range));
  }
}

int claim(Setup setup) {
  const Args &args = setup.args;
  const std::vector<RangeSpec> ranges = ranges_of(args);
  const bool label = args.has("--label");
  if (!args.has("--host")) {
    fail(kExitUsage, "--host", "this host's number is missing",
         "a different one on each host that shares the pool, from 0 on");
  }
  if (label != args.has("--hosts")) {
    fail(kExitUsage, "--hosts",
         label ? "a new pool needs the number of hosts that may share it"
               : "the labels say how many hosts there are; only with --label");
  }
  if (args.has("--force") && !label) fail(kExitUsage, "--force", "only with --label");
  kvpool_claim request{};
  request.host = static_cast<u32>(args.number("--host", 0));
  if (label) {
    request.host_count = static_cast<u32>(args.number("--hosts", 0));
    if (request.host >= request.host_count) {
      fail(kExitUsage, "--host", fmt::format("hosts are 0 to {}", request.host_count - 1));
    }
    request.flags = KVPOOL_CLAIM_F_LABEL | (args.has("--force") ? KVPOOL_CLAIM_F_FORCE : 0);
  }
  if (args.has("--uuid")) {
    if (!parse_uuid(args.text("--uuid"), request.uuid)) {
      fail(kExitUsage, "--uuid", "not a UUID of 32 hexadecimal digits");
    }
  } else if (label && getrandom(request.uuid, sizeof request.uuid, 0) != sizeof request.uuid) {
    fail_errno("--uuid", errno);
  }
  const ControlNode node;
  Json list = Json::array();
  for (const RangeSpec &range : ranges) {
    list.push_back({{"start", range.start}, {"bytes", range.bytes}});
  }
  setup.data["host"] = request.host;
  setup.data["ranges"] = std::move(list);
  if (setup.dry) {
    plan_claim(setup, node, ranges);
    return setup.finish();
  }
  std::vector<kvpool_range> wanted;
  for (const RangeSpec &range : ranges) wanted.push_back({range.start, range.bytes});
  request.ranges = reinterpret_cast<std::uintptr_t>(wanted.data());
  request.range_count = static_cast<u32>(wanted.size());
  if (const int err = node.call(KVPOOL_CLAIM, &request)) {
    const std::size_t bad = std::min<std::size_t>(request.ret_bad_range, ranges.size() - 1);
    refuse_claim(err, request.ret_reason, ranges[bad], request.ret_bad_offset);
  }
  setup.data["uuid"] = uuid_text(request.uuid);
  setup.data["incarnation"] = fmt::format("{:016x}", request.ret_incarnation);
  setup.text = fmt::format("claimed pool {} as host {}\n", uuid_text(request.uuid), request.host);
  return setup.finish();
}

int release(Setup setup) {
  const ControlNode node;
  const kvpool_info info = node.info();
  if (info.state == KVPOOL_CLAIM_NONE) {
    fail(kExitNothing, kNode, "no pool is claimed on this host");
  }
  u32 busy = 0;
  for (const auto &item : node.list<kvpool_item_partition>(KVPOOL_LIST_PARTITIONS)) {
    if (item.descriptors == 0 && item.members == 0 && item.reachers == 0) continue;
    ++busy;
    setup.text += fmt::format("{} is in use: {} members, {} processes that may reach it\n",
                              partition_name(item), item.members, item.reachers);
  }
  setup.data["uuid"] = uuid_text(info.uuid);
  kvpool_release request{};
  const int err = setup.dry ? busy != 0 ? -EBUSY : 0 : node.call(KVPOOL_RELEASE, &request);
  if (err == -EBUSY) {
    fail(kExitFailed, kNode, "processes have partitions open or may still reach them\n" +
                                 setup.text,
         "end them; kvpool setup partition list says when all are gone");
  }
  if (err != 0) fail_errno(kNode, err);
  setup.text = fmt::format("{} pool {}\n", setup.dry ? "would release" : "released",
                           uuid_text(info.uuid));
  return setup.finish();
}

int administer(Setup setup) {
  const ControlNode node;
  const kvpool_info info = node.claimed();
  setup.data["host"] = info.host;
  setup.data["was_administrator"] = info.is_admin != 0;
  if (info.admin_epoch != 0) setup.data["administrator"] = info.admin_host;
  kvpool_admin request{};
  if (!setup.dry) {
    if (const int err = node.call(KVPOOL_ADMIN, &request)) {
      if (err == -EAGAIN) {
        fail(kExitFailed, kNode, "another host takes the administration over at this moment",
             "try again if that one does not go on");
      }
      fail_errno(kNode, err);
    }
    setup.data["epoch"] = request.ret_epoch;
  }
  setup.text = info.is_admin != 0 ? fmt::format("host {} administers already\n", info.host)
                                  : fmt::format("host {} {}\n", info.host,
                                                setup.dry ? "would administer the pool"
                                                          : "administers the pool");
  return setup.finish();
}

// ---- partitions ---------------------------------------------------------------------------------

Json partition_json(const ControlNode &node, const kvpool_item_partition &item) {
  Json slices = Json::array();
  for (const auto &slice : node.list<kvpool_item_slice>(KVPOOL_LIST_SLICES)) {
    if (slice.partition != item.id) continue;
    Json held = Json::array();
    for (u32 host = 0; host < 64; ++host) {
      if (slice.held_hosts >> host & 1) held.push_back(host);
    }
    slices.push_back({{"id", slice.id},
                      {"device", slice.device},
                      {"offset", slice.device_offset},
                      {"bytes", slice.bytes},
                      {"draining", slice.state == KVPOOL_SLICE_DRAINING},
                      {"held_hosts", held}});
  }
  const bool attached = item.attached != 0;
  return {{"name", partition_name(item)},
          {"uuid", uuid_text(item.uuid)},
          {"draining", item.state == KVPOOL_PARTITION_DRAINING},
          {"type", type_word(item.type_requested)},
          {"type_obtained", attached ? Json(type_word(item.type_obtained)) : Json()},
          {"bytes", item.bytes},
          {"members", item.members},
          {"reachers", item.reachers},
          {"poisoned_pages", item.poisoned},
          {"slices", std::move(slices)}};
}

std::string held_text(const Json &partition) {
  std::string text;
  for (const Json &slice : partition["slices"]) {
    for (const Json &host : slice["held_hosts"]) {
      const std::string word = fmt::format(" {}", host.get<u32>());
      if (text.find(word) == std::string::npos) text += word;
    }
  }
  return text.empty() ? "" : "waits for host" + text;
}

int list_partitions(Setup setup) {
  const ControlNode node;
  node.claimed();
  Table table({"name", "state", "type", ">bytes", ">members", ">reachers", ""});
  Json all = Json::array();
  for (const auto &item : node.list<kvpool_item_partition>(KVPOOL_LIST_PARTITIONS)) {
    all.push_back(partition_json(node, item));
    const Json &one = all.back();
    table.row({partition_name(item), one["draining"].get<bool>() ? "draining" : "active",
               type_word(item.type_requested), bytes_text(item.bytes), count_text(item.members),
               count_text(item.reachers), held_text(one)});
  }
  setup.text = all.empty() ? "no partitions\n" : table.text();
  setup.data["partitions"] = std::move(all);
  return setup.finish();
}

u32 type_of(const std::string &word) {
  return word == "wc" ? KVPOOL_TYPE_WC : word == "uc-" ? KVPOOL_TYPE_UC_MINUS : KVPOOL_TYPE_WB;
}

[[noreturn]] void refuse_create(const ControlNode &node, int err, const std::string &name) {
  const kvpool_info info = node.info();
  switch (-err) {
    case EAGAIN: refuse_administrator(info);
    case EEXIST:
      fail(kExitFailed, name, "there is a partition of this name, if only one that drains",
           "kvpool setup partition list");
    case ENOSPC:
      fail(kExitFailed, name,
           fmt::format("no room: {} are in no partition, and some may be held until a host has "
                       "proven that it is out",
                       bytes_text(info.free_units * info.unit_bytes)),
           "kvpool setup partition list, kvpool setup host list say which host is waited for");
    case EINVAL:
      fail(kExitUsage, name,
           fmt::format("a partition and its slices are multiples of {}",
                       bytes_text(info.unit_bytes)));
    case EIO:
    case EUCLEAN:
      fail(kExitFailed, name, "the memory cannot be written, or does not keep zeros",
           "see the kernel's log");
    default: fail_errno(name, err);
  }
}

int create_partition(Setup setup) {
  const Args &args = setup.args;
  const std::string name = partition_word(args);
  required(args, "--size", "the partition's size");
  const ControlNode node;
  const kvpool_info info = node.claimed();
  kvpool_partition_create request{};
  request.bytes = args.number("--size", 0);
  request.slice_bytes = args.number("--slice", 0);
  request.name = reinterpret_cast<std::uintptr_t>(name.data());
  request.name_len = static_cast<u32>(name.size());
  request.type = type_of(args.text("--type", "wb"));
  request.ddio = args.text("--ddio", "flush") == "flush" ? KVPOOL_DDIO_FLUSH
                                                         : KVPOOL_DDIO_REQUIRE_NONALLOCATING;
  int err = 0;
  if (setup.dry) {
    const auto items = node.list<kvpool_item_partition>(KVPOOL_LIST_PARTITIONS);
    const bool taken = std::any_of(items.begin(), items.end(), [&](const auto &item) {
      return partition_name(item) == name;
    });
    const bool units = request.bytes % info.unit_bytes == 0 &&
                       request.slice_bytes % info.unit_bytes == 0;
    err = info.is_admin == 0                                       ? -EAGAIN
          : !units                                                 ? -EINVAL
          : taken                                                  ? -EEXIST
          : request.bytes > u64{info.free_units} * info.unit_bytes ? -ENOSPC
                                                                   : 0;
  } else {
    err = node.call(KVPOOL_PARTITION_CREATE, &request);
  }
  if (err != 0) refuse_create(node, err, name);
  setup.data["name"] = name;
  setup.data["bytes"] = request.bytes;
  setup.data["type"] = type_word(request.type);
  if (!setup.dry) {
    setup.data["uuid"] = uuid_text(request.ret_uuid);
    setup.data["slice_count"] = request.ret_slice_count;
  }
  setup.text = setup.dry
                   ? fmt::format("would create {} of {}\n", name, bytes_text(request.bytes))
                   : fmt::format("created {} of {} in {} slices: {}\n", name,
                                 bytes_text(request.bytes), request.ret_slice_count,
                                 backend::partition_path(name));
  return setup.finish();
}

int destroy_partition(Setup setup) {
  const Args &args = setup.args;
  const std::string name = partition_word(args);
  const bool force = args.has("--force");
  const ControlNode node;
  const kvpool_info info = node.claimed();
  const kvpool_item_partition item = partition_named(node, name);
  if (!setup.dry && !args.has("--yes")) {
    fail(kExitFailed, name,
         fmt::format("{} members of this host use it, and what is in it would be lost",
                     item.members),
         "add --yes; --dry-run shows more");
  }
  setup.data["name"] = name;
  setup.data["members"] = item.members;
  setup.data["reachers"] = item.reachers;
  kvpool_partition_destroy request{};
  request.flags = force ? KVPOOL_DESTROY_F_FORCE : 0;
  request.name = reinterpret_cast<std::uintptr_t>(name.data());
  request.name_len = static_cast<u32>(name.size());
  const int err = setup.dry ? (info.is_admin != 0 ? 0 : -EAGAIN)
                            : node.call(KVPOOL_PARTITION_DESTROY, &request);
  if (err == -EAGAIN) refuse_administrator(info);
  if (err == -ENOENT) fail(kExitNothing, name, "there is no such partition");
  if (err != 0) fail_errno(name, err);
  setup.text = fmt::format(
      "{} {}: {} members on this host lose it{}; its memory passes on when every host is out\n",
      setup.dry ? "would destroy" : "destroying", name, item.members,
      force ? ", and all processes that may reach it are killed" : "");
  return setup.finish();
}

// ---- hosts and devices --------------------------------------------------------------------------

int list_hosts(Setup setup) {
  const ControlNode node;
  const kvpool_info info = node.claimed();
  Table table({">host", "state", "incarnation", ">heartbeat", ">held units", ""});
  Json all = Json::array();
  for (const auto &item : node.list<kvpool_item_host>(KVPOOL_LIST_HOSTS)) {
    if (item.state == KVPOOL_HOST_NEVER) continue;
    const bool admin = info.admin_epoch != 0 && info.admin_host == item.host;
    const std::string note = std::string(item.host == info.host ? "this host" : "") +
                             (admin ? " administrator" : "");
    all.push_back({{"host", item.host},
                   {"state", host_state_word(item.state)},
                   {"incarnation", fmt::format("{:016x}", item.incarnation)},
                   {"heartbeat", item.heartbeat},
                   {"fenced_incarnation", fmt::format("{:016x}", item.fenced_incarnation)},
                   {"held_units", item.held_units},
                   {"this_host", item.host == info.host},
                   {"administrator", admin}});
    table.row({std::to_string(item.host), host_state_word(item.state),
               fmt::format("{:016x}", item.incarnation), std::to_string(item.heartbeat),
               std::to_string(item.held_units), note});
  }
  setup.text = table.text();
  setup.data["hosts"] = std::move(all);
  return setup.finish();
}

int fence_host(Setup setup) {
  const Args &args = setup.args;
  const std::string word = required(args, "NAME", "the host's number");
  std::uint64_t host = 0;
  if (!parse_count(word, host) || host >= KVPOOL_HOST_COUNT_MAX) {
    fail(kExitUsage, "NAME", fmt::format("'{}' is no number of a host", word));
  }
  if (!setup.dry && !args.has("--confirmed")) {
    fail(kExitFailed, kNode, "the fence was not confirmed",
         fmt::format("give --confirmed if host {} is off, or cut from the pool, and stays so until "
                     "it starts anew",
                     host));
  }
  const DriverFence fence = fence_in_driver(static_cast<u32>(host), setup.dry);
  setup.data["host"] = host;
  setup.data["incarnation"] = fmt::format("{:016x}", fence.incarnation);
  setup.data["held_units"] = fence.held_units;
  setup.text = fmt::format("{} host {}, incarnation {:016x}: {} units waited for it\n",
                           setup.dry ? "would fence" : "fenced", host, fence.incarnation,
                           fence.held_units);
  return setup.finish();
}

int list_devices(Setup setup) {
  const ControlNode node;
  node.claimed();
  Table table({">device", "start", ">bytes", ">data from"});
  Json all = Json::array();
  for (const auto &item : node.list<kvpool_item_device>(KVPOOL_LIST_DEVICES)) {
    all.push_back({{"device", item.device},
                   {"start", item.start},
                   {"bytes", item.bytes},
                   {"data_offset", item.data_offset}});
    table.row({std::to_string(item.device), fmt::format("{:#x}", item.start),
               bytes_text(item.bytes), bytes_text(item.data_offset)});
  }
  setup.text = table.text();
  setup.data["devices"] = std::move(all);
  return setup.finish();
}

struct Action {
  std::string_view what, verb;
  int (*run)(Setup);
  std::string_view options;  // it understands, beside --dry-run and --json
};
constexpr Action kActions[] = {
    {"claim", "", claim, "--range --host --hosts --label --uuid --force"},
    {"release", "", release, ""},
    {"admin", "", administer, ""},
    {"partition", "create", create_partition, "NAME --size --slice --type --ddio"},
    {"partition", "destroy", destroy_partition, "NAME --force --yes"},
    {"partition", "grow", grow_partition, "NAME --size --slice"},
    {"partition", "shrink", shrink_partition, "NAME --size --slice-id --force --yes"},
    {"partition", "list", list_partitions, ""},
    {"host", "list", list_hosts, ""},
    {"host", "fence", fence_host, "NAME --confirmed"},
    {"device", "list", list_devices, ""},
    {"device", "watch", watch_device, "NAME --pci"},
};

bool understands(const Action &action, std::string_view option) {
  const std::string words = " " + std::string(action.options) + " ";
  return words.find(" " + std::string(option) + " ") != std::string::npos;
}

}  // namespace

namespace {

// What this host's driver read of the other one's line last.
u64 heartbeat_of(const ControlNode &node, u32 host) {
  for (const auto &item : node.list<kvpool_item_host>(KVPOOL_LIST_HOSTS)) {
    if (item.host == host) return item.heartbeat ^ item.incarnation;
  }
  return 0;
}

// A host that is up writes its line at each heartbeat; drivers look once in each of theirs.
void must_stand_still(const ControlNode &node, u32 host) {
  std::uint64_t period_ms = 1000;
  std::ifstream file("/sys/module/kvpool/parameters/heartbeat_ms");
  file >> period_ms;
  const u64 before = heartbeat_of(node, host);
  for (std::uint64_t waited = 0; waited < 4 * period_ms; waited += 100) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (heartbeat_of(node, host) == before) continue;
    fail(kExitFailed, kNode, fmt::format("host {} is alive: its heartbeat moves", host),
         "a host that is on must not be fenced");
  }
}

}  // namespace

DriverFence fence_in_driver(u32 host, bool dry) {
  const ControlNode node;
  const kvpool_info info = node.claimed();
  DriverFence fence;
  if (host == info.host) {
    fail(kExitFailed, kNode, fmt::format("host {} is this host", host),
         "a host that is on must not be fenced; kvpool setup release lets the pool go");
  }
  bool found = false, up = false;
  for (const auto &item : node.list<kvpool_item_host>(KVPOOL_LIST_HOSTS)) {
    if (item.host != host) continue;
    up = item.state == KVPOOL_HOST_UP;
    found = item.incarnation != 0 && item.state != KVPOOL_HOST_NEVER;
    fence.incarnation = item.incarnation;
    fence.held_units = item.held_units;
    fence.before = item.fenced_incarnation == item.incarnation;
  }
  if (!found) {
    fail(kExitNothing, kNode, fmt::format("host {} never claimed this pool", host),
         "kvpool setup host list");
  }
  if (info.is_admin == 0) refuse_administrator(info);
  if (fence.before) return fence;
  if (up) must_stand_still(node, host);
  if (dry) return fence;
  kvpool_host_fence request{};
  request.flags = KVPOOL_FENCE_F_CONFIRMED;
  request.host = host;
  request.incarnation = fence.incarnation;
  const int err = node.call(KVPOOL_HOST_FENCE, &request);
  if (err == -EAGAIN) refuse_administrator(node.info());
  if (err == -ESTALE) {
    fail(kExitFailed, kNode, fmt::format("host {} has started anew meanwhile", host),
         "its new incarnation is the proof that the old one is over: nothing needs a fence");
  }
  if (err != 0) fail_errno(kNode, err);
  return fence;
}

int cmd_setup(const Args &args) {
  const std::string what = args.text("WHAT"), verb = args.text("VERB");
  std::string verbs;
  for (const Action &action : kActions) {
    if (action.what != what) continue;
    if (action.verb != verb) {
      verbs += (verbs.empty() ? "" : ", ") + std::string(action.verb);
      continue;
    }
    for (const std::string_view option :
         {"NAME", "--range", "--host", "--hosts", "--label", "--uuid", "--force", "--size",
          "--slice", "--slice-id", "--pci", "--type", "--ddio", "--yes", "--confirmed"}) {
      if (!args.has(option) || understands(action, option)) continue;
      fail(kExitUsage, std::string(option),
           fmt::format("kvpool setup {}{}{} has no use for it", what, verb.empty() ? "" : " ",
                       verb));
    }
    return action.run(Setup(args, verb.empty() ? what : what + " " + verb));
  }
  if (verbs.empty()) fail(kExitUsage, "VERB", fmt::format("{} takes no second word", what));
  fail(kExitUsage, "VERB",
       verb.empty() ? fmt::format("{} needs a second word: {}", what, verbs)
                    : fmt::format("there is no {} {}, but {}", what, verb, verbs));
}

}  // namespace kvpool::tools
