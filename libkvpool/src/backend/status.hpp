// SPDX-License-Identifier: Apache-2.0
// What a call of this layer says when it fails: a negative errno for programs, one sentence for
// people.
#pragma once

#include <string>
#include <utility>

namespace kvpool::backend {

// `what` names the thing (file, option, device) and, where one is clear, the way on. It is empty
// when err is 0.
struct Status {
  int err = 0;
  std::string what;

  bool ok() const { return err == 0; }
  static Status fail(int negative_errno, std::string what) {
    return Status{negative_errno, std::move(what)};
  }
};

}  // namespace kvpool::backend
