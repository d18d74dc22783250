"""LogConfig and ManagerConfig: the table of table.py as frozen objects.

Precedence, strongest first: topic keys, broker synonyms (log.segment.bytes ...), defaults.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

from klog.config.table import BROKER_KEYS, SYNONYMS, TOPIC_KEYS, Key
from klog.errors import InvalidConfig

_log = logging.getLogger("klog.config")
_TOPIC_BY_FIELD = {key.field: key for key in TOPIC_KEYS.values()}
_BROKER_BY_FIELD = {key.field: key for key in BROKER_KEYS.values()}
_SYNONYM_BY_FIELD = {name.replace(".", "_"): name for name in SYNONYMS}


def _parse(key: Key, value: Any) -> Any:
    """The value of a property from Python or from text, checked; raises InvalidConfig naming the key."""
    try:
        parsed = _convert(key, value)
    except (ValueError, TypeError) as error:
        raise InvalidConfig(f"{key.name}={value!r}: {key.type} expected ({key.doc})") from error
    if key.choices:
        chosen = parsed if isinstance(parsed, tuple) else (parsed,)
        for item in chosen:
            if item not in key.choices:
                raise InvalidConfig(f"{key.name}={value!r}: choose from {', '.join(key.choices)}")
    if parsed is not None and isinstance(parsed, int | float) and not isinstance(parsed, bool):
        if key.low is not None and not parsed >= key.low:  # this way round a NaN is refused too
            raise InvalidConfig(f"{key.name}={value!r}: at least {key.low} ({key.doc})")
        if key.high is not None and parsed > key.high:
            raise InvalidConfig(f"{key.name}={value!r}: at most {key.high} ({key.doc})")
    if key.check is not None and not key.check(parsed):
        raise InvalidConfig(f"{key.name}={value!r}: {key.doc}")
    return parsed


def _convert(key: Key, value: Any) -> Any:
    if value is None:
        if key.default is None:
            return None
        raise ValueError
    if key.type == "bool":
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ValueError
        return text == "true"
    if key.type == "list":
        items = value.split(",") if isinstance(value, str) else list(value)
        return tuple(item.strip() for item in items if item.strip())
    if key.type in ("int", "long"):
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return int(value.strip()) if isinstance(value, str) else int(value)
    if key.type == "double":
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    if not isinstance(value, str):
        raise TypeError
    return value.strip()


def _unknown(name: str, known: Iterable[str] = (*TOPIC_KEYS, *BROKER_KEYS, *SYNONYMS)) -> InvalidConfig:
    near = difflib.get_close_matches(name.replace("_", "."), list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else "; `klog.LogConfig.keys_known()` lists the known ones"
    return InvalidConfig(f"unknown configuration key {name!r}{hint}")


def _sort_out(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(topic values, broker values, unknown names) of a mapping that may mix them in either spelling."""
    topic: dict[str, Any] = {}
    ranked: dict[str, tuple[int, Any]] = {}
    broker: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in values.items():
        if not isinstance(name, str):
            raise InvalidConfig(f"configuration keys are text, not {type(name).__name__}: {name!r}")
        key = TOPIC_KEYS.get(name) or _TOPIC_BY_FIELD.get(name)
        if key is not None:
            topic[key.name] = _parse(key, value)
            continue
        key = BROKER_KEYS.get(name) or _BROKER_BY_FIELD.get(name)
        if key is not None:
            broker[key.name] = _parse(key, value)
            continue
        synonym = name if name in SYNONYMS else _SYNONYM_BY_FIELD.get(name)
        if synonym is None:
            unknown.append(name)
            continue
        target, factor, rank = SYNONYMS[synonym]
        parsed = _parse(TOPIC_KEYS[target], value)
        if factor != 1 and parsed > 0:
            parsed *= factor
        if target not in ranked or rank < ranked[target][0]:
            ranked[target] = (rank, parsed)
    defaults = {target: value for target, (_, value) in ranked.items() if target not in topic}
    return {**defaults, **topic}, broker, unknown


class _Config(Mapping[str, Any]):
    """A frozen mapping from Kafka's names to values, readable as attributes in snake_case."""

    _values: Mapping[str, Any]
    _given: Mapping[str, Any]

    def _fill(self, table: Mapping[str, Key], given: Mapping[str, Any]) -> None:
        values = {name: given.get(name, key.default) for name, key in table.items()}
        object.__setattr__(self, "_given", MappingProxyType(dict(given)))
        object.__setattr__(self, "_values", MappingProxyType(values))
        for name, key in table.items():  # real attributes: an append reads a dozen of them
            self.__dict__[key.field] = values[name]

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; make a new one with .replace({name}=...)")

    def __hash__(self) -> int:
        return hash(tuple(sorted((name, str(value)) for name, value in self._given.items())))

    def __repr__(self) -> str:
        given = ", ".join(f"{name!r}: {value!r}" for name, value in self._given.items())
        return f"{type(self).__name__}({{{given}}})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self._given),)

    @property
    def given(self) -> Mapping[str, Any]:
        """Only what was set, under Kafka's names; the rest are defaults."""
        return self._given


class LogConfig(_Config):
    """Topic-level configuration of one log. Values: `config["segment.bytes"]` or `config.segment_bytes`.

    Raises InvalidConfig for an unknown key, a wrong type or a value out of bounds.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        topic, broker, unknown = _sort_out({**(values or {}), **named})
        if unknown:
            raise _unknown(unknown[0])
        if broker:
            raise InvalidConfig(f"{next(iter(broker))} belongs to the log directory: give it to klog.open(config=...)")
        self._fill(TOPIC_KEYS, topic)
        self._check()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"LogConfig has no {name!r}")

    def _check(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                "min.compaction.lag.ms exceeds max.compaction.lag.ms; lower the first or raise the second"
            )
        for unit in ("ms", "bytes"):
            local, total = self[f"local.retention.{unit}"], self[f"retention.{unit}"]
            if local != -2 and total != -1 and (local == -1 or local > total):
                raise InvalidConfig(f"local.retention.{unit}={local} exceeds retention.{unit}={total}")

    @property
    def segment_size(self) -> int:
        """Bytes of a full segment: internal.segment.bytes where set, else segment.bytes."""
        internal = self._values["internal.segment.bytes"]
        return int(self._values["segment.bytes"] if internal is None else internal)

    @property
    def compacts(self) -> bool:
        """Does cleanup.policy include compact?"""
        return "compact" in self._values["cleanup.policy"]

    def replace(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Self:
        """This configuration with some keys set anew; None takes a key back to its default."""
        topic = dict(self._given)
        for name, value in {**(values or {}), **named}.items():
            key = TOPIC_KEYS.get(name) or _TOPIC_BY_FIELD.get(name)
            if key is None:
                raise _unknown(name, TOPIC_KEYS)
            if value is None:
                topic.pop(key.name, None)
            else:
                topic[key.name] = value
        return type(self)(topic)

    @staticmethod
    def keys_known() -> tuple[str, ...]:
        """Every topic-level key."""
        return tuple(TOPIC_KEYS)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """The log settings of a server.properties or topic properties file. Unknown broker keys only warn."""
        topic, _, unknown = _sort_out(read_properties(path))
        if unknown:
            _log.warning("event=unknown_keys path=%s keys=%s", os.fspath(path), ",".join(sorted(unknown)))
        return cls(topic)


class ManagerConfig(_Config):
    """Configuration of a log.dir: broker-level keys, and broker synonyms as defaults of its topics."""

    topic_defaults: Mapping[str, Any]

    def __init__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        topic, broker, unknown = _sort_out({**(values or {}), **named})
        if unknown:
            raise _unknown(unknown[0])
        self._set(topic, broker)

    def _set(self, topic: dict[str, Any], broker: dict[str, Any]) -> None:
        LogConfig(topic)
        self._fill(BROKER_KEYS, broker)
        object.__setattr__(self, "topic_defaults", MappingProxyType(topic))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ManagerConfig has no {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ({**self._given, **self.topic_defaults},)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """The settings of a server.properties file. Unknown keys only warn: most of them concern a broker's network."""
        topic, broker, unknown = _sort_out(read_properties(path))
        if unknown:
            _log.warning("event=unknown_keys path=%s keys=%s", os.fspath(path), ",".join(sorted(unknown)))
        return cls({**topic, **broker})


def split_config(config: Mapping[str, Any] | None) -> tuple[LogConfig, ManagerConfig]:
    """What a dict that mixes topic-level and broker-level keys says about a log and about its directory."""
    if isinstance(config, LogConfig):
        return config, ManagerConfig()
    topic, broker, unknown = _sort_out(config or {})
    if unknown:
        raise _unknown(unknown[0])
    return LogConfig(topic), ManagerConfig(broker)


def read_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Java's properties text (Latin-1): key=value or key:value lines, # and ! comments, a final backslash goes on."""
    values: dict[str, str] = {}
    with open(path, encoding="latin-1") as file:
        pending = ""
        for raw in (*file, ""):
            line = pending + raw.strip()
            pending = ""
            if not line or line[0] in "#!":
                continue
            if line.endswith("\\"):
                pending = line[:-1]
                continue
            cut = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=-1)
            if cut < 0:
                values[line] = ""
            else:
                values[line[:cut].strip()] = line[cut + 1 :].strip()
    return values
