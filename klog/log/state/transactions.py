"""The transactions of one log that bound what read_committed reads.

  ongoing        has data and no marker yet
  unreplicated   has a marker that is not below the high watermark yet

Each is identified by its first offset. The smallest of them is the first unstable offset. Under the log's lock.
Kafka: ProducerStateManager (ongoingTxns, unreplicatedTxns), TxnMetadata, CompletedTxn.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from klog.log.state._fields import TransactionFields
from klog.log.state.high_watermark_rules import OffsetMetadata
from klog.values import NamedTuple


class Transaction(NamedTuple):
    """A transaction that has begun. last_offset is that of its marker, -1 while there is none."""

    producer_id: int
    first: OffsetMetadata
    last_offset: int = -1

    @property
    def first_offset(self) -> int:
        """Offset of its first batch."""
        return self.first.offset


class CompletedTransaction(NamedTuple):
    """A transaction with data, ended by a marker at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class _ByFirstOffset:
    """Transactions sorted by first offset, and in the order of insertion.

    Ctrl-C during a change leaves at most an offset without a transaction. Readers skip it.
    """

    __slots__ = ("_of", "_offsets")

    def __init__(self, like: _ByFirstOffset | None = None) -> None:
        self._of: OrderedDict[int, Transaction] = OrderedDict() if like is None else like._of.copy()
        self._offsets: list[int] = [] if like is None else like._offsets.copy()

    def put(self, transaction: Transaction) -> None:
        first = transaction.first.offset
        at = bisect.bisect_left(self._offsets, first)
        if at == len(self._offsets) or self._offsets[at] != first:
            self._offsets.insert(at, first)
        self._of[first] = transaction

    def get(self, first: int) -> Transaction | None:
        return self._of.get(first)

    def drop(self, first: int) -> None:
        if self._of.pop(first, None) is not None:
            del self._offsets[bisect.bisect_left(self._offsets, first)]

    def least(self) -> Transaction | None:
        return next(self.all(), None)

    def all(self) -> Iterator[Transaction]:
        return (self._of[first] for first in self._offsets if first in self._of)

    def clear(self) -> None:
        self._of.clear()
        self._offsets.clear()

    def eldest(self) -> Transaction | None:
        return next(iter(self._of.values()), None)


class Transactions(TransactionFields):
    """The ongoing and unreplicated transactions of one log.

    first_unstable: first offset of the oldest of them, None if there is none. Any thread may read it.
    Markers are added in log order, so unreplicated transactions are in the order of their markers. like: begin with a
    copy of these.
    """

    __slots__ = ("_ongoing", "_unreplicated")

    def __init__(self, like: Transactions | None = None) -> None:
        self._ongoing: _ByFirstOffset = _ByFirstOffset(None if like is None else like._ongoing)
        self._unreplicated: _ByFirstOffset = _ByFirstOffset(None if like is None else like._unreplicated)
        self.first_unstable = None if like is None else like.first_unstable

    def clear(self) -> None:
        """Forget all of them."""
        self.first_unstable = None
        self._ongoing.clear()
        self._unreplicated.clear()

    def begin(self, transaction: Transaction) -> None:
        """Note a transaction whose first batch is in the log."""
        self._ongoing.put(transaction)
        self._changed()

    def complete(self, completed: CompletedTransaction) -> None:
        """Note a transaction whose marker is in the log. ValueError for one that is not ongoing."""
        begun = self._ongoing.get(completed.first_offset)
        if begun is None:
            raise ValueError(f"a transaction was completed that is not ongoing: {completed}")
        self._unreplicated.put(begun._replace(last_offset=completed.last_offset))
        self._ongoing.drop(completed.first_offset)
        self._changed()

    def take_back(self, begun: Iterable[Transaction], completed: Iterable[CompletedTransaction]) -> None:
        """Undo begin() and complete() of these, even if they were done only in part or not at all."""
        for ended in completed:
            found = self._unreplicated.get(ended.first_offset)
            if found is not None:
                self._ongoing.put(found._replace(last_offset=-1))
                self._unreplicated.drop(ended.first_offset)
        for transaction in begun:
            self._ongoing.drop(transaction.first_offset)
        self._changed()

    def take_unreplicated(self, other: Transactions) -> None:
        """Add the unreplicated transactions of another state of the log at the same offset."""
        both = {found.first.offset: found for found in (*other._unreplicated.all(), *self._unreplicated.all())}
        self._unreplicated.clear()
        for transaction in sorted(both.values(), key=lambda found: found.last_offset):
            self._unreplicated.put(transaction)
        self._changed()

    def forget_below(self, offset: int) -> None:
        """Forget transactions with markers below offset: they are replicated, or their records are deleted."""
        if self.first_unstable is not None:
            while (eldest := self._unreplicated.eldest()) is not None and eldest.last_offset < offset:
                self._unreplicated.drop(eldest.first_offset)
            self._changed()

    def stable_offset_after(self, completed: CompletedTransaction) -> int:
        """The last stable offset right after a marker, regardless of replication. Call it before complete().

        Transactions that begin after the marker in the same append do not count, so that the index of a follower
        equals that of the leader. In Kafka they count, and the index of a follower may differ.
        """
        for transaction in self._ongoing.all():
            first = transaction.first_offset
            if first != completed.first_offset:
                if first < completed.last_offset:
                    return first
                break
        return completed.last_offset + 1

    @property
    def has_unreplicated(self) -> bool:
        """Is there a transaction whose marker is not below the high watermark yet?"""
        return self._unreplicated.eldest() is not None

    def _changed(self) -> None:
        ongoing, unreplicated = self._ongoing.least(), self._unreplicated.least()
        if ongoing is None or (unreplicated is not None and unreplicated.first.offset < ongoing.first.offset):
            self.first_unstable = None if unreplicated is None else unreplicated.first
        else:
            self.first_unstable = ongoing.first
