// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

#include "client.hpp"
#include "payload.hpp"

namespace kvpool::torture {

namespace {

constexpr int kLooks = 8;  // a line that is being stored is whole again soon

bool read_claim(tools::StoreView &view, std::uint32_t slot, media::ClaimLine &ret) {
  bool any = false;
  for (int look = 0; look < kLooks && !any; ++look) {
    for (u32 copy = 0; copy < 2; ++copy) {
      const PoolOffset at = view.geometry().claim_at(copy, slot);
      Line line;
      if (!view.reader().read_line(at, line) || !view.sealer().intact(line, at, 0)) continue;
      const auto claim = media::from_line<media::ClaimLine>(line);
      if (!any || media::better_claim(claim, ret)) ret = claim;
      any = true;
    }
  }
  return any;
}

}  // namespace

OwnerWatch::OwnerWatch(const std::string &address)
    : view_(address), thread_([this] { watch(); }) {}

OwnerWatch::~OwnerWatch() {
  over_.store(true);
  thread_.join();
}

void OwnerWatch::watch() {
  std::uint32_t known = 0;
  while (!over_.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!view_.refresh() || !view_.ever_owned() || view_.epoch() == known) continue;
    OwnerChange change{tools::now_ns(), view_.epoch(), view_.owner_slot(), -1};
    for (const tools::MemberView &member : view_.members()) {
      if (member.slot == view_.owner_slot()) change.pid = static_cast<pid_t>(member.line.pid);
    }
    known = change.epoch;
    const std::lock_guard guard(mutex_);
    last_ = change;
    news_.push_back(change);
  }
}

OwnerChange OwnerWatch::now() {
  const std::lock_guard guard(mutex_);
  return last_;
}

std::vector<OwnerChange> OwnerWatch::changes() {
  const std::lock_guard guard(mutex_);
  return std::exchange(news_, {});
}

std::size_t AreaPrint::changed(const AreaPrint &before) const {
  if (slot != before.slot || epoch != before.epoch || lines.size() != before.lines.size()) return 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) count += lines[i] != before.lines[i];
  return count;
}

AreaPrint print_area(tools::StoreView &view, std::uint32_t slot) {
  AreaPrint print;
  print.slot = slot;
  media::ClaimLine claim{};
  if (!read_claim(view, slot, claim) || claim.active == 0) return print;
  print.epoch = claim.active;
  const PoolOffset area = view.geometry().area_at(slot, claim.area);
  for (u64 at = 0; at < view.geometry().area_bytes; at += kLineBytes) {
    Line line{};
    view.reader().read_line(area + at, line);
    u64 sum = 0;
    for (const u64 word : line.w) sum = tools::mix64(sum ^ word) + 1;
    print.lines.push_back(sum);
  }
  return print;
}

}  // namespace kvpool::torture
