// SPDX-License-Identifier: Apache-2.0
// Memory, processes and time around the bare loops.
#include "bench/bare.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace kvpool::tools::bench {
namespace {

constexpr u64 kHugePage = u64{2} << 20;
constexpr u64 kLocalBytes = u64{8} << 20;
#ifndef MADV_COLLAPSE
constexpr int kMadvCollapse = 25;
#else
constexpr int kMadvCollapse = MADV_COLLAPSE;
#endif

[[noreturn]] void fail(const char *what) {
  throw std::system_error(errno, std::generic_category(), what);
}

X86Choice best_choice() {
  X86Choice choice;
  std::string error;
  if (choose_x86({}, choice, error) != 0) throw std::runtime_error(error);
  return choice;
}

}  // namespace

Arena::Arena(u64 bytes, bool huge) : bytes_((bytes + kHugePage - 1) & ~(kHugePage - 1)) {
  const int fd = memfd_create("kvpool-bench", MFD_CLOEXEC);
  if (fd < 0) fail("memfd_create");
  // Room for a start on a 2 MiB border; what is left over stays unmapped address space.
  void *room = mmap(nullptr, bytes_ + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void *at = MAP_FAILED;
  if (room != MAP_FAILED && ftruncate(fd, static_cast<off_t>(bytes_)) == 0) {
    const u64 start = (reinterpret_cast<u64>(room) + kHugePage - 1) & ~(kHugePage - 1);
    munmap(room, bytes_ + kHugePage);
    at = mmap(reinterpret_cast<void *>(start), bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (at == MAP_FAILED) {
    close(fd);
    fail("memory for the baseline");
  }
  base_ = static_cast<std::byte *>(at);
  (void)madvise(at, bytes_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  if (huge) collapse(fd);
  const int err = posix_fallocate(fd, 0, static_cast<off_t>(bytes_));
  close(fd);
  if (err != 0) {
    munmap(at, bytes_);
    errno = err;
    fail("memory for the baseline");
  }
  std::memset(at, 1, bytes_);
}

// Transparent huge pages for shared memory are often off; collapsing works all the same, at best
// where there is but one small page yet.
void Arena::collapse(int fd) {
  huge_ = true;
  for (u64 at = 0; at < bytes_ && huge_; at += kHugePage) {
    huge_ = posix_fallocate(fd, static_cast<off_t>(at), 4096) == 0 &&
            madvise(base_ + at, kHugePage, kMadvCollapse) == 0;
  }
}

Arena::~Arena() { munmap(base_, bytes_); }

u64 now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

namespace {

// The CPUs of the process, not of the thread: an earlier call may have narrowed that to one.
const cpu_set_t &all_cpus() {
  static const cpu_set_t all = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  return all;
}

}  // namespace

void pin_to_none() { sched_setaffinity(0, sizeof(cpu_set_t), &all_cpus()); }

bool pin_to(u32 n) {
  const cpu_set_t &all = all_cpus();
  const int count = CPU_COUNT(&all);
  if (count == 0) return false;
  int skip = static_cast<int>(n % static_cast<u32>(count));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || skip-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }
  return false;
}

BareLoops::BareLoops(u64 pool_bytes, bool huge)
    : choice_(best_choice()), pool_(pool_bytes, huge), local_(kLocalBytes, huge) {}

std::byte *BareLoops::next_block(u64 bytes) {
  if (position_ + bytes > pool_.bytes()) position_ = 0;
  std::byte *block = pool_.base() + position_;
  position_ += bytes;
  return block;
}

u64 BareLoops::random() {
  u64 z = random_state_ += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}

double BareLoops::write_gbps(u64 block_bytes, u64 times) {
  block_bytes = std::min(block_bytes, local_.bytes());
  const u64 start = now_ns();
  for (u64 i = 0; i < times; ++i) {
    bare::stream(choice_, next_block(block_bytes), local_.base(), block_bytes / kLineBytes);
  }
  return static_cast<double>(block_bytes * times) / static_cast<double>(now_ns() - start);
}

double BareLoops::read_gbps(u64 block_bytes, u64 times) {
  block_bytes = std::min(block_bytes, local_.bytes());
  const u64 start = now_ns();
  for (u64 i = 0; i < times; ++i) {
    bare::read_ahead(choice_, local_.base(), next_block(block_bytes), block_bytes / kLineBytes);
  }
  return static_cast<double>(block_bytes * times) / static_cast<double>(now_ns() - start);
}

double BareLoops::random_lines_per_second(u64 batch_lines, u64 batches, bare::Ahead how) {
  places_.resize(batch_lines * batches);
  for (u64 &place : places_) place = random() % (pool_.bytes() / kLineBytes);
  u64 sum = 0;
  const u64 start = now_ns();
  for (u64 i = 0; i < batches; ++i) {
    const std::span<const u64> batch(&places_[i * batch_lines], batch_lines);
    sum += bare::random_lines(choice_, pool_.base(), batch, how);
  }
  const u64 end = now_ns();
  random_state_ ^= sum & 1;  // keeps the loads
  return static_cast<double>(places_.size()) * 1e9 / static_cast<double>(end - start);
}

double BareLoops::random_groups_ns(u64 span, u64 batch_groups, u64 batches) {
  constexpr u64 kLines = 4;
  const u64 groups = std::min(span, pool_.bytes()) / (kLines * kLineBytes);
  places_.resize(batch_groups * kLines * batches);
  for (u64 i = 0; i < places_.size(); i += kLines) {
    const u64 group = random() % groups;
    for (u64 j = 0; j < kLines; ++j) places_[i + j] = group * kLines + j;
  }
  u64 sum = 0;
  const u64 start = now_ns();
  for (u64 i = 0; i < batches; ++i) {
    const std::span<const u64> batch(&places_[i * batch_groups * kLines], batch_groups * kLines);
    sum += bare::random_lines(choice_, pool_.base(), batch, bare::Ahead::kFar);
  }
  const u64 end = now_ns();
  random_state_ ^= sum & 1;
  return static_cast<double>(end - start) / static_cast<double>(batch_groups * batches);
}

double BareLoops::row_by_row_ns(u64 rows, u64 row_bytes) {
  places_.resize(rows);
  for (u64 &place : places_) place = random() % ((pool_.bytes() - row_bytes) / 16) * 16;
  rows = std::min(rows, local_.bytes() / row_bytes);
  const u64 start = now_ns();
  bare::row_by_row(choice_, local_.base(), pool_.base(), {places_.data(), rows}, row_bytes);
  return static_cast<double>(now_ns() - start) / static_cast<double>(rows);
}

double BareLoops::row_batch_ns(u64 rows, u64 row_bytes, u64 looks, u64 batches) {
  rows = std::min(rows, local_.bytes() / row_bytes);
  places_.resize(rows * batches);
  for (u64 &place : places_) place = random() % ((pool_.bytes() - row_bytes) / 16) * 16;
  std::vector<u64> lines(looks * batches);
  for (u64 &line : lines) line = random() % (pool_.bytes() / kLineBytes);
  u64 sum = 0;
  const u64 start = now_ns();
  for (u64 b = 0; b < batches; ++b) {
    bare::rows_batched(choice_, local_.base(), pool_.base(), {&places_[b * rows], rows}, row_bytes);
    sum += bare::random_lines(choice_, pool_.base(), {&lines[b * looks], looks},
                              bare::Ahead::kFar);
  }
  const u64 end = now_ns();
  random_state_ ^= sum & 1;
  return static_cast<double>(end - start) / static_cast<double>(rows * batches);
}

double BareLoops::acquire_ns(u64 lines, u64 times) {
  std::vector<u64> took(times);
  u64 sum = 0;
  for (u64 &ns : took) {
    const u64 start = now_ns();
    sum += bare::acquire_lines(choice_, pool_.base(), lines);
    ns = now_ns() - start;
  }
  random_state_ ^= sum & 1;
  std::nth_element(took.begin(), took.begin() + static_cast<long>(times / 2), took.end());
  return static_cast<double>(took[times / 2]);
}

double BareLoops::copy_forward_ns(u64 lines) {
  const u64 parts = std::max(1u, std::thread::hardware_concurrency());
  const u64 each = lines / parts / 4 * 4;
  std::byte *const to = pool_.base() + lines * kLineBytes;
  std::byte *const mirror = to + lines * kLineBytes;
  std::vector<std::thread> threads;
  const u64 start = now_ns();
  for (u64 p = 0; p < parts; ++p) {
    threads.emplace_back([this, p, each, to, mirror] {
      const u64 at = p * each * kLineBytes;
      bare::copy_forward(choice_, to + at, mirror + at / 2, pool_.base() + at, each);
    });
  }
  for (std::thread &thread : threads) thread.join();
  return static_cast<double>(now_ns() - start);
}

namespace {

constexpr u64 kPollsMax = 50'000'000;  // seconds

// A forked process on one CPU, this thread on another. It ends with this object, and with this
// process, unless it was done() by itself. What it returns is whether all went well.
class Child {
public:
  template <class F>
  explicit Child(F &&work) {
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      pin_to(0);
      _exit(work() ? 0 : 1);
    }
    pin_to(1);
  }
  ~Child() {
    if (pid_ < 0) return;
    if (!done_) kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
  }
  Child(const Child &) = delete;
  Child &operator=(const Child &) = delete;

  bool started() const { return pid_ >= 0; }
  void done() { done_ = true; }

private:
  pid_t pid_ = -1;
  bool done_ = false;
};

// A forked process on another CPU that answers numbered lines. With `decides` it also writes a line
// of its own and drains it strictly before each answer, as an owner does with what it decided.
class Partner {
public:
  Partner(bool huge, u64 rounds, bool decides)
      : choice_(best_choice()), arena_(kHugePage, huge), there_(arena_.base()),
        back_(arena_.base() + 4096), child_([&] { return answer(rounds, decides); }) {}

  // False: there is no other process, or it does not answer.
  bool round(u64 number) {
    if (!child_.started()) return false;
    bare::post(choice_, there_, number);
    return bare::await(choice_, back_, number, kPollsMax);
  }
  // All rounds were made: the process ends by itself.
  void done() { child_.done(); }

private:
  bool answer(u64 rounds, bool decides) {
    std::byte *const decisions = arena_.base() + 8192;
    for (u64 i = 1; i <= rounds; ++i) {
      if (!bare::await(choice_, there_, i, kPollsMax)) return false;
      if (decides) {
        std::byte *line = decisions + i % 4096 * kLineBytes;
        bare::post(choice_, line, i);
        (void)bare::acquire_lines(choice_, line, 1);
      }
      bare::post(choice_, back_, i);
    }
    return true;
  }

  const X86Choice choice_;
  const Arena arena_;
  std::byte *const there_, *const back_;
  Child child_;  // the last: it runs in what stands before
};

}  // namespace

double BareLoops::put_gbps(u64 block_bytes, u64 times) {
  block_bytes = std::min(block_bytes, local_.bytes());
  Partner partner(true, times + 1, true);
  if (!partner.round(1)) return 0;
  const u64 start = now_ns();
  for (u64 i = 0; i < times; ++i) {
    std::byte *block = next_block(block_bytes);
    bare::stream(choice_, block, local_.base(), block_bytes / kLineBytes);
    random_state_ ^= bare::acquire_lines(choice_, block + block_bytes - kLineBytes, 1) & 1;
    if (!partner.round(i + 2)) return 0;
  }
  const u64 took = now_ns() - start;
  partner.done();
  return static_cast<double>(block_bytes * times) / static_cast<double>(took);
}

namespace {

constexpr u64 kRingMask = 255;  // of rings between two processes

// Acquires in waves: as many lines as a wave may bring, but one while nothing comes.
u64 take(const X86Choice &choice, const std::byte *ring, u64 next, u64 most) {
  constexpr u64 kWave = 64;
  if (bare::arrived(choice, ring, kRingMask, next, 1) == 0) return 0;
  const u64 more = std::min(kWave, most) - 1;
  return 1 + (more > 0 ? bare::arrived(choice, ring, kRingMask, next + 1, more) : 0);
}

}  // namespace

double BareLoops::flood_mps(u64 messages, u64 depth, bool decides) {
  const Arena arena(kHugePage, true);
  std::byte *const there = arena.base();
  std::byte *const back = there + (kRingMask + 1) * kLineBytes;
  std::byte *const mirror = pool_.base() + pool_.bytes() / 2;
  const u64 lines = pool_.bytes() / 2 / kLineBytes;
  Child other([&] {
    for (u64 next = 0, idle = 0; next < messages && idle < kPollsMax; ++idle) {
      const u64 n = take(choice_, there, next, std::min(depth, messages - next));
      if (n == 0) continue;
      if (decides) {
        places_.resize(n);
        for (u64 &place : places_) place = random() % lines;
        bare::decide(choice_, pool_.base(), mirror, places_);
      }
      bare::post_many(choice_, back, kRingMask, next, n);
      next += n;
      idle = 0;
    }
    return true;
  });
  if (!other.started()) return 0;
  u64 posted = 0, answered = 0;
  const u64 start = now_ns();
  for (u64 idle = 0; answered < messages && idle < kPollsMax; ++idle) {
    const u64 room = std::min(depth - (posted - answered), messages - posted);
    if (room >= depth / 2 || (room > 0 && posted + room == messages)) {
      bare::post_many(choice_, there, kRingMask, posted, room);
      posted += room;
    }
    const u64 n = posted > answered ? take(choice_, back, answered, posted - answered) : 0;
    answered += n;
    if (n > 0) idle = 0;
  }
  const u64 took = now_ns() - start;
  if (answered < messages) return 0;
  other.done();
  return static_cast<double>(messages) * 1e3 / static_cast<double>(took);
}

std::vector<u64> ping_pong_ns(u64 rounds, bool huge) {
  Partner partner(huge, rounds, false);
  std::vector<u64> took;
  took.reserve(rounds);
  for (u64 i = 1; i <= rounds; ++i) {
    const u64 start = now_ns();
    if (!partner.round(i)) return {};
    took.push_back(now_ns() - start);
  }
  partner.done();
  std::sort(took.begin(), took.end());
  return took;
}

}  // namespace kvpool::tools::bench
