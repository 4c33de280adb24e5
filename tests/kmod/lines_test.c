// SPDX-License-Identifier: Apache-2.0
// Shows: lines verify only where and for whom they were sealed; labels, claims and use lines are
// read for what they are. How: lines moved, torn, zeroed, filled; every wrong label and claim.
#include "support.h"

#include <criterion/criterion.h>
#include <linux/kvpool.h>

#include "logic/claims.h"
#include "logic/label.h"
#include "logic/lease.h"
#include "logic/use.h"

Test(lines, crc_is_that_of_the_standard) {
  cr_assert_eq(kvpool_crc32c(~0u, "123456789", 9) ^ ~0u, 0xe3069283u);
}

Test(lines, a_sealed_line_verifies_nowhere_else) {
  struct kvpool_seal seal = test_seal(), other = seal;
  const struct kvpool_place at = {1, 4096}, moved = {1, 4160}, elsewhere = {0, 4096};
  union kvpool_line line, torn;
  for (int i = 0; i < 64; i++) line.bytes[i] = (u8)(i * 7);
  line.words[0] = cpu_to_le32(KVPOOL_MAGIC_USE);
  kvpool_seal_line(&seal, at, &line);
  cr_expect(kvpool_line_intact(&seal, at, &line, KVPOOL_MAGIC_USE));
  cr_expect(!kvpool_line_intact(&seal, at, &line, KVPOOL_MAGIC_HOST));
  cr_expect(!kvpool_line_intact(&seal, moved, &line, KVPOOL_MAGIC_USE));
  cr_expect(!kvpool_line_intact(&seal, elsewhere, &line, KVPOOL_MAGIC_USE));
  other.life++;
  cr_expect(!kvpool_line_intact(&other, at, &line, KVPOOL_MAGIC_USE));
  other = seal;
  other.uuid[15] ^= 1;
  cr_expect(!kvpool_line_intact(&other, at, &line, KVPOOL_MAGIC_USE));
  for (int bit = 0; bit < 512; bit++) {
    torn = line;
    torn.bytes[bit / 8] ^= 1 << bit % 8;
    cr_expect(!kvpool_line_intact(&seal, at, &torn, KVPOOL_MAGIC_USE), "bit %d", bit);
  }
  memset(&torn, 0, sizeof torn);
  cr_expect(!kvpool_line_intact(&seal, at, &torn, 0));
  memset(&torn, 0xff, sizeof torn);
  cr_expect(!kvpool_line_intact(&seal, at, &torn, 0xffffffff));
}

Test(lines, geometry_refuses_what_does_not_fit) {
  struct kvpool_geometry geo;
  cr_expect_eq(kvpool_geometry_init(&geo, 0, 1ull << 30, 4), -EINVAL);
  cr_expect_eq(kvpool_geometry_init(&geo, 65, 1ull << 30, 4), -EINVAL);
  cr_expect_eq(kvpool_geometry_init(&geo, 1, 0, 4), -EINVAL);
  cr_expect_eq(kvpool_geometry_init(&geo, 1, (1ull << 30) + 4096, 4), -EINVAL);
  cr_expect_eq(kvpool_geometry_init(&geo, 1, 1ull << 30, 0), -EINVAL);
  cr_expect_eq(kvpool_geometry_init(&geo, 1, 1ull << 30, 65), -EINVAL);
  cr_expect_eq(kvpool_geometry_init(&geo, 1, 64ull << 20, 4), -EINVAL, "metadata alone fills it");
  cr_expect_eq(kvpool_geometry_init(&geo, 64, 1ull << 45, 4), -EINVAL, "more units than lines");
  cr_expect_eq(kvpool_geometry_init(&geo, 1, 128ull << 20, 4), 0);
  cr_expect_eq(geo.unit_shift, 26);
  cr_expect_eq(kvpool_geometry_init(&geo, 8, 1ull << 40, 16), 0);
  cr_expect_eq(geo.unit_shift, 30);
  cr_expect_eq(kvpool_unit_count(&geo), 8192);
}

Test(lines, areas_do_not_overlap_and_lie_before_the_data) {
  for (u32 devices = 1; devices < 4; devices++) {
    struct kvpool_geometry geo = test_geometry(devices);
    for (u32 a = 0; a < 8; a++) {
      struct kvpool_place at = kvpool_area_place(&geo, a / 2, a % 2, 0);
      cr_expect(at.offset >= KVPOOL_LABEL_BYTES);
      cr_expect(at.offset + KVPOOL_HOST_AREA_BYTES <= kvpool_metadata_bytes(&geo, at.device));
      cr_expect(kvpool_metadata_bytes(&geo, at.device) <=
                (u64)kvpool_first_data_unit(&geo, at.device) << geo.unit_shift);
      for (u32 b = 0; b < a; b++) {
        struct kvpool_place other = kvpool_area_place(&geo, b / 2, b % 2, 0);
        cr_expect(other.device != at.device || other.offset + KVPOOL_HOST_AREA_BYTES <= at.offset ||
                  at.offset + KVPOOL_HOST_AREA_BYTES <= other.offset);
      }
    }
    if (devices > 1)
      cr_expect_neq(kvpool_area_place(&geo, 0, 0, 0).device,
                    kvpool_area_place(&geo, 0, 1, 0).device);
  }
}

Test(lines, devices_with_lines) {
  struct kvpool_geometry one = test_geometry(1), three = test_geometry(3);
  cr_expect(!kvpool_control_lost(&three, 0) && !kvpool_control_lost(&three, 4));
  for (u64 gone = 1; gone < 8; gone++) {
    cr_expect_eq(kvpool_control_lost(&three, gone), (gone & 3) != 0);
    cr_expect_eq(kvpool_control_gone(&three, gone), (gone & 3) == 3);
  }
  for (u32 copy = 0; copy < 2; copy++)
    cr_expect(kvpool_control_lost(&three, 1ull << kvpool_area_place(&three, 2, copy, 0).device));
  cr_expect(kvpool_control_lost(&one, 1) && kvpool_control_gone(&one, 1));
}

Test(lines, map_offsets) {
  u64 offset = 99;
  const u64 slice = 64ull << 20, leaf = 2ull << 20, id = 5ull << KVPOOL_MAP_ID_SHIFT;
  cr_expect_eq(kvpool_map_id(id + leaf), 5);
  cr_expect_eq(kvpool_map_id(KVPOOL_MAP_STATE), 0);
  cr_expect_eq(kvpool_map_check(id, slice, slice, &offset), 0);
  cr_expect_eq(offset, 0);
  cr_expect_eq(kvpool_map_check(id + slice - leaf, leaf, slice, &offset), 0);
  cr_expect_eq(offset, slice - leaf);
  offset = 99;
  cr_expect_eq(kvpool_map_check(id, 0, slice, &offset), -EINVAL);
  cr_expect_eq(kvpool_map_check(id, slice + leaf, slice, &offset), -EINVAL);
  cr_expect_eq(kvpool_map_check(id + slice, leaf, slice, &offset), -EINVAL);
  cr_expect_eq(kvpool_map_check(id + slice - leaf, 2 * leaf, slice, &offset), -EINVAL);
  cr_expect_eq(kvpool_map_check(id + 4096, leaf, slice, &offset), -EINVAL);
  cr_expect_eq(kvpool_map_check(id, leaf + 4096, slice, &offset), -EINVAL);
  cr_expect_eq(kvpool_map_check(id + leaf, ~leaf + 1, slice, &offset), -EINVAL, "around the end");
  cr_expect_eq(offset, 99);
}

static struct kvpool_label_info label_info(u32 device) {
  struct kvpool_label_info info = {.seal = test_seal(),
                                   .device_bytes = TEST_DEVICE_BYTES,
                                   .device = device,
                                   .device_count = 2,
                                   .host_count = 4,
                                   .unit_shift = 26};
  return info;
}

Test(lines, labels_name_what_is_wrong) {
  struct kvpool_label_info info = label_info(1), read;
  union kvpool_line line, other;
  u8 foreign[16] = {9};
  u32 reason = 0;
  kvpool_label_make(&info, 0, &line);
  cr_expect_eq(kvpool_label_read(&line, TEST_DEVICE_BYTES, NULL, &read, &reason), 0);
  cr_expect_eq(read.device, 1);
  cr_expect_eq(kvpool_label_read(&line, TEST_DEVICE_BYTES, info.seal.uuid, &read, &reason), 0);
  cr_expect_neq(kvpool_label_read(&line, TEST_DEVICE_BYTES, foreign, &read, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_FOREIGN);
  cr_expect_neq(kvpool_label_read(&line, 2 * TEST_DEVICE_BYTES, NULL, &read, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_SIZE);
  other = line;
  other.bytes[30] ^= 1;
  cr_expect_neq(kvpool_label_read(&other, TEST_DEVICE_BYTES, NULL, &read, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_NO_LABEL);
  memset(&other, 0xff, sizeof other);
  cr_expect_neq(kvpool_label_read(&other, TEST_DEVICE_BYTES, NULL, &read, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_UNREADABLE);
  kvpool_label_make(&info, 64, &other);
  cr_expect_neq(kvpool_label_read(&other, TEST_DEVICE_BYTES, NULL, &read, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_INTERLEAVE);
  other = line;
  other.label.version = cpu_to_le16(KVPOOL_FORMAT_VERSION + 1);
  kvpool_seal_line(&info.seal, (struct kvpool_place){1, 0}, &other);
  cr_expect_neq(kvpool_label_read(&other, TEST_DEVICE_BYTES, NULL, &read, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_VERSION);

  kvpool_label_make(&info, 128, &line);
  cr_expect_eq(kvpool_label_check(&line, 128, &info, &reason), 0);
  cr_expect_neq(kvpool_label_check(&line, 192, &info, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_INTERLEAVE);
  struct kvpool_label_info newer = info;
  newer.seal.life++;
  cr_expect_neq(kvpool_label_check(&line, 128, &newer, &reason), 0);
  cr_expect_eq(reason, KVPOOL_REFUSED_FOREIGN);
}

Test(lines, labels_are_sorted_and_complete) {
  struct kvpool_label_info infos[3] = {label_info(1), label_info(0), label_info(0)};
  u32 order[3] = {7, 7, 7}, range = 9, reason = 0;
  cr_expect_eq(kvpool_label_order(infos, 2, order, &range, &reason), 0);
  cr_expect_eq(order[0], 1);
  cr_expect_eq(order[1], 0);
  cr_expect_eq(kvpool_label_order(infos, 1, order, &range, &reason), -ENODEV);
  cr_expect_eq(reason, KVPOOL_REFUSED_MISSING);
  cr_expect_eq(kvpool_label_order(infos, 3, order, &range, &reason), -ENOTUNIQ);
  cr_expect_eq(reason, KVPOOL_REFUSED_DUPLICATE);
  cr_expect_eq(range, 2);
  infos[1].seal.life++;
  cr_expect_eq(kvpool_label_order(infos, 2, order, &range, &reason), -EXDEV);
  cr_expect_eq(reason, KVPOOL_REFUSED_FOREIGN);
  infos[1] = label_info(0);
  infos[1].host_count = 5;
  cr_expect_eq(kvpool_label_order(infos, 2, order, &range, &reason), -EXDEV);
  cr_expect_eq(reason, KVPOOL_REFUSED_SIZE);
}

static struct kvpool_claim_view claim(u32 host, u64 claimed, u64 active) {
  struct kvpool_claim_view view = {.readable = true};
  view.claimed = claimed ? claimed << KVPOOL_EPOCH_HOST_BITS | host : 0;
  view.active = active ? active << KVPOOL_EPOCH_HOST_BITS | host : 0;
  return view;
}

Test(lines, the_highest_active_claim_is_in_force) {
  struct kvpool_claim_view views[3] = {claim(0, 5, 5), claim(1, 7, 4), claim(2, 6, 6)};
  u64 epoch = 0;
  cr_expect_eq(kvpool_claims_in_force(views, 3), 2);
  cr_expect_eq(kvpool_claims_next(views, 3, 0, &epoch), 0);
  cr_expect_eq(epoch, 8ull << KVPOOL_EPOCH_HOST_BITS);
  cr_expect(!kvpool_claims_outbid(views, 3, epoch));
  cr_expect(kvpool_claims_outbid(views, 3, views[2].active), "a claim above, active or not");
  views[1].readable = false;
  cr_expect_eq(kvpool_claims_in_force(views, 3), 2);
  cr_expect(kvpool_claims_outbid(views, 3, epoch), "what cannot be read may be higher");
  cr_expect_eq(kvpool_claims_next(views, 3, 0, &epoch), -EIO);
  views[1] = claim(1, 1ull << 40, 0);
  cr_expect_eq(kvpool_claims_next(views, 3, 0, &epoch), -EUCLEAN, "damage is no epoch");
  struct kvpool_claim_view none[2] = {claim(0, 0, 0), claim(1, 0, 0)};
  cr_expect_eq(kvpool_claims_in_force(none, 2), -ENOENT);
}

Test(lines, of_two_copies_of_a_claim_the_higher_counts) {
  struct kvpool_claim_view view = {0}, low = claim(1, 3, 3), high = claim(1, 4, 3);
  union kvpool_line line;
  kvpool_claim_make(&high, 1, &line);
  kvpool_claim_merge(&view, &line, 1);
  kvpool_claim_make(&low, 1, &line);
  kvpool_claim_merge(&view, &line, 1);
  cr_expect_eq(view.claimed, high.claimed);
  memset(&view, 0, sizeof view);
  kvpool_claim_merge(&view, &line, 2);
  cr_expect(!view.readable, "another host's line");
  low.active = low.claimed + 256;
  kvpool_claim_make(&low, 1, &line);
  kvpool_claim_merge(&view, &line, 1);
  cr_expect(!view.readable, "active without a claim");
  low = claim(2, 3, 3);
  kvpool_claim_make(&low, 1, &line);
  kvpool_claim_merge(&view, &line, 1);
  cr_expect(!view.readable, "an epoch of another host");
}

Test(lines, who_is_proven_out) {
  struct kvpool_host_view up = {.readable = true, .state = KVPOOL_HOST_UP, .incarnation = 7}, host;
  struct kvpool_use_view none = {.copies = 2, .incarnation = 7}, use;
  cr_expect(kvpool_host_is_out(&up, &none));
  for (u32 kind = KVPOOL_USE_ANNOUNCED; kind <= KVPOOL_USE_SCRUB; kind++) {
    use = none;
    use.use = kind;
    cr_expect(!kvpool_host_is_out(&up, &use), "use %u", kind);
  }
  use = none;
  use.copies = 0;
  cr_expect(!kvpool_host_is_out(&up, &use), "an unreadable line proves nothing");
  host = up;
  host.readable = false;
  cr_expect(!kvpool_host_is_out(&host, &none), "nor does an unreadable host");
  use.copies = 1;
  cr_expect(!kvpool_host_is_out(&up, &use), "nor one copy: the other may be the newer");
  host = up;
  host.incarnation = 8;
  cr_expect(!kvpool_host_is_out(&host, &use), "of whatever incarnation");
  use.use = KVPOOL_USE_USED;
  use.copies = 2;
  host = up;
  host.incarnation = 8;
  cr_expect(kvpool_host_is_out(&host, &use), "a new incarnation emptied its caches first");
  host = up;
  host.fenced = 6;
  cr_expect(!kvpool_host_is_out(&host, &use), "a fence around a former incarnation");
  host.fenced = 7;
  cr_expect(kvpool_host_is_out(&host, &use), "a fence around this one");
  host = up;
  host.state = KVPOOL_HOST_GONE;
  cr_expect(!kvpool_host_is_out(&host, &use), "a host that fenced itself may still be mapped");
  host.state = KVPOOL_HOST_LEFT;
  cr_expect(kvpool_host_is_out(&host, &use));
}

Test(lines, what_was_clean_in_another_epoch_is_not) {
  u8 bits[2] = {0xff, 0xff};
  u64 bound = 0;
  kvpool_bits_bind(bits, 1, &bound, 0x101);
  cr_expect(bits[0] == 0 && bits[1] == 0xff && bound == 0x101);
  bits[0] = 4;
  kvpool_bits_bind(bits, 1, &bound, 0x101);
  cr_expect_eq(bits[0], 4, "the same administrator knows it still");
  kvpool_bits_bind(bits, 1, &bound, 0x301);
  cr_expect_eq(bits[0], 0, "who takes over again, after another, does not");
}

Test(lines, copies_of_a_use_line_add_up) {
  u8 bits[32] = {0};
  union kvpool_line line;
  struct kvpool_use_view view = {0};
  for (u32 unit = 0; unit < 128; unit++) kvpool_use_set(bits, unit, unit % 4);
  for (u32 unit = 0; unit < 128; unit++) cr_expect_eq(kvpool_use_get(bits, unit), unit % 4);
  kvpool_use_make(bits, 3, 1, 7, 1, &line);
  kvpool_use_merge(&view, &line, 3, 128 + 6);
  cr_expect_eq(view.use, KVPOOL_USE_USED);
  memset(bits, 0, sizeof bits);
  kvpool_use_make(bits, 3, 1, 7, 2, &line);
  kvpool_use_merge(&view, &line, 3, 128 + 6);
  cr_expect(view.use == KVPOOL_USE_USED && view.copies == 2, "until both are without it");
  kvpool_use_merge(&view, &line, 2, 128 + 6);
  kvpool_use_merge(&view, &line, 3, 6);
  cr_expect_eq(view.copies, 2, "a line of another host, or of other units, is none");
}

Test(lines, leases) {
  cr_expect_eq(kvpool_lease_ns(0), 10000000000ull);
  cr_expect_eq(kvpool_lease_ns(99), 0);
  cr_expect_eq(kvpool_lease_ns(100), 100000000ull);
  cr_expect_eq(kvpool_lease_ns(600001), 0);
  cr_expect_eq(kvpool_lease_renew(99, 100, 50), 149);
  cr_expect_eq(kvpool_lease_renew(100, 100, 50), 0, "late is late");
  cr_expect_eq(kvpool_lease_renew(10, 100, 50), 100, "never shorter");
}
