"""The times of responses: in the queue of the network thread, during sending, and in total."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from klog.clock import ManualClock
from klog.durations import Durations
from klog.network import Listener, Request
from klog.network.tls import tls_context
from tests.support.network import Client, Held, Inline, frame, serving
from tests.support.patience import PATIENCE, until
from tests.support.tls import made

LARGE = bytes(64 << 20)  # more than the buffers of both sockets


class Times:
    """Measures requests on a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue, self.send, self.total = Durations(), Durations(), Durations()

    def measure(self, request: Request) -> None:
        request.measure(self.clock.monotonic(), self.queue, self.send, self.total)

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.queue.count, self.send.count, self.total.count


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_slow_reader_makes_sending_long(times: Times, tmp_path: Path, encrypted: bool) -> None:
    def handle(request: Request) -> None:
        large = bytes(request.frame) == b"large"
        times.measure(request)
        request.respond([len(LARGE).to_bytes(4, "big"), LARGE] if large else frame(b"small"))

    keys = made(tmp_path / "keys", "/CN=localhost") if encrypted else None
    listener = Listener(name="SSL", context=tls_context(keys.certificate, keys.key)) if keys else Listener()
    with (
        serving(Inline(handle), listener, clock=times.clock) as server,
        Client(server.port, context=keys.trusting if keys else None) as client,
    ):
        client.send(b"small", b"large")
        assert client.receive() == b"small"
        until(lambda: times.send.count == 1)
        assert times.send.longest == 0
        times.clock.advance(5_000)
        assert len(client.receive()) == len(LARGE)
        until(lambda: times.send.count == 2)
    assert times.counts == (2, 2, 2)
    assert times.queue.longest == 0
    assert times.send.longest == times.total.longest == 5


def test_a_response_waits_for_its_network_thread(times: Times) -> None:
    held, busy, go_on = Held(), threading.Event(), threading.Event()

    def handle(request: Request) -> None:
        if bytes(request.frame) == b"held":
            held(request)
            return
        busy.set()
        assert go_on.wait(PATIENCE)
        request.respond(frame(b"busy"))

    with (
        serving(Inline(handle), clock=times.clock, num_network_threads=1) as server,
        Client(server.port) as one,
        Client(server.port) as other,
    ):
        one.send(b"held")
        request = held.take()
        other.send(b"busy")
        assert busy.wait(PATIENCE)
        times.clock.advance(2_000)
        times.measure(request)
        request.respond(frame(b"done"))
        times.clock.advance(3_000)
        go_on.set()
        assert one.receive() == b"done"
        until(lambda: times.total.count == 1)
    assert times.counts == (1, 1, 1)
    assert (times.queue.longest, times.send.longest, times.total.longest) == (3, 0, 5)


@pytest.mark.parametrize("ending", ["respond", "no_response", "close", "refuse_authentication"])
def test_a_request_is_measured_once_however_it_ends_and_also_when_its_peer_has_gone(times: Times, ending: str) -> None:
    def complete(request: Request) -> None:
        times.measure(request)
        getattr(request, ending)(*[frame(b"x")] * (ending in {"respond", "refuse_authentication"}))
        times.measure(request)

    held = Held()
    with serving(held, clock=times.clock, failed_authentication_delay_ms=1_000) as server:
        with Client(server.port) as client:
            client.send(b"a")
            complete(held.take())
            until(lambda: times.queue.count == 1)
            client.reset()
        until(lambda: server.metrics()["ConnectionCount"] == 0)
        assert times.counts == (1, 1, 1)
        with Client(server.port) as client:
            client.send(b"b")
            request = held.take()
            client.reset()
        until(lambda: server.metrics()["ConnectionCount"] == 0)
        complete(request)
        until(lambda: times.total.count == 2)
    assert times.counts == (2, 2, 2)


def test_a_response_that_is_never_read_is_measured_when_its_connection_is_closed(times: Times) -> None:
    def handle(request: Request) -> None:
        times.measure(request)
        request.respond([LARGE])

    with serving(Inline(handle), clock=times.clock) as server, Client(server.port) as client:
        client.send(b"x")
        until(lambda: server.metrics()["NetworkBytesOut"] > 0)
        times.clock.advance(4_000)
        assert times.counts == (1, 0, 0)
        client.reset()
        until(lambda: server.metrics()["ConnectionCount"] == 0)
    assert times.counts == (1, 1, 1)
    assert times.send.longest == 4


def test_responses_that_leave_together_share_their_looks_at_the_clock() -> None:
    class Counting(ManualClock):
        looks = 0

        def monotonic(self) -> float:
            self.looks += 1
            return super().monotonic()

    times = Times()
    times.clock = clock = Counting()

    def handle(request: Request) -> None:
        request.measure(0.0, times.queue, times.send, times.total)
        request.respond(frame(b"x"))

    with serving(Inline(handle), clock=clock) as server, Client(server.port) as client:
        client.ask(b"x")
        before = clock.looks
        client.send(*[b"x"] * 1000)
        for _ in range(1000):
            client.receive()
        until(lambda: times.total.count == 1001)
        assert clock.looks - before < 250
