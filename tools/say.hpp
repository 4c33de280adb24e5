// SPDX-License-Identifier: Apache-2.0
// How the tools speak: text for people and one JSON object on stdout, errors and hints on stderr,
// progress on stderr only for somebody who watches. Exit codes are those of every command.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace kvpool::tools {

using Json = nlohmann::ordered_json;

enum ExitCode : int {
  kExitFine = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitNothing = 3,  // not found, or nothing to do
  kExitDamaged = 4,
};

// Ends a command: `what` is the thing, `why` what is wrong with it, `hint` the next step where
// clear.
struct Failure {
  int code = kExitFailed;
  std::string what;
  std::string why;
  std::string hint = {};
};
[[noreturn]] void fail(int code, std::string what, std::string why, std::string hint = {});
// The same from an errno, whose sign does not matter; `detail` replaces strerror when it says more.
[[noreturn]] void fail_errno(std::string what, int error, std::string detail = {});
int exit_code_of(int error);

void say_failure(std::string_view command, const Failure &failure);
void warn(std::string text);

std::string bytes_text(std::uint64_t bytes);    // "1.5 GiB"
std::string count_text(std::uint64_t n);        // "1,234,567"
std::string duration_text(double nanoseconds);  // "1.2 us"
std::string host_name();

// Prints {"schema": "kvpool.NAME/1", "host": ..., "data": ..., "warnings": [...]}.
void print_json(std::string_view command, Json data);
// Prints an object whose fields stand at top level (bench, replay).
void print_plain_json(const Json &object);
void print_text(std::string_view text);  // to stdout, failing on a full disk or a closed pipe

// Columns, left-aligned text and right-aligned numbers.
class Table {
public:
  explicit Table(std::vector<std::string> heads);  // a head that starts with '>' is right-aligned
  void row(std::vector<std::string> cells);
  std::string text() const;

private:
  std::vector<std::string> heads_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

// Progress of work that lasts: nothing in the first second, then a line that replaces itself on a
// terminal, or with --progress=json one object a second.
class Progress {
public:
  enum class Form { kNone, kTerminal, kJson };
  Progress(std::string what, std::string_view form_option);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  // `total` 0: unknown.
  void show(std::uint64_t done, std::uint64_t total, std::string_view unit);
  void clear();

private:
  std::string what_;
  Form form_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;
  bool shown_ = false;
};

// SIGINT and SIGTERM set a flag that loops look at; a second one ends the process at once.
void stop_on_signals();
bool stop_requested();
int stop_signal();
extern std::atomic<int> g_stop_signal;

}  // namespace kvpool::tools
