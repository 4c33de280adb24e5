// SPDX-License-Identifier: Apache-2.0
// The processes of a torture and what happens to them: who is killed, who is stopped and for how
// long, when each comes back. Also what may be seen from outside: a process that ended by itself,
// a call that hangs, how long the store had no owner, an owner that writes after it was succeeded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "party.hpp"
#include "replay/children.hpp"
#include "watch.hpp"

namespace kvpool::torture {

struct Plan {
  double seconds = 60;
  double round_seconds = 8;
  std::uint64_t seed = 1;
  std::uint32_t members = 4;
  std::uint32_t ranks = 2;
  std::uint32_t servers = 2;
  std::uint32_t lease_ms = 500;
  bool kills = true, stops = true, resizes = true;
  bool hit_members = true, hit_ranks = true, hit_owner = true, hit_standby = true;
  bool json = false;
  std::string pool;  // empty: a new one
};

enum class Role { kServer, kMember, kRank, kResizer };

struct Counts {
  std::uint64_t kills = 0, stops = 0, long_stops = 0;
  std::uint64_t owner_kills = 0, owner_stops = 0, standby_kills = 0, standby_stops = 0;
  std::uint64_t member_kills = 0, member_stops = 0, rank_kills = 0, rank_stops = 0;
  std::uint64_t resizer_kills = 0;
  std::uint64_t takeovers = 0, hangs = 0;
  std::uint64_t late_lines = 0;     // that a stopped owner finished when it came back
  std::uint64_t zombie_writes = 0;  // lines of its area that changed after it had to know
  double longest_takeover_ms = 0;        // from the fault to the next owner
  double longest_takeover_kill_ms = 0;   // of those after a kill
};

class Director {
public:
  Director(const Plan &plan, const std::string &address, int shared_fd, Shared &shared);
  ~Director();

  void begin_round();               // everybody runs
  void torment(double seconds);     // faults, until the time is over or a signal comes
  void calm_down();                 // everybody runs; members and ranks end
  bool kill_owner();                // and starts another server; false: nobody serves
  bool wait_takeover(std::uint32_t epoch, double seconds);  // for an owner of another epoch
  void end();                       // servers end as well

  OwnerChange owner() { return watch_->now(); }
  const Counts &counts() const { return counts_; }
  const std::vector<std::string> &faults() const { return faults_; }
  void fault(std::string what) { faults_.push_back(std::move(what)); }

private:
  enum class State { kRunning, kStopped, kDead, kEnded };
  struct Process {
    Role role = Role::kMember;
    std::uint32_t number = 0;
    tools::Child child;
    State state = State::kEnded;
    std::uint64_t until = 0;       // stopped or dead until then
    std::uint64_t running_since = 0;
    bool was_owner = false;        // when it was stopped
    AreaPrint left;                // its area, taken when it comes back, and when it knew
    std::uint32_t owner_slot = 0;  // of the member as which it owned
    std::uint64_t look_at = 0;     // since it is back, and then again; 0: nothing to see
    bool knows = false;            // that it is succeeded
  };

  void start(Process &process);
  void step();
  void reap(Process &process);
  void look_for_hang(Process &process);
  void look_at_owner();
  void look_at_zombie(Process &process);
  bool gave_up(const Process &process);
  void resume(Process &process);
  void strike();
  Process *victim();
  void kill_one(Process &process, bool is_owner);
  void stop_one(Process &process, bool is_owner);
  void owner_is_gone(bool killed);
  void another_may_serve();
  bool is_owner(const Process &process);
  std::uint32_t place_of(const Process &process) const;

  const Plan &plan_;
  std::string address_;
  int shared_fd_;
  Shared &shared_;
  Random random_;
  std::vector<Process> processes_;
  std::unique_ptr<OwnerWatch> watch_;
  tools::StoreView view_;
  Counts counts_;
  std::vector<std::string> faults_;
  std::uint64_t gone_since_ = 0;  // the owner was killed or stopped, and none followed yet
  bool gone_by_kill_ = false;
};

}  // namespace kvpool::torture
