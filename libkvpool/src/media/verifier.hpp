// SPDX-License-Identifier: Apache-2.0
// The verifier behind `kvpool check`: reads a whole store and names every kind of damage. Trusts no
// field: whatever the medium holds it ends, within memory bounded by the size of the devices. It
// writes nothing. On a store in use it looks again at what seems wrong before it says so.
#pragma once

#include <string>

#include "media/superblock.hpp"

namespace kvpool::media {

enum class Severity : u8 { kNote, kWarning, kDamage };

// What helps, from the least on: nothing is needed; the damaged block is removed; the next owner
// mends or drops it; `kvpool repair` has a second copy, or clears it; nothing does, but a new
// store.
enum class Remedy : u8 { kItself, kRemove, kServe, kRepair, kFormat };

enum class Finding : u8 {
#define FINDING(name, printed, severity, remedy, text) k##name,
#include "media/findings.def"
#undef FINDING
};
inline constexpr u32 kFindingCount = 0
#define FINDING(name, printed, severity, remedy, text) +1
#include "media/findings.def"
#undef FINDING
    ;

const char *finding_name(Finding finding);
const char *finding_text(Finding finding);
Severity finding_severity(Finding finding);
Remedy finding_remedy(Finding finding);
const char *severity_name(Severity severity);

struct FindingAt {
  Finding finding;
  PoolOffset at;       // the line or word; kNoOffset where no single one is meant
  std::string detail;  // numbers that name the thing
};

class FindingSink {
public:
  virtual ~FindingSink() = default;
  virtual void found(const FindingAt &finding) = 0;
};

struct VerifyOptions {
  bool checks = true;      // check lines of published blocks against their entries
  bool payload = false;    // payload against the check lines: reads everything
  bool rings = true;
  u32 listed_of_a_kind = 64;  // more of a kind are only counted
};

struct VerifyReport {
  int superblock_error = 0;  // as read_superblock(); what follows is void unless 0
  bool area_known = false;
  u32 epoch = 0;
  u64 lines_read = 0;
  u64 entries[8] = {};      // by EntryState
  u64 tainted_entries = 0;
  u64 payload_bytes = 0;    // of published entries
  u64 namespaces = 0;
  u64 members_joined = 0;
  u64 extents = 0;
  u64 extents_owner = 0, extents_member = 0, extents_former = 0, extents_tainted = 0;
  u64 found[kFindingCount] = {};

  u64 count(Severity severity) const;
};

// 0: no damage (there may be warnings); -EUCLEAN: damage; other errors as read_superblock().
int verify_store(LineReader &reader, const VerifyOptions &options, FindingSink &sink,
                 VerifyReport &ret_report);

}  // namespace kvpool::media
