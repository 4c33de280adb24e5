// SPDX-License-Identifier: Apache-2.0
// kvpool repair --new-life: where nothing has a second copy of what is damaged.
#pragma once

#include "options.hpp"

namespace kvpool::tools {

// Makes a new store in the place of the damaged one, with its sizes and options; says only what
// would be lost unless --yes is given. Failure where something less helps, where no superblock
// tells the options, and where somebody lives there and --force is not given.
int start_new_life(const Args &args, const std::string &address);

}  // namespace kvpool::tools
