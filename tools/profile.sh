#!/usr/bin/env bash
# Record a contest of bench/ with Linux perf: tools/profile.sh CONTEST [--contestant NAME] [--seconds N] [--tiny]
# On a copy of the tree, built with frame pointers and .pyx line numbers: flavours never share objects.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -n "${1-}" ] || { echo "which contest? make profile CONTEST='append 100B'; docs/profiling.md"; exit 2; }
command -v perf >/dev/null || { echo 'needs: perf (on Debian: sudo apt-get install linux-perf)'; exit 1; }
copy=build/profile-tree
mkdir -p "$copy"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$copy"
python="${PYTHON:-$PWD/.venv/bin/python}"
out="$PWD/build/profile"
cd "$copy"
KLOG_BUILD=profile "$python" -W ignore setup.py -q build_ext --inplace
PYTHONPATH="$PWD" exec "$python" -m bench.profiling --out "$out" "$@"
