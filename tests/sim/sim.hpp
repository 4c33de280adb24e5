// SPDX-License-Identifier: Apache-2.0
// One simulated rack: the fabric, hosts with clocks of their own, processes, threads as fibers, and
// the scheduler that decides from one seed who runs next, who stops for how long, and who dies.
//
// Every verb, clock reading, lock and sleep calls step() or blocks; only there may another thread
// run. True time passes with each step; nobody in the simulated rack can read it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arch/memory.hpp"
#include "fiber.hpp"
#include "marks.hpp"
#include "rng.hpp"
#include "world.hpp"

namespace kvpool::sim {

// What a run may use; each run switches off a random subset (swarm), and shrinking switches off
// more.
enum class Feature : u32 {
  kTornLines,
  kCachedWords,
  kPrefetch,
  kEvict,
  kDrain,
  kLand,
  kFlushEarly,
  kClockDrift,
  kStarve,
  kPreemptBounded,
  kKill,
  kPause,
  kHostCrash,
  kPoison,
  kLinkLoss,
  kDeviceLoss,
  kDevices,  // devices of hosts write and read payloads
  kCount
};
const char *feature_name(Feature feature);

struct RunOptions {
  u64 seed = 1;
  u32 without = 0;          // features forbidden, by bit
  u32 exactly = ~u32{0};    // else the features of the run, instead of drawn ones
  u64 ops_max = ~u64{0};    // cap on the operations of each actor
  u32 mutant = 0;           // 0: none; a value of kvpool::Mutant
  bool trace = false;
  // Crash enumeration: which script (0: drawn), after which verb of its window the power goes (0:
  // drawn), and which of its stores under way arrive (World::crash_host_keeping).
  u32 script = 0;
  u64 crash_at = 0;
  u64 crash_way = 0;
  u64 crash_bound = 1024;
};

using ThreadId = u32;
using ProcessId = u32;
inline constexpr u32 kNobody = ~u32{0};

struct TraceEntry {
  Time when = 0;
  ThreadId thread = 0;
  const char *what = "";
  u64 a = 0;
  u64 b = 0;
};

enum class RunEnd { kDone, kDeadlock, kTimeLimit, kFailed };

class Sim {
public:
  Sim();
  ~Sim();
  Sim(const Sim &) = delete;
  Sim &operator=(const Sim &) = delete;

  // --- set-up, from the main context ---------------------------------------------------------
  void reset(const RunOptions &options);
  // The world's spontaneous steps are filled in from the features of this run.
  void make_world(WorldOptions options);
  ProcessId add_process(u32 host, std::string name);
  // A process outside the rack: it drives faults and checks, and reads no pool memory.
  ProcessId add_nemesis(std::string name);
  // A daemon thread does not keep the run going.
  ThreadId spawn(ProcessId process, std::string name, std::function<void()> body,
                 bool daemon = false);
  RunEnd run(Time until, u64 steps_max);

  // --- from inside a thread ------------------------------------------------------------------
  void step(Time cost, const char *what = "", u64 a = 0, u64 b = 0);
  void yield();  // give way at once
  void sleep_true(Time ns);
  void sleep_host(u64 host_ns);  // on this thread's host clock
  u64 clock();                   // of this thread's host, ns
  // Blocks until wake(); `queue` is any address. A spurious return is possible.
  void block(const void *queue, u64 host_ns_max = ~u64{0});
  void wake(const void *queue, bool all);
  // For what `holder`, a process, will give back: until then, or until the holder is dead.
  void block_for(const void *queue, ProcessId holder);
  ThreadId current() const { return current_; }
  ProcessId current_process() const { return threads_[current_]->process; }
  u32 current_world_thread() const { return threads_[current_]->world_thread; }
  u32 current_host() const { return processes_[threads_[current_]->process].host; }
  Counters &counters() { return threads_[current_]->counters; }
  // A line of the trace for a person: operations above the verbs. Begins with "op " by custom.
  void note(const char *what, u64 a = 0, u64 b = 0);
  [[gnu::format(printf, 2, 3)]] void fail(const char *format, ...);
  // Ends the calling thread as if its process had been killed here.
  [[noreturn]] void vanish();

  // Called at each rare path that production code names; a scenario may strike there.
  void on_mark(std::function<void(const char *mark)> hook) { mark_hook_ = std::move(hook); }
  void marked(const char *mark) {
    note(mark);
    if (mark_hook_) mark_hook_(mark);
  }

  // --- faults ----------------------------------------------------------------------------------
  void kill(ProcessId process);             // SIGKILL: what it executed still drains
  void kill_after(ProcessId process, u64 verbs);
  void crash_host_after(ProcessId process, u64 verbs);  // its host loses power at that verb
  void pause_after(ProcessId process, u64 verbs, Time ns);
  void pause(ProcessId process, Time ns);   // SIGSTOP for a while
  void crash_host(u32 host);                // power loss; its processes die
  // Counts the verbs of one host from now on: `each` is told before every one of them, and may call
  // lose_power(); nullptr ends it.
  void watch_host(u32 host, std::function<void(u64 verb)> each);
  void choose_crash(const RunOptions &from) {
    options_.crash_at = from.crash_at;
    options_.crash_way = from.crash_way;
  }
  // From `each` only: the host is gone, with what its stores under way became.
  void lose_power(u64 way, u64 bound);
  bool alive(ProcessId process) const { return processes_[process].alive; }
  bool paused(ProcessId process) const { return processes_[process].paused_until > now_; }
  Time paused_total(ProcessId process) const { return processes_[process].paused_total; }
  u32 host_of(ProcessId process) const { return processes_[process].host; }

  // --- files of devices: what a process can map of them; none: devices have one size for ever ----
  const std::vector<u64> &files() const { return files_; }
  void set_files(std::vector<u64> bytes) { files_ = std::move(bytes); }
  // Storage given back: whoever may store at all must not store there any more.
  void give_back(u32 device, u64 begin, u64 end) { holes_.push_back({device, begin, end}); }
  void take_back_holes() { holes_.clear(); }
  struct Hole {
    u32 device;
    u64 begin, end;
  };
  const std::vector<Hole> &holes() const { return holes_; }
  // Whether the current process may store payload, for all that the scenario knows.
  void judge_stores(std::function<bool()> may) { may_store_ = std::move(may); }
  bool may_store() const { return !may_store_ || may_store_(); }

  // --- file locks: freed when the holder dies, kept while it is stopped --------------------------
  bool try_lock(u64 lock);
  void unlock(u64 lock);
  bool locked_by_other(u64 lock) const;
  bool locked(u64 lock) const { return locks_.count(lock) != 0; }
  // Dies its holder, the lock is `heir`'s: a process of that host which stands for whatever can
  // still write for the dead one. It is woken then, and releases what it inherited.
  void bequeath(u64 lock, ProcessId heir) { heirs_[lock] = heir; }
  void bequeath_no_more(u64 lock) { heirs_.erase(lock); }
  bool inherited(ProcessId heir) const;
  void release_inherited(ProcessId heir);

  // --- the run -----------------------------------------------------------------------------------
  bool allows(Feature feature) const { return (features_ >> static_cast<u32>(feature)) & 1; }
  u64 ops(u64 wanted) const { return wanted < options_.ops_max ? wanted : options_.ops_max; }
  const RunOptions &options() const { return options_; }
  World &world() { return world_; }
  Rng &rng() { return rng_; }
  Time now() const { return now_; }
  u64 steps() const { return steps_; }
  bool failed() const { return !violation_.empty(); }
  const std::string &violation() const { return violation_; }
  std::string features_text() const;
  void print_trace() const;

private:
  enum class State : u8 { kRunnable, kSleeping, kBlocked, kFinished, kDead };
  struct Thread {
    Fiber fiber;
    std::string name;
    ProcessId process = 0;
    u32 world_thread = kNobody;
    State state = State::kFinished;
    bool daemon = false;
    bool frozen = false;
    Time wake = 0;
    const void *queue = nullptr;
    ProcessId waits_for = kNobody;  // who holds what it blocks on, where that is known
    u32 priority = 0;
    u64 burst = 0;
    Counters counters;
  };
  struct Process {
    std::string name;
    u32 host = kNobody;
    bool alive = true;
    Time paused_until = 0;
    Time paused_total = 0;
    u64 kill_countdown = 0;
    bool takes_host_along = false;
    u64 pause_countdown = 0;
    Time pause_ns = 0;
    std::vector<ThreadId> threads;
  };
  struct HostClock {
    std::int64_t ppm = 0;
    u64 offset = 0;
  };

  void leave();
  void draw_features();
  void pass_on_locks(ProcessId dead);
  void sleep_until(Thread &thread, Time wake);
  void make_runnable(ThreadId id);
  void remove_runnable(ThreadId id);
  void wake_sleepers();
  bool jump_to_next_wake();
  ThreadId pick();
  void refreeze();
  bool work_left() const;
  Time to_true(u32 host, u64 host_ns) const;
  void record(const char *what, u64 a, u64 b);
  void print_entry(const TraceEntry &entry) const;
  void print_threads() const;

  RunOptions options_;
  u32 features_ = 0;
  Rng rng_;
  World world_;
  Time now_ = 0;
  u64 steps_ = 0;
  u64 steps_max_ = 0;
  Time until_ = 0;
  u32 switch_permille_ = 250;
  Time time_scale_ = 1;
  u64 next_freeze_ = 0;
  u64 next_priority_change_ = 0;
  Time next_wake_ = kNever;
  ThreadId current_ = kNobody;
  std::string violation_;
  std::vector<std::unique_ptr<Thread>> threads_;  // the first thread_count_ are of this run
  u32 thread_count_ = 0;
  std::vector<Process> processes_;
  std::vector<HostClock> clocks_;
  std::vector<ThreadId> runnable_;
  u64 arrivals_ = 0;  // threads that became runnable, ever
  u64 arrivals_seen_ = 0;
  std::map<u64, ProcessId> locks_;
  std::map<u64, ProcessId> heirs_;
  std::vector<u64> files_;
  std::vector<Hole> holes_;
  std::function<bool()> may_store_;
  std::vector<TraceEntry> trace_;
  std::vector<TraceEntry> notes_;
  std::function<void(const char *)> mark_hook_;
  u64 trace_next_ = 0;
  u32 watched_host_ = kNobody;
  u64 watched_verbs_ = 0;
  std::function<void(u64)> watch_;
};

}  // namespace kvpool::sim
