// SPDX-License-Identifier: Apache-2.0
#include "store/resize.hpp"

#include <cstring>

#include "store/context.hpp"

namespace kvpool::store {

namespace {

constexpr u64 kAskAgainNs = 20'000'000;   // an owner that is not asked for a lease forgets it
constexpr u64 kAnswerNs = 1'000'000'000;  // for one answer
constexpr u32 kRefusals = 50;             // while owners change their plan may be another one

int fail(std::string *why, int err, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return err;
}

// The storage of what is retired; the files keep their length, so that whoever still maps and
// touches it reads zeros instead of dying.
int punch_retired(backend::Backend &backend, const media::RegionTable &regions, u64 &ret_bytes,
                  std::string *why) {
  media::DeviceRange ranges[media::kMaxRegions * media::kMaxDevices];
  const u32 n = media::retired_ranges(regions, ranges);
  for (u32 i = 0; i < n; ++i) {
    const u64 end = std::min(ranges[i].end, backend.file_bytes(ranges[i].device));
    if (ranges[i].begin >= end) continue;
    if (auto s = backend.punch(ranges[i].device, ranges[i].begin, end); !s.ok()) {
      return fail(why, s.err, s.what);
    }
    ret_bytes += end - ranges[i].begin;
  }
  return 0;
}

int reserve(backend::Backend &backend, const media::Geometry &geo, const media::RegionTable &now,
            const media::RegionTable &wanted, u64 &ret_bytes, std::string *why) {
  u64 sizes[media::kMaxDevices];
  u64 before = 0, after = 0;
  for (u32 d = 0; d < geo.device_count; ++d) {
    sizes[d] = media::device_end(geo, wanted, d);
    before += backend.file_bytes(d);
  }
  if (auto s = backend.grow_files({sizes, geo.device_count}); !s.ok()) {
    u64 again = 0;  // holes of an earlier shrinking that were filled before space ran out
    punch_retired(backend, now, again, nullptr);
    return fail(why, s.err, s.what);
  }
  for (u32 d = 0; d < geo.device_count; ++d) after += backend.file_bytes(d);
  ret_bytes += after - before;
  return 0;
}

}  // namespace

// What the store would be, as the present owner's table has it.
int Context::plan_resize(const ResizeOptions &options, media::RegionTable &ret_wanted,
                         ResizeReport &report, std::string *why) {
  const media::RegionTable &now = member_->session()->regions;
  const u64 size = media::pool_bytes_in_use(geometry_, now);
  if (report.bytes_before == 0) {
    report.bytes_before = size;
    report.data_before = now.payload_bytes();
    report.extents_before = now.extents_in_use();
  }
  const bool wrong = options.shrink ? options.pool_bytes > size : options.pool_bytes < size;
  if (wrong && report.bytes_after == 0) {
    return fail(why, -EINVAL,
                address_ + ": has " + backend::format_size(size) + "; `kvpool " +
                    (options.shrink ? "grow" : "shrink") + "` makes it " +
                    (options.shrink ? "larger" : "smaller"));
  }
  std::string said;
  if (const int err = media::plan_resize(geometry_, now, options.pool_bytes, ret_wanted, &said)) {
    return fail(why, err, address_ + ": " + said);
  }
  report.bytes_after = media::pool_bytes_in_use(geometry_, ret_wanted);
  report.data_after = ret_wanted.payload_bytes();
  report.extents_after = ret_wanted.extents_in_use();
  for (u32 d = 0; d < geometry_.device_count; ++d) {
    report.device_bytes[d] = media::device_end(geometry_, ret_wanted, d);
  }
  return 0;
}

// Asks until the answer of an owner counts: the table is the wanted one from then on.
int Context::ask_resize(const ResizeOptions &options, ResizeReport &report, std::string *why) {
  u64 heard_ns = monotonic_ns();
  u32 refused = 0, asked_for = 0;  // the latter in extents
  for (;;) {
    if (const int err = member_->follow_owner(); err != 0 && err != -EAGAIN) {
      return explain(err, why);
    }
    if (owner_state() == 0) {  // nothing is reserved for nobody
      if (monotonic_ns() - heard_ns > options.patience_ns) return explain(-EAGAIN, why);
      env_->sleep_ns(kAskAgainNs);
      continue;
    }
    media::RegionTable wanted;
    const media::RegionTable now = member_->session()->regions;
    if (const int err = plan_resize(options, wanted, report, why)) {
      // What was asked for is there, and the rest makes no whole extent: as near as can be.
      if (err == -ERANGE && !options.shrink && now.extents_in_use() == asked_for) return 0;
      return err;
    }
    if (!options.shrink) {
      if (int err = reserve(*backend_, geometry_, now, wanted, report.reserved_bytes, why)) {
        return err;
      }
    }
    media::ResizeAnswer answer{};
    asked_for = wanted.extents_in_use();
    const int err = member_->resize(options.pool_bytes, wanted.extents_in_use(),
                                    monotonic_ns() + kAnswerNs, answer);
    if (err == 0) return 0;
    const u64 now_ns = monotonic_ns();
    if (err == -EBUSY || err == -EINVAL) heard_ns = now_ns;
    if (err == -EINVAL && ++refused > kRefusals) {
      return fail(why, -EREMOTEIO, address_ + ": the owner cannot reach the devices' new bytes");
    }
    if (now_ns - heard_ns > options.patience_ns) return explain(err, why);
    const ResizeProgress progress{answer.leaving, answer.held, answer.pinned};
    if (options.go_on && !options.go_on(progress)) {
      member_->resize(0, 0, monotonic_ns() + kAnswerNs, answer);
      return fail(why, -ECANCELED, address_ + ": given up; the store has the size it had");
    }
    env_->sleep_ns(kAskAgainNs);
  }
}

// Whoever gives bytes back holds the lock against others that take them into use again.
int Context::resize(const ResizeOptions &options, ResizeReport &ret_report, std::string *why) {
  if (options_.read_only && !options.dry_run) {
    return fail(why, -EROFS, address_ + ": opened read-only");
  }
  if (backend::is_device(backend_->address().scheme)) {
    const bool dax = backend_->address().scheme == backend::Scheme::kDax;
    return fail(why, -EOPNOTSUPP,
                address_ + ": the size of " + (dax ? "a dax device" : "a partition") + " is fixed");
  }
  ResizeReport report;
  report.shrinks = options.shrink;
  media::RegionTable wanted;
  if (const int err = plan_resize(options, wanted, report, why)) return err;
  if (options.dry_run) {
    ret_report = report;
    return 0;
  }
  const int lock = backend_->locks().try_lock(backend::LockKind::kFormat, 0);
  if (lock != 0) {
    return fail(why, lock == -EAGAIN || lock == -EALREADY ? -EBUSY : lock,
                address_ + ": is being resized, formatted or repaired by another process");
  }
  struct Unlock {
    backend::Locks &locks;
    ~Unlock() { locks.unlock(backend::LockKind::kFormat, 0); }
  } unlock{backend_->locks()};
  int err = ask_resize(options, report, why);
  if (err == 0 && options.shrink) {
    member_->follow_owner();
    env_->sleep_ns(u64{geometry_.grace_us} * 1000);  // reads that began before find their bytes
    const media::RegionTable &now = member_->session()->regions;
    if (now.extents_in_use() == report.extents_after) {
      err = punch_retired(*backend_, now, report.given_back_bytes, why);
    }
  }
  if (err == 0) ret_report = report;
  return err;
}

}  // namespace kvpool::store
