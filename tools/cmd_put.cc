// SPDX-License-Identifier: Apache-2.0
// kvpool put: one block from a file or standard input.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "client.hpp"
#include "commands.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

constexpr std::uint64_t kBlockBytesMax = std::uint64_t{4} << 30;

std::string read_all(const std::string &path) {
  const bool standard = path.empty() || path == "-";
  const std::string shown = standard ? "standard input" : path;
  const int fd = standard ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(exit_code_of(errno), shown, std::strerror(errno));
  std::string bytes;
  std::string chunk(1 << 20, '\0');
  for (;;) {
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      if (!standard) close(fd);
      fail(kExitFailed, shown, std::strerror(error));
    }
    if (got == 0) break;
    bytes.append(chunk, 0, static_cast<std::size_t>(got));
    if (bytes.size() > kBlockBytesMax)
      fail(kExitFailed, shown, "more bytes than a block can hold (4 GiB)");
  }
  if (!standard) close(fd);
  if (bytes.empty()) fail(kExitNothing, shown, "is empty, and a block has at least one byte");
  return bytes;
}

}  // namespace

int cmd_put(const Args &args) {
  const std::string address = store_address(args, "--pool");
  const std::string name = args.text("--ns", "default");
  const std::string bytes = read_all(args.text("FILE"));
  const bool dry = args.has("--dry-run");
  OpenAs as;
  as.name = "put";
  if (args.has("--embedded") && !dry) as.owner = KVPOOL_OWNER_EMBEDDED;
  if (dry) as.flags = KVPOOL_OPEN_F_READ_ONLY;
  Context ctx = open_store(address, as);
  Namespace ns = open_namespace(ctx.get(), name, args, !dry);
  const kvpool_key key = key_of(ns.get(), args.text("KEY"), args);
  const std::uint64_t deadline = deadline_in(args.real("--timeout", 5));
  bool stored = false;
  if (dry) {
    stored =
        checked(kvpool_lookup(ns.get(), &key, 1, 0, deadline, nullptr), ctx.get(), address) == 0;
  } else if (args.has("--parent")) {
    kvpool_block block = {};
    block.key = key;
    block.parent = key_of(ns.get(), args.text("--parent"), args);
    block.plan.buf = const_cast<char *>(bytes.data());
    block.plan.bytes = bytes.size();
    int32_t status = KVPOOL_STATUS_OK;
    checked(kvpool_put_blocks(ns.get(), &block, 1, deadline, &status), ctx.get(), address);
    if (status != KVPOOL_STATUS_OK && status != KVPOOL_STATUS_EXISTS) {
      fail(kExitFailed, address, kvpool_status_name(static_cast<kvpool_status>(status)));
    }
    stored = status == KVPOOL_STATUS_OK;
  } else {
    stored = checked(kvpool_put(ns.get(), &key, bytes.data(), bytes.size(), deadline), ctx.get(),
                     address) == 1;
  }
  if (args.json()) {
    Json data;
    data["key"] = key_text(key);
    data["namespace"] = name;
    data["bytes"] = bytes.size();
    data["stored"] = stored && !dry;
    if (dry) data["would_store"] = stored;
    data["dry_run"] = dry;
    print_json("put", std::move(data));
  } else {
    print_text(fmt::format("{} {} ({} bytes)\n", key_text(key),
                           stored ? dry ? "would be stored" : "stored" : "was there already",
                           bytes.size()));
  }
  return kExitFine;
}

}  // namespace kvpool::tools
