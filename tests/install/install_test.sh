#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows: what `make install` leaves behind serves C and C++ programs, shared and static, by pkg-config and CMake.
# How: installs into an empty folder, compiles programs against nothing but that folder, and runs them.
set -u

source_dir=${KVPOOL_SOURCE_DIR:?} build_dir=${KVPOOL_BUILD_DIR:?}
here=$source_dir/tests/install
# shellcheck source=tests/install/checks.sh
. "$source_dir/tests/install/checks.sh"

tree_state() { git -C "$source_dir" status --porcelain | sort; }
state_before=$(tree_state)

stage=$tmp/stage
DESTDIR=$stage cmake --install "$build_dir" >"$tmp/install.log" 2>&1 || { cat "$tmp/install.log"; echo "0 passed, 1 failed"; exit 1; }
root=$(dirname "$(dirname "$(find "$stage" -name kvpool.h)")")
root=$(dirname "$root")
lib=$(dirname "$(find "$stage" -name libkvpool.a)")
mkdir "$tmp/pc" # the same file, moved to where the stage is; other libraries stay where they are
sed "s|^prefix=|prefix=$stage|" "$lib/pkgconfig/kvpool.pc" >"$tmp/pc/kvpool.pc"
export PKG_CONFIG_PATH=$tmp/pc LD_LIBRARY_PATH=$lib

files_are_there() {
  local file missing=0
  for file in bin/kvpool include/kvpool/kvpool.h; do
    [ -f "$root/$file" ] || { echo "missing: $file"; missing=1; }
  done
  for file in libkvpool.a libkvpool.so.0 libkvpool.so pkgconfig/kvpool.pc cmake/kvpool/kvpool-config.cmake; do
    [ -e "$lib/$file" ] || { echo "missing: $file"; missing=1; }
  done
  return $missing
}
nothing_names_the_build() {
  ! grep -rIl -e "$source_dir" -e "$build_dir" "$stage" && ! readelf -d "$lib/libkvpool.so" "$root/bin/kvpool" | grep -E 'RPATH|RUNPATH'
}
pages_are_there() {
  local source page
  for source in "$source_dir"/Documentation/man/*.scd; do
    page=$(basename "$source" .scd)
    [ -s "$root/share/man/man${page##*.}/$page" ] || { echo "missing: $page"; return 1; }
  done
}
flags_are_clean() { # no define, no language choice: only where the headers lie
  local flag
  for flag in $(pkg-config --cflags kvpool); do
    case $flag in -I*) ;; *) echo "leaks $flag"; return 1 ;; esac
  done
}
shared() { # COMPILER SOURCE [ARGUMENT...]
  # shellcheck disable=SC2046
  "$1" -Wall -Wextra -Werror "$2" -o "$tmp/program" $(pkg-config --cflags --libs kvpool) && "$tmp/program" "${@:3}" &&
    readelf -d "$tmp/program" | grep -q 'libkvpool.so.0'
}
static() { # COMPILER SOURCE
  local alone=$tmp/alone
  rm -rf "$alone" && mkdir "$alone" && cp "$lib/libkvpool.a" "$alone/"
  # shellcheck disable=SC2046
  "$1" -Wall -Wextra -Werror "$2" -o "$tmp/program" -L"$alone" $(pkg-config --cflags --static --libs kvpool | sed "s|-L$lib||g") &&
    "$tmp/program" && ! readelf -d "$tmp/program" | grep 'libkvpool'
}
by_cmake() { # TARGET
  local folder=$tmp/cmake-$1
  mkdir -p "$folder"
  cat >"$folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
find_package(kvpool 0.1 CONFIG REQUIRED)
add_executable(in_c "$here/consumer.c")
add_executable(in_cc "$here/consumer.cc")
target_link_libraries(in_c PRIVATE kvpool::$1)
target_link_libraries(in_cc PRIVATE kvpool::$1)
END
  cmake -S "$folder" -B "$folder/b" -G Ninja -DCMAKE_PREFIX_PATH="$root" && cmake --build "$folder/b" &&
    "$folder/b/in_c" && "$folder/b/in_cc"
}
header_alone() { # HEADER
  local include=$root/include
  echo "#include <kvpool/$1>" >"$tmp/alone.c"
  cp "$tmp/alone.c" "$tmp/alone.cc"
  case $1 in
    *.h) cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" "$tmp/alone.c" || return 1 ;;
  esac
  c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" "$tmp/alone.cc"
}
readme_program() { # the C program of the README is examples/put_get.c, compiles without a warning and runs
  sed -n '/^```c$/,/^```$/p' "$source_dir/README.md" | sed '1d;$d' >"$tmp/readme.c"
  [ -s "$tmp/readme.c" ] || { echo "README.md shows no C program"; return 1; }
  diff "$source_dir/examples/put_get.c" "$tmp/readme.c" || return 1
  [ "$(wc -l <"$tmp/readme.c")" -lt 50 ] || { echo "50 lines or more"; return 1; }
  shared cc "$tmp/readme.c" "file:$tmp/store?size=64MiB"
}

check "files are there" files_are_there
check "nothing names the build" nothing_names_the_build
check "man pages are there" pages_are_there
check "pkg-config flags are clean" flags_are_clean
for header in "$root"/include/kvpool/*; do
  check "$(basename "$header") alone" header_alone "$(basename "$header")"
done
check "C, shared, pkg-config" shared cc "$here/consumer.c"
check "C++, shared, pkg-config" shared c++ "$here/consumer.cc"
check "C, static, pkg-config" static cc "$here/consumer.c"
check "C++, static, pkg-config" static c++ "$here/consumer.cc"
check "shared, CMake" by_cmake kvpool
check "static, CMake" by_cmake kvpool_static
check "the README's program" readme_program
check "the installed tool runs" "$root/bin/kvpool" --version
check "a program that cannot be built is noticed" bash -c "! cc -Werror -x c - -o '$tmp/none' -lkvpool -L'$lib' <<<'int kvpool_none(void); int main(void) { return kvpool_none(); }'"
state_after=$(tree_state)
check "the source tree is as it was" diff <(echo "$state_before") <(echo "$state_after")

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
