"""aiokafka. Each client has an event loop in a thread of its own, which ends when the client is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiokafka
from aiokafka import admin as aiokafka_admin
from aiokafka import errors
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tests.clients.adapters.base import SESSION_MS, WAIT_SECONDS, Header, Login, Message, Partition, Refused
from tests.support.patience import AIOKAFKA

__all__ = ["AioKafka"]


class _Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)
        except errors.BrokerResponseError as refused:
            raise Refused(refused.errno, str(refused)) from refused

    def started(self, make: Callable[[], Any]) -> Any:
        """Start the client that make() returns, and return it."""

        async def start() -> Any:
            client = make()
            try:
                await client.start()
            except BaseException:
                await (client.stop if hasattr(client, "stop") else client.close)()
                raise
            return client

        try:
            return self.run(start())
        except BaseException:
            self.end()
            raise

    def end(self, stop: Callable[[], Any] | None = None) -> None:
        """Stop the client, and end the thread even if that fails. A second call has no effect."""
        if self._loop.is_closed():
            return
        try:
            if stop is not None:
                self.run(stop())
        finally:
            self.run(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _check(code: int) -> None:
    if code:
        raise Refused(code, errors.for_code(code).__name__)


class _Producer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._loop = _Loop()
        self._sent: list[Any] = []
        self._producer = self._loop.started(lambda: aiokafka.AIOKafkaProducer(**settings))

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
        work = self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=list(headers)
        )
        self._sent.append(self._loop.run(work))

    def flush(self) -> list[tuple[int, int]]:
        async def done() -> list[tuple[int, int]]:
            await self._producer.flush()
            found = [await future for future in sent]
            return [(-1, -1) if each is None else (each.partition, each.offset) for each in found]

        sent, self._sent = self._sent, []
        result: list[tuple[int, int]] = self._loop.run(done())
        return result

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[Partition, int], consumer: Any) -> None:
        self._loop.run(self._producer.send_offsets_to_transaction(_positions(offsets), consumer.group))

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.end(self._producer.stop)


def _positions(offsets: Mapping[Partition, int]) -> dict[Any, OffsetAndMetadata]:
    return {TopicPartition(*which): OffsetAndMetadata(offset, "") for which, offset in offsets.items()}


class _Consumer:
    def __init__(self, settings: dict[str, Any]) -> None:
        self._loop = _Loop()
        self.group: str | None = settings["group_id"]
        self._consumer = self._loop.started(lambda: aiokafka.AIOKafkaConsumer(**settings))

    def assign(self, offsets: Mapping[Partition, int]) -> None:
        async def work() -> None:
            self._consumer.assign([TopicPartition(*which) for which in offsets])
            for which, offset in offsets.items():
                self._consumer.seek(TopicPartition(*which), offset)

        self._loop.run(work())

    def subscribe(self, topics: Sequence[str]) -> None:
        async def work() -> None:
            self._consumer.subscribe(list(topics))

        self._loop.run(work())

    def poll(self, seconds: float) -> list[Message]:
        batches = self._loop.run(self._consumer.getmany(timeout_ms=int(seconds * 1000)))
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
        async def work() -> None:
            self._consumer.seek(TopicPartition(*partition), offset)

        self._loop.run(work())

    def assignment(self) -> set[Partition]:
        return {(each.topic, each.partition) for each in self._consumer.assignment()}

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._loop.run(self._consumer.commit(_positions(offsets)))

    def committed(self, partition: Partition) -> int | None:
        found: int | None = self._loop.run(self._consumer.committed(TopicPartition(*partition)))
        return found

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        which = TopicPartition(*partition)
        found = self._loop.run(self._consumer.offsets_for_times({which: timestamp_ms}))[which]
        return None if found is None else int(found.offset)

    def bounds(self, partition: Partition) -> tuple[int, int]:
        which = TopicPartition(*partition)
        low = self._loop.run(self._consumer.beginning_offsets([which]))[which]
        return low, self._loop.run(self._consumer.end_offsets([which]))[which]

    def close(self) -> None:
        self._loop.end(self._consumer.stop)


class _Admin:
    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._loop = _Loop()
        self._admin = self._loop.started(lambda: aiokafka_admin.AIOKafkaAdminClient(**connection))

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        new = aiokafka_admin.NewTopic(topic, partitions, 1, topic_configs=dict(config or {}))
        (found,) = self._loop.run(self._admin.create_topics([new])).topic_errors
        _check(found[1])

    def add_partitions(self, topic: str, total: int) -> None:
        done = self._loop.run(self._admin.create_partitions({topic: aiokafka_admin.NewPartitions(total)}))
        _check(done.topic_errors[0][1])

    def partitions(self, topic: str) -> int:
        (found,) = self._loop.run(self._admin.describe_topics([topic]))
        _check(found["error_code"])
        return len(found["partitions"])

    def topics(self) -> set[str]:
        return set(self._loop.run(self._admin.list_topics()))

    def delete_topic(self, topic: str) -> None:
        done = self._loop.run(self._admin.delete_topics([topic]))
        _check(done.topic_error_codes[0][1])

    def config(self, topic: str) -> dict[str, str | None]:
        kind = aiokafka_admin.config_resource.ConfigResourceType.TOPIC
        asked = [aiokafka_admin.config_resource.ConfigResource(kind, topic)]
        (response,) = self._loop.run(self._admin.describe_configs(asked))
        ((code, text, _, _, entries),) = response.resources
        if code:
            raise Refused(code, text)
        return {entry[0]: entry[1] for entry in entries}

    def set_config(self, topic: str, name: str, value: str) -> None:
        kind = aiokafka_admin.config_resource.ConfigResourceType.TOPIC
        asked = [aiokafka_admin.config_resource.ConfigResource(kind, topic, configs={name: value})]
        (response,) = self._loop.run(self._admin.alter_configs(asked))
        ((code, text, _, _),) = response.resources
        if code:
            raise Refused(code, text)

    def groups(self) -> set[str]:
        return {group[0] for group in self._loop.run(self._admin.list_consumer_groups())}

    def group_state(self, group: str) -> tuple[str, int]:
        (response,) = self._loop.run(self._admin.describe_consumer_groups([group]))
        ((code, _, state, _, _, members, *_),) = response.groups
        _check(code)
        return state, len(members)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {(which.topic, which.partition): position.offset for which, position in found.items()}

    def delete_records(self, partition: Partition, before: int) -> int:
        which = TopicPartition(*partition)
        asked = {which: aiokafka_admin.RecordsToDelete(before_offset=before)}
        return int(self._loop.run(self._admin.delete_records(asked))[which])

    def delete_group(self, group: str) -> None:
        raise NotImplementedError("aiokafka has no such call")

    def latest(self, partition: Partition) -> int:
        raise NotImplementedError("aiokafka has no such call")

    def at_max_timestamp(self, partition: Partition) -> int:
        raise NotImplementedError("aiokafka has no such call")

    def close(self) -> None:
        self._loop.end(self._admin.close)


class AioKafka:
    name = "aiokafka"
    lacks: frozenset[str] = frozenset({"delete_group", "latest", "at_max_timestamp", "consumer protocol"})

    def __init__(self, bootstrap: str, login: Login | None = None) -> None:
        self._connection: dict[str, Any] = {"bootstrap_servers": bootstrap, **AIOKAFKA}
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
        settings: dict[str, Any] = {
            **self._connection,
            "compression_type": None if codec == "none" else codec,
            "acks": acks if acks == "all" else int(acks),
            "enable_idempotence": idempotent or transactional_id is not None,
            "transactional_id": transactional_id,
            "max_request_size": 8 << 20,
            "linger_ms": 5,
        }
        return _Producer(settings)

    def consumer(
        self, group: str | None = None, *, isolation: str = "read_uncommitted", protocol: str = "classic"
    ) -> _Consumer:
        assert protocol == "classic"
        settings: dict[str, Any] = {
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
        return _Consumer(settings)

    def admin(self) -> _Admin:
        return _Admin(self._connection)
