#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the driver for each kernel that scripts/kernels.sh knows, below BUILD/kmod/<series>, with W=1 and, where it is
# installed, sparse. A warning is an error. Then DKMS builds it once, for the newest, from what `make install-driver` installs.
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

# No module of DKMS' own tree, nor the machine's, is touched.
read -r _ release headers < <(scripts/kernels.sh list | tail -n 1)
dkms=$build/kmod/dkms
rm -rf "$dkms"; mkdir -p "$dkms/tree"
DESTDIR=$dkms scripts/install_driver.sh >/dev/null
version=$(cat VERSION)
if dkms build -m kvpool -v "$version" -k "$release" --kernelsourcedir "$headers" --dkmstree "$dkms/tree" \
     --sourcetree "$dkms/usr/src" >"$dkms/build.log" 2>&1; then
  module=$(find "$dkms/tree/kvpool/$version/$release" -name 'kvpool.ko*')
  echo "kmod: $release: by DKMS, $module"
else
  tail -n 20 "$dkms/build.log" "$dkms/tree/kvpool/$version/build/make.log"
  status=1
fi
exit $status
