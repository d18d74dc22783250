"""Positions in a topic: one for all partitions, or a mapping with one for each of some partitions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.errors import OffsetOutOfRange, UnknownTopicOrPartition

NOW = 1_700_000_000_000
UTC = datetime.UTC


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[klog.LogManager]:
    """Three partitions with 2, 4 and 6 records, one a second."""
    with klog.open(tmp_path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", partitions=3)
        for number in range(3):
            count = 2 * (number + 1)
            logs.log("t", number).append([(None, b"", NOW - 1000 * (count - n)) for n in range(count)])
        yield logs


def ranges(logs: klog.LogManager, *arguments: Any, **more: Any) -> list[list[int]]:
    found: list[list[int]] = [[], [], []]
    for record in logs.read("t", *arguments, **more):
        assert record.partition is not None
        found[record.partition].append(record.offset)
    return found


def test_partitions_left_out_are_read_from_their_first_record_to_their_end(logs: klog.LogManager) -> None:
    assert ranges(logs, {1: 3, 2: "latest"}) == [[0, 1], [3], []]
    assert ranges(logs, 1, {0: 2, 2: "-2s"}) == [[1], [1, 2, 3], [1, 2, 3]]
    moment = datetime.datetime.fromtimestamp(NOW / 1000 - 1, UTC)
    assert ranges(logs, {0: moment, 1: "now", 2: datetime.date(2023, 11, 15)}, {}) == [[1], [], []]
    assert ranges(logs, {1: 3, 2: 6}, partition=1) == [[], [3], []]


def test_wrong_positions_name_the_partition(logs: klog.LogManager) -> None:
    for arguments in ({"start": {3: 0}}, {"stop": {0: 0, 3: 0}}, {"start": {3: 0}, "partition": 0}):
        with pytest.raises(UnknownTopicOrPartition, match=r"'t' has no partition 3; it has \[0, 1, 2\]"):
            logs.read("t", **arguments)
    for start in (3, {0: 3}, {0: -1, 1: 2}):
        with pytest.raises(OffsetOutOfRange, match=r"outside t-0, which holds \[0, 2\)"):
            logs.read("t", start)  # type: ignore[arg-type]
    for start, match in (({0: 1.5}, r"start\[0\]"), ({"0": 1}, "a partition in start"), ({True: 1}, "a partition in")):
        with pytest.raises(TypeError, match=match):
            logs.read("t", start)  # type: ignore[arg-type]


def test_named_readers(logs: klog.LogManager) -> None:
    reader = logs.reader("t", "r", start={1: 3, 2: "latest"})
    assert reader.position == {0: 0, 1: 3, 2: 6}
    reader.seek({0: 1, 2: "-1s"})
    assert reader.position == {0: 1, 1: 3, 2: 5}
    for position, error in (({0: 0, 1: 5}, OffsetOutOfRange), ({0: 0, 3: 0}, UnknownTopicOrPartition)):
        with pytest.raises(error):
            reader.seek(position)
    with pytest.raises(ValueError, match="leave out partition"):
        reader.seek({0: 0}, partition=0)
    assert reader.position == {0: 1, 1: 3, 2: 5}
    with pytest.raises(UnknownTopicOrPartition, match="no partition 3"):
        logs.reader("t", "s", start={3: 0})


def test_a_tail_takes_a_position_for_each_partition(logs: klog.LogManager) -> None:
    """The partitions that it leaves out are read from their first record, as by read()."""
    tail = logs.tail("t", {1: 3, 2: "latest"}, timeout=0)
    assert [(record.partition, record.offset) for record in tail] == [(0, 0), (0, 1), (1, 3)]
    assert [record.offset for record in logs.tail("t", {2: 5}, partition=2, timeout=0)] == [5]
    for start, error in (({3: 0}, UnknownTopicOrPartition), ({0: 9}, OffsetOutOfRange), ({0: None}, TypeError)):
        with pytest.raises(error):
            logs.tail("t", start)  # type: ignore[arg-type]


def test_the_records_of_a_topic_are_counted(logs: klog.LogManager) -> None:
    assert logs.count("t") == 12 and logs.count("t", partition=1) == 4
    assert logs.count("t", {0: 1}, {2: 5}) == 1 + 4 + 5 and logs.count("t", "-3s", partition=2) == 3
    with pytest.raises(UnknownTopicOrPartition, match="no topic 'u'"):
        logs.count("u")
    assert logs.count("t", 3) == 0 + 1 + 3, "a start after the end, as by Log.count"
