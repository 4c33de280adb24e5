// SPDX-License-Identifier: Apache-2.0
// Shows: devices that are open become longer without a pointer moving; space that is not there
// leaves every file as it was; storage given back reads as zeros under every mapping, and a touch
// of it, loads and stores alike, ends nobody.
// How: files and named memory with two openings each, a small tmpfs of the test's own.
#include <sys/resource.h>

#include "backend_fixture.hpp"

using namespace kvpool;
using namespace kvpool::backend;
using namespace backend_test;

namespace {

std::unique_ptr<Backend> roomy(const std::string &text, u64 room) {
  auto opened = must_open(text);
  const std::vector<u64> rooms(opened->devices().size(), room);
  const Status s = opened->make_room(rooms, false);
  cr_assert(s.ok(), "%s", s.what.c_str());
  return opened;
}

void grows_under(const std::string &text) {
  const auto one = roomy(text, 64 * kMiB), two = roomy(text, 64 * kMiB);
  std::byte *const base = one->devices()[0].base;
  base[0] = std::byte{7};
  expect_fail(one->extend(0, 6 * kMiB), -EFBIG, "truncated");
  const u64 wanted[] = {12 * kMiB};
  cr_assert(one->grow_files(wanted).ok());
  cr_expect_eq(one->file_bytes(0), 12 * kMiB);
  for (Backend *backend : {one.get(), two.get()}) {
    const Status s = backend->extend(0, 6 * kMiB);
    cr_assert(s.ok(), "%s", s.what.c_str());
    cr_expect(backend->extend(0, 12 * kMiB).ok(), "as far as the file reaches, at once");
  }
  cr_expect(one->devices()[0].base == base, "nothing moved");
  base[12 * kMiB - 1] = std::byte{9};
  cr_expect(two->devices()[0].base[12 * kMiB - 1] == std::byte{9});
  cr_expect(two->devices()[0].base[0] == std::byte{7});
  expect_fail(one->extend(3, kMiB), -ENODEV, "no device 3");
  const u64 beyond[] = {80 * kMiB};
  cr_assert(one->grow_files(beyond).ok());
  expect_fail(one->extend(0, 80 * kMiB), -EFBIG, "open it again");
  cr_expect(one->extend(0, 64 * kMiB).ok(), "up to the room");
}

}  // namespace

Test(backend_growth, files_grow_under_their_mappings) {
  Folder dir;
  must_create("file:" + dir.file("a") + "?size=4MiB");
  grows_under("file:" + dir.file("a"));
}

Test(backend_growth, named_memory_grows_under_its_mappings) {
  MemPool pool("grow");
  must_create(pool.text("?size=4MiB"));
  grows_under(pool.text());
}

Test(backend_growth, without_space_every_file_stays_as_it_was) {
  if (!own_mounts("without_space_every_file_stays_as_it_was")) return;
  Folder dir;
  cr_assert(mount_tmpfs(dir.path(), "size=10m"));
  const std::string text = "file:" + dir.file("a") + "," + dir.file("b");
  must_create(text + "?size=8MiB");
  const auto opened = roomy(text, 64 * kMiB);
  const u64 free = free_bytes(dir.path());
  const u64 wanted[] = {6 * kMiB, 6 * kMiB};  // one of them would fit
  expect_fail(opened->grow_files(wanted), -ENOSPC, "b: cannot reserve 6 MiB");
  cr_expect_eq(file_size(dir.file("a")), 4 * kMiB);
  cr_expect_eq(file_size(dir.file("b")), 4 * kMiB);
  cr_expect_eq(free_bytes(dir.path()), free);
  const u64 fits[] = {5 * kMiB, 4 * kMiB};
  cr_assert(opened->grow_files(fits).ok());
  const u64 more[] = {5 * kMiB, 6 * kMiB};
  expect_fail(opened->grow_files(more), -ENOSPC, "b: cannot reserve");
  cr_expect_eq(file_size(dir.file("a")), 5 * kMiB, "what an earlier growth did stays");
}

Test(backend_growth, storage_given_back_reads_as_zeros) {
  if (!own_mounts("storage_given_back_reads_as_zeros")) return;
  Folder dir;
  cr_assert(mount_tmpfs(dir.path(), "size=16m"));
  const std::string text = "file:" + dir.file("a");
  must_create(text + "?size=8MiB");
  const auto one = roomy(text, 64 * kMiB), two = roomy(text, 64 * kMiB);
  fill(*one, 0x5A);
  const u64 free = free_bytes(dir.path());
  cr_assert(one->punch(0, 4 * kMiB, 8 * kMiB).ok());
  cr_expect_eq(file_size(dir.file("a")), 8 * kMiB);
  cr_expect_eq(free_bytes(dir.path()), free + 4 * kMiB);
  const std::byte *bytes = two->devices()[0].base;
  cr_expect(bytes[4 * kMiB - 1] == std::byte{0x5A});
  cr_expect(bytes[4 * kMiB] == std::byte{0} && bytes[8 * kMiB - 1] == std::byte{0});
  two->devices()[0].base[5 * kMiB] = std::byte{1};  // by whoever does not know
  cr_expect(one->devices()[0].base[5 * kMiB] == std::byte{1});
  const u64 again[] = {8 * kMiB};
  cr_assert(one->grow_files(again).ok());
  cr_expect_eq(free_bytes(dir.path()), free, "all of it is allocated again");
  expect_fail(one->punch(0, 0, 0), -EINVAL, "cannot give");
}

// A process with a limit on its address space keeps what it has, and is told when it cannot follow.
Test(backend_growth, without_address_space_nothing_is_lost) {
  Folder dir;
  const std::string text = "file:" + dir.file("a");
  must_create(text + "?size=4MiB");
  const auto opened = must_open(text);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = u64{1} << 45;  // sanitizers take much of their own
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_cur > limit.rlim_max) return;
  const u64 room[] = {u64{1} << 46};
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  setrlimit(RLIMIT_AS, &limit);
  const Status s = opened->make_room(room, false);
  setrlimit(RLIMIT_AS, &before);
  cr_assert(s.ok(), "%s", s.what.c_str());
  opened->devices()[0].base[0] = std::byte{1};
  const u64 wanted[] = {8 * kMiB};
  cr_assert(opened->grow_files(wanted).ok());
  expect_fail(opened->extend(0, 8 * kMiB), -EFBIG, "open it again");
}
