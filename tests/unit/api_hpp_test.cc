// SPDX-License-Identifier: Apache-2.0
// Shows: the C++ header owns its handles, moves them, and throws what the C calls return.
// How: a whole small program with it, and one that fails.
#include <kvpool/kvpool.hpp>

#include "api_fixture.hpp"

Test(api_hpp, whole_way, .timeout = 60) {
  api_test::Pool pool("hpp");
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  opts.owner = KVPOOL_OWNER_EMBEDDED;
  kvpool::store first(pool.address(), &opts);
  kvpool::store store = std::move(first);
  cr_expect_not(first);
  cr_expect(store.wait_owner());
  kvpool::name_space ns = store.open("unit", api_test::ns_opts());
  const std::vector<uint32_t> tokens(16 * 3 + 2, 9);
  const auto keys = ns.chain(tokens.data(), tokens.size(), 16);
  cr_assert_eq(keys.size(), 3);
  auto out = api_test::bytes_of(1, 5000);
  std::vector<uint8_t> in(out.size());
  for (const auto &key : keys) cr_expect(ns.put(key, out.data(), out.size()));
  cr_expect_not(ns.put(keys[0], out.data(), out.size()));
  cr_expect_eq(ns.lookup(keys), 3);
  cr_expect(ns.get_block(keys[2], in.data(), in.size()));
  cr_expect(in == out);
  std::fill(in.begin(), in.end(), 0);
  kvpool::memory memory = store.add_memory(in.data(), in.size());
  kvpool_run run{};
  run.mem = memory.get();
  run.fragment_bytes = in.size();
  run.count = 1;
  kvpool_block block{};
  block.key = keys[1];
  block.plan.runs = &run;
  block.plan.run_count = 1;
  kvpool::operation op = ns.prepare_get(&block, 1);
  op.post();
  while (op.running()) usleep(100);
  cr_expect_eq(op.result(), 1);
  cr_expect(in == out);
  cr_expect(ns.remove(keys[1]));
  cr_expect_eq(ns.lookup(keys), 1);
  ns.clear();
  cr_expect_eq(ns.lookup(keys), 0);
  cr_expect_eq(store.stats().put_stored, 3);
}

Test(api_hpp, failures_are_thrown, .timeout = 60) {
  try {
    kvpool::store absent("mem:unit-absent");
    cr_assert_fail("a store that is not there was opened");
  } catch (const kvpool::error &e) {
    cr_expect_eq(e.code(), -ENOENT);
    cr_expect_eq(e.group(), KVPOOL_CLASS_OPERATOR);
    cr_expect(std::string(e.what()).find("unit-absent") != std::string::npos);
  }
}
