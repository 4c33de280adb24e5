// SPDX-License-Identifier: Apache-2.0
// Shows: who joined maps its slices, with the partition's memory type, in whole leaves, and nothing
// else. How: every system call that takes such a mapping apart, moves it, or reads through it.
#define _GNU_SOURCE
#include "guest.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static struct store store;

static void *map_at(int fd, uint64_t offset, uint64_t bytes, int protection, int flags) {
  return mmap(NULL, bytes, protection, flags, fd, offset);
}

static void refusals(void) {
  const uint64_t pay = slice_offset(store.pay, 0), ctl = slice_offset(store.ctl, 0);
  const int both = PROT_READ | PROT_WRITE;
  fails((long)map_at(store.pay, pay, LEAF, both, MAP_PRIVATE), EINVAL, "a private mapping");
  fails((long)map_at(store.pay, pay, LEAF, both | PROT_EXEC, MAP_SHARED), EINVAL,
        "an executable one");
  fails((long)map_at(store.pay, pay + 4096, LEAF, both, MAP_SHARED), EINVAL, "from within a leaf");
  fails((long)map_at(store.pay, pay, 4096, both, MAP_SHARED), EINVAL, "less than a leaf");
  fails((long)map_at(store.pay, pay + UNIT, 2 * UNIT, both, MAP_SHARED), EINVAL,
        "over the slice's end");
  fails((long)map_at(store.pay, pay + 2 * UNIT, LEAF, both, MAP_SHARED), EINVAL,
        "behind the slice");
  fails((long)map_at(store.pay, ctl, LEAF, both, MAP_SHARED), EINVAL, "another partition's slice");
  fails((long)map_at(store.pay, 77ull << 40, LEAF, both, MAP_SHARED), EINVAL,
        "a slice there is not");
  fails((long)map_at(store.ctl, ctl, LEAF, both, MAP_SHARED), EACCES,
        "the drivers' lines, to write");
  fails((long)map_at(store.ctl, ctl, 2 * LEAF, PROT_READ, MAP_SHARED), EACCES,
        "and more with them");
  fails((long)map_at(store.ctl, KVPOOL_MAP_STATE, 4096, both, MAP_SHARED), EINVAL,
        "STATE, to write");
  fails((long)map_at(store.ctl, KVPOOL_MAP_STATE, 8192, PROT_READ, MAP_SHARED), EINVAL,
        "STATE, more");
  fails((long)map_at(control, KVPOOL_MAP_STATE, 4096, PROT_READ, MAP_SHARED), ENODEV,
        "the control node");
  const int other = node("pay", O_RDWR);
  fails((long)map_at(other, pay, LEAF, both, MAP_SHARED), ENXIO, "without JOIN");
  close(other);
  uint8_t *lines = map_at(store.ctl, ctl, LEAF, PROT_READ, MAP_SHARED);
  ok(lines != MAP_FAILED, "the drivers' lines can be read");
  const struct kvpool_reaper_line *line =
      (const void *)(lines + store.join.ret_host * KVPOOL_REAPER_PAGE_BYTES +
                     store.join.ret_slot * KVPOOL_LINE_BYTES);
  ok(line->magic == KVPOOL_MAGIC_REAPER && line->incarnation == store.join.ret_incarnation &&
         line->state == KVPOOL_REAPER_LIVE,
     "the own slot's line says: live");
  ok(touch_write(lines, 1) == SIGSEGV, "but not written");
  fails(mprotect(lines, LEAF, both), EACCES, "nor made writable");
  munmap(lines, LEAF);
}

static void types(void) {
  struct kvpool_mapping mapping = ask(store.ctl, store.meta);
  ok(mapping.ret_leaf_bytes == 0, "nothing is mapped before it is touched");
  ok(!touch_write(store.meta, 0x77) && !touch_write(store.data, 0x88),
     "both partitions are written");
  mapping = ask(store.ctl, store.meta);
  const uint64_t leaf = huge_leaves() ? LEAF : 4096;
  ok(mapping.ret_type == KVPOOL_TYPE_WB && mapping.ret_leaf_bytes == leaf,
     "control: write-back, leaves of %llu", (unsigned long long)mapping.ret_leaf_bytes);
  mapping = ask(store.pay, store.data);
  ok(mapping.ret_type == KVPOOL_TYPE_WC && mapping.ret_leaf_bytes == leaf,
     "payload: write-combining, leaves of %llu", (unsigned long long)mapping.ret_leaf_bytes);
  ok(partition("ctl").type_obtained == KVPOOL_TYPE_WB &&
         partition("pay").type_obtained == KVPOOL_TYPE_WC,
     "and the driver lists what it obtained");
  fails(
      ioctl(store.pay, KVPOOL_MAPPING, &(struct kvpool_mapping){.address = (uintptr_t)store.meta}),
      EFAULT, "MAPPING of another descriptor's address");
}

static void populating(void) {
  struct kvpool_populate args = {.address = (uintptr_t)store.data, .bytes = UNIT};
  ok(ioctl(store.pay, KVPOOL_POPULATE, &args) == 0 && args.ret_bytes == UNIT &&
         args.ret_leaves_2m * LEAF + args.ret_leaves_4k * 4096ull == UNIT &&
         (huge_leaves() ? args.ret_leaves_2m == 32 : args.ret_leaves_2m == 0),
     "POPULATE of a slice: %u and %u leaves", args.ret_leaves_2m, args.ret_leaves_4k);
  args.address = (uintptr_t)&args & ~4095ul;
  args.bytes = 4096;
  fails(ioctl(store.pay, KVPOOL_POPULATE, &args), EFAULT, "POPULATE of other memory");
  args.address = ~4095ull;
  args.bytes = 8192;
  fails(ioctl(store.pay, KVPOOL_POPULATE, &args), EINVAL, "POPULATE around the end");
}

static void splits(void) {
  uint8_t *at = store.data;
  fails(madvise(at + 4096, 4096, MADV_RANDOM), EINVAL, "madvise within a leaf");
  fails(mprotect(at + 4096, 4096, PROT_READ), EINVAL, "mprotect within a leaf");
  fails(munmap(at + 4096, 4096), EINVAL, "munmap within a leaf");
  ok(madvise(at + LEAF, LEAF, MADV_RANDOM) == 0, "madvise of a leaf");
  ok(mprotect(at + 2 * LEAF, LEAF, PROT_READ) == 0, "mprotect of a leaf");
  ok(touch_write(at + 2 * LEAF, 1) == SIGSEGV, "it is read-only then");
  ok(mprotect(at + 2 * LEAF, LEAF, PROT_READ | PROT_WRITE) == 0 && !touch_write(at + 2 * LEAF, 1) &&
         ask(store.pay, at + 2 * LEAF).ret_type == KVPOOL_TYPE_WC,
     "and keeps its type when written again");
  fails(mprotect(at, LEAF, PROT_READ | PROT_EXEC), EACCES, "never executable");
  fails(madvise(at, LEAF, MADV_DONTNEED), EINVAL, "MADV_DONTNEED");
  fails(madvise(at, LEAF, MADV_DOFORK), EINVAL, "MADV_DOFORK");
  ok(madvise(at, LEAF, MADV_REMOVE) == -1, "MADV_REMOVE");
  ok(mremap(at, UNIT, UNIT * 2, MREMAP_MAYMOVE) == MAP_FAILED,
     "mremap of several parts to something larger");
}

static void moves(void) {
  const uint64_t offset = slice_offset(store.pay, 1);
  uint8_t *at = map_at(store.pay, offset, UNIT, PROT_READ | PROT_WRITE, MAP_SHARED);
  uint8_t *room =
      mmap(NULL, UNIT + 2 * LEAF, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  uint8_t *aligned = (uint8_t *)(((uintptr_t)room + LEAF - 1) & ~(LEAF - 1));
  ok(at != MAP_FAILED && !touch_write(at, 0x55), "the second slice is mapped");
  ok(mremap(at, UNIT, 2 * UNIT, MREMAP_MAYMOVE) == MAP_FAILED, "mremap to something larger");
  ok(mremap(at, UNIT, UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, aligned + 4096) == MAP_FAILED,
     "mremap to where leaves do not fit");
  ok(word_at(at) == 0x55, "the old place is as it was");
  uint8_t *moved = mremap(at, UNIT, UNIT, MREMAP_MAYMOVE | MREMAP_FIXED, aligned);
  ok(moved == aligned && word_at(moved) == 0x55 && ask(store.pay, moved).ret_type == KVPOOL_TYPE_WC,
     "mremap to where they fit");
  ok(mmap(aligned + 4096, LEAF, PROT_READ, MAP_SHARED | MAP_FIXED, store.pay, offset) == MAP_FAILED,
     "MAP_FIXED where leaves do not fit");
  munmap(moved, UNIT);
}

// What reads memory for a user, and must not reach these bytes other than by copying.
static void reading(void) {
  char bytes[64];
  struct iovec local = {bytes, 64}, remote = {store.data, 64}, page = {store.data, 4096};
  int pipes[2];
  ok(pipe(pipes) == 0, "a pipe");
  fails(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), EFAULT, "process_vm_readv");
  fails(vmsplice(pipes[1], &page, 1, 0), EFAULT, "vmsplice");
  ok(write(pipes[1], store.data, 64) == 64, "write copies from it");
  const int mem = open("/proc/self/mem", O_RDWR);
  ok(pread(mem, bytes, 8, (off_t)(uintptr_t)store.data) == -1, "/proc/self/mem");
  close(mem);
  fails(syscall(SYS_remap_file_pages, store.data, LEAF, 0, LEAF / 4096, 0), EINVAL,
        "remap_file_pages");
  close(pipes[0]);
  close(pipes[1]);
}

// On kernels that do not look, this call would be an oops. Small leaves it skips by itself.
static int strict_mbind(void *arg) {
  unsigned long mask = 1;
  (void)arg;
  struct store own;
  if (store_open(&own) || store_join(&own, 0, 60000) || store_map(&own)) return 3;
  if (touch_write(own.data, 1) || setuid(65534)) return 4;
  const long result = syscall(SYS_mbind, own.data, LEAF, 2, &mask, 64ul, 1);
  if (result == 0) return huge_leaves() ? 2 : 0;
  return errno == EFAULT || errno == EIO ? 0 : 5;
}

static void small_leaves(void) {
  uint8_t *at =
      map_at(store.pay, slice_offset(store.pay, 1), LEAF, PROT_READ | PROT_WRITE, MAP_SHARED);
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  ok(!touch_write(at + 8, 1) && ask(store.pay, at).ret_leaf_bytes == 4096 &&
         ask(store.pay, at).ret_type == KVPOOL_TYPE_WC,
     "without large pages: small leaves of the same type");
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  munmap(at, LEAF);
}

static void read_only(void) {
  struct store other;
  memset(&other, 0, sizeof other);
  other.ctl = node("ctl", O_RDWR);
  other.pay = node("pay", O_RDONLY);
  ok(store_join(&other, 0, 60000) == 0, "a second member of the same process");
  void *at = map_at(other.pay, slice_offset(other.pay, 0), LEAF, PROT_READ, MAP_SHARED);
  ok(at != MAP_FAILED && mprotect(at, LEAF, PROT_READ | PROT_WRITE) == -1 && errno == EACCES,
     "a descriptor for reading maps for reading only");
  munmap(at, LEAF);
  close(other.ctl);
  close(other.pay);
}

// A page goes bad under a mapping: who touches it is told where, all others go on.
static void poisoned(void) {
  struct kvpool_item_slice slices[4];
  struct kvpool_list list = {
      .kind = KVPOOL_LIST_SLICES, .item_bytes = sizeof slices[0], .count = 4};
  list.items = (uintptr_t)slices;
  ok(ioctl(store.pay, KVPOOL_LIST, &list) == 0, "slices are listed");
  struct kvpool_poison poison = {.device = slices[0].device, .bytes = 64};
  poison.device_offset = slices[0].device_offset + 6 * LEAF + 5 * 4096 + 128;
  uint8_t *leaf = store.data + 6 * LEAF, *page = leaf + 5 * 4096;
  ok(!touch_write(leaf, 0x61) && !touch_write(page, 1), "a leaf is in use");
  ok(ioctl(control, KVPOOL_POISON, &poison) == 0, "a line of it is reported");
  ok(touch_read(page + 128, NULL) == SIGBUS && fault_code == BUS_MCEERR_AR &&
         fault_address == page + 128,
     "touching its page gives SIGBUS, poison, with the address");
  uint64_t word = 0;
  ok(!touch_read(leaf, &word) && word == 0x61 && ask(store.pay, leaf).ret_leaf_bytes == 4096 &&
         ask(store.pay, leaf).ret_type == KVPOOL_TYPE_WC,
     "its neighbours are there, in small leaves");
  ok(!touch_write(leaf + LEAF, 1), "and other leaves as before");
  int pipes[2];
  ok(pipe(pipes) == 0, "a pipe");
  fails(write(pipes[1], page, 8), EFAULT, "a system call gets EFAULT");
  close(pipes[0]);
  close(pipes[1]);
  struct kvpool_populate populate = {.address = (uintptr_t)leaf, .bytes = LEAF};
  ok(ioctl(store.pay, KVPOOL_POPULATE, &populate) == 0 && populate.ret_poisoned == 1 &&
         populate.ret_leaves_4k == 511,
     "POPULATE leaves it out and says so: %u", populate.ret_poisoned);
  ok(partition("pay").poisoned == 1, "it is counted");
  poison.device_offset = 0;
  fails(ioctl(control, KVPOOL_POISON, &poison), ENOENT, "poison where no partition is");
}

void test_mapping(void) {
  ok(store_open(&store) == 0, "nodes open");
  ok(store_join(&store, 0, 600000) == 0 && store.join.ret_incarnation && store.join.ret_host == 1,
     "JOIN");
  ok(store_map(&store) == 0, "and map");
  ok(store.state->incarnation == store.join.ret_incarnation && !store.state->revoked,
     "the STATE page tells the incarnation");
  types();
  refusals();
  populating();
  splits();
  moves();
  reading();
  small_leaves();
  read_only();
  poisoned();
  const int result = in_child(strict_mbind, NULL);
  ok(result == 0, "mbind with MPOL_MF_STRICT is an error and no oops: %d", result);
  store_close(&store);
}
