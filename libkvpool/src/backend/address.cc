// SPDX-License-Identifier: Apache-2.0
// Parses addresses. Owns the list of schemes and options; every refusal is worded here.
#include "backend/address.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "backend/driver.hpp"

namespace kvpool::backend {

namespace {

constexpr std::size_t kNameMax = 200;   // leaves room for "kvpool-" and ".15" below NAME_MAX
constexpr std::size_t kPathMax = 4095;  // PATH_MAX less its end
constexpr u64 kPoolBytesMax = u64{kMaxDevices} << PoolOffset::kDeviceShift;

const std::vector<std::string_view> kSchemes = {"mem", "file", "dax", "dev"};
const std::vector<std::string_view> kOptions = {"size", "devices", "host", "huge"};

constexpr const char *kWaysOn =
    "no pool named: give an address or set KVPOOL, for example KVPOOL=file:/var/lib/kvpool/pool, "
    "KVPOOL=dax:/dev/dax0.0?host=0, or KVPOOL=mem:NAME?size=1GiB for memory of this machine alone";

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, change});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// ": did you mean X?" or the whole list.
std::string advice(std::string_view word, const std::vector<std::string_view> &known) {
  if (const auto near = nearest(word, known); !near.empty()) {
    return "; did you mean " + quoted(near) + "?";
  }
  std::string out = "; known are ";
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (i > 0) out += i + 1 == known.size() ? " and " : ", ";
    out += known[i];
  }
  return out;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// The name becomes part of a file name in /dev/shm, so that it may hold no '/' and nothing hidden.
Status check_name(std::string_view scheme, std::string_view name) {
  const std::string head = std::string(scheme) + ": ";
  if (name.empty()) return Status::fail(-EINVAL, head + "a name must follow, as in mem:demo");
  if (name.size() > kNameMax) {
    return Status::fail(-ENAMETOOLONG, head + "the name has " + std::to_string(name.size()) +
                                           " characters, at most " + std::to_string(kNameMax));
  }
  if (name.find('/') != std::string_view::npos) {
    return Status::fail(-EINVAL, head + "the name " + quoted(name) +
                                     " holds a '/': for a path write file:" + std::string(name));
  }
  if (name[0] == '.' || !std::all_of(name.begin(), name.end(), is_name_char)) {
    return Status::fail(-EINVAL, head + "the name " + quoted(name) +
                                     " may hold letters, digits, '_', '-' and, not first, '.'");
  }
  return {};
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// A path may need ',' '?' or '%' of its own: these are written %2C, %3F, %25.
Status decode_path(std::string_view text, std::string &ret) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) {
      return Status::fail(
          -EINVAL,
          "path " + quoted(text) + ": '%' must be followed by two hex digits; write %25 for '%'");
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  ret = std::move(out);
  return {};
}

Status parse_paths(Address &out, std::string_view body) {
  while (true) {
    const std::size_t comma = body.find(',');
    const std::string_view part = body.substr(0, comma);
    if (part.empty()) {
      return Status::fail(
          -EINVAL, quoted(out.text) + ": a path is empty; write file:PATH or file:PATH,PATH");
    }
    std::string path;
    if (auto s = decode_path(part, path); !s.ok()) return s;
    if (path.size() > kPathMax) {
      return Status::fail(-ENAMETOOLONG, "a path of " + std::to_string(path.size()) +
                                             " characters is longer than " +
                                             std::to_string(kPathMax));
    }
    if (std::find(out.paths.begin(), out.paths.end(), path) != out.paths.end()) {
      return Status::fail(-EINVAL,
                          quoted(path) + " is named twice; each device needs its own file");
    }
    out.paths.push_back(std::move(path));
    if (out.paths.size() > kMaxDevices) {
      return Status::fail(-E2BIG,
                          "more than " + std::to_string(kMaxDevices) + " devices are named");
    }
    if (comma == std::string_view::npos) return {};
    body.remove_prefix(comma + 1);
  }
}

Status parse_partitions(Address &out, std::string_view body) {
  for (;;) {
    const std::size_t plus = body.find('+');
    const std::string_view name = body.substr(0, plus);
    std::string path = partition_path(name);
    if (path.empty()) {
      const bool is_path = name.starts_with("/dev/");
      return Status::fail(
          -EINVAL, "dev: the partition's name " + quoted(name) +
                       (is_path ? " is a path: write what follows /dev/kvpool-, as in dev:prod"
                                : " must be 1 to 31 small letters, digits and, not first, '-'"));
    }
    if (std::find(out.paths.begin(), out.paths.end(), path) != out.paths.end()) {
      return Status::fail(-EINVAL, "partition " + quoted(name) +
                                       " is named twice; each device needs its own");
    }
    out.paths.push_back(std::move(path));
    if (out.paths.size() > kMaxDevices) {
      return Status::fail(-E2BIG,
                          "more than " + std::to_string(kMaxDevices) + " partitions are named");
    }
    if (plus == std::string_view::npos) return {};
    body.remove_prefix(plus + 1);
  }
}

Status parse_count(std::string_view option, std::string_view text, u32 low, u32 high, u32 &ret) {
  u64 value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  const bool huge = error == std::errc::result_out_of_range;
  if (!whole && !huge) {
    return Status::fail(
        -EINVAL, "option " + std::string(option) + ": " + quoted(text) + " is not a whole number");
  }
  if (huge || value < low || value > high) {
    return Status::fail(-ERANGE, "option " + std::string(option) + ": " + std::string(text) +
                                     " is not within " + std::to_string(low) + " to " +
                                     std::to_string(high));
  }
  ret = static_cast<u32>(value);
  return {};
}

Status parse_switch(std::string_view option, std::string_view text, bool &ret) {
  if (text == "1" || text == "yes" || text == "on") {
    ret = true;
  } else if (text == "0" || text == "no" || text == "off") {
    ret = false;
  } else {
    return Status::fail(
        -EINVAL, "option " + std::string(option) + ": " + quoted(text) + " is neither yes nor no");
  }
  return {};
}

template <class T, class Parse>
Status set_once(std::string_view key, std::optional<T> &slot, Parse parse) {
  if (slot) return Status::fail(-EINVAL, "option " + std::string(key) + " is given twice");
  T value{};
  if (auto s = parse(value); !s.ok()) return s;
  slot = value;
  return {};
}

Status parse_option(Address &out, std::string_view item) {
  const std::size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  if (std::find(kOptions.begin(), kOptions.end(), key) == kOptions.end()) {
    return Status::fail(-EINVAL, "unknown option " + quoted(key) + advice(key, kOptions));
  }
  if (equals == std::string_view::npos || equals + 1 == item.size()) {
    return Status::fail(-EINVAL, "option " + std::string(key) + " needs a value");
  }
  const std::string_view value = item.substr(equals + 1);
  if (key == "size") {
    return set_once<u64>(key, out.size, [&](u64 &v) {
      auto s = parse_size(value, v);
      if (s.ok() && v == 0) s = Status::fail(-ERANGE, "a pool of 0 bytes is none");
      if (!s.ok()) s.what = "option size: " + s.what;
      return s;
    });
  }
  if (key == "devices") {
    return set_once<u32>(key, out.devices,
                         [&](u32 &v) { return parse_count(key, value, 1, kMaxDevices, v); });
  }
  if (key == "host") {
    return set_once<u32>(key, out.host,
                         [&](u32 &v) { return parse_count(key, value, 0, kMaxHosts - 1, v); });
  }
  return set_once<bool>(key, out.huge, [&](bool &v) { return parse_switch(key, value, v); });
}

Status parse_options(Address &out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t amp = text.find('&');
    if (auto s = parse_option(out, text.substr(0, amp)); !s.ok()) return s;
    if (amp == std::string_view::npos) break;
    text.remove_prefix(amp + 1);
  }
  return {};
}

// What only makes sense for some schemes.
Status check_combination(const Address &a) {
  if (a.devices && a.scheme != Scheme::kMem && *a.devices != a.paths.size()) {
    return Status::fail(-EINVAL, "option devices says " + std::to_string(*a.devices) + ", but " +
                                     std::to_string(a.paths.size()) +
                                     (a.scheme == Scheme::kDev ? " partitions are named"
                                                                 : " paths are named"));
  }
  if (!is_device(a.scheme)) return {};
  if (a.size) {
    return Status::fail(-EINVAL,
                        a.scheme == Scheme::kDax
                            ? "option size: a dax device has a size of its own; leave it out"
                            : "option size: a partition has a size of its own; leave it out");
  }
  if (a.scheme == Scheme::kDev) {
    if (a.host) {
      return Status::fail(-EINVAL,
                          "option host: the driver knows this host's number; leave it out");
    }
    if (a.huge) {
      return Status::fail(-EINVAL,
                          "option huge: the driver maps as large as it can; leave it out");
    }
    return {};
  }
  if (!a.host) {
    return Status::fail(
        -EINVAL,
        "dax: the memory may be shared by several hosts, so that this one needs its "
        "number: append ?host=N, a different N (0 to 15) on each host");
  }
  return {};
}

Status parse_scheme(std::string_view word, Scheme &ret) {
  if (word == "mem")
    ret = Scheme::kMem;
  else if (word == "file")
    ret = Scheme::kFile;
  else if (word == "dax")
    ret = Scheme::kDax;
  else if (word == "dev")
    ret = Scheme::kDev;
  else
    return Status::fail(-EINVAL, "unknown scheme " + quoted(word) + advice(word, kSchemes));
  return {};
}

}  // namespace

std::string_view nearest(std::string_view word, const std::vector<std::string_view> &known) {
  constexpr std::size_t kNear = 2;
  std::string_view best;
  std::size_t best_distance = kNear + 1;
  for (const auto candidate : known) {
    std::size_t distance = edit_distance(word, candidate);
    const std::size_t common = std::min(word.size(), candidate.size());
    // "device" or "sz": a word and its beginning are near however much is missing.
    if (common >= 2 && word.substr(0, common) == candidate.substr(0, common)) {
      distance = std::min<std::size_t>(distance, 1);
    }
    // Two edits of a three-letter word can reach anything.
    if (distance >= common) continue;
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

Status parse_size(std::string_view text, u64 &ret) {
  static const std::vector<std::string_view> kUnits = {"KiB", "MiB", "GiB", "TiB", "K",
                                                       "M",   "G",   "T",   "B"};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit = text.substr(digits);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (number.empty() || error != std::errc{} || end != number.data() + number.size()) {
    return Status::fail(-EINVAL, quoted(text) + " is not a size; write for example 64MiB or 1GiB");
  }
  int shift = 0;
  if (!unit.empty()) {
    const auto found = std::find(kUnits.begin(), kUnits.end(), unit);
    if (found == kUnits.end()) {
      return Status::fail(-EINVAL,
                          quoted(text) + ": unknown unit " + quoted(unit) + advice(unit, kUnits));
    }
    const std::size_t place = static_cast<std::size_t>(found - kUnits.begin());
    shift = place == 8 ? 0 : 10 * (static_cast<int>(place % 4) + 1);
  }
  const double bytes = std::ldexp(value, shift);
  if (bytes >= static_cast<double>(kPoolBytesMax)) {
    return Status::fail(-ERANGE, quoted(text) + " is more than a pool can have");
  }
  // Whole numbers above 2^53 lose nothing: only a binary multiple is ever that large, or the text
  // was in plain bytes, where the last bits decide nothing since sizes are whole stripes.
  const u64 whole = static_cast<u64>(bytes);
  if (static_cast<double>(whole) != bytes) {
    return Status::fail(-EINVAL, quoted(text) + " is not a whole number of bytes");
  }
  ret = whole;
  return {};
}

std::string format_size(u64 bytes) {
  static constexpr const char *kNames[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[48];
  const bool whole = value == std::floor(value);
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text;
}

std::string shm_name(const std::string &name, u32 device) {
  return "/kvpool-" + name + "." + std::to_string(device);
}

Status parse_address(const char *text, Address &ret) {
  if (text == nullptr || *text == '\0') text = std::getenv("KVPOOL");
  if (text == nullptr || *text == '\0') return Status::fail(-ENODEV, kWaysOn);

  Address out;
  out.text = text;
  const std::string_view all = out.text;
  const std::size_t colon = all.find(':');
  if (colon == std::string_view::npos || all.find('/') < colon) {
    std::string hint = all[0] == '/' || all[0] == '.' ? "; for a file write file:" + out.text
                                                      : "; write mem:, file:, dax: or dev: first";
    return Status::fail(-EINVAL, "address " + quoted(all) + " has no scheme" + hint);
  }
  if (auto s = parse_scheme(all.substr(0, colon), out.scheme); !s.ok()) {
    return Status::fail(s.err, "address " + quoted(all) + ": " + s.what);
  }
  const std::size_t question = all.find('?', colon);
  const std::string_view body =
      all.substr(colon + 1, question == std::string_view::npos ? question : question - colon - 1);
  const std::string_view options =
      question == std::string_view::npos ? std::string_view{} : all.substr(question + 1);

  Status s;
  if (out.scheme == Scheme::kMem) {
    s = check_name(all.substr(0, colon), body);
    if (s.ok()) out.name = body;
  } else if (out.scheme == Scheme::kDev) {
    s = parse_partitions(out, body);
  } else {
    s = parse_paths(out, body);
  }
  if (s.ok()) s = parse_options(out, options);
  if (s.ok()) s = check_combination(out);
  if (!s.ok()) return Status::fail(s.err, "address " + quoted(all) + ": " + s.what);
  ret = std::move(out);
  return {};
}

Status device_sizes(const Address &address, std::vector<u64> &ret) {
  const u64 count =
      address.scheme == Scheme::kMem ? address.devices.value_or(1) : address.paths.size();
  if (!address.size) {
    return Status::fail(-EINVAL,
                        quoted(address.text) + ": a new pool needs a size; append ?size=1GiB");
  }
  const u64 each = *address.size / count / kDeviceAlign * kDeviceAlign;
  if (each == 0) {
    return Status::fail(-ERANGE, quoted(address.text) + ": " + format_size(*address.size) +
                                     " is too small; each device takes at least " +
                                     format_size(kDeviceAlign));
  }
  if (each > PoolOffset::kByteMask) {
    return Status::fail(-ERANGE, quoted(address.text) + ": a device cannot be larger than 64 PiB");
  }
  ret.assign(count, each);
  return {};
}

}  // namespace kvpool::backend
