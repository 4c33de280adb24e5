// SPDX-License-Identifier: Apache-2.0
// The same as consumer.c, in C++: the header is clean there, and no C++ symbol is needed.
#include <kvpool/kvpool.h>

#include <cstdio>
#include <string>

int main() {
  const std::string expected = std::to_string(KVPOOL_VERSION_MAJOR) + "." +
                               std::to_string(KVPOOL_VERSION_MINOR) + "." +
                               std::to_string(KVPOOL_VERSION_PATCH);
  kvpool_open_opts opts = KVPOOL_OPTS(kvpool_open_opts);
  kvpool_ctx *ctx = nullptr;
  if (expected != kvpool_version()) return 1;
  if (kvpool_open("file:/nonexistent/store", &opts, &ctx) >= 0 || ctx != nullptr) return 1;
  std::printf("kvpool %s: %s\n", kvpool_version(), kvpool_strerror_detail(nullptr));
  return 0;
}
