#!/usr/bin/env bash
# Which lines of csrc and of the Cython modules the inputs of the fuzz targets reach: a table.
# On a copy of the tree, whose build counts executed lines.
set -euo pipefail
. "$(dirname "$0")/copy_of_tree.sh"
copy_of_tree coverage
find build -name '*.gcda' -delete 2>/dev/null || true
KLOG_BUILD=coverage "$python" -W ignore setup.py -q build_ext --inplace
PYTHONPATH="$PWD" exec "$python" -m tests.fuzz.coverage "$@"
