"""OffsetStore: the committed offsets of all groups, and those of open transactions.

  S1  an offset in a transaction is pending until the marker of its producer in its partition of __consumer_offsets
  S2  of a pending and a committed offset the one whose record is later in the topic counts: what the cleaner keeps
  S3  a tombstone removes what is pending, too

Under the coordinator's lock. Kafka: OffsetMetadataManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from klog.coordinator.groups.offset_records import Committed

    Transaction = tuple[int, int]
    GroupTopicPartition = tuple[str, str, int]

_NOTHING: Mapping[str, Mapping[int, Committed]] = {}


class OffsetStore:
    """group → topic → partition → Committed. A transaction is (partition of __consumer_offsets, producer id)."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, Committed]]] = {}
        self._pending: dict[Transaction, dict[GroupTopicPartition, Committed]] = {}
        self._open: dict[str, set[Transaction]] = {}  # the transactions with pending offsets of a group

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetStore):
            return NotImplemented
        return self._committed == other._committed and self._pending == other._pending and self._open == other._open

    __hash__ = None  # type: ignore[assignment]

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        """The committed offset of a partition."""
        topics = self._committed.get(group_id)
        if topics is None:
            return None
        partitions = topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, Committed]]:
        """The committed offsets of a group, by topic and partition."""
        return self._committed.get(group_id, _NOTHING)

    def groups(self) -> Iterable[str]:
        """The groups that have committed or pending offsets."""
        return self._committed.keys() | self._open.keys()

    def put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        """Store a committed offset."""
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = committed

    def put_pending(self, transaction: Transaction, key: GroupTopicPartition, committed: Committed) -> None:
        """Store an offset of an open transaction. key: group, topic, partition."""
        self._pending.setdefault(transaction, {})[key] = committed
        self._open.setdefault(key[0], set()).add(transaction)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Apply a tombstone (S3)."""
        topics = self._committed.get(group_id)
        if topics is not None:
            partitions = topics.get(topic)
            if partitions is not None and partitions.pop(partition, None) is not None and not partitions:
                del topics[topic]
                if not topics:
                    del self._committed[group_id]
        for transaction in self._open.get(group_id, ()):
            self._pending[transaction].pop((group_id, topic, partition), None)

    def complete(self, transaction: Transaction, *, committed: bool) -> None:
        """Apply the marker of a transaction: store or drop its offsets."""
        offsets = self._pending.pop(transaction, None)
        if offsets is None:
            return
        for group_id in [name for name, found in self._open.items() if transaction in found]:
            found = self._open[group_id]
            found.discard(transaction)
            if not found:
                del self._open[group_id]
        if committed:
            for (group_id, topic, partition), offset in offsets.items():
                known = self.get(group_id, topic, partition)
                if known is None or known.record_offset < offset.record_offset:
                    self.put(group_id, topic, partition, offset)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Does an open transaction have an offset of this partition?"""
        key = group_id, topic, partition
        return any(key in self._pending[transaction] for transaction in self._open.get(group_id, ()))

    def has_open(self, group_id: str) -> bool:
        """Does an open transaction concern the group?"""
        return group_id in self._open

    def partitions_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Topic and partition of each offset of a group, committed or pending, once."""
        seen = {(topic, number) for topic, numbers in self.topics(group_id).items() for number in numbers}
        for transaction in self._open.get(group_id, ()):
            seen.update(key[1:] for key in self._pending[transaction] if key[0] == group_id)
        return iter(sorted(seen))
