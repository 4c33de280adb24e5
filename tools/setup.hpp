// SPDX-License-Identifier: Apache-2.0
// What the actions of `kvpool setup` have in common: the answer they build, words they need, and
// refusals that several of them meet. An action is one function; cmd_setup.cc has the table.
#pragma once

#include <string>
#include <string_view>

#include "backend/driver.hpp"
#include "driver_node.hpp"
#include "options.hpp"
#include "say.hpp"

namespace kvpool::tools {

inline constexpr const char *kNode = backend::kControlNode;

struct Setup {
  const Args &args;
  bool dry;
  Json data;
  std::string text;

  Setup(const Args &given, std::string action);
  // Prints the answer. Returns `code`.
  int finish(int code = kExitFine);
};

// The option's text; Failure where it is not given.
std::string required(const Args &args, std::string_view option, const char *what);
// NAME as the name of a partition; Failure where it cannot be one.
std::string partition_word(const Args &args);
// The partition as the driver lists it; Failure where there is none.
kvpool_item_partition partition_named(const ControlNode &node, const std::string &name);
[[noreturn]] void refuse_administrator(const kvpool_info &info);

// Actions that change what is in use already (setup_change.cc).
int grow_partition(Setup setup);
int shrink_partition(Setup setup);
int watch_device(Setup setup);

}  // namespace kvpool::tools
