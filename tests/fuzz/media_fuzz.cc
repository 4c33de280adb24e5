// SPDX-License-Identifier: Apache-2.0
// Fuzz target: whatever a store holds, the verifier, the decoder and the reader of the superblock
// end, within their memory, and say something. An input is a list of edits (media_edits.hpp), most
// of which are sealed again, so that no CRC stands in the way.
#include "media_edits.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static kvpool::test::MediaEdits edits;
  edits.run(data, size);
  return 0;
}
