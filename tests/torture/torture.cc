// SPDX-License-Identifier: Apache-2.0
// Shows: owners, standbys, members and ranks of a group, killed or stopped at any moment and for
// any time, never make a reader see wrong bytes, never lose a published block, never leak space,
// and leave a store that verifies. How: all of them as real processes over one pool. Members put,
// get, remove, pin, announce and write in shards on a few keys in a pool too small for them; a
// group writes blocks together; the parent kills processes with SIGKILL and stops them with SIGSTOP
// at random moments, shorter and longer than the lease, and lets them go on; one process makes the
// pool larger and smaller. A payload is a function of its key and of a nonce, so a reader proves
// every byte itself, whatever the store's own checks say.
//
// Faults come in rounds. After each everybody runs again; members and ranks end; blocks that were
// pinned through the round and all that are published are read, before and after one more death of
// the owner; the owner gets its grace; then extents, entries and all payload are checked.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "backend/backend.hpp"
#include "director.hpp"
#include "judge.hpp"
#include "say.hpp"

namespace kvpool::torture {

namespace {

using tools::checked;
using tools::deadline_in;
using tools::fail;
using tools::Json;
using tools::kExitFailed;
using tools::kExitFine;
using tools::kExitUsage;
using tools::now_ns;

Shared *map_shared(int fd) {
  void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) fail(kExitFailed, "shared page", std::strerror(errno));
  return static_cast<Shared *>(memory);
}

std::string without_size(std::string address) {
  const std::size_t at = address.find("size=");
  if (at == std::string::npos || at == 0) return address;
  const std::size_t end = address.find('&', at);
  if (end != std::string::npos) return address.erase(at, end + 1 - at);
  return address.erase(at - 1);
}

class Torture {
public:
  explicit Torture(const Plan &plan) : plan_(plan) {
    fd_ = memfd_create("kvpool-torture", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, sizeof(Shared)) != 0)
      fail(kExitFailed, "shared page", std::strerror(errno));
    shared_ = map_shared(fd_);
    address_ = plan.pool.empty() ? fmt::format("mem:torture-{}?size=48MiB", getpid()) : plan.pool;
    kvpool_format_opts format = KVPOOL_OPTS(kvpool_format_opts);
    // What stands at an address that somebody named is not ours to overwrite.
    format.flags = plan.pool.empty() ? KVPOOL_FORMAT_F_YES | KVPOOL_FORMAT_F_FORCE : 0;
    format.block_bytes = 16384;
    format.hosts = 1;
    format.members_per_host = 16;
    format.standbys = std::max(2u, plan.servers);
    format.lease_ms = plan.lease_ms;
    format.deadline_ns = deadline_in(60);
    checked(kvpool_format(address_.c_str(), &format), nullptr, address_);
    made_ = true;
    address_ = without_size(address_);  // which changes
  }
  ~Torture() {
    judge_.reset();
    director_.reset();
    backend::Address where;
    if (made_ && backend::parse_address(address_.c_str(), where).ok())
      backend::Backend::remove(where, true);
  }

  int run() {
    const std::uint64_t end = deadline_in(plan_.seconds);
    director_ = std::make_unique<Director>(plan_, address_, fd_, *shared_);
    judge_ = std::make_unique<Judge>(address_, plan_.seed, plan_.round_seconds, *shared_);
    do {
      const double left = static_cast<double>(end - std::min(end, now_ns())) / 1e9;
      // The last round takes what is left, if that is not enough for two.
      round(left < 1.7 * plan_.round_seconds ? left : plan_.round_seconds);
    } while (now_ns() < end && !tools::stop_requested() && director_->faults().empty());
    director_->end();
    judge_->check();
    return report();
  }

private:
  void round(double seconds) {
    shared_->stop.store(0);  // before anybody opens the store
    judge_->arrive();
    director_->begin_round();
    director_->torment(std::max(0.5, seconds * 0.8));
    director_->calm_down();
    ++rounds_;
    if (!judge_->wait_owner()) {
      director_->fault("nobody serves after a round");
      judge_->depart();
      return;
    }
    judge_->read_kept();
    judge_->read_all();
    const std::uint32_t epoch = director_->owner().epoch;
    if (plan_.kills && plan_.hit_owner && director_->kill_owner()) {
      director_->calm_down();
      if (!director_->wait_takeover(epoch, 20)) director_->fault("nobody takes over");
      judge_->wait_owner();
      judge_->read_again();
    }
    judge_->depart();
    judge_->look_for_leaks();
    judge_->check();
    if (plan_.json) return;
    tools::print_text(fmt::format("round {}: {} kills, {} stops, {} take-overs, {} reads\n",
                                  rounds_, director_->counts().kills, director_->counts().stops,
                                  director_->counts().takeovers, shared_->reads.load()));
  }

  int report() {
    const Shared &s = *shared_;
    const Counts &c = director_->counts();
    std::uint64_t passed = 0;
    std::uint64_t failed = 0;
    const auto judge = [&](bool good, const std::string &what) {
      ++(good ? passed : failed);
      if (!good) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
    };
    judge(s.wrong_reads.load() == 0,
          fmt::format("{} wrong reads: {}", s.wrong_reads.load(), s.first_wrong));
    // A writer that was stopped for longer than its quarantine may store what it was about to.
    judge(s.refused_reads.load() == 0 || c.long_stops > 0,
          fmt::format("{} reads refused by checks, and nobody was stopped for long",
                      s.refused_reads.load()));
    judge(s.errors.load() == 0, fmt::format("{} calls failed: {}", s.errors.load(), s.first_wrong));
    judge(judge_->lost() == 0,
          fmt::format("{} blocks lost: {}", judge_->lost(), judge_->first_lost()));
    judge(judge_->leaked() == 0, "leaked: " + judge_->leaked_what());
    judge(judge_->findings().empty(), "check: " + judge_->findings().dump());
    judge(c.zombie_writes == 0,
          fmt::format("{} lines written by an owner that was succeeded", c.zombie_writes));
    judge(director_->faults().empty(),
          director_->faults().empty() ? "" : director_->faults().front());
    judge(!plan_.resizes || rounds_ < 2 || s.grown.load() > 0, "the store never grew");
    judge(s.reads.load() > 0 && s.puts.load() > 0, "nothing was read or put: this proved nothing");
    if (plan_.json) {
      tools::print_plain_json(numbers());
    } else {
      tools::print_text(fmt::format(
          "{} rounds, {} kills, {} stops, {} take-overs (longest {:.0f} ms), {} reads, {} puts, {} "
          "in shards, {} by the group, {} removes, {} pins, grown {} times, shrunk {} times\n",
          rounds_, c.kills, c.stops, c.takeovers, c.longest_takeover_ms, s.reads.load(),
          s.puts.load(), s.sharded.load(), s.group_puts.load(), s.removes.load(), s.pins.load(),
          s.grown.load(), s.shrunk.load()));
    }
    std::fprintf(plan_.json ? stderr : stdout, "%lu passed, %lu failed\n", passed, failed);
    return failed == 0 ? kExitFine : kExitFailed;
  }

  Json numbers() {
    const Shared &s = *shared_;
    const Counts &c = director_->counts();
    Json json;
    json["kills"] = c.kills;
    json["stops"] = c.stops;
    json["wrong_reads"] = s.wrong_reads.load();
    json["leaked_blocks"] = judge_->leaked();
    json["lost_blocks"] = judge_->lost();
    json["check_findings"] = judge_->findings();
    json["rounds"] = rounds_;
    json["owner_kills"] = c.owner_kills;
    json["owner_stops"] = c.owner_stops;
    json["standby_kills"] = c.standby_kills;
    json["standby_stops"] = c.standby_stops;
    json["member_kills"] = c.member_kills;
    json["member_stops"] = c.member_stops;
    json["rank_kills"] = c.rank_kills;
    json["rank_stops"] = c.rank_stops;
    json["stops_beyond_lease"] = c.long_stops;
    json["takeovers"] = c.takeovers;
    json["longest_takeover_ms"] = c.longest_takeover_ms;
    json["longest_takeover_after_kill_ms"] = c.longest_takeover_kill_ms;
    json["late_lines"] = c.late_lines;
    json["zombie_writes"] = c.zombie_writes;
    json["hangs"] = c.hangs;
    json["reads"] = s.reads.load();
    json["refused_reads"] = s.refused_reads.load();
    json["puts"] = s.puts.load();
    json["sharded_puts"] = s.sharded.load();
    json["group_puts"] = s.group_puts.load();
    json["removes"] = s.removes.load();
    json["pins"] = s.pins.load();
    json["kept_reads"] = judge_->kept_reads();
    json["kept_skipped"] = judge_->kept_skipped();
    json["resizer_kills"] = c.resizer_kills;
    json["grown"] = s.grown.load();
    json["shrunk"] = s.shrunk.load();
    json["resizes_without_effect"] = s.resizes_void.load();
    json["full"] = s.full.load();
    json["stale"] = s.stale.load();
    json["unserved_calls"] = s.unserved.load();
    json["rejoins"] = s.rejoins.load();
    json["failed_calls"] = s.errors.load();
    json["faults"] = director_->faults();
    json["lease_ms"] = plan_.lease_ms;
    json["seed"] = plan_.seed;
    return json;
  }

  const Plan &plan_;
  int fd_ = -1;
  Shared *shared_ = nullptr;
  std::string address_;
  bool made_ = false;
  std::unique_ptr<Director> director_;
  std::unique_ptr<Judge> judge_;
  std::uint64_t rounds_ = 0;
};

constexpr const char *kHelp =
    "kvpool-torture: kills and stops the processes of a store at random, and proves what is "
    "left\n\n"
    "Use: kvpool-torture [OPTION...]\n\nOptions:\n"
    "  --seconds SECONDS  How long, checks included. Default: 60.\n"
    "  --round SECONDS    How long a round of faults is. Default: 8.\n"
    "  --faults WORDS     What is done and to whom, a list of: kill, stop, resize; member, rank,\n"
    "                     owner, standby. Of each half that is not named, everything. Default: "
    "all.\n"
    "  --lease MS         Lease of the store, 100 to 10,000 ms: a process that stands still for "
    "so\n"
    "                     long is given up. Stops last from a twentieth to five times of it.\n"
    "                     Default: 500.\n"
    "  --members N        Processes that read and write, 1 to 8. Default: 4.\n"
    "  --ranks N          Processes of the group that writes in shards, 0 or 2 to 4. Default: 2.\n"
    "  --servers N        Owner and standbys, 1 to 3. Default: 2.\n"
    "  --seed N           Seed of what is done. Default: 1.\n"
    "  --pool ADDRESS     New store to make, use and remove. Default: one in shared memory.\n"
    "  --json             Print one JSON object instead of text.\n"
    "  --help             Print this and exit.\n\n"
    "Exit code 0: nothing was read wrong, lost or leaked, and the store verifies. A take-over "
    "after\n"
    "a kill is counted from the kill, one after a stop from the stop: it includes the lease.\n";

bool parse_faults(const std::string &words, Plan &plan) {
  bool how = false, whom = false;
  Plan named = plan;
  named.kills = named.stops = named.resizes = false;
  named.hit_members = named.hit_ranks = named.hit_owner = named.hit_standby = false;
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find(',', at), words.size());
    const std::string word = words.substr(at, end - at);
    at = end + 1;
    bool *flag = word == "kill"      ? &named.kills
                 : word == "stop"    ? &named.stops
                 : word == "resize"  ? &named.resizes
                 : word == "member"  ? &named.hit_members
                 : word == "rank"    ? &named.hit_ranks
                 : word == "owner"   ? &named.hit_owner
                 : word == "standby" ? &named.hit_standby
                                     : nullptr;
    if (flag == nullptr) return false;
    *flag = true;
    (word == "kill" || word == "stop" || word == "resize" ? how : whom) = true;
  }
  if (how) {
    plan.kills = named.kills;
    plan.stops = named.stops;
    plan.resizes = named.resizes;
  }
  if (whom) {
    plan.hit_members = named.hit_members;
    plan.hit_ranks = named.hit_ranks;
    plan.hit_owner = named.hit_owner;
    plan.hit_standby = named.hit_standby;
  }
  return true;
}

bool parse_number(const std::string &text, std::uint64_t low, std::uint64_t high,
                  std::uint32_t &ret) {
  std::uint64_t number = 0;
  if (!tools::parse_count(text, number) || number < low || number > high) return false;
  ret = static_cast<std::uint32_t>(number);
  return true;
}

[[noreturn]] void unknown_option(const std::string &word) {
  fail(kExitUsage, word, "is unknown", "kvpool-torture --help names the options");
}

bool set_option(Plan &plan, const std::string &word, const std::string &value) {
  if (word == "--seconds") return tools::parse_real(value, plan.seconds) && plan.seconds > 0;
  if (word == "--round") {
    return tools::parse_real(value, plan.round_seconds) && plan.round_seconds > 0;
  }
  if (word == "--faults") return parse_faults(value, plan);
  if (word == "--lease") return parse_number(value, 100, 10'000, plan.lease_ms);
  if (word == "--members") return parse_number(value, 1, 8, plan.members);
  if (word == "--servers") return parse_number(value, 1, 3, plan.servers);
  if (word == "--ranks") {
    return parse_number(value, 0, kRanksMax, plan.ranks) && plan.ranks != 1;
  }
  if (word == "--seed") return tools::parse_count(value, plan.seed);
  if (word == "--pool") {
    plan.pool = value;
    return true;
  }
  unknown_option(word);
}

Plan plan_of(const std::vector<std::string> &words) {
  Plan plan;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      plan.json = true;
      continue;
    }
    if (std::string(kHelp).find("\n  " + words[i] + " ") == std::string::npos) {
      unknown_option(words[i]);
    }
    if (i + 1 >= words.size()) {
      fail(kExitUsage, words[i], "has no value", "kvpool-torture --help says which it takes");
    }
    const std::string &value = words[i + 1];
    if (!set_option(plan, words[i], value)) {
      fail(kExitUsage, words[i], "cannot be '" + value + "'",
           "kvpool-torture --help says which values it takes");
    }
    ++i;
  }
  return plan;
}

// Words of a child: ROLE ADDRESS NUMBER, and for those that use the store WORLD PLACE SEED FD.
int run_child(const std::vector<std::string> &words) {
  die_with_parent();
  const auto number = [&](std::size_t i) {
    return static_cast<std::uint32_t>(std::strtoul(words[i].c_str(), nullptr, 10));
  };
  if (words[0] == "server") return run_server(words[1], number(2));
  if (words[0] == "resizer") {
    return run_resizer(words[1], std::strtoull(words[3].c_str(), nullptr, 10),
                       *map_shared(static_cast<int>(number(4))));
  }
  Shared &shared = *map_shared(static_cast<int>(number(6)));
  const std::uint64_t seed = std::strtoull(words[5].c_str(), nullptr, 10);
  if (words[0] == "member") return run_member(words[1], number(2), seed, shared);
  return run_rank(words[1], number(2), number(3), number(4), seed, shared);
}

int run(const std::vector<std::string> &words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    tools::print_text(kHelp);
    return kExitFine;
  }
  const bool user = !words.empty() && (words[0] == "member" || words[0] == "rank");
  if ((user && words.size() == 7) || (words.size() == 3 && words[0] == "server") ||
      (words.size() == 5 && words[0] == "resizer")) {
    return run_child(words);
  }
  const Plan plan = plan_of(words);
  tools::stop_on_signals();
  return Torture(plan).run();
}

}  // namespace
}  // namespace kvpool::torture

int main(int argc, char **argv) {
  using namespace kvpool;
  try {
    return torture::run({argv + 1, argv + argc});
  } catch (const tools::Failure &failure) {
    tools::say_failure("torture", failure);
    return failure.code;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "kvpool-torture: %s\n", error.what());
  }
  return tools::kExitFailed;
}
