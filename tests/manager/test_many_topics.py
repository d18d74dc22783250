"""What a call on one topic costs beside many others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog import LogManager
from klog.log.directory import reader_positions
from tests.support.frames import frames_of

RECORDS = [(b"key", b"value")]


def settle() -> None:
    """Wait until the last change is so long ago that a listing counts for later calls."""
    time.sleep(0.1)


def filled(path: Path, topics: int) -> LogManager:
    logs = klog.open(path, create=True)
    for number in range(topics):
        logs.create_topic(f"t{number}")
    logs.append("t0", RECORDS)
    settle()
    logs.topics()
    return logs


@pytest.mark.parametrize(
    "call",
    [
        lambda logs: logs.append("t0", RECORDS),
        lambda logs: list(logs.read("t0", start=0, stop=1)),
        lambda logs: logs.count("t0"),
        lambda logs: logs.topic_config("t0"),
    ],
    ids=["append", "read", "count", "topic_config"],
)
def test_a_call_costs_the_same_beside_100_other_topics(tmp_path: Path, call: Callable[[LogManager], object]) -> None:
    costs = []
    for topics in (1, 101):
        with filled(tmp_path / str(topics), topics) as logs:
            call(logs)
            costs.append(frames_of(lambda: call(logs)).total())
    assert costs[0] == costs[1]


def test_a_creation_does_little_for_each_other_topic(tmp_path: Path) -> None:
    """It lists the log.dir once and writes klog-topics.json twice, but encodes no topic again."""
    costs = []
    for topics in (1, 101):
        with filled(tmp_path / str(topics), topics) as logs:
            costs.append(frames_of(lambda: logs.create_topic("new")).total())
    assert costs[1] - costs[0] <= 4 * 100


def test_a_start_after_a_crash_reads_the_positions_of_a_reader_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for each partition, whose position may be above its log end."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", partitions=10)
        with logs.reader("t", "billing") as reader:
            list(reader)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    settle()
    reads: list[str] = []
    decode = reader_positions.decode
    monkeypatch.setattr(reader_positions, "decode", lambda data, path: reads.append(path) or decode(data, path))
    with klog.open(tmp_path) as logs:
        logs.load_all()
    assert len(reads) == 1


@pytest.mark.parametrize("read_only", [False, True])
def test_directories_made_or_removed_by_hand_show_at_once(tmp_path: Path, read_only: bool) -> None:
    filled(tmp_path, 1).close()
    settle()
    with klog.open(tmp_path, read_only=read_only) as logs:
        settle()
        assert logs.topics() == {"t0": [0]}
        (tmp_path / "by-hand-0").mkdir()
        assert logs.topics() == {"by-hand": [0], "t0": [0]}
        settle()
        assert logs.topics().pop("by-hand") == [0]  # what is returned is the caller's
        assert logs.topics() == {"by-hand": [0], "t0": [0]}
        (tmp_path / "by-hand-0").rmdir()
        assert logs.topics() == {"t0": [0]}


def test_a_log_opened_alone_costs_the_same_beside_100_others(tmp_path: Path) -> None:
    """The checkpoints of the log.dir state something of each."""
    costs = []
    for topics in (1, 101):
        path = tmp_path / str(topics)
        with filled(path, topics) as logs:
            for number in range(topics):
                logs.append(f"t{number}", RECORDS)

        def opened(path: Path = path) -> None:
            klog.Log.open(path / "t0-0", read_only=True).close()

        opened()
        costs.append(frames_of(opened).total())
    assert costs[0] == costs[1]
