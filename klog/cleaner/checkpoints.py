"""cleaner-offset-checkpoint of a log.dir: where the dirty part of each log begins. Kafka: LogCleanerManager."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from klog.disk import directory_turn
from klog.errors import CorruptCheckpoint
from klog.log import checkpoint

if TYPE_CHECKING:
    from klog.log import Log


def _read(path: str) -> dict[checkpoint.Partition, int]:
    with contextlib.suppress(CorruptCheckpoint):  # it costs a longer round, no record
        return checkpoint.read_offsets(path)
    return {}


def read_first_dirty(log: Log) -> int | None:
    """Where the last cleaning of a log has ended; None where there was none, or nobody knows."""
    return _read(os.path.join(os.path.dirname(log.path), checkpoint.CLEANER)).get((log.topic, log.partition))


def write_first_dirty(log: Log, offset: int) -> None:
    """The next cleaning of a log begins here. Durable when it returns."""
    parent = os.path.dirname(log.path)
    path = os.path.join(parent, checkpoint.CLEANER)
    with directory_turn(parent):
        checkpoint.write_offsets(log._options.files, path, {**_read(path), (log.topic, log.partition): offset})
