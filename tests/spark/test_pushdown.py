"""Filters and limits from Spark: which are applied, which are returned to Spark, and that no result changes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as ds
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.types import StructType

import klog
from klog.clock import ManualClock
from klog.spark import source as source_module
from klog.spark.pushdown import Pushed, push
from klog.spark.rows import PLAIN, full_schema
from klog.spark.source import KlogReader, KlogSource, reader_class
from tests.support.batches import batch, marker, old, transactional

if not hasattr(ds, "EqualTo"):
    pytest.skip("needs: PySpark 4.1, which pushes filters", allow_module_level=True)

T0 = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
T0_MS = 1_700_000_000_000


def reader(path: Path, columns: tuple[str, ...] = PLAIN, **options: str) -> Any:
    known = {field.name: field for field in full_schema().fields}
    given_ = CaseInsensitiveDict({"path": str(path), **options})
    return KlogSource(given_).reader(StructType([known[name] for name in columns]))


def rows(task: KlogReader) -> list[dict[str, Any]]:
    return [row for part in task.partitions() for batch in task.read(part) for row in batch.to_pylist()]


# ---- classes ---------------------------------------------------------------------------------------------------------


def test_the_plain_reader_overrides_no_push_method() -> None:
    """Spark checks whether a reader overrides its methods. A query without pushdown works with both settings."""
    assert KlogReader.pushFilters is DataSourceReader.pushFilters
    assert getattr(KlogReader, "pushLimit", None) is getattr(DataSourceReader, "pushLimit", None)
    assert reader_class(()) is KlogReader
    assert reader_class(("filters",)).pushFilters is not DataSourceReader.pushFilters
    assert getattr(reader_class(("filters",)), "pushLimit", None) is getattr(DataSourceReader, "pushLimit", None)


@pytest.fixture
def newer_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that pushes limits (SPARK-58551)."""
    if not hasattr(DataSourceReader, "pushLimit"):
        monkeypatch.setattr(DataSourceReader, "pushLimit", lambda self, limit: False, raising=False)


@pytest.mark.usefixtures("newer_spark")
def test_each_choice_has_a_class_of_its_own() -> None:
    for pushdown in (("filters",), ("keys",), ("limit",), ("filters", "limit"), ("keys", "limit")):
        chosen = reader_class(pushdown)
        assert (chosen.pushFilters is not DataSourceReader.pushFilters) is (pushdown != ("limit",))
        assert (chosen.pushLimit is not DataSourceReader.pushLimit) is ("limit" in pushdown)


def test_pushdown_that_this_spark_does_not_support_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(DataSourceReader):  # type: ignore[misc]
        def read(self, partition: object) -> Any: ...

    for name in ("pushFilters", "pushLimit"):
        if hasattr(DataSourceReader, name):
            monkeypatch.delattr(DataSourceReader, name)
    for what, method in (("true", "pushFilters"), ("limit", "pushLimit")):
        with pytest.raises(
            ValueError, match=rf"option 'pushdown' asks for \w+, but .* no DataSourceReader.{method}; leave"
        ):
            reader(tmp_path, pushdown=what)
    assert type(reader(tmp_path)) is KlogReader


@pytest.mark.usefixtures("newer_spark")
def test_a_limit_applies_to_the_rows_of_each_task(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        for _ in range(10):
            log.append([(b"k", b"v")] * 10)
    task = reader(tmp_path, pushdown="limit", minPartitions="3")
    assert task.pushLimit(7)
    assert [sum(batch.num_rows for batch in task.read(part)) for part in task.partitions()] == [7, 7, 7]


# ---- which filters are applied ---------------------------------------------------------------------------------------

OFFSET, TOPIC, PARTITION, TIMESTAMP, KEY = (("offset",), ("topic",), ("partition",), ("timestamp",), ("key",))
EXACT = [
    (ds.EqualTo(OFFSET, 5), Pushed(low=5, high=6)),
    (ds.EqualNullSafe(OFFSET, 5), Pushed(low=5, high=6)),
    (ds.GreaterThan(OFFSET, 5), Pushed(low=6)),
    (ds.GreaterThanOrEqual(OFFSET, 5), Pushed(low=5)),
    (ds.LessThan(OFFSET, 5), Pushed(high=5)),
    (ds.LessThanOrEqual(OFFSET, 5), Pushed(high=6)),
    (ds.IsNotNull(OFFSET), Pushed()),
    (ds.IsNotNull(TOPIC), Pushed()),
    (ds.EqualTo(TOPIC, "a"), Pushed(topics=frozenset({"a"}))),
    (ds.In(TOPIC, ["a", None, "b"]), Pushed(topics=frozenset({"a", "b"}))),
    (ds.In(TOPIC, ()), Pushed(topics=frozenset())),
    (ds.EqualTo(PARTITION, 1), Pushed(partitions=frozenset({1}))),
    (ds.In(PARTITION, [1, 2]), Pushed(partitions=frozenset({1, 2}))),
]
RESIDUAL = [
    (ds.In(OFFSET, [9, 5, None]), Pushed(low=5, high=10)),
    (ds.GreaterThanOrEqual(TIMESTAMP, T0), Pushed(since_us=T0_MS * 1000)),
    (ds.GreaterThan(TIMESTAMP, T0), Pushed(since_us=T0_MS * 1000)),
    (ds.EqualTo(TIMESTAMP, T0), Pushed(since_us=T0_MS * 1000, until_us=T0_MS * 1000)),
    (ds.LessThan(TIMESTAMP, T0), Pushed(until_us=T0_MS * 1000)),
    (ds.In(TIMESTAMP, [T0, T0 + timedelta(seconds=1)]), Pushed(since_us=T0_MS * 1000, until_us=(T0_MS + 1000) * 1000)),
    (ds.IsNotNull(TIMESTAMP), Pushed()),
    (ds.IsNotNull(KEY), Pushed()),
    (ds.EqualTo(KEY, b"k"), Pushed()),
    (ds.EqualNullSafe(OFFSET, None), Pushed()),
    (ds.IsNull(OFFSET), Pushed()),
    (ds.Not(ds.EqualTo(OFFSET, 5)), Pushed()),
    (ds.Not(ds.In(PARTITION, [1])), Pushed()),
    (ds.GreaterThan(PARTITION, 1), Pushed()),
    (ds.StringStartsWith(TOPIC, "a"), Pushed()),
    (ds.EqualTo(OFFSET, 5.0), Pushed()),
    (ds.EqualTo(("headers", "key"), "a"), Pushed()),
    (ds.EqualTo(TIMESTAMP, datetime(2023, 1, 1)), Pushed()),
]  # fmt: skip


@pytest.mark.parametrize(("item", "expected"), EXACT)
def test_filters_that_are_applied_exactly(item: Any, expected: Pushed) -> None:
    assert push([item], Pushed()) == (expected, [])


@pytest.mark.parametrize(("item", "expected"), RESIDUAL)
def test_filters_that_spark_applies_again(item: Any, expected: Pushed) -> None:
    pushed, residual = push([item], Pushed())
    assert pushed == expected
    assert len(residual) == 1
    assert residual[0] is item


def test_filters_add_up() -> None:
    several = [item for item, _ in EXACT]
    pushed, residual = push(several, Pushed())
    assert residual == []
    assert pushed == Pushed(low=6, high=5, topics=frozenset(), partitions=frozenset({1}))


@pytest.mark.parametrize(
    ("item", "keys"),
    [
        (ds.EqualTo(KEY, b"k"), {b"k"}),
        (ds.EqualNullSafe(KEY, b"k"), {b"k"}),
        (ds.In(KEY, [b"k", None, b"x"]), {b"k", b"x"}),
        (ds.EqualNullSafe(KEY, None), None),
        (ds.EqualTo(KEY, "k"), None),  # a decoded key
        (ds.GreaterThan(KEY, b"k"), None),
        (ds.Not(ds.EqualTo(KEY, b"k")), None),
    ],
)
def test_keys_that_determine_the_partition(item: Any, keys: set[bytes] | None) -> None:
    """F3. Spark applies each of them again, because a partition also has other keys."""
    pushed, residual = push([item], Pushed(), keys=True)
    assert pushed == Pushed(keys=None if keys is None else frozenset(keys))
    assert residual == [item]


def test_an_empty_list_of_offsets_matches_nothing() -> None:
    pushed, _ = push([ds.In(OFFSET, [None])], Pushed(low=3, high=9))
    assert pushed.low >= pushed.high


@pytest.mark.parametrize(
    ("pushed", "stamped", "expected"),
    [
        (Pushed(), False, [True, True, True]),
        (Pushed(since_us=1_000_000), False, [False, True, True]),
        (Pushed(since_us=1_000_001), False, [False, False, True]),
        (Pushed(until_us=1_000_000), False, [True, True, True]),  # an earlier record may be in each
        (Pushed(until_us=1_000_000), True, [True, True, False]),
        (Pushed(until_us=999_999), True, [True, False, False]),
        (Pushed(since_us=1_000_000, until_us=1_000_000), True, [False, True, False]),
    ],
)
def test_which_batches_may_match_by_their_time(pushed: Pushed, stamped: bool, expected: list[bool]) -> None:
    """The batches have the largest timestamps 999, 1000 and 1001 ms."""
    kind = klog.TimestampType.LOG_APPEND_TIME if stamped else klog.TimestampType.CREATE_TIME
    found = []
    for time in (999, 1000, 1001):
        encoded = klog.record.encode([(b"k", b"v", time)], timestamp_type=kind, log_append_time=time if stamped else -1)
        found.append(pushed.may_match(next(iter(klog.record.decode(encoded)))))
    assert found == expected


# ---- no result changes -----------------------------------------------------------------------------------------------

TOPICS = ("a", "b")
times = st.integers(T0_MS - 2, T0_MS + 2)
appends = st.lists(
    st.tuples(
        st.sampled_from(TOPICS),
        st.integers(0, 1),
        st.lists(st.one_of(times, st.just(-1)), min_size=1, max_size=3),
        st.sampled_from(["append", "roll", "stamp", "old"]),
    ),
    min_size=3,
    max_size=20,
)
comparisons = [ds.EqualTo, ds.EqualNullSafe, ds.GreaterThan, ds.GreaterThanOrEqual, ds.LessThan, ds.LessThanOrEqual]
LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "offset": st.integers(-1, 8),
    "partition": st.integers(-1, 2),
    "topic": st.sampled_from([*TOPICS, "c"]),
    "key": st.sampled_from([b"k", b"x"]),
    "timestamp": st.builds(
        lambda ms, us: T0 + timedelta(milliseconds=ms - T0_MS, microseconds=us), times, st.sampled_from([0, 0, 500])
    ),
}


@st.composite
def filters(draw: st.DrawFn) -> Any:
    column = draw(st.sampled_from(["offset", "offset", "partition", "topic", "timestamp", "timestamp", "key"]))
    choice = draw(st.integers(0, 9))
    if choice == 0:
        made = draw(st.sampled_from([ds.IsNull, ds.IsNotNull]))((column,))
    elif choice <= 3:
        made = ds.In((column,), draw(st.lists(st.one_of(LITERALS[column], st.none()), max_size=3)))
    else:
        made = draw(st.sampled_from(comparisons))((column,), draw(LITERALS[column]))
    return ds.Not(made) if draw(st.integers(0, 7)) == 0 else made


def matches(row: dict[str, Any], item: Any) -> bool | None:
    """Return the result of a condition in SQL; None is unknown."""
    if isinstance(item, ds.Not):
        inner = matches(row, item.child)
        return None if inner is None else not inner
    value = row[item.attribute[0]]
    if isinstance(item, ds.IsNull):
        return value is None
    if isinstance(item, ds.IsNotNull):
        return value is not None
    if isinstance(item, ds.EqualNullSafe):
        return bool(value == item.value)
    if value is None:
        return None
    if isinstance(item, ds.In):
        if value in [each for each in item.value if each is not None]:
            return True
        return None if None in item.value else False
    compare = {
        ds.EqualTo: value == item.value,
        ds.GreaterThan: value > item.value if not isinstance(item, ds.EqualTo) else None,
        ds.GreaterThanOrEqual: value >= item.value,
        ds.LessThan: value < item.value,
        ds.LessThanOrEqual: value <= item.value,
    }
    return compare[type(item)]


def filtered(found: Iterable[dict[str, Any]], conditions: Iterable[Any]) -> list[dict[str, Any]]:
    return [row for row in found if all(matches(row, item) is True for item in conditions)]


def fill(home: Path, script: list[tuple[str, int, list[int], str]]) -> None:
    """Append batches with timestamps in any order. "stamp": batches with LogAppendTime, as a broker writes them.
    "old": messages of magic 0 and 1."""
    with ExitStack() as stack:
        logs = {
            (topic, number): stack.enter_context(klog.Log.open(home / f"{topic}-{number}"))
            for topic in TOPICS
            for number in range(2)
        }
        for topic, partition, stamps, action in script:
            log = logs[topic, partition]
            if action == "old":  # magic 0 has no times, in magic 1 all are T0
                first, last = log.log_end_offset, log.log_end_offset + len(stamps) - 1
                codec = "gzip" if len(stamps) > 1 else None
                log.append_batches(old(stamps[0] % 2, first, last, codec), origin="replication")
                continue
            if action == "roll":
                log.roll()
            stamped: dict[str, Any] = {}
            if action == "stamp":
                stamped = {"timestamp_type": klog.TimestampType.LOG_APPEND_TIME, "log_append_time": max(stamps[0], 0)}
            encoded = klog.record.encode(
                [(b"k", b"v", stamp) for stamp in stamps],
                base_offset=log.log_end_offset,
                compression="lz4" if stamps[0] % 2 else None,
                leader_epoch=0,
                **stamped,
            )
            log.append_batches(encoded, origin="replication")


@given(appends, st.lists(st.lists(filters(), max_size=3), min_size=5, max_size=5), st.booleans())
def test_push_down_never_changes_a_result(
    tmp_path_factory: pytest.TempPathFactory, script: list[Any], queries: list[list[Any]], many_tasks: bool
) -> None:
    home = tmp_path_factory.mktemp("push")
    fill(home, script)
    more = {"minPartitions": "20"} if many_tasks else {}
    everything = rows(reader(home, **more))
    assert len(everything) == sum(len(stamps) for _, _, stamps, _ in script)
    for conditions in queries:
        task = reader(home, pushdown="true", **more)
        residual = list(task.pushFilters(conditions))
        assert all(any(item is given_ for given_ in conditions) for item in residual)
        assert filtered(rows(task), residual) == filtered(everything, conditions)
    shutil.rmtree(home)


@pytest.mark.usefixtures("newer_spark")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(appends, st.lists(filters(), max_size=3), st.integers(0, 8), st.booleans())
@example([("a", 0, [T0_MS - 2, T0_MS], "append")], [ds.GreaterThanOrEqual(TIMESTAMP, T0)], 1, False)
def test_a_limit_never_loses_a_row_that_matches(
    tmp_path_factory: pytest.TempPathFactory, script: list[Any], conditions: list[Any], limit: int, many_tasks: bool
) -> None:
    """Spark applies the limit again, to the rows that its filters leave. It needs so many, whether klog stops or not."""
    home = tmp_path_factory.mktemp("push")
    fill(home, script)
    more = {"minPartitions": "20"} if many_tasks else {}
    expected = filtered(rows(reader(home, **more)), conditions)
    task = reader(home, pushdown="filters,limit", **more)
    residual = list(task.pushFilters(conditions))
    assert task.pushLimit(limit) or residual
    found = filtered(rows(task), residual)
    assert all(row in expected for row in found)
    assert len(found) == len({(row["topic"], row["partition"], row["offset"]) for row in found})
    assert len(found) >= min(limit, len(expected))
    shutil.rmtree(home)


bounds = st.sampled_from([OFFSET, TIMESTAMP, TIMESTAMP]).flatmap(
    lambda column: st.builds(lambda kind, value: kind(column, value), st.sampled_from(comparisons), LITERALS[column[0]])
)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["send", "send", "send", "commit", "abort", "abort", "roll"]), times
        ),
        min_size=5,
        max_size=25,
    ),
    st.lists(st.lists(bounds, min_size=1, max_size=2), min_size=5, max_size=5),
    st.sampled_from(["read_committed", "read_committed", "read_uncommitted"]),
    st.booleans(),
)
@example(
    [(0, "send", T0_MS - 2), (1, "send", T0_MS), (1, "abort", T0_MS - 2), (0, "send", T0_MS)],
    [[ds.GreaterThanOrEqual(TIMESTAMP, T0)]],
    "read_committed",
    False,
)
def test_push_down_changes_no_result_of_transactions(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, str, int]],
    queries: list[list[Any]],
    isolation: str,
    control: bool,
) -> None:
    """Producer 0 writes without transactions. Batches of markers are skipped by their times, too."""
    home = tmp_path_factory.mktemp("push")
    sequences, is_open = Counter[int](), set()
    with klog.Log.open(home / "a-0", clock=ManualClock(T0_MS)) as log:
        for producer, action, time in steps:
            if action == "roll":
                log.roll()
            elif action == "send" and producer == 0:
                log.append_batches(batch(2, at=time))
            elif action == "send":
                log.append_batches(transactional(producer, 0, sequences[producer], 2, at=time))
                sequences[producer] += 2
                is_open.add(producer)
            elif producer in is_open:
                log.append_batches(marker(producer, 0, action, at=time), origin="coordinator")
                is_open.remove(producer)
    columns = (*PLAIN, "isControl") if control else PLAIN
    everything = rows(reader(home, columns, isolationLevel=isolation))
    for conditions in queries:
        task = reader(home, columns, isolationLevel=isolation, pushdown="true")
        residual = list(task.pushFilters(conditions))
        assert filtered(rows(task), residual) == filtered(everything, conditions)
    shutil.rmtree(home)


KEYS = [b"key-%d" % number for number in range(40)]


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write topics of one, three and five partitions. Kafka's default partitioner chooses the partitions."""
    home = tmp_path_factory.mktemp("partitioned")
    with klog.open(home, create=True) as logs:
        for topic, partitions in (("one", 1), ("three", 3), ("five", 5)):
            logs.create_topic(topic, partitions=partitions)
            logs.append(topic, [(key, b"v") for key in KEYS * 2])
    return home


def planned(task: Any) -> set[tuple[str, int]]:
    return {(item.topic, item.partition) for part in task.partitions() for item in part.value}


@given(st.lists(st.sampled_from([*KEYS, b"absent"]), max_size=4), st.booleans())
def test_keys_exclude_partitions_but_no_row(partitioned: Path, keys: list[bytes], null: bool) -> None:
    item = ds.In(KEY, [*keys, *([None] if null else [])])
    task = reader(partitioned, pushdown="filters,keys")
    residual = list(task.pushFilters([item]))
    assert filtered(rows(task), residual) == filtered(rows(reader(partitioned)), [item])
    wanted = {
        (topic, klog.partition_for(key, count))
        for topic, count in (("one", 1), ("three", 3), ("five", 5))
        for key in keys
    }
    assert planned(task) == wanted


def test_keys_exclude_no_partition_of_an_incomplete_topic(partitioned: Path, tmp_path: Path) -> None:
    """A broker may have the other partitions in another log.dir, so that their number is not known."""
    for number in (0, 1, 3):
        shutil.copytree(partitioned / f"five-{number}", tmp_path / f"five-{number}")
    task = reader(tmp_path, pushdown="keys")
    task.pushFilters([ds.EqualTo(KEY, KEYS[0])])
    assert planned(task) == {("five", 0), ("five", 1), ("five", 3)}
    plain = reader(partitioned, pushdown="true", subscribe="five")
    plain.pushFilters([ds.EqualTo(KEY, KEYS[0])])
    assert len(planned(plain)) == 5  # without `keys` the partitioner is not known


def test_decoded_keys_exclude_no_partition(tmp_path: Path) -> None:
    """Avro's bytes are binary, too, but producers have partitioned by the stored key, with the id of its schema."""
    (tmp_path / "schemas.json").write_text('{"7": "\\"bytes\\""}')
    with klog.open(tmp_path / "data", create=True) as logs:
        logs.create_topic("t", partitions=6)
        logs.append("t", [(b"\0\0\0\0\7" + bytes([len(key) << 1]) + key, b"v") for key in KEYS])
    source = KlogSource(
        CaseInsensitiveDict(
            {
                "path": str(tmp_path / "data"),
                "keyFormat": "confluentAvro",
                "schemas": str(tmp_path / "schemas.json"),
                "pushdown": "keys",
            }
        )
    )
    decoded: Any = source.reader(source.schema())
    item = ds.EqualTo(KEY, KEYS[0])
    residual = list(decoded.pushFilters([item]))
    assert [row["key"] for row in filtered(rows(decoded), residual)] == [KEYS[0]]


def test_old_segments_and_batches_are_skipped(tmp_path: Path) -> None:
    """A lower bound skips older batches, in any order of timestamps. An upper bound skips only batches with LogAppendTime."""
    with klog.Log.open(tmp_path / "t-0") as log:
        for time in (T0_MS, T0_MS - 10, T0_MS + 5, T0_MS - 20, T0_MS + 1):
            log.append([(b"k", b"v", time)])
            log.append([(b"k", b"v", time - 100)])
            log.roll()
    task = reader(tmp_path, ("offset",), pushdown="true")
    task.pushFilters([ds.GreaterThanOrEqual(TIMESTAMP, T0)])
    planned = [(item.start_offset, item.end_offset) for part in task.partitions() for item in part.value]
    assert planned == [(0, 2), (4, 6), (8, 10)]
    assert [row["offset"] for row in rows(task)] == [0, 4, 8]
    task = reader(tmp_path, ("offset",), pushdown="true")
    task.pushFilters([ds.LessThan(TIMESTAMP, T0)])
    assert len(rows(task)) == 10


def test_a_batch_whose_time_is_damaged_is_not_skipped(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        for _ in range(3):
            log.append([(b"k", b"v", T0_MS)])
        (path,) = (segment.path for segment in log.segments)
        size = log.size // 3
    with open(path, "r+b") as file:
        file.seek(size + 35)  # the largest timestamp of the second batch
        file.write(bytes(8))
    task = reader(tmp_path, ("offset",), pushdown="true")
    task.pushFilters([ds.GreaterThanOrEqual(TIMESTAMP, T0)])
    with pytest.raises(klog.errors.CorruptBatch):
        rows(task)
    task = reader(tmp_path, ("offset",), pushdown="true", verifyCrc="false")
    task.pushFilters([ds.GreaterThanOrEqual(TIMESTAMP, T0)])
    assert [row["offset"] for row in rows(task)] == [0, 1, 2]


@pytest.mark.parametrize("damage", ["time", "length", "entry", "lower entry", "only a lower entry"])
def test_a_segment_whose_times_contradict_each_other_is_not_skipped(tmp_path: Path, damage: str) -> None:
    with klog.Log.open(tmp_path / "t-0", config={"index.interval.bytes": 0}) as log:
        for time in (T0_MS - 9, T0_MS, T0_MS - 5, T0_MS + 7):
            log.append([(b"k", b"v", T0_MS - 20)])
            log.append([(b"k", b"v", time)])
            log.append([(b"k", b"v", T0_MS - 7)])
            log.roll()
        second = Path(log.segments[1].path)
    size = second.stat().st_size // 3
    index = second.with_suffix(".timeindex")
    entries = index.read_bytes()
    assert entries == T0_MS.to_bytes(8) + (1).to_bytes(4)
    with open(second, "r+b") as file:
        if damage == "time":
            file.seek(size + 35)  # the largest timestamp of the second batch
            file.write(bytes(8))
        elif damage == "length":
            file.seek(8)
            file.write(b"\x7f")
            index.write_bytes(b"")
    if damage == "entry":
        index.write_bytes((T0_MS - 3).to_bytes(8) + entries[8:])
    elif damage == "lower entry":  # of the last batch, which is not the youngest
        index.write_bytes(entries + (T0_MS - 7).to_bytes(8) + (2).to_bytes(4))
    elif damage == "only a lower entry":
        index.write_bytes((T0_MS - 7).to_bytes(8) + (2).to_bytes(4))
    options = {"pushdown": "true", "verifyCrc": "false", "onCorrupt": "skipBatch"}
    task, plain = reader(tmp_path, ("offset",), **options), reader(tmp_path, ("offset", "timestamp"), **options)
    bound = ds.GreaterThanOrEqual(TIMESTAMP, T0)
    task.pushFilters([bound])
    planned = [(item.start_offset, item.end_offset) for part in task.partitions() for item in part.value]
    assert planned == [(3, 6), (9, 12)]
    wanted = [row["offset"] for row in filtered(rows(plain), [bound])]
    assert {row["offset"] for row in rows(task)} >= set(wanted) >= {10}


def test_corrupt_rows_keep_their_offsets(tmp_path: Path) -> None:
    """With onCorrupt=emit, Spark filters by offset: the offset of a corrupt row depends on where its reader begins."""
    task = reader(tmp_path, (*PLAIN, "crcValid"), pushdown="true", onCorrupt="emit")
    bound = ds.GreaterThan(OFFSET, 3)
    assert list(task.pushFilters([bound])) == [bound]
    assert task._pushed == Pushed()


def test_the_module_has_no_class_of_newer_sparks_only() -> None:
    assert not any(hasattr(source_module, name) for name in ("EqualTo", "Filter", "In"))
