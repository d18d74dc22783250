"""Log.append and LogManager.append take columns and lists, with the same result as tuples."""

from __future__ import annotations

import array
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import klog
from klog.clock import ManualClock
from klog.errors import InvalidRecord, RecordTooLarge
from klog.record import Lists, RowSource

T = 1_700_000_000_000
ROWS: list[tuple[Any, ...]] = [
    (None if n % 5 == 0 else b"key %d" % (n % 700), b"v" * (n % 40), None if n % 3 == 0 else T + n, [])
    for n in range(23_000)
]


def table(rows: list[tuple[Any, ...]] = ROWS, **kinds: pa.DataType) -> pa.Table:
    key, value, stamp, _ = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(key, pa.binary()).cast(kinds.get("key", pa.binary())),
            "value": pa.array(value, pa.binary()),
            "timestamp": pa.array(stamp, pa.timestamp("ms")),
        }
    )


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    with klog.open(tmp_path / "d", create=True, clock=ManualClock(T + 100_000)) as manager:
        yield manager


def rows_of(log: Any) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, r.timestamp, list(r.headers)) for r in log.read()]


def stored(logs: klog.LogManager, topic: str, partition: int = 0) -> list[bytes]:
    return [Path(segment.path).read_bytes() for segment in logs.log(topic, partition).segments]


FORMS = {
    "table": table,
    "chunks": lambda: pa.Table.from_batches(table().to_batches(max_chunksize=999)),
    "batch": lambda: table().combine_chunks().to_batches()[0],
    "lists": lambda: Lists(*map(list, zip(*ROWS, strict=True))),
    "rows": lambda: next(RowSource(table())),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_input_form_stores_the_same_bytes(logs: klog.LogManager, form: Any) -> None:
    for topic, records in (("ours", form()), ("tuples", ROWS)):
        logs.create_topic(topic)
        info = logs.log(topic).append(records)
        assert (info.first_offset, info.last_offset, info.count) == (0, 22_999, 23_000)
        logs.log(topic).flush()
    assert stored(logs, "ours") == stored(logs, "tuples")


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_record_goes_to_the_partition_of_its_key(logs: klog.LogManager, form: Any) -> None:
    got = {}
    for topic, records in (("ours", form()), ("tuples", ROWS)):
        logs.create_topic(topic, partitions=4)
        infos = logs.append(topic, records)
        assert sum(info.count for info in infos.values()) == len(ROWS)
        got[topic] = [rows_of(logs.log(topic, partition)) for partition in range(4)]
        assert [len(rows) for rows in got[topic]] == [infos[partition].count for partition in range(4)]
    for ours, theirs in zip(got["ours"], got["tuples"], strict=True):
        assert [row for row in ours if row[0] is not None] == [row for row in theirs if row[0] is not None]
    ours, theirs = (sorted(map(repr, itertools.chain(*got[topic]))) for topic in ("ours", "tuples"))
    assert ours == theirs
    keyless = [sum(row[0] is None for row in rows) for rows in got["ours"]]
    assert sum(count > 0 for count in keyless) >= 3, "they take turns"


def test_keys_of_strings_hash_as_their_bytes(logs: klog.LogManager) -> None:
    logs.create_topic("bytes", partitions=3)
    logs.create_topic("text", partitions=3)
    rows = [row for row in ROWS[:500] if row[0] is not None]
    logs.append("bytes", table(rows))
    for kind in (pa.string(), pa.large_string()):
        logs.append("text", table(rows[::2], key=kind).slice(10, 50))
    for row in rows_of(logs.log("text", 1)):
        assert row in rows_of(logs.log("bytes", 1))


def test_an_array_with_an_invalid_row_is_refused_with_its_index(logs: klog.LogManager) -> None:
    logs.create_topic("t", partitions=4, config={"cleanup.policy": "compact"})
    logs.create_topic("small", partitions=2, config={"max.message.bytes": 1000})
    keyed = [row for row in ROWS if row[0] is not None]
    bad = table([*keyed[:15_000], (None, b"v", T, []), *keyed[15_000:]])
    large = table([*ROWS[:12_345], (b"k", bytes(2000), T, []), *ROWS[12_345:]])
    for topic, given, error, number in (
        ("t", bad, InvalidRecord, 15_000),
        ("small", large, RecordTooLarge, 12_345),
    ):
        with pytest.raises(error, match=rf"record {number}\b"):
            logs.append(topic, given.combine_chunks().to_batches()[0])
        with pytest.raises(error, match=rf"record {number}\b"):
            logs.log(topic).append(given.combine_chunks().to_batches()[0])
        assert logs.log(topic, 0).log_end_offset == logs.log(topic, 1).log_end_offset == 0
    with pytest.raises(ValueError, match="'foo' is none of"):
        logs.append("t", pa.table({"value": [b"v"], "foo": [1]}))


def test_the_batches_before_a_failure_of_a_stream_stay(logs: klog.LogManager) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield table(ROWS[:50]).to_batches()[0]
        raise ValueError("the end of it")

    logs.create_topic("t", partitions=2)
    with pytest.raises(ValueError, match="the end of it") as caught:
        logs.append("t", pa.RecordBatchReader.from_batches(table().schema, batches()))
    assert sum(logs.log("t", partition).log_end_offset for partition in range(2)) == 50
    assert "appended before the error" in caught.value.__notes__[0]


def test_columns_read_from_a_log_can_be_appended(logs: klog.LogManager) -> None:
    """As records, whose header keys need not be valid text."""
    logs.create_topic("a")
    logs.create_topic("b")
    logs.create_topic("c", partitions=2)
    logs.log("a").append([(b"k", b"v", -1, [("\udcff", b"x")]), (None, None, T)])
    logs.log("b").append(logs.log("a").read())
    assert (
        rows_of(logs.log("b")) == rows_of(logs.log("a")) == [(b"k", b"v", -1, [("\udcff", b"x")]), (None, None, T, [])]
    )
    logs.append("c", logs.log("a").read())
    assert sorted(map(repr, rows_of(logs.log("c", 0)) + rows_of(logs.log("c", 1)))) == sorted(
        map(repr, rows_of(logs.log("a")))
    )


def test_empty_columns_append_nothing(logs: klog.LogManager) -> None:
    logs.create_topic("t", partitions=2)
    for nothing in (
        table(ROWS[:1]).slice(1),
        table(ROWS[:1]).slice(1).combine_chunks(),
        Lists(None, [], array.array("q")),
    ):
        assert logs.log("t").append(nothing).count == 0
        assert logs.append("t", nothing) == {}


def test_frames_of_polars_and_duckdb_are_accepted(logs: klog.LogManager) -> None:
    polars = pytest.importorskip("polars", reason="needs: polars")
    duckdb = pytest.importorskip("duckdb", reason="needs: duckdb")
    logs.create_topic("t", partitions=2)
    logs.append("t", polars.from_arrow(table(ROWS[:100])))
    logs.append("t", duckdb.from_arrow(table(ROWS[:100])))
    assert sum(info.count for info in logs.append("t", table(ROWS[:100])).values()) == 100
    assert sum(logs.log("t", partition).log_end_offset for partition in range(2)) == 300
