// SPDX-License-Identifier: Apache-2.0
// Stores that last as long as a command (scratch.hpp).
#include "replay/scratch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "backend/backend.hpp"
#include "client.hpp"
#include "media/format.hpp"

namespace kvpool::tools {

namespace {

constexpr double kStartSeconds = 60;

}  // namespace

std::uint64_t free_bytes(const std::string &folder) {
  struct statvfs fs = {};
  if (statvfs(folder.c_str(), &fs) != 0) return 0;
  return static_cast<std::uint64_t>(fs.f_bavail) * fs.f_frsize;
}

Scratch::Scratch(const ScratchOptions &options) : address_(options.address) {
  if (!address_.empty()) return;
  choose_place(options.where, options.bytes);
  kvpool_format_opts opts = KVPOOL_OPTS(kvpool_format_opts);
  opts.size_bytes = options.bytes;
  opts.block_bytes = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(options.block_bytes, 4096, std::uint64_t{1} << 30));
  // A host has room for so many members; beyond that the store is laid out for several, and members
  // say that they run on them.
  opts.hosts = (options.members + media::kMaxMembersPerHost - 1) / media::kMaxMembersPerHost;
  opts.members_per_host = opts.hosts == 1 ? options.members : media::kMaxMembersPerHost;
  members_beside_ = options.members - std::min(options.members, options.members_spread);
  // What stands at an address that somebody named is not ours to overwrite.
  const bool named = options.where.starts_with("file:") || options.where.size() > 4;
  opts.flags = named ? 0 : KVPOOL_FORMAT_F_YES;
  opts.deadline_ns = deadline_in(600);
  const int result = kvpool_format(address_.c_str(), &opts);
  if (result < 0 && !folder_.empty()) rmdir(folder_.c_str());
  checked(result, nullptr, address_);
  ours_ = true;
}

std::string Scratch::address_of_member(std::uint64_t number) const {
  const std::uint64_t host = (number + members_beside_) / media::kMaxMembersPerHost;
  if (!ours_ || host == 0) return address_;
  return fmt::format("{}&host={}", address_, host);  // it has a size= already
}

Scratch::~Scratch() {
  if (ours_) {
    backend::Address where;
    if (backend::parse_address(address_.c_str(), where).ok()) backend::Backend::remove(where, true);
  }
  if (!folder_.empty()) rmdir(folder_.c_str());
}

void Scratch::choose_place(const std::string &where, std::uint64_t bytes) {
  if (where.starts_with("file:")) {
    const char *separator = where.find('?') == std::string::npos ? "?" : "&";
    address_ = fmt::format("{}{}size={}", where, separator, bytes);
    return;
  }
  if (!where.starts_with("mem:")) fail(kExitUsage, "--scratch", "expected mem: or file:PATH");
  if (free_bytes("/dev/shm") >= bytes + bytes / 16) {
    const std::string name =
        where.size() > 4 ? where.substr(4) : fmt::format("scratch-{}", getpid());
    address_ = fmt::format("mem:{}?size={}", name, bytes);
    return;
  }
  // In a container shared memory is often 64 MiB.
  const char *given = std::getenv("TMPDIR");
  std::string base = given != nullptr && *given != '\0' ? given : "/tmp";
  if (free_bytes(base) < bytes + bytes / 16 && free_bytes("/var/tmp") > free_bytes(base)) {
    base = "/var/tmp";
  }
  std::string folder = base + "/kvpool-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) fail(kExitFailed, folder, std::strerror(errno));
  folder_ = folder;
  address_ = fmt::format("file:{}/pool?size={}", folder, bytes);
  std::fprintf(stderr, "shared memory has no room for %s, so this uses %s\n",
               bytes_text(bytes).c_str(), address_.c_str());
}

OwnerProcess::OwnerProcess(const std::string &address, bool huge) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) fail(kExitFailed, "pipe", std::strerror(errno));
  SpawnOptions options;
  options.capture_stdout = true;
  options.inherit = {ready[1]};
  std::vector<std::string> words{"serve", address, "--ready-fd", std::to_string(ready[1]),
                                 "--json"};
  if (huge) words.push_back("--huge");
  child_ = spawn_self(words, options);
  close(ready[1]);
  const std::uint64_t until = deadline_in(kStartSeconds);
  bool good = false;
  while (!good && !stop_requested() && now_ns() < until) {
    pollfd wait = {ready[0], POLLIN, 0};
    if (poll(&wait, 1, 200) <= 0) continue;
    char word[8];
    good = read(ready[0], word, sizeof(word)) > 0;
    if (!good) break;  // it ended
  }
  close(ready[0]);
  if (good) return;
  stop();
  if (stop_requested()) fail(kExitFailed, address, "interrupted");
  fail(kExitFailed, address, "its owner did not start");
}

OwnerProcess::~OwnerProcess() { stop(); }

bool OwnerProcess::running() {
  if (child_.pid <= 0) return false;
  if (wait_child(child_.pid, 0) < 0) return true;
  child_.pid = -1;  // its number may be another process's soon
  return false;
}

Json OwnerProcess::stop() {
  if (child_.pid <= 0) return {};
  const int code = stop_child(child_.pid, 20);
  child_.pid = -1;
  const Json said = Json::parse(read_to_end(child_.out), nullptr, false);
  if (code != 0 || said.is_discarded() || !said.contains("data")) return {};
  return said["data"];
}

}  // namespace kvpool::tools
