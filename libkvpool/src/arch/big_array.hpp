// SPDX-License-Identifier: Apache-2.0
// A large array of plain values in local memory, zeroed, in 2 MiB pages where the system gives
// them: what is read at random should not also miss the TLB. Owns its memory.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "arch/types.hpp"

namespace kvpool {

template <class T>
class BigArray {
  static_assert(std::is_trivially_destructible_v<T>);

public:
  BigArray() = default;
  // Throws std::bad_alloc. All bytes are zero: T must be valid so, or be written before it is read.
  explicit BigArray(u64 count) {
    if (count * sizeof(T) < kHuge) {
      if (count == 0) return;
      const u64 bytes = (count * sizeof(T) + kLineBytes - 1) / kLineBytes * kLineBytes;
      data_ = static_cast<T *>(std::aligned_alloc(kLineBytes, bytes));
      if (!data_) throw std::bad_alloc();
      std::memset(static_cast<void *>(data_), 0, bytes);
      return;
    }
    bytes_ = round_up(count * sizeof(T));
    // Room for a 2 MiB boundary; what lies outside is given back.
    char *raw = static_cast<char *>(mmap(nullptr, bytes_ + kHuge, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (raw == MAP_FAILED) throw std::bad_alloc();
    char *start =
        reinterpret_cast<char *>((reinterpret_cast<u64>(raw) + kHuge - 1) / kHuge * kHuge);
    if (start != raw) munmap(raw, static_cast<u64>(start - raw));
    munmap(start + bytes_, static_cast<u64>(raw + kHuge - start));
    (void)madvise(start, bytes_, MADV_HUGEPAGE);  // a hint: without it pages are small
    data_ = reinterpret_cast<T *>(start);
  }
  BigArray(BigArray &&other) noexcept { swap(other); }
  BigArray &operator=(BigArray &&other) noexcept {
    BigArray(std::move(other)).swap(*this);
    return *this;
  }
  ~BigArray() {
    if (bytes_ != 0) {
      munmap(data_, bytes_);
    } else {
      std::free(data_);
    }
  }

  T &operator[](u64 i) { return data_[i]; }
  const T &operator[](u64 i) const { return data_[i]; }
  explicit operator bool() const { return data_ != nullptr; }

private:
  static constexpr u64 kHuge = u64{2} << 20;
  static constexpr u64 round_up(u64 bytes) { return (bytes + kHuge - 1) / kHuge * kHuge; }
  void swap(BigArray &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  T *data_ = nullptr;
  u64 bytes_ = 0;  // 0: small, from the heap
};

}  // namespace kvpool
