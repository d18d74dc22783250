"""Commits of staged files: the records that they append, what readers see during a commit, the jobs that they refuse,
and the work that is left for the next start."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import Files, LogFile, RealFiles
from klog.errors import (
    AlreadyLocked,
    CorruptBatch,
    CorruptCheckpoint,
    NewerFormat,
    PolicyViolation,
    RecordTooLarge,
    StagingLost,
    TopicExists,
    UnexplainedLogEnd,
    UnknownTopicOrPartition,
)
from klog.inspect.listing import ls
from klog.inspect.verify import verify
from klog.log.staged import layout, streams, writers
from klog.log.staged.manifest import AssignedFile, Manifest, Part, StagedFile, decode
from klog.log.staged.writers import Driver, Machine, this_machine
from klog.log.staged.writing import StagedWriter
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import abort_staged, commit_staged
from klog.record import decode as batches_of
from klog.record import encode, renumber
from tests.crash.staged import Stop, StopsAtManifest, ended
from tests.support.crash_files import CrashFiles
from tests.support.failing_files import FailingFiles
from tests.support.own_json import unchecked
from tests.support.patience import PATIENCE
from tests.support.powerless import powerless
from tests.support.recorded_files import RecordedFiles

NOW = 1_700_000_000_000
DEFAULT = klog.LogConfig()
ELSEWHERE = Machine("another", "boot", "pids")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log.dir with one topic of two partitions, three records in the first."""
    path = tmp_path / "data"
    with klog.open(path, create=True, clock=ManualClock(NOW)) as logs:
        logs.create_topic("t", partitions=2)
        logs.log("t").append([(b"k", b"old-%d" % n) for n in range(3)])
    return path


def stage(
    root: Path,
    token: str,
    records: dict[tuple[str, int], list[bytes]],
    *,
    task: int = 0,
    attempt: int = 0,
    config: klog.LogConfig = DEFAULT,
    process: Driver | None = None,
) -> list[StagedFile]:
    writer = StagedWriter(
        str(root), token, f"{task}-{attempt}", process or writers.driver(), clock=ManualClock(NOW + 1)
    )
    for (topic, partition), values in records.items():
        writer.append(topic, partition, [(b"k", value) for value in values], config, "lz4")
    return writer.finish()


def commit(root: Path, job: StagedJob, files: Files | None = None) -> dict[str, dict[int, tuple[int, int]]] | None:
    return commit_staged(str(root), job, clock=ManualClock(NOW + 2), files=files)


def job(token: str, files: list[StagedFile], **topics: TopicPlan) -> StagedJob:
    return StagedJob(token, files, topics or {"t": TopicPlan(2)})


def values(root: Path, topic: str = "t", partition: int = 0, *, read_only: bool = True) -> list[bytes]:
    with klog.open(root, read_only=read_only) as logs:
        return [record.value or b"" for record in logs.log(topic, partition).read()]


def staging(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*klog-*") if path.name != "klog-topics.json")


def interrupt(root: Path, job: StagedJob, state: str = "committed") -> Path:
    """Commit, and end the process after the manifest is written. Returns the path of the manifest."""
    with pytest.raises(Stop):
        commit(root, job, StopsAtManifest(state))
    return Path(layout.commit_path(str(root), job.token))


# ---- what a commit appends -------------------------------------------------------------------------------------------


def test_files_are_appended_in_the_order_of_their_tasks(root: Path) -> None:
    files = []
    for task in (10, 2, 0):
        files += stage(root, "a", {("t", 0): [b"%d-%d" % (task, n) for n in range(3)], ("t", 1): [b"x"]}, task=task)
    assert commit(root, job("a", files)) == {"t": {0: (3, 11), 1: (0, 2)}}
    old = [b"old-0", b"old-1", b"old-2"]
    assert values(root) == old + [b"%d-%d" % (task, n) for task in (0, 2, 10) for n in range(3)]
    assert staging(root) == []
    assert not verify(root).problems


def test_batches_that_are_larger_than_a_piece(root: Path) -> None:
    config = klog.LogConfig({"max.message.bytes": 8 << 20})
    large = [os.urandom(3 << 20), b"small", os.urandom(2 << 20)]
    writer = StagedWriter(str(root), "a", "0-0", writers.driver())
    writer.append("t", 1, [(None, value) for value in large], config)
    commit(root, job("a", writer.finish()))
    assert values(root, partition=1) == large


def test_a_topic_is_created_with_its_records(root: Path) -> None:
    files = stage(root, "a", {("new", 2): [b"x"], ("t", 1): [b"y"]})
    with klog.open(root, read_only=True) as logs:
        assert logs.topics() == {"t": [0, 1]}
        with pytest.raises(UnknownTopicOrPartition):
            logs.log("new", 2)
    assert [topic["topic"] for topic in ls(root)["topics"]] == ["t"]
    assert not verify(root).problems
    plan = TopicPlan(3, config={"retention.ms": -1}, is_new=True)
    commit(root, job("a", files, new=plan, t=TopicPlan(2)))
    with klog.open(root, read_only=True) as logs:
        assert logs.topics() == {"new": [0, 1, 2], "t": [0, 1]}
        assert logs.topic_config("new").retention_ms == -1
        assert len({logs.log("new", partition).topic_id for partition in range(3)}) == 1
    assert values(root, "new", 2) == [b"x"]


def test_a_topic_with_log_append_time_has_that_of_the_commit(root: Path) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    with klog.open(root) as logs:
        logs.create_topic("stamped", config=config)
    files = stage(root, "a", {("stamped", 0): [b"x", b"y"]}, config=klog.LogConfig(config))
    commit(root, job("a", files, stamped=TopicPlan(1)))
    with klog.open(root, read_only=True) as logs:
        records = list(logs.log("stamped").read())
    assert [(record.timestamp, record.timestamp_type.name) for record in records] == [(NOW + 2, "LOG_APPEND_TIME")] * 2
    assert not verify(root).problems


def test_overwriting_deletes_every_partition_of_the_topic(root: Path) -> None:
    files = stage(root, "a", {("t", 1): [b"new"]})
    with klog.open(root) as logs:
        logs.log("t", 1).append([(b"k", b"old")])
    commit(root, StagedJob("a", files, {"t": TopicPlan(2)}, frozenset({"t"})))
    for read_only in (True, False, True):
        assert (values(root, read_only=read_only), values(root, partition=1)) == ([], [b"new"])
    with klog.open(root, read_only=True) as logs:
        assert [log.log_start_offset for log in logs.logs()] == [3, 1]


def test_a_compacted_topic_is_not_overwritten(root: Path) -> None:
    with klog.open(root) as logs:
        logs.create_topic("latest", config={"cleanup.policy": "compact"})
    with pytest.raises(PolicyViolation, match="cleanup.policy=compact"):
        commit(root, StagedJob("a", [], {"latest": TopicPlan(1)}, frozenset({"latest"})))


def test_records_are_checked_when_they_are_staged(root: Path) -> None:
    with pytest.raises(RecordTooLarge):
        stage(root, "a", {("t", 0): [bytes(100)]}, config=klog.LogConfig({"max.message.bytes": 80}))


# ---- files that become segments --------------------------------------------------------------------------------------

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


# ---- readers beside a commit -----------------------------------------------------------------------------------------


def test_readers_see_none_of_a_commit_until_it_is_applied(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"new"], ("t", 1): [b"new"], ("made", 0): [b"new"]})
    plans = {"t": TopicPlan(2), "made": TopicPlan(1, is_new=True)}
    manifest = interrupt(root, StagedJob("a", files, plans, frozenset({"t"})))
    with klog.Log.open(root / "t-0") as log:  # finishes its partition
        assert log.log_end_offset == 4
    assert manifest.exists()
    with klog.open(root, read_only=True) as reader:
        assert reader.topics() == {"t": [0, 1]}
        assert [log.log_end_offset for log in reader.logs()] == [3, 0]
        with klog.Log.open(root / "t-0", read_only=True) as log:
            assert (log.log_start_offset, log.log_end_offset) == (0, 3)
        klog.open(root).close()  # finishes all of it
        assert [(log.log_start_offset, log.log_end_offset) for log in reader.logs()] == [(0, 1), (3, 4), (0, 1)]
    assert staging(root) == []


def test_readers_see_all_of_a_commit_that_is_applied(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"new"]})
    manifest = interrupt(root, StagedJob("a", files, {"t": TopicPlan(2)}, frozenset({"t"})), "applied")
    assert values(root) == [b"new"]
    with klog.Log.open(root / "t-0", read_only=True) as log:
        assert (log.log_start_offset, log.log_end_offset) == (3, 4)
    with klog.Log.open(root / "t-0") as log:
        assert log.log_start_offset == 3
    assert manifest.exists() and values(root, read_only=False) == [b"new"] and not manifest.exists()


def test_a_reader_lists_beside_staged_files_while_a_partition_goes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(root, "a", {("t", 0): [b"new"]})
    listdir = os.listdir

    def goes(path: str) -> list[str]:
        if str(path).endswith("t-1") and os.path.exists(path):
            os.rename(path, f"{path}.{'0' * 32}-delete")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", goes)
    with klog.open(root, read_only=True) as reader:
        assert 0 in reader.topics()["t"]
    assert not layout.holds_only_staging(str(root / "t-1"))


@pytest.mark.parametrize("ends", ["applied", "gone", "gone, and another begins"])
def test_a_reader_that_was_held_back_follows_the_same_log_when_the_commit_ends(root: Path, ends: str) -> None:
    config = klog.LogConfig({"max.message.bytes": 5000, "segment.bytes": 14 << 10})
    many = [os.urandom(1000) for _ in range(40)]
    interrupt(root, job("a", stage(root, "a", {("t", 0): many}, config=config)))
    with klog.Log.open(root / "t-0", config=config) as log:  # finishes its partition
        assert log.log_end_offset == 43 and len(log.segments) > 2
    with klog.open(root, read_only=True) as reader, klog.Log.open(root / "t-0", read_only=True) as lone:
        log = reader.log("t")
        later = iter(log.read())
        assert next(later).offset == 0
        snapshot = lone.snapshot()
        assert log.log_end_offset == lone.log_end_offset == 3
        lone.refresh()
        assert lone.log_end_offset == 3
        if ends == "applied":
            with pytest.raises(Stop):
                klog.open(root, files=StopsAtManifest("applied"))
        else:
            klog.open(root).close()
        end = 43
        if "another" in ends:
            interrupt(root, job("b", stage(root, "b", {("t", 0): [b"more"]}, config=config)))
            with klog.Log.open(root / "t-0") as writer:
                assert writer.log_end_offset == 44
        assert reader.log("t") is log
        for each in (log, lone):
            assert [record.value for record in each.read()][3:] == many and each.log_end_offset == end
            assert each.high_watermark == end
            assert [epoch for epoch, _ in each.leader_epochs] == [0]
        klog.open(root).close()
        with klog.open(root) as logs:
            logs.log("t").append([(b"k", b"after")])
        assert [record.value for record in lone.read()][-1] == b"after"
        assert sum(1 for _ in later) == 2  # the read has the end of its beginning
        assert snapshot.log_end_offset == 3 and len(list(snapshot.read())) == 3
        snapshot.close()


def test_a_partition_is_read_in_a_log_dir_that_may_only_be_entered(root: Path) -> None:
    """The names of its own staging directories show which manifests concern it."""

    def end() -> str:
        code = "import klog, sys\nwith klog.Log.open(sys.argv[1], read_only=True) as log: print(log.log_end_offset)"
        child = subprocess.run(
            [sys.executable, "-c", code, root / "t-0"], capture_output=True, text=True, preexec_fn=powerless,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        return child.stdout or child.stderr

    interrupt(root, job("a", stage(root, "a", {("t", 0): [b"new"]})))
    with klog.Log.open(root / "t-0") as log:  # finishes its partition
        assert log.log_end_offset == 4
    root.chmod(0o111)
    try:
        assert end() == "3\n"
        root.chmod(0o755)
        klog.open(root).close()  # finishes all of it
        root.chmod(0o111)
        assert end() == "4\n"
    finally:
        root.chmod(0o755)


def test_a_half_applied_partition_goes_on_where_it_stopped(root: Path) -> None:
    many = [b"%d" % n * 20_000 for n in range(40)]  # several batches
    config = klog.LogConfig({"max.message.bytes": 50_000})
    files = stage(root, "a", {("t", 0): many}, config=config)
    manifest = interrupt(root, job("a", files))
    data = bytearray((root / "t-0" / ".klog-staging-a" / "0-0").read_bytes())
    first = next(batches_of(bytes(data))).size
    renumber(data, 0, 3, 0)
    with open(
        root / "t-0" / f"{0:020d}.log", "ab"
    ) as file:  # as a killed start leaves it: whole batches, or a torn one
        file.write(data[: first + 30])
    assert values(root, read_only=False)[3:] == many
    assert not manifest.exists() and not verify(root).problems


def test_a_partition_that_another_writer_went_on_with_after_finishing_it(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"new"], ("t", 1): [b"new"]})
    interrupt(root, job("a", files))
    with klog.Log.open(root / "t-0") as log:  # finishes its partition
        log.append_batches(encode([(b"k", b"later")]), leader_epoch=7)
    assert values(root, read_only=False)[3:] == [b"new", b"later"]
    assert values(root, partition=1) == [b"new"] and staging(root) == []


def test_an_attempt_that_stages_during_the_commit(root: Path) -> None:
    class Late(FailingFiles):
        def unlink(self, path: str) -> None:
            if path.endswith("0-0"):
                stage(root, "a", {("t", 0): [b"late"]}, attempt=1)
            super().unlink(path)

    files = stage(root, "a", {("t", 0): [b"x"]})
    assert commit(root, job("a", files), Late(armed=False)) == {"t": {0: (3, 3)}}
    assert values(root)[3:] == [b"x"] and staging(root) == []


@pytest.mark.parametrize("name", ["0-0", "klog-staging-a.json", "klog-commit-a.json"])
def test_a_commit_has_succeeded_although_its_files_cannot_be_removed(root: Path, name: str) -> None:
    class Stays(FailingFiles):
        def unlink(self, path: str) -> None:
            if path.endswith(name):
                raise OSError(errno.EACCES, "refused", path)
            super().unlink(path)

    files = stage(root, "a", {("t", 0): [b"x"]})
    assert commit(root, job("a", files), Stays(armed=False)) == {"t": {0: (3, 3)}}
    assert values(root)[3:] == [b"x"]
    assert values(root, read_only=False)[3:] == [b"x"] and staging(root) == []


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["other records", "fewer records"])
def test_a_log_end_that_the_manifest_does_not_explain(root: Path, how: str) -> None:
    manifest = interrupt(root, job("a", stage(root, "a", {("t", 0): [b"x", b"y"]})))
    aside = manifest.rename(root / "aside")
    with klog.Log.open(root / "t-0") as log:
        if how == "other records":
            log.append([(b"k", b"another writer's")])
        else:
            log.truncate_to(2)
    aside.rename(manifest)
    before = (root / "t-0" / f"{0:020d}.log").read_bytes()
    for _ in range(2):
        with pytest.raises(
            UnexplainedLogEnd, match=rf"t-0 ends at {4 if how == 'other records' else 0}.*{manifest}.* 3 to 4"
        ):
            klog.open(root)
        with pytest.raises(UnexplainedLogEnd):
            klog.Log.open(root / "t-0")
    assert (root / "t-0" / f"{0:020d}.log").read_bytes() == before
    manifest.unlink()
    klog.open(root).close()


def test_a_staged_file_that_changed_before_the_commit(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"x"]})
    path = root / "t-0" / ".klog-staging-a" / "0-0"
    good = path.read_bytes()
    for bad, why in ((good[:-1], "expected, found"), (good[:-1] + b"?", "checksum"), (None, "is gone")):
        path.write_bytes(bad) if bad is not None else path.unlink()
        with pytest.raises(StagingLost, match=why):
            commit(root, job("a", files))
        assert not list(root.glob("klog-commit-*"))
    assert len(values(root)) == 3


def test_a_staged_file_that_changed_after_the_commit(root: Path) -> None:
    interrupt(root, job("a", stage(root, "a", {("t", 0): [b"x"]})))
    path = root / "t-0" / ".klog-staging-a" / "0-0"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"?")
    with pytest.raises(CorruptBatch, match=r"checksum.*0-0, position 0"):
        klog.open(root)
    path.unlink()
    with pytest.raises(UnexplainedLogEnd, match="is gone"):
        klog.open(root)
    path.write_bytes(good)
    assert values(root, read_only=False)[3:] == [b"x"]


def test_a_name_is_used_once(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"first"]})
    with pytest.raises(FileExistsError, match="0-0"):
        stage(root, "a", {("t", 0): [b"other"]})
    commit(root, job("a", files))
    assert values(root)[3:] == [b"first"]


def test_a_staged_file_with_other_valid_batches_after_the_commit(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"x"], ("t", 1): [b"x"]})
    interrupt(root, job("a", files))
    stage(root, "other", {("t", 1): [b"y"]})
    path = root / "t-1" / ".klog-staging-a" / "0-0"
    good = path.read_bytes()
    path.write_bytes((root / "t-1" / ".klog-staging-other" / "0-0").read_bytes())
    for opened in (root, root / "t-1"):
        with pytest.raises(CorruptBatch, match=r"has changed.*0-0"):
            klog.open(opened) if opened == root else klog.Log.open(opened)
        assert not (root / "t-1" / f"{0:020d}.log").stat().st_size
    path.write_bytes(good)
    assert values(root, read_only=False)[3:] == values(root, partition=1) == [b"x"]


def test_no_partition_is_appended_to_when_one_cannot_be(root: Path) -> None:
    manifest = interrupt(root, job("a", stage(root, "a", {("t", 0): [b"x"], ("t", 1): [b"x"]})))
    aside = manifest.rename(root / "aside")
    with klog.Log.open(root / "t-1") as log:
        log.append([(b"k", b"another writer's")])
    aside.rename(manifest)
    before = (root / "t-0" / f"{0:020d}.log").read_bytes()
    with pytest.raises(UnexplainedLogEnd, match="t-1 ends at 1"):
        klog.open(root)
    assert (root / "t-0" / f"{0:020d}.log").read_bytes() == before
    manifest.unlink()
    assert len(values(root, read_only=False)) == 3


def test_log_open_does_not_make_a_partition_of_staged_files(root: Path) -> None:
    files = stage(root, "a", {("new", 0): [b"x"]})
    with pytest.raises(UnknownTopicOrPartition, match="staged files"):
        klog.Log.open(root / "new-0")
    assert commit(root, job("a", files, new=TopicPlan(1, is_new=True))) == {"new": {0: (0, 0)}}


@pytest.mark.parametrize("interrupted", [False, True])
def test_committed_records_have_the_epoch_of_the_leader(root: Path, interrupted: bool) -> None:
    with klog.open(root) as logs:
        logs.log("t").begin_leader_epoch(4)
    files = stage(root, "a", {("t", 0): [b"x"]})
    if interrupted:
        interrupt(root, job("a", files))
    else:
        commit(root, job("a", files))
    with klog.open(root) as logs:
        assert [record.leader_epoch for record in logs.log("t").read()] == [0, 0, 0, 4]


def test_a_commit_creates_a_topic_where_another_program_has_removed_one(root: Path) -> None:
    """The checkpoints of the old one do not count: its log start is above the offsets of the commit."""
    with klog.open(root) as logs:
        logs.create_topic("new")
        logs.log("new").append([(None, b"old")] * 5)
        logs.log("new").delete_records(3)
    shutil.rmtree(root / "new-0")
    (root / "klog-topics.json").unlink()
    files = stage(root, "a", {("new", 0): [b"x"]})
    assert commit(root, job("a", files, new=TopicPlan(1, is_new=True))) == {"new": {0: (0, 0)}}
    assert values(root, "new") == [b"x"]


def test_topics_that_changed_while_records_were_staged(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"x"], ("late", 0): [b"x"]})
    plans = {"t": TopicPlan(2, uuid.uuid4()), "late": TopicPlan(1, is_new=True)}
    with pytest.raises(StagingLost, match="'t' was created again"):
        commit(root, job("a", files, **plans))
    plans["t"] = TopicPlan(2)
    with klog.open(root) as logs:
        logs.create_topic("late", partitions=3)
    with pytest.raises(TopicExists, match="'late' was created meanwhile with 3"):
        commit(root, job("a", files, **plans))
    with klog.open(root) as logs:
        logs.delete_topic("late")
        logs.delete_topic("t")
    with pytest.raises(StagingLost, match="'t' was deleted"):
        commit(root, job("a", files, **plans))


def test_the_holder_of_the_lock_is_named(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"x"]})
    with klog.open(root), pytest.raises(AlreadyLocked, match=f"process {os.getpid()}"):
        commit(root, job("a", files))
    assert commit(root, job("a", files)) == {"t": {0: (3, 3)}}


def test_a_commit_waits_for_the_commit_of_another_job(root: Path) -> None:
    """Two queries may write to one log.dir: each holds its lock for a moment."""
    files = stage(root, "a", {("t", 0): [b"x"]})
    other = klog.open(root)

    class Clock(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            other.close()

    committed = commit_staged(str(root), job("a", files), clock=Clock(NOW + 2))
    assert committed == {"t": {0: (3, 3)}} and values(root)[3:] == [b"x"]


# ---- manifests as bytes ----------------------------------------------------------------------------------------------


def a_manifest() -> Manifest:
    part = Part("t", 0, 3, (AssignedFile("0-0", 3, 2, 80, 7), AssignedFile("1-0", 5, 1, 70, 9)), True, NOW)
    return Manifest("a", (part, Part("t", 1, 0, ())), {}, ("q", 4))


def test_a_manifest_round_trips() -> None:
    for manifest in (a_manifest(), a_manifest().applied()):
        assert decode(manifest.encode(), "/data/klog-commit-a.json") == manifest


CONFIGS: list[dict[str, Any]] = [
    {"retention.ms": "abc"},
    {"retention.ms": {"a": 1}},
    {"nope": 1},
    {"cleanup.policy": ["x"]},
]


def hostile() -> Iterator[bytes]:
    good = a_manifest().encode()
    yield from (b"", b"[]", b"{}", b"\xff", b"[" * 100_000, good[:-3], b'{"version": "1"}', b'{"version": true}')
    for path, value in [
        (("token",), "../x"), (("token",), 7), (("token",), "b"), (("state",), "done"), (("topics",), []),
        (("stream",), {"query_id": "../q", "batch_id": 1}), (("stream",), {"query_id": "q", "batch_id": -1}),
        *((("topics",), {"n": {"topic_id": "A" * 21 + "Q", "partitions": 1, "config": config}}) for config in CONFIGS),
        (("topics",), {"a/b": {}}), (("topics",), {"n": {"topic_id": "x", "partitions": 1, "config": {}}}),
        (("partitions", 0, "topic"), "../t"), (("partitions", 0, "partition"), -1), (("partitions", 0, "partition"), 1),
        (("partitions", 0, "base_offset"), 4), (("partitions", 0, "base_offset"), 2**64),
        (("partitions", 0, "next_offset"), 7), (("partitions", 0, "overwrite"), 1),
        (("partitions", 0, "append_time"), -2), (("partitions", 0, "files", 0, "name"), "../../x"),
        (("partitions", 0, "files", 0, "records"), 0), (("partitions", 0, "files", 0, "bytes"), True),
        (("partitions", 0, "files", 1, "base_offset"), 3), (("partitions", 0, "files", 1, "last_offset"), 9),
    ]:  # fmt: skip
        document = unchecked(good)
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        yield json.dumps(document).encode()


@pytest.mark.parametrize("data", list(hostile()))
def test_hostile_bytes_are_a_named_error(root: Path, data: bytes) -> None:
    path = root / "klog-commit-a.json"
    path.write_bytes(data)
    for read in (lambda: klog.open(root), lambda: values(root), lambda: klog.Log.open(root / "t-0", read_only=True)):
        with pytest.raises(CorruptCheckpoint, match="klog-commit-a.json"):
            read()
    path.unlink()
    assert len(values(root, read_only=False)) == 3


def test_every_cut_and_flip_of_a_manifest_is_refused_or_harmless() -> None:
    """Harmless: in the name of the checksum, a file without which is read."""
    manifest, path = a_manifest(), "/data/klog-commit-a.json"
    good = manifest.encode()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x15]) + good[at + 1 :]):
            try:
                found = decode(bad, path)
            except (CorruptCheckpoint, NewerFormat):
                continue
            assert found == manifest, bad


@pytest.mark.parametrize("name", ["klog-commit-a.json", "klog-staging-a.json", "klog-stream-a.json"])
def test_a_newer_version_is_refused_by_name(root: Path, name: str) -> None:
    (root / name).write_text('{"version": 2}')
    if name == "klog-stream-a.json":
        with pytest.raises(NewerFormat, match=name):
            streams.last_batch(str(root), "a")
        return
    with pytest.raises(NewerFormat, match=f"{name} has version 2"):
        klog.open(root)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"version": 1, "process": 7}', b'{"version": 1, "process": {"pid": []}}']
)
def test_hostile_writers_and_streams(root: Path, data: bytes) -> None:
    (root / "klog-staging-a.json").write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="klog-staging-a.json"):
        klog.open(root)
    (root / "klog-stream-q.json").write_bytes(data)
    with pytest.raises(CorruptCheckpoint, match="klog-stream-q.json"):
        streams.last_batch(str(root), "q")


# ---- abort, sweep, streams -------------------------------------------------------------------------------------------


def test_abort_removes_every_attempt_of_its_job_only(root: Path) -> None:
    stage(root, "a", {("t", 0): [b"x"], ("new", 0): [b"x"]})
    stage(root, "a", {("t", 1): [b"x"]}, attempt=1)
    kept = stage(root, "b", {("t", 0): [b"kept"]})
    assert not abort_staged(str(root), "a")
    assert staging(root) == [".klog-staging-b", "klog-staging-b.json"]
    assert not (root / "new-0").exists()
    assert commit(root, job("b", kept)) == {"t": {0: (3, 3)}}


def test_abort_beside_the_holder_of_the_lock_removes_no_partition(root: Path) -> None:
    stage(root, "a", {("t", 0): [b"x"], ("new", 0): [b"x"]}, process=ended())
    (root / "empty-0").mkdir()
    with klog.open(root):
        stage(root, "a", {("t", 0): [b"x"], ("new", 0): [b"x"]}, attempt=1, process=ended())
        (root / "empty-0").mkdir()
        assert not abort_staged(str(root), "a")
        assert (root / "empty-0").exists() and not list(root.rglob(".klog-staging-*"))
    klog.open(root).close()
    assert not list(root.glob("empty-0")) and not list(root.glob("new-0")) and staging(root) == []


@pytest.mark.parametrize("topic", ["new", "other"])
def test_abort_beside_a_creation(root: Path, topic: str) -> None:
    class Aborts(FailingFiles):
        def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
            if path.endswith("partition.metadata"):
                abort_staged(str(root), "a")
            super().replace(path, data, private=private)

    stage(root, "a", {("new", 0): [b"x"]})
    with klog.open(root, files=Aborts(armed=False)) as logs:
        logs.create_topic(topic)
        logs.log(topic).append([(b"k", b"v")])
    assert values(root, topic) == [b"v"]


def test_abort_beside_a_task_that_makes_its_directories(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(root, "a", {("new", 0): [b"x"]})
    made, abort = os.mkdir, threading.Thread(target=abort_staged, args=(str(root), "a"))

    def mkdir(path: str, mode: int = 0o777) -> None:
        if ".klog-staging-b" in path:
            abort.start()
            abort.join(0.3)  # it waits for this task
        made(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", mkdir)
        shutil.rmtree(root / "new-0")
        files = stage(root, "b", {("new", 0): [b"y"]})
    abort.join()
    assert commit(root, job("b", files, new=TopicPlan(1, is_new=True))) == {"new": {0: (0, 0)}}


def test_abort_finishes_what_was_committed(root: Path) -> None:
    interrupt(root, job("a", stage(root, "a", {("t", 0): [b"x"]})))
    assert abort_staged(str(root), "a")
    assert values(root)[3:] == [b"x"] and staging(root) == []


@pytest.mark.parametrize("through", ["klog.open", "Log.open"])
def test_a_start_sweeps_what_jobs_that_have_ended_left(root: Path, through: str) -> None:
    stage(root, "dead", {("t", 0): [b"x"], ("new", 0): [b"x"]}, process=ended())
    alive = stage(root, "alive", {("t", 0): [b"x"]})
    elsewhere = stage(root, "elsewhere", {("t", 0): [b"x"]}, process=Driver(ELSEWHERE, 1, 1))
    (root / "empty-0").mkdir()  # a task was killed between two calls
    if through == "Log.open":
        klog.Log.open(root / "t-0").close()
        assert sorted(path.name for path in (root / "t-0").glob(".klog*")) == [
            ".klog-staging-alive",
            ".klog-staging-elsewhere",
        ]
    with klog.open(root) as logs:
        assert logs.topics() == {"t": [0, 1]}
    assert not (root / "new-0").exists() and not (root / "empty-0").exists()
    assert commit(root, job("alive", alive)) and commit(root, job("elsewhere", elsewhere))
    assert staging(root) == []


def test_a_job_that_changed_nothing_for_a_day_is_over(root: Path) -> None:
    stage(root, "a", {("t", 0): [b"x"]}, process=Driver(ELSEWHERE, 1, 1))
    now = (root / "klog-staging-a.json").stat().st_mtime_ns // 1_000_000
    klog.open(root, clock=ManualClock(now + writers.STALE_MS - 10_000)).close()
    assert staging(root)
    klog.open(root, clock=ManualClock(now + writers.STALE_MS + 10_000)).close()
    assert staging(root) == []


def test_a_job_whose_driver_runs_is_not_over(root: Path) -> None:
    files = stage(root, "a", {("t", 0): [b"x"]})
    now = (root / "klog-staging-a.json").stat().st_mtime_ns // 1_000_000
    klog.open(root, clock=ManualClock(now + 3 * writers.STALE_MS)).close()
    assert commit(root, job("a", files)) == {"t": {0: (3, 3)}}


def test_a_job_whose_driver_was_killed_is_over_before_the_parent_of_the_driver_waits_for_it(root: Path) -> None:
    """A process without a parent is waited for by the first process of the machine or container: late, or never."""
    with subprocess.Popen(["sleep", "600"]) as killed:
        stage(root, "a", {("t", 0): [b"x"], ("t", 1): [b"x"]}, process=writers.driver(killed.pid))
        klog.open(root).close()
        assert len(staging(root)) == 3
        killed.kill()
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        klog.open(root).close()
        assert staging(root) == []


def test_a_process_is_known_by_machine_number_and_start() -> None:
    me = writers.driver()
    assert me is not None and not me.has_ended and me.machine == this_machine()
    assert Driver(me.machine, me.pid, me.start + 1).has_ended
    assert Driver(me.machine._replace(boot="the one before"), me.pid, me.start).has_ended
    for other in (me.machine._replace(pids="another container's"), ELSEWHERE):
        assert not Driver(other, me.pid, me.start + 1).has_ended


def test_a_batch_of_a_stream_is_committed_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    def batch(number: int, value: bytes, attempt: int) -> StagedJob:
        files = stage(root, f"q-{number}", {("t", 0): [value]}, attempt=attempt)
        return StagedJob(f"q-{number}", files, {"t": TopicPlan(2)}, stream=("q", number))

    left = stage(root, "q-5", {("t", 0): [b"never committed"]})
    assert left
    assert commit(root, batch(6, b"first", 0)) == {"t": {0: (3, 3)}}
    assert commit(root, batch(6, b"replay", 1)) is None
    assert "left_out" not in caplog.text
    assert commit(root, batch(5, b"older", 1)) is None
    assert "event=batch_left_out query=q batch=5 last_committed=6" in caplog.text
    interrupt(root, batch(7, b"second", 2))
    assert commit(root, batch(7, b"replay", 3)) is None  # the start finished it
    assert commit(root, batch(8, b"third", 4)) == {"t": {0: (5, 5)}}
    assert values(root)[3:] == [b"first", b"second", b"third"]
    assert staging(root) == ["klog-stream-q.json"]
    assert streams.last_batch(str(root), "q") == 8 and streams.last_batch(str(root), "other") == -1


@pytest.mark.parametrize("committed", [False, True], ids=["earlier", "repeated"])
def test_a_batch_whose_staging_went_without_a_sync_is_forgotten_after_one(root: Path, committed: bool) -> None:
    """A power cut brings a directory back that a killed process has removed: the writer's file must be there, too."""

    def batch(number: int) -> StagedJob:
        return StagedJob(f"q-{number}", stage(root, f"q-{number}", {("t", 0): [b"x"]}), stream=("q", number),
                         topics={"t": TopicPlan(2)})  # fmt: skip

    if committed:
        commit(root, batch(5))
    last = batch(5)
    shutil.rmtree(root / "t-0" / ".klog-staging-q-5")
    files = RecordedFiles()
    commit(root, last if committed else batch(6), files)
    gone = files.calls.index(("unlink", layout.writer_path(str(root), "q-5")))
    assert {("sync", str(root / "t-0")), ("sync", str(root / "t-1"))} <= set(files.calls[:gone])
    assert staging(root) == ["klog-stream-q.json"]


@pytest.mark.parametrize(
    ("remove", "again"),
    [
        (lambda root, files: abort_staged(str(root), "q-5", files=files), ended()),  # its Spark application goes on
        (lambda root, files: klog.open(root, files=files).close(), ended(2)),
    ],
    ids=["abort", "start"],
)
def test_a_batch_that_is_repeated_elsewhere_syncs_what_a_killed_process_has_removed(
    root: Path, remove: Callable[[Path, Files], object], again: Driver
) -> None:
    """A power cut brings the directory back: the writer's file must be there, too."""

    class Killed(RealFiles):
        def fsync_dir(self, path: str) -> None:
            if path == str(root / "t-0"):
                raise Stop
            super().fsync_dir(path)

    stage(root, "q-5", {("t", 0): [b"x"]}, process=ended())
    with pytest.raises(Stop):
        remove(root, Killed())
    files = RecordedFiles()
    writer = StagedWriter(str(root), "q-5", "0-1", again, files=files)
    writer.append("t", 1, [(b"k", b"x")], DEFAULT)
    commit(root, StagedJob("q-5", writer.finish(), {"t": TopicPlan(2)}, stream=("q", 5)), files)
    assert staging(root) == ["klog-stream-q.json"]
    gone = files.calls.index(("unlink", layout.writer_path(str(root), "q-5")))
    assert ("sync", str(root / "t-0")) in files.calls[:gone]


def test_an_abort_needs_no_room_on_the_disk(root: Path) -> None:
    class Full(RealFiles):
        def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
            raise OSError(errno.ENOSPC, "full", path)

    stage(root, "a", {("t", 0): [b"x"]}, process=ended())
    assert not abort_staged(str(root), "a", files=Full())
    assert staging(root) == []


def test_a_start_syncs_each_partition_once_for_all_jobs_that_have_ended(root: Path) -> None:
    for token in "abc":
        stage(root, token, {("t", 0): [b"x"]}, process=ended())
    files = RecordedFiles()
    assert writers.sweep(str(root), os.listdir(root), NOW, files) == ["a", "b", "c"]
    for partition in ("t-0", "t-1"):
        assert files.calls.count(("sync", str(root / partition))) == 1
    assert staging(root) == []


# ---- other operations beside staged files ----------------------------------------------------------------------------


def test_other_work_beside_staged_files(root: Path, tmp_path: Path) -> None:
    """Creation of a topic, cleaning, a move, retention and verify ignore staging directories and do not change them."""
    stage(root, "a", {("t", 0): [b"x"], ("new", 0): [b"x"]})
    with klog.open([root, tmp_path / "other"], create=True) as logs:
        logs.create_topic("new", partitions=2, config={"cleanup.policy": "compact"})
        log = logs.log("new", 0)
        log.append([(b"k", b"1"), (b"k", b"2")])
        log.compact(roll=True)
        assert [record.value for record in log.read()] == [b"2"]
        logs.log("t").apply_retention()
        logs.move("t", 1, tmp_path / "other")
        assert not log.verify().problems
    assert not [problem for problem in verify(root).problems if problem.kind != "leftover"]
    assert (root / "t-0" / ".klog-staging-a" / "0-0").exists()
    with klog.open([root, tmp_path / "other"]) as logs:
        logs.delete_topic("t")
    assert not list(root.glob("t-0")) and list(root.glob("t-0.*-delete"))
