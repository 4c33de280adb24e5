// SPDX-License-Identifier: Apache-2.0
// The pool layer's front: members and owner, as templates over an environment.
#pragma once

#include "pool/owner.hpp"
