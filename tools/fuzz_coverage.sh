#!/usr/bin/env bash
# Which lines of csrc and of the Cython modules the inputs of the fuzz targets reach: a table.
# On a copy of the tree, whose build counts executed lines: flavours never share objects.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=build/coverage-tree
mkdir -p "$copy"
git ls-files -z | tar --null -T - -cf - | tar -xmf - -C "$copy"
python="${PYTHON:-$PWD/.venv/bin/python}"
cd "$copy"
find build -name '*.gcda' -delete 2>/dev/null || true
KLOG_BUILD=coverage "$python" -W ignore setup.py -q build_ext --inplace
PYTHONPATH="$PWD" exec "$python" -m tests.fuzz.coverage "$@"
