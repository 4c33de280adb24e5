// SPDX-License-Identifier: Apache-2.0
// Shows: the loss of one of several devices costs what lay on it and nothing else: its blocks are
// misses, puts go on elsewhere, an owner whose area was there moves, a candidate fills another.
// How: threads over a store of two or three files, one of which is cut to nothing; loads of it
// fault.
#include "pool_fixture.hpp"
#include "store/store.hpp"

using namespace kvpool;
using namespace kvpool::test;

namespace {

constexpr u64 kBlock = 256 * 1024;

media::FormatOptions on_devices(u32 count) {
  media::FormatOptions options = lease_of(300);
  options.device_count = count;
  options.extent_stripes = 1;
  options.block_bytes = kBlock;
  return options;
}

// One whole block through the store, with its checks.
struct Payload {
  std::vector<std::byte> bytes;
  transfer::LocalMemory memory;
  transfer::Run run{.fragment_bytes = kBlock, .count = 1};
  explicit Payload(u64 key) : bytes(kBlock, static_cast<std::byte>(key * 37 + 1)) {
    memory = {bytes.data(), bytes.size()};
  }
  store::MemoryPlan plan() { return {std::span(&run, 1), std::span(&memory, 1)}; }
};

store::PutBlock put_whole(LiveMember &member, pool::NsRef ns, u64 key) {
  Payload payload(key);
  store::PutBlock block;
  block.key = make_key(key);
  block.payload_bytes = kBlock;
  block.plan = payload.plan();
  store::Scratch scratch(1 << 20);
  store::Store<TestEnv> over(*member);
  const int err = over.put(ns, std::span(&block, 1), member.in(5000), nullptr, scratch);
  cr_assert_eq(err, 0, "put of %llu: %d", static_cast<unsigned long long>(key), err);
  return block;
}

store::BlockStatus get_whole(LiveMember &member, pool::NsRef ns, u64 key) {
  Payload expected(key), got(0);
  store::GetBlock block;
  block.key = make_key(key);
  block.plan = got.plan();
  store::Scratch scratch(1 << 20);
  store::Store<TestEnv> over(*member);
  store::GetOptions options;
  options.deadline_ns = member.in(5000);
  int err = -EAGAIN;
  for (int i = 0; i < 100 && err == -EAGAIN; ++i) {
    err = over.get(ns, std::span(&block, 1), options, scratch);
  }
  cr_assert_eq(err, 0, "get of %llu: %d", static_cast<unsigned long long>(key), err);
  if (block.status == store::BlockStatus::kOk) cr_assert(got.bytes == expected.bytes);
  return block.status;
}

u32 device_of(TestStore &store, u64 address) { return store.regions().data_at(address).device(); }

// Keys 1 to `count` by the device of their block.
std::vector<std::vector<u64>> fill(TestStore &store, LiveMember &member, pool::NsRef ns,
                                   u64 count) {
  std::vector<std::vector<u64>> on(store.geometry().device_count);
  for (u64 key = 1; key <= count; ++key) {
    cr_assert_eq(put_whole(member, ns, key).status, store::BlockStatus::kOk);
    on[device_of(store, look(member, ns, key).address)].push_back(key);
  }
  for (const auto &keys : on) cr_assert_gt(keys.size(), 0u);
  return on;
}

bool all_are(LiveMember &member, pool::NsRef ns, const std::vector<u64> &keys,
             store::BlockStatus status) {
  return std::all_of(keys.begin(), keys.end(),
                     [&](u64 key) { return get_whole(member, ns, key) == status; });
}

}  // namespace

// The device has nothing but payload: the third of three.
Test(pool_lost_device, blocks_there_are_misses_and_puts_go_on, .timeout = 60) {
  TestStore store(on_devices(3));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const auto on = fill(store, a, ns, 48);
  pool::Block half;  // a member is in the middle of a block there
  do {
    cr_assert_eq(a->reserve(kBlock, 1, a.in(1000), &half), 0);
  } while (device_of(store, half.address) != 2);
  store.lose_device(2);
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[2], store::BlockStatus::kMiss); }));
  for (u32 d : {0, 1}) cr_assert(all_are(a, ns, on[d], store::BlockStatus::kOk));
  cr_expect_geq(owner->stats().lost, on[2].size());
  pool::Publication p;
  p.key = make_key(1000);
  p.ns = ns;
  p.block = half;
  p.payload_lines = kBlock / kLineBytes;
  cr_assert_eq(a->publish(&p, 1, a.in(1000)), 0);
  cr_expect_eq(p.result, -EBUSY, "%d", p.result);
  for (u64 key = 101; key <= 164; ++key) {
    const auto put = put_whole(a, ns, key);
    cr_assert_eq(put.status, store::BlockStatus::kOk, "key %llu: %d, error %d",
                 static_cast<unsigned long long>(key), static_cast<int>(put.status), put.error);
    cr_assert_neq(device_of(store, look(a, ns, key).address), 2u);
    cr_assert_eq(get_whole(a, ns, key), store::BlockStatus::kOk);
  }
  cr_expect(within_ms(2000, [&] {  // what it had in hand there went back
    const auto &held = owner->space().held_by(a->slot());
    return std::none_of(held.begin(), held.end(), [&](u32 x) { return owner->space().at(x).out; });
  }));
}

// A writer finds out by itself: what it cannot read back it does not publish.
Test(pool_lost_device, put_finds_another_place_before_the_owner_has_looked, .timeout = 60) {
  TestStore store(on_devices(3));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  fill(store, a, ns, 24);
  store.lose_device(2);
  for (u64 key = 101; key <= 130; ++key) {
    const auto put = put_whole(a, ns, key);
    cr_assert_eq(put.status, store::BlockStatus::kOk, "key %llu: %d, error %d",
                 static_cast<unsigned long long>(key), static_cast<int>(put.status), put.error);
    cr_assert_eq(get_whole(a, ns, key), store::BlockStatus::kOk);
  }
}

// As formatted the area of slot 0 is on device 0; its first owner fills the one on device 1.
Test(pool_lost_device, owner_moves_its_area, .timeout = 60) {
  TestStore store(on_devices(2));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(a->session()->area.device(), 1u);
  const auto on = fill(store, a, ns, 48);
  pool::Pin pin;
  const pool::Hit hit = look(a, ns, on[0][0]);
  cr_assert_eq(a->pin(hit, make_key(on[0][0]), 60'000, a.in(1000), pin), 0);
  const u32 epoch = owner->epoch();
  store.lose_device(1);
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[0], store::BlockStatus::kOk); }));
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[1], store::BlockStatus::kMiss); }));
  cr_assert_gt(owner->epoch(), epoch);
  cr_assert_eq(a->session()->area.device(), 0u);
  for (u64 key = 101; key <= 130; ++key) {
    cr_assert_eq(put_whole(a, ns, key).status, store::BlockStatus::kOk);
    cr_assert_eq(get_whole(a, ns, key), store::BlockStatus::kOk);
  }
  cr_expect_geq(owner->pinned(), 1u, "the pin came back with the report");
  LiveMember b(store, 3);
  cr_assert(all_are(b, ns, on[0], store::BlockStatus::kOk), "others may join");
}

// The slot of the next owner has an older area on the device that is left, and fills that.
Test(pool_lost_device, take_over_fills_an_area_that_can_be_read, .timeout = 60) {
  TestStore store(on_devices(2));
  auto owner = std::make_unique<ServingOwner>(store, 1, 1);  // area 0 of slot 1
  owner.reset();
  owner = std::make_unique<ServingOwner>(store, 2, 0);  // area 1 of slot 0
  owner.reset();
  owner = std::make_unique<ServingOwner>(store, 3, 0);  // area 0 of slot 0
  LiveMember a(store, 4);
  const pool::NsRef ns = open_ns(a);
  const auto on = fill(store, a, ns, 32);
  cr_assert_eq(a->session()->area.device(), 0u);
  store.lose_device(1);
  owner.reset();
  {
    auto env = store.process(5);
    Member member(*env, store.geometry());
    cr_assert_eq(member.join({}), 0);
    Owner same_slot(*env, member);
    const u32 claimed = member.claims().read().highest_claimed;
    cr_assert_eq(same_slot.take_over(0), -EIO, "its other area is lost, this one is the base");
    cr_assert_eq(member.claims().read().highest_claimed, claimed, "and it has not claimed");
    member.leave();
  }
  owner = std::make_unique<ServingOwner>(store, 6, 1);
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[0], store::BlockStatus::kOk); }));
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[1], store::BlockStatus::kMiss); }));
  cr_assert_eq(a->session()->area.device(), 0u);
  for (u64 key = 101; key <= 116; ++key) {
    cr_assert_eq(put_whole(a, ns, key).status, store::BlockStatus::kOk);
  }
}

// A device that can be read again is used again; what lay there stays lost.
Test(pool_lost_device, device_that_is_back_is_used_again, .timeout = 60) {
  TestStore store(on_devices(3));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const auto on = fill(store, a, ns, 48);
  const auto copy = store.copy_device(2);
  store.lose_device(2);
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[2], store::BlockStatus::kMiss); }));
  cr_assert_gt(owner->space().out_count(), 0u);
  store.bring_back(2, copy);
  cr_assert(within_ms(5000, [&] { return owner->space().out_count() == 0; }));
  cr_assert(all_are(a, ns, on[2], store::BlockStatus::kMiss));
  bool used = false;
  for (u64 key = 101; key <= 164; ++key) {
    cr_assert_eq(put_whole(a, ns, key).status, store::BlockStatus::kOk);
    used |= device_of(store, look(a, ns, key).address) == 2;
    cr_assert_eq(get_whole(a, ns, key), store::BlockStatus::kOk);
  }
  cr_assert(used);
}

// Lines and rings of all members stand on the first device: without it nobody can go on.
Test(pool_lost_device, without_the_first_device_the_owner_ends, .timeout = 60) {
  TestStore store(on_devices(2));
  auto env = store.process(1);
  Member member(*env, store.geometry());
  cr_assert_eq(member.join({}), 0);
  Owner owner(*env, member);
  cr_assert_eq(owner.take_over(0), 0);
  store.lose_device(0);
  int ended = 0;
  cr_assert(within_ms(1000, [&] { return (ended = owner.step()) < 0; }));
  cr_assert_eq(ended, -EIO, "%d", ended);
  cr_assert_eq(owner.take_over(0), -EIO);
}
