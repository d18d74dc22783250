"""Start and stop of a server: no request is lost, and no thread, socket or descriptor is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from klog.clock import SystemClock
from klog.network import Listener, NetworkConfig, Request, Server
from tests.support.few_threads import few_threads
from tests.support.network import Client, Held, Inline, echo, ended, frame, serving
from tests.support.patience import PATIENCE, until
from tests.support.resources import growth, threads_and_descriptors
from tests.support.signals import signal_when_waiting

ROOT = Path(__file__).resolve().parents[2]


def test_stop_completes_what_is_being_handled_and_takes_no_more() -> None:
    handler = Held()
    before = threads_and_descriptors()
    server = Server(["127.0.0.1:0"], handler, config=NetworkConfig(num_network_threads=2)).start()
    busy, idle, half = Client(server.port), Client(server.port), Client(server.port)
    busy.send(b"in flight", b"not taken")
    request = handler.take()
    half.sock.sendall(frame(b"half")[:-1])
    until(
        lambda: (
            server.metrics()["NetworkBytesIn"] == len(frame(b"in flight") + frame(b"not taken") + frame(b"half")) - 1
        )
    )
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert idle.is_closed() and half.is_closed()
    with pytest.raises(ConnectionRefusedError):
        until(lambda: Client(server.port) is None)
    request.respond(frame(b"done"))
    assert busy.receive() == b"done"
    assert busy.is_closed()
    stopping.join(PATIENCE)
    assert handler.requests == []
    server.stop()
    for client in (busy, idle, half):
        client.sock.close()
    assert threads_and_descriptors() <= before


def test_a_start_without_enough_threads_ends_those_that_it_started() -> None:
    before = threads_and_descriptors()
    for count in range(7):
        server = Server(["127.0.0.1:0"], echo, config=NetworkConfig(num_network_threads=2, num_io_threads=3))
        with few_threads(count):
            if count == 6:
                server.start()
                break
            with pytest.raises(RuntimeError, match="new thread"):
                server.start()
        assert server.wait(0)
        server.stop()
        assert threads_and_descriptors() <= before
    client = Client(server.port)
    client.send(b"x")
    assert client.receive() == b"x"
    client.sock.close()
    server.stop()
    assert threads_and_descriptors() <= before


def test_a_handler_cannot_stop_its_server() -> None:
    raised = []

    def stop(_request: Request) -> None:
        with pytest.raises(RuntimeError, match="set an event"):
            server.stop()
        raised.append(True)

    for handler in (stop, Inline(stop)):
        with serving(handler) as server, Client(server.port) as client:
            client.send(b"x")
            assert client.is_closed()
    assert len(raised) == 2


def test_stop_closes_after_its_time_what_is_not_completed() -> None:
    """Also with a full queue, and requests that wait for it. NW11."""
    go = threading.Event()
    before = threads_and_descriptors()
    server = Server(
        ["127.0.0.1:0"], lambda request: go.wait(), config=NetworkConfig(num_io_threads=1, queued_max_requests=1)
    )
    server.start()
    clients = [Client(server.port) for _ in range(4)]
    for client in clients:
        client.send(b"x")
    until(lambda: server.metrics()["RequestsReceived"] == 4)
    stopping = threading.Thread(target=server.stop, args=(0.01,))
    stopping.start()
    assert all(client.is_closed() for client in clients)
    go.set()
    stopping.join(PATIENCE)
    for client in clients:
        client.sock.close()
    assert threads_and_descriptors() <= before


def test_clients_of_a_server_that_has_not_started_wait() -> None:
    """All listeners are bound before any is served. NW11."""
    server = Server([Listener(name="A"), "127.0.0.1:0"], echo)
    with Client(server.port) as first, Client(server.listeners[1].port) as second:
        first.send(b"early")
        second.send(b"early too")
        assert first.is_silent()
        with server:
            assert (first.receive(), second.receive()) == (b"early", b"early too")
        with pytest.raises(RuntimeError, match="make a new Server"):
            server.start()


def test_a_listener_that_cannot_be_bound_leaves_nothing_over() -> None:
    before = threads_and_descriptors()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            Server(["127.0.0.1:0", f"127.0.0.1:{port}"], echo)
    never_started = Server(["[::1]:0" if socket.has_ipv6 else "127.0.0.1:0"], echo)
    never_started.stop()
    assert threads_and_descriptors() <= before


def test_a_host_that_is_unknown_is_named_with_the_reason() -> None:
    with pytest.raises(OSError, match="no such host:0") as caught:
        Server(["no such host:0"], Inline(echo))
    assert "Unknown error" not in str(caught.value)


def test_connections_that_come_and_go_leave_nothing_over() -> None:
    with serving(Inline(), num_network_threads=2) as server:

        def come_and_go() -> None:
            accepted = server.metrics()["ConnectionsAccepted"]
            with Client(server.port) as client:
                assert client.ask(b"x") == b"x"
            until(lambda: server.metrics()["ConnectionsAccepted"] > accepted and ended(server))

        grown = growth(come_and_go, 300)
        assert grown.blocks < 300
        assert grown.allocated < 300_000


def test_a_forked_child_does_not_serve_and_holds_no_connection() -> None:
    with serving() as server, Client(server.port) as client, Client(server.port) as other:
        assert client.ask(b"1") == other.ask(b"1") == b"1"
        (read, write), (ready, report) = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(write)
                server.stop()
                with pytest.raises(RuntimeError):
                    server.start()
                os.write(report, b"x")
                os.read(read, 1)
                status = 0
            finally:
                os._exit(status)
        os.close(read)
        os.read(ready, 1)
        assert client.ask(b"2") == b"2"
        server.stop()
        assert client.is_closed(), "the child would hold it open"
        with pytest.raises(ConnectionRefusedError):
            Client(server.port)
        for fd in (write, ready, report):
            os.close(fd)
        assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_reaches_the_main_thread_and_the_server_goes_on() -> None:
    with serving() as server, Client(server.port) as client:
        with pytest.raises(KeyboardInterrupt), signal_when_waiting(signal.SIGINT):
            server.wait()
        assert client.ask(b"still") == b"still"
        assert server.wait(0.001) is False
        threading.Thread(target=server.stop).start()
        assert server.wait(PATIENCE) is True


def test_a_signal_handler_may_stop_the_server_that_is_being_stopped() -> None:
    handler = Held()
    server = Server(["127.0.0.1:0"], handler).start()
    before = signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda number, frame: (server.stop(), request.respond(frame_of_x)))
    frame_of_x = frame(b"x")
    try:
        with Client(server.port) as client:
            client.send(b"x")
            request = handler.take()
            with signal_when_waiting(signal.SIGUSR1):
                server.stop()
            assert client.receive() == b"x"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_during_the_wait_of_a_network_thread_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the clock, which is Python code, changes errno."""

    class ErrnoClock(SystemClock):
        def __init__(self) -> None:
            self.reads: Counter[int] = Counter()  # by thread

        def monotonic(self) -> float:  # type: ignore[override]
            os.access("/does/not/exist", os.F_OK)
            self.reads[threading.get_ident()] += 1
            return time.monotonic()

    clock = ErrnoClock()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with serving(clock=clock) as server:
            thread = next(each for each in threading.enumerate() if each.name.startswith("klog-network"))
            assert thread.ident is not None
            until(lambda: clock.reads[thread.ident or 0])
            first = clock.reads[thread.ident]

            def interrupted() -> bool:
                signal.pthread_kill(thread.ident or 0, signal.SIGUSR1)
                return clock.reads[thread.ident or 0] >= first + 10

            until(interrupted)
            with Client(server.port) as client:
                assert client.ask(b"still") == b"still"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "loop_failed" not in caplog.text


def test_a_program_that_waits_for_its_server_ends_with_ctrl_c() -> None:
    script = (
        "from klog.network import Server\n"
        "with Server(['127.0.0.1:0'], lambda request: request.close()) as server:\n"
        "    print('ready', flush=True)\n"
        "    server.wait()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=PATIENCE)
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    assert child.returncode == -signal.SIGINT


def test_a_connection_that_cannot_be_registered_is_closed_alone(caplog: pytest.LogCaptureFixture) -> None:
    """NW8."""
    before = threads_and_descriptors()
    with serving() as server, Client(server.port) as client:
        assert client.ask(b"1") == b"1"
        ours, theirs = socket.socketpair()
        listener = server.listeners[0]
        server._acceptor.quotas.add(listener, "x")
        server._loops[0].connect(ours, listener, ("x", 1), "no number", None)
        with theirs:
            theirs.settimeout(PATIENCE)
            assert theirs.recv(1) == b""
        assert client.ask(b"2") == b"2"
        until(lambda: server.metrics()["ConnectionCount"] == 1)
    assert "connection_failed" in caplog.text
    assert threads_and_descriptors() <= before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"listeners": "127.0.0.1:0"}, TypeError),
        ({"listeners": []}, ValueError),
        ({"listeners": ["127.0.0.1"]}, ValueError),
        ({"listeners": [9092]}, TypeError),
        ({"handler": None}, TypeError),
        ({"config": {}}, TypeError),
        ({"clock": 5}, TypeError),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments: dict[str, object], error: type[Exception]) -> None:
    before = threads_and_descriptors()
    given = {"listeners": ["127.0.0.1:0"], "handler": echo, **arguments}
    listeners, handler = given.pop("listeners"), given.pop("handler")
    with pytest.raises(error, match=next(iter(arguments)).removesuffix("s")):
        Server(listeners, handler, **given)  # type: ignore[arg-type]
    assert threads_and_descriptors() <= before
