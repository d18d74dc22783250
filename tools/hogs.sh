#!/usr/bin/env bash
# Runs the suite as `make test` does, N times (10), beside a process that keeps a processor busy and one that keeps the
# disk busy: no test may depend on a quiet machine. It ends at the first run that fails.
# tools/hogs.sh [N] [-- options of pytest]
set -euo pipefail
cd "$(dirname "$0")/.."
times=10
if [[ "${1-}" =~ ^[0-9]+$ ]]; then times=$1; shift; fi
if [ "${1-}" = -- ]; then shift; fi
work=$(mktemp -d)
hogs=()
trap 'kill "${hogs[@]}"; wait || true; rm -rf "$work"' EXIT
bash -c 'while :; do :; done' &
hogs+=($!)
bash -c 'while :; do dd if=/dev/zero of="$0/hog" bs=1M count=256 conv=fdatasync status=none; done' "$work" &
hogs+=($!)
for run in $(seq "$times"); do
    echo "run $run of $times"
    make --no-print-directory test OPTIONS="$*"
done
