// SPDX-License-Identifier: Apache-2.0
// The scheduler, clocks, faults and locks of a simulated rack.
#include "sim.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace kvpool::sim {

namespace {

constexpr u64 kTraceEntries = 1 << 13;  // the last verbs
constexpr u64 kNotesMax = 1 << 16;
constexpr std::int64_t kPpmMax = 4'900;  // any two clocks differ by less than 1 % in rate (A7)
constexpr std::int64_t kMillion = 1'000'000;
constexpr u64 kBurstMax = 3'000;  // verbs without a pause before the bounded scheduler steps in

const char *const kFeatureNames[] = {
    "torn-lines", "cached-words", "prefetch", "evict",     "drain",       "land",
    "flush-early", "clock-drift",  "starve",   "preempt",   "kill",        "pause",
    "host-crash",  "poison",       "link-loss", "device-loss", "devices"};
static_assert(sizeof kFeatureNames / sizeof kFeatureNames[0] ==
              static_cast<u32>(Feature::kCount));

}  // namespace

const char *feature_name(Feature feature) {
  return kFeatureNames[static_cast<u32>(feature)];
}

Sim::Sim() : trace_(kTraceEntries) {}
Sim::~Sim() = default;

void Sim::reset(const RunOptions &options) {
  options_ = options;
  rng_ = Rng(options.seed * 0x9E3779B97F4A7C15ull + 0x6B76706F6F6Cull);
  draw_features();
  now_ = 0;
  steps_ = 0;
  violation_.clear();
  for (u32 i = 0; i < thread_count_; ++i) threads_[i]->state = State::kFinished;
  thread_count_ = 0;
  processes_.clear();
  clocks_.clear();
  runnable_.clear();
  locks_.clear();
  heirs_.clear();
  files_.clear();
  holes_.clear();
  may_store_ = nullptr;
  trace_next_ = 0;
  notes_.clear();
  mark_hook_ = nullptr;
  watch_host(kNobody, nullptr);
  current_ = kNobody;
  next_wake_ = kNever;
  next_freeze_ = 0;
  next_priority_change_ = 0;
  constexpr u32 kSwitch[] = {30, 120, 250, 600};
  switch_permille_ = kSwitch[rng_.below(4)];
}

void Sim::draw_features() {
  features_ = 0;
  for (u32 f = 0; f < static_cast<u32>(Feature::kCount); ++f) {
    // Spontaneous steps are on in most runs, since a run without any proves little.
    const u32 chance = f <= static_cast<u32>(Feature::kClockDrift) ? 700 : 500;
    if (f == static_cast<u32>(Feature::kDevices)) continue;
    if (rng_.chance(chance)) features_ |= 1u << f;
  }
  // Its own chance: what else a seed means does not hang on it.
  Rng devices(options_.seed ^ 0x64657669'63657321ull);
  if (devices.chance(800)) features_ |= 1u << static_cast<u32>(Feature::kDevices);
  if (options_.exactly != ~u32{0}) features_ = options_.exactly;
  features_ &= ~options_.without;
}

void Sim::make_world(WorldOptions options) {
  const auto rate = [&](Feature feature, u32 low, u32 high) {
    const u32 drawn = static_cast<u32>(rng_.between(low, high));
    return allows(feature) ? drawn : 0;
  };
  options.torn_lines = allows(Feature::kTornLines);
  options.cached_words = allows(Feature::kCachedWords);
  options.prefetch = rate(Feature::kPrefetch, 20, 300);
  options.evict = rate(Feature::kEvict, 10, 200);
  options.drain = rate(Feature::kDrain, 10, 300);
  options.land = rate(Feature::kLand, 10, 300);
  options.flush_early = rate(Feature::kFlushEarly, 10, 300);
  world_.reset(options, rng_.fork());
  clocks_.resize(options.hosts);
  for (HostClock &clock : clocks_) {
    const std::int64_t drawn = static_cast<std::int64_t>(rng_.below(2 * kPpmMax + 1)) - kPpmMax;
    clock.ppm = allows(Feature::kClockDrift) ? drawn : 0;
    clock.offset = rng_.below(u64{1} << 40) + 1'000'000'000;
  }
}

ProcessId Sim::add_process(u32 host, std::string name) {
  Process process;
  process.name = std::move(name);
  process.host = host;
  processes_.push_back(std::move(process));
  return static_cast<ProcessId>(processes_.size() - 1);
}

ProcessId Sim::add_nemesis(std::string name) {
  return add_process(kNobody, std::move(name));
}

ThreadId Sim::spawn(ProcessId process, std::string name, std::function<void()> body, bool daemon) {
  if (thread_count_ == threads_.size()) threads_.push_back(std::make_unique<Thread>());
  const ThreadId id = thread_count_++;
  Thread &thread = *threads_[id];
  thread.name = std::move(name);
  thread.process = process;
  thread.daemon = daemon;
  thread.frozen = false;
  thread.queue = nullptr;
  thread.priority = static_cast<u32>(rng_.below(1 << 20));
  thread.burst = 0;
  thread.counters = Counters{};
  const u32 host = processes_[process].host;
  thread.world_thread = host == kNobody ? kNobody : world_.add_thread(host);
  processes_[process].threads.push_back(id);
  thread.fiber.start([this, id, run = std::move(body)] {
    try {
      run();
    } catch (const std::exception &error) {
      fail("exception left a thread: %s", error.what());
    }
    threads_[id]->state = State::kFinished;
    remove_runnable(id);
  });
  thread.state = State::kBlocked;
  make_runnable(id);
  return id;
}

void Sim::make_runnable(ThreadId id) {
  Thread &thread = *threads_[id];
  const Process &process = processes_[thread.process];
  thread.queue = nullptr;
  if (process.paused_until > now_) {
    thread.state = State::kSleeping;
    thread.wake = process.paused_until;
    if (thread.wake < next_wake_) next_wake_ = thread.wake;
    return;
  }
  thread.state = State::kRunnable;
  thread.burst = 0;
  ++arrivals_;
  runnable_.push_back(id);
}

void Sim::remove_runnable(ThreadId id) {
  for (u64 i = 0; i < runnable_.size(); ++i) {
    if (runnable_[i] != id) continue;
    runnable_[i] = runnable_.back();
    runnable_.pop_back();
    return;
  }
}

void Sim::wake_sleepers() {
  next_wake_ = kNever;
  for (ThreadId id = 0; id < thread_count_; ++id) {
    Thread &thread = *threads_[id];
    const bool timed = thread.state == State::kSleeping ||
                       (thread.state == State::kBlocked && thread.wake != kNever);
    if (!timed) continue;
    if (thread.wake <= now_) {
      make_runnable(id);
      continue;
    }
    if (thread.wake < next_wake_) next_wake_ = thread.wake;
  }
}

bool Sim::jump_to_next_wake() {
  if (next_wake_ == kNever) return false;
  if (next_wake_ > now_) now_ = next_wake_;
  world_.advance(now_);
  wake_sleepers();
  return true;
}

// Starvation: for a while only some threads run.
void Sim::refreeze() {
  next_freeze_ = steps_ + rng_.between(50, 3'000);
  const bool calm = rng_.chance(300);
  for (u32 i = 0; i < thread_count_; ++i) threads_[i]->frozen = !calm && rng_.chance(500);
}

ThreadId Sim::pick() {
  if (allows(Feature::kPreemptBounded)) {
    if (steps_ >= next_priority_change_) {
      next_priority_change_ = steps_ + rng_.between(100, 5'000);
      threads_[rng_.below(thread_count_)]->priority = static_cast<u32>(rng_.below(1 << 20));
    }
    ThreadId best = runnable_[0];
    for (ThreadId id : runnable_) {
      if (threads_[id]->priority > threads_[best]->priority) best = id;
    }
    return best;
  }
  if (allows(Feature::kStarve)) {
    if (steps_ >= next_freeze_) refreeze();
    for (u32 tries = 0; tries < 4; ++tries) {
      const ThreadId id = runnable_[rng_.below(runnable_.size())];
      if (!threads_[id]->frozen) return id;
    }
    for (ThreadId id : runnable_) {
      if (!threads_[id]->frozen) return id;
    }
  }
  return runnable_[rng_.below(runnable_.size())];
}

bool Sim::work_left() const {
  for (u32 i = 0; i < thread_count_; ++i) {
    const State state = threads_[i]->state;
    if (!threads_[i]->daemon && state != State::kFinished && state != State::kDead) return true;
  }
  return false;
}

RunEnd Sim::run(Time until, u64 steps_max) {
  until_ = until;
  steps_max_ = steps_max;
  u32 since_check = 0;
  while (!failed()) {
    if ((since_check++ & 15) == 0 && !work_left()) return RunEnd::kDone;
    if (now_ >= until_ || steps_ >= steps_max_) return RunEnd::kTimeLimit;
    if (runnable_.empty()) {
      if (!work_left()) return RunEnd::kDone;
      if (!jump_to_next_wake()) return RunEnd::kDeadlock;
      continue;
    }
    arrivals_seen_ = arrivals_;
    current_ = pick();
    threads_[current_]->fiber.resume();
    current_ = kNobody;
  }
  return RunEnd::kFailed;
}

void Sim::leave() {
  threads_[current_]->fiber.leave();
}

void Sim::note(const char *what, u64 a, u64 b) {
  record(what, a, b);
  if (options_.trace && notes_.size() < kNotesMax) notes_.push_back({now_, current_, what, a, b});
}

void Sim::record(const char *what, u64 a, u64 b) {
  trace_[trace_next_++ % kTraceEntries] = {now_, current_, what, a, b};
}

void Sim::step(Time cost, const char *what, u64 a, u64 b) {
  ++steps_;
  record(what, a, b);
  world_.nature();
  // Threads run beside each other: the more of them, the less time one verb takes of all.
  const u64 beside = runnable_.size() + 1;
  now_ += cost / beside + 1;
  world_.advance(now_);
  if (now_ >= next_wake_) wake_sleepers();
  Thread &thread = *threads_[current_];
  Process &process = processes_[thread.process];
  if (process.kill_countdown && --process.kill_countdown == 0) {
    if (process.takes_host_along) crash_host(process.host);
    kill(thread.process);
    leave();
  }
  if (process.pause_countdown && --process.pause_countdown == 0) {
    pause(thread.process, process.pause_ns);
    leave();
  }
  if (process.host == watched_host_ && watched_host_ != kNobody) {
    const auto each = watch_;  // it may end the watch
    each(++watched_verbs_);
    if (!process.alive) leave();
  }
  if (steps_ >= steps_max_ || now_ >= until_) leave();
  if (allows(Feature::kPreemptBounded)) {
    if (++thread.burst > kBurstMax) {
      thread.burst = 0;
      thread.priority = thread.priority / 2;
      leave();
    } else if (steps_ >= next_priority_change_ || arrivals_ != arrivals_seen_) {
      leave();  // someone new became runnable, or the order is drawn again
    }
    return;
  }
  if (runnable_.size() > 1 && rng_.chance(switch_permille_)) leave();
}

void Sim::yield() {
  threads_[current_]->priority /= 2;
  leave();
}

void Sim::sleep_until(Thread &thread, Time wake) {
  thread.state = State::kSleeping;
  thread.wake = wake;
  if (wake < next_wake_) next_wake_ = wake;
  remove_runnable(current_);
  leave();
}

void Sim::sleep_true(Time ns) {
  record("sleep", ns, 0);
  Time late = rng_.below(ns / 16 + 2);
  if (rng_.chance(20)) late += rng_.below(2 * ns + 1);
  sleep_until(*threads_[current_], now_ + ns + late + 1);
}

Time Sim::to_true(u32 host, u64 host_ns) const {
  if (host == kNobody) return host_ns;
  const auto scaled = static_cast<unsigned __int128>(host_ns) * kMillion;
  return static_cast<Time>(scaled / static_cast<u64>(kMillion + clocks_[host].ppm));
}

void Sim::sleep_host(u64 host_ns) {
  sleep_true(to_true(current_host(), host_ns));
}

u64 Sim::clock() {
  const u32 host = current_host();
  if (host == kNobody) return now_;
  const HostClock &clock = clocks_[host];
  const auto scaled =
      static_cast<__int128>(now_) * (kMillion + clock.ppm) / kMillion;
  return static_cast<u64>(scaled) + clock.offset;
}

void Sim::block(const void *queue, u64 host_ns_max) {
  Thread &thread = *threads_[current_];
  record("block", reinterpret_cast<u64>(queue), host_ns_max);
  thread.state = State::kBlocked;
  thread.queue = queue;
  thread.wake = host_ns_max == ~u64{0} ? kNever : now_ + to_true(current_host(), host_ns_max) + 1;
  if (thread.wake < next_wake_) next_wake_ = thread.wake;
  remove_runnable(current_);
  leave();
}

void Sim::block_for(const void *queue, ProcessId holder) {
  Thread &thread = *threads_[current_];
  thread.waits_for = holder;
  block(queue);
  thread.waits_for = kNobody;
}

void Sim::wake(const void *queue, bool all) {
  const u32 first = static_cast<u32>(rng_.below(thread_count_));
  for (u32 i = 0; i < thread_count_; ++i) {
    const ThreadId id = (first + i) % thread_count_;
    Thread &thread = *threads_[id];
    if (thread.state != State::kBlocked || thread.queue != queue) continue;
    make_runnable(id);
    if (!all) return;
  }
}

void Sim::vanish() {
  Thread &thread = *threads_[current_];
  thread.state = State::kDead;
  remove_runnable(current_);
  leave();
  std::abort();
}

void Sim::fail(const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (violation_.empty()) violation_ = text;
  note("violation", 0, 0);
  if (current_ != kNobody) vanish();
}

void Sim::kill(ProcessId process) {
  Process &p = processes_[process];
  if (!p.alive) return;
  note("op kill", process, p.host);
  p.alive = false;
  p.kill_countdown = 0;
  for (ThreadId id : p.threads) {
    Thread &thread = *threads_[id];
    if (thread.state == State::kFinished || thread.state == State::kDead) continue;
    if (thread.state == State::kRunnable) remove_runnable(id);
    thread.state = State::kDead;
    if (thread.world_thread != kNobody) world_.crash_thread(thread.world_thread);
  }
  // An inspector looks into a member of another process: nobody gives that one's mutex back.
  for (ThreadId id = 0; id < thread_count_; ++id) {
    Thread &thread = *threads_[id];
    if (thread.state == State::kBlocked && thread.waits_for == process) make_runnable(id);
  }
  pass_on_locks(process);
}

void Sim::pass_on_locks(ProcessId dead) {
  for (auto lock = locks_.begin(); lock != locks_.end();) {
    const auto heir = heirs_.find(lock->first);
    const bool there = heir != heirs_.end() && processes_[heir->second].alive;
    if (lock->second != dead) {
      ++lock;
    } else if (!there || heir->second == dead) {
      lock = locks_.erase(lock);
    } else {
      lock->second = heir->second;
      for (ThreadId id : processes_[heir->second].threads) {
        if (threads_[id]->state == State::kBlocked) make_runnable(id);
      }
      heirs_.erase(heir);
      ++lock;
    }
  }
}

bool Sim::inherited(ProcessId heir) const {
  return std::any_of(locks_.begin(), locks_.end(),
                     [&](const auto &lock) { return lock.second == heir; });
}

void Sim::release_inherited(ProcessId heir) {
  std::erase_if(locks_, [&](const auto &lock) { return lock.second == heir; });
}

void Sim::kill_after(ProcessId process, u64 verbs) {
  processes_[process].kill_countdown = verbs;
}

void Sim::crash_host_after(ProcessId process, u64 verbs) {
  processes_[process].takes_host_along = true;
  kill_after(process, verbs);
}

void Sim::pause_after(ProcessId process, u64 verbs, Time ns) {
  processes_[process].pause_countdown = verbs;
  processes_[process].pause_ns = ns;
}

void Sim::pause(ProcessId process, Time ns) {
  Process &p = processes_[process];
  if (!p.alive) return;
  note("op pause", process, ns);
  p.paused_until = now_ + ns;
  p.paused_total += ns;
  for (ThreadId id : p.threads) {
    Thread &thread = *threads_[id];
    const bool there = thread.state != State::kFinished && thread.state != State::kDead;
    if (ns > 10 * world_.options().delta_ns && there && thread.world_thread != kNobody) {
      world_.leave_core(thread.world_thread);
    }
    if (thread.state == State::kRunnable) {
      remove_runnable(id);
      thread.state = State::kSleeping;
      thread.wake = p.paused_until;
    } else if (thread.state == State::kSleeping && thread.wake < p.paused_until) {
      thread.wake = p.paused_until;
    }
  }
  if (p.paused_until < next_wake_) next_wake_ = p.paused_until;
}

void Sim::crash_host(u32 host) {
  note("op crash host", host, 0);
  // The stores its threads had executed are lost or kept by the world's dice, so it goes first.
  world_.crash_host(host);
  for (ProcessId id = 0; id < processes_.size(); ++id) {
    if (processes_[id].host == host) kill(id);
  }
}

void Sim::watch_host(u32 host, std::function<void(u64)> each) {
  watched_host_ = each ? host : kNobody;
  watched_verbs_ = 0;
  watch_ = std::move(each);
}

void Sim::lose_power(u64 way, u64 bound) {
  const u32 host = watched_host_;
  note("op lose power", host, way);
  watch_host(kNobody, nullptr);
  world_.crash_host_keeping(host, way, bound);
  for (ProcessId id = 0; id < processes_.size(); ++id) {
    if (processes_[id].host == host) kill(id);
  }
}

bool Sim::try_lock(u64 lock) {
  step(200, "try lock", lock);
  return locks_.emplace(lock, current_process()).second;
}

void Sim::unlock(u64 lock) {
  step(200, "unlock", lock);
  const auto found = locks_.find(lock);
  if (found != locks_.end() && found->second == current_process()) locks_.erase(found);
}

bool Sim::locked_by_other(u64 lock) const {
  const auto found = locks_.find(lock);
  return found != locks_.end() && found->second != current_process();
}

std::string Sim::features_text() const {
  std::string text;
  for (u32 f = 0; f < static_cast<u32>(Feature::kCount); ++f) {
    if (!((features_ >> f) & 1)) continue;
    if (!text.empty()) text += ' ';
    text += kFeatureNames[f];
  }
  return text;
}

void Sim::print_threads() const {
  const char *const kNames[] = {"runnable", "sleeping", "blocked", "finished", "dead"};
  for (u32 i = 0; i < thread_count_; ++i) {
    const Thread &t = *threads_[i];
    const Process &p = processes_[t.process];
    std::fprintf(stderr, "%-20s host %d %-9s wake %lld process %s%s\n", t.name.c_str(),
                 static_cast<int>(p.host), kNames[static_cast<u32>(t.state)],
                 static_cast<long long>(t.wake), p.alive ? "alive" : "dead",
                 p.paused_until > now_ ? ", stopped" : "");
  }
}

void Sim::print_entry(const TraceEntry &e) const {
  const char *name = e.thread == kNobody ? "-" : threads_[e.thread]->name.c_str();
  std::fprintf(stderr, "%14llu  %-20s %-24s %#llx %#llx\n",
               static_cast<unsigned long long>(e.when), name, e.what,
               static_cast<unsigned long long>(e.a), static_cast<unsigned long long>(e.b));
}

void Sim::print_trace() const {
  const u64 count = trace_next_ < kTraceEntries ? trace_next_ : kTraceEntries;
  std::fprintf(stderr, "--- the last %llu verbs\n", static_cast<unsigned long long>(count));
  for (u64 i = trace_next_ - count; i < trace_next_; ++i) print_entry(trace_[i % kTraceEntries]);
  std::fprintf(stderr, "--- operations, faults and rare paths of the whole run\n");
  for (const TraceEntry &e : notes_) print_entry(e);
  std::fprintf(stderr, "--- threads\n");
  print_threads();
}

}  // namespace kvpool::sim
