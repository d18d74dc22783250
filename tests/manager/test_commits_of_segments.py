"""A commit of a large staged file makes it a segment of the log, without writing its bytes again."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import LogFile
from klog.errors import (
    UnexplainedLogEnd,
)
from klog.inspect.verify import verify
from klog.manager.commits import StagedJob, TopicPlan
from klog.record import decode as batches_of
from klog.record import encode
from tests.crash.staged import Stop
from tests.manager.staged_jobs import commit, interrupt, job, log_dir_with_a_topic, stage, staging, values
from tests.support.crash_files import CrashFiles
from tests.support.failing_files import FailingFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return log_dir_with_a_topic(tmp_path / "data")


SMALL = {"segment.bytes": 16 << 10, "max.message.bytes": 5000, "index.interval.bytes": 4096}
LARGE = [
    b"%04d" % n + os.urandom(1000) for n in range(10)
]  # a file with these records exceeds half of SMALL's segment.bytes


@pytest.fixture
def small(root: Path) -> Path:
    """The log.dir, with a topic of small segments, of leader epoch 5."""
    with klog.open(root) as logs:
        logs.create_topic("s", config=SMALL)
        logs.log("s").append_batches(encode([(b"k", b"old")]), leader_epoch=5)
    return root


def stage_large(root: Path, *tasks: int) -> tuple[StagedJob, list[int]]:
    """A job of a large file for each task, and the inode numbers of the files."""
    files = [
        file for task in tasks for file in stage(root, "a", {("s", 0): LARGE}, task=task, config=klog.LogConfig(SMALL))
    ]
    inodes = [os.stat(root / "s-0" / ".klog-staging-a" / file.name).st_ino for file in files]
    return job("a", files, s=TopicPlan(1)), inodes


def logs_of(root: Path) -> dict[int, int]:
    """The inode number of each segment of the topic, by base offset."""
    return {int(path.stem): path.stat().st_ino for path in sorted((root / "s-0").glob("*.log"))}


def check_large(root: Path, files: int) -> None:
    """Check that the log has the old record and the records of these files, with correct offsets, epoch and indexes."""
    assert values(root, "s", read_only=False) == [b"old", *LARGE * files]
    with klog.open(root, read_only=True) as logs:
        log = logs.log("s")
        assert [record.offset for record in log.read()] == list(range(1 + 10 * files))
        assert {batch.leader_epoch for batch in log.read().batches()} == {5}
        assert log.leader_epochs == [(5, 0)]
        assert [next(iter(log.read(offset))).value for offset in (4, 10)] == [LARGE[3], LARGE[9]]
    assert not verify(root).problems and staging(root) == []


def test_a_large_file_becomes_a_segment_and_is_not_written_again(small: Path) -> None:
    staged, inodes = stage_large(small, 0, 1)
    assert commit(small, staged) == {"s": {0: (1, 20)}}
    segments = logs_of(small)
    assert [segments[1], segments[11]] == inodes
    check_large(small, 2)
    with klog.open(small) as logs:
        logs.log("s").append([(b"k", b"after")])
    assert values(small, "s")[-1] == b"after" and not verify(small).problems


def test_the_segment_before_a_large_file_is_on_disk_with_its_indexes(small: Path) -> None:
    """F1: the recovery point passes it, so that no load rebuilds them."""
    staged, _ = stage_large(small, 0, 1)
    files = CrashFiles()
    files.keep(small)
    commit(small, staged, files)
    closed = [small / "s-0" / f"{1:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    assert [path.name for path in closed if not files.is_synced(str(path))] == []


def test_a_large_file_becomes_the_first_segment_of_a_log(small: Path) -> None:
    files = stage(small, "a", {("made", 0): LARGE}, config=klog.LogConfig(SMALL))
    inode = os.stat(small / "made-0" / ".klog-staging-a" / "0-0").st_ino
    commit(small, job("a", files, made=TopicPlan(1, config=SMALL, is_new=True)))
    assert os.stat(small / "made-0" / f"{0:020d}.log").st_ino == inode
    assert values(small, "made", read_only=False) == LARGE and not verify(small).problems


def test_a_large_file_after_an_unclean_stop_raises_the_recovery_point_over_synced_segments_only(small: Path) -> None:
    """F1: Kafka rolls before the closed segment is on disk."""

    class Syncs(FailingFiles):
        def __init__(self) -> None:
            super().__init__(armed=False)
            self.synced: set[str] = set()

        def fsync(self, file: LogFile) -> None:
            super().fsync(file)
            self.synced.add(os.path.basename(file.path))

        def fdatasync(self, file: LogFile) -> None:
            super().fdatasync(file)
            self.synced.add(os.path.basename(file.path))

    with klog.open(small) as logs:
        logs.log("s").roll()
    staged, _ = stage_large(small, 0)
    interrupt(small, staged)
    (small / "recovery-point-offset-checkpoint").unlink()
    (small / ".kafka_cleanshutdown").unlink(missing_ok=True)
    files = Syncs()
    with klog.open(small, files=files) as logs:
        assert logs.log("s").recovery_point == 11
        assert {f"{base:020d}.log" for base in (0, 1)} <= files.synced
    check_large(small, 1)


@pytest.mark.parametrize(
    "config", [{"segment.bytes": 1 << 20}, {"message.timestamp.type": "LogAppendTime"}, {"segment.index.bytes": 12}],
    ids=["small", "stamped", "index"],
)  # fmt: skip
def test_a_file_that_cannot_be_a_segment_is_appended(root: Path, config: dict[str, Any]) -> None:
    with klog.open(root) as logs:
        logs.create_topic("s", config={**SMALL, **config})
    staged, inodes = stage_large(root, 0)
    commit(root, staged)
    assert not set(inodes) & set(logs_of(root).values())
    assert values(root, "s", read_only=False) == LARGE and not verify(root).problems


@pytest.mark.parametrize("how", ["some", "torn"])
def test_a_start_goes_on_with_a_file_that_has_some_of_its_offsets(small: Path, how: str) -> None:
    staged, inodes = stage_large(small, 0, 1)
    interrupt(small, staged)
    path = small / "s-0" / ".klog-staging-a" / "0-0"
    data = bytearray(path.read_bytes())
    second = next(batches_of(bytes(data))).size
    data[0:8] = (1).to_bytes(8)
    data[12:16] = (5).to_bytes(4)
    if how == "torn":
        data[second : second + 8] = bytes.fromhex("0000ff0000000001")
    path.write_bytes(data)
    check_large(small, 2)
    assert logs_of(small)[1] == inodes[0]


def test_a_start_finds_a_file_that_is_a_segment_already(small: Path) -> None:
    class Renamed(FailingFiles):
        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            if source.endswith("0-0"):
                raise Stop

    staged, inodes = stage_large(small, 0, 1)
    with pytest.raises(Stop):
        commit(small, staged, Renamed(armed=False))
    assert values(small, "s") == [b"old"]
    check_large(small, 2)
    assert [logs_of(small)[1], logs_of(small)[11]] == inodes


def test_a_start_refuses_a_segment_that_is_not_the_file(small: Path) -> None:
    staged, _ = stage_large(small, 0)
    interrupt(small, staged)
    shutil.rmtree(small / "s-0" / ".klog-staging-a")
    (small / "klog-commit-a.json").rename(small / "aside")
    with klog.open(small) as logs:
        logs.log("s").roll(0)
        logs.log("s").append([(b"k", b"other")] * 10)
    (small / "aside").rename(small / "klog-commit-a.json")
    with pytest.raises(UnexplainedLogEnd, match="holds other records there"):
        klog.open(small)


@pytest.mark.parametrize("renames", [False, True])
def test_an_error_while_a_file_becomes_a_segment_is_left_to_the_next_start(small: Path, renames: bool) -> None:
    class Fails(FailingFiles):
        def rename(self, source: str, target: str) -> None:
            if not source.endswith("0-0"):
                return super().rename(source, target)
            if renames:
                super().rename(source, target)
            raise OSError(errno.EIO, "failed", source)

    staged, _ = stage_large(small, 0)
    with pytest.raises(OSError, match="failed"):
        commit(small, staged, Fails(armed=False))
    assert values(small, "s") == [b"old"]
    check_large(small, 1)
