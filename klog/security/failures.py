"""How often authentication has failed, by user and address. It slows the guessing of passwords."""

from __future__ import annotations

import threading
from collections import OrderedDict

from klog.clock import Clock

_KEYS_MAX = 10_000
_USER_CHARACTERS_MAX = 256  # of a name that is remembered
_ADDRESS_FACTOR = 10


class FailureLimits:
    """After `limit` failures of a user from an address, or ten times as many from an address, within `window_ms`, every
    authentication of theirs fails until the window ends. 0: no limit.

    Any thread; guarded by `_lock`: `_failures`. Remembers 10,000 of them, the oldest is dropped.
    """

    def __init__(self, limit: int, window_ms: int, clock: Clock) -> None:
        self._limit = limit
        self._seconds = window_ms / 1000
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()  # (start of the window, number)

    def exceeded(self, user: str, address: str) -> bool:
        """Has this user failed too often from this address, or the address itself?"""
        if not self._limit:
            return False
        now = self._clock.monotonic()
        with self._lock:
            of_user = self._count_locked((address, user[:_USER_CHARACTERS_MAX]), now)
            of_address = self._count_locked((address,), now)
        return of_user >= self._limit or of_address >= self._limit * _ADDRESS_FACTOR

    def failed(self, user: str, address: str) -> None:
        """Count a failure."""
        if not self._limit:
            return
        now = self._clock.monotonic()
        with self._lock:
            for key in ((address, user[:_USER_CHARACTERS_MAX]), (address,)):
                count = self._count_locked(key, now)
                start = self._failures[key][0] if count else now
                self._failures[key] = start, count + 1
                self._failures.move_to_end(key)
            while len(self._failures) > _KEYS_MAX:
                self._failures.popitem(last=False)

    def _count_locked(self, key: tuple[str, ...], now: float) -> int:
        start, count = self._failures.get(key, (now, 0))
        return count if now - start < self._seconds else 0
