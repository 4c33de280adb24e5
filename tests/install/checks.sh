# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the tests of this folder share; read by them. An empty folder `tmp`, gone at the end, and counts.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0

check() { # check NAME COMMAND...: one test; its output is shown when it fails
  local name=$1
  shift
  if "$@" >"$tmp/out" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
    cat "$tmp/out"
  fi
}
