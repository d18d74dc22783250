"""Consistent reads: a call that reads several parts of a log's state without the lock returns the result of one state.

Each call is repeated, and the log changes before another line of it each time: before every third line, in the deep run
before every line.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import RealFiles, os_error
from klog.disk._io import LogFile
from klog.record import encode
from klog.segment import Segment
from tests.support.failing_files import FailingFiles
from tests.support.logs import NOW
from tests.support.patience import PATIENCE
from tests.support.steps import at_step

Question = Callable[[klog.Log], Any]
Change = Callable[[klog.Log], object]

QUESTIONS: dict[str, Question] = {
    "count": lambda log: log.count(),
    "count from": lambda log: log.count(2),
    "count between": lambda log: log.count("earliest", "latest"),
    "latest": lambda log: log.list_offset("latest"),
    "earliest": lambda log: log.list_offset("earliest"),
    "max_timestamp": lambda log: log.list_offset("max_timestamp"),
    "time": lambda log: log.list_offset(NOW + 15),
    "first": lambda log: log.list_offset(NOW + 1),
    "offset_for_timestamp": lambda log: log.offset_for_timestamp(NOW + 31),
}


def add(log: klog.Log, epoch: int, *records: tuple[bytes, int]) -> None:
    """One batch, with a leader epoch."""
    rows = [(key, b"v" * 50, NOW + after) for key, after in records]
    log.append_batches(encode(rows), leader_epoch=epoch)


def append(log: klog.Log) -> None:
    add(log, 9, (b"new", 100), (b"new", 90))


def compact(log: klog.Log) -> None:
    log.compact()


def truncate(log: klog.Log) -> None:
    log.truncate_to(3)


def rewrite(log: klog.Log) -> None:
    log.truncate_to(1)
    add(log, 8, *[(b"other", after) for after in (12, 14, 33, 31, 30, 29, 60, 61, 62, 63)])


def retain(log: klog.Log) -> None:
    log.delete_records(5)
    log.apply_retention()


def roll(log: klog.Log) -> None:
    log.roll()


def roll_and_append(log: klog.Log) -> None:
    log.roll()
    append(log)


each_line = pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.deep)])

CHANGES: dict[str, Change] = {
    each.__name__: each for each in (append, compact, truncate, rewrite, retain, roll, roll_and_append)
}


def made(path: Path, number: int, segment_bytes: int = 1 << 20, **options: Any) -> klog.Log:
    """Three segments, epochs 1 to 6, unordered timestamps; a compaction removes offsets 1 to 3."""
    (path / str(number)).mkdir()
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": -1,
        "index.interval.bytes": 1,
        "delete.retention.ms": 0,
        "segment.bytes": segment_bytes,
    }
    log = klog.Log.open(path / str(number) / "t-0", config=config, clock=ManualClock(NOW), **options)
    add(log, 1, (b"a", 10))
    add(log, 2, (b"b", 15))
    add(log, 3, (b"c", 40), (b"b", 16))
    log.roll()
    add(log, 4, (b"b", 30), (b"c", 20))
    add(log, 5, (b"d", 31))
    log.roll()
    add(log, 6, (b"e", 25), (b"f", 35))
    return log


@each_line
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_result_is_from_before_or_after_a_change(tmp_path: Path, question: str, change: str, stride: int) -> None:
    ask, act = QUESTIONS[question], CHANGES[change]
    with made(tmp_path, 0) as log:
        right = [ask(log), (act(log), ask(log))[1]]
    number, came = 0, True
    while came:
        with made(tmp_path, number + 1) as log:
            came, answer = at_step(number, lambda log=log: act(log), lambda log=log: ask(log))
            assert answer in right, number
        number += stride
    assert number > 3


class InFlight(FailingFiles):
    """Makes appends of other threads stop in the middle, until they are released or made to fail.

    fast: they stop in the write, the only step of the fast path. Otherwise a listener makes them take the full path,
    and they stop after the write, when the segment has changed and the log end has not.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fast: bool) -> None:
        super().__init__()
        self.fast = fast
        self.fails = False
        self._written, self._go_on = threading.Semaphore(0), threading.Semaphore(0)
        if not fast:
            plain = Segment.append

            def append(segment: Segment, *args: Any) -> None:
                plain(segment, *args)
                self.stop(segment.path)

            monkeypatch.setattr(Segment, "append", append)

    def check(self, what: str, path: str) -> None:
        super().check(what, path)
        if what == "write" and self.fast:
            self.stop(path)

    def stop(self, path: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._written.release()
            assert self._go_on.acquire(timeout=PATIENCE)
            if self.fails:
                raise os_error(errno.ENOSPC, path)

    def begin(self, log: klog.Log) -> None:
        if not self.fast:
            log.set_offsets_listener(lambda offset: None)
        self._thread = threading.Thread(target=lambda: late(log, self.fails), daemon=True)
        self._thread.start()
        assert self._written.acquire(timeout=PATIENCE)

    def end(self) -> None:
        self._go_on.release()
        self._thread.join(PATIENCE)


def late(log: klog.Log, fails: bool = False) -> None:
    with pytest.raises(OSError, match="No space") if fails else contextlib.nullcontext():
        log.append([(b"late", b"v" * 50, NOW + 200)])


@pytest.fixture(params=[False, True], ids=["full", "fast"])
def in_flight(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> InFlight:
    return InFlight(monkeypatch, request.param)


@each_line
@pytest.mark.parametrize("segment_bytes", [470, 1 << 20])
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_append_that_begins_during_a_call_hides_nothing(
    tmp_path: Path, in_flight: InFlight, question: str, segment_bytes: int, stride: int
) -> None:
    """The newest record lies below the log start, so that others are searched."""
    ask = QUESTIONS[question]
    number, came = 0, True
    while came:
        with made(tmp_path, number, segment_bytes, files=in_flight) as log:
            log.delete_records(3)
            right = ask(log)
            came, answer = at_step(number, lambda log=log: in_flight.begin(log), lambda log=log: ask(log))
            if came:
                in_flight.end()
            assert answer == right, number
        number += stride
    assert number > 3


@each_line
@pytest.mark.parametrize("segment_bytes", [470, 1 << 20])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("question", QUESTIONS)
def test_an_append_counts_when_it_completes(
    tmp_path: Path, in_flight: InFlight, question: str, fails: bool, segment_bytes: int, stride: int
) -> None:
    """The append is in the file when the call begins. During the call it completes, or it is rolled back and another
    record is appended."""
    ask, number, came = QUESTIONS[question], 0, True
    in_flight.fails = fails
    with made(tmp_path, 0) as log:
        right = [ask(log)]
        if not fails:
            late(log)
            right.append(ask(log))
        add(log, 7, (b"later", 70))
        right.append(ask(log))
    while came:
        with made(tmp_path, number + 1, segment_bytes, files=in_flight) as log:
            in_flight.begin(log)

            def finish(log: klog.Log = log) -> None:
                in_flight.end()
                assert log.offline is None and log.log_end_offset == (9 if fails else 10)
                add(log, 7, (b"later", 70))

            came, answer = at_step(number, finish, lambda log=log: ask(log))
            assert answer in right, number
            if not came:
                finish()
        number += stride
    assert number > 3


class Asking(RealFiles):
    """Makes a call of the log in the middle of each fdatasync."""

    ask: Callable[[], object] | None = None

    def fdatasync(self, file: LogFile) -> None:
        if self.ask is not None:
            self.ask()
        super().fdatasync(file)


@pytest.mark.parametrize("records", [1, 40])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_commit_under_way_is_not_visible(tmp_path: Path, question: str, records: int) -> None:
    """It does not hide existing records, not even if it begins a segment."""
    ask, files, results = QUESTIONS[question], Asking(), []
    with made(tmp_path, 0, 600, durability="sync", files=files) as log:
        before = ask(log)
        files.ask = lambda: results.append(ask(log))
        log.append([(b"k", b"v" * 300, NOW + 100 + number) for number in range(records)])
        files.ask = None
        assert results and set(results) == {before}
