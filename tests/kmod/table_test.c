// SPDX-License-Identifier: Apache-2.0
// Shows: the table of partitions says after writing and reading what it said before; no bytes make
// the decoder believe what cannot be; units are granted once. How: round trips, each field made
// wrong in turn under a right CRC, random bytes, random creations and ends.
#include "support.h"

#include <criterion/criterion.h>
#include <linux/kvpool.h>
#include <stdlib.h>

#include "logic/table.h"

static struct kvpool_table table, other;
static u8 buffer[KVPOOL_AREA_TABLE_BYTES], scratch[KVPOOL_UNIT_COUNT_MAX / 8];
static const struct kvpool_place at = {0, KVPOOL_LABEL_BYTES + KVPOOL_AREA_TABLE_0};

static int create(const struct kvpool_geometry *geo, const char *name, u32 units, u32 type) {
  static const u8 uuid[16] = {7};
  struct kvpool_create_plan plan = {.name = name, .uuid = uuid, .type = (u8)type};
  u32 id = 0;
  plan.bytes = (u64)units << geo->unit_shift;
  return kvpool_table_create(&table, geo, &plan, NULL, scratch, &id);
}

static int decode(const struct kvpool_geometry *geo, u64 epoch) {
  struct kvpool_seal seal = test_seal();
  return kvpool_table_decode(buffer, geo, &seal, at, epoch, scratch, &other);
}

// The body's CRC and the line's are made right again, so that only the meaning is wrong.
static void seal_again(const struct kvpool_geometry *geo) {
  struct kvpool_seal seal = test_seal();
  union kvpool_line *line = (void *)buffer;
  const u32 bytes = le32_to_cpu(line->table.body_bytes);
  (void)geo;
  if (bytes <= sizeof buffer - 64)
    line->table.body_crc =
        cpu_to_le32(kvpool_body_crc(&seal, at, le64_to_cpu(line->table.epoch), buffer + 64, bytes));
  kvpool_seal_line(&seal, at, line);
}

static void fill(const struct kvpool_geometry *geo) {
  struct kvpool_seal seal = test_seal();
  kvpool_table_init(&table);
  cr_assert_eq(create(geo, "ctl", 1, KVPOOL_TYPE_WB), 0);
  cr_assert_eq(create(geo, "pay", 4, KVPOOL_TYPE_WC), 0);
  cr_assert_eq(kvpool_table_drain(&table, "ctl", true), 0);
  table.fenced[2] = 55;
  table.epoch = 0x300;
  table.generation = 9;
  kvpool_table_encode(&table, geo, &seal, at, buffer);
}

Test(table, says_what_it_said) {
  struct kvpool_geometry geo = test_geometry(2);
  fill(&geo);
  cr_assert_eq(decode(&geo, 0x300), 0);
  cr_expect_eq(memcmp(&table, &other, sizeof table), 0);
  cr_expect_eq(decode(&geo, 0x400), -EUCLEAN, "another epoch's");
}

Test(table, names) {
  static const char *const good[] = {"a", "0", "a-b", "abcdefghijklmnopqrstuvwxyz01234"};
  static const char *const bad[] = {
      "", "-a", "A", "a_b", "a b", "a/b", "abcdefghijklmnopqrstuvwxyz012345"};
  for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++)
    cr_expect_eq(kvpool_name_check(good[i], strlen(good[i])), 0, "%s", good[i]);
  for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
    cr_expect_eq(kvpool_name_check(bad[i], strlen(bad[i])), -EINVAL, "%s", bad[i]);
}

Test(table, wrong_fields_are_refused) {
  struct kvpool_geometry geo = test_geometry(2);
  struct kvpool_partition_record *part = (void *)(buffer + 64);
  struct kvpool_slice_record *slice = (void *)(part + 2);
  union kvpool_line *line = (void *)buffer;
#define REFUSED(change, what)                                                         \
  do {                                                                                \
    fill(&geo);                                                                       \
    change;                                                                           \
    seal_again(&geo);                                                                 \
    cr_expect_eq(decode(&geo, le64_to_cpu(line->table.epoch)), -EUCLEAN, "%s", what); \
  } while (0)
  REFUSED(line->table.slice_count = cpu_to_le16(4097), "more slices than there can be");
  REFUSED(line->table.partition_count = cpu_to_le16(257), "more partitions");
  REFUSED(line->table.slice_count = cpu_to_le16(1), "a count that the length contradicts");
  REFUSED(line->table.body_bytes = cpu_to_le32(0xffffff00), "a length beyond the area");
  REFUSED(line->table.fence_count = cpu_to_le32(5), "fences of other hosts");
  REFUSED(line->table.next_slice_id = cpu_to_le32(1), "ids to be given twice");
  REFUSED(line->table.next_partition_id = 0, "no next id");
  REFUSED(part[0].name[0] = '/', "a name with a slash");
  REFUSED(part[0].name[20] = 'x', "a byte behind the name");
  REFUSED(memset(part[0].name, 'a', 32), "a name without end");
  REFUSED(memcpy(part[1].name, part[0].name, 32), "a name twice");
  REFUSED(part[1].id = part[0].id, "an id twice");
  REFUSED(part[0].id = 0, "id 0");
  REFUSED(part[0].state = 3, "a state");
  REFUSED(part[0].type = 3, "a type");
  REFUSED(part[0].ddio = 3, "a policy");
  REFUSED(part[0].flags = 2, "a flag");
  REFUSED(slice[0].device = cpu_to_le16(2), "a device that is not there");
  REFUSED(slice[0].first_unit = 0, "a slice over the metadata");
  REFUSED(slice[0].first_unit = cpu_to_le32(6), "behind the device");
  REFUSED(slice[0].unit_count = 0, "of no unit");
  REFUSED(slice[0].unit_count = cpu_to_le32(0xffffffff), "longer than the device");
  REFUSED(slice[0].partition = cpu_to_le32(99), "of no partition");
  REFUSED(slice[0].state = 0, "without a state");
  REFUSED(slice[0].flags = 2, "with a flag");
  REFUSED(slice[1].first_unit = slice[0].first_unit;
          slice[1].device = slice[0].device, "over another");
  REFUSED(slice[1].id = slice[0].id, "with another's id");
}

Test(table, random_bytes_are_refused_or_sound, .timeout = 60) {
  struct kvpool_geometry geo = test_geometry(2);
  u64 state = 88172645463325252ull;
  u32 believed = 0;
  for (int round = 0; round < 20000; round++) {
    fill(&geo);
    const u32 bytes = 64 + le32_to_cpu(((union kvpool_line *)buffer)->table.body_bytes);
    for (u64 changes = test_random(&state) % 6 + 1; changes--;)
      buffer[test_random(&state) % bytes] = (u8)test_random(&state);
    seal_again(&geo);
    ((__le32 *)buffer)[0] = cpu_to_le32(KVPOOL_MAGIC_TABLE);
    seal_again(&geo);
    if (decode(&geo, le64_to_cpu(((union kvpool_line *)buffer)->table.epoch))) continue;
    believed++;
    memset(scratch, 0, sizeof scratch);
    for (u32 i = 0; i < other.slice_count; i++) {
      const struct kvpool_slice_entry *slice = &other.slices[i];
      cr_assert(slice->first_unit >= kvpool_first_data_unit(&geo, slice->device));
      for (u32 unit = 0; unit < slice->unit_count; unit++) {
        const u32 number = kvpool_unit_number(&geo, slice->device, slice->first_unit + unit);
        cr_assert(number < kvpool_unit_count(&geo) && !kvpool_bit(scratch, number));
        kvpool_bit_set(scratch, number);
      }
    }
  }
  cr_expect(believed > 100 && believed < 19000, "%u", believed);
}

Test(table, creation_leaves_the_table_alone_when_it_fails) {
  struct kvpool_geometry geo = test_geometry(2);
  static u8 before[sizeof buffer];
  struct kvpool_seal seal = test_seal();
  fill(&geo);
  memcpy(before, buffer, sizeof before);
  cr_expect_eq(create(&geo, "big", 6, KVPOOL_TYPE_WC), -ENOSPC);
  cr_expect_eq(create(&geo, "pay", 1, KVPOOL_TYPE_WC), -EEXIST);
  cr_expect_eq(create(&geo, "Big", 1, KVPOOL_TYPE_WC), -EINVAL);
  cr_expect_eq(create(&geo, "big", 0, KVPOOL_TYPE_WC), -EINVAL);
  cr_expect_eq(create(&geo, "big", 1, 3), -EINVAL);
  kvpool_table_encode(&table, &geo, &seal, at, buffer);
  cr_expect_eq(memcmp(before, buffer, sizeof before), 0);
  cr_expect_eq(create(&geo, "big", 5, KVPOOL_TYPE_WC), 0, "all that is left");
  cr_expect_eq(create(&geo, "one", 1, KVPOOL_TYPE_WC), -ENOSPC);
}

Test(table, barred_units_are_left_out) {
  struct kvpool_geometry geo = test_geometry(1);
  static const u8 uuid[16] = {7};
  struct kvpool_create_plan plan = {.name = "a", .uuid = uuid, .bytes = 3ull << 26};
  u8 barred[1] = {1 << 2 | 1 << 4};
  u32 id;
  kvpool_table_init(&table);
  cr_assert_eq(kvpool_table_create(&table, &geo, &plan, barred, scratch, &id), 0);
  cr_expect_eq(table.slice_count, 3);
  for (u32 i = 0; i < 3; i++) cr_expect_eq(table.slices[i].first_unit, 1 + 2 * i);
  plan.name = "b";
  plan.bytes = 1ull << 26;
  cr_expect_eq(kvpool_table_create(&table, &geo, &plan, barred, scratch, &id), -ENOSPC);
}

// What an administrator plans, scrubs, and then gives: with all other units barred it is the same
// units, whatever has become free meanwhile.
Test(table, planned_units_are_given_and_no_others, .timeout = 60) {
  struct kvpool_geometry geo = test_geometry(3);
  static const u8 uuid[16] = {7};
  static struct kvpool_table planned;
  u64 state = 99;
  u32 id = 0, tried = 0;
  kvpool_table_init(&table);
  for (int round = 0; round < 3000; round++) {
    char name[2] = {(char)('a' + test_random(&state) % 6), 0};
    struct kvpool_create_plan plan = {.name = name, .uuid = uuid, .type = KVPOOL_TYPE_WC};
    plan.bytes = (test_random(&state) % 6 + 1) << geo.unit_shift;
    plan.slice_bytes = (test_random(&state) % 3) << geo.unit_shift;
    u8 barred[3] = {(u8)(test_random(&state) & test_random(&state))}, wanted[3], got[3], old[3];
    planned = table;
    if (!kvpool_table_create(&planned, &geo, &plan, barred, scratch, &id)) {
      kvpool_table_units(&table, &geo, old);
      kvpool_table_units(&planned, &geo, wanted);
      for (int i = 0; i < 3; i++) wanted[i] &= (u8)~old[i];
      for (int i = 0; i < 3; i++) barred[i] = (u8)~wanted[i];
      // The scrub takes its time: what drained is gone when it ends.
      for (u32 i = table.slice_count; i--;)
        if (table.slices[i].state == KVPOOL_SLICE_DRAINING) kvpool_table_drop_slice(&table, i);
      kvpool_table_units(&table, &geo, old);
      cr_assert_eq(kvpool_table_create(&table, &geo, &plan, barred, scratch, &id), 0);
      kvpool_table_units(&table, &geo, got);
      for (int i = 0; i < 3; i++) cr_assert_eq(got[i] & ~old[i], wanted[i]);
      tried++;
    }
    name[0] = (char)('a' + test_random(&state) % 6);
    kvpool_table_drain(&table, name, false);
    if (test_random(&state) % 4 == 0)
      for (u32 i = table.slice_count; i--;)
        if (table.slices[i].state == KVPOOL_SLICE_DRAINING) kvpool_table_drop_slice(&table, i);
  }
  cr_expect(tried > 300, "%u", tried);
}

Test(table, slices_are_no_longer_than_asked_for) {
  struct kvpool_geometry geo = test_geometry(2);
  static const u8 uuid[16] = {7};
  struct kvpool_create_plan plan = {
      .name = "a", .uuid = uuid, .bytes = 8ull << 26, .slice_bytes = 2ull << 26};
  u32 id;
  kvpool_table_init(&table);
  cr_assert_eq(kvpool_table_create(&table, &geo, &plan, NULL, scratch, &id), 0);
  cr_expect_eq(table.slice_count, 4);
  for (u32 i = 0; i < 4; i++) {
    cr_expect_eq(table.slices[i].unit_count, 2);
    cr_expect_eq(table.slices[i].device, i % 2);
  }
}

static int grow(const struct kvpool_geometry *geo, const char *name, u32 units) {
  struct kvpool_create_plan plan = {.name = name};
  u32 id = 0;
  plan.bytes = (u64)units << geo->unit_shift;
  return kvpool_table_grow(&table, geo, &plan, NULL, scratch, &id);
}

static u32 count_slices(const char *name, u8 state) {
  const struct kvpool_partition_entry *entry = kvpool_table_find(&table, name);
  u32 count = 0;
  for (u32 i = 0; entry && i < table.slice_count; i++)
    count += table.slices[i].partition == entry->id && table.slices[i].state == state;
  return count;
}

Test(table, growth_adds_slices_or_nothing) {
  struct kvpool_geometry geo = test_geometry(2);
  fill(&geo);
  const u32 slices = table.slice_count, next = table.next_slice_id;
  cr_expect_eq(grow(&geo, "none", 1), -ENOENT);
  cr_expect_eq(grow(&geo, "ctl", 1), -ESTALE, "it drains");
  cr_expect_eq(grow(&geo, "pay", 0), -EINVAL);
  cr_expect_eq(grow(&geo, "pay", 6), -ENOSPC);
  struct kvpool_create_plan odd = {.name = "pay", .bytes = 4096};
  u32 id = 0;
  cr_expect_eq(kvpool_table_grow(&table, &geo, &odd, NULL, scratch, &id), -EINVAL);
  cr_expect_eq(table.slice_count, slices);
  cr_expect_eq(table.next_slice_id, next);
  cr_expect_eq(grow(&geo, "pay", 5), 0, "all that is left");
  cr_expect(table.slice_count > slices);
  cr_expect_eq(table.slices[slices].id, next, "new ids are the highest");
  cr_expect_eq(table.slices[slices].partition, kvpool_table_find(&table, "pay")->id);
  cr_expect_eq(grow(&geo, "pay", 1), -ENOSPC);
}

static u64 sum;
static u32 reason;
static int shrink(const struct kvpool_geometry *geo, const char *name, const u32 *ids, u32 count,
                  u32 units) {
  struct kvpool_shrink_plan plan = {.name = name, .ids = ids, .id_count = count};
  plan.bytes = (u64)units << geo->unit_shift;
  sum = 0;
  reason = 0;
  return kvpool_table_shrink(&table, geo, &plan, &sum, &reason);
}

// Four slices of a write-back partition, a unit each, then four of a payload, two units each.
static void fill_to_shrink(struct kvpool_geometry *geo) {
  *geo = test_geometry(4);
  kvpool_table_init(&table);
  cr_assert_eq(create(geo, "ctl", 4, KVPOOL_TYPE_WB), 0);
  cr_assert_eq(create(geo, "pay", 8, KVPOOL_TYPE_WC), 0);
  cr_assert_eq(count_slices("ctl", KVPOOL_SLICE_ACTIVE), 4);
  cr_assert_eq(count_slices("pay", KVPOOL_SLICE_ACTIVE), 4);
}

Test(table, shrinking_by_name) {
  struct kvpool_geometry geo;
  fill_to_shrink(&geo);
  static struct kvpool_table before;
  const u32 ctl = table.slices[0].id, pay = table.slices[4].id;
  const u32 some[] = {pay + 1, pay + 3}, all[] = {pay, pay + 1, pay + 2, pay + 3},
            first[] = {ctl + 1, ctl}, foreign[] = {pay, ctl};
#define KEPT(call, err, why)                                            \
  do {                                                                  \
    before = table;                                                     \
    cr_expect_eq((call), (err), "%s", #call);                           \
    cr_expect_eq(reason, (why), "%s: %u", #call, reason);               \
    cr_expect_eq(memcmp(&before, &table, sizeof table), 0, "%s", #call); \
  } while (0)
  KEPT(shrink(&geo, "none", some, 2, 0), -ENOENT, KVPOOL_CHANGE_NO_PARTITION);
  KEPT(shrink(&geo, "pay", foreign, 2, 0), -ENOENT, KVPOOL_CHANGE_NO_SLICE);
  KEPT(shrink(&geo, "ctl", first, 2, 0), -EBUSY, KVPOOL_CHANGE_FIRST_SLICE);
  KEPT(shrink(&geo, "pay", all, 4, 0), -EBUSY, KVPOOL_CHANGE_NOTHING_LEFT);
  cr_expect_eq(shrink(&geo, "pay", some, 2, 0), 0);
  cr_expect_eq(sum, 4ull << geo.unit_shift);
  cr_expect_eq(table.slices[5].state, KVPOOL_SLICE_DRAINING);
  cr_expect_eq(table.slices[6].state, KVPOOL_SLICE_ACTIVE);
  cr_expect_eq(table.slices[7].state, KVPOOL_SLICE_DRAINING);
  cr_expect_eq(kvpool_table_find(&table, "pay")->state, KVPOOL_PARTITION_ACTIVE);
  KEPT(shrink(&geo, "pay", some, 2, 0), 0, KVPOOL_CHANGE_DONE);
  KEPT(shrink(&geo, "pay", all, 4, 0), -EBUSY, KVPOOL_CHANGE_NOTHING_LEFT);
  struct kvpool_shrink_plan forced = {.name = "pay", .ids = some, .id_count = 1, .force = true};
  cr_expect_eq(kvpool_table_shrink(&table, &geo, &forced, &sum, &reason), 0);
  cr_expect_eq(table.slices[5].flags, KVPOOL_SLICE_F_FORCE);
  cr_expect_eq(table.slices[7].flags, 0);
  struct kvpool_seal seal = test_seal();
  table.epoch = 0x300;
  kvpool_table_encode(&table, &geo, &seal, at, buffer);
  cr_expect_eq(decode(&geo, 0x300), 0);
  cr_expect_eq(memcmp(&table, &other, sizeof table), 0, "the medium says the same");
  cr_assert_eq(kvpool_table_drain(&table, "pay", false), 0);
  KEPT(shrink(&geo, "pay", some, 2, 0), -ESTALE, KVPOOL_CHANGE_DRAINS);
}

Test(table, shrinking_by_bytes_takes_the_newest) {
  struct kvpool_geometry geo;
  static struct kvpool_table before;
  fill_to_shrink(&geo);
  KEPT(shrink(&geo, "pay", NULL, 0, 3), -EINVAL, KVPOOL_CHANGE_NOT_WHOLE);
  cr_expect_eq(sum, 4ull << geo.unit_shift, "what would be whole");
  KEPT(shrink(&geo, "pay", NULL, 0, 8), -EBUSY, KVPOOL_CHANGE_NOTHING_LEFT);
  KEPT(shrink(&geo, "pay", NULL, 0, 100), -EBUSY, KVPOOL_CHANGE_NOTHING_LEFT);
  KEPT(shrink(&geo, "ctl", NULL, 0, 4), -EBUSY, KVPOOL_CHANGE_FIRST_SLICE);
  struct kvpool_shrink_plan odd = {.name = "pay", .bytes = 4096};
  cr_expect_eq(kvpool_table_shrink(&table, &geo, &odd, &sum, &reason), -EINVAL);
  cr_expect_eq(reason, KVPOOL_CHANGE_BAD_BYTES);
  cr_expect_eq(shrink(&geo, "pay", NULL, 0, 4), 0);
  cr_expect_eq(table.slices[4].state, KVPOOL_SLICE_ACTIVE);
  cr_expect_eq(table.slices[5].state, KVPOOL_SLICE_ACTIVE);
  cr_expect_eq(table.slices[6].state, KVPOOL_SLICE_DRAINING);
  cr_expect_eq(table.slices[7].state, KVPOOL_SLICE_DRAINING);
  cr_expect_eq(shrink(&geo, "pay", NULL, 0, 2), 0, "the newest that is left");
  cr_expect_eq(table.slices[5].state, KVPOOL_SLICE_DRAINING);
  KEPT(shrink(&geo, "pay", NULL, 0, 2), -EBUSY, KVPOOL_CHANGE_NOTHING_LEFT);
  cr_expect_eq(shrink(&geo, "ctl", NULL, 0, 3), 0);
  cr_expect_eq(count_slices("ctl", KVPOOL_SLICE_ACTIVE), 1);
}

Test(table, units_come_back_and_ids_do_not, .timeout = 60) {
  struct kvpool_geometry geo = test_geometry(3);
  u64 state = 12345;
  u32 last_id = 0;
  kvpool_table_init(&table);
  for (int round = 0; round < 3000; round++) {
    char name[2] = {(char)('a' + test_random(&state) % 8), 0};
    if (create(&geo, name, (u32)(test_random(&state) % 5 + 1), KVPOOL_TYPE_WC) == 0) {
      cr_assert(table.slices[table.slice_count - 1].id > last_id);
      last_id = table.slices[table.slice_count - 1].id;
    }
    name[0] = (char)('a' + test_random(&state) % 8);
    if (test_random(&state) % 4 == 0) kvpool_table_drain(&table, name, false);
    name[0] = (char)('a' + test_random(&state) % 8);
    if (grow(&geo, name, (u32)(test_random(&state) % 3)) == 0) {
      cr_assert(table.slices[table.slice_count - 1].id > last_id);
      last_id = table.slices[table.slice_count - 1].id;
    }
    if (table.slice_count) {
      const u32 slice = (u32)(test_random(&state) % table.slice_count);
      shrink(&geo, name, &table.slices[slice].id, 1, 0);
    }
    for (u32 i = table.slice_count; i--;)
      if (table.slices[i].state == KVPOOL_SLICE_DRAINING && test_random(&state) % 2)
        kvpool_table_drop_slice(&table, i);
    memset(scratch, 0, sizeof scratch);
    for (u32 i = 0; i < table.slice_count; i++) {
      cr_assert(kvpool_table_find_id(&table, table.slices[i].partition) != NULL);
      for (u32 unit = 0; unit < table.slices[i].unit_count; unit++) {
        const u32 number =
            kvpool_unit_number(&geo, table.slices[i].device, table.slices[i].first_unit + unit);
        cr_assert(!kvpool_bit(scratch, number), "a unit twice");
        kvpool_bit_set(scratch, number);
      }
    }
    for (u32 i = 0; i < table.partition_count; i++) {
      u32 slices = 0;
      for (u32 k = 0; k < table.slice_count; k++)
        slices += table.slices[k].partition == table.partitions[i].id;
      cr_assert(slices > 0, "a partition without a slice");
    }
  }
}
