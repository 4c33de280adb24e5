// SPDX-License-Identifier: Apache-2.0
// Choice of instructions by CPUID, option and environment; the counters of threads that came and
// went.
#include "arch/x86_memory.hpp"

#include <cpuid.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "arch/x86_fault.hpp"

namespace kvpool {
namespace {

struct Cpu {
  bool avx2, avx512, movdir64b, clflushopt;
};

Cpu read_cpu() {
  __builtin_cpu_init();
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  Cpu cpu{};
  // The two vector sets also need the kernel to save their registers, which the builtin looks at.
  cpu.avx2 = __builtin_cpu_supports("avx2");
  cpu.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl");
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    cpu.clflushopt = (ebx & bit_CLFLUSHOPT) != 0;
    cpu.movdir64b = (ecx & bit_MOVDIR64B) != 0;
  }
  return cpu;
}

struct IsaName {
  Isa isa;
  const char *name;
};
constexpr IsaName kIsaNames[] = {{Isa::kMovdir64b, "movdir64b"},
                                 {Isa::kAvx512, "avx512"},
                                 {Isa::kAvx2, "avx2"},
                                 {Isa::kSse2, "sse2"}};

bool cpu_has(const Cpu &cpu, Isa isa) {
  switch (isa) {
    case Isa::kMovdir64b:
      return cpu.movdir64b;
    case Isa::kAvx512:
      return cpu.avx512;
    case Isa::kAvx2:
      return cpu.avx2;
    default:
      return true;
  }
}

std::string cpu_list(const Cpu &cpu) {
  std::string list;
  for (const IsaName &entry : kIsaNames) {
    if (cpu_has(cpu, entry.isa)) list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return list + (cpu.clflushopt ? "; clflushopt, clflush" : "; clflush");
}

int read_environment(X86Options &options, std::string &ret_error) {
  const char *isa = std::getenv("KVPOOL_ISA");
  if (isa != nullptr && *isa != '\0' && options.isa == Isa::kAuto) {
    const auto *entry =
        std::find_if(std::begin(kIsaNames), std::end(kIsaNames),
                     [isa](const IsaName &e) { return e.name == std::string_view(isa); });
    if (entry == std::end(kIsaNames)) {
      ret_error = "KVPOOL_ISA: '" + std::string(isa) + "' is none of movdir64b, avx512, avx2, sse2";
      return -EINVAL;
    }
    options.isa = entry->isa;
  }
  const char *flush = std::getenv("KVPOOL_FLUSH");
  if (flush != nullptr && *flush != '\0' && options.flush == FlushInsn::kAuto) {
    if (flush == std::string_view("clflushopt")) {
      options.flush = FlushInsn::kClflushopt;
    } else if (flush == std::string_view("clflush")) {
      options.flush = FlushInsn::kClflush;
    } else {
      ret_error = "KVPOOL_FLUSH: '" + std::string(flush) + "' is none of clflushopt, clflush";
      return -EINVAL;
    }
  }
  return 0;
}

}  // namespace

const char *isa_name(Isa isa) {
  for (const IsaName &entry : kIsaNames) {
    if (entry.isa == isa) return entry.name;
  }
  return "auto";
}

const char *flush_name(FlushInsn flush) {
  switch (flush) {
    case FlushInsn::kClflush:
      return "clflush";
    case FlushInsn::kClflushopt:
      return "clflushopt";
    default:
      return "auto";
  }
}

int choose_x86(const X86Options &options, X86Choice &ret_choice, std::string &ret_error) {
  static const Cpu cpu = read_cpu();
  X86Options wanted = options;
  if (const int err = read_environment(wanted, ret_error); err != 0) return err;
  if (!cpu_has(cpu, wanted.isa)) {
    ret_error = std::string("this CPU cannot execute ") + isa_name(wanted.isa) +
                ", asked for by option or KVPOOL_ISA; it has " + cpu_list(cpu);
    return -ENOTSUP;
  }
  if (wanted.flush == FlushInsn::kClflushopt && !cpu.clflushopt) {
    ret_error = "this CPU cannot execute clflushopt, asked for by option or KVPOOL_FLUSH; it has " +
                cpu_list(cpu);
    return -ENOTSUP;
  }
  const Isa best = cpu.avx512 ? Isa::kAvx512 : cpu.avx2 ? Isa::kAvx2 : Isa::kSse2;
  X86Choice choice;
  choice.isa = wanted.isa != Isa::kAuto ? wanted.isa : cpu.movdir64b ? Isa::kMovdir64b : best;
  choice.vector = choice.isa == Isa::kMovdir64b ? best : choice.isa;
  choice.flush = wanted.flush != FlushInsn::kAuto ? wanted.flush
                 : cpu.clflushopt                 ? FlushInsn::kClflushopt
                                                  : FlushInsn::kClflush;
  ret_choice = choice;
  return 0;
}

// ---- counters -----------------------------------------------------------------------------------

namespace x86 {

constinit thread_local ThreadCounters *tls_counters = nullptr;

namespace {

void add_to(Counters &sum, const Counters &c) {
  // Each word is written by its thread alone; an aligned word read beside it never tears.
  const auto read = [](const u64 &word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); };
  for (const auto counter : kCounters) sum.*counter += read(c.*counter);
}

// Without memory for its own, a thread counts here, beside others: inexact, but it goes on.
ThreadCounters overflow_counters;

// Every thread that counted. Never destroyed: a thread may end after the statics are gone.
struct Threads {
  std::mutex mutex;
  std::vector<ThreadCounters *> live;
  ThreadCounters ended;  // sums of threads that ended
  bool slot_used[kCounterSlots] = {};

  static Threads &get() {
    static auto *threads = new Threads;
    return *threads;
  }
  Counters sum(u32 slot) {
    Counters total;
    const std::lock_guard lock(mutex);
    add_to(total, ended.by_memory[slot]);
    add_to(total, overflow_counters.by_memory[slot]);
    for (const ThreadCounters *thread : live) add_to(total, thread->by_memory[slot]);
    return total;
  }
};

// Hands a thread's counts over when it ends.
struct ThreadEnd {
  ThreadCounters *mine = nullptr;
  ~ThreadEnd() {
    if (mine == nullptr) return;
    Threads &threads = Threads::get();
    const std::lock_guard lock(threads.mutex);
    std::erase(threads.live, mine);
    for (u32 i = 0; i < kCounterSlots; ++i) add_to(threads.ended.by_memory[i], mine->by_memory[i]);
    tls_counters = nullptr;
    delete mine;
  }
};
thread_local ThreadEnd thread_end;

}  // namespace

ThreadCounters *register_thread() noexcept {
  auto *mine = new (std::nothrow) ThreadCounters;
  if (mine == nullptr) return &overflow_counters;
  Threads &threads = Threads::get();
  const std::lock_guard lock(threads.mutex);
  threads.live.push_back(mine);
  thread_end.mine = mine;
  tls_counters = mine;
  return mine;
}

namespace {

u32 take_slot(Counters &ret_before) {
  Threads &threads = Threads::get();
  u32 slot = 0;
  {
    const std::lock_guard lock(threads.mutex);
    while (slot + 1 < kCounterSlots && threads.slot_used[slot]) ++slot;
    threads.slot_used[slot] = true;
  }
  ret_before = threads.sum(slot);
  return slot;
}

void give_slot(u32 slot) {
  Threads &threads = Threads::get();
  const std::lock_guard lock(threads.mutex);
  threads.slot_used[slot] = false;
}

const PayloadOps *ops_for(const X86Choice &choice) {
  const bool movdir = choice.isa == Isa::kMovdir64b;
  const bool flush_opt = choice.flush == FlushInsn::kClflushopt;
  switch (choice.vector) {
    case Isa::kAvx512:
      return &kAvx512Ops[movdir][flush_opt];
    case Isa::kAvx2:
      return &kAvx2Ops[movdir][flush_opt];
    default:
      return &kSse2Ops[movdir][flush_opt];
  }
}

}  // namespace
}  // namespace x86

// ---- memory -------------------------------------------------------------------------------------

X86Memory::X86Memory(std::span<const DeviceMapping> devices, const X86Options &options) {
  if (devices.size() > kMaxDevices) throw std::invalid_argument("more than 16 devices");
  std::string error;
  if (choose_x86(options, choice_, error) != 0) throw std::runtime_error(error);
  std::copy(devices.begin(), devices.end(), devices_);
  ops_ = x86::ops_for(choice_);
  x86::catch_faults();
  slot_ = x86::take_slot(before_);
}

X86Memory::~X86Memory() { x86::give_slot(slot_); }

bool X86Memory::poisoned() noexcept {
  ++counters().poison_hits;
  return false;
}

Counters X86Memory::total_counters() const noexcept {
  Counters total = x86::Threads::get().sum(slot_);
  for (const auto counter : kCounters) total.*counter -= before_.*counter;
  return total;
}

}  // namespace kvpool
