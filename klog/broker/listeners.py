"""Where a broker listens, and which addresses it advertises to clients. Kafka: EndPoint, listeners,
advertised.listeners."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from klog.arguments import text
from klog.broker.metadata import Node
from klog.errors import InvalidConfig
from klog.network import Listener
from klog.values import replace

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from klog.broker.properties import Properties

_EVERYWHERE = ("0.0.0.0", "::", "")


def listener_of(address: str | Listener) -> Listener:
    """A listener from `host:port` or `NAME://host:port`; a Listener is returned as it is. Raises ValueError."""
    if isinstance(address, Listener):
        return address
    address = text("listeners", address)
    name, separator, rest = address.partition("://")
    found = Listener.of(rest if separator else address)
    return Listener(host=found.host, port=found.port, name=name.upper()) if separator else found


def secured(listener: Listener, properties: Properties) -> Listener:
    """The listener with TLS and SASL as its protocol in listener.security.protocol.map says. Raises InvalidConfig."""
    config = properties.security.listeners.get(listener.name)
    if config is None:
        return listener
    context = listener.context if listener.context is not None else tls_of(listener.name, properties)
    return replace(listener, context=context, authenticates=config.authenticates)


def tls_of(name: str, properties: Properties) -> ssl.SSLContext | None:
    """The context of the listener of this name, from its files as they are now; None for one without TLS. Certificates
    are PEM files: ssl.keystore.location has the certificate and its key, ssl.truststore.location those of clients'
    issuers. listener.name.<name>.ssl... is for this listener alone. Raises InvalidConfig."""
    config = properties.security.listeners.get(name)
    if config is None or not config.protocol.endswith("SSL"):
        return None
    from klog.network.tls import tls_context

    given = {**properties.all, **config.tls}
    keys = given.get("ssl.keystore.location")
    if not keys:
        raise InvalidConfig(f"listener {name}: {config.protocol} needs ssl.keystore.location, a PEM file")
    client_auth = str(given.get("ssl.client.auth", "none"))
    trusted = given.get("ssl.truststore.location")
    try:
        return tls_context(keys, keys, client_auth=client_auth, trusted=trusted)  # type: ignore[arg-type]
    except (ValueError, OSError) as error:
        raise InvalidConfig(f"listener {name}: {error}") from None


def is_open(listener: Listener) -> bool:
    """May other machines connect without showing who they are?"""
    is_local = listener.host in ("localhost", "::1") or listener.host.startswith("127.")
    return not is_local and listener.context is None and not listener.authenticates


def check_names(listeners: Iterable[Listener]) -> None:
    """Raise ValueError if two listeners have one name: clients of both would be sent to one of them."""
    seen: set[str] = set()
    for each in listeners:
        if each.name in seen:
            raise ValueError(f"listeners: two have the name {each.name}; give each its own, as in EXTERNAL://host:port")
        seen.add(each.name)


def advertised(listeners: Iterable[Listener], configured: str | None, node_id: int) -> dict[str, Node]:
    """{name of a listener: the node that is advertised to its clients}. configured: advertised.listeners."""
    given = {}
    for each in filter(None, map(str.strip, (configured or "").split(","))):
        try:
            found = listener_of(each)
        except ValueError as error:
            raise InvalidConfig(f"advertised.listeners={configured!r}: {error}") from None
        given[found.name] = Node(node_id, found.host, found.port)
    nodes = {}
    for listener in listeners:
        host = socket.gethostname() if listener.host in _EVERYWHERE else listener.host
        known = given.pop(listener.name, None)
        nodes[listener.name] = (
            known._replace(port=known.port or listener.port) if known else Node(node_id, host, listener.port)
        )
    if given:
        raise InvalidConfig(f"advertised.listeners: no listener has the name {', '.join(given)}")
    return nodes
