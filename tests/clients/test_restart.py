"""A broker that is killed and started again, under clients that stay connected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clients.adapters import CLIENTS, Client, load
from tests.clients.conftest import KINDS_OF_SERVERS
from tests.clients.reading import collect, everything
from tests.clients.servers import Server, Unavailable, serve

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[str], Server]]:
    """The broker of a kind: one for all tests of this module, which kill it."""
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


def _again(server: Server) -> None:
    server.kill()
    server.start()


def test_acknowledged_records_survive_and_an_idempotent_producer_goes_on(
    server: Server, client: Client, topic: str
) -> None:
    producer = client.producer(idempotent=True)
    for number in range(60):
        producer.send(topic, b"%d" % number)
        if number % 20 == 9:
            producer.flush()
            _again(server)
    producer.flush()
    producer.close()
    found = everything(client, topic, 60)
    assert [each.value for each in found] == [b"%d" % number for number in range(60)]
    assert [each.offset for each in found] == list(range(60))


def test_a_member_of_a_group_goes_on(server: Server, client: Client, topic: str) -> None:
    producer = client.producer()
    producer.send(topic, b"before")
    producer.flush()
    member = client.consumer(topic)
    member.subscribe([topic])
    collect(member, 1)
    member.commit({(topic, 0): 1})
    _again(server)
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
    _again(server)
    successor = client.producer(transactional_id=topic)  # aborts what was open
    successor.begin()
    successor.send(topic, b"next")
    successor.flush()
    successor.commit()
    successor.close()
    found = everything(client, topic, 2, "read_committed")
    assert [each.value for each in found] == [b"committed", b"next"]
    assert len(everything(client, topic, 3)) == 3


def test_a_transaction_goes_on_after_the_restart(server: Server, client: Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    producer.begin()
    producer.send(topic, b"before")
    producer.flush()
    _again(server)
    producer.send(topic, b"after")
    producer.flush()
    producer.commit()
    producer.close()
    found = everything(client, topic, 2, "read_committed")
    assert [each.value for each in found] == [b"before", b"after"]
