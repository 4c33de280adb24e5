// SPDX-License-Identifier: Apache-2.0
// kvpool doctor: what this machine and this store have, and how to fix what is wrong. Looks only.
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/dax.hpp"
#include "commands.hpp"
#include "doctor.hpp"
#include "say.hpp"
#include "stat_report.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

std::string first_line(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void look_at_processor(Findings &findings) {
  X86Choice choice;
  std::string error;
  if (choose_x86({}, choice, error) != 0) {
    findings.add("processor", "wrong", error, "unset KVPOOL_ISA and KVPOOL_FLUSH");
    unsetenv("KVPOOL_ISA");  // the rest can be looked at
    unsetenv("KVPOOL_FLUSH");
    return;
  }
  findings.add("processor", "ok",
               fmt::format("lines by {}, loads by {}, flush by {}", isa_name(choice.isa),
                           isa_name(choice.vector), flush_name(choice.flush)));
  if (choice.flush == FlushInsn::kClflush) {
    findings.add("flush", "note", "the processor has no CLFLUSHOPT",
                 "reads are slower: flushes do not overlap");
  }
}

void look_at_memory(Findings &findings) {
  struct statvfs fs = {};
  if (statvfs("/dev/shm", &fs) != 0) {
    findings.add("shared memory", "wrong", "/dev/shm is not mounted",
                 "mount -t tmpfs tmpfs /dev/shm, or use file: addresses");
  } else {
    const u64 free = u64{fs.f_bavail} * fs.f_frsize;
    const bool small = free < (u64{256} << 20);
    findings.add("shared memory", small ? "note" : "ok",
                 fmt::format("/dev/shm has {} free", bytes_text(free)),
                 small ? "enlarge it (docker run --shm-size=8g), or use file: addresses" : "");
  }
  const std::string shmem = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const bool huge = shmem.find("[always]") != std::string::npos ||
                    shmem.find("[advise]") != std::string::npos ||
                    shmem.find("[within_size]") != std::string::npos;
  findings.add("huge pages for shared memory", huge ? "ok" : "note",
               shmem.empty() ? "not in this kernel" : shmem,
               huge ? ""
                    : "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled: look-ups "
                      "gain 1.3 to 1.9 times");
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    findings.add("file size limit", "note", bytes_text(limit.rlim_cur), "ulimit -f unlimited");
  }
}

void look_at_devices(Findings &findings) {
  std::vector<backend::DaxInfo> devices;
  const auto status = backend::list_dax(devices);
  if (!status.ok()) {
    findings.add("device-dax", "note", status.what);
    return;
  }
  if (devices.empty()) findings.add("device-dax", "ok", "none on this machine");
  for (const auto &device : devices) {
    const bool usable = device.mode == "devdax" && access(device.path.c_str(), R_OK | W_OK) == 0;
    findings.add("device-dax", usable ? "ok" : "note",
                 fmt::format("{} {} {}", device.path, bytes_text(device.size), device.mode),
                 usable ? ""
                 : device.mode == "system-ram"
                     ? "it serves as RAM: daxctl reconfigure-device --mode=devdax"
                     : "you may not open it, or no driver is bound");
  }
}

void look_at_environment(Findings &findings) {
  static constexpr std::string_view kKnown[] = {"KVPOOL_ISA", "KVPOOL_FLUSH", "KVPOOL_LOG"};
  for (char **at = environ; *at != nullptr; ++at) {
    const std::string_view entry(*at);
    if (!entry.starts_with("KVPOOL_")) continue;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) {
      findings.add("environment", "ok", std::string(entry));
      continue;
    }
    const std::string_view near = nearest_word(name, kKnown);
    findings.add("environment", "note", fmt::format("{} is not known", name),
                 near.empty() ? "" : fmt::format("did you mean {}?", near));
  }
}

// The process that a scratch pool's name ends with: kvpool-scratch-PID.DEVICE, or 0.
pid_t scratch_owner(const std::string &name) {
  static constexpr std::string_view kPrefix = "kvpool-scratch-";
  std::uint64_t pid = 0;
  if (!name.starts_with(kPrefix)) return 0;
  parse_count(std::string_view(name).substr(kPrefix.size(), name.find('.') - kPrefix.size()), pid);
  return static_cast<pid_t>(pid);
}

// Of these paths, those that no process has mapped, as far as this user may see.
std::vector<std::string> unmapped(std::vector<std::string> paths) {
  std::error_code error;
  for (const auto &process : std::filesystem::directory_iterator("/proc", error)) {
    if (paths.empty()) break;
    std::ifstream maps(process.path() / "maps");
    std::string line;
    while (std::getline(maps, line)) {
      if (line.find("/dev/shm/kvpool-") == std::string::npos) continue;
      std::erase_if(paths, [&](const std::string &path) { return line.ends_with(path); });
    }
  }
  return paths;
}

// Memory of processes that were killed: nobody else takes it away.
void look_at_leftovers(Findings &findings) {
  std::error_code error;
  std::vector<std::string> pools, rings;
  for (const auto &entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename();
    const pid_t pid = scratch_owner(name);
    if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) pools.push_back(entry.path());
    if (name.starts_with("kvpool-events-")) rings.push_back(entry.path());
  }
  if (!pools.empty()) {
    findings.add("scratch pools", "note",
                 fmt::format("{} of commands that are gone", pools.size()),
                 fmt::format("rm {}", fmt::join(pools, " ")));
  }
  rings = unmapped(std::move(rings));
  constexpr std::size_t kNamed = 8;
  std::sort(rings.begin(), rings.end());
  for (std::size_t i = 0; i < std::min(rings.size(), kNamed); ++i) {
    findings.add("event ring", "note", rings[i] + ": nobody has it open",
                 "its owner was killed; unless it comes back: rm " + rings[i]);
  }
  if (rings.size() > kNamed) {
    findings.add("event rings", "note", fmt::format("{} more", rings.size() - kNamed),
                 "kvpool doctor names them when those above are gone");
  }
}

void look_at_store(const Args &args, Findings &findings) {
  std::string address = args.text("ADDRESS");
  if (address.empty()) {
    const char *environment = std::getenv("KVPOOL");
    if (environment == nullptr || *environment == '\0') {
      findings.add("store", "ok", "none named; give an address or set $KVPOOL to look at one");
      return;
    }
    address = environment;
  }
  try {
    StoreView view(address);
    view.must_be_readable();
    findings.add("store", view.active_copy_note().empty() ? "ok" : "wrong",
                 view.active_copy_note().empty() ? fmt::format("{} can be read", address)
                                                 : view.active_copy_note(),
                 view.active_copy_note().empty() ? ""
                 : view.lost_device().empty()    ? "kvpool repair " + address
                                                 : kLostHint);
    if (view.geometry().device_count > 1) {
      const u32 device = view.geometry().control_device();
      const bool lost = view.backend().devices()[device].lost;
      findings.add("members' lines", lost ? "wrong" : "ok",
                   fmt::format("on device {}{}", device, lost ? ", which is lost" : ""),
                   lost ? "kvpool serve " + address + ": it goes on from the other one" : "");
    }
    const Json stat = stat_of(view);
    const bool owned = stat["owned"].get<bool>();
    if (stat["owner_hangs"].get<bool>()) {
      findings.add("owner", "wrong", owner_hangs_text(stat),
                   "a standby takes over, if there is one: kvpool serve " + address);
    } else {
      findings.add("owner", owned ? "ok" : "note",
                   owned ? "the store is served" : "nobody serves the store",
                   owned ? "" : "kvpool serve " + address + ": until then puts are refused");
    }
    const u64 bad =
        stat["blocks"]["unreadable"].get<u64>() + stat["space"]["extents_unreadable"].get<u64>();
    if (bad != 0)
      findings.add("metadata", "wrong", fmt::format("{} lines do not verify", bad),
                   "kvpool check " + address);
  } catch (const Failure &failure) {
    findings.add("store", "wrong",
                 failure.what.empty() ? failure.why : failure.what + ": " + failure.why,
                 failure.hint);
  }
}

}  // namespace

int cmd_doctor(const Args &args) {
  Findings findings;
  look_at_processor(findings);
  look_at_memory(findings);
  look_at_devices(findings);
  look_at_driver(findings);
  look_at_leftovers(findings);
  look_at_environment(findings);
  look_at_store(args, findings);
  if (args.json()) {
    Json data;
    data["healthy"] = !findings.any_wrong();
    data["checks"] = findings.list();
    print_json("doctor", std::move(data));
  } else {
    Table table({"", "", ""});
    std::string hints;
    for (const Json &one : findings.list()) {
      table.row({one["state"].get<std::string>(), one["name"].get<std::string>(),
                 one["value"].get<std::string>()});
      const auto hint = one["hint"].get<std::string>();
      if (!hint.empty())
        hints += fmt::format("hint: {}: {}\n", one["name"].get<std::string>(), hint);
    }
    print_text(table.text() + hints);
  }
  return findings.any_wrong() ? kExitFailed : kExitFine;
}

}  // namespace kvpool::tools
