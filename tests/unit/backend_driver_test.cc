// SPDX-License-Identifier: Apache-2.0
// Shows: slices of a partition become one range of addresses without the driver's own bytes, and a
// list that makes no sense is refused before anything is mapped.
// How: lists made up here; what the driver does with them is shown in tests/qemu.
#include <linux/kvpool_format.h>

#include "backend_fixture.hpp"

using namespace backend_test;

namespace {

constexpr u64 kUnit = 64 * kMiB;

Slice slice(u32 id, u64 bytes, u32 device = 0) {
  return {id, device, u64{id} * kUnit, bytes, u64{id} << 40};
}

std::vector<Piece> pieces(const Partition &partition) {
  std::vector<Piece> out;
  const auto s = pieces_of(partition, "/dev/kvpool-x", out);
  cr_assert(s.ok(), "%s", s.what.c_str());
  return out;
}

}  // namespace

Test(backend_driver, one_slice_begins_behind_the_drivers_lines) {
  const auto out = pieces({KVPOOL_TYPE_WB, {slice(7, kUnit)}});
  cr_assert_eq(out.size(), 1u);
  cr_expect_eq(out[0].at, 0u);
  cr_expect_eq(out[0].bytes, kUnit - 2 * kMiB);
  cr_expect_eq(out[0].map_offset, (u64{7} << 40) + 2 * kMiB);
  cr_expect_eq(out[0].device_offset, 7 * kUnit + 2 * kMiB);
}

Test(backend_driver, slices_follow_each_other_without_a_gap) {
  const auto out =
      pieces({KVPOOL_TYPE_WB, {slice(1, kUnit), slice(4, 2 * kUnit, 1), slice(5, kUnit)}});
  cr_assert_eq(out.size(), 3u);
  u64 at = 0;
  for (const Piece &piece : out) {
    cr_expect_eq(piece.at, at);
    cr_expect_eq(piece.at % (2 * kMiB), 0u);
    at += piece.bytes;
  }
  cr_expect_eq(at, 4 * kUnit - 2 * kMiB);
  cr_expect_eq(out[1].device, 1u);
  cr_expect_eq(out[1].map_offset, u64{4} << 40);
}

// Only write-back partitions hold lines of the drivers.
Test(backend_driver, payload_partitions_are_whole) {
  const auto out = pieces({KVPOOL_TYPE_WC, {slice(3, kUnit)}});
  cr_expect_eq(out[0].bytes, kUnit);
  cr_expect_eq(out[0].map_offset, u64{3} << 40);
}

Test(backend_driver, lists_that_make_no_sense) {
  std::vector<Piece> untouched(5);
  const auto refused = [&](const Partition &partition, const char *says) {
    expect_fail(pieces_of(partition, "/dev/kvpool-x", untouched), -ENOTSUP, says);
    cr_expect_eq(untouched.size(), 5u);
  };
  refused({KVPOOL_TYPE_WB, {}}, "has no memory");
  refused({KVPOOL_TYPE_WB, {slice(2, 0)}}, "slice 2");
  refused({KVPOOL_TYPE_WB, {slice(2, kUnit + 4096)}}, "slice 2");
  refused({KVPOOL_TYPE_WB, {slice(2, kUnit), slice(2, kUnit)}}, "slice 2");
  refused({KVPOOL_TYPE_WB, {slice(3, kUnit), slice(2, kUnit)}}, "slice 2");
  auto odd = slice(2, kUnit);
  odd.map_offset += 4096;
  refused({KVPOOL_TYPE_WB, {odd}}, "slice 2");
  refused({KVPOOL_TYPE_WB, {slice(1, 2 * kMiB)}}, "has no memory");
}

Test(backend_driver, names_are_those_that_the_driver_takes) {
  cr_expect(partition_path("a-1") == "/dev/kvpool-a-1");
  for (const char *bad : {"", "-a", "A", "a_b", "a.b", "a/b", "../x", "a b"}) {
    cr_expect(partition_path(bad).empty(), "%s", bad);
  }
  cr_expect(partition_path(std::string(KVPOOL_NAME_BYTES, 'a')).empty());
}

// What is no node of the driver is said to be none, whatever it does with an ioctl.
Test(backend_driver, other_devices_are_no_partitions) {
  const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  Partition untouched;
  expect_fail(read_partition(fd, "/dev/null", untouched), -EINVAL, "no node of the kvpool driver");
  ::close(fd);
  Folder folder;
  std::ofstream(folder.file("f")) << "x";
  DeviceFile file;
  expect_fail(DeviceFile::open({PlaceKind::kNode, folder.file("f")}, true, file), -EINVAL,
              "no node of the kvpool driver");
}
