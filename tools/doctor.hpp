// SPDX-License-Identifier: Apache-2.0
// What kvpool doctor gathers (cmd_doctor.cc), and its part about the driver (doctor_driver.cc).
#pragma once

#include <string>
#include <utility>

#include "say.hpp"

namespace kvpool::tools {

// Checks in the order they are shown. ok: fine; note: works, could be better, or was not looked at;
// wrong: must be fixed.
class Findings {
public:
  void add(std::string name, std::string state, std::string value, std::string hint = {}) {
    if (state == "wrong") any_wrong_ = true;
    list_.push_back({{"name", std::move(name)},
                     {"state", std::move(state)},
                     {"value", std::move(value)},
                     {"hint", std::move(hint)}});
  }
  const Json &list() const { return list_; }
  bool any_wrong() const { return any_wrong_; }

private:
  Json list_ = Json::array();
  bool any_wrong_ = false;
};

void look_at_driver(Findings &findings);

}  // namespace kvpool::tools
