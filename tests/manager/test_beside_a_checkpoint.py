"""A checkpoint names what is true of the logs that are there when it is written (D2), also if one was closed, truncated,
deleted or created again since the round of the background work began."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.log.core import LogCore
from klog.log.directory import checkpoint
from klog.manager.directories import LogDirectory
from tests.support.patience import PATIENCE

NOW = 1_700_000_000_000


def made(path: Path) -> tuple[klog.LogManager, klog.Log, ManualClock]:
    """A log of ten records, in a log.dir whose checkpoints are written after a second."""
    clock = ManualClock(NOW)
    config = {"log.initial.task.delay.ms": 1000, "replica.high.watermark.checkpoint.interval.ms": 1000}
    logs = klog.open(path, create=True, clock=clock, config=config)
    logs.create_topic("t")
    log = logs.log("t")
    log.append([(None, b"old")] * 10)
    log.flush()
    logs.start()
    return logs, log, clock


def before(monkeypatch: pytest.MonkeyPatch, write: str, action: Callable[[], object]) -> None:
    """Call an action once before a write, for which the logs have been chosen. Another thread may do so."""
    real = getattr(LogDirectory, write)

    def written(directory: LogDirectory, logs: Iterable[LogCore] = ()) -> None:
        monkeypatch.undo()
        action()
        real(directory, logs)

    monkeypatch.setattr(LogDirectory, write, written)


def create_again(logs: klog.LogManager) -> None:
    logs.delete_topic("t")
    logs.create_topic("t")


def cut_again(logs: klog.LogManager, log: klog.Log) -> None:
    log.close()
    logs.log("t").truncate_to(0)


def stored(path: Path, name: str) -> int | None:
    return checkpoint.known_offsets(str(path / name)).get(("t", 0))


def test_the_log_start_of_a_deleted_topic_is_not_that_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log began at the old log start, without the records below it."""
    logs, log, clock = made(tmp_path)
    log.maybe_increment_log_start_offset(5)
    before(monkeypatch, "write_starts", lambda: create_again(logs))
    clock.advance(1000)
    logs.append("t", [(None, b"new")] * 10)
    assert logs.log("t").log_start_offset == 0
    assert logs.count("t") == 10
    logs.close()


def test_the_high_watermark_of_a_deleted_topic_is_not_that_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, log, clock = made(tmp_path)
    log.update_high_watermark(5)
    before(monkeypatch, "write_high_watermarks", lambda: create_again(logs))
    clock.advance(1000)
    assert stored(tmp_path, checkpoint.HIGH_WATERMARK) is None
    logs.close()


def test_the_recovery_point_of_a_closed_log_is_not_that_of_the_next_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery point beyond what is on disk hides the loss of records by a power cut."""
    logs, log, clock = made(tmp_path)
    before(monkeypatch, "write_points", lambda: cut_again(logs, log))
    clock.advance(1000)
    assert stored(tmp_path, checkpoint.RECOVERY_POINT) == 0
    logs.close()


def test_a_flush_that_ends_after_a_close_keeps_the_recovery_point_of_the_next_load(tmp_path: Path) -> None:
    logs, log, _ = made(tmp_path)
    log.append([(None, b"more")] * 10)
    place = log._core.directory
    note = place.on_flush
    assert note is not None

    def note_later(flushed: LogCore) -> None:
        place.belong_to(place.owner, note)
        thread = threading.Thread(target=cut_again, args=(logs, log))
        thread.start()
        thread.join(PATIENCE)
        note(flushed)

    place.belong_to(place.owner, note_later)
    log.flush()
    assert log.closed
    assert stored(tmp_path, checkpoint.RECOVERY_POINT) == 0
    logs.close()
