"""Leases of numbers between holders, in one process or in several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from klog.disk import NUMBERS, Holder, Leases, Waiter, watch
from klog.errors import AlreadyLocked, ForkedHandle, LogClosed
from tests.support.patience import PATIENCE


def made(path: Path, name: str) -> Leases:
    return Leases(str(path), "l", name)


def test_a_number_has_one_holder(tmp_path: Path) -> None:
    a, b = made(tmp_path, "a"), made(tmp_path, "b")
    assert a.take(3) and a.take(3) and not b.take(3) and b.take(4)
    assert not a.take(0, NUMBERS) and not a.take(4)
    a.give_up(3)
    assert b.take(0, NUMBERS) and not a.take(2**31 - 1)
    b.close()
    b.close()
    assert a.take(0, NUMBERS)
    with pytest.raises(LogClosed, match="this reader was closed"):
        b.take(1)


def test_living_holders_have_a_rank(tmp_path: Path) -> None:
    holders = [made(tmp_path, f"h{number}") for number in range(5)]
    assert [each.rank() for each in holders] == [(number, 5) for number in range(5)]
    holders[1].close()
    del holders[3]  # garbage-collected
    assert [each.rank() for each in (holders[0], holders[2], holders[3])] == [(0, 3), (1, 3), (2, 3)]
    late = made(tmp_path, "late")
    assert [name for name, _ in late.holders()] == ["h0", "late", "h2", "h4"]
    assert holders[0].holders() == late.holders()  # the kernel reports the newest lock last
    assert late.holders()[0] == Holder("h0", os.getpid()) == holders[0].me
    (tmp_path / "l").write_bytes(b"\xff" * 9000)
    assert holders[2].holders()[0] == Holder("unknown", 0)


def test_the_file_is_removed_by_the_last_holder_alone(tmp_path: Path) -> None:
    a, b = made(tmp_path, "a"), made(tmp_path, "b")
    a.remove()
    assert (tmp_path / "l").exists()
    b.close()
    a.remove()
    assert not (tmp_path / "l").exists()


def test_a_holder_whose_file_was_removed_locks_the_new_one(tmp_path: Path) -> None:
    a = made(tmp_path, "a")
    assert a.take(3) and a.take(5, 2)
    (tmp_path / "l").unlink()
    assert a.rank() == (0, 1)
    b = made(tmp_path, "b")
    assert not b.take(3) and not b.take(6) and b.take(4) and a.rank() == (0, 2)
    (tmp_path / "l").unlink()
    assert b.take(7)  # b is the first in a third file
    a.give_up(3)
    assert b.rank() == (0, 2) and b.take(3) and not b.take(5)


def test_a_holder_whose_file_was_removed_and_numbers_taken_has_lost_them(tmp_path: Path) -> None:
    a = made(tmp_path, "a")
    assert a.take(3)
    (tmp_path / "l").unlink()
    b = made(tmp_path, "b")
    assert b.take(3)
    for use in (a.check, a.holders, a.remove, lambda: a.take(4), lambda: a.give_up(3)):
        with pytest.raises(AlreadyLocked, match=r"l: was removed while .* has 3 .* make a new reader"):
            use()
    assert b.rank() == (0, 1) and (tmp_path / "l").exists()
    a.close()
    assert b.holders() == [b.me] and not made(tmp_path, "c").take(3)


HOLDS = """
import os, sys
from klog.disk import Leases
leases = Leases(sys.argv[1], "l", "child")
assert leases.take(7)
if os.fork():  # the child goes on after the death of its parent
    print("held", flush=True)
sys.stdin.read()
"""


def test_a_death_releases_at_once_and_wakes_a_waiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a forked child lives on."""
    monkeypatch.setattr(watch, "RECHECK_SECONDS", 2 * PATIENCE)
    here = made(tmp_path, "here")
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        assert not here.take(7) and here.holders()[1] == Holder("child", child.pid)
        with Waiter([], [str(tmp_path)]) as waiter:
            waiting, woken = threading.Event(), threading.Event()

            def wait() -> None:
                while not here.take(7):
                    waiting.set()
                    waiter.wait()
                woken.set()

            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            assert waiting.wait(PATIENCE)
            child.send_signal(signal.SIGKILL)
            assert woken.wait(PATIENCE)
            thread.join()
    assert here.rank() == (0, 1)


def test_a_forked_child_holds_nothing(tmp_path: Path) -> None:
    """The parent's leases stay its own, and end with it although the child lives."""
    parent = made(tmp_path, "parent")
    assert parent.take(1)
    said, say = os.pipe()
    wait, go = os.pipe()
    child = os.fork()
    if not child:
        try:
            with pytest.raises(ForkedHandle, match="held by process"):
                parent.take(2)
            own = made(tmp_path, "child")
            assert not own.take(1) and own.take(2) and own.rank() == (1, 2)
            own.close()
            os.write(say, b"ok")
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(say)
    assert os.read(said, 2) == b"ok"
    parent.close()
    other = made(tmp_path, "other")
    assert other.take(0, NUMBERS) and other.rank() == (0, 1)
    os.write(go, b"x")
    os.waitpid(child, 0)
    for fd in (said, wait, go):
        os.close(fd)
