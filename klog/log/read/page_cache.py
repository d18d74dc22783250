"""What of a log is in the page cache, segment by segment, and how it is spread over them.

Only `.log` files count: indexes are a thousandth of them, and mapped by whoever searches. Nothing is read, so that a
look changes nothing of what it looks at; a segment that retention takes away meanwhile is left out. A look costs two
or three system calls a segment, and for each one that is partly cached as many again as its picture has cells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from klog.disk import Files, LogFile
from klog.disk.residency import PAGE, Residency, heat, residency, total
from klog.segment import names

_STEP = 64  # segments between two calls of whoever watches


@dataclass(frozen=True, slots=True)
class SegmentPageCache:
    """One segment's `.log`. heat: of each of its equal parts, which share is cached (0 cold, 1 hot); empty unless
    asked for."""

    base_offset: int
    path: str
    residency: Residency
    heat: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LogPageCache:
    """One partition, oldest segment first, and all of them together."""

    topic: str
    partition: int
    path: str
    residency: Residency
    segments: tuple[SegmentPageCache, ...]

    def picture(self, cells: int) -> list[float]:
        """The whole log in so many equal parts of its bytes: which share of each is cached. Needs heat."""
        return picture([(segment.residency.size, segment.heat) for segment in self.segments], cells)


def look(
    files: Files,
    topic: str,
    partition: int,
    directory: str,
    segments: Iterable[tuple[int, str]],
    cells: int = 0,
    looked: Callable[[int], None] = lambda count: None,
    odd: Callable[[str, OSError], None] | None = None,
) -> LogPageCache:
    """A partition's segments, given as (base offset, path of `.log`); cells: how fine their heat is, 0 for none. looked
    is told of every few segments; odd of each file that cannot be looked at, and is left out: without it that raises
    PermissionError, OSError."""
    found, told = [], 0
    for number, (base_offset, path) in enumerate(segments):
        try:
            found.append(_segment(files, base_offset, path, cells))
        except FileNotFoundError:
            continue
        except OSError as error:
            if odd is None:
                raise
            odd(path, error)
        if number + 1 - told == _STEP:
            looked(number + 1 - told)
            told = number + 1
    return LogPageCache(topic, partition, directory, total(segment.residency for segment in found), tuple(found))


def _segment(files: Files, base_offset: int, path: str, cells: int) -> SegmentPageCache:
    file = files.open(path)  # not a handle that somebody keeps: a look must not push out what readers use
    try:
        whole = residency(file)
        return SegmentPageCache(base_offset, path, whole, _heat(file, whole, cells) if cells else ())
    finally:
        file.close()


def _heat(file: LogFile, whole: Residency, cells: int) -> tuple[float, ...]:
    """Most segments are all hot or all cold, and then every part of them is."""
    if whole.cached_bytes in (0, whole.memory_bytes):
        return (whole.share,) * min(cells, whole.memory_bytes // PAGE)
    return tuple(heat(file, cells))


def listed(directory: str) -> list[tuple[int, str]]:
    """(base offset, path) of the live segments of a partition directory, by their names, oldest first."""
    parsed = [(names.parse_name(name), name) for name in os.listdir(directory)]
    return sorted((key[0], os.path.join(directory, name)) for key, name in parsed if key and key[1] == names.LOG)


def picture(parts: Sequence[tuple[int, Sequence[float]]], cells: int) -> list[float]:
    """Parts of so many bytes, each with its heat in equal parts, one after the other as one row of cells."""
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
    """Add share to the cells of [low, high), to each as much of it as it has of them."""
    for cell in range(int(low), min(len(row), int(high) + 1)):
        row[cell] += share * max(min(high, cell + 1) - max(low, cell), 0.0)
