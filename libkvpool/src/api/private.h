/* SPDX-License-Identifier: Apache-2.0 */
/* What only kvpool's own tools call (version node KVPOOL_PRIVATE_0.1). May change at any time. */
#ifndef KVPOOL_API_PRIVATE_H
#define KVPOOL_API_PRIVATE_H

#include <kvpool/kvpool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvpool_private_place {
  uint32_t device;
  uint32_t reserved;
  uint64_t byte;    /* of the block's first byte on that device */
  uint64_t bytes;   /* of the block */
  uint64_t version;
  uint64_t entry;
};

/* Where a published block lies on the medium. -ENOENT. */
KVPOOL_API int kvpool_private_locate(struct kvpool_ns *ns, const struct kvpool_key *key,
                                     struct kvpool_private_place *ret_place);

#ifdef __cplusplus
}
#endif

#endif
