"""The crash tests find each bug planted here: a crash state breaks a promise.

Without the bug the same states keep all promises: test_power_cut.py and test_life.py check that.
"""

from __future__ import annotations

import dataclasses
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from klog.disk import LogFile
from klog.errors import KlogError
from klog.log.directory import checkpoint
from klog.log.log import Log
from klog.log.opening import OpenLog
from klog.log.state._log_core import LogCore
from klog.log.state.producers import Producers
from klog.log.write import flush
from klog.manager.directories import LogDirectory
from klog.manager.manager import LogManager
from klog.segment import Segment
from tests.crash.life import CONFIG, TOPIC, Life, check_found, cut_life, open_state
from tests.crash.producing import cut_producers
from tests.crash.test_nth_failure import fail_everywhere
from tests.crash.workload import open_logs
from tests.support.abandon import abandon
from tests.support.crash_files import CrashFiles
from tests.support.patience import PATIENCE
from tests.support.power_cuts import PowerCuts, Tally


class Without:
    """The given Files, but some of their methods do nothing."""

    def __init__(self, files: Any, *calls: str) -> None:
        self._files = files
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name in self._calls else getattr(self._files, name)


def without(
    owner: type, method: str, *calls: str, at: Callable[[Any], Any] = lambda it: it, name: str = "_files"
) -> Any:
    """A replacement for `owner.method`. While it runs, these calls of a Files do nothing: the Files is the attribute
    `name` of `at(self)`."""
    plain = getattr(owner, method)

    def planted(self: Any, *args: Any, **more: Any) -> Any:
        holder = at(self)
        files = getattr(holder, name)
        setattr(holder, name, Without(files, *calls))
        try:
            return plain(self, *args, **more)
        finally:
            setattr(holder, name, files)

    return planted


def marker_before_the_flush(plain: Callable[[LogManager], None]) -> Callable[[LogManager], None]:
    def planted(self: LogManager) -> None:
        for path in self.paths:
            self._files.replace(checkpoint.clean_shutdown_path(path), checkpoint.CLEAN_SHUTDOWN_TEXT)
        plain(self)

    return planted


def segment_dir(segment: Segment) -> Any:
    return segment.segment_dir


def unsynced(plain: Callable[..., None]) -> Callable[..., None]:
    return lambda self, *, sync: plain(self, sync=False)


def point_before_the_flush(plain: Callable[[LogCore, int | None], None]) -> Callable[[LogCore, int | None], None]:
    def planted(log: LogCore, offset: int | None) -> None:
        log.flush_state.synced_up_to(log.log_end_offset)
        assert log.directory.on_flush is not None
        log.directory.on_flush(log)
        plain(log, offset)

    return planted


def producers(place: Path) -> Tally:
    return cut_producers(place, stride=17, randoms=2)


def life(place: Path) -> Tally:
    return cut_life(place, stride=17, first=3, randoms=2)


PLANTS: dict[str, tuple[Callable[[Path], Tally], Any, str, Any]] = {
    "no directory fsync after the clean-shutdown file is removed": (
        producers,
        LogDirectory,
        "begin",
        without(LogDirectory, "begin", "fsync_dir"),
    ),
    "the clean-shutdown file before the last flush": (
        producers,
        LogManager,
        "_stop",
        marker_before_the_flush(LogManager._stop),
    ),
    "the recovery point before the flush": (
        producers,
        flush,
        "_flush_beside",
        point_before_the_flush(flush._flush_beside),
    ),
    "a roll that does not sync": (life, Segment, "deactivate", unsynced(Segment.deactivate)),
    "a flush that does not sync": (
        life,
        Segment,
        "sync_beside",
        without(Segment, "sync_beside", "fdatasync", at=segment_dir, name="files"),
    ),
    "a truncation that does not sync": (
        life,
        Segment,
        "truncate_to",
        without(Segment, "truncate_to", "fsync", "fdatasync", at=segment_dir, name="files"),
    ),
    "a recovery's truncation is not synced": (
        life,
        Segment,
        "cut",
        without(Segment, "cut", "fsync", at=segment_dir, name="files"),
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_power_cut_finds_the_planted_bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plant: str) -> None:
    """These are the crash states that test_power_cut.py and test_life.py check without the bug."""
    workload, *where = PLANTS[plant]
    monkeypatch.setattr(*where)
    with pytest.raises((AssertionError, KlogError)) as caught:
        workload(tmp_path)
    assert "stop_at=" in caught.value.__notes__[-1], "the workload itself failed, not a crash state"


# ---- a truncation while a flush is under way -------------------------------------------------------------------------


class SyncLockThatWaits:
    """The sync lock of a log. After a sync it is released, and then waits until another thread has ended."""

    def __init__(self, log: Log, thread: threading.Thread) -> None:
        self._sync_lock, self._thread = log._core.sync_lock, thread
        self.begin, self.wait = log._core.sync_lock.begin, log._core.sync_lock.wait

    def end(self, owner: object) -> None:
        self._sync_lock.end(owner)
        self._thread.join(PATIENCE)


def only_of(log: Log, sync_lock: SyncLockThatWaits) -> property:
    """`sync_lock` for this log; the logs of the crash states keep their own lock."""
    plain = vars(LogCore)["sync_lock"]
    return property(lambda core: sync_lock if core is log._core else plain.__get__(core))


def cut_beside_a_truncation(place: Path) -> Tally:
    """Another thread truncates during a flush's sync."""
    expected = Life()

    def workload(root: Path, files: CrashFiles) -> None:
        logs = open_logs(root, files)
        try:
            logs.create_topic(TOPIC, config={**CONFIG, "segment.bytes": 4000})
            log = logs.log(TOPIC)
            expected.append(log, 9)
            truncation = threading.Thread(target=lambda: expected.truncate(log, 4))
            synced = files.fdatasync

            def fdatasync(file: LogFile) -> None:
                synced(file)
                if truncation.ident is None:
                    truncation.start()  # the truncation waits until the sync has ended

            with (
                mock.patch.object(files, "fdatasync", fdatasync),
                mock.patch.object(OpenLog, "sync_lock", only_of(log, SyncLockThatWaits(log, truncation)), create=True),
            ):
                log.flush()
            assert not truncation.is_alive()
            assert log.log_end_offset == 4
            expected.append(log, 2)
            log.flush()
            expected.done(dataclasses.replace(expected.now, durable=expected.now.end))
            expected.append(log, 1)
        finally:
            abandon(logs)

    cuts = PowerCuts(
        place, open_state, lambda found, only_died: check_found(found, expected, power=not only_died), randoms=1
    )
    return cuts.run(workload)


def test_no_recovery_point_passes_a_truncation(tmp_path: Path) -> None:
    """F1"""
    assert cut_beside_a_truncation(tmp_path).distinct > 30


def test_a_power_cut_finds_an_ignored_generation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(OpenLog, "generation", 0, raising=False)
    with pytest.raises(AssertionError, match="recovery point") as caught:
        cut_beside_a_truncation(tmp_path)
    assert "stop_at=" in caught.value.__notes__[-1]


# ---- failed operations -----------------------------------------------------------------------------------------------


def test_a_failure_finds_a_snapshot_left_by_a_failed_roll(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Producers, "take_back_snapshot", lambda *_: None)
    with pytest.raises(AssertionError, match="snapshot"):
        fail_everywhere(tmp_path, errno.ENOSPC, forever=False)
