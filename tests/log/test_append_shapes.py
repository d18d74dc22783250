"""Appends of str, dict and other objects with a serializer, and of data frames whose columns have other names."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

import klog
from klog.clock import ManualClock
from klog.record import Lists

T = 1_700_000_000_000
AT = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
COLUMNS = {"user": ["u0", None, "u2"], "n": [1, None, 3], "at": [AT] * 3, "payload": ["a", None, "ü"]}
FRAMES: dict[str, Any] = {
    "table": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.record_batch(COLUMNS),
    "chunks": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 2), pa.table(COLUMNS).slice(2)]),
    "polars": lambda: polars.DataFrame(COLUMNS),
    "pandas": lambda: pandas.DataFrame({**COLUMNS, "n": pandas.array(COLUMNS["n"], dtype="Int64")}),
}


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path / "data", create=True, clock=ManualClock(T + 5)) as logs:
        logs.create_topic("t")
        yield logs


def rows(logs: klog.LogManager) -> list[Any]:
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in logs.read("t")]


def test_words_and_functions_make_bytes(logs: klog.LogManager) -> None:
    records: list[Any] = [
        ("k", {"a": [1, "ü"], "b": None}),
        (None, None, 7),
        ("l", "text", T, [("h", b"1")]),
    ]
    logs.append("t", records, serializer="json", key_serializer="utf8")
    assert rows(logs) == [
        (b"k", '{"a":[1,"ü"],"b":null}'.encode(), T + 5, []),
        (None, None, 7, []),
        (b"l", b'"text"', T, [("h", b"1")]),
    ]
    log = logs.log("t")
    log.append(iter([(b"k", "v")]), serializer="utf8")
    log.append([klog.Record(b"k", b"v", T)], serializer=bytes.upper)
    log.append(Lists(["x"], [5], [T]), serializer="json", key_serializer="utf8")  # type: ignore[list-item]
    asyncio.run(log.append_async([(b"k", 3)], serializer=lambda number: b"%d" % number))
    assert [row[:2] for row in rows(logs)[3:]] == [(b"k", b"v"), (b"k", b"V"), (b"x", b"5"), (b"k", b"3")]


def test_json_of_times_decimals_and_ids(logs: klog.LogManager) -> None:
    value = [AT, AT.date(), AT.time(), decimal.Decimal("1.50"), uuid.UUID(int=1)]
    logs.append("t", [(None, value)], serializer="json")
    assert rows(logs)[0][1] == (
        b'["2023-11-14T22:13:20Z","2023-11-14","22:13:20","1.50","00000000-0000-0000-0000-000000000001"]'
    )


@pytest.mark.parametrize(
    ("serializer", "value", "text"),
    [
        ("json", b"x", "record 1: b'x' cannot be written as JSON: JSON has no bytes; decode them, or leave"),
        ("json", float("nan"), "record 1: nan cannot be written as JSON"),
        ("json", "\ud800", "record 1: .* cannot be written as JSON"),
        ("utf8", b"x", "record 1: b'x' is not a str, which the serializer 'utf8' takes; leave it out for bytes"),
        ("utf8", "\ud800", "record 1: .* cannot be written as UTF-8"),
        (lambda value: "text", 1, "record 1: the value is str, not bytes"),
    ],
)
def test_what_cannot_be_serialized_is_named_and_appends_nothing(
    logs: klog.LogManager, serializer: Any, value: Any, text: str
) -> None:
    good: Any = "good" if isinstance(serializer, str) else None
    for append in (partial(logs.append, "t"), logs.log("t").append):
        with pytest.raises(TypeError, match=text):
            append([(None, good), (None, value)], serializer=serializer)
    assert rows(logs) == []


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_frame_names_its_columns(logs: klog.LogManager, make: Any) -> None:
    logs.append("t", make(), value="payload", key="user", timestamp="at", ignore_other_columns=True)
    assert rows(logs) == [
        (b"u0", b"a", T, []),
        (None, None, T, []),
        (b"u2", "ü".encode(), T, []),
    ]
    logs.log("t").append(
        make(), value=["n", "user"], key="n", serializer="json", key_serializer="json", ignore_other_columns=True
    )
    assert [row[:2] for row in rows(logs)[3:]] == [
        (b"1", b'{"n":1,"user":"u0"}'),
        (None, b'{"n":null,"user":null}'),
        (b"3", b'{"n":3,"user":"u2"}'),
    ]


def test_other_columns_are_an_error_unless_ignored(logs: klog.LogManager) -> None:
    table = pa.table({"value": ["a"], "offset": [5], "x": [1], "y": [2]})
    for given in ({"serializer": "utf8"}, {"value": "value"}, {"ignore_other_columns": False}):
        with pytest.raises(
            ValueError, match="also has columns 'x', 'y'; name what to append.*ignore_other_columns=True"
        ):
            logs.append("t", table, **given)
    logs.append("t", table, ignore_other_columns=True)
    assert [row[1] for row in rows(logs)] == [b"a"]


def test_a_list_and_a_batch_are_appended_whole_and_a_stream_in_groups(logs: klog.LogManager) -> None:
    def serialize(value: int) -> bytes:
        if value == 12_000:
            raise ZeroDivisionError
        return b"%d" % value

    batch = pa.record_batch({"n": range(13_000)})
    with pytest.raises(ZeroDivisionError) as caught:
        logs.append("t", batch, value="n", serializer=serialize)
    assert rows(logs) == [] and "record 12000: the serializer was called with 12000" in caught.value.__notes__
    with pytest.raises(ZeroDivisionError):
        logs.append("t", [(None, number) for number in range(13_000)], serializer=serialize)
    assert rows(logs) == []
    stream = pa.Table.from_batches([batch.slice(0, 11_000), batch.slice(11_000)])
    with pytest.raises(ZeroDivisionError) as caught:
        logs.append("t", stream, value="n", serializer=serialize)
    assert len(rows(logs)) == 11_000
    assert "record 12000: the serializer was called with 12000" in caught.value.__notes__


@pytest.mark.parametrize(
    ("records", "given", "error", "text"),
    [
        ([(b"k", b"v")], {"serializer": "yaml"}, ValueError, "serializer='yaml': choose 'utf8' or 'json'"),
        ([(b"k", b"v")], {"key_serializer": 5}, TypeError, "key_serializer=5: 'utf8', 'json', a function or None"),
        ([(b"k", b"v")], {"value": "v"}, ValueError, "value=... is about columns, which list does not have"),
        ([(b"k", b"v")], {"compressor": 1}, TypeError, "unexpected argument 'compressor'; it takes compression, "),
        ({"a": 1}, {"serializer": "json"}, TypeError, "records is an iterable of klog.Record or tuples, not dict"),
        (pa.table(COLUMNS), {"value": 5}, TypeError, "value=5"),
        (pa.table(COLUMNS), {"value": []}, ValueError, "several columns become one value"),
        (
            pa.table(COLUMNS),
            {"value": ["n", "at"]},
            ValueError,
            "several columns become one value by serializer='json'",
        ),
        (pa.table(COLUMNS), {"value": "p"}, ValueError, "value: column 'p' is missing; records has 'user', 'n'"),
        (pa.table(COLUMNS), {"key": "k", "value": "n"}, ValueError, "key: column 'k' is missing"),
        (pa.table(COLUMNS), {"ignore_other_columns": 1}, TypeError, "ignore_other_columns=1: True or False"),
        (pa.table(COLUMNS), {"serializer": "json"}, ValueError, "value: column 'value' is missing"),
        (pa.table([[1], [2]], names=["v", "v"]), {"value": "v"}, ValueError, "value: column 'v' occurs twice"),
    ],
)
def test_wrong_arguments(
    logs: klog.LogManager, records: Any, given: dict[str, Any], error: type[Exception], text: str
) -> None:
    for append in (lambda: logs.append("t", records, **given), lambda: logs.log("t").append(records, **given)):
        with pytest.raises(error, match=text):
            append()
    assert rows(logs) == []


def test_a_list_of_one_column_is_an_object(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append(pa.table({"n": [1, 2]}), value=["n"], serializer="json")
        log.append(pa.table({"n": [3]}), value="n", serializer="json")
        log.append(pa.table({"n": ["4"]}), value=["n"])
        assert [record.value for record in log.read()] == [b'{"n":1}', b'{"n":2}', b"3", b"4"]
