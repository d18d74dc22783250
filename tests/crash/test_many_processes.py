"""Writers that are suspended, killed or forked, while another process tries to open their log for writing."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import klog
from klog.disk import DirectoryLock
from klog.errors import AlreadyLocked, CorruptLog, ForkedHandle
from tests.support.child import in_child
from tests.support.messages import Worker
from tests.support.patience import until

Send = Callable[[object], None]
CONFIG = {"segment.bytes": 4000, "cleanup.policy": "delete"}


def value(number: int) -> bytes:
    return b"%06d" % number + b"v" * 60


def appends(path: Path, durability: str) -> Callable[[Send], None]:
    """A writer that appends and flushes in an endless loop. It sends its log end after each append and each flush."""

    def write(send: Send) -> None:
        logs = klog.open(path, create=True, durability=durability)  # type: ignore[arg-type]
        if "t" not in logs.topics():
            logs.create_topic("t", config=CONFIG)
        log = logs.log("t")
        while True:
            log.append([(None, value(log.log_end_offset + at)) for at in range(3)])
            if durability == "os":
                log.flush()
            send(log.log_end_offset)

    return write


def compacts(path: Path) -> Callable[[Send], None]:
    """A writer that appends and compacts in an endless loop. It sends how many records it has appended; each has a key
    of its own."""

    def write(send: Send) -> None:
        logs = klog.open(path, create=True)
        if "t" not in logs.topics():
            logs.create_topic("t", config={**CONFIG, "cleanup.policy": "compact"})
        log = logs.log("t")
        while True:
            first = log.log_end_offset
            log.append([(b"%d" % (first + at), value(first + at)) for at in range(3)])
            log.compact(roll=True)
            send(log.log_end_offset)

    return write


WORK: dict[str, Callable[[Path], Callable[[Send], None]]] = {
    "append": lambda path: appends(path, "sync"),
    "flush": lambda path: appends(path, "os"),
    "compaction": compacts,
}


def check(logs: klog.LogManager, least: object) -> None:
    found = [(record.offset, record.value) for record in logs.log("t").read()]
    assert found == [(number, value(number)) for number in range(len(found))]
    assert isinstance(least, int) and len(found) >= least


@pytest.mark.parametrize("work", WORK)
def test_a_suspended_writer_keeps_its_log_until_it_dies(tmp_path: Path, work: str, crash_seed: int) -> None:
    """F30: other processes may read, but not write. The writer continues after it is resumed, and its death releases
    its lock."""
    rng, path, read = random.Random(crash_seed), tmp_path / "data", 0
    for _ in range(3):
        with Worker(WORK[work](path)) as writer:
            for _ in range(4):
                for _ in range(rng.randint(1, 6)):
                    message = writer.message()
                    assert message is not None
                time.sleep(rng.random() * 0.003)
                writer.signal(signal.SIGSTOP)
                assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
                with pytest.raises(AlreadyLocked, match=f"held by process {writer.pid};"):
                    klog.open(path)
                try:
                    with klog.open(path, read_only=True) as logs:
                        check(logs, message.content)
                        read += 1
                except CorruptLog:
                    if not list(path.glob("t-0/*.log.swap")):
                        raise
                writer.signal(signal.SIGCONT)
                assert writer.message() is not None, f"it did not go on (seed {crash_seed})"
            writer.signal(signal.SIGSTOP)
            writer.signal(signal.SIGKILL)
            last = ([message.content, *(late.content for late in writer.rest())])[-1]
            assert writer.end() == -signal.SIGKILL
        with klog.open(path) as logs:
            assert not logs.log("t").recovery.clean_shutdown
            check(logs, last)
    assert read


def test_a_suspended_writer_keeps_its_log_when_a_user_removes_its_lock_file(tmp_path: Path) -> None:
    """A second writer would overwrite what the first has at the same positions, and the first what the second has."""
    path = tmp_path / "data"
    with Worker(appends(path, "os")) as writer:
        assert writer.message() is not None
        writer.signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(writer.pid, os.WUNTRACED)[1])
        for _ in range(2):  # the first attempt leaves a new lock file
            (path / ".lock").unlink()
            with pytest.raises(AlreadyLocked, match="removed"):
                klog.open(path)
            with pytest.raises(AlreadyLocked, match="removed"):
                klog.Log.open(path / "t-0")
        writer.signal(signal.SIGCONT)
        last = writer.message()
        writer.signal(signal.SIGKILL)
        rest = [late.content for late in writer.rest()]
        assert last is not None and writer.end() == -signal.SIGKILL
    with klog.open(path) as logs:
        check(logs, [last.content, *rest][-1])


# ---- the holder dies, and its child lives ----------------------------------------------------------------------------


def _forked() -> int:
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


def _of_multiprocessing(way: str) -> int:
    child = multiprocessing.get_context(way).Process(target=time.sleep, args=(600,))
    child.start()
    assert child.pid is not None
    return child.pid


CHILDREN: dict[str, Callable[[], int]] = {
    "fork": _forked,
    "multiprocessing fork": lambda: _of_multiprocessing("fork"),
    "multiprocessing spawn": lambda: _of_multiprocessing("spawn"),
    "subprocess with all descriptors": lambda: (
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False).pid
    ),
}


def is_free(path: Path) -> bool:
    try:
        DirectoryLock(str(path)).release()
    except AlreadyLocked:
        return False
    return True


@pytest.mark.parametrize("kind", CHILDREN)
@pytest.mark.parametrize("alone", [True, False], ids=["Log", "LogManager"])
def test_a_dead_writer_s_child_holds_no_lock(tmp_path: Path, kind: str, alone: bool) -> None:
    def write(send: Send) -> None:
        opened = klog.Log.open(tmp_path / "t-0") if alone else klog.open(tmp_path, create=True)
        if isinstance(opened, klog.LogManager):
            opened.create_topic("t")
        log = opened if isinstance(opened, klog.Log) else opened.log("t")
        log.append([(None, value(0))])
        send(CHILDREN[kind]())
        time.sleep(600)

    with Worker(write) as writer:
        message = writer.message()
        assert message is not None
        try:
            writer.signal(signal.SIGKILL)
            os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
            os.kill(message.content, 0)  # the child lives
            until(lambda: is_free(tmp_path))  # the child closes its copies when it first runs
            with klog.open(tmp_path) as logs:
                check(logs, 1)
        finally:
            os.kill(message.content, signal.SIGKILL)


# ---- forks while threads append --------------------------------------------------------------------------------------


@contextlib.contextmanager
def appending(log: klog.Log, threads: int) -> Iterator[list[bytes]]:
    """Threads that append until the block ends; the list gets what was acknowledged."""
    kept: list[bytes] = []
    end = threading.Event()

    def work(me: int) -> None:
        number = 0
        while not end.is_set():
            data = b"%d.%d" % (me, number)
            log.append([(None, data)])
            kept.append(data)
            number += 1

    running = [threading.Thread(target=work, args=(me,)) for me in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield kept
    finally:
        end.set()
        for thread in running:
            thread.join()


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_children_forked_amid_appends_write_nothing_and_do_not_hang(tmp_path: Path, durability: str) -> None:
    """F26: this holds whatever locks the other threads held when the child was forked."""
    with klog.open(tmp_path, create=True, durability=durability) as logs:  # type: ignore[arg-type]
        logs.create_topic("t", config=CONFIG)
        log = logs.log("t")

        def child() -> tuple[str, int]:
            for call in (lambda: log.append([(None, b"of the child")]), log.flush, log.roll):
                with pytest.raises(ForkedHandle):
                    call()
            with pytest.raises(AlreadyLocked, match=f"held by process {os.getppid()};"):
                klog.open(tmp_path)
            with klog.open(tmp_path, read_only=True) as mine:
                return "ok", mine.log("t").count()

        with appending(log, 3) as kept:
            for _ in range(12):
                before = len(kept)
                said, count = in_child(child)
                assert said == "ok" and count >= before
        found = [record.value for record in log.read()]
        assert sorted(found, key=bytes) == sorted(kept)  # type: ignore[arg-type]
    with klog.open(tmp_path) as logs:
        assert logs.log("t").recovery.clean_shutdown and logs.log("t").count() == len(kept)


def test_a_child_that_exits_as_usual_leaves_its_parent_s_log_alone(tmp_path: Path) -> None:
    """multiprocessing runs exit handlers and finalizers in its children."""
    with klog.open(tmp_path, create=True) as logs:
        logs.create_topic("t", config=CONFIG)
        log = logs.log("t")
        with appending(log, 2) as kept:
            for _ in range(4):
                process = multiprocessing.get_context("fork").Process(target=len, args=((log, logs),))
                process.start()
                process.join()
                assert process.exitcode == 0
        assert log.count() == len(kept) and (tmp_path / ".lock").exists()
