// SPDX-License-Identifier: Apache-2.0
// The measuring stick: what this machine does with the bare instructions and none of kvpool around
// them. `kvpool bench` prints every figure beside one of these loops, measured in the same run.
// Nothing in the library calls them; they stand here because only arch may hold such instructions.
//
// They use the instruction set of `choice` as the verbs do. Pointers are line addresses unless said
// otherwise. No statistics, no fault handling, no checks.
#pragma once

#include <span>

#include "arch/x86_memory.hpp"

namespace kvpool::bare {

inline constexpr u64 kReadWindowBytes = 64 * 1024;

// Streams lines past the caches, then a store fence.
void stream(const X86Choice &choice, std::byte *to, const std::byte *from, u64 lines);

// Reads lines flushed ahead: while a window is copied, the one behind it is flushed line by line,
// with one full fence a window.
void read_ahead(const X86Choice &choice, std::byte *to, const std::byte *from, u64 lines,
                u64 window_bytes = kReadWindowBytes);

// The same without overlap: flush a window, full fence, copy it.
void read_plain(const X86Choice &choice, std::byte *to, const std::byte *from, u64 lines,
                u64 window_bytes = kReadWindowBytes);

// Flushes the lines of a list as one batch between two full fences, then loads a word of each.
// `how`: all asked for at once, or some of them, to the far cache, all the time.
enum class Ahead { kAll, kFar };
u64 random_lines(const X86Choice &choice, const std::byte *base, std::span<const u64> lines,
                 Ahead how);

// One row after the other: full fence, flush its lines, full fence, copy. Offsets in bytes.
void row_by_row(const X86Choice &choice, std::byte *to, const std::byte *base,
                std::span<const u64> offsets, u64 row_bytes);

// The rows as one batch: fence, flush all their lines, fence, copy them all.
void rows_batched(const X86Choice &choice, std::byte *to, const std::byte *base,
                  std::span<const u64> offsets, u64 row_bytes);

// Copies the rows without any flush: what plain cached memory would do.
void rows_cached(const X86Choice &choice, std::byte *to, const std::byte *base,
                 std::span<const u64> offsets, u64 row_bytes);

// Ping-pong: one side posts a sealed line with a number, the other waits for that number; false
// after `polls_max` looks at it.
void post(const X86Choice &choice, std::byte *line, u64 number);
bool await(const X86Choice &choice, const std::byte *line, u64 number, u64 polls_max);

// A stream of messages: lines `first` to `first + n - 1` of a ring, numbered from 1 up, sealed, one
// store fence behind them. `mask` is the ring's lines less one.
void post_many(const X86Choice &choice, std::byte *ring, u64 mask, u64 first, u64 n);
// Acquires up to `most` lines from `next` on as one wave; how many of them are there in a row.
u64 arrived(const X86Choice &choice, const std::byte *ring, u64 mask, u64 next, u64 most);
// The memory accesses of a batch of decisions, none of the deciding: of each place a line of
// `mirror` is read and written, then a sealed line streamed to the same place of `table`. A full
// fence and one line acquired behind them: the strict drain. Places are line numbers.
void decide(const X86Choice &choice, std::byte *table, std::byte *mirror,
            std::span<const u64> places);

// Acquires lines in a row as one wave (fence, flush, fence), loads each and takes its CRC.
u32 acquire_lines(const X86Choice &choice, const std::byte *lines, u64 n);

// What a take-over does to `lines` lines of an index, four a group: acquires them (the next window
// is flushed while one is worked on), takes their CRC, seals them for another place and streams
// them there, and streams two lines of each group to local memory: what a mirror of it needs where
// every third line is in use.
void copy_forward(const X86Choice &choice, std::byte *to, std::byte *mirror, const std::byte *from,
                  u64 lines);

}  // namespace kvpool::bare
