// SPDX-License-Identifier: Apache-2.0
// Switch points of the protocol: each names one flush, fence, check, order or rule that the
// simulator can leave out to prove that its absence is noticed. In production env.mutant() is a
// constant false.
#pragma once

#include "arch/types.hpp"

namespace kvpool::pool {

enum class Mutant : u16 {
  kNone = 0,
  kPublishWithoutDrain,       // proto 9: payload on the medium before publish
  kValidateWithoutEntry,      // proto 10: entry lines again after the copy
  kValidateWithoutClaims,     // proto 10: claims again after the copy
  kValidateWithoutAcquire,    // proto 10: the second look comes from the medium
  kValidateIgnoresVersion,    // proto 10: same version, not only same key
  kValidateIgnoresNs,         // proto 10: a clear and a bypass bind who kept a lookup's record
  kPinIgnoresNs,              // proto 11: nothing cleared or bypassed is pinned
  kLookupWithoutAcquire,      // proto 10: entries come from the medium
  kLookupIgnoresSpill,        // proto 10: the spill flag sends a lookup on
  kInsertBeforeSpillFlag,     // proto 10: the flag is drained before the entry
  kGrowthForgetsSpill,        // proto 10: a larger index says anew which groups spill
  kScanCopiesSpill,           // proto 10: a take-over says anew which groups spill
  kTwinsKept,                 // proto 10: a take-over keeps one entry of a key
  kGrantBeforeClear,          // proto 10: entry cleared strictly before its block is granted
  kEvictWithoutGrace,         // proto 10: grace (not a safety rule with validation; liveness)
  kAnswerBeforeDrain,         // proto 7: a decision is on the medium before it is answered
  kAcceptWithoutClaims,       // proto 7: answers count only without a higher claim
  kReuseInDoubt,              // proto 9: a block in doubt is not reused
  kPinIgnoredByEviction,      // proto 11: a pinned block keeps its entry
  kPinCheckBeforeUse,         // proto 11: expiry is checked after the use
  kReviveHidden,              // proto 10: HIDDEN never comes back
  kReturnWithoutMap,          // proto 8: the map line of a returned extent
  kReportSkipsDoubt,          // proto 8: doubts are reported
  kReportAppliedLate,         // proto 8: unnamed extents return at END, not later
  kServeBeforeReport,         // proto 8: nothing is served before the report
  kReclaimBeforeQuiet,        // proto 8: a dead member's extents wait for QUIET
  kLeaseRenewLate,            // proto 6: a late renewal does not revive
  kWriteWithoutLease,         // proto 6: a writer checks its expiry before each chunk
  kTakeoverWithoutSettle,     // proto 7: 2 delta between claim and reading claims
  kScanWithoutAcquire,        // proto 7: the scan reads the medium
  kClaimOneCopy,              // proto 7: both copies are written
  kIgnoreEpochInRequest,      // proto 12: another owner's requests are not executed
  kIgnoreIncarnation,         // proto 12: lines of an earlier incarnation are ignored
  kClearKeepsEpoch,           // proto 10: a clear bumps the namespace's epoch
  kNsControlByPlace,          // proto 10: who clears or bypasses names the namespace it means
  kClearAheadIsStale,         // proto 8: a clear that is ahead of the owner's epoch clears
  kUnknownClearPublished,     // proto 8: nothing is published under an epoch not come to
  kCheckNotVerified,          // proto 9: payload checks are verified
  kReportForgetsPins,         // proto 11: pins are reported to a new owner
  kPinReportedByKey,          // proto 11: a reported pin names its publication, not just the key
  kPinOutlivesHolder,         // proto 11: pins die with their holder's group
  kFormersForgotten,          // proto 8: versions known of owners before are handed on
  kGraceBeforePins,           // proto 8: graces wait until pins are reported
  kDoubtDoneTwice,            // proto 12: a doubt that took effect does not take effect again
  kForeignExtentKept,         // proto 8: what the map gives to another leaves the hand
  kSlotReuseUnseen,           // proto 6: a newer incarnation proves the earlier ones QUIET
  kQuietAtOnce,               // proto 6: QUIET is believed delta after its proof was seen
  kHoldsNotAnnounced,         // proto 8: HOLDS is on the medium before the first grant
  kPinsNotAnnounced,          // proto 8: PINS is on the medium before the first pin
  kActivateBeforeDrain,       // proto 7: the copied area is on the medium before it is activated
  kFillActiveArea,            // proto 7: a candidate fills the area its own active does not name
  kEpochFromActive,           // proto 7: an epoch above all claimed ones, not above the active one
  kIgnoreRival,               // proto 7: a higher claim after the settling stops the candidate
  kOwnerIgnoresClaims,        // proto 7: an owner that was outbid stops serving
  kHeadBeforeTails,           // proto 8: a run's tails are given back, drained, before its head
  kReleasedTailsFree,         // proto 8: tails behind a member's head are the member's
  kInsertLooksInOne,          // proto 10: an insert looks in the second group too
  kVersionRepeats,            // proto 3: a version is unique to its publication
  kNsNotAcquired,             // proto 8: a lookup acquires the namespace's line
  kNsWithoutSpare,            // proto 8: a line of the namespace table has a spare
  kNsBeforeSpare,             // proto 8: the spare line is on the medium before the line is touched
  kGrantIgnoresEntries,       // proto 8: a block that an entry refers to is not free
  kReclaimUntainted,          // proto 8: reclaimed by time means tainted
  kTaintEndsUnproven,         // proto 8: a taint ends when its member is proven QUIET
  kAnswerIgnoresEpoch,        // proto 12: an answer carries the epoch of its owner
  kAnswerIgnoresSequence,     // proto 12: an answer carries its request's sequence
  kTornAnswerAccepted,        // proto 12: an answer that does not verify is no answer
  kTornRequestAccepted,       // proto 12: a request that does not verify is not executed
  kTornEntryAccepted,         // proto 10: an entry that does not verify is looked at again
  kAdoptDropsHidden,          // proto 10: hidden entries keep their block across a take-over
  kLookupWithoutClaims,       // proto 10: another highest active starts a lookup again
  kPendingOutlives,           // proto 9: PENDING goes with its member
  kQuarantineSkipped,         // proto 8: a lapsed member's extents wait for 2 L
  kGivenUpRankForgotten,      // proto 8: a rank given up by time keeps its group's blocks from use
  kTableUnmapped,             // proto 14: a table is believed only with its bytes mapped
  kRetireHeld,                // proto 14: what members hold is not retired
  kRetirePublished,           // proto 14: what an entry refers to is not retired
  kGrantLeaving,              // proto 14: extents that are to go are granted to nobody
  kGrownWordsForgotten,       // proto 14: a region comes with the map words of its extents
  kLostGranted,               // proto 14: extents of a lost device are granted to nobody
  kLostPublished,             // proto 14: what lay on a lost device is hidden
  kLostAreaKept,              // proto 14: an area on a lost device is moved
  kLostRevived,               // proto 14: it is hidden for good, no put brings it back
  kUnreadPublished,           // proto 14: what cannot be read back is not published
  kControlIgnored,            // proto 14: who finds the lines moved ends
  kControlAtOnce,             // proto 14: a lease between the claim that moves lines and its scan
  kRenewElsewhere,            // proto 14: no lease is renewed once a claim moves the lines
  kOutbidForgets,             // proto 14: an outbid owner goes when its successor is active
  kBaseRefilled,              // proto 14: of a slot's two areas the base is never filled
  kBaseNotReread,             // proto 14: the base is still the base when its copy is activated
  kReportGoesOnElsewhere,     // proto 8: a report to another owner begins anew
  kAbortAtOnce,               // proto 8: an aborted block waits for those who write it
  kClosedShardWritten,        // proto 8: nobody begins to write what was aborted
  kDeviceNotRetired,          // proto 4: a device's writes are on the medium before publication
  kDeviceUnawaited,           // proto 9: a payload is published when its device is done
  kDeviceNotAcquired,         // proto 4: what a device reads comes from the medium
  kDeviceOutlivesLock,        // proto 6: QUIET: no device of the dead can write any more
  kDeadLinesKept,             // proto 6: QUIET: nothing of it lies in its host's cache
  kCount,
};

}  // namespace kvpool::pool
