"""StateLog: __transaction_state. The metadata of each transactional id as a record, and back.

    key    transactional_id                      value  TransactionMetadata, version 1; null: the id is forgotten

  S1  a change is in the log before it takes effect, so a start continues where the last process stopped
  S2  all records of a transactional id are in one partition; the last one counts

last_producer_epoch is not in the log, as in Kafka; previous_producer_id is only there if it is another id.
Kafka: TransactionLog, TransactionStateManager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from klog.coordinator.coordinator_log import CoordinatorLog
from klog.coordinator.transactions.metadata import EMPTY, NO_ID, STATES, Partition, TransactionMetadata
from klog.errors import CorruptData
from klog.internal_topics import decode, encode_key, encode_value
from klog.internal_topics.names import TRANSACTION_STATE
from klog.logger import logger_of

if TYPE_CHECKING:
    from klog.record import Record
    from klog.security.context import Topics

_VERSION: Final = 1
_KIND: Final = "transaction"
_log = logger_of("coordinator")


class StateLog:
    """Any thread; for one transactional id one at a time."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._log = CoordinatorLog(topics, TRANSACTION_STATE)

    def put(self, metadata: TransactionMetadata) -> None:
        """Append a record. Raises what CoordinatorLog.append raises."""
        name = metadata.transactional_id
        record = encode_key(_KIND, transactional_id=name), _value_of(metadata)
        self._log.append(self._log.partition_for(name), [record])

    def remove(self, transactional_id: str) -> None:
        """Append a tombstone. Raises what CoordinatorLog.append raises."""
        record = encode_key(_KIND, transactional_id=transactional_id), None
        self._log.append(self._log.partition_for(transactional_id), [record])

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The leader epoch of the partition that has this transactional id."""
        log = self._topics.log(TRANSACTION_STATE, self._log.partition_for(transactional_id))
        return 0 if log is None else log.leader_epoch

    def load(self) -> dict[str, TransactionMetadata]:
        """All transactional ids. A record that cannot be decoded is skipped. Raises CorruptBatch, OSError."""
        found: dict[str, TransactionMetadata] = {}

        def apply(partition: int, record: Record, _producer_id: int) -> None:
            try:
                decoded = decode(record, TRANSACTION_STATE)
                if decoded is None or decoded.key is None:
                    return
                name = decoded.key["transactional_id"]
                if decoded.value is None:
                    found.pop(name, None)
                else:
                    found[name] = _metadata_of(name, decoded.value)
            except (CorruptData, ValueError, KeyError, TypeError) as error:
                _log.error(
                    "event=transaction_record_skipped partition=%s-%d reason=%s", TRANSACTION_STATE, partition, error
                )

        self._log.replay(apply)
        return found


def _value_of(metadata: TransactionMetadata) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return encode_value(
        _KIND,
        _VERSION,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=STATES.index(metadata.state),
        transaction_partitions=None
        if metadata.state == EMPTY
        else [{"topic": topic, "partition_ids": numbers} for topic, numbers in by_topic.items()],
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        previous_producer_id=NO_ID
        if metadata.previous_producer_id == metadata.producer_id
        else metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        client_transaction_version=metadata.client_version,
    )


def _metadata_of(transactional_id: str, value: dict[str, Any]) -> TransactionMetadata:
    status = value["transaction_status"]
    if not 0 <= status < len(STATES):
        raise ValueError(f"{transactional_id}: unknown state {status}")
    partitions: set[Partition] = set()
    for entry in value["transaction_partitions"] or ():
        partitions.update((entry["topic"], number) for number in entry["partition_ids"])
    return TransactionMetadata(
        transactional_id,
        producer_id=value["producer_id"],
        timeout_ms=value["transaction_timeout_ms"],
        update_ms=value["transaction_last_update_timestamp_ms"],
        producer_epoch=value["producer_epoch"],
        previous_producer_id=value.get("previous_producer_id", value["producer_id"]),
        next_producer_id=value.get("next_producer_id", NO_ID),
        state=STATES[status],
        partitions=frozenset(partitions),
        start_ms=value["transaction_start_timestamp_ms"],
        client_version=value.get("client_transaction_version", 0),
    )
