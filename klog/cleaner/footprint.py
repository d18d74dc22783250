"""What a cleaning leaves in the page cache: what was there before, and little else. It goes to the disk in steps.

    F1  what a pass over a segment brings into memory goes again behind it, what was there stays (DropBehind). Of the
        first KEPT_BYTES of a dirty part, the first pass leaves that to the second, which then needs no disk
    F2  what is written begins its way to the disk step by step. The fsync at the end finds little to do, and so do
        those of appends beside it, which would have to wait for it
    F3  what is written leaves the memory, too, unless its sources were in it: who read those reads it next
    F4  a failed write-behind is a failed fsync: WriteBackFailed, and what is written is no segment

klog.io.scan.drop.behind=false keeps everything that either pass has touched. One thread. Kafka has nothing like it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.config import LogConfig
from klog.disk import BehindCounts, LogFile, WriteBehind
from klog.disk.drop_behind import DropBehind
from klog.segment import Segment

KEPT_BYTES = 128 << 20
_KEPT_FILES = 16  # each keeps a descriptor
WINDOW_BYTES = 64 << 20  # of what is written; what lies further behind has left
_ALL = 1 << 62


class Footprint:
    """Of one round. A context manager: behind it nothing is left that is to go."""

    def __init__(self, config: LogConfig) -> None:
        self._drops = config.io.scan_drop_behind
        self._left = KEPT_BYTES
        self._kept: dict[Segment, DropBehind] = {}

    def __enter__(self) -> Footprint:
        return self

    def __exit__(self, *error: object) -> None:
        for behind in self._kept.values():
            behind.finish()
        self._kept.clear()

    def first(
        self, segment: Segment, read: Callable[[Callable[[int], None]], bool], beat: Callable[[int], None]
    ) -> bool:
        """Run read(beat), the first pass over a segment; what it answers."""
        if not self._drops:
            return read(beat)
        behind = DropBehind(segment.file, 0, segment.size)
        if segment.size <= self._left and len(self._kept) < _KEPT_FILES:
            self._left -= segment.size
            self._kept[segment] = behind
            return read(beat)
        with behind:
            return read(_both(behind, beat))

    def second(
        self, segment: Segment, read: Callable[[Callable[[int], None]], None], beat: Callable[[int], None]
    ) -> None:
        """Run read(beat), the second pass over a segment."""
        if not self._drops:
            read(beat)
            return
        with self._of(segment) as behind:
            del self._kept[segment]
            read(_both(behind, beat))

    def was_cold(self, segment: Segment) -> bool:
        """Was most of a segment not in memory before the cleaning came? Asked before its second pass."""
        return self._drops and self._of(segment).cold_bytes > segment.size // 2

    def _of(self, segment: Segment) -> DropBehind:
        if segment not in self._kept:
            self._kept[segment] = DropBehind(segment.file, 0, segment.size)
        return self._kept[segment]


def _both(behind: DropBehind, beat: Callable[[int], None]) -> Callable[[int], None]:
    def moved(count: int) -> None:
        behind.moved(count)
        beat(count)

    return moved


class Written:
    """A file that is written from its beginning to its end. drop: it leaves the memory (F3)."""

    def __init__(self, file: LogFile, *, drop: bool) -> None:
        self._file = file
        self._drop = drop
        self._behind = WriteBehind(file, WINDOW_BYTES if drop else _ALL, 0, BehindCounts())

    def write(self, data: memoryview, position: int) -> None:
        self._file.write(data, position)
        self._behind.advance(position + data.nbytes)

    def synced(self) -> None:
        """All of it is on the disk."""
        if self._drop:
            self._file.advise(0, 0, os.POSIX_FADV_DONTNEED)
