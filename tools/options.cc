// SPDX-License-Identifier: Apache-2.0
// Parsing, help and completion, all from the table of options (options.hpp).
#include "options.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "backend/address.hpp"
#include "say.hpp"

namespace kvpool::tools {

bool Args::has(std::string_view name) const { return values_.find(name) != values_.end(); }

const std::vector<std::string> &Args::all(std::string_view name) const {
  static const std::vector<std::string> kNone;
  const auto found = values_.find(name);
  return found == values_.end() ? kNone : found->second;
}

std::string Args::text(std::string_view name, std::string_view otherwise) const {
  const auto &values = all(name);
  return values.empty() ? std::string(otherwise) : values.back();
}

std::uint64_t Args::number(std::string_view name, std::uint64_t otherwise) const {
  const auto &values = all(name);
  std::uint64_t value = otherwise;
  if (!values.empty()) parse_bytes(values.back(), value);
  return value;
}

double Args::real(std::string_view name, double otherwise) const {
  const auto &values = all(name);
  double value = otherwise;
  if (!values.empty()) parse_real(values.back(), value);
  return value;
}

void Args::add(std::string_view name, std::string value) {
  values_[std::string(name)].push_back(std::move(value));
}

bool parse_count(std::string_view text, std::uint64_t &ret) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  ret = value;
  return true;
}

bool parse_bytes(std::string_view text, std::uint64_t &ret) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::uint64_t value = 0;
  if (!parse_count(text.substr(0, digits), value)) return false;
  const std::string_view unit = text.substr(digits);
  static constexpr std::string_view kUnits[] = {"K", "M", "G", "T"};
  int shift = unit.empty() || unit == "B" ? 0 : -1;
  for (int i = 0; i < 4; ++i) {
    if (unit == kUnits[i] || unit == std::string(kUnits[i]) + "iB") shift = 10 * (i + 1);
  }
  if (shift < 0 || (shift != 0 && value >> (64 - shift) != 0)) return false;
  ret = value << shift;
  return true;
}

bool parse_real(std::string_view text, double &ret) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  if (!(value > -1e300 && value < 1e300)) return false;
  ret = value;
  return true;
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view other : known) {
    std::vector<std::size_t> row(other.size() + 1);
    for (std::size_t j = 0; j <= other.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= other.size(); ++j) {
        const std::size_t changed = diagonal + (word[i - 1] != other[j - 1] ? 1 : 0);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
      }
    }
    if (row[other.size()] < best_distance) {
      best_distance = row[other.size()];
      best = other;
    }
  }
  return best;
}

const CommandSpec *find_command(std::string_view name) {
  for (const CommandSpec &command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

namespace {

[[noreturn]] void usage(const CommandSpec &command, std::string why, std::string hint = {}) {
  if (hint.empty()) hint = fmt::format("kvpool {} --help", command.name);
  fail(kExitUsage, {}, std::move(why), std::move(hint));
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

void check_value(const CommandSpec &command, const OptionSpec &option, const std::string &value) {
  std::uint64_t number = 0;
  double real = 0;
  switch (option.kind) {
    case Kind::kCount:
      if (!parse_count(value, number)) {
        usage(command, fmt::format("{}: '{}' is not a whole number", option.name, value));
      }
      break;
    case Kind::kBytes:
      if (!parse_bytes(value, number)) {
        usage(command, fmt::format("{}: '{}' is not a size such as 4096, 64KiB or 1GiB",
                                   option.name, value));
      }
      break;
    case Kind::kReal:
      if (!parse_real(value, real)) {
        usage(command, fmt::format("{}: '{}' is not a number", option.name, value));
      }
      if (real < 0) usage(command, fmt::format("{}: {} is negative", option.name, value));
      return;
    case Kind::kChoice: {
      const auto known = split(option.choices, '|');
      if (std::find(known.begin(), known.end(), value) == known.end()) {
        const std::string_view near = nearest_word(value, known);
        usage(command, fmt::format("{}: '{}' is none of {}", option.name, value, option.choices),
              near.empty() ? std::string() : fmt::format("did you mean {}?", near));
      }
      return;
    }
    case Kind::kAddress: {
      backend::Address where;
      // It only looks at the text: whatever it refuses is a wrong word, not a missing store.
      const auto status = backend::parse_address(value.c_str(), where);
      if (!status.ok()) usage(command, status.what, "see kvpool-address(7)");
      return;
    }
    case Kind::kText:
      if (value.size() >= option.min && value.size() <= option.max) return;
      usage(command, fmt::format("{}: {} bytes, expected {} to {}", option.name, value.size(),
                                 option.min, option.max));
    default:
      return;
  }
  if (number >= option.min && number <= option.max) return;
  // Sizes that have no limit but what a pool can name are easier to read in words.
  const bool words = option.kind == Kind::kBytes && option.max == kPoolBytesMax;
  usage(command, fmt::format("{}: {} is outside {} to {}", option.name, value, option.min,
                             words ? bytes_text(option.max) : std::to_string(option.max)));
}

void refuse_unknown(const CommandSpec &command, const std::vector<std::string> &left) {
  std::vector<std::string_view> known;
  for (const OptionSpec &option : command.options) {
    if (!option.positional() && !option.is(kHidden)) known.push_back(option.name);
  }
  for (const std::string &word : left) {
    if (!word.starts_with("-") || word == "-") continue;
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    const std::string_view near = nearest_word(name, known);
    usage(command, fmt::format("unknown option {}", name),
          near.empty() ? std::string() : fmt::format("did you mean {}?", near));
  }
  usage(command, fmt::format("'{}' is one argument too many", left.front()));
}

// What CLI11 says is for its own help; the cases that matter get our words.
[[noreturn]] void refuse_parse_error(const CommandSpec &command, const CLI::ParseError &error) {
  usage(command, error.what());
}

}  // namespace

Args parse_args(const CommandSpec &command, std::span<const std::string> words) {
  CLI::App app{std::string(command.about), std::string(command.name)};
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::vector<std::string>> values(command.options.size());
  std::vector<std::string> singles(command.options.size());  // a vector would take all that follows
  std::vector<CLI::Option *> single_options(command.options.size(), nullptr);
  for (std::size_t i = 0; i < command.options.size(); ++i) {
    const OptionSpec &option = command.options[i];
    const std::string name(option.name);
    if (option.kind == Kind::kFlag) {
      app.add_flag_callback(name, [&values, i] { values[i].push_back("1"); });
    } else if (option.positional() && !option.is(kMany)) {
      single_options[i] = app.add_option(name, singles[i]);
    } else if (option.positional()) {
      app.add_option(name, values[i])->expected(0, -1);
    } else {
      CLI::Option *added = app.add_option(name, values[i])->expected(1)->allow_extra_args(false);
      added->multi_option_policy(option.is(kMany) ? CLI::MultiOptionPolicy::TakeAll
                                                  : CLI::MultiOptionPolicy::TakeLast);
    }
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError &error) {
    refuse_parse_error(command, error);
  }
  auto left = app.remaining();
  // The parser hands back the "--" behind which nothing is an option.
  if (const auto dashes = std::find(left.begin(), left.end(), "--"); dashes != left.end()) {
    left.erase(dashes);
  }
  if (!left.empty()) refuse_unknown(command, left);
  for (std::size_t i = 0; i < single_options.size(); ++i) {
    if (single_options[i] != nullptr && single_options[i]->count() != 0) {
      values[i].push_back(std::move(singles[i]));
    }
  }
  Args args;
  for (std::size_t i = 0; i < command.options.size(); ++i) {
    const OptionSpec &option = command.options[i];
    if (values[i].empty() && option.is(kRequired)) {
      usage(command, fmt::format("{} is missing", option.name));
    }
    for (std::string &value : values[i]) {
      check_value(command, option, value);
      args.add(option.name, std::move(value));
    }
    const char *environment = std::getenv("KVPOOL");
    if (option.standard == "$KVPOOL" && !args.has(option.name) && environment != nullptr &&
        *environment != '\0') {
      check_value(command, option, environment);
    }
  }
  return args;
}

namespace {

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::string line;
  for (const std::string_view word : split(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > width - indent) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
  }
  return out + line;
}

std::string option_help(const OptionSpec &option) {
  std::string text(option.help);
  if (option.kind == Kind::kChoice) text += fmt::format(" One of {}.", option.choices);
  if (!option.standard.empty()) text += fmt::format(" Default: {}.", option.standard);
  return text;
}

std::string synopsis(const CommandSpec &command) {
  std::string text = fmt::format("kvpool {} [OPTION...]", command.name);
  for (const OptionSpec &option : command.options) {
    if (!option.positional() || option.is(kHidden)) continue;
    const std::string word = fmt::format("{}{}", option.name, option.is(kMany) ? "..." : "");
    text += option.is(kRequired) ? " " + word : fmt::format(" [{}]", word);
  }
  return text;
}

}  // namespace

std::string help_text(const CommandSpec &command) {
  std::string text = fmt::format("{}: {}\n\nUse: {}\n\n{}\n", command.name, command.summary,
                                 synopsis(command), wrapped(command.about, 0, 96));
  for (const bool positional : {true, false}) {
    std::string part;
    for (const OptionSpec &option : command.options) {
      if (option.positional() != positional || option.is(kHidden)) continue;
      std::string name(option.name);
      if (!positional && option.kind != Kind::kFlag) name += fmt::format(" {}", option.value);
      part += fmt::format("  {:<24}{}{}\n", name, name.size() >= 24 ? " " : "",
                          wrapped(option_help(option), 26, 96));
    }
    if (!positional) part += fmt::format("  {:<24}{}\n", "--help", "Print this and exit.");
    if (!part.empty()) text += fmt::format("\n{}:\n{}", positional ? "Arguments" : "Options", part);
  }
  return text;
}

std::string help_text() {
  std::string text =
      "kvpool: a KV-cache pool in memory that several hosts share\n\n"
      "Use: kvpool COMMAND [OPTION...]\n\nCommands:\n";
  for (const CommandSpec &command : commands()) {
    if (!command.hidden) text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  text +=
      "\nA store is named by its ADDRESS: mem:NAME, file:PATH[,PATH...], dax:/dev/daxX.Y,\n"
      "dev:NAME; without one $KVPOOL is used. See kvpool-address(7).\n"
      "kvpool COMMAND --help says more. Exit codes: 0 fine, 1 failed, 2 wrong use, 3 not found or\n"
      "nothing to do, 4 damaged store.\n";
  return text;
}

std::string table_as_json() {
  Json list = Json::array();
  for (const CommandSpec &command : commands()) {
    Json one;
    one["name"] = command.name;
    one["summary"] = command.summary;
    one["about"] = command.about;
    one["hidden"] = command.hidden;
    one["synopsis"] = synopsis(command);
    one["options"] = Json::array();
    for (const OptionSpec &option : command.options) {
      one["options"].push_back({{"name", option.name},
                                {"value", option.kind == Kind::kFlag ? "" : option.value},
                                {"default", option.standard},
                                {"choices", option.choices},
                                {"help", option.help},
                                {"hidden", option.is(kHidden)},
                                {"positional", option.positional()}});
    }
    list.push_back(std::move(one));
  }
  return list.dump(2) + "\n";
}

namespace {

std::string completion_bash() {
  std::string names;
  std::string cases;
  for (const CommandSpec &command : commands()) {
    if (command.hidden) continue;
    names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
    std::string options;
    std::string choices;
    bool files = false;
    for (const OptionSpec &option : command.options) {
      if (option.is(kHidden)) continue;
      if (!option.positional()) options += fmt::format("{} ", option.name);
      files = files || (option.positional() && option.kind == Kind::kFile);
      if (option.kind != Kind::kChoice) continue;
      std::string list(option.choices);
      std::replace(list.begin(), list.end(), '|', ' ');
      if (option.positional()) {
        options += list + " ";
      } else {
        choices +=
            fmt::format("        {}) COMPREPLY=($(compgen -W \"{}\" -- \"$word\")); return ;;\n",
                        option.name, list);
      }
    }
    cases += fmt::format("    {})\n", command.name);
    if (!choices.empty()) cases += fmt::format("      case $before in\n{}      esac\n", choices);
    cases += fmt::format("      words=\"{}--help\"; files={} ;;\n", options, files ? 1 : 0);
  }
  return fmt::format(
      "# SPDX-License-Identifier: Apache-2.0\n# bash completion of kvpool; made by: kvpool "
      "completion bash\n"
      "_kvpool() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words "
      "files=0\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$word\")); return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n"
      "{}"
      "    *) return ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
      "  if [ \"$files\" = 1 ]; then COMPREPLY+=($(compgen -f -- \"$word\")); fi\n"
      "}}\n"
      "complete -F _kvpool kvpool\n",
      names, cases);
}

std::string zsh_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':') {
      out += fmt::format("\\{}", c);
    } else {
      out += c;
    }
  }
  return out;
}

std::string completion_zsh() {
  std::string names;
  std::string cases;
  for (const CommandSpec &command : commands()) {
    if (command.hidden) continue;
    names += fmt::format("    '{}:{}'\n", command.name, zsh_quoted(command.summary));
    cases += fmt::format("    {})\n      _arguments -s \\\n", command.name);
    for (const OptionSpec &option : command.options) {
      if (option.is(kHidden)) continue;
      std::string action = option.kind == Kind::kFile ? "_files" : " ";
      if (option.kind == Kind::kChoice) {
        std::string list(option.choices);
        std::replace(list.begin(), list.end(), '|', ' ');
        action = fmt::format("({})", list);
      }
      if (option.positional()) {
        cases += fmt::format("        '{}:{}:{}' \\\n", option.is(kMany) ? "*" : "", option.name,
                             action);
      } else if (option.kind == Kind::kFlag) {
        cases += fmt::format("        '{}[{}]' \\\n", option.name, zsh_quoted(option.help));
      } else {
        cases += fmt::format("        '{}=[{}]:{}:{}' \\\n", option.name, zsh_quoted(option.help),
                             option.value, action);
      }
    }
    cases += "        '--help[Print help and exit.]' ;;\n";
  }
  return fmt::format(
      "#compdef kvpool\n"
      "# SPDX-License-Identifier: Apache-2.0\n# zsh completion of kvpool; made by: kvpool "
      "completion zsh\n"
      "_kvpool() {{\n"
      "  local -a commands\n"
      "  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "  local command=${{words[2]}}\n"
      "  shift words; (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "_kvpool \"$@\"\n",
      names, cases);
}

}  // namespace

std::string completion_text(std::string_view shell) {
  return shell == "zsh" ? completion_zsh() : completion_bash();
}

}  // namespace kvpool::tools
