// SPDX-License-Identifier: Apache-2.0
// Shows: pools in files and shared memory are made whole or not at all; every bad file is named.
// How: real files, small file systems mounted to be filled, children that are another user.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statfs.h>

#include "backend_fixture.hpp"

using namespace backend_test;

namespace {

bool all_bytes(const DeviceSpan &span, u8 value) {
  for (u64 i = 0; i < span.bytes; ++i) {
    if (static_cast<u8>(span.base[i]) != value) return false;
  }
  return true;
}

void make_file(const std::string &path, u64 bytes, char value = 'x') {
  std::ofstream file(path, std::ios::binary);
  const std::string chunk(4096, value);
  for (u64 at = 0; at < bytes; at += chunk.size()) {
    file.write(chunk.data(), static_cast<std::streamsize>(std::min<u64>(chunk.size(), bytes - at)));
  }
}

}  // namespace

Test(backend_files, made_reserved_aligned_and_shared) {
  Folder dir;
  const std::string text = "file:" + dir.file("a") + "," + dir.file("b") + "?size=8MiB";
  cr_expect(!Backend::exists(parse(text)));
  auto made = must_create(text);
  cr_assert_eq(made->devices().size(), 2u);
  for (const auto &span : made->devices()) {
    cr_expect_eq(span.bytes, 4 * kMiB);
    cr_expect_eq(reinterpret_cast<u64>(span.base) % kDeviceAlign, 0u);
    cr_expect(all_bytes(span, 0));
    struct stat st = {};
    cr_assert_eq(stat(span.name.c_str(), &st), 0);
    cr_expect_geq(static_cast<u64>(st.st_blocks) * 512, span.bytes, "space is not reserved");
    cr_expect_eq(st.st_mode & 0777u, 0600u);
  }
  fill(*made, 0xA5);
  auto other = must_open(text);
  auto reader = must_open(text, OpenMode::kReadOnly);
  cr_expect(all_bytes(other->devices()[1], 0xA5));
  other->devices()[0].base[0] = std::byte{7};
  cr_expect(made->devices()[0].base[0] == std::byte{7});
  cr_expect(reader->devices()[0].base[0] == std::byte{7});
  cr_expect(!reader->writable());
  cr_expect(Backend::exists(parse(text)));
}

Test(backend_files, mem_is_made_found_and_removed) {
  MemPool pool("mem");
  const auto made = must_create(pool.text("?size=8MiB&devices=2&host=5"));
  cr_expect_eq(made->host_id(), 5u);
  cr_expect(std::filesystem::exists("/dev/shm/kvpool-" + pool.name() + ".1"));
  // Whoever opens need not know size or number of devices.
  const auto other = must_open(pool.text());
  cr_assert_eq(other->devices().size(), 2u);
  cr_expect_eq(other->devices()[1].bytes, 4 * kMiB);
  made->devices()[1].base[9] = std::byte{9};
  cr_expect(other->devices()[1].base[9] == std::byte{9});

  expect_open_fails(pool.text("?devices=3"), -EINVAL, "the pool has 2");
  expect_open_fails(pool.text("?size=1GiB"), -EINVAL, "the pool has 8 MiB");
  cr_expect_eq(must_open(pool.text("?size=8MiB&devices=2"))->devices().size(), 2u);
  expect_create_fails(pool.text("?size=8MiB&devices=2"), -EEXIST, "exists already");

  expect_fail(Backend::remove(parse(pool.text()), false), -EBUSY, "being formatted");
  cr_assert_eq(made->locks().unlock(LockKind::kFormat, 0), 0);
  cr_expect(Backend::remove(parse(pool.text()), false).ok());
  expect_open_fails(pool.text(), -ENOENT, "no pool of this name");
  expect_fail(Backend::remove(parse(pool.text()), false), -ENOENT, "nothing to remove");
  cr_expect(other->devices()[1].base[9] == std::byte{9}, "a mapping outlives the name");
}

Test(backend_files, mem_with_a_device_missing) {
  MemPool pool("gap");
  must_create(pool.text("?size=8MiB&devices=4"));
  std::filesystem::remove("/dev/shm/kvpool-" + pool.name() + ".2");
  expect_open_fails(pool.text(), -ENODEV, pool.name() + ".2 is missing");
  std::filesystem::remove("/dev/shm/kvpool-" + pool.name() + ".0");
  expect_open_fails(pool.text(), -ENODEV, pool.name() + ".0 is missing");
  cr_expect(Backend::remove(parse(pool.text()), false).ok(), "the rest can be removed");
  cr_expect(!Backend::exists(parse(pool.text())));
}

Test(backend_files, huge_pages_asked_for_and_refused) {
  for (const char *option : {"", "&huge=yes", "&huge=no"}) {
    MemPool pool("huge");
    CreateOptions options;
    options.populate = true;
    const auto made = must_create(pool.text("?size=8MiB" + std::string(option)), options);
    cr_expect(all_bytes(made->devices()[0], 0));
    OpenOptions populate{true};
    std::unique_ptr<Backend> other;
    cr_expect(Backend::open(parse(pool.text()), OpenMode::kReadOnly, populate, other).ok());
    cr_expect(all_bytes(other->devices()[0], 0));
  }
}

Test(backend_files, what_is_no_pool_is_named) {
  Folder dir;
  expect_open_fails("file:" + dir.file("none"), -ENOENT, "no such file");
  expect_open_fails("file:" + dir.file("no/dir/none"), -ENOENT, "no such directory");
  expect_open_fails("file:" + dir.path(), -EISDIR, "is a directory");
  expect_create_fails("file:" + dir.path() + "?size=4MiB", -EEXIST, "exists already");
  CreateOptions reuse;
  reuse.reuse = true;
  expect_create_fails("file:" + dir.path() + "?size=4MiB", -EISDIR, "is a directory", reuse);
  cr_assert_eq(mkfifo(dir.file("fifo").c_str(), 0600), 0);
  expect_open_fails("file:" + dir.file("fifo"), -EINVAL, "not a regular file");
  expect_open_fails("file:/dev/null", -EINVAL, "not a regular file");
  expect_open_fails("dax:/dev/null?host=0", -ENOTTY, "is not a dax device");
  make_file(dir.file("plain"), 4096);
  expect_open_fails("dax:" + dir.file("plain") + "?host=0", -EINVAL, "write file:");
  expect_open_fails("dax:/dev/dax99.99?host=0", -ENOENT, "no such file");
  expect_open_fails("file:" + dir.file("plain") + "/x", -ENOTDIR, "plain/x");
  cr_assert_eq(symlink("loop", dir.file("loop").c_str()), 0);
  expect_open_fails("file:" + dir.file("loop"), -ELOOP, "loop");
}

// Either of the first two devices has what the store is known by.
Test(backend_files, devices_are_lost_but_for_one_of_the_first_two) {
  Folder dir;
  for (const char *name : {"a", "b", "c"}) make_file(dir.file(name), 4 * kMiB);
  const auto text = [&](const char *one, const char *two) {
    return "file:" + dir.file(one) + "," + dir.file(two) + "," + dir.file("c");
  };
  begin_as_store(dir.file("b"));
  make_file(dir.file("empty"), 0);
  for (const bool first : {true, false}) {
    const auto pool = must_open(first ? text("empty", "b") : text("b", "empty"));
    cr_expect_eq(pool->devices()[first ? 0 : 1].bytes, 4 * kMiB);
    for (u32 d = 0; d < 3; ++d) cr_expect_eq(pool->devices()[d].lost, d == (first ? 0u : 1u));
    const u64 rooms[] = {8 * kMiB, 8 * kMiB, 8 * kMiB};
    cr_expect(pool->make_room(rooms, true).ok());
    cr_expect(pool->devices()[0].lost == first);
  }
  const auto last =
      must_open("file:" + dir.file("b") + "," + dir.file("c") + "," + dir.file("empty"));
  cr_expect(last->devices()[2].lost && last->devices()[2].bytes == 4 * kMiB);
  make_file(dir.file("bare"), 0);
  const auto both = must_open(text("empty", "b") + "," + dir.file("bare"));
  for (u32 d = 0; d < 4; ++d) cr_expect_eq(both->devices()[d].lost, d == 0 || d == 3);
  expect_open_fails("file:" + dir.file("empty") + "," + dir.file("c") + "," + dir.file("b"), -EFBIG,
                    "is empty, while");
  expect_open_fails(text("empty", "a"), -ENODATA, "is empty");
}

Test(backend_files, truncated_and_empty) {
  Folder dir;
  make_file(dir.file("empty"), 0);
  expect_open_fails("file:" + dir.file("empty"), -ENODATA, "never formatted");
  // Only what begins as a store was one; a device among others begins as it likes.
  make_file(dir.file("short"), 2 * kMiB - 1);
  expect_open_fails("file:" + dir.file("short"), -ENODATA, "is no store: has 2097151 bytes");
  make_file(dir.file("tiny"), 3);
  expect_open_fails("file:" + dir.file("tiny"), -ENODATA, "is no store: has 3 bytes");
  begin_as_store(dir.file("short"));
  expect_open_fails("file:" + dir.file("short"), -EFBIG, "truncated: has 2097151 bytes");
  make_file(dir.file("whole"), 4 * kMiB);
  expect_open_fails("file:" + dir.file("whole") + "," + dir.file("tiny"), -EFBIG, "has 3 bytes");

  const std::string text = "file:" + dir.file("pool") + "?size=8MiB";
  const auto made = must_create(text);
  cr_expect(made->require_bytes(0, 8 * kMiB).ok());
  expect_fail(made->require_bytes(1, kMiB), -ENODEV, "device 1");
  cr_assert_eq(truncate(dir.file("pool").c_str(), 8 * kMiB - 1), 0);
  expect_fail(made->recheck(), -EFBIG, "truncated: has 8388607 bytes, needs 8388608");
  const auto again = must_open("file:" + dir.file("pool"));
  cr_expect_eq(again->devices()[0].bytes, 6 * kMiB, "only whole stripes are mapped");
  expect_fail(again->require_bytes(0, 8 * kMiB), -EFBIG, "has 8388607 bytes, needs 8388608");
  expect_open_fails(text, -EINVAL, "the pool has 6 MiB");
  cr_assert_eq(truncate(dir.file("pool").c_str(), 16 * kMiB), 0);
  cr_expect(made->recheck().ok());
  expect_fail(again->require_bytes(0, 16 * kMiB), -ESTALE, "has grown");
}

Test(backend_files, same_file_under_two_names) {
  Folder dir;
  make_file(dir.file("a"), 4 * kMiB);
  cr_assert_eq(link(dir.file("a").c_str(), dir.file("b").c_str()), 0);
  const std::string text = "file:" + dir.file("a") + "," + dir.file("b");
  expect_open_fails(text, -EINVAL, "are the same file");
  CreateOptions reuse;
  reuse.reuse = true;
  expect_create_fails(text, -EINVAL, "are the same file", reuse);
  cr_expect_eq(file_size(dir.file("a")), 4 * kMiB);
}

Test(backend_files, refusal_leaves_an_existing_file_alone) {
  Folder dir;
  make_file(dir.file("b"), 12345);
  expect_create_fails("file:" + dir.file("a") + "," + dir.file("b") + "?size=8MiB", -EEXIST,
                      "b: exists already");
  cr_expect(!std::filesystem::exists(dir.file("a")), "what was made before is left behind");
  cr_expect_eq(file_size(dir.file("b")), 12345u);
  expect_create_fails("file:" + dir.file("c"), -EINVAL, "needs a size");
  cr_expect(!std::filesystem::exists(dir.file("c")));
}

Test(backend_files, reuse_grows_and_never_cuts) {
  Folder dir;
  CreateOptions reuse;
  reuse.reuse = true;
  make_file(dir.file("a"), 3 * kMiB, 'k');
  // Without a size the file's own is taken, in whole stripes.
  cr_expect_eq(must_create("file:" + dir.file("a"), reuse)->devices()[0].bytes, 2 * kMiB);
  cr_expect_eq(file_size(dir.file("a")), 3 * kMiB);
  {
    const auto made = must_create("file:" + dir.file("a") + "?size=8MiB", reuse);
    cr_expect_eq(made->devices()[0].bytes, 8 * kMiB);
    cr_expect(made->devices()[0].base[0] == std::byte{'k'}, "content is the caller's to overwrite");
    cr_expect(made->devices()[0].base[8 * kMiB - 1] == std::byte{0});
  }
  cr_expect_eq(must_create("file:" + dir.file("a") + "?size=2MiB", reuse)->devices()[0].bytes,
               2 * kMiB);
  cr_expect_eq(file_size(dir.file("a")), 8 * kMiB);
}

Test(backend_files, sizes_given_one_by_one) {
  Folder dir;
  const auto address = parse("file:" + dir.file("a") + "," + dir.file("b"));
  std::unique_ptr<Backend> made;
  const u64 wrong[] = {2 * kMiB, 3 * kMiB};
  expect_fail(Backend::create(address, wrong, {}, made), -EINVAL, "not a multiple of 2 MiB");
  expect_fail(Backend::create(address, {wrong, 1}, {}, made), -EINVAL, "1 sizes for 2 devices");
  cr_expect(dir.empty());
  const u64 right[] = {2 * kMiB, 6 * kMiB};
  cr_assert(Backend::create(address, right, {}, made).ok());
  cr_expect_eq(made->devices()[1].bytes, 6 * kMiB);
  std::unique_ptr<Backend> many;
  const std::vector<u64> seventeen(17, 2 * kMiB);
  expect_fail(Backend::create(parse("mem:none"), seventeen, {}, many), -E2BIG, "at most 16");
  // Near the largest size a file can have: an error, whatever the file system calls it.
  const u64 huge[] = {u64{1} << 55, 2 * kMiB};
  const auto s =
      Backend::create(parse("file:" + dir.file("c") + "," + dir.file("d")), huge, {}, many);
  cr_expect(s.err == -ENOSPC || s.err == -EFBIG || s.err == -ENOMEM, "%d %s", s.err,
            s.what.c_str());
  cr_expect(!std::filesystem::exists(dir.file("c")));
}

Test(backend_files, full_file_system_leaves_nothing_behind) {
  if (!own_mounts("full_file_system_leaves_nothing_behind")) return;
  Folder dir;
  cr_assert(mount_tmpfs(dir.path(), "size=8m"));
  expect_create_fails("file:" + dir.file("a") + "?size=16MiB", -ENOSPC, "8 MiB free");
  cr_expect(dir.empty());
  // The second device is the one that no longer fits.
  expect_create_fails("file:" + dir.file("a") + "," + dir.file("b") + "?size=12MiB", -ENOSPC,
                      "b: cannot reserve 6 MiB");
  cr_expect(dir.empty());
  cr_expect_eq(free_bytes(dir.path()), 8 * kMiB);
  // Reserved is reserved: nobody else can take the space from under the mapping.
  const auto made = must_create("file:" + dir.file("a") + "?size=6MiB");
  make_file(dir.file("other"), 4 * kMiB);
  cr_expect_lt(file_size(dir.file("other")), 4 * kMiB);
  cr_expect_eq(free_bytes(dir.path()), 0u);
  fill(*made, 0xFF);
  cr_expect(all_bytes(made->devices()[0], 0xFF));
}

Test(backend_files, full_file_system_keeps_what_was_there) {
  if (!own_mounts("full_file_system_keeps_what_was_there")) return;
  Folder dir;
  cr_assert(mount_tmpfs(dir.path(), "size=10m"));
  CreateOptions reuse;
  reuse.reuse = true;
  make_file(dir.file("old"), 2 * kMiB, 'k');
  // The first grows, the second does not fit, the first is as long as it was.
  expect_create_fails("file:" + dir.file("old") + "," + dir.file("new") + "?size=12MiB", -ENOSPC,
                      "new: cannot reserve", reuse);
  cr_expect_eq(file_size(dir.file("old")), 2 * kMiB);
  cr_expect(!std::filesystem::exists(dir.file("new")));
  cr_expect_eq(free_bytes(dir.path()), 8 * kMiB);

  // A file whose blocks lie behind the part wanted passes every estimate; then the kernel says no.
  const int fd = open(dir.file("holes").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  cr_assert_geq(fd, 0);
  cr_assert_eq(fallocate(fd, 0, 4 * kMiB, 4 * kMiB), 0);
  cr_assert_eq(pwrite(fd, "tail", 4, 6 * kMiB), 4);
  make_file(dir.file("rest"), 16 * kMiB);
  cr_assert_eq(free_bytes(dir.path()), 0u);
  expect_create_fails("file:" + dir.file("holes") + "?size=4MiB", -ENOSPC, "no space left", reuse);
  char tail[4] = {};
  cr_expect_eq(pread(fd, tail, 4, 6 * kMiB), 4);
  cr_expect_eq(std::memcmp(tail, "tail", 4), 0);
  cr_expect_eq(file_size(dir.file("holes")), 8 * kMiB);
  close(fd);
}

Test(backend_files, full_shared_memory) {
  if (!own_mounts("full_shared_memory")) return;
  cr_assert(mount_tmpfs("/dev/shm", "size=8m"));
  MemPool pool("full");
  expect_create_fails(pool.text("?size=16MiB"), -ENOSPC, "enlarge /dev/shm");
  cr_expect(!Backend::exists(parse(pool.text())));
  expect_create_fails(pool.text("?size=24MiB&devices=6&huge=no"), -ENOSPC,
                      ".2: cannot reserve 4 MiB");
  cr_expect(!Backend::exists(parse(pool.text())));
}

Test(backend_files, read_only_file_system) {
  if (!own_mounts("read_only_file_system")) return;
  Folder dir;
  cr_assert(mount_tmpfs(dir.path(), "size=8m"));
  must_create("file:" + dir.file("a") + "?size=4MiB");
  cr_assert_eq(mount(nullptr, dir.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);
  expect_open_fails("file:" + dir.file("a"), -EROFS, "file system is read-only");
  expect_create_fails("file:" + dir.file("b") + "?size=2MiB", -EROFS, "file system is read-only");
  const auto reader = must_open("file:" + dir.file("a"), OpenMode::kReadOnly);
  cr_expect_eq(reader->locks().try_lock(LockKind::kMember, 0), -EROFS);
  LockState state = LockState::kHere;
  cr_expect_eq(reader->locks().query(LockKind::kMember, 0, state), 0);
  cr_expect(state == LockState::kFree);
  expect_fail(Backend::remove(parse("file:" + dir.file("a")), true), -EROFS, "read-only");
}

Test(backend_files, file_size_limit_is_an_error_and_no_signal) {
  Folder dir;
  struct rlimit limit = {4 * kMiB, RLIM_INFINITY};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_create_fails("file:" + dir.file("a") + "?size=8MiB", -EFBIG, "ulimit -f");
  cr_expect(dir.empty());
  must_create("file:" + dir.file("a") + "?size=4MiB");
}

Test(backend_files, permission_denied) {
  Folder dir;
  cr_assert_eq(chmod(dir.path().c_str(), 0755), 0);
  must_create("file:" + dir.file("closed") + "?size=2MiB");
  must_create("file:" + dir.file("readable") + "?size=2MiB");
  cr_assert_eq(chmod(dir.file("readable").c_str(), 0444), 0);
  if (getuid() != 0) cr_assert_eq(chmod(dir.file("closed").c_str(), 0), 0);
  const auto as_other = [&](const std::string &text, OpenMode mode, const char *says) {
    const auto address = parse(text);
    return in_child([&] {
      if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 100;
      std::unique_ptr<Backend> made;
      const auto s = Backend::open(address, mode, {}, made);
      return s.what.find(says) == std::string::npos ? 101 : -s.err;
    });
  };
  const auto closed = "file:" + dir.file("closed");
  const auto readable = "file:" + dir.file("readable");
  cr_expect_eq(as_other(closed, OpenMode::kReadWrite, "permission denied for writing"), EACCES);
  cr_expect_eq(as_other(closed, OpenMode::kReadOnly, "permission denied (owned by"), EACCES);
  cr_expect_eq(as_other(readable, OpenMode::kReadWrite, "mode 0444"), EACCES);
  cr_expect_eq(as_other(readable, OpenMode::kReadOnly, ""), 0);
}

Test(backend_files, read_only_mapping_cannot_be_written) {
  MemPool pool("ro");
  must_create(pool.text("?size=2MiB"));
  const auto reader = must_open(pool.text(), OpenMode::kReadOnly);
  const int code = in_child([&] {
    signal(SIGSEGV, SIG_DFL);  // sanitizers have their own
    reader->devices()[0].base[0] = std::byte{1};
    return 0;
  });
  cr_expect_eq(code, -SIGSEGV);
}

Test(backend_files, descriptors_and_mappings_do_not_leak) {
  Folder dir;
  const std::string text = "file:" + dir.file("a") + "," + dir.file("b");
  const auto count = [](const char *path) {
    u64 n = 0;
    for (const auto &entry : std::filesystem::directory_iterator(path)) n += entry.exists() ? 1 : 1;
    return n;
  };
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    u64 n = 0;
    for (std::string line; std::getline(maps, line);) n += line.find("kvpool-test") != line.npos;
    return n;
  };
  must_create(text + "?size=4MiB");
  const u64 before = count("/proc/self/fd");
  for (int i = 0; i < 20; ++i) {
    must_open(text);
    expect_open_fails(text + "," + dir.file("none"), -ENOENT, "none");
    expect_create_fails(text + "?size=4MiB", -EEXIST, "exists");
  }
  cr_expect_eq(count("/proc/self/fd"), before);
  cr_expect_eq(mappings(), 0u);
  const auto held = must_open(text);
  cr_expect_eq(mappings(), 2u);
}

Test(backend_files, hugetlbfs) {
  u64 pages = 0;
  for (const char *counter : {"free_hugepages", "nr_overcommit_hugepages"}) {
    u64 n = 0;
    std::ifstream(std::string("/sys/kernel/mm/hugepages/hugepages-2048kB/") + counter) >> n;
    pages += n;
  }
  if (pages < 3) cr_skip_test("no free huge pages of 2 MiB here");
  if (!own_mounts("hugetlbfs")) return;
  Folder dir;
  cr_assert_eq(mount("kvpool-test", dir.path().c_str(), "hugetlbfs", 0, "pagesize=2M"), 0);
  const auto made = must_create("file:" + dir.file("a") + "?size=6MiB");
  cr_expect_eq(made->devices()[0].bytes, 6 * kMiB);
  fill(*made, 0x5A);
  cr_expect(all_bytes(must_open("file:" + dir.file("a"))->devices()[0], 0x5A));
  expect_create_fails("file:" + dir.file("b") + "?size=4TiB", -ENOSPC, "vm.nr_hugepages");
  cr_expect(!std::filesystem::exists(dir.file("b")));
}
