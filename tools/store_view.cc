// SPDX-License-Identifier: Apache-2.0
// Reads a store's medium for people (store_view.hpp).
#include "store_view.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "media/index_hash.hpp"

namespace kvpool::tools {

namespace {

backend::Address parsed(const std::string &address) {
  backend::Address ret;
  const auto status = backend::parse_address(address.c_str(), ret);
  if (!status.ok()) {
    fail(status.err == -EINVAL || status.err == -ENODEV ? kExitUsage : kExitFailed, {}, status.what,
         "see kvpool-address(7)");
  }
  return ret;
}

// How often a line that does not verify is looked at again: its writer may be in the middle of it.
constexpr int kLooks = 8;

}  // namespace

std::string fixed_name(const char *bytes, std::size_t max) {
  std::string text;
  for (std::size_t i = 0; i < max && bytes[i] != '\0'; ++i) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    text += c >= 0x20 && c != 0x7f && c < 0x80 ? static_cast<char>(c) : '?';
  }
  return text;
}

std::string uuid_text(const u8 uuid[16]) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return text;
}

std::string entry_key_text(const u64 key[4]) {
  u8 bytes[32];
  std::memcpy(bytes, key, sizeof(bytes));
  std::string text;
  for (const u8 byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

const char *entry_state_name(media::EntryState state) {
  switch (state) {
    case media::EntryState::kEmpty:
      return "empty";
    case media::EntryState::kPending:
      return "pending";
    case media::EntryState::kPublished:
      return "published";
    case media::EntryState::kDraining:
      return "draining";
    case media::EntryState::kHidden:
      return "hidden";
  }
  return "unknown";
}

std::string lost_device_of(const backend::Backend &backend) {
  for (const backend::DeviceSpan &span : backend.devices()) {
    if (span.lost) return span.name + " is lost: it is empty, or nearly so";
  }
  return {};
}

void must_be_mapped(const backend::Backend &backend) {
  if (!backend.revoked()) return;
  fail(kExitFailed, backend.address().text,
       "the driver took the memory away from this command: it stood still for longer than its "
       "lease, or was revoked, or the partition is being destroyed",
       "start the command again");
}

OpenPool open_pool(const std::string &address, backend::OpenMode mode) {
  const backend::Address where = parsed(address);
  OpenPool pool;
  const auto status = backend::Backend::open(where, mode, {}, pool.backend);
  if (!status.ok()) {
    if (status.err == -ENODATA) fail_superblock(address, status.err, status.what);
    refuse_open(address, status.err, status.what);
  }
  std::vector<DeviceMapping> mappings;
  for (const auto &span : pool.backend->devices()) mappings.push_back({span.base, span.bytes});
  pool.memory = std::make_unique<X86Memory>(mappings);
  pool.reader = std::make_unique<FreshReader>(*pool.memory, *pool.backend);
  return pool;
}

namespace {

// What device `d` had when the store was made, as it says itself where that can still be read;
// else what the file has, 0 when there is none. `ret_store`: whether it begins as one of a store.
u64 device_bytes_before(const std::string &path, bool &ret_store) {
  u64 bytes = 0;
  ret_store = false;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return 0;
  struct stat st = {};
  if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) bytes = static_cast<u64>(st.st_size);
  Line line{};
  if (pread(fd, &line, sizeof line, 0) == sizeof line && media::Sealer::identity_intact(line)) {
    const auto id = media::from_line<media::Identity>(line);
    ret_store = id.magic == media::kMagic;
    if (ret_store) bytes = std::max(bytes, u64{id.device_bytes});
  }
  close(fd);
  return bytes;
}

// What --size of kvpool format has to be for the store at `where`, 0 where it needs none:
// devices and addresses with a size have their own, and so have files that are whole.
u64 size_needed(const backend::Address &where) {
  constexpr u64 kExample = u64{1} << 30;
  if (where.size || backend::is_device(where.scheme)) return 0;
  std::vector<std::string> paths = where.paths;
  struct stat st = {};
  if (where.scheme == backend::Scheme::kMem) {
    for (u32 d = 0; d < backend::kMaxDevices; ++d) {
      paths.push_back("/dev/shm" + backend::shm_name(where.name, d));
      if (d > 0 && stat(paths.back().c_str(), &st) != 0) {
        paths.pop_back();
        break;
      }
    }
  }
  u64 sum = 0, largest = 0;
  bool whole = true, store = false;
  for (const std::string &path : paths) {
    const u64 before = device_bytes_before(path, store);
    const u64 now = stat(path.c_str(), &st) == 0 ? static_cast<u64>(st.st_size) : 0;
    whole = whole && now >= before && now >= backend::kDeviceAlign;
    largest = std::max(largest, store || now >= backend::kDeviceAlign ? before : 0);
    sum += before;
  }
  if (whole) return 0;
  // A device that is gone or empty was most likely as large as the others.
  sum = std::max(sum, largest * paths.size()) / backend::kDeviceAlign * backend::kDeviceAlign;
  return largest == 0 ? kExample : sum;
}

}  // namespace

std::string format_command(const std::string &address, Over over) {
  const std::string command = "kvpool format " + address +
                              (over != Over::kNothing ? " --yes" : "") +
                              (over == Over::kDamaged ? " --force" : "");
  const u64 size = size_needed(parsed(address));
  if (size == 0) return command;
  constexpr u64 kMiB = u64{1} << 20, kGiB = u64{1} << 30;
  return size % kGiB == 0 ? fmt::format("{} --size {}GiB", command, size / kGiB)
                          : fmt::format("{} --size {}MiB", command, size / kMiB);
}

Json plan_json(const media::Layout &layout) {
  const media::Geometry &geo = layout.geometry;
  return {{"pool_bytes", geo.pool_bytes()},
          {"pool_bytes_max", media::largest_pool_bytes(geo, layout.regions)},
          {"index_entries", geo.index_groups * media::kGroupLines},
          {"index_entries_max", geo.index_groups_max * media::kGroupLines},
          {"data_bytes", layout.regions.payload_bytes()},
          {"device_count", geo.device_count},
          {"hosts", geo.host_count},
          {"members_per_host", geo.members_per_host},
          {"standbys", geo.standby_count},
          {"width", geo.width},
          {"namespaces_max", geo.namespaces_max()},
          {"extent_bytes", geo.extent_bytes()},
          {"min_block_bytes", geo.min_block_bytes},
          {"lease_ms", geo.lease_ms},
          {"grace_us", geo.grace_us}};
}

std::string plan_text(const media::Layout &layout) {
  const media::Geometry &geo = layout.geometry;
  return fmt::format(
      "{} for blocks of {} on {} device(s)\n"
      "room for {} hosts of {} members, {} standby slots, {} namespaces; smallest block {}\n"
      "index of {} entries, may become {}; may grow to {}\n",
      bytes_text(layout.regions.payload_bytes()), bytes_text(geo.pool_bytes()), geo.device_count,
      geo.host_count, geo.members_per_host, geo.standby_count, geo.namespaces_max(),
      bytes_text(geo.min_block_bytes), count_text(geo.index_groups * media::kGroupLines),
      count_text(geo.index_groups_max * media::kGroupLines),
      bytes_text(media::largest_pool_bytes(geo, layout.regions)));
}

int exit_code_of_open(int error, const std::string &why) {
  switch (error) {
    case -ERANGE:  // a host id, or another number of the address, that this store does not have
      return kExitUsage;
    case -EFBIG:
      return why.find("truncated") != std::string::npos ? kExitDamaged : kExitFailed;
    default:
      return exit_code_of(error);
  }
}

void refuse_open(const std::string &address, int error, std::string why) {
  std::string hint;
  const int code = exit_code_of_open(error, why);
  const bool truncated = why.find("truncated") != std::string::npos;
  // Without --yes: a part of a store may be there still.
  if (error == -ENOENT) hint = "make a store: " + format_command(address, Over::kNothing);
  if (error == -ENODATA) {
    hint = "make one: " + format_command(address, Over::kOther) + "; what stands there is lost";
  }
  if (code == kExitDamaged) {
    hint = truncated ? unusable_hint(address, why)
                     : "kvpool check " + address + " says what is damaged";
  }
  if (error == -ERANGE) hint = "kvpool info " + address + " says how many hosts the store has";
  if (error == -EAGAIN) hint = "nobody serves the store: kvpool serve ADDRESS, or --embedded";
  if (error == -EACCES || error == -EPERM) hint = "the store belongs to another user";
  if (error == -EUSERS) {
    hint = "kvpool stat ADDRESS lists who is attached; format with more --members";
  }
  const bool named = why.find(address) != std::string::npos;
  fail(code, named ? std::string() : address, std::move(why), std::move(hint));
}

std::string unusable_hint(const std::string &address, const std::string &why) {
  const std::string anew = format_command(address, Over::kDamaged);
  if (why.find("truncated") != std::string::npos) {
    return "bring the missing bytes back from a copy, or give the store up: " + anew;
  }
  return "nothing can mend this: " + anew + " makes a new store, and its blocks are lost";
}

void fail_superblock(const std::string &address, int error, const std::string &why) {
  switch (error) {
    case -ENODATA:
      fail(
          kExitNothing, address, why,
          "make a store: " + format_command(address, Over::kOther) + "; what stands there is lost");
    case -EPROTONOSUPPORT:
      fail(kExitFailed, address, why, "a newer kvpool made this store: use that");
    case -ENODEV:
    case -EXDEV:
    case -ESTALE:
    case -EINVAL:
      fail(kExitFailed, address, why, "name the store's devices, all of them and in order");
    default:  // no copy of the superblock can be used, so there is nothing to mend from
      fail(kExitDamaged, address, why,
           unusable_hint(address, why));
  }
}

bool has_grown(const backend::Backend &backend) {
  for (u32 d = 0; d < backend.devices().size(); ++d) {
    if (backend.file_bytes(d) >= backend.devices()[d].bytes + backend::kDeviceAlign) return true;
  }
  return false;
}

// Maps what there is now.
void StoreView::open() {
  OpenPool pool = open_pool(address_, backend::OpenMode::kReadOnly);
  reader_ = std::move(pool.reader);
  memory_ = std::move(pool.memory);
  backend_ = std::move(pool.backend);
}

StoreView::StoreView(const std::string &address) : address_(address) {
  open();
  std::string why;
  const int error = media::read_superblock_any_state(*reader_, superblock_, &why);
  if (error != 0) fail_superblock(address, error, why);
  adopt();
  refresh();
}

void StoreView::adopt() {
  geometry_ = superblock_.geometry;
  sealer_ = media::Sealer(geometry_.uuid, geometry_.nonce);
  copy_note_.clear();
  if (superblock_.copies_differ || !superblock_.copy_intact[0] || !superblock_.copy_intact[1]) {
    copy_note_ = superblock_.copies_differ    ? "the two copies of the superblock differ"
                 : superblock_.copy_intact[0] ? "the second copy of the superblock is damaged"
                                              : "the first copy of the superblock is damaged";
  }
  lost_device_ = lost_device_of(*backend_);
  if (!lost_device_.empty()) copy_note_ = lost_device_;
}

// Whoever watches a store that is formatted anew sees the new one from then on, and is told.
bool StoreView::follow_life() {
  media::SuperblockRead now{};
  std::string unsaid;  // why the lines of this life cannot be read says more
  if (media::read_superblock_any_state(*reader_, now, &unsaid) != 0) return false;
  if (now.geometry.nonce == geometry_.nonce &&
      std::memcmp(now.geometry.uuid, geometry_.uuid, sizeof geometry_.uuid) == 0) {
    return false;
  }
  superblock_ = now;
  adopt();
  warn(fmt::format("{} was formatted anew: its life is {:016x} now", address_, geometry_.nonce));
  return true;
}

bool StoreView::load(PoolOffset at, u32 epoch, Line &ret) {
  for (int look = 0; look < kLooks; ++look) {
    if (look != 0) memory_->acquire(at, kLineBytes);
    if (memory_->load_line(at, ret) && sealer_.intact(ret, at, epoch)) return true;
  }
  must_be_mapped(*backend_);
  return false;
}

bool StoreView::refresh() {
  epoch_ = 0;
  media::StoreView view{};
  if (has_grown(*backend_) || !backend_->still_there().ok()) open();
  const auto readable = [&] {
    return media::read_view(*reader_, superblock_, view, &why_) == 0 && view.area_known;
  };
  if (!readable() && (!follow_life() || !readable())) return false;
  if (view.epoch() == 0) return false;
  epoch_ = view.epoch();
  geometry_.control = geometry_.control_before = view.active().active_control;
  owner_member_ = view.active().active_member;
  ever_owned_ = view.active().active_incarnation != 0;  // as formatted nobody was the owner yet
  index_groups_ = view.active().index_groups;
  area_ = view.area();
  regions_ = view.regions;
  return true;
}

// Claims that are being written can be read at the next look.
void StoreView::must_be_readable() {
  constexpr int kLooks = 20;
  if (state() == media::StoreState::kFormatting) {
    fail(kExitNothing, address(), "formatting was not finished",
         "somebody formats it now, or was killed: " + format_command(address(), Over::kOther));
  }
  for (int look = 0; !refresh(); ++look) {
    if (look == kLooks) {
      fail(kExitDamaged, address(), why(),
           why().find("truncated") != std::string::npos
               ? unusable_hint(address(), why())
               : "kvpool check " + address() + " says what is damaged");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::vector<MemberView> StoreView::members() {
  std::vector<MemberView> list;
  const u32 count = geometry_.member_count();
  memory_->acquire(geometry_.member_at(0), u64{count} * kLineBytes);
  for (u32 slot = 0; slot < count; ++slot) {
    const PoolOffset at = geometry_.member_at(slot);
    MemberView member;
    Line line;
    if (!load(at, 0, line)) continue;
    member.line = media::from_line<media::MemberLine>(line);
    if (member.line.incarnation == 0) continue;
    member.slot = slot;
    member.host = geometry_.host_of(slot);
    member.name = fixed_name(member.line.name, sizeof(member.line.name));
    member.joined = member.line.state == static_cast<u8>(media::MemberState::kJoined);
    member.lock_known = !backend::is_device(backend_->address().scheme) ||
                        member.host == backend_->host_id();
    auto state = backend::LockState::kFree;
    if (member.lock_known &&
        backend_->locks().query(backend::LockKind::kMember, slot, state) == 0) {
      member.alive = state != backend::LockState::kFree;
    }
    list.push_back(std::move(member));
  }
  return list;
}

std::vector<NsView> StoreView::namespaces() {
  std::vector<NsView> list;
  if (epoch_ == 0) return list;
  memory_->acquire(geometry_.ns_line(area_, 0), u64{geometry_.namespace_lines} * kLineBytes);
  for (u32 id = 1; id <= geometry_.namespaces_max(); ++id) {
    Line line;
    if (!load(geometry_.ns_line(area_, id), epoch_, line)) continue;
    NsView ns;
    ns.id = id;
    ns.line = media::from_line<media::NamespaceLine>(line);
    if ((ns.line.flags & media::kNsUsed) == 0) continue;
    ns.name = fixed_name(ns.line.name, sizeof(ns.line.name));
    list.push_back(std::move(ns));
  }
  return list;
}

void StoreView::for_each_entry(const std::function<bool(const EntryView &)> &visit) {
  if (epoch_ == 0) return;
  constexpr u64 kBatch = 4096;
  for (u64 first = 0; first < entry_count(); first += kBatch) {
    const u64 n = std::min(kBatch, entry_count() - first);
    memory_->acquire(geometry_.entry_line(area_, first), n * kLineBytes);
    for (u64 i = 0; i < n; ++i) {
      EntryView view;
      view.number = first + i;
      Line line;
      if (!load(geometry_.entry_line(area_, first + i), epoch_, line)) continue;
      view.entry = media::from_line<media::Entry>(line);
      if (!visit(view)) return;
    }
  }
}

IndexCounts StoreView::count_index() {
  IndexCounts counts;
  counts.by_ns.resize(geometry_.namespace_lines);
  counts.used_extents.resize(regions_.extents_in_use());
  u64 readable = 0;
  for_each_entry([&](const EntryView &view) {
    ++readable;
    const u64 extent = regions_.extent_of(view.entry.locator() * media::kLocatorUnit);
    if (view.entry.entry_state() != media::EntryState::kEmpty &&
        extent < counts.used_extents.size()) {
      counts.used_extents[extent] = true;
    }
    switch (view.entry.entry_state()) {
      case media::EntryState::kEmpty:
        ++counts.empty;
        break;
      case media::EntryState::kPending:
        ++counts.pending;
        break;
      case media::EntryState::kDraining:
        ++counts.draining;
        break;
      case media::EntryState::kHidden:
        ++counts.hidden;
        break;
      case media::EntryState::kPublished: {
        const u64 bytes = view.entry.payload_lines() * kLineBytes;
        ++counts.published;
        counts.published_bytes += bytes;
        if (view.entry.ns < counts.by_ns.size()) {
          ++counts.by_ns[view.entry.ns].published;
          counts.by_ns[view.entry.ns].bytes += bytes;
        }
        break;
      }
    }
    return true;
  });
  if (epoch_ != 0) counts.unreadable = entry_count() - readable;
  return counts;
}

ExtentCounts StoreView::count_extents(const IndexCounts &index) {
  ExtentCounts counts;
  counts.by_member.resize(256);
  if (epoch_ == 0) return counts;
  const u32 extents = regions_.extents_in_use();
  u64 run = 0;
  memory_->acquire(geometry_.map_line(area_, 0), (u64{extents} * 8 + 63) / 64 * 64);
  for (u32 extent = 0; extent < extents; ++extent) {
    const PoolOffset at = geometry_.map_word(area_, extent);
    u64 word = 0;
    media::MapRecord record{};
    if (!memory_->load_word(at, word) || !sealer_.unpack_map(word, at, epoch_, record)) {
      must_be_mapped(*backend_);
      ++counts.unreadable;
      run = 0;
      continue;
    }
    const bool free = record.holder == media::kHolderOwner && !index.used_extents[extent] &&
                      (record.flags & media::kMapRunTail) == 0;
    const u32 region = regions_.region_of(extent);
    if (!free || extent == regions_.region[region].first_extent) run = 0;
    run += free;
    counts.largest_free_run = std::max(counts.largest_free_run, run);
    if (record.holder == media::kHolderOwner) {
      ++counts.owner;
    } else if (record.holder == media::kHolderFormer) {
      ++counts.former;
    } else {
      ++counts.members;
      ++counts.by_member[record.holder];
    }
    if ((record.flags & media::kMapTainted) != 0) ++counts.tainted;
  }
  return counts;
}

std::vector<EntryView> StoreView::find_key(const u64 key[4]) {
  std::vector<EntryView> found;
  if (epoch_ == 0) return found;
  for (const u64 group :
       {media::first_group(key, index_groups_), media::second_group(key, index_groups_)}) {
    memory_->acquire(geometry_.group_at(area_, group), media::kGroupLines * kLineBytes);
    for (u32 i = 0; i < media::kGroupLines; ++i) {
      EntryView view;
      view.number = group * media::kGroupLines + i;
      Line line;
      if (!load(geometry_.entry_line(area_, view.number), epoch_, line)) continue;
      view.entry = media::from_line<media::Entry>(line);
      if (view.entry.entry_state() == media::EntryState::kEmpty) continue;
      if (std::memcmp(view.entry.key, key, sizeof(view.entry.key)) == 0) found.push_back(view);
    }
  }
  return found;
}

bool store_exists(const std::string &address) {
  backend::Address where = parsed(address);
  where.size.reset();  // what is there need not be as large as what is wanted
  where.devices.reset();
  if (!backend::Backend::exists(where)) return false;
  std::unique_ptr<backend::Backend> memory;
  if (!backend::Backend::open(where, backend::OpenMode::kReadOnly, {}, memory).ok()) return false;
  for (const auto &span : memory->devices()) {
    u64 magic = 0;
    for (const u64 byte : {u64{0}, media::kSecondCopyByte}) {
      if (span.lost || span.bytes < byte + media::kPageBytes) continue;
      std::memcpy(&magic, span.base + byte, sizeof(magic));
      if (magic == media::kMagic) return true;
    }
  }
  return false;
}

Json store_summary(const std::string &address) {
  StoreView view(address);
  view.must_be_readable();
  const media::Geometry &geo = view.geometry();
  Json data;
  data["address"] = address;
  data["uuid"] = uuid_text(geo.uuid);
  data["life"] = fmt::format("{:016x}", geo.nonce);
  data["state"] = geo.state == media::StoreState::kReady ? "ready" : "formatting";
  data["format_version"] = media::kFormatVersion;
  data["features"] = {{"incompatible", geo.incompat},
                      {"read_only_compatible", geo.ro_compat},
                      {"compatible", geo.compat}};
  const media::RegionTable &regions = view.regions();
  const u64 bytes = media::pool_bytes_in_use(geo, regions);
  data["pool_bytes"] = bytes;
  data["pool_bytes_max"] = media::largest_pool_bytes(geo, regions);
  data["data_bytes"] = regions.payload_bytes();
  data["metadata_bytes"] = bytes - regions.payload_bytes();
  data["device_count"] = geo.device_count;
  data["control_device"] = geo.control_device();
  data["devices"] = Json::array();
  for (u32 d = 0; d < geo.device_count; ++d) {
    data["devices"].push_back(
        {{"name", view.backend().devices()[d].name},
         {"bytes", media::device_end(geo, regions, d)}});
  }
  data["hosts"] = geo.host_count;
  data["members_per_host"] = geo.members_per_host;
  data["standbys"] = geo.standby_count;
  data["standby_hosts"] = Json::array();
  for (u32 slot = 0; slot < geo.standby_count; ++slot) {
    const u8 host = geo.standby_host[slot];
    data["standby_hosts"].push_back(host == media::kAnyHost ? Json() : Json(host));
  }
  data["width"] = geo.width;
  data["namespaces_max"] = geo.namespaces_max();
  data["extent_bytes"] = geo.extent_bytes();
  data["extents"] = regions.extents_in_use();
  data["extents_retired"] = regions.retired;
  data["min_block_bytes"] = geo.min_block_bytes;
  data["index_entries"] = view.entry_count();
  data["index_entries_max"] = geo.index_groups_max * media::kGroupLines;
  data["lease_ms"] = geo.lease_ms;
  data["grace_us"] = geo.grace_us;
  data["delta_us"] = geo.delta_us;
  data["epoch"] = view.epoch();
  data["owner_member"] = view.ever_owned() ? Json(view.owner_slot()) : Json();
  if (!view.active_copy_note().empty()) warn(view.active_copy_note());
  return data;
}

}  // namespace kvpool::tools
