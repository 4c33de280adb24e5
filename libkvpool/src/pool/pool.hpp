// SPDX-License-Identifier: Apache-2.0
// The pool layer's front: members, owner and format, as templates over an environment.
#pragma once

#include "pool/format_store.hpp"
#include "pool/owner.hpp"
