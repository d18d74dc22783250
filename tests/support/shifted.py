"""Uses a log while the wall clock of its process jumps.

Run under shifted_clock.c as `python -m tests.support.shifted DIRECTORY CLOCK`; CLOCK is the file with the shift.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
import time
from pathlib import Path

import klog
from tests.support.patience import PATIENCE

DAY = 86_400
CONFIG = {"segment.bytes": 2000, "message.timestamp.after.max.ms": 1 << 62, "klog.io.preallocate": "none"}


class Shift:
    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def set(self, days: float) -> None:
        before = time.time() - self.days * DAY
        self._memory[:8] = struct.pack("q", int(days * DAY * 1e9))
        assert abs(time.time() - before - days * DAY) < DAY / 4, "the clock has not jumped"

    @property
    def days(self) -> float:
        return float(struct.unpack("q", self._memory[:8])[0]) / 1e9 / DAY


def flushes_go_on(root: Path, shift: Shift) -> None:
    """Check the thread that flushes with durability="interval"."""
    with klog.open(root, create=True, durability="interval") as logs:
        logs.create_topic("flushed", config=CONFIG)
        log = logs.log("flushed")
        for days in (-1, 1, -1000, 0):
            log.append([(None, b"v")])
            shift.set(days)
            log.append([(None, b"v")])
            end = time.monotonic() + PATIENCE
            while log.recovery_point < log.log_end_offset:
                assert time.monotonic() < end, f"no flush after a jump to {days} days"
                time.sleep(0.02)


def commits_and_waits_go_on(root: Path, shift: Shift) -> None:
    """Check group commit, and a tail with a timeout."""
    with klog.open(root, durability="sync") as logs:
        logs.create_topic("shared", config=CONFIG)
        log = logs.log("shared")
        end, counts = threading.Event(), [0] * 4

        def work(me: int) -> None:
            while not end.is_set():
                log.append([(None, b"v")])
                counts[me] += 1

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for days in (-400, 400, 0) * 20:
            before = log.log_end_offset
            shift.set(days)
            limit = time.monotonic() + PATIENCE
            while log.log_end_offset < before + 8:
                assert time.monotonic() < limit, f"no append after a jump to {days} days"
                time.sleep(0.001)
        end.set()
        for thread in threads:
            thread.join()
        assert log.count() == log.log_end_offset == sum(counts)
        tail = log.tail("latest", timeout=0.3)
        jump = threading.Timer(0.1, lambda: shift.set(-400))
        jump.start()
        assert list(tail) == []
        jump.join()


def lookups_are_exact(root: Path, shift: Shift) -> None:
    with klog.open(root) as logs:
        logs.create_topic("looked", config={**CONFIG, "segment.index.bytes": 200, "index.interval.bytes": 50})
        log = logs.log("looked")
        for days in (0, 3, -2, 10, -5, 1):
            shift.set(days)
            for _ in range(20):
                log.append([(None, b"v" * 40)])
        stamps = [(record.timestamp, record.offset) for record in log.read()]
        assert len({stamp // (DAY * 1000) for stamp, _ in stamps}) >= 6
        for wanted in sorted({stamp + more for stamp, _ in stamps for more in (-1, 0, 1)}):
            first = next((offset for stamp, offset in stamps if stamp >= wanted), None)
            found = log.offset_for_timestamp(wanted)
            assert (None if found is None else found.offset) == first


def retention_deletes_what_is_old(root: Path, shift: Shift) -> None:
    """A jump back deletes nothing. A jump forwards deletes the records that are then too old, but no record that is
    appended after it."""
    shift.set(0)
    with klog.open(root) as logs:
        logs.create_topic("kept", config={**CONFIG, "retention.ms": DAY * 1000})
        log = logs.log("kept")
        for _ in range(60):
            log.append([(None, b"v" * 100)])
        shift.set(-30)
        assert log.apply_retention() == 0 and log.count() == 60
        log.append([(None, b"of the past")])
        shift.set(3)
        log.roll()
        log.append([(None, b"new")])
        log.apply_retention()
        assert [record.value for record in log.read()] == [b"new"]
        shift.set(0)
        assert log.apply_retention() == 0
        assert [record.value for record in log.read()] == [b"new"] and log.log_end_offset == 62


def main(directory: str, clock: str) -> None:
    root, shift = Path(directory), Shift(clock)
    for part in (flushes_go_on, commits_and_waits_go_on, lookups_are_exact, retention_deletes_what_is_old):
        shift.set(0)
        part(root, shift)
    shift.set(-100)
    with klog.open(root) as logs:
        assert all(log.recovery.clean_shutdown for log in logs.logs())
    assert klog.verify(root).problems == []
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
