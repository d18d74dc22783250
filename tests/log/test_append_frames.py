"""Gates on the number of Python frames that an append enters: noise cannot move them.

A path that leaves the fast one by mistake enters some fifty.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.record import Lists, encode
from tests.support.batches import NOW
from tests.support.frames import frames_of

APPEND_MAX = 8  # of one append of records or of encoded batches; once in 10 ms three more look for due tasks
FULL_MIN = 20

RECORDS: dict[str, Callable[[], Any]] = {
    "list": lambda: [(b"k", b"v")],
    "tuple": lambda: ((b"k", b"v"),) * 3,
    "iterator": lambda: iter([(b"k", b"v")] * 3),
    "lists": lambda: Lists([b"k"] * 3, [b"v"] * 3),
    "batches": lambda: [(b"k", bytes(200_000))] * 2,
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[klog.Log]:
    with klog.Log.open(tmp_path / "t-0") as log:
        log.append([(b"first", b"v")])
        yield log


@pytest.mark.parametrize("form", RECORDS)
def test_records_are_appended_without_the_full_path(log: klog.Log, form: str) -> None:
    records = RECORDS[form]
    log.append(records())
    end, given = log.log_end_offset, records()
    entered = frames_of(lambda: log.append(given))
    assert entered.total() <= APPEND_MAX, entered
    assert log.log_end_offset > end and len(list(log.read())) == log.log_end_offset


@pytest.mark.parametrize(
    "config",
    [
        {"message.timestamp.type": "LogAppendTime"},
        {"compression.type": "lz4"},
        {"flush.ms": 1 << 40},
        {"klog.flush.bytes": 1 << 30, "flush.messages": 1 << 30},
    ],
    ids=lambda config: next(iter(config)),
)
def test_no_configuration_needs_the_full_path_for_each_append(tmp_path: Path, config: dict[str, Any]) -> None:
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        log.append([(b"k", b"v")])
        assert frames_of(lambda: log.append([(b"k", b"v")])).total() <= APPEND_MAX


def test_encoded_batches_are_appended_without_the_full_path(log: klog.Log) -> None:
    batch = encode([(b"k", b"v", NOW)])
    log.append_batches(batch)
    assert frames_of(lambda: log.append_batches(batch)).total() <= APPEND_MAX


def test_a_full_path_is_counted(log: klog.Log) -> None:
    log.set_offsets_listener(lambda offset: None)
    assert frames_of(lambda: log.append([(b"k", b"v")])).total() >= FULL_MIN


@pytest.mark.parametrize("config", [{"flush.ms": 0}, {"flush.messages": 2}, {"klog.flush.bytes": 200}])
def test_a_due_flush_is_not_left_out(tmp_path: Path, config: dict[str, Any]) -> None:
    with klog.Log.open(tmp_path / "t-0", config=config) as log:
        for _ in range(4):
            log.append([(b"k", b"v" * 100)])
            log.append([(b"k", b"v" * 100)])
            assert log.recovery_point == log.log_end_offset


def test_a_signal_ends_an_append_of_an_iterator_without_python_code(log: klog.Log) -> None:
    """Python runs no code between its groups, so the append itself has to run the signal's handler."""

    def stop(*_: object) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(InterruptedError):  # noqa: PT012 - the signal may also come before the append
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            log.append(zip(itertools.repeat(b"k"), itertools.repeat(bytes(1 << 16), 1 << 10), strict=False))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert log.log_end_offset < 1 << 10 and log.offline is None
    assert log.count() == log.log_end_offset
