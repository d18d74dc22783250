"""CoordinatorLog: the internal topic of a coordinator, __consumer_offsets or __transaction_state.

A group or a transactional id has all its records in one partition. A coordinator appends a record before it changes its
state, and replays the records to have its state again after a start.

  O1  replay() passes the records of a partition in the order of their offsets
  O2  a record in a transaction comes with the id of its producer. It is pending until `ended` reports the marker of
      that producer; what is pending when the replay ends is open still

Kafka: CoordinatorLoaderImpl, CoordinatorPartitionWriter, GroupCoordinatorService.partitionFor.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from klog.errors import UnknownTopicOrPartition
from klog.record import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from klog.log import AppendInfo
    from klog.record import Record
    from klog.security.context import Topics

_INT_MIN = -(2**31)


def java_hash(text: str) -> int:
    """String.hashCode() of Java: 31-based, over UTF-16 units, as an int32."""
    result = 0
    if text.isascii():
        for unit in text.encode():
            result = (31 * result + unit) & 0xFFFFFFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for unit in struct.unpack(f">{len(data) // 2}H", data):
            result = (31 * result + unit) & 0xFFFFFFFF
    return result - (1 << 32) if result >= 1 << 31 else result


class CoordinatorLog:
    """The partitions of one internal topic. Any thread; each log locks its own appends."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.topic = topic
        self._topics = topics
        self._count: int | None = None

    @property
    def count(self) -> int | None:
        """The number of partitions; None as long as the topic does not exist."""
        if self._count is None:
            self._count = self._topics.partitions(self.topic)
        return self._count

    def ensure(self) -> int:
        """Create the topic unless it exists. Returns the number of its partitions."""
        count = self.count
        if count is None:
            self._topics.ensure_internal(self.topic)
            count = self.count
            if count is None:
                raise UnknownTopicOrPartition(f"{self.topic} does not exist and was not created")
        return count

    def partition_for(self, key: str) -> int:
        """The partition with the records of a group or transactional id. Creates the topic unless it exists.

        The absolute value of the hash, as Kafka's Utils.abs: 0 for the one that has none, not its lower 31 bits.
        """
        count = self._count or self.ensure()
        if count == 1:
            return 0
        number = java_hash(key)
        return 0 if number == _INT_MIN else abs(number) % count

    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
    ) -> AppendInfo:
        """Append records, all or none. producer: (id, epoch); with it they are part of its transaction.

        Raises what Log.append raises (RecordTooLarge, StorageOffline, OSError), InvalidProducerEpoch for a producer
        that is fenced, UnknownTopicOrPartition.
        """
        log = self._topics.log(self.topic, partition)
        if log is None:
            raise UnknownTopicOrPartition(f"{self.topic} has no partition {partition}")
        if producer is None:
            return log.append(list(records))
        now = log.clock.wall_ms()
        data = encode(
            [(key, value, now) for key, value in records],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,  # as Kafka's coordinators; it is never checked
            is_transactional=True,
        )
        return log.append_batches(data, origin="coordinator")

    def replay(
        self,
        apply: Callable[[int, Record, int], object],
        ended: Callable[[int, int, bool], object] | None = None,
    ) -> int:
        """Pass every record of every partition, and return their number.

        apply(partition, record, producer_id): a record, with producer_id -1 outside a transaction. ended(partition,
        producer_id, committed): the marker of a transaction. Raises what they raise, and CorruptData, OSError.
        """
        passed = 0
        for partition in range(self.count or 0):
            log = self._topics.log(self.topic, partition)
            if log is None or log.log_end_offset == log.log_start_offset:
                continue
            for batch in log.read(isolation="log_end", include_control=True).batches():
                producer_id = batch.producer_id if batch.is_transactional else -1
                if batch.is_control:
                    if ended is not None and batch.count and batch.control_type in ("commit", "abort"):
                        ended(partition, producer_id, batch.control_type == "commit")
                    continue
                for record in batch:
                    apply(partition, record, producer_id)
                    passed += 1
        return passed
