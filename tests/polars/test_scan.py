"""klog.polars.scan returns the same records as readers, and reads no more than a query needs."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import klog
import klog.polars
from klog.clock import ManualClock
from klog.decode import Json
from klog.errors import CorruptBatch, OffsetOutOfRange, UnknownTopicOrPartition

NOW = 1_700_000_000_000
T = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
SCHEMA = {
    "offset": pl.Int64,
    "timestamp": pl.Datetime("ms", "UTC"),
    "timestamp_type": pl.Int8,
    "key": pl.Binary,
    "value": pl.Binary,
    "headers": pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
    "topic": pl.String,
    "partition": pl.Int32,
}
c = pl.col


def whole(path: Path, topic: str) -> pl.DataFrame:
    """Return all records, as the readers of the partitions return them."""
    with klog.open(path, read_only=True) as logs:
        parts = [
            logs.log(topic, number)
            .read()
            .to_polars()
            .with_columns(topic=pl.lit(topic), partition=pl.lit(number, pl.Int32))
            for number in logs.topics()[topic]
        ]
    return pl.concat(parts)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two topics with two partitions. Each has 50 batches of up to 160 KB, so that excluded batches are skipped.

    Timestamps are in no order. In `made` the producer sets them, and some batches have none. In `stored` each is the time
    of the append.
    """
    path = tmp_path_factory.mktemp("data")
    chance = random.Random(19)
    clock = ManualClock(NOW)
    config = {"segment.bytes": 1 << 20, "retention.ms": -1}
    with klog.open(path, create=True, clock=clock) as logs:
        for topic, kind in (("made", "CreateTime"), ("stored", "LogAppendTime")):
            logs.create_topic(topic, partitions=2, config={**config, "message.timestamp.type": kind})
            for partition in range(2):
                for _ in range(50):
                    clock.advance(60_000)
                    times = NOW + chance.randrange(3_600_000)
                    none = kind == "CreateTime" and chance.random() < 0.1
                    logs.log(topic, partition).append(
                        [
                            klog.Record(
                                chance.choice((None, b"a", b"b")),
                                chance.choice((None, chance.randbytes(chance.choice((5, 40_000))))),
                                -1 if none else times + chance.randrange(-600_000, 600_000),
                                [("h", b"1")] * chance.randrange(2),
                            )
                            for _ in range(chance.randrange(1, 5))
                        ]
                    )
    return path


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["made", "stored"])
def test_all_records_with_all_columns(data: Path, topic: str) -> None:
    frame = klog.polars.scan(data, topic)
    assert dict(frame.collect_schema()) == SCHEMA
    assert_frame_equal(frame.collect(), whole(data, topic))
    assert frame.collect().height == frame.select(pl.len()).collect().item() > 200


def _times() -> st.SearchStrategy[datetime]:
    return st.integers(-5_000, 8_000).map(lambda seconds: T + timedelta(seconds=seconds, microseconds=seconds % 1000))


def _comparisons() -> st.SearchStrategy[pl.Expr]:
    numbers, parts = st.integers(-5, 140), st.integers(-1, 3)
    compare = st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne", "eq_missing"])
    closed = st.sampled_from(["both", "left", "right", "none"])

    def of(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[pl.Expr]:
        plain = st.builds(lambda name, value: getattr(c(column), name)(value), compare, values)
        reversed_ = st.builds(lambda value: pl.lit(value) <= c(column), values)
        between = st.builds(
            lambda low, high, ends: c(column).is_between(low, high, closed=ends), values, values, closed
        )
        lists = st.lists(values, max_size=3).map(
            lambda found: pl.Series(found, dtype=SCHEMA[column], strict=False).implode()
        )
        return st.one_of(plain, reversed_, between, lists.map(lambda found: c(column).is_in(found)))

    others = [
        c("key").is_null(),
        c("key") == b"a",
        c("value").bin.size() > 100,
        c("timestamp").is_null(),
        c("timestamp").dt.minute() < 30,
        c("offset") % 3 == 0,
        c("offset") > 7.5,
        c("offset").cast(pl.Float64) < c("partition") * 50,
        pl.lit(None, pl.Boolean),
    ]
    return st.one_of(of("offset", numbers), of("partition", parts), of("timestamp", _times()), st.sampled_from(others))


def predicates() -> st.SearchStrategy[pl.Expr]:
    return st.recursive(
        _comparisons(),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            inner.map(lambda a: ~a),
        ),
        max_leaves=6,
    )


@given(
    topic=st.sampled_from(["made", "stored"]),
    predicate=predicates(),
    columns=st.lists(st.sampled_from(list(SCHEMA)), min_size=1, unique=True),
    first=st.none() | st.integers(0, 150),
    rows=st.none() | st.integers(0, 150),
    engine=st.sampled_from(["in-memory", "streaming"]),
)
def test_a_query_has_the_result_of_the_same_query_on_all_records(
    data: Path,
    topic: str,
    predicate: pl.Expr,
    columns: list[str],
    first: int | None,
    rows: int | None,
    engine: Any,
) -> None:
    """The query has a limit before the filter, after the filter, both or none."""

    def query(frame: pl.LazyFrame) -> pl.LazyFrame:
        if first is not None:
            frame = frame.head(first)
        frame = frame.filter(predicate).select(columns)
        return frame if rows is None else frame.head(rows)

    found = query(klog.polars.scan(data, topic)).collect(engine=engine)
    assert_frame_equal(found, query(_WHOLE.setdefault(topic, whole(data, topic)).lazy()).collect())


_WHOLE: dict[str, pl.DataFrame] = {}


def test_a_python_function_in_a_filter(data: Path) -> None:
    is_small = c("value").map_elements(lambda value: len(value) < 10, pl.Boolean)
    found = klog.polars.scan(data, "made").filter(is_small).select("value").collect()
    assert_frame_equal(found, whole(data, "made").filter(c("value").bin.size() < 10).select("value"))


def test_partitions_columns_and_positions(data: Path) -> None:
    frame = klog.polars.scan(data, "made", partitions=[1], start=5, stop=9, columns=["partition", "offset"])
    assert frame.collect().rows() == [(1, 5), (1, 6), (1, 7), (1, 8)]
    only = klog.polars.scan(data, "made", columns=["topic"]).collect()
    assert only.columns == ["topic"] and only.height == whole(data, "made").height
    stored = klog.polars.scan(data, "stored", start=datetime(2024, 1, 1, tzinfo=UTC)).collect()
    assert stored.is_empty() and dict(stored.schema) == SCHEMA
    assert klog.polars.scan(data, "made", partitions=[]).collect().is_empty()
    assert klog.polars.scan(data, "made", partitions=[], decode="utf8").collect().is_empty()


def test_several_log_dirs(tmp_path: Path) -> None:
    with klog.open([tmp_path / "a", tmp_path / "b"], create=True) as logs:
        logs.create_topic("t", partitions=2)
        for number in range(2):
            logs.log("t", number).append([(b"k", b"%d" % number)])
        assert {Path(logs.log("t", number).path).parent.name for number in range(2)} == {"a", "b"}
    frame = klog.polars.scan([tmp_path / "a", tmp_path / "b"], "t").select("value", "partition")
    assert frame.collect().rows() == [(b"0", 0), (b"1", 1)]


def test_committed_records_and_the_log_end(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        log = logs.log("t")
        for value, sequence in ((b"aborted", 0), (b"open", 1)):
            log.append_batches(
                klog.record.encode(
                    [(None, value)], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True
                )
            )
    isolations: tuple[Any, ...] = ("high_watermark", "log_end", "read_committed")
    found = [klog.polars.scan(tmp_path, "t", isolation=name).select("value").collect().height for name in isolations]
    assert found == [2, 2, 0]


def test_each_query_reads_the_records_that_exist_when_it_runs(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t")
        frame = klog.polars.scan(tmp_path, "t").select(c("value"))
        assert frame.collect().rows() == []
        logs.append("t", [(b"k", b"1")])
        assert frame.collect().rows() == [(b"1",)]
        assert frame.join(frame, on="value").collect().rows() == [(b"1",)]


# ---- which records are read ------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Partition 0 has 6 segments with an hour of records each; partition 1 has one record.

    The payload of a batch of partition 0 is damaged: reading offset 50 raises CorruptBatch.
    """
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW + 86_400_000)) as logs:
        logs.create_topic("t", partitions=2, config={"retention.ms": -1, "segment.bytes": 1 << 23})
        for hour in range(6):
            for number in range(20):
                minutes = hour * 60 + number * 3
                logs.log("t", 0).append([(b"k", bytes(200_000), NOW + minutes * 60_000)])
            logs.log("t", 0).roll()
        logs.log("t", 1).append([(b"k", b"v", NOW)])
    segment = tmp_path / "t-0" / f"{40:020d}.log"
    with segment.open("r+b") as file:
        file.seek(10 * segment.stat().st_size // 20 + 100_000)
        file.write(b"\1")
    return tmp_path


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_damaged_batch_is_an_error_with_its_offset_and_path(damaged: Path, engine: Any) -> None:
    with pytest.raises(CorruptBatch) as caught:
        klog.polars.scan(damaged, "t").collect(engine=engine)
    assert (caught.value.offset, caught.value.path) == (50, str(damaged / "t-0" / f"{40:020d}.log"))
    with klog.open(damaged, read_only=True) as logs, pytest.raises(CorruptBatch, match="offset 50"):
        logs.read("t").to_polars()


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (c("offset") < 50, 51),
        (c("offset") >= 51, 69),
        (c("offset").is_between(51, 52), 2),
        (c("partition") == 1, 1),
        (c("timestamp") >= T + timedelta(hours=3), 60),
        ((c("timestamp") >= T + timedelta(hours=3)) & (c("key") == b"k"), 60),
        (c("partition").is_in([0, 1]) & (c("offset") > 100), 19),
    ],
    ids=str,
)
def test_excluded_batches_are_not_read(damaged: Path, predicate: pl.Expr, rows: int) -> None:
    assert klog.polars.scan(damaged, "t").filter(predicate).select(pl.len()).collect().item() == rows


def test_a_limit_ends_the_reading(damaged: Path) -> None:
    for engine in ("in-memory", "streaming"):
        assert klog.polars.scan(damaged, "t").head(45).select("offset").collect(engine=engine).height == 45


def test_only_the_columns_of_a_query_are_decoded(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields_read = []
    columns = klog.LogReader.columns
    monkeypatch.setattr(
        klog.LogReader, "columns", lambda self, fields: (fields_read.append(fields), columns(self, fields))[1]
    )
    frame = klog.polars.scan(data, "made", partitions=[0])
    frame.filter(c("offset") > 3).select("partition", "key").collect()
    frame.select("topic").collect()
    frame.select(pl.len()).collect()
    assert [*map(sorted, fields_read[:2]), len(fields_read[2])] == [["key", "offset"], ["offset"], 1]


# ---- decoded values --------------------------------------------------------------------------------------------------

JSON = Json("id BIGINT, name STRING")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 5,000 JSON values to two partitions, and a bad value at the end of partition 1."""
    path = tmp_path_factory.mktemp("events")
    with klog.open(path, create=True) as logs:
        logs.create_topic("e", 2)
        for number in range(2):
            logs.log("e", number).append(
                [(b"k%d" % (n % 7), b'{"id": %d, "name": "n%d"}' % (n, n)) for n in range(number, 5000, 2)]
            )
        logs.log("e", 1).append([(b"k", b"{")])
    return path


def test_decoded_values_have_the_columns_and_rows_of_a_reader(events: Path) -> None:
    frame = klog.polars.scan(events, "e", partitions=[0], decode={"key": "utf8", "value": JSON})
    assert frame.collect_schema()["key"] == pl.String
    assert frame.collect_schema()["value"] == pl.Struct({"id": pl.Int64, "name": pl.String})
    with klog.open(events, read_only=True) as logs:
        expected = logs.log("e", 0).read(decode={"key": "utf8", "value": JSON}).to_polars()
    assert_frame_equal(frame.drop("topic", "partition").collect(), expected)
    found = frame.filter(c("value").struct["id"] >= 4990, c("offset") > 1).select("key", c("value").struct.unnest())
    assert found.collect().rows() == [(f"k{n % 7}", n, f"n{n}") for n in range(4990, 5000, 2)]
    assert frame.select("offset").head(3).collect()["offset"].to_list() == [0, 1, 2]


def test_a_bad_value_is_an_error_or_null(events: Path) -> None:
    frame = klog.polars.scan(events, "e", decode=JSON)
    with pytest.raises(Exception, match="e-1, offset 2500: the value is bad"):
        frame.collect()
    assert frame.select("key").collect().height == 5001, "values that no query needs are not decoded"
    nulls = klog.polars.scan(events, "e", decode=JSON, on_bad="null").filter(c("value").is_null())
    assert nulls.select("partition", "offset").collect().rows() == [(1, 2500)]


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("other",), {}, UnknownTopicOrPartition, "other"),
        (("made",), {"partitions": [0, 7]}, UnknownTopicOrPartition, "no partition 7"),
        (("made",), {"partitions": 1}, TypeError, "partitions=1: a list of int expected"),
        (("made",), {"partitions": ["1"]}, TypeError, r"partitions\[0\]"),
        (("made",), {"partitions": [-1]}, ValueError, r"partitions\[0\]"),
        (("made",), {"start": 10_000}, OffsetOutOfRange, "10000"),
        (("made",), {"start": "yesterday"}, ValueError, "start='yesterday' is not a position"),
        (("made",), {"stop": datetime(2024, 1, 1)}, ValueError, "names no time zone"),
        (("made",), {"isolation": "committed"}, ValueError, "isolation='committed'"),
        (
            ("made",),
            {"columns": ["offset", "vlaue"]},
            ValueError,
            r"columns\[1\]='vlaue' is unknown: choose from offset",
        ),
        (("made",), {"columns": ["key", "key"]}, ValueError, r"columns\[1\]='key' is named twice"),
        (("made",), {"columns": []}, ValueError, "columns"),
        (("made",), {"columns": "key"}, TypeError, "columns='key': a list of str expected"),
        ((b"made",), {}, TypeError, "topic"),
        (("made",), {"decode": "xml"}, ValueError, "decode='xml'"),
        (("made",), {"on_bad": "null"}, ValueError, "on_bad has no meaning"),
    ],
    ids=str,
)
def test_wrong_arguments_are_errors_before_a_query(
    data: Path, arguments: tuple[Any], options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        klog.polars.scan(data, *arguments, **options)


def test_a_missing_log_dir(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        klog.polars.scan(tmp_path / "nowhere", "t")


def test_the_import_loads_no_polars_and_names_the_extra_without_it(data: Path) -> None:
    script = """
import sys
import klog.polars
assert "polars" not in sys.modules
sys.modules["polars"] = None
with klog.open(sys.argv[1], read_only=True) as logs:
    for read in (lambda: klog.polars.scan(sys.argv[1], "made"), logs.read("made").to_polars):
        try:
            read()
        except ImportError as error:
            assert "pip install 'klog[polars]'" in str(error) and error.name == "polars", error
        else:
            raise AssertionError
"""
    subprocess.run([sys.executable, "-c", script, data], check=True)
