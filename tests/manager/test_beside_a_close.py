"""What other threads do while a manager, or one of its logs, is closed: after the close nothing is written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import klog
from klog.clock import ManualClock
from klog.disk import LogFile, RealFiles
from klog.errors import AlreadyLocked, LogClosed, ReentrantCall
from klog.log import opening
from klog.log.directory import checkpoint
from klog.log.load.inputs import Inputs
from klog.log.load.loader import Loaded
from klog.log.read import warm_ranges
from tests.support.abandon import abandon
from tests.support.patience import PATIENCE, until
from tests.support.signals import signal_when_waiting

NOW = 1_700_000_000_000
MARKER = ".kafka_cleanshutdown"


class Interposed(RealFiles):
    """Calls `action` once, before it opens or syncs a file whose path contains `at`."""

    def __init__(self) -> None:
        super().__init__()
        self.at, self.action = "", (lambda: None)

    def before(self, at: str, action: Callable[[], None]) -> None:
        self.at, self.action = at, action

    def _reach(self, path: str) -> None:
        if self.at and self.at in path:
            self.at = ""
            self.action()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> LogFile:
        self._reach(path)
        return super().open(path, write=write, create=create)

    def fdatasync(self, file: LogFile) -> None:
        self._reach(file.path)
        super().fdatasync(file)


class Beside:
    """Runs a call in another thread. waits: the call has not ended."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.error = error

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self.waits
        return self.error


class Closer:
    """Closes a manager in another thread, until the close has ended or waits for this thread."""

    def __init__(self, logs: klog.LogManager) -> None:
        self._logs = logs
        self.beside: Beside | None = None
        self.waited = False

    def __call__(self) -> None:
        beside = self.beside = Beside(self._logs.close)
        until(lambda: not beside.waits or self._logs._state.waiting)
        self.waited = beside.waits

    def end(self) -> None:
        assert self.beside is not None
        assert self.beside.end() is None


def made(path: Path, files: RealFiles | None = None) -> klog.LogManager:
    logs = klog.open(path, create=True, files=files, clock=ManualClock(NOW))
    logs.create_topic("t")
    logs.append("t", [(None, b"%d" % number * 60) for number in range(10)])
    return logs


@pytest.mark.parametrize("clean", [True, False])
def test_a_close_waits_for_a_load_and_leaves_the_directory_as_it_was(
    tmp_path: Path, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load may truncate a log. After the close another process may append to it."""
    logs = made(tmp_path)
    logs.close() if clean else abandon(logs)
    logs = klog.open(tmp_path, clock=ManualClock(NOW))
    closer, load = Closer(logs), opening.load_writable

    def closed_meanwhile(inputs: Inputs) -> Loaded:
        closer()
        return load(inputs)

    monkeypatch.setattr(opening, "load_writable", closed_meanwhile)
    with pytest.raises(LogClosed):
        logs.log("t")
    closer.end()
    assert closer.waited
    assert (tmp_path / MARKER).exists() is clean
    monkeypatch.undo()
    with klog.open(tmp_path) as logs:
        assert logs.count("t") == 10


@pytest.mark.parametrize("at", ["a load", "a move", "an append", "the close of a log"])
def test_an_interrupted_close_keeps_the_lock_while_another_thread_writes(
    tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the wait for that thread. If the lock were free, another process would append where it still
    truncates and writes."""
    files, going, held = Interposed(), threading.Event(), threading.Event()
    paths = [tmp_path / "a", tmp_path / "b"]
    logs = klog.open(paths, create=True, files=files, clock=ManualClock(NOW), durability="sync")
    for topic in ("t", "u"):
        logs.create_topic(topic, directory=paths[0])
        logs.append(topic, [(None, b"%d" % number) for number in range(10)])
    if at == "a load":
        logs.log("t").close()

    def hold() -> None:
        held.set()
        assert going.wait(PATIENCE)

    def held_load(inputs: Inputs, load: Callable[[Inputs], Loaded] = opening.load_writable) -> Loaded:
        hold()
        return load(inputs)

    calls: dict[str, Callable[[], object]] = {
        "a load": lambda: logs.log("t"),
        "a move": lambda: logs.move("t", 0, paths[1]),
        "an append": lambda: logs.append("t", [(None, b"last")]),
        "the close of a log": lambda: logs.log("t").close(),
    }
    files.before("-future/" if at == "a move" else "t-0/", hold)
    monkeypatch.setattr(opening, "load_writable", held_load)
    beside = Beside(calls[at])
    assert held.wait(PATIENCE)
    with pytest.raises(KeyboardInterrupt), signal_when_waiting(signal.SIGINT):
        logs.close()
    with pytest.raises(AlreadyLocked):
        klog.open(paths, files=RealFiles())
    going.set()
    assert isinstance(beside.end(), (LogClosed, type(None)))
    logs.close()
    monkeypatch.undo()
    with klog.open(paths) as again:
        assert again.count("t") in (10, 11)
        assert again.count("u") == 10


def test_a_close_inside_a_move_of_the_same_thread_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    logs = klog.open([tmp_path / "a", tmp_path / "b"], create=True, clock=ManualClock(NOW))
    logs.create_topic("t", directory=tmp_path / "a")
    logs.append("t", [(None, b"x")])
    with pytest.raises(ReentrantCall, match=r"a close inside a move of t-0 by the same thread"):
        logs.move("t", 0, tmp_path / "b", progress=lambda _: logs.close())
    assert logs.moves() == []
    logs.move("t", 0, tmp_path / "b")
    logs.close()


def test_a_close_ends_a_move_and_waits_until_its_copy_is_removed(tmp_path: Path) -> None:
    files = Interposed()
    logs = klog.open([tmp_path / "a", tmp_path / "b"], create=True, files=files, clock=ManualClock(NOW))
    logs.create_topic("t", directory=tmp_path / "a")
    logs.append("t", [(None, b"x")])
    closer = Closer(logs)
    files.before("-future/", closer)
    with pytest.raises(LogClosed):
        logs.move("t", 0, tmp_path / "b")
    closer.end()
    assert closer.waited
    assert (tmp_path / "a" / MARKER).exists()
    assert not any(path.is_dir() for path in (tmp_path / "b").iterdir())
    with klog.open([tmp_path / "a", tmp_path / "b"]) as logs:
        assert logs.count("t") == 1


def test_a_start_beside_a_close_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks removed the high watermarks of the stop, of a directory that another process may use by then."""
    made(tmp_path).close()
    logs = klog.open(tmp_path, config={"replica.high.watermark.checkpoint.interval.ms": 1})
    real = warm_ranges.at_open

    def closed_meanwhile(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        logs.close()

    monkeypatch.setattr(warm_ranges, "at_open", closed_meanwhile)
    with pytest.raises(LogClosed):
        logs.start()
    assert not logs._scheduler.running
    assert logs._scheduler.next_due_ms is None
    assert (tmp_path / checkpoint.HIGH_WATERMARK).exists()


def test_a_deletion_waits_for_a_close_of_a_log(tmp_path: Path) -> None:
    """The close writes a snapshot into the directory that the deletion renames."""
    files = Interposed()
    logs = made(tmp_path, files)
    log = logs.log("t")
    deletions: list[Beside] = []

    def delete() -> None:
        deletions.append(Beside(lambda: logs.delete_topic("t")))
        until(lambda: not deletions[0].waits or logs.topic_entries()["t"].state == "deleting")

    files.before("t-0", delete)
    log.close()
    assert deletions[0].end() is None
    assert logs.topics() == {}
    logs.close()
    assert (tmp_path / MARKER).exists()
