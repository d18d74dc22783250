"""An append or a roll that raises at any step has no effect: none of its records is read, no offset is lost, and the
next append works as if the failed one had never been tried."""

from __future__ import annotations

import dis
import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from klog import Log
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from tests.support.abandon import abandon
from tests.support.batches import batch, marker, transactional
from tests.support.raising import ends

T = 1_700_000_000_000
SMALL = {"segment.bytes": 700, "index.interval.bytes": 100, "segment.index.bytes": 480}
BEFORE = [(b"k", b"before" * 20), (b"k", b"more" * 20)]
MANY = [(b"k", b"%d" % number * 150) for number in range(7)]


def values(log: Log) -> list[bytes]:
    return [record.value for record in log.read()]


def open_log(path: Path, **more: Any) -> Log:
    return Log.open(path / "t-0", config=SMALL, clock=ManualClock(T), **more)


class Unsynced(RealFiles):
    """Does not sync, for speed."""

    def fsync(self, file: LogFile) -> None: ...

    def fdatasync(self, file: LogFile) -> None: ...

    def fsync_dir(self, path: str) -> None: ...


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> RealFiles:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    return Unsynced()


def _leaves_a_with(frame: FrameType) -> bool:
    """Whether the frame is about to call __exit__. Tracing then reports the line of the `with` again. An exception
    there would skip the call, but no signal handler runs at that point."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
    enters = dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF"))
    return line.startswith("with ") and not enters


class Interrupt:
    """Raises KeyboardInterrupt at the Nth line that klog/log or klog/segment runs."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if "/klog/log/" not in name and "/klog/segment/" not in name:
            return None
        if event == "line":
            self.left -= 1
            if self.left <= 0 and not _leaves_a_with(frame):
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def during(self, action: Callable[[], object]) -> bool:
        return ends(self, KeyboardInterrupt, action)


@pytest.mark.parametrize(("durability", "stride"), [("os", 3), ("sync", 10)])
def test_an_interrupt_at_any_line_of_an_append(tmp_path: Path, fast: RealFiles, durability: str, stride: int) -> None:
    before, many = [v for _, v in BEFORE], [v for _, v in MANY]
    step = 1
    while True:
        place = tmp_path / str(step)
        place.mkdir()
        log = open_log(place, files=fast, durability=durability)
        log.append(BEFORE)
        interrupted = Interrupt(step).during(lambda log=log: log.append(MANY))
        assert log.offline is None
        got = values(log)
        assert got in (before, before + many), step
        assert log.log_end_offset == len(got) and log.recovery_point <= log.log_end_offset
        log.append([(b"k", b"last")])
        got.append(b"last")
        assert values(log) == got and log.count() == len(got)
        log.close()
        with open_log(place, files=fast, clean_shutdown=False) as again:
            assert values(again) == got, step
            assert again.recovery.bytes_truncated == 0
        if not interrupted:
            break
        step += stride
    assert step > 100


def test_an_interrupt_at_any_line_of_a_marker(tmp_path: Path, fast: RealFiles) -> None:
    """The append is interrupted in data of a transaction, in its marker, and in a roll before. Producers, aborted
    transactions and read_committed records are those before or after the append, and the same after a reopen."""
    sent = batch([b"x" * 300], leader_epoch=0, base_offset=2) + transactional(1, 0, 5, 2, base_offset=3)
    sent += marker(1, 0, "abort", base_offset=5) + transactional(2, 0, 0, 1, base_offset=6)

    def state(log: Log) -> tuple[Any, ...]:
        producers = {pid: (known.epoch, known.last_sequence, known.current_txn_first_offset)
                     for pid, known in log.producers.items()}  # fmt: skip
        return log.log_end_offset, log.last_stable_offset, log.aborted_transactions(), producers, len(values(log))

    outcomes: set[str] = set()
    step = 1
    while True:
        place = tmp_path / str(step)
        place.mkdir()
        log = open_log(place, files=fast)
        log.append_batches(transactional(1, 0, 4, 2))
        before = state(log)
        assert before == (2, 0, [], {1: (0, 5, 0)}, 2)
        after = (7, 6, [(1, 0, 5, 6)], {1: (0, 6, None), 2: (0, 0, 6)}, 6)
        interrupted = Interrupt(step).during(lambda log=log: log.append_batches(sent, origin="replication"))
        assert log.offline is None
        now = state(log)
        assert now in (before, after), step
        outcomes.add(str(now))
        abandon(log)
        with open_log(place, files=fast, clean_shutdown=False) as again:
            assert state(again) == now, step
            if now == before:
                again.append_batches(sent, origin="replication")
                assert state(again) == after
        if not interrupted:
            break
        step += 1
    assert step > 100 and len(outcomes) == 2


def test_an_interrupt_at_any_line_of_a_roll(tmp_path: Path, fast: RealFiles) -> None:
    step = 1
    while True:
        place = tmp_path / str(step)
        place.mkdir()
        log = open_log(place, files=fast)
        log.append(BEFORE)
        interrupted = Interrupt(step).during(log.roll)
        log.append([(b"k", b"last")])
        assert values(log) == [*(v for _, v in BEFORE), b"last"]
        log.close()
        with open_log(place, files=fast, clean_shutdown=False) as again:
            assert again.log_end_offset == 3
        if not interrupted:
            break
        step += 1
    assert step > 20


class Watched(RealFiles):
    """Records what was made durable, and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        self.fail: Callable[[str, str], bool] = lambda action, path: False

    def _note(self, action: str, path: str) -> None:
        if self.fail(action, path):
            raise OSError(28, "no space left on device", path)
        self.events.append((action, Path(path).name))

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        if create:
            self._note("create", path)
        return super().open(path, write=write, create=create)

    def fsync(self, file: LogFile) -> None:
        self._note("fsync", file.path)
        super().fsync(file)

    def fdatasync(self, file: LogFile) -> None:
        self._note("fdatasync", file.path)
        super().fdatasync(file)

    def truncate(self, file: LogFile, size: int) -> None:
        self._note("truncate", file.path)
        super().truncate(file, size)

    def fsync_dir(self, path: str) -> None:
        self._note("fsync_dir", path)
        super().fsync_dir(path)


def test_a_rolled_back_append_is_gone_from_disk_before_the_next_append(tmp_path: Path) -> None:
    files = Watched()
    with open_log(tmp_path, files=files) as log:
        log.append(BEFORE)
        third = "00000000000000000006.log"
        created: list[str] = []

        def fail(action: str, path: str) -> bool:
            if action == "create" and path.endswith(".log"):
                created.append(Path(path).name)
            return action == "create" and len(created) == 2

        files.fail = fail
        with pytest.raises(OSError, match="no space"):
            log.append(MANY)
        files.fail = lambda action, path: False
        assert created[0] != third and log.offline is None
        assert sorted(path.name for path in (tmp_path / "t-0").glob("*.log")) == ["00000000000000000000.log"]
        truncated = max(i for i, event in enumerate(files.events) if event == ("truncate", "00000000000000000000.log"))
        assert ("fsync", "00000000000000000000.log") in files.events[truncated:]
        assert ("fsync_dir", "t-0") in files.events[truncated:]
        assert log.recovery_point <= log.log_end_offset == 2


def test_records_of_a_failed_sync_are_never_readable(tmp_path: Path) -> None:
    files = Watched()
    log = open_log(tmp_path, files=files, durability="sync")
    log.append(BEFORE)
    files.fail = lambda action, path: action == "fdatasync"
    with pytest.raises(OSError, match="no space"):
        log.append([(b"k", b"lost")])
    assert log.offline is not None and log.log_end_offset == 2 and len(values(log)) == 2
    log.close()


def test_segments_that_a_crash_left_unsynced_are_on_disk_below_the_recovery_point(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.append(MANY)
        closed = [Path(segment.path).name for segment in log.segments[:-1]]
    assert len(closed) > 1
    files = Watched()
    with open_log(tmp_path, files=files, clean_shutdown=False, recovery_point=0) as log:
        log.roll()
        assert log.recovery_point == log.log_end_offset
        assert {name for action, name in files.events if action in ("fsync", "fdatasync")} >= set(closed)
