"""Which parts of a log are in the page cache, by segment.

Only `.log` files count: indexes are a thousandth of their size, and mapped by every lookup. Nothing is read, so the
measurement does not change the cache. A segment that retention deletes meanwhile is skipped. The cost is two or three
system calls a segment, and for each partly cached segment one more per cell of its picture.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from klog.disk import Files, LogFile
from klog.disk.residency import PAGE, Residency, heat, residency, total
from klog.segment import names
from klog.shown import first_few
from klog.values import dataclass

_STEP = 64  # segments between two calls of the progress function


@dataclass(frozen=True, slots=True)
class SegmentPageCache:
    """The `.log` of one segment. heat: the cached share of each of its equal parts (0 cold, 1 hot); empty unless
    requested."""

    base_offset: int
    path: str
    residency: Residency
    heat: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LogPageCache:
    """One partition: its segments, oldest first, and their total."""

    topic: str
    partition: int
    path: str
    residency: Residency
    segments: tuple[SegmentPageCache, ...]

    def __repr__(self) -> str:
        return (
            f"LogPageCache(topic={self.topic!r}, partition={self.partition}, path={self.path!r}, "
            f"residency={self.residency!r}, segments=({first_few(self.segments)}))"
        )

    def picture(self, cells: int) -> list[float]:
        """The cached share of each of `cells` equal parts of the log's bytes. Needs heat."""
        return picture([(segment.residency.size, segment.heat) for segment in self.segments], cells)


def measure(
    files: Files,
    topic: str,
    partition: int,
    directory: str,
    segments: Iterable[tuple[int, str]],
    cells: int = 0,
    looked: Callable[[int], None] = lambda count: None,
    odd: Callable[[str, OSError], None] | None = None,
) -> LogPageCache:
    """Measure the segments of a partition, given as (base offset, path of `.log`).

    cells: number of parts of each segment's heat, 0 for none. looked(count) is called every few segments.
    odd(path, error) is called for each file that cannot be measured; without it the OSError is raised.
    """
    found, reported = [], 0
    for number, (base_offset, path) in enumerate(segments):
        try:
            found.append(_segment(files, base_offset, path, cells))
        except FileNotFoundError:
            continue
        except OSError as error:
            if odd is None:
                raise
            odd(path, error)
        if number + 1 - reported == _STEP:
            looked(number + 1 - reported)
            reported = number + 1
    return LogPageCache(topic, partition, directory, total(segment.residency for segment in found), tuple(found))


def _segment(files: Files, base_offset: int, path: str, cells: int) -> SegmentPageCache:
    with files.open(path) as file:  # not from the handle cache: this must not evict handles that readers use
        whole = residency(file)
        return SegmentPageCache(base_offset, path, whole, _heat(file, whole, cells) if cells else ())


def _heat(file: LogFile, whole: Residency, cells: int) -> tuple[float, ...]:
    """The heat of a segment. Without a system call if it is all hot or all cold, as most are."""
    if whole.cached_bytes in (0, whole.memory_bytes):
        return (whole.share,) * min(cells, whole.memory_bytes // PAGE)
    return tuple(heat(file, cells))


def listed(directory: str) -> list[tuple[int, str]]:
    """(base offset, path) of the live segments of a partition directory, by their names, oldest first."""
    parsed = [(names.parse_name(name), name) for name in os.listdir(directory)]
    return sorted((key[0], os.path.join(directory, name)) for key, name in parsed if key and key[1] == names.LOG)


def picture(parts: Sequence[tuple[int, Sequence[float]]], cells: int) -> list[float]:
    """Join parts, each given as (bytes, heat), into one row of cells."""
    bytes_in_all = sum(size for size, _ in parts)
    if bytes_in_all == 0:
        return []
    row, at = [0.0] * cells, 0.0
    for size, warmth in parts:
        for share in warmth:
            width = size / len(warmth) * cells / bytes_in_all
            _spread(row, at, at + width, share)
            at += width
    return [min(share, 1.0) for share in row]


def _spread(row: list[float], low: float, high: float, share: float) -> None:
    """Add share to the cells of [low, high), weighted by how much of each cell the range covers."""
    for cell in range(int(low), min(len(row), int(high) + 1)):
        row[cell] += share * max(min(high, cell + 1) - max(low, cell), 0.0)
