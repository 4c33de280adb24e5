// SPDX-License-Identifier: Apache-2.0
// One opened store of a process: memory, member, store, the thread that keeps the lease, and the
// serving loop. Owns all of them and their order of life.
//
// Threads: the keeper renews the lease and follows owners; serve() runs in a caller's thread or,
// for an embedded owner, in one of ours, always with a member of its own. `life_` is held shared by
// whatever writes blocks and alone while a lost incarnation is replaced, so that no write begun
// under one incarnation goes on under the next.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>

#include "store/async.hpp"
#include "store/events.hpp"
#include "store/instances.hpp"
#include "store/resize.hpp"
#include "store/tables.hpp"
#include "store/tickets.hpp"

namespace kvpool::store {

enum class LogLevel : u32 { kError = 1, kWarning = 2, kInfo = 3, kDebug = 4 };
using LogSink = std::function<void(LogLevel, const char *)>;

struct ContextOptions {
  bool read_only = false;
  bool huge = false;
  bool embedded_owner = false;
  bool move_control = false;  // serve from another device where that of the members' lines is lost
  u64 engine_id = 0;
  u32 rank = 0, world = 1;
  std::string name;
  u32 workers = 1;
  u64 bulk_bytes = 0;  // 0: BulkGate's own
  u64 deadline_ns = 0;
  LogSink log;
  LogLevel log_level = LogLevel::kWarning;
};

// Counts of one context, all threads together.
struct ContextCounters {
  std::atomic<u64> lookups{0}, keys_looked_up{0}, keys_hit{0};
  std::atomic<u64> gets{0}, get_hits{0}, get_stale{0}, get_corrupt{0}, get_bytes{0};
  std::atomic<u64> puts{0}, put_stored{0}, put_exists{0}, put_full{0}, put_bytes{0};
  std::atomic<u64> publishes{0}, pins{0}, removes{0}, doubts{0}, rejoins{0}, takeovers{0};
  static void add(std::atomic<u64> &counter, u64 n) {
    counter.fetch_add(n, std::memory_order_relaxed);
  }
};

// Hands out Scratch objects. The first one is made at open; more are made only when more threads
// than ever before are inside at once.
class ScratchPool {
public:
  explicit ScratchPool(u64 block_bytes_max) : block_bytes_max_(block_bytes_max) {
    free_.push_back(make());
  }

  class Lease {
  public:
    Lease(ScratchPool &pool, std::unique_ptr<Scratch> scratch)
        : pool_(pool), scratch_(std::move(scratch)) {}
    ~Lease() { pool_.put(std::move(scratch_)); }
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;
    Scratch &operator*() { return *scratch_; }
    Scratch *operator->() { return scratch_.get(); }

  private:
    ScratchPool &pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  // Throws std::bad_alloc.
  Lease take() {
    {
      std::unique_lock guard(mutex_);
      if (closed_) opened_.wait(guard, [this] { return !closed_; });
      ++out_;
      if (!free_.empty()) {
        auto scratch = std::move(free_.back());
        free_.pop_back();
        return Lease(*this, std::move(scratch));
      }
    }
    try {
      return Lease(*this, make());
    } catch (...) {
      put(nullptr);
      throw;
    }
  }

  // Runs `f` while nobody has one: whoever comes meanwhile waits, and those inside are waited for.
  template <class F>
  void alone(F f) {
    std::unique_lock guard(mutex_);
    closed_ = true;
    home_.wait(guard, [this] { return out_ == 0; });
    const auto open = [this] {
      closed_ = false;
      opened_.notify_all();
    };
    try {
      f();
    } catch (...) {
      open();
      throw;
    }
    open();
  }

private:
  std::unique_ptr<Scratch> make() {
    std::lock_guard guard(mutex_);
    free_.reserve(++made_);  // so that giving one back never allocates
    return std::make_unique<Scratch>(block_bytes_max_);
  }
  void put(std::unique_ptr<Scratch> scratch) {
    std::lock_guard guard(mutex_);
    if (scratch != nullptr) free_.push_back(std::move(scratch));
    if (--out_ == 0 && closed_) home_.notify_all();
  }

  const u64 block_bytes_max_;
  std::mutex mutex_;
  std::condition_variable home_, opened_;
  bool closed_ = false;
  u64 made_ = 0, out_ = 0;
  std::vector<std::unique_ptr<Scratch>> free_;
};

inline constexpr const char *kGoesOnElsewhere =
    ": a device was lost, and the store goes on from another one; open it again";
inline constexpr const char *kServeElsewhere =
    ": the device with the lines of all members is lost; open the store again to serve it from "
    "another one";

// Runs `f` at the end of the scope, whatever ends it.
template <class F>
class AtEnd {
public:
  explicit AtEnd(F f) : f_(std::move(f)) {}
  ~AtEnd() { f_(); }
  AtEnd(const AtEnd &) = delete;
  AtEnd &operator=(const AtEnd &) = delete;

private:
  F f_;
};

class Context {
public:
  using Member = pool::Member<ProcessEnv>;
  using Owner = pool::Owner<ProcessEnv>;

  // 0 or -errno with a sentence in *why (see kvpool_open).
  static int open(const char *address, const ContextOptions &options,
                  std::unique_ptr<Context> &ret_context, std::string *why);
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  // In a forked child: gives mappings and descriptors back, so that no lock outlives the parent.
  // The rest is left alone: threads that do not exist here may have been inside of it.
  static void abandon(std::unique_ptr<Context> context);

  // True in a process that this context was forked into.
  bool forked() const { return *alive_page_ == 0; }

  Member &member() { return *member_; }
  Store<ProcessEnv> &store() { return *store_; }
  ProcessEnv &env() { return *env_; }
  const media::Geometry &geometry() const { return geometry_; }
  ScratchPool &scratch() { return *scratch_; }
  Async &async() { return async_; }
  Reservations &reservations() { return reservations_; }
  Pins &pins() { return pins_; }
  ContextCounters &counters() { return counters_; }
  bool read_only() const { return options_.read_only; }
  TicketScope scope();
  const std::byte *address_of(PoolOffset at) const {
    return backend_->devices()[at.device()].base + at.byte();
  }
  std::shared_mutex &life() { return life_; }
  // A block whose bytes a caller reads by himself, and whether what he read since he asked for them
  // can be the pool's: the driver took no mapping away in between. After such a loss also false for
  // blocks that nobody mapped since.
  void note_mapped(u64 address, u64 version);
  bool mapped_all_along(u64 address, u64 version);
  void log(LogLevel level, const std::string &text);

  // Serves until `stop_serving`, until_ns (0: none), or the end of this store's life. An owner
  // whose heartbeat is still for `suspicion_ms` (0: default), at most a lease, is taken over from.
  // 0, -EBUSY, -EUSERS, -EROFS, -EIDRM, -errno of joining.
  int serve(u64 until_ns, u32 suspicion_ms, std::string *why);
  void stop_serving() noexcept { stop_serving_.store(true); }
  // Whether this context holds a standby slot now: it waits for its turn to serve, or serves.
  bool stands_by() const noexcept { return stands_by_.load(); }

  // Whether an owner serves: its slot is locked and its heartbeat moves. 1, 0, or -errno.
  int owner_state();
  // Waits for one.
  int wait_owner(u64 deadline);
  // The same for who may be cancelled: 0 when one serves, -ECANCELED, -EAGAIN, -errno.
  int await_owner(u64 deadline, const std::atomic<bool> &cancelled);

  // Marks records of look-ups, so that one of another store or life is not taken for ours.
  u16 life_tag() const { return life_tag_; }
  // Whether a block of so many bytes fits this store at all. 0, -EMSGSIZE.
  int check_room(u64 payload_bytes, std::string *why);

  // Which process owns the store and for how long it has not moved, where that is longer than one
  // that works may: a sentence. Empty otherwise.
  std::string owner_silence();
  // proto 14: the device where lines and rings stand is lost: nobody can ask, nor serve.
  bool first_device_lost();
  std::string first_device_text() const;
  u32 control_device() const { return geometry_.control_device(); }
  // What a failing call should say: turns the pool's errors into those of the API, with the reason.
  // `waited`: the call ran to its deadline.
  int explain(int err, std::string *why);

  // Numbers of the owner in this context, if it serves; false otherwise.
  struct OwnerNumbers {
    pool::OwnerStats stats{};
    u32 epoch = 0;
    u64 free_bytes = 0, free_run_bytes = 0, entries = 0;
  };
  bool owner_numbers(OwnerNumbers &ret);

  // Makes the pool larger or smaller while it is in use. -EINVAL, -ERANGE, -EFBIG, -E2BIG as
  // media::plan_resize; -ENOSPC and the like: the devices cannot grow; -EBUSY somebody else
  // resizes; -EAGAIN no owner; -ECANCELED given up, with the store as it was; -EOPNOTSUPP: a
  // device.
  int resize(const ResizeOptions &options, ResizeReport &ret_report, std::string *why);

  // A reader of what the owner decides. -EREMOTE: it serves on another host; -EAGAIN: nobody
  // serves.
  int open_events(u64 from, EventReader &ret_reader, std::string *why);
  // How many came; -EIDRM or -EIO when none will come any more, since this life of the store is
  // over.
  int next_events(EventReader &reader, u32 max, u64 deadline, Event *ret_events, std::string *why);

private:
  explicit Context(ContextOptions options) : options_(std::move(options)) {}
  int start(const char *address, std::string *why);
  int open_memory(const char *address, std::string *why);
  int settle_control(std::string *why);
  int move_control();
  bool first_device_gone();
  u64 patience_ns() const;
  int join(std::string *why);
  bool host_id_taken();
  void keep();
  void keep_once(bool &lost);
  void rejoin();
  void regain();
  void stand_aside(u64 until_ns);
  void log_plain(const char *text) noexcept;
  int serve_rounds(u64 until_ns, bool embedded);
  int serve_round(u32 slot, u64 until_ns);
  int enlarge_index(Owner &owner);
  int resize_now(Owner &owner);
  int move_area(Owner &owner);
  int renew_epoch(Owner &owner);
  int plan_resize(const ResizeOptions &options, media::RegionTable &ret_wanted,
                  ResizeReport &report, std::string *why);
  int ask_resize(const ResizeOptions &options, ResizeReport &report, std::string *why);
  void prepare(Owner &owner);
  void say_too_large();
  int serve_once(Owner &owner, u64 until_ns);
  static void on_decision(void *context, const pool::DecisionEvent &decision);
  int take_standby(u32 but, u32 &ret_slot);
  bool owner_gone(u32 my_slot);
  // What was last seen of somebody's heartbeat.
  struct Watch {
    u64 incarnation = 0, counter = 0, since_ns = 0;
  };
  u64 lease_ns() const { return u64{geometry_.lease_ms} * 1'000'000; }
  std::string truncated_device();
  int explain_revoked(std::string *why);
  int explain_gone(const pool::ClaimView &view, std::string *why);
  bool read_member(u32 slot, media::MemberLine &ret_line, u8 control);
  bool link_works();
  bool heartbeat_moves(Watch &watch, u32 member_slot, u64 incarnation, u64 patience_ns,
                       u8 control);
  bool slot_free(u32 standby_slot, u32 member_slot);
  bool owner_moves(const pool::ClaimView &view, u64 patience_ns);
  bool candidate_moves(const pool::ClaimView &view, u32 my_slot);
  bool serving_over(u64 until_ns) const;
  bool turn_over(u64 until_ns) const { return serving_over(until_ns) || env_->revoked(); }
  void publish_owner_numbers(const Owner &owner);

  ContextOptions options_;
  std::string address_;
  // A word that the kernel zeroes in forked children (MADV_WIPEONFORK).
  const u64 *alive_page_ = nullptr;
  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<ProcessEnv> env_;
  media::Geometry geometry_{};
  std::unique_ptr<Member> member_;
  std::unique_ptr<Store<ProcessEnv>> store_;
  std::unique_ptr<ScratchPool> scratch_;
  Reservations reservations_;
  Pins pins_;
  ContextCounters counters_;
  Async async_;
  EventLog events_;
  std::shared_mutex life_;
  std::mutex log_mutex_;
  u64 host_stamp_ = 0;
  u16 life_tag_ = 0;

  std::thread keeper_;
  std::mutex keeper_mutex_;
  std::condition_variable keeper_wake_;
  bool closing_ = false;
  std::atomic<bool> gone_{false};
  std::atomic<u64> other_life_{0};  // the nonce of what replaced it
  bool unreadable_said_ = false;    // by the keeper
  u64 owner_looked_ns_ = 0;         // by the keeper
  std::atomic<bool> host_id_lost_{false};  // another host uses this one's id: gone for good

  std::thread server_;
  std::atomic<bool> serving_{false};
  std::atomic<bool> stands_by_{false};     // it holds a standby slot, as owner too
  std::atomic<bool> stop_serving_{false};
  std::mutex mapped_mutex_;
  std::atomic<bool> regained_{false};
  std::set<std::pair<u64, u64>> mapped_;  // since the memory came back, once it had been away
  std::atomic<bool> aside_{false};  // the serving thread waits until the memory is back
  std::mutex numbers_mutex_;
  bool numbers_valid_ = false;
  OwnerNumbers numbers_;

  std::mutex watch_mutex_;
  Watch owner_watch_, candidate_watch_;
  std::atomic<u64> suspicion_ns_{0};
  u64 first_lost_ns_ = 0;  // since when, to the serving thread; 0: it is not
};

inline constexpr u64 kDefaultWaitNs = 5'000'000'000;
inline u64 deadline_of(u64 deadline_ns) {
  return deadline_ns == 0 ? monotonic_ns() + kDefaultWaitNs : deadline_ns;
}

}  // namespace kvpool::store
