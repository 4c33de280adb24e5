// SPDX-License-Identifier: Apache-2.0
// Shows: a machine and a boot have identities, dax devices are read as sysfs describes them.
// How: files and a sysfs tree made by the test beside those of this machine.
#include <sys/sysmacros.h>

#include "backend_fixture.hpp"

using namespace backend_test;

namespace {

namespace fs = std::filesystem;

void put(const std::string &path, const std::string &text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

// A dax device as the kernel shows it: /sys/dev/char/M:m is a link into the device tree.
struct FakeDax {
  Folder root;
  std::string device = root.file("devices/platform/region0/dax0.0");

  FakeDax() {
    fs::create_directories(device);
    fs::create_directories(root.file("bus/dax/drivers/device_dax"));
    fs::create_directories(root.file("bus/dax/drivers/kmem"));
    fs::create_directories(root.file("dev/char"));
    fs::create_symlink(device, root.file("dev/char/252:0"));
    fs::create_symlink(root.file("bus/dax"), device + "/subsystem");
    bind("device_dax");
    put(device + "/size", "17179869184\n");
    put(device + "/align", "2097152\n");
    put(device + "/target_node", "2\n");
  }
  void bind(const std::string &driver) {
    fs::remove(device + "/driver");
    if (!driver.empty()) {
      fs::create_symlink(root.file("bus/dax/drivers/" + driver), device + "/driver");
    }
  }
  Status read(DaxInfo &info) const { return read_dax(root.path(), makedev(252, 0), info); }
};

}  // namespace

Test(backend_identity, machine) {
  Folder dir;
  put(dir.file("id"), "0123456789abcdef0123456789abcdef\n");
  put(dir.file("image"), "uninitialized\n");
  const auto one = machine_id_from(dir.file("id"), "host");
  cr_expect(one == machine_id_from(dir.file("id"), "renamed"), "the name does not matter");
  const auto by_name = machine_id_from(dir.file("none"), "host");
  cr_expect(by_name != one);
  cr_expect(by_name != machine_id_from(dir.file("none"), "other"));
  cr_expect(machine_id_from(dir.file("image"), "host") == by_name);
  cr_expect(machine_id() == machine_id());
  cr_expect(machine_id() != Id128{});
  Id128 raw{};
  cr_assert(parse_boot_id("0123456789abcdef0123456789abcdef", raw));
  cr_expect(one != raw, "the machine id itself must not be shown");
  cr_expect(!host_name().empty());
}

Test(backend_identity, boot) {
  Id128 id{};
  cr_expect(parse_boot_id("485bf389-0d81-4798-b0ec-1fb1a5ff424c", id));
  cr_expect_eq(id[0], 0x48);
  cr_expect_eq(id[15], 0x4c);
  const Id128 before = id;
  for (const char *bad :
       {"", "485bf389", "485bf389-0d81-4798-b0ec-1fb1a5ff424c0", "00000000-0000",
        "485bf389-0d81-4798-b0ec-1fb1a5ff424g", "-", "00000000-0000-0000-0000-000000000000"}) {
    cr_expect(!parse_boot_id(bad, id), "%s", bad);
  }
  cr_expect(id == before, "untouched on failure");
  cr_expect(boot_nonce() == boot_nonce());
  cr_expect(boot_nonce() != Id128{});
}

Test(backend_dax, device_as_sysfs_describes_it) {
  const FakeDax fake;
  DaxInfo info;
  const auto s = fake.read(info);
  cr_assert(s.ok(), "%s", s.what.c_str());
  cr_expect_str_eq(info.path.c_str(), "/dev/dax0.0");
  cr_expect_eq(info.size, u64{16} << 30);
  cr_expect_eq(info.align, 2 * kMiB);
  cr_expect_eq(info.target_node, 2);
  cr_expect_str_eq(info.mode.c_str(), "devdax");
}

Test(backend_dax, what_cannot_be_mapped_is_refused) {
  FakeDax fake;
  DaxInfo info;
  fake.bind("kmem");
  expect_fail(fake.read(info), -ENODEV, "daxctl reconfigure-device --mode=devdax dax0.0");
  fake.bind("");
  expect_fail(fake.read(info), -ENODEV, "daxctl enable-device dax0.0");
  fake.bind("device_dax");
  put(fake.device + "/size", "0\n");
  expect_fail(fake.read(info), -ENODEV, "no memory");
  for (const char *bad : {"", "x\n", "12x\n", "-4\n", "99999999999999999999999\n"}) {
    put(fake.device + "/size", bad);
    expect_fail(fake.read(info), -EIO, "has no size");
  }
  put(fake.device + "/size", "0x400000\n");
  put(fake.device + "/align", "3000\n");
  expect_fail(fake.read(info), -EIO, "no power of two");
  fs::remove(fake.device + "/align");
  expect_fail(fake.read(info), -EIO, "has no alignment");
  put(fake.root.file("devices/platform/region0/dax_region/align"), "4096\n");
  cr_expect(fake.read(info).ok());
  cr_expect_eq(info.align, 4096u);
  cr_expect_eq(info.size, 4 * kMiB);
  expect_fail(read_dax(fake.root.path(), makedev(252, 1), info), -ENOTTY, "not a dax device");
  fs::remove(fake.device + "/subsystem");
  fs::create_symlink(fake.root.file("bus/tty"), fake.device + "/subsystem");
  expect_fail(fake.read(info), -ENOTTY, "not a dax device");
}

Test(backend_dax, listing_agrees_with_sysfs) {
  std::vector<DaxInfo> found;
  const auto s = list_dax(found);
  cr_assert(s.ok(), "%s", s.what.c_str());
  u64 there = 0;
  std::error_code none;
  for (const auto &entry : fs::directory_iterator("/sys/bus/dax/devices", none)) {
    there += entry.exists() ? 1 : 0;
  }
  cr_expect_eq(found.size(), there);
  for (const auto &info : found) {
    cr_expect_eq(info.path.rfind("/dev/dax", 0), 0u);
    cr_expect(info.mode == "devdax" || info.mode == "system-ram" || info.mode == "disabled");
  }
}
