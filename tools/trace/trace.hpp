// SPDX-License-Identifier: Apache-2.0
// A workload as kvpool replays it: requests in order of time, each a chain of block ids. Read from
// a public trace in any of its dialects (trace/reader.cc) or made from a seed (trace/generator.cc).
// One flat array holds all ids: the largest public traces have tens of millions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvpool::tools {

enum class Dialect {
  kMooncake,  // timestamp: integer milliseconds; one id per 512 tokens
  kBailian,   // timestamp: float seconds; chat_id, parent_chat_id, turn, type; one id per 16 tokens
  kNanos,     // timestamp: a string of nanoseconds; ids are 32-bit hashes on no fixed grid
  kGenerated,
};
const char *dialect_name(Dialect dialect);

inline constexpr std::int64_t kNoChat = -1;

struct Request {
  std::uint64_t time_ns = 0;   // since the first request
  std::uint64_t first_id = 0;  // place in Trace::ids
  std::uint32_t id_count = 0;
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t turn = 0;
  std::int64_t chat = kNoChat;
  std::int64_t parent_chat = kNoChat;
};

struct Trace {
  Dialect dialect = Dialect::kMooncake;
  std::uint32_t tokens_per_id = 0;  // 0: no fixed grid
  std::vector<Request> requests;    // in order of time
  std::vector<std::uint64_t> ids;
  std::uint64_t bad_lines = 0;  // skipped by ReadOptions::skip_bad
  std::string first_bad;        // what was wrong with the first of them
  bool was_sorted = true;

  std::span<const std::uint64_t> ids_of(const Request &request) const {
    return {ids.data() + request.first_id, request.id_count};
  }
};

struct ReadOptions {
  bool skip_bad = false;           // count lines that cannot be read and go on
  std::uint64_t max_requests = 0;  // 0: all; counted in the order of the file
};

// Longest line and greatest numbers a trace may hold: beyond them a line is bad, never a huge
// allocation.
inline constexpr std::uint64_t kTraceLineMax = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kTraceIdsMax = std::uint64_t{1} << 20;  // as kvpool_lookup() takes
inline constexpr std::uint64_t kTraceTokensMax = std::uint64_t{1} << 30;

// Reads `path`. 0, or a negative errno with `ret_why` naming file, line, what was there and what
// was expected: -ENOENT and the like from the file, -EBADMSG for a line, -ENODATA when no request
// is left.
int read_trace(const std::string &path, const ReadOptions &options, Trace &ret,
               std::string &ret_why);

// The same from memory, `name` standing for the file in messages.
int parse_trace(std::string_view text, const std::string &name, const ReadOptions &options,
                Trace &ret, std::string &ret_why);

// Conversations of several turns over a few system prompts that all of them share: each turn's
// prompt is the whole conversation so far, as a chat server sees it. Equal options give equal
// traces everywhere.
struct GeneratorOptions {
  std::uint64_t seed = 1;
  std::uint64_t requests = 2000;
  std::uint32_t system_prompts = 8;
  std::uint32_t system_blocks = 12;  // mean length of a system prompt in blocks
  std::uint32_t turn_blocks = 3;     // mean growth of a conversation by one turn
  std::uint32_t turns = 6;           // mean turns of a conversation
  std::uint32_t live_chats = 64;     // conversations going on at a time
  std::uint32_t tokens_per_id = 64;
  double requests_per_second = 20;
};
Trace generate_trace(const GeneratorOptions &options);

// Blocks a request finds in an infinite cache: its longest prefix of ids seen before. On a dialect
// without a grid ids are not chained, so every id seen before counts wherever it stands.
struct InfiniteCache {
  std::uint64_t block_refs = 0;
  std::uint64_t block_hits = 0;
  std::uint64_t distinct = 0;
};
InfiniteCache infinite_cache(const Trace &trace);

}  // namespace kvpool::tools
