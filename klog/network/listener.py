"""An address that a server listens on."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from klog import arguments
from klog.arguments import INT_MAX
from klog.values import dataclass

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from klog.network.config import NetworkConfig

_PREFIX = "listener.name."
_LIMITS = {"max.connections": "max_connections", "max.connection.creation.rate": "max_connection_creation_rate"}


def listener_limit(name: str) -> tuple[str, str, str] | None:
    """(listener in upper case, property, field) of listener.name.<listener>.max.connections and the like; None for
    another name."""
    for key, field in _LIMITS.items():
        listener = name.removesuffix(f".{key}").removeprefix(_PREFIX)
        if listener and name == f"{_PREFIX}{listener}.{key}":
            return listener.upper(), key, field
    return None


def address_text(host: str, port: int) -> str:
    """host:port as clients read it, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """host, port: where to listen; port 0 lets the kernel choose. context: TLS, None for plaintext. authenticates:
    until Connection.authenticate() a request may have klog.unauthenticated.request.max.bytes only. protected:
    connections are accepted beyond max.connections, as on Kafka's inter-broker listener: one of another listener is
    closed instead. max_connections, max_connection_creation_rate: of this listener alone. principal_of: makes the name
    of a client with a certificate from its subject, or raises ValueError to refuse it; None: the subject itself."""

    host: str = "127.0.0.1"
    port: int = 0
    name: str = "PLAINTEXT"
    context: ssl.SSLContext | None = None
    authenticates: bool = False
    protected: bool = False
    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX
    principal_of: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        arguments.text("host", self.host)
        arguments.text("name", self.name)
        for name, low, high in (
            ("port", 0, 65535),
            ("max_connections", 1, INT_MAX),
            ("max_connection_creation_rate", 1, INT_MAX),
        ):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name), low, high))
        arguments.flag("authenticates", self.authenticates)
        arguments.flag("protected", self.protected)
        arguments.function("principal_of", self.principal_of)
        if self.context is not None:
            from klog.network.tls import check_context

            check_context(self.context)

    @classmethod
    def of(cls, address: str) -> Listener:
        """A plaintext listener from `host:port`, with an IPv6 address in brackets."""
        host, colon, port = arguments.text("listener", address).rpartition(":")
        if not colon or not port.isdecimal():
            raise ValueError(f"listener={address!r}: host:port expected")
        return cls(host=host.strip("[]"), port=int(port))

    def bind(self, config: NetworkConfig) -> socket.socket:
        """A listening socket, non-blocking. Raises OSError with the address."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if config.socket_receive_buffer_bytes > 0:  # before listen(): it decides the window that is announced
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
            sock.bind((self.host, self.port))
            sock.listen(config.socket_listen_backlog_size)
        except OSError as error:
            sock.close()
            if error.errno is None:
                raise
            where = address_text(self.host, self.port)
            raise OSError(error.errno, f"{error.strerror}: {where}") from None  # gaierror has its own
        return sock
