// SPDX-License-Identifier: Apache-2.0
#include "store/make.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "media/superblock.hpp"
#include "pool/control.hpp"
#include "store/events.hpp"
#include "store/format.hpp"
#include "store/process_env.hpp"

namespace kvpool::store {

namespace {

int fail(std::string *why, int err, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return err;
}

// What stands at the address now.
struct Found {
  bool something = false;  // anything at all
  bool store = false;      // a store of a format we know
  bool unknown = false;    // damaged, or of a newer format
  bool lived_in = false;   // somebody holds a slot of it
  u8 uuid[16] = {};        // of that store
  std::vector<u64> device_bytes;
};

// Whether members of any host show themselves, as they do forty times a lease: locks speak for this
// machine alone.
bool members_move(backend::Backend &backend, media::Geometry geo) {
  constexpr u64 kLookNs = 20'000'000, kLongestNs = 1'000'000'000;
  ProcessEnv env(backend);
  if (pool::read_control(env, geo) != 0) return false;  // no claim: nobody lives there
  std::vector<Line> before(geo.member_count());
  const u64 until = env.now_ns() + std::min(u64{geo.lease_ms} * 500'000, kLongestNs);
  for (bool first = true; first || env.now_ns() < until; first = false) {
    for (u32 slot = 0; slot < geo.member_count(); ++slot) {
      Line now{};
      const PoolOffset at = geo.member_at(slot);
      env.memory().acquire(at, kLineBytes);
      env.memory().load_line(at, now);
      const bool same = std::memcmp(&now, &before[slot], sizeof now) == 0;
      before[slot] = now;
      if (!first && !same) return true;
    }
    env.sleep_ns(kLookNs);
  }
  return false;
}

int look(const backend::Address &address, Found &ret, std::string *why) {
  if (!backend::Backend::exists(address)) return 0;
  for (const std::string &path : address.paths) {
    struct stat at = {};
    if (address.scheme == backend::Scheme::kFile && stat(path.c_str(), &at) == 0 &&
        S_ISDIR(at.st_mode)) {
      return fail(why, -EISDIR, address.text + ": " + path + " is a directory; name a file in it");
    }
  }
  // What is there need not be as large as what is wanted.
  backend::Address there = address;
  there.size.reset();
  there.devices.reset();
  std::unique_ptr<backend::Backend> backend;
  if (auto s = backend::Backend::open(there, backend::OpenMode::kReadOnly, {}, backend); !s.ok()) {
    // Too short to be mapped, or a device of it is missing: something, but no store.
    const bool fixed = backend::is_device(address.scheme);  // nothing can be made there
    if (fixed || s.err == -EACCES || s.err == -ENODEV) return fail(why, s.err, s.what);
    ret.something = true;
    return 0;
  }
  ret.something = !backend::is_device(address.scheme);
  media::MappedReader::Device devices[media::kMaxDevices];
  u32 count = 0;
  for (const backend::DeviceSpan &d : backend->devices()) {
    devices[count++] = {d.base, d.lost ? 0 : d.bytes};
    ret.device_bytes.push_back(d.bytes);
  }
  media::MappedReader reader(devices, count);
  media::SuperblockRead superblock;
  const int err = media::read_superblock(reader, superblock, nullptr);
  ret.store = err == 0;
  if (ret.store) std::memcpy(ret.uuid, superblock.geometry.uuid, sizeof ret.uuid);
  ret.unknown = err != 0 && err != -ENODATA;
  if (ret.store && media::may_write(superblock.geometry, nullptr) != 0) ret.unknown = true;
  ret.something |= ret.store || ret.unknown;
  backend->locks().any_elsewhere(backend::LockKind::kMember, 0, media::kMaxMembers, ret.lived_in);
  if (!ret.lived_in) {
    backend->locks().any_elsewhere(backend::LockKind::kStandby, 0, media::kMaxStandbys,
                                   ret.lived_in);
  }
  if (ret.store && !ret.lived_in && backend::is_device(address.scheme)) {
    ret.lived_in = members_move(*backend, superblock.geometry);
  }
  return 0;
}

int may_overwrite(const backend::Address &address, const MakeOptions &options, const Found &found,
                  std::string *why) {
  if (found.lived_in && !options.force) {
    return fail(why, -EBUSY,
                address.text + ": processes have this store open; stop them, or force");
  }
  if (found.unknown && !options.force) {
    return fail(why, -EEXIST,
                address.text + ": holds a store that is damaged or of a newer format; force to "
                               "overwrite it");
  }
  if (found.something && !options.yes && !options.force) {
    return fail(why, -EEXIST,
                address.text + (found.store ? ": holds a store; its blocks would be lost"
                                            : ": exists and is no store; it would be overwritten"));
  }
  return 0;
}

// Sizes from the options, else the address, else what is there.
int choose_sizes(backend::Address &address, const MakeOptions &options, const Found &found,
                 std::vector<u64> &ret, std::string *why) {
  if (options.size_bytes != 0) address.size = options.size_bytes;
  if (options.devices != 0) {
    if (address.scheme != backend::Scheme::kMem) {
      return fail(why, -EINVAL, address.text + ": devices can be chosen for mem: only");
    }
    if (options.devices > media::kMaxDevices) {
      return fail(why, -E2BIG, address.text + ": at most 16 devices");
    }
    address.devices = options.devices;
  }
  const bool device = backend::is_device(address.scheme);
  if (device && found.device_bytes.empty()) {  // nothing is made there: say why it cannot be used
    std::unique_ptr<backend::Backend> backend;
    const auto s = backend::Backend::open(address, backend::OpenMode::kReadWrite, {}, backend);
    return fail(why, s.ok() ? -ENODEV : s.err, s.ok() ? address.text + ": no device" : s.what);
  }
  if (device || (!address.size && !found.device_bytes.empty())) {
    ret = found.device_bytes;
    return 0;
  }
  if (auto s = backend::device_sizes(address, ret); !s.ok()) return fail(why, s.err, s.what);
  return 0;
}

int plan(const backend::Address &address, const MakeOptions &options, const std::vector<u64> &sizes,
         media::Layout &ret, std::string *why) {
  media::FormatOptions layout = options.layout;
  if (sizes.size() > media::kMaxDevices) return fail(why, -E2BIG, "at most 16 devices");
  layout.device_count = static_cast<u32>(sizes.size());
  for (u32 d = 0; d < layout.device_count; ++d) layout.device_bytes[d] = sizes[d];
  std::string said;
  if (int err = media::plan_layout(layout, ret, &said)) {
    return fail(why, err == -ENOSPC ? -ERANGE : err, address.text + ": " + said);
  }
  return 0;
}

}  // namespace

int make_store(const char *text, const MakeOptions &options, media::Layout *ret_layout,
               std::string *why) {
  backend::Address address;
  if (auto s = backend::parse_address(text, address); !s.ok()) return fail(why, s.err, s.what);
  Found found;
  std::vector<u64> sizes;
  media::Layout layout;
  if (int err = look(address, found, why)) return err;
  if (int err = may_overwrite(address, options, found, why)) return err;
  if (int err = choose_sizes(address, options, found, sizes, why)) return err;
  if (int err = plan(address, options, sizes, layout, why)) return err;
  if (options.dry_run) {
    if (ret_layout != nullptr) *ret_layout = layout;
    return 0;
  }
  // Named memory of another size is made anew: what is mapped elsewhere stays as it was there.
  const bool other_devices = sizes.size() != found.device_bytes.size();
  if (address.scheme == backend::Scheme::kMem && found.something &&
      (other_devices || !found.lived_in) && sizes != found.device_bytes) {
    if (auto s = backend::Backend::remove(address, options.force); !s.ok() && s.err != -ENOENT) {
      return fail(why, s.err, s.what);
    }
    found.something = found.lived_in = false;
  }
  std::unique_ptr<backend::Backend> backend;
  const backend::CreateOptions how{.reuse = found.something, .force = options.force};
  if (auto s = backend::Backend::create(address, sizes, how, backend); !s.ok()) {
    return fail(why, s.err, s.what);
  }
  // The devices may be larger than asked for: a file is never cut.
  std::vector<u64> actual;
  for (const backend::DeviceSpan &d : backend->devices()) actual.push_back(d.bytes);
  if (actual != sizes) {
    if (int err = plan(address, options, actual, layout, why)) return err;
  }
  ProcessEnv env(*backend);
  for (u32 i = 0; i < 2; ++i) {
    const u64 word = env.random();
    std::memcpy(layout.geometry.uuid + 8 * i, &word, sizeof word);
  }
  while (layout.geometry.nonce == 0) layout.geometry.nonce = env.random();
  format_store(env, {layout.geometry, layout.regions, found.lived_in});
  backend->locks().unlock(backend::LockKind::kFormat, 0);
  if (found.store) EventLog::remove(found.uuid);  // what its owner may have left behind
  if (ret_layout != nullptr) *ret_layout = layout;
  return 0;
}

}  // namespace kvpool::store
