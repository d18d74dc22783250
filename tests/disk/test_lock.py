"""DirectoryLock has one holder, named in errors; a dead holder or a forked child blocks no process."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import klog
from klog.disk import DirectoryLock, Leases, directory_lock
from klog.errors import AlreadyLocked
from tests.support.child import in_child, living_child
from tests.support.patience import PATIENCE
from tests.support.raising import Raising


def test_a_second_lock_in_this_process_raises_naming_the_holder(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    with pytest.raises(AlreadyLocked, match=f"process {os.getpid()} .this one.") as caught:
        DirectoryLock(str(tmp_path))
    assert caught.value.path == str(tmp_path)
    assert caught.value.holder == f"process {os.getpid()} (this one)"
    assert "read_only=True" in str(caught.value)
    lock.release()
    DirectoryLock(str(tmp_path)).release()


def running(code: str, path: Path) -> subprocess.Popen[str]:
    """Python code in a process of its own, which can wait for the end of its standard input."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=pipe, stdout=pipe, text=True)


def test_another_processs_lock_raises_and_ends_with_the_process(tmp_path: Path) -> None:
    code = (
        "import sys; from klog.disk import DirectoryLock; l = DirectoryLock(sys.argv[1]); "
        "print('held', flush=True); sys.stdin.read()"
    )
    child = running(code, tmp_path)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(AlreadyLocked, match=f"held by process {child.pid};"):
            DirectoryLock(str(tmp_path))
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert (tmp_path / ".lock").exists()  # a leftover file blocks no process
    DirectoryLock(str(tmp_path)).release()


def test_a_dead_holders_name_is_ignored(tmp_path: Path) -> None:
    """A broker writes no name into the file: a name that an earlier klog has written there is that of another process."""
    (tmp_path / ".lock").write_text(f"pid={os.getpid()} start=1\n")
    fd = os.open(tmp_path / ".lock", os.O_RDWR)
    fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    try:
        with pytest.raises(AlreadyLocked, match="another process") as caught:
            DirectoryLock(str(tmp_path))
        assert caught.value.holder is None
    finally:
        os.close(fd)


def test_closing_another_descriptor_of_the_file_keeps_the_lock(tmp_path: Path) -> None:
    """A POSIX lock would be released here."""
    lock = DirectoryLock(str(tmp_path))
    (tmp_path / ".lock").read_bytes()
    assert in_child(lambda: DirectoryLock(str(tmp_path)))[0] == "AlreadyLocked"
    lock.release()


def test_it_respects_a_jvms_lock(tmp_path: Path) -> None:
    """Java's FileChannel.lock is a POSIX record lock."""
    (tmp_path / ".lock").touch()
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    child = running(code, tmp_path / ".lock")
    try:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(AlreadyLocked):
            DirectoryLock(str(tmp_path))
    finally:
        child.kill()
        child.communicate()


def test_release_removes_the_file_and_may_be_repeated(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    assert (tmp_path / ".lock").exists()
    lock.release()
    lock.release()
    assert not (tmp_path / ".lock").exists()


def test_shared_locks_exclude_an_exclusive_one(tmp_path: Path) -> None:
    first, second = DirectoryLock(str(tmp_path), shared=True), DirectoryLock(str(tmp_path), shared=True)
    with pytest.raises(AlreadyLocked):
        DirectoryLock(str(tmp_path))
    assert not first.alone()
    second.release()
    assert (tmp_path / ".lock").exists()
    with pytest.raises(AlreadyLocked):
        DirectoryLock(str(tmp_path))
    assert first.alone()
    with pytest.raises(AlreadyLocked):  # alone() has made it exclusive
        DirectoryLock(str(tmp_path), shared=True)
    first.release()
    DirectoryLock(str(tmp_path)).release()


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False)])
def test_a_lock_file_that_is_removed_lets_no_other_holder_in(tmp_path: Path, first: bool, second: bool) -> None:
    lock = DirectoryLock(str(tmp_path), shared=first)
    (tmp_path / ".lock").unlink()
    with pytest.raises(AlreadyLocked, match="removed"):
        DirectoryLock(str(tmp_path), shared=second)
    lock.release()
    DirectoryLock(str(tmp_path), shared=second).release()


def test_shared_locks_are_not_alone_after_their_file_was_removed(tmp_path: Path) -> None:
    first = DirectoryLock(str(tmp_path), shared=True)
    (tmp_path / ".lock").unlink()
    second = DirectoryLock(str(tmp_path), shared=True)
    assert not first.alone()
    first.release()
    assert second.alone()
    second.release()


def test_a_shared_lock_of_this_process_is_named_in_the_error(tmp_path: Path) -> None:
    with klog.Log.open(tmp_path / "t-0"), pytest.raises(AlreadyLocked, match=rf"Log\.open of process {os.getpid()} "):
        klog.open(tmp_path)


def test_an_exclusive_lock_excludes_shared_ones(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))
    with pytest.raises(AlreadyLocked, match="this one"):
        DirectoryLock(str(tmp_path), shared=True)
    lock.release()


def test_a_forked_child_neither_holds_nor_releases_its_parent_s_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path))

    def child() -> str:
        lock.release()
        return "released"

    assert in_child(child) == "released"
    assert (tmp_path / ".lock").exists()
    with pytest.raises(AlreadyLocked):
        DirectoryLock(str(tmp_path))

    with living_child():
        lock.abandon()  # as if the parent died; release() would also remove the file
        DirectoryLock(str(tmp_path)).release()


def test_a_forked_child_does_not_keep_the_flock_of_a_directory(tmp_path: Path) -> None:
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with directory_lock(str(tmp_path)):
            held.set()
            assert go.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE)
    with living_child():
        go.set()
        thread.join()
        assert is_free(tmp_path)


def test_a_forked_child_does_not_keep_the_flock_of_a_parent_that_dies(tmp_path: Path) -> None:
    ends, end = os.pipe()
    parent = os.fork()
    if not parent:
        with directory_lock(str(tmp_path)):
            if not os.fork():
                os.close(end)
                os.read(ends, 1)
            os._exit(0)  # the parent, and later the child
    os.waitpid(parent, 0)
    assert is_free(tmp_path)
    os.close(end)
    os.close(ends)


def is_free(directory: Path) -> bool:
    """Can another process take the directory_lock now?"""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def test_a_symlink_as_lock_file_raises(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        DirectoryLock(str(tmp_path))
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


def test_a_lock_on_a_file_that_was_unlinked_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.1: between open and lock the last holder may remove the file, and the next one make another. On a file system that
    locks no directories, where only the file excludes others."""
    real, others = fcntl.fcntl, list[Any]()

    def lock_then_lose_the_file(*args: Any) -> Any:
        if stat.S_ISDIR(os.fstat(args[0].fileno()).st_mode):
            raise OSError(errno.ENOLCK, "no locks")
        result = real(*args)
        if not others:
            os.unlink(tmp_path / ".lock")
            others.append(None)
            others[0] = DirectoryLock(str(tmp_path))
        return result

    monkeypatch.setattr(fcntl, "fcntl", lock_then_lose_the_file)
    with pytest.raises(AlreadyLocked):
        DirectoryLock(str(tmp_path))
    others[0].release()


def descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


@pytest.mark.parametrize("kind", ["lock", "leases", "log"])
def test_a_release_that_is_interrupted_anywhere_closes_its_descriptor_once(tmp_path: Path, kind: str) -> None:
    """By a signal handler that raises. A second close would close what has its number by then."""

    def made() -> DirectoryLock | Leases | klog.Log:
        if kind == "lock":
            return DirectoryLock(str(tmp_path))
        if kind == "log":
            return klog.Log.open(tmp_path / "t-0")
        leases = Leases(str(tmp_path), "leases", "me")
        assert leases.take(0)
        return leases

    file, function = {
        "lock": ("disk/lock.py", "release"),
        "leases": ("disk/leases.py", "close"),
        "log": ("log/standalone.py", "_unlock"),
    }[kind]

    def release(holder: DirectoryLock | Leases | klog.Log) -> None:
        if isinstance(holder, DirectoryLock):
            holder.release()
        else:
            holder.close()

    release(made())
    before, number, ended = descriptors(), 0, True
    while ended:
        holder = made()
        ended = Raising(file, function, number).ends(lambda holder=holder: release(holder))  # type: ignore[misc]
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
        release(holder)
        for other in others:
            os.close(other)  # raises if it was closed in place of the lock's
        release(made())
        number += 1
    assert number > 20
    assert descriptors() == before


def test_a_directory_lock_excludes_every_other(tmp_path: Path) -> None:
    """Else two processes that read, change and replace a file would lose a change."""
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with directory_lock(str(tmp_path)), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(other)
