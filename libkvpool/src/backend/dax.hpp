// SPDX-License-Identifier: Apache-2.0
// Device-dax: which devices there are, and what a mapping of one must respect.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "arch/types.hpp"
#include "backend/status.hpp"

namespace kvpool::backend {

struct DaxInfo {
  std::string path;  // /dev/dax0.0
  u64 size = 0;      // bytes
  u64 align = 0;     // of address and length of a mapping; a power of two
  int target_node = -1;
  std::string mode;  // "devdax", "system-ram", or "disabled" when no driver is bound
};

// All devices, found through libdaxctl. Needs no privilege; an empty list is no error.
Status list_dax(std::vector<DaxInfo> &ret);

// What sysfs, libdaxctl's own source, says about character device `id`. `sysfs` is "/sys" but in
// tests. -ENOTTY when it is no dax device, -ENODEV when its driver is not device_dax.
Status read_dax(const std::string &sysfs, dev_t id, DaxInfo &ret);

}  // namespace kvpool::backend
