// SPDX-License-Identifier: Apache-2.0
// Which scenario hunts which mutant.
#include "mutants.hpp"

#include "runner.hpp"

namespace kvpool::sim {

namespace {

constexpr MutantInfo kNoMutant{pool::Mutant::kNone, "none", "", "", ""};
constexpr MutantInfo kMutants[] = {
    {pool::Mutant::kPublishWithoutDrain, "publish-without-drain", "9", "payload is on the medium before it is published",
     "publish,remove"},
    {pool::Mutant::kValidateWithoutEntry, "validate-without-entry", "10", "entry lines are looked at again after the copy",
     "pressure,remove,doubt"},
    {pool::Mutant::kValidateWithoutClaims, "validate-without-claims", "10", "claims are looked at again after the copy",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kValidateWithoutAcquire, "validate-without-acquire", "10", "the second look comes from the medium",
     "pressure,remove,doubt"},
    {pool::Mutant::kValidateIgnoresVersion, "validate-ignores-version", "10", "the second look compares versions",
     "remove,pressure"},
    {pool::Mutant::kLookupWithoutAcquire, "lookup-without-acquire", "10", "a lookup reads the medium",
     "remove,publish"},
    {pool::Mutant::kLookupIgnoresSpill, "lookup-ignores-spill", "10", "a spill flag sends the lookup on",
     "index"},
    {pool::Mutant::kInsertBeforeSpillFlag, "insert-before-spill-flag", "10", "the spill flag is drained before the entry",
     "index"},
    {pool::Mutant::kGrantBeforeClear, "grant-before-clear", "10", "an entry is cleared strictly before its block is granted",
     "pressure,doubt,remove"},
    {pool::Mutant::kEvictWithoutGrace, "evict-without-grace", "10", "an evicted entry has a grace",
     "pressure,remove"},
    {pool::Mutant::kAnswerBeforeDrain, "answer-before-drain", "7", "a decision is on the medium before it is answered",
     "owner-faults,all-faults,doubt,publish"},
    {pool::Mutant::kAcceptWithoutClaims, "accept-without-claims", "7", "an answer counts only without a higher claim",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kReuseInDoubt, "reuse-in-doubt", "9", "a block in doubt is not reused",
     "publish,owner-faults"},
    {pool::Mutant::kPinIgnoredByEviction, "pin-ignored-by-eviction", "11", "a pinned block keeps its entry",
     "pins,all-faults"},
    {pool::Mutant::kPinCheckBeforeUse, "pin-check-before-use", "11", "the expiry of a pin is looked at after the use",
     "pins,all-faults"},
    {pool::Mutant::kReviveHidden, "revive-hidden", "10", "HIDDEN never comes back",
     "remove"},
    {pool::Mutant::kReturnWithoutMap, "return-without-map", "8", "a returned extent's map word is written",
     "owner-faults,doubt,pressure"},
    {pool::Mutant::kReportSkipsDoubt, "report-skips-doubt", "8", "a report names what is in doubt",
     "owner-faults,doubt,all-faults"},
    {pool::Mutant::kReportAppliedLate, "report-applied-late", "8", "what a report does not name is the owner's at its end",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kServeBeforeReport, "serve-before-report", "8", "nothing is granted before all have reported",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kReclaimBeforeQuiet, "reclaim-before-quiet", "8", "a dead member's extents wait until it is QUIET",
     "member-faults,all-faults"},
    {pool::Mutant::kLeaseRenewLate, "lease-renew-late", "6", "a late renewal does not revive",
     "member-faults,all-faults"},
    {pool::Mutant::kWriteWithoutLease, "write-without-lease", "6", "a writer looks at its lease before each chunk",
     "member-faults,all-faults"},
    {pool::Mutant::kTakeoverWithoutSettle, "takeover-without-settle", "7", "2 delta between claiming and reading claims",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kTakeoverWithoutReread, "takeover-without-reread", "7", "claims are read once more before activating",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kScanWithoutAcquire, "scan-without-acquire", "7", "the scan reads the medium",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kClaimOneCopy, "claim-one-copy", "7", "a claim is written in both copies",
     "owner-faults,all-faults"},
    {pool::Mutant::kIgnoreEpochInRequest, "ignore-epoch-in-request", "12", "another owner's requests are not executed",
     "owner-faults,all-faults,doubt"},
    {pool::Mutant::kIgnoreIncarnation, "ignore-incarnation", "12", "lines of an earlier incarnation are ignored",
     "member-faults,all-faults"},
    {pool::Mutant::kClearKeepsEpoch, "clear-keeps-epoch", "10", "a clear changes the namespace's epoch",
     "clear"},
    {pool::Mutant::kCheckNotVerified, "check-not-verified", "9", "payload checks are verified",
     ""},
    {pool::Mutant::kRequestWithoutDrain, "request-without-drain", "12", "a request is drained before its doorbell",
     "publish"},
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
      Plan plan;
      plan.scenario = hunter;
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
