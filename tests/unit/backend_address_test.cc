// SPDX-License-Identifier: Apache-2.0
// Shows: an address is understood exactly or refused with words that name the fault and the way on.
// How: tables of good and bad texts against parse_address, parse_size and device_sizes.
#include "backend_fixture.hpp"

using namespace backend_test;

namespace {

Status parse_status(const std::string &text) {
  Address untouched;
  untouched.text = "untouched";
  const auto s = parse_address(text.c_str(), untouched);
  if (!s.ok()) cr_expect_str_eq(untouched.text.c_str(), "untouched");
  return s;
}

}  // namespace

Test(backend_address, good_ones) {
  const auto mem = parse("mem:demo?size=1GiB&devices=2");
  cr_expect(mem.scheme == Scheme::kMem);
  cr_expect_str_eq(mem.name.c_str(), "demo");
  cr_expect_eq(*mem.size, u64{1} << 30);
  cr_expect_eq(*mem.devices, 2u);
  cr_expect_eq(mem.host_id(), 0u);

  const auto file = parse("file:/a/b,c.img,/d?host=15&huge=no&size=4G");
  cr_expect(file.scheme == Scheme::kFile);
  cr_assert_eq(file.paths.size(), 3u);
  cr_expect_str_eq(file.paths[1].c_str(), "c.img");
  cr_expect_eq(file.host_id(), 15u);
  cr_expect(file.huge.has_value() && !*file.huge);

  const auto dax = parse("dax:/dev/dax0.0,/dev/dax1.0?host=3");
  cr_expect(dax.scheme == Scheme::kDax);
  cr_expect_eq(dax.paths.size(), 2u);
  cr_expect_eq(dax.host_id(), 3u);

  const auto dev = parse("dev:prod+prod-2");
  cr_expect(dev.scheme == Scheme::kDev);
  cr_assert_eq(dev.paths.size(), 2u);
  cr_expect_str_eq(dev.paths[0].c_str(), "/dev/kvpool-prod");
  cr_expect_str_eq(dev.paths[1].c_str(), "/dev/kvpool-prod-2");
  cr_expect(parse("file:/a%2Cb%3Fc%25").paths[0] == "/a,b?c%");
}

Test(backend_address, refusals_name_the_fault) {
  const struct {
    const char *text;
    int err;
    const char *says;
  } rows[] = {
      {"demo", -EINVAL, "has no scheme"},
      {"/tmp/pool", -EINVAL, "write file:/tmp/pool"},
      {"./a:b", -EINVAL, "has no scheme"},
      {"fil:/tmp/x", -EINVAL, "did you mean \"file\""},
      {"memory:demo", -EINVAL, "did you mean \"mem\""},
      {"tcp:host", -EINVAL, "known are mem, file, dax and dev"},
      {":x", -EINVAL, "unknown scheme \"\""},
      {"mem:", -EINVAL, "a name must follow"},
      {"mem:a/b", -EINVAL, "holds a '/'"},
      {"mem:..", -EINVAL, "may hold letters"},
      {"mem:a b", -EINVAL, "may hold letters"},
      {"file:", -EINVAL, "a path is empty"},
      {"file:/a,,/b", -EINVAL, "a path is empty"},
      {"file:/a,/b,/a", -EINVAL, "named twice"},
      {"file:/a%4", -EINVAL, "two hex digits"},
      {"file:/a%00b", -EINVAL, "two hex digits"},
      {"mem:a?sise=1G", -EINVAL, "did you mean \"size\""},
      {"mem:a?device=2", -EINVAL, "did you mean \"devices\""},
      {"mem:a?colour=red", -EINVAL, "known are size, devices, host and huge"},
      {"mem:a?size", -EINVAL, "needs a value"},
      {"mem:a?size=", -EINVAL, "needs a value"},
      {"mem:a?size=1GB", -EINVAL, "did you mean \"GiB\""},
      {"mem:a?size=1Gib", -EINVAL, "did you mean \"GiB\""},
      {"mem:a?size=1m", -EINVAL, "unknown unit \"m\""},
      {"mem:a?size=x", -EINVAL, "is not a size"},
      {"mem:a?size=-1", -EINVAL, "is not a size"},
      {"mem:a?size=1.2.3G", -EINVAL, "is not a size"},
      {"mem:a?size=0.3", -EINVAL, "whole number of bytes"},
      {"mem:a?size=99999999999999999999T", -ERANGE, "more than a pool"},
      {"mem:a?size=1G&size=2G", -EINVAL, "given twice"},
      {"mem:a?size=1G&&devices=1", -EINVAL, "unknown option \"\""},
      {"mem:a?devices=0", -ERANGE, "1 to 16"},
      {"mem:a?devices=17", -ERANGE, "1 to 16"},
      {"mem:a?devices=99999999999999999999999", -ERANGE, "1 to 16"},
      {"mem:a?devices=2x", -EINVAL, "not a whole number"},
      {"mem:a?devices=-1", -EINVAL, "not a whole number"},
      {"mem:a?host=16", -ERANGE, "0 to 15"},
      {"mem:a?huge=maybe", -EINVAL, "neither yes nor no"},
      {"file:/a?devices=2", -EINVAL, "1 paths are named"},
      {"dax:/dev/dax0.0", -EINVAL, "append ?host=N"},
      {"dax:/dev/dax0.0?host=0&size=1G", -EINVAL, "size of its own"},
      {"dev:", -EINVAL, "1 to 31 small letters"},
      {"dev:a+", -EINVAL, "1 to 31 small letters"},
      {"dev:Prod", -EINVAL, "1 to 31 small letters"},
      {"dev:-a", -EINVAL, "not first, '-'"},
      {"dev:a/b", -EINVAL, "1 to 31 small letters"},
      {"dev:/dev/kvpool-prod", -EINVAL, "as in dev:prod"},
      {"dev:a+b+a", -EINVAL, "named twice"},
      {"dev:a?size=1G", -EINVAL, "a partition has a size of its own"},
      {"dev:a?host=1", -EINVAL, "the driver knows this host's number"},
      {"dev:a?huge=yes", -EINVAL, "as large as it can"},
      {"dev:a+b?devices=3", -EINVAL, "2 partitions are named"},
  };
  for (const auto &row : rows) {
    const auto s = parse_status(row.text);
    expect_fail(s, row.err, row.says);
    cr_expect(s.what.find(row.text) != std::string::npos, "\"%s\" does not quote the address",
              s.what.c_str());
  }
}

Test(backend_address, huge_counts_and_lengths) {
  std::string sixteen = "file:/p0";
  for (int i = 1; i < 16; ++i) sixteen += ",/p" + std::to_string(i);
  cr_expect(parse_status(sixteen).ok());
  expect_fail(parse_status(sixteen + ",/p16"), -E2BIG, "more than 16 devices");
  cr_expect(parse_status("mem:" + std::string(200, 'a')).ok());
  expect_fail(parse_status("mem:" + std::string(201, 'a')), -ENAMETOOLONG, "at most 200");
  cr_expect(parse_status("file:/" + std::string(4094, 'a')).ok());
  expect_fail(parse_status("file:/" + std::string(4095, 'a')), -ENAMETOOLONG, "longer than 4095");
  cr_expect(parse_status("dev:" + std::string(31, 'a')).ok());
  expect_fail(parse_status("dev:" + std::string(32, 'a')), -EINVAL, "1 to 31");
  std::string partitions = "dev:p0";
  for (int i = 1; i < 16; ++i) partitions += "+p" + std::to_string(i);
  cr_expect(parse_status(partitions).ok());
  expect_fail(parse_status(partitions + "+p16"), -E2BIG, "more than 16 partitions");
}

// A pool in memory must be asked for: no address may ever become one.
Test(backend_address, none_is_enodev_with_the_ways_on) {
  unsetenv("KVPOOL");
  Address out;
  expect_fail(parse_address(nullptr, out), -ENODEV, "set KVPOOL");
  expect_fail(parse_address("", out), -ENODEV, "mem:NAME");
  setenv("KVPOOL", "", 1);
  expect_fail(parse_address(nullptr, out), -ENODEV, "file:/");
  setenv("KVPOOL", "file:/srv/pool", 1);
  cr_assert(parse_address(nullptr, out).ok());
  cr_expect_str_eq(out.paths[0].c_str(), "/srv/pool");
  cr_assert(parse_address("mem:given", out).ok());
  cr_expect(out.scheme == Scheme::kMem, "an address given goes before the environment");
  setenv("KVPOOL", "nonsense", 1);
  expect_fail(parse_address(nullptr, out), -EINVAL, "nonsense");
}

Test(backend_address, sizes) {
  const struct {
    const char *text;
    u64 bytes;
  } rows[] = {
      {"0", 0},
      {"4096", 4096},
      {"4096B", 4096},
      {"64K", 64 << 10},
      {"64KiB", 64 << 10},
      {"3M", 3 << 20},
      {"1.5MiB", 3 << 19},
      {"2G", u64{2} << 30},
      {"0.5GiB", 1 << 29},
      {"8TiB", u64{8} << 40},
      {"1T", u64{1} << 40},
  };
  for (const auto &row : rows) {
    u64 bytes = 1;
    cr_expect(parse_size(row.text, bytes).ok(), "%s", row.text);
    cr_expect_eq(bytes, row.bytes, "%s: %lu", row.text, static_cast<unsigned long>(bytes));
  }
  cr_expect(format_size(u64{3} << 29) == "1.5 GiB");
  cr_expect(format_size(100) == "100 bytes");
  cr_expect(format_size(u64{4096} << 40) == "4096 TiB");
}

Test(backend_address, device_sizes_are_whole_stripes) {
  std::vector<u64> sizes;
  cr_assert(device_sizes(parse("mem:a?size=64MiB&devices=3"), sizes).ok());
  cr_assert_eq(sizes.size(), 3u);
  for (const u64 size : sizes) cr_expect_eq(size, 20 * kMiB);
  cr_assert(device_sizes(parse("file:/a,/b?size=1GiB"), sizes).ok());
  cr_expect_eq(sizes[1], 512 * kMiB);
  expect_fail(device_sizes(parse("mem:a"), sizes), -EINVAL, "?size=1GiB");
  expect_fail(device_sizes(parse("mem:a?size=1MiB"), sizes), -ERANGE, "at least 2 MiB");
  expect_fail(device_sizes(parse("mem:a?size=3MiB&devices=2"), sizes), -ERANGE, "too small");
  expect_fail(device_sizes(parse("mem:a?size=65536T"), sizes), -ERANGE, "64 PiB");
}

Test(backend_address, driver_says_what_to_use_instead) {
  if (access("/dev/kvpool", F_OK) == 0) return;  // a machine with the driver: tests/qemu
  expect_open_fails("dev:no-such-one", -ENODEV, "modprobe kvpool");
  expect_create_fails("dev:no-such-one", -ENODEV, "dax:/dev/daxX.Y");
  expect_fail(Backend::remove(parse("dev:no-such-one"), false), -EINVAL, "cannot be removed");
  cr_expect(!Backend::exists(parse("dev:no-such-one")));
}
