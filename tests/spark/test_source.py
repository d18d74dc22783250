"""The data source on real directories, without a JVM: planner and tasks, called as Spark calls them."""

from __future__ import annotations

import itertools
import logging
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import StructType

import klog
from klog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from klog.spark.options import parse
from klog.spark.plan import Range
from klog.spark.read import DataLoss
from klog.spark.rows import full_schema
from klog.spark.source import KlogSource
from klog.spark.survey import plan_partitions
from tests.manager.test_moving import two_live

from .conftest import FLIGHTS, PARTITIONS, START_MS, STEP_MS, Copies, Directory, flights

EACH = FLIGHTS // PARTITIONS


def source(path: Path | str, **options: str) -> KlogSource:
    return KlogSource(CaseInsensitiveDict({"path": str(path), **options}))


def reader(path: Path | str, columns: tuple[str, ...] = ("partition", "offset"), **options: str) -> Copies:
    schema = StructType([column for column in full_schema().fields if column.name in columns])
    return Copies(source(path, **options).reader(schema))


def ranges(path: Path | str, **options: str) -> list[tuple[str, int, int]]:
    """Return (topic-partition, start, end) of all ranges that a query would read."""
    planned = reader(path, **options).partitions()
    return [(str(item.pair), item.start_offset, item.end_offset) for part in planned for item in part.value]


def offsets(of: Copies, partition: InputPartition) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for batch in of.read(partition) for row in batch.to_pylist()]


ALL = [(f"flights-{n}", 0, EACH) for n in range(PARTITIONS)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ALL),
        ({"subscribe": "flights"}, ALL),
        ({"subscribe": "empty"}, []),
        ({"subscribePattern": "fl.*"}, ALL),
        ({"subscribePattern": "nothing"}, []),
        ({"assign": '{"flights":[2]}'}, ALL[2:]),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, ALL),
        ({"startingOffsets": '{"flights":{"0":7,"1":-2,"2":300}}'}, [("flights-0", 7, EACH), ALL[1]]),
        (
            {"assign": '{"flights":[1]}', "startingOffsets": '{"flights":{"1":21}}',
             "endingOffsets": '{"flights":{"1":22}}'},
            [("flights-1", 21, 22)],
        ),
        ({"assign": '{"flights":[1]}', "endingOffsets": '{"flights":{"1":-1}}'}, [ALL[1]]),
        ({"subscribe": "flights", "startingTimestamp": str(START_MS)}, ALL),
        ({"subscribe": "flights", "startingTimestamp": "2013-02-08T05:01:00Z"}, [(name, 1, EACH) for name, *_ in ALL]),
        (
            {"subscribe": "flights", "startingTimestamp": "2013-02-08T00:02:00.001-05:00"},
            [("flights-0", 3, EACH), ("flights-1", 2, EACH), ("flights-2", 2, EACH)],  # partition n is n ms later
        ),
        ({"endingTimestamp": str(START_MS + 5 * STEP_MS)}, [(name, 0, 5) for name, _, _ in ALL]),
        ({"endingTimestamp": str(START_MS + EACH * STEP_MS)}, ALL),  # no record there: to the end
        (
            {"assign": '{"flights":[0]}',
             "startingOffsetsByTimestamp": f'{{"flights":{{"0":{START_MS + 9 * STEP_MS}}}}}',
             "endingOffsetsByTimestamp": '{"flights":{"0":"2013-02-08T05:11:00Z"}}'},
            [("flights-0", 9, 11)],
        ),
        (
            {"startingTimestamp": str(START_MS + EACH * STEP_MS), "startingOffsetsByTimestampStrategy": "latest"},
            [],
        ),
    ],
)  # fmt: skip
def test_rows_selected_by_options(
    shared_data: Directory, options: dict[str, str], expected: list[tuple[str, int, int]]
) -> None:
    assert ranges(shared_data.path, **options) == expected


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"subscribe": "flight"}, UnknownTopicOrPartition, "no topic flight here; topics: empty, flights"),
        ({"assign": '{"flights":[3]}'}, UnknownTopicOrPartition, "no partition flights-3 here"),
        ({"startingOffsets": '{"flights":{"0":301}}'}, OffsetOutOfRange, r"301 is outside flights-0.*\[0, 300\)"),
        ({"endingOffsets": '{"flights":{"0":301}}'}, OffsetOutOfRange, "301 is outside flights-0"),
        ({"startingOffsets": '{"other":{"0":1}}'}, UnknownTopicOrPartition, "'startingOffsets' names other-0, which"),
        (
            {"subscribe": "flights", "startingTimestamp": str(START_MS + EACH * STEP_MS)},
            ValueError,
            "'startingTimestamp': flights-0 has no record at or after 13603",
        ),
    ],
)
def test_invalid_selections_raise(shared_data: Directory, options: dict[str, str], error: type, why: str) -> None:
    with pytest.raises(error, match=why):
        ranges(shared_data.path, **options)


def test_a_partition_left_out_of_the_json_is_logged(shared_data: Directory, caplog: pytest.LogCaptureFixture) -> None:
    assert ranges(shared_data.path, subscribe="flights", startingOffsets='{"flights":{"0":299}}')[1:] == ALL[1:]
    assert "option=startingOffsets leaves out flights-1,flights-2: earliest" in caplog.text


def test_ignored_options_warn_once(shared_data: Directory, caplog: pytest.LogCaptureFixture) -> None:
    given = {"kafka.bootstrap.servers": "h:9092", "kafka.group.id": "g"}
    assert ranges(shared_data.path, **given) == ALL
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ['format("klog") ignores options of a Kafka client: kafka.bootstrap.servers, kafka.group.id']


class TestPaths:
    def test_a_partition_directory(self, shared_data: Directory) -> None:
        assert ranges(shared_data.path / "flights-1") == [ALL[1]]

    def test_a_log_directory_named_like_a_partition(self, shared_data: Directory, tmp_path: Path) -> None:
        shutil.copytree(shared_data.path, tmp_path / "data-1")
        assert ranges(tmp_path / "data-1") == ALL

    def test_several(self, shared_data: Directory) -> None:
        both = f'["{shared_data.path}/flights-2","{shared_data.path}/flights-0"]'
        planned = plan_partitions(parse({"paths": both}))
        assert [str(item.pair) for members in planned for item in members] == ["flights-0", "flights-2"]

    def test_the_same_partition_twice(self, shared_data: Directory) -> None:
        twice = f'["{shared_data.path}","{shared_data.path}/flights-0"]'
        with pytest.raises(ValueError, match="flights-0 is in two of the paths"):
            plan_partitions(parse({"paths": twice}))

    def test_a_partition_that_a_move_has_left_in_two(self, tmp_path: Path) -> None:
        two_live(tmp_path)
        for first, second in ("ab", "ba"):
            ((found,),) = plan_partitions(parse({"paths": f'["{tmp_path}/{first}","{tmp_path}/{second}"]'}))
            assert (found.path, found.end_offset) == (f"{tmp_path}/b/t-0", 60)

    @pytest.mark.parametrize("moment", ["before the list", "after the list"])
    def test_a_partition_that_moves_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
    ) -> None:
        topics, log = klog.LogManager.topics, klog.LogManager.log

        def then_move(manager: klog.LogManager) -> dict[str, list[int]]:
            found = topics(manager)
            if not found and moment == "before the list":
                logs.move("t", 0, tmp_path / "a")
            return found

        def move_first(manager: klog.LogManager, *pair: Any) -> klog.Log:
            if manager is not logs and (tmp_path / "b" / "t-0").exists():
                logs.move("t", 0, tmp_path / "a")
            return log(manager, *pair)

        with klog.open([tmp_path / "a", tmp_path / "b"], create=True) as logs:
            logs.create_topic("t", directory=tmp_path / "b")
            logs.append("t", [(b"k", b"v")] * 5)
            monkeypatch.setattr(klog.LogManager, "topics", then_move)
            monkeypatch.setattr(klog.LogManager, "log", move_first)
            ((found,),) = plan_partitions(parse({"paths": f'["{tmp_path}/a","{tmp_path}/b"]'}))
            assert (found.path, found.end_offset) == (f"{tmp_path}/a/t-0", 5)

    def test_relative_to_the_drivers_directory(self, shared_data: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(shared_data.path.parent)
        relative = reader("data")
        monkeypatch.chdir("/")
        planned = relative.partitions()
        assert len(offsets(relative, planned[0])) == FLIGHTS


class TestPlanning:
    def test_many_segments_are_one_task(self, shared_data: Directory) -> None:
        with klog.open(shared_data.path, read_only=True) as logs:
            assert all(len(logs.log("flights", n).segments) > 1 for n in range(PARTITIONS))
        assert len(reader(shared_data.path).partitions()) == 1

    def test_ranges_are_cut_between_batches(self, shared_data: Directory) -> None:
        """Appends of 20 records: a small target cuts at multiples of 20, and every row is read once."""
        options = {"path": str(shared_data.path), "subscribe": "flights"}
        bins = plan_partitions(replace(parse(options), target_split_bytes=4096))
        assert len(bins) > PARTITIONS
        pieces = sorted((item.partition, item.start_offset, item.end_offset) for members in bins for item in members)
        assert {start % 20 for _, start, _ in pieces} == {0}
        assert [piece for piece in pieces if piece[1] == 0] == [(n, 0, pieces[i][2]) for n, i in _firsts(pieces)]
        task = reader(shared_data.path)
        seen = [row for members in bins for row in offsets(task, InputPartition(members))]
        assert sorted(seen) == [(n, offset) for n in range(PARTITIONS) for offset in range(EACH)]

    def test_an_empty_selection(self, shared_data: Directory) -> None:
        task = reader(shared_data.path, subscribe="empty")
        assert task.partitions() == []
        assert list(task.read(InputPartition(None))) == []  # Spark's partition for an empty list

    def test_everything_appended_by_a_concurrent_writer_is_planned(self, data: Directory) -> None:
        with klog.open(data.path) as logs:
            logs.log("flights", 1).append(flights(1, EACH, 5))
            assert ranges(data.path, assign='{"flights":[1]}') == [("flights-1", 0, EACH + 5)]

    def test_the_end_is_the_high_watermark(self, data: Directory) -> None:
        """A broker's checkpoint below the log end: the records above it were never acknowledged."""
        (data.path / "replication-offset-checkpoint").write_text("0\n1\nflights 0 100\n")
        assert ranges(data.path, assign='{"flights":[0]}') == [("flights-0", 0, 100)]


def _firsts(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    return [
        (number, next(index for index, piece in enumerate(pieces) if piece[0] == number))
        for number in range(PARTITIONS)
    ]


class TestTasks:
    def test_reader_and_partitions_are_plain_values(self, shared_data: Directory) -> None:
        task = reader(shared_data.path)
        (only,) = task.partitions()
        assert pickle.loads(pickle.dumps(only)).value == only.value
        assert all(type(item) is Range for item in only.value)
        assert len(task.pickled) < 1000

    def test_offset_order_inside_a_partition(self, shared_data: Directory) -> None:
        task = reader(shared_data.path)
        rows = offsets(task, task.partitions()[0])
        by_partition = [[offset for _, offset in group] for _, group in itertools.groupby(rows, lambda row: row[0])]
        assert by_partition == [list(range(EACH))] * PARTITIONS

    def test_a_retried_task_reads_the_same_rows_while_a_writer_appends(self, data: Directory) -> None:
        task = reader(data.path, assign='{"flights":[0]}')
        (planned,) = task.partitions()
        first = offsets(task, planned)
        with klog.open(data.path) as logs:
            log = logs.log("flights", 0)
            before = len(log.segments)
            for start in range(EACH, EACH + 200, 20):
                log.append(flights(0, start, 20))
            assert len(log.segments) > before
            assert offsets(task, planned) == first == [(0, offset) for offset in range(EACH)]
            log.flush()
        assert offsets(task, planned) == first

    def test_a_checkpoint_that_moves_changes_no_planned_range(self, data: Directory) -> None:
        task = reader(data.path, assign='{"flights":[0]}')
        (planned,) = task.partitions()
        (data.path / "replication-offset-checkpoint").write_text("0\n1\nflights 0 100\n")
        assert len(offsets(task, planned)) == EACH

    def test_a_task_that_stops_early_closes_its_log(self, shared_data: Directory) -> None:
        """A LIMIT drops the iterator early. There is no ResourceWarning, which pytest would turn into an error."""
        task = reader(shared_data.path)
        rows = task.read(task.partitions()[0])
        next(rows)
        rows.close()  # type: ignore[attr-defined]

    def test_planned_rows_that_were_truncated_raise(self, data: Directory) -> None:
        task = reader(data.path, assign='{"flights":[0]}')
        (planned,) = task.partitions()
        shutil.rmtree(data.path / "flights-0")
        with klog.Log.open(data.path / "flights-0") as log:
            log.append(flights(0, 0, 10))
        with pytest.raises(
            DataLoss, match=r"flights-0: planned to read \[0, 300\).* now holds \[0, 10\): the log was trunc"
        ):
            list(task.read(planned))

    def test_planned_rows_that_retention_removed_raise(self, data: Directory) -> None:
        task = reader(data.path, assign='{"flights":[0]}')
        (planned,) = task.partitions()
        with klog.open(data.path, read_only=True) as logs:
            second = logs.log("flights", 0).segments[1].base_offset
        for path in (data.path / "flights-0").glob("0" * 20 + ".*"):
            path.unlink()
        with pytest.raises(
            DataLoss, match=rf"now holds \[{second}, 300\): retention or a delete has removed the beginning"
        ):
            list(task.read(planned))
