# SPDX-License-Identifier: Apache-2.0
#
# Everything kvpool links with, all of it from Debian packages (scripts/deps.sh holds the list of packages).
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(DAXCTL REQUIRED IMPORTED_TARGET libdaxctl)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_path(CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
find_path(SDT_INCLUDE sys/sdt.h REQUIRED)
