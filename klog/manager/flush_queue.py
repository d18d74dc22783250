"""Logs that wait to be flushed: whoever appends puts a log here, a round of the background flushes all that wait.

A log is here once, however often it is put in. A round takes each log directory's logs together, with one write of its
recovery points behind them; what fails is final for its directory, reported, and not put in again. Appends go on during
a flush, so a round that takes long makes the next one larger, and nobody waits for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from klog.locks import OwnLock
from klog.scheduler import Scheduler

if TYPE_CHECKING:
    from klog.log.log import Log


class FlushQueue:
    """Of one manager. Any thread; takes no lock of a log's. flush: what a round does with the logs that it takes."""

    def __init__(self, scheduler: Scheduler, flush: Callable[[list[Log]], object]) -> None:
        self._scheduler = scheduler
        self._flush = flush
        self._mutex = OwnLock()
        self._waiting: weakref.WeakSet[Log] = weakref.WeakSet()
        self._scheduled = False
        self.rounds = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def is_inside(self) -> bool:
        """Is this thread in the middle of a call?"""
        return self._mutex._is_owned()

    def add(self, log: Log) -> bool:
        """Flush it in the next round; False where there is no thread for that."""
        if not self._scheduler.running:
            return False
        with self._mutex:
            self._waiting.add(log)
            begins, self._scheduled = not self._scheduled, True
        if begins:
            self._scheduler.schedule("klog-flush-queue", self.run, 1)
        return True

    def run(self) -> None:
        """One round."""
        with self._mutex:
            logs, self._waiting, self._scheduled = list(self._waiting), weakref.WeakSet(), False
        self.rounds += 1
        self._flush(logs)
