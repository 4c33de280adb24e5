// SPDX-License-Identifier: Apache-2.0
// Watches who owns the store, as its claims say it: a thread that reads them every millisecond and
// keeps each change with its time. Also what a stopped owner leaves: the area it served from, which
// nobody may change once that owner knows that it is none.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "store_view.hpp"

namespace kvpool::torture {

struct OwnerChange {
  std::uint64_t ns = 0;
  std::uint32_t epoch = 0;
  std::uint32_t slot = 0;  // of the member that owns
  pid_t pid = -1;
};

class OwnerWatch {
public:
  explicit OwnerWatch(const std::string &address);
  ~OwnerWatch();
  OwnerWatch(const OwnerWatch &) = delete;
  OwnerWatch &operator=(const OwnerWatch &) = delete;

  OwnerChange now();                    // the last change; epoch 0: nobody owned yet
  std::vector<OwnerChange> changes();   // since the last call

private:
  void watch();

  tools::StoreView view_;
  std::mutex mutex_;
  OwnerChange last_;
  std::vector<OwnerChange> news_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// The area that a standby slot activated last, and a sum over its lines.
struct AreaPrint {
  std::uint32_t slot = 0;
  std::uint32_t epoch = 0;  // of its activation
  std::vector<std::uint64_t> lines;

  // How many lines differ. 0 when the slot activated another area since.
  std::size_t changed(const AreaPrint &before) const;
};

AreaPrint print_area(tools::StoreView &view, std::uint32_t slot);

}  // namespace kvpool::torture
