"""kafka-python."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
from kafka import admin as kafka_admin
from kafka import errors
from kafka.structs import OffsetAndMetadata

from tests.clients.adapters.base import SESSION_MS, WAIT_SECONDS, Header, Login, Message, Partition, Refused
from tests.support.patience import KAFKA_PYTHON, KAFKA_PYTHON_PRODUCER

__all__ = ["KafkaPython"]

_WAIT_MS = int(WAIT_SECONDS * 1000)


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except errors.BrokerResponseError as refused:
        raise Refused(refused.errno, str(refused)) from refused


def _check(code: int) -> None:
    if code:
        raise Refused(code, errors.for_code(code).__name__)


def _check_text(result: object) -> None:
    """Raise Refused if this result is an error, which some calls of the library return as text or as the name of its
    class."""
    if found := re.match(r"\[Error (-?\d+)\]", str(result)):
        raise Refused(int(found[1]), str(result))
    if (kind := getattr(errors, str(result), None)) is not None:
        raise Refused(kind.errno, str(result))


class _Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = kafka.KafkaProducer(**settings)
        self._sent: list[Any] = []
        if settings.get("transactional_id"):
            try:
                _call(self._producer.init_transactions)
            except BaseException:
                self._producer.close(0)
                raise

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> None:
        self._sent.append(
            _call(
                self._producer.send,
                topic,
                value,
                key,
                headers=list(headers),
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    def flush(self) -> list[tuple[int, int]]:
        _call(self._producer.flush, WAIT_SECONDS)
        sent, self._sent = self._sent, []
        done = [_call(future.get, WAIT_SECONDS) for future in sent]
        return [(each.partition, each.offset) for each in done]

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        _call(self._producer.send_offsets_to_transaction, _positions(offsets), consumer.group_metadata())

    def commit(self) -> None:
        _call(self._producer.commit_transaction)

    def abort(self) -> None:
        _call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(WAIT_SECONDS)


def _positions(offsets: Mapping[Partition, int]) -> dict[Any, OffsetAndMetadata]:
    return {kafka.TopicPartition(*which): OffsetAndMetadata(offset, "", -1) for which, offset in offsets.items()}


class _Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = kafka.KafkaConsumer(**settings)

    def group_metadata(self) -> Any:
        return self._consumer.group_metadata()

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        self._consumer.assign([kafka.TopicPartition(*which) for which in offsets])
        for which, offset in offsets.items():
            self.seek(which, offset)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def poll(self, seconds: float) -> list[Message]:
        batches = _call(self._consumer.poll, timeout_ms=int(seconds * 1000))
        return [
            Message(
                record.topic,
                record.partition,
                record.offset,
                record.key,
                record.value,
                tuple(record.headers),
                record.timestamp,
            )
            for batch in batches.values()
            for record in batch
        ]

    def seek(self, partition: Partition, offset: int) -> None:
        self._consumer.seek(kafka.TopicPartition(*partition), offset)

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        _call(self._consumer.commit, _positions(offsets), timeout_ms=_WAIT_MS)

    def committed(self, partition: Partition) -> int | None:
        found: int | None = _call(self._consumer.committed, kafka.TopicPartition(*partition), timeout_ms=_WAIT_MS)
        return found

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        which = kafka.TopicPartition(*partition)
        found = _call(self._consumer.offsets_for_times, {which: timestamp_ms}, timeout_ms=_WAIT_MS)[which]
        return None if found is None else int(found.offset)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        which = kafka.TopicPartition(*partition)
        low = _call(self._consumer.beginning_offsets, [which], timeout_ms=_WAIT_MS)[which]
        return low, _call(self._consumer.end_offsets, [which], timeout_ms=_WAIT_MS)[which]

    def close(self) -> None:
        self._consumer.close(autocommit=False, timeout_ms=_WAIT_MS)


class _Admin:
    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._admin = kafka_admin.KafkaAdminClient(**connection)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        _call(self._admin.create_topics, {topic: options})

    def add_partitions(self, topic: str, total: int) -> None:
        _call(self._admin.create_partitions, {topic: total})

    def partitions(self, topic: str) -> int:
        (found,) = _call(self._admin.describe_topics, [topic])
        _check(found["error_code"])
        return len(found["partitions"])

    def topics(self) -> set[str]:
        return set(_call(self._admin.list_topics))

    def delete_topic(self, topic: str) -> None:
        _call(self._admin.delete_topics, [topic])

    def config(self, topic: str) -> dict[str, str | None]:
        resource = kafka_admin.ConfigResource("TOPIC", topic)
        ((found,),) = (
            each.values() for each in _call(self._admin.describe_configs, [resource], config_filter="all").values()
        )
        return {name: entry["value"] for name, entry in found.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = kafka_admin.ConfigResource("TOPIC", topic, {name: value})
        for each in _call(self._admin.alter_configs, [resource], raise_on_unknown=False).values():
            for result in each.values():
                _check_text(result)

    def groups(self) -> set[str]:
        return {group["group_id"] for group in _call(self._admin.list_groups)}

    def group_state(self, group: str) -> tuple[str, int]:
        found = _call(self._admin.describe_groups, [group])[group]
        return found["group_state"], len(found["members"])

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = _call(self._admin.list_group_offsets, {group: None})[group]
        return {(which.topic, which.partition): position.offset for which, position in found.items()}

    def delete_records(self, partition: Partition, before: int) -> int:
        which = kafka.TopicPartition(*partition)
        return int(_call(self._admin.delete_records, {which: before})[which]["low_watermark"])

    def delete_group(self, group: str) -> None:
        for result in _call(self._admin.delete_groups, [group]).values():
            _check_text(result)

    def latest(self, partition: Partition) -> int:
        return self._offset(partition, kafka_admin.OffsetSpec.LATEST)

    def at_max_timestamp(self, partition: Partition) -> int:
        return self._offset(partition, kafka_admin.OffsetSpec.MAX_TIMESTAMP)

    def _offset(self, partition: Partition, spec: Any) -> int:
        which = kafka.TopicPartition(*partition)
        return int(_call(self._admin.list_partition_offsets, {which: spec})[which].offset)

    def close(self) -> None:
        self._admin.close()


class KafkaPython:
    name = "kafka-python"
    lacks: frozenset[str] = frozenset({"consumer protocol"})

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        self._connection: dict[str, Any] = {"bootstrap_servers": bootstrap, **KAFKA_PYTHON}
        if login is not None:
            self._connection |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": login.mechanism,
                "sasl_plain_username": login.user,
                "sasl_plain_password": login.password,
            }

    def producer(
        self, *, codec: str = "none", acks: str = "all", idempotent: bool = False, transactional_id: str | None = None
    ) -> _Producer:
        return _Producer(
            {
                **self._connection,
                **KAFKA_PYTHON_PRODUCER,
                "compression_type": None if codec == "none" else codec,
                "acks": acks if acks == "all" else int(acks),
                "enable_idempotence": idempotent or transactional_id is not None,
                "transactional_id": transactional_id,
                "max_request_size": 8 << 20,
                "linger_ms": 5,
            }
        )

    def consumer(
        self, group: str | None = None, *, isolation: str = "read_uncommitted", protocol: str = "classic"
    ) -> _Consumer:
        assert protocol == "classic"
        return _Consumer(
            {
                **self._connection,
                "group_id": group,
                "isolation_level": isolation,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "fetch_max_wait_ms": 100,
                "metadata_max_age_ms": 1000,
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": 300,
            }
        )

    def admin(self) -> _Admin:
        return _Admin(self._connection)
