// SPDX-License-Identifier: Apache-2.0
// Starting and ending child processes (children.hpp).
#include "replay/children.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "client.hpp"
#include "say.hpp"

namespace kvpool::tools {

namespace {

[[noreturn]] void become(char *const *argv, const SpawnOptions &options, int out, pid_t parent) {
  // Only what may be called between fork and exec.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  for (const int fd : options.inherit) fcntl(fd, F_SETFD, 0);
  if (out >= 0) dup2(out, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv("/proc/self/exe", argv);
  _exit(127);
}

}  // namespace

Child spawn_self(const std::vector<std::string> &arguments, const SpawnOptions &options) {
  std::vector<std::string> words{"kvpool"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char *> argv;
  for (std::string &word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int pipe_fds[2] = {-1, -1};
  if (options.capture_stdout && pipe2(pipe_fds, O_CLOEXEC) != 0) {
    fail(kExitFailed, "pipe", std::strerror(errno));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(argv.data(), options, pipe_fds[1], parent);
  const int error = errno;
  if (pipe_fds[1] >= 0) close(pipe_fds[1]);
  if (pid < 0) {
    if (pipe_fds[0] >= 0) close(pipe_fds[0]);
    fail(kExitFailed, "fork", std::strerror(error));
  }
  return {pid, pipe_fds[0]};
}

int wait_child(pid_t pid, double seconds) {
  const std::uint64_t until = deadline_in(seconds);
  for (;;) {
    int status = 0;
    const pid_t got = waitpid(pid, &status, WNOHANG);
    if (got == pid) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (got < 0 && errno != EINTR) return 0;  // not ours any more
    if (now_ns() >= until) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

int stop_child(pid_t pid, double seconds) {
  if (pid <= 0) return 0;
  kill(pid, SIGTERM);
  const int code = wait_child(pid, seconds);
  if (code >= 0) return code;
  kill(pid, SIGKILL);
  return wait_child(pid, 10);
}

std::string read_to_end(int fd) {
  std::string text;
  char chunk[65536];
  for (;;) {
    const ssize_t got = read(fd, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(chunk, static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

}  // namespace kvpool::tools
