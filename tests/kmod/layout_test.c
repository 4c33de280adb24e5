// SPDX-License-Identifier: Apache-2.0
// Shows: the structures that leave the kernel have the size and the offsets that they were given,
// and no hole. How: constants written down here; sums of members.
#include <criterion/criterion.h>
#include <linux/kvpool.h>
#include <linux/kvpool_format.h>
#include <stddef.h>

#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)
#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == (offset), #member)

SIZE(kvpool_label, 64);
SIZE(kvpool_host_line, 64);
SIZE(kvpool_claim_line, 64);
SIZE(kvpool_ack_line, 64);
SIZE(kvpool_use_line, 64);
SIZE(kvpool_table_line, 64);
SIZE(kvpool_reaper_line, 64);
SIZE(kvpool_partition_record, 64);
SIZE(kvpool_slice_record, 32);
AT(kvpool_label, uuid, 8);
AT(kvpool_label, life, 24);
AT(kvpool_label, device_bytes, 32);
AT(kvpool_label, offset, 40);
AT(kvpool_label, device, 48);
AT(kvpool_label, crc, 60);
AT(kvpool_host_line, state, 6);
AT(kvpool_host_line, incarnation, 8);
AT(kvpool_host_line, heartbeat, 16);
AT(kvpool_host_line, crc, 60);
AT(kvpool_claim_line, claimed, 8);
AT(kvpool_claim_line, active, 16);
AT(kvpool_claim_line, generation, 24);
AT(kvpool_claim_line, crc, 60);
AT(kvpool_ack_line, crc, 60);
AT(kvpool_use_line, incarnation, 8);
AT(kvpool_use_line, bits, 24);
AT(kvpool_use_line, crc, 60);
AT(kvpool_table_line, epoch, 8);
AT(kvpool_table_line, next_slice_id, 24);
AT(kvpool_table_line, body_bytes, 32);
AT(kvpool_table_line, crc, 60);
AT(kvpool_reaper_line, state, 16);
AT(kvpool_reaper_line, former_incarnation, 24);
AT(kvpool_reaper_line, crc, 60);
AT(kvpool_partition_record, id, 48);
AT(kvpool_partition_record, litmus_date, 56);
AT(kvpool_slice_record, device, 16);

SIZE(kvpool_info, 136);
SIZE(kvpool_range, 16);
SIZE(kvpool_claim, 72);
SIZE(kvpool_release, 8);
SIZE(kvpool_admin, 16);
SIZE(kvpool_partition_create, 72);
SIZE(kvpool_partition_destroy, 24);
SIZE(kvpool_list, 40);
SIZE(kvpool_item_device, 32);
SIZE(kvpool_item_host, 56);
SIZE(kvpool_item_partition, 104);
SIZE(kvpool_item_slice, 48);
SIZE(kvpool_item_member, 32);
SIZE(kvpool_host_fence, 24);
SIZE(kvpool_revoke, 16);
SIZE(kvpool_join, 48);
SIZE(kvpool_renew, 16);
SIZE(kvpool_populate, 48);
SIZE(kvpool_poison, 32);
SIZE(kvpool_mapping, 40);
SIZE(kvpool_quiet, 16);
SIZE(kvpool_partition_grow, 48);
SIZE(kvpool_partition_shrink, 56);
SIZE(kvpool_slice_quiet, 24);
SIZE(kvpool_device_watch, 24);
SIZE(kvpool_event_record, 64);
SIZE(kvpool_state_page, 40);
AT(kvpool_slice_record, flags, 19);

// A table of everything that there can be fits its area, and areas fit the host's.
_Static_assert(64 + KVPOOL_PARTITION_COUNT_MAX * 64 + KVPOOL_SLICE_COUNT_MAX * 32 +
                       KVPOOL_HOST_COUNT_MAX * 8 <=
                   KVPOOL_AREA_TABLE_BYTES,
               "table area");
_Static_assert(KVPOOL_AREA_TABLE_0 + 2 * KVPOOL_AREA_TABLE_BYTES == KVPOOL_HOST_AREA_BYTES, "area");
_Static_assert(KVPOOL_AREA_USE_LINES + KVPOOL_UNIT_COUNT_MAX / KVPOOL_USE_UNITS_PER_LINE * 64 <=
                   KVPOOL_AREA_TABLE_0,
               "use lines");
_Static_assert(KVPOOL_HOST_COUNT_MAX *KVPOOL_REAPER_PAGE_BYTES <= KVPOOL_REAPER_BYTES, "pages");

#define NUMBER(word, number, type) \
  { word, number, sizeof(struct type), #word }

Test(layout, commands_keep_number_and_size) {
  static const struct {
    unsigned long word;
    unsigned number, bytes;
    const char *name;
  } commands[] = {
      NUMBER(KVPOOL_GET_INFO, 0x00, kvpool_info),
      NUMBER(KVPOOL_CLAIM, 0x01, kvpool_claim),
      NUMBER(KVPOOL_RELEASE, 0x02, kvpool_release),
      NUMBER(KVPOOL_ADMIN, 0x03, kvpool_admin),
      NUMBER(KVPOOL_PARTITION_CREATE, 0x04, kvpool_partition_create),
      NUMBER(KVPOOL_PARTITION_DESTROY, 0x05, kvpool_partition_destroy),
      NUMBER(KVPOOL_LIST, 0x06, kvpool_list),
      NUMBER(KVPOOL_HOST_FENCE, 0x07, kvpool_host_fence),
      NUMBER(KVPOOL_REVOKE, 0x08, kvpool_revoke),
      NUMBER(KVPOOL_POISON, 0x09, kvpool_poison),
      NUMBER(KVPOOL_PARTITION_GROW, 0x0a, kvpool_partition_grow),
      NUMBER(KVPOOL_PARTITION_SHRINK, 0x0b, kvpool_partition_shrink),
      NUMBER(KVPOOL_SLICE_QUIET, 0x0c, kvpool_slice_quiet),
      NUMBER(KVPOOL_DEVICE_WATCH, 0x0d, kvpool_device_watch),
      NUMBER(KVPOOL_JOIN, 0x10, kvpool_join),
      NUMBER(KVPOOL_RENEW, 0x11, kvpool_renew),
      NUMBER(KVPOOL_POPULATE, 0x12, kvpool_populate),
      NUMBER(KVPOOL_MAPPING, 0x13, kvpool_mapping),
      NUMBER(KVPOOL_QUIET, 0x14, kvpool_quiet),
  };
  for (unsigned i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    cr_expect_eq(_IOC_TYPE(commands[i].word), 0xD4, "%s", commands[i].name);
    cr_expect_eq(_IOC_NR(commands[i].word), commands[i].number, "%s", commands[i].name);
    cr_expect_eq(_IOC_SIZE(commands[i].word), commands[i].bytes, "%s", commands[i].name);
  }
}
