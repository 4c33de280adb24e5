// SPDX-License-Identifier: Apache-2.0
// What distinguishes this machine and this boot of it, for the host line (proto 6).
#pragma once

#include <array>
#include <string>

#include "arch/types.hpp"

namespace kvpool::backend {

using Id128 = std::array<u8, 16>;

// A hash of /etc/machine-id, which must not be shown raw (machine-id(5)); of the host name where
// that file is missing or empty, as in many containers. Never all zeros.
Id128 machine_id();

// The kernel's boot id: equal for all processes and containers of one running kernel, another after
// a reboot, and another on a second machine that was cloned with the same machine id. Never all
// zeros.
Id128 boot_nonce();

// The host name, for messages and the name shown to others.
std::string host_name();

// The two above with the places they read, for tests.
Id128 machine_id_from(const std::string &machine_id_file, const std::string &host_name);
bool parse_boot_id(const std::string &text, Id128 &ret);

}  // namespace kvpool::backend
