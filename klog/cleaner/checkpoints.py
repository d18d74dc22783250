"""Where the dirty part of a log begins, as stored in the log.dir; klog.log.directory.cleaner_offsets handles the
file."""

from __future__ import annotations

import os

from klog.cleaner.swap import check_uncut
from klog.disk import is_final
from klog.log.core import LogCore
from klog.log.directory import cleaner_offsets
from klog.log.write.failures import guard


def read_first_dirty(log: LogCore) -> int | None:
    """Return where the last cleaning of a log has ended; None if unknown."""
    return cleaner_offsets.read(os.path.dirname(log.path)).get((log.topic, log.partition))


def write_first_dirty(log: LogCore, offset: int, rewritten: int) -> None:
    """Store where the next cleaning of a log begins, durably. The caller holds the log's cleaning state.

    The log start is stored first. A crash that lost it would bring records back below it, which then count as clean,
    although no cleaning has read them: a deleted value would outlive its tombstone.

    rewritten: log.rewritten from before the dirty part was computed. Raises Overtaken if the log was truncated since
    then, by a progress callback or a signal handler: what replaced the removed records is not clean. So all of it runs
    under the log's lock. If the disk is full, what was cleaned stays so and the next cleaning is longer; if the disk
    fails, the log goes offline.
    """
    with log.lock:
        log.check_idle("a compaction")
        check_uncut(log, rewritten)
        guard(log, lambda: _store(log, offset), lambda e: not is_final(e))


def _store(log: LogCore, offset: int) -> None:
    if log.directory.owner is not None:
        log.directory.owner.store_starts((log,))
    cleaner_offsets.write(log.options.files, os.path.dirname(log.path), (log.topic, log.partition), offset)
