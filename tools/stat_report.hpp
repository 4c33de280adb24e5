// SPDX-License-Identifier: Apache-2.0
// One reading of a store's counts: what stat prints and top redraws.
#pragma once

#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {

Json stat_of(StoreView &view);
std::string stat_text(const Json &stat);
// Of a stat whose owner_hangs is true.
std::string owner_hangs_text(const Json &stat);

}  // namespace kvpool::tools
