"""aiokafka's clients on a broker, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tests.interop.broker import Broker
from tests.support.patience import PATIENCE

Pair = tuple[bytes | None, bytes | None]


def run(work: Any) -> Any:
    """Run a coroutine to its end, within bounds."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


async def create_topics(broker: Broker, configs: Mapping[str, Mapping[str, str]], partitions: int = 1) -> None:
    """{topic: its configuration}"""
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(name, partitions, 1, topic_configs=config) for name, config in configs.items()]
        )
    finally:
        await admin.close()


async def produce(
    broker: Broker, topic: str, pairs: Sequence[Pair], partition: int | None = None, **options: Any
) -> None:
    """Send (key, value) in order, and wait until all are acknowledged."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=broker.address, acks="all", linger_ms=2, **options)
    await producer.start()
    try:
        sent = [await producer.send(topic, value, key=key, partition=partition) for key, value in pairs]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
