"""A broker is killed and started again while clients stay connected. Deep tests, since a start of Kafka takes seconds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients.adapters import CLIENTS, Client, load
from tests.clients.conftest import KINDS_OF_SERVERS
from tests.clients.reading import collect, everything
from tests.clients.servers import Server, Unavailable, serve
from tests.clients.suite.java import Tools

pytestmark = pytest.mark.deep
COPIED = 6000
KILLS = 10


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[str], Server]]:
    """Returns the broker of a kind. The tests of this module share it and kill it."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Server:
            if kind not in running:
                running[kind] = stack.enter_context(serve(kind))
            return running[kind]

        yield get


@pytest.fixture(params=KINDS_OF_SERVERS)
def server(brokers: Callable[[str], Server], request: pytest.FixtureRequest) -> Server:
    try:
        return brokers(request.param)
    except Unavailable as missing:
        pytest.skip(f"needs: {missing}")


@pytest.fixture(params=CLIENTS)
def client(server: Server, request: pytest.FixtureRequest) -> Client:
    try:
        return load(request.param, server.bootstrap)
    except ImportError as missing:
        pytest.skip(f"needs: {missing.name}")


@pytest.fixture
def topic(client: Client, name: str) -> str:
    """A new topic with one partition."""
    admin = client.admin()
    admin.create_topic(name)
    admin.close()
    return name


def _restart(server: Server) -> None:
    server.kill()
    server.start()


def test_acknowledged_records_survive_and_an_idempotent_producer_continues(
    server: Server, client: Client, topic: str
) -> None:
    producer = client.producer(idempotent=True)
    for number in range(60):
        producer.send(topic, b"%d" % number)
        if number % 20 == 9:
            producer.flush()
            _restart(server)
    producer.flush()
    producer.close()
    found = everything(client, topic, 60)
    assert [each.value for each in found] == [b"%d" % number for number in range(60)]
    assert [each.offset for each in found] == list(range(60))


def test_a_member_of_a_group_continues(server: Server, client: Client, topic: str) -> None:
    producer = client.producer()
    producer.send(topic, b"before")
    producer.flush()
    member = client.consumer(topic)
    member.subscribe([topic])
    collect(member, 1)
    member.commit({(topic, 0): 1})
    _restart(server)
    producer.send(topic, b"after")
    producer.flush()
    producer.close()
    assert [each.value for each in collect(member, 1)] == [b"after"]
    assert member.committed((topic, 0)) == 1
    member.commit({(topic, 0): 2})
    member.close()
    other = client.consumer(topic)
    assert other.committed((topic, 0)) == 2
    other.close()


def test_a_transaction_is_whole_or_absent(server: Server, client: Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    producer.begin()
    producer.send(topic, b"committed")
    producer.flush()
    producer.commit()
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()
    _restart(server)
    successor = client.producer(transactional_id=topic)  # aborts the open transaction
    successor.begin()
    successor.send(topic, b"next")
    successor.flush()
    successor.commit()
    successor.close()
    found = everything(client, topic, 2, "read_committed")
    assert [each.value for each in found] == [b"committed", b"next"]
    assert len(everything(client, topic, 3)) == 3


def test_a_transaction_continues_after_the_restart(server: Server, client: Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    producer.begin()
    producer.send(topic, b"before")
    producer.flush()
    _restart(server)
    producer.send(topic, b"after")
    producer.flush()
    producer.commit()
    producer.close()
    found = everything(client, topic, 2, "read_committed")
    assert [each.value for each in found] == [b"before", b"after"]


@pytest.mark.java
@pytest.mark.parametrize("server", ["klog"], indirect=True)
@pytest.mark.parametrize("client", [CLIENTS[0]], indirect=True)
def test_copiers_in_a_group_copy_each_record_once_whenever_the_broker_is_killed(
    server: Server, client: Client, name: str, tmp_path: Path
) -> None:
    """Two of Kafka's TransactionalMessageCopier run in one group, and abort transactions at random."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chances = random.Random(seed)
    source, target = f"{name}-in", f"{name}-out"
    admin = client.admin()
    for topic in (source, target):
        admin.create_topic(topic, partitions=2)
    admin.close()
    producer = client.producer()
    for number in range(COPIED):
        producer.send(source, b"%d" % number, partition=number % 2)
    producer.flush()
    producer.close()
    try:
        tools = Tools(server, tmp_path, tmp_path / "output")
    except Unavailable as missing:
        pytest.skip(f"needs: {missing}")

    def copy(number: int) -> str:
        return tools.run(
            "TransactionalMessageCopier",
            *("--input-topic", source, "--input-partition", number, "--output-topic", target),
            *("--consumer-group", name, "--transactional-id", f"{name}-{number}", "--transaction-size", 50),
            *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
            bootstrap="--broker-list",
        )

    with ThreadPoolExecutor(2) as pool:
        copiers = [pool.submit(copy, number) for number in range(2)]
        time.sleep(2)  # time for the copiers to start
        kills = 0
        while kills < KILLS and not all(each.done() for each in copiers):
            time.sleep(chances.uniform(0.3, 1.2))
            server.kill()
            time.sleep(chances.uniform(0, 0.5))
            server.start()
            kills += 1
        for copier in copiers:
            copier.result()

    reader = client.consumer(isolation="read_committed")
    reader.assign({(target, partition): 0 for partition in range(2)})
    found = collect(reader, COPIED) + reader.poll(1)
    reader.close()
    assert sorted(int(each.value or b"-1") for each in found) == list(range(COPIED)), (seed, kills)
