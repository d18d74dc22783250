"""The file ranges to read into the page cache in advance: those of a range of offsets, or the newest bytes.

The newest segments come first, each with its indexes, since the first read of a cold segment needs them, too. Only the
current content is warmed; nothing waits for appends.

On opening (klog.io.warm.up.bytes of a topic) all logs together take at most the longest klog.io.warm.up.ms of them:
Log.open() warms its log, LogManager.start() all logs. A log that a manager loads on demand is not warmed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from klog.arguments import function, having, optional_whole, seconds
from klog.disk import RealFiles, exists
from klog.disk.warm_up import FileRange, WarmedUp, warm_up
from klog.errors import CorruptData
from klog.logger import logger_of

if TYPE_CHECKING:
    from klog.log.state._log_core import LogCore
    from klog.progress import Progress
    from klog.segment import Segment

_log = logger_of("log")


def checked(bytes_max: object, timeout: object, progress: object, cancel: object) -> tuple[int | None, float | None]:
    """Check the arguments of warm_up(). Returns bytes and timeout. TypeError or ValueError names the argument."""
    function("progress", progress)
    if cancel is not None:
        having("cancel", cancel, ("is_set", "wait"), "a threading.Event, or None,")
    return optional_whole("bytes", bytes_max, 0), seconds("timeout", timeout)


def ranges_of(log: LogCore, start: int, stop: int, bytes_max: int | None) -> list[FileRange]:
    """The file ranges that hold [start, stop), newest first, with at most bytes_max bytes of `.log` files."""
    return list(_ranges(log.segments, start, stop, bytes_max))


def _ranges(segments: Sequence[Segment], start: int, stop: int, bytes_max: int | None) -> Iterator[FileRange]:
    left = bytes_max
    for segment in reversed(segments):
        if left is not None and left <= 0:
            return
        size = segment.size
        if segment.base_offset >= stop or segment.next_offset <= start or not size:
            continue
        low = high = None
        try:
            if start > segment.base_offset:
                low = segment.locate(start)
            if stop < segment.next_offset:
                high = segment.locate(stop)
        except (OSError, CorruptData) as error:
            _log.warning("event=warm_up_failed path=%s reason=%s", segment.path, error)
            continue
        first = 0 if low is None else low.position
        end = size if high is None else min(high.position + high.size, size)
        if left is not None:
            first = max(first, end - left)
            left -= end - first
        yield from (FileRange(path) for path in segment.paths[1:3] if exists(path))
        yield FileRange(segment.path, first, end)


def at_open(logs: Sequence[LogCore], progress: Progress | None = None) -> None:
    """Warm up the logs with klog.io.warm.up.bytes. Never raises."""
    wanted = [(log, log.config.io.warm_up_bytes) for log in logs if log.config.io.warm_up_bytes]
    if wanted:
        timeout = max(log.config.io.warm_up_ms for log, _ in wanted) / 1000
        done = newest_of(wanted, timeout, progress, None)
        _log.info("event=warmed_up logs=%d bytes=%d complete=%s", len(wanted), done.bytes, done.complete)


def newest_of(
    logs: Sequence[tuple[LogCore, int | None]],
    timeout: float | None,
    progress: Progress | None,
    cancel: threading.Event | None,
) -> WarmedUp:
    """Warm up the last bytes of each log, given as (log, number of bytes; None: all)."""
    ranges: list[FileRange] = []
    for log, bytes_max in logs:
        try:
            ranges += ranges_of(log, log.log_start_offset, log.log_end_offset, bytes_max)
        except (OSError, CorruptData) as error:
            _log.warning("event=warm_up_failed log=%s reason=%s", log.name, error)
    files = logs[0][0].options.files if logs else RealFiles()
    return warm_up(files, ranges, timeout=timeout, progress=progress, cancel=cancel)
