#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows: what `make install-driver` leaves behind is whole: the driver's source builds from there (make kmod runs DKMS on it),
# and the files beside it say what they should in the words of those who read them.
# How: installs into an empty folder; modprobe and systemd-sysusers read their files where they are there to do so.
set -u

source_dir=${KVPOOL_SOURCE_DIR:?}
# shellcheck source=tests/install/checks.sh
. "$source_dir/tests/install/checks.sh"
skipped=0

stage=$tmp/stage
version=$(cat "$source_dir/VERSION")
source=$stage/usr/src/kvpool-$version
install_driver() { make -C "$source_dir" --no-print-directory install-driver DESTDIR="$stage"; }
check "it installs" install_driver
check "and again" install_driver

whole() { diff -r "$source_dir/kmod" "$source/kmod" && diff -r "$source_dir/uapi" "$source/uapi"; }
check "the source is whole" whole

# DKMS reads its description as a shell does.
described() {
  # shellcheck disable=SC1091,SC2034,SC2154
  (dkms_tree=T kernel_source_dir=K; . "$source/dkms.conf"
   [ "$PACKAGE_NAME-$PACKAGE_VERSION" = "kvpool-$version" ] && [ "${BUILT_MODULE_NAME[0]}" = kvpool ] &&
     [ "${MAKE[0]%% CONFIG*}" = "make -C K M=T/kvpool/$version/build/kmod" ])
}
check "its description names what is there" described

modprobe=$(PATH=$PATH:/usr/sbin:/sbin command -v modprobe || true)
if [ -n "$modprobe" ]; then
  refuses() { "$modprobe" -C "$stage/usr/lib/modprobe.d" --showconfig | grep -qx "blacklist $1"; }
  check "dax_hmem is not loaded by itself" refuses dax_hmem
  check "nor is dax_cxl" refuses dax_cxl
else
  skipped=$((skipped + 2)); echo "skipped: no modprobe here"
fi
if [ "$(id -u)" = 0 ] && command -v systemd-sysusers >/dev/null; then
  mkdir -p "$stage/etc"
  check "the group is made" systemd-sysusers --root="$stage" kvpool.conf
  check "under its name" grep -q '^kvpool:' "$stage/etc/group"
else
  skipped=$((skipped + 2)); echo "skipped: not root, or no systemd-sysusers here"
fi
rule() { grep -qx "SUBSYSTEM==\"kvpool\", KERNEL==\"$1\", $2" "$stage/usr/lib/udev/rules.d/70-kvpool.rules"; }
check "the control node is root's" rule kvpool 'MODE="0600"'
check "a partition's is the group's" rule 'kvpool-\*' 'GROUP="kvpool", MODE="0660"'

# Somewhere that nobody may read.
mkdir -p "$tmp/tree/scripts"
cp "$source_dir/VERSION" "$tmp/tree/"
cp "$source_dir/scripts/install_driver.sh" "$tmp/tree/scripts/"
chmod -R a+rX "$tmp"
unprivileged() { # refused, with the way on
  local as=()
  [ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  env -u DESTDIR "${as[@]}" "$tmp/tree/scripts/install_driver.sh" >"$tmp/said" 2>&1
  [ $? = 2 ] && grep -q 'sudo make install-driver' "$tmp/said"
}
check "an ordinary user installs nothing" unprivileged

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
