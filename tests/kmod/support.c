// SPDX-License-Identifier: Apache-2.0
// Owns the CRC-32C that the driver's logic gets in user space, bit by bit.
#include "support.h"

u32 kvpool_crc32c(u32 crc, const void *data, size_t bytes) {
  const u8 *byte = data;
  while (bytes--) {
    crc ^= *byte++;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return crc;
}
