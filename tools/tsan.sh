#!/usr/bin/env bash
# The tests with threads under the thread sanitizer, on a copy of the tree: all of them, or those that are given. It sees C
# and Cython, which may run beside each other without the GIL; what holds the GIL is ordered by the GIL's own mutex.
set -euo pipefail
. "$(dirname "$0")/copy_of_tree.sh"
copy_of_tree tsan
export KLOG_BUILD=tsan
"$python" setup.py -q build_ext --inplace
threaded=(
    tests/test_locks.py tests/codec/test_direct.py tests/record/test_threads.py
    tests/disk/test_{handles,send}.py
    tests/log/test_{append_async,append_leaders,consistent_answers,fetch_send,flushes_and_others,flushing,group_commit}.py
    tests/log/test_{live_readers,lock_free_readers,readers_beside_writer,tail}.py
    tests/cleaner/test_{beside_others,readers_beside}.py tests/manager/test_{cleaner_threads,topic_tail}.py
    tests/network/test_{frames,life,limits}.py tests/broker/test_stopping.py
)
rm -f build/race.*
# setarch: libtsan of gcc 12 ends a process whose addresses the kernel has randomized by more bits than it knows.
status=0
LD_PRELOAD="$(gcc -print-file-name=libtsan.so)" PYTHONMALLOC=malloc PYTHONPATH="$PWD" \
    TSAN_OPTIONS="die_after_fork=0 history_size=4 report_signal_unsafe=0 log_path=$PWD/build/race" \
    setarch -R "$python" -m pytest -m 'not deep and not spark and not java' -p no:benchmark "${@:-${threaded[@]}}" || status=$?
for found in build/race.*; do # of the processes that tests have started, too
    [ -e "$found" ] || break
    cat "$found"
    status=66
done
exit $status
