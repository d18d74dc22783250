"""The partitions of log.dirs and their batches, read from the files without a Log, also in a damaged directory.

partitions(paths)       each partition directory of log.dirs, or a partition directory itself
items(path)             every item of its segments in order (batches.py), past damage
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import TypeVar

from klog import arguments
from klog.disk import check_directory, is_directory
from klog.errors import CorruptData, NewerFormat
from klog.inspect.batches import Broken, Found, Item, scan
from klog.inspect.entries import ProducerEntry, parse_offset_index, parse_snapshot
from klog.inspect.files import (
    ReadOnlyFile,
    check_log_dir,
    classify,
    is_partition_directory,
    moved_name,
    names_in,
    partition_name,
    read_small,
)
from klog.log.staged.layout import holds_only_staging
from klog.values import NamedTuple

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
T = TypeVar("T")
G = TypeVar("G")
LOOKS_MAX = 10  # a busy cleaner removes files several times a second
SUFFIXES = {"log": ".log", "index": ".index", "snapshot": ".snapshot"}


class Located(NamedTuple):
    """A partition and its directory."""

    topic: str
    partition: int
    path: str


def named(paths: Paths) -> list[str]:
    """Return the directories of an argument `paths`: one or several. Raises TypeError, ValueError, OSError."""
    return list(map(check_directory, arguments.log_dirs("paths", paths)))


def partitions(paths: Iterable[str]) -> list[Located]:
    """Return the partitions in log.dirs, by topic and number. Moved and deleted ones are left out, and so is the
    original of one that a move has left in two log.dirs. Raises OSError."""
    found = []
    for path in paths:
        check_log_dir(path)
        if is_partition_directory(path):
            name = partition_name(os.path.basename(os.path.abspath(path)))
            found.append(Located(*(name or (os.path.basename(os.path.abspath(path)), 0)), path))
            continue
        for name_here in names_in(path):
            whole = os.path.join(path, name_here)
            name = partition_name(name_here)
            if name is None or moved_name(name_here) or not is_directory(whole, follow_symlinks=False):
                continue
            if not holds_only_staging(whole):
                found.append(Located(*name, whole))
    return _without_left_over(sorted(found))


def _without_left_over(found: list[Located]) -> list[Located]:
    left: set[str] = set()
    for _, same in groupby(found, lambda each: each[:2]):
        paths = [each.path for each in same]
        if len(paths) > 1:
            from klog.manager.move_note import left_over  # most directories need no manager

            with suppress(NewerFormat):
                left.update(left_over(paths))
    return [each for each in found if each.path not in left]


def bases(path: str) -> list[int]:
    """Return the base offsets of the segments, in order."""
    return _offsets(path, "log")


def _offsets(path: str, kind: str) -> list[int]:
    names = (name for name in names_in(path) if name.endswith(SUFFIXES[kind]))
    found = (what for what in map(classify, names) if what.kind == kind and what.leftover is None)
    return sorted(what.base_offset for what in found if what.base_offset is not None)


def segment_path(path: str, base: int, kind: str = "log") -> str:
    """Return the path of a segment's file."""
    return os.path.join(path, f"{base:020d}{SUFFIXES[kind]}")


def items(path: str, offset: int = 0) -> Iterator[tuple[str, Item]]:
    """Yield (path of the .log, item) of all segments from the one with the offset on. Raises CorruptData for a file
    that cannot be read."""
    found = bases(path)
    for number, base in enumerate(found):
        if number + 1 < len(found) and found[number + 1] <= offset:
            continue
        with ReadOnlyFile(segment_path(path, base), scan=True) as file:
            for item in scan(file):
                yield file.path, item


def settled(path: str, look: Callable[[], T], gone: G) -> T | G:
    """Return what look() finds in the directory of a partition. It looks again if a writer has removed files meanwhile;
    gone: the result where the whole directory is removed. Raises FileNotFoundError if files go all the time."""
    for left in reversed(range(LOOKS_MAX)):
        try:
            return look()
        except FileNotFoundError:
            if not is_directory(path):
                return gone
            if not left:
                raise
    raise AssertionError("unreachable")


def batch_with(path: str, offset: int) -> Found | None:
    """Return the batch that holds an offset; None if there is none. Reads from the index entry before it."""
    below = [base for base in bases(path) if base <= offset]
    if not below:
        return None
    with ReadOnlyFile(segment_path(path, below[-1])) as file:
        for item in scan(file, _position_before(path, below[-1], offset)):
            if isinstance(item, Found) and item.batch.next_offset > offset:
                return item if item.batch.base_offset <= offset else None
    return None


def _position_before(path: str, base: int, offset: int) -> int:
    try:
        entries = parse_offset_index(read_small(segment_path(path, base, "index")), base).entries
    except (CorruptData, OSError):
        return 0
    return max((entry.position for entry in entries if entry.offset < offset), default=0)


def newest_snapshot(path: str) -> tuple[int, list[ProducerEntry]]:
    """Return offset and producers of the newest producer snapshot that can be read; (0, []) without one."""
    for offset in reversed(_offsets(path, "snapshot")):
        file = segment_path(path, offset, "snapshot")
        try:
            return offset, parse_snapshot(read_small(file), file)
        except (CorruptData, OSError):
            continue
    return 0, []


def damage_of(item: Item) -> CorruptData | None:
    """Return the error of an item; None if it is intact, or a torn tail, which a crash leaves."""
    if isinstance(item, Broken) and item.torn:
        return None
    return item.error
