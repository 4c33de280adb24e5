#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Puts the driver's source where DKMS looks for it, and beside it what keeps other drivers away from the pool and what gives
# the nodes their owners. Builds, loads and claims nothing: it says which commands do.
# Use: install_driver.sh   DESTDIR: a folder to install below.
set -eu
cd "$(dirname "$0")/.."
version=$(cat VERSION)
root=${DESTDIR:-}
source=$root/usr/src/kvpool-$version

if [ -z "$root" ] && [ "$(id -u)" != 0 ]; then
  echo "install_driver.sh: needs root, or DESTDIR; run: sudo make install-driver" >&2
  exit 2
fi
install -d "$source"
rm -rf "$source/kmod" "$source/uapi"
cp -r kmod uapi "$source/"
sed "s/@VERSION@/$version/" packaging/driver/dkms.conf.in >"$source/dkms.conf"
install -D -m 644 packaging/driver/modprobe.conf "$root/usr/lib/modprobe.d/kvpool.conf"
install -D -m 644 packaging/driver/70-kvpool.rules "$root/usr/lib/udev/rules.d/70-kvpool.rules"
install -D -m 644 packaging/driver/sysusers.conf "$root/usr/lib/sysusers.d/kvpool.conf"
cat <<TEXT
installed the driver's source in $source
next, as root on each host:
  systemd-sysusers && udevadm control --reload
  dkms install kvpool/$version        (package dkms; headers of each kernel)
  update-initramfs -u -k all          (keeps device-dax away from the pool from the start)
a crash kernel must not load it: add modprobe.blacklist=kvpool to KDUMP_CMDLINE_APPEND in /etc/default/kdump-tools
TEXT
