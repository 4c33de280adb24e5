// SPDX-License-Identifier: Apache-2.0
// One fiber on a reusable stack. A fiber of a crashed process is abandoned, never unwound: a
// machine that lost its power runs no destructors either.
#pragma once

#include <boost/context/fiber.hpp>
#include <functional>
#include <memory>

#include "arch/types.hpp"

namespace kvpool::sim {

class Fiber {
public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  // Begins a new life; what ran here before is forgotten where it stood.
  void start(std::function<void()> body);
  // From the main context: runs until the fiber calls leave() or ends.
  void resume();
  // From inside: back to the main context.
  void leave();
  bool finished() const { return finished_; }

private:
  void abandon();

  std::byte *stack_ = nullptr;
  std::function<void()> body_;
  boost::context::fiber self_;
  boost::context::fiber main_;
  bool finished_ = true;
};

}  // namespace kvpool::sim
