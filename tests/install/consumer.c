/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of a user, compiled against an installed library: calls into it, and gets an error with
 * a reason for a store that is not there. Exit code 0 when both work.
 */
#include <kvpool/kvpool.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  char expected[32];
  struct kvpool_ctx *ctx = NULL;
  struct kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  int result;

  snprintf(expected, sizeof(expected), "%d.%d.%d", KVPOOL_VERSION_MAJOR, KVPOOL_VERSION_MINOR,
           KVPOOL_VERSION_PATCH);
  if (strcmp(kvpool_version(), expected) != 0) {
    fprintf(stderr, "library %s, header %s\n", kvpool_version(), expected);
    return 1;
  }
  result = kvpool_open("file:/nonexistent/store", &opts, &ctx);
  if (result >= 0 || ctx != NULL || kvpool_strerror_detail(NULL)[0] == '\0') {
    fprintf(stderr, "opening what is not there: %d\n", result);
    return 1;
  }
  printf("kvpool %s: %s\n", kvpool_version(), kvpool_strerror_detail(NULL));
  return 0;
}
