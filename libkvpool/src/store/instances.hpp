// SPDX-License-Identifier: Apache-2.0
// The protocol's templates for the production environment, compiled once (instances.cc).
#pragma once

#include "pool/owner.hpp"
#include "store/process_env.hpp"
#include "store/store.hpp"

namespace kvpool {

extern template class pool::Member<store::ProcessEnv>;
extern template class pool::Owner<store::ProcessEnv>;
extern template class store::Store<store::ProcessEnv>;

}  // namespace kvpool
