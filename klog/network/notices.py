"""Log lines about peers: at most one a second for each kind, so that a hostile peer cannot fill the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.clock import Clock
from klog.logger import logger_of

if TYPE_CHECKING:
    import logging

_log = logger_of("network")
_SECONDS = 1.0


class Notices:
    """Any thread. Two threads may log the same kind within one second."""

    def __init__(self, clock: Clock, log: logging.Logger | None = None) -> None:
        """log: that of the package which notices; klog.network without it."""
        self._clock = clock
        self._log = log or _log
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def warn(self, event: str, **values: object) -> None:
        """Log what a peer did wrong."""
        if self._may_log(event):
            text = " ".join(f"{name}={value}" for name, value in values.items())
            self._log.warning("event=%s %s left_out=%d", event, text, self._left_out.pop(event, 0))

    def error(self, event: str, error: BaseException, **values: object) -> None:
        """Log an exception of klog or of a handler, with its traceback."""
        if self._may_log(event):
            text = " ".join(f"{name}={value}" for name, value in values.items())
            self._log.error("event=%s %s left_out=%d", event, text, self._left_out.pop(event, 0), exc_info=error)

    def _may_log(self, event: str) -> bool:
        now = self._clock.monotonic()
        if now < self._next.get(event, 0.0):
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return False
        self._next[event] = now + _SECONDS
        return True
