#!/usr/bin/env bash
# The unit tests under address and undefined sanitizers, on a copy of the tree.
set -euo pipefail
. "$(dirname "$0")/copy_of_tree.sh"
copy_of_tree asan
export KLOG_BUILD=asan
"$python" setup.py -q build_ext --inplace
libs="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
mkdir -p build/selftest
gcc -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -Icsrc csrc/*.c csrc/selftest/*.c -o build/selftest/selftest
build/selftest/selftest

# $1 = further options of the sanitizer; the rest goes to pytest.
suite() {
    local options="$1"
    shift
    LD_PRELOAD="$libs" PYTHONMALLOC=malloc ASAN_OPTIONS="detect_leaks=0$options" PYTHONPATH="$PWD" \
        "$python" -m pytest -n logical --maxprocesses 4 -m 'not deep and not spark and not java' -p no:benchmark "$@"
}
memory=(tests/record/test_memory.py tests/record/test_bombs.py)
# test_kept.py counts page faults, and would count those of the sanitizer's malloc.
suite '' "${memory[@]/#/--ignore=}" --ignore=tests/record/test_kept.py tests/codec tests/record tests/disk tests/segment tests/log tests/property tests/fuzz
# Freed memory stays in quarantine for a while, 256 MiB of it, to detect late readers; tests that measure memory need it
# small. And where a test limits memory, malloc has to return NULL and not end the process.
suite ':quarantine_size_mb=1:thread_local_quarantine_size_kb=16:allocator_may_return_null=1' "${memory[@]}"
