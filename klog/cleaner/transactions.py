"""Transactions in one pass of the cleaner: which are aborted, and which markers are no longer needed.

  X1  data of an aborted transaction is removed at once; its marker and its index entry stay if the pass has seen a
      batch of it, even one that is being removed: a reader may still use the old segment
  X2  a commit marker stays if the pass has seen a batch of its transaction
  X3  a marker that is not needed gets a delete horizon first, and is removed in a pass at or after it
  X4  an entry counts up to its last offset, also if its marker is missing: later batches are of other transactions

The aborted transactions of a part of the log are expected before its batches, which come in the order of offsets. Pure,
but for the call that finds them. Kafka: CleanedTransactionMetadata.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from klog.segment import AbortedTransaction

ABORT, COMMIT, EMPTY = 0, 1, -1


class CleanedTransactions:
    """State of one pass over a log, or over a part of it."""

    def __init__(self) -> None:
        self.retained: list[AbortedTransaction] = []  # index entries that the cleaned segment needs
        self._coming: list[tuple[int, int, AbortedTransaction]] = []  # a heap, by first offset and arrival
        self._arrived = 0
        self._expected: Callable[[], Iterable[AbortedTransaction]] | None = None
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # producer: (entry, has the pass seen a batch?)
        self._committed: set[int] = set()  # producers in a transaction that is not aborted

    def expect(self, find: Callable[[], Iterable[AbortedTransaction]]) -> None:
        """The next batches may have transactions: find() those aborted at the first one. It replaces an expectation
        that no batch has needed."""
        self._expected = find

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that touch the next batches. The same one may be added again."""
        for entry in aborted:
            heapq.heappush(self._coming, (entry.first_offset, self._arrived, entry))
            self._arrived += 1

    def _begin(self, offset: int) -> None:
        """Make the transactions that begin at or below an offset current. Only needed at transactional batches and
        markers."""
        if self._expected is not None:
            find, self._expected = self._expected, None
            self.add(find())
        while self._coming and self._coming[0][0] <= offset:
            entry = heapq.heappop(self._coming)[2]
            known = self._aborted.get(entry.producer_id)
            if known is None or known[0].last_offset < entry.first_offset:  # X4
                self._aborted[entry.producer_id] = entry, False

    def on_batch(self, producer_id: int, last_offset: int) -> bool:
        """Handle a transactional data batch. Returns True if its transaction was aborted."""
        self._begin(last_offset)
        found = self._aborted.get(producer_id)
        if found is None or found[0].last_offset < last_offset:  # X4
            self._committed.add(producer_id)
            return False
        self._aborted[producer_id] = found[0], True
        return True

    def on_control(self, producer_id: int, last_offset: int, control_type: int) -> bool:
        """Handle a control batch; control_type is EMPTY if it has no records. Returns True if its transaction does not
        need it."""
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
        """Return the index entries of the segment that has just been written."""
        taken, self.retained = self.retained, []
        return taken
