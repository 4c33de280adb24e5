// SPDX-License-Identifier: Apache-2.0
// Shows: no damage, sealed or not, makes the verifier or the decoder fail, hang or fall silent.
// How: a few thousand random lists of edits from one seed, of the kind that the fuzz target reads.
#include <criterion/criterion.h>

#include "../fuzz/media_edits.hpp"

using namespace kvpool;

Test(media_fuzz, random_edits, .timeout = 120) {
  test::MediaEdits edits;
  for (u64 n = 1; n <= 3000; ++n) {
    u8 data[8 * test::MediaEdits::kEditBytes];
    for (u64 i = 0; i < sizeof(data); i += 8) {
      const u64 word = splitmix64(n, i / 8 + 1);
      std::memcpy(data + i, &word, sizeof(word));
    }
    edits.run(data, (n % 8 + 1) * test::MediaEdits::kEditBytes);
  }
  // The edits reach all there is to reach, or the test shows nothing.
  cr_expect(edits.damaged() > 500, "%llu", static_cast<unsigned long long>(edits.damaged()));
  cr_expect(edits.refused() > 20, "%llu", static_cast<unsigned long long>(edits.refused()));
  cr_expect(edits.clean() > 20, "%llu", static_cast<unsigned long long>(edits.clean()));
}
