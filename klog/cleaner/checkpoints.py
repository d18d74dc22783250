"""Where the dirty part of a log begins, as the log.dir keeps it: klog.log.directory.cleaner_offsets has the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from klog.cleaner.swap import check_uncut
from klog.disk import is_final
from klog.log.directory import cleaner_offsets
from klog.log.write import failures

if TYPE_CHECKING:
    from klog.log import Log


def read_first_dirty(log: Log) -> int | None:
    """Where the last cleaning of a log has ended; None where there was none, or nobody knows."""
    return cleaner_offsets.read(os.path.dirname(log.path)).get((log.topic, log.partition))


def write_first_dirty(log: Log, offset: int, rewritten: int) -> None:
    """The next cleaning of a log begins here. Durable when it returns. Who has the turn at the log's segments calls.

    rewritten: log._rewritten from before it was asked where its dirty part begins. Overtaken where the log was cut
    since then, by who hears of the progress or by a signal's handler: what came in place of what was cut is not clean.
    Hence all of it under the log's lock. Where there is no room for the file, what has been cleaned stays so, and the
    next cleaning is longer; where the disk fails, the log goes offline.
    """
    with log._lock:
        log._check_idle("a compaction")
        check_uncut(log, rewritten)
        files, log_dir, key = log._options.files, os.path.dirname(log.path), (log.topic, log.partition)
        failures.guard(log, lambda: cleaner_offsets.write(files, log_dir, key, offset), lambda e: not is_final(e))
