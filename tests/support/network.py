"""A server over the loopback, and clients that speak its frames."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from klog.network import Listener, NetworkConfig, Request, Server
from tests.support.patience import PATIENCE, until


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Client:
    """A blocking connection to a server."""

    def __init__(
        self, port: int, *, context: ssl.SSLContext | None = None, receive_buffer: int = 0, **tls: Any
    ) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(PATIENCE)
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.sock.connect(("127.0.0.1", port))
            if context is not None:
                self.sock = context.wrap_socket(self.sock, server_hostname="localhost", **tls)
        except BaseException:
            self.sock.close()
            raise

    def send(self, *bodies: bytes) -> None:
        """Send these requests by one call."""
        self.sock.sendall(b"".join(map(frame, bodies)))

    def exactly(self, size: int) -> bytes:
        """Receive this many bytes; fewer if the server closes the connection."""
        got = bytearray()
        while len(got) < size and (part := self.sock.recv(min(size - len(got), 1 << 20))):
            got += part
        return bytes(got)

    def receive(self) -> bytes:
        """The body of the next response; EOFError if the server has closed."""
        prefix = self.exactly(4)
        if len(prefix) < 4:
            raise EOFError
        return self.exactly(struct.unpack(">i", prefix)[0])

    def ask(self, body: bytes) -> bytes:
        self.send(body)
        return self.receive()

    def is_closed(self) -> bool:
        """Wait until the server closes the connection; bytes that arrive before are dropped."""
        try:
            while self.sock.recv(1 << 20):
                pass
        except ConnectionError:
            pass
        return True

    def reset(self) -> None:
        """Close with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def is_silent(self, seconds: float = 0.05) -> bool:
        """Whether nothing arrives for a moment. True does not prove that nothing will arrive."""
        return not select.select([self.sock], [], [], seconds)[0]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.sock.close()


def echo(request: Request) -> None:
    """Return the request as the response."""
    request.respond([struct.pack(">i", len(request.frame)), request.frame])


class Inline:
    """A handler whose requests are handled in the network thread."""

    def __init__(self, handle: Callable[[Request], object] = echo) -> None:
        self._handle = handle

    def is_cheap(self, _request: Request) -> bool:
        return True

    def __call__(self, request: Request) -> None:
        self._handle(request)


class Held:
    """A handler that keeps its requests until the test completes them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def is_cheap(self, _request: Request) -> bool:
        return True

    def __call__(self, request: Request) -> None:
        self.requests.append(request)

    def take(self) -> Request:
        """The oldest request, once there is one."""
        until(lambda: bool(self.requests))
        return self.requests.pop(0)


@contextlib.contextmanager
def serving(
    handler: Any = echo, *listeners: Listener, clock: Any = None, timeout: float = PATIENCE, **config: Any
) -> Iterator[Server]:
    """A running server with this configuration, by field. It must stop in time, without a thread or descriptor left."""
    server = Server(listeners or [Listener()], handler, config=NetworkConfig(**config), clock=clock)
    try:
        yield server.start()
    finally:
        server.stop(timeout)


def ended(server: Server) -> bool:
    """Whether there have been connections, and all of them are closed."""
    metrics = server.metrics()
    return metrics["ConnectionsAccepted"] > 0 and metrics["ConnectionCount"] == 0
