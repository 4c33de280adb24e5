// SPDX-License-Identifier: Apache-2.0
// Shows: a place of a store has one holder on this machine; death lets go of it, fork does not.
// How: several Backends in one process, children that exec, die by SIGKILL or live on, races.
#include <signal.h>

#include "backend_fixture.hpp"

using namespace backend_test;

namespace {

LockState state_of(Backend &backend, LockKind kind, u32 index) {
  LockState state = LockState::kFree;
  cr_assert_eq(backend.locks().query(kind, index, state), 0);
  return state;
}

// A child that stays until it is killed; the parent goes on once `ready` has run in it.
template <class Ready>
pid_t living_child(Ready ready) {
  int ends[2];
  cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    const char verdict = ready() ? 'y' : 'n';
    if (write(ends[1], &verdict, 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ends[1]);
  char verdict = 0;
  cr_assert_eq(read(ends[0], &verdict, 1), 1);
  close(ends[0]);
  cr_assert_eq(verdict, 'y');
  return pid;
}

void kill_and_wait(pid_t pid) {
  cr_assert_eq(kill(pid, SIGKILL), 0);
  int status = 0;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

std::unique_ptr<Backend> new_pool(const MemPool &pool) {
  auto made = must_create(pool.text("?size=2MiB"));
  cr_assert_eq(made->locks().unlock(LockKind::kFormat, 0), 0);
  return made;
}

}  // namespace

Test(backend_locks, two_openings_in_one_process_exclude_each_other) {
  MemPool pool("two");
  const auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  cr_expect_eq(a->locks().try_lock(LockKind::kMember, 7), 0);
  cr_expect_eq(a->locks().try_lock(LockKind::kMember, 7), -EALREADY);
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 7), -EAGAIN);
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 8), 0);
  cr_expect(state_of(*a, LockKind::kMember, 7) == LockState::kHere);
  cr_expect(state_of(*b, LockKind::kMember, 7) == LockState::kElsewhere);
  cr_expect(state_of(*b, LockKind::kMember, 6) == LockState::kFree);
  cr_expect_eq(b->locks().unlock(LockKind::kMember, 7), 0, "not held here: nothing to do");
  cr_expect(state_of(*a, LockKind::kMember, 7) == LockState::kHere);
  cr_expect_eq(a->locks().unlock(LockKind::kMember, 7), 0);
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 7), 0);
}

Test(backend_locks, closing_lets_go) {
  MemPool pool("close");
  auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  cr_expect_eq(a->locks().try_lock(LockKind::kHost, 0), 0);
  a.reset();
  cr_expect_eq(b->locks().try_lock(LockKind::kHost, 0), 0);
}

// POSIX locks would go when any descriptor of the file in the process is closed.
Test(backend_locks, closing_another_opening_keeps_them) {
  MemPool pool("other");
  const auto a = new_pool(pool);
  cr_expect_eq(a->locks().try_lock(LockKind::kHost, 3), 0);
  must_open(pool.text()).reset();
  const auto b = must_open(pool.text());
  cr_expect_eq(b->locks().try_lock(LockKind::kHost, 3), -EAGAIN);
}

Test(backend_locks, every_place_is_its_own) {
  MemPool pool("all");
  const auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  const LockKind kinds[] = {LockKind::kFormat, LockKind::kHost, LockKind::kMember,
                            LockKind::kStandby};
  for (const auto kind : kinds) {
    const u32 count = kLockCount[static_cast<u32>(kind)];
    for (u32 i = 0; i < count; ++i) {
      // Alternating holders: a place that overlapped another would be refused.
      Backend &holder = i % 2 == 0 ? *a : *b;
      cr_expect_eq(holder.locks().try_lock(kind, i), 0, "kind %u place %u", static_cast<u32>(kind),
                   i);
    }
    cr_expect_eq(a->locks().try_lock(kind, count), -EINVAL);
    LockState state = LockState::kHere;
    cr_expect_eq(a->locks().query(kind, count, state), -EINVAL);
    cr_expect_eq(a->locks().unlock(kind, ~0u), -EINVAL);
  }
  cr_expect_eq(a->locks().try_lock(static_cast<LockKind>(4), 0), -EINVAL);
  for (const auto kind : kinds) {
    for (u32 i = 0; i < kLockCount[static_cast<u32>(kind)]; ++i) {
      cr_expect(state_of(*a, kind, i) == (i % 2 == 0 ? LockState::kHere : LockState::kElsewhere));
    }
  }
}

Test(backend_locks, first_free_place_and_ranges) {
  MemPool pool("first");
  const auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  u32 got = 99;
  cr_expect_eq(a->locks().try_lock_first(LockKind::kMember, 16, 18, got), 0);
  cr_expect_eq(got, 16u);
  cr_expect_eq(b->locks().try_lock_first(LockKind::kMember, 16, 18, got), 0);
  cr_expect_eq(got, 17u);
  cr_expect_eq(a->locks().try_lock_first(LockKind::kMember, 16, 18, got), -EAGAIN);
  cr_expect_eq(got, 17u, "untouched on failure");
  cr_expect_eq(a->locks().try_lock_first(LockKind::kMember, 18, 18, got), -EINVAL);
  cr_expect_eq(a->locks().try_lock_first(LockKind::kMember, 250, 255, got), -EINVAL);

  bool any = false;
  cr_expect_eq(a->locks().any_elsewhere(LockKind::kMember, 0, 254, any), 0);
  cr_expect(any);
  cr_expect_eq(a->locks().any_elsewhere(LockKind::kMember, 16, 17, any), 0);
  cr_expect(!any, "own locks do not count");
  cr_expect_eq(a->locks().any_elsewhere(LockKind::kMember, 17, 18, any), 0);
  cr_expect(any);
  cr_expect_eq(a->locks().any_elsewhere(LockKind::kStandby, 0, 16, any), 0);
  cr_expect(!any);
  cr_expect_eq(a->locks().any_elsewhere(LockKind::kStandby, 0, 17, any), -EINVAL);
}

Test(backend_locks, kill_lets_go) {
  MemPool pool("kill");
  const auto a = new_pool(pool);
  const auto text = pool.text();
  const pid_t pid = living_child([&] {
    const auto mine = must_open(text);
    const bool ok = mine->locks().try_lock(LockKind::kMember, 1) == 0;
    static std::unique_ptr<Backend> keep;
    keep = must_open(text);
    return ok && keep->locks().try_lock(LockKind::kStandby, 1) == 0;
  });
  cr_expect(state_of(*a, LockKind::kMember, 1) == LockState::kFree, "its Backend is gone already");
  cr_expect_eq(a->locks().try_lock(LockKind::kStandby, 1), -EAGAIN);
  cr_expect(state_of(*a, LockKind::kStandby, 1) == LockState::kElsewhere);
  kill_and_wait(pid);
  cr_expect_eq(a->locks().try_lock(LockKind::kStandby, 1), 0);
}

// The documented trap: fork shares the open file description, so the child holds on to the locks.
Test(backend_locks, forked_child_keeps_them_and_may_not_use_them) {
  MemPool pool("fork");
  auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  cr_assert_eq(a->locks().try_lock(LockKind::kMember, 0), 0);
  const pid_t pid = living_child([&] {
    LockState state = LockState::kFree;
    bool any = false;
    u32 index = 0;
    return a->locks().unlock(LockKind::kMember, 0) == -ESTALE &&
           a->locks().try_lock(LockKind::kMember, 1) == -ESTALE &&
           a->locks().try_lock_first(LockKind::kMember, 0, 9, index) == -ESTALE &&
           a->locks().any_elsewhere(LockKind::kMember, 0, 9, any) == -ESTALE &&
           a->locks().query(LockKind::kMember, 0, state) == -ESTALE;
  });
  cr_expect(state_of(*b, LockKind::kMember, 0) == LockState::kElsewhere);
  a.reset();
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 0), -EAGAIN, "the child lives");
  kill_and_wait(pid);
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 0), 0);
}

Test(backend_locks, a_child_that_ends_keeps_the_parents_locks) {
  MemPool pool("child-end");
  auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  cr_assert_eq(a->locks().try_lock(LockKind::kMember, 0), 0);
  cr_expect_eq(in_child([&] {
                 a.reset();  // closes its copies of the descriptors; unlocks nothing
                 return 0;
               }),
               0);
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 0), -EAGAIN);
}

Test(backend_locks, exec_lets_go) {
  MemPool pool("exec");
  auto a = new_pool(pool);
  const auto b = must_open(pool.text());
  cr_assert_eq(a->locks().try_lock(LockKind::kMember, 0), 0);
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  const pid_t pid = fork();
  cr_assert_geq(pid, 0);
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", "echo; exec sleep 60", nullptr);
    _exit(127);
  }
  char byte = 0;
  cr_assert_eq(read(ends[0], &byte, 1), 1);
  a.reset();
  cr_expect_eq(b->locks().try_lock(LockKind::kMember, 0), 0, "the program run holds nothing");
  kill_and_wait(pid);
}

Test(backend_locks, members_keep_format_and_removal_away) {
  MemPool pool("busy");
  const auto member = new_pool(pool);
  cr_assert_eq(member->locks().try_lock(LockKind::kMember, 4), 0);
  CreateOptions reuse;
  reuse.reuse = true;
  expect_create_fails(pool.text("?size=2MiB"), -EBUSY, "in use by running members", reuse);
  expect_fail(Backend::remove(parse(pool.text()), false), -EBUSY, "in use");
  cr_expect(Backend::exists(parse(pool.text())));
  reuse.force = true;
  auto forced = must_create(pool.text("?size=2MiB"), reuse);
  expect_create_fails(pool.text("?size=2MiB"), -EBUSY, "being formatted", reuse);
  forced.reset();
  cr_expect(Backend::remove(parse(pool.text()), true).ok());
}

// Two formats at once: whoever succeeds is alone, and nobody removes what another made.
Test(backend_locks, formats_race, .timeout = 60) {
  MemPool pool("race");
  Folder dir;
  constexpr int kChildren = 4;
  constexpr int kMadeEach = 40;
  constexpr int kRoundsMax = 100000;
  const auto address = parse(pool.text("?size=4MiB&devices=2&huge=no"));
  const std::string marker = dir.file("alone");
  pid_t children[kChildren];
  for (auto &pid : children) {
    pid = fork();
    cr_assert_geq(pid, 0);
    if (pid != 0) continue;
    int made_count = 0;
    for (int round = 0; round < kRoundsMax && made_count < kMadeEach; ++round) {
      std::unique_ptr<Backend> made;
      CreateOptions options;
      options.reuse = round % 2 == 0;
      const auto s = Backend::create(address, {}, options, made);
      if (!s.ok()) {
        if (s.err != -EBUSY && s.err != -EEXIST && s.err != -EAGAIN) _exit(10);
        // The others may all be waiting for whoever holds it: what exists and is free goes away.
        if (s.err == -EEXIST) Backend::remove(address, false);
        usleep(100);
        continue;
      }
      const int fd = open(marker.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (fd < 0) _exit(11);  // two at once
      close(fd);
      if (!Backend::exists(address)) _exit(12);  // removed under us
      ++made_count;
      if (unlink(marker.c_str()) != 0) _exit(13);
      made.reset();
      if (round % 3 == 0) Backend::remove(address, false);
    }
    _exit(made_count == kMadeEach ? 0 : 14);
  }
  for (const pid_t pid : children) {
    int status = 0;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ended with %d",
              WEXITSTATUS(status));
  }
}

Test(backend_locks, on_a_character_device) {
  // Locks of dax stores stand on the device node; no dax device is needed to see that nodes take
  // them.
  const int one = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int two = open("/dev/null", O_RDWR | O_CLOEXEC);
  Locks a(one);
  Locks b(two);
  cr_expect_eq(a.try_lock(LockKind::kStandby, 15), 0);
  cr_expect_eq(b.try_lock(LockKind::kStandby, 15), -EAGAIN);
  close(one);
  cr_expect_eq(b.try_lock(LockKind::kStandby, 15), 0);
  close(two);
}
