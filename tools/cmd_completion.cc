// SPDX-License-Identifier: Apache-2.0
// kvpool completion: the completion script of a shell, made from the option table.
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {

int cmd_completion(const Args &args) {
  print_text(completion_text(args.text("SHELL")));
  return kExitFine;
}

}  // namespace kvpool::tools
