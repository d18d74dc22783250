"""Common argument types are accepted: numpy's integers, subclasses of str and int, members of enums, paths, timestamps
of pandas, every type of a config's values."""

from __future__ import annotations

import datetime
import enum
import os
import types
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

import klog
from klog import record


class Name(str):
    """A program's own subclass of str."""


class Topics(enum.StrEnum):
    EVENTS = "events"
    CLIENT = "client"


class Old(str, enum.Enum):  # noqa: UP042 - as programs for Python 3.10 have it
    EVENTS = "events"


class Number(enum.IntEnum):
    NONE = 0
    ONE = 1


TIME = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
TOPICS = ["events", Name("events"), Topics.EVENTS, Old.EVENTS, numpy.str_("events")]
PARTITIONS = [0, numpy.int64(0), numpy.uint8(0), Number.NONE, pandas.Series([0]).iloc[0]]
POSITIONS = [
    None,
    0,
    numpy.int64(0),
    Number.NONE,
    "earliest",
    Name("latest"),
    "-3h",
    "now",
    TIME,
    pandas.Timestamp(TIME),
]
POSITIONS += [TIME.date(), {}, {numpy.int64(0): numpy.int64(0), Number.ONE: TIME}]
CONFIGS: list[Any] = [
    {"segment.bytes": numpy.int64(1 << 20)},
    {"segment.bytes": "1048576"},
    {"preallocate": True},
    {"preallocate": numpy.bool_(True)},
    {"preallocate": "true"},
    {"min.cleanable.dirty.ratio": 1},
    {"min.cleanable.dirty.ratio": numpy.float32(0.5)},
    {"min.cleanable.dirty.ratio": "0.5"},
    {"cleanup.policy": ["compact", "delete"]},
    {"cleanup.policy": Name("compact,delete")},
    {Name("retention.ms"): Number.ONE},
    {"retention_ms": None},
    types.MappingProxyType({"retention.ms": 1}),
    klog.LogConfig({"retention.ms": 1}),
]


@pytest.fixture
def logs(tmp_path: Path) -> Any:
    with klog.open(tmp_path / "data", create=numpy.bool_(True), durability=Name("os")) as logs:
        logs.create_topic("events", partitions=numpy.int64(2), config={"retention.ms": -1})
        logs.append("events", [(b"k", b"v")])
        yield logs


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: type(topic).__name__)
def test_topics(logs: Any, topic: Any) -> None:
    assert logs.log(topic) is logs.log("events")
    assert logs.topic_config(topic) and logs.append(topic, [(b"k", b"v")])
    assert len(list(logs.read(topic))) == 2 and logs.reader(topic, Name("me"))
    logs.delete_topic(topic)


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda partition: type(partition).__name__)
def test_partitions_and_offsets(logs: Any, partition: Any) -> None:
    log = logs.log("events", partition)
    assert log is logs.log("events", 0)
    list(logs.read("events", partition=partition))
    log.fetch(partition, numpy.int64(1 << 20), isolation=Name("log_end"), min_one_message=numpy.bool_(True))
    log.truncate_to(partition)
    assert log.append([(b"k", b"v", numpy.int64(5))]).first_offset == 0
    assert log.offset_for_timestamp(partition) == (5, 0)


@pytest.mark.parametrize("position", POSITIONS, ids=lambda position: f"{type(position).__name__} {position}")
def test_positions(logs: Any, position: Any) -> None:
    assert list(logs.read("events", position)) is not None
    if not isinstance(position, dict):
        assert logs.log("events").count(position) in (0, 1)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_configurations(logs: Any, config: Any) -> None:
    logs.create_topic("configured", config=config)
    if not isinstance(config, klog.LogConfig):
        logs.alter_topic("configured", config)


def test_paths(tmp_path: Path) -> None:
    for number, path in enumerate(
        [tmp_path / "0", str(tmp_path / "1"), Name(tmp_path / "2"), os.fsencode(tmp_path / "3")]
    ):
        klog.open(path, create=True).close()
        assert klog.verify(path).ok
        klog.Log.open(os.path.join(os.fsdecode(path), f"alone-{number}")).close()
    klog.open(tmp_path / str(number) for number in range(2)).close()


def test_words_and_levels(logs: Any) -> None:
    """Every topic of topics() unchanged; an origin and a codec from a program's own enum; a level from numpy."""
    logs.warm_up(logs.topics(), timeout=numpy.float64(5))
    log = logs.log("events")
    log.append_batches(record.encode([(b"k", b"v")]), origin=Topics.CLIENT)
    log.append([(b"k", b"v")], compression=("zstd", numpy.int64(3)))
    log.append([(b"k", b"v")], compression=Name("lz4"))
