"""One interface over client libraries: base.py has it, load() makes one."""

from __future__ import annotations

from importlib import import_module

from tests.clients.adapters.base import Admin, Client, Consumer, Login, Message, Partition, Producer, Refused

__all__ = ["CLIENTS", "Admin", "Client", "Consumer", "Login", "Message", "Partition", "Producer", "Refused", "load"]

_WHERE = {
    "confluent": ("confluent", "Confluent"),
    "kafka-python": ("kafka_python", "KafkaPython"),
    "aiokafka": ("aio", "AioKafka"),
}
CLIENTS = tuple(_WHERE)


def load(name: str, bootstrap: str, login: Login | None = None) -> Client:
    """The adapter of a library for a broker, for connections with this login. ImportError if the library is not installed."""
    module, kind = _WHERE[name]
    client: Client = getattr(import_module(f"tests.clients.adapters.{module}"), kind)(bootstrap, login)
    return client
