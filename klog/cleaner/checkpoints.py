"""Where the dirty part of a log begins, as the log.dir remembers it: klog.log.cleaner_offsets has the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.log import cleaner_offsets

if TYPE_CHECKING:
    from klog.log import Log


def read_first_dirty(log: Log) -> int | None:
    """Where the last cleaning of a log has ended; None where there was none, or nobody knows."""
    return cleaner_offsets.read(os.path.dirname(log.path)).get((log.topic, log.partition))


def write_first_dirty(log: Log, offset: int) -> None:
    """The next cleaning of a log begins here. Durable when it returns."""
    cleaner_offsets.write(log._options.files, os.path.dirname(log.path), (log.topic, log.partition), offset)
