"""Topics in DuckDB: the same rows as readers have, and of narrow queries no more is decoded than they need."""

from __future__ import annotations

import functools
import operator
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import klog
import klog.duckdb
from klog import record
from klog.clock import ManualClock
from klog.decode import Json
from klog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from tests.support.resources import open_descriptors

T = 1_700_000_000_000
AT = datetime.fromtimestamp(T / 1000, UTC)
RECORDS = 3000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic t: two partitions with segments of 20 batches of 100 records, a second apart. Topic stamped: LogAppendTime."""
    path = tmp_path_factory.mktemp("duckdb") / "data"
    clock = ManualClock(T)
    with klog.open(path, create=True, clock=clock) as logs:
        logs.create_topic("t", 2, {"segment.bytes": 60_000, "message.timestamp.after.max.ms": 2**60})
        logs.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        for first in range(0, RECORDS, 100):
            for number in (0, 1):
                rows = [(b"k%d" % (n % 3), b'{"n": %d}' % n, T + n * 1000) for n in range(first, first + 100)]
                logs.log("t", number).append(rows)
            logs.log("stamped").append([(None, b"x")] * 100)
            clock.advance(1000)
        logs.create_topic("a-b")
        logs.append("a-b", [(b"k", None, -1, [("h", b"1")]), (None, b"v", T)])
    return path


class Decoding:
    """Records the columns and the numbers of rows that are decoded."""

    def __init__(self) -> None:
        self.fields: set[str] = set()
        self.rows = 0

    def clear(self) -> None:
        self.fields, self.rows = set(), 0


@pytest.fixture
def decoding(monkeypatch: pytest.MonkeyPatch) -> Decoding:
    found, columns = Decoding(), record.columns

    def spy(buffer: Any, **options: Any) -> Any:
        made = columns(buffer, **options)
        found.fields |= {*made.fields}
        found.rows += made.num_rows
        return made

    monkeypatch.setattr(record, "columns", spy)
    monkeypatch.setattr("klog.duckdb.pruning._BLOCK_BYTES", 1)  # each batch is a block
    return found


def moment(seconds: float) -> str:
    return f"TIMESTAMPTZ '{AT + timedelta(seconds=seconds)}'"


QUERIES: list[tuple[str, list[Any], set[str], int]] = [
    # of t: what is selected, where, rows; columns and number of rows that are decoded
    ('count(*) FROM t WHERE "offset" BETWEEN 150 AND 250', [(202,)], {"offset"}, 400),
    ('count(*) FROM t WHERE "offset" >= 2990 AND partition = 1', [(10,)], {"offset"}, 100),
    ('count(*) FROM t WHERE "offset" = 7 OR "offset" = 2999', [(4,)], {"offset"}, 400),
    ('count(*) FROM t WHERE "offset" IN (5, 2999)', [(4,)], {"offset"}, 400),
    ('min("offset") FROM t WHERE partition > 0', [(0,)], {"offset"}, RECORDS),
    ("count(*) FROM t WHERE topic = 'u'", [(0,)], set(), 0),
    (f"count(*) FROM t WHERE timestamp >= {moment(2950)}", [(100,)], {"timestamp", "offset"}, 200),
    (f"count(*) FROM t WHERE timestamp < {moment(0.5)}", [(2,)], {"timestamp", "offset"}, 2 * RECORDS),
    (f"count(*) FROM stamped WHERE timestamp < {moment(1.5)}", [(200,)], {"timestamp", "offset"}, 200),
    (f"count(*) FROM stamped WHERE timestamp > {moment(27.5)}", [(200,)], {"timestamp", "offset"}, 200),
    ('max(octet_length(value)) FROM t WHERE "offset" < 5', [(8,)], {"offset", "value"}, 200),
    ("count(*) FROM t WHERE key = 'k1'::BLOB", [(2000,)], {"key", "offset"}, 2 * RECORDS),
    ('count(*) FROM "a-b" WHERE timestamp IS NULL', [(1,)], {"timestamp", "offset"}, 2),
    ('partition, topic FROM "a-b" LIMIT 1', [(0, "a-b")], {"offset"}, 2),
    ('count(*) FROM t WHERE "offset" < 100 AND octet_length(value) = 8', [(20,)], {"offset", "value"}, 200),
]


@pytest.mark.parametrize(("query", "rows", "fields", "decoded"), QUERIES, ids=[query[0] for query in QUERIES])
def test_queries_decode_what_they_need(
    data: Path, decoding: Decoding, query: str, rows: list[Any], fields: set[str], decoded: int
) -> None:
    with klog.duckdb.connect(data) as connection:
        decoding.clear()
        assert connection.sql(f"SELECT {query}").fetchall() == rows
    assert decoding.fields <= fields and decoding.rows <= decoded


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic mixed: two partitions whose batches have timestamps in no order, those of the append or none, in segments of
    four batches."""
    path = tmp_path_factory.mktemp("mixed")
    chance = random.Random(7)
    for number in range(2):
        with klog.Log.open(path / f"mixed-{number}") as log:
            for _ in range(24):
                if chance.random() < 0.25:
                    log.roll()
                times = [T + 1000 * chance.randrange(10) if chance.random() < 0.8 else -1 for _ in range(3)]
                stamped: dict[str, Any] = {}
                if chance.random() < 0.4:
                    stamped = {"timestamp_type": klog.TimestampType.LOG_APPEND_TIME, "log_append_time": max(T, *times)}
                encoded = record.encode(
                    [(b"k", b"v", at) for at in times], base_offset=log.log_end_offset, leader_epoch=0, **stamped
                )
                log.append_batches(encoded, origin="replication")
    return path


def _comparisons() -> st.SearchStrategy[Any]:
    compare = st.sampled_from([operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])

    def times(unit: timedelta) -> st.SearchStrategy[datetime]:
        return st.builds(
            lambda second, more: AT + timedelta(seconds=second) + more * unit,
            st.integers(-1, 10),
            st.sampled_from([-1, 0, 0, 1]),
        )

    def of(name: str, kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        column = pc.field(name)
        lists = st.lists(values, max_size=3).map(lambda found: column.isin(pa.array(found, kind)))
        compared = st.builds(lambda make, value: make(column, pa.scalar(value, kind)), compare, values)
        others = st.one_of(lists, compared.map(operator.invert), st.sampled_from([column.is_null(), column.is_valid()]))
        return st.one_of(compared, compared, compared, others)

    return st.one_of(
        of("offset", pa.int64(), st.integers(-2, 74)),
        of("partition", pa.int32(), st.integers(-1, 2)),
        of("timestamp", pa.timestamp("ms", "UTC"), times(timedelta(milliseconds=1))),
        of("timestamp", pa.timestamp("us", "UTC"), times(timedelta(microseconds=1))),
        of("topic", pa.string(), st.sampled_from(["mixed", "t"])),
    )


def _filters() -> st.SearchStrategy[Any]:
    some = st.lists(_comparisons(), min_size=1, max_size=3)
    return st.builds(functools.reduce, st.sampled_from([operator.and_, operator.and_, operator.or_]), some)


@given(conditions=st.lists(_filters(), min_size=4, max_size=4), block_bytes=st.sampled_from([1, 1, 300, 1 << 20]))
@example(conditions=[~pc.field("timestamp").is_valid(), pc.field("timestamp").is_null()], block_bytes=1)
def test_a_filter_that_excludes_batches_changes_no_result(mixed: Path, conditions: list[Any], block_bytes: int) -> None:
    dataset = klog.duckdb.dataset(mixed, "mixed")
    everything = dataset.to_table()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("klog.duckdb.pruning._BLOCK_BYTES", block_bytes)
        for condition in conditions:
            assert dataset.to_table(filter=condition) == everything.filter(condition)


def test_a_time_that_duckdb_cannot_hold_is_null(tmp_path: Path) -> None:
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config={"message.timestamp.after.max.ms": 2**63 - 1})
        last = (2**63 - 1) // 1000  # 2⁶³ − 1 is DuckDB's infinity
        logs.append("t", [(b"%d" % at, b"v", at) for at in (T, last, last + 1, T * 1_000_000, 2**62)])
    with klog.duckdb.connect(tmp_path) as connection:
        rows = connection.sql('SELECT epoch_ms(timestamp) FROM t ORDER BY "offset"').fetchall()
        assert rows == [(T,), (last,), (None,), (None,), (None,)]
        for where, count in (("IS NULL", 3), (f">= {moment(0)}", 2), (f"> {moment(0)}", 1), ("IS NOT NULL", 2)):
            assert connection.sql(f"SELECT count(*) FROM t WHERE timestamp {where}").fetchall() == [(count,)]


def test_rows_are_those_of_readers(data: Path) -> None:
    with klog.open(data, read_only=True) as logs:
        expected = logs.log("a-b").read().to_arrow()
    expected = expected.append_column("topic", [["a-b", "a-b"]])
    expected = expected.append_column("partition", pa.array([0, 0], pa.int32()))
    dataset = klog.duckdb.dataset(data, "a-b")
    assert dataset.to_table() == expected and dataset.schema == expected.schema
    assert dataset.to_table(columns=["key"], filter=pc.field("value") == b"v").to_pylist() == [{"key": None}]
    assert dataset.count_rows() == 2 and dataset.head(1).num_rows == 1
    found = duckdb.sql("SELECT * FROM dataset").to_arrow_table()
    assert found.drop_columns(["timestamp"]).to_pylist() == expected.drop_columns(["timestamp"]).to_pylist()
    with pytest.raises(NotImplementedError, match="read it by DuckDB, scanner"):
        dataset.get_fragments()


def test_a_query_with_a_limit_reads_no_further(data: Path, decoding: Decoding) -> None:
    with klog.open(data, read_only=True) as logs:
        chunk = logs.log("t", 0).segments[0].next_offset
    before = open_descriptors()
    with klog.duckdb.connect(data) as connection:
        connection.execute("SET threads = 1")
        assert len(connection.sql("SELECT value FROM t LIMIT 1").fetchall()) == 1
        assert decoding.rows == chunk
        assert open_descriptors() <= before
    topic = klog.duckdb.dataset(data, "t")
    decoding.clear()
    assert topic.head(3, columns=["offset"]).to_pydict() == {"offset": [0, 1, 2]}
    assert decoding.rows == chunk and open_descriptors() <= before


def test_a_dataset_has_the_calls_of_pyarrow(data: Path) -> None:
    topic, late = klog.duckdb.dataset(data, "t"), pc.field("offset") >= RECORDS - 2
    assert topic.count_rows() == 2 * RECORDS and topic.count_rows(filter=late) == 4
    assert topic.take([0, RECORDS], columns=["partition", "offset"]).to_pylist() == [
        {"partition": 0, "offset": 0},
        {"partition": 1, "offset": 0},
    ]
    assert {len(batch) for batch in topic.to_batches(batch_size=500, columns=["key"])} <= {100, 400, 500}
    assert topic.head(0).num_rows == 0 and topic.scanner().dataset_schema == topic.schema
    with pytest.raises(pa.ArrowInvalid, match="zz"):
        topic.scanner(columns=["zz"])


def test_decoded_values_are_columns_and_are_decoded_only_if_needed(data: Path) -> None:
    with klog.duckdb.connect(data, topics=["t"], decode={"key": "utf8", "value": Json("n BIGINT")}) as connection:
        query = "SELECT key, sum(value.n) FROM t WHERE value.n < 6 AND partition = 0 GROUP BY key ORDER BY key"
        assert connection.sql(query).fetchall() == [("k0", 3), ("k1", 5), ("k2", 7)]
    with klog.duckdb.connect(data, topics=["a-b"], decode="json") as connection:
        assert connection.sql('SELECT count(key) FROM "a-b"').fetchall() == [(1,)]
        with pytest.raises(duckdb.Error, match="a-b-0, offset 1: the value is bad"):
            connection.sql('SELECT value FROM "a-b"').fetchall()


def test_each_query_sees_what_is_there_by_then(tmp_path: Path) -> None:
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", 2)
        with klog.duckdb.connect(tmp_path / "data") as connection:
            counts = []
            for _ in range(3):
                logs.log("t", 1).append([(None, b"v")] * 2)
                counts += connection.sql("SELECT count(*), max(partition) FROM t").fetchall()
        assert counts == [(2, 1), (4, 1), (6, 1)]


def test_bounds_and_partitions(data: Path) -> None:
    found = klog.duckdb.dataset(data, "t", partitions=[1], start=AT + timedelta(seconds=10), stop=20)
    table = found.to_table(columns=["partition", "offset"])
    assert table["offset"].to_pylist() == list(range(10, 20)) and set(table["partition"].to_pylist()) == {1}


@pytest.mark.parametrize("condition", ["true", '"offset" >= 5'])
def test_no_partitions_have_no_records(data: Path, condition: str) -> None:
    with klog.duckdb.connect(data, topics=["t"], partitions=[], decode="utf8") as connection:
        assert connection.sql(f"SELECT value FROM t WHERE {condition}").fetchall() == []


def test_topics_whose_names_differ_only_by_case(tmp_path: Path) -> None:
    """DuckDB has one view for both names: one topic would have been read in place of the other."""
    with klog.open(tmp_path, create=True) as logs:
        for topic in ("orders", "Orders"):
            logs.create_topic(topic)
            logs.append(topic, [(None, topic.encode())])
    with pytest.raises(ValueError, match="'Orders' and 'orders' have the same name in SQL"):
        klog.duckdb.connect(tmp_path)
    for topic in ("orders", "Orders"):
        with klog.duckdb.connect(tmp_path, topics=[topic, topic]) as connection:
            assert connection.sql(f'SELECT topic, value FROM "{topic}"').fetchall() == [(topic, topic.encode())]


def test_wrong_arguments(data: Path, tmp_path: Path) -> None:
    for call in (klog.duckdb.dataset, lambda path, topic, **more: klog.duckdb.connect(path, topics=[topic], **more)):
        with pytest.raises(UnknownTopicOrPartition):
            call(data, "u")
        with pytest.raises(OffsetOutOfRange):
            call(data, "t", start=10**9)
        with pytest.raises(ValueError, match="decode='yaml'"):
            call(data, "t", decode="yaml")
        with pytest.raises(TypeError, match="partitions='1': a list of int"):
            call(data, "t", partitions="1")
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "missing", "t")
    with pytest.raises(TypeError, match="connection=5: a connection of duckdb"):
        klog.duckdb.register(5, data)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="topics='t': a list of str"):
        klog.duckdb.connect(data, topics="t")
