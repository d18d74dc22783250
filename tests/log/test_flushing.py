"""Flushes beside appends, and when they are due."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock, SystemClock
from klog.disk import LogFile, RealFiles
from klog.errors import StorageOffline
from klog.log.directory import checkpoint
from klog.log.state._flush_state import FlushState
from klog.log.write.adopt import adopt
from klog.record import encode
from tests.support.batches import NOW, batch, marker, transactional
from tests.support.crash_files import CrashFiles
from tests.support.faulty_io import FaultyIo
from tests.support.logs import values
from tests.support.patience import PATIENCE, until


class Gated(RealFiles):
    """While the gate is closed, an fdatasync does not return; `error` is what it raises, once."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Semaphore(0)
        self.gate.set()
        self.error = 0
        self.syncs: list[str] = []
        self.checkpoints = 0

    def fdatasync(self, file: LogFile) -> None:
        self.syncs.append(file.path)
        self.entered.release()
        error, self.error = self.error, 0
        assert self.gate.wait(PATIENCE)
        if error:
            raise OSError(error, "broken", file.path)
        super().fdatasync(file)

    def replace(self, path: str, data: bytes, *, private: bool = False) -> None:
        self.checkpoints += path.endswith(checkpoint.RECOVERY_POINT)
        super().replace(path, data, private=private)

    def close(self) -> None:
        while self.entered.acquire(blocking=False):
            pass
        self.gate.clear()


class Call(threading.Thread):
    """A call in a thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.call()
        except BaseException as error:
            self.error = error

    def done(self) -> None:
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


@pytest.fixture
def files() -> Gated:
    return Gated()


@pytest.fixture
def log(tmp_path: Path, files: Gated) -> Iterator[klog.Log]:
    with opened(tmp_path, files) as log:
        log.append([(None, b"0")])
        log.append([(None, b"1")])
        yield log
        files.gate.set()


def opened(path: Path, files: RealFiles, clock: Any = None, **config: Any) -> klog.Log:
    return klog.Log.open(path / "t-0", config=config, clock=clock or ManualClock(NOW), files=files)


def a_file(log: klog.Log) -> str:
    """A file of one batch that begins at the log end."""
    path = Path(log.path) / "staged"
    path.write_bytes(encode([(None, b"2")], base_offset=log.log_end_offset, leader_epoch=0))
    return str(path)


def under_way(log: klog.Log, files: Gated) -> Call:
    files.close()
    flush = Call(log.flush)
    assert files.entered.acquire(timeout=PATIENCE)
    return flush


def test_appends_go_on_during_a_flush_and_the_recovery_point_is_where_it_began(log: klog.Log, files: Gated) -> None:
    """F1; F24 of the fault model: a slow disk delays only the callers that wait for it."""
    flush = under_way(log, files)
    assert log.append([(None, b"2")]).first_offset == 2
    log.append_batches(batch([b"3"]))
    assert values(log) == [b"0", b"1", b"2", b"3"] and log.recovery_point == 0
    files.gate.set()
    flush.done()
    assert log.recovery_point == 2 and log.unflushed_bytes > 0
    log.flush()
    assert log.recovery_point == 4 and log.unflushed_bytes == 0


def test_a_failed_flush_moves_nothing_and_is_final(log: klog.Log, files: Gated) -> None:
    files.error = errno.EIO
    flush = under_way(log, files)
    log.append([(None, b"2")])
    files.gate.set()
    with pytest.raises(OSError, match="broken"):
        flush.done()
    assert log.offline is not None and log.recovery_point == 0
    with pytest.raises(StorageOffline):
        log.append([(None, b"3")])
    with pytest.raises(StorageOffline):
        log.flush()
    assert len(files.syncs) == 1


@pytest.mark.parametrize(
    "work",
    [
        klog.Log.roll,
        lambda log: log.truncate_to(1),
        lambda log: log.truncate_fully_and_start_at(7),
        lambda log: log.append([(None, b"flush.messages=3")]),
        lambda log: adopt(log._core, a_file(log), 0),
    ],
    ids=["roll", "truncation", "restart", "flush", "adoption"],
)
def test_what_syncs_waits_for_the_flush_under_way_and_raises_its_error(
    log: klog.Log, files: Gated, work: Callable[[klog.Log], object]
) -> None:
    """F3: its own sync would succeed, because the kernel has already reported the file's error."""
    log.update_config(log.config.replace({"flush.messages": 3}))
    files.error, path, size = errno.EIO, log.segments[-1].path, log.segments[-1].size
    flush = under_way(log, files)
    second = Call(lambda: work(log))
    until(log._core.lock.locked)
    files.gate.set()
    with pytest.raises(OSError, match="broken"):
        flush.done()
    with pytest.raises(StorageOffline):
        second.done()
    assert log.recovery_point == 0 and len(log.segments) == 1 and len(files.syncs) == 1
    assert os.stat(path).st_size >= size


def test_a_flush_that_ends_after_a_roll_does_not_lower_the_recovery_point(log: klog.Log, files: Gated) -> None:
    flush = under_way(log, files)
    roll = Call(log.roll)
    until(log._core.lock.locked)
    files.gate.set()
    flush.done()
    roll.done()
    assert log.recovery_point == 2 and len(log.segments) == 2
    log.append([(None, b"2")])
    log.flush()
    assert log.recovery_point == 3


def test_a_truncation_during_a_flush_bounds_the_recovery_point(log: klog.Log, files: Gated) -> None:
    """F1: records that are appended at the truncated offsets are not on disk."""
    flush = under_way(log, files)
    waits = threading.Event()
    append, log._core.check_writable = log._core.check_writable, lambda: (waits.set(), append())[1]  # type: ignore[method-assign]
    cut = Call(lambda: (log.truncate_to(1), log.append([(None, b"a"), (None, b"b")])))
    assert waits.wait(PATIENCE)
    files.gate.set()
    cut.done()
    flush.done()
    assert log.recovery_point <= 2
    assert values(log) == [b"0", b"a", b"b"]


def test_a_rename_during_a_flush_leaves_the_recovery_point(log: klog.Log, files: Gated) -> None:
    """F1: the flush has found no directory to sync."""
    flush = under_way(log, files)
    log.rename_dir("renamed-0")
    files.gate.set()
    flush.done()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2


def test_closing_waits_for_the_flush_under_way(log: klog.Log, files: Gated) -> None:
    flush = under_way(log, files)
    close = Call(log.close)
    until(log._core.lock.locked)
    files.gate.set()
    flush.done()
    close.done()
    assert log.closed and log.recovery_point == 2


def test_flushes_of_many_threads_run_one_at_a_time(log: klog.Log, files: Gated) -> None:
    flush = under_way(log, files)
    others = [Call(log.flush) for _ in range(3)]
    log.append([(None, b"2")])
    assert not files.entered.acquire(timeout=0.05)
    files.gate.set()
    for each in (flush, *others):
        each.done()
    assert log.recovery_point == 3


def test_a_flush_up_to_an_offset_that_is_on_disk_already_does_nothing(log: klog.Log, files: Gated) -> None:
    log.flush()
    log.append([(None, b"2")])
    before = len(files.syncs)
    log.flush(2)
    assert len(files.syncs) == before and log.recovery_point == 2
    log.flush(3)
    assert log.recovery_point == 3
    with pytest.raises(TypeError):
        log.flush("3")  # type: ignore[arg-type]


def test_what_a_roll_has_synced_or_a_truncation_removed_is_not_unflushed(log: klog.Log) -> None:
    log.flush()
    start = log.log_end_offset
    log.append([(None, b"x" * 1000)])
    log.roll()
    assert log.unflushed_bytes == 0
    log.append([(None, b"y")])
    left = log.size
    log.append([(None, b"z" * 1000)])
    assert log.unflushed_bytes == log.segments[-1].size
    log.truncate_to(start + 2)
    assert log.size == left and log.unflushed_bytes == log.segments[-1].size
    log.truncate_to(start + 1)
    assert log.unflushed_bytes == 0


def test_flush_bytes_make_a_flush_due(tmp_path: Path, files: Gated) -> None:
    """klog.flush.bytes, without a flush thread: the append flushes, with every origin."""
    with opened(tmp_path, files, **{"klog.flush.bytes": 500}) as log:
        log.append([(None, b"x" * 100)])
        assert log.recovery_point == 0 and 100 < log.unflushed_bytes < 500
        log.append_batches(batch([b"y" * 400]))
        assert log.recovery_point == 2 and log.unflushed_bytes == 0
        for _ in range(3):
            log.append_batches(klog.record.encode([(None, b"z" * 100)], base_offset=log.log_end_offset, leader_epoch=0),
                               origin="replication")  # fmt: skip
        assert log.recovery_point == 5


def test_flush_messages_and_flush_ms_hold_with_every_durability(tmp_path: Path) -> None:
    for durability in ("os", "interval", "sync"):
        clock = ManualClock(NOW)
        path = tmp_path / durability / "t-0"
        path.parent.mkdir()
        with klog.Log.open(
            path, config={"flush.messages": 3, "flush.ms": 10_000}, clock=clock, durability=durability
        ) as log:
            log.append([(None, b"0"), (None, b"1")])
            assert log.recovery_point == 0
            log.append([(None, b"2")])
            assert log.recovery_point == 3
            clock.advance(10_000)
            log.append([(None, b"3")])
            assert log.recovery_point == 4


def test_metrics_have_flush_times_and_group_sizes(tmp_path: Path) -> None:
    with FaultyIo() as io:
        io.rule("fdatasync", delay_ms=20)
        with klog.open(tmp_path, create=True, durability="sync", files=RealFiles(io.table)) as logs:
            logs.create_topic("t", partitions=2)
            for number in range(3):
                logs.log("t", 0).append([(None, b"%d" % number)])
            logs.log("t", 1).append([(None, b"0")])
            measured = logs.log("t", 0).metrics()
            name = "LogFlushRateAndTimeMs"
            assert measured[name + "Count"] == 3 and measured[name + "Mean"] >= 20 <= measured[name + "50thPercentile"]
            assert measured[name + "99thPercentile"] <= measured[name + "Max"]
            assert (
                measured["CommitGroupSizeCount"],
                measured["CommitGroupSizeMean"],
                measured["CommitGroupSizeMax"],
            ) == (3, 1, 1)
            together = logs.metrics()
            assert together[name + "Count"] == {"t-0": 3, "t-1": 1, "": 4}
            assert together["FlushQueueSize"] == {"": 0}
            io.heal()


def test_logs_with_bytes_to_flush_are_flushed_in_one_background_round(tmp_path: Path, files: Gated) -> None:
    """M21: several logs are flushed in one round, with one checkpoint after it; appends do not wait for it."""
    config = {"klog.flush.bytes": 200, "log.flush.scheduler.interval.ms": 3_600_000}
    with klog.open(
        tmp_path, create=True, config=config, files=files, clock=SystemClock(), durability="interval"
    ) as logs:
        logs.create_topic("t", partitions=4)
        logs.alter_topic("t", {"flush.ms": 3_600_000})
        parts = [logs.log("t", number) for number in range(4)]
        for log in parts:
            log.append([(None, b"small")])
        time.sleep(0.02)
        assert [log.recovery_point for log in parts] == [0] * 4
        files.close()
        parts[0].append([(None, b"x" * 200)])
        assert files.entered.acquire(timeout=PATIENCE)
        for log in parts[1:]:
            log.append([(None, b"x" * 200)])
            log.append([(None, b"more")])
        assert logs.metrics()["FlushQueueSize"] == {"": 3}
        assert files.checkpoints == 0
        files.gate.set()
        until(lambda: all(log.recovery_point == log.log_end_offset for log in parts))
        until(
            lambda: (
                checkpoint.read_offsets(str(tmp_path / checkpoint.RECOVERY_POINT))
                == {("t", number): parts[number].log_end_offset for number in range(4)}
            )
        )
        assert files.checkpoints == 2  # after the first flush, and after the three that waited for it


def test_a_round_with_a_disk_error_reports_it_and_moves_no_recovery_point(
    tmp_path: Path, files: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"klog.flush.bytes": 100}
    logs = klog.open([tmp_path / "a", tmp_path / "b"], create=True, config=config, files=files, durability="interval")
    logs.create_topic("bad", directory=tmp_path / "a")
    logs.create_topic("good", directory=tmp_path / "b")
    bad, good = logs.log("bad"), logs.log("good")
    files.error = errno.EIO
    bad.append([(None, b"x" * 200)])
    until(lambda: bad.offline is not None)
    good.append([(None, b"x" * 200)])
    until(lambda: good.recovery_point == 1)
    assert bad.recovery_point == 0 and str(tmp_path / "a") in logs.offline_directories
    assert "event=flush_failed log=bad-0" in caplog.text
    with pytest.raises(StorageOffline):
        bad.append([(None, b"y")])
    with pytest.raises(OSError, match="broken"):
        logs.close()


def test_an_append_that_makes_a_flush_due_is_flushed_by_the_thread_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No periodic flush runs here, so only the queue can flush."""
    config = {"klog.flush.bytes": 1000, "log.flush.scheduler.interval.ms": 2**63 - 1}
    with klog.open(tmp_path, create=True, config=config, clock=SystemClock()) as logs:
        logs.start()
        logs.create_topic("t")
        log = logs.log("t")
        log.append([(None, b"x" * 2000)])
        until(lambda: log.recovery_point == 1)
        until(lambda: logs.metrics()["FlushQueueSize"] == {"": 0})
    assert "task_failed" not in caplog.text


def test_a_new_flush_messages_holds_from_the_next_append_on(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0") as log:
        for number in range(3):
            log.append([(None, b"%d" % number)])
        assert log.recovery_point == 0
        log.update_config(klog.LogConfig(flush_messages=1))
        log.append([(None, b"next")])
        assert log.recovery_point == 4


def test_a_flush_that_ends_after_a_roll_does_not_move_the_recovery_point_back() -> None:
    """FS1: the flush began when the log was shorter."""
    state = FlushState(0, ManualClock(NOW))
    state.synced_up_to(5)
    state.flushed_beside(3, state.moment(10))
    assert state.recovery_point == 5
    state.flushed_beside(7, state.moment(10))
    assert state.recovery_point == 7


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_a_flush_syncs_the_names_of_new_files(tmp_path: Path, durability: Any) -> None:
    """F1: an aborted transaction makes a transaction index."""
    disk = CrashFiles()
    with klog.Log.open(tmp_path / "t-0", files=disk, durability=durability, clock=ManualClock(NOW)) as log:
        log.append_batches(transactional(7, 0, 0))
        log.append_batches(marker(7, 0, "abort"), origin="coordinator")
        log.flush()
        assert str(tmp_path / "t-0" / f"{0:020d}.txnindex") in disk.durable_names


class OneFileEach(RealFiles):
    """Each .log is opened for writing once, and synced by that descriptor."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, LogFile] = {}
        self.synced: list[str] = []

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        file = super().open(path, write=write, create=create)
        if write and path.endswith(".log"):
            assert path not in self.written
            self.written[path] = file
        return file

    def fdatasync(self, file: LogFile) -> None:
        assert file is self.written[file.path]
        self.synced.append(os.path.basename(file.path))
        super().fdatasync(file)

    def fsync(self, file: LogFile) -> None:
        assert not file.path.endswith(".log")
        super().fsync(file)


@pytest.mark.parametrize("durability", ["os", "interval", "sync"])
def test_a_file_is_synced_by_the_descriptor_that_has_written_it(tmp_path: Path, durability: Any) -> None:
    """S3: the kernel reports a failed write-back to the descriptors that were open then; a later one may not get it."""
    files = OneFileEach()
    with klog.open(tmp_path, create=True, durability=durability, files=files) as logs:
        logs.create_topic("t", config={"segment.bytes": 2000})
        log = logs.log("t")
        for _ in range(3):
            log.append([(b"k", bytes(500))] * 3)
            log.flush()
            list(log.read())
            log.append([(b"k", b"v")])
        log.roll()
        log.append([(b"k", b"v")])
        assert len(files.written) == len(log.segments) == 4
    assert set(files.synced) == set(map(os.path.basename, files.written))
