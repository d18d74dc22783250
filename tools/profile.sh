#!/usr/bin/env bash
# Record a contest of bench/ with Linux perf: tools/profile.sh CONTEST [--contestant NAME] [--seconds N] [--tiny]
# On a copy of the tree, built with frame pointers and .pyx line numbers.
set -euo pipefail
. "$(dirname "$0")/copy_of_tree.sh"
[ -n "${1-}" ] || { echo "which contest? make profile CONTEST='append 100B'; docs/profiling.md"; exit 2; }
command -v perf >/dev/null || { echo 'needs: perf (on Debian: sudo apt-get install linux-perf)'; exit 1; }
copy_of_tree profile
out="${PWD%/*}/profile"
KLOG_BUILD=profile "$python" -W ignore setup.py -q build_ext --inplace
PYTHONPATH="$PWD" exec "$python" -m bench.profiling --out "$out" "$@"
