"""Limits of time, memory and numbers, and the behaviour at each limit: fault model rows 34, 35, 36, 39."""

from __future__ import annotations

import gc
import resource
import socket
import struct
from pathlib import Path

import pytest

from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.network import Connection, FileSlice, Listener, Request
from tests.support.network import Client, Held, Inline, echo, ended, frame, serving
from tests.support.patience import PATIENCE, until
from tests.support.sockets import again_and_again

# ---- time -----------------------------------------------------------------------------------------------------------


def test_idle_connections_are_closed_also_with_a_request_that_is_being_handled() -> None:
    clock, handler = ManualClock(), Held()
    with serving(handler, clock=clock, connections_max_idle_ms=5_000) as server:
        with Client(server.port) as idle, Client(server.port) as busy, Client(server.port) as muted:
            muted.send(b"never completed", b"next")
            held = handler.take()
            clock.advance(4_000)
            busy.send(b"a")
            handler.take().respond(frame(b"a"))
            assert busy.receive() == b"a"
            clock.advance(4_000)
            assert idle.is_closed() and muted.is_closed()
            busy.send(b"b")
            handler.take().respond(frame(b"b"))
            assert busy.receive() == b"b"
            assert server.metrics()["ExpiredConnectionsKilledCount"] == 2
        held.respond(frame(b"too late"))
        until(lambda: server.metrics()["ResponsesToClosedConnections"] == 1)


def test_a_frame_that_takes_too_long_closes_its_connection_however_busy_it_is() -> None:
    """Slowloris: a byte a second."""
    clock = ManualClock()
    with serving(clock=clock, frame_ms=10_000) as server, Client(server.port) as slow, Client(server.port) as other:
        slow.sock.sendall(b"\0\0")
        for second in range(8):
            received = server.metrics()["NetworkBytesIn"]
            slow.sock.sendall(b"\0" if second < 1 else b"d" if second == 1 else b"x")
            until(lambda received=received: server.metrics()["NetworkBytesIn"] > received)
            clock.advance(1_000)
        assert other.ask(b"good") == b"good"
        assert slow.is_silent()
        clock.advance(3_000)
        assert slow.is_closed()
        clock.advance(60_000)
        assert other.ask(b"good") == b"good", "the clock of a frame ends with it"


@pytest.mark.parametrize("silent", [False, True])
def test_a_throttled_connection_is_not_read_until_its_time_is_over(silent: bool) -> None:
    """The response leaves at once. KIP-219. NW5."""

    def throttle(request: Request) -> None:
        if request.frame == b"plain":
            echo(request)
        elif silent:
            request.no_response(throttle_ms=3_000)
        else:
            request.respond(frame(b"throttled"), throttle_ms=3_000)

    clock = ManualClock()
    with serving(Inline(throttle), clock=clock) as server, Client(server.port) as client:
        client.send(b"throttle", b"plain")
        if not silent:
            assert client.receive() == b"throttled"
        until(lambda: server.metrics()["RequestsThrottled"] == 1)
        clock.advance(1_500)
        assert client.is_silent()
        assert server.metrics()["RequestsReceived"] == 1
        clock.advance(2_500)
        assert client.receive() == b"plain"


def test_a_throttle_that_is_over_before_the_response_has_left() -> None:
    """The peer reads the large response only after the throttle."""
    large = b"x" * (8 << 20)

    def throttle(request: Request) -> None:
        if request.frame == b"plain":
            echo(request)
        else:
            request.respond(frame(large), throttle_ms=2_000)

    clock = ManualClock()
    with serving(Inline(throttle), clock=clock) as server, Client(server.port, receive_buffer=4096) as client:
        client.send(b"large", b"plain")
        until(lambda: server.metrics()["RequestsThrottled"] == 1)
        clock.advance(4_000)
        assert client.receive() == large
        assert client.receive() == b"plain"


def test_connections_that_are_closed_while_they_are_throttled_use_no_memory() -> None:
    handler = Inline(lambda request: request.respond(frame(b"throttled"), throttle_ms=2**31 - 1))
    with serving(handler, num_network_threads=1) as server:
        for _ in range(1_100):
            with Client(server.port) as client:
                client.send(b"throttle")
                assert client.receive() == b"throttled"
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at once
        until(lambda: ended(server))
        gc.collect()
        assert sum(type(each) is Connection for each in gc.get_objects()) < 200


def test_a_refused_authentication_is_answered_after_a_delay() -> None:
    clock = ManualClock()
    handler = Inline(lambda request: request.refuse_authentication(frame(b"no")))
    with serving(handler, clock=clock) as server, Client(server.port) as client:
        client.send(b"password", b"not looked at")
        until(lambda: server.metrics()["RequestsReceived"] == 1)
        assert client.is_silent()
        clock.advance(1_100)
        assert client.receive() == b"no"
        assert client.is_closed()


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_before_authentication_requests_are_smaller() -> None:
    def log_in(request: Request) -> None:
        if request.frame == b"password":
            request.connection.authenticate("User:me")
        request.connection.state = [*(request.connection.state or []), len(request.frame)]
        request.respond(frame(f"{request.connection.principal} {request.connection.state}".encode()))

    listener = Listener(name="SASL_PLAINTEXT", authenticates=True)
    with serving(log_in, listener, unauthenticated_request_max_bytes=10) as server:
        with Client(server.port) as client:
            assert client.ask(b"x" * 10) == b"User:ANONYMOUS [10]"
            assert client.ask(b"password") == b"User:me [10, 8]"
            assert client.ask(b"x" * 10_000) == b"User:me [10, 8, 10000]"
        with Client(server.port) as client:
            client.send(b"x" * 11)
            assert client.is_closed()


def test_a_peer_that_does_not_read_costs_a_bounded_amount_and_others_are_served(tmp_path: Path) -> None:
    """It sends requests forever: they stay in its own socket."""
    answer = frame(b"x" * 100_000)
    handled = []

    def respond(request: Request) -> None:
        handled.append(request.frame == b"other")
        request.respond(answer)

    limits = {"socket_send_buffer_bytes": 65536}
    with (
        serving(Inline(respond), **limits) as server,
        Client(server.port) as other,
        Client(server.port, receive_buffer=4096) as client,
    ):
        client.sock.setblocking(False)
        requests = frame(b"y" * 1000) * 10
        with pytest.raises(BlockingIOError):
            again_and_again(lambda: client.sock.send(requests), 10_000)
        assert other.ask(b"other") == answer[4:]
        unread = handled.count(False)
        assert unread < 40, "responses of more than the sockets' buffers and one wait"
        client.sock.settimeout(PATIENCE)
        for _ in range(unread + 1):
            assert client.receive() == answer[4:]


def test_a_depleted_pool_stops_reading_and_goes_on_when_memory_is_back() -> None:
    """Two frames of 600 bytes are admitted to 1,000 bytes, a third waits. engine semantics 11.3."""
    handler = Held()
    with serving(handler, queued_max_request_bytes=1000) as server:
        clients = [Client(server.port) for _ in range(12)]
        for client in clients[:2]:
            client.send(b"x" * 600)
        first, second = handler.take(), handler.take()
        assert server.metrics()["MemoryPoolAvailable"] == -200
        for number, client in enumerate(clients[2:]):
            client.send(b"%d" % number * 600)
        assert clients[0].is_silent()
        assert handler.requests == []
        clients[11].reset()
        first.respond(frame(b"first"))
        second.respond(frame(b"second"))
        done = 0
        while done < 9:
            request = handler.take()
            request.respond([struct.pack(">i", len(request.frame)), bytes(request.frame)])
            done += request.frame != b"9" * 600
        for number, client in enumerate(clients[2:11]):
            assert client.receive() == b"%d" % number * 600
            client.sock.close()
        until(lambda: server.metrics()["MemoryPoolAvailable"] == 1000)
        assert server.metrics()["MemoryPoolDepletedTimeTotal"] > 0


def test_a_request_that_has_released_its_frame_needs_no_memory() -> None:
    handler = Held()
    with serving(handler, queued_max_request_bytes=1000) as server, Client(server.port) as client:
        client.send(b"x" * 600)
        request = handler.take()
        assert server.metrics()["MemoryPoolAvailable"] == 400
        for _ in range(2):
            request.release()
            assert server.metrics()["MemoryPoolAvailable"] == 1000
        with pytest.raises(ValueError):
            len(request.frame)
        request.respond(frame(b"late"))
        assert client.receive() == b"late"
        request.release()
        assert server.metrics()["MemoryPoolAvailable"] == 1000


def test_memory_of_half_a_frame_comes_back_when_its_connection_ends() -> None:
    """The first connection that waited for memory has closed: the next one gets the memory."""
    with serving(Inline(), queued_max_request_bytes=1000) as server, Client(server.port) as waiting:
        with Client(server.port) as client:
            client.sock.sendall(frame(b"x" * 5000)[:3000])
            until(lambda: server.metrics()["MemoryPoolAvailable"] == -4000)
            gone = Client(server.port)
            gone.send(b"leaves")
            until(lambda: server.metrics()["NetworkBytesIn"] == 3010)
            waiting.send(b"waits")
            until(lambda: server.metrics()["NetworkBytesIn"] == 3019)
            gone.reset()
            until(lambda: server.metrics()["ConnectionCount"] == 2)
            assert waiting.is_silent()
        assert waiting.receive() == b"waits"
        until(lambda: server.metrics()["MemoryPoolAvailable"] == 1000)


# ---- slices of files ------------------------------------------------------------------------------------------------


def test_slices_between_bytes_by_sendfile(tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    (tmp_path / "file").write_bytes(data)
    file = RealFiles().open(str(tmp_path / "file"))

    def slices(request: Request) -> None:
        position, size = struct.unpack(">ii", request.frame)
        prefix = struct.pack(">i", size + 1)
        request.respond(
            [prefix, FileSlice(file, position, size - 100), FileSlice(file, position + size - 100, 100), b"!"]
        )

    with serving(Inline(slices)) as server, Client(server.port) as client, Client(server.port) as bad:
        wanted = [(0, 5_000_000), (7, 100), (100_001, 3_000_000), (5, 70_000)]
        client.send(*(struct.pack(">ii", *each) for each in wanted))
        for position, size in wanted:
            assert client.receive() == data[position : position + size] + b"!"
        until(lambda: server.metrics()["BytesBySendfile"] == sum(size for _, size in wanted))
        bad.send(struct.pack(">ii", len(data) - 1000, 2000))
        assert bad.is_closed(), "the file ends before the slice"
        assert client.ask(struct.pack(">ii", 1, 101)) == data[1:102] + b"!"
    with pytest.raises(ValueError, match="size=-1"):
        FileSlice(file, 0, -1)
    with pytest.raises(TypeError, match="LogFile expected"):
        FileSlice(3, 0, 1)  # type: ignore[arg-type]


# ---- numbers of connections -----------------------------------------------------------------------------------------


def test_connections_of_one_address() -> None:
    """The third is closed; a freed slot can be used again. NW6."""
    with serving(max_connections_per_ip=2) as server, Client(server.port) as first:
        with Client(server.port) as second, Client(server.port) as third:
            assert (first.ask(b"1"), second.ask(b"2")) == (b"1", b"2")
            assert third.is_closed()
        until(lambda: server.metrics()["ConnectionCount"] == 1)
        with Client(server.port) as fourth:
            assert fourth.ask(b"4") == b"4"
        assert server.metrics()["ConnectionsRejected"] == 1


@pytest.mark.parametrize(("overrides", "works"), [({}, False), ({"127.0.0.1": 1}, True)])
def test_no_connections_but_those_of_an_override(overrides: dict[str, int], works: bool) -> None:
    limits = {"max_connections_per_ip": 0, "max_connections_per_ip_overrides": overrides}
    with serving(**limits) as server, Client(server.port) as client:
        assert client.ask(b"1") == b"1" if works else client.is_closed()


@pytest.mark.skipif(not socket.has_ipv6, reason="needs: IPv6")
def test_a_client_has_its_ipv4_address_at_a_listener_of_both_families() -> None:
    def peer(request: Request) -> None:
        request.respond(frame(str(request.connection.peer[0]).encode()))

    limits = {"max_connections_per_ip_overrides": {"127.0.0.1": 1}}
    with serving(peer, Listener(host="::"), **limits) as server, Client(server.port) as client:
        assert client.ask(b"who am I") == b"127.0.0.1"
        assert Client(server.port).is_closed()


@pytest.mark.parametrize("of_listener", [False, True])
def test_beyond_max_connections_clients_wait_for_a_slot(of_listener: bool) -> None:
    listener = Listener(max_connections=2 if of_listener else 100)
    with serving(echo, listener, max_connections=100 if of_listener else 2) as server:
        first, second, third = (Client(server.port) for _ in range(3))
        assert (first.ask(b"1"), second.ask(b"2")) == (b"1", b"2")
        third.send(b"3")
        assert third.is_silent()
        assert server.metrics()["ConnectionCount"] == 2
        first.sock.close()
        assert third.receive() == b"3"
        second.sock.close(), third.sock.close()


def test_a_protected_listener_closes_the_connection_of_another_that_has_been_idle_longest() -> None:
    """NW11."""
    clock = ManualClock()
    listeners = [Listener(name="CLIENTS"), Listener(name="BROKERS", protected=True)]
    with serving(echo, *listeners, clock=clock, max_connections=2) as server:
        old = Client(server.port)
        assert old.ask(b"1") == b"1"
        clock.advance(2_000)
        young = Client(server.port)
        assert young.ask(b"2") == b"2"
        clock.advance(2_000)
        with Client(server.listeners[1].port) as broker:
            assert broker.ask(b"3") == b"3"
            assert old.is_closed()
            assert young.ask(b"4") == b"4"
            metrics = server.metrics()
            assert (metrics["ConnectionCount.BROKERS"], metrics["ConnectionCount.CLIENTS"]) == (1, 1)
        young.sock.close()
        old.sock.close()


def test_the_rate_of_new_connections_delays_them() -> None:
    """A rate of 1 a second over 2 windows: the second connection exceeds it, and the third waits for the clock."""
    clock = ManualClock()
    limits = {"max_connection_creation_rate": 1, "quota_window_num": 2}
    with (
        serving(clock=clock, **limits) as server,
        Client(server.port) as first,
        Client(server.port) as second,
        Client(server.port) as third,
    ):
        assert (first.ask(b"1"), second.ask(b"2")) == (b"1", b"2")
        third.send(b"3")
        assert third.is_silent()
        assert server.metrics()["ConnectionCount"] == 2
        clock.advance(5_000)
        assert third.receive() == b"3"


def test_the_rate_of_one_address_closes_its_connections_after_a_delay() -> None:
    """NW7: refused connections are not counted."""
    clock = ManualClock()
    with serving(clock=clock, connection_creation_rate_per_ip=5, quota_window_num=2) as server:
        good = [Client(server.port) for _ in range(5)]
        for client in good:
            assert client.ask(b"good") == b"good"
        parked = [Client(server.port) for _ in range(2)]
        until(lambda: server.metrics()["ConnectionsRejected"] == 2)
        assert parked[0].is_silent()
        assert server.metrics()["ConnectionCount"] == 5
        clock.advance(3_000)
        assert all(client.is_closed() for client in parked)
        with Client(server.port) as client:
            assert client.ask(b"later") == b"later"
        for client in good:
            client.sock.close()


@pytest.mark.parametrize("handled", ["inline", "threads"])
def test_without_descriptors_connections_are_closed_at_once_and_later_ones_are_served(handled: str) -> None:
    """EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving(Inline() if handled == "inline" else echo) as server, Client(server.port) as before:
        assert before.ask(b"1") == b"1"
        client = socket.socket()
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
            client.connect(("127.0.0.1", server.port))
            client.settimeout(PATIENCE)
            assert client.recv(1) == b""
            assert before.ask(b"2") == b"2"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            client.close()
        with Client(server.port) as after:
            assert after.ask(b"3") == b"3"
        assert server.metrics()["ConnectionsRejected"] >= 1
        assert not ended(server)
