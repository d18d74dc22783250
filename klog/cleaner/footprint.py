"""Keeps the page cache as it was before a cleaning, and writes to the disk in steps.

    F1  after a pass over a segment, pages that the pass has loaded are dropped and the others stay (DropBehind). The
        first KEPT_BYTES of a dirty part are dropped only after the second pass, which then does not read the disk
    F2  write-back starts step by step. So the fsync at the end has little to do, and fsyncs of appends meanwhile do not
        wait for it
    F3  written pages are dropped, too, unless the sources were cached: then readers will need them next
    F4  a failed write-behind is a failed fsync: WriteBackFailed, and the written file does not become a segment

klog.io.scan.drop.behind=false keeps every page that either pass has touched. One thread. Kafka has no such thing.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.config import LogConfig
from klog.disk import BehindCounts, LogFile, WriteBehind
from klog.disk.drop_behind import DropBehind
from klog.segment import Segment

KEPT_BYTES = 128 << 20
_KEPT_FILES = 16  # each holds a descriptor
WINDOW_BYTES = 64 << 20  # of written bytes; earlier pages are dropped
_ALL = 1 << 62


class Footprint:
    """The footprint of one round. A context manager: on exit it drops the pages that are still to be dropped."""

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
        """Run read(beat), the first pass over a segment, and return its result."""
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
        """True if most of a segment was not in memory before the cleaning. Call it before the second pass."""
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
    """A file that is written from beginning to end. drop: its pages are dropped (F3)."""

    def __init__(self, file: LogFile, *, drop: bool) -> None:
        self._file = file
        self._drop = drop
        self._behind = WriteBehind(file, WINDOW_BYTES if drop else _ALL, 0, BehindCounts())

    def write(self, data: memoryview, position: int) -> None:
        self._file.write(data, position)
        self._behind.advance(position + data.nbytes)

    def synced(self) -> None:
        """Call it when all of the file is on the disk."""
        if self._drop:
            self._file.advise(0, 0, os.POSIX_FADV_DONTNEED)
