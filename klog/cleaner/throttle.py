"""How fast cleaners may read and write: all threads together at most so many bytes a second, in windows of 300 ms.

What a thread has read or written is counted. Once a window is over, and what was counted in it would have taken longer
at the wanted rate, everybody who counts something waits for the rest of that time; then the next window begins. So a
burst passes, and the mean over a second or more is what was asked for. Kafka: org.apache.kafka.common.utils.Throttler,
which lets the others wait at its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

WINDOW_SECONDS = 0.3


class Throttle:
    """Any thread. Who waits, and how, is the caller's business: it may have a reason to end early."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._rate = bytes_per_second
        self._counted = 0.0
        self._begun = self._until = monotonic()

    @property
    def rate(self) -> float:
        """Bytes a second. Setting it begins a new window, and nobody owes anything."""
        return self._rate

    @rate.setter
    def rate(self, bytes_per_second: float) -> None:
        with self._mutex:
            self._rate = bytes_per_second
            self._counted = 0.0
            self._begun = self._until = self._monotonic()

    def count(self, size: int) -> float:
        """So many bytes were read or written; for how many seconds the caller is to wait now."""
        with self._mutex:
            now = self._monotonic()
            self._counted += size
            elapsed = now - self._begun
            if now >= self._until and elapsed >= WINDOW_SECONDS:
                due = self._counted / self._rate if self._rate > 0 else float("inf")
                self._begun = self._until = now + max(due - elapsed, 0.0)
                self._counted = 0.0
            return max(self._until - now, 0.0)
