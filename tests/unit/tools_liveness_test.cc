// SPDX-License-Identifier: Apache-2.0
// Shows: a member of another host, whose lock nobody here can see, is never called dead: it is
// alive when its heartbeat moves and unknown when it does not.
// How: every combination of signs.
#include <criterion/criterion.h>

#include "../../tools/liveness.hpp"

using namespace kvpool::tools;

// Guards: over a device `kvpool stat` listed the members of other hosts as dead.
Test(tools_liveness, locks_speak_for_one_machine_and_heartbeats_for_all) {
  for (int bits = 0; bits < 16; ++bits) {
    const Sign sign{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    Liveness want = sign.locked ? Liveness::kAlive : Liveness::kDead;
    if (!sign.lock_known) want = sign.moved ? Liveness::kAlive : Liveness::kUnknown;
    if (!sign.joined) want = Liveness::kLeft;
    cr_expect(liveness(sign) == want, "%d: %s", bits, liveness_name(liveness(sign)));
  }
}
