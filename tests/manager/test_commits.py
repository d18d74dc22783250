"""Commits of staged files: the records that they append, what readers see during a commit, the jobs that they refuse,
and the work that is left for the next start."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles
from klog.errors import (
    AlreadyLocked,
    CorruptBatch,
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
from klog.log.staged.writing import StagedWriter
from klog.manager.commits import StagedJob, TopicPlan
from klog.manager.staging import commit_staged
from klog.record import decode as batches_of
from klog.record import encode, renumber
from tests.crash.staged import Stop, StopsAtManifest
from tests.manager.staged_jobs import NOW, commit, interrupt, job, log_dir_with_a_topic, stage, staging, values
from tests.support.failing_files import FailingFiles
from tests.support.patience import PATIENCE
from tests.support.powerless import powerless


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return log_dir_with_a_topic(tmp_path / "data")


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


def test_an_earlier_batch_of_a_stream_leaves_the_last_one(tmp_path: Path) -> None:
    """Else the batches after it would be appended again when they are repeated."""
    for batch in (7, 5):
        streams.committed(str(tmp_path), "query", batch, RealFiles())
    assert streams.last_batch(str(tmp_path), "query") == 7
