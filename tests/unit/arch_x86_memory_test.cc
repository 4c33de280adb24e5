// SPDX-License-Identifier: Apache-2.0
// Shows: every verb does to memory what it says, with each instruction set this CPU has; counters
// are exact over threads; a fault is a result; a wrong choice of instructions is a clear error.
// How: a shared mapping as the pool, plain loads and memcmp as the judge, a truncated file for
// faults.
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "arch/x86_memory.hpp"

using namespace kvpool;

namespace {

constexpr u64 kPoolBytes = 1 << 20;

struct Pool {
  int fd = memfd_create("arch-test", 0);
  std::byte *base = nullptr;
  u64 bytes;

  explicit Pool(u64 size = kPoolBytes) : bytes(size) {
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, static_cast<off_t>(bytes)), 0);
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(p, MAP_FAILED);
    base = static_cast<std::byte *>(p);
  }
  ~Pool() {
    munmap(base, bytes);
    close(fd);
  }
};

std::vector<X86Options> supported_options() {
  std::vector<X86Options> list;
  for (const Isa isa : {Isa::kSse2, Isa::kAvx2, Isa::kAvx512, Isa::kMovdir64b}) {
    for (const FlushInsn flush : {FlushInsn::kClflush, FlushInsn::kClflushopt}) {
      X86Choice choice;
      std::string error;
      if (choose_x86({isa, flush}, choice, error) == 0) list.push_back({isa, flush});
    }
  }
  cr_assert_geq(list.size(), 1u);
  return list;
}

Line numbered_line(u64 seed) {
  Line line;
  for (u64 i = 0; i < 8; ++i) line.w[i] = (seed * 8 + i + 1) * 0x9E3779B97F4A7C15ull;
  return line;
}

}  // namespace

Test(arch_x86_memory, control_verbs_reach_the_place_they_name) {
  for (const X86Options &options : supported_options()) {
    Pool a, b;
    const DeviceMapping devices[] = {{a.base, a.bytes}, {b.base, b.bytes}};
    X86Memory mem(devices, options);
    for (u64 i = 0; i < 64; ++i) {
      const u32 device = i & 1;
      const PoolOffset off(device, i * 4096 + (i % 64) * kLineBytes);
      std::byte *place = (device == 0 ? a : b).base + off.byte();
      const Line line = numbered_line(i);
      mem.publish_line(off, line);
      mem.drain();
      cr_assert_eq(std::memcmp(place, &line, sizeof line), 0);
      Line back{};
      mem.acquire(off, sizeof back);
      cr_assert(mem.load_line(off, back));
      cr_assert(back == line);
      mem.publish_word(off + 24, i + 77);
      mem.ring_doorbell(off + 8, 0xABCD0000u + static_cast<u32>(i));
      mem.drain_strict(&off, 1);
      u64 word = 0;
      mem.begin_wave();
      mem.flush(off);
      mem.flush_claim(off);
      mem.end_wave();
      cr_assert(mem.load_word(off + 24, word));
      cr_assert_eq(word, i + 77);
      cr_assert(mem.load_word(off + 8, word));
      cr_assert_eq(word, (line.w[1] & ~u64{0xFFFFFFFF}) | (0xABCD0000u + i));
      cr_assert(mem.load_word(off + 56, word));
      cr_assert_eq(word, line.w[7]);
      mem.retire(off, kLineBytes);
    }
  }
}

Test(arch_x86_memory, counters_are_exact_over_threads_that_ended) {
  Pool pool;
  const DeviceMapping devices[] = {{pool.base, pool.bytes}};
  auto first = std::make_unique<X86Memory>(devices);
  X86Memory mem(devices);
  const auto work = [](X86Memory &m, u64 times) {
    const Line line = numbered_line(1);
    std::vector<std::byte> local(4 * kLineBytes);
    for (u64 i = 0; i < times; ++i) {
      m.acquire(PoolOffset(0, 64 + 32), 100);  // touches lines 1, 2 and 3
      m.begin_wave();
      m.flush(PoolOffset(0, 0));
      m.end_poll();
      m.publish_line(PoolOffset(0, 4096), line);
      m.publish_word(PoolOffset(0, 4096), 1);
      m.ring_doorbell(PoolOffset(0, 8192), 1);
      m.stream_lines(PoolOffset(0, 0), local.data(), 4, nullptr, 0);
      cr_assert(m.fetch_lines(local.data(), PoolOffset(0, 0), 3, kNoOffset, nullptr, 0));
      cr_assert(m.fetch_bytes(local.data(), PoolOffset(0, 60), 8));
      m.retire(PoolOffset(0, 0), 129);
      m.device_retire(PoolOffset(0, 32), 64 + 33);  // lines 0, 1 and 2
      m.device_acquire(PoolOffset(0, 64), 65);
      m.flush_lines(PoolOffset(0, 0), 5);
      m.fence();
      m.drain();
      const PoolOffset last(0, 64);
      m.drain_strict(&last, 1);
      ++m.counters().message_pairs;
    }
  };
  work(*first, 5);
  std::thread ended([&] { work(mem, 10); });
  ended.join();
  work(mem, 7);
  const Counters c = mem.total_counters();
  cr_assert_eq(c.lines_acquired, 17u * 4);
  cr_assert_eq(c.round_trips, 17u);
  cr_assert_eq(c.lines_published, 17u);
  cr_assert_eq(c.words_published, 17u);
  cr_assert_eq(c.doorbells, 17u);
  cr_assert_eq(c.polls, 17u);
  cr_assert_eq(c.lines_streamed, 17u * 4);
  cr_assert_eq(c.lines_fetched, 17u * (3 + 2));
  cr_assert_eq(c.lines_retired, 17u * 3);
  cr_assert_eq(c.retires, 17u);
  cr_assert_eq(c.lines_device_retired, 17u * 3);
  cr_assert_eq(c.device_retires, 17u);
  cr_assert_eq(c.lines_device_acquired, 17u * 2);
  cr_assert_eq(c.device_acquires, 17u);
  cr_assert_eq(c.lines_flushed, 17u * 5);
  cr_assert_eq(c.fences, 17u);
  cr_assert_eq(c.drains, 17u);
  cr_assert_eq(c.drains_strict, 17u);
  cr_assert_eq(c.message_pairs, 17u);
  cr_assert_eq(c.poison_hits, 0u);
  cr_assert_eq(mem.counters().round_trips, 7u, "this thread's own");
  // A memory that takes over the slot of one that is gone starts at zero.
  first.reset();
  X86Memory next(devices);
  cr_assert_eq(next.total_counters().round_trips, 0u);
  next.acquire(PoolOffset(0, 0), 64);
  cr_assert_eq(next.total_counters().round_trips, 1u);
}

// Guards: verbs for devices leave the bytes as the device wrote them, and end where a device of the
// pool is lost.
Test(arch_x86_memory, device_verbs_change_nothing_and_survive_a_lost_device) {
  for (const X86Options &options : supported_options()) {
    Pool pool;
    const DeviceMapping devices[] = {{pool.base, pool.bytes}};
    X86Memory mem(devices, options);
    const PoolOffset off(0, 4096 - 2 * kLineBytes);  // the last lines lie on the next page
    std::byte *place = pool.base + off.byte();
    std::memset(place, 0x5A, 5 * kLineBytes);  // as a port leaves it: in the cache
    mem.device_retire(off, 5 * kLineBytes);
    mem.device_acquire(off, 5 * kLineBytes);
    for (u64 i = 0; i < 5 * kLineBytes; ++i) cr_assert(place[i] == std::byte{0x5A}, "byte %lu", i);
    mem.device_retire(off, 0);
    cr_assert_eq(mem.total_counters().lines_device_retired, 5u);
    cr_assert_eq(mem.total_counters().lines_device_acquired, 5u);
    cr_assert_eq(mem.total_counters().poison_hits, 0u);
    cr_assert_eq(ftruncate(pool.fd, 4096), 0);
    mem.device_retire(off, 5 * kLineBytes);
    mem.device_acquire(off, 5 * kLineBytes);
    cr_assert_eq(mem.total_counters().poison_hits, 1u, "the read-back tells");
  }
}

// Guards: what is done to many lines at a time is what would be done to each.
Test(arch_x86_memory, verbs_over_many_lines_do_to_each_what_the_single_ones_do) {
  constexpr u64 kLines = 65;
  for (const X86Options &options : supported_options()) {
    Pool pool;
    const DeviceMapping devices[] = {{pool.base, pool.bytes}};
    X86Memory mem(devices, options);
    std::vector<Line> lines, back(kLines);
    for (u64 i = 0; i < kLines; ++i) lines.push_back(numbered_line(i));
    bool good[kLines] = {};
    const PoolOffset off(0, 4096 - 8 * kLineBytes);  // the last lines lie on the next page
    mem.publish_lines(off, lines.data(), kLines);
    mem.drain();
    cr_assert_eq(std::memcmp(pool.base + off.byte(), lines.data(), kLines * kLineBytes), 0);
    mem.acquire(off, kLines * kLineBytes);
    mem.prefetch_far_lines(off, kLines);
    mem.load_lines(off, kLines, back.data(), good);
    for (u64 i = 0; i < kLines; ++i) cr_assert(good[i] && back[i] == lines[i]);
    cr_assert_eq(mem.total_counters().lines_published, kLines);

    u32 seals[kLines];
    for (u64 i = 0; i < kLines; ++i) seals[i] = static_cast<u32>(0x9E3779B9u * (i + 1));
    mem.publish_sealed_lines(off, lines.data(), seals, kLines);
    mem.acquire(off, kLines * kLineBytes);
    mem.load_lines(off, kLines, back.data(), good);
    for (u64 i = 0; i < kLines; ++i) cr_assert(back[i] == with_seal(lines[i], seals[i]), "%lu", i);
    cr_assert_eq(mem.total_counters().lines_published, 2 * kLines);
    mem.publish_lines(off, lines.data(), kLines);

    cr_assert_eq(ftruncate(pool.fd, 4096), 0);
    back.assign(kLines, Line{});
    mem.load_lines(off, kLines, back.data(), good);
    for (u64 i = 0; i < kLines; ++i) {
      cr_assert_eq(good[i], i < 8, "line %lu", i);
      cr_assert(back[i] == (i < 8 ? lines[i] : Line{}), "an output is untouched on failure");
    }
    cr_assert_eq(mem.total_counters().poison_hits, kLines - 8);
    mem.publish_lines(off, lines.data(), kLines);
    cr_assert_eq(mem.total_counters().poison_hits, 2 * (kLines - 8));
    mem.publish_sealed_lines(off, lines.data(), seals, kLines);
    cr_assert_eq(mem.total_counters().poison_hits, 3 * (kLines - 8));
  }
}

Test(arch_x86_memory, a_fault_is_a_result) {
  for (const X86Options &options : supported_options()) {
    Pool pool;
    const DeviceMapping devices[] = {{pool.base, pool.bytes}};
    X86Memory mem(devices, options);
    cr_assert_eq(ftruncate(pool.fd, 4096), 0);
    const PoolOffset gone(0, 8192);
    std::vector<std::byte> local(128 * kLineBytes, std::byte{7});
    Line line = numbered_line(3);
    const Line before = line;
    u64 word = 5;
    mem.acquire(gone, 256);
    cr_assert_not(mem.load_line(gone, line));
    cr_assert(line == before, "an output is untouched on failure");
    cr_assert_not(mem.load_word(gone, word));
    cr_assert_eq(word, 5u);
    mem.flush_lines(gone, 4);
    cr_assert_not(mem.fetch_lines(local.data(), PoolOffset(0, 0), 128, gone, nullptr, 0));
    CheckLanes lanes{};
    cr_assert_not(mem.fetch_lines(local.data(), gone, 8, gone, &lanes, 0));
    for (u64 bytes : {1u, 8u, 64u, 100u}) cr_assert_not(mem.fetch_bytes(local.data(), gone, bytes));
    cr_assert_eq(mem.total_counters().poison_hits, 8u);
    mem.publish_line(gone, line);
    mem.publish_word(gone, 1);
    mem.ring_doorbell(gone, 1);
    mem.stream_lines(gone, local.data(), 4, nullptr, 0);
    mem.stream_lines(gone, local.data(), 4, &lanes, 0);
    cr_assert_eq(mem.total_counters().poison_hits, 13u);
    // What is still there works on.
    mem.publish_line(PoolOffset(0, 64), before);
    cr_assert(mem.load_line(PoolOffset(0, 64), line));
    cr_assert(line == before);
  }
}

// Guards: the compiler left a load out whose value nobody used, and then it never failed.
Test(arch_x86_memory, a_load_asks_even_if_nobody_uses_what_it_gives) {
  Pool pool;
  const DeviceMapping devices[] = {{pool.base, pool.bytes}};
  X86Memory mem(devices);
  cr_assert_eq(ftruncate(pool.fd, 4096), 0);
  u32 lost = 0;
  for (u32 i = 0; i < 4; ++i) {
    u64 word = 0;
    if (!mem.load_word(PoolOffset(0, 8192 + i * kLineBytes), word)) lost |= 1u << i;
  }
  cr_expect_eq(lost, 15u);
}

namespace {

void fault_elsewhere() {
  Pool pool;
  const DeviceMapping devices[] = {{pool.base, pool.bytes}};
  X86Memory mem(devices);
  cr_assert_eq(ftruncate(pool.fd, 4096), 0);
  *reinterpret_cast<unsigned char *>(pool.base + 8192) = 1;
}

}  // namespace

Test(arch_x86_memory, a_fault_elsewhere_still_ends_the_process, .signal = SIGBUS) {
  std::signal(SIGBUS, SIG_DFL);
  fault_elsewhere();
}

Test(arch_x86_memory, a_fault_elsewhere_goes_to_the_handler_that_stood_before, .exit_code = 7) {
  std::signal(SIGBUS, [](int) { _exit(7); });
  fault_elsewhere();
}

Test(arch_x86_memory, choice_follows_option_then_environment) {
  X86Choice choice;
  std::string error;
  cr_assert_eq(setenv("KVPOOL_ISA", "sse2", 1), 0);
  cr_assert_eq(setenv("KVPOOL_FLUSH", "clflush", 1), 0);
  cr_assert_eq(choose_x86({}, choice, error), 0);
  cr_assert(choice.isa == Isa::kSse2 && choice.vector == Isa::kSse2);
  cr_assert(choice.flush == FlushInsn::kClflush);
  cr_assert_eq(setenv("KVPOOL_FLUSH", "clwb", 1), 0);
  cr_assert_eq(choose_x86({}, choice, error), -EINVAL);
  cr_assert_neq(error.find("KVPOOL_FLUSH"), std::string::npos);
  cr_assert_eq(unsetenv("KVPOOL_FLUSH"), 0);
  cr_assert_eq(setenv("KVPOOL_ISA", "neon", 1), 0);
  cr_assert_eq(choose_x86({}, choice, error), -EINVAL);
  cr_assert_neq(error.find("neon"), std::string::npos);
  cr_assert_eq(choose_x86({Isa::kSse2, FlushInsn::kAuto}, choice, error), 0,
               "an option goes first");
  cr_assert_eq(unsetenv("KVPOOL_ISA"), 0);
  cr_assert_eq(choose_x86({}, choice, error), 0);
  cr_assert(choice.isa != Isa::kAuto && choice.vector != Isa::kAuto);
  const bool has_movdir64b = choice.isa == Isa::kMovdir64b;
  const int err = choose_x86({Isa::kMovdir64b, FlushInsn::kAuto}, choice, error);
  cr_assert_eq(err, has_movdir64b ? 0 : -ENOTSUP);
  if (err != 0) cr_assert_neq(error.find("cannot execute movdir64b"), std::string::npos);
}
