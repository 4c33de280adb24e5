// SPDX-License-Identifier: Apache-2.0
// Fuzz target: whatever a trace file holds, the reader ends, within memory in proportion to the
// file, and either refuses it with a line number or returns requests that are sound. An input is
// the file.
#include <cstdlib>
#include <string_view>

#include "trace/trace.hpp"

namespace {

void demand(bool holds) {
  if (!holds) std::abort();
}

void check(const kvpool::tools::Trace &trace, std::size_t file_bytes) {
  using namespace kvpool::tools;
  demand(!trace.requests.empty() && trace.ids.size() <= file_bytes);
  std::uint64_t before = 0;
  for (const Request &request : trace.requests) {
    demand(request.time_ns >= before);
    before = request.time_ns;
    demand(request.first_id + request.id_count <= trace.ids.size());
    demand(request.input_tokens <= kTraceTokensMax && request.output_tokens <= kTraceTokensMax);
  }
  const InfiniteCache cache = infinite_cache(trace);
  demand(cache.block_refs == trace.ids.size());
  demand(cache.block_hits + cache.distinct <= cache.block_refs || cache.block_refs == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace kvpool::tools;
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  for (const bool skip : {false, true}) {
    ReadOptions options;
    options.skip_bad = skip;
    Trace trace;
    std::string why;
    if (parse_trace(text, "fuzz", options, trace, why) == 0) {
      check(trace, size);
      demand(skip || trace.bad_lines == 0);
    } else {
      demand(why.rfind("fuzz:", 0) == 0);
    }
  }
  return 0;
}
