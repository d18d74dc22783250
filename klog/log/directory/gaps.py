"""The file `klog-gaps`: intended gaps between two segments of a log. Kafka ignores the file.

A follower uses the offsets of its leader, and a truncation inside a batch leaves the log end above the last batch. A
roll there leaves offsets that no segment has. Without this file they would look like lost records after a crash. The
file is a checkpoint of pairs: the end of a segment, the base offset of the next. A missing or invalid file has none.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.disk import Files, read_whole
from klog.errors import CorruptCheckpoint
from klog.log.directory.checkpoint import format_lines, parse_lines
from klog.segment.names import GAPS

_DIGITS_MAX = 19


def read(directory: str) -> set[tuple[int, int]]:
    """{(end of a segment, base offset of the next one), ...}"""
    path = os.path.join(directory, GAPS)
    try:
        lines = parse_lines(read_whole(path), path, 2)
    except (FileNotFoundError, CorruptCheckpoint):
        return set()
    return {(int(end), int(base)) for end, base in lines if (end + base).isdecimal() and len(base) <= _DIGITS_MAX}


def note(files: Files, directory: str, end: int, base_offset: int, first: int) -> None:
    """Add the gap from the log end to base_offset durably. Removes gaps below `first`, and those that a truncation has
    left beyond the log end."""
    kept = {gap for gap in read(directory) if first <= gap[0] and gap[1] <= end}
    _write(files, directory, kept | {(end, base_offset)})


def cut(files: Files, directory: str, last: int) -> None:
    """Remove the gaps after the last segment that a truncation has left, durably: there may be records from now on.
    last: its base offset."""
    known = read(directory)
    kept = {gap for gap in known if gap[1] <= last}
    if kept != known:
        _write(files, directory, kept)


def add(files: Files, directory: str, gaps: Iterable[tuple[int, int]]) -> None:
    """Add gaps anywhere in the log durably."""
    _write(files, directory, read(directory).union(gaps))


def _write(files: Files, directory: str, gaps: Iterable[tuple[int, int]]) -> None:
    files.replace(os.path.join(directory, GAPS), format_lines(sorted(gaps)))
