"""Plans of Spark reads while staged files are committed: a plan has all of a commit, or none of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.log.staged import writers
from klog.log.staged.writing import StagedWriter
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import commit_staged
from klog.spark import survey
from klog.spark.opening import Logs
from klog.spark.options import parse
from klog.spark.rows import full_schema
from klog.spark.stream import KlogStreamReader
from tests.support.failing_files import FailingFiles

OLD, NEW = {0: 3, 1: 3, 2: 3}, {0: 8, 1: 8, 2: 8}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with klog.open(path, create=True) as logs:
        logs.create_topic("t", partitions=3)
        for partition in range(3):
            logs.log("t", partition).append([(b"k", b"old")] * 3)
    return path


class Stop(BaseException):
    """Stands for the end of the process."""


class StopsAt(FailingFiles):
    """Ends the process before it reads the staged file of this partition to append it."""

    def __init__(self, root: Path, partition: int) -> None:
        super().__init__(armed=False)
        self.root, self.name = root, f"t-{partition}/.klog-staging-"

    def open(self, path: str, *args: Any, **options: Any) -> Any:
        if self.name in path and list(self.root.glob("klog-commit-*")):
            raise Stop
        return super().open(path, *args, **options)


def staged(root: Path) -> StagedJob:
    writer = StagedWriter(str(root), "j", "0-0", writers.driver())
    for partition in range(3):
        writer.append("t", partition, [(b"k", b"new")] * 5, klog.LogConfig())
    return StagedJob("j", writer.finish(), {"t": TopicPlan(3)})


def half(root: Path, job: StagedJob) -> None:
    with pytest.raises(Stop):
        commit_staged(str(root), job, files=StopsAt(root, 1))


def whole(root: Path, job: StagedJob) -> None:
    commit_staged(str(root), job)


def planned(root: Path) -> dict[int, int]:
    bins = survey.plan_partitions(parse({"path": str(root), "subscribe": "t"}))
    return {part.partition: part.end_offset for ranges in bins for part in ranges}


def latest(root: Path) -> dict[int, int]:
    reader = KlogStreamReader(parse({"path": str(root), "subscribe": "t"}), full_schema())
    return {int(number): end for number, end in reader.latestOffset()["t"].items()}


@pytest.mark.parametrize("ends", [planned, latest])
@pytest.mark.parametrize(("commit", "expected"), [(half, OLD), (whole, NEW)])
@pytest.mark.parametrize("moment", ["listed", "opened", "one end read"])
def test_a_plan_has_all_of_a_commit_or_none(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: Callable[[Path], dict[int, int]],
    commit: Callable[[Path, StagedJob], None],
    expected: dict[int, int],
    moment: str,
) -> None:
    """The commit runs after the partitions were listed, after the logs were opened, or between two of their ends."""
    jobs = [staged(root)]
    end_offset = survey.end_offset

    def after_opening(*args: Any) -> Any:
        result = Logs(*args)
        if moment == "opened":
            assert len([*result.values()]) == 3
        if moment != "one end read":
            commit(root, jobs.pop())
        return result

    def after_an_end(*args: Any) -> Any:
        result = end_offset(*args)
        if jobs:
            commit(root, jobs.pop())
        return result

    monkeypatch.setattr(survey, "Logs", after_opening)
    monkeypatch.setattr(survey, "end_offset", after_an_end)
    monkeypatch.setattr("klog.spark.stream.end_offset", after_an_end, raising=False)
    assert ends(root) == expected
    assert not jobs


@pytest.mark.parametrize("ends", [planned, latest])
def test_a_plan_while_an_interrupted_commit_is_completed(
    root: Path, monkeypatch: pytest.MonkeyPatch, ends: Callable[[Path], dict[int, int]]
) -> None:
    half(root, staged(root))
    log = klog.LogManager.log

    def ends_after_the_first(self: klog.LogManager, topic: str, partition: int = 0) -> klog.Log:
        found = log(self, topic, partition)
        if self.read_only and partition == 0:
            klog.open(root).close()
        return found

    monkeypatch.setattr(klog.LogManager, "log", ends_after_the_first)
    assert ends(root) == NEW
