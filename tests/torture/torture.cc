// SPDX-License-Identifier: Apache-2.0
// Shows: members killed at any moment never make a reader see wrong bytes, never leak space, and
// leave a store that verifies. How: an owner and several members as real processes over one pool.
// Members put, get, remove, pin, announce and write in shards on a few keys in a pool too small for
// them; the parent kills members with SIGKILL at random moments and starts them again. A payload is
// a function of its key and of a nonce, so a reader proves every byte itself, whatever the store's
// own checks say. At the end the owner gets its grace, then extents, entries and all payload are
// checked.
//
// Processes share one page of bookkeeping of this program: what was seen of each publication, so
// that two readers cannot see two contents of one version, nor anybody an older version after a
// newer one.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "client.hpp"
#include "media/verifier.hpp"
#include "payload.hpp"
#include "replay/children.hpp"
#include "say.hpp"
#include "store_view.hpp"

namespace kvpool::tools {
namespace {

constexpr std::uint32_t kKeys = 600;
constexpr std::uint32_t kSeenSlots = 1u << 20;
constexpr double kCallSeconds = 10;

// Counters that outlive a killed member, and what was seen of publications.
struct Shared {
  std::atomic<std::uint32_t> stop;
  std::atomic<std::uint64_t> reads, puts, removes, pins, sharded, full, stale;
  std::atomic<std::uint64_t> wrong_reads;
  std::atomic<std::uint64_t>
      corrupt_reads;                  // the store's own check said no: nothing here damages media
  std::atomic<std::uint64_t> errors;  // calls that failed in a way nothing here explains
  char first_wrong[512];
  std::atomic<std::uint32_t> first_wrong_taken;
  std::atomic<std::uint64_t> newest[kKeys];     // highest version that any reader saw
  std::atomic<std::uint64_t> seen[kSeenSlots];  // tag of (key, version) above, of its nonce below
};

struct Options {
  double seconds = 60;
  std::uint64_t seed = 1;
  std::uint32_t members = 4;
  bool json = false;
  std::string pool;  // empty: a new one
};

class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ull); }
  std::uint64_t below(std::uint64_t n) { return next() % n; }

private:
  std::uint64_t state_;
};

void note_wrong(Shared &shared, const std::string &what) {
  if (shared.first_wrong_taken.exchange(1) != 0) return;
  std::snprintf(shared.first_wrong, sizeof(shared.first_wrong), "%s", what.c_str());
}

// ---- a member
// ------------------------------------------------------------------------------------

class Member {
public:
  Member(const std::string &address, std::uint32_t number, std::uint64_t seed, Shared &shared)
      : shared_(shared), number_(number), random_(seed), buffer_(kBytesMax), copy_(kBytesMax) {
    OpenAs as;
    as.name = fmt::format("torture-{}", number);
    ctx_ = open_store(address, as);
    // Every second life reads without the store's checks: then the protocol alone must be right.
    kvpool_ns_opts opts = KVPOOL_OPTS(kvpool_ns_opts);
    opts.model = "torture";
    opts.dtype = "u8";
    opts.verify = random_.below(2) == 0 ? KVPOOL_VERIFY_OFF : KVPOOL_VERIFY_ALWAYS;
    opts.deadline_ns = deadline_in(kCallSeconds);
    kvpool_ns *ns = nullptr;
    checked(kvpool_ns_open(ctx_.get(), "torture", &opts, &ns), ctx_.get(), "namespace torture");
    ns_.reset(ns);
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      kvpool_key key = {};
      checked(kvpool_key_wrap(ns_.get(), &i, sizeof(i), &key), ctx_.get(), "key");
      keys_.push_back(key);
    }
  }

  // Until told to stop; false when the lease was lost, after which the process begins anew.
  bool run() {
    while (shared_.stop.load() == 0 && !stop_requested()) {
      // Half of all work on a few keys, so that members meet on them.
      const auto key = static_cast<std::uint32_t>(random_.below(2) == 0 ? random_.below(24)
                                                                        : random_.below(kKeys));
      const std::uint64_t dice = random_.below(100);
      int result = 0;
      if (dice < 60) {
        result = get(key);
        if (result == 0) result = put(key);
      } else if (dice < 70) {
        result = put(key);
      } else if (dice < 78) {
        result = put_sharded(key);
      } else if (dice < 84) {
        result = kvpool_remove(ns_.get(), &keys_[key], 1, deadline_in(kCallSeconds));
        if (result > 0) shared_.removes.fetch_add(1);
      } else if (dice < 92) {
        result = read_pinned(key);
      } else if (dice < 96) {
        result = kvpool_pending(ns_.get(), &keys_[key], 1, 50);
      } else {
        result = reserve_and_forget(key);
      }
      if (result == -ENOTCONN) return false;
      if (result < 0 && !expected(result)) {
        shared_.errors.fetch_add(1);
        note_wrong(shared_,
                   fmt::format("call {} on key {}: {} ({})", dice, key, std::strerror(-result),
                               kvpool_strerror_detail(ctx_.get())));
      }
    }
    return true;
  }

private:
  static constexpr std::size_t kBytesMax = 1u << 20;

  static bool expected(int result) {
    return result == -ENOSPC || result == -EAGAIN || result == -ETIMEDOUT ||
           result == -EINPROGRESS || result == -ENOENT || result == -ESTALE;
  }

  // A key's size is fixed, so that everybody knows how much to read.
  static std::size_t bytes_of(std::uint32_t key) {
    static constexpr std::size_t kSizes[] = {4096, 8128, 20480, 65536, 131072, 199936, kBytesMax};
    return kSizes[key % std::size(kSizes)];
  }

  void fill(std::uint32_t key, std::size_t bytes) {
    PayloadId id;
    std::memcpy(id.key, keys_[key].bytes, sizeof(id.key));
    id.nonce = random_.next() | 1;
    id.writer = number_;
    payload_fill(id, buffer_.data(), bytes);
  }

  int put(std::uint32_t key) {
    const std::size_t bytes = bytes_of(key);
    fill(key, bytes);
    const int result =
        kvpool_put(ns_.get(), &keys_[key], buffer_.data(), bytes, deadline_in(kCallSeconds));
    if (result == 1) shared_.puts.fetch_add(1);
    if (result == -ENOSPC) shared_.full.fetch_add(1);
    return result;
  }

  int get(std::uint32_t key) {
    const std::uint64_t newest = shared_.newest[key].load();
    kvpool_hit hit = {};
    const int found = kvpool_lookup(ns_.get(), &keys_[key], 1, KVPOOL_LOOKUP_F_ALL,
                                    deadline_in(kCallSeconds), &hit);
    if (found < 0) return found;
    if (hit.state != KVPOOL_STATE_HIT) return 0;
    if (hit.bytes < bytes_of(key))
      return wrong(key, fmt::format("the index says {} bytes", hit.bytes));
    kvpool_block block = {};
    block.key = keys_[key];
    block.hit = &hit;
    block.plan.buf = copy_.data();
    block.plan.bytes = bytes_of(key);
    std::int32_t status = 0;
    const int got = kvpool_get_blocks(ns_.get(), &block, 1, deadline_in(kCallSeconds), &status);
    if (got < 0) return got;
    if (status == KVPOOL_STATUS_CORRUPT) {
      shared_.corrupt_reads.fetch_add(1);
      note_wrong(shared_, fmt::format("key {}: the block does not match its checks", key));
      return 0;
    }
    if (status != KVPOOL_STATUS_OK) {
      shared_.stale.fetch_add(1);
      return 0;
    }
    // A block that moves is read in a later version than the one looked up. Versions only rise, so
    // if the same one stands there afterwards, the bytes are of that version.
    kvpool_hit after = {};
    const int again = kvpool_lookup(ns_.get(), &keys_[key], 1, KVPOOL_LOOKUP_F_ALL,
                                    deadline_in(kCallSeconds), &after);
    const bool still =
        again >= 0 && after.state == KVPOOL_STATE_HIT && after.version == hit.version;
    return judge(key, still ? hit.version : 0, newest, hit.version) ? 1 : 0;
  }

  bool judge(std::uint32_t key, std::uint64_t version, std::uint64_t newest,
             std::uint64_t looked_up) {
    shared_.reads.fetch_add(1);
    std::uint64_t words[4];
    std::memcpy(words, keys_[key].bytes, sizeof(words));
    const PayloadReport report = payload_verify(words, copy_.data(), bytes_of(key));
    if (report.verdict != PayloadVerdict::kGood) {
      wrong(key, fmt::format(
                     "{} at byte {}",
                     report.verdict == PayloadVerdict::kNoHeader ? "foreign bytes" : "wrong bytes",
                     report.first_bad));
      return false;
    }
    if (looked_up < newest) {
      wrong(key, fmt::format("version {:x} after {:x} was seen", looked_up, newest));
      return false;
    }
    if (version != 0 && !same_content(key, version, report.nonce)) {
      wrong(key, fmt::format("version {:x} has two contents", version));
      return false;
    }
    raise(shared_.newest[key], version);
    return true;
  }

  // Whether every reader so far saw the same publication under this version.
  bool same_content(std::uint32_t key, std::uint64_t version, std::uint64_t nonce) {
    const std::uint64_t where = mix64(version ^ (std::uint64_t{key} << 52));
    const std::uint64_t tag = (where | 1) << 32;
    const std::uint64_t mine = tag | static_cast<std::uint32_t>(mix64(nonce));
    std::uint64_t before = 0;
    std::atomic<std::uint64_t> &slot = shared_.seen[where >> 44];
    if (slot.compare_exchange_strong(before, mine)) return true;
    return (before & ~std::uint64_t{0xffffffff}) != tag || before == mine;
  }

  static void raise(std::atomic<std::uint64_t> &to, std::uint64_t value) {
    std::uint64_t now = to.load();
    while (now < value && !to.compare_exchange_weak(now, value)) {
    }
  }

  // Pinned bytes stay, so what is read through a pin is exactly the version that was pinned.
  int read_pinned(std::uint32_t key) {
    kvpool_ticket ticket = {};
    kvpool_pin_opts opts = KVPOOL_OPTS(kvpool_pin_opts);
    opts.ttl_ms = 200;
    opts.deadline_ns = deadline_in(kCallSeconds);
    const int pinned = kvpool_pin(ns_.get(), &keys_[key], 1, &opts, &ticket);
    if (pinned <= 0) return pinned;
    shared_.pins.fetch_add(1);
    kvpool_block block = {};
    block.ticket = &ticket;
    block.plan.buf = copy_.data();
    block.plan.bytes = bytes_of(key);
    std::int32_t status = 0;
    const int got = kvpool_get_blocks(ns_.get(), &block, 1, deadline_in(kCallSeconds), &status);
    const bool valid = kvpool_ticket_valid(ctx_.get(), &ticket, deadline_in(kCallSeconds)) == 1;
    int result = 0;
    if (got == 1 && valid) result = judge(key, 0, 0, 0) ? 1 : 0;
    kvpool_unpin(ctx_.get(), &ticket, 1);
    return got < 0 && got != -EKEYEXPIRED ? got : result;
  }

  int put_sharded(std::uint32_t key) {
    const std::size_t bytes = bytes_of(key);
    kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
    opts.shards = bytes >= 131072 ? 2 : 1;
    opts.block_bytes = bytes;
    opts.deadline_ns = deadline_in(kCallSeconds);
    kvpool_ticket ticket = {};
    int result = kvpool_reserve(ns_.get(), &keys_[key], nullptr, 1, &opts, &ticket);
    if (result < 0) return result;
    fill(key, bytes);
    kvpool_plan plan = {};
    plan.buf = buffer_.data();
    plan.bytes = bytes;
    for (std::uint32_t shard = 0; shard < opts.shards; ++shard) {
      result = kvpool_write(ctx_.get(), &ticket, shard, &plan, deadline_in(kCallSeconds));
      if (result >= 0) result = kvpool_shard_done(ctx_.get(), &ticket, shard);
      if (result < 0) {
        kvpool_abort(ns_.get(), &ticket, 1);
        return result;
      }
    }
    std::int32_t status = 0;
    result = kvpool_publish(ns_.get(), &ticket, 1, deadline_in(kCallSeconds), &status);
    if (result == 1) shared_.sharded.fetch_add(1);
    return result;
  }

  // A reservation that is given back, or left for the owner to reclaim when this process dies.
  int reserve_and_forget(std::uint32_t key) {
    kvpool_reserve_opts opts = KVPOOL_OPTS(kvpool_reserve_opts);
    opts.block_bytes = bytes_of(key);
    opts.deadline_ns = deadline_in(kCallSeconds);
    kvpool_ticket ticket = {};
    const int result = kvpool_reserve(ns_.get(), &keys_[key], nullptr, 1, &opts, &ticket);
    if (result < 0) return result;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(500)));
    return kvpool_abort(ns_.get(), &ticket, 1);
  }

  int wrong(std::uint32_t key, const std::string &what) {
    shared_.wrong_reads.fetch_add(1);
    note_wrong(shared_, fmt::format("key {}: {}", key, what));
    return 0;
  }

  Shared &shared_;
  std::uint32_t number_;
  Random random_;
  Context ctx_;
  Namespace ns_;
  std::vector<kvpool_key> keys_;
  std::vector<char> buffer_;
  std::vector<char> copy_;
};

int run_member(const std::string &address, std::uint32_t number, std::uint64_t seed,
               Shared &shared) {
  stop_on_signals();
  for (std::uint64_t life = 0;; ++life) {
    Member member(address, number, mix64(seed + life), shared);
    if (member.run()) return kExitFine;
  }
}

// ---- the owner
// -----------------------------------------------------------------------------------

std::atomic<kvpool_ctx *> g_owner{nullptr};

void stop_owner(int) {
  if (kvpool_ctx *ctx = g_owner.load(); ctx != nullptr) kvpool_serve_stop(ctx);
}

int run_owner(const std::string &address) {
  OpenAs as;
  as.name = "owner";
  Context ctx = open_store(address, as);
  g_owner.store(ctx.get());
  struct sigaction action = {};
  action.sa_handler = stop_owner;
  sigaction(SIGTERM, &action, nullptr);
  kvpool_serve_opts opts = KVPOOL_OPTS(kvpool_serve_opts);
  const int result = kvpool_serve(ctx.get(), &opts);
  g_owner.store(nullptr);
  checked(result, ctx.get(), address);
  return kExitFine;
}

// ---- the parent
// ----------------------------------------------------------------------------------

// What is held by nobody alive, or kept without need: nothing, once the owner had its time.
std::uint64_t leaked(StoreView &view, std::string &ret_what) {
  if (!view.refresh()) {
    ret_what = view.why();
    return 1;
  }
  const ExtentCounts extents = view.count_extents();
  const IndexCounts index = view.count_index();
  ret_what = fmt::format("{} extents of a former life, {} entries pending, {} draining, {} hidden",
                         extents.former, index.pending, index.draining, index.hidden);
  for (std::size_t slot = 0; slot < extents.by_member.size(); ++slot) {
    if (extents.by_member[slot] == 0) continue;
    ret_what += fmt::format(", {} extents held by slot {}", extents.by_member[slot], slot);
  }
  view.for_each_entry([&](const EntryView &at) {
    if (at.entry.entry_state() != media::EntryState::kPending) return true;
    ret_what += fmt::format("; first pending of slot {}", at.entry.check_hash & 0xffff);
    return false;
  });
  for (const MemberView &member : view.members()) {
    ret_what += fmt::format("; slot {} {}{}{}", member.slot, member.name,
                            member.joined ? " joined" : " left", member.alive ? "" : " lock free");
  }
  return extents.members + extents.former + index.pending + index.draining + index.hidden;
}

class Findings final : public media::FindingSink {
public:
  void found(const media::FindingAt &finding) override {
    list.push_back(fmt::format("{}: {}", media::finding_name(finding.finding), finding.detail));
  }
  Json list = Json::array();
};

class Torture {
public:
  explicit Torture(const Options &options) : options_(options), random_(options.seed) {
    fd_ = memfd_create("kvpool-torture", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, sizeof(Shared)) != 0)
      fail(kExitFailed, "shared page", std::strerror(errno));
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) fail(kExitFailed, "shared page", std::strerror(errno));
    shared_ = static_cast<Shared *>(memory);
    address_ =
        options.pool.empty() ? fmt::format("mem:torture-{}?size=48MiB", getpid()) : options.pool;
    kvpool_format_opts format = KVPOOL_OPTS(kvpool_format_opts);
    format.flags = KVPOOL_FORMAT_F_YES | KVPOOL_FORMAT_F_FORCE;
    format.block_bytes = 16384;
    format.hosts = 1;
    format.members_per_host = 16;
    format.lease_ms = 500;
    format.deadline_ns = deadline_in(60);
    checked(kvpool_format(address_.c_str(), &format), nullptr, address_);
    made_ = true;
  }
  ~Torture() {
    for (Child &child : members_) stop_child(child.pid, 5);
    stop_child(owner_.pid, 5);
    backend::Address where;
    if (made_ && backend::parse_address(address_.c_str(), where).ok())
      backend::Backend::remove(where, true);
  }

  int run() {
    owner_ = start({"owner", address_});
    for (std::uint32_t i = 0; i < options_.members; ++i) members_.push_back(start_member(i));
    const std::uint64_t end = deadline_in(options_.seconds);
    // About 1.2 kills a second over all members, at moments that no clock of theirs knows.
    while (now_ns() < end && !stop_requested()) {
      std::this_thread::sleep_for(std::chrono::microseconds(100'000 + random_.below(1'400'000)));
      if (wait_child(owner_.pid, 0) >= 0) {
        fault("the owner ended");
        owner_.pid = -1;
        break;
      }
      const auto victim = static_cast<std::uint32_t>(random_.below(members_.size()));
      kill_and_restart(victim);
      for (std::uint32_t i = 0; i < members_.size(); ++i) {
        const int code = wait_child(members_[i].pid, 0);
        if (code < 0) continue;
        fault(fmt::format("member {} ended by itself with code {}", i, code));
        members_[i] = start_member(i);
      }
    }
    finish();
    return report();
  }

private:
  Child start(std::vector<std::string> words) {
    SpawnOptions options;
    options.inherit = {fd_};
    return spawn_self(words, options);
  }
  Child start_member(std::uint32_t number) {
    return start({"member", address_, std::to_string(number), std::to_string(random_.next()),
                  std::to_string(fd_)});
  }

  void kill_and_restart(std::uint32_t victim) {
    kill(members_[victim].pid, SIGKILL);
    wait_child(members_[victim].pid, 10);
    ++kills_;
    if (random_.below(3) == 0) {  // a slot may stay empty for a while
      std::this_thread::sleep_for(std::chrono::milliseconds(random_.below(300)));
    }
    members_[victim] = start_member(victim);
  }

  void fault(std::string what) {
    ++faults_;
    if (first_fault_.empty()) first_fault_ = std::move(what);
  }

  void finish() {
    shared_->stop.store(1);
    for (std::uint32_t i = 0; i < members_.size(); ++i) {
      const int code = wait_child(members_[i].pid, 30);
      if (code < 0) fault(fmt::format("member {} does not stop", i));
      if (code > 0) fault(fmt::format("member {} failed with code {}", i, code));
      if (code >= 0) members_[i].pid = -1;
    }
    StoreView view(address_);
    const std::uint64_t patience = deadline_in(15);
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      leaked_ = leaked(view, leaked_what_);
    } while (leaked_ != 0 && now_ns() < patience);
    if (owner_.pid > 0 && stop_child(owner_.pid, 20) != 0) fault("the owner did not end well");
    owner_.pid = -1;
    media::VerifyOptions options;
    options.payload = true;
    media::VerifyReport verified;
    media::verify_store(view.reader(), options, findings_, verified);
  }

  int report() {
    const auto &s = *shared_;
    std::uint64_t passed = 0;
    std::uint64_t failed = 0;
    const auto judge = [&](bool good, const std::string &what) {
      ++(good ? passed : failed);
      if (!good) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
    };
    judge(s.wrong_reads.load() == 0 && s.corrupt_reads.load() == 0,
          fmt::format("{} wrong reads, {} refused by checks: {}", s.wrong_reads.load(),
                      s.corrupt_reads.load(), s.first_wrong));
    judge(s.errors.load() == 0, fmt::format("{} calls failed: {}", s.errors.load(), s.first_wrong));
    judge(leaked_ == 0, "leaked: " + leaked_what_);
    judge(findings_.list.empty(), "check: " + findings_.list.dump());
    judge(faults_ == 0, first_fault_);
    judge(s.reads.load() > 0 && s.puts.load() > 0, "nothing was read or put: this proved nothing");
    if (options_.json) {
      Json json;
      json["kills"] = kills_;
      json["wrong_reads"] = s.wrong_reads.load() + s.corrupt_reads.load();
      json["leaked_blocks"] = leaked_;
      json["check_findings"] = findings_.list;
      json["reads"] = s.reads.load();
      json["puts"] = s.puts.load();
      json["sharded_puts"] = s.sharded.load();
      json["removes"] = s.removes.load();
      json["pins"] = s.pins.load();
      json["full"] = s.full.load();
      json["stale"] = s.stale.load();
      json["failed_calls"] = s.errors.load();
      json["seed"] = options_.seed;
      print_plain_json(json);
    } else {
      print_text(fmt::format("{} kills, {} reads, {} puts, {} in shards, {} removes, {} pins\n",
                             kills_, s.reads.load(), s.puts.load(), s.sharded.load(),
                             s.removes.load(), s.pins.load()));
    }
    std::fprintf(options_.json ? stderr : stdout, "%lu passed, %lu failed\n", passed, failed);
    return failed == 0 ? kExitFine : kExitFailed;
  }

  const Options &options_;
  Random random_;
  int fd_ = -1;
  Shared *shared_ = nullptr;
  std::string address_;
  bool made_ = false;
  Child owner_;
  std::vector<Child> members_;
  std::uint64_t kills_ = 0;
  std::uint64_t faults_ = 0;
  std::string first_fault_;
  std::uint64_t leaked_ = 0;
  std::string leaked_what_;
  Findings findings_;
};

constexpr const char *kHelp =
    "kvpool-torture: kills members and owners of a store at random, and proves what is left\n\n"
    "Use: kvpool-torture [OPTION...]\n\nOptions:\n"
    "  --seconds SECONDS  How long. Default: 60.\n"
    "  --seed N           Seed of what is done. Default: 1.\n"
    "  --members N        Member processes, 1 to 12. Default: 4.\n"
    "  --pool ADDRESS     Store to use. Default: a new one in shared memory.\n"
    "  --json             Print one JSON object instead of text.\n"
    "  --help             Print this and exit.\n";

Options options_of(const std::vector<std::string> &words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string &word = words[i];
    if (word == "--json") {
      options.json = true;
      continue;
    }
    if (i + 1 >= words.size()) fail(kExitUsage, word, "is unknown or has no value");
    const std::string &value = words[++i];
    std::uint64_t number = 0;
    bool good = true;
    if (word == "--seconds") {
      good = parse_real(value, options.seconds) && options.seconds > 0;
    } else if (word == "--seed") {
      good = parse_count(value, options.seed);
    } else if (word == "--members") {
      good = parse_count(value, number) && number >= 1 && number <= 12;
      options.members = static_cast<std::uint32_t>(number);
    } else if (word == "--pool") {
      options.pool = value;
    } else {
      fail(kExitUsage, word, "is unknown",
           "--seconds N --seed N --members N --pool ADDRESS --json");
    }
    if (!good) fail(kExitUsage, word, "'" + value + "' makes no sense");
  }
  return options;
}

int run(const std::vector<std::string> &words) {
  if (!words.empty() && (words[0] == "--help" || words[0] == "-h")) {
    print_text(kHelp);
    return kExitFine;
  }
  if (!words.empty() && words[0] == "owner" && words.size() == 2) return run_owner(words[1]);
  if (!words.empty() && words[0] == "member" && words.size() == 5) {
    const int fd = std::atoi(words[4].c_str());
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) fail(kExitFailed, "shared page", std::strerror(errno));
    return run_member(words[1], static_cast<std::uint32_t>(std::atoi(words[2].c_str())),
                      std::strtoull(words[3].c_str(), nullptr, 10), *static_cast<Shared *>(memory));
  }
  const Options options = options_of(words);
  stop_on_signals();
  return Torture(options).run();
}

}  // namespace
}  // namespace kvpool::tools

int main(int argc, char **argv) {
  using namespace kvpool::tools;
  try {
    return run({argv + 1, argv + argc});
  } catch (const Failure &failure) {
    say_failure("torture", failure);
    return failure.code;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "kvpool-torture: %s\n", error.what());
  }
  return kExitFailed;
}
