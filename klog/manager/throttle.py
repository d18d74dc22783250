"""Limits how fast cleaners read and write: bytes a second of all threads together, in windows of 300 ms.

Each thread counts what it has read or written. When a window has ended and its bytes would have taken longer at the
wanted rate, every thread that counts waits for the rest of that time; then the next window begins. So bursts pass, and
the mean over a second or more is the wanted rate. Kafka: org.apache.kafka.common.utils.Throttler, where the other
threads wait for its lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

WINDOW_SECONDS = 0.3


class Throttle:
    """Any thread. It does not wait itself: the caller does, and may have a reason to end the wait early."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._rate = bytes_per_second
        self._counted = 0.0
        self._begun = self._until = monotonic()

    @property
    def rate(self) -> float:
        """Bytes a second. Setting it begins a new window, without any waiting times left."""
        return self._rate

    @rate.setter
    def rate(self, bytes_per_second: float) -> None:
        with self._mutex:
            self._rate = bytes_per_second
            self._counted = 0.0
            self._begun = self._until = self._monotonic()

    def count(self, size: int) -> float:
        """Count bytes that were read or written. Returns for how many seconds the caller must wait now."""
        with self._mutex:
            now = self._monotonic()
            self._counted += size
            elapsed = now - self._begun
            if now >= self._until and elapsed >= WINDOW_SECONDS:
                due = self._counted / self._rate if self._rate > 0 else float("inf")
                self._begun = self._until = now + max(due - elapsed, 0.0)
                self._counted = 0.0
            return max(self._until - now, 0.0)
