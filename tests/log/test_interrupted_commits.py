"""Signals in the middle of a commit: a second interrupt, and handlers that call the log."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import LogFile, RealFiles
from klog.errors import KlogError, StorageOffline
from tests.log.test_group_commit import Appender, Gated, opened, put
from tests.support.abandon import abandon
from tests.support.logs import values
from tests.support.patience import PATIENCE, until
from tests.support.raising import Raising


def test_ctrl_c_twice_never_acknowledges_a_missing_append(tmp_path: Path) -> None:
    """The second one interrupts the rollback: the log goes offline, and the next open recovers it."""

    class Interrupting(Gated):
        armed = 0

        def fdatasync(self, file: LogFile) -> None:
            super().fdatasync(file)
            self.interrupt(2)

        def fsync(self, file: LogFile) -> None:
            super().fsync(file)
            self.interrupt(1)

        def interrupt(self, left: int) -> None:
            if threading.current_thread() is threading.main_thread() and self.armed == left:
                self.armed -= 1
                raise KeyboardInterrupt

    files, others = Interrupting(), list[Appender]()
    with opened(tmp_path, files) as log:
        log.append([(None, b"first")])
        files.close()
        first = Appender(put(log, b"holds"))
        assert files.entered.acquire(timeout=PATIENCE)

        def append_while_the_main_thread_waits() -> None:
            until(lambda: len(log._core.commits) == 1)
            others.append(Appender(put(log, b"other")))
            until(lambda: len(log._core.commits) == 2)
            files.armed = 2
            files.gate.set()

        helper = Appender(append_while_the_main_thread_waits)
        with pytest.raises(KeyboardInterrupt):
            log.append([(None, b"interrupted")])
        helper.outcome()
        assert first.outcome().first_offset == 1 and files.armed == 0
        with pytest.raises(StorageOffline):
            others[0].outcome()
        assert log.offline is not None and values(log) == [b"first", b"holds"]
    with opened(tmp_path, RealFiles()) as log:
        assert values(log) == [b"first", b"holds"]


def commit_with(path: Path, raising: Raising, with_other: bool) -> None:
    """Let the main thread commit a record, alone or with one of another thread, and be interrupted."""
    files, other = Gated(), list[Appender]()
    path.mkdir()
    with opened(path, files) as log:
        files.close()
        first = Appender(put(log, b"holds"))
        assert files.entered.acquire(timeout=PATIENCE)

        def append_while_the_main_thread_waits() -> None:
            until(lambda: len(log._core.commits) == 1)
            if with_other:
                other.append(Appender(put(log, b"other")))
                until(lambda: len(log._core.commits) == 2)
            files.gate.set()

        helper = Appender(append_while_the_main_thread_waits)
        ended = raising.ends(lambda: log.append([(None, b"mine")]))
        helper.outcome()
        first.outcome()
        for each in other:
            try:
                each.outcome()
                expected = 1
            except StorageOffline:
                expected = 0
            assert values(log).count(b"other") == expected
        assert values(log).count(b"mine") == (not ended)


@pytest.mark.parametrize(("function", "with_other"), [("_write_joined", True), ("_write", False)])
def test_an_exception_of_a_handler_beside_a_write_appends_nothing_twice(
    tmp_path: Path, function: str, with_other: bool
) -> None:
    """C4"""
    for number in itertools.count():
        raising = Raising("write/commit.py", function, number)
        commit_with(tmp_path / str(number), raising, with_other)
        if raising.left >= 0:
            assert number > 50
            break


def roll(log: klog.Log) -> object:
    return log.roll()


HANDLERS: list[Callable[[klog.Log], Any]] = [
    lambda log: log.append([(None, b"from the handler")]),
    roll,
    lambda log: log.truncate_to(0),
    lambda log: log.truncate_fully_and_start_at(0),
    lambda log: log.delete_records(1),
    lambda log: log.apply_retention(),
    lambda log: log.update_config(log.config),
    lambda log: log.close(),
    lambda log: log.delete(),
]


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_inside_a_commit_is_refused(tmp_path: Path, handler: Callable[[klog.Log], Any]) -> None:
    """The handler would find a half-changed log. If the handler does not catch the error, the append fails, but the log
    stays open."""

    class Handling(RealFiles):
        armed = caught = False

        def fdatasync(self, file: LogFile) -> None:
            super().fdatasync(file)
            if self.armed:  # as in a signal's handler: the same thread, with the lock held
                self.armed = False
                if not self.caught:
                    handler(log)
                with pytest.raises(KlogError, match="inside an append"):
                    handler(log)

    files = Handling()
    with opened(tmp_path, files) as log:
        log.append([(None, b"first")])
        files.armed = files.caught = True
        assert log.append([(None, b"second")]).first_offset == 1
        files.armed, files.caught = True, False
        with pytest.raises(KlogError, match="inside an append"):
            log.append([(None, b"third")])
        assert log.append([(None, b"fourth")]).first_offset == 2
        assert log.offline is None and not log.verify().problems
        assert values(log) == [b"first", b"second", b"fourth"]
    with opened(tmp_path, RealFiles()) as log:
        assert values(log) == [b"first", b"second", b"fourth"]


def test_a_commit_rolls_nothing_back_in_a_closed_log(tmp_path: Path) -> None:
    """Another process may hold its directory's lock by then."""

    class Closing(RealFiles):
        armed = False

        def fdatasync(self, file: LogFile) -> None:
            super().fdatasync(file)
            if self.armed:
                self.armed = False
                abandon(log)
                raise SystemExit

    files = Closing()
    log = opened(tmp_path, files)
    log.append([(None, b"first")])
    files.armed = True
    with pytest.raises(SystemExit):
        log.append([(None, b"second")])
    assert not log._core.segments[-1].active
    with opened(tmp_path, RealFiles()) as log:
        assert values(log)[0] == b"first"
