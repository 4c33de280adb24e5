// SPDX-License-Identifier: Apache-2.0
// kvpool get: one block to a file or standard output, whole and proven, or nothing.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

void write_all(int fd, const std::string &shown, const std::vector<char> &bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t wrote = write(fd, bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail(kExitFailed, shown, std::strerror(errno));
    at += static_cast<std::size_t>(wrote);
  }
}

}  // namespace

int cmd_get(const Args &args) {
  const std::string address = store_address(args, "--pool");
  const std::string name = args.text("--ns", "default");
  const std::string path = args.text("FILE");
  const bool to_stdout = path.empty() || path == "-";
  if (to_stdout && args.json()) {
    fail(kExitUsage, "FILE", "is missing: with --json the bytes need a file of their own");
  }
  OpenAs as;
  as.name = "get";
  as.flags = KVPOOL_OPEN_F_READ_ONLY;
  Context ctx = open_store(address, as);
  Namespace ns = open_namespace(ctx.get(), name, args, false);
  const kvpool_key key = key_of(ns.get(), args.text("KEY"), args);
  const std::uint64_t deadline = deadline_in(args.real("--timeout", 5));
  kvpool_hit hit = {};
  checked(kvpool_lookup(ns.get(), &key, 1, 0, deadline, &hit), ctx.get(), address);
  if (hit.state != KVPOOL_STATE_HIT) {
    fail(kExitNothing, args.text("KEY"),
         hit.state == KVPOOL_STATE_PENDING ? "another member is still computing this block"
                                           : "no such block",
         "kvpool why says more");
  }
  std::vector<char> bytes(hit.bytes);
  const int got =
      checked(kvpool_get(ns.get(), &key, bytes.data(), bytes.size(), deadline), ctx.get(), address);
  if (got == 0) fail(kExitNothing, args.text("KEY"), "the block went away while it was read");
  if (to_stdout) {
    write_all(STDOUT_FILENO, "standard output", bytes);
  } else {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) fail(kExitFailed, path, std::strerror(errno));
    write_all(fd, path, bytes);
    if (close(fd) != 0) fail(kExitFailed, path, std::strerror(errno));
  }
  if (args.json()) {
    Json data;
    data["key"] = key_text(key);
    data["namespace"] = name;
    data["bytes"] = bytes.size();
    data["file"] = path;
    print_json("get", std::move(data));
  }
  return kExitFine;
}

}  // namespace kvpool::tools
