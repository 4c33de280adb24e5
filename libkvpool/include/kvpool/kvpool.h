/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpool: a store of KV-cache blocks in memory that several hosts share.
 *
 * Conventions, valid for every call below unless it says otherwise:
 *
 * Result      0, a count, or a negative errno value. kvpool_error_class() says what a caller can do
 *             about one; kvpool_strerror_detail() has a sentence about the last one.
 * Outputs     stand last, are called ret_..., and are untouched when the call fails.
 * Options     structs start with `size` and `flags`; begin from KVPOOL_OPTS(type). NULL means all
 *             defaults. A member that is 0 means its default. Unknown flags give -EINVAL; a
 *             non-zero tail this library does not know, -E2BIG.
 * Deadlines   deadline_ns is absolute CLOCK_MONOTONIC time in ns; 0 means 5 s from now. A call that
 *             may wait ends by its deadline with -ETIMEDOUT and has then, unless it says otherwise,
 *             done nothing.
 * Threads     calls on one context may come from any number of threads. A handle must not be closed
 *             while another thread uses it. Calls on different contexts never disturb each other.
 * Fork        handles are dead in a forked child: every call but close answers -ESTALE there. Open
 *             anew.
 * Memory      what the caller passes in stays the caller's. What the library returns as a handle is
 *             given back by the close or free call of its kind. lookup, get, write, publish and
 *             poll allocate nothing.
 * Errors      besides those named with each call: -EINVAL (an argument makes no sense), -ESTALE
 *             (forked child), -ETIMEDOUT, -ENOMEM, -EAGAIN (no owner serves the store: start
 *             `kvpool serve`), -ENOTCONN (this member lost its lease: open anew), -EIDRM (the store
 *             was formatted anew, or goes on from another device: open anew), -EIO (memory
 *             could not be read), -EUCLEAN (the store's metadata is damaged: run `kvpool check`).
 */
#ifndef KVPOOL_KVPOOL_H
#define KVPOOL_KVPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVPOOL_API __attribute__((visibility("default")))

/* The version of this header; kvpool_version() gives the library's. */
#define KVPOOL_VERSION_MAJOR 0
#define KVPOOL_VERSION_MINOR 1
#define KVPOOL_VERSION_PATCH 0

/*
 * An options struct with its size set and all else at its default:
 *   struct kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
 */
#ifdef __cplusplus
extern "C++" {
template <class T> inline T kvpool_opts_init() noexcept {
  T opts{};
  opts.size = sizeof(T);
  return opts;
}
}
#define KVPOOL_OPTS(type) kvpool_opts_init<struct type>()
#else
#define KVPOOL_OPTS(type) ((struct type){.size = sizeof(struct type)})
#endif

/* ---- handles and plain types ----------------------------------------------------------------- */

struct kvpool_ctx;    /* a member of one store; several may live in one process */
struct kvpool_ns;     /* an open namespace of a context */
struct kvpool_mem;    /* registered local memory */
struct kvpool_op;     /* a prepared operation */
struct kvpool_events; /* a reader of events */

/* Names one block. Made by kvpool_key_chain() or kvpool_key_wrap(); compares bytewise. */
struct kvpool_key {
  uint8_t bytes[32];
};

/*
 * A reservation or a pin, position independent: may be copied to other processes and hosts, and is
 * valid in every member of the engine's group (same engine_id, see kvpool_open_opts). A ticket of
 * another store is refused with -EXDEV, and so is one from before the store was formatted, since a
 * format draws a new id; one of another life under the same id with -EIDRM, one of another group
 * with -EACCES, a damaged one with -EBADMSG, an expired one with -EKEYEXPIRED.
 */
struct kvpool_ticket {
  uint64_t opaque[8];
};

/* What a lookup found for one key. An array of them is the snapshot that other ranks read by. */
struct kvpool_hit {
  uint64_t entry;   /* number of the index entry */
  uint64_t version; /* of the publication; unique in the store's life */
  uint64_t bytes;   /* of the block: a multiple of 64 */
  uint32_t state;   /* enum kvpool_state */
  uint32_t shards;  /* it was written in */
  uint64_t opaque[3]; /* saves kvpool_get_blocks() a second lookup; of another store: ignored */
  /* PENDING: the duration that was announced: within so long the block is published or the state
     ends, counted anew when the owner changes */
  uint32_t pending_ms;
  uint32_t reserved;
};

enum kvpool_state {
  KVPOOL_STATE_UNKNOWN = 0, /* not looked at: it stands behind the first miss of its chain */
  KVPOOL_STATE_HIT = 1,
  KVPOOL_STATE_PENDING = 2, /* another member announced that it computes this block */
  KVPOOL_STATE_MISS = 3,
};

/* How one block of a batch fared. */
enum kvpool_status {
  /* get: the bytes are there and proven; put, publish: the block is published */
  KVPOOL_STATUS_OK = 0,
  /* put, publish: somebody published this key before; nothing more was done */
  KVPOOL_STATUS_EXISTS = 1,
  KVPOOL_STATUS_MISS = 2,    /* no such block */
  KVPOOL_STATUS_PENDING = 3, /* announced by another member, not there yet */
  /* get: replaced or evicted while it was read, buffers hold rubbish; put: the namespace was
     cleared, and this handle has made no key since: see kvpool_key_chain() */
  KVPOOL_STATUS_STALE = 4,
  KVPOOL_STATUS_FULL = 5,    /* no room, and nothing that may be evicted */
  KVPOOL_STATUS_GONE = 6,    /* lost with its device, or the store was formatted anew */
  KVPOOL_STATUS_CORRUPT = 7, /* its bytes do not match their checks; it was reported and removed */
  /* publish was sent, no answer could be accepted in time: ask again by kvpool_lookup() */
  KVPOOL_STATUS_DOUBT = 8,
  KVPOOL_STATUS_BYPASSED = 9, /* the namespace is bypassed */
  KVPOOL_STATUS_RANGE = 10,   /* the plan does not fit the block or its memory, or overlaps */
  KVPOOL_STATUS_UNTRIED = 11, /* the batch ended before this block: deadline, cancelled, no owner */
};

/*
 * A 2-D strided copy between local memory and one block: `count` fragments of `fragment_bytes`;
 * fragment i lies at local_offset + i * local_stride in `mem` and at block_offset + i *
 * block_stride in the block. All values in bytes and of 64 bits. Fragments may touch but not
 * overlap in the block. Bytes of a new block that no fragment covers are 0.
 */
struct kvpool_run {
  const struct kvpool_mem *mem; /* NULL: local_offset is an address in this process */
  uint64_t local_offset;
  uint64_t block_offset;
  uint64_t fragment_bytes;
  uint64_t count;
  int64_t local_stride;
  uint64_t block_stride;
};

/*
 * A list of rows read from a batch of blocks of equal geometry: row r lies in block r /
 * rows_per_block of the batch at block_offset + (r % rows_per_block) * block_stride. The i-th row
 * of the list goes to local_offset + i * local_stride. A row of -1 is a hole: its place in local
 * memory is left as it is.
 */
struct kvpool_rows {
  const struct kvpool_mem *mem; /* NULL: local_offset is an address in this process */
  uint64_t local_offset;
  uint64_t local_stride; /* 0: row_bytes, packed */
  const int64_t *rows;   /* flat row indices */
  uint64_t row_count;
  uint64_t row_bytes;
  uint64_t rows_per_block;
  uint64_t block_offset; /* of a block's first row */
  uint64_t block_stride; /* 0: row_bytes */
};

/* What goes where in one block: a contiguous buffer at the block's start, or runs. */
struct kvpool_plan {
  void *buf;                     /* not written to by put and write; NULL when runs are given */
  uint64_t bytes;                /* of buf; put: the block's size when buf is given */
  const struct kvpool_run *runs; /* NULL when buf is given */
  uint64_t run_count;
};

/* One block of a put or get batch. */
struct kvpool_block {
  struct kvpool_key key;              /* ignored when ticket is given */
  /* put: of the block before it in its chain; all zero: none or unknown */
  struct kvpool_key parent;
  const struct kvpool_ticket *ticket; /* get: a pin; NULL: by key. put: NULL */
  /* get: what a lookup found, saves looking again; NULL: looks */
  const struct kvpool_hit *hit;
  struct kvpool_plan plan;
  uint64_t bytes; /* put with runs: the block's size; 0: the namespace's block size */
};

/* ---- versions, errors, log ------------------------------------------------------------------- */

/* The library's version, "0.1.0". Static. Never fails. */
KVPOOL_API const char *kvpool_version(void);

enum kvpool_class {
  KVPOOL_CLASS_OK = 0,
  KVPOOL_CLASS_RETRY = 1,     /* the same call may succeed later */
  KVPOOL_CLASS_RECOMPUTE = 2, /* the block is not to be had: compute it */
  KVPOOL_CLASS_REOPEN = 3,    /* close the context and open anew */
  KVPOOL_CLASS_CALLER = 4,    /* the call was wrong: fix the caller */
  KVPOOL_CLASS_OPERATOR = 5,  /* a person must act: rights, space, damage */
};

/* What a caller can do about `result` of any call (0 and counts: KVPOOL_CLASS_OK). Never fails. */
KVPOOL_API enum kvpool_class kvpool_error_class(int result);

/*
 * One sentence about the last failure on `ctx` in this thread, or with NULL about the last failure
 * of a call of this thread that has no context (kvpool_open, kvpool_format). "" when there was
 * none. Valid until the thread's next failing call.
 */
KVPOOL_API const char *kvpool_strerror_detail(const struct kvpool_ctx *ctx);

/*
 * The name of a status or state in small letters ("hit", "stale"); "?" for an unknown number.
 * Static.
 */
KVPOOL_API const char *kvpool_status_name(enum kvpool_status status);

enum kvpool_log_level {
  KVPOOL_LOG_ERROR = 1,
  KVPOOL_LOG_WARNING = 2,
  KVPOOL_LOG_INFO = 3,
  KVPOOL_LOG_DEBUG = 4,
};

/*
 * Called with one line of text without newline, from any thread of the library, never concurrently
 * for one context.
 */
typedef void (*kvpool_log_fn)(void *user, enum kvpool_log_level level, const char *text);

/* ---- stores ---------------------------------------------------------------------------------- */

#define KVPOOL_FORMAT_F_YES 1u     /* over an existing store, whose blocks are lost */
#define KVPOOL_FORMAT_F_FORCE 2u   /* also over one that seems alive, is damaged or newer */
#define KVPOOL_FORMAT_F_DRY_RUN 4u /* plan and check only; nothing is written */

struct kvpool_format_opts {
  size_t size;
  uint32_t flags;
  uint32_t devices;           /* mem: number of devices (default 1, or as the address says) */
  /* mem and file: of all devices together (default: as the address or the files say) */
  uint64_t size_bytes;
  /* 1 to 16 (default by the pool's size: 2 below 256 MiB, 4 below 64 GiB, 16 from there on) */
  uint32_t hosts;
  /* 1 to 16, and hosts times members at most 254 (default: 8 below 1 GiB, 16 below 64 GiB, else
   * 15). Of both, fewer are chosen where metadata would take more than its share of the pool. */
  uint32_t members_per_host;
  uint32_t standbys;          /* 1 to 16 (default 2) */
  uint32_t width;             /* devices a block is spread over at most (default all) */
  /* smallest expected block: sizes the index (default: 16 KiB below 256 MiB, 64 KiB below 64 GiB,
   * 256 KiB below 1 TiB, 1 MiB from there on, more where metadata would take too much) */
  uint32_t block_bytes;
  /* room for an index this many times as large (default 1; 4 from 1 TiB on) */
  uint32_t index_growth;
  /* table lines: 2^n, at most 4,096, two unused (64 below 256 MiB, 256 below 64 GiB, else 1,024) */
  uint32_t namespaces;
  uint32_t lease_ms;          /* (default 2,000) */
  /* how long an evicted block stays for reads that began earlier (default 20,000) */
  uint32_t grace_us;
  /* bound on how long a fenced store takes to the medium (default 1,000) */
  uint32_t delta_us;
  uint64_t deadline_ns;
  /* how large the store may be made later (default four times its size, at most 64 times) */
  uint64_t max_bytes;
  /* host id of each standby slot, 255 for any; `standbys` of them (default: any) */
  const uint8_t *standby_hosts;
};

/*
 * Makes a new store at `addr` and leaves it ready to serve. Space is reserved first: -ENOSPC leaves
 * nothing behind. Errors: -EEXIST (a store is there; KVPOOL_FORMAT_F_YES), -EBUSY (somebody formats
 * it or lives in it; F_FORCE for a store whose hosts only seem alive), -ENOSPC, -EROFS, -EACCES,
 * -ENODEV (no such memory), -EFBIG or -ERANGE (too small or too large for these options; the
 * message says which).
 */
KVPOOL_API int kvpool_format(const char *addr, const struct kvpool_format_opts *opts);

enum kvpool_owner {
  /* this member never decides for the store: `kvpool serve` runs elsewhere */
  KVPOOL_OWNER_NONE = 0,
  KVPOOL_OWNER_EMBEDDED = 1, /* a thread of this context serves the store when nobody else does */
};

#define KVPOOL_OPEN_F_READ_ONLY 1u /* lookups and gets only; joins as no member */
#define KVPOOL_OPEN_F_HUGE 2u      /* ask for huge pages and populate everything now */
#define KVPOOL_OPEN_F_MOVE_CONTROL 4u /* serve from another device if every host lost the first */

struct kvpool_open_opts {
  size_t size;
  uint32_t flags;
  uint32_t owner;       /* enum kvpool_owner */
  uint64_t engine_id;   /* names the group that shares tickets; 0: this process alone */
  uint32_t engine_rank; /* rank in its group, below engine_world where that is given */
  uint32_t engine_world; /* (default 1) */
  const char *name;     /* shown to people, 16 bytes are kept; NULL: the program's name */
  kvpool_log_fn log;    /* NULL: nothing is logged */
  void *log_user;
  uint32_t log_level;   /* enum kvpool_log_level; 0: KVPOOL_LOG_WARNING */
  uint32_t workers;     /* threads for prepared operations (default 1, at most 16) */
  uint64_t deadline_ns;
  /*
   * Bytes of blocks that this member has on their way at a time in each direction (0: 32 MiB). No
   * copy of 256 KiB or more begins while there are so many: it waits for others of this member, so
   * that requests, and lines of other members on the same link, do not queue behind all of them.
   */
  uint64_t bulk_bytes;
};

/*
 * Attaches to the store at `addr` and joins it as a member. Addresses are:
 *   mem:NAME?size=1GiB&devices=N   named shared memory
 *   file:PATH[,PATH...]            files, each a device
 *   dax:/dev/daxX.Y?host=N         device-dax
 *   dev:NAME[+NAME...]             partitions of the driver
 *
 * with host=N as the host id where it applies. NULL: $KVPOOL, else -ENODEV. Memory is never a
 * silent fall-back. Errors: -ENODEV, -ENOENT (nothing there), -ENODATA (there, but no store: format
 * it), -ENOTSUP (a store of a newer format; one that only writers must know opens read-only),
 * -EACCES, -EROFS, -EUCLEAN (damaged, or a device is shorter than the store), -EFBIG (a device has
 * less than 2 MiB left, or the store more than this process can map), -EUSERS (no member slot is
 * free), -ERANGE (the store has no such host id), -EADDRINUSE (host id used by another machine;
 * found out later, writing calls give the same), -EIO (the device with the lines of all members is
 * lost), -EMEDIUMTYPE (a partition is no write-back memory, or is none on this host).
 */
KVPOOL_API int kvpool_open(const char *addr, const struct kvpool_open_opts *opts,
                           struct kvpool_ctx **ret_ctx);

/*
 * Leaves the store and frees the context with everything opened on it. Operations in flight are
 * cancelled first, as by kvpool_cancel(). Reservations and pins of this member end. NULL is
 * allowed. In a forked child only this process's memory is freed. Never fails.
 */
KVPOOL_API void kvpool_close(struct kvpool_ctx *ctx);

struct kvpool_serve_opts {
  size_t size;
  uint32_t flags;
  /* how long the heartbeat of a living owner may stand still before another takes over (0: 1,000,
   * or the store's lease where that is shorter; at least 200, at most the lease, else -EINVAL) */
  uint32_t suspicion_ms;
  uint64_t until_ns; /* absolute CLOCK_MONOTONIC time to return at; 0: only when stopped */
};

/*
 * Serves the store in the calling thread as its owner, or stands by while another does, until
 * kvpool_serve_stop() (0), its time is over (0), or this member may no longer serve (-ENOTCONN,
 * -EIDRM, -EADDRINUSE, -ENODEV: the device with the lines of all members is lost; opened again with
 * KVPOOL_OPEN_F_MOVE_CONTROL it can). A store whose owner is gone is taken over; the memory for
 * that is taken while it stands by. Errors: -EBUSY (this context serves already), -EUSERS (no
 * standby slot is free), -ENOMEM.
 */
KVPOOL_API int kvpool_serve(struct kvpool_ctx *ctx, const struct kvpool_serve_opts *opts);

/*
 * Makes kvpool_serve() on `ctx` return soon. May be called from any thread and from a signal
 * handler. Never fails.
 */
KVPOOL_API void kvpool_serve_stop(struct kvpool_ctx *ctx);

/*
 * Waits until an owner serves the store, at most until the deadline. Returns 1 when one does, 0
 * when none does.
 */
KVPOOL_API int kvpool_owner_wait(struct kvpool_ctx *ctx, uint64_t deadline_ns);

/* ---- namespaces and keys --------------------------------------------------------------------- */

enum kvpool_verify {
  KVPOOL_VERIFY_DEFAULT = 0, /* the namespace's, which is always unless it was created otherwise */
  KVPOOL_VERIFY_ALWAYS = 1,  /* every byte read is proven */
  KVPOOL_VERIFY_SAMPLE = 2,  /* one read in verify_sample is proven */
  KVPOOL_VERIFY_OFF = 3,     /* none is, but those of blocks that a dead writer may have touched */
};

enum kvpool_hash {
  KVPOOL_HASH_SHA256 = 0,
  KVPOOL_HASH_BLAKE2 = 1, /* BLAKE2b with a key */
};

/* A part of the cache that has blocks of its own under each key of a chain. */
struct kvpool_component {
  const char *name;     /* enters the fingerprint */
  uint64_t block_bytes; /* 0: any */
  /* 0: needed for every block of a prefix; n: for the last n blocks of it only */
  uint32_t trailing;
  uint32_t reserved;
};

#define KVPOOL_NS_F_OPEN_ONLY 1u  /* -ENOENT instead of creating it */
#define KVPOOL_COMPONENTS_MAX 8

/*
 * What a namespace's blocks are. Everything up to `hash` enters the fingerprint: another value is
 * another namespace.
 */
struct kvpool_ns_opts {
  size_t size;
  uint32_t flags;
  uint32_t block_tokens;     /* tokens a block (default 16) */
  const char *model;         /* model and revision; required */
  /* effective element type, as "bf16" or "fp8_e4m3"; required; "auto" is refused */
  const char *dtype;
  const char *layout;        /* order of dimensions in the block (default "hg-l-kv-t-h-d") */
  const char *quant;         /* quantisation mode (default "none") */
  const char *padding;       /* padding of the layout (default "none") */
  const void *salt;          /* of the tenant; NULL: none */
  uint64_t salt_bytes;       /* at most 256 */
  uint32_t tp_groups;        /* head groups, KV heads / largest tensor-parallel size (default 1) */
  uint32_t hash;             /* enum kvpool_hash */
  const struct kvpool_component *components; /* NULL: one, called "kv", needed for every block */
  uint32_t component_count;
  /* enum kvpool_verify; stored when the namespace is created, else for this handle */
  uint32_t verify;
  uint32_t verify_sample;    /* KVPOOL_VERIFY_SAMPLE: one read in so many (default 16) */
  uint32_t weight;           /* share under pressure, 1 to 100 (default 10); used when created */
  /* payload of a block (default any; a multiple of 64); used when created */
  uint64_t block_bytes;
  uint64_t quota_bytes;      /* (default none); used when created */
  uint64_t deadline_ns;
};

/*
 * Opens the namespace that `opts` describe under `name` (1 to 16 bytes), and creates it when there
 * is none. Errors: -EINVAL (no model, dtype "auto"), -EEXIST (the name belongs to another
 * description), -EMEDIUMTYPE (the same description exists with another block size), -ENOENT,
 * -ENOSPC (the namespace table is full).
 */
KVPOOL_API int kvpool_ns_open(struct kvpool_ctx *ctx, const char *name,
                              const struct kvpool_ns_opts *opts, struct kvpool_ns **ret_ns);

/* Frees the handle; the namespace stays. NULL is allowed. Never fails. */
KVPOOL_API void kvpool_ns_close(struct kvpool_ns *ns);

/*
 * Forgets all blocks of the namespace at once, whatever their number: binds every call begun after
 * the answer, also one that holds what a lookup found earlier, or a pin.
 */
KVPOOL_API int kvpool_ns_clear(struct kvpool_ns *ns, uint64_t deadline_ns);

/*
 * Switches a namespace off (on = 1) and on again (on = 0). While it is off, lookups, gets and pins
 * find nothing and puts are refused with KVPOOL_STATUS_BYPASSED, everywhere; nothing is lost.
 */
KVPOOL_API int kvpool_ns_bypass(struct kvpool_ns *ns, int on, uint64_t deadline_ns);

/*
 * Removes the namespace called `name` with its blocks. Handles on it then answer -ENOENT. Errors:
 * -ENOENT, -EAGAIN (the owner of the store changed during the call, and a namespace of that name
 * may have been removed by it and opened anew: look, and ask again).
 */
KVPOOL_API int kvpool_ns_remove(struct kvpool_ctx *ctx, const char *name, uint64_t deadline_ns);

struct kvpool_ns_info {
  char name[24];           /* terminated */
  uint8_t fingerprint[16];
  uint64_t quota_bytes;
  uint64_t block_bytes;    /* 0: any */
  uint32_t id;
  uint32_t epoch;          /* number of clears, plus one */
  uint32_t bypassed;
  uint32_t weight;
  uint32_t verify;         /* enum kvpool_verify */
  uint32_t reserved;
};

/* Writes at most `max` namespaces of the store and returns how many there are. */
KVPOOL_API int kvpool_ns_list(struct kvpool_ctx *ctx, size_t max, struct kvpool_ns_info *ret_infos);

/* The namespace's own line, with what changed since it was opened (epoch, bypass). */
KVPOOL_API int kvpool_ns_stat(struct kvpool_ns *ns, struct kvpool_ns_info *ret_info);

/*
 * Keys of the whole blocks of `token_count` tokens, in order: each is a hash over the namespace,
 * the key before it and the block's tokens. `parent` is the key before the first (NULL: the chain
 * starts here). Returns the number of keys, at most `max`; tokens that do not fill a block are left
 * out. Keys made before a kvpool_ns_clear() never match what was put before it, nor keys made after
 * it: make them anew. A key is a hash and does not tell when it was made; so a put with an old one
 * is refused only while its handle has made none since the clear, and is the block of another name
 * from then on. Errors: -ENOENT (the namespace was removed).
 */
KVPOOL_API int kvpool_key_chain(struct kvpool_ns *ns, const struct kvpool_key *parent,
                                const uint32_t *tokens, size_t token_count, size_t max,
                                struct kvpool_key *ret_keys);

/* The key for an engine's own key of 1 to 256 bytes, bound to the namespace. */
KVPOOL_API int kvpool_key_wrap(struct kvpool_ns *ns, const void *bytes, size_t byte_count,
                               struct kvpool_key *ret_key);

/*
 * The key of component `component` of the block called `key`; component 0 has the key itself.
 * Errors: -EINVAL.
 */
KVPOOL_API int kvpool_key_component(struct kvpool_ns *ns, const struct kvpool_key *key,
                                    uint32_t component, struct kvpool_key *ret_key);

/* ---- local memory ---------------------------------------------------------------------------- */

enum kvpool_mem_kind {
  KVPOOL_MEM_HOST = 0,
};

struct kvpool_mem_opts {
  size_t size;
  uint32_t flags;
  uint32_t kind;   /* enum kvpool_mem_kind */
  int32_t device;  /* of memory that has one; 0 for the host */
  uint32_t reserved;
};

/*
 * Registers `bytes` of local memory at `base` for runs and rows, whose offsets are then checked
 * against it. The memory must stay mapped until kvpool_mem_unregister(). Errors: -EINVAL,
 * -EOVERFLOW.
 */
KVPOOL_API int kvpool_mem_register(struct kvpool_ctx *ctx, void *base, uint64_t bytes,
                                   const struct kvpool_mem_opts *opts, struct kvpool_mem **ret_mem);

/*
 * Ends a registration; no operation may use it any more. -EBUSY while a prepared operation does.
 * NULL is allowed.
 */
KVPOOL_API int kvpool_mem_unregister(struct kvpool_mem *mem);

/* ---- lookup, put, get ------------------------------------------------------------------------ */

#define KVPOOL_LOOKUP_F_ALL 1u /* look at every key, also behind the first miss */

/*
 * Looks `n` keys of a chain up. Returns the length of the longest usable prefix: blocks whose
 * components are there as their policies want. ret_hits (may be NULL) gets n times the namespace's
 * component_count records, those of a block together. Reads the pool only: asks no owner, changes
 * nothing, waits for nobody. n at most 1,048,576.
 */
KVPOOL_API int kvpool_lookup(struct kvpool_ns *ns, const struct kvpool_key *keys, size_t n,
                             uint32_t flags, uint64_t deadline_ns, struct kvpool_hit *ret_hits);

/*
 * Stores `bytes` at `buf` under `key`. Returns 1 when stored now, 0 when the key was published
 * before. Errors: -ENOSPC (full, and nothing may be evicted; or the namespace's quota has no
 * room, and kvpool_strerror_detail says so), -EKEYREVOKED (the namespace was cleared or removed,
 * and this handle has made no key since it knows: make the key anew), -EMSGSIZE (not the
 * namespace's block size, or larger than a block can be, or than the store), -ESHUTDOWN (bypassed),
 * -EINPROGRESS (in doubt: sent, but no answer could be accepted by the deadline), -EROFS.
 */
KVPOOL_API int kvpool_put(struct kvpool_ns *ns, const struct kvpool_key *key, const void *buf,
                          uint64_t bytes, uint64_t deadline_ns);

/*
 * Reads the first `bytes` of the block under `key` to `buf`. Returns 1 when read and proven to be
 * what was published, 0 when there is no such block; buf may then have been written to. Errors:
 * -ERANGE (beyond the block's end), -EBADMSG (the block was damaged; unless this member is
 * read-only it is removed).
 */
KVPOOL_API int kvpool_get(struct kvpool_ns *ns, const struct kvpool_key *key, void *buf,
                          uint64_t bytes, uint64_t deadline_ns);

/*
 * The same for `n` blocks (at most 1,024) with a plan each. Returns the number of blocks that are
 * OK; ret_status (may be NULL) gets how each fared (enum kvpool_status). A negative result says
 * that none was tried.
 */
KVPOOL_API int kvpool_put_blocks(struct kvpool_ns *ns, const struct kvpool_block *blocks, size_t n,
                                 uint64_t deadline_ns, int32_t *ret_status);
KVPOOL_API int kvpool_get_blocks(struct kvpool_ns *ns, const struct kvpool_block *blocks, size_t n,
                                 uint64_t deadline_ns, int32_t *ret_status);

/*
 * Reads rows out of `n` blocks of one size (plans in `blocks` are ignored), as one batch: when one
 * of them is missing nothing is read. Takes pins, or checks each block's entry after the copy.
 * Bytes are not proven, as rows are smaller than what a check covers: pin blocks and get them whole
 * once. Returns the number of blocks that are OK; rows of the others hold rubbish.
 */
KVPOOL_API int kvpool_get_rows(struct kvpool_ns *ns, const struct kvpool_block *blocks, size_t n,
                               const struct kvpool_rows *rows, uint64_t deadline_ns,
                               int32_t *ret_status);

/*
 * Removes `n` blocks; reads that began earlier may still end well. Returns how many there were and
 * are removed; what others put meanwhile stays. An error before the first one: -EAGAIN, -ETIMEDOUT,
 * -EROFS.
 */
KVPOOL_API int kvpool_remove(struct kvpool_ns *ns, const struct kvpool_key *keys, size_t n,
                             uint64_t deadline_ns);

/* Says that `n` blocks were useful. Sampled and lossy; costs no round trip. */
KVPOOL_API int kvpool_touch(struct kvpool_ns *ns, const struct kvpool_hit *hits, size_t n);

/*
 * Announces that this member computes `n` blocks and wants to publish them within duration_ms (0:
 * withdraws). Lookups then say PENDING, until the block is published, the duration is over or this
 * member is gone; announcing it again, before that, begins the duration anew. Posted without
 * waiting for the owner. Returns how many were posted.
 */
KVPOOL_API int kvpool_pending(struct kvpool_ns *ns, const struct kvpool_key *keys, size_t n,
                              uint32_t duration_ms);

/* ---- writing in shards ----------------------------------------------------------------------- */

struct kvpool_reserve_opts {
  size_t size;
  uint32_t flags;
  /* parts of a block that are written by one writer each, 1 to 64 (default 1) */
  uint32_t shards;
  uint64_t block_bytes; /* (default: the namespace's block size) */
  uint64_t deadline_ns;
};

/*
 * Reserves room for `n` blocks (at most 1,024), all or none; parents may be NULL. Tickets may be
 * handed to the ranks of the group. Returns n. A block that is neither published nor aborted is
 * given back when this member leaves or dies. Errors: -ENOSPC, -EMSGSIZE, -ESHUTDOWN (bypassed).
 */
KVPOOL_API int kvpool_reserve(struct kvpool_ns *ns, const struct kvpool_key *keys,
                              const struct kvpool_key *parents, size_t n,
                              const struct kvpool_reserve_opts *opts,
                              struct kvpool_ticket *ret_tickets);

/*
 * The range of a block's bytes that shard `shard` of a reservation covers; cut at 64 KiB, or at
 * lines in small blocks.
 */
KVPOOL_API int kvpool_shard_range(struct kvpool_ctx *ctx, const struct kvpool_ticket *ticket,
                                  uint32_t shard, uint64_t *ret_offset, uint64_t *ret_bytes);

/*
 * Writes the part of `plan` that lies in shard `shard`; offsets are the block's. A shard has one
 * writer and is written by one call. The first one for another member's reservations waits for some
 * heartbeats of that member. Errors: -EALREADY (this shard is done), -EKEYEXPIRED (no longer
 * reserved), -ENOTCONN (this member, or the one that reserved, is dead).
 */
KVPOOL_API int kvpool_write(struct kvpool_ctx *ctx, const struct kvpool_ticket *ticket,
                            uint32_t shard, const struct kvpool_plan *plan, uint64_t deadline_ns);

/*
 * Says that shard `shard` is complete: its bytes and checks are on the medium when this returns.
 * Idempotent. Errors: -ENODATA (it is not: nobody wrote it, or the write is under way).
 */
KVPOOL_API int kvpool_shard_done(struct kvpool_ctx *ctx, const struct kvpool_ticket *ticket,
                                 uint32_t shard);

/*
 * Publishes `n` reserved blocks whose shards are all done. Only the member that reserved them may.
 * Returns how many are published by this call. A block that is OK, EXISTS or FULL is no longer
 * reserved. -EINPROGRESS: a shard is not done; -EKEYEXPIRED: no longer reserved, or another thread
 * publishes it now.
 */
KVPOOL_API int kvpool_publish(struct kvpool_ns *ns, const struct kvpool_ticket *tickets, size_t n,
                              uint64_t deadline_ns, int32_t *ret_status);

/*
 * Gives `n` reservations back unpublished, and returns how many. Only the member that reserved them
 * may. Unknown ones are passed over. Waits for nobody: whoever writes a shard of them now, here or
 * in another rank, may go on, and the block is used again when that is over; who comes later gets
 * -EKEYEXPIRED.
 */
KVPOOL_API int kvpool_abort(struct kvpool_ns *ns, const struct kvpool_ticket *tickets, size_t n);

/* ---- pins ------------------------------------------------------------------------------------ */

struct kvpool_pin_opts {
  size_t size;
  uint32_t flags;
  uint32_t ttl_ms;                   /* how long the bytes stay (default 1,000, at most 600,000) */
  /* n records: only these versions; NULL: whatever is published */
  const struct kvpool_hit *snapshot;
  uint64_t deadline_ns;
};

/*
 * Protects the longest possible prefix of `n` blocks (at most 1,024) from reuse, and returns its
 * length. The pin's time runs on the clock of the host that asked, from before the request was
 * sent. Who used pinned bytes asks kvpool_ticket_valid() afterwards and throws the result away if
 * it says no.
 */
KVPOOL_API int kvpool_pin(struct kvpool_ns *ns, const struct kvpool_key *keys, size_t n,
                          const struct kvpool_pin_opts *opts, struct kvpool_ticket *ret_tickets);

/* Ends pins. Never fails; what cannot be told to the owner now is told later. */
KVPOOL_API void kvpool_unpin(struct kvpool_ctx *ctx, const struct kvpool_ticket *tickets, size_t n);

/*
 * 1 when the bytes that `ticket` pins have been safe until now; 0 when they may not have been, or
 * the namespace was cleared, bypassed or removed meanwhile.
 */
KVPOOL_API int kvpool_ticket_valid(struct kvpool_ctx *ctx, const struct kvpool_ticket *ticket,
                                   uint64_t deadline_ns);

/* A part of a block that lies in one piece on one device. */
struct kvpool_piece {
  const void *addr;      /* in this process; read only */
  uint64_t bytes;
  uint64_t block_offset;
  uint64_t device;       /* number of the device */
};

/*
 * Where the bytes of a pinned block lie in this process, freshly acquired so that loads see what
 * was published. Writes at most `max` pieces and returns how many there are. Pieces are valid until
 * the pin ends; check kvpool_ticket_valid() after use.
 */
KVPOOL_API int kvpool_map(struct kvpool_ctx *ctx, const struct kvpool_ticket *ticket, size_t max,
                          struct kvpool_piece *ret_pieces);

/* ---- prepared operations --------------------------------------------------------------------- */

/*
 * Prepare once, post any number of times. The operation copies `blocks` (with plans, runs and
 * rows); the memory they name, and `status` (n records, may be NULL), must stay until the operation
 * is done, cancelled or freed. `ns` may be closed before. Everything an operation needs is
 * allocated here.
 */
KVPOOL_API int kvpool_prep_get(struct kvpool_ns *ns, const struct kvpool_block *blocks, size_t n,
                               int32_t *status, struct kvpool_op **ret_op);
KVPOOL_API int kvpool_prep_put(struct kvpool_ns *ns, const struct kvpool_block *blocks, size_t n,
                               int32_t *status, struct kvpool_op **ret_op);

/* Starts an operation. `user` comes back from kvpool_poll(). Errors: -EALREADY (it runs). */
KVPOOL_API int kvpool_post(struct kvpool_op *op, uint64_t deadline_ns, uint64_t user);

/*
 * The operation's result as the synchronous call would give it; -EINPROGRESS while it runs,
 * -ENODATA before it was posted, -ECANCELED when kvpool_cancel() stopped it.
 */
KVPOOL_API int kvpool_check(struct kvpool_op *op);

/*
 * Ends an operation early: returns only when nothing will touch the caller's memory any more.
 * Returns 1 when it was stopped before any of its blocks was tried (its result is -ECANCELED), 0
 * when it had ended, was not running, or had tried some: then its result is the number of those
 * that are OK, `status` says how each fared, and the others are UNTRIED. It waits for no owner, and
 * for the answer to what was sent only a moment: a block that has none by then is in doubt.
 */
KVPOOL_API int kvpool_cancel(struct kvpool_op *op);

struct kvpool_completion {
  struct kvpool_op *op;
  uint64_t user;
  int32_t result;
  uint32_t reserved;
};

/*
 * Takes at most `max` completions of `ctx`, each once. Waits for the first until the deadline (1:
 * do not wait) and returns their number, 0 when there was none. A completion that was seen through
 * kvpool_check() still comes.
 */
KVPOOL_API int kvpool_poll(struct kvpool_ctx *ctx, size_t max, uint64_t deadline_ns,
                           struct kvpool_completion *ret_completions);

/*
 * A descriptor that is readable while completions wait. Belongs to the context: do not read or
 * close it.
 */
KVPOOL_API int kvpool_event_fd(struct kvpool_ctx *ctx);

/* Cancels and frees an operation and drops its completion. NULL is allowed. Never fails. */
KVPOOL_API void kvpool_op_free(struct kvpool_op *op);

/* ---- events ---------------------------------------------------------------------------------- */

enum kvpool_event_type {
  KVPOOL_EVENT_STORED = 1,
  KVPOOL_EVENT_REMOVED = 2,
  KVPOOL_EVENT_CLEARED = 3, /* all blocks of a namespace */
  KVPOOL_EVENT_LOST = 4,    /* `count` events were overwritten before they were read: look again */
  KVPOOL_EVENT_OWNER = 5,   /* another owner serves since this event */
};

enum kvpool_event_reason {
  KVPOOL_REASON_NONE = 0,
  KVPOOL_REASON_EVICTED = 1,
  KVPOOL_REASON_REMOVED = 2,
  KVPOOL_REASON_REPLACED = 3,
  KVPOOL_REASON_CLEARED = 4,
  KVPOOL_REASON_DAMAGED = 5,
  KVPOOL_REASON_LOST = 6,
};

struct kvpool_event {
  uint64_t sequence; /* rises by one with each event of one owner */
  uint32_t epoch;    /* of the owner: sequences of different owners do not compare */
  uint32_t type;     /* enum kvpool_event_type */
  uint32_t reason;   /* enum kvpool_event_reason */
  uint32_t ns;       /* namespace id */
  uint64_t version;
  uint64_t bytes;
  uint64_t count;    /* KVPOOL_EVENT_LOST */
  uint32_t member;   /* slot of the member that asked for it; 65535: none did */
  uint32_t tier;     /* 0: the pool */
  struct kvpool_key key;
};

struct kvpool_events_opts {
  size_t size;
  uint32_t flags;
  uint32_t reserved;
  /* replay from here as far as kept; 0: only what comes; 1: everything that is kept */
  uint64_t from_sequence;
};

/*
 * Reads what the store's owner decides, in a process of the owner's host. Errors: -EREMOTE (the
 * owner serves on another host), -EAGAIN (no owner).
 */
KVPOOL_API int kvpool_events_open(struct kvpool_ctx *ctx, const struct kvpool_events_opts *opts,
                                  struct kvpool_events **ret_events);

/*
 * The next events, at most `max`, waiting for the first until the deadline. Returns their number, 0
 * when none came. Goes on with the next owner of this host. Errors: -EIDRM (the store was formatted
 * anew or removed: nothing comes any more), -EIO (its superblock cannot be read any more).
 */
KVPOOL_API int kvpool_events_next(struct kvpool_events *events, size_t max, uint64_t deadline_ns,
                                  struct kvpool_event *ret_events);

/* Frees a reader of events. NULL is allowed. Never fails. */
KVPOOL_API void kvpool_events_close(struct kvpool_events *events);

/* ---- statistics ------------------------------------------------------------------------------ */

/* kvpool_stats.flags: this context holds a standby slot: it serves, or waits for its turn to */
#define KVPOOL_STATS_F_STANDBY 1u

/*
 * Counts since the context was opened, of all its threads together; never reset by a reader.
 * capacity_* are of the store and, but for capacity_bytes, known to the serving context only (0
 * elsewhere).
 */
struct kvpool_stats {
  size_t size;
  uint32_t flags;                 /* returned: KVPOOL_STATS_F_ */
  uint32_t member_slot;
  uint64_t capacity_bytes;
  uint64_t capacity_free_bytes;   /* this and the next: in the owner's context, else 0 */
  uint64_t capacity_entries;      /* published */
  uint64_t capacity_entries_max;
  uint64_t lookups;               /* calls */
  uint64_t keys_looked_up;
  uint64_t keys_hit;
  uint64_t gets;                  /* blocks asked for */
  uint64_t get_hits;
  uint64_t get_stale;
  uint64_t get_corrupt;
  uint64_t get_bytes;
  uint64_t puts;                  /* blocks offered */
  uint64_t put_stored;
  uint64_t put_exists;
  uint64_t put_full;
  uint64_t put_bytes;
  uint64_t publishes;             /* requests to publish that were sent, again counted each time */
  uint64_t pins;
  uint64_t removes;
  uint64_t doubts;                /* publications whose answer could not be accepted in time */
  uint64_t rejoins;
  uint64_t lines_acquired;
  uint64_t lines_published;       /* whole lines; words_published has the others */
  uint64_t lines_streamed;
  uint64_t lines_fetched;
  uint64_t lines_retired;
  uint64_t round_trips;           /* serial */
  uint64_t message_pairs;
  uint64_t data_waves;
  uint64_t poison_hits;
  uint64_t owner_epoch;           /* of the store's owner as this member knows it */
  uint64_t owner_requests;        /* the rest: of this context as owner */
  uint64_t owner_publications;
  uint64_t owner_evictions;
  uint64_t owner_takeovers;
  uint64_t bulk_waits; /* copies that waited for others, see kvpool_open_opts.bulk_bytes */
  uint64_t bulk_bytes_most;       /* bytes of blocks that were on their way at once */
  uint64_t capacity_free_run_bytes; /* in the owner's context, else 0: the longest run of free
                                       extents, as one block larger than an extent needs it */
  uint64_t words_published;       /* this and the rest: of what crossed the fabric, as lines_* */
  uint64_t doorbells;
  uint64_t lines_flushed;         /* of payload, in front of a window of fetched lines */
  uint64_t retires;               /* calls that retired lines_retired */
  uint64_t lines_device_retired;  /* after a device wrote them */
  uint64_t device_retires;        /* calls */
  uint64_t lines_device_acquired; /* before a device reads them */
  uint64_t device_acquires;       /* calls */
  uint64_t polls;                 /* waves of one that waits for an answer */
  uint64_t drains;
  uint64_t drains_strict;
  uint64_t fences;
};

/*
 * Fills as much of *ret_stats as ret_stats->size says, which the caller sets
 * (KVPOOL_OPTS(kvpool_stats)).
 */
KVPOOL_API int kvpool_stats_read(struct kvpool_ctx *ctx, struct kvpool_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
