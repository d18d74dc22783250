"""A broker that stops first completes the requests that it has received. Their responses are the same as before the stop."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
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


def test_a_request_during_the_stop_gets_the_metadata_of_its_broker(tmp_path: Path) -> None:
    gate = Holding()
    broker = Broker(tmp_path / "data", listeners=["127.0.0.1:0"], gates=(gate,)).start()
    broker.logs.create_topic("t")
    address = ("127.0.0.1", broker.port)
    with WireClient(broker.bootstrap_servers) as client:
        Request = messages.Metadata.Request
        client.send(ApiKey.METADATA, 9, Request(topics=[Request.Topic(name="t")]))
        until(lambda: gate.held)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()

        def refuses() -> bool:
            with contextlib.suppress(ConnectionError), socket.create_connection(address):
                return False
            return True

        until(refuses)
        gate.held.pop()()
        found = client.receive(ApiKey.METADATA, 9)
        stopping.join()
    assert [each.port for each in found.brokers] == [address[1]]
    assert [(each.error_code, len(each.partitions)) for each in found.topics] == [(0, 1)]
