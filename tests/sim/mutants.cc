// SPDX-License-Identifier: Apache-2.0
// Which scenario hunts which mutant.
#include "mutants.hpp"

#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "enumerate.hpp"

namespace kvpool::sim {

namespace {

constexpr MutantInfo kNoMutant{pool::Mutant::kNone, "none", "", "", ""};
constexpr MutantInfo kMutants[] = {
    {pool::Mutant::kPublishWithoutDrain, "publish-without-drain", "9",
     "payload is on the medium before it is published", "publish,remove"},
    {pool::Mutant::kValidateWithoutEntry, "validate-without-entry", "10",
     "entry lines are looked at again after the copy", "reuse,pressure"},
    {pool::Mutant::kValidateWithoutClaims, "validate-without-claims", "10",
     "claims are looked at again after the copy", "handover,owner-faults"},
    {pool::Mutant::kValidateWithoutAcquire, "validate-without-acquire", "10",
     "the second look comes from the medium", "reuse"},
    {pool::Mutant::kValidateIgnoresVersion, "validate-ignores-version", "10",
     "the second look compares versions", "reuse"},
    {pool::Mutant::kValidateIgnoresNs, "validate-ignores-ns", "10",
     "the second look sees a clear and a bypass, for who kept a lookup's record", "clear"},
    {pool::Mutant::kPinIgnoresNs, "pin-ignores-ns", "11",
     "what a clear or a bypass hid is not pinned", "clear"},
    {pool::Mutant::kLookupWithoutAcquire, "lookup-without-acquire", "10",
     "a lookup reads the medium", "remove,publish"},
    {pool::Mutant::kLookupIgnoresSpill, "lookup-ignores-spill", "10",
     "a spill flag sends the lookup on", "index"},
    {pool::Mutant::kInsertBeforeSpillFlag, "insert-before-spill-flag", "10",
     "the spill flag is drained before the entry; a take-over says flags anew, so only a reader "
     "within delta of the answer would show it",
     "model:spill/flag-not-drained"},
    {pool::Mutant::kGrowthForgetsSpill, "growth-forgets-spill", "10",
     "a larger index says anew which groups spill", "index-growth"},
    {pool::Mutant::kScanCopiesSpill, "scan-copies-spill", "10",
     "a take-over says anew which groups spill; it needs an insert by an outbid owner between "
     "the scans of both groups",
     "model:spill/flags-only-copied"},
    {pool::Mutant::kTwinsKept, "twins-kept", "10",
     "a take-over that found two entries of one key hides one of them; it needs a removal and a "
     "put by an outbid owner between the scans of two lines",
     "model:spill/twins-kept"},
    {pool::Mutant::kHeadBeforeTails, "head-before-tails", "8",
     "the tails of a run are given back before its head", "crash:run"},
    {pool::Mutant::kReleasedTailsFree, "released-tails-free", "8",
     "tails given back behind a member's head are the member's", "crash:run"},
    {pool::Mutant::kGrantBeforeClear, "grant-before-clear", "10",
     "an entry is cleared strictly before its block is granted", "pressure,doubt,remove"},
    {pool::Mutant::kEvictWithoutGrace, "evict-without-grace", "10", "an evicted entry has a grace",
     "grace"},
    {pool::Mutant::kAnswerBeforeDrain, "answer-before-drain", "7",
     "a decision is on the medium before it is answered", "crash:publish"},
    {pool::Mutant::kAcceptWithoutClaims, "accept-without-claims", "7",
     "an answer counts only without a higher claim", "rivals@1200,handover"},
    {pool::Mutant::kReuseInDoubt, "reuse-in-doubt", "9", "a block in doubt is not reused",
     "publish,owner-faults"},
    {pool::Mutant::kPinIgnoredByEviction, "pin-ignored-by-eviction", "11",
     "a pinned block keeps its entry", "pins,all-faults"},
    {pool::Mutant::kPinCheckBeforeUse, "pin-check-before-use", "11",
     "the expiry of a pin is looked at after the use", "pins"},
    {pool::Mutant::kReviveHidden, "revive-hidden", "10", "HIDDEN never comes back", "remove"},
    {pool::Mutant::kReturnWithoutMap, "return-without-map", "8",
     "a returned extent's map word is written", "crash:use-up"},
    {pool::Mutant::kReportSkipsDoubt, "report-skips-doubt", "8", "a report names what is in doubt",
     "doubt@2600,handover"},
    {pool::Mutant::kReportAppliedLate, "report-applied-late", "8",
     "what a report does not name is the owner's at its end", "handover"},
    {pool::Mutant::kServeBeforeReport, "serve-before-report", "8",
     "nothing is granted before all have reported; an entry is on the medium before the map word "
     "that frees its extent, so only a line that went bad under a pin needs this",
     "model:reports/served-before-end"},
    {pool::Mutant::kReclaimBeforeQuiet, "reclaim-before-quiet", "8",
     "a dead member's extents wait until it is QUIET", "zombie"},
    {pool::Mutant::kLeaseRenewLate, "lease-renew-late", "6", "a late renewal does not revive",
     "member-faults,all-faults"},
    {pool::Mutant::kWriteWithoutLease, "write-without-lease", "6",
     "a writer looks at its lease before each chunk", "zombie"},
    {pool::Mutant::kTakeoverWithoutSettle, "takeover-without-settle", "7",
     "2 delta between claiming and reading claims; the strict drain of each copy, and reading the "
     "own "
     "line again, put the claim on the medium without it",
     "model:handshake/no-settle"},
    {pool::Mutant::kScanWithoutAcquire, "scan-without-acquire", "7", "the scan reads the medium",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kClaimOneCopy, "claim-one-copy", "7", "a claim is written in both copies",
     "crash:take-over@11"},
    {pool::Mutant::kIgnoreEpochInRequest, "ignore-epoch-in-request", "12",
     "another owner's requests are not executed", "owner-faults,all-faults,doubt"},
    {pool::Mutant::kIgnoreIncarnation, "ignore-incarnation", "12",
     "lines of an earlier incarnation are ignored", "member-faults,all-faults"},
    {pool::Mutant::kClearKeepsEpoch, "clear-keeps-epoch", "10",
     "a clear changes the namespace's epoch", "clear"},
    {pool::Mutant::kNsControlByPlace, "ns-control-by-place", "10",
     "who clears, bypasses or removes names the namespace it means; scenarios have one namespace",
     "model:namespaces/request-names-place"},
    {pool::Mutant::kClearAheadIsStale, "clear-ahead-is-stale", "8",
     "a clear that names an epoch the owner has not come to clears, and goes above it; it needs a "
     "clear by an outbid owner between the scan of its line and the activation, and another call",
     "model:clears/later-epoch-is-stale"},
    {pool::Mutant::kUnknownClearPublished, "unknown-clear-published", "8",
     "a doubt of an epoch that the owner has not come to is not published; it needs a clear and a "
     "publication by an outbid owner between the scans of the line and of the entry",
     "model:clears/later-epoch-published"},
    {pool::Mutant::kCheckNotVerified, "check-not-verified", "9", "payload checks are verified",
     "store-zombie"},
    {pool::Mutant::kReportForgetsPins, "report-forgets-pins", "11",
     "pins are reported to a new owner", "handover,pins"},
    {pool::Mutant::kPinReportedByKey, "pin-reported-by-key", "11",
     "a reported pin names its publication", "handover"},
    {pool::Mutant::kPinOutlivesHolder, "pin-outlives-holder", "11",
     "pins die with their holder's group", "member-faults,all-faults"},
    {pool::Mutant::kFormersForgotten, "formers-forgotten", "8",
     "how far versions of owners before went is handed on", "rivals@30004041"},
    {pool::Mutant::kGraceBeforePins, "grace-before-pins", "8",
     "graces wait until pins are reported", "handover"},
    {pool::Mutant::kDoubtDoneTwice, "doubt-done-twice", "12",
     "a doubt that took effect does not take effect again", "crash:doubt@11"},
    {pool::Mutant::kForeignExtentKept, "foreign-extent-kept", "8",
     "what the map gives to another leaves the hand", "doubt@2180,handover"},
    {pool::Mutant::kSlotReuseUnseen, "slot-reuse-unseen", "6",
     "a newer incarnation proves the earlier ones QUIET", "all-faults,member-faults"},
    {pool::Mutant::kQuietAtOnce, "quiet-at-once", "6",
     "QUIET is believed delta after its proof was seen", "restarts"},
    {pool::Mutant::kHoldsNotAnnounced, "holds-not-announced", "8",
     "HOLDS is on the medium before the first grant", "handover,doubt,owner-faults"},
    {pool::Mutant::kPinsNotAnnounced, "pins-not-announced", "8",
     "PINS is on the medium before the first pin", "handover"},
    {pool::Mutant::kActivateBeforeDrain, "activate-before-drain", "7",
     "the copied area is on the medium before it is activated", "crash:take-over@6"},
    {pool::Mutant::kFillActiveArea, "fill-active-area", "7",
     "a candidate fills the area its own active does not name", "owner-faults,handover"},
    {pool::Mutant::kEpochFromActive, "epoch-from-active", "7",
     "an epoch above all that were claimed", "rivals,owner-faults"},
    {pool::Mutant::kIgnoreRival, "ignore-rival", "7",
     "a higher claim stops the candidate; a saving only: claims are read again before activation, "
     "no "
     "answer below the highest claim is accepted, and areas are nobody else's",
     "model:takeover/candidate-ignores-higher"},
    {pool::Mutant::kOwnerIgnoresClaims, "owner-ignores-claims", "7",
     "an owner that was outbid stops serving", "handover,owner-faults"},
    {pool::Mutant::kInsertLooksInOne, "insert-looks-in-one", "10", "an insert looks in both groups",
     "index"},
    {pool::Mutant::kVersionRepeats, "version-repeats", "3",
     "a version is unique to its publication", "reuse"},
    {pool::Mutant::kNsNotAcquired, "ns-not-acquired", "8", "a lookup acquires the namespace's line",
     "clear"},
    {pool::Mutant::kNsWithoutSpare, "ns-without-spare", "8",
     "a line of the namespace table has a spare", "crash:clear@11"},
    {pool::Mutant::kNsBeforeSpare, "ns-before-spare", "8",
     "the spare line is on the medium before the line is touched", "crash:clear@5"},
    {pool::Mutant::kGrantIgnoresEntries, "grant-ignores-entries", "8",
     "a block that an entry refers to is not free", "pressure,reuse"},
    {pool::Mutant::kReclaimUntainted, "reclaim-untainted", "8", "reclaimed by time means tainted",
     "zombie"},
    {pool::Mutant::kTaintEndsUnproven, "taint-ends-unproven", "8",
     "a taint ends when its member is proven QUIET", "zombie"},
    {pool::Mutant::kAnswerIgnoresEpoch, "answer-ignores-epoch", "12",
     "an answer carries its owner's epoch", "handover,owner-faults"},
    {pool::Mutant::kAnswerIgnoresSequence, "answer-ignores-sequence", "12",
     "an answer carries its request's sequence", "pressure,remove"},
    {pool::Mutant::kTornAnswerAccepted, "torn-answer-accepted", "12",
     "an answer that does not verify is no answer", "publish,pressure"},
    {pool::Mutant::kTornRequestAccepted, "torn-request-accepted", "12",
     "a request that does not verify is not executed", "publish,pressure"},
    {pool::Mutant::kTornEntryAccepted, "torn-entry-accepted", "10",
     "an entry that does not verify is looked at again", "crash:fulfil@23"},
    {pool::Mutant::kAdoptDropsHidden, "adopt-drops-hidden", "10",
     "hidden entries keep their block across a take-over", "handover"},
    {pool::Mutant::kLookupWithoutClaims, "lookup-without-claims", "10",
     "another highest active starts a lookup again", "rivals@500,handover@900"},
    {pool::Mutant::kPendingOutlives, "pending-outlives", "9", "PENDING goes with its member",
     "member-faults"},
    {pool::Mutant::kQuarantineSkipped, "quarantine-skipped", "8",
     "a lapsed member's extents wait for 2 L", "zombie"},
    {pool::Mutant::kGivenUpRankForgotten, "given-up-rank-forgotten", "8",
     "a rank given up by time keeps the blocks of its group's dead from use", "groups@800"},
    {pool::Mutant::kTableUnmapped, "table-unmapped", "14",
     "a table of regions is believed only with its bytes mapped", "pool-growth"},
    {pool::Mutant::kRetireHeld, "retire-held", "14", "what members hold is not retired",
     "pool-growth"},
    {pool::Mutant::kRetirePublished, "retire-published", "14",
     "what an entry refers to is not retired", "pool-growth"},
    {pool::Mutant::kGrantLeaving, "grant-leaving", "14",
     "extents that are to go are granted to nobody", "pool-growth"},
    {pool::Mutant::kGrownWordsForgotten, "grown-words-forgotten", "14",
     "a region comes with the map words of its extents", "pool-growth"},
    {pool::Mutant::kLostGranted, "lost-granted", "14",
     "extents of a lost device are granted to nobody", "device"},
    {pool::Mutant::kLostPublished, "lost-published", "14", "what lay on a lost device is hidden",
     "device"},
    {pool::Mutant::kLostAreaKept, "lost-area-kept", "14",
     "an area on a lost device is moved out of the mirror", "device"},
    {pool::Mutant::kOutbidForgets, "outbid-forgets", "14",
     "an outbid owner knows what it decided until another is active", "device@119"},
    {pool::Mutant::kLostRevived, "lost-revived", "14",
     "what lay on a lost device is hidden for good: no put brings it back", "device"},
    {pool::Mutant::kUnreadPublished, "unread-published", "14",
     "what its writer cannot read back is not published", "device@3672"},
    {pool::Mutant::kControlIgnored, "control-ignored", "14",
     "who finds lines and rings moved ends", "control"},
    {pool::Mutant::kControlAtOnce, "control-at-once", "14",
     "a lease passes between the claim that moves the lines and its scan; members see the "
     "activation within an eighth of one, and nobody evicts and reuses a pinned block that soon",
     "model:control/at-once"},
    {pool::Mutant::kRenewElsewhere, "renew-elsewhere", "14",
     "no lease is renewed once a claim moves the lines, for the same reason",
     "model:control/renewed-unlooked"},
    {pool::Mutant::kReportGoesOnElsewhere, "report-goes-on-elsewhere", "8",
     "a report that was cut short begins anew with another owner", "handover"},
    {pool::Mutant::kAbortAtOnce, "abort-at-once", "8",
     "an aborted block waits for those who write it", "groups"},
    {pool::Mutant::kClosedShardWritten, "closed-shard-written", "8",
     "nobody begins to write what was aborted", "groups"},
    {pool::Mutant::kDeviceNotRetired, "device-not-retired", "4",
     "what a device wrote is on the medium before it is published", "devices"},
    {pool::Mutant::kDeviceUnawaited, "device-unawaited", "9",
     "a payload is published when the device that writes it is done", "devices"},
    {pool::Mutant::kDeviceNotAcquired, "device-not-acquired", "4",
     "what a device reads comes from the medium, not from its host's cache", "devices"},
    {pool::Mutant::kDeviceOutlivesLock, "device-outlives-lock", "6",
     "a dead member is QUIET when no device of it can write any more", "devices"},
    {pool::Mutant::kDeadLinesKept, "dead-lines-kept", "6",
     "what a dead member's device left in its host's cache is flushed before it is QUIET",
     "devices"},
    {pool::Mutant::kBaseRefilled, "base-refilled", "14",
     "of a slot's two areas the base is never filled; it shows where a candidate dies in it",
     "model:takeover/base-refilled"},
    {pool::Mutant::kBaseNotReread, "base-not-reread", "14",
     "the base is still the base when its copy is activated; else three candidates at once, and a "
     "device lost, are needed",
     "model:takeover/base-not-reread"},
};

std::vector<std::string> split(const char *text) {
  std::vector<std::string> parts;
  std::string part;
  for (const char *c = text; *c; ++c) {
    if (*c == ',') {
      parts.push_back(part);
      part.clear();
    } else if (*c != ' ') {
      part += *c;
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

constexpr std::string_view kModelPrefix = "model:";

// Rules whose absence the simulated hardware cannot show are hunted by an exhaustive model, which
// has a mutant of its own for it: "model:PROGRAM/MUTANT". The programs stand in model/ beside this
// one.
void hunt_by_model(const std::string &hunter, MutantResult &result) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length <= 0) return;
  std::string folder(self, static_cast<std::size_t>(length));
  folder.erase(folder.rfind('/'));
  const std::size_t slash = hunter.find('/');
  const std::string program = hunter.substr(kModelPrefix.size(), slash - kModelPrefix.size());
  const std::string path = folder + "/model/" + program;
  if (access(path.c_str(), X_OK) != 0) {
    result.text = path + " is not built";
    return;
  }
  const std::string command =
      "'" + path + "' --mutant '" + hunter.substr(slash + 1) + "' 2>/dev/null";
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe) return;
  char line[1024];
  while (std::fgets(line, sizeof line, pipe)) {
    const std::string_view said = line;
    if (said.find(" killed ") == std::string_view::npos) continue;
    result.killed = true;
    result.by = hunter;
    result.text = said.substr(0, said.find_last_not_of('\n') + 1);
  }
  if (pclose(pipe) != 0) result.killed = false;
}

// "crash:SCRIPT": what power lost between two writes shows is hunted by enumeration alone.
constexpr std::string_view kCrashPrefix = "crash:";
constexpr u64 kHuntBound = 24;

void hunt_by_crashes(const std::string &hunter, MutantResult &result) {
  EnumerateOptions options;
  const std::size_t at = hunter.find('@');  // the interleaving to begin with
  options.script = hunter.substr(kCrashPrefix.size(), at - kCrashPrefix.size());
  if (at != std::string::npos) options.first_seed = std::stoull(hunter.substr(at + 1));
  options.bound = kHuntBound;
  options.mutant = static_cast<u32>(result.info->id);
  options.stop_at_first = true;
  const EnumerateReport report = enumerate_crashes(options, nullptr);
  for (const EnumerateCount &count : report.counts) result.seeds += count.outcomes;
  if (report.failures.empty()) return;
  result.killed = true;
  result.by = hunter;
  result.text = report.failures[0].text;
  result.seed = report.failures[0].options.seed;
}

}  // namespace

std::span<const MutantInfo> mutants() {
  return kMutants;
}

std::string mutant_name(u32 id) {
  for (const MutantInfo &info : kMutants) {
    if (static_cast<u32>(info.id) == id) return info.name;
  }
  return kNoMutant.name;
}

u32 mutant_by_name(const std::string &name) {
  for (const MutantInfo &info : kMutants) {
    if (name == info.name) return static_cast<u32>(info.id);
  }
  return 0;
}

std::vector<MutantResult> run_mutants(u64 seeds_max, const std::string &only,
                                      const std::function<void(const MutantResult &)> &each) {
  std::vector<MutantResult> results;
  for (const MutantInfo &info : kMutants) {
    if (!only.empty() && only != info.name) continue;
    MutantResult result;
    result.info = &info;
    for (const std::string &hunter : split(info.hunters)) {
      if (hunter.starts_with(kModelPrefix)) {
        hunt_by_model(hunter, result);
        if (result.killed) break;
        continue;
      }
      if (hunter.starts_with(kCrashPrefix)) {
        hunt_by_crashes(hunter, result);
        if (result.killed) break;
        continue;
      }
      Plan plan;
      const std::size_t at = hunter.find('@');  // the seed to begin with, for what shows seldom
      plan.scenario = hunter.substr(0, at);
      if (at != std::string::npos) plan.first_seed = std::stoull(hunter.substr(at + 1));
      plan.seeds = seeds_max;
      plan.canary_runs = 0;
      plan.stop_after = 1;
      plan.shrink = false;
      plan.base.mutant = static_cast<u32>(info.id);
      const RunReport report = run_plan(plan);
      result.seeds += report.seeds;
      if (report.failures.empty()) continue;
      result.killed = true;
      result.by = hunter;
      result.text = report.failures[0].text;
      result.seed = report.failures[0].options.seed;
      break;
    }
    if (each) each(result);
    results.push_back(result);
  }
  return results;
}

}  // namespace kvpool::sim
