// SPDX-License-Identifier: Apache-2.0
// Shows: the loss of one of several devices costs what lay on it and nothing else: its blocks are
// misses, puts go on elsewhere, an owner whose area was there moves, a candidate fills another.
// How: threads over a store of two or three files, one of which is cut to nothing; loads of it
// fault.
#include "pool/control.hpp"
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

// Claims with another slot's next epoch, as a candidate does that then stops.
void outbid(LiveMember &member, u32 epoch, u32 slot) {
  media::ClaimLine claim = member->claims().read().line[slot];
  claim.claimed = media::make_epoch(media::epoch_counter(epoch) + 1, slot);
  member->claims().write(slot, claim);
}

// Its candidate cannot read the area, and nobody else knows what stood there.
Test(pool_lost_device, outbid_owner_moves_its_area, .timeout = 60) {
  media::FormatOptions options = on_devices(2);
  options.lease_ms = 2000;
  TestStore store(options);
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const auto on = fill(store, a, ns, 16);
  const u32 epoch = owner->epoch();
  outbid(a, epoch, 1);
  cr_assert(within_ms(1000, [&] { return owner->outbid(); }));
  store.lose_device(1);
  cr_assert(within_ms(3000, [&] { return owner->epoch() > epoch && !owner->outbid(); }));
  cr_assert(within_ms(3000, [&] { return all_are(a, ns, on[0], store::BlockStatus::kOk); }));
  cr_assert_eq(put_whole(a, ns, 101).status, store::BlockStatus::kOk);
}

// It decides nothing meanwhile, and does not wait for ever.
Test(pool_lost_device, outbid_owner_ends, .timeout = 60) {
  TestStore store(on_devices(2));
  ServingOwner owner(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  (void)fill(store, a, ns, 16);
  outbid(a, owner->epoch(), 1);
  cr_assert(within_ms(1000, [&] { return owner->outbid(); }));
  pool::Block block;
  cr_assert_neq(a->reserve(kBlock, 1, a.in(50), &block), 0);
  cr_assert(within_ms(1000, [&] { return !owner->serving(); }));
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

// Lines and rings of all members stand on the first device: without it nobody goes on as before.
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

namespace {

int move_lines(TestStore &store, u32 process, u32 standby) {
  auto env = store.process(process);
  media::Geometry geo = store.geometry();
  const int err = pool::move_control(*env, geo, {}, standby);
  if (err == 0) store.set_control(geo);
  env->drop_locks();
  return err;
}

// What stood there before, in every slot and ring: lines that verify.
void leave_old_lines(TestStore &store, u32 device) {
  const media::Geometry &geo = store.geometry();
  const media::Sealer sealer(geo.uuid, geo.nonce);
  for (u32 slot = 0; slot < geo.member_count(); ++slot) {
    media::MemberLine old{};
    old.incarnation = 77 + slot;
    old.state = static_cast<u8>(media::MemberState::kJoined);
    old.host = static_cast<u8>(geo.host_of(slot));
    old.flags = media::kMemberHolds | media::kMemberPins;
    const PoolOffset at(device, geo.member_at(slot).byte());
    store.memory().publish_line(at, sealer.sealed(old, at, 0));
  }
}

}  // namespace

// The blocks of the other device stay, puts go on there, whoever knew the lines of before ends.
Test(pool_lost_device, lines_move_to_the_other_device, .timeout = 60) {
  TestStore store(on_devices(2));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const auto on = fill(store, a, ns, 48);
  cr_assert_eq(a->session()->area.device(), 1u);
  pool::Block in_hand;
  cr_assert_eq(a->reserve(kBlock, 1, a.in(1000), &in_hand), 0);
  leave_old_lines(store, 1);
  store.lose_device(0);
  owner.reset();
  cr_assert_eq(move_lines(store, 3, 1), 0);
  cr_assert_eq(store.geometry().control_device(), 1u);
  cr_assert(within_ms(1000, [&] { return !a->alive(); }), "its lease is over");
  cr_assert(a->claims().read().moved);
  cr_assert_eq(a->tick(), -ESTALE);
  cr_assert_eq(a->rejoin(), -ESTALE, "nor is there another for it");
  pool::Hit hit;
  const pool::Key key = make_key(on[1][0]);
  cr_assert_eq(a->lookup(ns, &key, 1, {}, &hit), -ESTALE);

  ServingOwner next(store, 4);
  cr_assert_not(next->awaits_reports(), "of members that old lines name");
  LiveMember b(store, 5);
  cr_assert(all_are(b, ns, on[1], store::BlockStatus::kOk));
  cr_assert(within_ms(3000, [&] { return all_are(b, ns, on[0], store::BlockStatus::kMiss); }));
  bool waits = false;  // what the members of before held
  for (u32 x = 0; x < next->space().count(); ++x) {
    waits |= next->space().at(x).record.holder == media::kHolderFormer;
  }
  cr_assert(waits);
  for (u64 key_of = 101; key_of <= 116; ++key_of) {
    cr_assert_eq(put_whole(b, ns, key_of).status, store::BlockStatus::kOk);
    cr_assert_eq(device_of(store, look(b, ns, key_of).address), 1u);
    cr_assert_eq(get_whole(b, ns, key_of), store::BlockStatus::kOk);
  }
}

// Where the newest area was on the lost device its owner, which alone knows it, moves that first.
Test(pool_lost_device, owner_moves_its_area_before_it_ends, .timeout = 60) {
  TestStore store(on_devices(2));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  owner.reset();
  owner = std::make_unique<ServingOwner>(store, 2);
  LiveMember a(store, 3);
  const pool::NsRef ns = open_ns(a);
  cr_assert_eq(a->session()->area.device(), 0u);
  const auto on = fill(store, a, ns, 32);
  store.lose_device(0);
  cr_assert(within_ms(2000, [&] { return !(*owner)->serving(); }));
  owner.reset();
  cr_assert_eq(move_lines(store, 4, 1), 0);
  ServingOwner next(store, 5);
  LiveMember b(store, 6);
  cr_assert(all_are(b, ns, on[1], store::BlockStatus::kOk));
}

// The device is back, as it stood: nobody goes on by what its lines say, and lines may move back.
Test(pool_lost_device, first_device_that_is_back_is_like_any_other, .timeout = 60) {
  TestStore store(on_devices(2));
  auto owner = std::make_unique<ServingOwner>(store, 1);
  LiveMember a(store, 2);
  const pool::NsRef ns = open_ns(a);
  const auto on = fill(store, a, ns, 32);
  const auto copy = store.copy_device(0);
  const media::Geometry before = store.geometry();
  store.lose_device(0);
  owner.reset();
  cr_assert_eq(move_lines(store, 3, 1), 0);
  owner = std::make_unique<ServingOwner>(store, 4);
  LiveMember b(store, 5);
  cr_assert(within_ms(3000, [&] { return (*owner)->space().out_count() > 0; }));
  store.bring_back(0, copy);
  cr_assert(within_ms(5000, [&] { return (*owner)->space().out_count() == 0; }));
  cr_assert_eq(a->rejoin(), -ESTALE);
  {
    auto env = store.process(6);
    Member late(*env, before);
    cr_assert_eq(late.join({}), -ESTALE, "who opened it by the lines of before");
  }
  cr_assert(all_are(b, ns, on[1], store::BlockStatus::kOk));
  cr_assert(all_are(b, ns, on[0], store::BlockStatus::kMiss));
  store.lose_device(1);
  cr_assert(within_ms(3000, [&] { return !(*owner)->serving(); }));
  owner.reset();
  // Its copy of the claims was as old as its lines, so the owner has written that again.
  media::Geometry found = before;
  auto env = store.process(7);
  cr_assert_eq(pool::read_control(*env, found), 0);
  cr_assert_eq(found.control, 1, "%u", found.control);
  cr_assert_eq(move_lines(store, 8, 1), 0);
  cr_assert_eq(store.geometry().control, 2);
  ServingOwner next(store, 9);
  LiveMember c(store, 10);
  cr_assert(within_ms(3000, [&] { return all_are(c, ns, on[1], store::BlockStatus::kMiss); }));
  cr_assert_eq(put_whole(c, ns, 200).status, store::BlockStatus::kOk);
  cr_assert_eq(get_whole(c, ns, 200), store::BlockStatus::kOk);
}
