// SPDX-License-Identifier: Apache-2.0
// The commands behind the table (option_table.cc), each in cmd_<name>.cc. They return an exit code
// and throw Failure for everything that goes wrong.
#pragma once

#include "options.hpp"

namespace kvpool::tools {

int cmd_format(const Args &args);
int cmd_info(const Args &args);
int cmd_check(const Args &args);
int cmd_repair(const Args &args);
int cmd_host(const Args &args);
int cmd_setup(const Args &args);
int cmd_grow(const Args &args);    // both in cmd_resize.cc
int cmd_shrink(const Args &args);
int cmd_stat(const Args &args);
int cmd_top(const Args &args);
int cmd_serve(const Args &args);
int cmd_put(const Args &args);
int cmd_get(const Args &args);
int cmd_ls(const Args &args);
int cmd_rm(const Args &args);
int cmd_ns(const Args &args);
int cmd_replay(const Args &args);
int cmd_bench(const Args &args);
int cmd_doctor(const Args &args);
int cmd_events(const Args &args);
int cmd_why(const Args &args);
int cmd_completion(const Args &args);
int cmd_debug(const Args &args);
int storm(const Args &args);  // kvpool debug storm, in debug_storm.cc

// In cmd_setup.cc, for kvpool host as well: tells the driver that a host is off, or with `dry` what
// it would be told. Failure with the way on.
struct DriverFence {
  std::uint64_t incarnation = 0;
  std::uint32_t held_units = 0;  // that waited for the host
  bool before = false;           // it was fenced already
};
DriverFence fence_in_driver(std::uint32_t host, bool dry);

}  // namespace kvpool::tools
