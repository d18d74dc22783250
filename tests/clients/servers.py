"""Brokers as separate processes, for clients that know only an address: klog's, and Apache Kafka as the reference.

    with serve("klog") as server:
        connect(server.bootstrap)

Each has a clean directory, in memory where there is room. Stopping is clean; only the process started here is killed.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop import kafka as kafka_jars
from tests.interop.broker import Broker
from tests.support.patience import PATIENCE

__all__ = ["KINDS", "Server", "Unavailable", "serve"]

KINDS = ("klog", "kafka")
KAFKA_VERSION = "4.1.0"
# What makes groups quick: no delay before the first rebalance, and members of the consumer protocol that report more
# often than every 5 s.
_QUICK: dict[str, dict[str, object]] = {
    "klog": {"group.initial.rebalance.delay.ms": 0, "group.consumer.heartbeat.interval.ms": 300},
    "kafka": {"group.consumer.heartbeat.interval.ms": 300, "group.consumer.min.heartbeat.interval.ms": 100},
}
_MEMORY = Path("/dev/shm")
_MEMORY_BYTES_MIN = 4 << 30
Unavailable = kafka_jars.Unavailable


@dataclass(frozen=True)
class Server:
    """A running broker: its kind, host:port for clients, process, and the directory with its data and log output."""

    kind: str
    bootstrap: str
    pid: int
    home: Path


@contextmanager
def serve(kind: str, properties: Mapping[str, object] | None = None) -> Iterator[Server]:
    """A broker of this kind, with these broker properties of Kafka, until the end of the block. Raises Unavailable if the
    machine cannot run it."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES_MIN
    with (
        tempfile.TemporaryDirectory(prefix="klog-clients-", dir=_MEMORY if roomy else None) as home,
        _STARTERS[kind](Path(home), {**_QUICK[kind], **(properties or {})}) as server,
    ):
        yield server


@contextmanager
def _kafka(home: Path, properties: Mapping[str, object]) -> Iterator[Server]:
    broker = Broker(kafka_jars.get(KAFKA_VERSION), home, **dict(properties))
    broker.start()
    try:
        yield Server("kafka", broker.address, broker.pid, home)
    finally:
        broker.kill()


@contextmanager
def _klog(home: Path, properties: Mapping[str, object]) -> Iterator[Server]:
    command = [sys.executable, "-P", "-m", "klog", "broker", str(home / "data"), "--port", "0", "--json"]
    for name, value in properties.items():
        command += ["--config", f"{name}={value}"]
    with (home / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()  # ends when the process does
        facts = json.loads(line or "{}")
        if "bootstrap_servers" not in facts:
            raise AssertionError(f"klog's broker did not start: {facts}\n{(home / 'broker.log').read_text()[-6000:]}")
        yield Server("klog", facts["bootstrap_servers"], process.pid, home)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


_STARTERS = {"klog": _klog, "kafka": _kafka}
