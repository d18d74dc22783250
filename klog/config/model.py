"""LogConfig and ManagerConfig: the tables of table.py and broker_table.py as frozen objects.

Precedence of a topic key, strongest first: the topic's own value, a change since the directory was opened
(LogManager.alter_config), the value that it was opened with, the default. Of several broker synonyms the strongest
counts, in any order: ms before minutes before hours.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self, TypeVar

from klog.arguments import path as checked_path
from klog.arguments import wrong_type
from klog.config.broker_table import BROKER_KEYS
from klog.config.io_policy import IoPolicy
from klog.config.nearest import nearest
from klog.config.properties import format_properties, read_properties
from klog.config.table import REMOVED, SEGMENT_BYTES_KAFKA, SYNONYMS, TOPIC_KEYS, Key
from klog.config.values import format_value, parse_value
from klog.errors import InvalidConfig
from klog.logger import logger_of

C = TypeVar("C", bound="_Config")
_log = logger_of("config")
_TOPIC_BY_FIELD = {key.field: key for key in TOPIC_KEYS.values()}
_BROKER_BY_FIELD = {key.field: key for key in BROKER_KEYS.values()}
_SYNONYM_BY_FIELD = {name.replace(".", "_"): name for name in SYNONYMS}
_REMOVED_BY_FIELD = {name.replace(".", "_"): name for name in REMOVED}


def _unknown(name: str, known: Iterable[str] = (*TOPIC_KEYS, *BROKER_KEYS, *SYNONYMS)) -> InvalidConfig:
    return InvalidConfig(f"unknown configuration key {name!r}{_hint(name, known)}")


def _hint(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else "; `klog.LogConfig.keys_known()` lists the known ones"


def config_values(name: str, given: Any, *, optional: bool = True) -> Mapping[str, Any]:
    """Return a configuration that a caller gives as the argument `name`: a mapping or, if it is optional, None."""
    if given is None and optional:
        return {}
    if not isinstance(given, Mapping):
        raise wrong_type(name, given, f"a mapping of Kafka's names to values{', or None,' if optional else ''}")
    for key in given:
        if not isinstance(key, str):
            raise InvalidConfig(f"{name}: configuration keys must be str, not {type(key).__name__}: {key!r}")
    return given


def _sort_out(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Split a mapping that may mix topic and broker values, in either spelling: (topic values, broker values, unknown
    names). A value of None is ignored: it was reset. Keys that Kafka has removed only cause a warning."""
    topic: dict[str, Any] = {}
    ranked: dict[str, tuple[int, Any]] = {}
    broker: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in values.items():
        if not isinstance(name, str):
            raise InvalidConfig(f"configuration keys must be str, not {type(name).__name__}: {name!r}")
        removed = name if name in REMOVED else _REMOVED_BY_FIELD.get(name)
        if removed is not None:
            _log.warning("event=removed_key key=%s since=4.0 instead=%r", removed, REMOVED[removed])
            continue
        topic_key = TOPIC_KEYS.get(name) or _TOPIC_BY_FIELD.get(name)
        broker_key = BROKER_KEYS.get(name) or _BROKER_BY_FIELD.get(name)
        synonym = SYNONYMS.get(name) or SYNONYMS.get(_SYNONYM_BY_FIELD.get(name, ""))
        if not (topic_key or broker_key or synonym):
            unknown.append(name)
        elif value is None:
            continue
        elif topic_key is not None:
            topic[topic_key.name] = parse_value(topic_key, value)
        else:
            if broker_key is not None:
                broker[broker_key.name] = parse_value(broker_key, value)
            if synonym is not None:
                parsed = parse_value(synonym.key, value)
                if synonym.factor != 1 and parsed > 0:
                    parsed *= synonym.factor
                best = ranked.get(synonym.topic_key)
                if best is None or synonym.rank < best[0]:
                    ranked[synonym.topic_key] = (synonym.rank, parsed)
    defaults = {target: value for target, (_, value) in ranked.items() if target not in topic}
    return {**defaults, **topic}, broker, unknown


class _Config(Mapping[str, Any]):
    """A frozen mapping from Kafka's names to values, also readable as attributes in snake_case."""

    _table: Mapping[str, Key]
    _by_field: Mapping[str, Key]
    _values: Mapping[str, Any]
    _given: Mapping[str, Any]

    @abc.abstractmethod
    def _set(self, values: Mapping[str, Any], /) -> None:
        """Take parsed values. Raises InvalidConfig if they exclude each other."""

    def _fill(self, given: Mapping[str, Any]) -> None:
        values = {name: given.get(name, key.default) for name, key in self._table.items()}
        object.__setattr__(self, "_given", MappingProxyType(dict(given)))
        object.__setattr__(self, "_values", MappingProxyType(values))
        # Real attributes: an append reads about ten of them. Fields and names are in the order of the table.
        self.__dict__.update(zip(self._by_field, values.values(), strict=True))

    def __getitem__(self, name: str) -> Any:
        key = self._by_field.get(name)
        try:
            return self._values[name if key is None else key.name]
        except KeyError:
            raise KeyError(f"{type(self).__name__} has no {name!r}{_hint(name, self._table)}") from None

    def __getattr__(self, name: str) -> Any:
        hint = "" if name.startswith("_") else _hint(name, self._table)
        raise AttributeError(f"{type(self).__name__} has no {name!r}{hint}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make a new one with .replace({name}=...)")

    def __hash__(self) -> int:
        return hash(tuple(sorted((name, str(value)) for name, value in self._values.items())))

    def __repr__(self) -> str:
        given = ", ".join(
            f"{name!r}: {'(hidden)' if self._table[name].secret else repr(value)}"
            for name, value in self._given.items()
        )
        return f"{type(self).__name__}({{{given}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), dict(self._given))

    @property
    def given(self) -> Mapping[str, Any]:
        """Only the values that were given, under Kafka's names; the others are defaults."""
        return self._given


class LogConfig(_Config):
    """Topic-level configuration of one log. Values: `config["segment.bytes"]` or `config.segment_bytes`.

    Raises InvalidConfig for an unknown key, a wrong type, a value out of range, or values that exclude each other.
    """

    _table = TOPIC_KEYS
    _by_field = _TOPIC_BY_FIELD

    def __init__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        topic, broker, unknown = _sort_out({**config_values("values", values), **named})
        if unknown:
            raise _unknown(unknown[0])
        not_of_topics = [name for name in broker if name not in SYNONYMS]
        if not_of_topics:
            raise InvalidConfig(f"{not_of_topics[0]} belongs to the log directory: give it to klog.open(config=...)")
        self._set(topic)
        _warn_of_small_segments(topic)

    def _set(self, topic: Mapping[str, Any]) -> None:
        self._fill(topic)
        for rule in RULES:
            broken = rule(self)
            if broken:
                raise InvalidConfig(broken)

    @property
    def segment_size(self) -> int:
        """Bytes of a full segment: internal.segment.bytes if set, else segment.bytes."""
        internal = self._values["internal.segment.bytes"]
        return int(self._values["segment.bytes"] if internal is None else internal)

    @property
    def compacts(self) -> bool:
        """True if cleanup.policy includes compact."""
        return "compact" in self._values["cleanup.policy"]

    @property
    def deletes(self) -> bool:
        """True if cleanup.policy includes delete."""
        return "delete" in self._values["cleanup.policy"]

    @cached_property
    def io(self) -> IoPolicy:
        """How its bytes are written to and read from the disk: the `klog.io.*` keys."""
        return IoPolicy.of(self._values)

    def replace(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Self:
        """Return this configuration with some keys changed; None resets a key to its default."""
        topic, changed = dict(self._given), {}
        for name, value in {**config_values("values", values), **named}.items():
            if name in REMOVED or name in _REMOVED_BY_FIELD:
                _sort_out({name: value})
                continue
            key = TOPIC_KEYS.get(name) or _TOPIC_BY_FIELD.get(name)
            if key is None:
                raise _unknown(name, TOPIC_KEYS)
            topic.pop(key.name, None)
            if value is not None:
                changed[key.name] = parse_value(key, value)
        _warn_of_small_segments(changed)
        return _remade(type(self), {**topic, **changed})

    @staticmethod
    def keys_known() -> tuple[str, ...]:
        """Every topic-level key."""
        return tuple(TOPIC_KEYS)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Read the log settings of a server.properties or topic properties file. Unknown keys only cause a warning."""
        path = checked_path("path", path)
        topic, _, unknown = _sort_out(read_properties(path))
        _warn_of_unknown(path, unknown)
        return cls(topic)

    def to_properties(self) -> str:
        """Return the given values as the text of a properties file; from_properties reads an equal configuration."""
        return format_properties({name: format_value(value) for name, value in self._given.items()})


def _warn_of_small_segments(given: Mapping[str, Any]) -> None:
    """Warn once, when the value is given, and not whenever a configuration is derived from it."""
    size = given.get("segment.bytes")
    if size is not None and size < SEGMENT_BYTES_KAFKA and given.get("internal.segment.bytes") is None:
        _log.warning(
            "event=small_segments segment.bytes=%d kafka_least=%d note='a broker rejects it'", size, SEGMENT_BYTES_KAFKA
        )


def _warn_of_unknown(path: str | os.PathLike[str], unknown: list[str]) -> None:
    if unknown:
        _log.warning("event=unknown_keys path=%s keys=%s", os.fspath(path), ",".join(sorted(unknown)))


# ---- rules that concern more than one key ----------------------------------------------------------------------------


def _lags(config: LogConfig) -> str:
    if config.min_compaction_lag_ms <= config.max_compaction_lag_ms:
        return ""
    return "min.compaction.lag.ms exceeds max.compaction.lag.ms: lower the first or raise the second"


def _local_retention(config: LogConfig) -> str:
    for unit in ("ms", "bytes"):
        local, total = config[f"local.retention.{unit}"], config[f"retention.{unit}"]
        if local != -2 and total != -1 and (local == -1 or local > total):
            return f"local.retention.{unit}={local} exceeds retention.{unit}={total}; -2 sets it to the same"
    return ""


def _tiering(config: LogConfig) -> str:
    if not config.remote_storage_enable:
        return ""
    if config.compacts:
        return "remote.storage.enable=true: a compacted topic cannot be tiered; remove compact from cleanup.policy"
    for unit in ("ms", "bytes"):
        local, total = config[f"local.retention.{unit}"], config[f"retention.{unit}"]
        if config.remote_log_copy_disable and local not in (-2, total):
            return (
                f"remote.log.copy.disable=true: nothing is copied any more, so local.retention.{unit}={local} must be "
                f"retention.{unit}={total} or -2"
            )
    return ""


RULES: tuple[Callable[[LogConfig], str], ...] = (_lags, _local_retention, _tiering)
"""Each returns what is wrong with a configuration, "" for nothing. Kafka: LogConfig.validate."""


def check_tiering(before: LogConfig | None, after: LogConfig, broker: ManagerConfig) -> None:
    """Check a topic's change of tiered storage against its directory's configuration and its own previous one.

    Raises InvalidConfig.
    """
    if after.remote_storage_enable and not broker.remote_log_storage_system_enable:
        raise InvalidConfig(
            "remote.storage.enable=true, but tiered storage is off here: "
            "set remote.log.storage.system.enable=true first"
        )
    was = before is not None and before.remote_storage_enable
    if was and not after.remote_storage_enable and not after.remote_log_delete_on_disable:
        raise InvalidConfig(
            "remote.storage.enable=false would make the tiered data unreadable: set remote.log.delete.on.disable=true "
            "to delete it, or remote.storage.enable=true, remote.log.copy.disable=true to keep reading it"
        )


class ManagerConfig(_Config):
    """Configuration of a log.dir: broker-level keys, and broker synonyms as defaults of its topics."""

    _table = BROKER_KEYS
    _by_field = _BROKER_BY_FIELD
    topic_defaults: Mapping[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        topic, broker, unknown = _sort_out({**config_values("values", values), **named})
        if unknown:
            raise _unknown(unknown[0])
        _warn_of_small_segments(topic)
        self._set({**topic, **broker})

    def _set(self, values: Mapping[str, Any]) -> None:
        topic = {name: value for name, value in values.items() if name in TOPIC_KEYS}
        _remade(LogConfig, topic)
        self._fill({name: value for name, value in values.items() if name not in TOPIC_KEYS})
        object.__setattr__(self, "topic_defaults", MappingProxyType(topic))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ManagerConfig):
            return NotImplemented
        return self._values == other._values and self.topic_defaults == other.topic_defaults

    def __hash__(self) -> int:
        return hash((super().__hash__(), tuple(sorted(map(str, self.topic_defaults.items())))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), {**self._given, **self.topic_defaults})

    @property
    def directories(self) -> tuple[str, ...]:
        """The log directories of a broker with this configuration: log.dirs, or else log.dir."""
        chosen: tuple[str, ...] = self._values["log.dirs"] or self._values["log.dir"]
        return chosen

    def topic_config(self, own: Mapping[str, Any]) -> LogConfig:
        """Return the configuration of a topic's logs: its own values, then this directory's defaults, then Kafka's.

        Raises InvalidConfig.
        """
        topic, _, unknown = _sort_out(config_values("own", own, optional=False))
        if unknown:
            raise _unknown(unknown[0], TOPIC_KEYS)
        return _remade(LogConfig, {**self.topic_defaults, **topic})

    def altered(self, values: Mapping[str, Any], now: ManagerConfig | None = None) -> Self:
        """Return this configuration with run-time changes applied; None leaves a value unchanged.

        now: the current configuration; numbers of threads may at most be halved or doubled from it. Raises
        InvalidConfig for a key that Kafka reads only at start.
        """
        merged = {**self._given, **self.topic_defaults}
        if now is not None and not isinstance(now, ManagerConfig):
            raise wrong_type("now", now, "a ManagerConfig, or None,")
        for name, value in config_values("values", values, optional=False).items():
            target, dynamic = self._target(name)
            if dynamic == "no":
                raise InvalidConfig(
                    f"{name} cannot change while the directory is open: give it to klog.open(config=...)"
                )
            if value is None:
                continue
            topic, broker, _ = _sort_out({name: value})
            merged[target] = {**topic, **broker}[target]
            if dynamic == "half..double" and now is not None:
                low, high = now[target] // 2, now[target] * 2
                if not low <= merged[target] <= high:
                    raise InvalidConfig(f"{name}={value!r}: it is {now[target]} now; choose {low} to {high}")
        _warn_of_small_segments(merged if "log.segment.bytes" in values else {})
        return _remade(type(self), merged)

    @staticmethod
    def _target(name: str) -> tuple[str, str]:
        """Return (the key that a name sets, whether it may change at run time)."""
        synonym = SYNONYMS.get(name) or SYNONYMS.get(_SYNONYM_BY_FIELD.get(name, ""))
        if synonym is not None:
            return synonym.topic_key, synonym.key.dynamic
        broker_key = BROKER_KEYS.get(name) or _BROKER_BY_FIELD.get(name)
        if broker_key is not None:
            return broker_key.name, broker_key.dynamic
        topic_key = TOPIC_KEYS.get(name) or _TOPIC_BY_FIELD.get(name)
        if topic_key is not None:
            return topic_key.name, "yes"
        raise _unknown(name)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Read a server.properties file. Unknown keys only cause a warning: most of them concern a broker's network."""
        path = checked_path("path", path)
        topic, broker, unknown = _sort_out(read_properties(path))
        _warn_of_unknown(path, unknown)
        _warn_of_small_segments(topic)
        return _remade(cls, {**topic, **broker})

    def to_properties(self) -> str:
        """Return the given values as the text of a server.properties; from_properties reads an equal configuration. It
        contains secrets."""
        synonyms = {name: key.synonyms[0][0] for name, key in TOPIC_KEYS.items() if key.synonyms}
        defaults = {synonyms.get(name, name): value for name, value in self.topic_defaults.items()}
        values = {**self._given, **defaults}
        return format_properties({name: format_value(value) for name, value in values.items()})


def _remade(kind: type[C], values: Mapping[str, Any]) -> C:
    """Make a configuration from values that were parsed before, without warnings."""
    config = kind.__new__(kind)
    config._set(values)
    return config


def split_config(config: Mapping[str, Any] | None) -> tuple[LogConfig, ManagerConfig]:
    """Split a dict that mixes topic-level and broker-level keys into a LogConfig and a ManagerConfig."""
    if isinstance(config, LogConfig):
        return config, ManagerConfig()
    topic, broker, unknown = _sort_out(config_values("config", config))
    if unknown:
        raise _unknown(unknown[0])
    return LogConfig(topic), ManagerConfig(broker)


def with_changes(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Return run-time changes for ManagerConfig.altered(), of which the later one counts for each key, whatever its
    name."""
    changed = {ManagerConfig._target(name)[0] for name in later}
    return {
        **{name: value for name, value in earlier.items() if ManagerConfig._target(name)[0] not in changed},
        **later,
    }
