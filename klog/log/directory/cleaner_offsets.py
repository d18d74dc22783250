"""cleaner-offset-checkpoint of a log.dir: for each compacted log, where its dirty part begins.

Whoever writes it reads it anew: a manager, a Log.open beside it and a broker before them may all have lines there. An
offset that is too low costs a longer round; one that is too high would leave old values in the log, and bring deleted
ones back, so it is lowered where a log is cut or deleted, and by a load that ends below it. Kafka:
LogCleanerManager.updateCheckpoints.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from klog.disk import Files, directory_lock
from klog.errors import CorruptCheckpoint
from klog.log.directory import checkpoint
from klog.log.directory.checkpoint import Partition


def read(log_dir: str) -> dict[Partition, int]:
    """All of them; none where nobody can read the file."""
    with contextlib.suppress(CorruptCheckpoint):
        return checkpoint.read_offsets(os.path.join(log_dir, checkpoint.CLEANER))
    return {}


def write(files: Files, log_dir: str, key: Partition, offset: int) -> None:
    """The next cleaning of a log begins here. Durable when it returns."""
    update(files, log_dir, {key: offset})


def update(files: Files, log_dir: str, offsets: Mapping[Partition, int]) -> None:
    """The same of several logs, at once."""
    with directory_lock(log_dir):
        _replace(files, log_dir, {**read(log_dir), **offsets})


def move(files: Files, source: str, target: str, key: Partition) -> None:
    """A log is about to appear in another log.dir, cleaned as far as it is. Its old place forgets it by itself."""
    offset = read(source).get(key)
    with directory_lock(target):
        there = read(target)
        moved = {other: value for other, value in there.items() if other != key}
        if offset is not None:
            moved[key] = offset
        if moved != there:
            _replace(files, target, moved)


def lower(files: Files, log_dir: str, key: Partition, bound: int) -> None:
    """A log is about to be cut, or a load has cut it: what was clean beyond the cut is not any more. Durable when it
    returns; where nothing lies beyond it, nothing is written."""
    if read(log_dir).get(key, 0) > bound:
        with directory_lock(log_dir):
            offsets = read(log_dir)
            _replace(files, log_dir, {**offsets, key: min(offsets.get(key, 0), bound)})


def forget(files: Files, log_dir: str, gone: Callable[[Partition], bool]) -> None:
    """Logs are no longer here; one that gets such a name again has not been cleaned."""
    if any(map(gone, read(log_dir))):
        with directory_lock(log_dir):
            _replace(files, log_dir, {key: offset for key, offset in read(log_dir).items() if not gone(key)})


def _replace(files: Files, log_dir: str, offsets: dict[Partition, int]) -> None:
    checkpoint.write_offsets(files, os.path.join(log_dir, checkpoint.CLEANER), offsets)
