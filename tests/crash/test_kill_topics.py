"""SIGKILL at every file operation while a topic is created, deleted or moved: the topic exists as a whole or not at
all, in one directory, with all records. The page cache survives a kill; test_power_cut covers its loss."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from tests.support.failing_files import FailingFiles

NOW = 1_700_000_000_000
RECORDS = 12
Work = Callable[[klog.LogManager, Path], None]


class KillingFiles(FailingFiles):
    """The process dies before the Nth operation."""

    def check(self, what: str, path: str) -> None:
        self.calls += self.armed
        if self.armed and self.calls == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)


def opened(path: Path, files: FailingFiles | None = None) -> klog.LogManager:
    return klog.open([path / "a", path / "b"], create=True, clock=ManualClock(NOW), files=files)


def killed(path: Path, nth: int, work: Work) -> bool:
    """Run the work in a child until its Nth operation. Returns whether it was killed there."""
    pid = os.fork()
    if pid == 0:
        try:
            files = KillingFiles(nth)
            files.armed = False
            logs = opened(path, files)
            logs.create_topic("kept", partitions=2)
            logs.create_topic("t", partitions=3, config={"segment.bytes": 200})
            for log in logs.logs():
                for number in range(RECORDS):
                    log.append([(b"k", b"%d" % number)])
            files.armed = True
            work(logs, path)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), "the work failed"
    return status == signal.SIGKILL


def each_kill(tmp_path: Path, work: Work) -> Iterator[tuple[Path, bool]]:
    """Yields (directory, whether the work was killed) for every operation of the work, up to the run that succeeds."""
    for nth in range(1, 1000):
        path = tmp_path / str(nth)
        was_killed = killed(path, nth, work)
        yield path, was_killed
        if not was_killed:
            assert nth > 8
            return
    raise AssertionError("the work never ended")


def values(log: klog.Log) -> list[int]:
    return [int(record.value or b"-1") for record in log.read()]


def check_whole(logs: klog.LogManager, topics: dict[str, int]) -> None:
    """Check that every topic has all its partitions and records, that each partition exists once, and that there is no
    leftover of unfinished work."""
    assert {name: len(partitions) for name, partitions in logs.topics().items()} == topics
    for log in logs.logs():
        if log.topic != "new":
            assert values(log)[:RECORDS] == list(range(RECORDS))
        log.append([(b"k", b"%d" % RECORDS)])
    for path in logs.paths:
        stored = json.loads(Path(path, "klog-topics.json").read_text())["topics"]
        assert not any("state" in entry for entry in stored.values())


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_killed_creation_is_whole_or_undone(tmp_path: Path, again: bool) -> None:
    def create(logs: klog.LogManager, _: Path) -> None:
        logs.create_topic("new", partitions=3)

    for path, was_killed in each_kill(tmp_path, create):
        for _ in range(1 + again):
            with opened(path) as logs:
                there = "new" in logs.topics()
                assert there or was_killed
                check_whole(logs, {"kept": 2, "t": 3} | ({"new": 3} if there else {}))
                if not there:
                    assert not list(path.glob("*/new-*"))
                    logs.create_topic("new", partitions=3)


def test_a_killed_deletion_is_finished(tmp_path: Path) -> None:
    def delete(logs: klog.LogManager, _: Path) -> None:
        logs.delete_topic("t")

    for path, was_killed in each_kill(tmp_path, delete):
        with opened(path) as logs:
            there = "t" in logs.topics()
            assert was_killed or not there
            check_whole(logs, {"kept": 2} | ({"t": 3} if there else {}))
            if not there:
                assert all(name.name.endswith("-delete") for name in path.glob("*/t-*"))
                logs.create_topic("t")


@pytest.mark.deep
def test_a_killed_move_leaves_the_partition_in_one_place(tmp_path: Path) -> None:
    def move(logs: klog.LogManager, path: Path) -> None:
        source = Path(logs.log("t", 1).path).parent
        logs.move("t", 1, path / ("b" if source.name == "a" else "a"))

    places = set()
    for path, _ in each_kill(tmp_path, move):
        with opened(path) as logs:
            live = list(path.glob("*/t-1"))
            assert len(live) == 1
            places.add(live[0].parent.name)
            assert not list(path.glob("*/*-future"))
            check_whole(logs, {"kept": 2, "t": 3})
    assert places == {"a", "b"}
