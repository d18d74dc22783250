"""What a configuration key means, from the tables: for `klog config explain`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

from klog.arguments import text
from klog.config.broker_table import BROKER_KEYS
from klog.config.nearest import nearest
from klog.config.table import REMOVED, SYNONYMS, TOPIC_KEYS, Key
from klog.errors import InvalidConfig
from klog.values import dataclass

_UNITS = {
    "ms": "milliseconds",
    "seconds": "seconds",
    "minutes": "minutes",
    "hours": "hours",
    "bytes": "bytes",
    "messages": "records",
}
_NAMED_UNIT = r", (?:ms|s|bytes|bytes a second)(?=[;,]|$)"  # in a text of the tables


@dataclass(frozen=True, slots=True)
class Explanation:
    """One key.

    level        "topic": create_topic, alter_topic, Log.open; "broker": klog.open(config=...), alter_config;
                 "server": klog.Broker(config=...) alone; "group": a group of such a broker
    field        the name in Python; empty at the last two levels
    unit         of the number; None if it has none
    low, high    inclusive bounds of a number, None for those of the type
    choices      the accepted words; empty if there are others
    topic_key    the topic key whose default a broker key sets; None if it sets none
    broker_keys  the broker keys that set the default of a topic key, strongest first
    dynamic      "yes": a change applies while the directory is open; "no": at the next start; "half..double": at once,
                 by at most that factor
    """

    name: str
    field: str
    level: Literal["topic", "broker", "server", "group"]
    type: str
    unit: str | None
    default: Any
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    topic_key: str | None
    broker_keys: tuple[str, ...]
    dynamic: Literal["no", "yes", "half..double"]
    meaning: str


def explain(name: str, further: Iterable[Explanation] = ()) -> Explanation:
    """Return what a key means. name: Kafka's property name, or the name in Python, such as segment_ms. further: keys of
    other packages; they come first.

    Raises InvalidConfig for a removed key, with what to use instead, and for an unknown one, with the nearest known.
    """
    wanted = text("name", name)
    others = {each.name: each for each in further}
    known = {**BROKER_KEYS, **SYNONYMS, **TOPIC_KEYS, **others}
    found = wanted if wanted in known else {each.replace(".", "_"): each for each in known}.get(wanted)
    if found in others:
        return others[found]
    if found in TOPIC_KEYS:
        key = TOPIC_KEYS[found]
        return explanation_of(key, "topic", key.default, tuple(name for name, _ in key.synonyms), dynamic="yes")
    if found in SYNONYMS:
        synonym = SYNONYMS[found]
        default = synonym.key.default
        if synonym.factor != 1 and isinstance(default, int):
            default //= synonym.factor  # the table has it in the unit of the topic key
        return explanation_of(synonym.key, "broker", default, (), synonym.topic_key, synonym.key.dynamic)
    if found is not None:
        key = BROKER_KEYS[found]
        return explanation_of(key, "broker", key.default, dynamic=key.dynamic)
    if wanted in REMOVED:
        raise InvalidConfig(f"Kafka 4.0 removed {wanted}: {REMOVED[wanted]}")
    near = nearest(wanted, known)
    hint = f"did you mean {near}?" if near else "docs/configuration.md lists the known ones"
    raise InvalidConfig(f"unknown configuration key {wanted!r}; {hint}")


def explanation_of(
    key: Key,
    level: Literal["topic", "broker", "server", "group"],
    default: Any,
    broker_keys: tuple[str, ...] = (),
    topic_key: str | None = None,
    dynamic: Literal["no", "yes", "half..double"] = "no",
) -> Explanation:
    """Return what a key of a table means; topic_key, broker_keys, dynamic: as in Explanation."""
    number = key.type in ("int", "long", "double")
    return Explanation(
        name=key.name,
        field=key.field if level in ("topic", "broker") else "",
        level=level,
        type=key.type,
        unit=_unit(key) if number else None,
        default=default,
        low=key.low if number else None,
        high=key.high if number else None,
        choices=key.choices,
        topic_key=topic_key,
        broker_keys=broker_keys,
        dynamic=dynamic,
        meaning=re.sub(_NAMED_UNIT, "", key.doc),
    )


def _unit(key: Key) -> str | None:
    if key.name.endswith("bytes.per.second"):
        return "bytes per second"
    unit = _UNITS.get(key.name.rpartition(".")[2])
    return "bytes" if unit is None and "bytes" in key.doc else unit
