"""Errors about a caller's mistake name the argument, its value, and what to write instead."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.errors import UnknownTopicOrPartition
from tests.support.logs import tree

klog_: Any = klog  # the tested calls fail type checks

MISTAKES: dict[str, tuple[type[Exception], str, Callable[[Any, Path], object]]] = {
    "no path": (TypeError, r"path=None: .*klog.open\('data', create=True\)", lambda _logs, _path: klog_.open(None)),
    "an empty path": (ValueError, "path='': ", lambda _logs, _path: klog_.open("", create=True)),
    "a number as path": (TypeError, "path=1: ", lambda _logs, _path: klog_.open(1)),
    "a number among paths": (TypeError, r"path\[1\]=1: ", lambda _logs, path: klog_.open([path / "x", 1])),
    "read-only and new": (
        ValueError,
        "create=True, read_only=True: .*leave out one of the two",
        lambda _logs, path: klog_.open(path / "new", create=True, read_only=True),
    ),
    "read-only as text": (
        TypeError,
        "read_only='no': True or False expected",
        lambda logs, path: klog_.open(path / "data", read_only="no"),
    ),
    "partitions as text": (
        TypeError,
        r"partitions='3': an int expected, not str; use int\(\)",
        lambda logs, _path: logs.create_topic("u", partitions="3"),
    ),
    "no partition": (ValueError, "partitions=0: from 1 to 10000", lambda logs, _path: logs.create_topic("u", 0)),
    "too many partitions": (
        ValueError,
        "partitions=2147483648: from 1 to 10000",
        lambda logs, _path: logs.create_topic("u", 2**31),
    ),
    "a record of nothing": (
        TypeError,
        r"klog.Record takes key and value, .*has no key: klog.Record\(key=",
        lambda _logs, _path: klog_.Record(),
    ),
    "a record without a value": (TypeError, "has no value: ", lambda _logs, _path: klog_.Record(b"k")),
    "a record of text": (
        TypeError,
        r"value must be bytes or None, not str; use .encode\(\)",
        lambda _l, _p: klog_.Record(None, "v"),
    ),
    "a negative timeout": (
        ValueError,
        "timeout=-1: .*None waits for ever",
        lambda logs, _path: logs.log("t").tail(timeout=-1),
    ),
    "the configuration of no topic": (
        UnknownTopicOrPartition,
        "no topic 'nope' in .*; topics there: t",
        lambda logs, _path: logs.topic_config("nope"),
    ),
    "a descriptor as a file": (
        TypeError,
        "path=True: a path, as str or pathlib.Path",
        lambda _logs, _path: klog_.LogConfig.from_properties(True),
    ),
    "a partition as text": (TypeError, r"partition='0': an int expected", lambda logs, _path: logs.log("t", "0")),
    "a partition as text to read": (TypeError, r"partition='0': ", lambda logs, _path: logs.read("t", partition="0")),
    "a descriptor to send to": (TypeError, "target=1: ", lambda logs, _path: logs.log("t").fetch(0).send_to(1)),
    "a time without a zone": (
        ValueError,
        "stop=.* names no time zone",
        lambda logs, _path: logs.log("t").read(stop=datetime.datetime(2020, 1, 1)),
    ),
    "seconds of an hour": (
        TypeError,
        r"ms=1.5: an int expected.*round\(moment.timestamp\(\) \* 1000\)",
        lambda logs, _path: logs.log("t").offset_for_timestamp(1.5),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_name_the_argument(tmp_path: Path, mistake: str) -> None:
    kind, text, make = MISTAKES[mistake]
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t")
        logs.log("t").append([(b"k", b"v")])
        before = tree(tmp_path)
        with pytest.raises(kind, match=text):
            make(logs, tmp_path)
        assert tree(tmp_path) == before and logs.topics() == {"t": [0]}
