"""Logs that wait to be flushed: the appender adds a log, and a background round flushes all that wait.

A log is in the queue once, however often it is added. A round takes the logs of each log directory together and writes
its recovery points once after them. A failure is final for its directory and reported; the log is not added again.
Appends go on during a flush, so a long round makes the next one larger, and no caller waits for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from klog.locks import OwnLock

if TYPE_CHECKING:
    from klog.log.core import LogCore
    from klog.scheduler import Scheduler


class FlushQueue:
    """The flush queue of one manager. Any thread; takes no lock of a log. flush: called with the logs of a round."""

    def __init__(self, scheduler: Scheduler, flush: Callable[[list[LogCore]], object]) -> None:
        self._scheduler = scheduler
        self._flush = flush
        self._mutex = OwnLock()
        self._waiting: weakref.WeakSet[LogCore] = weakref.WeakSet()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def is_inside(self) -> bool:
        """True if this thread is inside add() or run()."""
        return self._mutex._is_owned()

    def add(self, log: LogCore) -> bool:
        """Flush the log in the next round. Returns False if there is no thread for that."""
        if not self._scheduler.running:
            return False
        with self._mutex:
            self._waiting.add(log)
            begins, self._scheduled = not self._scheduled, True
        if begins:
            self._scheduler.schedule("klog-flush-queue", self.run, 1)
        return True

    def run(self) -> None:
        """Flush all waiting logs."""
        with self._mutex:
            logs, self._waiting, self._scheduled = list(self._waiting), weakref.WeakSet(), False
        self._flush(logs)
