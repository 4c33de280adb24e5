// SPDX-License-Identifier: Apache-2.0
// Processes that a command starts from its own program: the owner and the members of a replay, the
// other end of a benchmark. They end with their parent, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace kvpool::tools {

struct Child {
  pid_t pid = -1;
  int out = -1;  // reading end of its stdout, when asked for
};

struct SpawnOptions {
  bool capture_stdout = false;
  std::vector<int> inherit;  // descriptors that stay open, under their own numbers
};

// Runs this program again with other arguments. Failure when it cannot.
Child spawn_self(const std::vector<std::string> &arguments, const SpawnOptions &options);

// Exit code, or 128 + signal. Waits at most `seconds`; -1 when it still runs then.
int wait_child(pid_t pid, double seconds);

// Asks with SIGTERM, and after `seconds` insists with SIGKILL. Exit code as wait_child.
int stop_child(pid_t pid, double seconds);

// Everything until the end of the pipe; closes it.
std::string read_to_end(int fd);

}  // namespace kvpool::tools
