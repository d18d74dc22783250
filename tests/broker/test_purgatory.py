"""The purgatory: requests that wait are completed once, and end when their clients close their connections."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from klog.broker import Broker
from klog.broker.context import RequestContext
from klog.broker.fetch import Fetch
from klog.broker.purgatory import Purgatory
from klog.clock import ManualClock
from klog.network import Connection
from klog.protocol import ApiKey, messages
from klog.scheduler import Scheduler
from tests.broker.test_share_groups import Member
from tests.support.patience import until
from tests.support.wire_client import WireClient

WEEKS_MS = 2**31 - 1


class Operation:
    def __init__(self) -> None:
        self.tried: list[bool] = []
        self.disconnect: Callable[[], object] | None = None

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        self.disconnect = callback

    def try_complete(self, *, expired: bool) -> bool:
        self.tried.append(expired)
        return expired


def test_an_operation_ends_when_its_client_goes() -> None:
    clock = ManualClock()
    purgatory = Purgatory(Scheduler(clock))
    goes, stays = Operation(), Operation()
    for each in (goes, stays):
        purgatory.watch(each, [("t", 0), each], WEEKS_MS)
    assert purgatory.size == 2
    assert goes.disconnect is not None
    goes.disconnect()
    assert (purgatory.size, set(purgatory.watched)) == (1, {("t", 0), stays})
    clock.advance(WEEKS_MS)
    assert (goes.tried, stays.tried) == ([False, True], [False, True])
    assert not purgatory.watched


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", listeners=["127.0.0.1:0"]) as found:
        found.topics.create("t", 1)
        yield found


def until_one_waits(broker: Broker) -> None:
    """Wait until a fetch is in the purgatory."""
    until(lambda: broker.metrics()["PurgatorySize.Fetch"] == 1)


def until_all_have_gone(broker: Broker) -> None:
    """Wait until the broker has neither a waiting fetch nor a connection."""

    def have_gone() -> bool:
        metrics = broker.metrics()
        return metrics["PurgatorySize.Fetch"] == metrics["ConnectionCount"] == 0

    until(have_gone)


def waiting_fetch(broker: Broker) -> Any:
    """A fetch without a session that waits for weeks."""
    Request = messages.Fetch.Request
    topic_id: Any = broker.topics.topic_id("t")
    asked = Request.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return Request(
        session_epoch=-1,
        max_wait_ms=WEEKS_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[Request.Topic(topic_id=topic_id, partitions=[asked])],
    )


def test_clients_that_close_while_their_fetches_wait_leave_nothing(broker: Broker) -> None:
    clients = [WireClient(broker.bootstrap_servers) for _ in range(50)]
    for client in clients:
        client.send(ApiKey.FETCH, 18, waiting_fetch(broker))
    until(lambda: broker.metrics()["PurgatorySize.Fetch"] == len(clients))
    for client in clients:
        client.socket.close()
    until_all_have_gone(broker)
    until(lambda: not any(type(each) in (Connection, RequestContext) for each in gc.get_objects()), pause=0.1)


def test_a_fetch_that_fails_while_it_waits_closes_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is dropped. Its client sends it again."""
    caplog.set_level(logging.CRITICAL + 1, "klog.broker")  # pytest would keep it with the traceback
    with WireClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.FETCH, 18, waiting_fetch(broker))
        until_one_waits(broker)
        monkeypatch.setattr(Fetch, "read_all", None)
        broker.check("t", 0)
        assert client.is_closed()
    until_all_have_gone(broker)


def test_a_fetch_that_arrives_with_the_end_of_its_connection_does_not_wait(broker: Broker) -> None:
    for _ in range(20):
        with WireClient(broker.bootstrap_servers) as client:
            client.send(ApiKey.FETCH, 18, waiting_fetch(broker))
    until(lambda: broker.metrics()["ConnectionsAccepted"] == 20)
    until_all_have_gone(broker)


def test_a_client_that_closes_only_its_side_gets_its_response_at_once(broker: Broker) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.FETCH, 18, waiting_fetch(broker))
        until_one_waits(broker)
        client.socket.shutdown(socket.SHUT_WR)
        response = client.receive(ApiKey.FETCH, 18)
        (part,) = response.responses[0].partitions
        assert (response.error_code, part.error_code, part.records or b"") == (0, 0, b"")
        assert client.is_closed()
    until_all_have_gone(broker)


def test_a_share_fetch_ends_with_its_connection(broker: Broker) -> None:
    """Else it would acquire the next record for a member that is not there."""
    goes = Member(broker)
    goes.heartbeat()
    goes.fetch()
    goes.send(max_wait_ms=WEEKS_MS)
    until_one_waits(broker)
    goes.close()
    until_all_have_gone(broker)
