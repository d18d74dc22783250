"""Facts about each value and each offset, computed from the whole history. The checks compare single operations with
them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from tests.history.operations import End, Outcome, Partition, Poll, Send


class Facts:
    """sends: by value. ends: by transaction. places: value -> where it was acknowledged or read. values: the same,
    by place. seen, seen_committed: the places that any consumer, and any under read_committed, has read."""

    def __init__(self, history: Iterable[Any], compacted: Collection[Partition]) -> None:
        self.compacted = frozenset(compacted)
        self.operations: dict[type, list[Any]] = defaultdict(list)
        for each in history:
            self.operations[type(each)].append(each)
        self.sends: dict[str, Send] = {each.value: each for each in self.of(Send)}
        self.ends: dict[str, End] = {each.transaction: each for each in self.of(End)}
        self.places: dict[str, set[tuple[Partition, int]]] = defaultdict(set)
        self.values: dict[Partition, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.seen: set[tuple[Partition, int]] = set()
        self.seen_committed: set[tuple[Partition, int]] = set()
        self.highest: dict[Partition, int] = {}
        for send in self.of(Send):
            if send.outcome == "ok" and send.offset is not None:
                self._place(send.partition, send.offset, send.value)
        for poll in self.of(Poll):
            for offset, value in poll.records:
                self._place(poll.partition, offset, value)
                self.seen.add((poll.partition, offset))
                if poll.committed_only:
                    self.seen_committed.add((poll.partition, offset))
                self.highest[poll.partition] = max(offset, self.highest.get(poll.partition, -1))

    def of(self, kind: type) -> list[Any]:
        """The operations of a kind."""
        return self.operations.get(kind, [])

    def _place(self, partition: Partition, offset: int, value: str) -> None:
        self.places[value].add((partition, offset))
        self.values[partition][offset].add(value)

    def fate(self, send: Send) -> Outcome:
        """Of what was sent, its transaction included: `ok` if it must be there for everybody."""
        if send.transaction is None or send.outcome != "ok":
            return send.outcome
        end = self.ends.get(send.transaction)
        return "unknown" if end is None else end.outcome

    def is_visible(self, partition: Partition, offset: int, committed_only: bool) -> bool:
        """Does a consumer that passes this offset certainly get a record there?"""
        if (partition, offset) in (self.seen_committed if committed_only else self.seen):
            return True
        for value in self.values[partition].get(offset, ()):
            send = self.sends.get(value)
            if send is not None and (self.fate(send) if committed_only else send.outcome) == "ok":
                return True
        return False

    def was_replaced(self, send: Send) -> bool:
        """May compaction have removed it? Not the newest of its key."""
        if send.partition not in self.compacted or send.key is None:
            return False
        places = [offset for _, offset in self.places[send.value]] + ([] if send.offset is None else [send.offset])
        return any(
            other.partition == send.partition and other.key == send.key and offset > max(places, default=-1)
            for other in self.sends.values()
            for _, offset in self.places[other.value]
        )
