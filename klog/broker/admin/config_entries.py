"""ConfigView: the configuration of topics and of the broker as DescribeConfigs shows it: value, source, synonyms, type.

A value comes from the first of these that has it; each that has it is a synonym in the response:

    the topic's own value                  DYNAMIC_TOPIC_CONFIG
    what clients have set for this broker  DYNAMIC_BROKER_CONFIG
    what they have set for all brokers     DYNAMIC_DEFAULT_BROKER_CONFIG
    the broker's properties                STATIC_BROKER_CONFIG
    the default                            DEFAULT_CONFIG

A property that no table knows is shown without its value: it may be a password.
Kafka: ConfigHelper, DynamicBrokerConfig.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final

from klog.config import BROKER_KEYS, TOPIC_KEYS, Key
from klog.config.table import SYNONYMS
from klog.config.values import format_value, parse_value
from klog.errors import InvalidConfig
from klog.security.config import tls_property
from klog.values import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from klog.broker.admin.dynamic_configs import DynamicConfigs
    from klog.manager import LogManager


class Source(IntEnum):
    """Where a value comes from. Kafka: DescribeConfigsResponse.ConfigSource."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class Synonym(NamedTuple):
    """A value that a configuration has, or would have without the ones before it."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One configuration. type: Kafka's number of it, 0 if it is unknown."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...] = ()
    type: int = 0
    read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None


_TYPES: Final = {"bool": 1, "string": 2, "int": 3, "long": 5, "double": 6, "list": 7}
_PASSWORD: Final = 9
# Properties that the tables do not have. None of them is a password.
_PUBLIC: Final = ("listeners", "advertised.listeners", "group.", "offsets.", "share.", "transaction.")
_HIDDEN: Final = "internal.segment.bytes"  # shown only where it is set, as by Kafka
# Those that the engine takes over while it runs; the tables have more that Kafka would, for other parts of a broker.
_ENGINE: Final = ("log.", "num.recovery.", "producer.id.")


def is_dynamic(name: str) -> bool:
    """Can a broker-level property change while the broker runs?"""
    synonym = SYNONYMS.get(name)
    if synonym is not None:
        return synonym.key.dynamic != "no"
    key, of_listener = broker_key(name), tls_property(name) is not None
    return key is not None and key.dynamic != "no" and (of_listener or name.startswith(_ENGINE))


def broker_key(name: str) -> Key | None:
    """The type and meaning of a broker-level property; None for an unknown one."""
    synonym, found = SYNONYMS.get(name), tls_property(name)
    return synonym.key if synonym is not None else BROKER_KEYS.get(name if found is None else found[1])


class ConfigView:
    """Any thread.

    given: the broker's properties by Kafka's names. effective: the values of further properties, given or default,
    which cannot change. It is made before clients' changes are applied to `logs`.
    """

    def __init__(
        self,
        logs: LogManager,
        dynamic: DynamicConfigs,
        given: Mapping[str, Any],
        effective: Mapping[str, Any],
    ) -> None:
        self._logs = logs
        self._dynamic = dynamic
        self._given = {*given, "log.dirs"}
        shown = {name: value for name, value in given.items() if name.startswith(_PUBLIC) and broker_key(name) is None}
        self._effective = {**shown, **effective, "log.dirs": ",".join(logs.paths)}
        self._static = _static(logs, given)

    # ---- topics ------------------------------------------------------------------------------------------------------

    def of_topic(self, own: Mapping[str, Any]) -> Iterator[Entry]:
        """The configurations of a topic, sorted. own: its own values. Raises InvalidConfig."""
        values = self._logs.config.topic_config(own)
        for name in sorted(TOPIC_KEYS):
            if name == _HIDDEN and name not in own:
                continue
            key = TOPIC_KEYS[name]
            value = _text(key, values[name])
            synonyms = [*([Synonym(name, value, Source.TOPIC)] if name in own else []), *self._of_topic_key(key)]
            yield Entry(
                name, value, _source(synonyms), tuple(synonyms), _TYPES[key.type], documentation=key.doc or None
            )

    def _of_topic_key(self, key: Key) -> Iterator[Synonym]:
        names = [name for name, _ in key.synonyms]
        if key.name in self._static and key.name not in names:
            yield Synonym(key.name, _typed_text(key, self._static[key.name]), Source.STATIC_BROKER)
        found = list(self._of_names(names))
        if found and found[0].source is Source.DEFAULT:
            # The default of log.retention.hours is not shown for retention.ms, whose first synonym is log.retention.ms.
            found = [synonym for synonym in found if synonym.name == names[0]]
        yield from found

    # ---- broker ------------------------------------------------------------------------------------------------------

    def of_broker(self, node_id: int) -> Iterator[Entry]:
        """The configurations of a broker, sorted. Those of several brokers differ in node.id alone."""
        effective = {**self._effective, "node.id": node_id}
        for name in sorted({*BROKER_KEYS, *SYNONYMS, *effective, *self._static, *self._dynamic.broker}):
            yield self._of_broker(name, effective)

    def of_all_brokers(self) -> Iterator[Entry]:
        """What clients have set for all brokers, sorted."""
        for name, value in sorted(self._dynamic.default.items()):
            synonym = Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)
            key = broker_key(name)
            kind = _TYPES[key.type] if key is not None else 0
            yield Entry(name, value, synonym.source, (synonym,), kind, documentation=key.doc if key else None)

    def _of_broker(self, name: str, effective: Mapping[str, Any]) -> Entry:
        key = broker_key(name)
        if name in effective:
            value = effective[name]
            source = Source.STATIC_BROKER if name in self._given else Source.DEFAULT
            text = None if value is None else format_value(value)
            synonyms = [] if text is None else [Synonym(name, text, source)]
            return Entry(name, text, source, tuple(synonyms), _type_of(value), read_only=True)
        if key is None or key.secret:
            synonyms = [synonym._replace(value=None) for synonym in self._of_names([name])]
            return Entry(name, None, _source(synonyms), tuple(synonyms), _PASSWORD if key else 0, True, True)
        synonyms = list(dropwhile(lambda synonym: synonym.name != name, self._of_names(_group(name))))
        value = synonyms[0].value if synonyms else None
        return Entry(
            name,
            value,
            _source(synonyms),
            tuple(synonyms),
            _TYPES[key.type],
            read_only=not is_dynamic(name),
            documentation=key.doc or None,
        )

    def _of_names(self, names: list[str]) -> Iterator[Synonym]:
        """The values of broker-level properties that set the same thing, the strongest name first."""
        for values, source in (
            (self._dynamic.broker, Source.DYNAMIC_BROKER),
            (self._dynamic.default, Source.DYNAMIC_DEFAULT_BROKER),
            (self._static, Source.STATIC_BROKER),
        ):
            for name in names:
                key = broker_key(name)
                if name in values:
                    yield Synonym(name, values[name] if key is None else _typed_text(key, values[name]), source)
        for name in names:
            default = _default(name)
            if default is not None:
                yield Synonym(name, default, Source.DEFAULT)


def _source(synonyms: list[Synonym]) -> Source:
    return synonyms[0].source if synonyms else Source.DEFAULT


def _group(name: str) -> list[str]:
    """The names of broker-level properties that set the same as this one, the strongest first."""
    synonym = SYNONYMS.get(name)
    if synonym is None:
        return [name]
    return [each for each, _ in TOPIC_KEYS[synonym.topic_key].synonyms]


def _default(name: str) -> str | None:
    """The default of a broker-level property. Of synonyms only the weakest has one, such as log.retention.hours."""
    key, synonym = broker_key(name), SYNONYMS.get(name)
    if key is None or key.default is None or _group(name)[-1] != name:
        return None
    if synonym is not None and synonym.factor != 1:
        return str(key.default // synonym.factor)  # the table has it in the unit of the topic key
    return _text(key, key.default)


def _static(logs: LogManager, given: Mapping[str, Any]) -> dict[str, str]:
    """The broker's properties as text: those given, and others that the directory was opened with."""
    opened = logs.config
    found = {name: format_value(value) for name, value in opened.given.items()}
    for name, value in opened.topic_defaults.items():
        names = [each for each, _ in TOPIC_KEYS[name].synonyms]
        if not any(each in given for each in names):
            found[names[0] if names else name] = format_value(value)
    return found | {name: format_value(value) for name, value in given.items() if value is not None}


def _typed_text(key: Key, text: str) -> str | None:
    """A given value as its type writes it: " 5" is 5."""
    try:
        return _text(key, parse_value(key, text))
    except InvalidConfig:
        return text


def _text(key: Key, value: Any) -> str | None:
    """A value as Kafka writes it."""
    if value is None:
        return None
    return _java_double(value) if key.type == "double" else format_value(value)


def _java_double(value: float) -> str:
    """Double.toString: 0.5, 1.0E-5, 1.7976931348623157E308."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    from decimal import Decimal  # few values need it

    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{len(digits) - 1 + int(exponent)}"


def _type_of(value: Any) -> int:
    if isinstance(value, bool | tuple):
        return _TYPES["bool" if isinstance(value, bool) else "list"]
    return _TYPES["int"] if isinstance(value, int) else _TYPES["string"]
