// SPDX-License-Identifier: Apache-2.0
// Shows: over a device that several machines map, a free lock of another host's slot is no proof.
// How: a process's environment over named memory, told which slots its machine's locks speak for.
#include <criterion/criterion.h>
#include <unistd.h>

#include <string>

#include "backend/backend.hpp"
#include "store/process_env.hpp"

using namespace kvpool;

Test(store_env, locks_of_other_hosts_say_nothing, .timeout = 20) {
  backend::Address address;
  const std::string text = "mem:unit-env-" + std::to_string(getpid()) + "?size=4MiB";
  cr_assert(backend::parse_address(text.c_str(), address).ok());
  std::unique_ptr<backend::Backend> pool;
  const std::vector<u64> sizes{4 << 20};
  cr_assert(backend::Backend::create(address, sizes, {}, pool).ok());
  store::ProcessEnv env(*pool);
  using kvpool::pool::LockKind;
  cr_expect(env.try_lock(LockKind::kMember, 9), "files and named memory are one machine's");
  env.unlock(LockKind::kMember, 9);
  env.know_member_locks(8, 16);
  cr_expect(env.try_lock(LockKind::kMember, 8));
  cr_expect(env.try_lock(LockKind::kMember, 15));
  cr_expect_not(env.try_lock(LockKind::kMember, 7));
  cr_expect_not(env.try_lock(LockKind::kMember, 16));
  cr_expect(env.try_lock(LockKind::kStandby, 1), "other kinds are as they were");
  cr_expect(env.try_lock(LockKind::kHost, 0));
  pool.reset();
  backend::Backend::remove(address, true);
}
