// SPDX-License-Identifier: Apache-2.0
// Fibers over Boost.Context with stacks of our own, each with a guard page below.
#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

namespace kvpool::sim {

namespace {

constexpr std::size_t kStackBytes = 512 * 1024;
constexpr std::size_t kGuardBytes = 4096;

// The stack belongs to the Fiber object, so the context library has nothing to give back.
struct NoAllocator {
  using traits_type = boost::context::stack_traits;
  boost::context::stack_context allocate() { return {}; }
  void deallocate(boost::context::stack_context &) noexcept {}
};

}  // namespace

Fiber::Fiber() {
  void *base = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED || mprotect(base, kGuardBytes, PROT_NONE) != 0) {
    std::perror("kvpool-sim: fiber stack");
    std::abort();
  }
  stack_ = static_cast<std::byte *>(base);
}

Fiber::~Fiber() {
  abandon();
  munmap(stack_, kStackBytes + kGuardBytes);
}

// Moving the handle into storage that is never destroyed keeps the library from unwinding the
// stack, which would run production destructors (and throw through noexcept verbs).
void Fiber::abandon() {
  alignas(boost::context::fiber) std::byte grave[sizeof(boost::context::fiber)];
  new (grave) boost::context::fiber(std::move(self_));
  new (grave) boost::context::fiber(std::move(main_));
}

void Fiber::start(std::function<void()> body) {
  abandon();
  body_ = std::move(body);
  finished_ = false;
  boost::context::stack_context context;
  context.size = kStackBytes;
  context.sp = stack_ + kGuardBytes + kStackBytes;
  self_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(context.sp, context.size, context),
      NoAllocator{}, [this](boost::context::fiber &&main) {
        main_ = std::move(main);
        body_();
        finished_ = true;
        return std::move(main_);
      });
}

void Fiber::resume() {
  self_ = std::move(self_).resume();
}

void Fiber::leave() {
  main_ = std::move(main_).resume();
}

}  // namespace kvpool::sim
