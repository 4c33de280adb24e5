// SPDX-License-Identifier: Apache-2.0
#include "store/instances.hpp"

namespace kvpool {

template class pool::Member<store::ProcessEnv>;
template class pool::Owner<store::ProcessEnv>;
template class store::Store<store::ProcessEnv>;

}  // namespace kvpool
