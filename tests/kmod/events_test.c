// SPDX-License-Identifier: Apache-2.0
// Shows: a descriptor's events come in order, each once; what does not fit takes the oldest away,
// and the next one that is read says how many went. How: rings of every small size against a list.
#include "support.h"

#include <criterion/criterion.h>

#include "logic/events.h"

static struct kvpool_event_record events[8];

static struct kvpool_ring ring_of(u32 room) {
  struct kvpool_ring ring = {.events = events, .room = room};
  return ring;
}

static void push(struct kvpool_ring *ring, u64 sequence) {
  const struct kvpool_event_record event = {
      .kind = KVPOOL_EVENT_TABLE, .sequence = sequence, .lost = 77};
  kvpool_ring_push(ring, &event);
}

Test(events, empty_at_the_bound_and_beyond) {
  struct kvpool_ring ring = ring_of(3);
  struct kvpool_event_record event = {.sequence = 99};
  cr_expect(!kvpool_ring_pop(&ring, &event));
  cr_expect_eq(event.sequence, 99, "untouched");
  for (u64 i = 1; i <= 3; i++) push(&ring, i);
  for (u64 i = 1; i <= 3; i++) {
    cr_assert(kvpool_ring_pop(&ring, &event));
    cr_expect_eq(event.sequence, i);
    cr_expect_eq(event.lost, 0);
  }
  cr_expect(!kvpool_ring_pop(&ring, &event));
  for (u64 i = 1; i <= 4; i++) push(&ring, i);
  cr_assert(kvpool_ring_pop(&ring, &event));
  cr_expect_eq(event.sequence, 2, "the oldest went");
  cr_expect_eq(event.lost, 1, "and is counted");
  cr_assert(kvpool_ring_pop(&ring, &event));
  cr_expect_eq(event.lost, 0, "once");
}

Test(events, what_did_not_arrive_is_lost) {
  struct kvpool_ring ring = ring_of(2);
  struct kvpool_event_record event;
  for (u64 i = 1; i <= 4; i++) push(&ring, i);
  cr_assert(kvpool_ring_pop(&ring, &event));
  cr_expect_eq(event.lost, 2);
  kvpool_ring_lose(&ring, &event);
  cr_assert(kvpool_ring_pop(&ring, &event));
  cr_expect_eq(event.sequence, 4);
  cr_expect_eq(event.lost, 3);
  ring.lost = ~0u - 1;
  push(&ring, 5);
  event.lost = 5;
  kvpool_ring_lose(&ring, &event);
  cr_assert(kvpool_ring_pop(&ring, &event));
  cr_expect_eq(event.lost, ~0u, "many is many, and not few");
}

Test(events, any_order_of_pushes_and_reads) {
  u64 state = 4711;
  for (u32 room = 1; room <= 8; room++) {
    struct kvpool_ring ring = ring_of(room);
    struct kvpool_event_record event;
    u64 pushed = 0, read = 0;
    for (int i = 0; i < 5000; i++) {
      if (test_random(&state) % 2) {
        push(&ring, ++pushed);
      } else if (kvpool_ring_pop(&ring, &event)) {
        cr_assert_eq(event.sequence, read + event.lost + 1);
        read = event.sequence;
      } else {
        cr_assert_eq(read, pushed);
      }
      cr_assert(ring.count <= room);
      cr_assert(pushed - read - ring.count <= ring.lost);
    }
  }
}
