#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the driver for each kernel that scripts/kernels.sh knows, below BUILD/kmod/<series>, with W=1 and, where it is
# installed, sparse. A warning is an error.
# Use: kmod.sh BUILD
set -eu
cd "$(dirname "$0")/.."
build=$(realpath -m "${1:-build}")
scripts/kernels.sh headers
status=0
while read -r series release headers; do
  to=$build/kmod/$series
  mkdir -p "$to"
  # A copy, so that the tree stays clean; only what changed, so that only that is compiled.
  cp -ru --preserve=timestamps kmod uapi "$to/"
  checker=(); command -v sparse >/dev/null && checker=(C=1 CF=-D__CHECK_ENDIAN__)
  if ! make -k -j2 -C "$headers" M="$to/kmod" W=1 CONFIG_DEBUG_INFO_BTF_MODULES= "${checker[@]}" modules >"$to/build.log" 2>&1 ||
     grep -E 'warning:|error:' "$to/build.log" >/dev/null; then
    grep -E -A3 'warning:|error:|Error' "$to/build.log" | head -n 60
    status=1
  fi
  echo "kmod: $release: $(grep -cE 'warning:|error:' "$to/build.log" || true) warnings, $to/kmod/kvpool.ko"
done < <(scripts/kernels.sh list)
exit $status
