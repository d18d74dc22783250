"""Brokers as separate processes, for clients that know only an address: klog's, and Apache Kafka as the reference.

    with serve("klog") as server:
        connect(server.bootstrap)

Each has a clean directory, in memory where there is room, and keeps it and its port if it is killed and started again.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.interop import kafka as kafka_jars
from tests.interop.broker import Broker
from tests.support.patience import PATIENCE
from tests.support.sockets import KeptPort

__all__ = ["KINDS", "Server", "Unavailable", "serve"]

KINDS = ("klog", "kafka")
KAFKA_VERSION = "4.1.0"
# What makes groups quick: a short delay before the first rebalance, and members of the consumer protocol that report
# more often than every 5 s. Without any delay kafka-python may lead a group before it knows the topic's partitions, and
# assigns nothing.
_QUICK: dict[str, dict[str, object]] = {
    "klog": {"group.initial.rebalance.delay.ms": 100, "group.consumer.heartbeat.interval.ms": 300},
    "kafka": {
        "group.initial.rebalance.delay.ms": 100,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.consumer.min.heartbeat.interval.ms": 100,
    },
}
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 4 << 30
Unavailable = kafka_jars.Unavailable


class Server(Protocol):
    """A running broker. One thread."""

    kind: str
    home: Path  # its data and log output

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""

    @property
    def pid(self) -> int:
        """Its process."""

    def start(self) -> None:
        """Start it again, after kill()."""

    def stop(self) -> None:
        """A clean shutdown."""

    def kill(self) -> None:
        """SIGKILL, of the process started here."""


class _Kafka:
    kind = "kafka"

    def __init__(self, home: Path, properties: Mapping[str, object]) -> None:
        self.home = home
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
        self._broker.kill()  # a clean stop takes seconds, and its directory goes

    def kill(self) -> None:
        self._broker.kill()


class _Klog:
    kind = "klog"

    def __init__(self, home: Path, properties: Mapping[str, object]) -> None:
        self.home = home
        self._properties = properties
        self._port = KeptPort()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port.number}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        assert self._process is None
        command = [
            sys.executable,
            "-P",
            "-m",
            "klog",
            "broker",
            str(self.home / "data"),
            "--port",
            str(self._port.number),
        ]
        for name, value in self._properties.items():
            command += ["--config", f"{name}={value}"]
        log = self.home / "broker.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [*command, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        assert process.stdout is not None
        with process.stdout as output:
            facts = json.loads(output.readline() or "{}")  # the line ends when the process does
        self._process = process
        if facts.get("port") != self._port.number:
            self.kill()
            raise AssertionError(f"klog's broker did not start: {facts}\n{log.read_text()[-6000:]}")

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(PATIENCE)
        finally:
            self.kill()
        assert status == 0, f"klog's broker ended with {status}:\n{(self.home / 'broker.log').read_text()[-6000:]}"

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


_SERVERS: dict[str, Callable[[Path, Mapping[str, object]], Server]] = {"klog": _Klog, "kafka": _Kafka}


@contextmanager
def serve(kind: str, properties: Mapping[str, object] | None = None) -> Iterator[Server]:
    """A broker of this kind, with these broker properties of Kafka, until the end of the block. Raises Unavailable if the
    machine cannot run it."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_MIN
    with tempfile.TemporaryDirectory(prefix="klog-clients-", dir=_MEMORY if roomy else None) as home:
        server = _SERVERS[kind](Path(home), {**_QUICK[kind], **(properties or {})})
        try:
            server.start()
            yield server
            server.stop()
        finally:
            server.kill()
