// SPDX-License-Identifier: Apache-2.0
// Shows: rules of namespaces that no interleaving of a test reaches surely.
// How: the rules alone, by the epochs that callers saw.
#include <criterion/criterion.h>

#include "store/namespace.hpp"

using namespace kvpool;

// Guards: a removal that an owner served before it was outbid was asked for again, and took the
// namespace that had been opened anew since.
Test(store_namespace, removal_served_by_a_former_owner) {
  cr_expect(store::maybe_removed(7, 9, true), "removed and opened");
  cr_expect(store::maybe_removed(7, 12, true));
  cr_expect_not(store::maybe_removed(7, 8, true), "cleared once");
  cr_expect_not(store::maybe_removed(7, 9, false), "cleared twice: nobody else can have served it");
}
