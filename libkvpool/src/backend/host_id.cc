// SPDX-License-Identifier: Apache-2.0
// Reads the machine's and the boot's identity. Nothing here can fail: what is missing is replaced
// by the next best, since a host without an identity could not be told from another.
#include "backend/host_id.hpp"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>

namespace kvpool::backend {

namespace {

// Not by a stream: that takes a lack of memory for a missing file, and the host for another one.
std::string first_line(const std::string &path) {
  char text[128];
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  const std::string all(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  return all.substr(0, all.find('\n'));
}

Id128 hash(const std::string &text) {
  const std::string salted = "kvpool host:" + text;
  unsigned char digest[EVP_MAX_MD_SIZE] = {};
  unsigned int length = 0;
  if (EVP_Digest(salted.data(), salted.size(), digest, &length, EVP_sha256(), nullptr) != 1) {
    digest[0] = 1;  // a library without SHA-256: the host is still told apart by its boot
  }
  Id128 id;
  std::copy_n(digest, id.size(), id.begin());
  return id;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

Id128 machine_id_from(const std::string &machine_id_file, const std::string &name) {
  const std::string id = first_line(machine_id_file);
  // "uninitialized" stands in images that have not booted yet, alike in all of them.
  if (id.size() >= 32) return hash("id " + id);
  return hash("name " + name);
}

bool parse_boot_id(const std::string &text, Id128 &ret) {
  Id128 out{};
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    int value = 0;
    if (c >= '0' && c <= '9')
      value = c - '0';
    else if (c >= 'a' && c <= 'f')
      value = c - 'a' + 10;
    else
      return false;
    if (digits >= 32) return false;
    out[digits / 2] = static_cast<u8>(out[digits / 2] * 16 + value);
    ++digits;
  }
  if (digits != 32 || out == Id128{}) return false;
  ret = out;
  return true;
}

Id128 machine_id() { return machine_id_from("/etc/machine-id", host_name()); }

Id128 boot_nonce() {
  Id128 id{};
  if (parse_boot_id(first_line("/proc/sys/kernel/random/boot_id"), id)) return id;
  // No /proc: the boot time does not change while the kernel runs either, but the clock it is
  // reckoned from does, so that only its name can stand in.
  return hash("boot " + host_name());
}

}  // namespace kvpool::backend
