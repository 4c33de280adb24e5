// SPDX-License-Identifier: Apache-2.0
// Words for the numbers in events; used by the commands events and why.
#pragma once

#include <cstdint>

namespace kvpool::tools {

const char *event_type_name(std::uint32_t type);
const char *event_reason_name(std::uint32_t reason);

}  // namespace kvpool::tools
