"""Brokers to compare, each a process of its own, and a client that sends both the same bytes.

klog: `python -m klog broker`. Kafka: 4.3.1 with the JVM options of its own scripts and a heap of 1 GiB. Processor
seconds are those of the broker's process, user and system, all threads.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from bench.contest import Unavailable
from klog.protocol import ApiKey, decode_response, encode_request, messages
from tests.interop import kafka
from tests.interop.broker import Broker as KafkaProcess
from tests.support.resources import resident_bytes
from tests.support.wire_client import WireClient

KAFKA = "4.3.1"
PRODUCE_VERSION, FETCH_VERSION = 13, 17
# kafka-run-class.sh, kafka-server-start.sh
_JVM = (
    "-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
_WAIT_SECONDS = 60.0


class Broker(Protocol):
    """A running broker."""

    name: str
    address: str
    pid: int

    def close(self) -> None:
        """Stop it."""


class KlogBroker:
    """klog's broker."""

    name = "klog broker"

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "klog", "broker", str(folder / "klog"), "--port", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.address: str = json.loads(self._process.stdout.readline())["bootstrap_servers"]
        self.pid = self._process.pid

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_WAIT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


class KafkaBroker:
    """Kafka's broker. Raises Unavailable if there is no JDK or if the jars are missing."""

    name = f"Kafka {KAFKA}"

    def __init__(self, folder: Path) -> None:
        try:
            found = kafka.get(KAFKA)
        except kafka.Unavailable as missing:
            raise Unavailable(str(missing)) from missing
        self._broker = KafkaProcess(found, folder / "kafka", _JVM, **{"auto.create.topics.enable": "false"}).start()
        self.address = self._broker.address
        self.pid = self._broker.pid

    def close(self) -> None:
        self._broker.kill()


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of all threads of a process, user and system: the clock of
    clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def cost(broker: Broker, work: Callable[[], object]) -> float:
    """Return the processor seconds of a broker during this work."""
    before = processor_seconds(broker.pid)
    work()
    return processor_seconds(broker.pid) - before


def resident(broker: Broker) -> int:
    """Return the resident bytes of a broker."""
    return resident_bytes(broker.pid)


class Client(WireClient):
    """A client with one connection."""

    def __init__(self, address: str) -> None:
        super().__init__(address, "bench")
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(2 << 20))

    def create_topic(self, name: str, partitions: int = 1) -> Any:
        """Create a topic, wait until its partitions have leaders, and return its id."""
        topic = messages.CreateTopics.Request.Topic(name=name, num_partitions=partitions, replication_factor=1)
        found = self.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000).topics[0]
        assert found.error_code == 0, found
        until = time.monotonic() + _WAIT_SECONDS
        while None in self.end_offsets(name, partitions):
            assert time.monotonic() < until, f"the partitions of topic {name} have no leaders"
            time.sleep(0.05)
        return found.topic_id

    def end_offsets(self, topic: str, partitions: int = 1) -> list[int | None]:
        """Return the log end offset of each partition; None while it has no leader."""
        Request = messages.ListOffsets.Request
        numbers = [Request.Partition(partition_index=number, timestamp=-1) for number in range(partitions)]
        asked = Request.Topic(name=topic, partitions=numbers)
        found = self.call(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[asked]).topics[0].partitions
        return [None if each.error_code else each.offset for each in found]

    def exchange(self, frame: bytes, count: int, size: int, in_flight: int = 1) -> None:
        """Send a request `count` times, up to so many in flight. Each response is a frame of `size` bytes."""
        for number in range(count + in_flight):
            if number >= in_flight:
                self._receive(4)
                found = 4 + int.from_bytes(self._buffer[:4], "big")
                assert found == size, f"a response of {found} bytes, {size} expected"
                self._receive(found - 4)
            if number < count:
                self.socket.sendall(frame)

    def _receive(self, size: int) -> None:
        """Receive `size` bytes into the buffer."""
        got = 0
        while got < size:
            part = self.socket.recv_into(self._buffer[: size - got])
            assert part, "the broker has closed the connection"
            got += part

    def response_size(self, frame: bytes, api: ApiKey, version: int) -> tuple[int, Any]:
        """Send a request once. Returns (bytes of the response's frame, response)."""
        self.socket.sendall(frame)
        found = self.frame()
        return 4 + len(found), decode_response(api, version, found)[1]


def produce_frame(topic_id: Any, records: bytes, *, partition: int = 0, acks: int = 1) -> bytes:
    """Return the frame of a Produce request for one partition."""
    Request = messages.Produce.Request
    asked = Request.Topic(topic_id=topic_id, partition_data=[Request.Partition(index=partition, records=records)])
    request = Request(acks=acks, timeout_ms=30_000, topic_data=[asked])
    return b"".join(encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "bench", request))


def fetch_frame(
    topic_id: Any,
    partitions: dict[int, int],
    max_bytes: int,
    *,
    session: tuple[int, int] = (0, -1),
    max_wait_ms: int = 0,
) -> bytes:
    """Return the frame of a Fetch request for {partition: offset}. session: id and epoch."""
    Request = messages.Fetch.Request
    asked = [
        Request.Partition(partition=number, fetch_offset=offset, partition_max_bytes=max_bytes)
        for number, offset in partitions.items()
    ]
    request = Request(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[Request.Topic(topic_id=topic_id, partitions=asked)] if asked else [],
    )
    return b"".join(encode_request(ApiKey.FETCH, FETCH_VERSION, 1, "bench", request))
