#!/usr/bin/env bash
# The unit tests under address and undefined sanitizers, on a copy of the tree: flavours never share objects.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=build/asan-tree
mkdir -p "$copy"
git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$copy"
python="$PWD/.venv/bin/python"
cd "$copy"
export KLOG_BUILD=asan
"$python" setup.py -q build_ext --inplace
libs="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
LD_PRELOAD="$libs" PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 PYTHONPATH="$PWD" \
    "$python" -m pytest -m 'not deep and not spark and not java' -p no:benchmark tests/codec tests/record tests/disk \
    tests/segment tests/log tests/property
