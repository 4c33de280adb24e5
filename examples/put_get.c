/* SPDX-License-Identifier: Apache-2.0 */
/* Puts one KV block into a store, finds it by its tokens, and reads it back proven. */
#include <kvpool/kvpool.h>
#include <stdio.h>
#include <string.h>

#define BLOCK (1 << 20)
static char out[BLOCK], in[BLOCK];

static int fail(const struct kvpool_ctx *ctx, const char *what, int err) {
  fprintf(stderr, "%s: %s (%d)\n", what, kvpool_strerror_detail(ctx), err);
  return 1;
}

int main(int argc, char **argv) {
  const char *addr = argc > 1 ? argv[1] : "mem:example?size=64MiB";
  struct kvpool_ctx *ctx = NULL;
  struct kvpool_ns *ns = NULL;
  struct kvpool_key key;
  uint32_t tokens[16];
  int err = kvpool_format(addr, NULL);
  if (err && err != -17) return fail(NULL, "format", err); /* EEXIST: use what is there */

  struct kvpool_open_opts open = KVPOOL_OPTS(kvpool_open_opts);
  open.owner = KVPOOL_OWNER_EMBEDDED; /* no `kvpool serve` needed */
  if ((err = kvpool_open(addr, &open, &ctx)) < 0) return fail(NULL, "open", err);

  struct kvpool_ns_opts model = KVPOOL_OPTS(kvpool_ns_opts);
  model.model = "Qwen3-32B@main";
  model.dtype = "bf16";
  if ((err = kvpool_ns_open(ctx, "demo", &model, &ns)) < 0) return fail(ctx, "namespace", err);

  for (int i = 0; i < 16; i++) tokens[i] = 1000 + i;
  if ((err = kvpool_key_chain(ns, NULL, tokens, 16, 1, &key)) < 0) return fail(ctx, "key", err);
  memset(out, 42, sizeof out);
  if ((err = kvpool_put(ns, &key, out, sizeof out, 0)) < 0) return fail(ctx, "put", err);

  int found = kvpool_lookup(ns, &key, 1, 0, 0, NULL);
  if (found < 0) return fail(ctx, "lookup", found);
  if ((err = kvpool_get(ns, &key, in, sizeof in, 0)) < 0) return fail(ctx, "get", err);
  printf("%d block found, %s\n", found, err == 1 && !memcmp(in, out, BLOCK) ? "same" : "lost");
  kvpool_close(ctx);
  return !(found == 1 && err == 1);
}
