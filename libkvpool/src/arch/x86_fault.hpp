// SPDX-License-Identifier: Apache-2.0
// Faults of pool memory as results instead of the end of the process (x86_ops.hpp, kvpool_faults).
#pragma once

namespace kvpool::x86 {

// Installs the SIGBUS handler, once a process; called by every memory that is made. A SIGBUS
// anywhere else than at a verb's instruction goes to the handler that stood before.
void catch_faults();

}  // namespace kvpool::x86
