// SPDX-License-Identifier: Apache-2.0
// The built-in workload, and what an infinite cache makes of a workload. The generator uses its own
// random numbers, so that a seed means the same trace with every compiler and library.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "payload.hpp"
#include "trace/trace.hpp"

namespace kvpool::tools {

namespace {

class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ull); }
  std::uint64_t below(std::uint64_t n) {
    return next() % n;
  }  // n is far below 2^64: no visible bias
  // 1 and more, geometric with the given mean.
  std::uint32_t around(std::uint32_t mean) {
    if (mean <= 1) return 1;
    std::uint32_t n = 1;
    while (n < 16 * mean && below(mean) != 0) ++n;
    return n;
  }

private:
  std::uint64_t state_;
};

struct Chat {
  std::int64_t number = 0;
  std::uint32_t turn = 0;
  std::uint32_t turns_left = 0;
  std::vector<std::uint64_t> ids;
};

}  // namespace

Trace generate_trace(const GeneratorOptions &options) {
  Random random(options.seed);
  Trace trace;
  trace.dialect = Dialect::kGenerated;
  trace.tokens_per_id = options.tokens_per_id;
  std::uint64_t fresh_id = 0;
  std::vector<std::vector<std::uint64_t>> systems(std::max(1u, options.system_prompts));
  for (auto &ids : systems) {
    const std::uint32_t blocks =
        options.system_blocks / 2 + random.around(options.system_blocks / 2 + 1);
    for (std::uint32_t i = 0; i < blocks; ++i) ids.push_back(fresh_id++);
  }
  std::vector<Chat> chats(std::max(1u, options.live_chats));
  std::int64_t chat_number = 0;
  double now = 0;
  for (std::uint64_t n = 0; n < options.requests; ++n) {
    Chat &chat = chats[random.below(chats.size())];
    if (chat.turns_left == 0) {
      // Few system prompts serve most conversations, as in real services.
      const std::uint64_t pick =
          std::min(random.below(systems.size()), random.below(systems.size()));
      chat = {chat_number++, 0, random.around(options.turns), systems[pick]};
    }
    const std::uint32_t grown = random.around(options.turn_blocks);
    for (std::uint32_t i = 0; i < grown; ++i) chat.ids.push_back(fresh_id++);
    Request request;
    request.time_ns = static_cast<std::uint64_t>(now * 1e9);
    request.first_id = trace.ids.size();
    request.id_count = static_cast<std::uint32_t>(chat.ids.size());
    request.input_tokens = request.id_count * options.tokens_per_id;
    request.output_tokens =
        options.tokens_per_id * (1 + static_cast<std::uint32_t>(random.below(4)));
    request.turn = chat.turn++;
    request.chat = chat.number;
    trace.ids.insert(trace.ids.end(), chat.ids.begin(), chat.ids.end());
    trace.requests.push_back(request);
    --chat.turns_left;
    const double u = (static_cast<double>(random.next() >> 11) + 1) / 9007199254740993.0;
    now += -std::log(u) / options.requests_per_second;
  }
  return trace;
}

InfiniteCache infinite_cache(const Trace &trace) {
  InfiniteCache ret;
  std::unordered_set<std::uint64_t> seen;
  seen.reserve(trace.ids.size());
  const bool chained = trace.tokens_per_id != 0;
  for (const Request &request : trace.requests) {
    const auto ids = trace.ids_of(request);
    ret.block_refs += ids.size();
    bool prefix = true;
    for (const std::uint64_t id : ids) {
      const bool hit = seen.contains(id);
      if (!hit && chained) prefix = false;
      if (hit && prefix) ++ret.block_hits;
    }
    seen.insert(ids.begin(), ids.end());
  }
  ret.distinct = seen.size();
  return ret;
}

}  // namespace kvpool::tools
