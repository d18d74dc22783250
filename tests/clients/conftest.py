"""Fixtures for klog's broker and, in the deep tests, Apache Kafka. Consecutive tests of this package share one broker of each
kind, so each test uses names of its own. After each test its producers and consumers are closed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.clients.adapters import CLIENTS, Admin, Client, close_all, load
from tests.clients.reading import eventually
from tests.clients.servers import Server, Unavailable, serve

_NUMBERS = itertools.count()
KINDS_OF_SERVERS = [
    pytest.param("klog", id="on-klog"),
    pytest.param("kafka", id="on-kafka", marks=[pytest.mark.java, pytest.mark.deep]),
]


@pytest.fixture(scope="package")
def servers() -> Iterator[Callable[[str], Server]]:
    """Returns the broker of a kind, and starts it at the first call."""
    running: dict[str, Server] = {}
    with ExitStack() as stack:

        def get(kind: str) -> Server:
            if kind not in running:
                running[kind] = stack.enter_context(serve(kind))
            return running[kind]

        yield get


@pytest.fixture(scope="package", params=KINDS_OF_SERVERS)
def server(servers: Callable[[str], Server], request: pytest.FixtureRequest) -> Server:
    try:
        return servers(request.param)
    except Unavailable as missing:
        pytest.skip(f"needs: {missing}")


@pytest.fixture(scope="package", params=CLIENTS)
def client(server: Server, request: pytest.FixtureRequest) -> Client:
    try:
        return load(request.param, server.bootstrap)
    except ImportError as missing:
        pytest.skip(f"needs: {missing.name}")


@pytest.fixture(scope="package")
def admin(server: Server, client: Client) -> Iterator[Admin]:
    made = client.admin()
    create = made.create_topic

    def create_and_wait(topic: str, *arguments: Any, **named: Any) -> None:
        create(topic, *arguments, **named)
        eventually(lambda: topic in made.topics())

    if server.kind == "kafka":  # it answers before its brokers know the topic; klog's must know it at once
        made.create_topic = create_and_wait  # type: ignore[method-assign]
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for the topic, group or transactional id of one test."""
    return f"t{next(_NUMBERS)}"


@pytest.fixture
def topic(admin: Admin, name: str) -> str:
    """A new topic with one partition."""
    admin.create_topic(name)
    return name
