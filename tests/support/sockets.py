"""Pairs of sockets, a thread that reads one of them to its end, and ports for servers."""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable, Iterator

from tests.support.patience import PATIENCE


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection over the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return ours, theirs


class KeptPort:
    """A free port of 127.0.0.1 for a server in another process, reserved as long as this object exists. The port is
    bound here, without listening, so that no other process gets it while the server is not running. A server that sets
    SO_REUSEADDR can bind it, too."""

    def __init__(self) -> None:
        sock = socket.socket()
        weakref.finalize(self, sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        self.number: int = sock.getsockname()[1]


class Reader:
    """Collects all bytes until the other end closes."""

    def __init__(self, sock: socket.socket) -> None:
        self.got = bytearray()
        self._sock = sock
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._sock.recv(1 << 18):
                self.got += data

    def finished(self) -> bytes:
        """Wait until the other end has closed; return the bytes."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return bytes(self.got)


def again_and_again(send: Callable[[], object], times: int = 1000) -> None:
    """Call send() up to `times` times. A test expects that it raises at some point."""
    for _ in range(times):
        send()


@contextlib.contextmanager
def pair(kind: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """`tcp` or `unix`."""
    ours, theirs = tcp_pair() if kind == "tcp" else socket.socketpair()
    with ours, theirs:
        yield ours, theirs
