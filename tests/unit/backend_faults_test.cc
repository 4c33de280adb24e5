// SPDX-License-Identifier: Apache-2.0
// Shows: whichever system call fails, a pool is made whole or not at all, and nobody's file is lost
// when two make, take and remove pools at the same moment.
// How: this program puts itself in place of the C library's calls, fails the n-th of them for every
// n, or lets another process' step happen exactly between two of ours.
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/statfs.h>

#include <functional>

#include "backend_fixture.hpp"

using namespace backend_test;

namespace {

// One call in all that this file replaces is counted; the one numbered `fail_at` fails.
struct Faults {
  bool on = false;
  int calls = 0;
  int fail_at = 0;  // 0: none
  int error = 0;
  int fallocate_error = 0;  // of every call: EOPNOTSUPP as on file systems without it
  int fallocates = 0;
  std::function<void()> before_lock;  // runs once, ahead of the next lock
  std::function<void()> before_map;   // the same for the next shared mapping
};
Faults faults;

bool fails() {
  if (!faults.on || ++faults.calls != faults.fail_at) return false;
  errno = faults.error;
  return true;
}

template <class F>
F *real(const char *name) {
  return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fcntl(int fd, int command, ...) {
  va_list args;
  va_start(args, command);
  void *argument = va_arg(args, void *);
  va_end(args);
  static const auto next = real<int(int, int, ...)>("fcntl");
  if (command == F_OFD_SETLK) {
    if (auto step = std::exchange(faults.before_lock, nullptr)) step();
    if (fails()) return -1;
  }
  return next(fd, command, argument);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  static const auto next = real<int(int, int, off_t, off_t)>("fallocate");
  ++faults.fallocates;
  if (fails()) return -1;
  if (faults.fallocate_error != 0) {
    errno = faults.fallocate_error;
    return -1;
  }
  return next(fd, mode, offset, length);
}

int ftruncate(int fd, off_t length) noexcept {
  static const auto next = real<int(int, off_t)>("ftruncate");
  return fails() ? -1 : next(fd, length);
}

int fstat(int fd, struct stat *st) noexcept {
  static const auto next = real<int(int, struct stat *)>("fstat");
  return fails() ? -1 : next(fd, st);
}

int fstatfs(int fd, struct statfs *fs) noexcept {
  static const auto next = real<int(int, struct statfs *)>("fstatfs");
  return fails() ? -1 : next(fd, fs);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  static const auto next = real<void *(void *, size_t, int, int, int, off_t)>("mmap");
  if ((flags & MAP_SHARED) != 0) {
    if (auto step = std::exchange(faults.before_map, nullptr)) step();
  }
  return fails() ? MAP_FAILED : next(address, length, protection, flags, fd, offset);
}

}  // extern "C"

namespace {

CreateOptions reuse_option() {
  CreateOptions options;
  options.reuse = true;
  return options;
}

u64 open_descriptors() {
  u64 n = 0;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    n += entry.path().empty() ? 0 : 1;
  }
  return n;
}

// Runs `step` with the n-th call failing, n = 1, 2, ... until it succeeds; returns how many failed.
int sweep(int error, const std::function<Status()> &step,
          const std::function<void(int)> &after_failure) {
  for (int n = 1; n < 200; ++n) {
    const u64 descriptors = open_descriptors();
    faults = {};
    faults.fail_at = n;
    faults.error = error;
    faults.on = true;
    const auto s = step();
    faults.on = false;
    if (faults.calls < n) {
      cr_expect(s.ok(), "%s", s.what.c_str());
      return n - 1;
    }
    // A call whose failure means less comfort, not less safety, may be survived.
    if (s.ok()) continue;
    cr_expect(!s.what.empty() && s.err < 0, "call %d: %d %s", n, s.err, s.what.c_str());
    cr_expect_eq(open_descriptors(), descriptors, "call %d leaks a descriptor", n);
    after_failure(n);
  }
  cr_assert_fail("no end of calls");
  return 0;
}

}  // namespace

Test(backend_faults, create_is_whole_or_nothing) {
  for (const int error : {ENOSPC, EIO, ENOMEM}) {
    Folder dir;
    const auto address = parse("file:" + dir.file("a") + "," + dir.file("b") + "?size=8MiB");
    const int failed = sweep(
        error,
        [&] {
          std::unique_ptr<Backend> made;
          auto s = Backend::create(address, {}, {}, made);
          cr_expect_eq(s.ok(), made != nullptr);
          if (s.ok() && faults.calls >= faults.fail_at) {
            faults.on = false;
            made.reset();
            cr_expect(Backend::remove(address, false).ok());
          }
          return s;
        },
        [&](int n) { cr_expect(dir.empty(), "call %d leaves something", n); });
    cr_expect_gt(failed, 12, "only %d calls were failed", failed);
  }
}

Test(backend_faults, reuse_keeps_the_file_on_failure) {
  Folder dir;
  const std::string text = "file:" + dir.file("a") + "," + dir.file("b");
  must_create(text + "?size=4MiB")->devices()[1].base[5] = std::byte{0x77};
  const auto address = parse(text + "?size=8MiB");
  const auto shrink_back = [&] {
    for (const char *name : {"a", "b"}) std::filesystem::resize_file(dir.file(name), 2 * kMiB);
  };
  const int failed = sweep(
      ENOSPC,
      [&] {
        std::unique_ptr<Backend> made;
        auto s = Backend::create(address, {}, reuse_option(), made);
        if (s.ok()) cr_expect(made->devices()[1].base[5] == std::byte{0x77});
        made.reset();
        if (s.ok()) shrink_back();
        return s;
      },
      [&](int n) {
        for (const char *name : {"a", "b"}) {
          cr_expect_eq(std::filesystem::file_size(dir.file(name)), 2 * kMiB, "call %d: %s", n,
                       name);
        }
      });
  cr_expect_gt(failed, 12);
}

Test(backend_faults, open_fails_cleanly) {
  MemPool pool("open-faults");
  must_create(pool.text("?size=8MiB&devices=2"));
  const auto address = parse(pool.text());
  const int failed = sweep(
      EIO,
      [&] {
        std::unique_ptr<Backend> opened;
        auto s = Backend::open(address, OpenMode::kReadWrite, {}, opened);
        cr_expect_eq(s.ok(), opened != nullptr);
        return s;
      },
      [](int) {});
  cr_expect_gt(failed, 6);
}

// Zeros are written instead, into the holes alone.
Test(backend_faults, file_system_without_fallocate) {
  Folder dir;
  const int fd = open(dir.file("a").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  cr_assert_geq(fd, 0);
  cr_assert_eq(ftruncate(fd, 4 * kMiB), 0);
  cr_assert_eq(pwrite(fd, "kept", 4, kMiB + 4096), 4);
  faults.fallocate_error = EOPNOTSUPP;
  const auto made = must_create("file:" + dir.file("a") + "?size=6MiB", reuse_option());
  struct stat st = {};
  cr_assert_eq(fstat(fd, &st), 0);
  cr_expect_eq(static_cast<u64>(st.st_size), 6 * kMiB);
  cr_expect_geq(static_cast<u64>(st.st_blocks) * 512, 6 * kMiB, "holes are left");
  cr_expect_eq(std::memcmp(made->devices()[0].base + kMiB + 4096, "kept", 4), 0);
  cr_expect(made->devices()[0].base[kMiB + 4100] == std::byte{0});
  close(fd);
}

// Filling a tmpfs beyond the machine's memory would wake the out-of-memory killer.
Test(backend_faults, more_than_the_machine_has) {
  if (!own_mounts("more_than_the_machine_has")) return;
  Folder dir;
  cr_assert(mount_tmpfs(dir.path(), "size=64t"));
  faults.fallocate_error = ENOSPC;  // should it try all the same, it gets nothing
  expect_create_fails("file:" + dir.file("a") + "?size=32TiB&huge=no", -ENOMEM, "the machine has");
  cr_expect_eq(faults.fallocates, 0);
  cr_expect(dir.empty());
}

Test(backend_faults, file_removed_before_it_is_locked) {
  Folder dir;
  const std::string text = "file:" + dir.file("a") + "?size=2MiB";
  must_create(text);
  faults.before_lock = [&] { cr_assert_eq(unlink(dir.file("a").c_str()), 0); };
  expect_create_fails(text, -EAGAIN, "was removed meanwhile", reuse_option());
  cr_expect(dir.empty());
  // Replaced by another: that one is not ours to remove either.
  must_create(text);
  faults.before_lock = [&] {
    cr_assert_eq(unlink(dir.file("a").c_str()), 0);
    must_create(text)->devices()[0].base[0] = std::byte{1};
  };
  expect_fail(Backend::remove(parse(text), false), -EAGAIN, "was removed meanwhile");
  cr_expect(must_open(text)->devices()[0].base[0] == std::byte{1});
  // The same with a file just made by us.
  std::filesystem::remove(dir.file("a"));
  faults.before_lock = [&] {
    cr_assert_eq(unlink(dir.file("a").c_str()), 0);
    must_create(text)->devices()[0].base[0] = std::byte{2};
  };
  expect_create_fails(text, -EAGAIN, "was removed meanwhile");
  cr_expect(must_open(text)->devices()[0].base[0] == std::byte{2});
}

Test(backend_faults, new_file_taken_by_another_format) {
  Folder dir;
  const std::string text = "file:" + dir.file("a") + "?size=2MiB";
  std::unique_ptr<Backend> other;
  faults.before_lock = [&] { other = must_create(text, reuse_option()); };
  expect_create_fails(text, -EBUSY, "being formatted");
  cr_assert_not_null(other.get());
  cr_expect(std::filesystem::exists(dir.file("a")), "the other's file was removed");
  other.reset();
  std::filesystem::remove(dir.file("a"));
  // The other has ended already: its pool must neither be overwritten nor removed.
  faults.before_lock = [&] {
    must_create(text, reuse_option())->devices()[0].base[0] = std::byte{3};
  };
  expect_create_fails(text, -EEXIST, "formatted by another process");
  cr_expect(must_open(text)->devices()[0].base[0] == std::byte{3});
}

// Its length is taken again under the lock: what another format made longer stays so.
Test(backend_faults, file_grown_by_another_before_it_is_locked) {
  Folder dir;
  const std::string path = "file:" + dir.file("a");
  must_create(path + "?size=2MiB");
  faults.before_lock = [&] { must_create(path + "?size=8MiB", reuse_option()); };
  const auto made = must_create(path, reuse_option());
  cr_expect_eq(made->devices()[0].bytes, 8 * kMiB);
}

Test(backend_faults, file_cut_between_open_and_use) {
  Folder dir;
  const std::string text = "file:" + dir.file("a");
  must_create(text + "?size=8MiB");
  begin_as_store(dir.file("a"));
  const auto opened = must_open(text);
  cr_expect(opened->recheck().ok());
  cr_assert_eq(truncate(dir.file("a").c_str(), kMiB), 0);
  expect_fail(opened->recheck(), -EFBIG, "truncated");
  expect_open_fails(text, -EFBIG, "1048576 bytes");
  cr_assert_eq(truncate(dir.file("a").c_str(), 8 * kMiB), 0);
  faults.before_map = [&] { cr_assert_eq(truncate(dir.file("a").c_str(), 4 * kMiB), 0); };
  expect_open_fails(text, -EFBIG, "has 4194304 bytes, needs 8388608");
}
