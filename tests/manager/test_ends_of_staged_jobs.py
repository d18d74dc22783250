"""Jobs with staged files that are aborted, or whose driver has ended; batches of streams that are committed once."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import Files, LogFile, RealFiles
from klog.errors import AlreadyLocked, StagingLost
from klog.log.staged import layout, streams, writers
from klog.log.staged.writers import Driver, this_machine
from klog.log.staged.writing import StagedWriter
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import abort_staged
from tests.crash.staged import Stop, ended
from tests.manager.staged_jobs import (
    DEFAULT,
    ELSEWHERE,
    NOW,
    commit,
    interrupt,
    job,
    log_dir_with_a_topic,
    stage,
    staging,
    values,
)
from tests.support.failing_files import FailingFiles
from tests.support.recorded_files import RecordedFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return log_dir_with_a_topic(tmp_path / "data")


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


@pytest.mark.parametrize("gone", ["t-0", "u-0"])
def test_the_staging_is_removed_beside_a_deletion(root: Path, monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    """Of the partition with the staging directory, and of another one."""
    stage(root, "a", {("t", 0): [b"x"]}, process=ended())
    (root / "u-0").mkdir()
    remove, listdir = writers._remove, os.listdir

    def removed(path: str, files: Files) -> None:
        remove(path, files)
        (root / "t-0").rename(root / "t-0.0123456789abcdef0123456789abcdef-delete")

    def listed(path: str) -> list[str]:
        if path == str(root / "u-0"):
            os.rmdir(path)
        return listdir(path)

    if gone == "t-0":
        monkeypatch.setattr(writers, "_remove", removed)
    else:
        monkeypatch.setattr(os, "listdir", listed)
    writers.remove_staging(str(root), "a", RealFiles())
    monkeypatch.undo()
    assert not (root / gone).exists() and staging(root) == []


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


def test_an_abort_that_is_first_leaves_nothing_to_commit(root: Path) -> None:
    """It may come while the commit goes on: of a query that is stopped then, or of another driver of the query."""

    class Aborts(RealFiles):
        def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
            found = super().open(path, write=write, create=create)
            if ".klog-staging-a" in path:
                assert not abort_staged(str(root), "a")
            return found

    files = stage(root, "a", {("t", 0): [b"x"]})
    with pytest.raises(StagingLost, match="is gone, so nothing was committed"):
        commit(root, job("a", files), Aborts())
    assert values(root, read_only=False) == [b"old-0", b"old-1", b"old-2"] and staging(root) == []


def test_an_abort_that_is_not_first_leaves_the_commit_alone(root: Path) -> None:
    refused: list[BaseException] = []

    def abort() -> None:
        try:
            abort_staged(str(root), "a")
        except AlreadyLocked as error:
            refused.append(error)

    thread = threading.Thread(target=abort)

    class BesideAnAbort(RealFiles):
        def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
            if "klog-commit-" in path and thread.ident is None:
                thread.start()
                thread.join(0.3)  # it waits for the manifest
            elif "klog-commit-" in path:
                thread.join()
            super().replace(path, data, private=private)

    assert commit(root, job("a", stage(root, "a", {("t", 0): [b"x"]})), BesideAnAbort()) == {"t": {0: (3, 3)}}
    assert len(refused) == 1
    assert values(root, read_only=False)[3:] == [b"x"] and staging(root) == []


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


def test_nothing_is_staged_through_a_link(root: Path, tmp_path: Path) -> None:
    """The commit refuses the link, and the log.dir that it leads to does not know the job: its files would stay."""
    (tmp_path / "other").mkdir()
    (root / "t-0").rename(tmp_path / "other" / "t-0")
    (root / "t-0").symlink_to(tmp_path / "other" / "t-0")
    with pytest.raises(OSError, match="a symbolic link: the lock and the checkpoints") as caught:
        stage(root, "a", {("t", 0): [b"x"]})
    assert caught.value.filename == str(root / "t-0")
    assert staging(tmp_path) == []
