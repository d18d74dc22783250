"""klog's config tables compared with Kafka's list of keys (kafka_keys.tsv): names, types, defaults, bounds, synonyms.

Covers rows of 10.4: each test that checks one of its tables cites it.
"""

from __future__ import annotations

import re

import pytest

from klog.arguments import INT_MAX, LONG_MAX
from klog.config import LogConfig, ManagerConfig
from klog.config.broker_table import BROKER_KEYS
from klog.config.table import SYNONYMS, TOPIC_KEYS, Key
from klog.config.values import format_value
from klog.errors import InvalidConfig
from tests.support.kafka_keys import KafkaKey, kafka_keys, kafka_synonyms

KAFKA = {(key.kind, key.name): key for key in kafka_keys()}
TYPES = {"int": "INT", "long": "LONG", "double": "DOUBLE", "bool": "BOOLEAN", "list": "LIST", "string": "STRING"}
# Keys outside klog: classes to load, Kafka's metadata log. A server.properties may have them, with a warning.
NOT_HERE = re.compile(r".*\.class\.(name|path)|.*\.listener\.name|replica\.(selector|socket).*|log\.dir\.failure.*")
# Kafka 4.3 has it; 4.1 does not.
LATER = {"remote.log.manager.follower.thread.pool.size"}
# Kafka's type is a string with commas, klog's a list; klog accepts segments of 14 bytes and more.
LISTS = {"log.dir", "log.dirs"}
WIDER = {"segment.bytes", "log.segment.bytes", "internal.segment.bytes"}


def same_default(mine: object, kafka: str) -> bool:
    if isinstance(mine, float):
        return mine == float(kafka)
    if isinstance(mine, tuple):
        return format_value(mine) == kafka.strip("[]").replace(" ", "")
    return ("null" if mine is None else format_value(mine)) == kafka


def bounds(key: KafkaKey) -> tuple[float | None, float | None]:
    found = re.fullmatch(r"\[(-?[\d.]+)?,\.\.\.(?:,(-?[\d.]+))?\]", key.bounds)
    return (float(found[1]), float(found[2]) if found[2] else None) if found else (None, None)


def check(mine: Key, kafka: KafkaKey) -> None:
    assert mine.name in LISTS or TYPES[mine.type] == kafka.type
    assert mine.name == "log.dir" or same_default(mine.default, kafka.default)
    low, high = bounds(kafka)
    if low is not None and mine.name not in WIDER:
        assert (mine.low, mine.high) == (
            low,
            high if high is not None else {"int": INT_MAX, "long": LONG_MAX}.get(mine.type),
        )


@pytest.mark.parametrize(
    "key", [key for key in TOPIC_KEYS.values() if not key.name.startswith("klog.")], ids=lambda key: key.name
)
def test_every_topic_key_is_kafkas(key: Key) -> None:
    check(key, KAFKA["topic", key.name])
    assert [name for name, _ in key.synonyms] == kafka_synonyms().get(key.name, [])


def test_every_topic_key_of_kafka_is_known() -> None:
    assert {name for kind, name in KAFKA if kind == "topic"} == {
        name for name in TOPIC_KEYS if not name.startswith("klog.")
    }


@pytest.mark.parametrize(
    "key", [key for key in BROKER_KEYS.values() if key.name not in LATER], ids=lambda key: key.name
)
def test_every_broker_key_is_kafkas(key: Key) -> None:
    kafka = KAFKA["broker", key.name]
    if key.secret:
        assert kafka.type == "PASSWORD"
    else:
        check(key, kafka)


@pytest.mark.parametrize("prefix", ["log.", "replica.", "replication.", "remote.", "producer.id.", "quota."])
def test_every_broker_key_of_the_log_is_known(prefix: str) -> None:
    theirs = {name for kind, name in KAFKA if kind == "broker" and name.startswith(prefix)}
    assert {name for name in theirs - {*BROKER_KEYS, *SYNONYMS} if not NOT_HERE.fullmatch(name)} == set()


@pytest.mark.parametrize("name", SYNONYMS)
def test_every_synonym_has_kafkas_type_and_bounds(name: str) -> None:
    mine, kafka = SYNONYMS[name].key, KAFKA["broker", name]
    assert TYPES[mine.type] == kafka.type
    low, _ = bounds(kafka)
    if low is not None and name not in WIDER:
        assert mine.low == low
    assert mine.high == {"INT": INT_MAX, "LONG": LONG_MAX}.get(kafka.type) or name.startswith(
        ("compression.", "log.cleaner.min")
    )


@pytest.mark.parametrize("key", [*TOPIC_KEYS.values(), *BROKER_KEYS.values()], ids=lambda key: key.name)
def test_bounds_are_accepted_and_values_beyond_raise(key: Key) -> None:
    """10.4: type and constraint of each row."""
    make = LogConfig if key.name in TOPIC_KEYS else ManagerConfig
    relations = {"min.compaction.lag.ms": {"max.compaction.lag.ms": LONG_MAX}, "local.retention.bytes": {}}
    beside = {"retention.ms": -1, "retention.bytes": -1, **relations.get(key.name, {})} if make is LogConfig else {}
    beside.pop(key.name, None)
    step = 0.001 if key.type == "double" else 1
    for bound, direction in ((key.low, -1), (key.high, 1)):
        if bound is None:
            continue
        value = bound if key.type == "double" else int(bound)
        assert make({**beside, key.name: value})[key.name] == value
        with pytest.raises(InvalidConfig, match=re.escape(key.name)):
            make({**beside, key.name: value + direction * step})
    for item in key.choices:
        assert make({key.name: item})[key.name] in (item, (item,))
    with pytest.raises(InvalidConfig, match=re.escape(key.name)):
        make({key.name: object()})


def test_every_one_letter_typo_is_understood() -> None:
    """An unknown key raises, with the nearest known key."""
    for name in TOPIC_KEYS:
        for at in range(len(name)):
            typed = name[:at] + name[at + 1 :]
            with pytest.raises(InvalidConfig, match=f"did you mean {re.escape(name)}\\?"):
                LogConfig({typed: 1})
    for name in BROKER_KEYS:
        for typed in (
            name[:5] + name[6:],
            name[:-1],
            name.replace(".", "_")[:-1],
            name + "s",
            name[:4] + "x" + name[4:],
        ):
            if typed.replace("_", ".") in {*BROKER_KEYS, *SYNONYMS}:
                continue
            with pytest.raises(InvalidConfig, match="did you mean ") as caught:
                ManagerConfig({typed: 1})
            assert f"did you mean {name}?" in str(caught.value), typed
