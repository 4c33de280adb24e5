// SPDX-License-Identifier: Apache-2.0
// kvpool bench: the figures, each beside its baseline in alternating runs of one process.
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {
int cmd_bench(const Args &) { fail(kExitFailed, "bench", "x"); }
}  // namespace kvpool::tools
