// SPDX-License-Identifier: Apache-2.0
// Entry of the kvpool command: finds the command, parses its options, runs it, and turns what went
// wrong into a message, a hint and an exit code. No exception leaves main.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include "arch/x86_memory.hpp"
#include "options.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

int unknown_command(const std::string &word) {
  std::vector<std::string_view> known;
  for (const CommandSpec &command : commands()) {
    if (!command.hidden) known.push_back(command.name);
  }
  const std::string_view near = nearest_word(word, known);
  fail(kExitUsage, {}, "unknown command " + word,
       near.empty() ? "kvpool --help" : "did you mean " + std::string(near) + "?");
}

// What the environment asks of the processor; a wrong word there is like a wrong option.
void check_environment() {
  X86Choice choice;
  std::string why;
  if (choose_x86({}, choice, why) != 0) {
    fail(kExitUsage, {}, std::move(why), "unset KVPOOL_ISA and KVPOOL_FLUSH");
  }
}

// Hints are written for every command; here they become what this one can follow: ADDRESS is the
// store that was named, and an option that the command does not have is not offered.
std::string settled_hint(std::string hint, const CommandSpec &command, const Args &args) {
  const auto replace = [&hint](std::string_view from, const std::string &to) {
    for (std::size_t at = 0; (at = hint.find(from, at)) != std::string::npos; at += to.size()) {
      hint.replace(at, from.size(), to);
    }
  };
  bool embedded = false;
  for (const OptionSpec &option : command.options) embedded |= option.name == "--embedded";
  if (!embedded) replace(", or --embedded", "");
  std::string address = args.text("ADDRESS", args.text("--pool"));
  const char *environment = std::getenv("KVPOOL");
  if (address.empty() && environment != nullptr) address = environment;
  if (!address.empty()) replace("ADDRESS", address);
  return hint;
}

int run(const std::vector<std::string> &words, std::string &ret_command) {
  if (words.empty()) {
    std::fputs(help_text().c_str(), stderr);
    return kExitUsage;
  }
  std::string word = words.front();
  if (word == "--version" || word == "version") {
    print_text("kvpool " KVPOOL_VERSION_STRING "\n");
    return kExitFine;
  }
  if (word == "--help" || word == "-h" || (word == "help" && words.size() == 1)) {
    print_text(help_text());
    return kExitFine;
  }
  std::vector<std::string> rest(words.begin() + 1, words.end());
  if (word == "help") {
    word = rest.front();
    rest = {"--help"};
  }
  const CommandSpec *command = find_command(word);
  if (command == nullptr) return unknown_command(word);
  ret_command = command->name;
  for (const std::string &argument : rest) {
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      print_text(help_text(*command));
      return kExitFine;
    }
  }
  const Args args = parse_args(*command, rest);
  if (command->name != "doctor") check_environment();  // that one says so among other things
  try {
    return command->run(args);
  } catch (Failure &failure) {
    failure.hint = settled_hint(std::move(failure.hint), *command, args);
    if (failure.hint.empty() && failure.why.find(std::strerror(EIDRM)) != std::string::npos) {
      failure.hint = "the store was formatted anew: start the command again to use the new one";
    }
    throw;
  }
}

}  // namespace

}  // namespace kvpool::tools

int main(int argc, char **argv) {
  using namespace kvpool::tools;
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of print_text, not a silent death
  std::string command;
  try {
    return run({argv + 1, argv + argc}, command);
  } catch (const Failure &failure) {
    say_failure(command, failure);
    return failure.code;
  } catch (const std::bad_alloc &) {
    say_failure(command, {kExitFailed, {}, "out of memory"});
  } catch (const std::exception &error) {
    say_failure(command, {kExitFailed, "internal error", error.what(), "please report this"});
  }
  return kExitFailed;
}
