/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs share that a guest's init runs: TAP lines, the driver's calls in short, and a
 * touch that survives a signal.
 */
#ifndef KVPOOL_TESTS_QEMU_GUEST_H
#define KVPOOL_TESTS_QEMU_GUEST_H

#include <errno.h>
#include <fcntl.h>
#include <linux/kvpool.h>
#include <linux/kvpool_format.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define POOL_START 0x100000000ull
#define DEVICE_BYTES (384 * MIB)
#define DEVICE_COUNT 2
#define UNIT (64 * MIB)
#define LEAF (2 * MIB)
#define HOSTS 4

void ok_at(bool held, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define ok(held, ...) ok_at((held), __LINE__, __VA_ARGS__)
/* The call fails with that errno. */
#define fails(call, wanted, ...) ok((call) == -1 && errno == (wanted), __VA_ARGS__)
int tap_end(void);

bool huge_leaves(void); /* this kernel maps 2 MiB */
int load_driver(const char *arguments);
int unload_driver(void); /* 0, or errno */
int put_file(const char *path, const char *text); /* 0, or errno */
extern int control;      /* descriptor of /dev/kvpool, -1 */
void open_control(void);
void close_control(void);

extern const uint8_t pool_uuid[16];
struct kvpool_claim claim_args(uint64_t flags, struct kvpool_range *ranges, uint32_t count);
void two_devices(struct kvpool_range ranges[DEVICE_COUNT]);
int claim_pool(uint64_t flags, uint32_t host); /* of both devices; 0 or -1 */
int release_pool(void);
int take_admin(void);
int create(const char *name, uint64_t bytes, uint32_t type);
int destroy(const char *name, uint64_t flags);
extern struct kvpool_partition_grow grown; /* what the last call gave back */
extern struct kvpool_partition_shrink shrunk;
int grow(const char *name, uint64_t bytes);
int shrink(const char *name, const uint32_t *ids, uint32_t count, uint64_t bytes, uint64_t flags);
struct kvpool_info info(void);
/* The partition as listed; id 0: not there. */
struct kvpool_item_partition partition(const char *name);
/* Waits up to 10 s until it is in no list any more. */
bool wait_gone(const char *name);
int node(const char *name, int flags);
uint64_t slice_offset(int fd, uint32_t index); /* for mmap; 0: no such slice */
struct kvpool_item_member member_of(int fd, uint64_t incarnation);

/* 0, or the signal that the access ended with; fault_code, fault_address tell more. */
int touch_read(const void *at, uint64_t *ret_word);
int touch_write(void *at, uint64_t word);
extern int fault_code;
extern void *fault_address;

uint64_t word_at(const void *at);
void pause_ms(unsigned ms);
uint64_t now_ms(void);
/* Runs it in a child as nobody; its result is the exit code, 255 if it was killed. */
int as_nobody(int (*function)(void *), void *arg);
int in_child(int (*function)(void *), void *arg);
/* Runs checks in a process of their own: who maps a partition may reach it until he ends. */
void in_process(const char *name, void (*suite)(void));

/* A joined store: control partition "ctl" (WB), payload "pay" (WC). */
struct store {
  int ctl, pay;
  struct kvpool_join join;
  uint8_t *meta, *data; /* one leaf each, behind the drivers' lines */
  const struct kvpool_state_page *state;
};
int store_open(struct store *store);
int store_join(struct store *store, uint64_t flags, uint32_t lease_ms);
int store_map(struct store *store);
void store_close(struct store *store);
struct kvpool_mapping ask(int fd, const void *at);
int renew(int fd);
int revoke_member(uint64_t incarnation);

int agent(void); /* a guest of a rack; agent.c */
void test_store(void);
void test_load(void);
void test_claim(void);
void test_labels(void);
void test_ioctls(void);
void test_partitions(void);
void test_mapping(void);
void test_members(void);
void test_resize(void);
void test_events(void);
void test_unload(void);
void test_remove(void);

#endif
