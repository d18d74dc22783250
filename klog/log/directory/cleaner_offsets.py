"""cleaner-offset-checkpoint of a log.dir: for each compacted log the offset where its dirty part begins.

Each writer reads the file first, since managers, Log.open and brokers share it. An offset that is too low makes a
cleaning longer. One that is too high would leave old values in the log and bring deleted ones back. So it is lowered
when a log is truncated or deleted, and by a load that ends below it. Kafka: LogCleanerManager.updateCheckpoints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from klog.disk import Files, directory_lock
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import Partition


def read(log_dir: str) -> dict[Partition, int]:
    """All offsets of the file; none if it is missing or invalid."""
    return dict(checkpoint.known_offsets(os.path.join(log_dir, checkpoint.CLEANER)))


def write(files: Files, log_dir: str, key: Partition, offset: int) -> None:
    """Set the offset where the next cleaning of a log begins. Durable when it returns."""
    update(files, log_dir, {key: offset})


def update(files: Files, log_dir: str, offsets: Mapping[Partition, int]) -> None:
    """Set the offsets of several logs with one write."""
    with directory_lock(log_dir):
        _replace(files, log_dir, {**read(log_dir), **offsets})


def move(files: Files, source: str, target: str, key: Partition) -> None:
    """Copy the offset of a log to the log.dir to which it is about to move. forget() removes it from the source."""
    offset = read(source).get(key)
    with directory_lock(target):
        there = read(target)
        moved = {other: value for other, value in there.items() if other != key}
        if offset is not None:
            moved[key] = offset
        if moved != there:
            _replace(files, target, moved)


def lower(files: Files, log_dir: str, key: Partition, bound: int) -> None:
    """Lower the offset of a log to `bound`, before a truncation or after a load that truncated it.

    Durable when it returns. Writes nothing if the offset is not above the bound.
    """
    if read(log_dir).get(key, 0) > bound:
        with directory_lock(log_dir):
            offsets = read(log_dir)
            _replace(files, log_dir, {**offsets, key: min(offsets.get(key, 0), bound)})


def forget(files: Files, log_dir: str, gone: Callable[[Partition], bool]) -> None:
    """Remove the offsets of logs that are gone: a new log of the same name is not cleaned."""
    if any(map(gone, read(log_dir))):
        with directory_lock(log_dir):
            _replace(files, log_dir, {key: offset for key, offset in read(log_dir).items() if not gone(key)})


def _replace(files: Files, log_dir: str, offsets: dict[Partition, int]) -> None:
    checkpoint.write_offsets(files, os.path.join(log_dir, checkpoint.CLEANER), offsets)
