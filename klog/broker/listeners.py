"""Where a broker listens, and which addresses it advertises to clients. Kafka: EndPoint, listeners,
advertised.listeners."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

from klog.arguments import text
from klog.broker.metadata import Node
from klog.config import BROKER_KEYS
from klog.config.values import parse_value
from klog.errors import InvalidConfig
from klog.network import Listener
from klog.network.listener import address_text, listener_limit
from klog.security.config import KEY_PASSWORD, RULES, tls_property
from klog.values import replace

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping

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
    """The listener with TLS and SASL as its protocol in listener.security.protocol.map says. Without a map, or with a
    context of its own, it may have any name. Raises InvalidConfig."""
    config = properties.security.listeners.get(listener.name)
    if config is None:
        protocols = properties.all.get("listener.security.protocol.map")
        if protocols and listener.context is None:
            where = address_text(listener.host, listener.port)
            raise InvalidConfig(
                f"listener.security.protocol.map={protocols!r} has no protocol for the listener {listener.name} at "
                f"{where}: add {listener.name}:PLAINTEXT or another one, or listen at "
                "NAME://host:port with a name that it has"
            )
        return listener
    context = listener.context if listener.context is not None else tls_of(listener.name, properties)
    rules = {**properties.all, **config.tls}.get(RULES)
    if not rules or config.authenticates:  # with SASL the client has another name
        return replace(listener, context=context, authenticates=config.authenticates)
    from klog.security.principal_rules import PrincipalRules

    return replace(listener, context=context, principal_of=PrincipalRules(str(rules)))


def limited(listeners: Iterable[Listener], properties: Properties) -> list[Listener]:
    """The listeners with their own limits of connections: listener.name.<name>.max.connections and
    .max.connection.creation.rate; of several that of inter.broker.listener.name is protected. Raises InvalidConfig."""
    given = list(listeners)
    own: dict[str, dict[str, Any]] = {each.name: {} for each in given}
    for name, value in properties.all.items():
        found = listener_limit(name)
        if found is not None:
            listener, key, field = found
            if listener not in own:
                raise InvalidConfig(f"{name}: no listener has the name {listener}")
            own[listener][field] = parse_value(replace(BROKER_KEYS[key], name=name, low=1), value)
    inner = properties.settings.inter_broker_listener_name.upper()
    if inner in own and len(own) > 1:
        own[inner]["protected"] = True
    return [replace(each, **own[each.name]) for each in given]


def tls_of(name: str, properties: Properties, dynamic: Mapping[str, str] | None = None) -> ssl.SSLContext | None:
    """The context of the listener of this name, from its files as they are now; None for one without TLS. Certificates
    are PEM files: ssl.keystore.location has the certificate and its key, which ssl.key.password decrypts,
    ssl.truststore.location those of clients' issuers. listener.name.<name>.ssl... is for this listener alone. dynamic:
    what clients have set of those, without the listener's name. Raises InvalidConfig."""
    config = properties.security.listeners.get(name)
    if config is None or not config.protocol.endswith("SSL"):
        return None
    from klog.network.tls import check_context, tls_context

    given = {**properties.all, **config.tls, **(dynamic or {})}
    keys = given.get("ssl.keystore.location")
    if not keys:
        raise InvalidConfig(f"listener {name}: {config.protocol} needs ssl.keystore.location, a PEM file")
    client_auth = str(given.get("ssl.client.auth", "none"))
    trusted = given.get("ssl.truststore.location")
    try:
        context = tls_context(
            keys,
            keys,
            client_auth=client_auth,  # type: ignore[arg-type]
            trusted=trusted,
            password=given.get(KEY_PASSWORD),
        )
        check_context(context)
    except (ValueError, OSError) as error:
        raise InvalidConfig(f"listener {name}: {error}") from None
    return context


class Certificates:
    """The certificates of the listeners whose files a broker reads. Any thread. names: those of the listeners. use:
    takes new contexts of listeners, by name."""

    def __init__(
        self, names: Iterable[str], properties: Properties, use: Callable[[Mapping[str, ssl.SSLContext]], object]
    ) -> None:
        self.names = tuple(names)
        self._properties = properties
        self._use = use
        self._lock = threading.Lock()  # guards the one below, and the order of changes
        self.dynamic: Mapping[str, str] = {}  # what clients have set and is in use

    def reload(self) -> None:
        """Read the files again, and use them for new connections. Raises InvalidConfig; then nothing has changed."""
        with self._lock:
            self._use(self._read(self.dynamic))

    def check(self, dynamic: Mapping[str, str]) -> None:
        """Raise what change() would raise for these values."""
        self._read(dynamic)

    def change(self, dynamic: Mapping[str, str], commit: Callable[[], object]) -> None:
        """Use these values for new connections: properties that clients have set, of which listener.name.<name>.ssl...
        count. commit: called when the files were read; if it raises, nothing has changed. Raises InvalidConfig."""
        with self._lock:
            contexts = self._read(dynamic)
            commit()
            self.dynamic = dynamic
            self._use(contexts)

    def _read(self, dynamic: Mapping[str, str]) -> dict[str, ssl.SSLContext]:
        own: dict[str, dict[str, str]] = {name: {} for name in self.names}
        for name, value in dynamic.items():
            found = tls_property(name)
            if found is not None:
                if found[0] not in own:
                    raise InvalidConfig(f"{name}: the broker reads no certificates for a listener of this name")
                own[found[0]][found[1]] = value
        contexts = {name: tls_of(name, self._properties, values) for name, values in own.items()}
        return {name: context for name, context in contexts.items() if context is not None}


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
