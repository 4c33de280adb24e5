#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The kernel that finds faults of the driver: Linux 6.12 as Debian has it, tiny, with KASAN, lockdep, kmemleak, UBSAN
# and failslab. Built once into the cache, half an hour on two cores; a build that was interrupted goes on.
# Use: debug_kernel.sh     KVPOOL_CACHE: the cache (default ~/.cache/kvpool).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${KVPOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kvpool}
to=$cache/debug/headers/usr/src
release=linux-headers-debug
tree=$to/$release
[ -e "$cache/debug/.complete" ] && exit 0
mkdir -p "$cache/packages" "$to" "$cache/debug/image/boot"
if [ ! -e "$tree/.unpacked" ]; then
  if ! compgen -G "$cache/packages/linux-source-6.12_*.deb" >/dev/null; then
    (cd "$cache/packages" && apt-get download -qq -o APT::Sandbox::User=root linux-source-6.12) || {
      echo "debug_kernel.sh: cannot fetch linux-source-6.12; run as root: apt-get update" >&2; exit 2; }
  fi
  dpkg -x "$(compgen -G "$cache/packages/linux-source-6.12_*.deb" | sort -V | tail -n 1)" "$cache/debug/source"
  mkdir -p "$tree"
  tar -xf "$cache"/debug/source/usr/src/linux-source-6.12.tar.* -C "$tree" --strip-components=1
  rm -rf "$cache/debug/source"
  # Hidden, and chosen by nothing that is in here.
  sed -i '/^config MMU_NOTIFIER$/,/^$/s/^\tbool$/\tdef_bool y/' "$tree/mm/Kconfig"
  touch "$tree/.unpacked"
fi
cd "$tree"
if [ ! -e .configured ]; then
  make -s tinyconfig
  scripts/kconfig/merge_config.sh -m .config "$here/debug_kernel.config" >/dev/null
  make -s olddefconfig
  for wanted in KASAN PROVE_LOCKING MMU_NOTIFIER TRANSPARENT_HUGEPAGE X86_PAT MODULES NUMA; do
    grep -q "^CONFIG_$wanted=y" .config || { echo "debug_kernel.sh: CONFIG_$wanted did not take" >&2; exit 1; }
  done
  touch .configured
fi
make -s -j"$(nproc)" bzImage modules
cp arch/x86/boot/bzImage "$cache/debug/image/boot/vmlinuz-debug"
echo debug >"$cache/debug/headers/release"
touch "$cache/debug/headers/.complete" "$cache/debug/image/.complete" "$cache/debug/.complete"
