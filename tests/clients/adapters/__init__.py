"""One interface over client libraries. base.py defines it, load() returns the adapter of a library."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

from tests.clients.adapters.base import Admin, Client, Consumer, Login, Message, Partition, Producer, Refused

__all__ = [
    "CLIENTS",
    "Admin",
    "Client",
    "Consumer",
    "Login",
    "Message",
    "Partition",
    "Producer",
    "Refused",
    "close_all",
    "load",
]

_MODULES = {
    "confluent": ("confluent", "Confluent"),
    "kafka-python": ("kafka_python", "KafkaPython"),
    "aiokafka": ("aio", "AioKafka"),
}
CLIENTS = tuple(_MODULES)


def load(name: str, bootstrap: str, login: Login | None = None) -> Client:
    """The adapter of a library, for connections to this broker with this login. Raises ImportError if the library is not
    installed."""
    module, kind = _MODULES[name]
    client: Client = getattr(import_module(f"tests.clients.adapters.{module}"), kind)(bootstrap, login)
    return _Tracked(client)


_open: list[Producer | Consumer] = []


class _Tracked:
    """A client whose producers and consumers are closed by close_all(). Without that, the threads of those that a failed
    test leaves open would disturb the tests after it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.name, self.lacks = client.name, client.lacks

    def producer(self, **options: Any) -> Producer:
        _open.append(made := self._client.producer(**options))
        return made

    def consumer(self, group: str | None = None, **options: Any) -> Consumer:
        _open.append(made := self._client.consumer(group, **options))
        return made

    def admin(self) -> Admin:
        return self._client.admin()


def close_all() -> None:
    """Close all producers and consumers of the clients from load(). Most of them are closed already, and errors are
    ignored."""
    while _open:
        with contextlib.suppress(Exception):
            _open.pop().close()
