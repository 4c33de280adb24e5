// SPDX-License-Identifier: Apache-2.0
#include "director.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "say.hpp"

namespace kvpool::torture {

using tools::deadline_in;
using tools::now_ns;

namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kNoticeMs = 3000;  // a stopped owner that runs again knows by then
constexpr std::uint64_t kLeaveAloneMs = 500;
constexpr double kEndSeconds = 30;

const char *name_of(Role role) {
  switch (role) {
    case Role::kServer: return "server";
    case Role::kMember: return "member";
    case Role::kRank: return "rank";
    default: return "resizer";
  }
}

}  // namespace

Director::Director(const Plan &plan, const std::string &address, int shared_fd, Shared &shared)
    : plan_(plan), address_(address), shared_fd_(shared_fd), shared_(shared), random_(plan.seed),
      view_(address) {
  const auto add = [&](Role role, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      processes_.emplace_back();
      processes_.back().role = role;
      processes_.back().number = i;
    }
  };
  add(Role::kServer, plan.servers);
  add(Role::kMember, plan.members);
  add(Role::kRank, plan.ranks);
  add(Role::kResizer, plan.resizes ? 1 : 0);
  watch_ = std::make_unique<OwnerWatch>(address);
  start(processes_[0]);  // the first owner; the others find one
  if (!wait_takeover(0, 20)) fault("nobody serves the new store");
  watch_->changes();
}

Director::~Director() {
  for (Process &process : processes_) {
    if (process.state == State::kEnded || process.child.pid <= 0) continue;
    kill(process.child.pid, SIGKILL);
    tools::wait_child(process.child.pid, 10);
  }
}

std::uint32_t Director::place_of(const Process &process) const {
  return process.role == Role::kRank ? plan_.members + process.number : process.number;
}

void Director::start(Process &process) {
  const std::string number = std::to_string(process.number);
  std::vector<std::string> words{name_of(process.role), address_, number};
  if (process.role == Role::kResizer) {
    words.insert(words.end(), {std::to_string(random_.next()), std::to_string(shared_fd_)});
  } else if (process.role != Role::kServer) {
    shared_.inside_since[place_of(process)].store(0);
    words.insert(words.end(), {std::to_string(plan_.ranks), std::to_string(place_of(process)),
                               std::to_string(random_.next()), std::to_string(shared_fd_)});
  }
  tools::SpawnOptions options;
  options.inherit = {shared_fd_};
  process.child = tools::spawn_self(words, options);
  process.state = State::kRunning;
  process.running_since = now_ns();
  if (process.role == Role::kServer) another_may_serve();
}

void Director::begin_round() {
  shared_.stop.store(0);
  for (Process &process : processes_) {
    if (process.state == State::kEnded) start(process);
  }
}

void Director::torment(double seconds) {
  const std::uint64_t end = deadline_in(seconds);
  const bool any = plan_.kills || plan_.stops;
  std::uint64_t next = now_ns() + 300 * kMs;
  while (now_ns() < end && !tools::stop_requested()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    step();
    if (!any || now_ns() < next) continue;
    strike();
    next = now_ns() + (50 + random_.below(500)) * kMs;
  }
}

// Whatever is due, and what can be seen from here.
void Director::step() {
  look_at_owner();
  for (Process &process : processes_) {
    const std::uint64_t now = now_ns();
    if (process.state == State::kStopped && now >= process.until) resume(process);
    if (process.state == State::kDead && now >= process.until) start(process);
    if (process.state != State::kRunning) continue;
    reap(process);
    look_for_hang(process);
    look_at_zombie(process);
  }
}

void Director::reap(Process &process) {
  const int code = tools::wait_child(process.child.pid, 0);
  if (code < 0) return;
  process.child.pid = -1;
  process.state = State::kEnded;
  if (code == 0 && shared_.stop.load() != 0) return;
  fault(fmt::format("{} {} ended by itself with code {}", name_of(process.role), process.number,
                    code));
  process.state = State::kDead;
  process.until = now_ns() + 100 * kMs;
}

// A call beyond its deadline, however long its process itself was stopped.
void Director::look_for_hang(Process &process) {
  if (process.role == Role::kServer || process.role == Role::kResizer) return;
  std::atomic<std::uint64_t> &since = shared_.inside_since[place_of(process)];
  const std::uint64_t from = since.load();
  if (from == 0) return;
  const double seconds =
      static_cast<double>(now_ns() - std::max(from, process.running_since)) / 1e9;
  // An action is at most four calls.
  if (seconds < 4 * kCallSeconds + kHangSeconds) return;
  ++counts_.hangs;
  fault(fmt::format("{} {} is inside of a call since {:.0f} s", name_of(process.role),
                    process.number, seconds));
  since.store(now_ns());
}

// ---- owners -------------------------------------------------------------------------------------

bool Director::is_owner(const Process &process) {
  return process.role == Role::kServer && process.child.pid > 0 &&
         process.child.pid == watch_->now().pid;
}

void Director::owner_is_gone(bool killed) {
  gone_since_ = now_ns();
  gone_by_kill_ = killed;
}

// Time without any process that could serve is not the store's.
void Director::another_may_serve() {
  if (gone_since_ == 0) return;
  const auto able = std::count_if(processes_.begin(), processes_.end(), [](const Process &p) {
    return p.role == Role::kServer && p.state == State::kRunning;
  });
  if (able <= 1) gone_since_ = now_ns();
}

void Director::look_at_owner() {
  for (const OwnerChange &change : watch_->changes()) {
    ++counts_.takeovers;
    if (gone_since_ == 0) continue;
    const double ms = static_cast<double>(change.ns - std::min(change.ns, gone_since_)) / 1e6;
    counts_.longest_takeover_ms = std::max(counts_.longest_takeover_ms, ms);
    if (gone_by_kill_) {
      counts_.longest_takeover_kill_ms = std::max(counts_.longest_takeover_kill_ms, ms);
    }
    gone_since_ = 0;
  }
}

void Director::resume(Process &process) {
  if (process.was_owner && watch_->now().pid != process.child.pid) {
    process.left = print_area(view_, process.left.slot);
    process.look_at = now_ns();
    process.knows = false;
  } else if (process.was_owner) {
    gone_since_ = 0;  // it is the owner still
  }
  process.was_owner = false;
  kill(process.child.pid, SIGCONT);
  process.state = State::kRunning;
  process.running_since = now_ns();
  if (process.role == Role::kServer) another_may_serve();
}

// An owner that steps down gives the lock of its slot back.
bool Director::gave_up(const Process &process) {
  for (const tools::MemberView &member : view_.members()) {
    if (member.slot != process.owner_slot) continue;
    return !member.alive || static_cast<pid_t>(member.line.pid) != process.child.pid;
  }
  return true;
}

// What was the owner when it was stopped may finish the one batch that it was in, in an area that
// nobody looks at any more. It must see that it was succeeded, and leave that area alone from then
// on.
void Director::look_at_zombie(Process &process) {
  if (process.look_at == 0) return;
  const std::uint64_t now = now_ns();
  if (!process.knows) {
    if (!gave_up(process)) {
      if (now < process.look_at + kNoticeMs * kMs) return;
      ++counts_.zombie_writes;
      fault(fmt::format("server {} does not see that it is succeeded", process.number));
      process.look_at = 0;
      return;
    }
    AreaPrint print = print_area(view_, process.left.slot);
    counts_.late_lines += print.changed(process.left);
    process.left = std::move(print);
    process.knows = true;
    process.look_at = now;
    return;
  }
  if (now < process.look_at + kLeaveAloneMs * kMs) return;
  counts_.zombie_writes += print_area(view_, process.left.slot).changed(process.left);
  process.look_at = 0;
}

bool Director::wait_takeover(std::uint32_t epoch, double seconds) {
  const std::uint64_t until = deadline_in(seconds);
  while (watch_->now().epoch == epoch) {
    if (now_ns() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  look_at_owner();
  return true;
}

bool Director::kill_owner() {
  for (Process &process : processes_) {
    if (!is_owner(process)) continue;
    kill_one(process, true);
    process.until = now_ns() + 300 * kMs;
    return true;
  }
  return false;
}

// ---- faults -------------------------------------------------------------------------------------

Director::Process *Director::victim() {
  struct Kind {
    bool on;
    Role role;
    bool owner;
  };
  const Kind kinds[] = {{plan_.hit_members, Role::kMember, false},
                        {plan_.hit_ranks, Role::kRank, false},
                        {plan_.hit_owner, Role::kServer, true},
                        {plan_.hit_standby, Role::kServer, false},
                        {plan_.resizes, Role::kResizer, false}};
  const Kind &kind = kinds[random_.below(std::size(kinds))];
  if (!kind.on) return nullptr;
  std::vector<Process *> able;
  for (Process &process : processes_) {
    if (process.role != kind.role || process.state != State::kRunning) continue;
    if (process.role == Role::kServer && is_owner(process) != kind.owner) continue;
    able.push_back(&process);
  }
  return able.empty() ? nullptr : able[random_.below(able.size())];
}

void Director::strike() {
  Process *process = nullptr;
  for (int i = 0; i < 16 && process == nullptr; ++i) process = victim();
  if (process == nullptr) return;
  const bool owner = is_owner(*process);
  const bool by_kill = plan_.kills && (!plan_.stops || random_.below(2) == 0);
  if (by_kill) {
    kill_one(*process, owner);
    // A place may stay empty for a while.
    const std::uint64_t pause = random_.below(3) == 0 ? random_.below(3 * plan_.lease_ms / 2) : 0;
    process->until = now_ns() + pause * kMs;
  } else {
    stop_one(*process, owner);
  }
}

void Director::kill_one(Process &process, bool owner) {
  ++counts_.kills;
  if (process.role == Role::kMember) ++counts_.member_kills;
  if (process.role == Role::kRank) ++counts_.rank_kills;
  if (process.role == Role::kResizer) ++counts_.resizer_kills;
  if (process.role == Role::kServer) ++(owner ? counts_.owner_kills : counts_.standby_kills);
  if (owner) owner_is_gone(true);
  kill(process.child.pid, SIGKILL);
  tools::wait_child(process.child.pid, 10);
  process.child.pid = -1;
  process.state = State::kDead;
  process.until = now_ns();
  process.look_at = 0;
}

// Half of all stops end within the lease, half of them do not.
void Director::stop_one(Process &process, bool owner) {
  ++counts_.stops;
  if (process.role == Role::kMember) ++counts_.member_stops;
  if (process.role == Role::kRank) ++counts_.rank_stops;
  if (process.role == Role::kServer) ++(owner ? counts_.owner_stops : counts_.standby_stops);
  const std::uint64_t lease = plan_.lease_ms;
  const bool beyond = random_.below(2) == 0;
  counts_.long_stops += beyond;
  const std::uint64_t ms = beyond ? lease * 6 / 5 + random_.below(4 * lease)
                                  : lease / 20 + random_.below(lease * 3 / 4);
  kill(process.child.pid, SIGSTOP);
  process.state = State::kStopped;
  process.until = now_ns() + ms * kMs;
  process.was_owner = owner;
  process.look_at = 0;
  if (!owner) return;
  process.left.slot = watch_->now().epoch & 15;
  process.owner_slot = watch_->now().slot;
  owner_is_gone(false);
}

// ---- the end of a round -------------------------------------------------------------------------

void Director::calm_down() {
  shared_.stop.store(1);
  const std::uint64_t until = deadline_in(kEndSeconds);
  for (;;) {
    bool quiet = true;
    for (Process &process : processes_) {
      if (process.state == State::kStopped || process.state == State::kDead) process.until = 0;
      if (process.state == State::kDead && process.role != Role::kServer) {
        process.state = State::kEnded;
      }
    }
    step();
    for (const Process &process : processes_) {
      const bool server = process.role == Role::kServer;
      quiet = quiet && process.state == (server ? State::kRunning : State::kEnded);
      quiet = quiet && process.look_at == 0;
    }
    if (quiet) break;
    if (now_ns() >= until) {
      ++counts_.hangs;
      for (Process &process : processes_) {
        if (process.role == Role::kServer || process.state != State::kRunning) continue;
        fault(fmt::format("{} {} does not end", name_of(process.role), process.number));
        kill(process.child.pid, SIGKILL);
        tools::wait_child(process.child.pid, 10);
        process.state = State::kEnded;
      }
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Director::end() {
  for (Process &process : processes_) {
    if (process.role != Role::kServer || process.state == State::kEnded) continue;
    if (process.state == State::kDead) {
      process.state = State::kEnded;
      continue;
    }
    if (const int code = tools::stop_child(process.child.pid, 20); code != 0) {
      fault(fmt::format("server {} did not end well: code {}", process.number, code));
    }
    process.state = State::kEnded;
  }
}

}  // namespace kvpool::torture
