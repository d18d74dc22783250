"""The cost of opening a directory after a clean stop, in exact counts: system calls and Python frames per partition,
system calls per closed segment."""

from __future__ import annotations

from pathlib import Path

import klog
from bench.many_segments import write_segments
from tests.support.frames import frames_of
from tests.support.logs import NOW
from tests.support.syscalls import count_syscalls

OPEN_ALL = """
import gc, os, sys, klog
gc.disable()
ends = [log.log_end_offset for log in klog.open(sys.argv[1]).logs()]
assert set(ends) == {80}
os._exit(0)  # the close of the logs is not counted
"""
OPEN_ONE = """
import gc, sys, klog
gc.disable()
with klog.Log.open(sys.argv[1], clean_shutdown=True) as log:
    assert len(log.segments) == int(sys.argv[2])
"""
FEW, MANY = 10, 110
PARTITION_MAX = 26
FRAMES_MAX = 105
CLOSED_SEGMENT_MAX = 5


def clean_partitions(path: Path, count: int) -> str:
    """A log.dir of partitions of 64 KiB in ten batches, stopped cleanly."""
    with klog.open(path, create=True) as logs:
        for number in range(count):
            logs.create_topic(f"t{number}")
            log = logs.log(f"t{number}")
            for batch in range(10):
                log.append([(b"key", bytes(800), NOW + 8 * batch + record) for record in range(8)])
    return str(path)


def test_a_clean_partition_takes_at_most_26_calls(tmp_path: Path) -> None:
    few, many = clean_partitions(tmp_path / "few", FEW), clean_partitions(tmp_path / "many", MANY)
    calls = count_syscalls(OPEN_ALL, many) - count_syscalls(OPEN_ALL, few)
    assert calls / (MANY - FEW) <= PARTITION_MAX + 0.5  # the allocator makes a few more


def test_a_clean_partition_takes_at_most_105_frames(tmp_path: Path) -> None:
    """From klog.open() to the loaded log, the library's frames included."""
    frames = {}
    for count in (FEW, MANY):
        path, opened = clean_partitions(tmp_path / str(count), count), []

        def open_all(path: str = path, opened: list[klog.LogManager] = opened) -> None:
            opened.append(klog.open(path))
            list(opened[0].logs())

        frames[count] = frames_of(open_all).total()
        opened[0].close()
    assert (frames[MANY] - frames[FEW]) / (MANY - FEW) <= FRAMES_MAX


def test_a_closed_segment_takes_five_calls(tmp_path: Path) -> None:
    """open, fstat, fadvise, pread, close; and no more for a log of more segments."""
    counts = {}
    for count in (FEW, MANY, 10 * MANY):
        directory = tmp_path / str(count) / "t-0"
        write_segments(directory, count)
        # The allocator makes a few more calls, some by chance, but never one for each segment.
        counts[count] = min(count_syscalls(OPEN_ONE, str(directory), str(count)) for _ in range(3))
    for less, more in ((FEW, MANY), (MANY, 10 * MANY)):
        assert (counts[more] - counts[less]) / (more - less) <= CLOSED_SEGMENT_MAX + 0.5
