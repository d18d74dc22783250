"""confluent-kafka, the Python binding of librdkafka."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka as ck
import confluent_kafka.admin

from tests.clients.adapters.base import SESSION_MS, WAIT_SECONDS, Header, Login, Message, Partition, Refused

__all__ = ["Confluent"]

ck_admin: Any = confluent_kafka.admin  # its stubs do not export what it exports


def _refused(error: ck.KafkaError) -> Refused:
    return Refused(error.code(), f"{error.name()}: {error.str()}")


def _call(function: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except ck.KafkaException as refused:
        raise _refused(refused.args[0]) from refused


def _only(futures: Mapping[Any, Any]) -> Any:
    (future,) = futures.values()
    return _call(future.result, WAIT_SECONDS)


class _Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = ck.Producer(settings)
        self._sent: list[tuple[ck.KafkaError | None, int, int]] = []
        if "transactional.id" in settings:
            _call(self._producer.init_transactions, WAIT_SECONDS)

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
        number = len(self._sent)
        self._sent.append((None, -1, -1))

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            partition, offset = message.partition(), message.offset()
            self._sent[number] = (error, -1 if partition is None else partition, -1 if offset is None else offset)

        named: dict[str, Any] = {"headers": list(headers), "on_delivery": delivered}
        if partition is not None:
            named["partition"] = partition
        if timestamp_ms is not None:
            named["timestamp"] = timestamp_ms
        _call(self._producer.produce, topic, value, key, **named)

    def flush(self) -> list[tuple[int, int]]:
        assert self._producer.flush(WAIT_SECONDS) == 0, "not delivered in time"
        sent, self._sent = self._sent, []
        for error, _, _ in sent:
            if error is not None:
                raise _refused(error)
        return [(partition, offset) for _, partition, offset in sent]

    def begin(self) -> None:
        _call(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        _call(self._producer.send_offsets_to_transaction, _positions(offsets), consumer.group_metadata(), WAIT_SECONDS)

    def commit(self) -> None:
        _call(self._producer.commit_transaction, WAIT_SECONDS)

    def abort(self) -> None:
        _call(self._producer.abort_transaction, WAIT_SECONDS)

    def close(self) -> None:
        try:
            self._producer.flush(WAIT_SECONDS)
        finally:
            del self._producer  # which ends its threads


def _positions(offsets: Mapping[Partition, int]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]


class _Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._consumer = ck.Consumer(settings)

    def group_metadata(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        self._consumer.assign(_positions(offsets))

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def poll(self, seconds: float) -> list[Message]:
        until = time.monotonic() + seconds
        found: list[Message] = []
        while not found and (left := until - time.monotonic()) > 0:
            for message in _call(self._consumer.consume, 500, min(left, 0.1)):
                if message.error() is None:
                    found.append(_message(message))
                elif message.error().code() != ck.KafkaError._PARTITION_EOF:
                    raise _refused(message.error())
        return found

    def seek(self, partition: Partition, offset: int) -> None:
        _call(self._consumer.seek, ck.TopicPartition(*partition, offset))

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        for each in _call(self._consumer.commit, offsets=_positions(offsets), asynchronous=False):
            if each.error is not None:
                raise _refused(each.error)

    def committed(self, partition: Partition) -> int | None:
        (found,) = _call(self._consumer.committed, [ck.TopicPartition(*partition)], WAIT_SECONDS)
        if found.error is not None:
            raise _refused(found.error)
        return None if found.offset == ck.OFFSET_INVALID else int(found.offset)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        asked = [ck.TopicPartition(*partition, timestamp_ms)]
        (found,) = _call(self._consumer.offsets_for_times, asked, WAIT_SECONDS)
        return None if found.offset == ck.OFFSET_END else int(found.offset)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        low, high = _call(self._consumer.get_watermark_offsets, ck.TopicPartition(*partition), WAIT_SECONDS)
        return int(low), int(high)

    def close(self) -> None:
        try:
            self._consumer.close()
        finally:
            del self._consumer


def _message(message: Any) -> Message:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Message(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        headers,
        message.timestamp()[1],
    )


class _Admin:
    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._admin = ck_admin.AdminClient(dict(connection))

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        _only(self._admin.create_topics([ck_admin.NewTopic(topic, partitions, 1, config=dict(config or {}))]))

    def add_partitions(self, topic: str, total: int) -> None:
        _only(self._admin.create_partitions([ck_admin.NewPartitions(topic, total)]))

    def partitions(self, topic: str) -> int:
        return len(_only(self._admin.describe_topics(ck.TopicCollection([topic]))).partitions)

    def topics(self) -> set[str]:
        return set(_call(self._admin.list_topics, timeout=WAIT_SECONDS).topics)

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def config(self, topic: str) -> dict[str, str | None]:
        entries = _only(self._admin.describe_configs([_resource(topic)]))
        return {name: entry.value for name, entry in entries.items()}

    def set_config(self, topic: str, name: str, value: str) -> None:
        change = ck_admin.ConfigEntry(name, value, incremental_operation=ck_admin.AlterConfigOpType.SET)
        resource = ck_admin.ConfigResource(ck_admin.ResourceType.TOPIC, topic, incremental_configs=[change])
        _only(self._admin.incremental_alter_configs([resource]))

    def groups(self) -> set[str]:
        found = _call(self._admin.list_consumer_groups().result, WAIT_SECONDS)
        if found.errors:
            raise _refused(found.errors[0].args[0])
        return {group.group_id for group in found.valid}

    def group_state(self, group: str) -> tuple[str, int]:
        found = _only(self._admin.describe_consumer_groups([group]))
        return found.state.name.title(), len(found.members)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = _only(self._admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)]))
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def delete_records(self, partition: Partition, before: int) -> int:
        return int(_only(self._admin.delete_records([ck.TopicPartition(*partition, before)])).low_watermark)

    def delete_group(self, group: str) -> None:
        _only(self._admin.delete_consumer_groups([group]))

    def latest(self, partition: Partition) -> int:
        return self._offset(partition, ck_admin.OffsetSpec.latest())

    def at_max_timestamp(self, partition: Partition) -> int:
        return self._offset(partition, ck_admin.OffsetSpec.max_timestamp())

    def _offset(self, partition: Partition, spec: Any) -> int:
        return int(_only(self._admin.list_offsets({ck.TopicPartition(*partition): spec})).offset)

    def close(self) -> None:
        del self._admin


def _resource(topic: str) -> Any:
    return ck_admin.ConfigResource(ck_admin.ResourceType.TOPIC, topic)


class Confluent:
    name = "confluent"
    lacks: frozenset[str] = frozenset()

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        self._connection: dict[str, Any] = {"bootstrap.servers": bootstrap}
        if login is not None:
            self._connection |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": login.mechanism,
                "sasl.username": login.user,
                "sasl.password": login.password,
            }

    def producer(
        self, *, codec: str = "none", acks: str = "all", idempotent: bool = False, transactional_id: str | None = None
    ) -> _Producer:
        settings: dict[str, Any] = {
            **self._connection,
            "compression.type": codec,
            "acks": acks,
            "enable.idempotence": idempotent or transactional_id is not None,
            "message.max.bytes": 8 << 20,
            "linger.ms": 5,
        }
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
        return _Producer(settings)

    def consumer(
        self, group: str | None = None, *, isolation: str = "read_uncommitted", protocol: str = "classic"
    ) -> _Consumer:
        settings: dict[str, Any] = {
            **self._connection,
            "group.id": group or "open",  # librdkafka requires a group id; the ACLs of test_security.py allow this one
            "group.protocol": protocol,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
        return _Consumer(settings)

    def admin(self) -> _Admin:
        return _Admin(self._connection)
