// SPDX-License-Identifier: Apache-2.0
// Shows: every dialect of public traces is read as it was meant, and every bad line is refused by
// name.
// How: small traces as text; each bad line alone, then skipped; the generator against itself.
#include <criterion/criterion.h>

#include <cerrno>
#include <string>

#include "trace/trace.hpp"

using namespace kvpool::tools;

namespace {

constexpr const char *kMooncake =
    R"({"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 40, "input_length": 1025, "output_length": 3, "hash_ids": )"
    R"([0, 1, 18446744073709551615]}
)";

int parse(const std::string &text, Trace &ret, std::string &why, bool skip = false) {
  ReadOptions options;
  options.skip_bad = skip;
  return parse_trace(text, "t.jsonl", options, ret, why);
}

void refused(const std::string &line, const std::string &word) {
  Trace trace;
  std::string why;
  cr_assert_eq(parse(kMooncake + line + "\n", trace, why), -EBADMSG, "%s", line.c_str());
  cr_assert_eq(why.rfind("t.jsonl:3: ", 0), 0, "%s", why.c_str());
  cr_assert(why.find(word) != std::string::npos, "'%s' does not say '%s'", why.c_str(),
            word.c_str());
  cr_assert(trace.requests.empty(), "a refused trace must leave the result alone");
  cr_assert_eq(parse(kMooncake + line + "\n", trace, why, true), 0);
  cr_assert_eq(trace.bad_lines, 1);
  cr_assert_eq(trace.requests.size(), 2);
  cr_assert_eq(trace.ids.size(), 5, "ids of a bad line must not stay");
}

}  // namespace

Test(trace, reads_mooncake) {
  Trace trace;
  std::string why;
  cr_assert_eq(parse(kMooncake, trace, why), 0, "%s", why.c_str());
  cr_assert_eq(trace.dialect, Dialect::kMooncake);
  cr_assert_eq(trace.tokens_per_id, 512);
  cr_assert_eq(trace.requests.size(), 2);
  cr_assert_eq(trace.requests[1].time_ns, 40'000'000);
  cr_assert_eq(trace.ids_of(trace.requests[1])[2], UINT64_MAX);
}

Test(trace, reads_bailian) {
  const char *text =
      R"({"chat_id": 7, "parent_chat_id": -1, "timestamp": 10.5, "input_length": 30, )"
      R"("output_length": 2, "type": "text", "turn": 1, "hash_ids": [5, 6]}
{"chat_id": 8, "parent_chat_id": 7, "timestamp": 11.25, "input_length": 40, )"
      R"("output_length": 2, "type": "file", "turn": 2, "hash_ids": [5, 6, 9]}
)";
  Trace trace;
  std::string why;
  cr_assert_eq(parse(text, trace, why), 0, "%s", why.c_str());
  cr_assert_eq(trace.dialect, Dialect::kBailian);
  cr_assert_eq(trace.tokens_per_id, 16);
  cr_assert_eq(trace.requests[0].parent_chat, kNoChat);
  cr_assert_eq(trace.requests[1].parent_chat, 7);
  cr_assert_eq(trace.requests[1].turn, 2);
  cr_assert_eq(trace.requests[1].time_ns, 750'000'000);
}

Test(trace, reads_nanoseconds_and_sorts) {
  const char *text =
      R"({"timestamp": "1737000000000000900", "input_length": 68, "output_length": 2, )"
      R"("hash_ids": [4294967295, 2]}
{"timestamp": "1737000000000000100", "input_length": 500, "output_length": 2, "hash_ids": [3]}
)";
  Trace trace;
  std::string why;
  cr_assert_eq(parse(text, trace, why), 0, "%s", why.c_str());
  cr_assert_eq(trace.dialect, Dialect::kNanos);
  cr_assert_eq(trace.tokens_per_id, 0);
  cr_assert_not(trace.was_sorted);
  cr_assert_eq(trace.requests[0].input_tokens, 500);
  cr_assert_eq(trace.requests[0].time_ns, 0);
  cr_assert_eq(trace.requests[1].time_ns, 800);
  cr_assert_eq(trace.ids_of(trace.requests[1])[0], 4294967295u);
}

Test(trace, sorting_keeps_the_order_of_equal_times) {
  std::string text;
  for (int i = 0; i < 50; ++i) {
    text += "{\"timestamp\": " + std::to_string(i % 2 == 0 ? 100 : 5) +
            ", \"input_length\": 512, \"output_length\": " + std::to_string(i) +
            ", \"hash_ids\": [1]}\n";
  }
  Trace trace;
  std::string why;
  cr_assert_eq(parse(text, trace, why), 0);
  for (std::size_t i = 1; i < 50; ++i) {
    if (i != 25) cr_assert_lt(trace.requests[i - 1].output_tokens, trace.requests[i].output_tokens);
  }
}

Test(trace, refuses_bad_lines_by_name) {
  refused("{", "not a JSON object");
  refused("[1, 2]", "instead of a JSON object");
  refused("null", "instead of a JSON object");
  refused(R"({"input_length": 1, "output_length": 1, "hash_ids": []})", "no field \"timestamp\"");
  refused(R"({"timestamp": 1, "output_length": 1, "hash_ids": []})", "no field \"input_length\"");
  refused(R"({"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": []})",
          "\"timestamp\" is -1");
  refused(R"({"timestamp": 1, "input_length": 1e30, "output_length": 1, "hash_ids": []})",
          "\"input_length\"");
  refused(R"({"timestamp": 1, "input_length": 99999999999, "output_length": 1, "hash_ids": []})",
          "more than");
  refused(
      R"({"timestamp": 99999999999999999999, "input_length": 1, "output_length": 1, )"
          R"("hash_ids": []})",
      "\"timestamp\"");
  refused(R"({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": 5})",
          "expected a list");
  refused(R"({"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, "x"]})",
          "\"hash_ids\"");
  refused(R"({"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, -4]})",
          "\"hash_ids\"");
  refused(R"({"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]})",
          "at most 1");
  refused(R"({"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1]})",
          "expected at least 2");
  refused(R"({"timestamp": "5", "input_length": 1, "output_length": 1, "hash_ids": [1]})",
          "nanoseconds");
  refused(std::string(20000, '['), "not a JSON object");
  refused("\xff\xfe\x01", "not a JSON object");
}

Test(trace, empty_is_an_error_of_its_own) {
  Trace trace;
  std::string why;
  cr_assert_eq(parse("", trace, why), -ENODATA);
  cr_assert(why.find("empty") != std::string::npos);
  cr_assert_eq(parse("\n  \n", trace, why), -ENODATA);
  cr_assert_eq(parse("x\n", trace, why, true), -ENODATA);
  cr_assert(why.find("t.jsonl:1") != std::string::npos, "%s", why.c_str());
  cr_assert_eq(read_trace("/nonexistent/trace", {}, trace, why), -ENOENT);
  cr_assert_eq(read_trace("/", {}, trace, why), -EISDIR);
}

Test(trace, generator_is_the_same_everywhere) {
  GeneratorOptions options;
  options.requests = 300;
  const Trace a = generate_trace(options);
  const Trace b = generate_trace(options);
  cr_assert(a.ids == b.ids);
  options.seed = 2;
  cr_assert(a.ids != generate_trace(options).ids);
  cr_assert_eq(a.requests.size(), 300);
  const InfiniteCache standard = infinite_cache(generate_trace(GeneratorOptions{}));
  cr_assert_eq(standard.block_refs, 47171, "another trace than before: reports are not comparable");
  cr_assert_eq(standard.distinct, 5882);
  const InfiniteCache cache = infinite_cache(a);
  cr_assert_eq(cache.block_refs, a.ids.size());
  cr_assert_eq(cache.block_refs, cache.block_hits + cache.distinct,
               "ids are chained, so each is missed exactly once");
  cr_assert_gt(cache.block_hits, cache.distinct, "turns of a conversation share their prefix");
}

// How: one id more than a look-up takes, and exactly as many.
Test(trace, a_line_has_as_many_ids_as_one_look_up_takes) {
  for (const std::uint64_t ids : {kTraceIdsMax, kTraceIdsMax + 1}) {
    std::string text = R"({"timestamp": "1", "input_length": 2000000, "output_length": 2, )"
                       R"("hash_ids": [7)";
    for (std::uint64_t i = 1; i < ids; ++i) text += ",7";
    text += "]}\n";
    Trace trace;
    std::string why;
    cr_expect_eq(parse(text.c_str(), trace, why), ids > kTraceIdsMax ? -EBADMSG : 0, "%s",
                 why.c_str());
  }
}

Test(trace, unchained_ids_hit_wherever_they_stand) {
  const char *text =
      R"({"timestamp": "1", "input_length": 68, "output_length": 2, "hash_ids": [1, 2, 3]}
{"timestamp": "2", "input_length": 68, "output_length": 2, "hash_ids": [9, 2, 3]}
)";
  Trace trace;
  std::string why;
  cr_assert_eq(parse(text, trace, why), 0);
  const InfiniteCache cache = infinite_cache(trace);
  cr_assert_eq(cache.block_refs, 6);
  cr_assert_eq(cache.block_hits, 2);
}
