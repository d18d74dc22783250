"""The properties of security, under Kafka's names. Kafka: SaslConfigs, BrokerSecurityConfigs, StandardAuthorizer,
QuotaConfig."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from klog.arguments import INT_MAX, LONG_MAX
from klog.config import Key
from klog.errors import InvalidConfig
from klog.logger import logger_of
from klog.security.exchange import PLAIN, SCRAM
from klog.security.plain import PlainUsers
from klog.values import dataclass, field

_log = logger_of("security")
MECHANISMS = (PLAIN, *SCRAM)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_LISTENER = "listener.name."
_ENABLED, _REAUTH, _RECEIVE = "sasl.enabled.mechanisms", "connections.max.reauth.ms", "sasl.server.max.receive.size"
_JAAS, _PROTOCOLS = "sasl.jaas.config", "listener.security.protocol.map"
TLS = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.client.auth",
)
RULES = "ssl.principal.mapping.rules"
KEY_PASSWORD = "ssl.key.password"  # clients cannot set it: it would be stored as it is
_OF_TLS = (KEY_PASSWORD, RULES, *TLS)
# Properties of mechanisms that klog does not have. One that was left out would change how clients authenticate.
_OF_OTHERS = {"sasl.kerberos.": "GSSAPI (Kerberos)", "sasl.oauthbearer.": "OAUTHBEARER"}
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_NUMBERS = {  # name: (field, default, low, high, doc); no doc for those that klog.config has
    _RECEIVE: (
        "sasl_server_max_receive_size",
        524_288,
        1,
        INT_MAX,
        "largest SASL message, bytes; also for one listener",
    ),
    _REAUTH: (
        "connections_max_reauth_ms",
        0,
        0,
        LONG_MAX,
        "time after which a client with SASL must authenticate again, ms; 0: never; also for one listener, or one "
        "mechanism of it",
    ),
    "quota.window.num": ("quota_window_num", 11, 2, INT_MAX, ""),
    "quota.window.size.seconds": ("quota_window_size_seconds", 1, 1, INT_MAX, ""),
    "controller.quota.window.num": (
        "controller_quota_window_num",
        11,
        1,
        INT_MAX,
        "samples of the quota on creations and deletions of topics and partitions",
    ),
    "controller.quota.window.size.seconds": (
        "controller_quota_window_size_seconds",
        1,
        1,
        INT_MAX,
        "length of a sample",
    ),
    "klog.sasl.failures.max": (
        "sasl_failures_max",
        10,
        0,
        INT_MAX,
        "failed logins of a user from one address, after which its logins fail until the window ends; ten times as "
        "many for all users of one address; 0: no limit",
    ),
    "klog.sasl.failures.window.ms": ("sasl_failures_window_ms", 60_000, 1, INT_MAX, "length of that window, ms"),
}
_OTHERS: dict[str, tuple[str, Any, str]] = {  # name: (type, default, doc)
    _PROTOCOLS: (
        "string",
        None,
        f"LISTENER:protocol,...: {', '.join(PROTOCOLS)}; if unset, each protocol is that of the listener of its name",
    ),
    _ENABLED: ("list", SCRAM, f"{', '.join((PLAIN, *SCRAM))}; also for one listener; Kafka: GSSAPI"),
    "klog.sasl.plaintext.allow": ("bool", False, "whether a listener without TLS offers PLAIN, too"),
    "authorizer.class.name": (
        "string",
        None,
        f"{AUTHORIZER}: access rules (ACLs) decide what a client may do; if unset, everything is allowed",
    ),
    "super.users": ("string", None, "User:<name>;...: users that may do everything"),
    "allow.everyone.if.no.acl.found": ("bool", False, "whether a resource without access rules is open to all"),
}
# The same of a property that needs the name of a listener, and of one that klog.broker reads.
_OF_LISTENERS: dict[str, tuple[str, Any, str]] = {
    _JAAS: (
        "string",
        None,
        "users of PLAIN, only as listener.name.<listener>.plain.sasl.jaas.config: PlainLoginModule required "
        'user_<name>="<password>";',
    ),
    "ssl.client.auth": (
        "string",
        "none",
        "none, requested or required: a certificate of the client, issued by one in ssl.truststore.location; also for "
        "one listener",
    ),
    RULES: (
        "string",
        "DEFAULT",
        "RULE:pattern/replacement/[LU],...,DEFAULT: the name of a client from the subject of its certificate; the "
        "first rule that matches decides; also for one listener",
    ),
}


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """SASL of one listener. protocol: one of PROTOCOLS. mechanisms: those that it offers. tls: its own properties of
    TLS, by their names without the listener's."""

    protocol: str
    mechanisms: tuple[str, ...]
    receive_bytes_max: int
    reauth_ms: Mapping[str, int]
    plain_users: PlainUsers
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)  # with a password

    @property
    def authenticates(self) -> bool:
        """Does it use SASL?"""
        return self.protocol.startswith("SASL_")

    def max_reauth_ms(self, mechanism: str) -> int:
        """How long a session lasts without a re-authentication; 0: for ever."""
        return self.reauth_ms[mechanism]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """Made by of(). Names that begin with `klog.` are klog's own. The default of sasl.enabled.mechanisms is both SCRAM
    mechanisms, not GSSAPI as in Kafka."""

    authorizes: bool = False
    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False
    listeners: Mapping[str, ListenerConfig] = field(default_factory=dict)  # by upper-case name
    sasl_server_max_receive_size: int = 524_288
    connections_max_reauth_ms: int = 0
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    sasl_failures_max: int = 10
    sasl_failures_window_ms: int = 60_000

    @staticmethod
    def documented() -> Iterator[Key]:
        """The properties that klog.config's tables do not have."""
        for name, (_, number, low, high, doc) in _NUMBERS.items():
            if doc:
                yield Key(name, "int" if high == INT_MAX else "long", number, doc, low, high)
        for name, (kind, default, doc) in {**_OTHERS, **_OF_LISTENERS}.items():
            yield Key(name, kind, default, doc)

    @staticmethod
    def knows(name: str) -> bool:
        """Is this a property that of() reads, or refuses?"""
        return (
            name in _NUMBERS
            or name in _OTHERS
            or _listener_key(name) is not None
            or _missing_mechanism(name) is not None
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From the properties of a broker; those of other packages are left out. Raises InvalidConfig, without secrets
        in it."""
        for name in values:
            missing = _missing_mechanism(name)
            if missing is not None:
                raise InvalidConfig(
                    f"{name}: klog does not have the SASL mechanism {missing}, only {', '.join(MECHANISMS)}: remove "
                    f"the property, and choose one of these in {_ENABLED}"
                )
        numbers = {
            key: _number(name, values.get(name, default), low, high)
            for name, (key, default, low, high, _) in _NUMBERS.items()
        }
        return cls(
            authorizes=_authorizer(values.get("authorizer.class.name", "")),
            super_users=_principals("super.users", values.get("super.users", "")),
            allow_everyone_if_no_acl_found=_flag(values, "allow.everyone.if.no.acl.found"),
            listeners=_listeners(values, numbers),
            **numbers,
        )

    def listener(self, name: str) -> ListenerConfig:
        """The listener of this name. Raises ValueError for one that listener.security.protocol.map does not have."""
        found = self.listeners.get(name.upper())
        if found is None:
            raise ValueError(f"listener={name!r}: {_PROTOCOLS} does not have it")
        return found


def tls_property(name: str) -> tuple[str, str] | None:
    """(listener in upper case, property) of listener.name.<l>.ssl.<...>; None for another name."""
    found = _listener_key(name)
    return None if found is None or found[2] not in TLS else (found[0], found[2])


def _listener_key(name: str) -> tuple[str, str | None, str] | None:
    """(listener in upper case, mechanism in lower case or None, property) of listener.name.<l>[.<mechanism>].<p>."""
    if not name.startswith(_LISTENER):
        return None
    for key in (_ENABLED, _RECEIVE, _REAUTH, _JAAS, *_OF_TLS):
        if name.endswith(f".{key}"):
            rest = name[len(_LISTENER) : -len(key) - 1]
            for mechanism in MECHANISMS if key in (_REAUTH, _JAAS) else ():
                if rest.endswith(f".{mechanism.lower()}"):
                    return rest[: -len(mechanism) - 1].upper(), mechanism.lower(), key
            return (rest.upper(), None, key) if rest and key != _JAAS else None
    return None


def _missing_mechanism(name: str) -> str | None:
    """The mechanism that a property is for, if klog does not have it."""
    for prefix, mechanism in _OF_OTHERS.items():
        if name.startswith(prefix) or (name.startswith(_LISTENER) and f".{prefix}" in name):
            return mechanism
    return None


def _listeners(values: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, ListenerConfig]:
    protocols = _protocol_map(values.get(_PROTOCOLS, ""))
    given: dict[str, dict[tuple[str | None, str], tuple[str, Any]]] = {listener: {} for listener in protocols}
    for name, value in values.items():
        found = _listener_key(name)
        if found is not None:
            listener, mechanism, key = found
            if listener not in given:
                raise InvalidConfig(f"{name}: {_PROTOCOLS} does not have the listener {listener}")
            given[listener][mechanism, key] = name, value
    enabled = _mechanisms(_ENABLED, values[_ENABLED]) if _ENABLED in values else SCRAM
    allow = _flag(values, "klog.sasl.plaintext.allow")
    return {
        listener: _listener(listener, protocols[listener], properties, enabled, numbers, allow)
        for listener, properties in given.items()
    }


def _listener(
    listener: str,
    protocol: str,
    properties: Mapping[tuple[str | None, str], tuple[str, Any]],
    enabled: tuple[str, ...],
    numbers: Mapping[str, int],
    allow_plaintext: bool,
) -> ListenerConfig:
    if (None, _ENABLED) in properties:
        enabled = _mechanisms(*properties[None, _ENABLED])
    if protocol == "SASL_PLAINTEXT" and PLAIN in enabled and not allow_plaintext:
        enabled = tuple(each for each in enabled if each != PLAIN)
        hint = "PLAIN sends passwords as they are, and it has no TLS; klog.sasl.plaintext.allow=true allows it"
        if not enabled:
            raise InvalidConfig(f"{_ENABLED}: the listener {listener} would have no mechanism, because {hint}")
        _log.warning("event=plain_not_offered listener=%s reason=%r", listener, hint)
    reauth_ms = {}
    for mechanism in enabled:
        own = properties.get((mechanism.lower(), _REAUTH)) or properties.get((None, _REAUTH))
        reauth_ms[mechanism] = (
            numbers["connections_max_reauth_ms"] if own is None else _number(own[0], own[1], 0, LONG_MAX)
        )
    receive = properties.get((None, _RECEIVE))
    size = numbers["sasl_server_max_receive_size"] if receive is None else _number(*receive, 1, INT_MAX)
    modules = properties.get((PLAIN.lower(), _JAAS))
    users = {} if modules is None else _plain_users(*modules)
    tls = {key: str(value) for (_, key), (_, value) in properties.items() if key in _OF_TLS and value is not None}
    return ListenerConfig(protocol, enabled, size, reauth_ms, PlainUsers(users), tls)


def _plain_users(name: str, text: Any) -> dict[str, str]:
    """`user_<name>=<password>` of the PlainLoginModule."""
    from klog.security import jaas

    found = {}
    for module in jaas.parse(name, str(text)):
        if module.name != _PLAIN_MODULE:
            raise InvalidConfig(f"{name}: {_PLAIN_MODULE} expected")
        for option, password in module.options.items():
            if option.startswith("user_"):
                if option == "user_" or not password:
                    raise InvalidConfig(f"{name}: a user without a name or a password")
                found[option.removeprefix("user_")] = password
    return found


def _protocol_map(text: str) -> dict[str, str]:
    """Kafka's own: each protocol is a listener of its name."""
    if not text:
        return {protocol: protocol for protocol in PROTOCOLS}
    found = {}
    for item in _items(text):
        listener, _, protocol = item.partition(":")
        if not listener or protocol.upper() not in PROTOCOLS:
            raise InvalidConfig(f"{_PROTOCOLS}={text!r}: <listener>:{'|'.join(PROTOCOLS)},... expected")
        found[listener.strip().upper()] = protocol.upper()
    return found


def _mechanisms(name: str, value: Any) -> tuple[str, ...]:
    found = tuple(_items(value))
    unknown = [each for each in found if each not in MECHANISMS]
    if unknown or not found:
        raise InvalidConfig(f"{name}={value!r}: a list of {', '.join(MECHANISMS)} expected")
    return found


def _items(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return [item.strip() for item in parts if item.strip()]


def _authorizer(name: str) -> bool:
    if name not in ("", AUTHORIZER):
        raise InvalidConfig(f"authorizer.class.name={name!r}: {AUTHORIZER} or nothing expected")
    return bool(name)


def _principals(name: str, text: str) -> frozenset[str]:
    """`User:alice;User:bob`"""
    found = frozenset(item.strip() for item in text.split(";") if item.strip())
    for each in found:
        kind, colon, user = each.partition(":")
        if not (kind and colon and user):
            raise InvalidConfig(f"{name}={text!r}: User:<name>;... expected")
    return found


def _flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name, False)
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"{name}={value!r}: true or false expected")
    return text == "true"


def _number(name: str, value: Any, low: int, high: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise InvalidConfig(f"{name}={value!r}: a whole number expected") from None
    if not low <= number <= high:
        raise InvalidConfig(f"{name}={number}: from {low} to {high}")
    return number
