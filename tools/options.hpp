// SPDX-License-Identifier: Apache-2.0
// What the kvpool command understands: one table of commands and their options. Parsing, --help,
// the shell completions and the comparison with the man pages all come from it, so that none of
// them can fall behind.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvpool::tools {

enum class Kind : std::uint8_t {
  kFlag,  // present or not
  kText,
  kFile,     // a path: completion offers files
  kAddress,  // of a store: mem:, file:, dax:, dev:
  kCount,    // a whole number
  kBytes,    // 4096, 64KiB, 1GiB
  kReal,     // a number with a fraction
  kChoice,   // one of a list
};

inline constexpr std::uint8_t kRequired = 1;
inline constexpr std::uint8_t kMany = 2;  // may be given more than once
inline constexpr std::uint8_t kHidden =
    4;  // for tests and child processes: not in help or man page

inline constexpr std::uint64_t kPoolBytesMax = std::uint64_t{1} << 60;  // 16 devices of 64 PiB

struct OptionSpec {
  std::string_view name;  // "--size"; a positional argument has no dashes: "ADDRESS"
  Kind kind = Kind::kFlag;
  std::string_view value;     // what stands for its value in help: "BYTES"
  std::string_view standard;  // what holds when it is not given, for people; empty: nothing
  std::string_view help;      // one sentence
  std::string_view choices;   // kChoice: "a|b|c"
  std::uint8_t flags = 0;
  std::uint64_t min = 0;  // kCount, kBytes: the number; kText: its length
  std::uint64_t max = UINT64_MAX;

  bool positional() const { return !name.starts_with("--"); }
  bool is(std::uint8_t flag) const { return (flags & flag) != 0; }
};

// What was given on the command line, already checked against the table.
class Args {
public:
  bool has(std::string_view name) const;
  std::string text(std::string_view name, std::string_view otherwise = {}) const;
  std::uint64_t number(std::string_view name, std::uint64_t otherwise) const;  // kCount, kBytes
  double real(std::string_view name, double otherwise) const;
  const std::vector<std::string> &all(std::string_view name) const;

  bool json() const { return has("--json"); }

  void add(std::string_view name, std::string value);

private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

struct CommandSpec {
  std::string_view name;
  std::string_view summary;  // one line, no full stop
  std::string_view about;    // a paragraph
  std::span<const OptionSpec> options;
  int (*run)(const Args &args);
  bool hidden = false;
};

std::span<const CommandSpec> commands();
const CommandSpec *find_command(std::string_view name);

// Parses what follows the command's name. Throws Failure (say.hpp) with exit code 2 on anything the
// table does not know, with the nearest known name.
Args parse_args(const CommandSpec &command, std::span<const std::string> words);

std::string help_text();                            // of the whole tool
std::string help_text(const CommandSpec &command);  // of one command
std::string table_as_json();                        // the table itself, for the tests
std::string completion_text(std::string_view shell);

bool parse_bytes(std::string_view text, std::uint64_t &ret);
bool parse_count(std::string_view text, std::uint64_t &ret);
bool parse_real(std::string_view text, double &ret);
// The word of `known` nearest to `word`, empty when none is near.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);

}  // namespace kvpool::tools
