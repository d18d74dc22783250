"""The stream reader on real directories, without a JVM: called as Spark calls it."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import StructType

import klog
from klog.clock import ManualClock
from klog.errors import CorruptLog, InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from klog.record import encode
from klog.spark import stream, survey
from klog.spark.limits import next_offsets
from klog.spark.read import DataLoss
from klog.spark.rows import full_schema
from klog.spark.source import KlogSource
from klog.spark.stream import KlogStreamReader
from tests.support.examples import OF_FIXTURES
from tests.support.frames import frames_of
from tests.support.own_json import unchecked_in

Offsets = dict[str, dict[str, int]]


def reader(path: Path | list[Path], *, clock: Any = None, **options: str) -> KlogStreamReader:
    schema = StructType([column for column in full_schema().fields if column.name in ("topic", "partition", "offset")])
    place = {"path": str(path)} if isinstance(path, Path) else {"paths": json.dumps([str(each) for each in path])}
    made = KlogSource({**place, "startingoffsets": "earliest", **options}).streamReader(schema)
    if clock is not None:
        made._clock = clock
    return made


def rows(of: KlogStreamReader, start: Offsets, end: Offsets) -> list[tuple[str, int, int]]:
    """Return the rows of one batch, read by a copy of the reader, as in a task."""
    planned = pickle.loads(pickle.dumps(of.partitions(start, end)))
    copies = [pickle.loads(pickle.dumps(reader_of_task(of))) for _ in planned]
    return [
        (row["topic"], row["partition"], row["offset"])
        for copy, part in zip(copies, planned, strict=True)
        for batch in copy.read(part)
        for row in batch.to_pylist()
    ]


def reader_of_task(of: KlogStreamReader) -> KlogStreamReader:
    return KlogStreamReader(of._options, of._schema)


def numbers(topic: str, partition: int, start: int, end: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for offset in range(start, end)]


def batches(of: KlogStreamReader, start: Offsets | None = None) -> Iterator[tuple[Offsets, list[tuple[str, int, int]]]]:
    """Yield the batches of an availableNow run with their ends, except the first of a query, which is empty (S4)."""
    of.prepareForTriggerAvailableNow()
    start = begin(of) if start is None else start
    while True:
        end = of.latestOffset(start, of.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return
        yield end, rows(of, start, end)
        of.commit(end)
        start = end


def begin(of: KlogStreamReader) -> Offsets:
    """Return the start offsets of a query after its first batch, which is empty."""
    start = of.initialOffset()
    assert of.latestOffset(start, of.getDefaultReadLimit()) == start
    assert of.partitions(start, start) == []
    return start


def fill(path: Path, **topics: list[int]) -> Path:
    with klog.open(path, create=True) as logs:
        for topic, counts in topics.items():
            if topic not in logs.topics():
                logs.create_topic(topic, partitions=len(counts))
            for partition, count in enumerate(counts):
                for first in range(0, count, 10):
                    log = logs.log(topic, partition)
                    log.append([(b"k", b"v" * 50)] * min(10, count - first))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return fill(tmp_path / "data", t=[100, 50], empty=[0])


START = {"empty": {"0": 0}, "t": {"0": 0, "1": 0}}
END = {"empty": {"0": 0}, "t": {"0": 100, "1": 50}}


class TestOffsets:
    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, START),
            ({"startingoffsets": "latest"}, END),
            ({"startingoffsets": '{"t":{"0":7,"1":-1}}', "subscribe": "t"}, {"t": {"0": 7, "1": 50}}),
            ({"startingoffsets": '{"t":{"1":-2}}', "assign": '{"t":[1]}'}, {"t": {"1": 0}}),
            ({"startingtimestamp": "0", "subscribe": "t"}, {"t": {"0": 0, "1": 0}}),
            (
                {"startingtimestamp": str(2**50), "startingoffsetsbytimestampstrategy": "latest", "subscribe": "t"},
                {"t": {"0": 100, "1": 50}},
            ),
        ],
    )
    def test_where_a_stream_begins(self, data: Path, options: dict[str, str], expected: Offsets) -> None:
        made = reader(data, **options)
        assert made.initialOffset() == made.initialOffset() == expected

    def test_the_default_is_the_latest(self, data: Path) -> None:
        schema = full_schema()
        assert KlogSource({"path": str(data)}).streamReader(schema).initialOffset() == END

    @pytest.mark.parametrize(
        ("options", "error", "why"),
        [
            ({"subscribe": "nothing"}, UnknownTopicOrPartition, "no topic nothing here; topics: empty, t"),
            ({"startingoffsets": '{"t":{"0":101}}'}, OffsetOutOfRange, "101 is outside t-0"),
            (
                {"startingoffsets": '{"x":{"0":1}}'},
                UnknownTopicOrPartition,
                "names x-0, which this query does not read",
            ),
            ({"startingtimestamp": str(2**50)}, ValueError, "no record at or after"),
        ],
    )
    def test_a_start_that_does_not_exist(
        self, data: Path, options: dict[str, str], error: type[Exception], why: str
    ) -> None:
        with pytest.raises(error, match=why):
            reader(data, **options).initialOffset()

    def test_the_text_is_stable(self, tmp_path: Path) -> None:
        """F1: partitions are in numeric order, not in the order of the directory."""
        fill(tmp_path / "data", b=[1] * 12, a=[2])
        made = reader(tmp_path / "data")
        end = made.latestOffset(begin(made), ReadAllAvailable())
        assert json.dumps(end) == '{"a": {"0": 2}, "b": {' + ", ".join(f'"{n}": 1' for n in range(12)) + "}}"
        shuffled = {"b": dict(reversed(end["b"].items())), "a": end["a"]}
        assert json.dumps(made.latestOffset(shuffled, ReadAllAvailable())) == json.dumps(end)

    def test_the_reported_offset_is_the_end_without_limits(self, data: Path) -> None:
        made = reader(data, maxoffsetspertrigger="3")
        assert made.reportLatestOffset() is None
        made.latestOffset(begin(made), made.getDefaultReadLimit())
        assert made.reportLatestOffset() == END

    @pytest.mark.parametrize(("metrics", "level"), [("true", logging.WARNING), ("false", logging.INFO)])
    def test_each_batch_logs_how_far_it_is_behind(
        self, data: Path, caplog: pytest.LogCaptureFixture, metrics: str, level: int
    ) -> None:
        caplog.set_level(logging.INFO, "klog.spark")
        made = reader(data, maxoffsetspertrigger="90", subscribe="t", metrics=metrics)
        start = begin(made)
        while (end := made.latestOffset(start, made.getDefaultReadLimit())) != start:
            start = end
        found = [(line.levelno, line.getMessage()) for line in caplog.records if "offsets_behind" in line.getMessage()]
        assert found == [
            (level, "event=offsets_behind partitions=2 min=20 max=40 avg=30.0"),
            (level, "event=offsets_behind partitions=2 min=0 max=0 avg=0.0"),
        ]

    def test_offsets_of_another_source(self, data: Path) -> None:
        with pytest.raises(ValueError, match="the checkpoint of another source"):
            reader(data).latestOffset({"logOffset": 3}, ReadAllAvailable())

    @pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
    def test_a_stream_has_no_end(self, data: Path, option: str) -> None:
        values = {"endingOffsets": "latest", "endingTimestamp": "1", "endingOffsetsByTimestamp": '{"t":{"0":1}}'}
        with pytest.raises(ValueError, match=f"option '{option}' is for batch queries: a stream has no end; leave it"):
            reader(data, **{option: values[option]})

    def test_a_stream_gets_no_filters(self, data: Path) -> None:
        with pytest.raises(ValueError, match="option 'pushdown' is for batch queries: Spark gives no filters to a str"):
            reader(data, pushdown="filters")
        reader(data, pushdown="false")


class TestBatches:
    def test_available_now(self, data: Path) -> None:
        (only,) = batches(reader(data))
        assert only == (END, numbers("t", 0, 0, 100) + numbers("t", 1, 0, 50))

    def test_with_a_limit(self, data: Path) -> None:
        found = list(batches(reader(data, maxOffsetsPerTrigger="40")))
        assert [len(rows) for _, rows in found] == [40, 40, 40, 30]
        assert Counter(row for _, rows in found for row in rows) == Counter(
            numbers("t", 0, 0, 100) + numbers("t", 1, 0, 50)
        )
        assert found[0][0] == {"empty": {"0": 0}, "t": {"0": 26, "1": 14}}

    def test_with_a_limit_of_bytes(self, data: Path) -> None:
        """The part of each partition ends at the end of a record batch, which has ten records."""
        with klog.open(data, read_only=True) as logs:
            size = logs.log("t", 0).fetch_range(0, 10).size
        found = list(batches(reader(data, maxBytesPerTrigger=str(4 * size + 1))))
        assert [len(rows) for _, rows in found] == [40, 40, 40, 30]
        assert all(offset % 10 == 0 for end, _ in found for offset in end["t"].values())
        assert len(list(batches(reader(data, maxBytesPerTrigger="1")))) == 15  # one record batch each

    @pytest.mark.parametrize(("number", "interval"), [(2, 0), (-1, 4096)], ids=["a closed segment", "the last one"])
    def test_a_limit_of_bytes_where_a_batch_cannot_be_read(self, tmp_path: Path, number: int, interval: int) -> None:
        """Its size is estimated: the batches of the stream leave it out, as the option says, and go on."""
        directory = tmp_path / "t-0"
        with klog.Log.open(directory, config={"segment.bytes": 1000, "index.interval.bytes": interval}) as log:
            for _ in range(20):
                log.append([(b"k", b"v" * 50)] * 2)
            segment = log.segments[number]
            assert segment.next_offset - segment.base_offset >= 6
        data = bytearray(Path(segment.path).read_bytes())
        second = 12 + int.from_bytes(data[8:12])
        data[second + 9] ^= 1  # its length
        Path(segment.path).write_bytes(data)
        damaged = {segment.base_offset + 2, segment.base_offset + 3}
        for limit in ("1", "500", "1000000"):
            made = reader(tmp_path, maxBytesPerTrigger=limit, onCorrupt="skipBatch")
            found = [offset for _, part in batches(made) for _, _, offset in part]
            assert found == [offset for offset in range(40) if offset not in damaged]

    @pytest.mark.parametrize("fail", ["true", "false"])
    def test_a_limit_of_bytes_where_retention_deletes_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail: str
    ) -> None:
        with klog.open(tmp_path, create=True) as logs:
            logs.create_topic("t", config={"internal.segment.bytes": 500})
            for _ in range(20):
                logs.append("t", [(b"k", bytes(100))])

        def after_retention(*arguments: Any) -> Any:
            with klog.open(tmp_path) as logs:
                logs.log("t").delete_records(15)
                logs.log("t").apply_retention()
            return next_offsets(*arguments)

        monkeypatch.setattr(stream, "next_offsets", after_retention)
        made = reader(tmp_path, maxBytesPerTrigger="300", failOnDataLoss=fail)
        if fail == "true":
            with pytest.raises(DataLoss, match="retention or a delete has removed"):
                list(batches(made))
        else:
            assert [offset for _, part in batches(made) for _, _, offset in part] == list(range(15, 20))

    @pytest.mark.parametrize("limit", [1, 3, 7, 100])
    @pytest.mark.parametrize("start", [0, 7])
    def test_a_corrupt_batch_is_one_row_wherever_the_batches_of_a_stream_end(
        self, tmp_path: Path, limit: int, start: int
    ) -> None:
        with klog.Log.open(tmp_path / "t-0") as log:
            for _ in range(3):
                log.append([(b"k", b"v")] * 5)
            (_, second, _) = log.read().batches()
            segment, position = Path(log.segments[0].path), second.position
        data = bytearray(segment.read_bytes())
        data[position + 70] ^= 1
        segment.write_bytes(data)
        options = {"startingoffsets": f'{{"t":{{"0":{start}}}}}', "maxOffsetsPerTrigger": str(limit)}
        schema = StructType([full_schema()[name] for name in ("offset", "crcValid")])
        made = KlogSource({"path": str(tmp_path), "onCorrupt": "emit", **options}).streamReader(schema)
        made.prepareForTriggerAvailableNow()
        at, found = begin(made), []
        while (end := made.latestOffset(at, made.getDefaultReadLimit())) != at:
            parts = pickle.loads(pickle.dumps([made.partitions(at, end), made]))
            found += [row for part in parts[0] for batch in parts[1].read(part) for row in batch.to_pylist()]
            at = end
        assert [row["offset"] for row in found if row["crcValid"]] == [n for n in range(start, 15) if not 5 <= n < 10]
        (bad,) = [row["offset"] for row in found if not row["crcValid"]]
        assert max(start, 5) <= bad < 10

    def test_damage_while_a_writer_appends(self, tmp_path: Path) -> None:
        """The writer does not notice it. A batch with a wrong length is left out, and the stream goes on after it."""
        with klog.open(tmp_path, create=True) as logs:
            logs.create_topic("t")
            log = logs.log("t")
            for _ in range(5):
                log.append([(b"k", b"v")] * 2)
            made, strict = reader(tmp_path, onCorrupt="skipBatch"), reader(tmp_path)
            found = [offset for end, part in batches(made) for _, _, offset in part]
            assert found == list(range(10))
            start = {"t": {"0": 10}}
            size = log.segments[-1].size
            for _ in range(5):
                log.append([(b"k", b"v")] * 2)
            with open(log.segments[-1].path, "r+b") as file:
                file.seek(size + 8)
                file.write(b"\x40")  # the length of the first new batch
            for last in (20, 22):
                assert [(end, part) for end, part in batches(made, start)] == [
                    ({"t": {"0": last}}, numbers("t", 0, max(start["t"]["0"], 12), last))
                ]
                start = {"t": {"0": last}}
                log.append([(b"k", b"v")] * 2)
            with pytest.raises(CorruptLog, match="valid ones after it"):
                list(batches(strict))

    def test_both_limits(self, data: Path) -> None:
        found = list(batches(reader(data, maxBytesPerTrigger="1000000", maxOffsetsPerTrigger="100")))
        assert [len(rows) for _, rows in found] == [100, 50]

    def test_a_run_does_not_read_records_appended_after_its_begin(self, data: Path) -> None:
        made = reader(data, maxOffsetsPerTrigger="100")
        found = []
        for end, batch in batches(made):
            found += batch
            fill(data, t=[10, 10], u=[10])
            assert "u" not in end
        assert Counter(found) == Counter(numbers("t", 0, 0, 100) + numbers("t", 1, 0, 50))
        after = [row for _, batch in batches(reader(data), end) for row in batch]
        assert Counter(after) == Counter(numbers("t", 0, 100, 120) + numbers("t", 1, 50, 70) + numbers("u", 0, 0, 20))

    def test_restarted_mid_way(self, data: Path) -> None:
        """The limit changes between two runs. A new partition and a new topic are read from their first record."""
        first = iter(batches(reader(data, maxOffsetsPerTrigger="40")))
        end, found = next(first)
        end, more = next(first)
        shutil.copytree(data / "t-1", data / "t-2")
        fill(data, u=[7])
        for last, batch in batches(reader(data), end):
            more += batch
            end = last
        assert Counter(found + more) == Counter(
            numbers("t", 0, 0, 100) + numbers("t", 1, 0, 50) + numbers("t", 2, 0, 50) + numbers("u", 0, 0, 7)
        )
        assert end == {"empty": {"0": 0}, "t": {"0": 100, "1": 50, "2": 50}, "u": {"0": 7}}

    def test_a_partition_that_moves_to_another_log_dir_is_read_on(self, tmp_path: Path) -> None:
        homes = [tmp_path / "a", tmp_path / "b"]
        with klog.open(homes, create=True) as logs:
            logs.create_topic("t", partitions=2)
            for number in range(2):
                logs.log("t", number).append([(b"k", b"v")] * 10)
            made = reader(homes)
            ((end, found),) = batches(made)
            assert Counter(found) == Counter(numbers("t", 0, 0, 10) + numbers("t", 1, 0, 10))
            (other,) = [home for home in homes if not (home / "t-0").exists()]
            logs.move("t", 0, other)
            logs.log("t", 0).append([(b"k", b"v")] * 5)
            for again in (made, reader(homes)):
                assert [rows for _, rows in batches(again, end)] == [numbers("t", 0, 10, 15)]

    @pytest.mark.parametrize("fail", ["true", "false"])
    def test_a_partition_that_moves_after_its_batch_is_planned_is_read_there(self, tmp_path: Path, fail: str) -> None:
        homes = [tmp_path / "a", tmp_path / "b"]
        with klog.open(homes, create=True) as logs:
            logs.create_topic("t", directory=homes[0])
            logs.log("t").append([(b"k", b"v")] * 10)
            made = reader(homes, failOnDataLoss=fail)
            start = begin(made)
            planned = made.partitions(start, made.latestOffset(start, ReadAllAvailable()))
            logs.move("t", 0, homes[1])
        shutil.rmtree(homes[0])  # also if the whole directory is given up
        (part,) = pickle.loads(pickle.dumps(planned))
        read = pickle.loads(pickle.dumps(made)).read(part)
        assert [row["offset"] for batch in read for row in batch.to_pylist()] == list(range(10))

    def test_a_new_partition_without_records_makes_no_batch(self, data: Path) -> None:
        made = reader(data)
        fill(data, u=[0])
        assert json.dumps(made.latestOffset(END, ReadAllAvailable())) == json.dumps(END)
        fill(data, t=[1, 0])
        assert made.latestOffset(END, ReadAllAvailable()) == {**END, "t": {"0": 101, "1": 50}, "u": {"0": 0}}

    def test_a_named_topic_may_be_created_later(self, data: Path) -> None:
        made = reader(data, subscribe="t,later")
        assert made.latestOffset({"t": END["t"]}, ReadAllAvailable()) == {"t": END["t"]}
        fill(data, later=[3])
        named = {"t": END["t"], "later": {"0": 0}}
        assert made.latestOffset({"t": END["t"]}, ReadAllAvailable()) == named
        assert made.latestOffset(named, ReadAllAvailable()) == {"t": END["t"], "later": {"0": 3}}

    def test_an_empty_directory(self, tmp_path: Path) -> None:
        fill(tmp_path / "data")
        made = reader(tmp_path / "data")
        assert made.initialOffset() == {}
        assert made.latestOffset({}, ReadAllAvailable()) == {}
        fill(tmp_path / "data", t=[3])
        assert made.latestOffset({}, ReadAllAvailable()) == {"t": {"0": 0}}
        assert made.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 3}}
        assert rows(made, {"t": {"0": 0}}, {"t": {"0": 3}}) == numbers("t", 0, 0, 3)

    def test_the_first_records_of_a_new_partition_are_not_lost_silently(self, data: Path) -> None:
        """S2: retention deletes records between the partition's first batch and the repetition of this batch."""
        made = reader(data)
        fill(data, u=[7])
        named = made.latestOffset(END, ReadAllAvailable())
        assert rows(made, END, named) == []
        end = made.latestOffset(named, ReadAllAvailable())
        assert rows(made, named, end) == numbers("u", 0, 0, 7)
        with klog.open(data) as logs:
            logs.log("u").delete_records(3)
        with pytest.raises(DataLoss, match=r"u-0: .*3"):
            reader(data).partitions(named, end)

    def test_equal_offsets_give_no_tasks(self, data: Path) -> None:
        """When a query starts again, Spark passes the last offsets of the checkpoint, even if the topic was deleted."""
        shutil.rmtree(data / "t-0")
        assert reader(data).partitions(END, END) == []
        assert list(reader(data).read(InputPartition(None))) == []

    def test_a_batch_is_fixed_by_its_offsets(self, data: Path) -> None:
        """S1: another process repeats the batch while a writer appends, rolls and deletes earlier segments."""
        start, end = {"t": {"0": 15, "1": 5}}, {"t": {"0": 45, "1": 25}}
        expected = rows(reader(data, subscribe="t"), start, end)
        assert Counter(expected) == Counter(numbers("t", 0, 15, 45) + numbers("t", 1, 5, 25))
        with klog.open(data) as logs:
            for partition in (0, 1):
                log = logs.log("t", partition)
                log.append([(b"k", b"v")] * 30)
                log.roll()
                log.delete_records(5)
                log.append([(b"k", b"v")] * 30)
            assert rows(reader(data, subscribe="t"), start, end) == expected

    def test_a_first_batch_from_the_latest_record_that_crashed(self, data: Path) -> None:
        """S4: records are appended while the first batch runs. Then Spark repeats this batch."""
        made = reader(data, startingoffsets="latest")
        start = made.initialOffset()
        fill(data, t=[10, 0])
        end = made.latestOffset(start, ReadAllAvailable())
        assert end == start
        assert made.partitions(start, end) == []
        # The query crashes here, and begins again with the same batch.
        again = reader(data, startingoffsets="latest")
        fill(data, t=[10, 0])
        assert again.partitions(again.initialOffset(), end) == []
        after = again.latestOffset(end, ReadAllAvailable())
        assert rows(again, end, after) == numbers("t", 0, 100, 120)

    @pytest.mark.parametrize("start", ["earliest", '{"t":{"0":10,"1":0}}'])
    def test_a_first_batch_that_crashed_is_repeated_with_the_same_rows(self, data: Path, start: str) -> None:
        """S4: the next run repeats the batch while a writer appends, and reads the records that existed at its begin."""
        options = {"startingoffsets": start, "subscribe": "t"}
        made = reader(data, **options)
        at = made.initialOffset()
        end = made.latestOffset(at, made.getDefaultReadLimit())
        before = rows(made, at, end)
        # The query crashes here, and begins again with the same batch.
        again = reader(data, **options)
        again.prepareForTriggerAvailableNow()
        with klog.open(data) as logs:
            logs.log("t", 1).append([(b"k", b"v")] * 20)
        assert rows(again, again.initialOffset(), end) == before
        after = again.latestOffset(end, again.getDefaultReadLimit())
        assert Counter(before + rows(again, end, after)) == Counter(
            numbers("t", 0, at["t"]["0"], 100) + numbers("t", 1, 0, 50)
        )

    def test_a_first_batch_whose_records_were_deleted(self, data: Path) -> None:
        """S4: the repetition would begin at a later offset. It reports the loss instead of returning fewer rows."""
        made = reader(data)
        at = made.initialOffset()
        end = made.latestOffset(at, made.getDefaultReadLimit())
        before = rows(made, at, end)
        with klog.open(data) as logs:
            logs.log("t", 0).delete_records(50)
        again = reader(data)
        with pytest.raises(DataLoss, match=r"t-0: the stream is at offset 0, but .* holds \[50, 100\)"):
            rows(again, again.initialOffset(), end)
        allowed = reader(data, failOnDataLoss="false")
        assert rows(allowed, allowed.initialOffset(), end) == before
        after = allowed.latestOffset(end, ReadAllAvailable())
        assert Counter(rows(allowed, end, after)) == Counter(numbers("t", 0, 50, 100) + numbers("t", 1, 0, 50))

    @pytest.mark.parametrize("start", ["earliest", "latest"])
    def test_a_first_batch_of_a_topic_created_again(self, data: Path, tmp_path: Path, start: str) -> None:
        """S4: the stored ids show that the topic is new. With failOnDataLoss=false, its records are read once."""
        options = {"startingoffsets": start, "subscribe": "t", "checkpointLocation": str(tmp_path / "cp")}
        made = reader(data, **options)
        at = made.initialOffset()
        end = made.latestOffset(at, made.getDefaultReadLimit())
        assert rows(made, at, end) == []
        with klog.open(data) as logs:
            logs.delete_topic("t")
        fill(data, t=[200, 60])
        again = reader(data, **options)
        assert start == "latest" or rows(again, again.initialOffset(), end) == []
        with pytest.raises(DataLoss, match="created again"):
            again.latestOffset(end, ReadAllAvailable())
        allowed = reader(data, failOnDataLoss="false", **options)
        found = rows(allowed, allowed.initialOffset(), end)
        found += rows(allowed, end, allowed.latestOffset(end, ReadAllAvailable()))
        assert Counter(found) == Counter(numbers("t", 0, 0, 200) + numbers("t", 1, 0, 60))

    def test_records_above_the_high_watermark_wait(self, data: Path) -> None:
        """D3: with an older checkpoint of the high watermark, no record is lost and the offset does not decrease."""
        (data / "replication-offset-checkpoint").write_text("0\n2\nt 0 80\nt 1 50\n")
        made = reader(data, subscribe="t")
        assert made.latestOffset({"t": {"0": 0, "1": 0}}, ReadAllAvailable()) == {"t": {"0": 80, "1": 50}}
        at = {"t": {"0": 90, "1": 50}}
        assert made.latestOffset(at, ReadAllAvailable()) == at


class TestIsolation:
    def test_committed_records_end_where_a_transaction_is_open(self, golden: Callable[[str], Path]) -> None:
        """As Kafka's own consumer: no records of aborted transactions, and none from the begin of an open one on."""
        home = golden("txn")
        expected = Counter[tuple[str, int, int]]()
        ends: Offsets = {}
        for found in json.loads((home / "manifest.json").read_text())["partitions"]:
            if found["topic"].startswith("__") or found["read_committed"] is None:
                continue
            name, number = found["topic"], found["partition"]
            ends.setdefault(name, {})[str(number)] = found["last_stable_offset"]
            for first, last in found["read_committed"]:
                expected.update(numbers(name, number, first, last + 1))
        options = {"isolationlevel": "read_committed", "subscribe": ",".join(ends), "maxoffsetspertrigger": "70"}
        read = list(batches(reader(home / "logdir", **options)))
        assert Counter(row for _, batch in read for row in batch) == expected
        assert read[-1][0] == ends
        assert len(read) > 3

    def test_up_to_the_log_end(self, data: Path) -> None:
        (data / "replication-offset-checkpoint").write_text("0\n2\nt 0 80\nt 1 50\n")
        for up_to, end in (("highWatermark", 80), ("logEndOffset", 100), ("lastStableOffset", 80)):
            made = reader(data, subscribe="t", upTo=up_to)
            assert made.latestOffset({"t": {"0": 0, "1": 0}}, ReadAllAvailable())["t"]["0"] == end

    def test_a_start_before_the_end_is_fixed_by_an_empty_batch(self, data: Path) -> None:
        made = reader(data, subscribe="t", startingoffsets="-10")
        start = made.initialOffset()
        assert start == {"t": {"0": 90, "1": 40}}
        assert made.latestOffset(start, ReadAllAvailable()) == start
        assert made.latestOffset(start, ReadAllAvailable()) == {"t": {"0": 100, "1": 50}}


class TestTriggers:
    def test_too_few_offsets_wait(self, data: Path) -> None:
        clock = ManualClock(0)
        made = reader(data, clock=clock, minOffsetsPerTrigger="20", maxTriggerDelay="30s", subscribe="t")
        at = made.latestOffset({"t": {"0": 95, "1": 50}}, made.getDefaultReadLimit())
        assert at == {"t": {"0": 100, "1": 50}}  # the first one does not wait, as in Spark's Kafka source
        fill(data, t=[19, 0])
        clock.advance(29_999)
        assert made.latestOffset(at, made.getDefaultReadLimit()) == at
        clock.advance(1)
        assert made.latestOffset(at, made.getDefaultReadLimit()) == {"t": {"0": 119, "1": 50}}
        fill(data, t=[20, 0])
        assert made.latestOffset({"t": {"0": 119, "1": 50}}, made.getDefaultReadLimit()) == {"t": {"0": 139, "1": 50}}

    def test_an_available_now_run_does_not_wait(self, data: Path) -> None:
        found = list(batches(reader(data, minOffsetsPerTrigger="120", maxOffsetsPerTrigger="120")))
        assert [len(rows) for _, rows in found] == [120, 30]

    def test_spark_may_request_all_records(self, data: Path) -> None:
        made = reader(data, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2", maxBytesPerTrigger="1")
        assert made.latestOffset(START, ReadAllAvailable()) == END

    @pytest.mark.parametrize(
        ("options", "limit"),
        [
            ({}, ReadAllAvailable()),
            ({"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "5"}, ReadMaxRows(7)),
            ({"maxBytesPerTrigger": "7"}, ReadMaxBytes(7)),
            ({"minOffsetsPerTrigger": "7"}, ReadMinRows(7)),
        ],
    )
    def test_the_limit_that_is_reported_to_spark(self, data: Path, options: dict[str, str], limit: object) -> None:
        assert reader(data, **options).getDefaultReadLimit() == limit

    def test_a_limit_of_spark_applies(self, data: Path) -> None:
        made = reader(data, maxOffsetsPerTrigger="50")
        end = made.latestOffset(START, ReadMaxRows(30))
        assert sum(end["t"].values()) == 30
        assert sum(made.latestOffset(START, ReadMaxRows(90))["t"].values()) == 50


class TestLosses:
    @pytest.fixture
    def cp(self, tmp_path: Path) -> dict[str, str]:
        return {"checkpointLocation": str(tmp_path / "cp")}

    def recreate(self, data: Path, *counts: int) -> None:
        with klog.open(data) as logs:
            logs.delete_topic("t")
        fill(data, t=list(counts))

    def test_a_recreated_topic_while_the_query_runs(self, data: Path) -> None:
        made = reader(data, subscribe="t")
        ((end, _),) = batches(made)
        self.recreate(data, 200, 60)  # longer than the stream's offsets
        with pytest.raises(
            DataLoss,
            match=r"t-0: the stream is at offset 100, but .*/t-0 holds \[0, 200\): .*created again.*failOnDataLoss=false",
        ):
            made.latestOffset(end, ReadAllAvailable())

    def test_a_recreated_topic_while_the_query_is_stopped(self, data: Path, cp: dict[str, str]) -> None:
        ((end, _),) = batches(reader(data, subscribe="t", **cp))
        self.recreate(data, 200, 60)
        with pytest.raises(DataLoss, match="created again"):
            reader(data, subscribe="t", **cp).latestOffset(end, ReadAllAvailable())
        with pytest.raises(DataLoss, match="created again"):  # again: the ids are still stored
            reader(data, subscribe="t", **cp).partitions(end, {"t": {"0": 150, "1": 50}})

    @pytest.mark.parametrize("counts", [(200, 60), (30, 20), (100, 50)])
    def test_continuing_with_a_recreated_topic(
        self, data: Path, cp: dict[str, str], counts: tuple[int, int], caplog: pytest.LogCaptureFixture
    ) -> None:
        """All its records are read once, even if it has the same offsets as the old topic."""
        ((end, _),) = batches(reader(data, subscribe="t", **cp))
        self.recreate(data, *counts)
        options = {"subscribe": "t", "failOnDataLoss": "false", "maxOffsetsPerTrigger": "1000", **cp}
        found = [row for _, batch in batches(reader(data, **options), end) for row in batch]
        assert Counter(found) == Counter(numbers("t", 0, 0, counts[0]) + numbers("t", 1, 0, counts[1]))
        assert "created again" in caplog.text

    def test_a_batch_after_a_loss_is_repeated_with_the_same_rows(self, data: Path, cp: dict[str, str]) -> None:
        """M4: the query crashes in the first batch of the new topic, and then between that batch and the next."""
        ((end, _),) = batches(reader(data, subscribe="t", **cp))
        self.recreate(data, 200, 60)
        options = {"subscribe": "t", "failOnDataLoss": "false", "maxOffsetsPerTrigger": "40", **cp}
        made = reader(data, **options)
        after = made.latestOffset(end, made.getDefaultReadLimit())
        expected = rows(made, end, after)
        assert len(expected) == 40
        again = reader(data, **options)
        assert rows(again, end, after) == expected
        rest = [row for _, batch in batches(reader(data, **options), after) for row in batch]
        assert Counter(expected + rest) == Counter(numbers("t", 0, 0, 200) + numbers("t", 1, 0, 60))

    def test_a_batch_repeated_after_a_loss_leaves_nothing_out(self, data: Path, cp: dict[str, str]) -> None:
        """M4: the batch ends inside the new topic, which has passed the end of the batch when the next is planned."""
        options = {"subscribe": "t", "failOnDataLoss": "false", **cp}
        start, end = {"t": {"0": 40, "1": 50}}, {"t": {"0": 100, "1": 50}}
        assert rows(reader(data, **options), start, end) == numbers("t", 0, 40, 100)
        self.recreate(data, 30, 0)
        found = rows(reader(data, **options), start, end)
        fill(data, t=[170, 0])
        again = reader(data, **options)
        after = again.latestOffset(end, ReadAllAvailable())
        expected = rows(again, end, after)
        assert rows(reader(data, **options), end, after) == expected  # also if it is repeated
        assert Counter(found + expected) == Counter(numbers("t", 0, 0, 200))

    def test_truncation(self, data: Path) -> None:
        with klog.open(data) as logs:
            logs.log("t", 0).truncate_to(60)
        with pytest.raises(DataLoss, match=r"offset 100, but .*/t-0 holds \[0, 60\): the log was truncated, or"):
            reader(data).latestOffset(END, ReadAllAvailable())
        made = reader(data, failOnDataLoss="false")
        after = made.latestOffset(END, ReadAllAvailable())
        assert after == {**END, "t": {"0": 60, "1": 50}}
        assert rows(made, END, after) == []
        fill(data, t=[5, 0])
        assert rows(made, after, made.latestOffset(after, ReadAllAvailable())) == numbers("t", 0, 60, 65)

    @pytest.mark.parametrize("count", [25, 60])
    @pytest.mark.parametrize("stopped", [False, True])
    def test_a_later_leader_has_written_the_log_again(
        self, data: Path, cp: dict[str, str], count: int, stopped: bool
    ) -> None:
        """KIP-320: with 60 records the log has passed the stream's position, so that only the epoch shows it."""
        options = {"subscribe": "t", **cp}
        strict, lenient = reader(data, **options), reader(data, failOnDataLoss="false", **options)
        for made in (strict, lenient):
            end = made.latestOffset(begin(made), ReadAllAvailable())
        with klog.open(data) as logs:
            log = logs.log("t", 0)
            log.truncate_to(60)
            log.append_batches(encode([(b"k", b"later")] * count), leader_epoch=7)
        if stopped:
            strict, lenient = reader(data, **options), reader(data, failOnDataLoss="false", **options)
        reason = rf"t-0: the stream is at offset 100, but .*\[0, {60 + count}\): its leader epoch 0 ends at 60"
        with pytest.raises(DataLoss, match=reason):
            strict.latestOffset(end, ReadAllAvailable())
        with pytest.raises(DataLoss, match=reason):  # a batch that Spark repeats
            strict.partitions({"t": {"0": 50, "1": 50}}, end)
        after = lenient.latestOffset(end, ReadAllAvailable())
        expected = numbers("t", 0, 60, 60 + count)
        assert rows(lenient, end, after) == expected
        assert rows(reader(data, failOnDataLoss="false", **options), end, after) == expected  # repeated after a crash
        assert lenient.latestOffset(after, ReadAllAvailable()) == after

    def test_retention(self, data: Path) -> None:
        with klog.open(data) as logs:
            logs.log("t", 0).delete_records(30)
        at = {"empty": {"0": 0}, "t": {"0": 20, "1": 50}}
        with pytest.raises(DataLoss, match=r"holds \[30, 100\): retention or a delete has removed \[20, 30\)"):
            reader(data).latestOffset(at, ReadAllAvailable())
        made = reader(data, failOnDataLoss="false")
        assert rows(made, at, made.latestOffset(at, ReadAllAvailable())) == numbers("t", 0, 30, 100)

    def test_a_deleted_topic(self, data: Path) -> None:
        with klog.open(data) as logs:
            logs.delete_topic("t")
        for subscription in (
            {},
            {"subscribe": "t,empty"},
            {"subscribePattern": "."},
            {"assign": '{"t":[0,1],"empty":[0]}'},
        ):
            with pytest.raises(
                DataLoss, match="t-0: the stream is at offset 100, but the partition is gone: its topic"
            ):
                reader(data, **subscription).latestOffset(END, ReadAllAvailable())
            made = reader(data, failOnDataLoss="false", **subscription)
            assert made.latestOffset(END, ReadAllAvailable()) == {"empty": {"0": 0}}

    @pytest.mark.parametrize("fail", ["true", "false"])
    def test_a_topic_that_is_deleted_while_its_bytes_are_counted(
        self, data: Path, monkeypatch: pytest.MonkeyPatch, fail: str
    ) -> None:
        with klog.open(data) as logs:
            logs.create_topic("small", config={"segment.bytes": 1024})
            for _ in range(20):
                logs.log("small").append([(b"k", b"v" * 50)] * 10)
        made = reader(data, subscribe="small,empty", failOnDataLoss=fail, maxBytesPerTrigger="9000")
        start, see = begin(made), survey.see

        def then_delete(*of: Any) -> Any:
            found = see(*of)
            shutil.rmtree(data / "small-0")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(survey, "see", then_delete)
            end = made.latestOffset(start, made.getDefaultReadLimit())
        if fail == "false":
            assert rows(made, start, end) == []
        else:
            with pytest.raises(DataLoss, match="small-0: the stream is at offset 0, but the partition is gone"):
                made.partitions(start, end)

    def test_a_topic_that_is_deleted_after_it_was_listed(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        topics = klog.LogManager.topics
        copies = [data, *(data.with_name(name) for name in ("copy", "other"))]
        for copy in copies[1:]:
            shutil.copytree(data, copy)

        def then_delete(manager: klog.LogManager) -> dict[str, list[int]]:
            found = topics(manager)
            for path in manager.paths:
                for partition in (0, 1):
                    shutil.rmtree(Path(path) / f"t-{partition}", ignore_errors=True)
            return found

        monkeypatch.setattr(klog.LogManager, "topics", then_delete)
        with pytest.raises(
            DataLoss, match="t-0: the stream is at offset 100, but the partition is gone: its topic was"
        ):
            reader(copies[0]).latestOffset(END, ReadAllAvailable())
        with pytest.raises(DataLoss, match="t-0: the stream is at offset 0, but the partition is gone: its topic was"):
            reader(copies[1]).partitions(START, END)
        made = reader(copies[2], failOnDataLoss="false", subscribe="t,empty")
        assert made.latestOffset(END, ReadAllAvailable()) == {"empty": {"0": 0}}

    @pytest.mark.parametrize("query", ["stream", "batch"])
    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize(("owner", "call"), [(klog.LogManager, "topics"), (survey, "see")], ids=["list", "open"])
    def test_a_topic_that_is_deleted_while_a_query_begins(
        self, data: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, call: str, named: bool, query: str
    ) -> None:
        """A query that does not name it begins with what is left."""
        with klog.open(data) as logs:
            logs.create_topic("gone", config={"segment.bytes": 1024})
        fill(data, gone=[100])
        before = getattr(owner, call)

        def then_delete(*of: Any) -> Any:
            found = before(*of)
            shutil.rmtree(data / "gone-0", ignore_errors=True)
            return found

        monkeypatch.setattr(owner, call, then_delete)
        given = {"path": str(data), "startingTimestamp": "1"}  # a search by time reads the logs
        source = KlogSource({**given, **({"subscribe": "t,gone"} if named else {"subscribePattern": "t$|gone"})})

        def topics() -> set[str]:
            if query == "stream":
                return set(source.streamReader(full_schema()).initialOffset())
            return {each.topic for part in source.reader(full_schema()).partitions() for each in part.value}

        if named:
            with pytest.raises(UnknownTopicOrPartition, match="no topic gone here"):
                topics()
        else:
            assert topics() == {"t"}

    @pytest.mark.parametrize("stopped", [False, True])
    @pytest.mark.parametrize("other", ["same", "again", "without id"])
    def test_a_partition_that_goes_and_comes_back(
        self, data: Path, cp: dict[str, str], tmp_path: Path, other: str, stopped: bool
    ) -> None:
        """It is read on, not again. Of another topic, and of one that has no id to tell, all records are read."""
        options = {**cp, "failOnDataLoss": "false", "subscribe": "t"}
        if other == "without id":
            (data / "klog-topics.json").unlink()
            for place in data.glob("t-*/partition.metadata"):
                place.unlink()
        made = reader(data, **options)
        ((end, _),) = batches(made)
        if other == "again":
            with klog.open(data) as logs:
                logs.delete_topic("t")
            end = made.latestOffset(end, ReadAllAvailable())
            fill(data, t=[200, 60])
        else:
            (data / "t-1").rename(tmp_path / "t-1")
            end = made.latestOffset(end, ReadAllAvailable())
            (tmp_path / "t-1").rename(data / "t-1")
            with klog.Log.open(data / "t-1") as log:
                log.append([(b"k", b"v")] * 10)
        made = reader(data, **options) if stopped else made
        named = made.latestOffset(end, ReadAllAvailable())
        made = reader(data, **options) if stopped else made  # repeats the batch after a crash
        assert made.partitions(end, named) == []
        assert [sorted(rows) for _, rows in batches(made, named)] == [
            {
                "same": numbers("t", 1, 50, 60),
                "again": [*numbers("t", 0, 0, 200), *numbers("t", 1, 0, 60)],
                "without id": numbers("t", 1, 0, 60),
            }[other]
        ]

    def test_a_partition_that_goes_just_after_its_topic_was_created_again(self, data: Path, tmp_path: Path) -> None:
        """The stream sees the new topic first without it: where it was is an offset of the old topic."""
        made = reader(data, subscribe="t", failOnDataLoss="false")
        ((end, _),) = batches(made)
        self.recreate(data, 20, 40)
        (data / "t-1").rename(tmp_path / "t-1")
        after = made.latestOffset(end, ReadAllAvailable())
        assert rows(made, end, after) == numbers("t", 0, 0, 20)
        (tmp_path / "t-1").rename(data / "t-1")
        assert [found for _, found in batches(made, after)] == [[], numbers("t", 1, 0, 40)]

    def test_two_ids_of_one_topic_are_an_error(self, data: Path) -> None:
        """A directory that is left of a deleted topic would make each batch begin anew."""
        shutil.copy(data / "empty-0" / "partition.metadata", data / "t-1")
        (data / "klog-topics.json").unlink()  # a broker's directory has none
        made = reader(data, subscribe="t", failOnDataLoss="false")
        for call in (made.initialOffset, lambda: made.latestOffset({"t": END["t"]}, ReadAllAvailable())):
            with pytest.raises(InconsistentTopicId, match=r"t-1 has the topic id .* another partition of 't' has "):
                call()

    def test_a_loss_between_planning_and_the_batch(self, data: Path) -> None:
        """The end of a batch that Spark has already stored no longer exists."""
        with klog.open(data) as logs:
            logs.log("t", 0).truncate_to(60)
        with pytest.raises(DataLoss, match=r"t-0: the stream is at offset 100, but .*truncated"):
            reader(data).partitions(START, END)
        made = reader(data, failOnDataLoss="false")
        assert Counter(rows(made, START, END)) == Counter(numbers("t", 0, 0, 60) + numbers("t", 1, 0, 50))

    def test_a_query_that_begins_anew_ignores_stored_ids(self, data: Path, cp: dict[str, str]) -> None:
        list(batches(reader(data, subscribe="t", **cp)))
        self.recreate(data, 20, 10)
        made = reader(data, subscribe="t", **cp)
        assert [end for end, _ in batches(made)] == [{"t": {"0": 20, "1": 10}}]

    def test_the_file(self, data: Path, cp: dict[str, str]) -> None:
        list(batches(reader(data, subscribe="t", **cp)))
        list(batches(reader(data, subscribe="empty", **cp)))
        files = sorted(Path(cp["checkpointLocation"]).iterdir())
        assert len(files) == 2  # one for each source
        with klog.open(data, read_only=True) as logs:
            ids = {topic: str(logs.log(topic).topic_id) for topic in ("t", "empty")}
        found = [unchecked_in(file) for file in files]
        assert sorted(found, key=str) == sorted(
            (
                {
                    "version": 1,
                    "topics": {topic: ids[topic]},
                    "epochs": epochs,
                    "resumed": None,
                    "next": None,
                    "left": {},
                }
                for topic, epochs in (("t", {"t": {"0": 0, "1": 0}}), ("empty", {}))
            ),
            key=str,
        )

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ('{"version": 2, "topics": {}, "resumed": null}', "has version 2, this klog reads 1: upgrade klog"),
            ("", "is not valid"),
            ("[]", "is not valid"),
            ('{"version": 1, "topics": {"t": 3}, "resumed": null}', "is not valid"),
            ('{"version": 1, "topics": {}, "resumed": {"start": 3}}', "is not valid"),
            ('{"version": 1, "topics": {}, "epochs": {"t": {"0": "x"}}, "resumed": null}', "is not valid"),
        ],
    )
    def test_an_invalid_file(self, data: Path, cp: dict[str, str], text: str, why: str) -> None:
        list(batches(reader(data, **cp)))
        (file,) = Path(cp["checkpointLocation"]).iterdir()
        file.write_text(text)
        with pytest.raises((klog.KlogError, ValueError), match=f"{file.name}.*{why}"):
            reader(data, **cp).latestOffset(START, ReadAllAvailable())


OLDER = """
import sys
import pyspark.sql.datasource as datasource
for name in ("DataSourceStreamArrowWriter", "Filter", "ReadAllAvailable", "ReadLimit"):  # of 4.1 and 4.2
    delattr(datasource, name)
del datasource.DataSourceReader.pushFilters
for name in ("getDefaultReadLimit", "reportLatestOffset"):
    delattr(datasource.DataSourceStreamReader, name)
sys.modules["pyspark.sql.streaming.datasource"] = None

import pyspark_klog
from pyspark.sql.types import StructType, StructField, LongType
schema = StructType([StructField("offset", LongType())])
source = pyspark_klog.DefaultSource({"path": sys.argv[1], "startingoffsets": "earliest"})
stream = source.streamReader(schema)
print(stream.latestOffset(), stream.initialOffset(), len(source.reader(schema).partitions()))
parts = stream.partitions(stream.initialOffset(), stream.latestOffset())
print(sum(batch.num_rows for part in parts for batch in stream.read(part)))
try:
    pyspark_klog.DefaultSource({"path": sys.argv[1], "maxoffsetspertrigger": "3"}).streamReader(schema)
except ValueError as error:
    print(error)
"""


class TestVersions:
    """PySpark before 4.2: latestOffset() without arguments, no limits."""

    def test_without_the_names_of_later_versions(self, data: Path) -> None:
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", OLDER, str(data)],
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        first, count, refusal = done.stdout.splitlines()
        assert first == f"{END} {START} 1"
        assert count == "150"
        assert refusal.startswith("option 'maxOffsetsPerTrigger' needs PySpark 4.2 or later")

    def test_without_a_start(self, data: Path) -> None:
        made = reader(data)
        assert made.latestOffset() == END
        assert made.initialOffset() == START
        assert Counter(rows(made, START, END)) == Counter(numbers("t", 0, 0, 100) + numbers("t", 1, 0, 50))

    def test_offsets_never_decrease(self, data: Path) -> None:
        made = reader(data)
        made.latestOffset()
        (data / "replication-offset-checkpoint").write_text("0\n2\nt 0 80\nt 1 50\n")
        assert made.latestOffset() == END

    @pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger"])
    def test_limits_are_refused_by_name(self, data: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
        monkeypatch.setattr(stream, "HAS_LIMITS", False)
        with pytest.raises(ValueError, match=f"option '{option}' needs PySpark 4.2 or later"):
            reader(data, **{option: "5"})


@settings(max_examples=25, deadline=None, suppress_health_check=OF_FIXTURES)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 25)),
            st.tuples(st.just("create"), st.integers(0, 1), st.integers(0, 12)),
            st.tuples(st.just("batch"), st.integers(1, 30), st.booleans()),
            st.tuples(st.just("restart"), st.just(0), st.just(0)),
        ),
        max_size=14,
    ),
    by_bytes=st.booleans(),
)
def test_a_stream_beside_a_writer_reads_every_record_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, Any]], by_bytes: bool
) -> None:
    """Appends, new topics, restarts and batches of any size, some of them repeated after a crash, in any order."""
    path = fill(tmp_path_factory.mktemp("data") / "data", t=[13, 0, 4])
    made = reader(path)
    start, seen, expected = begin(made), Counter[tuple[str, int, int]](), Counter[tuple[str, int, int]]()

    def note() -> None:
        with klog.open(path, read_only=True) as logs:
            for topic, partitions in logs.topics().items():
                for partition in partitions:
                    expected.update(
                        dict.fromkeys(numbers(topic, partition, 0, logs.log(topic, partition).log_end_offset), 0)
                    )

    for kind, first, second in steps:
        if kind == "append":
            counts = [0, 0, 0]
            counts[first] = second
            fill(path, t=counts)
        elif kind == "create":
            fill(path, **{f"new{first}": [second]})
        elif kind == "restart":
            made = reader(path)
        else:
            limit = ReadMaxBytes(first * 40) if by_bytes else ReadMaxRows(first)
            end = made.latestOffset(start, limit)
            batch = rows(made, start, end)
            if second:
                made = reader(path)
                assert rows(made, start, end) == batch
            assert by_bytes or len(batch) <= first
            seen.update(batch)
            start = end
    for _, batch in batches(made, start):
        seen.update(batch)
    note()
    assert seen == Counter(dict.fromkeys(expected, 1))


class TestOpenPartitions:
    """They stay open between the triggers."""

    def test_a_trigger_follows_instead_of_opening(self, tmp_path: Path) -> None:
        costs = []
        with klog.open(tmp_path, create=True) as logs:
            logs.create_topic("t", partitions=20)
            for partition in range(20):
                logs.log("t", partition).append([(b"k", b"v")])
            made = reader(tmp_path)
            at = begin(made)
            for _ in range(3):
                logs.log("t", 0).append([(b"k", b"v")])
                time.sleep(0.1)  # else the log.dirs may have changed just now, so that all is looked at twice
                frames = frames_of(lambda: made.latestOffset(at, made.getDefaultReadLimit())).total()
                costs.append(frames)
            fresh = frames_of(lambda: reader(tmp_path).initialOffset()).total()
        assert max(costs) < fresh / 2

    @pytest.mark.parametrize("on_corrupt", ["fail", "skipBatch"])
    def test_they_are_closed(self, tmp_path: Path, on_corrupt: str) -> None:
        """Those of damaged logs with each trigger, the others at the end."""
        with klog.open(tmp_path, create=True) as logs:
            logs.create_topic("t", partitions=3)
            for partition in range(3):
                for _ in range(3):
                    logs.log("t", partition).append([(b"k", b"v" * 50)])
                    logs.log("t", partition).roll()
            if on_corrupt == "skipBatch":
                Path(logs.log("t", 0).segments[1].path).unlink()
            before = len(os.listdir("/proc/self/fd"))
            made = reader(tmp_path, oncorrupt=on_corrupt)
            at = begin(made)
            opened = set()
            for _ in range(5):
                for partition in range(3):
                    logs.log("t", partition).append([(b"k", b"v")])
                end = made.latestOffset(at, made.getDefaultReadLimit())
                rows(made, at, end)
                opened.add(len(os.listdir("/proc/self/fd")))
            assert len(opened) == 1
            made.stop()
            assert len(os.listdir("/proc/self/fd")) == before
