"""The limits of a server, under Kafka's names. Kafka: SocketServerConfigs, QuotaConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from klog import arguments
from klog.arguments import INT_MAX
from klog.config import BROKER_KEYS
from klog.config.keyed import Keyed, key
from klog.errors import InvalidConfig
from klog.values import dataclass

_OVERRIDES = "max.connections.per.ip.overrides"
_SWEEP_SECONDS = (0.01, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig(Keyed):
    """Times in ms, sizes in bytes. Names that begin with `klog.` are klog's own; docs/network.md says what each limit
    does.

    Two defaults are not Kafka's: one network thread, because under the GIL more of them run one at a time, and requests
    of up to 16 MiB. Raises ValueError or TypeError.
    """

    num_network_threads: int = key("num.network.threads", 1, 1, doc="threads that read and write sockets; Kafka: 3")
    num_io_threads: int = key("num.io.threads", 8, 1)
    queued_max_requests: int = key("queued.max.requests", 500, 1)
    queued_max_request_bytes: int = key("queued.max.request.bytes", -1, None, arguments.LONG_MAX)
    socket_send_buffer_bytes: int = key("socket.send.buffer.bytes", 102_400, -1)
    socket_receive_buffer_bytes: int = key("socket.receive.buffer.bytes", 102_400, -1)
    socket_request_max_bytes: int = key(
        "socket.request.max.bytes", 16 << 20, 1, doc="largest request, bytes; Kafka: 104857600"
    )
    unauthenticated_request_max_bytes: int = key(
        "klog.unauthenticated.request.max.bytes",
        512 << 10,
        1,
        doc="largest request on a listener with SASL before the client is authenticated, bytes",
    )
    socket_listen_backlog_size: int = key("socket.listen.backlog.size", 50, 1)
    max_connections: int = key("max.connections", INT_MAX, 0)
    max_connections_per_ip: int = key("max.connections.per.ip", INT_MAX, 0)
    max_connections_per_ip_overrides: Mapping[str, int] = key(_OVERRIDES, None)
    max_connection_creation_rate: int = key("max.connection.creation.rate", INT_MAX, 1)
    connection_creation_rate_per_ip: int = key(
        "klog.connection.creation.rate.per.ip", INT_MAX, 1, doc="new connections a second from one address"
    )
    quota_window_num: int = key("quota.window.num", 11, 2)
    quota_window_size_seconds: int = key("quota.window.size.seconds", 1, 1)
    connections_max_idle_ms: int = key("connections.max.idle.ms", 600_000, -1, arguments.LONG_MAX)
    failed_authentication_delay_ms: int = key("connection.failed.authentication.delay.ms", 100, 0)
    handshake_ms: int = key(
        "klog.handshake.ms", 10_000, 1, doc="longest TLS handshake, ms; a longer one closes the connection"
    )
    frame_ms: int = key(
        "klog.frame.ms", 300_000, 1, doc="longest time to receive one request, ms; a longer one closes the connection"
    )

    def __post_init__(self) -> None:
        overrides = self.max_connections_per_ip_overrides
        if overrides is None:
            overrides = {}
        elif not isinstance(overrides, Mapping):
            raise arguments.wrong_type("max_connections_per_ip_overrides", overrides, "a mapping of address to number")
        checked = {
            arguments.text("max_connections_per_ip_overrides", address): arguments.whole(
                f"max_connections_per_ip_overrides[{address!r}]", count, 0
            )
            for address, count in overrides.items()
        }
        object.__setattr__(self, "max_connections_per_ip_overrides", checked)
        Keyed.__post_init__(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From properties by Kafka's names, as in a server.properties; those of other packages are left out. Raises
        InvalidConfig for an unknown name."""
        for name in values:
            if name not in cls.names() and name not in BROKER_KEYS:
                raise InvalidConfig(f"{name}: not a property of the network or of a broker")
        overrides = values.get(_OVERRIDES)
        if isinstance(overrides, str):
            values = {**values, _OVERRIDES: _overrides(_OVERRIDES, overrides)}
        found: Self = Keyed.of.__func__(cls, values)  # type: ignore[attr-defined]
        return found

    @property
    def sweep_seconds(self) -> float:
        """How often the connections are searched for expired ones: a quarter of the shortest limit, at most a
        second."""
        limits = [self.handshake_ms, self.frame_ms]
        if self.connections_max_idle_ms >= 0:
            limits.append(self.connections_max_idle_ms)
        shortest, longest = _SWEEP_SECONDS
        return max(shortest, min(longest, min(limits) / 4000))


def _number(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InvalidConfig(f"{name}={value!r}: a whole number expected") from None


def _overrides(name: str, value: str) -> dict[str, int]:
    """`address:number,...`; an IPv6 address may contain colons."""
    found = {}
    for item in filter(None, map(str.strip, value.split(","))):
        address, colon, count = item.rpartition(":")
        if not colon:
            raise InvalidConfig(f"{name}={value!r}: address:number,... expected")
        found[address] = _number(name, count)
    return found
