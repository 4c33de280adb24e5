/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the driver's logic share.
 */
#ifndef KVPOOL_TESTS_KMOD_SUPPORT_H
#define KVPOOL_TESTS_KMOD_SUPPORT_H

#include "logic/geometry.h"

#define TEST_DEVICE_BYTES (384ull << 20)

static inline struct kvpool_seal test_seal(void) {
  struct kvpool_seal seal = {.uuid = {1, 2, 3}, .life = 77};
  return seal;
}

static inline struct kvpool_geometry test_geometry(u32 devices) {
  struct kvpool_geometry geo = {0};
  if (kvpool_geometry_init(&geo, devices, TEST_DEVICE_BYTES, 4)) __builtin_trap();
  return geo;
}

static inline u64 test_random(u64 *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

#endif
