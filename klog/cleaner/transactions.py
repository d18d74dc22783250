"""Transactions as one pass of the cleaner meets them: what was aborted, and which markers nobody needs any more.

  X1  data of an aborted transaction goes at once; its marker and its index entry stay while a batch of it was met in
      this pass, even one that is removed just now: a reader may still hold the old segment
  X2  a commit marker stays while a batch of its transaction was met in this pass
  X3  a marker that nobody needs gets a delete horizon first, and goes in a pass at or behind it

Pure. The aborted transactions of a stretch of the log are added before its batches are shown, in the order of offsets.
Kafka: CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from klog.segment import AbortedTransaction

ABORT, COMMIT, EMPTY = 0, 1, -1


class CleanedTransactions:
    """One pass over a log, or over a part of it from somewhere on."""

    def __init__(self) -> None:
        self.retained: list[AbortedTransaction] = []  # entries that the index of the cleaned segment needs
        self._coming: list[tuple[int, int, AbortedTransaction]] = []  # a heap, by first offset and arrival
        self._arrived = 0
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # producer: (entry, was a batch of it met?)
        self._committed: set[int] = set()  # producers in a transaction that is not aborted

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Aborted transactions that touch what comes next. One that is known already may come again."""
        for entry in aborted:
            heapq.heappush(self._coming, (entry.first_offset, self._arrived, entry))
            self._arrived += 1

    def _begin(self, offset: int) -> None:
        """Those that have begun at or below an offset are the ones that go on. To be asked at transactional batches and
        markers alone: others change nothing."""
        while self._coming and self._coming[0][0] <= offset:
            entry = heapq.heappop(self._coming)[2]
            self._aborted.setdefault(entry.producer_id, (entry, False))

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """A transactional data batch; was its transaction aborted?"""
        self._begin(last_offset)
        found = self._aborted.get(producer_id)
        if found is None:
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = found[0], True
        return True

    def on_control(self, producer_id: int, last_offset: int, control_type: int) -> bool:
        """A control batch of some type, EMPTY for one without records; can it go, as far as its transaction goes?"""
        self._begin(last_offset)
        if control_type == EMPTY:
            return True
        if control_type == ABORT:
            entry, met = self._aborted.pop(producer_id, (None, False))
            if entry is not None and met:
                self.retained.append(entry)
                return False
            return True
        if control_type == COMMIT:
            needed = producer_id in self._committed
            self._committed.discard(producer_id)
            return not needed
        return False

    def take_retained(self) -> list[AbortedTransaction]:
        """The entries of the segment that has just been written."""
        taken, self.retained = self.retained, []
        return taken
