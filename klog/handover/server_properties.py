"""The server.properties of one node that is broker and controller, for a handed-over directory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from klog import arguments
from klog.config.properties import format_properties
from klog.internal_topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.values import NamedTuple

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER: Final = re.compile(r"(?:([A-Z_]+)://)?(\[[0-9a-fA-F:.]+\]|[^:/\s,\[\]]*):(\d{1,5})")
_ANY: Final = ("", "0.0.0.0", "[::]")
_CONTROLLER: Final = "CONTROLLER"
_PORT_MAX: Final = 65535
_DECIDED: Final = frozenset(
    {
        *("process.roles", "node.id", "broker.id", "controller.quorum.voters", "controller.quorum.bootstrap.servers"),
        *("controller.listener.names", "listeners", "log.dir", "log.dirs", "metadata.log.dir"),
    }
)
HEADER: Final = "# Written by klog handover.\n"


class Listener(NamedTuple):
    """An address, and the security protocol used there."""

    protocol: str
    host: str
    port: int


def parse_listener(name: str, text: str) -> Listener:
    """Return the listener of "host:port" (PLAINTEXT) or "SSL://host:port". Raises ValueError. name: the argument's."""
    match = _LISTENER.fullmatch(text) if isinstance(text, str) else None
    if match is None or not 0 < int(match[3]) <= _PORT_MAX or (match[1] or _PROTOCOLS[0]) not in _PROTOCOLS:
        raise ValueError(
            f"{name}={arguments.shown(text)}: host:port expected, or one of {', '.join(_PROTOCOLS)} and ://host:port"
        )
    return Listener(match[1] or _PROTOCOLS[0], match[2], int(match[3]))


def check_listeners(controller: str, listeners: Sequence[str] | str) -> tuple[Listener, tuple[Listener, ...]]:
    """Return the controller's listener and those of the broker. Raises ValueError, naming the argument."""
    own = parse_listener("controller_listener", controller)
    if own.host in _ANY or own.protocol != _PROTOCOLS[0]:
        raise ValueError(
            f"controller_listener={controller!r}: an address to connect to is expected, without a protocol"
        )
    given = [listeners] if isinstance(listeners, str) else arguments.texts("listeners", listeners)
    parsed = tuple(parse_listener(f"listeners[{n}]", each) for n, each in enumerate(given))
    if not parsed:
        raise ValueError("listeners=[]: at least one host:port expected")
    if len({each.protocol for each in parsed}) < len(parsed):
        raise ValueError(f"listeners={given!r}: at most one listener of each protocol is expected")
    if len({each.port for each in (own, *parsed)}) <= len(parsed):
        raise ValueError(f"listeners={given!r}: each listener, and the controller's, needs its own port")
    return own, parsed


def server_properties(
    node_id: int,
    log_dirs: Sequence[str],
    controller: Listener,
    listeners: Sequence[Listener],
    partitions: Mapping[str, int],
    config: Mapping[str, str],
) -> dict[str, str]:
    """Return the entries of a server.properties. partitions: {topic: number}; those of internal topics
    become entries. config: entries to add or replace. Raises ValueError for a key that the handover itself sets."""
    first = listeners[0].protocol
    address = f"{controller.host}:{controller.port}"
    bound = [f"{each.protocol}://{each.host}:{each.port}" for each in listeners]
    values = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": f"{node_id}@{address}",
        "controller.listener.names": _CONTROLLER,
        "listeners": ",".join([*bound, f"{_CONTROLLER}://{address}"]),
        "inter.broker.listener.name": first,
        "listener.security.protocol.map": ",".join(
            [f"{_CONTROLLER}:PLAINTEXT", *(f"{each.protocol}:{each.protocol}" for each in listeners)]
        ),
        "log.dirs": ",".join(log_dirs),
        "metadata.log.dir": log_dirs[0],
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }
    for topic, key in (
        (CONSUMER_OFFSETS, "offsets.topic.num.partitions"),
        (TRANSACTION_STATE, "transaction.state.log.num.partitions"),
    ):
        if topic in partitions:
            values[key] = str(partitions[topic])
    for key in config:
        if key in _DECIDED:
            raise ValueError(f"config={key!r}: the handover sets it from its other arguments")
    return {**values, **{key: value for key, value in config.items() if not key.startswith("klog.")}}


def properties_text(values: Mapping[str, str]) -> str:
    """Return the text of a server.properties. Colons and equals signs in values get no backslash: they need none, and
    users edit this file."""
    return HEADER + format_properties(values).replace("\\:", ":").replace("\\=", "=")
