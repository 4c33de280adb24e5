// SPDX-License-Identifier: Apache-2.0
#include "store/context.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "backend/host_id.hpp"
#include "media/superblock.hpp"
#include "store/quiet_threads.hpp"

namespace kvpool::store {

namespace {

constexpr u64 kMillisecond = 1'000'000;
constexpr u64 kSuspicionNs = 1000 * kMillisecond, kSuspicionMinNs = 4 * pool::kBeatNs;
constexpr u64 kLookEvery = 500 * kMillisecond;  // at the owner's heartbeat, by the keeper

int fail(std::string *why, int err, std::string text) {
  if (why != nullptr) *why = std::move(text);
  return err;
}

u64 first_word(const backend::Id128 &id) {
  u64 word;
  std::memcpy(&word, id.data(), sizeof word);
  return word;
}

// What an owner without requests sleeps before it looks again, by how long there was none. A member
// that stores large blocks asks every 50 us and a sleep costs about as much: for some milliseconds
// the owner looks again and again, and lets others run in between (ProcessEnv::sleep_ns below a
// microsecond); then it sleeps, the longer the longer nothing came. After two seconds without a
// request the next one may wait 2 ms: reads never ask, and a put that comes so seldom can wait.
u64 rest_ns(u64 idle) {
  constexpr u64 kSpin = 50'000, kAwake = 2 * kMillisecond;
  constexpr u64 kShortest = 5'000, kLongest = 2 * kMillisecond;
  if (idle < kSpin) return 0;
  return idle < kAwake ? 1 : std::clamp(idle / 1024, kShortest, kLongest);
}

}  // namespace

// ---- life ---------------------------------------------------------------------------------------

int Context::open(const char *address, const ContextOptions &options,
                  std::unique_ptr<Context> &ret_context, std::string *why) {
  std::unique_ptr<Context> context(new Context(options));
  if (int err = context->start(address, why)) return err;
  ret_context = std::move(context);
  return 0;
}

int Context::start(const char *address, std::string *why) {
  void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail(why, -ENOMEM, "no memory");
  *static_cast<u64 *>(page) = 1;
  alive_page_ = static_cast<const u64 *>(page);
  if (madvise(page, 4096, MADV_WIPEONFORK) != 0) {
    return fail(why, -ENOTSUP, "the kernel has no MADV_WIPEONFORK (Linux 4.14 or newer is needed)");
  }
  if (int err = open_memory(address, why)) return err;
  scratch_ = std::make_unique<ScratchPool>(
      std::min(kBlockBytesMax, std::max(geometry_.pool_bytes(),  // and what it may grow to
                                        geometry_.extents_max() * geometry_.extent_bytes())));
  if (int err = async_.start(options_.workers)) return fail(why, err, "no event descriptor");
  member_ = std::make_unique<Member>(*env_, geometry_);
  store_ = std::make_unique<Store<ProcessEnv>>(*member_);
  store_->bulk().set_limit(options_.bulk_bytes);
  host_stamp_ = first_word(backend::machine_id()) ^ first_word(backend::boot_nonce());
  if (int err = join(why)) return err;
  if (options_.read_only) return 0;
  {
    const QuietThreads quiet;
    keeper_ = std::thread([this] { keep(); });
    if (options_.embedded_owner) {
      server_ = std::thread([this] {
        try {
          serve(0, 0, nullptr);
        } catch (...) {  // most likely no memory: another process may take over
          log_plain("serving ended: out of memory, or an exception");
        }
      });
    }
  }
  if (options_.embedded_owner) {
    const int owner = wait_owner(deadline_of(options_.deadline_ns));
    if (owner == 0) return fail(why, -ETIMEDOUT, address_ + ": no owner serves in time");
    if (owner < 0) return explain(owner, why);
  }
  return 0;
}

int Context::open_memory(const char *text, std::string *why) {
  backend::Address address;
  if (auto s = backend::parse_address(text, address); !s.ok()) return fail(why, s.err, s.what);
  address_ = address.text;
  const auto mode =
      options_.read_only ? backend::OpenMode::kReadOnly : backend::OpenMode::kReadWrite;
  if (auto s = backend::Backend::open(address, mode, {}, backend_); !s.ok()) {
    return fail(why, s.err, s.what);
  }
  media::MappedReader::Device devices[media::kMaxDevices];
  u32 count = 0;
  for (const backend::DeviceSpan &d : backend_->devices()) {
    devices[count] = {d.base, d.lost ? 0 : d.bytes, d.name.c_str(), backend_->file_bytes(count)};
    ++count;
  }
  media::MappedReader reader(devices, count);
  media::SuperblockRead superblock;
  std::string said;
  if (int err = media::read_superblock(reader, superblock, &said)) {
    if (err == -EPROTONOSUPPORT) err = -ENOTSUP;
    if (err == -ENODATA) said += "; `kvpool format` makes one";
    return fail(why, err, address_ + ": " + said);
  }
  geometry_ = superblock.geometry;
  u64 rooms[media::kMaxDevices];
  for (u32 d = 0; d < geometry_.device_count; ++d) rooms[d] = geometry_.room_bytes(d);
  if (auto s = backend_->make_room({rooms, geometry_.device_count}, options_.huge); !s.ok()) {
    return fail(why, s.err, s.what);
  }
  if (!options_.read_only) {
    if (media::may_write(geometry_, &said) != 0) {
      return fail(why, -ENOTSUP, address_ + ": " + said);
    }
  }
  u64 uuid[2];
  std::memcpy(uuid, geometry_.uuid, sizeof uuid);
  u64 life = geometry_.nonce ^ uuid[0] ^ uuid[1];
  life ^= life >> 32;
  life_tag_ = static_cast<u16>(life ^ life >> 16);
  if (backend_->host_id() >= geometry_.host_count) {
    return fail(why, -ERANGE,
                address_ + ": host id " + std::to_string(backend_->host_id()) +
                    " is not below the store's " + std::to_string(geometry_.host_count) + " hosts");
  }
  env_ = std::make_unique<ProcessEnv>(*backend_);
  if (backend::is_device(address.scheme)) {
    const u32 first = backend_->host_id() * geometry_.members_per_host;
    env_->know_member_locks(first, first + geometry_.members_per_host);
  }
  return settle_control(why);
}

int Context::join(std::string *why) {
  if (options_.read_only) {
    const int err = member_->attach();
    if (err == -EFBIG) return explain(err, why);
    if (err == -ESTALE) return explain_gone(member_->claims().read(), why);
    return err == 0 ? 0 : fail(why, err, address_ + ": no active owner area");
  }
  if (host_id_taken()) {
    return fail(why, -EADDRINUSE,
                address_ + ": another machine uses host id " + std::to_string(backend_->host_id()) +
                    "; give this one another by host=N");
  }
  pool::MemberOptions how;
  how.host = backend_->host_id();
  how.group = options_.engine_id;
  how.rank = static_cast<u16>(options_.rank);
  how.world = static_cast<u16>(options_.world);
  how.pid = static_cast<u32>(getpid());
  how.name = options_.name;
  const backend::Id128 machine = backend::machine_id(), boot = backend::boot_nonce();
  std::memcpy(how.host_identity.machine_id, machine.data(), sizeof how.host_identity.machine_id);
  std::memcpy(how.host_identity.boot_id, boot.data(), sizeof how.host_identity.boot_id);
  int err = member_->join(how);
  for (const u64 until = monotonic_ns() + 2 * lease_ns();
       err == -EAGAIN && monotonic_ns() < until;) {
    env_->sleep_ns(20 * kMillisecond);  // somebody moves the lines (proto 14), or seemed to
    err = member_->join(how);
  }
  if (err == -EUSERS) {
    return fail(why, err,
                address_ + ": all " + std::to_string(geometry_.members_per_host) +
                    " member slots of host " + std::to_string(how.host) + " are taken");
  }
  if (err == -ESTALE) return explain_gone(member_->claims().read(), why);
  if (err == -EFBIG) return explain(err, why);
  if (err)
    return fail(why, err, address_ + ": no area of any owner can be read; try `kvpool check`");
  return 0;
}

// Whether a host of another boot keeps this host's line alive. One that only left it behind does
// not count, so a line of another boot is watched for some heartbeats.
bool Context::host_id_taken() {
  const PoolOffset at = geometry_.host_at(backend_->host_id());
  const backend::Id128 boot = backend::boot_nonce();
  constexpr u32 kLooks = 16;
  u64 first = 0;
  for (u32 look = 0; look < kLooks; ++look) {
    env_->memory().acquire(at, kLineBytes);
    Line raw;
    if (!env_->memory().load_line(at, raw)) return false;
    if (!member_->claims().sealer().intact(raw, at, 0)) return false;
    const auto line = media::from_line<media::HostLine>(raw);
    if (std::memcmp(line.boot_id, boot.data(), sizeof line.boot_id) == 0) return false;
    if (look > 0 && line.counter != first) return true;
    first = line.counter;
    env_->sleep_ns(u64{geometry_.lease_ms} * kMillisecond / 4 / kLooks);
  }
  return false;
}

Context::~Context() {
  async_.stop();
  stop_serving();
  if (server_.joinable()) server_.join();
  {
    std::lock_guard guard(keeper_mutex_);
    closing_ = true;
  }
  keeper_wake_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  if (member_) member_->leave();
  if (alive_page_ != nullptr) munmap(const_cast<u64 *>(alive_page_), 4096);
}

void Context::abandon(std::unique_ptr<Context> context) {
  context->backend_.reset();
  (void)context.release();
}

void Context::log(LogLevel level, const std::string &text) {
  if (!options_.log || level > options_.log_level) return;
  std::lock_guard guard(log_mutex_);
  options_.log(level, text.c_str());
}

TicketScope Context::scope() {
  TicketScope scope;
  std::memcpy(scope.uuid, geometry_.uuid, sizeof scope.uuid);
  scope.life_nonce = geometry_.nonce;
  scope.incarnation = member_->incarnation();
  scope.group = options_.engine_id != 0 ? options_.engine_id : scope.incarnation;
  scope.host_stamp = host_stamp_;
  return scope;
}

// ---- the keeper ---------------------------------------------------------------------------------

// Renews the lease often enough that one late wake-up costs nothing. An exception (no memory) may
// have left a request half made: this incarnation counts as lost.
void Context::keep() {
  bool lost = false;
  const u64 every = std::clamp<u64>(geometry_.lease_ms / 40, 10, 100);
  std::unique_lock lock(keeper_mutex_);
  while (
      !keeper_wake_.wait_for(lock, std::chrono::milliseconds(every), [this] { return closing_; })) {
    lock.unlock();
    try {
      if (!gone_.load()) keep_once(lost);
    } catch (...) {
      lost = true;
      log_plain("the lease's keeper ran out of memory, or met an exception: joining anew");
    }
    lock.lock();
  }
}

void Context::keep_once(bool &lost) {
  if (env_->revoked()) return regain();
  // So that a caller can be told how long an owner has stood still, not only that it does.
  // Who serves or stands by looks much more often by itself.
  const u64 now = monotonic_ns();
  if (!serving_.load() && now - owner_looked_ns_ >= kLookEvery) {
    owner_looked_ns_ = now;
    owner_state();
  }
  const int err = lost ? -ESTALE : member_->tick();
  if (err != 0 && env_->revoked()) return;  // what was met were zeros
  if (err == -ENOTUNIQ) {  // proto 6: fatal; a new incarnation would share its lines as well
    host_id_lost_.store(true);
    gone_.store(true);
    std::string said;
    explain(-ESTALE, &said);
    log(LogLevel::kError, said);
    return;
  }
  if (err == -ESTALE) rejoin();
  lost = false;
}

void Context::log_plain(const char *text) noexcept {
  try {
    if (!options_.log) return;
    std::lock_guard guard(log_mutex_);
    options_.log(LogLevel::kError, text);
  } catch (...) {  // nobody is left to tell
  }
}

// This incarnation is dead for ever. What it reserved and pinned went with it; a new one takes its
// slot once nobody writes under the old one any more.
void Context::rejoin() {
  std::unique_lock life(life_);
  const pool::ClaimView view = member_->claims().read();
  if (view.gone) {
    // What cannot be read may be there again: a link comes back, a former life does not.
    const bool unreadable = view.other_life == 0 && !view.moved;
    if (!unreadable) {
      other_life_.store(view.other_life);
      gone_.store(true);
    }
    if (unreadable && std::exchange(unreadable_said_, true)) return;
    std::string said;
    explain_gone(view, &said);
    log(LogLevel::kError, said);
    return;
  }
  unreadable_said_ = false;
  reservations_.clear();
  pins_.clear();
  if (const int err = member_->rejoin()) {
    if (err == -EAGAIN) return;  // for a lease at most: somebody moves the lines
    log(LogLevel::kWarning, address_ + ": lost its lease, and cannot join anew yet: " +
                                std::strerror(-err));
    return;
  }
  ContextCounters::add(counters_.rejoins, 1);
  log(LogLevel::kWarning,
      address_ + ": lost its lease and joined anew; reservations and pins are gone");
}

// ---- serving ------------------------------------------------------------------------------------

bool Context::serving_over(u64 until_ns) const {
  return stop_serving_.load() || host_id_lost_.load() || (gone_.load() && env_->revoked()) ||
         (until_ns != 0 && monotonic_ns() >= until_ns);
}

// Not one of `but`, a bit each.
int Context::take_standby(u32 but, u32 &ret_slot) {
  for (u32 slot = 0; slot < geometry_.standby_count; ++slot) {
    if (but >> slot & 1) continue;
    const u8 host = geometry_.standby_host[slot];
    if (host != 255 && host != backend_->host_id()) continue;
    if (!env_->try_lock(pool::LockKind::kStandby, slot)) continue;
    ret_slot = slot;
    return 0;
  }
  return -EUSERS;
}

int Context::serve(u64 until_ns, u32 suspicion_ms, std::string *why) {
  if (options_.read_only) return fail(why, -EROFS, address_ + ": opened read-only");
  // proto 7: a member that stood still for a lease is dead, so nobody is suspected later than that.
  const u64 suspicion = suspicion_ms == 0 ? std::min(kSuspicionNs, lease_ns())
                                          : suspicion_ms * kMillisecond;
  if (suspicion_ms != 0 && suspicion > std::max(kSuspicionMinNs, lease_ns())) {
    return fail(why, -EINVAL,
                address_ + ": a suspicion of " + std::to_string(suspicion_ms) +
                    " ms is longer than the store's lease of " +
                    std::to_string(geometry_.lease_ms) +
                    " ms, after which an owner is dead in any case");
  }
  if (suspicion < kSuspicionMinNs && suspicion_ms != 0) {
    return fail(why, -EINVAL,
                address_ + ": a suspicion of " + std::to_string(suspicion_ms) +
                    " ms is shorter than " + std::to_string(kSuspicionMinNs / kMillisecond) +
                    " ms, in which a living owner may not show itself");
  }
  if (serving_.exchange(true)) return fail(why, -EBUSY, address_ + ": this context serves already");
  suspicion_ns_.store(std::min(std::max(suspicion, kSuspicionMinNs), lease_ns()));
  int result = 0;
  {
    const AtEnd over([this] {
      serving_.store(false);
      stop_serving_.store(false);
    });
    const bool embedded = why == nullptr;  // nobody to tell: keep trying
    result = serve_rounds(until_ns, embedded);
  }
  if (result == 0) return 0;
  log(LogLevel::kError, address_ + ": serving ended: " + std::strerror(-result));
  if (result == -EUSERS) {
    u32 slot = 0;
    const bool standby = take_standby(0, slot) == 0;
    if (standby) env_->unlock(pool::LockKind::kStandby, slot);
    return fail(why, result,
                address_ + (standby ? ": no member slot of host " +
                                          std::to_string(backend_->host_id()) + " is free"
                                    : ": no standby slot is free for this host; the store has " +
                                          std::to_string(geometry_.standby_count)));
  }
  return explain(result, why);
}

// Stands by and serves, again and again, until the end.
int Context::serve_rounds(u64 until_ns, bool embedded) {
  int result = 0;
  u32 unfit = 0;     // slots whose areas lie where nothing can be read
  bool said = false, too_large_said = false;
  while (result == 0 && !serving_over(until_ns)) {
    if (env_->revoked()) {
      stand_aside(until_ns);
      continue;
    }
    u32 slot = 0;
    if (take_standby(unfit, slot) != 0) {
      if (unfit != 0) {  // all of them: until the device is back
        unfit = 0;
        env_->sleep_ns(200 * kMillisecond);
        continue;
      }
      if (!embedded) {
        result = -EUSERS;
        break;
      }
      env_->sleep_ns(200 * kMillisecond);
      continue;
    }
    result = serve_round(slot, until_ns);
    if (env_->revoked()) {  // it met zeros, if anything
      result = 0;
      continue;
    }
    if (result == -EAGAIN || result == -ESTALE) {  // a rival is ahead, or the store is another one
      // Who may come back, as with a link that does, goes on where nobody else would begin again.
      const pool::ClaimView view = member_->claims().read();
      const bool over = view.gone && (view.other_life != 0 || !embedded);
      result = view.moved ? -ENODEV : over ? -EIDRM : 0;
      env_->sleep_ns(view.gone ? 200 * kMillisecond : env_->random() % (20 * kMillisecond));
    } else if (result == -EFBIG) {
      result = 0;
      if (!std::exchange(too_large_said, true)) say_too_large();
      env_->sleep_ns(200 * kMillisecond);  // its standby slot is free for somebody else
    }
    if (result == -EIO) {  // proto 14: a device is lost; the areas of another slot lie elsewhere
      unfit |= 1u << slot;
      if (!std::exchange(said, true)) {
        std::string text;
        explain(result, &text);
        log(LogLevel::kError, text);
      }
      result = 0;
    }
  }
  return result == 0 && (host_id_lost_.load() || (gone_.load() && env_->revoked())) ? -ESTALE
                                                                                    : result;
}

// The pool grew while this process stood by.
void Context::say_too_large() {
  log(LogLevel::kWarning,
      address_ + ": cannot take over: the pool has grown to more bytes than this process can map; "
                 "it stands by in case the pool shrinks, and where no other standby is running, "
                 "open it again or start `kvpool serve` anew");
}

// The mirror's memory, while there is time. Without it the take-over asks again, and waits for it.
void Context::prepare(Owner &owner) {
  try {
    owner.prepare();
  } catch (const std::bad_alloc &) {
    log(LogLevel::kWarning, address_ + ": no memory yet to take over with");
  }
}

// One turn as the holder of a standby slot: waits until the owner is gone, takes over, serves. What
// ends it, an exception as well, gives back the slot and leaves.
int Context::serve_round(u32 slot, u64 until_ns) {
  stands_by_.store(true);
  const AtEnd free_slot([&] {
    stands_by_.store(false);
    env_->unlock(pool::LockKind::kStandby, slot);
  });
  Member member(*env_, geometry_);
  Owner owner(*env_, member, {.sink = {&Context::on_decision, this}});
  for (bool prepared = false; !turn_over(until_ns) && !owner_gone(slot); prepared = true) {
    if (first_device_gone()) return -ENODEV;
    if (member_->follow_owner() == -EFBIG) return -EFBIG;  // proto 7: who cannot map it stands back
    if (!prepared) prepare(owner);
    env_->sleep_ns(20 * kMillisecond);
  }
  if (turn_over(until_ns)) return 0;
  pool::MemberOptions how;
  how.host = backend_->host_id();
  how.pid = static_cast<u32>(getpid());
  how.standby_slot = static_cast<u8>(slot);
  how.name = "owner";
  if (int err = member.join(how)) return err;
  const AtEnd leave([&] { member.leave(); });
  const int err = owner.take_over(slot);
  return err == 0 ? serve_once(owner, until_ns) : err;
}

// In the serving thread: every decision becomes an event.
void Context::on_decision(void *context, const pool::DecisionEvent &decision) {
  Event event;
  switch (decision.what) {
    case pool::Decision::kStored: event.type = EventType::kStored; break;
    case pool::Decision::kEvicted: event.reason = EventReason::kEvicted; break;
    case pool::Decision::kRemoved: event.reason = EventReason::kRemoved; break;
    case pool::Decision::kCleared: event.reason = EventReason::kCleared; break;
    case pool::Decision::kDamaged: event.reason = EventReason::kDamaged; break;
    case pool::Decision::kLost: event.reason = EventReason::kLost; break;
  }
  if (event.reason != EventReason::kNone) event.type = EventType::kRemoved;
  if (decision.what == pool::Decision::kCleared) event.type = EventType::kCleared;
  event.ns = decision.ns;
  event.member = decision.member;
  event.version = decision.version;
  event.bytes = decision.payload_bytes;
  event.key = decision.key;
  static_cast<Context *>(context)->events_.write(event);
}

// Serves until the end, or until this owner is outbid (-ESTALE).
int Context::serve_once(Owner &owner, u64 until_ns) {
  ContextCounters::add(counters_.takeovers, 1);
  int result = -ENOMEM;  // what an exception leaves
  const AtEnd over([&] {
    prctl(PR_SET_TIMERSLACK, 0ul);
    owner.stop();
    events_.close();
    if (result != 0 && !member_->claims().read().gone) return;
    try {
      EventLog::remove(geometry_.uuid);
    } catch (const std::bad_alloc &) {  // its name stays; the next owner makes it anew
    }
  });
  if (const int err = events_.open(geometry_.uuid, owner.epoch())) {
    log(LogLevel::kWarning, std::string("no events: ") + std::strerror(-err));
  }
  log(LogLevel::kInfo, address_ + ": serving as owner, epoch " + std::to_string(owner.epoch()));
  prctl(PR_SET_TIMERSLACK, 1'000ul);  // short sleeps are meant; 0 would be the default of 50 us
  constexpr u64 kNumbersEvery = 10 * kMillisecond;
  u64 numbers_due = 0;
  int ended = 0;
  for (u64 steps = 0;; ++steps) {
    if (steps % 64 == 0) {
      const u64 now = monotonic_ns();
      if (turn_over(until_ns)) break;
      if (now >= numbers_due) {
        numbers_due = now + kNumbersEvery;
        publish_owner_numbers(owner);
      }
    }
    int served = owner.step();
    if (served >= 0 && owner.wants_larger_index()) {
      if (int err = enlarge_index(owner)) served = err;
    }
    if (served >= 0 && owner.wants_other_area()) {
      if (int err = move_area(owner)) served = err;
    }
    if (served >= 0 && owner.wants_resize()) {
      if (int err = resize_now(owner)) served = err;
    }
    if (served >= 0 && owner.wants_new_epoch()) {
      if (int err = renew_epoch(owner)) served = err;
    }
    if (served < 0) {
      ended = served;
      break;
    }
    if (served > 0) continue;
    if (const u64 rest = rest_ns(owner.idle_ns()); rest > 0) {
      env_->sleep_ns(rest);
      steps |= 63;  // slow steps look at the end each time
    }
  }
  publish_owner_numbers(owner);
  if (ended != 0) {  // what it did stays to be read; what it owned is another's by now
    std::lock_guard guard(numbers_mutex_);
    numbers_.free_bytes = numbers_.free_run_bytes = numbers_.entries = 0;
  }
  return result = ended;
}

// In the serving thread. 0, or why this owner is none any more.
int Context::enlarge_index(Owner &owner) {
  const u64 entries = owner.index().count();
  if (const int err = owner.enlarge_index()) return err;
  events_.carry_on(owner.epoch());
  log(LogLevel::kInfo, address_ + ": the index has room for " +
                           std::to_string(owner.index().count()) + " entries now, had " +
                           std::to_string(entries) + "; epoch " + std::to_string(owner.epoch()));
  return 0;
}

// In the serving thread. 0, or why this owner is none any more.
int Context::resize_now(Owner &owner) {
  const u64 before = owner.space().regions().payload_bytes();
  if (const int err = owner.resize_now()) return err;
  events_.carry_on(owner.epoch());
  const u64 bytes = owner.space().regions().payload_bytes();
  log(LogLevel::kInfo, address_ + ": the pool has " + backend::format_size(bytes) +
                           " for blocks now, had " + backend::format_size(before) + "; epoch " +
                           std::to_string(owner.epoch()));
  return 0;
}

// In the serving thread. 0, or why this owner is none any more.
int Context::move_area(Owner &owner) {
  if (const int err = owner.move_area()) return err;
  events_.carry_on(owner.epoch());
  log(LogLevel::kError, address_ + ": a device is lost; metadata moved to another one; epoch " +
                            std::to_string(owner.epoch()));
  return 0;
}

// In the serving thread. 0, or why this owner is none any more.
int Context::renew_epoch(Owner &owner) {
  if (const int err = owner.renew_epoch()) return err;
  events_.carry_on(owner.epoch());
  log(LogLevel::kInfo, address_ + ": versions of the epoch before are used up; epoch " +
                           std::to_string(owner.epoch()));
  return 0;
}

void Context::publish_owner_numbers(const Owner &owner) {
  std::lock_guard guard(numbers_mutex_);
  numbers_.stats = owner.stats();
  numbers_.epoch = owner.epoch();
  numbers_.free_bytes = owner.space().free_bytes();
  numbers_.free_run_bytes = owner.space().largest_free_run() * geometry_.extent_bytes();
  numbers_.entries = 0;
  const pool::IndexMirror &index = owner.index();
  for (u32 ns = 0; ns < index.lists(); ++ns) numbers_.entries += index.list_count(ns);
  numbers_valid_ = true;
}

bool Context::owner_numbers(OwnerNumbers &ret) {
  std::lock_guard guard(numbers_mutex_);
  if (!numbers_valid_) return false;
  ret = numbers_;
  return true;
}

// ---- who owns -----------------------------------------------------------------------------------

// A slot's line as the medium has it. False: it cannot be read.
bool Context::read_member(u32 slot, media::MemberLine &ret_line, u8 control) {
  media::Geometry where = geometry_;
  where.control = control;
  const PoolOffset at = where.member_at(slot);
  auto &memory = env_->memory();
  memory.acquire(at, kLineBytes);
  Line line;
  if (!memory.load_line(at, line)) return false;
  if (!member_->claims().sealer().intact(line, at, 0)) return false;
  ret_line = media::from_line<media::MemberLine>(line);
  return true;
}

// Whether what this process stores comes to the medium and can be read there: a host whose own link
// is gone sees everybody stand still. The member's own line is written, and read back.
bool Context::link_works() {
  media::MemberLine before{}, after{};
  const u32 slot = member_->slot();
  return read_member(slot, before, geometry_.control) && member_->renew() &&
         read_member(slot, after, geometry_.control) &&
         after.incarnation == member_->incarnation() && after.counter != before.counter;
}

// Whether a member's heartbeat moved within `patience_ns`, as far as this context has looked.
// Unknown counts as moving: a suspicion needs that long a silence.
bool Context::heartbeat_moves(Watch &watch, u32 slot, u64 incarnation, u64 patience_ns,
                              u8 control) {
  media::MemberLine line{};  // what cannot be read stands still
  const bool read = read_member(slot, line, control);
  const bool left = read && (line.incarnation != incarnation ||
                             line.state == static_cast<u8>(media::MemberState::kLeft));
  const u64 counter = line.counter;
  if (left) return false;
  const u64 now = monotonic_ns();
  std::lock_guard guard(watch_mutex_);
  if (watch.incarnation != incarnation || watch.counter != counter) {
    watch = {incarnation, counter, now};
  }
  return now - watch.since_ns <= patience_ns;
}

// Whether the process that held the standby slot is known to be gone: only one of this host can be.
bool Context::slot_free(u32 standby_slot, u32 member_slot) {
  const bool here = geometry_.host_of(member_slot) == backend_->host_id();
  backend::LockState lock{};
  return here && backend_->locks().query(backend::LockKind::kStandby, standby_slot, lock) == 0 &&
         lock == backend::LockState::kFree;
}

bool Context::owner_moves(const pool::ClaimView &view, u64 patience_ns) {
  if (view.active.active_incarnation == 0) return false;  // as formatted: nobody served yet
  const u32 slot = view.active.active_member;
  if (slot_free(view.active_slot, slot)) return false;
  return heartbeat_moves(owner_watch_, slot, view.active.active_incarnation, patience_ns,
                         geometry_.control);
}

int Context::owner_state() {
  const pool::ClaimView view = member_->claims().read();
  if (env_->revoked() && !gone_.load()) return 0;  // until the memory is back
  if (view.gone) return -EIDRM;
  if (view.highest_active == 0) return -EUCLEAN;
  return owner_moves(view, lease_ns()) ? 1 : 0;
}

// Who owns the store and for how long it has stood still, when that is longer than a living owner
// may: it hangs, was stopped, or its machine is gone. Empty: it moves, or is known to have ended.
std::string Context::owner_silence() {
  const pool::ClaimView view = member_->claims().read();
  if (view.gone || view.active.active_incarnation == 0) return {};
  const u32 slot = view.active.active_member;
  media::MemberLine line{};
  if (owner_moves(view, 2 * kSuspicionMinNs) || slot_free(view.active_slot, slot)) return {};
  if (!read_member(slot, line, view.active.active_control) ||
      line.incarnation != view.active.active_incarnation ||
      line.state == static_cast<u8>(media::MemberState::kLeft)) {
    return {};
  }
  std::unique_lock guard(watch_mutex_);
  const u64 since = monotonic_ns() - owner_watch_.since_ns;
  guard.unlock();
  const std::string pid = std::to_string(line.pid);
  return "the owner (pid " + pid + " on host " + std::to_string(geometry_.host_of(slot)) +
         ") has not answered for " + std::to_string(since / kMillisecond) +
         " ms: it hangs or was stopped; `kvpool serve " + address_ +
         "` takes over from it, or end it";
}

// Whether another standby has claimed and is on its way to be the owner: nobody outbids it while it
// lives.
bool Context::candidate_moves(const pool::ClaimView &view, u32 my_slot) {
  if (view.highest_claimed <= view.highest_active) return false;
  const u32 slot = media::epoch_slot(view.highest_claimed);
  if (slot == my_slot || slot >= geometry_.standby_count) return false;
  const media::ClaimLine &claim = view.line[slot];
  if (claim.claimed_member >= geometry_.member_count()) return false;
  return !slot_free(slot, claim.claimed_member) &&
         heartbeat_moves(candidate_watch_, claim.claimed_member, claim.claimed_incarnation,
                         lease_ns(), claim.claimed_control);
}

// Whether the holder of standby slot `my_slot` should claim now: the owner is gone, or its
// heartbeat stands still for the time of suspicion, and not because our own link is gone. That is
// no verdict on it: it may go on, and finds itself outbid.
bool Context::owner_gone(u32 my_slot) {
  const pool::ClaimView view = member_->claims().read();
  if (view.gone || view.highest_active == 0) return true;  // the take-over says what is wrong
  const bool candidate = candidate_moves(view, my_slot);
  // Of our own slot the last holder is dead: the lock is ours.
  const bool owner = view.active_slot != my_slot && owner_moves(view, suspicion_ns_.load());
  return !owner && !candidate && link_works();
}

int Context::wait_owner(u64 deadline) {
  for (;;) {
    const int state = owner_state();
    if (state != 0) return state;
    if (monotonic_ns() >= deadline) return 0;
    env_->sleep_ns(2 * kMillisecond);
  }
}

int Context::await_owner(u64 deadline, const std::atomic<bool> &cancelled) {
  for (;;) {
    if (cancelled.load(std::memory_order_relaxed)) return -ECANCELED;
    const int state = owner_state();
    if (state == 1) return 0;
    if (state < 0) return state == -EIDRM ? -ESTALE : state;
    if (monotonic_ns() >= deadline) return -EAGAIN;
    env_->sleep_ns(2 * kMillisecond);
  }
}

int Context::check_room(u64 payload_bytes, std::string *why) {
  u64 room = member_->session()->regions.payload_bytes();
  if (payload_bytes <= room) return 0;
  if (member_->follow_owner() == 0) room = member_->session()->regions.payload_bytes();
  if (payload_bytes <= room) return 0;  // it has grown since this member looked
  return fail(why, -EMSGSIZE,
              address_ + ": a block of " + std::to_string(payload_bytes) +
                  " bytes is larger than this store, which holds " + std::to_string(room));
}

int Context::open_events(u64 from, EventReader &ret_reader, std::string *why) {
  const int owner = owner_state();
  if (owner < 0) return explain(owner, why);
  if (owner == 0) return explain(-EAGAIN, why);
  const int err = ret_reader.open(geometry_.uuid, from);
  if (err == 0 && ret_reader.epoch() == member_->claims().read().highest_active) return 0;
  ret_reader.close();
  if (err != 0 && err != -ENOENT) return explain(err, why);
  return fail(why, -EREMOTE,
              address_ + ": the owner serves on another host, or has no room for events");
}

// Events come some milliseconds late at most: readers are routers and people, and cost the owner
// nothing.
int Context::next_events(EventReader &reader, u32 max, u64 deadline, Event *ret_events,
                         std::string *why) {
  constexpr u64 kLook = 200 * kMillisecond;
  u64 look_ns = 0;  // at once: a caller may never wait so long
  for (;;) {
    if (const u32 n = reader.take(max, ret_events)) return static_cast<int>(n);
    const u64 now = monotonic_ns();
    if (now >= look_ns) {
      look_ns = now + kLook;
      // Nothing comes from a ring that is no more: of a former life, or of an owner that ended.
      const pool::ClaimView view = member_->claims().read();
      if (view.gone && (!env_->revoked() || gone_.load())) return explain_gone(view, why);
      if (auto s = backend_->still_there(); !s.ok()) return fail(why, s.err, s.what);
      if (reader.follow(geometry_.uuid)) continue;
    }
    if (now >= deadline) return 0;
    env_->sleep_ns(std::min<u64>(2 * kMillisecond, deadline - now));
  }
}

// Which device has fewer bytes than the store's regions need; empty: none, as far as can be read.
std::string Context::truncated_device() {
  media::MappedReader::Device devices[media::kMaxDevices];
  u32 count = 0;
  for (const backend::DeviceSpan &d : backend_->devices()) {
    devices[count] = {d.base, d.bytes, d.name.c_str(), backend_->file_bytes(count)};
    if (devices[count].file_bytes < d.bytes) return d.name + ": truncated since it was opened";
    ++count;
  }
  media::MappedReader reader(devices, count);
  media::SuperblockRead superblock;
  media::StoreView view;
  std::string said;
  if (media::read_superblock(reader, superblock, &said) == 0) {
    media::read_view(reader, superblock, view, &said);
  }
  // What was not mapped because the file was too short is there when the file has become longer.
  bool grown = false;
  for (u32 d = 0; d < count; ++d) {
    grown = grown || devices[d].file_bytes >= devices[d].bytes + backend::kDeviceAlign;
  }
  return !grown && said.find("truncated") != std::string::npos ? said : std::string();
}

// Why this life of the store is over for this process: another one stands there, or nothing that
// can be read.
int Context::explain_gone(const pool::ClaimView &view, std::string *why) {
  if (env_->revoked()) return explain_revoked(why);
  if (view.moved) return fail(why, -EIDRM, address_ + kGoesOnElsewhere);
  const u64 other = view.other_life != 0 ? view.other_life : other_life_.load();
  if (other == 0) {
    return fail(why, -EIO,
                address_ +
                    ": its superblock cannot be read here any more: the link to its memory "
                    "or the device is lost, or something was written over it; `kvpool check` "
                    "says which");
  }
  char life[17];
  std::snprintf(life, sizeof life, "%016llx", static_cast<unsigned long long>(other));
  return fail(why, -EIDRM,
              address_ + ": the store was formatted anew (its life is " + life +
                  " now); open it again");
}

int Context::explain(int err, std::string *why) {
  if (err >= 0) return err;
  if (env_->revoked()) return explain_revoked(why);
  if (options_.read_only && err == -ESTALE && !member_->claims().read().gone) {
    return fail(why, -EROFS, address_ + ": opened read-only");
  }
  switch (err) {
    case -ESTALE:
      if (host_id_lost_.load()) {
        return fail(why, -EADDRINUSE,
                    address_ + ": another machine uses host id " +
                        std::to_string(backend_->host_id()) +
                        " as well; close this, and give one of them another by host=N");
      }
      if (const pool::ClaimView view = member_->claims().read(); gone_.load() || view.gone) {
        return explain_gone(view, why);
      }
      return fail(why, -ENOTCONN, address_ + ": this member lost its lease and is joining anew");
    case -EAGAIN:
    case -ETIMEDOUT:
      if (first_device_lost()) return fail(why, -EIO, address_ + ": " + first_device_text());
      if (const std::string silence = owner_silence(); !silence.empty()) {
        return fail(why, err, address_ + ": " + silence);
      }
      if (owner_state() == 0) {
        return fail(why, -EAGAIN, address_ + ": no owner serves this store; `kvpool serve " +
                                      address_ + "` starts one");
      }
      if (err == -EAGAIN) return fail(why, err, address_ + ": the owner is changing; try again");
      return fail(why, err, address_ + ": no answer before the deadline");
    case -EIDRM: return explain_gone(member_->claims().read(), why);
    case -ENODEV: return fail(why, err, address_ + kServeElsewhere);
    case -EIO:
      return fail(why, err,
                  address_ +
                      ": a device of this store cannot be read; `kvpool check` says "
                      "which, and blocks on the others go on");
    case -EUCLEAN:
      return fail(why, err, address_ + ": damaged metadata; `kvpool check` says where");
    case -EFBIG:
      if (const std::string cut = truncated_device(); !cut.empty()) {
        return fail(why, -EUCLEAN, address_ + ": " + cut);
      }
      return fail(why, err,
                  address_ + ": the pool has more bytes than this process can map; open it again");
    case -ENOSPC: return fail(why, err, address_ + ": full, and nothing may be evicted");
    case -EPERM: return fail(why, -ESHUTDOWN, "the namespace is bypassed");
    case -ENOMEM: return fail(why, err, "no memory");
    default: return fail(why, err, address_ + ": " + std::strerror(-err));
  }
}

}  // namespace kvpool::store
