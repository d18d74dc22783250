"""Where the dirty part of a log begins, as the log.dir remembers it: klog.log.cleaner_offsets has the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.disk import is_final
from klog.log import cleaner_offsets, failures

if TYPE_CHECKING:
    from klog.log import Log


def read_first_dirty(log: Log) -> int | None:
    """Where the last cleaning of a log has ended; None where there was none, or nobody knows."""
    return cleaner_offsets.read(os.path.dirname(log.path)).get((log.topic, log.partition))


def write_first_dirty(log: Log, offset: int) -> None:
    """The next cleaning of a log begins here. Durable when it returns. Where there is no room for that, what has been
    cleaned stays so, and the next cleaning is longer; where the disk fails, the log goes offline."""
    files, log_dir, key = log._options.files, os.path.dirname(log.path), (log.topic, log.partition)
    failures.guard(log, lambda: cleaner_offsets.write(files, log_dir, key, offset), lambda error: not is_final(error))
