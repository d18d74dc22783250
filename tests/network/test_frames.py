"""Requests and responses: bytes arrive in pieces of every kind, and responses have parts of every kind."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from klog.network import Request, Server
from tests.support.network import Client, Held, Inline, echo, ended, frame, serving
from tests.support.patience import until


@pytest.fixture(params=["inline", "threads"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(Inline() if request.param == "inline" else echo) as server:
        yield server


def test_requests_of_all_sizes_in_all_fragments(server: Server) -> None:
    """One byte at a time, several requests at once, cuts inside the size prefix, frames larger than every buffer."""
    chance = random.Random(11)
    sizes = [0, 1, 3, 4096, 4097, 65_535, 131_068, 131_072, 700_000, *(chance.randrange(300) for _ in range(200))]
    bodies = [chance.randbytes(size) for size in sizes]
    stream = b"".join(map(frame, bodies))

    def send(client: Client) -> None:
        at = 0
        while at < len(stream):
            size = chance.choice([1, 2, 3, 5, 100, 1000, 70_000, 200_000])
            client.sock.sendall(stream[at : at + size])
            at += size

    with Client(server.port) as client:
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender = threading.Thread(target=send, args=(client,))
        sender.start()
        assert [client.receive() for _ in bodies] == bodies
        sender.join()
    until(lambda: ended(server))
    metrics = server.metrics()
    assert metrics["NetworkBytesIn"] == metrics["NetworkBytesOut"] == len(stream)
    assert metrics["RequestsReceived"] == len(bodies)


def test_many_connections_at_once(server: Server) -> None:
    clients = [Client(server.port) for _ in range(50)]
    for round_ in range(3):
        for number, client in enumerate(clients):
            client.send(b"%d %d" % (number, round_), b"x" * number)
    for round_ in range(3):
        for number, client in enumerate(clients):
            assert client.receive() == b"%d %d" % (number, round_)
            assert client.receive() == b"x" * number
    for client in clients:
        client.sock.close()


def test_one_request_of_a_connection_is_handled_at_a_time_and_responses_keep_their_order() -> None:
    """Completed from another thread, with parts of every type."""
    handler = Held()
    with serving(handler) as server, Client(server.port) as client, Client(server.port) as other:
        client.send(b"1", b"2", b"3")
        first = handler.take()
        other.send(b"other")
        assert bytes(handler.take().frame) == b"other"
        assert handler.requests == []
        kept = first.frame[:1]
        first.respond((frame(b"a")[:2], bytearray(frame(b"a")[2:]), b""))
        assert kept == b"1", "a view that the handler keeps stays valid"
        for expected, body in ((b"2", b"b"), (b"3", b"c")):
            request = handler.take()
            assert request.frame == expected
            request.respond(memoryview(frame(body)))
            with pytest.raises(ValueError, match="released"):
                bytes(request.frame)
            with pytest.raises(RuntimeError, match="completed before"):
                request.close()
        assert [client.receive() for _ in range(3)] == [b"a", b"b", b"c"]


def test_a_request_without_a_response_lets_the_next_one_in(server: Server) -> None:
    def silent_or_echo(request: Request) -> None:
        if request.frame == b"silent":
            request.no_response()
        else:
            echo(request)

    with serving(Inline(silent_or_echo)) as quiet, Client(quiet.port) as client:
        client.send(b"silent", b"silent", b"loud", b"silent", b"end")
        assert [client.receive(), client.receive()] == [b"loud", b"end"]


def test_close_sends_the_responses_before_it() -> None:
    def close_at_end(request: Request) -> None:
        if request.frame == b"close":
            request.close()
        else:
            echo(request)

    with serving(Inline(close_at_end)) as server, Client(server.port) as client:
        client.send(b"1", b"2", b"close", b"3")
        assert [client.receive(), client.receive()] == [b"1", b"2"]
        assert client.is_closed()


@pytest.mark.parametrize("ends", ["shutdown", "close"])
def test_requests_before_the_end_of_the_peer_are_handled_and_a_partial_one_is_dropped(ends: str) -> None:
    """Ten complete requests without responses, and the start of one more. NW2."""
    handled: list[bytes] = []

    def note(request: Request) -> None:
        handled.append(bytes(request.frame))
        request.no_response()

    with serving(note) as server:
        client = Client(server.port)
        client.sock.sendall(b"".join(frame(b"%d" % number) for number in range(10)) + frame(b"partial")[:-1])
        if ends == "close":
            client.sock.close()
        else:
            client.sock.shutdown(socket.SHUT_WR)
            assert client.is_closed()
            client.sock.close()
        until(lambda: ended(server))
    assert handled == [b"%d" % number for number in range(10)]


def test_a_half_closed_peer_gets_all_responses() -> None:
    handler = Held()
    with serving(handler) as server, Client(server.port) as client:
        client.send(b"1", b"2")
        client.sock.shutdown(socket.SHUT_WR)
        for body in (b"1", b"2"):
            request = handler.take()
            assert request.frame == body
            request.respond(frame(body))
        assert [client.receive(), client.receive()] == [b"1", b"2"]
        assert client.is_closed()


def test_a_reset_ends_the_connection_and_the_late_response_is_counted() -> None:
    handler = Held()
    with serving(handler) as server:
        client = Client(server.port)
        client.send(b"1", b"2")
        request = handler.take()
        client.reset()
        until(lambda: ended(server))
        assert request.connection.closed
        request.respond(frame(b"late"))
        until(lambda: server.metrics()["ResponsesToClosedConnections"] == 1)
        assert handler.requests == []


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1001])
def test_a_size_prefix_beyond_the_limits_closes_the_connection(size: int) -> None:
    with serving(socket_request_max_bytes=1000) as server, Client(server.port) as other:
        with Client(server.port) as client:
            client.send(b"good")
            client.sock.sendall(struct.pack(">i", size) + b"x" * 100)
            assert client.receive() == b"good"
            assert client.is_closed()
        assert server.metrics()["FramesRefused"] == 1
        assert other.ask(b"x" * 1000) == b"x" * 1000


def test_memory_grows_with_the_bytes_that_arrive_not_with_the_announced_size() -> None:
    """A hundred connections announce 16 MiB each and send 1,000 bytes."""
    from tests.support.resources import allocated_bytes

    with serving() as server:
        clients = [Client(server.port) for _ in range(100)]
        before = allocated_bytes()
        for client in clients:
            client.sock.sendall(struct.pack(">i", 16 << 20) + b"x" * 1000)
        until(lambda: server.metrics()["NetworkBytesIn"] == 100 * 1004)
        assert allocated_bytes() - before < 4 << 20
        for client in clients:
            client.sock.close()


@pytest.mark.parametrize("inline", [True, False])
def test_an_exception_of_a_handler_closes_its_connection_only(inline: bool, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Request) -> None:
        if request.frame == b"fail":
            raise LookupError("planted")
        echo(request)

    with serving(Inline(fail) if inline else fail) as server, Client(server.port) as other:
        with Client(server.port) as client:
            client.send(b"fail")
            assert client.is_closed()
        assert other.ask(b"good") == b"good"
    assert "planted" in caplog.text


def test_a_dropped_request_closes_its_connection() -> None:
    with serving(lambda request: None) as server, Client(server.port) as client:
        client.send(b"dropped")
        assert client.is_closed()


def test_a_full_queue_holds_requests_back_and_loses_none() -> None:
    """Two may wait; the handler threads are held until all clients have sent."""
    go = threading.Event()

    def wait(request: Request) -> None:
        go.wait()
        echo(request)

    with serving(wait, queued_max_requests=2, num_io_threads=1) as server:
        clients = [Client(server.port) for _ in range(20)]
        for number, client in enumerate(clients):
            client.send(b"%d" % number, b"again")
        try:
            until(lambda: server.metrics()["RequestsReceived"] == 20 and server.metrics()["RequestQueueSize"] == 2)
        finally:
            go.set()
        for number, client in enumerate(clients):
            assert [client.receive(), client.receive()] == [b"%d" % number, b"again"]
            client.sock.close()
        metrics = server.metrics()
        assert metrics["RequestQueueTimeMsCount"] == 40
        assert 0 <= metrics["RequestHandlerAvgIdlePercent"] <= 1
        assert 0 <= metrics["NetworkProcessorAvgIdlePercent"] <= 1
