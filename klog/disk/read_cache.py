"""What was read from a log and is dear to read again: bytes of the log's own, bounded, with an age.

The page cache serves stored bytes better than any cache here could. This one holds what it cannot: what a reader with
O_DIRECT has fetched from the disk, and what was decompressed.

  K1  never more than `bytes_max` bytes; the value used longest ago leaves first, one older than `age_max_ms` counts as
      not there
  K2  a value is kept under all that it depends on. Whoever changes what it was made of calls clear(), or
      retain()

Any thread. Values are shared: nobody changes one. Time is the injected clock's. A signal's handler that interrupts one
of these calls finds nothing here and leaves nothing; ReentrantCall, where it wants something forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Any, NamedTuple

from klog.clock import Clock
from klog.locks import OwnLock


class CacheCounts(NamedTuple):
    """What a cache has done since it was made, and what it holds."""

    hits: int
    misses: int
    evictions: int
    expirations: int
    entries: int
    bytes: int


class ReadCache:
    """Values by (owner, key)."""

    def __init__(self, bytes_max: int, age_max_ms: int, clock: Clock) -> None:
        self._bytes_max = bytes_max
        self._age_max = age_max_ms / 1000
        self._clock = clock
        self._lock = OwnLock()  # guards all below
        self._held: OrderedDict[tuple[Hashable, Hashable], tuple[Any, int, float]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = self._expirations = 0

    def find(self, owner: Hashable, key: Hashable) -> Any:
        """The value, None if it is not there."""
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
        """Hold a value of `size` bytes; one that is larger than the cache is not held."""
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
        """Forget what is kept for anybody else."""
        with self._lock:
            for name in [name for name in self._held if name[0] not in owners]:
                self._take_out_locked(name)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def counts(self) -> CacheCounts:
        """Its statistics."""
        with self._lock:
            return CacheCounts(
                self._hits, self._misses, self._evictions, self._expirations, len(self._held), self._bytes
            )

    def _take_out_locked(self, name: tuple[Hashable, Hashable]) -> None:
        found = self._held.pop(name, None)
        if found is not None:
            self._bytes -= found[1]
