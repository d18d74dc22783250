"""Limits on the number of Python frames that an append enters: these numbers do not depend on the load of the machine.

An append that takes the full path by mistake enters some fifty frames.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import Notifier
from klog.errors import KlogError
from klog.log.write import append_batches
from klog.record import Lists, decode, encode
from tests.support.batches import NOW, batch, marker, produced, transactional
from tests.support.failing_files import FailingFiles
from tests.support.frames import frames_of
from tests.support.no_gc import no_gc

APPEND_MAX = 8  # of one append of records or of encoded batches; once in 10 ms, three more frames check for due tasks
FULL_MIN = 15
FULL_PATHS = (append_batches.lead_locked, append_batches.group_locked, append_batches.follow_locked)

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
    encoded = encode([(b"k", b"v", NOW)])
    log.append_batches(encoded)
    assert sent(log, encoded) <= APPEND_MAX


def test_a_commit_does_not_take_the_full_path(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", durability="sync") as log:
        log.append([(b"k", b"v")])
        log.append_batches(produced(5, 0, 0))
        for append in (
            lambda: log.append([(b"k", b"v")]),
            lambda: log.append_batches(encode([(b"k", b"v")])),
            lambda: log.append_batches(produced(5, 0, 1)),
            lambda: log.append_batches(batch(base_offset=log.log_end_offset, leader_epoch=0), origin="replication"),
        ):
            end, entered = log.log_end_offset, frames_of(append)
            assert log.log_end_offset == end + 1
            assert not entered.keys() & {function.__name__ for function in FULL_PATHS}


def test_a_full_path_of_a_commit_is_noticed(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0", durability="sync") as log:
        first = (  # each has a new epoch, producer or listener
            lambda: log.append([(b"k", b"v")]),
            lambda: log.append_batches(produced(5, 0, 0)),
            lambda: log.append_batches(
                batch(base_offset=log.log_end_offset, leader_epoch=7, producer_id=6), origin="replication"
            ),
        )
        entered = [frames_of(append).keys() for append in first]
    names = [function.__name__ for function in (FULL_PATHS[1], FULL_PATHS[0], FULL_PATHS[2])]
    assert [name in frames for name, frames in zip(names, entered, strict=True)] == [True] * 3


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
        with no_gc(), pytest.raises(InterruptedError):  # noqa: PT012 - the signal may also come before the append
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            log.append(zip(itertools.repeat(b"k"), itertools.repeat(bytes(1 << 16), 1 << 10), strict=False))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert log.log_end_offset < 1 << 10 and log.offline is None
    assert log.count() == log.log_end_offset


# ---- producers -------------------------------------------------------------------------------------------------------


def sent(log: klog.Log, batch: bytes, **how: Any) -> int:
    """Append the batch. Returns the number of frames."""
    return frames_of(lambda: log.append_batches(batch, **how)).total()


def test_data_of_a_known_producer_is_appended_without_the_full_path(log: klog.Log) -> None:
    assert sent(log, produced(5, 0, 0)) >= FULL_MIN  # not known yet
    for sequence in range(1, 9):
        assert sent(log, produced(5, 0, sequence)) <= APPEND_MAX
    assert log.producers[5].last_sequence == 8 and log.producers[5].last_offset == log.log_end_offset - 1


def test_data_in_an_open_transaction_is_appended_without_the_full_path(log: klog.Log) -> None:
    assert sent(log, transactional(5, 0, 0, 2)) >= FULL_MIN  # begins it
    first = log.last_stable_offset
    assert sent(log, transactional(5, 0, 2, 3)) <= APPEND_MAX
    assert sent(log, transactional(5, 0, 5)) <= APPEND_MAX
    assert sent(log, batch()) <= APPEND_MAX
    assert log.last_stable_offset == first == log.producers[5].current_txn_first_offset
    assert sent(log, marker(5, 0, "commit"), origin="coordinator") >= FULL_MIN
    assert log.last_stable_offset == log.log_end_offset
    assert sent(log, batch()) <= APPEND_MAX


UNUSUAL: dict[str, bytes] = {
    "duplicate": produced(5, 3, 2),
    "older duplicate": produced(5, 3, 1),
    "out of order": produced(5, 3, 4),
    "part of a duplicate": produced(5, 3, 2, 2),
    "older epoch": produced(5, 2, 3),
    "newer epoch": produced(5, 4, 0),
    "begins a transaction": transactional(5, 3, 3),
    "another producer": produced(6, 0, 0),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_anything_else_of_a_producer_has_the_result_of_the_full_path(tmp_path: Path, case: str) -> None:
    results = []
    for listener in (None, lambda offset: None):
        with klog.Log.open(tmp_path / f"{len(results)}-0", clock=ManualClock(NOW)) as log:
            log.set_offsets_listener(listener)
            for sequence in range(3):
                log.append_batches(produced(5, 3, sequence))
            log.append([(b"k", b"v", NOW)])
            try:
                result: object = log.append_batches(UNUSUAL[case])
            except KlogError as error:
                result = type(error), str(error)
            after = log.append_batches(produced(7, 0, 0))
            results.append((result, after, log.producers, log.log_end_offset, log.last_stable_offset))
    assert results[0] == results[1]


def replicated(log: klog.Log, *batches: bytes) -> bytes:
    """The batches as their leader stored them, with the next offsets."""
    parts, offset = [], log.log_end_offset
    for each in batches:
        (found,) = decode(each)
        parts.append(struct.pack(">qii", offset, len(each) - 12, 0) + each[16:])
        offset += found.last_offset - found.base_offset + 1
    return b"".join(parts)


def test_a_follower_appends_data_of_known_producers_without_the_full_path(log: klog.Log) -> None:
    first = replicated(log, produced(5, 0, 0), produced(6, 2, 0), transactional(7, 1, 0))
    assert sent(log, first, origin="replication") >= FULL_MIN
    more = [produced(5, 0, 1, 2), batch(), transactional(7, 1, 1), produced(5, 0, 3), produced(6, 2, 1)]
    assert sent(log, replicated(log, *more), origin="replication") <= APPEND_MAX
    states = log.producers
    assert [(states[pid].last_sequence, states[pid].last_offset) for pid in (5, 6, 7)] == [(3, 8), (1, 9), (1, 7)]
    assert states[7].current_txn_first_offset == log.last_stable_offset == 3


@pytest.mark.parametrize("last", [produced(5, 0, 9), produced(5, 1, 0), produced(6, 0, 0), transactional(5, 0, 2)])
def test_a_follower_has_the_state_of_the_full_path(tmp_path: Path, last: bytes) -> None:
    states = []
    for listener in (None, lambda offset: None):
        with klog.Log.open(tmp_path / f"{len(states)}-0", clock=ManualClock(NOW)) as log:
            log.set_offsets_listener(listener)
            log.append_batches(replicated(log, produced(5, 0, 0)), origin="replication")
            info = log.append_batches(replicated(log, produced(5, 0, 1), last, batch()), origin="replication")
            states.append((info, log.producers, log.log_end_offset, log.last_stable_offset))
    assert states[0] == states[1]


def test_data_of_a_coordinator_needs_no_sequence_numbers(log: klog.Log) -> None:
    sent_once = transactional(5, 0, -1)
    log.append_batches(sent_once, origin="coordinator")
    assert sent(log, sent_once, origin="coordinator") <= APPEND_MAX
    assert log.log_end_offset == 3 and log.producers[5].last_sequence == -1


def test_sequence_numbers_wrap_without_the_full_path(log: klog.Log) -> None:
    log.append_batches(produced(5, 0, 2**31 - 3, 2))
    assert sent(log, produced(5, 0, 2**31 - 1, 1)) <= APPEND_MAX
    assert sent(log, produced(5, 0, 0, 2)) <= APPEND_MAX
    assert log.producers[5].last_sequence == 1


def test_a_failed_write_leaves_the_producer_as_it_was(tmp_path: Path) -> None:
    files = FailingFiles(armed=False, error=errno.ENOSPC)
    with klog.Log.open(tmp_path / "t-0", files=files) as log:
        log.append_batches(produced(5, 0, 0))
        before = log.producers
        files.only, files.nth, files.calls, files.armed = ("write",), 1, 0, True
        with pytest.raises(OSError, match="No space"):
            log.append_batches(produced(5, 0, 1))
        assert files.failed == ["write"] and log.producers == before and log.offline is None
        assert not log.append_batches(produced(5, 0, 1)).is_duplicate
        assert log.append_batches(produced(5, 0, 1)).is_duplicate


def test_a_batch_is_a_duplicate_even_if_a_waiter_was_interrupted(
    log: klog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer's state changes before the log end, and before any Python code runs, such as the code that wakes
    readers."""
    log.append_batches(produced(5, 0, 0))

    def interrupt(notifier: Notifier) -> None:
        raise KeyboardInterrupt

    waiter = os.eventfd(0)
    log._core.notifier.listen(waiter)
    monkeypatch.setattr(Notifier, "notify", interrupt)
    end = log.log_end_offset
    with pytest.raises(KeyboardInterrupt):
        log.append_batches(produced(5, 0, 1))
    monkeypatch.undo()
    log._core.notifier.leave(waiter)
    os.close(waiter)
    assert log.log_end_offset == end + 1
    assert log.append_batches(produced(5, 0, 1)).is_duplicate
