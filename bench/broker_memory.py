"""The memory of a broker: python -m bench.broker_memory [--connections 10000] [--without-kafka]

Prints the resident bytes of klog's broker and of Kafka's when idle, and with idle connections that have sent one
request each; and for each broker the bytes of one connection.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.broker_peers import Broker, KafkaBroker, KlogBroker
from bench.contest import Unavailable
from klog.protocol import ApiKey, encode_request, messages
from tests.support.resources import resident_bytes


def connected(broker: Broker, count: int) -> list[socket.socket]:
    """Return connections that have sent an ApiVersions request, which clients send first."""
    frame = b"".join(encode_request(ApiKey.API_VERSIONS, 0, 1, "bench", messages.ApiVersions.Request()))
    host, _, port = broker.address.rpartition(":")
    found = []
    for _ in range(count):
        sock = socket.create_connection((host, int(port)), timeout=60)
        sock.sendall(frame)
        size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
        assert len(sock.recv(size, socket.MSG_WAITALL)) == size
        found.append(sock)
    return found


def measure(make: Callable[[Path], Broker], count: int) -> None:
    """Print a line about one broker."""
    with tempfile.TemporaryDirectory(prefix="klog-bench-") as folder:
        broker = make(Path(folder))
        try:
            for each in connected(broker, min(count, 100)):
                each.close()
            idle = resident_bytes(broker.pid)
            connections = connected(broker, count)
            busy = resident_bytes(broker.pid)
            for each in connections:
                each.close()
        finally:
            broker.close()
    print(
        f"{broker.name:<14} {idle / 2**20:8.1f} MiB idle {busy / 2**20:8.1f} MiB with {count:,} connections, "
        f"{(busy - idle) / count:8.0f} bytes each",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.broker_memory", description="the memory of a broker")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--without-kafka", action="store_true")
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    measure(KlogBroker, asked.connections)
    if not asked.without_kafka:
        try:
            measure(KafkaBroker, asked.connections)
        except Unavailable as missing:
            print(f"Kafka          needs: {missing}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
