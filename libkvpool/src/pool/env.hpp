// SPDX-License-Identifier: Apache-2.0
// What the protocol needs of the world around it, as a concept: memory, a clock, randomness, locks
// on slots, waiting. Production gives it a process (store/process_env.hpp), the simulator a fiber
// on a host whose caches lie (tests/sim). No other input reaches the code of this layer.
#pragma once

#include "arch/memory.hpp"
#include "pool/mutants.hpp"

namespace kvpool::pool {

// Locks that a process holds for as long as it lives; taken from the dead by whoever asks next.
enum class LockKind : u8 {
  kFormat,   // index 0: formatting
  kHost,     // one a host: its holder writes the host line
  kMember,   // one a member slot, held for the member's whole life
  kStandby,  // one a standby slot
};

template <class E>
concept PoolEnv = requires(E e, const E ce, LockKind kind, u32 index, u64 ns, const char *mark,
                           PoolOffset end, typename E::Mutex mutex) {
  requires PoolMemory<typename E::Memory>;
  { e.memory() } noexcept -> std::same_as<typename E::Memory &>;
  { e.now_ns() } noexcept -> std::same_as<u64>;  // monotonic, of this host, rate within 1 %
  { e.random() } noexcept -> std::same_as<u64>;
  { e.sleep_ns(ns) } noexcept -> std::same_as<void>;  // at least 0, about ns; lets others run
  { e.relax(index) } noexcept -> std::same_as<void>;  // between two polls, the index-th of a wait
  { e.try_lock(kind, index) } noexcept -> std::same_as<bool>;
  { e.unlock(kind, index) } noexcept -> std::same_as<void>;
  { e.revoked() } noexcept -> std::same_as<bool>;  // the driver took the mapping away
  // Makes the bytes below `end` of its device accessible; false: they are not there.
  { e.reach(end) } noexcept -> std::same_as<bool>;
  { ce.mutant(Mutant::kNone) } noexcept -> std::same_as<bool>;  // false in production, constant
  { e.mark(mark) } noexcept -> std::same_as<void>;  // a rare legal path was taken
  { mutex.lock() };
  { mutex.try_lock() } -> std::same_as<bool>;
  { mutex.unlock() };
};

}  // namespace kvpool::pool
