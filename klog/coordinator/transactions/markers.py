"""Markers: the control batches at the end of a transaction, in the partitions that it wrote to.

    marker := a batch of one control record: commit or abort, with the producer id and epoch of the transaction, and
              the coordinator epoch

A marker that is appended twice does no harm: the second one ends no transaction.
Kafka: TransactionMarkerChannelManager, WriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from klog.errors import InvalidProducerEpoch, TransactionCoordinatorFenced, UnknownTopicOrPartition
from klog.internal_topics.names import CONSUMER_OFFSETS
from klog.record import encode
from klog.record.control import marker

if TYPE_CHECKING:
    from klog.coordinator.transactions.metadata import Partition
    from klog.log import Log
    from klog.security.context import Topics


OnMarker = Callable[[int, int, bool, Callable[[], object]], object]
"""(partition of __consumer_offsets, producer id, committed, append): calls append(), which appends the marker, and
applies it. No offsets of the producer may come in between: they would be those of its next transaction."""


class Markers:
    """Any thread. on_marker appends each marker in __consumer_offsets; appended(topic, partition) is called after each
    marker."""

    def __init__(
        self,
        topics: Topics,
        on_marker: OnMarker,
        appended: Callable[[str, int], object] | None = None,
    ) -> None:
        self._topics = topics
        self._on_marker = on_marker
        self._appended = appended

    def append(
        self, partition: Partition, producer_id: int, producer_epoch: int, coordinator_epoch: int, committed: bool
    ) -> None:
        """Append a marker. Raises UnknownTopicOrPartition, InvalidProducerEpoch, TransactionCoordinatorFenced,
        StorageOffline, LogClosed, OSError."""
        log = self._topics.log(*partition)
        if log is None:
            raise UnknownTopicOrPartition(f"{partition[0]} has no partition {partition[1]}")
        key, value = marker("commit" if committed else "abort", coordinator_epoch)
        data = encode(
            [(key, value, log.clock.wall_ms())],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
        append = partial(log.append_batches, data, origin="coordinator")
        if partition[0] == CONSUMER_OFFSETS:
            self._on_marker(partition[1], producer_id, committed, append)
        else:
            append()
        if self._appended is not None:
            self._appended(*partition)

    def append_own(
        self, partition: Partition, producer_id: int, producer_epoch: int, coordinator_epoch: int, committed: bool
    ) -> str | None:
        """append() for a transaction of this coordinator. Returns why the partition needs no marker, or None.

        There is one coordinator: a partition with a later coordinator epoch got it from an earlier broker of this
        directory, and the marker takes that epoch. Raises StorageOffline, LogClosed, OSError.
        """
        try:
            try:
                self.append(partition, producer_id, producer_epoch, coordinator_epoch, committed)
            except TransactionCoordinatorFenced:
                log = self._topics.log(*partition)
                epoch = coordinator_epoch if log is None else _coordinator_epoch_in(log, producer_id)
                self.append(partition, producer_id, producer_epoch, epoch, committed)
        except UnknownTopicOrPartition:
            return "the partition was deleted"
        except InvalidProducerEpoch as error:
            return str(error)
        return None


def _coordinator_epoch_in(log: Log, producer_id: int) -> int:
    state = log.producers.get(producer_id)
    return 0 if state is None else state.coordinator_epoch
