// SPDX-License-Identifier: Apache-2.0
// Making a store at an address: what may be overwritten, how it is laid out, reserved and
// formatted.
#pragma once

#include <string>

#include "media/layout.hpp"

namespace kvpool::store {

struct MakeOptions {
  media::FormatOptions layout;  // device_bytes and device_count are filled in here
  u64 size_bytes = 0;           // 0: as the address or the files say
  u32 devices = 0;              // mem: 0: as the address says
  bool yes = false;             // over what is there
  bool force = false;           // also over what seems alive, damaged or newer
  bool dry_run = false;         // plan and check only
};

// 0; -EEXIST, -EBUSY, -ENOSPC, -ERANGE and what Backend and plan_layout say, with a sentence in
// *why. ret_layout (may be null) gets what was planned.
int make_store(const char *address, const MakeOptions &options, media::Layout *ret_layout,
               std::string *why);

}  // namespace kvpool::store
