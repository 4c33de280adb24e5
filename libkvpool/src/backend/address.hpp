// SPDX-License-Identifier: Apache-2.0
// Addresses: the text a user writes to name a pool, taken apart and checked. Nothing here opens a
// file.
//
//   mem:NAME?size=1GiB&devices=2   named shared memory of this machine
//   file:PATH[,PATH...]?host=3     files, each one a device: tmpfs, hugetlbfs or any local one
//   dax:/dev/dax0.0?host=3         device-dax
//   dev:NAME[+NAME...]             partitions of the kvpool driver, each one a device
//
// An address is never guessed: an unknown scheme, option or unit is an error that names the nearest
// right one, and no address at all is ENODEV, never memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arch/types.hpp"
#include "backend/status.hpp"

namespace kvpool::backend {

inline constexpr u32 kMaxDevices = 16;
inline constexpr u32 kMaxHosts = 16;
inline constexpr u64 kDeviceAlign = u64{2} << 20;  // devices are mapped and sized in 2 MiB stripes

enum class Scheme { kMem, kFile, kDax, kDev };

// Memory of devices: other hosts may use it, locks of this one say nothing about them, and its size
// is what it is.
constexpr bool is_device(Scheme scheme) {
  return scheme == Scheme::kDax || scheme == Scheme::kDev;
}

struct Address {
  Scheme scheme = Scheme::kMem;
  std::string text;                // as given, for messages
  std::string name;                // mem
  std::vector<std::string> paths;  // file, dax, dev: one per device, in device order
  std::optional<u64> size;         // bytes of the whole pool, over all devices
  std::optional<u32> devices;
  std::optional<u32> host;
  std::optional<bool> huge;

  u32 host_id() const { return host.value_or(0); }
};

// `text` may be null or empty: then $KVPOOL is read, and without it the answer is -ENODEV with the
// ways on. `ret` is untouched on failure.
Status parse_address(const char *text, Address &ret);

// 4096, 64K, 64KiB, 1.5GiB; K, M, G and T are powers of 1024.
Status parse_size(std::string_view text, u64 &ret);

// "1.5 GiB": for messages.
std::string format_size(u64 bytes);

// Object of a mem: device, as shm_open names it.
std::string shm_name(const std::string &name, u32 device);

// Sizes of the devices to create: address.size spread evenly, in whole stripes. -EINVAL without a
// size, -ERANGE when it is too small for its devices or beyond what an offset in the pool can name.
Status device_sizes(const Address &address, std::vector<u64> &ret);

// The nearest of `known` (edit distance at most 2, or one a prefix of the other); empty when none
// is near enough to be offered.
std::string_view nearest(std::string_view word, const std::vector<std::string_view> &known);

}  // namespace kvpool::backend
