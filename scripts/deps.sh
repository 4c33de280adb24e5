#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The one list of Debian packages that kvpool needs, and what installs those that are missing.
# Use: deps.sh [build|test|long|kmod|qemu]...   Says first what is missing. As root it then installs it; as another user, or with
# NO_INSTALL=1, it prints the line to run and exits with 2. With everything in place it says nothing.
set -eu

build=(g++ make cmake ninja-build pkg-config python3 libfmt-dev nlohmann-json3-dev libcli11-dev libssl-dev libisal-dev
       libxxhash-dev libdaxctl-dev systemtap-sdt-dev libboost-context1.81-dev scdoc)
test=(git libcriterion-dev librapidcheck-dev codespell reuse shellcheck mandoc abigail-tools binutils
      python3-jsonschema)
kmod=(make gcc sparse libelf1 dkms)
qemu=(qemu-system-x86 gcc libc6-dev binutils python3 python3-jsonschema)
long=(clang-14 libclang-rt-14-dev clang-tidy-14 clang-format-14)

wanted=()
for group in "${@:-build}"; do
  case $group in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    long) wanted+=("${long[@]}") ;;
    kmod) wanted+=("${kmod[@]}") ;;
    qemu) wanted+=("${qemu[@]}") ;;
    *) echo "deps.sh: no group '$group' (build, test, long, kmod, qemu)" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null; then
  echo "deps.sh: this is no Debian system, so nothing is checked; needed are: ${wanted[*]}" >&2
  exit 0
fi

have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  case $'\n'$have$'\n' in *$'\n'"$package"$'\n'*) ;; *) missing+=("$package") ;; esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

line="apt-get install -y --no-install-recommends ${missing[*]}"
echo "kvpool: missing packages: ${missing[*]}"
if [ -n "${NO_INSTALL:-}" ] && [ "${NO_INSTALL}" != 0 ]; then
  echo "kvpool: NO_INSTALL is set, so nothing is installed; run this as root: apt-get update && $line" >&2
  exit 2
fi
if [ "$(id -u)" != 0 ]; then
  echo "kvpool: not root, so nothing is installed; run: sudo apt-get update && sudo $line" >&2
  exit 2
fi
echo "kvpool: installing them now (NO_INSTALL=1 forbids this)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
$line
