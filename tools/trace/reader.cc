// SPDX-License-Identifier: Apache-2.0
// Reads request traces (JSON lines) in the public dialects. The first good line decides the dialect
// and all others must be of it. Nothing in a line is trusted: a number out of range, a missing
// field or a truncated object is an error that names file and line and says what was expected.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trace/trace.hpp"

namespace kvpool::tools {

namespace {

using nlohmann::json;

struct BadLine {
  std::string why;
};

std::string shown(const json &value) {
  if (value.is_array()) return "an array";  // however deep
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

[[noreturn]] void bad(std::string why) { throw BadLine{std::move(why)}; }

const json &field(const json &line, const char *name) {
  const auto found = line.find(name);
  if (found == line.end()) bad(fmt::format("no field \"{}\"", name));
  return *found;
}

std::uint64_t whole_number(const json &value, const char *name, std::uint64_t max) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= max) return number;
    bad(fmt::format("\"{}\" is {}, more than {}", name, number, max));
  }
  bad(fmt::format("\"{}\" is {}, expected a whole number from 0 to {}", name, shown(value), max));
}

std::uint32_t tokens(const json &line, const char *name) {
  return static_cast<std::uint32_t>(whole_number(field(line, name), name, kTraceTokensMax));
}

// Ids of chats: whole numbers, -1 for "none"; other ways of writing them do not occur.
std::int64_t chat_number(const json &line, const char *name) {
  const json &value = field(line, name);
  if (value.is_number_integer() && !value.is_number_unsigned()) {
    if (value.get<std::int64_t>() == -1) return kNoChat;
  }
  return static_cast<std::int64_t>(whole_number(value, name, INT64_MAX));
}

Dialect dialect_of(const json &line) {
  if (field(line, "timestamp").is_string()) return Dialect::kNanos;
  if (line.contains("chat_id")) return Dialect::kBailian;
  return Dialect::kMooncake;
}

constexpr std::uint64_t kTimeMaxNs = std::uint64_t{1} << 62;  // 146 years

std::uint64_t time_ns(const json &line, Dialect dialect) {
  const json &value = field(line, "timestamp");
  switch (dialect) {
    case Dialect::kNanos: {
      if (!value.is_string())
        bad(fmt::format("\"timestamp\" is {}, expected a string", shown(value)));
      const auto &text = value.get_ref<const std::string &>();
      std::uint64_t ns = 0;
      if (text.empty()) bad("\"timestamp\" is \"\", expected a string of nanoseconds");
      for (const char c : text) {
        if (c < '0' || c > '9' || ns > kTimeMaxNs / 10 - 1) {
          bad(fmt::format("\"timestamp\" is {}, expected a string of nanoseconds", shown(value)));
        }
        ns = ns * 10 + static_cast<std::uint64_t>(c - '0');
      }
      return ns;
    }
    case Dialect::kBailian: {
      if (!value.is_number())
        bad(fmt::format("\"timestamp\" is {}, expected seconds", shown(value)));
      const double seconds = value.get<double>();
      if (!(seconds >= 0 && seconds < 4e9)) {
        bad(fmt::format("\"timestamp\" is {}, expected 0 to 4000000000 seconds", shown(value)));
      }
      return static_cast<std::uint64_t>(std::llround(seconds * 1e9));
    }
    default:
      if (value.is_number_float()) {  // some tools write 27.0
        const double ms = value.get<double>();
        if (!(ms >= 0 && ms < 4e12)) {
          bad(fmt::format("\"timestamp\" is {}, expected milliseconds", shown(value)));
        }
        return static_cast<std::uint64_t>(std::llround(ms * 1e6));
      }
      return whole_number(value, "timestamp", kTimeMaxNs / 1000000) * 1000000;
  }
}

const char *dialect_hint(Dialect dialect) {
  switch (dialect) {
    case Dialect::kBailian:
      return "seconds, chat_id and 16 tokens an id";
    case Dialect::kNanos:
      return "a string of nanoseconds";
    default:
      return "milliseconds and 512 tokens an id";
  }
}

class Reader {
public:
  Reader(const ReadOptions &options, Trace &trace) : options_(options), trace_(trace) {}

  void add_line(std::string_view text) {
    if (text.size() > kTraceLineMax) {
      bad(fmt::format("a line of {} bytes, expected at most {}", text.size(), kTraceLineMax));
    }
    json line;
    try {
      line = json::parse(text.begin(), text.end());
    } catch (const json::exception &error) {
      bad(fmt::format("not a JSON object ({})", short_reason(error.what())));
    }
    if (!line.is_object()) bad(fmt::format("{} instead of a JSON object", shown(line)));
    const Dialect dialect = dialect_of(line);
    if (!known_) {
      trace_.dialect = dialect;
      trace_.tokens_per_id = dialect == Dialect::kMooncake  ? 512
                             : dialect == Dialect::kBailian ? 16
                                                            : 0;
    } else if (dialect != trace_.dialect) {
      bad(fmt::format("a line with {} in a trace with {}", dialect_hint(dialect),
                      dialect_hint(trace_.dialect)));
    }
    add_request(line, dialect);
    known_ = true;
  }

private:
  static std::string short_reason(std::string_view what) {
    // nlohmann's text is "[json.exception.parse_error.101] parse error at line 1, column 5: syntax
    // ...".
    if (const auto at = what.find("] "); at != std::string_view::npos) what.remove_prefix(at + 2);
    if (const auto at = what.find("column "); at != std::string_view::npos) what.remove_prefix(at);
    std::string text(what.substr(0, 120));
    for (char &c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    }
    return text;
  }

  void add_request(const json &line, Dialect dialect) {
    Request request;
    request.time_ns = time_ns(line, dialect);
    request.input_tokens = tokens(line, "input_length");
    request.output_tokens = tokens(line, "output_length");
    if (dialect == Dialect::kBailian) {
      request.chat = chat_number(line, "chat_id");
      request.parent_chat = chat_number(line, "parent_chat_id");
      request.turn =
          static_cast<std::uint32_t>(whole_number(field(line, "turn"), "turn", 1u << 30));
      const json &type = field(line, "type");
      if (!type.is_string()) bad(fmt::format("\"type\" is {}, expected a string", shown(type)));
    }
    const json &ids = field(line, "hash_ids");
    if (!ids.is_array()) bad(fmt::format("\"hash_ids\" is {}, expected a list of ids", shown(ids)));
    const std::uint64_t max = dialect == Dialect::kNanos ? UINT32_MAX : UINT64_MAX;
    const std::size_t before = trace_.ids.size();
    request.first_id = before;
    request.id_count = static_cast<std::uint32_t>(ids.size());
    try {
      for (const json &id : ids) trace_.ids.push_back(whole_number(id, "hash_ids", max));
      check_grid(request);
    } catch (const BadLine &) {
      trace_.ids.resize(before);
      throw;
    }
    trace_.requests.push_back(request);
  }

  void check_grid(const Request &request) const {
    const std::uint32_t grid = trace_.tokens_per_id;
    if (request.id_count > kTraceIdsMax) {
      bad(fmt::format("{} ids, expected at most {}: one look-up takes no more", request.id_count,
                      kTraceIdsMax));
    }
    if (grid == 0) {
      if (request.id_count <= request.input_tokens) return;
      bad(fmt::format("{} ids for {} tokens", request.id_count, request.input_tokens));
    }
    // A trailing part of a block may have an id of its own or none, depending on who wrote the
    // trace.
    const std::uint64_t most = (request.input_tokens + std::uint64_t{grid} - 1) / grid;
    if (request.id_count > most) {
      bad(fmt::format("{} ids for {} tokens, expected at most {} (one per {} tokens)",
                      request.id_count, request.input_tokens, most, grid));
    }
    if (request.id_count < request.input_tokens / grid) {
      bad(fmt::format("{} ids for {} tokens, expected at least {} (one per {} tokens)",
                      request.id_count, request.input_tokens, request.input_tokens / grid, grid));
    }
  }

  const ReadOptions &options_;
  Trace &trace_;
  bool known_ = false;
};

void finish(Trace &trace) {
  auto &requests = trace.requests;
  const auto earlier = [](const Request &a, const Request &b) { return a.time_ns < b.time_ns; };
  trace.was_sorted = std::is_sorted(requests.begin(), requests.end(), earlier);
  if (!trace.was_sorted) std::stable_sort(requests.begin(), requests.end(), earlier);
  const std::uint64_t start = requests.front().time_ns;
  for (Request &request : requests) request.time_ns -= start;
}

}  // namespace

const char *dialect_name(Dialect dialect) {
  switch (dialect) {
    case Dialect::kMooncake:
      return "mooncake";
    case Dialect::kBailian:
      return "bailian";
    case Dialect::kNanos:
      return "nanoseconds";
    case Dialect::kGenerated:
      return "generated";
  }
  return "unknown";
}

int parse_trace(std::string_view text, const std::string &name, const ReadOptions &options,
                Trace &ret, std::string &ret_why) {
  Trace trace;
  Reader reader(options, trace);
  std::uint64_t number = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (options.max_requests != 0 && trace.requests.size() >= options.max_requests) break;
    try {
      reader.add_line(line);
    } catch (const BadLine &bad_line) {
      const std::string said = fmt::format("{}:{}: {}", name, number, bad_line.why);
      if (!options.skip_bad) {
        ret_why = said;
        return -EBADMSG;
      }
      if (trace.bad_lines++ == 0) trace.first_bad = said;
    }
  }
  if (trace.requests.empty()) {
    ret_why = trace.bad_lines == 0
                  ? fmt::format("{}: empty, expected one JSON object a line", name)
                  : fmt::format("{}: no line can be read; the first: {}", name, trace.first_bad);
    return -ENODATA;
  }
  finish(trace);
  ret = std::move(trace);
  return 0;
}

int read_trace(const std::string &path, const ReadOptions &options, Trace &ret,
               std::string &ret_why) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    ret_why = fmt::format("{}: {}", path, std::strerror(error));
    return -error;
  }
  std::string text;
  std::vector<char> chunk(1 << 20);
  int error = 0;
  for (;;) {
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      error = errno;
      break;
    }
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  if (error != 0) {
    ret_why = fmt::format("{}: {}", path, std::strerror(error));
    return -error;
  }
  return parse_trace(text, path, options, ret, ret_why);
}

}  // namespace kvpool::tools
