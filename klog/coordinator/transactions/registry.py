"""Registry: the transactional ids that the coordinator knows, each with a lock of its own.

An Entry's metadata is an object that never changes, so any thread may read it; it is replaced under the entry's lock.
The registry's lock is never held while one takes an entry's. An entry whose id was forgotten is `gone`: a thread that
waited for its lock looks for a new one.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from klog.coordinator.transactions.metadata import Partition, TransactionMetadata


class Entry:
    """One transactional id. Its methods under `lock`; any thread reads metadata, which is None until its first record
    is in the log."""

    __slots__ = ("_unmarked", "gone", "lock", "metadata")

    def __init__(self) -> None:
        self.lock = threading.RLock()  # an append inside TransactionCoordinator.hold() may verify its partition
        self.metadata: TransactionMetadata | None = None
        self.gone = False
        self._unmarked: set[Partition] = set()

    def become(self, metadata: TransactionMetadata) -> None:
        """Replace the metadata, whose record is in the log."""
        self._unmarked = set(metadata.partitions) if metadata.is_prepared else set()
        self.metadata = metadata

    def unmarked(self) -> list[Partition]:
        """The partitions of a prepared transaction that still need a marker, sorted."""
        return sorted(self._unmarked)

    def marked(self, partition: Partition) -> None:
        """Note that a partition has its marker."""
        self._unmarked.discard(partition)

    def forget(self) -> None:
        """The id has a tombstone in the log. The registry drops the entry when its lock is released."""
        self.metadata = None
        self._unmarked = set()

    def leave(self) -> bool:
        """Is there nothing to keep? Then it is gone."""
        self.gone = self.metadata is None
        return self.gone


class Registry:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}

    def fill(self, found: dict[str, TransactionMetadata]) -> None:
        """Begin with the metadata that a load found."""
        with self._lock:
            self._entries = {name: Entry() for name in found}
        for name, entry in self._entries.items():
            entry.become(found[name])

    def get(self, transactional_id: str) -> Entry | None:
        """The entry of an id; without a lock."""
        return self._entries.get(transactional_id)

    def names(self) -> list[str]:
        """All ids."""
        with self._lock:
            return list(self._entries)

    def all(self) -> list[TransactionMetadata]:
        """The metadata of all ids."""
        with self._lock:
            entries = list(self._entries.values())
        return [metadata for entry in entries if (metadata := entry.metadata) is not None]

    @contextmanager
    def locked(self, transactional_id: str, *, create: bool = False) -> Iterator[Entry | None]:
        """Hold the entry of an id; None if there is none. create: make one. An entry that has no metadata at the end
        is forgotten."""
        while True:
            entry = self._entries.get(transactional_id)
            if entry is None:
                if not create:
                    yield None
                    return
                with self._lock:
                    entry = self._entries.setdefault(transactional_id, Entry())
            with entry.lock:
                if entry.gone:
                    continue
                try:
                    yield entry
                finally:
                    if entry.leave():
                        with self._lock:
                            del self._entries[transactional_id]
                return
