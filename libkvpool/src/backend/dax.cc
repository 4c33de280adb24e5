// SPDX-License-Identifier: Apache-2.0
// Lists dax devices by libdaxctl and reads the one that is opened from sysfs: the open knows a
// device number, which libdaxctl cannot start from, and sysfs below a root of choice can be tested.
#include "backend/dax.hpp"

#include <daxctl/libdaxctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

namespace kvpool::backend {

namespace {

bool read_text(const std::string &path, std::string &ret) {
  std::ifstream file(path);
  return static_cast<bool>(std::getline(file, ret));
}

bool read_number(const std::string &path, u64 &ret) {
  std::string text;
  if (!read_text(path, text)) return false;
  const bool hex = text.rfind("0x", 0) == 0;
  const char *begin = text.data() + (hex ? 2 : 0);
  u64 value = 0;
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  ret = value;
  return true;
}

// Last part of where a symbolic link points; empty when there is none.
std::string link_name(const std::string &path) {
  char target[4096];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  if (length <= 0) return {};
  const std::string text(target, static_cast<std::size_t>(length));
  return text.substr(text.rfind('/') + 1);
}

}  // namespace

Status list_dax(std::vector<DaxInfo> &ret) {
  daxctl_ctx *raw = nullptr;
  if (const int err = daxctl_new(&raw); err != 0) {
    return Status::fail(err < 0 ? err : -EIO,
                        std::string("libdaxctl: ") + std::strerror(std::abs(err)));
  }
  const std::unique_ptr<daxctl_ctx, void (*)(daxctl_ctx *)> owner(raw, daxctl_unref);
  std::vector<DaxInfo> found;
  daxctl_region *region = nullptr;
  daxctl_region_foreach(raw, region) {
    daxctl_dev *dev = nullptr;
    daxctl_dev_foreach(region, dev) {
      DaxInfo info;
      info.path = std::string("/dev/") + daxctl_dev_get_devname(dev);
      info.size = daxctl_dev_get_size(dev);
      info.align = daxctl_dev_get_align(dev);
      info.target_node = daxctl_dev_get_target_node(dev);
      if (daxctl_dev_get_memory(dev) != nullptr)
        info.mode = "system-ram";
      else
        info.mode = daxctl_dev_is_enabled(dev) ? "devdax" : "disabled";
      found.push_back(std::move(info));
    }
  }
  ret = std::move(found);
  return {};
}

Status read_dax(const std::string &sysfs, dev_t id, DaxInfo &ret) {
  const std::string number = std::to_string(major(id)) + ":" + std::to_string(minor(id));
  const std::string dir = sysfs + "/dev/char/" + number;
  // "dax" is the bus since 5.1 and the class before.
  if (link_name(dir + "/subsystem") != "dax") {
    return Status::fail(-ENOTTY, "is not a dax device");
  }
  DaxInfo info;
  info.path = "/dev/" + link_name(dir);
  if (!read_number(dir + "/size", info.size)) {
    return Status::fail(-EIO, "has no size in " + dir);
  }
  // Kernels before 5.10 show the alignment at the region only.
  if (!read_number(dir + "/align", info.align) &&
      !read_number(dir + "/../dax_region/align", info.align)) {
    return Status::fail(-EIO, "has no alignment in " + dir);
  }
  if (!std::has_single_bit(info.align)) {
    return Status::fail(
        -EIO, "has the alignment " + std::to_string(info.align) + ", which is no power of two");
  }
  u64 node = 0;
  if (read_number(dir + "/target_node", node)) info.target_node = static_cast<int>(node);
  const std::string driver = link_name(dir + "/driver");
  info.mode = driver == "kmem" ? "system-ram" : driver.empty() ? "disabled" : "devdax";
  if (info.mode == "system-ram") {
    return Status::fail(-ENODEV,
                        "is used as system memory; hand it over by: daxctl reconfigure-device "
                        "--mode=devdax " +
                            link_name(dir));
  }
  if (info.mode == "disabled") {
    return Status::fail(-ENODEV,
                        "has no driver; enable it by: daxctl enable-device " + link_name(dir));
  }
  if (info.size == 0) return Status::fail(-ENODEV, "has no memory (size 0)");
  ret = std::move(info);
  return {};
}

}  // namespace kvpool::backend
