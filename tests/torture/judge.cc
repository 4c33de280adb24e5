// SPDX-License-Identifier: Apache-2.0
#include "judge.hpp"

#include <thread>

#include <fmt/format.h>

#include "media/verifier.hpp"
#include "say.hpp"

namespace kvpool::torture {

using tools::deadline_in;
using tools::now_ns;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr double kPatienceSeconds = 15;  // that the owner gets to take back what nobody needs

// What is held by nobody alive, or kept without need: nothing, once the owner had its time.
std::uint64_t leaked_now(tools::StoreView &view, std::string &ret_what) {
  if (!view.refresh()) {
    ret_what = view.why();
    return 1;
  }
  const tools::IndexCounts index = view.count_index();
  const tools::ExtentCounts extents = view.count_extents(index);
  ret_what = fmt::format("{} extents of a former life, {} entries pending, {} draining, {} hidden",
                         extents.former, index.pending, index.draining, index.hidden);
  for (std::size_t slot = 0; slot < extents.by_member.size(); ++slot) {
    if (extents.by_member[slot] == 0) continue;
    ret_what += fmt::format(", {} extents held by slot {}", extents.by_member[slot], slot);
  }
  view.for_each_entry([&](const tools::EntryView &at) {
    if (at.entry.entry_state() != media::EntryState::kPending) return true;
    ret_what += fmt::format("; first pending of slot {}", at.entry.check_hash & 0xffff);
    return false;
  });
  for (const tools::MemberView &member : view.members()) {
    ret_what += fmt::format("; slot {} {}{}{}", member.slot, member.name,
                            member.joined ? " joined" : " left", member.alive ? "" : " lock free");
  }
  return extents.members + extents.former + index.pending + index.draining + index.hidden;
}

class Findings final : public media::FindingSink {
public:
  void found(const media::FindingAt &finding) override {
    list.push_back(fmt::format("{}: {}", media::finding_name(finding.finding), finding.detail));
    changed = changed || finding.finding == media::Finding::kChanged;
  }
  bool changed = false;
  tools::Json list = tools::Json::array();
};

}  // namespace

Judge::Judge(std::string address, std::uint64_t seed, double round_seconds, Shared &shared)
    : address_(std::move(address)), random_(seed), shared_(shared),
      pin_ms_(static_cast<std::uint32_t>(round_seconds * 1500) + 10'000) {}

void Judge::arrive() {
  PartyOptions options;
  options.address = address_;
  options.name = "judge";
  options.seed = random_.next();
  options.writer = 99;
  options.verify = KVPOOL_VERIFY_ALWAYS;
  party_ = std::make_unique<Party>(options, shared_);
  rejoins_ = party_->rejoins();
  pinned_since_ = now_ns();
  for (std::uint32_t key = kKeys; key < kAllKeys; ++key) {
    kvpool_pin_opts pin = KVPOOL_OPTS(kvpool_pin_opts);
    pin.ttl_ms = pin_ms_;
    pin.deadline_ns = deadline_in(kCallSeconds);
    party_->fill(key);
    const int put = kvpool_put(party_->ns(), &party_->key(key), party_->buffer(), bytes_of(key),
                               deadline_in(kCallSeconds));
    kvpool_ticket ticket = {};
    if (put < 0 || kvpool_pin(party_->ns(), &party_->key(key), 1, &pin, &ticket) != 1) continue;
    pins_.push_back(ticket);
    pinned_.push_back(key);
  }
}

void Judge::read_kept() {
  // On a busy machine its own lease may have run out, and pins go with it, or the round took longer
  // than they last: then nothing was proven.
  const auto lapsed = [&] {
    return party_->rejoins() != rejoins_ || now_ns() > pinned_since_ + pin_ms_ * kMs * 9 / 10;
  };
  for (std::size_t i = 0; i < pins_.size(); ++i) {
    kvpool_block block = {};
    block.ticket = &pins_[i];
    block.plan.buf = party_->copy();
    block.plan.bytes = bytes_of(pinned_[i]);
    std::int32_t status = 0;
    const int got = kvpool_get_blocks(party_->ns(), &block, 1, deadline_in(kCallSeconds), &status);
    const int valid = kvpool_ticket_valid(party_->ctx(), &pins_[i], deadline_in(kCallSeconds));
    if (lapsed()) {
      ++kept_skipped_;
    } else if (got != 1 || valid != 1) {
      lose(fmt::format("pinned key {}: {} blocks, status {}, valid {}", pinned_[i], got,
                       kvpool_status_name(static_cast<kvpool_status>(status)), valid));
    } else if (party_->judge(pinned_[i], 0, 0, 0)) {
      ++kept_reads_;
    }
  }
  kvpool_unpin(party_->ctx(), pins_.data(), pins_.size());
  pins_.clear();
  pinned_.clear();
}

// Reads every block that is published. One whose bytes a stopped writer destroyed is refused by its
// check, and removed by that.
std::map<std::uint32_t, Judge::Found> Judge::read_published() {
  std::map<std::uint32_t, Found> all;
  for (std::uint32_t key = 0; key < kAllKeys; ++key) {
    kvpool_hit hit = {};
    const int found = kvpool_lookup(party_->ns(), &party_->key(key), 1, KVPOOL_LOOKUP_F_ALL,
                                    deadline_in(kCallSeconds), &hit);
    if (found < 0) party_->unexplained(fmt::format("looking for key {}", key), found);
    if (found < 0 || hit.state != KVPOOL_STATE_HIT) continue;
    kvpool_block block = {};
    block.key = party_->key(key);
    block.hit = &hit;
    block.plan.buf = party_->copy();
    block.plan.bytes = bytes_of(key);
    std::int32_t status = 0;
    const int got =
        kvpool_get_blocks(party_->ns(), &block, 1, deadline_in(kCallSeconds), &status);
    if (got < 0) party_->unexplained(fmt::format("reading key {}", key), got);
    if (got >= 0 && status == KVPOOL_STATUS_CORRUPT) party_->refused(key);
    if (got != 1) continue;
    ++blocks_read_;
    Found &entry = all[key];
    entry.version = hit.version;
    if (!party_->judge(key, hit.version, shared_.newest[key].load(), hit.version, &entry.nonce)) {
      all.erase(key);
    }
  }
  return all;
}

void Judge::read_all() { all_ = read_published(); }

void Judge::read_again() {
  const std::map<std::uint32_t, Found> now = read_published();
  for (const auto &[key, before] : all_) {
    const auto at = now.find(key);
    if (at == now.end()) {
      lose(fmt::format("key {} version {:x} went with its owner", key, before.version));
    } else if (at->second.version != before.version || at->second.nonce != before.nonce) {
      lose(fmt::format("key {} was version {:x} and is {:x} after its owner died", key,
                       before.version, at->second.version));
    }
  }
}

void Judge::lose(std::string what) {
  ++lost_;
  if (first_lost_.empty()) first_lost_ = std::move(what);
}

bool Judge::wait_owner() { return kvpool_owner_wait(party_->ctx(), deadline_in(20)) == 1; }

void Judge::depart() { party_.reset(); }

// A pin that its holder could not give back, having lost its owner or its lease, ends by its time.
void Judge::look_for_leaks() {
  tools::StoreView view(address_);
  const std::uint64_t until =
      std::max(deadline_in(kPatienceSeconds), pinned_since_ + (pin_ms_ + 3000) * kMs);
  std::uint64_t leaked = 0;
  std::string what;
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    leaked = leaked_now(view, what);
  } while (leaked != 0 && now_ns() < until);
  leaked_ += leaked;
  if (leaked != 0 && leaked_what_.empty()) leaked_what_ = what;
}

// On a busy machine an owner may lose its lease at any time: a store that changed hands while it
// was read is read again.
void Judge::check() {
  constexpr int kTries = 5;
  for (int i = 0; i < kTries; ++i) {
    tools::StoreView view(address_);
    media::VerifyOptions options;
    options.payload = true;
    media::VerifyReport verified;
    Findings findings;
    media::verify_store(view.reader(), options, findings, verified);
    if (i + 1 < kTries && findings.changed) continue;
    for (const tools::Json &finding : findings.list) findings_.push_back(finding);
    return;
  }
}

}  // namespace kvpool::torture
