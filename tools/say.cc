// SPDX-License-Identifier: Apache-2.0
// Output of the tools (say.hpp).
#include "say.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

namespace kvpool::tools {

std::atomic<int> g_stop_signal{0};

namespace {

// One process runs one command, so its warnings need no owner.
std::vector<std::string> &warnings() {
  static std::vector<std::string> list;
  return list;
}

void on_stop(int signal) {
  if (g_stop_signal.exchange(signal) != 0) _exit(128 + signal);
}

}  // namespace

void fail(int code, std::string what, std::string why, std::string hint) {
  throw Failure{code, std::move(what), std::move(why), std::move(hint)};
}

int exit_code_of(int error) {
  switch (std::abs(error)) {
    case ENOENT:
    case ENODATA:
      return kExitNothing;
    case EUCLEAN:
    case EBADMSG:
      return kExitDamaged;
    default:
      return kExitFailed;
  }
}

void fail_errno(std::string what, int error, std::string detail) {
  const int number = std::abs(error);
  std::string hint;
  if (number == EACCES || number == EPERM) {
    hint = "the store belongs to another user, or is not writable";
  }
  fail(exit_code_of(number), std::move(what),
       detail.empty() ? std::strerror(number) : std::move(detail), hint);
}

void say_failure(std::string_view command, const Failure &failure) {
  std::string text = "kvpool";
  if (!command.empty()) text += fmt::format(" {}", command);
  if (!failure.what.empty()) text += ": " + failure.what;
  text += ": " + failure.why + "\n";
  if (!failure.hint.empty()) text += "hint: " + failure.hint + "\n";
  std::fputs(text.c_str(), stderr);
}

void warn(std::string text) {
  std::fprintf(stderr, "kvpool: warning: %s\n", text.c_str());
  warnings().push_back(std::move(text));
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  if (unit == 0 || value == static_cast<double>(static_cast<std::uint64_t>(value))) {
    return fmt::format("{:.0f} {}", value, kUnits[unit]);
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string count_text(std::uint64_t n) {
  std::string digits = fmt::format("{}", n);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string duration_text(double ns) {
  if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
  if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
  if (ns < 1e9) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.2f} s", ns / 1e9);
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

void print_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail(kExitFailed, "standard output", std::strerror(errno));
  }
}

void print_plain_json(const Json &object) {
  print_text(object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_json(std::string_view command, Json data) {
  Json object;
  object["schema"] = fmt::format("kvpool.{}/1", command);
  object["host"] = host_name();
  object["data"] = std::move(data);
  object["warnings"] = warnings();
  print_plain_json(object);
}

Table::Table(std::vector<std::string> heads) : heads_(std::move(heads)) {
  for (std::string &head : heads_) {
    right_.push_back(head.starts_with('>'));
    if (right_.back()) head.erase(0, 1);
  }
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(heads_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> width(heads_.size());
  for (std::size_t i = 0; i < heads_.size(); ++i) width[i] = heads_[i].size();
  for (const auto &row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  const auto line = [&](const std::vector<std::string> &cells) {
    std::string one;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i != 0) one += "  ";
      one += right_[i] ? fmt::format("{:>{}}", cells[i], width[i])
                       : fmt::format("{:<{}}", cells[i], width[i]);
    }
    one.erase(one.find_last_not_of(' ') + 1);
    text += one + "\n";
  };
  if (std::any_of(heads_.begin(), heads_.end(), [](const auto &head) { return !head.empty(); })) {
    line(heads_);
  }
  for (const auto &row : rows_) line(row);
  return text;
}

Progress::Progress(std::string what, std::string_view form_option)
    : what_(std::move(what)), form_(Form::kNone), start_(std::chrono::steady_clock::now()) {
  next_ = start_ + std::chrono::seconds(1);
  if (form_option == "json") {
    form_ = Form::kJson;
  } else if (form_option != "none" && isatty(STDERR_FILENO) != 0) {
    form_ = Form::kTerminal;
  }
}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (shown_ && form_ == Form::kTerminal) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

void Progress::show(std::uint64_t done, std::uint64_t total, std::string_view unit) {
  if (form_ == Form::kNone) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (form_ == Form::kJson) {
    Json line;
    line["what"] = what_;
    line["done"] = done;
    line["total"] = total;
    line["unit"] = unit;
    line["seconds"] = seconds;
    std::fputs((line.dump() + "\n").c_str(), stderr);
    next_ = now + std::chrono::seconds(1);
    return;
  }
  std::string text = fmt::format("\r{}: {}", what_, count_text(done));
  if (total != 0) {
    text += fmt::format(" of {} {} ({:.0f} %)", count_text(total), unit,
                        100.0 * static_cast<double>(done) / static_cast<double>(total));
  } else {
    text += fmt::format(" {}", unit);
  }
  std::fputs((text + "\033[K").c_str(), stderr);
  std::fflush(stderr);
  shown_ = true;
  next_ = now + std::chrono::milliseconds(200);
}

void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = on_stop;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return g_stop_signal.load(std::memory_order_relaxed) != 0; }

int stop_signal() { return g_stop_signal.load(std::memory_order_relaxed); }

}  // namespace kvpool::tools
