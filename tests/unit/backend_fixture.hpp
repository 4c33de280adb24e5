// SPDX-License-Identifier: Apache-2.0
// What the backend tests share: a folder of their own, file systems of a chosen size, child
// processes.
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/vfs.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "backend/backend.hpp"
#include "media/format.hpp"

namespace backend_test {

using namespace kvpool;
using namespace kvpool::backend;

inline constexpr u64 kMiB = u64{1} << 20;

// The first word of a superblock, over what stands in the file.
inline void begin_as_store(const std::string &path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  cr_assert_geq(fd, 0);
  const ssize_t n = pwrite(fd, &media::kMagic, sizeof media::kMagic, 0);
  ::close(fd);
  cr_assert_eq(n, static_cast<ssize_t>(sizeof media::kMagic));
}

// A new empty folder, gone at the end.
class Folder {
public:
  Folder() {
    char name[] = "/tmp/kvpool-test-XXXXXX";
    cr_assert_not_null(mkdtemp(name));
    path_ = name;
  }
  ~Folder() {
    umount2(path_.c_str(), MNT_DETACH);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;

  const std::string &path() const { return path_; }
  std::string file(const std::string &name) const { return path_ + "/" + name; }
  bool empty() const { return std::filesystem::is_empty(path_); }

private:
  std::string path_;
};

inline bool write_text(const char *path, const std::string &text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

// A user namespace in which we are root: only a process with one thread may make one, and
// Criterion's workers have two. So a child makes it and runs this same test in it. Returns its exit
// code.
inline int rerun_as_root(const std::string &test) {
  const std::string uid = "0 " + std::to_string(getuid()) + " 1";
  const std::string gid = "0 " + std::to_string(getgid()) + " 1";
  Folder dir;
  const std::string mark = dir.file("ran");
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) _exit(77);
    write_text("/proc/self/setgroups", "deny");
    if (!write_text("/proc/self/uid_map", uid) || !write_text("/proc/self/gid_map", gid)) _exit(77);
    const std::string filter = "*/" + test;
    unsetenv("BXFI_MAP");  // else the program takes itself for a worker of this one
    setenv("KVPOOL_TEST_MARK", mark.c_str(), 1);
    execl("/proc/self/exe", "rerun", "--jobs", "1", "--filter", filter.c_str(), nullptr);
    _exit(78);
  }
  int status = 0;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // A filter that matches nothing ends well too.
  return code == 0 && !std::filesystem::exists(mark) ? 79 : code;
}

// Mounts of our own, which nobody else sees and which end with the process. True: go on with the
// test. False: it ran, and passed, as root of a user namespace. Skips where the machine forbids
// both.
inline bool own_mounts(const char *test) {
  if (unshare(CLONE_NEWNS) == 0) {
    if (const char *mark = getenv("KVPOOL_TEST_MARK")) std::ofstream(mark) << test;
    cr_assert_eq(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    return true;
  }
  if (getuid() == 0) cr_skip_test("root may not mount here");
  const int code = rerun_as_root(test);
  if (code == 77) cr_skip_test("this user may neither mount nor make a user namespace");
  cr_assert_eq(code, 0, "%s ended with %d in a user namespace", test, code);
  return false;
}

inline bool mount_tmpfs(const std::string &path, const std::string &options) {
  return mount("kvpool-test", path.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

inline u64 file_size(const std::string &path) { return std::filesystem::file_size(path); }

inline u64 free_bytes(const std::string &path) {
  struct statfs fs = {};
  cr_assert_eq(statfs(path.c_str(), &fs), 0);
  return static_cast<u64>(fs.f_bavail) * static_cast<u64>(fs.f_bsize);
}

inline void fill(Backend &backend, u8 value) {
  for (const auto &span : backend.devices()) std::memset(span.base, value, span.bytes);
}

inline Address parse(const std::string &text) {
  Address address;
  const auto s = parse_address(text.c_str(), address);
  cr_assert(s.ok(), "%s: %s", text.c_str(), s.what.c_str());
  return address;
}

// Success, or the failure with the message a user would read.
inline std::unique_ptr<Backend> must(const Status &s, std::unique_ptr<Backend> &made) {
  cr_assert(s.ok(), "%d: %s", s.err, s.what.c_str());
  cr_assert_not_null(made.get());
  return std::move(made);
}

inline std::unique_ptr<Backend> must_create(const std::string &text, CreateOptions options = {}) {
  std::unique_ptr<Backend> made;
  const auto s = Backend::create(parse(text), {}, options, made);
  return must(s, made);
}

inline std::unique_ptr<Backend> must_open(const std::string &text,
                                          OpenMode mode = OpenMode::kReadWrite) {
  std::unique_ptr<Backend> made;
  const auto s = Backend::open(parse(text), mode, {}, made);
  return must(s, made);
}

inline void expect_fail(const Status &s, int err, const std::string &says) {
  cr_expect_eq(s.err, err, "%d instead of %d: %s", s.err, err, s.what.c_str());
  cr_expect(s.what.find(says) != std::string::npos, "\"%s\" does not say \"%s\"", s.what.c_str(),
            says.c_str());
}

inline void expect_create_fails(const std::string &text, int err, const std::string &says,
                                CreateOptions options = {}) {
  std::unique_ptr<Backend> made;
  expect_fail(Backend::create(parse(text), {}, options, made), err, says);
  cr_expect_null(made.get());
}

inline void expect_open_fails(const std::string &text, int err, const std::string &says,
                              OpenMode mode = OpenMode::kReadWrite) {
  std::unique_ptr<Backend> made;
  expect_fail(Backend::open(parse(text), mode, {}, made), err, says);
  cr_expect_null(made.get());
}

// Runs `body` in a child and returns its exit code, or -signal.
template <class Body>
int in_child(Body body) {
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) _exit(body());
  int status = 0;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// A name for mem: that no other run uses.
inline std::string unique_name(const char *what) {
  return std::string("test-") + what + "-" + std::to_string(getpid());
}

// Removes a mem: pool at the end of a test, whatever happened in it.
class MemPool {
public:
  explicit MemPool(const char *what) : name_(unique_name(what)) {}
  ~MemPool() { Backend::remove(parse(text()), true); }
  MemPool(const MemPool &) = delete;
  MemPool &operator=(const MemPool &) = delete;
  const std::string &name() const { return name_; }
  std::string text(const std::string &options = "") const { return "mem:" + name_ + options; }

private:
  std::string name_;
};

}  // namespace backend_test
