"""A request that waits is notified when the peer closes its side: once, and only while it waits."""

from __future__ import annotations

import socket
import threading

import pytest

from klog.network import Request
from tests.support.network import Client, Held, ended, frame, serving
from tests.support.patience import until


class Calls:
    """A callback that counts its calls, by thread."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self) -> None:
        self.threads.append(threading.current_thread().name)


@pytest.mark.parametrize("in_network_thread", [True, False])
def test_a_peer_that_closes_its_side_is_noticed_and_still_gets_its_response(in_network_thread: bool) -> None:
    handler, called = Held(), Calls()
    if in_network_thread:
        handler.requests = Registering(called)
    with serving(handler) as server, Client(server.port) as client:
        client.send(b"1")
        request = handler.take()
        if not in_network_thread:
            request.on_disconnect(called)
        assert client.is_silent()
        assert not called.threads
        client.sock.shutdown(socket.SHUT_WR)
        until(lambda: called.threads)
        assert server.metrics()["ConnectionCount"] == 1
        request.respond(frame(b"one"))
        assert client.receive() == b"one"
        assert client.is_closed()
        until(lambda: ended(server))
    assert called.threads == ["klog-network-0"]


class Registering(list[Request]):
    """Requests that have the callback before the test sees them."""

    def __init__(self, callback: Calls) -> None:
        super().__init__()
        self.callback = callback

    def append(self, request: Request) -> None:
        request.on_disconnect(self.callback)
        super().append(request)


def test_a_peer_that_has_gone_before_is_reported_at_once() -> None:
    handler, called = Held(), Calls()
    with serving(handler) as server:
        client = Client(server.port)
        client.send(b"1")
        request = handler.take()
        client.reset()
        until(lambda: ended(server))
        request.on_disconnect(called)
        until(lambda: called.threads)
        request.respond(frame(b"one"))
    assert len(called.threads) == 1


def test_after_the_stop_the_callback_is_called_at_once() -> None:
    handler, called = Held(), Calls()
    with serving(handler) as server, Client(server.port) as client:
        client.send(b"1")
        request = handler.take()
        server.stop(0)
        request.on_disconnect(called)
        assert called.threads == [threading.current_thread().name]


def test_a_request_that_is_complete_is_not_notified() -> None:
    handler, early, last = Held(), Calls(), Calls()
    with serving(handler) as server, Client(server.port) as client:
        client.send(b"1", b"2", b"3")
        request = handler.take()
        request.on_disconnect(early)
        request.respond(frame(b"one"))
        request.on_disconnect(early)
        handler.take().respond(frame(b"two"))
        request = handler.take()
        request.on_disconnect(last)
        client.sock.shutdown(socket.SHUT_WR)
        until(lambda: last.threads)
        request.respond(frame(b"three"))
        assert [client.receive() for _ in range(3)] == [b"one", b"two", b"three"]
    assert (early.threads, len(last.threads)) == ([], 1)


def test_all_requests_that_a_peer_sent_before_its_end_are_handled() -> None:
    """NW2."""
    handler, called = Held(), Calls()
    with serving(handler) as server, Client(server.port) as client:
        client.send(*(b"%d" % number for number in range(10)))
        client.sock.shutdown(socket.SHUT_WR)
        for number in range(10):
            request = handler.take()
            request.on_disconnect(called)
            until(lambda: len(called.threads) == number + 1)  # noqa: B023
            request.respond(frame(bytes(request.frame)))
        assert [client.receive() for _ in range(10)] == [b"%d" % number for number in range(10)]
        assert client.is_closed()


def test_a_callback_that_raises_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    handler = Held()

    def fail() -> None:
        raise RuntimeError("of the callback")

    with serving(handler) as server, Client(server.port) as client:
        client.send(b"1")
        request = handler.take()
        with pytest.raises(TypeError, match="callback=5: a function"):
            request.on_disconnect(5)  # type: ignore[arg-type]
        request.on_disconnect(fail)
        client.sock.shutdown(socket.SHUT_WR)
        until(lambda: "of the callback" in caplog.text)
        request.respond(frame(b"one"))
        assert client.receive() == b"one"
