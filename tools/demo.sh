#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# make demo: a store in shared memory, an owner, four member processes that replay a workload, every byte
# verified. Writes build/demo.json. TRACE=file replays a trace instead of the generated workload;
# DEMO_CORRUPT=1 flips one published byte on the way, which the run must report, and then fails.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$here/build}
case $build in /*) ;; *) build=$here/$build ;; esac
kvpool=$build/bin/kvpool
result=$build/demo.json

[ -x "$kvpool" ] || { echo "demo: $kvpool is missing; run make build" >&2; exit 1; }
rm -f "$result"

# 4 GB and more are moved through a pool of 1 GiB, so blocks are evicted on the way.
arguments=(--members 4 --capacity 1GiB --block-bytes 256KiB --min-bytes 6GiB --repeat 1000)
if [ -n "${TRACE:-}" ]; then
  [ -r "$TRACE" ] || { echo "demo: $TRACE cannot be read" >&2; exit 1; }
  # A long trace is cut: the demo should end within a minute or two, whatever it is given.
  arguments+=(--max-requests 1500 "$TRACE")
  echo "kvpool demo: 4 processes replay $TRACE through a pool of 1 GiB"
else
  arguments+=(--requests 4000 --seed 1)
  echo "kvpool demo: 4 processes replay generated conversations through a pool of 1 GiB"
fi
if [ -n "${DEMO_CORRUPT:-}" ] && [ "${DEMO_CORRUPT}" != 0 ]; then
  arguments+=(--corrupt)
  echo "one published byte will be flipped; the run must find it and fail"
fi

child=
stop() {  # the replay ends its own children and removes its store when it is asked to stop
  trap - INT TERM EXIT
  if [ -n "$child" ] && kill -0 "$child" 2>/dev/null; then
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
}
trap 'stop; exit 130' INT TERM
trap stop EXIT

code=0
"$kvpool" replay "${arguments[@]}" --json-file "$result" &
child=$!
wait "$child" || code=$?
child=
if [ "$code" -ne 0 ]; then
  echo "demo: failed with exit code $code" >&2
  exit "$code"
fi
echo
echo "the same as JSON: ${result#"$here"/}"
