"""An append whose write fails leaves the state of producers, transactions and epochs exactly as it was."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, os_error
from klog.errors import InvalidProducerEpoch, RecordBatchTooLarge, StorageOffline
from klog.log.state.producer_append import ProducerAppend
from klog.log.state.producers import Producers
from tests.log.test_group_commit import Appender
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.failing_files import FailingFiles
from tests.support.logs import values
from tests.support.patience import PATIENCE


class FullDisk(FailingFiles):
    """While `full`, no write succeeds."""

    full = False

    def check(self, what: str, path: str) -> None:
        super().check(what, path)
        if self.full and what == "write":
            raise OSError(errno.ENOSPC, "no space left on device", path)


class Unsynced(FailingFiles):
    """Does not sync, for speed, but fails where a sync would fail."""

    def fsync(self, file: LogFile) -> None:
        self.check("fsync", file.path)

    def fdatasync(self, file: LogFile) -> None:
        self.check("fsync", file.path)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)


@pytest.fixture
def files() -> FullDisk:
    return FullDisk()


@pytest.fixture
def log(tmp_path: Path, files: FullDisk) -> Iterator[klog.Log]:
    with opened(tmp_path, files) as log:
        yield log


def opened(path: Path, files: FailingFiles, **config: Any) -> klog.Log:
    return klog.Log.open(path / "t-0", config=config, clock=ManualClock(NOW), files=files)


def fail(log: klog.Log, files: FullDisk, sent: bytes) -> None:
    files.full = True
    with pytest.raises(OSError, match="no space"):
        log.append_batches(sent)
    files.full = False
    assert log.offline is None


def test_a_producer_whose_batches_are_deleted_is_still_known(log: klog.Log, files: FullDisk) -> None:
    log.append_batches(produced(1, 5, 0))
    log.roll()
    log.append_batches(batch(2))
    log.delete_records(1)
    log.apply_retention()
    before = log.producers
    assert before[1].epoch == 5
    fail(log, files, produced(2, 0, 0))
    assert log.producers == before
    with pytest.raises(InvalidProducerEpoch):
        log.append_batches(produced(1, 4, 0))


def test_an_append_waits_for_the_undo_of_another_thread(tmp_path: Path) -> None:
    """The append is not refused merely because the log would go offline if the undo failed."""

    class AppendsInUndo(FullDisk):
        other: Appender | None = None

        def truncate(self, file: LogFile, size: int) -> None:
            if self.other is None and file.path.endswith(".log"):
                self.full = False
                self.other = Appender(lambda: log.append([(None, b"other")]))
                self.other.join(0.2)  # time to fail
            super().truncate(file, size)

    files = AppendsInUndo()
    with klog.Log.open(tmp_path / "t-0", files=files) as log:
        log.append([(None, b"first")])
        files.full = True
        with pytest.raises(OSError, match="no space"):
            log.append([(None, b"refused")])
        assert files.other is not None
        assert files.other.outcome().first_offset == 1
        assert log.offline is None


def test_an_undo_waits_for_the_flush_under_way(tmp_path: Path) -> None:
    """F3: the sync of the undo would succeed, because the kernel has already reported the file's error."""

    class FailsBesideASync(FullDisk):
        """A sync fails as soon as a write was refused beside it."""

        syncing, refused, truncated = threading.Event(), threading.Event(), False

        def check(self, what: str, path: str) -> None:
            self.truncated |= what == "truncate"
            try:
                super().check(what, path)
            except OSError:
                self.refused.set()
                raise

        def fdatasync(self, file: LogFile) -> None:
            self.syncing.set()
            assert self.refused.wait(PATIENCE)
            raise os_error(errno.EIO, file.path, sync=True)

    files = FailsBesideASync()
    with klog.Log.open(tmp_path / "t-0", files=files) as log:
        log.append([(None, b"first")])
        flush = Appender(log.flush)
        assert files.syncing.wait(PATIENCE)
        files.full = True
        with pytest.raises(OSError, match="no space"):
            log.append([(None, b"refused")])
        assert not files.truncated
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            flush.outcome()
        assert log.offline is not None


def test_an_interrupted_undo_leaves_the_log_offline(tmp_path: Path) -> None:
    class InterruptsTheUndo(FullDisk):
        def truncate(self, file: LogFile, size: int) -> None:
            if self.full:
                raise KeyboardInterrupt
            super().truncate(file, size)

    files = InterruptsTheUndo()
    with opened(tmp_path, files) as log:
        log.append([(None, b"first")])
        files.full = True
        with pytest.raises(KeyboardInterrupt):
            log.append([(None, b"refused")])
        files.full = False
        with pytest.raises(StorageOffline, match="not undone yet"):
            log.append([(None, b"second")])
    with opened(tmp_path, files) as log:
        assert values(log) == [b"first"]


def test_an_undone_roll_takes_back_the_position_of_the_high_watermark(tmp_path: Path) -> None:
    """Otherwise a waiting reader would take it for one on a newer segment, which is not in the log."""

    class FullForNewSegments(FullDisk):
        def check(self, what: str, path: str) -> None:
            if not path.endswith(f"{0:020}.log"):
                super().check(what, path)

    files = FullForNewSegments()
    with opened(tmp_path, files, **{"internal.segment.bytes": 300}) as log:
        log.append([(None, b"first")])
        log.update_high_watermark(1)
        before = log.high_watermark_metadata
        files.full = True
        with pytest.raises(OSError, match="no space"):
            log.append([(None, bytes(220))])
        assert len(log.segments) == 1
        assert log.high_watermark_metadata == before


def test_five_batches_are_still_remembered(log: klog.Log, files: FullDisk) -> None:
    for sequence in range(5):
        log.append_batches(produced(1, 5, sequence))
    log.roll()
    fail(log, files, produced(2, 0, 0))
    again = log.append_batches(produced(1, 5, 1))
    assert again.is_duplicate and again.first_offset == 1


def test_the_last_stable_offset_stays(log: klog.Log, files: FullDisk) -> None:
    log.update_high_watermark(0)
    log.append_batches(transactional(7, 3, 0, 3))
    log.append_batches(marker(7, 3, "commit"), origin="coordinator")
    log.update_high_watermark(2)
    log.roll()
    assert log.last_stable_offset == 0
    fail(log, files, produced(2, 0, 0))
    assert log.last_stable_offset == 0
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_an_epoch_of_refused_batches_is_not_kept(tmp_path: Path, files: FullDisk) -> None:
    with opened(tmp_path, files, **{"segment.bytes": 300}) as log:
        log.append_batches(batch(5), leader_epoch=1)
        sent = b"".join(batch(20, base_offset=100 + 20 * n, leader_epoch=2) for n in range(4))
        with pytest.raises(RecordBatchTooLarge):
            log.append_batches(sent, origin="replication")
        assert log.leader_epochs == [(1, 0)] and log.end_offset_for(1) == (1, 5)
        log.append([(b"k", b"v")])
        assert log.append_batches(batch(1)).last_leader_epoch == 1
        assert [stored.leader_epoch for stored in log.read().batches()] == [1, 1, 1]
    with opened(tmp_path, files) as log:
        assert log.leader_epochs == [(1, 0)]


# ---- at any disk operation -------------------------------------------------------------------------------------------


def prepared(path: Path, files: FailingFiles, managed: bool, rest: int) -> klog.Log:
    """Producers, a decided and two open transactions; some more bytes, so that a roll happens."""
    log = opened(path, files, **{"segment.bytes": 1200})
    if managed:
        log.update_high_watermark(0)
    for sequence in range(3):
        log.append_batches(produced(1, 5, sequence))
    log.append_batches(transactional(7, 3, 0))
    log.append_batches(transactional(8, 3, 0))
    log.append_batches(marker(7, 3, "abort"), origin="coordinator")
    log.append_batches(transactional(7, 3, 1))
    if managed:
        log.update_high_watermark(4)
    log.append_batches(batch([b"x" * rest]))
    return log


def follow(log: klog.Log, gap: int = 0) -> None:
    first = log.log_end_offset + gap
    sent = transactional(9, 0, 0, 2, base_offset=first, leader_epoch=1)
    sent += marker(7, 3, "abort", base_offset=first + 2, leader_epoch=1)
    sent += transactional(7, 3, 2, base_offset=first + 3, leader_epoch=1)
    sent += marker(9, 0, "abort", base_offset=first + 4, leader_epoch=1)
    log.append_batches(sent, origin="replication")


ACTIONS: dict[str, Callable[[klog.Log], object]] = {
    "client": lambda log: log.append_batches(produced(1, 5, 3, 20)),
    "abort": lambda log: log.append_batches(marker(7, 3, "abort"), origin="coordinator"),
    "records": lambda log: log.append([(b"k", b"v" * 300)] * 10, compression="none"),
    "follower": follow,
    "follower, gap": lambda log: follow(log, 50),
    "roll": lambda log: log.roll(),
}


def known(log: klog.Log) -> dict[str, Any]:
    producers = log._core.producers
    return {
        "end": (log.log_end_offset, producers.end_offset),
        "stable": (log.high_watermark, log.last_stable_offset),
        "batches": {pid: entry.batches for pid, entry in producers.entries.items()},
        "producers": log.producers,
        "aborted": log.aborted_transactions(),
        "epochs": log.leader_epochs,
    }


@pytest.mark.parametrize(("managed", "rest"), [(False, 500), (True, 1)], ids=["single copy", "managed"])
@pytest.mark.parametrize("name", ACTIONS)
def test_a_failed_append_changes_no_state(tmp_path: Path, name: str, managed: bool, rest: int) -> None:
    taken_back = nth = 0
    while True:
        nth += 1
        files, path = Unsynced(nth, errno.ENOSPC), tmp_path / str(nth)
        path.mkdir()
        files.armed = False
        log = prepared(path, files, managed, rest)
        before = known(log)
        files.armed, files.calls = True, 0
        error = None
        try:
            ACTIONS[name](log)
        except (OSError, StorageOffline) as raised:
            error = raised
        files.armed = False
        if error is not None and log.offline is None:
            taken_back += 1
            assert known(log) == before, files.failed
            ACTIONS[name](log)
            after = known(log)
            log.close()
            with opened(path, files) as again:
                found = known(again)
            for what in ("end", "producers", "aborted", "epochs"):
                assert found[what] == after[what], (what, files.failed)
        log.close()
        if not files.failed:
            break
    assert taken_back


def test_an_undo_that_is_interrupted_takes_no_batch_for_a_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C comes before the producer's state is restored: the log goes offline, and its next load computes
    the state from the batches."""
    update, sent = Producers.update, produced(6, 0, 0)

    def interrupt_after(producers: Producers, append: ProducerAppend) -> None:
        update(producers, append)
        raise KeyboardInterrupt

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(tmp_path, Unsynced()) as log:
        log.append_batches(produced(5, 0, 0))
        with monkeypatch.context() as patched:
            patched.setattr(Producers, "update", interrupt_after)
            patched.setattr(Producers, "take_back", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.append_batches(sent)
        with pytest.raises(StorageOffline):
            log.append_batches(sent)
        assert log.log_end_offset == 1
    with opened(tmp_path, Unsynced()) as log:
        assert not log.append_batches(sent).is_duplicate
        assert log.count() == log.log_end_offset == 2
