// SPDX-License-Identifier: Apache-2.0
// kvpool grow and kvpool shrink: another size for a store in use (proto 14). Both go through the
// owner; what they show meanwhile is what it still waits for.
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "replay/scratch.hpp"
#include "say.hpp"
#include "store/context.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

namespace {

std::string hint_of(int error, const std::string &why, bool shrink) {
  switch (error) {
    case -EAGAIN: return "start one with kvpool serve ADDRESS";
    case -ERANGE:
      return shrink ? "a smaller store is made with kvpool format" : "give a larger --size";
    case -EFBIG:
      return why.find("room") != std::string::npos ? "room is made by kvpool format --max-size"
                                                   : "";
    case -E2BIG: return "kvpool format makes a store of any size";
    case -ENOSPC: return "nothing was changed";
    default: return "";
  }
}

[[noreturn]] void refuse(const std::string &address, int error, std::string why, bool shrink) {
  if (why.starts_with(address + ": ")) why.erase(0, address.size() + 2);
  const bool wrong = error == -EINVAL;
  int code = wrong ? kExitUsage : kExitFailed;
  if (error == -ENOENT || error == -ENODATA) code = kExitNothing;
  if (error == -EUCLEAN) code = kExitDamaged;
  const bool hangs = why.find("has not answered for") != std::string::npos;
  const std::string hint = hangs ? "" : hint_of(error, why, shrink);
  fail(code, address, std::move(why), hint);
}

// One line a second on a terminal: what the owner waits for.
class Watch {
public:
  explicit Watch(const Args &args) : progress_("shrink", args.text("--progress", "auto")) {}

  bool go_on(const store::ResizeProgress &now) {
    most_ = std::max(most_, now.leaving);
    const std::string unit = fmt::format(
        "extents empty ({} held by members, {} with pinned blocks)", now.held, now.pinned);
    progress_.show(most_ - now.leaving, most_, unit);
    return !stop_requested();
  }
  void clear() { progress_.clear(); }

private:
  Progress progress_;
  u32 most_ = 0;
};

void report(const Args &args, const std::string &address, const store::ResizeReport &r) {
  const bool dry = args.has("--dry-run");
  const bool changed = r.extents_before != r.extents_after;
  if (args.json()) {
    Json data;
    data["address"] = address;
    data["dry_run"] = dry;
    data["changed"] = changed;
    data["pool_bytes_before"] = r.bytes_before;
    data["pool_bytes"] = r.bytes_after;
    data["data_bytes_before"] = r.data_before;
    data["data_bytes"] = r.data_after;
    data["extents_before"] = r.extents_before;
    data["extents"] = r.extents_after;
    data["reserved_bytes"] = r.reserved_bytes;
    data["given_back_bytes"] = r.given_back_bytes;
    print_json(r.shrinks ? "shrink" : "grow", std::move(data));
    return;
  }
  if (!changed) {
    print_text(fmt::format("{}: has {} already, {} for blocks\n", address,
                           bytes_text(r.bytes_after), bytes_text(r.data_after)));
    return;
  }
  print_text(fmt::format("{}: {} {}, {} for blocks; had {}, {} for blocks\n", address,
                         dry ? "would have" : "has", bytes_text(r.bytes_after),
                         bytes_text(r.data_after), bytes_text(r.bytes_before),
                         bytes_text(r.data_before)));
}

// Whether the file systems have what the devices lack; growing itself reserves it.
void refuse_without_space(const std::string &address, const store::ResizeReport &planned) {
  struct Place {
    std::string folder;
    u64 needed = 0, free = 0;
  };
  std::map<dev_t, Place> places;
  StoreView view(address);
  const auto devices = view.backend().devices();
  for (std::size_t d = 0; d < devices.size(); ++d) {
    struct stat file = {};
    if (stat(devices[d].name.c_str(), &file) != 0) continue;
    Place &place = places[file.st_dev];
    place.folder = std::filesystem::path(devices[d].name).parent_path();
    place.free = free_bytes(place.folder);
    const u64 allocated = static_cast<u64>(file.st_blocks) * 512;  // what is retired has holes
    place.needed += std::max(planned.device_bytes[d], allocated) - allocated;
  }
  for (const auto &[device, place] : places) {
    if (place.needed <= place.free) continue;
    fail(kExitFailed, address,
         fmt::format("no space: {} has {} free of the {} more that are needed", place.folder,
                     bytes_text(place.free), bytes_text(place.needed)));
  }
}

int resize(const Args &args, bool shrink) {
  const std::string address = store_address(args, "ADDRESS");
  stop_on_signals();
  store::ContextOptions how;
  how.name = shrink ? "shrink" : "grow";
  how.read_only = args.has("--dry-run");
  std::unique_ptr<store::Context> context;
  std::string why;
  if (int err = store::Context::open(address.c_str(), how, context, &why)) {
    refuse_open(address, err, std::move(why));
  }
  Watch watch(args);
  store::ResizeOptions options;
  options.pool_bytes = args.number("--size", 0);
  options.shrink = shrink;
  options.dry_run = args.has("--dry-run");
  options.patience_ns = static_cast<u64>(args.real("--timeout", 5) * 1e9);
  options.go_on = [&watch](const store::ResizeProgress &now) { return watch.go_on(now); };
  store::ResizeReport done;
  const int err = context->resize(options, done, &why);
  watch.clear();
  if (err != 0) refuse(address, err, std::move(why), shrink);
  if (options.dry_run && !shrink) refuse_without_space(address, done);
  report(args, address, done);
  return kExitFine;
}

}  // namespace

int cmd_grow(const Args &args) { return resize(args, false); }
int cmd_shrink(const Args &args) { return resize(args, true); }

}  // namespace kvpool::tools
