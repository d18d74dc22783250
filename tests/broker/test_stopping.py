"""A broker that stops first completes the requests that it has received. Their responses are the same as before the stop."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from klog.broker import Broker
from klog.protocol import ApiKey, messages
from tests.support.patience import until
from tests.support.wire_client import WireClient


class Holding:
    """A gate that holds every request until the test lets it continue."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def admit(self, _context: Any, go_on: Callable[[], None]) -> bool:
        self.held.append(go_on)
        return False


@contextlib.contextmanager
def stopping(broker: Broker) -> Iterator[None]:
    """Within the block the broker refuses connections, and waits for the requests that it has."""
    address = ("127.0.0.1", broker.port)
    thread = threading.Thread(target=broker.stop)
    thread.start()

    def refuses() -> bool:
        with contextlib.suppress(ConnectionError), socket.create_connection(address):
            return False
        return True

    until(refuses)
    try:
        yield
    finally:
        thread.join()


def test_a_request_during_the_stop_gets_the_metadata_of_its_broker(tmp_path: Path) -> None:
    gate = Holding()
    broker = Broker(tmp_path / "data", listeners=["127.0.0.1:0"], gates=(gate,)).start()
    broker.logs.create_topic("t")
    port = broker.port
    with WireClient(broker.bootstrap_servers) as client:
        Request = messages.Metadata.Request
        client.send(ApiKey.METADATA, 9, Request(topics=[Request.Topic(name="t")]))
        until(lambda: gate.held)
        with stopping(broker):
            gate.held.pop()()
            found = client.receive(ApiKey.METADATA, 9)
    assert [each.port for each in found.brokers] == [port]
    assert [(each.error_code, len(each.partitions)) for each in found.topics] == [(0, 1)]


def test_a_fetch_during_the_stop_does_not_wait(tmp_path: Path) -> None:
    """Consumers fetch again as soon as the stop has completed their fetches."""
    gate = Holding()
    broker = Broker(tmp_path / "data", listeners=["127.0.0.1:0"], gates=(gate,)).start()
    broker.logs.create_topic("t")
    with WireClient(broker.bootstrap_servers) as client:
        Request = messages.Fetch.Request
        topic = Request.Topic(topic="t", partitions=[Request.Partition(partition=0, partition_max_bytes=1000)])
        client.send(ApiKey.FETCH, 12, Request(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=1000, topics=[topic]))
        until(lambda: gate.held)
        with stopping(broker):
            gate.held.pop()()
            found = client.receive(ApiKey.FETCH, 12)
    assert [each.error_code for each in found.responses[0].partitions] == [0]
