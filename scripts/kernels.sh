#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Kernels to build the driver for and to boot it in, from Debian's packages, unpacked into a cache outside the tree;
# nothing is installed.
# Use: kernels.sh [headers] [guests] [list]
#   headers   of each series; what `make kmod` builds against
#   guests    also kernel images, and the busybox that the guests run
#   list      a line for each series: series, release, folder of the headers
# KVPOOL_CACHE: the cache (default ~/.cache/kvpool). KVPOOL_KERNELS: the series (default: 6.1 6.12).
set -eu

cache=${KVPOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvpool}
series=${KVPOOL_KERNELS:-6.1 6.12}
mkdir -p "$cache/packages"

newest() {  # the newest headers package of a series, by name
  apt-cache search --names-only "^linux-headers-${1//./\\.}\\.[0-9.]+(-[0-9]+|\\+deb[0-9]+)-amd64\$" |
    cut -d ' ' -f 1 | sort -V | tail -n 1
}

# Fetches packages into the cache and unpacks them below a folder; done as a whole or not at all.
unpack() {
  local to=$1; shift
  [ -e "$to/.complete" ] && return 0
  rm -rf "$to"; mkdir -p "$to"
  local package
  for package in "$@"; do
    if ! compgen -G "$cache/packages/${package}_*.deb" >/dev/null; then
      (cd "$cache/packages" && apt-get download -qq -o APT::Sandbox::User=root "$package") || {
        echo "kernels.sh: cannot fetch $package; run as root: apt-get update" >&2; exit 2; }
    fi
    dpkg -x "$(compgen -G "$cache/packages/${package}_*.deb" | sort -V | tail -n 1)" "$to"
  done
  touch "$to/.complete"
}

headers() {
  local name=$1 to=$cache/$1/headers package release kbuild
  [ -e "$to/.complete" ] && return 0
  package=$(newest "$name")
  if [ -z "$package" ] && [ "$(id -u)" = 0 ]; then apt-get update -qq; package=$(newest "$name"); fi
  [ -n "$package" ] || { echo "kernels.sh: no headers of $name known to apt; run as root: apt-get update" >&2; exit 2; }
  release=${package#linux-headers-}
  kbuild=$(apt-cache depends "$package" | sed -n 's/.*Depends: \(linux-kbuild-.*\)/\1/p' | head -n 1)
  rm -rf "$to.new"
  unpack "$to.new" "$package" "linux-headers-${release%-amd64}-common" "$kbuild"
  # The packages name each other by where they would be installed.
  grep -rlI '/usr/src/linux-headers' --include=Makefile --include='*.mk' "$to.new/usr/src" |
    xargs -r sed -i "s,/usr/src/linux-headers,$to/usr/src/linux-headers,g"
  find "$to.new/usr/src" -type l -lname '/*' | while read -r link; do
    ln -sfn "$to$(readlink "$link")" "$link"
  done
  echo "$release" >"$to.new/release"
  rm -rf "$to"; mv "$to.new" "$to"
}

guest() {
  local release
  headers "$1"
  release=$(cat "$cache/$1/headers/release")
  unpack "$cache/$1/image" "linux-image-$release-unsigned"
  unpack "$cache/busybox" busybox-static
}

for what in "${@:-headers}"; do
  for name in $series; do
    case $what in
      headers) headers "$name" ;;
      guests) guest "$name" ;;
      list) echo "$name $(cat "$cache/$name/headers/release") $cache/$name/headers/usr/src/linux-headers-$(cat "$cache/$name/headers/release")" ;;
      *) echo "kernels.sh: no '$what' (headers, guests, list)" >&2; exit 2 ;;
    esac
  done
done
