"""klog.clock: wall and monotonic time never mix, and a manual clock stands still until it is advanced."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from klog.clock import ManualClock, SystemClock, process_start_time
from tests.support.patience import until


def test_manual_clock_stands_still_until_advanced() -> None:
    clock = ManualClock(5000)
    wall, monotonic = clock.wall_ms(), clock.monotonic()
    assert (clock.wall_ms(), clock.monotonic()) == (wall, monotonic)
    assert wall == 5000
    clock.advance(1500)
    assert clock.wall_ms() == 6500
    assert clock.monotonic() == monotonic + 1.5


def test_manual_clock_keeps_wall_and_monotonic_time_apart() -> None:
    clock = ManualClock()
    assert abs(clock.wall_ms() / 1000 - clock.monotonic()) > 1e6


def test_sleeping_on_a_manual_clock_advances_it() -> None:
    clock = ManualClock(0)
    clock.sleep(2.5)
    assert clock.wall_ms() == 2500
    clock.sleep(0.0001)  # a loop of tiny sleeps must end
    assert clock.wall_ms() == 2501


def test_manual_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="make a new ManualClock"):
        ManualClock().advance(-1)


def test_system_clock_is_the_machines() -> None:
    clock = SystemClock()
    before = time.time_ns() // 1_000_000
    assert before <= clock.wall_ms() <= time.time_ns() // 1_000_000
    start = clock.monotonic()
    clock.sleep(0.002)
    assert clock.monotonic() > start


def test_start_time_detects_a_recycled_pid() -> None:
    mine = process_start_time(os.getpid())
    assert mine is not None
    assert mine == process_start_time(os.getpid())
    child = subprocess.Popen(["sleep", "600"])
    try:
        theirs = process_start_time(child.pid)
        assert theirs is not None
        assert theirs >= mine
    finally:
        child.kill()
        child.wait()
    assert process_start_time(child.pid) is None


FIRST_THREAD_ENDS = """
import ctypes, os, threading
threading.Thread(target=os.read, args=(0, 1)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_has_ended_before_its_parent_waits_for_it_and_after_all_its_threads() -> None:
    child = subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE)
    with child:
        until(lambda: ") Z" in Path(f"/proc/{child.pid}/stat").read_text())
        assert process_start_time(child.pid) is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_start_time(child.pid) is None


def test_a_forked_child_has_a_start_time_of_its_own() -> None:
    mine = process_start_time(os.getpid())
    time.sleep(0.03)  # more than a tick
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"%d" % (process_start_time(os.getpid()) or 0))
        os._exit(0)
    found = int(os.read(reading, 32))
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    assert mine is not None and found > mine
