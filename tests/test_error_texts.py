"""Errors about a caller's mistake name the argument, its value, and what to write instead."""

from __future__ import annotations

import datetime
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import klog
from klog.errors import (
    BadValue,
    CorruptBatch,
    CorruptFrame,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    KlogError,
    OffsetOutOfRange,
    PeerGone,
    ReadFailed,
    TopicExists,
    UnexpectedAppendOffset,
    UnknownTopicOrPartition,
)
from klog.importing.errors import RowError, UnknownColumn
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
    "no partition": (InvalidPartitions, "partitions=0: from 1 to 10000", lambda logs, _path: logs.create_topic("u", 0)),
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
    "a timeout of hundreds of digits": (
        ValueError,
        "timeout=1000.*: seconds, from 0 to ",
        lambda logs, _path: logs.log("t").tail(timeout=10**400),
    ),
    "a partition of thousands of digits": (
        UnknownTopicOrPartition,
        "topic 't' has no partition <int>; it has 0",
        lambda logs, _path: logs.log("t", 10**5000),
    ),
    "partitions of thousands of digits": (
        ValueError,
        "partitions=<int>: from 1 to 10000",
        lambda logs, _path: logs.create_topic("u", 10**5000),
    ),
    "a path that no file has": (
        ValueError,
        r"path='\\ud800': a lone surrogate is in no file name",
        lambda _logs, _path: klog_.open("\ud800", create=True),
    ),
    "no log.dir": (ValueError, r"paths=\[\]: no log.dir given", lambda _logs, _path: klog_.inspect.groups([])),
    "a number among the log.dirs of a broker": (
        TypeError,
        r"paths\[1\]=5: a path, as str",
        lambda _logs, path: klog_.inspect.transactions([path / "data", 5]),
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
    "a record that is not in a list": (
        TypeError,
        r"record 0 must be a klog.Record or a tuple .*, not bytes; a single record goes into a list, \[\(key, value\)\]",
        lambda logs, _path: logs.append("t", (b"k", b"v")),
    ),
    "a value that is not in a list": (
        TypeError,
        r"records is an iterable .*, not bytes; put a single value into a list, \[\(None, value\)\]",
        lambda logs, _path: logs.append("t", b"v"),
    ),
    "a dict as record": (
        TypeError,
        r"record 0 must be .*, not dict; .* serializer='json': \[\(None, \{...\}\)\]",
        lambda logs, _path: logs.append("t", [{"a": 1}]),
    ),
    "a dict as value": (
        TypeError,
        "record 0: the value must be bytes or None, not dict; .* serializer='json'",
        lambda logs, _path: logs.append("t", [(b"k", {"a": 1})]),
    ),
    "a number as key": (
        TypeError,
        "record 1: the key must be bytes or None, not int; .* key_serializer='json'",
        lambda logs, _path: logs.append("t", [(b"k", b"v"), (7, b"v")]),
    ),
    "a frame with columns of its own": (
        ValueError,
        "column 'id' is none of .* value=, key=, .* ignore_other_columns=True",
        lambda logs, _path: logs.append("t", pyarrow.table({"id": [1], "name": ["a"]})),
    ),
    "a frame without a value": (
        ValueError,
        "column 'value' is missing: .* value=",
        lambda logs, _path: logs.append("t", pyarrow.table({"key": ["a"]})),
    ),
    "a topic that is there": (
        TopicExists,
        "topic 't' exists already; exist_ok=True accepts it",
        lambda logs, _path: logs.create_topic("t"),
    ),
    "a topic to wait for": (
        UnknownTopicOrPartition,
        "no topic 'u' in .*; missing_topic='wait' waits for it",
        lambda logs, _path: logs.reader("u", "me"),
    ),
    "a format without its schemas": (
        ValueError,
        r"decode='avro': choose 'utf8' or 'json', or an object .*klog.decode.*Avro\(",
        lambda logs, _path: logs.read("t", decode="avro"),
    ),
    "a schema that is not JSON": (
        ValueError,
        r"schemas\[3\]: Expecting property name",
        lambda _logs, _path: klog_.decode.Avro({2: '"int"', 3: "{"}),
    ),
    "a schema that is not Avro": (
        ValueError,
        r"schemas\[3\]: type 'recrod' is not known",
        lambda _logs, _path: klog_.decode.Avro({3: {"type": "recrod"}}),
    ),
    "one topic as topics": (
        TypeError,
        r"topics='t': a list of str expected, not str; write \['t'\]",
        lambda _logs, path: klog_.duckdb.connect(path / "data", topics="t"),
    ),
    "a file to import": (
        FileNotFoundError,
        "no such file; name a CSV, JSON lines or Parquet file: 'no.csv'",
        lambda logs, _path: klog_.importing.import_file("no.csv", logs, "t"),
    ),
    "a file to dump": (
        FileNotFoundError,
        "no such file; name a log.dir, a partition or a file of one",
        lambda _logs, path: list(klog_.inspect.dump(path / "no")),
    ),
    "a number as topics of a broker": (
        TypeError,
        "topics=5: a list of names, or .* expected, not int",
        lambda _logs, _path: klog_.TestBroker(topics=5),
    ),
    "a word as topics of a broker": (
        TypeError,
        r"topics='a': .* write \['a'\]",
        lambda _logs, _path: klog_.TestBroker(topics="a"),
    ),
    "a configuration of a broker that is no mapping": (
        TypeError,
        "config=5: a mapping of Kafka's names to values",
        lambda _logs, _path: klog_.TestBroker(config=5),
    ),
    "a number as directory of a broker": (
        TypeError,
        "directory=5: a path",
        lambda _logs, _path: klog_.TestBroker(directory=5),
    ),
    "a descriptor as a file of requests": (
        TypeError,
        "path=0: a path, as str or pathlib.Path",
        lambda _logs, _path: klog_.testing.replay(0, "127.0.0.1:1"),
    ),
    "a topic of a broker with text": (
        TypeError,
        r"topics\['a'\]='x': an int expected, not str; or a mapping",
        lambda _logs, _path: klog_.TestBroker(topics={"a": "x"}),
    ),
    "a topic of a broker without partitions": (
        ValueError,
        r"topics\['a'\]=-1: from 1 to 10000",
        lambda _logs, _path: klog_.TestBroker(topics={"a": -1}),
    ),
    "a topic of a broker with a wrong word": (
        ValueError,
        r"topics\['a'\]='partition': choose 'partitions' or 'config'",
        lambda _logs, _path: klog_.TestBroker(topics={"a": {"partition": 1}}),
    ),
    "a topic of a broker with a wrong key": (
        InvalidConfig,
        "unknown configuration key 'retention'; did you mean retention.ms",
        lambda _logs, _path: klog_.TestBroker(topics={"a": {"config": {"retention": 1}}}),
    ),
    "a topic of a broker with a wrong name": (
        InvalidTopic,
        "name='a b' is not a topic name",
        lambda _logs, _path: klog_.TestBroker(topics=["a b"]),
    ),
}
DIRECTORIES: dict[str, Callable[[Any], object]] = {
    "klog.open": lambda path: klog_.open(path, read_only=True),
    "verify": lambda path: klog_.verify(path),
    "ls": lambda path: klog_.inspect.ls(path),
    "groups": lambda path: klog_.inspect.groups(path),
    "transactions": lambda path: klog_.inspect.transactions([path]),
    "diff": lambda path: klog_.inspect.diff(path, path),
    "page_cache": lambda path: klog_.inspect.page_cache(path),
    "repair": lambda path: klog_.repairing.repair(path),
    "rescue": lambda path: klog_.repairing.rescue(path, "new"),
    "tune": lambda path: klog_.tuning.tune(path),
    "metadata": lambda path: klog_.handover.metadata(path),
    "adopt": lambda path: klog_.handover.adopt(path),
    "handover": lambda path: klog_.handover.handover(path),
    "copy_of": lambda path: klog_.TestBroker(copy_of=path),
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


@pytest.mark.parametrize("call", DIRECTORIES)
def test_a_directory_that_is_not_there(tmp_path: Path, call: str) -> None:
    path = tmp_path / "nope"
    with pytest.raises(FileNotFoundError, match="no such directory; name a log.dir, .*: '.*nope'"):
        DIRECTORIES[call](path)
    path.write_text("")
    with pytest.raises(NotADirectoryError, match="not a directory; name a log.dir"):
        DIRECTORIES[call](path)
    assert [each.name for each in tmp_path.iterdir()] == ["nope"]


def test_a_name_that_the_locale_cannot_encode_is_not_called_a_surrogate(tmp_path: Path) -> None:
    code = "import klog\ntry: klog.open('d\\xe4', create=True)\nexcept ValueError as error: print(ascii(str(error)))"
    names = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **names}, capture_output=True, check=True
    ).stdout
    assert b"file names are ascii in this process; set LC_ALL=C.UTF-8 or PYTHONUTF8=1" in shown


@pytest.mark.parametrize(
    "error",
    [
        BadValue("t-0", 1, "key", "no UTF-8", "Correct it."),
        CorruptBatch("crc", path="t-0/0.log", position=1, offset=2),
        CorruptFrame("short", position=1, field="topics[0]"),
        OffsetOutOfRange(5, 0, 3, "t-0"),
        PeerGone(32, 7),
        ReadFailed(5, "Input/output error", "t-0/0.log", 8),
        RowError("no number", path="f.csv", line=3),
        TopicExists("t"),
        UnexpectedAppendOffset(5, 6, 3, "t-0"),
        UnknownColumn("f.csv", "a", ["b"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_another_process_keeps_its_notes_and_attributes(error: KlogError) -> None:
    """Such as how many records an import had appended before it."""
    error.add_note("3 of 5 records were appended before that")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__notes__) == (type(error), str(error), error.__notes__)
    assert vars(again) == vars(error)
