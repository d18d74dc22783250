"""Caches data that is expensive to read again: bytes of the log, bounded in size and age.

The page cache serves stored bytes better than a cache here could. This one holds what the page cache cannot: bytes read
with O_DIRECT, and decompressed records.

  K1  never more than `bytes_max` bytes; the least recently used value is evicted first, and a value older than
      `age_max_ms` counts as missing
  K2  a value's key contains all that the value depends on. Code that changes the source data calls clear() or
      retain()

Any thread. Values are shared and must not be changed. Time is the injected clock's. In a signal handler that interrupts
one of these calls, find() returns None, keep() stores nothing, and the other methods raise ReentrantCall.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Any

from klog.clock import Clock
from klog.locks import OwnLock
from klog.values import NamedTuple


class CacheCounts(NamedTuple):
    """Statistics of a cache since it was made, and what it holds."""

    hits: int
    misses: int
    evictions: int
    expirations: int
    entries: int
    bytes: int


class ReadCache:
    """Values by (owner, key). bytes_max: of all values together. age_max_ms: milliseconds."""

    def __init__(self, bytes_max: int, age_max_ms: int, clock: Clock) -> None:
        self._bytes_max = bytes_max
        self._age_max = age_max_ms / 1000
        self._clock = clock
        self._lock = OwnLock()  # guards all fields below
        self._held: OrderedDict[tuple[Hashable, Hashable], tuple[Any, int, float]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = self._expirations = 0

    def find(self, owner: Hashable, key: Hashable) -> Any:
        """Return the value, or None if it is missing."""
        name = (owner, key)
        if self._lock._is_owned():
            return None
        with self._lock:
            found = self._held.get(name)
            if found is not None and self._clock.monotonic() - found[2] >= self._age_max:
                self._take_out_locked(name)
                self._expirations += 1
                found = None
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            self._held.move_to_end(name)
            return found[0]

    def keep(self, owner: Hashable, key: Hashable, value: Any, size: int) -> None:
        """Store a value of `size` bytes, unless it is larger than the cache."""
        if size > self._bytes_max or self._lock._is_owned():
            return
        with self._lock:
            self._take_out_locked((owner, key))
            self._held[owner, key] = value, size, self._clock.monotonic()
            self._bytes += size
            while self._bytes > self._bytes_max:
                self._take_out_locked(next(iter(self._held)))
                self._evictions += 1

    def retain(self, owners: Collection[Hashable]) -> None:
        """Forget the values of all other owners."""
        with self._lock:
            for name in [name for name in self._held if name[0] not in owners]:
                self._take_out_locked(name)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def counts(self) -> CacheCounts:
        """Return its statistics."""
        with self._lock:
            return CacheCounts(
                self._hits, self._misses, self._evictions, self._expirations, len(self._held), self._bytes
            )

    def _take_out_locked(self, name: tuple[Hashable, Hashable]) -> None:
        found = self._held.pop(name, None)
        if found is not None:
            self._bytes -= found[1]
