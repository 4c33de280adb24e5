// SPDX-License-Identifier: Apache-2.0
// A queue of fixed room: what is on its way is bounded (proto 12), so posting never allocates, and
// nothing can fail between a message that is posted and the note that remembers it.
#pragma once

#include <bit>
#include <memory>

#include "arch/types.hpp"

namespace kvpool::pool {

template <class T>
class Ring {
public:
  explicit Ring(std::size_t room) : slots_(std::bit_ceil(room)), at_(new T[slots_]) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == slots_; }
  std::size_t room() const { return slots_ - size_; }

  T &operator[](std::size_t i) { return at_[(first_ + i) & (slots_ - 1)]; }
  const T &operator[](std::size_t i) const { return at_[(first_ + i) & (slots_ - 1)]; }
  T &front() { return (*this)[0]; }
  T &back() { return (*this)[size_ - 1]; }

  // The caller has made sure that it is not full.
  void push_back(const T &value) { (*this)[size_++] = value; }
  // The same in place: what stood there before is to be overwritten.
  T &push_stale() { return (*this)[size_++]; }
  void pop_front() {
    ++first_;
    --size_;
  }
  void clear() { size_ = 0; }

  template <class R, class V>
  class Iterator {
  public:
    Iterator(R *ring, std::size_t i) : ring_(ring), i_(i) {}
    V &operator*() const { return (*ring_)[i_]; }
    Iterator &operator++() {
      ++i_;
      return *this;
    }
    bool operator!=(const Iterator &other) const { return i_ != other.i_; }

  private:
    R *ring_;
    std::size_t i_;
  };
  auto begin() { return Iterator<Ring, T>(this, 0); }
  auto end() { return Iterator<Ring, T>(this, size_); }
  auto begin() const { return Iterator<const Ring, const T>(this, 0); }
  auto end() const { return Iterator<const Ring, const T>(this, size_); }

private:
  std::size_t slots_;
  std::unique_ptr<T[]> at_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace kvpool::pool
