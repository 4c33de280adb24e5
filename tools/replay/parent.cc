// SPDX-License-Identifier: Apache-2.0
// The parent of a replay: store, owner and members, and the sum of what they did. Everything it
// made is gone when it returns, also after a signal.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <unordered_set>

#include <fmt/format.h>

#include "client.hpp"
#include "replay/children.hpp"
#include "replay/corrupt.hpp"
#include "replay/replay.hpp"
#include "replay/scratch.hpp"

namespace kvpool::tools {

namespace {

constexpr std::uint64_t kStripe = 2u << 20;

std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

std::uint64_t working_set(const Workload &workload) {
  const std::unordered_set<std::uint64_t> distinct(workload.trace.ids.begin(),
                                                   workload.trace.ids.end());
  return distinct.size() * workload.block_bytes;
}

// Pool bytes that --capacity asks for.
std::uint64_t capacity_of(const Args &args, const Workload &workload) {
  const std::string text = args.text("--capacity", "1GiB");
  std::uint64_t bytes = 0;
  double share = 0;
  if (text == "unlimited") {
    bytes = working_set(workload) + working_set(workload) / 4;
  } else if (text.ends_with('%') &&
             parse_real(std::string_view(text).substr(0, text.size() - 1), share) && share > 0 &&
             share <= 1000) {
    bytes = static_cast<std::uint64_t>(static_cast<double>(working_set(workload)) * share / 100);
  } else if (!parse_bytes(text, bytes)) {
    fail(kExitUsage, "--capacity",
         fmt::format("'{}' is not a size, a share such as 10%, or unlimited", text));
  }
  if (bytes == 0)
    fail(kExitUsage, "--capacity", fmt::format("{}: a pool of 0 bytes is none", text));
  constexpr std::uint64_t kLeast = 32u << 20;
  if (bytes < kLeast && args.has("--capacity")) {
    warn(fmt::format("--capacity {}: the smallest pool of a replay is {}", text,
                     bytes_text(kLeast)));
  }
  return round_up(std::max(bytes, kLeast), kStripe);
}

class Control {
public:
  Control() : fd_(memfd_create("kvpool-replay", MFD_CLOEXEC)) {
    if (fd_ < 0 || ftruncate(fd_, 4096) != 0)
      fail(kExitFailed, "control page", std::strerror(errno));
    void *memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) fail(kExitFailed, "control page", std::strerror(errno));
    page_ = static_cast<ControlPage *>(memory);
  }
  ~Control() {
    munmap(page_, 4096);
    close(fd_);
  }
  Control(const Control &) = delete;
  Control &operator=(const Control &) = delete;
  ControlPage &page() { return *page_; }
  int fd() const { return fd_; }

private:
  int fd_;
  ControlPage *page_;
};

class Members {
public:
  Members(const Args &args, const Scratch &store, Control &control) : control_(control) {
    const std::uint64_t count = args.number("--members", 4);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::vector<std::string> words{"replay"};
      if (args.has("FILE")) words.push_back(args.text("FILE"));
      words.insert(words.end(), {"--pool", store.address_of_member(i), "--member",
                                 std::to_string(i), "--control-fd", std::to_string(control.fd())});
      for (const char *name : {"--block-bytes", "--verify", "--max-requests", "--repeat",
                               "--min-bytes", "--seed", "--requests"}) {
        if (args.has(name)) words.insert(words.end(), {name, args.text(name)});
      }
      if (args.has("--skip-bad")) words.push_back("--skip-bad");
      SpawnOptions options;
      options.capture_stdout = true;
      options.inherit = {control.fd()};
      one_.push_back({spawn_self(words, options), {}, {}, -1});
    }
    for (One &one : one_)
      one.reader = std::thread([&one] { one.said = read_to_end(one.child.out); });
  }
  ~Members() {
    control_.page().stop.store(1);
    for (One &one : one_) {
      if (one.code < 0) one.code = stop_child(one.child.pid, 20);
    }
    for (One &one : one_) {
      if (one.reader.joinable()) one.reader.join();
    }
  }
  Members(const Members &) = delete;
  Members &operator=(const Members &) = delete;

  // Whether any still runs.
  bool running() {
    bool any = false;
    for (One &one : one_) {
      if (one.code < 0) one.code = wait_child(one.child.pid, 0);
      any = any || one.code < 0;
    }
    return any;
  }
  bool failed() const {
    return std::any_of(one_.begin(), one_.end(), [](const One &one) { return one.code > 0; });
  }

  // After running() said no.
  MemberResult sum(std::uint64_t &ret_failed_members) {
    MemberResult total;
    for (One &one : one_) {
      one.reader.join();
      MemberResult result;
      const Json said = Json::parse(one.said, nullptr, false);
      if (one.code != 0 || said.is_discarded() || !from_json(said, result)) {
        ++ret_failed_members;
        continue;
      }
      total.add(result);
    }
    return total;
  }

private:
  struct One {
    Child child;
    std::thread reader;
    std::string said;
    int code;
  };
  Control &control_;
  std::vector<One> one_;
};

struct Outcome {
  std::string address;
  MemberResult total;
  std::uint64_t members = 0;
  std::uint64_t failed_members = 0;
  std::uint64_t evicted = 0;
  bool evicted_known = false;
  double seconds = 0;
  std::vector<std::string> corrupted;

  std::uint64_t bytes() const { return total.bytes_read + total.bytes_written; }
  double hit_rate() const {
    const double refs = static_cast<double>(total.blocks_hit + total.blocks_missed);
    return refs == 0 ? 0 : static_cast<double>(total.blocks_hit) / refs;
  }
};

double per_call(const OperationResult &op, double sum) {
  return op.sampled == 0 ? 0 : sum / static_cast<double>(op.sampled);
}

Json operation_report(const OperationResult &op) {
  return {{"calls", op.calls},
          {"blocks", op.blocks},
          {"p50_us", static_cast<double>(op.latency.quantile(0.5)) / 1e3},
          {"p99_us", static_cast<double>(op.latency.quantile(0.99)) / 1e3},
          {"p999_us", static_cast<double>(op.latency.quantile(0.999)) / 1e3},
          {"round_trips_per_call", per_call(op, op.round_trips)},
          {"data_waves_per_call", per_call(op, op.data_waves)},
          {"lines_flushed_per_call", per_call(op, op.lines_flushed)}};
}

Json outcome_json(const Outcome &outcome) {
  const MemberResult &total = outcome.total;
  Json json;
  json["requests"] = total.requests;
  json["blocks_put"] = total.blocks_put;
  json["blocks_hit"] = total.blocks_hit;
  json["blocks_hit_remote"] = total.blocks_hit_remote;
  json["blocks_missed"] = total.blocks_missed;
  json["blocks_evicted"] = outcome.evicted_known ? Json(outcome.evicted) : Json();
  json["hit_rate"] = outcome.hit_rate();
  json["bytes_moved"] = outcome.bytes();
  json["verify_failures"] = total.verify_failures;
  json["members"] = outcome.members;
  Json &details = json["details"];
  details["seconds"] = outcome.seconds;
  details["bytes_per_second"] =
      outcome.seconds > 0 ? static_cast<double>(outcome.bytes()) / outcome.seconds : 0;
  details["blocks_exists"] = total.blocks_exists;
  details["blocks_full"] = total.blocks_full;
  details["blocks_stale"] = total.blocks_stale;
  details["failed_members"] = outcome.failed_members;
  details["first_failure"] = total.first_failure;
  details["corrupted"] = outcome.corrupted;
  details["lookup"] = operation_report(total.lookup);
  details["get"] = operation_report(total.get);
  details["put"] = operation_report(total.put);
  return json;
}

std::string outcome_text(const Outcome &outcome, const Workload &workload) {
  const MemberResult &total = outcome.total;
  std::string text = fmt::format(
      "\n{} members and an owner replayed {} requests ({} trace, {} a block) in {:.1f} s\n{}\n\n",
      outcome.members, count_text(total.requests), dialect_name(workload.trace.dialect),
      bytes_text(workload.block_bytes), outcome.seconds, outcome.address);
  Table sums({"", ">"});
  sums.row({"requests", count_text(total.requests)});
  sums.row({"blocks put", count_text(total.blocks_put)});
  sums.row({"blocks hit", count_text(total.blocks_hit)});
  sums.row({"  written by another member", count_text(total.blocks_hit_remote)});
  sums.row({"blocks missed", count_text(total.blocks_missed)});
  sums.row({"blocks evicted", outcome.evicted_known ? count_text(outcome.evicted) : "not known"});
  sums.row({"hit rate", fmt::format("{:.1f} %", 100 * outcome.hit_rate())});
  sums.row({"moved", fmt::format("{:.2f} GB", static_cast<double>(outcome.bytes()) / 1e9)});
  sums.row({"rate", fmt::format("{:.2f} GB/s", static_cast<double>(outcome.bytes()) / 1e9 /
                                                   std::max(outcome.seconds, 1e-9))});
  sums.row({"verification failures", count_text(total.verify_failures)});
  text += sums.text() + "\n";
  Table calls({"call", ">calls", ">blocks", ">P50", ">P99", ">P999", ">round trips", ">data waves",
               ">lines flushed"});
  const auto row = [&](const char *name, const OperationResult &op) {
    calls.row({name, count_text(op.calls), count_text(op.blocks),
               duration_text(static_cast<double>(op.latency.quantile(0.5))),
               duration_text(static_cast<double>(op.latency.quantile(0.99))),
               duration_text(static_cast<double>(op.latency.quantile(0.999))),
               fmt::format("{:.1f}", per_call(op, op.round_trips)),
               fmt::format("{:.1f}", per_call(op, op.data_waves)),
               fmt::format("{:.0f}", per_call(op, op.lines_flushed))});
  };
  row("lookup", total.lookup);
  row("get", total.get);
  row("put", total.put);
  return text + calls.text();
}

// Waits for the members, shows progress, damages blocks when asked to.
void watch(const Args &args, const Workload &workload, const std::string &address, Control &control,
           Members &members, OwnerProcess *owner, std::vector<std::string> &ret_corrupted) {
  Progress progress("replay", args.text("--progress", "auto"));
  std::unique_ptr<Corruptor> corruptor;
  if (args.has("--corrupt")) corruptor = std::make_unique<Corruptor>(address, workload.trace);
  const std::uint64_t once = workload.trace.requests.size();
  // With --min-bytes nobody knows how many passes it will take.
  const std::uint64_t total = workload.min_bytes == 0 ? once * workload.passes : 0;
  std::uint64_t next_strike = 0;
  while (members.running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ControlPage &page = control.page();
    const std::uint64_t done = std::min(page.next.load(), once * workload.passes);
    progress.show(done, total, "requests");
    if (stop_requested() || members.failed()) page.stop.store(1);
    if (owner != nullptr && page.stop.load() == 0 && !owner->running()) {
      page.stop.store(1);
      warn("the owner ended before the replay did");
    }
    // Again from time to time until it was noticed: a damaged block may be evicted unread.
    const bool wanted = corruptor != nullptr && page.verify_failures.load() == 0;
    if (wanted && done > once / 50 && now_ns() >= next_strike) {
      const std::string key = corruptor->strike();
      if (!key.empty()) ret_corrupted.push_back(key);
      next_strike = now_ns() + (key.empty() ? 20'000'000 : 500'000'000);
    }
  }
}

// Room in the store for the owner and for whoever looks at it meanwhile.
constexpr std::uint32_t kMembersBeside = 8;

}  // namespace

void write_file(const std::string &path, const Json &json) {
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  if (!file) fail(kExitFailed, path, std::strerror(errno));
}

int run_parent(const Args &args, const Workload &workload) {
  stop_on_signals();
  ScratchOptions options;
  options.address = args.text("--pool");
  if (options.address.empty()) {
    options.where = args.text("--scratch", "mem:");
    options.bytes = capacity_of(args, workload);
    options.block_bytes = workload.block_bytes;
    options.members_spread = static_cast<std::uint32_t>(args.number("--members", 4));
    options.members = options.members_spread + kMembersBeside;
  }
  Scratch store(options);
  Control control;
  Outcome outcome;
  outcome.address = "store: " + store.address();
  outcome.members = args.number("--members", 4);
  {
    std::unique_ptr<OwnerProcess> owner;
    bool served = false;
    if (args.has("--pool")) {
      OpenAs as;
      as.name = "replay";
      as.flags = KVPOOL_OPEN_F_READ_ONLY;
      Context ctx = open_store(store.address(), as);
      served = kvpool_owner_wait(ctx.get(), deadline_in(0.5)) == 1;
    }
    if (!served) owner = std::make_unique<OwnerProcess>(store.address());
    const std::uint64_t start = now_ns();
    Members members(args, store, control);
    watch(args, workload, store.address(), control, members, owner.get(), outcome.corrupted);
    outcome.seconds = static_cast<double>(now_ns() - start) / 1e9;
    outcome.total = members.sum(outcome.failed_members);
    if (owner != nullptr) {
      const Json said = owner->stop();
      outcome.evicted_known = said.is_object() && said.contains("evictions");
      if (outcome.evicted_known) outcome.evicted = said["evictions"].get<std::uint64_t>();
    }
  }
  if (args.has("--json-file")) write_file(args.text("--json-file"), outcome_json(outcome));
  if (args.json()) {
    print_plain_json(outcome_json(outcome));
  } else {
    print_text(outcome_text(outcome, workload));
  }
  for (const std::string &key : outcome.corrupted) {
    std::fprintf(stderr, "kvpool replay: one byte of block %s was flipped on purpose\n",
                 key.c_str());
  }
  if (stop_requested())
    fail(kExitFailed, "replay", "interrupted; what stands above is what was done");
  if (outcome.total.verify_failures != 0) {
    fail(kExitFailed, "replay",
         fmt::format("{} verification failure(s); {}", outcome.total.verify_failures,
                     outcome.total.first_failure));
  }
  if (outcome.failed_members != 0) {
    fail(kExitFailed, "replay",
         fmt::format("{} of {} members failed", outcome.failed_members, outcome.members));
  }
  if (args.has("--corrupt"))
    fail(kExitFailed, "replay", "no corruption was noticed, though one was asked for");
  return kExitFine;
}

}  // namespace kvpool::tools
