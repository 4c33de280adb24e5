// SPDX-License-Identifier: Apache-2.0
// From options to a workload, and results on their way from member to parent (replay.hpp).
#include <cerrno>

#include <fmt/format.h>

#include "replay/replay.hpp"

namespace kvpool::tools {

Workload workload_of(const Args &args) {
  Workload workload;
  workload.passes = args.number("--repeat", 1);
  workload.min_bytes = args.number("--min-bytes", 0);
  workload.block_bytes = args.number("--block-bytes", 256u << 10);
  if (workload.block_bytes % 64 != 0) fail(kExitUsage, "--block-bytes", "is not a multiple of 64");
  const std::string path = args.text("FILE");
  if (path.empty()) {
    GeneratorOptions options;
    options.seed = args.number("--seed", 1);
    options.requests = args.number("--requests", 2000);
    workload.trace = generate_trace(options);
    return workload;
  }
  ReadOptions options;
  options.skip_bad = args.has("--skip-bad");
  options.max_requests = args.number("--max-requests", 0);
  std::string why;
  const int error = read_trace(path, options, workload.trace, why);
  if (error == -ENODATA) fail(kExitNothing, {}, why);
  if (error == -EBADMSG) fail(kExitFailed, {}, why, "--skip-bad counts such lines and goes on");
  if (error != 0) fail(exit_code_of(error), {}, why);
  if (workload.trace.ids.empty()) fail(kExitNothing, path, "no request has a block");
  return workload;
}

IdBytes id_bytes(std::uint64_t id) {
  IdBytes ret{};
  for (int i = 0; i < 8; ++i) ret.bytes[i] = static_cast<std::uint8_t>(id >> (8 * i));
  return ret;
}

namespace {

void add_operation(OperationResult &to, const OperationResult &from) {
  to.calls += from.calls;
  to.blocks += from.blocks;
  to.sampled += from.sampled;
  to.round_trips += from.round_trips;
  to.data_waves += from.data_waves;
  to.lines_flushed += from.lines_flushed;
  to.latency.merge(from.latency);
}

Json operation_json(const OperationResult &op) {
  Json json;
  json["calls"] = op.calls;
  json["blocks"] = op.blocks;
  json["sampled"] = op.sampled;
  json["round_trips"] = op.round_trips;
  json["data_waves"] = op.data_waves;
  json["lines_flushed"] = op.lines_flushed;
  json["sum"] = op.latency.sum();
  json["min"] = op.latency.min();
  json["max"] = op.latency.max();
  json["buckets"] = op.latency.buckets();
  return json;
}

bool operation_from(const Json &json, OperationResult &ret) {
  ret.calls = json.at("calls").get<std::uint64_t>();
  ret.blocks = json.at("blocks").get<std::uint64_t>();
  ret.sampled = json.at("sampled").get<std::uint64_t>();
  ret.round_trips = json.at("round_trips").get<double>();
  ret.data_waves = json.at("data_waves").get<double>();
  ret.lines_flushed = json.at("lines_flushed").get<double>();
  const auto buckets =
      json.at("buckets").get<std::vector<std::pair<std::uint32_t, std::uint64_t>>>();
  return ret.latency.restore(buckets, json.at("sum").get<double>(),
                             json.at("min").get<std::uint64_t>(),
                             json.at("max").get<std::uint64_t>());
}

// The plain counters of a member, by name: one list for both directions.
struct NamedCounter {
  const char *name;
  std::uint64_t MemberResult::*field;
};
constexpr NamedCounter kCounters[] = {
    {"requests", &MemberResult::requests},
    {"blocks_put", &MemberResult::blocks_put},
    {"blocks_exists", &MemberResult::blocks_exists},
    {"blocks_full", &MemberResult::blocks_full},
    {"blocks_hit", &MemberResult::blocks_hit},
    {"blocks_hit_remote", &MemberResult::blocks_hit_remote},
    {"blocks_missed", &MemberResult::blocks_missed},
    {"blocks_stale", &MemberResult::blocks_stale},
    {"bytes_read", &MemberResult::bytes_read},
    {"bytes_written", &MemberResult::bytes_written},
    {"verify_failures", &MemberResult::verify_failures},
};

}  // namespace

void MemberResult::add(const MemberResult &other) {
  for (const NamedCounter &counter : kCounters) this->*counter.field += other.*counter.field;
  if (first_failure.empty()) first_failure = other.first_failure;
  add_operation(lookup, other.lookup);
  add_operation(get, other.get);
  add_operation(put, other.put);
}

Json to_json(const MemberResult &result) {
  Json json;
  for (const NamedCounter &counter : kCounters) json[counter.name] = result.*counter.field;
  json["first_failure"] = result.first_failure;
  json["lookup"] = operation_json(result.lookup);
  json["get"] = operation_json(result.get);
  json["put"] = operation_json(result.put);
  return json;
}

bool from_json(const Json &json, MemberResult &ret) {
  try {
    MemberResult result;
    for (const NamedCounter &counter : kCounters) {
      result.*counter.field = json.at(counter.name).get<std::uint64_t>();
    }
    result.first_failure = json.at("first_failure").get<std::string>();
    if (!operation_from(json.at("lookup"), result.lookup) ||
        !operation_from(json.at("get"), result.get) ||
        !operation_from(json.at("put"), result.put)) {
      return false;
    }
    ret = std::move(result);
    return true;
  } catch (const Json::exception &) {
    return false;
  }
}

}  // namespace kvpool::tools
