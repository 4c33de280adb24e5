// SPDX-License-Identifier: Apache-2.0
#include "driver_node.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "backend/driver.hpp"
#include "say.hpp"

namespace kvpool::tools {

ControlNode::ControlNode() : fd_(open(backend::kControlNode, O_RDWR | O_CLOEXEC)) {
  if (fd_ >= 0) return;
  if (errno == ENOENT || errno == ENXIO || errno == ENODEV) {
    fail(kExitFailed, backend::kControlNode, "the kvpool driver is not loaded",
         "modprobe kvpool; kvpool doctor says what there is");
  }
  if (errno == EACCES || errno == EPERM) {
    fail(kExitFailed, backend::kControlNode, "permission denied",
         "the driver is administered by root");
  }
  fail_errno(backend::kControlNode, errno);
}

ControlNode::~ControlNode() { close(fd_); }

int ControlNode::call(unsigned long command, void *args) const {
  return ioctl(fd_, command, args) == 0 ? 0 : -errno;
}

kvpool_info ControlNode::info() const {
  kvpool_info info{};
  const int err = call(KVPOOL_GET_INFO, &info);
  if (err == -ENOTTY || err == -EINVAL || err == -E2BIG) {
    fail(kExitFailed, backend::kControlNode, "is of a driver that this tool does not know",
         "install driver and tool of the same release");
  }
  if (err != 0) fail_errno(backend::kControlNode, err);
  return info;
}

kvpool_info ControlNode::claimed() const {
  const kvpool_info info = this->info();
  if (info.state == KVPOOL_CLAIM_NONE) {
    fail(kExitFailed, backend::kControlNode, "no pool is claimed on this host",
         "kvpool setup claim --range START+BYTES --host N");
  }
  if (info.state == KVPOOL_CLAIM_GONE) {
    fail(kExitFailed, backend::kControlNode,
         "this host has fenced itself: another host wrote its line, or the memory failed",
         "see the kernel's log; then kvpool setup release, and claim it anew");
  }
  return info;
}

u32 ControlNode::list_into(u32 kind, void *items, u32 item_bytes, u32 count) const {
  kvpool_list args{};
  args.items = reinterpret_cast<std::uintptr_t>(items);
  args.kind = kind;
  args.item_bytes = item_bytes;
  args.count = count;
  const int err = call(KVPOOL_LIST, &args);
  if (err == -EPERM) {
    fail(kExitFailed, backend::kControlNode, "physical addresses are shown to root only",
         "run it as root");
  }
  if (err != 0) fail_errno(backend::kControlNode, err);
  return args.ret_count;
}

const char *type_word(u32 type) {
  switch (type) {
    case KVPOOL_TYPE_WB: return "wb";
    case KVPOOL_TYPE_WC: return "wc";
    case KVPOOL_TYPE_UC_MINUS: return "uc-";
    default: return "none";
  }
}

const char *host_state_word(u32 state) {
  switch (state) {
    case KVPOOL_HOST_NEVER: return "never";
    case KVPOOL_HOST_UP: return "up";
    case KVPOOL_HOST_LEFT: return "left";
    case KVPOOL_HOST_GONE: return "gone";
    default: return "unreadable";
  }
}

std::string partition_name(const kvpool_item_partition &item) {
  const auto *name = reinterpret_cast<const char *>(item.name);
  return std::string(name, strnlen(name, sizeof item.name));
}

}  // namespace kvpool::tools
