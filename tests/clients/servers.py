"""Brokers as separate processes, for clients that know only an address: klog's, and Apache Kafka as the reference.

    with serve("klog") as server:
        connect(server.bootstrap)

Each has a new directory, in /dev/shm if that has enough space. A broker that is killed and started again keeps its
directory and its port.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.interop import kafka as kafka_jars
from tests.interop.broker import Broker
from tests.support.broker_process import BrokerProcess
from tests.support.in_memory import memory

__all__ = ["KINDS", "Server", "Unavailable", "serve"]

KINDS = ("klog", "kafka")
KAFKA_VERSION = "4.1.0"
# These settings make groups quick: a short delay before the first rebalance, and heartbeats of the consumer protocol more
# often than every 5 s. Without any delay kafka-python may lead a group before it knows the topic's partitions, and
# assigns nothing.
_QUICK: dict[str, dict[str, object]] = {
    "klog": {"group.initial.rebalance.delay.ms": 300, "group.consumer.heartbeat.interval.ms": 300},
    "kafka": {
        "group.initial.rebalance.delay.ms": 300,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.consumer.min.heartbeat.interval.ms": 100,
    },
}
Unavailable = kafka_jars.Unavailable


class Server(Protocol):
    """A broker process. To be used by one thread."""

    kind: str

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""

    @property
    def pid(self) -> int:
        """The id of its process."""

    def start(self) -> None:
        """Start it again, after kill()."""

    def stop(self) -> None:
        """End it: klog cleanly, Kafka with SIGKILL."""

    def kill(self) -> None:
        """Send SIGKILL to the process that was started here."""


class _Kafka:
    kind = "kafka"

    def __init__(self, home: Path, properties: Mapping[str, object]) -> None:
        settings: dict[str, Any] = dict(properties)
        self._broker = Broker(kafka_jars.get(KAFKA_VERSION), home, **settings)

    @property
    def bootstrap(self) -> str:
        return self._broker.address

    @property
    def pid(self) -> int:
        return self._broker.pid

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        self._broker.kill()  # a clean stop takes seconds, and the directory is deleted anyway

    def kill(self) -> None:
        self._broker.kill()


class _Klog:
    kind = "klog"

    def __init__(self, home: Path, properties: Mapping[str, object]) -> None:
        self._broker = BrokerProcess(home / "data", dict(properties))

    @property
    def bootstrap(self) -> str:
        return self._broker.address

    @property
    def pid(self) -> int:
        return self._broker.pid

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        status = self._broker.stop()
        log = self._broker.log
        assert status in (None, 0), f"klog's broker ended with {status}:\n{log.read_text()[-6000:]}"

    def kill(self) -> None:
        self._broker.kill()


_SERVERS: dict[str, Callable[[Path, Mapping[str, object]], Server]] = {"klog": _Klog, "kafka": _Kafka}


@contextmanager
def serve(kind: str, properties: Mapping[str, object] | None = None) -> Iterator[Server]:
    """Run a broker of this kind, with these broker properties of Kafka, until the end of the block. Raises Unavailable if
    the machine cannot run it."""
    with tempfile.TemporaryDirectory(prefix="klog-clients-", dir=memory()) as home:
        server = _SERVERS[kind](Path(home), {**_QUICK[kind], **(properties or {})})
        try:
            server.start()
            yield server
            server.stop()
        finally:
            server.kill()
